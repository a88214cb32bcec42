//! What a discipline's file hands over, the registry of disciplines and AQMs, and how a tree of
//! them is built from a configuration.

use super::hooks::{Check, Guarantees, Lower};
use super::node::Node;
use crate::aqm::params::{USUAL_QLIMIT, queue_limit};
use crate::aqm::{AqmEntry, QUEUE_PARAMS, QueueConfig, TailDrop};
use crate::queue::params::default_of;
use crate::queue::{
    Alias, Child, Discipline, Kind, Leaf, Link, ParamError, ParamSpec, Params, Scope, Value, params,
};
use crate::spread::Cut;
use crate::units::Rate;
use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Builds a discipline from its node, its classes in the order of the file.
pub type Build = fn(&Node, &mut Builder<'_>) -> Result<Box<dyn Discipline>, ParamError>;

/// What classes a discipline has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Classes {
    /// None: it takes every packet that comes.
    None,
    /// Classes side by side.
    Flat,
    /// Classes with parents, under one root class that the configuration names (parent `NULL`);
    /// every class has a queue of its own, also one with children.
    RootedTree,
    /// Classes with parents, under a root named `root` that is made by itself; only classes
    /// without children have queues.
    Tree,
}

/// One discipline: what it is called, what it takes, how it is built.
#[derive(Clone, Copy)]
pub struct Entry {
    /// The word in altq.conf.
    pub name: &'static str,
    /// Other words for it.
    pub aliases: &'static [Alias],
    /// The text of its source file, whose head is its manual page.
    pub source: &'static str,
    /// Its parameters, in groups.
    pub params: &'static [&'static [ParamSpec]],
    /// Its classes.
    pub classes: Classes,
    /// True if it never lets a packet wait by itself: `dequeue` answers `At` or `Held` only while
    /// every child that has packets does. The conformance suite holds it to that.
    pub work_conserving: bool,
    /// True if its classes have queues with an AQM: they take `QUEUE_PARAMS` and the words of
    /// every AQM in the registry.
    pub class_queues: bool,
    /// How to build it; `None` for a name that is known and not built yet.
    pub build: Option<Build>,
    /// What it says against a configuration. `weir check`, and everything that reads a file, asks
    /// it; `Registry::build` and `Registry::check` do not. What must never run, `build` refuses too.
    pub check: Option<Check>,
    /// What it makes of its configuration before it is built: classes and filters of its own.
    pub lower: Option<Lower>,
    /// What it promises its classes, for `weir check` to print.
    pub guarantees: Option<Guarantees>,
    /// Whether a tree with it at the root can be spread over cores.
    pub cut: Cut,
}

impl Entry {
    /// What most entries say: no other names, no parameters, no classes.
    pub const PLAIN: Entry = Entry {
        name: "",
        aliases: &[],
        source: "",
        params: &[],
        classes: Classes::None,
        work_conserving: true,
        class_queues: false,
        build: None,
        check: None,
        lower: None,
        guarantees: None,
        cut: Cut::Whole("it does not say what a class has of the link"),
    };
    /// The manual page: the doc comment at the head of the source file.
    pub fn manual(&self) -> String {
        let mut text = String::new();
        for line in self.source.lines().map_while(|l| l.strip_prefix("//!")) {
            text.push_str(line.strip_prefix(' ').unwrap_or(line));
            text.push('\n');
        }
        text
    }
    /// The first sentence of the manual page.
    pub fn summary(&self) -> &'static str {
        let first = self.source.lines().next().unwrap_or("");
        first.trim_start_matches("//!").trim()
    }
    /// Its own parameter of that name. `Registry::param` knows the words of AQMs too.
    pub fn param(&self, scope: Scope, name: &str) -> Option<&'static ParamSpec> {
        self.params().find(|p| p.scope == scope && p.name == name)
    }
    /// Its own parameters. `Registry::params` gives the words of AQMs too.
    pub fn params(&self) -> impl Iterator<Item = &'static ParamSpec> + use<> {
        self.params.iter().flat_map(|group| group.iter())
    }
}

/// The disciplines and AQMs that a program knows.
#[derive(Clone, Default)]
pub struct Registry {
    disciplines: Vec<Entry>,
    aqms: Vec<AqmEntry>,
}

