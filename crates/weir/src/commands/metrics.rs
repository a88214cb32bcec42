//! `weir stats --prometheus`: the counters of a running `weir up` for Prometheus.
//!
//! Base units where Prometheus has some: seconds, bytes, packets. Rates are in bit/s, and end in `_bps`. No flow has a
//! label, and a contract only if asked for: their number has no bound that a monitor likes.

use super::{Done, Failure};
use crate::operate::request::{Report, Request, ask};
use std::path::Path;
use weir_engine::edge_state::{AllocatorState, EdgeState};
use weir_engine::state::{BridgeState, Egress, PacketCounts, Snapshot};
use weir_text::metrics::Kind::{Counter, Gauge};
use weir_text::metrics::Metrics;

/// `weir stats --prometheus`: one page on standard output, or one for each request at an address.
pub fn run(socket: &Path, listen: Option<&str>, by_contract: bool) -> Done {
    let Some(address) = listen else {
        out!("{}", page(socket, by_contract)?.trim_end());
        return Ok(());
    };
    let listener = weir_broker::page::listen(address).map_err(Failure::usage)?;
    let at = listener.local_addr().map_err(Failure::failed)?;
    eprintln!("weir: metrics at http://{at}/metrics; end with ^C");
    let socket = socket.to_owned();
    let page = move || page(&socket, by_contract).map_err(|failure| failure.message);
    weir_broker::page::serve(listener, page).map_err(Failure::failed)
}

fn page(socket: &Path, by_contract: bool) -> Result<String, Failure> {
    let snapshot: Snapshot = ask(socket, &Request::Stats)?;
    let report: Report = ask(socket, &Request::Status)?;
    Ok(text(&snapshot, &report, by_contract))
}

/// The labels of a value.
type Labels = Vec<(&'static str, String)>;

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// The page. `by_contract` adds a value for each contract.
fn text(snapshot: &Snapshot, report: &Report, by_contract: bool) -> String {
    let mut page = Metrics::default();
    states(&mut page, report);
    bridges(&mut page, &snapshot.bridges);
    let egresses: Vec<&Egress> = snapshot.bridges.iter().flat_map(|bridge| &bridge.egresses).collect();
    interfaces(&mut page, &egresses);
    classes(&mut page, &egresses);
    let edges = || egresses.iter().filter_map(|e| Some((e.interface.as_str(), e.edge.as_ref()?)));
    recognition(&mut page, edges);
    edge_classes(&mut page, edges);
    if by_contract {
        contracts(&mut page, edges);
    }
    brokers(&mut page, snapshot);
    page.into_text()
}

/// How everything is.
fn states(page: &mut Metrics, report: &Report) {
    let well = u8::from(report.as_configured);
    page.family(
        "weir_as_configured",
        Gauge,
        "1 if every interface and class is as configured.",
        [(vec![], well)],
    );
    let state = |f: &weir_engine::status::Finding| {
        let class = f.class.clone().unwrap_or_default();
        let state = f.state.to_string().to_lowercase();
        (vec![("interface", f.interface.clone()), ("class", class), ("state", state)], 1)
    };
    let help = "1 for the state that an interface, or a class of it, has.";
    page.family("weir_state", Gauge, help, report.findings.iter().map(state));
}

fn bridges(page: &mut Metrics, bridges: &[BridgeState]) {
    let mut of = |name: &str, kind, help: &str, value: fn(&BridgeState) -> f64| {
        let labels = |b: &BridgeState| -> Labels {
            vec![("left", b.interfaces[0].clone()), ("right", b.interfaces[1].clone())]
        };
        page.family(name, kind, help, bridges.iter().map(|bridge| (labels(bridge), value(bridge))));
    };
    of(
        "weir_bridge_answers",
        Gauge,
        "1 if its workers answer; without it the other values are missing.",
        |b| f64::from(u8::from(b.silent.is_none())),
    );
    of("weir_bridge_uptime_seconds", Gauge, "Time since it started.", |b| seconds(b.uptime_ns));
    of("weir_bridge_cpu_seconds_total", Counter, "Processor time of its workers.", |b| seconds(b.cpu_ns));
    of("weir_bridge_bypassed", Gauge, "1 while its traffic passes without any discipline.", |b| {
        f64::from(u8::from(b.without.bypassed || b.failed.is_some()))
    });
    of("weir_bridge_lapses_total", Counter, "Times that its worker was silent for too long.", |b| {
        b.without.lapses as f64
    });
    of("weir_bridge_stale_packets_total", Counter, "Packets dropped after such a time.", |b| {
        b.without.stale_packets as f64
    });
}

fn interface(egress: &Egress) -> Labels {
    vec![("interface", egress.interface.clone())]
}

/// Counts by reason, with that label behind others.
fn reasons<'a>(
    labels: &Labels,
    counts: impl IntoIterator<Item = (&'a String, &'a u64)>,
) -> Vec<(Labels, u64)> {
    let with = |reason: &str| labels.iter().cloned().chain([("reason", reason.to_owned())]).collect();
    counts.into_iter().map(|(reason, count)| (with(reason), *count)).collect()
}

