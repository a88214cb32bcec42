//! What an edge says of itself.

use super::{LastRequest, LiveEdge};
use crate::edge_state::{
    AllocatorState, ContractState, EdgeClassState, EdgeState, LeftOutState, RecognitionState, RequestState,
};
use weir_core::units::Instant;
use weir_edge::allocate::{Answer, Law};
use weir_edge::edge::{ContractStats, Edge, FlowStats};
use weir_edge::recognise::Kind;

/// Names of the kinds by which flows are found, by `Kind::index`.
const KINDS: [&str; Kind::COUNT] = ["rtp", "rtp turn", "rtp further in", "statistical", "dscp", "aggregate"];

impl LiveEdge {
    /// The contracts in these places.
    pub(crate) fn contract_states(&self, places: std::ops::Range<usize>) -> Vec<ContractState> {
        let all = self.edge().config().contracts.iter().zip(self.edge().contract_stats());
        all.skip(places.start).take(places.len()).map(|(terms, stats)| contract(terms.id, stats)).collect()
    }

    /// All but the contracts.
    pub(crate) fn state(&mut self, dropped_packets: u64, now: Instant) -> EdgeState {
        let capacity = self.edge().config().recognition.map(|r| r.flows);
        let (on, flow_stats) = (self.edge().recognises(), self.edge().flow_stats());
        let stats: Vec<_> = self.edge().class_stats().collect();
        let classes = stats.into_iter().enumerate().map(|(place, (leaf, stats))| {
            let (name, broker, last) = self.class(place).unwrap_or_default();
            let (name, broker) = (name.to_owned(), broker.map(str::to_owned));
            let last = last.map(|last| RequestState { ago_ns: now.since(last.at).as_nanos(), ..last.into() });
            let (sessions, sessions_bps) = sessions(self.edge(), leaf);
            EdgeClassState {
                name,
                broker,
                flows: stats.flows.into(),
                sessions,
                sessions_bps,
                sessions_left_out: self.left_out(leaf).map(|(sessions, why)| LeftOutState { sessions, why }),
                windows: stats.windows,
                windows_above: stats.windows_above,
                allocator: self.allocator_mut(leaf).map(|allocator| allocator_state(allocator, last, now)),
            }
        });
        let classes = classes.collect();
        EdgeState {
            recognition: capacity.map(|capacity| recognition(on, flow_stats, capacity)),
            classes,
            contracts: Vec::new(),
            dropped_packets,
            unshaped: self.unshaped(),
        }
    }
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
