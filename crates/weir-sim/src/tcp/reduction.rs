//! Proportional rate reduction (RFC 6937): how fast a recovery with SACK may send.
//!
//! A recovery sends in step with what arrives. By RFC 6675 alone a sender that lost many
//! segments at once finds its pipe far below its window, sends the difference in one burst into
//! a queue that is still full, and loses its repairs, which only the timer mends.

use weir_core::units::mul_div;

/// One recovery.
#[derive(Clone, Copy, Default, Debug)]
pub struct Reduction {
    /// Octets outstanding when the recovery began (RecoverFS).
    flight: u64,
    /// Octets that have arrived since (prr_delivered).
    delivered: u64,
    /// Octets that have been sent since (prr_out).
    sent: u64,
    window: u64,
}

impl Reduction {
    /// A recovery begins with that much outstanding.
    pub fn new(flight: u64) -> Self {
        Reduction { flight, ..Reduction::default() }
    }

    /// An acknowledgement told of `delivered` octets; `advanced` if it moved the cumulative
    /// point. `pipe` is what is in the network now, `target` the window after the recovery.
    pub fn on_ack(&mut self, delivered: u64, advanced: bool, pipe: u64, target: u64, mss: u64) {
        self.delivered += delivered;
        let room = if pipe > target {
            // Proportional: target / flight segments for each that arrives.
            mul_div(self.delivered, target, self.flight.max(1)).saturating_sub(self.sent)
        } else {
            // Slow start back to the target, but only while the repair makes progress.
            let spare = if advanced { mss } else { 0 };
            (self.delivered.saturating_sub(self.sent).max(delivered) + spare).min(target - pipe)
        };
        self.window = pipe + room;
    }

    /// That many octets were sent.
    pub fn sent(&mut self, octets: u64) {
        self.sent += octets;
    }

    /// Octets that may be in the network until the next acknowledgement.
    pub fn window(&self) -> u64 {
        self.window
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One loss of twenty: every second acknowledgement releases a segment until the target is
    /// reached, then each one.
    #[test]
    fn halves_the_rate_in_one_round_trip() {
        let (mss, mut pipe, mut sent) = (1000, 19_000, 0);
        let mut recovery = Reduction::new(20_000);
        for ack in 1..=18 {
            pipe -= mss;
            recovery.on_ack(mss, false, pipe, 10_000, mss);
            while pipe + mss <= recovery.window() {
                recovery.sent(mss);
                (pipe, sent) = (pipe + mss, sent + 1);
            }
            let due = if ack < 16 { ack / 2 } else { ack - 9 };
            assert_eq!(sent, due, "after {ack} acknowledgements");
        }
        assert_eq!(pipe, 10_000);
    }

    /// Fifteen lost of twenty: as many go out as arrive, and one more where the repair advances.
    #[test]
    fn never_bursts_into_a_hole() {
        let (mss, mut pipe) = (1000, 5_000);
        let mut recovery = Reduction::new(20_000);
        for advanced in [false, false, true, true] {
            pipe -= mss;
            recovery.on_ack(mss, advanced, pipe, 10_000, mss);
            let room = recovery.window() - pipe;
            assert_eq!(room, if advanced { 2 * mss } else { mss });
            recovery.sent(room);
            pipe += room;
        }
        assert!(pipe <= 10_000);
    }
}
