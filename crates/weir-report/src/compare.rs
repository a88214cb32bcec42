//! Two runs side by side, class by class and flow by flow: simulated beside live, before beside after.

use crate::measure::{Unit, show};
use crate::report::{ClassReport, Meta, PortReport, Report};
use serde::Serialize;
use std::fmt;

/// Two runs beside each other.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// What to call the two: their kinds, or `a` and `b` where these are equal.
    pub names: [String; 2],
    /// What makes the runs less comparable: other inputs, another length.
    pub warnings: Vec<String>,
    /// The values.
    pub rows: Vec<Row>,
}

/// One value of both runs.
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
    /// Likewise.
    pub b: Option<f64>,
    /// `b` against `a` in per cent; for shares in percentage points; none where `a` is zero or missing.
    pub difference: Option<f64>,
    #[serde(skip)]
    unit: Unit,
}

/// Compares two reports.
pub fn compare(a: &Report, b: &Report) -> Comparison {
    let (kind_a, kind_b) = (a.meta.kind.name(), b.meta.kind.name());
    let names = if kind_a == kind_b { ["a", "b"] } else { [kind_a, kind_b] };
    let mut comparison =
        Comparison { names: names.map(String::from), warnings: warnings(&a.meta, &b.meta), rows: Vec::new() };
    for port in union(&a.ports, &b.ports, |port| &port.name) {
        let both = [a.port(Some(port)), b.port(Some(port))];
        let classes: [&[ClassReport]; 2] = both.map(|port| port.map_or(&[][..], |port| &port.classes));
        for name in union(classes[0], classes[1], |class| &class.name) {
            let pick = |side: usize| both[side].and_then(|port| port.class(name).map(|class| (port, class)));
            let metas = [&a.meta, &b.meta];
            let value =
                |f: Of| [0, 1].map(|side| pick(side).map(|(port, class)| f(metas[side], port, class)));
            for (what, unit, f) in CLASS {
                let [a, b] = value(f);
                comparison.rows.push(Row::of(("class", port, name), what, unit, a, b));
            }
        }
    }
    for name in union(&a.flows, &b.flows, |flow| &flow.name) {
        let pick = |report: &'_ Report| report.flows.iter().find(|flow| flow.name == name).cloned();
        let (fa, fb) = (pick(a), pick(b));
        let goodput = [&fa, &fb].map(|flow| flow.as_ref().map(|flow| flow.goodput_bps));
        let again = [&fa, &fb].map(|flow| flow.as_ref().and_then(|flow| flow.retransmits).map(|n| n as f64));
        comparison.rows.push(Row::of(("flow", "", name), "goodput", Unit::Rate, goodput[0], goodput[1]));
        if again.iter().any(Option::is_some) {
            comparison.rows.push(Row::of(
                ("flow", "", name),
                "retransmits",
                Unit::Number,
                again[0],
                again[1],
            ));
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
    fn of(
        who: (&'static str, &str, &str),
        what: &'static str,
        unit: Unit,
        a: Option<f64>,
        b: Option<f64>,
    ) -> Row {
        let difference = match (a, b) {
            (Some(a), Some(b)) if unit == Unit::Share => Some((b - a) * 100.0),
            (Some(a), Some(b)) if a != 0.0 => Some((b / a - 1.0) * 100.0),
            _ => None,
        };
        Row { kind: who.0, port: who.1.into(), name: who.2.into(), what, a, b, difference, unit }
    }
}

/// The names of `a`, then those that only `b` has.
fn union<'a, T>(a: &'a [T], b: &'a [T], name: fn(&T) -> &String) -> Vec<&'a str> {
    let mut names: Vec<&str> = a.iter().map(|item| name(item).as_str()).collect();
    for item in b {
        if !names.contains(&name(item).as_str()) {
            names.push(name(item));
        }
    }
    names
}

fn warnings(a: &Meta, b: &Meta) -> Vec<String> {
    let mut warnings = Vec::new();
    if a.inputs != b.inputs {
        warnings.push("the runs had different scenarios or configurations".to_string());
    }
    if a.duration_ns != b.duration_ns {
        warnings.push(format!(
            "the runs had different lengths: {} s and {} s",
            a.duration_ns as f64 / 1e9,
            b.duration_ns as f64 / 1e9
        ));
    }
    warnings
}

impl fmt::Display for Comparison {
    /// A table for people: one line a value, the name of a class or flow only where it changes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for warning in &self.warnings {
            writeln!(f, "warning: {warning}")?;
        }
        let several_ports = self.rows.iter().any(|row| !row.port.is_empty() && row.port != self.rows[0].port);
        let mut lines = vec![[
            "".to_string(),
            "".into(),
            self.names[0].clone(),
            self.names[1].clone(),
            "difference".into(),
        ]];
        let mut last = String::new();
        // Classes without traffic, inner ones above all, are not worth their lines.
        let zero = |row: &Row| row.a.unwrap_or(0.0) == 0.0 && row.b.unwrap_or(0.0) == 0.0;
        let quiet = |row: &Row| {
            row.kind == "class"
                && self.rows.iter().filter(|other| other.port == row.port && other.name == row.name).all(zero)
        };
        for row in self.rows.iter().filter(|row| !quiet(row)) {
            // Nor what never happened in either run.
            if row.what == "marks" && zero(row) {
                continue;
            }
            let name = if several_ports && !row.port.is_empty() {
                format!("{} {} {}", row.kind, row.port, row.name)
            } else {
                format!("{} {}", row.kind, row.name)
            };
            let value = |value: Option<f64>| value.map_or("–".to_string(), |value| show(value, row.unit));
            let difference = match (row.difference, row.unit) {
                (Some(points), Unit::Share) => format!("{points:+.1} points"),
                (Some(percent), _) => format!("{percent:+.1} %"),
                (None, _) => "–".into(),
            };
            let first = if name == last { String::new() } else { name.clone() };
            lines.push([first, row.what.into(), value(row.a), value(row.b), difference]);
            last = name;
        }
        let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..5).map(width).collect();
        for line in &lines {
            let text = format!(
                "{:<w0$}  {:<w1$}  {:>w2$}  {:>w3$}  {:>w4$}",
                line[0],
                line[1],
                line[2],
                line[3],
                line[4],
                w0 = widths[0],
                w1 = widths[1],
                w2 = widths[2],
                w3 = widths[3],
                w4 = widths[4]
            );
            writeln!(f, "{}", text.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
