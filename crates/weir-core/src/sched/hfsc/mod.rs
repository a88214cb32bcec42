//! HFSC: guarantees of rate and delay apart from each other, and fair sharing of the rest by a tree.
//!
//! Principle: a class has up to three curves of bytes on the wire over time. The real-time curve is owed: as
//! soon as a packet is eligible (serving it later could make some deadline fail) the packet of
//! the earliest deadline goes. While none is eligible, the link-share curves divide the link:
//! level by level down the tree the child of the least virtual time goes. The upper-limit
//! curve says how much a class may have at most. A curve that is steep at first buys low delay
//! for a small rate.
//! Paper: Stoica, Zhang and Ng, "A hierarchical fair service curve algorithm for link-sharing,
//! real-time and priority services", SIGCOMM 1997 (HFSC97); curves: section 5 (`curve`);
//! link sharing: 4.2 (`share`); deadlines and eligible times: 4.3 (`turns`).
//! Where we differ, and why: winner trees instead of sorted lists allow any depth and number of
//! classes. The upper limit has an exact time instead of a tick. It lets a class that was late
//! catch up on two packets only, so that it holds over every interval. `bandwidth` sets both the
//! real-time and the link-share curve. A class that joins in link sharing does not wait for a
//! class that real time has brought far ahead in virtual time.
//! Cost: O(log n) in the classes for guarantees, O(depth log children) for sharing; 400 bytes per
//! class, 110 more where classes have real-time curves.
//! Guarantees: when the real-time curves fit the link, no packet leaves later than its deadline
//! and one packet's time (`deadlines_hold`); a class's service is below its upper limit and two
//! packets over every interval (`the_upper_limit_holds_over_every_interval`); shares follow the
//! link-share curves (`shares_follow_the_curves`), from a class's first packet on
//! (`who_joins_does_not_wait_for_a_class_that_real_time_serves`); work conserving without upper
//! limits (`bandwidth_is_work_conserving`).

mod class;
mod curve;
mod hooks;
mod options;
mod share;
#[cfg(test)]
mod tests;
mod turns;

use super::node::Node;
use super::registry::{Builder, Classes, Entry};
use super::tournament::Tournament;
use crate::aqm::QLIMIT_50;
use crate::aqm::params::USUAL_QLIMIT;
use crate::packet::PacketId;
use crate::queue::{
    Backlog, Broken, Child, Curve, Cx, Deeper, Discipline, DropReason, Head, Link, Next, ParamError, Params,
    Routes, Scope, Verdict, Visit, params,
};
use crate::spread::Cut;
use crate::units::Instant;
use alloc::boxed::Box;
use alloc::vec::Vec;
use class::{Eligibility, HfscClass, Owed, Shown, Spec};
use options::PARAMS;
pub use options::{Curves, guarantee};
use share::{Limit, ShareTree};

pub(super) const ENTRY: Entry = Entry {
    name: "hfsc",
    source: include_str!("mod.rs"),
    params: &[PARAMS, QLIMIT_50],
    class_queues: true,
    classes: Classes::Tree,
    work_conserving: false,
    build: Some(build),
    check: Some(hooks::check),
    lower: Some(hooks::lower),
    guarantees: Some(hooks::guarantees),
    cut: Cut::ByShares(hooks::shares),
    ..Entry::PLAIN
};

struct Hfsc {
    /// Class i is node i + 1 of `share`.
    classes: Vec<HfscClass>,
    /// What each class owes; empty where no class has a real-time curve.
    owed: Vec<Owed>,
    specs: Vec<Spec>,
    /// All classes in the order of their names.
    by_name: Vec<u32>,
    /// Bytes that the wire adds to each packet.
    overhead: u64,
    share: ShareTree,
    /// Leaf classes with real-time curves that are active: not yet eligible, by eligible time ...
    waiting: Tournament,
    /// ... and eligible, by deadline.
    ready: Tournament,
    /// Classes that are stirred. An inner discipline may drop what it is asked for, so it is asked
    /// at a dequeue, never at an arrival.
    stirred: Vec<u32>,
    /// Some queue is a discipline of its own.
    has_inner: bool,
    /// Active classes.
    busy: u32,
    /// The class of each leaf.
    routes: Routes,
}

