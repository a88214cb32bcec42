//! `weir up` with an edge: calls are found, marked and held to contracts, on real sockets.

use crate::bed::{Bed, possible, terminate, wait};
use crate::calls::{
    CONF, Call, Ended, calls, class, documented, edge, egress, end_all, flood, ready, receiver, sender,
};
use crate::fail_open::pause;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use weir_core::units::Duration as Span;
use weir_seed::{in_time, timed};

/// The same without anything that looks at flows.
fn blind() -> String {
    let is_edge =
        |line: &&str| ["recognise", "sla", "allocate", "broker"].iter().any(|word| line.starts_with(word));
    CONF.lines().filter(|line| !is_edge(line)).map(|line| format!("{line}\n")).collect()
}

/// What a packet of best effort takes on the link of 10 Mbit/s.
const FLOOD_TIME: Duration = Duration::from_micros(820);

/// A call beside 16 Mbit/s on a link of 10: it loses a third and more, until flows are recognised. From then on
/// it loses nothing, and is marked from its fourth packet on.
// Claim L75.
#[test]
fn a_call_is_found_and_kept_clean_beside_a_flood() {
    if !possible("the test of recognition on a live link") {
        return;
    }
    timed(|| {
        let bed = Bed::new(1);
        let (without, with) = (bed.folder.write("a.altq", blind()), bed.folder.write("b.altq", CONF));
        let up = bed.up(&[&without]);
        ready(&bed);
        // What hosts and wires take by themselves.
        let call = Call::start(&bed, 3, "10.0.0.1");
        pause(2_000);
        let alone = call.end();
        let stop = Arc::new(AtomicBool::new(false));
        let flood = flood(&bed, &stop);
        pause(1_000);
        let call = Call::start(&bed, 1, "10.0.0.1");
        pause(3_000);
        let before = call.end();
        in_time!(10 * before.lost() >= 3 * before.sent, "{} of {} lost", before.lost(), before.sent);
        assert_eq!(before.marked_from(0).1, 0, "nobody marks");

        bed.ask(&["apply", &with]).ok();
        pause(500);
        let call = Call::start(&bed, 2, "10.0.0.1");
        pause(4_000);
        let after = call.end();
        let (came, marked) = after.marked_from(3);
        println!(
            "{} of {} lost before, {} of {} after",
            before.lost(),
            before.sent,
            after.lost(),
            after.sent
        );
        in_time!(came == after.sent - 3, "{came} of {} from the fourth on", after.sent - 3);
        let took = |call: &Ended| [50, 99].map(|percent| call.took(3, percent));
        let [alone, before, after_took] = [&alone, &before, &after].map(took);
        println!("p50 and p99: {alone:?} alone, {before:?} before, {after_took:?} after");
        // It waits for two packets of best effort at most, and for what the machine does.
        let most = alone[1] + 2 * FLOOD_TIME + Duration::from_millis(1);
        in_time!(
            after_took[1] <= most && before[0] > most,
            "{after_took:?} after {before:?}, at most {most:?}"
        );
        assert_eq!(came, marked, "each is marked from the fourth on");
        assert!(
            after.came.iter().filter(|(number, ..)| *number < 3).all(|(_, tos, _)| tos >> 2 == 0),
            "{after:?}"
        );
        let edge = egress(&bed)["edge"].clone();
        assert_eq!(edge["recognition"]["found"]["rtp"], 1, "{edge}");
        stop.store(true, Ordering::Relaxed);
        flood.join().unwrap();
        documented("weir stats -j", &bed.ask(&["stats", "-j"]).ok().json());
        let text = bed.ask(&["stats"]).ok().out;
        assert!(text.contains("found rtp 1") && text.contains("broker core: "), "{text}");
        terminate(up).ok();
    });
}

/// A bulk flow with headers of RTP is bounded by its contract, and harms nobody but itself. An apply while calls run
/// loses nothing of them. `recognise off` and `on` neither.
// Claim L76.
#[test]
fn a_liar_harms_itself_and_changes_lose_nothing() {
    timed(|| {
        let Some((bed, up)) = edge("the test of a liar on a live link", CONF) else { return };
        let stop = Arc::new(AtomicBool::new(false));
        let flood = flood(&bed, &stop);
        let calls = calls(&bed, 2);
        pause(1_000);
        // 4 Mbit/s, where its contract has 256 kbit/s.
        let liar = Call::of(&bed, 9, "10.0.0.200", Span::from_millis(2), 1_000);
        pause(3_000);
        let other = CONF.replace("bw 256K", "bw 200K").replace("[ls 0 0 2M]", "[ls 0 0 1M]");
        let applied = bed.ask(&["apply", &bed.folder.write("b.altq", other)]).ok();
        assert!(
            applied.err.contains("3 differences, 1 of the ports changed in place, 0 exchanged"),
            "{applied:?}"
        );
        pause(1_500);
        let liar = liar.end();
        let all = end_all(calls);
        for call in &all {
            let (came, _) = call.marked_from(3);
            in_time!(came == call.sent - 3, "{came} of {}", call.sent - 3);
            call.keeps_its_mark(3);
        }
        let (_, marked) = liar.marked_from(0);
        // 256 kbit/s for its time, and what the buckets hold.
        let bound = 256_000 * u64::from(liar.sent) * 2 / 1_000 / 8 + 2 * 32_000;
        assert!(u64::from(marked) * 1_042 <= bound, "{marked} marked, {bound} bytes");
        in_time!(
            10 * liar.lost() >= liar.sent,
            "it loses as best effort does: {} of {}",
            liar.lost(),
            liar.sent
        );
        let contracts = egress(&bed)["edge"]["contracts"].clone();
        assert!(contracts[1]["best_effort_bytes"].as_u64().unwrap() > 0, "{contracts}");

        // Off: nothing is marked, and nothing is lost by the change but what best effort loses.
        stop.store(true, Ordering::Relaxed);
        flood.join().unwrap();
        let call = Call::start(&bed, 3, "10.0.0.1");
        pause(500);
        documented("weir recognise -j", &bed.ask(&["recognise", "off", "left0", "-j"]).ok().json());
        pause(500);
        bed.ask(&["recognise", "on", "left0"]).ok();
        pause(500);
        let call = call.end();
        in_time!(call.lost() == 0, "{} of {}", call.lost(), call.sent);
        let unmarked = call.came.iter().filter(|(number, tos, _)| *number >= 3 && tos >> 2 != 46).count();
        in_time!((15..=40).contains(&unmarked), "{unmarked} while it was off");
        bed.ask(&["recognise", "on", "lfet0"]).fails(2, &["did you mean `left0`?"]);
        terminate(up).ok();
    });
}

