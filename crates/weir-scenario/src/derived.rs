//! What follows from a scenario: copies of flows, addresses, the grid of the series, the hash of the inputs.

use crate::scenario::{Flow, Probe, ProbeWhat, Scenario, probe_interval};
use std::net::{Ipv4Addr, Ipv6Addr};
use weir_report::Expect;
use weir_report::disk::read_text;
use weir_text::Time;

/// Flows of a scenario, copies counted: each needs a source port from 20000 up.
pub const MAX_FLOWS: usize = 45_000;

/// Numbers that the series of a run's report may hold: 256 MB of memory.
pub const MAX_VALUES: u64 = 32_000_000;
/// Series of a class, besides its delays.
const CLASS_SERIES: u64 = 10;
/// Numbers of a distribution of queue delays up to a second, which a cell has where an expectation
/// asks for percentiles of an interval.
const DELAY_VALUES: u64 = 1_600;
/// A configuration has at most this many bytes.
const MAX_CONFIGURATION_BYTES: usize = 64 << 20;

/// One copy of a flow: what a generator is made for and a report speaks of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowCopy {
    /// Index of its `[[flow]]`.
    pub flow: usize,
    /// Which of its copies it is, from 0.
    pub number: u32,
    /// NAME, or NAME.N where there are several.
    pub name: String,
    /// Source port: 20000 + index of the copy.
    pub source_port: u16,
}

impl Scenario {
    /// All copies of all flows in the order of the file: the index into this list is a flow's index
    /// in the report. At most `MAX_FLOWS`, which `validate` demands.
    pub fn flow_copies(&self) -> Vec<FlowCopy> {
        let mut copies = Vec::new();
        for (flow, written) in self.flows.iter().enumerate() {
            for copy in 1..=written.count {
                let name = match written.count {
                    1 => self.flow_name(flow),
                    _ => format!("{}.{copy}", self.flow_name(flow)),
                };
                if copies.len() == MAX_FLOWS {
                    return copies;
                }
                let source_port = 20_000 + copies.len() as u16;
                copies.push(FlowCopy { flow, number: copy - 1, name, source_port });
            }
        }
        copies
    }

    /// The name of flow `index`: as given, or f1, f2 …
    pub fn flow_name(&self, index: usize) -> String {
        match self.flows.get(index) {
            Some(flow) if !flow.name.is_empty() => flow.name.clone(),
            _ => format!("f{}", index + 1),
        }
    }

    /// The IPv4 address of host `index`.
    pub fn address(&self, index: usize) -> Ipv4Addr {
        let n = index as u32 + 1;
        self.hosts.get(index).and_then(|host| host.address).unwrap_or(Ipv4Addr::from(0x0a00_0000 + n))
    }

    /// The IPv6 address of host `index`.
    pub fn address6(&self, index: usize) -> Ipv6Addr {
        let n = index as u128 + 1;
        self.hosts
            .get(index)
            .and_then(|host| host.address6)
            .unwrap_or(Ipv6Addr::from((0xfd00_u128 << 112) + n))
    }

    /// Index of the host called `name`.
    pub fn host(&self, name: &str) -> Option<usize> {
        self.hosts.iter().position(|host| host.name == name)
    }

    /// Index of the first link between the two nodes, and whether it runs from its `a` to its `b` this way.
    pub fn link_between(&self, from: &str, to: &str) -> Option<(usize, bool)> {
        self.links.iter().enumerate().find_map(|(index, link)| {
            (link.a == from && link.b == to)
                .then_some((index, true))
                .or((link.b == from && link.a == to).then_some((index, false)))
        })
    }

    /// Length of a cell of a report's series: the longest that divides the probes' intervals and the
    /// bounds and windows of the expectations.
    pub fn cell(&self) -> Time {
        let default = self.probes.iter().all(|probe| probe.what != ProbeWhat::Classes);
        let probes = self.probes.iter().flat_map(Probe::times).chain(default.then(probe_interval));
        let expects = self.expects.iter().flat_map(Expect::times);
        Time::from_nanos(probes.chain(expects).fold(0, |cell, time| gcd(cell, time.as_nanos())).max(1))
    }

