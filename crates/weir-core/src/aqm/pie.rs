//! PIE: a drop probability, adjusted so that the queue's delay stays near a target.
//!
//! Principle: every `tupdate` a proportional-integral controller looks at the delay of the queue:
//! the probability rises with the distance above `target` and with the delay's growth, and falls
//! likewise. Arrivals are dropped with that probability, spread out so that drops neither cluster
//! nor stay away. A burst of `max-burst` after a quiet time passes untouched.
//! Paper: Pan et al., "PIE: A Lightweight Control Scheme to Address the Bufferbloat Problem",
//! HPSR 2013; RFC 8033, 2017: section 4.1 is `early`, 4.2 `adjust`, 4.4 the burst allowance,
//! 5.1 the marking threshold, 5.4 the spread.
//! Where we differ, and why: the delay is the age of the oldest packet (the timestamps that the
//! RFC allows in section 4.3), not a backlog over an estimated rate; there is no timer, the
//! adjustments that were due are made up for at the next call, all with the delay of that call.
//! The optional switch of section 5.3 (inactive below a third of the limit) is left out: an idle
//! queue has probability 0 and a full burst allowance anyway. Queues of up to two packets of the
//! link's MTU are spared, where the RFC counts two packets of mean size.
//! Cost: a comparison per packet, an adjustment each `tupdate`, and a random draw where the
//! probability is above 0; 128 bytes per queue.
//! Guarantees: `adjusts_as_the_reference`, `holds_the_target_against_a_responsive_load`,
//! `a_burst_passes`, `a_burst_is_allowed_again_after_two_calm_samples`,
//! `ecn_marks_below_the_threshold`.
//! Parameters: `target` (ms, 15), `tupdate` (ms, 15), `max-burst` (ms, 150), `qlimit` (packets,
//! 1000), `ecn`. All at run time.

use super::contract::{Aqm, Decision};
use super::entry::{AqmEntry, Built, QueueConfig};
use super::params::{CLASS_ECN, ECN, MILLIS, in_class, qlimit};
use crate::Random;
use crate::packet::{List, PacketId};
use crate::queue::ParamSpec as P;
use crate::queue::{Cx, DropReason, Kind, Link, ParamError, ParamSpec, Params, Visit};
use crate::units::{Duration, Instant};
use alloc::boxed::Box;

const TARGET: ParamSpec =
    P::discipline("target", MILLIS, "15ms", "Delay that the queue may keep, ms: 5 for codel, 15 for pie.");

const UPDATE: ParamSpec =
    P::discipline("tupdate", MILLIS, "15ms", "Time between two adjustments of the probability, ms.");
const MAX_BURST: ParamSpec =
    P::discipline("max-burst", MILLIS, "150ms", "A burst so long passes untouched after a quiet time, ms.");
const LIMIT: ParamSpec = qlimit("1000");

/// The line in the list of AQMs.
pub(super) const ENTRY: AqmEntry = AqmEntry {
    name: "pie",
    source: include_str!("pie.rs"),
    params: &[&[LIMIT, TARGET, UPDATE, MAX_BURST, ECN]],
    class_params: &[
        &[P::class("pie", Kind::Flag, "", "PIE: drops so that the delay stays near a target."), CLASS_ECN],
        &in_class([TARGET]),
    ],
    // Room is wanted: it is not the length that PIE looks at.
    usual_limit: LIMIT.default_number() as u32,
    build,
    ..AqmEntry::PLAIN
};

fn build(queue: &QueueConfig<'_>) -> Built {
    Ok(Box::new(Pie::new(queue.class, queue.params, queue.link)?))
}

/// A probability of one: units of 2^-40, so that the smallest steps of the controller (a
/// microsecond at alpha / 2048) are still some 60 units.
const ONE: i64 = 1 << 40;
/// alpha = 1/8 and beta = 5/4 per second of delay, in units of 2^-40 a second of delay.
const ALPHA: i64 = ONE / 8;
const BETA: i64 = ONE / 8 * 10;
/// Adjustments made up for at once; after so many at one delay the controller stands at an end.
const MOST_ADJUSTMENTS: u64 = 2_048;

