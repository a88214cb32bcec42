//! WFQ: hashed flows, served in turn by bytes and weights.
//!
//! Principle: a hash puts each flow into one of a fixed number of queues. The queues that hold
//! packets take turns; a turn adds a quantum of bytes in proportion to the queue's weight, and a
//! queue sends while its credit is positive. What it sends beyond its credit is a debt that it
//! pays from its next turns, also when it has run empty meanwhile.
//! Paper: ALTQ (Cho, USENIX 1998, section 3.1) ships this as WFQ; it is McKenney, "Stochastic
//! Fairness Queueing", INFOCOM 1990, with byte fairness (as surplus round robin: Adiseshu,
//! Parulkar and Varghese, SIGCOMM 1996) and the buffer policy "drop from the longest queue".
//! Where we differ, and why: every hash is keyed by the port's seed, so that no stranger can aim at
//! another's queue (`nobody_can_aim_at_a_queue`). A debt is not forgiven to a queue that ran empty. Otherwise a flow that
//! sends one large packet at a time gets more than its share. Weights below one packet a turn
//! cost no turns (`skip_rounds`); a weight of 0 is refused, where ALTQ divided by it.
//! Cost: a few ns per packet; the logarithm of the busy queues when the buffer overflows; 80 bytes
//! per queue.
//! Guarantees: none for single flows, since flows may share a queue. Queues that stay backlogged
//! get bytes in proportion to their weights, within one quantum and one packet each at any time
//! (`a32_backlogged_queues_get_their_weights`, `a32_flows_collide_as_theory_says`).
//! Parameters: `nqueues` (1 to 65536, 256), `qsize` (bytes, at least 1500, 64K: all queues
//! together), `hash` (`dstaddr`, `full`, `srcport` or `srcaddr`; `dstaddr`). At run time: `qsize`;
//! and `weight` (1 to 10000, 100) of one queue, named as class `queue N`, N from 0.

use super::flows::{self, Flows};
use super::node::Node;
use super::registry::{Builder, Entry};
use crate::packet::PacketId;
use crate::queue::{
    Backlog, Broken, Cx, Discipline, DropReason, Kind, Next, ParamError, ParamSpec, Params, Scope, Verdict,
    Visit, params,
};
use crate::units::Bounded;
use alloc::boxed::Box;

const WEIGHT: ParamSpec = ParamSpec::class(
    "weight",
    Kind::Count { min: 1, max: 10_000 },
    "100",
    "Share of the class `queue N`, settable at run time only.",
);

const FLOWS: [ParamSpec; 3] = flows::params("256", "64K", "dstaddr");

pub(super) const ENTRY: Entry = Entry {
    name: "wfq",
    source: include_str!("wfq.rs"),
    params: &[&FLOWS, &[WEIGHT]],
    build: Some(build),
    ..Entry::PLAIN
};

/// Credit counts 1/25 bytes, so that ALTQ's quantum of 512 * weight / 100 bytes is whole.
const PER_BYTE: i64 = 25;
const PER_WEIGHT: u32 = 128;
const USUAL_WEIGHT: u32 = WEIGHT.default_number() as u32;

struct Wfq {
    flows: Flows,
}

fn build(node: &Node, builder: &mut Builder<'_>) -> Result<Box<dyn Discipline>, ParamError> {
    let params = builder.flow_queues(&node.params, &FLOWS, "nqueues")?;
    let flows = Flows::new(&params, &FLOWS, USUAL_WEIGHT * PER_WEIGHT);
    Ok(Box::new(Wfq { flows }))
}

impl Wfq {
    /// All flows owe more than a quantum: passes as many whole rounds at once as leave every
    /// credit at 0 or below. With weights of 1 a packet may cost 300 rounds.
    #[cold]
    fn skip_rounds(&mut self) {
        let mut rounds = i64::MAX;
        self.flows.for_each_in_ring(|f| rounds = rounds.min(-f.credit / i64::from(f.quantum)));
        self.flows.for_each_in_ring(|f| f.credit += rounds.max(0) * i64::from(f.quantum));
    }
}

