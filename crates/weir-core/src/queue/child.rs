//! A parent's child: a leaf, or another discipline, with the packet that it has shown.
//!
//! `head` shows what goes next and `take` gives exactly that, whatever arrives or how time moves
//! in between (A06: ALTQ's peek guarantee, proved once here for every discipline). For an inner
//! discipline `head` is a dequeue whose packet is held; a leaf whose AQM decides at arrival is
//! only looked at. Backlog, flush and statistics include the held packet, and pushing out never
//! takes it. The price is one packet of inversion per level that uses `head`.

use super::head::{Head, Held};
use super::{
    Backlog, Broken, Cx, Discipline, DropReason, Leaf, Next, ParamError, ParamSpec, Params, Scope, Verdict,
    Visit, params,
};
use crate::packet::{Meta, PacketId, PacketTable};
use crate::units::Instant;
use alloc::boxed::Box;
use core::ops::Range;

/// Another discipline, and what it has shown: a child that is no leaf, and the tree of a port.
pub(crate) struct Inner {
    discipline: Box<dyn Discipline>,
    held: Held,
    /// What the discipline has said of itself.
    hears_sent: bool,
    turns_when_empty: bool,
}

impl Inner {
    pub(crate) fn new(discipline: Box<dyn Discipline>) -> Self {
        let (hears_sent, turns_when_empty) = (discipline.hears_sent(), discipline.turns_when_empty());
        Inner { discipline, held: Held::default(), hears_sent, turns_when_empty }
    }
    pub(crate) fn reconfigure(
        &mut self,
        cx: &mut Cx,
        class: &str,
        params: &Params,
    ) -> Result<(), ParamError> {
        let result = self.discipline.reconfigure(cx, class, params);
        self.hears_sent = self.discipline.hears_sent();
        self.turns_when_empty = self.discipline.turns_when_empty();
        result
    }
    #[inline(always)]
    pub(crate) fn enqueue(&mut self, cx: &mut Cx, id: PacketId) -> Verdict {
        self.discipline.enqueue(cx, id)
    }
    /// As `Child::head`.
    #[inline(always)]
    pub(crate) fn head(&mut self, cx: &mut Cx) -> Head {
        match self.held.head() {
            Some(head) => head,
            None => self.hold(cx),
        }
    }
    /// As `Child::take`.
    #[inline(always)]
    pub(crate) fn take(&mut self, cx: &mut Cx) -> Next {
        match self.held.take() {
            Some(id) => Next::Packet(id),
            None => self.discipline.dequeue(cx),
        }
    }
    /// The packet that is held included.
    pub(crate) fn backlog(&self) -> Backlog {
        self.discipline.backlog() + self.held.backlog()
    }
    pub(crate) fn flush(&mut self, cx: &mut Cx, reason: DropReason) {
        if let Some(id) = self.held.take() {
            cx.drop(id, reason);
        }
        self.discipline.flush(cx, reason);
    }
    pub(crate) fn visit_stats(&self, visit: &mut dyn Visit) {
        self.discipline.visit_stats(visit);
    }
    pub(crate) fn check(&self, cx: &Cx) -> Result<(), Broken> {
        self.discipline.check(cx)
    }
    #[inline(always)]
    pub(crate) fn on_sent(&mut self, cx: &mut Cx, id: &PacketId, at: Instant) {
        if self.hears_sent {
            self.discipline.on_sent(cx, id, at);
        }
    }
    #[inline(always)]
    pub(crate) fn hears_sent(&self) -> bool {
        self.hears_sent
    }
    #[inline(always)]
    pub(crate) fn turns_when_empty(&self) -> bool {
        self.turns_when_empty
    }
    /// Pulls the next packet and holds it.
    fn hold(&mut self, cx: &mut Cx) -> Head {
        match self.discipline.dequeue(cx) {
            Next::Packet(id) => self.held.hold(id, cx),
            Next::At(at) => Head::At(at),
            Next::Held(cause) => Head::Held(cause),
            Next::Idle => Head::Idle,
        }
    }
}

enum Queue {
    Leaf(Leaf),
    Inner(Inner),
}

/// A child of a discipline.
pub struct Child {
    queue: Queue,
}

