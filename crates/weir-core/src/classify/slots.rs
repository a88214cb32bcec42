//! One hash table: from the bits under a mask to the chain of filters that agree on them.
//!
//! Most look-ups find nothing, so that is what is cheap: one byte of each chain's hash lies in an
//! array of its own, in groups of eight that are compared at once. These stay in the first cache.
//!
//! ```text
//! tags   | 9c 00 41 e0 00 00 00 00 | 7b ...     0 = free; else 1 to 255, from the hash's high bits
//! slots  | head,hash   -   ...     |            the same places
//!          ^ home group = hash mod groups; from a full group, on to the next that is not
//! ```

use alloc::vec;
use alloc::vec::Vec;

/// No chain, no entry.
pub const NONE: u32 = u32::MAX;

/// Places in a group: the bytes of a word.
const GROUP: usize = 8;
const LOW_BITS: u64 = 0x0101_0101_0101_0101;
const HIGH_BITS: u64 = 0x8080_8080_8080_8080;

#[derive(Clone, Copy)]
struct Slot {
    head: u32,
    hash: u32,
}

const EMPTY: Slot = Slot { head: NONE, hash: 0 };

/// A place in the table: of a chain, or free.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SlotRef {
    at: usize,
    /// The first entry of the chain.
    pub head: u32,
}

/// Chains by hash.
#[derive(Clone)]
pub struct Slots {
    /// A power of two of groups.
    tags: Vec<u64>,
    /// One less than their number.
    last: usize,
    slots: Vec<Slot>,
    /// Entries on each chain.
    lens: Vec<u32>,
    used: usize,
}

/// The high bit of each byte of `word` that equals `byte`; above a true one there may be false ones.
#[inline(always)]
fn equal_bytes(word: u64, byte: u8) -> u64 {
    let x = word ^ u64::from(byte).wrapping_mul(LOW_BITS);
    x.wrapping_sub(LOW_BITS) & !x & HIGH_BITS
}

#[inline(always)]
fn tag(hash: u32) -> u8 {
    ((hash >> 24) as u8).max(1)
}

impl Slots {
    /// No chains.
    pub fn new() -> Self {
        Self::with_groups(1)
    }

    fn with_groups(groups: usize) -> Self {
        Slots {
            tags: vec![0; groups],
            last: groups - 1,
            slots: vec![EMPTY; groups * GROUP],
            lens: vec![0; groups * GROUP],
            used: 0,
        }
    }

    fn home(&self, hash: u32) -> usize {
        hash as usize & self.last
    }

    /// Whether a chain of this hash may be there. Without a branch: its outcome cannot be foretold.
    #[inline(always)]
    pub fn may_hold(&self, hash: u32) -> bool {
        let group = self.tags[hash as usize & self.last];
        (equal_bytes(group, tag(hash)) != 0) | (equal_bytes(group, 0) == 0)
    }

    /// The chain of this hash, or the free place where it would go (its head is `NONE`). At most
    /// half of the places are taken, so there is one.
    #[inline(always)]
    pub fn find(&self, hash: u32) -> SlotRef {
        let mut group = hash as usize & self.last;
        loop {
            let tags = self.tags[group];
            let mut hits = equal_bytes(tags, tag(hash));
            while hits != 0 {
                let at = group * GROUP + hits.trailing_zeros() as usize / 8;
                if self.slots[at].hash == hash && self.slots[at].head != NONE {
                    return SlotRef { at, head: self.slots[at].head };
                }
                hits &= hits - 1;
            }
            let free = equal_bytes(tags, 0);
            if free != 0 {
                return SlotRef { at: group * GROUP + free.trailing_zeros() as usize / 8, head: NONE };
            }
            group = (group + 1) & self.last;
        }
    }

    /// Entries on the chain of this hash.
    pub fn len(&self, hash: u32) -> u32 {
        self.lens[self.find(hash).at]
    }

