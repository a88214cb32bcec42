//! Whether a report satisfies expectations.

use crate::expect::{Expect, Windows};
use crate::histogram::Histogram;
use crate::measure::{Measure, Statistic};
use crate::report::{Check, ClassReport, FlowKind, FlowReport, PortReport, Report};
use weir_text::Unit;

/// Checks every expectation that speaks of this kind of run, and every asserted class of a flow.
pub fn evaluate(expects: &[Expect], report: &Report) -> Vec<Check> {
    let expects = expects.iter().filter(|expect| expect.only.is_none_or(|kind| kind == report.meta.kind));
    let mut checks: Vec<Check> = expects.map(|expect| check(report, expect)).collect();
    for flow in &report.flows {
        let Some(class) = &flow.class else { continue };
        checks.push(Check {
            what: format!("flow {}: packets outside class {class}", flow.name),
            expected: "0".into(),
            measured: Some(flow.misclassified as f64),
            unit: Unit::Number,
            pass: flow.misclassified == 0,
            note: None,
        });
    }
    checks
}

/// An interval in nanoseconds.
#[derive(Clone, Copy)]
struct Interval {
    from: u64,
    to: u64,
}

impl Interval {
    fn seconds(self) -> f64 {
        (self.to - self.from) as f64 / 1e9
    }
    /// The part of a series that lies within it.
    fn cells<T>(self, list: &[T], cell_ns: u64) -> &[T] {
        let from = ((self.from / cell_ns) as usize).min(list.len());
        let to = (self.to.div_ceil(cell_ns) as usize).clamp(from, list.len());
        &list[from..to]
    }
    fn sum(self, list: &[u64], cell_ns: u64) -> f64 {
        self.cells(list, cell_ns).iter().map(|n| *n as f64).sum()
    }
}

fn check(report: &Report, expect: &Expect) -> Check {
    let kind = report.meta.kind;
    let mut check = Check {
        what: expect.describe(),
        expected: expect.allowed(kind),
        measured: None,
        unit: expect.unit_shown(),
        pass: false,
        note: None,
    };
    let subject = match Subject::of(report, expect) {
        Ok(subject) => subject,
        Err(why) => return Check { note: Some(why), ..check },
    };
    let interval = Interval {
        from: expect.from.as_nanos(),
        to: expect.to.map_or(report.meta.duration_ns, |to| to.as_nanos()).min(report.meta.duration_ns),
    };
    if interval.from >= interval.to {
        return Check { note: Some("the run ended before this interval".into()), ..check };
    }
    let (low, high) = expect.bounds(kind);
    // A relative slack of 1e-12 so that "58 %" of a float that is 0.58 less one bit still holds.
    let slack = 1e-12 * low.abs().min(high.abs());
    let holds = |value: f64| value >= low - slack && value <= high + slack;
    let Some((every, window)) = expect.every.zip(expect.window()) else {
        check.measured = subject.measure(expect, interval);
        match check.measured {
            Some(value) => check.pass = holds(value),
            None => check.note = Some("there was nothing to measure".into()),
        }
        return check;
    };
    let (every, window) = (every.as_nanos().max(1), window.as_nanos());
    let windows = match (interval.to - interval.from).checked_sub(window) {
        Some(room) => room / every + 1,
        None => 0,
    };
    let values: Vec<(u64, f64)> = (0..windows)
        .filter_map(|n| {
            let from = interval.from + n * every;
            Some((from, subject.measure(expect, Interval { from, to: from + window })?))
        })
        .collect();
    if values.is_empty() {
        return Check { note: Some("there was nothing to measure in any window".into()), ..check };
    }
    let mut sorted: Vec<f64> = values.iter().map(|(_, value)| *value).collect();
    sorted.sort_by(f64::total_cmp);
    let failing = values.iter().filter(|(_, value)| !holds(*value));
    // The window that is farthest outside, or the median if none is.
    let outside = |value: f64| (low - value).max(value - high);
    let worst = failing.clone().max_by(|a, b| outside(a.1).total_cmp(&outside(b.1)));
    let middle = median(&sorted);
    let (measured, pass) = match expect.windows {
        Windows::All => (worst.map_or(middle, |worst| worst.1), worst.is_none()),
        Windows::Share(share) => {
            let held = values.len() - failing.clone().count();
            (worst.map_or(middle, |worst| worst.1), held as f64 >= share * values.len() as f64 - 1e-9)
        }
        Windows::Median => (middle, holds(middle)),
        Windows::Mean => {
            let mean = sorted.iter().sum::<f64>() / sorted.len() as f64;
            (mean, holds(mean))
        }
    };
    if let (Some((from, _)), Windows::All | Windows::Share(_)) = (worst, expect.windows) {
        let held = values.len() - failing.count();
        check.note = Some(format!(
            "{held} of {} windows hold; the worst begins at {:.3} s",
            values.len(),
            *from as f64 / 1e9
        ));
    }
    Check { measured: Some(measured), pass, ..check }
}

