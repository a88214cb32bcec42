//! The scenario as it is written: one struct for each kind of table, one field for each key.
//!
//! `Scenario::read` gives a scenario that `validate` has passed: names resolve, values are in
//! range, keys fit their flow's kind. Whoever runs one may rely on that.

use crate::codec::Codec;
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use weir_report::{Expect, FlowKind};
use weir_text::{BitRate, Dscp, Size, Time};

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
    /// How the lab runs it. The simulator has nothing to do with it.
    #[serde(default, skip_serializing_if = "Lab::is_usual")]
    pub lab: Lab,
    /// The end systems. A name that only links mention is a box: it forwards and has no address.
    #[serde(rename = "host")]
    pub hosts: Vec<Host>,
    /// The links, each with two directions that share its parameters.
    #[serde(rename = "link")]
    pub links: Vec<LinkSpec>,
    /// The egresses that a configuration manages. All others are FIFO of `queue` packets.
    #[serde(rename = "port", default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PortSpec>,
    /// Brokers that the configurations of ports name, as the simulator plays them.
    #[serde(rename = "broker", default, skip_serializing_if = "Vec::is_empty")]
    pub brokers: Vec<BrokerSpec>,
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
    /// The file that it was read from, for messages; empty for text. Not a key.
    #[serde(skip)]
    pub file: PathBuf,
}

/// `[lab]`: how the lab runs the scenario.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lab {
    /// Segmentation and aggregation offloads of the hosts and of the testbed (tso, gso, gro). Default
    /// false: every packet that the box sees fits the MTU.
    #[serde(default)]
    pub offload: bool,
}

impl Lab {
    fn is_usual(&self) -> bool {
        *self == Lab::default()
    }
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
pub struct LinkSpec {
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
pub struct PortSpec {
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
    /// Its edge is told what the udp flows of a class send, whenever that changes, and decides by that
    /// alone: the ideal system of a paper. Simulator only. Default false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ideal: bool,
    /// When its edge begins to recognise flows and to hold them to contracts. Default 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recognise_from: Option<Time>,
    /// What the allocators of its edge are set to while it runs, as
    /// `[{ at = "10s", class = "rt", handler = "law.gain=500K" }]`. Default none; simulator only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub set: Vec<Setting>,
}

/// A handler of an allocator that is set at a time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setting {
    /// When. Required.
    pub at: Time,
    /// The class. Required.
    pub class: String,
    /// The handler and its value, as `law.gain=500K`. Required.
    pub handler: String,
}

impl PortSpec {
    /// `at>to`: the port's name in reports and expectations.
    pub fn name(&self) -> String {
        format!("{}>{}", self.at, self.to)
    }
}

/// `[[broker]]`: a broker that a configuration names (`broker NAME local CAPACITY`), simulator only.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BrokerSpec {
    /// Its name in the configurations. Required.
    pub name: String,
    /// From a request to its answer, T_bb. Default 0.
    #[serde(default)]
    pub delay: Time,
    /// Share of requests that are lost, with their answers: 0 to 1. Default 0.
    #[serde(default)]
    pub loss: f64,
    /// What it gives away. Default: as the configuration says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<BitRate>,
    /// Intervals, as `[["60s", "90s"]]`, in which it does not answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "pairs")]
    pub down: Vec<(Time, Time)>,
    /// Share of requests for more that it refuses although they fit: 0 to 1. Default 0.
    #[serde(default)]
    pub deny: f64,
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
    /// `"tcp"` (default), `"udp"`, `"rr"` (request and response) or `"rtp"` (media).
    #[serde(default)]
    pub kind: FlowKind,
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
    /// udp: sending rates one after the other, over and over, each for a time drawn with the mean `hold`.
    /// Instead of `rate`. 0 is silence. Simulator only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rates: Vec<BitRate>,
    /// udp: mean time at each of `rates`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold: Option<Time>,
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
    /// udp: how the times on, off and at each rate are drawn. Default `"constant"`.
    #[serde(default)]
    pub distribution: Distribution,
    /// udp: on and off begin as in a run that has lasted for ever: on with probability on/(on + off), and
    /// what is left of the first time drawn accordingly. Simulator only. Default false: on, whole.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stationary: bool,
    /// udp: shape of the Pareto distribution. Default 1.5; above 1, at most 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shape: Option<f64>,

    /// rtp: what is sent. Default `"g711"`.
    #[serde(default, skip_serializing_if = "Codec::is_default")]
    pub codec: Codec,
    /// rtp: frames of the codec in a packet, 1 to 10. Default 1; g729: 2. Not for video.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frames: Option<u32>,
    /// rtp: synchronisation source, above 0; of further copies the numbers behind it. Default: drawn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ssrc: Option<u32>,
    /// rtp: bytes in front of the header, as an application's own header. Default 0; at most 64.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub hidden: u32,
    /// rtp: silence is not sent: talk and silence of 1.004 s and 1.587 s on average, exponential
    /// [ITU-T P.59]. Default false. Not for video.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suppression: bool,

    /// rr: bytes of UDP payload in a request. Default 1; 1 to MTU − 28 (48 with IPv6).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<Size>,
    /// rr: bytes of UDP payload in a response. Default 1; likewise. A lost transaction is given up after 1 s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response: Option<Size>,
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

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// How times on and off are drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Distribution {
    /// Always the mean.
    #[default]
    Constant,
    /// Uniform from 0 to twice the mean.
    Uniform,
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