fn interfaces(page: &mut Metrics, egresses: &[&Egress]) {
    let mut of = |name: &str, kind, help: &str, value: fn(&Egress) -> u64| {
        page.family(name, kind, help, egresses.iter().map(|egress| (interface(egress), value(egress))));
    };
    of("weir_received_packets_total", Counter, "Packets that came for this egress.", |e| e.received_packets);
    of("weir_received_bytes_total", Counter, "Their bytes.", |e| e.received_bytes);
    of("weir_overrun_packets_total", Counter, "Packets that the system lost before the worker.", |e| {
        e.overrun_packets
    });
    of("weir_nobuf_packets_total", Counter, "Packets lost for want of a buffer.", |e| e.nobuf_packets);
    of("weir_handed_packets_total", Counter, "Packets handed from worker to worker.", |e| e.handed_packets);
    of("weir_unhanded_packets_total", Counter, "Packets lost on that way.", |e| e.unhanded_packets);
    of("weir_receive_errors_total", Counter, "Packets that could not be read.", |e| e.receive_errors);
    of("weir_sent_packets_total", Counter, "Packets that left by this egress.", |e| e.sent_packets);
    of("weir_sent_bytes_total", Counter, "Their bytes.", |e| e.sent_bytes);
    of("weir_rewritten_packets_total", Counter, "Packets whose ECN or DSCP was changed.", |e| {
        e.rewritten_packets
    });
    of("weir_device_queue_bytes", Gauge, "Bytes that stand in the device.", |e| e.device_queue_bytes);
    let refused = egresses.iter().flat_map(|egress| reasons(&interface(egress), &egress.refused));
    page.family("weir_refused_packets_total", Counter, "Packets that the device refused.", refused);
    let up = |egress: &&Egress| Some((interface(egress), u8::from(egress.link.as_ref()?.state == "up")));
    page.family(
        "weir_link_up",
        Gauge,
        "1 while the interface is up, with a carrier.",
        egresses.iter().filter_map(up),
    );
    let ports = || egresses.iter().filter_map(|egress| Some((interface(egress), egress.port.as_ref()?)));
    page.family("weir_port_rate_bps", Gauge, "Rate of the link.", ports().map(|(l, p)| (l, p.rate_bps)));
    let broken = ports().map(|(l, p)| (l, u8::from(p.broken.is_some())));
    page.family("weir_port_broken", Gauge, "1 if a discipline broke, and the port is one FIFO.", broken);
    let lost = ports().map(|(l, p)| (l, seconds(p.lost_ns)));
    page.family(
        "weir_port_lost_seconds_total",
        Counter,
        "Time by which the worker was too late to send.",
        lost,
    );
}

