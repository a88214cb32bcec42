//! The file of an experiment.

use super::PARTS;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use weir_report::Expect;
use weir_report::disk::read_text;
use weir_scenario::read::{self, Problem};
use weir_text::Diagnostics;

/// An experiment's file is at most this long.
const MAX_BYTES: usize = 1 << 20;
/// Runs of one scenario, at most: their reports are in memory together.
const MAX_RUNS: u64 = 1_000;

/// `experiments/ID.toml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// What it shows, in a line.
    pub title: String,
    /// Paper and figure.
    pub source: String,
    /// What the paper reports, how we read it, and where we doubt it.
    pub about: String,
    /// Seeds that the mean is taken over, from the scenario's own upwards. Default 5.
    #[serde(default = "five")]
    pub seeds: u64,
    /// Live runs that the median is taken over. Default 3.
    #[serde(default = "three")]
    pub live_runs: u64,
    /// The scenarios.
    #[serde(default)]
    pub run: Vec<Run>,
    /// Benchmarks that are run, by their names.
    #[serde(default)]
    pub bench: Vec<String>,
    /// What must hold between measured values.
    #[serde(default)]
    pub compare: Vec<Compare>,
    /// Measured values that must lie on a line.
    #[serde(default)]
    pub line: Vec<Line>,
}

/// A straight line through benchmarks: the share of their variance that it explains (R squared).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// The statement in words.
    pub what: String,
    /// What the values belong to: numbers of classes, say.
    pub at: Vec<f64>,
    /// The benchmarks, one for each.
    pub of: Vec<String>,
    /// R squared must be at least this.
    pub at_least: f64,
}

/// One scenario of an experiment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Its name in the output; may be empty if there is one.
    #[serde(default)]
    pub name: String,
    /// The scenario for the simulator, below `experiments/`.
    pub scenario: Option<PathBuf>,
    /// The scenario for the lab.
    pub live: Option<PathBuf>,
    /// The scenario with these texts replaced by others, one after the other in their order, so that a
    /// sweep shares one file.
    #[serde(default)]
    pub replace: BTreeMap<String, String>,
    /// Report what is measured without judging it.
    #[serde(default)]
    pub reported: bool,
    /// A check that fails makes the verdict doubtful instead of failed.
    #[serde(default)]
    pub doubtful: bool,
    /// The run shows that a bound bites: it passes if at least one of its expectations fails, and every
    /// one named in `fails`.
    #[serde(default)]
    pub must_fail: bool,
    /// With `must_fail`: the checks that must fail, by their text. Default: any one.
    #[serde(default)]
    pub fails: Vec<String>,
    /// What must come out besides what the scenario itself expects, so that figures can share one.
    #[serde(default)]
    pub expect: Vec<Expect>,
}

/// A statement about two measured values: left <= max(right * times, or_at_most), or with
/// `at_least` the reverse.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compare {
    /// The statement in words.
    pub what: String,
    /// The value that is judged.
    pub left: Value,
    /// The value that it is held against.
    pub right: Value,
    /// Factor of the right value. Default 1.
    #[serde(default = "one")]
    pub times: f64,
    /// With at most: the left value may reach this whatever the right one is.
    pub or_at_most: Option<f64>,
    /// Left >= right * times instead.
    #[serde(default)]
    pub at_least: bool,
    /// A failure makes the verdict doubtful.
    #[serde(default)]
    pub doubtful: bool,
}

/// A measured value: the check `what` of the run `run`; or a benchmark by its name.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Value {
    /// Name of the run; empty for a benchmark or a nameless run.
    #[serde(default)]
    pub run: String,
    /// The check's text, or the benchmark's name.
    pub what: String,
    /// Subtracted from the measured value: an excess over an entitlement.
    #[serde(default)]
    pub above: f64,
}

fn five() -> u64 {
    5
}
fn three() -> u64 {
    3
}
fn one() -> f64 {
    1.0
}

impl Manifest {
    /// Reads the file.
    ///
    /// # Errors
    /// Where and what is wrong, and how to mend it.
    pub fn read(path: &Path) -> Result<Manifest, String> {
        let text = read_text(path, MAX_BYTES).map_err(|e| format!("{}: {e}", path.display()))?;
        Manifest::parse(&path.display().to_string(), &text).map_err(|all| all.to_string())
    }

