//! HFSC: guarantees of rate and delay apart from each other, and fair sharing of the rest by a tree.
//!
//! Principle: a class has up to three curves of bytes over time. The real-time curve is owed: as
//! soon as a packet is eligible (serving it later could make some deadline fail) the packet of
//! the earliest deadline goes. While none is eligible, the link-share curves divide the link:
//! level by level down the tree the child of the least virtual time goes. The upper-limit
//! curve says how much a class may have at most. A curve that is steep at first buys low delay
//! for a small rate.
//! Paper: Stoica, Zhang and Ng, "A hierarchical fair service curve algorithm for link-sharing,
//! real-time and priority services", SIGCOMM 1997 [HFSC97]; curves: section 5 (`curve`);
//! link sharing: 4.2 (`share`); deadlines and eligible times: 4.3 (here).
//! Where we differ, and why: any depth and number of classes, by winner trees instead of sorted
//! lists; the upper limit has an exact time instead of a tick, and lets a class that was late
//! catch up on two packets only, so that it holds over every interval; `bandwidth` sets both the
//! real-time and the link-share curve.
//! Cost: O(log n) in the classes for guarantees, O(depth log children) for sharing; 650 bytes a
//! class.
//! Guarantees: when the real-time curves fit the link, no packet leaves later than its deadline
//! and one packet's time (`deadlines_hold`); a class's service is below its upper limit and two
//! packets over every interval (`the_upper_limit_holds_over_every_interval`); shares follow the
//! link-share curves (`shares_follow_the_curves`); work conserving without upper limits.

mod curve;
mod options;
mod share;
#[cfg(test)]
mod tests;
mod tournament;

use super::registry;
use super::registry::{Builder, Classes, Entry};
use crate::aqm::{CLASS_PARAMS, QLIMIT_50};
use crate::packet::PacketId;
use crate::queue::{
    Backlog, Broken, Child, Curve, Cx, Deeper, Discipline, DropReason, Head, Next, ParamError, Params,
    Routes, Verdict, Visit,
};
use crate::units::{Fine, Instant, Rate};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use curve::{Runtime, Slopes};
use options::PARAMS;
pub use options::{Curves, guarantee};
use share::{Limit, ShareTree, as_instant};
use tournament::Tournament;

pub(super) const ENTRY: Entry = Entry {
    name: "hfsc",
    aliases: &[],
    source: include_str!("mod.rs"),
    params: &[PARAMS, QLIMIT_50, CLASS_PARAMS],
    classes: Classes::Tree,
    build: Some(build),
};

/// What a leaf class owes.
struct Owed {
    slopes: Slopes,
    curve: Runtime,
    /// Bytes served by this criterion.
    served: u64,
}

/// A class.
struct Class {
    name: String,
    curves: Curves,
    depth: u32,
    /// Its queue; none for a class with children.
    queue: Option<Child>,
    owed: Option<Owed>,
    /// It has packets: it is in the trees.
    active: bool,
    /// Its queue gives nothing before that time, as it said when it was asked last.
    ready_at: Instant,
    /// Its queue is a discipline of its own, and has to be asked again.
    stirred: bool,
    sent_packets: u64,
    sent_bytes: u64,
}

struct Hfsc {
    /// Class i is node i + 1 of `share`.
    classes: Vec<Class>,
    share: ShareTree,
    /// Leaf classes with real-time curves that are active: not yet eligible, by eligible time ...
    waiting: Tournament,
    /// ... and eligible, by deadline.
    ready: Tournament,
    /// Classes that are stirred. An inner discipline may drop what it is asked for, so it is asked
    /// at a dequeue, never at an arrival.
    stirred: Vec<u32>,
    /// Active classes.
    busy: u32,
    routes: Routes,
    /// Class of each route.
    leaf_class: Vec<usize>,
}

