//! A scenario, live: builds the testbed, starts the box, lets the traffic run, and reports.

use crate::bed::{BRIDGES, Bed, BedHost, BedPlan, hosts_processor, possible_here};
use crate::capacity;
use crate::error::Error;
use crate::flow::FlowReport;
use crate::inside::{Seen, Start};
use crate::node::{Order, Program};
use crate::traffic::{Plan, UDP_HEADER, When, ip_headers, plan};
use std::time::Duration;
use weir_engine::state::BridgeState;
use weir_report::report::NOT_VALID;
use weir_report::{FlowKind, Report, RunKind, evaluate};
use weir_scenario::Scenario;
use weir_scenario::lab::{LabLayout, lab_layout};
use weir_scenario::scenario::{CongestionControl, Flow};
use weir_sys::now;
use weir_text::Time;

/// What a run is asked for besides its scenario.
#[derive(Default)]
pub struct Options<'a> {
    /// Instead of the scenario's seed.
    pub seed: Option<u64>,
    /// How the nodes of the testbed are started; `None`: this executable, `lab-node`.
    pub program: Option<Program>,
    /// Called now and then with the time reached and the run's duration.
    pub progress: Option<&'a dyn Fn(Time, Time)>,
}

/// From the order to start to the start: every node has its orders by then.
const LEAD: u64 = 50_000_000;
/// What the end of a run may take beyond its duration.
const GRACE: Duration = Duration::from_secs(15);
/// A worker that needs more of its processor than this, spinning apart, was perhaps too late now
/// and then.
const BUSY: f64 = 0.8;

/// Runs `scenario` live. Everything it starts has ended when it returns, and is gone by itself if
/// this process is killed. The calling thread must not end before.
pub fn run(scenario: &Scenario, options: &Options<'_>) -> Result<Report, Error> {
    possible_here()?;
    let layout = layout_here(scenario).map_err(Error::Impossible)?;
    let configurations = configurations(scenario)?;
    let texts: Vec<String> = configurations.iter().map(|c| c.1.clone()).collect();
    let inputs = scenario.inputs_hash(&texts);
    let seed = options.seed.unwrap_or(scenario.seed);
    let hosts_cpu = hosts_processor();
    let bed_plan = bed_plan(scenario, &layout, hosts_cpu);
    let this = || Program::this().map_err(|e| Error::Broke(format!("this executable: {e}")));
    let program = options.program.clone().map_or_else(this, Ok)?;
    let mut bed = Bed::build(&bed_plan, &program)?;

    let mut notes = capacities(&mut bed, &bed_plan, scenario, &layout);
    // Long scenarios have many flows: each order takes a fraction of a millisecond.
    let copies = scenario.flow_copies().len() as u64;
    let t0_ns = now().as_nanos() + LEAD * 4 + copies * 2_000_000;
    let when =
        When { t0_ns, end_ns: t0_ns + scenario.duration.as_nanos(), cell_ns: scenario.cell().as_nanos() };
    let start = Start {
        scenario: scenario.clone(),
        file: scenario.file.clone(),
        configurations,
        seed,
        t0_ns,
        inputs,
    };
    let start = serde_json::to_value(start).map_err(|e| Error::Broke(e.to_string()))?;
    bed.call_box("start", start).map_err(|e| Error::Input(e.what))?;
    let Plan { senders, receivers } = plan(scenario, &layout, seed, when).map_err(Error::Impossible)?;
    for (host, spec) in receivers {
        bed.host(&scenario.hosts[host].name)?.tell(&Order::Receive(spec))?;
    }
    for (host, spec) in senders {
        bed.host(&scenario.hosts[host].name)?.tell(&Order::Send(spec))?;
    }
    let late = now().as_nanos().saturating_sub(t0_ns);
    wait_out(when, options);

    let mut reports = Vec::new();
    for node in bed.hosts() {
        node.ask(&Order::Collect)?;
    }
    for node in bed.hosts() {
        let answer = node.answer(GRACE)?;
        let seen: Vec<FlowReport> =
            serde_json::from_value(answer).map_err(|e| Error::Broke(e.to_string()))?;
        reports.extend(seen);
    }
    let seen = bed.call_box("stop", serde_json::Value::Null)?;
    let seen: Seen = serde_json::from_value(seen).map_err(|e| Error::Broke(e.to_string()))?;
    notes.extend(seen.bridges.iter().flat_map(judge));
    if late > 0 {
        notes.push(format!("the machine was slow: traffic began {} ms late", late / 1_000_000));
    }
    let mut report = put_together(scenario, inputs, seed, &reports, seen, when.cell_ns);
    report.meta.notes.extend(notes);
    report.meta.notes.extend(complaints(&reports));
    report.checks = evaluate(&scenario.expects, &report);
    Ok(report)
}

