//! The bridge over interfaces in memory, with made-up time: transparent, conserving, in order,
//! on time; and what it does when a discipline misbehaves. In real time: `worker`.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

#[path = "../frames/mod.rs"]
mod frames;
mod worker;

use frames::{checksum, frame, number};
use weir_core::classify::Classifier;
use weir_core::meter::Conditioners;
use weir_core::packet::PacketId;
use weir_core::port::{Port, PortConfig, PortPlan, Refill, WireConfig};
use weir_core::queue::{
    Backlog, Broken, Cx, Discipline, DropReason, Leaf, Link, Next, ParamError, Params, Verdict, Visit,
};
use weir_core::sched::{Fifo, LeafInfo, Tree};
use weir_core::units::{Duration, Instant, Rate};
use weir_engine::egresses;
use weir_engine::{Bridge, Delay, Direction};
use weir_io::fault::{Faults, Faulty};
use weir_io::memory::Memory;
use weir_io::{Io, PoolSize};

const SIZE: PoolSize = PoolSize { frames: 512, tails: 4 };
const MBPS: u64 = 10;

fn tree(discipline: Box<dyn Discipline>) -> Tree {
    let leaves = vec![LeafInfo { name: "all".into(), terminal: true, limit: 50 }];
    Tree { discipline, leaves, default_leaf: Some(0) }
}

fn fifo(limit: u32) -> Tree {
    tree(Box::new(Fifo::new(Leaf::tail_drop(limit))))
}

fn managed(tree: Tree) -> Option<Port> {
    conditioned(tree, None)
}

fn conditioned(tree: Tree, conditioners: Option<Conditioners>) -> Option<Port> {
    let link = Link::new(Rate::from_mbps(MBPS), 0, 1514);
    let config = PortConfig::new(link, WireConfig::Link { ring: 1, refill: Refill::Packet });
    Some(Port::new(config, PortPlan { conditioners, ..PortPlan::new(tree, Classifier::empty()) }))
}

fn bridge(tree: Tree, delay: Duration) -> Bridge<Memory, Memory> {
    let forth = Direction::new(0, managed(tree), SIZE, Delay::constant(delay));
    let back = Direction::new(1, None, SIZE, Delay::constant(delay));
    Bridge::new(Memory::new(), Memory::new(), [forth, back])
}

/// Steps through all that is due until `until`, waking when the bridge asks and not otherwise.
fn run<L: Io, R: Io>(bridge: &mut Bridge<L, R>, from: Instant, until: Instant) {
    let mut now = from;
    loop {
        let step = bridge.step(now);
        if step.more {
            continue;
        }
        if step.next > until {
            return;
        }
        assert!(step.next > now, "a step leaves nothing undone");
        now = step.next;
    }
}

fn ms(n: u64) -> Instant {
    Instant::from_millis(n)
}

#[test]
fn frames_cross_unchanged_and_in_order_at_the_rate_of_the_link() {
    let mut bridge = bridge(fifo(100), Duration::ZERO);
    let sent: Vec<_> = (0..80).map(|n| frame(n, 1250, 0)).collect();
    bridge.interfaces().0.arriving = sent.clone().into();
    // 1250 bytes last 1 ms at 10 Mbit/s: after 40 ms exactly 40 have left.
    run(&mut bridge, ms(0), ms(40));
    assert_eq!(bridge.interfaces().1.sent, sent[..40]);
    run(&mut bridge, ms(41), ms(100));
    assert_eq!(bridge.interfaces().1.sent, sent);
    // The other way is plain: nothing is held back.
    bridge.interfaces().1.arriving = sent.clone().into();
    run(&mut bridge, ms(101), ms(101));
    assert_eq!(bridge.interfaces().0.sent, sent);
    for direction in bridge.directions() {
        assert_eq!((direction.frames_available(), direction.leaving()), (512, 0));
    }
}

