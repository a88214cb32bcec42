//! RED: drop early and at random, by the average queue, before the queue is full.
//!
//! Principle: an exponentially weighted average of the queue tells congestion from a burst. Below
//! `thmin` nothing is dropped; between the thresholds an arrival is dropped with a probability
//! that rises to `pmax`, spread evenly over time by counting the arrivals since the last drop;
//! from `thmax` on everything is dropped. A sender that understands ECN is marked instead.
//! Paper: Floyd and Jacobson, "Random Early Detection Gateways for Congestion Avoidance",
//! IEEE/ACM Transactions on Networking 1(4), 1993: section 4 is `Average::update` and
//! `Ramp::zone`, section 7 (method 2) is `early`, section 11 the idle time. `gentle`: Floyd,
//! "Recommendation on using the gentle variant of RED", 2000. ECN: RFC 3168, section 7.
//! Where we differ, and why: as in ALTQ the gap between drops is uniform over 1..2/p_b, by
//! p_a = p_b / (2 - count p_b), not over 1..1/p_b, so that drops do not come back to back and p_b
//! is the drop rate that results (`wait` gives ns-2's gap, 1/p_b..2/p_b); nothing is dropped while fewer than two packets wait; the first arrival
//! above `thmin` is spared. The idle correction counts packet times of `packetsize` at the
//! queue's rate, in nanoseconds everywhere (ALTQ passed ns for us in two schedulers).
//! Cost: some 3 ns a packet and a random draw between the thresholds; 144 bytes a queue.
//! Guarantees: `a30_probability_is_within_a_percent_of_the_exact_one`,
//! `a30_drop_rate_is_as_theory_says`, `a31_ecn_marks_what_would_have_been_dropped`,
//! `idle_time_decays_the_average_as_the_reference`.
//! Parameters: `qlimit` (packets, 60), `thmin`, `thmax` (packets, 5 and 15; in a class 10 % and
//! 30 % of `qlimit`), `invpmax` (10) or `pmax` (0 to 1), `weight` (inverse of w_q, a power of
//! two; 0 chooses 512, or 128 and 64 below 300 and 50 packets a second), `packetsize` (bytes,
//! 1000; in a class the MTU), `ecn`, `gentle`, `wait`, `flowvalve` (see `flow_valve.rs`). All at run time.

use super::flow_valve::FlowValve;
use super::{Aqm, Decision};
use crate::Random;
use crate::packet::{List, PacketId};
use crate::queue::{Cx, DropReason, Link, ParamError, Params, Visit};
use crate::units::{Fraction, Instant, Rate};
use alloc::boxed::Box;

/// Fractional bits of a queue length: thresholds are compared in units of 2^-24 packets.
pub(super) const LENGTH_BITS: u32 = 24;
/// The greatest queue that enters an average. With the weight's 16 bits and the fraction's 24,
/// 2^22 packets stay below 2^62.
const LONGEST: u32 = 1 << 22;
/// One, for probabilities in units of 2^-63.
const ONE: u64 = 1 << 63;

