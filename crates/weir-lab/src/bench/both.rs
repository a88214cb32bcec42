//! Both directions of Weir's bridge loaded at once: by one worker, and by one for each direction.
//!
//! Both egresses have CBQ of 20 leaves. With two processors each of two workers shares one with the generator whose
//! frames the other worker receives: beside its own generator it would take each frame before the next is sent.

use super::figure::{Figure, Target, verdict};
use super::{BLAST, COUNTED, Mode, RECEIVER, SENDER, WARM_UP, call};
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
}

/// The rows, and what two workers should be beside one: of each number of workers, a sample a round.
pub(super) fn judged(measured: &[Vec<BothSample>; 2]) -> (Vec<BothRow>, Vec<Target>) {
    let row = |(workers, samples): (usize, &Vec<BothSample>)| {
        let figure = |of: fn(&BothSample) -> f64| Figure::of(samples.iter().map(of).collect());
        let (pps_60, pps_1514) = (figure(|s| s.pps_60), figure(|s| s.pps_1514));
        BothRow { workers, pps_60, pps_1514 }
    };
    let rows = WORKERS.into_iter().zip(measured).map(row).collect();
    let [one, two] = measured;
    let over = |of: fn(&BothSample) -> f64| {
        Figure::of(one.iter().zip(two).map(|(one, two)| of(two) / of(one)).collect())
    };
    let target = |what: &str, measured: Figure| Target {
        what: what.into(),
        asked: "at least 1".into(),
        measured,
        verdict: verdict(Some([measured.low >= 1.0, measured.high < 1.0])),
    };
    let targets = vec![
        target("60-byte packets/s both ways, two workers over one", over(|s| s.pps_60)),
        target("1514-byte packets/s both ways, two workers over one", over(|s| s.pps_1514)),
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
    // The generator of the second direction is beside the first worker, if that of the first has the other processor.
    let beside = if both.get(1) == Some(&cpus[0]) { both[0] } else { cpus[0] };
    bed.call_box("bench-begin", json!({ "mode": Mode::WeirCbq, "cpu": cpus[1], "both": workers }))?;
    let mut passed = |size: u32| loaded(bed, json!({ "size": size, "cpu": beside }));
    let measured = passed(60).and_then(|pps_60| Ok(BothSample { pps_60, pps_1514: passed(1514)? }));
    bed.call_box("bench-end", Value::Null)?;
    measured
}

/// Packets a second that leave the box while both hosts send, the second one on the processor that `load` names.
fn loaded(bed: &mut Bed, load: Value) -> Result<f64, NodeError> {
    for (host, mac) in [(SENDER, "02:00:00:00:00:02"), (RECEIVER, "02:00:00:00:00:01")] {
        let mut blast = load.clone();
        blast["mac"] = mac.into();
        blast["length_ns"] = (WARM_UP + BLAST).as_nanos().into();
        if host == SENDER {
            blast["cpu"] = Value::Null;
        }
        bed.host(host)?.ask(&call("bench-blast", blast))?;
    }
    let mut left = |after: Duration| {
        sleep_until(now() + after);
        let told = bed.call_box("bench-carried", Value::Null)?;
        let number = |name: &str| told[name].as_f64().unwrap_or(f64::NAN);
        Ok::<_, NodeError>((number("packets"), number("at_ns")))
    };
    let (first, last) = (left(WARM_UP)?, left(COUNTED)?);
    for host in [SENDER, RECEIVER] {
        bed.host(host)?.answer(std::time::Duration::from_secs(10))?;
    }
    Ok((last.0 - first.0) * 1e9 / (last.1 - first.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::bench::Verdict;

    /// Two workers that are no better than one are told so.
    #[test]
    fn two_workers_are_held_against_one() {
        let judge = |pps_60: f64, pps_1514: f64| {
            let one = BothSample { pps_60: 1e6, pps_1514: 8e5 };
            let (rows, targets) = judged(&[vec![one; 4], vec![BothSample { pps_60, pps_1514 }; 4]]);
            assert_eq!(rows.iter().map(|row| row.workers).collect::<Vec<_>>(), WORKERS);
            [targets[0].verdict, targets[1].verdict]
        };
        assert_eq!(judge(1.5e6, 1.4e6), [Verdict::Reached; 2]);
        assert_eq!(judge(0.9e6, 7e5), [Verdict::Missed; 2]);
    }
}