fn build(node: &Node, builder: &mut Builder<'_>) -> Result<Box<dyn Discipline>, ParamError> {
    let n = node.classes.len();
    let (mut classes, mut specs, mut ranges) = (Vec::new(), Vec::<Spec>::with_capacity(n), Vec::new());
    let link = builder.link;
    let mut has_children = alloc::vec![false; n];
    for parent in node.classes.iter().filter_map(|c| c.parent) {
        has_children[parent] = true;
    }
    for (index, class) in node.classes.iter().enumerate() {
        let curves = Curves::of(&class.name, &class.params, Curves::default(), link.rate)?;
        let inner = has_children[index];
        if inner && curves.link_share.is_none() {
            return Err(ParamError::new(
                &class.name,
                "ls",
                "none",
                "a link-share curve: the class has children",
            ));
        }
        let first = builder.next_leaf();
        let queue = if inner {
            None
        } else {
            let rate = curves.real_time.or(curves.link_share).map_or(link.rate, |c| c.m2);
            Some(builder.child(node, index, rate, USUAL_QLIMIT)?)
        };
        // Empty for a class without a queue, so that a route is a class.
        ranges.push(first..builder.next_leaf());
        let depth = class.parent.map_or(1, |parent| specs[parent].depth + 1);
        specs.push(Spec { name: class.name.clone(), curves, depth });
        classes.push(HfscClass { queue, ..HfscClass::default() });
    }
    let parents: Vec<usize> = node.classes.iter().map(|c| c.parent.map_or(share::ROOT, |p| p + 1)).collect();
    let mut by_name: Vec<u32> = (0..n as u32).collect();
    by_name.sort_unstable_by_key(|&class| &*specs[class as usize].name);
    let mut hfsc = Hfsc {
        has_inner: classes.iter().filter_map(|c| c.queue.as_ref()).any(|queue| queue.as_leaf().is_none()),
        classes,
        owed: Vec::new(),
        specs,
        by_name,
        overhead: u64::from(link.overhead),
        share: ShareTree::new(&parents),
        waiting: Tournament::new(n),
        ready: Tournament::new(n),
        stirred: Vec::with_capacity(n),
        busy: 0,
        routes: Routes::new(&ranges),
    };
    for class in 0..n {
        hfsc.install(class, Instant::ZERO, &link);
    }
    Ok(Box::new(hfsc))
}

impl Hfsc {
    fn class(&self, name: &str) -> Option<usize> {
        let at = self.by_name.binary_search_by_key(&name, |&class| &*self.specs[class as usize].name);
        at.ok().map(|at| self.by_name[at] as usize)
    }

    /// Puts a class's curves to work, from `now` on.
    fn install(&mut self, class: usize, now: Instant, link: &Link) {
        let curves = self.specs[class].curves;
        let limit = curves.upper_limit.map(|c| Limit::new(c, link.cost_bytes(link.mtu)));
        let least = hooks::LEAST_SHARE;
        let share = curves.link_share.map(|c| Curve { m1: c.m1.max(least), m2: c.m2.max(least), ..c });
        self.share.set(class + 1, share, limit, now);
        let c = &mut self.classes[class];
        let real_time = curves.real_time.filter(|_| c.queue.is_some());
        c.owes = real_time.is_some();
        if c.owes && self.owed.is_empty() {
            self.owed.resize_with(self.classes.len(), || Owed::new(Curve::default(), now, 0));
        }
        let Some(owed) = self.owed.get_mut(class) else { return };
        *owed = match real_time {
            Some(curve) => Owed::new(curve, now, owed.served),
            None => Owed::new(Curve::default(), now, 0),
        };
    }

