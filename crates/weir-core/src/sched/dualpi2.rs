//! DualPI2: two queues with coupled AQMs, one for classic traffic and one for low latency (L4S).
//!
//! Principle: scalable senders (ECT(1)) want a queue of a millisecond and many marks. Classic
//! senders (Reno, CUBIC) want a queue of a round-trip time and few drops. Each gets a queue of its
//! own, and one controller for both: a proportional-integral controller keeps a base probability
//! p' by the classic queue's delay. Classic packets are dropped or marked with p'^2, low-latency
//! packets are marked with k p'. This balances the rates of both kinds, because classic rates go
//! with 1 / sqrt(p) and scalable ones with 1 / p. The low-latency queue marks by itself too, where
//! it stands longer than a millisecond. Low latency goes first, but leaves a share to the classic.
//! Paper: De Schepper, Briscoe and White, "Dual-Queue Coupled Active Queue Management (AQM) for
//! Low Latency, Low Loss, and Scalable Throughput (L4S)", RFC 9332, 2023: appendix A.1 is
//! `dequeue`, `update` and `Coin`, A.2 the overload. De Schepper, Bondarenko, Tsang and Briscoe,
//! "PI2: A Linearized AQM for both Classic and Scalable TCP", CoNEXT 2016.
//! Where we differ, and why: the scheduler is a weighted round robin in which the classic queue is
//! sure of `classic-share` (the RFC leaves the choice); no timer, the updates that were due are
//! made up for at the next call; the last packet is never dropped, because the link would idle.
//! Cost: some 15 ns per packet, an update each `tupdate`; 300 bytes.
//! Guarantees: `low_latency_waits_little_beside_a_standing_classic_queue`,
//! `marks_are_coupled_to_drops_by_the_square`, `updates_as_the_reference`,
//! `classic_is_sure_of_its_share`, `an_overload_drops_in_both_queues`, `the_last_packet_is_not_dropped`.
//! Parameters: `target` (ms, 15), `tupdate` (ms, 15), `rtt` (ms, 100: the longest that is usual;
//! the gains follow from it), `coupling` (1 to 16, 2), `ramp-min` and `ramp-range` (us, 800 and
//! 400: where the low-latency queue begins to mark, and how soon it marks all),
//! `classic-share` (percent, 10), `qlimit` (packets, 10000: both queues). All at run time.

use super::node::Node;
use super::registry::{Builder, Entry};
use crate::aqm::params::{QLIMIT, queue_limit};
use crate::packet::{List, PacketId};
use crate::queue::ParamSpec as P;
use crate::queue::params::default_of;
use crate::queue::{
    Alias, Backlog, Broken, Cx, Discipline, DropReason, Kind, Next, ParamError, ParamSpec, Params, Scope,
    TimeUnit, Verdict, Visit, params,
};
use crate::units::{Duration, Fraction, Instant};
use alloc::boxed::Box;

/// A probability of one: units of 2^-40.
const ONE: i64 = 1 << 40;
/// The ECN codepoint "congestion experienced".
const CE: u8 = 3;
/// Updates made up for at once.
const MOST_UPDATES: u64 = 2_048;
/// Delays enter the controller up to here.
const LONGEST: Duration = Duration::from_secs(10);
const MILLIS: Kind = Kind::Time { bare: TimeUnit::Millis };
const MICROS: Kind = Kind::Time { bare: TimeUnit::Micros };
const PARAMS: &[ParamSpec] = &[
    P::discipline("target", MILLIS, "15ms", "Delay that the classic queue is kept near, ms."),
    P::discipline("tupdate", MILLIS, "15ms", "Time between two updates of the probability, ms."),
    P::discipline("rtt", MILLIS, "100ms", "Longest usual round-trip time, ms: gives the gains."),
    P::discipline(
        "coupling",
        Kind::Count { min: 1, max: 16 },
        "2",
        "Marks of the low-latency queue for the root of the classic drop probability.",
    ),
    P::discipline("ramp-min", MICROS, "800us", "Delay at which the low-latency queue begins to mark, us."),
    P::discipline("ramp-range", MICROS, "400us", "Further delay over which its marks rise to all, us."),
    P::discipline("classic-share", Kind::Percent, "10", "Share that the classic queue is sure of, percent."),
    P::discipline("qlimit", QLIMIT, "10000", "Packets that both queues hold together."),
];

