//! `weir lab` and `weir up` on real interfaces.

use crate::bed::{Bed, arrived, inside, mortal, namespace, possible, send, terminate, wait};
use crate::pcap;
use crate::shape::{fits, of};
use crate::support::{Folder, Run, WEIR, scenario, source, weir};
use std::net::UdpSocket;
use std::process::Command;
use std::time::{Duration, Instant};
use weir_seed::{in_time, timed};

const CONF: &str = "\
interface right0 bandwidth 10M priq attach bridge left0
class priq right0 voice NULL priority 3
class priq right0 rest NULL default
filter right0 voice 10.0.0.2 5001 0 0 17
interface left0
conditioner left0 seen <pass>
filter left0 seen 10.0.0.2 5001 0 0 17
";

#[test]
fn the_lab_names_the_place_of_a_class_that_does_not_exist() {
    if !possible("the test of classes in `weir lab`") {
        return;
    }
    let folder = Folder::new();
    let right = scenario("50%");
    let flow = right.replacen("[[flow]]\n", "[[flow]]\nclass = \"voise\"\n", 1);
    let expect = format!("{right}\n[[expect]]\nwhat = \"rate\"\nclass = \"voise\"\nmin = \"1k\"\n");
    for text in [flow, expect] {
        let line = text.lines().position(|line| line.contains("voise")).unwrap() + 1;
        let place = format!("s.toml:{line}:");
        weir(&["lab", &folder.write("s.toml", text)]).fails(2, &["there is no class `voise`", &place]);
    }
}

// Claim L47.
#[test]
fn the_lab_runs_the_simulators_scenario_and_writes_the_same_report() {
    if !possible("the test of `weir lab`") {
        return;
    }
    let folder = Folder::new();
    let toml = folder.write("s.toml", scenario("50%"));
    let lab = weir(&["lab", "-j", &toml, "--out", &folder.path("lab")]);
    assert!(lab.code == 0 || lab.code == 1, "on a busy machine an expectation may be missed: {lab:?}");
    let report = lab.json();
    let page = std::fs::read_to_string(source("book/src/json.md")).unwrap();
    fits(&of(&page, "weir sim -j"), &report, "").unwrap();
    assert_eq!(report["meta"]["kind"], "lab");
    assert!(report["flows"][0]["delivered_bytes"].as_u64().unwrap() > 100_000, "{}", report["flows"][0]);
    weir(&["sim", &toml, "--out", &folder.path("sim")]).ok();
    let (a, b) = (folder.path("sim/report.json"), folder.path("lab/report.json"));
    let compared = weir(&["compare", "-j", &a, &b]).ok().json();
    assert_eq!(compared["names"], serde_json::json!(["sim", "lab"]));
}

/// The testbed cannot carry such a link: what is measured is the machine.
// Claim L48.
#[test]
fn a_run_that_is_not_valid_exits_with_1() {
    if !possible("the test of invalid runs in `weir lab`") {
        return;
    }
    let text = scenario("50%");
    let without = text.split("[[expect]]").next().unwrap();
    let folder = Folder::new();
    let fast = without.replace("rate = \"10M\"", "rate = \"400G\"").replace("\"1G\"", "\"400G\"");
    assert_ne!(fast, without);
    let fast = weir(&["lab", &folder.write("fast.toml", fast)]);
    assert!(fast.code == 1 && fast.err.contains("the run is not valid: without shaping"), "{fast:?}");
    let slow = weir(&["lab", &folder.write("slow.toml", without)]);
    assert!(!slow.out.contains("nothing passed"), "{slow:?}");
}

