//! What passes between a port and its host: packets in, events out.

use crate::packet::{Meta, PacketState};
use crate::queue::DropReason;
use crate::units::Instant;

/// What a port tells its host about one packet.
///
/// The host gets events through a function that it passes to each call, in the order in which they
/// happen, while the call runs.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// When it happened. Not earlier than the event before, of whatever packet.
    pub at: Instant,
    /// The packet. `Meta::frame` is the host's name for it, `Meta::tos_out` what to write into its
    /// header.
    pub meta: &'a Meta,
    /// What happened.
    pub kind: EventKind,
}

/// What happened to a packet. Each packet that is offered ends with one `Sent` or one `Dropped`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventKind {
    /// It left the tree for the wire: `at` less `Meta::arrival` is its delay in the queue.
    Taken,
    /// Its last bit left. The host may reuse the frame when it has sent it.
    Sent,
    /// It was dropped. The host may reuse the frame.
    Dropped(DropReason),
}

/// A packet that was conditioned and classified, and that a port is yet to be offered.
///
/// It cannot be copied, because the conditioners' buckets have paid for one packet.
#[must_use = "a packet that was conditioned is to be offered"]
#[derive(Debug)]
pub struct Conditioned(
    /// Its state is `Dropped` if it is policed: a flag beside it would take a cache line more.
    pub(super) Meta,
);

impl Conditioned {
    /// What disciplines will know of the packet.
    pub fn meta(&self) -> &Meta {
        &self.0
    }
    /// The leaf that it is classified to.
    pub fn leaf(&self) -> u32 {
        self.0.leaf
    }
    /// The packet as one that keeps the link alive: it goes before all others where the port
    /// protects control packets, and their rate is not exceeded. Ask [`Port::protects`](super::Port::protects) first.
    pub fn protected(mut self) -> Self {
        self.0.control = true;
        self
    }
    /// True if a conditioner drops it: `Port::offer` then counts it and hands it back.
    pub fn is_policed(&self) -> bool {
        self.0.state == PacketState::Dropped
    }
}

impl From<Meta> for Conditioned {
    /// A packet of which the host says itself what it is and where it belongs.
    #[inline]
    fn from(mut meta: Meta) -> Self {
        meta.state = PacketState::Held;
        Conditioned(meta)
    }
}
