//! The tutorial's discipline through the suite that Weir's own disciplines pass (proves A34).

use weir_core::sched::Registry;
use weir_testkit::{conformance, hostile};

fn registry() -> Registry {
    let mut registry = Registry::builtin();
    registry.register(own_discipline::ENTRY);
    hostile::register(&mut registry);
    registry
}

#[test]
fn a34_it_keeps_the_laws() {
    let summary = conformance::discipline(&registry(), "lqf", 1, 20_000).unwrap_or_else(|e| panic!("{e}"));
    println!("{summary:?}");
}

#[test]
fn a34_it_keeps_them_above_and_below_others() {
    // CBQ makes packets wait; the hostile ones drop everything when asked, or never give anything.
    let below = ["priq", "wfq", "cbq", "lqf"].into_iter().chain(hostile::NAMES);
    for (parent, child) in below.map(|child| ("lqf", child)).chain([("priq", "lqf"), ("hfsc", "lqf")]) {
        conformance::pair(&registry(), parent, child, 2, 4_000)
            .unwrap_or_else(|e| panic!("{parent} over {child}: {e}"));
    }
}
