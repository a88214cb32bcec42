//! CBQ against traces of ns-2.35: Floyd's link-sharing tests.
//!
//! The bytes of each class over each interval of the tests are compared, as shares of the link.
//! One packet is 0.0018 of a link for three seconds. The order of departures is reported only:
//! ns-2 prints arrivals with six digits, and lets a class send uncharged when its arithmetic
//! finds the root overlimit by a rounding error, or by the quirk that `model::ns2_cbq` explains.

#![allow(clippy::unwrap_used)]

use flate2::read::GzDecoder;
use std::io::Read;
use weir_core::classify::Classifier;
use weir_core::packet::{FrameRef, Meta};
use weir_core::port::{Event, EventKind, Port, PortConfig, PortPlan, Refill, WireConfig};
use weir_core::queue::{Link, Params, Value};
use weir_core::sched::{ClassConfig, Node, Registry};
use weir_core::units::{Fraction, Instant, Rate};
use weir_testkit::model::{Forgives, Ns2Sent, Ns2Test, ns2_cbq};

const SECOND: u64 = 1_000_000_000;

fn text(name: &str) -> String {
    let path = format!("{}/traces/{name}.csv.gz", env!("CARGO_MANIFEST_DIR"));
    let mut text = String::new();
    GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    text
}

/// A packet that left: when, of which class (from 1), how long.
#[derive(Clone, Copy, Debug)]
struct Departure {
    time: u64,
    class: usize,
    size: u32,
}

fn expected(name: &str) -> Vec<Departure> {
    let text = text(&format!("{name}.expected"));
    let departures = text.lines().filter_map(|line| line.strip_prefix("D,"));
    let row = |line: &str| {
        let field: Vec<u64> = line.split(',').map(|f| f.parse().unwrap()).collect();
        Departure { time: field[0], class: field[1] as usize, size: field[2] as u32 }
    };
    departures.map(row).collect()
}

fn replay(name: &str, node: &Node) -> Vec<Departure> {
    let text = text(name);
    let mut lines = text.lines();
    let rate: u64 = lines.next().unwrap().strip_prefix("rate ").unwrap().parse().unwrap();
    let link = Link::new(Rate::from_bps(rate), 0, 1500);
    let tree = Registry::builtin().build(node, link).unwrap();
    let leaves: Vec<u32> = (0..).zip(&tree.leaves).filter(|(_, l)| l.terminal).map(|(n, _)| n).collect();
    let class_of = |leaf: u32| leaves.iter().position(|&l| l == leaf).unwrap() + 1;
    let wire = WireConfig::Link { ring: 1, refill: Refill::Packet };
    let mut port = Port::new(PortConfig::new(link, wire), PortPlan::new(tree, Classifier::default()));
    let mut sent = Vec::new();
    let mut host = |event: Event<'_>| {
        if let Event { at, meta: row, kind: EventKind::Sent } = event {
            sent.push(Departure { time: at.as_nanos(), class: class_of(row.leaf), size: row.len });
        }
    };
    for line in lines {
        let field: Vec<u64> = line.split(',').map(|f| f.parse().unwrap()).collect();
        let now = Instant::from_nanos(field[0]);
        let mut meta = Meta::new(field[2] as u32, now, FrameRef(0));
        meta.leaf = leaves[field[1] as usize - 1];
        port.offer(now, meta, &mut host);
    }
    while port.next_wake_up() != Instant::NEVER {
        port.advance(port.next_wake_up(), &mut host);
    }
    assert_eq!(port.backlog().packets, 0);
    sent
}

/// A class as ns-2 had it: `level` is its priority there, lower first, and 8 for an inner class;
/// bursts are 8 packets a level.
fn class(name: &str, parent: Option<usize>, share: u64, level: u64) -> ClassConfig {
    let mut params = Params::new()
        .with("pbandwidth", Value::Fraction(Fraction::ratio(share, 100)))
        .with("priority", Value::Count(8 - level))
        .with("packetsize", Value::Bytes(1024))
        .with("maxpacketsize", Value::Bytes(1024))
        .with("maxburst", Value::Count(8 * level))
        .with("qlimit", Value::Count(19));
    if parent.is_some() {
        params.set("borrow", Value::Flag);
    }
    ClassConfig { name: name.into(), parent, params, queue: None }
}

fn node(rule: &'static str, classes: Vec<ClassConfig>) -> Node {
    let params = Params::new()
        .with("link-sharing", Value::Word(rule))
        .with("gain", Value::Count(16))
        .with("minidle", Value::Word("off"))
        .with("efficient", Value::Flag);
    Node { discipline: "cbq".into(), params, classes }
}

