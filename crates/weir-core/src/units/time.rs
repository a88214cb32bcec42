//! Instants and durations in nanoseconds, and the finer time that byte counts need.

use super::Bounded;
use core::fmt;
use core::ops::{Add, AddAssign, Sub};

/// A point in time: nanoseconds since an origin that the host chooses (584 years of range).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(u64);

/// A span of time in nanoseconds. Subtraction of instants saturates at zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Duration(u64);

impl Instant {
    /// The origin.
    pub const ZERO: Instant = Instant(0);
    /// Later than every instant: "only another call can help".
    pub const NEVER: Instant = Instant(u64::MAX);

    /// The instant `ns` nanoseconds after the origin.
    pub const fn from_nanos(ns: u64) -> Self {
        Instant(ns)
    }
    /// The instant `us` microseconds after the origin.
    pub const fn from_micros(us: u64) -> Self {
        Instant(us * 1_000)
    }
    /// The instant `ms` milliseconds after the origin.
    pub const fn from_millis(ms: u64) -> Self {
        Instant(ms * 1_000_000)
    }
    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }
    /// Time since `earlier`; zero if `earlier` is later.
    pub const fn since(self, earlier: Instant) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }
}

impl Duration {
    /// No time.
    pub const ZERO: Duration = Duration(0);
    /// The longest span.
    pub const MAX: Duration = Duration(u64::MAX);

    /// A span of `ns` nanoseconds.
    pub const fn from_nanos(ns: u64) -> Self {
        Duration(ns)
    }
    /// A span of `us` microseconds.
    pub const fn from_micros(us: u64) -> Self {
        Duration(us.saturating_mul(1_000))
    }
    /// A span of `ms` milliseconds.
    pub const fn from_millis(ms: u64) -> Self {
        Duration(ms.saturating_mul(1_000_000))
    }
    /// A span of `s` seconds.
    pub const fn from_secs(s: u64) -> Self {
        Duration(s.saturating_mul(1_000_000_000))
    }
    /// Nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }
    /// True for no time at all.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
    /// `self - other`, zero if `other` is longer.
    pub const fn saturating_sub(self, other: Duration) -> Duration {
        Duration(self.0.saturating_sub(other.0))
    }
    /// `self * n`, saturating.
    pub const fn saturating_mul(self, n: u64) -> Duration {
        Duration(self.0.saturating_mul(n))
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;
    /// Saturates at `NEVER`, so that a deadline past the end of time never comes.
    fn add(self, d: Duration) -> Instant {
        Instant(self.0.saturating_add(d.0))
    }
}
impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, d: Duration) {
        *self = *self + d;
    }
}
impl Sub<Duration> for Instant {
    type Output = Instant;
    /// Saturates at the origin.
    fn sub(self, d: Duration) -> Instant {
        Instant(self.0.saturating_sub(d.0))
    }
}
impl Add for Duration {
    type Output = Duration;
    fn add(self, d: Duration) -> Duration {
        Duration(self.0.saturating_add(d.0))
    }
}
impl AddAssign for Duration {
    fn add_assign(&mut self, d: Duration) {
        *self = *self + d;
    }
}

fn print(ns: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (whole, part, unit, digits) = match ns {
        0..=999 => return write!(f, "{ns}ns"),
        1_000..=999_999 => (ns / 1_000, ns % 1_000, "us", 3),
        1_000_000..=999_999_999 => (ns / 1_000_000, ns % 1_000_000, "ms", 6),
        _ => (ns / 1_000_000_000, ns % 1_000_000_000, "s", 9),
    };
    if part == 0 {
        return write!(f, "{whole}{unit}");
    }
    let (mut part, mut digits) = (part, digits);
    while part % 10 == 0 {
        part /= 10;
        digits -= 1;
    }
    write!(f, "{whole}.{part:0digits$}{unit}")
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print(self.0, f)
    }
}
impl fmt::Debug for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print(self.0, f)
    }
}
impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Instant::NEVER { f.write_str("never") } else { print(self.0, f) }
    }
}
impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Time with 32 fractional bits of a nanosecond: `ns << 32 | fraction`.
///
/// A 64-byte packet lasts 1.28 ns at 400 Gbit/s; adding such times as whole nanoseconds would
/// be wrong by a fifth. Whatever is made from bytes is summed as `Fine` and only what leaves
/// as `At` is rounded, up. Serves as instant and as span.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Fine(u128);