fn build(node: &registry::Node, builder: &mut Builder<'_>) -> Result<Box<dyn Discipline>, ParamError> {
    let (mut classes, mut ranges, mut leaf_class) = (Vec::<Class>::new(), Vec::new(), Vec::new());
    let link = builder.link;
    for (index, class) in node.classes.iter().enumerate() {
        let curves = Curves::of(&class.name, &class.params, Curves::default(), link.rate)?;
        let inner = node.classes.iter().any(|c| c.parent == Some(index));
        if inner && curves.link_share.is_none() {
            return Err(ParamError::new(
                &class.name,
                "ls",
                "none",
                "a link-share curve: the class has children",
            ));
        }
        let depth = class.parent.map_or(1, |parent| classes[parent].depth + 1);
        let queue = if inner {
            None
        } else {
            let rate = curves.real_time.or(curves.link_share).map_or(link.rate, |c| c.m2);
            let first = builder.next_leaf();
            let queue = builder.child(node, index, rate, 50)?;
            ranges.push(first..builder.next_leaf());
            leaf_class.push(index);
            Some(queue)
        };
        let name = class.name.clone();
        let new = Class {
            name,
            curves,
            depth,
            queue,
            owed: None,
            active: false,
            ready_at: Instant::ZERO,
            stirred: false,
            sent_packets: 0,
            sent_bytes: 0,
        };
        classes.push(new);
    }
    let parents: Vec<usize> = node.classes.iter().map(|c| c.parent.map_or(share::ROOT, |p| p + 1)).collect();
    let n = classes.len();
    let mut hfsc = Hfsc {
        classes,
        share: ShareTree::new(&parents),
        waiting: Tournament::new(n),
        ready: Tournament::new(n),
        stirred: Vec::with_capacity(n),
        busy: 0,
        routes: Routes::new(&ranges),
        leaf_class,
    };
    for class in 0..n {
        hfsc.install(class, Instant::ZERO, link.mtu);
    }
    Ok(Box::new(hfsc))
}

impl Hfsc {
    /// Puts a class's curves to work, from `now` on.
    fn install(&mut self, class: usize, now: Instant, mtu: u32) {
        let curves = self.classes[class].curves;
        let limit = curves.upper_limit.map(|c| Limit::new(Slopes::of(c), mtu));
        // A weight of 0 counts as the least there is: such a class has what nobody else wants.
        let least = Rate::from_bps(2);
        let share =
            curves.link_share.map(|c| Slopes::of(Curve { m1: c.m1.max(least), m2: c.m2.max(least), ..c }));
        self.share.set(class + 1, share, limit, now);
        let c = &mut self.classes[class];
        let served = c.owed.as_ref().map_or(0, |owed| owed.served);
        c.owed = curves.real_time.filter(|_| c.queue.is_some()).map(|curve| {
            let slopes = Slopes::of(curve);
            let curve = Runtime::new(&slopes, Fine::from(now).raw(), served);
            Owed { slopes, curve, served }
        });
    }

    /// The queue of a class has changed from outside: the class joins in, or has to be asked.
    fn stir(&mut self, cx: &mut Cx, class: usize) {
        let c = &mut self.classes[class];
        let Some(queue) = &mut c.queue else { return };
        if queue.is_empty() {
            // It may have dropped all that it had instead of taking one more.
            return self.leave(class, cx.now);
        }
        let looked_at = queue.as_leaf().is_some_and(|leaf| !leaf.decides_at_departure());
        let head = if looked_at { queue.head(cx) } else { Head::At(cx.now) };
        if !looked_at && !c.stirred {
            c.stirred = true;
            self.stirred.push(class as u32);
        }
        if !c.active {
            self.join(class, head, cx.now);
        }
    }

    /// A class becomes active: what it did not ask for is not owed [HFSC97 equations 4 to 7].
    fn join(&mut self, class: usize, head: Head, now: Instant) {
        let c = &mut self.classes[class];
        c.active = true;
        self.busy += 1;
        if let Some(owed) = &mut c.owed {
            owed.curve.min_with(&owed.slopes, Fine::from(now).raw(), owed.served);
        }
        if c.curves.link_share.is_some() {
            self.share.activate(class + 1, now);
        }
        self.learn(class, head, now);
    }

    /// What an active class would send, as its queue says now.
    fn learn(&mut self, class: usize, head: Head, now: Instant) {
        let c = &mut self.classes[class];
        let (ready_at, len) = match head {
            Head::Packet { len } => (Instant::ZERO, Some(len)),
            Head::At(at) => (at, None),
            Head::Idle => return self.leave(class, now),
        };
        c.ready_at = ready_at;
        if c.curves.link_share.is_some() {
            self.share.set_queue_fit(class + 1, ready_at, now);
        }
        self.owe(class, len, now);
    }

