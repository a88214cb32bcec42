//! The discipline library: no I/O, no clock, no threads, no floats, no unsafe, no dependencies.
//!
//! Read `queue/contract.rs` first: it is what every discipline promises. A packet walks
//! `packet` (its handle and its header fields) -> `meter` (is it in profile) -> `classify` (which
//! class) -> `queue::leaf` with its `aqm` (does it live) -> `sched` (when does it go) ->
//! `port::wire` (the link).
//! `port` is the egress of one interface as one object, and the only thing that hosts drive.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
/// A discipline's file says `weir_core::` inside Weir as it does in a crate of its own.
extern crate self as weir_core;
#[cfg(test)]
extern crate std;

pub mod aqm;
pub mod classify;
pub mod meter;
pub mod packet;
pub mod port;
pub mod queue;
mod random;
pub mod sched;
pub mod units;

pub use random::Random;
