//! Hashed flow queues in a ring, under one limit of bytes: what WFQ and DRR share.
//!
//! All memory is taken when the table is built, so a million forged flows grow nothing: they
//! share the queues that are there. A flow stays in the ring, possibly without packets, until
//! its scheduler retires it.

use super::keyed_hash::KeyedHash;
use super::longest::Longest;
use crate::packet::{List, NIL, PacketId};
use crate::queue::params::{default_of, default_word};
use crate::queue::{Backlog, Broken, Cx, DropReason, Kind, ParamError, ParamSpec, Params, Verdict, Visit};
use crate::units::Bounded;
use alloc::vec::Vec;

/// One queue.
#[repr(align(64))]
pub(super) struct Flow {
    pub list: List,
    /// What it may send, in the unit of the scheduler. A turn and a packet are below 2^40 each, and a queue whose
    /// credit exceeds the one has no turn, nor sends if it owes the other: so credits are below 2^41.
    pub credit: i64,
    /// What a visit adds to it.
    pub quantum: u32,
    /// 2^16 / share: the longest queue is that of the most bytes times this.
    pub burden: u32,
    next: u32,
    in_ring: bool,
    /// Counted one by one: no machine comes to 2^64.
    sent: u64,
    dropped: u64,
}

impl Flow {
    /// Its bytes by its share.
    fn length(&self) -> u64 {
        self.list.bytes() * u64::from(self.burden)
    }
}

/// All queues of one discipline.
pub(super) struct Flows {
    flows: Vec<Flow>,
    /// Ceiling of 2^64 / number of queues, for a remainder without a division (Lemire, Kaser and
    /// Kurz, "Faster remainder by direct computation", 2019).
    reciprocal: u64,
    /// The last of the ring; the one after it is the current one.
    tail: u32,
    in_ring: u32,
    /// At most the rows of a table.
    packets: u32,
    /// Of fewer than 2^32 rows, below 2^32 each.
    bytes: u64,
    limit_bytes: u64,
    longest: Longest,
    key: Key,
    /// For source ports: the port has hashed addresses and 5-tuples with its seed already.
    ports: KeyedHash,
}

/// What makes a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Key {
    DstAddr,
    Full,
    SrcPort,
    SrcAddr,
}

impl Key {
    pub const WORDS: &'static [&'static str] = &["dstaddr", "full", "srcport", "srcaddr"];

    fn of(word: &str) -> Key {
        match word {
            "full" => Key::Full,
            "srcport" => Key::SrcPort,
            "srcaddr" => Key::SrcAddr,
            _ => Key::DstAddr,
        }
    }
    fn word(self) -> &'static str {
        Key::WORDS[self as usize]
    }
}

/// `nqueues`, `qsize` and `hash`, with the defaults of one discipline.
pub(super) const fn params(nqueues: &'static str, qsize: &'static str, hash: &'static str) -> [ParamSpec; 3] {
    [
        ParamSpec::discipline(
            "nqueues",
            Kind::Count { min: 1, max: 65_536 },
            nqueues,
            "Queues that flows are hashed to.",
        ),
        ParamSpec::discipline(
            "qsize",
            Kind::Bytes { min: 1_500, max: 1 << 32 },
            qsize,
            "Bytes that all queues hold together.",
        ),
        ParamSpec::discipline(
            "hash",
            Kind::Word(Key::WORDS),
            hash,
            "What makes a flow. The hash is keyed by the port's seed.",
        ),
    ]
}