/// A call inside a tunnel goes where its own ports say, with the tos byte of the tunnel's header.
/// Reversed: with `tunnels outer` it is no call.
// Claim L34.
#[test]
fn the_packet_inside_a_tunnel_is_classified() {
    for (word, class) in [("", "voice"), ("tunnels inner", "voice"), ("tunnels outer", "other")] {
        let text = format!(
            "interface em0 bandwidth 10M {word} priq\n\
             class priq em0 voice NULL priority 1\n\
             class priq em0 other NULL priority 0 default\n\
             filter em0 voice 0 5001 0 0 17\n"
        );
        let registry = weir_core::sched::Registry::builtin();
        let plan = weir_conf::read("test", &text, &registry).into_result().unwrap();
        let view = plan.interface("em0").unwrap();
        let link = view.link(1514);
        let built = view.build(&registry, link).unwrap();
        let port = Port::new(PortConfig::new(link, WireConfig::Open), built.port_plan(link));
        let forth = Direction::new(0, Some(port), SIZE, Delay::default());
        let back = Direction::new(1, None, SIZE, Delay::default());
        let mut bridge = Bridge::new(Memory::new(), Memory::new(), [forth, back]);
        let call = frame(1, 200, 0);
        let mut tunnel = call[..34].to_vec();
        (tunnel[15], tunnel[23]) = (0xb8, 47);
        tunnel[16..18].copy_from_slice(&210u16.to_be_bytes());
        tunnel.extend([0, 0, 8, 0]);
        tunnel.extend(&call[14..]);
        bridge.interfaces().0.arriving = [tunnel.clone()].into();
        run(&mut bridge, ms(0), ms(10));
        assert_eq!(bridge.interfaces().1.sent, [tunnel]);
        let port = bridge.directions()[0].port().unwrap();
        let leaf = port.leaves().iter().position(|l| l.name == class).unwrap();
        assert_eq!(port.account(leaf as u32).unwrap().sent_packets, 1, "{word}");
    }
}

/// A later fragment has no ports; it goes where its first fragment went. Reversed: one whose first
/// fragment never came goes to the default class.
// Claim L35.
#[test]
fn fragments_follow_their_first() {
    let text = "interface em0 bandwidth 10M priq\n\
                class priq em0 video NULL priority 1\n\
                class priq em0 other NULL priority 0 default\n\
                filter em0 video 0 5001 0 0 17\n";
    let registry = weir_core::sched::Registry::builtin();
    let plan = weir_conf::read("test", text, &registry).into_result().unwrap();
    let view = plan.interface("em0").unwrap();
    let built = view.build(&registry, view.link(1514)).unwrap();
    let config = PortConfig::new(view.link(1514), WireConfig::Link { ring: 1, refill: Refill::Packet });
    let port = Port::new(config, built.port_plan(view.link(1514)));
    let forth = Direction::new(0, Some(port), SIZE, Delay::default());
    let back = Direction::new(1, None, SIZE, Delay::default());
    let mut bridge = Bridge::new(Memory::new(), Memory::new(), [forth, back]);
    let fragment = |id: u8, offset: u8, more: bool| {
        let mut bytes = frame(u32::from(id), 200, 0);
        (bytes[19], bytes[20], bytes[21]) = (id, if more { 0x20 } else { 0 }, offset);
        bytes
    };
    bridge.interfaces().0.arriving =
        [fragment(1, 0, true), fragment(1, 20, true), fragment(1, 40, false), fragment(2, 20, false)].into();
    run(&mut bridge, ms(0), ms(10));
    let port = bridge.directions()[0].port().unwrap();
    assert_eq!(port.account(0).unwrap().sent_packets, 3, "video");
    assert_eq!(port.account(1).unwrap().sent_packets, 1, "other");
}

#[test]
fn the_delay_stands_behind_the_wire_and_costs_no_rate() {
    let mut bridge = bridge(fifo(100), Duration::from_millis(20));
    bridge.interfaces().0.arriving = (0..50).map(|n| frame(n, 1250, 0)).collect();
    run(&mut bridge, ms(0), ms(20));
    assert_eq!(bridge.interfaces().1.sent.len(), 0);
    run(&mut bridge, ms(20), ms(30));
    assert_eq!(bridge.interfaces().1.sent.len(), 10);
    run(&mut bridge, ms(31), ms(70));
    assert_eq!(bridge.interfaces().1.sent.len(), 50);
}

