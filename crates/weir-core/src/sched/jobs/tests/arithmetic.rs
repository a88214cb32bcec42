//! JoBS's decisions against plain arithmetic in floats.

use super::super::loss::{Account, Candidate, least_harm};
use super::super::rates::{self, Chain, ONE, Seen, Step, bits};
use super::super::weights::{CLASSES, HEAVIEST, Weight};
use super::{jobs, mbps, near};
use crate::Random;
use crate::queue::Value;
use crate::sched::testing::Bench;
use crate::units::{Fraction, Rate};
use std::vec::Vec;

/// Below 2^`most` and of any magnitude.
fn magnitude(random: &mut Random, most: u64) -> u64 {
    let width = 1 + random.below(most);
    random.below(1 << width)
}

/// No class is more than one packet ahead of the fluid, because a class that is ahead is not the one that is
/// owed most. It may be behind by more, when those that are owed a little more each go first: by the
/// harmonic sum of as many packets as there are classes. (One of 210 runs drew 1506 bytes.)
#[test]
fn j18_service_follows_the_rates() {
    const PACKET: f64 = 1500.0;
    let most_behind = PACKET * (1.0 + 1.0 / 2.0 + 1.0 / 3.0 + 1.0 / 4.0);
    // No chains: rates stay as the least rates make them.
    let floors = [0.4, 0.3, 0.2, 0.1];
    let terms: Vec<_> = floors.iter().map(|f| [("arc", mbps(10.0 * f))]).collect();
    let terms: Vec<&[_]> = terms.iter().map(|t| &t[..]).collect();
    let node = jobs(&[("qlimit", Value::Count(10_000))], &terms);
    for seed in weir_seed::seeds(5) {
        let (mut bench, mut random) = (Bench::new(&node, 1), Random::new(seed));
        let mut offer = |bench: &mut Bench, leaf: u32| {
            let len = [64, 576, 1500][random.below(3) as usize];
            bench.offer(len, |m| m.leaf = leaf);
        };
        for leaf in (0..4).cycle().take(400) {
            offer(&mut bench, leaf);
        }
        let (mut sent, mut all, mut ahead, mut behind) = ([0f64; 4], 0f64, 0f64, 0f64);
        for _ in 0..20_000 {
            let meta = bench.serve().expect("backlogged");
            sent[meta.leaf as usize] += f64::from(meta.len);
            all += f64::from(meta.len);
            bench.pass(meta.len);
            offer(&mut bench, meta.leaf);
            for (sent, floor) in sent.iter().zip(floors) {
                ahead = ahead.max(sent - all * floor);
                behind = behind.max(all * floor - sent);
            }
        }
        bench.check();
        assert!(ahead <= PACKET && behind <= most_behind, "seed {seed}: {ahead} and {behind} bytes");
        // Reversed: held against other rates the error grows without bound.
        assert!(sent[0] - all * 0.39 > most_behind && all * 0.41 - sent[0] > most_behind);
    }
}

#[test]
fn j20_a_reset_gives_equal_rates_to_the_backlogged_alone() {
    for mask in 0..=u16::MAX {
        let mut rates = [7; CLASSES];
        rates::reset(&mut rates, mask);
        let sum: u64 = rates.iter().sum();
        assert_eq!(sum, if mask == 0 { 0 } else { ONE });
        for (class, rate) in rates.iter().enumerate() {
            let part = ONE / u64::from(mask.count_ones().max(1));
            let fair = rate.wrapping_sub(part) < 16;
            assert_eq!(*rate != 0, mask >> class & 1 == 1);
            assert!(*rate == 0 || fair);
        }
    }
}

#[test]
fn j21_the_victim_is_that_of_a_brute_force_search() {
    let mut random = Random::new(weir_seed::seed());
    for case in 0..20_000 {
        let n = 1 + random.below(CLASSES as u64) as usize;
        let candidates: Vec<Candidate> = (0..n)
            .map(|_| {
                let arrived = 1 + (random.next_u64() >> (24 + random.below(38)));
                let bounded = random.below(3) == 0;
                Candidate {
                    account: Account { arrived, dropped: random.below(arrived) >> random.below(20) },
                    victim: 1 + random.below(1500),
                    bound: bounded.then(|| Fraction::ratio(random.below(50), 1000)),
                    weight: Weight::Shift(random.below(6) as u32),
                    chained: !bounded || random.below(2) == 0,
                }
            })
            .collect();
        let harm = |c: &Candidate| {
            let arrived = c.account.arrived as f64;
            let after = (c.account.dropped as f64 + c.victim as f64) / arrived;
            let loss = c.account.dropped as f64 / arrived;
            match c.bound.map(|b| b.raw() as f64 / 4_294_967_296.0) {
                Some(bound) if after > bound => (2, after.min(1.0) - bound),
                Some(_) if !c.chained => (1, loss),
                _ => (0, loss * c.weight.of(1) as f64 / HEAVIEST as f64),
            }
        };
        let mask = ((1u32 << n) - 1) as u16;
        let (_, chosen) = least_harm(mask, |c| Some(candidates[c])).expect("a candidate");
        let (tier, value) = harm(&candidates[chosen]);
        for candidate in &candidates {
            let (other, least) = harm(candidate);
            // Within the precision of J24.
            assert!(
                tier < other || tier == other && value <= least + 1.0 / f64::from(1 << 20),
                "case {case}: class {chosen} of {n}"
            );
        }
    }
}

