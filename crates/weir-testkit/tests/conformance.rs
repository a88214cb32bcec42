//! Every registered discipline, every parent-child pair and random trees, by the laws.

use weir_core::sched::{Classes, Entry, Registry};
use weir_testkit::conformance::{self, Summary};
use weir_testkit::hostile;

const SEED: u64 = 20;

fn built(registry: &Registry) -> Vec<Entry> {
    registry.iter().filter(|e| e.build.is_some()).copied().collect()
}

fn parents(registry: &Registry) -> Vec<Entry> {
    built(registry).into_iter().filter(|e| e.classes != Classes::None).collect()
}

fn with_hostile() -> Registry {
    let mut registry = Registry::builtin();
    hostile::register(&mut registry);
    registry
}

fn passed(result: Result<Summary, Box<conformance::Failure>>) -> Summary {
    result.unwrap_or_else(|failure| panic!("{failure}"))
}

/// At least 10^5 random calls for each. Proves A03, A08, and A06 over every discipline.
#[test]
fn every_discipline_keeps_the_laws() {
    let registry = Registry::builtin();
    for entry in built(&registry) {
        let seen = passed(conformance::discipline(&registry, entry.name, SEED, 100_000));
        println!("{}: {seen:?}", entry.name);
        assert!(seen.sent > 5_000 && seen.dropped > 500, "{}: too little happened: {seen:?}", entry.name);
        assert!(seen.interleaved > 500, "{}: too few heads: {seen:?}", entry.name);
    }
}

#[test]
fn every_pair_keeps_the_laws() {
    let registry = Registry::builtin();
    for parent in parents(&registry) {
        for child in built(&registry) {
            let seen = passed(conformance::pair(&registry, parent.name, child.name, SEED, 6_000));
            assert!(seen.sent > 100, "{} over {}: {seen:?}", parent.name, child.name);
        }
    }
}

#[test]
fn every_parent_survives_hostile_children() {
    let registry = with_hostile();
    for parent in parents(&Registry::builtin()) {
        for child in hostile::NAMES {
            passed(conformance::pair(&registry, parent.name, child, SEED, 10_000));
        }
    }
}

#[test]
fn random_trees_keep_the_laws() {
    let registry = with_hostile();
    for parent in parents(&Registry::builtin()) {
        passed(conformance::tree(&registry, parent.name, SEED, 40_000));
    }
}

/// The suite's own hostile disciplines are lawful, so what they uncover is the parent's fault.
#[test]
fn hostile_disciplines_keep_the_laws() {
    let registry = with_hostile();
    for name in hostile::NAMES {
        passed(conformance::discipline(&registry, name, SEED, 30_000));
    }
}
