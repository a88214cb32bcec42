//! The smallest of n keys that change one at a time, and the slot that holds it: a winner tree.
//!
//! A node of the tree holds the least keys below its eight places, each with its slot in one word:
//! the key, counted from a base, above the slot's number. So one comparison decides both, and the
//! first slot is known without a search. A node is a cache line: eight slots are one line, 64 two
//! levels. A change that neither is nor was the least of its line ends there; only a least that
//! grows makes its line be searched. HFSC looks up the smallest key three times per packet.
//!
//! ```text
//! places of   root 0..8 | line 0: 8..16 | line 1: 16..24 | ...
//! the least of line i stands in place i, so that the one above place p is p / 8 - 1
//! ```
//!
//! A word has room for keys up to 2^(64 - log2 n) from the base: nine years of nanoseconds for 64
//! slots. Keys that lie further stand last in the tree, whatever their order, and when only such
//! are left the base moves on. These keys alone are kept whole beside the tree.

use alloc::boxed::Box;

/// "No key": greater than every key.
const ABSENT: u64 = u64::MAX;
/// Places of a node.
const WAYS: usize = 8;

/// A node: the least word below each place.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line([u64; WAYS]);

impl Line {
    const EMPTY: Line = Line([ABSENT; WAYS]);

    #[inline(always)]
    fn least(&self) -> u64 {
        // Two chains of four: one of eight is compiled to branches, and eight at once take more registers.
        let [a, b, c, d, e, f, g, h] = self.0;
        a.min(b).min(e).min(g).min(c.min(d).min(f).min(h))
    }
}

/// Keys for the slots 0..n; ties go to the lower slot. Two cache lines, and those of the nodes below the root.
pub(super) struct Tournament {
    root: Line,
    /// The least word of all.
    winner: u64,
    base: u64,
    /// What stands for keys that lie too far from the base to be told apart. One more stands for the
    /// greatest key that there is.
    far: u64,
    /// All nodes but the root, level by level.
    lines: Box<[Line]>,
    /// Each slot's key where its word stands for one that is far.
    far_keys: Box<[u64]>,
    /// The place of slot 0.
    first: u32,
    slot_bits: u32,
}

const _: () = assert!(size_of::<Tournament>() == 128, "a tree of eight slots is two cache lines");

