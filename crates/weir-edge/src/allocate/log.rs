//! The logarithmic law: a step of ΔB = K·ln(B_m / (u·B_d)) towards the bandwidth at which the class
//! would use the share u of what it has.
//!
//! Principle: the step is large where the allocation is far too small or too large, and nothing at the
//! target B_m/u. It is taken if |ΔB| exceeds ΔB_min, so that the class rests while B_d is within
//! e^(±ΔB_min/K) of the target.
//!
//! Paper: multiservice IV.4.1 (T48), equations 9 to 11.
//! Where we differ, and why:
//! - u is the target utilisation, 0.9. The paper's "margin S = 10 %" taken literally gives an
//!   efficiency of 9 % as 0.1 and diverges as 1.1.
//! - |ΔB| is compared, not ΔB: equation 11 as printed could never give back.
//! - The step never passes its target. As published, the law has the local factor 1 - K/B* at the
//!   target B*: it alternates below K and never settles below K/2. `published` keeps that.
//! - From nothing, or to nothing, there is no logarithm: the step goes to B_m/u, or to `from`.
//!
//! Guarantees: `t48_no_step_crosses_its_target`, `published_swings_as_computed`.

use super::ln::{LN_BITS, ln_ratio};
use weir_core::units::Fraction;

/// A rate, or a share of what the class has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Amount {
    /// bit/s.
    Rate(u64),
    /// Of the allocation: the law is then free of scale.
    Share(Fraction),
}

impl Amount {
    /// In bit/s, for a class that has `allocated`.
    pub fn bps(self, allocated: u64) -> u64 {
        match self {
            Amount::Rate(bps) => bps,
            Amount::Share(share) => share.of(allocated),
        }
    }
}

/// The law's parameters. Default: K 600 kbit/s, u 0.9, ΔB_min 50 kbit/s, clipped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Log {
    /// Gain, K.
    pub gain: Amount,
    /// Target utilisation, u.
    pub target: Fraction,
    /// Least step, ΔB_min.
    pub step: Amount,
    /// Steps may pass their target, as in the paper.
    pub published: bool,
}

impl Log {
    /// B_m/u: the allocation at which `measured` is the target's share, rounded up.
    pub fn goal(&self, measured: u64) -> u64 {
        let goal = (u128::from(measured) << 32).div_ceil(u128::from(self.target.raw().max(1)));
        goal.min(u128::from(u64::MAX)) as u64
    }

    /// ΔB, to the nearest bit/s; none where there is no logarithm.
    pub fn delta(&self, allocated: u64, measured: u64) -> Option<i64> {
        // ln(B_m/B_d) - ln u, each of a ratio of whole numbers.
        let ln = ln_ratio(measured, allocated)? - ln_ratio(self.target.raw(), 1 << 32)?;
        // A gain below 2^63 and |ln| below 2^63: the product fits.
        let product = i128::from(self.gain.bps(allocated)) * i128::from(ln);
        let delta = (product + (1 << (LN_BITS - 1))) >> LN_BITS;
        Some(delta.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64)
    }

    /// What the class should have that has `allocated` bit/s and uses `measured`; none: as it is.
    /// `from` is the least that it keeps.
    pub fn wish(&self, from: u64, allocated: u64, measured: u64) -> Option<u64> {
        let goal = self.goal(measured);
        let Some(delta) = self.delta(allocated, measured) else {
            return Some(if measured == 0 { from } else { goal }).filter(|&wish| wish != allocated);
        };
        if delta.unsigned_abs() <= self.step.bps(allocated) {
            return None;
        }
        let wish = allocated.saturating_add_signed(delta);
        Some(match (self.published, delta > 0) {
            (true, _) => wish,
            (false, true) => wish.min(goal.max(allocated)),
            (false, false) => wish.max(goal.min(allocated)),
        })
    }
}

impl Default for Log {
    fn default() -> Self {
        Log {
            gain: Amount::Rate(600_000),
            target: Fraction::ratio(90, 100),
            step: Amount::Rate(50_000),
            published: false,
        }
    }
}
