//! A running box changes: `apply`, `diff`, `set`, `confirm`, `rollback`, SIGHUP, the last good file.

use crate::bed::{Bed, Held, arrived, mortal, possible, send, terminate, wait};
use crate::shape::{fits, of};
use crate::support::{source, weir};
use serde_json::Value;
use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use weir_seed::{in_time, timed};

fn file(rate: u32, voice: u32) -> String {
    format!(
        "interface right0 bandwidth {rate}M cbq attach bridge left0\n\
         class cbq right0 root NULL pbandwidth 100\n\
         class cbq right0 voice root priority 5 pbandwidth {voice}\n\
         class cbq right0 rest root borrow pbandwidth 40 default\n\
         filter right0 voice 10.0.0.2 5001 0 0 17\n"
    )
}

fn rate(bed: &Bed) -> u64 {
    bed.egress("right0")["port"]["rate_bps"].as_u64().unwrap()
}

fn signal(process: &Held, name: &str) {
    assert!(Command::new("kill").args([name, &process.pid()]).status().unwrap().success());
}

/// What `-j` prints is what the book says.
fn documented(heading: &str, value: &Value) {
    let page = std::fs::read_to_string(source("book/src/json.md")).unwrap();
    fits(&of(&page, heading), value, "").unwrap();
}

// Claim L27.
#[test]
fn a_configuration_is_applied_shown_confirmed_and_taken_back() {
    if !possible("the test of `weir apply`") {
        return;
    }
    let bed = Bed::new(1);
    let first = bed.folder.write("first.altq", file(10, 20));
    let second = bed.folder.write("second.altq", file(20, 30));
    let in_place = bed.folder.write("third.altq", file(20, 25));
    let up = bed.up(&[&first]);
    send(&bed, 0, 5001, 10);
    wait("the traffic", || arrived(&bed.hosts[0].right) >= 10);
    let seed = bed.egress("right0")["port"]["seed"].clone();
    assert_eq!(bed.ask(&["diff", &first]).ok().out, "");
    let diff = bed.ask(&["diff", &second]);
    assert_eq!(diff.code, 1, "{diff:?}");
    let voice =
        "class voice of right0: changed\n  - class cbq right0 voice root priority 5 pbandwidth 20\n  + class";
    assert!(diff.out.contains(voice) && diff.out.contains("interface right0: changed"), "{diff:?}");
    documented("weir diff -j", &bed.ask(&["diff", "-j", &second]).json());

    let applied = bed.ask(&["apply", "-j", &second]).ok();
    documented("weir apply -j", &applied.json());
    assert!(
        applied.err.contains("2 differences, 0 of the ports changed in place, 1 exchanged"),
        "{applied:?}"
    );
    assert_eq!((rate(&bed), bed.ask(&["diff", &second]).code), (20_000_000, 0));
    // The port and what it has counted are the same.
    let port = bed.egress("right0")["port"].clone();
    assert_eq!(port["seed"], seed);
    let sent = |port: &Value| {
        port["classes"].as_array().unwrap().iter().find(|c| c["name"] == "voice").unwrap()["sent_packets"]
            .clone()
    };
    assert_eq!(sent(&port), 10);
    assert_eq!(bed.folder.read("state.altq"), file(20, 30), "the last good file");
    // Where only values differ, nothing is exchanged.
    let applied = bed.ask(&["apply", &in_place]).ok();
    assert!(
        applied.err.contains("1 difference, 1 of the ports changed in place, 0 exchanged"),
        "{applied:?}"
    );

    // One value, which the file does not say.
    let set = bed.ask(&["set", "right0", "voice", "pbandwidth", "35"]).ok();
    assert!(set.out.contains("+ class cbq right0 voice root priority 5 pbandwidth 35"), "{set:?}");
    bed.ask(&["set", "right0", "bandwidth", "30M"]).ok();
    assert_eq!(rate(&bed), 30_000_000);
    let diff = bed.ask(&["diff", &in_place]);
    assert!(
        diff.code == 1 && diff.out.contains("- class cbq right0 voice root priority 5 pbandwidth 35"),
        "{diff:?}"
    );
    bed.ask(&["set", "right0", "vioce", "pbandwidth", "35"]).fails(2, &["did you mean `voice`?"]);
    bed.ask(&["set", "right0", "voice", "pbandwidth", "90"]).fails(2, &["pbandwidth"]);
    bed.ask(&["set", "rigth0", "bandwidth", "1M"]).fails(2, &["did you mean `right0`?"]);
    // One step back, and no circle.
    bed.ask(&["rollback"]).ok();
    assert_eq!(rate(&bed), 20_000_000);
    bed.ask(&["rollback"]).fails(2, &["nothing ran before"]);

    // Unless somebody confirms, what ran before runs again, and the last good file stays.
    bed.ask(&["apply", &second]).ok();
    bed.ask(&["confirm"]).fails(2, &["nothing waits"]);
    let applied = bed.ask(&["apply", &first, "--confirm", "2s"]).ok();
    assert!(applied.err.contains("`weir confirm` keeps it"), "{applied:?}");
    assert_eq!((rate(&bed), bed.folder.read("state.altq")), (10_000_000, file(20, 30)));
    wait("the way back", || rate(&bed) == 20_000_000);
    assert_eq!(bed.ask(&["diff", &second]).code, 0);
    bed.ask(&["apply", &first, "--confirm", "1s"]).ok();
    bed.ask(&["confirm"]).ok();
    std::thread::sleep(Duration::from_millis(1_300));
    assert_eq!((rate(&bed), bed.folder.read("state.altq")), (10_000_000, file(10, 20)));
    bed.ask(&["apply", &second, "--confirm", "5m"]).ok();
    bed.ask(&["rollback"]).ok();
    assert_eq!(rate(&bed), 10_000_000);
    assert!(terminate(up).ok().err.contains("nobody confirmed"));
}

