//! Evidence: constant sources through the whole discipline. Rows J05 to J28. Single decisions are in
//! `by_hand`; `arithmetic`, `feedback` and `accounts` hold it against plain models.

use super::weights::{HEAVIEST, Weight};
use crate::Random;
use crate::queue::{Params, Value, Visit};
use crate::sched::testing::{Bench, class, node};
use crate::sched::{ClassConfig, Node};
use crate::units::{Duration, Fixed, Fraction, Instant, Rate};
use std::format;
use std::vec;
use std::vec::Vec;

mod accounts;
mod arithmetic;
mod by_hand;
mod feedback;
mod progress;

pub(super) const SECOND: u64 = 1_000_000_000;

pub(super) fn real(x: f64) -> Value {
    Value::Real(Fixed::from_raw((x * 4_294_967_296.0) as i64))
}
pub(super) fn fraction(x: f64) -> Value {
    Value::Fraction(Fraction::ratio((x * 1e9) as u64, 1_000_000_000))
}
pub(super) fn ms(n: u64) -> Value {
    Value::Time(Duration::from_millis(n))
}
fn mbps(x: f64) -> Value {
    Value::Rate(Rate::from_bps((x * 1e6) as u64))
}
fn node_of(discipline: &str) -> Node {
    Node { discipline: discipline.into(), params: Params::new(), classes: Vec::<ClassConfig>::new() }
}

/// What every class shows under that name, in the order of their priorities.
fn values(bench: &Bench, name: &'static str) -> Vec<i64> {
    struct All(&'static str, Vec<i64>);
    impl Visit for All {
        fn class(&mut self, _: &str, _: u32) {}
        fn value(&mut self, name: &'static str, _: &'static str, value: i64) {
            if name == self.0 {
                self.1.push(value);
            }
        }
    }
    let mut all = All(name, Vec::new());
    bench.tree.discipline.visit_stats(&mut all);
    all.1
}

/// Classes c0, c1, ... of priorities 0, 1, ...
pub(super) fn jobs(params: &[(&'static str, Value)], classes: &[&[(&'static str, Value)]]) -> Node {
    let mut node = node("jobs", params);
    for (n, terms) in classes.iter().enumerate() {
        let mut class = class(&format!("c{n}"), terms);
        class.params.set("priority", Value::Count(n as u64));
        node.classes.push(class);
    }
    node
}

/// A source of `len` bytes at `bps` into one leaf.
#[derive(Clone, Copy)]
pub(super) struct Source {
    pub(super) leaf: u32,
    pub(super) len: u32,
    pub(super) bps: u64,
    /// Packets at once; the rate is the mean.
    pub(super) burst: u32,
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
}

pub(super) fn source(leaf: u32, len: u32, mbps: f64) -> Source {
    Source { leaf, len, bps: (mbps * 1e6) as u64, burst: 1, from_ns: 0, to_ns: u64::MAX }
}

/// What happened in one window to one class.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Cell {
    offered: u64,
    sent: u64,
    dropped: u64,
    packets: u64,
    dropped_packets: u64,
    delay_ns: u64,
    pub(super) longest_ns: u64,
}

impl Cell {
    pub(super) fn delay(&self) -> f64 {
        self.delay_ns as f64 / self.packets as f64 / 1e6
    }
    fn loss(&self) -> f64 {
        self.dropped as f64 / self.offered as f64
    }
    fn rate(&self, window_ns: u64) -> f64 {
        self.sent as f64 * 8e9 / window_ns as f64
    }
}

/// `seconds` of `sources` through `node` over `bps`; windows of `window_ns`, then classes.
pub(super) fn run(node: &Node, bps: u64, sources: &[Source], seconds: u64, window_ns: u64) -> Vec<Vec<Cell>> {
    run_on(Bench::over(node, Rate::from_bps(bps), 1), node.classes.len(), sources, seconds, window_ns)
}

