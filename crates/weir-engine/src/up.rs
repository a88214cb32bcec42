//! A live box: a bridge between two interfaces of this machine, until somebody stops it.

use crate::bridge::Bridge;
use crate::control::Snapshot;
use crate::direction::{Delay, Direction, Observe};
use crate::server::Server;
use crate::worker::{Pace, Worker};
use std::io;
use std::path::PathBuf;
use weir_core::port::Port;
use weir_io::PoolSize;
use weir_io::af_packet::AfPacket;

/// One side of the box: an interface, and what manages what leaves by it.
pub struct Side {
    /// The interface.
    pub interface: String,
    /// The egress's port; `None` forwards plainly.
    pub port: Option<Port>,
    /// Propagation delay behind this egress, for testbeds.
    pub delay: Delay,
}

/// A box.
pub struct Setup {
    /// The left side.
    pub left: Side,
    /// The right side.
    pub right: Side,
    /// Frame buffers of each direction.
    pub pool: PoolSize,
    /// How the worker paces itself.
    pub pace: Pace,
    /// Where statistics are served; `None`: nowhere.
    pub socket: Option<PathBuf>,
    /// Hears every packet, one observer for each direction (testbeds).
    pub observers: [Option<Box<dyn Observe>>; 2],
}

/// A running box. Dropping it without [`Up::stop`] leaves its worker running.
pub struct Up {
    worker: Worker,
    server: Option<Server>,
}

/// Brings a box up. Needs root; the interfaces must exist and be up.
pub fn up(setup: Setup) -> io::Result<Up> {
    let open = |name: &str| {
        if !weir_sys::interface(name)?.up {
            let what = format!("interface {name} is down: `ip link set {name} up`");
            return Err(io::Error::new(io::ErrorKind::NetworkDown, what));
        }
        AfPacket::open(name, 0).map_err(|e| {
            let hint = match e.kind() {
                io::ErrorKind::PermissionDenied => "; raw sockets need root",
                _ => "",
            };
            io::Error::new(e.kind(), format!("interface {name}: {e}{hint}"))
        })
    };
    let names = [setup.left.interface.clone(), setup.right.interface.clone()];
    let (left, right) = (open(&names[0])?, open(&names[1])?);
    let [to_right, to_left] = setup.observers;
    let mut directions = [
        Direction::new(0, setup.right.port, setup.pool, setup.right.delay),
        Direction::new(1, setup.left.port, setup.pool, setup.left.delay),
    ];
    for (direction, observer) in directions.iter_mut().zip([to_right, to_left]) {
        if let Some(observer) = observer {
            direction.observe(observer);
        }
    }
    let worker = Worker::start(Bridge::new(left, right, directions), names, setup.pace)?;
    let server = setup.socket.map(|path| Server::start(&path, worker.control())).transpose();
    match server {
        Ok(server) => Ok(Up { worker, server }),
        Err(e) => {
            let _ = worker.stop();
            Err(e)
        }
    }
}

impl Up {
    /// The way to the worker.
    pub fn control(&self) -> crate::Control {
        self.worker.control()
    }
    /// True once the worker has ended by itself.
    pub fn has_ended(&self) -> bool {
        self.worker.has_ended()
    }
    /// Takes the box down: its last statistics.
    pub fn stop(self) -> io::Result<Snapshot> {
        drop(self.server);
        self.worker.stop()
    }
}
