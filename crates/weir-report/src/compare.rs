//! Runs side by side, class by class and flow by flow: simulated beside live, before beside after.

use crate::report::{ClassReport, FlowReport, Meta, PortReport, Report};
use serde::Serialize;
use std::fmt;
use weir_text::{Unit, show};

/// Most runs that are set side by side: as many as a plot has kinds of lines.
pub const MOST: usize = 4;

/// Runs beside each other.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// What to call the runs: see `labels`.
    pub names: Vec<String>,
    /// What makes the runs less comparable: other inputs, another length.
    pub warnings: Vec<String>,
    /// The values.
    pub rows: Vec<Row>,
}

/// What to call runs that are shown together: what they differ in, of kind, scenario and seed; with
/// a letter before it, or that alone, where this does not tell all of them apart.
pub fn labels(runs: &[&Report]) -> Vec<String> {
    let labels = differences(runs);
    if all_differ(&labels) {
        return labels;
    }
    let lettered =
        labels.iter().zip('a'..).map(|(label, letter)| format!("{letter} {label}").trim_end().into());
    lettered.collect()
}

/// True if kind, scenario and seed tell all of the runs apart.
pub fn are_told_apart(runs: &[&Report]) -> bool {
    all_differ(&differences(runs))
}

/// What each run differs in, of kind, scenario and seed.
fn differences(runs: &[&Report]) -> Vec<String> {
    let parts: [fn(&Meta) -> String; 3] = [
        |meta| meta.kind.name().to_string(),
        |meta| meta.scenario.clone(),
        |meta| format!("seed {}", meta.seed),
    ];
    let varies = |part: &&fn(&Meta) -> String| runs.iter().any(|run| part(&run.meta) != part(&runs[0].meta));
    let varying: Vec<_> = parts.iter().filter(varies).collect();
    let of = |run: &&Report| varying.iter().map(|part| part(&run.meta)).collect::<Vec<_>>().join(" ");
    runs.iter().map(of).collect()
}

fn all_differ(labels: &[String]) -> bool {
    !labels.iter().enumerate().any(|(n, label)| labels[..n].contains(label))
}

/// One value of all runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// `class` or `flow`.
    pub kind: &'static str,
    /// The managed port; empty for flows.
    pub port: String,
    /// The class or flow.
    pub name: String,
    /// What is compared: `rate`, `share`, `delay-mean`, `delay-p99`, `drops`, `marks`, `goodput`, `retransmits`.
    pub what: &'static str,
    /// In bit/s, nanoseconds, parts of one, or a count; none where a run has no such class or flow.
    pub a: Option<f64>,
    /// Likewise, of the second run.
    pub b: Option<f64>,
    /// `b` against `a` in per cent; for shares in percentage points; none where `a` is zero or missing.
    pub difference: Option<f64>,
    /// Likewise, of the third run and the fourth.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<Option<f64>>,
    #[serde(skip)]
    unit: Unit,
}

/// Compares reports, at most `MOST`, with the first of them.
pub fn compare(runs: &[&Report]) -> Comparison {
    let mut comparison = Comparison { names: labels(runs), warnings: warnings(runs), rows: Vec::new() };
    for port in union(runs.iter().map(|run| run.ports.as_slice()), |port| &port.name) {
        let all: Vec<Option<&PortReport>> = runs.iter().map(|run| run.port(Some(port))).collect();
        let classes = all.iter().map(|port| port.map_or(&[][..], |port| port.classes.as_slice()));
        for name in union(classes, |class: &ClassReport| &class.name) {
            for (what, unit, f) in CLASS {
                let value = |(run, port): (&&Report, &Option<&PortReport>)| {
                    let port = (*port)?;
                    Some(f(&run.meta, port, port.class(name)?))
                };
                let values = runs.iter().zip(&all).map(value).collect();
                comparison.rows.push(Row::of(("class", port, name), what, unit, values));
            }
        }
    }
    for name in union(runs.iter().map(|run| run.flows.as_slice()), |flow| &flow.name) {
        let pick = |run: &&Report| run.flows.iter().find(|flow| flow.name == name).cloned();
        let flows: Vec<Option<FlowReport>> = runs.iter().map(pick).collect();
        let goodput = flows.iter().map(|flow| Some(flow.as_ref()?.goodput_bps)).collect();
        let again: Vec<_> = flows.iter().map(|flow| Some(flow.as_ref()?.retransmits? as f64)).collect();
        comparison.rows.push(Row::of(("flow", "", name), "goodput", Unit::Rate, goodput));
        if again.iter().any(Option::is_some) {
            comparison.rows.push(Row::of(("flow", "", name), "retransmits", Unit::Number, again));
        }
    }
    comparison
}

type Of = fn(&Meta, &PortReport, &ClassReport) -> f64;

/// What is compared of a class.
const CLASS: [(&str, Unit, Of); 6] = [
    ("rate", Unit::Rate, |meta, _, class| class.sent.bytes as f64 * 8e9 / meta.duration_ns as f64),
    ("share", Unit::Share, |meta, port, class| {
        let wire = class.sent.bytes as f64 + class.sent.packets as f64 * port.overhead_bytes as f64;
        wire * 8e9 / (port.rate_bps.max(1) as f64 * meta.duration_ns as f64)
    }),
    ("delay-mean", Unit::Time, |_, _, class| class.delay.mean_ns),
    ("delay-p99", Unit::Time, |_, _, class| class.delay.p99_ns as f64),
    ("drops", Unit::Number, |_, _, class| class.dropped_in_all().packets as f64),
    ("marks", Unit::Number, |_, _, class| class.marked as f64),
];

