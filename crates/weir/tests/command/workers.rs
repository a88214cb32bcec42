//! `weir up` with `workers 2`: each direction of a bridge has a thread of its own.

use crate::bed::{Bed, Held, arrived, ended, possible, send, terminate, wait};
use crate::fail_open::{pause, under_load, within};
use crate::shape::{fits, of};
use crate::support::source;
use crate::trials::{
    bypass_and_fail, delete_and_make, hang_each, kill, moved, renumber, start_and_end, stop_and_go,
};
use std::net::UdpSocket;
use std::time::{Duration, Instant};
use weir_seed::{in_time, timed};

const CONF: &str = "\
interface right0 bandwidth 100M fifoq attach bridge left0 workers 2
interface left0 bandwidth 100M fifoq
";

/// Bytes of the payload of a datagram of the load, and what it costs on the wire with its headers.
const PAYLOAD: usize = 958;
const COST: u64 = PAYLOAD as u64 + 42 + 24;

/// Sends datagrams for two seconds, 30 Mbit/s of them; bit/s on the wire that come in the second one.
fn blast(from: &Held, to: &Held, address: &'static str) -> impl FnOnce() -> u64 {
    let (told, ready) = std::sync::mpsc::channel();
    let receiver = within(to, move || {
        let socket = UdpSocket::bind(address).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        told.send(()).unwrap();
        let (begun, mut came, mut room) = (Instant::now(), 0u64, [0; 2_000]);
        while begun.elapsed() < Duration::from_secs(2) {
            let one = socket.recv(&mut room).is_ok();
            came += u64::from(one && begun.elapsed() >= Duration::from_secs(1));
        }
        came * COST * 8
    });
    ready.recv().unwrap();
    let sender = within(from, move || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        let (start, mut sent) = (weir_sys::now(), 0u64);
        while weir_sys::now().since(start) < weir_core::units::Duration::from_secs(2) {
            (0..4).for_each(|_| _ = socket.send_to(&[0; PAYLOAD], address));
            sent += 4;
            let due = sent * COST * 8 * 1_000_000_000 / 30_000_000;
            weir_sys::sleep_until(start + weir_core::units::Duration::from_nanos(due));
        }
    });
    move || {
        sender.join().unwrap();
        receiver.join().unwrap()
    }
}

/// Each rate is as wanted, within 2 percent.
fn near(found: [u64; 2], wanted: [u64; 2]) -> bool {
    found.iter().zip(wanted).all(|(found, wanted)| found.abs_diff(wanted) * 50 <= wanted)
}

/// Both directions are offered more than they may carry, at once.
// Claim L50.
#[test]
fn each_direction_keeps_its_own_rate() {
    if !possible("the test of the rates of two workers") {
        return;
    }
    timed(|| {
        let bed = Bed::new(1);
        let conf = CONF.replacen("100M", "20M", 1).replacen("100M", "8M", 1);
        let up = bed.up(&[&bed.folder.write("a.altq", conf), "--cpus", "0,1"]);
        let hosts = &bed.hosts[0];
        wait("the way", || {
            send(&bed, 0, 5001, 1);
            arrived(&hosts.right) > 0
        });
        let forth = blast(&hosts.left, &hosts.right, "10.0.0.2:5002");
        let back = blast(&hosts.right, &hosts.left, "10.0.0.1:5002");
        let found = [forth(), back()];
        println!("{found:?} bit/s");
        in_time!(near(found, [20_000_000, 8_000_000]), "{found:?}");
        // Reversed.
        assert!(!near(found, [8_000_000, 20_000_000]));
        let now = bed.bridge();
        let page = std::fs::read_to_string(source("book/src/json.md")).unwrap();
        fits(&of(&page, "weir stats -j")["bridges"][0], &now, "").unwrap();
        let workers = now["workers"].as_array().unwrap();
        let sum: u64 = workers.iter().map(|worker| worker["steps"].as_u64().unwrap()).sum();
        assert!(workers.len() == 2 && now["steps"] == sum, "{now}");
        assert!(workers.iter().all(|worker| worker["cpu_ns"].as_u64().unwrap() > 0), "{now}");
        let names: Vec<&str> =
            now["egresses"].as_array().unwrap().iter().filter_map(|e| e["interface"].as_str()).collect();
        assert_eq!(names, ["left0", "right0"], "{now}");
        let table = bed.ask(&["stats"]).ok().out;
        assert!(table.contains("workers at ") && table.contains(" and "), "{table}");
        let status = bed.ask(&["status", "-j"]).json();
        let findings = status["findings"].as_array().unwrap();
        for name in names {
            assert!(findings.iter().any(|f| f["interface"] == name && f["class"].is_null()), "{status}");
        }
        let said = terminate(up).ok().err;
        assert!(said.contains("by AF_PACKET, 2 workers, ") && !said.contains("warning"), "{said}");
    });
}

