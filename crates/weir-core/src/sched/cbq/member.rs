//! A class as link sharing sees it, and the choice of one.

use super::wrr::Standing;
use crate::units::Instant;

/// "No class."
pub(super) const NONE: u32 = u32::MAX;
/// Levels that the bits of a word can count.
pub(super) const LEVELS: usize = 64;

/// A class as link sharing sees it, with what the scheduler keeps `of` it: who looks one up has both.
pub(super) struct Member<T> {
    pub of: T,
    /// The parent, if packets of the class count against it.
    pub above: u32,
    /// The parent, if the class may borrow from it.
    pub lender: u32,
    /// Classes with packets from which the lenders lead to here, itself included.
    pub demand: u32,
    pub place: u32,
    /// Since when there is demand.
    pub since: Instant,
    pub level: u8,
    pub priority: u8,
    /// Its packets count against its own share: the root is the link, unless the rule needs its limit.
    pub counts: bool,
    /// Underlimit, as far as known; kept only while there is demand.
    pub under: bool,
    /// Its own queue has packets that could go.
    pub queued: bool,
    pub standing: Standing,
    pub wake: Instant,
}

impl<T> Member<T> {
    /// Since when there is demand for the class's share; `NEVER` without any.
    #[inline(always)]
    pub fn since(&self) -> Instant {
        if self.demand > 0 { self.since } else { Instant::NEVER }
    }
    /// Packets of the class count against it, and against no ancestor.
    #[inline(always)]
    pub fn is_charged_alone(&self) -> bool {
        self.counts && self.above == NONE
    }
    /// From when on the class is underlimit.
    #[inline(always)]
    pub fn wake(&self) -> Instant {
        self.wake
    }
    /// True if the class's own queue has packets that could go.
    #[inline(always)]
    pub fn is_queued(&self) -> bool {
        self.queued
    }
}

/// Who sends next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Pick {
    pub class: u32,
    /// The ancestor that lends, or `NONE`.
    pub lender: u32,
}
