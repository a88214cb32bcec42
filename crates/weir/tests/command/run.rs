//! `weir sim`, `compare`, `explain`, `experiment`: runs, their files, their verdicts.

use crate::support::{Folder, Run, TWO_CLASSES, WEIR, scenario, source, unfolded, weir};
use serde_json::Value;
use std::process::Command;

const FILES: [&str; 5] = ["report.json", "samples.csv", "rate.svg", "delay.svg", "drops.svg"];

#[test]
fn a_simulation_is_the_same_twice_and_another_with_another_seed() {
    let folder = Folder::new();
    let toml = folder.write("s.toml", scenario("90%"));
    let simulate = |out: &str, more: &[&str]| {
        let out = folder.path(out);
        weir(&[&["sim", &toml, "--out", &out, "--packets"][..], more].concat()).ok()
    };
    let (first, second, other) = (simulate("1", &[]), simulate("2", &[]), simulate("3", &["--seed", "2"]));
    assert_eq!(first.out, second.out);
    for file in FILES.iter().chain(&["packets.csv"]) {
        let text = folder.read(&format!("1/{file}"));
        assert!(text.len() > 100, "{file} says nothing");
        assert!(text == folder.read(&format!("2/{file}")), "{file} differs");
    }
    let hash = |out: &str| {
        let report: Value = serde_json::from_str(&folder.read(&format!("{out}/report.json"))).unwrap();
        report["meta"]["events"].as_str().unwrap().to_owned()
    };
    assert_eq!(hash("1"), hash("2"));
    assert_ne!(hash("1"), hash("3"), "the seed moves the call's on and off times");
    assert_ne!(first.out, other.out);
    assert!(first.out.contains(&hash("1")) && first.out.contains("voice"), "{}", first.out);
    for plot in ["rate.svg", "delay.svg", "drops.svg"] {
        let svg = folder.read(&format!("1/{plot}"));
        assert!(
            svg.starts_with("<svg") && svg.contains("voice") && svg.trim_end().ends_with("</svg>"),
            "{plot}"
        );
    }
    let report = folder.read("1/report.json");
    assert_eq!(weir(&["sim", "-j", &toml]).ok().out.trim(), report.trim(), "-j prints the same report");
}

#[test]
fn a_missed_expectation_fails_with_1_and_is_shown() {
    let folder = Folder::new();
    // More than the whole link can not be used, and a call leaves no room for less than half.
    let toml = folder.write("s.toml", scenario("100%").replace("min = \"100%\"", "max = \"50%\""));
    let run = weir(&["sim", &toml]);
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.out.contains("MISS") && run.out.contains("utilisation"), "{}", run.out);
    assert!(run.err.contains("an expectation was missed"), "{}", run.err);
    let run = weir(&["sim", "-j", &toml]);
    assert_eq!(run.code, 1);
    assert_eq!(run.json()["checks"][0]["pass"], false);
}

#[test]
fn two_reports_side_by_side() {
    let folder = Folder::new();
    let toml = folder.write("s.toml", scenario("90%"));
    for (out, seed) in [("a", "1"), ("b", "2")] {
        weir(&["sim", &toml, "--out", &folder.path(out), "--seed", seed]).ok();
    }
    let (a, b) = (folder.path("a/report.json"), folder.path("b/report.json"));
    let table = weir(&["compare", &a, &b]).ok();
    assert!(table.out.contains("voice") && table.out.contains("call"), "{}", table.out);
    weir(&["compare", &a, &b, "--out", &folder.path("both")]).ok();
    let svg = folder.read("both/rate.svg");
    assert!(svg.contains("seed 1") && svg.contains("seed 2"), "both runs in one plot");
    assert!(table.out.contains("seed 1") && table.out.contains("seed 2"), "{}", table.out);
    let three = weir(&["compare", &a, &b, &a]).ok().out;
    for label in ["a seed 1", "b seed 2", "c seed 1"] {
        assert!(three.lines().next().unwrap().contains(label), "{three}");
    }
    // Another file of the same scenario and seed: the files tell which is which.
    weir(&["sim", &toml, "--out", &folder.path("c"), "--seed", "1"]).ok();
    let alike = weir(&["compare", "-j", &a, &folder.path("c/report.json")]).ok().json();
    assert_eq!(alike["names"], serde_json::json!([folder.path("a"), folder.path("c")]));
    let rows = |a: &str, b: &str| weir(&["compare", "-j", a, b]).ok().json()["rows"].clone();
    let equal = rows(&a, &a);
    assert!(equal.as_array().unwrap().iter().all(|r| r["a"] == r["b"]), "a run beside itself");
    let different = rows(&a, &b);
    assert!(different.as_array().unwrap().iter().any(|r| r["a"] != r["b"]), "another seed is another run");
}

