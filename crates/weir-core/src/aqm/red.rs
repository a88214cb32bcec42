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
//! p_a = p_b / (2 - count p_b), not over 1..1/p_b. So drops do not come back to back, and p_b
//! is the drop rate that results. `wait` gives ns-2's gap, 1/p_b..2/p_b. Nothing is dropped while
//! fewer than two packets wait, and the first arrival above `thmin` is spared. The idle correction counts packet times of `packetsize` at the
//! queue's rate, in nanoseconds everywhere (ALTQ passed ns for us in two schedulers).
//! Cost: some 3 ns per packet and a random draw between the thresholds; 208 bytes per queue.
//! Guarantees: `a30_probability_is_within_a_percent_of_the_exact_one`,
//! `a30_drop_rate_is_as_theory_says`, `a31_ecn_marks_what_would_have_been_dropped`,
//! `idle_time_decays_the_average_as_the_reference`.
//! Parameters: `qlimit` (packets, 60), `thmin`, `thmax` (packets, 5 and 15; in a class 10 % and
//! 30 % of `qlimit`), `invpmax` (10) or `pmax` (0 to 1), `weight` (inverse of w_q, a power of
//! two; 0 chooses 512, 128 or 64 by the rate), `packetsize` (bytes, 1000; in a class the MTU), `ecn`, `gentle`, `wait`, `flowvalve` (see `flow_valve.rs`). All at run time.

use super::average::{Average, LENGTH_BITS, LONGEST, Ramp, Zone, early};
use super::contract::{Aqm, Decision, Departures};
use super::entry::{AqmEntry, Built, QueueConfig};
use super::flow_valve::FlowValve;
use super::params::{
    BY_CHANCE, CLASS_ECN, ECN, PACKET_SIZE, checked_weight, count, in_class, probability, qlimit, queue_limit,
};
use crate::packet::{List, PacketId};
use crate::queue::ParamSpec as P;
use crate::queue::params::default_of;
use crate::queue::{Bound, Cx, DropReason, Kind, Link, ParamError, ParamSpec, Params, Visit};
use crate::units::{Bounded, Fraction, Rate};
use alloc::boxed::Box;

const PACKETS: Kind = count(0, 1_000_000);
const LIMIT: ParamSpec = qlimit("60");
/// Words of RED on an interface and on a class.
const TUNING: [ParamSpec; 7] = [
    P::discipline(
        "weight",
        count(0, 65_536),
        "0",
        "Inverse of the weight of a new sample, a power of two; 0 chooses 512, 128 or 64 by the rate.",
    )
    .within(&[Bound::PowerOfTwo]),
    P::discipline("thmin", PACKETS, "5", "RED's lower threshold, packets; in a class 10 % of qlimit."),
    P::discipline("thmax", PACKETS, "15", "RED's upper threshold, packets; in a class 30 % of qlimit.")
        .within(&[Bound::Above { word: "thmin", why: BY_CHANCE }, Bound::InQueue]),
    P::discipline("invpmax", count(1, 1_000_000), "10", "Inverse of the drop probability just below thmax."),
    P::discipline(
        "pmax",
        Kind::Fraction,
        "0.1",
        "The same probability itself, in place of its inverse: 0 to 1.",
    ),
    P::discipline("gentle", Kind::Flag, "", "Between thmax and twice thmax drop with rising probability."),
    P::discipline("wait", Kind::Flag, "", "At least 1/p arrivals between two early drops, as in ns-2."),
];

/// Lower and upper threshold of a discipline that is one queue.
const THRESHOLDS: (u64, u64) = (default_of(&TUNING, "thmin"), default_of(&TUNING, "thmax"));

/// The line in the list of AQMs.
pub(super) const ENTRY: AqmEntry = AqmEntry {
    name: "red",
    source: include_str!("red.rs"),
    params: &[
        &[LIMIT, PACKET_SIZE],
        &TUNING,
        &[ECN, P::discipline("flowvalve", Kind::Flag, "", "A penalty box for unresponsive flows.")],
    ],
    class_params: &[
        &[
            P::class("red", Kind::Flag, "", "RED: thresholds at 10 % and 30 % of the queue's length."),
            CLASS_ECN,
            P::class("flowvalve", Kind::Flag, "", "RED with a penalty box for unresponsive flows."),
        ],
        &in_class(TUNING),
    ],
    // They alone mean RED, as they always did.
    asked_by: &["flowvalve", "ecn"],
    usual_limit: LIMIT.default_number() as u32,
    build,
    ..AqmEntry::PLAIN
};

fn build(queue: &QueueConfig<'_>) -> Built {
    Ok(Box::new(Red::new(queue)?))
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
    /// Thresholds left out are shares of the limit, as in a class; else `THRESHOLDS`.
    in_class: bool,
}