fn agencies(rule: &'static str, a: u64, b: u64) -> Node {
    let classes = vec![
        class("top", None, 100, 8),
        class("A", Some(0), a, 8),
        class("B", Some(0), b, 8),
        class("videoA", Some(1), a.min(30), 1),
        class("dataA", Some(1), a.saturating_sub(30), 2),
        class("videoB", Some(2), b.min(10), 1),
        class("dataB", Some(2), b.saturating_sub(10), 2),
    ];
    node(rule, classes)
}

fn flat(audio: u64, video: u64, data: u64) -> Node {
    let classes = vec![
        class("top", None, 100, 8),
        class("audio", Some(0), audio, 1),
        class("video", Some(0), video, 1),
        class("data", Some(0), data, 2),
    ];
    node("top-level", classes)
}

/// The trees of `ancestor-only.tcl`: the root has 90 % of the link.
fn below_90() -> [Node; 2] {
    let leaf = |name, parent, share, level| class(name, Some(parent), share, level);
    let agencies = vec![
        class("root", None, 90, 8),
        class("A", Some(0), 65, 8),
        class("B", Some(0), 25, 8),
        leaf("videoA", 1, 25, 1),
        leaf("dataA", 1, 40, 2),
        leaf("videoB", 2, 10, 1),
        leaf("dataB", 2, 15, 2),
    ];
    let flat = vec![
        class("root", None, 90, 8),
        leaf("audio", 0, 3, 1),
        leaf("video", 0, 32, 1),
        leaf("data", 0, 55, 2),
    ];
    [node("ancestor-only", agencies), node("ancestor-only", flat)]
}

fn shares(all: &[Departure], classes: usize, (from, to): (u64, u64)) -> Vec<f64> {
    let within = all.iter().filter(|d| (from * SECOND..to * SECOND).contains(&d.time));
    let mut shares = vec![0.0; classes];
    for d in within {
        shares[d.class - 1] += f64::from(d.size) * 8.0 / 1.5e6 / (to - from) as f64;
    }
    shares
}

