//! What a worker can be asked.

use crate::bridge::{Passed, WorkerEstate};
use crate::broker::Told;
use crate::direction::{Change, Changed};
use crate::fail_open::{FailCounts, Failing};
use crate::gather::Part;
use std::io;
use std::sync::mpsc::Sender;
use weir_core::port::Layout;
use weir_core::units::Instant;
use weir_edge::edge::Edge;
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
    /// An edge is told something on behalf of a broker.
    Told(Told),
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
