//! CoDel beside the loop of its RFC, and what it does at a change.

use super::*;
use crate::Random;
use crate::queue::{Value, Verdict};
use crate::sched::testing::{Bench, node, stat};
use std::collections::VecDeque;
use std::vec::Vec;

/// RFC 8289, section 5, with its own loop, in ns; its root in floating point: the reference.
struct Reference {
    queue: VecDeque<(u64, u32, u32)>,
    bytes: u32,
    /// 0 for none.
    first_above: u64,
    drop_next: u64,
    count: u32,
    last_count: u32,
    dropping: bool,
    dropped: Vec<u32>,
}
impl Reference {
    fn pull(&mut self, now: u64) -> (Option<u32>, bool) {
        let Some((came, len, name)) = self.queue.pop_front() else {
            self.first_above = 0;
            return (None, false);
        };
        self.bytes -= len;
        let mut ok = false;
        if now - came < 5_000_000 || self.bytes <= 1514 {
            self.first_above = 0;
        } else if self.first_above == 0 {
            self.first_above = now + 100_000_000;
        } else {
            ok = now >= self.first_above;
        }
        (Some(name), ok)
    }
    fn law(t: u64, count: u32) -> u64 {
        t + (1e8 / f64::from(count).sqrt()) as u64
    }
    fn dequeue(&mut self, now: u64) -> Option<u32> {
        let (mut packet, mut ok) = self.pull(now);
        if packet.is_none() {
            self.dropping = false;
            return None;
        }
        if self.dropping {
            if !ok {
                self.dropping = false;
            }
            while now >= self.drop_next && self.dropping {
                self.dropped.extend(packet);
                self.count += 1;
                (packet, ok) = self.pull(now);
                if ok {
                    self.drop_next = Self::law(self.drop_next, self.count);
                } else {
                    self.dropping = false;
                }
            }
        } else if ok {
            self.dropped.extend(packet);
            (packet, _) = self.pull(now);
            self.dropping = true;
            let delta = self.count - self.last_count;
            self.count =
                if delta > 1 && now.saturating_sub(self.drop_next) < 1_600_000_000 { delta } else { 1 };
            self.drop_next = Self::law(now, self.count);
            self.last_count = self.count;
        }
        packet
    }
}

/// Drops of ours and of the reference under the same load: bursts that come and go.
fn both(seed: u64, high: u64) -> (Vec<u32>, Vec<u32>) {
    let mut bench = Bench::new(&node("codel", &[("qlimit", Value::Count(100_000))]), 1);
    let mut reference = Reference {
        queue: VecDeque::new(),
        bytes: 0,
        first_above: 0,
        drop_next: 0,
        count: 0,
        last_count: 0,
        dropping: false,
        dropped: Vec::new(),
    };
    let (mut random, mut name) = (Random::new(seed), 0);
    // A packet of 1250 bytes is served each millisecond, at a random time within it.
    for ms in 1..30_000u64 {
        bench.cx.now = Instant::from_nanos(ms * 1_000_000 + random.below(999_983));
        let now = bench.cx.now.as_nanos();
        let load = if ms / 3_000 % 2 == 0 { high } else { 60 };
        for _ in 0..2 {
            if random.below(200) < load {
                bench.offer(1250, |_| {});
                reference.queue.push_back((now, 1250, name));
                reference.bytes += 1250;
                name += 1;
            }
        }
        let ours = bench.serve().map(|m| m.frame.0);
        assert_eq!(ours, reference.dequeue(now), "seed {seed} at {ms} ms");
    }
    bench.check();
    (bench.dropped.iter().map(|(m, _)| m.frame.0).collect(), reference.dropped)
}

#[test]
fn drops_at_the_times_of_the_reference() {
    for (seed, high) in weir_seed::seeds(7).zip((115..=145).step_by(5).cycle()) {
        let (ours, exact) = both(seed, high);
        assert!(exact.len() > 50, "seed {seed}: only {} drops", exact.len());
        assert_eq!(ours, exact, "seed {seed}");
    }
    // Reversed: a load that the link carries loses nothing.
    assert_eq!(both(weir_seed::seed(), 50).0.len(), 0);
}

/// The loop of RFC 8289, section 5, as it stands there, in whole nanoseconds; marks beside drops.
#[derive(Default)]
struct Plain {
    first_above: Option<Instant>,
    drop_next: Instant,
    count: u32,
    last_count: u32,
    dropping: bool,
}
/// A waiting packet: when it came, its length, whether it is ECN-capable.
type Waiting = VecDeque<(Instant, u64, bool)>;

