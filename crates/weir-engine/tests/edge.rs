//! The edge before a live port: it marks, drops and asks as the simulator's edge does, at the same packets.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

use std::sync::{Arc, Mutex};
use weir_core::Random;
use weir_core::packet::Key;
use weir_core::port::{Event, EventKind, Port, PortConfig, Refill, WireConfig};
use weir_core::queue::Link;
use weir_core::sched::Registry;
use weir_core::units::{Duration, Instant};
use weir_engine::egresses;
use weir_engine::{Bridge, Change, Changed, Delay, Desk, Direction, EdgeClass, EdgePlan, LiveEdge, Observe};
use weir_io::PoolSize;
use weir_io::memory::Memory;
use weir_sim::replay::{Content, Record, Recording, Watch, replay};

mod frames;

const SIZE: PoolSize = PoolSize { frames: 8192, tails: 4 };

/// `rt` asks for its rate; without a broker what it asks for is granted.
fn conf(broker: &str) -> String {
    format!(
        "broker core local 8M\n\
         interface in0 bandwidth 100M fifoq\n\
         interface out0 bandwidth 3M attach bridge in0 hfsc\n\
         class hfsc out0 rt root [ls 0 0 1M] [ul 0 0 64K]\n\
         class hfsc out0 be root [ls 0 0 1M] default\n\
         filter out0 rt 0 0 0 0 0 dscp EF\n\
         recognise in0 rtp 4/2s\n\
         sla in0 17 10.0.0.0/24 bw 300K shared 50 policy be\n\
         sla in0 18 10.0.1.0/24 bw 100K shared 100 policy drop\n\
         allocate out0 rt law log gain 200K step 10K window 200ms 5 congestion 20ms guard 400ms from 64K to 600K evict largest {broker}\n"
    )
}

/// The parts of `out0`: its port on an emulated link, and its edge's plan.
fn parts(text: &str) -> (Port, weir_conf::EdgePlan) {
    let registry = Registry::builtin();
    let plan = weir_conf::read("altq.conf", text, &registry).into_result().unwrap();
    let view = plan.interface("out0").unwrap();
    let link = Link::new(view.rate(), 0, 1514);
    let built = view.build(&registry, link).unwrap();
    let edge = view.edge(&registry, &built.tree.leaves, 1).unwrap().unwrap();
    let config = PortConfig::new(link, WireConfig::Link { ring: 1, refill: Refill::Packet });
    (Port::new(config, built.port_plan(link)), edge)
}

fn live(plan: weir_conf::EdgePlan, desk: &Desk) -> Box<LiveEdge> {
    let class = |class: weir_conf::EdgeClass| EdgeClass {
        name: class.name.clone(),
        broker: class.broker.as_ref().map(|(name, _)| name.clone()),
        shape: Box::new(move |rate| class.shape(rate)),
    };
    let classes = plan.classes.into_iter().map(class).collect();
    let plan = EdgePlan { interface: "out0".into(), config: plan.config, classes };
    Box::new(LiveEdge::new(plan, desk.clone(), Instant::ZERO))
}

fn bridge(text: &str) -> Bridge<Memory, Memory> {
    let (port, edge) = parts(text);
    let mut forth = Direction::new(0, Some(port), SIZE, Delay::default());
    forth.set_edge(Instant::ZERO, Some(live(edge, &Desk::closed())));
    let back = Direction::new(1, None, SIZE, Delay::default());
    Bridge::new(Memory::new(), Memory::new(), [forth, back])
}

/// Steps at every event before `until`.
fn run(bridge: &mut Bridge<Memory, Memory>, from: Instant, until: Instant) {
    let mut now = from;
    loop {
        let step = bridge.step(now);
        match step.more {
            true => continue,
            false if step.next >= until => return,
            false => now = step.next.max(now),
        }
    }
}

/// Gives an IP header its checksum.
fn summed(bytes: &mut [u8]) {
    bytes[24..26].fill(0);
    let sum = frames::checksum(&bytes[14..34]);
    bytes[24..26].copy_from_slice(&sum.to_be_bytes());
}

/// A datagram of UDP with this payload.
fn datagram(subnet: u8, host: u8, port: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = frames::frame(0, 42 + payload.len(), 0);
    (bytes[28], bytes[29]) = (subnet, host);
    summed(&mut bytes);
    bytes[34..36].copy_from_slice(&port.to_be_bytes());
    bytes[38..40].copy_from_slice(&(payload.len() as u16 + 8).to_be_bytes());
    bytes[42..].copy_from_slice(payload);
    bytes
}

