//! Active queue management: which packet of a leaf dies or is marked. One file each.
//!
//! An AQM sees a leaf's queue and answers with a `Decision`; the leaf carries it out.

mod blue;
pub(crate) mod codel;
mod flow_valve;
mod params;
mod pie;
mod red;
mod rio;
mod tail_drop;

use crate::packet::{List, PacketId};
use crate::queue::{Cx, DropReason, Leaf, Link, ParamError, ParamSpec, Params};
use crate::units::Rate;
use alloc::boxed::Box;

pub use blue::Blue;
pub use codel::Codel;
pub use params::{
    BLUE_PARAMS, CLASS_PARAMS, CODEL_PARAMS, PIE_PARAMS, QLIMIT_50, RED_PARAMS, RIO_PARAMS, TAIL_PARAMS,
    is_tuning,
};
pub(crate) use params::{is_about_queue, queue_param};
pub use pie::Pie;
pub use red::Red;
pub use rio::Rio;
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
    /// What `reconfigure` takes (`Scope::Discipline`); the queue refuses everything else.
    fn params(&self) -> &'static [ParamSpec] {
        &[]
    }
    /// Changes parameters, whole or not at all: of those that `params` declares, each of its kind
    /// and in its range.
    ///
    /// # Errors
    /// `ParamError` for values that do not go together.
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
    Rio(Box<Rio>),
    Blue(Box<Blue>),
    Codel(Box<Codel>),
    Pie(Box<Pie>),
    Custom(Box<dyn Aqm>),
}

