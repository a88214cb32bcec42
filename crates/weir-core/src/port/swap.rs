//! Another tree under a running port: by a new configuration, or by a fall back to FIFO; or an empty one.

use super::flows::Flows;
use super::room::Room;
use super::wire::{Wire, WireConfig};
use super::{Event, Port, PortPlan, Timer};
use crate::packet::{PacketId, PacketState};
use crate::queue::{DropReason, Inner, Leaf, Link};
use crate::sched::Fifo;
use crate::units::{Instant, Rate};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::mem::replace;

/// What a swap took out of a port: to be dropped where time does not matter, because a tree of
/// 65,536 queues takes milliseconds.
pub type Retired = Box<dyn Any + Send>;

impl Port {
    /// Replaces all that a configuration says, and hands every queued packet to the class of the
    /// same name, or to the default class where there is none. Nothing is lost. Conditioners go on
    /// with what those of their names have (`Conditioners::inherit`); what waits in the port was
    /// conditioned when it came.
    pub fn swap(&mut self, now: Instant, mut plan: PortPlan, host: &mut impl FnMut(Event<'_>)) -> Retired {
        self.run(now, false, host);
        let mut succession = self.succession(&mut plan);
        let PortPlan {
            tree,
            classifier,
            mut conditioners,
            ecn,
            tunnels,
            protect,
            segment,
            capacity: _,
            regulated,
            apart,
            succession: _,
        } = plan;
        let mut moved = Vec::new();
        // What is in the ring is already out of the tree, but its account moves with it.
        if let Wire::Device(device) = &self.wire {
            device.ring().for_each_mut(&mut self.cx.packets, |row| {
                let (leaf, same) = succession.heir(row.leaf);
                row.leaf = leaf;
                // A control packet is in no leaf's account.
                if !same && !row.control {
                    moved.push((leaf, row.len));
                }
            });
        }
        let queued = self.cx.packets.reclaim_queued();
        for id in &queued {
            let row = self.cx.packets.get_mut(id);
            let (leaf, same) = succession.heir(row.leaf);
            row.leaf = leaf;
            if !same {
                moved.push((leaf, row.len));
            }
        }
        self.reassigned += moved.len() as u64;
        if let Some(heirs) = succession.heirs() {
            self.ledger.inherit(heirs, tree.leaves.len(), &moved);
        }
        if let (Some(new), Some(old)) = (&mut conditioners, &self.conditioners) {
            new.inherit(self.cx.now, old);
        }
        // A queue may have another limit than its plan gave it.
        if !succession.is_same || !self.limits.is_empty() {
            self.room = succession.parts.take().map(|parts| Room::of(parts, self.capacity(), &self.ledger));
        }
        self.limits.clear();
        self.default_leaf = tree.default_leaf.unwrap_or(0);
        self.otherwise = super::otherwise(&tree, apart.as_ref());
        let apart = replace(&mut self.apart, apart);
        let leaves = replace(&mut self.leaves, Arc::new(tree.leaves));
        self.flows = Flows::new(&classifier);
        let filters = replace(&mut self.classifier, classifier);
        let conditioners = replace(&mut self.conditioners, conditioners);
        (self.ecn, self.tunnels, self.segment) = (ecn, tunnels, segment);
        self.lane.reshape(self.cx.now, protect);
        if let Some((link, config)) = regulated
            && self.wire.regulate(self.cx.now, config, &link)
        {
            self.cx.link = link;
            self.clock.tolerate(self.wire.tolerance(&link, self.apart.is_some()));
        }
        self.broken = None;
        let tree = self.adopt(Inner::new(tree.discipline), queued, host);
        Box::new((tree, leaves, filters, conditioners, succession, apart))
    }

    /// Replaces the tree by one FIFO that holds every packet, in order of arrival: what happens
    /// by itself when a discipline reports `Broken` (A02). Classes are still counted.
    pub fn fall_back(&mut self, now: Instant, host: &mut impl FnMut(Event<'_>)) {
        self.run(now, false, host);
        self.become_fifo(host);
    }

    /// Of a port that runs one part of a tree: the others are lent less from now on, because it sends without a loan. `now`
    /// is the host's.
    pub fn part_from(&mut self, now: Instant) {
        // One that has fallen back did so then.
        if let (Some(apart), Wire::Open) = (&mut self.apart, &self.wire) {
            apart.lend.part_from(now);
        }
    }

    pub(super) fn become_fifo(&mut self, host: &mut impl FnMut(Event<'_>)) {
        let queued = self.cx.packets.reclaim_queued();
        let fifo = Fifo::new(Leaf::tail_drop(self.cx.packets.capacity()));
        // A part keeps to the link's rate without its credit.
        if let (Some(apart), Wire::Open) = (&mut self.apart, &self.wire) {
            apart.lend.part_from(self.cx.now);
            let Link { rate, overhead, mtu, .. } = self.cx.link;
            let equal = Rate::from_bps(rate.as_bps() / u64::from(apart.parts.max(1)));
            let depth_bytes = 2 * self.cx.link.cost_bytes(mtu);
            self.wire = Wire::new(WireConfig::Regulator { depth_bytes }, &Link::new(equal, overhead, mtu));
        }
        self.adopt(Inner::new(Box::new(fifo)), queued, host);
    }

    fn adopt(&mut self, tree: Inner, queued: Vec<PacketId>, host: &mut impl FnMut(Event<'_>)) -> Inner {
        let old = replace(&mut self.tree, tree);
        self.timer = Timer::NONE;
        self.cx.mend();
        self.take_on(queued, host);
        old
    }

    /// Hands the tree packets that waited elsewhere.
    pub(super) fn take_on(&mut self, queued: Vec<PacketId>, host: &mut impl FnMut(Event<'_>)) {
        self.cx.adopting = true;
        for id in queued {
            self.cx.packets.get_mut(&id).state = PacketState::Queued;
            self.tree.enqueue(&mut self.cx, id);
        }
        self.cx.adopting = false;
        self.settle(host);
        self.fill(host);
    }

    /// Drops everything that waits in the tree; what is in the ring still leaves.
    pub fn flush(&mut self, now: Instant, reason: DropReason, host: &mut impl FnMut(Event<'_>)) {
        self.run(now, false, host);
        self.tree.flush(&mut self.cx, reason);
        self.timer = Timer::NONE;
        self.settle(host);
        // Control packets still wait for the wire.
        self.fill(host);
    }
}