/// Where the kernel routes: its own packets are queued, and pass by themselves when the box is gone.
// Claim L13.
#[test]
fn what_the_kernel_routes_is_queued() {
    if !possible("the test of `attach nfqueue`") {
        return;
    }
    if Command::new("iptables").arg("-V").output().is_err() {
        eprintln!("SKIPPED: the test of `attach nfqueue` needs iptables");
        return;
    }
    let (host, folder) = (namespace(), Folder::new());
    inside(&host, "ip link set lo up");
    let conf = "interface lo bandwidth 10M attach nfqueue priq\n\
                class priq lo voice NULL priority 1\n\
                class priq lo rest NULL priority 0 default\n\
                filter lo voice 0 5001 0 0 17\n";
    let (conf, socket) = (folder.write("q.altq", conf), folder.path("q.sock"));
    let weir_here = |arguments: &[&str]| -> Run {
        let run = Command::new("nsenter").args(["-t", &host.pid(), "-n", WEIR]).args(arguments).output();
        run.unwrap().into()
    };
    let rules = || {
        let run = Command::new("nsenter")
            .args(["-t", &host.pid(), "-n", "sh", "-c", "iptables -t mangle -S; ip6tables -t mangle -S"])
            .output();
        String::from_utf8(run.unwrap().stdout).unwrap().matches("--queue-bypass").count()
    };
    let send = |count: u32, port: u32| {
        let script = format!("for i in $(seq {count}); do echo -n x > /dev/udp/127.0.0.1/{port}; done");
        inside(&host, &script);
    };
    let start = || {
        let up = mortal("nsenter")
            .args(["-t", &host.pid(), "-n", WEIR, "up", &conf, "--socket", &socket])
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn();
        let up = crate::bed::Held(up.unwrap());
        // Rules of a run before it say nothing of this one.
        wait("weir up", || rules() == 2 && weir_here(&["stats", "--socket", &socket]).code == 0);
        up
    };
    let mut up = start();
    // Each datagram to a port without a receiver brings an ICMP error back, by the same interface.
    let before = arrived(&host);
    send(20, 5001);
    send(10, 5002);
    wait("the datagrams", || arrived(&host) - before == 30);
    let stats = weir_here(&["stats", "-j", "--socket", &socket]).ok().json();
    let classes = stats["bridges"][0]["egresses"][0]["port"]["classes"].as_array().unwrap();
    let sent = |name: &str| classes.iter().find(|c| c["name"] == name).unwrap()["sent_packets"].as_u64();
    assert_eq!((sent("voice"), sent("rest").unwrap() >= 10), (Some(20), true), "{stats}");
    weir_here(&["down", &conf]).fails(1, &["a running weir queues its packets"]);
    weir_here(&["bypass", "on", "--socket", &socket]).fails(1, &["not bypassed"]);
    // Killed: the rule stays and lets packets pass. The next one takes it over.
    up.0.kill().unwrap();
    up.0.wait().unwrap();
    assert_eq!(rules(), 2);
    send(5, 5001);
    assert_eq!(arrived(&host) - before, 35);
    let up = start();
    send(5, 5001);
    wait("the datagrams", || arrived(&host) - before == 40);
    let ended = terminate(up);
    assert!(ended.code == 0 && ended.err.contains("queueing what leaves by lo"), "{ended:?}");
    assert_eq!(rules(), 2);
    // Rules outlive the command that lays them: without it nobody says that there is none.
    let without = ["-t", &host.pid(), "-n", "env", "PATH=/nowhere", WEIR, "down", "lo"];
    let without: Run = Command::new("nsenter").args(without).output().unwrap().into();
    without
        .fails(2, &["interface lo has no path", "whether it has a rule cannot be seen", "install iptables"]);
    assert_eq!(rules(), 2);
    weir_here(&["down", "lo"]).ok();
    assert_eq!(rules(), 0);
    send(5, 5001);
    assert_eq!(arrived(&host) - before, 45);
}

