//! The port against arithmetic done by hand.

use super::*;
use crate::packet::Family;
use crate::queue::Leaf;
use crate::queue::{Discipline, Kind, ParamSpec};
use crate::sched::Tree;
use crate::sched::{ClassConfig, Node, Registry};
use crate::units::Rate;
use alloc::string::ToString;
use std::boxed::Box;
use std::vec;

const MBPS_10: u64 = 10_000_000;

fn link() -> Link {
    Link::new(Rate::from_bps(MBPS_10), 0, 1500)
}

fn fifo(limit: u64) -> Tree {
    let params = Params::new().with("qlimit", crate::queue::Value::Count(limit));
    let node = Node { discipline: "fifoq".to_string(), params, classes: Vec::new() };
    Registry::builtin().build(&node, link()).unwrap()
}

fn port(wire: WireConfig) -> Port {
    open(PortConfig::new(link(), wire), fifo(50))
}

fn open(config: PortConfig, tree: Tree) -> Port {
    Port::new(config, PortPlan::new(tree, Classifier::empty()))
}

/// Collects what left (frame, ns) and what was dropped (frame, reason).
#[derive(Default)]
struct Seen {
    taken: Vec<(u32, u64)>,
    sent: Vec<(u32, u64)>,
    dropped: Vec<(u32, DropReason)>,
}
impl Seen {
    fn host(&mut self) -> impl FnMut(Event<'_>) {
        |Event { at, meta, kind }| match kind {
            EventKind::Taken => self.taken.push((meta.frame.0, at.as_nanos())),
            EventKind::Sent => self.sent.push((meta.frame.0, at.as_nanos())),
            EventKind::Dropped(reason) => self.dropped.push((meta.frame.0, reason)),
        }
    }
}

fn at(us: u64) -> Instant {
    Instant::from_micros(us)
}
fn packet(frame: u32, len: u32) -> Meta {
    Meta::new(len, Instant::ZERO, FrameRef(frame))
}
fn drain(port: &mut Port, seen: &mut Seen) {
    while port.next_wake_up() != Instant::NEVER {
        port.advance(port.next_wake_up(), &mut seen.host());
    }
}

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

/// Each event says when it happened, and leaves arrival and queueing time as they were.
#[test]
fn events_carry_their_time() {
    let config = PortConfig::new(link(), WireConfig::Link { ring: 1, refill: Refill::Packet });
    let (mut port, mut told) = (open(config, fifo(2)), vec::Vec::new());
    let mut hear = |Event { at, meta, kind }: Event<'_>| {
        told.push((meta.frame.0, kind, meta.arrival.as_nanos() / 1000, at.as_nanos() / 1000));
    };
    for frame in 0..4u32 {
        port.offer(at(100 * u64::from(frame)), packet(frame, 1500), &mut hear);
    }
    port.flush(at(1_350), DropReason::Flush, &mut hear);
    drop(port);
    use EventKind::{Dropped, Sent, Taken};
    let expected = [
        (0, Taken, 0, 0),
        (3, Dropped(DropReason::Tail), 300, 300),
        (0, Sent, 0, 1_200),
        (1, Taken, 100, 1_200),
        (2, Dropped(DropReason::Flush), 200, 1_350),
    ];
    assert_eq!(told, expected);
}

