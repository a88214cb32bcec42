//! Another configuration takes the place of the present one, and what goes on goes on.
//!
//! Contracts are known by their numbers, classes by what the host says, flows by their keys.
//!
//! | what | becomes of it |
//! |---|---|
//! | a flow whose contract and class go on | stays what it is: on trial, admitted with its tokens, refused |
//! | a flow whose contract or class is another | ends there; real-time, it asks anew with its next packet |
//! | a flow that no contract has any more | ends, and is forgotten |
//! | the meter of a contract that goes on | keeps its tokens, as far as the new depth holds them, and counters |
//! | an allocator of a class that goes on | keeps B_d, within the new `from` and `to`, and its estimate |
//! | a session whose class goes on | keeps its tokens |
//! | an option that was set by its handler | stays set, unless the configuration says another value of it |
//!
//! Tokens are never multiplied: a contract that is changed over and over has no more than one that stays.
//! Nothing happens to contracts, classes and flows that the change does not name.

use super::NOBODY;
use super::{Class, Config, Edge, Lane, Meter, PacketTerms, guesses, terms};
use crate::allocate::{Allocator, Window, Windows};
use crate::flow::{Body, Flow, State};
use crate::handlers::{carried, settings};
use crate::recognise::Rtp;
use crate::sla::{Contract, Guessed, Table};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use weir_core::packet::Key;
use weir_core::units::Instant;

/// The contract of a packet in a table of prefixes; without contracts everybody has the same.
pub(super) fn contract_in(table: &Table, contracts: &[Contract], key: &Key) -> Option<u32> {
    if contracts.is_empty() {
        return Some(NOBODY);
    }
    let find = |address| table.find(key.family, address);
    find(key.src).or_else(|| find(key.dst))
}

/// What is another from now on.
struct Change {
    config: Config,
    table: Table,
    /// For each class, the present one that it goes on from.
    kept: Vec<Option<usize>>,
    /// For each contract, the present one of its number.
    same: Vec<Option<u32>>,
    /// For each present contract, the one of its number.
    next: Vec<Option<u32>>,
}

impl Change {
    fn new(edge: &Edge, config: Config, kept: &[Option<usize>]) -> Self {
        let old: BTreeMap<u32, u32> = (0..).zip(&edge.config.contracts).map(|(n, c)| (c.id, n)).collect();
        // A class goes on once.
        let mut free = alloc::vec![true; edge.lanes.len()];
        let mut once = |place: usize| core::mem::take(free.get_mut(place)?).then_some(place);
        let kept = (0..config.classes.len()).map(|n| kept.get(n).copied().flatten().and_then(&mut once));
        let same: Vec<_> = config.contracts.iter().map(|c| old.get(&c.id).copied()).collect();
        let mut next = alloc::vec![None; edge.config.contracts.len()];
        for (place, same) in (0..).zip(&same) {
            same.iter().for_each(|&same| next[same as usize] = Some(place));
        }
        Change { kept: kept.collect(), table: Table::new(&config.prefixes), same, next, config }
    }
    /// The contract that a flow is under from now on.
    fn owner(&self, flow: &Flow) -> Option<u32> {
        self.config.recognition?;
        if flow.is_aggregate() {
            let nobodys = (self.config.contracts.is_empty() && self.next.is_empty()).then_some(NOBODY);
            return self.next.get(flow.contract as usize).copied().flatten().or(nobodys);
        }
        contract_in(&self.table, &self.config.contracts, &flow.key())
    }
    /// Whether a flow that was under `before`, in the class `class`, stays what it is under `after`.
    fn stays(&self, edge: &Edge, before: u32, after: u32) -> bool {
        let contract = self.config.contracts.get(after as usize);
        let same = match contract {
            Some(_) => self.same[after as usize] == Some(before),
            None => edge.config.contracts.is_empty(),
        };
        let class = contract.map_or(0, |c| c.class);
        same && self.kept.get(class).copied().flatten() == Some(edge.class_of(before))
    }
}

