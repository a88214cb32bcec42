//! Network-namespace testbed: runs a scenario for real, with the kernel's own TCP.
//!
//! - [`run`](mod@run): a scenario, live: builds, starts, waits, reports.
//! - [`bed`]: hosts, kernel bridges and the box between them.
//! - [`node`](mod@node): a namespace, held by a child process that ends with its parent.
//! - `child`: what that process does inside; `namespace`: how it sets the namespace up.
//! - `inside`: what runs in the box: the same data plane as `weir up`.
//! - [`bench`](mod@bench): the data plane beside the kernel's own.
//! - [`accuracy`]: rates, bursts and delay of `weir up` beside htb, from captures.
//! - `capacity`: whether the testbed is faster than the link that it emulates.
//! - `traffic` and [`flow`]: the flows of a scenario as senders and receivers.
#![forbid(unsafe_code)]

pub mod accuracy;
pub mod bed;
pub mod bench;
mod capacity;
mod child;
mod configure;
mod error;
pub mod flow;
mod inside;
mod namespace;
pub mod node;
pub mod run;
mod traffic;

pub use error::Error;
pub use node::{NODE_COMMAND, Program};
pub use run::{Options, layout_here, run};

use weir_core::sched::Registry;

/// What that subcommand does, with the arguments behind it; ports are built from `registry`.
///
/// # Errors
/// If it was not started by the lab.
pub fn node(registry: &Registry, arguments: &[String]) -> Result<(), String> {
    child::main(registry, arguments)
}
