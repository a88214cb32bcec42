//! The discipline of an interface for conditioners: its own queue is plain. Its manual page is that
//! of the conditioners.

use super::fifo::Fifo;
use super::registry::Entry;
use crate::aqm::params::USUAL_QLIMIT;
use crate::queue::Leaf;
use alloc::boxed::Box;

pub(super) const ENTRY: Entry = Entry {
    name: "cdnr",
    source: include_str!("../meter/conditioner.rs"),
    build: Some(|_, _| Ok(Box::new(Fifo::fixed(Leaf::tail_drop(USUAL_QLIMIT))))),
    ..Entry::PLAIN
};
