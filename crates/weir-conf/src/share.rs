//! Shares of a link.

use weir_core::units::{Fraction, Rate};

/// A part of a rate, to the nearest bit: a percentage is kept as a multiple of 2^-32, which is
/// not quite what was written.
pub(crate) fn part_of(part: Fraction, rate: Rate) -> Rate {
    // A product of two numbers up to 2^64 and 2^32 stays below 2^97.
    let bps = (u128::from(part.raw()) * u128::from(rate.as_bps()) + (1 << 31)) >> 32;
    Rate::from_bps(u64::try_from(bps).unwrap_or(u64::MAX))
}
