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
//! A contract may say which share of it [flows that were guessed](Guessed) have together. They are bound by that besides.
//!
//! Tokens are counted in units of 10^-9 bit, of which a nanosecond brings exactly the rate. A number of 64 bits holds 2.3 GB of
//! them. So no bucket is deeper: that is 100 ms of 184 Gbit/s. What idle flows lend is handed over at least every 5 ms while
//! packets come, a twentieth of the depths.
//! Guarantees: `t23_shares_follow_the_law`, `t24_lending_loses_nothing`.

use super::Contract;
use weir_core::units::Instant;

/// Units of 10^-9 bit in a byte.
pub(crate) const PER_BYTE: u64 = 8_000_000_000;
/// Two of the longest usual packets, with what Ethernet adds to them: no bucket is shallower.
const LEAST_DEPTH: u64 = 2 * 1_538 * PER_BYTE;
/// Depth of a bucket as time at its rate, ns.
const DEPTH_NS: u64 = 100_000_000;
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

/// The bucket of a flow. It begins empty, because tokens are never multiplied.
///
/// When it had these tokens is not kept: at the last packet of its flow, or when all of the contract were
/// [collected](Shared::collected), whichever is later.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Own {
    tokens: u64,
}

impl Own {
    /// The bucket with so many tokens: the lower and the upper half of their number.
    pub(crate) fn new(low: u64, high: u64) -> Self {
        Own { tokens: if high == 0 { low } else { u64::MAX } }
    }
    /// What it has.
    pub(crate) fn tokens(&self) -> u64 {
        self.tokens
    }
}

/// The shared part of a contract, and what its parts are now.
// What packets within their flow's own part need comes first: see `edge::Meter`.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Shared {
    /// (1 - s)·BW/n, bit/s.
    own_bps: u64,
    collected: Instant,
    tokens: u64,
    depth: u64,
    flows: u32,
    lend: bool,
    /// When it had these tokens, but for what flows lent since.
    at: Instant,
    bandwidth_bps: u64,
    /// s·BW, bit/s.
    shared_bps: u64,
}

/// What flows that were found by a guess have together of a contract, at most.
#[derive(Clone, Copy, Debug)]
pub struct Guessed {
    /// Bit/s.
    rate_bps: u64,
    tokens: u64,
    /// When it had these.
    at: Instant,
}

impl Guessed {
    /// That of a contract, full; none if such flows may have all of it.
    pub fn new(contract: &Contract, now: Instant) -> Option<Self> {
        let rate_bps = contract.guessed?.of(contract.bandwidth_bps);
        Some(Guessed { rate_bps, tokens: depth(rate_bps), at: now })
    }
    /// The same under other terms: it has no more than it had.
    pub fn set(&mut self, old: Option<Guessed>, now: Instant) {
        if let Some(mut old) = old {
            old.fill(now);
            self.tokens = self.tokens.min(old.tokens);
        }
    }
    /// It has nothing.
    pub(crate) fn empty(&mut self) {
        self.tokens = 0;
    }
    fn fill(&mut self, now: Instant) {
        let inflow = self.rate_bps.saturating_mul(now.since(self.at).as_nanos());
        self.tokens = self.tokens.saturating_add(inflow).min(depth(self.rate_bps));
        self.at = self.at.max(now);
    }
    /// A packet that costs `bytes` on the link: whether it fits. It is [paid](Guessed::pay) for if it is in profile as well.
    pub fn fits(&mut self, now: Instant, bytes: u32) -> bool {
        self.fill(now);
        self.rate_bps > 0 && self.tokens >= u64::from(bytes) * PER_BYTE
    }
    /// A packet that fits goes.
    pub fn pay(&mut self, bytes: u32) {
        self.tokens = self.tokens.saturating_sub(u64::from(bytes) * PER_BYTE);
    }
}

fn depth(rate_bps: u64) -> u64 {
    rate_bps.saturating_mul(DEPTH_NS).max(LEAST_DEPTH)
}

impl Shared {
    /// Bytes of it that packets within their flow's own part touch.
    pub(crate) const FIRST: usize = core::mem::offset_of!(Shared, at);

    /// The meter of a contract without flows.
    pub fn new(contract: &Contract, now: Instant) -> Self {
        let shared_bps = contract.shared.of(contract.bandwidth_bps);
        let depth = depth(if contract.lend { contract.bandwidth_bps } else { shared_bps });
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
    /// Its tokens now, after all flows were collected.
    pub(crate) fn numbers(&mut self, now: Instant) -> [u64; 3] {
        self.fill(now);
        [self.tokens, 0, now.as_nanos()]
    }
    /// It had these tokens then, as far as they fit. The flows are known, and were collected then.
    pub(crate) fn inherit(&mut self, [low, high, at]: [u64; 3]) {
        self.tokens = Own::new(low, high).tokens.min(self.depth);
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
    /// Whether the flows' buckets are to be [collected](Shared::collect) before the next packet. One alone hands over what it
    /// lends with its own packets.
    pub fn wants_collection(&self, now: Instant) -> bool {
        self.lend && self.flows > 1 && now.since(self.collected).as_nanos() >= COLLECT_NS
    }
    /// All flows' buckets were collected.
    pub fn collected(&mut self, now: Instant) {
        self.collected = now;
    }
    /// Fills the bucket of a flow, whose `last` packet is known, and takes what it cannot hold.
    pub fn collect(&mut self, now: Instant, last: Instant, own: &mut Own) {
        let passed = now.since(last.max(self.collected)).as_nanos();
        let (tokens, depth) =
            (own.tokens.saturating_add(self.own_bps.saturating_mul(passed)), depth(self.own_bps));
        own.tokens = tokens.min(depth);
        if self.lend {
            self.tokens = self.tokens.saturating_add(tokens.saturating_sub(depth)).min(self.depth);
        }
    }
    fn fill(&mut self, now: Instant) {
        // Without flows nobody has a part: then all of it is shared, and the first flow finds it full.
        let rate = if self.flows == 0 && self.lend { self.bandwidth_bps } else { self.shared_bps };
        let inflow = rate.saturating_mul(now.since(self.at).as_nanos());
        self.tokens = self.tokens.saturating_add(inflow).min(self.depth);
        self.at = self.at.max(now);
    }
    /// A packet that costs `bytes` on the link, of the flow with this bucket, which was filled.
    pub fn take(&mut self, now: Instant, own: &mut Own, bytes: u32) -> Profile {
        let cost = u64::from(bytes) * PER_BYTE;
        if let Some(left) = own.tokens.checked_sub(cost) {
            own.tokens = left;
            return Profile::In;
        }
        self.fill(now);
        let Some(left) = self.tokens.checked_sub(cost) else { return Profile::Out };
        self.tokens = left;
        Profile::In
    }
}
