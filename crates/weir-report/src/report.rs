//! What a run produced: one schema, written by the simulator and the lab, read by `compare`, plots and experiments.
//!
//! Times are nanoseconds since the start of the run, rates bit/s, lengths bytes of frames (layer-2
//! header included, `overhead` not) unless said otherwise. Fields may be added in later versions;
//! a reader ignores those that it does not know.

use crate::histogram::Histogram;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use weir_text::{Unit, show_digits};

/// The schema's version; it grows when a field changes meaning.
pub const VERSION: u32 = 1;

/// The results of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// What ran.
    pub meta: Meta,
    /// The managed ports, in the order of the scenario.
    pub ports: Vec<PortReport>,
    /// Every direction of every link, `a` to `b` before `b` to `a`.
    pub links: Vec<LinkReport>,
    /// Every copy of every flow, in the order of the scenario.
    pub flows: Vec<FlowReport>,
    /// The scenario's expectations and the asserted classes.
    pub checks: Vec<Check>,
}

/// What ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Meta {
    /// Version of this schema.
    pub version: u32,
    /// Simulated or live.
    pub kind: RunKind,
    /// The scenario's name.
    pub scenario: String,
    /// The seed.
    pub seed: u64,
    /// Hash of scenario and configurations, 16 hexadecimal digits: equal for runs of equal input.
    pub inputs: String,
    /// Hash of all events (simulator only), 16 hexadecimal digits: equal for equal runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<String>,
    /// Length of the run.
    pub duration_ns: u64,
    /// Length of a cell of the series.
    pub cell_ns: u64,
    /// Interval of the probe of classes: how plots and samples.csv show the series. A multiple of `cell_ns`.
    pub probe_ns: u64,
    /// Length of the windows over which plots show rates, if not `probe_ns`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_ns: Option<u64>,
    /// What a reader should know about this run: limits met, seconds taken, warnings.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// Where a scenario ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunKind {
    /// In the simulator.
    Sim,
    /// In the lab: live, with the kernel's TCP.
    Lab,
}

impl RunKind {
    /// `sim` or `lab`.
    pub const fn name(self) -> &'static str {
        match self {
            RunKind::Sim => "sim",
            RunKind::Lab => "lab",
        }
    }
}

/// Packets and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Bytes of frames.
    pub bytes: u64,
}

impl Count {
    /// Adds one packet of `len_bytes`.
    pub fn add(&mut self, len_bytes: u64) {
        self.packets += 1;
        self.bytes += len_bytes;
    }
    /// Adds all of `other`.
    pub fn merge(&mut self, other: Count) {
        self.packets = self.packets.saturating_add(other.packets);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// A managed port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PortReport {
    /// `at>to`.
    pub name: String,
    /// The discipline of its interface.
    #[serde(default)]
    pub discipline: String,
    /// Rate of its link.
    pub rate_bps: u64,
    /// Bytes of wire time per frame besides its length.
    pub overhead_bytes: u64,
    /// Its classes, leaves in the order of the configuration.
    pub classes: Vec<ClassReport>,
    /// The conditioners in front of them, each followed by its meters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditioners: Vec<ConditionerReport>,
}

/// A conditioner or one of its meters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ConditionerReport {
    /// The name of the conditioner; of a meter that and its kind: `profile tbmeter`.
    pub name: String,
    /// Of a conditioner what came by its filters (`offered`), and what its own actions `passed`,
    /// `marked` and `dropped`; of a meter its results, `in` and `out`, or `green`, `yellow`, `red`.
    pub counts: BTreeMap<String, Count>,
}

impl ConditionerReport {
    /// From the values that a port shows of it: `packets` and `bytes` are what came, `x` and
    /// `x_bytes` what ended in x.
    pub fn of<'a>(name: &str, values: impl Iterator<Item = (&'a str, i64)>) -> Self {
        let mut counts: BTreeMap<String, Count> = BTreeMap::new();
        for (value, amount) in values {
            let amount = u64::try_from(amount).unwrap_or(0);
            match (value, value.strip_suffix("_bytes")) {
                ("packets", _) => counts.entry("offered".into()).or_default().packets = amount,
                ("bytes", _) => counts.entry("offered".into()).or_default().bytes = amount,
                (_, Some(of)) => counts.entry(of.into()).or_default().bytes = amount,
                (of, None) => counts.entry(of.into()).or_default().packets = amount,
            }
        }
        ConditionerReport { name: name.to_string(), counts }
    }
}

/// A class of a managed port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClassReport {
    /// Its name.
    pub name: String,
    /// Packets that arrived.
    pub offered: Count,
    /// Packets that left the discipline for the wire.
    pub sent: Count,
    /// Packets that were dropped, by reason.
    pub dropped: BTreeMap<String, Count>,
    /// Packets that ECN marked.
    pub marked: u64,
    /// Packets still waiting at the end.
    pub left: Count,
    /// Most packets and most bytes that waited at any time.
    pub backlog_max: Count,
    /// Time in the queue of the packets that left: from arrival until given to the wire.
    pub delay: Delay,
    /// Over time.
    pub series: Series,
    /// Numbers that the discipline itself keeps, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub statistics: BTreeMap<String, f64>,
}

