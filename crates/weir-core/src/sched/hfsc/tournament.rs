//! The least of n keys that change one at a time: a winner tree, log2(n) comparisons a change.

use alloc::vec::Vec;
use core::marker::PhantomData;

/// How keys are compared.
pub(super) trait Order {
    /// True if `a` comes before `b`, or at the same time.
    fn before(a: u64, b: u64) -> bool;
}

/// Numbers as they are.
pub(super) struct Plain;
impl Order for Plain {
    fn before(a: u64, b: u64) -> bool {
        a <= b
    }
}

/// Numbers on a circle: right as long as all that are compared lie within half of it.
pub(super) struct Circular;
impl Order for Circular {
    fn before(a: u64, b: u64) -> bool {
        (b.wrapping_sub(a) as i64) >= 0
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Entry {
    key: u64,
    /// `ABSENT` if there is no key.
    slot: u32,
}

const ABSENT: u32 = u32::MAX;
const NOBODY: Entry = Entry { key: 0, slot: ABSENT };

/// Keys for the slots 0..n; ties go to the lower slot.
///
/// `tree[1]` is the winner of all, the players 2i and 2i + 1 meet at i, and the slots' own entries
/// are the last n.
pub(super) struct Tournament<O> {
    tree: Vec<Entry>,
    order: PhantomData<O>,
}

impl<O: Order> Tournament<O> {
    pub(super) fn new(slots: usize) -> Self {
        let size = slots.next_power_of_two();
        Tournament { tree: alloc::vec![NOBODY; 2 * size], order: PhantomData }
    }
    fn place(&self, slot: u32) -> usize {
        self.tree.len() / 2 + slot as usize
    }
    fn put(&mut self, slot: u32, entry: Entry) {
        let mut at = self.place(slot);
        if self.tree[at] == entry {
            return;
        }
        self.tree[at] = entry;
        while at > 1 {
            let (left, right) = (self.tree[at & !1], self.tree[at | 1]);
            let left_wins = right.slot == ABSENT || (left.slot != ABSENT && O::before(left.key, right.key));
            let winner = if left_wins { left } else { right };
            at /= 2;
            if self.tree[at] == winner {
                return;
            }
            self.tree[at] = winner;
        }
    }
    /// Changes the key of a slot.
    pub(super) fn set(&mut self, slot: u32, key: u64) {
        self.put(slot, Entry { key, slot });
    }
    pub(super) fn remove(&mut self, slot: u32) {
        self.put(slot, NOBODY);
    }
    /// The slot with the least key.
    pub(super) fn min(&self) -> Option<(u32, u64)> {
        let winner = self.tree[1];
        (winner.slot != ABSENT).then_some((winner.slot, winner.key))
    }
    pub(super) fn get(&self, slot: u32) -> Option<u64> {
        let entry = self.tree[self.place(slot)];
        (entry.slot != ABSENT).then_some(entry.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    fn the_winner_is_the_least<O: Order>(base: u64) {
        for slots in [1usize, 2, 3, 8, 13] {
            let (mut random, mut tree) = (Random::new(slots as u64), Tournament::<O>::new(slots));
            let mut model = std::vec![None; slots];
            for _ in 0..2_000 {
                let slot = random.below(slots as u64) as usize;
                model[slot] = (random.below(3) > 0).then(|| random.below(50));
                match model[slot] {
                    Some(key) => tree.set(slot as u32, base.wrapping_add(key)),
                    None => tree.remove(slot as u32),
                }
                let present = model.iter().enumerate().filter_map(|(i, k)| k.map(|k| (k, i)));
                let expected = present.min().map(|(k, i)| (i as u32, base.wrapping_add(k)));
                assert_eq!(tree.min(), expected);
            }
        }
    }

    #[test]
    fn the_winner_is_the_least_key() {
        the_winner_is_the_least::<Plain>(0);
        the_winner_is_the_least::<Plain>(u64::MAX - 50);
        the_winner_is_the_least::<Circular>(0);
        the_winner_is_the_least::<Circular>(u64::MAX - 25);
    }
}
