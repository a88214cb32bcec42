//! `weir up` while the world moves: interfaces that go down, change and go away, under load.

use crate::bed::{Bed, Held, arrived, connect, inside, mortal, possible, terminate, wait};
use serde_json::Value;
use std::process::Stdio;
use std::time::{Duration, Instant};

const CONF: &str = "\
interface right0 bandwidth 10M priq attach bridge left0
class priq right0 all NULL default
interface left0 bandwidth 10M priq
class priq left0 all NULL default
";

/// Datagrams from the left host to the right one, some hundred per second, until it is dropped.
fn load(bed: &Bed) -> Held {
    let left = &bed.hosts[0].left;
    // What stands for the far host keeps its address, so the near one need not ask for it again.
    inside(left, "ip neigh replace 10.0.0.2 lladdr 02:00:00:00:00:02 nud permanent dev eth0");
    let script = "exec 3> /dev/udp/10.0.0.2/5001; while true; do echo x >&3 || true; sleep 0.003; done";
    let load = mortal("nsenter")
        .args(["-t", &left.pid(), "-n", "bash", "-c", script])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    Held(load)
}

/// A box that is up, with its load, which passes; unless `what` is not possible here.
fn under_load(what: &str) -> Option<(Bed, Held, Held)> {
    if !possible(what) {
        return None;
    }
    let bed = Bed::new(1);
    let up = bed.up(&[&bed.folder.write("a.altq", CONF)]);
    let load = load(&bed);
    until_traffic(&bed);
    Some((bed, up, load))
}

fn link(bed: &Bed, name: &str) -> Value {
    bed.egress(name)["link"].clone()
}

/// How long it takes until traffic comes through.
fn until_traffic(bed: &Bed) -> Duration {
    let right = &bed.hosts[0].right;
    let (start, before) = (Instant::now(), arrived(right));
    wait("traffic", || arrived(right) > before);
    start.elapsed()
}

fn is(bed: &Bed, state: &str) {
    wait(state, || link(bed, "right0")["state"] == state);
}

/// Nothing that came to a port is unaccounted for, and what left it is not what was lost.
fn balanced(egress: &Value) {
    let total = &egress["port"]["total"];
    let number = |value: &Value| value.as_u64().unwrap();
    let dropped: u64 = total["dropped_packets"].as_object().unwrap().values().map(number).sum();
    let known = number(&total["sent_packets"]) + dropped + number(&total["inside_packets"]);
    assert_eq!(number(&total["offered_packets"]), known, "{egress}");
}

/// Deleted and made again: silence for ever, and its packets counted as sent, is what it was.
// Claim L24.
#[test]
fn an_interface_that_goes_away_is_bridged_again_when_it_is_back() {
    let Some((bed, up, _load)) = under_load("the test of an interface that is deleted") else { return };
    let Bed { boxed, hosts, .. } = &bed;
    let right = &hosts[0].right;
    let before = bed.egress("left0")["port"]["total"]["offered_packets"].as_u64().unwrap();

    // First deleted, then moved to another namespace, which is the same for who stays behind.
    for (round, away) in (1..).zip(["ip link del right0", "ip link set right0 netns $OTHER"]) {
        inside(boxed, &away.replace("$OTHER", &right.pid()));
        is(&bed, "gone");
        let lost = || bed.egress("right0")["port"]["classes"][0]["dropped_packets"]["gone"].as_u64();
        let sent = || bed.egress("right0")["port"]["classes"][0]["sent_packets"].clone();
        let (sent_before, lost_before) = (sent(), lost().unwrap_or(0));
        wait("what is lost to be counted", || lost().unwrap_or(0) > lost_before + 20);
        assert_eq!(sent(), sent_before, "nothing is sent to nowhere");
        if round == 2 {
            inside(right, "ip link del right0");
        }
        connect(right, boxed, "right0", 0, 2);
        let pause = until_traffic(&bed);
        assert!(pause < Duration::from_secs(1), "{pause:?}");
        eprintln!("round {round}: {} ms from an interface that is up to traffic", pause.as_millis());
        let changes = link(&bed, "right0")["changes"].clone();
        assert_eq!((&changes["gone"], &changes["back"]), (&round.into(), &round.into()), "{changes}");
    }
    for name in ["right0", "left0"] {
        balanced(&bed.egress(name));
    }
    // The other direction has not begun anew, and the load has brought no answer that is missing.
    let after = bed.egress("left0")["port"]["total"]["offered_packets"].as_u64().unwrap();
    assert!(after >= before && link(&bed, "left0")["state"] == "up");
    let said = terminate(up).ok().err;
    let counted = |words: &str| said.lines().filter(|line| line.contains(words)).count();
    assert_eq!(counted("weir: interface right0 is gone: what would leave by it is lost"), 2, "{said}");
    assert_eq!(counted("weir: interface right0 is back as device"), 2, "{said}");
    assert_eq!(counted("interface left0"), 0, "{said}");
}