pub(super) fn run_on(
    mut bench: Bench,
    classes: usize,
    sources: &[Source],
    seconds: u64,
    window_ns: u64,
) -> Vec<Vec<Cell>> {
    let end = seconds * SECOND;
    let mut table = vec![vec![Cell::default(); classes]; (end / window_ns) as usize + 2];
    let mut random = Random::new(weir_seed::seed());
    let gap = |s: &Source| u64::from(s.len * s.burst) * 8 * SECOND / s.bps;
    let mut due: Vec<u64> = sources.iter().map(|s| s.from_ns + random.below(gap(s))).collect();
    let (mut free, mut seen) = (0, 0);
    while free < end {
        let next = (0..due.len()).min_by_key(|&i| due[i]).expect("a source");
        let arrives = due[next] <= free || bench.tree.discipline.is_empty();
        if arrives && due[next] == u64::MAX {
            break;
        }
        bench.cx.now =
            Instant::from_nanos(if arrives { due[next].max(bench.cx.now.as_nanos()) } else { free });
        let now = bench.cx.now.as_nanos();
        let window = (now / window_ns) as usize;
        if arrives {
            let s = &sources[next];
            free = free.max(now);
            due[next] = if due[next] + gap(s) < s.to_ns { due[next] + gap(s) } else { u64::MAX };
            for _ in 0..s.burst {
                table[window][s.leaf as usize].offered += u64::from(s.len);
                bench.offer(s.len, |m| m.leaf = s.leaf);
            }
        } else if let Some(sent) = bench.serve() {
            let cell = &mut table[window][sent.leaf as usize];
            let delay = now - sent.arrival.as_nanos();
            cell.sent += u64::from(sent.len);
            cell.packets += 1;
            cell.delay_ns += delay;
            cell.longest_ns = cell.longest_ns.max(delay);
            free = now + bench.cx.link.time_for(sent.len).ceil().as_nanos();
        } else {
            assert!(bench.tree.discipline.is_empty(), "J12: the link idles while packets wait");
        }
        for (meta, _) in &bench.dropped[seen..] {
            let cell = &mut table[window][meta.leaf as usize];
            cell.dropped += u64::from(meta.len);
            cell.dropped_packets += 1;
        }
        seen = bench.dropped.len();
    }
    bench.check();
    table
}

/// One window over everything after `skip` windows.
pub(super) fn total(table: &[Vec<Cell>], skip: usize) -> Vec<Cell> {
    let mut sum = vec![Cell::default(); table[0].len()];
    for row in &table[skip..] {
        for (sum, cell) in sum.iter_mut().zip(row) {
            sum.offered += cell.offered;
            sum.sent += cell.sent;
            sum.dropped += cell.dropped;
            sum.packets += cell.packets;
            sum.dropped_packets += cell.dropped_packets;
            sum.delay_ns += cell.delay_ns;
            sum.longest_ns = sum.longest_ns.max(cell.longest_ns);
        }
    }
    sum
}

fn near(value: f64, expected: f64, relative: f64) -> bool {
    (value / expected - 1.0).abs() <= relative
}

pub(super) const HALF: u64 = SECOND / 2;
/// Four constant sources of 2.6 Mbit/s for a link of 10.
fn four(mbps: f64) -> Vec<Source> {
    (0..4).map(|leaf| source(leaf, 500, mbps)).collect()
}

/// The worst relative error of the classes' rates over every 0.5 s after the first.
fn worst_rate_error(floors: [f64; 4], expected: [f64; 4]) -> f64 {
    let terms: Vec<_> = floors.iter().map(|f| [("arc", mbps(*f))]).collect();
    let terms: Vec<&[_]> = terms.iter().map(|t| &t[..]).collect();
    let node = jobs(&[("separate", Value::Flag), ("qlimit", Value::Count(800))], &terms);
    let table = run(&node, 10_000_000, &four(5.0), 10, HALF);
    let mut worst = 0f64;
    for row in &table[1..20] {
        for (cell, expected) in row.iter().zip(expected) {
            worst = worst.max((cell.rate(HALF) / (expected * 1e6) - 1.0).abs());
        }
    }
    worst
}

