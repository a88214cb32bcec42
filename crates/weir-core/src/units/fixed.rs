//! Fixed-point numbers with 32 fractional bits, and the exact product-then-quotient.

use core::fmt;

/// `a * b / c` without overflow of the product, rounded down, saturating at `u64::MAX`.
/// `c` of 0 counts as the smallest divisor and saturates unless the product is 0.
pub fn mul_div(a: u64, b: u64, c: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    let quotient = match c {
        0 if product == 0 => 0,
        0 => u128::from(u64::MAX),
        _ => product / u128::from(c),
    };
    quotient.min(u128::from(u64::MAX)) as u64
}

/// A signed real number with 32 fractional bits: factors such as `rdc 1.5`, where -1 means none.
/// Range -2^31 to 2^31, resolution 2.3e-10.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Fixed(i64);

impl Fixed {
    /// One.
    pub const ONE: Fixed = Fixed(1 << 32);

    /// From units of 2^-32.
    pub const fn from_raw(raw: i64) -> Self {
        Fixed(raw)
    }
    /// In units of 2^-32.
    pub const fn raw(self) -> i64 {
        self.0
    }
    /// From a whole number, saturating.
    pub const fn from_int(n: i64) -> Self {
        Fixed(n.saturating_mul(1 << 32))
    }
    /// The nearest fixed-point number to `numerator / denominator`; `None` out of range.
    pub fn ratio(numerator: i64, denominator: u64) -> Option<Self> {
        if denominator == 0 {
            return None;
        }
        let n = i128::from(numerator) << 33;
        let twice = n.div_euclid(i128::from(denominator));
        i64::try_from((twice + 1) >> 1).ok().map(Fixed)
    }
}

impl fmt::Display for Fixed {
    /// With at most nine decimals, trailing zeros left out: reads back as the same number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let magnitude = u128::from(self.0.unsigned_abs());
        let billionths = (magnitude * 10_000_000_000 + (1 << 31)) >> 32;
        let (whole, part) = (billionths / 10_000_000_000, billionths % 10_000_000_000);
        let sign = if self.0 < 0 { "-" } else { "" };
        if part == 0 {
            return write!(f, "{sign}{whole}");
        }
        let (mut part, mut digits) = (part, 10);
        while part % 10 == 0 {
            part /= 10;
            digits -= 1;
        }
        write!(f, "{sign}{whole}.{part:0digits$}")
    }
}

/// A number from 0 to 1 inclusive, in units of 2^-32: shares, probabilities, loss ratios.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Fraction(u64);

impl Fraction {
    /// Nothing.
    pub const ZERO: Fraction = Fraction(0);
    /// The whole.
    pub const ONE: Fraction = Fraction(1 << 32);

    /// `part / whole`, rounded down; at most one; zero of zero is zero.
    pub fn ratio(part: u64, whole: u64) -> Self {
        if part >= whole && part > 0 {
            return Fraction::ONE;
        }
        Fraction(mul_div(part, 1 << 32, whole))
    }
    /// In units of 2^-32.
    pub const fn raw(self) -> u64 {
        self.0
    }
    /// This fraction of `n`, rounded to the nearest: 38 % of 20 Mbit/s are 7.6 Mbit/s, although
    /// 0.38 has no exact form here.
    pub const fn of(self, n: u64) -> u64 {
        ((self.0 as u128 * n as u128 + (1 << 31)) >> 32) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn mul_div_survives_wide_products() {
        assert_eq!(mul_div(u64::MAX, u64::MAX, u64::MAX), u64::MAX);
        assert_eq!(mul_div(400_000_000_000, 1_000_000_000, 8_000_000_000), 50_000_000_000);
        assert_eq!(mul_div(0, 5, 0), 0);
        assert_eq!(mul_div(1, 5, 0), u64::MAX);
    }

    #[test]
    fn fixed_reads_back() {
        assert_eq!(Fixed::ratio(3, 2).map(|f| f.to_string()).as_deref(), Some("1.5"));
        assert_eq!(Fixed::ratio(-1, 1).map(|f| f.to_string()).as_deref(), Some("-1"));
        assert_eq!(Fixed::ratio(1, 100).map(|f| f.to_string()).as_deref(), Some("0.01"));
        assert_eq!(Fixed::ratio(i64::MAX, 1), None);
    }

    #[test]
    fn fractions_are_bounded() {
        assert_eq!(Fraction::ratio(5, 4), Fraction::ONE);
        assert_eq!(Fraction::ratio(1, 0), Fraction::ONE);
        assert_eq!(Fraction::ratio(0, 0), Fraction::ZERO);
        assert_eq!(Fraction::ratio(1, 2).of(10), 5);
    }
}
