//! The service rates: who gets which share of the link, in units of 2^-40 of it.
//!
//! Shares make the arithmetic the same at 9.6 kbit/s and at 400 Gbit/s. They are moved, never
//! made: after `reset` the shares of the backlogged classes add up to `ONE`, and every function
//! here keeps that sum to the last unit.
//!
//! **The rate feedback** (`steer`; the paper gives the form, delta r = K e, and not K).
//! Let class i of a chain have backlog B, rate r, weight w = 1/g and delay D; the chain has the
//! rate R = sum of r. The class's newest packet will have waited B / r, its oldest has waited D.
//! What the delay should be is g X, with one X for all. In bytes, the error of the first is
//! w B - r X, that of the second w D r - r X. Take half of each:
//!
//! ```text
//!   m = w (B + r D) / 2      e = m - r X      X = M / R,  M = sum of m, so that sum of e = 0
//! ```
//!
//! and delta r = K e, with one K for all because the error is in bytes: K = eta / X makes
//! r + delta r = (1 - eta) r + eta R m / M, a mean of the present rate and of the one that
//! would be right, so that no rate falls below zero or below a minimum that both respect.
//!
//! How large may eta be? Let u be the relative deviation of r from balance, b that of B, d that
//! of D. While r is off by u, the backlog and the delay of the head change at the same pace, and
//! with a step every h the rate follows, to the first order:
//!
//! ```text
//!   b' = d' = -u / D          u' = (eta / h) (b/2 + d/2 - u/2)
//! ```
//!
//! This is a loop of second order with w0^2 = eta / (h D) and the damping sqrt(eta D / h) / 4.
//! Measured delays alone (no B in m) would be a double integrator without any damping. The
//! damping is critical for eta = 16 h / D, and then the loop settles to 5 % within 1.2 D. The
//! fastest member has D = X, for its weight is 1; for those with a larger D the same eta is more
//! than critical, which settles within 1.5 D and does not swing. Hence
//!
//! ```text
//!   eta = min(1, 16 h / X)
//! ```
//!
//! with h the time since the last step. eta = 1 is a whole step; it is also what follows a reset,
//! after which there is no rate worth keeping, and then m is w B alone, since r D means nothing.
//! A class whose rate would fall below its minimum is held at the minimum, and the others share
//! what is left: one step of X with fewer members. See the book's page for the same with drawings.
//!
//! Proof of range: shares are at most 2^40 each and in sum; m is capped at 2^58 and 16 of them
//! sum to at most 2^62; R m / M is computed with M scaled into 32 bits.

use super::weights::{CLASSES, Weight};
use crate::units::Bounded;

/// The whole link.
pub(super) const ONE: u64 = 1 << SHARE_BITS;
pub(super) const SHARE_BITS: u32 = 40;
/// A minimum rate counts as this at most: 1024 links, so that sums cannot overflow.
pub(super) const MOST: u64 = ONE << 10;
/// The largest m of a class: 2^-16 ns of the link's time, 73 minutes.
const LONGEST: u128 = 1 << 58;

/// The bits that are set, from the lowest.
pub(super) fn bits(mut mask: u16) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let bit = (mask != 0).then(|| mask.trailing_zeros() as usize)?;
        mask &= mask - 1;
        Some(bit)
    })
}

/// Equal shares for the backlogged, none for others. [QOSBOX section 2.4, reset_rates]
pub(super) fn reset(rates: &mut [u64; CLASSES], backlogged: u16) {
    *rates = [0; CLASSES];
    if backlogged == 0 {
        return;
    }
    let n = u64::from(backlogged.count_ones());
    for class in bits(backlogged) {
        rates[class] = ONE / n;
    }
    rates[backlogged.trailing_zeros() as usize] += ONE % n;
}

/// True if at `rate` a backlog that takes `drain` (2^-32 ns) of the link is gone within `left_ns`.
pub(super) fn suffices(rate: u64, drain: u128, left_ns: u64) -> bool {
    // rate / 2^40 * left * 2^32 >= drain. A drain is below 2^96: 2^40 packets' worth of bytes
    // times 2^53; the left side is below 2^104.
    u128::from(rate) * u128::from(left_ns) >= drain << (SHARE_BITS - 32)
}

