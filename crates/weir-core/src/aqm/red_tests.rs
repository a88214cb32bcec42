//! RED against floating-point references and against its own theory.

use super::super::average::{ONE, early};
use super::*;
use crate::Random;
use crate::packet::{FrameRef, Meta};
use crate::queue::{Backlog, Leaf, Next, Value, Verdict};
use crate::sched::testing::{Bench, node, stat};
use crate::sched::{Node, Registry};
use crate::units::{Duration, Instant};
use std::vec::Vec;

fn link() -> Link {
    Link::new(Rate::from_mbps(10), 0, 1500)
}

fn offer(cx: &mut Cx, leaf: &mut Leaf, ecn: u8) -> Verdict {
    let mut meta = Meta::new(1000, cx.now, FrameRef(0));
    meta.ecn = ecn;
    let id = cx.packets.insert(meta).unwrap();
    let verdict = leaf.enqueue(cx, id);
    while let Some((id, _)) = cx.next_dropped() {
        cx.packets.remove(id);
    }
    verdict
}

fn red_leaf(params: &Params) -> Leaf {
    let queue = QueueConfig {
        class: "",
        params,
        rate: link().rate,
        limit: params.count("qlimit").unwrap_or(60) as u32,
        link: &link(),
        in_class: false,
    };
    let red = build(&queue).unwrap();
    Leaf::custom(queue.limit.max(red.least_limit()), red)
}

/// p_a in floating point, straight from the paper with the uniform gap over 2/p_b.
fn reference(average: f64, count: u32, min: f64, max: f64, pmax: f64, gentle: bool) -> f64 {
    let pb = if average < min {
        0.0
    } else if average < max {
        pmax * (average - min) / (max - min)
    } else if gentle && average < 2.0 * max {
        pmax + (1.0 - pmax) * (average - max) / max
    } else {
        return 1.0;
    };
    if f64::from(count) * pb >= 2.0 { 1.0 } else { (pb / (2.0 - f64::from(count) * pb)).min(1.0) }
}

#[test]
fn a30_probability_is_within_a_percent_of_the_exact_one() {
    let mut worst = 0.0f64;
    for (min, max, inverse, gentle) in
        [(5, 15, 10, false), (20, 60, 50, true), (1, 2, 1, false), (1000, 900_000, 1000, true)]
    {
        let ramp = Ramp::new(min, max, Fraction::ratio(1, inverse), gentle);
        let span = (2 * max) << LENGTH_BITS;
        for step in 0..=600u64 {
            let average = span / 600 * step;
            let real = average as f64 / f64::from(1 << LENGTH_BITS);
            for count in (0..200).chain([1_000, 10_000, u32::MAX]) {
                let ours = match ramp.zone(average) {
                    Zone::Pass => 0.0,
                    Zone::Forced => 1.0,
                    Zone::Early(half) => {
                        let rest = ONE.saturating_sub(half.saturating_mul(u64::from(count)));
                        if half == 0 {
                            0.0
                        } else if rest <= half {
                            1.0
                        } else {
                            half as f64 / rest as f64
                        }
                    }
                };
                let exact = reference(real, count, min as f64, max as f64, 1.0 / inverse as f64, gentle);
                let error = (ours - exact).abs() / exact.max(1e-9);
                worst = worst.max(error);
                assert!(error <= 0.01, "min {min} max {max} avg {real} count {count}: {ours} for {exact}");
            }
        }
    }
    assert!(worst > 0.0, "the grid reached no probability that rounds");
}

#[test]
fn average_is_the_exponential_one() {
    for weight in [1u64, 64, 512, 65_536] {
        let mut ours = Average::new(weight, 1000, link().rate, &link());
        let (mut exact, mut random) = (0.0f64, Random::new(weir_seed::seed() ^ weight));
        for step in 0..20_000u32 {
            let queue = 1 + random.below(u64::from(step % 700 + 1)) as u32;
            ours.update(Instant::from_nanos(u64::from(step)), queue);
            exact += (f64::from(queue) - exact) / weight as f64;
            let value = ours.value() as f64 / f64::from(1 << LENGTH_BITS);
            assert!((value - exact).abs() < 1e-3, "weight {weight} step {step}: {value} for {exact}");
        }
    }
}

