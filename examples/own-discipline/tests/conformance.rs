//! The tutorial's discipline through the suite that Weir's own disciplines pass (proves A34).

use weir_core::sched::Registry;
use weir_testkit::conformance;

fn registry() -> Registry {
    let mut registry = Registry::builtin();
    registry.register(own_discipline::ENTRY);
    registry
}

#[test]
fn a34_it_keeps_the_laws() {
    let summary = conformance::discipline(&registry(), "lqf", 1, 20_000).unwrap();
    println!("{summary:?}");
}

#[test]
fn a34_it_keeps_them_above_and_below_others() {
    for (parent, child) in [("lqf", "priq"), ("lqf", "wfq"), ("priq", "lqf"), ("lqf", "lqf")] {
        conformance::pair(&registry(), parent, child, 2, 4_000).unwrap_or_else(|e| panic!("{e}"));
    }
}
