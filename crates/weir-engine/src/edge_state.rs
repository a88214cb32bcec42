//! What an edge says of itself: for `weir stats` and `weir status`.

use crate::direction::{LastRequest, LiveEdge};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use weir_core::units::Instant;
use weir_edge::allocate::{Answer, Law};
use weir_edge::edge::{ContractStats, Edge, FlowStats, Turnover};
use weir_edge::recognise::Kind;

/// Names of the kinds by which flows are found, by `Kind::index`.
const KINDS: [&str; Kind::COUNT] = ["rtp", "rtp turn", "rtp further in", "statistical", "dscp", "aggregate"];

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

impl From<LastRequest> for RequestState {
    /// As of the request; [`AllocatorState::last`] counts from now.
    fn from(last: LastRequest) -> Self {
        let word = |answer: Answer| match answer {
            Answer::Granted(rate) if rate >= last.rate_bps => "granted",
            Answer::Granted(_) => "in part",
            Answer::Refused => "refused",
        };
        RequestState {
            ago_ns: 0,
            had_bps: last.had_bps,
            asked_bps: last.rate_bps,
            answer: last.answer.map(|(_, answer)| word(answer).to_owned()),
            answered_in_ns: last.answer.map(|(at, _)| at.since(last.at).as_nanos()),
        }
    }
}

fn contract(id: u32, stats: ContractStats) -> ContractState {
    ContractState {
        id,
        offered_bytes: stats.offered_bytes,
        in_profile_bytes: stats.in_profile_bytes,
        passed_bytes: stats.passed_bytes,
        dropped_bytes: stats.dropped_bytes,
        best_effort_bytes: stats.best_effort_bytes,
        flows: stats.flows.into(),
    }
}

/// The contracts in these places.
pub(crate) fn contracts(edge: &LiveEdge, places: std::ops::Range<usize>) -> Vec<ContractState> {
    let all = edge.edge().config().contracts.iter().zip(edge.edge().contract_stats());
    all.skip(places.start).take(places.len()).map(|(terms, stats)| contract(terms.id, stats)).collect()
}

fn recognition(on: bool, stats: FlowStats, capacity: u32) -> RecognitionState {
    let found = KINDS.iter().zip(stats.found).filter(|(_, count)| *count > 0);
    RecognitionState {
        on,
        inspected_packets: stats.inspected,
        found: found.map(|(kind, count)| ((*kind).to_owned(), count)).collect(),
        quic: stats.quic,
        overtaken_packets: stats.overtaken,
        flows: u64::from(stats.used),
        capacity: u64::from(capacity),
        replaced: stats.replaced,
        turned_away: stats.turned_away,
    }
}

/// How many sessions a class has, and what is set apart for them.
fn sessions(edge: &Edge, leaf: u32) -> (u64, u64) {
    let own = edge.sessions().filter(|(session, _)| session.leaf == leaf);
    own.fold((0, 0), |(count, bps), (session, _)| (count + 1, session.rate_bps.saturating_add(bps)))
}

/// All but the contracts.
pub(crate) fn head(edge: &mut LiveEdge, dropped_packets: u64, now: Instant) -> EdgeState {
    let capacity = edge.edge().config().recognition.map(|r| r.flows);
    let (on, flow_stats) = (edge.edge().recognises(), edge.edge().flow_stats());
    let stats: Vec<_> = edge.edge().class_stats().collect();
    let classes = stats.into_iter().enumerate().map(|(place, (leaf, stats))| {
        let (name, broker, last) = edge.class(place).unwrap_or_default();
        let (name, broker) = (name.to_owned(), broker.map(str::to_owned));
        let last = last.map(|last| RequestState { ago_ns: now.since(last.at).as_nanos(), ..last.into() });
        let (sessions, sessions_bps) = sessions(edge.edge(), leaf);
        EdgeClassState {
            name,
            broker,
            flows: stats.flows.into(),
            sessions,
            sessions_bps,
            sessions_left_out: edge.left_out(leaf).map(|(sessions, why)| LeftOutState { sessions, why }),
            windows: stats.windows,
            windows_above: stats.windows_above,
            allocator: edge.allocator_mut(leaf).map(|allocator| allocator_state(allocator, last, now)),
        }
    });
    let classes = classes.collect();
    EdgeState {
        recognition: capacity.map(|capacity| recognition(on, flow_stats, capacity)),
        classes,
        contracts: Vec::new(),
        dropped_packets,
        unshaped: edge.unshaped(),
    }
}

fn allocator_state(
    allocator: &mut weir_edge::allocate::Allocator,
    last: Option<RequestState>,
    now: Instant,
) -> AllocatorState {
    let stats = allocator.stats(now);
    let target_percent = match &allocator.plan().law {
        Law::Log(law) => Some(((u128::from(law.target.raw()) * 100 + (1 << 31)) >> 32) as u32),
        Law::Threshold(_) | Law::Fixed => None,
    };
    AllocatorState {
        estimate_bps: allocator.estimate_bps(),
        mean_bps: allocator.mean_bps(),
        allocated_bps: allocator.allocated_bps(),
        limit_bps: allocator.limit_bps(now),
        target_percent,
        up: stats.up,
        down: stats.down,
        repeated: stats.repeated,
        granted: stats.granted,
        partial: stats.partial,
        refused: stats.refused,
        congested: allocator.is_congested(),
        congestions: stats.congestions,
        congested_ns: stats.congested_ns,
        last,
    }
}