#[test]
fn idle_time_decays_the_average_as_the_reference() {
    // 1000 bytes at 10 Mbit/s are 800 us, in every unit.
    for (idle_us, packets) in [(799, 0), (800, 1), (8_000, 10), (409_600, 512), (4_000_000, 5_000)] {
        let mut average = Average::new(512, 1000, link().rate, &link());
        average.set_packets(100);
        average.emptied(Instant::from_millis(7));
        average.update(Instant::from_millis(7) + Duration::from_micros(idle_us), 0);
        let exact = 100.0 * (1.0f64 - 1.0 / 512.0).powi(packets + 1);
        let value = average.value() as f64 / f64::from(1 << LENGTH_BITS);
        assert!((value - exact).abs() < 1e-4, "{packets} packet times: {value} for {exact}");
    }
}

#[test]
fn the_weight_suits_the_rate() {
    for (kbps, weight) in [(100, 64), (2_000, 128), (3_000, 512), (400_000_000, 512)] {
        let average = Average::new(0, 1000, Rate::from_bps(kbps * 1_000), &link());
        assert_eq!(average.weight(), weight, "{kbps} kbit/s");
    }
}

/// Keeps the queue at `length` packets by serving whatever is beyond it.
fn hold(cx: &mut Cx, leaf: &mut Leaf, length: u64) {
    while leaf.backlog().packets > length {
        let id = leaf.dequeue(cx).unwrap();
        cx.packets.remove(id);
    }
}

/// Drops or marks among `n` arrivals at a queue held at `length`, after the average has settled.
fn losses(params: &Params, ecn: u8, length: u64, n: u32, seed: u64) -> (u32, u32) {
    let mut cx = Cx::new(200, link(), seed);
    let mut leaf = red_leaf(params);
    let (mut dropped, mut marked) = (0, 0);
    for step in 0..n + 10_000 {
        hold(&mut cx, &mut leaf, length);
        let before = leaf.marked();
        let lost = offer(&mut cx, &mut leaf, ecn) == Verdict::Dropped;
        if step >= 10_000 {
            dropped += u32::from(lost);
            marked += (leaf.marked() - before) as u32;
        }
    }
    (dropped, marked)
}

/// RED in its plain form: each arrival goes the way that has all cases.
struct Plain(Red);

impl Aqm for Plain {
    fn arrive(&mut self, cx: &mut Cx, queue: &List, limit: u32, id: &PacketId) -> Decision {
        self.0.arrive_otherwise(cx, queue.packets(), limit, id)
    }
    fn depart(&mut self, cx: &mut Cx, queue: &List, id: &PacketId) -> Decision {
        self.0.depart(cx, queue, id)
    }
    fn departures(&self) -> Departures {
        self.0.departures()
    }
}

/// The way that most arrivals go decides as the plain one, packet by packet, whatever the queue, the time, marks and adoption.
#[test]
fn the_short_way_decides_as_the_plain_one() {
    let (params, seed) = (params().with("ecn", Value::Flag), weir_seed::seed());
    let queue = QueueConfig {
        class: "",
        params: &params,
        rate: link().rate,
        limit: 100,
        link: &link(),
        in_class: false,
    };
    let side = |aqm| (Cx::new(200, link(), seed), Leaf::custom(100, aqm));
    let mut sides: [(Cx, Leaf); 2] = [
        side(Box::new(Red::new(&queue).unwrap()) as Box<dyn Aqm>),
        side(Box::new(Plain(Red::new(&queue).unwrap()))),
    ];
    let (mut random, mut length) = (Random::new(seed), 0);
    let (mut lost, mut marked) = (0, 0);
    for step in 0..50_000u32 {
        if step % 500 == 0 {
            length = random.below(40);
        }
        let (gap, ecn, adopting) = (random.below(2_000_000), random.below(2) as u8, random.below(50) == 0);
        let seen = sides.each_mut().map(|(cx, leaf)| {
            hold(cx, leaf, length);
            cx.now += Duration::from_nanos(gap);
            cx.adopting = adopting;
            let verdict = offer(cx, leaf, ecn);
            (verdict, leaf.marked(), leaf.backlog())
        });
        assert_eq!(seen[0], seen[1], "step {step}, seed {seed}");
        (lost, marked) = (lost + u32::from(seen[0].0 == Verdict::Dropped), seen[0].1);
    }
    assert!(lost > 0 && marked > 0, "{lost} lost, {marked} marked, seed {seed}");
}

