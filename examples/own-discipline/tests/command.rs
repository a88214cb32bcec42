//! The whole command with disciplines and an AQM of this crate: every subcommand knows them.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

use std::path::PathBuf;
use std::process::Command;

/// A folder of a test's own, removed at the end even if the test fails.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("own-discipline-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
    fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What the command prints, and its exit code.
fn command(arguments: &[&str]) -> (String, String, i32) {
    let output = Command::new(env!("CARGO_BIN_EXE_own-discipline")).args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr), output.status.code().unwrap_or(-1))
}

fn done(arguments: &[&str]) -> String {
    let (out, err, code) = command(arguments);
    assert_eq!(code, 0, "{arguments:?}: {out}{err}");
    out
}

const CONF: &str = "\
interface em0 bandwidth 10M edf
class edf em0 urgent NULL deadline 5
class edf em0 bulk NULL deadline 200 choke thmin 5 thmax 15 default
filter em0 urgent 0 5001 0 0 17
";

/// A stream of small datagrams beside two TCP connections and a flood, at 10 Mbit/s.
fn scenario() -> String {
    let quoted = CONF.replace('\n', "\\n");
    format!(
        r#"
duration = "3s"
host = [{{ name = "a" }}, {{ name = "b" }}, {{ name = "z" }}]
link = [
    {{ a = "a", b = "box", rate = "1G", delay = "2ms" }},
    {{ a = "b", b = "box", rate = "1G", delay = "2ms" }},
    {{ a = "box", b = "z", rate = "10M", delay = "3ms" }},
]
port = [{{ at = "box", to = "z", text = "{quoted}" }}]
[[flow]]
name = "urgent"
from = "a"
to = "z"
kind = "udp"
rate = "500k"
size = 200
port = 5001
class = "urgent"
[[flow]]
from = "b"
to = "z"
port = 5002
[[flow]]
name = "flood"
from = "b"
to = "z"
kind = "udp"
rate = "12M"
size = 1000
port = 5003
"#
    )
}

#[test]
fn it_is_listed_and_explained() {
    let all = done(&["disciplines"]);
    for name in ["edf", "lqf", "choke", "hfsc"] {
        assert!(all.lines().any(|line| line.starts_with(name)), "{name}: {all}");
    }
    assert!(done(&["disciplines", "edf"]).contains("deadline"));
    // The AQM's words stand with every class that has a queue.
    let priq = done(&["disciplines", "priq"]);
    assert!(priq.contains("CHOKe: drops pairs"), "{priq}");
    let folder = Folder::new("explain");
    let conf = folder.file("edf.altq", CONF);
    let out = done(&["explain", &conf, "em0", "udp 10.0.0.1:9 > 10.0.0.2:5001"]);
    assert!(out.contains("class   urgent"), "{out}");
}

#[test]
fn it_is_checked_by_its_own_words() {
    let folder = Folder::new("check");
    let out = done(&["check", &folder.file("edf.altq", CONF)]);
    assert!(out.contains("usable"), "{out}");
    let wrong = CONF.replace("thmin 5", "thmin 50");
    let (out, err, code) = command(&["check", &folder.file("wrong.altq", &wrong)]);
    assert!(code == 2 && out.contains("thm"), "{code}: {out}{err}");
    let wrong = CONF.replace("deadline 200", "deadlin 200");
    let (out, err, code) = command(&["check", &folder.file("typo.altq", &wrong)]);
    assert!(code == 2 && out.contains("did you mean `deadline`"), "{code}: {out}{err}");
}

#[test]
fn its_own_check_refuses_at_line_and_column() {
    let folder = Folder::new("hook");
    // 1514 bytes and 24 on the wire take 12.3 ms at 1 Mbit/s.
    let slow = CONF.replace("10M", "1M");
    let path = folder.file("slow.altq", &slow);
    let (out, err, code) = command(&["check", &path]);
    assert_eq!(code, 2, "{out}{err}");
    assert!(out.contains("class `urgent`: `deadline` cannot be 5ms"), "{out}");
    assert!(out.contains("slow.altq:2:27"), "{out}");
    // Prose is folded at 80 columns.
    assert!(out.split_whitespace().collect::<Vec<_>>().join(" ").contains("write `deadline 13`"), "{out}");
    // The mend works, and what is less is not enough.
    let mended = slow.replace("deadline 5\n", "deadline 13\n");
    assert!(done(&["check", &folder.file("mended.altq", &mended)]).contains("usable"));
    let less = slow.replace("deadline 5\n", "deadline 12\n");
    assert_eq!(command(&["check", &folder.file("less.altq", &less)]).2, 2);
    // The overhead counts.
    let bare = less.replace("1M edf", "1M overhead 0 edf").replace("deadline 12", "deadline 12200us");
    assert!(done(&["check", &folder.file("bare.altq", &bare)]).contains("usable"));
    // Its check warns of what is lawful.
    let twins = CONF.replace("deadline 200", "deadline 5");
    let said = done(&["check", &folder.file("twins.altq", &twins)]);
    assert!(said.contains("classes `urgent` and `bulk` have one deadline, 5ms"), "{said}");
    assert!(!done(&["check", &folder.file("good.altq", CONF)]).contains("one deadline"));
}

