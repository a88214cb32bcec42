//! One build of all mutants, and a run of the tests for each.

use super::sites::Site;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Packages whose tests must notice.
const PACKAGES: [&str; 3] = ["weir-core", "weir-testkit", "weir-sim"];
/// The slowest tests come last: most mutants do not live to see them.
const LAST: &str = "conformance";
/// The variable that throws a switch.
const SWITCH: &str = "WEIR_MUTANT";

/// What is added to weir-core.
const MODULE: &str = r#"//! The switches of the mutants.
use std::sync::OnceLock;
static ACTIVE: OnceLock<u32> = OnceLock::new();
/// Whether this mutant is the one that is tried.
#[inline(never)]
pub fn on(number: u32) -> bool {
    let read = || std::env::var("WEIR_MUTANT").ok().and_then(|n| n.parse().ok()).unwrap_or(u32::MAX);
    *ACTIVE.get_or_init(read) == number
}
"#;

/// What became of the mutants.
pub struct Outcome {
    pub killed: usize,
    pub survived: Vec<Site>,
    pub not_compiled: usize,
}

struct Test {
    binary: PathBuf,
    folder: PathBuf,
    limit: Duration,
}

pub fn run(root: &Path, chosen: Vec<Site>, jobs: usize) -> Result<Outcome, String> {
    let tree = root.join("target/mutants/tree");
    copy(root, &tree)?;
    let mut live: Vec<Option<Site>> = chosen.into_iter().map(Some).collect();
    let mut not_compiled = 0;
    let tests = loop {
        write(root, &tree, &live)?;
        match build(root, &tree)? {
            Ok(tests) => break tests,
            Err(wrong) => {
                for number in &wrong {
                    not_compiled += usize::from(live[*number].take().is_some());
                }
            }
        }
    };
    let tests = baseline(tests)?;
    let numbers: Vec<usize> = (0..live.len()).filter(|&n| live[n].is_some()).collect();
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let survivors = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while let Some(&number) = numbers.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let killed = tests.iter().any(|test| !passes(test, Some(number)));
                    let Ok(mut survivors) = survivors.lock() else { return };
                    if !killed {
                        survivors.push(number);
                    }
                    let done = done.fetch_add(1, Ordering::Relaxed) + 1;
                    eprint!("\rmutants: {done} of {} tried, {} survived ", numbers.len(), survivors.len());
                }
            });
        }
    });
    eprintln!();
    let mut survivors = survivors.into_inner().map_err(|_| "a thread panicked")?;
    survivors.sort_unstable();
    let killed = numbers.len() - survivors.len();
    let survived = survivors.into_iter().filter_map(|n| live[n].take()).collect();
    Ok(Outcome { killed, survived, not_compiled })
}

/// A copy of what git tracks, so that the work tree is never touched.
fn copy(root: &Path, tree: &Path) -> Result<(), String> {
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output();
    let listed = listed.map_err(|e| format!("git ls-files: {e}"))?;
    let _ = fs::remove_dir_all(tree);
    for file in listed.stdout.split(|&b| b == 0).filter(|f| !f.is_empty()) {
        let file = String::from_utf8_lossy(file).into_owned();
        let (from, to) = (root.join(&file), tree.join(&file));
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        }
        // A file that is tracked and gone from the work tree is no part of it.
        if from.exists() {
            fs::copy(&from, &to).map_err(|e| format!("{file}: {e}"))?;
        }
    }
    Ok(())
}

/// Writes weir-core with every live mutant behind its switch.
fn write(root: &Path, tree: &Path, live: &[Option<Site>]) -> Result<(), String> {
    let (from, to) = (root.join("crates/weir-core/src"), tree.join("crates/weir-core/src"));
    let mut by_file: BTreeMap<&str, Vec<(usize, &Site)>> = BTreeMap::new();
    for (number, site) in live.iter().enumerate() {
        if let Some(site) = site {
            by_file.entry(&site.file).or_default().push((number, site));
        }
    }
    by_file.entry("lib.rs").or_default();
    for (file, mut sites) in by_file {
        let mut text = fs::read_to_string(from.join(file)).map_err(|e| format!("{file}: {e}"))?;
        sites.sort_by_key(|(_, site)| std::cmp::Reverse(site.bytes.start));
        for (number, site) in sites {
            text.replace_range(site.bytes.clone(), &site.switched(number));
        }
        if file == "lib.rs" {
            text = text.replace(
                "#[cfg(test)]\nextern crate std;",
                "extern crate std;\n#[doc(hidden)]\npub mod mutant;",
            );
        }
        fs::write(to.join(file), text).map_err(|e| format!("{file}: {e}"))?;
    }
    fs::write(to.join("mutant.rs"), MODULE).map_err(|e| format!("mutant.rs: {e}"))
}

