//! What a change of one class costs a port with many: what its host cannot do beside.

use crate::scene::{self, LINK};
use std::hint::black_box;
use weir_core::classify::Classifier;
use weir_core::packet::{FrameRef, Meta};
use weir_core::port::{Event, Port, PortConfig, PortPlan, Retired, WireConfig};
use weir_core::queue::{Curve, Link, Params, Value};
use weir_core::sched::{Node, Registry};
use weir_core::units::{Instant, Rate};

/// Packets that wait meanwhile.
const WAITING: u32 = 256;
/// Rows of the port: too few for all that the queues may hold.
const ROWS: u32 = 1 << 18;
/// Changes of either kind.
pub const CHANGES: usize = 3;

/// One class of `node` gets another share.
fn share(node: &mut Node, class: usize, bps: u64) -> Option<(String, Params)> {
    let rate = Rate::from_bps(bps);
    let curve = Value::Curve(Curve { m1: rate, m2: rate, ..Curve::default() });
    let class = node.classes.get_mut(class)?;
    class.params = Params::new().with("ls", curve);
    Some((class.name.clone(), class.params.clone()))
}

/// A swap as the thread that sends packets makes it: what it took out is freed elsewhere.
#[inline(never)]
pub fn exchange(port: &mut Port, now: Instant, plan: PortPlan) -> Retired {
    black_box(port).swap(now, plan, &mut ignore)
}

/// The same where only parameters of a class change.
///
/// # Errors
/// What the discipline refuses.
#[inline(never)]
pub fn reconfigure(port: &mut Port, now: Instant, class: &str, params: &Params) -> Result<(), String> {
    black_box(port).reconfigure(now, class, params, &mut ignore).map_err(|error| error.to_string())
}

fn ignore(_: Event<'_>) {}

/// Changes one class of `classes`, which share the link by HFSC: swaps first, `prepared` or not, then changes in place.
///
/// # Errors
/// Why they cannot be built or changed.
pub fn run(registry: &Registry, classes: u32, prepared: bool) -> Result<(), String> {
    let scene = scene::of(&format!("hfsc-ls-{classes}")).ok_or("no such number of classes")?;
    let mut node = scene.node;
    let link = Link::new(LINK, 0, 1_514);
    let plan = |node: &Node| {
        let tree = registry.build(node, link).map_err(|error| error.to_string())?;
        Ok::<_, String>(PortPlan::new(tree, Classifier::empty()))
    };
    let wire = WireConfig::Regulator { depth_bytes: 10_000 };
    let config = PortConfig { capacity: ROWS, ..PortConfig::new(link, wire) };
    let mut port = Port::new(config, plan(&node)?);
    let now = Instant::ZERO;
    for frame in 0..WAITING {
        let leaf = frame * (classes / WAITING).max(1) % classes;
        let mut packet = Meta::new(1_000, now, FrameRef(frame));
        packet.leaf = leaf;
        let _ = port.offer(now, packet, &mut ignore);
    }
    let waiting = port.backlog().packets;
    if waiting + 16 < u64::from(WAITING) {
        return Err(format!("{waiting} packets wait of {WAITING}"));
    }
    let mut changed = |class: usize| {
        let named = share(&mut node, class, 20_000).ok_or("no class")?;
        Ok::<_, String>((plan(&node)?, named))
    };
    for class in 0..CHANGES {
        let (mut plan, _) = changed(class * classes as usize / CHANGES)?;
        if prepared {
            port.layout().prepare(&mut plan);
        }
        drop(exchange(&mut port, now, plan));
    }
    for class in 0..CHANGES {
        let (_, (name, params)) = changed(class * classes as usize / CHANGES + 1)?;
        reconfigure(&mut port, now, &name, &params)?;
    }
    port.check().map_err(|broken| broken.what.to_string())
}
