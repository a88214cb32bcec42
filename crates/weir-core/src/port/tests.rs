//! The port against arithmetic done by hand.

use super::*;
use crate::packet::Family;
use crate::queue::Child;
use crate::queue::{Cause, Discipline, Leaf, Next};
use crate::sched::{Node, Registry, Tree};
use crate::units::Rate;
use alloc::string::ToString;
use std::boxed::Box;
use std::vec;

mod apart;
mod conditioned;
mod swaps;
mod unasked;

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

/// CBQ with two classes of 20 and 60 % that may not borrow.
fn limited() -> Tree {
    use crate::queue::Value;
    let class = |(name, parent, percent): (&str, Option<usize>, u64)| {
        let share = Value::Fraction(crate::units::Fraction::ratio(percent, 100));
        let params = Params::new().with("pbandwidth", share);
        crate::sched::ClassConfig { name: name.into(), parent, params, queue: None }
    };
    let classes = [("root", None, 100), ("a", Some(0), 20), ("b", Some(0), 60)].map(class).to_vec();
    let node = Node { discipline: "cbq".to_string(), params: Params::new(), classes };
    Registry::builtin().build(&node, link()).unwrap()
}

/// A tree that has shown what goes next is not asked again before the tokens for it are there. A port that
/// asks it at every arrival tells the same. Reversed: one that does not ask although the tree itself holds its
/// packets back leaves one of another class that may go.
#[test]
fn a_tree_that_waits_for_tokens_is_not_asked_again() {
    let (mut skipped, mut late) = (0, 0);
    for seed in weir_seed::seeds(40) {
        let run = |asks: Option<bool>| {
            let mut random = crate::Random::new(seed);
            let wire = WireConfig::Regulator { depth_bytes: 1_000 + random.below(4_000) };
            let mut plan = PortPlan::new(limited(), Classifier::empty());
            plan.protect = (random.below(2) == 0).then(|| Protect::of(&link()));
            let tick = Duration::from_micros(random.below(2) * 1_000);
            let mut port = Port::new(PortConfig { tick, ..PortConfig::new(link(), wire) }, plan);
            let (mut seen, mut now, mut skips) = (Seen::default(), Instant::ZERO, 0);
            for frame in 0..500 {
                now += Duration::from_micros(random.below(2) * random.below(3_000));
                match random.below(12) {
                    0 => port.advance(now, &mut seen.host()),
                    1 => drop(port.hold(now, random.below(3) == 0, &mut seen.host())),
                    _ => {
                        port.short_of_tokens = asks.map_or(port.short_of_tokens, |asks| !asks);
                        skips += u32::from(port.waits_for_tokens());
                        let control = random.below(8) == 0;
                        let mut meta = packet(frame, 60 + random.below(1_400) as u32).with_control(control);
                        meta.leaf = 1 + random.below(2) as u32;
                        port.offer(now, meta, &mut seen.host());
                    }
                }
            }
            port.hold(now, false, &mut seen.host());
            drain(&mut port, &mut seen);
            port.check().unwrap();
            (seen.taken, seen.sent, seen.dropped, skips)
        };
        let ((taken, sent, dropped, skips), plain, never) = (run(None), run(Some(true)), run(Some(false)));
        assert_eq!((&taken, &sent, &dropped), (&plain.0, &plain.1, &plain.2), "seed {seed}");
        skipped += skips;
        late += u32::from(taken != never.0);
    }
    assert!(skipped > 1_000 && late > 10, "{skipped} skipped, {late} late");
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

/// Packets that follow one another through a ring of one lose no part of a nanosecond: the times of all
/// of them add up.
#[test]
fn parts_of_nanoseconds_add_up() {
    let link = Link::new(Rate::from_bps(7_000_000_000), 0, 1500);
    let wire = WireConfig::Link { ring: 1, refill: Refill::Packet };
    let mut port = open(PortConfig::new(link, wire), fifo(50));
    let mut seen = Seen::default();
    for frame in 0..51 {
        port.offer(at(0), packet(frame, 100), &mut seen.host());
    }
    drain(&mut port, &mut seen);
    // 51 packets of 100 bytes, 114.2857 ns each.
    let last = seen.sent.last().map(|sent| sent.1);
    assert!(seen.sent.len() == 51 && matches!(last, Some(5_828 | 5_829)), "{last:?}");
}

/// A queue that may hold more from now on takes no row that another class needs.
#[test]
fn a_raised_limit_leaves_room_for_the_others() {
    let class = |(n, name): (usize, &str)| crate::sched::ClassConfig {
        name: name.to_string(),
        params: Params::new()
            .with("priority", crate::queue::Value::Count(n as u64))
            .with("qlimit", crate::queue::Value::Count(20)),
        ..Default::default()
    };
    let classes = ["a", "b"].into_iter().enumerate().map(class).collect();
    let node = Node { discipline: "priq".to_string(), params: Params::new(), classes };
    let tree = Registry::builtin().build(&node, link()).unwrap();
    let config = PortConfig::new(link(), WireConfig::Link { ring: 1, refill: Refill::Packet });
    let (mut port, mut seen) = (open(PortConfig { capacity: 120, ..config }, tree), Seen::default());
    let more = Params::new().with("qlimit", crate::queue::Value::Count(10_000));
    port.reconfigure(at(0), "a", &more, &mut seen.host()).unwrap();
    let mut offer = |leaf: u32, packets: u32| {
        for frame in 0..packets {
            let mut meta = packet(frame, 1500);
            meta.leaf = leaf;
            port.offer(at(0), meta, &mut seen.host());
        }
        core::mem::take(&mut seen.dropped).len()
    };
    assert!(offer(0, 500) > 380, "no more than the table has");
    assert_eq!(offer(1, 20), 0, "rows were kept for the other class");
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

/// A child whose packets leave as the function has it.
struct Serves<F>(Child, F);
impl<F: FnMut(&mut Child, &mut Cx) -> Next + Send> Discipline for Serves<F> {
    fn enqueue(&mut self, cx: &mut Cx, id: PacketId) -> Verdict {
        self.0.enqueue(cx, id)
    }
    fn dequeue(&mut self, cx: &mut Cx) -> Next {
        (self.1)(&mut self.0, cx)
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

/// Law 2: a time is later than now. The next nanosecond is, and this one is not.
#[test]
fn a_tree_that_waits_for_now_falls_back() {
    type When = fn(Instant) -> Instant;
    let answers: [(When, bool); 3] = [
        (|now| now, true),
        (|now| Instant::from_nanos(now.as_nanos() - 1), true),
        (|now| now + Duration::from_nanos(1), false),
    ];
    for (n, (answer, breaks)) in answers.into_iter().enumerate() {
        let leaves = vec![LeafInfo { name: "all".to_string(), terminal: true, limit: 50 }];
        let says = move |child: &mut Child, cx: &mut Cx| {
            if child.is_empty() { Next::Idle } else { Next::At(answer(cx.now)) }
        };
        let says = Box::new(Serves(Child::leaf(Leaf::tail_drop(50)), says));
        let tree = Tree { discipline: says, leaves, default_leaf: Some(0) };
        let mut port = open(PortConfig::new(link(), WireConfig::Open), tree);
        port.offer(at(1), packet(0, 100), &mut |_| {});
        assert_eq!(port.is_broken().map(|b| b.discipline), breaks.then_some("port"), "answer {n}");
        assert_eq!(port.backlog().packets, u64::from(!breaks), "answer {n}");
    }
}

/// A time that the tree named is forgotten when it says that only another call helps: nobody is woken for
/// nothing (A05).
#[test]
fn a_time_that_counts_no_longer_wakes_nobody() {
    let says = |child: &mut Child, _: &mut Cx| match child.backlog().packets {
        0 => Next::Idle,
        1 => Next::At(at(100)),
        _ => Next::Held(Cause::Rate),
    };
    let leaves = vec![LeafInfo { name: "all".to_string(), terminal: true, limit: 50 }];
    let says = Box::new(Serves(Child::leaf(Leaf::tail_drop(50)), says));
    let tree = Tree { discipline: says, leaves, default_leaf: Some(0) };
    let mut port = open(PortConfig::new(link(), WireConfig::Open), tree);
    for (frame, wakes) in [(0, at(100)), (1, Instant::NEVER)] {
        port.offer(at(1), packet(frame, 100), &mut |_| {});
        assert_eq!(port.next_wake_up(), wakes, "{frame}");
    }
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

#[test]
fn a_new_port_has_done_nothing() {
    let port = port(WireConfig::Open);
    assert_eq!((port.wake_ups(), port.backlog().packets), (0, 0));
    assert_eq!((port.total().offered_packets, port.total().sent_packets, port.total().dropped()), (0, 0, 0));
    assert_eq!(port.next_wake_up(), Instant::NEVER);
}
