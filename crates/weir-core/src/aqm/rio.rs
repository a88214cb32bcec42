//! RIO: RED by drop precedence, so that out-of-profile packets are dropped first.
//!
//! Principle: one queue, three RED states. A packet of drop precedence i is judged by the average
//! of its own precedence. It moves that average, and those of all precedences that are dropped
//! sooner. The state of "in profile" counts in-profile packets only, so other traffic makes it drop
//! none. The state of "out" sees the whole queue and has the lowest thresholds.
//! Paper: Clark and Fang, "Explicit Allocation of Best-Effort Packet Delivery Service", IEEE/ACM
//! Transactions on Networking 6(4), 1998; three precedences: RFC 2597.
//! Where we differ, and why: ECN marks (ALTQ read the flag and never marked); each precedence
//! draws from a random stream of its own, so out-of-profile traffic cannot even change which
//! in-profile packet is drawn. Each counts its own arrivals since its own last drop, so that p_b
//! is the share of *them* that is dropped. ALTQ counted those of lower precedences too: where one
//! packet in six is out of profile, it dropped far more of those. Only AF code points carry a
//! precedence, all others have that of `unmarked` (ALTQ took bits of EF as the highest drop
//! precedence). Two precedences are these three with the middle one unused.
//! Cost: one to three averages per packet; 400 bytes per queue.
//! Guarantees: `d05_step_response`, `d05_step_response_among_other_packets`,
//! `d06_out_of_profile_never_touches_in_profile`, `d03_precedences_are_not_reordered`,
//! `ecn_marks_instead`.
//! Parameters: `qlimit` (packets, 60), `packetsize` (bytes, 1000), for each of `lo_`, `med_` and
//! `hi_` (AFx1, AFx2, AFx3): `thmin` and `thmax` (packets: 35 45, 20 30, 5 15), `invpmax` (10) or
//! `pmax` (0 to 1), `weight` (a power of two); `weight` for all that have none; `unmarked` (`lo`,
//! `med` or `hi`; `lo`); `wait` (as RED's); `ecn`. All of them at run time.

use super::average::{Average, LENGTH_BITS, LONGEST, Ramp, Zone, early};
use super::contract::{Aqm, Decision};
use super::entry::{AqmEntry, Built, QueueConfig};
use super::params::{
    BY_CHANCE, CLASS_ECN, ECN, PACKET_SIZE, checked_weight, count, in_class, probability, qlimit,
};
use crate::Random;
use crate::packet::{List, Meta, PacketId};
use crate::queue::ParamSpec as P;
use crate::queue::params::{default_of, default_word};
use crate::queue::{Bound, Cx, DropReason, Kind, Link, ParamError, ParamSpec, Params, Visit};
use crate::sched::{Finding, Node, Setting, given};
use crate::units::{Bounded, Fraction, Instant, Rate};
use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;

const LEVELS: usize = 3;
const NAMES: [[&str; 5]; LEVELS] = [
    ["lo_thmin", "lo_thmax", "lo_invpmax", "lo_pmax", "lo_weight"],
    ["med_thmin", "med_thmax", "med_invpmax", "med_pmax", "med_weight"],
    ["hi_thmin", "hi_thmax", "hi_invpmax", "hi_pmax", "hi_weight"],
];
const PRECEDENCES: &[&str] = &["lo", "med", "hi"];

const PACKETS: Kind = count(0, 1_000_000);
const INVERSE: Kind = count(1, 1_000_000);
const WEIGHT: Kind = count(0, 65_536);
const THMIN: &str = "Least average queue at which this precedence is dropped, packets.";
const THMAX: &str = "Average queue from which all of this precedence is dropped, packets.";
const INVPMAX: &str = "Inverse of the drop probability just below thmax.";
const PMAX: &str = "The same probability itself, in place of its inverse: 0 to 1.";
const OWN_WEIGHT: &str = "Inverse of the weight of a new sample for this precedence, a power of two.";
/// RED's word, for all precedences that have none of their own.
const COMMON_WEIGHT: ParamSpec = P::discipline(
    "weight",
    WEIGHT,
    "0",
    "Inverse of the weight of a new sample, a power of two; 0 chooses 512, 128 or 64 by the rate.",
)
.within(&[Bound::PowerOfTwo]);
const WAIT: ParamSpec =
    P::discipline("wait", Kind::Flag, "", "At least 1/p arrivals between two early drops, as in ns-2.");
