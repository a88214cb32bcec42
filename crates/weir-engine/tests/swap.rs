//! Hot swap of a live port: all of the old configuration goes, and no packet with it.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

mod frames;

use frames::{checksum, frame, number};
use std::sync::{Arc, Mutex};
use weir_core::packet::Key;
use weir_core::port::{Event, EventKind, Port, PortConfig, PortPlan, Refill, WireConfig};
use weir_core::queue::{Link, Params, Value};
use weir_core::sched::Registry;
use weir_core::units::{Fraction, Instant, Rate};
use weir_engine::egresses;
use weir_engine::{Bridge, Change, Changed, Delay, Direction, Observe, Pace, Worker};
use weir_io::PoolSize;
use weir_io::memory::Memory;

const SIZE: PoolSize = PoolSize { frames: 512, tails: 4 };

/// The plan of a file's only interface, for its link as it says.
fn plan(text: &str) -> PortPlan {
    let registry = Registry::builtin();
    let plan = weir_conf::read("altq.conf", text, &registry).into_result().unwrap();
    let view = plan.interface("").unwrap();
    let link = view.link(1514);
    view.build(&registry, link).unwrap().port_plan(link)
}

/// A managed port that begins with `first`, on its own regulator or on an emulated link.
fn managed(first: PortPlan, wire: Option<WireConfig>) -> Port {
    let (link, _) = first.regulated.unwrap();
    Port::new(PortConfig::new(link, wire.unwrap_or(WireConfig::Open)), first)
}

fn bridge(forth: Port) -> Bridge<Memory, Memory> {
    let forth = Direction::new(0, Some(forth), SIZE, Delay::default());
    let back = Direction::new(1, None, SIZE, Delay::default());
    Bridge::new(Memory::new(), Memory::new(), [forth, back])
}

/// Steps at every event up to `until`.
fn run(bridge: &mut Bridge<Memory, Memory>, from: u64, until: u64) {
    let (mut now, until) = (Instant::from_micros(from), Instant::from_micros(until));
    loop {
        let step = bridge.step(now);
        match step.more {
            true => continue,
            false if step.next > until => return,
            false => now = step.next.max(now),
        }
    }
}

/// Sends `count` frames with that TOS byte, and says which bytes they left with.
fn tos_after(bridge: &mut Bridge<Memory, Memory>, at_us: u64, count: u32, tos: u8) -> Vec<u8> {
    bridge.interfaces().0.arriving = (0..count).map(|n| frame(n, 100, tos)).collect();
    run(bridge, at_us, at_us + 50_000);
    let sent = std::mem::take(&mut bridge.interfaces().1.sent);
    assert!(sent.iter().all(|bytes| checksum(&bytes[14..34]) == 0), "a header's sum is wrong");
    sent.iter().map(|bytes| bytes[15]).collect()
}

const PLAIN: &str = "interface in0 bandwidth 10M fifoq\n";
const POLICED: &str = "interface in0 bandwidth 10M fifoq\n\
    conditioner in0 c <tbmeter 8K 500 <mark EF><drop>>\nfilter in0 c 0 0 0 0 udp\n";
const MARKED: &str = "interface in0 bandwidth 10M fifoq\n\
    conditioner in0 other <mark AF11>\nfilter in0 other 0 0 0 0 udp\n";

#[test]
fn a_swap_leaves_nothing_of_the_old_conditioners() {
    let wire = WireConfig::Link { ring: 1, refill: Refill::Packet };
    let mut bridge = bridge(managed(plan(POLICED), Some(wire)));
    let names = ["l".to_string(), "r".to_string()];
    let mut now = 0;
    let mut step = |bridge: &mut Bridge<Memory, Memory>, swap: Option<&str>| {
        now += 100_000;
        if let Some(text) = swap {
            assert!(bridge.directions_mut()[0].swap(Instant::from_micros(now), plan(text)).is_some());
        }
        let left = tos_after(bridge, now, 20, 0x02);
        let port = egresses(bridge, &names)[0].port.clone().unwrap();
        let meters = port.conditioners.iter().map(|c| c.name.clone());
        let policed = port.total.dropped_packets.get("policed").copied().unwrap_or(0);
        (left, policed, meters.collect::<Vec<_>>())
    };
    // Four are within the old profile, sixteen are not.
    let (left, policed, meters) = step(&mut bridge, None);
    assert_eq!((left, policed), (vec![46 << 2 | 2; 4], 16));
    assert_eq!(meters, ["c", "c tbmeter"]);
    let (left, policed, meters) = step(&mut bridge, Some(PLAIN));
    assert_eq!((left, policed), (vec![2; 20], 16), "neither marks nor drops any more");
    assert!(meters.is_empty(), "{meters:?}");
    let (left, policed, meters) = step(&mut bridge, Some(MARKED));
    assert_eq!((left, policed), (vec![10 << 2 | 2; 20], 16));
    assert_eq!(meters, ["other"]);
    // And the first again, with a full bucket.
    let (left, policed, _) = step(&mut bridge, Some(POLICED));
    assert_eq!((left, policed), (vec![46 << 2 | 2; 4], 32));
}

