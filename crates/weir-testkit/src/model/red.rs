//! RED's average queue and drop probability (Floyd and Jacobson, IEEE/ACM Transactions on
//! Networking 1(4), 1993, sections 4 and 11), in floating point: its error of 10^-13 is nothing
//! beside the percent that is asked for, and rational numbers would have thousands of digits.

/// The exponentially weighted average, with the idle correction.
#[derive(Clone, Debug)]
pub struct RedAverage {
    weight: f64,
    packet_ns: f64,
    average: f64,
    idle_from_ns: u64,
}

impl RedAverage {
    /// Every arrival counts `weight` (w_q); an idle link could send a packet every `packet_ns`.
    pub fn new(weight: f64, packet_ns: f64) -> Self {
        RedAverage { weight, packet_ns, average: 0.0, idle_from_ns: 0 }
    }
    /// A packet comes and finds `queue` others; answers the average.
    pub fn arrive(&mut self, now_ns: u64, queue: u64) -> f64 {
        if queue == 0 {
            let packets = ((now_ns - self.idle_from_ns) as f64 / self.packet_ns).floor();
            self.average *= (1.0 - self.weight).powf(packets);
        }
        self.idle_from_ns = now_ns;
        self.average += self.weight * (queue as f64 - self.average);
        self.average
    }
    /// A departure leaves the queue empty.
    pub fn emptied(&mut self, now_ns: u64) {
        self.idle_from_ns = now_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settles_at_the_queue_and_decays_when_idle() {
        let mut red = RedAverage::new(0.25, 1_000.0);
        for n in 0..100 {
            red.arrive(n, 8);
        }
        assert!((red.average - 8.0).abs() < 1e-9);
        red.emptied(5_000);
        // Two packets could have left, and this one finds an empty queue: 8 * 0.75^3.
        assert!((red.arrive(7_999, 0) - 3.375).abs() < 1e-9);
    }
}
