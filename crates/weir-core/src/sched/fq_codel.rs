//! FQ-CoDel: fair queues, each managed by CoDel, with new flows first.
//!
//! Principle: a keyed hash puts each flow into one of a fixed number of queues, which deficit
//! round robin serves by bytes. A queue that just became busy is served before all that have been
//! busy for a turn. So a flow that sends less than its share (a key press, a DNS answer) never
//! waits behind a download. Each queue has a CoDel of its own: the flow that builds a queue is the
//! one that is told to slow down.
//! Paper: Hoeiland-Joergensen, McKenney, Taht, Gettys and Dumazet, "The Flow Queue CoDel Packet
//! Scheduler and Active Queue Management Algorithm", RFC 8290, 2018: section 4.1 is `enqueue`,
//! with the longest queue paying, 4.2 `dequeue`. CoDel: see `codel`.
//! Where we differ, and why: the hash is universal and keyed from the port's seed, so that no
//! sender can aim at another's queue. When the buffer is full, the oldest packet of the longest
//! queue is dropped. The RFC drops half of that queue at once; finding it is cheap here.
//! Cost: some 20 ns per packet; the logarithm of the busy queues when the buffer overflows; 46 bytes
//! per queue. With 64 queues or fewer 36 bytes, and an overflow looks at all of them.
//! Guarantees: a sparse flow waits for other new flows and one packet
//! (`a_sparse_flow_passes_a_download`); shares of backlogged flows are within a quantum and a
//! packet (`backlogged_flows_share_equally`); state is bounded (`forged_flows_grow_nothing`).
//! Parameters: `flows` (1 to 65536, 1024), `quantum` (bytes, 256 to 1M, the MTU), `target` (ms,
//! 5), `interval` (ms, 100), `qlimit` (packets, 10240: all queues together), `noecn`. At run time
//! all but `flows`.

use super::keyed_hash::KeyedHash;
use super::longest::Longest;
use super::node::Node;
use super::registry::{Builder, Entry};
use crate::aqm::codel::{Constants, Fate, Law, Phase};
use crate::aqm::params::{QLIMIT, queue_limit};
use crate::packet::{NIL, OneWay, PacketId};
use crate::queue::ParamSpec as P;
use crate::queue::params::default_of;
use crate::queue::{
    Alias, Backlog, Broken, Cx, Discipline, DropReason, Kind, Next, ParamError, ParamSpec, Params, Scope,
    TimeUnit, Verdict, Visit, params,
};
use crate::units::Duration;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// The ECN codepoint "congestion experienced".
const CE: u8 = 3;
const MILLIS: Kind = Kind::Time { bare: TimeUnit::Millis };
const QUANTUM_MIN: u64 = 256;
const QUANTUM_MAX: u64 = 1 << 20;
const PARAMS: &[ParamSpec] = &[
    P::discipline("flows", Kind::Count { min: 1, max: 65_536 }, "1024", "Queues that flows are hashed to."),
    P::discipline(
        "quantum",
        Kind::Bytes { min: QUANTUM_MIN, max: QUANTUM_MAX },
        "MTU",
        "Bytes that a turn adds.",
    ),
    P::discipline("target", MILLIS, "5ms", "Delay that each queue may keep, ms."),
    P::discipline("interval", MILLIS, "100ms", "How long CoDel waits for a good queue, ms: a long RTT."),
    P::discipline("qlimit", QLIMIT, "10240", "Packets that all queues hold together."),
    P::discipline("noecn", Kind::Flag, "", "Drop ECN-capable packets instead of marking them."),
];

pub(super) const ENTRY: Entry = Entry {
    name: "fqcodel",
    aliases: &[Alias { name: "fq_codel", implies: None }],
    source: include_str!("fq_codel.rs"),
    params: &[PARAMS],
    build: Some(build),
    ..Entry::PLAIN
};

/// In which list of busy queues a queue stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum BusyList {
    Idle,
    New,
    Old,
}

