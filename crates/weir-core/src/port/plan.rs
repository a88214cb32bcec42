//! What a port is told: how it is set up, and what a configuration puts into it.

use super::{Port, Protect, Succession, WireConfig};
use crate::classify::Classifier;
use crate::meter::Conditioners;
use crate::queue::{Leaf, Link};
use crate::sched::{Fifo, LeafInfo, Tree};
use crate::spread::Apart;
use crate::units::Duration;
use alloc::boxed::Box;

/// How a port is set up; what stands above the tree is the configuration's business.
#[derive(Clone, Copy, Debug)]
pub struct PortConfig {
    /// Rate, overhead and MTU of the link.
    pub link: Link,
    /// What stands below the tree.
    pub wire: WireConfig,
    /// Most packets in the port at once, unless the first plan says it; all memory is taken at the
    /// start.
    pub capacity: u32,
    /// Seed of the port's random stream and of its flow hashes. Where strangers' traffic comes, it
    /// is to be drawn at random and kept secret: who knows it can compute which flows collide.
    pub seed: u64,
    /// Timer tick; zero for an exact timer.
    pub tick: Duration,
    /// Whether the tree is asked after every arrival and completion while a timer runs (A24).
    pub packet_events: bool,
}

impl PortConfig {
    /// An exact timer, packet events on, 4096 packets, seed 1.
    pub fn new(link: Link, wire: WireConfig) -> Self {
        PortConfig { link, wire, capacity: 4096, seed: 1, tick: Duration::ZERO, packet_events: true }
    }
}

/// Which aggregates the host takes apart before it offers them: packets of up to 64 KB that leave as
/// several, because of segmentation offload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Segment {
    /// None.
    Never,
    /// All.
    Always,
    /// Those that last longer on the wire, headers and overhead of each segment included.
    Beyond(Duration),
}

impl Segment {
    /// What a configuration means that says nothing: 1 ms, less than one full-size packet at 10 Mbit/s.
    pub const USUAL: Segment = Segment::Beyond(Duration::from_millis(1));

    /// Bytes on a wire of `link` up to which an aggregate stays whole.
    pub fn longest_whole_bytes(self, link: &Link) -> u64 {
        match self {
            Segment::Never => u64::MAX,
            Segment::Always => 0,
            Segment::Beyond(time) => link.rate.bytes_in(time.as_nanos()),
        }
    }
}

impl Port {
    /// Which aggregates the host is to take apart.
    pub fn segment(&self) -> Segment {
        self.segment
    }
}

/// What a configuration puts into a port, when it is opened (`Port::new`) and later (`Port::swap`).
/// It is exchanged as a whole, so that nothing of an older configuration stays.
pub struct PortPlan {
    /// The disciplines.
    pub tree: Tree,
    /// The filters, whose classes are the tree's leaves.
    pub classifier: Classifier,
    /// What is done with packets before; `None` where there are none.
    pub conditioners: Option<Conditioners>,
    /// Whether the two ECN bits mean congestion (false where a configuration uses them as classes).
    pub ecn: bool,
    /// Whether the host is to classify by the packet inside a tunnel (`packet::look_inside`).
    pub tunnels: bool,
    /// How much control packets may take before the tree; `None`: they go where filters say.
    pub protect: Option<Protect>,
    /// Which aggregates the host is to take apart.
    pub segment: Segment,
    /// Most packets in a port that is opened with this plan; `None`: as the host says. A swap leaves
    /// the room as it is.
    pub capacity: Option<u32>,
    /// Another link, and the regulator on it (`WireConfig::Open` for none). `None` keeps both. An
    /// emulated link is the host's and not the configuration's: it stays in any case.
    pub regulated: Option<(Link, WireConfig)>,
    /// What a port has that runs one part of a tree; its wire is `Open`.
    pub apart: Option<Apart>,
    /// What was prepared for a swap ([`Layout::prepare`](super::Layout::prepare)).
    pub succession: Option<Succession>,
}

impl PortPlan {
    /// A tree and its filters, without conditioners, on the link that is there; ECN bits mean
    /// congestion, tunnels are looked into, and aggregates taken apart as usual.
    pub fn new(tree: Tree, classifier: Classifier) -> Self {
        PortPlan {
            tree,
            classifier,
            conditioners: None,
            ecn: true,
            tunnels: true,
            protect: None,
            segment: Segment::USUAL,
            capacity: None,
            regulated: None,
            apart: None,
            succession: None,
        }
    }
    /// One FIFO of `limit` packets, whose only class is called `all`.
    pub fn fifo(limit: u32) -> Self {
        let discipline = Box::new(Fifo::new(Leaf::tail_drop(limit)));
        let leaves = alloc::vec![LeafInfo { name: "all".into(), terminal: true, limit }];
        PortPlan::new(Tree { discipline, leaves, default_leaf: Some(0) }, Classifier::empty())
    }
}
