//! CBQ: a tree of classes shares the link; each gets its part, and lends what it does not use.
//!
//! Principle: every class has a share of the link and a queue. An estimator says whether a class
//! has lately used more than its share (overlimit). Among the classes that may send, the higher
//! priority goes first, and inside a priority weighted round robin by share. A class that is not
//! overlimit may always send. An overlimit class may borrow from its parent, and that from its
//! own, up to an ancestor that is not overlimit. It sends only if no class lower in the tree
//! waits for its own share: how exactly that is judged is the link-sharing rule. A class
//! that cannot borrow waits until the time at which its share allows the next packet.
//! Paper: S. Floyd and V. Jacobson, "Link-sharing and resource management models for packet
//! networks", IEEE/ACM Transactions on Networking 3(4), 1995 [CBQ95]: section III is
//! `link_sharing`, section IV and appendix A are `estimator`; `wrr` is the general scheduler.
//! The parameters are those of ALTQ (Cho, USENIX 1998).
//!
//! Where we differ, and why: times are exact (2^-32 ns) and 128 bits wide, so that neither
//! 9.6 kbit/s nor 400 Gbit/s distorts a share. Classes that wait are never polled: the time of
//! the next one is known, and answered. `formal` is exact and costs no more than the heuristic.
//! Backlog makes an ancestor unsatisfied only where it may borrow from that ancestor. Under formal
//! and top-level the root is the link and always lends. Under ancestor-only it has an estimator, as
//! in ns-2: a root that is just at its limit lends only what the link would idle for otherwise.
//! A root below 100 % lets the link idle under ancestor-only. With `efficient` it gives the rest away
//! as ns-2 does: the first class that was looked at sends, and nobody is charged for that packet. A
//! class that is refused loses its turn and its credit then, and one that may borrow takes its wait
//! for the link for idleness. `maxburst` and `minburst` are exact, and a burst that was waited for
//! enters the average whole. `minburst` concerns only classes that may not borrow, since others do not wait by
//! themselves. Elsewhere a leaf that has packets does not count that wait. Under top-level, an
//! underlimit leaf with packets goes before all who borrow, with or without an arrival. Under formal
//! and ancestor-only a class that is held back keeps its turn otherwise, so that excess bandwidth
//! follows the weights too.
//! Cost: the same whatever the number of classes without packets; 400 bytes per class and its
//! queue.
//! Guarantees (in brackets the tests of this folder): a leaf that is always backlogged gets at
//! least 99 % of its share, and at most 101 % if it may not borrow (`a20`). Under ancestor-only a
//! class of higher priority in its agency may take the whole agency. Where packets are given away,
//! that holds for classes that may not borrow, and for the only one of the highest priority. Equal
//! priorities share by weight whatever the packet sizes (`a21`). The rules agree on whole agencies
//! (`a22`). Bursts are `maxburst` long (`a23`). No wake-up is wasted (`a05`). Borrowing fills the link
//! (`a28`). Idle classes cost nothing (`a41`). The link-sharing tables of the paper hold (`floyd`).

mod books;
mod class;
mod departure;
mod estimator;
mod hooks;
mod link_sharing;
mod member;
mod options;
mod wakes;
mod wrr;

#[cfg(test)]
mod law;
#[cfg(test)]
mod tests;

use super::node::Node;
use super::registry::{Builder, Classes, Entry};
use crate::packet::PacketId;
use crate::queue::{
    Alias, Backlog, Broken, Cause, Child, Cx, Discipline, DropReason, Head, Link, Next, ParamError, Params,
    Routes, Scope, Verdict, Visit, params,
};
use crate::spread::Cut;
use crate::units::{Bounded, Duration, Fine, Instant};
use alloc::boxed::Box;
use alloc::vec::Vec;
use class::{CbqClass, Count, Settings, check_tree, depth_first, gives, quanta};
use departure::ahead;
use estimator::{Busy, Estimator, Transmission};
use link_sharing::{LinkSharing, Position, Rule, levels};
use member::NONE;
use options::{Options, PARAMS};
use wakes::Wakes;

