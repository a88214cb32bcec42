//! Every registered discipline, every parent-child pair and random trees, by the laws.

use weir_core::sched::{Classes, Entry, Registry};
use weir_seed::{effort, seed};
use weir_testkit::conformance::{self, Summary};
use weir_testkit::hostile;

/// So many calls, or as many times more as was asked for.
fn calls(usual: u32) -> u32 {
    u32::try_from(effort(usual.into())).unwrap_or(u32::MAX)
}

/// `WEIR_ONLY=hfsc` keeps to trees that have this discipline at the top, or just below it.
fn is_asked_for(entry: &Entry) -> bool {
    std::env::var("WEIR_ONLY").map_or(true, |only| only == entry.name)
}

fn built(registry: &Registry) -> Vec<Entry> {
    registry.iter().filter(|e| e.build.is_some()).copied().collect()
}

fn asked_for(entries: Vec<Entry>) -> Vec<Entry> {
    entries.into_iter().filter(is_asked_for).collect()
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
    for entry in asked_for(built(&registry)) {
        let seen = passed(conformance::discipline(&registry, entry.name, seed(), calls(100_000)));
        println!("{}: {seen:?}", entry.name);
        assert!(seen.sent > 5_000 && seen.dropped > 500, "{}: too little happened: {seen:?}", entry.name);
        assert!(seen.interleaved > 500, "{}: too few heads: {seen:?}", entry.name);
        // A discipline of one class has 50 configurations; where classes may have no rate, some need not send.
        assert!(seen.progressed >= 40, "{}: too few classes got through: {seen:?}", entry.name);
    }
}

/// Every AQM of the registry as the queue of a class.
#[test]
fn every_aqm_keeps_the_laws() {
    let registry = Registry::builtin();
    let for_classes: Vec<&str> =
        registry.aqms().filter(|aqm| aqm.is_for_classes()).map(|aqm| aqm.name).collect();
    assert!(for_classes.len() >= 4, "{for_classes:?}");
    for name in for_classes {
        let seen = passed(conformance::aqm(&registry, name, seed(), calls(40_000)));
        assert!(seen.sent > 2_000 && seen.dropped > 200, "{name}: too little happened: {seen:?}");
    }
}

#[test]
fn every_pair_keeps_the_laws() {
    let registry = Registry::builtin();
    for parent in parents(&registry) {
        for child in built(&registry) {
            if !is_asked_for(&parent) && !is_asked_for(&child) {
                continue;
            }
            let seen = passed(conformance::pair(&registry, parent.name, child.name, seed(), calls(20_000)));
            assert!(seen.sent > 100, "{} over {}: {seen:?}", parent.name, child.name);
        }
    }
}

#[test]
fn every_parent_survives_hostile_children() {
    let registry = with_hostile();
    for parent in asked_for(parents(&Registry::builtin())) {
        for child in hostile::NAMES {
            passed(conformance::pair(&registry, parent.name, child, seed(), calls(10_000)));
        }
    }
}

#[test]
fn random_trees_keep_the_laws() {
    let registry = with_hostile();
    for parent in asked_for(parents(&Registry::builtin())) {
        passed(conformance::tree(&registry, parent.name, seed(), calls(100_000)));
    }
}

/// The suite's own hostile disciplines are lawful, so what they uncover is the parent's fault.
#[test]
fn hostile_disciplines_keep_the_laws() {
    let registry = with_hostile();
    for name in hostile::NAMES {
        passed(conformance::discipline(&registry, name, seed(), calls(30_000)));
    }
}

/// Swapped under load between all disciplines, and fallen back to FIFO: proves A02, A13 and A17.
#[test]
fn a13_a_port_swaps_under_load_and_loses_nothing() {
    let registry = with_hostile();
    for entry in asked_for(built(&registry)) {
        let seen = passed(conformance::port(&registry, entry.name, seed(), calls(20_000)));
        assert!(seen.swaps > 1_000 && seen.breaks == 0, "{}: {seen:?}", entry.name);
    }
}

/// A discipline breaks in the middle of any call, at any depth of the tree: proves A02.
#[test]
fn a02_a_broken_discipline_becomes_a_fifo_and_loses_nothing() {
    let mut registry = with_hostile();
    hostile::register_breaking(&mut registry);
    for parent in asked_for(parents(&registry)) {
        let seen = passed(conformance::port(&registry, parent.name, seed(), calls(30_000)));
        // As few as 18 were drawn.
        assert!(seen.breaks > 4, "{}: {seen:?}", parent.name);
    }
}