#[test]
fn each_pair_of_hosts_has_its_own_delay() {
    let address = |last: u8| u128::from(u32::from_be_bytes([10, 0, 0, last]));
    let delay = Delay {
        otherwise: Duration::from_millis(1),
        parts: [(address(1), Duration::from_millis(4)), (address(9), Duration::from_millis(3))].into(),
    };
    let forth = Direction::new(0, managed(fifo(10)), SIZE, delay);
    let back = Direction::new(1, None, SIZE, Delay::default());
    let mut bridge = Bridge::new(Memory::new(), Memory::new(), [forth, back]);
    // From 10.0.0.1 to .2, from .1 to .9, from .3 to .9, from .3 to .4; 0.1 ms each on the wire.
    let mut frames: Vec<_> = (0..4).map(|n| frame(n, 125, 0)).collect();
    frames[1][33] = 9;
    (frames[2][29], frames[2][33]) = (3, 9);
    (frames[3][29], frames[3][33]) = (3, 4);
    bridge.interfaces().0.arriving = frames.into();
    let mut order = Vec::new();
    for us in (0..10_000).step_by(100) {
        let step_to = Instant::from_micros(us);
        bridge.step(step_to);
        for bytes in bridge.interfaces().1.sent.drain(..) {
            order.push((number(&bytes), us));
        }
    }
    assert_eq!(order, [(3, 1400), (2, 3300), (0, 4100), (1, 7200)]);
}

#[test]
fn what_overflows_is_dropped_once_and_its_frames_come_back() {
    let mut bridge = bridge(fifo(10), Duration::ZERO);
    bridge.interfaces().0.arriving = (0..100).map(|n| frame(n, 1250, 0)).collect();
    run(&mut bridge, ms(0), ms(200));
    let names = ["left".to_string(), "right".to_string()];
    let state = egresses(&mut bridge, &names);
    let port = state[0].port.clone().unwrap();
    assert_eq!((port.total.offered_packets, port.total.sent_packets), (100, 11));
    assert_eq!(port.total.dropped_packets["tail"], 89);
    assert_eq!((state[0].interface.as_str(), state[0].sent_packets), ("right", 11));
    assert_eq!(bridge.directions()[0].frames_available(), 512);
}

/// A07: a frame that the device refuses is offered again; the queue never takes a packet back.
#[test]
fn a_full_device_is_asked_again_and_order_is_kept() {
    let mut bridge = bridge(fifo(100), Duration::ZERO);
    bridge.interfaces().0.arriving = (0..20).map(|n| frame(n, 125, 0)).collect();
    bridge.interfaces().1.room = Some(3);
    run(&mut bridge, ms(0), ms(3));
    assert_eq!(bridge.interfaces().1.sent.len(), 3);
    bridge.interfaces().1.room = None;
    // While the device took nothing the link was held, and has 16 packets of 100 us to send now.
    run(&mut bridge, ms(4), ms(6));
    let numbers: Vec<_> = bridge.interfaces().1.sent.iter().map(|b| number(b)).collect();
    assert_eq!(numbers, (0..20).collect::<Vec<_>>());
}

