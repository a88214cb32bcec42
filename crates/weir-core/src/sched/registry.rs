//! The list of disciplines, and how a tree of them is built from a configuration.
//!
//! **To add a discipline: one file beside this one, and one line in `BUILTIN`.** From another
//! crate: `Registry::builtin()`, then `register`.

use crate::aqm;
use crate::queue::{Child, Discipline, Link, ParamError, ParamSpec, Params, Scope, params};
use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

/// Every discipline that Weir brings. One line each.
const BUILTIN: &[Entry] = &[
    super::fifo::ENTRY,
    super::cbq::ENTRY,
    super::hfsc::ENTRY,
    super::priq::ENTRY,
    super::jobs::ENTRY,
    super::wfq::ENTRY,
    super::fifo::RED,
    super::drr::ENTRY,
    super::fq_codel::ENTRY,
    super::qfq::ENTRY,
    super::dualpi2::ENTRY,
    super::fifo::RIO,
    super::fifo::BLUE,
    super::fifo::CODEL,
    super::fifo::PIE,
    super::fifo::CDNR,
];

/// Builds a discipline from its node, its classes in the order of the file.
pub type Build = fn(&Node, &mut Builder<'_>) -> Result<Box<dyn Discipline>, ParamError>;

/// Another name in altq.conf, and the flag that it implies, if any.
#[derive(Clone, Copy, Debug)]
pub struct Alias {
    /// The other name.
    pub name: &'static str,
    /// A `Kind::Flag` parameter of the discipline that it sets.
    pub implies: Option<&'static str>,
}

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
    /// How to build it; `None` for a name that is known and not built yet.
    pub build: Option<Build>,
}

impl Entry {
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
    /// The parameter of that name.
    pub fn param(&self, scope: Scope, name: &str) -> Option<&'static ParamSpec> {
        self.params().find(|p| p.scope == scope && p.name == name)
    }
    /// All parameters.
    pub fn params(&self) -> impl Iterator<Item = &'static ParamSpec> + use<> {
        self.params.iter().flat_map(|group| group.iter())
    }
}

/// The disciplines that a program knows.
#[derive(Clone)]
pub struct Registry(Vec<Entry>);

impl Registry {
    /// Weir's own.
    pub fn builtin() -> Self {
        Registry(BUILTIN.to_owned())
    }
    /// Adds one, or replaces the one of the same name.
    pub fn register(&mut self, entry: Entry) {
        match self.0.iter_mut().find(|e| e.name == entry.name) {
            Some(slot) => *slot = entry,
            None => self.0.push(entry),
        }
    }
    /// The discipline of that name or alias.
    pub fn find(&self, name: &str) -> Option<&Entry> {
        self.0.iter().find(|e| e.name == name || e.aliases.iter().any(|a| a.name == name))
    }
    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.0.iter()
    }
    /// Builds the tree of `root` for a port with `link`.
    ///
    /// # Errors
    /// `ParamError` for an unknown or unbuilt discipline, or what a discipline refuses.
    pub fn build(&self, root: &Node, link: Link) -> Result<Tree, ParamError> {
        let mut builder =
            Builder { registry: self, link, leaves: Vec::new(), default_leaf: None, parents: Vec::new() };
        let discipline = builder.node(root, "all")?;
        if builder.leaves.is_empty() {
            return Err(ParamError::new("", &root.discipline, "no class", "at least one class"));
        }
        let default_leaf = builder.default_leaf;
        Ok(Tree { discipline, leaves: builder.leaves, default_leaf })
    }
}

/// A discipline in a configuration, with its classes.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Node {
    /// Its name in the registry.
    pub discipline: String,
    /// Its parameters (`Scope::Discipline`).
    pub params: Params,
    /// Its classes, in the order of the file; parents before children.
    pub classes: Vec<Class>,
}

/// A class in a configuration.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Class {
    /// Its name, unique in the interface.
    pub name: String,
    /// Index of its parent in the same node's `classes`; `None` at the top.
    pub parent: Option<usize>,
    /// Its parameters (`Scope::Class`).
    pub params: Params,
    /// What its queue is, where that is a discipline of its own.
    pub queue: Option<Node>,
}

/// One leaf of a tree: a place where packets wait.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeafInfo {
    /// The class; `all` for a discipline without classes.
    pub name: String,
    /// False for the own queue of a class that has children (CBQ).
    pub terminal: bool,
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
}

impl Builder<'_> {
    /// The number that the next leaf will get.
    pub fn next_leaf(&self) -> u32 {
        self.leaves.len() as u32
    }
    /// The queue of a class: its own discipline, or a leaf with the AQM that its parameters ask
    /// for. `rate` is what the class may expect, for AQMs that think in packet times;
    /// `limit` the queue length in packets where `qlimit` says nothing.
    ///
    /// # Errors
    /// What the AQM or the inner discipline refuses.
    pub fn child(
        &mut self,
        node: &Node,
        index: usize,
        rate: crate::units::Rate,
        limit: u32,
    ) -> Result<Child, ParamError> {
        let class = &node.classes[index];
        let first = self.next_leaf();
        let above = self.default_leaf.take();
        let child = match &class.queue {
            Some(inner) => Child::inner(self.node(inner, &class.name)?),
            None => {
                let terminal = !self.parents[index];
                self.leaves.push(LeafInfo { name: class.name.clone(), terminal });
                Child::leaf(aqm::leaf(&class.name, &class.params, rate, limit, &self.link)?)
            }
        };
        let below = self.default_leaf.take().or((first < self.next_leaf()).then_some(first));
        self.default_leaf = if class.params.has("default") { below } else { above };
        Ok(child)
    }
    /// The one leaf of a discipline without classes, to be called once.
    pub fn only_leaf(&mut self, name: &str) {
        self.default_leaf = Some(self.next_leaf());
        self.leaves.push(LeafInfo { name: name.to_owned(), terminal: true });
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
            params::accept(entry.params, Scope::Class, &class.name, &class.params)?;
        }
        if entry.classes == Classes::None {
            if let Some(class) = node.classes.first() {
                return Err(ParamError::new(&class.name, "class", entry.name, "no classes: it has none"));
            }
            self.only_leaf(name);
        }
        let mut parents = alloc::vec![false; node.classes.len()];
        for parent in node.classes.iter().filter_map(|c| c.parent) {
            if let Some(parent) = parents.get_mut(parent) {
                *parent = true;
            }
        }
        let around = core::mem::replace(&mut self.parents, parents);
        let built = build(node, self);
        self.parents = around;
        built
    }
}
