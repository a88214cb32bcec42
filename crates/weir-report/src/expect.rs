//! What must come out of a run: one struct for each `[[expect]]`, its words and its bounds.

use crate::measure::{Measure, Statistic};
use crate::report::RunKind;
use serde::{Deserialize, Serialize};
use weir_text::{Amount, Time};
use weir_text::{Unit, digits, show};

/// `[[expect]]`: a measured value and what it must be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// What is measured: see `Measure`. Required.
    pub what: Measure,
    /// The managed port, as `"box>right"`. Default: the only one. For `utilisation`, any direction of a link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// One class of the port. Without class or flow: all classes of the port together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Several classes, taken together: sums of rates, drops and backlogs, one distribution of delays.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<String>,
    /// One flow; with `count`, all its copies together, or NAME.N for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flow: Option<String>,
    /// Several flows, taken together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<String>,
    /// Classes (or flows, when flows are measured) whose value divides: the result is a ratio.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub per: Vec<String>,
    /// Start of the interval measured. Default 0.
    #[serde(default)]
    pub from: Time,
    /// End of the interval measured. Default: the end of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<Time>,
    /// Measure in windows of this length, one after the other, instead of once. Windows in which
    /// the value has no meaning (no packet, nothing to divide by) do not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every: Option<Time>,
    /// Slide: the windows have this length and begin `every` so often. Default `every`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over: Option<Time>,
    /// With `every`: `"all"` windows must hold (default), a share of them (`"90%"`), or their `"median"`, `"mean"`.
    #[serde(default)]
    pub windows: Windows,
    /// The value expected, with `tolerance`. This, or `min`, `max` or both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Amount>,
    /// How far the measured value may be away on either side: `"5%"` of the value, `"5pt"` of a
    /// share, or in the unit of the value. Default 0: exactly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tolerance: Option<Amount>,
    /// The tolerance in the lab. Default: twice `tolerance`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tolerance_live: Option<Amount>,
    /// The least value allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<Amount>,
    /// The greatest value allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<Amount>,
    /// Check in `"sim"` or `"lab"` only. Default: both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub only: Option<RunKind>,
}

/// Which windows of an expectation must hold.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Windows {
    /// Every one.
    #[default]
    All,
    /// At least this part of them.
    Share(f64),
    /// The median of their values.
    Median,
    /// The mean of their values.
    Mean,
}

impl Expect {
    /// The unit of the value: that of what is measured, or a plain number for a ratio.
    pub fn unit(&self) -> Unit {
        if self.per.is_empty() { self.what.unit() } else { Unit::Number }
    }

    /// The unit in which people are shown the value: a ratio that was given in per cent is shown so.
    pub(crate) fn unit_shown(&self) -> Unit {
        let percent = matches!(self.value.or(self.min).or(self.max), Some(Amount::Percent(_)));
        if percent { Unit::Share } else { self.unit() }
    }

    /// What is measured in words, for errors.
    pub fn label_of_value(&self) -> String {
        if self.per.is_empty() { self.what.to_string() } else { format!("a ratio of two {}", self.what) }
    }

    /// Least and greatest value allowed, in base units.
    pub fn bounds(&self, kind: RunKind) -> (f64, f64) {
        let Some(value) = self.value.map(Amount::base) else {
            let bound = |amount: Option<Amount>, none| amount.map_or(none, Amount::base);
            return (bound(self.min, f64::NEG_INFINITY), bound(self.max, f64::INFINITY));
        };
        let width = |amount: Amount| match amount {
            Amount::Percent(part) => value * part,
            other => other.base(),
        };
        let tolerance = match (kind, self.tolerance, self.tolerance_live) {
            (RunKind::Lab, _, Some(live)) => width(live),
            (RunKind::Lab, Some(tolerance), None) => 2.0 * width(tolerance),
            (_, tolerance, _) => tolerance.map_or(0.0, width),
        };
        (value - tolerance, value + tolerance)
    }

