//! The smallest of n keys that change one at a time, and the slot that holds it: a winner tree.
//!
//! A node of the tree holds the least key below it and its slot in one word: the key, counted from
//! a base, above the slot's number. So one comparison a level decides both, a change is
//! log2(n) steps without a branch, and the first slot is known without a search. HFSC looks up
//! the smallest key three times per packet. A walk down a tree of bare keys was a quarter of what
//! `tree-4096x4` costs.
//!
//! A word has room for keys up to 2^(64 - log2 n) from the base: nine years of nanoseconds for 64
//! slots. Keys that lie further stand last in the tree, whatever their order, and when only such
//! are left the base moves on. The keys themselves are kept whole beside the tree.

use alloc::vec::Vec;

/// "No key": greater than every key.
const ABSENT: u64 = u64::MAX;

/// Keys for the slots 0..n; ties go to the lower slot.
pub(super) struct Tournament {
    /// `pairs[i]` are the words of nodes 2i and 2i + 1; the slots are the nodes n..2n.
    pairs: Vec<[u64; 2]>,
    /// The word of node 1, the least of all.
    winner: u64,
    /// Each slot's key as it was given.
    keys: Vec<u64>,
    base: u64,
    slot_bits: u32,
}

impl Tournament {
    /// None of `slots` slots has a key.
    pub(super) fn new(slots: usize) -> Self {
        let slots = slots.max(2).next_power_of_two();
        Tournament {
            pairs: alloc::vec![[ABSENT; 2]; slots],
            winner: ABSENT,
            keys: alloc::vec![ABSENT; slots],
            base: 0,
            slot_bits: slots.trailing_zeros(),
        }
    }
    /// What stands for the greatest key that there is.
    fn for_ever(&self) -> u64 {
        (ABSENT >> self.slot_bits) - 1
    }
    /// What stands for keys that lie too far from the base to be told apart.
    fn far(&self) -> u64 {
        self.for_ever() - 1
    }
    #[inline]
    fn put(&mut self, slot: u32, word: u64) {
        let mut at = self.keys.len() + slot as usize;
        let mut least = word;
        while at > 1 {
            let pair = &mut self.pairs[at / 2];
            if pair[at % 2] == least {
                return;
            }
            pair[at % 2] = least;
            least = least.min(pair[(at % 2) ^ 1]);
            at /= 2;
        }
        self.winner = least;
    }
    /// Changes the key of a slot. The greatest number there is counts as the one below it.
    #[inline]
    pub(super) fn set(&mut self, slot: u32, key: u64) {
        let offset = key.wrapping_sub(self.base);
        if offset >= self.far() {
            return self.set_far(slot, key);
        }
        self.keys[slot as usize] = key;
        // The least is no farther than this one.
        self.put(slot, offset << self.slot_bits | u64::from(slot));
    }
    /// The same for a key below the base or far above it.
    #[cold]
    fn set_far(&mut self, slot: u32, key: u64) {
        let key = key.min(ABSENT - 1);
        self.keys[slot as usize] = key;
        if key < self.base {
            return self.rebase();
        }
        let far = self.far() + u64::from(key == ABSENT - 1);
        self.put(slot, far << self.slot_bits | u64::from(slot));
        if self.winner >> self.slot_bits == self.far() {
            self.rebase();
        }
    }
    /// Takes a slot's key away.
    #[inline]
    pub(super) fn remove(&mut self, slot: u32) {
        if self.keys[slot as usize] == ABSENT {
            return;
        }
        self.keys[slot as usize] = ABSENT;
        self.put(slot, ABSENT);
        if self.winner >> self.slot_bits == self.far() {
            self.rebase();
        }
    }
    /// Counts all keys from a new base: as far below the least as half of what a word has room
    /// for, so that those to come find room on both sides.
    #[cold]
    fn rebase(&mut self) {
        let least = self.keys.iter().copied().min().unwrap_or(0);
        let far = self.far();
        // No further than the words reach to the last key: `base + offset` is a key, and one below
        // the base is as far from it as one above all words.
        self.base = least.saturating_sub(far / 2).min(ABSENT - 1 - far);
        for slot in 0..self.keys.len() {
            let word = match self.keys[slot] {
                ABSENT => ABSENT,
                key if key == ABSENT - 1 => (far + 1) << self.slot_bits | slot as u64,
                key => (key - self.base).min(far) << self.slot_bits | slot as u64,
            };
            self.put(slot as u32, word);
        }
    }
    /// The least key.
    #[inline]
    pub(super) fn least(&self) -> Option<u64> {
        self.min().map(|(_, key)| key)
    }
    /// The slot with the least key.
    #[inline]
    pub(super) fn min(&self) -> Option<(u32, u64)> {
        let offset = self.winner >> self.slot_bits;
        let slot = (self.winner & !(ABSENT << self.slot_bits)) as u32;
        if offset < self.far() {
            return Some((slot, self.base + offset));
        }
        (self.winner != ABSENT).then_some((slot, ABSENT - 1))
    }
    /// The key of a slot.
    pub(super) fn get(&self, slot: u32) -> Option<u64> {
        Some(self.keys[slot as usize]).filter(|&key| key != ABSENT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;
    use std::collections::BTreeSet;

    /// Near keys, keys at the end of time, and keys too far apart for one base.
    #[test]
    fn the_winner_is_the_least_key() {
        for (slots, range_log2) in
            [1usize, 2, 3, 8, 13, 100].into_iter().flat_map(|n| [6, 56, 62, 64].map(|r| (n, r)))
        {
            let seed = weir_seed::seed() ^ (slots as u64) << 8 ^ range_log2;
            let (mut random, mut tree) = (Random::new(seed), Tournament::new(slots));
            let mut model = std::vec![None; slots];
            for _ in 0..2_000 {
                let slot = random.below(slots as u64) as usize;
                let range = 1 << random.below(range_log2);
                model[slot] = match random.below(4) {
                    0 => None,
                    1 if random.below(8) == 0 => Some(u64::MAX - 1),
                    _ => Some(random.below(range)),
                };
                match model[slot] {
                    Some(key) => tree.set(slot as u32, key),
                    None => tree.remove(slot as u32),
                }
                let present = model.iter().enumerate().filter_map(|(i, k)| k.map(|k| (k, i)));
                let least = present.min().map(|(k, i)| (i as u32, k));
                assert_eq!(tree.min(), least, "seed {seed}, {slots} slots, 2^{range_log2}");
                assert_eq!(tree.get(slot as u32), model[slot], "seed {seed}");
            }
        }
    }

    /// Keys at both ends of time and in the middle, one after another, against an ordered map.
    #[test]
    fn keys_may_lie_anywhere() {
        let seeds = weir_seed::seeds(4);
        for (slots, seed) in
            [1usize, 2, 3, 8, 64, 100].into_iter().flat_map(|n| seeds.clone().map(move |s| (n, s)))
        {
            let (mut random, mut tree) = (Random::new(seed), Tournament::new(slots));
            let (mut model, mut keys) = (BTreeSet::new(), std::vec![None; slots]);
            let mut middle = 0u64;
            for _ in 0..2_000 {
                if random.below(50) == 0 {
                    middle = [0, 1 << 63, u64::MAX, random.below(u64::MAX)][random.below(4) as usize];
                }
                let slot = random.below(slots as u64) as usize;
                let near = random.below(u64::MAX) >> random.below(64);
                let key = match random.below(6) {
                    0 => None,
                    1 => Some(u64::MAX),
                    2 | 3 => Some(middle.saturating_add(near)),
                    _ => Some(middle.saturating_sub(near)),
                };
                if let Some(old) = keys[slot] {
                    model.remove(&(old, slot as u32));
                }
                // The greatest counts as the one below it.
                keys[slot] = key.map(|k| k.min(u64::MAX - 1));
                match key {
                    Some(key) => tree.set(slot as u32, key),
                    None => tree.remove(slot as u32),
                }
                model.extend(keys[slot].map(|key| (key, slot as u32)));
                let least = model.first().map(|&(key, slot)| (slot, key));
                assert_eq!(tree.min(), least, "seed {seed}, {slots} slots");
                assert_eq!(tree.get(slot as u32), keys[slot], "seed {seed}, {slots} slots");
            }
        }
    }
}
