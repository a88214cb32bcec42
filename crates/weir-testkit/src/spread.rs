//! A tree that is spread over parts, all run here: what the laws of `weir_core::spread` are held against.
//!
//! `Shared` is one part's door to the link's credit. `register` adds a discipline whose classes are the parts
//! of a tree, and `wrap` cuts a configuration for it, so that the conformance suite runs through a spread port.

use crate::hostile;
use std::sync::{Arc, Mutex, PoisonError};
use weir_core::packet::PacketId;
use weir_core::queue::{
    Backlog, Broken, Cx, Discipline, DropReason, Link, Next, ParamError, Params, Routes, Verdict, Visit, Wait,
};
use weir_core::sched::{Builder, ClassConfig, Classes, Entry, Node, Registry};
use weir_core::spread::{Ask, Credit, Lend, Loan, Part, cut};
use weir_core::units::Instant;

/// The name that `register` adds.
pub const NAME: &str = "test-spread";

/// The credit of a link, for one part of those that share it.
#[derive(Clone)]
pub struct Shared {
    credit: Arc<Mutex<Credit>>,
    /// Which part it is.
    pub part: usize,
}

impl Shared {
    /// The doors of so many parts to the credit of `link`.
    pub fn new(link: &Link, parts: usize, quantum_bytes: u64, depth_bytes: u64) -> Vec<Shared> {
        let credit = Arc::new(Mutex::new(Credit::new(link, parts, quantum_bytes, depth_bytes)));
        (0..parts).map(|part| Shared { credit: credit.clone(), part }).collect()
    }
}

impl Lend for Shared {
    fn ask(&mut self, now: Instant, ask: Ask) -> Loan {
        self.credit.lock().unwrap_or_else(PoisonError::into_inner).ask(now, self.part, ask)
    }
    fn give_back(&mut self, now: Instant, bytes: u64) {
        self.credit.lock().unwrap_or_else(PoisonError::into_inner).give_back(now, self.part, bytes);
    }
}

/// Adds the discipline to `registry`.
pub fn register(registry: &mut Registry) {
    registry.register(Entry {
        name: NAME,
        source: "//! For tests: the parts of a tree, as its classes.",
        classes: Classes::Flat,
        work_conserving: false,
        build: Some(build),
        ..Entry::PLAIN
    });
}

/// A configuration of `NAME` whose classes are the parts of `root`.
///
/// # Errors
/// Why `root` cannot be cut.
pub fn wrap(registry: &Registry, root: &Node, link: Link, parts: usize) -> Result<Node, ParamError> {
    let part = |(number, node)| ClassConfig {
        name: format!("part{number}"),
        queue: Some(node),
        ..ClassConfig::default()
    };
    let plans = cut(registry, root, link, parts)?;
    let classes = plans.into_iter().map(|plan| plan.node).enumerate().map(part).collect();
    Ok(Node { discipline: NAME.into(), params: Params::new(), classes })
}

fn build(node: &Node, builder: &mut Builder<'_>) -> Result<Box<dyn Discipline>, ParamError> {
    let mut registry = Registry::builtin();
    hostile::register(&mut registry);
    let link = builder.link;
    let (mut parts, mut ranges) = (Vec::new(), Vec::new());
    for (index, door) in Shared::new(&link, node.classes.len(), 0, 0).into_iter().enumerate() {
        let queue = node.classes[index].queue.as_ref();
        let Some(queue) = queue else {
            return Err(ParamError::new(&node.classes[index].name, "queue", "none", "a part of a tree"));
        };
        let plan = cut(&registry, queue, link, 1)?.remove(0);
        let first = builder.next_leaf();
        let tree = builder.child(node, index, link.rate, 0)?;
        ranges.push(first..builder.next_leaf());
        parts.push(Part::new(tree, first, &plan, &link, 0, Box::new(door)));
    }
    Ok(Box::new(Spread { parts, routes: Routes::new(&ranges) }))
}

/// Parts on one core. Each has its own order and its own credit; the first that may send does.
struct Spread {
    parts: Vec<Part>,
    routes: Routes,
}

impl Discipline for Spread {
    fn enqueue(&mut self, cx: &mut Cx, id: PacketId) -> Verdict {
        match self.routes.child(cx.packets.get(&id).leaf) {
            Some(part) => self.parts[part].enqueue(cx, id),
            None => {
                cx.broken(NAME, "a packet came for a leaf that is not below");
                cx.drop(id, DropReason::Reconfigure);
                Verdict::Dropped
            }
        }
    }
    fn dequeue(&mut self, cx: &mut Cx) -> Next {
        // What one part asks for moves the turns of others, so all are asked until that has settled.
        let (mut told, mut settled) = (None, 0);
        loop {
            let mut soonest = Wait::Idle;
            for part in &mut self.parts {
                match part.dequeue(cx) {
                    Next::Packet(id) => return Next::Packet(id),
                    next => soonest = soonest.min(next.wait()),
                }
                part.forget_turn();
            }
            // What one gives back may be lent to another that was asked before it.
            settled = if told.replace(soonest) == Some(soonest) { settled + 1 } else { 0 };
            if settled > self.parts.len() {
                return soonest.into();
            }
        }
    }
    fn backlog(&self) -> Backlog {
        self.parts.iter().fold(Backlog::default(), |sum, part| sum + part.backlog())
    }
    fn flush(&mut self, cx: &mut Cx, reason: DropReason) {
        self.parts.iter_mut().for_each(|part| part.flush(cx, reason));
    }
    fn reconfigure(&mut self, cx: &mut Cx, class: &str, params: &Params) -> Result<(), ParamError> {
        for part in &mut self.parts {
            match part.reconfigure(cx, class, params) {
                Err(error) if error.field == "class" => {}
                known => return known,
            }
        }
        Err(ParamError::new(class, "class", class, "a class of this interface"))
    }
    fn visit_stats(&self, visit: &mut dyn Visit) {
        self.parts.iter().for_each(|part| part.visit_stats(visit));
    }
    fn check(&self, cx: &Cx) -> Result<(), Broken> {
        self.parts.iter().try_for_each(|part| part.check(cx))
    }
    fn on_sent(&mut self, cx: &mut Cx, id: &PacketId, at: Instant) {
        if let Some(part) = self.routes.child(cx.packets.get(id).leaf) {
            self.parts[part].on_sent(cx, id, at);
        }
    }
}
