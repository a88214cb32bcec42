//! DualPI2 against its reference, and its promises.

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
    let drops = bench.dropped.iter().filter(|(m, _)| m.ecn == 0 && m.arrival > Instant::from_millis(20_000));
    assert!(drops.count() > 100);
    assert!((0.02..0.5).contains(&base), "p' rests at {base}");
    let marked = f64::from(marks) / f64::from(low);
    assert!((marked - 2.0 * base).abs() < 0.1 * base, "{marked} marked at p' = {base}");
}

#[test]
fn classic_is_sure_of_its_share() {
    for (percent, expected) in [(10, 0.1), (30, 0.3)] {
        let share = Value::Fraction(Fraction::ratio(percent, 100));
        let mut bench = bench(&[("classic-share", share), ("ramp-min", Value::Time(Duration::from_secs(9)))]);
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
        let drops = bench.dropped.iter().filter(|(m, r)| (m.ecn & 1 == 1) == low && *r == DropReason::Head);
        assert!(drops.count() > 1_000, "low latency: {low}");
    }
    bench.check();
    assert!(bench.tree.discipline.backlog().packets < 10_000, "drops hold the queue");
}

/// On a slow link with a target for a fast one, a packet of somebody else's time is an overload. Of three packets
/// that wait for its end two are dropped, and the last leaves: unmarked if it cannot be marked.
#[test]
fn the_last_packet_is_not_dropped() {
    for ecn in 0..4 {
        let times =
            [("target", 1), ("rtt", 6)].map(|(word, ms)| (word, Value::Time(Duration::from_millis(ms))));
        let mut bench = bench(&times);
        for round in 0..100 {
            bench.cx.now = Instant::from_millis(1_000 * round);
            for _ in 0..3 {
                bench.offer(1250, |m| m.ecn = ecn);
            }
            bench.cx.now += Duration::from_millis(190);
            let sent: std::vec::Vec<u8> = core::iter::from_fn(|| bench.serve().map(|m| m.ecn)).collect();
            // The coins begin with a grain less than a drop.
            let expected = [if ecn == 0 { 0 } else { 3 }];
            assert!(sent == expected || round == 0, "ECN {ecn}, round {round}: {sent:?}");
        }
        bench.check();
    }
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
