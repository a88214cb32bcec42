//! BLUE: a dropping probability that rises when the queue overflows and falls when it runs dry.
//!
//! Principle: no average and no thresholds. There is one probability for all arrivals. An overflow
//! says that it is too low and raises it by an eighth. An idle link says that it is too high and
//! lowers it a little. Between two changes lies at least `holdtime`, so that its effect is seen.
//! Paper: Feng, Shin, Kandlur and Saha, "The BLUE active queue management algorithms", IEEE/ACM
//! Transactions on Networking 10(4), 2002, section III.
//! Where we differ, and why: as in ALTQ a full queue drops a packet at random, and the steps are
//! 1/8 and 1/`maxpmark`. A long idle time counts as one step for each `holdtime` in it, as the
//! paper's repeated idle events do. ALTQ made one step, and forgot everything after 1 s.
//! Cost: a random draw per packet while the probability is above 0; 96 bytes per queue.
//! Guarantees: `rises_on_overflow_and_falls_when_idle`, `drops_with_its_probability`.
//! Parameters: `qlimit` (packets, 60), `maxpmark` (the count that is a probability of 1, 4000),
//! `holdtime` (us, 1000), `packetsize` (without effect, as in ALTQ), `ecn`. All at run time.

use super::contract::{Aqm, Decision, Departures};
use super::entry::{AqmEntry, Built, QueueConfig};
use super::params::{ECN, PACKET_SIZE, count, qlimit};
use crate::packet::{List, PacketId};
use crate::queue::ParamSpec as P;
use crate::queue::{Cx, DropReason, Kind, Link, ParamError, ParamSpec, Params, TimeUnit, Visit};
use crate::units::{Duration, Instant};
use alloc::boxed::Box;

const LIMIT: ParamSpec = qlimit("60");
const MAX_PMARK: ParamSpec =
    P::discipline("maxpmark", count(1, 1_000_000), "4000", "What a marking probability of 1 is counted as.");
const HOLD_TIME: ParamSpec = P::discipline(
    "holdtime",
    Kind::Time { bare: TimeUnit::Micros },
    "1000",
    "Least time between two changes of the probability, us.",
);

/// The line in the list of AQMs.
pub(super) const ENTRY: AqmEntry = AqmEntry {
    name: "blue",
    source: include_str!("blue.rs"),
    params: &[&[LIMIT, PACKET_SIZE, MAX_PMARK, HOLD_TIME, ECN]],
    usual_limit: LIMIT.default_number() as u32,
    build,
    ..AqmEntry::PLAIN
};

fn build(queue: &QueueConfig<'_>) -> Built {
    Ok(Box::new(Blue::new(queue.params)))
}

/// The state of one BLUE queue.
#[derive(Debug)]
pub struct Blue {
    /// Probability, in units of 1 / `scale`.
    probability: u64,
    scale: u64,
    hold: Duration,
    changed: Instant,
    idle_from: Instant,
    ecn: bool,
    early: u64,
    pushed: u64,
    marks: u64,
}

impl Blue {
    /// BLUE as `params` say.
    fn new(params: &Params) -> Self {
        let mut blue = Blue {
            probability: 0,
            scale: MAX_PMARK.default_number(),
            hold: Duration::from_nanos(HOLD_TIME.default_number()),
            changed: Instant::ZERO,
            idle_from: Instant::ZERO,
            ecn: false,
            early: 0,
            pushed: 0,
            marks: 0,
        };
        blue.set(params);
        blue
    }
    fn set(&mut self, params: &Params) {
        let scale = params.count("maxpmark").unwrap_or(self.scale);
        self.probability = crate::units::mul_div(self.probability, scale, self.scale);
        self.scale = scale;
        self.hold = params.time("holdtime").unwrap_or(self.hold);
        self.ecn |= params.has("ecn");
    }
    /// The queue was found empty: one step down for each `hold` since.
    fn idle(&mut self, now: Instant) {
        let since = now.since(self.idle_from.max(self.changed));
        if self.probability > 0 && since > self.hold {
            let steps = since.as_nanos() / self.hold.as_nanos().max(1);
            self.probability = self.probability.saturating_sub(steps);
            self.changed = now;
        }
    }
}

