//! `weir up` with `xdp`: frames from the driver, shaped, under traffic that is killed, stopped, changed.

use crate::bed::{Bed, Held, arrived, inside, possible, send, terminate, wait};
use crate::fail_open::{filters, sent, under_load, within};
use crate::trials::{delete_and_make, kill, start_and_end, stop_and_go};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};
use weir_seed::{in_time, timed};

const CONF: &str = "\
interface right0 bandwidth 100M fifoq qlimit 500 attach bridge left0 xdp
interface left0 bandwidth 100M fifoq qlimit 500
";
/// What `weir stats` says of a pair of veth.
const WAY: &str = "AF_XDP in the driver, copying";

fn way(bed: &Bed) -> String {
    bed.bridge()["way"].as_str().unwrap().to_string()
}

/// XDP programs on the box's interfaces, as `ip` shows them.
fn programs(bed: &Bed) -> usize {
    let mut command = std::process::Command::new("nsenter");
    command.args(["-t", &bed.boxed.pid(), "-n", "ip", "link", "show"]);
    String::from_utf8(command.output().unwrap().stdout).unwrap().matches("prog/xdp").count()
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n / 7 + n / 1000) as u8).collect()
}

/// So many bytes by TCP from one host to the other, whole: how long they took to come.
fn stream(from: &Held, to: &Held, address: &'static str, len: usize) -> Duration {
    let (told, ready) = std::sync::mpsc::channel();
    let receiver = within(to, move || {
        let listener = TcpListener::bind(address).unwrap();
        told.send(()).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        peer.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let (mut all, mut room, mut start) = (Vec::<u8>::new(), vec![0; 1 << 16], None);
        while let Ok(count @ 1..) = peer.read(&mut room) {
            start.get_or_insert_with(Instant::now);
            all.extend(&room[..count]);
        }
        assert!(all == pattern(len), "{} of {len} bytes came", all.len());
        start.unwrap().elapsed()
    });
    ready.recv().unwrap();
    let sender = within(from, move || {
        let mut peer = TcpStream::connect(address).unwrap();
        peer.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
        peer.write_all(&pattern(len)).unwrap();
    });
    sender.join().unwrap();
    receiver.join().unwrap()
}

/// The hosts keep their segmentation and leave checksums to their devices, which have none.
#[test]
fn tcp_and_udp_pass_both_ways_at_the_rate() {
    if !possible("the test of AF_XDP's rate") {
        return;
    }
    let bed = Bed::new(1);
    for (busy_poll, way_said) in [("", WAY), (" busy-poll", "AF_XDP in the driver, copying, busy polling")] {
        let conf = CONF.replace("100M", "20M").replace(" xdp", &format!(" xdp{busy_poll} fail closed"));
        let up = bed.up(&[&bed.folder.write("a.altq", conf)]);
        assert_eq!((way(&bed), programs(&bed)), (way_said.to_string(), 2));
        let [left, right] = [&bed.hosts[0].left, &bed.hosts[0].right];
        wait("the way", || {
            send(&bed, 0, 5001, 1);
            arrived(right) > 0
        });
        let len = 1_500_000;
        for (from, to, address) in [(left, right, "10.0.0.2:5002"), (right, left, "10.0.0.1:5002")] {
            let took = stream(from, to, address, len);
            // A segment of 1448 bytes costs 1538 on the wire. Less than the bucket and what the first
            // read found comes at once.
            let wire_ns = (len - 100_000) as u64 * 1538 / 1448 * 8 * 50;
            assert!(took >= Duration::from_nanos(wire_ns), "{took:?} for {len} bytes at 20M");
            println!("{address}{busy_poll}: {len} bytes in {took:?}");
        }
        let (before, wanted) = (arrived(right), 200);
        send(&bed, 0, 5001, wanted);
        wait("all datagrams", || arrived(right) >= before + u64::from(wanted));
        let stats = bed.ask(&["stats", "-j"]).ok().json();
        for egress in stats["bridges"][0]["egresses"].as_array().unwrap() {
            assert_eq!(egress["overrun_packets"], 0, "{egress}");
            // What came before the links were up, and nothing else.
            let refused = egress["refused"].as_object();
            assert!(refused.is_none_or(|all| all.keys().eq(["portdown"])), "{egress}");
            assert!(egress["port"]["total"]["sent_packets"].as_u64().unwrap() > 1_000, "{egress}");
        }
        let table = bed.ask(&["stats"]).ok().out;
        assert!(table.contains(&format!("\nby {way_said}\n")), "{table}");
        let said = terminate(up).ok().err;
        assert!(said.contains(&format!("bridging right0 and left0 by {way_said}, ")), "{said}");
        assert_eq!(programs(&bed), 0);
    }
}

