//! `weir replay`: repeatable, conserving, exact where it can be worked out by hand.

use crate::pcap;
use crate::support::{Folder, TWO_CLASSES, weir};
use std::fmt::Write;

const FOUR: &str = "rate 1000000\n0,voice,1000\n0,rest,500\n0,2,600,46\n0,voice,200\n";

/// Every packet of the input leaves or is dropped exactly once; the lines' (kind, time, class, index).
fn conserved(out: &str, packets: usize) -> Vec<(char, u64, &str, usize)> {
    let mut seen = vec![false; packets];
    let mut events = Vec::new();
    let mut last = 0;
    for line in out.lines() {
        let fields: Vec<&str> = line.split(',').collect();
        let kind = fields[0].chars().next().unwrap();
        assert_eq!(fields.len(), if kind == 'D' { 5 } else { 6 }, "{line}");
        assert!(kind == 'D' || kind == 'X', "{line}");
        let (at, index): (u64, usize) = (fields[1].parse().unwrap(), fields[4].parse().unwrap());
        assert!(!std::mem::replace(&mut seen[index], true), "packet {index} twice");
        assert!(at >= last, "events in the order of time: {line}");
        last = at;
        events.push((kind, at, fields[2], index));
    }
    assert!(seen.iter().all(|&s| s), "a packet is missing");
    events
}

#[test]
fn a_strict_priority_by_hand() {
    let folder = Folder::new();
    let conf = folder.write("a.altq", TWO_CLASSES);
    let trace = folder.write("four.csv", FOUR);
    // The first goes at once; then voice before rest; a class is a name or an index from 1.
    let expected =
        "D,8000000,voice,1000,0\nD,9600000,voice,200,3\nD,13600000,rest,500,1\nD,18400000,2,600,2\n";
    let run = weir(&["replay", &conf, "em0", &trace]).ok();
    assert_eq!(run.out, expected);
    // A wire that is not the interface's bandwidth is worth a word.
    assert!(run.err.contains("1M") && run.err.contains("10M"), "{}", run.err);
    // Into a file: the lines there, a table here.
    let file = folder.path("out.csv");
    let run = weir(&["replay", &conf, "em0", &trace, "--out", &file]).ok();
    assert_eq!(folder.read("out.csv"), expected);
    assert!(run.out.starts_with("CLASS"), "{}", run.out);
    // 24 bytes of overhead cost 192 us at 1 Mbit/s.
    let run = weir(&["replay", &conf, "em0", &trace, "--overhead", "24"]).ok();
    assert!(run.out.starts_with("D,8192000,voice,1000,0\n"), "{}", run.out);
    let run = weir(&["replay", &conf, "em0", &trace, "--rate", "10M"]).ok();
    assert!(run.out.starts_with("D,800000,voice,1000,0\n") && run.err.is_empty(), "{run:?}");
    // Reversed: rest above voice.
    let reversed = folder.write("r.altq", TWO_CLASSES.replace("NULL default", "NULL priority 5 default"));
    assert_ne!(weir(&["replay", &reversed, "em0", &trace]).ok().out, expected);
}

#[test]
fn a_class_without_classes_is_a_flow() {
    let folder = Folder::new();
    let conf = folder.write("a.altq", "interface em0 bandwidth 1M drr quantum 500\n");
    let mut trace = String::from("rate 1000000\n");
    for n in 0..300 {
        // Flow "a" sends 500-byte packets, flow "b" 250: each gets half of the bytes.
        writeln!(trace, "0,{}", if n % 3 == 0 { "a,500" } else { "b,250" }).unwrap();
    }
    let trace = folder.write("t.csv", trace);
    let run = weir(&["replay", &conf, "em0", &trace]).ok();
    let events = conserved(&run.out, 300);
    let mut bytes = [0i64; 2];
    for (kind, at, class, _) in events {
        // While both have packets waiting, neither is ahead by more than a quantum and a packet.
        if kind == 'D' && at < 200_000_000 {
            bytes[usize::from(class == "b")] += if class == "a" { 500 } else { 250 };
            assert!((bytes[0] - bytes[1]).abs() <= 1000, "at {at}: {bytes:?}");
        }
    }
    assert!(bytes[0] > 8_000, "{bytes:?}");
    // Reversed: in a FIFO the flows leave as they came, and the bound does not hold for packets
    // that came in one lump each.
    let fifo = folder.write("f.altq", "interface em0 bandwidth 1M fifoq qlimit 1000\n");
    let lumps = "rate 1000000\n".to_string() + &"0,a,500\n".repeat(20) + &"0,b,250\n".repeat(40);
    let lumps = folder.write("lumps.csv", lumps);
    let first_of = |out: &str| out.lines().take(20).filter(|l| l.contains(",a,")).count();
    assert_eq!(first_of(&weir(&["replay", &fifo, "em0", &lumps]).ok().out), 20);
    assert!(first_of(&weir(&["replay", &conf, "em0", &lumps]).ok().out) < 10);
}

