//! A port that is spread over parts, against the laws of a discipline and against the tree on one core.

mod bed;
mod laws;

use weir_core::Random;
use weir_core::sched::{Classes, Registry};
use weir_core::spread::Cut;
use weir_seed::{effort, seed};
use weir_testkit::conformance::{self, Summary};
use weir_testkit::generate::{self, Below, Generator};
use weir_testkit::{hostile, spread};

/// The conformance suite, through the parts of every discipline that can be cut, over random trees: 10^5 calls each.
#[test]
fn a_spread_port_keeps_the_laws() {
    let mut registry = Registry::builtin();
    hostile::register(&mut registry);
    let cuttable = |registry: &Registry| -> Vec<&'static str> {
        let entries = registry.iter().filter(|e| matches!(e.cut, Cut::ByShares(_)));
        entries.inspect(|e| assert_ne!(e.classes, Classes::None)).map(|e| e.name).collect()
    };
    let names = cuttable(&registry);
    assert_eq!(names, ["hfsc", "priq"]);
    let mut with_spread = registry.clone();
    spread::register(&mut with_spread);
    for name in names {
        let (mut random, mut seen, mut refused) = (Random::new(seed()), Summary::default(), 0);
        while seen.operations < effort(100_000) {
            let (link, seed) = (generate::link(&mut random), random.next_u64());
            let below = if random.below(2) == 0 { Below::Leaves } else { Below::Anything(1) };
            let Ok(node) = Generator::new(&registry, link, seed).node(name, below) else { continue };
            let Ok(node) = spread::wrap(&registry, &node, link, 1 + random.below(4) as usize) else {
                refused += 1;
                assert!(refused < 20_000, "{name}: no configuration can be cut");
                continue;
            };
            let run = conformance::run(&with_spread, &node, link, seed, 2_000);
            seen += run.unwrap_or_else(|failure| panic!("{failure}"));
        }
        println!("{name}: {seen:?}, {refused} refused");
        assert!(seen.sent > 5_000 && seen.dropped > 500, "{name}: too little happened: {seen:?}");
        assert!(seen.interleaved > 500 && seen.reconfigured > 20, "{name}: {seen:?}");
    }
}
