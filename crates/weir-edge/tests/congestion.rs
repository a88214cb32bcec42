//! Congestion where the broker gives no more: as many flows go as must, and no more.
#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::{BTreeSet, VecDeque};
use std::net::Ipv4Addr;
use weir_core::Random;
use weir_core::packet::Key;
use weir_core::units::{Duration, Fraction, Instant};
use weir_edge::admit::Admission;
use weir_edge::allocate::{Action, Allocation, Answer, Backlog, Congestion, Law, Request};
use weir_edge::edge::{Class, Config, Edge, Reason, Recognition, Turnover};
use weir_edge::recognise::Payload;

const S: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;
/// What the class has.
const B_D: u64 = 1_000_000;

fn at(ns: u64) -> Instant {
    Instant::from_nanos(ns)
}

fn key(flow: u32) -> Key {
    Key::ipv4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(192, 0, 2, 1), 17)
        .with_ports(4_000 + flow as u16, 5004)
        .with_tos(46 << 2)
}

/// A flow: when it starts, and how its packets are spaced, ns.
#[derive(Clone, Copy, Debug)]
struct Sends {
    start: u64,
    every: u64,
    len: u32,
}

/// A class before a FIFO that serves exactly its rate, and a broker that refuses every rise after `t_bb`.
struct Rig {
    edge: Edge,
    rate: u64,
    queue: VecDeque<(u64, u32)>,
    done: u64,
    answers: VecDeque<(u64, Request)>,
    t_bb: u64,
    /// When a packet last waited longer than T_s and two answers.
    late: u64,
    bound: u64,
}

impl Rig {
    fn new(plan: Allocation, admission: Admission, t_bb: u64, seed: u64) -> Self {
        let class = Class { leaf: 0, allocation: Some(plan), admission, rate_bps: 0 };
        let config = Config {
            classes: vec![class],
            contracts: Vec::new(),
            prefixes: Vec::new(),
            recognition: Some(Recognition { trust_dscp: true, ..Recognition::default() }),
            keep_untrusted: false,
            overhead: 0,
            seed,
        };
        let drain = plan.congestion.map_or(0, |c| c.drain.as_nanos());
        let mut rig = Rig {
            edge: Edge::new(config, Instant::ZERO),
            rate: 0,
            queue: VecDeque::new(),
            done: 0,
            answers: VecDeque::new(),
            t_bb,
            bound: drain + 2 * t_bb,
            late: 0,
        };
        rig.carry_out(0);
        rig
    }
    fn carry_out(&mut self, now: u64) {
        while let Some((_, action)) = self.edge.poll() {
            match action {
                Action::Shape(rate) => self.rate = rate,
                Action::Ask(request) => self.answers.push_back((now + self.t_bb, request)),
            }
        }
    }
    fn start(&mut self, now: u64) {
        if let Some(&(_, len)) = self.queue.front() {
            self.done = now + (u64::from(len) * 8 * S).div_ceil(self.rate);
        }
    }
    fn run(&mut self, until: u64) {
        loop {
            let served = if self.queue.is_empty() { u64::MAX } else { self.done };
            let answered = self.answers.front().map_or(u64::MAX, |a| a.0);
            let now = served.min(answered).min(self.edge.poll_at().as_nanos());
            if now > until {
                return;
            }
            if now == answered {
                let (_, request) = self.answers.pop_front().unwrap();
                let is_rise = self.edge.allocators().any(|(_, a)| request.rate_bps > a.allocated_bps());
                let answer = if is_rise { Answer::Refused } else { Answer::Granted(request.rate_bps) };
                self.edge.answer(at(now), 0, request.version, answer);
            } else if now == served {
                let (came, len) = self.queue.pop_front().unwrap();
                if now - came > self.bound {
                    self.late = now;
                }
                self.start(now);
                self.edge.left(at(now), 0, len, true);
            } else {
                self.edge.timer(at(now));
            }
            self.carry_out(now);
        }
    }
    fn arrive(&mut self, now: u64, flow: u32, len: u32) {
        self.run(now);
        if self.edge.packet(at(now), &key(flow), Payload::UNKNOWN, len).reason == Reason::InProfile {
            self.queue.push_back((now, len));
            if self.queue.len() == 1 {
                self.start(now);
            }
            self.edge.entered(at(now), 0, len);
        }
        self.carry_out(now);
    }
    /// The flows send up to a time, each by its place.
    fn send(&mut self, flows: &[Sends], until: u64) {
        let mut due: BTreeSet<(u64, u32)> = (0..).zip(flows).map(|(n, flow)| (flow.start, n)).collect();
        while let Some((now, n)) = due.pop_first().filter(|(now, _)| *now < until) {
            let flow = &flows[n as usize];
            self.arrive(now, n, flow.len);
            due.insert((now + flow.every, n));
        }
        self.run(until);
    }
    fn turnover(&self) -> Turnover {
        self.edge.class_stats().next().unwrap().1.flows
    }
}

/// A call of 64 kbit/s.
const CALL: Sends = Sends { start: 0, every: 20 * MS, len: 160 };