#[derive(Clone, Copy, Debug)]
struct Constants {
    target: Duration,
    update: Duration,
    max_burst: Duration,
    ecn: bool,
    /// Two packets' bytes: a shorter queue is never dropped from.
    spared: u64,
}

impl Constants {
    fn with(mut self, class: &str, params: &Params) -> Result<Self, ParamError> {
        self.target = params.time("target").unwrap_or(self.target);
        self.update = params.time("tupdate").unwrap_or(self.update);
        self.max_burst = params.time("max-burst").unwrap_or(self.max_burst);
        self.ecn |= params.has("ecn");
        for (name, time) in [("target", self.target), ("tupdate", self.update)] {
            if time < Duration::from_micros(1) || time > Duration::from_secs(10) {
                return Err(ParamError::new(class, name, time, "1us to 10s; 15ms suits the Internet"));
            }
        }
        Ok(self)
    }
}

/// The controller: what follows from the delays that it is shown.
#[derive(Clone, Copy, Debug)]
struct Controller {
    probability: i64,
    old_delay: Duration,
    burst: Duration,
}

impl Controller {
    /// One adjustment for a queue whose delay is `delay`. [RFC 8033 section 4.2]
    fn adjust(&mut self, constants: &Constants, delay: Duration) {
        let nanos = |d: Duration| d.as_nanos().min(10_000_000_000) as i64;
        // Differences are below 2^34 ns and gains below 2^41: the product needs 75 bits.
        let per = |ns: i64, gain: i64| (i128::from(ns) * i128::from(gain) / 1_000_000_000) as i64;
        let mut step = per(nanos(delay) - nanos(constants.target), ALPHA)
            + per(nanos(delay) - nanos(self.old_delay), BETA);
        // Small probabilities move in small steps.
        step /= match self.probability {
            p if p < ONE / 1_000_000 => 2048,
            p if p < ONE / 100_000 => 512,
            p if p < ONE / 10_000 => 128,
            p if p < ONE / 1_000 => 32,
            p if p < ONE / 100 => 8,
            p if p < ONE / 10 => 2,
            _ => 1,
        };
        // [section 5.5]
        if self.probability >= ONE / 10 {
            step = step.min(ONE / 50);
        }
        self.probability += step;
        if delay.is_zero() && self.old_delay.is_zero() {
            self.probability -= self.probability / 64;
        }
        self.probability = self.probability.clamp(0, ONE);
        // Congestion is over when both samples, the current and the one before it, are below half
        // the target. [section 4.4]
        let half = constants.target.as_nanos() / 2;
        let over = self.probability == 0 && delay.as_nanos() < half && self.old_delay.as_nanos() < half;
        self.burst = if over { constants.max_burst } else { self.burst.saturating_sub(constants.update) };
        self.old_delay = delay;
    }
}

/// PIE for one queue.
#[derive(Debug)]
pub struct Pie {
    controller: Controller,
    /// Sum of the probabilities since the last drop. [section 5.4]
    accumulated: i64,
    next_update: Instant,
    constants: Constants,
    early: u64,
    marks: u64,
}