const LIMIT: ParamSpec = qlimit("60");
/// Words of RIO on an interface and on a class.
const TUNING: [ParamSpec; 16] = [
    P::discipline("lo_thmin", PACKETS, "35", THMIN),
    P::discipline("lo_thmax", PACKETS, "45", THMAX)
        .within(&[Bound::Above { word: "lo_thmin", why: BY_CHANCE }, Bound::InQueue]),
    P::discipline("lo_invpmax", INVERSE, "10", INVPMAX),
    P::discipline("lo_pmax", Kind::Fraction, "0.1", PMAX),
    P::discipline("lo_weight", WEIGHT, "0", OWN_WEIGHT).within(&[Bound::PowerOfTwo]),
    P::discipline("med_thmin", PACKETS, "20", THMIN),
    P::discipline("med_thmax", PACKETS, "30", THMAX)
        .within(&[Bound::Above { word: "med_thmin", why: BY_CHANCE }, Bound::InQueue]),
    P::discipline("med_invpmax", INVERSE, "10", INVPMAX),
    P::discipline("med_pmax", Kind::Fraction, "0.1", PMAX),
    P::discipline("med_weight", WEIGHT, "0", OWN_WEIGHT).within(&[Bound::PowerOfTwo]),
    P::discipline("hi_thmin", PACKETS, "5", THMIN),
    P::discipline("hi_thmax", PACKETS, "15", THMAX)
        .within(&[Bound::Above { word: "hi_thmin", why: BY_CHANCE }, Bound::InQueue]),
    P::discipline("hi_invpmax", INVERSE, "10", INVPMAX),
    P::discipline("hi_pmax", Kind::Fraction, "0.1", PMAX),
    P::discipline("hi_weight", WEIGHT, "0", OWN_WEIGHT).within(&[Bound::PowerOfTwo]),
    P::discipline(
        "unmarked",
        Kind::Word(PRECEDENCES),
        "lo",
        "Drop precedence of packets without an AF code point.",
    ),
];

/// The line in the list of AQMs.
pub(super) const ENTRY: AqmEntry = AqmEntry {
    name: "rio",
    source: include_str!("rio.rs"),
    params: &[&[LIMIT, PACKET_SIZE, COMMON_WEIGHT], &TUNING, &[WAIT, ECN]],
    class_params: &[
        &[P::class("rio", Kind::Flag, "", "RIO: RED by three drop precedences."), CLASS_ECN],
        &in_class(TUNING),
        &in_class([COMMON_WEIGHT, WAIT]),
    ],
    usual_limit: LIMIT.default_number() as u32,
    build,
    check: Some(check),
    ..AqmEntry::PLAIN
};

/// A lower precedence is protected only if the higher is all dropped before it begins.
fn check(node: &Node, _: &Setting) -> Vec<Finding> {
    let above_zero = |name: &str| node.params.count(name).filter(|n| *n > 0);
    let value = |name: &str| above_zero(name).unwrap_or(default_of(&TUNING, name));
    let mut found = Vec::new();
    for (min, max) in [("lo_thmin", "med_thmax"), ("med_thmin", "hi_thmax")] {
        if value(max) > value(min) {
            let message = format!("`{max}` {} is above `{min}` {}", value(max), value(min));
            let help = "RIO protects a lower precedence only if the higher is all dropped before it begins";
            found.push(Finding::warning(None, given(&node.params, &[max, min]), message, help));
        }
    }
    found
}

/// Values of a DSCP.
const CODE_POINTS: usize = 64;

