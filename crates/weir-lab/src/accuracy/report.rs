//! What the suite found: each figure over the rounds, and whether it is what was asked.

use super::judge::{delays, percentile};
use super::node::Heard;
use super::scene::{FULL_BYTES, Scene, What, rate};
use crate::bench::{Figure, Target, Verdict};
use crate::capacity::FACTOR;
use serde::{Deserialize, Serialize};

/// A class may be off by such a part of its rate.
const RATE_OFF: f64 = 0.01;
/// A round with fewer premium packets than this, of a thousand, says nothing of a percentile.
const FEW: usize = 500;

/// One round of one scene: a value for each of its figures; not a number where it says nothing.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Sample {
    pub(super) values: Vec<f64>,
    pub(super) missed: u64,
    pub(super) late: bool,
}

impl Sample {
    /// What was heard before and behind the box.
    pub(super) fn of(scene: &Scene, near: &Heard, far: &Heard, late: bool) -> Sample {
        let missed = near.missed + far.missed;
        let mut values = match scene.what {
            What::Shares => {
                let percent = far.seconds.iter().map(|part| part * 100.0);
                percent.chain(far.excess_bytes.iter().copied()).collect()
            }
            What::Premium => {
                let (delays, lost) = delays(&near.numbers, &far.numbers);
                let enough = delays.len() >= FEW;
                let ms = |percent| match percentile(&delays, percent).filter(|_| enough) {
                    Some(ns) => ns as f64 / 1e6,
                    None => f64::NAN,
                };
                // Some may have entered before the end and left after it.
                let lost = lost.saturating_sub(4) as f64;
                vec![ms(99), lost, ms(50), ms(100), far.excess_bytes.first().copied().unwrap_or(f64::NAN)]
            }
        };
        // What was not heard cannot be judged.
        if missed > 0 {
            values.iter_mut().for_each(|value| *value = f64::NAN);
        }
        Sample { values, missed, late }
    }
}

/// A scene over all rounds.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Row {
    /// What was measured.
    #[serde(flatten)]
    pub scene: Scene,
    /// The figures that something is asked of.
    pub targets: Vec<Target>,
    /// Those that are told only.
    pub told: Vec<Told>,
    /// All targets together.
    pub verdict: Verdict,
    /// Why rounds are missing, or say nothing.
    pub notes: Vec<String>,
}

/// A figure of which nothing is asked.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Told {
    /// What was measured.
    pub what: String,
    /// What came, of each round.
    pub measured: Figure,
}

/// The whole.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct AccuracyReport {
    /// Rounds of each row.
    pub rounds: usize,
    /// What `weir up` said of itself.
    pub weir: String,
    /// Congestion control of the streams.
    pub congestion: String,
    /// The rows.
    pub rows: Vec<Row>,
}

/// The figures of a scene: what each is called, and the most that is asked; `None` if it is told only.
fn asked(scene: &Scene) -> Vec<(String, Option<f64>)> {
    let bound = scene.bucket_bytes() as f64 + f64::from(FULL_BYTES);
    match scene.what {
        What::Shares => vec![
            ("stream: worst second off by, %".into(), Some(RATE_OFF * 100.0)),
            ("paced: worst second off by, %".into(), Some(RATE_OFF * 100.0)),
            ("bytes over rate x time in 1 ms".into(), Some(bound)),
            ("bytes over rate x time in 10 ms".into(), Some(bound)),
        ],
        What::Premium => vec![
            ("premium: p99 in the box, ms".into(), Some(scene.premium_ns() as f64 / 1e6)),
            ("premium: packets lost".into(), Some(0.0)),
            ("premium: p50 in the box, ms".into(), None),
            ("premium: longest in the box, ms".into(), None),
            ("bytes over rate x time in 1 ms".into(), Some(bound)),
        ],
    }
}

/// The verdict on values that are to be `most` at most. A round that says nothing is left out; where
/// half say nothing there is no verdict, nor where the rounds spread over the bound.
fn judged(what: String, most: f64, values: Vec<f64>, rounds: usize) -> Target {
    let enough = 2 * values.len() > rounds;
    let figure = Figure::of(values);
    let verdict = match (enough, figure.high <= most, figure.low > most) {
        (true, true, _) => Verdict::Reached,
        (true, _, true) => Verdict::Missed,
        _ => Verdict::Unclear,
    };
    let shown = if enough { figure } else { Figure { median: 0.0, low: 0.0, high: 0.0 } };
    Target { what, asked: format!("at most {}", (most * 1000.0).round() / 1000.0), measured: shown, verdict }
}

fn row(scene: &Scene, samples: &[Sample], carries_bps: f64) -> Row {
    let (mut targets, mut told, mut notes) = (Vec::new(), Vec::new(), Vec::new());
    for (index, (what, most)) in asked(scene).into_iter().enumerate() {
        let values = samples.iter().filter_map(|s| s.values.get(index).copied());
        let values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
        match most {
            Some(most) => targets.push(judged(what, most, values, samples.len())),
            None if values.is_empty() => {}
            None => told.push(Told { what, measured: Figure::of(values) }),
        }
    }
    let missed = samples.iter().filter(|s| s.missed > 0).count();
    if missed > 0 {
        notes.push(format!("the capture missed frames in {missed} of {} rounds", samples.len()));
    }
    let late = samples.iter().filter(|s| s.late).count();
    if late > 0 {
        notes.push(format!("traffic began late in {late} of {} rounds", samples.len()));
    }
    if carries_bps < FACTOR * scene.rate_bps as f64 {
        notes.push(format!(
            "without shaping the testbed carries {:.0} Mbit/s, less than {FACTOR} times {}: no verdict",
            carries_bps / 1e6,
            rate(scene.rate_bps)
        ));
        targets.iter_mut().for_each(|target| target.verdict = Verdict::Unclear);
    }
    let has = |verdict| targets.iter().any(|t| t.verdict == verdict);
    let verdict = match (has(Verdict::Missed), has(Verdict::Unclear)) {
        (true, _) => Verdict::Missed,
        (_, true) => Verdict::Unclear,
        _ => Verdict::Reached,
    };
    Row { scene: *scene, targets, told, verdict, notes }
}

