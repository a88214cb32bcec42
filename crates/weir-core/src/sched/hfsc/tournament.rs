//! The least of n keys that change one at a time: a winner tree, log2(n) comparisons a change.

use alloc::vec::Vec;

/// A key with a value that means "absent" and is greater than all others.
pub(super) trait Key: Copy + Ord {
    const ABSENT: Self;
}
impl Key for u64 {
    const ABSENT: Self = u64::MAX;
}
impl Key for u128 {
    const ABSENT: Self = u128::MAX;
}

/// Keys for the slots 0..n; ties go to the lower slot.
///
/// `winner[node]` is the slot that wins below the node; node 1 is the final, the parents of the
/// slots are the nodes size/2..size.
pub(super) struct Tournament<K> {
    keys: Vec<K>,
    winner: Vec<u32>,
}

impl<K: Key> Tournament<K> {
    pub(super) fn new(slots: usize) -> Self {
        let size = slots.next_power_of_two().max(2);
        let mut tree = Tournament { keys: alloc::vec![K::ABSENT; size], winner: alloc::vec![0; size] };
        for node in (1..size).rev() {
            tree.winner[node] = tree.play(node);
        }
        tree
    }
    /// Who wins at `node`.
    fn play(&self, node: usize) -> u32 {
        let size = self.keys.len();
        let side = |child: usize| if child >= size { (child - size) as u32 } else { self.winner[child] };
        let (left, right) = (side(2 * node), side(2 * node + 1));
        if self.keys[left as usize] <= self.keys[right as usize] { left } else { right }
    }
    /// Changes the key of a slot.
    pub(super) fn set(&mut self, slot: u32, key: K) {
        if self.keys[slot as usize] == key {
            return;
        }
        self.keys[slot as usize] = key;
        let mut node = (self.keys.len() + slot as usize) / 2;
        while node >= 1 {
            let winner = self.play(node);
            // The same winner as before with the same key: nothing changes further up.
            if self.winner[node] == winner && winner != slot {
                return;
            }
            self.winner[node] = winner;
            node /= 2;
        }
    }
    pub(super) fn remove(&mut self, slot: u32) {
        self.set(slot, K::ABSENT);
    }
    /// The slot with the least key.
    pub(super) fn min(&self) -> Option<(u32, K)> {
        let slot = self.winner[1];
        let key = self.keys[slot as usize];
        (key != K::ABSENT).then_some((slot, key))
    }
    pub(super) fn get(&self, slot: u32) -> Option<K> {
        let key = self.keys[slot as usize];
        (key != K::ABSENT).then_some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    #[test]
    fn the_winner_is_the_least_key() {
        for slots in [1usize, 2, 3, 8, 13] {
            let (mut random, mut tree) = (Random::new(slots as u64), Tournament::<u64>::new(slots));
            let mut model = std::vec![u64::ABSENT; slots];
            for _ in 0..2_000 {
                let slot = random.below(slots as u64) as usize;
                let key = if random.below(3) == 0 { u64::ABSENT } else { random.below(50) };
                tree.set(slot as u32, key);
                model[slot] = key;
                let expected = model.iter().enumerate().min_by_key(|&(i, k)| (*k, i));
                let expected = expected.filter(|&(_, k)| *k != u64::ABSENT).map(|(i, k)| (i as u32, *k));
                assert_eq!(tree.min(), expected);
            }
        }
    }
}
