//! Schedulers: which class sends next, and when. One file or folder each.
//!
//! A [`Node`] names its discipline by a word of the [`Registry`]:
//!
//! | word | discipline |
//! |---|---|
//! | `fifoq` | FIFO: one queue |
//! | `cbq` | CBQ: shares in a tree of classes that lend to each other |
//! | `hfsc` | HFSC: rate and delay apart from each other, by service curves |
//! | `priq` | PRIQ: strict priority |
//! | `jobs` | JoBS: bounds and ratios of delay, loss and rate |
//! | `wfq`, `drr`, `qfq` | hashed flows in turn, by weights, by deficits, and close to the fluid server |
//! | `fqcodel` | FQ-CoDel: hashed flows, a CoDel for each |
//! | `dualpi2` | DualPI2: a classic queue and one of low latency, coupled |
//! | `red`, `rio`, `blue`, `codel`, `pie` | one queue with that [AQM](crate::aqm) |
//! | `cdnr` | conditioners alone ([`crate::meter`]): no queue |
//!
//! The manual of each, and its parameters with range and default:
//!
//! ```
//! use weir_core::sched::Registry;
//!
//! let registry = Registry::builtin();
//! let codel = registry.find("codel").expect("it is built in");
//! println!("{}", codel.manual());
//! for p in registry.params(codel) {
//!     println!("{}: {}, default {}. {}", p.name, p.form(), p.default, p.help);
//! }
//! # assert!(codel.manual().starts_with("CoDel: drops by how long"));
//! # assert!(registry.params(codel).any(|p| p.name == "target"));
//! ```
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
mod footprint;
mod hooks;
mod keyed_hash;
mod longest;
mod node;
mod registry;
pub mod testing;
mod tournament;

use crate::aqm::AqmEntry;
pub use crate::queue::Alias;
pub use cbq::Cbq;
pub use fifo::Fifo;
pub use footprint::{Footprint, Outline};
pub(crate) use hooks::given;
pub use hooks::{BroughtFilter, Check, Finding, Guarantee, Guarantees, Lower, Setting};
pub use node::{ClassConfig, Node};
pub use registry::{Build, Builder, Classes, Entry, LeafInfo, MAX_FLOW_QUEUES, Registry, Tree};

/// The example files of the book go into this folder as they are.
#[cfg(test)]
mod examples;

#[test]
fn the_table_above_names_every_discipline() {
    let table: std::string::String =
        include_str!("mod.rs").lines().filter(|line| line.starts_with("//! | `")).collect();
    for entry in Registry::builtin().iter() {
        assert!(table.contains(&std::format!("`{}`", entry.name)), "{}", entry.name);
    }
}

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
