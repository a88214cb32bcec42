use super::*;
use crate::fixture;
use crate::report::RunKind;

const MS: u64 = 1_000_000;

/// One managed port with classes a and b, 1 s in cells of 100 ms.
fn recorder(keep: Keep) -> (Recorder, usize) {
    let links = [
        ("s>box", 10_000_000, 24),
        ("box>s", 10_000_000, 24),
        ("box>k", 1_000_000, 24),
        ("k>box", 1_000_000, 24),
    ];
    let asked =
        fixture::asked((RunKind::Sim, 1000 * MS, 100 * MS, 100 * MS), &[("f1", None, 500 * MS)], &links);
    let mut recorder = Recorder::new(asked, keep);
    let classes = fixture::names(&["a", "b"]);
    let port = recorder.port(PortReport::new("box>k".into(), "cbq", 1_000_000, 24, &classes));
    (recorder, port)
}

/// What arrives is sent, dropped, or left, packet by packet and byte by byte, in totals and in series.
#[test]
fn nothing_is_lost_in_the_books() {
    let (mut recorder, port) = recorder(Keep::default());
    let mut state = weir_seed::seed();
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let (mut waiting, mut at) = (Vec::new(), 0);
    for _ in 0..5000 {
        at += random(400_000);
        match random(3) {
            0 if !waiting.is_empty() => {
                let (class, len, since) = waiting.remove(random(waiting.len() as u64) as usize);
                recorder.sent(port, class, len, at - since, at);
            }
            1 if waiting.len() > 20 => {
                let (class, len, _) = waiting.pop().unwrap();
                recorder.dropped(port, class, len, if class == 0 { "tail" } else { "early" }, at);
            }
            _ => {
                let (class, len) = (random(2) as usize, 60 + random(1455));
                recorder.offered(port, class, len, at);
                waiting.push((class, len, at));
            }
        }
    }
    let report = recorder.finish();
    let mut left = 0;
    for class in &report.ports[0].classes {
        let mut gone = class.sent;
        gone.merge(class.dropped_in_all());
        gone.merge(class.left);
        assert_eq!(class.offered, gone, "class {}", class.name);
        left += class.left.packets;
        let series = &class.series;
        let sum = |list: &[u64]| list.iter().sum::<u64>();
        assert_eq!(sum(&series.offered_bytes), class.offered.bytes);
        assert_eq!(
            (sum(&series.sent_bytes), sum(&series.sent_packets)),
            (class.sent.bytes, class.sent.packets)
        );
        assert_eq!(sum(&series.dropped_packets), class.dropped_in_all().packets);
        assert_eq!(class.delay.count, class.sent.packets);
        assert_eq!(series.backlog_max_packets.iter().max(), Some(&class.backlog_max.packets));
        assert!([&series.offered_bytes, &series.backlog_packet_ns].iter().all(|list| list.len() == 10));
        assert!(class.sent.packets > 100 && class.dropped.len() == 1);
    }
    assert_eq!(left, waiting.len() as u64);
}

/// Two packets wait from 50 to 250 ms, then one until the end: the backlog's integral per cell.
#[test]
fn the_backlog_is_summed_over_time() {
    let (mut recorder, port) = recorder(Keep::default());
    recorder.offered(port, 0, 100, 50 * MS);
    recorder.offered(port, 0, 100, 50 * MS);
    recorder.sent(port, 0, 100, 200 * MS, 250 * MS);
    let report = recorder.finish();
    let series = &report.ports[0].classes[0].series;
    assert_eq!(series.backlog_packet_ns[..4], [100 * MS, 200 * MS, 150 * MS, 100 * MS]);
    assert_eq!(series.backlog_max_packets[..4], [2, 2, 2, 1]);
    assert_eq!(series.backlog_packet_ns.iter().sum::<u64>(), 2 * 200 * MS + 750 * MS);
    assert_eq!(series.delay_sum_ns[2], 200 * MS);
    assert_eq!(report.ports[0].classes[0].left, Count { packets: 1, bytes: 100 });
}

