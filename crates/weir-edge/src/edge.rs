//! What a host calls: **read this first**.
//!
//! An edge stands before one egress port. For each packet the host calls, in this order:
//!
//! 1. [`Edge::packet`] with the header fields, the first bytes of the payload and the frame's length.
//!    The [`Verdict`] says which tos byte the packet has from here on, or that it is dropped, and why.
//! 2. The port classifies it. [`Edge::entered`] with the leaf that it goes to, before it is offered.
//! 3. For each event of the port: [`Edge::left`], when a packet was taken by the wire or dropped.
//!
//! The host calls [`Edge::timer`] when [`Edge::poll_at`] is reached, and [`Edge::answer`] when a broker
//! answered. After each of these calls it carries out what [`Edge::poll`] has, until there is no more:
//! a rate for a class (`Port::reconfigure`), or a request for the broker. A host that is late loses
//! nothing: windows end at their nominal times.
//!
//! No call allocates. Equal calls give equal answers: randomness comes from the configured seed.

use crate::admit::{Admission, Gate};
use crate::allocate::{Action, Allocation, Allocator, Answer, Backlog, Window, Windows};
use crate::flow::{Flow, Flows, State};
use crate::sla::{Contract, Policy, Prefix, Profile, Shared, Table};
use alloc::vec::Vec;
use weir_core::Random;
use weir_core::packet::key::protocol;
use weir_core::packet::{Dscp, Key};
use weir_core::units::{Duration, Instant};

/// No contract: there is none on file, and every source is served.
const NOBODY: u32 = u32::MAX;
/// A flow under `be-flow` goes back to its class after so long within its profile.
const FIT_FOR: Duration = Duration::from_secs(1);

/// A real-time class.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Class {
    /// Its leaf at the port.
    pub leaf: u32,
    /// How it asks for bandwidth; none: its rate is fixed.
    pub allocation: Option<Allocation>,
    /// Who gets in.
    pub admission: Admission,
    /// Its rate without an allocation, bit/s: the limit that admission compares with.
    pub rate_bps: u64,
}

/// How real-time flows are known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recognition {
    /// A flow that the end host marks EF, VA or NQB (RFC 3246, 5865, 9956) is real-time, at its first packet.
    pub trust_dscp: bool,
    /// A flow is forgotten after so much silence.
    pub idle: Duration,
    /// Flows that are remembered.
    pub flows: u32,
}

impl Default for Recognition {
    fn default() -> Self {
        Recognition { trust_dscp: false, idle: Duration::from_secs(30), flows: 65_536 }
    }
}

/// What an edge is made from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// Real-time classes of the port.
    pub classes: Vec<Class>,
    /// Contracts; none: every source is served, without a limit of its own, in the first class.
    pub contracts: Vec<Contract>,
    /// Prefixes of sources, each with the place of its contract in `contracts`.
    pub prefixes: Vec<(Prefix, u32)>,
    /// How real-time flows are known; none: the edge leaves packets alone and only allocates.
    pub recognition: Option<Recognition>,
    /// Packets of sources without a contract keep their code point, instead of losing it.
    pub keep_untrusted: bool,
    /// Bytes that a packet costs on the wire beyond its frame: classes are charged for them.
    pub overhead: u32,
    /// For evictions and for the table's hash.
    pub seed: u64,
}

/// Why a packet goes where it goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// Its source has no contract.
    NoContract,
    /// Its flow is not known to be real-time.
    Ordinary,
    /// Its flow is real-time, and it is in profile.
    InProfile,
    /// Its flow is real-time, but the contract's bandwidth is used up.
    OutOfProfile,
    /// Its flow was refused or evicted.
    Refused,
}

/// What becomes of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// The tos byte to write; ECN bits are as they were.
    pub tos: u8,
    /// It is dropped.
    pub drop: bool,
    /// Why.
    pub reason: Reason,
}

/// What an edge has done with the flows of a class.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ClassStats {
    /// New real-time flows that got in.
    pub admitted: u64,
    /// New real-time flows that did not.
    pub refused: u64,
    /// Admitted flows that had to go.
    pub evicted: u64,
    /// Admitted flows that ended by silence.
    pub timed_out: u64,
    /// Windows that ended, and those in which admitted flows sent more than the limit.
    pub windows: u64,
    /// Windows in which admitted flows sent more than the limit.
    pub windows_above: u64,
}

