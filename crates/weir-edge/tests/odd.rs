//! Odd configurations, orders and times: every call of an edge returns, and what it counts stays true.
#![allow(missing_docs, clippy::unwrap_used)]

use std::net::Ipv4Addr;
use weir_core::Random;
use weir_core::packet::{Dscp, Key};
use weir_core::queue::{Kind, Value};
use weir_core::units::{Duration, Fixed, Fraction, Instant, Rate};
use weir_edge::admit::{Admission, Evict};
use weir_edge::allocate::{
    Action, Allocation, Amount, Answer, Backlog, Congestion, Law, Log, Threshold, Windows,
};
use weir_edge::edge::{Class, Config, Edge, Place, Reason, Recognition, SESSIONS, Session};
use weir_edge::handlers::HANDLERS;
use weir_edge::recognise::statistical::Rule;
use weir_edge::recognise::{Payload, Rules};
use weir_edge::sla::{Contract, Policy, Prefix};

/// Most that a file may say, bit/s.
const MOST: u64 = 1_000_000_000_000_000;

/// A number whose size is drawn first: ends are as likely as the middle.
fn odd(random: &mut Random, most: u64) -> u64 {
    match random.below(6) {
        0 => 0,
        1 => most,
        2 => random.below(3).min(most),
        _ => {
            let size = 1 << random.below(50);
            random.below(size.min(most.max(1)))
        }
    }
}

fn share(random: &mut Random) -> Fraction {
    Fraction::ratio(random.below(101), 100)
}

fn time(random: &mut Random) -> Duration {
    Duration::from_nanos(odd(random, 3_600_000_000_000))
}

fn allocation(random: &mut Random) -> Allocation {
    let amount = |random: &mut Random| match random.below(2) {
        0 => Amount::Rate(odd(random, MOST)),
        _ => Amount::Share(share(random)),
    };
    let law = match random.below(3) {
        0 => Law::Fixed,
        1 => Law::Threshold(Threshold { high: share(random), low: share(random), ..Threshold::default() }),
        _ => Law::Log(Log {
            gain: amount(random),
            step: amount(random),
            target: share(random),
            published: random.below(2) == 0,
        }),
    };
    let congestion = Congestion { drain: time(random), margin: share(random), packets: random.below(3) == 0 };
    Allocation {
        law,
        windows: Windows { span: time(random), hold: random.below(11) as u32 },
        at_shaper: random.below(2) == 0,
        congestion: (random.below(4) > 0).then_some(congestion),
        guard: time(random),
        from: odd(random, MOST),
        to: odd(random, MOST),
        initial: odd(random, MOST),
        unit: odd(random, MOST),
        retry: time(random),
    }
}

fn admission(random: &mut Random) -> Admission {
    Admission {
        accept: share(random),
        drop: share(random),
        new_flow_bps: (random.below(2) == 0).then(|| odd(random, MOST)),
        evict: Evict::ALL[random.below(5) as usize],
        timeout: time(random),
        drop_refused: random.below(2) == 0,
    }
}

fn contract(random: &mut Random, id: u32, classes: usize) -> Contract {
    Contract {
        id,
        bandwidth_bps: odd(random, MOST),
        shared: share(random),
        lend: random.below(2) == 0,
        dscp: Dscp::EF,
        policy: [Policy::Ok, Policy::Drop, Policy::BestEffort, Policy::FlowBestEffort]
            [random.below(4) as usize],
        timeout: (random.below(2) == 0).then(|| time(random)),
        flows: 1 + random.below(20) as u32,
        class: random.below(classes as u64) as usize,
        accept: (random.below(2) == 0).then(|| share(random)),
        drop: (random.below(2) == 0).then(|| share(random)),
        evict: (random.below(2) == 0).then(|| Evict::ALL[random.below(5) as usize]),
        guessed: (random.below(2) == 0).then(|| share(random)),
        guessed_dscp: (random.below(2) == 0).then_some(Dscp::VA),
    }
}

fn config(random: &mut Random) -> Config {
    let classes: Vec<Class> = (0..=random.below(2) as u32)
        .map(|leaf| Class {
            leaf,
            allocation: (random.below(5) > 0).then(|| allocation(random)),
            admission: admission(random),
            rate_bps: odd(random, MOST),
        })
        .collect();
    let contracts: Vec<Contract> =
        (0..random.below(4) as u32).map(|id| contract(random, 10 + id, classes.len())).collect();
    let prefixes = (0..contracts.len() as u32)
        .map(|n| (Prefix::new(false, 0x0a00_0000 + u128::from(n) * 4, 30), n))
        .collect();
    let rule = Rule { per_aggregate: random.below(2) == 0, ..Rule::default() };
    let rules = Rules { statistical: (random.below(2) == 0).then_some(rule), ..Rules::default() };
    let recognition =
        Recognition { trust_dscp: true, rules, idle: time(random), flows: 8 << random.below(4) };
    Config {
        recognition: (random.below(6) > 0).then_some(recognition),
        classes,
        contracts,
        prefixes,
        keep_untrusted: random.below(2) == 0,
        overhead: random.below(100) as u32,
        seed: random.next_u64(),
    }
}

fn key(random: &mut Random) -> Key {
    let address = |n: u64| Ipv4Addr::from_bits(0x0a00_0000 + n as u32);
    let key = Key::ipv4(address(random.below(20)), address(random.below(20)), 17);
    let tos = if random.below(2) == 0 { 46 << 2 } else { 0 };
    key.with_ports(random.below(8) as u16, 5_004).with_tos(tos)
}