#[test]
fn a_capture_is_classified_by_its_headers() {
    let folder = Folder::new();
    let conf = folder.write("a.altq", TWO_CLASSES.replace("10M", "1M"));
    let frames = [
        (7_000_000, pcap::frame(6, 1234, 80, 0, 1000)),
        (7_000_000, pcap::frame(6, 1234, 80, 0, 500)),
        (7_000_000, pcap::frame(17, 99, 99, 0xb8, 125)),
        (7_001_000, pcap::frame(6, 5000, 80, 0, 250)),
        (7_100_000, pcap::frame(17, 99, 99, 0, 125)),
    ];
    // Times count from the first packet. The class is that of the filter.
    let expected = "D,8000000,rest,1000,0\nD,9000000,voice,125,2\nD,11000000,voice,250,3\n\
                    D,15000000,rest,500,1\nD,101000000,rest,125,4\n";
    for snap in [65_535, 60] {
        let trace = folder.write("c.pcap", pcap::file(&frames, snap));
        let run = weir(&["replay", &conf, "em0", &trace]).ok();
        assert_eq!((run.out.as_str(), run.err.as_str()), (expected, ""), "captured to {snap} bytes");
        assert_eq!(weir(&["replay", &conf, "em0", &trace]).ok().out, expected, "once more");
    }
    // A capture of several queues is not quite in order: said, and set right.
    let mut unsorted = frames.to_vec();
    unsorted[3].0 = 6_900_000;
    let trace = folder.write("u.pcap", pcap::file(&unsorted, 65_535));
    let run = weir(&["replay", &conf, "em0", &trace]).ok();
    assert!(run.err.contains("1 packets were recorded before"), "{}", run.err);
    conserved(&run.out, 5);
}

/// Each flow floods a queue of its own, or shares one: what leaves first says which.
#[test]
fn a_seed_decides_which_flows_share_a_queue_and_repeats_it() {
    let folder = Folder::new();
    let conf = folder.write("a.altq", "interface em0 bandwidth 1M fqcodel flows 16\n");
    let frames: Vec<_> = (0..240).map(|n| (0, pcap::frame(17, 1_000 + n / 10, 53, 0, 500))).collect();
    let trace = folder.write("c.pcap", pcap::file(&frames, 65_535));
    let run = |seed: &str| weir(&["replay", &conf, "em0", &trace, "--seed", seed]).ok().out;
    let first = run("0x9f3c5d0000000000");
    conserved(&first, 240);
    assert_eq!(run("0x9f3c5d0000000000"), first, "the same seed, the same queues");
    assert_eq!(run(&0x9f3c_5d00_0000_0000u64.to_string()), first, "in decimal too");
    assert_ne!(run("0x9f3c5e0000000000"), first, "another seed, other queues, by its upper half alone");
    assert_eq!(run("1"), weir(&["replay", &conf, "em0", &trace]).ok().out, "1 is the default");
    weir(&["replay", &conf, "em0", &trace, "--seed", "0xx"]).fails(2, &["0xx", "hexadecimal"]);
}

