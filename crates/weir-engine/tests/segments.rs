//! Aggregates of segmentation offload before a port: taken apart, or charged for what they cost.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

mod frames;

use frames::{checksum, frame};
use weir_core::port::{Port, PortConfig, PortPlan, Refill, WireConfig};
use weir_core::sched::Registry;
use weir_core::units::Instant;
use weir_engine::egresses;
use weir_engine::state::Egress;
use weir_engine::{Bridge, Change, Delay, Direction};
use weir_io::PoolSize;
use weir_io::memory::Memory;

const SIZE: PoolSize = PoolSize { frames: 64, tails: 2 };
/// Headers of Ethernet, IPv4 and TCP.
const HEADERS: usize = 54;
/// Payload of a segment, and segments of an aggregate, the last one full too.
const EACH: usize = 1446;
const SEGMENTS: usize = 10;

/// Ten segments in one, and their offload header: partial checksum, TCP over IPv4.
fn aggregate() -> (Vec<u8>, [u8; 10]) {
    let mut bytes = frame(0, HEADERS + SEGMENTS * EACH, 0);
    bytes[23] = 6;
    let sum = u16::from_be_bytes([bytes[24], bytes[25]]);
    // The protocol changed from 17 to 6.
    bytes[24..26].copy_from_slice(&(sum + 11).to_be_bytes());
    assert_eq!(checksum(&bytes[14..34]), 0);
    bytes[46] = 0x50;
    let [a, b] = (EACH as u16).to_ne_bytes();
    (bytes, [1, 1, 54, 0, a, b, 34, 0, 16, 0])
}

fn plan(text: &str) -> PortPlan {
    let registry = Registry::builtin();
    let plan = weir_conf::read("altq.conf", text, &registry).into_result().unwrap();
    let view = plan.interface("").unwrap();
    let link = view.link(1514);
    view.build(&registry, link).unwrap().port_plan(link)
}

/// A bridge whose right egress `text` manages, on an emulated link; plain without a text.
fn bridge(text: Option<&str>, size: PoolSize) -> Bridge<Memory, Memory> {
    let port = text.map(|text| {
        let plan = plan(text);
        let wire = WireConfig::Link { ring: 1, refill: Refill::Packet };
        Port::new(PortConfig::new(plan.regulated.unwrap().0, wire), plan)
    });
    let forth = Direction::new(0, port, size, Delay::default());
    let (bytes, offload) = aggregate();
    let mut left = Memory::new();
    (left.arriving, left.offload) = ([bytes].into(), offload);
    Bridge::new(left, Memory::new(), [forth, Direction::new(1, None, size, Delay::default())])
}

/// Steps until nothing is due: when the last frame left.
fn run(bridge: &mut Bridge<Memory, Memory>) -> Instant {
    let mut now = Instant::ZERO;
    loop {
        match bridge.step(now).next {
            Instant::NEVER => return now,
            next => now = next,
        }
    }
}

fn state(bridge: &mut Bridge<Memory, Memory>) -> Egress {
    egresses(bridge, &["l".into(), "r".into()])[0].clone()
}

/// The bytes of all segments, each with an overhead of 24.
const WIRE_BYTES: usize = SEGMENTS * (HEADERS + EACH + 24);

/// Taken apart or whole: it costs the same time to 10 ns. Taken apart if it lasts longer
/// than the bound, and not if it lasts exactly that long.
// Claim L43.
#[test]
fn an_aggregate_costs_what_its_segments_cost() {
    // 15,240 bytes last 1 ms at 121,920,000 bit/s.
    assert_eq!(WIRE_BYTES, 15_240);
    for (text, whole) in [
        ("bandwidth 10M", false),
        ("bandwidth 121920000", true),
        ("bandwidth 121919999", false),
        ("bandwidth 121919999 segment 1001us", true),
        ("bandwidth 10M segment never", true),
        ("bandwidth 10G segment always", false),
        ("bandwidth 10G segment 0", false),
    ] {
        let mut bridge = bridge(Some(&format!("interface em0 {text} fifoq")), SIZE);
        let last = run(&mut bridge);
        let rate = bridge.directions()[0].port().unwrap().link().rate;
        let exact_ns = rate.time_for(WIRE_BYTES as u64).ceil().as_nanos();
        assert!(last.as_nanos().abs_diff(exact_ns) <= 10, "{text}: {last} and {exact_ns} ns");
        let sent = std::mem::take(&mut bridge.interfaces().1.sent);
        let egress = state(&mut bridge);
        let total = &egress.port.as_ref().unwrap().total;
        if whole {
            assert_eq!(sent, [aggregate().0], "{text}");
            assert_eq!((total.sent_packets, total.sent_bytes), (1, WIRE_BYTES as u64 - 24), "{text}");
        } else {
            assert!(sent.len() == SEGMENTS && sent.iter().all(|f| f.len() == HEADERS + EACH), "{text}");
            assert_eq!((total.sent_packets, total.sent_bytes), (10, 15_000), "{text}");
        }
        assert_eq!(egress.segmented_packets, u64::from(!whole));
        assert_eq!(bridge.directions()[0].frames_available(), 64);
    }
    // Plain forwarding takes nothing apart.
    let mut plain = bridge(None, SIZE);
    run(&mut plain);
    assert_eq!(plain.interfaces().1.sent, [aggregate().0]);
}

