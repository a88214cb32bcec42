//! What a tree takes of memory, without building its flow queues.
//!
//! A discipline that keeps a queue for each of many flows is alike from queue to queue. So a tree is built with one
//! flow queue in each discipline, and one discipline of each size whole. The host says how many bytes it has in use;
//! without an allocator that counts, it says always the same, and everything here is 0.
//!
//! Guarantee: `a_footprint_is_what_the_tree_takes`.

use super::registry::{Assembled, Node, Registry};
use crate::queue::{Link, ParamError};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;

/// Bytes of a tree.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Footprint {
    /// Of classes and disciplines, with the one flow queue that each discipline of flows has at least.
    pub classes: u64,
    /// Of all further flow queues.
    pub flow_queues: u64,
}

/// The disciplines of a tree that keep flow queues: how many are configured alike, and one of them.
#[derive(Default)]
pub(super) struct FlowNodes(BTreeMap<String, (u64, Node)>);

impl FlowNodes {
    /// Notes a node without classes.
    pub fn note(&mut self, node: &Node) {
        let kind = format!("{} {:?}", node.discipline, node.params);
        self.0.entry(kind).or_insert_with(|| (0, node.clone())).0 += 1;
    }
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
pub(super) fn difference<T>(before: i64, now: i64, held: T) -> u64 {
    drop(held);
    u64::try_from(now - before).unwrap_or(0)
}
