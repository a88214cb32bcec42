//! A broker in this process: one sum.

use super::{Counts, Who};
use std::collections::BTreeMap;
use weir_edge::allocate::Answer;

/// A broker in this process.
pub(super) struct Local {
    pub(super) capacity_bps: u64,
    pub(super) held: BTreeMap<Who, u64>,
    pub(super) counts: Counts,
}

impl Local {
    pub(super) fn new(capacity_bps: u64) -> Local {
        Local { capacity_bps, held: BTreeMap::new(), counts: Counts::default() }
    }

    /// A rise is granted if the sum stays within the capacity; a fall always.
    pub(super) fn ask(&mut self, who: Who, rate_bps: u64) -> Answer {
        self.counts.requests += 1;
        let has = self.held.get(&who).copied().unwrap_or(0);
        let others = self.held.values().sum::<u64>() - has;
        if rate_bps > has && others.saturating_add(rate_bps) > self.capacity_bps {
            self.counts.refused += 1;
            return Answer::Refused;
        }
        self.counts.granted += 1;
        self.held.insert(who, rate_bps);
        Answer::Granted(rate_bps)
    }
}