/// A packet of a call: G.711, 20 ms.
fn call(ssrc: u32, number: u16) -> Vec<u8> {
    let mut bytes = vec![0x80, 0];
    bytes.extend(number.to_be_bytes());
    bytes.extend((u32::from(number) * 160).to_be_bytes());
    bytes.extend(ssrc.to_be_bytes());
    bytes.extend([0x55; 160]);
    bytes
}

/// The TOS byte with which each frame of that source port left, in order.
fn tos_of(sent: &[Vec<u8>], port: u16) -> Vec<u8> {
    let of = sent.iter().filter(|frame| frame[34..36] == port.to_be_bytes());
    of.inspect(|frame| assert_eq!(frames::checksum(&frame[14..34]), 0, "a header's sum is wrong"))
        .map(|frame| frame[15])
        .collect()
}

// Claim L71.
#[test]
fn a_call_is_marked_from_its_fourth_packet_on() {
    let mut bridge = bridge(&conf(""));
    let at = |ms: u64| Instant::from_millis(ms);
    for number in 0..10u16 {
        let now = at(20 * u64::from(number));
        bridge.interfaces().0.arriving.push_back(datagram(0, 9, 4000, &call(7, number)));
        // What says EF and is none loses its mark.
        let mut liar = datagram(0, 9, 4001, &[0; 30]);
        liar[15] = 0xb8;
        summed(&mut liar);
        bridge.interfaces().0.arriving.push_back(liar);
        run(&mut bridge, now, now + Duration::from_millis(20));
    }
    let sent = bridge.interfaces().1.sent.clone();
    assert_eq!(tos_of(&sent, 4000), [[0; 3].to_vec(), [0xb8; 7].to_vec()].concat());
    assert_eq!(tos_of(&sent, 4001), [0; 10]);
    let port = bridge.directions()[0].port().unwrap();
    let rt = port.leaves().iter().position(|leaf| leaf.name == "rt").unwrap();
    assert_eq!(port.account(rt as u32).unwrap().sent_packets, 7);
    let state = &egresses(&mut bridge, &["l".into(), "r".into()])[0];
    let edge = state.edge.as_ref().unwrap();
    assert_eq!(edge.classes[0].flows.now, 1, "{edge:?}");
    assert_eq!(edge.recognition.as_ref().unwrap().found["rtp"], 1);
    assert_eq!((edge.contracts[0].id, edge.contracts[0].in_profile_bytes), (17, 7 * 214));
    assert_eq!(edge.contracts[1].offered_bytes, 0);
    // Reversed: without an edge nothing is marked.
    let old = bridge.directions_mut()[0].change(at(210), Change::Edge(None, None));
    assert!(matches!(old, Changed::Edge(Some(_), None)));
    bridge.interfaces().1.sent.clear();
    bridge.interfaces().0.arriving.push_back(datagram(0, 9, 4000, &call(7, 10)));
    run(&mut bridge, at(300), at(320));
    assert_eq!(tos_of(&bridge.interfaces().1.sent, 4000), [0]);
}

/// What comes the other way is evidence: there two packets suffice. Reversed: without it four are needed.
// Claim L72.
#[test]
fn the_way_back_is_looked_at() {
    for (back, marked) in [(true, 9), (false, 7)] {
        let mut bridge = bridge(&conf(""));
        for number in 0..20u16 {
            let now = Instant::from_millis(20 * u64::from(number));
            if number < 10 && back {
                let mut answer = datagram(0, 9, 0x1389, &call(8, number));
                // From 10.0.0.2 to 10.0.0.9, by the ports of the call.
                answer[26..30].copy_from_slice(&[10, 0, 0, 2]);
                answer[30..34].copy_from_slice(&[10, 0, 0, 9]);
                answer[36..38].copy_from_slice(&4000u16.to_be_bytes());
                bridge.interfaces().1.arriving.push_back(answer);
            } else if number >= 10 {
                bridge.interfaces().0.arriving.push_back(datagram(0, 9, 4000, &call(7, number)));
            }
            run(&mut bridge, now, now + Duration::from_millis(20));
        }
        let tos = tos_of(&bridge.interfaces().1.sent, 4000);
        assert_eq!(tos.iter().filter(|&&tos| tos == 0xb8).count(), marked, "{tos:?}");
    }
}