/// What the way to each managed egress carries without a discipline, beside the rate of its link.
fn capacities(bed: &mut Bed, plan: &BedPlan, scenario: &Scenario, layout: &LabLayout) -> Vec<String> {
    let mut notes = Vec::new();
    for (at, egresses) in layout.boxes.iter().enumerate() {
        for (towards, egress) in egresses.iter().enumerate().filter(|(_, egress)| egress.port.is_some()) {
            let link = &scenario.links[egress.link];
            let way = [at + 1 - towards, at + towards];
            let measured = capacity::measure(bed, plan, way, link.overhead.as_bytes());
            let measured = measured.map_err(|e| e.to_string());
            notes.push(capacity::note(BRIDGES[at][towards], measured, link.rate.as_bps()));
        }
    }
    notes
}

/// Sleeps to the end of the run, telling of its progress.
fn wait_out(when: When, options: &Options<'_>) {
    loop {
        let at = now().as_nanos();
        if at >= when.end_ns {
            return;
        }
        if let Some(progress) = options.progress {
            progress(
                Time::from_nanos(at.saturating_sub(when.t0_ns)),
                Time::from_nanos(when.end_ns - when.t0_ns),
            );
        }
        std::thread::sleep(Duration::from_nanos((when.end_ns - at).min(100_000_000)));
    }
}

/// How the lab runs a scenario with this machine's kernel, or why it cannot. That it needs root is
/// another matter.
///
/// # Errors
/// A sentence for the user.
pub fn layout_here(scenario: &Scenario) -> Result<LabLayout, String> {
    let layout = lab_layout(scenario).map_err(|e| e.to_string())?;
    check_kernel(scenario)?;
    Ok(layout)
}

fn configurations(scenario: &Scenario) -> Result<Vec<(String, String)>, Error> {
    (0..scenario.ports.len())
        .map(|index| {
            scenario.configuration(index).map_err(|e| {
                let name = scenario.ports[index].name();
                Error::Input(format!("port {name}: cannot read its configuration: {e}"))
            })
        })
        .collect()
}

fn check_kernel(scenario: &Scenario) -> Result<(), String> {
    let path = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    let known = std::fs::read_to_string(path).map_err(|e| format!("{path}: {e}"))?;
    let tcp = || scenario.flows.iter().enumerate().filter(|(_, f)| f.kind == FlowKind::Tcp);
    for (index, flow) in tcp() {
        if !known.split_whitespace().any(|name| name == flow.cc.name()) {
            let module = match flow.cc {
                CongestionControl::Bbr => "tcp_bbr",
                CongestionControl::Cubic => "tcp_cubic",
                CongestionControl::Reno => "tcp_cong",
            };
            return Err(format!(
                "flow `{}` wants {}, which this kernel does not offer ({}); try `modprobe {module}`",
                scenario.flow_name(index),
                flow.cc.name(),
                known.trim()
            ));
        }
    }
    match scenario.flows.iter().position(|f| f.ipv6) {
        Some(index) if !std::path::Path::new("/proc/sys/net/ipv6").exists() => {
            let name = scenario.flow_name(index);
            Err(format!("flow `{name}` is over IPv6, which this kernel does not have"))
        }
        _ => Ok(()),
    }
}

/// Hosts by side. What a scenario sets per flow and the kernel per host must agree on each host.
fn bed_plan(scenario: &Scenario, layout: &LabLayout, hosts_cpu: Option<usize>) -> BedPlan {
    let host = |index: usize| -> BedHost {
        let name = &scenario.hosts[index].name;
        // All TCP flows of a host agree: the layout has seen to that.
        let tcp = |f: &&Flow| f.kind == FlowKind::Tcp && (f.from == *name || f.to == *name);
        let first = scenario.flows.iter().find(tcp);
        let ecn = if first.is_some_and(|f| f.ecn) { "1" } else { "0" };
        let sack = if first.is_some_and(|f| !f.sack) { "0" } else { "1" };
        let settings = [("ipv4/tcp_ecn", ecn), ("ipv4/tcp_sack", sack)];
        BedHost {
            name: name.clone(),
            address: scenario.address(index),
            address6: scenario.flows.iter().any(|f| f.ipv6).then(|| scenario.address6(index)),
            settings: settings.map(|(path, value)| (path.to_string(), value.to_string())).to_vec(),
        }
    };
    BedPlan {
        sides: layout.sides.iter().map(|side| side.iter().map(|h| host(h.host)).collect()).collect(),
        mtu: layout.mtu_bytes as u32,
        offloads: scenario.lab.offload,
        hosts_cpu,
    }
}

