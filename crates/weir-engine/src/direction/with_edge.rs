//! A direction with an edge before its port: what the edge wants is done at the port at once.

use super::frames::Frames;
use super::{Direction, LiveEdge};
use crate::broker::{Back, Order};
use crate::edge_state::EdgeState;
use weir_core::port::Port;
use weir_core::queue::Params;
use weir_core::units::Instant;
use weir_edge::edge::{Edge, SessionNow};

impl Direction {
    /// Puts an edge before the port, or takes it away; none is there where there is no port. An edge that is there
    /// already goes on by the other one's configuration. What it answers is not needed any more.
    pub fn set_edge(&mut self, now: Instant, edge: Option<Box<LiveEdge>>) -> Option<Box<LiveEdge>> {
        let mut edge = edge.filter(|_| self.port.is_some());
        let useless = match (&mut self.frames.edge, &mut edge) {
            (Some(old), Some(new)) => {
                old.follow(now, new);
                edge
            }
            (old, new) => std::mem::replace(old, new.take()),
        };
        match (&mut self.frames.edge, &useless) {
            // The worker that runs it says so before anything is asked.
            (Some(there), _) => there.is_known = false,
            (None, Some(gone)) => gone.end(),
            (None, None) => {}
        }
        self.fit_edge(now);
        useless
    }
    /// The edge before the port.
    pub fn edge(&self) -> Option<&LiveEdge> {
        self.frames.edge.as_deref()
    }
    /// What it says of itself, but for its contracts.
    pub(crate) fn edge_state(&mut self, now: Instant) -> Option<EdgeState> {
        let dropped = self.frames.policed;
        self.edge_mut().map(|edge| edge.state(dropped, now))
    }
    pub(crate) fn edge_mut(&mut self) -> Option<&mut LiveEdge> {
        self.frames.edge.as_deref_mut()
    }

    /// Another tree is there: its classes get the rates that they have.
    pub(super) fn fit_edge(&mut self, now: Instant) {
        let Direction { port: Some(port), frames, .. } = self else { return };
        let Some(edge) = &mut frames.edge else { return };
        edge.fit(port.leaves());
        if port.in_ring() == 0 {
            edge.recount(now, port);
        }
        for (name, params) in edge.rates() {
            shape(port, frames, now, &name, &params);
        }
        carry_out(port, frames, now);
        make_room(port, frames, now, |_| true);
    }

    /// Does what the edge of that number is told.
    pub(crate) fn obey(&mut self, now: Instant, edge: u64, order: Order) {
        let Direction { port: Some(port), frames, .. } = self else { return };
        let Some(live) = frames.edge.as_mut().filter(|live| live.number == edge) else { return };
        match order {
            Order::Answer { class, version, answer } => {
                live.answer(now, class, version, answer);
                carry_out(port, frames, now);
            }
            Order::SayHolds => live.is_known = false,
            Order::ComeDown { class, rate_bps, wait, done } => {
                live.come_down(now, class, rate_bps, wait);
                carry_out(port, frames, now);
                drop(done);
            }
            // One that there is no room for takes nothing from those that are in effect.
            Order::Sessions { sessions, done } => {
                live.take(now, sessions);
                carry_out(port, frames, now);
                make_room(port, frames, now, |seen| seen.since == now);
                let not_taken = frames.edge.iter().flat_map(|live| live.not_taken());
                not_taken.zip(done.iter().cycle()).for_each(|(one, done)| drop(done.send(one)));
            }
        }
    }

    /// Does something with the edge, and what the edge then wants to have done.
    pub(crate) fn with_edge(&mut self, now: Instant, act: impl FnOnce(Option<&mut Edge>, Instant)) {
        let Direction { port: Some(port), frames, .. } = self else { return act(None, now) };
        let has = |frames: &Frames| -> Vec<(u64, u64)> {
            let all = frames.edge.iter().flat_map(|live| live.edge.allocators());
            all.map(|(_, allocator)| (allocator.plan().from, allocator.allocated_bps())).collect()
        };
        if let Some(live) = &mut frames.edge {
            live.now = live.now.max(now);
        }
        let had = has(frames);
        act(frames.edge.as_mut().map(|live| &mut live.edge), now);
        // What was given by hand no broker knows of.
        let is_known = has(frames) == had;
        carry_out(port, frames, now);
        if let Some(live) = &mut frames.edge {
            live.is_known &= is_known;
        }
    }

    /// Sends what the edge is to ask.
    pub(crate) fn ask(&mut self, back: &Back) {
        let index = self.index();
        if let Some(edge) = &mut self.frames.edge {
            edge.ask(back, index);
        }
    }
}

pub(super) fn shape(port: &mut Port, frames: &mut Frames, now: Instant, class: &str, params: &Params) {
    let done = port.reconfigure(now, class, params, &mut |event| frames.hear(event));
    let Some(edge) = &mut frames.edge else { return };
    match done {
        Ok(_) => edge.accepted(class),
        Err(why) => {
            // A worker does not write: whoever reads it may be slow.
            edge.refused(class, &why).into_iter().for_each(|said| edge.desk.say(said));
        }
    }
}

/// Does what the edge wants to have done: rates.
pub(super) fn carry_out(port: &mut Port, frames: &mut Frames, now: Instant) {
    while let Some((class, params)) = frames.edge.as_mut().and_then(|edge| edge.next_rate()) {
        shape(port, frames, now, &class, &params);
    }
}

/// The clock reached `now`.
pub(super) fn tick(port: &mut Port, frames: &mut Frames, now: Instant) {
    if let Some(edge) = frames.edge.as_mut().filter(|edge| edge.edge.poll_at() <= now) {
        edge.now = edge.now.max(now);
        edge.edge.timer(now);
    }
    carry_out(port, frames, now);
}

/// Leaves sessions out as long as the rate of their class is refused, the newest first. `may` says which.
fn make_room(port: &mut Port, frames: &mut Frames, now: Instant, may: impl Fn(&SessionNow) -> bool) {
    while let Some(live) = &mut frames.edge
        && let Some(gone) = live.without_room(&may)
    {
        live.leave_out(now, gone);
        carry_out(port, frames, now);
    }
}