/// With so many queues or fewer the longest is looked for when it is needed: the order of the lengths of a hundred
/// thousand such disciplines takes more memory than their packets.
const FEW: u64 = 64;

/// A queue: 36 bytes, and 10 more for the order of their lengths where there are many.
struct Flow {
    list: OneWay,
    law: Law,
    deficit: i32,
    /// The queue behind it in its list of busy queues; anything for the last one.
    next: u16,
    place: BusyList,
    phase: Phase,
}

const _: () = assert!(size_of::<Flow>() == 36, "queues stand side by side by the million");

impl Flow {
    const EMPTY: Flow = Flow {
        list: OneWay::new(),
        law: Law::NEW,
        deficit: 0,
        next: 0,
        place: BusyList::Idle,
        phase: Phase::Passing,
    };
}

/// A first-in, first-out list of queues, linked through `Flow::next`.
struct Chain {
    head: u32,
    tail: u32,
}

impl Chain {
    const EMPTY: Chain = Chain { head: NIL, tail: NIL };

    fn push(&mut self, flows: &mut [Flow], index: u32) {
        match self.tail {
            NIL => self.head = index,
            tail => flows[tail as usize].next = index as u16,
        }
        self.tail = index;
    }
    fn pop(&mut self, flows: &[Flow]) {
        match self.head == self.tail {
            true => *self = Chain::EMPTY,
            false => self.head = u32::from(flows[self.head as usize].next),
        }
    }
}

struct FqCodel {
    flows: Vec<Flow>,
    new: Chain,
    old: Chain,
    packets: u32,
    bytes: u64,
    limit: u32,
    quantum: i32,
    constants: Constants,
    /// Of no queue where the queues are few.
    longest: Longest,
    hash: KeyedHash,
    marked: u64,
    dropped: u64,
    pushed_out: u64,
    new_flows: u64,
    longest_wait: Duration,
}

fn build(node: &Node, builder: &mut Builder<'_>) -> Result<Box<dyn Discipline>, ParamError> {
    let params = builder.flow_queues(&node.params, PARAMS, "flows")?;
    let count = params.count("flows").unwrap_or(default_of(PARAMS, "flows"));
    let constants = Constants { ecn: true, ..Constants::new(PARAMS, builder.link.mtu) };
    let mut discipline = FqCodel {
        flows: (0..count).map(|_| Flow::EMPTY).collect(),
        new: Chain::EMPTY,
        old: Chain::EMPTY,
        packets: 0,
        bytes: 0,
        limit: default_of(PARAMS, "qlimit") as u32,
        quantum: builder.link.mtu.clamp(QUANTUM_MIN as u32, QUANTUM_MAX as u32) as i32,
        constants,
        longest: Longest::new(if count > FEW { count as usize } else { 0 }),
        hash: KeyedHash::UNDRAWN,
        marked: 0,
        dropped: 0,
        pushed_out: 0,
        new_flows: 0,
        longest_wait: Duration::ZERO,
    };
    discipline.set(&node.params)?;
    Ok(Box::new(discipline))
}

