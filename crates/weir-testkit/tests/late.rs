//! A host that is late: on a real wire nothing is caught up, and shares stay as configured.

use weir_core::Random;
use weir_core::classify::Classifier;
use weir_core::packet::{FrameRef, Meta};
use weir_core::port::{Event, EventKind, Port, PortConfig, PortPlan, Refill, WireConfig};
use weir_core::queue::{Curve, Cx, Discipline, Link, Next, Params, Value};
use weir_core::sched::{ClassConfig, Node, Registry, Tree};
use weir_core::units::{Duration, Fixed, Fraction, Instant, Rate};
use weir_testkit::generate::{Below, Generator};

const STOP_AT: u64 = 300_000_000;
const OVERHEAD: u32 = 24;
const STOP: u64 = 200_000_000;
const LINK: WireConfig = WireConfig::Link { ring: 1, refill: Refill::Packet };

/// What left: the time of the host's call, the leaf, the bytes on the wire.
type Left = Vec<(u64, u32, u64)>;

/// A host that keeps every queue full, and is late.
struct Late {
    port: Port,
    random: Random,
    left: Left,
    frames: u32,
    /// Packets that it keeps in each queue.
    full: u64,
    /// How long the host sleeps once, after `STOP_AT`.
    stop_ns: u64,
    /// It wakes up to so much too late.
    jitter_ns: u64,
}

impl Late {
    fn new(tree: Tree, link: Link, wire: WireConfig, stop_ns: u64, jitter_ns: u64, seed: u64) -> Self {
        let port = Port::new(PortConfig::new(link, wire), PortPlan::new(tree, Classifier::empty()));
        Late { port, random: Random::new(seed), left: Vec::new(), frames: 0, full: 40, stop_ns, jitter_ns }
    }
    /// Fills each queue. An AQM may drop some.
    fn top_up(&mut self, now: Instant) {
        let leaves = 0..self.port.leaves().len() as u32;
        for leaf in leaves.filter(|&l| self.port.leaves()[l as usize].terminal).collect::<Vec<u32>>() {
            let inside = self.port.account(leaf).map_or(self.full, |account| account.inside());
            for _ in inside..self.full {
                let mut meta = Meta::new(64 + self.random.below(1_451) as u32, now, FrameRef(self.frames));
                self.frames += 1;
                (meta.leaf, meta.flow) = (leaf, (self.frames % 7).wrapping_mul(0x9e37_79b9));
                (meta.src_port, meta.protocol) = ((self.frames % 7) as u16, 17);
                self.port.offer(now, meta, &mut taken(&mut self.left, now));
            }
        }
    }
    fn run(mut self, until_ns: u64) -> Left {
        let (mut now, mut stopped) = (Instant::ZERO, false);
        while now.as_nanos() < until_ns {
            self.top_up(now);
            let next = self.port.next_wake_up();
            if next == Instant::NEVER {
                break;
            }
            now = now.max(next) + Duration::from_nanos(self.random.below(self.jitter_ns + 1));
            if !stopped && now.as_nanos() >= STOP_AT {
                (stopped, now) = (true, now + Duration::from_nanos(self.stop_ns));
            }
            self.port.advance(now, &mut taken(&mut self.left, now));
        }
        self.left
    }
}

/// Notes what leaves in a call of that time.
fn taken(left: &mut Left, now: Instant) -> impl FnMut(Event<'_>) {
    move |event| {
        if event.kind == EventKind::Taken {
            left.push((now.as_nanos(), event.meta.leaf, u64::from(event.meta.len + OVERHEAD)));
        }
    }
}

/// The most bytes beyond rate * time in any window.
fn excess(left: &Left, rate: Rate) -> i128 {
    let (mut most, mut running, mut last) = (0i128, 0i128, 0);
    for &(at, _, bytes) in left {
        let passed = i128::from(at - last) * i128::from(rate.as_bps()) / 8_000_000_000;
        running = (running - passed).max(0) + i128::from(bytes);
        (most, last) = (most.max(running), at);
    }
    most
}

