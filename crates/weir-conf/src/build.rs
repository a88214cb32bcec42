//! From plan to what a port runs: the tree of disciplines, the classifier, the regulator.

use crate::hooks::{self, Lowered};
use crate::limits;
use crate::plan::{Action, Filter, Interface, Options, Plan, RedDefaults};
use crate::precedence::{self, BuiltFilter};
use crate::room::Room;
use crate::tree::Shape;
use crate::view::View;
use std::collections::HashMap;
use weir_core::classify::Classifier;
use weir_core::meter::{self, Conditioners};
use weir_core::packet::Dscp;
use weir_core::port::{PortPlan, Protect, Segment, WireConfig};
use weir_core::queue::{Link, ParamError, Params, Value};
use weir_core::sched::{ClassConfig, Footprint, Guarantee, LeafInfo, Node, Outline, Registry, Tree};
use weir_core::spread::Apart;
use weir_core::units::Rate;
use weir_text::{Diagnostic, Place, Severity, Trouble};

/// The automatic bucket holds what flows in within so long.
const AUTOMATIC_NS: u64 = 1_000_000;
/// Most interfaces that a warning names one by one.
const MOST_NAMED: usize = 8;

/// What a port needs.
pub struct Built {
    /// The disciplines.
    pub tree: Tree,
    /// The filters; what it answers are leaves of the tree.
    pub classifier: Classifier,
    /// What the classifier's filters are in the plan, by `FilterId::index`.
    pub filters: Vec<BuiltFilter>,
    /// Where packets go that no filter matches.
    pub default_leaf: u32,
    /// What is done with the packets before: the conditioners of the interface by which they come,
    /// see `View::entrance`. `None` where there are none.
    pub conditioners: Option<Conditioners>,
    /// What control packets may take before the disciplines; `None` where nothing.
    pub protect: Option<Protect>,
    /// The token bucket in front of a real link; `None` where there is no bandwidth to keep.
    pub regulator: Option<Regulator>,
    /// Room for the packets that wait.
    pub room: Room,
    /// False if filters use the ECN bits as code points of their own.
    pub ecn: bool,
    /// Whether filters are asked about the packet inside a tunnel.
    pub tunnels: bool,
    /// Which aggregates are taken apart.
    pub segment: Segment,
    /// What a port has that runs one part of the tree.
    pub apart: Option<Apart>,
    /// What may not be as its writer thinks.
    pub warnings: Vec<Diagnostic>,
}

impl Built {
    /// What is exchanged in a live port on `link`: all that the configuration says, the regulator
    /// included.
    pub fn port_plan(self, link: Link) -> PortPlan {
        let wire = match self.regulator {
            Some(Regulator { depth_bytes, .. }) => WireConfig::Regulator { depth_bytes },
            None => WireConfig::Open,
        };
        PortPlan {
            tree: self.tree,
            classifier: self.classifier,
            conditioners: self.conditioners,
            ecn: self.ecn,
            tunnels: self.tunnels,
            protect: self.protect,
            segment: self.segment,
            apart: self.apart,
            capacity: Some(self.room.packets),
            regulated: Some((link, wire)),
            succession: None,
        }
    }
}

/// What a port would be built of.
#[derive(Clone, Debug)]
pub struct Checked {
    /// Where packets would wait.
    pub leaves: Vec<LeafInfo>,
    /// Room for them.
    pub room: Room,
    /// Queues of flows in all its disciplines together.
    pub flow_queues: u64,
    /// What they and the classes take of memory; nothing where nobody measures it.
    pub footprint: Footprint,
    /// The classes that its outermost discipline makes beside those of the file.
    pub made: Vec<ClassConfig>,
    /// What may not be as its writer thinks.
    pub warnings: Vec<Diagnostic>,
}

/// A token bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Regulator {
    /// Its rate.
    pub rate: Rate,
    /// Its depth.
    pub depth_bytes: u64,
}

impl Regulator {
    /// The bucket at `rate` over `link`: `depth_bytes`, or what flows in within a millisecond, and
    /// two full frames at least. A host that wakes up later than that loses what it missed.
    pub fn new(rate: Rate, link: &Link, depth_bytes: Option<u64>) -> Self {
        let least = 2 * link.cost_bytes(link.mtu);
        Regulator { rate, depth_bytes: depth_bytes.unwrap_or(rate.bytes_in(AUTOMATIC_NS).max(least)) }
    }
}

