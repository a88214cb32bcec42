//! The workers of a bridge from outside: statistics, hot swap, stop.
//!
//! Requests go through a channel that a worker looks into between two steps, and a bell (a
//! socket pair) that ends its sleep. It never waits for anybody; who asks, waits. Statistics come
//! in slices. What is about one direction goes to the worker that runs it, all else to each.

use crate::direction::{Change, Changed};
use crate::gather::{Assembly, Part, of_workers};
use crate::line::Line;
use crate::state::{BridgeState, LinkState};
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use weir_core::port::PortPlan;
use weir_core::units::{Duration, Instant};
use weir_edge::edge::Edge;
use weir_io::Socket;

mod change;
mod exchange;
mod fail;
mod request;

pub(crate) use exchange::Exchange;
pub(crate) use request::{Frozen, Request};

/// How long an answer, or a part of one, may take before the worker counts as hanging.
pub(crate) const PATIENCE: std::time::Duration = std::time::Duration::from_secs(2);
/// Statistics are made at most this often.
const FRESH: Duration = Duration::from_millis(10);

/// The way to the workers of a bridge. Cheap to clone; safe from any thread.
#[derive(Clone)]
pub struct Control {
    workers: Arc<[Line]>,
    last: Arc<Mutex<Option<(Instant, BridgeState)>>>,
    /// How the interfaces are: left, right. The workers do not know.
    links: Arc<Mutex<[LinkState; 2]>>,
}

fn await_answer<T>(answer: &Receiver<T>) -> io::Result<T> {
    await_until(answer, std::time::Instant::now() + PATIENCE)
}

/// The answers of several, who have so long together.
fn await_all<T>(answers: &[Receiver<T>]) -> Vec<io::Result<T>> {
    let until = std::time::Instant::now() + PATIENCE;
    answers.iter().map(|answer| await_until(answer, until)).collect()
}

fn await_until<T>(answer: &Receiver<T>, until: std::time::Instant) -> io::Result<T> {
    answer.recv_timeout(until.saturating_duration_since(std::time::Instant::now())).map_err(|_| {
        io::Error::new(io::ErrorKind::TimedOut, format!("the worker did not answer within {PATIENCE:?}"))
    })
}

/// All parts of what a worker says of itself.
fn assembled(parts: &Receiver<Part>) -> io::Result<BridgeState> {
    let mut assembly = Assembly::default();
    loop {
        match assembly.take(await_answer(parts)?) {
            Ok(None) => {}
            Ok(Some(state)) => return Ok(state),
            Err(why) => return Err(io::Error::other(format!("the statistics failed: {why}"))),
        }
    }
}

impl Control {
    pub(crate) fn of(workers: Vec<Line>) -> Control {
        Control { workers: workers.into(), last: Arc::default(), links: Arc::default() }
    }

    /// Asks each worker the same, and only then waits for the answers.
    fn ask_each<T>(&self, of: impl Fn(Sender<T>) -> Request) -> io::Result<Vec<Receiver<T>>> {
        let ask = |worker: &Line| {
            let (done, answer) = channel();
            worker.ask(of(done)).map(|()| answer)
        };
        self.workers.iter().map(ask).collect()
    }

    /// The worker that runs a direction.
    fn runs(&self, direction: usize) -> Option<&Line> {
        self.workers.iter().find(|worker| worker.directions.contains(&direction))
    }

    /// What was told before is no longer so.
    fn forget(&self) {
        *self.last.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = None;
    }

    /// The statistics of now, or of at most 10 ms ago: many askers cost no more than one.
    pub fn state(&self) -> io::Result<BridgeState> {
        let mut last = self.last.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let now = weir_sys::now();
        if let Some((at, state)) = &*last
            && now.since(*at) < FRESH
        {
            return Ok(state.clone());
        }
        let answers = self.ask_each(Request::State)?;
        let states = answers.iter().map(assembled).collect::<io::Result<Vec<_>>>()?;
        let state = self.whole(states);
        *last = Some((now, state.clone()));
        Ok(state)
    }

