//! `weir bench`: nanoseconds per enqueue and dequeue of every discipline, instructions and allocations.
//!
//! A packet has 64 bytes. The queue holds 64 packets, or one per flow or leaf where there are
//! more, and stays that long: each pair dequeues a packet and offers it again. Now advances by
//! the time of a packet at 100 Mbit/s per pair. Classifier, packet table and clock are outside.
//! Total is the median of the runs' pairs; how it divides into enqueue and dequeue is measured
//! in bursts of 32 of each, since a clock read costs more than a call. The other cases are
//! `weir_bench::Case`. Instructions are counted by this program itself, run again under valgrind.

mod measure;

use crate::commands::tables::{Rows, say, table as rows};
use serde::Serialize;
use weir_bench::callgrind::{self, Uncounted};
use weir_bench::{CASES, LARGE, Row, YARDSTICKS, scene};
use weir_core::sched::Registry;

/// What was measured.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Bench {
    /// One of `NAMES`.
    pub name: String,
    /// Nanoseconds per enqueue; `None` for what has no queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enqueue_ns: Option<f64>,
    /// Nanoseconds per dequeue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dequeue_ns: Option<f64>,
    /// Nanoseconds per packet.
    pub total_ns: f64,
    /// Fastest and slowest run, without the fastest and the slowest tenth of them.
    pub range_ns: (f64, f64),
    /// Allocations per packet; `None` in a program whose allocator does not count.
    pub allocations_per_packet: Option<f64>,
    /// What its packets do: a word of `weir_bench::Case`.
    pub case: &'static str,
    /// Instructions per packet, the loop included; `None` where they are not counted.
    pub instructions: Option<f64>,
}

/// A benchmark that cannot run, and why.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Skipped {
    /// Its name.
    pub name: String,
    /// Why.
    pub reason: String,
}

#[derive(Serialize)]
struct Output<'a> {
    benches: &'a [Bench],
    skipped: &'a [Skipped],
}

/// Every benchmark, in the order of the table.
pub const NAMES: &[&str] = &[
    "fifo",
    "priq-4",
    "red",
    "rio",
    "blue",
    "wfq-8",
    "wfq-64",
    "cbq-3",
    "cbq-20",
    "hfsc-4",
    "hfsc-64",
    "hfsc-ls-4",
    "hfsc-ls-64",
    "jobs-set1",
    "jobs-set2",
    "jobs-set3",
    "jobs-set4",
    "jobs-q2",
    "jobs-q4",
    "jobs-q6",
    "jobs-q8",
    "drr-64",
    "drr-4096",
    "qfq-64",
    "qfq-4096",
    "codel",
    "fq_codel-1024",
    "pie",
    "tree-4096x4",
    "meter-trtcm",
    "classify-100",
    "classify-1000",
    "classify-10000",
    "cbq-3-red",
    "jobs-set1-unsampled",
    "jobs-set2-unsampled",
];

/// How long and how often to measure.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Runs, of which the median counts; at least 10.
    pub runs: usize,
    /// Most pairs or packets of a run.
    pub packets: u32,
}

impl Effort {
    /// Runs so short that on a busy machine most of them, and hence their median, are not
    /// interrupted.
    pub const FULL: Effort = Effort { runs: 301, packets: 20_000 };
    /// To see that it works.
    #[cfg(test)]
    pub const SHORT: Effort = Effort { runs: 2, packets: 2_000 };

    const RUN_NS: f64 = 250_000.0;

    /// Packets of a run of some `RUN_NS`, by the best of a few tries of `time_ns`, which answers
    /// nanoseconds a packet.
    fn packets_a_run<E>(self, mut time_ns: impl FnMut(u32) -> Result<f64, E>) -> Result<u32, E> {
        const TRIES: u32 = 10;
        let mut best = f64::MAX;
        for _ in 0..TRIES {
            best = best.min(time_ns(500)?);
        }
        Ok(((Self::RUN_NS / best.max(1.0)) as u32).clamp(500, self.packets.max(500)))
    }
}

/// Measures one benchmark: `NAME`, or `NAME/CASE`.
///
/// # Errors
/// Why it cannot run: an unknown name, or a discipline that is not built.
pub fn measure(registry: &Registry, name: &str, effort: Effort) -> Result<Bench, Skipped> {
    let skipped = |reason: String| Skipped { name: name.to_owned(), reason };
    if !is_known(registry, name) {
        return Err(skipped(format!("no such benchmark; there are {}", names(registry).join(" "))));
    }
    let row = name.parse::<Row>().map_err(skipped)?;
    measure::run(registry, &row, effort).map_err(skipped)
}

/// True for a row of the table, and for the size of an own discipline.
fn is_known(registry: &Registry, name: &str) -> bool {
    [NAMES, CASES, LARGE, YARDSTICKS].iter().any(|names| names.contains(&name))
        || scene::own(registry, name).is_some()
}

/// What runs where nothing is named: `NAMES`, the rows of other cases, the yardsticks, and the disciplines and AQMs that Weir does not bring.
fn names(registry: &Registry) -> Vec<&str> {
    let builtin = Registry::builtin();
    let own = registry.iter().map(|entry| entry.name).filter(|name| builtin.find(name).is_none());
    NAMES.iter().chain(CASES).chain(YARDSTICKS).copied().chain(own).collect()
}

