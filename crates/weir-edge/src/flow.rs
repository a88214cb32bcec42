//! The flows that an edge knows: a table of fixed size, found by a keyed hash of the 5-tuple.
//!
//! Principle: eight places for each hash. A newcomer takes a free one, or replaces a flow on trial, the
//! one that was silent longest. It never takes the place of an admitted flow, nor that of a real-time
//! flow of another contract. If no place is left it is not remembered, and its packets go on as ordinary
//! ones. A contract that has as many flows here as it may have gives up its own oldest flow on trial. So
//! strangers cannot push calls out, and memory does not grow.
//!
//! The flows of a contract that are judged [as one](crate::recognise::statistical::Aggregate) have a place together, by
//! the contract's number.
//!
//! IPv4 addresses stand in their mapped form, `::ffff:a.b.c.d`. That form is not for the wire: a packet
//! of IPv6 that has it is not remembered. [RFC 4291 section 2.5.5.2, RFC 6890]
//!
//! Paper: multiservice III.3.2 (T65): a hash table of socket tuples.
//! Cost: 128 bytes for each direction of a flow, and two for its tag. A flow stands where its hash says, if that place
//! was free: then a look-up reads that flow alone. Else it reads the tags of a set, which are parts of the hash and lie together.

mod entry;
mod name;
pub(crate) mod passed;
mod resize;

use self::entry::Links;
pub(crate) use self::entry::{Body, Outside, Part, Standing};
pub use self::entry::{Cause, Flow, State};
use self::name::{Name, set_of, usual_way};
pub(crate) use self::name::{aggregate, reverse};
use crate::recognise::Trial;
use alloc::vec::Vec;
use core::ops::Range;
use weir_core::packet::Key;
use weir_core::units::{Duration, Instant};

/// Places for each hash.
const WAYS: usize = 8;
/// The table is swept in so many parts.
const PARTS: usize = 16;
/// No flow.
const NONE: u32 = u32::MAX;

/// Flows of a contract.
#[derive(Clone, Copy, Debug)]
struct List {
    flows: u32,
    /// Ends of the list of those on trial, by when they came.
    oldest: u32,
    newest: u32,
}

/// The table.
#[derive(Clone, Debug)]
pub struct Flows {
    rows: Vec<Flow>,
    /// Of each set a part of the hash of each flow; 0 where there is none.
    tags: Vec<[u16; WAYS]>,
    salt: u64,
    /// One for each contract, and one for flows without.
    lists: Vec<List>,
    used: u32,
    /// The part that is swept next.
    part: usize,
    /// Flows that found no place.
    pub turned_away: u64,
    /// Flows on trial that gave their place to others.
    pub replaced: u64,
}

/// Sets of a table for about so many flows.
fn sets_for(capacity: u32) -> usize {
    (capacity as usize).div_ceil(WAYS).max(1)
}

