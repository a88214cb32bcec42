//! Swaps of plans, and the fall back to a FIFO: nothing is lost, and every sum stays.

use super::*;
use crate::Random;
use crate::queue::{Kind, ParamSpec, Value};
use crate::sched::ClassConfig;

/// A plan opens a port as it would exchange another one's: link, regulator and all.
#[test]
fn a_plan_means_the_same_at_the_start_and_in_a_swap() {
    let plan = |kbps: u64| {
        let link = Link::new(Rate::from_bps(kbps * 1_000), 24, 1500);
        let regulated = Some((link, WireConfig::Regulator { depth_bytes: 2_000 }));
        PortPlan { regulated, ..PortPlan::fifo(50) }
    };
    let first = WireConfig::Regulator { depth_bytes: 2_000 };
    let mut opened = Port::new(PortConfig::new(link(), first), plan(400));
    let mut swapped = Port::new(PortConfig::new(link(), first), PortPlan::fifo(50));
    swapped.swap(Instant::ZERO, plan(400), &mut |_| panic!("no packet was offered"));
    assert_eq!((opened.link().overhead, opened.leaves()[0].name.as_str()), (24, "all"));
    let mut seen = [Seen::default(), Seen::default()];
    for (port, seen) in [&mut opened, &mut swapped].into_iter().zip(&mut seen) {
        for frame in 0..10 {
            port.offer(at(0), packet(frame, 1000), &mut seen.host());
        }
        drain(port, seen);
    }
    assert_eq!(seen[0].sent, seen[1].sent);
    // The bucket holds one packet; each further one waits for 1024 bytes at 50 bytes a millisecond.
    assert_eq!((seen[0].sent[0], seen[0].sent.len()), ((0, 0), 10));
    assert_eq!(seen[0].sent[9].1 / 1_000_000, (10 * 1024 - 2000) / 50);
    // How late the host may be without a loss follows the bucket, too.
    let mut late = [Seen::default(), Seen::default()];
    for (port, late) in [&mut opened, &mut swapped].into_iter().zip(&mut late) {
        for frame in 0..10 {
            port.offer(at(1_000_000), packet(frame, 1000), &mut late.host());
        }
        while port.next_wake_up() != Instant::NEVER {
            port.advance(port.next_wake_up() + Duration::from_millis(100), &mut late.host());
        }
    }
    assert_eq!(late[0].sent, late[1].sent);
    // An emulated link is the host's, whatever the plan says.
    let emulated = WireConfig::Link { ring: 1, refill: Refill::Packet };
    let port = Port::new(PortConfig::new(link(), emulated), plan(400));
    assert_eq!((port.link().rate, port.link().overhead), (Rate::from_bps(MBPS_10), 0));
}

/// Loses a packet on its way out, says that it is broken, and gives the next one.
fn skips(child: &mut Child, cx: &mut Cx) -> Next {
    drop(child.take(cx));
    cx.broken("skips", "on purpose");
    child.take(cx)
}

