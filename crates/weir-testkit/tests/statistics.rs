//! What the statistics of a discipline count is what happened: marks, drops, packets and waits, as a
//! host that watches every packet counts them.

use std::collections::BTreeMap;
use weir_core::Random;
use weir_core::packet::Meta;
use weir_core::queue::{DropReason, Value, Verdict, Visit};
use weir_core::sched::testing::{Bench, class, node};
use weir_core::sched::{ClassConfig, Node};
use weir_core::units::{Fraction, Instant};

/// Values by name, added up over all classes.
#[derive(Default)]
struct Sums(BTreeMap<&'static str, i64>);

impl Visit for Sums {
    fn class(&mut self, _: &str, _: u32) {}
    fn value(&mut self, name: &'static str, _: &'static str, value: i64) {
        *self.0.entry(name).or_default() += value;
    }
}

impl Sums {
    /// The sum of those values. Each must be there.
    fn of(&self, names: &[&str]) -> i64 {
        names.iter().map(|name| self.0.get(name).unwrap_or_else(|| panic!("no `{name}`"))).sum()
    }
}

/// What a host saw.
#[derive(Default, Debug)]
struct Seen {
    sent: i64,
    sent_bytes: i64,
    arrived_bytes: i64,
    dropped_bytes: i64,
    refused: i64,
    marked: i64,
    dropped: BTreeMap<String, i64>,
    longest_wait_ns: u64,
}

impl Seen {
    fn dropped(&self, reasons: &[DropReason]) -> i64 {
        reasons.iter().map(|reason| self.dropped.get(&format!("{reason:?}")).copied().unwrap_or(0)).sum()
    }
    fn leaves(&mut self, bench: &mut Bench, row: &Meta) {
        self.sent += 1;
        self.sent_bytes += i64::from(row.len);
        self.marked += i64::from(row.is_marked());
        self.longest_wait_ns = self.longest_wait_ns.max(bench.cx.now.since(row.arrival).as_nanos());
    }
    fn drops(&mut self, bench: &mut Bench) {
        for (row, reason) in bench.dropped.drain(..) {
            *self.dropped.entry(format!("{reason:?}")).or_default() += 1;
            self.dropped_bytes += i64::from(row.len);
            // Marked at its arrival, and dropped later.
            self.marked += i64::from(row.is_marked());
            self.longest_wait_ns = match reason {
                // Found too old at its departure.
                DropReason::Head => self.longest_wait_ns.max(bench.cx.now.since(row.arrival).as_nanos()),
                _ => self.longest_wait_ns,
            };
        }
    }
}

/// One packet leaves, and its time passes.
fn step(bench: &mut Bench, seen: &mut Seen) {
    let sent = bench.serve();
    if let Some(row) = &sent {
        seen.leaves(bench, row);
    }
    seen.drops(bench);
    bench.pass(sent.map_or(200, |row| row.len));
}

/// Twelve flows of all code points offer up to twice what the link carries, by turns more and less.
fn watch(node: &Node) -> (Seen, Sums) {
    let (mut bench, mut random) = (Bench::new(node, weir_seed::seed()), Random::new(weir_seed::seed()));
    let leaves = bench.tree.leaves.len() as u64;
    let (mut seen, mut due) = (Seen::default(), Instant::from_millis(1));
    bench.cx.now = due;
    for n in 0..20_000u64 {
        let load = if n / 2_000 % 2 == 0 { 2 } else { 1 };
        while due <= bench.cx.now {
            let (flow, len) = (random.below(12) as u32, 64 + random.below(1_400) as u32);
            let leaf = random.below(leaves) as u32;
            let verdict = bench.offer(len, |row| {
                (row.flow, row.src_hash, row.leaf) = (flow.wrapping_mul(0x9e37_79b9), flow, leaf);
                row.ecn = (flow % 3) as u8;
                row.tos_in = row.ecn;
                row.dscp = [10, 12, 14, 0][(flow / 3) as usize];
            });
            seen.arrived_bytes += i64::from(len);
            seen.refused += i64::from(verdict == Verdict::Dropped);
            due += bench.cx.link.time_for(len / load).ceil().since(Instant::ZERO);
        }
        step(&mut bench, &mut seen);
    }
    while !bench.tree.discipline.is_empty() {
        step(&mut bench, &mut seen);
    }
    bench.check();
    let mut sums = Sums::default();
    bench.tree.discipline.visit_stats(&mut sums);
    (seen, sums)
}

fn with_classes(name: &str, classes: Vec<ClassConfig>) -> Node {
    Node { classes, ..node(name, &[]) }
}

fn count(n: u64) -> Value {
    Value::Count(n)
}

#[test]
fn the_statistics_of_an_aqm_count_what_happened() {
    use DropReason::{Early, Head, Pushout, Tail};
    type Counts = (&'static [&'static str], &'static [DropReason]);
    let cases: [(&str, u64, &[Counts], &[&str]); 6] = [
        (
            "blue",
            30,
            &[(&["dropped_early"], &[Early]), (&["dropped_full"], &[Tail, Pushout])],
            &["marked_early"],
        ),
        ("red", 60, &[(&["dropped_early", "dropped_forced"], &[Early, Tail])], &["marked_early"]),
        (
            "rio",
            200,
            &[(
                &["lo_early", "med_early", "hi_early", "lo_forced", "med_forced", "hi_forced"],
                &[Early, Tail],
            )],
            &["lo_marked", "med_marked", "hi_marked"],
        ),
        ("pie", 2_000, &[(&["dropped_early"], &[Early])], &["marked_early"]),
        ("codel", 2_000, &[(&["dropped_by_codel"], &[Head])], &["marked"]),
        ("fqcodel", 100, &[(&["dropped_by_codel"], &[Head]), (&["pushed_out"], &[Pushout])], &["marked"]),
    ];
    for (name, limit, drops, marks) in cases {
        let ecn: &[(&str, Value)] = if name == "fqcodel" { &[] } else { &[("ecn", Value::Flag)] };
        let (seen, sums) = watch(&node(name, &[&[("qlimit", count(limit))], ecn].concat()));
        for (names, reasons) in drops {
            assert!(seen.dropped(reasons) > 0, "{name}: {reasons:?} never happened: {seen:?}");
            assert_eq!(sums.of(names), seen.dropped(reasons), "{name}: {names:?}: {seen:?}");
        }
        assert!(seen.marked > 0, "{name}: {seen:?}");
        assert_eq!(sums.of(marks), seen.marked, "{name}: {marks:?}");
        assert_eq!(sums.of(&["marked"]), seen.marked, "{name}: marked");
        if sums.0.contains_key("longest_wait") {
            assert_eq!(sums.of(&["longest_wait"]), seen.longest_wait_ns as i64, "{name}: longest_wait");
        }
    }
}

#[test]
fn the_statistics_of_a_discipline_count_what_happened() {
    let (seen, sums) = watch(&node("dualpi2", &[("qlimit", count(2_000))]));
    assert!(seen.marked > 0 && seen.dropped(&[DropReason::Head]) > 0, "{seen:?}");
    assert_eq!(sums.of(&["sent"]), seen.sent, "dualpi2");
    assert_eq!(sums.of(&["marked"]), seen.marked, "dualpi2");
    assert_eq!(sums.of(&["dropped"]), seen.dropped(&[DropReason::Head]), "dualpi2");

    for name in ["drr", "wfq"] {
        let (seen, sums) = watch(&node(name, &[]));
        assert!(seen.dropped(&[DropReason::Pushout]) > 0, "{name}: {seen:?}");
        assert_eq!(sums.of(&["sent"]), seen.sent, "{name}");
        assert_eq!(sums.of(&["dropped"]), seen.dropped(&[DropReason::Pushout]), "{name}");
        assert_eq!(sums.of(&["pushed_out"]), seen.dropped(&[DropReason::Pushout]), "{name}");
    }

    let priority = |n| ("priority", count(n));
    let mut jobs = with_classes("jobs", vec![class("a", &[priority(0)]), class("b", &[priority(1)])]);
    jobs.params.set("qlimit", count(50));
    let (seen, sums) = watch(&jobs);
    assert!(seen.dropped_bytes > 0, "jobs: {seen:?}");
    assert_eq!(sums.of(&["arrived_bytes"]), seen.arrived_bytes, "jobs");
    assert_eq!(sums.of(&["dropped_bytes"]), seen.dropped_bytes, "jobs");

    let rate = |bps| Value::Rate(weir_core::units::Rate::from_bps(bps));
    let shares =
        || vec![class("a", &[("bandwidth", rate(4_000_000))]), class("b", &[("bandwidth", rate(5_000_000))])];
    let (seen, sums) = watch(&with_classes("hfsc", shares()));
    assert_eq!((sums.of(&["packets"]), sums.of(&["bytes"])), (seen.sent, seen.sent_bytes), "hfsc");

    let part = |percent| ("pbandwidth", Value::Fraction(Fraction::ratio(percent, 100)));
    let leaf = |name: &str, percent| ClassConfig {
        parent: Some(0),
        ..class(name, &[part(percent), ("borrow", Value::Flag)])
    };
    let (seen, sums) =
        watch(&with_classes("cbq", vec![class("root", &[part(100)]), leaf("a", 40), leaf("b", 50)]));
    assert!(seen.refused > 0, "cbq: {seen:?}");
    assert_eq!((sums.of(&["packets"]), sums.of(&["bytes"])), (seen.sent, seen.sent_bytes), "cbq");
    assert_eq!(sums.of(&["refused"]), seen.refused, "cbq");
}
