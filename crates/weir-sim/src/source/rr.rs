//! Request and response: one transaction at a time.

use super::Schedule;
use weir_core::units::{Duration, Instant};

/// A transaction without a response is given up after this time.
const PATIENCE: Duration = Duration::from_secs(1);

/// The requesting side.
#[derive(Debug)]
pub struct Requester {
    schedule: Schedule,
    pause: Duration,
    /// Number of the transaction under way, or of the next.
    number: u64,
    phase: Phase,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// The next request is due.
    Pausing { until: Instant },
    /// A request is out.
    Waiting { since: Instant },
}

/// What the requester wants after a call.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Step {
    /// Send the request of that number.
    pub send: Option<u64>,
    /// A transaction was given up.
    pub lost: bool,
    /// A transaction ended, after that time.
    pub done: Option<Duration>,
}

impl Requester {
    /// A requester that pauses that long after each response.
    pub fn new(schedule: Schedule, pause: Duration) -> Self {
        Requester { schedule, pause, number: 0, phase: Phase::Pausing { until: Instant::ZERO } }
    }

    /// When to call `on_timer` next.
    pub fn next(&self) -> Instant {
        let due = match self.phase {
            Phase::Pausing { until } if self.schedule.is_active() => until,
            Phase::Pausing { .. } => Instant::NEVER,
            Phase::Waiting { since } => since + PATIENCE,
        };
        due.min(self.schedule.next())
    }

    /// The clock reached `now`.
    pub fn on_timer(&mut self, now: Instant) -> Step {
        self.schedule.advance(now);
        let mut step = Step::default();
        if let Phase::Waiting { since } = self.phase
            && since + PATIENCE <= now
        {
            step.lost = true;
            self.end(now);
        }
        self.request(now, &mut step);
        step
    }

    /// The response to transaction `number` arrived; one that was given up is ignored.
    pub fn on_response(&mut self, now: Instant, number: u64) -> Step {
        let mut step = Step::default();
        if let Phase::Waiting { since } = self.phase
            && number == self.number
        {
            step.done = Some(now.since(since));
            self.end(now);
            self.request(now, &mut step);
        }
        step
    }

    fn end(&mut self, now: Instant) {
        self.number += 1;
        self.phase = Phase::Pausing { until: now + self.pause };
    }

    fn request(&mut self, now: Instant, step: &mut Step) {
        if let Phase::Pausing { until } = self.phase
            && until <= now
            && self.schedule.is_active()
        {
            self.phase = Phase::Waiting { since: now };
            step.send = Some(self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_up_after_a_second_and_ignores_what_comes_late() {
        let schedule = Schedule::new([(0, 10_000_000_000)], 0);
        let mut rr = Requester::new(schedule, Duration::from_millis(5));
        let ms = |n: u64| Instant::from_nanos(n * 1_000_000);
        assert_eq!(rr.on_timer(ms(0)).send, Some(0));
        assert_eq!(rr.next(), ms(1000));
        let step = rr.on_timer(ms(1000));
        assert!(step.lost && step.send.is_none() && rr.next() == ms(1005));
        assert_eq!(rr.on_timer(ms(1005)).send, Some(1));
        assert_eq!(rr.on_response(ms(1006), 0), Step::default());
        assert_eq!(rr.on_response(ms(1007), 1).done, Some(Duration::from_millis(2)));
        assert_eq!(rr.next(), ms(1012));
    }
}
