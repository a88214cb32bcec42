//! Another process goes on with a running box: nothing is lost, twice, or out of order in its flow.
//!
//! The new process asks at the socket of the running one, when it has built all it needs. From then on:
//!
//! ```text
//! running                                     new
//! its workers stand still <------------------ request
//! sockets, heartbeats, programs, claims,
//! what waits, counters --------------------->
//!                                             takes all of it in, runs nothing yet
//!                         <------------------ done
//! yours ------------------------------------->
//! ends                                        its workers start
//! ```
//!
//! - **A frame is in one place.** Both processes have the same sockets, and one of them reads at a time. What
//!   comes meanwhile waits in them. What waited in the ports is copied, in order; the
//!   running process forgets its copy with `yours`, and the new one lets nothing out before.
//! - **The one goes on untouched if anything fails before `yours`**: a limit of time, an error, the
//!   end of the new process, which ends the stream. If the running process dies after `done`, the
//!   stream ends without an answer, and the new process has all it needs.
//! - **The heart goes on beating**, in the same map, so that the kernel leaves the frames alone. It
//!   stops where both die, or where one hangs.
//! - **The workers may be others.** What passes is that of the directions, whoever ran them.
//! - **What the packet filter holds stays there**: each packet goes with the number by which the kernel knows it, and
//!   the verdict comes from the new process. Its queue belongs to the socket, which both have.
//! - **The same user only**, in the same network namespace, over a protocol with a number.

use crate::bridge::{BridgeEstate, Passed, WorkerEstate};
use crate::control::{Control, Frozen};
use crate::direction::{Direction, DirectionEstate};
use crate::fail_open::{FailCounts, FailOpen};
use crate::owner::Claim;
use crate::state::LinkState;
use crate::up::{BoxedIo, NFQUEUE, Pair, Ready, Running, Up, Way};
use crate::up::{directions, has_queue, queue_of, queue_task, running_queue, tasks};
use crate::watch::{Claims, lock};
use crate::worker::{Task, Worker};
use serde_json::Value;
use std::fmt::Display;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use weir_io::{IoStats, Place, Socket};
use weir_sys::Priority;
use weir_sys::nfqueue::{QueueSocket, set_most_packets};
use weir_sys::passing::{network_of, own_uid, peer_of, receive_exactly, send_with};

/// The number of the protocol: what is passed, and in which order.
pub const PROTOCOL: u32 = 6;

/// How long workers may stand still. Frames wait in the sockets meanwhile.
const LIMIT: Duration = Duration::from_millis(100);
/// The same where the packet filter hands packets over: the [guard](crate::guard) lets packets pass a queue that nobody
/// serves for 50 ms, which begin up to 10 ms before the standstill, and they would overtake what waits.
const LIMIT_OF_QUEUES: Duration = Duration::from_millis(30);
/// How long the new process waits for what the running one sends.
const PATIENCE: Duration = Duration::from_secs(2);
/// Bytes of a part of what is passed, at most.
const MOST: u64 = 1 << 32;
/// Bytes that are written at once.
const PIECE: usize = 1 << 15;

/// What stands before all else where the running process hands over. A refusal is a line of JSON.
const HANDS_OVER: &[u8; 1] = b"W";
const DONE: &[u8; 5] = b"done\n";
const YOURS: &[u8; 6] = b"yours\n";

fn failed(what: impl Display) -> io::Error {
    io::Error::other(what.to_string())
}

/// Runs something before all ordinary threads of the machine, if this process may.
fn promptly<T: Send>(act: impl FnOnce() -> T + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let prompt = || {
            weir_sys::take_priority(Priority::Fifo);
            act()
        };
        let thread = std::thread::Builder::new().name("weir-takeover".into()).spawn_scoped(scope, prompt)?;
        thread.join().map_err(|_| failed("a panic"))
    })
}

/// What is left of a limit.
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

// The running process.

