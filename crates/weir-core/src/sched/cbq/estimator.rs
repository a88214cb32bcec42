//! The estimator: is a class over its limit, and until when?
//!
//! After each packet the idle time is `idle = end - last - cost`: the time since the class's
//! previous packet ended, less the time that the packet takes at the class's own rate. Its
//! exponential average `avgidle` is positive for a class that uses less than its share. At or
//! below zero the class is overlimit until `undertime`, the time at which sending another such
//! packet would bring the average to exactly zero [CBQ95 section IV].
//!
//! A class that cannot borrow waits for `minburst` packets at once and then sends them back to
//! back; they enter the average together, as one long packet. (ALTQ lengthens the wait, by
//! `offtime`, and lets the packets enter one by one; since the average forgets, that costs the
//! class up to 1/gain of its share, and much more if its packets are smaller than `packetsize`.)
//!
//! Times are in units of 2^-32 ns in 128 bits. Proof of range: an instant is below 2^(64+32),
//! a cost below 2^(64+17) (`PerByte` times 65,535 + 2^16 bytes), the average lies between the
//! bounds of idle and so below 2^97 in magnitude, and the largest product is the average times
//! 1024: 2^107.

use crate::queue::Link;
use crate::units::{Fine, Instant, PerByte, Rate};

/// One nanosecond.
const NANOSECOND: i128 = 1 << 32;
/// Bursts longer than this many ns of credit count as this: 2^62 ns is 146 years.
const MOST_CREDIT: i128 = 1 << (62 + 32);

/// What the estimator of a class is made from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shape {
    /// The class's share.
    pub rate: Rate,
    /// 2^this is the gain.
    pub gain_log2: u32,
    /// Packets that an idle class may send back to back.
    pub maxburst: u32,
    /// Packets that it sends back to back in steady state.
    pub minburst: u32,
    /// Average packet, bytes.
    pub packet_bytes: u32,
    /// Largest packet, bytes.
    pub largest_bytes: u32,
    /// Whether the average is bounded below.
    pub minidle: bool,
    /// Whether the class waits by itself: it cannot borrow, so `minburst` shapes its waiting.
    pub waits: bool,
}

/// The estimator of one class.
#[derive(Clone, Copy, Debug)]
pub(super) struct Estimator {
    average: i128,
    last: i128,
    undertime: i128,
    per_byte: PerByte,
    gain_log2: u32,
    most: i128,
    least: i128,
    wake: Instant,
    minburst: u32,
    /// Packets of the present burst that are yet to come, the next one included; 1 outside one.
    left: u32,
    /// Time that the present burst takes at the class's rate.
    cost: i128,
    /// The same less the time on the link, for one packet: an average over the last.
    typical: i128,
    waits: bool,
    /// What the host's clock added to the start of the present burst.
    rounding: i128,
}

fn raw(t: Fine) -> i128 {
    // A Fine of this module is below 2^97.
    t.raw() as i128
}

/// `base * ((gain / (gain - 1))^n - 1)`: the credit that n packets back to back use up, when
/// each costs `base` [CBQ95 appendix A].
fn credit_of_burst(base: i128, gain_log2: u32, n: u32) -> i128 {
    let mut grown = base;
    for _ in 0..n {
        if grown > MOST_CREDIT {
            return MOST_CREDIT;
        }
        // x * G / (G - 1) = x + x / (G - 1)
        grown += grown / ((1 << gain_log2) - 1);
    }
    grown - base
}

impl Estimator {
    pub fn new(shape: &Shape, link: &Link) -> Self {
        let mut new = Estimator {
            average: 0,
            last: 0,
            undertime: 0,
            per_byte: PerByte::of(shape.rate),
            gain_log2: shape.gain_log2,
            most: 0,
            least: 0,
            wake: Instant::ZERO,
            minburst: 1,
            left: 1,
            cost: 0,
            typical: 0,
            waits: false,
            rounding: 0,
        };
        new.shape(shape, link);
        new.average = new.most;
        new
    }

    /// Takes other parameters. The debt or credit of the class stays as far as they allow it.
    pub fn shape(&mut self, shape: &Shape, link: &Link) {
        self.per_byte = PerByte::of(shape.rate);
        self.gain_log2 = shape.gain_log2;
        let overhead = u64::from(link.overhead);
        let cost = |bytes: u32| raw(self.per_byte.time_for(u64::from(bytes) + overhead));
        let on_link = raw(link.time_for(shape.packet_bytes));
        // What a packet sent back to back costs: its time at the class's rate less its own.
        let base = (cost(shape.packet_bytes) - on_link).max(0);
        // The first packet after a long idle time finds its credit bounded: it is not paid for.
        let burst = credit_of_burst(base, self.gain_log2, shape.maxburst - 1);
        self.most = burst.max(on_link >> self.gain_log2);
        self.least = if shape.minidle { -cost(shape.largest_bytes) } else { -MOST_CREDIT };
        self.minburst = if shape.waits { shape.minburst } else { 1 };
        self.left = self.left.min(self.minburst);
        self.waits = shape.waits;
        if !self.waits {
            self.cost = 0;
        }
        self.average = self.average.clamp(self.least, self.most);
        if shape.rate.is_zero() {
            self.wake = Instant::NEVER;
        } else if self.wake == Instant::NEVER {
            self.wake = Instant::ZERO;
        }
    }

    /// From when on the class is underlimit.
    pub fn wake(&self) -> Instant {
        self.wake
    }

    /// `avgidle` in ns, for statistics.
    pub fn average_ns(&self) -> i64 {
        (self.average >> 32) as i64
    }

    /// `maxidle` in ns, for statistics.
    pub fn most_ns(&self) -> i64 {
        (self.most >> 32) as i64
    }

