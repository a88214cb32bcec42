//! COPS (RFC 2748), for routers and others that speak it: the same leases by another protocol.
//!
//! - [`codec`]: bytes to messages and back. Nothing else in this crate looks at such bytes.
//! - [`field`]: what this client-type says within them.
//! - [`object`]: what both consist of.
//! - [`pep`]: the half of an edge. The half of the broker is a door of [`serve`](crate::serve).
//!
//! An edge opens a connection (OPN), is accepted (CAT), and says what it holds (SSQ, REQ, SSC). Then each wish is
//! a REQ with the handle of its lease, and its answer a solicited DEC. A lease that is called back or ends is a DEC
//! without a question. RPT says that the edge shapes accordingly, DRQ gives a lease back. Either side takes the other
//! for gone after a silence of [`KEEP_ALIVE_S`] seconds.
//!
//! Not spoken: RFC 2749 (RSVP), RFC 3084 (COPS-PR), the Integrity object (TLS does more), and the upgrade to TLS of
//! RFC 4261: TLS begins with the first byte.

pub mod codec;
pub mod field;
pub(crate) mod line;
pub mod object;
pub mod pep;
#[cfg(test)]
mod tests;

/// The port of COPS.
pub const PORT: u16 = 3288;
/// What leases are for COPS: a number of the range for private use.
pub const CLIENT_TYPE: u16 = 0x4001;
/// After a silence of so many seconds the other side is gone. Each sends a keep-alive before.
pub const KEEP_ALIVE_S: u16 = 30;

/// Bad message format.
pub const MALFORMED: u16 = 3;
/// Unable to process.
pub const UNABLE: u16 = 4;
/// A mandatory value of the client-type is missing.
pub const INCOMPLETE: u16 = 5;
/// Unsupported client-type.
pub const UNSUPPORTED: u16 = 6;
/// A mandatory object is missing.
pub const MISSING: u16 = 7;
/// The other side was silent for too long.
pub const SILENT: u16 = 9;
/// Shutting down.
pub const STOPPING: u16 = 11;
/// Unknown object; the sub-code has its C-Num and C-Type.
pub const UNKNOWN: u16 = 13;
/// Who asks is not who it says, or may not ask.
pub const NOT_ALLOWED: u16 = 14;
/// There is no token and no certificate.
pub const NOBODY: u16 = 15;
/// A handle that is not open, or that is another lease's.
pub const BAD_HANDLE: u16 = 1;

/// Reason of a DRQ: the lease was given back.
pub const TEAR: u16 = 4;
/// Reason of a DRQ: a decision that cannot be read.
pub const MALFORMED_DECISION: u16 = 12;
/// Reason of a DRQ: an object of a decision is not known; the sub-code has its C-Num and C-Type.
pub const UNKNOWN_OBJECT: u16 = 13;
