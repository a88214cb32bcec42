//! The AQM of a queue in the form in which it is called: the two that most queues have are called
//! directly, so that they are inlined; all others behind a pointer.

use super::contract::{Aqm, Decision};
use super::red::Red;
use super::tail_drop::TailDrop;
use crate::packet::{List, PacketId};
use crate::queue::Cx;
use alloc::boxed::Box;
use core::any::Any;

pub(crate) enum AnyAqm {
    Tail(TailDrop),
    Red(Red),
    Other(Box<dyn Aqm>),
}

impl AnyAqm {
    pub(crate) fn of(aqm: Box<dyn Aqm>) -> Self {
        let any: &dyn Any = &*aqm;
        if let Some(tail) = any.downcast_ref::<TailDrop>() {
            return AnyAqm::Tail(*tail);
        }
        if !any.is::<Red>() {
            return AnyAqm::Other(aqm);
        }
        let any: Box<dyn Any> = aqm;
        match any.downcast::<Red>() {
            Ok(red) => AnyAqm::Red(*red),
            Err(_) => unreachable!("it was asked a line ago"),
        }
    }
    #[inline(always)]
    pub(crate) fn arrive(&mut self, cx: &mut Cx, queue: &List, limit: u32, id: &PacketId) -> Decision {
        match self {
            AnyAqm::Tail(aqm) => aqm.arrive(cx, queue, limit, id),
            AnyAqm::Red(aqm) => aqm.arrive(cx, queue, limit, id),
            AnyAqm::Other(aqm) => aqm.arrive(cx, queue, limit, id),
        }
    }
    #[inline(always)]
    pub(crate) fn depart(&mut self, cx: &mut Cx, queue: &List, id: &PacketId) -> Decision {
        match self {
            AnyAqm::Tail(_) => Decision::Accept,
            AnyAqm::Red(aqm) => aqm.depart(cx, queue, id),
            AnyAqm::Other(aqm) => aqm.depart(cx, queue, id),
        }
    }
    pub(crate) fn get(&self) -> &dyn Aqm {
        match self {
            AnyAqm::Tail(aqm) => aqm,
            AnyAqm::Red(aqm) => aqm,
            AnyAqm::Other(aqm) => aqm.as_ref(),
        }
    }
    pub(crate) fn get_mut(&mut self) -> &mut dyn Aqm {
        match self {
            AnyAqm::Tail(aqm) => aqm,
            AnyAqm::Red(aqm) => aqm,
            AnyAqm::Other(aqm) => aqm.as_mut(),
        }
    }
}