/// What an edge has done with the packets of a contract, bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ContractStats {
    /// Offered by its real-time flows.
    pub offered_bytes: u64,
    /// Of these in profile.
    pub in_profile_bytes: u64,
    /// Out of profile, and passed on as if in profile (policy `ok`).
    pub passed_bytes: u64,
    /// Out of profile, and dropped.
    pub dropped_bytes: u64,
    /// Out of profile, and passed on as best effort.
    pub best_effort_bytes: u64,
}

#[derive(Clone, Debug)]
struct Lane {
    class: Class,
    allocator: Option<Allocator>,
    gate: Gate,
    /// B_o: admitted flows alone, with a hold of 1.
    window: Window,
    /// Admitted flows, by their places in the table.
    admitted: Vec<u32>,
    queued: Backlog,
    stats: ClassStats,
}

impl Lane {
    fn limit(&self, now: Instant) -> u64 {
        self.allocator.as_ref().map_or(self.class.rate_bps, |a| a.limit_bps(now))
    }
}

/// An edge.
#[derive(Clone, Debug)]
pub struct Edge {
    config: Config,
    table: Table,
    meters: Vec<(Shared, ContractStats)>,
    lanes: Vec<Lane>,
    flows: Flows,
    random: Random,
}

impl Edge {
    /// An edge that begins at `now`: its windows begin there.
    pub fn new(config: Config, now: Instant) -> Self {
        let mut random = Random::new(config.seed);
        let capacity = config.recognition.as_ref().map_or(0, |r| r.flows);
        let flows = Flows::new(capacity, random.next_u64());
        let lanes = config.classes.iter().map(|class| {
            let windows = class.allocation.map_or(Windows::DEFAULT, |a| a.windows);
            Lane {
                allocator: class.allocation.map(|plan| Allocator::new(plan, now)),
                gate: Gate::new(class.admission),
                window: Window::new(Windows { hold: 1, ..windows }, now),
                admitted: Vec::with_capacity(capacity as usize),
                queued: Backlog::default(),
                stats: ClassStats::default(),
                class: class.clone(),
            }
        });
        let meters = config.contracts.iter().map(|c| (Shared::new(c, now), ContractStats::default()));
        Edge {
            table: Table::new(&config.prefixes),
            meters: meters.collect(),
            lanes: lanes.collect(),
            flows,
            random,
            config,
        }
    }

    /// What becomes of a packet of `len` bytes. `payload` is what is known of the bytes behind the
    /// transport header.
    pub fn packet(&mut self, now: Instant, key: &Key, _payload: &[u8], len: u32) -> Verdict {
        let as_is = |reason| Verdict { tos: key.tos, drop: false, reason };
        let best_effort = |reason| Verdict { tos: key.tos & 3, drop: false, reason };
        let Some(recognition) = &self.config.recognition else { return as_is(Reason::Ordinary) };
        let (trust, idle) = (recognition.trust_dscp, recognition.idle);
        let contract = match self.config.contracts.is_empty() {
            true => NOBODY,
            false => match self.table.find(key.family, key.src) {
                Some(contract) => contract,
                None if self.config.keep_untrusted => return as_is(Reason::NoContract),
                None => return best_effort(Reason::NoContract),
            },
        };
        if key.protocol != protocol::UDP {
            return best_effort(Reason::Ordinary);
        }
        self.timer(now);
        let known = match self.flows.find(key) {
            Some(index) => {
                let silent = now.since(self.flows.get(index).last);
                if silent > idle || silent > self.timeout(contract) {
                    self.end(now, index);
                    None
                } else {
                    Some(index)
                }
            }
            None => None,
        };
        let marked = matches!(key.dscp().value(), 44..=46);
        let is_new = known.is_none();
        let Some(index) = known.or_else(|| self.flows.insert(key, now)) else {
            return best_effort(Reason::Ordinary);
        };
        let flow = self.flows.get_mut(index);
        flow.last = now;
        if is_new {
            flow.contract = contract;
        }
        if flow.state == State::Candidate && trust && marked {
            self.admit(now, index);
        }
        match self.flows.get(index).state {
            State::Candidate => best_effort(Reason::Ordinary),
            State::Refused => {
                let drop =
                    self.lanes.get(self.class_of(contract)).is_some_and(|l| l.class.admission.drop_refused);
                Verdict { drop, ..best_effort(Reason::Refused) }
            }
            State::Admitted => self.meter(now, index, key.tos, len),
        }
    }

