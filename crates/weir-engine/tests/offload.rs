//! The bridge between two kernels, with every offload on and off. Needs root.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

mod testbed;

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use testbed::{Offloads, Shape, stream, testbed};

/// One test at a time: they measure time.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// A class for pings above one for everything else.
fn conf(rate: &str) -> String {
    format!(
        "interface right bandwidth {rate} priq\nclass priq right pings NULL priority 1\n\
         class priq right rest NULL priority 0 default\nfilter right pings 0 0 0 0 1\n"
    )
}

/// A device that cannot segment has the kernel segment in front of it. With the kernel's queueing
/// discipline passed by (`PACKET_QDISC_BYPASS`) it got 1.1 Mbit/s, and its class counted what was
/// lost as sent.
#[test]
fn a_device_that_cannot_segment_carries_tcp() {
    let _turn = turn();
    let shape = Shape { mtu: 1500, entrance: Offloads::ON, exit: Offloads::OFF, tags: 0 };
    let Some(mut bed) = testbed(shape) else { return };
    bed.start(Some(&conf("10M")), 1500);
    let seen = stream(&bed, Duration::from_millis(500), Duration::from_millis(1000));
    assert!(seen.goodput_mbps > 8.0, "{seen:?}");
    assert_eq!(seen.wire.longest, 1514, "{seen:?}");
    assert_eq!(bed.egress().refused_packets, 0, "{:?}", bed.egress());
}
