//! Another tree under a running port: by a new configuration, or by a fall back to FIFO.

use super::room::Room;
use super::wire::Wire;
use super::{Event, Port, PortPlan};
use crate::packet::{PacketId, PacketState};
use crate::queue::{Child, Leaf};
use crate::sched::Fifo;
use crate::units::Instant;
use alloc::boxed::Box;
use alloc::vec::Vec;

impl Port {
    /// Replaces all that a configuration says, and hands every queued packet to the class of the
    /// same name, or to the default class where there is none. Nothing is lost. New conditioners
    /// start with full buckets; what waits in the port was conditioned when it came.
    pub fn swap(&mut self, now: Instant, plan: PortPlan, host: &mut impl FnMut(Event<'_>)) {
        self.run(now, false, host);
        let PortPlan {
            tree,
            classifier,
            conditioners,
            ecn,
            tunnels,
            protect,
            segment,
            capacity: _,
            regulated,
        } = plan;
        let default = tree.default_leaf.unwrap_or(0);
        let heir: Vec<(u32, bool)> = self
            .leaves
            .iter()
            .map(|old| match tree.leaf(&old.name) {
                Some(leaf) => (leaf, true),
                None => (default, false),
            })
            .collect();
        let mut moved = Vec::new();
        // What is in the ring is already out of the tree, but its account moves with it.
        if let Wire::Device(device) = &self.wire {
            device.ring().for_each_mut(&mut self.cx.packets, |row| {
                let (leaf, same) = heir[row.leaf as usize];
                row.leaf = leaf;
                if !same {
                    moved.push((leaf, row.len));
                }
            });
        }
        let queued = self.cx.packets.reclaim_queued();
        for id in &queued {
            let row = self.cx.packets.get_mut(id);
            let (leaf, same) = heir[row.leaf as usize];
            row.leaf = leaf;
            if !same {
                moved.push((leaf, row.len));
            }
        }
        self.reassigned += moved.len() as u64;
        self.ledger.inherit(&heir, tree.leaves.len(), &moved);
        self.room = Room::new(&tree.leaves, self.wire.ring_size(), self.capacity(), &self.ledger);
        self.leaves = tree.leaves;
        self.default_leaf = default;
        (self.classifier, self.conditioners) = (classifier, conditioners);
        (self.ecn, self.tunnels, self.segment) = (ecn, tunnels, segment);
        self.lane.reshape(self.cx.now, protect);
        if let Some((link, config)) = regulated
            && self.wire.regulate(self.cx.now, config, &link)
        {
            self.cx.link = link;
            self.clock.tolerate(self.wire.tolerance(&link));
        }
        self.broken = None;
        self.adopt(Child::inner(tree.discipline), queued, host);
    }

    /// Replaces the tree by one FIFO that holds every packet, in order of arrival: what happens
    /// by itself when a discipline reports `Broken` (A02). Classes are still counted.
    pub fn fall_back(&mut self, now: Instant, host: &mut impl FnMut(Event<'_>)) {
        self.run(now, false, host);
        self.become_fifo(host);
    }

    pub(super) fn become_fifo(&mut self, host: &mut impl FnMut(Event<'_>)) {
        let queued = self.cx.packets.reclaim_queued();
        let fifo = Fifo::new(Leaf::tail_drop(self.cx.packets.capacity()));
        self.adopt(Child::inner(Box::new(fifo)), queued, host);
    }

    fn adopt(&mut self, tree: Child, queued: Vec<PacketId>, host: &mut impl FnMut(Event<'_>)) {
        self.tree = tree;
        self.timer = None;
        self.cx.mend();
        self.cx.adopting = true;
        for id in queued {
            self.cx.packets.get_mut(&id).state = PacketState::Queued;
            self.tree.enqueue(&mut self.cx, id);
        }
        self.cx.adopting = false;
        self.settle(host);
        self.fill(host);
    }
}