impl Registry {
    /// One that knows nothing yet.
    pub const fn new() -> Self {
        Registry { disciplines: Vec::new(), aqms: Vec::new() }
    }
    /// Adds a discipline, or replaces the one of the same name.
    pub fn register(&mut self, entry: Entry) {
        match self.disciplines.iter_mut().find(|e| e.name == entry.name) {
            Some(slot) => *slot = entry,
            None => self.disciplines.push(entry),
        }
    }
    /// Adds an AQM for queues, or replaces the one of the same name.
    pub(super) fn add_aqm(&mut self, entry: AqmEntry) {
        match self.aqms.iter_mut().find(|e| e.name == entry.name) {
            Some(slot) => *slot = entry,
            None => self.aqms.push(entry),
        }
    }
    /// The discipline of that name or alias.
    pub fn find(&self, name: &str) -> Option<&Entry> {
        self.disciplines.iter().find(|e| e.name == name || e.aliases.iter().any(|a| a.name == name))
    }
    /// All disciplines.
    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.disciplines.iter()
    }
    /// The AQM of that name.
    pub fn find_aqm(&self, name: &str) -> Option<&AqmEntry> {
        self.aqms.iter().find(|e| e.name == name || e.aliases.iter().any(|a| a.name == name))
    }
    /// All AQMs.
    pub fn aqms(&self) -> impl Iterator<Item = &AqmEntry> {
        self.aqms.iter()
    }
    /// All that `entry` takes: its own parameters, and for classes with queues what every queue
    /// takes and the words of each AQM, every word once.
    pub fn params(&self, entry: &Entry) -> impl Iterator<Item = &'static ParamSpec> + use<> {
        let mut all: Vec<&'static ParamSpec> = entry.params().collect();
        if entry.class_queues {
            let of_aqms = self.aqms.iter().flat_map(AqmEntry::class_params);
            for spec in QUEUE_PARAMS.iter().chain(of_aqms) {
                if !all.iter().any(|p| p.scope == spec.scope && p.name == spec.name) {
                    all.push(spec);
                }
            }
        }
        all.into_iter()
    }
    /// The parameter of `entry` of that name, among all of `params`.
    pub fn param(&self, entry: &Entry, scope: Scope, name: &str) -> Option<&'static ParamSpec> {
        let of_queues = || QUEUE_PARAMS.iter().chain(self.aqms.iter().flat_map(AqmEntry::class_params));
        let own = entry.param(scope, name);
        own.or_else(|| of_queues().find(|p| entry.class_queues && p.scope == scope && p.name == name))
    }
    /// True for a word of a class that speaks of its queue, not of its share.
    pub fn is_about_queue(&self, word: &str) -> bool {
        let own = word == "qlimit" || QUEUE_PARAMS.iter().any(|p| p.name == word);
        own || self.aqms.iter().any(|aqm| aqm.class_param(word).is_some())
    }
    /// The AQM that a class's parameters ask for; `None` is tail drop.
    ///
    /// # Errors
    /// `ParamError` for words that contradict each other, and for a number that this AQM does not take: several may have
    /// a word, each with bounds of its own.
    pub fn aqm_of_class(&self, class: &str, params: &Params) -> Result<Option<&AqmEntry>, ParamError> {
        let aqm = self.aqm_asked_for(class, params)?;
        for (name, value) in params.iter() {
            let kind = aqm.and_then(|aqm| aqm.class_param(name)).map(|spec| spec.kind);
            if let (Some(Kind::Count { min, max }), Value::Count(number)) = (kind, value)
                && !(min..=max).contains(number)
            {
                return Err(ParamError::new(
                    class,
                    name,
                    number,
                    format!("a whole number from {min} to {max}"),
                ));
            }
        }
        Ok(aqm)
    }
    fn aqm_asked_for(&self, class: &str, params: &Params) -> Result<Option<&AqmEntry>, ParamError> {
        let refuse = |word: &str, expected: String| Err(ParamError::new(class, word, word, expected));
        let mut named = self.aqms.iter().filter(|a| params.has(a.name) && a.is_for_classes());
        let first = named.next();
        if let (Some(one), Some(other)) = (first, named.next()) {
            return refuse(other.name, format!("either {} or {}, not both", one.name, other.name));
        }
        let hinted = self.aqms.iter().flat_map(|a| a.asked_by.iter().map(move |word| (a, *word)));
        for (aqm, word) in hinted.filter(|(_, word)| params.has(word)) {
            match first {
                Some(named) if named.class_param(word).is_none() => {
                    let expected = format!("{} with it: {} does not know the word", aqm.name, named.name);
                    return refuse(word, expected);
                }
                None if params.has("drop-head") => {
                    let expected = format!("either drop-head or {word}, which means {}, not both", aqm.name);
                    return refuse("drop-head", expected);
                }
                None => return Ok(Some(aqm)),
                Some(_) => {}
            }
        }
        match first {
            Some(aqm) if params.has("drop-head") => {
                refuse("drop-head", format!("either {} or drop-head, not both", aqm.name))
            }
            first => Ok(first),
        }
    }
    /// The queue of a class, with the AQM that its parameters ask for.
    fn class_queue(&self, queue: &QueueConfig<'_>) -> Result<Leaf, ParamError> {
        let QueueConfig { class, params, .. } = *queue;
        match self.aqm_of_class(class, params)? {
            Some(aqm) => {
                let limit = if params.has("maxdelay") { queue.limit } else { aqm.usual_limit };
                managed_queue(aqm, &QueueConfig { limit, ..*queue })
            }
            None => plain_queue(queue),
        }
    }
    /// Builds the tree of `root` for a port with `link`, as it stands: neither `Entry::check` nor
    /// `Entry::lower` is asked. Who reads a file asks both before; a node made by hand is held to
    /// what each `Entry::build` refuses.
    ///
    /// # Errors
    /// `ParamError` for an unknown or unbuilt discipline, or what a discipline refuses.
    pub fn build(&self, root: &Node, link: Link) -> Result<Tree, ParamError> {
        Ok(self.assemble(root, link, false)?.tree)
    }
    /// The tree, and which flow queues it has.
    pub(super) fn assemble(
        &self,
        root: &Node,
        link: Link,
        only_check: bool,
    ) -> Result<Assembled, ParamError> {
        let mut builder = Builder {
            registry: self,
            link,
            leaves: Vec::new(),
            default_leaf: None,
            parents: Vec::new(),
            class: String::new(),
            limit: u32::MAX,
            flow_queues: 0,
            flow_nodes: FlowNodes::default(),
            only_check,
        };
        let discipline = builder.node(root, "all")?;
        if builder.leaves.is_empty() {
            return Err(ParamError::new("", &root.discipline, "no class", "at least one class"));
        }
        let Builder { mut leaves, default_leaf, flow_queues, flow_nodes, .. } = builder;
        leaves.shrink_to_fit();
        Ok(Assembled { tree: Tree { discipline, leaves, default_leaf }, flow_queues, flow_nodes })
    }
}

