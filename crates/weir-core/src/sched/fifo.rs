//! FIFO: packets leave in the order in which they came.
//!
//! Principle: one queue. When it is full, what arrives is dropped.
//! Paper: ALTQ (Cho, USENIX 1998, section 3.1) ships it as FIFOQ, the template for disciplines
//! (A33); the same file serves every discipline that is one queue with an AQM.
//! Cost: a list operation per packet; no memory beyond the packets.
//! Guarantees: drops only when full (`a33_drops_only_when_full`).
//! Parameters: `qlimit` (packets, 1 to 1000000, 50), `drop-head` (when the queue is full the oldest
//! packet is dropped).

use super::node::Node;
use super::registry::{Builder, Entry};
use crate::aqm;
use crate::packet::PacketId;
use crate::queue::{
    Alias, Backlog, Broken, Child, Cx, Discipline, DropReason, Leaf, Next, ParamError, Params, Scope,
    Verdict, Visit, params,
};
use alloc::borrow::ToOwned;
use alloc::boxed::Box;

pub(super) const ENTRY: Entry = Entry {
    name: "fifoq",
    aliases: &[Alias { name: "fifo", implies: None }],
    source: include_str!("fifo.rs"),
    params: &[aqm::TAIL_PARAMS],
    build: Some(build),
    ..Entry::PLAIN
};

impl Node {
    /// One queue that drops from its tail: for a port that needs no more.
    pub fn plain() -> Node {
        Node { discipline: ENTRY.name.to_owned(), ..Node::default() }
    }
}

/// `fifoq`, or the AQM of the node's name as a discipline.
pub(super) fn build(node: &Node, builder: &mut Builder<'_>) -> Result<Box<dyn Discipline>, ParamError> {
    Ok(Box::new(Fifo::new(builder.own_queue(node)?)))
}

/// One queue.
pub struct Fifo {
    queue: Child,
    /// It takes no parameters.
    fixed: bool,
}

impl Fifo {
    /// The queue `leaf` as a discipline.
    pub fn new(leaf: Leaf) -> Self {
        Fifo { queue: Child::leaf(leaf), fixed: false }
    }
    /// The same, for one that takes no parameters.
    pub(super) fn fixed(leaf: Leaf) -> Self {
        Fifo { fixed: true, ..Fifo::new(leaf) }
    }
}

impl Discipline for Fifo {
    fn enqueue(&mut self, cx: &mut Cx, id: PacketId) -> Verdict {
        self.queue.enqueue(cx, id)
    }
    fn dequeue(&mut self, cx: &mut Cx) -> Next {
        // Nobody asks this queue for its head, so it holds no packet.
        self.queue.pull(cx)
    }
    fn backlog(&self) -> Backlog {
        self.queue.backlog()
    }
    fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
    fn flush(&mut self, cx: &mut Cx, reason: DropReason) {
        self.queue.flush(cx, reason);
    }
    fn reconfigure(&mut self, cx: &mut Cx, class: &str, params: &Params) -> Result<(), ParamError> {
        if self.fixed {
            params::accept(&[], Scope::Discipline, "", params)?;
        }
        if class.is_empty() {
            self.queue.reconfigure_queue(cx, class, params, &[])
        } else {
            self.queue.reconfigure_below(cx, class, params)
        }
    }
    fn visit_stats(&self, visit: &mut dyn Visit) {
        self.queue.visit_stats(visit);
    }
    fn check(&self, cx: &Cx) -> Result<(), Broken> {
        self.queue.check(cx)
    }
    fn hears_sent(&self) -> bool {
        false
    }
    fn turns_when_empty(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{FrameRef, Meta};
    use crate::queue::Link;
    use crate::units::{Instant, Rate};

    #[test]
    fn a33_drops_only_when_full() {
        let mut cx = Cx::new(8, Link::new(Rate::from_mbps(10), 24, 1514), 1);
        let mut fifo = Fifo::new(Leaf::tail_drop(2));
        for n in 0..3 {
            let id = cx.packets.insert(Meta::new(100 + n, Instant::ZERO, FrameRef(n))).unwrap();
            assert_eq!(fifo.enqueue(&mut cx, id) == Verdict::Queued, n < 2, "packet {n}");
        }
        let (dropped, reason) = cx.next_dropped().unwrap();
        assert_eq!((cx.packets.get(&dropped).len, reason), (102, DropReason::Tail));
        for n in 0..2 {
            let Next::Packet(id) = fifo.dequeue(&mut cx) else { panic!("two packets wait") };
            assert_eq!(cx.packets.get(&id).len, 100 + n);
        }
        assert_eq!(fifo.dequeue(&mut cx), Next::Idle);
    }
}
