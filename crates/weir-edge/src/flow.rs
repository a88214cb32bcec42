//! The flows that an edge knows: a table of fixed size, found by a keyed hash of the 5-tuple.
//!
//! Principle: eight places for each hash. A newcomer takes a free one, or replaces the flow that was
//! silent longest of those that are no real-time flows. If all eight are real-time flows, it is not
//! remembered, and its packets go on as ordinary ones. So strangers cannot push calls out, and memory
//! does not grow.
//!
//! Paper: multiservice III.3.2 (T65): a hash table of socket tuples.

use crate::sla::Own;
use alloc::vec::Vec;
use weir_core::packet::{Family, Key};
use weir_core::units::Instant;

/// Places for each hash.
const WAYS: usize = 8;

/// What a flow is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum State {
    /// Not known to be real-time.
    #[default]
    Candidate,
    /// Real-time, and in its class.
    Admitted,
    /// Real-time, and ordinary until it is silent: it was refused or evicted.
    Refused,
}

/// One flow, in one direction.
#[derive(Clone, Debug, Default)]
pub struct Flow {
    /// Addresses, ports, protocol and family.
    pub key: Key,
    /// What it is.
    pub state: State,
    /// Emergency: neither refused nor evicted.
    pub pinned: bool,
    /// The contract that it is under, by its place in the edge's list.
    pub contract: u32,
    /// The last packet.
    pub last: Instant,
    /// When it was admitted or refused.
    pub admitted: Instant,
    /// Its part of the contract's meter.
    pub own: Own,
    /// Until when it goes on as best effort (`be-flow`).
    pub best_effort_until: Instant,
    /// Bytes in the present window, and in the last.
    pub bytes: u64,
    /// Bytes in the last window.
    pub last_bytes: u64,
    /// Its place in its class's list of admitted flows.
    pub place: u32,
}

/// The table.
#[derive(Clone, Debug)]
pub struct Flows {
    rows: Vec<Flow>,
    salt: u64,
    /// Real-time flows that found no place.
    pub turned_away: u64,
}

impl Flows {
    /// A table for about `capacity` flows, rounded up to a multiple of eight, at least eight. `salt`
    /// is to be secret where strangers choose their ports.
    pub fn new(capacity: u32, salt: u64) -> Self {
        let sets = (capacity as usize).div_ceil(WAYS).max(1);
        let mut rows = Vec::new();
        rows.resize_with(sets * WAYS, Flow::default);
        Flows { rows, salt, turned_away: 0 }
    }
    fn set(&self, key: &Key) -> usize {
        let sets = (self.rows.len() / WAYS) as u64;
        // A product's upper half: uniform without a division.
        WAYS * ((u64::from(key.flow_hash(self.salt)) * sets) >> 32) as usize
    }
    /// The flow of that key.
    pub fn find(&self, key: &Key) -> Option<u32> {
        let set = self.set(key);
        let is = |flow: &Flow| {
            let k = &flow.key;
            (k.src, k.dst, k.src_port, k.dst_port, k.protocol, k.family)
                == (key.src, key.dst, key.src_port, key.dst_port, key.protocol, key.family)
        };
        self.rows[set..set + WAYS].iter().position(is).map(|way| (set + way) as u32)
    }
    /// A place for a new flow; none if all that are possible belong to real-time flows.
    pub fn insert(&mut self, key: &Key, now: Instant) -> Option<u32> {
        let set = self.set(key);
        let rank = |flow: &Flow| match (flow.key.family, flow.state) {
            (Family::Other, _) => Some((0, flow.last)),
            (_, State::Candidate) => Some((1, flow.last)),
            (_, State::Refused) => Some((2, flow.last)),
            (_, State::Admitted) => None,
        };
        let ways = self.rows[set..set + WAYS].iter().enumerate();
        let best = ways.filter_map(|(way, flow)| rank(flow).map(|rank| (rank, way))).min();
        let Some((_, way)) = best else {
            self.turned_away += 1;
            return None;
        };
        let index = set + way;
        self.rows[index] = Flow { key: *key, last: now, ..Flow::default() };
        Some(index as u32)
    }
    /// Forgets a flow that is in no class's list.
    pub fn remove(&mut self, index: u32) {
        self.rows[index as usize] = Flow::default();
    }
    /// A flow.
    pub fn get(&self, index: u32) -> &Flow {
        &self.rows[index as usize]
    }
    /// A flow, to change.
    pub fn get_mut(&mut self, index: u32) -> &mut Flow {
        &mut self.rows[index as usize]
    }
    /// All that are in use, with their indices.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Flow)> {
        let used = |(_, flow): &(usize, &Flow)| flow.key.family != Family::Other;
        self.rows.iter().enumerate().filter(used).map(|(index, flow)| (index as u32, flow))
    }
}
