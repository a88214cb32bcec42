//! Service curves in motion [HFSC97 section 5].
//!
//! A curve says how many bytes a class is owed by when. Its two pieces have slopes m1 (until d)
//! and m2. Where it starts moves each time that the class becomes active, so that what it did
//! not ask for is not owed later. All questions are asked in the direction bytes -> time, which
//! is one multiplication by a reciprocal; times are `Fine` in raw units (2^-32 ns), bytes whole.

use crate::queue::Curve;
use crate::units::{Fine, PerByte, Rate};

/// A curve's slopes, prepared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Slopes {
    pub(super) curve: Curve,
    cost1: PerByte,
    cost2: PerByte,
    /// Length of the first piece, raw time.
    dx: u128,
    /// Bytes of the first piece.
    dy: u64,
}

impl Slopes {
    pub(super) fn of(curve: Curve) -> Self {
        let linear = curve.d.is_zero() || curve.m1 == curve.m2;
        let d_ns = if linear { 0 } else { curve.d.as_nanos() };
        let m1 = if linear { curve.m2 } else { curve.m1 };
        Slopes {
            curve,
            cost1: PerByte::of(m1),
            cost2: PerByte::of(curve.m2),
            dx: Fine::from_nanos(d_ns).raw(),
            dy: m1.bytes_in(d_ns),
        }
    }
    /// The second slope is at least the first: a guarantee that grows with time.
    pub(super) fn is_convex(&self) -> bool {
        self.dx == 0 || self.curve.m1 <= self.curve.m2
    }
    /// A curve of rate 0.
    pub(super) fn owes_nothing(&self) -> bool {
        self.curve.m2.is_zero() && (self.dx == 0 || self.curve.m1.is_zero())
    }
    /// Time that `bytes` take at the long-term rate.
    pub(super) fn time_for(&self, bytes: u64) -> u128 {
        self.cost2.time_for(bytes).raw()
    }
}

/// A curve that starts somewhere: through (x, y), dx long with slope m1, then with m2. The slopes
/// are handed to each question, since a class has them once and two curves may run by them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Runtime {
    x: u128,
    y: u64,
    dy: u64,
    dx: u128,
}

impl Runtime {
    pub(super) fn new(slopes: &Slopes, x: u128, y: u64) -> Self {
        Runtime { x, y, dx: slopes.dx, dy: slopes.dy }
    }
    /// When the curve reaches `y` bytes: the inverse, at a flat piece its right end.
    pub(super) fn time_at(&self, slopes: &Slopes, y: u64) -> u128 {
        if y < self.y {
            return self.x;
        }
        let bytes = y - self.y;
        let (start, cost, bytes) = if bytes > self.dy || (self.dy == 0 && self.dx > 0) {
            (self.x.saturating_add(self.dx), slopes.cost2, bytes - self.dy)
        } else {
            (self.x, slopes.cost1, bytes)
        };
        start.saturating_add(cost.time_for(bytes).raw())
    }
    /// The same for the eligible curve: a convex one has only its second slope there, for it must
    /// begin early to be done in time [HFSC97 equation 7].
    pub(super) fn eligible_at(&self, slopes: &Slopes, y: u64) -> u128 {
        if !slopes.is_convex() {
            return self.time_at(slopes, y);
        }
        self.x.saturating_add(slopes.cost2.time_for(y.saturating_sub(self.y)).raw())
    }
    /// Bytes owed at time `x`, rounded down. Divides; asked only where two curves cross.
    fn bytes_at(&self, slopes: &Slopes, x: u128) -> u64 {
        let after = x.saturating_sub(self.x);
        let (base, rate, after) = if after <= self.dx && self.dx > 0 {
            (self.y, slopes.curve.m1, after)
        } else {
            (self.y + self.dy, slopes.curve.m2, after - self.dx.min(after))
        };
        let bytes = (after >> 32).saturating_mul(u128::from(rate.as_bps())) / 8_000_000_000;
        base.saturating_add(bytes.min(u128::from(u64::MAX)) as u64)
    }
    /// The lesser of this curve and `slopes` started at (x, y), from x on [HFSC97 section 5.2].
    ///
    /// "This curve at x is below y" is asked as "it reaches y after x".
    pub(super) fn min_with(&mut self, slopes: &Slopes, x: u128, y: u64) {
        if slopes.is_convex() {
            if self.time_at(slopes, y) <= x {
                *self = Runtime::new(slopes, x, y);
            }
            return;
        }
        if self.time_at(slopes, y) >= x {
            return; // Below already, and steeper never.
        }
        if self.time_at(slopes, y + slopes.dy) <= x + slopes.dx {
            *self = Runtime::new(slopes, x, y);
            return;
        }
        // The new first piece is below until it meets the old curve's second: what is ahead at
        // x shrinks at the rate m1 - m2.
        let ahead = self.bytes_at(slopes, x).saturating_sub(y);
        let gap = Rate::from_bps(slopes.curve.m1.as_bps() - slopes.curve.m2.as_bps());
        let mut dx = gap.time_for(ahead).raw();
        // If the old first piece goes on after x, they meet that much later.
        dx += (self.x + self.dx).saturating_sub(x);
        let dy = slopes.curve.m1.bytes_in((dx >> 32).min(u128::from(u64::MAX)) as u64);
        *self = Runtime { x, y, dx, dy };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Duration;

    fn ms(n: u64) -> u128 {
        Fine::from_nanos(n * 1_000_000).raw()
    }
    fn near(a: u128, b: u128) -> bool {
        a.abs_diff(b) < ms(1) / 1_000
    }
    fn curve(m1: u64, d_ms: u64, m2: u64) -> Slopes {
        Slopes::of(Curve { m1: Rate::from_bps(m1), d: Duration::from_millis(d_ms), m2: Rate::from_bps(m2) })
    }

    #[test]
    fn inverse_of_each_shape() {
        // 8 Mbit/s is a byte per microsecond.
        let slopes = curve(16_000_000, 10, 8_000_000);
        let concave = Runtime::new(&slopes, ms(5), 100);
        assert!(near(concave.time_at(&slopes, 100), ms(5)));
        assert!(near(concave.time_at(&slopes, 100 + 20_000), ms(15)));
        assert!(near(concave.time_at(&slopes, 100 + 21_000), ms(16)));
        let slopes = curve(0, 10, 8_000_000);
        let convex = Runtime::new(&slopes, ms(5), 100);
        assert!(near(convex.time_at(&slopes, 100), ms(15)), "the right end of the flat piece");
        assert!(near(convex.time_at(&slopes, 1_100), ms(16)));
        assert!(near(convex.eligible_at(&slopes, 1_100), ms(6)));
    }

    /// The minimum of two curves, point by point against both.
    #[test]
    fn the_lesser_curve_is_below_both_and_touches_one() {
        let slopes = curve(16_000_000, 10, 8_000_000);
        for (x_ms, y) in [(2u64, 500u64), (12, 15_000), (30, 20_000), (30, 60_000), (50, 40_000)] {
            let old = Runtime::new(&slopes, 0, 0);
            let new = Runtime::new(&slopes, ms(x_ms), y);
            let mut least = old;
            least.min_with(&slopes, ms(x_ms), y);
            for step in 0..200u64 {
                let x = ms(x_ms) + ms(step) / 4;
                let expected = old.bytes_at(&slopes, x).min(new.bytes_at(&slopes, x));
                let found = least.bytes_at(&slopes, x);
                assert!(
                    found.abs_diff(expected) <= 20,
                    "start {x_ms} {y}, at {step}: {found} not {expected}"
                );
            }
        }
    }
}