#[test]
fn j06_least_rates_hold_in_every_half_second() {
    let worst = worst_rate_error([4.0, 3.0, 2.0, 1.0], [4.0, 3.0, 2.0, 1.0]);
    assert!(worst <= 0.0017, "{worst}");
    assert!(worst_rate_error([1.0, 2.0, 3.0, 4.0], [4.0, 3.0, 2.0, 1.0]) > 1.0, "reversed it passes");
    // With room to spare, nobody is below its least rate, wherever the rest goes.
    let terms: [&[_]; 3] = [&[("arc", mbps(6.0))], &[("rdc", real(2.0))], &[]];
    let node = jobs(&[("qlimit", Value::Count(300))], &terms);
    let sources = [source(0, 1500, 7.0), source(1, 100, 8.0), source(2, 700, 8.0)];
    for row in &run(&node, 10_000_000, &sources, 5, HALF)[1..10] {
        assert!(row[0].rate(HALF) >= 6e6 * 0.95, "{row:?}");
    }
}

/// Median-free: every window of 0.5 s after the first must hold.
fn ratios_hold(factor: f64, expected: f64, tolerance: f64, what: impl Fn(&Cell) -> f64) -> bool {
    let chain = [("rdc", real(factor)), ("rlc", real(factor))];
    let node = jobs(&[("qlimit", Value::Count(300))], &[&chain, &chain, &[]]);
    let sources = [source(0, 500, 6.0), source(1, 700, 4.0), source(2, 300, 5.0)];
    let table = run(&node, 10_000_000, &sources, 6, HALF);
    table[1..12]
        .iter()
        .all(|row| (0..2).all(|i| near(what(&row[i + 1]) / what(&row[i]), expected, tolerance)))
}

#[test]
fn j07_delays_come_to_their_ratios() {
    for factor in [0.5, 1.0, 1.5, 2.0, 4.0] {
        assert!(ratios_hold(factor, factor, 0.15, Cell::delay), "{factor}");
        assert!(!ratios_hold(factor * 1.5, factor, 0.15, Cell::delay), "{factor} without its factor");
    }
}

#[test]
fn j08_losses_come_to_their_ratios() {
    for factor in [0.5, 1.0, 1.5, 2.0, 4.0] {
        assert!(ratios_hold(factor, factor, 0.15, Cell::loss), "{factor}");
        assert!(!ratios_hold(factor * 1.5, factor, 0.15, Cell::loss), "{factor} without its factor");
    }
}

