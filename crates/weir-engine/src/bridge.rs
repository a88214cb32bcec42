//! Two interfaces and the two directions between them, one step at a time.

use crate::direction::{Direction, DirectionEstate};
use crate::fail_open::FailCounts;
use crate::fail_open::{FailOpen, FailState, Failing, state};
use crate::watch::LinkState;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use weir_core::units::Instant;
use weir_io::{Io, IoStats, Socket};
use weir_sys::rights::Capability;

/// A transparent bridge. Direction 0 goes from the left interface to the right one.
pub struct Bridge<L, R> {
    left: L,
    right: R,
    directions: [Direction; 2],
    failing: Failing,
    /// The kernel carries the traffic by itself when this ends, and how.
    passed_by: Option<String>,
}

/// What a bridge leaves to the process that takes over, without the bytes of its packets.
#[derive(Serialize, Deserialize)]
pub(crate) struct BridgeEstate {
    /// Its interfaces: left, right.
    pub(crate) interfaces: [String; 2],
    pub(crate) worker: WorkerEstate,
    /// Slots of each socket's ring, and which is read next.
    pub(crate) rings: [Option<(u32, u32)>; 2],
    #[serde(with = "Counts")]
    pub(crate) left: IoStats,
    #[serde(with = "Counts")]
    pub(crate) right: IoStats,
    /// None if it fails closed.
    pub(crate) failing: Option<FailCounts>,
    pub(crate) directions: [DirectionEstate; 2],
    /// What happened to the interfaces. The worker does not know.
    #[serde(default)]
    pub(crate) links: [LinkState; 2],
    /// Which interfaces are claimed. The worker does not know.
    #[serde(default)]
    pub(crate) claimed: [bool; 2],
}

/// What a worker has counted, and since when.
#[derive(Clone, Copy, Serialize, Deserialize, Default)]
pub(crate) struct WorkerEstate {
    /// When the first worker of this bridge started, on the monotonic clock.
    pub(crate) started_ns: u64,
    pub(crate) cpu_ns: u64,
    pub(crate) spun_ns: u64,
    pub(crate) steps: u64,
}

/// How [`IoStats`] are written.
#[derive(Serialize, Deserialize)]
#[serde(remote = "IoStats")]
struct Counts {
    rx_frames: u64,
    rx_bytes: u64,
    rx_overrun: u64,
    rx_nobuf: u64,
    rx_errors: u64,
    tx_frames: u64,
    tx_bytes: u64,
    tx_errors: u64,
    tx_queue_bytes: u64,
    tx_queue_most_bytes: u64,
}

/// What a step found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// When something is due next, if nothing arrives before.
    pub next: Instant,
    /// More frames may be waiting to be received: step again at once.
    pub more: bool,
}

impl<L: Io, R: Io> Bridge<L, R> {
    /// Connects two interfaces. What it carries ends with it, unless [`Bridge::fail`] says otherwise.
    pub fn new(left: L, right: R, directions: [Direction; 2]) -> Self {
        Bridge { left, right, directions, failing: Err("nothing was said".into()), passed_by: None }
    }

    /// Says what becomes of the traffic without this bridge.
    pub fn fail(&mut self, failing: Failing) {
        self.failing = failing;
    }
    /// Says that the kernel carries the traffic without this bridge, and how, with nothing to do for it.
    pub fn is_passed_by(&mut self, how: &str) {
        self.passed_by = Some(how.to_owned());
    }
    /// Says from now on what becomes of the traffic without this bridge. One that fails open is alive
    /// when this returns.
    ///
    /// # Errors
    /// A socket takes no filter. Then nothing has changed.
    pub(crate) fn change_fail(&mut self, now: Instant, mut failing: Failing) -> io::Result<()> {
        if let Ok(open) = &mut failing {
            // A filter before the first beat would keep frames out.
            open.beat(now);
            let kernel = open.kernel();
            let both = self.left.filter(Some(kernel.filter()));
            if let Err(e) = both.and_then(|()| self.right.filter(Some(kernel.filter()))) {
                let _ = self.left.filter(None);
                return Err(e);
            }
        } else {
            // Before the last beat, likewise.
            self.left.filter(None)?;
            self.right.filter(None)?;
        }
        self.failing = failing;
        Ok(())
    }
    /// What becomes of it.
    pub fn fail_state(&self) -> FailState {
        match &self.passed_by {
            Some(how) => FailState { open: true, how: how.clone(), ..FailState::default() },
            None => state(&self.failing),
        }
    }
    /// The bridge that fails open, if it does.
    pub(crate) fn failing(&mut self) -> Option<&mut FailOpen> {
        self.failing.as_mut().ok()
    }
    /// True if the kernel carries the traffic without this bridge.
    pub fn fails_open(&self) -> bool {
        self.failing.is_ok()
    }
    /// True if the kernel carries the traffic as soon as this ends, and not before.
    pub(crate) fn is_passed(&self) -> bool {
        self.passed_by.is_some()
    }
    /// True if no frame is inside.
    pub(crate) fn is_empty(&self) -> bool {
        self.directions.iter().all(Direction::is_empty)
    }