/// Long buffers are few, and of all classes: where three quarters of them are taken, aggregates are taken apart
/// that would stay whole, so that no class takes them all.
#[test]
fn aggregates_are_taken_apart_where_long_buffers_are_scarce() {
    let size = PoolSize { frames: 256, tails: 8 };
    let mut bridge = bridge(Some("interface em0 bandwidth 1M segment never fifoq qlimit 200"), size);
    for _ in 0..20 {
        bridge.step(Instant::ZERO);
        bridge.interfaces().0.arriving.push_back(aggregate().0);
    }
    let egress = state(&mut bridge);
    assert_eq!((egress.nobuf_packets, egress.received_packets), (0, 20));
    // Six whole ones leave the last two long buffers, which each later one gives back.
    assert_eq!(egress.segmented_packets, 14, "{egress:?}");
}

// Claim L44.
#[test]
fn without_buffers_the_rest_is_lost_and_counted() {
    let mut bridge = bridge(Some("interface em0 bandwidth 10M fifoq"), PoolSize { frames: 4, tails: 2 });
    run(&mut bridge);
    assert_eq!(bridge.interfaces().1.sent.len(), 4);
    let egress = state(&mut bridge);
    assert_eq!((egress.nobuf_packets, egress.segmented_packets), (6, 1));
    assert_eq!(bridge.directions()[0].frames_available(), 4);
}

/// Aggregates that came in one batch were taken apart, and the port goes: their segments leave in the
/// order of the stream.
#[test]
fn a_port_that_goes_reorders_no_segments() {
    for panics in [false, true] {
        let size = PoolSize { frames: 64, tails: 4 };
        let mut bridge = bridge(Some("interface em0 bandwidth 1M fifoq"), size);
        let (bytes, _) = aggregate();
        for number in 1..3u32 {
            let mut next = bytes.clone();
            next[38..42].copy_from_slice(&(number * (SEGMENTS * EACH) as u32).to_be_bytes());
            bridge.interfaces().0.arriving.push_back(next);
        }
        // The first packet leaves at once, all others wait.
        bridge.step(Instant::ZERO);
        match panics {
            true => bridge.forward_plainly(Instant::from_micros(1)),
            false => _ = bridge.directions_mut()[0].change(Instant::from_micros(1), Change::Port(None)),
        }
        run(&mut bridge);
        let sent = &bridge.interfaces().1.sent;
        let sequence = |b: &Vec<u8>| u32::from_be_bytes([b[38], b[39], b[40], b[41]]);
        let first = sequence(&aggregate().0);
        let numbers: Vec<u32> = sent.iter().map(sequence).collect();
        let expected: Vec<u32> = (0..3 * SEGMENTS as u32).map(|n| first + n * EACH as u32).collect();
        assert_eq!(numbers, expected, "panics: {panics}");
    }
}

/// A mark stands in each segment, and each header is right. A swap brings its own bound.
// Claim L45.
#[test]
fn marks_reach_every_segment_and_a_swap_changes_the_bound() {
    let text = |segment: &str| {
        format!(
            "interface em0 bandwidth 10M {segment} fifoq\nconditioner em0 c <mark EF>\nfilter em0 c 0 0 0 0 6\n"
        )
    };
    let mut bridge = bridge(Some(&text("")), SIZE);
    assert!(bridge.directions_mut()[0].swap(Instant::ZERO, plan(&text("segment never"))).is_some());
    run(&mut bridge);
    assert!(
        bridge.directions_mut()[0].swap(Instant::from_millis(20), plan(&text("segment always"))).is_some()
    );
    let (bytes, _) = aggregate();
    bridge.interfaces().0.arriving.push_back(bytes);
    let mut now = Instant::from_millis(20);
    while now < Instant::from_millis(60) {
        now = bridge.step(now).next.min(Instant::from_millis(60));
    }
    let sent = &bridge.interfaces().1.sent;
    assert_eq!(sent.len(), 1 + SEGMENTS);
    for bytes in sent {
        assert_eq!(bytes[15], 0xb8);
        assert_eq!(checksum(&bytes[14..34]), 0);
    }
}