pub(super) const ENTRY: Entry = Entry {
    name: "cbq",
    aliases: &[Alias { name: "cbq-wrr", implies: None }, Alias { name: "cbq-prr", implies: Some("prr") }],
    source: include_str!("mod.rs"),
    params: &[PARAMS],
    class_queues: true,
    classes: Classes::RootedTree,
    work_conserving: false,
    build: Some(build),
    check: Some(hooks::check),
    lower: Some(hooks::lower),
    cut: Cut::Whole("a class that wants to borrow asks the whole tree"),
    ..Entry::PLAIN
};

/// When a child is asked again that waits for another call only: not at any time that comes.
const HELD_FOR_EVER: Instant = Instant::from_nanos(u64::MAX - 1);

fn build(node: &Node, builder: &mut Builder<'_>) -> Result<Box<dyn Discipline>, ParamError> {
    let link = builder.link;
    let options = Options::DEFAULT.read(&node.params)?;
    let mut settings = Vec::with_capacity(node.classes.len());
    for class in &node.classes {
        let parent = class.parent.map_or(NONE, |p| p as u32);
        settings.push(Settings::new(&class.name, parent, &link).read(&class.params, &link)?);
    }
    check_tree(&settings)?;
    let (mut children, mut ranges) = (Vec::new(), Vec::new());
    for (index, s) in settings.iter().enumerate() {
        let first = builder.next_leaf();
        children.push(builder.child(node, index, s.expected(&link), s.queue_limit())?);
        ranges.push(first..builder.next_leaf());
    }
    Ok(Box::new(Cbq::new(options, settings, children, Routes::new(&ranges), link)))
}

/// Class-based queueing.
pub struct Cbq {
    options: Options,
    settings: Vec<Settings>,
    routes: Routes,
    sharing: LinkSharing<CbqClass>,
    /// Children that said `At`: classes with packets that are not in `sharing` until then.
    held: Wakes,
    held_count: u32,
    /// The children that are disciplines.
    inner: Vec<u32>,
    /// The classes as they are shown: depth first, siblings in the order of the file, each with its depth.
    shown: Vec<(u32, u32)>,
    /// Children with packets: at most all.
    backlogged: u32,
    /// When the link will have sent what it got.
    link_free: Fine,
    /// Since when it has been sending without a pause.
    busy: Busy,
    /// The same in whole nanoseconds, rounded up.
    starts_next: Instant,
    /// How long `AHEAD_PACKETS` take, in whole nanoseconds.
    ahead: Duration,
    link: Link,
    /// Classes that woke up: what waiting costs.
    #[cfg(test)]
    woken: u64,
    /// Packets go the plain way.
    #[cfg(test)]
    plain: bool,
}

impl Cbq {
    fn new(
        options: Options,
        settings: Vec<Settings>,
        children: Vec<Child>,
        routes: Routes,
        link: Link,
    ) -> Self {
        let parents: Vec<u32> = settings.iter().map(|s| s.parent).collect();
        let gives = gives(&options, settings.first(), &link);
        let (mut inner, mut classes) = (Vec::new(), Vec::with_capacity(settings.len()));
        let levels = levels(&parents);
        for (index, (s, queue)) in settings.iter().zip(children).enumerate() {
            if queue.as_leaf().is_none() {
                inner.push(index as u32);
            }
            let shape = s.shape(&options, levels[index] == 1, gives, &link);
            let estimator = Estimator::new(&shape, &link);
            classes.push(CbqClass { queue, estimator, count: Count::default() });
        }
        Cbq {
            sharing: sharing(&options, &settings, classes, &link),
            held: Wakes::new(settings.len()),
            shown: depth_first(&parents),
            held_count: 0,
            inner,
            backlogged: 0,
            link_free: Fine::ZERO,
            busy: Busy::since(Fine::ZERO),
            starts_next: Instant::ZERO,
            ahead: Duration::from_nanos(ahead(&link).floor().as_nanos()),
            options,
            settings,
            routes,
            link,
            #[cfg(test)]
            woken: 0,
            #[cfg(test)]
            plain: false,
        }
    }

    /// The queue of a class.
    #[inline(always)]
    fn queue(&mut self, class: usize) -> &mut Child {
        &mut self.sharing.members[class].of.queue
    }
    fn queues(&self) -> impl Iterator<Item = &Child> {
        self.sharing.members.iter().map(|member| &member.of.queue)
    }