    fn class_of(&self, contract: u32) -> usize {
        self.config.contracts.get(contract as usize).map_or(0, |c| c.class)
    }

    fn timeout(&self, contract: u32) -> Duration {
        self.config.contracts.get(contract as usize).map_or(Duration::from_secs(5), |c| c.timeout)
    }

    /// A flow is found to be real-time.
    fn admit(&mut self, now: Instant, index: u32) {
        let flow = self.flows.get(index);
        let (contract, pinned) = (flow.contract, flow.pinned);
        let class = self.class_of(contract);
        let Some(lane) = self.lanes.get_mut(class) else { return };
        let limit = lane.limit(now);
        let terms = self.config.contracts.get(contract as usize);
        let accept = terms.and_then(|c| c.accept).unwrap_or(lane.class.admission.accept);
        let room = match (terms, self.meters.get(contract as usize)) {
            (Some(terms), Some((meter, _))) => meter.flows() < terms.flows,
            _ => true,
        };
        let gets_in = if pinned {
            lane.gate.count_new();
            true
        } else {
            room && lane.gate.admit(limit, accept)
        };
        let flow = self.flows.get_mut(index);
        flow.admitted = now;
        if !gets_in {
            lane.stats.refused += 1;
            flow.state = State::Refused;
            return;
        }
        lane.stats.admitted += 1;
        flow.state = State::Admitted;
        flow.own = crate::sla::Own::new(now);
        flow.place = lane.admitted.len() as u32;
        lane.admitted.push(index);
        self.resize(now, contract, 1);
    }

    /// One flow more or less has a part of a contract.
    fn resize(&mut self, now: Instant, contract: u32, change: i32) {
        if (contract as usize) < self.meters.len() {
            self.collect(now, contract);
            let (meter, _) = &mut self.meters[contract as usize];
            let flows = meter.flows().saturating_add_signed(change);
            meter.set_flows(now, flows);
        }
    }

    /// Hands over what the flows of a contract cannot hold.
    fn collect(&mut self, now: Instant, contract: u32) {
        let class = self.class_of(contract);
        let Some((meter, _)) = self.meters.get_mut(contract as usize) else { return };
        for &index in &self.lanes[class].admitted {
            let flow = self.flows.get_mut(index);
            if flow.contract == contract {
                meter.collect(now, &mut flow.own);
            }
        }
        meter.collected(now);
    }

    /// A packet of an admitted flow.
    fn meter(&mut self, now: Instant, index: u32, tos: u8, len: u32) -> Verdict {
        let contract = self.flows.get(index).contract;
        let lane = &mut self.lanes[self.config.contracts.get(contract as usize).map_or(0, |c| c.class)];
        lane.window.count(u64::from(len + self.config.overhead));
        let verdict = |dscp: Dscp, drop, reason| Verdict { tos: dscp.on_tos(tos), drop, reason };
        self.flows.get_mut(index).bytes += u64::from(len);
        let Some(terms) = self.config.contracts.get(contract as usize) else {
            return verdict(Dscp::EF, false, Reason::InProfile);
        };
        let (dscp, policy) = (terms.dscp, terms.policy);
        if self.meters[contract as usize].0.wants_collection(now) {
            self.collect(now, contract);
        }
        let (meter, stats) = &mut self.meters[contract as usize];
        let flow = self.flows.get_mut(index);
        let bytes = u64::from(len);
        stats.offered_bytes += bytes;
        let profile = meter.take(now, &mut flow.own, len);
        if profile == Profile::In && (policy != Policy::FlowBestEffort || now >= flow.best_effort_until) {
            stats.in_profile_bytes += bytes;
            return verdict(dscp, false, Reason::InProfile);
        }
        if profile == Profile::Out {
            flow.best_effort_until = now + FIT_FOR;
        }
        let (counter, dscp, drop) = match policy {
            Policy::Ok => (&mut stats.passed_bytes, dscp, false),
            Policy::Drop => (&mut stats.dropped_bytes, Dscp::CS0, true),
            Policy::BestEffort | Policy::FlowBestEffort => (&mut stats.best_effort_bytes, Dscp::CS0, false),
        };
        *counter += bytes;
        verdict(dscp, drop, Reason::OutOfProfile)
    }

    /// A flow has ended, or is taken out of its class.
    fn leave(&mut self, now: Instant, index: u32) {
        let flow = self.flows.get(index);
        let (contract, place) = (flow.contract, flow.place);
        let class = self.class_of(contract);
        self.resize(now, contract, -1);
        let admitted = &mut self.lanes[class].admitted;
        admitted.swap_remove(place as usize);
        if let Some(&moved) = admitted.get(place as usize) {
            self.flows.get_mut(moved).place = place;
        }
    }

