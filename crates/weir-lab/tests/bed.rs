//! The testbed with a kernel bridge in its box: namespaces, links, senders, receivers, and that
//! nothing is left behind. Needs root.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

use serde_json::json;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use weir_lab::bed::{Bed, BedHost, BedPlan, possible_here};
use weir_lab::bench::Mode;
use weir_lab::flow::{FlowReport, ReceiverKind, ReceiverSpec, SenderSpec, Traffic};
use weir_lab::node::{Order, Program};
use weir_scenario::media::Headers;
use weir_scenario::scenario::Flow;
use weir_seed::{in_time, timed};
use weir_sys::now;

const MS: u64 = 1_000_000;

fn program() -> Program {
    Program { path: env!("CARGO_BIN_EXE_weir-lab-node").into(), arguments: Vec::new() }
}

/// One test at a time: they measure time, and the machine may be small. `None`: skipped.
fn turn() -> Option<MutexGuard<'static, ()>> {
    static TURN: Mutex<()> = Mutex::new(());
    match possible_here() {
        Ok(()) => Some(TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner())),
        Err(why) => {
            eprintln!("SKIPPED: {why}");
            None
        }
    }
}

fn plan() -> BedPlan {
    let host = |name: &str, last| BedHost {
        name: name.into(),
        address: [10, 0, 0, last].into(),
        address6: None,
        settings: Vec::new(),
    };
    BedPlan {
        sides: vec![vec![host("a", 1), host("a2", 2)], vec![host("b", 3)]],
        mtu: 1500,
        offloads: false,
        hosts_cpu: Some(0),
    }
}

struct Run {
    bed: Bed,
    t0: u64,
    end: u64,
}

impl Run {
    fn start(length_ms: u64) -> Run {
        let mut bed = Bed::build(&plan(), &program()).unwrap();
        bed.boxed()
            .tell(&Order::Ip(
                "link add name k type bridge stp_state 0 forward_delay 0\nlink set left master k\nlink set right master k\nlink set k up\n"
                    .into(),
            ))
            .unwrap();
        let t0 = now().as_nanos() + 50 * MS;
        Run { bed, t0, end: t0 + length_ms * MS }
    }
    fn receive(&mut self, kind: ReceiverKind, port: u16, flows: Vec<(u16, Option<u32>)>) {
        let spec = ReceiverSpec {
            kind,
            port,
            ipv6: false,
            flows,
            tos: 0,
            t0_ns: self.t0,
            cell_ns: 100 * MS,
            end_ns: self.end,
            quick_ack: false,
        };
        self.bed.host("b").unwrap().tell(&Order::Receive(spec)).unwrap();
    }
    fn send(&mut self, from: &str, from_port: u16, port: u16, active: &[(u64, u64)], traffic: Traffic) {
        let spec = SenderSpec {
            to: SocketAddr::new([10, 0, 0, 3].into(), port),
            from_port,
            tos: 0xb8,
            active: active.iter().map(|&(from, to)| (self.t0 + from * MS, self.t0 + to * MS)).collect(),
            end_ns: self.end,
            traffic,
        };
        self.bed.host(from).unwrap().tell(&Order::Send(spec)).unwrap();
    }
    fn collect(mut self) -> Vec<FlowReport> {
        let mut all = Vec::new();
        for name in ["a", "a2", "b"] {
            let node = self.bed.host(name).unwrap();
            node.ask(&Order::Collect).unwrap();
            let reports: Vec<FlowReport> =
                serde_json::from_value(node.answer(Duration::from_secs(15)).unwrap()).unwrap();
            all.extend(reports);
        }
        all
    }
}

fn find(reports: &[FlowReport], port: u16, sender: bool) -> &FlowReport {
    reports.iter().find(|r| r.port == port && r.sender == sender).expect("each end reports")
}

