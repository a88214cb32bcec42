//! What the bench found: figures with their spread, and what they are held against.

use super::Mode;
use super::both::{BothRow, BothSample, judged};
use serde::{Deserialize, Serialize};

/// What one round measured of one mode.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sample {
    /// Packets of 60 bytes that passed, a second.
    pub pps_60: f64,
    /// Packets of 1514 bytes that passed, a second.
    pub pps_1514: f64,
    /// Payload of one TCP stream, bit/s.
    pub tcp_bps: f64,
    /// Mean round trip, microseconds.
    pub ping_mean_us: f64,
    /// Round trip that one of a hundred exceeds, microseconds.
    pub ping_p99_us: f64,
    /// Processor time of all cores for one packet of 60 bytes, microseconds, less what it takes to
    /// make it and to lead it to the box.
    pub cpu_us: f64,
}

/// A figure over the rounds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Figure {
    /// The median.
    pub median: f64,
    /// The lower quartile.
    pub low: f64,
    /// The upper quartile.
    pub high: f64,
}

impl Figure {
    pub(crate) fn of(mut values: Vec<f64>) -> Figure {
        values.sort_by(f64::total_cmp);
        let at = |quarter: usize| values.get(values.len().saturating_sub(1) * quarter / 4);
        let at = |quarter| at(quarter).copied().unwrap_or(f64::NAN);
        Figure { median: at(2), low: at(1), high: at(3) }
    }
}

/// One mode over all rounds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Row {
    /// What stood in the box.
    pub mode: Mode,
    /// Packets of 60 bytes that passed, a second.
    pub pps_60: Figure,
    /// Packets of 1514 bytes that passed, a second.
    pub pps_1514: Figure,
    /// Payload of one TCP stream, bit/s.
    pub tcp_bps: Figure,
    /// Mean round trip, microseconds.
    pub ping_mean_us: Figure,
    /// Round trip that one of a hundred exceeds, microseconds.
    pub ping_p99_us: Figure,
    /// Processor time for one packet, microseconds, see [`Sample::cpu_us`].
    pub cpu_us: Figure,
}

/// Whether a figure is what it should be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Three quarters of the rounds reach it.
    Reached,
    /// Three quarters of the rounds miss it.
    Missed,
    /// The rounds spread over the bound: they say nothing.
    Unclear,
}

impl Verdict {
    /// As the table shows it.
    pub const fn name(self) -> &'static str {
        match self {
            Verdict::Reached => "reached",
            Verdict::Missed => "missed",
            Verdict::Unclear => "unclear",
        }
    }
}

/// A figure and what it should be.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Target {
    /// What was compared.
    pub what: String,
    /// What is asked.
    pub asked: String,
    /// What came, of each round.
    pub measured: Figure,
    /// Whether that is enough.
    pub verdict: Verdict,
}

/// The whole.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct BenchReport {
    /// Times that each row was measured.
    pub rounds: usize,
    /// The rows.
    pub rows: Vec<Row>,
    /// Both directions loaded at once, with one worker and with two.
    pub both_ways: Vec<BothRow>,
    /// The comparison.
    pub targets: Vec<Target>,
}

impl BenchReport {
    /// The report of what was measured: for each of `Mode::ALL`, a sample a round.
    ///
    /// # Errors
    /// Why these are no figures: something did not pass at all.
    pub fn of(measured: &[Vec<Sample>]) -> Result<BenchReport, String> {
        for (mode, samples) in Mode::ALL.into_iter().zip(measured) {
            for s in samples {
                let figures = [s.pps_60, s.pps_1514, s.tcp_bps, s.ping_mean_us, s.ping_p99_us];
                let good = |figure: &f64| figure.is_finite() && *figure > 0.0;
                if !figures.iter().all(good) || !s.cpu_us.is_finite() {
                    return Err(format!(
                        "{}: packets, a stream or echoes did not pass ({} and {} packets/s, {} bit/s, {} us)",
                        mode.name(),
                        s.pps_60,
                        s.pps_1514,
                        s.tcp_bps,
                        s.ping_mean_us
                    ));
                }
            }
        }
        let rows = Mode::ALL.into_iter().zip(measured).map(|(mode, samples)| row(mode, samples)).collect();
        let rounds = measured.iter().map(Vec::len).min().unwrap_or(0);
        Ok(BenchReport { rounds, rows, both_ways: Vec::new(), targets: targets(measured, rounds) })
    }

