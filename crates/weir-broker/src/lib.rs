//! The bandwidth broker of a domain (RFC 2638, section 3): it keeps account of who may use how much of
//! what, until when.
//!
//! - [`book`]: the account, a pure state machine. **Read this first.**
//! - [`holder`]: the other half, pure as well: what an edge may use now, and what it asks next.
//! - [`sim`]: edges, brokers and a bad network in virtual time. It holds both halves to the invariants.
//! - [`store`], [`journal`], [`audit`]: the book on a disk. Nobody hears of what is not there.
//! - [`serve`]: a broker as a process, with its doors, one of them for applications. [`wire`] is what passes through them.
//! - [`client`]: an edge's leases over REST or COPS, by a [`holder`] for each. [`http`] is its connection.
//! - [`cops`]: the same leases by COPS (RFC 2748). [`tls`]: who is at the other end.
//! - [`page`]: one page over HTTP, for monitors.
//! - [`rsvp`]: what a signalling daemon asks of leases.
//! - [`mod@bench`]: decisions a second, beside what the disk alone does.

#![forbid(unsafe_code)]

mod agreement;
pub mod audit;
pub mod bench;
pub mod book;
pub mod client;
pub mod cops;
pub mod holder;
pub mod http;
pub mod journal;
pub mod page;
pub mod rsvp;
pub mod serve;
pub mod sim;
pub mod store;
pub mod tls;
pub mod wire;

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