fn params() -> Params {
    Params::new().with("qlimit", Value::Count(100)).with("weight", Value::Count(512))
}

#[test]
fn a30_drop_rate_is_as_theory_says() {
    let (n, seed) = (200_000, weir_seed::seed());
    for length in [6u64, 8, 10, 14] {
        let (dropped, _) = losses(&params(), 0, length, n, seed);
        // The gap is uniform over 1..2/p, with mean 1/p and deviation 1/(p sqrt 3).
        let p = 0.1 * (length as f64 - 5.0) / 10.0;
        let expected = f64::from(n) * p;
        let sigma = (expected / 3.0).sqrt();
        let error = (f64::from(dropped) - expected).abs();
        assert!(error < 6.0 * sigma + 1.0, "length {length}: {dropped} for {expected} +- {sigma}");
        // Reversed: a queue one packet longer does not pass for this one.
        let (longer, _) = losses(&params(), 0, length + 1, n, seed);
        let other = (f64::from(longer) - expected).abs();
        assert!(length == 14 || other > 6.0 * sigma, "length {length}: {longer} passes for {expected}");
    }
}

/// p_b is 1/8. The gap to the next drop is uniform over 1..=15, and with `wait` over 8..=15: a drop may
/// come as soon as count p_b is 1, and comes before it is 2.
#[test]
fn gaps_between_drops_have_their_bounds() {
    let mut random = Random::new(weir_seed::seed());
    for (wait, least) in [(false, 1), (true, 8)] {
        let mut seen = [0u32; 20];
        for _ in 0..20_000 {
            let gap = (1..).find(|&count| early(ONE / 16, count, wait, &mut random)).unwrap();
            seen[gap as usize] += 1;
        }
        let drawn: Vec<u32> = (0..20).filter(|&gap| seen[gap as usize] > 0).collect();
        assert_eq!((drawn.first(), drawn.last()), (Some(&least), Some(&15)), "wait {wait}: {seen:?}");
        let mean = 20_000 / drawn.len() as u32;
        assert!(
            drawn.iter().all(|&gap| seen[gap as usize].abs_diff(mean) < mean / 4),
            "wait {wait}: {seen:?}"
        );
    }
}

/// Whatever the average, one packet must be able to wait: below that RED decides nothing.
#[test]
fn a_packet_beside_one_other_at_most_is_never_dropped() {
    for (queued, taken) in [(0, true), (1, true), (2, false), (3, false)] {
        let mut cx = Cx::new(200, link(), 1);
        let mut leaf = red_leaf(&params());
        // The average follows 60 packets for long, above every threshold.
        for _ in 0..10_000 {
            hold(&mut cx, &mut leaf, 60);
            offer(&mut cx, &mut leaf, 0);
        }
        while leaf.backlog().packets < 4 {
            let id = cx.packets.insert(Meta::new(1000, cx.now, FrameRef(0))).unwrap();
            leaf.enqueue(&mut cx, id);
        }
        hold(&mut cx, &mut leaf, queued);
        assert_eq!(offer(&mut cx, &mut leaf, 0) == Verdict::Queued, taken, "{queued} are queued");
    }
}

/// A change of parameters goes on from the average as it was.
#[test]
fn a_change_keeps_the_average() {
    let mut bench = Bench::new(&node("red", &[("qlimit", Value::Count(100))]), 1);
    for _ in 0..50 {
        bench.offer(1_000, |_| {});
    }
    let average = stat(&*bench.tree.discipline, "average");
    let params = Params::new().with("thmax", Value::Count(20));
    bench.tree.discipline.reconfigure(&mut bench.cx, "", &params).unwrap();
    assert!(average > 0);
    assert_eq!(stat(&*bench.tree.discipline, "average"), average);
}