/// The exponentially weighted average of a queue length, [RED93 section 4].
#[derive(Clone, Copy, Debug)]
pub(super) struct Average {
    /// avg / w_q, in units of 2^-24 packets: kept multiplied, so that small weights lose nothing.
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
    pub(super) fn new(weight: u64, packet_bytes: u64, rate: Rate, link: &Link) -> Self {
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
    pub(super) fn keep(self, old: Average) -> Average {
        Average { scaled: old.value() << self.shift, idle_from: old.idle_from, ..self }
    }
    /// An arrival finds `queue` packets.
    pub(super) fn update(&mut self, now: Instant, queue: u32) {
        if queue == 0 {
            self.idle(now);
        }
        self.idle_from = now;
        // avg' = avg + w_q (q - avg), multiplied by 2^shift. The shift rounds down by less than
        // one unit a step, which the feedback bounds to one unit of 2^-24 packets in avg.
        let queue = u64::from(queue.min(LONGEST)) << LENGTH_BITS;
        self.scaled = self.scaled - (self.scaled >> self.shift) + queue;
    }
    /// The queue was left empty.
    pub(super) fn emptied(&mut self, now: Instant) {
        self.idle_from = now;
    }
    /// avg' = avg (1 - w_q)^m, where m packets could have left since the queue went idle.
    fn idle(&mut self, now: Instant) {
        let idle = u128::from(now.since(self.idle_from).as_nanos()) << 16;
        if self.scaled == 0 || idle < u128::from(self.packet_time) {
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
    pub(super) fn value(&self) -> u64 {
        self.scaled >> self.shift
    }
    /// 1/w_q.
    pub(super) fn weight(&self) -> u64 {
        1 << self.shift
    }
}

/// The product of a number and a fraction of 2^64.
fn high(a: u64, b: u64) -> u64 {
    ((u128::from(a) * u128::from(b)) >> 64) as u64
}

/// Where an average stands between the thresholds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Zone {
    /// Below them.
    Pass,
    /// Between them: p_b / 2, in units of 2^-63.
    Early(u64),
    /// Above them.
    Forced,
}

/// The probability of a drop by the average: 0 below `min`, rising to p_max at `max`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ramp {
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
    pub(super) fn new(min: u64, max: u64, pmax: Fraction, gentle: bool) -> Self {
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
    pub(super) fn zone(&self, average: u64) -> Zone {
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
pub(super) fn early(half: u64, count: u32, wait: bool, random: &mut Random) -> bool {
    let passed = half.saturating_mul(u64::from(count));
    let rest = ONE.saturating_sub(passed);
    half > 0 && !(wait && passed < ONE / 2) && (rest <= half || random.below(rest) < half)
}

/// What a person set, beside what follows from it.
#[derive(Clone, Copy, Debug)]
struct Settings {
    thmin: Option<u64>,
    thmax: Option<u64>,
    pmax: Fraction,
    weight: u64,
    packet_bytes: u64,
    rate: Rate,
    gentle: bool,
    wait: bool,
    ecn: bool,
    limit: u64,
    /// Thresholds left out are shares of the limit, as in a class; else 5 and 15 packets.
    in_class: bool,
}

/// The state of one RED queue.
#[derive(Debug)]
pub struct Red {
    average: Average,
    ramp: Ramp,
    /// Arrivals since the last drop.
    count: u32,
    /// The last arrival found the average at `thmin` or above.
    above: bool,
    wait: bool,
    ecn: bool,
    early: u64,
    forced: u64,
    marks: u64,
    settings: Settings,
    valve: Option<Box<FlowValve>>,
}

impl Red {
    /// RED for a queue of `limit` packets that expects `rate`, as `params` say.
    ///
    /// # Errors
    /// `ParamError` for parameters that contradict each other.
    pub(crate) fn new(
        class: &str,
        params: &Params,
        rate: Rate,
        limit: u32,
        link: &Link,
        in_class: bool,
    ) -> Result<Self, ParamError> {
        let packet_bytes = if in_class { u64::from(link.mtu) } else { 1000 };
        let base = Settings {
            thmin: None,
            thmax: None,
            pmax: Fraction::ratio(1, 10),
            weight: 0,
            packet_bytes,
            rate,
            gentle: false,
            wait: false,
            ecn: false,
            limit: u64::from(limit),
            in_class,
        };
        let settings = base.with(class, params)?;
        let (thmin, thmax) = settings.thresholds();
        Ok(Red {
            average: Average::new(settings.weight, settings.packet_bytes, rate, link),
            ramp: Ramp::new(thmin, thmax, settings.pmax, settings.gentle),
            count: 0,
            above: false,
            wait: settings.wait,
            ecn: settings.ecn,
            early: 0,
            forced: 0,
            marks: 0,
            settings,
            valve: params.has("flowvalve").then(|| Box::new(FlowValve::new(settings.pmax, thmax))),
        })
    }
    /// The upper threshold, packets: a queue is never shorter.
    pub(crate) fn thmax(&self) -> u64 {
        self.settings.thresholds().1
    }
}

/// A weight is a power of two, so that averaging is a shift.
///
/// # Errors
/// `ParamError` for another number.
pub(super) fn checked_weight(class: &str, field: &str, weight: u64) -> Result<u64, ParamError> {
    if weight == 0 || (weight.is_power_of_two() && weight <= 65_536) {
        return Ok(weight);
    }
    let near = 1u64 << weight.min(65_536).ilog2();
    Err(ParamError::new(
        class,
        field,
        weight,
        alloc::format!("a power of two up to 65536, or 0 to choose: {near}"),
    ))
}

/// p_max as `pmax` or as its inverse, whichever is there; 0 of either is the default, 1/10.
///
/// # Errors
/// `ParamError` if both are.
pub(super) fn probability(
    class: &str,
    params: &Params,
    names: [&str; 2],
) -> Result<Option<Fraction>, ParamError> {
    let inverse = params.count(names[0]).map(|n| Fraction::ratio(1, if n == 0 { 10 } else { n }));
    match (inverse, params.fraction(names[1])) {
        (Some(_), Some(found)) => Err(ParamError::new(
            class,
            names[1],
            crate::queue::Value::Fraction(found),
            alloc::format!("either {} or {}, not both", names[0], names[1]),
        )),
        (inverse, real) => Ok(inverse.or(real)),
    }
}

impl Settings {
    fn with(mut self, class: &str, params: &Params) -> Result<Self, ParamError> {
        let given = |name: &str| params.count(name).filter(|&n| n != 0);
        self.thmin = given("thmin").or(self.thmin);
        self.thmax = given("thmax").or(self.thmax);
        self.limit = super::queue_limit(class, params)?.map_or(self.limit, u64::from);
        self.packet_bytes = params.bytes("packetsize").unwrap_or(self.packet_bytes);
        if let Some(weight) = params.count("weight") {
            self.weight = checked_weight(class, "weight", weight)?;
        }
        self.pmax = probability(class, params, ["invpmax", "pmax"])?.unwrap_or(self.pmax);
        self.gentle |= params.has("gentle");
        self.wait |= params.has("wait");
        self.ecn |= params.has("ecn");
        for (name, packets) in [("thmin", self.thmin), ("thmax", self.thmax)] {
            if let Some(packets) = packets.filter(|&n| n > u64::from(LONGEST)) {
                return Err(ParamError::new(class, name, packets, "at most 4194304 packets"));
            }
        }
        let (thmin, thmax) = self.thresholds();
        if thmin >= thmax {
            let expected = alloc::format!("less than thmax, which is {thmax} packets");
            return Err(ParamError::new(class, "thmin", thmin, expected));
        }
        Ok(self)
    }
    fn thresholds(&self) -> (u64, u64) {
        let (min, max) = if self.in_class { (self.limit / 10, self.limit * 3 / 10) } else { (5, 15) };
        // Of a tiny limit both shares may be 0.
        let (min, max) = (self.thmin.unwrap_or(min), self.thmax.unwrap_or(max));
        (min, if self.thmax.is_none() && self.in_class { max.max(min + 1) } else { max })
    }
}

impl Red {
    /// The decision by the average, after it has been updated.
    fn judge(&mut self, random: &mut Random, packets: u32, limit: u32, capable: bool) -> Decision {
        self.count = self.count.saturating_add(1);
        if packets >= limit {
            self.count = 0;
            self.forced += 1;
            return Decision::Drop(DropReason::Tail);
        }
        let zone = self.ramp.zone(self.average.value());
        if zone == Zone::Pass || packets <= 1 {
            self.above = false;
            return Decision::Accept;
        }
        if let Zone::Early(half) = zone {
            if !self.above {
                (self.above, self.count) = (true, 1);
                return Decision::Accept;
            }
            if !early(half, self.count, self.wait, random) {
                return Decision::Accept;
            }
            self.count = 0;
            if self.ecn && capable {
                self.marks += 1;
                return Decision::Mark(DropReason::Early);
            }
            self.early += 1;
            return Decision::Drop(DropReason::Early);
        }
        self.count = 0;
        self.forced += 1;
        Decision::Drop(DropReason::Early)
    }
}

impl Aqm for Red {
    fn arrive(&mut self, cx: &mut Cx, queue: &List, limit: u32, id: &PacketId) -> Decision {
        let packets = queue.packets();
        if cx.adopting() {
            self.average.update(cx.now, packets);
            return Decision::Accept;
        }
        let row = cx.packets.get(id);
        if let Some(valve) = &mut self.valve
            && valve.arrive(cx.now, row)
        {
            return Decision::Drop(DropReason::Early);
        }
        self.average.update(cx.now, packets);
        let decision = self.judge(&mut cx.random, packets, limit, row.ecn_capable());
        if let Some(valve) = &mut self.valve
            && decision != Decision::Accept
        {
            valve.lost(cx.now, row);
        }
        decision
    }
    fn depart(&mut self, cx: &mut Cx, queue: &List, _id: &PacketId) -> Decision {
        if queue.is_empty() {
            self.average.emptied(cx.now);
        }
        Decision::Accept
    }
    fn reconfigure(&mut self, class: &str, params: &Params, link: &Link) -> Result<(), ParamError> {
        let settings = self.settings.with(class, params)?;
        let (thmin, thmax) = settings.thresholds();
        let average = Average::new(settings.weight, settings.packet_bytes, settings.rate, link);
        self.average = average.keep(self.average);
        self.ramp = Ramp::new(thmin, thmax, settings.pmax, settings.gentle);
        (self.ecn, self.wait) = (settings.ecn, settings.wait);
        self.settings = settings;
        match &mut self.valve {
            Some(valve) => valve.set(settings.pmax, thmax),
            None if params.has("flowvalve") => {
                self.valve = Some(Box::new(FlowValve::new(settings.pmax, thmax)));
            }
            None => {}
        }
        Ok(())
    }
    fn visit_stats(&self, visit: &mut dyn Visit) {
        let (thmin, thmax) = self.settings.thresholds();
        let average = (self.average.value() * 1000) >> LENGTH_BITS;
        visit.value("average", "packets/1000", average as i64);
        visit.value("dropped_early", "packets", self.early as i64);
        visit.value("dropped_forced", "packets", self.forced as i64);
        visit.value("marked_early", "packets", self.marks as i64);
        visit.value("thmin", "packets", thmin as i64);
        visit.value("thmax", "packets", thmax as i64);
        visit.value("pmax", "2^-32", self.settings.pmax.raw() as i64);
        visit.value("weight", "", self.average.weight() as i64);
        if let Some(valve) = &self.valve {
            visit.value("dropped_by_flowvalve", "packets", valve.dropped() as i64);
            visit.value("flows_in_penalty_box", "", valve.boxed() as i64);
        }
    }
}

#[cfg(test)]
#[path = "red_tests.rs"]
mod tests;
