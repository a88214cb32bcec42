//! Who has what of a busy link: weights, agencies, and each of the three rules.

use super::*;

/// Shares of three classes of one priority with such weights, all backlogged, all borrowing.
fn weighted(rule: &'static str, weights: [u64; 3], sizes: [u32; 3]) -> Vec<f64> {
    let mut classes = vec![class("root", None, 1_000, false)];
    classes.extend(weights.map(|w| class("", Some(0), 150 * w, true)));
    let mut port = port(link(10), discipline(rule, 32), classes);
    let mut sources = [1, 2, 3].map(|leaf| source(leaf, &[sizes[leaf as usize - 1]]));
    let sent = saturate(&mut port, &mut sources, 0, 11 * SECOND);
    [1, 2, 3].iter().map(|&leaf| share(&sent, leaf, link(10), SECOND, 11 * SECOND)).collect()
}

#[test]
fn a21_weights_decide_whatever_the_sizes() {
    for rule in RULES {
        for sizes in [[64, 576, 1500], [1500, 1500, 1500], [1500, 576, 64]] {
            // Under top-level a class that is held back loses its turn. What the shares leave over,
            // 10 %, then goes more to short packets. The shares themselves hold: a20.
            let allowed = if rule == "top-level" && sizes[0] > sizes[2] { 0.1 } else { 0.02 };
            let shares = weighted(rule, [1, 2, 3], sizes);
            for (n, share) in shares.iter().enumerate() {
                let ratio = share * 6.0 / (n + 1) as f64;
                assert!((ratio - 1.0).abs() < allowed, "{rule}, {sizes:?}: {shares:?}");
            }
        }
    }
}

#[test]
fn a21_reversed_the_weights_reverse_the_shares() {
    for rule in RULES {
        let shares = weighted(rule, [3, 2, 1], [64, 576, 1500]);
        assert!(shares[0] > 2.5 * shares[2], "{rule}: {shares:?}");
    }
}

/// The tree of the two agencies X 58 (19, 39) and Y 38 (29, 9): leaves 3, 4, 5, 6.
fn agencies(priorities: [u64; 4]) -> Vec<ClassConfig> {
    let leaf = |n: usize, parent, permille| {
        with(class(["c0", "c1", "c3", "c4"][n], Some(parent), permille, true), "priority", priorities[n])
    };
    vec![
        class("root", None, 1_000, false),
        class("X", Some(0), 580, true),
        class("Y", Some(0), 380, true),
        leaf(0, 1, 190),
        leaf(1, 1, 390),
        leaf(2, 2, 290),
        leaf(3, 2, 90),
    ]
}

fn agency_shares(rule: &'static str, priorities: [u64; 4], active: &[u32]) -> [f64; 4] {
    let mut port = port(link(45), discipline(rule, 32), agencies(priorities));
    let mut sources: Vec<Source> = active.iter().map(|&leaf| source(leaf, &[1500])).collect();
    let sent = saturate(&mut port, &mut sources, 0, 6 * SECOND);
    [3, 4, 5, 6].map(|leaf| share(&sent, leaf, link(45), SECOND, 6 * SECOND))
}

#[test]
fn a22_the_rules_agree_on_whole_agencies() {
    for active in [&[3, 4, 5, 6][..], &[3, 5, 6], &[4, 5, 6], &[3, 4, 6], &[3, 4, 5]] {
        let sums = RULES.map(|rule| {
            let s = agency_shares(rule, [1, 1, 1, 1], active);
            assert!(s.iter().sum::<f64>() > 0.999, "{rule}: the link idles: {s:?}");
            (s[0] + s[1], s[2] + s[3])
        });
        let entitled = 58.0 / 96.0;
        assert!((sums[0].0 - entitled).abs() < 0.05, "formal, {active:?}: {sums:?}");
        assert!((sums[1].0 - sums[0].0).abs() < 0.05, "{active:?}: {sums:?}");
    }
}