impl Pie {
    /// PIE as `params` say.
    ///
    /// # Errors
    /// `ParamError` for a time out of range.
    fn new(class: &str, params: &Params, link: &Link) -> Result<Self, ParamError> {
        let constants = Constants {
            target: Duration::from_nanos(TARGET.default_number()),
            update: Duration::from_nanos(UPDATE.default_number()),
            max_burst: Duration::from_nanos(MAX_BURST.default_number()),
            ecn: false,
            spared: 2 * u64::from(link.mtu),
        }
        .with(class, params)?;
        Ok(Pie {
            controller: Controller { probability: 0, old_delay: Duration::ZERO, burst: constants.max_burst },
            accumulated: 0,
            next_update: Instant::ZERO,
            constants,
            early: 0,
            marks: 0,
        })
    }
    /// Makes up for the adjustments that are due.
    fn catch_up(&mut self, cx: &Cx, queue: &List) {
        if cx.now < self.next_update {
            return;
        }
        let delay = queue.front(&cx.packets).map_or(Duration::ZERO, |row| cx.now.since(row.arrival));
        let late = cx.now.since(self.next_update).as_nanos() / self.constants.update.as_nanos();
        for _ in 0..=late.min(MOST_ADJUSTMENTS) {
            self.controller.adjust(&self.constants, delay);
        }
        self.next_update = cx.now + self.constants.update;
    }
    /// Whether this arrival is dropped or marked. [section 4.1]
    fn early(&mut self, random: &mut Random, bytes: u64) -> bool {
        let Controller { probability, old_delay, burst } = self.controller;
        let calm = old_delay.as_nanos() < self.constants.target.as_nanos() / 2;
        if !burst.is_zero() || bytes <= self.constants.spared || (calm && probability < ONE / 5) {
            return false;
        }
        if probability == 0 {
            self.accumulated = 0;
            return false;
        }
        self.accumulated = (self.accumulated + probability).min(16 * ONE);
        if self.accumulated < ONE / 100 * 85 {
            return false;
        }
        if self.accumulated >= ONE / 10 * 85 || (random.below(ONE as u64) as i64) < probability {
            self.accumulated = 0;
            return true;
        }
        false
    }
}