fn precedence_named(word: &str) -> usize {
    PRECEDENCES.iter().position(|p| *p == word).unwrap_or(0)
}

fn build(queue: &QueueConfig<'_>) -> Built {
    Ok(Box::new(Rio::new(queue)?))
}

/// What a person set for one precedence.
#[derive(Clone, Copy, Debug)]
struct Settings {
    thmin: u64,
    thmax: u64,
    pmax: Fraction,
    /// 0: chosen by the rate.
    weight: u64,
}

#[derive(Clone, Copy, Debug)]
struct Common {
    levels: [Settings; LEVELS],
    packet_bytes: u64,
    rate: Rate,
    unmarked: usize,
    wait: bool,
    ecn: bool,
}

/// RED for one precedence.
#[derive(Debug)]
struct Level {
    ramp: Ramp,
    above: bool,
    early: u64,
    forced: u64,
    marks: u64,
}

/// The state of one RIO queue.
#[derive(Debug)]
pub struct Rio {
    /// Queued packets of each precedence and of those dropped later: at most the rows of a table.
    packets: [u32; LEVELS],
    /// Arrivals of each precedence since its last drop, counted as RED's.
    counts: [u64; LEVELS],
    averages: [Average; LEVELS],
    levels: [Level; LEVELS],
    /// The drop precedence of each code point.
    precedences: [u8; CODE_POINTS],
    /// A stream for each precedence, from the port's at the first arrival.
    random: Option<[Random; LEVELS]>,
    settings: Common,
}

impl Rio {
    /// RIO for a queue, as its parameters say.
    ///
    /// # Errors
    /// `ParamError` for parameters that contradict each other.
    fn new(queue: &QueueConfig<'_>) -> Result<Self, ParamError> {
        let QueueConfig { class, params, rate, link, in_class, .. } = *queue;
        let level = |[thmin, thmax, invpmax, _, weight]: [&str; 5]| Settings {
            thmin: default_of(&TUNING, thmin),
            thmax: default_of(&TUNING, thmax),
            pmax: Fraction::ratio(1, default_of(&TUNING, invpmax)),
            weight: default_of(&TUNING, weight),
        };
        let base = Common {
            levels: NAMES.map(level),
            packet_bytes: if in_class { u64::from(link.mtu) } else { PACKET_SIZE.default_number() },
            rate,
            unmarked: precedence_named(default_word(&TUNING, "unmarked")),
            wait: false,
            ecn: false,
        };
        let settings = base.with(class, params)?;
        let levels = core::array::from_fn(|i| Level {
            ramp: settings.ramp(i),
            above: false,
            early: 0,
            forced: 0,
            marks: 0,
        });
        let averages = core::array::from_fn(|i| settings.average(i, link));
        let precedences = settings.precedences();
        let (packets, counts) = ([0; LEVELS], [0; LEVELS]);
        Ok(Rio { packets, counts, averages, levels, precedences, random: None, settings })
    }
    /// The drop precedence of a packet.
    #[inline(always)]
    fn precedence(&self, row: &Meta) -> usize {
        usize::from(self.precedences[usize::from(row.dscp) % CODE_POINTS])
    }
    /// Packets were taken behind our back (a parent's victim, a flush): counts anew.
    #[cold]
    fn recount(&mut self, cx: &Cx, queue: &List) {
        let mut packets = [0; LEVELS];
        for row in queue.iter(&cx.packets) {
            for count in &mut packets[self.precedence(row)..] {
                *count += 1;
            }
        }
        for (level, count) in packets.into_iter().enumerate() {
            if self.packets[level] > 0 && count == 0 {
                self.averages[level].emptied(cx.now);
            }
        }
        self.packets = packets;
    }
    /// A packet of precedence `OWN` comes: known to the compiler, so that it finds the states without a look-up.
    #[inline(always)]
    fn arrive_at<const OWN: usize>(
        &mut self,
        cx: &mut Cx,
        packets: u32,
        limit: u32,
        id: &PacketId,
    ) -> Decision {
        for level in OWN..LEVELS {
            self.averages[level].update(cx.now, self.packets[level]);
        }
        self.counts[OWN] = self.counts[OWN].plus(1);
        let decision = match cx.adopting() {
            true => Decision::Accept,
            false => self.judge::<OWN>(cx, packets, limit, id),
        };
        if decision != Decision::Accept {
            self.counts[OWN] = 0;
        }
        if !matches!(decision, Decision::Drop(_)) {
            for packets in &mut self.packets[OWN..] {
                *packets = packets.plus(1);
            }
        }
        decision
    }
    #[inline(always)]
    fn depart_at<const OWN: usize>(&mut self, now: Instant) {
        for level in OWN..LEVELS {
            self.packets[level] = self.packets[level].saturating_sub(1);
            if self.packets[level] == 0 {
                self.averages[level].emptied(now);
            }
        }
    }
    #[inline(always)]
    fn judge<const OWN: usize>(&mut self, cx: &mut Cx, packets: u32, limit: u32, id: &PacketId) -> Decision {
        let level = &mut self.levels[OWN];
        if packets >= limit {
            level.forced += 1;
            return Decision::Drop(DropReason::Tail);
        }
        let random =
            self.random.get_or_insert_with(|| core::array::from_fn(|_| Random::new(cx.random.next_u64())));
        let zone = level.ramp.zone(self.averages[OWN].value());
        if zone == Zone::Pass || self.packets[OWN] <= 1 {
            level.above = false;
            return Decision::Accept;
        }
        let Zone::Early(half) = zone else {
            level.forced += 1;
            return Decision::Drop(DropReason::Early);
        };
        if !level.above {
            (level.above, self.counts[OWN]) = (true, 1);
            return Decision::Accept;
        }
        if !early(half, self.counts[OWN], self.settings.wait, &mut random[OWN]) {
            return Decision::Accept;
        }
        if self.settings.ecn && cx.packets.get(id).ecn_capable() {
            level.marks += 1;
            return Decision::Mark(DropReason::Early);
        }
        level.early += 1;
        Decision::Drop(DropReason::Early)
    }
}

