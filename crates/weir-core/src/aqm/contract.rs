//! What an AQM is. **Read this first.**

use crate::packet::{List, PacketId};
use crate::queue::{Cx, Driven, DropReason, Link, ParamError, ParamSpec, Params, Visit};

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
    /// Only at arrival: drop it, and the packet at this position of the queue too, 0 being the
    /// oldest. A packet that a parent was already shown stays (A06): then the arrival alone goes.
    DropBoth(u32, DropReason),
}

/// Which departures an AQM must hear of, and what it does there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Departures {
    /// None: `depart` is never called.
    None,
    /// Those that leave the queue empty. It may be told of others too.
    Last,
    /// Every one.
    Every,
    /// Every one, and `depart` may drop or mark: a parent pulls the packet to learn what goes
    /// next.
    Decides,
}

/// An AQM: a state machine over arrivals and departures of one queue.
pub trait Aqm: Driven + Send + core::any::Any {
    /// A packet comes; `queue` is without it. Must answer `Accept` while `cx.adopting()`.
    fn arrive(&mut self, cx: &mut Cx, queue: &List, limit: u32, id: &PacketId) -> Decision;
    /// True for an arrival that few are like: the queue compiles it apart, so that the others save fewer registers.
    fn is_rare(&self, _cx: &Cx, _queue: &List) -> bool {
        false
    }
    /// A packet has just been taken from the front of `queue`. `Drop` and `Mark` count only under
    /// `Departures::Decides`; `PushOut` and `DropBoth` count as `Accept` here.
    fn depart(&mut self, _cx: &mut Cx, _queue: &List, _id: &PacketId) -> Decision {
        Decision::Accept
    }
    /// Which departures `depart` must hear of. The answer never changes.
    fn departures(&self) -> Departures {
        Departures::Every
    }
    /// Its name, as its entry has it.
    fn name(&self) -> &'static str {
        "an AQM without a name"
    }
    /// Fewest packets for which its thresholds make sense: the queue takes at least so many.
    fn least_limit(&self) -> u32 {
        0
    }
    /// What `reconfigure` takes (`Scope::Discipline`); the queue refuses everything else.
    fn params(&self) -> &'static [&'static [ParamSpec]] {
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
    fn visit_stats(&self, _visit: &mut dyn Visit) {}
}