#[test]
fn a_compressed_trace_is_the_same_trace() {
    let folder = Folder::new();
    let conf = folder.write("a.altq", TWO_CLASSES);
    let plain = folder.write("four.csv", FOUR);
    let expected = weir(&["replay", &conf, "em0", &plain]).ok().out;
    let done = std::process::Command::new("gzip").args(["-k", &plain]).status().unwrap();
    assert!(done.success());
    let packed = folder.path("four.csv.gz");
    assert_eq!(weir(&["replay", &conf, "em0", &packed]).ok().out, expected);
    // Cut short, it is damaged, and says so.
    let bytes = std::fs::read(&packed).unwrap();
    let short = folder.write("short.csv.gz", &bytes[..bytes.len() - 12]);
    weir(&["replay", "-j", &conf, "em0", &short]).fails(2, &[&short]);
}

#[test]
fn conditioners_act_before_the_classes() {
    let folder = Folder::new();
    let conf = "\
interface em0 bandwidth 1M priq
class priq em0 gold NULL priority 1
class priq em0 rest NULL default
filter em0 gold 0 0 0 0 0 dscp AF11
conditioner em0 profile <tbmeter 8K 1500 <mark AF11><drop>>
filter em0 profile 10.0.0.2 80 0 0 6
";
    let conf = folder.write("a.altq", conf);
    // A bucket of 1500 bytes: the first packet of 1000 is in profile, the second is not; a second
    // later 1000 bytes are there again.
    let frames = [
        (0, pcap::frame(6, 1234, 80, 0, 1000)),
        (1_000, pcap::frame(6, 1234, 80, 0, 1000)),
        (2_000, pcap::frame(6, 1234, 81, 0, 500)),
        (1_100_000, pcap::frame(6, 1234, 80, 0, 1000)),
    ];
    let trace = folder.write("c.pcap", pcap::file(&frames, 65_535));
    let run = weir(&["replay", &conf, "em0", &trace]).ok();
    let kinds: Vec<(char, &str, usize)> =
        conserved(&run.out, 4).into_iter().map(|(kind, _, class, index)| (kind, class, index)).collect();
    assert_eq!(kinds[1..], [('D', "gold", 0), ('D', "rest", 2), ('D', "gold", 3)], "{}", run.out);
    assert_eq!((kinds[0].0, kinds[0].2), ('X', 1), "{}", run.out);
    assert!(run.out.contains(",policed\n"), "{}", run.out);
    // A profile of the whole link polices nothing.
    let wide = folder.write("wide.altq", folder.read("a.altq").replace("8K 1500", "1M 15000"));
    assert!(!weir(&["replay", &wide, "em0", &trace]).ok().out.contains("policed"));
}

#[test]
fn a_damaged_trace_is_refused_at_its_line() {
    let folder = Folder::new();
    let conf = folder.write("a.altq", TWO_CLASSES);
    for (name, text, words) in [
        ("unsorted", "rate 1000000\n5,voice,100\n4,voice,100\n", &["line 3", "sort"][..]),
        ("class", "rate 1000000\n5,video,100\n", &["packet 0", "no class `video`", "voice, rest"]),
        ("index", "rate 1000000\n5,3,100\n", &["no class `3`"]),
        ("zero", "rate 1000000\n5,0,100\n", &["no class `0`"]),
        ("rate", "rate 0\n5,voice,100\n", &["line 1", "rate"]),
        ("no rate", "5,voice,100\n", &["line 1", "rate BPS"]),
        ("fields", "rate 1000000\n5,voice\n", &["line 2", "arrival_ns,class,size"]),
        ("size", "rate 1000000\n5,voice,0\n", &["line 2", "size"]),
        ("dscp", "rate 1000000\n5,voice,100,64\n", &["line 2", "DSCP"]),
        ("time", "rate 1000000\n-5,voice,100\n", &["line 2", "nanoseconds"]),
        ("empty", "", &["empty"]),
    ] {
        let trace = folder.write("t.csv", text);
        let run = weir(&["replay", &conf, "em0", &trace]);
        assert_eq!(run.code, 2, "{name}: {run:?}");
        for word in words.iter().chain(&[trace.as_str()]) {
            assert!(run.err.contains(word), "{name}: expected {word:?} in {}", run.err);
        }
    }
    let mut capture = pcap::file(&[(0, pcap::frame(17, 1, 2, 0, 100))], 65_535);
    capture.truncate(60);
    let trace = folder.write("short.pcap", capture);
    weir(&["replay", &conf, "em0", &trace]).fails(2, &["byte", &trace]);
}