/// So many, which begin one after the other.
fn calls(count: u64, start: u64) -> Vec<Sends> {
    (0..count).map(|n| Sends { start: start + n * MS, ..CALL }).collect()
}

/// A plan whose class has 1 Mbit/s and gets no more.
fn plan(law: Law) -> Allocation {
    let margin = Fraction::ratio(20, 100);
    let congestion = Congestion { drain: Duration::from_millis(15), margin, packets: false };
    let (from, to) = (B_D, 10 * B_D);
    Allocation { law, congestion: Some(congestion), from, initial: from, to, ..Allocation::default() }
}

/// Flows that begin together and send as much as each other: how many went, and how many were too many for T_d.
fn gone_and_excess(seed: u64) -> (u64, f64, u64) {
    let mut random = Random::new(seed);
    let t_bb = MS + random.below(99 * MS);
    let rate = 48_000 + random.below(80_000);
    let len = 80 + random.below(160) as u32;
    let flows = B_D / rate + 1 + random.below(B_D * 3 / 10 / rate);
    let every = u64::from(len) * 8 * S / rate;
    let mut rig = Rig::new(plan(Law::Fixed), Admission::default(), t_bb, seed);
    let all: Vec<Sends> = (0..flows).map(|_| Sends { start: random.below(every), every, len }).collect();
    rig.send(&all, 20 * S);
    assert!(rig.late < 15 * S, "seed {seed}: it is over by then: {}", rig.late);
    let admitted = rig.turnover().admitted;
    (rig.turnover().evicted, admitted as f64 - 0.95 * B_D as f64 / rate as f64, flows)
}

/// T45: where x flows are too many, x + 2 go at most, and no fewer than bring the load below T_d. Their queue leaves without more.
#[test]
fn as_many_flows_go_as_must() {
    for seed in weir_seed::seeds(60) {
        let (gone, excess, flows) = gone_and_excess(seed);
        // What is measured is a packet of each flow more or less.
        assert!(gone as f64 + 1.5 >= excess, "seed {seed}: {gone} of {flows}, {excess} too many");
        assert!(gone <= excess.ceil() as u64 + 2, "seed {seed}: {gone} of {flows}, {excess} too many");
    }
}

/// Flows of a rate that fits send more all at once. The windows are yet to say so: what waits tells it, and a flow goes.
#[test]
fn what_has_grown_is_believed_more_than_the_windows() {
    let mut rig = Rig::new(plan(Law::Fixed), Admission::default(), 10 * MS, 1);
    rig.send(&calls(12, 0), 8 * S);
    assert_eq!(rig.turnover().evicted, 0, "768 kbit/s");
    // 1.3 Mbit/s: 50 ms bring S_q of 1,875 bytes.
    let more = calls(12, 8 * S).into_iter().map(|call| Sends { every: CALL.every * 10 / 17, ..call });
    rig.send(&more.collect::<Vec<_>>(), 8 * S + 200 * MS);
    assert!(rig.turnover().evicted > 0, "within 200 ms");
}

/// Others send into the class, and nobody has counted them. The load that is known fits, but the queue does not leave: flows go,
/// one after the time in which it should have.
#[test]
fn a_queue_that_does_not_leave_is_believed_more_than_the_load() {
    let mut rig = Rig::new(plan(Law::Fixed), Admission::default(), MS, 1);
    rig.send(&calls(4, 0), 4 * S);
    // What waits is twice S_q and stays so, whatever goes.
    rig.edge.set_backlog(at(4 * S), 0, Backlog { bytes: 3_750, packets: 20 });
    rig.send(&calls(4, 4 * S), 4 * S + 250 * MS);
    assert_eq!(rig.turnover().evicted, 0, "it may leave in 16 times 17 ms");
    rig.send(&calls(4, 4 * S + 250 * MS), 4 * S + 350 * MS);
    assert_eq!(rig.turnover().evicted, 1);
}

/// What a flow had sent in a window goes with it: at the end of that window no other flow goes because of it, and one that comes
/// next gets in.
#[test]
fn what_an_evicted_flow_sent_is_forgotten() {
    let fixed = Allocation { congestion: None, to: B_D, ..plan(Law::Fixed) };
    let mut rig = Rig::new(fixed, Admission::default(), MS, 1);
    rig.send(&(0..14).map(|n| Sends { start: n * 61 * MS, ..CALL }).collect::<Vec<_>>(), 8 * S);
    assert_eq!(rig.turnover().now(), 14);
    // One of them rises to 256 kbit/s for two thirds of a window.
    let (start, now) = (8 * S, 8 * S + 500 * MS);
    let mut more = calls(14, start);
    more[0].every = 5 * MS;
    rig.send(&more, now);
    assert!(rig.edge.evict_flow(at(now), &key(0)).is_ok());
    rig.arrive(now + 1, 99, CALL.len);
    rig.send(&calls(14, now + 2)[1..], start + 801 * MS);
    let turnover = rig.turnover();
    assert_eq!((turnover.refused, turnover.evicted, turnover.now()), (0, 1, 14), "{turnover:?}");
}