// Claim L25.
#[test]
fn a_link_that_goes_down_changes_or_is_renamed_stays_bridged() {
    let Some((bed, up, _load)) = under_load("the test of a link that changes") else { return };
    let Bed { boxed, hosts, .. } = &bed;
    let again = |what: &str| {
        let pause = until_traffic(&bed);
        assert!(pause < Duration::from_secs(1), "{what}: {pause:?}");
    };

    inside(boxed, "ip link set right0 down");
    is(&bed, "down");
    inside(boxed, "ip link set right0 up");
    is(&bed, "up");
    again("down and up");
    inside(&hosts[0].right, "ip link set eth0 down");
    is(&bed, "no carrier");
    inside(&hosts[0].right, "ip link set eth0 up");
    is(&bed, "up");
    again("without a carrier");
    let lost = bed.egress("right0")["port"]["total"]["dropped_packets"].clone();
    assert!(lost["portdown"].as_u64().unwrap() > 0 && lost["gone"].is_null(), "{lost}");

    for mtu in [9000, 1500] {
        inside(boxed, &format!("ip link set right0 mtu {mtu}"));
        wait("the port to follow", || bed.egress("right0")["port"]["longest_bytes"] == mtu + 14);
        assert_eq!(link(&bed, "right0")["mtu"], mtu);
        assert_eq!(bed.egress("left0")["port"]["longest_bytes"], 1514, "the other side's has not changed");
        again("another MTU");
    }
    // A device that is up can be renamed, too.
    for name in ["right0 name other0", "other0 name right0"] {
        inside(boxed, &format!("ip link set {name}"));
        again("renamed");
    }
    balanced(&bed.egress("right0"));
    let changes = link(&bed, "right0")["changes"].clone();
    for (what, times) in [("down", 1), ("mtu", 2), ("renamed", 2)] {
        assert_eq!(changes[what], times, "{what}: {changes}");
    }
    let table = bed.ask(&["stats"]).ok().out;
    assert!(table.contains("link up, MTU 1500") && table.contains("renamed 2"), "{table}");
    let said = terminate(up).ok().err;
    for words in [
        "interface right0 is down",
        "interface right0 has no carrier",
        "interface right0 is up",
        "interface right0 has an MTU of 9000 bytes",
        "interface right0 has an MTU of 1500 bytes",
        "interface right0 is now called other0, and stays bridged",
        "interface right0 is now called right0, and stays bridged",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
}

/// Something that happens to an interface of the box, and what ends it. `IF` is the interface.
const EVENTS: [(&str, &str); 7] = [
    ("ip link set IF down", "ip link set IF up"),
    ("ip link set IF mtu 9000", "ip link set IF mtu 1500"),
    ("ip link set IF name other0", "ip link set other0 name IF"),
    ("ip link set IF name other0; ip link del other0", ""),
    ("ip link del IF", ""),
    (
        "ip link set IF down; ip link set IF mtu 1400; ip link set IF up; ip link set IF name other0",
        "ip link set other0 name IF",
    ),
    ("ip link del IF; ip link add IF type veth peer name other0; ip link set IF up", "ip link del IF"),
];

/// Whatever happens, in whatever order, on both sides: within a second of its end traffic is back.
/// `WEIR_EFFORT=30` has 300 events.
// Claim L26.
#[test]
fn a_box_survives_whatever_happens_to_its_interfaces() {
    let Some((bed, up, _load)) = under_load("the test of random events") else { return };
    let Bed { boxed, hosts, .. } = &bed;
    let mut longest = Duration::ZERO;
    for seed in weir_seed::seeds(10) {
        let (event, side) = ((seed >> 8) as usize % EVENTS.len(), (seed >> 16) as usize % 2);
        let ((trouble, end), name) = (EVENTS[event], ["left0", "right0"][side]);
        inside(boxed, &trouble.replace("IF", name));
        std::thread::sleep(Duration::from_millis(seed >> 24 & 63));
        if !end.is_empty() {
            inside(boxed, &end.replace("IF", name));
        }
        if trouble.contains("del") {
            let (host, address) = [(&hosts[0].left, 1), (&hosts[0].right, 2)][side];
            connect(host, boxed, name, 0, address);
            if side == 0 {
                inside(host, "ip neigh replace 10.0.0.2 lladdr 02:00:00:00:00:02 nud permanent dev eth0");
            }
        }
        let pause = until_traffic(&bed);
        assert!(pause < Duration::from_millis(1000), "{trouble}, {end}: {pause:?}");
        longest = longest.max(pause);
    }
    eprintln!("{} ms until traffic at most", longest.as_millis());
    // It is the worker that carries it, and not the path underneath.
    let sent = || bed.egress("right0")["port"]["total"]["sent_packets"].as_u64().unwrap();
    let before = sent();
    wait("the worker", || sent() > before + 20);
    for name in ["right0", "left0"] {
        balanced(&bed.egress(name));
        assert_eq!(link(&bed, name)["state"], "up");
    }
    terminate(up).ok();
}