    /// The queue of a class has changed from outside: the class joins in, or has to be asked.
    #[cold]
    fn stir(&mut self, cx: &mut Cx, class: usize) {
        let c = &mut self.classes[class];
        match c.queue.as_mut().and_then(|queue| queue.look(cx)) {
            // It may have dropped all that it had, or that it was given.
            Some(Head::Idle) => self.leave(class, cx.now),
            Some(_) if c.active => {}
            Some(head) => {
                self.join(class, cx.now);
                self.learn(cx, class, head);
            }
            None => self.stir_inner(cx, class),
        }
    }

    /// The same for a queue that has to be asked.
    // Cold, as all that only disciplines below need: inlined, it would cost each packet of the others registers.
    #[cold]
    fn stir_inner(&mut self, cx: &mut Cx, class: usize) {
        let c = &mut self.classes[class];
        let Some(queue) = &c.queue else { return };
        if queue.is_empty() {
            return self.leave(class, cx.now);
        }
        if !c.stirred {
            c.stirred = true;
            self.stirred.push(class as u32);
        }
        if !c.active {
            self.join(class, cx.now);
            self.learn_all(cx, class, Head::At(cx.now));
        }
    }

    /// A class becomes active.
    #[inline(always)]
    fn join(&mut self, class: usize, now: Instant) {
        let c = &mut self.classes[class];
        debug_assert!(!c.active, "a class that is active becomes active");
        c.active = true;
        self.busy += 1;
        if c.owes
            && let Some(owed) = self.owed.get_mut(class)
        {
            owed.join(now);
        }
        self.share.activate(class + 1, now);
    }

    /// What an active class would send, as its queue says now.
    #[inline(always)]
    fn learn(&mut self, cx: &Cx, class: usize, head: Head) {
        let c = &mut self.classes[class];
        match head {
            // The usual case: the packet that is shown may go at any time.
            Head::Packet { len } if !c.late => {
                c.shown = Shown(cx.link.cost_bytes(len));
                self.owe(class, cx.now);
            }
            head => self.learn_all(cx, class, head),
        }
    }

    #[cold]
    fn learn_all(&mut self, cx: &Cx, class: usize, head: Head) {
        let now = cx.now;
        let c = &mut self.classes[class];
        let (ready_at, shown) = match head {
            Head::Packet { len } => (Instant::ZERO, Shown(cx.link.cost_bytes(len))),
            Head::At(at) => (at, Shown::NOTHING),
            Head::Held(_) => (Instant::NEVER, Shown::NOTHING),
            Head::Idle => return self.leave(class, now),
        };
        (c.shown, c.late) = (shown, ready_at != Instant::ZERO);
        self.share.set_queue_fit(class + 1, ready_at, now);
        self.owe(class, now);
    }

    /// Where a class stands with what it has shown. A packet whose length is not known yet waits, at
    /// least until its queue may be asked.
    #[inline(always)]
    fn owe(&mut self, class: usize, now: Instant) {
        let c = &self.classes[class];
        let shown = c.shown;
        if !c.owes {
            return;
        }
        let ready_at = if c.late { self.share.nodes[class + 1].queue_fit() } else { Instant::ZERO };
        let Some(owed) = self.owed.get(class) else { return };
        let from = owed.eligible.max(ready_at);
        if from <= now && shown != Shown::NOTHING {
            let deadline = owed.deadline(shown.0);
            self.set_place(class, Eligibility::Ready, deadline);
        } else {
            self.set_place(class, Eligibility::Waiting, from);
        }
    }

    /// Puts a class into one of the trees, or into none.
    #[inline(always)]
    fn set_place(&mut self, class: usize, to: Eligibility, key: Instant) {
        let (slot, key) = (class as u32, key.as_nanos());
        let from = core::mem::replace(&mut self.classes[class].place, to);
        if from == to {
            return if let Some(tree) = self.tree(to) {
                tree.set(slot, key)
            };
        }
        if let Some(tree) = self.tree(from) {
            tree.remove(slot);
        }
        if let Some(tree) = self.tree(to) {
            tree.insert(slot, key);
        }
    }

