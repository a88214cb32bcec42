//! A figure over the rounds of a bench, and whether it is what is asked.

use serde::{Deserialize, Serialize};

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

/// Of a figure that three quarters of the rounds reach, or miss.
pub(super) fn verdict(reached_or_missed: Option<[bool; 2]>) -> Verdict {
    match reached_or_missed {
        Some([true, _]) => Verdict::Reached,
        Some([_, true]) => Verdict::Missed,
        _ => Verdict::Unclear,
    }
}
