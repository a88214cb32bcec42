//! Two rate three colour marker: a committed rate that is green and a higher one that is yellow.
//!
//! Principle: two buckets. RFC 2698: the peak bucket judges every packet (red if it does not hold
//! it), then the committed one (green if it does); a green packet takes from both. RFC 4115: the
//! committed bucket judges first, then the excess bucket; a packet takes from the one that held
//! it, so in-profile traffic never uses up what the excess is meant for.
//! Paper: Heinanen and Guerin, "A Two Rate Three Color Marker", RFC 2698, 1999, section 3;
//! Aboul-Magd and Rabie, "A Differentiated Service Two-Rate, Three-Color Marker with Efficient
//! Handling of in-Profile Traffic", RFC 4115, 2005, section 3.
//! Where we differ, and why: lengths are those of the frames, as everywhere here; exact tokens;
//! a bucket that holds exactly the packet's bytes holds it.
//! Cost: two multiplications per packet; 100 bytes. `weir bench meter-trtcm`.
//! Guarantees: `rfc2698_by_hand`, `rfc4115_by_hand`, `trtcm_decides_as_the_exact_model`,
//! `trtcm_bounds`.
//! Parameters: committed rate (bit/s) and burst (bytes), peak rate and burst (RFC 4115: excess
//! rate and burst), `coloraware`.

use super::TokenBucket;
use crate::packet::Colour;
use crate::units::{Instant, Rate};

/// The meter of RFC 2698, or that of RFC 4115.
#[derive(Clone, Debug)]
pub struct TwoRate {
    committed: TokenBucket,
    /// Peak, or excess.
    second: TokenBucket,
    aware: bool,
    rfc4115: bool,
}

impl TwoRate {
    /// RFC 2698: committed rate and burst, peak rate and burst.
    pub fn rfc2698(committed: (Rate, u64), peak: (Rate, u64), aware: bool) -> Self {
        let [committed, second] = [committed, peak].map(|(rate, burst)| TokenBucket::new(rate, burst));
        TwoRate { committed, second, aware, rfc4115: false }
    }
    /// RFC 4115: committed rate and burst, excess rate and burst.
    pub fn rfc4115(committed: (Rate, u64), excess: (Rate, u64), aware: bool) -> Self {
        TwoRate { rfc4115: true, ..Self::rfc2698(committed, excess, aware) }
    }
    /// The colour of a packet of `len` bytes at `now`.
    pub fn meter(&mut self, now: Instant, len: u32, before: Colour) -> Colour {
        let before = if self.aware { before } else { Colour::Green };
        if self.rfc4115 {
            // [RFC 4115 §3] Tc for green packets, then Te for all but red ones.
            if before == Colour::Green && self.committed.take(now, len) {
                return Colour::Green;
            }
            if before != Colour::Red && self.second.take(now, len) {
                return Colour::Yellow;
            }
            return Colour::Red;
        }
        // [RFC 2698 §3] Tp for all but red packets, then Tc for green ones.
        if before == Colour::Red || !self.second.take(now, len) {
            return Colour::Red;
        }
        if before == Colour::Yellow || !self.committed.take(now, len) {
            return Colour::Yellow;
        }
        Colour::Green
    }
}
