//! Active queue management: which packet of a leaf dies or is marked. One file each.
//!
//! An AQM sees a leaf's queue and answers with a `Decision`; the leaf carries it out.

mod red;
mod tail_drop;

use crate::packet::{List, PacketId};
use crate::queue::{Cx, DropReason, Kind, Leaf, Link, ParamError, ParamSpec, Params};
use crate::units::Rate;
use alloc::boxed::Box;

pub use red::Red;
pub use tail_drop::TailDrop;

/// What an AQM wants done with the packet that it was shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// Let it pass.
    Accept,
    /// Mark it (CE), or drop it for this reason if it is not ECN-capable.
    Mark(DropReason),
    /// Drop it.
    Drop(DropReason),
    /// Only at arrival: accept it, then drop the packet at this position of the queue with the
    /// new one at its end (so a position equal to the queue's old length is the new packet).
    PushOut(u32, DropReason),
}

/// An AQM: a state machine over arrivals and departures of one queue.
pub trait Aqm: Send {
    /// A packet comes; `queue` is without it. Must answer `Accept` while `cx.adopting()`.
    fn arrive(&mut self, cx: &mut Cx, queue: &List, limit: u32, id: &PacketId) -> Decision;
    /// A packet has just been taken from the front of `queue`. The answer counts only for an AQM
    /// that decides at departure; `PushOut` counts as `Accept` here.
    fn depart(&mut self, _cx: &mut Cx, _queue: &List, _id: &PacketId) -> Decision {
        Decision::Accept
    }
    /// True if `depart` may drop: then a parent pulls the packet to learn what goes next.
    fn decides_at_departure(&self) -> bool {
        false
    }
    /// Changes parameters, whole or not at all.
    ///
    /// # Errors
    /// `ParamError` for a value out of range.
    fn reconfigure(&mut self, _class: &str, _params: &Params, _link: &Link) -> Result<(), ParamError> {
        Ok(())
    }
    /// Shows its state.
    fn visit_stats(&self, _visit: &mut dyn crate::queue::Visit) {}
}

/// The AQM of a leaf. The built-in ones are an enum, so that a leaf costs no indirect call; all
/// but the smallest stand behind a pointer, so that a plain leaf stays small.
pub(crate) enum AnyAqm {
    Tail(TailDrop),
    Red(Box<Red>),
    Custom(Box<dyn Aqm>),
}

impl AnyAqm {
    pub(crate) fn arrive(&mut self, cx: &mut Cx, queue: &List, limit: u32, id: &PacketId) -> Decision {
        match self {
            AnyAqm::Tail(aqm) => aqm.arrive(cx, queue, limit, id),
            AnyAqm::Red(aqm) => aqm.arrive(cx, queue, limit, id),
            AnyAqm::Custom(aqm) => aqm.arrive(cx, queue, limit, id),
        }
    }
    pub(crate) fn depart(&mut self, cx: &mut Cx, queue: &List, id: &PacketId) -> Decision {
        match self {
            AnyAqm::Tail(_) => Decision::Accept,
            AnyAqm::Red(aqm) => aqm.depart(cx, queue, id),
            AnyAqm::Custom(aqm) => aqm.depart(cx, queue, id),
        }
    }
    pub(crate) fn decides_at_departure(&self) -> bool {
        match self {
            AnyAqm::Tail(_) | AnyAqm::Red(_) => false,
            AnyAqm::Custom(aqm) => aqm.decides_at_departure(),
        }
    }
    pub(crate) fn get_mut(&mut self) -> &mut dyn Aqm {
        match self {
            AnyAqm::Tail(aqm) => aqm,
            AnyAqm::Red(aqm) => aqm.as_mut(),
            AnyAqm::Custom(aqm) => aqm.as_mut(),
        }
    }
    pub(crate) fn get(&self) -> &dyn Aqm {
        match self {
            AnyAqm::Tail(aqm) => aqm,
            AnyAqm::Red(aqm) => aqm.as_ref(),
            AnyAqm::Custom(aqm) => aqm.as_ref(),
        }
    }
}

/// `qlimit` for classes whose queue holds 50 packets by default.
pub const QLIMIT_50: &[ParamSpec] =
    &[ParamSpec::class("qlimit", Kind::Count { min: 1, max: 1_000_000 }, "50", "Queue length, packets.")];

/// What a class of any scheduler may say about its queue.
pub const CLASS_PARAMS: &[ParamSpec] = &[
    ParamSpec::class("drop-head", Kind::Flag, "", "When the queue is full the oldest packet dies."),
    ParamSpec::class("red", Kind::Flag, "", "RED: thresholds at 10 % and 30 % of the queue's length."),
    ParamSpec::class("rio", Kind::Flag, "", "RIO: RED by three drop precedences."),
    ParamSpec::class("ecn", Kind::Flag, "", "RED that marks ECN-capable packets instead of dropping them."),
    ParamSpec::class("flowvalve", Kind::Flag, "", "RED with a penalty box for unresponsive flows."),
    ParamSpec::class("cleardscp", Kind::Flag, "", "Set the DSCP of departing packets to 0."),
];

