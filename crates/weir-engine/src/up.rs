//! A live box: bridges between interfaces of this machine, until somebody stops it.

use crate::bridge::Bridge;
use crate::control::Control;
use crate::direction::{Change, Delay, Direction, LiveEdge, Observe};
pub use crate::fail_open::Way;
use crate::fail_open::{self, FailOpen, Kernel};
pub use crate::owner::{CLAIMS, prepare_claims};
use crate::owner::{Claim, objections, takers};
use crate::rule;
use crate::state::{BridgeState, Snapshot};
use crate::watch::{Attached, Claims, Watch};
use crate::worker::{Pace, Task, Worker};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use weir_core::port::Port;
use weir_io::pool::HEAD_ROOM;
use weir_io::{Io, IoStats, PacketSocket, PoolSize, Socket, XdpSocket, nfqueue};
use weir_sys::nfqueue::QueueSocket;
use weir_sys::xdp::Options;

mod fail;
mod tasks;
pub(crate) use tasks::tasks;

/// One side of a bridge: an interface, and what manages what leaves by it.
pub struct Side {
    /// The interface.
    pub interface: String,
    /// The egress's port; `None` forwards plainly.
    pub port: Option<Port>,
    /// Propagation delay behind this egress, for testbeds.
    pub delay: Delay,
}

/// The left side of a [`Pair`] that is no bridge: what leaves by the right side's interface is handed
/// over by the kernel's packet filter, and the kernel goes on routing.
pub const NFQUEUE: &str = "nfqueue";

/// One bridge of a box, or an interface whose egress the packet filter hands over.
pub struct Pair {
    /// The left side, or [`NFQUEUE`].
    pub left: Side,
    /// The right side.
    pub right: Side,
    /// How the frames of a bridge come and go.
    pub way: Way,
    /// Frame buffers of each direction.
    pub pool: PoolSize,
    /// How each of its workers paces itself: one runs all of it, of two each runs one direction, of more each a part of
    /// both.
    pub workers: Vec<Pace>,
    /// Of more than two workers: the ports of all but the first, each on the right and on the left. Those of an egress are
    /// parts of one tree ([`weir_core::spread`]).
    pub parts: Vec<[Option<Port>; 2]>,
    /// True if nothing carries the traffic without the worker; else the kernel does.
    pub fails_closed: bool,
    /// Hears every packet, one observer for each direction (testbeds).
    pub observers: [Option<Box<dyn Observe>>; 2],
    /// What stands before the ports: on the right, on the left.
    pub edges: [Option<Box<LiveEdge>>; 2],
    /// Whether it is brought up although somebody else takes the frames of its interfaces, too.
    pub force: bool,
}

impl Pair {
    /// Two sides, with the usual buffers, one worker of the usual pace, and nobody who hears.
    pub fn new(left: Side, right: Side) -> Self {
        let (way, pool, observers, edges, parts) = Default::default();
        let workers = vec![Pace::default()];
        Pair { left, right, way, pool, workers, parts, fails_closed: false, observers, edges, force: false }
    }
}

/// A running box: its bridges, each with threads of its own. Dropping it without [`Up::stop`] leaves its workers running.
#[derive(Default)]
pub struct Up {
    bridges: Vec<Running>,
}

pub(crate) struct Running {
    interfaces: [String; 2],
    pub(crate) worker: Worker,
    /// What watches the interfaces of a bridge; a queue of the packet filter needs nothing.
    watch: Option<Watch>,
    /// What stands in the kernel for a bridge that fails open.
    kernel: SharedKernel,
    /// The path underneath was laid by this run, not taken over.
    laid: bool,
    pub(crate) claims: Claims,
}

/// It changes with `fail open` and `fail closed`, and who opens a device that is back needs it, too.
type SharedKernel = Arc<Mutex<Option<Arc<Kernel>>>>;