    /// Reads the text of a file; `file` is what errors call it.
    ///
    /// # Errors
    /// Where and what is wrong, and how to mend it.
    pub fn parse(file: &str, text: &str) -> Result<Manifest, Diagnostics> {
        let read: Result<Manifest, _> = toml::from_str(text);
        let manifest = read.map_err(|error| Diagnostics(vec![read::located(file, text, &error)]))?;
        let problems = manifest.problems();
        if problems.is_empty() { Ok(manifest) } else { Err(read::placed(file, text, problems)) }
    }

    /// What contradicts itself, though each key by itself is good.
    fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut add = |(table, index), key, message: String, help: &str| {
            problems.push(Problem { table, index, key, message, help: help.into() });
        };
        for (key, runs) in [("seeds", self.seeds), ("live_runs", self.live_runs)] {
            if !(1..=MAX_RUNS).contains(&runs) {
                add(
                    ("", 0),
                    key,
                    format!("`{key}` is {runs}"),
                    &format!("write a value from 1 to {MAX_RUNS}"),
                );
            }
        }
        for (index, run) in self.run.iter().enumerate() {
            let (name, at) = (&run.name, ("run", index));
            if self.run[..index].iter().any(|other| other.name == *name) {
                let which = match name.is_empty() {
                    true => "have no name".into(),
                    false => format!("are called `{name}`"),
                };
                let message = format!("two runs {which}, so that nobody can tell their results apart");
                add(at, "name", message, &format!("add name = \"run {}\", or another of its own", index + 1));
            }
            for (other, said) in [("reported", run.reported), ("doubtful", run.doubtful)] {
                if run.must_fail && said {
                    let message = format!("run `{name}` says `{other}` beside `must_fail`");
                    add(at, other, message, &format!("leave `{other}` out, or `must_fail`"));
                }
            }
            if !run.fails.is_empty() && !run.must_fail {
                let message = format!("run `{name}` says `fails` without `must_fail`");
                add(at, "fails", message, "add must_fail = true, or leave `fails` out");
            }
        }
        for (index, compare) in self.compare.iter().enumerate() {
            let (what, at) = (&compare.what, ("compare", index));
            let sides = [("left", &compare.left), ("right", &compare.right)];
            let unknown: Vec<_> = sides.into_iter().filter(|(_, value)| !self.has(value)).collect();
            for (side, value) in &unknown {
                let message = match value.run.is_empty() {
                    true => {
                        format!("`{what}` names no run, and `{}` is no benchmark of this file", value.what)
                    }
                    false => format!("`{what}` names the run `{}`, which is not there", value.run),
                };
                add(at, side, message, &self.help_to_name(value));
            }
            if unknown.is_empty() && ![false, true].into_iter().any(|live| compare.stands(self, live)) {
                let message = format!("`{what}` compares a run in the simulator with one in the lab");
                add(at, "", message, "give one of the two runs the other form: `scenario` or `live`");
            }
        }
        problems
    }

    /// The run that a value belongs to.
    fn run_of(&self, value: &Value) -> Option<&Run> {
        self.run.iter().find(|run| run.name == value.run)
    }

    /// Whether a value is one of its benchmarks': these have names of their parts, too.
    fn is_benchmark(&self, value: &Value) -> bool {
        let of = |name: &String| value.what.strip_prefix(name).is_some_and(|part| PARTS.contains(&part));
        value.run.is_empty() && self.bench.iter().any(of)
    }

    /// Whether something in it can measure a value.
    fn has(&self, value: &Value) -> bool {
        self.run_of(value).is_some() || self.is_benchmark(value)
    }

    /// How to name what measures a value.
    fn help_to_name(&self, value: &Value) -> String {
        let names = || self.run.iter().map(|run| run.name.as_str()).filter(|name| !name.is_empty());
        if let Some(near) = weir_text::nearest(&value.run, names()).filter(|_| !value.run.is_empty()) {
            return format!("write run = \"{near}\"");
        }
        let all: Vec<_> = names().chain(self.bench.iter().map(String::as_str)).collect();
        match all.is_empty() {
            true => "give a run a name, and write it".into(),
            false => format!("there are {}", all.join(", ")),
        }
    }
}

