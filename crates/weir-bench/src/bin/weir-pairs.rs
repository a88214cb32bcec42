//! Runs the rows that `WEIR_BENCH_ROWS` names, or changes one of `WEIR_BENCH_CLASSES` classes: what the test of the instructions starts under valgrind.

use std::process::ExitCode;
use weir_bench::callgrind::{CLASSES, ROWS, run_changes, run_rows};
use weir_core::sched::Registry;

fn main() -> ExitCode {
    let registry = Registry::builtin();
    let done = match std::env::var(CLASSES) {
        Ok(which) => run_changes(&registry, &which),
        Err(_) => run_rows(&registry, &std::env::var(ROWS).unwrap_or_default()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("weir-pairs: {why}");
            ExitCode::FAILURE
        }
    }
}
