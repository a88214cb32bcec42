//! Service curves in motion [HFSC97 section 5].
//!
//! A curve says how many bytes a class is owed by when. Its two pieces have slopes m1 (until d)
//! and m2. Where it starts moves each time that the class becomes active, so that what it did
//! not ask for is not owed later. All questions are asked in the direction bytes -> time, which
//! is one multiplication by a reciprocal, rounded up at the end: nothing adds up.
//!
//! Times are words in units of 2^(S - 32) ns: whole nanoseconds of the clock (`CLOCK`), or 2^-8 ns
//! of virtual time (`VIRTUAL`). They saturate; bytes are whole.

use crate::queue::Curve;
use crate::units::{PerByte, Rate};

/// S of times of the clock.
pub(super) const CLOCK: u32 = 32;
/// S of virtual times.
pub(super) const VIRTUAL: u32 = 24;
/// First pieces longer than this count as this: 104 days of virtual time.
const LONGEST: u64 = 1 << 61;

/// A curve's slopes, prepared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Slopes<const S: u32> {
    cost1: PerByte,
    cost2: PerByte,
    /// Length of the first piece.
    dx: u64,
    /// Bytes of the first piece.
    dy: u64,
    shape: Shape,
}

/// What a curve looks like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shape {
    /// One slope.
    Straight,
    /// The second slope is the greater one: a guarantee that grows with time.
    Convex,
    /// The first slope is the greater one.
    Concave,
    /// Nothing is ever served.
    Flat,
}

/// Time that `bytes` take, rounded up.
#[inline(always)]
fn span<const S: u32>(cost: PerByte, bytes: u64) -> u64 {
    let product = cost.time_for(bytes).raw();
    let (high, low) = ((product >> 64) as u64, product as u64);
    if high >> S > 0 {
        return u64::MAX;
    }
    // What is below 2^S rounds up: a carry, and no sum of 128 bits.
    let rest = u64::from(low << (64 - S) > 0);
    (high << (64 - S) | low >> S).saturating_add(rest)
}

/// `ns` in units.
fn units<const S: u32>(ns: u64) -> u64 {
    ns.saturating_mul(1 << (32 - S))
}

impl<const S: u32> Slopes<S> {
    pub(super) fn of(curve: Curve) -> Self {
        let linear = curve.d.is_zero() || curve.m1 == curve.m2;
        let dx_ns = if linear { 0 } else { curve.d.as_nanos().min(LONGEST >> (32 - S)) };
        let m1 = if linear { curve.m2 } else { curve.m1 };
        Slopes {
            cost1: PerByte::of(m1),
            cost2: PerByte::of(curve.m2),
            dx: units::<S>(dx_ns),
            dy: m1.bytes_in(dx_ns),
            shape: match () {
                () if curve.serves_nothing() => Shape::Flat,
                () if linear => Shape::Straight,
                () if m1 <= curve.m2 => Shape::Convex,
                () => Shape::Concave,
            },
        }
    }
    /// Whether its first slope is the greater one.
    #[inline(always)]
    pub(super) fn is_concave(&self) -> bool {
        self.shape == Shape::Concave
    }
    /// Time that `bytes` take at the long-term rate.
    pub(super) fn time_for(&self, bytes: u64) -> u64 {
        span::<S>(self.cost2, bytes)
    }
}

/// A curve that starts somewhere: through (x, y) with slope m1, from (x2, y2) on with m2. The slopes
/// are handed to each question, since a class has them once and two curves may run by them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Runtime<const S: u32> {
    x: u64,
    x2: u64,
    y: u64,
    y2: u64,
}