// Claim L28.
#[test]
fn a_bad_file_changes_nothing_and_says_what_is_wrong() {
    if !possible("the test of bad files") {
        return;
    }
    let bed = Bed::new(1);
    let first = bed.folder.write("first.altq", file(10, 20));
    let up = bed.up(&[&first]);
    let before = bed.egress("right0");
    let bad = bed.folder.write("bad.altq", file(10, 20).replace("pbandwidth 40", "pbandwidht 40"));
    for command in ["apply", "diff"] {
        bed.ask(&[command, &bad]).fails(2, &["bad.altq:4:35", "did you mean `pbandwidth`?"]);
    }
    // Its classes may not have more than all, a frame of the interface cannot be asked for, and there is no such interface.
    let over = bed.folder.write("over.altq", file(10, 90));
    let nobody =
        bed.folder.write("nobody.altq", file(10, 20) + "interface nobody fifoq attach bridge left7\n");
    let nothing = bed.folder.write("nothing.altq", "interface right0 bandwidth 10M fifoq\n");
    let two = bed.folder.write("two.altq", file(10, 20) + "interface left9 fifoq attach bridge left0\n");
    bed.ask(&["apply", &over]).fails(2, &["over.altq:4:35"]);
    bed.ask(&["apply", &nobody]).fails(2, &["no interface"]);
    bed.ask(&["apply", &nothing]).fails(2, &["attach bridge PEER"]);
    bed.ask(&["apply", &two]).fails(2, &["`left0` is bridged to `right0`"]);
    bed.ask(&["apply", &bed.folder.path("missing.altq")]).fails(2, &["missing.altq"]);
    let after = bed.egress("right0");
    assert_eq!(
        (&before["port"]["seed"], &before["port"]["rate_bps"]),
        (&after["port"]["seed"], &after["port"]["rate_bps"])
    );
    assert_eq!((bed.ask(&["diff", &first]).code, bed.folder.read("state.altq")), (0, file(10, 20)));

    // SIGHUP reads the file of the start again; a bad one changes nothing either.
    bed.folder.write("first.altq", file(25, 20));
    signal(&up, "-HUP");
    wait("the new rate", || rate(&bed) == 25_000_000);
    bed.folder.write("first.altq", "interface right0 bandwith 1M\n");
    signal(&up, "-HUP");
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!((rate(&bed), bed.folder.read("state.altq")), (25_000_000, file(25, 20)));

    // Killed, and the file is bad: the last good configuration runs where that is asked for.
    signal(&up, "-KILL");
    drop(up);
    let refused = bed.try_up(&[&first]);
    assert!(refused.code == 2 && refused.err.contains("first.altq:1:18"), "{refused:?}");
    let up = bed.up(&[&first, "--or-last-good"]);
    assert_eq!(rate(&bed), 25_000_000);
    assert!(terminate(up).ok().err.contains("so the last good configuration runs"));
    let up = bed.up(&["--last-good"]);
    assert_eq!(rate(&bed), 25_000_000);
    terminate(up).ok();
    let refused = bed.try_up(&[]);
    assert!(refused.code == 2 && refused.err.contains("<CONF>"), "{refused:?}");
}