/// One leaf of a tree: a place where packets wait.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeafInfo {
    /// The class; `all` for a discipline without classes.
    pub name: String,
    /// False for the own queue of a class that has children (CBQ).
    pub terminal: bool,
    /// Most packets that may wait in it; `u32::MAX` where it says nothing about packets.
    pub limit: u32,
}

/// A built tree.
pub struct Tree {
    /// The root.
    pub discipline: Box<dyn Discipline>,
    /// What `Meta::leaf` counts.
    pub leaves: Vec<LeafInfo>,
    /// The leaf for packets that match no filter; `None` where the configuration names none.
    pub default_leaf: Option<u32>,
}

impl Tree {
    /// The leaf of that name.
    pub fn leaf(&self, name: &str) -> Option<u32> {
        self.leaves.iter().position(|l| l.name == name).map(|i| i as u32)
    }
}

/// What a discipline builds its children with. Leaves are numbered in the order of the calls to
/// `child`, so a discipline calls it once for each class, in the order of the file.
pub struct Builder<'a> {
    registry: &'a Registry,
    /// The link below the port.
    pub link: Link,
    leaves: Vec<LeafInfo>,
    default_leaf: Option<u32>,
    /// Of the node that is being built: whether each class has classes below it.
    parents: Vec<bool>,
    /// The class whose queue that node is; empty for the outermost.
    class: String,
    /// Most packets in the node that is being built, by a limit of its own.
    limit: u32,
    /// Flow queues so far, and the disciplines that have them, where the tree is not to run.
    flow_queues: u64,
    flow_nodes: FlowNodes,
    /// The tree is not to run: one flow queue stands for all of a discipline.
    only_check: bool,
}