/// An iptables that does not list its rules has perhaps one: nothing is said of it but that. Where the kernel has no table,
/// there is none.
#[test]
fn rules_that_cannot_be_listed_are_not_taken_for_none() {
    let what = "the test of an iptables that refuses";
    let found = |name: &str| {
        let places = ["/usr/sbin", "/sbin"].map(|folder| format!("{folder}/{name}"));
        places.into_iter().find(|path| std::path::Path::new(path).exists())
    };
    let (Some(old), Some(old6)) = (found("iptables-legacy"), found("ip6tables-legacy")) else {
        eprintln!("SKIPPED: {what} needs iptables-legacy");
        return;
    };
    if !possible(what) {
        return;
    }
    let (host, folder) = (namespace(), Folder::new());
    let conf = folder.write("q.altq", "interface lo bandwidth 10M fifoq attach nfqueue\n");
    let lock = folder.write("lock", "");
    let down = |what: &str| -> Run {
        let [path, lock] = [format!("PATH={}", folder.path("")), format!("XTABLES_LOCKFILE={lock}")];
        let down = ["-t", &host.pid(), "-n", "env", &path, &lock, WEIR, "down", what];
        Command::new("nsenter").args(down).output().unwrap().into()
    };
    let command = |name: &str, script: &str| {
        let path = folder.write(name, format!("#!/bin/sh\n{script}\n"));
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(path, executable).unwrap();
    };
    let refuses = |said: &str, code: u8| format!("echo \"{said}\" >&2; exit {code}");
    let no_table = "ip6tables v1.8.9 (legacy): can't initialize ip6tables table \\`mangle': ";
    for (said, code) in [
        (format!("{no_table}Table does not exist (do you need to insmod?)\nPerhaps your kernel"), 3),
        (format!("{no_table}Address family not supported by protocol\nPerhaps your kernel"), 3),
        ("ip6tables v1.8.9 (nf_tables): Failed to initialize nft: Protocol not supported".into(), 1),
    ] {
        ["iptables", "ip6tables"].iter().for_each(|name| command(name, &refuses(&said, code)));
        assert!(down(&conf).ok().err.contains("lo: it had no rule"), "{said}");
        down("lo").fails(2, &["interface lo has no path of Weir's"]);
    }
    let no_right = "iptables v1.8.9 (nf_tables): Could not fetch rule set generation id: Permission denied";
    command("iptables", &refuses(no_right, 4));
    for what in [&*conf, "lo"] {
        down(what).fails(1, &["iptables refuses to list its rules: ", "Permission denied"]);
    }
    // A kernel without IPv6 has the other rule all the same.
    command("iptables", &format!("exec {old} \"$@\""));
    let rule = "-t mangle -A POSTROUTING -o lo -j NFQUEUE --queue-num 22001 --queue-bypass";
    inside(&host, &format!("{old} {rule}"));
    // Its lock is held for longer than it waits.
    command("ip6tables", &format!("exec {old6} \"$@\""));
    let holds = std::fs::File::open(&lock).unwrap();
    holds.lock().unwrap();
    down("lo").fails(1, &["iptables refuses to list its rules: ", "lock", "try again when it has ended"]);
    drop(holds);
    command("ip6tables", &refuses(&format!("{no_table}Address family not supported by protocol"), 3));
    assert!(down("lo").ok().err.contains("the rule that hands its packets over is gone"));
    down("lo").fails(2, &["interface lo has no path of Weir's"]);
}

