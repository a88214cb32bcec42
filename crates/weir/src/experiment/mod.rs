//! `weir experiment`: the papers' figures and tables as runs with expectations.
//!
//! An experiment is `experiments/ID.toml`: what the paper shows, the scenarios that show it, and
//! comparisons between them. Expectations stand in the scenarios. In the simulator they are
//! checked on the mean of several seeds; live on the median of several runs.

mod judge;
pub(crate) mod manifest;
mod memory;
pub mod together;

pub use manifest::{Manifest, Run};
pub use memory::Memory;

use serde::Serialize;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use weir_report::disk::read_text;
use weir_report::report::Check;
use weir_report::{Report, evaluate, mean};
use weir_scenario::Scenario;
use weir_text::Unit;

/// A scenario's file is at most this long.
const MAX_BYTES: usize = 8 << 20;

/// The outcome of an experiment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Every check holds.
    Pass,
    /// One does not.
    Fail,
    /// What the paper reports, and we doubt, did not show.
    Doubtful,
    /// It could not run here; a check says why.
    Skipped,
}

/// One experiment's row in the output; the schema is fixed.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The id.
    pub id: String,
    /// Whether it ran live.
    pub live: bool,
    /// The verdict.
    pub verdict: Verdict,
    /// What was checked.
    pub checks: Vec<Check>,
    /// What the paper shows.
    pub title: String,
    /// Where.
    pub source: String,
}

/// What a benchmark measured, in nanoseconds per packet; or why it did not.
pub type Measured = Result<Vec<(String, f64)>, String>;

/// What a benchmark's values are called, behind its name.
pub const PARTS: [&str; 3] = ["", " enqueue", " dequeue"];

/// What was measured: by run and check (of a benchmark: no run and its name) the value and its unit.
pub(crate) type Measurements = HashMap<(String, String), (f64, Unit)>;

/// How to run a scenario: given by the command, so that this module knows neither simulator nor lab.
pub struct Runners<'a> {
    /// Simulates with a seed.
    pub simulate: &'a dyn Fn(&Scenario, u64) -> Result<Report, String>,
    /// Runs live.
    pub live: &'a dyn Fn(&Scenario) -> Result<Report, NotRun>,
    /// Runs a benchmark by name: what was measured, and nanoseconds per packet.
    pub bench: &'a dyn Fn(&str) -> Measured,
}

/// Why a live run did not happen.
pub enum NotRun {
    /// Not possible here.
    Impossible(String),
    /// It broke.
    Broke(String),
}

/// Every experiment below `dir`, by id.
///
/// # Errors
/// A manifest that cannot be read, with the reason.
pub fn list(dir: &Path) -> Result<Vec<(String, Manifest)>, String> {
    let entries = std::fs::read_dir(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let mut paths: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|e| e == "toml"));
    paths.sort();
    paths
        .into_iter()
        .map(|path| {
            let id = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            Ok((id, Manifest::read(&path)?))
        })
        .collect()
}

/// The same as [`run`]; an experiment that panics has failed, and the others go on.
pub fn run_guarded(dir: &Path, id: &str, manifest: &Manifest, live: bool, runners: &Runners<'_>) -> Outcome {
    let run = std::panic::AssertUnwindSafe(|| run(dir, id, manifest, live, runners));
    std::panic::catch_unwind(run).unwrap_or_else(|_| {
        let mut outcome = Outcome::of(id, manifest, live);
        outcome.checks.push(note("", "it panicked; standard error says where", false));
        outcome.verdict = Verdict::Fail;
        outcome
    })
}

impl Outcome {
    fn of(id: &str, manifest: &Manifest, live: bool) -> Outcome {
        Outcome {
            id: id.to_owned(),
            live,
            verdict: Verdict::Pass,
            checks: Vec::new(),
            title: manifest.title.clone(),
            source: manifest.source.clone(),
        }
    }
}

