//! What a running box says of itself, as its socket answers it.

use crate::edge_state::EdgeState;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use weir_core::port::Account;
use weir_core::queue::DropReason;

/// What happened so far, at one moment, on every bridge.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Snapshot {
    /// The bridges, in the order in which they were brought up.
    pub bridges: Vec<BridgeState>,
    /// The brokers that their edges ask.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub brokers: Vec<BrokerState>,
}

/// What happened so far on one bridge.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct BridgeState {
    /// Its interfaces: left, right.
    pub interfaces: [String; 2],
    /// Why a worker of it gave no answer; then nothing below is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent: Option<String>,
    /// Nanoseconds since it started.
    pub uptime_ns: u64,
    /// Processor time of its workers' threads, nanoseconds.
    pub cpu_ns: u64,
    /// Of that, about what went into staying awake for a packet due in a moment (see `Pace`).
    #[serde(default)]
    pub spun_ns: u64,
    /// Steps that its workers have made.
    pub steps: u64,
    /// The priority of the first worker's thread: `SCHED_FIFO 10`, `nice -20` or `no priority`, and in
    /// brackets what the system refused.
    #[serde(default)]
    pub priority: String,
    /// Its workers, where there are several: each of two runs the direction of the egress in the same place, each of more
    /// a part of both.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<WorkerState>,
    /// By which way frames come and go: `AF_PACKET`, `NFQUEUE`, or `AF_XDP` with what the drivers
    /// offered.
    #[serde(default)]
    pub way: String,
    /// What becomes of the traffic without the worker.
    #[serde(default)]
    pub without: FailState,
    /// Why the bridge forwards plainly, if the worker had to give up its ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// Both directions: the egress on the right, then the one on the left. An interface whose packets the packet
    /// filter hands over has one.
    pub egresses: Vec<Egress>,
}

/// One of several workers of a bridge.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct WorkerState {
    /// Processor time of its thread, nanoseconds.
    pub cpu_ns: u64,
    /// Of that, about what went into staying awake for a packet due in a moment.
    pub spun_ns: u64,
    /// Steps that it has made.
    pub steps: u64,
    /// The priority of its thread.
    pub priority: String,
}

/// One direction: an input and the egress that it leads to.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Egress {
    /// The interface that packets leave by.
    pub interface: String,
    /// How that interface is; none where nobody watches it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<LinkState>,
    /// Packets and bytes received on the other interface.
    pub received_packets: u64,
    /// Bytes received there.
    pub received_bytes: u64,
    /// Packets that the system dropped there because the worker was too slow. Above 0 no figure
    /// of this run can be trusted.
    pub overrun_packets: u64,
    /// Packets dropped there for want of a buffer.
    pub nobuf_packets: u64,
    /// Aggregates of segmentation offload that were taken apart before the queue.
    #[serde(default)]
    pub segmented_packets: u64,
    /// Packets that the worker which received them handed to the one that has their class; 0 unless a bridge has more
    /// than two workers.
    #[serde(default)]
    pub handed_packets: u64,
    /// Packets that were dropped there because that worker was behind and the ring to it full.
    #[serde(default)]
    pub unhanded_packets: u64,
    /// Packets that the system could not hand over there, and times that the link was found down.
    #[serde(default)]
    pub receive_errors: u64,
    /// Packets sent.
    pub sent_packets: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Packets that the device refused. Their classes count them as dropped, not as sent.
    pub refused_packets: u64,
    /// The same by reason: `toolong`, `devicefull`, `portdown`, `gone`, `refused`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub refused: BTreeMap<String, u64>,
    /// Bytes that stand in the device now, as the system counts them: whole buffers, up to 1 KB more
    /// a packet. 0 where nothing manages the egress, and where the device does not tell.
    #[serde(default)]
    pub device_queue_bytes: u64,
    /// The most that stood there after a packet was handed over.
    #[serde(default)]
    pub device_queue_most_bytes: u64,
    /// Packets whose ECN or DSCP was changed.
    pub rewritten_packets: u64,
    /// Packets on their way out: in the delay line, or at a full device.
    pub leaving_packets: u64,
    /// The managed port; none where traffic is forwarded plainly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<PortState>,
    /// The edge before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edge: Option<EdgeState>,
}

/// A managed port.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct PortState {
    /// Rate of its link, bit/s.
    pub rate_bps: u64,
    /// Longest packet that its configuration reckons with, bytes, layer-2 header included.
    #[serde(default)]
    pub longest_bytes: u32,
    /// Seed of its random stream and of its flow hashes, in hexadecimal (`0x`, 16 digits: more
    /// than a JSON number holds everywhere). `weir replay --seed` takes it. To be kept from
    /// strangers.
    #[serde(default)]
    pub seed: String,
    /// Why it runs as one FIFO, if a discipline broke.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broken: Option<String>,
    /// Packets waiting.
    pub backlog_packets: u64,
    /// Their bytes.
    pub backlog_bytes: u64,
    /// Packets in the device ring.
    pub ring_packets: u64,
    /// Times that the device ring was refilled.
    pub refills: u64,
    /// Times that the timer woke the discipline.
    pub wake_ups: u64,
    /// Packets that a swap gave to the default class because theirs was gone.
    pub reassigned_packets: u64,
    /// Time in which the worker was later than the token bucket holds, nanoseconds since the port was made.
    /// What could have been sent in it is lost.
    #[serde(default)]
    pub lost_ns: u64,
    /// Control packets that went before all classes; `None` where they do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protected: Option<PacketCounts>,
    /// All classes together.
    pub total: PacketCounts,
    /// The classes in the order of the configuration.
    pub classes: Vec<ClassState>,
    /// The conditioners in front of them, each followed by its meters. They have no account.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditioners: Vec<ClassState>,
}