/// What makes a live run doubtful.
fn judge(bridge: &BridgeState) -> Vec<String> {
    let mut notes = Vec::new();
    for egress in &bridge.egresses {
        let lost = egress.overrun_packets + egress.nobuf_packets;
        if lost > 0 {
            notes.push(format!(
                "{NOT_VALID}{lost} packets towards {} were lost before the box could take them",
                egress.interface
            ));
        }
        if egress.segmented_packets > 0 {
            let (count, interface) = (egress.segmented_packets, &egress.interface);
            notes.push(format!("{count} aggregates towards {interface} were taken apart"));
        }
        if egress.refused_packets > 0 {
            let (count, interface) = (egress.refused_packets, &egress.interface);
            notes.push(format!("{count} packets were refused by the device {interface}"));
        }
        if let Some(broken) = egress.port.as_ref().and_then(|p| p.broken.as_ref()) {
            notes.push(format!(
                "{NOT_VALID}the port towards {} fell back to FIFO: {broken}",
                egress.interface
            ));
        }
    }
    if let Some(failed) = &bridge.failed {
        notes.push(format!("{NOT_VALID}the worker panicked ({failed}) and forwarded plainly from then on"));
    }
    let uptime = bridge.uptime_ns.max(1) as f64;
    let (used, spun) = (bridge.cpu_ns as f64 / uptime, bridge.spun_ns as f64 / uptime);
    let doubt = if used - spun > BUSY { "doubtful: " } else { "" };
    notes.push(format!(
        "{doubt}the box's worker used {:.0} % of a processor, {:.0} points of them awake for packets due in a moment",
        used * 100.0,
        spun.min(used) * 100.0
    ));
    notes
}

fn complaints(reports: &[FlowReport]) -> Vec<String> {
    let all =
        reports.iter().flat_map(|r| r.errors.iter().map(move |e| format!("flow from port {}: {e}", r.port)));
    all.take(10).collect()
}

/// Bytes of headers of a full frame, for counts of frames where the kernel counts payload.
fn headers(flow: &Flow) -> u64 {
    match flow.kind {
        // With the time stamps that Linux sends.
        FlowKind::Tcp => ip_headers(flow) + 32,
        FlowKind::Udp | FlowKind::Rr | FlowKind::Rtp => ip_headers(flow) + UDP_HEADER,
    }
}

fn put_together(
    scenario: &Scenario,
    inputs: u64,
    seed: u64,
    reports: &[FlowReport],
    seen: Seen,
    cell_ns: u64,
) -> Report {
    let mut recorder = scenario.recorder(RunKind::Lab, inputs);
    recorder.meta().seed = seed;
    for (index, copy) in scenario.flow_copies().iter().enumerate() {
        let kind = scenario.flows[copy.flow].kind;
        for end in reports.iter().filter(|r| r.port == copy.source_port) {
            for (cell, bytes) in end.delivered.iter().enumerate().filter(|(_, b)| **b > 0) {
                // What a receiver of requests counts is not what the flow delivers.
                if kind != FlowKind::Rr {
                    recorder.delivered(index, *bytes, cell as u64 * cell_ns);
                }
            }
            recorder.rtts(index, &end.rtt);
            recorder.one_ways(index, &end.one_way);
            let flow = recorder.flow(index);
            flow.sent.packets += end.sent_packets;
            flow.sent.bytes += end.sent_bytes + end.sent_packets * headers(&scenario.flows[copy.flow]);
            // The recorder left out what does not apply to the kind of flow.
            for (sum, more) in [
                (&mut flow.retransmits, end.retransmits),
                (&mut flow.timeouts, end.timeouts),
                (&mut flow.transactions, end.transactions),
            ] {
                *sum = sum.map(|sum| sum + more);
            }
            flow.lost += end.lost;
            flow.marked += end.marked;
        }
        // The ends of a TCP connection cannot tell a loss from a delay; the box has seen each drop.
        if kind == FlowKind::Tcp {
            recorder.flow(index).lost = seen.dropped.get(index).copied().unwrap_or(0);
        }
        recorder.flow(index).recognised = seen.recognised.get(index).copied().flatten();
        recorder.flow(index).admission = seen.admissions.get(index).cloned().flatten();
        recorder.flow(index).misclassified = seen.misclassified.get(index).copied().unwrap_or(0);
    }
    let flows = recorder.finish();
    Report { ports: seen.report.ports, links: seen.report.links, ..flows }
}
