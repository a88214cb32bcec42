//! The wire: below every tree stands what decides when the next packet may leave it.
//!
//! Three kinds, one implementation for every host:
//! - a *link*: the rate at which packets leave and a device ring of N packets, emulated in
//!   virtual time (simulator, replay, lab);
//! - a *regulator*: ALTQ's token bucket (`bandwidth`, `tbrsize`), for a real link: it keeps the
//!   queue in Weir and out of the device;
//! - *open*: whatever comes leaves at once.
//!
//! Times are kept as `Fine`, so no rounding accumulates: a link that is busy from 0 on ends its
//! n-th packet at the sum of the exact times. The regulator's bucket is that of the meters.

use crate::meter::TokenBucket;
use crate::packet::{List, PacketId, PacketTable};
use crate::queue::Link;
use crate::units::{Bounded, Duration, Fine, Instant};

/// When a device ring gets new packets (Nichols et al., two-bit diff-serv in ALTQ, section 5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refill {
    /// A completed packet's descriptor is free at once.
    Packet,
    /// Descriptors come back when all that were handed out have completed: one interrupt per N
    /// packets where the ring of N was full.
    Batch,
}

/// What stands below the tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WireConfig {
    /// An emulated link with a ring of `ring` packets, the one on the wire included.
    Link {
        /// Descriptors, at least 1.
        ring: u32,
        /// When they come back.
        refill: Refill,
    },
    /// A token bucket of `depth_bytes` at the link's rate.
    Regulator {
        /// Depth; a packet longer than it passes when the bucket is full for that packet.
        depth_bytes: u64,
    },
    /// Nothing.
    Open,
}

/// The emulated link: what is in the ring, and when the packet at its front is out.
pub(super) struct Device {
    ring: List,
    size: u32,
    refill: Refill,
    /// Descriptors in use, completed ones included until they are handed back.
    used: u32,
    /// When the wire is done with all that has completed.
    free_at: Fine,
    /// When the last bit of the ring's front leaves.
    front_done: Fine,
}

impl Device {
    fn new(size: u32, refill: Refill) -> Self {
        Device {
            ring: List::new(),
            size: size.max(1),
            refill,
            used: 0,
            free_at: Fine::ZERO,
            front_done: Fine::ZERO,
        }
    }
    /// When the next packet completes.
    pub(super) fn next_completion(&self) -> Option<Fine> {
        (!self.ring.is_empty()).then_some(self.front_done)
    }
    pub(super) fn has_room(&self) -> bool {
        self.used < self.size
    }
    /// Puts a packet into the ring at `now`.
    pub(super) fn load(&mut self, table: &mut PacketTable, link: &Link, now: Instant, id: PacketId) {
        debug_assert!(self.has_room(), "a packet enters a ring that is full");
        if self.ring.is_empty() {
            // The wire may still be busy for a part of a nanosecond.
            let start = self.free_at.max(Fine::from(now));
            self.front_done = start + link.time_for(table.get(&id).len);
        }
        self.ring.push_back(table, id);
        self.used = self.used.plus(1);
    }
    /// Takes the packet whose last bit has left. Answers it, and whether descriptors came back.
    pub(super) fn complete(&mut self, table: &mut PacketTable, link: &Link) -> Option<(PacketId, bool)> {
        let id = self.ring.pop_front(table)?;
        debug_assert!(self.front_done >= self.free_at, "the wire sends two packets at once");
        debug_assert!(self.used > self.ring.packets(), "a packet in the ring has no descriptor");
        self.free_at = self.front_done;
        if let Some(next) = self.ring.front(table) {
            self.front_done += link.time_for(next.len);
        }
        let back = match self.refill {
            Refill::Packet => true,
            Refill::Batch => self.ring.is_empty(),
        };
        if back {
            self.used = self.ring.packets();
        }
        Some((id, back))
    }
    pub(super) fn ring(&self) -> &List {
        &self.ring
    }
}

// A tag of its own is quicker to ask than what is left over in a field.
#[repr(u8)]
pub(super) enum Wire {
    Device(Device),
    Bucket(TokenBucket),
    Open,
}

impl Wire {
    pub(super) fn new(config: WireConfig, link: &Link) -> Self {
        match config {
            WireConfig::Link { ring, refill } => Wire::Device(Device::new(ring, refill)),
            WireConfig::Regulator { depth_bytes } => Wire::Bucket(TokenBucket::new(link.rate, depth_bytes)),
            WireConfig::Open => Wire::Open,
        }
    }
    /// Descriptors of an emulated link; none on a real wire.
    pub(super) fn ring_size(&self) -> u32 {
        match self {
            Wire::Device(device) => device.size,
            Wire::Bucket(_) | Wire::Open => 0,
        }
    }
    /// How late a timer may go off without a loss: the time in which the bucket fills. What an open
    /// wire has below it is not known; the millisecond is that of the automatic bucket. The bucket of a port that is
    /// one part of a tree is that of the link, which is not late.
    pub(super) fn tolerance(&self, link: &Link, apart: bool) -> Duration {
        match self {
            Wire::Open if apart => Duration::MAX,
            Wire::Bucket(bucket) => link.rate.time_for(bucket.depth_bytes()).floor().since(Instant::ZERO),
            Wire::Device(_) | Wire::Open => Duration::from_millis(1),
        }
    }
    /// Another regulator, or none, from `now` on; false on an emulated link, which stays. What is
    /// in the bucket stays in it: exchanging it often lends nothing.
    pub(super) fn regulate(&mut self, now: Instant, config: WireConfig, link: &Link) -> bool {
        match (&mut *self, config) {
            (Wire::Device(_), _) | (_, WireConfig::Link { .. }) => return false,
            (Wire::Bucket(bucket), WireConfig::Regulator { depth_bytes }) => {
                bucket.reshape(now, link.rate, depth_bytes);
            }
            (_, config) => *self = Wire::new(config, link),
        }
        true
    }
}