pub(super) const ENTRY: Entry = Entry {
    name: "dualpi2",
    aliases: &[Alias { name: "l4s", implies: None }],
    source: include_str!("dualpi2.rs"),
    params: &[PARAMS],
    build: Some(build),
    ..Entry::PLAIN
};

#[derive(Clone, Copy, Debug)]
struct Constants {
    target: Duration,
    update: Duration,
    rtt: Duration,
    coupling: i64,
    ramp_min: Duration,
    ramp_range: Duration,
    /// Units of 2^-16.
    classic_share: i64,
    limit: u32,
}

impl Constants {
    const DEFAULT: Constants = Constants {
        target: Duration::from_nanos(default_of(PARAMS, "target")),
        update: Duration::from_nanos(default_of(PARAMS, "tupdate")),
        rtt: Duration::from_nanos(default_of(PARAMS, "rtt")),
        coupling: default_of(PARAMS, "coupling") as i64,
        ramp_min: Duration::from_nanos(default_of(PARAMS, "ramp-min")),
        ramp_range: Duration::from_nanos(default_of(PARAMS, "ramp-range")),
        classic_share: (default_of(PARAMS, "classic-share") >> 16) as i64,
        limit: default_of(PARAMS, "qlimit") as u32,
    };
    fn with(mut self, params: &Params) -> Result<Self, ParamError> {
        for (name, time, least) in [
            ("target", &mut self.target, 1_000),
            ("tupdate", &mut self.update, 1_000),
            ("rtt", &mut self.rtt, 1_000),
            ("ramp-min", &mut self.ramp_min, 0),
            ("ramp-range", &mut self.ramp_range, 1),
        ] {
            *time = params.time(name).unwrap_or(*time);
            if time.as_nanos() < least || *time > LONGEST {
                let expected = alloc::format!("{} to 10s", Duration::from_nanos(least));
                return Err(ParamError::new("", name, *time, expected));
            }
        }
        self.coupling = params.count("coupling").map_or(self.coupling, |k| k as i64);
        if let Some(share) = params.fraction("classic-share") {
            if share > Fraction::ratio(1, 2) {
                let found = crate::queue::Value::Fraction(share);
                return Err(ParamError::new("", "classic-share", found, "at most 50 percent"));
            }
            self.classic_share = (share.raw() >> 16) as i64;
        }
        self.limit = queue_limit("", params)?.unwrap_or(self.limit);
        Ok(self)
    }
    /// p' after an update by the queue's delay. [RFC 9332 appendix A.1]
    ///
    /// alpha = 0.1 tupdate / rtt^2 and beta = 0.3 / rtt: the products of a delay below 2^34 ns, a
    /// time below 2^34 and 2^40 stay below 2^108.
    fn next(&self, base: i64, delay: Duration, old: Duration) -> i64 {
        let ns = |d: Duration| i128::from(d.as_nanos().min(LONGEST.as_nanos()));
        let (rtt, one) = (ns(self.rtt), i128::from(ONE));
        let integral = (ns(delay) - ns(self.target)) * ns(self.update) * one / (10 * rtt * rtt);
        let proportional = (ns(delay) - ns(old)) * 3 * one / (10 * rtt);
        (i128::from(base) + integral + proportional).clamp(0, one) as i64
    }
    /// The low-latency queue's own marking probability. [RFC 9332 appendix A.1, `laqm`]
    fn ramp(&self, waited: Duration) -> i64 {
        let above = waited.saturating_sub(self.ramp_min);
        if above >= self.ramp_range {
            return ONE;
        }
        (above.as_nanos() as i128 * i128::from(ONE) / i128::from(self.ramp_range.as_nanos())) as i64
    }
}

/// Turns probabilities into events as evenly as can be, without a random number. [A.1, `recur`]
#[derive(Clone, Copy, Default, Debug)]
struct Coin(i64);