/// For each interval the largest difference of a class's share of the link.
fn differences(name: &str, node: &Node, classes: usize, intervals: &[(u64, u64)]) -> Vec<f64> {
    let (ours, theirs) = (replay(name, node), expected(name));
    let equal = ours.iter().zip(&theirs).filter(|(a, b)| a.class == b.class).count();
    println!("{name}: the same class in {:.1} % of positions", 100.0 * equal as f64 / theirs.len() as f64);
    let mut all = Vec::new();
    for &interval in intervals {
        let (a, b) = (shares(&ours, classes, interval), shares(&theirs, classes, interval));
        let off = a.iter().zip(&b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        println!("{interval:?} s: {a:.3?}, ns-2 {b:.3?}, off {off:.4}");
        all.push(off);
    }
    all
}

const AGENCIES: [(u64, u64); 6] = [(1, 4), (5, 8), (13, 16), (21, 24), (29, 32), (37, 40)];
const FLAT: [(u64, u64); 7] = [(1, 4), (5, 8), (9, 12), (13, 16), (17, 20), (21, 24), (25, 28)];

#[test]
fn floyd_formal() {
    let node = agencies("formal", 70, 30);
    let off = differences("cbq-formal", &node, 4, &AGENCIES);
    // From 5 to 8 s a quirk of ns-2 keeps agency B at 28.4 % of its 30: see below. From 29 to 32 s
    // its estimators forget what is owed to video of B while that waits for long packets: 28.1 %.
    // There the rule decides.
    let bounds = [0.01, 0.02, 0.01, 0.01, 0.02, 0.01];
    assert!(off.iter().zip(bounds).all(|(&off, bound)| off < bound), "{off:?}");
    let ours = replay("cbq-formal", &node);
    for (n, rule) in [(1, [0.3, 0.4, 0.0, 0.3]), (4, [0.3, 0.4, 0.3, 0.0])] {
        let shares = shares(&ours, 4, AGENCIES[n]);
        assert!(shares.iter().zip(rule).all(|(a, b)| (a - b).abs() < 0.005), "{shares:?} {rule:?}");
    }
}

/// What the model of ns-2 sent.
fn modelled(test: Ns2Test, forgives: Forgives) -> (Vec<Ns2Sent>, Vec<Departure>) {
    let sent = ns2_cbq(test, forgives);
    let departure =
        |s: &Ns2Sent| Departure { time: (s.at_s * 1e9) as u64, class: s.class, size: s.len_bytes };
    let departures = sent.iter().map(departure).collect();
    (sent, departures)
}

/// Packets from 5 to 8 s, while videoB is silent, that went although all were refused.
fn refused(sent: &[Ns2Sent]) -> usize {
    sent.iter().filter(|s| s.refused && (5.0..8.0).contains(&s.at_s)).count()
}

/// The model of ns-2 sends the very packets that ns-2 sent, each when ns-2 did as far as the
/// six digits of its trace tell; one that forgives nothing does not.
#[test]
fn ns2_is_understood_to_the_packet() {
    let equal = |test, name, forgives| {
        let ((_, ours), theirs) = (modelled(test, forgives), expected(name));
        assert!(ours.len().abs_diff(theirs.len()) < theirs.len() / 5, "{name}");
        let same = |a: &Departure, b: &Departure| a.class == b.class && a.time.abs_diff(b.time) < 51_000;
        let equal = ours.iter().zip(&theirs).filter(|(a, b)| same(a, b)).count();
        println!("{name}, {forgives:?}: {equal} of {}", theirs.len());
        equal as f64 / theirs.len() as f64
    };
    for (test, name) in [
        (Ns2Test::Formal, "cbq-formal"),
        (Ns2Test::AncestorOnly, "cbq-ancestor-only"),
        (Ns2Test::AncestorOnlyFlat, "cbq-ancestor-only-flat"),
    ] {
        assert_eq!(equal(test, name, Forgives::AtOnce), 1.0, "{name}");
        assert!(equal(test, name, Forgives::Never) < 0.9, "{name}");
    }
}

/// From 5 to 8 s ns-2 forgives dataA its debt in the midst of a search; that makes everybody wait
/// for it, and videoA sends 16 packets that nobody is charged for. Were it settled first who sends,
/// or nothing forgiven, agency B would get 29.3 to 29.7 % (one packet is 0.18), and there we
/// stand within half a point.
#[test]
fn floyd_formal_without_the_quirk_of_ns2() {
    let interval = AGENCIES[1];
    let (sent, departures) = modelled(Ns2Test::Formal, Forgives::AtOnce);
    assert_eq!(refused(&sent), 16);
    assert!((shares(&departures, 4, interval)[3] - 0.284).abs() < 0.001);

    let ours = shares(&replay("cbq-formal", &agencies("formal", 70, 30)), 4, interval);
    for forgives in [Forgives::AfterTheChoice, Forgives::Never] {
        let (sent, departures) = modelled(Ns2Test::Formal, forgives);
        let mended = shares(&departures, 4, interval);
        println!("{interval:?} s: {ours:.3?}, ns-2 that forgives {forgives:?}: {mended:.3?}");
        assert_eq!(refused(&sent), 0);
        assert!((mended[3] - 0.295).abs() < 0.003, "{mended:?}");
        assert!(ours.iter().zip(&mended).all(|(a, b)| (a - b).abs() < 0.005), "{ours:?} {mended:?}");
    }
    let reversed = shares(&replay("cbq-formal", &agencies("formal", 30, 70)), 4, interval);
    assert!((reversed[3] - 0.295).abs() > 0.1, "{reversed:?}");
}

#[test]
fn floyd_top_level() {
    let off = differences("cbq-top-level", &agencies("top-level", 70, 30), 4, &AGENCIES);
    assert!(off.iter().all(|&off| off < 0.02), "{off:?}");
}

#[test]
fn floyd_flat() {
    let off = differences("cbq-flat-wrr", &flat(3, 32, 65), 3, &FLAT);
    assert!(off.iter().all(|&off| off < 0.01), "{off:?}");
}

/// Below a root of 90 % all classes are refused for a tenth of the time. Who sends then decides these intervals.
#[test]
fn floyd_ancestor_only() {
    let [agencies, flat] = below_90();
    let mut off = differences("cbq-ancestor-only", &agencies, 4, &AGENCIES);
    off.extend(differences("cbq-ancestor-only-flat", &flat, 3, &FLAT));
    assert!(off.len() == 13 && off.iter().all(|&off| off < 0.02), "{off:?}");
}

/// With the shares of A and B exchanged, ns-2's ancestor-only must not come out.
#[test]
fn floyd_ancestor_only_reversed() {
    let [mut agencies, _] = below_90();
    let share = |n: usize| agencies.classes[n].params.get("pbandwidth").unwrap().clone();
    let swapped: Vec<Value> = [2, 1, 5, 6, 3, 4].map(share).into();
    for (class, share) in agencies.classes[1..].iter_mut().zip(swapped) {
        class.params.set("pbandwidth", share);
    }
    let off = differences("cbq-ancestor-only", &agencies, 4, &AGENCIES);
    assert!(off.iter().filter(|&&off| off > 0.1).count() >= 4, "{off:?}");
}

/// With the agencies' shares exchanged the tables must not come out.
#[test]
fn floyd_reversed() {
    let off = differences("cbq-formal", &agencies("formal", 30, 70), 4, &AGENCIES);
    assert!(off.iter().filter(|&&off| off > 0.1).count() >= 4, "{off:?}");
    let off = differences("cbq-flat-wrr", &flat(65, 32, 3), 3, &FLAT);
    assert!(off.iter().filter(|&&off| off > 0.1).count() >= 4, "{off:?}");
}
