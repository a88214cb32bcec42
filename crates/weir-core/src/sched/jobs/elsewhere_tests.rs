//! J33: rates that are adjusted by another thread.

use super::tests::{Cell, HALF, SECOND, Source, fraction, jobs, ms, real, run_on, source, total};
use super::{Adjusted, Delegate, Sample, delegated};
use crate::queue::{Params, Value};
use crate::sched::testing::{Bench, stat};
use crate::sched::{Build, Entry, Registry};
use crate::units::{Fixed, Instant, Rate};
use std::boxed::Box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::{format, thread, thread_local, vec, vec::Vec};

/// A thread that adjusts. What it has made is taken up `LAG` polls after it was asked for, however
/// quick or slow the thread is, so that a run can be repeated.
struct Thread<const LAG: u32> {
    to: Sender<Sample>,
    from: Receiver<Adjusted>,
    left: Option<u32>,
}

impl<const LAG: u32> Thread<LAG> {
    fn new() -> Self {
        let ((to, samples), (results, from)) = (channel::<Sample>(), channel());
        thread::spawn(move || {
            for sample in samples {
                if results.send(sample.adjust()).is_err() {
                    return;
                }
            }
        });
        Thread { to, from, left: None }
    }
}

impl<const LAG: u32> Delegate for Thread<LAG> {
    fn start(&mut self, sample: Sample) {
        assert!(self.left.replace(LAG).is_none(), "one at a time");
        self.to.send(sample).expect("the thread lives");
    }
    fn finished(&mut self) -> Option<Adjusted> {
        self.left = match self.left? {
            0 => return self.left.take().and_then(|_| self.from.recv().ok()),
            n => Some(n - 1),
        };
        None
    }
}

/// Takes samples and never answers.
struct Silent;
impl Delegate for Silent {
    fn start(&mut self, _: Sample) {}
    fn finished(&mut self) -> Option<Adjusted> {
        None
    }
}

fn registry(build: Build) -> Registry {
    let mut registry = Registry::builtin();
    let jobs = *registry.find("jobs").expect("it is built in");
    registry.register(Entry { build: Some(build), ..jobs });
    registry
}
fn thread<const LAG: u32>() -> Registry {
    registry(|node, builder| delegated(node, builder, Box::new(Thread::<LAG>::new())))
}

