//! An edge as its operator asks and tells it: flows, contracts and allocations by command, metrics.

use crate::bed::{Bed, Held, terminate, wait};
use crate::calls::{CONF, Call, Ended, calls, class, documented, edge, egress, end_all};
use crate::fail_open::pause;
use crate::support::WEIR;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use weir_seed::{in_time, timed};

/// Five calls are admitted, and the sixth is refused. `weir flows` names it, and says why.
// Claim L77.
#[test]
fn the_sixth_call_is_refused_by_name() {
    timed(|| {
        let Some((bed, up)) = edge("the test of admission on a live link", CONF) else { return };
        let mut calls = Vec::new();
        for number in 1..=6 {
            calls.push(Call::start(&bed, number, "10.0.0.1"));
            pause(1_700);
        }
        let flows = bed.ask(&["flows", "-j"]).ok().json();
        documented("weir flows -j", &flows);
        let all = flows["flows"].as_array().unwrap();
        let in_state = |state: &str| all.iter().filter(|flow| flow["state"] == state).count();
        in_time!(in_state("admitted") == 5 && in_state("refused") == 1, "{flows}");
        // A packet more or less stands in a window of 40.
        let at_50 =
            |flow: &&Value| flow["packets_per_second"].as_u64().is_some_and(|n| (48..=52).contains(&n));
        in_time!(all.iter().filter(at_50).count() >= 4, "{flows}");
        let text = bed.ask(&["flows", "--sla", "17"]).ok().out;
        let sixth = "udp 10.0.0.1:4006 > 10.0.0.2:6006";
        let refused = all.iter().find(|flow| flow["state"] == "refused").unwrap();
        in_time!(refused["flow"] == sixth, "{refused}");
        let why = refused["why"].as_str().unwrap();
        assert!(why.starts_with("class at ") && why.ends_with("% of 512 kbit/s, accept 90"), "{why}");
        assert!(text.contains("4006") && text.contains("refused"), "{text}");
        assert_eq!(
            bed.ask(&["flows", "--sla", "18", "-j"]).ok().json()["flows"].as_array().unwrap().len(),
            0
        );
        // The first call goes by order, and the sixth comes in as an emergency.
        let first = "udp 10.0.0.1:4001 > 10.0.0.2:6001";
        bed.ask(&["flow", "pin", first]).ok();
        bed.ask(&["flow", "evict", first]).fails(1, &["it is pinned: `weir flow unpin` it first"]);
        bed.ask(&["flow", "unpin", first]).ok();
        let evicted = bed.ask(&["flow", "evict", first, "-j"]).ok().json();
        documented("weir flow -j", &evicted);
        assert_eq!((&evicted["state"], &evicted["why"]), (&"refused".into(), &"evicted by order".into()));
        let pinned = bed.ask(&["flow", "pin", sixth, "-j"]).ok().json();
        assert_eq!((&pinned["state"], &pinned["pinned"]), (&"admitted".into(), &true.into()), "{pinned}");
        bed.ask(&["flow", "explain", "udp 10.0.0.1:1 > 10.0.0.2:2"]).ok();
        bed.ask(&["flow", "evict", "udp 10.0.0.1:1 > 10.0.0.2:2"])
            .fails(1, &["is not known", "`weir flows`"]);
        // How the class asks is read and set, by the paper's names too.
        let all = bed.ask(&["edge", "get", "right0", "rt", "-j"]).ok().json();
        documented("weir edge -j", &all);
        assert_eq!(
            (&all["values"]["law.gain"], &all["values"]["request.to"]),
            (&"300K".into(), &"512K".into())
        );
        assert_eq!(bed.ask(&["edge", "set", "right0", "rt", "law.gain=250K"]).ok().out, "law.gain=250K\n");
        let rises = bed.ask(&["edge", "get", "right0", "rt", "BB_connections_inc"]).ok().out;
        assert!(rises.starts_with("state.rises=") && !rises.ends_with("=0\n"), "{rises}");
        bed.ask(&["edge", "set", "right0", "rt", "gain=1M"]).fails(2, &["did you mean `law.gain`?"]);
        bed.ask(&["edge", "get", "right0", "tr"]).fails(2, &["did you mean `rt`?"]);
        bed.ask(&["edge", "get", "right0", "be"]).fails(2, &["`allocate right0 be`"]);
        // The class asks its broker, and says so.
        wait("the allocation", || {
            let allocator = class(&bed)["allocator"].clone();
            allocator["allocated_bps"].as_u64().unwrap() >= 450_000
                && allocator["granted"].as_u64().unwrap() > 0
        });
        metrics_say_the_same(&bed);
        let report = bed.ask(&["status", "-j"]).json();
        documented("weir status -j", &report);
        assert_eq!(report["brokers"][0]["held_bps"], class(&bed)["allocator"]["allocated_bps"]);
        let findings = report["findings"].as_array().unwrap();
        let why = findings.iter().find(|f| f["class"] == "rt").unwrap()["why"].as_str().unwrap().to_owned();
        // Calls that come late come together: that is congestion.
        in_time!(why.contains(" granted, 5 flows, target 90 %, last request "), "{why}");
        let all = end_all(calls);
        // Nothing else is on the link: nobody loses anything.
        in_time!(
            all.iter().all(|call| call.lost() == 0),
            "{:?}",
            all.iter().map(Ended::lost).collect::<Vec<_>>()
        );
        terminate(up).ok();
    });
}