/// More workers than processors are told of, and what is to be done about it. One of a bridge is not.
#[test]
fn a_start_warns_of_workers_without_processors() {
    if !possible("the test of more workers than processors") {
        return;
    }
    let bed = Bed::new(1);
    let warning = "weir: warning: 2 workers share 1 processor, so some wait for others: write a smaller `workers`, or name more processors in `--cpus`\n";
    for (conf, warned) in [(CONF.to_string(), true), (CONF.replace(" workers 2", ""), false)] {
        let up = bed.up(&[&bed.folder.write("a.altq", conf), "--cpus", "0"]);
        let said = terminate(up).ok().err;
        assert_eq!((said.contains(warning), said.contains("warning")), (warned, warned), "{said}");
    }
}

#[test]
fn after_a_kill_the_kernel_carries_on_and_the_next_run_takes_over() {
    timed(|| {
        let Some((bed, conf, up, probes)) = under_load("the test of a kill of two workers", CONF) else {
            return;
        };
        kill(&up, probes);
        let seen = start_and_end(&bed, &conf, 1, || ());
        in_time!(seen.lost == 0, "a start and an end: {seen:?}");
    });
}

#[test]
fn while_two_workers_are_stopped_the_kernel_carries_and_nothing_comes_twice() {
    timed(|| {
        let Some((bed, _, up, probes)) = under_load("the test of a stop of two workers", CONF) else {
            return;
        };
        let (_, [before, after], without) = stop_and_go(&bed, &up, probes, 2);
        in_time!(after - before > 500, "{before} and {after} packets; {without}");
    });
}

/// One of two workers hangs, in a running process: the kernel carries its direction.
// Claim L51.
#[test]
fn while_one_of_two_workers_hangs_the_kernel_carries_its_direction() {
    timed(|| hang_each("the test of one hanging worker of two", CONF));
}

/// What is asked of a bridge is done by both of its workers.
#[test]
fn bypass_fail_and_apply_are_of_both_workers() {
    timed(|| {
        let Some((bed, conf, up, probes)) = under_load("the test of changes of two workers", CONF) else {
            return;
        };
        bypass_and_fail(&bed, "left0");
        let faster = bed.folder.write("b.altq", CONF.replace("100M", "90M"));
        let applied = bed.ask(&["apply", &faster]).ok();
        assert!(applied.err.contains("0 of the ports changed in place, 2 exchanged"), "{applied:?}");
        for egress in bed.bridge()["egresses"].as_array().unwrap() {
            assert_eq!(egress["port"]["rate_bps"], 90_000_000, "{egress}");
        }
        bed.ask(&["rollback"]).ok();
        in_time!(moved(&bed, 200) > 200, "weir carries it");
        let seen = probes.end();
        assert_eq!(seen.twice, 0, "{seen:?}");
        in_time!(seen.lost == 0, "{seen:?}");
        let one = bed.folder.write("c.altq", CONF.replace(" workers 2", ""));
        renumber(&bed, [(&one, 1), (&conf, 2)]);
        terminate(up).ok();
    });
}

/// A device that is deleted and made again gets its two halves back, each in its thread.
#[test]
fn an_interface_that_is_back_is_of_both_workers() {
    timed(|| {
        let Some((bed, _, up, probes)) = under_load("the test of an interface of two workers", CONF) else {
            return;
        };
        delete_and_make(&bed, || _ = probes.end());
        terminate(up).ok();
    });
}

/// `workers 2` by takeover, without an outage.
// Claim L53.
#[test]
fn a_takeover_brings_the_second_worker() {
    timed(|| {
        let one = CONF.replace(" workers 2", "");
        let Some((bed, _, up, probes)) = under_load("the test of a takeover by two workers", &one) else {
            return;
        };
        let two = bed.folder.write("b.altq", CONF);
        let next = bed.begin(&[&two, "--takeover"]);
        ended(up).ok();
        assert_eq!(bed.bridge()["workers"].as_array().unwrap().len(), 2);
        pause(200);
        let seen = probes.end();
        assert_eq!((seen.lost, seen.twice), (0, 0), "{seen:?}");
        terminate(next).ok();
    });
}