impl Common {
    fn with(mut self, class: &str, params: &Params) -> Result<Self, ParamError> {
        let common = params.count("weight").map(|w| checked_weight(class, "weight", w)).transpose()?;
        for (level, [thmin, thmax, invpmax, pmax, weight]) in self.levels.iter_mut().zip(NAMES) {
            level.thmin = params.count(thmin).unwrap_or(level.thmin);
            level.thmax = params.count(thmax).unwrap_or(level.thmax);
            level.pmax = probability(class, params, [invpmax, pmax])?.unwrap_or(level.pmax);
            level.weight = match params.count(weight) {
                Some(own) => checked_weight(class, weight, own)?,
                None => common.unwrap_or(level.weight),
            };
            if level.thmin >= level.thmax {
                let expected = alloc::format!("less than {thmax}, which is {} packets", level.thmax);
                return Err(ParamError::new(class, thmin, level.thmin, expected));
            }
            if level.thmax > u64::from(LONGEST) {
                return Err(ParamError::new(
                    class,
                    thmax,
                    level.thmax,
                    alloc::format!("at most {LONGEST} packets"),
                ));
            }
        }
        self.packet_bytes = params.bytes("packetsize").unwrap_or(self.packet_bytes);
        self.ecn |= params.has("ecn");
        self.wait |= params.has("wait");
        if let Some(word) = params.word("unmarked") {
            self.unmarked = precedence_named(word);
        }
        Ok(self)
    }
    /// The drop precedence of each code point: that of AF (RFC 2597, section 6), or of those without one.
    fn precedences(&self) -> [u8; CODE_POINTS] {
        core::array::from_fn(|dscp| {
            let (class, precedence) = (dscp >> 3, dscp >> 1 & 3);
            let af = (1..=4).contains(&class) && precedence > 0 && dscp & 1 == 0;
            (if af { precedence - 1 } else { self.unmarked }) as u8
        })
    }
    fn average(&self, level: usize, link: &Link) -> Average {
        Average::new(self.levels[level].weight, self.packet_bytes, self.rate, link)
    }
    fn ramp(&self, level: usize) -> Ramp {
        let Settings { thmin, thmax, pmax, .. } = self.levels[level];
        Ramp::new(thmin, thmax, pmax, false)
    }
}

