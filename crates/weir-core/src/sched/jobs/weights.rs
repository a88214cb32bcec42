//! Chains of proportional classes, and how much each member's delay or loss weighs.
//!
//! `rdc 2` on class i says that class i + 1 shall wait twice as long. A chain is a run of classes
//! so related. With g = the product of the factors of all earlier members, the delays are as
//! required if D / g is the same for all members: a member's weight is 1 / g, scaled so that the
//! largest of its chain is 1.

use crate::units::Fixed;

/// Most classes of one discipline: ALTQ's priorities 0 to 15.
pub(super) const CLASSES: usize = 16;
/// The largest weight, in units of 2^-62.
pub(super) const HEAVIEST: u64 = 1 << 62;

/// Where a class stands in a chain.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Membership {
    /// The members of its chain, a bit each; 0 for a class that is in none.
    pub members: u16,
    /// 1 / g, in units of 2^-62; `HEAVIEST` for a class that is in no chain.
    pub weight: u64,
}

/// A weight as it is applied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Weight {
    /// By a multiplication, in units of 2^-62.
    Times(u64),
    /// By a shift: 2^-n, for factors that are powers of two. [QOSBOX section 3.3]
    Shift(u32),
}

impl Weight {
    /// `x` times the weight, in units of 2^-62. Of a power of two both forms are the same number.
    #[inline]
    pub fn of(self, x: u64) -> u128 {
        match self {
            Weight::Times(weight) => u128::from(x) * u128::from(weight),
            Weight::Shift(n) => u128::from(x) << (62 - n),
        }
    }
}

impl Membership {
    /// Its weight; `by_shifts` where all factors are powers of two, and so the weight is one.
    #[inline]
    pub fn weight(self, by_shifts: bool) -> Weight {
        match by_shifts {
            true => Weight::Shift(62 - self.weight.trailing_zeros()),
            false => Weight::Times(self.weight),
        }
    }
}

/// True for 2, 0.5 and the like.
pub(super) fn is_power_of_two(factor: Fixed) -> bool {
    factor.raw() > 0 && factor.raw().count_ones() == 1
}

/// A positive number as mantissa (top bit set) and power of two: products of 15 factors of 32.32
/// bits reach from 2^-480 to 2^465.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Product {
    power: i32,
    mantissa: u64,
}

impl Product {
    const ONE: Product = Product { power: 0, mantissa: 1 << 63 };

    fn times(self, factor: Fixed) -> Product {
        let product = u128::from(self.mantissa) * u128::from(factor.raw().unsigned_abs().max(1));
        let width = 128 - product.leading_zeros() as i32;
        // The factor has 32 fractional bits and the mantissa counts from 2^63.
        let mantissa = if width > 64 { product >> (width - 64) } else { product << (64 - width) };
        Product { power: self.power + width - 96, mantissa: mantissa as u64 }
    }
    /// `self / other` in units of 2^-62, at least 1; `self` is not greater.
    fn over(self, other: Product) -> u64 {
        let ratio = (u128::from(self.mantissa) << 62) / u128::from(other.mantissa);
        let shift = (other.power - self.power).clamp(0, 127);
        ((ratio >> shift) as u64).clamp(1, HEAVIEST)
    }
}

/// The chains of classes with these factors, in the order of their priorities. The factor of a
/// chain's last class is not there, or has no class to speak of.
pub(super) fn chains(factors: &[Option<Fixed>]) -> [Membership; CLASSES] {
    let mut links = [Membership { members: 0, weight: HEAVIEST }; CLASSES];
    let mut first = 0;
    while first < factors.len().min(CLASSES) {
        let mut products = [Product::ONE; CLASSES];
        let (mut last, mut members, mut least) = (first, 1u16 << first, Product::ONE);
        while let Some(Some(factor)) = factors.get(last)
            && last + 1 < factors.len().min(CLASSES)
        {
            products[last + 1] = products[last].times(*factor);
            last += 1;
            members |= 1 << last;
            least = least.min(products[last]);
        }
        if last > first {
            for member in first..=last {
                links[member] = Membership { members, weight: least.over(products[member]) };
            }
        }
        first = last + 1;
    }
    links
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn of(numbers: &[f64]) -> Vec<Option<Fixed>> {
        let factor = |n: &f64| (*n > 0.0).then(|| Fixed::from_raw((n * 4_294_967_296.0) as i64));
        numbers.iter().map(factor).collect()
    }

    /// From 2^-32 to 2^30, and no other number.
    #[test]
    fn each_power_of_two_is_known() {
        for shift in 0..63 {
            assert!(is_power_of_two(Fixed::from_raw(1 << shift)), "2^{}", shift - 32);
            assert!(!is_power_of_two(Fixed::from_raw(-1 << shift)), "-2^{}", shift - 32);
        }
        assert!([0, 3, 7, 12, i64::MAX].iter().all(|&raw| !is_power_of_two(Fixed::from_raw(raw))));
    }

    #[test]
    fn j07_weights_are_products_of_the_factors() {
        for factors in [[2.0, 2.0, -1.0], [0.5, 1.5, 4.0], [1.0, 0.01, 7.0], [16.0, 0.0625, 1000.0]] {
            let links = chains(&of(&factors));
            let g: Vec<f64> = (0..3).map(|i| factors[..i].iter().product()).collect();
            let least = g.iter().copied().fold(f64::INFINITY, f64::min);
            for (link, g) in links.iter().zip(&g) {
                let exact = least / g;
                assert!((link.weight as f64 / HEAVIEST as f64 / exact - 1.0).abs() < 1e-7, "{factors:?}");
                assert_eq!(link.members, 0b111);
            }
        }
    }

    #[test]
    fn a_class_without_a_factor_ends_its_chain() {
        let links = chains(&of(&[-1.0, 2.0, -1.0, -1.0, 4.0, 3.0]));
        let members: Vec<u16> = links.iter().map(|l| l.members).collect();
        assert_eq!(members[..7], [0, 0b110, 0b110, 0, 0b11_0000, 0b11_0000, 0]);
        assert_eq!((links[1].weight, links[2].weight), (HEAVIEST, HEAVIEST / 2));
    }

    #[test]
    fn extreme_factors_neither_overflow_nor_vanish() {
        let links = chains(&[Some(Fixed::from_raw(i64::MAX)); 16]);
        assert_eq!((links[0].weight, links[15].weight), (HEAVIEST, 1));
        let links = chains(&[Some(Fixed::from_raw(1)); 16]);
        assert_eq!((links[0].weight, links[15].weight), (1, HEAVIEST));
    }
}
