//! Queueing disciplines, and the port that runs them: which packet of a link leaves next, when it
//! leaves, and which is dropped or marked.
//!
//! The crate does no I/O, reads no clock, starts no thread and depends on nothing. Its *host* says
//! what time it is and owns the bytes. The same code therefore runs in a simulator, on a live link
//! and inside any other program, and a recorded sequence of calls repeats bit for bit.
//!
//! # One port, from configuration to statistics
//!
//! A [`port::Port`] is the egress of one interface. This one shares a link of 1 Mbit/s between two
//! classes; voice goes first.
//!
//! ```
//! use weir_core::classify::{Classifier, Field, Filter};
//! use weir_core::packet::{Family, FrameRef, Key};
//! use weir_core::port::{Event, EventKind, Port, PortConfig, PortPlan, Refill, WireConfig};
//! use weir_core::queue::{Link, Params, Value};
//! use weir_core::sched::{ClassConfig, Node, Registry};
//! use weir_core::units::{Instant, Rate};
//!
//! // Configuration: a tree of disciplines by their names in the registry, ...
//! let class = |name: &str, params| {
//!     ClassConfig { name: name.into(), params, ..ClassConfig::default() }
//! };
//! let priority = |level| Params::new().with("priority", Value::Count(level));
//! let node = Node {
//!     discipline: "priq".into(),
//!     classes: vec![
//!         class("voice", priority(1)),
//!         class("other", priority(0).with("default", Value::Flag)),
//!     ],
//!     ..Node::default()
//! };
//! let link = Link::new(Rate::from_mbps(1), 24, 1_514);
//! let tree = Registry::builtin().build(&node, link)?;
//! // ... and filters that say which class (leaf 0 is voice) a packet belongs to.
//! let voice = tree.leaf("voice").expect("it was configured");
//! let to_voice = Filter::new(Family::V4, voice, 1).exactly(Field::DstPort, 5_060);
//! let plan = PortPlan::new(tree, Classifier::compile([to_voice]));
//!
//! // The port, over an emulated link whose device takes one packet at a time.
//! let wire = WireConfig::Link { ring: 1, refill: Refill::Packet };
//! let mut port = Port::new(PortConfig::new(link, wire), plan);
//!
//! // Packets in: three at once, the last one of voice. `FrameRef` is the host's name for a packet.
//! let mut left = Vec::new(); // which packet, and when its last bit left, in microseconds
//! let mut hear = |Event { at, meta, kind }: Event<'_>| match kind {
//!     EventKind::Taken => {}
//!     EventKind::Sent => left.push((meta.frame.0, at.as_nanos() / 1_000)),
//!     EventKind::Dropped(reason) => panic!("dropped: {}", reason.name()),
//! };
//! let (from, to) = ("10.0.0.1".parse()?, "10.0.0.2".parse()?);
//! for (number, dst_port) in [(0, 80), (1, 80), (2, 5_060)] {
//!     let key = Key::ipv4(from, to, 17).with_ports(4_000, dst_port);
//!     port.receive(Instant::ZERO, 1_226, FrameRef(number), &key, &mut hear);
//! }
//! // Packets out: the host comes back whenever the port has something to do.
//! while port.next_wake_up() != Instant::NEVER {
//!     port.advance(port.next_wake_up(), &mut hear);
//! }
//! // 1,250 bytes on the wire last 10 ms. The first packet was on its way when voice came.
//! assert_eq!(left, [(0, 10_000), (2, 20_000), (1, 30_000)]);
//!
//! // Statistics: each packet that came is inside, sent, or dropped for a reason.
//! let voice = port.account(voice).expect("a leaf");
//! assert_eq!((voice.offered_packets, voice.sent_packets, voice.dropped()), (1, 1, 0));
//! assert_eq!(port.total().sent_bytes, 3 * 1_226);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where to go
//!
//! | to | read |
//! |---|---|
//! | run disciplines in a program of one's own | [`port`]: what a host calls, and what it hears |
//! | write a discipline | [`queue::Discipline`]: its laws; then [`queue::Child`] and [`sched::Entry`] |
//! | write an AQM | [`aqm`] |
//! | choose classes by headers | [`classify`], and [`packet::dissect`](mod@packet::dissect) for frames |
//! | meter, mark and police | [`meter`] |
//! | run one port on several cores | [`spread`] |
//! | know times, rates and their rounding | [`units`] |
//!
//! A packet walks [`packet`] (its handle and header fields), [`meter`] (is it in profile),
//! [`classify`] (which class), a [`queue::Leaf`] with its [`aqm`] (is it dropped or marked),
//! [`sched`] (when does it go), and the wire of its [`port`].
//!
//! # What it promises
//!
//! No call allocates or takes a lock per packet: all memory for packets is taken when the port is
//! opened. A discipline that finds its own state broken says so, and the port goes on as a FIFO with
//! every packet.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
/// A discipline's file says `weir_core::` inside Weir as it does in a crate of its own.
extern crate self as weir_core;
#[cfg(test)]
extern crate std;

pub mod aqm;
pub mod classify;
pub mod meter;
pub mod packet;
pub mod port;
pub mod queue;
mod random;
pub mod sched;
pub mod spread;
pub mod units;

pub use random::Random;