/// The state of one RED queue.
#[derive(Debug)]
pub struct Red {
    average: Average,
    ramp: Ramp,
    /// Arrivals since the last drop, counted one by one: no machine comes to 2^64.
    count: u64,
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

const _: () = assert!(size_of::<Red>() == 208, "its cost above says so");

impl Red {
    /// RED for a queue, as its parameters say.
    ///
    /// # Errors
    /// `ParamError` for parameters that contradict each other.
    fn new(queue: &QueueConfig<'_>) -> Result<Self, ParamError> {
        let QueueConfig { class, params, rate, limit, link, in_class } = *queue;
        let packet_bytes = if in_class { u64::from(link.mtu) } else { PACKET_SIZE.default_number() };
        let base = Settings {
            thmin: None,
            thmax: None,
            pmax: Fraction::ratio(1, default_of(&TUNING, "invpmax")),
            weight: default_of(&TUNING, "weight"),
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
}

impl Settings {
    fn with(mut self, class: &str, params: &Params) -> Result<Self, ParamError> {
        let given = |name: &str| params.count(name).filter(|&n| n != 0);
        self.thmin = given("thmin").or(self.thmin);
        self.thmax = given("thmax").or(self.thmax);
        self.limit = queue_limit(class, params)?.map_or(self.limit, u64::from);
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
                return Err(ParamError::new(
                    class,
                    name,
                    packets,
                    alloc::format!("at most {LONGEST} packets"),
                ));
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
        let (min, max) = if self.in_class { (self.limit / 10, self.limit * 3 / 10) } else { THRESHOLDS };
        // Of a tiny limit both shares may be 0.
        let (min, max) = (self.thmin.unwrap_or(min), self.thmax.unwrap_or(max));
        (min, if self.thmax.is_none() && self.in_class { max.max(min + 1) } else { max })
    }
}

impl Red {
    /// The decision by the average, after it has been updated.
    #[inline(always)]
    fn judge(&mut self, cx: &mut Cx, packets: u32, limit: u32, id: &PacketId) -> Decision {
        if packets >= limit {
            self.count = 0;
            self.forced += 1;
            return Decision::Drop(DropReason::Tail);
        }
        let zone = self.ramp.zone(self.average.value());
        if zone == Zone::Pass || packets <= 1 {
            // The count begins anew above `thmin`.
            self.above = false;
            return Decision::Accept;
        }
        if let Zone::Early(half) = zone {
            if !self.above {
                (self.above, self.count) = (true, 1);
                return Decision::Accept;
            }
            self.count = self.count.plus(1);
            if !early(half, self.count, self.wait, &mut cx.random) {
                return Decision::Accept;
            }
            self.count = 0;
            if self.ecn && cx.packets.get(id).ecn_capable() {
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

impl Red {
    /// A packet that a new tree takes over, that the flow valve sees, or that finds the queue empty.
    #[cold]
    fn arrive_otherwise(&mut self, cx: &mut Cx, packets: u32, limit: u32, id: &PacketId) -> Decision {
        if cx.adopting() {
            self.average.update(cx.now, packets);
            return Decision::Accept;
        }
        if let Some(valve) = &mut self.valve
            && valve.arrive(cx.now, cx.packets.get(id))
        {
            return Decision::Drop(DropReason::Early);
        }
        self.average.update(cx.now, packets);
        let decision = self.judge(cx, packets, limit, id);
        if let Some(valve) = &mut self.valve
            && decision != Decision::Accept
        {
            valve.lost(cx.now, cx.packets.get(id));
        }
        decision
    }
}

impl Aqm for Red {
    #[inline(always)]
    fn arrive(&mut self, cx: &mut Cx, queue: &List, limit: u32, id: &PacketId) -> Decision {
        if self.is_rare(cx, queue) {
            return self.arrive_otherwise(cx, queue.packets(), limit, id);
        }
        self.average.meet(cx.now, queue.packets());
        self.judge(cx, queue.packets(), limit, id)
    }
    #[inline(always)]
    fn is_rare(&self, cx: &Cx, queue: &List) -> bool {
        cx.adopting() | self.valve.is_some() | queue.is_empty()
    }
    fn depart(&mut self, cx: &mut Cx, queue: &List, _id: &PacketId) -> Decision {
        if queue.is_empty() {
            self.average.emptied(cx.now);
        }
        Decision::Accept
    }
    fn name(&self) -> &'static str {
        ENTRY.name
    }
    fn departures(&self) -> Departures {
        Departures::Last
    }
    /// As in ALTQ: a queue holds at least what its thresholds speak of.
    fn least_limit(&self) -> u32 {
        self.settings.thresholds().1 as u32
    }
    fn params(&self) -> &'static [&'static [ParamSpec]] {
        ENTRY.params
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
