//! What was set while an edge ran, so that it outlasts a change of the configuration.
//!
//! Principle: a value that was set holds until the file says another value of the same option than before. If
//! it cannot work with what the file says of the rest, the file holds.

use super::{HANDLERS, Handler, cannot, changed, shown, words};
use crate::edge::{Edge, Terms};
use alloc::vec::Vec;
use weir_core::queue::Value;
use weir_core::units::Instant;

/// An option of a class that was set.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Which.
    pub handler: &'static Handler,
    /// What the file said.
    pub filed: Option<Value>,
    /// What it is.
    pub set: Option<Value>,
}

/// What of these parameters was set, where the file says others.
pub(crate) fn settings(filed: &Terms, set: &Terms) -> Vec<Setting> {
    let (filed, set) = (words(&filed.0, &filed.1), words(&set.0, &set.1));
    let options = HANDLERS.iter().filter(|handler| handler.is_option());
    let all =
        options.map(|handler| Setting { handler, filed: shown(handler, &filed), set: shown(handler, &set) });
    all.filter(|setting| setting.filed != setting.set).collect()
}

/// What a file says, with what was set.
pub(crate) fn carried(filed: &Terms, settings: &[Setting]) -> Terms {
    let said = words(&filed.0, &filed.1);
    let holds = settings.iter().filter(|setting| shown(setting.handler, &said) == setting.filed);
    let set = holds.fold(said.clone(), |words, setting| changed(setting.handler, words, setting.set.clone()));
    let terms = (crate::params::allocation(&set), crate::params::admission(&set));
    if cannot(&terms).is_some() { *filed } else { terms }
}

impl Edge {
    /// What was set of the class with that leaf.
    pub fn settings(&self, leaf: u32) -> Vec<Setting> {
        self.terms_of(leaf).map(|(filed, set)| settings(&filed, &set)).unwrap_or_default()
    }
    /// Sets of the class with that leaf what was set in an edge before, as far as its file says the same.
    pub fn carry(&mut self, now: Instant, leaf: u32, settings: &[Setting]) {
        let Some((filed, _)) = self.terms_of(leaf) else { return };
        let (plan, admission) = carried(&filed, settings);
        self.set_terms(now, leaf, plan, admission);
    }
}