/// What Prometheus reads is what `weir stats -j` says, contracts only if asked for, and over HTTP the same.
fn metrics_say_the_same(bed: &Bed) {
    let page = bed.ask(&["stats", "--prometheus"]).ok().out;
    for line in [
        "weir_state{interface=\"right0\",class=\"rt\",state=\"active\"} 1",
        "weir_edge_class_flows{interface=\"right0\",class=\"rt\"} 5",
        "weir_edge_class_flows_total{interface=\"right0\",class=\"rt\",fate=\"evicted\"} 1",
        "weir_link_up{interface=\"right0\"} 1",
        "weir_class_dropped_bytes_total{interface=\"right0\",class=\"rt\"} 0",
    ] {
        assert!(page.lines().any(|found| found == line), "no {line} in {page}");
    }
    let value = |page: &str, name: &str| -> u64 {
        let line = page.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("no {name} in {page}")).trim().parse().unwrap()
    };
    let sent = "weir_class_sent_packets_total{interface=\"right0\",class=\"rt\"}";
    let classes = egress(bed)["port"]["classes"].as_array().unwrap().clone();
    let class = classes.iter().find(|class| class["name"] == "rt").unwrap();
    let counted = class["sent_packets"].as_u64().unwrap();
    let after = bed.ask(&["stats", "--prometheus", "--slas"]).ok().out;
    assert!((value(&page, sent)..=value(&after, sent)).contains(&counted), "{counted}");
    assert!(
        !page.contains("weir_sla_") && after.contains("weir_sla_flows{interface=\"right0\",sla=\"17\"} 5\n")
    );
    bed.ask(&["stats", "--prometheus", "--listen", "here"]).fails(2, &["write it like `127.0.0.1:9469`"]);
    let served = ["stats", "--prometheus", "--listen", "127.0.0.1:0", "--socket", &bed.socket()];
    let mut serving = Held(Command::new(WEIR).args(served).stderr(Stdio::piped()).spawn().unwrap());
    let mut said = String::new();
    BufReader::new(serving.0.stderr.as_mut().unwrap()).read_line(&mut said).unwrap();
    let address = said.split("http://").nth(1).unwrap().split('/').next().unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: weir\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && value(&answer, sent) >= counted, "{answer}");
}

/// T61: contracts come, change and go by command while calls run: nobody loses a packet, and what other contracts count
/// goes on exactly. 60 changes; `WEIR_EFFORT=17` makes 1,020 of them.
// Claim L84.
#[test]
fn contracts_come_and_go_under_calls() {
    timed(|| {
        let Some((bed, up)) = edge("the test of contracts that come and go", CONF) else { return };
        let file = bed.folder.path("a.altq");
        let calls = calls(&bed, 3);
        pause(1_000);
        let more = weir_seed::effort(20);
        for n in 0..more {
            let (id, prefix) = ((100 + n).to_string(), format!("10.{}.{}.0/24", 7 + n / 256, n % 256));
            bed.ask(&["sla", "add", "left0", &id, &prefix, "bw", "1M", "policy", "drop"]).ok();
            bed.ask(&["sla", "set", "left0", &id, "bw", "2M"]).ok();
        }
        let listed = bed.ask(&["sla", "list", "-j"]).ok().json();
        documented("weir sla list -j", &listed);
        let listed = listed["contracts"].as_array().unwrap().clone();
        assert_eq!(
            (listed.len() as u64, &listed[2]["bandwidth_bps"]),
            (2 + more, &2_000_000.into()),
            "{listed:?}"
        );
        assert!(bed.ask(&["sla", "list"]).ok().out.contains("10.7.19.0/24"));
        let diff = bed.ask(&["diff", &file]);
        assert!(diff.code == 1 && diff.out.contains("sla left0 119"), "{diff:?}");
        for n in 0..more {
            bed.ask(&["sla", "del", "left0", &(100 + n).to_string()]).ok();
        }
        bed.ask(&["diff", &file]).ok();
        bed.ask(&["sla", "del", "left0", "100"]).fails(2, &["no contract 100", "it has 17, 18"]);
        bed.ask(&["sla", "add", "left0", "17", "10.7.0.0/24", "bw", "1M"])
            .fails(2, &["`weir sla set left0 17`"]);
        // What was changed is kept for the next start, too.
        bed.ask(&["sla", "set", "left0", "18", "bw", "300K"]).ok();
        assert!(bed.folder.read("state.altq").contains("bw 300K"));
        let all = end_all(calls);
        for call in &all {
            in_time!(call.lost() == 0, "{} of {}", call.lost(), call.sent);
            call.keeps_its_mark(3);
        }
        let contract = egress(&bed)["edge"]["contracts"][0].clone();
        let marked: u64 = all.iter().map(|call| u64::from(call.marked_from(0).1)).sum();
        let bytes = contract["in_profile_bytes"].as_u64().unwrap();
        // Each counts as its frame: 172 octets, and the headers of UDP, IPv4 and Ethernet.
        assert_eq!(bytes, marked * (172 + 8 + 20 + 14), "{contract} of {marked}");
        terminate(up).ok();
    });
}
