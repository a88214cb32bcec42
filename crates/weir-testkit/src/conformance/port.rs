//! A discipline inside a `Port`: swap under load, fall back to FIFO, conservation by events.
//!
//! Every packet that is offered ends once, as `Sent` or as `Dropped`. A swap drops nothing while
//! the ring is full (otherwise the new tree is asked at once, and an AQM may drop at departure).
//! After a fall back, by hand or because a discipline broke, packets leave in order of arrival.

use super::ops::FLOWS;
use super::rig::{PATIENCE_NS, Summary};
use super::waiting::Waiting;
use crate::generate::{Below, Generator};
use weir_core::Random;
use weir_core::classify::Classifier;
use weir_core::packet::{FrameRef, Meta};
use weir_core::port::{Event, EventKind, Port, PortConfig, PortPlan, Refill, WireConfig};
use weir_core::queue::{DropReason, Link, ParamError, Verdict};
use weir_core::sched::{Node, Registry, Tree};
use weir_core::units::{Duration, Instant};

type Law = Result<(), String>;

/// What became of the packets, as the host hears it.
#[derive(Default)]
struct Host {
    /// By serial number: alive or not, and the spell of its flow in which it came.
    packets: Vec<(bool, u32)>,
    /// By flow: the present spell, and the serial number after the last packet taken of it. A
    /// spell ends when a swap sends the flow to another class than before: the order of packets
    /// in two classes is the configuration's doing.
    flows: [(u32, u32); FLOWS as usize],
    /// Serial number after the last packet taken, if all must leave in order of arrival.
    in_order_from: Option<u32>,
    offered: u64,
    sent: u64,
    dropped: u64,
    /// The time of the last event.
    heard: Instant,
    wrong: Option<String>,
}

impl Host {
    fn hear(&mut self, Event { at, meta, kind }: Event<'_>) {
        if at < self.heard {
            self.wrong.get_or_insert(format!("an event of {at} came after one of {}", self.heard));
        }
        self.heard = at;
        match kind {
            EventKind::Taken => self.leaves_the_tree(meta),
            EventKind::Sent => {
                self.sent += 1;
                self.ends(meta, "sent");
            }
            EventKind::Dropped(reason) => {
                self.dropped += 1;
                self.ends(meta, reason.name());
            }
        }
    }
    fn leaves_the_tree(&mut self, meta: &Meta) {
        let serial = meta.frame.0;
        if let Some(next) = &mut self.in_order_from {
            if serial < *next {
                self.wrong.get_or_insert(format!("a FIFO gave packet {serial} after {}", *next - 1));
            }
            *next = serial + 1;
        }
        let (spell, last) = &mut self.flows[meta.src_port as usize];
        if self.packets.get(serial as usize).is_none_or(|(_, of)| of != spell) {
            return;
        }
        if serial < *last {
            self.wrong.get_or_insert(format!("packet {serial} left after {} of its flow", *last - 1));
        }
        *last = serial + 1;
    }
    fn ends(&mut self, meta: &Meta, how: &str) {
        match self.packets.get_mut(meta.frame.0 as usize) {
            Some((alive, _)) if *alive => *alive = false,
            _ => {
                let what = format!("packet {} ended ({how}), and it was not alive", meta.frame.0);
                self.wrong.get_or_insert(what);
            }
        }
    }
}

/// A port under random calls.
pub(super) struct Bay<'a> {
    registry: &'a Registry,
    generator: Generator<'a>,
    random: Random,
    host: Host,
    port: Port,
    now: Instant,
    /// The class that each flow belongs to, whatever tree stands above, and the leaf where it is.
    wanted: Vec<String>,
    leaf: Vec<u32>,
    ring: u32,
    packet_ns: u64,
    /// What the tree of now lets wait.
    waiting: Waiting,
    /// The configuration that runs at first.
    pub(super) node: Node,
    pub(super) summary: Summary,
}

