//! Calls while a host sends from one flow after another.

use crate::bed::{Bed, Held, possible, terminate};
use crate::calls::{CONF, Call, Ended, egress, end_all, ready};
use crate::fail_open::{pause, within};
use std::net::UdpSocket;
use std::thread::JoinHandle;
use std::time::Duration;
use weir_core::units::Duration as Span;
use weir_seed::{in_time, timed};

/// A packet of the flood, of 84 bytes on the wire: more than the link of 10 Mbit/s carries.
const EVERY: Span = Span::from_micros(50);
/// How much longer a packet of a call may take beside it: half of them, and 99 of 100, for which a busy machine needs more.
const MOST: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(10)];
/// Ports to which each socket sends.
const PORTS: std::ops::Range<u16> = 10_000..60_000;

/// Sends one packet of each of so many flows.
fn flood(host: &Held, flows: u64) -> JoinHandle<()> {
    within(host, move || {
        let start = weir_sys::now();
        let mut sent = 0;
        while sent < flows {
            let socket = UdpSocket::bind(("10.0.0.1", 0)).unwrap();
            for port in PORTS.take((flows - sent) as usize) {
                // What nobody receives is answered by an error, which is of no use here.
                let _ = socket.send_to(&[0x60; 18], ("10.0.0.2", port));
                sent += 1;
                weir_sys::sleep_until(start + EVERY.saturating_mul(sent));
            }
        }
    })
}

/// The memory that a process has, in bytes.
fn memory(process: &Held) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1_024
}

/// A host sends from a flow after another beside its calls: they lose nothing and wait no longer, and memory does not grow.
/// 100,000 flows; `WEIR_EFFORT=10` makes a million of them.
// Claim L92.
#[test]
fn a_flood_of_flows_harms_no_call() {
    if !possible("the test of a flood of flows") {
        return;
    }
    let flows = weir_seed::effort(100_000);
    timed(|| {
        let bed = Bed::new(1);
        // The class has what the link has, so that calls wait for the flood alone, and not for each other.
        let conf = CONF.replace("from 256K to 512K", "from 8M to 8M");
        let up = bed.up(&[&bed.folder.write("a.altq", conf)]);
        ready(&bed);
        let calls =
            |first: u16| (first..first + 3).map(|n| Call::start(&bed, n, "10.0.0.1")).collect::<Vec<_>>();
        let alone = calls(1);
        pause(3_000);
        let alone = end_all(alone);
        let beside = calls(11);
        pause(500);
        // The table and the rings have been touched once.
        flood(&bed.hosts[0].left, 20_000).join().unwrap();
        let before = memory(&up);
        flood(&bed.hosts[0].left, flows).join().unwrap();
        let after = memory(&up);
        let beside = end_all(beside);
        let took = |calls: &[Ended], percent| calls.iter().map(|call| call.took(3, percent)).max().unwrap();
        let [alone, crowded] = [&alone, &beside].map(|calls| [50, 99].map(|percent| took(calls, percent)));
        let stats = egress(&bed)["edge"]["recognition"].clone();
        println!(
            "p50 and p99: {alone:?} alone, {crowded:?} beside {flows} flows; memory {before} and {after}; {stats}"
        );
        assert!(stats["replaced"].as_u64().unwrap() + 64 >= flows / 2, "{stats}");
        assert!(after <= before + (1 << 20), "{before} bytes before, {after} after");
        for call in &beside {
            in_time!(call.lost() == 0, "{} of {}", call.lost(), call.sent);
            call.keeps_its_mark(3);
        }
        // Behind the flood's queue they would wait for more than 40 ms. What a busy machine does is left out of this.
        let most = [alone[0] + MOST[0], alone[1] + MOST[1]];
        in_time!(crowded[0] <= most[0] && crowded[1] <= most[1], "{crowded:?}, at most {most:?}");
        terminate(up).ok();
    });
}