/// The least rate for which `suffices` holds: B / (d - D). [QOSBOX section 2.4]
pub(super) fn least(drain: u128, left_ns: u64) -> u64 {
    let (work, left_ns) = (drain << (SHARE_BITS - 32), left_ns.max(1));
    match u64::try_from(work) {
        // A division of 64 bits is several times faster.
        Ok(work) => work.div_ceil(left_ns).min(MOST),
        Err(_) => work.div_ceil(u128::from(left_ns)).min(u128::from(MOST)) as u64,
    }
}

/// Moves what classes have above their `least` rates to those that are below theirs: from all
/// donors in proportion, so that the ratios inside a chain stay. If that is not enough, what there
/// is goes to the needy in proportion.
pub(super) fn redistribute(rates: &mut [u64; CLASSES], least: &[u64; CLASSES], backlogged: u16) {
    let (mut need, mut have) = (0, 0);
    for class in bits(backlogged) {
        need += least[class].saturating_sub(rates[class]);
        have += rates[class].saturating_sub(least[class]);
    }
    if need == 0 || have == 0 {
        return;
    }
    let enough = need <= have;
    // What each gives of its surplus, what each gets of its need; one of the two is all.
    // The smaller of both is below 2^41, so the quotient is exact to 2^-23 of it.
    let part = (need.min(have) << 23) / need.max(have);
    let moved = need.min(have);
    let (mut given, mut taken) = (0, 0);
    for class in bits(backlogged) {
        let (surplus, short) =
            (rates[class].saturating_sub(least[class]), least[class].saturating_sub(rates[class]));
        if surplus > 0 {
            let gives =
                if enough { ((u128::from(surplus) * u128::from(part)) >> 23) as u64 } else { surplus };
            rates[class] -= gives;
            given += gives;
        } else if short > 0 {
            let gets = if enough { short } else { ((u128::from(short) * u128::from(part)) >> 23) as u64 };
            rates[class] += gets;
            taken += gets;
        }
    }
    // What rounding left over: from donors that still have it, to takers that still need it.
    let (mut owed, mut rest) = (moved - given, moved - taken);
    for class in bits(backlogged) {
        let more = rates[class].saturating_sub(least[class]).min(owed);
        rates[class] -= more;
        owed -= more;
        let less = least[class].saturating_sub(rates[class]).min(rest);
        rates[class] += less;
        rest -= less;
    }
}

/// One class of a chain, as `steer` sees it.
#[derive(Clone, Copy)]
pub(super) struct Seen {
    /// What its backlog takes of the link, in 2^-32 ns.
    pub drain: u128,
    /// The delay that its packets have now.
    pub delay_ns: u64,
    /// Its weight.
    pub weight: Weight,
}

impl Seen {
    /// m, in 2^-16 ns of the link's time. `rate` is none after a reset.
    pub(super) fn load(self, rate: Option<u64>) -> u64 {
        let backlog = (self.drain >> 16).min(LONGEST);
        let work = match rate {
            // 2^40 * 2^47 << 16 >> 40 at most.
            Some(rate) => {
                let delayed = u128::from(rate) * u128::from(self.delay_ns.min(1 << 47));
                (backlog + (delayed >> (SHARE_BITS - 16)).min(LONGEST)) / 2
            }
            None => backlog,
        };
        (self.weight.of(work as u64) >> 62) as u64
    }
}

/// How far a step goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// After a reset.
    Whole,
    /// The time since the last step.
    After(u64),
}

/// `part * whole / sum` for one sum and many parts, by one division of 64 bits.
struct Sharing {
    whole: u64,
    inverse: u64,
    shift: i32,
}

