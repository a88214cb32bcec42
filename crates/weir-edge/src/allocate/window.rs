//! The bandwidth that a class uses, by time windows.
//!
//! Principle: time is cut into windows of length S from the start on. At the end of each, the mean of
//! its bits is compared with the estimate: a higher mean becomes the estimate at once. After every m
//! windows, the *hold* T = m·S, the estimate becomes the highest mean of these m. So it follows a rise
//! at once and a fall only after it has lasted.
//!
//! ```text
//! mean      |  3 |  5 |  2 |  1 ||  1 |  1 |  2 |  1 ||  1 |     m = 4
//! estimate     3    5    5     5     5    5    5    2    2
//! ```
//!
//! Paper: multiservice IV.3.3 (T43), IV.3.6 (T47: a timer drives it, so that an idle class decays).
//! Guarantees: `t43_golden_vectors`, `equals_the_plain_model`; a step of the load is seen fully within
//! 2 S, its end in (T, 2 T].

use weir_core::units::{Duration, Instant};

/// How the bandwidth is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Windows {
    /// Length of a window, S.
    pub span: Duration,
    /// Windows that a high mean is held for, m = T/S.
    pub hold: u32,
}

impl Windows {
    /// 0.8 s and ten of them. [multiservice IV.3.5]
    pub const DEFAULT: Windows = Windows { span: Duration::from_millis(800), hold: 10 };
}

/// The meter.
#[derive(Clone, Debug)]
pub struct Window {
    span_ns: u64,
    hold: u32,
    /// When the present window ends, nominally.
    end: Instant,
    /// Windows of the present hold that are over.
    over: u32,
    /// Bits of the present window.
    bits: u64,
    /// Highest mean of the present hold.
    highest_bps: u64,
    mean_bps: u64,
    estimate_bps: u64,
}

impl Window {
    /// A meter whose first window begins at `start`. A span of 0 counts as 1 ns, a hold of 0 as 1.
    pub fn new(windows: Windows, start: Instant) -> Self {
        let span_ns = windows.span.as_nanos().max(1);
        Window {
            span_ns,
            hold: windows.hold.max(1),
            end: start + Duration::from_nanos(span_ns),
            over: 0,
            bits: 0,
            highest_bps: 0,
            mean_bps: 0,
            estimate_bps: 0,
        }
    }
    /// What came in this window so far is as good as not sent.
    pub(crate) fn discard(&mut self) {
        self.bits = 0;
    }
    /// So many bytes that were counted in this window are as good as not sent.
    pub(crate) fn uncount(&mut self, bytes: u64) {
        self.bits = self.bits.saturating_sub(bytes.saturating_mul(8));
    }
    /// How many windows ago that was: 0 is the present one.
    pub(crate) fn ago(&self, at: Instant) -> u64 {
        self.end.since(at).as_nanos().saturating_sub(1) / self.span_ns
    }
    /// The mean of so many bytes in a window, bit/s.
    pub(crate) fn mean_of(&self, bytes: u64) -> u64 {
        let mean =
            (u128::from(bytes) * 8_000_000_000 + u128::from(self.span_ns / 2)) / u128::from(self.span_ns);
        mean.min(u128::from(u64::MAX)) as u64
    }
    /// The mean of so many bytes that came in this window and the last one, since `at` if that is later, bit/s.
    pub(crate) fn rate_of(&self, bytes: u64, at: Instant, now: Instant) -> u64 {
        let start = self.end.as_nanos().saturating_sub(self.span_ns.saturating_mul(2));
        let both = now.as_nanos().saturating_sub(start);
        let ns = both.min(now.since(at).as_nanos()).max(self.span_ns / 16).max(1);
        (u128::from(bytes) * 8_000_000_000 / u128::from(ns)).min(u128::from(u64::MAX)) as u64
    }
    /// When the present window ends.
    pub fn end(&self) -> Instant {
        self.end
    }
    /// The estimate, bit/s.
    pub fn estimate_bps(&self) -> u64 {
        self.estimate_bps
    }
    /// Another estimate, bit/s: it holds until a mean is higher, or the hold ends.
    pub fn set_estimate(&mut self, bps: u64) {
        self.estimate_bps = bps;
    }
    /// The mean of the last window, bit/s.
    pub fn mean_bps(&self) -> u64 {
        self.mean_bps
    }
    /// Counts a packet in the present window: first close those that are over by [`Window::close`].
    pub fn count(&mut self, bytes: u64) {
        self.bits = self.bits.saturating_add(bytes.saturating_mul(8));
    }
    /// Ends the present window if it is over at `now`, and says when it ended: its nominal end, however
    /// late the host is. A host that was away for long calls until the answer is none.
    pub fn close(&mut self, now: Instant) -> Option<Instant> {
        if now < self.end || self.end == Instant::NEVER {
            return None;
        }
        let ended = self.end;
        let mean =
            (u128::from(self.bits) * 1_000_000_000 + u128::from(self.span_ns / 2)) / u128::from(self.span_ns);
        self.mean_bps = mean.min(u128::from(u64::MAX)) as u64;
        self.bits = 0;
        self.highest_bps = self.highest_bps.max(self.mean_bps);
        self.estimate_bps = self.estimate_bps.max(self.mean_bps);
        self.over += 1;
        if self.over == self.hold {
            self.estimate_bps = self.highest_bps;
            self.highest_bps = 0;
            self.over = 0;
        }
        // Nothing came since: after two holds of silence all windows are alike, and one call ends them.
        let silent = 2 * u64::from(self.hold);
        let late = now.since(ended).as_nanos() / self.span_ns;
        let skip = if self.estimate_bps == 0 && late > silent { late - silent } else { 0 };
        self.over = ((u64::from(self.over) + skip) % u64::from(self.hold)) as u32;
        self.end = ended + Duration::from_nanos(self.span_ns.saturating_mul(1 + skip));
        Some(ended)
    }
}
