//! Live ports: AF_PACKET, AF_XDP, NFQUEUE, recorded packets, and a fault-injecting wrapper. System calls stand in
//! `weir-sys`, below.
//!
//! A packet's way through this crate: [`Io::receive`] takes frames of the [`pool`] and fills them,
//! the engine hands their [`FrameRef`]s to a port, and [`Io::send`] writes those that leave.
//! No frame is copied in between.
//!
//! - [`pool`]: the fixed store of frame buffers, bounded when it is made.
//! - [`af_packet`]: a raw socket on an interface, with checksum and segmentation offload headers.
//! - [`af_xdp`]: frames from the driver, before the kernel has made packets of them.
//! - [`nfqueue`]: what leaves by an interface, held by the kernel until a verdict.
//! - [`segment`]: packets of up to 64 KB taken apart.
//! - [`memory`]: the same interface over queues in memory, for tests and programs.
//! - [`fault`]: a wrapper that drops, repeats, damages and withholds frames, seeded.
//! - [`trace`]: recorded packets: pcap, pcapng and Weir's own CSV.
#![forbid(unsafe_code)]

pub mod af_packet;
pub mod af_xdp;
mod checksum;
mod device;
pub mod fault;
pub mod memory;
pub mod nfqueue;
pub mod pool;
pub mod segment;
pub mod trace;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use weir_sys::rights::Capability;

use weir_core::queue::DropReason;

pub use pool::{FrameRef, Pool, PoolSize};
pub use weir_sys::packet::{BATCH, PacketSocket};
pub use weir_sys::xdp::XdpSocket;

/// What an interface has moved and lost since it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct IoStats {
    /// Frames received.
    pub rx_frames: u64,
    /// Bytes received, layer-2 header included.
    pub rx_bytes: u64,
    /// Frames that the system dropped because nobody fetched them in time.
    pub rx_overrun: u64,
    /// Frames dropped on receipt because the pool had no buffer for them.
    pub rx_nobuf: u64,
    /// Frames that the system could not hand over, and times that the link was found down.
    pub rx_errors: u64,
    /// Frames sent.
    pub tx_frames: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Frames that could not be sent: each was a [`Refusal`].
    pub tx_errors: u64,
    /// Bytes that stand in the device now, as the system counts them: whole buffers. 0 unless
    /// [`Io::keep_queue_short`] was asked for, and where devices do not tell.
    pub tx_queue_bytes: u64,
    /// The most that stood there after a `send`.
    pub tx_queue_most_bytes: u64,
}

impl IoStats {
    /// What `received` has received and `sent` has sent, where each is one half of an interface.
    pub fn of_halves(received: IoStats, sent: IoStats) -> IoStats {
        let IoStats { tx_frames, tx_bytes, tx_errors, tx_queue_bytes, tx_queue_most_bytes, .. } = sent;
        IoStats { tx_frames, tx_bytes, tx_errors, tx_queue_bytes, tx_queue_most_bytes, ..received }
    }
}

/// A frame that could not be sent, and why: `Toolong`, `Devicefull`, `Portdown`, `Gone` or `Refused`.
pub type Refusal = (FrameRef, DropReason);

/// As what the system knows a frame that it holds itself until a verdict; zeroes where it holds none.
pub type Held = [u8; 6];

/// What a socket that passes to another process is besides its descriptors.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Place {
    /// Nothing.
    #[default]
    Plain,
    /// One of AF_PACKET with a ring: its slots, and which is read next.
    Ring {
        /// So many.
        slots: u32,
        /// By number.
        next: u32,
    },
    /// One of AF_XDP.
    Xdp(weir_sys::xdp::Place),
}

/// An interface, opened for its raw frames.
pub enum Socket {
    /// By AF_PACKET.
    Packet(PacketSocket),
    /// By AF_XDP.
    Xdp(Box<XdpSocket>),
}

impl Socket {
    /// What another process has [passed](Io::pass), with all that waits in it. `next` answers its descriptors, in
    /// their order.
    ///
    /// # Errors
    /// It is no such socket.
    pub fn passed(place: &Place, mut next: impl FnMut() -> io::Result<OwnedFd>) -> io::Result<Socket> {
        match *place {
            Place::Plain => PacketSocket::passed(next()?, None).map(Socket::Packet),
            Place::Ring { slots, next: slot } => {
                PacketSocket::passed(next()?, Some((slots, slot))).map(Socket::Packet)
            }
            Place::Xdp(ref place) => XdpSocket::passed(place, next).map(|s| Socket::Xdp(Box::new(s))),
        }
    }
    /// A socket of the interface's network.
    pub fn network(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Packet(socket) => socket.as_fd(),
            Socket::Xdp(socket) => socket.network(),
        }
    }
    /// The number that the interface had when it was opened.
    pub fn index(&self) -> u32 {
        match self {
            Socket::Packet(socket) => socket.index(),
            Socket::Xdp(socket) => socket.index(),
        }
    }
    /// The interface behind it.
    pub fn io(self) -> Box<dyn Io + Send> {
        self.resumed(IoStats::default())
    }
    /// The same, counting on from `stats`.
    pub fn resumed(self, stats: IoStats) -> Box<dyn Io + Send> {
        match self {
            Socket::Packet(socket) => Box::new(af_packet::AfPacket::resumed(socket, stats)),
            Socket::Xdp(socket) => Box::new(af_xdp::AfXdp::resumed(*socket, stats)),
        }
    }
    /// Two sockets for two threads: of the first frames are received, by the second they are sent.
    ///
    /// # Errors
    /// Frames that come by AF_XDP have one thread.
    pub fn halves(self) -> io::Result<[Socket; 2]> {
        match self {
            Socket::Packet(socket) => {
                let sender = socket.sender();
                Ok([Socket::Packet(socket), Socket::Packet(sender)])
            }
            Socket::Xdp(_) => {
                Err(io::Error::new(io::ErrorKind::Unsupported, "a socket of AF_XDP belongs to one thread"))
            }
        }
    }
}