impl Plan {
    /// What `View::check` says of each interface, in the order of the file, with links for frames of at
    /// most `mtu` bytes. The interface with which the file asks for too many flow queues is refused. `live` says how
    /// many bytes this thread has in use, for the `footprint`s.
    pub fn check(
        &self,
        registry: &Registry,
        mtu: u32,
        live: &dyn Fn() -> i64,
    ) -> Vec<Result<Checked, Diagnostic>> {
        let mut flow_queues = 0u64;
        let check = |view: View<'_>| {
            let checked = view.measure(registry, view.link(mtu), live)?;
            let before = flow_queues;
            flow_queues = flow_queues.saturating_add(checked.flow_queues);
            if before <= limits::FLOW_QUEUES && flow_queues > limits::FLOW_QUEUES {
                let message = format!(
                    "with interface `{}` the file has {flow_queues} flow queues, more than {}",
                    view.name,
                    limits::FLOW_QUEUES
                );
                let help = "write smaller `flows` or `nqueues`, or divide the file by interfaces";
                return Err(view.refuse(view.place, message, help));
            }
            Ok(checked)
        };
        self.views().map(check).collect()
    }
}

impl View<'_> {
    /// The regulator that the interface's line asks for, over `link`.
    pub fn regulator(&self, link: &Link) -> Option<Regulator> {
        let rate = match (self.interface.bandwidth, &self.interface.discipline) {
            (Some(rate), _) => rate,
            (None, Some(_)) => self.interface.rate(),
            (None, None) => return None,
        };
        (!rate.is_zero()).then(|| Regulator::new(rate, link, self.interface.tbrsize))
    }

    /// The interface's own conditioners with their filters: for the port through which the packets
    /// leave that enter by it.
    ///
    /// # Errors
    /// A diagnostic for what the conditioners refuse; `read` has refused it already.
    pub fn conditioners(&self) -> Result<Option<Conditioners>, Diagnostic> {
        self.conditioners_of(self.interface)
    }

    fn conditioners_of(&self, interface: &Interface) -> Result<Option<Conditioners>, Diagnostic> {
        let all = &interface.conditioners;
        let Some(first) = all.first() else { return Ok(None) };
        let numbers: HashMap<&str, u32> = (0..).zip(all).map(|(n, c)| (c.name.as_str(), n)).collect();
        // Filters that name a class are not here, so every name is one of `all`.
        let mut number = |name: &str| numbers.get(name).copied().unwrap_or(0);
        let compiled = precedence::compile(interface, &[], true, &mut number);
        let named: Vec<(String, meter::Action)> =
            all.iter().map(|c| (c.name.clone(), action(&c.action))).collect();
        Conditioners::new(compiled.classifier, &named).map(Some).map_err(|error| {
            let place = all.iter().find(|c| c.name == error.class).map_or(first.place, |c| c.place);
            let found = format!("`{}` cannot be {}", error.field, error.found);
            self.refuse(place, found, format!("expected {}", error.expected))
        })
    }

    /// What the interface's discipline promises its classes.
    pub fn guarantees(&self, registry: &Registry, link: &Link) -> Vec<Guarantee> {
        let shape = Shape::of(self.interface, registry);
        let Some(outer) = shape.instances.first() else { return Vec::new() };
        let hook = outer.entry.guarantees;
        hook.map(|hook| hook(&hooks::node(&shape, outer), link)).unwrap_or_default()
    }

    /// The configuration of the tree, with the classes that disciplines add by themselves.
    pub fn node(&self, registry: &Registry) -> Node {
        let shape = Shape::of(self.interface, registry);
        self.tree_of(&shape, &Lowered::of(&shape))
    }

    pub(crate) fn tree_of(&self, shape: &Shape<'_>, lowered: &Lowered) -> Node {
        match shape.instances.first() {
            Some(_) => self.node_of(shape, lowered, 0),
            // An interface for conditioners only has a plain queue.
            None => Node::plain(),
        }
    }

    fn node_of(&self, shape: &Shape<'_>, lowered: &Lowered, instance: usize) -> Node {
        let mut node = lowered.nodes[instance].clone();
        self.defaults(&mut node.params, &node.discipline);
        for (class, &member) in node.classes.iter_mut().zip(&shape.instances[instance].members) {
            class.queue = shape.queue[member].map(|inner| self.node_of(shape, lowered, inner));
        }
        for class in node.classes.iter_mut().filter(|class| class.params.has("rio")) {
            self.defaults(&mut class.params, "rio");
        }
        node
    }

    /// The commands `red` and `rio`: what a RED or RIO does not say for itself. 0 says nothing. These are
    /// lines of altq.conf with numbers by position, so the reader knows which words they stand for.
    fn defaults(&self, params: &mut Params, discipline: &str) {
        let mut set = |names: [&'static str; 3], d: &RedDefaults| {
            for (name, value) in names.into_iter().zip([d.thmin, d.thmax, d.invpmax]) {
                if value > 0 && !params.has(name) {
                    params.set(name, Value::Count(value));
                }
            }
        };
        match discipline {
            "red" => {
                if let Some(d) = &self.plan.red {
                    set(["thmin", "thmax", "invpmax"], d);
                }
            }
            "rio" => {
                if let Some([low, medium, high]) = &self.plan.rio {
                    set(["lo_thmin", "lo_thmax", "lo_invpmax"], low);
                    set(["med_thmin", "med_thmax", "med_invpmax"], medium);
                    set(["hi_thmin", "hi_thmax", "hi_invpmax"], high);
                }
            }
            _ => {}
        }
    }

    /// Builds the tree for `link`, and the classifier over its leaves.
    ///
    /// # Errors
    /// A diagnostic for a discipline that cannot run yet, or for what a discipline refuses.
    pub fn build(&self, registry: &Registry, link: Link) -> Result<Built, Diagnostic> {
        let shape = Shape::of(self.interface, registry);
        let lowered = Lowered::of(&shape);
        self.can_run(&shape, registry)?;
        let root = self.tree_of(&shape, &lowered);
        let tree = registry.build(&root, link).map_err(|e| self.locate(&shape, &lowered, &e))?;
        let leaves = self.leaves_by_class(&shape, &lowered, &tree.leaves)?;
        let room = self.room(&tree.leaves)?;
        let mut number = |class: &str| leaves.get(class).copied().unwrap_or(0);
        let compiled = precedence::compile(self.interface, &lowered.filters, false, &mut number);
        Ok(Built {
            default_leaf: tree.default_leaf.unwrap_or(0),
            conditioners: self.entrance.map_or(Ok(None), |entrance| self.conditioners_of(entrance))?,
            regulator: self.regulator(&link),
            ecn: !self.interface.ecn_is_off(),
            tunnels: self.interface.looks_inside(),
            protect: self.protect(&link),
            segment: self.interface.segment.unwrap_or(Segment::USUAL),
            warnings: self.warnings(link, room),
            room,
            classifier: compiled.classifier,
            filters: compiled.filters,
            apart: None,
            tree,
        })
    }

    /// What `build` would refuse or warn of, and the leaves that it would make, without the memory for
    /// what waits in them.
    ///
    /// # Errors
    /// Those of `build`.
    pub fn check(&self, registry: &Registry, link: Link) -> Result<Checked, Diagnostic> {
        self.measure(registry, link, &|| 0)
    }

    fn measure(
        &self,
        registry: &Registry,
        link: Link,
        live: &dyn Fn() -> i64,
    ) -> Result<Checked, Diagnostic> {
        let shape = Shape::of(self.interface, registry);
        let lowered = Lowered::of(&shape);
        self.can_run(&shape, registry)?;
        let Outline { leaves, flow_queues, footprint } = registry
            .measure(&self.tree_of(&shape, &lowered), link, live)
            .map_err(|e| self.locate(&shape, &lowered, &e))?;
        self.leaves_by_class(&shape, &lowered, &leaves)?;
        self.conditioners()?;
        if self.parts() > 1 {
            self.cut_tree(registry, &self.tree_of(&shape, &lowered), link)?;
        }
        let room = self.room(&leaves)?;
        let declared = shape.instances.first().map_or(0, |outer| outer.members.len());
        let made = lowered.nodes.into_iter().next().map(|outer| outer.classes.into_iter().skip(declared));
        let made = made.into_iter().flatten().collect();
        Ok(Checked { leaves, room, flow_queues, footprint, made, warnings: self.warnings(link, room) })
    }

    /// For each class that filters lead to, the leaf where its packets wait.
    pub(crate) fn leaves_by_class<'s>(
        &self,
        shape: &'s Shape<'_>,
        lowered: &'s Lowered,
        leaves: &[LeafInfo],
    ) -> Result<HashMap<&'s str, u32>, Diagnostic> {
        let by_name: HashMap<&str, u32> = (0..).zip(leaves).map(|(n, l)| (l.name.as_str(), n)).collect();
        let conditioners = precedence::conditioner_names(shape.interface);
        let classes = shape.interface.classes.iter().enumerate();
        let of_file = classes
            .map(|(index, class)| (class.name.as_str(), &shape.interface.classes[shape.landing(index)].name));
        let of_disciplines = lowered.added(shape).map(|name| (name, name));
        let all = of_file.map(|(class, at)| (class, at.as_str())).chain(of_disciplines);
        let found: HashMap<&'s str, u32> =
            all.filter_map(|(class, at)| Some((class, *by_name.get(at)?))).collect();
        let queueless =
            |f: &&Filter| !found.contains_key(f.class.as_str()) && !conditioners.contains(f.class.as_str());
        match shape.interface.filters.iter().find(queueless) {
            None => Ok(found),
            Some(filter) => {
                let message = format!("the filter goes to `{}`, which has no queue", filter.class);
                Err(self.refuse(filter.place, message, "name a class that packets can wait in"))
            }
        }
    }

    pub(crate) fn refuse(
        &self,
        place: Place,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Diagnostic {
        self.plan.source.diagnostic(Severity::Error, Trouble::new(place, message, help))
    }

    /// Every discipline must be there and be built.
    pub(crate) fn can_run(&self, shape: &Shape<'_>, registry: &Registry) -> Result<(), Diagnostic> {
        const HELP: &str =
            "it is read and checked, but not built yet; `weir disciplines` lists those that are";
        let named = shape.interface.discipline.iter().map(|q| (q.name.as_str(), q.place));
        let queues = shape.interface.classes.iter().filter_map(|c| c.queue.as_ref());
        let inner = queues.map(|q| (q.name.as_str(), q.place));
        let classes = shape.interface.classes.iter().map(|c| (c.discipline.as_str(), c.place));
        for (name, place) in named.chain(inner).chain(classes) {
            match registry.find(name) {
                Some(entry) if entry.build.is_some() => {}
                Some(_) => return Err(self.refuse(place, format!("{name} cannot run yet"), HELP)),
                None => {
                    let help = "`weir disciplines` lists those that there are";
                    return Err(self.refuse(place, format!("no discipline `{name}`"), help));
                }
            }
        }
        Ok(())
    }

    /// What a discipline refused, at the line and column that asked for it.
    pub(crate) fn locate(&self, shape: &Shape<'_>, lowered: &Lowered, error: &ParamError) -> Diagnostic {
        let interface = shape.interface;
        let option = |options: &Options| options.get(&error.field).map(|g| g.place);
        let place = match shape.class(&error.class).map(|c| &interface.classes[c]) {
            Some(class) => option(&class.options)
                .or_else(|| class.queue.as_ref().and_then(|q| option(&q.options)))
                .unwrap_or(class.place),
            None => {
                // A class that a discipline added stands beside one of the file.
                let added = lowered.filters.iter().find(|f| f.class == error.class).map(|f| f.place);
                let own = || interface.discipline.as_ref().and_then(|q| option(&q.options));
                let queues = || interface.classes.iter().filter_map(|c| c.queue.as_ref());
                added
                    .or_else(own)
                    .or_else(|| queues().find_map(|q| option(&q.options)))
                    .or_else(|| queues().find(|q| q.name == error.found).map(|q| q.place))
                    .or_else(|| interface.discipline.as_ref().map(|q| q.place))
                    .unwrap_or(interface.place)
            }
        };
        let (message, help) = hooks::refusal(error);
        self.refuse(place, message, help)
    }

    pub(crate) fn warnings(&self, link: Link, room: Room) -> Vec<Diagnostic> {
        let mut said: Vec<Diagnostic> = self.short_of_room(room).into_iter().collect();
        if let Some(rate) = self.interface.bandwidth.filter(|r| *r != link.rate) {
            let message = format!(
                "interface `{}` says {rate} bit/s, and the link has {}",
                self.interface.name, link.rate
            );
            let help = "shares in percent are parts of the link";
            said.push(
                self.plan
                    .source
                    .diagnostic(Severity::Warning, Trouble::new(self.interface.place, message, help)),
            );
        }
        if self.entrance.is_none() && self.other_entrances().nth(1).is_some() {
            let mut names: Vec<String> =
                self.other_entrances().take(MOST_NAMED).map(|i| format!("`{}`", i.name)).collect();
            if self.other_entrances().nth(MOST_NAMED).is_some() {
                names.push("others".to_string());
            }
            let message = format!(
                "conditioners of {} do not run at the egress of `{}`: by which of them a packet came is not said",
                names.join(" and "),
                self.interface.name
            );
            let help = "pair the interfaces by `attach bridge PEER`, or keep one entrance in the file";
            let trouble = Trouble::new(self.interface.place, message, help);
            said.push(self.plan.source.diagnostic(Severity::Warning, trouble));
        }
        said
    }
}

/// An action as the meters take it.
fn action(plan: &Action) -> meter::Action {
    match plan {
        Action::Pass => meter::Action::Pass,
        Action::Drop => meter::Action::Drop,
        Action::Mark(byte) => meter::Action::Mark(Dscp::of_tos(*byte)),
        Action::Conditioner(name) => meter::Action::Conditioner(name.clone()),
        Action::Meter { meter, actions } => {
            meter::Action::Meter { meter: *meter, actions: actions.iter().map(action).collect() }
        }
    }
}
