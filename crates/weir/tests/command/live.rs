//! `weir up` on real interfaces: two namespaces, and the box in a third between them. The
//! namespaces live as long as the process that holds each, a bounded time in any case.

use crate::pcap;
use crate::shape::{fits, of};
use crate::support::{Folder, Run, WEIR, scenario, source, weir};
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const CONF: &str = "\
interface right bandwidth 10M priq attach bridge left
class priq right voice NULL priority 3
class priq right rest NULL default
filter right voice 10.0.0.2 5001 0 0 17
interface left
conditioner left seen <pass>
filter left seen 10.0.0.2 5001 0 0 17
";

/// A process that ends with the test, whatever becomes of the test.
struct Held(Child);

impl Held {
    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A command that dies with the test's thread, also when the test is killed.
fn mortal(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", program]);
    command
}

/// A network namespace, held by a process that sleeps.
fn namespace() -> Held {
    let child = mortal("unshare").args(["--net", "sleep", "120"]).stdin(Stdio::null()).spawn().unwrap();
    let held = Held(child);
    let ours = std::fs::read_link("/proc/self/ns/net").unwrap();
    wait("a namespace", || {
        std::fs::read_link(format!("/proc/{}/ns/net", held.pid())).is_ok_and(|theirs| theirs != ours)
    });
    held
}

fn wait(what: &str, mut ready: impl FnMut() -> bool) {
    let start = Instant::now();
    while !ready() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what} did not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn inside(namespace: &Held, script: &str) {
    let run: Run = Command::new("nsenter")
        .args(["-t", &namespace.pid(), "-n", "bash", "-ec", script])
        .stdin(Stdio::null())
        .output()
        .unwrap()
        .into();
    assert_eq!(run.code, 0, "{script}: {run:?}");
}

/// Datagrams that reached a host and that nobody there waited for.
fn arrived(host: &Held) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/net/snmp", host.pid())).unwrap();
    let mut udp = text.lines().filter(|l| l.starts_with("Udp:"));
    let (names, values) = (udp.next().unwrap(), udp.next().unwrap());
    let at = names.split(' ').position(|n| n == "NoPorts").unwrap();
    values.split(' ').nth(at).unwrap().parse().unwrap()
}

/// True if namespaces can be made here; else says that `what` is left out.
fn possible(what: &str) -> bool {
    let root =
        mortal("unshare").args(["--net", "true"]).stderr(Stdio::null()).status().is_ok_and(|s| s.success());
    let possible = root && Command::new("ip").arg("-V").output().is_ok_and(|o| o.status.success());
    if !possible {
        // Past the harness, which keeps what a test that passes prints by `eprintln!`.
        let _ = writeln!(std::io::stderr(), "SKIPPED: {what} needs root, iproute2 and util-linux");
    }
    possible
}

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

#[test]
fn a_box_passes_traffic_counts_it_and_leaves_nothing_behind() {
    if !possible("the test of `weir up`") {
        return;
    }
    let (a, b, box_) = (namespace(), namespace(), namespace());
    for (host, side, address) in [(&a, "left", "10.0.0.1"), (&b, "right", "10.0.0.2")] {
        inside(
            host,
            &format!(
                "ip link add eth0 type veth peer name {side} netns {}; ip addr add {address}/24 dev eth0; \
                 ip link set lo up; ip link set eth0 up",
                box_.pid()
            ),
        );
        inside(&box_, &format!("ip link set {side} up"));
    }
    let folder = Folder::new();
    let (conf, socket) = (folder.write("a.altq", CONF), folder.path("weir.sock"));
    let child = mortal("nsenter")
        .args(["-t", &box_.pid(), "-n", WEIR, "up", &conf, "--socket", &socket])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut up = Held(child);
    wait("the socket", || weir(&["stats", "--socket", &socket]).code == 0);

    // Nobody else may serve on the same socket.
    let second: Run = Command::new("nsenter")
        .args(["-t", &box_.pid(), "-n", WEIR, "up", &conf, "--socket", &socket])
        .output()
        .unwrap()
        .into();
    second.fails(1, &["another weir serves there"]);

    let before = arrived(&b);
    for port in [5001, 5002] {
        inside(&a, &format!("for i in $(seq 50); do echo $i > /dev/udp/10.0.0.2/{port}; done"));
    }
    wait("the traffic", || arrived(&b) - before >= 100);
    assert_eq!(arrived(&b) - before, 100, "nothing twice");

    let run = weir(&["stats", "-j", "--socket", &socket]).ok();
    let stats = run.json();
    let page = std::fs::read_to_string(source("book/src/json.md")).unwrap();
    fits(&of(&page, "weir stats -j"), &stats, "").unwrap();
    let egress = stats["egresses"].as_array().unwrap().iter().find(|e| e["interface"] == "right").unwrap();
    let sent = |class: &str| {
        let all = egress["port"]["classes"].as_array().unwrap();
        all.iter().find(|c| c["name"] == class).unwrap()["sent_packets"].as_u64().unwrap()
    };
    assert_eq!(sent("voice"), 50, "{stats}");
    assert!(sent("rest") >= 50, "the other port, and ARP: {stats}");
    let table = weir(&["stats", "--socket", &socket]).ok();
    assert!(table.out.contains("egress right") && table.out.contains("voice"), "{}", table.out);
    let conditioner = egress["port"]["conditioners"][0].clone();
    assert_eq!(
        (&conditioner["name"], &conditioner["values"]["passed"]),
        (&"seen".into(), &50.into()),
        "{stats}"
    );
    // Each port has drawn a seed, shows it as text and in JSON, and a replay takes it.
    let seeds: Vec<&str> = (0..2).map(|at| stats["egresses"][at]["port"]["seed"].as_str().unwrap()).collect();
    assert_ne!(seeds[0], seeds[1]);
    let (shared, trace) = (folder.write("f.altq", "interface em0 bandwidth 1M fqcodel flows 16\n"), {
        let frames: Vec<_> = (0..200).map(|n| (0, pcap::frame(17, 1_000 + n / 10, 53, 0, 500))).collect();
        folder.write("c.pcap", pcap::file(&frames, 65_535))
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
    let kill = Command::new("kill").args(["-TERM", &up.pid()]).status().unwrap();
    assert!(kill.success());
    let mut status = None;
    wait("the end", || {
        status = up.0.try_wait().unwrap();
        status.is_some()
    });
    let mut out = String::new();
    std::io::Read::read_to_string(&mut up.0.stdout.take().unwrap(), &mut out).unwrap();
    assert_eq!(status.unwrap().code(), Some(0));
    assert!(out.contains("voice"), "{out}");
    assert!(!std::path::Path::new(&socket).exists(), "the socket is gone");
    weir(&["stats", "--socket", &socket]).fails(1, &["is `weir up` running"]);
}
