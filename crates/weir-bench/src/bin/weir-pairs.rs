//! Runs the rows that `WEIR_BENCH_ROWS` names: what the test of the instructions starts under valgrind.

use std::process::ExitCode;
use weir_bench::callgrind::{ROWS, run_rows};
use weir_core::sched::Registry;

fn main() -> ExitCode {
    let rows = std::env::var(ROWS).unwrap_or_default();
    match run_rows(&Registry::builtin(), &rows) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("weir-pairs: {why}");
            ExitCode::FAILURE
        }
    }
}
