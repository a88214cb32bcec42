//! The automatic bucket under a host that wakes up late: what leaves in a millisecond, and the mean.

use weir_core::Random;
use weir_core::packet::{FrameRef, Meta};
use weir_core::port::{Event, EventKind, Port, PortConfig, WireConfig};
use weir_core::sched::Registry;
use weir_core::units::{Duration, Instant};

const BPS: u64 = 100_000_000;
const LEN: u32 = 1_514;
const COST: u64 = 1_538;
const RUN_NS: u64 = 2_000_000_000;

/// When each frame of a backlogged 100 Mbit/s left, behind a host that is up to 300 us late.
fn departures(bucket: &str) -> Vec<u64> {
    let text = format!("interface em0 bandwidth 100M {bucket} fifoq qlimit 1000\n");
    let registry = Registry::builtin();
    let plan = weir_conf::read("test.altq", &text, &registry).plan.expect("a valid file");
    let view = plan.interface("").expect("one interface");
    let link = view.link(LEN);
    let built = view.build(&registry, link).expect("it builds");
    let mut port = Port::new(PortConfig::new(link, WireConfig::Open), built.port_plan(link));
    let (mut now, mut random, mut left) = (Instant::ZERO, Random::new(weir_seed::seed()), Vec::new());
    while now.as_nanos() < RUN_NS {
        let mut hear = |event: Event<'_>| {
            if event.kind == EventKind::Sent {
                assert_eq!(event.at, now, "it is sent when it is sent, not when it was due");
                left.push(now.as_nanos());
            }
        };
        port.advance(now, &mut hear);
        while port.backlog().packets < 500 {
            port.offer(now, Meta::new(LEN, now, FrameRef(0)), &mut hear);
        }
        now = now.max(port.next_wake_up()) + Duration::from_nanos(random.below(300_000));
    }
    left
}

// Claim L46.
#[test]
fn a_late_host_keeps_rate_and_window() {
    let most_in_a_millisecond = |left: &[u64]| {
        let within =
            |first: usize| left[first..].iter().take_while(|&&at| at <= left[first] + 1_000_000).count();
        (0..left.len()).map(within).max().unwrap_or(0) as u64 * COST
    };
    let mean = |left: &[u64]| left.len() as f64 * COST as f64 * 8e9 / RUN_NS as f64;
    let allowed = BPS / 8_000 + 12_500 + COST;
    let left = departures("");
    assert!(most_in_a_millisecond(&left) <= allowed, "{}", most_in_a_millisecond(&left));
    assert!((mean(&left) / BPS as f64 - 1.0).abs() < 0.001, "{}", mean(&left));
    // Reversed: one of 150 kB lets too much go at once, and one of a frame has no room for lateness.
    assert!(most_in_a_millisecond(&departures("tbrsize 150000")) > allowed);
    assert!(mean(&departures("tbrsize 1538")) < 0.6 * BPS as f64);
}