/// Bytes in any window are at most rate * window + bucket + one frame, whatever stands above the
/// bucket. Reversed: in virtual order all that was missed leaves at once.
#[test]
fn nothing_is_caught_up_on_a_real_wire() {
    let registry = Registry::builtin();
    for entry in registry.iter().filter(|e| e.build.is_some()) {
        let mut caught_up = 0;
        for (round, seed) in weir_seed::seeds(8).enumerate() {
            let bps = [20_000_000, 100_000_000][round % 2];
            let link = Link::new(Rate::from_bps(bps), OVERHEAD, 1_514);
            let below = if round < 4 { Below::Leaves } else { Below::Anything(1) };
            let depth_bytes = (bps / 8_000).max(2 * 1_538);
            let run = |wire| {
                let tree =
                    Generator::new(&registry, link, seed).tree(entry.name, below).expect("one builds").1;
                excess(&Late::new(tree, link, wire, STOP, 300_000, seed).run(600_000_000), link.rate)
            };
            let real = run(WireConfig::Regulator { depth_bytes });
            let most = i128::from(depth_bytes) + 1_538;
            assert!(real <= most, "{} at {bps} bit/s, seed {seed}: {real} bytes, not {most}", entry.name);
            caught_up += u32::from(run(LINK) > 2 * most);
        }
        assert!(caught_up > 0, "{}: reversed", entry.name);
    }
}

