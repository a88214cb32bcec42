//! PRIQ: strict priority, the highest first.
//!
//! Principle: every class has a priority of its own; a class sends only while all above it are
//! empty. A class that must not send yet (a shaped inner discipline) lets those below go
//! meanwhile, because the link must not wait.
//! Paper: ALTQ's PRIQ; as the two-queue premium server, Cho, "Two-bit differentiated services in
//! ALTQ" (section 4), after RFC 2638.
//! Where we differ, and why: the highest class is found in a bitmap, not by a scan; a class may
//! hold any discipline.
//! Cost: a bit scan per packet; 64 bytes, and as much per class, its queue included.
//! Guarantees: a packet waits for what is above it and one packet on the wire
//! (`d02_premium_waits_for_one_packet_at_most`). The lowest class starves when those above fill the
//! link (same test, reversed).
//! Parameters: class `priority` (0 to 15, default 0, unique, higher first), `qlimit` (packets,
//! 50), `default`, and an AQM (`red`, `rio`, `codel`, ...). At run time `priority` and all of the
//! queue's parameters may change.

use super::hooks::one_class_of_each_priority;
use super::node::{ClassConfig, Node};
use super::registry::{Builder, Classes, Entry};
use crate::aqm::QLIMIT_50;
use crate::aqm::params::USUAL_QLIMIT;
use crate::packet::PacketId;
use crate::queue::ParamSpec as P;
use crate::queue::params::default_of;
use crate::queue::{
    Backlog, Broken, Child, Cx, Deeper, Discipline, DropReason, Kind, Link, Next, ParamError, ParamSpec,
    Params, Routes, Scope, Verdict, Visit, Wait, params,
};
use crate::spread::{Cut, Share};
use crate::units::{Instant, Rate};
use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;

const LEVELS: usize = 16;
const PARAMS: &[ParamSpec] = &[
    P::class(
        "priority",
        Kind::Count { min: 0, max: LEVELS as u64 - 1 },
        "0",
        "Higher goes first; each class its own.",
    ),
    P::class("default", Kind::Flag, "", "Takes what no filter matches."),
];

pub(super) const ENTRY: Entry = Entry {
    name: "priq",
    source: include_str!("priq.rs"),
    params: &[PARAMS, QLIMIT_50],
    class_queues: true,
    classes: Classes::Flat,
    build: Some(build),
    check: Some(|node, _| one_class_of_each_priority(node, false)),
    cut: Cut::ByShares(shares),
    ..Entry::PLAIN
};

/// A class: a cache line.
#[repr(align(64))]
struct Level {
    queue: Child,
    name: Box<str>,
    priority: u8,
}

/// A cache line too, because there may be many thousands of these below one scheduler.
#[repr(align(64))]
struct Priq {
    /// In the order of the file.
    classes: Box<[Level]>,
    /// Class at each priority.
    at: [u8; LEVELS],
    /// Bit p: the class of priority p has packets.
    active: u16,
    routes: Routes,
}

const _: () = assert!(size_of::<Level>() == 64 && size_of::<Priq>() == 64);

fn build(node: &Node, builder: &mut Builder<'_>) -> Result<Box<dyn Discipline>, ParamError> {
    let (mut classes, mut ranges) = (Vec::new(), Vec::new());
    for (index, class) in node.classes.iter().enumerate() {
        if class.parent.is_some() {
            return Err(ParamError::new(&class.name, "parent", "a class", "NULL: priq has no tree"));
        }
        let priority = free_priority(&classes, None, &class.name, &class.params)?.unwrap_or(0);
        let first = builder.next_leaf();
        let queue = builder.child(node, index, builder.link.rate, USUAL_QLIMIT)?;
        ranges.push(first..builder.next_leaf());
        classes.push(Level { queue, name: class.name.as_str().into(), priority });
    }
    let classes = classes.into_boxed_slice();
    let mut priq = Priq { classes, at: [0; LEVELS], active: 0, routes: Routes::new(&ranges) };
    priq.index();
    Ok(Box::new(priq))
}

/// Each class is a level of its own.
fn shares(node: &Node, link: &Link) -> Result<Vec<Share>, ParamError> {
    let share = |class: &ClassConfig| {
        let priority = class.params.count("priority").unwrap_or(default_of(PARAMS, "priority"));
        Share { level: priority as u8, weight: link.rate, owed: Rate::ZERO }
    };
    Ok(node.classes.iter().map(share).collect())
}

/// The priority that `params` give (the default for a new class without one), unless another class
/// has it.
fn free_priority(
    classes: &[Level],
    own: Option<usize>,
    name: &str,
    params: &Params,
) -> Result<Option<u8>, ParamError> {
    let priority = match (params.count("priority"), own) {
        (Some(n), _) => n,
        (None, Some(_)) => return Ok(None),
        (None, None) => default_of(PARAMS, "priority"),
    };
    let priority = priority as u8;
    let others = classes.iter().enumerate().filter(|&(index, _)| Some(index) != own);
    match others.map(|(_, class)| class).find(|class| class.priority == priority) {
        Some(other) => Err(ParamError::new(
            name,
            "priority",
            priority,
            format!("one of 0 to {} that is free: class {} has this one", LEVELS - 1, other.name),
        )),
        None => Ok(Some(priority)),
    }
}

