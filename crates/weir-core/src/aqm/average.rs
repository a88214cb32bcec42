//! RED's two laws apart from RED itself: the average of a queue, and the probability by it.
//!
//! AQMs that think in RED's averages share them: RED, RIO, the flow valve, CHOKe.
//! Paper: RED93, whose sections stand beside the code.

use crate::Random;
use crate::queue::Link;
use crate::units::{Bounded, Fraction, Instant, Rate};

/// Fractional bits of a queue length: thresholds are compared in units of 2^-24 packets.
pub const LENGTH_BITS: u32 = 24;
/// The greatest queue that enters an average. With the weight's 16 bits and the fraction's 24,
/// 2^22 packets stay below 2^62.
pub const LONGEST: u32 = 1 << 22;
/// One, for probabilities in units of 2^-63.
pub const ONE: u64 = 1 << 63;

/// The exponentially weighted average of a queue length, [RED93 section 4].
#[derive(Clone, Copy, Debug)]
pub struct Average {
    /// avg / w_q, in units of 2^-24 packets: kept multiplied, so that small weights lose nothing. Below 2^63.
    scaled: u64,
    /// w_q = 2^-shift.
    shift: u32,
    /// Time of one packet, in units of 2^-16 ns.
    packet_time: u64,
    /// The queue may have been idle since then: when it was left empty, or its last arrival.
    idle_from: Instant,
}

impl Average {
    /// Of a queue served at `rate`, with `packet_bytes` as the typical packet; `weight` is 1/w_q,
    /// a power of two, 0 for one that suits the rate.
    pub fn new(weight: u64, packet_bytes: u64, rate: Rate, link: &Link) -> Self {
        let time = rate.time_for(packet_bytes + u64::from(link.overhead)).raw() >> 16;
        let packet_time = u64::try_from(time).unwrap_or(u64::MAX).max(1);
        let weight = if weight == 0 { Self::weight_for(packet_time) } else { weight };
        let shift = weight.max(1).ilog2().min(16);
        Average { scaled: 0, shift, packet_time, idle_from: Instant::ZERO }
    }
    /// The slower the link, the fewer packets make a burst: 1/w_q by packets a second.
    fn weight_for(packet_time: u64) -> u64 {
        match (1_000_000_000u64 << 16) / packet_time {
            0..50 => 64,
            50..300 => 128,
            _ => 512,
        }
    }
    /// The same history under other constants.
    pub fn keep(self, old: Average) -> Average {
        Average { scaled: old.value() << self.shift, idle_from: old.idle_from, ..self }
    }
    /// An arrival finds `queue` packets.
    #[inline(always)]
    pub fn update(&mut self, now: Instant, queue: u32) {
        if queue == 0 {
            self.idle(now);
        }
        self.meet(now, queue);
    }
    /// An arrival finds `queue` packets, at least one.
    #[inline(always)]
    pub fn meet(&mut self, now: Instant, queue: u32) {
        self.idle_from = now;
        // avg' = avg + w_q (q - avg), multiplied by 2^shift. The shift rounds down by less than
        // one unit a step, which the feedback bounds to one unit of 2^-24 packets in avg.
        let queue = u64::from(queue.min(LONGEST)) << LENGTH_BITS;
        self.scaled = self.scaled.less(self.value()).plus(queue);
    }
    /// The queue was left empty.
    pub fn emptied(&mut self, now: Instant) {
        self.idle_from = now;
    }
    /// avg' = avg (1 - w_q)^m, where m packets could have left since the queue went idle.
    #[cold]
    fn idle(&mut self, now: Instant) {
        let idle = u128::from(now.since(self.idle_from).as_nanos()) << 16;
        if idle < u128::from(self.packet_time) {
            return;
        }
        let m = idle / u128::from(self.packet_time);
        // (1 - 2^-16)^m is below 2^-40 past m = 28 * 2^16.
        if m > 28 << self.shift {
            self.scaled = 0;
            return;
        }
        let (mut m, mut power) = (m as u64, !0u64 - (!0u64 >> self.shift));
        while m > 0 {
            if m & 1 == 1 {
                self.scaled = high(self.scaled, power);
            }
            power = high(power, power);
            m >>= 1;
        }
    }
    /// The average, in units of 2^-24 packets.
    #[inline(always)]
    pub fn value(&self) -> u64 {
        // At most 16: a shift by less than a word is one instruction.
        self.scaled >> (self.shift & 63)
    }
    #[cfg(test)]
    pub(super) fn set_packets(&mut self, packets: u64) {
        self.scaled = packets << (LENGTH_BITS + self.shift);
    }
    /// 1/w_q.
    pub fn weight(&self) -> u64 {
        1 << self.shift
    }
}

/// The product of a number and a fraction of 2^64.
fn high(a: u64, b: u64) -> u64 {
    ((u128::from(a) * u128::from(b)) >> 64) as u64
}

/// Where an average stands between the thresholds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Zone {
    /// Below them.
    Pass,
    /// Between them: p_b / 2, in units of 2^-63.
    Early(u64),
    /// Above them.
    Forced,
}

/// The probability of a drop by the average: 0 below `min`, rising to p_max at `max`.
#[derive(Clone, Copy, Debug)]
pub struct Ramp {
    min: u64,
    max: u64,
    /// Where everything is dropped: `max`, or twice that if gentle.
    end: u64,
    /// p_max / 2 / (max - min), units of 2^-63 a packet.
    slope: u64,
    /// p_max / 2, units of 2^-63.
    half: u64,
    /// (1 - p_max) / 2 / max, units of 2^-63 a packet.
    gentle_slope: u64,
}

