//! From a configuration's text to what a managed port is built from.

use weir_core::classify::Classifier;
use weir_core::queue::{Leaf, Link};
use weir_core::sched::{Fifo, LeafInfo, Tree};

/// What a port is built from.
pub(crate) struct Built {
    pub(crate) tree: Tree,
    pub(crate) classifier: Classifier,
    pub(crate) discipline: String,
    pub(crate) ecn: bool,
}

/// The interface of `text` that is called `interface`, or its only one.
pub(crate) fn configure(
    name: &str,
    _text: &str,
    _interface: Option<&str>,
    _link: Link,
) -> Result<Built, String> {
    Err(format!("{name}: the lab cannot read altq.conf before weir-conf builds trees"))
}

/// A FIFO of `limit` packets, for an egress that no configuration manages.
pub(crate) fn fifo(limit: u32) -> Built {
    let discipline = Box::new(Fifo::new(Leaf::tail_drop(limit)));
    let leaves = vec![LeafInfo { name: "all".into(), terminal: true }];
    Built {
        tree: Tree { discipline, leaves, default_leaf: Some(0) },
        classifier: Classifier::empty(),
        discipline: "fifo".into(),
        ecn: true,
    }
}
