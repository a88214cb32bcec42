//! The same traffic through a tree on one core and through its parts.

use weir_core::Random;
use weir_core::classify::Classifier;
use weir_core::packet::{FrameRef, Meta};
use weir_core::port::{Event, EventKind, Port, PortConfig, PortPlan, WireConfig};
use weir_core::queue::Link;
use weir_core::sched::{LeafInfo, Node, Registry, Tree};
use weir_core::spread::{Ask, Lend, Loan, cut};
use weir_core::units::{Duration, Fine, Instant};
use weir_testkit::spread::Shared;

/// What is wrong on purpose between the parts and their link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Twist {
    Nothing,
    /// A part sends twice what it was lent.
    Double,
    /// The first part says that it has come a 64th as far as it has.
    Liar,
    /// Half of what is lent is lost.
    Lossy,
    /// The lowest level goes first.
    Upside,
}

struct Twisted(Shared, Twist);

impl Lend for Twisted {
    fn ask(&mut self, now: Instant, mut ask: Ask) -> Loan {
        let lies = self.1 == Twist::Liar && self.0.part == 0;
        match self.1 {
            Twist::Liar if lies => ask.virtual_time = Fine::from_raw(ask.virtual_time.raw() >> 6),
            Twist::Lossy => ask.bytes *= 2,
            Twist::Upside => ask.level = 15 - ask.level,
            Twist::Liar | Twist::Double | Twist::Nothing => {}
        }
        let mut loan = self.0.ask(now, ask);
        match self.1 {
            Twist::Liar if lies => loan.virtual_time = Fine::from_raw((loan.virtual_time.raw() + 1) << 6),
            Twist::Lossy => loan.bytes /= 2,
            Twist::Double => loan.bytes *= 2,
            _ => {}
        }
        loan
    }
    fn give_back(&mut self, now: Instant, bytes: u64) {
        self.0.give_back(now, if self.1 == Twist::Double { bytes / 2 } else { bytes });
    }
}

/// A packet that left.
#[derive(Clone, Copy)]
pub struct Sent {
    pub at: Instant,
    pub leaf: u32,
    pub serial: u32,
    pub cost_bytes: u64,
}

/// What is offered: arrivals in order of time, and leaves that always have packets.
pub struct Traffic {
    pub arrivals: Vec<(Instant, u32, u32)>,
    pub greedy: Vec<u32>,
    pub until: Instant,
}

/// Packets that a greedy leaf always has: far more than a part may send at once.
const GREEDY: u32 = 80;

/// Ports that share a link: one with the whole tree behind a regulator, or one for each part.
pub struct Bed {
    ports: Vec<Port>,
    /// By leaf of the whole tree: the port that it is in, and its number there.
    place: Vec<(usize, u32)>,
    host: Host,
    link: Link,
}

#[derive(Default)]
struct Host {
    sent: Vec<Sent>,
    /// Packets inside, by leaf.
    inside: Vec<u32>,
    /// By serial number: the leaf.
    leaf_of: Vec<u32>,
    overhead: u32,
}

impl Host {
    fn hear(&mut self, Event { at, meta, kind }: Event<'_>) {
        let serial = meta.frame.0;
        let leaf = self.leaf_of[serial as usize];
        match kind {
            EventKind::Taken => return,
            EventKind::Sent => {
                let cost_bytes = u64::from(meta.len + self.overhead);
                self.sent.push(Sent { at, leaf, serial, cost_bytes });
            }
            EventKind::Dropped(_) => {}
        }
        self.inside[leaf as usize] -= 1;
    }
}

fn port(tree: Tree, link: Link, wire: WireConfig) -> Port {
    // What starves must not take the room of others.
    let config = PortConfig { capacity: 1 << 16, ..PortConfig::new(link, wire) };
    Port::new(config, PortPlan::new(tree, Classifier::empty()))
}

