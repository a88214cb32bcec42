//! A small run of `weir bench accuracy`, on the very `weir up`.

use crate::bed::possible;
use crate::shape::{fits, of};
use crate::support::{WEIR, source, weir};
use std::sync::Mutex;
use weir_lab::Program;
use weir_lab::accuracy::{AccuracyReport, Asked, Row, Scene, Stands, What, accuracy};
use weir_seed::{in_time, timed};

/// 10 Mbit/s, with a bucket of two full frames.
const RATE: u64 = 10_000_000;
const BUCKET: f64 = 3_028.0;
const FRAME: f64 = 1_514.0;

fn run(what: What, cases: &[(Stands, bool)]) -> AccuracyReport {
    let scene = |&(stands, offloads)| Scene { stands, what, rate_bps: RATE, offloads };
    let scenes = cases.iter().map(scene).collect();
    let program = Program { path: WEIR.into(), arguments: vec![weir_lab::NODE_COMMAND.into()] };
    accuracy(&Asked { rounds: 1, scenes, weir: WEIR.into(), program }, &mut |_| {}).unwrap()
}

fn figure(row: &Row, index: usize) -> f64 {
    row.targets[index].measured.median
}

/// One at a time: each keeps both processors busy.
fn turn(what: &str) -> Option<std::sync::MutexGuard<'static, ()>> {
    static TURN: Mutex<()> = Mutex::new(());
    possible(what).then(|| TURN.lock().unwrap_or_else(|e| e.into_inner()))
}

/// L01, L02: rates and bursts as a capture behind the box sees them, offloads off and on. The bounds are those of
/// `weir bench accuracy` with room for a machine that does other work: a worker that catches up on
/// 200 ms sends 250 kB at once, and a FIFO is off by far more.
#[test]
fn classes_keep_their_rates_and_no_window_holds_more_than_its_bucket() {
    let Some(_turn) = turn("the test of rates and bursts") else { return };
    timed(|| {
        let report =
            run(What::Shares, &[(Stands::Weir, false), (Stands::Weir, true), (Stands::WeirFifo, false)]);
        let [off, on, fifo] = &report.rows[..] else { panic!("three rows") };
        for row in [off, on] {
            for index in [0, 1] {
                in_time!(figure(row, index) < 12.0, "{row:?}");
            }
        }
        for row in [off, on, fifo] {
            for index in [2, 3] {
                in_time!(figure(row, index) <= 3.0 * BUCKET + FRAME, "{row:?}");
            }
        }
        // Reversed: a FIFO keeps no shares.
        in_time!(figure(fifo, 1) > 12.0, "{fifo:?}");
        let page = std::fs::read_to_string(source("book/src/json.md")).unwrap();
        fits(&of(&page, "weir bench accuracy -j"), &serde_json::to_value(&report).unwrap(), "").unwrap();
    });
}

/// L03: the whole time in the box of a packet that goes first, before a flood and four streams. A full-size
/// packet lasts 1.2 ms, and the queue of the others 100.
#[test]
fn premium_packets_wait_for_no_queue() {
    let Some(_turn) = turn("the test of premium delay") else { return };
    timed(|| {
        let report = run(What::Premium, &[(Stands::Weir, false), (Stands::WeirFifo, false)]);
        let [premium, fifo] = &report.rows[..] else { panic!("two rows") };
        in_time!((0.0..10.0).contains(&figure(premium, 0)) && figure(premium, 0) > 0.0, "{premium:?}");
        in_time!(figure(premium, 1) == 0.0, "{premium:?}");
        // Reversed: in a FIFO they wait as all do, and are lost as all are.
        let wait = figure(fifo, 0);
        in_time!(wait > 20.0 || wait == 0.0 && figure(fifo, 1) > 100.0, "{fifo:?}");
    });
}

#[test]
fn rates_that_make_no_sense_are_refused() {
    for (rate, word) in [("ten", "ten"), ("1K", "16K to 10G"), ("11G", "16K to 10G")] {
        weir(&["bench", "accuracy", rate]).fails(2, &[word]);
    }
    weir(&["bench", "fifo", "--rounds", "2"])
        .fails(2, &["only `weir bench accuracy` and `weir bench live` have `--rounds`"]);
    weir(&["bench", "live", "cbq"])
        .fails(2, &["no row `cbq`; there are kernel ", " weir-cbq ", " both-ways"]);
}
