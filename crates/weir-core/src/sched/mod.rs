//! Schedulers: who goes next, and when. One file or folder each.
//!
//! **To add a discipline: one file here, and one line in `disciplines!`.** From another crate:
//! `Registry::builtin()`, then `register`.

/// Declares the files, and makes the list of what each hands over as its `ENTRY`.
macro_rules! disciplines {
    ($($of:vis $file:ident),* $(,)?) => {
        $($of mod $file;)*
        /// Every discipline that Weir brings; the AQMs that can be one come behind.
        const BUILTIN: &[Entry] = &[$($file::ENTRY),*];
    };
}
disciplines! {
    fifo,
    cbq,
    pub hfsc,
    priq,
    pub jobs,
    wfq,
    drr,
    fq_codel,
    qfq,
    dualpi2,
    cdnr,
}

mod flows;
mod hooks;
mod keyed_hash;
mod longest;
mod registry;
pub mod testing;
mod tournament;

use crate::aqm::AqmEntry;
pub use crate::queue::Alias;
pub use cbq::Cbq;
pub use fifo::Fifo;
pub(crate) use hooks::given;
pub use hooks::{BroughtFilter, Check, Finding, Guarantee, Guarantees, Lower, Setting};
pub use registry::{
    Build, Builder, ClassConfig, Classes, Entry, LeafInfo, MAX_FLOW_QUEUES, Node, Outline, Registry, Tree,
};

/// The example files of the book go into this folder as they are.
#[cfg(test)]
mod examples;

impl Registry {
    /// Weir's own.
    pub fn builtin() -> Self {
        let mut registry = Registry::new();
        BUILTIN.iter().for_each(|entry| registry.register(*entry));
        crate::aqm::BUILTIN.iter().for_each(|entry| registry.register_aqm(*entry));
        registry
    }
    /// Adds an AQM, or replaces the one of the same name. Where it can be a discipline by itself,
    /// it becomes one too.
    pub fn register_aqm(&mut self, aqm: AqmEntry) {
        if aqm.is_discipline {
            let AqmEntry { name, aliases, source, params, check, .. } = aqm;
            self.register(Entry { name, aliases, source, params, check, ..fifo::ENTRY });
        }
        self.add_aqm(aqm);
    }
}