impl Coin {
    fn toss(&mut self, probability: i64) -> bool {
        self.0 += probability;
        let hit = self.0 > ONE;
        if hit {
            self.0 -= ONE;
        }
        hit
    }
}

#[derive(Default)]
struct Queue {
    list: List,
    coin: Coin,
    sent: u64,
    marked: u64,
    dropped: u64,
}

struct DualPi2 {
    /// Packets of the tree before this one, in their order: they go first, for one that was
    /// marked there would change queues here and overtake its flow.
    adopted: List,
    low: Queue,
    classic: Queue,
    /// p', and the delay at the last update.
    base: i64,
    old_delay: Duration,
    next_update: Instant,
    /// What the classic queue is ahead (negative) or behind its share: bytes in units of 2^-16.
    owed: i64,
    constants: Constants,
}

fn build(node: &Node, _: &mut Builder<'_>) -> Result<Box<dyn Discipline>, ParamError> {
    Ok(Box::new(DualPi2 {
        adopted: List::new(),
        low: Queue::default(),
        classic: Queue::default(),
        base: 0,
        old_delay: Duration::ZERO,
        next_update: Instant::ZERO,
        owed: 0,
        constants: Constants::DEFAULT.with(&node.params)?,
    }))
}

impl DualPi2 {
    fn packets(&self) -> u32 {
        self.adopted.packets() + self.low.list.packets() + self.classic.list.packets()
    }
    /// Makes up for the updates that are due.
    fn update(&mut self, cx: &Cx) {
        if cx.now < self.next_update {
            return;
        }
        let age =
            |list: &List| list.front(&cx.packets).map_or(Duration::ZERO, |row| cx.now.since(row.arrival));
        let delay = age(&self.classic.list).max(age(&self.low.list)).max(age(&self.adopted));
        let late = cx.now.since(self.next_update).as_nanos() / self.constants.update.as_nanos();
        for _ in 0..=late.min(MOST_UPDATES) {
            self.base = self.constants.next(self.base, delay, self.old_delay);
            self.old_delay = delay;
        }
        self.next_update = cx.now + self.constants.update;
    }
    fn classic_probability(&self) -> i64 {
        ((i128::from(self.base) * i128::from(self.base)) >> 40) as i64
    }
    /// True if the classic queue goes next. While both have packets each byte of the one is
    /// weighed against the share of the other.
    fn classic_goes(&self) -> bool {
        match (self.low.list.is_empty(), self.classic.list.is_empty()) {
            (true, _) => true,
            (false, true) => false,
            (false, false) => self.owed > 0,
        }
    }
    fn charge(&mut self, classic: bool, len: u32) {
        if self.low.list.is_empty() || self.classic.list.is_empty() {
            self.owed = 0;
        } else if classic {
            self.owed -= i64::from(len) * ((1 << 16) - self.constants.classic_share);
        } else {
            self.owed += i64::from(len) * self.constants.classic_share;
        }
    }
    /// What becomes of a packet that leaves: `None` drops it. The last one is never dropped: nothing waits that a drop
    /// would help, and a link that is free would idle.
    fn judge(&mut self, cx: &mut Cx, classic: bool, id: &PacketId) -> Option<()> {
        let is_last = self.packets() == 0;
        let row = cx.packets.get_mut(id);
        let squared = self.classic_probability();
        let coupled = (self.base * self.constants.coupling).min(ONE);
        // Marks of all low-latency packets say no more: drops must. [RFC 9332 appendix A.2]
        let overload = coupled >= ONE;
        let queue = if classic { &mut self.classic } else { &mut self.low };
        let mark = if classic {
            let hit = queue.coin.toss(squared);
            if hit && (overload || !row.ecn_capable()) && !is_last {
                return None;
            }
            hit && row.ecn_capable()
        } else if overload {
            if queue.coin.toss(squared) && !is_last {
                return None;
            }
            true
        } else {
            let alone = queue.list.is_empty();
            let own = if alone { 0 } else { self.constants.ramp(cx.now.since(row.arrival)) };
            queue.coin.toss(own.max(coupled))
        };
        if mark {
            row.ecn = CE;
            queue.marked += 1;
        }
        Some(())
    }
}

