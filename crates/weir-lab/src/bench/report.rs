//! What the bench found: figures with their spread, and what they are held against.

use super::Mode;
use super::both::{BothRow, BothSample, judged};
use super::figure::{Figure, Target, verdict};
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
    /// The shortest round trip, microseconds.
    pub ping_least_us: f64,
    /// Round trip that one of a hundred exceeds, microseconds.
    pub ping_p99_us: f64,
    /// Processor time of all cores per packet of 60 bytes, microseconds, less what it takes to make it and
    /// to lead it to the box: at a low rate.
    pub cpu_us: f64,
    /// The same at half of what htb carries.
    pub cpu_half_us: f64,
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
    /// The shortest round trip of a round, microseconds.
    pub ping_least_us: Figure,
    /// Round trip that one of a hundred exceeds, microseconds.
    pub ping_p99_us: Figure,
    /// Processor time per packet, microseconds, see [`Sample::cpu_us`].
    pub cpu_us: Figure,
    /// The same at half of what htb carries.
    pub cpu_half_us: Figure,
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
    /// The report of what was measured of these modes: for each a sample a round.
    ///
    /// # Errors
    /// Why these are no figures: something did not pass at all.
    pub fn of(modes: &[Mode], measured: &[Vec<Sample>]) -> Result<BenchReport, String> {
        for (mode, samples) in modes.iter().zip(measured) {
            for s in samples {
                let figures =
                    [s.pps_60, s.pps_1514, s.tcp_bps, s.ping_mean_us, s.ping_least_us, s.ping_p99_us];
                let good = |figure: &f64| figure.is_finite() && *figure > 0.0;
                if !figures.iter().all(good) || !(s.cpu_us + s.cpu_half_us).is_finite() {
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
        let rows = modes.iter().zip(measured).map(|(mode, samples)| row(*mode, samples)).collect();
        let rounds = measured.iter().map(Vec::len).min().unwrap_or(0);
        let targets = targets(modes, measured, rounds);
        Ok(BenchReport { rounds, rows, both_ways: Vec::new(), targets })
    }

    /// The same, with what was measured of both directions at once: with one worker and with two, a sample a round.
    pub fn with_both_ways(mut self, measured: &[Vec<BothSample>; 2]) -> BenchReport {
        let (rows, mut targets) = judged(measured);
        self.rounds = measured[0].len();
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
        ping_least_us: figure(|s| s.ping_least_us),
        ping_p99_us: figure(|s| s.ping_p99_us),
        cpu_us: figure(|s| s.cpu_us),
        cpu_half_us: figure(|s| s.cpu_half_us),
    }
}

/// What a figure should be.
#[derive(Clone, Copy)]
enum Bound {
    Least(f64),
    Most(f64),
}

type Ask = (&'static str, Bound, fn(&Round<'_>) -> Option<f64>);

/// What the data plane with CBQ of 20 leaves should reach. Each figure is taken within a round, so
/// that a slow moment of the machine is on both sides; htb is taken as it does best, on the
/// generator's processor or on the second one.
const ASKED: [Ask; 15] = {
    use Bound::{Least, Most};
    use Mode::{Kernel, WeirCbq, WeirFifo, WeirXdp, WeirXdpBusy};
    [
        ("60-byte packets/s, CBQ over htb", Least(1.0), |r| r.over_htb(WeirCbq, |s| s.pps_60)),
        ("1514-byte packets/s, CBQ over htb", Least(1.0), |r| r.over_htb(WeirCbq, |s| s.pps_1514)),
        ("processor time per packet, CBQ over htb", Most(2.0), |r| r.time_over_htb(|s| s.cpu_us)),
        ("the same at half of htb's rate", Most(2.0), |r| r.time_over_htb(|s| s.cpu_half_us)),
        ("one TCP stream with CBQ, Gbit/s", Least(8.0), |r| Some(r.of(WeirCbq)?.tcp_bps / 1e9)),
        ("least ping added by CBQ, us", Most(60.0), |r| {
            Some(r.of(WeirCbq)?.ping_least_us - r.of(Kernel)?.ping_least_us)
        }),
        ("cost of CBQ over FIFO at 60 bytes, part", Most(0.15), |r| {
            Some(1.0 - r.of(WeirCbq)?.pps_60 / r.of(WeirFifo)?.pps_60)
        }),
        ("60-byte packets/s, AF_XDP over htb", Least(1.4), |r| r.over_htb(WeirXdp, |s| s.pps_60)),
        ("1514-byte packets/s, AF_XDP over htb", Least(1.2), |r| r.over_htb(WeirXdp, |s| s.pps_1514)),
        ("one TCP stream by AF_XDP, Gbit/s", Least(1.3), |r| Some(r.of(WeirXdp)?.tcp_bps / 1e9)),
        ("mean ping added by AF_XDP, us", Most(30.0), |r| r.mean_ping_added(WeirXdp)),
        ("60-byte packets/s, busy polling over htb", Least(2.2), |r| r.over_htb(WeirXdpBusy, |s| s.pps_60)),
        ("1514-byte packets/s, busy polling over htb", Least(1.0), |r| {
            r.over_htb(WeirXdpBusy, |s| s.pps_1514)
        }),
        ("one TCP stream by busy polling, Gbit/s", Least(1.3), |r| Some(r.of(WeirXdpBusy)?.tcp_bps / 1e9)),
        ("mean ping added by busy polling, us", Most(60.0), |r| r.mean_ping_added(WeirXdpBusy)),
    ]
};

/// What is asked of the modes that were measured.
fn targets(modes: &[Mode], measured: &[Vec<Sample>], rounds: usize) -> Vec<Target> {
    let target = |(what, bound, of): Ask| {
        let values = (0..rounds).map(|index| of(&Round { modes, measured, index }));
        let mut values = values.collect::<Option<Vec<f64>>>()?;
        // A round that gives no number is left out.
        values.retain(|value| value.is_finite());
        let found = (2 * values.len() > rounds).then(|| Figure::of(values));
        let (asked, judged) = match bound {
            Bound::Least(least) => {
                (format!("at least {least}"), found.map(|f| [f.low >= least, f.high < least]))
            }
            Bound::Most(most) => (format!("at most {most}"), found.map(|f| [f.high <= most, f.low > most])),
        };
        let nothing = Figure { median: 0.0, low: 0.0, high: 0.0 };
        Some(Target {
            what: what.into(),
            asked,
            measured: found.unwrap_or(nothing),
            verdict: verdict(judged),
        })
    };
    ASKED.into_iter().filter_map(target).collect()
}

/// What one round measured.
struct Round<'a> {
    modes: &'a [Mode],
    measured: &'a [Vec<Sample>],
    index: usize,
}

