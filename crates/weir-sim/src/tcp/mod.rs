//! TCP as pure state machines: time comes in with every call, `poll_at` says when to come back,
//! `poll_send` hands out one segment at a time. Nothing here knows of links or of the simulator.
//!
//! [`Endpoint`] is one side of a connection: a [`Sender`] (`scoreboard`, `rtt`, `cc`) and a
//! [`Receiver`]. Implemented: SACK recovery (RFC 6675) at
//! the rate of RFC 6937, NewReno without SACK (RFC 6582),
//! limited transmit (RFC 3042), the time-out of RFC 6298 with Linux's floor, timestamps (RFC
//! 7323), delayed acknowledgements with quick ones at the start and after loss, ECN (RFC 3168),
//! an initial window of ten segments (RFC 6928), a fixed window, slow start switched off.
//! Octets are numbered from 0 in 64 bits, so nothing ever wraps.
//!
//! **Delayed acknowledgements and the square-root law.** The law of Mathis and of Padhye has a
//! parameter b, the segments that let the window grow as one. A sender that counts acknowledgements
//! (RFC 2581, ns-2) has b = 2 where every second segment is acknowledged. This one counts the
//! octets that they acknowledge (RFC 3465), as Linux does: it has b = 1, delayed or not, which is
//! 1.4 times b = 2. Linux 6.18 acknowledges even less, 0.27 to 0.46 times per segment over a
//! path of 50 ms with losses of 0.3 to 3 %, and has 0.92 to 1.02 of the law with b = 1. One difference stays: this receiver
//! acknowledges sixteen segments at once after a hole, Linux only after a segment that it had
//! already. Since octets count, the rate does not depend on it.
//! (`delayed_acknowledgements_do_not_slow_the_window`)
//!
//! **A queue of one packet** gives one flow less than half of a link when acknowledgements are
//! delayed. They release segments in pairs, and in threes when the window grows: the third finds
//! the place taken, though the pipe is not full. (`a_queue_of_one_packet_loses_the_third_of_a_burst`)

pub mod cc;
mod endpoint;
pub mod ranges;
mod receiver;
mod reduction;
pub mod rtt;
pub mod scoreboard;
mod sender;
#[cfg(test)]
mod tests;

pub use endpoint::Endpoint;
pub use receiver::Receiver;
pub use sender::{Sender, SenderStats};

use weir_core::units::Instant;

/// Flags of a segment. Data needs no flag: it is there if `len` is not 0.
pub mod flags {
    /// Opens the connection.
    pub const SYN: u8 = 1;
    /// The acknowledgement field counts.
    pub const ACK: u8 = 2;
    /// ECN echo: the receiver saw a mark.
    pub const ECE: u8 = 4;
    /// Congestion window reduced.
    pub const CWR: u8 = 8;
}

/// A TCP segment: what of its header the state machines read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Segment {
    /// Number of the first octet of data.
    pub seq: u64,
    /// The next octet expected from the peer.
    pub ack: u64,
    /// Timestamp of the sender, in nanoseconds.
    pub sent_at: Instant,
    /// The timestamp echoed; `NEVER` if there is none.
    pub echo: Instant,
    /// Octets of data.
    pub len: u32,
    /// Out of `flags`.
    pub flags: u8,
    /// How many of `sack` count.
    pub sacks: u8,
    /// Sent before: not for the receiver, for those who watch.
    pub retransmission: bool,
    /// May be marked instead of dropped (ECT).
    pub ect: bool,
    /// Selective acknowledgements: offset from `ack`, and length.
    pub sack: [(u32, u32); 3],
}

impl Segment {
    /// Octets of the IPv4 or IPv6 packet that carries this segment.
    pub fn ip_len(&self, ip_header: u32) -> u32 {
        // MSS, SACK-permitted, timestamps and window scale fill 20 octets on a SYN; later the
        // timestamps take 12 and n SACK blocks 4 + 8n.
        let options = match (self.flags & flags::SYN != 0, u32::from(self.sacks)) {
            (true, _) => 20,
            (false, 0) => 12,
            (false, n) => 12 + 4 + 8 * n,
        };
        ip_header + 20 + options + self.len
    }
}

/// How one side of a connection behaves.
#[derive(Clone, Debug)]
pub struct Config {
    /// Octets of data in a full segment.
    pub mss: u32,
    /// The peer's window: at most this many octets are ever outstanding.
    pub window: u64,
    /// Selective acknowledgements; NewReno without.
    pub sack: bool,
    /// Explicit congestion notification.
    pub ecn: bool,
    /// Without it the window grows by one segment a round trip from the start.
    pub slow_start: bool,
    /// Segments of the initial window.
    pub initial_window: u32,
    /// Delay acknowledgements; without it every segment is acknowledged at once.
    pub delayed_ack: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            mss: 1448,
            window: 6 << 20,
            sack: true,
            ecn: false,
            slow_start: true,
            initial_window: 10,
            delayed_ack: true,
        }
    }
}
