//! One build of all mutants, and a run of the tests for each.

use super::sites::Site;
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use weir_core::sched::Registry;

/// Packages whose tests must notice. What a discipline says against a configuration is asked by the reader
/// of altq.conf alone, and tested there with its words.
const PACKAGES: [&str; 3] = ["weir-core", "weir-testkit", "weir-conf"];
/// A test binary that holds the conformance suite to its word. It is silent about weir-core.
const LEFT_OUT: &str = "mutants";
/// The variable that throws a switch.
const SWITCH: &str = "WEIR_MUTANT";
/// The variable that names a file. The number of each switch that the program comes to is written there.
const REACHED: &str = "WEIR_MUTANT_REACHED";
/// The variable that keeps the conformance suite to trees of one discipline.
const ONLY: &str = "WEIR_ONLY";

/// Where the sources of weir-core lie.
pub const CORE: &str = "crates/weir-core/src";

/// What is added to weir-core.
const MODULE: &str = r#"//! The switches of the mutants.
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
const UNREAD: u32 = u32::MAX;
const NONE: u32 = u32::MAX - 1;
const RECORD: u32 = u32::MAX - 2;
static ACTIVE: AtomicU32 = AtomicU32::new(UNREAD);
static SEEN: [AtomicBool; 1 << 16] = [const { AtomicBool::new(false) }; 1 << 16];
/// Whether this mutant is the one that is tried.
#[inline]
pub fn on(number: u32) -> bool {
    match ACTIVE.load(Relaxed) {
        active if active < RECORD => active == number,
        NONE => false,
        _ => unusual(number),
    }
}
#[cold]
#[inline(never)]
fn unusual(number: u32) -> bool {
    if ACTIVE.load(Relaxed) == UNREAD {
        let read = std::env::var("WEIR_MUTANT").ok().and_then(|n| n.parse().ok());
        let record = std::env::var_os("WEIR_MUTANT_REACHED").is_some();
        ACTIVE.store(read.unwrap_or(if record { RECORD } else { NONE }), Relaxed);
        return on(number);
    }
    let seen = &SEEN[number as usize];
    if seen.load(Relaxed) || seen.swap(true, Relaxed) {
        return false;
    }
    if let Some(file) = std::env::var_os("WEIR_MUTANT_REACHED") {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(file);
        let _ = file.and_then(|mut file| file.write_all(std::format!("{number}\n").as_bytes()));
    }
    false
}
"#;

/// What became of the mutants.
pub struct Outcome {
    pub killed: usize,
    pub survived: usize,
    pub not_compiled: usize,
}

/// The program that has the tests of one file of them, and where it runs.
struct Binary {
    path: PathBuf,
    folder: PathBuf,
}

/// One test.
struct Test<'b> {
    binary: &'b Binary,
    name: String,
    /// Processor time that it takes without a mutant.
    takes: Duration,
    /// The mutants whose place it comes to, or nothing if that could not be seen.
    reaches: Option<HashSet<usize>>,
}

/// Tries those mistakes in the copy `tree`.
pub fn run(root: &Path, tree: &Path, chosen: Vec<Site>, jobs: usize) -> Result<Outcome, String> {
    let originals = originals(tree, &chosen)?;
    let mut live: Vec<Option<Site>> = chosen.into_iter().map(Some).collect();
    let mut not_compiled = 0;
    let binaries = loop {
        write(tree, &originals, &live)?;
        match build(root, tree)? {
            Ok(binaries) => break binaries,
            Err(wrong) => {
                let before = not_compiled;
                for number in &wrong {
                    not_compiled += usize::from(live[*number].take().is_some());
                }
                if not_compiled == before {
                    return Err(no_mutant_to_blame(tree));
                }
            }
        }
    };
    let tests = baseline(root, &binaries, jobs)?;
    let numbers: Vec<usize> = (0..live.len()).filter(|&n| live[n].is_some()).collect();
    let (next, killed, survived) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while let Some(&number) = numbers.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let Some(site) = &live[number] else { continue };
                    let (switch, only) = (number.to_string(), discipline_of(&site.file));
                    let variables = only.map(|only| (ONLY, only)).into_iter().chain([(SWITCH, &*switch)]);
                    let mut asked = tests.iter().filter(|test| test.comes_to(number));
                    if asked.any(|test| !test.passes(variables.clone())) {
                        killed.fetch_add(1, Ordering::Relaxed);
                    } else {
                        survived.fetch_add(1, Ordering::Relaxed);
                        println!("survived: {}:{}: {}", site.file, site.line, site.name());
                    }
                    let (killed, survived) =
                        (killed.load(Ordering::Relaxed), survived.load(Ordering::Relaxed));
                    eprint!(
                        "\rmutants: {} of {} tried, {survived} survived ",
                        killed + survived,
                        numbers.len()
                    );
                }
            });
        }
    });
    eprintln!();
    Ok(Outcome { killed: killed.into_inner(), survived: survived.into_inner(), not_compiled })
}

