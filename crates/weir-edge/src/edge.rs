//! What a host calls: **read this first**.
//!
//! An edge stands before one egress port. For each packet the host calls, in this order:
//!
//! 1. [`Edge::packet`] with the header fields, the first bytes of the payload and the frame's length.
//!    The [`Verdict`] says which tos byte the packet has from here on, or that it is dropped, and why.
//!    Where it sees what comes the other way, it calls [`Edge::observe`] with that.
//! 2. The port classifies it. [`Edge::entered`] with the leaf that it goes to, before it is offered.
//! 3. For each event of the port: [`Edge::left`], when a packet was taken by the wire or dropped.
//!
//! The host calls [`Edge::timer`] when [`Edge::poll_at`] is reached, and [`Edge::answer`] when a broker
//! answered. After each of these calls it carries out what [`Edge::poll`] has, until there is no more:
//! a rate for a class (`Port::reconfigure`), or a request for the broker. A host that is late loses
//! nothing: windows end at their nominal times.
//!
//! At run time another configuration takes the place of the present one by [`Edge::follow`]. Single flows
//! are moved by [`Edge::evict_flow`], [`Edge::pin`] and [`Edge::unpin`]; [`Edge::explain`] says what is
//! known of one. [`Edge::recognise`] switches recognition off and on. [`Edge::set_sessions`] says which traffic is not
//! judged, because it has its own bandwidth. Where another process goes on with the port,
//! it has [`Edge::inherit`] what [`Edge::estate`] said.
//!
//! No call allocates, but for `new`, `follow` and `set_sessions`. Equal calls give equal answers: randomness comes from the configured seed.

mod config;
mod estate;
mod explain;
mod follow;
mod packet;
mod session;

pub use config::{
    Class, ClassStats, Config, ContractStats, FlowStats, Reason, Recognition, Turnover, Verdict,
};
pub use explain::{Explained, NotEvicted, Why};
pub use session::{Place, SESSIONS, Session, SessionNow};

use crate::admit::{Admission, Gate};
use crate::allocate::{Action, Allocation, Allocator, Answer, Backlog, Window, Windows};
use crate::flow::{Body, Cause, Flow, Flows, Outside, State};
use crate::recognise::statistical::{Aggregate, History};
use crate::sla::{Contract, Guessed, PER_BYTE, Policy, Shared, Table};
use alloc::vec::Vec;
use core::ops::Range;
use weir_core::Random;
use weir_core::packet::{Dscp, Key};
use weir_core::units::{Duration, Fraction, Instant};

/// A sixteenth of the table is swept so often: silent flows are gone a second after they might go.
const SWEEP: Duration = Duration::from_micros(62_500);

#[derive(Clone, Debug)]
struct Lane {
    class: Class,
    /// What the configuration says of the class; other terms were set while it ran.
    filed: Class,
    allocator: Option<Allocator>,
    gate: Gate,
    /// B_o: admitted flows alone, with a hold of 1.
    window: Window,
    /// Admitted flows, by their places in the table.
    admitted: Vec<u32>,
    queued: Backlog,
    /// Bytes of sessions that wait in the class, where it is measured behind its queue.
    apart_bytes: u64,
    /// What sessions sent that their rates are yet to carry, in units of 10^-9 bit, and when that was so.
    apart: (u64, Instant),
    stats: ClassStats,
}

impl Lane {
    /// A class that begins at `now`, in a table for so many flows.
    fn new(class: &Class, flows: usize, now: Instant) -> Self {
        let windows = class.allocation.map_or(Windows::DEFAULT, |a| a.windows);
        Lane {
            allocator: class.allocation.map(|plan| Allocator::new(plan, now)),
            gate: Gate::new(class.admission),
            window: Window::new(Windows { hold: 1, ..windows }, now),
            admitted: Vec::with_capacity(flows),
            queued: Backlog::default(),
            apart_bytes: 0,
            apart: (0, now),
            stats: ClassStats::default(),
            class: class.clone(),
            filed: class.clone(),
        }
    }
    /// What waits in the class besides what the rates of sessions are yet to carry.
    fn own_queue(&mut self, now: Instant) -> Backlog {
        let Backlog { bytes, packets } = self.queued;
        if self.apart.0 == 0 {
            return self.queued;
        }
        let rate = self.allocator.as_ref().map_or(0, Allocator::apart_bps);
        let carried = rate.saturating_mul(now.since(self.apart.1).as_nanos());
        self.apart = (self.apart.0.saturating_sub(carried), self.apart.1.max(now));
        let own = bytes.saturating_sub(self.apart.0.div_ceil(PER_BYTE));
        let part = (u128::from(packets) * u128::from(own)).div_ceil(u128::from(bytes.max(1)));
        Backlog { bytes: own, packets: part as u64 }
    }
    fn limit(&self, now: Instant) -> u64 {
        self.allocator.as_ref().map_or(self.class.rate_bps, |a| a.limit_bps(now))
    }
}