impl Tournament {
    /// None of `slots` slots has a key.
    pub(super) fn new(slots: usize) -> Self {
        let slots = slots.max(2);
        let (mut first, mut width) = (0, WAYS);
        while width < slots {
            first += width;
            width *= WAYS;
        }
        let slot_bits = slots.next_power_of_two().trailing_zeros();
        Tournament {
            root: Line::EMPTY,
            winner: ABSENT,
            base: 0,
            far: (ABSENT >> slot_bits) - 2,
            lines: alloc::vec![Line::EMPTY; (first + slots).div_ceil(WAYS) - 1].into_boxed_slice(),
            far_keys: alloc::vec![0; slots].into_boxed_slice(),
            first: first as u32,
            slot_bits,
        }
    }
    /// The place of a slot.
    #[inline(always)]
    fn place(&self, slot: u32) -> usize {
        debug_assert!((slot as usize) < self.far_keys.len(), "a slot that the tree does not have");
        self.first as usize + slot as usize
    }
    /// The word in a place.
    #[inline(always)]
    fn word_at(&mut self, at: usize) -> &mut u64 {
        if at < WAYS { &mut self.root.0[at] } else { &mut self.lines[at / WAYS - 1].0[at % WAYS] }
    }
    /// Changes the word of a slot.
    #[inline(always)]
    fn put(&mut self, slot: u32, word: u64) {
        let at = self.place(slot);
        let old = core::mem::replace(self.word_at(at), word);
        if word < old { self.falls(at, word) } else { self.rises(at, old) }
    }
    /// The word in place `at` has fallen: nodes above hear of it as long as it is less than theirs.
    #[inline(always)]
    fn falls(&mut self, mut at: usize, word: u64) {
        while at >= WAYS {
            at = at / WAYS - 1;
            let above = self.word_at(at);
            if *above < word {
                return;
            }
            *above = word;
        }
        self.winner = self.winner.min(word);
    }
    /// The word in place `at`, which was `old`, has risen: nodes whose least it was are searched for another.
    // A call, so that who changes a key saves no registers for it.
    #[inline(never)]
    fn rises(&mut self, mut at: usize, old: u64) {
        while at >= WAYS {
            at = at / WAYS - 1;
            if *self.word_at(at) != old {
                return;
            }
            *self.word_at(at) = self.lines[at].least();
        }
        if self.winner == old {
            self.winner = self.root.least();
            self.near();
        }
    }
    /// Changes the key of a slot. The greatest number there is counts as the one below it.
    #[inline]
    pub(super) fn set(&mut self, slot: u32, key: u64) {
        let offset = key.wrapping_sub(self.base);
        if offset >= self.far {
            return self.set_far(slot, key);
        }
        // The least is no farther than this one.
        self.put(slot, self.word(offset, slot));
    }
    /// The same for a slot that has no key.
    #[inline(always)]
    pub(super) fn insert(&mut self, slot: u32, key: u64) {
        let offset = key.wrapping_sub(self.base);
        if offset >= self.far {
            return self.set_far(slot, key);
        }
        let (at, word) = (self.place(slot), self.word(offset, slot));
        let old = core::mem::replace(self.word_at(at), word);
        debug_assert_eq!(old, ABSENT, "a slot that has a key gets its first");
        self.falls(at, word);
    }
    /// The word of a slot whose key is so far from the base.
    #[inline(always)]
    fn word(&self, offset: u64, slot: u32) -> u64 {
        // A shift by less than a word is one instruction.
        offset << (self.slot_bits & 63) | u64::from(slot)
    }
    /// How far from the base the key of a word is.
    #[inline(always)]
    fn offset(&self, word: u64) -> u64 {
        word >> (self.slot_bits & 63)
    }
    /// The same for a key below the base or far above it.
    #[cold]
    fn set_far(&mut self, slot: u32, key: u64) {
        let key = key.min(ABSENT - 1);
        if key < self.base {
            self.keep_keys();
            self.far_keys[slot as usize] = key;
            return self.rebase();
        }
        let far = self.far + u64::from(key == ABSENT - 1);
        self.far_keys[slot as usize] = key;
        self.put(slot, self.word(far, slot));
        self.near();
    }
    /// Takes a slot's key away.
    #[inline(always)]
    pub(super) fn remove(&mut self, slot: u32) {
        let at = self.place(slot);
        let old = core::mem::replace(self.word_at(at), ABSENT);
        self.rises(at, old);
    }
    /// Moves the base on if nothing is left but keys that lie too far from it.
    #[inline(always)]
    fn near(&mut self) {
        if self.offset(self.winner) == self.far {
            self.nearer();
        }
    }
    #[cold]
    fn nearer(&mut self) {
        self.keep_keys();
        self.rebase();
    }
    /// Writes every key beside the tree.
    fn keep_keys(&mut self) {
        for slot in 0..self.far_keys.len() {
            self.far_keys[slot] = self.get(slot as u32).unwrap_or(ABSENT);
        }
    }
    /// Counts all keys, which stand beside the tree, from a new base: as far below the least as half of what a
    /// word has room for, so that those to come find room on both sides.
    fn rebase(&mut self) {
        let least = self.far_keys.iter().copied().min().unwrap_or(0);
        let far = self.far;
        // No further than the words reach to the last key: `base + offset` is a key, and one below
        // the base is as far from it as one above all words.
        self.base = least.saturating_sub(far / 2).min(ABSENT - 1 - far);
        for slot in 0..self.far_keys.len() as u32 {
            let word = match self.far_keys[slot as usize] {
                ABSENT => ABSENT,
                key if key == ABSENT - 1 => self.word(far + 1, slot),
                key => self.word((key - self.base).min(far), slot),
            };
            *self.word_at(self.place(slot)) = word;
        }
        for line in (0..self.lines.len()).rev() {
            *self.word_at(line) = self.lines[line].least();
        }
        self.winner = self.root.least();
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
        match self.min_finite() {
            None if !self.is_empty() => Some((self.slot(self.winner), ABSENT - 1)),
            min => min,
        }
    }
    /// The same, where the greatest key that there is does not count: one comparison less.
    #[inline(always)]
    pub(super) fn min_finite(&self) -> Option<(u32, u64)> {
        let offset = self.offset(self.winner);
        // What is far from the base is the least only where nothing else is left.
        if offset >= self.far { None } else { Some((self.slot(self.winner), self.key(offset))) }
    }
    /// The slot with the least key, whatever that is.
    #[inline(always)]
    pub(super) fn first(&self) -> Option<u32> {
        if self.is_empty() { None } else { Some(self.slot(self.winner)) }
    }
    /// The slot of a word.
    #[inline(always)]
    fn slot(&self, word: u64) -> u32 {
        (word ^ self.offset(word) << (self.slot_bits & 63)) as u32
    }
    /// The key that lies so far from the base, less than `far`.
    #[inline(always)]
    fn key(&self, offset: u64) -> u64 {
        debug_assert!(
            self.base.checked_add(offset).is_some(),
            "a base from which words reach beyond all keys"
        );
        self.base.wrapping_add(offset)
    }
    /// The key of a slot.
    pub(super) fn get(&self, slot: u32) -> Option<u64> {
        let at = self.place(slot);
        let word = if at < WAYS { self.root.0[at] } else { self.lines[at / WAYS - 1].0[at % WAYS] };
        match self.offset(word) {
            _ if word == ABSENT => None,
            offset if offset < self.far => Some(self.key(offset)),
            _ => Some(self.far_keys[slot as usize]),
        }
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
                    Some(key) if tree.get(slot as u32).is_none() => tree.insert(slot as u32, key),
                    Some(key) => tree.set(slot as u32, key),
                    None => tree.remove(slot as u32),
                }
                let present = model.iter().enumerate().filter_map(|(i, k)| k.map(|k| (k, i)));
                let least = present.min().map(|(k, i)| (i as u32, k));
                assert_eq!(tree.min(), least, "seed {seed}, {slots} slots, 2^{range_log2}");
                assert_eq!(tree.min_finite(), least.filter(|&(_, key)| key < u64::MAX - 1), "seed {seed}");
                assert_eq!(tree.first(), least.map(|(slot, _)| slot), "seed {seed}");
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
