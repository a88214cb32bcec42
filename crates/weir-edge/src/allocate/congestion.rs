//! Congestion control: when the queue of a class would take longer than T_s to drain, ask at once for a
//! rate that drains it in time, with no law.
//!
//! Principle: the class is congested while its queue Q exceeds `S_q = T_s·B_d/8`. The rate
//! `8·(1 + M_s)·Q/T_s` makes the present queue drain in T_s/(1 + M_s).
//!
//! Guarantee: a packet waits at most `T_s + 2·T_bb` and one packet time at the new rate, if answers
//! come within T_bb and grant all, neither `to` nor the link binds, and nothing lowers the rate during
//! congestion. It may wait T_bb for a request under way and T_bb for its own, whose rate empties all
//! that is ahead of it in T_s/(1 + M_s). Held by `t44_the_delay_is_bounded`.
//!
//! Paper: multiservice IV.3.4 (T44), V.3 (T54, `packets`).
//! Where we differ, and why: S_q is at least one packet, because a packet that arrives is no
//! congestion. T_g "two times S_q" means two windows S. The variant of chapter V has neither: it is
//! there for its figures, and `weir check` warns of it.

use weir_core::units::{Duration, Fraction};

/// What is queued of a class.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Backlog {
    /// Bytes, as the class is charged for them.
    pub bytes: u64,
    /// Packets.
    pub packets: u64,
}

/// The parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Congestion {
    /// Longest time that the queue may take to drain, T_s.
    pub drain: Duration,
    /// Margin of the rate asked for, M_s, as a share of it.
    pub margin: Fraction,
    /// Count packets of the longest length instead of bytes, without margin, and the guard from the
    /// start of congestion: chapter V's variant.
    pub packets: bool,
}

impl Congestion {
    /// Bits in the queue as this variant counts them; `longest` bytes has the class's longest packet.
    fn bits(&self, queued: Backlog, longest: u64) -> u128 {
        8 * match self.packets {
            true => u128::from(queued.packets) * u128::from(longest),
            false => u128::from(queued.bytes),
        }
    }

    /// Whether a class of `allocated` bit/s with this queue is congested.
    pub fn is_congested(&self, allocated: u64, queued: Backlog, longest: u64) -> bool {
        // Q > T_s·B_d/8, without a division: bits·10^9 > B_d·T_s in ns.
        let above = self.bits(queued, longest) * 1_000_000_000
            > u128::from(allocated) * u128::from(self.drain.as_nanos());
        above && (self.packets || queued.bytes > longest)
    }

    /// The rate that drains the queue in time, bit/s, rounded up.
    pub fn wish(&self, queued: Backlog, longest: u64) -> u64 {
        let margin = if self.packets { 0 } else { u128::from(self.margin.raw()) };
        // At most 2^62 bits, a factor of at most 2^33 and 10^9 < 2^30: below 2^125.
        let bits = self.bits(queued, longest).min(1 << 62) * ((1u128 << 32) + margin);
        let rate = (bits * 1_000_000_000).div_ceil(u128::from(self.drain.as_nanos().max(1)) << 32);
        rate.min(u128::from(u64::MAX)) as u64
    }
}
