//! Every kind of mistake has an example with its exact words, in `errors.txt`.
//!
//! A case is `==== name`, the file, `----`, and what is said. `WEIR_BLESS=1 cargo test` writes
//! what is said now: read the difference before it is committed.

#![allow(clippy::unwrap_used)]

use weir_conf::{judge, read};
use weir_core::sched::Registry;

/// What reading says, and if the file loads, what `check` says beyond that.
fn said(input: &str) -> String {
    let registry = Registry::builtin();
    let outcome = read("altq.conf", input, &registry);
    let mut lines = vec![if outcome.plan.is_some() { "loads" } else { "refused" }.to_string()];
    lines.extend(outcome.diagnostics.iter().map(ToString::to_string));
    if let Some(plan) = &outcome.plan {
        lines.extend(judge(plan, &registry).iter().map(ToString::to_string));
    }
    lines.join("\n\n")
}

#[test]
fn every_mistake_has_its_words() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/errors.txt");
    let corpus = std::fs::read_to_string(path).unwrap();
    let (head, cases) = corpus.split_once("\n==== ").unwrap();
    let bless = std::env::var_os("WEIR_BLESS").is_some();
    let mut written = head.to_string();
    let mut names = std::collections::HashSet::new();
    let mut wrong = Vec::new();
    for case in cases.split("\n==== ") {
        let (name, rest) = case.split_once('\n').unwrap();
        let (input, expected) = rest.split_once("\n----\n").unwrap_or((rest, ""));
        assert!(names.insert(name.to_string()), "two cases are called {name}");
        let said = said(input);
        if said.trim_end() != expected.trim_end() {
            wrong.push(format!("{name}: expected\n{}\nsaid\n{said}", expected.trim_end()));
        }
        written.push_str(&format!("\n==== {name}\n{input}\n----\n{}\n", said.trim_end()));
    }
    assert!(names.len() >= 100, "the corpus is whole");
    if bless {
        std::fs::write(path, written).unwrap();
    } else {
        assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    }
}