/// The classes of the paper's table 1 under load, for four seconds.
fn table_1(registry: &Registry, params: &[(&'static str, Value)]) -> Vec<Vec<Cell>> {
    let chain = [("rdc", real(2.0)), ("rlc", real(2.0))];
    let first = [("adc", ms(8)), ("alc", fraction(0.01))];
    let params: Vec<_> = [("qlimit", Value::Count(200))].iter().chain(params).cloned().collect();
    let node = jobs(&params, &[&first, &chain, &chain, &[]]);
    let sources =
        [source(0, 1000, 13.0), source(1, 1500, 58.0), source(2, 1500, 24.0), source(3, 1500, 12.0)];
    let bench = Bench::of(registry, &node, Rate::from_mbps(100), 1);
    run_on(bench, 4, &sources, 4, HALF)
}

fn ratios(table: &[Vec<Cell>]) -> [f64; 2] {
    let cells = total(table, 1);
    [cells[2].delay() / cells[1].delay(), cells[3].delay() / cells[2].delay()]
}

/// The tolerance of sampling (J27): delays within 15 % of those with rates adjusted in place, at
/// every arrival; the class with a bound keeps it.
#[test]
fn j33_another_thread_may_adjust_the_rates() {
    let here = table_1(&Registry::builtin(), &[]);
    let expected = ratios(&here);
    let holds = |table: &[Vec<Cell>]| {
        ratios(table).iter().zip(expected).all(|(r, e)| (r / e - 1.0).abs() < 0.15)
            && table[1..].iter().all(|row| row[0].longest_ns <= 8_500_000)
    };
    assert!(holds(&here));
    for (registry, params) in [
        (thread::<0>(), vec![]),
        (thread::<1>(), vec![]),
        (thread::<10>(), vec![]),
        (thread::<1>(), vec![("sample", Value::Count(10))]),
        (thread::<5>(), vec![("exact-drops", Value::Flag)]),
    ] {
        let table = table_1(&registry, &params);
        assert!(holds(&table), "{params:?}: {:?} {expected:?}", ratios(&table));
    }
}

/// With `exact-drops` a class that has more than its bound can hold is dropped from at once, whoever adjusts
/// the rates, and also if nobody does. Reversed: without it the bound waits for the rates.
#[test]
fn j33_exact_drops_keep_a_bound_whoever_adjusts() {
    let longest_ms = |registry: &Registry, params: &[(&'static str, Value)]| {
        let bound = [("adc", ms(8))];
        let node = jobs(params, &[&bound, &bound]);
        let sources = [source(0, 1000, 7.0), source(1, 1000, 7.0)];
        let cells =
            total(&run_on(Bench::of(registry, &node, Rate::from_mbps(10), 1), 2, &sources, 2, HALF), 0);
        cells.iter().map(|cell| cell.longest_ns / 1_000_000).max().expect("two classes")
    };
    let exact = [("qlimit", Value::Count(200)), ("exact-drops", Value::Flag)];
    let silent = registry(|node, builder| delegated(node, builder, Box::new(Silent)));
    for registry in [&thread::<5>(), &silent] {
        let longest = longest_ms(registry, &exact);
        assert!(longest <= 9, "{longest} ms");
    }
    assert!(longest_ms(&silent, &exact[..1]) > 100);
}

/// Where all classes have packets all the time nothing is reset, and the rates follow the load by
/// feedback alone: the same tolerance half a second after the load has turned.
#[test]
fn j33_another_thread_follows_the_load() {
    let after_the_turn = |registry: &Registry| {
        let chain = [("rdc", real(2.0)), ("rlc", real(2.0))];
        let node = jobs(&[("qlimit", Value::Count(100))], &[&chain, &chain, &[]]);
        let turn = 2 * SECOND;
        let sources = [
            source(0, 500, 5.0),
            Source { to_ns: turn, ..source(1, 500, 9.0) },
            Source { from_ns: turn, ..source(1, 500, 3.0) },
            Source { to_ns: turn, ..source(2, 500, 3.0) },
            Source { from_ns: turn, ..source(2, 500, 9.0) },
        ];
        let table = run_on(Bench::of(registry, &node, Rate::from_mbps(10), 1), 3, &sources, 5, HALF);
        let cells = total(&table[..10], 5);
        [cells[1].delay() / cells[0].delay(), cells[2].delay() / cells[1].delay()]
    };
    let here = after_the_turn(&Registry::builtin());
    assert!(here.iter().all(|r| (r / 2.0 - 1.0).abs() < 0.1), "{here:?}");
    let holds = |ratios: [f64; 2]| ratios.iter().zip(here).all(|(r, h)| (r / h - 1.0).abs() < 0.15);
    for registry in [thread::<0>(), thread::<1>(), thread::<10>(), thread::<30>()] {
        let ratios = after_the_turn(&registry);
        assert!(holds(ratios), "{ratios:?} {here:?}");
    }
    // Reversed: nobody adjusts.
    let silent = registry(|node, builder| delegated(node, builder, Box::new(Silent)));
    let ratios = after_the_turn(&silent);
    assert!(!holds(ratios), "{ratios:?}");
}

/// Without bounds nothing is dropped on the way, so a delegate without lag decides the same, packet by
/// packet; one with lag does not.
#[test]
fn j33_a_delegate_without_lag_is_the_same_discipline() {
    let chains = |registry: &Registry| {
        let chain = [("rdc", Value::Real(Fixed::from_int(3))), ("rlc", real(2.0))];
        let node = jobs(&[("qlimit", Value::Count(60))], &[&chain, &chain, &[]]);
        let sources = [source(0, 700, 5.0), source(1, 300, 4.0), source(2, 1200, 6.0)];
        let table = run_on(Bench::of(registry, &node, Rate::from_mbps(10), 1), 3, &sources, 3, HALF);
        format!("{table:?}")
    };
    let here = chains(&Registry::builtin());
    assert_eq!(here, chains(&thread::<0>()));
    assert_ne!(here, chains(&thread::<7>()));
    assert_eq!(chains(&thread::<7>()), chains(&thread::<7>()), "and it can be repeated");
}

/// Answers when it is told to.
struct Told(Arc<AtomicBool>, Option<Sample>);
impl Delegate for Told {
    fn start(&mut self, sample: Sample) {
        self.1 = Some(sample);
    }
    fn finished(&mut self) -> Option<Adjusted> {
        let answers = self.0.swap(false, Relaxed);
        self.1.take_if(|_| answers).map(|sample| sample.adjust())
    }
}

thread_local! {
    /// Whether the delegates that this thread builds answer.
    static ANSWERS: Arc<AtomicBool> = Arc::new(AtomicBool::new(false));
}

/// Where the link is not enough for all bounds, the answer says so, and what cannot be in time is dropped:
/// of 100 packets of 1 ms each 20 are in time for a bound of 20 ms. Reversed: without the bound all stay.
#[test]
fn j33_what_cannot_be_in_time_is_dropped_too() {
    for (bounded, stay) in [(true, 20), (false, 100)] {
        let bound = [("adc", ms(20))];
        let node = jobs(&[], &[if bounded { &bound[..] } else { &[] }, &[]]);
        let mut bench = Bench::of(&thread::<0>(), &node, Rate::from_mbps(8), 1);
        for _ in 0..100 {
            bench.offer(1_000, |m| m.leaf = 0);
        }
        assert_eq!(bench.tree.discipline.backlog().packets, stay);
        bench.check();
    }
}

/// An answer counts if nothing has changed since its sample. Rates that were made for another set of
/// classes, or under other promises, are forgotten, also where the set is the same again.
#[test]
fn j33_an_answer_that_came_too_late_changes_nothing() {
    let told =
        registry(|node, builder| delegated(node, builder, Box::new(Told(ANSWERS.with(Arc::clone), None))));
    let share = |bench: &Bench| stat(&*bench.tree.discipline, "share");
    type Meanwhile = fn(&mut Bench);
    let leaves_and_comes: Meanwhile = |bench| {
        while bench.tree.discipline.backlog().packets > 0 {
            bench.serve();
        }
        for leaf in [0, 1] {
            bench.offer(500, |m| m.leaf = leaf);
        }
    };
    let other_factor: Meanwhile = |bench| {
        let params = Params::new().with("rdc", real(1.5));
        bench.tree.discipline.reconfigure(&mut bench.cx, "c0", &params).expect("a right factor");
    };
    let other_settings: Meanwhile = |bench| {
        let params = Params::new().with("qlimit", Value::Count(70));
        bench.tree.discipline.reconfigure(&mut bench.cx, "", &params).expect("a right limit");
    };
    let cases: [(Meanwhile, bool); 4] =
        [(|_| {}, true), (leaves_and_comes, false), (other_factor, false), (other_settings, false)];
    for (n, (meanwhile, counts)) in cases.into_iter().enumerate() {
        ANSWERS.with(|answers| answers.store(false, Relaxed));
        let node = jobs(&[], &[&[("rdc", real(4.0))], &[]]);
        let mut bench = Bench::of(&told, &node, Rate::from_mbps(10), 1);
        for leaf in [0, 1] {
            bench.offer(500, |m| m.leaf = leaf);
        }
        bench.cx.now = Instant::from_millis(10);
        // The sample: one class has far more than the other.
        for _ in 0..10 {
            bench.offer(1_500, |m| m.leaf = 0);
        }
        meanwhile(&mut bench);
        let before = share(&bench);
        // It answers the sample that it has, and not the one that it is given then.
        ANSWERS.with(|answers| answers.store(true, Relaxed));
        bench.offer(500, |m| m.leaf = 1);
        assert_eq!(share(&bench) != before, counts, "case {n}");
        bench.check();
    }
}

/// A class that comes or goes while a sample is on its way makes the answer worthless; so does a
/// promise that changes.
#[test]
fn j33_rates_for_others_are_forgotten() {
    let node = jobs(&[], &[&[("rdc", real(2.0))], &[("rdc", real(2.0))], &[]]);
    let mut bench = Bench::of(&thread::<1>(), &node, Rate::from_mbps(10), 1);
    for round in 0..400u32 {
        let (arrivals, departures) = (round * 7 % 5, round * 3 % 4);
        for n in 0..arrivals {
            bench.offer(100 + n * 200, |m| m.leaf = (round / 3 + n) % 3);
        }
        for _ in 0..departures {
            if let Some(meta) = bench.serve() {
                bench.pass(meta.len);
            }
        }
        if round % 29 == 0 {
            let params = Params::new().with("rdc", real(f64::from(1 + round % 3)));
            bench.tree.discipline.reconfigure(&mut bench.cx, "c0", &params).expect("a right factor");
        }
        // The rates of those that wait add up to the link, whatever came back.
        bench.check();
    }
}