fn class(name: &str, params: &[(&'static str, Value)]) -> ClassConfig {
    let params = params.iter().fold(Params::new(), |p, (name, value)| p.with(name, value.clone()));
    ClassConfig { name: name.into(), parent: None, params, queue: None }
}

fn node(discipline: &str, classes: Vec<ClassConfig>) -> Node {
    Node { discipline: discipline.into(), params: Params::new(), classes }
}

fn percent(of_the_link: u64) -> Value {
    Value::Fraction(Fraction::ratio(of_the_link, 100))
}
fn rate(mbps: u64) -> Value {
    Value::Rate(Rate::from_mbps(mbps))
}
fn curve(mbps: u64) -> Value {
    let rate = Rate::from_mbps(mbps);
    Value::Curve(Curve { m1: rate, d: Duration::ZERO, m2: rate })
}

/// Configurations with clocks of their own, and some without, on 100 Mbit/s.
fn shared() -> Vec<Node> {
    let mut cbq = node(
        "cbq",
        vec![
            class("root", &[("pbandwidth", percent(100))]),
            class("a", &[("pbandwidth", percent(20))]),
            class("b", &[("pbandwidth", percent(30)), ("borrow", Value::Flag)]),
            class("c", &[("pbandwidth", percent(40)), ("borrow", Value::Flag), ("default", Value::Flag)]),
        ],
    );
    cbq.classes[1..].iter_mut().for_each(|class| class.parent = Some(0));
    let hfsc = node(
        "hfsc",
        vec![
            class("a", &[("rt", curve(50))]),
            class("b", &[("ls", curve(20)), ("ul", curve(10))]),
            class("c", &[("ls", curve(20)), ("default", Value::Flag)]),
        ],
    );
    let jobs = node(
        "jobs",
        vec![
            class("a", &[("priority", Value::Count(0)), ("arc", rate(50))]),
            class("b", &[("priority", Value::Count(1)), ("arc", rate(10)), ("rdc", Value::Real(Fixed::ONE))]),
            class("c", &[("priority", Value::Count(2)), ("default", Value::Flag)]),
        ],
    );
    vec![cbq, hfsc, jobs]
}

/// Bytes of each leaf that left from `from` on, for 60 ms.
fn served(left: &Left, from: u64) -> [u64; 4] {
    let mut bytes = [0; 4];
    for &(_, leaf, len) in left.iter().filter(|(at, ..)| (from..from + 60_000_000).contains(at)) {
        bytes[leaf as usize] += len;
    }
    bytes
}

fn differs(a: [u64; 4], b: [u64; 4]) -> u64 {
    a.iter().zip(b).map(|(a, b)| a.abs_diff(b)).max().unwrap_or(0)
}

/// What each class gets after the stop is what it gets without one.
#[test]
fn shares_after_a_stop_are_as_configured() {
    let link = Link::new(Rate::from_mbps(100), OVERHEAD, 1_514);
    let wire = WireConfig::Regulator { depth_bytes: 12_500 };
    for node in shared() {
        let run = |stop_ns| {
            let tree = Registry::builtin().build(&node, link).unwrap_or_else(|e| panic!("{e}"));
            Late::new(tree, link, wire, stop_ns, 0, 7).run(800_000_000)
        };
        let (with, without) = (run(STOP), run(0));
        let after = STOP_AT + STOP + 1_000_000;
        let (with, without) = (served(&with, after), served(&without, after));
        println!("{}: {with:?} after the stop, {without:?} without", node.discipline);
        // 60 ms are 750 kB.
        assert!(differs(with, without) <= 20_000, "{}: {with:?}, not {without:?}", node.discipline);
    }
}

/// Reversed: HFSC on a clock that runs on in a stop pays back what it owes to real-time classes,
/// and nobody else gets anything for 60 ms.
#[test]
fn a_clock_that_runs_on_spoils_the_shares() {
    let link = Link::new(Rate::from_mbps(100), OVERHEAD, 1_514);
    let hfsc = &shared()[1];
    let run = |stop_ns| {
        let mut tree = Registry::builtin().build(hfsc, link).expect("a valid configuration").discipline;
        let mut cx = Cx::new(100, link, 1);
        let mut left = Vec::new();
        let mut stopped = false;
        for leaf in (0..3).cycle().take(90) {
            give(&mut cx, &mut *tree, leaf);
        }
        while cx.now < Instant::from_millis(800) {
            if !stopped && cx.now.as_nanos() >= STOP_AT {
                (stopped, cx.now) = (true, cx.now + Duration::from_nanos(stop_ns));
            }
            match tree.dequeue(&mut cx) {
                Next::Packet(id) => {
                    let leaf = cx.packets.get(&id).leaf;
                    cx.packets.remove(id);
                    left.push((cx.now.as_nanos(), leaf, 1_024));
                    give(&mut cx, &mut *tree, leaf);
                    cx.now += Duration::from_nanos(link.time_for(1_000).ceil().as_nanos());
                }
                Next::At(at) => cx.now = at,
                Next::Held(_) | Next::Idle => panic!("every class has packets"),
            }
        }
        served(&left, STOP_AT + stop_ns)
    };
    let (with, without) = (run(STOP), run(0));
    assert!(differs(with, without) > 100_000, "{with:?} as {without:?}");
}

fn give(cx: &mut Cx, tree: &mut dyn Discipline, leaf: u32) {
    let mut meta = Meta::new(1_000, cx.now, FrameRef(0));
    meta.leaf = leaf;
    let id = cx.packets.insert(meta).expect("100 rows");
    let _ = tree.enqueue(cx, id);
}

/// Lateness that the bucket can hold costs nothing: the mean rate is exact.
#[test]
fn jitter_within_the_bucket_costs_no_rate() {
    for (bps, jitter_ns) in [(10_000_000, 300_000), (100_000_000, 300_000), (1_000_000_000, 300_000)] {
        let link = Link::new(Rate::from_bps(bps), OVERHEAD, 1_514);
        let depth_bytes = (bps / 8_000).max(2 * 1_538);
        let mean = |depth_bytes, jitter_ns| {
            let tree = PortPlan::fifo(1_000).tree;
            let wire = WireConfig::Regulator { depth_bytes };
            let mut late = Late::new(tree, link, wire, 0, jitter_ns, 3);
            late.full = 1_000;
            let bytes: u64 = late.run(4_000_000_000).iter().map(|&(_, _, bytes)| bytes).sum();
            bytes as f64 * 8.0 / 4.0 / bps as f64
        };
        let exact = mean(depth_bytes, jitter_ns);
        assert!((exact - 1.0).abs() < 0.001, "{bps} bit/s: {exact}");
        // Reversed: lateness beyond the bucket loses.
        let fills_in_ns = depth_bytes * 8_000_000_000 / bps;
        let lossy = mean(depth_bytes, 3 * fills_in_ns);
        assert!(lossy < 0.99, "{bps} bit/s: {lossy}");
    }
}

/// Lateness within the bucket takes nothing from any class, those that wait by themselves included.
#[test]
fn jitter_within_the_bucket_costs_no_class_anything() {
    let link = Link::new(Rate::from_mbps(100), OVERHEAD, 1_514);
    let wire = WireConfig::Regulator { depth_bytes: 12_500 };
    for node in shared() {
        let run = |jitter_ns| {
            let tree = Registry::builtin().build(&node, link).unwrap_or_else(|e| panic!("{e}"));
            let mut bytes = [0u64; 4];
            let left = Late::new(tree, link, wire, 0, jitter_ns, 7).run(2_000_000_000);
            left.iter().for_each(|&(_, leaf, len)| bytes[leaf as usize] += len);
            bytes
        };
        let (with, without) = (run(300_000), run(0));
        println!("{}: {with:?} with jitter, {without:?} without", node.discipline);
        for (with, without) in with.iter().zip(without) {
            assert!(
                with.abs_diff(without) <= without / 100 + 3_000,
                "{}: {with}, not {without}",
                node.discipline
            );
        }
    }
}