impl Aqm for Blue {
    #[inline(always)]
    fn arrive(&mut self, cx: &mut Cx, queue: &List, limit: u32, id: &PacketId) -> Decision {
        let packets = queue.packets();
        if packets == 0 {
            self.idle(cx.now);
        }
        self.idle_from = cx.now;
        if cx.adopting() {
            return Decision::Accept;
        }
        if packets >= limit {
            if cx.now.since(self.changed) > self.hold {
                self.probability = (self.probability + (self.scale / 8).max(1)).min(self.scale);
                self.changed = cx.now;
            }
            self.pushed += 1;
            let victim = cx.random.below(u64::from(packets) + 1) as u32;
            return if victim == packets {
                Decision::Drop(DropReason::Tail)
            } else {
                Decision::PushOut(victim, DropReason::Pushout)
            };
        }
        if packets > 1 && self.probability > 0 && cx.random.below(self.scale) < self.probability {
            if self.ecn && cx.packets.get(id).ecn_capable() {
                self.marks += 1;
                return Decision::Mark(DropReason::Early);
            }
            self.early += 1;
            return Decision::Drop(DropReason::Early);
        }
        Decision::Accept
    }
    fn depart(&mut self, cx: &mut Cx, queue: &List, _id: &PacketId) -> Decision {
        if queue.is_empty() {
            self.idle_from = cx.now;
        }
        Decision::Accept
    }
    fn name(&self) -> &'static str {
        ENTRY.name
    }
    fn params(&self) -> &'static [&'static [ParamSpec]] {
        ENTRY.params
    }
    fn departures(&self) -> Departures {
        Departures::Last
    }
    fn reconfigure(&mut self, _: &str, params: &Params, _: &Link) -> Result<(), ParamError> {
        self.set(params);
        Ok(())
    }
    fn visit_stats(&self, visit: &mut dyn Visit) {
        visit.value("probability", "1/maxpmark", self.probability as i64);
        visit.value("maxpmark", "", self.scale as i64);
        visit.value("holdtime", "ns", self.hold.as_nanos() as i64);
        visit.value("dropped_early", "packets", self.early as i64);
        visit.value("dropped_full", "packets", self.pushed as i64);
        visit.value("marked_early", "packets", self.marks as i64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::{Value, Verdict};
    use crate::sched::testing::{Bench, node};

    fn bench(params: &[(&'static str, Value)]) -> Bench {
        Bench::new(&node("blue", params), weir_seed::seed())
    }
    fn stat(bench: &Bench, name: &'static str) -> i64 {
        crate::sched::testing::stat(&*bench.tree.discipline, name)
    }

    /// A55, for BLUE.
    #[test]
    fn rises_on_overflow_and_falls_when_idle() {
        let mut bench = bench(&[("qlimit", Value::Count(10))]);
        bench.cx.now = Instant::from_millis(10);
        for _ in 0..40 {
            bench.offer(100, |_| {});
        }
        assert_eq!(stat(&bench, "probability"), 500, "one step of an eighth within the hold time");
        for step in 1..20 {
            bench.cx.now = Instant::from_millis(10 + 2 * step);
            while bench.tree.discipline.backlog().packets < 10 {
                bench.offer(100, |_| {});
            }
            bench.offer(100, |_| {});
        }
        let high = stat(&bench, "probability");
        assert!((2_000..=4_000).contains(&high), "{high}");
        while bench.serve().is_some() {}
        bench.cx.now += Duration::from_millis(700);
        bench.offer(100, |_| {});
        assert_eq!(stat(&bench, "probability"), high - 700, "one step for each hold time");
        bench.check();
    }

    /// Another scale keeps the probability, and the steps are an eighth of it from then on.
    #[test]
    fn another_scale_is_the_same_probability() {
        let mut bench = bench(&[("qlimit", Value::Count(1)), ("maxpmark", Value::Count(800))]);
        let overflow = |bench: &mut Bench| {
            bench.cx.now += Duration::from_secs(1);
            bench.offer(100, |_| {});
            stat(bench, "probability")
        };
        // The first packet finds room.
        assert_eq!([(); 3].map(|()| overflow(&mut bench)), [0, 100, 200]);
        for (scale, probability, next) in [(1_600, 400, 600), (400, 150, 200)] {
            let params = Params::new().with("maxpmark", Value::Count(scale));
            bench.tree.discipline.reconfigure(&mut bench.cx, "", &params).unwrap();
            assert_eq!(stat(&bench, "probability"), probability, "of {scale}");
            assert_eq!(overflow(&mut bench), next, "of {scale}");
        }
    }

    /// Between two changes lies more than the hold time, upwards and downwards.
    #[test]
    fn no_change_comes_before_the_hold_time_is_over() {
        let hold = Duration::from_millis(1);
        for (after, changes) in [(hold, false), (hold + Duration::from_nanos(1), true)] {
            let mut bench = bench(&[("qlimit", Value::Count(1)), ("holdtime", Value::Time(hold))]);
            bench.cx.now = Instant::from_millis(10);
            for _ in 0..2 {
                bench.offer(100, |_| {});
            }
            assert_eq!(stat(&bench, "probability"), 500, "full for the first time");
            bench.cx.now += after;
            bench.offer(100, |_| {});
            let up = if changes { 1_000 } else { 500 };
            assert_eq!(stat(&bench, "probability"), up, "full again after {after}");
            bench.serve();
            bench.cx.now += after;
            bench.offer(100, |_| {});
            let down = if changes { up - 1 } else { up };
            assert_eq!(stat(&bench, "probability"), down, "empty for {after}");
        }
    }

    #[test]
    fn drops_with_its_probability() {
        for ecn in [false, true] {
            let mut bench = bench(&[("qlimit", Value::Count(10)), ("holdtime", Value::Time(Duration::MAX))]);
            let params = Params::new().with("holdtime", Value::Time(Duration::ZERO));
            bench.tree.discipline.reconfigure(&mut bench.cx, "", &params).unwrap();
            bench.cx.now = Instant::from_millis(10);
            for _ in 0..11 {
                bench.offer(100, |_| {});
            }
            let mut params = Params::new().with("holdtime", Value::Time(Duration::MAX));
            if ecn {
                params.set("ecn", Value::Flag);
            }
            bench.tree.discipline.reconfigure(&mut bench.cx, "", &params).unwrap();
            assert_eq!(stat(&bench, "probability"), 500);
            let (n, mut lost, mut marked) = (80_000, 0, 0);
            for _ in 0..n {
                while bench.tree.discipline.backlog().packets > 5 {
                    marked += u32::from(bench.serve().unwrap().ecn == 3);
                }
                lost += u32::from(bench.offer(100, |m| m.ecn = 2) == Verdict::Dropped);
            }
            let (hits, none) = if ecn { (marked, lost) } else { (lost, marked) };
            let sigma = (f64::from(n) * 0.125 * 0.875).sqrt();
            assert!((f64::from(hits) - f64::from(n) * 0.125).abs() < 6.0 * sigma, "ecn {ecn}: {hits}");
            assert_eq!(none, 0);
        }
    }

    #[test]
    fn a04_a_full_queue_drops_one_at_random() {
        // Proves A04: among n packets and the newcomer, each is dropped with probability 1 / (n + 1).
        let (trials, mut newcomer) = (20_000, 0);
        let mut bench = bench(&[("qlimit", Value::Count(9)), ("holdtime", Value::Time(Duration::MAX))]);
        for _ in 0..9 {
            bench.offer(100, |_| {});
        }
        for _ in 0..trials {
            newcomer += u32::from(bench.offer(100, |_| {}) == Verdict::Dropped);
        }
        let (expected, sigma) = (f64::from(trials) / 10.0, (f64::from(trials) * 0.09).sqrt());
        assert!((f64::from(newcomer) - expected).abs() < 6.0 * sigma, "{newcomer}");
        bench.check();
    }
}