/// Bridges come, go and change partners by an `apply`; one that stays is not touched.
// Claim L29.
#[test]
fn interfaces_are_added_removed_and_attached_anew() {
    if !possible("the test of bridges that come and go") {
        return;
    }
    let bed = Bed::new(3);
    let line = |a: &str, b: &str| format!("interface {a} bandwidth 10M fifoq attach bridge {b}\n");
    let write = |name: &str, lines: &[String]| bed.folder.write(name, lines.concat());
    let stays = line("right2", "left2");
    let one = write("1.altq", &[stays.clone(), line("right0", "left0")]);
    let two = write("2.altq", &[stays.clone(), line("right0", "left0"), line("right1", "left1")]);
    let crossed = write("3.altq", &[stays.clone(), line("right1", "left0"), line("right0", "left1")]);
    let gone = write("4.altq", &[stays, "interface right0 bandwidth 5M fifoq\n".into()]);
    let up = bed.up(&[&one]);
    let bridges = || {
        let stats = bed.ask(&["stats", "-j"]).ok().json();
        let all = stats["bridges"].as_array().unwrap().clone();
        let name = |b: &Value| b["interfaces"].to_string().replace(['"', '[', ']'], "");
        let steps = all[0]["uptime_ns"].as_u64().unwrap();
        (all.iter().map(name).collect::<Vec<_>>(), steps)
    };
    let (names, mut age) = bridges();
    assert_eq!(names, ["right2,left2", "right0,left0"]);
    let seed = bed.egress("right2")["port"]["seed"].clone();
    let mut passes = |conf: &str, expected: &[&str], way: Option<usize>| {
        bed.ask(&["apply", conf]).ok();
        let (names, now) = bridges();
        assert_eq!(names, expected);
        assert!(now > age, "the bridge that stays goes on");
        age = now;
        for bridge in way.into_iter().chain([2]) {
            let before = arrived(&bed.hosts[bridge].right);
            send(&bed, bridge, 5001, 5);
            wait("the traffic", || arrived(&bed.hosts[bridge].right) >= before + 5);
        }
    };
    passes(&two, &["right2,left2", "right0,left0", "right1,left1"], Some(1));
    passes(&crossed, &["right2,left2", "right1,left0", "right0,left1"], None);
    passes(&one, &["right2,left2", "right0,left0"], Some(0));
    passes(&gone, &["right2,left2"], None);
    assert_eq!(bed.egress("right2")["port"]["seed"], seed);
    // One that is down is refused before anything changes.
    crate::bed::inside(&bed.boxed, "ip link set left1 down");
    bed.ask(&["apply", &two]).fails(2, &["interface left1 is down", "ip link set left1 up"]);
    assert_eq!(bridges().0, ["right2,left2"]);
    terminate(up).ok();
}

// Claim L31.
#[test]
fn status_says_how_each_class_is_and_exits_by_it() {
    if !possible("the test of `weir status`") {
        return;
    }
    let bed = Bed::new(1);
    let conf = bed.folder.write("first.altq", file(10, 20));
    let up = bed.up(&[&conf]);
    let state = |class: Option<&str>| {
        let report = bed.ask(&["status", "-j"]).json();
        documented("weir status -j", &report);
        let found = report["findings"].as_array().unwrap().clone();
        let of = |f: &&Value| f["interface"] == "right0" && f["class"].as_str() == class;
        found.iter().find(of).map_or(Value::Null, |f| f["state"].clone())
    };
    wait("the class", || state(Some("voice")) == "idle");
    wait("the traffic", || {
        send(&bed, 0, 5001, 5);
        state(Some("voice")) == "active"
    });
    let table = bed.ask(&["status"]).ok();
    assert!(table.out.contains("right0") && table.out.contains("voice"), "{table:?}");
    wait("the end of the traffic", || state(Some("voice")) == "idle");
    bed.ask(&["bypass", "on"]).ok();
    wait("the bypass", || state(None) == "bypassed");
    let told = bed.ask(&["status"]);
    assert!(told.code == 1 && told.out.contains("BYPASSED"), "{told:?}");
    bed.ask(&["bypass", "off"]).ok();
    wait("weir", || bed.ask(&["status"]).code == 0);
    bed.ask(&["apply", &conf, "--confirm", "5m"]).ok();
    let told = bed.ask(&["status"]).out;
    assert!(told.contains("unless `weir confirm` comes") && told.contains("right0"), "at once: {told}");
    terminate(up).ok();
}

