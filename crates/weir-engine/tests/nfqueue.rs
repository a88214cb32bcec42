//! A port between the kernel's packet filter and its verdicts: priorities, rates and marks on
//! packets that the kernel routes itself.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

use std::net::UdpSocket;
use std::process::Command;
use std::time::{Duration, Instant};
use weir_core::port::{Port, PortConfig, WireConfig};
use weir_engine::{Bridge, Delay, Direction, Pace, Worker};
use weir_io::PoolSize;
use weir_seed::{in_time, timed};

const SIZE: PoolSize = PoolSize { frames: 512, tails: 4 };

/// What leaves by the loopback interface at 1 Mbit/s: voice first, and marked; the rest with 20
/// packets of room.
const CONF: &str = "interface lo bandwidth 1M overhead 0 priq\n\
                    class priq lo voice NULL priority 1\n\
                    class priq lo other NULL priority 0 default qlimit 20\n\
                    filter lo voice 0 5060 0 0 17\n\
                    conditioner lo mark <mark EF>\n\
                    filter lo mark 0 5060 0 0 17\n";

fn worker(queue: u16) -> Worker {
    let registry = weir_core::sched::Registry::builtin();
    let plan = weir_conf::read("test", CONF, &registry).into_result().unwrap();
    let view = plan.interface("lo").unwrap();
    let link = view.link(1514);
    let built = view.build(&registry, link).unwrap();
    let port = Port::new(PortConfig::new(link, WireConfig::Open), built.port_plan(link));
    let (intake, outlet) = weir_io::nfqueue::open(queue, SIZE.frames).unwrap();
    let forth = Direction::new(0, Some(port), SIZE, Delay::default());
    let names = ["nfqueue".to_string(), "lo".to_string()];
    Worker::start(Bridge::new(intake, outlet, [forth]), names, Pace::default()).unwrap()
}

// Claim L14.
#[test]
fn the_kernels_own_packets_are_queued_marked_and_dropped() {
    if !weir_sys::is_root() {
        eprintln!("SKIPPED: needs root for a network namespace");
        return;
    }
    let run = || {
        weir_sys::enter_new_network().unwrap();
        let sh = |line: &str| Command::new("sh").args(["-c", line]).status().is_ok_and(|s| s.success());
        assert!(sh("ip link set lo up"));
        let rule = "-w -t mangle -A POSTROUTING -o lo -j NFQUEUE --queue-num 4 --queue-bypass";
        if !sh(&format!("iptables {rule}")) {
            eprintln!("SKIPPED: needs iptables with NFQUEUE");
            return;
        }
        let worker = worker(4);
        let voice = UdpSocket::bind("127.0.0.1:5060").unwrap();
        let other = UdpSocket::bind("127.0.0.1:5061").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        for socket in [&voice, &other] {
            socket.set_read_timeout(Some(Duration::from_millis(1500))).unwrap();
        }
        // 1250 bytes at 1 Mbit/s last 10 ms: one may leave at once, 20 wait, 19 are dropped.
        let packet = vec![0u8; 1250 - 42];
        for _ in 0..40 {
            sender.send_to(&packet, "127.0.0.1:5061").unwrap();
        }
        let began = Instant::now();
        sender.send_to(&[7; 100], "127.0.0.1:5060").unwrap();
        let mut room = [0; 2000];
        assert_eq!(voice.recv(&mut room).unwrap(), 100);
        let took = began.elapsed();
        in_time!(took < Duration::from_millis(100), "voice waited for the queue: {took:?}");
        let mut got = 0;
        while other.recv(&mut room).is_ok() {
            got += 1;
        }
        let took = began.elapsed() - Duration::from_millis(1500);
        in_time!((20..=23).contains(&got), "{got} of 40 came");
        assert!(took > Duration::from_millis(150), "{got} packets in {took:?} are more than 1 Mbit/s");
        let state = worker.control().state().unwrap();
        let egress = &state.egresses[0];
        let port = egress.port.as_ref().unwrap();
        let class =
            |name: &str| port.classes.iter().find(|c| c.name == name).unwrap().counts.clone().unwrap();
        assert_eq!(class("voice").sent_packets, 1);
        let counts = class("other");
        assert_eq!((counts.offered_packets, counts.sent_packets), (40, got));
        assert_eq!(counts.dropped_packets["tail"], 40 - got);
        assert_eq!((egress.rewritten_packets, egress.leaving_packets), (1, 0));
        worker.stop().unwrap();
        // Without the worker the rule lets packets pass.
        sender.send_to(b"after", "127.0.0.1:5061").unwrap();
        assert_eq!(other.recv(&mut room).unwrap(), 5);
    };
    // A thread in a network of its own each time: its failure goes on here.
    timed(|| std::thread::spawn(run).join().unwrap_or_else(|failed| std::panic::resume_unwind(failed)));
}