impl Edge {
    /// Takes another configuration. `kept` says of each of its classes which of the present ones, by its
    /// place, goes on as this; a class that is not named there begins anew. It allocates, and takes time in
    /// proportion to the table of flows.
    ///
    /// The seed stays what it was, and so does what [`Edge::recognise`] has switched. Each class that goes
    /// on has its rate said again by [`Edge::poll`], because the host may have exchanged the port; then
    /// [`Edge::set_backlog`] is to say what waits in it.
    pub fn follow(&mut self, now: Instant, config: Config, kept: &[Option<usize>]) {
        self.timer(now);
        let change = Change::new(self, config, kept);
        let sessions = self.move_sessions(&change.config.classes, &change.kept);
        self.part_with(now, &change);
        self.change_terms(now, &change);
        self.rehouse(now, &change);
        self.flows.relist(change.config.contracts.len(), |flow| change.owner(flow).unwrap_or(u32::MAX));
        self.change_rules(&change);
        let meters = change.config.contracts.iter().zip(&change.same).map(|(contract, same)| {
            let old = same.map(|place| self.meters[place as usize].clone());
            let terms = PacketTerms::of(contract);
            old.map_or_else(|| Meter::new(contract, now), |meter| Meter { terms, ..meter })
        });
        self.meters = meters.collect();
        self.change_lanes(now, &change);
        self.table = change.table;
        self.config = change.config;
        self.config.classes = self.lanes.iter().map(|lane| lane.class.clone()).collect();
        self.chain();
        if !sessions.is_empty() {
            self.set_sessions(now, sessions);
        }
    }

    /// Flows end that do not stay, and those are forgotten that nobody has.
    fn part_with(&mut self, now: Instant, change: &Change) {
        for index in self.flows.indices().collect::<Vec<_>>() {
            let flow = self.flows.get(index);
            let owner = change.owner(flow);
            if owner.is_none_or(|owner| !change.stays(self, flow.contract, owner)) {
                self.dismiss(now, index);
            }
            if owner.is_none() {
                self.flows.remove(index);
            }
        }
    }

    /// The meters of contracts that go on get their new terms.
    fn change_terms(&mut self, now: Instant, change: &Change) {
        // What the meter goes by; the rest of a contract is read where it is used.
        let terms = |c: &Contract| (c.bandwidth_bps, c.shared, c.lend, c.guessed);
        for (contract, same) in change.config.contracts.iter().zip(&change.same) {
            let Some(place) = *same else { continue };
            if terms(contract) != terms(&self.config.contracts[place as usize]) {
                self.collect(now, place);
                let meter = &mut self.meters[place as usize];
                meter.shared.set(contract, now);
                let old = core::mem::replace(&mut meter.guessed, Guessed::new(contract, now));
                meter.guessed.iter_mut().for_each(|new| new.set(old, now));
            }
        }
    }

    /// The table gets another size, if it is to have one.
    fn rehouse(&mut self, now: Instant, change: &Change) {
        let capacity = |config: &Config| config.recognition.map_or(0, |r| r.flows);
        let new = capacity(&change.config);
        if new == capacity(&self.config) {
            return;
        }
        let places = self.flows.places_in(new);
        for index in self.flows.indices().collect::<Vec<_>>() {
            if places[index as usize].is_none() {
                self.dismiss(now, index);
                self.flows.remove(index);
            }
        }
        self.flows.resize(new, &places);
        let moved = |index: u32| places.get(index as usize).copied().flatten();
        for lane in &mut self.lanes {
            let free = (new as usize).saturating_sub(lane.admitted.len());
            lane.admitted.iter_mut().for_each(|index| *index = moved(*index).unwrap_or(*index));
            lane.admitted.reserve(free);
        }
        if !self.histories.is_empty() {
            let mut histories = alloc::vec![Default::default(); self.flows.capacity()];
            for (history, place) in self.histories.iter().zip(places) {
                place.into_iter().for_each(|place| histories[place as usize] = *history);
            }
            self.histories = histories;
        }
        self.next = alloc::vec![None; self.flows.capacity()];
    }

