//! Single rate three colour marker: one rate, a burst that is green and a further one that is yellow.
//!
//! Principle: the committed bucket fills at the rate; what flows over fills the excess bucket. A
//! packet is green if the committed bucket holds it, else yellow if the excess bucket does, else
//! red. So bursts beyond the committed one are forgiven only after a pause.
//! Paper: Heinanen and Guerin, "A Single Rate Three Color Marker", RFC 2697, 1999, section 3.
//! Where we differ, and why: lengths are those of the frames, as everywhere here; exact tokens.
//! Cost: two multiplications per packet; 80 bytes.
//! Guarantees: `rfc2697_by_hand`, `srtcm_decides_as_the_exact_model`, `srtcm_bounds`.
//! Parameters: committed rate (bit/s), committed burst (bytes), excess burst (bytes), `coloraware`.

use super::token_bucket::{TokenBucket, cost_of};
use crate::packet::Colour;
use crate::units::{Instant, Rate};

/// The meter of RFC 2697.
#[derive(Clone, Debug)]
pub struct SingleRate {
    committed: TokenBucket,
    excess: u128,
    excess_depth: u128,
    aware: bool,
}

impl SingleRate {
    /// A meter with both buckets full. `aware`: the colour that a packet comes with counts.
    pub fn new(rate: Rate, burst_bytes: u64, excess_bytes: u64, aware: bool) -> Self {
        let excess_depth = cost_of(excess_bytes);
        SingleRate {
            committed: TokenBucket::new(rate, burst_bytes),
            excess: excess_depth,
            excess_depth,
            aware,
        }
    }
    /// The colour of a packet of `len` bytes at `now`.
    pub fn meter(&mut self, now: Instant, len: u32, before: Colour) -> Colour {
        let before = if self.aware { before } else { Colour::Green };
        // [RFC 2697 §3] Tc first, then Te.
        self.excess = self.excess_depth.min(self.excess + self.committed.overflow(now));
        if before == Colour::Green && self.committed.take(now, len) {
            return Colour::Green;
        }
        let cost = cost_of(len.into());
        if before != Colour::Red && cost <= self.excess {
            self.excess -= cost;
            return Colour::Yellow;
        }
        Colour::Red
    }
}
