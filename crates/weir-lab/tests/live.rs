//! Scenarios live, and reversed; the data plane between kernels. Needs root.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

use std::sync::{Mutex, MutexGuard};
use weir_lab::{Error, Options, Program, run};
use weir_report::Report;
use weir_report::report::{Delay, FlowReport};
use weir_scenario::Scenario;
use weir_seed::{in_time, timed};

fn rtt(flow: &FlowReport) -> &Delay {
    flow.rtt.as_ref().unwrap()
}

fn one_way(flow: &FlowReport) -> &Delay {
    flow.one_way.as_ref().unwrap()
}

fn program() -> Program {
    Program { path: env!("CARGO_BIN_EXE_weir-lab-node").into(), arguments: Vec::new() }
}

/// One test at a time: they measure time, and the machine may be small. `None`: skipped.
fn turn() -> Option<MutexGuard<'static, ()>> {
    static TURN: Mutex<()> = Mutex::new(());
    match weir_lab::bed::possible_here() {
        Ok(()) => Some(TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner())),
        Err(why) => {
            eprintln!("SKIPPED: {why}");
            None
        }
    }
}

fn scenario(text: &str) -> Scenario {
    Scenario::from_toml("test.toml", text).unwrap_or_else(|e| panic!("{e}"))
}

fn live(text: &str) -> Result<Report, Error> {
    let options = Options { program: Some(program()), ..Options::default() };
    run(&scenario(text), &options)
}

/// Hosts a and b left, z right; 10 Mbit/s, round trip 10 ms.
fn star(conf: &str, rest: &str) -> String {
    let quoted = conf.replace('\n', "\\n");
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
{rest}
"#
    )
}

fn shares(big: u32, small: u32) -> String {
    format!(
        "interface em0 bandwidth 10M cbq\nclass cbq em0 root NULL pbandwidth 100\n\
         class cbq em0 x root exactbandwidth {big}M\nclass cbq em0 y root exactbandwidth {small}M default\n\
         filter em0 x 0 5001 0 0 6\n"
    )
}

const TWO_FLOWS: &str = r#"
[[flow]]
from = "a"
to = "z"
class = "x"
[[flow]]
from = "b"
to = "z"
port = 5002
class = "y"
"#;

fn rate_bps(report: &Report, class: &str) -> f64 {
    rate_at(report, 0, class)
}

fn rate_at(report: &Report, port: usize, class: &str) -> f64 {
    // From one second on, in cells of 100 ms.
    let series = &report.ports[port].class(class).unwrap().series.sent_bytes;
    let cells = (1_000_000_000 / report.meta.cell_ns) as usize;
    let bytes: u64 = series.iter().skip(cells).sum();
    bytes as f64 * 8.0 / 2.0
}

/// Two boxes in line: s crosses both, m the second one alone, and n the first one. The first has room for all, the second
/// shares.
fn line(conf: &str) -> String {
    let quoted = conf.replace('\n', "\\n");
    format!(
        r#"
duration = "3s"
host = [{{ name = "s" }}, {{ name = "m" }}, {{ name = "n" }}, {{ name = "k" }}]
link = [
    {{ a = "s", b = "r1", rate = "1G", delay = "1ms" }},
    {{ a = "r1", b = "r2", rate = "20M", delay = "2ms" }},
    {{ a = "m", b = "r2", rate = "1G", delay = "3ms" }},
    {{ a = "r2", b = "n", rate = "1G", delay = "4ms" }},
    {{ a = "r2", b = "r3", rate = "10M", delay = "5ms" }},
    {{ a = "r3", b = "k", rate = "1G", delay = "6ms" }},
]
port = [
    {{ at = "r1", to = "r2", text = "interface em0 bandwidth 20M fifoq" }},
    {{ at = "r2", to = "r3", text = "{quoted}" }},
]
flow = [
    {{ from = "s", to = "k", port = 5001 }},
    {{ from = "m", to = "k", port = 5002 }},
    {{ from = "s", to = "n", kind = "udp", port = 5003, rate = "100K", size = 100 }},
]
"#
    )
}