impl<const S: u32> Runtime<S> {
    /// Of a class without this curve.
    pub(super) const NOTHING: Self = Runtime { x: 0, x2: 0, y: 0, y2: 0 };
    #[inline]
    pub(super) fn new(slopes: &Slopes<S>, x: u64, y: u64) -> Self {
        Runtime { x, y, x2: x.saturating_add(slopes.dx), y2: y.saturating_add(slopes.dy) }
    }
    /// When the curve reaches `y` bytes: the inverse, at a flat piece its right end.
    #[inline]
    pub(super) fn time_at(&self, slopes: &Slopes<S>, y: u64) -> u64 {
        if y >= self.y2 {
            return self.x2.saturating_add(span::<S>(slopes.cost2, y - self.y2));
        }
        self.x.saturating_add(span::<S>(slopes.cost1, y.saturating_sub(self.y)))
    }
    /// The same for the eligible curve: a convex one has only its second slope there, because it must
    /// begin early to be done in time [HFSC97 equation 7].
    #[inline]
    pub(super) fn eligible_at(&self, slopes: &Slopes<S>, y: u64) -> u64 {
        match slopes.shape {
            Shape::Concave => self.time_at(slopes, y),
            Shape::Flat => u64::MAX,
            _ => self.x.saturating_add(span::<S>(slopes.cost2, y.saturating_sub(self.y))),
        }
    }
    /// Moves the whole curve on by `dx`.
    pub(super) fn delay(&mut self, dx: u64) {
        self.x = self.x.saturating_add(dx);
        self.x2 = self.x2.saturating_add(dx);
    }
    /// Moves it back by `dx`. What lies before (`x`, `y`), a point of the curve that has been moved
    /// back too, is forgotten.
    pub(super) fn advance(&mut self, dx: u64, x: u64, y: u64) {
        *self = Runtime { x, y, x2: self.x2.saturating_sub(dx).max(x), y2: self.y2.max(y) };
    }
    /// Bytes owed at time `x`, rounded down. Divides; asked only where two curves cross.
    fn bytes_at(&self, of: &Curve, x: u64) -> u64 {
        let (base, rate, after) = if x < self.x2 {
            (self.y, of.m1, x.saturating_sub(self.x))
        } else {
            (self.y2, of.m2, x - self.x2)
        };
        base.saturating_add(rate.bytes_in(after / units::<S>(1)))
    }
    /// The lesser of this curve and `slopes` started at (x, y), from x on [HFSC97 section 5.2].
    ///
    /// "This curve at x is below y" is asked as "it reaches y after x". `of` is the curve that `slopes`
    /// were made of: its rates are asked for only where two concave curves cross.
    #[inline(always)]
    pub(super) fn min_with(&mut self, slopes: &Slopes<S>, of: &Curve, x: u64, y: u64) {
        let reached_at = self.time_at(slopes, y);
        if !slopes.is_concave() {
            if reached_at <= x {
                *self = Runtime::new(slopes, x, y);
            }
        } else if reached_at < x {
            // Otherwise it is below already, and steeper never.
            self.min_with_concave(slopes, of, x, y);
        }
    }
    /// `min_with`, then `eligible_at(y)`. Of a straight curve one time tells both.
    #[inline(always)]
    pub(super) fn restart(&mut self, slopes: &Slopes<S>, of: &Curve, x: u64, y: u64) -> u64 {
        if slopes.shape != Shape::Straight {
            return self.restart_bent(slopes, of, x, y);
        }
        let reached_at = self.time_at(slopes, y);
        if reached_at > x {
            return reached_at;
        }
        *self = Runtime::new(slopes, x, y);
        x
    }
    #[inline(never)]
    fn restart_bent(&mut self, slopes: &Slopes<S>, of: &Curve, x: u64, y: u64) -> u64 {
        self.min_with(slopes, of, x, y);
        self.eligible_at(slopes, y)
    }
    #[inline(never)]
    fn min_with_concave(&mut self, slopes: &Slopes<S>, of: &Curve, x: u64, y: u64) {
        let new = Runtime::new(slopes, x, y);
        if self.time_at(slopes, new.y2) <= new.x2 {
            *self = new;
            return;
        }
        // The new first piece is below until it meets the old curve's second: what is ahead at
        // x shrinks at the rate m1 - m2.
        let ahead = self.bytes_at(of, x).saturating_sub(y);
        let gap = Rate::from_bps(of.m1.as_bps() - of.m2.as_bps());
        // If the old first piece goes on after x, they meet that much later.
        let dx = span::<S>(PerByte::of(gap), ahead).saturating_add(self.x2.saturating_sub(x));
        let dy = of.m1.bytes_in(dx / units::<S>(1));
        *self = Runtime { x, y, x2: x.saturating_add(dx), y2: y.saturating_add(dy) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;
    use crate::units::Duration;

    fn ms(n: u64) -> u64 {
        units::<VIRTUAL>(n * 1_000_000)
    }
    fn near(a: u64, b: u64) -> bool {
        a.abs_diff(b) < ms(1) / 1_000
    }
    fn rates(m1: u64, d_ms: u64, m2: u64) -> Curve {
        Curve { m1: Rate::from_bps(m1), d: Duration::from_millis(d_ms), m2: Rate::from_bps(m2) }
    }
    fn curve(m1: u64, d_ms: u64, m2: u64) -> Slopes<VIRTUAL> {
        Slopes::of(rates(m1, d_ms, m2))
    }

    /// [`span`] in halves is the quotient by 2^S, rounded up and saturated.
    #[test]
    fn spans_are_rounded_up_and_saturate() {
        fn plain<const S: u32>(cost: PerByte, bytes: u64) -> u64 {
            let time = cost.time_for(bytes).raw().div_ceil(1 << S);
            u64::try_from(time).unwrap_or(u64::MAX)
        }
        let mut random = Random::new(weir_seed::seed());
        let mut word = || random.below(u64::MAX) >> random.below(64);
        for _ in 0..10_000 {
            let (rate, bytes) = (Rate::from_bps(word()), word());
            let cost = PerByte::of(rate);
            assert_eq!(span::<CLOCK>(cost, bytes), plain::<CLOCK>(cost, bytes), "{rate} {bytes}");
            assert_eq!(span::<VIRTUAL>(cost, bytes), plain::<VIRTUAL>(cost, bytes), "{rate} {bytes}");
        }
        for (bps, bytes) in [(1, u64::MAX), (8, 1 << 32), (8, 1 << 31), (1 << 63, 1), (3, 0)] {
            let cost = PerByte::of(Rate::from_bps(bps));
            assert_eq!(span::<CLOCK>(cost, bytes), plain::<CLOCK>(cost, bytes), "{bps} {bytes}");
            assert_eq!(span::<VIRTUAL>(cost, bytes), plain::<VIRTUAL>(cost, bytes), "{bps} {bytes}");
        }
    }

    /// What a straight curve is spared: `restart` is `min_with` and `eligible_at`, and a curve that has reached y by x
    /// begins there, unless it is concave.
    #[test]
    fn short_ways_come_to_the_same() {
        let mut random = Random::new(weir_seed::seed());
        let mut word = |bits: u64| random.below(u64::MAX) >> (64 - bits) >> random.below(bits);
        for _ in 0..10_000 {
            let of = Curve {
                m1: Rate::from_bps(word(40)),
                d: Duration::from_nanos(word(34) * (word(1) + word(1))),
                m2: Rate::from_bps(word(40)),
            };
            let (slopes, x, y) = (Slopes::<CLOCK>::of(of), word(50), word(30));
            let start = Runtime::new(&slopes, x, y);
            let (x, y) = (x + word(40), y + word(20));
            let (mut short, mut plain) = (start, start);
            let eligible = short.restart(&slopes, &of, x, y);
            plain.min_with(&slopes, &of, x, y);
            let words = |c: &Runtime<CLOCK>| (c.x, c.x2, c.y, c.y2);
            assert_eq!(words(&short), words(&plain), "{of:?} {x} {y}");
            let expected = if of.serves_nothing() { u64::MAX } else { plain.eligible_at(&slopes, y) };
            assert_eq!(eligible, expected, "{of:?} {x} {y}");
            if !slopes.is_concave() && start.time_at(&slopes, y) <= x {
                assert_eq!(words(&plain), words(&Runtime::new(&slopes, x, y)), "{of:?} {x} {y}");
            }
        }
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

    /// Times are rounded up, and exact ones stay as they are.
    #[test]
    fn times_are_rounded_up() {
        let time = |bps, bytes| {
            let m2 = Rate::from_bps(bps);
            Slopes::<CLOCK>::of(Curve { m1: m2, d: Duration::ZERO, m2 }).time_for(bytes)
        };
        assert_eq!((time(8_000_000, 1_000), time(8_000_000, 0)), (1_000_000, 0));
        // A byte of 3 Mbit/s lasts 2,666.67 ns.
        assert_eq!((time(3_000_000, 1), time(3_000_000, 1_000)), (2_667, 2_666_667));
    }

    /// A curve that is moved on by a time reaches everything so much later, in either piece.
    #[test]
    fn a_delayed_curve_reaches_everything_later() {
        for slopes in [curve(16_000_000, 10, 8_000_000), curve(0, 10, 8_000_000), curve(0, 0, 3_000_000)] {
            let now = Runtime::new(&slopes, ms(5), 100);
            let mut later = now;
            later.delay(ms(7));
            for y in (0..60_000).step_by(500) {
                assert_eq!(later.time_at(&slopes, y), now.time_at(&slopes, y) + ms(7), "{y} bytes");
                assert_eq!(later.eligible_at(&slopes, y), now.eligible_at(&slopes, y) + ms(7), "{y} bytes");
            }
        }
    }

    /// The minimum of two curves, point by point against both.
    #[test]
    fn the_lesser_curve_is_below_both_and_touches_one() {
        let of = rates(16_000_000, 10, 8_000_000);
        let slopes = Slopes::<VIRTUAL>::of(of);
        for (x_ms, y) in [(2u64, 500u64), (12, 15_000), (30, 20_000), (30, 60_000), (50, 40_000)] {
            let old = Runtime::new(&slopes, 0, 0);
            let new = Runtime::new(&slopes, ms(x_ms), y);
            let mut least = old;
            least.min_with(&slopes, &of, ms(x_ms), y);
            for step in 0..200u64 {
                let x = ms(x_ms) + ms(step) / 4;
                let expected = old.bytes_at(&of, x).min(new.bytes_at(&of, x));
                let found = least.bytes_at(&of, x);
                assert!(
                    found.abs_diff(expected) <= 20,
                    "start {x_ms} {y}, at {step}: {found} not {expected}"
                );
            }
        }
    }
}