    /// A child's backlog or willingness changed in a call: reads both again.
    #[inline]
    fn refresh(&mut self, class: usize, was_empty: bool, now: Instant) {
        let empty = self.queue(class).is_empty();
        if empty == was_empty && self.held_count == 0 {
            return;
        }
        if empty != was_empty {
            if empty {
                self.backlogged -= 1;
            } else {
                self.backlogged += 1;
            }
        }
        self.release(class);
        if empty == self.sharing.is_queued(class) {
            if empty {
                self.sharing.leave(class);
            } else {
                self.sharing.enter(class, now, self.starts(now));
            }
        }
    }

    /// When a packet that leaves now would start on the link: that is what counts for shares. A
    /// host that fills a ring asks ahead of the wire, and one that asks in whole nanoseconds asks
    /// up to one before it is free.
    #[inline]
    fn starts(&self, now: Instant) -> Instant {
        self.starts_next.max(now)
    }

    fn release(&mut self, class: usize) {
        if self.held_count > 0 && self.held.get(class) != Instant::NEVER {
            self.held.set(class, Instant::NEVER);
            self.held_count -= 1;
        }
    }

    /// The child gives nothing before `at`: nobody need look at it until then.
    #[cold]
    fn hold(&mut self, class: usize, at: Instant) {
        self.sharing.leave(class);
        self.held.set(class, at.min(HELD_FOR_EVER));
        self.held_count += 1;
    }

    /// Before a time is named: inner disciplines show whether they will have a packet then.
    #[inline(never)]
    fn ask_inner(&mut self, cx: &mut Cx) {
        for n in 0..self.inner.len() {
            let class = self.inner[n] as usize;
            if !self.sharing.is_queued(class) {
                continue;
            }
            match self.queue(class).head(cx) {
                Head::Packet { .. } => {}
                Head::At(at) => self.hold(class, at),
                Head::Held(_) => self.hold(class, HELD_FOR_EVER),
                Head::Idle => self.refresh(class, false, cx.now),
            }
        }
    }

    #[inline]
    fn advance(&mut self, now: Instant) {
        while self.held_count > 0
            && let Some(class) = self.held.take_due(now)
        {
            self.held_count -= 1;
            self.sharing.enter(class, now, self.starts(now));
        }
        let _woken = self.sharing.advance(self.starts(now));
        #[cfg(test)]
        {
            self.woken += u64::from(_woken);
        }
    }

    /// What the child of a class gives, with its length. If it is nothing, the class is looked at anew, or held.
    #[inline(always)]
    fn take(&mut self, cx: &mut Cx, class: usize) -> Option<(PacketId, u32)> {
        match self.queue(class).take_plain(&cx.packets) {
            None => self.ask(cx, class),
            taken => taken,
        }
    }

    /// The same where it is not known without asking.
    #[inline(never)]
    fn ask(&mut self, cx: &mut Cx, class: usize) -> Option<(PacketId, u32)> {
        match self.queue(class).take(cx) {
            Next::Packet(id) => {
                let len = cx.packets.get(&id).len;
                return Some((id, len));
            }
            Next::At(at) => self.hold(class, at),
            Next::Held(_) => self.hold(class, HELD_FOR_EVER),
            // All that was there was dropped on the way out.
            Next::Idle if self.queue(class).is_empty() => self.refresh(class, false, cx.now),
            Next::Idle => {
                cx.broken("cbq", "a child with packets said that it had none");
                self.hold(class, HELD_FOR_EVER);
            }
        }
        None
    }

    /// What goes where no class may send: the packet of one that is overlimit, if the link is never to idle, or
    /// nothing. `None`: to be asked anew, because that class had nothing to give.
    #[inline(never)]
    fn go_without_right(&mut self, cx: &mut Cx) -> Option<Next> {
        let pick = if self.options.efficient { self.sharing.pick_any_borrower() } else { None };
        let Some(pick) = pick else {
            self.ask_inner(cx);
            return Some(if self.backlogged == 0 { Next::Idle } else { self.wait() });
        };
        let class = pick.class as usize;
        let (id, len) = self.take(cx, class)?;
        match self.sharing.gives {
            false => self.sent(cx, pick, len),
            true => self.gave(cx, class, len),
        }
        Some(Next::Packet(id))
    }

