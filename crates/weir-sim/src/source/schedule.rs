//! When a flow may send: its active intervals, begun with its own offset.

use weir_core::units::Instant;

/// Active intervals in order; a cursor walks over their boundaries as time passes.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// Start, stop, start, stop …
    boundaries: Vec<Instant>,
    passed: usize,
}

impl Schedule {
    /// From (start, stop) pairs in nanoseconds; every start is `offset_ns` later, and an
    /// interval that is over by then is left out.
    pub fn new(active: impl IntoIterator<Item = (u64, u64)>, offset_ns: u64) -> Self {
        let shifted = active.into_iter().map(|(start, stop)| (start.saturating_add(offset_ns), stop));
        let boundaries = shifted.filter(|(start, stop)| start < stop).flat_map(|(start, stop)| [start, stop]);
        Schedule { boundaries: boundaries.map(Instant::from_nanos).collect(), passed: 0 }
    }
    /// True inside an interval.
    pub fn is_active(&self) -> bool {
        self.passed % 2 == 1
    }
    /// The next start or stop.
    pub fn next(&self) -> Instant {
        self.boundaries.get(self.passed).copied().unwrap_or(Instant::NEVER)
    }
    /// Walks to `now`; true if that changed between active and not.
    pub fn advance(&mut self, now: Instant) -> bool {
        let before = self.is_active();
        while self.next() <= now {
            self.passed += 1;
        }
        before != self.is_active()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walks_over_its_boundaries() {
        let mut schedule = Schedule::new([(0, 10), (20, 30), (40, 43)], 3);
        let at = Instant::from_nanos;
        let mut seen = Vec::new();
        while schedule.next() != Instant::NEVER {
            let next = schedule.next();
            assert!(schedule.advance(next) && !schedule.advance(next));
            seen.push((next, schedule.is_active()));
        }
        // The last interval would begin when it is over.
        assert_eq!(seen, [(at(3), true), (at(10), false), (at(23), true), (at(30), false)]);
    }
}