/// What the queue refuses at once has not waited, nor has what it pushes out for it. What it drops
/// later has, and so has a packet that goes on at once.
#[test]
fn the_longest_queue_is_what_the_queue_has_kept() {
    let most = |later: u64| {
        let (mut recorder, port) = recorder(Keep::default());
        for at in 1..=3 {
            recorder.offered(port, 0, 100, at * MS);
        }
        // The fourth comes to a full queue.
        recorder.offered(port, 0, 500, 4 * MS);
        recorder.dropped(port, 0, 500, "tail", 4 * MS + later);
        recorder.offered(port, 1, 100, 5 * MS);
        recorder.sent(port, 1, 100, 0, 5 * MS);
        let report = recorder.finish();
        let [first, second, ..] = &report.ports[0].classes[..] else { panic!("two classes") };
        assert_eq!(second.backlog_max.packets, 1);
        assert_eq!(first.series.backlog_max_packets.iter().max(), Some(&first.backlog_max.packets));
        (first.backlog_max.packets, first.backlog_max.bytes)
    };
    assert_eq!(most(0), (3, 300));
    assert_eq!(most(1), (4, 800));
}

/// Sampled counters are spread over the time between two samples, and nothing is lost in rounding.
#[test]
fn samples_are_spread_evenly() {
    let (mut recorder, port) = recorder(Keep::default());
    let counters = |bytes, packets, backlog| Counters {
        offered: Count { packets, bytes },
        sent: Count { packets, bytes },
        dropped: BTreeMap::from([("tail".to_string(), Count { packets: packets / 10, bytes: 0 })]),
        marked: packets,
        backlog: Count { packets: backlog, bytes: backlog * 100 },
    };
    recorder.sample(port, 0, &counters(0, 0, 0), 0);
    recorder.sample(port, 0, &counters(1001, 7, 5), 250 * MS);
    recorder.sample(port, 0, &counters(1001, 7, 0), 250 * MS);
    recorder.sample(port, 0, &counters(3001, 107, 0), 1200 * MS);
    let mut delays = Histogram::default();
    delays.record_many(MS, 107);
    recorder.delays(port, 0, &delays);
    recorder.statistic(port, 0, "average", 1.5);
    let report = recorder.finish();
    let class = &report.ports[0].classes[0];
    assert_eq!(class.series.sent_bytes[..3], [400, 400, 201 + 133]);
    assert_eq!(class.series.sent_bytes.iter().sum::<u64>(), 3001);
    assert_eq!(class.series.sent_packets.iter().sum::<u64>(), 107);
    assert_eq!(class.series.dropped_packets.iter().sum::<u64>(), 10);
    assert_eq!((class.sent.bytes, class.marked, class.backlog_max.packets), (3001, 107, 5));
    assert_eq!((class.delay.mean_ns, class.statistics["average"]), (1e6, 1.5));
}

#[test]
fn links_and_flows() {
    let (mut recorder, _) = recorder(Keep { flows: true, ..Keep::default() });
    let direction = Recorder::direction(1, true);
    // 62 packets of 976 + 24 bytes in half a second of the first half: 62 % of 1 Mbit/s · 0.8 s.
    for n in 0..62 {
        recorder.carried(direction, 976, n * 8 * MS);
        recorder.delivered(0, 938, n * 8 * MS);
    }
    // After the end: counted in the last cell.
    recorder.carried(direction, 976, 1000 * MS);
    recorder.link(direction).refills = 9;
    recorder.rtt(0, 3 * MS);
    recorder.one_way(0, 2 * MS);
    recorder.flow(0).lost = 1;
    recorder.meta().events = Some("00".into());
    let report = recorder.finish();
    assert_eq!(
        report.links.iter().map(|link| link.name.as_str()).collect::<Vec<_>>(),
        ["s>box", "box>s", "box>k", "k>box"]
    );
    let link = report.link("box>k").unwrap();
    assert!((link.utilisation - 0.504).abs() < 1e-12, "{}", link.utilisation);
    assert_eq!((link.carried.packets, link.wire_bytes[9], link.refills), (63, 1000, 9));
    let flow = &report.flows[0];
    assert_eq!((flow.name.as_str(), flow.active_ns, flow.delivered_bytes), ("f1", 500 * MS, 62 * 938));
    assert_eq!(flow.goodput_bps, 62.0 * 938.0 * 8.0 / 0.5);
    // A TCP flow: round-trip times, retransmissions; nothing of other kinds.
    assert_eq!((flow.delivered.len(), flow.rtt.as_ref().map(|rtt| rtt.max_ns)), (10, Some(3 * MS)));
    assert_eq!((flow.retransmits, flow.timeouts), (Some(0), Some(0)));
    assert!(flow.one_way.is_none() && flow.transactions.is_none());
}

