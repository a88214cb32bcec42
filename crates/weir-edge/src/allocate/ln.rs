//! The natural logarithm of a ratio, in integers.
//!
//! Principle: a/b = m·2^e with m in [√½, √2), and ln m = 2·artanh z with z = (m - 1)/(m + 1). There
//! |z| is at most 0.1716, and six odd terms of the series are off by less than 10^-10 of their sum.
//! m - 1 is a difference of integers and exact, so that the result is exact to its last bits near 1,
//! where a table or a rounded m would lose them.
//!
//! Paper: multiservice IV.4.3 (T49) joins a power series near 1 to a table of base-10 logarithms.
//! Where we differ, and why: one formula for all arguments has no seam.
//! Guarantees: `t49_the_logarithm_is_exact_and_monotone`.

/// Fraction bits of a [`ln_ratio`]: the greatest result, 64·ln 2 = 44.4, is below 2^63.
pub const LN_BITS: u32 = 56;
/// ln 2 with 62 fraction bits.
const LN_2: i128 = 3_196_577_161_300_663_915;
/// √2 with 62 fraction bits.
const SQRT_2: u128 = 6_521_908_912_666_391_106;

/// ln(a/b) with [`LN_BITS`] fraction bits; none if one of them is 0.
pub fn ln_ratio(a: u64, b: u64) -> Option<i64> {
    if a == 0 || b == 0 {
        return None;
    }
    // Both with their highest bit at 2^63: then their ratio is above 1/2 and below 2.
    let (shift_a, shift_b) = (a.leading_zeros(), b.leading_zeros());
    let (mut a, mut b) = (u128::from(a) << shift_a, u128::from(b) << shift_b);
    let mut exponent = i128::from(shift_b) - i128::from(shift_a);
    // a < 2^65 and √2·2^62 < 2^63: the products fit 128 bits.
    if a << 62 >= b * SQRT_2 {
        b <<= 1;
        exponent += 1;
    } else if a * SQRT_2 < b << 62 {
        a <<= 1;
        exponent -= 1;
    }
    // |a - b| < 0.42·2^64 by the choice of m, hence << 62 stays below 2^125.
    let z = ((a as i128 - b as i128) << 62) / (a + b) as i128;
    // z has 62 fraction bits and is below 0.18: products stay below 2^122.
    let square = (z * z) >> 62;
    let mut series = 0;
    for odd in [11, 9, 7, 5, 3, 1] {
        series = ((series * square) >> 62) + (1 << 62) / odd;
    }
    let ln = exponent * LN_2 + ((2 * z * series) >> 62);
    // At most 44.4·2^56 < 2^62.
    Some(((ln + (1 << 5)) >> (62 - LN_BITS)) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::Random;

    fn real(x: i64) -> f64 {
        x as f64 / (1u64 << LN_BITS) as f64
    }

    /// T49: relative error at most 1e-6 (asked for 1e-4) for arguments from 2^-10 to 2^10, no seam,
    /// and never falling.
    #[test]
    fn t49_the_logarithm_is_exact_and_monotone() {
        assert_eq!(ln_ratio(7, 7), Some(0));
        assert_eq!((ln_ratio(0, 1), ln_ratio(1, 0)), (None, None));
        assert!((real(ln_ratio(u64::MAX, 1).expect("not 0")) - 64.0 * core::f64::consts::LN_2).abs() < 1e-12);
        let mut random = Random::new(weir_seed::seed());
        for _ in 0..weir_seed::effort(200_000) {
            let b = 1 + random.below(1 << 50);
            let a = match random.below(3) {
                0 => b + 1 + random.below(1 + b / 1000),
                _ => mul(b, 1 + random.below(1 << 20), 1 << 10),
            };
            let (Some(ours), true) = (ln_ratio(a, b), a != b && a > 0) else { continue };
            // The platform's own, through ln_1p where a/b is near 1.
            let theirs = ((a as f64 - b as f64) / b as f64).ln_1p();
            assert!((real(ours) / theirs - 1.0).abs() < 1e-6, "ln {a}/{b}: {} {theirs}", real(ours));
            // One more makes it no less, seams included.
            assert!(ln_ratio(a + 1, b) >= Some(ours) && ln_ratio(a, b + 1) <= Some(ours), "{a} {b}");
            assert!((real(ours + ln_ratio(b, a).expect("not 0"))).abs() < 1e-12, "{a} {b}");
        }
        // Every step across the seam at √2 of a coarse argument.
        let mut last = i64::MIN;
        for a in 1..200_000u64 {
            let ln = ln_ratio(a, 100_000).expect("not 0");
            assert!(ln > last, "{a}");
            last = ln;
        }
    }

    fn mul(a: u64, b: u64, c: u64) -> u64 {
        weir_core::units::mul_div(a, b, c)
    }
}