/// No packet disappears where time ends; it is said instead.
#[test]
fn packets_that_never_leave_are_an_error() {
    let folder = Folder::new();
    let conf = folder.write("a.altq", TWO_CLASSES);
    let late = folder.write("late.csv", format!("rate 1000000\n0,voice,100\n{},voice,100\n", u64::MAX));
    let run = weir(&["replay", "-j", &conf, "em0", &late]);
    assert!(run.code == 2 && run.out.is_empty() && run.err.contains("1 packets had not left"), "{run:?}");
    // A class that may not borrow and has no share never sends.
    let never = "interface em0 bandwidth 1M cbq\nclass cbq em0 top NULL pbandwidth 100\n\
                 class cbq em0 def top pbandwidth 90 default\nclass cbq em0 none top pbandwidth 0\n";
    let never = folder.write("never.altq", never);
    let trace = folder.write("n.csv", "rate 1000000\n0,def,100\n0,none,100\n0,none,100\n");
    let run = weir(&["replay", "-j", &never, "em0", &trace]);
    assert!(run.code == 2 && run.err.contains("had not left"), "{run:?}");
}

#[test]
fn a_million_packets_are_conserved() {
    const PACKETS: usize = 1_000_000;
    let folder = Folder::new();
    let conf = folder.write("a.altq", TWO_CLASSES.replace("10M", "1G"));
    let mut trace = String::from("rate 1000000000\n");
    let mut state = 20_26u64;
    for n in 0..PACKETS {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (class, len) = (if state >> 62 == 0 { "voice" } else { "rest" }, 64 + (state >> 33) % 1451);
        // On average a little more than the link carries: queues fill, some are dropped.
        writeln!(trace, "{},{class},{len}", n * 6_000).unwrap();
    }
    let trace = folder.write("million.csv", trace);
    let file = folder.path("out.csv");
    let run = weir(&["replay", &conf, "em0", &trace, "--out", &file, "-j"]).ok();
    let summary = run.json();
    let out = folder.read("out.csv");
    let events = conserved(&out, PACKETS);
    let dropped = events.iter().filter(|e| e.0 == 'X').count();
    assert_eq!(summary["packets"], PACKETS);
    assert_eq!(summary["dropped"], dropped);
    assert_eq!(summary["sent"], PACKETS - dropped);
    assert!(dropped > 1_000, "the queues fill: {dropped}");
    assert!(events.iter().all(|e| e.0 == 'D' || e.2 == "rest"), "voice is above and never full");
}

#[test]
fn the_same_bytes_from_run_to_run() {
    let folder = Folder::new();
    let mut trace = String::from("rate 10000000\n");
    let mut state = 7u64;
    for n in 0..20_000u64 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        writeln!(trace, "{},{},{},{}", n * 500_000, 1 + (state >> 62) % 2, 64 + (state >> 33) % 1400, n % 64)
            .unwrap();
    }
    let trace = folder.write("t.csv", trace);
    for (name, conf) in [
        ("priq", TWO_CLASSES.to_owned()),
        (
            "red",
            TWO_CLASSES
                .replace("NULL default", "NULL default qlimit 40 red")
                .replace("voice NULL", "voice NULL rio"),
        ),
        ("wfq", "interface em0 bandwidth 10M wfq\n".into()),
        ("blue", "interface em0 bandwidth 10M blue\n".into()),
        ("fqcodel", "interface em0 bandwidth 10M fqcodel\n".into()),
    ] {
        let conf = folder.write(name, conf);
        let first = weir(&["replay", &conf, "em0", &trace]).ok().out;
        conserved(&first, 20_000);
        assert!(first == weir(&["replay", &conf, "em0", &trace]).ok().out, "{name}");
    }
    // Random drops depend on what came before them, so they are not trivially equal: RED drops.
    let red = folder.path("red");
    assert!(weir(&["replay", &red, "em0", &trace]).ok().out.contains(",early"));
}

