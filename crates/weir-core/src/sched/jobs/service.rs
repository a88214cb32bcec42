//! What each class is owed: the service that its rate entitles it to, less what it has had
//! [QOSBOX equation 1, R^out - Xmit].
//!
//! Every packet that leaves adds to what every waiting class is owed, and each dequeue asks who is
//! owed most. So a class is not changed by the packets of others: what it is owed is its rate times
//! the bytes that `passed`, less `had`, and is worked out where it is asked, without a branch.
//!
//! Units are bytes times 2^-40. Proof of range: a rate is at most 2^40 and `passed` at most 2^22,
//! so their product is at most 2^62; what is owed is kept within 2^61 when a class joins or `passed` begins
//! anew, and all that is sent until then adds at most 2^62 to a `had`.

use super::rates::bits;
use super::weights::CLASSES;

/// `passed` begins anew beyond this.
const MOST_PASSED: u64 = 1 << 22;
/// A packet counts as at most so many bytes.
const MOST_BYTES: u64 = 1 << 20;
/// What is owed is kept within this.
const MOST_OWED: i64 = 1 << 61;
/// What a class that does not wait has had: it is never the one that is owed most.
const NOT_WAITING: i64 = i64::MAX;

pub(super) struct Service {
    /// Rates of the waiting classes, else 0.
    rates: [u64; CLASSES],
    /// What a waiting class has had, less what it was owed when `passed` was 0.
    had: [i64; CLASSES],
    /// What the others are owed.
    kept: [i64; CLASSES],
    /// Bytes sent since the rates were set.
    passed: u64,
    /// Sum of `rates`.
    sum: u64,
}

impl Service {
    pub const NEW: Service =
        Service { rates: [0; CLASSES], had: [NOT_WAITING; CLASSES], kept: [0; CLASSES], passed: 0, sum: 0 };

    /// What class `index` is owed.
    pub fn owed(&self, index: usize) -> i64 {
        match self.had[index] {
            NOT_WAITING => self.kept[index],
            had => (self.rates[index] * self.passed) as i64 - had,
        }
    }

    /// Class `index` has packets from now on, and this rate.
    #[inline]
    pub fn join(&mut self, index: usize, rate: u64) {
        self.rates[index] = rate;
        self.had[index] = (rate * self.passed) as i64 - self.kept[index];
        self.sum += rate;
    }

    /// Class `index` has no more packets.
    #[inline]
    pub fn leave(&mut self, index: usize) {
        self.kept[index] = self.owed(index).clamp(-MOST_OWED, MOST_OWED);
        self.had[index] = NOT_WAITING;
        self.sum -= self.rates[index];
        self.rates[index] = 0;
    }

    /// The waiting classes have these rates from now on.
    pub fn set(&mut self, rates: &[u64; CLASSES]) {
        self.sum = 0;
        for (index, rate) in rates.iter().enumerate() {
            self.kept[index] = self.owed(index).clamp(-MOST_OWED, MOST_OWED);
            if self.had[index] != NOT_WAITING {
                self.had[index] = -self.kept[index];
                self.rates[index] = *rate;
                self.sum += rate;
            }
        }
        self.passed = 0;
    }

    /// Nobody is owed anything.
    pub fn clear(&mut self) {
        *self = Service::NEW;
    }

    /// The class of the first `classes` that is most behind its rate; among equals the first.
    #[inline]
    pub fn most_behind(&self, classes: usize) -> usize {
        let (mut best, mut most) = (0, i64::MIN);
        let all = self.rates[..classes].iter().zip(&self.had);
        for (index, (rate, had)) in all.enumerate() {
            let owed = (rate.wrapping_mul(self.passed) as i64).wrapping_sub(*had);
            (best, most) = if owed > most { (index, owed) } else { (best, most) };
        }
        best
    }

    /// Class `index` sends `bytes` on the wire: while it does, the rates of all that wait add to
    /// what they are owed. A class of `held_up`, which must not send yet, is owed nothing. The sum
    /// over all classes stays 0.
    #[inline]
    pub fn sent(&mut self, index: usize, bytes: u64, held_up: u16) {
        let bytes = bytes.min(MOST_BYTES);
        let mut rates = self.sum;
        for class in bits(held_up) {
            rates -= self.rates[class];
            self.had[class] += (bytes * self.rates[class]) as i64;
        }
        self.had[index] += (bytes * rates) as i64;
        self.passed += bytes;
        if self.passed > MOST_PASSED - MOST_BYTES {
            let rates = self.rates;
            self.set(&rates);
        }
    }
}
