//! Virtual time: it may run ahead and over its word, and nobody who joins pays for what was before.

use super::*;

/// Classes of 4 and 2 bit/s have the whole link: their virtual times run ten million times as fast
/// as the clock, and still divide it 2 : 1 when the keys have been counted anew.
#[test]
fn virtual_time_may_run_far_ahead() {
    let ls = |bps| Params::new().with("ls", linear(bps));
    let bytes = saturate(&[("a", None, ls(4)), ("b", None, ls(2))], 30);
    let ratio = bytes[0].1 * 100 / bytes[1].1;
    assert!((198..=202).contains(&ratio), "{bytes:?}");
}

/// Virtual time runs out of its word after two years: in 10 s here, several times, since 2 bit/s
/// are slow. Nothing shows.
#[test]
fn shares_hold_when_virtual_time_runs_over() {
    let ls = |bps| Params::new().with("ls", linear(bps));
    let tree = [("x", None, ls(6)), ("x1", Some(0), ls(2)), ("x2", Some(0), ls(4)), ("y", None, ls(2))];
    let bytes = saturate(&tree, 30);
    for (name, percent) in [("x1", 25), ("x2", 50), ("y", 25)] {
        assert!(share_is(&bytes, name, percent), "{bytes:?}");
    }
    assert!(!share_is(&bytes, "x1", 50));
}

/// A class that real time serves while its upper limit keeps it from sharing, at the least weight
/// there is: its virtual time runs over its word though it never has a turn by it. A class that
/// joins its siblings then shares with those who share.
#[test]
fn virtual_time_runs_over_outside_the_turns_too() {
    let ls = |bps| Params::new().with("ls", linear(bps));
    let mut rig = Rig::new(&[
        ("fast", None, ls(0).with("rt", linear(9_000_000)).with("ul", linear(2))),
        ("a", None, ls(1_000_000)),
        ("b", None, ls(1_000_000)),
    ]);
    for n in 0..60 {
        rig.put(0, ["fast", "a"][n % 2], 1_500);
    }
    let (joins_ns, mut joined, mut bytes) = (30_000_000_000, false, [0u64; 3]);
    while let Some((start, end, leaf, len)) = rig.send(joins_ns + 2_000_000_000) {
        bytes[leaf] += u64::from(len);
        rig.put(end, ["fast", "a", "b"][leaf], 1_500);
        if start >= joins_ns && !joined {
            (joined, bytes) = (true, [0; 3]);
            for _ in 0..10 {
                rig.put(end, "b", 1_500);
            }
        }
    }
    assert!(bytes[0].abs_diff(9_000_000 / 8 * 2) < 10_000, "{bytes:?}");
    assert!(bytes[1] > 0 && bytes[1].abs_diff(bytes[2]) < 10_000, "{bytes:?}");
}

/// A voice class whose guarantee is many times its weight is served by real time, and its virtual
/// time runs ahead. Another class that comes later shares from the first packet with those who
/// share; that voice is ahead is no affair of its.
#[test]
fn who_joins_does_not_wait_for_a_class_that_real_time_serves() {
    let ls = |bps| Params::new().with("ls", linear(bps));
    for greedy in [false, true] {
        let mut rig = Rig::new(&[
            ("voice", None, ls(64_000).with("rt", linear(2_000_000))),
            ("bulk", None, ls(1_000_000)),
            ("web", None, ls(1_000_000)),
        ]);
        for _ in 0..20 {
            rig.put(0, "bulk", 1_500);
        }
        // 2 Mbit/s, a packet at a time, or one waiting always.
        let (mut voice_ns, joins_ns, mut joined, mut bytes) = (0, 20_000_000_000, false, [0u64; 3]);
        while let Some((start, end, leaf, len)) = rig.send(joins_ns + 2_000_000_000) {
            bytes[leaf] += u64::from(len);
            if leaf > 0 {
                rig.put(end, ["", "bulk", "web"][leaf], 1_500);
            }
            if voice_ns <= end {
                voice_ns = voice_ns.max(start) + if greedy { 700_000 } else { 800_000 };
                rig.put(end, "voice", 200);
            }
            if start >= joins_ns && !joined {
                (joined, bytes) = (true, [0; 3]);
                for _ in 0..20 {
                    rig.put(end, "web", 1_500);
                }
            }
        }
        assert!(bytes[1] > 0 && bytes[1].abs_diff(bytes[2]) < 10_000, "greedy {greedy}: {bytes:?}");
    }
}

/// A busy period begins for all classes alike: what one of them had in the period before is not held
/// against it, whichever joins first. Reversed: where its weight is a quarter, it has less.
#[test]
fn what_a_class_had_in_an_earlier_period_is_forgotten() {
    let ls = |bps| Params::new().with("ls", linear(bps));
    for (weight, first, equal) in
        [(1_000_000, "new", true), (1_000_000, "old", true), (250_000, "new", false)]
    {
        let mut rig = Rig::new(&[("old", None, ls(weight)), ("new", None, ls(1_000_000))]);
        // A second of the link for one class, and then a second without a packet.
        for _ in 0..1_250 {
            rig.put(0, "old", 1_000);
        }
        while rig.send(2_000_000_000).is_some() {}
        rig.free_ns = 2_000_000_000;
        for _ in 0..10 {
            rig.put(rig.free_ns, first, 1_000);
            rig.put(rig.free_ns, if first == "old" { "new" } else { "old" }, 1_000);
        }
        let mut bytes = [0u64; 2];
        while let Some((_, end, leaf, len)) = rig.send(2_100_000_000) {
            bytes[leaf] += u64::from(len);
            rig.put(end, ["old", "new"][leaf], 1_000);
        }
        assert!(bytes[0] + bytes[1] > 120_000, "the link was busy: {bytes:?}");
        assert_eq!(bytes[0].abs_diff(bytes[1]) <= 2_000, equal, "{first} first: {bytes:?}");
    }
}

/// Classes come one after the other with a packet each, the next when that packet has left. However
/// many there are, a class that has packets all the time goes on: any two virtual times stay within a constant of each other
/// [HFSC97 section 4.2]. Reversed: with a twentieth of their weight it waits longer.
#[test]
fn newcomers_do_not_pass_those_who_wait() {
    const NEWCOMERS: usize = 60;
    let ls = |bps| Params::new().with("ls", linear(bps));
    let names: Vec<String> = (0..NEWCOMERS).map(|n| std::format!("n{n}")).collect();
    for (weight, holds) in [(1_000_000, true), (50_000, false)] {
        let mut classes = vec![("a", None, ls(weight)), ("b", None, ls(weight))];
        classes.extend(names.iter().map(|name| (name.as_str(), None, ls(1_000_000))));
        let mut rig = Rig::new(&classes);
        for n in 0..400 {
            rig.put(0, ["a", "b"][n % 2], 1_500);
        }
        let (mut come, mut waits, mut since, mut longest) = (0, false, [0; 2], 0);
        while come < NEWCOMERS {
            let (_, end, leaf, _) = rig.send(u64::MAX).unwrap();
            waits &= leaf < 2;
            // The first ten bring virtual time under way.
            if end > 10 * 1_200_000 && !waits {
                rig.put(end, &names[come], 1_500);
                (come, waits) = (come + 1, true);
            }
            for (class, since) in since.iter_mut().enumerate() {
                *since = if class == leaf { 0 } else { *since + 1 };
                longest = longest.max(*since);
            }
        }
        assert_eq!(longest <= 4, holds, "{longest} packets of others between two of a class");
    }
}
