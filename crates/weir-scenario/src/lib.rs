//! The TOML scenario (topology, traffic, timeline, expectations) and the report that every run produces.
//!
//! A scenario is read once and run anywhere: `Scenario::read` → the simulator or the lab → `Report`.
//! In between stand `Topology` (who forwards where), `lab_layout` (can the lab run it, and how) and
//! `Recorder` (counts events into a report). Behind the report come `evaluate` (expectations),
//! `compare` (simulated beside live), `files` (report.json, samples.csv) and `plot` (SVG).
//!
//! The keys of a scenario are the fields of `scenario`'s structs: each documents its unit, default
//! and range. Unknown keys are errors, and every error names its place and its remedy.

pub mod compare;
mod derived;
pub mod diagnostic;
pub mod expect;
mod files;
#[cfg(test)]
mod fixture;
pub mod histogram;
pub mod lab;
mod mean;
pub mod measure;
pub mod plot;
pub mod quantity;
mod read;
pub mod recorder;
pub mod report;
pub mod scenario;
pub mod topology;
mod validate;

pub use compare::{Comparison, compare};
pub use diagnostic::{Diagnostic, Diagnostics};
pub use expect::evaluate;
pub use histogram::Histogram;
pub use lab::{LabLayout, WhyNot, lab_layout};
pub use mean::mean;
pub use measure::{Measure, Statistic};
pub use quantity::{Amount, BitRate, Dscp, Size, Time};
pub use recorder::Recorder;
pub use report::Report;
pub use scenario::Scenario;
pub use topology::Topology;