/// A class of a port, a conditioner, or a meter.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ClassState {
    /// Its name.
    pub name: String,
    /// Its account, if it is a place where packets wait.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub counts: Option<PacketCounts>,
    /// What the discipline itself keeps, by name; units as in `weir disciplines`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, i64>,
}

/// What came, left and was dropped.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct PacketCounts {
    /// Packets that came.
    pub offered_packets: u64,
    /// Their bytes.
    pub offered_bytes: u64,
    /// Packets that left.
    pub sent_packets: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Packets still inside.
    pub inside_packets: u64,
    /// Bytes that were dropped.
    pub dropped_bytes: u64,
    /// Packets that were dropped, by reason.
    pub dropped_packets: BTreeMap<String, u64>,
}

/// Counts by reason, without those that are zero.
pub(crate) fn by_reason(counts: &[u64; DropReason::ALL.len()]) -> BTreeMap<String, u64> {
    let named = DropReason::ALL.iter().map(|&reason| (reason.name().to_string(), counts[reason as usize]));
    named.filter(|(_, count)| *count > 0).collect()
}

impl From<&Account> for PacketCounts {
    fn from(account: &Account) -> PacketCounts {
        PacketCounts {
            offered_packets: account.offered_packets,
            offered_bytes: account.offered_bytes,
            sent_packets: account.sent_packets,
            sent_bytes: account.sent_bytes,
            inside_packets: account.inside(),
            dropped_bytes: account.dropped_bytes,
            dropped_packets: by_reason(&account.dropped_packets),
        }
    }
}

impl PacketCounts {
    /// The same as a port counts it. A reason that this version does not know counts as refused.
    pub(crate) fn account(&self) -> Account {
        let mut account = Account {
            offered_packets: self.offered_packets,
            offered_bytes: self.offered_bytes,
            sent_packets: self.sent_packets,
            sent_bytes: self.sent_bytes,
            dropped_bytes: self.dropped_bytes,
            ..Account::default()
        };
        for (name, count) in &self.dropped_packets {
            let known = DropReason::ALL.into_iter().find(|reason| reason.name() == name);
            account.dropped_packets[known.unwrap_or(DropReason::Refused) as usize] += count;
        }
        account
    }
    /// Counts what the other has counted too.
    pub(crate) fn add(&mut self, other: &PacketCounts) {
        self.offered_packets += other.offered_packets;
        self.offered_bytes += other.offered_bytes;
        self.sent_packets += other.sent_packets;
        self.sent_bytes += other.sent_bytes;
        self.inside_packets += other.inside_packets;
        self.dropped_bytes += other.dropped_bytes;
        for (reason, count) in &other.dropped_packets {
            *self.dropped_packets.entry(reason.clone()).or_default() += count;
        }
    }
}

/// What becomes of the traffic without the worker.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct FailState {
    /// The kernel carries it.
    pub open: bool,
    /// By what means, or why not.
    pub how: String,
    /// The kernel carries it now, by an operator's will.
    pub bypassed: bool,
    /// Times that the worker was silent for longer than the limit.
    pub lapses: u64,
    /// Packets dropped because the worker found them when they were older than the limit.
    pub stale_packets: u64,
}

/// How an interface is, and what has happened to it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LinkState {
    /// `up`, `no carrier`, `down` or `gone`.
    pub state: String,
    /// Largest packet without layer-2 header, bytes.
    pub mtu: u32,
    /// How often it came to be `up`, `no carrier`, `down` or `gone`, came `back` after that, was
    /// `renamed`, or got another `mtu`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub changes: BTreeMap<String, u64>,
    /// Who else takes its frames, each with what mends it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taken: Vec<String>,
}

/// How a broker is.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct BrokerState {
    /// Its name.
    pub name: String,
    /// What it gives away, bit/s; a broker elsewhere does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_bps: Option<u64>,
    /// What all classes together hold, bit/s.
    pub held_bps: u64,
    /// Requests, repetitions included.
    pub requests: u64,
    /// Those that were granted.
    pub granted: u64,
    /// Those that were refused.
    pub refused: u64,
    /// What each class holds.
    pub holders: Vec<HolderState>,
    /// Whether a broker elsewhere can be reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached: Option<Reached>,
}

/// Whether a broker elsewhere can be reached.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Reached {
    /// Where it is.
    pub at: String,
    /// It answers.
    pub now: bool,
    /// Why it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// What a class holds at a broker.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct HolderState {
    /// The interface by which its packets leave.
    pub interface: String,
    /// Its name.
    pub class: String,
    /// What it holds, bit/s.
    pub rate_bps: u64,
}