    /// Counts a packet of `bytes` on the wire, whose transmission starts at `start` and takes
    /// `on_link`. Answers from when on the class is underlimit: `Instant::ZERO` if it is so now.
    #[inline]
    pub fn charge(&mut self, start: Fine, on_link: Fine, bytes: u64) -> Instant {
        if self.wake == Instant::NEVER {
            return self.wake;
        }
        let (start, on_link) = (raw(start), raw(on_link));
        let cost = raw(self.per_byte.time_for(bytes));
        let own = (cost - on_link).max(0);
        // Hosts count whole nanoseconds. A class that starts in the nanosecond in which its
        // waiting ended is in time, and so is the rest of its burst: the rounding must not count
        // as idleness.
        let late = start - self.undertime;
        let rounding = if (0..NANOSECOND).contains(&late) { late } else { 0 };
        let (cost, rounding) = match self.waits {
            false => (cost, rounding),
            true => match self.burst(cost, own, late, rounding) {
                Some(whole) => whole,
                None => {
                    self.wake = Instant::ZERO;
                    return self.wake;
                }
            },
        };
        let end = start + on_link - rounding;
        let idle = end - self.last - cost;
        self.last = end;
        // At most 10: a shift by less than a word is one instruction.
        let gain_log2 = self.gain_log2 & 31;
        let average = self.average + ((idle - self.average) >> gain_log2);
        self.average = average.clamp(self.least, self.most);
        // Credit within the resolution of clocks is none.
        if self.average > NANOSECOND >> gain_log2 {
            self.wake = Instant::ZERO;
            return self.wake;
        }
        // The next packet, starting at x, brings the average to 0 if its idle time
        // x + on_link - last - cost = -(G - 1) * average.
        let debt = self.average - (self.average << gain_log2);
        let next = if self.waits { self.next_burst() } else { own };
        self.undertime = end + next + debt;
        self.wake = Fine::from_raw(self.undertime.max(0) as u128).ceil();
        self.wake
    }

    /// A packet of a class that waits by itself: the cost and the rounding of the burst that it
    /// ends, or nothing if more of that burst are to come.
    fn burst(&mut self, cost: i128, own: i128, late: i128, rounding: i128) -> Option<(i128, i128)> {
        let begun = self.cost > 0;
        if !begun {
            self.rounding = rounding;
        }
        self.cost += cost;
        self.typical += (own - self.typical) >> 3;
        if self.left > 1 {
            // A burst that was waited for. One that starts late has earned more, and one that
            // starts early (an inner class, for a child within its share) is none.
            if begun || (0..own).contains(&(late - self.rounding)) {
                self.left -= 1;
                return None;
            }
            self.left = 1;
        }
        Some((core::mem::take(&mut self.cost), self.rounding))
    }

    /// The class waits now, for as long as its next `minburst` packets take at its rate. How long
    /// they are is not known: guessing the last one's length would cost a class of mixed lengths
    /// 5 % of its share (gain 16; long after short is a debt, short after long is forgotten).
    #[cold]
    fn next_burst(&mut self) -> i128 {
        self.left = self.minburst;
        match self.minburst {
            1 => self.typical,
            n => self.typical.saturating_mul(i128::from(n)).min(MOST_CREDIT),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEN_YEARS_NS: u64 = 10 * 365 * 86_400 * 1_000_000_000;

    /// Rate of a class that always sends as soon as it may, over its share, with a host that
    /// counts whole nanoseconds.
    fn paced(link: &Link, permille: u64, len: u32, minburst: u32, gain_log2: u32) -> f64 {
        let shape = Shape {
            rate: Rate::from_bps((link.rate.as_bps() * permille).div_ceil(1_000)),
            gain_log2,
            maxburst: 16.max(minburst),
            minburst,
            packet_bytes: 1_500,
            largest_bytes: 65_535,
            minidle: true,
            waits: true,
        };
        let mut estimator = Estimator::new(&shape, link);
        let (on_link, cost) = (link.time_for(len), shape.rate.time_for(len.into()).raw());
        let mut free = Fine::from_nanos(TEN_YEARS_NS);
        // When waiting began first, after what the first burst left in the average, and last;
        // the packets between.
        let (mut first, mut last, mut sent, mut since) = (0, 0, 0u32, 0u32);
        for n in 0..30_000 {
            let wake = estimator.charge(free, on_link, len.into());
            free = (free + on_link).max(wake.into());
            since += 1;
            if n >= 10_000 && wake > Instant::ZERO {
                last = estimator.undertime;
                if first == 0 {
                    first = last;
                } else {
                    sent += since;
                }
                since = 0;
            }
        }
        f64::from(sent) * cost as f64 / (last - first) as f64
    }

    /// A35: 9.6 kbit/s to 400 Gbit/s, 20 to 65,535 bytes, ten years after the start: the rate of a
    /// class that waits is its share within 0.1 %.
    #[test]
    fn a35_rates_are_exact_over_the_whole_range() {
        for bps in [9_600, 64_000, 1_500_000, 100_000_000, 4_294_967_297, 40_000_000_000, 400_000_000_000] {
            let link = Link::new(Rate::from_bps(bps), 0, 1_500);
            for (permille, len) in
                [10, 300, 900].into_iter().flat_map(|p| [20, 64, 1_500, 65_535].map(|l| (p, l)))
            {
                for (minburst, gain_log2) in [(1, 5), (2, 5), (2, 1), (1, 10)] {
                    let ratio = paced(&link, permille, len, minburst, gain_log2);
                    let case = (bps, permille, len, minburst, gain_log2);
                    assert!((ratio - 1.0).abs() < 0.001, "{case:?}: {ratio}");
                }
            }
        }
    }
}