/// No contract: there is none on file, and every source is served.
const NOBODY: u32 = u32::MAX;

/// The parameters of a class.
pub(crate) type Terms = (Allocation, Admission);

/// The parameters of a class with an allocator.
fn terms(class: &Class) -> Option<Terms> {
    class.allocation.map(|plan| (plan, class.admission))
}

/// What packets of a known flow need of their contract.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct PacketTerms {
    /// [`OF_CLASS`](PacketTerms::OF_CLASS) if it has none of its own.
    timeout: Duration,
    class: u32,
    dscp: Dscp,
    /// That of flows that were guessed.
    guessed_dscp: Dscp,
    policy: Policy,
    /// Flows that were guessed have something of their own.
    has_guessed: bool,
}

impl PacketTerms {
    const OF_CLASS: Duration = Duration::from_nanos(u64::MAX);

    fn of(contract: &Contract) -> Self {
        let Contract { timeout, class, dscp, policy, guessed_dscp, .. } = *contract;
        let has_guessed = contract.guessed.is_some() || guessed_dscp.is_some();
        let (timeout, class) = (timeout.unwrap_or(Self::OF_CLASS), class as u32);
        PacketTerms { timeout, class, dscp, guessed_dscp: guessed_dscp.unwrap_or(dscp), policy, has_guessed }
    }
}

/// The meter of a contract, and who has a part of it. Packets within their flow's own part touch one line of cache here,
/// and nothing else of their contract: with many contracts it is what such a packet costs.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
struct Meter {
    in_profile_bytes: u64,
    terms: PacketTerms,
    shared: Shared,
    /// Its admitted flows: the first of a chain by their places in the table, which goes on in `Edge::next`.
    first: Option<u32>,
    /// What is rare, and what is kept elsewhere: see [`Meter::stats`].
    others: ContractStats,
    guessed: Option<Guessed>,
}

const _: () = assert!(core::mem::offset_of!(Meter, shared) + Shared::FIRST <= 64);

impl Meter {
    fn new(contract: &Contract, now: Instant) -> Self {
        Meter {
            shared: Shared::new(contract, now),
            first: None,
            terms: PacketTerms::of(contract),
            in_profile_bytes: 0,
            others: ContractStats::default(),
            guessed: Guessed::new(contract, now),
        }
    }
    fn stats(&self) -> ContractStats {
        let ContractStats { passed_bytes, dropped_bytes, best_effort_bytes, .. } = self.others;
        let in_profile_bytes = self.in_profile_bytes;
        let offered_bytes = in_profile_bytes + passed_bytes + dropped_bytes + best_effort_bytes;
        ContractStats { offered_bytes, in_profile_bytes, ..self.others }
    }
    fn set_stats(&mut self, stats: ContractStats) {
        (self.in_profile_bytes, self.others) = (stats.in_profile_bytes, stats);
    }
}

/// For how many flows, and for how many contracts, the statistical rule keeps what it judges by.
fn guesses(config: &Config, flows: usize) -> (usize, usize) {
    match config.recognition.and_then(|recognition| recognition.rules.statistical) {
        Some(rule) if rule.per_aggregate => (0, config.contracts.len().max(1)),
        Some(_) => (flows, 0),
        None => (0, 0),
    }
}

