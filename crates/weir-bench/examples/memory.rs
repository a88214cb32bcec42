//! What a row takes: the memory of its scene, and the nanoseconds of a packet. One row per process, because what one
//! row has given back another would take.
//!
//! `cargo run --release -p weir-bench --example memory -- subscribers-10000/random`

use std::process::ExitCode;
use std::time::Instant;
use weir_bench::{Row, bed, run_pairs};
use weir_core::sched::Registry;

const RUNS: usize = 61;
const PAIRS: u32 = 20_000;

/// Bytes that this process has in memory; 0 where the system does not say.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm
        .split_whitespace()
        .nth(1)
        .and_then(|pages| pages.parse::<u64>().ok())
        .map_or(0, |pages| pages * 4_096)
}

fn measure(name: &str) -> Result<(), String> {
    let row: Row = name.parse()?;
    let (before, start) = (resident(), Instant::now());
    let mut bed = bed(&Registry::builtin(), &row)?;
    let (built, megabytes) = (start.elapsed(), (resident().saturating_sub(before)) as f64 / 1e6);
    for _ in 0..20 {
        run_pairs(&mut *bed, PAIRS)?;
    }
    let mut runs = Vec::with_capacity(RUNS);
    for _ in 0..RUNS {
        let start = Instant::now();
        run_pairs(&mut *bed, PAIRS)?;
        runs.push(start.elapsed().as_nanos() as f64 / f64::from(PAIRS));
    }
    runs.sort_by(f64::total_cmp);
    let (least, median, most) = (runs[RUNS / 10], runs[RUNS / 2], runs[RUNS - 1 - RUNS / 10]);
    println!("{row}: {median:.1} ns ({least:.1} to {most:.1}), {megabytes:.1} MB, built in {built:.2?}");
    Ok(())
}

fn main() -> ExitCode {
    let rows: Vec<String> = std::env::args().skip(1).collect();
    let [row] = &rows[..] else {
        eprintln!("memory: name one row, as in `tree-4096x4/random`");
        return ExitCode::from(2);
    };
    match measure(row) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("memory: {row}: {why}");
            ExitCode::FAILURE
        }
    }
}