fn lock(kernel: &SharedKernel) -> MutexGuard<'_, Option<Arc<Kernel>>> {
    kernel.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Running {
    pub(crate) fn interfaces(&self) -> &[String; 2] {
        &self.interfaces
    }
    /// What stands in the kernel for it.
    pub(crate) fn kernel(&self) -> Option<Arc<Kernel>> {
        lock(&self.kernel).clone()
    }
    /// Ends what another process goes on with.
    pub(crate) fn leave(self) {
        let Running { worker, watch, .. } = self;
        drop(watch);
        worker.join();
    }
    /// Ends the watch and the worker: its last statistics.
    fn stop(self) -> BridgeState {
        let Running { interfaces, worker, watch, .. } = self;
        drop(watch);
        worker.stop().unwrap_or_else(|e| silent(&interfaces, &e))
    }
}

/// Who else takes the frames of an interface, so that it would not be bridged: each with what mends
/// it.
///
/// # Errors
/// What the system refuses to tell.
pub fn who_takes(name: &str) -> io::Result<Vec<String>> {
    let [takers, _] = takers([name, name])?;
    Ok(takers.iter().map(ToString::to_string).collect())
}

/// Succeeds if there is an interface of that name, and it is up.
pub fn is_up(name: &str) -> io::Result<()> {
    if !weir_sys::interface(name)?.up {
        let what = format!("interface {name} is down: `ip link set {name} up`");
        return Err(io::Error::new(io::ErrorKind::NetworkDown, what));
    }
    Ok(())
}

/// Claims an interface. With `force` it may be one that another Weir has claimed.
fn claim(name: &str, force: bool) -> io::Result<Option<Claim>> {
    match Claim::on(name, weir_sys::interface_index(name)?) {
        Ok(claim) => Ok(Some(claim)),
        Err(e) if force => {
            weir_sys::say(&format!("by force: {e}"));
            Ok(None)
        }
        Err(e) => Err(e),
    }
}

/// Opens an interface, which is on that side (0: left), for its raw frames: those that come while the heart
/// beats, if it has one. More than two workers have a socket each, and share what arrives.
fn open(
    name: &str,
    side: usize,
    way: Way,
    workers: usize,
    kernel: Option<&Kernel>,
) -> io::Result<Vec<Socket>> {
    let filter = kernel.map(|kernel| kernel.filter(side));
    let opened = match way {
        Way::Packet if workers > 2 => PacketSocket::open_group(name, 0, filter, workers)
            .map(|all| all.into_iter().map(Socket::Packet).collect()),
        Way::Packet => PacketSocket::open_ring(name, 0, filter).map(|socket| vec![Socket::Packet(socket)]),
        Way::Xdp { busy_poll } => {
            let heartbeat = kernel.map(|kernel| kernel.heartbeat(side));
            XdpSocket::open(name, Options { heartbeat, busy_poll })
                .map(|socket| vec![Socket::Xdp(Box::new(socket))])
        }
    };
    opened.map_err(|e| {
        let hint = match (e.raw_os_error(), way) {
            (Some(_), Way::Packet) if e.kind() == io::ErrorKind::PermissionDenied => {
                "; raw sockets need CAP_NET_RAW"
            }
            (Some(_), Way::Xdp { .. }) if e.kind() == io::ErrorKind::PermissionDenied => {
                "; AF_XDP needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF"
            }
            (None, Way::Packet) if e.kind() == io::ErrorKind::Unsupported => "; `workers 2` needs none",
            _ => "",
        };
        io::Error::new(e.kind(), format!("interface {name}: {e}{hint}"))
    })
}

/// Frames beyond what may wait in a port: batches on their way to and from it, and the segments of a
/// batch of aggregates.
const SPARE: u32 = 2_048;
/// Most long buffers: 1 GB of addresses, of which memory is only what is used.
const MOST_TAILS: u32 = 16_384;