    /// When a class may send that may not now. No child is asked before that.
    #[inline(never)]
    fn wait(&mut self) -> Next {
        for n in 0..self.inner.len() {
            let class = self.inner[n] as usize;
            let at = self.held.get(class);
            let asks_anyway = self.options.efficient && self.sharing.members[class].lender != NONE;
            if at < HELD_FOR_EVER && !asks_anyway {
                // Its own time, but not before its share or a lender's allows it.
                self.held.set(class, at.max(self.sharing.wake_of_chain(class)).min(HELD_FOR_EVER));
            }
        }
        match (self.held.least(), self.sharing.next_wake()) {
            (Instant::NEVER, Instant::NEVER) => Next::Held(Cause::Rate),
            (HELD_FOR_EVER, Instant::NEVER) => Next::Held(Cause::Child),
            (held, wake) => Next::At(held.min(wake)),
        }
    }

    /// Everything that is made from the classes' settings, anew.
    fn rebuild(&mut self, now: Instant) {
        let gives = gives(&self.options, self.settings.first(), &self.link);
        for (member, settings) in self.sharing.members.iter_mut().zip(&self.settings) {
            let shape = settings.shape(&self.options, member.level == 1, gives, &self.link);
            member.of.estimator.shape(&shape, &self.link);
        }
        // Children that are held are asked again: until when depends on shares and lenders too.
        let held = |class: &usize| self.held.get(*class) != Instant::NEVER;
        let queued = (0..self.settings.len()).filter(|c| self.sharing.is_queued(*c) || held(c));
        let queued: Vec<usize> = queued.collect();
        let classes = core::mem::take(&mut self.sharing.members).into_iter().map(|member| member.of);
        self.sharing = sharing(&self.options, &self.settings, classes.collect(), &self.link);
        for class in queued {
            self.release(class);
            self.sharing.enter(class, now, self.starts(now));
        }
    }
}

fn sharing(
    options: &Options,
    settings: &[Settings],
    classes: Vec<CbqClass>,
    link: &Link,
) -> LinkSharing<CbqClass> {
    let position = |((s, quantum), class): ((&Settings, i64), &CbqClass)| Position {
        parent: s.parent,
        borrows: s.borrows && s.parent != NONE,
        priority: s.priority,
        quantum,
        wake: match s.parent {
            NONE if options.rule != Rule::AncestorOnly => Instant::ZERO,
            _ => class.estimator.wake(),
        },
    };
    let of_classes = settings.iter().zip(quanta(settings, link)).zip(&classes);
    let positions: Vec<Position> = of_classes.map(position).collect();
    let gives = gives(options, settings.first(), link);
    LinkSharing::new(&positions, classes, options.rule, options.prr, gives)
}

impl Discipline for Cbq {
    fn enqueue(&mut self, cx: &mut Cx, id: PacketId) -> Verdict {
        let Some(class) = self.routes.child(cx.packets.get(&id).leaf) else {
            cx.broken("cbq", "a packet came for a leaf that is not below");
            cx.drop(id, DropReason::Reconfigure);
            return Verdict::Dropped;
        };
        let child = self.queue(class);
        let was_empty = child.is_empty();
        let verdict = child.enqueue(cx, id);
        // What took a packet and had some still has some.
        if verdict == Verdict::Dropped || self.held_count > 0 {
            self.refresh(class, was_empty, cx.now);
            self.sharing.members[class].of.count.refused += u64::from(verdict == Verdict::Dropped);
        } else if was_empty {
            self.backlogged = self.backlogged.plus(1);
            self.sharing.enter(class, cx.now, self.starts(cx.now));
        }
        // A packet that found the queue full is demand too: a class that starves sees no others.
        self.sharing.arrived(class, self.starts(cx.now));
        verdict
    }

    fn dequeue(&mut self, cx: &mut Cx) -> Next {
        self.advance(cx.now);
        loop {
            if self.backlogged == 0 {
                return Next::Idle;
            }
            let Some(pick) = self.sharing.pick(self.starts(cx.now)) else {
                match self.go_without_right(cx) {
                    Some(next) => return next,
                    None => continue,
                }
            };
            if let Some((id, len)) = self.take(cx, pick.class as usize) {
                self.sent(cx, pick, len);
                return Next::Packet(id);
            }
        }
    }

    fn backlog(&self) -> Backlog {
        self.queues().fold(Backlog::default(), |sum, queue| sum + queue.backlog())
    }

    fn is_empty(&self) -> bool {
        self.backlogged == 0
    }

    fn flush(&mut self, cx: &mut Cx, reason: DropReason) {
        for class in 0..self.settings.len() {
            let was_empty = self.queue(class).is_empty();
            self.queue(class).flush(cx, reason);
            self.refresh(class, was_empty, cx.now);
        }
    }