impl Discipline for Wfq {
    fn enqueue(&mut self, cx: &mut Cx, id: PacketId) -> Verdict {
        self.flows.enqueue(cx, id)
    }
    fn dequeue(&mut self, cx: &mut Cx) -> Next {
        let mut passed = 0;
        while !self.flows.is_empty() {
            let Some(index) = self.flows.current() else {
                cx.broken("wfq", "packets wait and no flow is in the ring");
                return Next::Idle;
            };
            let flow = self.flows.queue(index);
            if flow.credit <= 0 {
                flow.credit = flow.credit.plus(flow.quantum.into());
                if flow.credit <= 0 {
                    self.flows.rotate(index);
                    passed += 1;
                    if passed == self.flows.in_ring() {
                        passed = 0;
                        self.skip_rounds();
                    }
                    continue;
                }
            }
            let Some((id, len)) = self.flows.take_from(cx, index) else {
                self.flows.retire(index);
                continue;
            };
            let flow = self.flows.queue(index);
            flow.credit = flow.credit.less(i64::from(len) * PER_BYTE);
            if flow.credit <= 0 {
                self.flows.rotate(index);
            } else if flow.list.is_empty() {
                self.flows.retire(index);
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
    }
    fn reconfigure(&mut self, cx: &mut Cx, class: &str, params: &Params) -> Result<(), ParamError> {
        let scope = if class.is_empty() { Scope::Discipline } else { Scope::Class };
        params::accept(ENTRY.params, scope, class, params)?;
        if class.is_empty() {
            return self.flows.reconfigure(cx, params);
        }
        let number = class.strip_prefix("queue ").and_then(|n| n.parse::<usize>().ok());
        let unknown = || ParamError::new(class, "class", class, "`queue N`, N from 0, less than nqueues");
        let number = number.ok_or_else(unknown)?;
        match params.count("weight") {
            Some(weight) => {
                let weight = weight as u32;
                let known = self.flows.set_share(number, weight * PER_WEIGHT, (USUAL_WEIGHT << 16) / weight);
                if known { Ok(()) } else { Err(unknown()) }
            }
            None => Err(ParamError::new(class, "weight", "nothing", "a weight: it is all that a queue has")),
        }
    }
    fn visit_stats(&self, visit: &mut dyn Visit) {
        self.flows.visit_stats(visit);
        self.flows.visit_queues(visit, "weight", "", PER_WEIGHT);
    }
    fn check(&self, cx: &Cx) -> Result<(), Broken> {
        self.flows.check(cx)?;
        self.flows.check_ring()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;
    use crate::queue::Value;
    use crate::sched::testing::{Bench, node};
    use std::collections::VecDeque;
    use std::format;
    use std::vec::Vec;

    fn bench(nqueues: u64, qsize: u64) -> Bench {
        let params = [
            ("nqueues", Value::Count(nqueues)),
            ("qsize", Value::Bytes(qsize)),
            ("hash", Value::Word("full")),
        ];
        Bench::new(&node("wfq", &params), 1)
    }
    fn weight(bench: &mut Bench, queue: usize, weight: u64) -> Result<(), ParamError> {
        let params = Params::new().with("weight", Value::Count(weight));
        bench.tree.discipline.reconfigure(&mut bench.cx, &format!("queue {queue}"), &params)
    }

    /// Bytes of each backlogged flow when `total` bytes have been served.
    fn shares(weights: &[u64], sizes: &[u32], total: u64) -> Vec<u64> {
        let mut bench = bench(16, 10_000_000);
        for (queue, &w) in weights.iter().enumerate() {
            weight(&mut bench, queue, w).unwrap();
        }
        for round in 0..3 * sizes.len() as u32 {
            bench.offer(sizes[round as usize % sizes.len()], |m| m.flow = round % sizes.len() as u32);
        }
        let mut bytes = std::vec![0u64; sizes.len()];
        while bytes.iter().sum::<u64>() < total {
            let sent = bench.serve().expect("backlogged");
            bytes[sent.flow as usize] += u64::from(sent.len);
            bench.offer(sent.len, |m| m.flow = sent.flow);
        }
        bench.check();
        bytes
    }
    fn fair(bytes: &[u64], weights: &[u64]) -> bool {
        let (sum, all): (u64, u64) = (bytes.iter().sum(), weights.iter().sum());
        bytes
            .iter()
            .zip(weights)
            .all(|(&b, &w)| (b as f64 / sum as f64 * all as f64 / w as f64 - 1.0).abs() < 0.02)
    }

    #[test]
    fn a32_backlogged_queues_get_their_weights() {
        for (weights, sizes) in [
            (&[100u64, 100, 100, 100][..], &[64u32, 576, 1500, 9000][..]),
            (&[100, 200, 300], &[1500, 576, 64]),
            (&[1, 2, 7], &[1500, 1500, 200]),
            (&[10_000, 100, 330], &[64, 1500, 1500]),
        ] {
            let bytes = shares(weights, sizes, 200_000_000);
            assert!(fair(&bytes, weights), "{bytes:?} for {weights:?}");
            let reversed: Vec<u64> = weights.iter().rev().copied().collect();
            assert!(reversed == weights || !fair(&bytes, &reversed), "{bytes:?} passes for {reversed:?}");
        }
    }

    /// The ring as a person would walk it: every flow in turn is given its quantum until it owes nothing.
    #[derive(Default)]
    struct Plain {
        ring: VecDeque<usize>,
        credit: [i64; 16],
        packets: [VecDeque<u32>; 16],
    }

    impl Plain {
        fn offer(&mut self, flow: usize, len: u32) {
            self.packets[flow].push_back(len);
            if !self.ring.contains(&flow) {
                self.ring.push_back(flow);
            }
        }
        fn serve(&mut self, quanta: &[i64]) -> Option<(usize, u32)> {
            while let Some(&flow) = self.ring.front().filter(|_| self.packets.iter().any(|p| !p.is_empty())) {
                if self.credit[flow] <= 0 {
                    self.credit[flow] += quanta[flow];
                }
                if self.credit[flow] <= 0 {
                    self.ring.rotate_left(1);
                    continue;
                }
                let sent = self.packets[flow].pop_front();
                self.credit[flow] -= sent.map_or(0, |len| i64::from(len) * PER_BYTE);
                if self.credit[flow] <= 0 {
                    self.ring.rotate_left(1);
                } else if self.packets[flow].is_empty() {
                    self.credit[flow] = 0;
                    self.ring.pop_front();
                }
                if let Some(len) = sent {
                    return Some((flow, len));
                }
            }
            None
        }
    }

    /// True if a random run goes in the order of a ring that is walked, in which the first flow has so
    /// many times its weight.
    fn as_walked(seed: u64, times: i64) -> bool {
        let (mut random, mut bench) = (Random::new(seed), bench(16, 10_000_000));
        // A packet of 87 bytes leaves a class of weight 17 just one unit.
        let weights: Vec<u64> = (0..16).map(|n| if n < 8 { 1 + random.below(300) } else { 17 }).collect();
        let mut plain = Plain::default();
        let mut quanta: Vec<i64> = weights.iter().map(|&w| w as i64 * i64::from(PER_WEIGHT)).collect();
        quanta[0] *= times;
        for (queue, &w) in weights.iter().enumerate() {
            weight(&mut bench, queue, w).unwrap();
        }
        for step in 0..2_000 {
            let busy = if step / 200 % 2 == 0 { 60 } else { 40 };
            if random.below(100) < busy {
                // Sizes that quanta divide leave credits of just 0.
                let (flow, len) = (random.below(16), [64, 87, 128, 1_500][random.below(4) as usize]);
                bench.offer(len, |m| m.flow = flow as u32);
                plain.offer(flow as usize, len);
            } else if bench.serve().map(|m| (m.flow as usize, m.len)) != plain.serve(&quanta) {
                return false;
            }
        }
        bench.check();
        true
    }

    /// Rounds that are passed at once are those that a walk would pass. Reversed: another weight for one
    /// flow leads to another order.
    #[test]
    fn a32_the_order_is_that_of_a_ring_that_is_walked() {
        for seed in weir_seed::seeds(60) {
            assert!(as_walked(seed, 1), "seed {seed}");
        }
        let others = weir_seed::seeds(20).filter(|&seed| !as_walked(seed, 5)).count();
        assert!(others >= 10, "{others} of 20 runs see another weight");
    }

    /// The longest queue by its weight pays for a full buffer. One whose weight was set to what all have is
    /// as the others: the longer pays.
    #[test]
    fn a_set_weight_is_measured_as_one_that_was_not() {
        for (set, longer) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let mut bench = bench(16, 3_000);
            weight(&mut bench, set, u64::from(USUAL_WEIGHT)).unwrap();
            for (flow, len) in [(longer, 1_600), (1 - longer, 1_400), (5, 100)] {
                bench.offer(len, |m| m.flow = flow as u32);
            }
            let paid: Vec<u32> = bench.dropped.iter().map(|(m, _)| m.flow).collect();
            assert_eq!(paid, [longer as u32], "flow {set} was set");
        }
    }

    #[test]
    fn a_flow_of_single_packets_gets_no_more_than_its_share() {
        let (mut bench, mut bytes) = (bench(16, 10_000_000), [0u64; 2]);
        for _ in 0..10 {
            bench.offer(100, |m| m.flow = 0);
        }
        bench.offer(1500, |m| m.flow = 1);
        for _ in 0..100_000 {
            let sent = bench.serve().unwrap();
            bytes[sent.flow as usize] += u64::from(sent.len);
            bench.offer(sent.len, |m| m.flow = sent.flow);
        }
        assert!(fair(&bytes, &[1, 1]), "{bytes:?}");
    }

    #[test]
    fn a32_flows_collide_as_theory_says() {
        // Forced: two flows of one queue are one flow to the scheduler.
        let mut bench = bench(16, 10_000_000);
        for flow in [3, 19, 3, 19, 4, 4, 4] {
            bench.offer(500, |m| m.flow = flow);
        }
        let order: Vec<u32> = core::iter::from_fn(|| bench.serve().map(|m| m.flow)).collect();
        assert_eq!(order[..4].iter().filter(|&&f| f == 4).count(), 2, "{order:?}");

        // Among n flows, one shares its queue with probability 1 - (1 - 1/N)^(n-1).
        let (queues, n, trials, seed) = (256u32, 20, 20_000, weir_seed::seed());
        let (mut random, mut collided) = (Random::new(seed), 0);
        let params =
            Params::new().with("nqueues", Value::Count(queues.into())).with("hash", Value::Word("full"));
        let mut flows = Flows::new(&params, &FLOWS, 1);
        let mut cx = Cx::new(1, bench.cx.link, 1);
        for _ in 0..trials {
            let mut queue = || {
                let mut meta = crate::packet::Meta::new(64, cx.now, crate::packet::FrameRef(0));
                meta.flow = random.next_u32();
                let id = cx.packets.insert(meta).unwrap();
                let queue = flows.queue_of(&mut cx, &id);
                cx.packets.remove(id);
                queue
            };
            let first = queue();
            let others: Vec<usize> = (1..n).map(|_| queue()).collect();
            collided += u32::from(others.contains(&first));
        }
        let p = 1.0 - (1.0 - 1.0 / f64::from(queues)).powi(n - 1);
        let sigma = (f64::from(trials) * p * (1.0 - p)).sqrt();
        let error = (f64::from(collided) - f64::from(trials) * p).abs();
        assert!(error < 6.0 * sigma, "seed {seed}: {collided} of {trials}, p {p}");
        // Reversed: one flow more in the formula is far off.
        let wrong = 1.0 - (1.0 - 1.0 / f64::from(queues / 2)).powi(n - 1);
        assert!((f64::from(collided) - f64::from(trials) * wrong).abs() > 6.0 * sigma);
    }

    /// Two source ports share a queue under one seed, and under most others they do not. The other
    /// three hashes come salted from the port.
    #[test]
    fn nobody_can_aim_at_a_queue() {
        let params = [("hash", Value::Word("srcport")), ("nqueues", Value::Count(256))];
        for discipline in ["wfq", "drr", "qfq"] {
            let queues_of = |seed: u64, ports: [u16; 2]| {
                let mut bench = Bench::new(&node(discipline, &params), seed);
                for port in ports {
                    bench.offer(64, |m| m.src_port = port);
                }
                crate::sched::testing::stat(&*bench.tree.discipline, "queues_busy")
            };
            // As the ports themselves would have fallen: 1000 and 1256 are equal mod 256.
            let together = |ports| (1..101).filter(|&seed| queues_of(seed, ports) == 1).count();
            for ports in [[1_000, 1_256], [1_000, 1_001], [0, 32_768]] {
                assert!(together(ports) <= 5, "{discipline}: {ports:?} share a queue too often");
            }
            // One flow stays in one queue, and a seed repeats.
            assert_eq!(together([1_000, 1_000]), 100, "{discipline}");
            let once = |seed| queues_of(seed, [1_000, 1_256]);
            assert!((1..101).all(|seed| once(seed) == once(seed)), "{discipline}");
        }
    }

    #[test]
    fn the_longest_queue_by_weight_loses_its_head() {
        let mut bench = bench(4, 10_000);
        weight(&mut bench, 1, 300).unwrap();
        for n in 0..10 {
            assert_eq!(bench.offer(1000, |m| m.flow = u32::from(n >= 4)), Verdict::Queued);
        }
        // Queue 0 has 4000 bytes at 100, queue 1 6000 at 300: the first is the longer one.
        assert_eq!(bench.offer(500, |m| m.flow = 2), Verdict::Queued);
        assert_eq!(bench.dropped.len(), 1);
        let (victim, reason) = &bench.dropped[0];
        assert_eq!((victim.frame.0, *reason), (0, DropReason::Pushout));
        // Now 3000 at 100: 10 000 bytes of a newcomer are the longest by themselves.
        assert_eq!(bench.offer(10_000, |m| m.flow = 3), Verdict::Dropped);
        bench.check();
        let params = Params::new().with("qsize", Value::Bytes(2_000));
        bench.tree.discipline.reconfigure(&mut bench.cx, "", &params).unwrap();
        assert!(bench.tree.discipline.backlog().bytes <= 2_000);
    }

    #[test]
    fn bad_values_are_refused() {
        let mut bench = bench(4, 10_000);
        for (queue, w) in [(4, 100), (0, 0), (0, 10_001)] {
            assert!(weight(&mut bench, queue, w).is_err(), "{queue} {w}");
        }
        let params = Params::new().with("nqueues", Value::Count(8));
        assert!(bench.tree.discipline.reconfigure(&mut bench.cx, "", &params).is_err());
        // A flow must not change queues: what makes one stays as it was.
        for (word, taken) in [("full", true), ("dstaddr", false), ("srcport", false)] {
            let params = Params::new().with("hash", Value::Word(word));
            let answer = bench.tree.discipline.reconfigure(&mut bench.cx, "", &params);
            assert_eq!(answer.is_ok(), taken, "{word}: {answer:?}");
        }
    }
}