/// One side of the engine: somewhere frames come from and go to.
///
/// Calls never block; [`weir_sys::wait`] blocks, on the descriptors of several interfaces at once.
pub trait Io {
    /// Appends up to [`BATCH`] received frames to `out`. Fewer than [`BATCH`] means that nothing
    /// more was there, or that hundreds were lost for want of a buffer. The caller owns the frames and
    /// frees them.
    fn receive(&mut self, pool: &mut Pool, out: &mut Vec<FrameRef>);

    /// Sends frames in their order and answers how many of them are done with. Those among them
    /// that were not sent are appended to `refused`, in their order, each with its reason. The
    /// caller keeps all frames, frees those done with and offers the rest again later.
    fn send(&mut self, pool: &mut Pool, frames: &[FrameRef], refused: &mut Vec<Refusal>) -> usize;

    /// Hears of frames that were received and will not be sent, before the caller frees them. Only
    /// where the system holds them still it has to be told.
    fn discard(&mut self, _frames: &[FrameRef]) {}

    /// Keeps what stands in the device short: about `bytes` of frames of up to `frame_bytes` each, at
    /// least two of them. `send` takes no more until some of it has left. `None`: as long as it may
    /// be. What has no device ignores it.
    fn keep_queue_short(&mut self, _bytes: Option<u64>, _frame_bytes: u32) {}

    /// From now on the program `filter` decides which frames come in ([`PacketSocket::set_filter`]);
    /// `None`: all. What has no socket takes all.
    ///
    /// # Errors
    /// What the system refuses.
    fn filter(&mut self, _filter: Option<BorrowedFd<'_>>) -> io::Result<()> {
        Ok(())
    }

    /// The rights that a thread needs to receive and send, once this is open.
    fn rights(&self) -> &'static [Capability] {
        &[]
    }

    /// What to wait on until frames can be received; `None` if there is nothing to wait on.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// Counters since the interface was opened.
    fn stats(&mut self) -> IoStats;

    /// True if frames come in only when they are asked for, so that nobody may sleep until some have
    /// come.
    fn is_polled(&self) -> bool {
        false
    }

    /// The way by which frames come and go, in words.
    fn way(&self) -> String {
        String::new()
    }

    /// The descriptors of its socket, for another process that goes on with it, and what else it is. Frames that were
    /// offered and not taken are to be offered again, here or there.
    ///
    /// # Errors
    /// It has none that could be passed.
    fn pass(&mut self) -> io::Result<(Vec<OwnedFd>, Place)> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "this way in cannot pass to another process"))
    }

    /// As what the system knows a frame that waits here, for another process that goes on with it.
    fn held_as(&self, _frame: FrameRef) -> Held {
        Held::default()
    }

    /// A frame came from another process, for which the system knew it as `held`.
    fn hold(&mut self, _frame: FrameRef, _held: Held) {}

    /// Goes on over `socket`, because the device was deleted and made again. Counters go on, too.
    /// What has no such socket ignores it.
    fn exchange(&mut self, _socket: Socket) {}
}

impl<I: Io + ?Sized> Io for Box<I> {
    fn receive(&mut self, pool: &mut Pool, out: &mut Vec<FrameRef>) {
        (**self).receive(pool, out);
    }
    fn send(&mut self, pool: &mut Pool, frames: &[FrameRef], refused: &mut Vec<Refusal>) -> usize {
        (**self).send(pool, frames, refused)
    }
    fn discard(&mut self, frames: &[FrameRef]) {
        (**self).discard(frames);
    }
    fn rights(&self) -> &'static [Capability] {
        (**self).rights()
    }
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        (**self).descriptor()
    }
    fn stats(&mut self) -> IoStats {
        (**self).stats()
    }
    fn keep_queue_short(&mut self, bytes: Option<u64>, frame_bytes: u32) {
        (**self).keep_queue_short(bytes, frame_bytes);
    }
    fn filter(&mut self, filter: Option<BorrowedFd<'_>>) -> io::Result<()> {
        (**self).filter(filter)
    }
    fn pass(&mut self) -> io::Result<(Vec<OwnedFd>, Place)> {
        (**self).pass()
    }
    fn held_as(&self, frame: FrameRef) -> Held {
        (**self).held_as(frame)
    }
    fn hold(&mut self, frame: FrameRef, held: Held) {
        (**self).hold(frame, held);
    }
    fn is_polled(&self) -> bool {
        (**self).is_polled()
    }
    fn way(&self) -> String {
        (**self).way()
    }
    fn exchange(&mut self, socket: Socket) {
        (**self).exchange(socket);
    }
}
