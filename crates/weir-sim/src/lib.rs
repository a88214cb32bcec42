//! Virtual time: event queue, links, hosts, TCP, traffic sources, recorder.

pub mod event;
pub mod rng;
pub mod tcp;