/// The disciplines of a tree that keep flow queues: how many are configured alike, and one of them.
#[derive(Default)]
pub(super) struct FlowNodes(pub BTreeMap<String, (u64, Node)>);

impl FlowNodes {
    /// Notes a node without classes.
    pub fn note(&mut self, node: &Node) {
        let kind = format!("{} {:?}", node.discipline, node.params);
        self.0.entry(kind).or_insert_with(|| (0, node.clone())).0 += 1;
    }
}

/// What `Registry::assemble` makes.
pub(super) struct Assembled {
    pub tree: Tree,
    pub flow_queues: u64,
    pub flow_nodes: FlowNodes,
}

/// Flow queues that all disciplines of a tree have together, at most: 48 to 112 bytes each. 100,000 subscribers
/// with 64 queues each are below it.
pub const MAX_FLOW_QUEUES: u64 = 1 << 23;

impl Builder<'_> {
    /// The number that the next leaf will get.
    pub fn next_leaf(&self) -> u32 {
        self.leaves.len() as u32
    }
    /// The parameters to build with for a discipline that keeps a queue for each of `field` flows, or
    /// for the default in `specs` where the parameters do not say.
    ///
    /// # Errors
    /// More than [`MAX_FLOW_QUEUES`] in the whole tree.
    pub fn flow_queues(
        &mut self,
        params: &Params,
        specs: &[ParamSpec],
        field: &'static str,
    ) -> Result<Params, ParamError> {
        let count = params.count(field).unwrap_or(default_of(specs, field));
        self.flow_queues = self.flow_queues.saturating_add(count);
        if self.flow_queues > MAX_FLOW_QUEUES {
            let expected = format!(
                "at most {MAX_FLOW_QUEUES} flow queues in all disciplines of an interface together, and with these there are {}: write a smaller `{field}` for each",
                self.flow_queues
            );
            return Err(ParamError::new(&self.class, field, count, expected));
        }
        let made = if self.only_check { 1 } else { count };
        Ok(params.clone().with(field, Value::Count(made)))
    }
    /// The queue of a class: its own discipline, or a leaf with the AQM that its parameters ask
    /// for. `rate` is what the class may expect, for AQMs that think in packet times;
    /// `limit` the queue length in packets where `qlimit` says nothing.
    ///
    /// # Errors
    /// What the AQM or the inner discipline refuses.
    pub fn child(&mut self, node: &Node, index: usize, rate: Rate, limit: u32) -> Result<Child, ParamError> {
        let class = &node.classes[index];
        let first = self.next_leaf();
        let above = self.default_leaf.take();
        let child = match &class.queue {
            Some(inner) => Child::inner(self.node(inner, &class.name)?),
            None => {
                let terminal = !self.parents[index];
                let queue = QueueConfig {
                    class: &class.name,
                    params: &class.params,
                    rate,
                    limit,
                    link: &self.link,
                    in_class: true,
                };
                let leaf = self.registry.class_queue(&queue)?;
                let limit = leaf.limit().min(self.limit);
                self.leaves.push(LeafInfo { name: class.name.clone(), terminal, limit });
                Child::leaf(leaf)
            }
        };
        let below = self.default_leaf.take().or((first < self.next_leaf()).then_some(first));
        self.default_leaf = if class.params.has("default") { below } else { above };
        Ok(child)
    }
    /// The queue of a discipline that is an AQM by itself.
    ///
    /// # Errors
    /// What the AQM refuses; or a name that is none.
    pub(super) fn own_queue(&mut self, node: &Node) -> Result<Leaf, ParamError> {
        let queue = QueueConfig {
            class: "",
            params: &node.params,
            rate: self.link.rate,
            limit: USUAL_QLIMIT,
            link: &self.link,
            in_class: false,
        };
        let leaf = match self.registry.find_aqm(&node.discipline) {
            Some(aqm) => managed_queue(aqm, &QueueConfig { limit: aqm.usual_limit, ..queue }),
            None => plain_queue(&queue),
        }?;
        if let Some(only) = self.leaves.last_mut() {
            only.limit = leaf.limit();
        }
        Ok(leaf)
    }
    /// The one leaf of a discipline without classes, to be called once.
    pub fn only_leaf(&mut self, name: &str) {
        self.default_leaf = Some(self.next_leaf());
        self.leaves.push(LeafInfo { name: name.to_owned(), terminal: true, limit: self.limit });
    }
    fn node(&mut self, node: &Node, name: &str) -> Result<Box<dyn Discipline>, ParamError> {
        let Some(entry) = self.registry.find(&node.discipline) else {
            return Err(ParamError::new(
                "",
                "discipline",
                &node.discipline,
                "a name that `weir disciplines` lists",
            ));
        };
        let Some(build) = entry.build else {
            return Err(ParamError::new(
                "",
                "discipline",
                entry.name,
                "a discipline that is built in: this one is read and checked, but cannot run yet",
            ));
        };
        params::accept(entry.params, Scope::Discipline, "", &node.params)?;
        for class in &node.classes {
            for (name, value) in class.params.iter() {
                match self.registry.param(entry, Scope::Class, name) {
                    Some(spec) => spec.accept(&class.name, value)?,
                    None => return Err(params::unknown(&class.name, name, entry.params, Scope::Class)),
                }
            }
        }
        let limit = own_limit(entry, &node.params).map_or(self.limit, |own| own.min(self.limit));
        let limit_around = core::mem::replace(&mut self.limit, limit);
        if entry.classes == Classes::None {
            if let Some(class) = node.classes.first() {
                return Err(ParamError::new(&class.name, "class", entry.name, "no classes: it has none"));
            }
            self.only_leaf(name);
        }
        self.leaves.reserve(node.classes.len());
        let mut parents = alloc::vec![false; node.classes.len()];
        for parent in node.classes.iter().filter_map(|c| c.parent) {
            if let Some(parent) = parents.get_mut(parent) {
                *parent = true;
            }
        }
        // The outermost discipline is nobody's queue.
        let class = if name == "all" { String::new() } else { name.to_owned() };
        let around =
            (core::mem::replace(&mut self.parents, parents), core::mem::replace(&mut self.class, class));
        let before = self.flow_queues;
        let built = build(node, self);
        if self.only_check && node.classes.is_empty() && self.flow_queues > before {
            self.flow_nodes.note(node);
        }
        self.limit = limit_around;
        (self.parents, self.class) = around;
        built
    }
}

