//! What an edge leaves to another one, which goes on before the same port in another process.
//!
//! Principle: numbers alone, so that whoever carries them needs to know nothing of them. Real-time flows pass
//! with their tokens, and so do pins, meters, admission and counters. Contracts are known by their numbers,
//! classes by what the host says, flows by their keys, as where a [configuration changes](Edge::follow): a flow
//! whose contract or class is another ends. Flows on trial are found anew. Allocators begin anew with what
//! the host says that they have, and with what was [set](Edge::settings) while they ran.

use super::NOBODY;
use super::{ClassStats, ContractStats, Edge, FlowStats, Turnover};
use crate::flow::passed::ROW;
use crate::flow::{Body, Flow, Outside, State};
use crate::recognise::Kind;
use crate::sla::Guessed;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use weir_core::units::Instant;

/// What is said of the whole: whether it recognises, and [`FlowStats`].
const HEAD: usize = 6 + Kind::COUNT;
/// Of a class: [`ClassStats`] and its gate.
const CLASS: usize = TURNOVER + 2 + 4;
/// Of a contract: its number, its class, [`ContractStats`], and three of its meter.
const CONTRACT: usize = 2 + TURNOVER + 5 + 3;
const TURNOVER: usize = 5;

/// The counters in their order, to be told or set.
fn of_turnover(flows: &mut Turnover) -> [&mut u64; TURNOVER] {
    let Turnover { admitted, refused, evicted, timed_out, ended } = flows;
    [admitted, refused, evicted, timed_out, ended]
}

/// Likewise: first its flows.
fn of_contract(stats: &mut ContractStats) -> [&mut u64; TURNOVER + 5] {
    let ContractStats {
        offered_bytes,
        in_profile_bytes,
        passed_bytes,
        dropped_bytes,
        best_effort_bytes,
        flows,
    } = stats;
    let [admitted, refused, evicted, timed_out, ended] = of_turnover(flows);
    [
        admitted,
        refused,
        evicted,
        timed_out,
        ended,
        offered_bytes,
        in_profile_bytes,
        passed_bytes,
        dropped_bytes,
        best_effort_bytes,
    ]
}

fn set<const N: usize>(counters: [&mut u64; N], numbers: &[u64]) {
    counters.into_iter().zip(numbers).for_each(|(counter, &number)| *counter = number);
}

/// What was left, read and not yet taken in.
struct Left<'a> {
    head: &'a [u64; HEAD],
    classes: &'a [[u64; CLASS]],
    contracts: &'a [[u64; CONTRACT]],
    flows: Vec<Flow>,
}

/// The rows behind their number, and what comes after them.
fn rows<const N: usize>(numbers: &[u64]) -> Option<(&[[u64; N]], &[u64])> {
    let (&count, rest) = numbers.split_first()?;
    let (rows, rest) = rest.split_at_checked(usize::try_from(count).ok()?.checked_mul(N)?)?;
    Some((rows.as_chunks().0, rest))
}

impl<'a> Left<'a> {
    fn read(numbers: &'a [u64]) -> Option<Left<'a>> {
        let (head, rest) = numbers.split_first_chunk()?;
        let (classes, rest) = rows(rest)?;
        let (contracts, rest) = rows(rest)?;
        let (flows, rest) = rows::<ROW>(rest)?;
        let flows = flows.iter().map(Flow::of_row).collect::<Option<Vec<_>>>()?;
        rest.is_empty().then_some(Left { head, classes, contracts, flows })
    }
}

impl Edge {
    /// Appends what another edge needs to [go on](Edge::inherit). All of it stays here, too.
    pub fn estate(&mut self, now: Instant, numbers: &mut Vec<u64>) {
        self.timer(now);
        let FlowStats { inspected, found, quic, overtaken, used: _, replaced, turned_away } =
            self.flow_stats();
        numbers.extend([self.recognises.into(), inspected, quic, overtaken, replaced, turned_away]);
        numbers.extend(found);
        numbers.push(self.lanes.len() as u64);
        for lane in &self.lanes {
            let ClassStats { mut flows, windows, windows_above } = lane.stats;
            numbers.extend(of_turnover(&mut flows).map(|counter| *counter));
            numbers.extend([windows, windows_above]);
            numbers.extend(lane.gate.numbers());
        }
        numbers.push(self.meters.len() as u64);
        (0..self.meters.len()).for_each(|contract| self.collect(now, contract as u32));
        for (contract, meter) in self.config.contracts.iter().zip(&mut self.meters) {
            numbers.extend([contract.id.into(), contract.class as u64]);
            numbers.extend(of_contract(&mut meter.stats()).map(|counter| *counter));
            numbers.extend(meter.shared.numbers(now));
        }
        let at = numbers.len();
        numbers.push(0);
        let passed = self.flows.iter().filter(|flow| flow.is_passed());
        passed.for_each(|flow| numbers.extend(flow.row(now)));
        numbers[at] = ((numbers.len() - at - 1) / ROW) as u64;
    }

