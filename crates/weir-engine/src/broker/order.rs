//! What an edge is told on behalf of a broker, and the way there.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use weir_edge::allocate::Answer;
use weir_edge::edge::Session;

/// The number of a session that an edge did not take, and why.
pub type NotTaken = (u128, String);

/// What an edge is told.
pub(crate) enum Order {
    /// The broker of a class has answered its request of that version.
    Answer { class: u32, version: u64, answer: Answer },
    /// It is to say at the desk what its classes have.
    SayHolds,
    /// The broker of a class takes back what it has above `rate_bps`. If it is to wait, it asks for no more for its
    /// `retry`. `done` is dropped once it is so.
    ComeDown { class: u32, rate_bps: u64, wait: bool, done: Option<Sender<()>> },
    /// These are its sessions. `done` is told which are not in effect and why, and dropped once the others are.
    Sessions { sessions: Vec<Session>, done: Option<Sender<NotTaken>> },
}

/// An order on its way to the worker that runs the edge.
pub(crate) struct Told {
    pub(crate) direction: usize,
    /// The number of the edge: another one may stand there by then.
    pub(crate) edge: u64,
    pub(crate) order: Order,
}

/// The way back to a worker, for who is to tell it something later. It keeps no channel open, and a worker that has
/// ended hears nothing.
#[derive(Clone)]
pub(crate) struct Back(Arc<dyn Fn(Told) + Send + Sync>);

impl Back {
    pub(crate) fn new(tell: impl Fn(Told) + Send + Sync + 'static) -> Back {
        Back(Arc::new(tell))
    }
}

/// The way to an edge.
#[derive(Clone)]
pub(crate) struct To {
    pub(crate) back: Back,
    pub(crate) direction: usize,
    /// The number of the edge.
    pub(crate) edge: u64,
}

impl To {
    /// Tells the edge, if it is still there.
    pub(crate) fn tell(&self, order: Order) {
        let To { back: Back(tell), direction, edge } = self;
        tell(Told { direction: *direction, edge: *edge, order });
    }
}

/// The way back to who asked.
pub struct Reply {
    pub(crate) to: To,
    pub(crate) class: u32,
    pub(crate) version: u64,
}

impl Reply {
    /// Tells the answer. A worker that has ended does not hear it.
    pub fn send(self, answer: Answer) {
        let Reply { to, class, version } = self;
        to.tell(Order::Answer { class, version, answer });
    }
}