    /// The same, with what was measured of both directions at once: with one worker and with two, a sample a round.
    pub fn with_both_ways(mut self, measured: &[Vec<BothSample>; 2]) -> BenchReport {
        let (rows, mut targets) = judged(measured);
        self.both_ways = rows;
        self.targets.append(&mut targets);
        self
    }
}

fn row(mode: Mode, samples: &[Sample]) -> Row {
    let figure = |of: fn(&Sample) -> f64| Figure::of(samples.iter().map(of).collect());
    Row {
        mode,
        pps_60: figure(|s| s.pps_60),
        pps_1514: figure(|s| s.pps_1514),
        tcp_bps: figure(|s| s.tcp_bps),
        ping_mean_us: figure(|s| s.ping_mean_us),
        ping_p99_us: figure(|s| s.ping_p99_us),
        cpu_us: figure(|s| s.cpu_us),
    }
}

/// What the data plane with CBQ of 20 leaves should reach. Each figure is taken within a round, so
/// that a slow moment of the machine is on both sides; htb is taken as it does best, on the
/// generator's processor or on the second one.
fn targets(measured: &[Vec<Sample>], rounds: usize) -> Vec<Target> {
    // A round that gives no number (less than no processor time, on a busy machine) is left out.
    let each = |of: fn(&Round<'_>) -> f64| {
        let values = (0..rounds).map(|index| of(&Round { measured, index }));
        match values.filter(|value| value.is_finite()).collect::<Vec<_>>() {
            few if 2 * few.len() <= rounds => None,
            values => Some(Figure::of(values)),
        }
    };
    let nothing = Figure { median: 0.0, low: 0.0, high: 0.0 };
    let at_least = |what: &str, least: f64, of: fn(&Round<'_>) -> f64| {
        let found = each(of);
        let verdict = verdict(found.map(|f| [f.low >= least, f.high < least]));
        let measured = found.unwrap_or(nothing);
        Target { what: what.into(), asked: format!("at least {least}"), measured, verdict }
    };
    let at_most = |what: &str, most: f64, of: fn(&Round<'_>) -> f64| {
        let found = each(of);
        let verdict = verdict(found.map(|f| [f.high <= most, f.low > most]));
        let measured = found.unwrap_or(nothing);
        Target { what: what.into(), asked: format!("at most {most}"), measured, verdict }
    };
    use Mode::{Kernel, WeirCbq, WeirFifo, WeirXdp, WeirXdpBusy};
    vec![
        at_least("60-byte packets/s, CBQ over htb", 1.0, |r| r.over_htb(WeirCbq, |s| s.pps_60)),
        at_least("1514-byte packets/s, CBQ over htb", 1.0, |r| r.over_htb(WeirCbq, |s| s.pps_1514)),
        at_most("processor time per packet, CBQ over htb", 2.0, |r| {
            let least = r.htb().map(|s| s.cpu_us).into_iter().fold(f64::INFINITY, f64::min);
            let own = r.of(WeirCbq).cpu_us;
            if least > 0.0 && own > 0.0 { own / least } else { f64::NAN }
        }),
        at_least("one TCP stream with CBQ, Gbit/s", 8.0, |r| r.of(WeirCbq).tcp_bps / 1e9),
        at_most("mean ping added by CBQ, us", 60.0, |r| {
            r.of(WeirCbq).ping_mean_us - r.of(Kernel).ping_mean_us
        }),
        at_most("cost of CBQ over FIFO at 60 bytes, part", 0.15, |r| {
            1.0 - r.of(WeirCbq).pps_60 / r.of(WeirFifo).pps_60
        }),
        at_least("60-byte packets/s, AF_XDP over htb", 1.4, |r| r.over_htb(WeirXdp, |s| s.pps_60)),
        at_least("1514-byte packets/s, AF_XDP over htb", 1.2, |r| r.over_htb(WeirXdp, |s| s.pps_1514)),
        at_least("60-byte packets/s, busy polling over htb", 2.2, |r| r.over_htb(WeirXdpBusy, |s| s.pps_60)),
        at_least("1514-byte packets/s, busy polling over htb", 1.0, |r| {
            r.over_htb(WeirXdpBusy, |s| s.pps_1514)
        }),
    ]
}

/// What one round measured.
struct Round<'a> {
    measured: &'a [Vec<Sample>],
    index: usize,
}

