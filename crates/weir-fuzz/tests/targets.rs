//! Every target with its corpus, whole and damaged. `WEIR_SEED=7` damages otherwise,
//! `WEIR_EFFORT=20` twenty times as often.

#![allow(clippy::unwrap_used)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use weir_fuzz::{Mutator, TARGETS, find};

/// Runs a target. What it panics with is printed with the input, so that it can join the corpus.
fn hold(name: &str) {
    let target = find(name).unwrap();
    let seed = weir_seed::seed();
    let mut mutator = Mutator::new(target, seed);
    assert!(!mutator.corpus().is_empty(), "corpus/{name} is empty");
    let attempt = |bytes: &[u8], which: String| {
        if catch_unwind(AssertUnwindSafe(|| (target.run)(bytes))).is_err() {
            panic!("{name}, {which}, seed {seed}: input {:?}", bytes.escape_ascii().to_string());
        }
    };
    for (index, input) in mutator.corpus().iter().enumerate() {
        attempt(input, format!("file {index} of the corpus"));
    }
    for case in 0..weir_seed::effort(u64::from(target.cases)) {
        let input = mutator.damaged();
        attempt(&input, format!("case {case}"));
    }
}

macro_rules! targets {
    ($($name:ident)*) => {
        const TESTED: &[&str] = &[$(stringify!($name)),*];
        $(#[test] fn $name() { hold(stringify!($name)); })*
    };
}

targets! {
    altq_conf scenario experiment explain quantity stats report pcap pcapng csv dissect rewrite fragments cops
    classify bucket conditioner port discipline
}

#[test]
fn every_target_is_tested() {
    let names: Vec<&str> = TARGETS.iter().map(|t| t.name).collect();
    assert_eq!(names, TESTED);
}
