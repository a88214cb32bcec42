//! Round-trip estimation and the retransmission time-out (RFC 6298), without a clock tick.
//!
//! The floor is Linux's: 200 ms on the *variance* term, so that a steady path of 300 ms has a
//! time-out of 500 ms and not of 300. RFC 6298's floor of 1 s on the sum would hide what
//! today's senders do.

use weir_core::units::Duration;

/// Time-out before the first measurement (RFC 6298, 2.1).
const INITIAL_NS: u64 = 1_000_000_000;
/// Floor of the variance term.
const MINIMUM_NS: u64 = 200_000_000;
/// Ceiling of the backed-off time-out (RFC 6298, 2.5: at least 60 s).
const MAXIMUM_NS: u64 = 60_000_000_000;

/// The estimator of one sender.
#[derive(Clone, Debug)]
pub struct RttEstimator {
    smoothed_ns: u64,
    variance_ns: u64,
    measured: bool,
    backoff: u32,
}

impl Default for RttEstimator {
    fn default() -> Self {
        Self::new()
    }
}

impl RttEstimator {
    /// No measurement yet.
    pub fn new() -> Self {
        RttEstimator { smoothed_ns: 0, variance_ns: 0, measured: false, backoff: 0 }
    }
    /// Takes a measurement (RFC 6298, 2.2 and 2.3).
    pub fn sample(&mut self, rtt: Duration) {
        let r = rtt.as_nanos();
        if !self.measured {
            (self.smoothed_ns, self.variance_ns, self.measured) = (r, r / 2, true);
            return;
        }
        let deviation = self.smoothed_ns.abs_diff(r);
        self.variance_ns = self.variance_ns - self.variance_ns / 4 + deviation / 4;
        self.smoothed_ns = self.smoothed_ns - self.smoothed_ns / 8 + r / 8;
    }
    /// New data was acknowledged: the path works, so the backing off ends.
    pub fn progress(&mut self) {
        self.backoff = 0;
    }
    /// The time-out ran out: the next one is twice as long (RFC 6298, 5.5).
    pub fn expired(&mut self) {
        self.backoff = (self.backoff + 1).min(10);
    }
    /// The time-out to arm now.
    pub fn timeout(&self) -> Duration {
        let base = match self.measured {
            true => self.smoothed_ns + (4 * self.variance_ns).max(MINIMUM_NS),
            false => INITIAL_NS,
        };
        Duration::from_nanos((base << self.backoff).min(MAXIMUM_NS))
    }
    /// The smoothed round-trip time, once there is one.
    pub fn smoothed(&self) -> Option<Duration> {
        self.measured.then(|| Duration::from_nanos(self.smoothed_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_rfc_6298() {
        let mut rtt = RttEstimator::new();
        assert_eq!(rtt.timeout(), Duration::from_secs(1));
        rtt.sample(Duration::from_millis(400));
        assert_eq!(rtt.timeout(), Duration::from_millis(1200));
        for _ in 0..100 {
            rtt.sample(Duration::from_millis(400));
        }
        let steady = rtt.timeout().as_nanos();
        assert!((599_000_000..=601_000_000).contains(&steady), "the floor of 200 ms: {steady}");
        rtt.expired();
        rtt.expired();
        assert_eq!(rtt.timeout().as_nanos(), 4 * steady);
        for _ in 0..100 {
            rtt.expired();
        }
        assert_eq!(rtt.timeout(), Duration::from_secs(60));
        rtt.progress();
        assert_eq!(rtt.timeout().as_nanos(), steady);
    }
}
