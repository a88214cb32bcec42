//! When does which class wake: the least of many times, each settable at any moment.
//!
//! A tree of minima, eight to a node: a time that moves later costs nothing but its store, unless
//! it was the least: then eight comparisons a level, and three classes have one level, twenty
//! have two, four thousand have four.

use crate::units::Instant;
use alloc::vec;
use alloc::vec::Vec;

const FAN: usize = 8;

/// A time for each of a fixed number of classes; `Instant::NEVER` for most.
pub(super) struct Wakes {
    /// The levels of the tree, leaves first, each padded to whole nodes.
    keys: Vec<Instant>,
    /// Where each level starts.
    levels: Vec<usize>,
    least: Instant,
}

impl Wakes {
    pub fn new(classes: usize) -> Self {
        let (mut levels, mut total, mut width) = (Vec::new(), 0, classes.max(1));
        loop {
            levels.push(total);
            let nodes = width.div_ceil(FAN);
            total += nodes * FAN;
            if nodes == 1 {
                break;
            }
            width = nodes;
        }
        Wakes { keys: vec![Instant::NEVER; total], levels, least: Instant::NEVER }
    }

    /// The least of all times.
    #[inline]
    pub fn least(&self) -> Instant {
        self.least
    }

    /// Sets the time of class `index`.
    #[inline]
    pub fn set(&mut self, index: usize, at: Instant) {
        let (mut index, mut key) = (index, at);
        for (level, &base) in self.levels.iter().enumerate() {
            let old = core::mem::replace(&mut self.keys[base + index], key);
            let least = match self.levels.get(level + 1) {
                Some(&above) => self.keys[above + index / FAN],
                None => self.least,
            };
            if key > least {
                // The least of the node stays, unless it was the one that went up.
                if old > least {
                    return;
                }
                let first = base + index / FAN * FAN;
                let node = &self.keys[first..first + FAN];
                key = node.iter().fold(Instant::NEVER, |least, &k| if k < least { k } else { least });
            }
            index /= FAN;
        }
        self.least = key;
    }

    /// The time of class `index`.
    pub fn get(&self, index: usize) -> Instant {
        self.keys[index]
    }

    /// Takes out a class whose time has come.
    #[inline]
    pub fn take_due(&mut self, now: Instant) -> Option<usize> {
        if self.least > now { None } else { self.take_least() }
    }

    fn take_least(&mut self) -> Option<usize> {
        if self.least == Instant::NEVER {
            return None;
        }
        let mut index = 0;
        for &base in self.levels.iter().rev() {
            let node = &self.keys[base + index * FAN..base + (index + 1) * FAN];
            index = index * FAN + node.iter().position(|&k| k == self.least)?;
        }
        self.set(index, Instant::NEVER);
        Some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    #[test]
    fn is_the_least_of_a_plain_list() {
        let seed = 11;
        let mut random = Random::new(seed);
        for classes in [1, 3, 8, 9, 20, 64, 65, 513, 4_096] {
            let (mut wakes, mut plain) = (Wakes::new(classes), vec![Instant::NEVER; classes]);
            for _ in 0..2_000 {
                let index = random.below(classes as u64) as usize;
                let at = Instant::from_nanos(random.below(1_000));
                wakes.set(index, at);
                plain[index] = at;
                let now = Instant::from_nanos(random.below(20));
                while let Some(due) = wakes.take_due(now) {
                    assert!(plain[due] <= now, "seed {seed}");
                    plain[due] = Instant::NEVER;
                }
                assert_eq!(Some(&wakes.least()), plain.iter().min(), "seed {seed}, {classes} classes");
                assert!(plain.iter().all(|&at| at > now), "seed {seed}");
            }
        }
    }
}
