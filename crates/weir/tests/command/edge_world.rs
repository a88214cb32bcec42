//! An edge while the world around it moves: its bridge bypassed, its interface renamed, deleted and made again, its file
//! read again, and where the kernel routes.

use crate::bed::{Bed, arrived, connect, ended, inside, possible, send, terminate, wait};
use crate::calls::{CONF, Call, calls, class, edge, egress, end_all, flood, ready};
use crate::fail_open::{pause, signal};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_seed::{in_time, timed};

/// The kernel carries the calls for a while: none loses a packet, and each is what it was, by its next packet.
// Claim L85.
#[test]
fn flows_outlast_a_bypass() {
    timed(|| {
        let Some((bed, up)) = edge("the test of an edge that is bypassed", CONF) else { return };
        let calls = calls(&bed, 3);
        wait("the calls", || class(&bed)["flows"]["now"] == 3);
        let before = class(&bed);
        bed.ask(&["bypass", "on"]).ok();
        pause(600);
        bed.ask(&["bypass", "off"]).ok();
        pause(600);
        let after = class(&bed);
        let bps = |class: &serde_json::Value| class["allocator"]["allocated_bps"].as_u64().unwrap();
        in_time!(bps(&after) >= bps(&before), "{before} and then {after}");
        in_time!(after["flows"]["now"] == 3 && after["flows"]["admitted"] == 3, "{after}");
        assert_eq!(egress(&bed)["edge"]["recognition"]["found"]["rtp"], 3, "nobody is found twice");
        for call in end_all(calls) {
            in_time!(call.lost() == 0, "{} of {}", call.lost(), call.sent);
            // The kernel takes no mark for another: what it carried has none.
            let (came, marked) = call.marked_from(3);
            in_time!((15..=45).contains(&(came - marked)), "{} of {came} without a mark", came - marked);
        }
        terminate(up).ok();
    });
}

/// A call that has ended leaves its class after the `timeout`, which is set while the box runs.
// Claim T53.
#[test]
fn what_silence_is_is_set_while_it_runs() {
    timed(|| {
        let Some((bed, up)) = edge("the test of an edge whose calls end", CONF) else { return };
        let gone = |after_ms: u64| {
            let call = Call::start(&bed, 1, "10.0.0.1");
            wait("the call", || class(&bed)["flows"]["now"] == 1);
            call.end();
            pause(after_ms);
            class(&bed)["flows"]["now"] == 0
        };
        assert_eq!(bed.ask(&["edge", "get", "right0", "rt", "admit.timeout"]).ok().out, "admit.timeout=5s\n");
        assert!(!gone(3_000), "5 s have not passed");
        bed.ask(&["edge", "set", "right0", "rt", "admit.timeout=500ms"]).ok();
        // It is seen at the end of a window of 800 ms.
        wait("the end of the call", || class(&bed)["flows"]["now"] == 0);
        let short = gone(3_000);
        in_time!(short, "{}", class(&bed));
        terminate(up).ok();
    });
}

/// The interface gets another name: nothing is lost. It is deleted and made again: what is sent meanwhile is lost, and
/// afterwards each call is what it was.
// Claim L86.
#[test]
fn flows_outlast_their_interface() {
    timed(|| {
        let Some((bed, up)) = edge("the test of an edge whose interface moves", CONF) else { return };
        let calls = calls(&bed, 3);
        wait("the calls", || class(&bed)["flows"]["now"] == 3);
        inside(&bed.boxed, "ip link set right0 name other0");
        pause(300);
        inside(&bed.boxed, "ip link set other0 name right0");
        pause(300);
        for call in end_all(calls) {
            in_time!(call.lost() == 0, "{} of {}", call.lost(), call.sent);
            call.keeps_its_mark(3);
        }
        // A veth goes with both its ends: calls from the right, whose receiver stays, are the ones to watch.
        let before = egress(&bed)["edge"]["recognition"]["found"]["rtp"].as_u64().unwrap();
        let calls: Vec<Call> = (4..=6).map(|number| Call::start(&bed, number, "10.0.0.1")).collect();
        wait("the calls", || egress(&bed)["edge"]["recognition"]["found"]["rtp"] == before + 3);
        inside(&bed.boxed, "ip link del right0");
        pause(200);
        connect(&bed.hosts[0].right, &bed.boxed, "right0", 0, 2);
        let marked = || egress(&bed)["edge"]["contracts"][0]["in_profile_bytes"].as_u64().unwrap();
        wait("the link", || egress(&bed)["link"]["state"] == "up");
        let then = marked();
        wait("calls in their class", || marked() > then + 20 * 214);
        assert_eq!(egress(&bed)["edge"]["recognition"]["found"]["rtp"], before + 3, "nobody is found twice");
        for call in end_all(calls) {
            call.keeps_its_mark(3);
            in_time!(10 * call.lost() <= 9 * call.sent, "{} of {}", call.lost(), call.sent);
        }
        terminate(up).ok();
    });
}