    #[inline(always)]
    fn tree(&mut self, of: Eligibility) -> Option<&mut Tournament> {
        match of {
            Eligibility::Waiting => Some(&mut self.waiting),
            Eligibility::Ready => Some(&mut self.ready),
            Eligibility::Out => None,
        }
    }

    /// A class takes leave of the trees: it has nothing, or is about to change.
    fn leave(&mut self, class: usize, now: Instant) {
        if self.classes[class].active {
            if self.share.takes_part(class + 1) {
                self.share.charge(class + 1, 0, false, true, now);
            }
            self.forget(class);
        }
    }

    /// The part of `leave` that is not about sharing.
    #[inline(always)]
    fn forget(&mut self, class: usize) {
        let c = &mut self.classes[class];
        (c.active, c.shown) = (false, Shown::NOTHING);
        if c.late {
            c.late = false;
            self.share.nodes[class + 1].set_queue_fit(Instant::ZERO);
        }
        self.busy -= 1;
        if c.place != Eligibility::Out {
            self.set_place(class, Eligibility::Out, Instant::NEVER);
        }
    }

    fn head(&mut self, cx: &mut Cx, class: usize) -> Head {
        self.classes[class].queue.as_mut().map_or(Head::Idle, |queue| queue.head(cx))
    }
}

impl Discipline for Hfsc {
    fn enqueue(&mut self, cx: &mut Cx, id: PacketId) -> Verdict {
        let Some(class) = self.routes.child(cx.packets.get(&id).leaf) else {
            cx.broken("hfsc", "a packet came for a leaf that is not below");
            cx.drop(id, DropReason::Reconfigure);
            return Verdict::Dropped;
        };
        let c = &mut self.classes[class];
        let Some(queue) = &mut c.queue else {
            cx.broken("hfsc", "a packet came for a class that has no queue");
            cx.drop(id, DropReason::Reconfigure);
            return Verdict::Dropped;
        };
        let verdict = queue.enqueue(cx, id);
        match queue.as_leaf() {
            // The head of an active leaf does not change: it has been shown.
            Some(_) if c.active => {}
            Some(_) => match queue.look(cx) {
                Some(Head::Packet { len }) => {
                    c.shown = Shown(cx.link.cost_bytes(len));
                    self.join(class, cx.now);
                    self.owe(class, cx.now);
                }
                _ => self.stir(cx, class),
            },
            None => self.stir_inner(cx, class),
        }
        verdict
    }

    fn dequeue(&mut self, cx: &mut Cx) -> Next {
        if self.busy == 0 {
            return Next::Idle;
        }
        if !self.stirred.is_empty() {
            self.ask_stirred(cx);
        }
        if let Some(class) = self.eligible(cx) {
            return self.serve(cx, class, true);
        }
        match self.in_turn(cx) {
            Some(class) => self.serve(cx, class, false),
            None => self.pause(),
        }
    }