/// A `weir up` that is stopped lets packets pass within its limit, and queues them again when it goes on. An
/// interface that an apply takes away has no rule any more, and a start that fails leaves none.
#[test]
fn a_queue_that_nobody_serves_is_passed_by() {
    timed(|| {
        let what = "the test of a stopped `attach nfqueue`";
        if !possible(what) {
            return;
        }
        if Command::new("iptables").arg("-V").output().is_err() {
            eprintln!("SKIPPED: {what} needs iptables");
            return;
        }
        let bed = Bed::new(1);
        inside(&bed.boxed, "ip link set lo up");
        let bridge = "interface right0 bandwidth 10M fifoq attach bridge left0\n";
        let queue = "interface lo bandwidth 10M fifoq attach nfqueue\n";
        let both = bed.folder.write("both.altq", format!("{queue}{bridge}"));
        let one = bed.folder.write("one.altq", bridge);
        let rules = || {
            let show = "iptables -t mangle -S; ip6tables -t mangle -S";
            let run = Command::new("nsenter").args(["-t", &bed.boxed.pid(), "-n", "sh", "-c", show]).output();
            String::from_utf8(run.unwrap().stdout).unwrap().matches("--queue-bypass").count()
        };
        let broken =
            bed.folder.write("broken.altq", format!("{queue}interface right0 fifoq attach bridge none0\n"));
        assert_eq!((bed.try_up(&[&broken]).code, rules()), (2, 0));
        let up = bed.up(&[&both]);
        assert_eq!(rules(), 2);
        let egresses = bed.ask(&["stats", "-j"]).ok().json();
        let queues = egresses["bridges"].as_array().unwrap().iter().find(|b| b["interfaces"][0] == "nfqueue");
        assert_eq!(queues.unwrap()["egresses"].as_array().unwrap().len(), 1, "{egresses}");
        // Numbers by the loopback interface, one each 2 ms: the longest time in which none came.
        let pid = bed.boxed.0.id();
        let probes = std::thread::spawn(move || {
            weir_sys::enter_network_of(pid).unwrap();
            weir_sys::take_priority(weir_sys::Priority::Fifo);
            let socket = UdpSocket::bind("127.0.0.1:5001").unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(2))).unwrap();
            let (start, mut last, mut longest) = (Instant::now(), Instant::now(), Duration::ZERO);
            while start.elapsed() < Duration::from_millis(2500) {
                socket.send_to(b"number", "127.0.0.1:5001").unwrap();
                if socket.recv(&mut [0; 16]).is_ok() {
                    longest = longest.max(last.elapsed());
                    last = Instant::now();
                }
            }
            longest
        });
        let signal =
            |name: &str| assert!(Command::new("kill").args([name, &up.pid()]).status().unwrap().success());
        std::thread::sleep(Duration::from_millis(500));
        signal("-STOP");
        // Both rules go. iptables waits while another test changes rules.
        wait("a stopped box without rules", || rules() == 0);
        signal("-CONT");
        let longest = probes.join().unwrap();
        println!("nothing came for {longest:?}");
        // Ten times what it takes on a machine that does nothing else.
        in_time!(longest < Duration::from_millis(700), "{longest:?}");
        wait("the rule", || rules() == 2);
        // The MTU of the interface is followed.
        inside(&bed.boxed, "ip link set lo mtu 1400");
        let longest_bytes = || {
            let stats = bed.ask(&["stats", "-j"]).ok().json();
            let bridges = stats["bridges"].as_array().unwrap().clone();
            let queue = bridges.iter().find(|b| b["interfaces"][0] == "nfqueue").unwrap();
            queue["egresses"][0]["port"]["longest_bytes"].as_u64()
        };
        wait("the MTU", || longest_bytes() == Some(1414));
        // A datagram of 1480 bytes leaves as two fragments, of 1376 and 112 bytes of payload: 1,522 bytes as a
        // frame, and a header of 34 with 24 of overhead once more.
        let sent = || {
            let stats = bed.ask(&["stats", "-j"]).ok().json();
            let bridges = stats["bridges"].as_array().unwrap().clone();
            let queue = bridges.iter().find(|b| b["interfaces"][0] == "nfqueue").unwrap();
            let total = &queue["egresses"][0]["port"]["total"];
            ["sent_packets", "sent_bytes"].map(|name| total[name].as_u64().unwrap())
        };
        let before = sent();
        let datagrams = move || {
            weir_sys::enter_network_of(pid).unwrap();
            let socket = UdpSocket::bind("127.0.0.1:5002").unwrap();
            for _ in 0..10 {
                socket.send_to(&[0; 1480], "127.0.0.1:5002").unwrap();
                assert_eq!(socket.recv(&mut [0; 2000]).unwrap(), 1480);
            }
        };
        std::thread::spawn(datagrams).join().unwrap();
        let after = sent();
        assert_eq!([after[0] - before[0], after[1] - before[1]], [10, 10 * (1522 + 58)]);
        bed.ask(&["apply", &one]).ok();
        assert_eq!(rules(), 0);
        bed.ask(&["apply", &both]).ok();
        assert_eq!(rules(), 2);
        let ended = terminate(up);
        assert!(ended.err.contains("nobody serves its queue"), "{ended:?}");
        assert_eq!(rules(), 2);
    });
}