/// Frames that wait across a swap keep the mark that they came with, and nobody's ECN bits change.
#[test]
fn what_waits_across_a_swap_keeps_its_marks() {
    const TOS_AS_CLASS: &str = "interface in0 bandwidth 10M priq\n\
        class priq in0 a NULL priority 1\nclass priq in0 b NULL priority 0 default\n\
        filter in0 a 0 0 0 0 0 tos 1\n";
    assert!(!plan(TOS_AS_CLASS).ecn, "the filter asks for an ECN bit");
    for (old, new) in [(TOS_AS_CLASS, PLAIN), (PLAIN, TOS_AS_CLASS), (MARKED, TOS_AS_CLASS)] {
        let wire = WireConfig::Link { ring: 1, refill: Refill::Packet };
        let mut bridge = bridge(managed(plan(old), Some(wire)));
        bridge.interfaces().0.arriving = (0..30).map(|n| frame(n, 1000, 1)).collect();
        run(&mut bridge, 0, 5_000);
        let swapped = Instant::from_micros(5_000);
        assert!(bridge.directions_mut()[0].swap(swapped, plan(new)).is_some());
        assert!(bridge.directions()[0].port().unwrap().backlog().packets > 20);
        run(&mut bridge, 5_000, 60_000);
        let sent = &bridge.interfaces().1.sent;
        let expected = if old == MARKED { 10 << 2 | 1 } else { 1 };
        assert_eq!(sent.iter().map(|b| b[15]).collect::<Vec<_>>(), vec![expected; 30], "{old} -> {new}");
    }
}

/// The regulator of the new file counts from the swap on, and swapping lends no tokens.
#[test]
fn a_swap_brings_its_own_rate() {
    let text =
        |rate: u32| format!("interface in0 bandwidth {rate}M tbrsize 3000 overhead 0 fifoq qlimit 500\n");
    let mut bridge = bridge(managed(plan(&text(10)), None));
    let names = ["l".to_string(), "r".to_string()];
    let sent = |bridge: &mut Bridge<Memory, Memory>, from_us: u64, swap_to: u32, swaps: u64| {
        run(bridge, from_us - 500_000, from_us);
        bridge.interfaces().1.sent.clear();
        bridge.interfaces().0.arriving = (0..400).map(|n| frame(n, 1000, 0)).collect();
        for n in 0..swaps {
            let at = from_us + n * 100_000 / swaps;
            assert!(
                bridge.directions_mut()[0].swap(Instant::from_micros(at), plan(&text(swap_to))).is_some()
            );
            run(bridge, at, at + 100_000 / swaps - 1);
        }
        let port = egresses(bridge, &names)[0].port.clone().unwrap();
        assert_eq!(port.rate_bps, u64::from(swap_to) * 1_000_000);
        bridge.interfaces().1.sent.len()
    };
    // 0.1 s of 10 and of 20 Mbit/s are 125 and 250 packets of 1000 bytes; the bucket holds three.
    let (once, often) = (sent(&mut bridge, 1_000_000, 10, 1), sent(&mut bridge, 2_000_000, 10, 100));
    assert!((125..=128).contains(&once) && (124..=128).contains(&often), "{once} {often}");
    let faster = sent(&mut bridge, 3_000_000, 20, 100);
    assert!((249..=253).contains(&faster), "{faster}");
}

