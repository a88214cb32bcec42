//! Changes at run time: from when they count, and what they leave as it was.

use super::*;

/// A new upper limit counts from the change on: what the class had before is not held against it.
/// Reversed: without the limit it has more.
#[test]
fn a_new_limit_counts_from_the_change_on() {
    let ls = Params::new().with("ls", linear(1_000_000));
    for (limit, holds) in [(Some(1_000_000), true), (None, false)] {
        let mut rig = Rig::new(&[("a", None, ls.clone())]);
        let (mut changed, mut bytes) = (false, 0);
        for _ in 0..10 {
            rig.put(0, "a", 1_000);
        }
        while let Some((start, end, _, len)) = rig.send(2_000_000_000) {
            rig.put(end, "a", 1_000);
            bytes += u64::from(len);
            if start >= 1_000_000_000 && !changed {
                assert!(bytes > 1_200_000, "it had the link: {bytes}");
                (changed, bytes) = (true, 0);
                if let Some(bps) = limit {
                    let params = Params::new().with("ul", linear(bps));
                    rig.hfsc.reconfigure(&mut rig.cx, "a", &params).unwrap();
                }
            }
        }
        // 125,000 bytes, and two packets of 1,500 that a class may catch up on.
        assert_eq!((121_000..=129_000).contains(&bytes), holds, "{bytes}");
    }
}

/// New shares count from the change on, for classes that have packets all the while: what they had
/// before is not made up for. Reversed: without the change they go on as before.
#[test]
fn new_shares_count_from_the_change_on() {
    for (change, expected) in [(true, 750_000..=1_000_000), (false, 240_000..=260_000)] {
        let ls = |bps| Params::new().with("ls", linear(bps));
        let mut rig = Rig::new(&[("a", None, ls(2_000_000)), ("b", None, ls(6_000_000))]);
        for _ in 0..4_000 {
            rig.put(0, "a", 1_000);
            rig.put(0, "b", 1_000);
        }
        let mut bytes = [0u64; 2];
        while let Some((_, _, leaf, len)) = rig.send(1_000_000_000) {
            bytes[leaf] += u64::from(len);
        }
        assert!(bytes[0].abs_diff(312_500) <= 2_000, "a quarter of the link: {bytes:?}");
        if change {
            rig.hfsc.reconfigure(&mut rig.cx, "a", &ls(8_000_000)).unwrap();
            rig.hfsc.reconfigure(&mut rig.cx, "b", &ls(2_000_000)).unwrap();
        }
        let mut after = [0u64; 2];
        // From the first packet on: four of five, or one of four.
        while let Some((_, _, leaf, len)) = rig.send(1_800_000_000) {
            after[leaf] += u64::from(len);
        }
        let (a, all) = (after[0], after[0] + after[1]);
        assert!(all.abs_diff(1_000_000) <= 2_000, "{after:?}");
        let share = if change { all * 4 / 5 } else { all / 4 };
        assert!(a.abs_diff(share) <= 3_000 && expected.contains(&a), "change {change}: {after:?}");
    }
}

/// A class that waits for its upper limit, or for that of its parent, goes on at once when it is raised.
#[test]
fn a_raised_limit_ends_the_wait() {
    for (limited, raised) in [("top", true), ("top", false), ("a", true), ("a", false)] {
        let with = |bps| Params::new().with("ls", linear(1_000_000)).with("ul", linear(bps));
        let of = |name| with(if name == limited { 1_000 } else { LINK_BPS });
        let mut rig = Rig::new(&[("top", None, of("top")), ("a", Some(0), of("a"))]);
        for _ in 0..20 {
            rig.put(0, "a", 1_000);
        }
        while rig.send(1_000_000).is_some() {}
        let waiting = rig.hfsc.backlog().packets;
        assert!(waiting > 10, "1,000 bytes take 8 s at the limit");
        if raised {
            rig.hfsc.reconfigure(&mut rig.cx, limited, &with(LINK_BPS)).unwrap();
            rig.hfsc.check(&rig.cx).unwrap();
        }
        while rig.send(100_000_000).is_some() {}
        assert_eq!(rig.hfsc.backlog().packets, if raised { 0 } else { waiting }, "{limited}");
    }
}

/// A guarantee alone is enough for a leaf, and a share alone for any class.
#[test]
fn a_change_is_taken_where_the_class_can_do_with_it() {
    let rt = Params::new().with("rt", linear(1_000_000));
    let ls = Params::new().with("ls", linear(2_000_000));
    let mut rig = Rig::new(&[("x", None, ls.clone()), ("leaf", Some(0), rt.clone())]);
    rig.put(0, "leaf", 1_000);
    for (class, params) in [("leaf", &rt), ("leaf", &ls), ("x", &ls)] {
        assert_eq!(rig.hfsc.reconfigure(&mut rig.cx, class, params), Ok(()), "{class}: {params:?}");
        rig.hfsc.check(&rig.cx).unwrap();
    }
}