/// Frames of every length and content, dropped, repeated, damaged, cut short, late: nothing
/// panics, nothing is lost that was not counted. 20,000 frames a seed.
#[test]
fn hostile_interfaces_lose_nothing_uncounted() {
    let faults = Faults { drop: 50, duplicate: 50, corrupt: 300, truncate: 100, delay: 100, short_send: 500 };
    for seed in weir_seed::seeds(3) {
        let forth = Direction::new(0, managed(fifo(40)), SIZE, Delay::constant(Duration::from_micros(100)));
        let back = Direction::new(1, managed(fifo(40)), SIZE, Delay::default());
        let left = Faulty::new(Memory::new(), faults, seed);
        let right = Faulty::new(Memory::new(), faults, seed ^ 1 << 63);
        let mut bridge = Bridge::new(left, right, [forth, back]);
        let mut now = Instant::ZERO;
        for round in 0..200u32 {
            let (left, right) = bridge.interfaces();
            for n in 0..50 {
                left.inner().arriving.push_back(frame(
                    round * 50 + n,
                    60 + (n as usize * 37) % 1400,
                    n as u8,
                ));
                right.inner().arriving.push_back(frame(n, 60, 0));
            }
            now += Duration::from_millis(8);
            let until = now + Duration::from_millis(7);
            run(&mut bridge, now, until);
            now = until;
        }
        // Let everything out: steps, so that withheld frames come too.
        for _ in 0..500 {
            now += Duration::from_millis(1);
            bridge.step(now);
        }
        let names = ["left".to_string(), "right".to_string()];
        let state = egresses(&mut bridge, &names);
        for (egress, direction) in state.iter().zip(bridge.directions()) {
            let port = egress.port.as_ref().unwrap();
            let dropped: u64 = port.total.dropped_packets.values().sum();
            assert_eq!(port.total.offered_packets, port.total.sent_packets + dropped);
            assert_eq!(port.total.sent_packets, egress.sent_packets);
            assert_eq!((direction.frames_available(), direction.leaving()), (512, 0));
            direction.port().unwrap().check().unwrap();
        }
        let (left, _) = bridge.interfaces();
        let counts = left.counts();
        let offered = state[0].port.as_ref().unwrap().total.offered_packets;
        assert_eq!(offered, 10_000 - counts.dropped + counts.duplicated, "{counts:?}");
        assert!(counts.corrupted > 1000 && counts.truncated > 300);
    }
}

/// Marks, remarks, panics or breaks on demand; else a FIFO.
struct Wilful {
    fifo: Fifo,
    seen: u32,
    act: fn(u32, &mut Cx, &PacketId),
}

impl Discipline for Wilful {
    fn enqueue(&mut self, cx: &mut Cx, id: PacketId) -> Verdict {
        self.seen += 1;
        (self.act)(self.seen, cx, &id);
        self.fifo.enqueue(cx, id)
    }
    fn dequeue(&mut self, cx: &mut Cx) -> Next {
        self.fifo.dequeue(cx)
    }
    fn backlog(&self) -> Backlog {
        self.fifo.backlog()
    }
    fn flush(&mut self, cx: &mut Cx, reason: DropReason) {
        self.fifo.flush(cx, reason);
    }
    fn reconfigure(&mut self, cx: &mut Cx, class: &str, params: &Params) -> Result<(), ParamError> {
        self.fifo.reconfigure(cx, class, params)
    }
    fn visit_stats(&self, visit: &mut dyn Visit) {
        assert!(self.seen != 13, "statistics of thirteen packets");
        self.fifo.visit_stats(visit);
    }
    fn check(&self, cx: &Cx) -> Result<(), Broken> {
        self.fifo.check(cx)
    }
}

fn wilful(act: fn(u32, &mut Cx, &PacketId)) -> Tree {
    tree(Box::new(Wilful { fifo: Fifo::new(Leaf::tail_drop(100)), seen: 0, act }))
}