/// Values change in place: what waits stays, what was measured goes on, and no order of the changes
/// matters to a discipline that holds sums. What a port refuses becomes a swap.
// Claim L33.
#[test]
fn parameters_change_in_place_or_not_at_all() {
    let text = |a: u32, b: u32| {
        format!(
            "interface in0 bandwidth 10M overhead 0 cbq\nclass cbq in0 root NULL pbandwidth 100\n\
             class cbq in0 a root pbandwidth {a} default red\nclass cbq in0 b root pbandwidth {b}\n\
             class cbq in0 ctl root pbandwidth 2 control\n"
        )
    };
    let share =
        |percent: u64| Params::new().with("pbandwidth", Value::Fraction(Fraction::ratio(percent, 100)));
    let average = |bridge: &mut Bridge<Memory, Memory>| {
        let names = ["l".to_string(), "r".to_string()];
        let port = egresses(bridge, &names)[0].port.clone().unwrap();
        let a = port.classes.iter().find(|c| c.name == "a").unwrap().values.clone();
        (a["average"], a["rate"], a["backlog"])
    };
    let filled = || {
        let mut bridge = bridge(managed(plan(&text(70, 20)), None));
        bridge.interfaces().0.arriving = (0..200).map(|n| frame(n, 1000, 0)).collect();
        run(&mut bridge, 0, 20_000);
        bridge
    };
    let at = Instant::from_micros(20_000);
    // `b` may not have more before `a` has less, and stands first.
    let params = vec![("b".to_string(), share(60)), ("a".to_string(), share(30))];
    let mut bridge = filled();
    let before = average(&mut bridge);
    assert!(before.0 > 0 && before.2 > 20, "{before:?}");
    let otherwise = Box::new(plan(&text(30, 60)));
    let changed = bridge.directions_mut()[0].change(at, Change::Params { params: params.clone(), otherwise });
    assert!(matches!(changed, Changed::InPlace(Some(_))));
    assert_eq!(average(&mut bridge), (before.0, 3_000_000, before.2), "RED's average goes on");
    // Reversed: a swap says the same, and begins anew.
    let mut bridge = filled();
    let changed = bridge.directions_mut()[0].change(at, Change::Plan(Box::new(plan(&text(30, 60)))));
    assert!(matches!(changed, Changed::Exchanged(Some(_))));
    let after = average(&mut bridge);
    assert!(after.1 == 3_000_000 && after.0 < before.0 / 2, "{before:?} {after:?}");
    // What the port refuses is not half done.
    let mut bridge = filled();
    let params = vec![("a".to_string(), share(10)), ("b".to_string(), share(95))];
    let otherwise = Box::new(plan(&text(30, 60)));
    let changed = bridge.directions_mut()[0].change(at, Change::Params { params, otherwise });
    assert!(matches!(changed, Changed::Exchanged(Some(_))));
    assert_eq!(average(&mut bridge).1, 3_000_000, "as the plan says");
}

/// A direction gets a port and loses it while frames pass: none is lost, doubled or overtaken.
#[test]
fn ports_come_and_go_without_loss() {
    let mut bridge = bridge(managed(plan(PLAIN), None));
    let mut sent = 0..;
    for round in 0..20u64 {
        bridge.interfaces().0.arriving = sent.by_ref().take(30).map(|n| frame(n, 1000, 0)).collect();
        let now = round * 100_000;
        run(&mut bridge, now, now + 5_000);
        let waiting = bridge.directions()[0].port().map(|port| port.backlog().packets);
        assert!(waiting.is_none_or(|packets| packets > 10), "some wait when the port goes");
        let port = (round % 2 == 1).then(|| Box::new(managed(plan(PLAIN), None)));
        let there = port.is_some();
        let changed =
            bridge.directions_mut()[0].change(Instant::from_micros(now + 5_000), Change::Port(port));
        assert!(matches!(changed, Changed::Exchanged(old) if old.is_some() != there));
        run(&mut bridge, now + 5_000, now + 90_000);
    }
    let refused = bridge.directions_mut()[1].change(Instant::ZERO, Change::Plan(Box::new(plan(PLAIN))));
    assert!(matches!(refused, Changed::NoPort));
    let numbers: Vec<u32> = bridge.interfaces().1.sent.iter().map(|b| number(b)).collect();
    assert_eq!(numbers, (0..600).collect::<Vec<_>>());
}

/// What left in which order, flow by flow, and what was dropped.
#[derive(Default)]
struct Watch(Arc<Mutex<Seen>>);
#[derive(Default)]
struct Seen {
    last: std::collections::BTreeMap<u16, u32>,
    sent: u64,
    dropped: u64,
    overtaken: u64,
}
/// What leaves and dies on the way forth, from now on.
fn watch(bridge: &mut Bridge<Memory, Memory>) -> Arc<Mutex<Seen>> {
    let watch = Watch::default();
    let seen = watch.0.clone();
    bridge.directions_mut()[0].observe(Box::new(watch));
    seen
}