impl ClassReport {
    /// All drops, whatever the reason.
    pub fn dropped_in_all(&self) -> Count {
        self.dropped.values().fold(Count::default(), |mut sum, count| {
            sum.merge(*count);
            sum
        })
    }
}

/// A distribution of times.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Delay {
    /// How many.
    pub count: u64,
    /// Mean.
    pub mean_ns: f64,
    /// Median.
    pub p50_ns: u64,
    /// 90 % are not longer.
    pub p90_ns: u64,
    /// 95 % are not longer.
    pub p95_ns: u64,
    /// 99 % are not longer.
    pub p99_ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// The distribution.
    pub histogram: Histogram,
}

impl Delay {
    /// The summary of a histogram.
    pub fn of(histogram: Histogram) -> Self {
        Delay {
            count: histogram.count(),
            mean_ns: histogram.mean(),
            p50_ns: histogram.percentile(50.0),
            p90_ns: histogram.percentile(90.0),
            p95_ns: histogram.percentile(95.0),
            p99_ns: histogram.percentile(99.0),
            max_ns: histogram.max(),
            histogram,
        }
    }
}

/// A class over time: element i of every list covers the time from i·cell_ns to (i+1)·cell_ns.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Bytes that arrived.
    pub offered_bytes: Vec<u64>,
    /// Packets that arrived.
    pub offered_packets: Vec<u64>,
    /// Bytes that left.
    pub sent_bytes: Vec<u64>,
    /// Packets that left.
    pub sent_packets: Vec<u64>,
    /// Packets that were dropped.
    pub dropped_packets: Vec<u64>,
    /// Packets that were marked.
    pub marked_packets: Vec<u64>,
    /// Sum of the queue delays of packets that left.
    pub delay_sum_ns: Vec<u64>,
    /// Longest queue delay of a packet that left.
    pub delay_max_ns: Vec<u64>,
    /// Packets waiting, summed over time: divided by cell_ns, their mean number.
    pub backlog_packet_ns: Vec<u64>,
    /// Most packets that waited.
    pub backlog_max_packets: Vec<u64>,
    /// Bytes that the meter of its edge counted, only where an edge allocates, as the three below.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub measured_bytes: Vec<u64>,
    /// Bits that its allocation B_d came to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allocated_bits: Vec<u64>,
    /// Bits that the estimate B_m of its bandwidth came to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub estimated_bits: Vec<u64>,
    /// Requests of its edge to a broker.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<u64>,
    /// Queue delays, only where an expectation asks for percentiles of an interval.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delays: Vec<Histogram>,
}

/// One direction of a link.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkReport {
    /// `from>to`.
    pub name: String,
    /// Its rate.
    pub rate_bps: u64,
    /// Bytes of wire time per frame besides its length.
    pub overhead_bytes: u64,
    /// Frames carried whole.
    pub carried: Count,
    /// Frames dropped by an unmanaged egress.
    pub dropped: Count,
    /// Part of the run that the wire was busy, overhead included.
    pub utilisation: f64,
    /// Most packets that the device ring held.
    #[serde(default)]
    pub ring_max: u64,
    /// How often the ring was refilled ("interrupts").
    #[serde(default)]
    pub refills: u64,
    /// Bytes of wire time, overhead included, per cell.
    pub wire_bytes: Vec<u64>,
}

/// What a flow is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FlowKind {
    /// A byte stream: greedy, in chunks, or timed.
    #[default]
    Tcp,
    /// Packets at a rate, on/off, or in bursts.
    Udp,
    /// One request at a time, the next when the response is there (UDP).
    Rr,
    /// Media over RTP (UDP).
    Rtp,
}

impl FlowKind {
    /// As written in a scenario.
    pub const fn name(self) -> &'static str {
        match self {
            FlowKind::Tcp => "tcp",
            FlowKind::Udp => "udp",
            FlowKind::Rr => "rr",
            FlowKind::Rtp => "rtp",
        }
    }
}

