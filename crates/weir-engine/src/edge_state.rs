//! What an edge says of itself: for `weir stats` and `weir status`.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use weir_edge::edge::Turnover;

/// An edge before a port.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct EdgeState {
    /// How flows are found; none where no packet is looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recognition: Option<RecognitionState>,
    /// Its classes. The only one of an edge without an allocation has no name.
    pub classes: Vec<EdgeClassState>,
    /// The contracts, in the order of the file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contracts: Vec<ContractState>,
    /// Packets that it dropped: out of profile, or of refused flows.
    pub dropped_packets: u64,
    /// Rates that the discipline refused to set.
    pub unshaped: u64,
}

/// How flows are found.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct RecognitionState {
    /// Packets are looked at: nobody has switched it off.
    pub on: bool,
    /// Packets of flows on trial.
    pub inspected_packets: u64,
    /// Flows that were found, by kind.
    pub found: BTreeMap<String, u64>,
    /// Flows that are QUIC.
    pub quic: u64,
    /// Packets that found flows may have overtaken.
    pub overtaken_packets: u64,
    /// Flows in the table.
    pub flows: u64,
    /// Flows that it has room for.
    pub capacity: u64,
    /// Flows on trial that gave their place to others.
    pub replaced: u64,
    /// Flows that found no place.
    pub turned_away: u64,
}

/// A class of an edge.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct EdgeClassState {
    /// Its name; empty for that of an edge without an allocation.
    pub name: String,
    /// The broker that it asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broker: Option<String>,
    /// What became of its flows.
    pub flows: FlowCounts,
    /// Sessions in effect, whose flows are not among these.
    #[serde(default)]
    pub sessions: u64,
    /// What is set apart for them, bit/s: the class has it besides what it asks for.
    #[serde(default)]
    pub sessions_bps: u64,
    /// Sessions that are not in effect here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sessions_left_out: Option<LeftOutState>,
    /// Windows that ended, and of these those in which admitted flows sent more than the limit.
    pub windows: u64,
    /// Windows in which admitted flows sent more than the limit.
    pub windows_above: u64,
    /// How it asks for bandwidth; none where its rate stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocator: Option<AllocatorState>,
}

/// Sessions that are not in effect.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LeftOutState {
    /// How many.
    pub sessions: u64,
    /// Why the first of them is not.
    pub why: String,
}

/// What became of real-time flows.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct FlowCounts {
    /// Admitted flows that are there.
    pub now: u64,
    /// New flows that got in.
    pub admitted: u64,
    /// New flows that did not.
    pub refused: u64,
    /// Admitted flows that had to go.
    pub evicted: u64,
    /// Admitted flows that ended by silence.
    pub timed_out: u64,
    /// Admitted flows that ended because the configuration changed, or recognition was switched off.
    pub ended: u64,
}

impl From<Turnover> for FlowCounts {
    fn from(flows: Turnover) -> Self {
        let Turnover { admitted, refused, evicted, timed_out, ended } = flows;
        FlowCounts { now: flows.now(), admitted, refused, evicted, timed_out, ended }
    }
}

/// How a class asks for bandwidth.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct AllocatorState {
    /// What it is measured to use, bit/s.
    pub estimate_bps: u64,
    /// The mean of the last window, bit/s.
    pub mean_bps: u64,
    /// What it has, bit/s.
    pub allocated_bps: u64,
    /// The most that it may get as far as is known, bit/s.
    pub limit_bps: u64,
    /// The law's target of utilisation, percent; none for a law without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_percent: Option<u32>,
    /// Requests for more.
    pub up: u64,
    /// Requests for less.
    pub down: u64,
    /// Repetitions of requests that were not answered.
    pub repeated: u64,
    /// Answers that granted all.
    pub granted: u64,
    /// Answers that granted a part.
    pub partial: u64,
    /// Answers that refused.
    pub refused: u64,
    /// Whether more waits than drains in time.
    pub congested: bool,
    /// Times that congestion began.
    pub congestions: u64,
    /// Time in congestion, nanoseconds.
    pub congested_ns: u64,
    /// The last request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<RequestState>,
}

/// A request to a broker.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct RequestState {
    /// How long ago it was made, nanoseconds.
    pub ago_ns: u64,
    /// What the class had, bit/s.
    pub had_bps: u64,
    /// What it asked for, bit/s.
    pub asked_bps: u64,
    /// `granted`, `in part` or `refused`; none while it is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// How long the answer took, nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_in_ns: Option<u64>,
}

/// A contract, bytes of its real-time flows.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ContractState {
    /// Its number.
    pub id: u32,
    /// Offered.
    pub offered_bytes: u64,
    /// In profile.
    pub in_profile_bytes: u64,
    /// Out of profile, and passed on as if in profile.
    pub passed_bytes: u64,
    /// Out of profile, and dropped.
    pub dropped_bytes: u64,
    /// Out of profile, and passed on as best effort.
    pub best_effort_bytes: u64,
    /// What became of its flows.
    pub flows: FlowCounts,
}