impl Observe for Watch {
    fn arrived(&mut self, _: usize, _: Instant, _: &Key, _: u32, _: u32) {}
    fn told(&mut self, index: usize, event: &Event<'_>) {
        let mut seen = self.0.lock().unwrap();
        let meta = event.meta;
        match event.kind {
            EventKind::Sent if index == 0 => {
                let last = seen.last.insert(meta.dst_port, meta.order);
                seen.overtaken += u64::from(last.is_some_and(|last| last > meta.order));
                seen.sent += 1;
            }
            EventKind::Dropped(_) => seen.dropped += 1,
            _ => {}
        }
    }
}

/// Four flows to ports 1 to 4; `class_of` says in which class each is.
fn file(discipline: &str, [a, b, c, d]: [&str; 4]) -> String {
    let (line, classes) = match discipline {
        "priq" => ("priq", ["NULL priority 0 default", "NULL priority 1", "NULL priority 2"]),
        "inner" => ("priq", ["NULL priority 0 default", "NULL priority 1 drr", "NULL priority 2 fqcodel"]),
        "hfsc" => ("hfsc", ["root pshare 20 default", "root bandwidth 20M", "root pshare 30 fifoq"]),
        _ => ("cbq", ["NULL pbandwidth 100", "low pbandwidth 30 borrow default", "low pbandwidth 40 borrow"]),
    };
    let mut text = format!("interface in0 bandwidth 100M {line}\n");
    for (name, rest) in ["low", "mid", "high"].iter().zip(classes) {
        let limit = if rest.ends_with("codel") || rest.ends_with("drr") { "" } else { "qlimit 600" };
        text += &format!("class {line} in0 {name} {rest} {limit}\n");
    }
    for (port, class) in [(1, a), (2, b), (3, c), (4, d)] {
        text += &format!("filter in0 {class} 0 {port} 0 0 17\n");
    }
    text
}

const FRAMES: u32 = 20_000;

/// Runs a thousand swaps through the files in turn while frames pass; what was seen.
fn swaps_under_load(files: &[String]) -> Seen {
    let link = Link::new(Rate::from_mbps(100), 0, 1514);
    let first = plan(&files[0]);
    let config = PortConfig::new(link, WireConfig::Link { ring: 4, refill: Refill::Packet });
    let mut bridge = bridge(Port::new(config, first));
    let seen = watch(&mut bridge);
    let (mut fed, mut now_us) = (0, 0);
    for swap in 0..1_000 {
        // 20 frames of 125 bytes take 200 us: a backlog of some 400 frames is kept up.
        let backlog = bridge.directions()[0].port().unwrap().backlog().packets as u32;
        let batch = if backlog < 400 { 40 } else { 20 };
        for _ in 0..batch.min(FRAMES - fed) {
            let mut bytes = frame(fed, 125, 0);
            (bytes[36], bytes[37]) = (0, 1 + (fed % 4) as u8);
            bridge.interfaces().0.arriving.push_back(bytes);
            fed += 1;
        }
        run(&mut bridge, now_us, now_us + 200);
        now_us += 200;
        let next = plan(&files[(swap + 1) % files.len()]);
        assert!(bridge.directions_mut()[0].swap(Instant::from_micros(now_us), next).is_some());
        bridge.directions()[0].port().unwrap().check().unwrap();
    }
    while fed < FRAMES {
        bridge.interfaces().0.arriving.push_back(frame(fed, 125, 0));
        fed += 1;
    }
    run(&mut bridge, now_us, now_us + 3_000_000);
    let sent = std::mem::take(&mut bridge.interfaces().1.sent);
    let mut numbers: Vec<u32> = sent.iter().map(|b| number(b)).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let lost_early = egresses(&mut bridge, &["l".into(), "r".into()])[0].nobuf_packets;
    let mut seen = std::mem::take(&mut *seen.lock().unwrap());
    seen.dropped += lost_early;
    assert_eq!(numbers.len() as u64, seen.sent, "each left once");
    seen
}

#[test]
fn a_thousand_swaps_under_load_lose_and_reorder_nothing() {
    let classes = ["low", "mid", "high", "mid"];
    let files: Vec<String> =
        ["priq", "hfsc", "inner", "cbq"].iter().map(|name| file(name, classes)).collect();
    let seen = swaps_under_load(&files);
    assert_eq!((seen.sent + seen.dropped, seen.overtaken), (FRAMES.into(), 0));
    assert_eq!(seen.dropped, 0);
}

/// Reversed: where a swap changes the class of a flow that waits, its packets do overtake.
#[test]
fn a_swap_that_changes_classes_is_seen_to_reorder() {
    let files = [file("priq", ["low", "mid", "high", "mid"]), file("priq", ["high", "low", "low", "mid"])];
    let seen = swaps_under_load(&files);
    assert!(seen.overtaken > 100, "{}", seen.overtaken);
}

