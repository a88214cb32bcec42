//! Exit codes, and what goes to which stream, of every subcommand.

use crate::support::{Folder, TWO_CLASSES, WEIR, scenario, source, unfolded, weir};
use std::io::Read;
use std::process::{Command, Stdio};

const COMMANDS: [&str; 11] = [
    "check",
    "sim",
    "lab",
    "compare",
    "replay",
    "explain",
    "experiment",
    "bench",
    "disciplines",
    "up",
    "stats",
];

#[test]
fn help_is_a_result_and_its_absence_a_mistake() {
    let help = weir(&["--help"]).ok();
    for command in COMMANDS {
        assert!(help.out.contains(&format!("\n  {command} ")), "{command}: {}", help.out);
        let own = weir(&[command, "--help"]).ok();
        assert!(own.out.contains("Usage:") && own.err.is_empty(), "{own:?}");
    }
    assert!(weir(&["--version"]).ok().out.starts_with("weir "));
    weir(&[]).fails(2, &["Usage:", "check", "disciplines"]);
    weir(&["nonsense"]).fails(2, &["unrecognized subcommand 'nonsense'"]);
    for command in ["check", "sim", "lab", "compare", "replay", "explain", "experiment", "up"] {
        weir(&[command]).fails(2, &["Usage:"]);
    }
    weir(&["sim", "x.toml", "--packets"]).fails(2, &["--out"]);
    weir(&["replay", "--overhead", "many", "a", "b", "c"]).fails(2, &["'many'"]);
}

#[test]
fn a_missing_file_is_named() {
    let folder = Folder::new();
    let conf = folder.write("a.altq", TWO_CLASSES);
    let none = folder.path("none");
    for arguments in [
        &["check", &none][..],
        &["sim", &none],
        &["lab", &none],
        &["compare", &none, &none],
        &["replay", &none, "em0", &none],
        &["replay", &conf, "em0", &none],
        &["explain", &none, "em0", "udp 10.0.0.1:1 > 10.0.0.2:2"],
        &["up", &none],
    ] {
        weir(arguments).fails(2, &[&none, "No such file"]);
    }
}

#[test]
fn mistakes_of_the_command_line_say_what_would_be_right() {
    let folder = Folder::new();
    let conf = folder.write("a.altq", TWO_CLASSES);
    let trace = folder.write("t.csv", "rate 1000000\n0,rest,100\n");
    weir(&["replay", &conf, "em7", &trace]).fails(2, &["no interface `em7`", "did you mean `em0`?"]);
    weir(&["explain", &conf, "em7", "udp 10.0.0.1:1 > 10.0.0.2:2"]).fails(2, &["did you mean `em0`?"]);
    weir(&["replay", &conf, "em0", &trace, "--rate", "10Mbps"]).fails(2, &["two ways", "10M", "80M"]);
    weir(&["replay", &conf, "em0", &trace, "--rate", "0"])
        .fails(2, &["a wire of 0 bit/s", "8 bit/s or more"]);
    weir(&["replay", &conf, "em0", &trace, "--rate", "fast"]).fails(2, &["fast"]);
    weir(&["explain", &conf, "em0", "carrier pigeon"]).fails(2, &["carrier", "begin with tcp, udp"]);
    weir(&["explain", &conf, "em0", "udp 10.0.0.1:99999 > 10.0.0.2:2"]).fails(2, &["99999"]);
    weir(&["disciplines", "nonsense"]).fails(2, &["no discipline `nonsense`", "priq", "hfsc"]);
    weir(&["disciplines", "HFCS"]).fails(2, &["no discipline `HFCS`; did you mean `hfsc`?"]);
    weir(&["experiment", "run", "ds2fig5"]).fails(2, &["no experiment `ds2fig5`; did you mean `ds2-fig5`?"]);
    weir(&["bench", "cpq-20"]).fails(2, &["no benchmark `cpq-20`; did you mean `cbq-20`?"]);
    weir(&["bench", "nonsense"]).fails(2, &["no benchmark `nonsense`", "cbq-20"]);
    weir(&["bench", "sim", "nonsense"]).fails(2, &["no benchmark `nonsense`", "sim-dumbbell-10"]);
    weir(&["experiment", "run"]).fails(2, &["which experiment?", "--all"]);
    weir(&["experiment", "run", "nonsense"]).fails(2, &["no experiment `nonsense`", "weir experiment list"]);
    weir(&["up", &conf]).fails(2, &["attach bridge PEER"]);
    let report = folder.write("report.json", "{\"not\": \"a report\"}");
    weir(&["compare", &report, &report]).fails(2, &["report.json"]);
}