#[test]
fn two_boxes_in_line_each_manage_their_link() {
    let Some(_turn) = turn() else { return };
    timed(|| {
        let holds = |report: &Report, x_bps: f64, y_bps: f64| {
            let near = |got: f64, want: f64| (got / want - 1.0).abs() < 0.2;
            near(rate_at(report, 1, "x"), x_bps) && near(rate_at(report, 1, "y"), y_bps)
        };
        let rates = |report: &Report| (rate_at(report, 1, "x"), rate_at(report, 1, "y"));
        let report = live(&line(&shares(6, 2))).unwrap();
        in_time!(holds(&report, 6e6, 2e6), "{:?}", rates(&report));
        let reversed = live(&line(&shares(2, 6))).unwrap();
        in_time!(!holds(&reversed, 6e6, 2e6) && holds(&reversed, 2e6, 6e6), "{:?}", rates(&reversed));
        // Each link's delay is added once: 1, 2, 5 and 6 ms there, and as much back.
        let [s, _, n] = &report.flows[..] else { panic!("three flows") };
        assert!(rtt(s).mean_ns >= 28e6, "{:?}", rtt(s));
        assert!(one_way(n).mean_ns >= 7e6, "{:?}", one_way(n));
        in_time!(one_way(n).mean_ns < 10e6, "{:?}", one_way(n));
        // Each box sees what crosses it.
        let packets =
            |port: usize| report.ports[port].classes.iter().map(|class| class.offered.packets).sum::<u64>();
        in_time!(packets(1) > packets(0) && packets(0) > 1_000, "{} and {}", packets(0), packets(1));
    });
}

#[test]
fn classes_get_their_shares_live_and_reversed() {
    let Some(_turn) = turn() else { return };
    timed(|| {
        // The kernel's TCP under CBQ without borrowing: 6 and 2 Mbit/s, whoever asks for more.
        let holds = |report: &Report, x_bps: f64, y_bps: f64| {
            let near = |got: f64, want: f64| (got / want - 1.0).abs() < 0.2;
            near(rate_bps(report, "x"), x_bps) && near(rate_bps(report, "y"), y_bps)
        };
        let report = live(&star(&shares(6, 2), TWO_FLOWS)).unwrap();
        in_time!(holds(&report, 6e6, 2e6), "{} {}", rate_bps(&report, "x"), rate_bps(&report, "y"));
        let reversed = live(&star(&shares(2, 6), TWO_FLOWS)).unwrap();
        in_time!(!holds(&reversed, 6e6, 2e6) && holds(&reversed, 2e6, 6e6));
        in_time!(report.pass(), "{:?}", report.checks);
        // The books agree with one another.
        for class in &report.ports[0].classes {
            let dropped = class.dropped_in_all().packets;
            assert_eq!(
                class.offered.packets,
                class.sent.packets + dropped + class.left.packets,
                "{}",
                class.name
            );
        }
        // What the flows lost is what the box dropped of them.
        let dropped: u64 = report.ports[0].classes.iter().map(|c| c.dropped_in_all().packets).sum();
        let lost: u64 = report.flows.iter().map(|flow| flow.lost).sum();
        assert_eq!(lost, dropped);
        let link = report.link("box>z").unwrap();
        in_time!(link.utilisation > 0.7 && link.utilisation < 0.9, "{}", link.utilisation);
        for flow in &report.flows {
            in_time!(flow.delivered_bytes > 400_000 && rtt(flow).count > 10, "{flow:?}");
            in_time!(rtt(flow).mean_ns > 9.5e6, "the path alone takes 10 ms: {}", rtt(flow).mean_ns);
        }
        in_time!(!report.meta.notes.iter().any(|n| n.contains("not valid")), "{:?}", report.meta.notes);
        let carries = report.meta.notes.iter().filter(|n| n.contains("without shaping the testbed carries"));
        assert_eq!(carries.count(), 1, "one managed egress: {:?}", report.meta.notes);
    });
}

