//! Whole scenarios: what must come out of a network of hosts, links and flows.

use crate::{Error, Options, bench, run_with};
use weir_report::FlowKind as Kind;
use weir_report::report::{Delay, FlowReport, Report};
use weir_scenario::Scenario;
use weir_text::Time;

fn read(text: &str) -> Scenario {
    Scenario::from_toml("test.toml", text).unwrap_or_else(|errors| panic!("{errors}"))
}

fn run(text: &str) -> Report {
    run_seeded(text, None)
}

fn run_seeded(text: &str, seed: Option<u64>) -> Report {
    let options = Options { seed, ..Options::default() };
    run_with(&read(text), options, &mut |_, _| Err(Error::Input("no managed port here".into()))).unwrap()
}

/// Two hosts behind a box on either side; rates and delays of the three links.
fn line(rate: &str, delay: &str, more: &str) -> String {
    format!(
        "duration = \"10s\"\n[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n\
         [[link]]\na = \"a\"\nb = \"left\"\nrate = \"1G\"\n\
         [[link]]\na = \"left\"\nb = \"right\"\nrate = \"{rate}\"\ndelay = \"{delay}\"\nqueue = 50\n\
         [[link]]\na = \"right\"\nb = \"b\"\nrate = \"1G\"\n{more}"
    )
}

fn one_way(flow: &FlowReport) -> &Delay {
    flow.one_way.as_ref().unwrap()
}

fn jain(flows: &[FlowReport]) -> f64 {
    let sum: f64 = flows.iter().map(|f| f.goodput_bps).sum();
    let squares: f64 = flows.iter().map(|f| f.goodput_bps * f.goodput_bps).sum();
    sum * sum / squares / flows.len() as f64
}