impl Compare {
    /// Whether runs of that kind measure both values: in the lab (`live`), or in the simulator and by
    /// benchmarks.
    pub fn stands(&self, manifest: &Manifest, live: bool) -> bool {
        [&self.left, &self.right].into_iter().all(|value| match manifest.run_of(value) {
            Some(run) => (if live { &run.live } else { &run.scenario }).is_some(),
            None => !live && manifest.is_benchmark(value),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_text::Diagnostic;

    /// A comparison names what is there, and is made where both of its values are measured.
    #[test]
    fn comparisons_name_runs_that_are_there() {
        let runs = "bench = [\"red\"]\n[[run]]\nname = \"with\"\nscenario = \"a\"\nlive = \"a\"\n\
                    [[run]]\nname = \"without\"\nscenario = \"b\"\n[[run]]\nname = \"wire\"\nlive = \"c\"\n";
        let of = |left: &str, right: &str| {
            let side = |of: &str| match of.split_once(':') {
                Some((run, what)) => format!("{{ run = \"{run}\", what = \"{what}\" }}"),
                None => format!("{{ what = \"{of}\" }}"),
            };
            let text =
                format!("[[compare]]\nwhat = \"less\"\nleft = {}\nright = {}\n", side(left), side(right));
            format!("{HEAD}{runs}{text}")
        };
        for (left, right, kinds) in [
            ("with:x", "without:x", [true, false]),
            ("with:x", "wire:y", [false, true]),
            ("with:x", "with:y", [true, true]),
            ("red", "red enqueue", [true, false]),
            ("red dequeue", "without:x", [true, false]),
        ] {
            let manifest = Manifest::parse("x.toml", &of(left, right)).unwrap();
            let stands = [false, true].map(|live| manifest.compare[0].stands(&manifest, live));
            assert_eq!(stands, kinds, "{left} {right}");
        }
        for (left, right, line, message, help) in [
            ("witj:x", "with:x", 17, "names the run `witj`, which is not there", "write run = \"with\""),
            ("with:x", "other:x", 18, "names the run `other`", "there are with, without, wire, red"),
            ("with:x", "reds", 18, "names no run, and `reds` is no benchmark", "there are with"),
            ("wire:x", "without:x", 15, "a run in the simulator with one in the lab", "`scenario` or `live`"),
            ("wire:x", "red", 15, "a run in the simulator with one in the lab", "`scenario` or `live`"),
        ] {
            let all = said(&of(left, right));
            assert_eq!(all.len(), 1, "{all:?}");
            let d = &all[0];
            assert!(d.line == line && d.message.contains(message) && d.help.contains(help), "{d:?}");
        }
        // A nameless run is named by leaving the name out.
        let nameless = "[[run]]\nscenario = \"a\"\n[[compare]]\nwhat = \"w\"\n\
                        left = { what = \"x\" }\nright = { what = \"y\" }\n";
        assert!(said(&format!("{HEAD}{nameless}")).is_empty());
    }

    const HEAD: &str = "title = \"t\"\nsource = \"s\"\nabout = \"a\"\n";

    /// What is said of the manifest with these lines; nothing if it is one.
    fn said(text: &str) -> Vec<Diagnostic> {
        Manifest::parse("x.toml", text).err().map_or(Vec::new(), |all| all.0)
    }

    /// The manifest as the help tells to write it, in every way that it tells.
    fn mended(text: &str, d: &Diagnostic) -> Vec<String> {
        let lines: Vec<&str> = text.lines().collect();
        let (at, line) = (d.line as usize - 1, lines[d.line as usize - 1]);
        // Keys stand under the header of their table, or at the top.
        let header = lines[..=at].iter().rposition(|l| l.starts_with("[[")).map_or(0, |n| n + 1);
        let header = if d.help.contains("at the top") { 0 } else { header };
        let with = |change: &dyn Fn(&mut Vec<String>)| {
            let mut lines: Vec<String> = lines.iter().map(|l| l.to_string()).collect();
            change(&mut lines);
            lines.join("\n") + "\n"
        };
        let starts = |line: &String, key: &str| line.starts_with(&format!("{key} = "));
        let mut all = Vec::new();
        if let Some((_, rest)) = d.help.split_once("add ") {
            let (key, value) = rest.split_once(" = ").expect("a key and its value");
            let value = value.split([',']).next().expect("a value").trim_end_matches(" at the top");
            all.push(with(&|lines| {
                let old = lines[header..].iter().position(|l| starts(l, key));
                old.map(|n| lines.remove(header + n));
                lines.insert(header, format!("{key} = {value}"));
            }));
        }
        if let Some((_, rest)) = d.help.split_once("leave `") {
            for key in
                rest.split('`').step_by(2).filter(|word| word.contains('_') || !word.contains([' ', ',']))
            {
                all.push(with(&|lines| {
                    let old = lines[header..].iter().position(|l| starts(l, key));
                    lines.remove(header + old.expect("the key that is told to be left out"));
                }));
            }
        }
        let mut values: Vec<String> = Vec::new();
        if let Some((least, most)) = d.help.split_once("from ").and_then(|(_, rest)| rest.split_once(" to "))
        {
            values.extend([least.into(), most.into()]);
        }
        if let Some((_, word)) = d.help.split_once("did you mean `") {
            values.push(word.trim_end_matches("`?").into());
        }
        if let Some((_, known)) = d.help.split_once("known keys: ") {
            values.extend(known.split(", ").filter(|key| *key == "doubtful").map(String::from));
        }
        if d.help == "write true or false" {
            values.extend(["true".into(), "false".into()]);
        }
        if d.help == "write it between quotes" {
            let (from, to) = (d.column as usize - 1, (d.column + d.length) as usize - 1);
            values.push(format!("\"{}\"", &line[from..to]));
        }
        for value in values {
            let (from, to) = (d.column as usize - 1, (d.column + d.length) as usize - 1);
            all.push(with(&|lines| lines[at] = format!("{}{value}{}", &line[..from], &line[to..])));
        }
        all
    }

    /// Each mistake is said with its line and a mend, and every mend that is told is taken.
    #[test]
    fn every_mend_is_accepted() {
        for (lines, line, message) in [
            ("seeds = 0\n", 4, "`seeds` is 0"),
            ("live_runs = 1001\n", 4, "`live_runs` is 1001"),
            ("[[run]]\nscenario = \"a\"\n[[run]]\nscenario = \"b\"\n", 6, "two runs have no name"),
            ("[[run]]\nname = \"a\"\n[[run]]\nname = \"a\"\n", 7, "two runs are called `a`"),
            ("[[run]]\nmust_fail = true\nreported = true\n", 6, "`reported` beside `must_fail`"),
            ("[[run]]\nmust_fail = true\ndoubtful = true\n", 6, "`doubtful` beside `must_fail`"),
            ("[[run]]\nfails = [\"a\"]\n", 5, "`fails` without `must_fail`"),
            ("sedes = 3\n", 4, "unknown key `sedes`"),
            ("[[run]]\nxyzzyx = true\n", 5, "unknown key `xyzzyx`"),
            ("[[run]]\nreported = 1\n", 5, "integer `1` does not fit here"),
            ("[[run]]\nname = 1\n", 5, "integer `1` does not fit here"),
        ] {
            let text = format!("{HEAD}{lines}");
            let all = said(&text);
            assert_eq!(all.len(), 1, "{all:?}");
            let d = &all[0];
            assert!(d.line == line && d.message.contains(message), "{lines}: line {}: {}", d.line, d.message);
            let ways = mended(&text, d);
            assert!(!ways.is_empty(), "{}: no mend in `{}`", d.message, d.help);
            for way in ways {
                let left = said(&way);
                assert!(left.is_empty(), "`{}` is not accepted:\n{way}\n{left:?}", d.help);
            }
        }
        for key in ["title", "source", "about"] {
            let without: Vec<&str> = HEAD.lines().filter(|line| !line.starts_with(key)).collect();
            let text = without.join("\n") + "\n";
            let d = &said(&text)[0];
            assert_eq!(d.message, format!("the key `{key}` is missing"));
            assert!(said(&mended(&text, d)[0]).is_empty(), "{}", d.help);
        }
    }

    /// Reversed: the test refuses a mend that leaves the mistake, or makes another.
    #[test]
    fn a_wrong_mend_is_not_accepted() {
        let text = format!("{HEAD}seeds = 0\n");
        for help in ["write a value from 0 to 1001", "add seeds = 5", "did you mean `x`?"] {
            let mut d = said(&text)[0].clone();
            d.help = help.into();
            let refused = mended(&text, &d).iter().any(|way| !said(way).is_empty());
            assert_eq!(refused, help != "add seeds = 5", "{help}");
        }
    }
}