fn session(random: &mut Random) -> Session {
    let place = |random: &mut Random| {
        let prefix =
            Prefix::new(false, 0x0a00_0000 + u128::from(random.below(20)), 24 + random.below(9) as u8);
        vec![Place { prefix, ports: Vec::new() }]
    };
    Session {
        id: random.below(400).into(),
        leaf: random.below(3) as u32,
        rate_bps: odd(random, MOST),
        device: place(random),
        server: place(random),
    }
}

/// A value of that kind, not always one that may be.
fn value(random: &mut Random, kind: Kind) -> Option<Value> {
    Some(match kind {
        Kind::Rate => Value::Rate(Rate::from_bps(odd(random, MOST))),
        Kind::Percent => Value::Fraction(share(random)),
        Kind::Time { .. } => Value::Time(time(random)),
        Kind::Count { .. } => Value::Count(odd(random, u64::MAX)),
        Kind::Real => Value::Real(Fixed::from_raw(odd(random, 1 << 40) as i64)),
        Kind::Word(words) => Value::Word(words[random.below(words.len() as u64) as usize]),
        _ => return None,
    })
}

struct Rig {
    edge: Edge,
    now: Instant,
    waiting: Vec<(u32, u32)>,
    asked: Vec<(u32, u64, u64)>,
}

impl Rig {
    fn step(&mut self, random: &mut Random) {
        let now = self.now;
        let edge = &mut self.edge;
        match random.below(40) {
            0..18 => {
                let (key, len) = (key(random), 40 + random.below(1_500) as u32);
                let payload = Payload { head: &[0x7f; 20], len: len - 28 };
                if edge.packet(now, &key, payload, len).reason == Reason::InProfile {
                    let leaf = random.below(2) as u32;
                    edge.entered(now, leaf, len);
                    self.waiting.push((leaf, len));
                }
            }
            18..24 => {
                if let Some((leaf, len)) = self.waiting.pop() {
                    edge.left(now, leaf, len, random.below(5) > 0);
                }
            }
            24..28 => edge.timer(now),
            28..31 => {
                if let Some((leaf, version, rate)) = self.asked.pop() {
                    let answer = match random.below(3) {
                        0 => Answer::Refused,
                        1 => Answer::Granted(rate),
                        _ => Answer::Granted(odd(random, rate)),
                    };
                    edge.answer(now, leaf, version, answer);
                }
            }
            31 => edge.withdraw(now, random.below(2) as u32, odd(random, MOST), time(random)),
            32 => edge.set_backlog(
                now,
                0,
                Backlog { bytes: odd(random, 1 << 40), packets: odd(random, 1 << 30) },
            ),
            33 | 34 => {
                let handler = &HANDLERS[random.below(HANDLERS.len() as u64) as usize];
                let value = value(random, handler.spec.kind).filter(|_| random.below(8) > 0);
                let _ = edge.set_handler(now, random.below(2) as u32, handler, value);
            }
            35 => {
                let sessions = (0..odd(random, 300)).map(|_| session(random)).collect();
                edge.set_sessions(now, sessions);
            }
            36 => {
                let config = config(random);
                let kept: Vec<Option<usize>> = config
                    .classes
                    .iter()
                    .map(|_| (random.below(3) > 0).then(|| random.below(3) as usize))
                    .collect();
                edge.follow(now, config, &kept);
            }
            37 => {
                let mut numbers = Vec::new();
                edge.estate(now, &mut numbers);
                let config = if random.below(2) == 0 { edge.config().clone() } else { config(random) };
                let mut other = Edge::new(config, now);
                if other.inherit(now, &numbers, &[Some(0), Some(1)]) {
                    *edge = other;
                }
            }
            38 => {
                let key = key(random);
                let _ = match random.below(4) {
                    0 => edge.evict_flow(now, &key).is_ok(),
                    1 => edge.pin(now, &key),
                    2 => edge.unpin(&key),
                    _ => edge.explain(&key).pinned,
                };
            }
            _ => edge.recognise(now, random.below(2) == 0),
        }
        while let Some((leaf, action)) = self.edge.poll() {
            if let Action::Ask(request) = action {
                self.asked.push((leaf, request.version, request.rate_bps));
            }
        }
        let pause = if random.below(200) == 0 { odd(random, 1 << 50) } else { random.below(30_000_000) };
        self.now = now + Duration::from_nanos(pause);
    }
    fn check(&self, seed: u64) {
        assert!(self.edge.sessions().count() <= SESSIONS, "seed {seed}");
        let admitted: u64 = self.edge.class_stats().map(|(_, stats)| stats.flows.now()).sum();
        assert!(admitted <= self.edge.places() as u64, "seed {seed}: {admitted}");
    }
}

/// Everything that can be said to an edge, in any order, with odd values and times: it neither panics nor hangs.
#[test]
fn an_edge_stands_whatever_is_said_to_it() {
    for seed in weir_seed::seeds(60) {
        let mut random = Random::new(seed);
        let edge = Edge::new(config(&mut random), Instant::ZERO);
        let mut rig = Rig { edge, now: Instant::ZERO, waiting: Vec::new(), asked: Vec::new() };
        for _ in 0..400 {
            rig.step(&mut random);
            rig.check(seed);
        }
    }
}
