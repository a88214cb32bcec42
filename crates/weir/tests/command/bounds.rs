//! Hostile files: what they ask for is refused, and what is there stays.

use crate::support::{Folder, Run, WEIR, weir};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Runs `weir` with 200 MB of memory, within a few seconds even where much else runs.
fn bounded(arguments: &[&str]) -> Run {
    let start = Instant::now();
    let run: Run = Command::new("sh")
        .args(["-c", "ulimit -v 204800; exec \"$0\" \"$@\"", WEIR])
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
        .into();
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}: {run:?}", start.elapsed());
    assert!(run.code == 0 || run.code == 1 || run.code == 2 || run.code == 3, "{run:?}");
    assert!(!run.err.contains("panicked"), "{run:?}");
    run
}

const HFSC: &str = "interface em0 bandwidth 10M hfsc\nclass hfsc em0 voice root pshare 20\n\
                    class hfsc em0 data root pshare 80 default\n";

/// A scenario over `HFSC`, with what comes after its flow.
fn over_hfsc(flow: &str, rest: &str) -> String {
    format!(
        "duration = \"100ms\"\n[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n\
         [[link]]\na = \"a\"\nb = \"BOX\"\nrate = \"100M\"\n[[link]]\na = \"BOX\"\nb = \"b\"\nrate = \"10M\"\n\
         [[port]]\nat = \"BOX\"\nto = \"b\"\ntext = '''\n{HFSC}'''\n\
         [[flow]]\nfrom = \"a\"\nto = \"b\"\n{flow}\n{rest}"
    )
}

#[test]
fn a_class_that_does_not_exist_is_an_error_everywhere() {
    let folder = Folder::new();
    let cases = [
        (over_hfsc("class = \"dato\"", ""), "data"),
        (over_hfsc("", "[[expect]]\nwhat = \"rate\"\nclass = \"voise\"\nmin = \"1k\"\n"), "voice"),
        (
            over_hfsc("", "[[expect]]\nwhat = \"rate\"\nclasses = [\"data\", \"voise\"]\nmin = \"1k\"\n"),
            "voice",
        ),
        (
            over_hfsc("", "[[expect]]\nwhat = \"rate\"\nclass = \"data\"\nper = [\"voise\"]\nmin = 1\n"),
            "voice",
        ),
    ];
    for (text, meant) in cases {
        let file = folder.write("s.toml", &text);
        let mend = format!("did you mean `{meant}`?");
        let check = weir(&["check", &file]);
        assert_eq!(check.code, 2, "{check:?}");
        assert!(check.out.contains("there is no class `") && check.out.contains(&mend), "{check:?}");
        let line = text.lines().position(|l| l.contains("dato") || l.contains("voise")).unwrap() + 1;
        assert!(check.out.contains(&format!("s.toml:{line}:")), "{check:?}");
        weir(&["sim", &file]).fails(2, &["there is no class `", &mend, &format!("s.toml:{line}:")]);
        let right = text.replace("dato", "data").replace("voise", "voice");
        weir(&["check", &folder.write("s.toml", right)]).ok();
    }
}

#[test]
fn the_interface_that_a_port_names_must_be_there() {
    let folder = Folder::new();
    let text = over_hfsc("", "").replace("text = '''", "interface = \"em1\"\ntext = '''");
    let check = weir(&["check", &folder.write("s.toml", text)]);
    assert_eq!(check.code, 2, "{check:?}");
    assert!(check.out.contains("no interface `em1` is declared"), "{check:?}");
}

#[test]
fn check_says_what_the_lab_says() {
    let folder = Folder::new();
    let other = "[[flow]]\nfrom = \"a\"\nto = \"b\"\necn = true\n";
    let check = weir(&["check", &folder.write("s.toml", over_hfsc("", other))]).ok();
    assert!(
        check.out.contains("the lab cannot run it: TCP flows with and without `ecn` share host `a`"),
        "{check:?}"
    );
    let other = "[[flow]]\nfrom = \"a\"\nto = \"b\"\ndelayed_ack = false\n";
    let check = weir(&["check", &folder.write("s.toml", over_hfsc("", other))]).ok();
    assert!(
        check.out.contains("the lab cannot run it: flows `f1` and `f2` go to one port of one host"),
        "{check:?}"
    );
}