// Claim L05.
#[test]
fn a_box_passes_traffic_counts_it_and_leaves_nothing_behind() {
    if !possible("the test of `weir up`") {
        return;
    }
    let bed = Bed::new(1);
    let (conf, socket) = (bed.folder.write("a.altq", CONF), bed.socket());
    let up = bed.up(&[&conf]);

    // Nobody else may serve on the same socket.
    let second: Run = Command::new("nsenter")
        .args(["-t", &bed.boxed.pid(), "-n", WEIR, "up", &conf, "--socket", &socket])
        .output()
        .unwrap()
        .into();
    second.fails(1, &["another weir serves there"]);

    let right = &bed.hosts[0].right;
    let before = arrived(right);
    for port in [5001, 5002] {
        send(&bed, 0, port, 50);
    }
    wait("the traffic", || arrived(right) - before >= 100);
    assert_eq!(arrived(right) - before, 100, "nothing twice");

    let run = bed.ask(&["stats", "-j"]).ok();
    let stats = run.json();
    let page = std::fs::read_to_string(source("book/src/json.md")).unwrap();
    fits(&of(&page, "weir stats -j"), &stats, "").unwrap();
    let egresses = stats["bridges"][0]["egresses"].as_array().unwrap();
    let egress = egresses.iter().find(|e| e["interface"] == "right0").unwrap();
    let sent = |class: &str| {
        let all = egress["port"]["classes"].as_array().unwrap();
        all.iter().find(|c| c["name"] == class).unwrap()["sent_packets"].as_u64().unwrap()
    };
    assert_eq!(sent("voice"), 50, "{stats}");
    assert!(sent("rest") >= 50, "the other port, and ARP: {stats}");
    let table = bed.ask(&["stats"]).ok();
    assert!(table.out.contains("egress right0") && table.out.contains("voice"), "{}", table.out);
    // Without another word the worker asks for SCHED_FIFO; what it got is said.
    let priority = stats["bridges"][0]["priority"].as_str().unwrap();
    assert!(priority == "SCHED_FIFO 10" || priority.contains("(SCHED_FIFO 10: "), "{priority}");
    assert!(table.out.contains(&format!("of a processor, {priority}\n")), "{}", table.out);
    let conditioner = egress["port"]["conditioners"][0].clone();
    assert_eq!(
        (&conditioner["name"], &conditioner["values"]["passed"]),
        (&"seen".into(), &50.into()),
        "{stats}"
    );
    // Each port has drawn a seed, shows it as text and in JSON, and a replay takes it.
    let seeds: Vec<&str> = (0..2).map(|at| egresses[at]["port"]["seed"].as_str().unwrap()).collect();
    assert_ne!(seeds[0], seeds[1]);
    let (shared, trace) = (bed.folder.write("f.altq", "interface em0 bandwidth 1M fqcodel flows 16\n"), {
        let frames: Vec<_> = (0..200).map(|n| (0, pcap::frame(17, 1_000 + n / 10, 53, 0, 500))).collect();
        bed.folder.write("c.pcap", pcap::file(&frames, 65_535))
    });
    let orders = seeds.iter().map(|seed| {
        assert!(table.out.contains(&format!("seed {seed}")), "{}", table.out);
        let replay = || weir(&["replay", &shared, "em0", &trace, "--seed", seed]).ok().out;
        let order = replay();
        assert_eq!(replay(), order);
        order
    });
    let orders: Vec<String> = orders.collect();
    assert_ne!(orders[0], orders[1], "20 flows in 16 queues fall alike once in 10^20 pairs of seeds");
    let line = table.out.lines().skip_while(|line| !line.starts_with("CONDITIONER")).nth(1).unwrap_or("");
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[..3], ["seen", "offered", "50"], "{}", table.out);

    // SIGTERM ends it in order: last figures, exit 0, no socket.
    let ended = terminate(up).ok();
    assert!(ended.out.contains("voice"), "{ended:?}");
    assert!(!std::path::Path::new(&socket).exists(), "the socket is gone");
    bed.ask(&["stats"]).fails(1, &["is `weir up` running"]);
}