impl Up {
    /// Hands everything over to the process that asked by `stream`, and which then serves `listener`.
    /// `extra` is told to it. After success this box is to be [left](Up::leave): none of its workers
    /// does anything any more. The answer is how long they stood still before.
    ///
    /// # Errors
    /// Why it was not handed over. Everything goes on here as it was, and who asked is told `refusal` of
    /// the reason.
    pub fn give(
        &self,
        stream: &UnixStream,
        listener: BorrowedFd<'_>,
        extra: &Value,
        refusal: impl Fn(&io::Error) -> String + Sync,
    ) -> io::Result<Duration> {
        promptly(|| {
            let begun = Instant::now();
            let limit = self.limit();
            let until = begun + limit;
            let given = self.freeze(until).and_then(|frozen| {
                self.tell(stream, listener, extra, frozen, until)?;
                stream.set_read_timeout(Some(left(until)?))?;
                let mut answer = [0; DONE.len()];
                (&*stream).read_exact(&mut answer)?;
                if answer != *DONE {
                    return Err(failed("it answered something else than was expected"));
                }
                // From here on it is the other's, unless that one is gone.
                (&*stream).write_all(YOURS)
            });
            let given = given.map_err(|e| match e.kind() {
                io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
                    failed("the other process gave up or died")
                }
                io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
                    failed(format!("the other process took longer than {limit:?}"))
                }
                _ => e,
            });
            if let Err(why) = &given {
                // Before anything moves here: the other one goes on if it hears nothing.
                let _ = (&*stream).write_all(refusal(why).as_bytes());
                let _ = stream.shutdown(std::net::Shutdown::Both);
            }
            self.controls().for_each(|control| control.release(given.is_ok()));
            given.map(|()| begun.elapsed())
        })?
    }

    fn controls(&self) -> impl Iterator<Item = Control> + '_ {
        self.bridges().map(|(_, control)| control)
    }

    /// How long its workers may stand still.
    fn limit(&self) -> Duration {
        let queue = self.bridges().any(|(names, _)| names[0] == NFQUEUE);
        if queue { LIMIT_OF_QUEUES } else { LIMIT }
    }

    /// Has all workers stand still: those of each bridge.
    fn freeze(&self, until: Instant) -> io::Result<Vec<Vec<Frozen>>> {
        let answers = self.controls().map(|control| control.freeze()).collect::<io::Result<Vec<_>>>()?;
        let mut all = Vec::new();
        for (workers, (names, _)) in answers.iter().zip(self.bridges()) {
            let named = |e: io::Error| failed(format!("{} and {}: {e}", names[0], names[1]));
            let mut frozen = Vec::new();
            for answer in workers {
                let answer = answer.recv_timeout(left(until)?);
                frozen.push(answer.map_err(|_| failed("a worker gives no answer"))?.map_err(named)?);
            }
            all.push(frozen);
        }
        Ok(all)
    }

    fn tell(
        &self,
        stream: &UnixStream,
        listener: BorrowedFd<'_>,
        extra: &Value,
        frozen: Vec<Vec<Frozen>>,
        until: Instant,
    ) -> io::Result<()> {
        stream.set_write_timeout(Some(left(until)?))?;
        send_with(stream, HANDS_OVER, &[listener])?;
        send_part(stream, &serde_json::to_vec(&(frozen.len(), extra))?, &[], &[], until)?;
        for (running, frozen) in self.running().iter().zip(frozen) {
            let (mut estate, bytes, sockets) = together(running.interfaces(), frozen)?;
            let claims = lock(&running.claims);
            let claimed = claims.iter().flatten().map(Claim::pass).collect::<io::Result<Vec<_>>>()?;
            estate.claimed = [claims[0].is_some(), claims[1].is_some()];
            drop(claims);
            estate.links = running.worker.control().links();
            let kernel = running.kernel().map_or(Ok(Vec::new()), |kernel| kernel.pass())?;
            let all: Vec<OwnedFd> = sockets.into_iter().chain(claimed).chain(kernel).collect();
            let all: Vec<BorrowedFd<'_>> = all.iter().map(AsFd::as_fd).collect();
            send_part(stream, &serde_json::to_vec(&estate)?, &bytes, &all, until)?;
        }
        Ok(())
    }
}

/// What the workers of a bridge between these interfaces have, the bytes of the packets, and the sockets, left and right.
fn together(
    interfaces: &[String; 2],
    frozen: Vec<Frozen>,
) -> io::Result<(BridgeEstate, Vec<u8>, Vec<OwnedFd>)> {
    let workers = frozen.iter().map(|one| one.worker).collect();
    let failing = frozen.iter().filter_map(|one| one.failing).reduce(FailCounts::and);
    let mut passed: Vec<Passed> = frozen.into_iter().flat_map(|one| one.directions).collect();
    passed.sort_by_key(|direction| direction.index);
    let (mut directions, mut bytes, mut sockets) = (Vec::new(), Vec::new(), Vec::new());
    for Passed { estate, bytes: mut of_direction, mut socket, .. } in passed {
        directions.push(estate);
        bytes.append(&mut of_direction);
        sockets.append(&mut socket);
    }
    let (interfaces, links, claimed) = (interfaces.clone(), Default::default(), [false; 2]);
    Ok((BridgeEstate { interfaces, workers, failing, directions, links, claimed }, bytes, sockets))
}