/// Histograms per cell are kept only on demand.
#[test]
fn delays_per_cell_on_demand() {
    for (delays, cells) in [(false, 0), (true, 10)] {
        let (recorder, _) = recorder(Keep { delays, ..Keep::default() });
        assert_eq!(recorder.finish().ports[0].classes[0].series.delays.len(), cells);
    }
}

/// What an edge allocates is summed up bit by bit between changes, across cells; of other classes
/// there is no such series. Expectations measure it in any interval, and the plot draws both lines.
#[test]
fn what_an_edge_allocates() {
    let (mut recorder, port) = recorder(Keep::default());
    let at = |rate_bps, estimate_bps, measured_bytes, requests| Allocated {
        rate_bps,
        estimate_bps,
        measured_bytes,
        requests,
    };
    recorder.allocated(port, 0, at(64_000, 0, 0, 0), 0);
    recorder.allocated(port, 0, at(64_000, 0, 700, 0), 40 * MS);
    recorder.allocated(port, 0, at(64_000, 56_000, 700, 1), 250 * MS);
    recorder.allocated(port, 0, at(128_000, 56_000, 2_700, 1), 260 * MS);
    let report = recorder.finish();
    let series = &report.ports[0].classes[0].series;
    assert_eq!(series.allocated_bits[..4], [6_400, 6_400, 6_400 * 6 / 10 + 12_800 * 4 / 10, 12_800]);
    assert_eq!(series.estimated_bits[..4], [0, 0, 2_800, 5_600]);
    assert_eq!(
        (series.measured_bytes[..3].to_vec(), series.requests[..3].to_vec()),
        (vec![700, 0, 2_000], vec![0, 0, 1])
    );
    assert_eq!(series.allocated_bits.len(), 10);
    assert!(report.ports[0].classes[1].series.allocated_bits.is_empty());
    let expects = fixture::read_expects(
        "[[expect]]\nwhat = \"allocated\"\nclass = \"a\"\nfrom = \"300ms\"\nvalue = \"128K\"\n\
         [[expect]]\nwhat = \"requests\"\nclass = \"a\"\nfrom = \"200ms\"\nto = \"300ms\"\nvalue = 600\n\
         [[expect]]\nwhat = \"estimate\"\nclass = \"a\"\nto = \"300ms\"\nvalue = \"9333\"\ntolerance = \"1\"\n\
         [[expect]]\nwhat = \"efficiency\"\nclass = \"a\"\nto = \"200ms\"\nvalue = \"43.75%\"\n\
         [[expect]]\nwhat = \"efficiency\"\nclass = \"b\"\nmin = \"0%\"\n",
    );
    let checks = crate::evaluate(&expects, &report);
    assert!(checks[..4].iter().all(|check| check.pass), "{checks:#?}");
    assert_eq!(checks[4].measured, None, "an edge allocates nothing to b");
    let folder = std::env::temp_dir().join(format!("weir-allocation-{}", std::process::id()));
    let files = crate::plot::write(&folder, &[&report]).unwrap();
    let drawn = std::fs::read_to_string(files.last().unwrap()).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(files.last().unwrap().ends_with("allocation.svg") && files.len() == 4);
    assert!(drawn.contains("a B_m") && drawn.contains("a B_d"));
}