/// Buffers for everything that may wait in a port, and for what is on its way to and from it. Where one
/// frame is longer than a head, every one may need a long buffer; else aggregates do, which are taken
/// apart where those are scarce.
fn pool_for(port: Option<&Port>, least: PoolSize) -> PoolSize {
    let Some(port) = port else { return least };
    let frames = least.frames.max(port.capacity().saturating_add(SPARE));
    let jumbo = port.link().mtu as usize > HEAD_ROOM;
    let tails = if jumbo { frames } else { frames / 16 };
    PoolSize { frames, tails: least.tails.max(tails.min(MOST_TAILS)) }
}

/// The directions of a bridge, those of one worker after those of another where there are more than two, or the one of
/// what the packet filter hands over. The pair has their ports no more.
pub(crate) fn directions(mut pair: Pair) -> (Pair, Vec<Direction>) {
    let queue = pair.left.interface == NFQUEUE;
    let Pair { left, right, pool, observers, edges, .. } = &mut pair;
    let mut direction = |index: usize, side: &mut Side| {
        let port = side.port.take();
        let pool = pool_for(port.as_ref(), *pool);
        let mut direction = Direction::new(index, port, pool, std::mem::take(&mut side.delay));
        if let Some(observer) = observers[index].take() {
            direction.observe(observer);
        }
        direction.set_edge(weir_sys::now(), edges[index].take());
        direction
    };
    let mut all = vec![direction(0, right)];
    match queue {
        true => all.iter_mut().for_each(Direction::fragments_below),
        false => all.push(direction(1, left)),
    }
    for ports in std::mem::take(&mut pair.parts) {
        all.extend((0..).zip(ports).map(|(index, port)| {
            let size = pool_for(port.as_ref(), pair.pool);
            Direction::new(index, port, size, Delay::default())
        }));
    }
    (pair, all)
}

/// An interface of a bridge.
pub(crate) type BoxedIo = Box<dyn Io + Send>;

/// Starts the workers of one bridge.
fn start(pair: Pair) -> io::Result<Running> {
    let (pair, directions) = directions(pair);
    let Pair { left, right, way, workers, fails_closed, force, .. } = pair;
    let interfaces = [left.interface, right.interface];
    interfaces.iter().try_for_each(|name| is_up(name))?;
    let claims = Arc::new(Mutex::new([claim(&interfaces[0], force)?, claim(&interfaces[1], force)?]));
    let failing = fail_open::begin(&interfaces, fails_closed)?;
    let kernel = failing.as_ref().ok().map(FailOpen::kernel);
    let laid = kernel.as_ref().is_some_and(|kernel| kernel.is_new());
    // Until the worker's first step the path underneath carries what comes, and nothing enters the
    // sockets.
    let begin = || {
        let count = workers.len();
        let [left, right] = [0, 1].map(|side| open(&interfaces[side], side, way, count, kernel.as_deref()));
        let sockets = [left?, right?];
        let devices = sockets.each_ref().map(|all| all.first().map_or(0, Socket::index));
        match &kernel {
            Some(kernel) if way == Way::Packet => kernel.attach()?,
            Some(kernel) => kernel.is_hidden_by_sockets(),
            None => {}
        }
        let tasks = tasks(sockets, Default::default(), directions, failing, &workers)?;
        let (interfaces, kernel) = (interfaces.clone(), kernel.clone());
        let worker = Worker::start_each(tasks, &interfaces)?;
        Ready { worker, interfaces, devices, claims, kernel, way, force }.watch()
    };
    let running = begin().inspect_err(|_| {
        if laid {
            take_away(&interfaces);
        }
    })?;
    Ok(Running { laid, ..running })
}

/// A bridge over open sockets, with its worker.
pub(crate) struct Ready {
    pub(crate) worker: Worker,
    pub(crate) interfaces: [String; 2],
    /// The numbers of the interfaces' devices.
    pub(crate) devices: [u32; 2],
    pub(crate) claims: Claims,
    pub(crate) kernel: Option<Arc<Kernel>>,
    pub(crate) way: Way,
    pub(crate) force: bool,
}

