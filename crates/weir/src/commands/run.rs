//! `weir sim`, `weir lab`, `weir compare`: scenarios and their reports.

use super::{Done, Failure, print_table, table};
use crate::progress::Progress;
use std::io::Write;
use std::path::{Path, PathBuf};
use weir_core::sched::Registry;
use weir_report::disk::{self, Output};
use weir_report::measure::{Unit, show};
use weir_report::report::ConditionerReport;
use weir_report::{Report, plot};
use weir_scenario::Scenario;
use weir_text::Time;

fn read(path: &Path) -> Result<Scenario, Failure> {
    Scenario::read(path).map_err(|e| Failure::usage(format!("the scenario cannot be used\n{e}")))
}

fn sim_failure(error: weir_sim::Error) -> Failure {
    match error {
        weir_sim::Error::Input(_) => Failure::usage(error),
        weir_sim::Error::Unsupported(_) => Failure::impossible(error),
        weir_sim::Error::Io(_) => Failure::failed(error),
    }
}

/// The files that a run reads.
fn inputs(path: &Path, scenario: &Scenario) -> Vec<PathBuf> {
    let configurations = scenario.ports.iter().filter_map(|port| port.conf.as_ref());
    std::iter::once(path.to_path_buf()).chain(configurations.map(|conf| scenario.folder.join(conf))).collect()
}

/// No file that a run writes into the folder may be one that it reads.
fn keeps_inputs(out: &Path, inputs: &[PathBuf]) -> Done {
    for name in weir_report::FILES {
        disk::keeps_inputs(&out.join(name), inputs.iter().map(PathBuf::as_path)).map_err(Failure::usage)?;
    }
    Ok(())
}

/// `weir sim`.
pub fn simulate(
    registry: &Registry,
    path: &Path,
    seed: Option<u64>,
    out: Option<&Path>,
    packets: bool,
    json: bool,
) -> Done {
    let scenario = read(path)?;
    if let Some(out) = out {
        keeps_inputs(out, &inputs(path, &scenario))?;
    }
    let mut file = match out {
        Some(out) if packets => {
            std::fs::create_dir_all(out).map_err(|e| Failure::failed(format!("{}: {e}", out.display())))?;
            let path = out.join("packets.csv");
            let file =
                Output::create(&path).map_err(|e| Failure::failed(format!("{}: {e}", path.display())))?;
            Some(file)
        }
        _ => None,
    };
    let bar = Progress::of_run(json);
    let report = weir_sim::run_registered(
        &scenario,
        weir_sim::Options {
            seed,
            packets: file.as_mut().map(|f| f as &mut dyn Write),
            progress: Some(&mut |now, end| bar.show(now, end)),
        },
        registry,
    )
    .map_err(sim_failure)?;
    bar.clear();
    if let Some(file) = file {
        file.finish().map_err(|e| Failure::failed(format!("packets.csv: {e}")))?;
    }
    finish(&report, out, json)
}

/// One simulation for an experiment.
pub fn simulate_quietly(
    registry: &Registry,
    scenario: &Scenario,
    seed: Option<u64>,
) -> Result<Report, String> {
    weir_sim::run_registered(scenario, weir_sim::Options { seed, ..weir_sim::Options::default() }, registry)
        .map_err(|e| e.to_string())
}

/// `weir lab`.
pub fn lab(path: &Path, out: Option<&Path>, json: bool) -> Done {
    let scenario = read(path)?;
    if let Some(out) = out {
        keeps_inputs(out, &inputs(path, &scenario))?;
    }
    let bar = Progress::of_run(json);
    let report = live(&scenario, Some(&|now, end| bar.show(now, end)))?;
    bar.clear();
    finish(&report, out, json)
}

/// One live run for an experiment.
pub fn lab_quietly(scenario: &Scenario) -> Result<Report, Failure> {
    live(scenario, None)
}

fn live(scenario: &Scenario, progress: Option<&dyn Fn(Time, Time)>) -> Result<Report, Failure> {
    let options = weir_lab::Options { progress, ..weir_lab::Options::default() };
    weir_lab::run(scenario, &options).map_err(lab_failure)
}

/// The exit code of a lab's error.
pub fn lab_failure(error: weir_lab::Error) -> Failure {
    match error {
        weir_lab::Error::NotRoot | weir_lab::Error::Impossible(_) => Failure::impossible(error),
        weir_lab::Error::Input(_) => Failure::usage(error),
        weir_lab::Error::Broke(_) => Failure::failed(error),
    }
}

