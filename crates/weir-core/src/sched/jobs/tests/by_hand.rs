//! Single decisions: a few packets by hand, and what becomes of them. Rows J14 to J16 and J22.

use super::{fraction, jobs, mbps, ms, node_of, real, values};
use crate::queue::{DropReason, Link, Params, Value, Verdict};
use crate::sched::testing::{Bench, stat};
use crate::units::{Duration, Instant, Rate};
use std::format;
use std::vec;
use std::vec::Vec;

#[test]
fn j22_an_overdue_class_is_looked_at_by_its_newest_packet() {
    // All at once: 100 packets of 1 ms each for a bound of 20 ms. The whole link is asked for, by
    // one class, which is not more than the link; still what cannot be in time must be dropped.
    let ways = [("delay-first", false), ("loss-first", false), ("loss-first", true)];
    for (leaf, (relax, exact)) in [0, 1].into_iter().flat_map(|leaf| ways.map(|way| (leaf, way))) {
        let mut params = vec![("relax", Value::Word(relax))];
        if exact {
            params.push(("exact-drops", Value::Flag));
        }
        let bound = [("adc", ms(20))];
        let node = jobs(&params, &if leaf == 0 { [&bound[..], &[]] } else { [&[], &bound[..]] });
        let mut bench = Bench::over(&node, Rate::from_mbps(8), 1);
        for _ in 0..100 {
            bench.offer(1000, |m| m.leaf = leaf);
        }
        assert_eq!(bench.tree.discipline.backlog().packets, 20, "{relax} {exact}: 20 packets are in time");
        // The link has stood still: what is late by now is sent late, or dropped.
        bench.cx.now = Instant::from_millis(21);
        assert_eq!(bench.serve().is_some(), relax == "delay-first");
        assert_eq!(bench.tree.discipline.backlog().packets, if relax == "delay-first" { 19 } else { 0 });
        assert!(bench.dropped.iter().all(|(_, reason)| *reason == DropReason::Deadline));
        bench.check();
    }
}

#[test]
fn j22_with_a_nanosecond_left_drops_still_help() {
    // An old packet and a new one. While the old one has time, both must be sent within it: they are not,
    // so both are dropped; but the last stays, if the class has sent nothing yet. Once the old one is
    // overdue, the newest packet counts, which is in time.
    for (left_ns, has_sent, stay) in [(1, true, 0), (1, false, 1), (0, true, 2), (0, false, 2)] {
        let node = jobs(&[("relax", Value::Word("delay-first"))], &[&[("adc", ms(20))], &[]]);
        let mut bench = Bench::over(&node, Rate::from_mbps(8), 1);
        // The other class has packets, so that this is one busy period.
        for leaf in if has_sent { &[1, 1, 0][..] } else { &[1, 1] } {
            bench.offer(1000, |m| m.leaf = *leaf);
        }
        if has_sent {
            assert_eq!(
                core::iter::from_fn(|| bench.serve().map(|m| m.leaf)).find(|leaf| *leaf == 0),
                Some(0)
            );
        }
        let others = bench.tree.discipline.backlog().packets;
        assert!(others > 0);
        bench.offer(1000, |m| m.leaf = 0);
        bench.cx.now = Instant::from_nanos(20_000_000 - left_ns);
        bench.offer(1000, |m| m.leaf = 0);
        let stayed = bench.tree.discipline.backlog().packets - others;
        assert_eq!(stayed, stay, "{left_ns} ns left, {has_sent}");
        bench.check();
    }
}

/// Rates of a class that lost a packet go to those who need them at once, not at the next arrival.
#[test]
fn what_a_drop_frees_is_given_away_at_once() {
    // Both ask for more than the link. The first may drop; the second may not, and is always short.
    let node = jobs(&[], &[&[("adc", ms(20))], &[("adc", ms(20)), ("alc", fraction(0.0))]]);
    let mut bench = Bench::over(&node, Rate::from_mbps(8), 1);
    for (leaf, packets) in [(0, 15), (1, 10)] {
        for _ in 0..packets {
            bench.offer(1000, |m| m.leaf = leaf);
        }
    }
    let dropped = bench.dropped.len();
    bench.cx.now = Instant::from_millis(1);
    bench.offer(1000, |m| m.leaf = 1);
    assert!(bench.dropped.len() > dropped && bench.dropped.iter().all(|(m, _)| m.leaf == 0));
    // 19 ms are left for what the first class still has, at 1 ms a packet; and no more is kept for it.
    let left = 15 - bench.dropped.len() as i64;
    assert!((stat(&*bench.tree.discipline, "share") - left * 1_000_000 / 19).abs() <= 1);
    bench.check();
}