impl Round<'_> {
    fn of(&self, mode: Mode) -> Sample {
        let row = Mode::ALL.iter().position(|m| *m == mode).unwrap_or(0);
        self.measured[row][self.index]
    }
    /// A figure of a mode for each of htb's at its best.
    fn over_htb(&self, mode: Mode, figure: fn(&Sample) -> f64) -> f64 {
        figure(&self.of(mode)) / self.htb().iter().map(figure).fold(0.0, f64::max)
    }
    /// On the generator's processor, and on the second one.
    fn htb(&self) -> [Sample; 2] {
        [Mode::KernelHtb, Mode::KernelHtbRps].map(|mode| self.of(mode))
    }
}

pub(super) fn verdict(reached_or_missed: Option<[bool; 2]>) -> Verdict {
    match reached_or_missed {
        Some([true, _]) => Verdict::Reached,
        Some([_, true]) => Verdict::Missed,
        _ => Verdict::Unclear,
    }
}

impl std::fmt::Display for BenchReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{} rounds: medians, and the spread (quartiles) in percent", self.rounds)?;
        for row in &self.rows {
            let show = |figure: Figure, unit: f64| {
                let spread = 50.0 * (figure.high - figure.low) / figure.median.abs().max(1e-9);
                format!("{:.1} ±{spread:.0}%", figure.median / unit)
            };
            writeln!(
                f,
                "{:<36} 60 B {} kpps, 1514 B {} kpps, TCP {} Gbit/s, ping {} us, {} us per packet",
                row.mode.name(),
                show(row.pps_60, 1e3),
                show(row.pps_1514, 1e3),
                show(row.tcp_bps, 1e9),
                show(row.ping_mean_us, 1.0),
                show(row.cpu_us, 1.0)
            )?;
        }
        for BothRow { workers, pps_60, pps_1514 } in &self.both_ways {
            writeln!(
                f,
                "both ways, workers {workers}: 60 B {:.1} kpps, 1514 B {:.1} kpps",
                pps_60.median / 1e3,
                pps_1514.median / 1e3
            )?;
        }
        for target in &self.targets {
            let Figure { median, low, high } = target.measured;
            writeln!(
                f,
                "{:<44}{median:>8.2} ({low:.2} to {high:.2})   {} {}",
                target.what,
                target.asked,
                target.verdict.name()
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(mode: Mode, pps_60: f64) -> Sample {
        let pps_60 = if mode == Mode::WeirCbq { pps_60 } else { 2e5 };
        Sample { pps_60, pps_1514: 2e5, tcp_bps: 9e9, ping_mean_us: 40.0, ping_p99_us: 60.0, cpu_us: 3.0 }
    }
    fn report(cbq: &[f64]) -> BenchReport {
        let rounds = |mode| cbq.iter().map(|&pps| sample(mode, pps)).collect();
        BenchReport::of(&Mode::ALL.map(rounds)).unwrap()
    }

    /// No verdict where the rounds spread over the bound.
    #[test]
    fn a_verdict_needs_three_quarters_of_the_rounds() {
        for (cbq, expected) in [
            ([2.1e5, 2.2e5, 2.0e5, 2.3e5, 2.1e5], Verdict::Reached),
            ([1.9e5, 1.8e5, 1.7e5, 1.9e5, 2.5e5], Verdict::Missed),
            ([1.9e5, 1.8e5, 2.2e5, 1.9e5, 2.5e5], Verdict::Unclear),
            ([2.1e5, 1.8e5, 2.2e5, 1.9e5, 2.5e5], Verdict::Unclear),
        ] {
            assert_eq!(report(&cbq).targets[0].verdict, expected, "{cbq:?}");
        }
    }

    #[test]
    fn htb_is_taken_where_it_does_best() {
        let mut measured: Vec<Vec<Sample>> = Mode::ALL.map(|mode| vec![sample(mode, 2.2e5); 4]).to_vec();
        let rps = Mode::ALL.iter().position(|m| *m == Mode::KernelHtbRps).unwrap();
        assert_eq!(BenchReport::of(&measured).unwrap().targets[0].verdict, Verdict::Reached);
        for sample in &mut measured[rps] {
            (sample.pps_60, sample.cpu_us) = (3e5, 1.0);
        }
        let report = BenchReport::of(&measured).unwrap();
        assert_eq!(report.targets[0].verdict, Verdict::Missed);
        assert_eq!(report.targets[2].verdict, Verdict::Missed, "three times the cheaper htb");
        // Less than no time is no figure.
        measured[rps].iter_mut().for_each(|sample| sample.cpu_us = -1.0);
        let report = BenchReport::of(&measured).unwrap();
        assert_eq!(report.targets[2].verdict, Verdict::Unclear);
    }
}
