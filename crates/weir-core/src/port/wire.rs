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
//! n-th packet at the sum of the exact times.

use crate::packet::{List, PacketId, PacketTable};
use crate::queue::Link;
use crate::units::{Fine, Instant};

/// When a device ring gets new packets (Nichols et al., two-bit diff-serv in ALTQ, section 5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refill {
    /// A completed packet's descriptor is free at once.
    Packet,
    /// Descriptors come back when the ring's N packets have completed since the last time, or
    /// when it is empty: one interrupt per N packets.
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
    completed: u32,
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
            completed: 0,
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
        if self.ring.is_empty() {
            // The wire may still be busy for a part of a nanosecond.
            let start = self.free_at.max(Fine::from(now));
            self.front_done = start + link.time_for(table.get(&id).len);
        }
        self.ring.push_back(table, id);
        self.used += 1;
    }
    /// Takes the packet whose last bit has left. Answers it, and whether descriptors came back.
    pub(super) fn complete(&mut self, table: &mut PacketTable, link: &Link) -> Option<(PacketId, bool)> {
        let id = self.ring.pop_front(table)?;
        self.free_at = self.front_done;
        if let Some(next) = self.ring.front(table) {
            self.front_done += link.time_for(next.len);
        }
        self.completed += 1;
        let back = match self.refill {
            Refill::Packet => true,
            Refill::Batch => self.completed >= self.size || self.ring.is_empty(),
        };
        if back {
            self.completed = 0;
            self.used = self.ring.packets();
        }
        Some((id, back))
    }
    pub(super) fn ring(&self) -> &List {
        &self.ring
    }
}

/// A token bucket in the time domain: one number says all (the virtual scheduling form of the
/// generic cell rate algorithm, ITU-T I.371, annex A).
///
/// `empty_at` is the time at which the bucket was, or would be, empty. At t it holds
/// (t - `empty_at`) * rate bytes, at most the depth. A packet of L bytes may go when it holds L,
/// and moves `empty_at` on by L / rate. Tokens never go below zero, hence over any interval at
/// most rate * time + depth leaves; `Link::time_for` rounds up, so never more.
pub(super) struct Bucket {
    empty_at: Fine,
    depth: Fine,
}

impl Bucket {
    fn new(link: &Link, depth_bytes: u64) -> Self {
        let depth = link.per_byte().time_for(depth_bytes);
        // Full at the origin: the origin is shifted by the depth, `base` below.
        Bucket { empty_at: Fine::ZERO, depth }
    }
    /// Time counted so that the bucket is full at the origin.
    fn base(&self, now: Instant) -> Fine {
        Fine::from(now) + self.depth
    }
    fn floor(&self, now: Instant, cost: Fine) -> Fine {
        // A packet longer than the depth waits for as much as it needs.
        self.empty_at.max(self.base(now).saturating_sub(self.depth.max(cost)))
    }
    /// When a packet that costs `cost` may go: `now` or later.
    pub(super) fn ready_at(&self, now: Instant, cost: Fine) -> Instant {
        let at = self.floor(now, cost) + cost;
        if at <= self.base(now) { now } else { at.saturating_sub(self.depth).ceil() }
    }
    /// Pays for a packet that goes at `now`.
    pub(super) fn pay(&mut self, now: Instant, cost: Fine) {
        self.empty_at = self.floor(now, cost) + cost;
    }
}

pub(super) enum Wire {
    Device(Device),
    Bucket(Bucket),
    Open,
}

impl Wire {
    pub(super) fn new(config: WireConfig, link: &Link) -> Self {
        match config {
            WireConfig::Link { ring, refill } => Wire::Device(Device::new(ring, refill)),
            WireConfig::Regulator { depth_bytes } => Wire::Bucket(Bucket::new(link, depth_bytes)),
            WireConfig::Open => Wire::Open,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;
    use crate::units::Rate;

    /// Over every interval at most rate * time + depth: against sums of exact byte counts, at
    /// rates from 9.6 kbit/s to 400 Gbit/s, with a greedy source that asks exactly when told.
    #[test]
    fn the_bucket_never_gives_more_than_rate_and_depth() {
        for bps in [9_600u64, 1_500_000, 100_000_000, 10_000_000_000, 400_000_000_000] {
            let mut random = Random::new(bps);
            let link = Link::new(Rate::from_bps(bps), 0, 1514);
            let depth = 6_000u64;
            let mut bucket = Bucket::new(&link, depth);
            let (mut now, mut lateness_ns, mut sent) = (Instant::ZERO, 0u64, std::vec::Vec::new());
            for _ in 0..400 {
                let len = 64 + random.below(1_451);
                let cost = link.time_for(len as u32);
                let ready = bucket.ready_at(now, cost);
                assert!(ready == now || bucket.ready_at(ready, cost) == ready, "ready means ready");
                // Now and then the asker is late, or time stands still.
                let late_ns = if random.below(10) == 0 { random.below(50_000) } else { 0 };
                lateness_ns += late_ns + 1;
                now = ready + crate::units::Duration::from_nanos(late_ns);
                bucket.pay(now, cost);
                sent.push((now.as_nanos(), len));
            }
            for first in 0..sent.len() {
                let mut bytes = 0u128;
                for &(at, len) in &sent[first..] {
                    bytes += u128::from(len);
                    let time = u128::from(at - sent[first].0);
                    // bytes <= depth + rate * time / 8e9
                    assert!(
                        (bytes - bytes.min(u128::from(depth))) * 8_000_000_000 <= time * u128::from(bps),
                        "{bps}: {bytes} bytes in {time} ns"
                    );
                }
            }
            // And not less: what is not lost to late asking (and to whole nanoseconds) is used.
            let bits: u128 = sent.iter().map(|&(_, len)| u128::from(len) * 8).sum();
            let used_ns = u128::from(now.as_nanos().saturating_sub(lateness_ns));
            assert!(bits * 1_000_000_000 >= u128::from(bps) * used_ns, "{bps}");
        }
    }
}
