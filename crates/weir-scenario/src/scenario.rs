//! The scenario as it is written: one struct for each kind of table, one field for each key.
//!
//! `Scenario::read` gives a scenario that `validate` has passed: names resolve, values are in
//! range, keys fit their flow's kind. Whoever runs one may rely on that.

pub use crate::derived::{FlowCopy, MAX_FLOWS};
use crate::measure::Measure;
use crate::quantity::{Amount, BitRate, Dscp, Size, Time};
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

/// A whole scenario: topology, managed ports, traffic, what to sample and what to expect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Heading of reports and plots. Default: the file's name without `.toml`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Moves start offsets (uniform within one RTT), on/off draws and random drops. Default 1.
    #[serde(default = "one")]
    pub seed: u64,
    /// Length of the run. Required; above 0, at most one day.
    pub duration: Time,
    /// The end systems. A name that only links mention is a box: it forwards and has no address.
    #[serde(rename = "host")]
    pub hosts: Vec<Host>,
    /// The links, each with two directions that share its parameters.
    #[serde(rename = "link")]
    pub links: Vec<Link>,
    /// The egresses that a configuration manages. All others are FIFO of `queue` packets.
    #[serde(rename = "port", default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<Port>,
    /// The traffic.
    #[serde(rename = "flow", default, skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<Flow>,
    /// What is sampled over time, and how often. Default: classes every 100 ms.
    #[serde(rename = "probe", default, skip_serializing_if = "Vec::is_empty")]
    pub probes: Vec<Probe>,
    /// What must come out.
    #[serde(rename = "expect", default, skip_serializing_if = "Vec::is_empty")]
    pub expects: Vec<Expect>,
    /// Where the scenario file lies: `conf` paths are relative to it. Not a key.
    #[serde(skip)]
    pub folder: PathBuf,
}

/// `[[host]]`: an end system.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Its name: letters, digits, `-` and `_`, at most 15. Required.
    pub name: String,
    /// IPv4 address. Default 10.0.0.N, N being the host's place in the file, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<Ipv4Addr>,
    /// IPv6 address. Default fd00::N.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address6: Option<Ipv6Addr>,
}

/// `[[link]]`: a full-duplex link. Each direction has its own queue, ring and wire with these parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// One end: a host or a box. Required.
    pub a: String,
    /// The other end. Required.
    pub b: String,
    /// Bits per second on the wire. Required; above 0.
    pub rate: BitRate,
    /// One-way propagation delay. Default 0; at most 1 minute.
    #[serde(default)]
    pub delay: Time,
    /// Largest IP packet in bytes: a full frame is 14 longer. Default 1500; 576 to 65535.
    #[serde(default = "mtu")]
    pub mtu: Size,
    /// Bytes of the wire's time that a frame takes besides its own length: checksum, preamble, gap. Default 24 (Ethernet); at most 1000.
    #[serde(default = "overhead")]
    pub overhead: Size,
    /// Packets that the device holds below the discipline. Default 2; 1 to 4096.
    #[serde(default = "ring")]
    pub ring: u32,
    /// When the ring asks for more. Default `"packet"`.
    #[serde(default)]
    pub refill: Refill,
    /// Timer tick of a managed port: a discipline that says "later" is asked again on a tick. Default 0, exact; at most 1 s.
    #[serde(default)]
    pub tick: Time,
    /// Besides ticks, ask again after every arrival and every completed transmission. Default true.
    #[serde(default = "yes")]
    pub packet_events: bool,
    /// Packets that the FIFO of an unmanaged egress holds. Default 1000; 1 to 1000000.
    #[serde(default = "queue")]
    pub queue: u32,
}

/// When a device ring is refilled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Refill {
    /// After every packet.
    #[default]
    Packet,
    /// When as many packets as it holds have left since the last refill, or when it is empty; a
    /// packet that finds free descriptors goes straight in.
    Batch,
}

/// `[[port]]`: the egress of `at` towards its neighbour `to`, managed by one interface of an altq.conf.
/// Either `conf` or `text` must be given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Port {
    /// The box (or host) whose egress this is. Required.
    pub at: String,
    /// The neighbour that the link leads to. Required.
    pub to: String,
    /// Path of the configuration, relative to the scenario file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conf: Option<PathBuf>,
    /// The configuration itself, instead of a path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The interface of the configuration that this egress is. Default: the only one that it declares.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
}

impl Port {
    /// `at>to`: the port's name in reports and expectations.
    pub fn name(&self) -> String {
        format!("{}>{}", self.at, self.to)
    }
}