impl Flows {
    /// Queues as `params` say, by the declarations `specs` (made by `params`), each with that quantum.
    pub fn new(params: &Params, specs: &[ParamSpec; 3], quantum: u32) -> Self {
        let count = params.count("nqueues").unwrap_or(default_of(specs, "nqueues"));
        let flow = |_| Flow {
            list: List::new(),
            credit: 0,
            quantum,
            burden: 1 << 16,
            next: NIL,
            in_ring: false,
            sent: 0,
            dropped: 0,
        };
        Flows {
            flows: (0..count).map(flow).collect(),
            reciprocal: (u64::MAX / count).wrapping_add(1),
            tail: NIL,
            in_ring: 0,
            packets: 0,
            bytes: 0,
            limit_bytes: params.bytes("qsize").unwrap_or(default_of(specs, "qsize")),
            longest: Longest::new(count as usize),
            key: Key::of(params.word("hash").unwrap_or(default_word(specs, "hash"))),
            ports: KeyedHash::UNDRAWN,
        }
    }
    /// Changes `qsize`; the number of queues and the hash are fixed, for a flow that moved to
    /// another queue would overtake itself.
    pub fn reconfigure(&mut self, cx: &mut Cx, params: &Params) -> Result<(), ParamError> {
        const FIXED: &str = "what it was: a flow must not change queues while packets wait; \
                             write it on the interface line and load the file anew";
        if let Some(count) = params.count("nqueues").filter(|&n| n != self.flows.len() as u64) {
            return Err(ParamError::new("", "nqueues", count, FIXED));
        }
        if let Some(word) = params.word("hash").filter(|&w| w != self.key.word()) {
            return Err(ParamError::new("", "hash", word, FIXED));
        }
        if let Some(bytes) = params.bytes("qsize") {
            self.limit_bytes = bytes;
            self.shed(cx, usize::MAX);
        }
        Ok(())
    }
    /// The queue of a packet: hash mod number of queues, or the keyed hash of the source port.
    #[inline(always)]
    pub fn queue_of(&mut self, cx: &mut Cx, id: &PacketId) -> usize {
        let row = cx.packets.get(id);
        let hash = match self.key {
            Key::DstAddr => row.dst_hash,
            Key::Full => row.flow,
            Key::SrcPort => {
                let port = u32::from(row.src_port);
                return self.ports.queue_of(cx, port, self.flows.len());
            }
            Key::SrcAddr => row.src_hash,
        };
        let fraction = self.reciprocal.wrapping_mul(u64::from(hash));
        ((u128::from(fraction) * self.flows.len() as u128) >> 64) as usize
    }
    /// Queues a packet; a flow that was not in the ring joins at its end without credit.
    // Inlined by force, as the other three on a packet's path: calls cost 2 ns of 13.
    #[inline(always)]
    pub fn enqueue(&mut self, cx: &mut Cx, id: PacketId) -> Verdict {
        let (_, row) = self.put::<true>(cx, id);
        self.settle(cx, row)
    }
    /// Queues a packet, for a scheduler with an order of its own: the number of its queue, and
    /// the row that `settle` wants.
    #[inline(always)]
    pub fn admit(&mut self, cx: &mut Cx, id: PacketId) -> (usize, usize) {
        self.put::<false>(cx, id)
    }
    #[inline(always)]
    fn put<const JOINS: bool>(&mut self, cx: &mut Cx, id: PacketId) -> (usize, usize) {
        let (index, row) = (self.queue_of(cx, &id), id.index());
        self.bytes = self.bytes.plus(cx.packets.get(&id).len.into());
        self.packets = self.packets.plus(1);
        let flow = &mut self.flows[index];
        flow.list.push_back(&mut cx.packets, id);
        if JOINS && !flow.in_ring {
            self.join(index);
        }
        if self.longest.is_awake() {
            self.longest.grown(index as u32, self.flows[index].length());
        }
        (index, row)
    }
    /// Holds the limit after the packet of that row was queued, and says what became of it.
    #[inline(always)]
    pub fn settle(&mut self, cx: &mut Cx, row: usize) -> Verdict {
        if self.bytes > self.limit_bytes && !self.shed(cx, row) { Verdict::Dropped } else { Verdict::Queued }
    }
    fn join(&mut self, index: usize) {
        let next = match self.tail {
            NIL => index as u32,
            tail => core::mem::replace(&mut self.flows[tail as usize].next, index as u32),
        };
        let flow = &mut self.flows[index];
        (flow.in_ring, flow.next) = (true, next);
        self.tail = index as u32;
        self.in_ring += 1;
    }
    /// Drops heads of the longest queue until the limit holds; false if the packet of that row
    /// was among them.
    #[inline(never)]
    fn shed(&mut self, cx: &mut Cx, row: usize) -> bool {
        let mut survives = true;
        while self.bytes > self.limit_bytes && !cx.adopting() {
            let Some(longest) = self.find_longest() else { break };
            let flow = &mut self.flows[longest];
            let Some(victim) = flow.list.pop_front(&mut cx.packets) else { break };
            flow.dropped += 1;
            survives &= victim.index() != row;
            self.packets -= 1;
            self.bytes -= u64::from(cx.packets.get(&victim).len);
            cx.drop(victim, DropReason::Pushout);
        }
        survives
    }
    /// The queue of the most bytes by its share.
    fn find_longest(&mut self) -> Option<usize> {
        if !self.longest.is_awake() {
            let flows = self.flows.iter().enumerate().filter(|(_, flow)| !flow.list.is_empty());
            self.longest.wake(flows.map(|(index, flow)| (index as u32, flow.length())));
        }
        self.longest.longest(|index| self.flows[index as usize].length()).map(|index| index as usize)
    }
    /// The share of one queue: what a turn adds, and 2^16 / share for its length.
    pub fn set_share(&mut self, index: usize, quantum: u32, burden: u32) -> bool {
        let Some(flow) = self.flows.get_mut(index) else { return false };
        (flow.quantum, flow.burden) = (quantum, burden);
        // Lengths count anew.
        self.longest.sleep();
        true
    }
    /// What a turn adds to any queue.
    pub fn set_quantum(&mut self, quantum: u32) {
        self.flows.iter_mut().for_each(|flow| flow.quantum = quantum);
    }
    /// The queue whose turn it is.
    pub fn current(&self) -> Option<usize> {
        self.flows.get(self.tail as usize).map(|tail| tail.next as usize)
    }
    /// The queue of that number, which a method of this table has given.
    pub fn queue(&mut self, index: usize) -> &mut Flow {
        &mut self.flows[index]
    }
    /// The turn passes from the current queue, which is `index`, to the next of the ring.
    #[inline(always)]
    pub fn rotate(&mut self, index: usize) {
        debug_assert_eq!(self.current(), Some(index), "the turn is passed by whose turn it is not");
        self.tail = index as u32;
    }
    /// The current queue, which is `index`, leaves the ring, and its credit is forgotten.
    pub fn retire(&mut self, index: usize) {
        let flow = &mut self.flows[index];
        (flow.in_ring, flow.credit) = (false, 0);
        let next = flow.next;
        self.in_ring -= 1;
        if next as usize == index {
            self.tail = NIL;
        } else {
            self.flows[self.tail as usize].next = next;
        }
    }
    /// The first packet of that queue, with its length.
    #[inline(always)]
    pub fn take_from(&mut self, cx: &mut Cx, index: usize) -> Option<(PacketId, u32)> {
        let flow = &mut self.flows[index];
        let (id, len) = flow.list.take_front(&cx.packets)?;
        flow.sent = flow.sent.plus(1);
        self.packets = self.packets.less(1);
        self.bytes = self.bytes.less(len.into());
        if self.longest.is_awake() && self.bytes * 2 < self.limit_bytes {
            self.longest.sleep();
        }
        Some((id, len))
    }
    /// Number of queues.
    pub fn len(&self) -> usize {
        self.flows.len()
    }
    /// True if that queue holds nothing.
    pub fn queue_is_empty(&self, index: usize) -> bool {
        self.flows[index].list.is_empty()
    }
    /// Flows in the ring, with or without packets.
    pub fn in_ring(&self) -> u32 {
        self.in_ring
    }
    /// Each flow of the ring, the current one first.
    pub fn for_each_in_ring(&mut self, mut visit: impl FnMut(&mut Flow)) {
        let mut at = self.tail;
        for _ in 0..self.in_ring {
            at = self.flows[at as usize].next;
            visit(&mut self.flows[at as usize]);
        }
    }
    pub fn backlog(&self) -> Backlog {
        Backlog { packets: u64::from(self.packets), bytes: self.bytes }
    }
    pub fn is_empty(&self) -> bool {
        self.packets == 0
    }
    /// Drops everything; nobody keeps credit or debt.
    pub fn flush(&mut self, cx: &mut Cx, reason: DropReason) {
        for flow in &mut self.flows {
            while let Some(id) = flow.list.pop_front(&mut cx.packets) {
                cx.drop(id, reason);
            }
            (flow.in_ring, flow.credit) = (false, 0);
        }
        (self.tail, self.in_ring, self.packets, self.bytes) = (NIL, 0, 0, 0);
        self.longest.sleep();
    }
    pub fn visit_stats(&self, visit: &mut dyn Visit) {
        if !visit.listens() {
            return;
        }
        visit.value("backlog", "packets", i64::from(self.packets));
        visit.value("backlog_bytes", "bytes", self.bytes as i64);
        visit.value("limit_bytes", "bytes", self.limit_bytes as i64);
        visit.value("queues", "", self.flows.len() as i64);
        visit.value("queues_busy", "", self.flows.iter().filter(|f| !f.list.is_empty()).count() as i64);
        visit.value("pushed_out", "packets", self.flows.iter().map(|f| f.dropped).sum::<u64>() as i64);
        visit.value(
            "longest_bytes",
            "bytes",
            self.flows.iter().map(|f| f.list.bytes()).max().unwrap_or(0) as i64,
        );
    }
    /// Every queue that has packets, or has had any, as a class `queue N` in the Nth place.
    pub fn visit_queues(&self, visit: &mut dyn Visit, quantum: &'static str, unit: &'static str, per: u32) {
        for index in visit.places(self.flows.len()) {
            let flow = &self.flows[index];
            if flow.sent + flow.dropped > 0 || !flow.list.is_empty() {
                visit.class(&alloc::format!("queue {index}"), 1);
                visit.value(quantum, unit, i64::from(flow.quantum / per));
                visit.value("backlog_bytes", "bytes", flow.list.bytes() as i64);
                visit.value("sent", "packets", flow.sent as i64);
                visit.value("dropped", "packets", flow.dropped as i64);
            }
        }
    }
    pub fn check(&self, cx: &Cx) -> Result<(), Broken> {
        let broken = |what| Err(Broken { discipline: "flows", what });
        let (mut packets, mut bytes, mut ring) = (0, 0, 0);
        for flow in &self.flows {
            packets += flow.list.packets();
            bytes += flow.list.bytes();
            ring += u32::from(flow.in_ring);
            if !flow.list.is_sound(&cx.packets) {
                return broken("a queue is unsound");
            }
        }
        if (packets, bytes, ring) != (self.packets, self.bytes, self.in_ring) {
            return broken("totals and queues disagree");
        }
        Ok(())
    }
    /// Verifies the ring, for schedulers that use it.
    pub fn check_ring(&self) -> Result<(), Broken> {
        let broken = |what| Err(Broken { discipline: "flows", what });
        if self.flows.iter().any(|flow| !flow.list.is_empty() && !flow.in_ring) {
            return broken("a queue has packets and is not in the ring");
        }
        let mut at = self.tail;
        for _ in 0..self.in_ring {
            match self.flows.get(at as usize) {
                Some(flow) if flow.in_ring => at = flow.next,
                _ => return broken("the ring leads out of itself"),
            }
        }
        if at == self.tail { Ok(()) } else { broken("the ring does not close") }
    }
}