const _: () = assert!(size_of::<Child>() <= 40, "a class and its queue share a cache line");

impl Child {
    /// A leaf as a child.
    pub fn leaf(leaf: Leaf) -> Self {
        Child { queue: Queue::Leaf(leaf) }
    }
    /// A discipline as a child.
    pub fn inner(discipline: Box<dyn Discipline>) -> Self {
        Child { queue: Queue::Inner(Inner::new(discipline)) }
    }
    /// Offers a packet.
    #[inline]
    pub fn enqueue(&mut self, cx: &mut Cx, id: PacketId) -> Verdict {
        match &mut self.queue {
            Queue::Leaf(leaf) => leaf.enqueue(cx, id),
            Queue::Inner(inner) => inner.enqueue(cx, id),
        }
    }
    /// What goes next. Asked again it says the same, until `take`, or for `At`, `Held` and `Idle`
    /// until an arrival or the passing of time.
    #[inline]
    pub fn head(&mut self, cx: &mut Cx) -> Head {
        match &mut self.queue {
            Queue::Leaf(leaf) => leaf.head(cx),
            Queue::Inner(inner) => inner.head(cx),
        }
    }
    /// The packet that is held.
    #[inline(always)]
    fn held(&self) -> Option<&Held> {
        match &self.queue {
            Queue::Leaf(leaf) => leaf.held(),
            Queue::Inner(inner) => Some(&inner.held),
        }
    }
    /// What goes next, where that is known without asking: of a leaf that decides nothing at departure.
    #[inline(always)]
    pub(crate) fn look(&mut self, cx: &Cx) -> Option<Head> {
        match &mut self.queue {
            Queue::Leaf(leaf) if !leaf.decides_at_departure() => Some(leaf.show_head(&cx.packets)),
            _ => None,
        }
    }
    /// The row of the packet that `head` has shown: its arrival, flow, class and length, for
    /// schedulers that choose by them. `None` where `head` showed no packet, or where the packet
    /// was taken since. It stays the same for as long as `head` does (A06).
    #[inline]
    pub fn head_meta<'c>(&self, cx: &'c Cx) -> Option<&'c Meta> {
        match (self.held().and_then(|held| held.packet.get(&cx.packets)), &self.queue) {
            (Some(row), _) => Some(row),
            (None, Queue::Leaf(leaf)) => leaf.shown(&cx.packets),
            (None, Queue::Inner(_)) => None,
        }
    }
    /// Takes what `head` showed; without a `head` before it, a plain dequeue.
    #[inline(always)]
    pub fn take(&mut self, cx: &mut Cx) -> Next {
        match &mut self.queue {
            Queue::Leaf(leaf) => leaf.take(cx).map_or(Next::Idle, Next::Packet),
            Queue::Inner(inner) => inner.take(cx),
        }
    }
    /// `take` where `head` has just shown a packet: `None` only if the child breaks the contract.
    ///
    /// Its answer fits a register; that of `take` goes through memory, which costs a hot path 4 ns.
    #[inline(always)]
    pub fn take_shown(&mut self, cx: &mut Cx) -> Option<PacketId> {
        match &mut self.queue {
            Queue::Leaf(leaf) => leaf.take(cx),
            Queue::Inner(inner) => match inner.held.take() {
                None => match inner.discipline.dequeue(cx) {
                    Next::Packet(id) => Some(id),
                    Next::At(_) | Next::Held(_) | Next::Idle => None,
                },
                id => id,
            },
        }
    }
    /// Takes what goes next, and says its length, where nobody need be asked: of a leaf for which that departure is
    /// nothing but a departure. `None`: `take` knows.
    #[inline(always)]
    pub(crate) fn take_plain(&mut self, packets: &PacketTable) -> Option<(PacketId, u32)> {
        match &mut self.queue {
            Queue::Leaf(leaf) => leaf.dequeue_plain(packets),
            Queue::Inner(_) => None,
        }
    }
    /// A plain dequeue, where `head` was not called before.
    #[inline(always)]
    pub(crate) fn pull(&mut self, cx: &mut Cx) -> Next {
        debug_assert!(self.held().and_then(Held::head).is_none(), "a packet that is held is passed over");
        match &mut self.queue {
            Queue::Leaf(leaf) => leaf.pull(cx),
            Queue::Inner(inner) => inner.discipline.dequeue(cx),
        }
    }
    /// What is waiting, the held packet included.
    pub fn backlog(&self) -> Backlog {
        match &self.queue {
            Queue::Leaf(leaf) => leaf.backlog() + self.held_backlog(),
            Queue::Inner(inner) => inner.backlog(),
        }
    }
    fn held_backlog(&self) -> Backlog {
        self.held().map_or(Backlog::default(), Held::backlog)
    }
    /// True if nothing is waiting.
    #[inline]
    pub fn is_empty(&self) -> bool {
        match &self.queue {
            Queue::Leaf(leaf) => leaf.is_empty() && leaf.held().and_then(Held::head).is_none(),
            Queue::Inner(inner) => inner.held.packet.is_empty() && inner.discipline.is_empty(),
        }
    }
    /// Drops everything.
    pub fn flush(&mut self, cx: &mut Cx, reason: DropReason) {
        match &mut self.queue {
            Queue::Leaf(leaf) => {
                if let Some(id) = leaf.take_held() {
                    cx.drop(id, reason);
                }
                leaf.flush(cx, reason);
            }
            Queue::Inner(inner) => inner.flush(cx, reason),
        }
    }
    /// The leaf, if this child is one.
    pub fn as_leaf(&self) -> Option<&Leaf> {
        match &self.queue {
            Queue::Leaf(leaf) => Some(leaf),
            Queue::Inner(_) => None,
        }
    }
    /// The leaf, if this child is one, to choose a victim from.
    pub fn as_leaf_mut(&mut self) -> Option<&mut Leaf> {
        match &mut self.queue {
            Queue::Leaf(leaf) => Some(leaf),
            Queue::Inner(_) => None,
        }
    }
    /// Hands `reconfigure` for `class` on to an inner discipline.
    ///
    /// # Errors
    /// As the inner discipline; for a leaf always, since it has no classes below.
    pub fn reconfigure_below(&mut self, cx: &mut Cx, class: &str, params: &Params) -> Result<(), ParamError> {
        match &mut self.queue {
            Queue::Inner(inner) => inner.reconfigure(cx, class, params),
            Queue::Leaf(_) => Err(ParamError::new(class, "class", class, "a class of this interface")),
        }
    }
    /// Hands `reconfigure` for `class` to the first of `children` that has it below.
    ///
    /// # Errors
    /// What that child refuses; or that no child has the class.
    pub fn reconfigure_one_of<'c>(
        children: impl Iterator<Item = &'c mut Child>,
        cx: &mut Cx,
        class: &str,
        params: &Params,
    ) -> Result<(), ParamError> {
        for child in children {
            match child.reconfigure_below(cx, class, params) {
                Err(error) if error.field == "class" => {}
                known => return known,
            }
        }
        Err(ParamError::new(class, "class", class, "a class of this interface"))
    }
    /// Changes the queue of this very class: a leaf's limit and AQM, or an inner discipline's own
    /// parameters. `own` are the parameters that the parent declares. This checks the kind and the
    /// range of each, and hands on those that the queue knows too. A parameter that neither the
    /// parent nor the queue knows is refused. Call this before the parent changes anything.
    ///
    /// # Errors
    /// What is not known, not of its kind or out of range; what the AQM or the inner discipline
    /// refuses.
    pub fn reconfigure_queue(
        &mut self,
        cx: &mut Cx,
        class: &str,
        params: &Params,
        own: &[&'static [ParamSpec]],
    ) -> Result<(), ParamError> {
        let mut theirs = Params::new();
        for (name, value) in params.iter() {
            let declared = params::find(own, Scope::Class, name);
            if let Some(spec) = declared {
                spec.accept(class, value)?;
            }
            let passed_on = match &self.queue {
                Queue::Leaf(leaf) => leaf.knows(name),
                Queue::Inner(_) => false,
            };
            if passed_on || declared.is_none_or(crate::aqm::params::is_about_queue) {
                theirs.set(name, value.clone());
            }
        }
        match &mut self.queue {
            Queue::Leaf(leaf) => leaf.reconfigure(class, &theirs, &cx.link),
            // All of it was the parent's. A change of nothing is the queue's to judge, as if it stood alone.
            Queue::Inner(_) if theirs.iter().next().is_none() && params.iter().next().is_some() => Ok(()),
            Queue::Inner(inner) => inner.reconfigure(cx, "", &theirs),
        }
    }
    /// Shows the queue; an inner discipline shows its classes too.
    pub fn visit_stats(&self, visit: &mut dyn Visit) {
        match &self.queue {
            Queue::Leaf(leaf) if visit.listens() => leaf.visit_stats(self.held_backlog(), visit),
            Queue::Leaf(_) => {}
            Queue::Inner(inner) => inner.visit_stats(visit),
        }
    }
    /// Verifies the invariants below.
    ///
    /// # Errors
    /// The first that does not hold.
    pub fn check(&self, cx: &Cx) -> Result<(), Broken> {
        match &self.queue {
            Queue::Leaf(leaf) if leaf.is_sound(&cx.packets) => Ok(()),
            Queue::Leaf(_) => Err(Broken { discipline: "leaf", what: "list and counters disagree" }),
            Queue::Inner(inner) => inner.check(cx),
        }
    }
    /// Tells an inner discipline that a packet which it gave has left, unless it does not listen.
    #[inline]
    pub fn on_sent(&mut self, cx: &mut Cx, id: &PacketId, at: Instant) {
        if let Queue::Inner(inner) = &mut self.queue {
            inner.on_sent(cx, id, at);
        }
    }
    /// True if `on_sent` may change something.
    #[inline]
    pub fn hears_sent(&self) -> bool {
        matches!(&self.queue, Queue::Inner(inner) if inner.hears_sent)
    }
    /// True if it may change something to ask it for a packet where none waits.
    #[inline]
    pub fn turns_when_empty(&self) -> bool {
        matches!(&self.queue, Queue::Inner(inner) if inner.turns_when_empty)
    }
}

