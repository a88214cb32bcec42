//! Which class a packet belongs to: filters, and their compiled form.
//!
//! ```text
//! altq.conf `filter` line ──> Filter ──┐                       ┌──> Match { class, filter }
//!                                      ├──> Classifier ── Key ─┤
//!                  ... more of them ───┘                       └──> explain(): why, what came close
//! ```
//!
//! - [`field`]: the fields that a filter can ask for, as values and masks.
//! - [`filter`]: one filter; what precedes what; how two filters relate.
//! - [`compile`]: many filters as few hash tables, searched in nanoseconds and changed in microseconds.
//! - [`overlap`]: which filters some packets match both.
//! - [`explain`]: which filter matched and why, which came close, which can never match.
//!
//! **Precedence**, global: the higher `ruleno` first; where equal, an IPv4 filter on a single
//! destination host before all others; then the later line. The original searched the lists of
//! host filters first whatever their `ruleno`, so a host filter beat every other one;
//! [`explain::differences_from_altq`] names the filters for which that matters.

pub mod compile;
pub mod explain;
pub mod field;
pub mod filter;
pub mod overlap;
mod prune;
mod slots;
mod tables;

pub use compile::{Classifier, FilterId, Match};
pub use field::{Field, Fields};
pub use filter::{Filter, Relation, relation};

#[cfg(test)]
mod tests;
