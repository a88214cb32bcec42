//! The bridge between two kernels, with every offload on and off. Needs root.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

mod testbed;

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use testbed::{Offloads, Shape, stream, testbed};
use weir_seed::{in_time, timed};

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

/// One offload off, on both sides.
fn without(change: fn(&mut Offloads)) -> Offloads {
    let mut offloads = Offloads::ON;
    change(&mut offloads);
    offloads
}

/// Whatever the devices at the entrance and at the exit leave to others, and with VLAN tags or not:
/// the rate is kept to 1 %, all of it is of use, and pings wait for one packet at most. Before, a
/// device that could not segment got 1.1 Mbit/s through (with `PACKET_QDISC_BYPASS` the kernel drops
/// what it would have to segment). Aggregates of 64 KB put 10.5 Mbit/s on the wire, and pings
/// waited for 49 ms.
// Claim L40.
#[test]
fn a_rate_is_kept_with_every_offload_setting() {
    let _turn = turn();
    let (on, off) = (Offloads::ON, Offloads::OFF);
    for (entrance, exit, tags) in [
        (on, on, 0),
        (on, off, 0),
        (off, on, 0),
        (off, off, 0),
        (without(|o| o.tso = false), without(|o| o.tso = false), 0),
        (without(|o| o.gso = false), without(|o| o.gso = false), 0),
        (without(|o| o.gro = false), without(|o| o.gro = false), 0),
        (without(|o| o.tx = false), without(|o| o.tx = false), 0),
        (without(|o| o.sg = false), without(|o| o.sg = false), 0),
        (on, on, 1),
        (on, off, 1),
        (on, off, 2),
    ] {
        // A machine that stands still for 10 ms loses one per cent of a second.
        timed(|| {
            let Some(mut bed) = testbed(Shape { mtu: 1500, entrance, exit, tags }) else { return };
            bed.start(Some(&conf("10M")));
            let seen = stream(&bed, Duration::from_millis(600), Duration::from_millis(1000));
            let egress = bed.egress();
            let (median, late) = (seen.ping(0.5), seen.ping(0.9));
            println!("{:.3} {:.3} {median:.0} {late:.0}", seen.goodput_mbps, seen.wire_mbps);
            let per_frame = 24.0 + 4.0 * tags as f64;
            let pings = seen.pings_us.len() as f64 * (98.0 + per_frame) * 8.0 / 1e6;
            let goodput = (10.0 - pings) * 1448.0 / (1514.0 + per_frame);
            let context = format!("{entrance:?} {exit:?} {tags} tags: {goodput} of {seen:?} {egress:?}");
            assert_eq!(seen.wire.longest, 1514, "{context}");
            assert_eq!((egress.refused_packets, egress.nobuf_packets), (0, 0), "{context}");
            in_time!((9.9..10.1).contains(&seen.wire_mbps), "{context}");
            in_time!((seen.goodput_mbps / goodput - 1.0).abs() < 0.02, "{context}");
            in_time!(median < 2_000.0 && late < 3_000.0, "{context}");
        });
    }
}

/// A device that is slower than the link that was declared gets two frames; the rest waits above it.
/// Reversed: without a port the device's queue grows to what TCP sends.
// Claim L41.
#[test]
fn the_queue_in_the_device_stays_short() {
    let _turn = turn();
    timed(|| {
        let shape = Shape { mtu: 1500, entrance: Offloads::ON, exit: Offloads::ON, tags: 0 };
        for managed in [true, false] {
            let Some(mut bed) = testbed(shape) else { return };
            bed.shell_in_box("tc qdisc add dev right root tbf rate 10mbit burst 2000 limit 3000000");
            bed.start(managed.then(|| conf("20M")).as_deref());
            let backlog = bed.backlog("right", Duration::from_millis(900));
            let length = Duration::from_millis(400);
            stream(&bed, length, length);
            let (most, egress) = (backlog.join().unwrap(), bed.egress());
            let told = egress.device_queue_most_bytes;
            // The system counts 2,304 bytes for the buffer of a full frame, allows for two of them at
            // least, and takes one more if a smaller one was among them.
            let short = most <= 3 * 1514 && (2304..=3 * 2304).contains(&told);
            in_time!(short == managed, "{most} bytes, told {told}: {egress:?}");
            in_time!(managed || (most > 30_000 && told == 0), "{most} bytes, told {told}");
        }
    });
}

