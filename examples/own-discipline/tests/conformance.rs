//! The tutorial's discipline through the suite that Weir's own disciplines pass (proves A34).

use weir_core::sched::Registry;
use weir_seed::seed;
use weir_testkit::{conformance, hostile};

fn calls(usual: u32) -> u32 {
    u32::try_from(weir_seed::effort(usual.into())).unwrap_or(u32::MAX)
}

fn registry() -> Registry {
    let mut registry = Registry::builtin();
    registry.register(own_discipline::ENTRY);
    registry.register(own_discipline::edf::ENTRY);
    registry.register_aqm(own_discipline::choke::ENTRY);
    hostile::register(&mut registry);
    registry
}

#[test]
fn a34_it_keeps_the_laws() {
    for name in ["lqf", "edf", "choke"] {
        let summary = conformance::discipline(&registry(), name, seed(), calls(20_000));
        println!("{:?}", summary.unwrap_or_else(|e| panic!("{e}")));
    }
    // An AQM as the queue of a class, too.
    conformance::aqm(&registry(), "choke", seed(), calls(20_000)).unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn a34_it_keeps_them_above_and_below_others() {
    // CBQ makes packets wait; the hostile ones drop everything when asked, or never give anything.
    let below: Vec<&str> = ["priq", "wfq", "cbq", "lqf"].into_iter().chain(hostile::NAMES).collect();
    let above = |parent| below.iter().map(move |child| (parent, *child));
    for (parent, child) in above("lqf").chain(above("edf")).chain([("priq", "lqf"), ("hfsc", "edf")]) {
        conformance::pair(&registry(), parent, child, seed(), calls(4_000))
            .unwrap_or_else(|e| panic!("{parent} over {child}: {e}"));
    }
}