/// Builds the tests; or the numbers of mutants that do not compile.
fn build(root: &Path, tree: &Path) -> Result<Result<Vec<Test>, Vec<usize>>, String> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["test", "--no-run", "--message-format=json", "--quiet"]);
    for package in PACKAGES {
        cargo.args(["-p", package]);
    }
    // Dead branches and doubled parentheses are what a mutant looks like.
    cargo.env("RUSTFLAGS", "-Awarnings").env("CARGO_TARGET_DIR", root.join("target/mutants/build"));
    let output = cargo.current_dir(tree).stderr(Stdio::inherit()).output();
    let output = output.map_err(|e| format!("cargo: {e}"))?;
    let mut tests = Vec::new();
    let mut wrong = Vec::new();
    for line in output.stdout.split(|&b| b == b'\n') {
        let Ok(message) = serde_json::from_slice::<Value>(line) else { continue };
        if let (Some(binary), true) = (message["executable"].as_str(), message["profile"]["test"] == true) {
            let folder = Path::new(message["manifest_path"].as_str().unwrap_or_default()).parent();
            let folder = folder.map(Path::to_owned).unwrap_or_default();
            tests.push(Test { binary: binary.into(), folder, limit: Duration::ZERO });
        }
        if message["message"]["level"] == "error" {
            wrong.extend(culprits(tree, &message["message"]));
        }
    }
    if output.status.success() {
        tests.sort_by_key(|t| t.binary.to_string_lossy().contains(LAST));
        return Ok(Ok(tests));
    }
    match wrong.is_empty() {
        true => Err(format!("the copy in {} does not compile, and no mutant is to blame", tree.display())),
        false => Ok(Err(wrong)),
    }
}

/// The mutants on the lines that an error speaks of, or the last one before them.
fn culprits(tree: &Path, error: &Value) -> Vec<usize> {
    let mut numbers = Vec::new();
    for span in error["spans"].as_array().into_iter().flatten().filter(|s| s["is_primary"] == true) {
        let Some(text) = span["file_name"].as_str().and_then(|f| fs::read_to_string(tree.join(f)).ok())
        else {
            continue;
        };
        let line = |key: &str| span[key].as_u64().unwrap_or(1) as usize;
        let (first, last) = (line("line_start"), line("line_end"));
        let on: Vec<(usize, usize)> = (1..)
            .zip(text.lines())
            .flat_map(|(at, line)| line.split("mutant::on(").skip(1).map(move |rest| (at, rest)))
            .filter_map(|(at, rest)| Some((at, rest.split_once(')')?.0.parse().ok()?)))
            .collect();
        let here: Vec<usize> = on.iter().filter(|(at, _)| (first..=last).contains(at)).map(|o| o.1).collect();
        match here.is_empty() {
            true => numbers.extend(on.iter().rev().find(|(at, _)| *at < first).map(|o| o.1)),
            false => numbers.extend(here),
        }
    }
    numbers
}

/// Runs every test without a mutant: all must pass, and their time is the measure for the others.
fn baseline(tests: Vec<Test>) -> Result<Vec<Test>, String> {
    let mut timed = Vec::new();
    for mut test in tests {
        test.limit = Duration::from_secs(600);
        let start = Instant::now();
        if !passes(&test, None) {
            return Err(format!("{} fails without a mutant", test.binary.display()));
        }
        test.limit = start.elapsed() * 5 + Duration::from_secs(20);
        timed.push(test);
    }
    Ok(timed)
}

/// Runs a test binary until its end, its first failure, or its limit.
fn passes(test: &Test, mutant: Option<usize>) -> bool {
    let mut command = Command::new(&test.binary);
    command.current_dir(&test.folder).args(["--test-threads", "1"]).env("RUST_BACKTRACE", "0");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    if let Some(number) = mutant {
        command.env(SWITCH, number.to_string());
    }
    let Ok(mut child) = command.spawn() else { return false };
    let output = child.stdout.take();
    let failed = AtomicUsize::new(0);
    let start = Instant::now();
    std::thread::scope(|scope| {
        if let Some(output) = output {
            let failed = &failed;
            scope.spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    if line.ends_with("... FAILED") || line.ends_with("FAILED") {
                        failed.store(1, Ordering::Relaxed);
                    }
                }
            });
        }
        loop {
            match child.try_wait() {
                Ok(Some(status)) => return status.success(),
                Ok(None) if failed.load(Ordering::Relaxed) == 0 && start.elapsed() < test.limit => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                _ => {
                    let _ = child.kill();
                    let _ = child.wait();
                    return false;
                }
            }
        }
    })
}