/// One copy of a flow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowReport {
    /// Its name.
    pub name: String,
    /// The sending host.
    pub from: String,
    /// The receiving host.
    pub to: String,
    /// What it is.
    pub kind: FlowKind,
    /// The class asserted for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Packets that managed ports put into another class than the asserted one.
    #[serde(default)]
    pub misclassified: u64,
    /// Packets sent by the sender, retransmissions included, bytes of frames.
    pub sent: Count,
    /// Bytes of payload delivered in order to the receiver.
    pub delivered_bytes: u64,
    /// Time in which the flow was meant to send: from start to stop without its idle intervals.
    pub active_ns: u64,
    /// `delivered_bytes` over `active_ns`, in bit/s.
    pub goodput_bps: f64,
    /// Segments sent again (tcp).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retransmits: Option<u64>,
    /// Retransmission timeouts (tcp).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeouts: Option<u64>,
    /// Packets of the sender that the network dropped (tcp, udp), transactions given up (rr).
    pub lost: u64,
    /// Congestion-experienced marks that the receiver saw.
    pub marked: u64,
    /// Responses received (rr).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transactions: Option<u64>,
    /// The packet, from 1, with which an edge found it to be real-time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recognised: Option<u64>,
    /// What the edge made of it by the end of the run, and why, if it found it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission: Option<Admission>,
    /// Round-trip times: TCP's samples, or transactions (tcp, rr).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt: Option<Delay>,
    /// From sending to receipt (udp, rtp).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub one_way: Option<Delay>,
    /// Payload delivered per cell; empty unless a probe or an expectation asks for flows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delivered: Vec<u64>,
}

/// What an edge made of a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admission {
    /// `admitted`, `refused` (or evicted), or `silent`.
    pub state: String,
    /// By what it was found, or why it was refused.
    pub why: String,
}

/// An expectation and what came.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// What was measured, with its unit: `class a rate, bit/s`.
    pub what: String,
    /// What was allowed: `10e6 ±5 %`.
    pub expected: String,
    /// What was measured; none where nothing could be.
    pub measured: Option<f64>,
    /// The unit in which people are shown what was measured; not part of the schema.
    #[serde(skip)]
    pub unit: Unit,
    /// Whether it holds.
    pub pass: bool,
    /// Why nothing could be measured, or which window failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl Check {
    /// What was measured, without the unit: `shown` has it.
    pub fn label(&self) -> &str {
        self.what.strip_suffix(self.unit.suffix()).unwrap_or(&self.what)
    }
    /// What was measured as people read it, `2.3 ms`; a miss with more digits, so that it differs from its bound.
    pub fn shown(&self) -> String {
        let significant = if self.pass { 4 } else { 6 };
        self.measured.map_or_else(|| "-".to_string(), |value| show_digits(value, self.unit, significant))
    }
}

/// How a note begins that makes a run worthless: something else than the configuration is what was
/// measured.
pub const NOT_VALID: &str = "not valid: ";

impl Report {
    /// Why the run says nothing of its configuration: the first note that begins with [`NOT_VALID`].
    pub fn not_valid(&self) -> Option<&str> {
        self.meta.notes.iter().map(String::as_str).find(|note| note.starts_with(NOT_VALID))
    }
    /// True if every check holds.
    pub fn pass(&self) -> bool {
        self.checks.iter().all(|check| check.pass)
    }
    /// The port called `name`, or the only one.
    pub fn port(&self, name: Option<&str>) -> Option<&PortReport> {
        match name {
            Some(name) => self.ports.iter().find(|port| port.name == name),
            None => self.ports.first().filter(|_| self.ports.len() == 1),
        }
    }
    /// The direction of a link called `name`.
    pub fn link(&self, name: &str) -> Option<&LinkReport> {
        self.links.iter().find(|link| link.name == name)
    }
}

impl FlowReport {
    /// What applies to its kind, at zero; the rest stays absent.
    pub(crate) fn begin(&mut self) {
        self.retransmits = (self.kind == FlowKind::Tcp).then_some(0);
        self.timeouts = self.retransmits;
        self.transactions = (self.kind == FlowKind::Rr).then_some(0);
        let one_way = matches!(self.kind, FlowKind::Udp | FlowKind::Rtp);
        self.rtt = (!one_way).then(Delay::default);
        self.one_way = one_way.then(Delay::default);
    }
    /// True if `name` means this flow: its own name, or that of the flow whose copy NAME.N it is.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.name.rsplit_once('.').is_some_and(|(of, _)| of == name)
    }
}

impl PortReport {
    /// A port of which nothing is known yet, with its classes in the order of the configuration.
    pub fn new(
        name: String,
        discipline: &str,
        rate_bps: u64,
        overhead_bytes: u64,
        classes: &[String],
    ) -> Self {
        let class = |name: &String| ClassReport { name: name.clone(), ..ClassReport::default() };
        PortReport {
            name,
            discipline: discipline.to_string(),
            rate_bps,
            overhead_bytes,
            classes: classes.iter().map(class).collect(),
            conditioners: Vec::new(),
        }
    }
    /// The conditioner or meter called `name`.
    pub fn conditioner(&self, name: &str) -> Option<&ConditionerReport> {
        self.conditioners.iter().find(|conditioner| conditioner.name == name)
    }
    /// The class called `name`.
    pub fn class(&self, name: &str) -> Option<&ClassReport> {
        self.classes.iter().find(|class| class.name == name)
    }
}