/// What changes at run time decides from then on as what was configured so from the start, be it changed by one or
/// by two steps, and the penalty box comes with it.
#[test]
fn a_change_is_as_good_as_a_start() {
    let length = [("qlimit", Value::Count(100))];
    let first = [("thmin", Value::Count(3)), ("invpmax", Value::Count(4)), ("weight", Value::Count(16))];
    let second =
        [("thmax", Value::Count(9)), ("ecn", Value::Flag), ("wait", Value::Flag), ("flowvalve", Value::Flag)];
    let decided = |start: &[(&'static str, Value)], steps: &[&[(&'static str, Value)]]| {
        let mut bench = Bench::new(&node("red", start), 1);
        for step in steps {
            let params =
                step.iter().fold(Params::new(), |params, (name, value)| params.with(name, value.clone()));
            bench.tree.discipline.reconfigure(&mut bench.cx, "", &params).unwrap();
        }
        let mut seen = std::vec::Vec::new();
        for n in 0..4_000u32 {
            seen.push(i64::from(bench.offer(1_000, |m| m.ecn = (n % 3 / 2) as u8) == Verdict::Queued));
            if n % 5 != 0 {
                seen.push(bench.serve().map_or(-1, |m| i64::from(m.ecn)));
            }
        }
        let names = ["average", "dropped_early", "marked_early", "thmin", "thmax", "pmax", "weight"];
        seen.extend(names.map(|name| stat(&*bench.tree.discipline, name)));
        seen.push(stat(&*bench.tree.discipline, "flows_in_penalty_box"));
        seen
    };
    let all = [&length[..], &first, &second].concat();
    let from_the_start = decided(&all, &[]);
    assert!(from_the_start.contains(&3) && from_the_start.contains(&0), "nothing was marked or dropped");
    assert_eq!(decided(&length, &[&first, &second]), from_the_start);
    assert_eq!(decided(&length, &[&[&first[..], &second].concat()]), from_the_start);
}

#[test]
fn wait_keeps_drops_apart_as_ns_2_does() {
    // The gap is uniform over 1/p..2/p: two thirds of the rate, at twice the evenness.
    let (n, p) = (200_000, 0.05);
    let (dropped, _) = losses(&params().with("wait", Value::Flag), 0, 10, n, weir_seed::seed());
    let expected = f64::from(n) * p / 1.5;
    let sigma = (expected / 27.0).sqrt();
    assert!(
        (f64::from(dropped) - expected).abs() < 6.0 * sigma + 0.02 * expected,
        "{dropped} for {expected}"
    );
    let mut random = Random::new(weir_seed::seed());
    assert!((1..20).all(|count| !early(ONE / 2 / 20, count, true, &mut random)), "19 p < 1");
}

#[test]
fn below_the_thresholds_nothing_dies_and_above_all() {
    assert_eq!(losses(&params(), 0, 4, 5_000, 1), (0, 0));
    assert_eq!(losses(&params(), 3, 20, 5_000, 1), (5_000, 0), "forced drops are not marks");
    let gentle = params().with("gentle", Value::Flag);
    let (dropped, _) = losses(&gentle, 0, 20, 50_000, weir_seed::seed());
    // p_b = 0.1 + 0.9 * 5 / 15 = 0.4: the gap is uniform over 1..4, mean 2.5 and variance 5/4.
    // 50,000 packets have 20,000 gaps, with a deviation of sqrt(50,000 * 1.25 / 2.5^3) = 63: six are 380.
    assert!((19_620..20_380).contains(&dropped), "{dropped}");
}

#[test]
fn a31_ecn_marks_what_would_have_been_dropped() {
    let ecn = params().with("ecn", Value::Flag);
    for seed in weir_seed::seeds(5) {
        for length in [6, 9, 13] {
            let (dropped, _) = losses(&params(), 0, length, 20_000, seed);
            for codepoint in 1..=3 {
                assert_eq!(losses(&ecn, codepoint, length, 20_000, seed), (0, dropped), "seed {seed}");
            }
            assert_eq!(losses(&ecn, 0, length, 20_000, seed), (dropped, 0), "seed {seed}");
            assert_eq!(losses(&params(), 2, length, 20_000, seed), (dropped, 0), "seed {seed}: ecn is off");
        }
    }
}