#[test]
fn what_can_not_run_is_not_usable() {
    let folder = Folder::new();
    for (text, words) in [
        ("", "a.conf is empty"),
        ("# nothing\n", "the file declares no interface"),
        (
            "interface em0 bandwidth 10M fifoq attach nfqueue\ninterface em1 attach bridge em0\n",
            "`em1` is bridged to `em0`, which is attached to nfqueue",
        ),
    ] {
        let check = weir(&["check", &folder.write("a.conf", text)]);
        assert_eq!(check.code, 2, "{check:?}");
        assert!(check.out.contains(words) && check.out.contains("cannot be used"), "{check:?}");
    }
}

#[test]
fn no_output_takes_the_place_of_an_input() {
    let folder = Folder::new();
    let conf = folder.write("a.conf", "interface em0 bandwidth 10M fifoq\n");
    let trace = "rate 10000000\n0,all,1000\n1000,all,1000\n";
    let input = folder.write("t.csv", trace);
    std::fs::hard_link(&input, folder.path("hard.csv")).unwrap();
    std::os::unix::fs::symlink(&input, folder.path("soft.csv")).unwrap();
    for name in ["t.csv", "hard.csv", "soft.csv", "a.conf"] {
        weir(&["replay", &conf, "em0", &input, "--out", &folder.path(name)])
            .fails(2, &["which is read: name another file for the output"]);
        assert_eq!(folder.read("t.csv"), trace, "{name}");
    }
    weir(&["replay", &conf, "em0", &input, "--out", &folder.path("out.csv")]).ok();
    assert_eq!(folder.read("out.csv").lines().count(), 2);
    // A failure leaves the output as it was.
    let damaged = folder.write("damaged.csv", "rate 10000000\n0,all,1000\n1000,all\n");
    weir(&["replay", &conf, "em0", &damaged, "--out", &folder.path("out.csv")]).fails(2, &["line 3"]);
    assert_eq!(folder.read("out.csv").lines().count(), 2);
    // A scenario in the folder of its results.
    let scenario = folder.write("report.json.toml", over_hfsc("", ""));
    std::fs::rename(&scenario, folder.path("report.json")).unwrap();
    weir(&["sim", &folder.path("report.json"), "--out", &folder.path("")]).fails(2, &["which is read"]);
}

#[test]
fn hostile_configurations_are_answered_in_bounds() {
    let folder = Folder::new();
    let mut much = String::from("interface em0 bandwidth 10G hfsc\n");
    for n in 0..1_200 {
        let default = if n == 0 { "default" } else { "" };
        much += &format!("class hfsc em0 c{n} root pshare 0.01 {default} fq_codel flows 65536\n");
    }
    let check = bounded(&["check", &folder.write("a.conf", &much)]);
    assert!(check.code == 2 && check.out.contains("flow queues"), "{}", &check.out[..500]);
    // As many as are allowed cost nothing to check.
    let mut allowed: String = much.lines().take(65).collect::<Vec<_>>().join("\n");
    allowed.push('\n');
    bounded(&["check", &folder.write("a.conf", allowed)]).ok();
    for bytes in [
        vec![0u8; 90_000],
        vec![b'\n'; 90_000],
        vec![0xff; 90_000],
        vec![b'<'; 90_000],
        b"interface em0 ".repeat(6_000),
        b"a\\\n".repeat(30_000),
        b"conditioner em0 x <pass>\n".repeat(3_600),
    ] {
        assert_eq!(bounded(&["check", &folder.write("a.conf", bytes)]).code, 2);
    }
    bounded(&["check", "/dev/zero"]).fails(2, &["more than"]);
}

#[test]
fn hostile_scenarios_are_answered_in_bounds() {
    let folder = Folder::new();
    let rows = |count: usize, row: &str| row.repeat(count);
    for (text, words) in [
        (
            over_hfsc("count = 10000", "[[probe]]\nwhat = \"flows\"\nevery = \"1ms\"\n")
                .replace("100ms", "60s"),
            "cells",
        ),
        (over_hfsc("", "").replace("100ms", "18446744073709551616s"), "error"),
        (over_hfsc("count = 4294967295", ""), "45000"),
        (over_hfsc("", &format!("x = {}", "[".repeat(80_000))), "error"),
        (
            over_hfsc("", &rows(2_000, "[[expect]]\nwhat = \"goodput\"\nflow = \"none\"\n")),
            "there is no flow",
        ),
        (over_hfsc("", &rows(4_000, "[[host]]\nname = \"x\"\n")), "at most 2500"),
        (
            over_hfsc("", "[[host]]\nname = \"\u{1b}[31m\u{202e}\"\n".replace("\u{1b}", "\\u001b").as_str()),
            "cannot be a name",
        ),
        ("\0".repeat(90_000), "error"),
        (format!("\u{feff}{}", "#".repeat(90_000)), "missing"),
        (format!("name = \"{}\"", "x".repeat(90_000)), "missing"),
    ] {
        let run = bounded(&["check", &folder.write("s.toml", &text)]);
        assert_eq!(run.code, 2, "{run:?}");
        assert!(run.out.contains(words), "{words}: {}", run.out.chars().take(2_000).collect::<String>());
        assert!(!run.out.contains(['\u{1b}', '\u{202e}', '\0']), "{words}");
        assert_eq!(bounded(&["sim", &folder.path("s.toml")]).code, 2);
    }
    bounded(&["sim", &folder.write("s.toml", [0xff; 1_000])]).fails(2, &["UTF-8"]);
    bounded(&["sim", "/dev/zero"]).fails(2, &["longer than"]);
}