/// A table of contracts in a file of its own: SIGHUP reads it again, and calls under contracts that stay lose nothing.
/// A table that is wrong changes nothing.
// Claim L87.
#[test]
fn sighup_reads_included_contracts() {
    if !possible("the test of SIGHUP with contracts in another file") {
        return;
    }
    timed(|| {
        let bed = Bed::new(1);
        let own = |line: &&str| !line.starts_with("sla left0 18");
        let main: String = CONF.lines().filter(own).map(|line| format!("{line}\n")).collect();
        let table = |rate: &str| format!("sla left0 18 10.0.0.128/25 bw {rate} shared 100 policy be\n");
        let file = bed.folder.write("a.altq", main + "include slas.altq\n");
        bed.folder.write("slas.altq", table("256K"));
        let up = bed.up(&[&file]);
        ready(&bed);
        let calls = calls(&bed, 2);
        wait("the calls", || class(&bed)["flows"]["now"] == 2);
        let rates = || {
            let listed = bed.ask(&["sla", "list", "-j"]).ok().json();
            let all = listed["contracts"].as_array().unwrap().clone();
            all.iter().map(|c| c["bandwidth_bps"].as_u64().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(rates(), [512_000, 256_000]);
        bed.folder.write("slas.altq", table("100K") + "sla left0 19 10.9.0.0/16 bw 1M\n");
        signal(&up, "-HUP");
        wait("the new table", || rates() == [512_000, 100_000, 1_000_000]);
        bed.folder.write("slas.altq", table("100K") + "sla left0 19 10.9.0.0/16 wb 1M\n");
        signal(&up, "-HUP");
        pause(300);
        assert_eq!(rates(), [512_000, 100_000, 1_000_000]);
        for call in end_all(calls) {
            in_time!(call.lost() == 0, "{} of {}", call.lost(), call.sent);
            call.keeps_its_mark(3);
        }
        let said = terminate(up).ok().err;
        assert!(said.contains("slas.altq:2:26") && said.contains("`bw`"), "{said}");
    });
}

/// Where the kernel routes, an edge before the interface finds calls that it forwards, and keeps them clean beside a flood.
// Claim L88.
#[test]
fn calls_that_the_kernel_routes_are_found() {
    if !possible("the test of an edge behind `attach nfqueue`") {
        return;
    }
    if Command::new("iptables").arg("-V").output().is_err() {
        eprintln!("SKIPPED: the test of an edge behind `attach nfqueue` needs iptables");
        return;
    }
    timed(|| {
        let bed = Bed::new(1);
        bed.route();
        let conf = CONF
            .replace("interface left0 bandwidth 100M fifoq\n", "")
            .replace("attach bridge left0", "attach nfqueue")
            .replace("left0", "right0");
        let up = bed.up(&[&bed.folder.write("a.altq", conf)]);
        ready(&bed);
        let stop = Arc::new(AtomicBool::new(false));
        let flood = flood(&bed, &stop);
        pause(500);
        let calls = calls(&bed, 3);
        pause(3_000);
        let now = class(&bed)["flows"]["now"].clone();
        for call in end_all(calls) {
            let (came, _) = call.marked_from(3);
            in_time!(came == call.sent - 3 && came > 100, "{came} of {} from the fourth on", call.sent - 3);
            call.keeps_its_mark(3);
        }
        assert_eq!(now, 3);
        stop.store(true, Ordering::Relaxed);
        flood.join().unwrap();
        send(&bed, 0, 5_002, 1);
        wait("the way", || arrived(&bed.hosts[0].right) > 0);
        terminate(up).ok();
    });
}

/// Another process takes over: the class keeps what it was granted, and calls lose nothing.
// Claim L78.
#[test]
fn a_takeover_keeps_what_was_granted() {
    timed(|| {
        let Some((bed, first)) = edge("the test of a takeover with an edge", CONF) else { return };
        let conf = bed.folder.path("a.altq");
        let calls = calls(&bed, 4);
        let allocated = || class(&bed)["allocator"]["allocated_bps"].as_u64().unwrap();
        wait("the allocation", || allocated() > 350_000);
        let pinned = "udp 10.0.0.1:4002 > 10.0.0.2:6002";
        bed.ask(&["flow", "pin", pinned]).ok();
        bed.ask(&["flow", "evict", "udp 10.0.0.1:4003 > 10.0.0.2:6003"]).ok();
        bed.ask(&["edge", "set", "right0", "rt", "law.gain=250K"]).ok();
        let refused = || {
            let flows = bed.ask(&["flows", "-j"]).ok().json()["flows"].as_array().unwrap().clone();
            flows.iter().filter(|flow| flow["state"] == "refused").count()
        };
        assert_eq!(refused(), 1);
        let (before, flows) = (allocated(), class(&bed)["flows"].clone());
        let second = bed.begin(&[&conf, "--takeover"]);
        ended(first).ok();
        in_time!(allocated() >= before, "{} after {before}", allocated());
        // Each is what it was, and none was found again.
        assert_eq!(class(&bed)["flows"], flows);
        assert_eq!((refused(), flows["now"].as_u64()), (1, Some(3)));
        assert_eq!(egress(&bed)["edge"]["recognition"]["found"]["rtp"], 4);
        bed.ask(&["flow", "evict", pinned]).fails(1, &["pinned"]);
        // What was set holds, until the file says otherwise. So it does when the edge changes.
        let gain = || bed.ask(&["edge", "get", "right0", "rt", "law.gain"]).ok().out;
        assert_eq!(gain(), "law.gain=250K\n");
        bed.folder.write("a.altq", CONF.replace("step 20K", "step 30K"));
        bed.ask(&["apply", &conf]).ok();
        assert_eq!(gain(), "law.gain=250K\n");
        assert_eq!(class(&bed)["flows"], flows);
        bed.folder.write("a.altq", CONF.replace("gain 300K", "gain 200K"));
        bed.ask(&["apply", &conf]).ok();
        assert_eq!(gain(), "law.gain=200K\n");
        bed.ask(&["flow", "evict", pinned]).fails(1, &["pinned"]);
        for call in end_all(calls) {
            in_time!(call.lost() == 0, "{} of {}", call.lost(), call.sent);
        }
        terminate(second).ok();
    });
}
