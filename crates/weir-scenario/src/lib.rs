//! The TOML scenario: topology, managed ports, traffic, what to sample and what to expect.
//!
//! A scenario is read once and run anywhere: [`Scenario::read`] → the simulator or the lab → a
//! [`weir_report::Report`]. In between stand [`Topology`] (who forwards where), [`lab_layout()`] (can the
//! lab run it, and how) and [`Scenario::recorder`] (who counts events into a report).
//!
//! The keys of a scenario are the fields of the structs in [`scenario`]: each documents its unit, default
//! and range. Unknown keys are errors, and every error names its place and its remedy.

mod codec;
mod congestion;
mod derived;
mod fits;
pub mod lab;
pub mod media;
pub mod read;
mod recording;
pub mod scenario;
pub mod topology;
mod validate;

pub use congestion::congestion;
pub use derived::{FlowCopy, MAX_FLOWS};
pub use lab::{LabLayout, WhyNot, lab_layout};
pub use scenario::Scenario;
pub use topology::Topology;