impl AccuracyReport {
    pub(super) fn of(
        measured: &[(Scene, Vec<Sample>)],
        carries: &[(bool, f64)],
        weir: String,
    ) -> AccuracyReport {
        let carried = |scene: &Scene| carries.iter().find(|c| c.0 == scene.offloads).map_or(0.0, |c| c.1);
        AccuracyReport {
            rounds: measured.iter().map(|m| m.1.len()).min().unwrap_or(0),
            weir,
            congestion: "cubic".into(),
            rows: measured.iter().map(|(scene, samples)| row(scene, samples, carried(scene))).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::scene::Stands;
    use super::*;

    const SCENE: Scene =
        Scene { stands: Stands::Weir, what: What::Shares, rate_bps: 10_000_000, offloads: false };

    fn heard(off: f64, excess: f64) -> Heard {
        Heard { seconds: vec![off, 0.0], excess_bytes: vec![excess, 0.0], ..Heard::default() }
    }
    fn verdicts(rounds: &[(f64, f64)]) -> (Verdict, Vec<Verdict>) {
        let sample = |&(off, excess)| Sample::of(&SCENE, &Heard::default(), &heard(off, excess), false);
        let samples: Vec<Sample> = rounds.iter().map(sample).collect();
        let row = row(&SCENE, &samples, 1e9);
        (row.verdict, row.targets.iter().map(|t| t.verdict).collect())
    }

    /// Two full frames of bucket and one more may pass at once: 4542 bytes.
    #[test]
    fn what_is_within_is_reached_and_what_is_not_is_missed() {
        use Verdict::{Missed, Reached, Unclear};
        assert_eq!(verdicts(&[(0.009, 4_542.0); 4]), (Reached, vec![Reached; 4]));
        assert_eq!(verdicts(&[(0.011, 4_542.0); 4]), (Missed, vec![Missed, Reached, Reached, Reached]));
        // The burst of a late worker.
        assert_eq!(verdicts(&[(0.0, 4_543.0); 4]), (Missed, vec![Reached, Reached, Missed, Reached]));
        // Rounds that spread over the bound say nothing; one of four does not spoil the others.
        let spread = [(0.0, 1.0), (0.0, 1.0), (0.02, 1.0), (0.02, 1.0)];
        assert_eq!(verdicts(&spread), (Unclear, vec![Unclear, Reached, Reached, Reached]));
        assert_eq!(verdicts(&[(0.0, 1.0), (0.0, 1.0), (0.02, 1.0), (0.0, 1.0)]).0, Reached);
    }

    #[test]
    fn what_was_not_heard_is_not_judged() {
        let sample = |missed| {
            let far = Heard { missed, ..heard(0.0, 0.0) };
            Sample::of(&SCENE, &Heard::default(), &far, false)
        };
        let rows = |missed: [u64; 4]| row(&SCENE, &missed.map(sample), 1e9);
        assert_eq!(rows([0, 0, 0, 9]).verdict, Verdict::Reached);
        let few = rows([0, 0, 7, 9]);
        assert_eq!((few.verdict, few.notes.len()), (Verdict::Unclear, 1), "{few:?}");
        // Nor is a link that the testbed cannot carry twice.
        let slow = row(&SCENE, &[sample(0), sample(0)], 19e6);
        assert!(slow.verdict == Verdict::Unclear && slow.notes[0].contains("19 Mbit/s"), "{slow:?}");
    }

    #[test]
    fn premium_is_judged_by_its_99th_percentile() {
        let scene = Scene { what: What::Premium, ..SCENE };
        // One full-size packet at 10 Mbit/s lasts 1.211 ms.
        let verdict = |late: u64, by_ns: u64| {
            let near: Vec<_> = (0..1_000).map(|n| (n, n * 2_000_000)).collect();
            let wait = |n| if n < late { by_ns } else { 1_000_000 };
            let far: Vec<_> = near.iter().map(|&(n, at)| (n, at + wait(n))).collect();
            let heard = |numbers| Heard { numbers, excess_bytes: vec![0.0], ..Heard::default() };
            let sample = Sample::of(&scene, &heard(near), &heard(far), false);
            row(&scene, &[sample.clone(), sample.clone(), sample], 1e9)
        };
        assert_eq!(verdict(0, 0).verdict, Verdict::Reached);
        assert_eq!(verdict(10, 9_000_000).verdict, Verdict::Reached, "one of a hundred may be late");
        assert_eq!(verdict(11, 1_600_000).verdict, Verdict::Missed);
        assert_eq!(verdict(11, 1_500_000).verdict, Verdict::Reached);
        let told = &verdict(11, 1_600_000).told;
        assert_eq!((told[0].measured.median, told[1].measured.median), (1.0, 1.6));
        // Too few of them say nothing.
        let heard = Heard { numbers: vec![(1, 1)], excess_bytes: vec![0.0], ..Heard::default() };
        let sample = Sample::of(&scene, &heard, &heard, false);
        assert_eq!(row(&scene, &[sample], 1e9).targets[0].verdict, Verdict::Unclear);
    }
}
