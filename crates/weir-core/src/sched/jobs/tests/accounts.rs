//! What the statistics say against what was seen: every packet that came, was dropped or left.

use super::{fraction, jobs, ms, node_of, real, values};
use crate::Random;
use crate::queue::{Value, Verdict};
use crate::sched::Node;
use crate::sched::testing::Bench;
use crate::units::{Duration, Rate};
use std::vec;
use std::vec::Vec;

/// What the outside saw of one class.
#[derive(Clone, Copy, Default, Debug)]
struct Seen {
    arrived_bytes: u64,
    dropped_bytes: u64,
    sent: u64,
    delay_ns: u64,
    last_ns: u64,
    late: u64,
    /// Of the present accounting period, in the unit that loss is counted in.
    period: (u64, u64),
}

/// How the drawn discipline counts.
struct Drawn {
    node: Node,
    by_packets: bool,
    interval_ns: u64,
    bound_ns: Vec<Option<u64>>,
}

fn draw(random: &mut Random) -> Drawn {
    let flag = |random: &mut Random| random.below(2) == 0;
    let mut params = vec![("qlimit", Value::Count(3 + random.below(20)))];
    for word in ["separate", "exact-drops", "drop-head"] {
        if flag(random) {
            params.push((word, Value::Flag));
        }
    }
    if flag(random) {
        params.push(("relax", Value::Word("loss-first")));
    }
    let by_packets = flag(random);
    if by_packets {
        params.push(("counters", Value::Word("packets")));
    }
    let interval_ms = if flag(random) { 1 + random.below(40) } else { 0 };
    params.push(("interval", ms(interval_ms)));
    let (mut classes, mut bound_ns) = (Vec::new(), Vec::new());
    for _ in 0..1 + random.below(4) {
        let mut terms = Vec::new();
        let bound = flag(random).then(|| 1 + random.below(20));
        terms.extend(bound.map(|bound| ("adc", ms(bound))));
        bound_ns.push(bound.map(|ms| ms * 1_000_000));
        if random.below(3) == 0 {
            terms.push(("alc", fraction(random.below(50) as f64 / 100.0)));
        }
        if flag(random) {
            terms.extend([("rlc", real(2.0)), ("rdc", real(0.5))]);
        }
        classes.push(terms);
    }
    let terms: Vec<&[_]> = classes.iter().map(|terms| &terms[..]).collect();
    let mut node = jobs(&params, &terms);
    for class in &mut node.classes {
        // Disciplines of their own, one of which drops packets as they leave.
        class.queue = [None, Some(node_of("fifoq")), Some(node_of("codel"))][random.below(3) as usize].take();
    }
    Drawn { node, by_packets, interval_ns: interval_ms * 1_000_000, bound_ns }
}

/// True if all statistics of one drawn discipline agree with what was seen, to the end of a run; with
/// `miscount`, if they agree with a byte more in every packet.
fn agree(seed: u64, miscount: u64) -> bool {
    let mut random = Random::new(seed);
    let drawn = draw(&mut random);
    let count = drawn.node.classes.len();
    let mut bench = Bench::over(&drawn.node, Rate::from_mbps(8), 1);
    let mut seen = vec![Seen::default(); count];
    let (mut known, mut offered, mut since_ns) = (0, 0u32, 0);
    for _ in 0..400 {
        let now_ns = bench.cx.now.as_nanos();
        if random.below(5) < 3 {
            let (leaf, len) = (random.below(count as u64) as usize, 40 + random.below(1_461));
            if bench.tree.discipline.is_empty() {
                seen.iter_mut().for_each(|class| class.last_ns = 0);
            }
            let over = match drawn.interval_ns {
                0 => bench.tree.discipline.is_empty(),
                interval_ns => now_ns - since_ns >= interval_ns,
            };
            if over {
                // Intervals begin at whole multiples of their length, however late a packet comes.
                since_ns = now_ns - now_ns.checked_rem(drawn.interval_ns).unwrap_or(0);
                seen.iter_mut().for_each(|class| class.period = (0, 0));
            }
            seen[leaf].arrived_bytes += len + miscount;
            seen[leaf].period.0 += if drawn.by_packets { 1 } else { len };
            let verdict = bench.offer(len as u32, |m| m.leaf = leaf as u32);
            let refused = bench.dropped[known..].iter().any(|(m, _)| m.frame.0 == offered);
            assert_eq!(verdict == Verdict::Dropped, refused, "seed {seed}: the verdict on packet {offered}");
            offered += 1;
        } else if let Some(sent) = bench.serve() {
            let class = &mut seen[sent.leaf as usize];
            let delay_ns = now_ns - sent.arrival.as_nanos();
            class.sent += 1;
            class.delay_ns += delay_ns;
            class.last_ns = delay_ns;
            class.late += u64::from(drawn.bound_ns[sent.leaf as usize].is_some_and(|b| delay_ns > b));
        }
        for (meta, _) in &bench.dropped[known..] {
            let class = &mut seen[meta.leaf as usize];
            class.dropped_bytes += u64::from(meta.len);
            class.period.1 += if drawn.by_packets { 1 } else { u64::from(meta.len) };
        }
        known = bench.dropped.len();
        bench.check();
        if !shown(&bench, &seen) {
            assert!(miscount > 0, "seed {seed}: {seen:?}");
            return false;
        }
        if random.below(3) == 0 {
            bench.cx.now += Duration::from_nanos(random.below(8_000_000));
        }
    }
    true
}

/// Whether the statistics show just that.
fn shown(bench: &Bench, seen: &[Seen]) -> bool {
    let shows = |name: &'static str, of: &dyn Fn(&Seen) -> u64| {
        values(bench, name).iter().map(|&v| v as u64).eq(seen.iter().map(of))
    };
    let loss = |class: &Seen| class.period.1 as f64 / class.period.0.max(1) as f64;
    let losses = values(bench, "loss_now");
    shows("arrived_bytes", &|class| class.arrived_bytes)
        && shows("dropped_bytes", &|class| class.dropped_bytes)
        && shows("delay_last", &|class| class.last_ns)
        && shows("delay_mean", &|class| class.delay_ns.checked_div(class.sent).unwrap_or(0))
        && shows("late", &|class| class.late)
        && losses
            .iter()
            .zip(seen)
            .all(|(&shown, class)| (shown as f64 - loss(class).min(1.0) * 1e6).abs() < 2.0)
}

/// Every way of dropping counts once, in its class, and so does every packet that leaves. Reversed: a
/// count that has a byte more for each packet is seen to be another.
#[test]
fn statistics_say_what_was_seen() {
    for seed in weir_seed::seeds(300) {
        assert!(agree(seed, 0));
    }
    assert!(weir_seed::seeds(20).all(|seed| !agree(seed, 1)));
}
