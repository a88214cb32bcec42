//! Liveness: a bound that cannot hold does not keep a class from a link that idles.

use super::{SECOND, Source, fraction, jobs, mbps, node_of, real, source};
use crate::Random;
use crate::queue::{DropReason, Value};
use crate::sched::Node;
use crate::sched::testing::Bench;
use crate::units::{Duration, Instant, Rate};
use std::vec;
use std::vec::Vec;

/// At 8 Mbit/s a byte takes a microsecond.
const BPS: u64 = 8_000_000;

/// Classes whose delay bounds are a tenth of a packet's time to ten packets, in every order in which
/// bounds may give way. The buffer is never full.
fn draw(random: &mut Random) -> Node {
    let flag = |random: &mut Random| random.below(2) == 0;
    let mut terms = Vec::new();
    for _ in 0..2 + random.below(4) {
        let mut given = Vec::new();
        if random.below(3) > 0 {
            given.push(("adc", Value::Time(Duration::from_micros(50 + random.below(5_000)))));
        }
        for word in ["rdc", "rlc"] {
            if flag(random) {
                given.push((word, real([0.5, 1.0, 2.0, 4.0][random.below(4) as usize])));
            }
        }
        if random.below(4) == 0 {
            given.push(("alc", fraction(random.below(60) as f64 / 100.0)));
        }
        if random.below(4) == 0 {
            given.push(("arc", mbps(0.1 + random.below(20) as f64 / 10.0)));
        }
        terms.push(given);
    }
    let mut params = vec![("qlimit", Value::Count(100_000))];
    let mut set = |word, value, is_set: bool| params.extend(is_set.then_some((word, value)));
    set("exact-drops", Value::Flag, flag(random));
    set("relax", Value::Word("loss-first"), flag(random));
    set("drop-head", Value::Flag, flag(random));
    set("counters", Value::Word("packets"), flag(random));
    set("interval", Value::Time(Duration::from_millis(1 + random.below(50))), flag(random));
    set("sample", Value::Count(1 + random.below(5)), flag(random));
    let terms: Vec<&[_]> = terms.iter().map(|given| &given[..]).collect();
    let mut node = jobs(&params, &terms);
    for class in &mut node.classes {
        class.queue = (random.below(8) == 0).then(|| node_of("fifoq"));
    }
    node
}

/// What became of the packets of a class since the discipline was last empty.
#[derive(Clone, Copy, Default)]
struct Since {
    offered: u64,
    sent: u64,
    /// Dropped when the link was free for it: it was late then.
    late: u64,
}

/// Constant sources, which lock their phases, of half the link in sum to nine tenths of it. Counts the
/// times from one moment without packets to the next, of each class that offered something: all of
/// them, and those in which it had fewer than `least` packets sent or late.
fn times(seed: u64, least: u64) -> (u64, u64) {
    let random = &mut Random::new(seed);
    let node = draw(random);
    let count = node.classes.len();
    let load = 4.0 + random.below(33) as f64 / 10.0;
    let of_one = |leaf| {
        let len = [100, 500, 1_500][random.below(3) as usize];
        let burst = 1 + random.below(3) as u32;
        Source { burst, ..source(leaf as u32, len, load / count as f64) }
    };
    let sources: Vec<Source> = (0..count).map(of_one).collect();
    let gap = |s: &Source| u64::from(s.len * s.burst) * 8 * SECOND / s.bps;
    let mut due: Vec<u64> = sources.iter().map(|s| random.below(gap(s))).collect();
    let mut bench = Bench::over(&node, Rate::from_bps(BPS), 1);
    let (mut free, mut seen, mut since) = (0, 0, vec![Since::default(); count]);
    let (mut all, mut few) = (0, 0);
    while bench.cx.now.as_nanos() < SECOND / 2 {
        let next = (0..count).min_by_key(|&i| due[i]).expect("a source");
        let arrives = due[next] <= free || bench.tree.discipline.is_empty();
        if arrives {
            let s = &sources[next];
            bench.cx.now = Instant::from_nanos(due[next]);
            free = free.max(due[next]);
            due[next] += gap(s);
            for _ in 0..s.burst {
                since[next].offered += 1;
                bench.offer(s.len, |m| m.leaf = s.leaf);
            }
        } else {
            bench.cx.now = Instant::from_nanos(free);
            if let Some(sent) = bench.serve() {
                since[sent.leaf as usize].sent += 1;
                free += bench.cx.link.time_for(sent.len).ceil().as_nanos();
            }
        }
        for (meta, reason) in &bench.dropped[seen..] {
            assert_eq!(*reason, DropReason::Deadline, "seed {seed}: the buffer was full");
            since[meta.leaf as usize].late += u64::from(!arrives);
        }
        seen = bench.dropped.len();
        if bench.tree.discipline.is_empty() {
            for class in since.iter_mut().filter(|class| class.offered > 0) {
                all += 1;
                few += u64::from(class.sent + class.late < least);
                *class = Since::default();
            }
        }
    }
    bench.check();
    (all, few)
}

/// Whenever nothing waits any more, each class that offered something has sent something, or could have
/// when it was late already (`relax loss-first`). Reversed: two packets are not promised.
#[test]
fn j12_no_class_is_refused_everything_beside_a_link_that_idles() {
    let (mut all, mut reversed) = (0, 0);
    for seed in weir_seed::seeds(300) {
        let (periods, few) = times(seed, 1);
        assert_eq!(few, 0, "seed {seed}: of {periods}");
        all += periods;
        reversed += times(seed, 2).1;
    }
    assert!(all > 10_000 && reversed > 1_000, "{all} {reversed}");
}