#[test]
fn j23_rates_keep_sum_and_minimum() {
    let mut random = Random::new(weir_seed::seed());
    let mut scratch = Chain::NEW;
    let sum = |rates: &[u64; CLASSES]| rates.iter().sum::<u64>();
    for case in 0..50_000 {
        let backlogged = 1 + random.below(u64::from(u16::MAX)) as u16;
        let mut rates = [0; CLASSES];
        rates::reset(&mut rates, backlogged);
        let mut least = [0; CLASSES];
        for class in bits(backlogged) {
            least[class] = magnitude(&mut random, 40) / (1 + random.below(8));
        }
        let before = rates;
        rates::redistribute(&mut rates, &least, backlogged);
        assert_eq!(sum(&rates), ONE, "case {case}");
        let fits = sum(&least) <= ONE;
        for class in bits(backlogged) {
            assert!(!fits || rates[class] >= least[class], "case {case}: a minimum could hold and does not");
            assert!(rates[class] >= before[class].min(least[class]), "case {case}: taken from the needy");
        }
        // One chain of a random part of them, stepped as the discipline does: what was in it before does not count.
        let members = backlogged & random.next_u64() as u16;
        scratch.begin();
        for class in bits(members) {
            least[class] = least[class].min(rates[class]);
            let seen = Seen {
                drain: u128::from(random.next_u64()) << random.below(30) >> random.below(60),
                delay_ns: random.next_u64() >> random.below(64),
                weight: Weight::Times((HEAVIEST >> random.below(40)).max(1)),
            };
            let load = seen.load((random.below(2) == 0).then_some(rates[class]));
            scratch.add(class, rates[class], load, least[class]);
        }
        let step = match random.below(3) {
            0 => Step::Whole,
            _ => Step::After(random.next_u64() >> random.below(64)),
        };
        scratch.steer(&mut rates, step);
        assert_eq!(sum(&rates), ONE, "case {case}: the changes do not add up to nothing");
        for class in bits(members) {
            assert!(rates[class] >= least[class], "case {case}: below its minimum");
        }
    }
}

#[test]
fn j24_rates_and_losses_are_exact_from_9600_to_400g() {
    let mut random = Random::new(weir_seed::seed());
    for bps in [9_600, 64_000, 1_500_000, 100_000_000, 10_000_000_000, 400_000_000_000u64] {
        let per_byte = crate::units::PerByte::of(Rate::from_bps(bps)).raw();
        for case in 0..5_000 {
            // Least rates: B / (d - D) as a share of the link.
            let bytes = 64 + magnitude(&mut random, 32);
            let exact_ns = bytes as f64 * 8e9 / bps as f64;
            let left_ns = (exact_ns * (1.0 + random.below(1_000) as f64 / 3.0)) as u64 + 1_000;
            let drain = u128::from(bytes) * u128::from(per_byte);
            let least = rates::least(drain, left_ns);
            let exact = exact_ns / left_ns as f64;
            assert!(near(least as f64 / ONE as f64, exact, 1e-3), "{bps} case {case}");
            assert!(rates::suffices(least, drain, left_ns) && !rates::suffices(least - 1, drain, left_ns));
            // A step of the feedback over three classes.
            let mut rates = [0; CLASSES];
            rates::reset(&mut rates, 0b111);
            let (mut chain, mut m) = (Chain::NEW, [0f64; 3]);
            for class in 0..3 {
                // Up to half an hour of the link's time.
                let bytes = 64 + magnitude(&mut random, 30).min(1800 * bps / 8);
                let delay_ns = (bytes as f64 * 3.0 * 8e9 / bps as f64) as u64;
                let weight = HEAVIEST >> random.below(6);
                let drain = u128::from(bytes) * u128::from(per_byte);
                let seen = Seen { drain, delay_ns, weight: Weight::Times(weight) };
                chain.add(class, rates[class], seen.load(Some(rates[class])), 0);
                let time = bytes as f64 * 8e9 / bps as f64;
                m[class] = weight as f64 / HEAVIEST as f64 * (time + delay_ns as f64 / 3.0) / 2.0;
            }
            let x = m.iter().sum::<f64>();
            let h = (x / (1.0 + random.below(40) as f64)) as u64;
            let eta = (16.0 * h as f64 / x).min(1.0);
            chain.steer(&mut rates, Step::After(h));
            for class in 0..3 {
                let exact = (1.0 - eta) / 3.0 + eta * m[class] / x;
                let error = (rates[class] as f64 / ONE as f64 - exact).abs();
                assert!(error < 1e-3 * exact.max(1e-3), "{bps} case {case}: {exact}");
            }
        }
    }
    for case in 0..50_000 {
        let arrived = 1 + (random.next_u64() >> random.below(60) >> 2);
        let account = Account { arrived, dropped: random.below(arrived + 1) };
        let exact = account.dropped as f64 / arrived as f64;
        let loss = account.loss(0) as f64 / 4_294_967_296.0;
        assert!((loss - exact).abs() < 1.0 / f64::from(1 << 20), "case {case}: {account:?}");
    }
}