/// With the offloads left on, the hosts send aggregates of up to 64 KB, and the shares are those
/// without. Reversed: without them there is nothing to take apart.
#[test]
fn offloads_may_stay_on() {
    let Some(_turn) = turn() else { return };
    timed(|| {
        let apart = |report: &Report| report.meta.notes.iter().any(|n| n.contains("were taken apart"));
        let with = |offload: bool| {
            live(&star(&shares(6, 2), &format!("[lab]\noffload = {offload}\n{TWO_FLOWS}"))).unwrap()
        };
        let report = with(true);
        in_time!(apart(&report), "{:?}", report.meta.notes);
        in_time!(report.pass(), "{:?}", report.checks);
        let plain = with(false);
        in_time!(!apart(&plain), "{:?}", plain.meta.notes);
        for class in ["x", "y"] {
            let (with, without) = (rate_bps(&report, class), rate_bps(&plain, class));
            in_time!((with / without - 1.0).abs() < 0.05, "{class}: {with} and {without}");
        }
    });
}

/// A link that the testbed cannot carry twice is said to be too fast for it, before anybody
/// believes the figures. A run lasts less than a second longer for each direction.
#[test]
fn a_link_too_fast_for_the_testbed_is_not_valid() {
    let Some(_turn) = turn() else { return };
    timed(|| {
        let conf = "interface em0 bandwidth 400G fifoq qlimit 1000\n";
        let fast = |rate: &str| {
            star(conf, "")
                .replace("\"10M\"", rate)
                .replace("\"1G\"", "\"400G\"")
                .replace("\"3s\"", "\"100ms\"")
        };
        let begun = std::time::Instant::now();
        let report = live(&fast("\"400G\"")).unwrap();
        in_time!(begun.elapsed() < std::time::Duration::from_secs(10), "{:?}", begun.elapsed());
        let notes = &report.meta.notes;
        in_time!(
            notes.iter().any(|n| n.starts_with("not valid: without shaping the testbed carries")),
            "{notes:?}"
        );
        // Reversed: the same on a link that is slow.
        let report = live(&fast("\"10M\"")).unwrap();
        in_time!(!report.meta.notes.iter().any(|n| n.contains("not valid")), "{:?}", report.meta.notes);
    });
}

#[test]
fn a_flow_outside_its_asserted_class_is_found_out() {
    let Some(_turn) = turn() else { return };
    timed(|| {
        let wrong = TWO_FLOWS.replace("class = \"x\"", "class = \"y\"");
        let report = live(&star(&shares(6, 2), &wrong)).unwrap();
        in_time!(!report.pass());
        in_time!(report.flows[0].misclassified > 100 && report.flows[1].misclassified == 0);
    });
}

#[test]
fn delays_windows_and_datagrams_are_as_written() {
    let Some(_turn) = turn() else { return };
    timed(|| {
        let rest = r#"
[[flow]]
from = "a"
to = "z"
window = 20000
[[flow]]
from = "b"
to = "z"
kind = "udp"
port = 5002
rate = "400k"
size = 500
[[flow]]
from = "z"
to = "b"
kind = "rr"
port = 5003
request = 64
response = 64
pause = "5ms"
"#;
        let report = live(&star("interface em0 bandwidth 10M fifoq", rest)).unwrap();
        let [window, datagrams, requests] = &report.flows[..] else { panic!("three flows") };
        // 20 KB in 10 ms and a little for the queue: 16 Mbit/s would fit, were the link not 10.
        in_time!(
            window.retransmits == Some(0) && window.lost == 0,
            "a window below the path's capacity loses nothing"
        );
        in_time!(window.delivered_bytes > 2_000_000, "{}", window.delivered_bytes);
        let queued = report.ports[0].classes[0].backlog_max.packets;
        in_time!(queued <= 16, "20 KB are 14 packets, and {queued} waited");
        in_time!((295..=305).contains(&datagrams.sent.packets), "{}", datagrams.sent.packets);
        in_time!(datagrams.lost == 0 && one_way(datagrams).count >= 290, "{datagrams:?}");
        // One way: 5 ms and the queue's wait, no more than 14 packets' time.
        let mean_ms = one_way(datagrams).mean_ns / 1e6;
        in_time!((5.0..25.0).contains(&mean_ms), "{mean_ms}");
        in_time!(requests.transactions > Some(50) && rtt(requests).mean_ns > 10e6, "{requests:?}");
    });
}

