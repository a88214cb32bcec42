//! From a configuration's text to what a managed port is built from.

use weir_core::classify::Classifier;
use weir_core::meter::Conditioners;
use weir_core::queue::{Leaf, Link};
use weir_core::sched::{Fifo, LeafInfo, Registry, Tree};

/// What a port is built from.
pub(crate) struct Built {
    pub(crate) tree: Tree,
    pub(crate) classifier: Classifier,
    pub(crate) conditioners: Option<Conditioners>,
    pub(crate) discipline: String,
    pub(crate) ecn: bool,
}

/// The interface of `text` that is called `interface`, or its only one, over `link`.
pub(crate) fn configure(
    name: &str,
    text: &str,
    interface: Option<&str>,
    link: Link,
    registry: &Registry,
) -> Result<Built, String> {
    let plan = weir_conf::read(name, text, registry).into_result().map_err(|all| {
        let errors: Vec<String> = all.iter().filter(|d| d.is_error()).map(ToString::to_string).collect();
        errors.join("\n")
    })?;
    let view = plan.interface(interface.unwrap_or("")).map_err(|e| e.to_string())?;
    let built = view.build(registry, link).map_err(|e| e.to_string())?;
    let discipline = view.discipline.as_ref().map_or("fifoq", |d| d.name.as_str()).to_string();
    let (tree, classifier, conditioners) = (built.tree, built.classifier, built.conditioners);
    Ok(Built { tree, classifier, conditioners, discipline, ecn: built.ecn })
}

/// A FIFO of `limit` packets, for an egress that no configuration manages.
pub(crate) fn fifo(limit: u32) -> Built {
    let discipline = Box::new(Fifo::new(Leaf::tail_drop(limit)));
    let leaves = vec![LeafInfo { name: "all".into(), terminal: true }];
    Built {
        tree: Tree { discipline, leaves, default_leaf: Some(0) },
        classifier: Classifier::empty(),
        conditioners: None,
        discipline: "fifo".into(),
        ecn: true,
    }
}