impl Ready {
    /// Starts what watches its interfaces.
    pub(crate) fn watch(self) -> io::Result<Running> {
        let (mut running, watch) = self.run();
        match watch {
            Ok(watch) => running.watch = Some(watch),
            Err(e) => {
                let _ = running.worker.stop();
                return Err(e);
            }
        }
        Ok(running)
    }

    /// The same for a bridge that carries traffic already: unwatched is better than gone.
    pub(crate) fn watch_or_say(self) -> Running {
        let (mut running, watch) = self.run();
        match watch {
            Ok(watch) => running.watch = Some(watch),
            Err(e) => weir_sys::say(&format!(
                "bridge {} {}: nobody sees what happens to its interfaces: {e}",
                running.interfaces[0], running.interfaces[1]
            )),
        }
        running
    }

    fn run(self) -> (Running, io::Result<Watch>) {
        let Ready { worker, interfaces, devices, claims, kernel, way, force } = self;
        let kernel: SharedKernel = Arc::new(Mutex::new(kernel));
        let shared = kernel.clone();
        let workers = worker.count();
        let back = move |side: usize, name: &str| {
            let claim = claim(name, force)?;
            let kernel = lock(&shared).clone();
            if let Some(kernel) = &kernel {
                kernel.attach_again(side)?;
            }
            let sockets = open(name, side, way, workers, kernel.as_deref())?;
            Ok(Attached { claim, sockets })
        };
        let watch =
            Watch::start(interfaces.clone(), devices, claims.clone(), worker.control(), Box::new(back));
        (Running { interfaces, worker, watch: None, kernel, laid: false, claims }, watch)
    }
}

/// Takes away the path that this run has laid, so that a box that did not come up leaves nothing.
fn take_away(interfaces: &[String; 2]) {
    let _ = fail_open::remove_between(interfaces);
}

/// The queue of the packet filter for an interface: a number of Weir's own that no other interface
/// has, as long as a namespace has made fewer than a thousand.
pub(crate) fn queue_of(interface: &str) -> io::Result<u16> {
    let part = weir_sys::interface_index(interface)? % u32::from(rule::QUEUES.end - rule::QUEUES.start);
    Ok(rule::QUEUES.start + part as u16)
}

/// Adds the rule that hands over what leaves by an interface; one that is there stays, unless it
/// leads to a queue of an earlier device of that name. While nobody has the queue, packets pass. The rule outlives the process: [`take_queue_away`].
///
/// # Errors
/// No such interface, or what iptables refuses.
pub fn lay_queue(interface: &str) -> io::Result<()> {
    rule::add(interface, queue_of(interface)?).map(drop)
}

/// Takes such rules away, and no others: how many there were.
///
/// # Errors
/// `ResourceBusy` while a process has the queue; what iptables refuses.
pub fn take_queue_away(interface: &str) -> io::Result<usize> {
    if has_queue(interface) {
        let what = format!("interface {interface}: a running weir queues its packets: end it first");
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, what));
    }
    rule::remove(interface)
}

/// The task of the one worker behind a queue of the packet filter, whose counters go on from `stats`.
///
/// # Errors
/// Another number of workers, or what the system refuses.
pub(crate) fn queue_task(
    (socket, number): (QueueSocket, u16),
    stats: IoStats,
    directions: Vec<Direction>,
    paces: &[Pace],
) -> io::Result<Task<BoxedIo, BoxedIo>> {
    let [pace] = *paces else {
        let what = "what leaves by the packet filter is one direction, and has one worker";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    };
    let frames = directions.iter().map(Direction::frames).sum();
    let (intake, outlet) = nfqueue::resumed(socket, number, frames, stats)?;
    let mut bridge: Bridge<BoxedIo, BoxedIo> = Bridge::new(Box::new(intake), Box::new(outlet), directions);
    bridge.is_passed_by("the packet filter lets packets pass without it");
    Ok(Task::new(bridge, pace))
}

