//! DRR: hashed flows in turn, each with a deficit counter, so that shares are of bytes.
//!
//! Principle: a hash puts each flow into one of a fixed number of queues. Queues with packets
//! take turns; a turn adds a quantum of bytes to the queue's deficit, and the queue sends while
//! its first packet fits into the deficit. What is left over counts in its next turn; a queue
//! that runs empty keeps nothing. When the buffer is full, the first packet of the longest queue
//! is dropped: the greediest flow pays, not the newcomer.
//! Paper: Shreedhar and Varghese, "Efficient Fair Queuing using Deficit Round Robin", SIGCOMM
//! 1995: its algorithm is `dequeue`, and its buffer stealing `Flows::enqueue`.
//! Where we differ, and why: a quantum below the largest packet is allowed, because rounds in which
//! no queue may send are passed at once (`skip_rounds`). The victim is the oldest packet, so that
//! a sender learns of it soonest.
//! Cost: a few ns per packet whatever the number of flows; the logarithm of the busy queues when
//! the buffer overflows; 80 bytes per queue.
//! Guarantees: over any time in which two queues stay backlogged their service differs by at
//! most 2 Lmax + quantum (`service_differs_by_two_packets_and_a_quantum_at_most`); max-min shares
//! under overload (`shares_are_max_min`).
//! Parameters: `nqueues` (1 to 65536, 256), `quantum` (bytes, 1500), `qsize` (bytes, at least
//! 1500, 150000: all queues together), `hash` (`full`, `dstaddr`, `srcaddr` or `srcport`;
//! `full`). At run time: `qsize` and `quantum`.

use super::flows::{self, Flows};
use super::node::Node;
use super::registry::{Builder, Entry};
use crate::packet::PacketId;
use crate::queue::{
    Backlog, Broken, Cx, Discipline, DropReason, Kind, Next, ParamError, ParamSpec, Params, Scope, Verdict,
    Visit, params,
};
use alloc::boxed::Box;

const QUANTUM: ParamSpec =
    ParamSpec::discipline("quantum", Kind::Bytes { min: 1, max: 1 << 20 }, "1500", "Bytes that a turn adds.");

const FLOWS: [ParamSpec; 3] = flows::params("256", "150000", "full");

pub(super) const ENTRY: Entry = Entry {
    name: "drr",
    source: include_str!("drr.rs"),
    params: &[&FLOWS, &[QUANTUM]],
    build: Some(build),
    ..Entry::PLAIN
};

struct Drr {
    flows: Flows,
    /// The current flow has got its quantum.
    turn: bool,
}

fn build(node: &Node, builder: &mut Builder<'_>) -> Result<Box<dyn Discipline>, ParamError> {
    let quantum = node.params.bytes("quantum").unwrap_or(QUANTUM.default_number());
    let params = builder.flow_queues(&node.params, &FLOWS, "nqueues")?;
    let flows = Flows::new(&params, &FLOWS, quantum as u32);
    Ok(Box::new(Drr { flows, turn: false }))
}

impl Drr {
    /// Nobody could send in a whole round: passes as many more at once as leave everybody short.
    #[cold]
    fn skip_rounds(&mut self, cx: &Cx) {
        let mut rounds = i64::MAX;
        self.flows.for_each_in_ring(|f| {
            let short = f.list.front(&cx.packets).map_or(0, |row| i64::from(row.len)) - f.credit;
            rounds = rounds.min((short - 1) / i64::from(f.quantum));
        });
        debug_assert_ne!(rounds, i64::MAX, "rounds are skipped with no flow in the ring");
        self.flows.for_each_in_ring(|f| f.credit += rounds.max(0) * i64::from(f.quantum));
    }
}