#[test]
fn after_a_kill_the_kernel_carries_on_and_the_next_run_takes_over() {
    timed(|| {
        let Some((bed, conf, up, probes)) = under_load("the test of a kill with AF_XDP", CONF) else {
            return;
        };
        assert_eq!((way(&bed).as_str(), programs(&bed)), (WAY, 2));
        kill(&up, probes);
        assert_eq!(programs(&bed), 0);
        let seen = start_and_end(&bed, &conf, 1, || ());
        in_time!(seen.outage <= Duration::from_millis(50), "a start and an end: {seen:?}");
        bed.ask_inside(&["down", &conf]).ok();
        assert!(!filters(&bed).contains("weir"), "{}", filters(&bed));
    });
}

#[test]
fn while_a_worker_is_stopped_the_kernel_carries_and_nothing_comes_twice() {
    timed(|| {
        let Some((bed, _, up, probes)) = under_load("the test of a stop with AF_XDP", CONF) else { return };
        let (_, [before, after], without) = stop_and_go(&bed, &up, probes, 1);
        in_time!(after - before > 100, "{before} and {after} packets; {without}");
        assert!(without["how"].as_str().unwrap().contains("XDP programs above it"), "{without}");
    });
}

/// Parameters change in place; another way in is another bridge. What was deleted is bridged again.
#[test]
fn a_bridge_changes_and_its_interfaces_come_back() {
    let Some((bed, conf, up, probes)) = under_load("the test of a change with AF_XDP", CONF) else { return };
    let carried = || {
        let before = sent(&bed).0;
        wait("traffic by weir", || sent(&bed).0 > before + 20);
    };
    let apply = |text: String| {
        let file = bed.folder.write("b.altq", text);
        bed.ask(&["apply", &file]).ok().err
    };
    assert!(apply(CONF.replace("100M", "90M")).contains("2 exchanged"));
    carried();
    assert_eq!(way(&bed), WAY);
    apply(CONF.replace(" xdp", ""));
    assert_eq!((way(&bed).as_str(), programs(&bed)), ("AF_PACKET", 0));
    carried();
    apply(CONF.to_string());
    assert_eq!((way(&bed).as_str(), programs(&bed)), (WAY, 2));
    carried();
    let seen = probes.end();
    assert_eq!(seen.twice, 0, "{seen:?}");
    delete_and_make(&bed, || ());
    let Bed { boxed, hosts, .. } = &bed;
    wait("its program", || programs(&bed) == 2);
    // What does not fit is refused, and the old bridge goes on.
    terminate(up).ok();
    bed.ask_inside(&["down", &conf]).ok();
    for mtu in [3_700, 9_000] {
        inside(&hosts[0].left, &format!("ip link set eth0 mtu {mtu}"));
        inside(boxed, &format!("ip link set left0 mtu {mtu}"));
        let run = bed.try_up(&[&conf]);
        run.fails(3, &["interface left0: ", "`ip link set left0 mtu 1500`", "take `xdp` away"]);
        assert_eq!((programs(&bed), filters(&bed).contains("weir")), (0, false));
    }
}