#[test]
fn marks_reach_the_kernel_s_tcp_and_spare_it_losses() {
    let Some(_turn) = turn() else { return };
    timed(|| {
        // The same queue with RED marking and dropping; both ends of the link managed.
        let conf = |ecn: &str| {
            format!(
                "interface em0 bandwidth 10M cbq\nclass cbq em0 root NULL pbandwidth 100\n\
             class cbq em0 x root borrow exactbandwidth 8M default red {ecn} thmin 5 thmax 40\n"
            )
        };
        let flow = |ecn: bool| format!("[[flow]]\nfrom = \"a\"\nto = \"z\"\necn = {ecn}\n");
        let marking = live(&star(&conf("ecn"), &flow(true))).unwrap();
        let dropping = live(&star(&conf(""), &flow(false))).unwrap();
        let class = |report: &Report| report.ports[0].class("x").unwrap().clone();
        let (marked, dropped) = (class(&marking), class(&dropping));
        in_time!(marked.marked >= 3, "{}", marked.marked);
        assert_eq!(dropped.marked, 0);
        let early =
            |class: &weir_report::report::ClassReport| class.dropped.get("early").map_or(0, |c| c.packets);
        in_time!(early(&dropped) > early(&marked), "{:?} {:?}", dropped.dropped, marked.dropped);
        in_time!(marking.flows[0].delivered_bytes > 2_000_000);
    });
}

#[test]
fn ipv6_flows_run_beside_ipv4_and_find_their_class() {
    let Some(_turn) = turn() else { return };
    timed(|| {
        if !std::path::Path::new("/proc/sys/net/ipv6").exists() {
            eprintln!("SKIPPED: this kernel has no IPv6");
            return;
        }
        let conf = shares(6, 2).replace("filter em0 x 0 5001 0 0 6", "filter6 em0 x ::0 5001 ::0 0 6");
        let rest = r#"
flow = [
    { from = "a", to = "z", class = "y" },
    { from = "a", to = "z", ipv6 = true, class = "x" },
    { from = "z", to = "b", ipv6 = true, kind = "rr", port = 5003, request = 64, response = 64 },
    { from = "b", to = "z", ipv6 = true, kind = "udp", port = 5004, rate = "100k", size = 500, class = "y" },
]
"#;
        let report = live(&star(&conf, rest)).unwrap();
        in_time!(report.pass(), "{:?}", report.checks);
        let [four, six, requests, datagrams] = &report.flows[..] else { panic!("four flows") };
        in_time!(six.delivered_bytes > 2 * four.delivered_bytes, "6 and 2 Mbit/s");
        // The responses wait behind the TCP of class y.
        let rtt_ms = rtt(requests).mean_ns / 1e6;
        in_time!(requests.transactions > Some(8) && rtt_ms > 10.0, "{:?} {rtt_ms}", requests.transactions);
        in_time!(
            (70..=78).contains(&datagrams.sent.packets)
                && datagrams.sent.bytes == datagrams.sent.packets * 500
        );
    });
}

#[test]
fn what_cannot_run_here_says_why() {
    let Some(_turn) = turn() else { return };
    let fifo = "interface em0 bandwidth 10M fifoq";
    let both =
        "[[flow]]\nfrom = \"a\"\nto = \"z\"\necn = true\n[[flow]]\nfrom = \"a\"\nto = \"z\"\nport = 5002\n";
    let stays = "[[flow]]\nfrom = \"a\"\nto = \"b\"\n";
    for (rest, said) in
        [(both, "with and without `ecn` share host `a`"), (stays, "stays on one side of the box")]
    {
        match live(&star(fifo, rest)) {
            Err(Error::Impossible(why)) => assert!(why.contains(said), "{why}"),
            other => panic!("{rest}: {other:?}"),
        }
    }
    match live(&star("interface em0 bandwidth 10M cbbq", "")) {
        Err(Error::Input(why)) => assert!(why.contains("cbbq"), "{why}"),
        other => panic!("{other:?}"),
    }
}
