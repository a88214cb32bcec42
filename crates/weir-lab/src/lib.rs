//! Network-namespace testbed: runs a scenario for real, with the kernel's own TCP.
//!
//! - [`node`]: a namespace, held by a child process that dies with its parent.
//! - [`bed`]: hosts, kernel bridges and the box between them.
//! - [`flow`]: senders and receivers of test traffic.

pub mod bed;
pub mod flow;
pub mod node;

/// What a node does for the parts of this crate that come after plain traffic.
pub(crate) const CALLS: node::Calls = |name, _with, _state| Err(format!("a node cannot {name:?}"));