#[test]
fn it_adds_a_class_with_its_filters() {
    let folder = Folder::new("lower");
    let path = folder.file("routing.altq", &CONF.replace("10M edf", "10M edf routing 20"));
    assert!(done(&["check", &path]).contains("usable"));
    let ospf = "proto 89 10.0.0.1 > 10.0.0.5";
    let out = done(&["explain", &path, "em0", ospf]);
    assert!(out.contains("class   routing"), "{out}");
    // Reversed: without the word the packet goes to the default class.
    let out = done(&["explain", &folder.file("plain.altq", CONF), "em0", ospf]);
    assert!(out.contains("class   bulk"), "{out}");
    // It is served by its deadline, before bulk that came earlier.
    let trace = folder.file("three.csv", "rate 1000000\n0,bulk,1000\n0,bulk,1000\n0,routing,500\n");
    let out = done(&["replay", &path, "em0", &trace, "--rate", "1M"]);
    assert!(out.starts_with("D,8000000,bulk,1000,0\nD,12000000,routing,500,2\n"), "{out}");
}

#[test]
fn it_is_replayed() {
    let folder = Folder::new("replay");
    let conf = folder.file("edf.altq", CONF);
    let trace = folder.file("four.csv", "rate 1000000\n0,bulk,1000\n0,bulk,1000\n0,bulk,500\n0,urgent,200\n");
    // The first finds the wire idle; then the urgent packet has the earliest deadline.
    let expected = "D,8000000,bulk,1000,0\nD,9600000,urgent,200,3\n";
    let out = done(&["replay", &conf, "em0", &trace, "--rate", "1M"]);
    assert!(out.starts_with(expected), "{out}");
}

#[test]
fn it_is_timed() {
    let out = done(&["bench", "edf-8", "choke", "-j"]);
    let timed: serde_json::Value = serde_json::from_str(&out).unwrap();
    for (index, name) in ["edf-8", "choke"].into_iter().enumerate() {
        let bench = &timed["benches"][index];
        assert_eq!(bench["name"], name, "{out}");
        assert!(bench["total_ns"].as_f64().is_some_and(|ns| ns > 1.0), "{out}");
    }
    let (_, err, code) = command(&["bench", "nonsense"]);
    assert!(code == 2 && err.contains("edf"), "{code}: {err}");
}

/// The port that the command reports, by simulation or live.
fn ran(subcommand: &str, folder: &Folder) {
    let scenario = folder.file("edf.toml", &scenario());
    let out = done(&[subcommand, &scenario, "-j"]);
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    let port = &report["ports"][0];
    assert_eq!(port["discipline"], "edf", "{out}");
    let class = |name: &str| {
        let all = port["classes"].as_array().unwrap();
        all.iter().find(|class| class["name"] == name).unwrap().clone()
    };
    let sent = class("urgent")["sent"]["packets"].as_u64().unwrap();
    assert!(sent > 500, "{out}");
    let worst = class("urgent")["delay"]["p99_ns"].as_u64().unwrap();
    assert!(worst < 12_000_000, "urgent packets waited {worst} ns");
    let early = class("bulk")["dropped"]["early"]["packets"].as_u64();
    assert!(early.is_some_and(|n| n > 100), "CHOKe dropped {early:?}: {out}");
}

#[test]
fn it_is_simulated() {
    ran("sim", &Folder::new("sim"));
}

#[test]
fn it_runs_live() {
    if let Err(why) = weir_lab::bed::possible_here() {
        eprintln!("SKIPPED: {why}");
        return;
    }
    ran("lab", &Folder::new("lab"));
}

/// RED has `thmin` too, and takes 0 for its default. What this AQM declares counts for it, in a class as on an interface.
#[test]
fn a_word_of_several_aqms_has_the_bounds_of_the_one_that_is_asked_for() {
    let folder = Folder::new("bounds");
    let conf = folder.file("bounds.altq", &CONF.replace("thmin 5", "thmin 0"));
    let (out, _, code) = command(&["check", &conf]);
    assert_eq!(code, 2, "{out}");
    assert!(out.contains("bounds.altq:3:") && out.contains("a whole number from 1 to 1000000"), "{out}");
}
