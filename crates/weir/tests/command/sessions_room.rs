//! Sessions and contracts where there is no room for them, or none any more: another file takes it away while they are in effect.

use crate::bed::{Bed, mortal, possible, terminate};
use crate::broker::Process;
use crate::calls::{CONF, calls, class, edge, egress, end_all, ready};
use crate::fail_open::pause;
use crate::leases::{FROM, wait};
use crate::sessions::{QOD, RATE, asked, becomes, broker_file, burst, http, shape};
use crate::support::{Folder, WEIR};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use weir_seed::{in_time, timed};

/// A class of CBQ beside another one that has so many per cent of 10 Mbit/s: what is left is all that sessions may have.
fn beside(socket: &str, percent: u64) -> String {
    format!(
        "\
broker core unix:{socket} edge e0 ttl 3s
interface left0 bandwidth 100M fifoq
interface right0 bandwidth 10M attach bridge left0 cbq
class cbq right0 root NULL pbandwidth 100
class cbq right0 rt root priority 5 pbandwidth 1
class cbq right0 be root pbandwidth {percent} default
filter right0 rt 0 0 0 0 0 dscp EF
recognise left0 rtp 4/2s
sla left0 17 10.0.0.0/24 bw 800K shared 100 policy be
allocate right0 rt law fixed from 100K to 100K broker core
"
    )
}

/// How many sessions of its class are not in effect, and why.
fn left_out(bed: &Bed) -> Option<(u64, String)> {
    let left_out = &class(bed)["sessions_left_out"];
    Some((left_out["sessions"].as_u64()?, left_out["why"].as_str()?.to_owned()))
}

const NO_ROOM: &str = "class rt of interface right0 has no room for its rate";

/// Two sessions fit, and a third does not: it stays REQUESTED, is tried for half a minute, and is UNAVAILABLE then. Another file
/// leaves room for one: the newer one is out of effect, comes back with its room, and ends if that does not come.
// Claim L94.
#[test]
fn sessions_without_room_end_with_their_reason() {
    if !possible("the test of sessions without room") {
        return;
    }
    timed(|| {
        let (folder, bed) = (Folder::new(), Bed::new(1));
        broker_file(&folder, 2_000_000);
        let socket = folder.path("broker.sock");
        let _broker = Process::by(mortal(WEIR), &folder);
        let roomy = bed.folder.write("a.altq", beside(&socket, 90));
        let narrow = bed.folder.write("b.altq", beside(&socket, 94));
        let up = bed.up(&[&roomy]);
        ready(&bed);
        let begin = |port| http(&socket, "POST", QOD, &asked(port, 600)).1;
        let now = |session: &Value| {
            http(&socket, "GET", &format!("{QOD}/{}", session["sessionId"].as_str().unwrap()), &Value::Null).1
        };
        let taken =
            || http(&socket, "GET", "/v1/resources", &Value::Null).1["resources"][0]["taken_bps"].clone();
        let first = begin(7_001);
        becomes(&socket, &first, "AVAILABLE");
        let second = begin(7_002);
        becomes(&socket, &second, "AVAILABLE");
        assert_eq!(shape(&bed), (FROM, 2 * RATE));

        let (third, since) = (begin(7_003), Instant::now());
        wait("what the box says", || left_out(&bed).is_some());
        assert_eq!(left_out(&bed), Some((1, NO_ROOM.into())));
        let text = bed.ask(&["status"]).out.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            text.contains(&format!(
                "2 sessions with 800 kbit/s besides, 1 session is not in effect, because {NO_ROOM}"
            )),
            "{text}"
        );
        while now(&third)["qosStatus"] == "REQUESTED" {
            assert_eq!(shape(&bed), (FROM, 2 * RATE), "it takes nothing from the others");
            in_time!(since.elapsed() < Duration::from_secs(33), "{}", now(&third));
            pause(500);
        }
        assert!(since.elapsed() >= Duration::from_secs(29), "{:?}", since.elapsed());
        let over = now(&third);
        assert_eq!(
            (&over["qosStatus"], &over["statusInfo"], &over["startedAt"]),
            (&json!("UNAVAILABLE"), &json!("NETWORK_TERMINATED"), &Value::Null),
            "{over}"
        );
        wait("its bandwidth", || taken() == json!(2 * RATE));
        wait("the box", || left_out(&bed).is_none());
        assert_eq!(burst(&bed, 7_003).1, 0);

        // Room for one: the newer one goes, and comes back.
        bed.ask(&["apply", &narrow]).ok();
        wait("one session", || shape(&bed) == (FROM, RATE));
        assert_eq!((burst(&bed, 7_001), burst(&bed, 7_002).1), ((20, 20), 0));
        bed.ask(&["apply", &roomy]).ok();
        wait("both sessions", || shape(&bed) == (FROM, 2 * RATE));
        assert_eq!((burst(&bed, 7_001), burst(&bed, 7_002)), ((20, 20), (20, 20)));
        assert_eq!(now(&second)["qosStatus"], "AVAILABLE");
        // And it ends.
        bed.ask(&["apply", &narrow]).ok();
        wait("what the box says", || left_out(&bed).is_some());
        let over = Instant::now();
        while now(&second)["qosStatus"] == "AVAILABLE" {
            assert_eq!(shape(&bed), (FROM, RATE));
            in_time!(over.elapsed() < Duration::from_secs(45), "{}", now(&second));
            pause(500);
        }
        assert_eq!(now(&second)["statusInfo"], "NETWORK_TERMINATED");
        wait("its bandwidth", || taken() == json!(RATE));
        assert_eq!((burst(&bed, 7_001), now(&first)["qosStatus"].clone()), ((20, 20), json!("AVAILABLE")));
        let said = terminate(up).ok().err;
        for session in [&second, &third] {
            let id = session["sessionId"].as_str().unwrap();
            assert!(said.contains(id) && said.contains(NO_ROOM), "{id}: {said}");
        }
    });
}