/// Control packets go before what waits, but for those that the file excepts.
#[test]
fn control_packets_go_first_unless_excepted() {
    let ethernet = |number: u8, ether_type: u16| {
        let mut frame = vec![number; 60];
        frame[12..14].copy_from_slice(&ether_type.to_be_bytes());
        frame
    };
    let (arp, lldp) = (ethernet(0x11, 0x0806), ethernet(0x22, 0x88cc));
    let cases: [(&str, &[&Vec<u8>], u64); 4] = [
        ("", &[&arp, &lldp], 2),
        ("protect auto except arp", &[&lldp], 1),
        ("protect 1M except lldp,bgp", &[&arp], 1),
        ("protect off", &[], 0),
    ];
    for (words, first, counted) in cases {
        let registry = weir_core::sched::Registry::builtin();
        let text = format!("interface em0 bandwidth 10M {words} fifoq\n");
        let plan = weir_conf::read("test", &text, &registry).into_result().unwrap();
        let view = plan.interface("em0").unwrap();
        let link = view.link(1514);
        let built = view.build(&registry, link).unwrap();
        let wire = WireConfig::Link { ring: 1, refill: Refill::Packet };
        let port = Port::new(PortConfig::new(link, wire), built.port_plan(link));
        let forth = Direction::new(0, Some(port), SIZE, Delay::default());
        let back = Direction::new(1, None, SIZE, Delay::default());
        let mut bridge = Bridge::new(Memory::new(), Memory::new(), [forth, back]);
        let data: Vec<_> = (0..9).map(|n| frame(n, 1250, 0)).collect();
        bridge.interfaces().0.arriving = [&data[..], &[arp.clone(), lldp.clone()]].concat().into();
        run(&mut bridge, ms(0), ms(100));
        // The ring of one packet holds the first of the data when the others come.
        let rest = [&arp, &lldp].into_iter().filter(|frame| !first.contains(frame));
        let mut expected = vec![&data[0]];
        expected.extend(first);
        expected.extend(data[1..].iter().chain(rest));
        assert!(bridge.interfaces().1.sent.iter().eq(expected), "{words}");
        let port = bridge.directions()[0].port().unwrap();
        assert_eq!(port.protected().sent_packets, counted, "{words}");
    }
}

// Claim L36.
#[test]
fn marks_and_code_points_are_written_with_a_right_checksum() {
    let mut bridge = bridge(
        wilful(|_, cx, id| {
            let meta = cx.packets.get_mut(id);
            if meta.ecn_capable() {
                meta.ecn = 3;
            }
            meta.dscp = 10;
        }),
        Duration::ZERO,
    );
    // Not ECN-capable, ECT(0), and something that is not IP.
    let mut arp = vec![0x11u8; 60];
    arp[12..14].copy_from_slice(&[8, 6]);
    bridge.interfaces().0.arriving = [frame(0, 100, 0xb8), frame(1, 100, 0x02), arp.clone()].into();
    run(&mut bridge, ms(0), ms(10));
    assert_eq!(bridge.directions()[0].rewritten(), 2);
    let sent = &bridge.interfaces().1.sent;
    assert_eq!((sent[0][15], sent[1][15]), (10 << 2, 10 << 2 | 3));
    for bytes in &sent[..2] {
        assert_eq!(checksum(&bytes[14..34]), 0, "the header sums to all ones");
    }
    assert_eq!(sent[2], arp);
}

/// The same packet over IPv6, with ECT(0).
fn frame_v6(number: u32, len: usize) -> Vec<u8> {
    let mut bytes = vec![0u8; len];
    bytes[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd]);
    // Version 6, traffic class 0x02, flow label 0x12345.
    bytes[14..18].copy_from_slice(&[0x60, 0x21, 0x23, 0x45]);
    bytes[18..20].copy_from_slice(&((len - 54) as u16).to_be_bytes());
    bytes[20..22].copy_from_slice(&[17, 64]);
    (bytes[22], bytes[37], bytes[38], bytes[53]) = (0xfd, 1, 0xfd, 2);
    bytes[54..58].copy_from_slice(&[0x4e, 0x20, 0x13, 0x89]);
    bytes[len - 4..].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// Conditioners in both families: what keeps its profile is marked on the wire, its ECN bits, its