/// The middle of sorted values.
fn median(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[half] } else { (sorted[half - 1] + sorted[half]) / 2.0 }
}

/// Who is measured.
enum Subject<'a> {
    Classes {
        report: &'a Report,
        port: &'a PortReport,
        over: Vec<&'a ClassReport>,
        under: Vec<&'a ClassReport>,
    },
    Link {
        report: &'a Report,
        wire_bytes: &'a [u64],
        rate_bps: u64,
    },
    Flows {
        report: &'a Report,
        over: Vec<&'a FlowReport>,
        under: Vec<&'a FlowReport>,
    },
}

impl<'a> Subject<'a> {
    fn of(report: &'a Report, expect: &Expect) -> Result<Self, String> {
        if expect.what.of_flows() {
            let find = |names: &[String]| -> Vec<&FlowReport> {
                let wanted = |flow: &&FlowReport| names.iter().any(|name| flow.is_called(name));
                report.flows.iter().filter(wanted).collect()
            };
            let names = expect.names();
            let over = if names.is_empty() { report.flows.iter().collect() } else { find(&names) };
            return Ok(Subject::Flows { report, over, under: find(&expect.per) });
        }
        let no_port = || match &expect.port {
            Some(name) => format!("the report has no port {name}"),
            None => "the report does not have exactly one managed port".to_string(),
        };
        if expect.what == Measure::Utilisation {
            let name = match &expect.port {
                Some(name) => name,
                None => &report.port(None).ok_or_else(no_port)?.name,
            };
            let link = report.link(name).ok_or_else(no_port)?;
            return Ok(Subject::Link { report, wire_bytes: &link.wire_bytes, rate_bps: link.rate_bps });
        }
        let port = report.port(expect.port.as_deref()).ok_or_else(no_port)?;
        let find = |names: &[String]| -> Result<Vec<&'a ClassReport>, String> {
            names
                .iter()
                .map(|name| {
                    port.class(name).ok_or_else(|| {
                        let known: Vec<&str> =
                            port.classes.iter().map(|class| class.name.as_str()).take(20).collect();
                        format!("there is no class {name} at {}: it has {}", port.name, known.join(", "))
                    })
                })
                .collect()
        };
        let names = expect.names();
        let over = if names.is_empty() { port.classes.iter().collect() } else { find(&names)? };
        Ok(Subject::Classes { report, port, over, under: find(&expect.per)? })
    }

    /// The value in an interval; none if it has no meaning there.
    fn measure(&self, expect: &Expect, interval: Interval) -> Option<f64> {
        let finite = |value: f64| Some(value).filter(|value| value.is_finite());
        match self {
            Subject::Link { report, wire_bytes, rate_bps } => {
                let bits = interval.sum(wire_bytes, report.meta.cell_ns) * 8.0;
                finite(bits / (*rate_bps as f64 * interval.seconds()))
            }
            Subject::Flows { report, over, under } => {
                let value = of_flows(report, expect.what, over, interval)?;
                if under.is_empty() {
                    Some(value)
                } else {
                    finite(value / of_flows(report, expect.what, under, interval)?)
                }
            }
            Subject::Classes { report, port, over, under } => {
                let value = of_classes(report, port, expect.what, over, interval)?;
                if under.is_empty() {
                    Some(value)
                } else {
                    finite(value / of_classes(report, port, expect.what, under, interval)?)
                }
            }
        }
    }
}

