//! What every language of Weir's files shares.
//!
//! A [`Source`] is a text by lines, a [`Place`] is where something stands in it. A reader that meets
//! something wrong says a [`Trouble`]: what, where, and how to mend it. With its source that becomes a
//! [`Diagnostic`], which displays as the line with a caret. [`nearest()`] finds the word that was meant.
//! [`fold()`] leaves the first of many messages of one kind, [`wrap()`] breaks text for people at 80 columns. [`mod@include`] puts the files of a configuration together.
//! [`mod@prefix`] reads addresses that begin alike. [`number`] reads quantities with units, exactly or not at all; [`quantity`] holds them as values of a
//! TOML file; [`measured`] shows measured values, rounded, and
//! [`metrics`] writes them for Prometheus.

pub mod diagnostic;
mod fold;
pub mod include;
pub mod measured;
pub mod metrics;
pub mod nearest;
pub mod number;
pub mod place;
pub mod prefix;
pub mod quantity;
pub mod source;
mod visible;
mod wrap;

pub use diagnostic::{Diagnostic, Diagnostics, Severity, Trouble};
pub use fold::fold;
pub use measured::{Unit, digits, show, show_digits};
pub use nearest::{nearest, suggest, suggest_or_list};
pub use place::Place;
pub use prefix::Prefix;
pub use quantity::{Amount, BitRate, Dscp, Size, Time};
pub use source::Source;
pub use visible::{is_hidden, on_one_line, visible};
pub use wrap::{COLUMNS, wrap};