/// Another tree, with its leaves in another order: the edge goes on with flows and rates.
// Claim L73.
#[test]
fn an_edge_stays_when_the_port_is_exchanged() {
    let mut bridge = bridge(&conf(""));
    let mut number = 0;
    let mut talk = |bridge: &mut Bridge<Memory, Memory>, packets: u16| {
        for _ in 0..packets {
            let now = Instant::from_millis(20 * u64::from(number));
            for ssrc in 0..3 {
                let one = datagram(0, 9, 4000 + ssrc, &call(7 + u32::from(ssrc), number));
                bridge.interfaces().0.arriving.push_back(one);
            }
            run(bridge, now, now + Duration::from_millis(20));
            number += 1;
        }
    };
    talk(&mut bridge, 100);
    let names = ["l".to_owned(), "r".to_owned()];
    let state = |bridge: &mut Bridge<Memory, Memory>| {
        let class = egresses(bridge, &names)[0].edge.clone().unwrap().classes[0].clone();
        (class.flows, class.allocator.unwrap().allocated_bps)
    };
    let (flows, allocated) = state(&mut bridge);
    assert!(flows.now == 3 && allocated > 250_000, "{flows:?} {allocated}");
    let registry = Registry::builtin();
    let text =
        conf("").replace("class hfsc out0 rt", "class hfsc out0 other root [ls 0 0 1M]\nclass hfsc out0 rt");
    let plan = weir_conf::read("altq.conf", &text, &registry).into_result().unwrap();
    let view = plan.interface("out0").unwrap();
    let link = Link::new(view.rate(), 0, 1514);
    let plan = view.build(&registry, link).unwrap().port_plan(link);
    bridge.interfaces().1.sent.clear();
    let now = Instant::from_millis(2_000);
    assert!(bridge.directions_mut()[0].swap(now, plan).is_some());
    talk(&mut bridge, 50);
    let (after, still) = state(&mut bridge);
    assert_eq!(after, flows, "no call was found anew, refused or lost");
    assert!(still.abs_diff(allocated) < 50_000, "{still} after {allocated}");
    for port in 4000..4003 {
        assert_eq!(tos_of(&bridge.interfaces().1.sent, port), [0xb8; 50]);
    }
}

/// A file with another contract, and one class more: calls of contracts that stay go on.
// Claim L73.
#[test]
fn calls_go_on_by_another_configuration() {
    let mut bridge = bridge(&conf(""));
    let say = |bridge: &mut Bridge<Memory, Memory>, numbers: std::ops::Range<u16>| {
        for number in numbers {
            let now = Instant::from_millis(20 * u64::from(number));
            for (subnet, port) in [(0, 4000), (1, 4001)] {
                bridge.interfaces().0.arriving.push_back(datagram(subnet, 9, port, &call(7, number)));
            }
            run(bridge, now, now + Duration::from_millis(20));
        }
        [4000, 4001].map(|port| tos_of(&std::mem::take(&mut bridge.interfaces().1.sent.clone()), port))
    };
    say(&mut bridge, 0..50);
    bridge.interfaces().1.sent.clear();
    let other = conf("").replace("sla in0 18 10.0.1.0/24 bw 100K", "sla in0 19 10.0.1.0/24 bw 200K");
    let (_, plan) = parts(&other);
    let edge = live(plan, &Desk::closed());
    let changed =
        bridge.directions_mut()[0].change(Instant::from_millis(1_000), Change::Edge(Some(edge), None));
    assert!(matches!(changed, Changed::Edge(Some(_), None)));
    let [stays, anew] = say(&mut bridge, 50..60);
    assert_eq!((stays, anew), (vec![0xb8; 10], vec![0xb8; 10]), "it is known as real-time, and asks anew");
    let edge = egresses(&mut bridge, &["l".into(), "r".into()])[0].edge.clone().unwrap();
    let of = |id| edge.contracts.iter().find(|contract| contract.id == id).unwrap().flows.admitted;
    assert_eq!((of(17), of(19), edge.contracts.len()), (1, 1, 2));
    assert_eq!(edge.classes[0].flows.admitted, 3, "17 once, 18 and then 19");
}

