//! The least of n keys that change one at a time: a winner tree, log2(n) steps a change.
//!
//! The tree holds keys only, 8 bytes a node: a change is a walk of comparisons without a branch,
//! and who holds the least key is found by walking down to it.

use alloc::vec::Vec;

/// "No key": greater than every key.
const ABSENT: u64 = u64::MAX;

/// Keys for the slots 0..n; ties go to the lower slot.
///
/// `least[1]` is the least of all, `least[i]` that of `least[2i]` and `least[2i + 1]`, and the slots'
/// own keys are the last n.
pub(super) struct Tournament {
    least: Vec<u64>,
}

impl Tournament {
    pub(super) fn new(slots: usize) -> Self {
        Tournament { least: alloc::vec![ABSENT; 2 * slots.next_power_of_two()] }
    }
    fn place(&self, slot: u32) -> usize {
        self.least.len() / 2 + slot as usize
    }
    fn put(&mut self, slot: u32, key: u64) {
        let mut at = self.place(slot);
        if self.least[at] == key {
            return;
        }
        self.least[at] = key;
        while at > 1 {
            let winner = self.least[at].min(self.least[at ^ 1]);
            at /= 2;
            self.least[at] = winner;
        }
    }
    /// Changes the key of a slot. The greatest number there is counts as the one below it.
    pub(super) fn set(&mut self, slot: u32, key: u64) {
        self.put(slot, key.min(ABSENT - 1));
    }
    pub(super) fn remove(&mut self, slot: u32) {
        self.put(slot, ABSENT);
    }
    /// The least key.
    pub(super) fn least(&self) -> Option<u64> {
        Some(self.least[1]).filter(|&key| key != ABSENT)
    }
    /// The slot with the least key.
    pub(super) fn min(&self) -> Option<(u32, u64)> {
        let key = self.least()?;
        let (mut at, slots) = (1, self.least.len() / 2);
        while at < slots {
            at = 2 * at + usize::from(self.least[2 * at] != key);
        }
        Some(((at - slots) as u32, key))
    }
    pub(super) fn get(&self, slot: u32) -> Option<u64> {
        Some(self.least[self.place(slot)]).filter(|&key| key != ABSENT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    #[test]
    fn the_winner_is_the_least_key() {
        for slots in [1usize, 2, 3, 8, 13] {
            let (mut random, mut tree) = (Random::new(slots as u64), Tournament::new(slots));
            let mut model = std::vec![None; slots];
            for _ in 0..2_000 {
                let slot = random.below(slots as u64) as usize;
                model[slot] = (random.below(3) > 0).then(|| random.below(50));
                match model[slot] {
                    Some(key) => tree.set(slot as u32, key),
                    None => tree.remove(slot as u32),
                }
                let present = model.iter().enumerate().filter_map(|(i, k)| k.map(|k| (k, i)));
                assert_eq!(tree.min(), present.min().map(|(k, i)| (i as u32, k)));
            }
        }
    }
}