    /// What is measured, of whom and when, with the unit: `rate of class c0 from 5s to 10s, bit/s`.
    pub fn describe(&self) -> String {
        let mut text = self.what.to_string();
        let group = |one: &str, many: &str, names: &[String]| match names {
            [name] => format!("{one} {name}"),
            _ => format!("{many} {}", names.join("+")),
        };
        let (one, many) = if self.what.of_flows() { ("flow", "flows") } else { ("class", "classes") };
        let names = self.names();
        if !names.is_empty() {
            text += &format!(" of {}", group(one, many, &names));
        }
        if let Some(port) = &self.port {
            text += &format!(" at {port}");
        }
        if !self.per.is_empty() {
            text += &format!(" per {}", group(one, many, &self.per));
        }
        match (self.from.as_nanos(), self.to) {
            (0, None) => {}
            (_, None) => text += &format!(" from {}", self.from),
            (_, Some(to)) => text += &format!(" from {} to {to}", self.from),
        }
        if let Some(every) = self.every {
            let every = match self.over {
                Some(over) => format!("{over}, sliding by {every}"),
                None => every.to_string(),
            };
            text += &match self.windows {
                Windows::All => format!(", in every {every}"),
                Windows::Share(_) => format!(", in {} of the windows of {every}", self.windows),
                Windows::Median | Windows::Mean => format!(", {} of windows of {every}", self.windows),
            };
        }
        text + self.unit().suffix()
    }

    /// The names of the classes or flows that it is about.
    pub(crate) fn names(&self) -> Vec<String> {
        self.class.iter().chain(&self.classes).chain(&self.flow).chain(&self.flows).cloned().collect()
    }

    /// What is allowed, in words.
    pub(crate) fn allowed(&self, kind: RunKind) -> String {
        let unit = self.unit_shown();
        let (low, high) = self.bounds(kind);
        match self.value.map(Amount::base) {
            Some(value) if high > value && unit == Unit::Share => {
                format!("{} ± {} points", show(value, unit), digits((high - value) * 100.0))
            }
            Some(value) if high > value => format!("{} ± {}", show(value, unit), show(high - value, unit)),
            Some(value) => show(value, unit),
            None if low.is_infinite() => format!("at most {}", show(high, unit)),
            None if high.is_infinite() => format!("at least {}", show(low, unit)),
            None => format!("{} to {}", show(low, unit), show(high, unit)),
        }
    }

    /// Length of its windows, if it has windows.
    pub fn window(&self) -> Option<Time> {
        self.every.map(|every| self.over.unwrap_or(every))
    }
    /// The times that must lie on the borders of cells.
    pub fn times(&self) -> impl Iterator<Item = Time> {
        [Some(self.from), self.to, self.every, self.over].into_iter().flatten()
    }

    /// True if it needs the distribution of delays cell by cell: a percentile of a part of the run.
    pub fn needs_delays_per_cell(&self) -> bool {
        let percentile = matches!(self.what, Measure::Delay(Statistic::Percentile(_)));
        let partial = self.from.as_nanos() > 0 || self.to.is_some() || self.every.is_some();
        percentile && partial
    }
}

impl Windows {
    fn parse(text: &str) -> Result<Self, String> {
        match (text, Amount::parse(text)) {
            ("all", _) => Ok(Windows::All),
            ("median", _) => Ok(Windows::Median),
            ("mean", _) => Ok(Windows::Mean),
            (_, Ok(Amount::Percent(share))) if share > 0.0 && share <= 1.0 => Ok(Windows::Share(share)),
            _ => Err(format!(
                "`{text}` does not say which windows must hold\nwrite \"all\", \"median\", \"mean\" or a share such as \"90%\""
            )),
        }
    }
}

impl std::fmt::Display for Windows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Windows::All => f.write_str("all"),
            Windows::Median => f.write_str("median"),
            Windows::Mean => f.write_str("mean"),
            Windows::Share(share) => Amount::Percent(*share).fmt(f),
        }
    }
}

impl<'de> Deserialize<'de> for Windows {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Windows::parse(&text).map_err(serde::de::Error::custom)
    }
}

impl Serialize for Windows {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