impl AnyAqm {
    /// Most queues drop from the tail or have RED: those are inlined, the others cost a call.
    #[inline(always)]
    pub(crate) fn arrive(&mut self, cx: &mut Cx, queue: &List, limit: u32, id: &PacketId) -> Decision {
        match self {
            AnyAqm::Tail(aqm) => aqm.arrive(cx, queue, limit, id),
            AnyAqm::Red(aqm) => aqm.arrive(cx, queue, limit, id),
            aqm => aqm.managed_arrive(cx, queue, limit, id),
        }
    }
    #[inline(always)]
    pub(crate) fn depart(&mut self, cx: &mut Cx, queue: &List, id: &PacketId) -> Decision {
        match self {
            AnyAqm::Tail(_) => Decision::Accept,
            AnyAqm::Red(aqm) => aqm.depart(cx, queue, id),
            aqm => aqm.managed_depart(cx, queue, id),
        }
    }
    fn managed_arrive(&mut self, cx: &mut Cx, queue: &List, limit: u32, id: &PacketId) -> Decision {
        match self {
            AnyAqm::Tail(aqm) => aqm.arrive(cx, queue, limit, id),
            AnyAqm::Red(aqm) => aqm.arrive(cx, queue, limit, id),
            AnyAqm::Rio(aqm) => aqm.arrive(cx, queue, limit, id),
            AnyAqm::Blue(aqm) => aqm.arrive(cx, queue, limit, id),
            AnyAqm::Codel(aqm) => aqm.arrive(cx, queue, limit, id),
            AnyAqm::Pie(aqm) => aqm.arrive(cx, queue, limit, id),
            AnyAqm::Custom(aqm) => aqm.arrive(cx, queue, limit, id),
        }
    }
    fn managed_depart(&mut self, cx: &mut Cx, queue: &List, id: &PacketId) -> Decision {
        match self {
            AnyAqm::Tail(_) => Decision::Accept,
            AnyAqm::Red(aqm) => aqm.depart(cx, queue, id),
            AnyAqm::Rio(aqm) => aqm.depart(cx, queue, id),
            AnyAqm::Blue(aqm) => aqm.depart(cx, queue, id),
            AnyAqm::Codel(aqm) => aqm.depart(cx, queue, id),
            AnyAqm::Pie(aqm) => aqm.depart(cx, queue, id),
            AnyAqm::Custom(aqm) => aqm.depart(cx, queue, id),
        }
    }
    /// True if `depart` would do nothing for the first of `packets`: some only mind the last.
    #[inline]
    pub(crate) fn ignores_departure(&self, packets: u32) -> bool {
        match self {
            AnyAqm::Tail(_) => true,
            AnyAqm::Red(_) | AnyAqm::Blue(_) => packets > 1,
            AnyAqm::Rio(_) | AnyAqm::Codel(_) | AnyAqm::Pie(_) | AnyAqm::Custom(_) => false,
        }
    }
    pub(crate) fn decides_at_departure(&self) -> bool {
        match self {
            AnyAqm::Codel(_) => true,
            AnyAqm::Custom(aqm) => aqm.decides_at_departure(),
            AnyAqm::Tail(_) | AnyAqm::Red(_) | AnyAqm::Rio(_) | AnyAqm::Blue(_) | AnyAqm::Pie(_) => false,
        }
    }
    pub(crate) fn get_mut(&mut self) -> &mut dyn Aqm {
        match self {
            AnyAqm::Tail(aqm) => aqm,
            AnyAqm::Red(aqm) => aqm.as_mut(),
            AnyAqm::Rio(aqm) => aqm.as_mut(),
            AnyAqm::Blue(aqm) => aqm.as_mut(),
            AnyAqm::Codel(aqm) => aqm.as_mut(),
            AnyAqm::Pie(aqm) => aqm.as_mut(),
            AnyAqm::Custom(aqm) => aqm.as_mut(),
        }
    }
    /// Its name as a discipline; tail drop and somebody's own have none.
    pub(crate) fn name(&self) -> Option<&'static str> {
        match self {
            AnyAqm::Tail(_) | AnyAqm::Custom(_) => None,
            AnyAqm::Red(_) => Of::Red.name(),
            AnyAqm::Rio(_) => Of::Rio.name(),
            AnyAqm::Blue(_) => Of::Blue.name(),
            AnyAqm::Codel(_) => Of::Codel.name(),
            AnyAqm::Pie(_) => Of::Pie.name(),
        }
    }
    /// The declaration of a parameter that can be changed at run time.
    pub(crate) fn param(&self, name: &str) -> Option<&'static ParamSpec> {
        let own: &'static [ParamSpec] = match self {
            AnyAqm::Tail(_) => TAIL_PARAMS,
            AnyAqm::Red(_) => RED_PARAMS,
            AnyAqm::Rio(_) => RIO_PARAMS,
            AnyAqm::Blue(_) => BLUE_PARAMS,
            AnyAqm::Codel(_) => CODEL_PARAMS,
            AnyAqm::Pie(_) => PIE_PARAMS,
            AnyAqm::Custom(aqm) => aqm.params(),
        };
        own.iter().find(|p| p.name == name)
    }
    pub(crate) fn get(&self) -> &dyn Aqm {
        match self {
            AnyAqm::Tail(aqm) => aqm,
            AnyAqm::Red(aqm) => aqm.as_ref(),
            AnyAqm::Rio(aqm) => aqm.as_ref(),
            AnyAqm::Blue(aqm) => aqm.as_ref(),
            AnyAqm::Codel(aqm) => aqm.as_ref(),
            AnyAqm::Pie(aqm) => aqm.as_ref(),
            AnyAqm::Custom(aqm) => aqm.as_ref(),
        }
    }
}

/// Which AQM a queue has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Of {
    Tail,
    Red,
    Rio,
    Blue,
    Codel,
    Pie,
}

