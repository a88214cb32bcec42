//! What each class is owed: the service that its rate entitles it to, less what it has had
//! [QOSBOX equation 1, R^out - Xmit].
//!
//! In its plain form, with `r` the rates of the waiting classes in parts of the link, a packet of
//! class `k` and of `bytes` on the wire changes the account of every waiting class:
//!
//! ```text
//! owed[i] += r[i] * bytes          for each waiting class i      (R^out: what the rate is worth)
//! owed[k] -= bytes * sum of r      for the class that sent        (Xmit: what was sent)
//! ```
//!
//! The class with the greatest `owed` is next. The code below gives the same numbers without the
//! loop; a test holds it against the plain form.
//!
//! Every packet that leaves adds to what every waiting class is owed, and each dequeue asks who is
//! owed most. So a class is not changed by the packets of others: what it is owed is its rate times
//! the bytes that `passed`, less `had`, and is worked out where it is asked, without a branch a class.
//! Where rates change, only the classes are touched whose own did.
//!
//! Units are bytes times 2^-40. Proof of range, for arithmetic that wraps: a packet counts as 2^17
//! bytes at most, so that it adds 2^57 at most. The class that is owed most is served, so none is
//! ever owed more than the harmonic sum of 16 such packets, 3.4 * 2^57, and none has had more than
//! all others are owed, 2^63 less a third. `passed` stays below 2^20, and its product with a rate
//! below 2^60.

use super::rates::bits;
use super::weights::CLASSES;

/// `passed` begins anew beyond this.
const MOST_PASSED: u64 = 1 << 19;
/// A packet counts as at most so many bytes.
const MOST_BYTES: u64 = 1 << 17;
/// What a class that does not wait has had: it is never the one that is owed most.
const NOT_WAITING: i64 = i64::MAX;

pub(super) struct Service {
    /// Rates of the waiting classes, else 0.
    rates: [u64; CLASSES],
    /// What a waiting class has had, less what it was owed when `passed` was 0.
    had: [i64; CLASSES],
    /// What the others are owed.
    kept: [i64; CLASSES],
    /// All bits for a waiting class.
    waits: [u64; CLASSES],
    /// Bytes sent since it began anew.
    passed: u64,
    /// Sum of `rates`.
    sum: u64,
}

impl Service {
    /// Nobody waits, and nobody is owed anything.
    pub const NEW: Service = Service {
        rates: [0; CLASSES],
        had: [NOT_WAITING; CLASSES],
        kept: [0; CLASSES],
        waits: [0; CLASSES],
        passed: 0,
        sum: 0,
    };

    /// Nobody waits: nobody is owed anything any more.
    pub fn clear(&mut self) {
        (self.kept, self.passed) = ([0; CLASSES], 0);
    }

    /// What class `index` is owed.
    pub fn owed(&self, index: usize) -> i64 {
        match self.waits[index] {
            0 => self.kept[index],
            _ => (self.rates[index].wrapping_mul(self.passed) as i64).wrapping_sub(self.had[index]),
        }
    }

    /// Class `index` has packets from now on, and this rate.
    #[inline]
    pub fn join(&mut self, index: usize, rate: u64) {
        debug_assert_eq!(self.waits[index], 0, "a class that waits begins to wait");
        (self.rates[index], self.waits[index]) = (rate, u64::MAX);
        self.had[index] = (rate.wrapping_mul(self.passed) as i64).wrapping_sub(self.kept[index]);
        self.sum += rate;
    }

    /// Class `index` has no more packets.
    #[inline]
    pub fn leave(&mut self, index: usize) {
        debug_assert_ne!(self.waits[index], 0, "a class that does not wait stops waiting");
        self.kept[index] = self.owed(index);
        self.sum -= self.rates[index];
        (self.rates[index], self.waits[index], self.had[index]) = (0, 0, NOT_WAITING);
    }

    /// The waiting ones of the first `classes` have these rates from now on; there are no others. What they are owed
    /// stays: what `passed` is worth more now counts as had.
    #[inline]
    #[expect(clippy::needless_range_loop, reason = "iterators over four arrays cost a branch a class here")]
    pub fn set(&mut self, rates: &[u64; CLASSES], classes: usize) {
        for class in 0..classes.min(CLASSES) {
            let rate = rates[class] & self.waits[class];
            let more = rate.wrapping_sub(self.rates[class]);
            if more != 0 {
                self.had[class] = self.had[class].wrapping_add(more.wrapping_mul(self.passed) as i64);
                self.rates[class] = rate;
                self.sum = self.sum.wrapping_add(more);
            }
        }
    }

    /// `passed` begins anew.
    #[cold]
    fn rebase(&mut self) {
        let passed = core::mem::take(&mut self.passed);
        for (had, rate) in self.had.iter_mut().zip(self.rates) {
            *had = had.wrapping_sub(rate.wrapping_mul(passed) as i64);
        }
    }

    /// The class of the first `classes` that is most behind its rate; among equals the first.
    /// Those of `held_up` are left out.
    #[inline]
    pub fn most_behind(&self, classes: usize, held_up: u16) -> usize {
        if held_up != 0 {
            return self.most_behind_of(classes, held_up);
        }
        let owed =
            |class: usize| (self.rates[class].wrapping_mul(self.passed) as i64).wrapping_sub(self.had[class]);
        let more = |a: (usize, i64), b: (usize, i64)| if b.1 > a.1 { b } else { a };
        let pair = |class: usize| more((class, owed(class)), (class + 1, owed(class + 1)));
        let mut best = (0, i64::MIN);
        // By fours, so that most comparisons need not wait for one another, and by index, since an
        // iterator over two arrays costs a branch and a spill a class here.
        for four in 0..classes.div_ceil(4).min(CLASSES / 4) {
            best = more(best, more(pair(4 * four), pair(4 * four + 2)));
        }
        best.0
    }