const MIXED: &str = "
[[flow]]
from = \"a\"
to = \"b\"
count = 2
[[flow]]
from = \"b\"
to = \"a\"
ipv6 = true
chunk = 30000
pause = \"100ms\"
[[flow]]
from = \"a\"
to = \"b\"
kind = \"udp\"
size = 300
rate = \"2M\"
on = \"200ms\"
off = \"300ms\"
distribution = \"exponential\"
[[flow]]
from = \"b\"
to = \"a\"
kind = \"udp\"
size = 1000
rate = \"1M\"
on = \"20ms\"
off = \"30ms\"
distribution = \"pareto\"
[[flow]]
from = \"a\"
to = \"b\"
kind = \"rr\"
request = 100
response = 1000
start = \"1s\"
stop = \"8s\"
idle = [[\"3s\", \"4s\"]]
[[flow]]
from = \"a\"
to = \"b\"
kind = \"udp\"
size = 1514
burst = 30
period = \"70ms\"
";

/// Each scenario of the bench runs: for a moment.
#[test]
fn what_the_bench_times_runs() {
    for name in bench::NAMES {
        let scenario = bench::scenario(name).unwrap_or_else(|| panic!("{name}"));
        let scenario = Scenario { duration: Time::from_nanos(200_000_000), ..scenario };
        let report =
            crate::run(&scenario, Options::default()).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(bench::deliveries(&report) > 100, "{name}");
        let managed = !name.contains("dumbbell");
        assert_eq!(report.ports.len(), usize::from(managed), "{name}");
        for port in &report.ports {
            // The root of CBQ has a queue, too, which no filter names.
            let busy = port.classes.iter().filter(|class| class.offered.packets > 0).count();
            assert!(busy == 1 || busy == 20, "{name}: {busy} classes have packets");
        }
    }
}

/// One golden value: a change of it is a change of every simulation.
#[test]
fn the_event_hash_is_the_same_everywhere() {
    let text = line("10M", "5ms", MIXED);
    let first = run(&text);
    assert_eq!(first.meta.events.as_deref(), Some("ddf983ebd1d7d284"));
    assert_eq!(first, run(&text));
    let other = run_seeded(&text, Some(2));
    assert_ne!(first.meta.events, other.meta.events);
    assert_eq!((first.meta.seed, other.meta.seed), (1, 2));
    assert!(first.flows.iter().all(|f| f.delivered_bytes > 0), "every kind of flow gets through");
}

/// A flow that shares nothing with another does not feel whether it is there.
#[test]
fn adding_a_flow_does_not_move_the_draws_of_others() {
    let mut text = String::from("duration = \"5s\"\n");
    for name in ["a", "b", "c", "d"] {
        text += &format!("[[host]]\nname = \"{name}\"\n");
    }
    for (a, b) in [("a", "b"), ("c", "d")] {
        text += &format!("[[link]]\na = \"{a}\"\nb = \"{b}\"\nrate = \"5M\"\ndelay = \"20ms\"\n");
    }
    let flow = |from, to| {
        format!(
            "[[flow]]\nfrom = \"{from}\"\nto = \"{to}\"\nkind = \"udp\"\nsize = 500\nrate = \"1M\"\n\
             on = \"50ms\"\noff = \"50ms\"\ndistribution = \"exponential\"\n"
        )
    };
    let alone = run(&(text.clone() + &flow("a", "b")));
    let both = run(&(text + &flow("a", "b") + &flow("c", "d")));
    assert_eq!(alone.flows[0], both.flows[0]);
    assert_ne!(both.flows[0].sent, both.flows[1].sent, "each has draws of its own");
}

#[test]
fn equal_round_trips_share_equally_and_unequal_ones_do_not() {
    let text = bench::dumbbell(10, 1, "10M", "100M", 100, 300);
    let report = run(&text);
    let fair = jain(&report.flows);
    assert!(fair >= 0.99, "Jain {fair}");
    let sum: f64 = report.flows.iter().map(|f| f.goodput_bps).sum();
    let ceiling = 10e6 * 1448.0 / 1538.0;
    assert!(sum <= ceiling && sum > 0.99 * ceiling, "{sum}");
    // Reversed: where some are six times as far, the near ones take more.
    let far = text.replacen("rate = \"100M\"\ndelay = \"5ms\"", "rate = \"100M\"\ndelay = \"155ms\"", 5);
    let unfair = jain(&run(&far).flows);
    assert!(unfair < 0.95, "Jain {unfair}");
}

/// Every packet is delivered, dropped or still under way, link by link.
#[test]
fn packets_are_conserved_on_every_link() {
    let report = run(&line("10M", "5ms", MIXED));
    let link = |name: &str| report.link(name).unwrap();
    // What enters the bottleneck came over the access link, and nothing else did.
    let (into, through) = (link("a>left"), link("left>right"));
    let waiting = into.carried.packets - through.carried.packets - through.dropped.packets;
    assert!(through.dropped.packets > 0 && waiting <= 52, "{waiting}");
    let wire: u64 = through.wire_bytes.iter().sum();
    assert_eq!(wire, through.carried.bytes + 24 * through.carried.packets);
    assert!(through.utilisation > 0.9 && through.utilisation <= 1.0);
    for flow in report.flows.iter().filter(|flow| flow.kind == Kind::Udp) {
        let under_way = flow.sent.packets - flow.lost;
        assert!(one_way(flow).count <= under_way && one_way(flow).count + 100 > under_way, "{}", flow.name);
    }
}

/// A paced source sends its rate exactly, and alone on the way every packet takes the same time.
#[test]
fn constant_rate_is_constant() {
    let udp = "[[flow]]\nfrom = \"a\"\nto = \"b\"\nkind = \"udp\"\nsize = 1000\nrate = \"3M\"\n";
    let report = run(&line("10M", "5ms", udp));
    let flow = &report.flows[0];
    // 3 Mbit/s for 10 s less the offset of at most one round trip, in packets of 8000 bit.
    assert!((3746..=3750).contains(&flow.sent.packets), "{:?}", flow.sent);
    assert_eq!(flow.lost, 0);
    // Twice 8.192 us at 1 Gbit/s, 819.2 us at 10 Mbit/s, 5 ms: rounded down on each link.
    assert_eq!(one_way(flow).max_ns, 2 * 8_192 + 819_200 + 5_000_000);
    assert_eq!(one_way(flow).mean_ns, one_way(flow).max_ns as f64);
    assert_eq!(flow.delivered_bytes, one_way(flow).count * (1000 - 14 - 28));
}

/// E[rate] = rate · on / (on + off), whatever the distribution; bursts come whole.
#[test]
fn on_and_off_times_have_their_means() {
    for distribution in ["constant", "exponential", "pareto"] {
        let shape = if distribution == "pareto" { "shape = 2.5\n" } else { "" };
        let udp = format!(
            "[[flow]]\nfrom = \"a\"\nto = \"b\"\nkind = \"udp\"\nsize = 125\nrate = \"1M\"\non = \"2ms\"\n\
             off = \"3ms\"\ndistribution = \"{distribution}\"\n{shape}"
        );
        let text = line("10M", "0", &udp).replacen("\"10s\"", "\"300s\"", 1);
        let packets = run(&text).flows[0].sent.packets as f64;
        let mean = 300.0 * 1000.0 * 0.4;
        let tolerance = if distribution == "constant" { 1e-4 } else { 0.02 };
        assert!((packets / mean - 1.0).abs() < tolerance, "{distribution}: {packets} of {mean}");
    }
    let udp =
        "[[flow]]\nfrom = \"a\"\nto = \"b\"\nkind = \"udp\"\nsize = 1000\nburst = 20\nperiod = \"100ms\"\n";
    let report = run(&line("10M", "0", udp));
    assert_eq!(report.flows[0].sent.packets, 2000);
    // The last of a burst waits for nineteen others at the bottleneck.
    let at_10m = 1024 * 800;
    let wait = one_way(&report.flows[0]).max_ns;
    assert_eq!(wait, 8_192 + 20 * at_10m + 8_192);
}

/// The shortest times that a scenario may ask for let time pass all the same.
#[test]
fn the_shortest_periods_end() {
    for distribution in ["exponential", "pareto"] {
        let udp = format!(
            "[[flow]]\nfrom = \"a\"\nto = \"b\"\nkind = \"udp\"\nsize = 125\nrate = \"100M\"\non = \"1us\"\n\
             off = \"1us\"\ndistribution = \"{distribution}\"\n{}",
            if distribution == "pareto" { "shape = 1.000001\n" } else { "" }
        );
        let text = line("1G", "0", &udp).replacen("\"10s\"", "\"10ms\"", 1);
        let sent = run(&text).flows[0].sent.packets;
        assert!(sent > 10 && sent <= 1_001, "{distribution}: {sent} of at most 1000 while always on");
    }
}

/// A transaction on an idle network takes its transmissions and propagations, to the nanosecond.
#[test]
fn transactions_take_their_time() {
    let rr = "[[flow]]\nfrom = \"a\"\nto = \"b\"\nkind = \"rr\"\nrequest = 64\nresponse = 1024\n";
    let report = run(&line("10M", "5ms", rr));
    let flow = &report.flows[0];
    let way = |frame: u64| 2 * (frame + 24) * 8 + (frame + 24) * 800 + 5_000_000;
    let trip = way(64 + 42) + way(1024 + 42);
    let rtt = flow.rtt.as_ref().unwrap();
    assert_eq!((rtt.max_ns, rtt.mean_ns, flow.lost), (trip, trip as f64, 0));
    let most = 10_000_000_000 / trip;
    let done = flow.transactions.unwrap();
    assert!(done == most || done + 1 == most, "{done} {most}");
}

/// What a flow lost is what the network dropped of it, whatever its kind; what does not apply to a
/// kind is absent.
#[test]
fn losses_of_flows_are_the_drops_of_the_network() {
    let report = run(&line("10M", "5ms", MIXED));
    let lost = |kind| report.flows.iter().filter(|f| f.kind == kind).map(|f| f.lost).sum::<u64>();
    let dropped: u64 = report.links.iter().map(|link| link.dropped.packets).sum();
    let tcp = lost(Kind::Tcp);
    assert!(tcp > 0 && lost(Kind::Udp) > 0, "{tcp} {dropped}");
    // Acknowledgements and packets of transactions may be among the rest.
    assert!(tcp + lost(Kind::Udp) <= dropped && tcp + lost(Kind::Udp) + 50 > dropped, "{tcp} {dropped}");
    for flow in report.flows.iter().filter(|f| f.kind == Kind::Tcp) {
        let again = flow.retransmits.unwrap();
        assert!(
            again >= flow.lost.saturating_sub(60) && flow.lost <= flow.sent.packets,
            "{} {again}",
            flow.lost
        );
    }
    let applies = |f: &FlowReport| {
        let times = (f.rtt.is_some(), f.one_way.is_some());
        (f.retransmits.is_some(), f.timeouts.is_some(), f.transactions.is_some(), times)
    };
    for flow in &report.flows {
        let expected = match flow.kind {
            Kind::Tcp => (true, true, false, (true, false)),
            Kind::Udp | Kind::Rtp => (false, false, false, (false, true)),
            Kind::Rr => (false, false, true, (true, false)),
        };
        assert_eq!(applies(flow), expected, "{}", flow.name);
    }
}

/// A window of W octets over an empty path gives W per round trip.
/// Proves D14 for TCP.
#[test]
fn a_fixed_window_is_a_rate() {
    let tcp = "[[flow]]\nfrom = \"a\"\nto = \"b\"\nwindow = 65536\ndelayed_ack = false\n";
    let report = run(&line("100M", "50ms", tcp));
    let flow = &report.flows[0];
    // 45 whole segments fit; each round trip is 100 ms and the time of one segment and its ACK.
    let trip_s = 0.1 + 1538.0 * 8.0 * (1.0 / 100e6 + 2.0 / 1e9) + 90.0 * 8.0 * (1.0 / 100e6 + 2.0 / 1e9);
    let law = 45.0 * 1448.0 * 8.0 / trip_s;
    // Handshake, start and slow start take some of the ten seconds.
    assert!(flow.goodput_bps < law && flow.goodput_bps > 0.95 * law, "{} {law}", flow.goodput_bps);
    assert_eq!((flow.retransmits, flow.timeouts, flow.lost), (Some(0), Some(0), 0));
}

/// Chunks follow one another `pause` after the last was acknowledged; idle time is idle.
/// Proves J30.
#[test]
fn chunks_pause_and_idle_flows_are_silent() {
    let tcp = "[[flow]]\nname = \"chunks\"\nfrom = \"a\"\nto = \"b\"\nchunk = 14480\npause = \"180ms\"\n\
               [[flow]]\nname = \"once\"\nfrom = \"a\"\nto = \"b\"\nchunk = 14480\n\
               [[flow]]\nname = \"timed\"\nfrom = \"a\"\nto = \"b\"\nstart = \"2s\"\nstop = \"8s\"\n\
               idle = [[\"3s\", \"6s\"]]\n[[probe]]\nwhat = \"flows\"\nevery = \"100ms\"\n";
    let report = run(&line("10M", "5ms", tcp));
    assert_eq!(report.flows[1].delivered_bytes, 14_480);
    // A round trip of 10 ms and ten segments of 1.23 ms while nobody else sends.
    let chunks = report.flows[0].delivered_bytes / 14_480;
    assert!((35..=49).contains(&chunks), "{chunks}");
    let timed = &report.flows[2].delivered;
    let busy = |cells: std::ops::Range<usize>| timed[cells].iter().filter(|&&b| b > 50_000).count();
    // Delivery in order pauses while a loss is repaired.
    assert!(busy(21..30) >= 8 && busy(61..80) >= 17, "{timed:?}");
    // What was under way when it stopped arrives within the queue's 60 ms.
    assert!(timed[31..60].iter().chain(&timed[..20]).chain(&timed[81..]).all(|&b| b == 0), "{timed:?}");
}

#[test]
fn ecn_echoes_through_the_whole_way() {
    // No port marks here: with ECN asked for and nobody marking, nothing changes.
    let tcp = |ecn| format!("[[flow]]\nfrom = \"a\"\nto = \"b\"\necn = {ecn}\n");
    let (with, without) = (run(&line("10M", "5ms", &tcp(true))), run(&line("10M", "5ms", &tcp(false))));
    assert_eq!(with.flows, without.flows);
}

/// The packets file has a line for every event in the hash, in order of time.
#[test]
fn packets_csv_tells_every_event() {
    let (mut csv, mut calls) = (Vec::new(), 0);
    let scenario = read(&line("10M", "5ms", MIXED));
    let mut progress = |at: Time, of: Time| {
        assert!(at <= of);
        calls += 1;
    };
    let options = Options { packets: Some(&mut csv), progress: Some(&mut progress), ..Options::default() };
    let report = run_with(&scenario, options, &mut |_, _| Err(Error::Input(String::new()))).unwrap();
    let text = String::from_utf8(csv).unwrap();
    let delivered = text.lines().filter(|l| l.contains(",delivered,")).count() as u64;
    let dropped = text.lines().filter(|l| l.contains(",dropped,")).count() as u64;
    assert_eq!(dropped, report.links.iter().map(|l| l.dropped.packets).sum::<u64>());
    let carried = bench::deliveries(&report);
    assert!(delivered <= carried && delivered + 100 > carried, "{delivered} {carried}");
    let times: Vec<u64> =
        text.lines().skip(1).map(|l| l.split(',').next().unwrap().parse().unwrap()).collect();
    assert!(times.is_sorted());
    assert_eq!(text.lines().next(), Some("time_ns,event,link,flow,direction,packet,size_bytes,reason"));
}

#[test]
fn what_cannot_run_says_why() {
    let cubic = line("10M", "5ms", "[[flow]]\nname = \"x\"\nfrom = \"a\"\nto = \"b\"\ncc = \"cubic\"\n");
    let error = run_with(&read(&cubic), Options::default(), &mut |_, _| Err(Error::Input("".into())));
    let text = error.map(|_| ()).unwrap_err().to_string();
    assert_eq!(
        text,
        "flow x: the simulator's TCP has no cubic yet; write cc = \"reno\", or run the scenario with `weir lab`"
    );
}