    /// Goes on with what another edge [left](Edge::estate), before any packet has come. `kept` says of each
    /// class here which of the other's, by its place, goes on as this. False if the numbers mean nothing: then
    /// nothing has changed.
    pub fn inherit(&mut self, now: Instant, numbers: &[u64], kept: &[Option<usize>]) -> bool {
        let Some(left) = Left::read(numbers) else { return false };
        let kept = |class: usize| kept.get(class).copied().flatten();
        let [recognises, inspected, quic, overtaken, replaced, turned_away, ..] = *left.head;
        let found = core::array::from_fn(|n| left.head[6 + n]);
        self.stats = FlowStats { inspected, found, quic, overtaken, ..FlowStats::default() };
        for (class, lane) in self.lanes.iter_mut().enumerate() {
            let Some(old) = kept(class).and_then(|old| left.classes.get(old)) else { continue };
            set(of_turnover(&mut lane.stats.flows), old);
            (lane.stats.windows, lane.stats.windows_above) = (old[TURNOVER], old[TURNOVER + 1]);
            lane.gate.inherit(core::array::from_fn(|n| old[TURNOVER + 2 + n]));
        }
        let by_id: BTreeMap<u64, &[u64; CONTRACT]> = left.contracts.iter().map(|old| (old[0], old)).collect();
        let of_id = |id: u32| by_id.get(&u64::from(id)).copied();
        let here: BTreeMap<u32, usize> = self.config.contracts.iter().map(|c| c.id).zip(0..).collect();
        for (contract, meter) in self.config.contracts.iter().zip(&mut self.meters) {
            if let Some(old) = of_id(contract.id) {
                let mut stats = ContractStats::default();
                set(of_contract(&mut stats), &old[2..]);
                meter.set_stats(stats);
            }
        }
        // Those in a class have the first choice of places.
        let (first, others): (Vec<Flow>, Vec<Flow>) =
            left.flows.into_iter().partition(|flow| flow.state() == State::Admitted);
        for flow in first.into_iter().chain(others) {
            let old = left.contracts.get(flow.contract as usize);
            let class = old.map_or(0, |old| old[1] as usize);
            let id = old.map(|old| old[0] as u32);
            self.take_in(flow, id, id.and_then(|id| here.get(&id).copied()), class, &kept);
        }
        for (contract, meter) in self.config.contracts.iter().zip(&mut self.meters) {
            let mut flows = 0;
            let mut at = meter.first;
            while let Some(index) = at {
                (flows, at) = (flows + 1, self.next[index as usize]);
            }
            meter.shared.set_flows(now, flows);
            // What it had is not passed: it fills within 100 ms.
            meter.guessed.iter_mut().for_each(Guessed::empty);
            if let Some(old) = of_id(contract.id) {
                meter.shared.inherit(core::array::from_fn(|n| old[CONTRACT - 3 + n]));
            }
        }
        (self.flows.replaced, self.flows.turned_away) = (replaced, turned_away);
        if recognises == 0 {
            self.recognise(now, false);
        }
        true
    }

    /// A flow comes that was under the contract of that number, which has this place here, in that class of the other edge.
    fn take_in(
        &mut self,
        mut flow: Flow,
        id: Option<u32>,
        place: Option<usize>,
        class: usize,
        kept: &impl Fn(usize) -> Option<usize>,
    ) {
        let owner = self.config.recognition.and_then(|_| match (flow.is_aggregate(), id) {
            (false, _) => self.contract_of(&flow.key()),
            (true, Some(_)) => place.map(|place| place as u32),
            (true, None) => self.config.contracts.is_empty().then_some(NOBODY),
        });
        let contract = owner.and_then(|owner| self.config.contracts.get(owner as usize));
        let here = contract.map_or(0, |contract| contract.class);
        let is_same = owner.is_some() && contract.map(|c| c.id) == id && kept(here) == Some(class);
        let most = contract.map_or(u32::MAX, |contract| contract.flows);
        let index = owner.and_then(|owner| self.flows.insert(&flow.key(), owner, most, flow.last));
        let is_admitted = flow.state() == State::Admitted;
        if is_admitted && !(is_same && index.is_some()) {
            let lane = (0..self.lanes.len()).find(|&place| kept(place) == Some(class));
            let lane = lane.map(|place| &mut self.lanes[place].stats.flows);
            let meter = place.map(|place| &mut self.meters[place].others.flows);
            lane.into_iter().chain(meter).for_each(|flows| flows.ended += 1);
        }
        let Some(index) = index else { return };
        match &mut flow.body {
            Body::Admitted { part, .. } if is_same => {
                let admitted = &mut self.lanes[here].admitted;
                part.place = admitted.len() as u32;
                admitted.push(index);
            }
            Body::Free => return,
            Body::Candidate(..) => {
                self.flows.get_mut(index).pin(true);
                return;
            }
            Body::Outside(_) if is_same => {}
            Body::Admitted { .. } | Body::Outside(_) => {
                let Some(&standing) = flow.standing() else { return };
                flow.body = Body::Outside(Outside { refused: None, standing });
            }
        }
        let is_in = flow.state() == State::Admitted;
        self.flows.settle(index, flow.body);
        let contract = self.flows.get(index).contract as usize;
        if let Some(meter) = self.meters.get_mut(contract).filter(|_| is_in) {
            self.next[index as usize] = meter.first.replace(index);
        }
    }
}
