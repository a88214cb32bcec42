//! `weir sim`, `weir lab`, `weir compare`: scenarios and their reports.

use super::kind::{Kind, wants};
use super::{Done, Failure};
use crate::progress::Progress;
use std::io::Write;
use std::path::{Path, PathBuf};
use weir_core::sched::Registry;
use weir_report::disk::{self, Output};
use weir_report::{Report, plot};
use weir_scenario::Scenario;
use weir_text::Time;

fn read(path: &Path) -> Result<Scenario, Failure> {
    wants(Kind::Scenario, path)?;
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
    all: bool,
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
    finish(&report, out, all, json)
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
pub fn lab(path: &Path, seed: Option<u64>, out: Option<&Path>, all: bool, json: bool) -> Done {
    let scenario = read(path)?;
    if let Some(out) = out {
        keeps_inputs(out, &inputs(path, &scenario))?;
    }
    let bar = Progress::of_run(json);
    let report = live(&scenario, seed, Some(&|now, end| bar.show(now, end)))?;
    bar.clear();
    finish(&report, out, all, json)
}

/// One live run for an experiment.
pub fn lab_quietly(scenario: &Scenario) -> Result<Report, Failure> {
    let report = live(scenario, None, None)?;
    match report.not_valid() {
        Some(why) => Err(Failure::failed(format!("a run is {why}"))),
        None => Ok(report),
    }
}

fn live(
    scenario: &Scenario,
    seed: Option<u64>,
    progress: Option<&dyn Fn(Time, Time)>,
) -> Result<Report, Failure> {
    let options = weir_lab::Options { seed, progress, ..weir_lab::Options::default() };
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
pub fn compare(paths: &[PathBuf], out: Option<&Path>, json: bool) -> Done {
    let read = |path: &PathBuf| {
        // A folder may have one.
        if !path.is_dir() {
            wants(Kind::Report, path)?;
        }
        Report::read(path).map_err(Failure::usage)
    };
    let mut reports = paths.iter().map(read).collect::<Result<Vec<Report>, Failure>>()?;
    // Where nothing else tells the runs apart, their files do, unless one is given twice.
    let once = paths.iter().enumerate().all(|(n, path)| !paths[..n].contains(path));
    if once && !weir_report::compare::are_told_apart(&reports.iter().collect::<Vec<_>>()) {
        for (report, path) in reports.iter_mut().zip(paths) {
            report.meta.scenario = path.to_string_lossy().trim_end_matches("/report.json").to_string();
        }
    }
    let runs: Vec<&Report> = reports.iter().collect();
    if let Some(out) = out {
        let failed = |e: std::io::Error| Failure::failed(format!("{}: {e}", out.display()));
        std::fs::create_dir_all(out).map_err(failed)?;
        plot::write(out, &runs).map_err(failed)?;
    }
    let comparison = weir_report::compare(&runs);
    if json {
        return super::print_json(&comparison);
    }
    out!("{}", comparison.to_string().trim_end());
    Ok(())
}

fn finish(report: &Report, out: Option<&Path>, all: bool, json: bool) -> Done {
    if let Some(out) = out {
        let failed = |e: std::io::Error| Failure::failed(format!("{}: {e}", out.display()));
        report.write(out).map_err(failed)?;
        plot::write(out, &[report]).map_err(failed)?;
    }
    if json {
        out!("{}", report.to_json().trim_end());
    } else {
        super::report::print(report, all);
    }
    if let Some(why) = report.not_valid() {
        return Err(Failure::failed(format!("the run is {why}")));
    }
    if report.pass() { Ok(()) } else { Err(Failure::failed("an expectation was missed")) }
}