impl Priq {
    /// Sets `at` and `active` from the classes.
    fn index(&mut self) {
        self.active = 0;
        for (index, class) in self.classes.iter().enumerate() {
            self.at[usize::from(class.priority)] = index as u8;
            self.active |= u16::from(!class.queue.is_empty()) << class.priority;
        }
    }
    /// The same where queues are to be asked, one after another.
    #[inline(never)]
    fn ask(&mut self, cx: &mut Cx) -> Next {
        let (mut left, mut wait) = (self.active, Wait::Idle);
        while left != 0 {
            let priority = left.ilog2();
            left &= !(1 << priority);
            let queue = &mut self.classes[usize::from(self.at[priority as usize])].queue;
            // Nobody asks these queues for their heads, so they hold no packet.
            let next = match queue.pull(cx) {
                Next::Packet(id) => {
                    if queue.is_empty() {
                        self.active &= !(1 << priority);
                    }
                    return Next::Packet(id);
                }
                next => next.wait(),
            };
            if queue.is_empty() {
                self.active &= !(1 << priority);
            }
            wait = wait.min(next);
        }
        wait.into()
    }
}

impl Discipline for Priq {
    fn enqueue(&mut self, cx: &mut Cx, id: PacketId) -> Verdict {
        let Some(index) = self.routes.child(cx.packets.get(&id).leaf) else {
            cx.broken("priq", "a packet came for a leaf that is not below");
            cx.drop(id, DropReason::Reconfigure);
            return Verdict::Dropped;
        };
        let class = &mut self.classes[index];
        let verdict = class.queue.enqueue(cx, id);
        let bit = 1 << class.priority;
        if verdict == Verdict::Queued {
            self.active |= bit;
        } else if class.queue.is_empty() {
            self.active &= !bit;
        }
        verdict
    }
    fn dequeue(&mut self, cx: &mut Cx) -> Next {
        if self.active == 0 {
            return Next::Idle;
        }
        // Most queues give what they have without being asked.
        let priority = self.active.ilog2();
        let queue = &mut self.classes[usize::from(self.at[priority as usize])].queue;
        let Some((id, _)) = queue.take_plain(&cx.packets) else { return self.ask(cx) };
        if queue.is_empty() {
            self.active &= !(1 << priority);
        }
        Next::Packet(id)
    }
    fn backlog(&self) -> Backlog {
        self.classes.iter().fold(Backlog::default(), |sum, class| sum + class.queue.backlog())
    }
    fn is_empty(&self) -> bool {
        self.active == 0
    }
    fn flush(&mut self, cx: &mut Cx, reason: DropReason) {
        for class in &mut self.classes {
            class.queue.flush(cx, reason);
        }
        self.index();
    }
    fn reconfigure(&mut self, cx: &mut Cx, class: &str, params: &Params) -> Result<(), ParamError> {
        if class.is_empty() {
            return params::accept(ENTRY.params, Scope::Discipline, "", params);
        }
        let result = match self.classes.iter().position(|level| *level.name == *class) {
            Some(index) => {
                params::accept_declared(ENTRY.params, Scope::Class, class, params)?;
                let priority = free_priority(&self.classes, Some(index), class, params)?;
                let level = &mut self.classes[index];
                let result = level.queue.reconfigure_queue(cx, class, params, ENTRY.params);
                if let (Ok(()), Some(priority)) = (&result, priority) {
                    level.priority = priority;
                }
                result
            }
            None => {
                Child::reconfigure_one_of(self.classes.iter_mut().map(|l| &mut l.queue), cx, class, params)
            }
        };
        self.index();
        result
    }
    fn visit_stats(&self, visit: &mut dyn Visit) {
        for class in &self.classes {
            if visit.wants(&class.name, 1) {
                visit.value("priority", "", i64::from(class.priority));
            }
            class.queue.visit_stats(&mut Deeper(visit));
        }
    }
    fn check(&self, cx: &Cx) -> Result<(), Broken> {
        for class in &self.classes {
            class.queue.check(cx)?;
            if class.queue.is_empty() == (self.active >> class.priority & 1 == 1) {
                return Err(Broken { discipline: "priq", what: "bitmap and queues disagree" });
            }
        }
        Ok(())
    }
    fn on_sent(&mut self, cx: &mut Cx, id: &PacketId, at: Instant) {
        if let Some(index) = self.routes.child(cx.packets.get(id).leaf) {
            self.classes[index].queue.on_sent(cx, id, at);
        }
    }
    fn hears_sent(&self) -> bool {
        self.classes.iter().any(|class| class.queue.hears_sent())
    }
    fn turns_when_empty(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::Value;
    use crate::sched::testing::{Bench, class, node};
    use std::vec;

    fn classes(priorities: &[u64]) -> Node {
        let mut node = node("priq", &[]);
        for (n, &p) in priorities.iter().enumerate() {
            node.classes.push(class(&format!("c{n}"), &[("priority", Value::Count(p))]));
        }
        node
    }

    #[test]
    fn highest_first_and_in_order_within_a_class() {
        let mut bench = Bench::new(&classes(&[3, 15, 0]), 1);
        for leaf in [0, 2, 1, 0, 1, 2] {
            bench.offer(100, |m| m.leaf = leaf);
        }
        let order: Vec<u32> = core::iter::from_fn(|| bench.serve().map(|m| m.frame.0)).collect();
        assert_eq!(order, [2, 4, 0, 3, 1, 5]);
        bench.check();
    }

    /// Premium at 30 % beside best effort without end; returns the most bytes that premium waited
    /// for, and the packets of best effort served.
    fn premium(high: u32, premium_every: u32) -> (u64, u32) {
        let (mut bench, mut worst, mut low) = (Bench::new(&classes(&[0, 1]), 1), 0, 0);
        for step in 0..10_000u32 {
            while bench.offer(1500, |m| m.leaf = 1 - high) == Verdict::Queued {}
            if step % premium_every == 0 {
                bench.offer(1500, |m| m.leaf = high);
            }
            let sent = bench.serve().expect("backlogged");
            if sent.leaf == high {
                worst = worst.max(bench.cx.now.since(sent.arrival).as_nanos());
            } else {
                low += 1;
            }
            bench.pass(sent.len);
        }
        bench.check();
        (worst, low)
    }

    #[test]
    fn d02_premium_waits_for_one_packet_at_most() {
        assert_eq!(premium(1, 3), (0, 6_666), "served at the first completion after it comes");
        assert_eq!(premium(1, 1).1, 0, "best effort starves under 100 % premium");
        // Reversed: the same flow in the lower class waits without end.
        assert_eq!(premium(0, 3).1, 10_000);
    }

    #[test]
    fn priorities_are_unique_and_change_whole_or_not_at_all() {
        let link = crate::queue::Link::new(crate::units::Rate::from_mbps(10), 24, 1514);
        let registry = crate::sched::Registry::builtin();
        let error = registry.build(&classes(&[1, 1]), link).err().unwrap();
        assert_eq!(
            std::string::ToString::to_string(&error),
            "class c1: priority: found 1, expected one of 0 to 15 that is free: class c0 has this one"
        );
        let mut bench = Bench::new(&classes(&[1, 2]), 1);
        let set = |bench: &mut Bench, class, priority| {
            let params =
                Params::new().with("priority", Value::Count(priority)).with("qlimit", Value::Count(1));
            bench.tree.discipline.reconfigure(&mut bench.cx, class, &params)
        };
        bench.offer(100, |m| m.leaf = 0);
        bench.offer(100, |m| m.leaf = 1);
        assert_eq!(set(&mut bench, "c0", 2).unwrap_err().field, "priority");
        assert_eq!(set(&mut bench, "c0", 16).unwrap_err().field, "priority");
        assert_eq!(set(&mut bench, "nobody", 3).unwrap_err().field, "class");
        bench.offer(100, |m| m.leaf = 0);
        assert_eq!(bench.dropped.len(), 0, "the limit did not change");
        set(&mut bench, "c0", 3).unwrap();
        bench.check();
        let order: Vec<u32> = core::iter::from_fn(|| bench.serve().map(|m| m.leaf)).collect();
        assert_eq!(order, [0, 0, 1]);
    }

    #[test]
    fn an_inner_discipline_is_a_class() {
        let mut node = classes(&[2, 1]);
        node.classes[1].queue = Some(classes(&[0, 9]));
        node.classes[1].queue.as_mut().unwrap().classes[0].name = "inner".into();
        let mut bench = Bench::new(&node, 1);
        for leaf in [1, 2, 0] {
            bench.offer(100, |m| m.leaf = leaf);
        }
        bench.check();
        let params = Params::new().with("priority", Value::Count(10));
        bench.tree.discipline.reconfigure(&mut bench.cx, "inner", &params).unwrap();
        let order: Vec<u32> = core::iter::from_fn(|| bench.serve().map(|m| m.leaf)).collect();
        assert_eq!(order, vec![0, 1, 2]);
        bench.offer(100, |m| m.leaf = 1);
        bench.tree.discipline.flush(&mut bench.cx, DropReason::Flush);
        assert!(bench.tree.discipline.is_empty());
        bench.cx.next_dropped().map(|(id, _)| bench.cx.packets.remove(id)).unwrap();
        bench.check();
    }
}
