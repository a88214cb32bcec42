//! A report for people. Copies of a flow are one row, classes without packets one line; `--all` shows each.

use super::tables::{print_checks, print_notes, print_wrapped, table};
use weir_report::Report;
use weir_report::report::{Check, ClassReport, ConditionerReport, FlowReport, PortReport};
use weir_text::Time;
use weir_text::{Unit, show};

/// Prints a report; with `all` every class and every copy of a flow.
pub fn print(report: &Report, all: bool) {
    let meta = &report.meta;
    let events = meta.events.as_ref().map(|hash| format!(", events {hash}")).unwrap_or_default();
    let (kind, duration) = (meta.kind.name(), Time::from_nanos(meta.duration_ns));
    print_wrapped(&format!("{} ({kind}), {duration}, seed {}{events}", meta.scenario, meta.seed));
    print_notes(&meta.notes);
    for port in &report.ports {
        out!("\nport {}: {} at {}", port.name, port.discipline, show(port.rate_bps as f64, Unit::Rate));
        print_classes(port, meta.duration_ns, all);
        print_conditioners(&port.conditioners);
    }
    if !report.flows.is_empty() {
        out!("");
        print_flows(&report.flows, all);
    }
    if !report.checks.is_empty() {
        out!("");
        if all {
            print_checks(&report.checks);
        } else {
            print_checks(&fold_checks(&report.checks));
        }
    }
}

fn print_classes(port: &PortReport, duration_ns: u64, all: bool) {
    let idle = |class: &&ClassReport| class.offered.packets == 0 && class.dropped_in_all().packets == 0;
    let shown: Vec<&ClassReport> = port.classes.iter().filter(|class| all || !idle(class)).collect();
    if !shown.is_empty() {
        let mut rows = table(&[
            "CLASS",
            ">RATE",
            ">SENT",
            ">DROPPED",
            ">MARKED",
            ">DELAY|MEAN",
            ">DELAY|P99",
            ">DELAY|MAX",
            ">LONGEST|QUEUE",
        ]);
        for class in shown {
            rows.add(vec![
                class.name.clone(),
                show(class.sent.bytes as f64 * 8e9 / duration_ns as f64, Unit::Rate),
                class.sent.packets.to_string(),
                class.dropped_in_all().packets.to_string(),
                class.marked.to_string(),
                show(class.delay.mean_ns, Unit::Time),
                show(class.delay.p99_ns as f64, Unit::Time),
                show(class.delay.max_ns as f64, Unit::Time),
                class.backlog_max.packets.to_string(),
            ]);
        }
        rows.drop_if_zero(4);
        rows.print();
    }
    let idle: Vec<&str> = port.classes.iter().filter(idle).map(|class| class.name.as_str()).collect();
    if !all && !idle.is_empty() {
        print_wrapped(&format!("without packets: {}", idle.join(", ")));
    }
}

/// The stem of the name of a copy, `NAME` of `NAME.3`.
fn copy_of(name: &str) -> Option<&str> {
    let (stem, number) = name.rsplit_once('.')?;
    number.parse::<u32>().is_ok().then_some(stem)
}

/// Flows in groups: the copies of one flow together, every other alone.
fn grouped(flows: &[FlowReport]) -> Vec<&[FlowReport]> {
    let same =
        |a: &FlowReport, b: &FlowReport| copy_of(&a.name).is_some() && copy_of(&a.name) == copy_of(&b.name);
    flows.chunk_by(same).collect()
}

