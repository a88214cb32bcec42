//! From a configuration's text to what a managed port is built from.

use weir_core::port::PortPlan;
use weir_core::queue::Link;
use weir_core::sched::Registry;

/// What a port is built from.
pub(crate) struct Built {
    pub(crate) plan: PortPlan,
    pub(crate) discipline: String,
    /// The edge before the port, if the file gives it one.
    pub(crate) edge: Option<weir_conf::EdgePlan>,
    /// The brokers of the file, each with its capacity in bit/s.
    pub(crate) brokers: Vec<(String, u64)>,
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
    let edge = view.edge(registry, &built.tree.leaves, 0).map_err(|e| e.to_string())?;
    let brokers = plan.brokers.iter().map(|b| (b.name.clone(), b.capacity.as_bps())).collect();
    Ok(Built { plan: built.port_plan(link), discipline, edge, brokers })
}

/// A FIFO of `limit` packets, for an egress that no configuration manages.
pub(crate) fn fifo(limit: u32) -> Built {
    Built { plan: PortPlan::fifo(limit), discipline: "fifo".into(), edge: None, brokers: Vec::new() }
}
