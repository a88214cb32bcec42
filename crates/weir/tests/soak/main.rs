//! Faults under load on the very `weir up`, in namespaces of their own: what was lost, came twice or
//! out of order, and for how long nothing came. Small by itself; `make soak` is the long one.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

#[path = "../command/bed.rs"]
#[allow(dead_code, reason = "each test uses some")]
mod bed;
#[path = "../command/probes.rs"]
#[allow(dead_code, reason = "each test uses some")]
mod probes;
#[path = "../command/support.rs"]
#[allow(dead_code, reason = "each test uses some")]
mod support;

mod applies;
mod day;
mod events;
mod page;
mod place;
mod signals;

use page::Row;
use std::time::Instant;
use weir_core::units::Duration;

/// Live bytes are counted, so that a leak shows.
#[global_allocator]
static ALLOCATOR: weir_sys::allocations::Counting = weir_sys::allocations::Counting;

/// How much of each there is.
#[derive(Clone, Copy, Debug)]
struct Size {
    /// Minutes asked for; none for the small one.
    minutes: Option<u64>,
    /// Applies at 80 % load, and in how many seconds.
    applies: u32,
    applies_seconds: u64,
    /// Times that each mode meets each signal, and each event happens.
    rounds: u32,
    /// Rounds of the day by a fast clock: an hour of work and one of rest.
    hours: u64,
}

impl Size {
    /// A bound on time. The small one runs beside other tests, so that it has four times as much.
    fn at_most(&self, milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds * if self.minutes.is_some() { 1 } else { 4 })
    }

    /// What `WEIR_SOAK=MINUTES` asks for.
    fn asked() -> Size {
        let small = Size { minutes: None, applies: 30, applies_seconds: 4, rounds: 1, hours: 1 };
        let Ok(text) = std::env::var("WEIR_SOAK") else { return small };
        let minutes: u64 =
            text.parse().unwrap_or_else(|_| panic!("WEIR_SOAK={text}: expected minutes, as 15"));
        let applies_seconds = (minutes * 40).max(6);
        Size {
            minutes: Some(minutes),
            applies: (applies_seconds * 1_000 / 600) as u32,
            applies_seconds,
            rounds: (minutes / 3).max(1) as u32,
            hours: 12,
        }
    }
}

/// What has rows.
type Part = fn(&Size) -> Vec<Row>;

/// The parts, by the name that `WEIR_SOAK_PART` takes.
const PARTS: [(&str, Part); 4] =
    [("day", day::rows), ("signals", signals::rows), ("events", events::rows), ("applies", applies::rows)];

/// One after the other, so that none disturbs another.
#[test]
fn traffic_survives_whatever_happens() {
    let (size, seed) = (Size::asked(), weir_seed::seed());
    let part = std::env::var("WEIR_SOAK_PART").ok();
    let live = bed::possible("the soak");
    let (mut rows, start) = (Vec::new(), Instant::now());
    for (name, run) in PARTS {
        if part.as_ref().is_some_and(|part| part != name) || !(live || name == "day") {
            continue;
        }
        // The small one runs beside whatever else the machine does: what is wrong is so each time.
        for run_left in (0..if size.minutes.is_some() { 1 } else { weir_seed::TIMES }).rev() {
            let began = Instant::now();
            let more = run(&size);
            println!("{name}, {} s:\n{}", began.elapsed().as_secs(), page::table(&more));
            if run_left == 0 || more.iter().all(Row::held) {
                rows.extend(more);
                break;
            }
        }
    }
    let missed: Vec<&Row> = rows.iter().filter(|row| !row.held()).collect();
    if let Ok(path) = std::env::var("WEIR_SOAK_PAGE") {
        page::write(&path, &size, seed, start.elapsed(), &rows);
    }
    assert!(missed.is_empty(), "seed {seed}, not held:\n{}", page::table(missed));
}