/// The discipline that a file below weir-core's `src` belongs to alone.
fn discipline_of(file: &str) -> Option<&'static str> {
    let name = file.strip_prefix("sched/")?.split(['/', '.']).next()?.replace('_', "");
    Registry::builtin().find(&name).map(|entry| entry.name)
}

/// A copy of what git tracks: the work tree is never touched, and may go on meanwhile.
pub fn copy(root: &Path) -> Result<PathBuf, String> {
    let tree = root.join("target/mutants/tree");
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output();
    let listed = listed.map_err(|e| format!("git ls-files: {e}"))?;
    let _ = fs::remove_dir_all(&tree);
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
    Ok(tree)
}

/// The files of the copy that change, as they were.
fn originals(tree: &Path, chosen: &[Site]) -> Result<BTreeMap<String, String>, String> {
    let mut texts = BTreeMap::new();
    for file in chosen.iter().map(|site| site.file.as_str()).chain(["lib.rs"]) {
        let text = fs::read_to_string(tree.join(CORE).join(file)).map_err(|e| format!("{file}: {e}"))?;
        texts.insert(file.to_owned(), text);
    }
    Ok(texts)
}

/// Writes weir-core with every live mutant behind its switch.
fn write(tree: &Path, originals: &BTreeMap<String, String>, live: &[Option<Site>]) -> Result<(), String> {
    let to = tree.join(CORE);
    for (file, original) in originals {
        let mut text = original.clone();
        let all = live.iter().enumerate().filter_map(|(number, site)| Some((number, site.as_ref()?)));
        let mut sites: Vec<(usize, &Site)> = all.filter(|(_, site)| site.file == *file).collect();
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
fn build(root: &Path, tree: &Path) -> Result<Result<Vec<Binary>, Vec<usize>>, String> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["test", "--no-run", "--lib", "--tests", "--message-format=json", "--quiet"]);
    for package in PACKAGES {
        cargo.args(["-p", package]);
    }
    // Dead branches and doubled parentheses are what a mutant looks like.
    cargo
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        // Each test runs many times, so that optimising pays. The assertions stay.
        .env("CARGO_PROFILE_DEV_OPT_LEVEL", "3")
        .env("RUSTFLAGS", "-Awarnings")
        .env("CARGO_TARGET_DIR", root.join("target/mutants/build"));
    let output = cargo.current_dir(tree).stderr(Stdio::inherit()).output();
    let output = output.map_err(|e| format!("cargo: {e}"))?;
    let mut binaries = Vec::new();
    let mut wrong = Vec::new();
    for line in output.stdout.split(|&b| b == b'\n') {
        let Ok(message) = serde_json::from_slice::<Value>(line) else { continue };
        let is_test = message["profile"]["test"] == true && message["target"]["name"] != LEFT_OUT;
        if let (Some(path), true) = (message["executable"].as_str(), is_test) {
            let folder = Path::new(message["manifest_path"].as_str().unwrap_or_default()).parent();
            let folder = folder.map(Path::to_owned).unwrap_or_default();
            binaries.push(Binary { path: path.into(), folder });
        }
        if message["message"]["level"] == "error" {
            wrong.extend(culprits(tree, &message["message"]));
        }
    }
    if output.status.success() {
        return Ok(Ok(binaries));
    }
    match wrong.is_empty() {
        true => Err(no_mutant_to_blame(tree)),
        false => Ok(Err(wrong)),
    }
}

fn no_mutant_to_blame(tree: &Path) -> String {
    format!("the copy in {} does not compile, and no mutant is to blame", tree.display())
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

/// Every test with its time and the places that it comes to, the quick ones first. All must pass.
fn baseline<'b>(root: &Path, binaries: &'b [Binary], jobs: usize) -> Result<Vec<Test<'b>>, String> {
    let mut tests = Vec::new();
    for binary in binaries {
        let listed = Command::new(&binary.path).args(["--list", "--format", "terse"]).output();
        let listed = listed.map_err(|e| format!("{}: {e}", binary.path.display()))?;
        for name in String::from_utf8_lossy(&listed.stdout).lines().filter_map(|l| l.strip_suffix(": test")) {
            let takes = Duration::from_secs(100);
            tests.push(Test { binary, name: name.into(), takes, reaches: None });
        }
    }
    let next = Mutex::new(tests.iter_mut());
    std::thread::scope(|scope| {
        let next = &next;
        let worker = move |job: usize| -> Result<(), String> {
            let reached = root.join(format!("target/mutants/reached.{job}"));
            loop {
                // The lock ends with this statement.
                let test = next.lock().map_err(|_| "a worker panicked".to_owned())?.next();
                let Some(test) = test else { return Ok(()) };
                test.observe(&reached)?;
            }
        };
        let workers: Vec<_> = (0..jobs).map(|job| scope.spawn(move || worker(job))).collect();
        workers.into_iter().try_for_each(|w| w.join().unwrap_or_else(|_| Err("a worker panicked".into())))
    })?;
    tests.sort_by_key(|test| test.takes);
    let whole: Duration = tests.iter().map(|test| test.takes).sum();
    println!("mutants: {} tests take {} s of processor time", tests.len(), whole.as_secs());
    Ok(tests)
}