impl Sharing {
    /// `sum` is not 0 and below 2^63.
    fn new(whole: u64, sum: u64) -> Self {
        // sum >> shift lies in [2^31, 2^32), so the inverse in (2^30, 2^31].
        let shift = 32 - sum.leading_zeros() as i32;
        let normal = if shift >= 0 { sum >> shift } else { sum << -shift };
        Sharing { whole, inverse: (1 << 62) / normal, shift }
    }
    /// Rounded down; off by at most 2^-29 of the whole.
    fn of(&self, part: u64) -> u64 {
        let normal = if self.shift >= 0 { part >> self.shift } else { part << -self.shift };
        // 2^32 * 2^31 fits.
        let share = normal.times(self.inverse) >> 22;
        ((u128::from(self.whole) * u128::from(share)) >> 40) as u64
    }
    /// `16 h / X` in units of 2^-32, at most 1: X = sum / whole, in 2^-16 ns for shares of 2^-40.
    fn step(&self, h_ns: u64) -> u64 {
        let rate = (u128::from(self.whole) * u128::from(self.inverse)) >> 8;
        // whole / sum = rate * 2^8 / 2^62 / 2^shift. X in ns is sum / 2^16 * 2^40 / whole.
        let shift = 62 + self.shift + 40 - 16 - 8 - 32 - 4;
        // rate < 2^64, h < 2^48.
        let steps = u128::from(rate as u64) * u128::from(h_ns.min(1 << 47));
        let steps = if shift >= 0 { steps >> shift.min(127) } else { steps };
        steps.min(1 << 32) as u64
    }
}

/// The backlogged members of one chain, as a step sees them. It is kept from step to step, so that it need not be
/// cleared.
pub(super) struct Chain {
    members: u16,
    loads: [u64; CLASSES],
    least: [u64; CLASSES],
    targets: [u64; CLASSES],
    /// Sum of the members' rates, at most `ONE`.
    whole: u64,
    /// Sum of `loads`, below 2^63.
    sum: u64,
    /// Sum of `least`, at most 16 * 2^50.
    bound: u64,
}

impl Chain {
    pub const NEW: Chain = Chain {
        members: 0,
        loads: [0; CLASSES],
        least: [0; CLASSES],
        targets: [0; CLASSES],
        whole: 0,
        sum: 0,
        bound: 0,
    };

    /// Another chain, of no members yet.
    #[inline(always)]
    pub fn begin(&mut self) {
        (self.members, self.whole, self.sum, self.bound) = (0, 0, 0, 0);
    }
    /// A member that has this rate and load, and a least rate.
    #[inline(always)]
    pub fn add(&mut self, class: usize, rate: u64, load: u64, least: u64) {
        (self.loads[class], self.least[class]) = (load, least);
        self.members |= 1 << class;
        self.whole = self.whole.plus(rate);
        self.sum = self.sum.plus(load);
        self.bound = self.bound.plus(least);
    }
    /// Adjusts the rates of the members, whose sum stays. See above.
    // Inlined by force, as `sampled::steer`: two more calls would cost an arrival 5 ns of 75.
    #[inline(always)]
    pub fn steer(&mut self, rates: &mut [u64; CLASSES], step: Step) {
        let (members, whole) = (self.members, self.whole);
        if self.sum == 0 || self.bound > whole {
            return;
        }
        let sharing = Sharing::new(whole, self.sum);
        let eta = match step {
            Step::Whole => 1i64 << 32,
            Step::After(h_ns) => sharing.step(h_ns) as i64,
        };
        self.aim(sharing);
        let (mut kept, mut heaviest, mut most) = (0u64, members.trailing_zeros() as usize, 0);
        for class in bits(members) {
            // Shares are below 2^41. Shifting rounds down, so the sum can only fall short, by a unit
            // or two a class.
            let rate = rates[class] as i64;
            let change = (self.targets[class] as i64).less(rate);
            let change = (i128::from(change) * i128::from(eta)) >> 32;
            let rate = rate.plus(change as i64) as u64;
            rates[class] = rate;
            kept = kept.plus(rate);
            if rate > most {
                (heaviest, most) = (class, rate);
            }
        }
        rates[heaviest & (CLASSES - 1)] += whole - kept;
    }
    /// The right rate of each member: its part by its load; but those whose part would be below their
    /// minimum have that, which leaves less for the others, until nobody else is below.
    #[inline(always)]
    fn aim(&mut self, mut sharing: Sharing) {
        let (mut whole, mut sum, mut free) = (self.whole, self.sum, self.members);
        loop {
            let mut held = 0u16;
            for class in bits(free) {
                let part = sharing.of(self.loads[class]);
                self.targets[class] = part;
                if part < self.least[class] {
                    self.targets[class] = self.least[class];
                    held |= 1 << class;
                    whole -= self.least[class].min(whole);
                    sum -= self.loads[class];
                }
            }
            free &= !held;
            if held == 0 || sum == 0 {
                return;
            }
            sharing = Sharing::new(whole, sum);
        }
    }
}