/// Another file takes from calls in effect what their contract or their class has: what is above it goes on as best effort or
/// goes, nothing is lost, and what comes back is theirs again.
// Claim L94.
#[test]
fn another_file_takes_from_contracts_in_effect() {
    timed(|| {
        let Some((bed, up)) = edge("the test of contracts that get less", CONF) else { return };
        let apply = |conf: String| {
            bed.ask(&["apply", &bed.folder.write("b.altq", conf)]).ok();
        };
        let calls = calls(&bed, 4);
        let now = || class(&bed)["flows"]["now"].as_u64().unwrap();
        wait("the calls", || now() == 4);
        let contract = || egress(&bed)["edge"]["contracts"][0].clone();
        let bytes = |of: &Value, what: &str| of[what].as_u64().unwrap();

        // A quarter of what they send.
        apply(CONF.replace("bw 512K", "bw 95K"));
        pause(500);
        let (before, since) = (contract(), Instant::now());
        pause(3_000);
        let (after, passed) = (contract(), since.elapsed());
        let marked = bytes(&after, "in_profile_bytes") - bytes(&before, "in_profile_bytes");
        let most = 95_000 * passed.as_millis() as u64 / 8_000;
        assert!(marked <= most + 2 * 1_538, "{marked} of {most}");
        assert!(bytes(&after, "best_effort_bytes") > bytes(&before, "best_effort_bytes") + marked, "{after}");
        assert_eq!(now(), 4, "a contract that is full evicts nobody");
        // Its class has less than they send: calls go until the others fit.
        apply(CONF.replace("from 256K to 512K", "from 64K to 256K"));
        wait("less", || class(&bed)["allocator"]["allocated_bps"].as_u64().unwrap() <= 256_000);
        wait("fewer calls", || now() <= 2);
        pause(3_000);
        let few = class(&bed);
        in_time!(few["flows"]["now"] == 2 && few["flows"]["evicted"] == 2, "{few}");
        assert_eq!(egress(&bed)["edge"]["recognition"]["found"]["rtp"], 4, "nobody is found twice");

        // The contract goes: its calls end, and nobody is marked any more.
        let none: String =
            CONF.lines().filter(|l| !l.starts_with("sla left0 17")).map(|l| format!("{l}\n")).collect();
        apply(none);
        assert_eq!(now(), 0);
        let held = || bed.ask(&["status", "-j"]).json()["brokers"][0]["held_bps"].as_u64().unwrap();
        wait("what the class gives back", || held() == 256_000);
        // It comes back: each is admitted anew.
        apply(CONF.to_owned());
        wait("the calls again", || now() == 4);
        pause(500);
        for call in end_all(calls) {
            in_time!(call.lost() == 0, "{} of {}", call.lost(), call.sent);
            call.keeps_its_mark(call.sent as u16 - 5);
        }
        terminate(up).ok();
    });
}
