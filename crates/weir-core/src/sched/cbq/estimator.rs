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
//! A leaf may find the link busy when its waiting ends. That is not idleness: the average would
//! forget most of it, and a class of 64-byte packets beside packets of 1,500 bytes would lose an
//! eighth of its share. A leaf that sends by right after waiting therefore runs in its own time, in
//! which the link is free when the waiting ends. Its own time is real time again when it had no
//! packets or the link was idle. (In ns-2 and ALTQ a class that borrows forgets such waiting too.)
//!
//! Times are in units of 2^-32 ns in 128 bits. Proof of range: an instant is below 2^(64+32),
//! a cost below 2^(64+17) (`PerByte` times 65,535 + 2^16 bytes), the average lies between the
//! bounds of idle and so below 2^97 in magnitude, and the largest product is the average times
//! 1024: 2^107.

use crate::queue::Link;
use crate::units::{Bounded, Fine, Instant, PerByte, Rate};

/// One nanosecond.
const NANOSECOND: i128 = 1 << 32;
/// What fits into words of 64 bits, with room for sums.
const WORD: i128 = 1 << 61;
/// When time comes to its end: after 292 years.
const LATE: i128 = 1 << 95;
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
    /// Whether the class runs in its own time after waiting: leaves do, unless CBQ keeps to ns-2.
    pub own_time: bool,
}

/// The estimator of one class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Estimator {
    average: i128,
    /// When the last packet that entered the average ended.
    last: i128,
    /// When the next packet starts if the class has one: `undertime` while it is overlimit.
    next: i128,
    /// The class is overlimit until `next`.
    over: bool,
    /// When its last packet ends on the link, in the link's time.
    until: i128,
    per_byte: PerByte,
    gain_log2: u32,
    most: i128,
    least: i128,
    /// A packet of so many bytes takes less than 2^61 at the class's rate and on the link, and so does all debt:
    /// then a class in its own time that goes on waiting counts in words of 64 bits. 0 for all others.
    fits: u64,
    wake: Instant,
    minburst: u32,
    /// Packets enter the average in bursts, or the last burst has not ended.
    bursts: bool,
    /// The class runs in its own time.
    own_time: bool,
    burst: Burst,
}

/// Since when the link has been sending without a pause.
#[derive(Clone, Copy, Debug)]
pub(super) struct Busy {
    since: Fine,
    /// The same in whole nanoseconds, rounded up.
    from: Instant,
}

impl Busy {
    pub fn since(since: Fine) -> Busy {
        Busy { since, from: since.ceil() }
    }
}

/// A packet on the link.
pub(super) struct Transmission {
    /// What it costs.
    pub bytes: u64,
    /// When it starts.
    pub start: Fine,
    /// How long it takes.
    pub on_link: Fine,
    pub busy: Busy,
}

/// The packets that enter the average together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Burst {
    /// Packets that are yet to come, the next one included; 1 outside a burst.
    left: u32,
    /// Time that those which came take at the class's rate.
    cost: i128,
    /// Time that they take on the link; 0 if none came.
    on_link: i128,
    /// The class was overlimit before.
    regulated: bool,
    /// How long after that was over they began, pauses between them included.
    idle: i128,
}

