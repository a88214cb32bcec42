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
//! made up for at the next call.
//! Cost: some 15 ns per packet, an update each `tupdate`; 300 bytes.
//! Guarantees: `low_latency_waits_little_beside_a_standing_classic_queue`,
//! `marks_are_coupled_to_drops_by_the_square`, `updates_as_the_reference`,
//! `classic_is_sure_of_its_share`, `an_overload_drops_in_both_queues`.
//! Parameters: `target` (ms, 15), `tupdate` (ms, 15), `rtt` (ms, 100: the longest that is usual;
//! the gains follow from it), `coupling` (1 to 16, 2), `ramp-min` and `ramp-range` (us, 800 and
//! 400: where the low-latency queue begins to mark, and how soon it marks all),
//! `classic-share` (percent, 10), `qlimit` (packets, 10000: both queues). All at run time.

use super::registry::{Builder, Entry, Node};
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
    /// What becomes of a packet that leaves: `None` drops it.
    fn judge(&mut self, cx: &mut Cx, classic: bool, id: &PacketId) -> Option<()> {
        let row = cx.packets.get_mut(id);
        let squared = self.classic_probability();
        let coupled = (self.base * self.constants.coupling).min(ONE);
        // Marks of all low-latency packets say no more: drops must. [RFC 9332 appendix A.2]
        let overload = coupled >= ONE;
        let queue = if classic { &mut self.classic } else { &mut self.low };
        let mark = if classic {
            let hit = queue.coin.toss(squared);
            if hit && (overload || !row.ecn_capable()) {
                return None;
            }
            hit
        } else if overload {
            if queue.coin.toss(squared) {
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
mod tests {
    use super::*;
    use crate::Random;
    use crate::queue::Value;
    use crate::sched::testing::{Bench, node, stat};

    fn bench(params: &[(&'static str, Value)]) -> Bench {
        Bench::new(&node("dualpi2", params), 1)
    }

    #[test]
    fn updates_as_the_reference() {
        let (mut random, constants) = (Random::new(weir_seed::seed()), Constants::DEFAULT);
        let (mut base, mut p, mut old) = (0i64, 0.0f64, Duration::ZERO);
        for step in 0..20_000 {
            let delay = Duration::from_nanos(random.below(30_500_000));
            base = constants.next(base, delay, old);
            let seconds = |d: Duration| d.as_nanos() as f64 / 1e9;
            p += 0.15 * (seconds(delay) - 0.015) + 3.0 * (seconds(delay) - seconds(old));
            p = p.clamp(0.0, 1.0);
            old = delay;
            let value = base as f64 / ONE as f64;
            assert!((value - p).abs() < 1e-6, "step {step}: {value} for {p}");
        }
    }

    #[test]
    fn coins_fall_as_often_as_they_should_and_evenly() {
        let mut coin = Coin::default();
        let falls: std::vec::Vec<u32> = (0..10_000).filter(|_| coin.toss(ONE / 8)).collect();
        assert!((1_249..=1_250).contains(&falls.len()), "{}", falls.len());
        assert!(falls.windows(2).all(|pair| pair[1] - pair[0] == 8), "{falls:?}");
    }

    /// Longest wait, in us, of packets of that codepoint at a tenth of the link beside a classic
    /// queue that is always full; after the first second.
    fn wait_of(codepoint: u8, discipline: &str) -> u64 {
        let mut bench = Bench::new(&node(discipline, &[("qlimit", Value::Count(100))]), 1);
        let mut worst = 0;
        let mut due = Instant::ZERO;
        while bench.cx.now < Instant::from_millis(5_000) {
            while bench.tree.discipline.backlog().packets < 95 {
                bench.offer(1250, |m| m.flow = 1);
            }
            if bench.cx.now >= due {
                due += Duration::from_millis(10);
                bench.offer(1250, |m| (m.flow, m.ecn) = (2, codepoint));
            }
            let sent = bench.serve().unwrap();
            if sent.flow == 2 && bench.cx.now > Instant::from_millis(1_000) {
                worst = worst.max(bench.cx.now.since(sent.arrival).as_nanos() / 1_000);
            }
            bench.pass(sent.len);
        }
        bench.check();
        worst
    }

    #[test]
    fn low_latency_waits_little_beside_a_standing_classic_queue() {
        assert!(wait_of(1, "dualpi2") <= 1_000, "{} us", wait_of(1, "dualpi2"));
        let classic = wait_of(2, "dualpi2");
        assert!(classic > 10_000, "reversed: ECT(0) waits with the others, {classic} us");
        assert!(wait_of(1, "fifoq") > 10_000, "reversed: one queue");
    }

    #[test]
    fn marks_are_coupled_to_drops_by_the_square() {
        // Both queues backlogged at a delay that holds p' still: marks k p', drops p'^2.
        let mut bench = bench(&[
            ("target", Value::Time(Duration::from_millis(20))),
            ("ramp-min", Value::Time(Duration::from_secs(9))),
            ("classic-share", Value::Fraction(Fraction::ratio(1, 2))),
        ]);
        let (mut marks, mut low, mut base_sum, mut updates) = (0u32, 0u32, 0.0f64, 0.0f64);
        let mut rate = 1.0;
        for ms in 0..200_000u64 {
            bench.cx.now = Instant::from_millis(ms);
            // Offered load by a law that brings p' to rest: less the higher it is.
            let base = stat(&*bench.tree.discipline, "probability") as f64 / ONE as f64;
            rate += 0.6 * (1.0 - base) + 0.6;
            while rate >= 1.0 {
                rate -= 1.0;
                let codepoint = u8::from(bench.cx.random.below(2) == 0);
                bench.offer(1250, |m| m.ecn = codepoint);
            }
            if let Some(sent) = bench.serve()
                && ms > 20_000
            {
                base_sum += base;
                updates += 1.0;
                low += u32::from(sent.ecn & 1 == 1);
                marks += u32::from(sent.ecn == 3);
            }
        }
        let base = base_sum / updates;
        let drops =
            bench.dropped.iter().filter(|(m, _)| m.ecn == 0 && m.arrival > Instant::from_millis(20_000));
        assert!(drops.count() > 100);
        assert!((0.02..0.5).contains(&base), "p' rests at {base}");
        let marked = f64::from(marks) / f64::from(low);
        assert!((marked - 2.0 * base).abs() < 0.1 * base, "{marked} marked at p' = {base}");
    }

    #[test]
    fn classic_is_sure_of_its_share() {
        for (percent, expected) in [(10, 0.1), (30, 0.3)] {
            let share = Value::Fraction(Fraction::ratio(percent, 100));
            let mut bench =
                bench(&[("classic-share", share), ("ramp-min", Value::Time(Duration::from_secs(9)))]);
            let (mut classic, mut all) = (0u64, 0u64);
            for _ in 0..20 {
                bench.offer(1500, |m| m.ecn = 1);
                bench.offer(300, |m| m.ecn = 2);
            }
            for _ in 0..20_000 {
                let sent = bench.serve().unwrap();
                let low = sent.ecn & 1 == 1;
                all += u64::from(sent.len);
                classic += if low { 0 } else { u64::from(sent.len) };
                bench.offer(sent.len, |m| m.ecn = if low { 1 } else { 2 });
            }
            let share = classic as f64 / all as f64;
            assert!((share - expected).abs() < 0.005, "{percent} %: {share}");
        }
    }

    /// Low-latency packets that go before a classic one that came when the classic queue was empty
    /// (`alone`) or not, both sent after a classic packet beside low-latency ones.
    fn low_before_classic(alone: bool) -> u32 {
        let mut bench = bench(&[("ramp-min", Value::Time(Duration::from_secs(9)))]);
        for _ in 0..40 {
            bench.offer(1_500, |m| m.ecn = 1);
        }
        let offer = |bench: &mut Bench| bench.offer(1_500, |m| m.ecn = 2);
        let until_classic = |bench: &mut Bench| {
            let low = core::iter::from_fn(|| bench.serve().filter(|sent| sent.ecn & 1 == 1));
            low.count() as u32
        };
        offer(&mut bench);
        if !alone {
            offer(&mut bench);
        }
        assert_eq!(until_classic(&mut bench), 1, "one packet makes the classic queue wait for its share");
        if alone {
            offer(&mut bench);
        }
        until_classic(&mut bench)
    }

    /// What a queue had counts against it only for as long as it has packets: there is no credit, and
    /// no debt, of a time in which it asked for nothing.
    #[test]
    fn no_debt_outlives_an_empty_queue() {
        assert_eq!(low_before_classic(true), 1);
        // Reversed: beside a queue that stayed busy, a tenth comes after nine.
        assert!((9..=10).contains(&low_before_classic(false)), "{}", low_before_classic(false));
    }

    /// The base probability for each of so many updates, while the oldest packet is `delay_ms` old at
    /// each of them and the default target is 15 ms.
    fn bases(delay_ms: u64, updates: usize) -> std::vec::Vec<i64> {
        let mut bench = bench(&[]);
        let mut bases = std::vec::Vec::new();
        for ms in 0..15 * updates as u64 {
            bench.cx.now = Instant::from_millis(ms);
            bench.offer(1_250, |m| m.ecn = 2);
            if ms >= delay_ms {
                bench.serve();
            }
            if ms % 15 == 0 {
                bases.push(stat(&*bench.tree.discipline, "probability"));
            }
        }
        bases
    }

    /// A delay that stands is no growth: at the target p' rests, above it p' rises evenly, by alpha
    /// for each second above it. [RFC 9332 appendix A.1]
    #[test]
    fn a_delay_that_stands_counts_by_its_distance_from_the_target() {
        let rests = bases(15, 40);
        assert!(rests[20..].iter().all(|&base| base == rests[20]), "{rests:?}");
        let rises = bases(25, 40);
        let steps: std::vec::Vec<i64> = rises[20..].windows(2).map(|pair| pair[1] - pair[0]).collect();
        // 0.1 * 15 ms / (100 ms)^2 * 10 ms.
        let expected = ONE * 15 / 10_000;
        assert!(steps.iter().all(|step| (step - expected).abs() <= 1), "{steps:?}, not {expected}");
    }

    /// No packet comes, and packets leave: the controller goes on.
    #[test]
    fn departures_alone_bring_updates() {
        let mut bench = bench(&[]);
        for _ in 0..200 {
            bench.offer(1_250, |m| m.ecn = 2);
        }
        bench.cx.now = Instant::from_millis(100);
        bench.serve();
        let grown = stat(&*bench.tree.discipline, "probability");
        assert!(grown > 0, "100 ms of delay");
        while bench.serve().is_some() {}
        bench.cx.now = Instant::from_millis(200);
        bench.serve();
        assert!(stat(&*bench.tree.discipline, "probability") < grown, "the queue is empty");
    }

    /// After a flush nothing is owed: low latency goes first.
    #[test]
    fn a_flush_forgets_what_was_owed() {
        for flushed in [true, false] {
            let mut bench = bench(&[]);
            for ecn in [1, 1, 2] {
                bench.offer(1_500, |m| m.ecn = ecn);
            }
            assert_eq!(bench.serve().map(|sent| sent.ecn), Some(1));
            if flushed {
                bench.tree.discipline.flush(&mut bench.cx, DropReason::Flush);
            }
            bench.offer(1_500, |m| m.ecn = 2);
            bench.offer(1_500, |m| m.ecn = 1);
            // Reversed: without a flush it is the classic queue's turn.
            assert_eq!(bench.serve().map(|sent| sent.ecn), Some(if flushed { 1 } else { 2 }));
        }
    }

    #[test]
    fn an_overload_drops_in_both_queues() {
        let mut bench = bench(&[]);
        for ms in 0..20_000u64 {
            bench.cx.now = Instant::from_millis(ms);
            bench.offer(1250, |m| m.ecn = 1);
            bench.offer(1250, |m| m.ecn = 2);
            bench.serve();
        }
        for low in [true, false] {
            let drops =
                bench.dropped.iter().filter(|(m, r)| (m.ecn & 1 == 1) == low && *r == DropReason::Head);
            assert!(drops.count() > 1_000, "low latency: {low}");
        }
        bench.check();
        assert!(bench.tree.discipline.backlog().packets < 10_000, "drops hold the queue");
    }

    #[test]
    fn times_out_of_range_are_refused_whole() {
        let mut bench = bench(&[]);
        let params = Params::new()
            .with("target", Value::Time(Duration::from_millis(3)))
            .with("rtt", Value::Time(Duration::ZERO));
        assert_eq!(bench.tree.discipline.reconfigure(&mut bench.cx, "", &params).unwrap_err().field, "rtt");
        assert_eq!(stat(&*bench.tree.discipline, "target"), 15_000_000);
    }
    #[test]
    fn what_is_written_is_taken() {
        let (one, two, part) = (Duration::from_millis(1), Duration::from_millis(2), Fraction::ratio(1, 4));
        let params = [
            ("target", Value::Time(one)),
            ("tupdate", Value::Time(two)),
            ("rtt", Value::Time(one)),
            ("ramp-min", Value::Time(two)),
            ("ramp-range", Value::Time(one)),
            ("coupling", Value::Count(5)),
            ("classic-share", Value::Fraction(part)),
            ("qlimit", Value::Count(77)),
        ];
        let params = params.into_iter().fold(Params::new(), |all, (name, value)| all.with(name, value));
        let taken = Constants::DEFAULT.with(&params).expect("all are in range");
        assert_eq!((taken.target, taken.update, taken.rtt), (one, two, one));
        assert_eq!((taken.ramp_min, taken.ramp_range), (two, one));
        assert_eq!((taken.coupling, taken.classic_share, taken.limit), (5, (part.raw() >> 16) as i64, 77));
    }
}
