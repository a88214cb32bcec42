//! What EDF and CHOKe are for, driven by hand, and reversed.

use weir_core::queue::Value;
use weir_core::sched::Registry;
use weir_core::sched::testing::{Bench, class, node};
use weir_core::units::{Duration, Rate};

fn registry() -> Registry {
    let mut registry = Registry::builtin();
    registry.register(own_discipline::edf::ENTRY);
    registry.register_aqm(own_discipline::choke::ENTRY);
    registry
}

/// The longest delay in ms of a small packet each 10 ms beside bursts of 40 large ones, at 10 Mbit/s.
fn worst_delay(urgent_ms: u64, bulk_ms: u64) -> u64 {
    let mut tree = node("edf", &[]);
    for (name, ms) in [("urgent", urgent_ms), ("bulk", bulk_ms)] {
        let deadline = ("deadline", Value::Time(Duration::from_millis(ms)));
        tree.classes.push(class(name, &[deadline]));
    }
    let mut bench = Bench::of(&registry(), &tree, Rate::from_mbps(10), weir_seed::seed());
    let (mut worst, mut burst, mut call) = (0, 0, 0);
    while bench.cx.now.as_nanos() < 2_000_000_000 {
        let now = bench.cx.now.as_nanos() / 1_000_000;
        while burst <= now {
            for _ in 0..40 {
                bench.offer(1250, |packet| packet.leaf = 1);
            }
            burst += 50;
        }
        while call <= now {
            bench.offer(125, |packet| packet.leaf = 0);
            call += 10;
        }
        match bench.serve() {
            Some(sent) => {
                bench.pass(sent.len);
                if sent.leaf == 0 {
                    worst = worst.max(bench.cx.now.since(sent.arrival).as_nanos() / 1_000_000);
                }
            }
            None => bench.cx.now += Duration::from_millis(1),
        }
    }
    bench.check();
    worst
}

#[test]
fn a_deadline_is_kept_that_fifo_misses() {
    let kept = worst_delay(5, 100);
    assert!(kept <= 5, "{kept} ms");
    // Reversed: with equal deadlines the order is that of arrival.
    let missed = worst_delay(100, 100);
    assert!(missed > 20, "{missed} ms");
    // The urgent class is no priority class: a deadline far away waits for bulk whose own is near.
    let late = worst_delay(100, 5);
    assert!(late > 20, "{late} ms");
}

/// The share in percent of a flow that sends at 1.5 times the link beside 8 flows of a tenth each.
fn share_of_the_hog(aqm: &str) -> u64 {
    let mut tree = node("priq", &[]);
    let limit = ("qlimit", Value::Count(200));
    let words = match aqm {
        "choke" => vec![("choke", Value::Flag), limit],
        _ => vec![("red", Value::Flag), ("thmin", Value::Count(10)), ("thmax", Value::Count(30)), limit],
    };
    tree.classes.push(class("all", &words));
    let mut bench = Bench::of(&registry(), &tree, Rate::from_mbps(10), weir_seed::seed());
    let (mut sent, mut hog) = (0, 0);
    for ms in 0..20_000u64 {
        for offer in 0..23u64 {
            // Per 10 ms: 15 packets of the hog, and one of each of the 8 others.
            if offer % 10 == ms % 10 {
                let flow = if offer < 15 { 99 } else { offer as u32 };
                bench.offer(1250, |packet| packet.flow = flow);
            }
        }
        if let Some(packet) = bench.serve() {
            sent += 1;
            hog += u64::from(packet.flow == 99);
        }
        bench.cx.now += Duration::from_millis(1);
    }
    bench.check();
    100 * hog / sent
}

#[test]
fn an_unresponsive_flow_is_held_down() {
    let (choke, red) = (share_of_the_hog("choke"), share_of_the_hog("red"));
    // RED takes from all alike: the hog keeps 15 of 23. CHOKe gives the others most of what they ask.
    assert!(red >= 55, "RED gives the hog {red} %");
    assert!(choke + 15 <= red, "CHOKe gives the hog {choke} %, RED {red} %");
}