impl Aqm for Pie {
    fn arrive(&mut self, cx: &mut Cx, queue: &List, limit: u32, id: &PacketId) -> Decision {
        self.catch_up(cx, queue);
        if cx.adopting() {
            return Decision::Accept;
        }
        if queue.packets() >= limit {
            return Decision::Drop(DropReason::Tail);
        }
        if !self.early(&mut cx.random, queue.bytes()) {
            return Decision::Accept;
        }
        // Above 10 % marks do not help any more. [section 5.1]
        if self.constants.ecn && self.controller.probability < ONE / 10 && cx.packets.get(id).ecn_capable() {
            self.marks += 1;
            return Decision::Mark(DropReason::Early);
        }
        self.early += 1;
        Decision::Drop(DropReason::Early)
    }
    fn depart(&mut self, cx: &mut Cx, queue: &List, _id: &PacketId) -> Decision {
        self.catch_up(cx, queue);
        Decision::Accept
    }
    fn name(&self) -> &'static str {
        ENTRY.name
    }
    fn params(&self) -> &'static [&'static [ParamSpec]] {
        ENTRY.params
    }
    fn reconfigure(&mut self, class: &str, params: &Params, _: &Link) -> Result<(), ParamError> {
        self.constants = self.constants.with(class, params)?;
        Ok(())
    }
    fn visit_stats(&self, visit: &mut dyn Visit) {
        visit.value("probability", "2^-40", self.controller.probability);
        visit.value("delay", "ns", self.controller.old_delay.as_nanos() as i64);
        visit.value("burst_allowance", "ns", self.controller.burst.as_nanos() as i64);
        visit.value("dropped_early", "packets", self.early as i64);
        visit.value("marked_early", "packets", self.marks as i64);
        visit.value("target", "ns", self.constants.target.as_nanos() as i64);
        visit.value("tupdate", "ns", self.constants.update.as_nanos() as i64);
        visit.value("max_burst", "ns", self.constants.max_burst.as_nanos() as i64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::{Value, Verdict};
    use crate::sched::testing::{Bench, node, stat};

    fn constants() -> Constants {
        Constants {
            target: Duration::from_millis(15),
            update: Duration::from_millis(15),
            max_burst: Duration::from_millis(150),
            ecn: false,
            spared: 3000,
        }
    }

    #[test]
    fn adjusts_as_the_reference() {
        let mut random = Random::new(weir_seed::seed());
        let mut ours = Controller { probability: 0, old_delay: Duration::ZERO, burst: Duration::ZERO };
        let (mut p, mut old, mut seen) = (0.0f64, 0.0f64, 0.0f64);
        let mut delay = 0i64;
        for step in 0..20_000 {
            // A walk that visits everything from an empty queue to 100 ms.
            let centre = if step / 1_000 % 2 == 0 { 16_000_000 } else { 13_000_000 };
            delay = (delay + (centre - delay) / 8 + random.below(4_000_000) as i64 - 2_000_000).max(0);
            ours.adjust(&constants(), Duration::from_nanos(delay as u64));
            let now = delay as f64 / 1e9;
            let mut change = 0.125 * (now - 0.015) + 1.25 * (now - old);
            let scales =
                [(1e-6, 2048.0), (1e-5, 512.0), (1e-4, 128.0), (1e-3, 32.0), (1e-2, 8.0), (1e-1, 2.0)];
            change /= scales.iter().find(|(limit, _)| p < *limit).map_or(1.0, |(_, scale)| *scale);
            p = (p + if p >= 0.1 { change.min(0.02) } else { change }).clamp(0.0, 1.0);
            if now == 0.0 && old == 0.0 {
                p *= 1.0 - 1.0 / 64.0;
            }
            old = now;
            seen = seen.max(p);
            let value = ours.probability as f64 / ONE as f64;
            assert!((value - p).abs() <= 1e-5 + 0.01 * p, "step {step}: {value} for {p}");
            // The reference follows, so that a step near a threshold is not counted twice.
            p = value;
        }
        assert!(seen > 1e-3, "the walk stayed at {seen}");
    }

    /// PIE after updates that led there.
    fn at(probability: i64, old_delay: Duration, burst: Duration) -> Pie {
        let link = Link::new(crate::units::Rate::from_mbps(10), 0, 1_500);
        let mut pie = Pie::new("", &Params::new(), &link).unwrap();
        pie.controller = Controller { probability, old_delay, burst };
        pie
    }

    /// At a probability p no drop comes before 0.85 / p packets, and one comes by 8.5 / p at the latest,
    /// however the dice fall. [RFC 8033 section 5.4]
    #[test]
    fn gaps_between_drops_have_their_bounds() {
        let mut random = Random::new(weir_seed::seed());
        let mut pie = at(ONE / 50, Duration::from_millis(20), Duration::ZERO);
        let mut gap = || (1..).find(|_| pie.early(&mut random, 100_000)).unwrap();
        let gaps: std::vec::Vec<u32> = (0..20_000).map(|_| gap()).collect();
        // 425 packets without a drop come with a chance of 1 in 2,000. Rounding may cost a packet.
        let (least, most) = (gaps.iter().min().unwrap(), gaps.iter().max().unwrap());
        assert!((43..=44).contains(least) && (425..=426).contains(most), "{least} to {most}");
    }

    /// What is never dropped: a short queue, a burst within the allowance, and packets of a queue
    /// whose delay was below half the target, while the probability is below 0.2. [section 4.1]
    #[test]
    fn what_is_spared_is_never_dropped() {
        let (ms, none) = (Duration::from_millis, Duration::ZERO);
        let nanosecond = Duration::from_nanos(1);
        let half = Duration::from_nanos(ms(15).as_nanos() / 2);
        for (probability, old_delay, burst, bytes, spared) in [
            (ONE / 10, half, none, 3_001, false),
            (ONE / 10, half.saturating_sub(nanosecond), none, 3_001, true),
            (ONE / 5, half.saturating_sub(nanosecond), none, 3_001, false),
            (ONE / 5 - 1, half.saturating_sub(nanosecond), none, 3_001, true),
            (ONE, ms(100), none, 3_000, true),
            (ONE, ms(100), nanosecond, 3_001, true),
            (0, ms(100), none, 3_001, true),
        ] {
            let (mut pie, mut random) = (at(probability, old_delay, burst), Random::new(weir_seed::seed()));
            let dropped = (0..1_000).filter(|_| pie.early(&mut random, bytes)).count();
            assert_eq!(dropped == 0, spared, "{probability}, {old_delay}, {burst}, {bytes} bytes: {dropped}");
        }
    }

    /// The limits that the error names are taken, what lies a nanosecond beyond is not.
    #[test]
    fn times_are_taken_up_to_their_limits() {
        let nanosecond = Duration::from_nanos(1);
        let (least, most) = (Duration::from_micros(1), Duration::from_secs(10));
        for name in ["target", "tupdate"] {
            for (time, taken) in [
                (least.saturating_sub(nanosecond), false),
                (least, true),
                (most, true),
                (most + nanosecond, false),
            ] {
                let params = Params::new().with(name, Value::Time(time));
                assert_eq!(constants().with("c", &params).is_ok(), taken, "{name} {time}");
            }
        }
    }

    /// A load that halves its rate when it loses a packet and grows by 1 % each 20 ms: mean delay
    /// in ms of the second half of 60 s.
    fn mean_delay(discipline: &str) -> f64 {
        let mut bench = Bench::new(&node(discipline, &[("qlimit", Value::Count(200))]), weir_seed::seed());
        let (mut rate, mut credit, mut sum, mut n, mut cut) = (1.2f64, 0.0f64, 0.0f64, 0.0f64, 0u64);
        for ms in 0..60_000u64 {
            bench.cx.now = Instant::from_millis(ms);
            credit += rate;
            while credit >= 1.0 {
                credit -= 1.0;
                if bench.offer(1250, |_| {}) == Verdict::Dropped && ms > cut {
                    (rate, cut) = (rate / 2.0, ms + 20);
                }
            }
            if ms % 20 == 0 {
                rate = (rate * 1.01).min(3.0);
            }
            if let Some(sent) = bench.serve()
                && ms > 30_000
            {
                sum += bench.cx.now.since(sent.arrival).as_nanos() as f64 / 1e6;
                n += 1.0;
            }
        }
        bench.check();
        sum / n
    }

    #[test]
    fn holds_the_target_against_a_responsive_load() {
        let mean = mean_delay("pie");
        assert!((2.0..30.0).contains(&mean), "{mean} ms around a target of 15 ms");
        let tail = mean_delay("fifoq");
        assert!(tail > 3.0 * mean, "reversed: {tail} ms without PIE");
    }

    #[test]
    fn a_burst_passes() {
        let mut bench = Bench::new(&node("pie", &[]), 1);
        for ms in 0..140u64 {
            bench.cx.now = Instant::from_millis(ms);
            for _ in 0..3 {
                assert_eq!(bench.offer(1250, |_| {}), Verdict::Queued, "{ms} ms");
            }
            bench.serve();
        }
        for ms in 140..3_000u64 {
            bench.cx.now = Instant::from_millis(ms);
            bench.offer(1250, |_| {});
            bench.serve();
        }
        assert!(!bench.dropped.is_empty(), "the same queue, standing, is not spared");
    }

    #[test]
    fn a_burst_is_allowed_again_after_two_calm_samples() {
        // The target is 15 ms: a sample is calm below 7.5 ms.
        let mut controller =
            Controller { probability: 0, old_delay: Duration::from_millis(20), burst: Duration::ZERO };
        let mut allowance_after = |delay_us| {
            controller.adjust(&constants(), Duration::from_micros(delay_us));
            assert_eq!(controller.probability, 0, "{delay_us} us");
            controller.burst.as_nanos() / 1_000_000
        };
        assert_eq!(allowance_after(9_000), 0, "neither sample is calm");
        assert_eq!(allowance_after(7_499), 0, "the sample before was 9 ms");
        assert_eq!(allowance_after(7_000), 150, "two calm samples");
    }

    #[test]
    fn ecn_marks_below_the_threshold() {
        let mut bench =
            Bench::new(&node("pie", &[("ecn", Value::Flag), ("qlimit", Value::Count(100_000))]), 1);
        let (mut marks_seen, mut high_marks) = (0, 0);
        for ms in 0..20_000u64 {
            bench.cx.now = Instant::from_millis(ms);
            for _ in 0..1 + u64::from(ms % 10 == 0) {
                let before = stat(&*bench.tree.discipline, "marked_early");
                let low = stat(&*bench.tree.discipline, "probability") < ONE / 10;
                bench.offer(1250, |m| m.ecn = 2);
                let marked = stat(&*bench.tree.discipline, "marked_early") > before;
                marks_seen += u32::from(marked);
                high_marks += u32::from(marked && !low);
            }
            bench.serve();
        }
        // The probability may cross the threshold within the call that marks.
        assert!(marks_seen > 5 && high_marks <= 2, "{marks_seen} marks, {high_marks} above 10 %");
        assert!(bench.dropped.iter().any(|(_, reason)| *reason == DropReason::Early), "and drops above");
    }

    #[test]
    fn a_long_silence_costs_little_and_forgets() {
        let mut bench = Bench::new(&node("pie", &[]), 1);
        for ms in 0..3_000u64 {
            bench.cx.now = Instant::from_millis(ms);
            bench.offer(1250, |_| {});
            bench.offer(1250, |_| {});
            bench.serve();
        }
        assert!(stat(&*bench.tree.discipline, "probability") > 0);
        while bench.serve().is_some() {}
        bench.cx.now += Duration::from_secs(300_000_000);
        bench.offer(1250, |_| {});
        assert_eq!(stat(&*bench.tree.discipline, "probability"), 0);
        assert_eq!(stat(&*bench.tree.discipline, "burst_allowance"), 150_000_000);
    }
    /// What is changed at run time counts from then on; what is not said stays.
    #[test]
    fn other_constants_are_taken_at_run_time() {
        let mut bench = Bench::new(&node("pie", &[("tupdate", Value::Time(Duration::from_millis(20)))]), 1);
        let params = Params::new().with("target", Value::Time(Duration::from_millis(40)));
        bench.tree.discipline.reconfigure(&mut bench.cx, "", &params).unwrap();
        let shown = ["target", "tupdate", "max_burst"].map(|name| stat(&*bench.tree.discipline, name));
        assert_eq!(shown, [40_000_000, 20_000_000, 150_000_000]);
    }
    /// [RFC 8033 section 4.2] With two delays of 0 the probability decays by a 64th, the 0.98 of the paper in
    /// a shift; after any other delay it does not.
    #[test]
    fn an_idle_queue_forgets_a_64th_at_a_time() {
        // Nothing but the decay moves it.
        let still = Constants { target: Duration::ZERO, ..constants() };
        let after = |old_delay: Duration, delay: Duration| {
            let mut controller = Controller { probability: ONE / 2, old_delay, burst: Duration::ZERO };
            controller.adjust(&still, delay);
            controller.probability
        };
        assert_eq!(after(Duration::ZERO, Duration::ZERO), ONE / 2 / 64 * 63);
        let tiny = Duration::from_nanos(1);
        assert!(after(Duration::ZERO, tiny) >= ONE / 2 && after(tiny, Duration::ZERO) > ONE / 2 / 64 * 63);
    }
    /// [RFC 8033 section 4.2] Each limit of the table belongs to the larger step.
    #[test]
    fn steps_are_smaller_below_each_limit_and_not_at_it() {
        // 100 ms above the target, as before: a tenth of alpha, before it is scaled.
        let (delay, whole) = (constants().target + Duration::from_millis(100), ALPHA / 10);
        let step = |probability: i64| {
            let mut controller = Controller { probability, old_delay: delay, burst: Duration::ZERO };
            controller.adjust(&constants(), delay);
            controller.probability - probability
        };
        let scales = [
            (1_000_000, 2048, 512),
            (100_000, 512, 128),
            (10_000, 128, 32),
            (1_000, 32, 8),
            (100, 8, 2),
            (10, 2, 1),
        ];
        for (part, below, at) in scales {
            let limit = ONE / part;
            assert_eq!((step(limit - 1), step(limit)), (whole / below, whole / at), "1/{part}");
        }
    }
    /// [RFC 8033 section 5.4] At 8.5, that is with the 85th packet at 10 %, a packet is dropped whatever
    /// the dice say.
    #[test]
    fn at_the_upper_bound_a_drop_is_certain() {
        for seed in weir_seed::seeds(20) {
            let mut pie = at(ONE / 10, Duration::from_millis(100), Duration::ZERO);
            pie.accumulated = ONE / 10 * 84;
            assert!(pie.early(&mut Random::new(seed), 100_000), "seed {seed}");
            assert_eq!(pie.accumulated, 0);
        }
    }
}