/// `[[flow]]`: traffic from one host to another. A flow sends from `start` to `stop` except in its
/// `idle` intervals. Source ports: copy n of all copies of all flows, from 0, sends from 20000 + n.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flow {
    /// Its name in reports and expectations; copies are NAME.1, NAME.2 … Default f1, f2 … by place in the file.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The sending host. Required.
    pub from: String,
    /// The receiving host. Required.
    pub to: String,
    /// `"tcp"` (default), `"udp"` or `"rr"` (request and response).
    #[serde(default)]
    pub kind: Kind,
    /// Copies of this flow, each with its own source port. Default 1; 1 to 10000.
    #[serde(default = "one_copy")]
    pub count: u32,
    /// Destination port. Default 5001; 1 to 65535.
    #[serde(default = "destination_port")]
    pub port: u16,
    /// When it starts. Default 0.
    #[serde(default)]
    pub start: Time,
    /// When it stops. Default: the end of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop: Option<Time>,
    /// Intervals, as `[["5s", "10s"]]` since the start of the run, in which the application offers nothing. In order, not overlapping.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "pairs")]
    pub idle: Vec<(Time, Time)>,
    /// DiffServ code point of its packets, both directions. Default 0.
    #[serde(default)]
    pub dscp: Dscp,
    /// Over IPv6. Default false.
    #[serde(default)]
    pub ipv6: bool,
    /// The class that its packets must fall into on every managed port that knows that name: asserted, not a route.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Length of a full frame in bytes, layer-2 header included. tcp: default the path's MTU + 14, and
    /// the segment size follows from it; udp: required. At least 60, at most MTU + 14.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,

    /// tcp: congestion control. Default `"reno"`.
    #[serde(default)]
    pub cc: CongestionControl,
    /// tcp: most bytes in flight (the receiver's window). Default: as much as the path takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<Size>,
    /// tcp: bytes that the application offers at once, and again every `pause` after the previous
    /// chunk was acknowledged; without `pause` once. Default: greedy, there is always more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chunk: Option<Size>,
    /// tcp: from one chunk's last acknowledgement to the next chunk. rr: from a response to the next request, default 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause: Option<Time>,
    /// tcp and udp: explicit congestion notification. Default false.
    #[serde(default)]
    pub ecn: bool,
    /// tcp: selective acknowledgements. Default true.
    #[serde(default = "yes")]
    pub sack: bool,
    /// tcp: acknowledge every second segment, or after 40 ms. Default true; false: every segment.
    #[serde(default = "yes")]
    pub delayed_ack: bool,
    /// tcp: begin with slow start. Default true; false: begin in congestion avoidance (simulator only).
    #[serde(default = "yes")]
    pub slow_start: bool,

    /// udp: sending rate while on, counting `size` bytes a packet. This, or `burst` and `period`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<BitRate>,
    /// udp: packets sent back to back every `period`. 1 to 10000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
    /// udp: from the start of one burst to the start of the next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period: Option<Time>,
    /// udp: mean time on. With `off`; default: always on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on: Option<Time>,
    /// udp: mean time off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub off: Option<Time>,
    /// udp: how the times on and off are drawn. Default `"constant"`.
    #[serde(default)]
    pub distribution: Distribution,
    /// udp: shape of the Pareto distribution. Default 1.5; above 1, at most 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shape: Option<f64>,

    /// rr: bytes of UDP payload in a request. Default 1; 1 to MTU − 28 (48 with IPv6).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<Size>,
    /// rr: bytes of UDP payload in a response. Default 1; likewise. A lost transaction is given up after 1 s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response: Option<Size>,
}

/// What a flow is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A byte stream: greedy, in chunks, or timed.
    #[default]
    Tcp,
    /// Packets at a rate, on/off, or in bursts.
    Udp,
    /// One request at a time, the next when the response is there (UDP).
    Rr,
}

/// A TCP's congestion control.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CongestionControl {
    /// RFC 5681 with RFC 6582 and RFC 6675.
    #[default]
    Reno,
    /// RFC 9438.
    Cubic,
    /// The kernel's BBR.
    Bbr,
}

impl CongestionControl {
    /// As written in a scenario, and as Linux calls it.
    pub const fn name(self) -> &'static str {
        match self {
            CongestionControl::Reno => "reno",
            CongestionControl::Cubic => "cubic",
            CongestionControl::Bbr => "bbr",
        }
    }
}

/// How times on and off are drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Distribution {
    /// Always the mean.
    #[default]
    Constant,
    /// Exponential.
    Exponential,
    /// Pareto with `shape`.
    Pareto,
}

