//! LQF: longest queue first, so the class with the most bytes waiting sends.
//!
//! Principle: whoever is furthest behind goes next, so no queue grows away from the others.
//! Paper: McKeown, "Scheduling algorithms for input-queued cell switches", 1995 (LQF).
//! Cost: a scan of the classes per packet.
//! Guarantees: work conserving (the conformance suite); no share is promised.
//! Parameters: class `default`, `qlimit` (packets, 50).

extern crate alloc;

pub mod choke;
pub mod edf;

use weir_core::packet::PacketId;
use weir_core::queue::{
    Backlog, Broken, Child, Cx, Discipline, DropReason, Head, Kind, Next, ParamError, ParamSpec, Params,
    Routes, Scope, Verdict, Visit, Wait, params,
};
use weir_core::sched::{Builder, Classes, Entry, Node};
use weir_core::units::Instant;

/// The line in the registry.
pub const ENTRY: Entry = Entry {
    name: "lqf",
    source: include_str!("lib.rs"),
    params: &[
        &[ParamSpec::class("default", Kind::Flag, "", "Takes what no filter matches.")],
        weir_core::aqm::QLIMIT_50,
    ],
    classes: Classes::Flat,
    build: Some(build),
    ..Entry::PLAIN
};

fn build(node: &Node, builder: &mut Builder<'_>) -> Result<Box<dyn Discipline>, ParamError> {
    let (mut classes, mut ranges) = (Vec::new(), Vec::new());
    for (index, class) in node.classes.iter().enumerate() {
        let first = builder.next_leaf();
        let queue = builder.child(node, index, builder.link.rate, 50)?;
        ranges.push(first..builder.next_leaf());
        classes.push((class.name.clone(), queue));
    }
    Ok(Box::new(LongestFirst { classes, routes: Routes::new(&ranges) }))
}

struct LongestFirst {
    classes: Vec<(String, Child)>,
    routes: Routes,
}

impl Discipline for LongestFirst {
    fn enqueue(&mut self, cx: &mut Cx, id: PacketId) -> Verdict {
        // The port sends only what lies below. Were it not so, nobody would own the packet.
        let Some(class) = self.routes.child(cx.packets.get(&id).leaf) else {
            cx.broken("lqf", "a packet came for a leaf that is not below");
            cx.drop(id, DropReason::Reconfigure);
            return Verdict::Dropped;
        };
        self.classes[class].1.enqueue(cx, id)
    }
    fn dequeue(&mut self, cx: &mut Cx) -> Next {
        // A class whose queue is a discipline of its own may have packets and not give one yet:
        // then the next longest has its turn, and the soonest wait of all is when to come back.
        let (mut longest, mut wait) = (None, Wait::Idle);
        for (index, (_, queue)) in self.classes.iter_mut().enumerate() {
            match queue.head(cx) {
                Head::Packet { .. } => longest = longest.max(Some((queue.backlog().bytes, index))),
                waiting => wait = wait.min(waiting.wait()),
            }
        }
        match longest {
            Some((_, index)) => self.classes[index].1.take(cx),
            None => wait.into(),
        }
    }
    fn backlog(&self) -> Backlog {
        self.classes.iter().fold(Backlog::default(), |sum, (_, queue)| sum + queue.backlog())
    }
    fn flush(&mut self, cx: &mut Cx, reason: DropReason) {
        self.classes.iter_mut().for_each(|(_, queue)| queue.flush(cx, reason));
    }
    fn reconfigure(&mut self, cx: &mut Cx, class: &str, params: &Params) -> Result<(), ParamError> {
        if class.is_empty() {
            return params::accept(ENTRY.params, Scope::Discipline, "", params);
        }
        if let Some((_, queue)) = self.classes.iter_mut().find(|(name, _)| name == class) {
            return queue.reconfigure_queue(cx, class, params, ENTRY.params);
        }
        Child::reconfigure_one_of(self.classes.iter_mut().map(|(_, queue)| queue), cx, class, params)
    }
    fn visit_stats(&self, visit: &mut dyn Visit) {
        for (name, queue) in &self.classes {
            visit.class(name, 0);
            queue.visit_stats(visit);
        }
    }
    fn check(&self, cx: &Cx) -> Result<(), Broken> {
        self.classes.iter().try_for_each(|(_, queue)| queue.check(cx))
    }
    fn on_sent(&mut self, cx: &mut Cx, id: &PacketId, at: Instant) {
        if let Some(class) = self.routes.child(cx.packets.get(id).leaf) {
            self.classes[class].1.on_sent(cx, id, at);
        }
    }
}
