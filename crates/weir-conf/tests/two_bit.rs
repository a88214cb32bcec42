//! Two-bit diff-serv as it is shipped: examples/two-bit.altq and two-bit-edge.altq.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use weir_conf::{Built, packet_spec, read};
use weir_core::Random;
use weir_core::packet::{FrameRef, Key};
use weir_core::port::{Event, EventKind, Port, PortConfig, Refill, WireConfig};
use weir_core::queue::{DropReason, Link, Params, Value, Verdict, Visit};
use weir_core::sched::Registry;
use weir_core::units::{Fraction, Instant, Rate};

const SEED: u64 = 7;

fn link() -> Link {
    Link::new(Rate::from_mbps(10), 0, 1514)
}

fn example(name: &str) -> Built {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
    let registry = Registry::builtin();
    let outcome = read(name, &std::fs::read_to_string(path).unwrap(), &registry);
    assert!(outcome.diagnostics.is_empty(), "{:?}", outcome.diagnostics);
    outcome.plan.unwrap().interface("").unwrap().build(&registry, link()).unwrap()
}

fn port(name: &str) -> Port {
    let built = example(name);
    let wire = WireConfig::Link { ring: 1, refill: Refill::Packet };
    let config = PortConfig { seed: SEED, ..PortConfig::new(link(), wire) };
    Port::new(config, built.port_plan(link()))
}

fn key(dscp: &str) -> Key {
    packet_spec::parse(&format!("udp 10.0.0.9:1 > 10.0.1.1:2 dscp {dscp}")).unwrap()
}

#[derive(Default)]
struct Shown {
    class: String,
    values: BTreeMap<(String, &'static str), i64>,
}
impl Visit for Shown {
    fn class(&mut self, class: &str, _depth: u32) {
        self.class = class.to_string();
    }
    fn value(&mut self, name: &'static str, _unit: &'static str, value: i64) {
        self.values.insert((self.class.clone(), name), value);
    }
}

const EIGHT: [&str; 8] =
    ["lo_thmin", "lo_thmax", "lo_pmax", "lo_weight", "hi_thmin", "hi_thmax", "hi_pmax", "hi_weight"];

fn shown(port: &Port) -> Vec<i64> {
    let mut shown = Shown::default();
    port.visit_stats(&mut shown);
    EIGHT.map(|name| shown.values[&("lower".to_string(), name)]).to_vec()
}

fn eight(counts: [u64; 4], pmax: [(u64, u64); 2], weights: [u64; 2]) -> Params {
    let mut params = Params::new();
    for (level, names) in EIGHT.chunks(4).enumerate() {
        params.set(names[0], Value::Count(counts[2 * level]));
        params.set(names[1], Value::Count(counts[2 * level + 1]));
        params.set(names[2], Value::Fraction(Fraction::ratio(pmax[level].0, pmax[level].1)));
        params.set(names[3], Value::Count(weights[level]));
    }
    params
}

/// D04, D07: all eight parameters of RIO, and the queues' lengths, at run time, without a flush.
#[test]
fn d04_d07_everything_is_set_at_run_time() {
    let mut port = port("two-bit.altq");
    // As the file says, decimals to the nearest 2^-32.
    let nearest = |percent: i64| ((percent << 32) + 50) / 100;
    assert_eq!(shown(&port), [40, 70, nearest(2), 512, 10, 40, nearest(10), 512]);
    let raw = |a, b| Fraction::ratio(a, b).raw() as i64;
    let at = Instant::from_millis(1);
    for n in 0..30 {
        let key = key(["AF11", "BE", "EF"][n as usize % 3]);
        assert_eq!(port.receive(at, 1_000, FrameRef(n), &key, &mut |_| {}), Verdict::Queued);
    }
    let before = port.backlog();
    let new = eight([50, 90, 1, 3], [(1, 50), (1, 2)], [256, 1]);
    let mut lost = 0;
    let mut hear = |event: Event<'_>| lost += u32::from(matches!(event.kind, EventKind::Dropped(_)));
    port.reconfigure(at, "lower", &new, &mut hear).unwrap();
    let changed = [50, 90, raw(1, 50), 256, 1, 3, raw(1, 2), 1];
    assert_eq!((shown(&port), port.backlog()), (changed.to_vec(), before));
    for class in ["premium", "lower"] {
        let longer = Params::new().with("qlimit", Value::Count(300));
        port.reconfigure(at, class, &longer, &mut hear).unwrap();
    }
    assert_eq!((port.backlog(), lost), (before, 0), "nothing is flushed");
    // The new thresholds act: the whole queue is above 3, what is assured in it far below 50.
    let mut offer = |dscp: &str| {
        (0..20).map(|_| port.receive(at, 1_000, FrameRef(99), &key(dscp), &mut |_| {})).collect::<Vec<_>>()
    };
    assert_eq!(offer("AF11"), [Verdict::Queued; 20]);
    assert_eq!(offer("BE")[1..], [Verdict::Dropped; 19]);
    // The new limits too: more premium packets wait than 200.
    let queued =
        (0..400).filter(|_| port.receive(at, 100, FrameRef(99), &key("EF"), &mut |_| {}) == Verdict::Queued);
    assert!((285..=300).contains(&queued.count()));
    // What contradicts itself changes nothing.
    let wrong = eight([50, 90, 9, 3], [(1, 5), (1, 5)], [64, 64]);
    let error = port.reconfigure(at, "lower", &wrong, &mut |_| {}).unwrap_err();
    assert!(error.to_string().starts_with("class lower: hi_thm"), "{error}");
    assert_eq!(shown(&port), changed);
    port.check().unwrap();
}

/// A packet that leaves: number and time of its last bit.
type Departure = (u32, u64);

/// D09: the static two-queue priority server, written down by itself: at each completion the
/// older premium packet, else the oldest other.
fn reference(packets: &[(u64, u32, bool)]) -> Vec<Departure> {
    let (mut queues, mut next, mut free_ns) = ([VecDeque::new(), VecDeque::new()], 0, 0);
    let mut gone = Vec::new();
    while gone.len() < packets.len() {
        while next < packets.len() && packets[next].0 <= free_ns {
            queues[usize::from(!packets[next].2)].push_back(next);
            next += 1;
        }
        let [premium, others] = &mut queues;
        match premium.pop_front().or_else(|| others.pop_front()) {
            Some(n) => {
                free_ns = free_ns.max(packets[n].0) + u64::from(packets[n].1) * 800;
                gone.push((n as u32, free_ns));
            }
            None => free_ns = packets[next].0,
        }
    }
    gone
}

#[test]
fn d02_d09_premium_goes_first_as_in_a_static_server() {
    let seed = weir_seed::seed();
    let mut random = Random::new(seed);
    let mut now = 1;
    // 92 % of the link, a third of it premium: queues grow and empty, below RIO's thresholds.
    let packets: Vec<(u64, u32, bool)> = (0..20_000)
        .map(|_| {
            let len = 64 + random.below(1_437) as u32;
            now += 1 + random.below(2 * 782 * 800 * 100 / 72);
            (now, len, random.below(3) == 0)
        })
        .collect();
    let departures = |swapped: bool| {
        let (mut port, mut gone, mut early) = (port("two-bit.altq"), Vec::<Departure>::new(), 0);
        let mut hear = |Event { at, meta, kind }: Event<'_>| match kind {
            EventKind::Sent => gone.push((meta.frame.0, at.as_nanos())),
            EventKind::Dropped(reason) => early += u32::from(reason == DropReason::Early),
            EventKind::Taken => {}
        };
        for (n, &(at, len, premium)) in packets.iter().enumerate() {
            let key = key(if premium != swapped { "EF" } else { "AF11" });
            port.receive(Instant::from_nanos(at), len, FrameRef(n as u32), &key, &mut hear);
        }
        while port.next_wake_up() != Instant::NEVER {
            port.advance(port.next_wake_up(), &mut hear);
        }
        assert_eq!(early, 0, "seed {seed}");
        gone
    };
    let expected = reference(&packets);
    assert!(departures(false) == expected, "seed {seed}: departures differ from the static server's");
    // Reversed: with the marks exchanged they differ.
    assert!(departures(true) != expected, "seed {seed}");
}

