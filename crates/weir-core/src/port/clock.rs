//! The port's two clocks: the host's, and the tree's, which leaves out the time that was lost.
//!
//! A real wire sends nothing while its host is late. If the tree's clock ran on in that time, every
//! scheduler with a clock of its own would catch up afterwards: HFSC's curves, JoBS's rates, CBQ's
//! averages. So the tree's clock stops where a timer is later than the wire's bucket can make good.
//! Then credit is lost everywhere at once, shares stay as configured, and no discipline knows of it.
//!
//! Arrivals are stamped by the tree's clock, because disciplines compare them with it. The host is
//! told times of its own clock only: `came` finds how much had been lost when a packet came.

use crate::units::{Duration, Instant};

/// Stops that are remembered. A packet that is older than all of them is told as if it had come
/// just before the oldest: its delay then leaves out stops before that.
const REMEMBERED: usize = 16;

/// How much the tree's clock lags behind the host's, and since when.
pub(super) struct Clock {
    /// How late a timer may go off without a loss.
    tolerance: Duration,
    lost: Duration,
    /// When the last stop ended, in the tree's time.
    resumed: Instant,
    /// Earlier spells, the latest first: how much had been lost in each, and when it began.
    before: [(Duration, Instant); REMEMBERED],
}

impl Clock {
    pub(super) fn new(tolerance: Duration) -> Self {
        Clock {
            tolerance,
            lost: Duration::ZERO,
            resumed: Instant::ZERO,
            before: [(Duration::ZERO, Instant::ZERO); REMEMBERED],
        }
    }
    pub(super) fn tolerate(&mut self, tolerance: Duration) {
        self.tolerance = tolerance;
    }
    /// The host's time for one of the tree's, now or later.
    pub(super) fn host(&self, tree: Instant) -> Instant {
        tree + self.lost
    }
    /// The tree's time for one of the host's, now or later.
    pub(super) fn tree(&self, host: Instant) -> Instant {
        host - self.lost
    }
    /// Whether a timer that was due at `due` and goes off at `at` is later than costs nothing.
    #[inline(always)]
    pub(super) fn is_late(&self, due: Instant, at: Instant) -> bool {
        at > due + self.tolerance
    }
    /// A timer that was due at `due` goes off at `at`, in the tree's time as it would be without loss. That time
    /// is then at most the tolerance later than due; what is beyond that is lost.
    pub(super) fn late(&mut self, due: Instant, at: Instant) -> Instant {
        let latest = due + self.tolerance;
        if at > latest {
            self.lose(latest, at.since(latest));
        }
        at.min(latest)
    }
    fn lose(&mut self, resumed: Instant, span: Duration) {
        self.before.rotate_right(1);
        self.before[0] = (self.lost, self.resumed);
        self.lost += span;
        self.resumed = resumed;
    }
    /// When a packet came, in the host's time; `arrival` is its stamp by the tree's clock.
    pub(super) fn came(&self, arrival: Instant) -> Instant {
        if arrival >= self.resumed { arrival + self.lost } else { self.came_before(arrival) }
    }
    #[cold]
    fn came_before(&self, arrival: Instant) -> Instant {
        let spell = self.before.iter().find(|(_, began)| arrival >= *began);
        arrival + spell.unwrap_or(&self.before[REMEMBERED - 1]).0
    }
    /// The time that was lost since the port was made.
    pub(super) fn lost(&self) -> Duration {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    /// Stops of 10 ms, one every 100 ms of the tree's time: each stamp finds its own spell.
    #[test]
    fn a_stamp_is_told_as_it_was() {
        let tolerance = Duration::from_millis(1);
        let mut clock = Clock::new(tolerance);
        let mut stamps = std::vec![(ms(0), ms(0))];
        for stop in 1..=12u64 {
            let due = ms(100 * stop);
            let present = clock.host(due) + tolerance;
            assert_eq!(clock.late(due, clock.tree(present)), due + tolerance, "in time for the bucket");
            assert_eq!(clock.lost(), Duration::from_millis(10 * (stop - 1)));
            let present = present + Duration::from_millis(10);
            assert_eq!(clock.late(due, clock.tree(present)), due + tolerance);
            assert_eq!(clock.host(due + tolerance), present);
            stamps.push((due + tolerance, present));
        }
        for (tree, host) in stamps {
            assert_eq!(clock.came(tree), host);
        }
        // Older than all that is remembered: too late rather than too early, and never an error.
        for stop in 13..40 {
            let due = ms(100 * stop);
            clock.late(due, due + Duration::from_millis(11));
        }
        // Of 39 stops of 10 ms the 23 before the oldest that is remembered are told as one.
        assert_eq!(clock.came(ms(0)), ms(230));
    }
}