impl Flows {
    /// A table for about `capacity` flows, rounded up to a multiple of eight, at least eight, under so
    /// many contracts. `salt` is to be secret where strangers choose their ports.
    pub fn new(capacity: u32, contracts: usize, salt: u64) -> Self {
        let sets = sets_for(capacity);
        let rows = alloc::vec![Flow::FREE; sets * WAYS];
        let tags = alloc::vec![[0; WAYS]; sets];
        let lists = alloc::vec![List { flows: 0, oldest: NONE, newest: NONE }; contracts + 1];
        Flows { rows, tags, salt, lists, used: 0, part: 0, turned_away: 0, replaced: 0 }
    }
    /// The set of a key, and its tag.
    fn set(&self, key: &Key) -> (usize, u16) {
        set_of(key, self.salt, self.tags.len())
    }
    /// The flow of that key.
    pub fn find(&self, key: &Key) -> Option<u32> {
        let name = Name::of(key)?;
        let (set, tag) = self.set(key);
        let usual = set * WAYS + usual_way(tag);
        if self.rows[usual].is(&name) {
            return Some(usual as u32);
        }
        let is = |&(way, its): &(usize, &u16)| *its == tag && self.rows[set * WAYS + way].is(&name);
        let (way, _) = self.tags[set].iter().enumerate().find(is)?;
        Some((set * WAYS + way) as u32)
    }
    /// A place for a new flow on trial. None if it may have none: all eight belong to others, or its
    /// contract has `most` flows already, none of them on trial.
    pub fn insert(&mut self, key: &Key, contract: u32, most: u32, now: Instant) -> Option<u32> {
        let name = Name::of(key)?;
        let (set, tag) = self.set(key);
        let first = set * WAYS;
        let rank = |flow: &Flow| match flow.body {
            Body::Free => Some((0, flow.last)),
            Body::Candidate(..) => Some((1, flow.last)),
            Body::Outside(_) if flow.contract == contract => Some((2, flow.last)),
            Body::Outside(_) | Body::Admitted { .. } => None,
        };
        let ways = self.rows[first..first + WAYS].iter().enumerate();
        let best = ways.filter_map(|(way, flow)| rank(flow).map(|rank| (rank, way))).min();
        let usual = usual_way(tag);
        let best = if self.rows[first + usual].is_free() { Some(usual) } else { best.map(|(_, way)| way) };
        let Some(way) = best else {
            self.turned_away += 1;
            return None;
        };
        let index = (first + way) as u32;
        let list = self.list(contract);
        let is_own = !self.get(index).is_free() && self.get(index).contract == contract;
        if self.lists[list].flows >= most && !is_own {
            let oldest = self.lists[list].oldest;
            if oldest == NONE {
                self.turned_away += 1;
                return None;
            }
            self.replaced += 1;
            self.remove(oldest);
        }
        if !self.get(index).is_free() {
            self.replaced += 1;
            self.remove(index);
        }
        let Name { src, dst, src_port, dst_port } = name;
        let body = Body::Candidate(Trial::new(now), Links::NONE);
        self.rows[index as usize] = Flow { src, dst, src_port, dst_port, last: now, body, contract };
        self.tags[set][way] = tag;
        self.lists[list].flows += 1;
        self.link(index);
        self.used += 1;
        Some(index)
    }
    /// The flows that a contract has in the table, on trial and real-time.
    pub(crate) fn of_contract(&self, contract: u32) -> u32 {
        self.lists[self.list(contract)].flows
    }
    fn list(&self, contract: u32) -> usize {
        (contract as usize).min(self.lists.len() - 1)
    }
    /// Puts a flow at the end of its contract's list of those on trial.
    fn link(&mut self, index: u32) {
        let list = self.list(self.get(index).contract);
        let older = core::mem::replace(&mut self.lists[list].newest, index);
        self.get_mut(index).relink(|links| *links = Links { older, newer: NONE });
        match older {
            NONE => self.lists[list].oldest = index,
            older => self.get_mut(older).relink(|links| links.newer = index),
        }
    }
    /// Takes a flow out of its contract's list of those on trial.
    fn unlink(&mut self, index: u32) {
        let flow = self.get(index);
        let (Links { older, newer }, list) = (flow.links(), self.list(flow.contract));
        match older {
            NONE => self.lists[list].oldest = newer,
            older => self.get_mut(older).relink(|links| links.newer = newer),
        }
        match newer {
            NONE => self.lists[list].newest = older,
            newer => self.get_mut(newer).relink(|links| links.older = older),
        }
    }
    /// The trial of a flow is over.
    pub(crate) fn settle(&mut self, index: u32, body: Body) {
        if matches!(self.get(index).body, Body::Candidate(..)) {
            self.unlink(index);
        }
        self.get_mut(index).body = body;
    }
    /// Forgets a flow that is in no class's list.
    pub fn remove(&mut self, index: u32) {
        if self.get(index).is_free() {
            return;
        }
        if matches!(self.get(index).body, Body::Candidate(..)) {
            self.unlink(index);
        }
        let list = self.list(self.get(index).contract);
        self.lists[list].flows -= 1;
        self.used -= 1;
        self.rows[index as usize] = Flow::FREE;
        self.tags[index as usize / WAYS][index as usize % WAYS] = 0;
    }
    /// Forgets the flows of the next sixteenth of the table that were silent for longer than `idle`,
    /// but for those in a class. Places without a flow are passed over by their tags, which lie together.
    pub fn sweep(&mut self, now: Instant, idle: Duration) {
        let start = |part: usize| self.tags.len() * part / PARTS;
        for set in start(self.part)..start(self.part + 1) {
            for way in 0..WAYS {
                if self.tags[set][way] == 0 {
                    continue;
                }
                let index = set * WAYS + way;
                let flow = &self.rows[index];
                if now.since(flow.last) > idle && !matches!(flow.body, Body::Admitted { .. }) {
                    self.remove(index as u32);
                }
            }
        }
        self.part = (self.part + 1) % PARTS;
    }
    /// Places in the table.
    pub fn capacity(&self) -> usize {
        self.rows.len()
    }
    /// Flows in the table.
    pub fn used(&self) -> u32 {
        self.used
    }
    /// A flow.
    pub fn get(&self, index: u32) -> &Flow {
        &self.rows[index as usize]
    }
    /// A flow, to change.
    pub fn get_mut(&mut self, index: u32) -> &mut Flow {
        &mut self.rows[index as usize]
    }
    /// All that are in use.
    pub fn iter(&self) -> impl Iterator<Item = &Flow> {
        self.rows.iter().filter(|flow| !flow.is_free())
    }
    /// Those that are in use in these places.
    pub fn within(&self, places: Range<usize>) -> impl Iterator<Item = &Flow> {
        self.rows.iter().take(places.end).skip(places.start).filter(|flow| !flow.is_free())
    }
    /// The places of all that are in use.
    pub(crate) fn indices(&self) -> impl Iterator<Item = u32> {
        (0..).zip(&self.rows).filter(|(_, flow)| !flow.is_free()).map(|(index, _)| index)
    }
}

#[cfg(test)]
impl Flows {
    /// Panics unless the lists have each flow on trial once, and count all flows.
    pub(crate) fn check(&self) {
        let mut counts = alloc::vec![0; self.lists.len()];
        self.indices().for_each(|index| counts[self.list(self.get(index).contract)] += 1);
        let mut linked = 0;
        for (list, count) in self.lists.iter().zip(counts) {
            assert_eq!(list.flows, count);
            let (mut before, mut at) = (NONE, list.oldest);
            while at != NONE {
                let flow = self.get(at);
                assert!(matches!(flow.body, Body::Candidate(..)) && flow.links().older == before);
                (before, at) = (at, flow.links().newer);
                linked += 1;
            }
            assert_eq!(list.newest, before);
        }
        let trials = self.rows.iter().filter(|flow| matches!(flow.body, Body::Candidate(..)));
        assert_eq!(linked, trials.count());
        assert_eq!(self.used as usize, self.indices().count());
        let tagged = self.tags.iter().flatten().filter(|tag| **tag != 0);
        assert_eq!(tagged.count(), self.used as usize);
    }
}
