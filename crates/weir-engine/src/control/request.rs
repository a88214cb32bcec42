//! What a worker can be asked.

use super::Part;
use crate::bridge::{Passed, WorkerEstate};
use crate::broker::NotTaken;
use crate::direction::{Change, Changed};
use crate::fail_open::{FailCounts, Failing};
use std::io;
use std::sync::mpsc::Sender;
use weir_core::port::Layout;
use weir_core::units::Instant;
use weir_edge::allocate::Answer;
use weir_edge::edge::{Edge, Session};
use weir_io::Socket;

/// What is done with an edge, or told that there is none.
pub(crate) type EdgeAct = Box<dyn FnOnce(Option<&mut Edge>, Instant) + Send>;

/// What a worker can be asked.
pub(crate) enum Request {
    State(Sender<Part>),
    Bypass {
        on: bool,
        done: Sender<bool>,
    },
    /// What stands in the port of a direction, for a plan that is to follow it.
    Layout {
        direction: usize,
        done: Sender<Option<Layout>>,
    },
    Change {
        direction: usize,
        change: Change,
        done: Sender<Changed>,
    },
    /// Something is to be done with the edge of a direction, if it has one.
    Edge {
        direction: usize,
        act: EdgeAct,
    },
    /// A broker answered a request of the edge of that number.
    Answer {
        direction: usize,
        edge: u64,
        class: u32,
        version: u64,
        answer: Answer,
    },
    /// The edge of that number is to say at the desk what its classes have.
    SayHolds {
        direction: usize,
        edge: u64,
    },
    /// A broker takes back what a class of the edge of that number has above `rate_bps`. If it is to wait, it asks for
    /// no more for its `retry`. `done` is dropped once it is so.
    ComeDown {
        direction: usize,
        edge: u64,
        class: u32,
        rate_bps: u64,
        wait: bool,
        done: Option<Sender<()>>,
    },
    /// These are the sessions of the edge of that number. `done` is told which are not in effect and why, and dropped once the
    /// others are.
    Sessions {
        direction: usize,
        edge: u64,
        sessions: Vec<Session>,
        done: Option<Sender<NotTaken>>,
    },
    Exchange {
        side: usize,
        socket: Socket,
        done: Sender<()>,
    },
    Fail {
        failing: Failing,
        asked: Instant,
        done: Sender<io::Result<()>>,
    },
    /// Stand still until `Thaw` comes.
    Pause {
        done: Sender<()>,
    },
    /// The same, for another process that takes over, until one of the two below comes.
    Freeze {
        done: Sender<io::Result<Frozen>>,
    },
    /// Go on: nobody has taken over.
    Thaw,
    /// End at once: another process has what was told.
    Leave,
    Stop,
}

/// A worker that stands still.
pub(crate) struct Frozen {
    pub(crate) worker: WorkerEstate,
    /// None if its bridge fails closed.
    pub(crate) failing: Option<FailCounts>,
    pub(crate) directions: Vec<Passed>,
}