#[test]
fn a22_an_idle_class_leaves_its_share_to_its_sibling() {
    let all = agency_shares("formal", [3, 1, 1, 3], &[3, 4, 5, 6]);
    let without_c1 = agency_shares("formal", [3, 1, 1, 3], &[3, 5, 6]);
    assert!(without_c1[0] - all[0] > 0.9 * all[1], "{all:?} {without_c1:?}");
}

/// Shares of two classes, the first of higher priority, both borrowing, both overloaded.
fn ancestor_only(permille: [u64; 2]) -> [f64; 2] {
    let leaf = |n: usize| with(class("leaf", Some(0), permille[n], true), "priority", [5, 1][n]);
    let classes = vec![class("root", None, 1_000, false), leaf(0), leaf(1)];
    let mut port = port(link(10), discipline("ancestor-only", 32), classes);
    let sent = saturate(&mut port, &mut [source(1, &[1000]), source(2, &[1000])], 0, 11 * SECOND);
    [1, 2].map(|leaf| share(&sent, leaf, link(10), SECOND, 11 * SECOND))
}

/// A busy root is at its limit and lends only what nobody may send by right.
#[test]
fn a22_ancestor_only_gives_shares_by_right_first() {
    for (shares, expected) in [([300, 700], [0.3, 0.7]), ([700, 300], [0.7, 0.3]), ([300, 400], [0.6, 0.4])] {
        let got = ancestor_only(shares);
        assert!(got.iter().zip(expected).all(|(g, e)| (g - e).abs() < 0.005), "{shares:?}: {got:?}");
        assert!(got[0] + got[1] > 0.999, "the link idles: {got:?}");
    }
}

/// The sums of the agencies hold under ancestor-only too, whichever has the high priorities.
#[test]
fn a22_ancestor_only_keeps_the_agencies() {
    for priorities in [[1, 1, 1, 3], [3, 1, 1, 1], [3, 3, 1, 1], [1, 1, 3, 3]] {
        let s = agency_shares("ancestor-only", priorities, &[3, 4, 5, 6]);
        // 4 % of the link belong to nobody.
        assert!(s[0] + s[1] > 0.575 && s[2] + s[3] > 0.375, "{priorities:?}: {s:?}");
        assert!(s.iter().sum::<f64>() > 0.999, "the link idles: {s:?}");
    }
}

/// Shares of the leaves of two chains of `depth` classes that hang on the root. Their topmost classes,
/// `permille` of the link each, may not borrow; all below them may, and have packets all the time.
fn chains(rule: &'static str, depth: usize, permille: [u64; 2]) -> [f64; 2] {
    let mut classes = vec![class("root", None, 1_000, false)];
    for (chain, permille) in permille.into_iter().enumerate() {
        for level in 0..depth {
            let parent = if level == 0 { 0 } else { chain * depth + level };
            let share = if level == 0 { permille } else { permille / 10 };
            classes.push(class("", Some(parent), share, level > 0));
        }
    }
    let leaves = [depth as u32, 2 * depth as u32];
    let mut port = port(link(10), discipline(rule, 32), classes);
    let sent = saturate(&mut port, &mut leaves.map(|leaf| source(leaf, &[1_000])), 0, 6 * SECOND);
    leaves.map(|leaf| share(&sent, leaf, link(10), SECOND, 6 * SECOND))
}

/// A packet is charged to every ancestor. So what a class may have bounds those below it, at every
/// level. Reversed: with the shares exchanged, the bounds are.
#[test]
fn a22_a_share_bounds_all_below_at_every_level() {
    for rule in RULES {
        for depth in [2, 3, 4, 6] {
            for permille in [[200, 500], [500, 200]] {
                let shares = chains(rule, depth, permille);
                for (share, permille) in shares.into_iter().zip(permille) {
                    let ratio = share * 1_000.0 / permille as f64;
                    assert!((ratio - 1.0).abs() < 0.03, "{rule}, {depth} deep, {permille}: {shares:?}");
                }
            }
        }
    }
}
