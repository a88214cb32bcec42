//! What keeps weir-core and weir-edge libraries that run anywhere and replay bit for bit.

use super::allowed::{self, is_allowed};
use super::code::{code_only, lines_with, rust, without_tests};
use super::{File, Violation};

/// Crates without I/O, clock, floats and unsafe code.
const PURE: [&str; 2] = [CORE, "crates/weir-edge/"];
const CORE: &str = "crates/weir-core/";

pub fn core_is_no_std_and_safe(files: &[File]) -> Vec<Violation> {
    let is_lib = |f: &&File| PURE.iter().any(|pure| f.path.strip_prefix(pure) == Some("src/lib.rs"));
    let mut found = Vec::new();
    for file in files.iter().filter(is_lib) {
        for attribute in ["#![no_std]", "#![forbid(unsafe_code)]"] {
            if !file.text.lines().any(|line| line.trim() == attribute) {
                found.push(Violation::new(file, 1, format!("must say `{attribute}`")));
            }
        }
    }
    found
}

pub fn core_has_no_floats(files: &[File]) -> Vec<Violation> {
    let mut found = Vec::new();
    for file in rust(files, false).filter(|f| PURE.iter().any(|pure| f.path.starts_with(pure))) {
        let code = code_only(without_tests(&file.text));
        for float in ["f32", "f64"] {
            for line in lines_with(&code, float) {
                found.push(Violation::new(file, line, format!("`{float}`: this crate computes in integers")));
            }
        }
    }
    found
}

/// Time is handed in there; a clock of the machine would make two runs differ.
pub fn no_clock_where_time_is_told(files: &[File]) -> Vec<Violation> {
    const TOLD: [&str; 13] = [
        CORE,
        "crates/weir-edge/",
        "crates/weir-text/",
        "crates/weir-conf/",
        "crates/weir-report/",
        "crates/weir-scenario/",
        "crates/weir-sim/",
        "crates/weir-broker/src/audit.rs",
        "crates/weir-broker/src/book/",
        "crates/weir-broker/src/holder.rs",
        "crates/weir-broker/src/journal.rs",
        "crates/weir-broker/src/sim/",
        "crates/weir-broker/src/store/",
    ];
    let mut found = Vec::new();
    let told =
        |f: &&File| TOLD.iter().any(|c| f.path.starts_with(c)) && !is_allowed(allowed::CLOCKS, &f.path);
    for file in rust(files, false).filter(told) {
        let code = code_only(without_tests(&file.text));
        for clock in ["Instant::now", "SystemTime", "std::time"] {
            for line in lines_with(&code, clock) {
                found.push(Violation::new(file, line, format!("`{clock}`: time is told here, never read")));
            }
        }
    }
    found
}

/// The clock that people and programs set may step: no rate, timer or limit may see it.
pub fn no_clock_that_is_set(files: &[File]) -> Vec<Violation> {
    let mut found = Vec::new();
    for file in rust(files, false)
        .filter(|f| f.path.starts_with("crates/") && !is_allowed(allowed::CLOCKS_THAT_ARE_SET, &f.path))
    {
        let code = code_only(without_tests(&file.text));
        for clock in ["SystemTime", "CLOCK_REALTIME"] {
            for line in lines_with(&code, clock) {
                let what = format!("`{clock}`: this clock may step; take `weir_sys::now` or `Instant`");
                found.push(Violation::new(file, line, what));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::holds_for;

    #[test]
    fn the_core_says_what_it_is() {
        holds_for(
            core_is_no_std_and_safe,
            &[("crates/weir-core/src/lib.rs", "//! x\n#![no_std]\n#![forbid(unsafe_code)]\n")],
            &[
                ("crates/weir-core/src/lib.rs", "#![no_std]\n"),
                ("crates/weir-core/src/lib.rs", "// #![no_std]"),
                ("crates/weir-edge/src/lib.rs", "#![no_std]\n"),
            ],
        );
    }

    #[test]
    fn the_core_has_integers_only() {
        holds_for(
            core_has_no_floats,
            &[
                (
                    "crates/weir-core/src/a.rs",
                    "// an f64\nlet x = 1;\n#[cfg(test)]\nmod tests {\n let x: f64; }",
                ),
                ("crates/weir-sim/src/a.rs", "let x: f64;"),
            ],
            &[
                ("crates/weir-core/src/a.rs", "let x: f64;"),
                ("crates/weir-core/src/a.rs", "x as f32"),
                ("crates/weir-edge/src/a.rs", "x as f32"),
            ],
        );
    }

    #[test]
    fn time_is_told() {
        holds_for(
            no_clock_where_time_is_told,
            &[
                ("crates/weir-engine/src/a.rs", "Instant::now()"),
                ("crates/weir-sim/src/a.rs", "Instant::ZERO"),
            ],
            &[
                ("crates/weir-sim/src/a.rs", "Instant::now()"),
                ("crates/weir-core/src/a.rs", "use std::time::X;"),
                ("crates/weir-edge/src/a.rs", "Instant::now()"),
            ],
        );
    }
    #[test]
    fn only_clocks_that_run_evenly_are_read() {
        holds_for(
            no_clock_that_is_set,
            &[
                ("crates/weir-engine/src/a.rs", "Instant::now(); clock(libc::CLOCK_MONOTONIC)"),
                ("crates/weir-sys/src/capture.rs", "clock(libc::CLOCK_REALTIME)"),
            ],
            &[
                ("crates/weir-engine/src/a.rs", "std::time::SystemTime::now()"),
                ("crates/weir-sys/src/a.rs", "clock(libc::CLOCK_REALTIME)"),
            ],
        );
    }
}