/// RED's parameters as an interface's discipline.
pub const RED_PARAMS: &[ParamSpec] = &[
    ParamSpec::discipline("qlimit", Kind::Count { min: 1, max: 1_000_000 }, "60", "Queue length, packets."),
    ParamSpec::discipline(
        "packetsize",
        Kind::Bytes { min: 1, max: 65_535 },
        "1000",
        "Average packet size, bytes: the idle correction counts in its transmission times.",
    ),
    ParamSpec::discipline(
        "weight",
        Kind::Count { min: 0, max: 65_536 },
        "0",
        "Inverse of the weight of a new sample, a power of two; 0 chooses 512, 128 or 64 by the rate.",
    ),
    ParamSpec::discipline("thmin", Kind::Count { min: 0, max: 1_000_000 }, "5", "Lower threshold, packets."),
    ParamSpec::discipline("thmax", Kind::Count { min: 0, max: 1_000_000 }, "15", "Upper threshold, packets."),
    ParamSpec::discipline(
        "invpmax",
        Kind::Count { min: 1, max: 1_000_000 },
        "10",
        "Inverse of the drop probability just below thmax.",
    ),
    ParamSpec::discipline(
        "pmax",
        Kind::Fraction,
        "0.1",
        "The same probability itself, in place of invpmax: 0 to 1.",
    ),
    ParamSpec::discipline("ecn", Kind::Flag, "", "Mark ECN-capable packets instead of dropping them early."),
    ParamSpec::discipline(
        "gentle",
        Kind::Flag,
        "",
        "Between thmax and twice thmax drop with rising probability.",
    ),
    ParamSpec::discipline("flowvalve", Kind::Flag, "", "A penalty box for unresponsive flows."),
];

/// Which AQM a queue has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Of {
    Tail,
    Red,
}

impl Of {
    /// What the flags of a class ask for.
    ///
    /// # Errors
    /// `ParamError` for flags that contradict each other.
    fn class(class: &str, params: &Params) -> Result<Of, ParamError> {
        for word in ["rio", "flowvalve"] {
            if params.has(word) {
                return Err(ParamError::new(class, word, word, "an AQM that is built in"));
            }
        }
        // `ecn` alone means RED that marks, as it always did.
        let of = if params.has("red") || params.has("ecn") { Of::Red } else { Of::Tail };
        if of != Of::Tail && params.has("drop-head") {
            let expected = "either an AQM or drop-head, not both";
            return Err(ParamError::new(class, "drop-head", "drop-head", expected));
        }
        Ok(of)
    }
    /// A queue with this AQM as an interface's discipline.
    ///
    /// # Errors
    /// `ParamError` for parameters that contradict each other or are out of range.
    pub(crate) fn discipline(self, params: &Params, link: &Link) -> Result<Leaf, ParamError> {
        let limit = match self {
            Of::Tail => 50,
            Of::Red => 60,
        };
        self.leaf("", params, link.rate, limit, link, false)
    }
    fn leaf(
        self,
        class: &str,
        params: &Params,
        rate: Rate,
        limit: u32,
        link: &Link,
        in_class: bool,
    ) -> Result<Leaf, ParamError> {
        let mut limit = params.count("qlimit").map_or(limit, |n| n as u32);
        let aqm = match self {
            Of::Tail => AnyAqm::Tail(TailDrop { head: params.has("drop-head") }),
            Of::Red => {
                let red = Red::new(class, params, rate, limit, link, in_class)?;
                // As in ALTQ: a queue holds at least what its thresholds speak of.
                limit = limit.max(red.thmax() as u32);
                AnyAqm::Red(Box::new(red))
            }
        };
        Ok(Leaf::new(limit, aqm).clearing_dscp(params.has("cleardscp")))
    }
}

/// The queue of a class: tail drop unless its parameters name an AQM. `rate` is what the class
/// may expect, `limit` the queue length where `qlimit` says nothing (RED then has 60).
///
/// # Errors
/// `ParamError` for parameters that contradict each other or are out of range.
pub(crate) fn leaf(
    class: &str,
    params: &Params,
    rate: Rate,
    limit: u32,
    link: &Link,
) -> Result<Leaf, ParamError> {
    let of = Of::class(class, params)?;
    let limit = if of == Of::Tail || params.has("maxdelay") { limit } else { 60 };
    of.leaf(class, params, rate, limit, link, true)
}
