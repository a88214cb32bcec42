//! A live box: bridges between interfaces of this machine, until somebody stops it.

use crate::bridge::Bridge;
use crate::control::{BridgeState, Control, Snapshot};
use crate::direction::{Delay, Direction, Observe};
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
}

impl Pair {
    /// Two sides, with the usual buffers and pace, and nobody who hears.
    pub fn new(left: Side, right: Side) -> Self {
        Pair { left, right, pool: PoolSize::default(), pace: Pace::default(), observers: [None, None] }
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

/// Opens an interface for raw frames at the start: it must be up.
fn open(name: &str) -> io::Result<PacketSocket> {
    if !weir_sys::interface(name)?.up {
        let what = format!("interface {name} is down: `ip link set {name} up`");
        return Err(io::Error::new(io::ErrorKind::NetworkDown, what));
    }
    attach(name)
}

/// Opens an interface for raw frames, at the start or when it is back.
fn attach(name: &str) -> io::Result<PacketSocket> {
    PacketSocket::open(name, 0).map_err(|e| {
        let hint = match e.kind() {
            io::ErrorKind::PermissionDenied => "; raw sockets need root",
            _ => "",
        };
        io::Error::new(e.kind(), format!("interface {name}: {e}{hint}"))
    })
}

/// Starts the worker of one bridge.
fn start(pair: Pair) -> io::Result<Running> {
    let Pair { left, right, pool, pace, observers } = pair;
    let interfaces = [left.interface, right.interface];
    let (left_socket, right_socket) = (open(&interfaces[0])?, open(&interfaces[1])?);
    let devices = [left_socket.index(), right_socket.index()];
    let mut directions =
        [Direction::new(0, right.port, pool, right.delay), Direction::new(1, left.port, pool, left.delay)];
    for (direction, observer) in directions.iter_mut().zip(observers) {
        if let Some(observer) = observer {
            direction.observe(observer);
        }
    }
    let bridge = Bridge::new(AfPacket::over(left_socket), AfPacket::over(right_socket), directions);
    let worker = Worker::start(bridge, interfaces.clone(), pace)?;
    match Watch::start(interfaces.clone(), devices, worker.control(), attach) {
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
    /// An interface does not exist, is down, or may not be opened. The others go on.
    pub fn add(&mut self, pair: Pair) -> io::Result<()> {
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
