//! Both directions of Weir's bridge loaded at once: by one worker, and by one for each direction.
//!
//! Both egresses have CBQ of 20 leaves. With two processors the second worker has that of the generators, so
//! that what passes is bounded by what they can make. What the busiest worker takes at a rate that both carry is not.

use super::report::{Figure, Target, Verdict, verdict};
use super::{BLAST, COUNTED, Mode, PACE, RECEIVER, SENDER, SOAKED, WARM_UP, call};
use crate::bed::Bed;
use crate::node::NodeError;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use weir_core::units::Duration;
use weir_sys::{now, sleep_until};

/// Workers of a bridge, in the order of the rows.
pub(super) const WORKERS: [usize; 2] = [1, 2];

/// What one round measured.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct BothSample {
    /// Packets of 60 bytes that passed, a second, both ways together.
    pub pps_60: f64,
    /// Packets of 1514 bytes that passed, a second, both ways together.
    pub pps_1514: f64,
    /// The part of a processor that the busiest worker takes for 40,000 packets of 60 bytes a second each way.
    pub busiest: f64,
}

/// A number of workers over all rounds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct BothRow {
    /// Workers of the bridge.
    pub workers: usize,
    /// Packets of 60 bytes that passed, a second, both ways together.
    pub pps_60: Figure,
    /// Packets of 1514 bytes that passed, a second, both ways together.
    pub pps_1514: Figure,
    /// The part of a processor that the busiest worker takes, see [`BothSample::busiest`].
    pub busiest: Figure,
}

/// The rows, and what two workers should be beside one: of each number of workers, a sample a round.
pub(super) fn judged(measured: &[Vec<BothSample>; 2]) -> (Vec<BothRow>, Vec<Target>) {
    let row = |(workers, samples): (usize, &Vec<BothSample>)| {
        let figure = |of: fn(&BothSample) -> f64| Figure::of(samples.iter().map(of).collect());
        let (pps_60, pps_1514) = (figure(|s| s.pps_60), figure(|s| s.pps_1514));
        BothRow { workers, pps_60, pps_1514, busiest: figure(|s| s.busiest) }
    };
    let rows = WORKERS.into_iter().zip(measured).map(row).collect();
    let [one, two] = measured;
    let over = |of: fn(&BothSample) -> f64| {
        Figure::of(one.iter().zip(two).map(|(one, two)| of(two) / of(one)).collect())
    };
    let target = |what: &str, asked: &str, measured: Figure, verdict: Verdict| Target {
        what: what.into(),
        asked: asked.into(),
        measured,
        verdict,
    };
    let packets = over(|s| s.pps_60);
    let busiest = over(|s| s.busiest);
    let targets = vec![
        target(
            "60-byte packets/s both ways, two workers over one",
            "at least 1",
            packets,
            verdict(Some([packets.low >= 1.0, packets.high < 1.0])),
        ),
        target(
            "processor of the busiest, two workers over one",
            "at most 0.6",
            busiest,
            verdict(Some([busiest.high <= 0.6, busiest.low > 0.6])),
        ),
    ];
    (rows, targets)
}

/// The processors of so many workers: that of the box first, then one that nobody has, or that of the hosts.
fn processors(workers: usize, [hosts, own]: [usize; 2]) -> Vec<usize> {
    let count = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let other = if count > 2 { own + 1 } else { hosts };
    [own, other][..workers.min(2)].to_vec()
}

/// Measures once with so many workers.
pub(super) fn measure(bed: &mut Bed, workers: usize, cpus: [usize; 2]) -> Result<BothSample, NodeError> {
    let both = processors(workers, cpus);
    bed.call_box("bench-begin", json!({ "mode": Mode::WeirCbq, "cpu": cpus[1], "both": both }))?;
    let passed = |bed: &mut Bed, size: u32| {
        let [before, after] = loaded(bed, json!({ "size": size }), WARM_UP + BLAST, COUNTED)?;
        Ok::<_, NodeError>((after.packets - before.packets) / (after.at_s - before.at_s))
    };
    let measured = passed(bed, 60).and_then(|pps_60| {
        let pps_1514 = passed(bed, 1514)?;
        let paced = json!({ "size": 60, "pps": PACE });
        let [before, after] = loaded(bed, paced, WARM_UP + SOAKED + WARM_UP, SOAKED)?;
        let shares = before.busy_s.iter().zip(&after.busy_s);
        let shares =
            shares.map(|(before, after)| after - before).map(|busy| busy / (after.at_s - before.at_s));
        Ok(BothSample { pps_60, pps_1514, busiest: shares.fold(0.0, f64::max) })
    });
    bed.call_box("bench-end", Value::Null)?;
    measured
}

/// The box at one moment.
struct Seen {
    /// Packets that have left it, both ways.
    packets: f64,
    /// What each worker has worked, seconds.
    busy_s: Vec<f64>,
    at_s: f64,
}

/// Has both hosts send for `length`: the box as it is after the warm-up, and `counted` later.
fn loaded(bed: &mut Bed, load: Value, length: Duration, counted: Duration) -> Result<[Seen; 2], NodeError> {
    for (host, mac) in [(SENDER, "02:00:00:00:00:02"), (RECEIVER, "02:00:00:00:00:01")] {
        let mut blast = load.clone();
        blast["mac"] = mac.into();
        blast["length_ns"] = length.as_nanos().into();
        bed.host(host)?.ask(&call("bench-blast", blast))?;
    }
    let mut see = |after: Duration| {
        sleep_until(now() + after);
        let told = bed.call_box("bench-carried", Value::Null)?;
        let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
        let busy_s = told["busy_ns"].as_array().into_iter().flatten().map(|ns| number(ns) / 1e9).collect();
        Ok::<_, NodeError>(Seen {
            packets: number(&told["packets"]),
            busy_s,
            at_s: number(&told["at_ns"]) / 1e9,
        })
    };
    let seen = [see(WARM_UP)?, see(counted)?];
    for host in [SENDER, RECEIVER] {
        bed.host(host)?.answer(std::time::Duration::from_secs(10))?;
    }
    Ok(seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two workers that are no better than one are told so.
    #[test]
    fn two_workers_are_held_against_one() {
        let sample = |pps: f64, busiest: f64| BothSample { pps_60: pps, pps_1514: pps, busiest };
        let judge = |two: BothSample| {
            let (rows, targets) = judged(&[vec![sample(1e6, 0.4); 4], vec![two; 4]]);
            assert_eq!(rows.iter().map(|row| row.workers).collect::<Vec<_>>(), WORKERS);
            [targets[0].verdict, targets[1].verdict]
        };
        assert_eq!(judge(sample(1.5e6, 0.2)), [Verdict::Reached; 2]);
        assert_eq!(judge(sample(0.9e6, 0.4)), [Verdict::Missed; 2]);
    }
}
