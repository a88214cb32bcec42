//! altq.conf (text) to a typed plan with located diagnostics, and from the plan to a tree of
//! disciplines.
//!
//! ```text
//! text ── source ──> words ── read ──> Plan ── build ──> tree, classifier, regulator
//!                      │  interface class filter           │
//!                      │  conditioner options number       │
//!                      └────────> Diagnostic <──── rules, judge
//! ```
//!
//! - [`read`] takes the text of a file to a [`Plan`], or says everything that is wrong with it,
//!   line by line. Keywords come from the registry: a discipline that another crate registers is
//!   read without a change here.
//! - [`Plan::interface`] and [`View::build`] take an interface of a plan to what a port runs.
//! - [`print()`] takes a plan back to text that reads as the same plan.
//! - [`diff()`] says what is different between two plans, and [`Plan::with`] changes one value.
//! - [`weir_text::include`] puts the files of a configuration together before it is read.
//! - [`contracts`] reads and writes contracts as a table.
//! - [`handlers`] reads and shows what an allocator is set to while it runs.
//! - [`judge`] says what `weir check` says about a plan beyond that; [`packet_spec`] reads a packet
//!   in words.
//!
//! Every file that ALTQ read means here what it meant there; what ALTQ read wrongly (numbers cut
//! off, words passed over, values never set) is refused, with the words to write instead.
#![forbid(unsafe_code)]

mod broker;
mod build;
mod class;
mod conditioner;
pub mod contracts;
mod diff;
mod edge;
mod filter;
pub mod handlers;
mod hooks;
mod index;
mod interface;
mod judge;
mod limits;
mod names;
mod options;
pub mod packet_spec;
pub mod plan;
mod precedence;
mod print;
pub mod protect;
mod read;
mod reader;
mod recognise;
mod report;
mod room;
mod rules;
pub mod said;
mod set;
mod spread;
mod tree;
mod view;
mod words;

pub use build::{Built, Checked, Regulator};
pub use diff::{Difference, diff};
pub use edge::{EdgeClass, EdgePlan, prefix_of, shown as prefix_text};
pub use judge::{doubts, judge};
pub use limits::MAX_BYTES;
pub use plan::Plan;
pub use precedence::BuiltFilter;
pub use print::print;
pub use read::{Outcome, is_command, read};
pub use room::Room;
pub use set::ContractChange;
pub use spread::Loans;
pub use view::View;
pub use weir_text::{Diagnostic, Place, Severity, Source};