impl<'a> Bay<'a> {
    pub(super) fn new(
        registry: &'a Registry,
        name: &str,
        below: Below<'_>,
        link: Link,
        seed: u64,
    ) -> Result<Self, ParamError> {
        let mut generator = Generator::new(registry, link, seed);
        let (node, tree) = generator.tree(name, below)?;
        let mut random = Random::new(seed ^ 0x0b07);
        let ring = 1 + random.below(4) as u32;
        let refill = if random.below(2) == 0 { Refill::Packet } else { Refill::Batch };
        let wire = match random.below(6) {
            0 => WireConfig::Open,
            1 => WireConfig::Regulator { depth_bytes: 1_500 + random.below(30_000) },
            _ => WireConfig::Link { ring, refill },
        };
        let mut config = PortConfig::new(link, wire);
        config.seed = seed;
        config.capacity = 300;
        config.packet_events = random.below(2) == 0;
        config.tick = Duration::from_nanos([0, 0, 1_000_000, 10_000_000][random.below(4) as usize]);
        let wanted: Vec<String> = (0..FLOWS).map(|_| format!("c{}", 1 + random.below(9))).collect();
        let leaf = wanted.iter().map(|name| home(&tree, name)).collect();
        let waiting = Waiting::new(registry, &node, &tree.leaves);
        Ok(Bay {
            registry,
            generator,
            random,
            host: Host::default(),
            port: Port::new(config, PortPlan::new(tree, Classifier::empty())),
            now: Instant::ZERO,
            waiting,
            wanted,
            leaf,
            ring: if matches!(wire, WireConfig::Link { .. }) { ring } else { u32::MAX },
            packet_ns: link.time_for(1_000).ceil().as_nanos().min(1_000_000_000),
            node,
            summary: Summary::default(),
        })
    }
    /// One random call; answers what it was.
    pub(super) fn step(&mut self) -> (String, Law) {
        self.summary.operations += 1;
        let draw = self.random.below(1_000);
        let (name, law) = match draw {
            0..=549 => ("offer", self.offer()),
            550..=899 => ("advance", self.advance()),
            900..=974 => ("swap", self.swap()),
            975..=984 => ("fall_back", self.fall_back()),
            985..=990 => ("flush", self.flush()),
            _ => ("reconfigure", self.reconfigure()),
        };
        let told = format!("{} {name} ({draw})", self.now);
        (told, law.and_then(|()| self.audit()))
    }
    /// Lets the port run dry and flushes what has no rate.
    pub(super) fn finish(&mut self) -> Law {
        self.drain()?;
        self.flush()?;
        self.now += Duration::from_secs(86_400);
        self.port.advance(self.now, &mut |event| self.host.hear(event));
        self.audit()?;
        let left = self.host.packets.iter().filter(|(alive, _)| *alive).count();
        self.summary.sent = self.host.sent;
        self.summary.dropped = self.host.dropped;
        if left == 0 { Ok(()) } else { Err(format!("{left} packets neither left nor died")) }
    }