/// Nobody answers at the brokers: the law repeats its request, and what the class has goes on.
// Claim L79.
#[test]
fn without_an_answer_traffic_goes_on_with_what_was_granted() {
    for (broker, asks) in [("broker core", true), ("", false)] {
        let mut bridge = bridge(&conf(broker));
        for number in 0..250u16 {
            let now = Instant::from_millis(20 * u64::from(number));
            for ssrc in 0..2 {
                let one = datagram(0, 9, 4000 + ssrc, &call(7 + u32::from(ssrc), number));
                bridge.interfaces().0.arriving.push_back(one);
            }
            run(&mut bridge, now, now + Duration::from_millis(20));
        }
        let edge = egresses(&mut bridge, &["l".into(), "r".into()])[0].edge.clone().unwrap();
        let allocator = edge.classes[0].allocator.as_ref().unwrap();
        let sent =
            tos_of(&bridge.interfaces().1.sent, 4000).len() + tos_of(&bridge.interfaces().1.sent, 4001).len();
        assert_eq!(
            (allocator.repeated > 2, allocator.allocated_bps > 64_000),
            (asks, !asks),
            "{allocator:?}"
        );
        assert_eq!(allocator.last.as_ref().unwrap().answer.is_none(), asks);
        // 64 kbit/s for 5 s and more, with best effort beside it.
        assert!(sent > 150, "{sent}");
    }
}

/// One packet of a recording.
struct Frame {
    at: Instant,
    bytes: Vec<u8>,
}

struct Frames<'a>(std::slice::Iter<'a, Frame>);

impl Recording for Frames<'_> {
    type Error = std::convert::Infallible;
    fn next(&mut self) -> Result<Option<Record<'_>>, Self::Error> {
        Ok(self.0.next().map(|Frame { at, bytes }| Record {
            at: *at,
            len_bytes: bytes.len() as u32,
            content: Content::Frame(bytes),
        }))
    }
}

/// Calls that come and go, of which one is a liar, QUIC, and bulk, for 20 s.
fn recording(random: &mut Random) -> Vec<Frame> {
    let mut all = Vec::new();
    let mut flow = |random: &mut Random, subnet: u8, pause_us: u64, payload: &dyn Fn(u16) -> Vec<u8>| {
        let (host, port) = (random.below(200) as u8 + 1, 10_000 + random.below(40_000) as u16);
        let begin = random.below(15_000_000);
        let end = begin + random.below(10_000_000);
        let mut at = begin;
        for number in 0.. {
            if at > end {
                return;
            }
            // Distinct times: at one instant the two hosts may take turns differently.
            let bytes = datagram(subnet, host, port, &payload(number));
            all.push(Frame { at: Instant::from_nanos(at * 1_000 + random.below(1_000)), bytes });
            at += pause_us + random.below(pause_us / 4 + 1);
        }
    };
    for ssrc in 1..=8 {
        flow(random, 0, 20_000, &|number| call(ssrc, number));
        flow(random, 1, 20_000, &|number| call(100 + ssrc, number));
    }
    flow(random, 0, 2_000, &|number| call(1_000, number));
    flow(random, 0, 10_000, &|_| vec![0xc0, 0, 0, 0, 1, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0]);
    for _ in 0..3 {
        flow(random, 2, 4_000, &|number| vec![number as u8; 1_000]);
    }
    all.sort_by_key(|frame| frame.at);
    all.dedup_by_key(|frame| frame.at);
    all
}

/// Time, class and length of each frame that left or was dropped.
type Fates = Vec<(bool, u64, String, u32)>;

struct Listener {
    fates: Arc<Mutex<Fates>>,
}

impl Observe for Listener {
    fn arrived(&mut self, _: usize, _: Instant, _: &Key, _: u32, _: u32) {}
    fn told(&mut self, _: usize, event: &Event<'_>) {
        let leaf = ["rt", "be"][event.meta.leaf as usize].to_owned();
        let len = event.meta.len;
        match event.kind {
            EventKind::Taken => {}
            EventKind::Sent => self.fates.lock().unwrap().push((true, event.at.as_nanos(), leaf, len)),
            EventKind::Dropped(_) => self.fates.lock().unwrap().push((false, 0, leaf, len)),
        }
    }
}