impl Fine {
    /// The origin, or no time.
    pub const ZERO: Fine = Fine(0);

    /// From `ns` whole nanoseconds.
    pub const fn from_nanos(ns: u64) -> Self {
        Fine((ns as u128) << 32)
    }
    /// From units of 2^-32 ns.
    pub const fn from_raw(raw: u128) -> Self {
        Fine(raw)
    }
    /// In units of 2^-32 ns.
    pub const fn raw(self) -> u128 {
        self.0
    }
    /// The first whole nanosecond at or after this time; `NEVER` past the end of time.
    #[inline(always)]
    pub const fn ceil(self) -> Instant {
        match self.0.checked_add(u32::MAX as u128) {
            Some(up) => Fine(up).floor(),
            None => Instant::NEVER,
        }
    }
    /// The last whole nanosecond at or before this time.
    #[inline(always)]
    pub const fn floor(self) -> Instant {
        if self.0 >> 96 > 0 { Instant::NEVER } else { Instant((self.0 >> 32) as u64) }
    }
    /// `self - other`, zero if `other` is greater.
    pub const fn saturating_sub(self, other: Fine) -> Fine {
        Fine(self.0.saturating_sub(other.0))
    }
}

impl From<Instant> for Fine {
    fn from(t: Instant) -> Fine {
        Fine::from_nanos(t.0)
    }
}
impl From<Duration> for Fine {
    fn from(d: Duration) -> Fine {
        Fine::from_nanos(d.0)
    }
}
impl Add for Fine {
    type Output = Fine;
    /// Cannot overflow: 2^96 covers every sum of a u64 instant and spans of this crate.
    fn add(self, o: Fine) -> Fine {
        Fine(self.0.plus(o.0))
    }
}
impl AddAssign for Fine {
    fn add_assign(&mut self, o: Fine) {
        *self = *self + o;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn prints_the_shortest_exact_form() {
        assert_eq!(Duration::from_nanos(1_500_000).to_string(), "1.5ms");
        assert_eq!(Duration::from_nanos(8_000).to_string(), "8us");
        assert_eq!(Duration::from_nanos(1_000_000_001).to_string(), "1.000000001s");
        assert_eq!(Instant::NEVER.to_string(), "never");
    }

    #[test]
    fn fine_time_rounds_up_only_on_request() {
        let t = Fine::from_nanos(3) + Fine::from_raw(1);
        assert_eq!((t.floor(), t.ceil()), (Instant(3), Instant(4)));
        assert_eq!(Fine::from_nanos(u64::MAX).ceil(), Instant::NEVER);
        assert_eq!(Fine::from_raw(1 << 96).floor(), Instant::NEVER);
        let last = Fine::from_nanos(u64::MAX - 1);
        assert_eq!((last.ceil(), (last + Fine::from_raw(1)).ceil()), (Instant(u64::MAX - 1), Instant::NEVER));
        for bits in 0..128 {
            for raw in [1u128 << bits, (1 << bits) + 1, (1 << bits) - 1, u128::MAX >> 1 >> bits] {
                let ns = u64::try_from(raw.div_ceil(1 << 32)).unwrap_or(u64::MAX);
                assert_eq!(Fine::from_raw(raw).ceil(), Instant(ns), "{raw}");
            }
        }
    }

    #[test]
    fn instants_saturate() {
        assert_eq!(Instant::NEVER + Duration(1), Instant::NEVER);
        assert_eq!(Instant(1).since(Instant(2)), Duration::ZERO);
    }
}