/// What a discipline may ask of a packet is what its headers say. ECN bits are 0 where they mean no
/// congestion, and leave as they came.
#[test]
fn a_packet_is_described_as_its_headers_say() {
    for ecn in [true, false] {
        let plan = PortPlan { ecn, ..PortPlan::fifo(50) };
        let mut port = Port::new(PortConfig::new(link(), WireConfig::Open), plan);
        for tos in 0..=255u8 {
            let key = Key { src: 0x0a00_0001, dst: 0x0a00_0002, protocol: 17, ..Key::default() };
            let key = Key { family: Family::V4, ..key }.with_ports(4_000, 53).with_tos(tos);
            let meta = port.condition(at(7), 300, FrameRef(9), &key).0;
            assert_eq!((meta.len, meta.frame, meta.arrival), (300, FrameRef(9), at(7)));
            assert_eq!((meta.protocol, meta.src_port, meta.dst_port), (17, 4_000, 53));
            assert_eq!(meta.flow, key.flow_hash(port.seed()));
            assert_eq!(
                (meta.src_hash, meta.dst_hash),
                (key.src_hash(port.seed()), key.dst_hash(port.seed()))
            );
            assert_eq!((meta.dscp, meta.ecn), (tos >> 2, if ecn { tos & 3 } else { 0 }), "ecn {ecn}");
            assert_eq!(meta.tos_out(), tos, "ecn {ecn}");
        }
    }
}

/// A 1500-byte packet lasts 1200 us at 10 Mbit/s; packets follow each other without a gap.
#[test]
fn a_link_sends_back_to_back() {
    let (mut port, mut seen) = (port(WireConfig::Link { ring: 1, refill: Refill::Packet }), Seen::default());
    for frame in 0..3 {
        port.offer(at(100), packet(frame, 1500), &mut seen.host());
    }
    drain(&mut port, &mut seen);
    assert_eq!(seen.taken, [(0, 100_000), (1, 1_300_000), (2, 2_500_000)]);
    assert_eq!(seen.sent, [(0, 1_300_000), (1, 2_500_000), (2, 3_700_000)]);
    assert_eq!(port.refills(), 3);
    assert_eq!((port.total().sent_packets, port.total().inside()), (3, 0));
    port.check().unwrap();
}

/// At one instant the arrival comes first: it still finds the queue full.
#[test]
fn arrivals_come_before_completions() {
    let config = PortConfig::new(link(), WireConfig::Link { ring: 1, refill: Refill::Packet });
    let (mut port, mut seen) = (open(config, fifo(1)), Seen::default());
    for frame in 0..2 {
        port.offer(at(0), packet(frame, 1500), &mut seen.host());
    }
    port.offer(at(1200), packet(2, 1500), &mut seen.host());
    port.offer(at(1201), packet(3, 1500), &mut seen.host());
    drain(&mut port, &mut seen);
    assert_eq!(seen.dropped, [(2, DropReason::Tail)]);
    assert_eq!(seen.sent.iter().map(|s| s.0).collect::<Vec<_>>(), [0, 1, 3]);
}

/// D10: with one interrupt per N packets, descriptors come back when N have completed.
#[test]
fn d10_batch_refill_hands_descriptors_back_together() {
    let batch = WireConfig::Link { ring: 4, refill: Refill::Batch };
    let (mut port, mut seen) = (port(batch), Seen::default());
    for frame in 0..10 {
        port.offer(at(0), packet(frame, 1500), &mut seen.host());
    }
    let mut in_ring = vec![port.in_ring()];
    while port.next_wake_up() != Instant::NEVER {
        port.advance(port.next_wake_up(), &mut seen.host());
        in_ring.push(port.in_ring());
    }
    assert_eq!(in_ring, [4, 3, 2, 1, 4, 3, 2, 1, 2, 1, 0]);
    // Per packet the ring stays full while there is a queue.
    let (mut port, mut seen) =
        (self::port(WireConfig::Link { ring: 4, refill: Refill::Packet }), Seen::default());
    for frame in 0..10 {
        port.offer(at(0), packet(frame, 1500), &mut seen.host());
    }
    port.advance(at(1200), &mut seen.host());
    assert_eq!(port.in_ring(), 4);
}