/// An edge.
#[derive(Clone, Debug)]
pub struct Edge {
    config: Config,
    table: Table,
    meters: Vec<Meter>,
    /// For each of `flows` that is admitted, the next of its contract.
    next: Vec<Option<u32>>,
    lanes: Vec<Lane>,
    flows: Flows,
    /// Recognition is switched on.
    recognises: bool,
    /// For the statistical rule, a row for each of `flows`; empty if it is off.
    histories: Vec<History>,
    /// For its form `per aggregate`, a row for each contract; empty if it is off.
    aggregates: Vec<Aggregate>,
    sessions: session::Sessions,
    /// The packet at hand is one of a session, within its rate.
    is_apart: bool,
    /// When the table is swept next.
    sweep_at: Instant,
    stats: FlowStats,
    random: Random,
}

impl Edge {
    /// An edge that begins at `now`: its windows begin there.
    pub fn new(config: Config, now: Instant) -> Self {
        let mut random = Random::new(config.seed);
        let capacity = config.recognition.as_ref().map_or(0, |r| r.flows);
        let flows = Flows::new(capacity, config.contracts.len(), random.next_u64());
        let (histories, aggregates) = guesses(&config, flows.capacity());
        let lanes = config.classes.iter().map(|class| Lane::new(class, capacity as usize, now));
        Edge {
            table: Table::new(&config.prefixes),
            meters: config.contracts.iter().map(|contract| Meter::new(contract, now)).collect(),
            next: alloc::vec![None; flows.capacity()],
            lanes: lanes.collect(),
            flows,
            recognises: true,
            histories: alloc::vec![History::default(); histories],
            aggregates: alloc::vec![Aggregate::default(); aggregates],
            sessions: session::Sessions::default(),
            is_apart: false,
            sweep_at: now + SWEEP,
            stats: FlowStats::default(),
            random,
            config,
        }
    }

    /// An admitted flow is taken out of its class: for a reason, or because it ended.
    fn leave(&mut self, now: Instant, index: u32, refused: Option<Cause>) {
        let flow = self.flows.get(index);
        let (contract, Some(part)) = (flow.contract, flow.part()) else { return };
        let (place, standing) = (part.place as usize, part.standing);
        self.forget(index);
        self.resize(now, contract, -1);
        self.unchain(contract, index);
        let class = self.class_of(contract);
        let refused = refused.map(|cause| (now, cause));
        self.flows.settle(index, Body::Outside(Outside { refused, standing }));
        let admitted = &mut self.lanes[class].admitted;
        admitted.swap_remove(place);
        let moved = admitted.get(place).copied();
        if let Some(part) = moved.and_then(|moved| self.flows.get_mut(moved).part_mut()) {
            part.place = place as u32;
        }
    }

    /// What an admitted flow sent, and was expected to send, is not counted for its class any more.
    fn forget(&mut self, index: u32) {
        let flow = self.flows.get(index);
        let Body::Admitted { packets, bytes, part } = &flow.body else { return };
        let class = self.class_of(flow.contract);
        let Lane { window, gate, .. } = &mut self.lanes[class];
        window.uncount(part.charged(*packets, *bytes, self.config.overhead).into());
        let mut expected = [0; 2];
        if let Some(new) = usize::try_from(window.ago(part.since)).ok().and_then(|ago| expected.get_mut(ago))
        {
            *new = part.expected_bps.into();
        }
        gate.forget(window.mean_of(part.last_charged.into()), expected);
    }

    /// Counts what became of a flow, for its class and its contract.
    fn count(&mut self, contract: u32, count: impl Fn(&mut Turnover)) {
        let class = self.class_of(contract);
        self.lanes.get_mut(class).into_iter().for_each(|lane| count(&mut lane.stats.flows));
        self.meters.get_mut(contract as usize).into_iter().for_each(|meter| count(&mut meter.others.flows));
    }

    /// An admitted flow has ended. It is remembered as real-time until it is idle.
    fn end(&mut self, now: Instant, index: u32) {
        if self.flows.get(index).state() == State::Admitted {
            self.count(self.flows.get(index).contract, |flows| flows.timed_out += 1);
            self.leave(now, index, None);
        }
    }

