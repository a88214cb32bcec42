//! What a run measured: one schema of report, written by the simulator and the lab alike.
//!
//! A [`Recorder`] counts events into a [`Report`]. Behind the report come [`evaluate()`] (expectations),
//! [`compare()`] (simulated beside live), [`mean()`] (of several seeds), its files (report.json,
//! samples.csv: [`FILES`]) and [`plot`] (SVG). Nothing here knows a scenario: whoever runs one says what flows and links there are.

pub mod compare;
pub mod disk;
pub mod evaluate;
pub mod expect;
mod files;
#[cfg(test)]
mod fixture;
pub mod histogram;
mod mean;
pub mod measure;
pub mod plot;
pub mod recorder;
pub mod report;

pub use compare::{Comparison, compare};
pub use evaluate::evaluate;
pub use expect::{Expect, Windows};
pub use files::FILES;
pub use histogram::Histogram;
pub use mean::mean;
pub use measure::{Measure, Statistic};
pub use recorder::{Keep, Recorder};
pub use report::{FlowKind, Report, RunKind};