    fn backlog(&self) -> Backlog {
        self.classes
            .iter()
            .filter_map(|class| class.queue.as_ref())
            .fold(Backlog::default(), |sum, queue| sum + queue.backlog())
    }
    fn is_empty(&self) -> bool {
        self.busy == 0
    }
    fn flush(&mut self, cx: &mut Cx, reason: DropReason) {
        for class in 0..self.classes.len() {
            self.leave(class, cx.now);
            if let Some(queue) = &mut self.classes[class].queue {
                queue.flush(cx, reason);
            }
        }
    }
    fn reconfigure(&mut self, cx: &mut Cx, class: &str, params: &Params) -> Result<(), ParamError> {
        if class.is_empty() {
            return params::accept(ENTRY.params, Scope::Discipline, "", params);
        }
        let Some(index) = self.class(class) else {
            let queues = self.classes.iter_mut().filter_map(|c| c.queue.as_mut());
            Child::reconfigure_one_of(queues, cx, class, params)?;
            // What an inner discipline may send has changed.
            for index in 0..self.classes.len() {
                self.stir(cx, index);
            }
            return Ok(());
        };
        let curves = Curves::of(class, params, self.specs[index].curves, cx.link.rate)?;
        if self.classes[index].queue.is_none() && curves.link_share.is_none() {
            return Err(ParamError::new(class, "ls", "none", "a link-share curve: the class has children"));
        }
        if let Some(queue) = &mut self.classes[index].queue {
            queue.reconfigure_queue(cx, class, params, ENTRY.params)?;
        } else {
            params::accept(ENTRY.params, Scope::Class, class, params)?;
        }
        self.leave(index, cx.now);
        self.specs[index].curves = curves;
        self.install(index, cx.now, &cx.link);
        self.stir(cx, index);
        Ok(())
    }
    fn visit_stats(&self, visit: &mut dyn Visit) {
        let run = !self.has_inner;
        let shown = if run { visit.places(self.classes.len()) } else { 0..self.classes.len() };
        for index in shown {
            let (class, spec) = (&self.classes[index], &self.specs[index]);
            if run {
                visit.class(&spec.name, spec.depth);
            }
            if run || visit.wants(&spec.name, spec.depth) {
                visit.value("packets", "packets", class.sent_packets as i64);
                let total = self.share.nodes[index + 1].total;
                visit.value("bytes", "bytes", (total - self.overhead * class.sent_packets) as i64);
                let rate = |curve: Option<Curve>| curve.map_or(0, |c| c.m2.as_bps() as i64);
                visit.value("real_time", "bit/s", rate(spec.curves.real_time));
                visit.value("link_share", "bit/s", rate(spec.curves.link_share));
                visit.value("upper_limit", "bit/s", rate(spec.curves.upper_limit));
                visit.value("total", "bytes", total as i64);
                if let Some(owed) = self.owed.get(index).filter(|_| class.owes) {
                    visit.value("served_real_time", "bytes", owed.served as i64);
                }
            }
            if let Some(queue) = &class.queue {
                queue.visit_stats(&mut Deeper(visit));
            }
        }
    }
    fn check(&self, cx: &Cx) -> Result<(), Broken> {
        let broken = |what| Err(Broken { discipline: "hfsc", what });
        let mut busy = 0;
        for (index, class) in self.classes.iter().enumerate() {
            let Some(queue) = &class.queue else { continue };
            queue.check(cx)?;
            busy += u32::from(class.active);
            if queue.is_empty() == class.active {
                return broken("a class with packets is not active, or one without is");
            }
            let waits = self.waiting.get(index as u32).is_some();
            let is_ready = self.ready.get(index as u32).is_some();
            if (waits, is_ready) != (class.place == Eligibility::Waiting, class.place == Eligibility::Ready)
                || (class.place != Eligibility::Out) != (class.active && class.owes)
            {
                return broken("an active class with a real-time curve has no deadline");
            }
            if self.share.nodes[index + 1].is_active() != (class.active && self.share.takes_part(index + 1)) {
                return broken("an active class is missing from the sharing tree");
            }
        }
        if busy != self.busy || !self.share.is_sound() {
            return broken("the trees and the classes disagree");
        }
        Ok(())
    }
    fn on_sent(&mut self, cx: &mut Cx, id: &PacketId, at: Instant) {
        let Some(class) = self.routes.child(cx.packets.get(id).leaf) else { return };
        if let Some(queue) = &mut self.classes[class].queue
            && queue.as_leaf().is_none()
        {
            queue.on_sent(cx, id, at);
            // An estimator below may have changed its mind about when it sends next.
            self.stir(cx, class);
        }
    }

    fn hears_sent(&self) -> bool {
        self.has_inner
    }

    /// A discipline below may have dropped what its class has shown.
    fn turns_when_empty(&self) -> bool {
        self.has_inner
    }
}