#[test]
fn j05_loss_bounds_hold_while_others_can_lose() {
    let bounded = |bound: &[(&'static str, Value)]| {
        let chain = [("rlc", real(2.0))];
        let mut first = vec![("adc", ms(40))];
        first.extend_from_slice(bound);
        let node = jobs(&[("qlimit", Value::Count(100))], &[&first, &chain, &chain, &[]]);
        total(&run(&node, 10_000_000, &four(3.5), 5, HALF), 0)
    };
    let with = bounded(&[("alc", fraction(0.01))]);
    assert!(with[0].loss() <= 0.01 && with[3].loss() > 0.2, "{with:?}");
    assert!(bounded(&[("rlc", real(2.0))])[0].loss() > 0.01, "reversed: with a ratio alone it loses more");
    // A member of a chain that has a bound as well keeps it; the chain gives way.
    let both = [("rlc", real(2.0)), ("alc", fraction(0.02))];
    let chain = [("rlc", real(2.0))];
    let node = jobs(&[("qlimit", Value::Count(100))], &[&both, &chain, &chain, &[]]);
    // At equal rates the phases would stay as they were drawn: once in 60 draws the last class was
    // empty when most packets were dropped.
    let sources: Vec<_> = (0..4).map(|leaf| source(leaf, 500, 3.47 + 0.02 * f64::from(leaf))).collect();
    let cells = total(&run(&node, 10_000_000, &sources, 5, HALF), 0);
    assert!(cells[0].loss() <= 0.02 && cells[3].loss() / cells[2].loss() > 1.9, "{cells:?}");
}

/// Figures of another implementation for the same load; d is delay, l is loss, by class from 1.
/// J12: `run` panics where the link idles while packets wait.
#[test]
fn delay_and_loss_settle_where_they_should() {
    let chain = [("rdc", real(4.0)), ("rlc", real(2.0))];
    let first = [("adc", ms(5)), ("alc", fraction(0.01))];
    for exact in [false, true] {
        let mut params = vec![("qlimit", Value::Count(800))];
        if exact {
            params.push(("exact-drops", Value::Flag));
        }
        let node = jobs(&params, &[&first, &chain, &chain, &[]]);
        let table = run(&node, 10_000_000, &four(2.6), 60, HALF);
        let steady = total(&table, 40);
        let (d, l): (Vec<_>, Vec<_>) = steady.iter().map(|c| (c.delay(), c.loss())).unzip();
        assert!(near(d[2] / d[1], 3.98, 0.03) && near(d[3] / d[2], 4.0, 0.03), "{d:?}");
        assert!(near(l[2] / l[1], 2.0, 0.03) && near(l[3] / l[2], 2.0, 0.03), "{l:?}");
        assert!(l[0] == 0.0 && d[0] <= 5.0 && steady[0].longest_ns <= 5_000_000, "{d:?} {l:?}");
        std::println!("exact drops {exact}: delays {d:?} ms, losses {l:?}");
    }
}

#[test]
fn j23_feedback_converges_within_one_window_of_half_a_second() {
    let chain = [("rdc", real(2.0)), ("rlc", real(2.0))];
    let node = jobs(&[("qlimit", Value::Count(200))], &[&chain, &chain, &[]]);
    // At 3 s and at 5 s the loads change at once; another class comes and goes every 12 ms.
    let mut sources = vec![source(0, 1000, 50.0), source(1, 1000, 40.0), source(2, 1000, 30.0)];
    sources.push(Source { from_ns: 3 * SECOND, to_ns: 5 * SECOND, ..source(2, 1000, 60.0) });
    sources.push(Source { from_ns: 3 * SECOND, ..source(0, 1500, 20.0) });
    let table = run(&node, 100_000_000, &sources, 8, HALF);
    for (window, row) in table[1..16].iter().enumerate() {
        for i in 0..2 {
            let ratio = row[i + 1].delay() / row[i].delay();
            assert!(near(ratio, 2.0, 0.15), "window {}: {ratio}", window + 1);
        }
    }
}

#[test]
fn j11_exactly_the_chosen_bound_gives_way() {
    let run_with = |relax| {
        let first = [("adc", ms(5)), ("alc", fraction(0.01))];
        let params = [("qlimit", Value::Count(400)), ("relax", Value::Word(relax))];
        let node = jobs(&params, &[&first, &[]]);
        // Bursts of 40 ms for a bound of 5: either they wait, or most of them are dropped.
        let bursts = Source { burst: 100, ..source(0, 500, 4.0) };
        total(&run(&node, 10_000_000, &[bursts, source(1, 500, 8.0)], 4, HALF), 0)
    };
    let delay = run_with("delay-first");
    assert!(delay[0].loss() <= 0.01 && delay[0].longest_ns > 5_000_000, "{delay:?}");
    let loss = run_with("loss-first");
    assert!(loss[0].loss() > 0.5 && loss[0].longest_ns <= 5_000_000, "{loss:?}");
}

#[test]
fn j22_when_all_are_late_the_link_is_shared_equally() {
    let late = [("adc", Value::Time(Duration::from_micros(100))), ("alc", fraction(0.0))];
    let node =
        jobs(&[("separate", Value::Flag), ("qlimit", Value::Count(50))], &[&late, &late, &late, &late]);
    let sources = [source(0, 500, 9.0), source(1, 1500, 5.0), source(2, 200, 4.0), source(3, 500, 3.0)];
    for cell in total(&run(&node, 10_000_000, &sources, 4, HALF), 2) {
        assert!(near(cell.sent as f64, 1.25e6 * 3.0 / 4.0, 0.02), "{cell:?}");
    }
}

#[test]
fn j26_drops_for_the_delay_leave_other_losses_alone() {
    let chain = [("rdc", real(2.0)), ("rlc", real(2.0))];
    let losses = |first: &[(&'static str, Value)], exact: bool| {
        let mut params = vec![("qlimit", Value::Count(200))];
        if exact {
            params.push(("exact-drops", Value::Flag));
        }
        let node = jobs(&params, &[first, &chain, &chain, &[]]);
        let sources = [source(0, 500, 6.0), source(1, 500, 3.0), source(2, 500, 3.0), source(3, 500, 3.0)];
        let cells = total(&run(&node, 10_000_000, &sources, 10, HALF), 2);
        cells.iter().map(Cell::loss).collect::<Vec<_>>()
    };
    for exact in [false, true] {
        // A bound of 2 ms makes the first class lose; the chain keeps its ratios.
        let l = losses(&[("adc", ms(2))], exact);
        assert!(near(l[2] / l[1], 2.0, 0.05) && near(l[3] / l[2], 2.0, 0.05), "{exact} {l:?}");
    }
    // With a delay bound on a member of the chain, that member may lose more than its part.
    let bounded = [("rdc", real(2.0)), ("rlc", real(2.0)), ("adc", ms(1))];
    let l = losses(&bounded, false);
    assert!(near(l[3] / l[2], 2.0, 0.05), "{l:?}");
}

#[test]
fn j27_every_tenth_arrival_is_enough() {
    let ratios = |sample: u64| {
        let chain = [("rdc", real(2.0)), ("rlc", real(2.0))];
        let first = [("adc", ms(8)), ("alc", fraction(0.01))];
        let params = [("qlimit", Value::Count(200)), ("sample", Value::Count(sample))];
        let node = jobs(&params, &[&first, &chain, &chain, &[]]);
        let sources =
            [source(0, 1000, 13.0), source(1, 1500, 58.0), source(2, 1500, 24.0), source(3, 1500, 12.0)];
        let cells = total(&run(&node, 100_000_000, &sources, 4, HALF), 1);
        [cells[2].delay() / cells[1].delay(), cells[3].delay() / cells[2].delay()]
    };
    let (every, tenth) = (ratios(1), ratios(10));
    for (every, tenth) in every.iter().zip(tenth) {
        assert!(near(tenth, *every, 0.15) && near(*every, 2.0, 0.1), "{every} {tenth}");
    }
}

/// Four classes under load, packets of one length; delays 3/2 and 4/3, losses 3/2 and 4/3.
fn ratios_with(params: &[(&'static str, Value)], factor: f64) -> ([f64; 4], Vec<Vec<Cell>>) {
    let chain = [("rdc", real(factor)), ("rlc", real(factor))];
    let first = [("adc", ms(8)), ("alc", fraction(0.01))];
    let params: Vec<_> = [("qlimit", Value::Count(200))].iter().chain(params).cloned().collect();
    let node = jobs(&params, &[&first, &chain, &chain, &[]]);
    let sources =
        [source(0, 1000, 13.0), source(1, 1000, 58.0), source(2, 1000, 24.0), source(3, 1000, 12.0)];
    let table = run(&node, 100_000_000, &sources, 6, HALF);
    let c = total(&table, 2);
    let ratio = |of: fn(&Cell) -> f64, n: usize| of(&c[n]) / of(&c[n - 1]);
    ([ratio(Cell::delay, 2), ratio(Cell::delay, 3), ratio(Cell::loss, 2), ratio(Cell::loss, 3)], table)
}

/// Packet counters, shifts and intervals of fixed length: what the paper offers to those who must
/// save operations, at no cost where packets are of one length.
#[test]
fn j28_cheaper_counting_keeps_the_ratios() {
    let packets = ("counters", Value::Word("packets"));
    let (shifts, interval) = (("shifts", Value::Flag), ("interval", ms(500)));
    let (plain, table) = ratios_with(&[], 2.0);
    assert!(plain.iter().all(|r| near(*r, 2.0, 0.1)), "{plain:?}");
    let options = [
        vec![packets.clone()],
        vec![shifts.clone()],
        vec![interval.clone()],
        vec![packets, shifts, interval],
    ];
    for option in options {
        let (ratios, cells) = ratios_with(&option, 2.0);
        assert!(ratios.iter().zip(plain).all(|(r, p)| near(*r, p, 0.05)), "{option:?}: {ratios:?} {plain:?}");
        // A shift is the same number, so the same packets leave and are dropped.
        let same = format!("{cells:?}") == format!("{table:?}");
        assert!(same || option[0].0 != "shifts", "{option:?}");
    }
    // Reversed: other factors are seen to be others.
    let (other, _) = ratios_with(&[("shifts", Value::Flag)], 4.0);
    assert!(!other.iter().zip(plain).any(|(r, p)| near(*r, p, 0.05)), "{other:?} {plain:?}");
}

#[test]
fn j28_shifts_are_for_powers_of_two() {
    let mut random = Random::new(weir_seed::seed());
    for _ in 0..10_000 {
        let (x, n) = (random.next_u64(), random.below(63) as u32);
        assert_eq!(Weight::Shift(n).of(x), Weight::Times(HEAVIEST >> n).of(x));
    }
    let build = |factor: f64| {
        let node = jobs(&[("shifts", Value::Flag)], &[&[("rdc", real(factor))], &[]]);
        let built = crate::sched::Registry::builtin().build(&node, Bench::new(&jobs(&[], &[&[]]), 1).cx.link);
        built.map(|_| ()).map_err(|e| format!("{e}"))
    };
    assert!(build(0.125).is_ok() && build(1024.0).is_ok());
    let error = "class c0: rdc: found 3, expected a power of two, as 2 or 0.5: jobs has `shifts` here";
    assert_eq!(build(3.0).unwrap_err(), error);
    // At run time too, whichever of the two comes later.
    let set = |node: &Node, class: &str, params: Params| {
        let mut bench = Bench::new(node, 1);
        bench.tree.discipline.reconfigure(&mut bench.cx, class, &params).map_err(|e| format!("{e}"))
    };
    let with = jobs(&[("shifts", Value::Flag)], &[&[("rdc", real(2.0))], &[]]);
    assert_eq!(set(&with, "c0", Params::new().with("rdc", real(3.0))).unwrap_err(), error);
    assert!(set(&with, "c0", Params::new().with("rdc", real(4.0))).is_ok());
    let without = jobs(&[], &[&[("rdc", real(3.0))], &[]]);
    assert_eq!(set(&without, "", Params::new().with("shifts", Value::Flag)).unwrap_err(), error);
}

#[test]
fn j09_a_priority_is_an_index_and_nothing_else() {
    let terms: [&[_]; 3] = [&[("arc", mbps(5.0))], &[("adc", ms(10))], &[]];
    let sources = |order: [u32; 3]| {
        [source(order[0], 500, 6.0), source(order[1], 700, 2.0), source(order[2], 300, 7.0)]
    };
    let measure = |order: [usize; 3]| {
        let mut placed: [&[_]; 3] = [&[]; 3];
        for (class, &place) in order.iter().enumerate() {
            placed[place] = terms[class];
        }
        let node = jobs(&[("separate", Value::Flag), ("qlimit", Value::Count(100))], &placed);
        let cells = total(&run(&node, 10_000_000, &sources(order.map(|o| o as u32)), 5, HALF), 2);
        order.map(|place| (cells[place].sent as f64, cells[place].delay()))
    };
    let straight = measure([0, 1, 2]);
    for order in [[2, 1, 0], [1, 2, 0], [0, 2, 1]] {
        for (a, b) in straight.iter().zip(measure(order)) {
            assert!(near(b.0, a.0, 0.02) && near(b.1, a.1, 0.1), "{order:?}: {a:?} {b:?}");
        }
    }
}

#[test]
fn the_order_of_the_file_does_not_matter() {
    let mut node = jobs(&[], &[&[("arc", mbps(8.0))], &[], &[]]);
    node.classes.swap(0, 2);
    let sources = [source(0, 500, 9.0), source(1, 500, 9.0), source(2, 500, 9.0)];
    let cells = total(&run(&node, 10_000_000, &sources, 3, HALF), 1);
    assert!(near(cells[2].sent as f64, 2.5 * 1e6, 0.02), "leaf 2 is class c0: {cells:?}");
}