/// The same frames at the same times before a live port and before a replayed one: each has the same class, leaves
/// at the same instant, or is dropped; the same flows are found, admitted and evicted, the same rates asked for.
// Claim L74.
#[test]
fn live_and_replayed_edges_decide_the_same() {
    for seed in weir_seed::seeds(6) {
        let frames = recording(&mut Random::new(seed));
        let text = conf("");
        let (mut port, edge) = parts(&text);
        let mut out = Vec::new();
        let summary =
            replay(&mut Frames(frames.iter()), &mut port, Some(Watch::new(edge)), &mut out).unwrap();
        let replayed: Fates = String::from_utf8(out)
            .unwrap()
            .lines()
            .filter(|line| !line.contains(",edge,"))
            .map(|line| {
                let part: Vec<&str> = line.split(',').collect();
                let sent = part[0] == "D";
                let at = if sent { part[1].parse().unwrap() } else { 0 };
                (sent, at, part[2].to_owned(), part[3].parse().unwrap())
            })
            .collect();

        let mut bridge = bridge(&text);
        let fates = Arc::new(Mutex::new(Vec::new()));
        let listener = Listener { fates: fates.clone() };
        bridge.directions_mut()[0].observe(Box::new(listener));
        let mut ends = frames.iter().map(|frame| frame.at).skip(1).chain([Instant::from_millis(60_000)]);
        for Frame { at, bytes } in &frames {
            bridge.interfaces().0.arriving.push_back(bytes.clone());
            run(&mut bridge, *at, ends.next().unwrap());
        }
        let lived = fates.lock().unwrap().clone();
        for (index, (live, replayed)) in lived.iter().zip(&replayed).enumerate() {
            assert_eq!(live, replayed, "fate {index}");
        }
        assert_eq!(lived.len(), replayed.len());

        let recognised = summary.recognised.unwrap();
        let edge = egresses(&mut bridge, &["l".into(), "r".into()])[0].edge.clone().unwrap();
        let found: u64 = edge.recognition.as_ref().unwrap().found.values().sum();
        assert_eq!(found as usize, recognised.flows.len());
        assert_eq!(edge.recognition.as_ref().unwrap().quic, recognised.quic);
        let flows = edge.classes[0].flows;
        assert!(flows.admitted >= 5, "{flows:?}");
        let dropped = frames.len() as u64 - lived.len() as u64;
        assert_eq!(edge.dropped_packets, dropped);
        // What the comparison would have missed.
        let allocator = edge.classes[0].allocator.as_ref().unwrap();
        assert!(allocator.up > 0 && allocator.down > 0, "{allocator:?}");
        assert!(lived.iter().any(|fate| fate.2 == "rt"), "some were marked");
        // Reversed: another contract gives other fates.
        let (mut port, edge) = parts(&text.replace("to 600K", "to 100K"));
        let mut other = Vec::new();
        replay(&mut Frames(frames.iter()), &mut port, Some(Watch::new(edge)), &mut other).unwrap();
        let sent = |text: &str, class: &str| text.lines().filter(|l| l.contains(class)).count();
        let other = String::from_utf8(other).unwrap();
        assert_ne!(sent(&other, ",rt,"), lived.iter().filter(|fate| fate.2 == "rt").count());
    }
}

/// What comes the other way is read once, for the edge and for its own port: a last fragment keeps its ports.
// Claim L72.
#[test]
fn fragments_of_the_way_back_keep_their_ports() {
    let text = "interface em0 bandwidth 10M priq\n\
                class priq em0 video NULL priority 1\n\
                class priq em0 other NULL priority 0 default\n\
                filter em0 video 0 5001 0 0 17\n";
    let registry = Registry::builtin();
    let plan = weir_conf::read("altq.conf", text, &registry).into_result().unwrap();
    let view = plan.interface("em0").unwrap();
    let link = Link::new(view.rate(), 0, 1514);
    let built = view.build(&registry, link).unwrap();
    let config = PortConfig::new(link, WireConfig::Link { ring: 1, refill: Refill::Packet });
    let (port, edge) = parts(&conf(""));
    let mut forth = Direction::new(0, Some(port), SIZE, Delay::default());
    forth.set_edge(Instant::ZERO, Some(live(edge, &Desk::closed())));
    let back = Direction::new(1, Some(Port::new(config, built.port_plan(link))), SIZE, Delay::default());
    let mut bridge = Bridge::new(Memory::new(), Memory::new(), [forth, back]);
    let fragment = |offset: u8, more: bool| {
        let mut bytes = datagram(0, 9, 4_000, &[0; 160]);
        bytes[36..38].copy_from_slice(&5_001u16.to_be_bytes());
        (bytes[19], bytes[20], bytes[21]) = (1, if more { 0x20 } else { 0 }, offset);
        bytes
    };
    bridge.interfaces().1.arriving = [fragment(0, true), fragment(20, true), fragment(40, false)].into();
    run(&mut bridge, Instant::ZERO, Instant::from_millis(20));
    let port = bridge.directions()[1].port().unwrap();
    assert_eq!([0, 1].map(|leaf| port.account(leaf).unwrap().sent_packets), [3, 0]);
}
