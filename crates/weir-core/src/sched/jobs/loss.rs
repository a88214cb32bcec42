//! Loss: how much of a class was dropped, and which class loses a packet next. [QOSBOX section 2.4]
//!
//! Loss is bytes dropped by bytes arrived, since the accounting began; with `counters packets`
//! read packets for bytes. Bounds are compared by
//! products; a quotient is taken only when a victim must be chosen.

use super::rates::bits;
use super::weights::{CLASSES, Weight};
use crate::units::Fraction;

/// What has become of a class's bytes since the accounting began.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Account {
    /// Bytes that came, those that were dropped included.
    pub arrived: u64,
    /// Bytes that were dropped.
    pub dropped: u64,
}

impl Account {
    /// The loss if `more` bytes were dropped, in units of 2^-32. Both numbers keep their top 32
    /// bits, so the error is below 2^-30 of the loss.
    pub fn loss(self, more: u64) -> u64 {
        let (part, whole) = (self.dropped.saturating_add(more), self.arrived);
        if part >= whole {
            return if part == 0 { 0 } else { 1 << 32 };
        }
        let shift = (32 - whole.leading_zeros() as i32).max(0);
        // part < whole, so the quotient is below 2^32; with a whole below 2^32 nothing is cut off.
        match shift {
            0 => (part << 32) / whole,
            _ => ((u128::from(part) << 32 >> shift) as u64) / (whole >> shift),
        }
    }
    /// True if dropping `more` bytes would put the loss above `bound`.
    pub fn would_break(self, bound: Option<Fraction>, more: u64) -> bool {
        bound.is_some_and(|bound| {
            let dropped = u128::from(self.dropped) + u128::from(more);
            dropped << 32 > u128::from(bound.raw()) * u128::from(self.arrived)
        })
    }
}

/// A class that could lose a packet.
#[derive(Clone, Copy)]
pub(super) struct Candidate {
    pub account: Account,
    /// What the packet that it would lose counts.
    pub victim: u64,
    pub bound: Option<Fraction>,
    /// Weight of its loss in its chain.
    pub weight: Weight,
    /// True if it is in a chain of proportional loss.
    pub chained: bool,
}

/// How bad it is to drop from a class; the class with the least loses a packet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Harm {
    /// No bound breaks; the class's weighted loss so far. The smallest is the most behind its
    /// proportional share.
    Share(u128),
    /// The same of a class that has a bound and nothing to be proportional to: it loses only
    /// when no other can.
    Bounded(u64),
    /// Its bound breaks; by how much.
    Breaks(u64),
}

impl Candidate {
    fn harm(&self) -> Harm {
        if self.account.would_break(self.bound, self.victim) {
            let bound = self.bound.unwrap_or_default().raw();
            return Harm::Breaks(self.account.loss(self.victim).saturating_sub(bound));
        }
        if self.bound.is_some() && !self.chained {
            return Harm::Bounded(self.account.loss(0));
        }
        let weight = if self.chained { self.weight } else { Weight::Shift(0) };
        Harm::Share(weight.of(self.account.loss(0)))
    }
}

/// The class among `mask` whose loss harms least; of equals the one of highest index.
pub(super) fn least_harm(
    mask: u16,
    mut candidate: impl FnMut(usize) -> Option<Candidate>,
) -> Option<(Harm, usize)> {
    debug_assert!(u16::BITS as usize == CLASSES, "a bit for each class");
    let mut best: Option<(Harm, usize)> = None;
    for class in bits(mask) {
        let Some(found) = candidate(class) else { continue };
        let harm = found.harm();
        if best.is_none_or(|(least, _)| harm <= least) {
            best = Some((harm, class));
        }
    }
    best
}
