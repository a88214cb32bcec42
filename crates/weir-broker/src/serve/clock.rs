//! The two clocks of a broker.

use crate::Nanos;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Counts from when the broker began. The book decides by it. Nobody can set it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock(Instant);

impl Clock {
    pub fn start() -> Self {
        Clock(Instant::now())
    }

    pub fn now(self) -> Nanos {
        self.0.elapsed().as_nanos() as Nanos
    }
}

/// Milliseconds since 1970, by the clock that people set: for the audit, and for the day on which a token ends.
pub(super) fn time_of_day_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
