//! What an edge is made from, and what it says.

use crate::admit::Admission;
use crate::allocate::Allocation;
use crate::recognise::{Found, Kind, Rules};
use crate::sla::{Contract, Prefix};
use alloc::vec::Vec;
use weir_core::units::Duration;

/// A real-time class.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Class {
    /// Its leaf at the port.
    pub leaf: u32,
    /// How it asks for bandwidth; none: its rate is fixed.
    pub allocation: Option<Allocation>,
    /// Who gets in.
    pub admission: Admission,
    /// Its rate without an allocation, bit/s: the limit that admission compares with.
    pub rate_bps: u64,
}

/// How real-time flows are known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recognition {
    /// A flow that the end host marks EF, VA or NQB (RFC 3246, 5865, 9956) is real-time, at its first packet.
    pub trust_dscp: bool,
    /// What tells them by their packets.
    pub rules: Rules,
    /// A flow is forgotten after so much silence.
    pub idle: Duration,
    /// Flows that are remembered.
    pub flows: u32,
}

impl Default for Recognition {
    fn default() -> Self {
        Recognition {
            trust_dscp: false,
            rules: Rules::default(),
            idle: Duration::from_secs(30),
            flows: 65_536,
        }
    }
}

/// What an edge is made from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// Real-time classes of the port.
    pub classes: Vec<Class>,
    /// Contracts; none: every source is served, without a limit of its own, in the first class.
    pub contracts: Vec<Contract>,
    /// Prefixes of sources, each with the place of its contract in `contracts`.
    pub prefixes: Vec<(Prefix, u32)>,
    /// How real-time flows are known; none: the edge leaves packets alone and only allocates.
    pub recognition: Option<Recognition>,
    /// Packets of sources without a contract keep their code point, instead of losing it.
    pub keep_untrusted: bool,
    /// Bytes that a packet costs on the wire beyond its frame: classes are charged for them.
    pub overhead: u32,
    /// For evictions and for the table's hash.
    pub seed: u64,
}

/// Why a packet goes where it goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// Its source has no contract.
    NoContract,
    /// Its flow is not known to be real-time.
    Ordinary,
    /// Its flow is known not to be: it is QUIC.
    Quic,
    /// Its flow is real-time, and it is in profile.
    InProfile,
    /// Its flow is real-time, but the contract's bandwidth is used up.
    OutOfProfile,
    /// Its flow was refused or evicted.
    Refused,
}

/// What becomes of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// The tos byte to write; ECN bits are as they were.
    pub tos: u8,
    /// It is dropped.
    pub drop: bool,
    /// Why.
    pub reason: Reason,
    /// Its flow is found to be real-time with this packet, or all flows of its contract that are judged as one.
    pub found: Option<Found>,
}

impl Verdict {
    /// Its flow itself is found to be real-time with this packet.
    pub fn flow_found(&self) -> Option<Found> {
        self.found.filter(|found| found.kind != Kind::Aggregate)
    }
}

/// What became of real-time flows. Admitted flows that are neither evicted, timed out nor ended are there.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Turnover {
    /// New real-time flows that got in.
    pub admitted: u64,
    /// New real-time flows that did not.
    pub refused: u64,
    /// Admitted flows that had to go.
    pub evicted: u64,
    /// Admitted flows that ended by silence.
    pub timed_out: u64,
    /// Admitted flows that ended because the configuration changed, or recognition was switched off.
    pub ended: u64,
}

impl Turnover {
    /// Admitted flows that are there.
    pub fn now(&self) -> u64 {
        self.admitted.saturating_sub(self.evicted + self.timed_out + self.ended)
    }
}

/// What an edge has done with the flows of a class.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ClassStats {
    /// What became of them.
    pub flows: Turnover,
    /// Windows that ended.
    pub windows: u64,
    /// Windows in which admitted flows sent more than the limit.
    pub windows_above: u64,
}

/// What an edge has done with the packets of a contract, bytes, and with its flows.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(C)]
pub struct ContractStats {
    /// Offered by its real-time flows.
    pub offered_bytes: u64,
    /// Of these in profile.
    pub in_profile_bytes: u64,
    /// Out of profile, and passed on as if in profile (policy `ok`).
    pub passed_bytes: u64,
    /// Out of profile, and dropped.
    pub dropped_bytes: u64,
    /// Out of profile, and passed on as best effort.
    pub best_effort_bytes: u64,
    /// What became of its real-time flows.
    pub flows: Turnover,
}

/// What an edge has seen of flows.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FlowStats {
    /// Packets of flows on trial.
    pub inspected: u64,
    /// Flows that were found, by [`Kind::index`].
    pub found: [u64; Kind::COUNT],
    /// Flows that were found to be QUIC.
    pub quic: u64,
    /// Packets that found flows may have overtaken: what came before the Nth went as best effort.
    pub overtaken: u64,
    /// Flows in the table.
    pub used: u32,
    /// Flows that gave their place to others.
    pub replaced: u64,
    /// Flows that found no place.
    pub turned_away: u64,
}