    /// One flow of a class goes, if one may, for the reason that holds for its contract.
    fn evict(
        &mut self,
        now: Instant,
        class: usize,
        may: impl Fn(&Contract) -> bool,
        cause: impl Fn(Option<&Contract>) -> Cause,
    ) {
        let (lane, flows) = (&self.lanes[class], &self.flows);
        let contracts = &self.config.contracts;
        let candidates = lane.admitted.iter().map(|&index| (index, flows.get(index)));
        let candidates =
            candidates.filter(|(_, flow)| contracts.get(flow.contract as usize).is_none_or(&may));
        let policy = lane.class.admission.evict;
        let Some(mut index) = Gate::choose(policy, candidates, &mut self.random) else { return };
        let contract = flows.get(index).contract;
        let terms = contracts.get(contract as usize);
        if let Some(own) = terms.and_then(|terms| terms.evict) {
            let admitted = lane.admitted.iter().map(|&index| (index, flows.get(index)));
            let its = admitted.filter(|(_, flow)| flow.contract == contract);
            index = Gate::choose(own, its, &mut self.random).unwrap_or(index);
        }
        let cause = cause(terms);
        self.count(contract, |flows| flows.evicted += 1);
        self.leave(now, index, Some(cause));
    }

    /// A packet goes to this leaf, and waits there from now on.
    pub fn entered(&mut self, now: Instant, leaf: u32, len: u32) {
        let bytes = u64::from(len + self.config.overhead);
        let is_apart = core::mem::take(&mut self.is_apart);
        let Some(class) = self.lanes.iter().position(|lane| lane.class.leaf == leaf) else { return };
        let lane = &mut self.lanes[class];
        lane.queued = Backlog { bytes: lane.queued.bytes + bytes, packets: lane.queued.packets + 1 };
        if is_apart {
            // Up to now.
            lane.own_queue(now);
            lane.apart = (lane.apart.0.saturating_add(bytes * PER_BYTE), lane.apart.1.max(now));
        }
        let own = lane.own_queue(now);
        if let Some(allocator) = &mut lane.allocator {
            match (allocator.plan().at_shaper, is_apart) {
                (false, false) => allocator.entered(now, bytes),
                (true, true) => lane.apart_bytes += bytes,
                (false, true) | (true, false) => {}
            }
            allocator.queued(now, own);
        }
        self.shed(now, class);
    }

    /// A packet that had entered was taken by the wire, or dropped.
    pub fn left(&mut self, now: Instant, leaf: u32, len: u32, taken: bool) {
        let bytes = u64::from(len + self.config.overhead);
        let Some(class) = self.lanes.iter().position(|lane| lane.class.leaf == leaf) else { return };
        let lane = &mut self.lanes[class];
        lane.queued.bytes = lane.queued.bytes.saturating_sub(bytes);
        lane.queued.packets = lane.queued.packets.saturating_sub(1);
        // Of which packets these are is not known behind the queue; their sum is.
        let apart = bytes.min(lane.apart_bytes);
        lane.apart_bytes -= apart;
        let own = lane.own_queue(now);
        if let Some(allocator) = &mut lane.allocator {
            if taken && allocator.plan().at_shaper && bytes > apart {
                allocator.entered(now, bytes - apart);
            }
            allocator.queued(now, own);
        }
        self.shed(now, class);
    }

    /// The exact bandwidth of a class, where it is known (the ideal system).
    pub fn told(&mut self, now: Instant, leaf: u32, used_bps: u64) {
        let lane = self.lanes.iter_mut().find(|lane| lane.class.leaf == leaf);
        if let Some(allocator) = lane.and_then(|lane| lane.allocator.as_mut()) {
            allocator.told(now, used_bps);
        }
    }

    /// When to call `timer` next.
    pub fn poll_at(&self) -> Instant {
        let times = self.lanes.iter().map(|lane| {
            let gate = if self.config.recognition.is_some() { lane.window.end() } else { Instant::NEVER };
            lane.allocator.as_ref().map_or(gate, |a| gate.min(a.poll_at()))
        });
        let sweep = if self.flows.used() > 0 { self.sweep_at } else { Instant::NEVER };
        times.fold(sweep, Instant::min)
    }

    /// The clock reached `now`.
    pub fn timer(&mut self, now: Instant) {
        if let Some(recognition) = self.config.recognition.as_ref().filter(|_| self.sweep_at <= now) {
            self.flows.sweep(now, recognition.idle);
            self.sweep_at = now + SWEEP;
        }
        for class in 0..self.lanes.len() {
            if let Some(allocator) = &mut self.lanes[class].allocator {
                allocator.timer(now);
            }
            while self.config.recognition.is_some()
                && let Some(at) = self.lanes[class].window.close(now)
            {
                self.window(at, class);
            }
            self.shed(now, class);
        }
    }