impl Row {
    fn of(who: (&'static str, &str, &str), what: &'static str, unit: Unit, values: Vec<Option<f64>>) -> Row {
        let mut values = values.into_iter();
        let (a, b) = (values.next().flatten(), values.next().flatten());
        let difference = match (a, b) {
            (Some(a), Some(b)) if unit == Unit::Share => Some((b - a) * 100.0),
            (Some(a), Some(b)) if a != 0.0 => Some((b / a - 1.0) * 100.0),
            _ => None,
        };
        let (port, name) = (who.1.into(), who.2.into());
        Row { kind: who.0, port, name, what, a, b, difference, others: values.collect(), unit }
    }

    /// The values of all runs.
    fn values(&self) -> impl Iterator<Item = Option<f64>> + '_ {
        [self.a, self.b].into_iter().chain(self.others.iter().copied())
    }

    /// True if nothing happened in any run.
    fn is_zero(&self) -> bool {
        self.values().all(|value| value.unwrap_or(0.0) == 0.0)
    }
}

/// The names of the first list, then those that only later ones have.
fn union<'a, T: 'a>(lists: impl Iterator<Item = &'a [T]>, name: fn(&T) -> &String) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for item in lists.flatten() {
        if !names.contains(&name(item).as_str()) {
            names.push(name(item));
        }
    }
    names
}

fn warnings(runs: &[&Report]) -> Vec<String> {
    let mut warnings = Vec::new();
    let differ = |a: &dyn Fn(&Meta, &Meta) -> bool| runs.iter().any(|run| a(&run.meta, &runs[0].meta));
    if differ(&|a, b| a.inputs != b.inputs) {
        warnings.push("the runs had different scenarios or configurations".to_string());
    }
    if differ(&|a, b| a.duration_ns != b.duration_ns) {
        let lengths: Vec<String> =
            runs.iter().map(|run| format!("{} s", run.meta.duration_ns as f64 / 1e9)).collect();
        warnings.push(format!("the runs had different lengths: {}", lengths.join(" and ")));
    }
    warnings
}

/// The widest name of a class or flow that stands beside its values: a wider one has a line of its own.
const NAME: usize = 24;
/// The widest label that stands over a column: of wider ones the letters do.
const LABEL: usize = 12;

impl fmt::Display for Comparison {
    /// A table for people, 80 columns wide: one line a value, the name of a class or flow only where it changes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for warning in &self.warnings {
            writeln!(f, "warning: {warning}")?;
        }
        let wide = self.names.iter().any(|name| name.chars().count() > LABEL);
        let letters: Vec<String> = ('a'..).take(self.names.len()).map(String::from).collect();
        if wide {
            for (letter, name) in letters.iter().zip(&self.names) {
                let said = name.strip_prefix(&format!("{letter} ")).unwrap_or(name);
                writeln!(f, "{letter} = {said}")?;
            }
        }
        let heads = if wide { &letters } else { &self.names };
        // Two runs have their difference beside them, more have only their values.
        let two = heads.len() == 2;
        let mut head = vec![String::new(), String::new()];
        head.extend(heads.iter().cloned());
        head.extend(two.then(|| "difference".to_string()));
        let mut lines = vec![head];
        let several_ports = self.rows.iter().any(|row| !row.port.is_empty() && row.port != self.rows[0].port);
        // Classes without traffic, inner ones above all, are not worth their lines.
        let quiet = |row: &Row| {
            let same = |other: &&Row| other.port == row.port && other.name == row.name;
            row.kind == "class" && self.rows.iter().filter(same).all(Row::is_zero)
        };
        let mut last = String::new();
        // Nor what never happened in any run.
        let shown = |row: &&Row| !(quiet(row) || row.what == "marks" && row.is_zero());
        for row in self.rows.iter().filter(shown) {
            let name = if several_ports && !row.port.is_empty() {
                format!("{} {} {}", row.kind, row.port, row.name)
            } else {
                format!("{} {}", row.kind, row.name)
            };
            let mut line = vec![if name == last { String::new() } else { name.clone() }, row.what.into()];
            let show = |value: Option<f64>| value.map_or("–".to_string(), |value| show(value, row.unit));
            line.extend(row.values().take(heads.len()).map(show));
            line.extend(two.then(|| match (row.difference, row.unit) {
                (Some(points), Unit::Share) => format!("{points:+.1} points"),
                (Some(percent), _) => format!("{percent:+.1} %"),
                (None, _) => "–".into(),
            }));
            lines.push(line);
            last = name;
        }
        let width = |column: usize| {
            let fits = |width: &usize| column > 0 || *width <= NAME;
            lines.iter().map(|line| line[column].chars().count()).filter(fits).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..lines[0].len()).map(width).collect();
        for line in &lines {
            let mut text = String::new();
            for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
                if column == 0 && cell.chars().count() > NAME {
                    writeln!(f, "{cell}")?;
                    text += &" ".repeat(*width);
                } else if column < 2 {
                    text += &format!("{cell:<width$}");
                } else {
                    text += &format!("{cell:>width$}");
                }
                text += "  ";
            }
            writeln!(f, "{}", text.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
