//! For tests of disciplines and AQMs: a tree with its context, driven by hand.
//!
//! [`Bench`] offers packets one by one, serves one when it is told to, and collects what is dropped;
//! time is what the test sets. A failed check panics, as tests want it.
//!
//! ```
//! use weir_core::queue::Value;
//! use weir_core::sched::testing::{Bench, class, node};
//!
//! let mut priq = node("priq", &[]);
//! priq.classes.push(class("low", &[("default", Value::Flag)]));
//! priq.classes.push(class("high", &[("priority", Value::Count(1))]));
//! let mut bench = Bench::new(&priq, 1);
//! bench.offer(1000, |packet| packet.leaf = 0);
//! bench.offer(200, |packet| packet.leaf = 1);
//! assert_eq!(bench.serve().map(|packet| packet.len), Some(200));
//! bench.check();
//! ```

use super::{ClassConfig, Node, Registry, Tree};
use crate::packet::{FrameRef, Meta};
use crate::queue::{Cx, Discipline, DropReason, Link, Next, Params, Value, Verdict, Visit};
use crate::units::{Instant, Rate};
use alloc::vec::Vec;

/// A tree of disciplines, driven by hand.
pub struct Bench {
    /// Its context: `cx.now` is the time of the next call.
    pub cx: Cx,
    /// The tree.
    pub tree: Tree,
    offered: u32,
    /// What was dropped, in order, and why.
    pub dropped: Vec<(Meta, DropReason)>,
}

/// The first value of that name among the statistics.
///
/// # Panics
/// If there is none.
pub fn stat(discipline: &dyn Discipline, name: &'static str) -> i64 {
    struct Find(&'static str, Option<i64>);
    impl Visit for Find {
        fn class(&mut self, _: &str, _: u32) {}
        fn value(&mut self, name: &'static str, _: &'static str, value: i64) {
            if name == self.0 {
                self.1.get_or_insert(value);
            }
        }
    }
    let mut find = Find(name, None);
    discipline.visit_stats(&mut find);
    find.1.expect("a value of that name")
}

/// A node without classes.
pub fn node(discipline: &str, params: &[(&'static str, Value)]) -> Node {
    let params = params.iter().fold(Params::new(), |p, (name, value)| p.with(name, value.clone()));
    Node { discipline: discipline.into(), params, classes: Vec::new() }
}

/// A class without a parent.
pub fn class(name: &str, params: &[(&'static str, Value)]) -> ClassConfig {
    let params = params.iter().fold(Params::new(), |p, (name, value)| p.with(name, value.clone()));
    ClassConfig { name: name.into(), parent: None, params, queue: None }
}

impl Bench {
    /// The tree of `node` over 10 Mbit/s without overhead.
    pub fn new(node: &Node, seed: u64) -> Self {
        Bench::over(node, Rate::from_mbps(10), seed)
    }
    /// The tree of `node` over a link of `rate`.
    pub fn over(node: &Node, rate: Rate, seed: u64) -> Self {
        Bench::of(&Registry::builtin(), node, rate, seed)
    }
    /// The same, of what a registry knows.
    pub fn of(registry: &Registry, node: &Node, rate: Rate, seed: u64) -> Self {
        let link = Link::new(rate, 0, 1514);
        let tree = registry.build(node, link).expect("a valid configuration");
        Bench { cx: Cx::new(100_000, link, seed), tree, offered: 0, dropped: Vec::new() }
    }
    /// Offers a packet of `len` bytes after `change`; `frame` counts the packets offered.
    pub fn offer(&mut self, len: u32, change: impl FnOnce(&mut Meta)) -> Verdict {
        let mut meta = Meta::new(len, self.cx.now, FrameRef(self.offered));
        self.offered += 1;
        change(&mut meta);
        let id = self.cx.packets.insert(meta).expect("the table is large enough");
        let verdict = self.tree.discipline.enqueue(&mut self.cx, id);
        self.collect();
        verdict
    }
    /// One dequeue; the packet's row if one goes.
    pub fn serve(&mut self) -> Option<Meta> {
        let next = self.tree.discipline.dequeue(&mut self.cx);
        self.collect();
        let Next::Packet(id) = next else { return None };
        let meta = self.cx.packets.get(&id).clone();
        self.cx.packets.remove(id);
        Some(meta)
    }
    /// Lets the time of `len` bytes on the link pass, rounded up.
    pub fn pass(&mut self, len: u32) {
        let time = self.cx.link.time_for(len).ceil().as_nanos();
        self.cx.now = Instant::from_nanos(self.cx.now.as_nanos() + time);
    }
    /// True if all is sound and every packet accounted for.
    pub fn check(&self) {
        self.tree.discipline.check(&self.cx).expect("sound");
        assert_eq!(u64::from(self.cx.packets.live()), self.tree.discipline.backlog().packets);
    }
    fn collect(&mut self) {
        while let Some((id, reason)) = self.cx.next_dropped() {
            self.dropped.push((self.cx.packets.get(&id).clone(), reason));
            self.cx.packets.remove(id);
        }
    }
}
