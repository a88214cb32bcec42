//! The credit of a link that many cores share, in virtual time: what `--example many_cores` shows, small.

use weir_bench::cores::{Run, Setting, Stalls, Town, Wrong, run};
use weir_core::units::Rate;
use weir_seed::seeds;

const RATE: Rate = Rate::from_mbps(10_000);
const MS: u64 = 1_000_000;

fn setting(seed: u64, wrong: Wrong) -> Setting {
    Setting { wrong, ..Setting::usual(seed, 4, RATE, 10 * MS) }
}

fn town(seed: u64) -> Town {
    Town::new(seed, RATE, 3_000, 24, None)
}

fn of(town: &Town, setting: &Setting) -> Run {
    run(town, setting).unwrap_or_else(|why| panic!("seed {}: {why}", setting.seed))
}

/// Rate, work and shares, while all cores keep up.
#[test]
fn the_laws_hold_for_many_cores() {
    for seed in seeds(3) {
        let run = of(&town(seed), &setting(seed, Wrong::Nothing));
        println!(
            "seed {seed}: {} packets, {:.2} of the bound of rate, {:.2} of work, {:.2} of sites, {:.3} of subscribers",
            run.packets, run.above, run.below, run.sites, run.subscribers
        );
        assert!(
            run.packets > 20_000 && run.lost == 0,
            "seed {seed}: {} packets, {} lost",
            run.packets,
            run.lost
        );
        assert!(
            run.above <= 1.0 && run.below <= 1.0,
            "seed {seed}: {} above, {} below",
            run.above,
            run.below
        );
        assert!(run.sites <= 1.0, "seed {seed}: sites came apart by {} of the bound", run.sites);
        assert!(run.subscribers <= 1.000_001, "seed {seed}: subscribers by {}", run.subscribers);
        assert!(run.calls < 0.3 && run.lock < 0.5, "seed {seed}: {} calls per packet", run.calls);
    }
}

/// Each law is broken by what is wrong on purpose.
#[test]
fn what_is_wrong_breaks_the_laws() {
    for seed in seeds(2) {
        let (town, with) = (town(seed), |wrong| setting(seed, wrong));
        let double = of(&town, &with(Wrong::Double)).above;
        assert!(double > 1.0, "seed {seed}: rate holds at {double} with twice what is lent");
        let kept = of(&town, &Setting { until_ns: 40 * MS, ..with(Wrong::Kept) }).below;
        assert!(kept > 1.0, "seed {seed}: work holds at {kept} although nothing is given back");
        let liar = of(&town, &with(Wrong::Liar)).sites;
        assert!(liar > 1.0, "seed {seed}: shares hold at {liar} with a liar");
        let tenfold = of(&town, &with(Wrong::Tenfold));
        assert!(tenfold.sites.max(tenfold.below) > 1.0, "seed {seed}: ten quanta at a time change nothing");
    }
}

/// A core that stands still costs others what was lent to it, and nothing in proportion to the time.
#[test]
fn a_core_that_stands_still_costs_itself() {
    for seed in seeds(2) {
        let town = town(seed);
        // Three cores have the link for a while, so they are faster than four need to be.
        let fast = Setting { in_ns: 200, out_ns: 300, ..setting(seed, Wrong::Nothing) };
        let first = Stalls { first: Some((2 * MS, 4 * MS)), ..Stalls::default() };
        let run = of(&town, &Setting { stalls: first, ..fast.clone() });
        assert!(run.other_sites <= 1.0, "seed {seed}: the others came apart by {}", run.other_sites);
        assert!(
            run.above <= 1.0 && run.below <= 1.0,
            "seed {seed}: {} above, {} below",
            run.above,
            run.below
        );
        // All stand still at times, in turn.
        let stalls = Stalls { every_ns: 2 * MS, longest_ns: 50_000, first: None };
        let run = of(&town, &Setting { stalls, ..fast });
        assert!(
            run.above <= 1.0 && run.sites <= 1.0,
            "seed {seed}: {} above, {} apart",
            run.above,
            run.sites
        );
    }
}

/// Where few packets wait, parts borrow more than what waits, so that not each packet is a call of the link.
#[test]
fn a_link_that_is_not_full_is_not_called_for_each_packet() {
    for seed in seeds(2) {
        let town = Town::new(seed, RATE, 3_000, 24, Some(70));
        let run = of(&town, &setting(seed, Wrong::Nothing));
        println!("seed {seed}: {:.3} calls per packet, {:.2} of the link used", run.calls, run.used);
        assert!(
            run.calls < 0.2 && run.lost == 0,
            "seed {seed}: {} calls per packet, {} lost",
            run.calls,
            run.lost
        );
        assert!((0.6..0.8).contains(&run.used), "seed {seed}: {} of the link used", run.used);
    }
}
