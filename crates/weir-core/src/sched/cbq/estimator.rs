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
mod tests;