/// `weir compare`.
pub fn compare(a: &Path, b: &Path, out: Option<&Path>, json: bool) -> Done {
    let read = |path| Report::read(path).map_err(Failure::usage);
    let (a, b) = (read(a)?, read(b)?);
    if let Some(out) = out {
        let failed = |e: std::io::Error| Failure::failed(format!("{}: {e}", out.display()));
        std::fs::create_dir_all(out).map_err(failed)?;
        plot::write(out, &a, Some(&b)).map_err(failed)?;
    }
    let comparison = weir_report::compare(&a, &b);
    if json {
        return super::print_json(&comparison);
    }
    out!("{}", comparison.to_string().trim_end());
    Ok(())
}

fn finish(report: &Report, out: Option<&Path>, json: bool) -> Done {
    if let Some(out) = out {
        let failed = |e: std::io::Error| Failure::failed(format!("{}: {e}", out.display()));
        report.write(out).map_err(failed)?;
        plot::write(out, report, None).map_err(failed)?;
    }
    if json {
        out!("{}", report.to_json().trim_end());
    } else {
        print_report(report);
    }
    if report.pass() { Ok(()) } else { Err(Failure::failed("an expectation was missed")) }
}

fn print_report(report: &Report) {
    let meta = &report.meta;
    let events = meta.events.as_ref().map(|hash| format!(", events {hash}")).unwrap_or_default();
    out!(
        "{} ({}), {}, seed {}{events}",
        meta.scenario,
        meta.kind.name(),
        Time::from_nanos(meta.duration_ns),
        meta.seed
    );
    for note in &meta.notes {
        out!("note: {note}");
    }
    for port in &report.ports {
        out!("\nport {}: {} at {}", port.name, port.discipline, show(port.rate_bps as f64, Unit::Rate));
        let mut rows =
            table(&["CLASS", "RATE", "SENT", "DROPPED", "MARKED", "DELAY MEAN", "P99", "MAX", "LONGEST"]);
        for class in &port.classes {
            let rate = class.sent.bytes as f64 * 8e9 / meta.duration_ns as f64;
            rows.add_row(vec![
                class.name.clone(),
                show(rate, Unit::Rate),
                class.sent.packets.to_string(),
                class.dropped_in_all().packets.to_string(),
                class.marked.to_string(),
                show(class.delay.mean_ns, Unit::Time),
                show(class.delay.p99_ns as f64, Unit::Time),
                show(class.delay.max_ns as f64, Unit::Time),
                class.backlog_max.packets.to_string(),
            ]);
        }
        print_table(rows, 1);
        print_conditioners(&port.conditioners);
    }
    if !report.flows.is_empty() {
        out!("");
        let mut rows = table(&["FLOW", "FROM", "TO", "CLASS", "GOODPUT", "LOST", "RETRANSMITS", "RTT MEAN"]);
        for flow in &report.flows {
            rows.add_row(vec![
                flow.name.clone(),
                flow.from.clone(),
                flow.to.clone(),
                flow.class.clone().unwrap_or_default(),
                show(flow.goodput_bps, Unit::Rate),
                flow.lost.to_string(),
                // Empty where it means nothing for the kind of flow.
                flow.retransmits.map(|n| n.to_string()).unwrap_or_default(),
                flow.rtt.as_ref().map(|rtt| show(rtt.mean_ns, Unit::Time)).unwrap_or_default(),
            ]);
        }
        print_table(rows, 4);
    }
    if !report.checks.is_empty() {
        out!("");
        let mut rows = table(&["", "EXPECTATION", "EXPECTED", "MEASURED"]);
        for check in &report.checks {
            let mark = if check.pass { "ok" } else { "MISS" };
            let measured = check.measured.map_or_else(|| "-".into(), |m| format!("{m:.6}"));
            rows.add_row(vec![mark.to_string(), check.what.clone(), check.expected.clone(), measured]);
        }
        print_table(rows, 3);
    }
}

/// The order in which a reader expects what a conditioner or a meter counts.
const RESULTS: [&str; 9] = ["offered", "passed", "marked", "dropped", "in", "out", "green", "yellow", "red"];

/// What each conditioner and meter did; nothing where there are none.
pub(super) fn print_conditioners(conditioners: &[ConditionerReport]) {
    if conditioners.is_empty() {
        return;
    }
    let mut rows = table(&["CONDITIONER, METER", "RESULT", "PACKETS", "BYTES"]);
    for conditioner in conditioners {
        let counts = RESULTS.iter().filter_map(|r| conditioner.counts.get(*r).map(|count| (r, count)));
        for (row, (result, count)) in counts.enumerate() {
            let name = if row == 0 { conditioner.name.clone() } else { String::new() };
            rows.add_row(vec![name, result.to_string(), count.packets.to_string(), count.bytes.to_string()]);
        }
    }
    print_table(rows, 2);
}