#[test]
fn j14_buffers_are_shared_or_separate() {
    let two: [&[_]; 2] = [&[], &[]];
    let fill = |params: &[(&'static str, Value)]| {
        let mut bench = Bench::new(&jobs(params, &two), 1);
        for _ in 0..500 {
            bench.offer(100, |m| m.leaf = 1);
        }
        let alone = bench.tree.discipline.backlog().packets;
        for _ in 0..500 {
            bench.offer(100, |m| m.leaf = 0);
        }
        bench.check();
        (alone, bench.tree.discipline.backlog().packets)
    };
    assert_eq!(fill(&[]), (200, 200));
    assert_eq!(fill(&[("separate", Value::Flag)]), (200, 400));
    assert_eq!(fill(&[("separate", Value::Flag), ("qlimit", Value::Count(7))]), (7, 14));
}

#[test]
fn j15_the_newest_dies_or_the_oldest() {
    let survivors = |params: &[(&'static str, Value)]| {
        let chain = [("rlc", real(1.0))];
        let mut all = vec![("qlimit", Value::Count(3))];
        all.extend_from_slice(params);
        let mut bench = Bench::new(&jobs(&all, &[&chain, &[]]), 1);
        for _ in 0..5 {
            bench.offer(100, |m| m.leaf = 0);
        }
        let reasons: Vec<_> = bench.dropped.iter().map(|(_, reason)| *reason).collect();
        let left: Vec<u32> = core::iter::from_fn(|| bench.serve().map(|m| m.frame.0)).collect();
        (left, reasons)
    };
    assert_eq!(survivors(&[]), (vec![0, 1, 2], vec![DropReason::Tail; 2]));
    assert_eq!(survivors(&[("drop-head", Value::Flag)]), (vec![2, 3, 4], vec![DropReason::Head; 2]));
}

#[test]
fn j16_accounts_begin_with_a_busy_period_or_an_interval() {
    let loss_after = |params: &[(&'static str, Value)], wait_ns: u64, drain: bool| {
        let chain = [("rlc", real(1.0))];
        let mut all = vec![("qlimit", Value::Count(4))];
        all.extend_from_slice(params);
        let mut bench = Bench::new(&jobs(&all, &[&chain, &[]]), 1);
        for _ in 0..8 {
            bench.offer(100, |m| m.leaf = 0);
        }
        assert_eq!(stat(bench.tree.discipline.as_ref(), "loss_now"), 500_000);
        bench.serve();
        while drain && bench.serve().is_some() {}
        bench.cx.now = Instant::from_nanos(wait_ns);
        bench.offer(100, |m| m.leaf = 0);
        stat(bench.tree.discipline.as_ref(), "loss_now")
    };
    let interval = [("interval", ms(100))];
    assert_eq!((loss_after(&[], 1_000, false), loss_after(&[], 1_000, true)), (444_444, 0));
    assert_eq!(
        (loss_after(&interval, 99_999_999, true), loss_after(&interval, 100_000_000, false)),
        (444_444, 0)
    );
}

#[test]
fn a_discipline_as_a_class_loses_the_packet_that_arrives() {
    let mut node = jobs(&[("qlimit", Value::Count(4))], &[&[], &[("rlc", real(2.0))], &[]]);
    node.classes[1].queue = Some(node_of("fifoq"));
    let mut bench = Bench::new(&node, 1);
    for _ in 0..6 {
        bench.offer(100, |m| m.leaf = 1);
    }
    let dropped: Vec<u32> = bench.dropped.iter().map(|(m, _)| m.frame.0).collect();
    assert_eq!(dropped, [4, 5]);
    bench.check();
    // A delay bound that even the whole link could not keep.
    let mut node = jobs(&[], &[&[("adc", ms(1))], &[]]);
    node.classes[0].queue = Some(node_of("fifoq"));
    let mut bench = Bench::over(&node, Rate::from_mbps(8), 1);
    for _ in 0..3 {
        bench.offer(500, |m| m.leaf = 0);
    }
    assert_eq!(
        bench.dropped.iter().map(|(m, r)| (m.frame.0, *r)).collect::<Vec<_>>(),
        [(2, DropReason::Deadline)]
    );
    bench.check();
}

/// What classes are owed ends with a busy period: the next one is as the first was.
#[test]
fn a_busy_period_begins_with_nobody_owed_anything() {
    let mut bench = Bench::new(&jobs(&[], &[&[], &[]]), 1);
    let mut period = |sizes: &[(u32, u32)]| {
        for &(leaf, len) in sizes {
            bench.offer(len, |m| m.leaf = leaf);
        }
        core::iter::from_fn(|| bench.serve().map(|m| m.leaf)).collect::<Vec<u32>>()
    };
    let equal = [(0, 100), (0, 100), (1, 100), (1, 100)];
    let first = period(&equal);
    // The first class goes first and has far more than its half.
    assert_eq!(period(&[(0, 1_500), (1, 100)]), [0, 1]);
    assert_eq!(period(&equal), first);
}

/// The oldest packet of a discipline that is a class counts, not the newest: with 1 ms left of its 20
/// both packets of the class go before the other class.
#[test]
fn a_discipline_as_a_class_is_as_old_as_its_oldest_packet() {
    let order = |second_ms: u64| {
        let mut node = jobs(&[], &[&[("adc", ms(20))], &[]]);
        node.classes[0].queue = Some(node_of("fifoq"));
        let mut bench = Bench::over(&node, Rate::from_mbps(8), 1);
        bench.cx.now = Instant::from_millis(100);
        bench.offer(500, |m| m.leaf = 0);
        bench.cx.now = Instant::from_millis(100 + second_ms);
        for leaf in [0, 1, 1, 1] {
            bench.offer(500, |m| m.leaf = leaf);
        }
        let sent: Vec<u32> = core::iter::from_fn(|| bench.serve().map(|m| m.leaf)).collect();
        bench.check();
        sent
    };
    assert_eq!(order(19), [0, 0, 1, 1, 1]);
    assert_ne!(order(0)[..2], [0, 0], "reversed: with all the time there is, they take turns");
}

#[test]
fn promises_change_whole_or_not_at_all() {
    let mut bench = Bench::new(&jobs(&[("qlimit", Value::Count(5))], &[&[], &[]]), 1);
    let mut set = |class: &str, params: Params| {
        bench.tree.discipline.reconfigure(&mut bench.cx, class, &params).map_err(|e| format!("{e}"))
    };
    let wrong = Params::new().with("arc", mbps(1.0)).with("rdc", real(0.0));
    assert_eq!(
        set("c0", wrong).unwrap_err(),
        "class c0: rdc: found 0, expected a number above 0, or -1 for no ratio"
    );
    let wrong = Params::new().with("alc", fraction(0.1)).with("priority", Value::Count(3));
    assert_eq!(
        set("c0", wrong).unwrap_err(),
        "class c0: priority: found 3, expected 0, as it is: change the file and reload it"
    );
    assert!(set("", Params::new().with("qlimit", Value::Count(0)).with("sample", Value::Count(9))).is_err());
    assert!(set("nobody", Params::new()).is_err());
    let least = Value::Real(crate::units::Fixed::from_raw(1));
    set("c0", Params::new().with("rlc", least)).unwrap();
    set("c0", Params::new().with("adc", ms(3)).with("rlc", real(1.5))).unwrap();
    set("", Params::new().with("qlimit", Value::Count(2))).unwrap();
    for _ in 0..5 {
        bench.offer(100, |m| m.leaf = 0);
    }
    assert_eq!(bench.tree.discipline.backlog().packets, 2);
    bench.check();
}

/// The rates are moved at the first arrival and at every tenth after it, not at those between; unless
/// the set of backlogged classes changes. A change to `sample` counts at once.
#[test]
fn j27_rates_move_at_every_sample_and_at_no_other_arrival() {
    let chain = [("rdc", real(2.0))];
    let node = jobs(&[("sample", Value::Count(10))], &[&chain, &chain, &[]]);
    let mut bench = Bench::over(&node, Rate::from_mbps(8), 1);
    let moves = |bench: &mut Bench, arrivals: u32, leaf: u32| -> Vec<u32> {
        let mut moved = Vec::new();
        for n in 0..arrivals {
            let before = values(bench, "share");
            bench.cx.now += Duration::from_millis(1);
            // A single class grows, so that every step has something to move.
            bench.offer(1_000, |m| m.leaf = leaf);
            moved.extend((values(bench, "share") != before).then_some(n));
        }
        moved
    };
    assert_eq!(moves(&mut bench, 1, 0), [0]);
    // The second class comes in between: a reset, which is a first arrival again.
    assert_eq!(moves(&mut bench, 25, 1), [0, 10, 20]);
    let sample = |n| Params::new().with("sample", Value::Count(n));
    bench.tree.discipline.reconfigure(&mut bench.cx, "", &sample(3)).unwrap();
    // Five of ten were left; now it is two.
    assert_eq!(moves(&mut bench, 10, 1), [2, 5, 8]);
    bench.tree.discipline.reconfigure(&mut bench.cx, "", &sample(100)).unwrap();
    assert_eq!(moves(&mut bench, 10, 1), [1], "what is under way ends as it would have");
    bench.check();
}

/// A class that begins to send has its part of the link at once, however rare the samples are.
#[test]
fn j20_a_class_that_comes_is_served_before_the_next_sample() {
    let node = jobs(&[("sample", Value::Count(1_000))], &[&[], &[]]);
    let mut bench = Bench::new(&node, 1);
    for leaf in [0, 0, 0, 0, 0, 0, 1, 1] {
        bench.offer(100, |m| m.leaf = leaf);
    }
    let sent: Vec<u32> = core::iter::from_fn(|| bench.serve().map(|m| m.leaf)).take(4).collect();
    assert_eq!(sent.iter().filter(|&&leaf| leaf == 1).count(), 2, "{sent:?}");
}

/// While packets of another tree are taken over, bounds that cannot hold drop nothing. Reversed: the
/// same packets as arrivals lose most of them.
#[test]
fn j22_adoption_drops_nothing_for_a_bound() {
    for (adopting, exact) in [(true, false), (true, true), (false, false), (false, true)] {
        let params: &[_] = if exact { &[("exact-drops", Value::Flag)] } else { &[] };
        let node = jobs(params, &[&[("adc", ms(5))], &[("adc", ms(5))]]);
        let mut bench = Bench::over(&node, Rate::from_mbps(8), 1);
        bench.cx.adopting = adopting;
        for n in 0..40 {
            bench.offer(1_000, |m| m.leaf = n % 2);
        }
        assert_eq!(bench.dropped.is_empty(), adopting, "exact {exact}");
        assert!(adopting || bench.dropped.len() > 20, "{}", bench.dropped.len());
        bench.check();
    }
}

/// A packet that leaves just when its bound ends is in time; a nanosecond later it is late, and under
/// `loss-first` dropped.
#[test]
fn j11_a_packet_is_late_from_the_nanosecond_after_its_bound() {
    for (relax, over_ns) in [("delay-first", 0), ("delay-first", 1), ("loss-first", 0), ("loss-first", 1)] {
        let node = jobs(&[("relax", Value::Word(relax))], &[&[("adc", ms(20))], &[]]);
        let mut bench = Bench::over(&node, Rate::from_mbps(8), 1);
        bench.offer(1_000, |m| m.leaf = 0);
        bench.cx.now = Instant::from_nanos(20_000_000 + over_ns);
        let sent = bench.serve().is_some();
        assert_eq!(sent, relax == "delay-first" || over_ns == 0, "{relax}, {over_ns} ns over");
        let late = i64::from(sent && over_ns > 0);
        assert_eq!(values(&bench, "late"), [late, 0], "{relax}, {over_ns} ns over");
        bench.check();
    }
}

/// What the wire adds to each packet counts for bounds: of packets that take 1.5 ms with it, two are
/// out within 3 ms; of the discipline that is a class the third is refused.
#[test]
fn bounds_count_what_the_wire_adds() {
    for queue in [None, Some(node_of("fifoq"))] {
        let mut node = jobs(&[], &[&[("adc", ms(3))], &[]]);
        node.classes[0].queue = queue;
        let mut bench = Bench::over(&node, Rate::from_mbps(8), 1);
        bench.cx.link = Link::new(Rate::from_mbps(8), 1_000, 1_514);
        let verdicts = [0; 4].map(|leaf| bench.offer(500, |m| m.leaf = leaf));
        assert_eq!(verdicts, [Verdict::Queued, Verdict::Queued, Verdict::Dropped, Verdict::Dropped]);
        bench.check();
    }
}

/// An inner discipline whose limit is lowered drops packets: they are losses of its class, and of no
/// other. What the wire adds is not among the bytes.
#[test]
fn what_a_smaller_queue_drops_is_lost() {
    for overhead in [0, 24] {
        let mut node = jobs(&[], &[&[], &[]]);
        node.classes[1].queue = Some(node_of("fqcodel"));
        let mut bench = Bench::new(&node, 1);
        bench.cx.link = Link::new(Rate::from_mbps(10), overhead, 1_514);
        for n in 0..10 {
            bench.offer(100 + n / 2, |m| m.leaf = n % 2);
        }
        let params = Params::new().with("qlimit", Value::Count(2));
        bench.tree.discipline.reconfigure(&mut bench.cx, "c1", &params).unwrap();
        let mut lost = 0;
        while let Some((id, _)) = bench.cx.next_dropped() {
            let row = bench.cx.packets.get(&id);
            assert_eq!(row.leaf, 1);
            lost += i64::from(row.len);
            bench.cx.packets.remove(id);
        }
        assert!(lost > 300, "three of five packets are dropped");
        assert_eq!(values(&bench, "dropped_bytes")[..2], [0, lost], "overhead {overhead}");
        bench.check();
    }
}

#[test]
fn a_packet_for_a_leaf_that_is_not_below_is_reported_and_dropped() {
    let mut bench = Bench::new(&jobs(&[], &[&[], &[]]), 1);
    assert_eq!(bench.offer(100, |m| m.leaf = 2), Verdict::Dropped);
    assert_eq!(bench.cx.is_broken().map(|broken| broken.discipline), Some("jobs"));
    let reasons: Vec<_> = bench.dropped.iter().map(|(_, reason)| *reason).collect();
    assert_eq!(reasons, [DropReason::Reconfigure]);
    assert_eq!(bench.tree.discipline.backlog().packets, 0);
}

/// A packet that stays, though not even the link could have it out in time, costs other classes nothing.
/// Reversed: where its class may lose it, drops go on until the rest fits.
#[test]
fn a_packet_that_stays_costs_others_nothing() {
    for (first_has_sent, lost) in [(false, [0, 0]), (true, [1, 1])] {
        let node = jobs(&[("exact-drops", Value::Flag)], &[&[("adc", ms(1))], &[("adc", ms(100))]]);
        let mut bench = Bench::over(&node, Rate::from_mbps(8), 1);
        // 60 packets of 0.5 ms, all of them in time, and both classes or the second alone have sent.
        for leaf in if first_has_sent { &[0, 1][..] } else { &[1] } {
            bench.offer(500, |m| m.leaf = *leaf);
        }
        for _ in 0..60 {
            bench.offer(500, |m| m.leaf = 1);
        }
        while bench.tree.discipline.backlog().packets > 60 {
            assert!(bench.serve().is_some());
        }
        assert!(bench.dropped.is_empty(), "{:?}", bench.dropped);
        bench.offer(1_500, |m| m.leaf = 0);
        let lost_of = |leaf| bench.dropped.iter().filter(|(m, _)| m.leaf == leaf).count();
        assert_eq!([0, 1].map(lost_of), lost, "{first_has_sent}");
        bench.check();
    }
}
