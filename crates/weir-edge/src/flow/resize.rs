//! The flows under other contracts, or in a table of another size. Nothing here runs per packet.

use super::entry::{Body, Flow, Links};
use super::name::set_of;
use super::{Flows, List, NONE, WAYS, sets_for};
use alloc::vec::Vec;

impl Flows {
    /// Other contracts: each flow is under the one that `owner` says from now on. The order of those on
    /// trial stays.
    pub(crate) fn relist(&mut self, contracts: usize, owner: impl Fn(&Flow) -> u32) {
        let mut trials = Vec::new();
        for list in &self.lists {
            let mut at = list.oldest;
            while at != NONE {
                trials.push(at);
                at = self.get(at).links().newer;
            }
        }
        self.lists = alloc::vec![List { flows: 0, oldest: NONE, newest: NONE }; contracts + 1];
        for index in 0..self.rows.len() as u32 {
            if !self.get(index).is_free() {
                let contract = owner(self.get(index));
                self.get_mut(index).contract = contract;
                let list = self.list(contract);
                self.lists[list].flows += 1;
            }
        }
        trials.into_iter().for_each(|index| self.link(index));
    }
    /// Where each flow would stand in a table for about `capacity` flows, by its place here. Admitted
    /// flows come first. None: there is no place for it.
    pub(crate) fn places_in(&self, capacity: u32) -> Vec<Option<u32>> {
        let sets = sets_for(capacity);
        let mut used = alloc::vec![0u8; sets];
        let mut places = alloc::vec![None; self.rows.len()];
        let rank = |flow: &Flow| match flow.body {
            Body::Free => None,
            Body::Admitted { .. } => Some(0),
            Body::Outside(_) => Some(1),
            Body::Candidate(..) => Some(2),
        };
        for rank_now in 0..3 {
            for (place, flow) in places.iter_mut().zip(&self.rows).filter(|(_, f)| rank(f) == Some(rank_now))
            {
                let (set, _) = set_of(&flow.key(), self.salt, sets);
                if usize::from(used[set]) < WAYS {
                    *place = Some((set * WAYS) as u32 + u32::from(used[set]));
                    used[set] += 1;
                }
            }
        }
        places
    }
    /// A table of that size, with the flows where [`Flows::places_in`] says. Those without a place are
    /// to be gone.
    pub(crate) fn resize(&mut self, capacity: u32, places: &[Option<u32>]) {
        let sets = sets_for(capacity);
        let old = core::mem::replace(&mut self.rows, alloc::vec![Flow::FREE; sets * WAYS]);
        self.tags = alloc::vec![[0; WAYS]; sets];
        self.part = 0;
        let moved = |index: u32| places.get(index as usize).copied().flatten().unwrap_or(NONE);
        for list in &mut self.lists {
            (list.oldest, list.newest) = (moved(list.oldest), moved(list.newest));
        }
        for (flow, place) in old.into_iter().zip(places) {
            let Some(place) = place.map(|place| place as usize).filter(|_| !flow.is_free()) else { continue };
            let (set, tag) = self.set(&flow.key());
            debug_assert_eq!(set, place / WAYS);
            self.tags[set][place % WAYS] = tag;
            let mut flow = flow;
            flow.relink(|links| *links = Links { older: moved(links.older), newer: moved(links.newer) });
            self.rows[place] = flow;
        }
    }
}
