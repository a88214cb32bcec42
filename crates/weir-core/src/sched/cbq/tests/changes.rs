//! Changes at run time: what they change, and what they leave as it was.

use super::{SECOND, class, discipline, link, port, regulated, saturate, share, source, stat};
use crate::queue::{Params, Value};
use crate::sched::testing::Bench;
use crate::sched::{ClassConfig, Node};
use crate::units::{Duration, Fraction, Instant, Rate};
use alloc::vec;

/// A change to what was there already changes nothing. Reversed: another share does.
#[test]
fn a_change_to_what_it_was_changes_nothing() {
    let run = |change: Option<u64>| {
        let mut classes = regulated(300);
        classes.push(class("bulk", Some(0), 700, true));
        let mut port = port(link(10), discipline("formal", 32), classes);
        if let Some(permille) = change {
            let share = Value::Fraction(Fraction::ratio(permille, 1_000));
            let params = Params::new().with("pbandwidth", share);
            port.reconfigure(Instant::ZERO, "c", &params, &mut |_| {}).unwrap();
        }
        saturate(&mut port, &mut [source(1, &[64]), source(2, &[1_500])], 0, SECOND)
    };
    assert_eq!(run(Some(300)), run(None));
    assert_ne!(run(Some(200)), run(None));
}

#[test]
fn a_class_without_a_share_waits_for_a_change_and_then_sends() {
    let mut port = port(link(10), discipline("top-level", 32), regulated(0));
    let sent = saturate(&mut port, &mut [source(1, &[1500])], 0, SECOND);
    assert_eq!((sent.len(), port.next_wake_up(), port.backlog().packets), (0, Instant::NEVER, 6));
    let params = Params::new().with("pbandwidth", Value::Fraction(Fraction::ratio(1, 2)));
    port.reconfigure(Instant::from_nanos(SECOND), "c", &params, &mut |_| {}).unwrap();
    let sent = saturate(&mut port, &mut [source(1, &[1500])], SECOND, 11 * SECOND);
    let share = share(&sent, 1, link(10), 2 * SECOND, 11 * SECOND);
    assert!((share - 0.5).abs() < 0.015, "{share}");
}

/// A class whose queue is a CBQ of its own that waits: its time and its lender's together. While
/// the lender has no share that is for ever, until a change of the lender alone ends it.
#[test]
fn a_lender_that_gets_a_share_again_ends_the_wait_of_a_child() {
    let queue = Node { discipline: "cbq".into(), params: discipline("formal", 32), classes: regulated(100) };
    let node = Node {
        discipline: "cbq".into(),
        params: discipline("formal", 32),
        classes: vec![
            class("root", None, 1_000, false),
            class("lender", Some(0), 500, false),
            ClassConfig { queue: Some(queue), ..class("borrower", Some(1), 0, true) },
        ],
    };
    for restored in [0, 500] {
        let mut bench = Bench::new(&node, 1);
        let change = |bench: &mut Bench, permille| {
            let share = Value::Fraction(Fraction::ratio(permille, 1_000));
            let params = Params::new().with("pbandwidth", share);
            bench.tree.discipline.reconfigure(&mut bench.cx, "lender", &params).unwrap();
        };
        let leaf = bench.tree.leaves.len() as u32 - 1;
        for _ in 0..50 {
            bench.offer(1_500, |meta| meta.leaf = leaf);
        }
        // Its own share is used up, and that of the lender is not.
        while bench.serve().is_some() {}
        change(&mut bench, 0);
        assert!(bench.serve().is_none());
        change(&mut bench, restored);
        let mut sent = 0;
        for _ in 0..1_000 {
            bench.cx.now += Duration::from_millis(10);
            sent += u32::from(bench.serve().is_some());
        }
        assert_eq!(sent > 20, restored > 0, "{sent} packets with {restored} permille");
    }
}

#[test]
fn a_change_is_made_whole_or_not_at_all() {
    let mut port = port(link(10), discipline("top-level", 32), regulated(300));
    let now = Instant::from_nanos(1);
    let too_much = Params::new()
        .with("priority", Value::Count(5))
        .with("exactbandwidth", Value::Rate(Rate::from_mbps(11)));
    let error = port.reconfigure(now, "c", &too_much, &mut |_| {}).unwrap_err();
    assert_eq!(error.field, "bandwidth");
    assert_eq!((stat(&port, "c", "priority"), stat(&port, "c", "rate")), (1, 3_000_000));
    let change = Params::new().with("priority", Value::Count(5)).with("qlimit", Value::Count(7));
    port.reconfigure(now, "c", &change, &mut |_| {}).unwrap();
    assert_eq!((stat(&port, "c", "priority"), stat(&port, "c", "limit")), (5, 7));
}

/// What the discipline is told before the first packet is as if the file had said it.
#[test]
fn a_change_of_the_rules_is_as_if_the_file_had_said_it() {
    let run = |first: Params, change: Option<&Params>| {
        let mut classes = regulated(300);
        classes.push(class("bulk", Some(0), 500, true));
        classes.push(class("more", Some(0), 100, true));
        let mut port = port(link(10), first, classes);
        if let Some(change) = change {
            port.reconfigure(Instant::ZERO, "", change, &mut |_| {}).unwrap();
        }
        let sources = [source(1, &[64, 1_500]), source(2, &[1_500]), source(3, &[500])];
        let sent = saturate(&mut port, &mut { sources }, 0, SECOND / 2);
        (sent, stat(&port, "bulk", "overs"), stat(&port, "bulk", "maxidle"))
    };
    let one = |field, value| Params::new().with(field, value);
    let mut differ = 0;
    for change in [
        one("link-sharing", Value::Word("ancestor-only")),
        one("link-sharing", Value::Word("top-level")),
        one("gain", Value::Count(64)),
        one("efficient", Value::Flag),
        one("prr", Value::Flag),
        one("minidle", Value::Word("off")),
        one("completion", Value::Word("callback")),
    ] {
        let told = change.iter().fold(discipline("formal", 16), |p, (f, v)| p.with(f, v.clone()));
        let changed = run(discipline("formal", 16), Some(&change));
        assert_eq!(changed, run(told, None), "{change:?}");
        differ += u32::from(changed != run(discipline("formal", 16), None));
    }
    assert!(differ >= 4, "{differ} of the changes change something");
}

/// The queue of a class without `qlimit` holds what leaves within `maxdelay`, whatever its share is by
/// then; one with `qlimit` holds that.
#[test]
fn a_queue_follows_the_share_unless_its_limit_is_given() {
    let mut classes = regulated(300);
    classes[1].params.remove("qlimit");
    let mut port = port(link(10), discipline("formal", 32), classes);
    let mut limit = |params: Params| {
        port.reconfigure(Instant::ZERO, "c", &params, &mut |_| {}).unwrap();
        stat(&port, "c", "limit")
    };
    let share =
        |permille| Params::new().with("pbandwidth", Value::Fraction(Fraction::ratio(permille, 1_000)));
    let delay = |ms| Params::new().with("maxdelay", Value::Time(Duration::from_millis(ms)));
    assert_eq!(limit(Params::new()), 30);
    // 3 Mbit/s for 100 ms are 25 packets of 1,500 bytes.
    assert_eq!(limit(delay(100)), 25);
    assert_eq!(limit(share(600)), 50);
    assert_eq!(limit(delay(1)), 4, "a queue of four packets at least");
    assert_eq!(limit(Params::new().with("qlimit", Value::Count(7))), 7);
    assert_eq!((limit(delay(100)), limit(share(300))), (7, 7));
}