    fn end(&mut self, now: Instant, index: u32) {
        if self.flows.get(index).state == State::Admitted {
            let class = self.class_of(self.flows.get(index).contract);
            self.lanes[class].stats.timed_out += 1;
            self.leave(now, index);
        }
        self.flows.remove(index);
    }

    /// One flow of a class goes, if one may.
    fn evict(&mut self, now: Instant, class: usize, may: impl Fn(&Contract) -> bool) {
        let (lane, flows) = (&self.lanes[class], &self.flows);
        let contracts = &self.config.contracts;
        let candidates = lane.admitted.iter().map(|&index| (index, flows.get(index)));
        let candidates =
            candidates.filter(|(_, flow)| contracts.get(flow.contract as usize).is_none_or(&may));
        let Some(index) = lane.gate.choose(candidates, &mut self.random) else { return };
        self.leave(now, index);
        self.lanes[class].stats.evicted += 1;
        let flow = self.flows.get_mut(index);
        flow.state = State::Refused;
        flow.admitted = now;
    }

    /// A packet goes to this leaf, and waits there from now on.
    pub fn entered(&mut self, now: Instant, leaf: u32, len: u32) {
        let bytes = u64::from(len + self.config.overhead);
        let Some(class) = self.lanes.iter().position(|lane| lane.class.leaf == leaf) else { return };
        let lane = &mut self.lanes[class];
        lane.queued = Backlog { bytes: lane.queued.bytes + bytes, packets: lane.queued.packets + 1 };
        if let Some(allocator) = &mut lane.allocator {
            if !allocator.plan().at_shaper {
                allocator.entered(now, bytes);
            }
            allocator.queued(now, lane.queued);
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
        if let Some(allocator) = &mut lane.allocator {
            if taken && allocator.plan().at_shaper {
                allocator.entered(now, bytes);
            }
            allocator.queued(now, lane.queued);
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
        times.min().unwrap_or(Instant::NEVER)
    }

    /// The clock reached `now`.
    pub fn timer(&mut self, now: Instant) {
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
        let lane = &mut self.lanes[class];
        let offered = lane.window.mean_bps();
        let limit = lane.limit(at);
        lane.gate.window(offered, lane.admitted.len() as u32);
        lane.stats.windows += 1;
        lane.stats.windows_above += u64::from(offered > limit);
        let mut place = 0;
        while let Some(&index) = self.lanes[class].admitted.get(place) {
            let flow = self.flows.get_mut(index);
            flow.last_bytes = core::mem::take(&mut flow.bytes);
            let (last, contract) = (flow.last, flow.contract);
            if at.since(last) > self.timeout(contract) {
                self.end(at, index);
            } else {
                place += 1;
            }
        }
        let lane = &self.lanes[class];
        let (gate, usual) = (lane.gate.clone(), lane.class.admission.drop);
        let above = |drop: Option<weir_core::units::Fraction>| gate.is_above(limit, drop.unwrap_or(usual));
        if self.config.contracts.is_empty() {
            if above(None) {
                self.evict(at, class, |_| true);
            }
        } else if self.config.contracts.iter().any(|c| c.class == class && above(c.drop)) {
            self.evict(at, class, |c| above(c.drop));
        }
    }

    /// Evicts where congestion control asks for it.
    fn shed(&mut self, now: Instant, class: usize) {
        if self.lanes[class].allocator.as_mut().is_some_and(Allocator::take_eviction) {
            self.evict(now, class, |_| true);
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
    /// What became of the packets of each contract, in the order of the configuration.
    pub fn contract_stats(&self) -> impl Iterator<Item = ContractStats> {
        self.meters.iter().map(|(_, stats)| *stats)
    }
    /// The flows.
    pub fn flows(&self) -> impl Iterator<Item = &Flow> {
        self.flows.iter().map(|(_, flow)| flow)
    }
    /// Makes a known flow an emergency: it is neither refused nor evicted. False if it is not known.
    pub fn pin(&mut self, now: Instant, key: &Key) -> bool {
        let Some(index) = self.flows.find(key) else { return false };
        self.flows.get_mut(index).pinned = true;
        if self.flows.get(index).state == State::Refused {
            self.admit(now, index);
        }
        true
    }
}
