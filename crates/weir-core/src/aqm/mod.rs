//! Active queue management: which packet of a leaf is dropped or marked. One file each.
//!
//! An [`Aqm`] sees a leaf's queue and answers with a [`Decision`]; the leaf carries it out. An
//! [`AqmEntry`] is what its file hands to the registry. There are RED, RIO, BLUE, CoDel and PIE;
//! the [registry](crate::sched) has the manual and the parameters of each.
//!
//! **To add an AQM: one file here, and one line in `aqms!`.** From another crate:
//! `Registry::builtin()`, then `register_aqm`.

/// Declares the files, and makes the list of what each hands over as its `ENTRY`.
macro_rules! aqms {
    ($($file:ident),* $(,)?) => {
        $(pub(crate) mod $file;)*
        /// Every AQM that Weir brings.
        pub(crate) const BUILTIN: &[AqmEntry] = &[$($file::ENTRY),*];
    };
}
aqms! {
    red,
    rio,
    blue,
    codel,
    pie,
}

pub mod average;
mod contract;
mod entry;
mod flow_valve;
pub mod params;
mod tail_drop;

pub use contract::{Aqm, Decision, Departures};
pub use entry::{AqmEntry, Built, QueueConfig};
pub use params::{QLIMIT_50, QUEUE_PARAMS, TAIL_PARAMS};
pub use tail_drop::TailDrop;