    /// Rules of recognition may be others.
    fn change_rules(&mut self, change: &Change) {
        let config = &change.config;
        let rules = |config: &Config| config.recognition.map(|r| r.rules);
        let (before, after) = (rules(&self.config), rules(config));
        let within = |rtp: Option<Rtp>| rtp.map(|rtp| rtp.within);
        if before.map(|r| within(r.rtp)) != after.map(|r| within(r.rtp)) {
            for index in self.flows.indices().collect::<Vec<_>>() {
                if let Body::Candidate(trial, _) = &mut self.flows.get_mut(index).body {
                    trial.forget();
                }
            }
        }
        let (histories, aggregates) = guesses(config, self.flows.capacity());
        self.histories.resize(histories, Default::default());
        let goes_on = |place: usize| match change.same.get(place) {
            Some(same) => self.aggregates.get((*same)? as usize).copied(),
            None => self.aggregates.first().filter(|_| change.next.is_empty()).copied(),
        };
        self.aggregates = (0..aggregates).map(|place| goes_on(place).unwrap_or_default()).collect();
    }

    /// Classes that go on, and new ones.
    fn change_lanes(&mut self, now: Instant, change: &Change) {
        let mut old: Vec<Option<Lane>> = self.lanes.drain(..).map(Some).collect();
        let flows = change.config.recognition.map_or(0, |r| r.flows) as usize;
        let classes = change.config.classes.iter().zip(&change.kept);
        let lanes = classes.map(|(class, kept)| match kept.and_then(|place| old[place].take()) {
            Some(lane) => lane.follow(class, now),
            None => Lane::new(class, flows, now),
        });
        self.lanes = lanes.collect();
    }

    /// Chains the admitted flows of each contract.
    fn chain(&mut self) {
        self.meters.iter_mut().for_each(|meter| meter.first = None);
        for index in 0..self.flows.capacity() as u32 {
            let flow = self.flows.get(index);
            let is_in = flow.state() == State::Admitted;
            let meter = self.meters.get_mut(flow.contract as usize).filter(|_| is_in);
            self.next[index as usize] = meter.and_then(|meter| meter.first.replace(index));
        }
    }
}

impl Lane {
    /// The class goes on with other parameters, and says its rate again.
    fn follow(mut self, class: &Class, now: Instant) -> Lane {
        let mut new = class.clone();
        if let (Some(filed), Some(set), Some(to)) = (terms(&self.filed), terms(&self.class), terms(class)) {
            let (plan, admission) = carried(&to, &settings(&filed, &set));
            (new.allocation, new.admission) = (Some(plan), admission);
        }
        self.filed = class.clone();
        self.set_terms(new, now);
        self.allocator.iter_mut().for_each(Allocator::restate);
        self
    }

    /// The class has other parameters.
    pub(super) fn set_terms(&mut self, class: Class, now: Instant) {
        let windows = |class: &Class| class.allocation.map_or(Windows::DEFAULT, |a| a.windows);
        if windows(&class).span != windows(&self.class).span {
            self.window = Window::new(Windows { hold: 1, ..windows(&class) }, now);
        }
        self.gate.set(class.admission);
        match (&mut self.allocator, class.allocation) {
            (Some(allocator), Some(plan)) => {
                if *allocator.plan() != plan {
                    allocator.set(now, plan);
                }
            }
            (None, Some(plan)) => {
                self.allocator = Some(Allocator::new(plan, now));
                let own = self.own_queue(now);
                self.allocator.iter_mut().for_each(|allocator| allocator.queued(now, own));
            }
            (_, None) => self.allocator = None,
        }
        self.class = class;
    }
}

#[cfg(test)]
mod tests;