impl Ramp {
    /// Thresholds in packets, `min` < `max`.
    pub fn new(min: u64, max: u64, pmax: Fraction, gentle: bool) -> Self {
        // pmax is at most 2^32 units: half of it in units of 2^-63 at most 2^62.
        let half = pmax.raw() << 30;
        Ramp {
            min: min << LENGTH_BITS,
            max: max << LENGTH_BITS,
            end: (if gentle { 2 * max } else { max }) << LENGTH_BITS,
            slope: half / (max - min).max(1),
            half,
            gentle_slope: (ONE / 2 - half) / max.max(1),
        }
    }
    /// The zone of an average in units of 2^-24 packets.
    #[inline(always)]
    pub fn zone(&self, average: u64) -> Zone {
        let rise = |by: u64, slope: u64| ((u128::from(by) * u128::from(slope)) >> LENGTH_BITS) as u64;
        if average < self.min {
            Zone::Pass
        } else if average < self.max {
            Zone::Early(rise(average - self.min, self.slope))
        } else if average < self.end {
            Zone::Early(self.half + rise(average - self.max, self.gentle_slope))
        } else {
            Zone::Forced
        }
    }
}

/// Whether the `count`th arrival since the last drop is dropped: with probability
/// p_a = p_b / (2 - count p_b) = h / (1 - count h), h = p_b / 2. [RED93 section 7] With `wait` not
/// before count p_b = 1, so that the gap is uniform over 1/p_b..2/p_b, as in ns-2.
#[inline(always)]
pub fn early(half: u64, count: u64, wait: bool, random: &mut Random) -> bool {
    let passed = half.saturating_mul(count);
    if half == 0 || (wait && passed < ONE / 2) {
        return false;
    }
    let Some(rest) = ONE.checked_sub(passed) else { return true };
    rest <= half || random.below(rest) < half
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Duration;

    /// An average of 10 packets in a queue whose packets take 1 ms with what the wire adds.
    fn of_ten(weight: u64) -> Average {
        let link = Link::new(Rate::from_mbps(8), 24, 1_500);
        let mut average = Average::new(weight, 976, link.rate, &link);
        average.set_packets(10);
        average.emptied(Instant::from_millis(7));
        average
    }

    fn packets(average: &Average) -> f64 {
        average.value() as f64 / f64::from(1 << LENGTH_BITS)
    }

    /// avg (1 - w)^m of [RED93 section 4], with whole packets in the idle time; then the packet that came.
    #[test]
    fn an_idle_queue_forgets_by_whole_packet_times() {
        for weight in [2u64, 64, 512, 65_536] {
            let w = 1.0 / weight as f64;
            for (idle_us, m) in [(0, 0), (999, 0), (1_000, 1), (1_999, 1), (2_000, 2), (37_500, 37)] {
                let mut average = of_ten(weight);
                average.update(Instant::from_millis(7) + Duration::from_micros(idle_us), 0);
                let expected = 10.0 * (1.0 - w).powi(m + 1);
                assert!(
                    (packets(&average) - expected).abs() < 1e-5,
                    "1/{weight}, {idle_us} us: {}",
                    packets(&average)
                );
            }
        }
    }

    /// An hour at a weight of 2^-16 is 55 time constants; a minute is not one.
    #[test]
    fn a_long_idle_time_forgets_all() {
        let after = |weight: u64, idle: Duration| {
            let mut average = of_ten(weight);
            average.update(Instant::from_millis(7) + idle, 0);
            packets(&average)
        };
        assert_eq!(after(65_536, Duration::from_secs(3_600)), 0.0);
        assert!(
            (after(65_536, Duration::from_secs(60)) - 10.0 * (-60_000.0f64 / 65_536.0).exp()).abs() < 1e-3
        );
        // 28 time constants still count where the average can show them.
        let mut average = of_ten(4);
        average.set_packets(1 << 22);
        average.update(Instant::from_millis(7 + 40), 0);
        let expected = f64::from(1 << 22) * 0.75f64.powi(41);
        assert!((packets(&average) / expected - 1.0).abs() < 1e-2, "{}", packets(&average));
    }

    /// Only an empty queue is idle: arrivals that find packets move the average alone.
    #[test]
    fn a_busy_queue_does_not_forget() {
        let mut average = of_ten(64);
        for second in 1..=3 {
            average.update(Instant::from_millis(1_000 * second), 10);
        }
        assert!((packets(&average) - 10.0).abs() < 1e-5, "{}", packets(&average));
        average.update(Instant::from_millis(4_000), 74);
        assert!((packets(&average) - 11.0).abs() < 1e-5, "{}", packets(&average));
    }

    /// The slower the link, the fewer packets are a burst.
    #[test]
    fn a_weight_that_is_not_given_suits_the_rate() {
        let link = Link::new(Rate::from_mbps(10), 0, 1_500);
        // Packets of 1,000 bytes: 8,000 bit/s are one a second.
        for (per_second, weight) in [(1, 64), (49, 64), (50, 128), (299, 128), (300, 512), (1_000_000, 512)] {
            let average = Average::new(0, 1_000, Rate::from_bps(8_000 * per_second), &link);
            assert_eq!(average.weight(), weight, "{per_second} packets a second");
        }
        assert_eq!(Average::new(32, 1_000, link.rate, &link).weight(), 32);
        let changed = of_ten(64).keep(of_ten(512));
        assert!((packets(&changed) - 10.0).abs() < 1e-5 && changed.weight() == 64);
    }
}