fn classes(page: &mut Metrics, egresses: &[&Egress]) {
    let mut all: Vec<(Labels, &PacketCounts)> = Vec::new();
    for egress in egresses {
        let Some(port) = &egress.port else { continue };
        let control = port.protected.iter().map(|counts| ("(control)", counts));
        let classes = port.classes.iter().filter_map(|c| Some((c.name.as_str(), c.counts.as_ref()?)));
        let labels = |class: &str| [interface(egress), vec![("class", class.to_owned())]].concat();
        all.extend(control.chain(classes).map(|(class, counts)| (labels(class), counts)));
    }
    let mut of = |name: &str, kind, help: &str, value: fn(&PacketCounts) -> u64| {
        page.family(name, kind, help, all.iter().map(|(labels, counts)| (labels.clone(), value(counts))));
    };
    of("weir_class_offered_packets_total", Counter, "Packets that came to the class.", |c| c.offered_packets);
    of("weir_class_offered_bytes_total", Counter, "Their bytes.", |c| c.offered_bytes);
    of("weir_class_sent_packets_total", Counter, "Packets of the class that left.", |c| c.sent_packets);
    of("weir_class_sent_bytes_total", Counter, "Their bytes.", |c| c.sent_bytes);
    of("weir_class_waiting_packets", Gauge, "Packets of the class that wait.", |c| c.inside_packets);
    of("weir_class_dropped_bytes_total", Counter, "Bytes of the class that were dropped.", |c| {
        c.dropped_bytes
    });
    let dropped = all.iter().flat_map(|(labels, counts)| reasons(labels, &counts.dropped_packets));
    page.family(
        "weir_class_dropped_packets_total",
        Counter,
        "Packets of the class that were dropped.",
        dropped,
    );
}

fn recognition<'a, E: Iterator<Item = (&'a str, &'a EdgeState)>>(page: &mut Metrics, edges: impl Fn() -> E) {
    let all = || {
        edges().filter_map(|(i, edge)| Some((vec![("interface", i.to_owned())], edge.recognition.as_ref()?)))
    };
    let on = all().map(|(l, r)| (l, u8::from(r.on)));
    page.family("weir_edge_recognises", Gauge, "1 while packets are looked at.", on);
    page.family("weir_edge_flows", Gauge, "Flows in the table.", all().map(|(l, r)| (l, r.flows)));
    page.family(
        "weir_edge_capacity_flows",
        Gauge,
        "Flows that it has room for.",
        all().map(|(l, r)| (l, r.capacity)),
    );
    let inspected = all().map(|(l, r)| (l, r.inspected_packets));
    page.family("weir_edge_inspected_packets_total", Counter, "Packets of flows on trial.", inspected);
    let kind = |labels: Labels, kind: &str| [labels, vec![("kind", kind.to_owned())]].concat();
    let found =
        all().flat_map(|(l, r)| r.found.iter().map(move |(name, count)| (kind(l.clone(), name), *count)));
    page.family("weir_edge_found_flows_total", Counter, "Flows that were found.", found);
    let replaced = all().map(|(l, r)| (l, r.replaced));
    page.family(
        "weir_edge_replaced_flows_total",
        Counter,
        "Flows on trial that gave their place to others.",
        replaced,
    );
    let away = all().map(|(l, r)| (l, r.turned_away));
    page.family("weir_edge_turned_away_flows_total", Counter, "Flows that found no place.", away);
    let dropped = edges().map(|(i, edge)| (vec![("interface", i.to_owned())], edge.dropped_packets));
    page.family(
        "weir_edge_dropped_packets_total",
        Counter,
        "Packets dropped by policy, or of refused flows.",
        dropped,
    );
}