/// Runs one experiment.
pub fn run(dir: &Path, id: &str, manifest: &Manifest, live: bool, runners: &Runners<'_>) -> Outcome {
    let mut outcome = Outcome::of(id, manifest, live);
    let mut measured = Measurements::new();
    let mut worst = Verdict::Pass;
    let mut worsen = |verdict| {
        let rank = |v| match v {
            Verdict::Pass => 0,
            Verdict::Skipped => 1,
            Verdict::Doubtful => 2,
            Verdict::Fail => 3,
        };
        if rank(verdict) > rank(worst) {
            worst = verdict;
        }
    };
    let (mut ran, mut skipped) = (0, HashSet::new());
    for part in &manifest.run {
        let scenario = if live { part.live.as_ref() } else { part.scenario.as_ref() };
        let Some(scenario) = scenario else { continue };
        ran += 1;
        let mut checks = match run_part(&dir.join(scenario), part, manifest, live, runners) {
            Ok(checks) => checks,
            Err(NotRun::Impossible(why)) => {
                outcome.checks.push(note(&part.name, &why, true));
                skipped.insert(part.name.clone());
                worsen(Verdict::Skipped);
                continue;
            }
            Err(NotRun::Broke(why)) => {
                outcome.checks.push(note(&part.name, &why, false));
                worsen(Verdict::Fail);
                continue;
            }
        };
        if part.must_fail {
            part.must_fail(&mut checks);
        }
        for mut check in checks {
            if let Some(value) = check.measured {
                measured.insert((part.name.clone(), check.what.clone()), (value, check.unit));
            }
            if !part.name.is_empty() {
                check.what = format!("{}: {}", part.name, check.what);
            }
            if part.reported {
                check.expected = format!("reported; {}", check.expected);
                check.pass = true;
            } else if !check.pass {
                worsen(if part.doubtful { Verdict::Doubtful } else { Verdict::Fail });
            }
            outcome.checks.push(check);
        }
    }
    for bench in manifest.bench.iter().filter(|_| !live) {
        ran += 1;
        match (runners.bench)(bench) {
            Ok(parts) => {
                for (what, ns) in parts {
                    measured.insert((String::new(), what.clone()), (ns, Unit::Time));
                    outcome.checks.push(Check {
                        what: format!("{what} per packet, ns"),
                        expected: "reported".into(),
                        measured: Some(ns),
                        unit: Unit::Time,
                        pass: true,
                        note: None,
                    });
                }
            }
            Err(why) => {
                outcome.checks.push(note(bench, &why, false));
                worsen(Verdict::Fail);
            }
        }
    }
    for line in manifest.line.iter().filter(|_| !live) {
        let check = line.check(&measured);
        if !check.pass {
            worsen(Verdict::Fail);
        }
        outcome.checks.push(check);
    }
    for compare in manifest.compare.iter().filter(|compare| compare.stands(manifest, live)) {
        if [&compare.left, &compare.right].iter().any(|value| skipped.contains(&value.run)) {
            outcome.checks.push(note(&compare.what, "a run that it compares could not run here", true));
            continue;
        }
        let check = compare.check(&measured);
        if !check.pass {
            worsen(if compare.doubtful { Verdict::Doubtful } else { Verdict::Fail });
        }
        outcome.checks.push(check);
    }
    if ran == 0 {
        outcome.checks.push(note("", if live { "has no live form" } else { "runs live only" }, true));
        worsen(Verdict::Skipped);
    }
    outcome.verdict = worst;
    outcome
}

fn note(what: &str, why: &str, pass: bool) -> Check {
    Check {
        what: if what.is_empty() { "run".into() } else { what.to_owned() },
        expected: "a run".into(),
        measured: None,
        unit: Unit::Number,
        pass,
        note: Some(why.to_owned()),
    }
}

fn run_part(
    path: &Path,
    part: &Run,
    manifest: &Manifest,
    live: bool,
    runners: &Runners<'_>,
) -> Result<Vec<Check>, NotRun> {
    let mut scenario = Scenario::read(path).map_err(|e| NotRun::Broke(e.to_string()))?;
    if !part.replace.is_empty() {
        let mut text =
            read_text(path, MAX_BYTES).map_err(|e| NotRun::Broke(format!("{}: {e}", path.display())))?;
        for (old, new) in &part.replace {
            if !text.contains(old) {
                let why = format!(
                    "{}: `{old}` stands nowhere in it, so `replace` of run `{}` does nothing; write a text of that file",
                    path.display(),
                    part.name
                );
                return Err(NotRun::Broke(why));
            }
            text = text.replace(old, new);
        }
        let file = format!("{} with what its experiment replaces", path.display());
        let replaced = Scenario::from_toml(&file, &text).map_err(|e| NotRun::Broke(e.to_string()))?;
        let (folder, name) = (scenario.folder, scenario.name);
        scenario = Scenario { folder, name, ..replaced };
    }
    if !part.expect.is_empty() {
        scenario.expects.extend(part.expect.iter().cloned());
        // Read once more, so that these expectations are judged as those of a file are.
        let file = format!("{} with the expectations of its experiment", path.display());
        let (folder, name) = (scenario.folder, scenario.name.clone());
        scenario.folder = PathBuf::new();
        scenario =
            Scenario::from_toml(&file, &scenario.to_toml()).map_err(|e| NotRun::Broke(e.to_string()))?;
        (scenario.folder, scenario.name) = (folder, name);
    }
    if live {
        let mut runs = Vec::new();
        for _ in 0..manifest.live_runs.max(1) {
            runs.push(evaluate(&scenario.expects, &(runners.live)(&scenario)?));
        }
        return Ok(median(runs));
    }
    let seeds = manifest.seeds.max(1);
    let mut reports = Vec::new();
    for seed in 0..seeds {
        reports.push((runners.simulate)(&scenario, scenario.seed.wrapping_add(seed)).map_err(NotRun::Broke)?);
    }
    let report = mean(&reports).ok_or_else(|| NotRun::Broke("no run".into()))?;
    Ok(evaluate(&scenario.expects, &report))
}

/// Of each check, the run with the median value; it passes if that run's check does.
fn median(runs: Vec<Vec<Check>>) -> Vec<Check> {
    let checks = runs.first().map_or(0, Vec::len);
    (0..checks)
        .filter_map(|i| {
            let mut of_check: Vec<&Check> = runs.iter().filter_map(|run| run.get(i)).collect();
            let value = |c: &Check| c.measured.unwrap_or(f64::INFINITY);
            of_check.sort_by(|a, b| value(a).total_cmp(&value(b)));
            of_check.get(of_check.len() / 2).map(|c| (*c).clone())
        })
        .collect()
}
