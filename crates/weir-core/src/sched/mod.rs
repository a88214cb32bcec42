//! Schedulers: who goes next, and when. One file or folder each; `registry` lists them all.

mod cbq;
mod drr;
mod dualpi2;
mod fifo;
mod flows;
mod fq_codel;
pub mod hfsc;
pub mod jobs;
mod longest;
mod priq;
mod qfq;
mod registry;
#[cfg(test)]
pub(crate) mod testing;
mod tournament;
mod wfq;

pub use cbq::Cbq;
pub use fifo::Fifo;
pub use registry::{Alias, Build, Builder, Class, Classes, Entry, LeafInfo, Node, Registry, Tree};