#[test]
fn a_configuration_that_cannot_be_used_is_shown_where_it_is_used() {
    let folder = Folder::new();
    let bad = folder.write("bad.altq", "interface em0 bandwidth 10Mbps priq\n");
    let trace = folder.write("t.csv", "rate 1000000\n0,rest,100\n");
    let words = ["bad.altq:1:25", "^^^^^^", "write `10M`"];
    weir(&["replay", &bad, "em0", &trace]).fails(2, &words);
    weir(&["explain", &bad, "em0", "udp 10.0.0.1:1 > 10.0.0.2:2"]).fails(2, &words);
    weir(&["up", &bad]).fails(2, &words);
}

#[test]
fn what_is_no_text_is_refused_as_such() {
    let folder = Folder::new();
    let binary = folder.write("bin.altq", b"\xff\xfe\x00bad");
    for arguments in [&["up", &binary][..], &["explain", &binary, "em0", "udp 10.0.0.1:1 > 10.0.0.2:2"]] {
        weir(arguments).fails(2, &[&binary, "not text in UTF-8"]);
    }
    // What is wrong with a file is what `check` is asked.
    let judged = weir(&["check", "-j", &binary]);
    assert_eq!(judged.code, 2, "{judged:?}");
    let said = judged.json()["files"][0]["diagnostics"][0]["message"].to_string();
    assert!(said.contains("not text in UTF-8"), "{said}");
}

#[test]
fn nobody_serves_statistics_where_no_weir_is_up() {
    let folder = Folder::new();
    let socket = folder.path("none.sock");
    weir(&["stats", "--socket", &socket]).fails(1, &[&socket, "is `weir up` running"]);
    weir(&["stats", "-j", "--socket", &socket]).fails(1, &[&socket]);
}

#[test]
fn what_needs_root_says_so_with_3() {
    // Root drops its rights by `setpriv`; everybody else needs nothing. Who has no rights may not
    // be able to reach the temporary folder or the program, as in this folder, which is private to
    // its owner: both are handed over as open files.
    let folder = Folder::new();
    let owner_only = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(folder.path(""), owner_only).unwrap();
    let conf = folder.write("a.altq", TWO_CLASSES.replace("priq\n", "priq attach bridge em1\n"));
    let toml = folder.write("s.toml", scenario("1%"));
    let as_nobody = |action: &str, file: &str| {
        let script = "exec setpriv --reuid=65534 --regid=65534 --clear-groups -- \
             /proc/self/fd/3 \"$1\" /proc/self/fd/4 3<\"$2\" 4<\"$3\"";
        let run = Command::new("sh").args(["-c", script, "sh", action, WEIR, file]).output();
        crate::support::Run::from(run.expect("every system has a shell")).fails(3, &["root"]);
    };
    if !std::process::Command::new("setpriv").arg("true").status().is_ok_and(|s| s.success()) {
        eprintln!("SKIPPED what_needs_root_says_so_with_3: no setpriv here");
        return;
    }
    if std::fs::metadata("/proc/self").map(|m| std::os::unix::fs::MetadataExt::uid(&m)).ok() != Some(0) {
        weir(&["up", &conf]).fails(3, &["root"]);
        weir(&["lab", &toml]).fails(3, &["root"]);
        return;
    }
    as_nobody("up", &conf);
    as_nobody("lab", &toml);
}

#[test]
fn check_prints_findings_and_counts_them() {
    let folder = Folder::new();
    let good = folder.write("good.altq", TWO_CLASSES);
    let bad =
        folder.write("bad.altq", "interface em0 bandwidth 10M priq\nclass priq em1 voice NULL priority 3\n");
    let toml = folder.write("s.toml", scenario("1%"));
    let run = weir(&["check", &good]).ok();
    assert!(run.out.ends_with("good.altq: usable\n") && run.err.is_empty(), "{run:?}");
    let run = weir(&["check", &toml]).ok();
    assert!(run.out.contains("the lab can run it") && run.out.ends_with("s.toml: usable\n"), "{run:?}");
    // Every file is judged, also behind a bad one; findings are the result.
    let run = weir(&["check", &bad, &good]);
    assert_eq!(run.code, 2);
    assert!(run.out.contains("bad.altq:2:12") && run.out.contains("^^^"), "{}", run.out);
    assert!(
        run.out.contains("bad.altq: cannot be used") && run.out.contains("good.altq: usable"),
        "{}",
        run.out
    );
    assert!(run.err.contains("1 error"), "{}", run.err);
    let broken = folder.write("broken.toml", scenario("1%").replace("rate = \"1G\"", "rate = \"1Gbps\""));
    let run = weir(&["check", &broken]);
    assert!(run.code == 2 && run.out.contains("1Gbps"), "{run:?}");
}