    /// How the interfaces are: left, right. Their states are empty if nobody watches them.
    pub fn links(&self) -> [LinkState; 2] {
        self.links.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// Notes how an interface is (0: left).
    pub(crate) fn tell(&self, side: usize, state: &LinkState) {
        let mut links = self.links.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        links[side].clone_from(state);
    }

    /// What the workers say, and how the interfaces are.
    pub(crate) fn whole(&self, said: Vec<BridgeState>) -> BridgeState {
        let mut state = of_workers(said);
        let watched = self.links().map(|link| Some(link).filter(|link| !link.state.is_empty()));
        // The first direction leaves by the interface on the right.
        for (egress, link) in state.egresses.iter_mut().zip(watched.into_iter().rev()) {
            egress.link = link;
        }
        state
    }

    /// Gives the port of a direction (0: the egress on the right) another configuration, whole;
    /// its queued packets stay. False if that direction has no port.
    pub fn swap(&self, direction: usize, plan: PortPlan) -> io::Result<bool> {
        let changed = self.change(direction, Change::Plan(Box::new(plan)))?;
        Ok(matches!(changed, Changed::Exchanged(_)))
    }

    /// Does something with the edge of a direction (0: the egress on the right); none if it has no edge. It is to be
    /// quick: the worker does nothing else meanwhile.
    ///
    /// # Errors
    /// The worker has ended, or does not answer.
    pub fn with_edge<T: Send + 'static>(
        &self,
        direction: usize,
        act: impl FnOnce(&mut Edge, Instant) -> T + Send + 'static,
    ) -> io::Result<Option<T>> {
        let Some(worker) = self.runs(direction) else { return Ok(None) };
        let (done, answer) = channel();
        let act = Box::new(move |edge: Option<&mut Edge>, now: Instant| {
            // Who asked may have gone: that is not our concern.
            let _ = done.send(edge.map(|edge| act(edge, now)));
        });
        worker.ask(Request::Edge { direction, act })?;
        let done = await_answer(&answer);
        self.forget();
        done
    }

    /// Goes on over `sockets` on a side (0: left), because its device was made anew: one, or one for each of more than two
    /// workers. Counters and what waits in the ports stay. A worker that hangs has the socket, and takes it when it goes on.
    pub(crate) fn exchange(&self, side: usize, mut sockets: Vec<Socket>) -> io::Result<Exchange> {
        let mut workers: Vec<&Line> = self.workers.iter().collect();
        if workers.len() == 2 {
            let halves = sockets.into_iter().map(Socket::halves).collect::<io::Result<Vec<_>>>()?;
            sockets = halves.into_iter().flatten().collect();
            // What comes by it is of the direction of that number, and what leaves by it of the other one.
            workers = [side, 1 - side].into_iter().filter_map(|direction| self.runs(direction)).collect();
        }
        let ask = |(worker, socket): (&Line, Socket)| {
            let (done, answer) = channel();
            worker.ask(Request::Exchange { side, socket, done }).map(|()| answer)
        };
        Ok(Exchange(workers.into_iter().zip(sockets).map(ask).collect::<io::Result<_>>()?))
    }

    /// Has the kernel carry the traffic, or the worker again. False if the bridge fails closed.
    pub fn bypass(&self, on: bool) -> io::Result<bool> {
        let answers = self.ask_each(|done| Request::Bypass { on, done })?;
        let done = answers.iter().map(await_answer).collect::<io::Result<Vec<_>>>();
        self.forget();
        Ok(done?.into_iter().all(|done| done))
    }

    /// Has the workers stand still: an answer comes when one does, or tells why it does not.
    pub(crate) fn freeze(&self) -> io::Result<Vec<Receiver<io::Result<Frozen>>>> {
        self.ask_each(|done| Request::Freeze { done })
    }

    /// Has workers that stand still end, because another process goes on, or go on themselves.
    pub(crate) fn release(&self, taken: bool) {
        for worker in &*self.workers {
            let _ = worker.ask(if taken { Request::Leave } else { Request::Thaw });
        }
    }

    /// Has the workers end after their present steps. What is inside leaves first.
    pub fn stop(&self) {
        for worker in &*self.workers {
            let _ = worker.ask(Request::Stop);
        }
    }
}