/// Processor time of a program that was started and not yet waited for, in steps of 10 ms. A test's time
/// by the clock says more about what else the machine does.
fn spent(process: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // `utime` and `stime`, the fields 14 and 15; the name of the program may have spaces.
    let ticks = stat.rsplit_once(')')?.1.split_whitespace().skip(11).take(2);
    let ticks: Option<u64> = ticks.map(|n| n.parse::<u64>().ok()).sum();
    ticks.map(|ticks| Duration::from_millis(10 * ticks))
}

impl Test<'_> {
    fn comes_to(&self, mutant: usize) -> bool {
        self.reaches.as_ref().is_none_or(|places| places.contains(&mutant))
    }

    /// Runs it without a mutant, and keeps what it takes and what it comes to.
    fn observe(&mut self, reached: &Path) -> Result<(), String> {
        let _ = fs::remove_file(reached);
        let (passed, takes) = self.run([(REACHED, &*reached.to_string_lossy())]);
        if passed {
            let numbers = fs::read_to_string(reached).unwrap_or_default();
            self.reaches = Some(numbers.lines().filter_map(|n| n.parse().ok()).collect());
            self.takes = takes;
            return Ok(());
        }
        // One that counts allocations passes only when nothing is recorded, and is always asked.
        let (passed, takes) = self.run([(SWITCH, "")]);
        if !passed {
            return Err(format!("{} {} fails without a mutant", self.binary.path.display(), self.name));
        }
        self.takes = takes;
        Ok(())
    }

    fn passes<'v>(&self, variables: impl IntoIterator<Item = (&'v str, &'v str)>) -> bool {
        self.run(variables).0
    }

    /// Runs it until its end or its limit: whether it passed, and its processor time as last seen. The
    /// limit is processor time, so that a busy machine kills nothing; the one of wall time is there
    /// because a deadlock uses none.
    fn run<'v>(&self, variables: impl IntoIterator<Item = (&'v str, &'v str)>) -> (bool, Duration) {
        let seconds = 2 + 3 * self.takes.as_secs_f64().ceil() as u64;
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -c 0 -t {seconds}; exec \"$0\" \"$@\"")]).arg(&self.binary.path);
        command.args(["--exact", &self.name, "--test-threads", "1"]).current_dir(&self.binary.folder);
        command.env("RUST_BACKTRACE", "0").envs(variables);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let Ok(mut child) = command.spawn() else { return (false, Duration::ZERO) };
        let limit = Instant::now() + Duration::from_secs(60 * seconds);
        let mut pause = Duration::from_millis(1);
        let mut takes = Duration::ZERO;
        loop {
            takes = spent(child.id()).unwrap_or(takes);
            match child.try_wait() {
                Ok(Some(status)) => return (status.success(), takes),
                Ok(None) if Instant::now() < limit => std::thread::sleep(pause),
                _ => {
                    let _ = child.kill();
                    let _ = child.wait();
                    return (false, takes);
                }
            }
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_in_a_discipline_is_looked_for_there() {
        for (file, name) in [
            ("sched/hfsc/share.rs", Some("hfsc")),
            ("sched/fq_codel.rs", Some("fqcodel")),
            ("sched/flows.rs", None),
            ("sched/mod.rs", None),
            ("aqm/red.rs", None),
        ] {
            assert_eq!(discipline_of(file), name, "{file}");
        }
    }

    #[test]
    fn the_time_of_a_program_is_what_it_spent() {
        let sum = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; read end";
        let busy = Command::new("sh").args(["-c", sum]).stdin(Stdio::piped()).spawn();
        let asleep = Command::new("sleep").arg("60").spawn();
        let (mut busy, mut asleep) = (busy.expect("sh"), asleep.expect("sleep"));
        let spends = |process, least| spent(process).expect("/proc") >= least;
        // It ends only when its time has been read, however slow the machine is.
        while !spends(busy.id(), Duration::from_millis(20)) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!spends(asleep.id(), Duration::from_millis(50)), "sleeping takes no processor time");
        for program in [&mut busy, &mut asleep] {
            program.kill().and_then(|()| program.wait()).expect("it runs");
        }
    }
}
