//! What a child shows its parent, and the packet that it holds for that.

use super::{Backlog, Cause, Cx, Wait};
use crate::packet::{PacketId, Slot};
use crate::units::Instant;

/// What a child would give next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Head {
    /// A packet of `len` bytes, as soon as it is taken.
    Packet {
        /// Its length.
        len: u32,
    },
    /// Nothing before that time.
    At(Instant),
    /// Nothing until another call changes that, though packets are waiting.
    Held(Cause),
    /// Nothing.
    Idle,
}

impl Head {
    /// What a parent waits for that sees this. A packet is there at once.
    #[inline]
    pub fn wait(self) -> Wait {
        match self {
            Head::Packet { .. } => Wait::At(Instant::ZERO),
            Head::At(at) => Wait::At(at),
            Head::Held(_) => Wait::Held,
            Head::Idle => Wait::Idle,
        }
    }
}

/// A packet that was pulled because a parent wanted to see it.
#[derive(Default)]
pub(super) struct Held {
    pub(super) packet: Slot,
    bytes: u32,
}

impl Held {
    #[inline(always)]
    pub(super) fn head(&self) -> Option<Head> {
        if self.packet.is_empty() { None } else { Some(Head::Packet { len: self.bytes }) }
    }
    pub(super) fn hold(&mut self, id: PacketId, cx: &Cx) -> Head {
        self.bytes = cx.packets.get(&id).len;
        self.packet.put(id);
        Head::Packet { len: self.bytes }
    }
    #[inline(always)]
    pub(super) fn take(&mut self) -> Option<PacketId> {
        self.packet.take()
    }
    pub(super) fn backlog(&self) -> Backlog {
        match self.packet.is_empty() {
            false => Backlog { packets: 1, bytes: u64::from(self.bytes) },
            true => Backlog::default(),
        }
    }
}
