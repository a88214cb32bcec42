//! The smallest of n keys that change one at a time, and the slot that holds it: a winner tree.
//!
//! A node of the tree holds the least keys below its eight places, each with its slot in one word:
//! the key, counted from a base, above the slot's number. So one comparison decides both, and the
//! first slot is known without a search. A node is a cache line: eight slots are one line, 64 two
//! levels. A change that neither is nor was the least of its line ends there; only a least that
//! grows makes its line be searched. HFSC looks up the smallest key three times per packet.
//!
//! A word has room for keys up to 2^(64 - log2 n) from the base: nine years of nanoseconds for 64
//! slots. Keys that lie further stand last in the tree, whatever their order, and when only such
//! are left the base moves on. The keys themselves are kept whole beside the tree.

use alloc::vec::Vec;

/// "No key": greater than every key.
const ABSENT: u64 = u64::MAX;
/// Places of a node.
const WAYS: usize = 8;

/// A node: the least word below each place.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line([u64; WAYS]);

impl Line {
    #[inline(always)]
    fn least(&self) -> u64 {
        self.0.iter().fold(ABSENT, |least, &word| least.min(word))
    }
}

/// Keys for the slots 0..n; ties go to the lower slot.
pub(super) struct Tournament {
    /// The root, and below place p of node i node `WAYS` * i + p + 1. Slots are places of the last level.
    lines: Vec<Line>,
    /// The first node of the last level.
    last_level: usize,
    /// The least word of all.
    winner: u64,
    /// Each slot's key as it was given.
    keys: Vec<u64>,
    base: u64,
    slot_bits: u32,
    /// What stands for keys that lie too far from the base to be told apart. One more stands for the
    /// greatest key that there is.
    far: u64,
    /// The first word that stands for such a key.
    first_far: u64,
    /// The bits of a word that are the slot.
    slot_mask: u64,
}

impl Tournament {
    /// None of `slots` slots has a key.
    pub(super) fn new(slots: usize) -> Self {
        let slots = slots.max(2);
        let (mut last_level, mut width) = (0, 1);
        while width * WAYS < slots {
            last_level += width;
            width *= WAYS;
        }
        let slot_bits = slots.next_power_of_two().trailing_zeros();
        let far = (ABSENT >> slot_bits) - 2;
        Tournament {
            lines: alloc::vec![Line([ABSENT; WAYS]); last_level + slots.div_ceil(WAYS)],
            last_level,
            winner: ABSENT,
            keys: alloc::vec![ABSENT; slots],
            base: 0,
            slot_bits,
            far,
            first_far: far << slot_bits,
            slot_mask: (1 << slot_bits) - 1,
        }
    }
    /// Changes the word of a slot, and the least of each node above as far as it changes with it.
    #[inline(always)]
    fn put(&mut self, slot: u32, word: u64) {
        let lines = &mut self.lines[..];
        if let [line] = lines {
            line.0[slot as usize % WAYS] = word;
            self.winner = line.least();
            return;
        }
        let (mut node, mut place) = (self.last_level + slot as usize / WAYS, slot as usize % WAYS);
        let mut least = word;
        loop {
            let line = &mut lines[node];
            if line.0[place] == least {
                return;
            }
            line.0[place] = least;
            least = line.least();
            if node == 0 {
                break;
            }
            (node, place) = ((node - 1) / WAYS, (node - 1) % WAYS);
        }
        self.winner = least;
    }
    /// The same, where the word mostly neither was nor is the least of its line: the node above knows.
    #[inline(always)]
    fn put_behind(&mut self, slot: u32, word: u64) {
        let (node, place) = (self.last_level + slot as usize / WAYS, slot as usize % WAYS);
        let least = match node.checked_sub(1) {
            None => self.winner,
            Some(n) => self.lines[n / WAYS].0[n % WAYS],
        };
        let at = &mut self.lines[node].0[place];
        if *at > least && word > least {
            *at = word;
        } else {
            self.put(slot, word);
        }
    }
    /// Changes the key of a slot. The greatest number there is counts as the one below it.
    #[inline]
    pub(super) fn set(&mut self, slot: u32, key: u64) {
        let offset = key.wrapping_sub(self.base);
        if offset >= self.far {
            return self.set_far(slot, key);
        }
        self.keys[slot as usize] = key;
        // The least is no farther than this one.
        self.put_behind(slot, self.word(offset, slot));
    }
    /// The word of a slot whose key is so far from the base.
    #[inline(always)]
    fn word(&self, offset: u64, slot: u32) -> u64 {
        // A shift by less than a word is one instruction.
        offset << (self.slot_bits & 63) | u64::from(slot)
    }
    /// The same for a key below the base or far above it.
    #[cold]
    fn set_far(&mut self, slot: u32, key: u64) {
        let key = key.min(ABSENT - 1);
        self.keys[slot as usize] = key;
        if key < self.base {
            return self.rebase();
        }
        let far = self.far + u64::from(key == ABSENT - 1);
        self.put(slot, self.word(far, slot));
        self.near();
    }
    /// Moves the base on if nothing is left but keys that lie too far from it.
    #[inline(always)]
    fn near(&mut self) {
        if self.winner >= self.first_far && self.winner < self.word(self.far + 1, 0) {
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
        self.near();
    }
    /// Counts all keys from a new base: as far below the least as half of what a word has room
    /// for, so that those to come find room on both sides.
    #[cold]
    fn rebase(&mut self) {
        let least = self.keys.iter().copied().min().unwrap_or(0);
        let far = self.far;
        // No further than the words reach to the last key: `base + offset` is a key, and one below
        // the base is as far from it as one above all words.
        self.base = least.saturating_sub(far / 2).min(ABSENT - 1 - far);
        for slot in 0..self.keys.len() {
            let word = match self.keys[slot] {
                ABSENT => ABSENT,
                key if key == ABSENT - 1 => self.word(far + 1, slot as u32),
                key => self.word((key - self.base).min(far), slot as u32),
            };
            self.put(slot as u32, word);
        }
    }
    /// True if no slot has a key.
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.winner == ABSENT
    }
    /// The least key.
    #[inline]
    pub(super) fn least(&self) -> Option<u64> {
        self.min().map(|(_, key)| key)
    }
    /// The slot with the least key.
    #[inline(always)]
    pub(super) fn min(&self) -> Option<(u32, u64)> {
        if self.is_empty() {
            return None;
        }
        let slot = (self.winner & self.slot_mask) as u32;
        let near = self.winner < self.first_far;
        Some((slot, if near { self.base + (self.winner >> (self.slot_bits & 63)) } else { ABSENT - 1 }))
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
            [1usize, 2, 3, 8, 9, 13, 65, 100, 600].into_iter().flat_map(|n| [6, 56, 62, 64].map(|r| (n, r)))
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
            [1usize, 2, 3, 8, 9, 64, 100, 600].into_iter().flat_map(|n| seeds.clone().map(move |s| (n, s)))
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
