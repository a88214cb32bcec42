//! A class: what it was promised, and what it has.

use super::loss::Account;
use super::rates::ONE;
use super::weights::Membership;
use crate::queue::{Child, Link, ParamError, Params};
use crate::units::{Fixed, Fraction};
use alloc::string::String;

/// What the configuration promises to a class.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Terms {
    /// Delay bound.
    pub delay_ns: Option<u64>,
    /// Loss bound.
    pub loss: Option<Fraction>,
    /// Least rate, as a share of the link; 0 for none.
    pub floor: u64,
    /// Delay of the next class by this one's.
    pub delay_factor: Option<Fixed>,
    /// Loss of the next class by this one's.
    pub loss_factor: Option<Fixed>,
}

impl Terms {
    /// These terms with what `params` change.
    ///
    /// # Errors
    /// A value that promises nothing sensible.
    pub fn with(mut self, class: &str, params: &Params, link: &Link) -> Result<Terms, ParamError> {
        if let Some(delay) = params.time("adc") {
            if delay.is_zero() {
                return Err(ParamError::new(class, "adc", "0", "a time above 0, or -1 for no delay bound"));
            }
            self.delay_ns = Some(delay.as_nanos());
        }
        if let Some(loss) = params.fraction("alc") {
            self.loss = Some(loss);
        }
        if let Some(rate) = params.rate("arc") {
            let share = u128::from(rate.as_bps()) * u128::from(ONE);
            let share = share.checked_div(u128::from(link.rate.as_bps())).unwrap_or(0);
            self.floor = share.min(u128::from(ONE)) as u64;
        }
        for (name, factor) in [("rdc", &mut self.delay_factor), ("rlc", &mut self.loss_factor)] {
            if let Some(value) = params.real(name) {
                if value <= Fixed::from_raw(0) {
                    return Err(ParamError::new(class, name, value, "a number above 0, or -1 for no ratio"));
                }
                *factor = Some(value);
            }
        }
        Ok(self)
    }
}

/// What changes with every packet: a line of memory.
#[derive(Clone, Copy, Default, Debug)]
#[repr(align(64))]
pub(super) struct JobsState {
    pub packets: u64,
    pub bytes: u64,
    /// The bytes with what the wire adds to each packet.
    pub wire_bytes: u64,
    /// When its oldest packet came.
    pub oldest_ns: u64,
    /// Delay of the last packet that it sent.
    pub delay_ns: u64,
    /// Loss of the present accounting period.
    pub account: Account,
}

/// Counters that nothing resets, for statistics.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Totals {
    pub arrived_bytes: u64,
    pub dropped_bytes: u64,
    /// Counted one by one: no machine comes to 2^64.
    pub sent_packets: u64,
    /// Sum of the delays of what was sent; saturates after 584 years.
    pub delay_ns: u64,
    /// Packets sent later than the delay bound allows.
    pub late: u64,
}

/// A class; its index is the rank of its priority.
pub(super) struct JobsClass {
    pub name: String,
    pub priority: u64,
    pub terms: Terms,
    pub in_delay_chain: Membership,
    pub in_loss_chain: Membership,
    pub totals: Totals,
    pub queue: Child,
}

impl JobsClass {
    /// The classes that make room together with this one, which has the bit `index`: its chain,
    /// or itself if it is promised nothing about loss; `None` if it has nothing but a bound.
    pub fn loss_group(&self, index: usize) -> Option<u16> {
        match (self.in_loss_chain.members, self.terms.loss) {
            (0, Some(_)) => None,
            (0, None) => Some(1 << index),
            (chain, _) => Some(chain),
        }
    }
}
