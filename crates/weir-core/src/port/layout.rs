//! What a swap must know of all classes, made beside the port.
//!
//! A port may have 100,000 classes, and its host a packet to send. Who brings another configuration takes
//! the port's [`Layout`] first, and has [`Layout::prepare`] look at every class, on another thread. The swap itself
//! then looks at the packets that wait. Where the classes keep their names and places it does not look at one class.
//!
//! Guarantee: `a_prepared_swap_looks_at_no_class`, `a_swap_is_the_same_prepared_or_not`.

use super::room::Room;
use super::succession::{Succession, heirs};
use super::{Port, PortPlan};
use crate::sched::{LeafInfo, Tree};
use alloc::sync::Arc;
use alloc::vec::Vec;

/// What stands in a port that another configuration is to follow. Cheap to clone.
#[derive(Clone)]
pub struct Layout {
    leaves: Arc<Vec<LeafInfo>>,
    ring: u32,
    capacity: u32,
}

impl Layout {
    /// Prepares `plan` to follow what stands here. A swap does it itself where that was not done, or was done for
    /// a port that has changed since.
    pub fn prepare(&self, plan: &mut PortPlan) {
        plan.succession = Some(self.succession(&plan.tree));
    }

    fn succession(&self, tree: &Tree) -> Succession {
        let (old, new) = (&*self.leaves, &tree.leaves);
        let same_names = old.len() == new.len() && old.iter().zip(new).all(|(old, new)| old.name == new.name);
        let default = tree.default_leaf.unwrap_or(0);
        let heirs = (!same_names).then(|| heirs(old.iter().map(|old| &*old.name), new, default));
        let same_limits = || old.iter().zip(new).all(|(old, new)| old.limit == new.limit);
        let limits = new.iter().map(|leaf| leaf.limit);
        Succession {
            of: self.leaves.clone(),
            heirs,
            parts: Room::parts(limits, self.ring, self.capacity),
            is_same: same_names && same_limits(),
        }
    }
}

impl PortPlan {
    /// The leaf that goes on under the name of `leaf` of the port for which this was prepared; `None` if there is none.
    pub fn heir(&self, leaf: u32) -> Option<u32> {
        let succession = self.succession.as_ref().filter(|made| (leaf as usize) < made.of.len())?;
        Some(succession.heir(leaf)).filter(|&(_, same)| same).map(|(heir, _)| heir)
    }
}

impl Port {
    /// What stands here, for whoever prepares a plan to follow it.
    pub fn layout(&self) -> Layout {
        Layout { leaves: self.leaves.clone(), ring: self.wire.ring_size(), capacity: self.capacity() }
    }
    /// What was prepared for this port, or is now.
    pub(super) fn succession(&self, plan: &mut PortPlan) -> Succession {
        let made = plan.succession.take().filter(|made| Arc::ptr_eq(&made.of, &self.leaves));
        made.unwrap_or_else(|| self.layout().succession(&plan.tree))
    }
    /// Prepares `plan` to follow what stands here, unless that was done.
    pub fn prepare(&self, plan: &mut PortPlan) {
        plan.succession = Some(self.succession(plan));
    }
}
