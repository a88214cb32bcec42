//! Instructions of a row, counted by valgrind's callgrind: what `run_pairs` runs, and nothing else.
//!
//! A child runs each row three times: to warm it, then with a number of pairs, then with three times as many.
//! The difference of the last two leaves out what does not belong to a pair.

use crate::changes::{self, CHANGES};
use crate::{Row, bed, run_pairs};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use weir_core::sched::Registry;

/// The variable that tells a child which rows to run, apart by commas.
pub const ROWS: &str = "WEIR_BENCH_ROWS";
/// The variable that tells a child among how many classes to change one.
pub const CLASSES: &str = "WEIR_BENCH_CLASSES";
const UNPREPARED: &str = " unprepared";
const PAIRS: u32 = 2_000;

/// What the child does.
///
/// # Errors
/// The row that cannot run, and why.
pub fn run_rows(registry: &Registry, rows: &str) -> Result<(), String> {
    for row in rows.split(',') {
        let mut bed = bed(registry, &row.parse::<Row>()?)?;
        for count in [PAIRS, PAIRS, 3 * PAIRS] {
            run_pairs(&mut *bed, count).map_err(|why| format!("{row}: {why}"))?;
        }
    }
    Ok(())
}

/// What the child does that is to change one of many classes.
///
/// # Errors
/// What cannot be read, built or changed.
pub fn run_changes(registry: &Registry, which: &str) -> Result<(), String> {
    let classes = which.strip_suffix(UNPREPARED);
    let number = classes.unwrap_or(which).parse().map_err(|error| format!("{CLASSES}: {error}"))?;
    changes::run(registry, number, classes.is_none())
}

/// Why nothing was counted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Uncounted {
    /// There is no valgrind here, or not for this processor.
    Missing(String),
    /// It failed.
    Failed(String),
}

/// What valgrind counted of a run of `program` within each call of the functions `of`, of this crate, one after
/// another.
fn counted(
    program: &Path,
    args: &[&str],
    set: (&str, &str),
    of: &[&str],
    dumps: usize,
) -> Result<Vec<f64>, Uncounted> {
    let missing = |why: &str| Err(Uncounted::Missing(format!("{why}: instructions are not counted")));
    if !cfg!(target_arch = "x86_64") {
        return missing("this processor is not x86-64, of which the figures are");
    }
    let failed = |why: String| Uncounted::Failed(why);
    let folder = Folder::new().map_err(|error| failed(format!("no folder for callgrind: {error}")))?;
    // Callgrind keeps one wish for each pattern: two wishes need two that match.
    let wishes = of.iter().flat_map(|function| {
        [format!("--toggle-collect=*{function}*"), format!("--dump-after=weir_bench::{function}*")]
    });
    let run = Command::new("valgrind")
        .args(["--tool=callgrind", "--quiet"])
        .args(wishes)
        .arg(format!("--callgrind-out-file={}", folder.0.join("out").display()))
        .arg(program)
        .args(args)
        .env(set.0, set.1)
        .stdin(Stdio::null())
        .output();
    let output = match run {
        Ok(output) => output,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return missing("valgrind is not installed (scripts/setup.sh demo installs it)");
        }
        Err(error) => return Err(failed(format!("valgrind: {error}"))),
    };
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(failed(format!("valgrind {}: {}", output.status, said.trim())));
    }
    let one = |dump: usize| {
        let path = folder.0.join(format!("out.{dump}"));
        let text = fs::read_to_string(&path).map_err(|error| failed(format!("{path:?}: {error}")))?;
        total(&text).ok_or_else(|| failed(format!("{path:?} has no line `totals:`")))
    };
    (1..=dumps).map(one).collect()
}

/// Instructions of each swap, and of each change in place, of one class among `classes` ([`changes::run`]),
/// which `program` makes when [`CLASSES`] says how many. What goes class by class is `prepared` before a swap, or not.
///
/// # Errors
/// What is missing or failed.
pub fn count_changes(program: &Path, classes: u32, prepared: bool) -> Result<[Vec<f64>; 2], Uncounted> {
    let of = ["changes::exchange", "changes::reconfigure"];
    let which = format!("{classes}{}", if prepared { "" } else { UNPREPARED });
    let mut swaps = counted(program, &[], (CLASSES, &which), &of, 2 * CHANGES)?;
    let in_place = swaps.split_off(CHANGES);
    Ok([swaps, in_place])
}

/// Instructions per pair of each of `rows`, which `program` runs (`run_rows`) when `ROWS` names them.
///
/// # Errors
/// What is missing or failed.
pub fn count(program: &Path, args: &[&str], rows: &[Row]) -> Result<Vec<f64>, Uncounted> {
    let names: Vec<String> = rows.iter().map(ToString::to_string).collect();
    let dumps = counted(program, args, (ROWS, &names.join(",")), &["run_pairs"], 3 * rows.len())?;
    let per_pair = |row: &[f64]| (row[2] - row[1]) / f64::from(2 * PAIRS);
    Ok(dumps.chunks_exact(3).map(per_pair).collect())
}

/// What a dump says was run in all.
fn total(dump: &str) -> Option<f64> {
    dump.lines().find_map(|line| line.strip_prefix("totals: "))?.trim().parse().ok()
}

/// A folder that goes when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> std::io::Result<Self> {
        static FOLDERS: AtomicU32 = AtomicU32::new(0);
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("weir-callgrind-{}-{number}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
