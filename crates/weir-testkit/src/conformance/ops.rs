//! Random calls, drawn from a seed alone, so that every form of a discipline gets the same.

use crate::generate::Generator;
use weir_core::Random;
use weir_core::queue::{DropReason, Link, Params, Scope};
use weir_core::sched::{Entry, Node, Registry};

/// Flows that packets are drawn from.
pub(super) const FLOWS: u32 = 24;

/// A packet to come.
#[derive(Clone, Debug)]
pub(super) struct Arrival {
    pub len: u32,
    pub leaf: u32,
    pub flow: u32,
    pub dscp: u8,
}

/// A call, or a few that belong together.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Enqueue(Arrival),
    Head,
    Take,
    /// So many dequeues at one instant, or until nothing comes.
    Several(u32),
    /// A dequeue and, if it says when to come back, the laws about that time.
    Probe {
        within: u64,
        past_ns: u64,
    },
    Wait(u64),
    /// Wait for the time that was last heard.
    WaitUntilDue,
    /// The oldest packet on the wire has left.
    Sent,
    Flush(DropReason),
    Reconfigure {
        class: String,
        params: Params,
    },
    /// Reconfigure a class that does not exist.
    Stranger(Params),
    /// Deep invariants and statistics.
    Check,
}

/// A stream of calls to a tree.
pub(super) struct Operator<'a> {
    random: Random,
    generator: Generator<'a>,
    /// Who can be reconfigured: name, entry, scope.
    addresses: Vec<(String, Entry, Scope)>,
    leaves: u32,
    packet_ns: u64,
    /// Likelihood of arrivals, of 100: changes, so that queues fill and empty.
    pressure: u64,
}

impl<'a> Operator<'a> {
    pub(super) fn new(registry: &'a Registry, node: &Node, leaves: usize, link: Link, seed: u64) -> Self {
        let mut addresses = Vec::new();
        collect(registry, node, "", &mut addresses);
        Operator {
            random: Random::new(seed),
            generator: Generator::new(registry, link, seed ^ 0x9a3),
            addresses,
            leaves: leaves as u32,
            packet_ns: link.time_for(1_000).ceil().as_nanos().min(1_000_000_000),
            pressure: 50,
        }
    }
    pub(super) fn next_op(&mut self) -> Op {
        if self.random.below(200) == 0 {
            self.pressure = [5, 30, 50, 70, 95][self.random.below(5) as usize];
        }
        if self.random.below(100) < self.pressure {
            return Op::Enqueue(self.arrival());
        }
        match self.random.below(200) {
            0..=59 => Op::Take,
            60..=79 => Op::Head,
            80..=99 => Op::Several(1 + self.random.below(12) as u32),
            100..=124 => Op::Probe { within: self.random.next_u64(), past_ns: self.wait() },
            125..=154 => Op::Wait(self.wait()),
            155..=174 => Op::WaitUntilDue,
            175..=189 => Op::Sent,
            190..=194 => Op::Check,
            195..=197 => self.reconfigure(),
            198 => Op::Stranger(Params::new()),
            _ if self.random.below(4) > 0 => Op::Check,
            _ => Op::Flush(DropReason::ALL[self.random.below(DropReason::ALL.len() as u64) as usize]),
        }
    }
    fn arrival(&mut self) -> Arrival {
        let len = match self.random.below(8) {
            0..=2 => 64,
            3..=4 => 1_514,
            5..=6 => 20 + self.random.below(1_495) as u32,
            _ => 20 + self.random.below(65_516) as u32,
        };
        // A few flows send most.
        let flow = self.random.below(u64::from(FLOWS)) & self.random.next_u64();
        Arrival {
            len,
            leaf: self.random.below(u64::from(self.leaves)) as u32,
            flow: flow as u32,
            dscp: self.random.below(64) as u8,
        }
    }
    /// Nothing, a little, or a jump.
    fn wait(&mut self) -> u64 {
        match self.random.below(64) {
            0..=19 => 0,
            20..=29 => 1,
            30..=53 => self.random.below(2 * self.packet_ns + 2),
            54..=59 => self.random.below(100_000_000),
            60..=62 => self.random.below(10_000_000_000),
            _ => self.random.below(10 * 86_400 * 1_000_000_000),
        }
    }
    fn reconfigure(&mut self) -> Op {
        let index = self.random.below(self.addresses.len() as u64) as usize;
        let (class, entry, scope) = self.addresses[index].clone();
        let params = match self.random.below(4) {
            0 => self.generator.wrong_params(&entry, scope),
            // About two of them: of thirty, one is often refused.
            _ => {
                let known =
                    self.generator.registry().params(&entry).filter(|p| p.scope == scope).count() as u64;
                self.generator.params(&entry, scope, (known / 2).max(2))
            }
        };
        Op::Reconfigure { class, params }
    }
}

/// A stream of reconfigurations that every discipline must refuse.
pub(super) struct Nuisance<'a> {
    random: Random,
    generator: Generator<'a>,
    addresses: Vec<(String, Entry, Scope)>,
}

impl<'a> Nuisance<'a> {
    pub(super) fn new(registry: &'a Registry, node: &Node, link: Link, seed: u64) -> Self {
        let mut addresses = Vec::new();
        collect(registry, node, "", &mut addresses);
        Nuisance {
            random: Random::new(seed ^ 0x517),
            generator: Generator::new(registry, link, seed ^ 0x2d5),
            addresses,
        }
    }
    /// A class and what it must refuse.
    pub(super) fn next_one(&mut self) -> (String, Params) {
        let index = self.random.below(self.addresses.len() as u64) as usize;
        let (class, entry, scope) = &self.addresses[index];
        (class.clone(), self.generator.refused_params(entry, *scope))
    }
}

fn collect(registry: &Registry, node: &Node, name: &str, out: &mut Vec<(String, Entry, Scope)>) {
    let Some(entry) = registry.find(&node.discipline) else { return };
    out.push((name.into(), *entry, Scope::Discipline));
    for class in &node.classes {
        out.push((class.name.clone(), *entry, Scope::Class));
        if let Some(inner) = &class.queue {
            collect(registry, inner, &class.name, out);
        }
    }
}
