//! The exceptions, each with its reason.

/// Files longer than the limit.
pub const LONG_FILES: &[(&str, &str)] = &[(
    "crates/weir-core/src/sched/jobs/mod.rs",
    "the paper's figure 4 in one place; rates, losses, drops and weights stand apart",
)];

/// What a file takes from another one although that one takes from it: file, other file, reason.
pub const ARROWS: &[(&str, &str, &str)] = &[(
    "crates/weir-core/src/aqm/contract.rs",
    "crates/weir-core/src/queue/leaf.rs",
    "a queue calls its AQM once per packet by a pointer, and what the AQM does is inlined there",
)];

/// Files that read a clock in a crate that is told the time.
pub const CLOCKS: &[(&str, &str)] = &[
    ("crates/weir-sim/src/bench.rs", "times the simulator itself; nothing of it reaches a run"),
    (
        "crates/weir-broker/src/store/etcd/link.rs",
        "how long an answer of etcd is waited for; no decision sees it",
    ),
    ("crates/weir-broker/src/store/etcd/nodes.rs", "how long nodes are waited for, for tests and benches"),
    (
        "crates/weir-broker/src/store/etcd/mod.rs",
        "how long etcd is told that this broker lives; no decision sees it",
    ),
];

/// Files that read the clock that people set.
pub const CLOCKS_THAT_ARE_SET: &[(&str, &str)] = &[
    (
        "crates/weir-sys/src/capture.rs",
        "the kernel's timestamps of frames become times of the other clock there",
    ),
    (
        "crates/weir-broker/src/serve/clock.rs",
        "the audit says when; a token ends on a day. Nothing else sees it",
    ),
];

/// Disciplines that the configuration may name: file, name, reason.
pub const NAMED_DISCIPLINES: &[(&str, &str, &str)] = &[
    ("crates/weir-conf/src/read.rs", "red", "a command of ALTQ's language: RED's defaults"),
    ("crates/weir-conf/src/read.rs", "rio", "a command of ALTQ's language: RIO's defaults"),
    ("crates/weir-conf/src/build.rs", "red", "to which the command `red` gives its values"),
    ("crates/weir-conf/src/build.rs", "rio", "to which the command `rio` gives its values"),
    ("crates/weir-conf/src/rules.rs", "red", "a flag of ALTQ's classes that `rio` excludes"),
    ("crates/weir-conf/src/rules.rs", "rio", "a flag of ALTQ's classes that `red` excludes"),
    ("crates/weir-conf/src/build.rs", "fifoq", "the queue of an interface whose line names none"),
];

/// True if `path` is in `list`.
pub fn is_allowed(list: &[(&str, &str)], path: &str) -> bool {
    list.iter().any(|(allowed, _)| *allowed == path)
}