impl Discipline for Drr {
    fn enqueue(&mut self, cx: &mut Cx, id: PacketId) -> Verdict {
        self.flows.enqueue(cx, id)
    }
    fn dequeue(&mut self, cx: &mut Cx) -> Next {
        let mut passed = 0;
        while !self.flows.is_empty() {
            let Some(index) = self.flows.current() else {
                cx.broken("drr", "packets wait and no flow is in the ring");
                return Next::Idle;
            };
            let flow = self.flows.queue(index);
            let Some(len) = flow.list.front(&cx.packets).map(|row| i64::from(row.len)) else {
                self.flows.retire(index);
                self.turn = false;
                continue;
            };
            if !self.turn {
                flow.credit += i64::from(flow.quantum);
                self.turn = true;
            }
            if flow.credit < len {
                self.flows.rotate(index);
                self.turn = false;
                passed += 1;
                if passed == self.flows.in_ring() {
                    passed = 0;
                    self.skip_rounds(cx);
                }
                continue;
            }
            flow.credit -= len;
            debug_assert!(flow.credit >= 0, "a flow has sent more than its credit");
            let last = flow.list.packets() == 1;
            let Some((id, _)) = self.flows.take_from(cx, index) else { continue };
            if last {
                self.flows.retire(index);
                self.turn = false;
            }
            return Next::Packet(id);
        }
        Next::Idle
    }
    fn backlog(&self) -> Backlog {
        self.flows.backlog()
    }
    fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }
    fn flush(&mut self, cx: &mut Cx, reason: DropReason) {
        self.flows.flush(cx, reason);
        self.turn = false;
    }
    fn reconfigure(&mut self, cx: &mut Cx, class: &str, params: &Params) -> Result<(), ParamError> {
        if !class.is_empty() {
            return Err(ParamError::new(class, "class", class, "no class: drr has none"));
        }
        params::accept(ENTRY.params, Scope::Discipline, "", params)?;
        self.flows.reconfigure(cx, params)?;
        if let Some(quantum) = params.bytes("quantum") {
            self.flows.set_quantum(quantum as u32);
        }
        Ok(())
    }
    fn visit_stats(&self, visit: &mut dyn Visit) {
        self.flows.visit_stats(visit);
        self.flows.visit_queues(visit, "quantum", "bytes", 1);
    }
    fn check(&self, cx: &Cx) -> Result<(), Broken> {
        self.flows.check(cx)?;
        self.flows.check_ring()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::Value;
    use crate::sched::testing::{Bench, node};
    use crate::units::Instant;
    use std::vec::Vec;

    fn bench(quantum: u64, qsize: u64) -> Bench {
        Bench::new(&node("drr", &[("quantum", Value::Bytes(quantum)), ("qsize", Value::Bytes(qsize))]), 1)
    }

    /// A flush in the middle of a turn leaves nothing of it: what comes then goes as in a new queue.
    #[test]
    fn nothing_of_a_turn_outlives_a_flush() {
        let order = |bench: &mut Bench| {
            for flow in [0, 0, 1, 1, 2] {
                bench.offer(1_000, |m| m.flow = flow);
            }
            core::iter::from_fn(|| bench.serve().map(|m| m.flow)).collect::<Vec<u32>>()
        };
        let (mut new, mut flushed) = (bench(1_500, 100_000), bench(1_500, 100_000));
        for _ in 0..9 {
            flushed.offer(500, |m| m.flow = 7);
        }
        flushed.serve();
        flushed.tree.discipline.flush(&mut flushed.cx, DropReason::Flush);
        assert_eq!(order(&mut flushed), order(&mut new));
        flushed.check();
    }

    /// The most by which the service of two backlogged flows differs, over every interval of a
    /// run; flows have packets up to `sizes`.
    fn unfairness(quantum: u64, sizes: &[u32], seed: u64) -> i64 {
        let (mut bench, mut random) = (bench(quantum, 100_000_000), crate::Random::new(seed));
        let mut served = std::vec![0i64; sizes.len()];
        let mut refill = |bench: &mut Bench, flow: usize| {
            let len = 40 + random.below(u64::from(sizes[flow]) - 39) as u32;
            bench.offer(len, |m| m.flow = flow as u32);
        };
        for flow in (0..sizes.len()).cycle().take(4 * sizes.len()) {
            refill(&mut bench, flow);
        }
        // The spread of the difference of a pair over time is its worst interval.
        let mut spread = std::vec![(0i64, 0i64); sizes.len() * sizes.len()];
        for _ in 0..20_000 {
            let sent = bench.serve().expect("backlogged");
            served[sent.flow as usize] += i64::from(sent.len);
            refill(&mut bench, sent.flow as usize);
            for a in 0..sizes.len() {
                for b in 0..sizes.len() {
                    let (low, high) = &mut spread[a * sizes.len() + b];
                    let difference = served[a] - served[b];
                    (*low, *high) = ((*low).min(difference), (*high).max(difference));
                }
            }
        }
        bench.check();
        spread.iter().map(|(low, high)| high - low).max().unwrap_or(0)
    }

    #[test]
    fn service_differs_by_two_packets_and_a_quantum_at_most() {
        let seed = weir_seed::seed();
        for (quantum, sizes) in
            [(1500, &[1500u32, 1500, 64, 576][..]), (9000, &[9000, 40, 1500]), (100, &[1500, 64])]
        {
            let bound = 2 * i64::from(*sizes.iter().max().unwrap()) + quantum as i64;
            let worst = unfairness(quantum, sizes, seed);
            assert!(worst <= bound, "quantum {quantum}, seed {seed}: {worst} > {bound}");
            // Reversed: the bound is not slack by much; a tenfold quantum breaks it.
            let wide = unfairness(10 * quantum.max(1500), sizes, seed);
            assert!(wide > bound, "quantum {quantum}, seed {seed}: {wide} <= {bound}");
        }
    }

    /// Rates in bit/s of constant flows of those packets and rates, between 1 and 3 s.
    fn rates(sizes: [u32; 4], mbps: [u64; 4]) -> [f64; 4] {
        let mut bench = bench(1500, 150_000);
        let interval = |flow: usize| u64::from(sizes[flow]) * 8_000 / mbps[flow];
        let mut due = [0, 170_000, 340_000, 510_000];
        let (mut free, mut bytes) = (0u64, [0u64; 4]);
        while free < 3_000_000_000 {
            let next = (0..4).min_by_key(|&f| due[f]).unwrap();
            if due[next] <= free || bench.tree.discipline.is_empty() {
                bench.cx.now = Instant::from_nanos(due[next]);
                free = free.max(due[next]);
                due[next] += interval(next);
                bench.offer(sizes[next], |m| m.flow = next as u32 + 1);
                continue;
            }
            bench.cx.now = Instant::from_nanos(free);
            let sent = bench.serve().expect("backlogged");
            free += u64::from(sent.len) * 800;
            if free > 1_000_000_000 {
                bytes[sent.flow as usize - 1] += u64::from(sent.len);
            }
        }
        bench.check();
        assert!(bench.dropped.iter().all(|(_, reason)| *reason == DropReason::Pushout));
        bytes.map(|b| b as f64 * 8.0 / 2.0)
    }
    fn close(rates: [f64; 4], expected: [f64; 4]) -> bool {
        rates.iter().zip(expected).all(|(r, e)| (r - e).abs() < 0.01e6)
    }

    #[test]
    fn shares_are_max_min() {
        let sizes = [200, 500, 1000, 1500];
        let all = rates(sizes, [8, 8, 8, 8]);
        assert!(close(all, [2.5e6; 4]), "{all:?}");
        let low = rates(sizes, [2, 4, 8, 8]);
        let third = 8e6 / 3.0;
        assert!(close(low, [2e6, third, third, third]), "{low:?}");
        assert!(!close(rates(sizes, [8, 8, 4, 2]), [2e6, third, third, third]), "reversed it passes");
    }

    #[test]
    fn a_tiny_quantum_is_not_slow() {
        let mut bench = bench(1, 1_000_000);
        for flow in 0..4 {
            bench.offer(60_000, |m| m.flow = flow);
            bench.offer(64, |m| m.flow = flow);
        }
        let order: Vec<u32> = core::iter::from_fn(|| bench.serve().map(|m| m.flow)).collect();
        assert_eq!(order, [0, 1, 2, 3, 0, 1, 2, 3]);
    }

    #[test]
    fn a_million_forged_flows_grow_nothing() {
        let mut bench = bench(1500, 150_000);
        for flow in 0..1_000_000 {
            bench.offer(64, |m| m.flow = flow);
        }
        assert!(bench.tree.discipline.backlog().bytes <= 150_000);
        bench.check();
    }
    #[test]
    fn another_quantum_counts_at_once() {
        let order = |quantum: u64, then: Option<u64>| {
            let mut bench = bench(quantum, 100_000);
            if let Some(bytes) = then {
                let params = Params::new().with("quantum", Value::Bytes(bytes));
                bench.tree.discipline.reconfigure(&mut bench.cx, "", &params).unwrap();
            }
            for n in 0..8 {
                bench.offer(1_000, |m| m.flow = n % 2);
            }
            core::iter::from_fn(|| bench.serve().map(|m| m.flow)).collect::<Vec<u32>>()
        };
        assert_eq!(order(1_000, None), [0, 1, 0, 1, 0, 1, 0, 1]);
        assert_eq!(order(1_000, Some(2_000)), [0, 0, 1, 1, 0, 0, 1, 1]);
        assert_eq!(order(2_000, Some(1_000)), order(1_000, None));
    }
}