/// A class that sends one packet per millisecond: what a coarse timer makes of it.
struct Every {
    queue: Child,
    period: Duration,
    next: Instant,
}
impl Discipline for Every {
    fn enqueue(&mut self, cx: &mut Cx, id: PacketId) -> Verdict {
        self.queue.enqueue(cx, id)
    }
    fn dequeue(&mut self, cx: &mut Cx) -> Next {
        if self.queue.is_empty() {
            return Next::Idle;
        }
        if cx.now < self.next {
            return Next::At(self.next);
        }
        self.next = cx.now + self.period;
        self.queue.take(cx)
    }
    fn backlog(&self) -> Backlog {
        self.queue.backlog()
    }
    fn flush(&mut self, cx: &mut Cx, reason: DropReason) {
        self.queue.flush(cx, reason);
    }
    fn reconfigure(&mut self, _: &mut Cx, _: &str, _: &Params) -> Result<(), ParamError> {
        Ok(())
    }
    fn visit_stats(&self, _: &mut dyn Visit) {}
    fn check(&self, cx: &Cx) -> Result<(), Broken> {
        self.queue.check(cx)
    }
}

fn every(period_us: u64, tick_ms: u64, packet_events: bool) -> Port {
    let mut config = PortConfig::new(link(), WireConfig::Link { ring: 1, refill: Refill::Packet });
    (config.tick, config.packet_events) = (Duration::from_millis(tick_ms), packet_events);
    let every = Every {
        queue: Child::leaf(Leaf::tail_drop(50)),
        period: Duration::from_micros(period_us),
        next: Instant::ZERO,
    };
    let leaves = vec![LeafInfo { name: "all".to_string(), terminal: true, limit: 50 }];
    open(config, Tree { discipline: Box::new(every), leaves, default_leaf: Some(0) })
}

