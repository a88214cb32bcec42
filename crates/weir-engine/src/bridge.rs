//! Two interfaces and directions between them, one step at a time.
//!
//! A worker runs both directions, or each of two workers one of them. A direction receives from one interface and
//! sends by the other, has its own frames and its own port, and shares nothing with the other direction.

use crate::crew::Member;
use crate::direction::{Direction, DirectionEstate, LiveEdge};
use crate::fail_open::FailCounts;
use crate::fail_open::{FailOpen, Failing, state};
use crate::state::{FailState, LinkState};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use weir_core::units::Instant;
use weir_io::{Io, IoStats, Socket};
use weir_sys::rights::Capability;

/// A transparent bridge, or the part of it that a worker runs. Direction 0 goes from the left interface
/// to the right one.
pub struct Bridge<L, R> {
    left: L,
    right: R,
    /// Both, or one.
    directions: Vec<Direction>,
    failing: Failing,
    /// The kernel carries the traffic by itself when this ends, and how.
    passed_by: Option<String>,
    /// Of several workers between which both directions are divided it is one.
    member: Option<Member>,
}

/// What a bridge leaves to the process that takes over, without the bytes of its packets.
#[derive(Serialize, Deserialize)]
pub(crate) struct BridgeEstate {
    /// Its interfaces: left, right.
    pub(crate) interfaces: [String; 2],
    /// Its workers, the one of the first direction first.
    pub(crate) workers: Vec<WorkerEstate>,
    /// None if it fails closed.
    pub(crate) failing: Option<FailCounts>,
    /// Both; one where the packet filter hands packets over.
    pub(crate) directions: Vec<DirectionEstate>,
    /// What happened to the interfaces. The workers do not know.
    pub(crate) links: [LinkState; 2],
    /// Which interfaces are claimed. The workers do not know.
    pub(crate) claimed: [bool; 2],
}

/// A direction on its way to another process.
pub(crate) struct Passed {
    pub(crate) index: usize,
    pub(crate) estate: DirectionEstate,
    /// The bytes of its packets.
    pub(crate) bytes: Vec<u8>,
    /// Where its frames come in.
    pub(crate) socket: Vec<OwnedFd>,
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

/// What a step found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// When something is due next, if nothing arrives before.
    pub next: Instant,
    /// More frames may be waiting to be received: step again at once.
    pub more: bool,
}

/// One direction, and the edge of the other one.
type Way<'a> = (&'a mut Direction, Option<&'a mut LiveEdge>);

fn receive_and_leave(
    (direction, other): Way<'_>,
    now: Instant,
    from: &mut impl Io,
    to: &mut impl Io,
) -> bool {
    let more = direction.receive(now, from, other);
    direction.leave(now, to);
    more
}

impl<L: Io, R: Io> Bridge<L, R> {
    /// Connects two interfaces in these directions, both or one. What it carries ends with it, unless
    /// [`Bridge::fail`] says otherwise.
    pub fn new(left: L, right: R, directions: impl Into<Vec<Direction>>) -> Self {
        let (directions, failing) = (directions.into(), Err("nothing was said".into()));
        Bridge { left, right, directions, failing, passed_by: None, member: None }
    }

    /// Says what becomes of the traffic without this bridge.
    pub fn fail(&mut self, failing: Failing) {
        self.failing = failing;
    }
    /// Says which of several workers it is for, whose parts of the ports are in its directions.
    pub(crate) fn is_of(&mut self, member: Member) {
        self.member = Some(member);
    }
    /// Says that the kernel carries the traffic without this bridge, and how, with nothing to do for it.
    pub fn is_passed_by(&mut self, how: &str) {
        self.passed_by = Some(how.to_owned());
    }
    /// Says from now on what becomes of the traffic without this bridge. One that fails open is alive
    /// when this returns. If that is `late`, the kernel has carried what stands in the sockets.
    ///
    /// # Errors
    /// A socket takes no filter. Then nothing has changed.
    pub(crate) fn change_fail(&mut self, now: Instant, mut failing: Failing, late: bool) -> io::Result<()> {
        if let Ok(open) = &mut failing {
            // A filter before the first beat would keep frames out.
            open.beat(now);
            let kernel = open.kernel();
            if let Err(e) = self.filter(|side| Some(kernel.filter(side))) {
                let _ = self.filter(|_| None);
                return Err(e);
            }
            if late {
                open.count_stale(self.discard());
            }
        } else {
            // Before the last beat, likewise.
            self.filter(|_| None)?;
        }
        self.failing = failing;
        Ok(())
    }