/// The configuration that README.md shows: with both classes overloaded, `voice` has its 20 % of the
/// link whatever the size of its packets, and no more, because it may not borrow.
#[test]
fn the_readme_s_own_example_gives_voice_its_share() {
    let readme = std::fs::read_to_string(source("README.md")).unwrap();
    let conf = readme.split("```").find(|block| block.trim_start().starts_with("interface eth1")).unwrap();
    let conf = conf.trim_start();
    assert!(
        conf.contains("bandwidth 20M") && conf.contains("voice root  priority 5 pbandwidth 20\n"),
        "{conf}"
    );
    let folder = Folder::new();
    for voice_bytes in [64, 300, 1_400] {
        let toml = format!(
            r#"
duration = "6s"
[[host]]
name = "a"
[[host]]
name = "b"
[[link]]
a = "a"
b = "box"
rate = "1G"
[[link]]
a = "box"
b = "b"
rate = "20M"
[[port]]
at = "box"
to = "b"
text = """
{conf}"""
[[flow]]
from = "a"
to = "b"
kind = "udp"
rate = "30M"
size = 1400
class = "bulk"
[[flow]]
from = "a"
to = "b"
kind = "udp"
rate = "8M"
size = {voice_bytes}
dscp = "EF"
class = "voice"
[[expect]]
what = "share"
class = "voice"
from = "1s"
to = "6s"
min = "19.8%"
max = "20.2%"
[[expect]]
what = "utilisation"
from = "1s"
to = "6s"
min = "99.5%"
"#
        );
        let run = weir(&["sim", &folder.write("readme.toml", toml)]);
        assert_eq!(run.code, 0, "{voice_bytes} bytes: {run:?}");
    }
}

#[test]
fn explain_says_which_filter_and_why_not_the_others() {
    let folder = Folder::new();
    let more =
        "filter em0 rest 0 0 10.0.0.0 netmask 0xffffff00 0 6 tos 0x10\nfilter em0 rest 0 0 10.0.0.9 5000 1\n";
    let conf = folder.write("a.altq", format!("{TWO_CLASSES}{more}"));
    let explain = |packet: &str| weir(&["explain", &conf, "em0", packet]).ok().out;
    let shown = explain("udp 10.0.0.1:5000 > 10.0.0.2:80 tos 0xb8");
    assert!(shown.contains("class   voice\nfilter  line 4: filter em0 voice 0 0 0 0 17 dscp EF"), "{shown}");
    let shown = explain("udp 10.0.0.1:5000 > 10.0.0.2:80");
    assert!(shown.contains("class   rest (the default: no filter matches)"), "{shown}");
    assert!(shown.contains("close   line 4") && shown.contains("but for"), "{shown}");
    // Of two that match, the later line goes first.
    let shown = explain("tcp 10.0.0.1:5000 > 10.0.0.2:80");
    assert!(shown.contains("class   voice\nfilter  line 5"), "{shown}");
    let shown = explain("tcp 10.0.0.1:5000 > 10.0.0.2:80 tos 0x10");
    assert!(shown.contains("class   rest\nfilter  line 6"), "{shown}");
    assert!(
        shown.contains("also    line 5: filter em0 voice 0 0 10.0.0.1 5000 6\n        matches, but line 5"),
        "{shown}"
    );
    let ranked = folder.write(
        "r.altq",
        format!("{TWO_CLASSES}{more}").replace("voice 0 0 10.0.0.1", "voice ruleno 9 0 0 10.0.0.1"),
    );
    let shown = weir(&["explain", &ranked, "em0", "tcp 10.0.0.1:5000 > 10.0.0.2:80 tos 0x10"]).ok().out;
    assert!(
        shown.contains("filter  line 5") && shown.contains("matches, but its ruleno 0 is below 9"),
        "{shown}"
    );
    // ICMP has no ports.
    assert!(shown.contains("never   line 7") && shown.contains("because of"), "{shown}");
    let run = weir(&["explain", "-j", &conf, "em0", "tcp 10.0.0.1:5000 > 10.0.0.2:80 tos 0x10"]).ok();
    let json = run.json();
    assert_eq!((&json["class"], &json["default"]), (&"rest".into(), &false.into()));
    assert!(json["unreachable"][0]["filter"].as_str().unwrap().starts_with("line 7"), "{json}");
}