fn print_flows(flows: &[FlowReport], all: bool) {
    let mut rows = table(&[
        "FLOW",
        "FROM",
        "TO",
        "CLASS",
        ">GOODPUT",
        ">LOST",
        ">SENT|AGAIN",
        ">RTT|MEAN",
        ">ONE WAY|MEAN",
    ]);
    let groups = if all { flows.chunks(1).collect() } else { grouped(flows) };
    for group in groups {
        let Some(first) = group.first() else { continue };
        // Empty where it means nothing for the kind of flow.
        let mean = |of: fn(&FlowReport) -> Option<(u64, f64)>| {
            let parts: Vec<(u64, f64)> = group.iter().filter_map(of).collect();
            let count: u64 = parts.iter().map(|part| part.0).sum();
            let sum: f64 = parts.iter().map(|part| part.0 as f64 * part.1).sum();
            if count == 0 { String::new() } else { show(sum / count as f64, Unit::Time) }
        };
        let again: Option<u64> = group.iter().map(|flow| flow.retransmits).sum();
        rows.add(vec![
            group_name(group),
            first.from.clone(),
            first.to.clone(),
            first.class.clone().unwrap_or_default(),
            show(group.iter().map(|flow| flow.goodput_bps).sum(), Unit::Rate),
            group.iter().map(|flow| flow.lost).sum::<u64>().to_string(),
            again.map(|n| n.to_string()).unwrap_or_default(),
            mean(|flow| flow.rtt.as_ref().map(|rtt| (rtt.count, rtt.mean_ns))),
            mean(|flow| flow.one_way.as_ref().map(|delay| (delay.count, delay.mean_ns))),
        ]);
    }
    // From the right, so that the numbers of the others stay.
    for column in [8, 7, 6, 3] {
        rows.drop_if_zero(column);
    }
    rows.print();
    if !all && grouped(flows).len() < flows.len() {
        out!("copies of a flow are summed up; --all shows each");
    }
    print_admissions(flows, all);
}

/// Rows of flows that an edge found, unless all are asked for.
const ADMISSIONS: usize = 16;

/// What an edge made of the flows that it found.
fn print_admissions(flows: &[FlowReport], all: bool) {
    let found: Vec<_> = flows.iter().filter_map(|flow| Some((flow, flow.admission.as_ref()?))).collect();
    if found.is_empty() {
        return;
    }
    let mut rows = table(&["FLOW", ">AT|PACKET", "EDGE", "WHY"]);
    let shown = if all { found.len() } else { ADMISSIONS };
    for (flow, admission) in found.iter().take(shown) {
        let packet = flow.recognised.map(|packet| packet.to_string()).unwrap_or_default();
        rows.add(vec![flow.name.clone(), packet, admission.state.clone(), admission.why.clone()]);
    }
    out!("");
    rows.print();
    if found.len() > shown {
        out!("{} more flows were found; --all shows each", found.len() - shown);
    }
}

/// `NAME`, or `NAME (50 flows)` for its copies together.
fn group_name(group: &[FlowReport]) -> String {
    let name = &group[0].name;
    match copy_of(name) {
        Some(stem) if group.len() > 1 => format!("{stem} ({} flows)", group.len()),
        _ => name.clone(),
    }
}

/// What is asserted of each copy of a flow, as one check where all hold.
pub fn fold_checks(checks: &[Check]) -> Vec<Check> {
    // `flow NAME.3: the rest` is of the copies of NAME; an experiment has the run's name before it.
    let of_copy = |check: &Check| -> Option<(String, String, String)> {
        let (run, of) = match check.what.strip_prefix("flow ") {
            Some(of) => (String::new(), of),
            None => check.what.split_once(": flow ").map(|(run, of)| (format!("{run}: "), of))?,
        };
        let (name, rest) = of.split_once(": ")?;
        Some((run, copy_of(name)?.to_string(), rest.to_string()))
    };
    let same = |a: &Check, b: &Check| a.pass && b.pass && of_copy(a).is_some() && of_copy(a) == of_copy(b);
    let fold = |group: &[Check]| match (group, of_copy(&group[0])) {
        ([_, _, ..], Some((run, name, rest))) => {
            Check { what: format!("{run}{} flows {name}: {rest}", group.len()), ..group[0].clone() }
        }
        _ => group[0].clone(),
    };
    checks.chunk_by(same).map(fold).collect()
}

/// The order in which a reader expects what a conditioner or a meter counts.
const RESULTS: [&str; 9] = ["offered", "passed", "marked", "dropped", "in", "out", "green", "yellow", "red"];

/// What each conditioner and meter did; nothing where there are none.
pub fn print_conditioners(conditioners: &[ConditionerReport]) {
    if conditioners.is_empty() {
        return;
    }
    let mut rows = table(&["CONDITIONER, METER", "RESULT", ">PACKETS", ">BYTES"]);
    for conditioner in conditioners {
        let counts = RESULTS.iter().filter_map(|r| conditioner.counts.get(*r).map(|count| (r, count)));
        for (row, (result, count)) in counts.enumerate() {
            let name = if row == 0 { conditioner.name.clone() } else { String::new() };
            rows.add(vec![name, result.to_string(), count.packets.to_string(), count.bytes.to_string()]);
        }
    }
    rows.print();
}
