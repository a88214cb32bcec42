//! The live data plane: receive, dissect, classify, tree, send; timers, swap, statistics.
//!
//! Transparent bridges, each between two interfaces, with a managed [`weir_core::port::Port`] on
//! each egress (or none: plain forwarding). One worker thread does all of a bridge, or each of two does one of
//! these rows:
//!
//! ```text
//! left ──receive──> dissect ──> port (classify, tree, wire) ──> delay ──send──> right
//! left <──send──── delay <──── port (classify, tree, wire) <── dissect <──receive── right
//! ```
//!
//! - [`direction`]: one of these two rows, with its frames and its counters.
//! - [`bridge`]: both rows, or one, over two interfaces; `step` does all that is due at one instant. No
//!   clock and no waiting in it: tests drive it with made-up time.
//! - `direction/edge.rs`: the edge before a port (`recognise`, `sla`, `allocate`); [`broker`]: whom it asks;
//!   [`edge_state`]: what it says of itself.
//! - [`fail_open`]: the kernel carries the traffic while no worker does.
//! - [`worker`]: the threads. Each reads the clock once per step, sleeps precisely, and survives a panic.
//! - [`control`]: the workers of a bridge from outside: statistics, hot swap, stop. Nothing there blocks it.
//! - `crew`, `direction/hand.rs`: the workers of a bridge whose ports are spread over several, and frames between them.
//! - [`door`]: the credit of a link that the parts of a port share.
//! - `gather`: statistics, a slice of classes between two steps.
//! - [`rule`]: what hands packets over where the kernel goes on routing (`attach nfqueue`).
//! - [`status`]: counters held against intent.
//! - [`state`]: what a running box says of itself.
//! - [`server`]: a Unix socket that answers requests.
//! - `owner`: one owner for each interface.
//! - [`watch`]: what happens to the interfaces of a bridge: logged, counted, survived.
//! - [`takeover`]: another process goes on with a running box.
//! - [`up`](mod@up): a live box of any number of bridges, as `weir up` runs it.
//!
//! **Control packets** (ARP, neighbour discovery, spanning tree, routing) go before all classes, up
//! to a rate. What else is not IP has no filter that could match, and goes to the default class.
//!
//! **Segmentation offload**: an aggregate of up to 64 KB is taken apart before a port if it would
//! last too long on the link ([`weir_core::port::Segment`]). Otherwise it is one packet there, as
//! long as what its segments cost; the kernel repeats its one IP header on every segment, with
//! what was written to its DSCP and ECN.
#![forbid(unsafe_code)]

pub mod bridge;
pub mod broker;
pub mod control;
mod crew;
pub mod direction;
pub mod door;
pub mod edge_state;
pub mod fail_open;
mod gather;
pub mod guard;
mod line;
mod owner;
mod placement;
pub mod rule;
pub mod server;
pub mod state;
pub mod status;
pub mod takeover;
pub mod up;
pub mod watch;
pub mod worker;

pub use bridge::Bridge;
pub use broker::Desk;
pub use control::Control;
pub use direction::{Change, Changed, Delay, Direction, EdgeClass, EdgePlan, LiveEdge, Observe};
pub use gather::egresses;
pub use placement::Processor;
pub use state::{BridgeState, Snapshot};
pub use worker::{Pace, Task, Worker};