/// Loses a packet on its way out, says that it is broken, and gives the next one.
struct Skips(Child);
impl Discipline for Skips {
    fn enqueue(&mut self, cx: &mut Cx, id: PacketId) -> Verdict {
        self.0.enqueue(cx, id)
    }
    fn dequeue(&mut self, cx: &mut Cx) -> Next {
        drop(self.0.take(cx));
        cx.broken("skips", "on purpose");
        self.0.take(cx)
    }
    fn backlog(&self) -> Backlog {
        self.0.backlog()
    }
    fn flush(&mut self, cx: &mut Cx, reason: DropReason) {
        self.0.flush(cx, reason);
    }
    fn reconfigure(&mut self, _: &mut Cx, _: &str, _: &Params) -> Result<(), ParamError> {
        Ok(())
    }
    fn visit_stats(&self, _: &mut dyn Visit) {}
    fn check(&self, cx: &Cx) -> Result<(), Broken> {
        self.0.check(cx)
    }
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
            discipline: Box::new(Skips(Child::leaf(Leaf::tail_drop(50)))),
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

/// A time that never comes is a breach of law 2: nothing would wake the port again.
#[test]
fn a_tree_that_is_told_to_wait_for_ever_falls_back() {
    let mut port = every(u64::MAX / 1_000, 0, true);
    let mut seen = Seen::default();
    for frame in 0..2 {
        port.offer(at(1_000_000_000), packet(frame, 100), &mut seen.host());
    }
    port.advance(at(2_000_000_000), &mut seen.host());
    assert_eq!(port.is_broken().map(|b| b.discipline), Some("port"));
    assert_eq!(port.backlog().packets, 0, "the FIFO sends what was to wait for ever");
}

/// A05, A24, A25: with an exact timer the period holds; with a 10 ms tick and no packet events the
/// tree is asked at the second tick after it was suspended; packet events ask it earlier.
#[test]
fn a25_the_tick_rounds_to_the_second_tick() {
    for (tick_ms, events, expected_us) in
        [(0u64, true, [0u64, 2_000, 4_000]), (10, false, [0, 20_000, 40_000]), (10, true, [0, 2_500, 4_500])]
    {
        let (mut port, mut seen) = (every(2_000, tick_ms, events), Seen::default());
        for frame in 0..3 {
            port.offer(at(0), packet(frame, 100), &mut seen.host());
        }
        // Arrivals at 2.5 and 4.5 ms: packet events where they count.
        for us in [2_500, 4_500] {
            if events && tick_ms > 0 {
                port.offer(at(us), packet(9, 100), &mut seen.host());
            }
        }
        drain(&mut port, &mut seen);
        let starts: Vec<u64> = seen.sent.iter().take(3).map(|s| s.1 / 1000 - 80).collect();
        assert_eq!(starts, expected_us, "tick {tick_ms} ms, packet events {events}");
        assert!(port.wake_ups() <= 8, "A05: no busy polling");
    }
}

/// The regulator lets a burst of its depth through at once, then holds the rate.
#[test]
fn the_regulator_shapes() {
    let (mut port, mut seen) = (port(WireConfig::Regulator { depth_bytes: 3_000 }), Seen::default());
    for frame in 0..5 {
        port.offer(at(0), packet(frame, 1500), &mut seen.host());
    }
    drain(&mut port, &mut seen);
    let times: Vec<u64> = seen.sent.iter().map(|s| s.1).collect();
    assert_eq!(times, [0, 0, 1_200_000, 2_400_000, 3_600_000]);
    // A packet longer than the bucket still passes, and is paid for.
    port.offer(at(10_000), packet(7, 9_000), &mut seen.host());
    port.offer(at(10_000), packet(8, 1_500), &mut seen.host());
    drain(&mut port, &mut seen);
    let late: Vec<u64> = seen.sent[5..].iter().map(|s| s.1).collect();
    assert_eq!(late[1] - late[0], 1_200_000);
}

fn two_classes(names: [&str; 2]) -> Tree {
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

/// A full packet table refuses with a reason of its own, and the port goes on.
#[test]
fn a_full_table_drops_with_nobuf() {
    let mut config = PortConfig::new(link(), WireConfig::Link { ring: 1, refill: Refill::Packet });
    config.capacity = 3;
    let (mut port, mut seen) = (open(config, fifo(50)), Seen::default());
    for frame in 0..5 {
        port.offer(at(0), packet(frame, 1500), &mut seen.host());
    }
    assert_eq!(seen.dropped, [(3, DropReason::Nobuf), (4, DropReason::Nobuf)]);
    drain(&mut port, &mut seen);
    port.check().unwrap();
    assert_eq!(seen.sent.len(), 3);
}

/// What the device below refuses left the port, and yet was not sent. A leaf that is gone counts
/// in the sum.
#[test]
fn what_the_device_refuses_counts_as_dropped() {
    let (mut port, mut seen) = (port(WireConfig::Open), Seen::default());
    for frame in 0..3 {
        port.offer(at(0), packet(frame, 1500), &mut seen.host());
    }
    assert_eq!(port.total().sent_bytes, 4500);
    port.refused(0, 1500, DropReason::Toolong);
    // More than it sent cannot come back: a leaf that is gone has sent nothing here.
    port.refused(u32::MAX, 1500, DropReason::Toolong);
    let total = port.total();
    assert_eq!((total.sent_packets, total.sent_bytes, total.dropped_bytes), (2, 3000, 1500));
    assert_eq!(total.dropped_packets[DropReason::Toolong as usize], 1);
    port.check().unwrap();
}

/// altq98-impact: 1024 bytes last 0.819 ms at 10 Mbit/s; the third of three waits 1.638 ms.
#[test]
fn altq98_impact() {
    let (mut port, mut seen) = (port(WireConfig::Link { ring: 1, refill: Refill::Packet }), Seen::default());
    for frame in 0..3 {
        port.offer(at(0), packet(frame, 1024), &mut seen.host());
    }
    drain(&mut port, &mut seen);
    assert_eq!(seen.sent[0].1, 819_200);
    assert_eq!(seen.sent[2].1 - seen.sent[0].1, 1_638_400);
}

mod conditioned {
    use super::*;
    use crate::classify::{Field, Filter};
    use crate::meter::{Action, Conditioners, Meter};
    use crate::packet::{Dscp, Family, Key};

    fn key(dst_port: u16, tos: u8) -> Key {
        Key { family: Family::V4, src: 1, dst: 2, protocol: 17, dst_port, tos, ..Key::default() }
    }
    fn to_port(port: u128, class: u32) -> Filter {
        Filter::new(Family::V4, class, 1).exactly(Field::DstPort, port)
    }
    /// Port 1 is marked EF as long as it keeps 8 kbit/s and 500 bytes, and policed beyond.
    fn edge() -> Conditioners {
        let meter = Meter::TokenBucket { rate: Rate::from_bps(8_000), depth: 500 };
        let action = Action::Meter { meter, actions: std::vec![Action::Mark(Dscp::EF), Action::Drop] };
        let conditioners =
            Conditioners::new(Classifier::compile([to_port(1, 0)]), &[("edge".into(), action)]);
        conditioners.expect("a right action")
    }
    fn port_of_two(conditioners: Option<Conditioners>) -> Port {
        let config = PortConfig::new(link(), WireConfig::Open);
        let by_mark = Filter::new(Family::V4, 1, 1).dscp(Dscp::EF);
        let plan = PortPlan::new(two_classes(["a", "b"]), Classifier::compile([by_mark]));
        Port::new(config, PortPlan { conditioners, ..plan })
    }

    /// The class filters see the mark; the ECN bits stay.
    #[test]
    fn a_mark_decides_the_class() {
        for (conditioners, leaf, dscp) in [(Some(edge()), 1, 46), (None, 0, 10)] {
            let mut port = port_of_two(conditioners);
            let meta = port.condition(Instant::ZERO, 100, FrameRef(0), &key(1, 10 << 2 | 2));
            assert_eq!((meta.leaf(), meta.meta().dscp, meta.meta().ecn), (leaf, dscp, 2));
            let other = port.condition(Instant::ZERO, 100, FrameRef(0), &key(2, 0));
            assert_eq!((other.leaf(), other.meta().dscp), (0, 0), "what no filter matches is left alone");
        }
    }

    #[test]
    fn policed_packets_are_in_the_ledger() {
        let mut port = port_of_two(Some(edge()));
        let (mut sent, mut policed, mut refused) = (0, 0, 0);
        for n in 0..20 {
            let mut hear = |Event { meta, kind, .. }: Event<'_>| match kind {
                EventKind::Sent => {
                    assert_eq!((meta.dscp, meta.leaf), (46, 1));
                    sent += 1;
                }
                EventKind::Dropped(reason) => {
                    assert_eq!((reason, meta.frame.0), (DropReason::Policed, n));
                    policed += 1;
                }
                EventKind::Taken => {}
            };
            let at = Instant::from_millis(u64::from(n) * 10);
            let verdict = port.receive(at, 100, FrameRef(n), &key(1, 0), &mut hear);
            refused += u32::from(verdict == Verdict::Dropped);
            port.check().expect("the port is whole");
        }
        // 500 bytes at once, then a byte a millisecond: of 2000 bytes in 190 ms, 600 pass.
        assert_eq!((sent, policed, refused), (6, 14, 14));
        let total = port.total();
        assert_eq!((total.offered_packets, total.sent_packets, total.inside()), (20, 6, 0));
        assert_eq!(total.dropped_packets[DropReason::Policed as usize], 14);
        let unmarked = port.account(0).expect("leaf a");
        assert_eq!(unmarked.dropped_packets[DropReason::Policed as usize], 14, "they were not marked");
    }
}

#[test]
fn a_new_port_has_done_nothing() {
    let port = port(WireConfig::Open);
    assert_eq!((port.wake_ups(), port.backlog().packets), (0, 0));
    assert_eq!((port.total().offered_packets, port.total().sent_packets, port.total().dropped()), (0, 0, 0));
    assert_eq!(port.next_wake_up(), Instant::NEVER);
}