/// A02: what a broken call gives does not overtake the packets that it lost.
#[test]
fn a02_a_packet_from_a_broken_call_waits_for_its_turn() {
    for wire in
        [WireConfig::Link { ring: 1, refill: Refill::Packet }, WireConfig::Regulator { depth_bytes: 100 }]
    {
        let (mut port, mut seen) = (self::port(wire), Seen::default());
        // The first packet fills the ring, or empties the bucket.
        port.offer(at(0), packet(0, 100), &mut seen.host());
        let leaves = vec![LeafInfo { name: "all".into(), terminal: true, limit: 50 }];
        let tree = Tree {
            discipline: Box::new(Serves(Child::leaf(Leaf::tail_drop(50)), skips)),
            leaves,
            default_leaf: None,
        };
        port.swap(at(0), PortPlan::new(tree, Classifier::empty()), &mut seen.host());
        for frame in 1..5 {
            port.offer(at(0), packet(frame, 100), &mut seen.host());
        }
        drain(&mut port, &mut seen);
        assert!(port.is_broken().is_some());
        assert_eq!(seen.sent.iter().map(|s| s.0).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    }
}

/// Classes come, go, change places and limits. A swap that was prepared does what one does that was not, and a plan
/// that was prepared for what stood here before is no harm.
#[test]
fn a_swap_is_the_same_prepared_or_not() {
    let names = ["a", "b", "c", "d"];
    let tree = |random: &mut Random| {
        let mut node = Node { discipline: "priq".into(), ..Node::default() };
        let count = 1 + random.below(4) as usize;
        for priority in 0..count as u64 {
            let name = names[(priority + random.below(5 - count as u64)) as usize];
            let limit = Value::Count(10 + 10 * random.below(2));
            let params = Params::new().with("priority", Value::Count(priority)).with("qlimit", limit);
            node.classes.push(ClassConfig { name: name.into(), params, ..ClassConfig::default() });
        }
        node.classes.dedup_by(|a, b| a.name == b.name);
        Registry::builtin().build(&node, link()).unwrap()
    };
    let mut prepared_twice = 0;
    for seed in weir_seed::seeds(200) {
        let wire = WireConfig::Link { ring: 2, refill: Refill::Packet };
        let config = PortConfig { capacity: 30, ..PortConfig::new(link(), wire) };
        let plan = |seed: u64| PortPlan::new(tree(&mut Random::new(seed)), Classifier::empty());
        let mut ports = [Port::new(config, plan(seed)), Port::new(config, plan(seed))];
        let mut seen = [Seen::default(), Seen::default()];
        let (mut random, mut before) = (Random::new(seed), ports[1].layout());
        for step in 0..20 {
            let frames = step * 10..step * 10 + random.below(10) as u32;
            let next = random.below(1 << 60);
            // The same names and limits, now and then.
            let next = if random.below(3) == 0 { seed } else { next };
            let limit = (random.below(4) == 0).then(|| 5 + random.below(40));
            let stale = random.below(3) == 0;
            for (index, (port, seen)) in ports.iter_mut().zip(&mut seen).enumerate() {
                for frame in frames.clone() {
                    let leaf = frame % port.leaves().len() as u32;
                    port.offer(at(u64::from(step)), Meta { leaf, ..packet(frame, 1000) }, &mut seen.host());
                }
                if let Some(limit) = limit {
                    let (class, limit) = (port.leaves()[0].name.clone(), Value::Count(limit));
                    let params = Params::new().with("qlimit", limit);
                    port.reconfigure(at(u64::from(step)), &class, &params, &mut seen.host()).unwrap();
                }
                let mut plan = plan(next);
                if index == 1 {
                    let layout = if stale { &before } else { &port.layout() };
                    layout.prepare(&mut plan);
                    prepared_twice += u32::from(stale);
                    before = port.layout();
                }
                port.swap(at(u64::from(step)), plan, &mut seen.host());
                port.check().unwrap_or_else(|broken| panic!("seed {seed}, step {step}: {broken:?}"));
            }
            let accounts = |port: &Port| port.ledger.leaves.clone();
            assert_eq!(accounts(&ports[0]), accounts(&ports[1]), "seed {seed}, step {step}");
        }
        ports.iter_mut().zip(&mut seen).for_each(|(port, seen)| drain(port, seen));
        assert_eq!(seen[0].sent, seen[1].sent, "seed {seed}");
        assert_eq!(ports[0].total(), ports[1].total(), "seed {seed}");
        assert_eq!(ports[0].reassigned(), ports[1].reassigned(), "seed {seed}");
    }
    assert!(prepared_twice > 100);
}

pub(super) fn two_classes(names: [&str; 2]) -> Tree {
    let class = |name: &str, priority| ClassConfig {
        name: name.to_string(),
        params: Params::new().with("priority", crate::queue::Value::Count(priority)),
        ..ClassConfig::default()
    };
    let node = Node {
        discipline: "two".to_string(),
        params: Params::new(),
        classes: vec![class(names[0], 1), class(names[1], 0)],
    };
    let mut registry = Registry::builtin();
    registry.register(crate::sched::Entry {
        name: "two",
        aliases: &[],
        source: "//! Two queues.",
        params: &[PRIORITY],
        classes: crate::sched::Classes::Flat,
        build: Some(|node, builder| {
            let first = builder.child(node, 0, builder.link.rate, 50)?;
            let second = builder.child(node, 1, builder.link.rate, 50)?;
            Ok(Box::new(Two([first, second])))
        }),
        ..crate::sched::Entry::PLAIN
    });
    registry.build(&node, link()).unwrap()
}

const PRIORITY: &[ParamSpec] = &[ParamSpec::class("priority", Kind::Count { min: 0, max: 1 }, "0", "")];

/// The first queue before the second.
struct Two([Child; 2]);
impl Discipline for Two {
    fn enqueue(&mut self, cx: &mut Cx, id: PacketId) -> Verdict {
        let leaf = cx.packets.get(&id).leaf as usize;
        self.0[leaf].enqueue(cx, id)
    }
    fn dequeue(&mut self, cx: &mut Cx) -> Next {
        if self.0[0].is_empty() { self.0[1].take(cx) } else { self.0[0].take(cx) }
    }
    fn backlog(&self) -> Backlog {
        self.0[0].backlog() + self.0[1].backlog()
    }
    fn flush(&mut self, cx: &mut Cx, reason: DropReason) {
        self.0.iter_mut().for_each(|child| child.flush(cx, reason));
    }
    fn reconfigure(&mut self, cx: &mut Cx, class: &str, _: &Params) -> Result<(), ParamError> {
        if class == "break" {
            cx.broken("two", "on request");
        }
        Ok(())
    }
    fn visit_stats(&self, _: &mut dyn Visit) {}
    fn check(&self, cx: &Cx) -> Result<(), Broken> {
        self.0.iter().try_for_each(|child| child.check(cx))
    }
}

/// A17: what the port as a whole has had is the same after a swap, to the byte, though classes come and
/// go; and a class that keeps its name keeps its account. What is new in the plan counts from then on.
#[test]
fn a17_a_swap_keeps_every_sum() {
    let config = PortConfig::new(link(), WireConfig::Link { ring: 2, refill: Refill::Packet });
    let mut port = open(config, two_classes(["a", "b"]));
    for frame in 0..200 {
        let mut meta = packet(frame, 500 + frame);
        meta.leaf = frame % 2;
        port.offer(at(0), meta, &mut |_| {});
    }
    port.advance(at(20_000), &mut |_| {});
    let (total, b) = (port.total(), *port.account(1).unwrap());
    assert!(total.sent_bytes > 0 && total.dropped_bytes > 0 && total.inside() > 0, "{total:?}");
    let plan = PortPlan { ecn: false, ..PortPlan::new(two_classes(["b", "c"]), Classifier::empty()) };
    port.swap(at(20_000), plan, &mut |_| {});
    assert_eq!(port.total(), total);
    let kept = port.account(0).unwrap();
    assert_eq!((kept.sent_packets, kept.sent_bytes), (b.sent_packets, b.sent_bytes));
    assert_eq!((kept.dropped_packets, kept.dropped_bytes), (b.dropped_packets, b.dropped_bytes));
    let key = Key { family: Family::V4, ..Key::default() }.with_tos(3);
    assert_eq!(port.condition(at(20_000), 100, FrameRef(0), &key).0.ecn, 0, "ECN bits mean nothing now");
    drain(&mut port, &mut Seen::default());
    let end = port.total();
    assert_eq!((end.inside(), end.offered_packets, end.offered_bytes), (0, 200, total.offered_bytes));
    assert_eq!(end.sent_bytes + end.dropped_bytes, end.offered_bytes);
    port.check().unwrap();
}

/// A13: a swap hands each packet to the class of its name, loses nothing and keeps the accounts.
#[test]
fn a13_a_swap_loses_nothing() {
    let config = PortConfig::new(link(), WireConfig::Link { ring: 2, refill: Refill::Packet });
    let mut port = open(config, two_classes(["a", "b"]));
    let mut seen = Seen::default();
    for frame in 0..8 {
        let mut meta = packet(frame, 1000);
        meta.leaf = frame % 2;
        port.offer(at(0), meta, &mut seen.host());
    }
    // b becomes the first class, a is gone: its packets go to the default, which is the first leaf.
    port.swap(at(100), PortPlan::new(two_classes(["b", "c"]), Classifier::empty()), &mut seen.host());
    port.check().unwrap();
    assert_eq!(port.backlog().packets, 6);
    drain(&mut port, &mut seen);
    assert!(seen.dropped.is_empty());
    assert_eq!(seen.sent.len(), 8);
    assert_eq!(port.account(0).unwrap().sent_packets, 8);
    assert_eq!((port.total().offered_packets, port.total().inside(), port.reassigned()), (8, 0, 4));
}

/// What was due before a change happens as before it, what is due at its instant as after it. A packet lasts 800 us;
/// class a goes first before, and class b after.
#[test]
fn a_change_comes_after_what_was_due_before_it_and_before_what_is_due_now() {
    let sent = |change: &dyn Fn(&mut Port, Instant, &mut Seen), us| {
        let config = PortConfig::new(link(), WireConfig::Link { ring: 1, refill: Refill::Packet });
        let (mut port, mut seen) = (open(config, two_classes(["a", "b"])), Seen::default());
        for frame in 0..6 {
            let mut meta = packet(frame, 1000);
            meta.leaf = frame % 2;
            port.offer(at(0), meta, &mut seen.host());
        }
        change(&mut port, at(us), &mut seen);
        drain(&mut port, &mut seen);
        seen.sent.iter().map(|s| s.0).collect::<Vec<_>>()
    };
    let swap = |port: &mut Port, at: Instant, seen: &mut Seen| {
        let plan = PortPlan::new(two_classes(["b", "a"]), Classifier::empty());
        drop(port.swap(at, plan, &mut seen.host()));
    };
    assert_eq!(sent(&swap, 800), [0, 1, 3, 5, 2, 4]);
    assert_eq!(sent(&swap, 801), [0, 2, 1, 3, 5, 4]);
    let fall_back = |port: &mut Port, at: Instant, seen: &mut Seen| port.fall_back(at, &mut seen.host());
    assert_eq!(sent(&fall_back, 800), [0, 1, 2, 3, 4, 5]);
    assert_eq!(sent(&fall_back, 801), [0, 2, 1, 3, 4, 5]);
    let flush =
        |port: &mut Port, at: Instant, seen: &mut Seen| port.flush(at, DropReason::Flush, &mut seen.host());
    assert_eq!(sent(&flush, 800), [0]);
    assert_eq!(sent(&flush, 801), [0, 2]);
}

/// A02: a discipline that reports `Broken` is replaced by a FIFO in order of arrival, at once.
#[test]
fn a02_a_broken_discipline_becomes_a_fifo() {
    let config = PortConfig::new(link(), WireConfig::Link { ring: 1, refill: Refill::Packet });
    let mut port = open(config, two_classes(["a", "b"]));
    let mut seen = Seen::default();
    for frame in 0..8 {
        let mut meta = packet(frame, 1000);
        meta.leaf = 1 - frame % 2;
        port.offer(at(0), meta, &mut seen.host());
    }
    port.reconfigure(at(100), "break", &Params::new(), &mut seen.host()).unwrap();
    assert_eq!(port.is_broken().map(|b| b.discipline), Some("two"));
    port.check().unwrap();
    drain(&mut port, &mut seen);
    let frames: Vec<u32> = seen.sent.iter().map(|s| s.0).collect();
    assert_eq!(frames, [0, 1, 2, 3, 4, 5, 6, 7]);
    // And a configuration can be attached again.
    port.swap(at(20_000), PortPlan::new(two_classes(["a", "b"]), Classifier::empty()), &mut seen.host());
    assert_eq!(port.is_broken(), None);
}