/// The same by way of a worker that runs: every request is answered while frames pass.
#[test]
fn a_worker_takes_a_thousand_swaps_while_it_works() {
    let link = Link::new(Rate::from_mbps(100), 0, 1514);
    let config = PortConfig::new(link, WireConfig::Link { ring: 4, refill: Refill::Packet });
    let texts = [POLICED, PLAIN];
    let mut bridge = bridge(Port::new(config, plan(texts[1])));
    let seen = watch(&mut bridge);
    // No conditioner takes TCP, so none of these may be dropped.
    bridge.interfaces().0.arriving = (0..40)
        .map(|n| {
            let mut bytes = frame(n, 125, 0);
            bytes[23] = 6;
            bytes
        })
        .collect();
    let worker = Worker::start(bridge, ["left".into(), "right".into()], Pace::default()).unwrap();
    let control = worker.control();
    for n in 0..1_000 {
        assert!(control.swap(0, plan(texts[n % 2])).unwrap());
    }
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
    while seen.lock().unwrap().sent < 40 && std::time::Instant::now() < deadline {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let last = worker.stop().unwrap();
    assert_eq!(last.failed, None);
    let seen = seen.lock().unwrap();
    assert_eq!((seen.sent, seen.dropped, seen.overtaken), (40, 0, 0));
    let port = last.egresses[0].port.as_ref().unwrap();
    assert!(port.conditioners.is_empty(), "the last file has none");
}

/// What the device refuses is counted as dropped by its class, also if the class got another
/// number, or went, while the frame stood before the device. Reversed: what it takes stays sent.
// Claim L37.
#[test]
fn a_frame_that_the_device_refuses_is_dropped_in_its_class() {
    let classes = |names: [&str; 2]| {
        let [first, second] = names;
        plan(&format!(
            "interface in0 bandwidth 10M priq\nclass priq in0 {first} NULL priority 1\n\
             class priq in0 {second} NULL priority 0 default\nfilter in0 {first} 0 5001 0 0 17\n"
        ))
    };
    for refuses in [true, false] {
        let mut bridge = bridge(managed(classes(["video", "other"]), None));
        let mut tcp = frame(9, 100, 0);
        tcp[23] = 6;
        let (left, right) = bridge.interfaces();
        left.arriving = [frame(0, 100, 0), tcp, frame(1, 200, 0)].into();
        right.room = Some(0);
        run(&mut bridge, 0, 1_000);
        assert_eq!(bridge.directions()[0].leaving(), 3);
        // `video` has another number now; `other` is gone.
        assert!(
            bridge.directions_mut()[0]
                .swap(Instant::from_micros(2_000), classes(["third", "video"]))
                .is_some()
        );
        let (_, right) = bridge.interfaces();
        (right.room, right.longest) = (None, refuses.then_some(150));
        run(&mut bridge, 3_000, 4_000);
        let state = egresses(&mut bridge, &["l".into(), "r".into()]);
        let port = state[0].port.as_ref().unwrap();
        let video = port.classes.iter().find(|c| c.name == "video").unwrap().counts.as_ref().unwrap();
        let toolong =
            |counts: &weir_engine::state::PacketCounts| counts.dropped_packets.get("toolong").copied();
        let lost = refuses.then_some(1);
        assert_eq!((video.sent_packets, video.sent_bytes), if refuses { (1, 100) } else { (2, 300) });
        assert_eq!((toolong(video), toolong(&port.total)), (lost, lost));
        assert_eq!((port.total.sent_packets, port.total.inside_packets), (3 - lost.unwrap_or(0), 0));
        assert_eq!(
            (state[0].refused.get("toolong").copied(), state[0].refused_packets),
            (lost, lost.unwrap_or(0))
        );
        bridge.directions()[0].port().unwrap().check().unwrap();
        // A class that a swap took away has lost what it sent last.
        let left = &mut bridge.interfaces().0.arriving;
        left.push_back(frame(3, 160, 0));
        bridge.interfaces().1.room = Some(0);
        run(&mut bridge, 5_000, 6_000);
        assert!(bridge.directions_mut()[0].swap(Instant::from_micros(7_000), classes(["a", "b"])).is_some());
        bridge.interfaces().1.room = None;
        run(&mut bridge, 8_000, 9_000);
        let port = bridge.directions()[0].port().unwrap();
        assert_eq!(port.total().dropped(), 2 * lost.unwrap_or(0));
        assert_eq!(port.total().inside(), 0);
    }
}
