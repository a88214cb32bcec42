//! What `weir up` refuses, because somebody else takes the frames of an interface, too.

use crate::bed::{Bed, arrived, inside, possible, send, terminate, wait};
use crate::support::{Run, WEIR};
use std::process::Command;

const CONF: &str = "interface right0 bandwidth 10M fifoq attach bridge left0\n";

/// `weir up` in the box, with a socket of its own, for a run that ends by itself.
fn refused(bed: &Bed, conf: &str) -> Run {
    let socket = bed.folder.path("second.sock");
    let run = Command::new("nsenter")
        .args(["-t", &bed.boxed.pid(), "-n", "timeout", "10", WEIR, "up", conf, "--socket", &socket])
        .output()
        .unwrap();
    run.into()
}

/// The command that a refusal names.
fn mend(run: &Run) -> String {
    // It may stand on a line of its own.
    let said = run.err.split_once("interface").unwrap_or_else(|| panic!("{run:?}")).1;
    said.split('`').nth(1).unwrap_or_else(|| panic!("no command: {said}")).to_owned()
}

/// Each case: what is done to the box, and the words of the refusal. The command in it mends it.
// Claim L17.
#[test]
fn an_interface_that_the_kernel_takes_is_refused_and_the_command_mends_it() {
    if !possible("the test of interfaces with another owner") {
        return;
    }
    let bed = Bed::new(1);
    let conf = bed.folder.write("a.altq", CONF);
    let forwarding = "sysctl -qw net/ipv4/conf/all/forwarding=1 net/ipv6/conf/all/forwarding=1";
    let cases = [
        ("ip link add br7 type bridge; ip link set left0 master br7", "a port of the bridge br7"),
        (&format!("{forwarding}; ip address add 10.9.0.1/24 dev right0"), "carries an address"),
        (&format!("{forwarding}; ip address add fd09::1/64 dev left0"), "carries an address"),
    ];
    for (trouble, words) in cases {
        inside(&bed.boxed, trouble);
        let run = refused(&bed, &conf);
        let mend = mend(&run);
        run.fails(3, &[words, "`weir up --force` goes on"]);
        inside(&bed.boxed, &mend);
    }
    // An address alone does no harm, nor does forwarding alone.
    inside(&bed.boxed, "sysctl -qw net/ipv4/conf/all/forwarding=0; ip address add 10.9.0.1/24 dev right0");
    terminate(bed.up(&[&conf])).ok();
    inside(&bed.boxed, "ip link set right0 nomaster; ip link set left0 master br7");
    let forced = terminate(bed.up(&[&conf, "--force"])).ok();
    assert!(forced.err.contains("weir: by force: interface left0"), "{forced:?}");
}

// Claim L18.
#[test]
fn the_two_ends_of_one_wire_are_no_bridge() {
    if !possible("the test of a bridge in a circle") {
        return;
    }
    let bed = Bed::new(1);
    inside(&bed.boxed, "ip link add va type veth peer name vb; ip link set va up; ip link set vb up");
    let circle = bed.folder.write("a.altq", "interface va fifoq attach bridge vb\n");
    refused(&bed, &circle).fails(3, &["the ends of one veth pair"]);
    inside(&bed.boxed, "ip link property add dev va altname other");
    let same = bed.folder.write("a.altq", "interface va fifoq attach bridge other\n");
    refused(&bed, &same).fails(3, &["two names of one device"]);
}

/// Two that bridge the same pair gave every frame twice, without a word.
// Claim L19.
#[test]
fn two_weirs_do_not_manage_one_interface() {
    if !possible("the test of two owners") {
        return;
    }
    let bed = Bed::new(2);
    let conf = bed.folder.write("a.altq", CONF);
    let first = bed.up(&[&conf]);
    let right = &bed.hosts[0].right;
    for second in [CONF, "interface left1 fifoq attach bridge right0\n"] {
        let run = refused(&bed, &bed.folder.write("b.altq", second));
        assert_eq!(mend(&run), format!("kill {}", first.pid()));
        run.fails(3, &["another weir manages it", "`weir up --force` goes on"]);
    }
    let before = arrived(right);
    send(&bed, 0, 5001, 20);
    wait("the traffic", || arrived(right) - before >= 20);
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert_eq!(arrived(right) - before, 20, "nothing twice");
    // A device that is back is claimed anew; one whose owner was killed is free.
    inside(&bed.boxed, "ip link add vx type veth peer name vy; ip link del left0");
    inside(&bed.boxed, "ip link set vx name left0; ip link set left0 up; ip link set vy up");
    wait("the new device", || {
        let stats = bed.ask(&["stats"]).ok().out;
        stats.contains("back 1")
    });
    refused(&bed, &conf).fails(3, &["interface right0: another weir"]);
    let left = bed.folder.write("c.altq", "interface left0 fifoq attach bridge left1\n");
    refused(&bed, &left).fails(3, &["interface left0: another weir"]);
    drop(first);
    let forced = bed.up(&[&conf]);
    terminate(forced).ok();
}

/// Who begins to take the frames later is told of, and so is its end.
// Claim L20.
#[test]
fn a_second_owner_that_comes_later_is_told_of() {
    if !possible("the test of a later owner") {
        return;
    }
    let bed = Bed::new(1);
    let up = bed.up(&[&bed.folder.write("a.altq", CONF)]);
    let cases = [
        (
            "ip link add br7 type bridge; ip link set left0 master br7",
            "left0 nomaster",
            "a port of the bridge br7",
        ),
        (
            "ip address add 10.9.0.1/24 dev right0; sysctl -qw net/ipv4/conf/right0/forwarding=1",
            "10.9.0.1/24 dev right0",
            "carries an address",
        ),
    ];
    for (trouble, mend, words) in cases {
        let shown = || bed.ask(&["stats"]).ok().out.contains("TWICE");
        assert!(!shown());
        inside(&bed.boxed, trouble);
        wait("the warning", shown);
        let stats = bed.ask(&["stats", "-j"]).ok().out;
        assert!(stats.contains(words), "{stats}");
        let mend =
            stats.split('`').find(|text| text.starts_with("ip ") && text.ends_with(mend)).unwrap().to_owned();
        inside(&bed.boxed, &mend);
        wait("its end", || !shown());
    }
    let said = terminate(up).ok().err;
    for (_, _, words) in cases {
        assert_eq!(said.matches(words).count(), 1, "{said}");
    }
}