/// What runs behind a queue: nobody watches its interface, claims it, or carries its traffic.
pub(crate) fn running_queue(interfaces: [String; 2], worker: Worker) -> Running {
    let (claims, kernel) = Default::default();
    Running { interfaces, worker, watch: None, kernel, laid: false, claims }
}

/// Starts the worker of an interface whose egress the packet filter hands over.
fn start_queue(pair: Pair) -> io::Result<Running> {
    let (pair, directions) = directions(pair);
    let interfaces = [pair.left.interface, pair.right.interface];
    let queue = queue_of(&interfaces[1])?;
    let frames = directions.iter().map(Direction::frames).sum();
    let socket = QueueSocket::open(queue, frames).map_err(|e| {
        let owner = match weir_sys::nfqueue::lost_packets(queue) {
            Some(_) => "another process has it; end that first",
            None => "it cannot be had",
        };
        let what = format!("interface {}: queue {queue} of the packet filter: {owner}: {e}", interfaces[1]);
        io::Error::new(e.kind(), what)
    })?;
    let task = queue_task((socket, queue), IoStats::default(), directions, &pair.workers)?;
    let worker = Worker::start_each(vec![task], &interfaces)?;
    Ok(running_queue(interfaces, worker))
}

/// Whether a running process has the queue of an interface, as the device is now.
pub fn has_queue(interface: &str) -> bool {
    queue_of(interface).is_ok_and(|queue| weir_sys::nfqueue::lost_packets(queue).is_some())
}

/// Brings a box up, whole or not at all. Needs CAP_NET_RAW; the interfaces must exist and be up.
pub fn up(bridges: Vec<Pair>) -> io::Result<Up> {
    let mut up = Up { bridges: Vec::new() };
    for pair in bridges {
        if let Err(e) = up.add(pair) {
            let laid: Vec<_> = up.bridges.iter().filter(|b| b.laid).map(|b| b.interfaces.clone()).collect();
            let _ = up.stop();
            laid.iter().for_each(take_away);
            return Err(e);
        }
    }
    Ok(up)
}

fn silent(interfaces: &[String; 2], why: &io::Error) -> BridgeState {
    BridgeState { interfaces: interfaces.clone(), silent: Some(why.to_string()), ..BridgeState::default() }
}