    /// A window of admission ended.
    fn window(&mut self, at: Instant, class: usize) {
        let overhead = self.config.overhead;
        let lane = &mut self.lanes[class];
        let offered = lane.window.mean_bps();
        let limit = lane.limit(at);
        lane.gate.window(offered, lane.admitted.len() as u32);
        lane.stats.windows += 1;
        lane.stats.windows_above += u64::from(offered > limit);
        let mut place = 0;
        while let Some(&index) = self.lanes[class].admitted.get(place) {
            let flow = self.flows.get_mut(index);
            if let Body::Admitted { packets, bytes, part } = &mut flow.body {
                part.last_charged = part.charged(*packets, *bytes, overhead);
                part.last_bytes = core::mem::take(bytes);
                part.last_packets = core::mem::take(packets);
                part.uncharged = 0;
            }
            let (last, contract) = (flow.last, flow.contract);
            if at.since(last) > self.timeout(contract) {
                self.end(at, index);
            } else {
                place += 1;
            }
        }
        let lane = &self.lanes[class];
        let (gate, usual, policy) =
            (lane.gate.clone(), lane.class.admission.drop, lane.class.admission.evict);
        let above = |drop: Option<Fraction>| gate.is_above(limit, drop.unwrap_or(usual));
        let cause = |contract: Option<&Contract>| Cause::Above {
            offered_bps: offered,
            limit_bps: limit,
            drop: contract.and_then(|c| c.drop).unwrap_or(usual),
            evict: contract.and_then(|c| c.evict).unwrap_or(policy),
        };
        if self.config.contracts.is_empty() {
            if above(None) {
                self.evict(at, class, |_| true, cause);
            }
        } else if self.config.contracts.iter().any(|c| c.class == class && above(c.drop)) {
            self.evict(at, class, |c| above(c.drop), cause);
        }
    }

    /// Evicts where congestion control asks for it.
    fn shed(&mut self, now: Instant, class: usize) {
        let Lane { allocator: Some(allocator), window, admitted, .. } = &mut self.lanes[class] else {
            return;
        };
        let sends = |&index: &u32| {
            let Body::Admitted { packets, bytes, part } = &self.flows.get(index).body else { return None };
            let sent = u64::from(part.last_charged)
                + u64::from(part.charged(*packets, *bytes, self.config.overhead));
            Some(window.rate_of(sent, part.since, now))
        };
        let offered = || {
            let is_known = self.config.recognition.is_some();
            is_known.then(|| admitted.iter().filter_map(sends).fold(0, u64::saturating_add))
        };
        if allocator.take_eviction(now, offered) {
            self.evict(now, class, |_| true, |_| Cause::Congested);
        }
    }

    /// A broker answered a request of the class with that leaf.
    pub fn answer(&mut self, now: Instant, leaf: u32, version: u64, answer: Answer) {
        let Some(class) = self.lanes.iter().position(|lane| lane.class.leaf == leaf) else { return };
        if let Some(allocator) = &mut self.lanes[class].allocator {
            allocator.answer(now, version, answer);
        }
        self.shed(now, class);
    }

    /// The broker of a class takes back: it has at most `rate` bit/s from now on, as
    /// [`Allocator::withdraw`] says.
    pub fn withdraw(&mut self, now: Instant, leaf: u32, rate: u64, retry: Duration) {
        let Some(class) = self.lanes.iter().position(|lane| lane.class.leaf == leaf) else { return };
        if let Some(allocator) = &mut self.lanes[class].allocator {
            allocator.withdraw(now, rate, retry);
        }
        self.shed(now, class);
    }

    /// The next thing to do, with the leaf that it is for; none if all is done.
    pub fn poll(&mut self) -> Option<(u32, Action)> {
        self.lanes.iter_mut().find_map(|lane| {
            let action = lane.allocator.as_mut()?.poll()?;
            Some((lane.class.leaf, action))
        })
    }