impl Plain {
    fn dodequeue(&mut self, of: &Constants, now: Instant, queue: &mut Waiting) -> Option<(bool, bool)> {
        let Some((came, _, capable)) = queue.pop_front() else {
            self.first_above = None;
            return None;
        };
        let left: u64 = queue.iter().map(|(_, len, _)| len).sum();
        let mut ok_to_drop = false;
        if now.since(came) < of.target || left <= of.mtu {
            self.first_above = None;
        } else if let Some(at) = self.first_above {
            ok_to_drop = now >= at;
        } else {
            self.first_above = Some(now + of.interval);
        }
        Some((ok_to_drop, capable && of.ecn))
    }
    /// What becomes of each packet that is taken, the last of which goes.
    fn dequeue(&mut self, of: &Constants, now: Instant, queue: &mut Waiting) -> Vec<Fate> {
        let mut fates = Vec::new();
        let Some((mut ok_to_drop, mut markable)) = self.dodequeue(of, now, queue) else {
            self.dropping = false;
            return fates;
        };
        if self.dropping {
            self.dropping = ok_to_drop;
            while now >= self.drop_next && self.dropping {
                self.count += 1;
                if markable {
                    self.drop_next += of.interval_over_root(self.count);
                    fates.push(Fate::Mark);
                    return fates;
                }
                fates.push(Fate::Drop);
                (ok_to_drop, markable) = self.dodequeue(of, now, queue).expect("one more waits");
                if ok_to_drop {
                    self.drop_next += of.interval_over_root(self.count);
                } else {
                    self.dropping = false;
                }
            }
        } else if ok_to_drop {
            fates.push(if markable { Fate::Mark } else { Fate::Drop });
            if !markable {
                let _ = self.dodequeue(of, now, queue);
            }
            self.dropping = true;
            let delta = self.count.wrapping_sub(self.last_count);
            let recent = now.since(self.drop_next) < of.interval.saturating_mul(16);
            self.count = if delta > 1 && delta <= self.count && recent { delta } else { 1 };
            self.drop_next = now + of.interval_over_root(self.count);
            self.last_count = self.count;
            if markable {
                return fates;
            }
        }
        fates.push(Fate::Pass);
        fates
    }
}

#[test]
fn the_loop_of_the_rfc_agrees() {
    for (run, seed) in weir_seed::seeds(20).enumerate() {
        let mut random = Random::new(seed);
        let of = Constants { ecn: run % 2 == 0, ..Constants::new(&TUNING, 1514) };
        let (mut ours, mut phase, mut plain) = (Law::NEW, Phase::Passing, Plain::default());
        let (mut queue, mut theirs) = (Waiting::new(), Waiting::new());
        let (mut now, mut dropped, mut marked) = (Instant::ZERO, 0, 0);
        for call in 0..40_000 {
            // Now and then a dropping state is long past, or none can be recent any more.
            let most = match random.below(4_000) {
                0 => 400_000_000_000,
                1..=6 => 3_000_000_000,
                _ => 2_000_000,
            };
            now += Duration::from_nanos(random.below(most));
            // Times of overload and times in which the queue drains.
            if random.below(100) < if call / 4_000 % 2 == 0 { 58 } else { 46 } {
                let packet = (now, 40 + random.below(1475), random.below(3) == 0);
                queue.push_back(packet);
                theirs.push_back(packet);
                continue;
            }
            let mut fates = Vec::new();
            while let Some((came, _, capable)) = queue.pop_front() {
                let left = queue.iter().map(|(_, len, _)| len).sum();
                fates.push(ours.judge(&mut phase, &of, now, came, left, capable));
                match fates.last() {
                    Some(Fate::Drop) => dropped += 1,
                    Some(Fate::Mark) => marked += 1,
                    _ => {}
                }
                if fates.last() != Some(&Fate::Drop) {
                    break;
                }
            }
            assert_eq!(fates, plain.dequeue(&of, now, &mut theirs), "seed {seed}, call {call}");
            assert_eq!(queue, theirs, "seed {seed}, call {call}");
        }
        assert!(dropped > 20 && (marked > 20) == of.ecn, "seed {seed}: {dropped} and {marked}");
    }
}

#[test]
fn a_burst_that_drains_is_spared() {
    let mut bench = Bench::new(&node("codel", &[]), 1);
    for round in 0..20 {
        bench.cx.now = Instant::from_millis(200 * round);
        for _ in 0..90 {
            assert_eq!(bench.offer(1250, |_| {}), Verdict::Queued);
        }
        while bench.serve().is_some() {
            bench.pass(1250);
        }
    }
    assert_eq!(bench.dropped.len(), 0);
    assert_eq!(stat(&*bench.tree.discipline, "longest_wait"), 89_000_000);
}

#[test]
fn ecn_marks_and_drops_nothing() {
    for (ecn, dies) in [(2, false), (0, true)] {
        let mut bench =
            Bench::new(&node("codel", &[("ecn", Value::Flag), ("qlimit", Value::Count(100_000))]), 1);
        let mut marked = 0;
        for ms in 0..5_000 {
            bench.cx.now = Instant::from_millis(ms);
            bench.offer(1250, |m| m.ecn = ecn);
            if ms % 4 == 0 {
                bench.offer(1250, |m| m.ecn = ecn);
            }
            marked += u32::from(bench.serve().is_some_and(|m| m.ecn == 3));
        }
        assert_eq!((!bench.dropped.is_empty(), marked > 50), (dies, !dies), "{marked} marks");
    }
}

#[test]
fn times_that_contradict_are_refused() {
    let mut bench = Bench::new(&node("codel", &[]), 1);
    for (name, ms) in [("target", 100), ("interval", 5), ("interval", 0), ("interval", 5_000)] {
        let params = Params::new().with(name, Value::Time(Duration::from_millis(ms)));
        assert!(bench.tree.discipline.reconfigure(&mut bench.cx, "", &params).is_err(), "{name} {ms}");
    }
    assert_eq!(stat(&*bench.tree.discipline, "target"), 5_000_000);
}
/// [RFC 8289 section 5] `now >= first_above_time_`: a whole interval is enough.
#[test]
fn a_wait_stands_when_an_interval_is_over() {
    let constants = Constants::new(&TUNING, 1514);
    let (mut law, mut phase) = (Law::NEW, Phase::Passing);
    let mut stands = |after: Duration| {
        let came = Instant::from_millis(7) + after;
        law.judge(&mut phase, &constants, came + constants.target, came, 10 * 1514, false) == Fate::Drop
    };
    assert!(!stands(Duration::ZERO));
    assert!(!stands(constants.interval.saturating_sub(Duration::from_nanos(1))));
    assert!(stands(constants.interval));
}
