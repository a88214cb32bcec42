//! Rational numbers that are exact or panic.

use std::cmp::Ordering;
use std::fmt;
use std::ops::{Add, Div, Mul, Sub};

/// A quotient of two whole numbers, reduced, the denominator positive.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ratio {
    numerator: i128,
    denominator: i128,
}

const TOO_LARGE: &str = "the model's numbers fit in 128 bits: use smaller ones";

fn divisor(a: i128, b: i128) -> i128 {
    let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a as i128
}

impl Ratio {
    /// Nothing.
    pub const ZERO: Ratio = Ratio { numerator: 0, denominator: 1 };

    /// `numerator / denominator`.
    ///
    /// # Panics
    /// If `denominator` is 0.
    pub fn new(numerator: i128, denominator: i128) -> Self {
        assert!(denominator != 0, "a quotient by zero");
        let common = divisor(numerator, denominator).max(1) * denominator.signum();
        Ratio { numerator: numerator / common, denominator: denominator / common }
    }
    /// A whole number.
    pub fn whole(n: impl Into<i128>) -> Self {
        Ratio { numerator: n.into(), denominator: 1 }
    }
    /// The least whole number that is not below it.
    pub fn ceil(self) -> i128 {
        -(-self.numerator).div_euclid(self.denominator)
    }
    /// The greatest whole number that is not above it.
    pub fn floor(self) -> i128 {
        self.numerator.div_euclid(self.denominator)
    }
    /// The nearest floating-point number: for messages and tolerances.
    pub fn to_f64(self) -> f64 {
        self.numerator as f64 / self.denominator as f64
    }
}

impl Add for Ratio {
    type Output = Ratio;
    fn add(self, o: Ratio) -> Ratio {
        let common = divisor(self.denominator, o.denominator);
        let (mine, theirs) = (self.denominator / common, o.denominator / common);
        let left = self.numerator.checked_mul(theirs).expect(TOO_LARGE);
        let right = o.numerator.checked_mul(mine).expect(TOO_LARGE);
        let denominator = self.denominator.checked_mul(theirs).expect(TOO_LARGE);
        Ratio::new(left.checked_add(right).expect(TOO_LARGE), denominator)
    }
}
impl Sub for Ratio {
    type Output = Ratio;
    fn sub(self, o: Ratio) -> Ratio {
        self + Ratio { numerator: -o.numerator, denominator: o.denominator }
    }
}
impl Mul for Ratio {
    type Output = Ratio;
    fn mul(self, o: Ratio) -> Ratio {
        // Reduced crosswise first, so that what fits is never refused.
        let (a, b) =
            (divisor(self.numerator, o.denominator).max(1), divisor(o.numerator, self.denominator).max(1));
        let numerator = (self.numerator / a).checked_mul(o.numerator / b).expect(TOO_LARGE);
        let denominator = (self.denominator / b).checked_mul(o.denominator / a).expect(TOO_LARGE);
        Ratio::new(numerator, denominator)
    }
}
impl Div for Ratio {
    type Output = Ratio;
    #[allow(clippy::suspicious_arithmetic_impl, reason = "a quotient is the product with the inverse")]
    fn div(self, o: Ratio) -> Ratio {
        self * Ratio::new(o.denominator, o.numerator)
    }
}
impl PartialOrd for Ratio {
    fn partial_cmp(&self, o: &Ratio) -> Option<Ordering> {
        Some(self.cmp(o))
    }
}
impl Ord for Ratio {
    fn cmp(&self, o: &Ratio) -> Ordering {
        (*self - *o).numerator.cmp(&0)
    }
}
impl fmt::Debug for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} ({:.6})", self.numerator, self.denominator, self.to_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_exact() {
        let (third, half) = (Ratio::new(1, 3), Ratio::new(-2, -4));
        assert_eq!(third + half, Ratio::new(5, 6));
        assert_eq!(third - half, Ratio::new(-1, 6));
        assert_eq!(third * half / third, half);
        assert_eq!(((third - half).floor(), (third - half).ceil()), (-1, 0));
        assert_eq!((Ratio::whole(7).floor(), Ratio::whole(7).ceil()), (7, 7));
        assert!(third < half && third > Ratio::ZERO);
    }

    #[test]
    #[should_panic(expected = "fit in 128 bits")]
    fn panics_rather_than_round() {
        let large = Ratio::new(i128::MAX, 3);
        let _ = large + Ratio::new(1, 5);
    }
}
