//! Sums whose bound is known where they are kept.

/// A sum that cannot leave its type, because of a bound that stands beside the field: rows of a packet table
/// are fewer than 2^32, each of fewer than 2^32 bytes, and what is taken off a sum was added to it before.
///
/// Debug builds check each, and so do all tests. A release build does not: there a check costs three instructions,
/// because the sum goes through a register. Everything else is checked there too.
pub(crate) trait Bounded: Copy {
    /// `self + more`.
    fn plus(self, more: Self) -> Self;
    /// `self - less`.
    fn less(self, less: Self) -> Self;
    /// `self * factor`.
    fn times(self, factor: Self) -> Self;
}

macro_rules! bounded {
    ($($word:ty),*) => {$(
        impl Bounded for $word {
            #[inline(always)]
            fn plus(self, more: Self) -> Self {
                debug_assert!(self.checked_add(more).is_some(), "{self} + {more} is out of bounds");
                self.wrapping_add(more)
            }
            #[inline(always)]
            fn less(self, less: Self) -> Self {
                debug_assert!(self.checked_sub(less).is_some(), "{self} - {less} is out of bounds");
                self.wrapping_sub(less)
            }
            #[inline(always)]
            fn times(self, factor: Self) -> Self {
                debug_assert!(self.checked_mul(factor).is_some(), "{self} * {factor} is out of bounds");
                self.wrapping_mul(factor)
            }
        }
    )*};
}
bounded!(u32, u64, i64, u128, i128);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_plain_arithmetic() {
        assert_eq!((7u32.plus(5), 7u64.less(7), 5i64.less(7), 7i64.times(-5)), (12, 0, -2, -35));
        assert_eq!((u64::MAX.less(1).plus(1), i64::MIN.plus(i64::MAX)), (u64::MAX, -1));
    }

    #[test]
    #[should_panic(expected = "5 - 7 is out of bounds")]
    fn a_bound_that_does_not_hold_is_noticed() {
        let _ = 5u32.less(7);
    }
}