const NO_BURST: Burst = Burst { left: 1, cost: 0, on_link: 0, regulated: false, idle: 0 };

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
            next: 0,
            over: false,
            until: 0,
            per_byte: PerByte::of(shape.rate),
            gain_log2: shape.gain_log2,
            most: 0,
            least: 0,
            fits: 0,
            wake: Instant::ZERO,
            minburst: 1,
            bursts: false,
            own_time: shape.own_time,
            burst: NO_BURST,
        };
        new.shape(shape, link);
        new.average = new.most;
        new
    }

    /// Takes other parameters. The debt or credit of the class stays as far as they allow it.
    pub fn shape(&mut self, shape: &Shape, link: &Link) {
        self.per_byte = PerByte::of(shape.rate);
        self.gain_log2 = shape.gain_log2;
        let cost = |bytes: u32| raw(self.per_byte.time_for(link.cost_bytes(bytes)));
        let on_link = raw(link.time_for(shape.packet_bytes));
        // What a packet sent back to back costs: its time at the class's rate less its own.
        let base = (cost(shape.packet_bytes) - on_link).max(0);
        // The first packet after a long idle time finds its credit bounded: it is not paid for.
        let burst = credit_of_burst(base, self.gain_log2, shape.maxburst - 1);
        self.most = burst.max(on_link >> self.gain_log2);
        self.least = if shape.minidle { -cost(shape.largest_bytes) } else { -MOST_CREDIT };
        self.minburst = if shape.waits { shape.minburst } else { 1 };
        self.burst.left = self.burst.left.min(self.minburst);
        self.bursts = self.minburst > 1 || self.burst.on_link > 0;
        self.own_time = shape.own_time;
        self.average = self.average.clamp(self.least, self.most);
        if shape.rate.is_zero() {
            self.wake = Instant::NEVER;
        } else if self.wake == Instant::NEVER {
            self.wake = Instant::ZERO;
        }
        let slowest = self.per_byte.raw().max(link.per_byte().raw());
        let fits = shape.own_time && !self.bursts && !shape.rate.is_zero();
        let fits = fits && -self.least << self.gain_log2 < WORD;
        self.fits = if fits { (WORD as u64 - 1) / slowest } else { 0 };
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

    /// Counts a packet of a class that has had packets since `demand`. Answers from when on the class is
    /// underlimit: `Instant::ZERO` if it is so now.
    #[inline(always)]
    pub fn charge(&mut self, packet: &Transmission, demand: Instant) -> Instant {
        let Transmission { bytes, start, on_link, busy } = *packet;
        let (start, on_link) = (raw(start), raw(on_link));
        // In whole nanoseconds, with that `had_packets` rounds towards no: the long way asks again.
        if bytes <= self.fits
            && self.over
            && start < LATE
            && busy.from.max(demand).as_nanos() <= self.until_floor().wrapping_add(1)
            && let Ok(late) = i64::try_from(start.less(self.next))
        {
            return self.wait_on(start, on_link, bytes, late.min(0));
        }
        self.charge_wide(start, on_link, bytes, raw(busy.since.max(demand.into())))
    }

    /// The same for whatever class. Since `since` it has had packets and the link has not been idle.
    #[inline(always)]
    fn charge_wide(&mut self, start: i128, on_link: i128, bytes: u64, since: i128) -> Instant {
        if self.wake == Instant::NEVER {
            return self.wake;
        }
        let cost = raw(self.per_byte.time_for(bytes));
        if self.bursts {
            return self.charge_burst(start, on_link, cost, since);
        }
        // What `charge_burst` does where each packet is a burst of its own.
        let begin = if self.over { self.begin(start, since) } else { start };
        self.until = start.plus(on_link);
        let (end, idle) = (begin.plus(on_link), begin.less(self.next));
        if !self.over || idle > 0 {
            return self.enter(end, idle, cost, on_link, self.over);
        }
        // What `enter` comes to for a class that was waiting and is not late: it goes on waiting.
        let gain_log2 = self.gain_log2 & 31;
        (self.average, self.last) = ((idle >> gain_log2).max(self.least), end);
        self.wait_until(begin.plus(cost.max(on_link)).plus(self.debt(gain_log2)))
    }

    /// The same in words, for a class that always has packets and sends by so much before its time.
    /// `idle` is 0 or less, and all else below 2^61, because the packet `fits`.
    #[inline(always)]
    fn wait_on(&mut self, start: i128, on_link: i128, bytes: u64, idle: i64) -> Instant {
        let begin = if idle < 0 { start } else { self.next };
        let (on_link, cost) = (on_link as u64, self.per_byte.raw().times(bytes));
        let gain_log2 = self.gain_log2 & 31;
        let average = (idle >> gain_log2).max(self.least as i64);
        let debt = average.less(average << gain_log2) as u64;
        (self.average, self.until) = (average.into(), start.plus(on_link.into()));
        self.last = begin.plus(on_link.into());
        self.next = begin.plus(cost.max(on_link).plus(debt).into());
        // It is not `LATE`, so that this is a time.
        self.wake = Instant::from_nanos((self.next.plus(NANOSECOND - 1) >> 32) as u64);
        self.wake
    }

    /// The plain form of `charge`: packets of a burst enter the average together.
    #[cold]
    fn charge_burst(&mut self, start: i128, on_link: i128, cost: i128, since: i128) -> Instant {
        let begun = self.burst.on_link > 0;
        let regulated = if begun { self.burst.regulated } else { self.over };
        let begin = if regulated { self.begin(start, since) } else { start };
        self.until = start + on_link;
        let end = begin + on_link;
        let burst = &mut self.burst;
        burst.regulated = regulated;
        burst.idle += begin - self.next;
        burst.cost += cost;
        burst.on_link += on_link;
        // A burst that was waited for. One that starts late has earned more, and one that starts
        // early (an inner class, for a child within its share) is none.
        if burst.left > 1 && (begun || (regulated && (0..=cost - on_link).contains(&burst.idle))) {
            burst.left -= 1;
            (self.next, self.wake) = (end, Instant::ZERO);
            return self.wake;
        }
        let burst = core::mem::replace(&mut self.burst, NO_BURST);
        self.bursts = self.minburst > 1;
        self.enter(end, burst.idle, burst.cost, burst.on_link, regulated)
    }

    /// A burst enters the average. It ended at `end`, began `idle` after it might have, took `cost`
    /// at the class's rate and `on_link` on the link. `regulated`: it was waited for.
    #[inline(always)]
    fn enter(&mut self, end: i128, idle: i128, cost: i128, on_link: i128, regulated: bool) -> Instant {
        let own = cost.less(on_link).max(0);
        // At most 10: a shift by less than a word is one instruction.
        let gain_log2 = self.gain_log2 & 31;
        let (average, wait) = if regulated {
            // When the waiting ended the average was 0. What this burst costs is waited for next.
            (idle >> gain_log2, own)
        } else {
            let idle = end.less(self.last).less(cost);
            let wait = own.saturating_mul(i128::from(self.minburst)).min(MOST_CREDIT);
            (self.average.plus(idle.less(self.average) >> gain_log2), wait)
        };
        self.average = average.clamp(self.least, self.most);
        self.last = end;
        // Credit within the resolution of clocks is none.
        self.over = self.average <= NANOSECOND >> gain_log2;
        if !self.over {
            (self.next, self.wake) = (end, Instant::ZERO);
            return self.wake;
        }
        self.average = self.average.min(0);
        self.wait_until(end.plus(wait).plus(self.debt(gain_log2)))
    }

    /// The next packet, starting at x, brings the average to 0 if its idle time
    /// x + on_link - last - cost = -(G - 1) * average.
    #[inline(always)]
    fn debt(&self, gain_log2: u32) -> i128 {
        self.average.less(self.average << gain_log2)
    }

    /// The class is overlimit until `next`, which is not negative: no packet ends before time begins, and no
    /// debt is below 0.
    #[inline(always)]
    fn wait_until(&mut self, next: i128) -> Instant {
        debug_assert!(next >= 0, "a class waits for a time before all time");
        (self.next, self.burst.left) = (next, self.minburst);
        self.wake = Fine::from_raw(next as u128).ceil();
        self.wake
    }

    /// When the packet that starts at `start` on the link begins in the class's own time: a class
    /// that has waited waits for the link no longer than it must.
    #[inline(always)]
    fn begin(&self, start: i128, since: i128) -> i128 {
        if !self.own_time {
            return start.min(self.from(start));
        }
        let from = if self.had_packets(since) { self.next } else { self.from(since) };
        start.min(from)
    }
    /// A class is not without packets while its last one is on the link.
    #[inline(always)]
    fn had_packets(&self, since: i128) -> bool {
        since <= self.until.plus(NANOSECOND)
    }
    /// The whole nanoseconds of `until`, which is not negative.
    #[inline(always)]
    fn until_floor(&self) -> u64 {
        (self.until >> 32) as u64
    }
    /// Hosts count whole nanoseconds: who starts in the nanosecond in which its waiting ended
    /// is in time. Who starts before that has borrowed.
    #[inline]
    fn from(&self, start: i128) -> i128 {
        if start.less(self.next) < NANOSECOND { self.next } else { start }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(start: Fine, on_link: Fine, bytes: u64, busy_since: Fine) -> Transmission {
        Transmission { bytes, start, on_link, busy: Busy::since(busy_since) }
    }

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
            own_time: true,
        };
        let mut estimator = Estimator::new(&shape, link);
        let (on_link, cost) = (link.time_for(len), shape.rate.time_for(len.into()).raw());
        let mut free = Fine::from_nanos(TEN_YEARS_NS);
        // When waiting began first, after what the first burst left in the average, and last;
        // the packets between.
        let (mut first, mut last, mut sent, mut since) = (0, 0, 0u32, 0u32);
        let mut busy_since = free;
        for n in 0..30_000 {
            let wake = estimator.charge(&packet(free, on_link, len.into(), busy_since), Instant::ZERO);
            let paused = Fine::from(wake) > free + on_link;
            free = (free + on_link).max(wake.into());
            busy_since = if paused { free } else { busy_since };
            since += 1;
            if n >= 10_000 && wake > Instant::ZERO {
                last = estimator.next;
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
    /// A class that had its next packet before the last one had left the link, to the nanosecond, was
    /// never without packets: its next one begins in its own time. Otherwise it begins when it came.
    #[test]
    fn a_class_is_not_without_packets_while_its_last_one_is_on_the_link() {
        let link = Link::new(Rate::from_mbps(10), 0, 1_500);
        let shape = Shape {
            rate: Rate::from_mbps(1),
            gain_log2: 5,
            maxburst: 16,
            minburst: 2,
            packet_bytes: 1_500,
            largest_bytes: 1_500,
            minidle: true,
            waits: true,
            own_time: true,
        };
        let mut estimator = Estimator::new(&shape, &link);
        let us = |n: i128| n * 1_000 * NANOSECOND;
        (estimator.next, estimator.until) = (us(50), us(100));
        for (since, begins) in [
            (us(40), us(50)),
            (us(100), us(50)),
            (us(100) + NANOSECOND, us(50)),
            (us(100) + NANOSECOND + 1, us(100) + NANOSECOND + 1),
            (us(120), us(120)),
        ] {
            assert_eq!(estimator.begin(us(200), since), begins, "since {since}");
        }
        // It came when its waiting had ended: within the same nanosecond counts as in time.
        estimator.until = us(10);
        for (since, begins) in [(us(50) + NANOSECOND - 1, us(50)), (us(50) + NANOSECOND, us(50) + NANOSECOND)]
        {
            assert_eq!(estimator.begin(us(200), since), begins, "since {since}");
        }
    }
    /// A packet that is a burst by itself enters the average by the short way as by the plain one, whatever
    /// came before. Reversed: a class that sends bursts does not.
    #[test]
    fn the_short_way_is_the_plain_one() {
        let mut all_in_words = 0;
        for seed in weir_seed::seeds(20) {
            let mut random = crate::Random::new(seed);
            let link = Link::new(Rate::from_mbps(10), 24, 1_500);
            let (mut others, mut in_time, mut in_words) = ([0, 0], 0, 0);
            for minburst in [1, 2] {
                // Times of the slower one do not fit into words.
                let rate = Rate::from_bps([1_000_000, 64_000][random.below(2) as usize]);
                let own_time = random.below(2) == 0;
                let waits = Shape { rate, minburst, waits: true, own_time, ..shape(5) };
                let mut estimator = Estimator::new(&waits, &link);
                let mut now = Fine::from_nanos(random.below(1 << 40));
                for _ in 0..2_000 {
                    let (len, pause) =
                        (40 + random.below(1_400) as u32, random.below(3) * random.below(20_000_000));
                    now += Fine::from_raw(u128::from(pause) << random.below(36));
                    let busy_since = [Fine::ZERO, now][random.below(2) as usize];
                    let demand = Instant::from_nanos(random.below(1 << 41)).min(now.floor());
                    let since = raw(busy_since.max(demand.into()));
                    let (on_link, bytes) = (link.time_for(len), link.cost_bytes(len));
                    let cost = raw(estimator.per_byte.time_for(bytes));
                    let packet = packet(now, on_link, bytes, busy_since);
                    let mut plain = estimator;
                    let wake = plain.charge_burst(raw(now), raw(on_link), cost, since);
                    let waited = estimator.over && minburst == 1;
                    let fits = bytes <= estimator.fits && estimator.had_packets(since);
                    in_words += u32::from(waited && fits);
                    in_time += u32::from(waited && plain.last - raw(on_link) <= estimator.next);
                    let mut alone = estimator;
                    (alone.minburst, alone.burst) = (1, NO_BURST);
                    others[minburst as usize - 1] += u32::from(alone.charge(&packet, demand) != wake);
                    assert_eq!(estimator.charge(&packet, demand), wake, "seed {seed}");
                    assert_eq!(estimator, plain, "seed {seed}");
                    // It waits, or it borrows.
                    let ready = if random.below(2) == 0 { now.max(wake.into()) } else { now };
                    now = ready.min(now + Fine::from_nanos(1 << 30)) + on_link;
                }
            }
            assert!(others[0] == 0 && others[1] > 10, "seed {seed}: {others:?}");
            assert!(in_time > 100, "seed {seed}: {in_time}");
            all_in_words += in_words;
        }
        assert!(all_in_words > 100, "{all_in_words} in words");
    }

    /// A class of 1 Mbit/s with this gain on a link of 10, to be changed.
    fn shape(gain_log2: u32) -> Shape {
        Shape {
            rate: Rate::from_mbps(1),
            gain_log2,
            maxburst: 4,
            minburst: 3,
            packet_bytes: 1_000,
            largest_bytes: 1_500,
            minidle: true,
            waits: false,
            own_time: false,
        }
    }

    /// [CBQ95 section IV] in floats and nanoseconds, for packets that enter the average one by one:
    /// average, end of the last one, when the next may start, and whether that is waited for.
    struct Plain {
        gain: f64,
        average: f64,
        last: f64,
        next: f64,
        over: bool,
    }

    impl Plain {
        fn charge(&mut self, start: f64, on_link: f64, cost: f64, least: f64, most: f64) {
            let late = start - self.next;
            let begin = if self.over && (0.0..1.0).contains(&late) { self.next } else { start };
            let end = begin + on_link;
            let idle = end - self.last - cost;
            let average = match self.over {
                true => (begin - self.next) / self.gain,
                false => self.average + (idle - self.average) / self.gain,
            };
            self.average = average.clamp(least, most);
            (self.last, self.next) = (end, end);
            self.over = self.average <= 1.0 / self.gain;
            if self.over {
                self.average = self.average.min(0.0);
                self.next = end + (cost - on_link).max(0.0) - (self.gain - 1.0) * self.average;
            }
        }
    }

    /// True if average and waiting are those of the formulas at every packet of a random run, with a
    /// gain in the formulas that is `factor` times that of the estimator.
    fn follows_the_formulas(seed: u64, factor: f64) -> bool {
        let mut random = crate::Random::new(seed);
        let link = Link::new(Rate::from_mbps(10), 20, 1_500);
        let gain_log2 = 1 + random.below(6) as u32;
        let shape = Shape { minidle: random.below(2) == 0, ..shape(gain_log2) };
        let mut estimator = Estimator::new(&shape, &link);
        let gain = f64::from(1 << gain_log2) * factor;
        let on_link = |len: u64| (len + 20) as f64 * 800.0;
        // A burst of four from an idle class uses up all the credit; one packet comes for nothing.
        let base = 9.0 * on_link(1_000);
        let most = (base * ((gain / (gain - 1.0)).powi(3) - 1.0)).max(on_link(1_000) / gain);
        let least = if shape.minidle { -10.0 * on_link(1_500) } else { f64::MIN };
        let mut plain = Plain { gain, average: most, last: 0.0, next: 0.0, over: false };
        if (estimator.most_ns() as f64 - most).abs() > 1.0 {
            return false;
        }
        let mut free = 0;
        for _ in 0..300 {
            // Back to back, at the time when it may, or after a pause.
            let wake = estimator.wake().as_nanos();
            let start = match random.below(4) {
                0 => free,
                1 | 2 => free.max(wake),
                _ => free + random.below(40_000_000),
            };
            let len = 40 + random.below(1_461);
            let (time, bytes) = (link.time_for(len as u32), len + 20);
            let packet = packet(Fine::from_nanos(start), time, bytes, Fine::ZERO);
            let wake = estimator.charge(&packet, Instant::ZERO);
            plain.charge(start as f64, on_link(len), 10.0 * on_link(len), least, most);
            let underlimit = if plain.over { plain.next } else { 0.0 };
            let waits = (wake.as_nanos() as f64 - underlimit).abs() < 100.0;
            if (estimator.average_ns() as f64 - plain.average).abs() > 2.0 || !waits {
                return false;
            }
            free = start + time.ceil().as_nanos();
        }
        true
    }

    /// A class that may borrow, and so need not wait: its packets enter the average one by one. Reversed:
    /// another gain is seen to be another.
    #[test]
    fn a35_averages_and_waits_are_those_of_the_formulas() {
        for seed in weir_seed::seeds(200) {
            assert!(follows_the_formulas(seed, 1.0), "seed {seed}");
        }
        assert!(weir_seed::seeds(20).all(|seed| !follows_the_formulas(seed, 2.0)));
    }

    /// Another share, another gain: credit and debt stay as far as the new bounds allow, a burst that
    /// was begun is no longer than the new `minburst`, and a class without a share waits until it has one.
    #[test]
    fn a_change_of_shape_keeps_what_it_can() {
        let link = Link::new(Rate::from_mbps(10), 0, 1_500);
        let waiting = Shape { waits: true, ..shape(5) };
        let mut estimator = Estimator::new(&waiting, &link);
        let most = estimator.most_ns();
        assert_eq!(estimator.average_ns(), most);
        estimator.shape(&Shape { maxburst: 8, ..waiting }, &link);
        assert_eq!(estimator.average_ns(), most, "room for more credit gives none");
        estimator.shape(&Shape { maxburst: 2, ..waiting }, &link);
        assert!(estimator.most_ns() < most && estimator.average_ns() == estimator.most_ns());
        let on_link = link.time_for(1_000);
        let mut start = Fine::ZERO;
        while estimator.wake() == Instant::ZERO {
            estimator.charge(&packet(start, on_link, 1_000, Fine::ZERO), Instant::ZERO);
            start += on_link;
        }
        assert_eq!((estimator.minburst, estimator.burst.left), (3, 3));
        estimator.shape(&Shape { minburst: 2, ..waiting }, &link);
        assert_eq!((estimator.minburst, estimator.burst.left), (2, 2));
        estimator.shape(&Shape { waits: false, ..waiting }, &link);
        assert_eq!(
            (estimator.minburst, estimator.burst.left),
            (1, 1),
            "who may borrow does not wait for bursts"
        );
        let wake = estimator.wake();
        estimator.shape(&waiting, &link);
        assert_eq!(estimator.wake(), wake, "it waits on");
        estimator.shape(&Shape { rate: Rate::ZERO, ..waiting }, &link);
        assert_eq!(estimator.wake(), Instant::NEVER);
        assert_eq!(
            estimator.charge(&packet(start, on_link, 1_000, Fine::ZERO), Instant::ZERO),
            Instant::NEVER
        );
        estimator.shape(&waiting, &link);
        assert_eq!(estimator.wake(), Instant::ZERO);
    }
}
