//! A live box: bridges between interfaces of this machine, until somebody stops it.

use crate::bridge::Bridge;
use crate::control::{BridgeState, Control, Snapshot};
use crate::direction::{Delay, Direction, Observe};
use crate::owner::{Claim, objections};
use crate::watch::Watch;
use crate::worker::{Pace, Worker};
use std::io;
use weir_core::port::Port;
use weir_io::af_packet::AfPacket;
use weir_io::{PacketSocket, PoolSize};

/// One side of a bridge: an interface, and what manages what leaves by it.
pub struct Side {
    /// The interface.
    pub interface: String,
    /// The egress's port; `None` forwards plainly.
    pub port: Option<Port>,
    /// Propagation delay behind this egress, for testbeds.
    pub delay: Delay,
}

/// One bridge of a box.
pub struct Pair {
    /// The left side.
    pub left: Side,
    /// The right side.
    pub right: Side,
    /// Frame buffers of each direction.
    pub pool: PoolSize,
    /// How the worker paces itself.
    pub pace: Pace,
    /// Hears every packet, one observer for each direction (testbeds).
    pub observers: [Option<Box<dyn Observe>>; 2],
    /// Whether it is brought up although somebody else takes the frames of its interfaces, too.
    pub force: bool,
}

impl Pair {
    /// Two sides, with the usual buffers and pace, and nobody who hears.
    pub fn new(left: Side, right: Side) -> Self {
        let (pool, pace) = Default::default();
        Pair { left, right, pool, pace, observers: [None, None], force: false }
    }
}

/// A running box: its bridges, each with a worker thread of its own. Dropping it without [`Up::stop`] leaves its workers running.
pub struct Up {
    bridges: Vec<Running>,
}

struct Running {
    interfaces: [String; 2],
    worker: Worker,
    watch: Watch,
}

/// An interface, opened for raw frames and claimed.
pub(crate) struct Attached {
    pub(crate) socket: PacketSocket,
    pub(crate) claim: Option<Claim>,
}

/// Opens an interface at the start: it must be up.
fn open(name: &str, force: bool) -> io::Result<Attached> {
    if !weir_sys::interface(name)?.up {
        let what = format!("interface {name} is down: `ip link set {name} up`");
        return Err(io::Error::new(io::ErrorKind::NetworkDown, what));
    }
    attach(name, force)
}

/// Opens an interface, at the start or when it is back. With `force`, also one that another Weir
/// has claimed.
pub(crate) fn attach(name: &str, force: bool) -> io::Result<Attached> {
    let socket = PacketSocket::open(name, 0).map_err(|e| {
        let hint = match e.kind() {
            io::ErrorKind::PermissionDenied => "; raw sockets need root",
            _ => "",
        };
        io::Error::new(e.kind(), format!("interface {name}: {e}{hint}"))
    })?;
    let claim = match Claim::on(name, socket.index()) {
        Ok(claim) => Some(claim),
        Err(e) if force => {
            eprintln!("weir: by force: {e}");
            None
        }
        Err(e) => return Err(e),
    };
    Ok(Attached { socket, claim })
}

/// Starts the worker of one bridge.
fn start(pair: Pair) -> io::Result<Running> {
    let Pair { left, right, pool, pace, observers, force } = pair;
    let interfaces = [left.interface, right.interface];
    let (left_side, right_side) = (open(&interfaces[0], force)?, open(&interfaces[1], force)?);
    let devices = [left_side.socket.index(), right_side.socket.index()];
    let mut directions =
        [Direction::new(0, right.port, pool, right.delay), Direction::new(1, left.port, pool, left.delay)];
    for (direction, observer) in directions.iter_mut().zip(observers) {
        if let Some(observer) = observer {
            direction.observe(observer);
        }
    }
    let [left_io, right_io] = [left_side.socket, right_side.socket].map(AfPacket::over);
    let worker = Worker::start(Bridge::new(left_io, right_io, directions), interfaces.clone(), pace)?;
    let claims = [left_side.claim, right_side.claim];
    match Watch::start(interfaces.clone(), devices, claims, force, worker.control()) {
        Ok(watch) => Ok(Running { interfaces, worker, watch }),
        Err(e) => {
            let _ = worker.stop();
            Err(e)
        }
    }
}

/// Brings a box up, whole or not at all. Needs root; the interfaces must exist and be up.
pub fn up(bridges: Vec<Pair>) -> io::Result<Up> {
    let mut up = Up { bridges: Vec::new() };
    for pair in bridges {
        if let Err(e) = up.add(pair) {
            let _ = up.stop();
            return Err(e);
        }
    }
    Ok(up)
}

fn silent(interfaces: &[String; 2], why: &io::Error) -> BridgeState {
    BridgeState { interfaces: interfaces.clone(), silent: Some(why.to_string()), ..BridgeState::default() }
}

impl Up {
    /// The way to the worker of a bridge, by its place in the set-up.
    pub fn control(&self, bridge: usize) -> Option<Control> {
        self.bridges.get(bridge).map(|running| running.worker.control())
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
        let others: Vec<_> = self.bridges.iter().map(|running| running.interfaces.clone()).collect();
        let bridge = [pair.left.interface.clone(), pair.right.interface.clone()];
        let found = objections(&bridge, &others)?;
        if pair.force {
            found.iter().for_each(|objection| eprintln!("weir: by force: {objection}"));
        } else if !found.is_empty() {
            let all: Vec<_> = found.iter().map(ToString::to_string).collect();
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, all.join("\n")));
        }
        self.bridges.push(start(pair)?);
        Ok(())
    }
    /// What all bridges say. One that does not answer keeps none of the others from being seen.
    pub fn snapshot(&self) -> Snapshot {
        let state = |bridge: &Running| match bridge.worker.control().state() {
            Ok(state) => state,
            Err(e) => silent(&bridge.interfaces, &e),
        };
        Snapshot { bridges: self.bridges.iter().map(state).collect() }
    }
    /// Takes the box down: its last statistics.
    pub fn stop(self) -> Snapshot {
        let last = |Running { interfaces, worker, watch }| {
            drop(watch);
            worker.stop().unwrap_or_else(|e| silent(&interfaces, &e))
        };
        Snapshot { bridges: self.bridges.into_iter().map(last).collect() }
    }
}
