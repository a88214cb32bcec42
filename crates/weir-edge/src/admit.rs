//! Admission without signalling: whether a new real-time flow gets in, and which one goes when there
//! are too many.
//!
//! Principle: B_o is what the admitted flows of the class sent in the last window. A new flow is
//! admitted if `B_o + Σ new < T_a·limit`, where Σ new counts what the flows admitted since the window
//! of B_o began are expected to add. At the end of a window with `B_o > T_d·limit` one flow is evicted.
//!
//! Paper: multiservice V.2.1 (T52, T53), I (T57: the policy and the thresholds are each class's own).
//! Where we differ, and why:
//! - `limit` is the most that the class may get, not the momentary B_d: the allocator keeps B_o/B_d
//!   near 0.9, and would be fought.
//! - Σ new: with 0 (the thesis) a hundred calls that start within a second on 1 Mbit/s are admitted up
//!   to eighty, and 66 evicted again. `t52_a_flash_crowd` has both.
//! - A contract may say which of its flows goes. The class's policy chooses whose turn it is: the contract of
//!   the flow that it would take.
//! - T_d is compared at the end of a window, with the last window alone: with a hold of ten, one
//!   overload would evict for twenty windows.

pub use crate::evict::Evict;
use crate::flow::{Flow, Part};
use weir_core::Random;
use weir_core::units::{Duration, Fraction};

/// The parameters of admission to a class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Admission {
    /// T_a as a share of the limit.
    pub accept: Fraction,
    /// T_d as a share of the limit.
    pub drop: Fraction,
    /// What a new flow is expected to add, bit/s; none: the mean of the admitted flows. 0 is the thesis.
    pub new_flow_bps: Option<u64>,
    /// Which flow goes.
    pub evict: Evict,
    /// A flow that is silent for so long has ended; a contract may have its own time.
    pub timeout: Duration,
    /// Packets of refused and evicted flows are dropped instead of going on as best effort.
    pub drop_refused: bool,
}

impl Default for Admission {
    fn default() -> Self {
        Admission {
            accept: Fraction::ratio(90, 100),
            drop: Fraction::ratio(95, 100),
            new_flow_bps: None,
            evict: Evict::Random,
            timeout: Duration::from_secs(5),
            drop_refused: false,
        }
    }
}

/// What a flow is expected to send of which nothing is known, bit/s: a call with G.711.
const USUAL_FLOW_BPS: u64 = 64_000;

/// Admission to one class.
#[derive(Clone, Debug)]
pub struct Gate {
    plan: Admission,
    /// B_o of the last window, bit/s.
    offered_bps: u64,
    /// Expected of the flows admitted in the window that `offered_bps` speaks of, and since.
    expected: [u64; 2],
    /// What each admitted flow sends on average, bit/s; 0 while unknown.
    mean_bps: u64,
}

impl Gate {
    /// Admission to a class without flows.
    pub fn new(plan: Admission) -> Self {
        Gate { plan, offered_bps: 0, expected: [0; 2], mean_bps: 0 }
    }
    /// The parameters.
    pub fn plan(&self) -> &Admission {
        &self.plan
    }
    /// Others from now on.
    pub fn set(&mut self, plan: Admission) {
        self.plan = plan;
    }
    /// What it knows of the load, in numbers.
    pub(crate) fn numbers(&self) -> [u64; 4] {
        [self.offered_bps, self.expected[0], self.expected[1], self.mean_bps]
    }
    /// What another gate knew of the load.
    pub(crate) fn inherit(&mut self, [offered_bps, since, before, mean_bps]: [u64; 4]) {
        (self.offered_bps, self.expected, self.mean_bps) = (offered_bps, [since, before], mean_bps);
    }
    /// B_o, bit/s.
    pub fn offered_bps(&self) -> u64 {
        self.offered_bps
    }
    /// B_o and what new flows are expected to add to it, bit/s.
    pub fn load_bps(&self) -> u64 {
        let [since, before] = self.expected;
        self.offered_bps.saturating_add(since).saturating_add(before)
    }
    /// What a new flow is expected to add, bit/s.
    pub fn new_flow_bps(&self) -> u64 {
        let mean = if self.mean_bps == 0 { USUAL_FLOW_BPS } else { self.mean_bps };
        self.plan.new_flow_bps.unwrap_or(mean)
    }
    /// Whether a new flow gets in, with the most that the class may get in bit/s and T_a. If so it
    /// counts.
    pub fn admit(&mut self, limit_bps: u64, accept: Fraction) -> bool {
        let fits = u128::from(self.load_bps()) << 32 < u128::from(limit_bps) * u128::from(accept.raw());
        if fits {
            self.count_new();
        }
        fits
    }
    /// A flow that gets in whatever the load: it counts all the same.
    pub fn count_new(&mut self) {
        self.expected[0] = self.expected[0].saturating_add(self.new_flow_bps());
    }
    /// A flow has left that sent `sent_bps` in the last window, and of which so much was expected besides, as in `expected`.
    pub(crate) fn forget(&mut self, sent_bps: u64, expected: [u64; 2]) {
        self.offered_bps = self.offered_bps.saturating_sub(sent_bps);
        for (all, its) in self.expected.iter_mut().zip(expected) {
            *all = all.saturating_sub(its);
        }
    }
    /// Nobody is in the class any more. What a flow sends on average is still known.
    pub fn empty(&mut self) {
        (self.offered_bps, self.expected) = (0, [0; 2]);
    }
    /// A window ended in which `admitted` flows sent `offered_bps` together.
    pub fn window(&mut self, offered_bps: u64, admitted: u32) {
        self.offered_bps = offered_bps;
        self.mean_bps = offered_bps / u64::from(admitted.max(1));
        self.expected = [0, self.expected[0]];
    }
    /// Whether the last window exceeded T_d.
    pub fn is_above(&self, limit_bps: u64, drop: Fraction) -> bool {
        u128::from(self.offered_bps) << 32 > u128::from(limit_bps) * u128::from(drop.raw())
    }
    /// Which of these flows goes by that policy; none if all are pinned.
    pub fn choose<'a>(
        evict: Evict,
        flows: impl Iterator<Item = (u32, &'a Flow)>,
        random: &mut Random,
    ) -> Option<u32> {
        let mut chosen: Option<(u32, &Part)> = None;
        let parts =
            flows.filter_map(|(index, flow)| Some((index, flow.part().filter(|p| !p.standing.pinned)?)));
        for (seen, (index, part)) in (1..).zip(parts) {
            let better = chosen.is_none_or(|(_, other)| match evict {
                // Each of those seen so far is the chosen one with the same probability.
                Evict::Random => random.below(seen) == 0,
                Evict::Largest => part.last_bytes > other.last_bytes,
                Evict::Smallest => part.last_bytes < other.last_bytes,
                Evict::Oldest => part.since < other.since,
                Evict::Newest => part.since > other.since,
            });
            if better {
                chosen = Some((index, part));
            }
        }
        chosen.map(|(index, _)| index)
    }
}