/// The unit's commands are commands: what they miss is the file.
// Claim L32.
#[test]
fn the_systemd_units_say_what_weir_understands() {
    for name in ["contrib/weir.service", "contrib/weir@.service"] {
        let unit = std::fs::read_to_string(source(name)).unwrap();
        for name in ["ExecStart=", "ExecReload="] {
            let line = unit.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            let conf = "/nonexistent/altq.conf";
            let words: Vec<&str> =
                line.split(' ').skip(1).map(|w| if w.ends_with(".conf") { conf } else { w }).collect();
            let words: Vec<&str> = words.into_iter().filter(|word| *word != "--or-last-good").collect();
            weir(&words).fails(2, &[conf]);
        }
        assert!(unit.contains("--or-last-good"));
        assert_eq!(unit.contains(" --takeover "), name.contains('@'));
    }
}

/// Flows of the load: a class each.
const FLOWS: u16 = 4;

/// The receiver of the load: counts what comes, what comes twice, and what is overtaken in its flow.
#[test]
#[ignore = "part of the test of applies under load"]
fn receives_numbers() {
    let sockets: Vec<UdpSocket> =
        (0..FLOWS).map(|n| UdpSocket::bind(("0.0.0.0", 5001 + n)).unwrap()).collect();
    let (mut seen, mut last) =
        (vec![std::collections::HashSet::new(); sockets.len()], vec![None; sockets.len()]);
    let (mut twice, mut overtaken, mut since) = (0, 0, Instant::now());
    for socket in &sockets {
        socket.set_nonblocking(true).unwrap();
    }
    println!("ready");
    let patience =
        |seen: &[std::collections::HashSet<u32>]| if seen.iter().all(|s| s.is_empty()) { 20 } else { 2 };
    while since.elapsed() < Duration::from_secs(patience(&seen)) {
        let mut bytes = [0; 2000];
        let mut idle = true;
        for (flow, socket) in sockets.iter().enumerate() {
            while socket.recv(&mut bytes).is_ok() {
                let number = u32::from_be_bytes(bytes[..4].try_into().unwrap());
                twice += u32::from(!seen[flow].insert(number));
                overtaken += u32::from(last[flow].is_some_and(|last| last > number));
                (last[flow], since, idle) = (Some(number), Instant::now(), false);
            }
        }
        if idle {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    let count: usize = seen.iter().map(|s| s.len()).sum();
    println!("{{\"count\": {count}, \"twice\": {twice}, \"overtaken\": {overtaken}}}");
}

/// The sender of the load: 4,000 packets of 266 bytes on the wire a second are 8.5 Mbit/s.
#[test]
#[ignore = "part of the test of applies under load"]
fn sends_numbers() {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    let (start, end) = (Instant::now(), Duration::from_secs(env("SECONDS")));
    let mut sent = 0u32;
    while start.elapsed() < end {
        while u128::from(sent) < start.elapsed().as_micros() / 250 {
            let mut bytes = [0; 200];
            bytes[..4].copy_from_slice(&(sent / u32::from(FLOWS)).to_be_bytes());
            let flow = (sent % u32::from(FLOWS)) as u16;
            socket.send_to(&bytes, ("10.0.0.2", 5001 + flow)).unwrap();
            sent += 1;
        }
        std::thread::sleep(Duration::from_micros(250));
    }
    println!("{{\"sent\": {sent}}}");
}

fn env(name: &str) -> u64 {
    std::env::var(name).unwrap().parse().unwrap()
}

/// This program again, as one of the two above, in a namespace.
fn helper(namespace: &Held, name: &str, seconds: u64) -> std::process::Child {
    mortal("nsenter")
        .args(["-t", &namespace.pid(), "-n"])
        .arg(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", &format!("operate::{name}")])
        .env("SECONDS", seconds.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// What a helper printed as JSON.
fn printed(child: std::process::Child) -> Value {
    let out = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    let line = out.lines().find_map(|line| line.find('{').map(|at| &line[at..]));
    serde_json::from_str(line.unwrap_or_else(|| panic!("{out}"))).unwrap()
}

/// A file of another kind each time: disciplines, rates, shares and queues differ, and the four
/// flows keep their classes. None limits what the load needs.
fn random_file(random: &mut weir_core::Random) -> String {
    const QUEUES: [&str; 4] =
        ["wfq nqueues 16 hash full qsize 900000", "drr", "fifoq qlimit 2000", "fqcodel"];
    let (rate, kind, inner) = (11 + random.below(20), random.below(4), random.below(4) as usize);
    let discipline = ["priq", "hfsc", "cbq", "priq"][kind as usize];
    let mut text = format!("interface right0 bandwidth {rate}M {discipline} attach bridge left0\n");
    if kind == 2 {
        text += "class cbq right0 r NULL pbandwidth 100\n";
    }
    for (n, name) in ["a", "b", "c", "d"].iter().enumerate() {
        let share = 10 + random.below(10);
        let rest = match kind {
            0 => format!("NULL priority {n} qlimit 2000"),
            1 => format!("root pshare {share} qlimit 2000"),
            2 => format!("r borrow pbandwidth {share} qlimit 2000"),
            _ => format!("NULL priority {n} {}", QUEUES[inner]),
        };
        // Its word stands before those of the class's queue.
        let default = if n == 0 { " default" } else { "" };
        let (parent, options) = rest.split_once(' ').unwrap();
        text += &format!("class {discipline} right0 {name} {parent}{default} {options}\n");
        text += &format!("filter right0 {name} 0 {} 0 0 17\n", 5001 + n);
    }
    if random.below(2) == 0 {
        text += "interface left0\nconditioner left0 c <tbmeter 100M 100000 <pass><drop>>\nfilter left0 c 0 0 0 0 17\n";
    }
    text
}

/// A change under load costs nothing: every number arrives, once and in its order.
// Claim L30.
#[test]
fn two_hundred_applies_under_load_lose_double_and_reorder_nothing() {
    timed(|| {
        if !possible("the test of applies under load") {
            return;
        }
        const SECONDS: u64 = 8;
        let seed = weir_seed::seed();
        let mut random = weir_core::Random::new(seed);
        let bed = Bed::new(1);
        let conf = bed.folder.write("0.altq", random_file(&mut random));
        let up = bed.up(&[&conf]);
        // A device that has just come up takes nothing for up to a second, answers to ARP included.
        wait("the way", || {
            send(&bed, 0, 5_999, 1);
            arrived(&bed.hosts[0].right) > 0
        });
        let receiver = helper(&bed.hosts[0].right, "receives_numbers", 0);
        std::thread::sleep(Duration::from_millis(500));
        let sender = helper(&bed.hosts[0].left, "sends_numbers", SECONDS);
        let start = Instant::now();
        let mut applies = 0;
        while applies < 200 && start.elapsed() < Duration::from_secs(SECONDS) {
            let path = bed.folder.write("n.altq", random_file(&mut random));
            let applied = bed.ask(&["apply", &path]);
            assert_eq!(applied.code, 0, "{applied:?}: {}", bed.folder.read("n.altq"));
            applies += 1;
        }
        let sent = printed(sender)["sent"].clone();
        let got = printed(receiver);
        let stats = bed.ask(&["stats", "-j"]).ok().json();
        let context = format!("seed {seed}, {applies} applies: {got} of {sent}: {stats}");
        assert_eq!(got["twice"], 0, "{context}");
        in_time!(got["count"] == sent && got["overtaken"] == 0, "{context}");
        in_time!(applies >= 50, "{applies} applies in {SECONDS} s");
        in_time!(sent.as_u64().unwrap() > 10_000, "{sent}");
        terminate(up).ok();
    });
}