    #[cold]
    #[inline(never)]
    fn most_behind_of(&self, classes: usize, held_up: u16) -> usize {
        let among = (0..classes).filter(|&class| self.waits[class] != 0 && held_up >> class & 1 == 0);
        among.reduce(|a, b| if self.owed(b) > self.owed(a) { b } else { a }).unwrap_or(0)
    }

    /// Class `index` sends `bytes` on the wire: while it does, the rates of all that wait add to
    /// what they are owed. A class of `held_up`, which must not send yet, is owed nothing. The sum
    /// over all classes stays 0.
    #[inline]
    pub fn sent(&mut self, index: usize, bytes: u64, held_up: u16) {
        let bytes = bytes.min(MOST_BYTES);
        let rates = if held_up == 0 { self.sum } else { self.pass_over(bytes, held_up) };
        self.had[index] = self.had[index].wrapping_add(bytes.wrapping_mul(rates) as i64);
        self.passed += bytes;
        if self.passed > MOST_PASSED {
            self.rebase();
        }
    }

    /// Those of `held_up` are owed nothing for `bytes`. Answers the rates of the others.
    #[cold]
    fn pass_over(&mut self, bytes: u64, held_up: u16) -> u64 {
        let mut rates = self.sum;
        for class in bits(held_up) {
            rates -= self.rates[class];
            self.had[class] = self.had[class].wrapping_add((bytes * self.rates[class]) as i64);
        }
        rates
    }
}

#[cfg(test)]
mod tests {
    use super::super::rates::ONE;
    use super::*;
    use crate::Random;

    /// What classes are owed, changed with every packet as equation 1 reads.
    #[derive(Default)]
    struct Plain {
        owed: [i128; CLASSES],
        waiting: u16,
    }

    impl Plain {
        fn most_behind(&self, held_up: u16) -> usize {
            let more = |a: usize, b: usize| if self.owed[b] > self.owed[a] { b } else { a };
            bits(self.waiting & !held_up).reduce(more).unwrap()
        }
        fn sent(&mut self, index: usize, bytes: u64, rates: &[u64; CLASSES], held_up: u16) {
            for class in bits(self.waiting & !held_up) {
                let part = i128::from(bytes) * i128::from(rates[class]);
                self.owed[class] += part;
                self.owed[index] -= part;
            }
        }
    }

    /// Rates that add up to the link over those who wait; all of it for one now and then.
    fn rates(random: &mut Random, waiting: u16) -> [u64; CLASSES] {
        let (mut rates, mut left) = ([0; CLASSES], ONE);
        for class in bits(waiting) {
            rates[class] = if random.below(8) == 0 { left } else { random.below(left + 1) };
            left -= rates[class];
        }
        rates[waiting.trailing_zeros() as usize] += left;
        rates
    }

    /// Packets up to the largest that counts, so that `passed` begins anew every few of them;
    /// classes that come, go, change rates and are held up. Reversed: a model whose packets are
    /// a byte shorter soon disagrees.
    #[test]
    fn j18_is_the_plain_sum_under_random_calls() {
        for (classes, shorter) in [1, 2, 3, 4, 5, 8, 13, 16].into_iter().flat_map(|n| [(n, 0), (n, 1)]) {
            let seed = weir_seed::seed() ^ classes as u64;
            let mut random = Random::new(seed);
            let (mut service, mut plain) = (Service::NEW, Plain::default());
            let (mut now, mut differs) = ([0; CLASSES], false);
            for _ in 0..20_000 {
                let index = random.below(classes as u64) as usize;
                let bit = 1u16 << index;
                match random.below(8) {
                    0 if plain.waiting & bit == 0 => {
                        plain.waiting |= bit;
                        service.join(index, now[index]);
                    }
                    1 if plain.waiting & bit != 0 => {
                        plain.waiting &= !bit;
                        service.leave(index);
                    }
                    2 if plain.waiting != 0 => {
                        now = rates(&mut random, plain.waiting);
                        service.set(&now, classes);
                    }
                    3 if plain.waiting == 0 => {
                        (plain.owed, now) = ([0; CLASSES], [0; CLASSES]);
                        service.clear();
                    }
                    4.. if plain.waiting != 0 => {
                        let held_up = if random.below(4) == 0 { plain.waiting & !bit } else { 0 };
                        if plain.waiting & !held_up == 0 {
                            continue;
                        }
                        let most = service.most_behind(classes, held_up);
                        differs |= most != plain.most_behind(held_up);
                        let bytes = 40 + random.below(MOST_BYTES - 39);
                        service.sent(most, bytes, held_up);
                        plain.sent(most, bytes - shorter, &now, held_up);
                    }
                    _ => {}
                }
                let owed = (0..classes).map(|class| i128::from(service.owed(class)));
                differs |= owed.clone().zip(plain.owed).any(|(a, b)| a != b);
                assert!(shorter > 0 || !differs, "seed {seed}, {classes} classes");
                assert_eq!(owed.sum::<i128>(), 0, "seed {seed}, {classes} classes");
            }
            // A single class is never owed anything, whatever its packets.
            assert_eq!(differs, shorter > 0 && classes > 1, "seed {seed}, {classes} classes");
        }
    }
    /// Among those that are owed the same the first goes, whether or not somebody is held up.
    #[test]
    fn of_equals_the_first_goes() {
        let mut service = Service::NEW;
        for class in 0..4 {
            service.join(class, ONE / 4);
        }
        let first = |held_up: u16| service.most_behind(4, held_up);
        assert_eq!([0b0000, 0b0001, 0b0011, 0b0101].map(first), [0, 1, 2, 1]);
    }
}
