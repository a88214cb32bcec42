//! Finds thresholds by measuring: the procedure of figure 24.
//!
//! Principle: raise l_min step by step, which raises efficiency, until a constraint breaks. If too
//! much traffic was overlimit, trade l_max down; if there were too many requests, trade it up. Then
//! raise l_min again. The search ends where no trade helps, with the last feasible pair.
//!
//! Paper: multiservice IV.3.2, figure 24 (T42). Measurements are the caller's: it runs its traffic
//! with [`Tune::next`] and hands what came out to [`Tune::measured`].
//! Guarantees: `t42_tuning_ends_with_a_feasible_set`.

use super::Threshold;
use weir_core::units::Fraction;

/// What a set of thresholds must keep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Constraints {
    /// Most of the time (or traffic) overlimit.
    pub overlimit: Fraction,
    /// Most requests per minute, in hundredths.
    pub requests_per_minute_x100: u64,
}

/// What came out with a set of thresholds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Measured {
    /// Share of traffic overlimit.
    pub overlimit: Fraction,
    /// Requests per minute, in hundredths.
    pub requests_per_minute_x100: u64,
}

/// A hundredth.
const STEP: u64 = (1 << 32) / 100;

/// The search.
#[derive(Clone, Debug)]
pub struct Tune {
    constraints: Constraints,
    trial: Threshold,
    feasible: Option<Threshold>,
    /// Trades of l_max in a row that did not make the trial feasible.
    trades: u32,
    done: bool,
}

impl Tune {
    /// A search that begins with `start`.
    pub fn new(start: Threshold, constraints: Constraints) -> Self {
        Tune { constraints, trial: start, feasible: None, trades: 0, done: false }
    }
    /// The next set to measure; none when the search is over.
    pub fn next(&self) -> Option<Threshold> {
        (!self.done).then_some(self.trial)
    }
    /// The best feasible set so far: at the end, the result.
    pub fn best(&self) -> Option<Threshold> {
        self.feasible
    }
    /// What came out with [`Tune::next`].
    pub fn measured(&mut self, result: Measured) {
        let overlimit = result.overlimit > self.constraints.overlimit;
        let chatty = result.requests_per_minute_x100 > self.constraints.requests_per_minute_x100;
        let (high, low) = (self.trial.high.raw(), self.trial.low.raw());
        match (overlimit, chatty) {
            (false, false) => {
                self.feasible = Some(self.trial);
                self.trades = 0;
                self.to(high, low + STEP);
            }
            // Both at once: no trade helps both.
            (true, true) => self.done = true,
            (true, false) => self.trade(high.saturating_sub(STEP), low),
            (false, true) => self.trade(high + STEP, low),
        }
    }
    fn trade(&mut self, high: u64, low: u64) {
        self.trades += 1;
        if self.trades > 100 { self.done = true } else { self.to(high, low) }
    }
    /// The next trial, unless it could oscillate or there is no room.
    fn to(&mut self, high: u64, low: u64) {
        let fraction = |raw: u64| Fraction::ratio(raw, 1 << 32);
        let trial = Threshold { high: fraction(high), low: fraction(low), ..self.trial };
        let tried_twice = Some(trial) == self.feasible;
        if high > 1 << 32 || tried_twice || !crate::check::is_stable(&trial) {
            self.done = true;
        } else {
            self.trial = trial;
        }
    }
}