/// What goes before all classes is told with its rate, and is what the data plane takes for it.
#[test]
fn explain_names_control_packets() {
    let folder = Folder::new();
    let conf = folder.write("a.altq", TWO_CLASSES);
    let off = folder.write("off.altq", TWO_CLASSES.replace("10M", "10M protect off"));
    let rate = folder.write("rate.altq", TWO_CLASSES.replace("10M", "10M protect 200K"));
    let control = |conf: &str, packet: &str| {
        let text = weir(&["explain", conf, "em0", packet]).ok().out;
        let json = weir(&["explain", "-j", conf, "em0", packet]).ok().json();
        let said = json["control"].as_str().map(String::from);
        // Below its first line stand the others of it.
        let begins = text.find("\nbefore  ");
        let shown = begins.map(|at| unfolded(text[at + 9..].split("\nclass").next().unwrap()));
        assert_eq!(shown, said);
        said
    };
    let bgp = folder.write("bgp.altq", TWO_CLASSES.replace("10M", "10M protect auto except bgp,nd"));
    let told = "goes before all classes up to 500 kbit/s; beyond that: class rest";
    for (packet, kind) in [
        ("tcp 10.0.0.2:4000 > 10.0.0.3:179", "bgp"),
        ("tcp 10.0.0.2:179 > 10.0.0.3:4000", "bgp"),
        ("ospf 10.0.0.1 > 224.0.0.5", "ospf"),
        ("udp 10.0.0.1:68 > 10.0.0.2:67", "dhcp"),
        ("udp 10.0.0.1:4000 > 10.0.0.2:3784", "bfd"),
    ] {
        let told = format!("control packet ({kind}): {told}");
        assert_eq!(control(&conf, packet).as_ref(), Some(&told), "{packet}");
        let excepted = match kind {
            "bgp" => "control packet (bgp): goes where filters say, because of `except bgp`",
            _ => &told,
        };
        assert_eq!(control(&bgp, packet).as_deref(), Some(excepted), "{packet}");
        assert_eq!(control(&off, packet), None, "{packet}");
        assert!(control(&rate, packet).unwrap().contains("up to 200 kbit/s"), "{packet}");
    }
    let discovery = control(&conf, "icmpv6 fe80::1 > ff02::1").unwrap();
    assert!(discovery.starts_with("router or neighbour discovery (nd, ICMPv6 types 133 to 137) goes before"));
    let discovery = control(&bgp, "icmpv6 fe80::1 > ff02::1").unwrap();
    assert!(discovery.ends_with("137) goes where filters say, because of `except nd`"), "{discovery}");
    for packet in
        ["tcp 10.0.0.2:4000 > 10.0.0.3:80", "udp 10.0.0.1:179 > 10.0.0.2:179", "icmp 10.0.0.1 > 10.0.0.2"]
    {
        assert_eq!(control(&conf, packet), None, "{packet}");
    }
}