/// Above a device that is slower than the link that was declared, classes count: pings wait for what one
/// bucket lets out, while TCP fills the queue. Reversed: in one class with TCP they wait for its queue of 50.
#[test]
fn classes_count_above_a_slow_device() {
    let _turn = turn();
    timed(|| {
        let shape = Shape { mtu: 1500, entrance: Offloads::ON, exit: Offloads::ON, tags: 0 };
        for first in [true, false] {
            let Some(mut bed) = testbed(shape) else { return };
            bed.shell_in_box("tc qdisc add dev right root tbf rate 10mbit burst 2000 limit 3000000");
            let class = if first { "filter right pings" } else { "filter right rest" };
            let conf = conf("20M").replace("filter right pings", class);
            bed.start(Some(&conf));
            let seen = stream(&bed, Duration::from_millis(600), Duration::from_millis(1000));
            let egress = bed.egress();
            let median = seen.ping(0.5);
            in_time!((median < 12_000.0) == first, "{median} us: {seen:?} {egress:?}");
            in_time!(seen.goodput_mbps > 7.0, "{seen:?}");
            in_time!(egress.leaving_packets < 12, "{egress:?}");
        }
    });
}

/// Jumbo frames are charged and segmented like others, in buffers of 2 KB with tails.
#[test]
fn jumbo_frames_cross_at_their_rate() {
    let _turn = turn();
    timed(|| {
        for offloads in [Offloads::ON, Offloads::OFF] {
            let shape = Shape { mtu: 9000, entrance: offloads, exit: Offloads::OFF, tags: 0 };
            let Some(mut bed) = testbed(shape) else { return };
            bed.start(Some(&conf("50M")));
            let seen = stream(&bed, Duration::from_millis(600), Duration::from_millis(1000));
            let egress = bed.egress();
            let context = format!("{offloads:?}: {seen:?} {egress:?}");
            in_time!((49.5..50.5).contains(&seen.wire_mbps), "{context}");
            assert_eq!(seen.wire.longest, 9014, "{context}");
            in_time!(seen.goodput_mbps > 50.0 * 8948.0 / 9038.0 * 0.97, "{context}");
            assert_eq!((egress.refused_packets, egress.nobuf_packets), (0, 0), "{context}");
        }
    });
}

/// What the device of the egress cannot send is lost there and counted by its class, whether it came
/// as a frame, is a segment, or an aggregate of such; and a larger MTU is noticed.
// Claim L42.
#[test]
fn what_is_longer_than_the_mtu_is_refused() {
    let _turn = turn();
    timed(|| {
        for (entrance, segment) in
            [(Offloads::ON, ""), (Offloads::ON, "segment never"), (Offloads::OFF, "segment never")]
        {
            let Some(mut bed) = testbed(Shape { mtu: 9000, entrance, exit: Offloads::ON, tags: 0 }) else {
                return;
            };
            bed.start(Some(&conf(&format!("10M {segment}"))));
            bed.shell_in_box("ip link set right mtu 1500");
            let length = Duration::from_millis(300);
            let seen = stream(&bed, length, length);
            let egress = bed.egress();
            let context = format!("{entrance:?} {segment}: {seen:?} {egress:?}");
            assert!(seen.wire.longest <= 1514 && seen.goodput_mbps == 0.0, "{context}");
            let rest = egress.port.as_ref().unwrap().classes[1].counts.as_ref().unwrap();
            // Where the first packet of the connection is lost, the next one comes a second later.
            in_time!(egress.refused.contains_key("toolong"), "{context}");
            assert!(egress.refused["toolong"] > 0, "{context}");
            assert_eq!(rest.dropped_packets["toolong"], egress.refused["toolong"], "{context}");
            bed.shell_in_box("ip link set right mtu 9000");
            let seen = stream(&bed, length, length);
            in_time!(seen.goodput_mbps > 7.0, "{seen:?}");
        }
    });
}