/// flow label and all else unchanged; what does not, never leaves, and its frames come back.
#[test]
fn a_conditioner_marks_and_polices_on_the_wire() {
    let text = "interface in0\nconditioner in0 c <tbmeter 8K 400 <mark EF><drop>>\n\
                filter in0 c 0 0 0 0 udp\nfilter6 in0 c 0 0 0 0 udp\n";
    let plan = weir_conf::read("altq.conf", text, &weir_core::sched::Registry::builtin()).plan.unwrap();
    let forth = conditioned(fifo(100), plan.interface("in0").unwrap().conditioners().unwrap());
    let forth = Direction::new(0, forth, SIZE, Delay::constant(Duration::ZERO));
    let back = Direction::new(1, None, SIZE, Delay::constant(Duration::ZERO));
    let mut bridge = Bridge::new(Memory::new(), Memory::new(), [forth, back]);
    let came: Vec<_> =
        (0..12).map(|n| if n % 2 == 0 { frame(n, 100, 0x01) } else { frame_v6(n, 100) }).collect();
    bridge.interfaces().0.arriving = came.clone().into();
    run(&mut bridge, ms(0), ms(10));
    let sent = bridge.interfaces().1.sent.clone();
    assert_eq!(sent.iter().map(|bytes| number(bytes)).collect::<Vec<_>>(), [0, 1, 2, 3]);
    for (n, bytes) in sent.iter().enumerate() {
        let mut expected = came[n].clone();
        if n % 2 == 0 {
            assert_eq!(checksum(&bytes[14..34]), 0, "the header sums to all ones");
            expected[15] = 46 << 2 | 1;
            expected[24..26].copy_from_slice(&bytes[24..26]);
        } else {
            expected[14..16].copy_from_slice(&[0x6b, 0xa1]);
        }
        assert_eq!(*bytes, expected, "packet {n}");
    }
    let port = egresses(&mut bridge, &["l".into(), "r".into()])[0].port.clone().unwrap();
    assert_eq!(port.total.dropped_packets["policed"], 8);
    let [edge, meter] = &port.conditioners[..] else { panic!("{:?}", port.conditioners) };
    assert_eq!((edge.name.as_str(), meter.name.as_str()), ("c", "c tbmeter"));
    assert_eq!((meter.values["in"], meter.values["out"], meter.values["out_bytes"]), (4, 8, 800));
    assert_eq!((edge.values["bytes"], edge.values["marked_bytes"], edge.values["dropped"]), (1200, 400, 8));
    assert_eq!(bridge.directions()[0].frames_available(), 512, "policed frames come back");
}

#[test]
fn a_broken_discipline_becomes_a_fifo_and_loses_nothing() {
    let mut bridge = bridge(
        wilful(|n, cx, _| {
            if n == 30 {
                cx.broken("wilful", "the thirtieth packet");
            }
        }),
        Duration::ZERO,
    );
    let sent: Vec<_> = (0..60).map(|n| frame(n, 125, 0)).collect();
    bridge.interfaces().0.arriving = sent.clone().into();
    run(&mut bridge, ms(0), ms(100));
    assert_eq!(bridge.interfaces().1.sent, sent);
    let names = ["left".to_string(), "right".to_string()];
    let broken = egresses(&mut bridge, &names)[0].port.clone().unwrap().broken;
    assert_eq!(broken.as_deref(), Some("wilful: the thirtieth packet"));
}

#[test]
fn a_swap_under_load_loses_nothing_and_a_missing_port_says_so() {
    let mut bridge = bridge(fifo(500), Duration::ZERO);
    bridge.interfaces().0.arriving = (0..100).map(|n| frame(n, 1250, 0)).collect();
    run(&mut bridge, ms(0), ms(10));
    assert!(bridge.directions_mut()[0].swap(ms(10), PortPlan::new(fifo(5), Classifier::empty())).is_some());
    assert!(bridge.directions_mut()[1].swap(ms(10), PortPlan::new(fifo(5), Classifier::empty())).is_none());
    run(&mut bridge, ms(11), ms(200));
    let numbers: Vec<_> = bridge.interfaces().1.sent.iter().map(|b| number(b)).collect();
    assert_eq!(numbers, (0..100).collect::<Vec<_>>(), "adoption ignores the new limit");
}
