//! Which leaves of another configuration go on with those of a port.

use super::room::Part;
use crate::sched::LeafInfo;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Which leaves of a plan go on with what those of a port have, and what is kept for each.
pub struct Succession {
    /// The leaves of the port for which it was made.
    pub(super) of: Arc<Vec<LeafInfo>>,
    /// For each of them its heir, and whether that has its name; `None` where each leaf is its own heir.
    pub(super) heirs: Option<Vec<(u32, bool)>>,
    /// As [`Room::parts`].
    pub(super) parts: Option<Vec<Part>>,
    /// Each leaf is its own heir, with the limit that it had.
    pub(super) is_same: bool,
}

impl Succession {
    /// The leaf that goes on with `leaf`, and whether it is that of its name.
    pub(super) fn heir(&self, leaf: u32) -> (u32, bool) {
        self.heirs.as_ref().map_or((leaf, true), |heirs| heirs[leaf as usize])
    }
    /// The heirs of all leaves; `None` where each leaf is its own heir.
    pub(super) fn heirs(&self) -> Option<&[(u32, bool)]> {
        self.heirs.as_deref()
    }
}

/// For each of those names the leaf that goes on with it, and whether that has it: the default leaf where none has.
pub(super) fn heirs<'n>(
    names: impl Iterator<Item = &'n str>,
    leaves: &[LeafInfo],
    default: u32,
) -> Vec<(u32, bool)> {
    let by_name: BTreeMap<&str, u32> = (0..).zip(leaves).map(|(leaf, info)| (&*info.name, leaf)).collect();
    names.map(|name| by_name.get(name).map_or((default, false), |&leaf| (leaf, true))).collect()
}