impl Of {
    /// What the flags of a class ask for.
    ///
    /// # Errors
    /// `ParamError` for flags that contradict each other.
    fn class(class: &str, params: &Params) -> Result<Of, ParamError> {
        let flags = [
            ("rio", Of::Rio),
            ("codel", Of::Codel),
            ("pie", Of::Pie),
            ("red", Of::Red),
            ("drop-head", Of::Tail),
        ];
        let mut asked = flags.into_iter().filter(|(word, _)| params.has(word));
        let first = asked.next();
        if let (Some((one, _)), Some((other, _))) = (first, asked.next()) {
            let expected = alloc::format!("either {one} or {other}, not both");
            return Err(ParamError::new(class, other, other, expected));
        }
        // `ecn` and `flowvalve` alone mean RED, as they always did.
        let red = ["flowvalve", "ecn"].into_iter().find(|word| params.has(word));
        match (first, red) {
            (Some((_, Of::Tail)), Some(word)) => {
                let expected = alloc::format!("either drop-head or {word}, which means RED, not both");
                Err(ParamError::new(class, "drop-head", "drop-head", expected))
            }
            (Some((name, Of::Rio | Of::Codel | Of::Pie)), Some("flowvalve")) => {
                let expected = alloc::format!("red with it: {name} has no penalty box");
                Err(ParamError::new(class, "flowvalve", "flowvalve", expected))
            }
            (Some((_, of)), _) => Ok(of),
            (None, Some(_)) => Ok(Of::Red),
            (None, None) => Ok(Of::Tail),
        }
    }
    /// Its name as a discipline; tail drop has none.
    fn name(self) -> Option<&'static str> {
        match self {
            Of::Tail => None,
            Of::Red => Some("red"),
            Of::Rio => Some("rio"),
            Of::Blue => Some("blue"),
            Of::Codel => Some("codel"),
            Of::Pie => Some("pie"),
        }
    }
    /// A queue with this AQM as an interface's discipline.
    ///
    /// # Errors
    /// `ParamError` for parameters that contradict each other or are out of range.
    pub(crate) fn discipline(self, params: &Params, link: &Link) -> Result<Leaf, ParamError> {
        self.leaf("", params, link.rate, self.usual_limit().unwrap_or(50), link, false)
    }
    /// Length of the queue where `qlimit` says nothing; CoDel and PIE want room, for it is not the
    /// length that they look at. `None` for tail drop: as its parent says.
    fn usual_limit(self) -> Option<u32> {
        match self {
            Of::Tail => None,
            Of::Red | Of::Rio | Of::Blue => Some(60),
            Of::Codel | Of::Pie => Some(1000),
        }
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
        let mut limit = queue_limit(class, params)?.unwrap_or(limit);
        let aqm = match self {
            Of::Tail => AnyAqm::Tail(TailDrop { head: params.has("drop-head") }),
            Of::Red => {
                let red = Red::new(class, params, rate, limit, link, in_class)?;
                // As in ALTQ: a queue holds at least what its thresholds speak of.
                limit = limit.max(red.thmax() as u32);
                AnyAqm::Red(Box::new(red))
            }
            Of::Rio => {
                let rio = Rio::new(class, params, rate, link, in_class)?;
                limit = limit.max(rio.thmax() as u32);
                AnyAqm::Rio(Box::new(rio))
            }
            Of::Blue => AnyAqm::Blue(Box::new(Blue::new(class, params)?)),
            Of::Codel => AnyAqm::Codel(Box::new(Codel::new(class, params, link)?)),
            Of::Pie => AnyAqm::Pie(Box::new(Pie::new(class, params, link)?)),
        };
        Ok(Leaf::new(limit, aqm).clearing_dscp(params.has("cleardscp")))
    }
}

/// `qlimit`, where it is given.
///
/// # Errors
/// `ParamError` for a length out of range.
pub(crate) fn queue_limit(class: &str, params: &Params) -> Result<Option<u32>, ParamError> {
    match params.count("qlimit") {
        Some(limit @ 1..=1_000_000) => Ok(Some(limit as u32)),
        Some(limit) => Err(ParamError::new(class, "qlimit", limit, "1 to 1000000 packets")),
        None => Ok(None),
    }
}

/// The AQM that a class's parameters ask for, by its name in the registry; `None` is tail drop.
///
/// # Errors
/// `ParamError` for flags that contradict each other.
pub fn of_class(class: &str, params: &Params) -> Result<Option<&'static str>, ParamError> {
    Of::class(class, params).map(Of::name)
}

/// The queue of a class: tail drop unless its parameters name an AQM. `rate` is what the class
/// may expect, `limit` the queue length where `qlimit` says nothing (RED
/// and RIO then have 60, CoDel and PIE 1000).
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
    let limit = if params.has("maxdelay") { limit } else { of.usual_limit().unwrap_or(limit) };
    of.leaf(class, params, rate, limit, link, true)
}