/// The edge: premium is policed to its profile, assured loses its mark beyond it, and nobody
/// else's mark gets in.
/// Proves D01.
#[test]
fn the_edge_marks_and_polices() {
    let mut port = port("two-bit-edge.altq");
    let mut now_us = 0;
    let mut judged = |from: &str, dscp: &str| {
        let key = packet_spec::parse(&format!("udp {from}:1 > 10.0.1.1:2 dscp {dscp}")).unwrap();
        // 2 s at 4 Mbit/s: four times the premium profile, 4/3 of the assured one.
        let mut counts = BTreeMap::new();
        for _ in 0..1_000 {
            let packet = port.condition(Instant::from_micros(now_us), 1_000, FrameRef(0), &key);
            now_us += 2_000;
            *counts.entry((packet.is_policed(), packet.meta().dscp)).or_insert(0u32) += 1;
        }
        counts
    };
    let near = |found: u32, expected: u32| found.abs_diff(expected) <= 16;
    let premium = judged("10.0.0.1", "BE");
    assert!(near(premium[&(false, 46)], 250) && premium.len() == 2, "{premium:?}");
    assert_eq!(premium[&(false, 46)] + premium[&(true, 0)], 1_000);
    let assured = judged("10.0.0.2", "EF");
    assert!(near(assured[&(false, 10)], 750) && assured.len() == 2, "{assured:?}");
    assert_eq!(assured[&(false, 10)] + assured[&(false, 0)], 1_000);
    assert_eq!(judged("10.0.0.7", "EF"), BTreeMap::from([((false, 0), 1_000)]));
}