#[test]
fn contradictions_are_refused_whole() {
    let mut leaf = red_leaf(&Params::new());
    for (params, field) in [
        (Params::new().with("weight", Value::Count(500)), "weight"),
        (Params::new().with("thmax", Value::Count(5)), "thmin"),
        (
            Params::new()
                .with("invpmax", Value::Count(5))
                .with("pmax", Value::Fraction(Fraction::ratio(1, 5))),
            "pmax",
        ),
    ] {
        let params = params.with("qlimit", Value::Count(77));
        let error = leaf.reconfigure("", &params, &link()).unwrap_err();
        assert_eq!((error.field.as_str(), leaf.limit()), (field, 60), "{error}");
    }
    leaf.reconfigure("", &Params::new().with("qlimit", Value::Count(77)), &link()).unwrap();
    assert_eq!(leaf.limit(), 77);
}

#[test]
fn class_thresholds_are_shares_of_the_limit() {
    let of = |params: &Params| {
        let (class, rate, limit, in_class) = ("a", link().rate, 60, true);
        Red::new(&QueueConfig { class, params, rate, limit, link: &link(), in_class }).unwrap()
    };
    assert_eq!(of(&Params::new()).settings.thresholds(), (6, 18));
    assert_eq!(of(&Params::new().with("qlimit", Value::Count(200))).settings.thresholds(), (20, 60));
    assert_eq!(of(&Params::new().with("qlimit", Value::Count(3))).settings.thresholds(), (0, 1));
}

#[test]
fn a_thousand_packets_do_not_overflow() {
    // ALTQ's 32-bit thresholds wrapped from 1024 packets on.
    let ramp = Ramp::new(2_000, 4_000, Fraction::ratio(1, 1000), false);
    let mut average = Average::new(65_536, 1000, link().rate, &link());
    for step in 0..4_000_000u64 {
        average.update(Instant::from_nanos(step), 3_000);
    }
    let Zone::Early(half) = ramp.zone(average.value()) else { panic!("{average:?}") };
    let p = half as f64 / ONE as f64 * 2.0;
    assert!((p - 0.0005).abs() < 1e-6, "{p}");
}

#[test]
fn the_registry_builds_it_and_adoption_loses_nothing() {
    let node = Node { discipline: "red".into(), ..Node::default() };
    let mut tree = Registry::builtin().build(&node, link()).unwrap();
    let mut cx = Cx::new(100, link(), 1);
    cx.adopting = true;
    for n in 0..100 {
        let id = cx.packets.insert(Meta::new(100, Instant::ZERO, FrameRef(n))).unwrap();
        assert_eq!(tree.discipline.enqueue(&mut cx, id), Verdict::Queued);
    }
    assert_eq!(tree.discipline.backlog(), Backlog { packets: 100, bytes: 10_000 });
    tree.discipline.check(&cx).unwrap();
    let order: Vec<u32> = core::iter::from_fn(|| match tree.discipline.dequeue(&mut cx) {
        Next::Packet(id) => Some(cx.packets.get(&id).frame.0),
        Next::At(_) | Next::Held(_) | Next::Idle => None,
    })
    .collect();
    assert!(order.iter().copied().eq(0..100));
}

#[test]
fn what_was_adopted_counts_in_the_average() {
    let mut cx = Cx::new(300, link(), 1);
    let mut leaf = red_leaf(&params().with("qlimit", Value::Count(300)));
    cx.adopting = true;
    for n in 0..250 {
        assert_eq!(offer(&mut cx, &mut leaf, 0), Verdict::Queued, "packet {n}");
    }
    cx.adopting = false;
    // The average of 250 arrivals is beyond the upper threshold.
    assert_eq!(offer(&mut cx, &mut leaf, 0), Verdict::Dropped);
}

/// However much a flow takes of an idle link: whoever loses nothing is not in the penalty box.
#[test]
fn a_flow_that_loses_nothing_is_no_suspect() {
    let mut cx = Cx::new(200, link(), 1);
    let mut leaf = red_leaf(&params().with("flowvalve", Value::Flag));
    for n in 0..20_000 {
        assert_eq!(offer(&mut cx, &mut leaf, 0), Verdict::Queued, "packet {n}");
        hold(&mut cx, &mut leaf, 0);
    }
}
