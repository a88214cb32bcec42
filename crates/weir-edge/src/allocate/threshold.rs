//! The threshold law: ask for more when the class uses more than a share of what it has, and give back
//! when it uses less than another.
//!
//! Principle: `u = B_d·l_max`, `l = B_d·l_min`. Estimate above u: ask for `B_d·i`. Below l: go down to
//! `B_d·d`. Between them, and at either: nothing.
//!
//! Paper: multiservice IV.3.1 and IV.3.2 (T39 to T41).
//! Where we differ, and why: from nothing a factor cannot lead, so the first estimate above 0 asks for
//! estimate/l_max (T67). `d` is 1/`i` where none is given: the published 1.2 and 0.8 make 0.96, and the
//! allocation then drifts.
//! Guarantees: `t39_nothing_inside`, `t40_constant_loads_come_to_rest` (and its reverse: with the
//! condition violated and i·d = 1 the predicted share of loads oscillates for ever).

use weir_core::units::{Fixed, Fraction};

/// The law's parameters. Default: i 1.2, d 1/1.2, thresholds 0.9 and 0.7.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Threshold {
    /// Factor of a rise, i, above 1.
    pub up: Fixed,
    /// Factor of a fall, d, between 0 and 1; none: 1/i.
    pub down: Option<Fixed>,
    /// Upper threshold as a share of the allocation, l_max.
    pub high: Fraction,
    /// Lower threshold, l_min.
    pub low: Fraction,
}

impl Threshold {
    /// `factor·n`, to the nearest.
    fn times(n: u64, factor: u64, unit: u128) -> u64 {
        let product = u128::from(n) * u128::from(factor);
        ((product + unit / 2) / unit).min(u128::from(u64::MAX)) as u64
    }

    /// d as it is applied, in units of 2^-32, to the nearest.
    pub fn down_raw(&self) -> u64 {
        match self.down {
            Some(down) => down.raw().unsigned_abs(),
            None => {
                let up = u128::from(self.up.raw().unsigned_abs().max(1));
                (((1u128 << 64) + up / 2) / up) as u64
            }
        }
    }

    /// What the class should have that has `allocated` bit/s and uses `estimate`; none: as it is.
    pub fn wish(&self, allocated: u64, estimate: u64) -> Option<u64> {
        const ONE: u128 = 1 << 32;
        let used = u128::from(estimate) << 32;
        let share = |of: Fraction| u128::from(allocated) * u128::from(of.raw());
        if allocated == 0 {
            // [multiservice IV.3.1: "if call admission is not provided no initial bandwidth"]
            return (estimate > 0).then(|| {
                let wish = used.div_ceil(u128::from(self.high.raw().max(1)));
                wish.min(u128::from(u64::MAX)) as u64
            });
        }
        if used > share(self.high) {
            // A factor so near 1 that it rounds away still rises.
            Some(Self::times(allocated, self.up.raw().unsigned_abs(), ONE).max(allocated.saturating_add(1)))
        } else if used < share(self.low) {
            match self.down {
                // Divided by i, and not times a rounded 1/i: a rise is taken back exactly.
                None => {
                    Some(Self::times(allocated, 1 << 32, u128::from(self.up.raw().unsigned_abs().max(1))))
                }
                Some(down) => Some(Self::times(allocated, down.raw().unsigned_abs(), ONE)),
            }
        } else {
            None
        }
    }
}

impl Default for Threshold {
    fn default() -> Self {
        let share = |percent| Fraction::ratio(percent, 100);
        // 6/5 to the nearest 2^-32.
        let up = Fixed::from_raw(5_153_960_755);
        Threshold { up, down: None, high: share(90), low: share(70) }
    }
}