impl FqCodel {
    fn set(&mut self, params: &Params) -> Result<(), ParamError> {
        let mut constants = self.constants.with("", params)?;
        constants.ecn &= !params.has("noecn");
        let limit = queue_limit("", params)?.unwrap_or(self.limit);
        let quantum = params.bytes("quantum").map_or(self.quantum, |bytes| bytes as i32);
        (self.limit, self.constants, self.quantum) = (limit, constants, quantum);
        Ok(())
    }
    /// Drops the oldest packets of the longest queue until the limit holds; false if the packet of
    /// that row was among them.
    fn shed(&mut self, cx: &mut Cx, row: usize) -> bool {
        let mut survives = true;
        while self.packets > self.limit && !cx.adopting() {
            let Some(index) = self.longest() else { break };
            let Some(victim) = self.flows[index as usize].list.pop_front(&cx.packets) else { break };
            survives &= victim.index() != row;
            self.pushed_out += 1;
            self.forget(cx.packets.get(&victim).len);
            cx.drop(victim, DropReason::Pushout);
        }
        survives
    }
    /// The queue with most bytes.
    #[inline(never)]
    fn longest(&mut self) -> Option<u32> {
        let flows = &self.flows;
        let busy = || (0..).zip(flows).filter(|(_, flow)| !flow.list.is_empty());
        if flows.len() as u64 <= FEW {
            return busy().max_by_key(|(_, flow)| flow.list.bytes()).map(|(index, _)| index);
        }
        if !self.longest.is_awake() {
            self.longest.wake(busy().map(|(index, flow)| (index, flow.list.bytes())));
        }
        self.longest.longest(|index| flows[index as usize].list.bytes())
    }
    fn forget(&mut self, len: u32) {
        self.packets -= 1;
        self.bytes -= u64::from(len);
        if self.longest.is_awake() && self.packets < self.limit / 2 {
            self.longest.sleep();
        }
    }
    /// The next packet of a queue that its CoDel lets pass.
    fn pull(&mut self, cx: &mut Cx, index: u32) -> Option<PacketId> {
        loop {
            let flow = &mut self.flows[index as usize];
            let id = flow.list.pop_front(&cx.packets)?;
            let row = cx.packets.get_mut(&id);
            let (len, left) = (row.len, flow.list.bytes());
            let Flow { law, phase, .. } = flow;
            let fate = law.judge(phase, &self.constants, cx.now, row.arrival, left, row.ecn_capable());
            self.longest_wait = self.longest_wait.max(cx.now.since(row.arrival));
            if fate == Fate::Mark {
                row.ecn = CE;
                self.marked += 1;
            }
            self.forget(len);
            if fate != Fate::Drop {
                self.flows[index as usize].deficit -= len as i32;
                return Some(id);
            }
            self.dropped += 1;
            cx.drop(id, DropReason::Head);
        }
    }
}

