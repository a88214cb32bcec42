//! The bandwidth broker of a domain (RFC 2638, section 3): it keeps account of who may use how much of
//! what, until when.
//!
//! - [`book`]: the account, a pure state machine. READ FIRST.
//! - [`holder`]: the other half, pure as well: what an edge may use now, and what it asks next.
//! - [`sim`]: edges, brokers and a bad network in virtual time. It holds both halves to the invariants.

#![forbid(unsafe_code)]

pub mod book;
pub mod holder;
pub mod sim;

/// A time or a span in nanoseconds, on a clock that is never set.
pub type Nanos = u64;

/// A rate in bit/s, at most [`MAX_RATE`].
pub type Rate = u64;

/// The largest rate that anybody may name: 10^15 bit/s.
pub const MAX_RATE: Rate = 1_000_000_000_000_000;

/// A second in nanoseconds.
pub const SECOND: Nanos = 1_000_000_000;

/// A millisecond in nanoseconds.
pub const MILLISECOND: Nanos = 1_000_000;
