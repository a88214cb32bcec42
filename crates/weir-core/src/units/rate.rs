//! Bit rates, and the time that bytes take at a rate.

use super::{Fine, mul_div};
use core::fmt;

/// A rate in bits per second, from 0 to 400 Gbit/s and beyond.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Rate(u64);

impl Rate {
    /// No rate: nothing ever passes.
    pub const ZERO: Rate = Rate(0);

    /// `bps` bits per second.
    pub const fn from_bps(bps: u64) -> Self {
        Rate(bps)
    }
    /// `mbps` million bits per second.
    pub const fn from_mbps(mbps: u64) -> Self {
        Rate(mbps * 1_000_000)
    }
    /// Bits per second.
    pub const fn as_bps(self) -> u64 {
        self.0
    }
    /// True if nothing ever passes.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
    /// Time that `bytes` take, rounded up to 2^-32 ns, by a division: for configuration and
    /// for changing rates. A constant rate on a packet's path wants `PerByte`.
    pub fn time_for(self, bytes: u64) -> Fine {
        if self.0 == 0 {
            return Fine::from_nanos(u64::MAX);
        }
        let bits = u128::from(bytes) * 8_000_000_000;
        // bytes <= 2^64 and 8e9 < 2^33: the product is below 2^97, so shifting by 32 would
        // overflow only past 2^96; split the division to stay exact.
        let (q, r) = (bits / u128::from(self.0), bits % u128::from(self.0));
        let part = (r << 32).div_ceil(u128::from(self.0));
        Fine::from_raw((q.min(u128::from(u64::MAX)) << 32) + part)
    }
    /// Whole bytes that pass in `ns` nanoseconds, rounded down.
    pub fn bytes_in(self, ns: u64) -> u64 {
        mul_div(self.0, ns, 8_000_000_000)
    }
}

impl fmt::Display for Rate {
    /// In the units that altq.conf takes: `1T`, `10M`, `64K`, `9600`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            r if r >= 1_000_000_000_000 && r % 1_000_000_000_000 == 0 => {
                write!(f, "{}T", r / 1_000_000_000_000)
            }
            r if r >= 1_000_000_000 && r % 1_000_000_000 == 0 => write!(f, "{}G", r / 1_000_000_000),
            r if r >= 1_000_000 && r % 1_000_000 == 0 => write!(f, "{}M", r / 1_000_000),
            r if r >= 1_000 && r % 1_000 == 0 => write!(f, "{}K", r / 1_000),
            r => write!(f, "{r}"),
        }
    }
}
impl fmt::Debug for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// The reciprocal of a rate: time per byte in units of 2^-32 ns, rounded up.
///
/// One multiplication a packet instead of a division. Rounding up makes a link at most
/// 1.2e-8 slower than its rate (at 400 Gbit/s: 0.02 ns a byte is 8.6e7 units), never faster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PerByte(u64);

impl PerByte {
    /// The reciprocal of `rate`. Rates below 2 bit/s saturate (a byte every 4 s); a rate of 0
    /// has no reciprocal and counts as the slowest: ask `Rate::is_zero` where it matters.
    pub fn of(rate: Rate) -> Self {
        if rate.is_zero() {
            return PerByte(u64::MAX);
        }
        let raw = (8_000_000_000u128 << 32).div_ceil(u128::from(rate.as_bps()));
        PerByte(raw.min(u128::from(u64::MAX)) as u64)
    }
    /// Time that `bytes` take.
    pub fn time_for(self, bytes: u64) -> Fine {
        // 64 x 64 bits fit in 128.
        Fine::from_raw(u128::from(self.0) * u128::from(bytes))
    }
    /// Units of 2^-32 ns a byte.
    pub const fn raw(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A35: rates from 9.6 kbit/s to 400 Gbit/s, packets from 20 to 65535 bytes: error below 0.1 %.
    #[test]
    fn a35_time_is_exact_over_the_whole_range() {
        for bps in [9_600u64, 64_000, 1_500_000, 155_000_000, 4_294_967_296, 400_000_000_000] {
            for len in [20u64, 64, 1500, 9180, 65_535] {
                let exact = u128::from(len) * 8_000_000_000 * (1 << 32) / u128::from(bps);
                let slow = Rate::from_bps(bps).time_for(len).raw();
                let fast = PerByte::of(Rate::from_bps(bps)).time_for(len).raw();
                assert!(slow >= exact && slow <= exact + 1, "{bps} {len}");
                assert!(fast >= exact && (fast - exact) * 10_000_000 <= exact, "{bps} {len}");
            }
        }
    }

    #[test]
    fn prints_as_the_configuration_reads() {
        use std::string::ToString;
        assert_eq!(Rate::from_bps(10_000_000).to_string(), "10M");
        assert_eq!(Rate::from_bps(1_500_000).to_string(), "1500K");
        assert_eq!(Rate::from_bps(9_600).to_string(), "9600");
    }
}