fn edge_classes<'a, E: Iterator<Item = (&'a str, &'a EdgeState)>>(page: &mut Metrics, edges: impl Fn() -> E) {
    let labels = |interface: &str, class: &str| -> Labels {
        vec![("interface", interface.to_owned()), ("class", class.to_owned())]
    };
    let all = || {
        edges().flat_map(|(i, edge)| edge.classes.iter().map(move |class| (labels(i, &class.name), class)))
    };
    page.family("weir_edge_class_flows", Gauge, "Admitted flows.", all().map(|(l, c)| (l, c.flows.now)));
    let fates = all().flat_map(|(l, class)| {
        let flows = class.flows;
        let fates = [
            ("admitted", flows.admitted),
            ("refused", flows.refused),
            ("evicted", flows.evicted),
            ("timed out", flows.timed_out),
            ("ended", flows.ended),
        ];
        fates.map(|(fate, count)| ([l.clone(), vec![("fate", fate.to_owned())]].concat(), count))
    });
    page.family("weir_edge_class_flows_total", Counter, "What became of real-time flows.", fates);
    let asking = || all().filter_map(|(l, class)| Some((l, class.allocator.as_ref()?)));
    let mut of = |name: &str, help: &str, value: fn(&AllocatorState) -> u64| {
        page.family(name, Gauge, help, asking().map(|(l, a)| (l, value(a))));
    };
    of("weir_edge_measured_bps", "What the class is measured to use, B_m.", |a| a.estimate_bps);
    of("weir_edge_allocated_bps", "What the class has, B_d.", |a| a.allocated_bps);
    of("weir_edge_limit_bps", "The most that the class may get.", |a| a.limit_bps);
    let several = |of: fn(&AllocatorState) -> [(&'static str, u64); 3], label: &'static str| {
        asking()
            .flat_map(move |(l, a)| {
                of(a).map(|(word, n)| ([l.clone(), vec![(label, word.to_owned())]].concat(), n))
            })
            .collect::<Vec<_>>()
    };
    let requests = several(|a| [("up", a.up), ("down", a.down), ("again", a.repeated)], "what");
    page.family("weir_edge_requests_total", Counter, "Requests to the broker.", requests);
    let answers =
        several(|a| [("granted", a.granted), ("in part", a.partial), ("refused", a.refused)], "answer");
    page.family("weir_edge_answers_total", Counter, "Answers of the broker.", answers);
    let congested = asking().map(|(l, a)| (l, seconds(a.congested_ns)));
    page.family("weir_edge_congested_seconds_total", Counter, "Time in congestion.", congested);
}

fn contracts<'a, E: Iterator<Item = (&'a str, &'a EdgeState)>>(page: &mut Metrics, edges: impl Fn() -> E) {
    let labels = |interface: &str, id: u32| -> Labels {
        vec![("interface", interface.to_owned()), ("sla", id.to_string())]
    };
    let all = || edges().flat_map(|(i, edge)| edge.contracts.iter().map(move |c| (labels(i, c.id), c)));
    page.family("weir_sla_flows", Gauge, "Admitted flows.", all().map(|(l, c)| (l, c.flows.now)));
    let bytes = all().flat_map(|(l, c)| {
        let fates = [
            ("in profile", c.in_profile_bytes),
            ("passed", c.passed_bytes),
            ("dropped", c.dropped_bytes),
            ("best effort", c.best_effort_bytes),
        ];
        fates.map(|(fate, count)| ([l.clone(), vec![("fate", fate.to_owned())]].concat(), count))
    });
    page.family("weir_sla_bytes_total", Counter, "What became of the bytes of its real-time flows.", bytes);
}

fn brokers(page: &mut Metrics, snapshot: &Snapshot) {
    let all = || snapshot.brokers.iter().map(|broker| (vec![("broker", broker.name.clone())], broker));
    page.family(
        "weir_edge_held_bps",
        Gauge,
        "What all classes hold of a broker.",
        all().map(|(l, b)| (l, b.held_bps)),
    );
    let reached = all().filter_map(|(l, b)| Some((l, u8::from(b.reached.as_ref()?.now))));
    page.family("weir_edge_broker_reachable", Gauge, "1 while a broker elsewhere answers.", reached);
}