    /// Has a program of each side that frames are received from decide which come in.
    fn filter<'f>(&mut self, of: impl Fn(usize) -> Option<BorrowedFd<'f>>) -> io::Result<()> {
        for side in self.directions.iter().map(Direction::index) {
            if side == 0 { self.left.filter(of(side)) } else { self.right.filter(of(side)) }?;
        }
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
    /// True if no frame is inside, nor on its way to here.
    pub(crate) fn is_empty(&self) -> bool {
        self.directions.iter().all(|direction| direction.is_empty() && !direction.is_handed_some())
    }
    /// It ends, and hands over nothing more: true if nobody does who could hand something to it.
    pub(crate) fn is_handed_no_more(&self) -> bool {
        self.member.as_ref().is_none_or(Member::is_done_with_all)
    }
    /// Its worker is about to sleep; false if it may not, because it was handed something.
    pub(crate) fn lies_down(&self) -> bool {
        let Some(member) = &self.member else { return true };
        member.lies_down();
        !self.directions.iter().any(Direction::is_handed_some)
    }
    /// Its worker is awake.
    pub(crate) fn gets_up(&self) {
        self.member.iter().for_each(Member::gets_up);
    }
    /// What ends the sleep of its worker besides frames.
    pub(crate) fn bell(&self) -> Option<BorrowedFd<'_>> {
        self.member.as_ref().map(Member::bell)
    }

    /// Does all that is due at `now`: receives a batch from each side, lets the ports act, and
    /// sends what leaves.
    pub fn step(&mut self, now: Instant) -> Step {
        if self.failing().is_some_and(|open| open.is_stale(now)) {
            let thrown = self.discard();
            self.failing().into_iter().for_each(|open| open.count_stale(thrown));
        }
        let Bridge { left, right, directions, failing, .. } = self;
        if let Ok(open) = failing {
            open.beat(now);
        }
        let mut more = false;
        let mut run = |way: Way<'_>| {
            more |= match way.0.index() {
                0 => receive_and_leave(way, now, left, right),
                _ => receive_and_leave(way, now, right, left),
            };
        };
        match &mut directions[..] {
            [forth, back] => {
                run((forth, back.edge_mut()));
                run((back, forth.edge_mut()));
            }
            others => others.iter_mut().for_each(|one| run((one, None))),
        }
        Step { next: self.next_wake_up(now), more }
    }

    /// Throws away what waits in the sockets: how many frames that were.
    fn discard(&mut self) -> u64 {
        let Bridge { left, right, directions, .. } = self;
        let thrown = directions.iter_mut().map(|direction| match direction.index() {
            0 => direction.discard(left),
            _ => direction.discard(right),
        });
        thrown.sum()
    }

    /// The same as a step without receiving: what is inside leaves.
    pub(crate) fn leave(&mut self, now: Instant) -> Step {
        let Bridge { left, right, directions, .. } = self;
        let mut more = false;
        for direction in directions {
            more |= direction.take_handed(now);
            match direction.index() {
                0 => direction.leave(now, right),
                _ => direction.leave(now, left),
            }
        }
        Step { next: self.next_wake_up(now), more }
    }

    fn next_wake_up(&self, now: Instant) -> Instant {
        let due = self.directions.iter().map(|direction| direction.next_wake_up(now));
        due.min().unwrap_or(Instant::NEVER)
    }

    /// After a panic: its directions forward plainly.
    pub fn forward_plainly(&mut self, now: Instant) {
        for direction in &mut self.directions {
            direction.forward_plainly(now);
        }
    }

    /// Goes on over `socket` on the left (0) or on the right.
    pub fn exchange(&mut self, side: usize, socket: Socket) {
        let kernel = self.failing.as_ref().ok().map(FailOpen::kernel);
        let filter = kernel.as_ref().map(|kernel| kernel.filter(side));
        // It may have been opened before what becomes of the traffic was changed. One that takes no filter has none.
        let _ = if side == 0 {
            self.left.exchange(socket);
            self.left.filter(filter)
        } else {
            self.right.exchange(socket);
            self.right.filter(filter)
        };
    }

    /// What its directions have at `now`, and how it fails open. All of it stays here, too.
    ///
    /// # Errors
    /// An interface that no other process can take over.
    pub(crate) fn estate(&mut self, now: Instant) -> io::Result<(Vec<Passed>, Option<FailCounts>)> {
        let stats = self.io_stats();
        let Bridge { left, right, directions, failing, .. } = self;
        let passed = directions.iter_mut().map(|direction| {
            let index = direction.index();
            // Verdicts about what is dropped just now go before the socket does.
            match index {
                0 => direction.settle(now, right),
                _ => direction.settle(now, left),
            }
            let (socket, place) = if index == 0 { left.pass() } else { right.pass() }?;
            let mut bytes = Vec::new();
            let mut estate = match index {
                0 => direction.estate(now, right, &mut bytes),
                _ => direction.estate(now, left, &mut bytes),
            };
            (estate.place, estate.received, estate.sent) = (place, stats[index], stats[1 - index]);
            Ok(Passed { index, estate, bytes, socket })
        });
        Ok((passed.collect::<io::Result<_>>()?, failing.as_ref().ok().map(FailOpen::counts)))
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
    /// What to wait on: of each direction, where its frames come in.
    pub fn descriptors(&self) -> impl Iterator<Item = Option<BorrowedFd<'_>>> {
        let from = |index| if index == 0 { self.left.descriptor() } else { self.right.descriptor() };
        self.directions.iter().map(move |direction| from(direction.index()))
    }
    /// The directions, in the order of their indices.
    pub fn directions(&self) -> &[Direction] {
        &self.directions
    }
    /// The directions, to change.
    pub fn directions_mut(&mut self) -> &mut [Direction] {
        &mut self.directions
    }
    /// Goes on with what others had, before anything has come: each of its directions with the next of `estates`.
    /// `bytes` are moved behind what is taken of them.
    ///
    /// # Errors
    /// It has no room for all packets, or bytes are missing.
    pub(crate) fn inherit(
        &mut self,
        now: Instant,
        estates: &mut impl Iterator<Item = DirectionEstate>,
        bytes: &mut &[u8],
    ) -> io::Result<()> {
        let Bridge { left, right, directions, .. } = self;
        directions.iter_mut().zip(estates).try_for_each(|(direction, estate)| match direction.index() {
            0 => direction.inherit(now, estate, right, bytes),
            _ => direction.inherit(now, estate, left, bytes),
        })
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