/// Bytes of the smallest frame that there is, for a limit in bytes.
const LEAST_FRAME: u64 = 60;

/// Most packets that a discipline holds, where it has a limit of its own.
fn own_limit(entry: &Entry, params: &Params) -> Option<u32> {
    let spec = |name| entry.param(Scope::Discipline, name);
    let packets = |spec: &ParamSpec| params.count(spec.name).or_else(|| spec.default.parse().ok());
    let bytes = |spec: &'static ParamSpec| {
        let given = params.bytes(spec.name);
        given.unwrap_or_else(|| default_of(core::slice::from_ref(spec), spec.name)) / LEAST_FRAME
    };
    let most = spec("qlimit").and_then(packets).or_else(|| spec("qsize").map(bytes))?;
    Some(u32::try_from(most).unwrap_or(u32::MAX))
}

/// A queue of `aqm`; `qlimit` comes before the limit that the queue has otherwise.
fn managed_queue(aqm: &AqmEntry, queue: &QueueConfig<'_>) -> Result<Leaf, ParamError> {
    let limit = queue_limit(queue.class, queue.params)?.unwrap_or(queue.limit);
    let built = (aqm.build)(&QueueConfig { limit, ..*queue })?;
    let limit = limit.max(built.least_limit());
    Ok(Leaf::custom(limit, built).clearing_dscp(queue.params.has("cleardscp")))
}

/// A queue under tail drop.
fn plain_queue(queue: &QueueConfig<'_>) -> Result<Leaf, ParamError> {
    let limit = queue_limit(queue.class, queue.params)?.unwrap_or(queue.limit);
    let tail = TailDrop { head: queue.params.has("drop-head") };
    Ok(Leaf::custom(limit, Box::new(tail)).clearing_dscp(queue.params.has("cleardscp")))
}