    /// Eligible time and deadline of the packet of `len` bytes at the head of a class. One whose
    /// length is not known yet waits, at least until its queue may be asked.
    fn owe(&mut self, class: usize, len: Option<u32>, now: Instant) {
        let c = &self.classes[class];
        let Some(owed) = &c.owed else { return };
        let eligible = match owed.slopes.owes_nothing() {
            true => Instant::NEVER,
            false => Fine::from_raw(owed.curve.eligible_at(&owed.slopes, owed.served)).ceil(),
        };
        let slot = class as u32;
        match len {
            Some(len) if eligible <= now => {
                let deadline = owed.curve.time_at(&owed.slopes, owed.served + u64::from(len));
                self.waiting.remove(slot);
                self.ready.set(slot, Fine::from_raw(deadline).ceil().as_nanos());
            }
            _ => {
                self.ready.remove(slot);
                self.waiting.set(slot, eligible.max(c.ready_at).as_nanos());
            }
        }
    }

    /// A class takes leave of the trees: it has nothing, or is about to change.
    fn leave(&mut self, class: usize, now: Instant) {
        if self.classes[class].active {
            if self.classes[class].curves.link_share.is_some() {
                self.share.charge(class + 1, 0, true, now);
            }
            self.forget(class);
        }
    }

    /// The part of `leave` that is not about sharing.
    fn forget(&mut self, class: usize) {
        let c = &mut self.classes[class];
        c.active = false;
        c.ready_at = Instant::ZERO;
        self.busy -= 1;
        self.waiting.remove(class as u32);
        self.ready.remove(class as u32);
        self.share.nodes[class + 1].queue_fit = Instant::ZERO;
    }

    fn head(&mut self, cx: &mut Cx, class: usize) -> Head {
        self.classes[class].queue.as_mut().map_or(Head::Idle, |queue| queue.head(cx))
    }

    /// Counts what a class has had, and looks at what it would send next.
    fn after_service(&mut self, cx: &mut Cx, class: usize, bytes: u64, real_time: bool) {
        if real_time && let Some(owed) = &mut self.classes[class].owed {
            owed.served += bytes;
        }
        let head = self.head(cx, class);
        let shares = self.classes[class].curves.link_share.is_some();
        // Bytes by either criterion count for sharing.
        self.share.charge(class + 1, bytes, shares && head == Head::Idle, cx.now);
        match head {
            Head::Idle => self.forget(class),
            head => self.learn(class, head, cx.now),
        }
    }

    /// Asks the queues that were stirred, and moves the classes that have become eligible.
    fn pass_time(&mut self, cx: &mut Cx) {
        while let Some(class) = self.stirred.pop() {
            self.classes[class as usize].stirred = false;
            if self.classes[class as usize].active {
                let head = self.head(cx, class as usize);
                self.learn(class as usize, head, cx.now);
            }
        }
        let now_ns = cx.now.as_nanos();
        while self.waiting.least().is_some_and(|at| at <= now_ns) {
            let Some((slot, _)) = self.waiting.min() else { return };
            let head = self.head(cx, slot as usize);
            self.learn(slot as usize, head, cx.now);
            if self.waiting.get(slot).is_some_and(|at| at <= now_ns) {
                cx.broken("hfsc", "a child's At(t) is not later than now");
                return;
            }
        }
    }

    /// The class that goes now, and by which criterion.
    fn choose(&mut self, cx: &mut Cx) -> Option<(usize, bool)> {
        self.pass_time(cx);
        if let Some((slot, _)) = self.ready.min() {
            return Some((slot as usize, true));
        }
        loop {
            let class = self.share.choose(cx.now)? - 1;
            let head = self.head(cx, class);
            if matches!(head, Head::Packet { .. }) {
                return Some((class, false));
            }
            self.learn(class, head, cx.now);
            if matches!(head, Head::At(at) if at <= cx.now) {
                cx.broken("hfsc", "a child's At(t) is not later than now");
                return None;
            }
        }
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.classes.iter().position(|class| class.name == name)
    }
}