/// Two bridges of one file in one process, each with what its own lines say.
// Claim L04.
#[test]
fn one_process_runs_every_bridge_of_its_file() {
    if !possible("the test of two bridges") {
        return;
    }
    let bed = Bed::new(2);
    let text = "\
interface right0 bandwidth 10M fifoq attach bridge left0
interface left1 bandwidth 10M priq attach bridge right1
class priq left1 all NULL default
interface right1 bandwidth 10M priq attach bridge left1
class priq right1 voice NULL priority 3
class priq right1 rest NULL default
filter right1 voice 10.1.0.2 5001 0 0 17
";
    let conf = bed.folder.write("a.altq", text);
    let third = bed.folder.write("b.altq", format!("{text}interface left2 attach bridge left0\n"));
    let check = weir(&["check", &third]);
    assert!(
        check.code == 2 && check.out.contains("`left0` is bridged to `right0`, and to `left2`"),
        "{check:?}"
    );
    weir(&["up", &third, "--socket", &bed.socket()]).fails(2, &["`left0` is bridged to `right0`"]);
    weir(&["up", &conf, "--socket", &bed.socket(), "--cpus", "0,1023"]).fails(2, &["processor 1023"]);
    let up = bed.up(&[&conf, "--cpus", "0"]);
    send(&bed, 0, 5001, 10);
    send(&bed, 1, 5001, 20);
    wait("the traffic", || arrived(&bed.hosts[0].right) >= 10 && arrived(&bed.hosts[1].right) >= 20);
    let stats = bed.ask(&["stats", "-j"]).ok().json();
    let bridges = stats["bridges"].as_array().unwrap();
    let names: Vec<_> = bridges.iter().map(|b| b["interfaces"].to_string()).collect();
    assert_eq!(names, [r#"["right0","left0"]"#, r#"["left1","right1"]"#]);
    let egress = |bridge: usize, name: &str| {
        let all = bridges[bridge]["egresses"].as_array().unwrap();
        all.iter().find(|e| e["interface"] == name).unwrap().clone()
    };
    assert!(egress(0, "left0")["port"].is_null() && egress(1, "left1")["port"].is_object());
    let voice = &egress(1, "right1")["port"]["classes"][0];
    assert_eq!((&voice["name"], &voice["sent_packets"]), (&"voice".into(), &20.into()), "{stats}");
    assert!(egress(0, "right0")["sent_packets"].as_u64().unwrap() >= 10, "{stats}");
    // Each worker is a thread of its own, and stays on the processor that was named.
    let threads = std::fs::read_dir(format!("/proc/{}/task", up.pid())).unwrap();
    let workers = threads.filter_map(|thread| {
        let path = thread.ok()?.path();
        let name = std::fs::read_to_string(path.join("comm")).ok()?;
        name.starts_with("weir-worker").then(|| std::fs::read_to_string(path.join("status")).unwrap())
    });
    let pinned: Vec<bool> = workers.map(|status| status.contains("Cpus_allowed_list:\t0\n")).collect();
    assert_eq!(pinned, [true, true]);
    let ended = terminate(up).ok();
    let priority = bridges[0]["priority"].as_str().unwrap();
    let said = ["right0 and left0", "left1 and right1"]
        .map(|pair| format!("bridging {pair} by AF_PACKET, {priority}; fails "));
    assert!(said.iter().all(|words| ended.err.contains(words.as_str())), "{ended:?}");
}

/// The same laws decide in both, and the report says what became of each call.
// Claim L81.
#[test]
fn the_lab_runs_the_edge_and_says_who_was_refused() {
    if !possible("the test of the edge in `weir lab`") {
        return;
    }
    let folder = Folder::new();
    let calls = std::fs::read_to_string(source("examples/calls.toml")).unwrap();
    // Ten times as fast, and without what shows the time before.
    let all = calls.split("# Before: calls lose").next().unwrap();
    let short = all
        .replace("duration = \"40s\"", "duration = \"6s\"")
        .replace("recognise_from = \"10s\"", "recognise_from = \"1s\"")
        .replace("start = \"20s\"", "start = \"4s\"");
    let text = format!("{short}\n[[expect]]\nwhat = \"recognised\"\nflow = \"call\"\nvalue = \"100%\"\n");
    folder.write("calls.altq", std::fs::read_to_string(source("examples/calls.altq")).unwrap());
    let toml = folder.write("calls.toml", text);
    timed(|| {
        for kind in ["sim", "lab"] {
            let report = weir(&[kind, "-j", &toml]).ok().json();
            let flows = report["flows"].as_array().unwrap();
            let named = |name: &str| flows.iter().find(|flow| flow["name"] == name).unwrap();
            for call in 1..=5 {
                let call = named(&format!("call.{call}"));
                let at = call["recognised"].as_u64().unwrap();
                in_time!((50..=60).contains(&at), "{kind}: found at packet {at}");
                in_time!(call["admission"]["state"] == "admitted", "{kind}: {call}");
            }
            let sixth = named("sixth");
            in_time!(sixth["recognised"] == 4, "{kind}: {sixth}");
            in_time!(sixth["admission"]["state"] == "refused", "{kind}: {sixth}");
            let why = sixth["admission"]["why"].as_str().unwrap();
            in_time!(why.starts_with("class at ") && why.ends_with(", accept 90"), "{kind}: {why}");
            assert!(named("bulk.1").get("admission").is_none(), "{kind}");
        }
    });
}