/// Which child a leaf lies below: one look-up at most.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    first: u32,
    leaves: u32,
    /// The child of each leaf; empty where each child is one leaf, in their order.
    child: Box<[u32]>,
}

impl Routes {
    /// For children whose leaves are those ranges, side by side in any order.
    pub fn new(ranges: &[Range<u32>]) -> Self {
        let first = ranges.iter().map(|r| r.start).min().unwrap_or(0);
        let leaves = ranges.iter().map(|r| r.end).max().unwrap_or(first) - first;
        if (first..).zip(ranges).all(|(leaf, range)| *range == (leaf..leaf + 1)) {
            return Routes { first, leaves, child: Box::default() };
        }
        let mut child = alloc::vec![0; leaves as usize];
        for (index, range) in ranges.iter().enumerate() {
            for leaf in range.clone() {
                child[(leaf - first) as usize] = index as u32;
            }
        }
        Routes { first, leaves, child: child.into_boxed_slice() }
    }
    /// The child of that leaf; `None` for a leaf that is not below this node, which the port
    /// never sends.
    #[inline]
    pub fn child(&self, leaf: u32) -> Option<usize> {
        let at = leaf.wrapping_sub(self.first);
        if self.child.is_empty() {
            return (at < self.leaves).then_some(at as usize);
        }
        self.child.get(at as usize).map(|&c| c as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    /// Children of one leaf each, of several, of none, and in another order than their leaves.
    #[test]
    fn a_leaf_leads_to_its_child() {
        for ranges in [
            vec![7..8, 8..9, 9..10],
            vec![7..8, 9..10, 8..9],
            vec![7..9, 9..9, 9..10],
            vec![9..10, 7..9],
            vec![7..7, 7..10],
        ] {
            let routes = Routes::new(&ranges);
            for leaf in 0..20 {
                let below = ranges.iter().position(|range| range.contains(&leaf));
                assert_eq!(routes.child(leaf), below, "leaf {leaf} of {ranges:?}");
            }
        }
        assert_eq!(Routes::new(&[]).child(0), None);
    }
}