impl Discipline for DualPi2 {
    fn enqueue(&mut self, cx: &mut Cx, id: PacketId) -> Verdict {
        self.update(cx);
        if cx.adopting() {
            self.adopted.push_back(&mut cx.packets, id);
            return Verdict::Queued;
        }
        if self.packets() >= self.constants.limit {
            cx.drop(id, DropReason::Tail);
            return Verdict::Dropped;
        }
        // ECT(1) and CE are low latency. [RFC 9331 section 5.1]
        let queue = if cx.packets.get(&id).ecn & 1 == 1 { &mut self.low } else { &mut self.classic };
        queue.list.push_back(&mut cx.packets, id);
        Verdict::Queued
    }
    fn dequeue(&mut self, cx: &mut Cx) -> Next {
        self.update(cx);
        if let Some(id) = self.adopted.pop_front(&mut cx.packets) {
            return Next::Packet(id);
        }
        loop {
            let classic = self.classic_goes();
            let queue = if classic { &mut self.classic } else { &mut self.low };
            let Some(id) = queue.list.pop_front(&mut cx.packets) else { return Next::Idle };
            if self.judge(cx, classic, &id).is_some() {
                let queue = if classic { &mut self.classic } else { &mut self.low };
                queue.sent += 1;
                self.charge(classic, cx.packets.get(&id).len);
                return Next::Packet(id);
            }
            let queue = if classic { &mut self.classic } else { &mut self.low };
            queue.dropped += 1;
            cx.drop(id, DropReason::Head);
        }
    }
    fn backlog(&self) -> Backlog {
        Backlog {
            packets: u64::from(self.packets()),
            bytes: self.adopted.bytes() + self.low.list.bytes() + self.classic.list.bytes(),
        }
    }
    fn is_empty(&self) -> bool {
        self.packets() == 0
    }
    fn flush(&mut self, cx: &mut Cx, reason: DropReason) {
        for list in [&mut self.adopted, &mut self.low.list, &mut self.classic.list] {
            while let Some(id) = list.pop_front(&mut cx.packets) {
                cx.drop(id, reason);
            }
        }
        self.owed = 0;
    }
    fn reconfigure(&mut self, _: &mut Cx, class: &str, params: &Params) -> Result<(), ParamError> {
        if !class.is_empty() {
            return Err(ParamError::new(class, "class", class, "no class: dualpi2 has none"));
        }
        params::accept(ENTRY.params, Scope::Discipline, "", params)?;
        self.constants = self.constants.with(params)?;
        Ok(())
    }
    fn visit_stats(&self, visit: &mut dyn Visit) {
        visit.value("backlog", "packets", i64::from(self.packets()));
        visit.value("limit", "packets", i64::from(self.constants.limit));
        visit.value("probability", "2^-40", self.base);
        visit.value("delay", "ns", self.old_delay.as_nanos() as i64);
        visit.value("target", "ns", self.constants.target.as_nanos() as i64);
        visit.value("tupdate", "ns", self.constants.update.as_nanos() as i64);
        visit.value("rtt", "ns", self.constants.rtt.as_nanos() as i64);
        visit.value("coupling", "", self.constants.coupling);
        for (name, queue) in [("low-latency", &self.low), ("classic", &self.classic)] {
            if !visit.wants(name, 1) {
                continue;
            }
            visit.value("backlog", "packets", i64::from(queue.list.packets()));
            visit.value("backlog_bytes", "bytes", queue.list.bytes() as i64);
            visit.value("sent", "packets", queue.sent as i64);
            visit.value("marked", "packets", queue.marked as i64);
            visit.value("dropped", "packets", queue.dropped as i64);
        }
    }
    fn check(&self, cx: &Cx) -> Result<(), Broken> {
        let lists = [&self.adopted, &self.low.list, &self.classic.list];
        if lists.iter().all(|list| list.is_sound(&cx.packets)) {
            return Ok(());
        }
        Err(Broken { discipline: "dualpi2", what: "a list and its counters disagree" })
    }
}

#[cfg(test)]
mod tests;