impl Bed {
    fn new(ports: Vec<Port>, leaves: &[LeafInfo], link: Link) -> Bed {
        let place = leaves.iter().map(|leaf| {
            let in_port = |port: &Port| port.leaves().iter().position(|own| own.name == leaf.name);
            let found = ports.iter().enumerate().find_map(|(at, port)| Some((at, in_port(port)? as u32)));
            found.expect("each leaf is in one part")
        });
        let host = Host { inside: vec![0; leaves.len()], overhead: link.overhead, ..Host::default() };
        Bed { place: place.collect(), ports, host, link }
    }
    /// The tree on one core.
    pub fn whole(node: &Node, link: Link, depth_bytes: u64) -> Bed {
        let tree = Registry::builtin().build(node, link).expect("a tree");
        let leaves = tree.leaves.clone();
        Bed::new(vec![port(tree, link, WireConfig::Regulator { depth_bytes })], &leaves, link)
    }
    /// The same tree in parts.
    pub fn parts(node: &Node, link: Link, parts: usize, quantum_bytes: u64, twist: Twist) -> Bed {
        let registry = Registry::builtin();
        let leaves = registry.check(node, link).expect("a tree").leaves;
        let doors = Shared::new(&link, parts, quantum_bytes, 0);
        let plans = cut(&registry, node, link, parts).expect("a tree that can be cut");
        let part = |(plan, door): (&weir_core::spread::PartPlan, Shared)| {
            let lend = Box::new(Twisted(door, twist));
            let tree = plan.build(&registry, link, quantum_bytes, lend).expect("a part");
            port(tree, link, WireConfig::Open)
        };
        Bed::new(plans.iter().zip(doors).map(part).collect(), &leaves, link)
    }
    /// Which part a leaf is in.
    pub fn part_of(&self, leaf: u32) -> usize {
        self.place[leaf as usize].0
    }
    fn offer(&mut self, now: Instant, leaf: u32, len: u32) {
        let serial = self.host.leaf_of.len() as u32;
        self.host.leaf_of.push(leaf);
        self.host.inside[leaf as usize] += 1;
        let (port, own) = self.place[leaf as usize];
        let mut meta = Meta::new(len, now, FrameRef(serial));
        meta.leaf = own;
        let host = &mut self.host;
        self.ports[port].offer(now, meta, &mut |event| host.hear(event));
    }
    /// What left, in the order of time. Serial numbers below the number of arrivals are theirs.
    pub fn run(mut self, traffic: &Traffic) -> Vec<Sent> {
        // Greedy packets are numbered behind the arrivals.
        let (mut next, mut random) = (0, Random::new(5));
        let mut serials = Vec::new();
        loop {
            let (first, wake) = self
                .ports
                .iter()
                .map(Port::next_wake_up)
                .enumerate()
                .min_by_key(|&(_, at)| at)
                .expect("a port");
            let arrival = traffic.arrivals.get(next).map_or(Instant::NEVER, |arrival| arrival.0);
            let now = arrival.min(wake);
            if now > traffic.until {
                break;
            }
            if arrival <= wake {
                let (_, leaf, len) = traffic.arrivals[next];
                serials.push((self.host.leaf_of.len() as u32, next as u32));
                next += 1;
                self.offer(now, leaf, len);
            } else {
                let host = &mut self.host;
                self.ports[first].advance(now, &mut |event| host.hear(event));
            }
            for &leaf in &traffic.greedy {
                while self.host.inside[leaf as usize] < GREEDY {
                    let len = [64, 594, 1_514][random.below(3) as usize];
                    self.offer(now, leaf, len);
                }
            }
        }
        self.ports.iter().for_each(|port| port.check().expect("a sound port"));
        let own: std::collections::HashMap<u32, u32> = serials.into_iter().collect();
        let mut sent = self.host.sent;
        for packet in &mut sent {
            packet.serial = own.get(&packet.serial).copied().unwrap_or(u32::MAX);
        }
        sent
    }
    /// Time that `bytes` take on the link.
    pub fn time_for(&self, bytes: u64) -> Duration {
        self.link.rate.time_for(bytes).ceil().since(Instant::ZERO)
    }
}
