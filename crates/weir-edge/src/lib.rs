//! The edge of a network with priced or scarce real-time bandwidth: contracts, admission, and the laws
//! by which a class asks for what it needs.
//!
//! Like `weir-core`, the crate does no I/O, reads no clock, starts no thread and uses no floats. Its
//! *host* (simulator, replay, live engine) says what time it is, hands packets in and carries actions
//! out, so that the same calls give the same decisions everywhere. Memory is taken at set-up alone.
//!
//! | to | read |
//! |---|---|
//! | run an edge | [`edge::Edge`]: what a host calls, and what comes back |
//! | know the laws | [`allocate`]: window meter, threshold and logarithmic law, congestion control |
//! | know which flows are real-time | [`recognise`]: one file for each protocol, and [`flow`], the table |
//! | know who gets in | [`admit`] |
//! | know contracts | [`sla`]: prefixes, meter with a shared percentage, policies |
//! | read and set an allocator at run time | [`handlers`]: its names |
//! | know what cannot work | [`check`]: conditions that parameters must keep |
//!
//! The specification is chapters III to V of *multiservice* (see the book's page on the edge, which says
//! what was wrong in it).
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod admit;
pub mod allocate;
pub mod check;
pub mod edge;
mod evict;
pub mod flow;
pub mod handlers;
pub mod params;
pub mod recognise;
pub mod sla;