    /// Does all that is due at `now`: receives a batch from each side, lets the ports act, and
    /// sends what leaves.
    pub fn step(&mut self, now: Instant) -> Step {
        let [forth, back] = &mut self.directions;
        if let Ok(open) = &mut self.failing {
            if open.is_stale(now) {
                open.count_stale(forth.discard(&mut self.left) + back.discard(&mut self.right));
            }
            open.beat(now);
        }
        let more = forth.receive(now, &mut self.left);
        forth.leave(now, &mut self.right);
        let more = back.receive(now, &mut self.right) || more;
        back.leave(now, &mut self.left);
        Step { next: forth.next_wake_up(now).min(back.next_wake_up(now)), more }
    }

    /// The same without receiving: what is inside leaves.
    pub(crate) fn leave(&mut self, now: Instant) -> Step {
        let [forth, back] = &mut self.directions;
        forth.leave(now, &mut self.right);
        back.leave(now, &mut self.left);
        Step { next: forth.next_wake_up(now).min(back.next_wake_up(now)), more: false }
    }

    /// After a panic: both directions forward plainly.
    pub fn forward_plainly(&mut self, now: Instant) {
        for direction in &mut self.directions {
            direction.forward_plainly(now);
        }
    }

    /// Goes on over `socket` on the left (0) or on the right.
    pub fn exchange(&mut self, side: usize, socket: Socket) {
        let kernel = self.failing.as_ref().ok().map(FailOpen::kernel);
        let filter = kernel.as_ref().map(|kernel| kernel.filter());
        // It may have been opened before what becomes of the traffic was changed. One that takes no filter has none.
        let _ = if side == 0 {
            self.left.exchange(socket);
            self.left.filter(filter)
        } else {
            self.right.exchange(socket);
            self.right.filter(filter)
        };
    }

    /// What it has at `now`, the bytes of its packets, and its sockets. All of it stays here, too.
    ///
    /// # Errors
    /// An interface that no other process can take over.
    pub(crate) fn estate(
        &mut self,
        now: Instant,
        names: &[String; 2],
        worker: WorkerEstate,
    ) -> io::Result<(BridgeEstate, Vec<u8>, [OwnedFd; 2])> {
        let ((left, left_ring), (right, right_ring)) = (self.left.pass()?, self.right.pass()?);
        let (sockets, rings) = ([left, right], [left_ring, right_ring]);
        let mut bytes = Vec::new();
        let [forth, back] = &mut self.directions;
        let directions = [forth.estate(now, &mut bytes), back.estate(now, &mut bytes)];
        let [left, right] = self.io_stats();
        let failing = self.failing.as_ref().ok().map(FailOpen::counts);
        let (links, claimed) = Default::default();
        let interfaces = names.clone();
        let estate =
            BridgeEstate { interfaces, worker, rings, left, right, failing, directions, links, claimed };
        Ok((estate, bytes, sockets))
    }

    /// The rights that its thread needs.
    pub(crate) fn rights(&self) -> Vec<Capability> {
        [self.left.rights(), self.right.rights()].concat()
    }
    /// True if nobody may sleep until frames have come ([`Io::is_polled`]).
    pub(crate) fn is_polled(&self) -> bool {
        self.left.is_polled() || self.right.is_polled()
    }
    /// The way by which frames come and go ([`Io::way`]): of both sides, if they differ.
    pub(crate) fn way(&self) -> String {
        let (left, right) = (self.left.way(), self.right.way());
        if left == right { left } else { format!("{left}; {right}") }
    }
    /// What to wait on.
    pub fn descriptors(&self) -> [Option<BorrowedFd<'_>>; 2] {
        [self.left.descriptor(), self.right.descriptor()]
    }
    /// The directions.
    pub fn directions(&self) -> &[Direction; 2] {
        &self.directions
    }
    /// The directions, to change.
    pub fn directions_mut(&mut self) -> &mut [Direction; 2] {
        &mut self.directions
    }
    /// The interfaces.
    pub fn interfaces(&mut self) -> (&mut L, &mut R) {
        (&mut self.left, &mut self.right)
    }
    /// Counters of the interfaces.
    pub fn io_stats(&mut self) -> [IoStats; 2] {
        [self.left.stats(), self.right.stats()]
    }
}
