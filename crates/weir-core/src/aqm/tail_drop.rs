//! Tail drop: a queue that is full refuses what comes.
//!
//! Principle: no packet is dropped while there is room. With `head`, room is made by dropping the
//! oldest packet instead: losses are seen a queueing delay earlier (Lakshman, Neidhardt and Ott,
//! "The drop from front strategy in TCP and in TCP over ATM", INFOCOM 1996).
//! Cost: a comparison.

use super::contract::{Aqm, Decision, Departures};
use super::params::TAIL_PARAMS;
use crate::packet::{List, PacketId};
use crate::queue::{Cx, DropReason, Link, ParamError, ParamSpec, Params};

/// The AQM that manages nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct TailDrop {
    /// Drop the oldest packet instead of the arriving one.
    pub head: bool,
}

impl Aqm for TailDrop {
    #[inline(always)]
    fn arrive(&mut self, cx: &mut Cx, queue: &List, limit: u32, _id: &PacketId) -> Decision {
        if queue.packets() < limit || cx.adopting() {
            Decision::Accept
        } else if self.head {
            Decision::PushOut(0, DropReason::Head)
        } else {
            Decision::Drop(DropReason::Tail)
        }
    }
    fn name(&self) -> &'static str {
        "no AQM"
    }
    fn departures(&self) -> Departures {
        Departures::None
    }
    fn params(&self) -> &'static [&'static [ParamSpec]] {
        &[TAIL_PARAMS]
    }
    fn reconfigure(&mut self, _class: &str, params: &Params, _link: &Link) -> Result<(), ParamError> {
        self.head |= params.has("drop-head");
        Ok(())
    }
}
