//! The command `weir`, with what Weir brings itself.

use std::process::ExitCode;
use weir_core::sched::Registry;

/// Counts what `weir bench` reports, by a number of the thread's own.
#[global_allocator]
static ALLOCATOR: weir::Counting = weir::Counting;

fn main() -> ExitCode {
    weir::main_with(Registry::builtin())
}