/// The filters that a control class brings were written by nobody: they are no near misses.
#[test]
fn explain_leaves_out_what_nobody_wrote() {
    let folder = Folder::new();
    let conf = "interface em0 bandwidth 10M cbq\nclass cbq em0 root NULL pbandwidth 100\n\
                class cbq em0 rest root pbandwidth 90 default\nfilter em0 rest 0 0 10.0.0.9 0 17\n";
    let conf = folder.write("a.altq", conf);
    let shown = weir(&["explain", &conf, "em0", "udp 10.0.0.1:5000 > 10.0.0.2:80"]).ok().out;
    assert!(shown.contains("close   line 4") && !shown.contains("made by itself"), "{shown}");
    let taken = weir(&["explain", &conf, "em0", "icmp 10.0.0.1 > 10.0.0.2"]).ok().out;
    assert!(taken.contains("made by itself for the control class"), "{taken}");
}

#[test]
fn experiments_are_listed_and_run() {
    let list = weir(&["experiment", "list"]).ok();
    for id in
        ["altq98-fig11", "altq98-fig14", "altq98-fig15", "cbq97-fig4", "ds2-fig1", "ds2-fig3", "ds2-fig5"]
    {
        assert!(list.out.lines().any(|l| l.starts_with(id)), "{id}");
    }
    let run = weir(&["experiment", "run", "ds2-fig5"]).ok();
    assert!(run.out.contains("experiments: 1 pass, 0 fail, 0 doubtful, 0 skipped"), "{}", run.out);
    assert!(run.err.contains("experiment ds2-fig5"), "progress goes to standard error: {}", run.err);
    // What has no live form is skipped with the reason, not failed.
    let run = weir(&["experiment", "run", "--live", "-j", "oracle-drr"]).ok();
    assert_eq!(run.json()["experiments"][0]["verdict"], "skipped");
    assert_eq!(run.json()["experiments"][0]["live"], true);
}

/// Several at a time say what each says by itself, in the order of their files, whichever is done first. One that is
/// broken loses none of the others.
#[test]
fn experiments_together_say_what_each_says() {
    let folder = Folder::new();
    std::fs::create_dir(folder.path("experiments")).unwrap();
    let short = scenario("40%");
    folder.write("experiments/long.scenario", short.replace("\"2s\"", "\"40s\""));
    folder.write("experiments/short.scenario", short);
    let ids = ["a", "b", "c", "d", "e"];
    for (id, run) in ids.iter().zip(["long", "short", "gone", "long", "short"]) {
        let text = format!(
            "title = \"t {id}\"\nsource = \"s\"\nabout = \"a\"\nseeds = 2\n[[run]]\nscenario = \"{run}.scenario\"\n"
        );
        folder.write(&format!("experiments/{id}.toml"), text);
    }
    let run = |arguments: &[&str]| -> Run {
        let mut command = Command::new(WEIR);
        command
            .args(["experiment", "run"])
            .args(arguments)
            .current_dir(folder.path(""))
            .output()
            .unwrap()
            .into()
    };
    let said = |run: &Run| run.out.split_once("experiments:").unwrap().0.to_owned();
    let together = run(&["--all"]);
    assert_eq!(together.code, 1, "one is broken: {together:?}");
    assert!(together.out.contains("gone.scenario"), "{together:?}");
    let alone: String = ids.iter().map(|id| said(&run(&[id]))).collect();
    assert_eq!(said(&together), alone);
    assert!(
        run(&["--all", "-j"]).json()["experiments"]
            .as_array()
            .unwrap()
            .iter()
            .zip(ids)
            .all(|(e, id)| e["id"] == id)
    );
}

#[test]
fn the_scenarios_that_come_along_say_in_their_report_what_they_are() {
    let run = weir(&["sim", "-j", &source("examples/two-agencies.toml")]).ok();
    let report = run.json();
    assert_eq!(report["meta"]["kind"], "sim");
    assert_eq!(report["ports"][0]["discipline"], "cbq");
    assert!(report["checks"].as_array().unwrap().iter().all(|c| c["pass"] == true));
}