/// `[[probe]]`: sample something over time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// `"classes"`: bytes, drops, marks, delay and backlog of every class of every managed port;
    /// `"flows"`: bytes delivered by every flow. Required.
    pub what: ProbeWhat,
    /// Length of an interval. Default 100 ms; 1 ms to the duration.
    #[serde(default = "probe_interval")]
    pub every: Time,
    /// Plots show rates over windows of this length that begin `every` so often. Default `every`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over: Option<Time>,
}

/// What a probe samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProbeWhat {
    /// The classes of the managed ports.
    Classes,
    /// The flows.
    Flows,
}

/// `[[expect]]`: a measured value and what it must be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// What is measured: see `Measure`. Required.
    pub what: Measure,
    /// The managed port, as `"box>right"`. Default: the only one. For `utilisation`, any direction of a link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// One class of the port. Without class or flow: all classes of the port together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Several classes, taken together: sums of rates, drops and backlogs, one distribution of delays.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<String>,
    /// One flow; with `count`, all its copies together, or NAME.N for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flow: Option<String>,
    /// Several flows, taken together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<String>,
    /// Classes (or flows, when flows are measured) whose value divides: the result is a ratio.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub per: Vec<String>,
    /// Start of the interval measured. Default 0.
    #[serde(default)]
    pub from: Time,
    /// End of the interval measured. Default: the end of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<Time>,
    /// Measure in windows of this length, one after the other, instead of once. Windows in which
    /// the value has no meaning (no packet, nothing to divide by) do not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every: Option<Time>,
    /// Slide: the windows have this length and begin `every` so often. Default `every`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over: Option<Time>,
    /// With `every`: `"all"` windows must hold (default), a share of them (`"90%"`), or their `"median"`, `"mean"`.
    #[serde(default)]
    pub windows: Windows,
    /// The value expected, with `tolerance`. This, or `min`, `max` or both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Amount>,
    /// How far the measured value may be away on either side: `"5%"` of the value, `"5pt"` of a
    /// share, or in the unit of the value. Default 0: exactly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tolerance: Option<Amount>,
    /// The tolerance in the lab. Default: twice `tolerance`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tolerance_live: Option<Amount>,
    /// The least value allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<Amount>,
    /// The greatest value allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<Amount>,
    /// Check in `"sim"` or `"lab"` only. Default: both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub only: Option<RunKind>,
}

/// Which windows of an expectation must hold.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Windows {
    /// Every one.
    #[default]
    All,
    /// At least this part of them.
    Share(f64),
    /// The median of their values.
    Median,
    /// The mean of their values.
    Mean,
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

impl Windows {
    fn parse(text: &str) -> Result<Self, String> {
        match (text, Amount::parse(text)) {
            ("all", _) => Ok(Windows::All),
            ("median", _) => Ok(Windows::Median),
            ("mean", _) => Ok(Windows::Mean),
            (_, Ok(Amount::Percent(share))) if share > 0.0 && share <= 1.0 => Ok(Windows::Share(share)),
            _ => Err(format!(
                "`{text}` does not say which windows must hold\nwrite \"all\", \"median\", \"mean\" or a share such as \"90%\""
            )),
        }
    }
}

impl std::fmt::Display for Windows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Windows::All => f.write_str("all"),
            Windows::Median => f.write_str("median"),
            Windows::Mean => f.write_str("mean"),
            Windows::Share(share) => Amount::Percent(*share).fmt(f),
        }
    }
}

impl<'de> Deserialize<'de> for Windows {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Windows::parse(&text).map_err(serde::de::Error::custom)
    }
}

impl Serialize for Windows {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Lists of exactly two: the TOML reader would pass over a third.
fn pairs<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<(Time, Time)>, D::Error> {
    let pair = |list: Vec<Time>| match list.as_slice() {
        [begin, end] => Ok((*begin, *end)),
        other => Err(serde::de::Error::custom(format!(
            "an interval has a begin and an end, not {} times\nwrite pairs: [[\"5s\", \"10s\"]]",
            other.len()
        ))),
    };
    Vec::<Vec<Time>>::deserialize(deserializer)?.into_iter().map(pair).collect()
}

fn one() -> u64 {
    1
}
fn one_copy() -> u32 {
    1
}
fn yes() -> bool {
    true
}
fn mtu() -> Size {
    Size::from_bytes(1500)
}
fn overhead() -> Size {
    Size::from_bytes(24)
}
fn ring() -> u32 {
    2
}
fn queue() -> u32 {
    1000
}
fn destination_port() -> u16 {
    5001
}
pub(crate) fn probe_interval() -> Time {
    Time::from_millis(100)
}
