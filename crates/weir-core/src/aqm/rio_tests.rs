//! RIO: what each precedence loses, and what stays.

use super::*;
use crate::queue::{Value, Verdict};
use crate::sched::testing::{Bench, class, node, stat};
use crate::units::Instant;
use std::vec::Vec;

const AF11: u8 = 10;
const AF12: u8 = 12;
const AF13: u8 = 14;

fn bench(params: &[(&'static str, Value)]) -> Bench {
    let mut all = std::vec![("qlimit", Value::Count(1_000)), ("weight", Value::Count(64))];
    all.extend_from_slice(params);
    Bench::new(&node("rio", &all), weir_seed::seed())
}

/// The share of `n` packets of `dscp` that is dropped while `length` packets of it are queued,
/// after the average has settled.
fn losses(dscp: u8, length: u64, n: u32) -> f64 {
    let mut bench = bench(&[]);
    let mut lost = 0;
    for step in 0..n + 5_000 {
        while bench.tree.discipline.backlog().packets > length {
            bench.serve();
        }
        let died = bench.offer(100, |m| m.dscp = dscp) == Verdict::Dropped;
        lost += u32::from(died && step >= 5_000);
    }
    f64::from(lost) / f64::from(n)
}

/// When a flush has emptied a queue is not told. Until an arrival finds that out nothing is forgotten; from
/// then on a departure tells, and an idle time counts.
#[test]
fn idle_time_begins_when_the_queue_is_seen_to_be_empty() {
    let mut bench = bench(&[]);
    let average = |bench: &Bench| stat(&*bench.tree.discipline, "lo_average");
    for _ in 0..20 {
        bench.offer(1_000, |m| m.dscp = AF11);
    }
    let before = average(&bench);
    bench.tree.discipline.flush(&mut bench.cx, DropReason::Flush);
    bench.cx.now = Instant::from_millis(10_000);
    bench.offer(1_000, |m| m.dscp = AF11);
    // An arrival at an empty queue: one of 64 parts less.
    assert!(
        before > 1_000 && average(&bench).abs_diff(before * 63 / 64) <= 1,
        "{before} {}",
        average(&bench)
    );
    bench.serve();
    bench.cx.now = Instant::from_millis(20_000);
    bench.offer(1_000, |m| m.dscp = AF11);
    assert_eq!(average(&bench), 0);
    // While a packet waits the queue is not idle: that time counts from the last departure.
    for _ in 0..20 {
        bench.offer(1_000, |m| m.dscp = AF11);
    }
    let before = average(&bench);
    while bench.tree.discipline.backlog().packets > 1 {
        bench.serve();
    }
    bench.cx.now = Instant::from_millis(30_000);
    bench.serve();
    bench.offer(1_000, |m| m.dscp = AF11);
    assert!(
        before > 1_000 && average(&bench).abs_diff(before * 63 / 64) <= 1,
        "{before} {}",
        average(&bench)
    );
}

/// Queued packets without a code point change their precedence with `unmarked`: where they leave, they are
/// no longer counted with the precedence that they came with.
#[test]
fn queued_packets_change_their_precedence_with_unmarked() {
    let mut bench = bench(&[("unmarked", Value::Word("lo"))]);
    for _ in 0..20 {
        bench.offer(1_000, |m| m.dscp = 0);
    }
    let params = Params::new().with("unmarked", Value::Word("hi"));
    bench.tree.discipline.reconfigure(&mut bench.cx, "", &params).unwrap();
    while bench.serve().is_some() {}
    for _ in 0..1_000 {
        bench.offer(1_000, |m| m.dscp = AF11);
        bench.serve();
    }
    // Thousandths of a packet: each came to an empty queue.
    assert!(stat(&*bench.tree.discipline, "lo_average") < 100);
}

#[test]
fn d05_step_response() {
    for (dscp, min, max) in [(AF11, 35, 45), (AF12, 20, 30), (AF13, 5, 15), (0, 35, 45), (46, 35, 45)] {
        assert_eq!(losses(dscp, min - 1, 20_000), 0.0, "{dscp}");
        for (length, p) in [((min + max) / 2, 0.05), (max - 1, 0.09)] {
            let rate = losses(dscp, length, 100_000);
            // The gap is uniform over 1..2/p, with mean 1/p and deviation 1/(p sqrt 3).
            let sigma = p / (3.0f64 * 100_000.0 * p).sqrt();
            assert!((rate - p).abs() < 6.0 * sigma, "{dscp} at {length}: {rate} for {p}");
        }
        assert_eq!(losses(dscp, max + 1, 5_000), 1.0, "{dscp}: no gentle region");
    }
}

/// The same where five of six packets are of the precedence dropped last.
#[test]
fn d05_step_response_among_other_packets() {
    for wait in [true, false] {
        let flag = ("wait", Value::Flag);
        let mut bench = bench(if wait { core::slice::from_ref(&flag) } else { &[] });
        let (mut lost, n) = (0, 100_000);
        for step in 0..6 * n + 5_000 {
            while bench.tree.discipline.backlog().packets > 10 {
                bench.serve();
            }
            let dscp = if step % 6 == 0 { AF13 } else { AF11 };
            let died = bench.offer(100, |m| m.dscp = dscp) == Verdict::Dropped;
            assert!(!died || dscp == AF13, "ten packets are below the others' thresholds");
            lost += u32::from(died && step >= 5_000);
        }
        // The gap is uniform over 1..2/p or, with `wait`, over 1/p..2/p.
        let p = if wait { 0.05 / 1.5 } else { 0.05 };
        let rate = f64::from(lost) / f64::from(n);
        assert!((rate / p - 1.0).abs() < 0.05, "wait {wait}: {rate} for {p}");
    }
}

/// The fates of in-profile packets, and their average, when out-of-profile packets come in
/// between as `noise` draws them.
fn in_profile(noise: Option<u64>, noisy: u8) -> (Vec<bool>, i64) {
    let mut bench = bench(&[("lo_thmin", Value::Count(3)), ("lo_thmax", Value::Count(12))]);
    let (mut script, mut noise_source) = (Random::new(weir_seed::seed()), Random::new(noise.unwrap_or(0)));
    let mut fates = Vec::new();
    let mut queued = 0;
    for step in 0..30_000u64 {
        bench.cx.now = Instant::from_nanos(step * 100_000);
        if noise.is_some() {
            for _ in 0..noise_source.below(4) {
                bench.offer(100, |m| m.dscp = noisy);
            }
        }
        let fill = if step / 500 % 2 == 0 { 55 } else { 45 };
        if script.below(100) < fill {
            let lives = bench.offer(100, |m| m.dscp = AF11) == Verdict::Queued;
            queued += u32::from(lives);
            fates.push(lives);
        } else if queued > 0 {
            // The next in-profile packet leaves, with whatever stands before it.
            while bench.serve().expect("one is queued").dscp != AF11 {}
            queued -= 1;
        }
    }
    bench.check();
    assert!(!bench.dropped.iter().any(|(_, reason)| *reason == DropReason::Tail), "an overflow");
    (fates, stat(&*bench.tree.discipline, "lo_average"))
}

#[test]
fn d06_out_of_profile_never_touches_in_profile() {
    let alone = in_profile(None, 0);
    assert!(alone.0.iter().filter(|lives| !**lives).count() > 100, "nothing dropped, nothing shown");
    for seed in weir_seed::seeds(5) {
        for noisy in [AF12, AF13] {
            assert_eq!(in_profile(Some(seed), noisy), alone, "seed {seed}");
        }
        // Reversed: more of the same precedence does change it.
        assert_ne!(in_profile(Some(seed), 8).1, alone.1, "seed {seed}");
    }
}

#[test]
fn d03_precedences_are_not_reordered() {
    let (mut bench, mut random) = (bench(&[]), Random::new(weir_seed::seed()));
    let mut last = 0;
    for _ in 0..20_000 {
        if random.below(100) < 52 {
            bench.offer(100, |m| m.dscp = [0, AF11, AF12, AF13][random.below(4) as usize]);
        } else if let Some(sent) = bench.serve() {
            assert!(sent.frame.0 >= last);
            last = sent.frame.0;
        }
    }
    assert!(!bench.dropped.is_empty());
    bench.check();
}

#[test]
fn ecn_marks_instead() {
    for (ecn, codepoint, dies, marked) in
        [(true, 1, 0, true), (true, 2, 0, true), (true, 0, 1, false), (false, 2, 1, false)]
    {
        let flag = ("ecn", Value::Flag);
        let mut bench = bench(if ecn { core::slice::from_ref(&flag) } else { &[] });
        let mut seen = 0;
        for _ in 0..20_000 {
            while bench.tree.discipline.backlog().packets > 40 {
                seen += u32::from(bench.serve().unwrap().ecn == 3);
            }
            bench.offer(100, |m| (m.dscp, m.ecn) = (AF11, codepoint));
        }
        assert_eq!((bench.dropped.len().min(1), seen > 500), (dies, marked), "ecn {ecn} {codepoint}");
    }
}

#[test]
fn d04_all_parameters_change_at_run_time_and_show_exactly() {
    let mut priq = node("priq", &[]);
    let rio = [("rio", Value::Flag), ("priority", Value::Count(0)), ("qlimit", Value::Count(1_000))];
    priq.classes = std::vec![class("pr", &[("priority", Value::Count(1))]), class("be", &rio)];
    let mut bench = Bench::new(&priq, 1);
    let pmax = Fraction::ratio(1, 50);
    let params = Params::new()
        .with("lo_thmin", Value::Count(40))
        .with("lo_thmax", Value::Count(70))
        .with("lo_invpmax", Value::Count(50))
        .with("lo_weight", Value::Count(512))
        .with("hi_thmin", Value::Count(10))
        .with("hi_thmax", Value::Count(30))
        .with("hi_pmax", Value::Fraction(Fraction::ratio(1, 2)))
        .with("hi_weight", Value::Count(256))
        .with("unmarked", Value::Word("hi"));
    for _ in 0..60 {
        bench.offer(100, |m| m.leaf = 1);
    }
    let queued = bench.tree.discipline.backlog();
    bench.tree.discipline.reconfigure(&mut bench.cx, "be", &params).unwrap();
    assert_eq!(bench.tree.discipline.backlog(), queued, "effective without a flush");
    for (name, value) in [
        ("lo_thmin", 40),
        ("lo_thmax", 70),
        ("lo_pmax", pmax.raw() as i64),
        ("lo_weight", 512),
        ("hi_thmin", 10),
        ("hi_thmax", 30),
        ("hi_pmax", 1 << 31),
        ("hi_weight", 256),
    ] {
        assert_eq!(stat(&*bench.tree.discipline, name), value, "{name}");
    }
    // What was unmarked and in profile is out of profile now.
    bench.offer(100, |m| (m.leaf, m.dscp) = (1, AF13));
    let wrong = Params::new().with("lo_thmin", Value::Count(50)).with("lo_thmax", Value::Count(50));
    let error = bench.tree.discipline.reconfigure(&mut bench.cx, "be", &wrong).unwrap_err();
    assert_eq!((error.field.as_str(), stat(&*bench.tree.discipline, "lo_thmin")), ("lo_thmin", 40));
    bench.check();
}
