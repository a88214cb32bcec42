//! Network-namespace testbed: runs a scenario for real, with the kernel's own TCP.
//!
//! - [`run`](mod@run): a scenario, live: builds, starts, waits, reports.
//! - [`bed`]: hosts, kernel bridges and the box between them.
//! - [`node`](mod@node): a namespace, held by a child process that dies with its parent.
//! - `inside`: what runs in the box: the same data plane as `weir up`.
//! - [`bench`](mod@bench): the data plane beside the kernel's own.
//! - `capacity`: whether the testbed is faster than the link that it emulates.
//! - `traffic` and [`flow`]: the flows of a scenario as senders and receivers.
#![forbid(unsafe_code)]

pub mod bed;
pub mod bench;
mod capacity;
mod configure;
pub mod flow;
mod inside;
pub mod node;
pub mod run;
mod traffic;

pub use node::Program;
pub use run::{Error, Options, layout_here, run};

use serde_json::Value;
use weir_core::sched::Registry;

/// The hidden subcommand of a program whose lab starts that program again as its nodes.
pub const NODE_COMMAND: &str = "lab-node";

/// What that subcommand does, with the arguments behind it; ports are built from `registry`.
///
/// # Errors
/// If it was not started by the lab.
pub fn node(registry: &Registry, arguments: &[String]) -> Result<(), String> {
    node::main(registry, arguments)
}

/// What a node does beyond plain traffic, by name.
pub(crate) fn call(name: &str, with: Value, state: &mut node::State) -> Result<Value, String> {
    match name {
        "start" => {
            state.inside = Some(inside::start(with, &state.registry)?);
            Ok(Value::Null)
        }
        "stop" => state.inside.take().ok_or("the box is not running")?.stop(),
        _ => bench::node_call(name, with, state).unwrap_or_else(|| Err(format!("a node cannot {name:?}"))),
    }
}