    /// Makes sure of a free place for one more chain; places found before are no longer good.
    pub fn reserve(&mut self) {
        if (self.used + 1) * 2 <= self.slots.len() {
            return;
        }
        let mut wider = Self::with_groups(self.tags.len() * 2);
        for (slot, &len) in self.slots.iter().zip(&self.lens).filter(|(slot, _)| slot.head != NONE) {
            let place = wider.find(slot.hash);
            wider.put(place.at, *slot, len);
        }
        wider.used = self.used;
        *self = wider;
    }

    /// An entry joined the chain at `place`, which begins with `head` now.
    pub fn joined(&mut self, place: SlotRef, hash: u32, head: u32) {
        self.used += usize::from(place.head == NONE);
        self.put(place.at, Slot { head, hash }, self.lens[place.at] + 1);
    }

    /// An entry left the chain at `place`, which begins with `head` now, or is no more.
    pub fn left(&mut self, place: SlotRef, head: u32) {
        if head == NONE {
            self.close_gap(place.at);
        } else {
            self.slots[place.at].head = head;
            self.lens[place.at] -= 1;
        }
    }

    fn put(&mut self, at: usize, slot: Slot, len: u32) {
        let byte = if slot.head == NONE { 0 } else { tag(slot.hash) };
        self.slots[at] = slot;
        self.lens[at] = len;
        let shift = (at % GROUP) * 8;
        let tags = &mut self.tags[at / GROUP];
        *tags = (*tags & !(0xff << shift)) | (u64::from(byte) << shift);
    }

    fn is_full(&self, group: usize) -> bool {
        equal_bytes(self.tags[group], 0) == 0
    }

    /// Frees a place. If its group was full, chains may have gone on from it to the groups behind,
    /// as far as the first that is not full: one of them moves back, and leaves the next hole.
    fn close_gap(&mut self, mut hole: usize) {
        let last = self.last;
        let distance = |from: usize, to: usize| to.wrapping_sub(from) & last;
        let mut group = hole / GROUP;
        let mut goes_on = self.is_full(group);
        while goes_on {
            group = (group + 1) & self.last;
            goes_on = self.is_full(group);
            let steps = distance(hole / GROUP, group);
            let stepped_over = |at: &usize| {
                self.slots[*at].head != NONE && distance(self.home(self.slots[*at].hash), group) >= steps
            };
            if let Some(at) = (group * GROUP..(group + 1) * GROUP).find(stepped_over) {
                self.put(hole, self.slots[at], self.lens[at]);
                hole = at;
            }
        }
        self.put(hole, EMPTY, 0);
        self.used -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Against an ordered map, with hashes that collide in home, in tag, and in both.
    #[test]
    fn chains_come_and_go_as_in_a_map() {
        let mut state = weir_seed::seed();
        let mut next = || {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (state >> 33) as u32
        };
        let mut slots = Slots::new();
        let mut model: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for step in 0..40_000u32 {
            let hash = (next() % 4) << 24 | (next() % 3) << 12 | (next() % 20);
            let chain = model.entry(hash).or_default();
            // Grows for a while, then shrinks.
            if next() % 8 < if step / 5000 % 2 == 0 { 5 } else { 3 } {
                slots.reserve();
                let place = slots.find(hash);
                assert_eq!(place.head, chain.last().copied().unwrap_or(NONE));
                slots.joined(place, hash, step);
                chain.push(step);
            } else if chain.pop().is_some() {
                slots.left(slots.find(hash), chain.last().copied().unwrap_or(NONE));
            }
            let probe = (next() % 4) << 24 | (next() % 3) << 12 | (next() % 20);
            let expected = model.get(&probe).and_then(|c| c.last()).copied().unwrap_or(NONE);
            assert_eq!(slots.find(probe).head, expected, "step {step}");
            assert_eq!(slots.len(probe) as usize, model.get(&probe).map_or(0, Vec::len));
            assert!(expected == NONE || slots.may_hold(probe));
        }
        let chains = model.values().filter(|c| !c.is_empty()).count();
        assert_eq!(slots.used, chains);
        assert!(slots.used * 2 <= slots.slots.len());
    }
}