impl Up {
    pub(crate) fn push(&mut self, running: Running) {
        self.bridges.push(running);
    }
    pub(crate) fn running(&self) -> &[Running] {
        &self.bridges
    }
    pub(crate) fn into_running(self) -> Vec<Running> {
        self.bridges
    }
    /// The interfaces of a bridge whose worker has ended by itself.
    pub fn has_ended(&self) -> Option<&[String; 2]> {
        self.bridges.iter().find(|running| running.worker.has_ended()).map(|running| &running.interfaces)
    }
    /// Starts one bridge more.
    ///
    /// # Errors
    /// An interface does not exist, is down, may not be opened, or has another owner
    /// (`ResourceBusy`). The others go on.
    pub fn add(&mut self, pair: Pair) -> io::Result<()> {
        if pair.left.interface == NFQUEUE {
            self.bridges.push(start_queue(pair)?);
            return Ok(());
        }
        let bridge = [pair.left.interface.clone(), pair.right.interface.clone()];
        match self.possible(&bridge, &[]) {
            Err(e) if pair.force && e.kind() == io::ErrorKind::ResourceBusy => {
                e.to_string().lines().for_each(|objection| weir_sys::say(&format!("by force: {objection}")));
            }
            possible => possible?,
        }
        self.bridges.push(start(pair)?);
        Ok(())
    }
    /// Takes one bridge down: its last statistics. What waits in it leaves first.
    pub fn remove(&mut self, interfaces: &[String; 2]) -> Option<BridgeState> {
        let index = self.bridges.iter().position(|running| running.interfaces == *interfaces)?;
        let Running { interfaces, worker, watch, .. } = self.bridges.remove(index);
        drop(watch);
        let control = worker.control();
        for direction in 0..2 {
            // What waits does not wait for its rate any more, and leaves before the worker ends.
            let _ = control.change_each(direction, || Change::Port(None));
        }
        let last = worker.stop().unwrap_or_else(|e| silent(&interfaces, &e));
        // Nobody is to carry what the file does not bridge any more.
        take_away(&interfaces);
        Some(last)
    }
    /// The interfaces of each bridge (left, right), and the way to its worker.
    pub fn bridges(&self) -> impl Iterator<Item = (&[String; 2], Control)> {
        self.bridges.iter().map(|running| (&running.interfaces, running.worker.control()))
    }
    /// Whether a bridge could be added once some others are gone.
    ///
    /// # Errors
    /// An interface of it has another owner (`ResourceBusy`).
    pub fn possible(&self, bridge: &[String; 2], gone: &[&[String; 2]]) -> io::Result<()> {
        let others = self.bridges.iter().map(|running| &running.interfaces);
        let others: Vec<_> = others.filter(|names| !gone.contains(names)).cloned().collect();
        let found = objections(bridge, &others)?;
        if found.is_empty() {
            return Ok(());
        }
        let all: Vec<_> = found.iter().map(ToString::to_string).collect();
        Err(io::Error::new(io::ErrorKind::ResourceBusy, all.join("\n")))
    }
    /// What all bridges say. One that does not answer keeps none of the others from being seen.
    pub fn snapshot(&self) -> Snapshot {
        let state = |bridge: &Running| match bridge.worker.control().state() {
            Ok(state) => state,
            Err(e) => silent(&bridge.interfaces, &e),
        };
        let bridges = self.bridges.iter().map(state).collect();
        Snapshot { bridges, ..Snapshot::default() }
    }
    /// Has the kernel carry the traffic of all bridges that fail open, or their workers again. What
    /// came of it, [`Up::snapshot`] tells.
    pub fn bypass(&self, on: bool) {
        for bridge in &self.bridges {
            // One that does not answer is carried by the kernel already.
            let _ = bridge.worker.control().bypass(on);
        }
    }
    /// Takes the box down: its last statistics.
    pub fn stop(self) -> Snapshot {
        // All at once: what waits in each takes its time to leave.
        self.bridges.iter().for_each(|bridge| bridge.worker.control().stop());
        let bridges = self.bridges.into_iter().map(Running::stop).collect();
        Snapshot { bridges, ..Snapshot::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::port::{PortConfig, PortPlan, WireConfig};
    use weir_core::queue::Link;
    use weir_core::units::Rate;

    /// A class that may wait has a buffer, however large the file makes the port.
    #[test]
    fn the_pool_follows_the_room_of_the_port() {
        let usual = PoolSize::default();
        assert_eq!(pool_for(None, usual), usual);
        for (capacity, frames) in [(4_096, usual.frames), (8_000, 8_000 + SPARE), (100_000, 100_000 + SPARE)]
        {
            let link = Link::new(Rate::from_mbps(10), 24, 1_514);
            let plan = PortPlan { capacity: Some(capacity), ..PortPlan::fifo(50) };
            let port = Port::new(PortConfig::new(link, WireConfig::Open), plan);
            let tails = (frames / 16).max(usual.tails);
            assert_eq!(pool_for(Some(&port), usual), PoolSize { frames, tails });
            // Each jumbo frame needs a long buffer.
            let link = Link::new(Rate::from_mbps(10), 24, 9_014);
            let plan = PortPlan { capacity: Some(capacity), ..PortPlan::fifo(50) };
            let port = Port::new(PortConfig::new(link, WireConfig::Open), plan);
            assert_eq!(pool_for(Some(&port), usual).tails, frames.min(MOST_TAILS));
        }
    }
}
