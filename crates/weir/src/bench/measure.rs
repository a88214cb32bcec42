//! A bed of `weir-bench`, timed.

use super::{Bench, Effort};
use std::hint::black_box;
use std::time::Instant as Clock;
use weir_bench::{BURST, Bed, Case, Row, TreeBed, scene};
use weir_core::sched::Registry;
use weir_sys::allocations;

/// Allocations of `act` per packet; `None` if the program's allocator does not count.
pub fn allocations_of(packets: u32, act: impl FnOnce() -> Result<(), String>) -> Result<Option<f64>, String> {
    let idle = allocations::on_this_thread();
    black_box(Box::new(idle));
    let before = allocations::on_this_thread();
    act()?;
    let after = allocations::on_this_thread();
    Ok((before > idle).then(|| (after - before) as f64 / f64::from(packets)))
}

/// The median, and the lowest and highest tenth of the runs left out, the least and the most.
pub fn summary(mut runs: Vec<f64>) -> (f64, (f64, f64)) {
    runs.sort_by(f64::total_cmp);
    let tenth = runs.len() / 10;
    let (least, most) = match runs.get(tenth..runs.len() - tenth) {
        Some([least, .., most]) => (*least, *most),
        _ => (runs.first().copied().unwrap_or(0.0), runs.last().copied().unwrap_or(0.0)),
    };
    let middle = runs.len() / 2;
    let median = match runs.len() {
        0 => 0.0,
        n if n % 2 == 1 => runs[middle],
        _ => (runs[middle - 1] + runs[middle]) / 2.0,
    };
    (median, (least, most))
}

/// Nanoseconds of one of `count` pairs.
fn time(bed: &mut dyn Bed, count: u32) -> Result<f64, String> {
    let start = Clock::now();
    bed.pairs(count)?;
    Ok(start.elapsed().as_nanos() as f64 / f64::from(count))
}

/// Measures `row`.
///
/// # Errors
/// Why it cannot run.
pub fn run(registry: &Registry, row: &Row, effort: Effort) -> Result<Bench, String> {
    let mut bed = weir_bench::bed(registry, row)?;
    bed.pairs(effort.packets)?;
    let packets = effort.packets_a_run(|packets| time(&mut *bed, packets))?;
    let mut runs = Vec::with_capacity(effort.runs);
    for _ in 0..effort.runs {
        runs.push(time(&mut *bed, packets)?);
    }
    let (total_ns, range_ns) = summary(runs);
    // What all packets dropped and offered again cost is in the pairs, and is the discipline's.
    let allocations_per_packet = allocations_of(effort.packets, || bed.pairs(effort.packets))?;
    let share = match row.case {
        Case::Hot => enqueue_share(registry, row, effort, packets)?,
        _ => None,
    };
    Ok(Bench {
        name: row.name.clone(),
        enqueue_ns: share.map(|share| total_ns * share),
        dequeue_ns: share.map(|share| total_ns * (1.0 - share)),
        total_ns,
        range_ns,
        allocations_per_packet,
        case: row.case.word(),
        instructions: None,
    })
}

/// The part of a pair that is the enqueue; `None` for what has no queue.
fn enqueue_share(
    registry: &Registry,
    row: &Row,
    effort: Effort,
    packets: u32,
) -> Result<Option<f64>, String> {
    let Some(scene) = scene::of(&row.name).or_else(|| scene::own(registry, &row.name)) else {
        return Ok(None);
    };
    let mut bed = TreeBed::new(registry, &scene, Case::Hot)?;
    bed.pairs(effort.packets)?;
    let mut shares = Vec::with_capacity(effort.runs);
    for _ in 0..effort.runs {
        let (enqueue, dequeue) = bed.bursts((packets / BURST as u32).max(1))?;
        shares.push(enqueue / (enqueue + dequeue));
    }
    Ok(Some(summary(shares).0))
}