    /// No more arrivals: time passes from event to event until nothing is due. Each event is a
    /// packet that leaves, or a timer that lets one go, or with a coarse timer one that finds the
    /// ring full; what still waits then has no rate.
    fn drain(&mut self) -> Law {
        let packets = self.port.backlog().packets + u64::from(self.port.in_ring());
        for _ in 0..4 * packets + 4 {
            let next = self.port.next_wake_up();
            if next == Instant::NEVER {
                return self.held_rightly();
            }
            if next.since(self.now).as_nanos() > PATIENCE_NS {
                return Err(format!("liveness: the port waits until {next}, over a year from {}", self.now));
            }
            self.now = self.now.max(next);
            self.port.advance(self.now, &mut |event| self.host.hear(event));
            self.audit()?;
        }
        Err(format!("liveness: {packets} packets have not left after four events each"))
    }
    fn held_rightly(&self) -> Law {
        let leaves = 0..self.port.leaves().len() as u32;
        for (leaf, account) in leaves.filter_map(|leaf| Some((leaf, self.port.account(leaf)?))) {
            let left = account.offered_packets - account.sent_packets - account.dropped();
            if left > 0
                && let Some(objection) = self.waiting.objection(None, leaf)
            {
                return Err(format!(
                    "liveness: {left} packets of class {} (leaf {leaf}) wait for ever with no more arrivals, and {objection}",
                    self.waiting.class(leaf)
                ));
            }
        }
        Ok(())
    }
    fn offer(&mut self) -> Law {
        let flow = self.random.below(u64::from(FLOWS)) as usize;
        let serial = self.host.packets.len() as u32;
        let len = 20 + self.random.below(1_495) as u32;
        let mut meta = Meta::new(len, self.now, FrameRef(serial));
        (meta.leaf, meta.flow) = (self.leaf[flow], (flow as u32).wrapping_mul(0x9e37_79b9));
        (meta.src_hash, meta.dst_hash) = (flow as u32 * 77, flow as u32 * 1_001);
        (meta.src_port, meta.dst_port, meta.protocol) = (flow as u16, 80, 6);
        (meta.ecn, meta.dscp) = ((flow % 4) as u8, self.random.below(64) as u8);
        self.host.packets.push((true, self.host.flows[flow].0));
        self.host.offered += 1;
        self.summary.offered += 1;
        let verdict = self.port.offer(self.now, meta, &mut |event| self.host.hear(event));
        if verdict == Verdict::Dropped && self.host.packets[serial as usize].0 {
            return Err(format!("offer says that packet {serial} died, and no event did"));
        }
        Ok(())
    }
    fn advance(&mut self) -> Law {
        let step = match self.random.below(16) {
            0..=2 => 0,
            3..=10 => self.random.below(2 * self.packet_ns),
            11..=14 => self.port.next_wake_up().since(self.now).as_nanos().min(10_000_000_000),
            _ => self.random.below(60_000_000_000),
        };
        self.now += Duration::from_nanos(step);
        self.port.advance(self.now, &mut |event| self.host.hear(event));
        match self.port.next_wake_up() {
            next if next > self.now => Ok(()),
            next => Err(format!("it is {}, and there is still something to do at {next}", self.now)),
        }
    }
    fn swap(&mut self) -> Law {
        let names: Vec<&str> = self.registry.iter().filter(|e| e.build.is_some()).map(|e| e.name).collect();
        // Every other swap comes back to the discipline under test.
        let name = match self.random.below(2) {
            0 => self.node.discipline.clone(),
            _ => names[self.random.below(names.len() as u64) as usize].to_owned(),
        };
        let below = if self.random.below(2) == 0 { Below::Leaves } else { Below::Anything(1) };
        self.generator.restart_names();
        let Ok((node, tree)) = self.generator.tree(&name, below) else {
            return Err(format!("no configuration of {name} below {below:?} was accepted"));
        };
        for (flow, wanted) in self.wanted.iter().enumerate() {
            let leaf = home(&tree, wanted);
            let was = &self.port.leaves()[self.leaf[flow] as usize].name;
            if *was != tree.leaves[leaf as usize].name {
                self.host.flows[flow] = (self.host.flows[flow].0 + 1, 0);
            }
            self.leaf[flow] = leaf;
        }
        self.waiting = Waiting::new(self.registry, &node, &tree.leaves);
        let full = self.port.in_ring() >= self.ring;
        let (waiting, dropped) = (self.port.backlog(), self.host.dropped);
        self.host.in_order_from = None;
        self.port
            .swap(self.now, PortPlan::new(tree, Classifier::empty()), &mut |event| self.host.hear(event));
        self.summary.swaps += 1;
        if full && self.port.is_broken().is_none() {
            let still = self.port.in_ring() >= self.ring;
            if still && (self.port.backlog() != waiting || self.host.dropped != dropped) {
                return Err(format!("a swap to {name} turned {waiting:?} into {:?}", self.port.backlog()));
            }
        }
        Ok(())
    }
    fn fall_back(&mut self) -> Law {
        let dropped = self.host.dropped;
        self.host.in_order_from.get_or_insert(0);
        self.port.fall_back(self.now, &mut |event| self.host.hear(event));
        if self.host.dropped != dropped {
            return Err("falling back dropped packets".into());
        }
        Ok(())
    }
    fn flush(&mut self) -> Law {
        self.port.flush(self.now, DropReason::Flush, &mut |event| self.host.hear(event));
        match self.port.backlog().packets {
            0 => Ok(()),
            n => Err(format!("{n} packets outlived a flush")),
        }
    }
    fn reconfigure(&mut self) -> Law {
        let name =
            self.port.leaves()[self.random.below(self.port.leaves().len() as u64) as usize].name.clone();
        let Some(entry) = self.registry.find(&self.node.discipline) else { return Ok(()) };
        let params = self.generator.params(entry, weir_core::queue::Scope::Class, 2);
        let result = self.port.reconfigure(self.now, &name, &params, &mut |event| self.host.hear(event));
        if result.is_ok() {
            self.waiting.changed(&name, &params);
            self.summary.reconfigured += 1;
        }
        Ok(())
    }
    fn audit(&mut self) -> Law {
        if self.port.is_broken().is_some() && self.host.in_order_from.is_none() {
            self.summary.breaks += 1;
            // What the broken call itself sent may have been out of order; from here on nothing.
            self.host.in_order_from = Some(0);
        }
        if let Some(wrong) = self.host.wrong.take() {
            return Err(wrong);
        }
        let total = self.port.total();
        let seen = (self.host.offered, self.host.sent, self.host.dropped);
        if (total.offered_packets, total.sent_packets, total.dropped()) != seen {
            return Err(format!("the port's ledger differs from its events {seen:?}"));
        }
        self.port.check().map_err(|b| format!("check: {}: {}", b.discipline, b.what))
    }
}

fn home(tree: &Tree, name: &str) -> u32 {
    tree.leaf(name).or(tree.default_leaf).unwrap_or(0)
}