impl Round<'_> {
    /// `None` for a mode that was not measured.
    fn of(&self, mode: Mode) -> Option<Sample> {
        let row = self.modes.iter().position(|m| *m == mode)?;
        Some(self.measured[row][self.index])
    }
    /// A figure of a mode for each of htb's at its best.
    fn over_htb(&self, mode: Mode, figure: fn(&Sample) -> f64) -> Option<f64> {
        Some(figure(&self.of(mode)?) / self.htb()?.iter().map(figure).fold(0.0, f64::max))
    }
    /// Processor time of CBQ for each of htb's where it takes least. Less than none, on a busy machine, is no figure.
    fn time_over_htb(&self, time: fn(&Sample) -> f64) -> Option<f64> {
        let (own, least) =
            (time(&self.of(Mode::WeirCbq)?), self.htb()?.iter().map(time).fold(f64::INFINITY, f64::min));
        Some(if least > 0.0 && own > 0.0 { own / least } else { f64::NAN })
    }
    /// On the generator's processor, and on the second one.
    fn htb(&self) -> Option<[Sample; 2]> {
        Some([self.of(Mode::KernelHtb)?, self.of(Mode::KernelHtbRps)?])
    }
    fn mean_ping_added(&self, mode: Mode) -> Option<f64> {
        Some(self.of(mode)?.ping_mean_us - self.of(Mode::Kernel)?.ping_mean_us)
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
                "{:<36} 60 B {} kpps, 1514 B {} kpps, TCP {} Gbit/s, ping {} (least {}) us, {} and {} us per packet",
                row.mode.name(),
                show(row.pps_60, 1e3),
                show(row.pps_1514, 1e3),
                show(row.tcp_bps, 1e9),
                show(row.ping_mean_us, 1.0),
                show(row.ping_least_us, 1.0),
                show(row.cpu_us, 1.0),
                show(row.cpu_half_us, 1.0)
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
    use super::super::figure::Verdict;
    use super::*;

    fn sample(mode: Mode, pps_60: f64) -> Sample {
        let pps_60 = if mode == Mode::WeirCbq { pps_60 } else { 2e5 };
        let [ping_least_us, ping_mean_us, ping_p99_us] = [20.0, 40.0, 60.0];
        let (pps_1514, tcp_bps) = (2e5, 9e9);
        let [cpu_us, cpu_half_us] = [3.0, 2.0];
        Sample { pps_60, pps_1514, tcp_bps, ping_mean_us, ping_least_us, ping_p99_us, cpu_us, cpu_half_us }
    }
    fn report(cbq: &[f64]) -> BenchReport {
        let rounds = |mode| cbq.iter().map(|&pps| sample(mode, pps)).collect();
        BenchReport::of(&Mode::ALL, &Mode::ALL.map(rounds)).unwrap()
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
        assert_eq!(BenchReport::of(&Mode::ALL, &measured).unwrap().targets[0].verdict, Verdict::Reached);
        for sample in &mut measured[rps] {
            (sample.pps_60, sample.cpu_us) = (3e5, 1.0);
        }
        let report = BenchReport::of(&Mode::ALL, &measured).unwrap();
        assert_eq!(report.targets[0].verdict, Verdict::Missed);
        assert_eq!(report.targets[2].verdict, Verdict::Missed, "three times the cheaper htb");
        // Less than no time is no figure.
        measured[rps].iter_mut().for_each(|sample| sample.cpu_us = -1.0);
        let report = BenchReport::of(&Mode::ALL, &measured).unwrap();
        assert_eq!(report.targets[2].verdict, Verdict::Unclear);
    }

    /// Pings are judged by the shortest one, where a row is not measured nothing is asked of it.
    #[test]
    fn what_is_asked_is_asked_of_the_rows_that_were_measured() {
        let modes = [Mode::Kernel, Mode::WeirCbq];
        let slow = Sample { ping_mean_us: 500.0, ..sample(Mode::WeirCbq, 2e5) };
        let report = |cbq: Sample| {
            let measured = [vec![sample(Mode::Kernel, 2e5); 4], vec![cbq; 4]];
            let targets = BenchReport::of(&modes, &measured).unwrap().targets;
            targets.into_iter().map(|target| (target.what, target.verdict)).collect::<Vec<_>>()
        };
        let stream = ("one TCP stream with CBQ, Gbit/s".to_string(), Verdict::Reached);
        let ping = |verdict| ("least ping added by CBQ, us".to_string(), verdict);
        assert_eq!(report(slow), [stream.clone(), ping(Verdict::Reached)]);
        assert_eq!(report(Sample { ping_least_us: 100.0, ..slow }), [stream, ping(Verdict::Missed)]);
    }
}