/// Counts the instructions of a row by this very program, run again; `None`, once with the reason, where it cannot.
fn instructions(name: &str, said: &mut bool) -> Option<f64> {
    let program = std::env::current_exe().ok()?;
    match callgrind::count(&program, &["bench"], &[name.parse().ok()?]) {
        Ok(counted) => counted.first().copied(),
        Err(Uncounted::Missing(why) | Uncounted::Failed(why)) => {
            if !*said {
                say(&format!("bench: {why}"));
            }
            *said = true;
            None
        }
    }
}

/// Measures all `names`, or everything if there is none, and prints a table or JSON.
///
/// # Errors
/// The exit code: 2 for an unknown name, 3 if nothing that was asked for can run here.
pub fn run(registry: &Registry, wanted: &[String], json: bool) -> Result<(), u8> {
    if let Ok(rows) = std::env::var(callgrind::ROWS) {
        return callgrind::run_rows(registry, &rows).map_err(|why| {
            say(&format!("bench: {why}"));
            1
        });
    }
    let all: Vec<String> = names(registry).iter().map(ToString::to_string).collect();
    let wanted = if wanted.is_empty() { &all } else { wanted };
    if let Some(unknown) = wanted.iter().find(|name| !is_known(registry, name)) {
        let names: Vec<&str> = all.iter().map(String::as_str).collect();
        say(&format!("no benchmark `{unknown}`; {}", weir_text::suggest_or_list(unknown, &names)));
        return Err(2);
    }
    let (mut benches, mut skipped) = (Vec::new(), Vec::new());
    let mut said = false;
    for name in wanted {
        eprintln!("{name} ...");
        match measure(registry, name, Effort::FULL) {
            Ok(bench) => benches.push(Bench { instructions: instructions(name, &mut said), ..bench }),
            Err(why) => skipped.push(why),
        }
    }
    if json {
        match serde_json::to_string_pretty(&Output { benches: &benches, skipped: &skipped }) {
            Ok(text) => out!("{text}"),
            Err(error) => {
                eprintln!("weir bench: cannot write JSON: {error}");
                return Err(1);
            }
        }
    } else {
        out!("{}", table(&benches));
        for Skipped { name, reason } in &skipped {
            out!("{name} skipped: {reason}");
        }
    }
    // Not possible here: nothing of what was asked for could run.
    if benches.is_empty() { Err(3) } else { Ok(()) }
}

fn table(benches: &[Bench]) -> Rows {
    let mut table = rows(&[
        "BENCHMARK",
        "CASE",
        ">ENQUEUE",
        ">DEQUEUE",
        ">TOTAL",
        ">FROM - TO",
        ">INSTRUCTIONS",
        ">ALLOCATIONS|PER PACKET",
    ]);
    let number = |ns: Option<f64>| ns.map_or("-".into(), |ns| format!("{ns:.1} ns"));
    for b in benches {
        let (least, most) = b.range_ns;
        let allocations = b.allocations_per_packet.map_or("not counted".into(), |n| format!("{n}"));
        table.add(vec![
            b.name.clone(),
            b.case.into(),
            number(b.enqueue_ns),
            number(b.dequeue_ns),
            number(Some(b.total_ns)),
            format!("{least:.1} - {most:.1} ns"),
            b.instructions.map_or("-".into(), |n| format!("{n:.1}")),
            allocations,
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_runs_or_says_why_not() {
        let registry = Registry::builtin();
        for name in NAMES.iter().chain(CASES).chain(YARDSTICKS) {
            match measure(&registry, name, Effort::SHORT) {
                Ok(bench) => {
                    assert!(bench.total_ns > 0.0, "{bench:?}");
                    if let (Some(enqueue), Some(dequeue)) = (bench.enqueue_ns, bench.dequeue_ns) {
                        assert!((enqueue + dequeue - bench.total_ns).abs() < 0.01, "{bench:?}");
                    }
                }
                Err(skipped) => assert!(skipped.reason.len() > 10, "{skipped:?}"),
            }
        }
        assert!(measure(&registry, "fifo", Effort::SHORT).is_ok());
        assert!(measure(&registry, "nonsense", Effort::SHORT).is_err());
    }

    #[test]
    fn json_is_as_documented() {
        let bench = Bench {
            name: "cbq-20".into(),
            enqueue_ns: Some(12.1),
            dequeue_ns: Some(40.2),
            total_ns: 52.3,
            range_ns: (50.0, 60.0),
            allocations_per_packet: Some(0.0),
            case: "hot",
            instructions: Some(134.5),
        };
        let text =
            serde_json::to_string(&Output { benches: &[bench], skipped: &[] }).expect("it has no map keys");
        let start = r#"{"benches":[{"name":"cbq-20","enqueue_ns":12.1,"dequeue_ns":40.2,"total_ns":52.3,"#;
        assert!(text.starts_with(start), "{text}");
        assert!(text.contains(r#""allocations_per_packet":0"#), "{text}");
        assert!(text.contains(r#""case":"hot","instructions":134.5"#), "{text}");
    }
}
