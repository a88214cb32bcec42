//! Congestion control: how large the window is, behind one small trait.

use std::fmt::Debug;
use weir_core::units::{Duration, Instant};

/// What an acknowledgement of new data tells the congestion control.
#[derive(Clone, Copy, Debug)]
pub struct Acked {
    /// When it came.
    pub now: Instant,
    /// Octets that it newly acknowledged.
    pub octets: u64,
    /// Smoothed round-trip time, once measured.
    pub rtt: Option<Duration>,
}

/// The window of one sender. The sender decides *when* to call; the algorithm decides *how much*.
pub trait CongestionControl: Debug + Send {
    /// Octets that may be under way.
    fn window(&self) -> u64;
    /// True while the window doubles each round trip.
    fn in_slow_start(&self) -> bool;
    /// New data was acknowledged while the window was in use.
    fn on_ack(&mut self, acked: Acked);
    /// A loss or a mark, at most once per window; `flight` octets were outstanding.
    fn on_congestion(&mut self, now: Instant, flight: u64);
    /// The retransmission timer ran out; `again` if for data that had already timed out.
    fn on_timeout(&mut self, now: Instant, flight: u64, again: bool);
    /// Recovery is over with little under way: no window above `octets`, lest it burst.
    fn clamp(&mut self, octets: u64);
}

/// Reno (RFC 5681) with byte counting (RFC 3465, L = 2), so that delayed acknowledgements do
/// not slow its growth, as in today's kernels.
#[derive(Clone, Debug)]
pub struct Reno {
    mss: u64,
    window: u64,
    threshold: u64,
    /// Octets acknowledged since the window last grew by a segment.
    counted: u64,
    slow_start: bool,
    /// In the slow start that follows a time-out.
    restarting: bool,
}

impl Reno {
    /// A window of `initial` octets; without `slow_start` it grows by one segment a round trip
    /// from the first, also after a time-out.
    pub fn new(mss: u64, initial: u64, slow_start: bool) -> Self {
        Reno { mss, window: initial, threshold: u64::MAX, counted: 0, slow_start, restarting: false }
    }
}

impl CongestionControl for Reno {
    fn window(&self) -> u64 {
        self.window
    }
    fn in_slow_start(&self) -> bool {
        self.slow_start && self.window < self.threshold
    }
    fn on_ack(&mut self, acked: Acked) {
        if self.in_slow_start() {
            // RFC 3465, 2.3: at most two segments per acknowledgement, and after a time-out one:
            // there a repair acknowledges what came long before it.
            self.window += acked.octets.min(if self.restarting { self.mss } else { 2 * self.mss });
            return;
        }
        self.restarting = false;
        // RFC 3465, 2.1: one segment for each window that was acknowledged.
        self.counted += acked.octets;
        if self.counted >= self.window {
            self.counted -= self.window;
            self.window += self.mss;
        }
    }
    fn on_congestion(&mut self, _now: Instant, flight: u64) {
        // RFC 5681, eq. 4.
        self.threshold = (flight / 2).max(2 * self.mss);
        self.window = self.threshold;
        self.counted = 0;
        self.restarting = false;
    }
    fn on_timeout(&mut self, _now: Instant, flight: u64, again: bool) {
        if !again {
            self.threshold = (flight / 2).max(2 * self.mss);
        }
        self.window = self.mss;
        self.counted = 0;
        self.restarting = true;
    }
    fn clamp(&mut self, octets: u64) {
        self.window = self.window.min(octets.max(self.mss));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ack(octets: u64) -> Acked {
        Acked { now: Instant::ZERO, octets, rtt: None }
    }

    #[test]
    fn reno_doubles_then_adds_one_segment_a_window() {
        let mut reno = Reno::new(1000, 10_000, true);
        for _ in 0..10 {
            reno.on_ack(ack(1000));
        }
        assert_eq!(reno.window(), 20_000);
        reno.on_congestion(Instant::ZERO, 20_000);
        assert_eq!((reno.window(), reno.in_slow_start()), (10_000, false));
        for _ in 0..5 {
            reno.on_ack(ack(2000));
        }
        assert_eq!(reno.window(), 11_000, "byte counting: two segments per ACK count as two");
        reno.on_timeout(Instant::ZERO, 11_000, false);
        assert_eq!((reno.window(), reno.in_slow_start()), (1000, true));
    }

    /// A repair after a time-out acknowledges what came before it: no sign that more fits.
    #[test]
    fn an_acknowledgement_of_many_segments_counts_as_two_and_after_a_time_out_as_one() {
        let mut reno = Reno::new(1000, 10_000, true);
        reno.on_ack(ack(8000));
        assert_eq!(reno.window(), 12_000);
        reno.on_timeout(Instant::ZERO, 12_000, false);
        reno.on_ack(ack(8000));
        assert_eq!((reno.window(), reno.in_slow_start()), (2000, true));
    }

    #[test]
    fn slow_start_can_be_switched_off() {
        let mut reno = Reno::new(1000, 2000, false);
        reno.on_ack(ack(2000));
        assert_eq!(reno.window(), 3000);
        reno.on_timeout(Instant::ZERO, 3000, false);
        reno.on_ack(ack(1000));
        reno.on_ack(ack(1000));
        assert_eq!(reno.window(), 2000, "after a time-out too: two windows for two segments");
    }
}