    /// What it was made from.
    pub fn config(&self) -> &Config {
        &self.config
    }
    /// The allocators, with the leaves of their classes.
    pub fn allocators(&self) -> impl Iterator<Item = (u32, &Allocator)> {
        self.lanes.iter().filter_map(|lane| lane.allocator.as_ref().map(|a| (lane.class.leaf, a)))
    }
    /// An allocator, to ask for its statistics or to change it.
    pub fn allocator_mut(&mut self, leaf: u32) -> Option<&mut Allocator> {
        self.lanes.iter_mut().find(|lane| lane.class.leaf == leaf)?.allocator.as_mut()
    }
    /// An allocator, with the admission to its class.
    pub(crate) fn allocator_of(&self, leaf: u32) -> Option<(&Admission, &Allocator)> {
        let lane = self.lanes.iter().find(|lane| lane.class.leaf == leaf)?;
        Some((&lane.class.admission, lane.allocator.as_ref()?))
    }
    /// The parameters of a class with an allocator: as the configuration says, and as they are.
    pub(crate) fn terms_of(&self, leaf: u32) -> Option<(Terms, Terms)> {
        let lane = self.lanes.iter().find(|lane| lane.class.leaf == leaf)?;
        Some((terms(&lane.filed)?, terms(&lane.class)?))
    }
    /// Other parameters of a class with an allocator.
    pub(crate) fn set_terms(&mut self, now: Instant, leaf: u32, plan: Allocation, admission: Admission) {
        let Some(class) = self.lanes.iter().position(|lane| lane.class.leaf == leaf) else { return };
        let new = Class { allocation: Some(plan), admission, ..self.lanes[class].class.clone() };
        self.config.classes[class] = new.clone();
        self.lanes[class].set_terms(new, now);
        self.shed(now, class);
    }
    /// What waits in the class with that leaf, where the host knows it: after it exchanged the port, which
    /// may have put packets into other classes.
    pub fn set_backlog(&mut self, now: Instant, leaf: u32, queued: Backlog) {
        let Some(class) = self.lanes.iter().position(|lane| lane.class.leaf == leaf) else { return };
        let lane = &mut self.lanes[class];
        lane.queued = queued;
        let own = lane.own_queue(now);
        if let Some(allocator) = &mut lane.allocator {
            allocator.queued(now, own);
        }
        self.shed(now, class);
    }
    /// Another rate of a class without an allocation: the limit that admission compares with, bit/s.
    pub fn set_rate(&mut self, leaf: u32, rate_bps: u64) {
        if let Some(lane) = self.lanes.iter_mut().find(|lane| lane.class.leaf == leaf) {
            lane.class.rate_bps = rate_bps;
        }
    }
    /// What became of the flows of a class, with its leaf.
    pub fn class_stats(&self) -> impl Iterator<Item = (u32, ClassStats)> {
        self.lanes.iter().map(|lane| (lane.class.leaf, lane.stats))
    }
    /// What became of the packets and flows of each contract, in the order of the configuration.
    pub fn contract_stats(&self) -> impl Iterator<Item = ContractStats> {
        self.meters.iter().map(Meter::stats)
    }
    /// The contract of a packet: by its source, or on its way back by its destination.
    pub fn contract(&self, key: &Key) -> Option<&Contract> {
        self.config.contracts.get(self.contract_of(key)? as usize)
    }
    /// The flows that were heard within `idle` before `now`.
    pub fn flows(&self, now: Instant) -> impl Iterator<Item = &Flow> {
        let idle = self.idle();
        self.flows.iter().filter(move |flow| now.since(flow.last) <= idle)
    }
    /// Places in the table of flows.
    pub fn places(&self) -> usize {
        self.flows.capacity()
    }
    /// The same as [`Edge::flows`] of these places of the table alone: for a host that has no time for all at once.
    pub fn flows_at(&self, now: Instant, places: Range<usize>) -> impl Iterator<Item = &Flow> {
        let idle = self.idle();
        self.flows.within(places).filter(move |flow| now.since(flow.last) <= idle)
    }
    /// What became of flows.
    pub fn flow_stats(&self) -> FlowStats {
        let flows = &self.flows;
        FlowStats {
            used: flows.used(),
            replaced: flows.replaced,
            turned_away: flows.turned_away,
            ..self.stats
        }
    }
}