impl Discipline for Hfsc {
    fn enqueue(&mut self, cx: &mut Cx, id: PacketId) -> Verdict {
        let Some(class) = self.routes.child(cx.packets.get(&id).leaf).map(|route| self.leaf_class[route])
        else {
            cx.broken("hfsc", "a packet came for a leaf that is not below");
            cx.drop(id, DropReason::Reconfigure);
            return Verdict::Dropped;
        };
        let c = &mut self.classes[class];
        let verdict = match &mut c.queue {
            Some(queue) => queue.enqueue(cx, id),
            None => Verdict::Dropped,
        };
        // The head of an active leaf does not change: it has been shown.
        if !c.active || c.queue.as_ref().is_some_and(|queue| queue.as_leaf().is_none()) {
            self.stir(cx, class);
        }
        verdict
    }

    fn dequeue(&mut self, cx: &mut Cx) -> Next {
        if self.busy == 0 {
            return Next::Idle;
        }
        let Some((class, real_time)) = self.choose(cx) else {
            if self.busy == 0 {
                return Next::Idle;
            }
            let waiting = self.waiting.least().map_or(Instant::NEVER, as_instant);
            return Next::At(waiting.min(self.share.next_fit()));
        };
        let shown = self.classes[class].queue.as_mut().and_then(|queue| queue.take_shown(cx));
        let Some(id) = shown else {
            cx.broken("hfsc", "an active class has no packet");
            return Next::Idle;
        };
        let len = cx.packets.get(&id).len;
        self.classes[class].sent_packets += 1;
        self.classes[class].sent_bytes += u64::from(len);
        self.after_service(cx, class, u64::from(len), real_time);
        Next::Packet(id)
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
            return match params.iter().next() {
                Some((name, _)) => {
                    Err(ParamError::new("", name, name, "nothing: hfsc itself has no parameters"))
                }
                None => Ok(()),
            };
        }
        let Some(index) = self.find(class) else {
            let queues = self.classes.iter_mut().filter_map(|c| c.queue.as_mut());
            let result = Child::reconfigure_one_of(queues, cx, class, params);
            // What an inner discipline may send has changed.
            for index in 0..self.classes.len() {
                self.stir(cx, index);
            }
            return result;
        };
        let curves = Curves::of(class, params, self.classes[index].curves, cx.link.rate)?;
        if self.classes[index].queue.is_none() && curves.link_share.is_none() {
            return Err(ParamError::new(class, "ls", "none", "a link-share curve: the class has children"));
        }
        if let Some(queue) = &mut self.classes[index].queue {
            queue.reconfigure_queue(cx, class, params)?;
        }
        self.leave(index, cx.now);
        self.classes[index].curves = curves;
        self.install(index, cx.now, cx.link.mtu);
        self.stir(cx, index);
        Ok(())
    }
    fn visit_stats(&self, visit: &mut dyn Visit) {
        for (index, class) in self.classes.iter().enumerate() {
            visit.class(&class.name, class.depth);
            visit.value("packets", "packets", class.sent_packets as i64);
            visit.value("bytes", "bytes", class.sent_bytes as i64);
            let rate = |curve: Option<Curve>| curve.map_or(0, |c| c.m2.as_bps() as i64);
            visit.value("real_time", "bit/s", rate(class.curves.real_time));
            visit.value("link_share", "bit/s", rate(class.curves.link_share));
            visit.value("upper_limit", "bit/s", rate(class.curves.upper_limit));
            visit.value("total", "bytes", self.share.nodes[index + 1].total as i64);
            if let Some(owed) = &class.owed {
                visit.value("served_real_time", "bytes", owed.served as i64);
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
            let owing = self.waiting.get(index as u32).is_some() || self.ready.get(index as u32).is_some();
            if owing != (class.active && class.owed.is_some()) {
                return broken("an active class with a real-time curve has no deadline");
            }
            if self.share.nodes[index + 1].is_active() != (class.active && class.curves.link_share.is_some())
            {
                return broken("an active class is missing from the sharing tree");
            }
        }
        if busy != self.busy || !self.share.is_sound() {
            return broken("the trees and the classes disagree");
        }
        Ok(())
    }
    fn on_sent(&mut self, cx: &mut Cx, id: &PacketId, at: Instant) {
        let Some(route) = self.routes.child(cx.packets.get(id).leaf) else { return };
        let class = self.leaf_class[route];
        if let Some(queue) = &mut self.classes[class].queue
            && queue.as_leaf().is_none()
        {
            queue.on_sent(cx, id, at);
            // An estimator below may have changed its mind about when it sends next.
            self.stir(cx, class);
        }
    }
}