impl Discipline for FqCodel {
    fn enqueue(&mut self, cx: &mut Cx, id: PacketId) -> Verdict {
        let (hash, len) = (cx.packets.get(&id).flow, cx.packets.get(&id).len);
        let (index, row) = (self.hash.queue_of(cx, hash, self.flows.len()), id.index());
        let flow = &mut self.flows[index];
        flow.list.push_back(&mut cx.packets, id);
        self.packets += 1;
        self.bytes += u64::from(len);
        if self.longest.is_awake() {
            self.longest.grown(index as u32, flow.list.bytes());
        }
        if flow.place == BusyList::Idle {
            (flow.place, flow.deficit) = (BusyList::New, self.quantum);
            self.new_flows += 1;
            self.new.push(&mut self.flows, index as u32);
        }
        if self.packets > self.limit && !self.shed(cx, row) { Verdict::Dropped } else { Verdict::Queued }
    }
    fn dequeue(&mut self, cx: &mut Cx) -> Next {
        while self.packets > 0 {
            let (index, from_new) = match (self.new.head, self.old.head) {
                (NIL, NIL) => {
                    cx.broken("fqcodel", "packets wait and no queue is busy");
                    return Next::Idle;
                }
                (NIL, old) => (old, false),
                (new, _) => (new, true),
            };
            if self.flows[index as usize].deficit > 0
                && let Some(id) = self.pull(cx, index)
            {
                return Next::Packet(id);
            }
            // Its turn is over, or it is empty. A new queue that ran empty takes one turn among the
            // old ones all the same, or it could come back as new for ever. [RFC 8290 section 4.2]
            let chain = if from_new { &mut self.new } else { &mut self.old };
            chain.pop(&self.flows);
            let flow = &mut self.flows[index as usize];
            let stays = flow.deficit <= 0 || (from_new && self.old.head != NIL);
            if flow.deficit <= 0 {
                flow.deficit += self.quantum;
            }
            flow.place = if stays { BusyList::Old } else { BusyList::Idle };
            if stays {
                self.old.push(&mut self.flows, index);
            }
        }
        Next::Idle
    }
    fn backlog(&self) -> Backlog {
        Backlog { packets: u64::from(self.packets), bytes: self.bytes }
    }
    fn is_empty(&self) -> bool {
        self.packets == 0
    }
    fn hears_sent(&self) -> bool {
        false
    }
    fn turns_when_empty(&self) -> bool {
        false
    }
    fn flush(&mut self, cx: &mut Cx, reason: DropReason) {
        for flow in &mut self.flows {
            while let Some(id) = flow.list.pop_front(&cx.packets) {
                cx.drop(id, reason);
            }
            (flow.place, flow.law, flow.phase) = (BusyList::Idle, Law::NEW, Phase::Passing);
        }
        (self.new, self.old) = (Chain::EMPTY, Chain::EMPTY);
        (self.packets, self.bytes) = (0, 0);
        self.longest.sleep();
    }
    fn reconfigure(&mut self, cx: &mut Cx, class: &str, params: &Params) -> Result<(), ParamError> {
        if !class.is_empty() {
            return Err(ParamError::new(class, "class", class, "no class: fqcodel has none"));
        }
        params::accept(ENTRY.params, Scope::Discipline, "", params)?;
        if let Some(count) = params.count("flows").filter(|&n| n != self.flows.len() as u64) {
            let expected = "what it was: a flow must not change queues while packets wait; write it on the \
                            interface line and load the file anew";
            return Err(ParamError::new("", "flows", count, expected));
        }
        self.set(params)?;
        self.shed(cx, usize::MAX);
        Ok(())
    }
    fn visit_stats(&self, visit: &mut dyn Visit) {
        if !visit.listens() {
            return;
        }
        visit.value("backlog", "packets", i64::from(self.packets));
        visit.value("backlog_bytes", "bytes", self.bytes as i64);
        visit.value("limit", "packets", i64::from(self.limit));
        visit.value("queues", "", self.flows.len() as i64);
        visit.value(
            "queues_busy",
            "",
            self.flows.iter().filter(|f| f.place != BusyList::Idle).count() as i64,
        );
        visit.value("new_flows", "", self.new_flows as i64);
        visit.value("dropped_by_codel", "packets", self.dropped as i64);
        visit.value("pushed_out", "packets", self.pushed_out as i64);
        visit.value("marked", "packets", self.marked as i64);
        visit.value("longest_wait", "ns", self.longest_wait.as_nanos() as i64);
        visit.value("quantum", "bytes", i64::from(self.quantum));
        visit.value("target", "ns", self.constants.target.as_nanos() as i64);
        visit.value("interval", "ns", self.constants.interval.as_nanos() as i64);
    }
    fn check(&self, cx: &Cx) -> Result<(), Broken> {
        let broken = |what| Err(Broken { discipline: "fqcodel", what });
        let mut sum = Backlog::default();
        for flow in &self.flows {
            let packets = flow.list.packets_if_sound(&cx.packets);
            let Some(packets) = packets.filter(|&n| n == 0 || flow.place != BusyList::Idle) else {
                return broken("a queue is unsound, or has packets and is not busy");
            };
            sum = sum + Backlog { packets, bytes: flow.list.bytes() };
        }
        // A queue counts its bytes modulo 2^32.
        if (sum.packets, sum.bytes as u32) != (u64::from(self.packets), self.bytes as u32) {
            return broken("totals and queues disagree");
        }
        for (chain, place) in [(&self.new, BusyList::New), (&self.old, BusyList::Old)] {
            let (mut at, mut last) = (chain.head, NIL);
            let mut left = self.flows.iter().filter(|flow| flow.place == place).count();
            while at != NIL {
                if left == 0 || self.flows[at as usize].place != place {
                    return broken("a list of busy queues holds another's");
                }
                let next = u32::from(self.flows[at as usize].next);
                (last, at, left) = (at, if at == chain.tail { NIL } else { next }, left - 1);
            }
            if left > 0 || last != chain.tail {
                return broken("a busy queue is in no list");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::Value;
    use crate::sched::testing::{Bench, node, stat};
    use crate::units::Instant;

    fn bench(params: &[(&'static str, Value)]) -> Bench {
        Bench::new(&node("fqcodel", params), 5)
    }

    /// All queues together hold `qlimit` packets, not one less; and a change that leaves the limit drops none.
    #[test]
    fn the_limit_is_what_all_queues_hold() {
        let mut bench = bench(&[("qlimit", Value::Count(10))]);
        for flow in 0..20 {
            bench.offer(100, |m| m.flow = flow % 3);
        }
        assert_eq!((bench.tree.discipline.backlog().packets, bench.dropped.len()), (10, 10));
        let same = Params::new().with("qlimit", Value::Count(10));
        bench.tree.discipline.reconfigure(&mut bench.cx, "", &same).unwrap();
        assert_eq!(bench.tree.discipline.backlog().packets, 10);
        bench.check();
    }

    /// `new_flows` counts how often a queue becomes busy, not its packets.
    #[test]
    fn queues_that_become_busy_are_counted() {
        let mut bench = bench(&[]);
        for (flows, counted) in [(1..4, 3), (1..6, 5), (7..8, 6)] {
            for flow in flows {
                bench.offer(100, |m| m.flow = flow);
                bench.offer(100, |m| m.flow = flow);
            }
            assert_eq!(stat(&*bench.tree.discipline, "new_flows"), counted);
        }
    }

    #[test]
    fn backlogged_flows_share_equally() {
        // CoDel is out of the way: nothing waits for a second.
        let params = [
            ("target", Value::Time(Duration::from_millis(900))),
            ("interval", Value::Time(Duration::from_secs(1))),
        ];
        for (discipline, fair) in [("fqcodel", true), ("fifoq", false)] {
            let all = if fair { &params[..] } else { &[] };
            let mut bench = Bench::new(&node(discipline, all), 5);
            let sizes = [1500, 64, 576, 1000];
            let mut bytes = [0i64; 4];
            for flow in 0..4u32 {
                for _ in 0..8 {
                    bench.offer(sizes[flow as usize], |m| m.flow = flow);
                }
            }
            let mut worst = 0;
            for _ in 0..40_000 {
                let sent = bench.serve().unwrap();
                bytes[sent.flow as usize] += i64::from(sent.len);
                bench.offer(sent.len, |m| m.flow = sent.flow);
                worst = worst.max(bytes.iter().max().unwrap() - bytes.iter().min().unwrap());
            }
            bench.check();
            // One quantum and one packet each way.
            assert_eq!(worst <= 2 * (1514 + 1500), fair, "{discipline}: {worst} bytes apart");
        }
    }

    /// Longest wait, in us, of a flow of one 100-byte packet each 20 ms beside a download that
    /// keeps 100 packets queued.
    fn sparse_wait(discipline: &str) -> u64 {
        let mut bench = Bench::new(&node(discipline, &[("qlimit", Value::Count(10_000))]), 5);
        let (mut next, mut worst, mut fat) = (0u64, 0, 0u32);
        while next < 500 {
            while fat < 100 {
                bench.offer(1500, |m| m.flow = 1);
                fat += 1;
            }
            if bench.cx.now >= Instant::from_millis(20 * next) {
                bench.offer(100, |m| m.flow = 2);
                next += 1;
            }
            let sent = bench.serve().unwrap();
            if sent.flow == 2 {
                // The first came when the download was as new as it.
                let wait = if sent.arrival == Instant::ZERO {
                    0
                } else {
                    bench.cx.now.since(sent.arrival).as_nanos()
                };
                worst = worst.max(wait / 1_000);
            } else {
                fat -= 1;
            }
            fat -= bench.dropped.drain(..).count() as u32;
            bench.pass(sent.len);
        }
        worst
    }

    #[test]
    fn a_sparse_flow_passes_a_download() {
        assert_eq!(sparse_wait("fqcodel"), 0, "first at the next completion");
        let behind = sparse_wait("fifoq");
        assert!(behind > 50_000, "reversed: {behind} us in one queue");
    }

    /// A flow that sends its next packet just after its queue ran empty is not new each time: it has
    /// no more than a flow that always has packets [RFC 8290 section 4.2]. Reversed: one queue serves
    /// by arrival, not by shares.
    #[test]
    fn a_queue_that_runs_empty_is_not_new_at_once() {
        for (discipline, holds) in [("fqcodel", true), ("fifoq", false)] {
            let mut bench = Bench::new(&node(discipline, &[]), 5);
            let (mut bytes, mut waits) = ([0i64; 2], false);
            for _ in 0..5 {
                bench.offer(300, |m| m.flow = 1);
            }
            for _ in 0..2_000 {
                let sent = bench.serve().unwrap();
                let flow = sent.flow as usize;
                bytes[flow] += i64::from(sent.len);
                if flow == 1 {
                    bench.offer(300, |m| m.flow = 1);
                    // It comes when its queue has been found empty.
                    if !waits {
                        bench.offer(1_500, |m| m.flow = 0);
                        waits = true;
                    }
                } else {
                    waits = false;
                }
            }
            // No time passes, so CoDel drops nothing. A quantum and a packet each way.
            assert!(bench.dropped.is_empty() && bytes[0] > 0, "{discipline}: {bytes:?}");
            assert_eq!((bytes[0] - bytes[1]).abs() <= 2 * (1_514 + 1_500), holds, "{discipline}: {bytes:?}");
        }
    }

    #[test]
    fn the_flow_that_stands_is_the_one_that_is_dropped() {
        for (noecn, codepoint, marks) in [(false, 0, false), (false, 2, true), (true, 2, false)] {
            let flag = ("noecn", Value::Flag);
            let mut bench = bench(if noecn { core::slice::from_ref(&flag) } else { &[] });
            let mut marked = 0;
            for ms in 0..3_000u64 {
                bench.cx.now = Instant::from_millis(ms);
                bench.offer(1250, |m| (m.flow, m.ecn) = (1, codepoint));
                if ms % 4 == 0 {
                    bench.offer(1250, |m| (m.flow, m.ecn) = (1, codepoint));
                    bench.offer(100, |m| (m.flow, m.ecn) = (2, codepoint));
                }
                let sent = bench.serve().unwrap();
                marked += u32::from(sent.ecn == 3);
                assert!(sent.ecn != 3 || sent.flow == 1);
            }
            let dead = bench.dropped.len();
            assert_eq!((marked > 5, dead > 5), (marks, !marks), "{marked} marked, {dead} dropped");
            assert!(bench.dropped.iter().all(|(m, reason)| m.flow == 1 && *reason == DropReason::Head));
            bench.check();
        }
    }

    #[test]
    fn forged_flows_grow_nothing() {
        let mut bench = bench(&[("qlimit", Value::Count(2_000))]);
        for flow in 0..1_000_000u32 {
            bench.offer(64, |m| m.flow = flow.wrapping_mul(0x9e37_79b9));
        }
        assert_eq!(bench.tree.discipline.backlog().packets, 2_000);
        assert!(stat(&*bench.tree.discipline, "queues_busy") <= 1_024);
        bench.check();
        // The longest queue pays: a hog among them loses its own packets.
        bench.dropped.clear();
        for _ in 0..2_000 {
            bench.offer(1500, |m| m.flow = 7);
        }
        assert!(bench.dropped.iter().filter(|(m, _)| m.flow == 7).count() > 1_900);
        bench.check();
    }

    #[test]
    fn the_hash_is_keyed_by_the_seed() {
        // Flows that share a queue under one seed are apart under most others.
        let shared = |seed: u64, a: u32, b: u32| {
            let mut bench = Bench::new(&node("fqcodel", &[]), seed);
            bench.offer(64, |m| m.flow = a);
            bench.offer(64, |m| m.flow = b);
            stat(&*bench.tree.discipline, "queues_busy") == 1
        };
        let found = (1..5_000).find(|&b| shared(1, 0, b)).expect("one of 5000 collides in 1024 queues");
        assert!((2..12).filter(|&seed| shared(seed, 0, found)).count() <= 1);
    }
}
