//! The meter of a contract: each flow has a part of its own, and all compete for a shared part.
//!
//! Principle: a contract of BW with n flows and the shared part s gives each flow a bucket of rate
//! (1 - s)·BW/n, and all of them one bucket of rate s·BW. A packet takes its length from the bucket of
//! its flow, else from the shared one, else it is out of profile. What a full bucket of a flow cannot
//! hold goes into the shared one (`lend`), so that flows that send little do not make the contract
//! smaller for the others.
//!
//! Paper: multiservice III.2, table 3 (T23, T24).
//! Where we differ, and why: lending. Read literally, two flows that offer 5 and 0.1 of BW with s = 0
//! together get 0.6 of BW; with lending 1.0. `waste` is the literal reading.
//!
//! Tokens are counted in units of 10^-9 bit, of which a nanosecond brings exactly the rate. What idle
//! flows lend is handed over at least every 5 ms while packets come, a twentieth of the depths.
//! Guarantees: `t23_shares_follow_the_law`, `t24_lending_loses_nothing`.

use super::Contract;
use weir_core::units::Instant;

/// Units of 10^-9 bit in a byte.
const PER_BYTE: u128 = 8_000_000_000;
/// Two of the longest usual packets: no bucket is shallower.
const LEAST_DEPTH: u128 = 2 * 1_514 * PER_BYTE;
/// Depth of a bucket as time at its rate, ns.
const DEPTH_NS: u128 = 100_000_000;
/// Longest pause between two collections of what idle flows lend, ns.
const COLLECT_NS: u64 = 5_000_000;

/// Where a packet was found to fit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Profile {
    /// In its flow's part or in the shared one.
    In,
    /// In neither.
    Out,
}

/// The bucket of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Own {
    /// Lower and upper half: so aligned, a flow fits into two lines of cache.
    halves: [u64; 2],
    at: Instant,
}

impl Own {
    /// The bucket of a flow that begins now: empty, because tokens are never multiplied.
    pub fn new(now: Instant) -> Self {
        Own { halves: [0; 2], at: now }
    }
    /// It in numbers.
    pub(crate) fn numbers(&self) -> [u64; 3] {
        [self.halves[0], self.halves[1], self.at.as_nanos()]
    }
    /// The bucket with these numbers.
    pub(crate) fn of_numbers([low, high, at]: [u64; 3]) -> Self {
        Own { halves: [low, high], at: Instant::from_nanos(at) }
    }
    fn tokens(&self) -> u128 {
        u128::from(self.halves[1]) << 64 | u128::from(self.halves[0])
    }
    fn set_tokens(&mut self, tokens: u128) {
        self.halves = [tokens as u64, (tokens >> 64) as u64];
    }
}

/// The shared part of a contract, and what its parts are now.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Shared {
    tokens: u128,
    depth: u128,
    at: Instant,
    collected: Instant,
    bandwidth_bps: u64,
    /// s·BW, bit/s.
    shared_bps: u64,
    /// (1 - s)·BW/n, bit/s.
    own_bps: u64,
    flows: u32,
    lend: bool,
}

impl Shared {
    /// The meter of a contract without flows.
    pub fn new(contract: &Contract, now: Instant) -> Self {
        let shared_bps = contract.shared.of(contract.bandwidth_bps);
        let filled_by = if contract.lend { contract.bandwidth_bps } else { shared_bps };
        let depth = LEAST_DEPTH.max(u128::from(filled_by) * DEPTH_NS);
        Shared {
            bandwidth_bps: contract.bandwidth_bps,
            shared_bps,
            lend: contract.lend,
            flows: 0,
            own_bps: 0,
            tokens: depth,
            depth,
            at: now,
            collected: now,
        }
    }
    /// The contract changes, after all flows were collected: tokens stay, as far as they fit.
    pub fn set(&mut self, contract: &Contract, now: Instant) {
        self.fill(now);
        let (flows, tokens, collected) = (self.flows, self.tokens, self.collected);
        let new = Shared::new(contract, now);
        *self = Shared { tokens: tokens.min(new.depth), collected, ..new };
        self.set_flows(now, flows);
    }
    /// Its tokens, and when it had them.
    pub(crate) fn numbers(&self) -> [u64; 3] {
        [self.tokens as u64, (self.tokens >> 64) as u64, self.at.as_nanos()]
    }
    /// It had these tokens then, as far as they fit. The flows are known.
    pub(crate) fn inherit(&mut self, [low, high, at]: [u64; 3]) {
        self.tokens = (u128::from(high) << 64 | u128::from(low)).min(self.depth);
        (self.at, self.collected) = (Instant::from_nanos(at), Instant::from_nanos(at));
    }
    /// Flows that have a part.
    pub fn flows(&self) -> u32 {
        self.flows
    }
    /// What each flow has for itself, bit/s.
    pub fn own_bps(&self) -> u64 {
        self.own_bps
    }
    /// The number of flows changes, after all of them were collected.
    pub fn set_flows(&mut self, now: Instant, flows: u32) {
        self.fill(now);
        self.flows = flows;
        self.own_bps = (self.bandwidth_bps - self.shared_bps) / u64::from(flows.max(1));
    }
    /// Whether the flows' buckets are to be [collected](Shared::collect) before the next packet.
    pub fn wants_collection(&self, now: Instant) -> bool {
        self.lend && now.since(self.collected).as_nanos() >= COLLECT_NS
    }
    /// All flows' buckets were collected.
    pub fn collected(&mut self, now: Instant) {
        self.collected = now;
    }
    /// Fills the bucket of a flow, and takes what it cannot hold.
    pub fn collect(&mut self, now: Instant, own: &mut Own) {
        let depth = LEAST_DEPTH.max(u128::from(self.own_bps) * DEPTH_NS);
        let tokens = own.tokens() + u128::from(self.own_bps) * u128::from(now.since(own.at).as_nanos());
        own.at = own.at.max(now);
        own.set_tokens(tokens.min(depth));
        if self.lend {
            self.tokens = (self.tokens + tokens.saturating_sub(depth)).min(self.depth);
        }
    }
    fn fill(&mut self, now: Instant) {
        // Without flows nobody has a part: then all of it is shared, and the first flow finds it full.
        let rate = if self.flows == 0 && self.lend { self.bandwidth_bps } else { self.shared_bps };
        let inflow = u128::from(rate) * u128::from(now.since(self.at).as_nanos());
        self.tokens = (self.tokens + inflow).min(self.depth);
        self.at = self.at.max(now);
    }
    /// A packet of `bytes` of the flow with this bucket.
    pub fn take(&mut self, now: Instant, own: &mut Own, bytes: u32) -> Profile {
        self.collect(now, own);
        self.fill(now);
        let cost = u128::from(bytes) * PER_BYTE;
        if let Some(left) = own.tokens().checked_sub(cost) {
            own.set_tokens(left);
            return Profile::In;
        }
        let Some(left) = self.tokens.checked_sub(cost) else { return Profile::Out };
        self.tokens = left;
        Profile::In
    }
}
