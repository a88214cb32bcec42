//! Contracts: whose packets they are, how much of them is in profile, and what becomes of the rest.

mod meter;
mod table;

pub(crate) use meter::PER_BYTE;
pub use meter::{Guessed, Own, Profile, Shared};
pub use table::{Prefix, Table};

use crate::admit::Evict;
use weir_core::packet::Dscp;
use weir_core::units::{Duration, Fraction};

/// What becomes of packets out of profile. [multiservice III, table 3, and its text]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Policy {
    /// They pass as those in profile, and are counted.
    Ok,
    /// They are dropped.
    Drop,
    /// They go on as best effort: code point 0. Packets of one flow may then overtake each other.
    #[default]
    BestEffort,
    /// Their flow goes on as best effort until it has fit for a second.
    FlowBestEffort,
}

/// What a subscriber has paid for. (T22 to T24)
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Contract {
    /// The subscriber's number, unique.
    pub id: u32,
    /// Bandwidth of its real-time flows in one direction, BW, bit/s.
    pub bandwidth_bps: u64,
    /// Share of it that its flows compete for, s; the rest is divided equally among them.
    pub shared: Fraction,
    /// What a flow does not use of its own part goes to the shared one.
    pub lend: bool,
    /// The code point of packets in profile.
    pub dscp: Dscp,
    /// That of packets in profile whose flow the statistical rule found; none: the same.
    pub guessed_dscp: Option<Dscp>,
    /// What becomes of the others.
    pub policy: Policy,
    /// A flow that is silent for so long has ended; its class says it unless given.
    pub timeout: Option<Duration>,
    /// Most real-time flows at a time.
    pub flows: u32,
    /// Its class, by its place in the edge's list.
    pub class: usize,
    /// Its own T_a, instead of its class's. (T57)
    pub accept: Option<Fraction>,
    /// Its own T_d, instead of its class's.
    pub drop: Option<Fraction>,
    /// Which of its flows goes; else the class's policy chooses among all.
    pub evict: Option<Evict>,
    /// Share of its bandwidth that flows found by the statistical rule have together, at most; none: all of it.
    pub guessed: Option<Fraction>,
}
