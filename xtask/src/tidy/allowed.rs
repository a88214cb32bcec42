//! The exceptions, each with its reason.

/// Files longer than the limit.
pub const LONG_FILES: &[(&str, &str)] = &[(
    "crates/weir-core/src/sched/jobs/mod.rs",
    "the paper's figure 4 in one place; rates, losses, drops and weights stand apart",
)];

/// Files that read a clock in a crate that is told the time.
pub const CLOCKS: &[(&str, &str)] =
    &[("crates/weir-sim/src/bench.rs", "times the simulator itself; nothing of it reaches a run")];

/// Files that must speak of what others must not.
pub const MACHINE_PATHS: &[(&str, &str)] = &[("xtask/src/tidy/text.rs", "the rule itself, and its samples")];

/// True if `path` is in `list`.
pub fn is_allowed(list: &[(&str, &str)], path: &str) -> bool {
    list.iter().any(|(allowed, _)| *allowed == path)
}