fn of_classes(
    report: &Report,
    port: &PortReport,
    what: Measure,
    classes: &[&ClassReport],
    interval: Interval,
) -> Option<f64> {
    let cell_ns = report.meta.cell_ns;
    let whole = interval.from == 0 && interval.to >= report.meta.duration_ns;
    let total = |list: fn(&ClassReport) -> &[u64]| -> f64 {
        classes.iter().map(|class| interval.sum(list(class), cell_ns)).sum()
    };
    let sent = || total(|class| &class.series.sent_packets);
    let allocates = || classes.iter().any(|class| !class.series.allocated_bits.is_empty());
    let allocated = || total(|class| &class.series.allocated_bits);
    Some(match what {
        Measure::Rate => total(|class| &class.series.sent_bytes) * 8.0 / interval.seconds(),
        Measure::Offered => total(|class| &class.series.offered_bytes) * 8.0 / interval.seconds(),
        Measure::Share => {
            let wire = total(|class| &class.series.sent_bytes) + sent() * port.overhead_bytes as f64;
            Some(wire * 8.0 / (port.rate_bps as f64 * interval.seconds()))
                .filter(|share| share.is_finite())?
        }
        Measure::Drops => total(|class| &class.series.dropped_packets),
        Measure::Marks => total(|class| &class.series.marked_packets),
        Measure::Loss => {
            let offered = total(|class| &class.series.offered_packets);
            (offered > 0.0).then(|| total(|class| &class.series.dropped_packets) / offered)?
        }
        Measure::BacklogMean => total(|class| &class.series.backlog_packet_ns) / (interval.seconds() * 1e9),
        Measure::BacklogMax => {
            let cells = interval.cells(&classes.first()?.series.backlog_max_packets, cell_ns).len();
            let at = |n: usize| {
                classes.iter().filter_map(move |class| {
                    interval.cells(&class.series.backlog_max_packets, cell_ns).get(n)
                })
            };
            (0..cells).map(|n| at(n).fold(0_u64, |sum, value| sum.saturating_add(*value))).max()? as f64
        }
        Measure::Delay(Statistic::Mean) if !whole => {
            let packets = sent();
            (packets > 0.0).then(|| total(|class| &class.series.delay_sum_ns) / packets)?
        }
        Measure::Delay(Statistic::Max) if !whole => {
            let cells = classes.iter().flat_map(|class| interval.cells(&class.series.delay_max_ns, cell_ns));
            (sent() > 0.0).then(|| cells.max().copied())?? as f64
        }
        Measure::Delay(statistic) => {
            let mut delays = Histogram::default();
            for class in classes {
                match whole {
                    true => delays.merge(&class.delay.histogram),
                    false => interval
                        .cells(&class.series.delays, cell_ns)
                        .iter()
                        .for_each(|part| delays.merge(part)),
                }
            }
            of_distribution(statistic, &delays)?
        }
        Measure::Requests if allocates() => total(|class| &class.series.requests) * 60.0 / interval.seconds(),
        Measure::Allocated if allocates() => allocated() / interval.seconds(),
        Measure::Estimate if allocates() => total(|class| &class.series.estimated_bits) / interval.seconds(),
        Measure::Efficiency => {
            let used = total(|class| &class.series.measured_bytes) * 8.0;
            (allocated() > 0.0).then(|| used / allocated())?
        }
        Measure::Requests | Measure::Allocated | Measure::Estimate => return None,
        Measure::EstimateExcess
        | Measure::EstimateAbove
        | Measure::Refused
        | Measure::Evicted
        | Measure::WindowsAbove => *classes.first()?.statistics.get(what.of_edge()?)?,
        Measure::Utilisation
        | Measure::Goodput
        | Measure::Jain
        | Measure::Retransmits
        | Measure::Transactions
        | Measure::Recognised
        | Measure::RecognisedAfter
        | Measure::False
        | Measure::Rtt(_)
        | Measure::OneWay(_) => return None,
    })
}

fn of_distribution(statistic: Statistic, delays: &Histogram) -> Option<f64> {
    (delays.count() > 0).then(|| match statistic {
        Statistic::Mean => delays.mean(),
        Statistic::Max => delays.max() as f64,
        Statistic::Percentile(p) => delays.percentile(p) as f64,
    })
}

fn of_flows(report: &Report, what: Measure, flows: &[&FlowReport], interval: Interval) -> Option<f64> {
    let goodput =
        |flow: &FlowReport| interval.sum(&flow.delivered, report.meta.cell_ns) * 8.0 / interval.seconds();
    Some(match what {
        Measure::Goodput => flows.iter().map(|flow| goodput(flow)).sum(),
        Measure::Jain => {
            let sum: f64 = flows.iter().map(|flow| goodput(flow)).sum();
            let squares: f64 = flows.iter().map(|flow| goodput(flow).powi(2)).sum();
            (squares > 0.0).then(|| sum * sum / (flows.len() as f64 * squares))?
        }
        Measure::Retransmits => flows.iter().filter_map(|flow| flow.retransmits).sum::<u64>() as f64,
        Measure::Transactions => {
            flows.iter().filter_map(|flow| flow.transactions).sum::<u64>() as f64 / interval.seconds()
        }
        Measure::Recognised => {
            let found = flows.iter().filter(|flow| flow.recognised.is_some()).count();
            (!flows.is_empty()).then(|| found as f64 / flows.len() as f64)?
        }
        Measure::RecognisedAfter => flows.iter().filter_map(|flow| flow.recognised).max()? as f64,
        Measure::False => {
            let wrong = |flow: &&&FlowReport| flow.recognised.is_some() && flow.kind != FlowKind::Rtp;
            flows.iter().filter(wrong).count() as f64
        }
        Measure::Rtt(statistic) => {
            let mut times = Histogram::default();
            flows.iter().filter_map(|flow| flow.rtt.as_ref()).for_each(|rtt| times.merge(&rtt.histogram));
            of_distribution(statistic, &times)?
        }
        Measure::OneWay(statistic) => {
            let mut times = Histogram::default();
            let known = flows.iter().filter_map(|flow| flow.one_way.as_ref());
            known.for_each(|one_way| times.merge(&one_way.histogram));
            of_distribution(statistic, &times)?
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
