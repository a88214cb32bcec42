//! What a tree takes of memory, without building its flow queues.
//!
//! A discipline that keeps a queue for each of many flows is alike from queue to queue. So a tree is built with one
//! flow queue in each discipline, and one discipline of each size whole. The host says how many bytes it has in use;
//! without an allocator that counts, it says always the same, and everything here is 0.
//!
//! Guarantee: `a_footprint_is_what_the_tree_takes`.

use super::node::Node;
use super::registry::{Assembled, FlowNodes, LeafInfo, Registry, Tree};
use crate::queue::{Link, ParamError};
use alloc::vec::Vec;

/// What a tree has that was checked and not built.
#[derive(Clone, Debug)]
pub struct Outline {
    /// Where packets would wait.
    pub leaves: Vec<LeafInfo>,
    /// Queues of flows in all disciplines together.
    pub flow_queues: u64,
    /// What the tree takes of memory; nothing where nobody measures it.
    pub footprint: Footprint,
}

/// Bytes of a tree.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Footprint {
    /// Of classes and disciplines, with the one flow queue that each discipline of flows has at least.
    pub classes: u64,
    /// Of all further flow queues.
    pub flow_queues: u64,
}

impl Registry {
    /// What the tree that `build` would make has, or its refusal, without the memory for flow queues.
    /// It is a trial of `build`, and asks `Entry::check` no more than that does.
    ///
    /// # Errors
    /// Those of `build`.
    pub fn check(&self, root: &Node, link: Link) -> Result<Outline, ParamError> {
        self.measure(root, link, &|| 0)
    }
    /// The same, and how many bytes that tree takes. `live` says how many bytes this thread has in use.
    ///
    /// # Errors
    /// Those of `build`.
    pub fn measure(&self, root: &Node, link: Link, live: &dyn Fn() -> i64) -> Result<Outline, ParamError> {
        let before = live();
        let Assembled { tree, flow_queues, flow_nodes } = self.assemble(root, link, true)?;
        // The notes of flow queues are no part of the tree.
        let noted = live();
        let queues = flow_nodes.bytes(self, link, live)?;
        drop(flow_nodes);
        let notes = u64::try_from(noted - live()).unwrap_or(0);
        let Tree { discipline, leaves, .. } = tree;
        let classes = difference(before, noted, discipline).saturating_sub(notes);
        Ok(Outline { leaves, flow_queues, footprint: Footprint { classes, flow_queues: queues } })
    }
}

impl FlowNodes {
    /// What their flow queues take beyond the first of each.
    pub fn bytes(&self, registry: &Registry, link: Link, live: &dyn Fn() -> i64) -> Result<u64, ParamError> {
        let mut sum = 0;
        for (count, node) in self.0.values() {
            let built = |only_check| {
                let before = live();
                let Assembled { tree, flow_nodes, .. } = registry.assemble(node, link, only_check)?;
                drop(flow_nodes);
                Ok::<_, ParamError>(difference(before, live(), tree))
            };
            sum += count * built(false)?.saturating_sub(built(true)?);
        }
        Ok(sum)
    }
}

/// Bytes that came into use; `held` is given back afterwards.
fn difference<T>(before: i64, now: i64, held: T) -> u64 {
    drop(held);
    u64::try_from(now - before).unwrap_or(0)
}