/// Recognition is switched 1,000 times under three calls and 8 Mbit/s of others on a link of 10: no packet is lost, none comes twice,
/// and what is marked is what is counted.
// Claim T61.
#[test]
fn a_thousand_switches_of_recognition_lose_nothing() {
    timed(|| {
        let Some((bed, up)) = edge("the test of recognition that is switched", CONF) else { return };
        let (stop, done) = (Arc::default(), Arc::default());
        let bulk = |n: u32| {
            let mut bytes = vec![0; 958];
            bytes[2..4].copy_from_slice(&(n as u16).to_be_bytes());
            bytes
        };
        let came = receiver(&bed.hosts[0].right, 3_001, &done);
        let sent = sender(&bed.hosts[0].left, ("10.0.0.1", 3_000), 3_001, Span::from_millis(1), &stop, bulk);
        let calls = calls(&bed, 3);
        wait("the calls", || class(&bed)["flows"]["now"] == 3);
        let began = std::time::Instant::now();
        for n in 0..1_000 {
            let mut to = UnixStream::connect(bed.socket()).unwrap();
            let request =
                format!("{{\"ask\":\"recognise\",\"interface\":\"left0\",\"on\":{}}}\n", n % 2 == 1);
            to.write_all(request.as_bytes()).unwrap();
            let mut answer = String::new();
            to.read_to_string(&mut answer).unwrap();
            assert!(answer.contains(&format!("\"on\":{}", n % 2 == 1)), "{answer}");
            // The calls send 250 packets meanwhile, so that some come while it is off and some while it is on.
            pause(5);
        }
        println!("1,000 switches in {:?}", began.elapsed());
        wait("the calls again", || class(&bed)["flows"]["now"] == 3);
        pause(500);
        let ended = class(&bed)["flows"]["ended"].as_u64().unwrap();
        let all = end_all(calls);
        stop.store(true, Ordering::Relaxed);
        let sent = sent.join().unwrap();
        pause(300);
        done.store(true, Ordering::Relaxed);
        let came = came.join().unwrap();
        let lost: u32 = all.iter().map(Ended::lost).sum::<u32>() + sent - came.len() as u32;
        in_time!(lost <= 1, "{lost} of {sent} and of the calls");
        assert!(
            came.len() as u32 <= sent && came.iter().all(|(_, tos, _)| *tos == 0),
            "nothing is made or marked"
        );
        let (mut marked, mut unmarked) = (0, 0);
        for call in &all {
            let numbers: std::collections::BTreeSet<u16> =
                call.came.iter().map(|(number, ..)| *number).collect();
            assert_eq!(numbers.len(), call.came.len(), "none comes twice");
            let (came, with) = call.marked_from(0);
            (marked, unmarked) = (marked + u64::from(with), unmarked + came - with);
            let (came, with) = call.marked_from(call.sent as u16 - 20);
            in_time!(came == with, "{with} of the last {came} are marked");
        }
        // A call that was admitted when it was switched off ended: seldom all three, because a packet comes in 20 ms.
        in_time!(unmarked > 20 && ended > 20, "{unmarked} packets came without a mark, {ended} flows ended");
        let contract = egress(&bed)["edge"]["contracts"][0].clone();
        assert_eq!(
            contract["in_profile_bytes"].as_u64().unwrap(),
            marked * (172 + 8 + 20 + 14),
            "{contract}"
        );
        terminate(up).ok();
    });
}

/// Frames that come from the driver meet the same edge.
// Claim L75.
#[test]
fn frames_from_the_driver_meet_the_edge() {
    timed(|| {
        let conf = CONF.replace("attach bridge left0", "attach bridge left0 xdp");
        let Some((bed, up)) = edge("the test of an edge behind AF_XDP", &conf) else { return };
        let call = Call::start(&bed, 1, "10.0.0.1");
        pause(1_000);
        let call = call.end();
        let (came, _) = call.marked_from(3);
        in_time!(came == call.sent - 3 && came > 20, "{came} of {}", call.sent);
        call.keeps_its_mark(3);
        let way = bed.bridge()["way"].clone();
        assert!(way.as_str().unwrap().contains("AF_XDP"), "{way}");
        terminate(up).ok();
    });
}
