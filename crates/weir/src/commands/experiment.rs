//! `weir experiment`: lists and runs the papers' figures and tables.

use super::kind::{Kind, wants};
use super::report::fold_checks;
use super::tables::{print_checks, print_wrapped, table};
use super::{Done, Failure, print_json};
use crate::experiment::together::{in_order, neighbours};
use crate::experiment::{self, NotRun, Outcome, Runners, Verdict};
use crate::progress::Progress;
use serde_json::json;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use weir_core::sched::Registry;

/// `experiments/` of the present folder, or of the source tree that this command was built from.
fn folder() -> PathBuf {
    let here = PathBuf::from("experiments");
    if here.is_dir() {
        return here;
    }
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../experiments")
}

/// What there is.
pub fn list(json: bool) -> Done {
    let all = experiment::list(&folder()).map_err(Failure::usage)?;
    if json {
        let rows: Vec<_> = all
            .iter()
            .map(|(id, m)| {
                let has_live = m.run.iter().any(|r| r.live.is_some());
                json!({"id": id, "title": m.title, "source": m.source, "about": m.about, "live": has_live})
            })
            .collect();
        return print_json(&json!({ "experiments": rows }));
    }
    let mut rows = table(&["ID", "SOURCE", "LIVE", "WHAT IT SHOWS"]);
    for (id, m) in &all {
        let live = if m.run.iter().any(|r| r.live.is_some()) { "yes" } else { "" };
        rows.add(vec![id.clone(), m.source.clone(), live.into(), m.title.clone()]);
    }
    rows.print();
    Ok(())
}

/// Runs some or all.
pub fn run(registry: &Registry, ids: &[String], all: bool, live: bool, no_bench: bool, json: bool) -> Done {
    let dir = folder();
    let known = experiment::list(&dir).map_err(Failure::usage)?;
    if ids.is_empty() && !all {
        return Err(Failure::usage(
            "which experiment? Give ids as `weir experiment list` prints them, or --all",
        ));
    }
    let mut chosen = Vec::new();
    for id in ids {
        match known.iter().find(|(k, _)| k == id) {
            Some(found) => chosen.push(found),
            None => {
                wants(Kind::Experiment, Path::new(id))?;
                // Whoever names its file means what is in it.
                let meant = Path::new(id).file_stem().and_then(|stem| stem.to_str()).unwrap_or(id);
                let mend = weir_text::suggest(meant, known.iter().map(|(known, _)| known.as_str()));
                let mend = mend.unwrap_or_else(|| "`weir experiment list` shows what there is".into());
                return Err(Failure::usage(format!("no experiment `{id}`; {mend}")));
            }
        }
    }
    if all {
        chosen = known.iter().filter(|(_, m)| !live || m.run.iter().any(|r| r.live.is_some())).collect();
    }
    chosen.retain(|(_, m)| !no_bench || m.bench.is_empty());
    let progress = Progress::new(chosen.len() as u64, json);
    let shown = progress.is_shown();
    if shown {
        progress.begin("experiments");
    }
    // What is measured in time, or on links, is measured alone.
    let threads = if live { 1 } else { std::thread::available_parallelism().map_or(1, NonZero::get) };
    let run = |memory: &experiment::Memory, index: usize| {
        let (id, manifest) = chosen[index];
        if !shown {
            eprintln!("weir: experiment {id} ...");
        }
        let runners = Runners {
            simulate: &|scenario, seed| {
                memory.recall(scenario, seed, || super::run::simulate_quietly(registry, scenario, Some(seed)))
            },
            live: &|scenario| {
                super::run::lab_quietly(scenario).map_err(|f| match f.code {
                    3 => NotRun::Impossible(f.message),
                    _ => NotRun::Broke(f.message),
                })
            },
            bench: &|name| super::bench::nanoseconds(registry, name),
        };
        experiment::run_guarded(&dir, id, manifest, live, &runners)
    };
    let groups = neighbours(chosen.iter().map(|(_, manifest)| manifest));
    let mut outcomes = Vec::new();
    in_order(
        &groups,
        threads,
        |index| !chosen[index].1.bench.is_empty(),
        run,
        |outcome| {
            progress.step();
            if !json {
                progress.beside(|| print(&outcome));
            }
            outcomes.push(outcome);
        },
    );
    progress.clear();
    if json {
        print_json(&json!({ "experiments": outcomes }))?;
    } else {
        let count = |verdict| outcomes.iter().filter(|o| o.verdict == verdict).count();
        out!(
            "experiments: {} pass, {} fail, {} doubtful, {} skipped",
            count(Verdict::Pass),
            count(Verdict::Fail),
            count(Verdict::Doubtful),
            count(Verdict::Skipped)
        );
    }
    if outcomes.iter().any(|o| o.verdict == Verdict::Fail) {
        return Err(Failure { code: 1, message: String::new() });
    }
    Ok(())
}

fn print(outcome: &Outcome) {
    let verdict = match outcome.verdict {
        Verdict::Pass => "pass",
        Verdict::Fail => "FAIL",
        Verdict::Doubtful => "doubtful",
        Verdict::Skipped => "skipped",
    };
    let live = if outcome.live { ", live" } else { "" };
    print_wrapped(&format!("{} ({}{live}): {verdict}. {}", outcome.id, outcome.source, outcome.title));
    print_checks(&fold_checks(&outcome.checks));
    out!("");
}