#[test]
fn tcp_udp_and_requests_cross_the_box_and_are_counted() {
    let Some(_turn) = turn() else { return };
    timed(|| {
        let mut run = Run::start(1500);
        run.receive(ReceiverKind::Tcp, 5001, vec![(20000, None), (20001, None)]);
        run.receive(ReceiverKind::Udp, 5002, vec![(20002, None)]);
        run.receive(ReceiverKind::Rr, 5003, vec![(20003, Some(400))]);
        run.receive(ReceiverKind::Rtp, 5004, vec![(20004, None)]);
        let tcp = |congestion: &str, chunk| Traffic::Tcp {
            congestion: congestion.into(),
            mss_bytes: None,
            chunk,
            unsent_bytes: Some(16384),
        };
        // One stream that pauses, one of a single chunk; 1 Mbit/s of packets; requests.
        run.send("a", 20000, 5001, &[(0, 400), (900, 1500)], tcp("reno", None));
        run.send("a2", 20001, 5001, &[(0, 1500)], tcp("cubic", Some((100_000, None))));
        let udp =
            Traffic::Udp { payload_bytes: 958, burst: 1, period_ns: 8 * MS, on: Vec::new(), media: None };
        run.send("a2", 20002, 5002, &[(0, 1500)], udp);
        // A call: its number and time stand behind the header of RTP.
        let call: Flow = serde_json::from_str(r#"{"from":"a","to":"b","kind":"rtp","ssrc":7}"#).unwrap();
        let rtp = Traffic::Udp {
            payload_bytes: call.media_octets(),
            burst: 1,
            period_ns: 20 * MS,
            on: Vec::new(),
            media: Some(Headers::new(&call, 0, 1)),
        };
        run.send("a2", 20004, 5004, &[(0, 1500)], rtp);
        let rr = Traffic::Rr { request_bytes: 100, response_bytes: 400, pause_ns: 2 * MS };
        run.send("a", 20003, 5003, &[(0, 1500)], rr);
        let reports = run.collect();
        for report in &reports {
            assert!(report.errors.is_empty(), "{report:?}");
        }
        let paused = find(&reports, 20000, false);
        let cells = &paused.delivered;
        in_time!(cells[1] > 1_000_000 && cells[11] > 1_000_000, "{cells:?}");
        in_time!(cells[6] + cells[7] < cells[1] / 20, "idle from 400 to 900 ms: {cells:?}");
        let sender = find(&reports, 20000, true);
        in_time!(sender.sent_bytes >= paused.delivered_bytes && sender.rtt.count() > 5, "{sender:?}");
        assert_eq!(find(&reports, 20001, false).delivered_bytes, 100_000);
        let (sent, got) = (find(&reports, 20002, true), find(&reports, 20002, false));
        in_time!((180..=188).contains(&sent.sent_packets), "{}", sent.sent_packets);
        in_time!(got.lost + 2 >= sent.sent_packets - got.delivered_packets);
        in_time!(got.delivered_packets > 170 && got.one_way.count() == got.delivered_packets);
        let (sent, got) = (find(&reports, 20004, true), find(&reports, 20004, false));
        in_time!((73..=75).contains(&sent.sent_packets), "{}", sent.sent_packets);
        in_time!(got.delivered_packets + 2 >= sent.sent_packets && got.lost == 0, "{got:?}");
        assert_eq!(
            (got.one_way.count(), got.delivered_bytes),
            (got.delivered_packets, got.delivered_packets * 172)
        );
        in_time!(got.one_way.max() < 1_000_000_000, "{got:?}");
        let asked = find(&reports, 20003, true);
        in_time!(asked.transactions > 100 && asked.rtt.max() < 1_000_000_000, "{asked:?}");
    });
}

/// The kernel may hear of a carrier a second late. A bed that is built carries frames at once, and
/// one that cannot says which device is the cause.
#[test]
fn a_bed_that_is_built_is_ready() {
    let Some(_turn) = turn() else { return };
    let ready =
        |interface: &str, patience_ms| Order::Ready { interfaces: vec![interface.into()], patience_ms };
    for _ in 0..3 {
        let mut bed = Bed::build(&plan(), &program()).unwrap();
        for side in ["left", "right"] {
            bed.boxed().tell(&ready(side, 0)).unwrap();
        }
        for side in [0, 1] {
            bed.side(side).tell(&ready("box", 0)).unwrap();
        }
        for host in ["a", "a2", "b"] {
            bed.host(host).unwrap().tell(&ready("eth0", 0)).unwrap();
        }
        bed.boxed().tell(&Order::Ip("link set dev left down\n".into())).unwrap();
        let failed = bed.boxed().tell(&ready("left", 50)).unwrap_err().what;
        assert!(failed.starts_with("`left` does not send 50 ms after it was set up: it is down"), "{failed}");
        let failed = bed.side(0).tell(&ready("box", 50)).unwrap_err().what;
        assert!(failed.contains("it has no carrier"), "{failed}");
    }
}

/// Neighbours are asked for (ARP, broadcast there, unicast back) and pings answered through every
/// kind of box, the one with a discipline on its egress included: what is not IP must not starve.
#[test]
fn kernels_find_each_other_through_every_kind_of_box() {
    let Some(_turn) = turn() else { return };
    let mut plan = plan();
    plan.sides[0].truncate(1);
    plan.sides[1][0].address = [10, 0, 0, 2].into();
    let mut bed = Bed::build(&plan, &program()).unwrap();
    let call = |name: &str, with| Order::Call { name: name.into(), with };
    for mode in Mode::ALL {
        for host in ["a", "b"] {
            let flush = Order::Ip("neigh flush dev eth0 nud permanent\nneigh flush dev eth0\n".into());
            bed.host(host).unwrap().tell(&flush).unwrap();
        }
        bed.call_box("bench-begin", json!({ "mode": mode, "cpu": null })).unwrap();
        let answer = bed.host("a").unwrap().tell(&call("bench-ping", json!(20))).unwrap();
        let mean_us = answer["mean_us"].as_f64().unwrap();
        assert!(mean_us > 0.0 && mean_us < 50_000.0, "{mode:?}: {answer}");
        bed.call_box("bench-end", serde_json::Value::Null).unwrap();
    }
    // Without a box nobody answers.
    let silent = bed.host("a").unwrap().tell(&call("bench-ping", json!(2))).unwrap_err();
    assert!(silent.what.contains("no ping was answered"), "{silent}");
}

fn alive(pid: &str) -> bool {
    std::path::Path::new(&format!("/proc/{pid}")).exists()
}

/// When a process was started, in clock ticks since the machine was.
fn started(process: &std::path::Path) -> Option<u64> {
    let stat = std::fs::read_to_string(process.join("stat")).ok()?;
    // The name in parentheses may hold anything; twenty words behind it.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

#[test]
fn kill_9_of_the_parent_leaves_nothing() {
    let Some(_turn) = turn() else { return };
    let mut parent =
        Command::new(program().path).arg("hold").stdout(Stdio::piped()).stdin(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(parent.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let pids: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(pids.len(), 5, "two hosts, two bridges, the box: {line:?}");
    let namespaces: Vec<_> =
        pids.iter().map(|pid| std::fs::read_link(format!("/proc/{pid}/ns/net")).unwrap()).collect();
    let own = std::fs::read_link("/proc/self/ns/net").unwrap();
    assert!(namespaces.iter().all(|n| *n != own), "each in a namespace of its own");
    assert!(pids.iter().all(|pid| alive(pid)));
    let killed = started(&std::path::PathBuf::from(format!("/proc/{}", pids[4]))).unwrap() + 1;
    // SIGKILL: the parent cannot clean up.
    weir_sys::kill(parent.id(), true).unwrap();
    parent.wait().unwrap();
    for _ in 0..100 {
        if !pids.iter().any(|pid| alive(pid)) {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(!pids.iter().any(|pid| alive(pid)), "processes are left");
    // Nobody else holds the namespaces. Their numbers are used again, so only who was there
    // before the kill is meant.
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        if let Ok(net) = std::fs::read_link(process.path().join("ns/net"))
            && started(&process.path()).is_some_and(|ticks| ticks < killed)
        {
            assert!(!namespaces.contains(&net), "{process:?} still holds {net:?}");
        }
    }
    let here: Vec<_> =
        std::fs::read_dir("/sys/class/net").unwrap().flatten().map(|e| e.file_name()).collect();
    assert!(!here.iter().any(|n| n == "br" || n == "box" || n == "h0"), "{here:?}");
}