    fn reconfigure(&mut self, cx: &mut Cx, class: &str, params: &Params) -> Result<(), ParamError> {
        if class.is_empty() {
            params::accept(ENTRY.params, Scope::Discipline, "", params)?;
            self.options = self.options.read(params)?;
            self.rebuild(cx.now);
            return Ok(());
        }
        let Some(index) = self.settings.iter().position(|s| s.name == class) else {
            for index in 0..self.settings.len() {
                let was_empty = self.queue(index).is_empty();
                match self.queue(index).reconfigure_below(cx, class, params) {
                    Err(error) if error.field == "class" => {}
                    Err(error) => return Err(error),
                    Ok(()) => {
                        self.refresh(index, was_empty, cx.now);
                        return Ok(());
                    }
                }
            }
            return Err(ParamError::new(class, "class", class, "a class of this interface"));
        };
        let new = self.settings[index].read(params, &self.link)?;
        let mut all = self.settings.clone();
        all[index] = new.clone();
        check_tree(&all)?;
        let was_empty = self.queue(index).is_empty();
        self.queue(index).reconfigure_queue(cx, class, params, ENTRY.params)?;
        self.refresh(index, was_empty, cx.now);
        if !params.has("qlimit")
            && new.queue_limit() != self.settings[index].queue_limit()
            && let Some(leaf) = self.queue(index).as_leaf_mut()
        {
            leaf.set_limit(new.queue_limit());
        }
        self.settings[index] = new;
        self.rebuild(cx.now);
        Ok(())
    }

    fn visit_stats(&self, visit: &mut dyn Visit) {
        // Without disciplines below, the classes are one run of places.
        let run = self.inner.is_empty();
        let shown = if run { visit.places(self.shown.len()) } else { 0..self.shown.len() };
        for &(index, depth) in &self.shown[shown] {
            let index = index as usize;
            let (settings, class) = (&self.settings[index], &self.sharing.members[index].of);
            if run {
                visit.class(&settings.name, depth);
            }
            if run || visit.wants(&settings.name, depth) {
                class.visit_stats(settings, self.sharing.quantum(index), visit);
            }
            class.queue.visit_stats(visit);
        }
    }

    fn check(&self, cx: &Cx) -> Result<(), Broken> {
        let broken = |what| Broken { discipline: "cbq", what };
        let mut backlogged = 0;
        for (class, child) in self.queues().enumerate() {
            child.check(cx)?;
            backlogged += u32::from(!child.is_empty());
            let held = self.held.get(class) != Instant::NEVER;
            if child.is_empty() != (!self.sharing.is_queued(class) && !held) {
                return Err(broken("a class with packets is neither scheduled nor held, or an empty one is"));
            }
            if child.is_empty() != (child.backlog().packets == 0) {
                return Err(broken("a child is empty and has a backlog"));
            }
        }
        if backlogged != self.backlogged {
            return Err(broken("the number of classes with packets is wrong"));
        }
        self.sharing.check(self.starts(cx.now)).map_err(broken)
    }

    fn on_sent(&mut self, cx: &mut Cx, id: &PacketId, at: Instant) {
        let row = cx.packets.get(id);
        let (Some(class), len) = (self.routes.child(row.leaf), row.len) else { return };
        if self.queue(class).as_leaf().is_none() {
            let was_empty = self.queue(class).is_empty();
            self.queue(class).on_sent(cx, id, at);
            self.refresh(class, was_empty, cx.now);
        }
        if self.options.callback {
            let on_link = cx.link.time_for(len);
            let start = Fine::from(at).saturating_sub(on_link);
            self.link_free = self.idle_until(start) + on_link;
            match &mut self.sharing.members[class].of.count.uncharged {
                0 => {
                    let bytes = cx.link.cost_bytes(len);
                    let packet = Transmission { bytes, start, on_link, busy: self.busy };
                    self.charge(class, &packet, self.starts(cx.now));
                }
                free => *free -= 1,
            }
        }
    }

    fn hears_sent(&self) -> bool {
        !self.inner.is_empty() || self.options.callback
    }

    /// A discipline below may have dropped what its class waits with.
    fn turns_when_empty(&self) -> bool {
        !self.inner.is_empty()
    }
}