/// Memory is bounded before a run begins: flows are counted by the scenario, classes by its
/// configurations.
#[test]
fn a_report_that_would_fill_the_memory_is_refused() {
    let folder = Folder::new();
    let hosts = "[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n[[link]]\na = \"a\"\nb = \"box\"\nrate = \"1G\"\n\
                 [[link]]\na = \"box\"\nb = \"b\"\nrate = \"10M\"\n[[flow]]\nfrom = \"a\"\nto = \"b\"\n";
    let flows =
        format!("duration = \"70s\"\n{hosts}count = 10000\n[[probe]]\nwhat = \"flows\"\nevery = \"1ms\"\n");
    let mut conf = String::from("interface em0 bandwidth 10M cbq\nclass cbq em0 root NULL pbandwidth 100\n");
    for n in 0..40 {
        let default = if n == 0 { " default" } else { "" };
        conf += &format!("class cbq em0 c{n} root pbandwidth 2{default}\n");
    }
    let probe = "[[probe]]\nwhat = \"classes\"\nevery = \"1ms\"\n";
    let classes = |seconds: u32| {
        let port = format!("[[port]]\nat = \"box\"\nto = \"b\"\ntext = '''\n{conf}'''\n");
        format!("duration = \"{seconds}s\"\n{hosts}{port}{probe}")
    };
    for (name, text, counted) in
        [("f.toml", &flows, "70000 cells of 1ms"), ("c.toml", &classes(100), "100000 cells of 1ms")]
    {
        let file = folder.write(name, text);
        let check = weir(&["check", &file]);
        let out = unfolded(&check.out);
        let said = out.contains(counted) && out.contains("at most 32000000 numbers, 256 MB");
        assert!(check.code == 2 && said && out.contains("longer intervals"), "{check:?}");
        let sim = weir(&["sim", &file]);
        assert!(sim.code == 2 && unfolded(&sim.err).contains(counted), "{sim:?}");
    }
    weir(&["check", &folder.write("short.toml", classes(10))]).ok();
}

#[test]
fn a_name_that_is_known_and_not_built_is_refused_by_name() {
    let all = weir(&["disciplines", "-j"]).ok().json();
    let folder = Folder::new();
    for discipline in all["disciplines"].as_array().unwrap() {
        let name = discipline["name"].as_str().unwrap();
        if discipline["built"] == false && name != "cdnr" {
            let conf = format!("interface em0 bandwidth 10M {name}\nclass {name} em0 c NULL default\n");
            let run = weir(&["check", &folder.write("a.altq", conf)]);
            assert!(run.code == 2 && run.out.contains(name), "{run:?}");
        }
    }
}

#[test]
fn disciplines_are_listed_and_each_shows_its_manual_and_parameters() {
    let list = weir(&["disciplines"]).ok();
    let all = weir(&["disciplines", "-j"]).ok().json();
    for discipline in all["disciplines"].as_array().unwrap() {
        let name = discipline["name"].as_str().unwrap();
        assert!(list.out.lines().any(|l| l.starts_with(name)), "{name}");
        let page = weir(&["disciplines", name]).ok();
        assert!(page.err.is_empty(), "{name}: {}", page.err);
        if discipline["built"] == true {
            for heading in ["Principle:", "Paper:", "Cost:", "Guarantees"] {
                assert!(page.out.lines().any(|l| l.starts_with(heading)), "{name}: no {heading}");
            }
        }
        for parameter in discipline["parameters"].as_array().unwrap() {
            let (word, help) = (parameter["name"].as_str().unwrap(), parameter["help"].as_str().unwrap());
            // The help goes on below, in its column.
            let row = page.out.split(&format!("\n{word} ")).nth(1).unwrap_or_else(|| panic!("{name} {word}"));
            let first = help.split(' ').next().unwrap();
            assert!(row.lines().next().unwrap().contains(first), "{name} {word}");
        }
    }
    // A second name finds the same discipline.
    assert_eq!(weir(&["disciplines", "fifoq", "-j"]).ok().json()["name"], "fifoq");
    // `qlimit` of a class has two defaults; a discipline without queues of classes has one.
    let limits = "With one it is the AQM's own, in packets:";
    for name in ["priq", "cbq"] {
        let page = weir(&["disciplines", name]).ok().out.replace("\n  ", " ").replace('\n', " ");
        assert!(page.contains(limits) && page.contains("red 60"), "{page}");
    }
    assert!(!weir(&["disciplines", "fifoq"]).ok().out.contains("the AQM's own"));
}

#[test]
fn a_reader_that_leaves_early_is_no_error() {
    for arguments in [&["disciplines", "-j"][..], &["disciplines", "cbq"], &["experiment", "list"]] {
        let mut child =
            Command::new(WEIR).args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let mut err = String::new();
        child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        let status = child.wait().unwrap();
        assert!(status.success() && err.is_empty(), "{arguments:?}: {status} {err}");
    }
}

#[test]
fn the_files_that_come_along_are_usable() {
    for file in ["examples/two-agencies.altq", "examples/two-agencies.toml", "experiments/altq98/fig11.toml"]
    {
        weir(&["check", &source(file)]).ok();
    }
}
