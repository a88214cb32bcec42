//! What strangers can feed to Weir, one function for each way in.
//!
//! Every [`Target`] takes any bytes. It returns, or it panics because a law does not hold: the reader
//! crashed, a printed form did not read back, two implementations disagreed. The same function runs
//! in two places:
//!
//! - `make test` calls it with its corpus, whole and damaged ([`mutate`]), from a seed;
//! - `make fuzz` gives it to libFuzzer, which sees which branches an input reaches.
//!
//! A new way in is one function, one line in [`TARGETS`] and a corpus. An input that found a
//! mistake goes into the corpus, so that it is tried for ever.

mod classify;
mod machines;
mod mutate;
mod packets;
mod text;
mod traces;

pub use mutate::{Mutator, mutate};

/// One way in.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name on the command line, and of its folder in `corpus/`.
    pub name: &'static str,
    /// What the bytes stand for, and what must hold.
    pub what: &'static str,
    /// Tries one input. Panics if a law does not hold.
    pub run: fn(&[u8]),
    /// Folders and files of the repository that hold further good inputs.
    pub more: &'static [&'static str],
    /// Words that this format gives meaning to: mutation puts them in.
    pub words: &'static [&'static str],
    /// Damaged inputs that a test tries; fewer where one input costs more.
    pub cases: u32,
}

const fn target(name: &'static str, what: &'static str, run: fn(&[u8])) -> Target {
    Target { name, what, run, more: &[], words: &[], cases: 20_000 }
}

/// All of them.
pub const TARGETS: &[Target] = &[
    Target {
        more: &["crates/weir-conf/tests/valid", "examples"],
        words: text::ALTQ_WORDS,
        cases: 4_000,
        ..target(
            "altq_conf",
            "altq.conf: refused with a place, or prints, reads back as the same, and builds",
            text::altq_conf,
        )
    },
    Target {
        more: &["examples", "experiments"],
        words: text::SCENARIO_WORDS,
        cases: 3_000,
        ..target("scenario", "a scenario: refused with a place, or prints and reads back", text::scenario)
    },
    Target {
        more: &["experiments"],
        words: &["[[run]]", "[[line]]", "[[value]]", "[[compare]]", "=", "\"", "[", "]", "1e400", "-1", "\n"],
        cases: 5_000,
        ..target("experiment", "a manifest of an experiment: read, or refused with a place", text::experiment)
    },
    Target {
        words: &["tcp", "udp", "proto", "tos", "dscp", "EF", "flowlabel", "gpi", ">", "[::1]:5", "0x10"],
        ..target("explain", "a packet in words: a key, or an error with a caret", text::explain)
    },
    Target {
        words: &["ms", "us", "ns", "s", "Mbit/s", "kbit/s", "Gbit/s", "%", "kB", "bytes", "e", ".", "-"],
        ..target("quantity", "a quantity with its unit: what is read prints and reads back", text::quantity)
    },
    Target {
        words: &["null", "true", "1e400", "-1", "18446744073709551616", "{}", "[]", "\"\""],
        cases: 5_000,
        ..target("stats", "the answer of a statistics socket: understood or refused", text::stats)
    },
    Target {
        words: &["null", "true", "1e400", "-1", "18446744073709551616", "{}", "[]", "\"\""],
        cases: 5_000,
        ..target("report", "two reports: compared, or refused", text::report)
    },
    target("pcap", "a pcap capture: records, or an error with a place", traces::pcap),
    target("pcapng", "a pcapng capture: records, or an error with a place", traces::pcapng),
    Target {
        words: &["rate ", ",", "\n", "0", "18446744073709551615", "-1", "65557"],
        ..target("csv", "a CSV trace: records, or an error with a line", traces::csv)
    },
    target("dissect", "a frame: whatever is read lies inside it", packets::dissect),
    target("rewrite", "a TOS byte written into a frame: nothing else changes, sums hold", packets::rewrite),
    target("fragments", "a stream of fragments: ports come from first fragments only", packets::fragments),
    target(
        "cops",
        "a message of COPS: refused with a place and an error, or writes and reads back",
        packets::cops,
    ),
    Target {
        cases: 5_000,
        ..target("classify", "filters come and go: the compiled classifier is the list", classify::classify)
    },
    target("bucket", "a token bucket: agrees with the exact model", machines::bucket),
    Target {
        cases: 2_000,
        ..target(
            "conditioner",
            "meters and actions: every packet is judged and counted",
            machines::conditioner,
        )
    },
    Target {
        cases: 1_000,
        ..target("port", "a port under any calls: every packet ends once, all of it drains", machines::port)
    },
    Target {
        cases: 60,
        ..target(
            "discipline",
            "a discipline in a random tree: the laws of the contract",
            machines::discipline,
        )
    },
];

/// The target of that name.
pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|t| t.name == name)
}