    /// Whether the report has the queue delays of each cell.
    pub fn keeps_delays(&self) -> bool {
        self.expects.iter().any(Expect::needs_delays_per_cell)
    }

    /// Whether the report has what each flow delivered in each cell.
    pub fn keeps_flows(&self) -> bool {
        self.probes.iter().any(|probe| probe.what == ProbeWhat::Flows)
            || self.expects.iter().any(|expect| expect.what.of_flows())
    }

    /// What is wrong, and how to mend it, if the series of a report would hold more than
    /// `MAX_VALUES` numbers: those of `classes` classes, of every direction of a link and, where
    /// they are kept, of every flow, in every cell.
    pub fn too_large(&self, classes: u64) -> Option<(String, String)> {
        let cell = self.cell();
        let cells = self.duration.as_nanos().div_ceil(cell.as_nanos());
        let flows =
            if self.keeps_flows() { self.flows.iter().map(|flow| u64::from(flow.count)).sum() } else { 0 };
        let of_class = CLASS_SERIES + if self.keeps_delays() { DELAY_VALUES } else { 0 };
        let each = flows + 2 * self.links.len() as u64 + classes.saturating_mul(of_class);
        let values = cells.saturating_mul(each);
        (values > MAX_VALUES).then(|| {
            let what = format!(
                "the report would hold {values} numbers: {cells} cells of {cell} with {each} in each, \
                 of {flows} flows, {} directions of links and {classes} classes",
                2 * self.links.len()
            );
            let mend =
                "write longer intervals for probes and expectations, a shorter duration, or fewer flows";
            (what, format!("{mend}: a report holds at most {MAX_VALUES} numbers, 256 MB"))
        })
    }

    /// The configuration of port `index`: what to call it in messages, and its text.
    pub fn configuration(&self, index: usize) -> std::io::Result<(String, String)> {
        let missing = || std::io::Error::new(std::io::ErrorKind::NotFound, "the port has no configuration");
        let port = self.ports.get(index).ok_or_else(missing)?;
        if let Some(text) = &port.text {
            return Ok((format!("port {}", port.name()), text.clone()));
        }
        let path = self.folder.join(port.conf.as_ref().ok_or_else(missing)?);
        let name = path.display().to_string();
        let text = read_text(&path, MAX_CONFIGURATION_BYTES)?;
        let load = &mut |name: &str| {
            read_text(name.as_ref(), MAX_CONFIGURATION_BYTES).map_err(|error| error.to_string())
        };
        let whole = weir_text::include::whole(&name, &text, MAX_CONFIGURATION_BYTES, load);
        Ok((name, whole.map_err(|said| std::io::Error::other(weir_text::Diagnostics(said)))?))
    }

    /// A number that changes when anything does that a run depends on besides its seed: the scenario or the text of
    /// a configuration. FNV-1a over the scenario as TOML, without expectations, and the configurations' texts.
    pub fn inputs_hash(&self, configurations: &[String]) -> u64 {
        let inputs = Scenario { expects: Vec::new(), name: String::new(), seed: 1, ..self.clone() };
        let mut hash = fnv1a(0xcbf2_9ce4_8422_2325, inputs.to_toml().as_bytes());
        for text in configurations {
            hash = fnv1a(fnv1a(hash, &[0]), text.as_bytes());
        }
        hash
    }
}

/// The greatest common divisor; that of 0 and n is n.
pub(crate) fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl Probe {
    /// The times that must be whole numbers of cells.
    pub(crate) fn times(&self) -> impl Iterator<Item = Time> {
        [Some(self.every), self.over].into_iter().flatten()
    }
}

fn fnv1a(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

impl Flow {
    /// The times at which it may send, as (start, stop) pairs within a run of `duration`.
    pub fn active(&self, duration: Time) -> Vec<(Time, Time)> {
        let stop = self.stop.unwrap_or(duration);
        let (mut from, mut active) = (self.start, Vec::new());
        for &(begin, end) in &self.idle {
            if begin > from {
                active.push((from, begin.min(stop)));
            }
            from = from.max(end);
        }
        if from < stop {
            active.push((from, stop));
        }
        active.retain(|(begin, end)| begin < end);
        active
    }
}