#[test]
fn hostile_traces_are_answered_in_bounds() {
    let folder = Folder::new();
    let conf = folder.write("a.conf", "interface em0 bandwidth 10M fifoq\n");
    let pcap = |length: u32, snap: u32| {
        let mut bytes = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        bytes.extend(snap.to_le_bytes());
        bytes.extend(1u32.to_le_bytes());
        bytes.extend([0; 8]);
        bytes.extend(length.to_le_bytes());
        bytes.extend(length.to_le_bytes());
        bytes.extend([0; 60]);
        bytes
    };
    for bytes in [
        b"rate 18446744073709551616\n0,all,1000\n".to_vec(),
        b"rate 10000000\n18446744073709551616,all,1000\n".to_vec(),
        b"rate 10000000\n0,all,18446744073709551615\n".to_vec(),
        [b"rate 10000000\n0,".to_vec(), vec![b'x'; 90_000]].concat(),
        [b"rate 10000000\n".to_vec(), vec![0; 90_000]].concat(),
        b"rate 10000000\n0,\x1b[31m,1000".to_vec(),
        vec![0xff; 90_000],
        pcap(u32::MAX, u32::MAX),
        pcap(1 << 30, 1 << 31),
    ] {
        let run = bounded(&["replay", &conf, "em0", &folder.write("t", &bytes)]);
        assert!(!run.err.contains(['\u{1b}', '\0']), "{run:?}");
        assert!(run.code == 2 || run.code == 0, "{run:?}");
    }
}

/// `weir check` says how many packets an interface has room for, and refuses a room that is too small. It
/// says what control packets get.
#[test]
fn check_tells_the_room_and_what_control_packets_get() {
    let folder = Folder::new();
    let text = |words: &str| format!("interface em0 bandwidth 10M {words} fqcodel\n");
    let told = weir(&["check", &folder.write("a.conf", text(""))]).ok();
    let flat = told.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        flat.contains("interface em0: room for 10306 packets: 660 kB, and up to 21107 kB of frames"),
        "{flat}"
    );
    let memory = flat.split("interface em0: takes ").nth(1).expect("it says what it takes of memory");
    assert!(memory.contains(" kB beside frames: 1 queue of classes, "), "{memory}");
    assert!(memory.contains("1024 of flows, 46 bytes each, and 660 kB of rows for packets"), "{memory}");
    assert!(
        flat.contains("control packets (ARP, routing protocols) go before all classes up to 500 kbit/s"),
        "{flat}"
    );
    for (words, said) in [
        ("protect 64K", "up to 64 kbit/s"),
        ("protect off", "go where filters say: `protect off`"),
        (
            "protect auto except bgp,arp",
            "routing protocols) except arp, bgp go before all classes up to 500 kbit/s",
        ),
    ] {
        let told = weir(&["check", &folder.write("p.conf", text(words))]).ok();
        let flat = told.out.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flat.contains(said), "{words}: {flat}");
    }
    // A class that nobody declared takes what somebody was given.
    let root = "interface em0 bandwidth 10M cbq\nclass cbq em0 root NULL pbandwidth 100\n";
    for (class, made) in [("default", true), ("default\nclass cbq em0 net root pbandwidth 1 control", false)]
    {
        let text = format!("{root}class cbq em0 rest root borrow pbandwidth 50 {class}\n");
        let told = weir(&["check", "-j", &folder.write("m.conf", text)]).ok().json();
        let facts = told["files"][0]["facts"].to_string();
        let said = "cbq makes class `ctl_class` by itself: borrow priority 6 exactbandwidth 200K control";
        assert_eq!(facts.contains(said), made, "{facts}");
    }
    let refused = weir(&["check", &folder.write("b.conf", text("capacity 5000"))]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.out.contains("write `capacity 10306`"), "{refused:?}");
    weir(&["check", &folder.write("c.conf", text("capacity 10306"))]).ok();
}