/// Two texts, each behind its length, and descriptors with them.
fn send_part(
    stream: &UnixStream,
    text: &[u8],
    bytes: &[u8],
    with: &[BorrowedFd<'_>],
    until: Instant,
) -> io::Result<()> {
    let lengths = [text.len() as u64, bytes.len() as u64].map(u64::to_le_bytes);
    stream.set_write_timeout(Some(left(until)?))?;
    send_with(stream, lengths.as_flattened(), with)?;
    write_until(stream, text, until)?;
    write_until(stream, bytes, until)
}

/// Writes all of it before the limit. A reader that takes a little at a time does not move it.
fn write_until(mut stream: &UnixStream, mut bytes: &[u8], until: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(left(until)?))?;
        // The system waits for as long as is said for each piece, and not for the whole.
        match stream.write(&bytes[..bytes.len().min(PIECE)]) {
            Ok(written) => bytes = &bytes[written..],
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

fn receive_part(stream: &UnixStream) -> io::Result<(Vec<u8>, Vec<u8>, Vec<OwnedFd>)> {
    let mut lengths = [[0; 8]; 2];
    let descriptors = receive_exactly(stream, lengths.as_flattened_mut())?;
    let receive = |length: [u8; 8]| {
        let length = u64::from_le_bytes(length);
        if length > MOST {
            return Err(failed("a part of what was handed over is too long"));
        }
        let mut part = Vec::new();
        match stream.take(length).read_to_end(&mut part)? as u64 {
            got if got == length => Ok(part),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    };
    let [text, bytes] = lengths;
    Ok((receive(text)?, receive(bytes)?, descriptors))
}

// The new process.

/// Why a box was not taken over. What ran runs on, unless it is gone.
#[derive(Debug)]
pub enum NotTaken {
    /// What the running process answered.
    Refused(String),
    /// A bridge is to get its frames by another way than it does.
    OtherWay {
        /// Its interfaces.
        interfaces: [String; 2],
        /// As it does.
        runs: Way,
    },
    /// What went wrong here.
    Failed(io::Error),
}

impl From<io::Error> for NotTaken {
    fn from(e: io::Error) -> Self {
        NotTaken::Failed(e)
    }
}

/// A box that was taken over, and runs.
pub struct Taken {
    /// Its bridges.
    pub up: Up,
    /// The socket at which it is asked.
    pub listener: UnixListener,
    /// What else the other process told.
    pub extra: Value,
}

/// What was taken in, and does not run yet.
struct Built {
    waits: Waits,
    /// Has its workers go.
    go: Vec<Sender<()>>,
}

enum Waits {
    Bridge(Ready),
    /// With its socket, its number, and how many packets may wait in it from here on.
    Queue(Running, (OwnedFd, u16, u32)),
}

/// Takes over from the box that serves at `path`, by a `request` of one line. `pairs` are its bridges, in its order
/// and each with its left interface on the left, with ports that have had no packet yet.
///
/// # Errors
/// It refuses, or something went wrong. Then nothing was changed.
pub fn take(path: &Path, request: &str, pairs: Vec<Pair>) -> Result<Taken, NotTaken> {
    // What takes time comes first: the buffers.
    let prepared: Vec<(Pair, Vec<Direction>)> = pairs.into_iter().map(directions).collect();
    promptly(|| {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        if peer_of(&stream)?.uid != own_uid() {
            return Err(NotTaken::Failed(failed("another user runs it")));
        }
        (&stream).write_all(format!("{request}\n").as_bytes())?;
        let mut first = *HANDS_OVER;
        let listener = receive_exactly(&stream, &mut first)?.pop();
        let Some(listener) = listener.filter(|_| first == *HANDS_OVER) else {
            let mut answer = String::from_utf8_lossy(&first).into_owned();
            (&stream).read_to_string(&mut answer)?;
            return Err(NotTaken::Refused(answer));
        };
        let (text, _, _) = receive_part(&stream)?;
        let (count, extra): (usize, Value) = serde_json::from_slice(&text).map_err(io::Error::from)?;
        if count != prepared.len() {
            return Err(NotTaken::Failed(failed("it has other bridges than it said")));
        }
        let mut built = Vec::new();
        for (pair, directions) in prepared {
            let (text, bytes, descriptors) = receive_part(&stream)?;
            let estate: BridgeEstate = serde_json::from_slice(&text).map_err(io::Error::from)?;
            if estate.interfaces != [&*pair.left.interface, &*pair.right.interface] {
                return Err(NotTaken::Failed(failed("it has other bridges than it said")));
            }
            let runs = estate.directions.first().map_or(pair.way, |forth| way_of(&forth.place));
            if runs != pair.way {
                return Err(NotTaken::OtherWay { interfaces: estate.interfaces, runs });
            }
            built.push(match pair.left.interface.as_str() {
                NFQUEUE => build_queue(pair, directions, estate, &bytes, descriptors)?,
                _ => build(pair, directions, estate, &bytes, descriptors)?,
            });
        }
        (&stream).write_all(DONE)?;
        is_ours(&stream)?;
        let mut up = Up::default();
        // All of them before anything else.
        for go in built.iter().flat_map(|built| &built.go) {
            let _ = go.send(());
        }
        for Built { waits, .. } in built {
            up.push(match waits {
                Waits::Queue(running, (socket, number, most)) => {
                    // What was before goes on where this fails.
                    if let Err(e) = set_most_packets(socket.as_fd(), number, most) {
                        weir_sys::say(&format!(
                            "interface {}: the length of its queue: {e}",
                            running.interfaces()[1]
                        ));
                    }
                    running
                }
                Waits::Bridge(ready) => {
                    for claim in lock(&ready.claims).iter().flatten() {
                        // Whose it is serves a message alone.
                        let _ = claim.sign();
                    }
                    ready.watch_or_say()
                }
            });
        }
        Ok(Taken { up, listener: listener.into(), extra })
    })?
}

/// Waits for the answer to `done`: success if the box is this process's now. It is also where the other
/// one died before it could say so.
fn is_ours(stream: &UnixStream) -> Result<(), NotTaken> {
    let mut answer = Vec::new();
    if stream.take(YOURS.len() as u64).read_to_end(&mut answer).is_err() {
        // It hangs. What it says from here on it says to nobody; what it has said counts.
        let _ = stream.shutdown(std::net::Shutdown::Both);
        stream.take(YOURS.len() as u64).read_to_end(&mut answer)?;
        if answer.is_empty() {
            return Err(NotTaken::Failed(failed(format!("it gave no answer within {PATIENCE:?}"))));
        }
    }
    if answer.is_empty() || answer == YOURS {
        return Ok(());
    }
    let mut answer = String::from_utf8_lossy(&answer).into_owned();
    let _ = (&*stream).read_to_string(&mut answer);
    Err(NotTaken::Refused(answer))
}

/// Takes in what was passed for a queue of the packet filter.
fn build_queue(
    pair: Pair,
    directions: Vec<Direction>,
    estate: BridgeEstate,
    bytes: &[u8],
    descriptors: Vec<OwnedFd>,
) -> io::Result<Built> {
    let interfaces = [pair.left.interface, pair.right.interface];
    let ([one], Ok([socket])) = (&estate.directions[..], <[OwnedFd; 1]>::try_from(descriptors)) else {
        return Err(failed("a direction or a descriptor is missing"));
    };
    if !has_queue(&interfaces[1]) {
        return Err(failed("its device was made anew meanwhile"));
    }
    let number = queue_of(&interfaces[1])?;
    let most = directions.iter().map(Direction::frames).sum();
    let same = socket.try_clone()?;
    let socket = QueueSocket::passed(socket, number)?;
    is_here(socket.as_fd())?;
    let stats = IoStats::of_halves(one.received, one.sent);
    let task = queue_task((socket, number), stats, directions, &pair.workers)?;
    let (worker, go) = waiting(vec![task], &interfaces, estate.directions, bytes, estate.workers)?;
    Ok(Built { waits: Waits::Queue(running_queue(interfaces, worker), (same, number, most)), go })
}

/// Succeeds if a socket is of this network namespace.
fn is_here(socket: BorrowedFd<'_>) -> io::Result<()> {
    let here = UnixDatagram::unbound()?;
    match (network_of(here.as_fd()), network_of(socket)) {
        (Ok(here), Ok(there)) if here != there => Err(failed("it runs in another network namespace")),
        _ => Ok(()),
    }
}

/// The workers of tasks that go on with what others had. They have their priority, and wait to be told to go.
fn waiting(
    mut tasks: Vec<Task<BoxedIo, BoxedIo>>,
    interfaces: &[String; 2],
    estates: Vec<DirectionEstate>,
    mut bytes: &[u8],
    before: Vec<WorkerEstate>,
) -> io::Result<(Worker, Vec<Sender<()>>)> {
    let (now, mut estates, mut go) = (weir_sys::now(), estates.into_iter(), Vec::new());
    let before = workers_of(before, tasks.len());
    for (task, before) in tasks.iter_mut().zip(before) {
        task.bridge.inherit(now, &mut estates, &mut bytes)?;
        let (sender, told) = channel();
        task.before = Some((before, told));
        go.push(sender);
    }
    // Before the other process has ended.
    Ok((Worker::start_each(tasks, interfaces)?, go))
}

/// The way in that a socket is of.
fn way_of(place: &Place) -> Way {
    match place {
        Place::Plain | Place::Ring { .. } => Way::Packet,
        Place::Xdp(socket) => Way::Xdp { busy_poll: socket.busy_poll },
    }
}

/// Takes in what was passed for one bridge.
fn build(
    pair: Pair,
    directions: Vec<Direction>,
    estate: BridgeEstate,
    bytes: &[u8],
    descriptors: Vec<OwnedFd>,
) -> io::Result<Built> {
    let interfaces = [pair.left.interface, pair.right.interface];
    let mut descriptors = descriptors.into_iter();
    let mut next = || descriptors.next().ok_or_else(|| failed("a descriptor is missing"));
    let [forth, back] = &estate.directions[..] else { return Err(failed("a direction is missing")) };
    let left = Socket::passed(&forth.place, &mut next)?;
    let right = Socket::passed(&back.place, &mut next)?;
    let stats =
        [IoStats::of_halves(forth.received, back.sent), IoStats::of_halves(back.received, forth.sent)];
    is_here(left.network())?;
    let devices = [left.index(), right.index()];
    let mut claims = [None, None];
    for (claim, _) in claims.iter_mut().zip(estate.claimed).filter(|(_, claimed)| *claimed) {
        *claim = Some(Claim::taken(next()?));
    }
    let failing = match estate.failing {
        Some(counts) => {
            let hearts = [next()?, next()?];
            Ok(FailOpen::taken(&interfaces, counts, hearts, descriptors.collect(), pair.way)?)
        }
        None => Err("it did so in the process before".to_owned()),
    };
    let kernel = failing.as_ref().ok().map(FailOpen::kernel);
    let tasks = tasks([vec![left], vec![right]], stats, directions, failing, &pair.workers)?;
    let claims: Claims = Arc::new(Mutex::new(claims));
    let (worker, go) = waiting(tasks, &interfaces, estate.directions, bytes, estate.workers)?;
    for (side, LinkState { changes, .. }) in estate.links.into_iter().enumerate() {
        worker.control().tell(side, &LinkState { changes, ..LinkState::default() });
    }
    let ready = Ready { worker, interfaces, devices, claims, kernel, way: pair.way, force: pair.force };
    Ok(Built { waits: Waits::Bridge(ready), go })
}

/// What so many workers go on with: each with what one before it had counted, or the first with all of it.
fn workers_of(before: Vec<WorkerEstate>, count: usize) -> Vec<WorkerEstate> {
    if before.len() == count {
        return before;
    }
    let sum = |of: fn(&WorkerEstate) -> u64| before.iter().map(of).sum();
    let started_ns =
        before.iter().map(|one| one.started_ns).min().unwrap_or_else(|| weir_sys::now().as_nanos());
    let (cpu_ns, spun_ns, steps) = (sum(|w| w.cpu_ns), sum(|w| w.spun_ns), sum(|w| w.steps));
    let mut all = vec![WorkerEstate { started_ns, ..WorkerEstate::default() }; count];
    if let Some(first) = all.first_mut() {
        *first = WorkerEstate { started_ns, cpu_ns, spun_ns, steps };
    }
    all
}

impl Up {
    /// Ends a box that another process has [taken](Up::give): nothing is done to any interface.
    pub fn leave(self) {
        self.into_running().into_iter().for_each(Running::leave);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The workers stand still until all is told: a process that reads slowly is no reason to wait for it.
    #[test]
    fn a_slow_reader_does_not_move_the_limit() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut room = [0; 4096];
                while (&theirs).read(&mut room).is_ok_and(|n| n > 0) {
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
            let written = write_until(&ours, &[0; 64 << 20], Instant::now() + LIMIT);
            drop(ours);
            let kind = written.expect_err("16,384 reads of a millisecond end within 100").kind();
            assert!(matches!(kind, io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock), "{kind:?}");
        });
    }
}