impl Aqm for Rio {
    #[inline(always)]
    fn arrive(&mut self, cx: &mut Cx, queue: &List, limit: u32, id: &PacketId) -> Decision {
        if self.packets[LEVELS - 1] != queue.packets() {
            self.recount(cx, queue);
        }
        match self.precedence(cx.packets.get(id)) {
            0 => self.arrive_at::<0>(cx, queue.packets(), limit, id),
            1 => self.arrive_at::<1>(cx, queue.packets(), limit, id),
            _ => self.arrive_at::<2>(cx, queue.packets(), limit, id),
        }
    }
    #[inline(always)]
    fn depart(&mut self, cx: &mut Cx, queue: &List, id: &PacketId) -> Decision {
        match self.precedence(cx.packets.get(id)) {
            0 => self.depart_at::<0>(cx.now),
            1 => self.depart_at::<1>(cx.now),
            _ => self.depart_at::<2>(cx.now),
        }
        if self.packets[LEVELS - 1] != queue.packets() {
            self.recount(cx, queue);
        }
        Decision::Accept
    }
    fn name(&self) -> &'static str {
        ENTRY.name
    }
    /// As in ALTQ: a queue holds at least what its thresholds speak of.
    fn least_limit(&self) -> u32 {
        self.settings.levels.iter().map(|level| level.thmax).max().unwrap_or(0) as u32
    }
    fn params(&self) -> &'static [&'static [ParamSpec]] {
        ENTRY.params
    }
    fn reconfigure(&mut self, class: &str, params: &Params, link: &Link) -> Result<(), ParamError> {
        let settings = self.settings.with(class, params)?;
        for (index, level) in self.levels.iter_mut().enumerate() {
            self.averages[index] = settings.average(index, link).keep(self.averages[index]);
            level.ramp = settings.ramp(index);
        }
        if settings.unmarked != self.settings.unmarked {
            // Queued packets change their precedence: the next call counts anew.
            self.packets[LEVELS - 1] = u32::MAX;
        }
        self.settings = settings;
        self.precedences = settings.precedences();
        Ok(())
    }
    fn visit_stats(&self, visit: &mut dyn Visit) {
        const SHOWN: [[&str; 8]; LEVELS] = [
            [
                "lo_average",
                "lo_early",
                "lo_forced",
                "lo_marked",
                "lo_thmin",
                "lo_thmax",
                "lo_pmax",
                "lo_weight",
            ],
            [
                "med_average",
                "med_early",
                "med_forced",
                "med_marked",
                "med_thmin",
                "med_thmax",
                "med_pmax",
                "med_weight",
            ],
            [
                "hi_average",
                "hi_early",
                "hi_forced",
                "hi_marked",
                "hi_thmin",
                "hi_thmax",
                "hi_pmax",
                "hi_weight",
            ],
        ];
        for (index, (level, names)) in self.levels.iter().zip(SHOWN).enumerate() {
            let Settings { thmin, thmax, pmax, .. } = self.settings.levels[index];
            let average = (self.averages[index].value() * 1000) >> LENGTH_BITS;
            visit.value(names[0], "packets/1000", average as i64);
            visit.value(names[1], "packets", level.early as i64);
            visit.value(names[2], "packets", level.forced as i64);
            visit.value(names[3], "packets", level.marks as i64);
            visit.value(names[4], "packets", thmin as i64);
            visit.value(names[5], "packets", thmax as i64);
            visit.value(names[6], "2^-32", pmax.raw() as i64);
            visit.value(names[7], "", self.averages[index].weight() as i64);
        }
    }
}

#[cfg(test)]
#[path = "rio_tests.rs"]
mod tests;