/// With `recognise` a replay of a capture says who would have been found, at which packet and why; what
/// the edge drops is dropped there.
#[test]
fn a_capture_says_who_is_found() {
    let folder = Folder::new();
    let conf = |options: &str| {
        let text = format!(
            "interface em0 bandwidth 10M priq\nclass priq em0 rt NULL priority 5\n\
             class priq em0 be NULL priority 1 default\nfilter em0 rt 0 0 0 0 0 dscp EF\nrecognise em0 {options}\n"
        );
        folder.write("a.altq", text)
    };
    // Two calls, of which the second has its header 27 bytes in; and a stranger.
    let packet = |port: u16, hidden: usize, n: u16| {
        let mut frame = pcap::frame(17, port, 5_004, 0, 42 + hidden + 12 + 160);
        let timestamp = u32::from(n) * 160;
        let header =
            [&[0x80, 0][..], &n.to_be_bytes(), &timestamp.to_be_bytes(), &[0, 0, 0xab, 0xcd]].concat();
        frame[42..42 + hidden].fill(5);
        frame[42 + hidden..54 + hidden].copy_from_slice(&header);
        frame
    };
    let mut frames = Vec::new();
    for n in 0..20u16 {
        let at_us = u64::from(n) * 20_000;
        frames.push((at_us, packet(7_000, 0, n)));
        frames.push((at_us + 1_000, packet(7_001, 27, n)));
        frames.push((at_us + 2_000, pcap::frame(17, 7_002, 53, 0, 200)));
    }
    let capture = folder.path("c.pcap");
    std::fs::write(&capture, pcap::file(&frames, 65_535)).unwrap();
    let run = weir(&["replay", &conf(""), "em0", &capture]).ok();
    assert!(run.out.contains("2 of 3 directions of UDP flows are real-time, 0 are QUIC"), "{}", run.out);
    assert!(run.out.contains("rtp+27"), "{}", run.out);
    let json = |conf: &str| {
        let out = weir(&["replay", "-j", conf, "em0", &capture]).ok().out;
        serde_json::from_str::<serde_json::Value>(&out).unwrap()
    };
    let found = json(&conf(""));
    let flows = found["recognised"]["flows"].as_array().unwrap();
    let of = |n: usize| (flows[n]["kind"].as_str().unwrap(), flows[n]["packet"].as_u64().unwrap());
    assert_eq!([of(0), of(1)], [("rtp", 4), ("rtp+27", 8)]);
    assert_eq!((&flows[0]["ssrc"], &flows[0]["span_ns"]), (&"0000abcd".into(), &60_000_000.into()));
    // From that packet on they go to the class of EF.
    let voice = found["classes"].as_array().unwrap().iter().find(|c| c["class"] == "rt").unwrap();
    assert_eq!(voice["offered_packets"], 17 + 13);
    let off = json(&conf("rtp off"));
    assert_eq!(off["recognised"]["flows"].as_array().unwrap().len(), 0);
    assert!(off["classes"].as_array().unwrap().iter().all(|c| c["class"] != "rt"));
    // Lines go to a file, and each packet is there once.
    let lines = folder.path("lines.csv");
    weir(&["replay", &conf(""), "em0", &capture, "--out", &lines]).ok();
    conserved(&folder.read("lines.csv"), 60);
    // Contracts hold: calls of 200 kbit/s together under a contract of 40, without what its depth holds.
    let contract = conf("\nsla em0 1 0.0.0.0/0 bw 40K policy drop");
    weir(&["replay", &contract, "em0", &capture, "--out", &lines]).ok();
    let text = folder.read("lines.csv");
    conserved(&text, 60);
    assert!(text.lines().any(|line| line.ends_with(",policed") && line.contains(",edge,")), "{text}");
}
