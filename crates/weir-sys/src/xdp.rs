//! Raw frames of one interface by AF_XDP: a program in the driver hands them over before the kernel
//! has made packets of them.
//!
//! Frames lie in an area that the kernel shares (UMEM), in chunks of one size. A fill ring tells the
//! kernel where frames may come in, a receive ring where they are, a send ring what is to leave, and
//! a completion ring what has left. [`XdpSocket`] keeps the chunks to itself: a frame is copied out
//! of one on receipt, and into one to be sent.
//!
//! Source: Documentation/networking/af_xdp.rst of Linux.
#![allow(unsafe_code, reason = "sockets with memory that the kernel reads and writes too")]

mod passed;
mod ring;

pub use passed::Place;

use crate::bpf::{self, Assembler, Heartbeat, Kind, Program, Sockets};
use crate::check;
use crate::interface::{self, Interface, Offload, ask, interface_index, interface_name, keep_vlan_tags};
use crate::packet::{SendError, join_promiscuously, set_option};
use ring::{Area, End, Plain, Ring};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Chunks that each queue of the device receives into.
const RECEIVE_CHUNKS: u32 = 2048;
/// Chunks with frames on their way out.
const SEND_CHUNKS: u32 = 1024;
/// What the kernel keeps free at the beginning of a chunk (`XDP_PACKET_HEADROOM`).
const HEADROOM: u32 = 256;
/// Bytes of a chunk, of which a frame has all but the headroom: the smallest that fits.
const CHUNK_SIZES: [u32; 2] = [2048, 4096];
/// What a frame has besides its packet: an Ethernet header, and two VLAN tags.
const LAYER_2: u32 = 14 + 8;
/// Longest packet, without layer-2 header, that a chunk holds.
pub const MOST_MTU: u32 = CHUNK_SIZES[1] - HEADROOM - LAYER_2;

/// Outside of any area: what stands in a ring so is skipped.
const NOWHERE: u64 = u64::MAX;

/// With busy polling: frames that one call has the driver handle, and microseconds of a call.
const BUSY_FRAMES: libc::c_int = 64;
const BUSY_US: libc::c_int = 20;

/// How an interface is opened.
#[derive(Clone, Copy, Default)]
pub struct Options<'h> {
    /// Frames come in while this counts as alive; else the kernel has them. `None`: always.
    pub heartbeat: Option<&'h Heartbeat>,
    /// Each [`XdpSocket::receive`] has the driver look for frames, instead of an interrupt.
    pub busy_poll: bool,
}

/// What the driver offered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mode {
    /// The program runs in the driver, not behind it.
    pub native: bool,
    /// The device itself reads and writes the frames' memory.
    pub zero_copy: bool,
    /// Busy polling was asked for.
    pub busy_poll: bool,
}

/// One queue of the device that receives.
struct Queue {
    received: Ring<libc::xdp_desc>,
    fill: Ring<u64>,
    socket: OwnedFd,
}

/// What leaves, by the first queue's socket.
struct Out {
    send: Ring<libc::xdp_desc>,
    completed: Ring<u64>,
    /// Chunks that hold nothing.
    free: Vec<u64>,
    /// The number of the first chunk that frames leave from.
    first: u64,
    /// Bytes of the frame in each chunk from that one on.
    lengths: Vec<u32>,
    /// Their sum, of what has not left.
    queued_bytes: u64,
}

/// Succeeds if this kernel lets a socket prefer busy polling, and this process ask for it.
///
/// # Errors
/// A kernel without (before 5.11), or without AF_XDP; no privilege.
pub fn busy_poll_is_known() -> io::Result<()> {
    busy_poll(new_socket()?.as_fd())
}

fn new_socket() -> io::Result<OwnedFd> {
    // SAFETY: socket takes numbers and touches no memory.
    let raw = check(unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: `raw` was just opened and belongs to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

fn busy_poll(socket: BorrowedFd<'_>) -> io::Result<()> {
    let option = |name, value: libc::c_int| set_option(socket, libc::SOL_SOCKET, name, &value);
    let all = option(libc::SO_PREFER_BUSY_POLL, 1)
        .and_then(|()| option(libc::SO_BUSY_POLL, BUSY_US))
        .and_then(|()| option(libc::SO_BUSY_POLL_BUDGET, BUSY_FRAMES));
    all.map_err(said("busy polling (Linux 5.11)".into()))
}

/// A socket on each queue of an interface. Its calls never block.
pub struct XdpSocket {
    /// The first to be dropped: from then on no frame comes.
    link: OwnedFd,
    queues: Vec<Queue>,
    out: Out,
    /// The queue that is looked at first.
    turn: usize,
    area: Area,
    chunk_bytes: u32,
    mode: Mode,
    index: u32,
    /// Keeps the interface promiscuous, and asks about it.
    asking: OwnedFd,
    /// What to wait on for several queues.
    all: Option<OwnedFd>,
    overruns: u64,
}

/// All chunks of an interface with so many queues.
fn chunks_of(queues: u32) -> u32 {
    queues * RECEIVE_CHUNKS + SEND_CHUNKS
}

/// With what a message of the kernel's is more use.
fn said(what: String) -> impl FnOnce(io::Error) -> io::Error {
    move |e| io::Error::new(e.kind(), format!("{what}: {e}"))
}

/// The program: what comes goes into the socket of its queue, while the heart beats.
fn program(sockets: &Sockets, heartbeat: Option<&Heartbeat>) -> io::Result<Program> {
    let redirect = |code: Assembler| {
        code.load_half(2, 6, bpf::RECEIVE_QUEUE)
            .set_to_sockets(1, sockets)
            .set(3, bpf::XDP_PASS)
            .call(bpf::REDIRECT_TO_SOCKET)
            .exit()
    };
    let code = Assembler::default().copy(6, 1);
    let code = match heartbeat {
        // Past all that leads to the socket.
        Some(heartbeat) => {
            redirect(code.note_processor(heartbeat).skip_if_dead(heartbeat, 6)).set(0, bpf::XDP_PASS).exit()
        }
        None => redirect(code),
    };
    code.into_program(Kind::Xdp, "weir_xdp")
}

/// Attaches the program in the driver, or behind it where the driver has no place for it.
fn attach(program: &Program, name: &str, index: u32, mtu: u32) -> io::Result<(OwnedFd, bool)> {
    let error = match bpf::attach_to_device(program, index, true) {
        Ok(link) => return Ok((link, true)),
        Err(error) => error,
    };
    let kind = error.kind();
    match error.raw_os_error() {
        Some(libc::EBUSY) => {
            let what = "it has an XDP program of somebody else's: `ip link set dev ".to_owned();
            return Err(io::Error::new(kind, format!("{what}{name} xdp off`")));
        }
        Some(libc::ERANGE) => {
            let what = format!(
                "its driver has no XDP with an MTU of {mtu} bytes: `ip link set {name} mtu 1500`, on both ends of a veth pair, or take `xdp` away from its line"
            );
            return Err(io::Error::new(io::ErrorKind::Unsupported, what));
        }
        Some(libc::EPERM | libc::ENODEV) => return Err(error),
        _ => {}
    }
    let link = bpf::attach_to_device(program, index, false).map_err(|behind| {
        io::Error::new(behind.kind(), format!("no XDP: {error}; behind the driver: {behind}"))
    })?;
    // Packets that were put together are longer than a chunk, and there they are by then.
    let _ = interface::set_offload(name, Offload::Gro, false);
    Ok((link, false))
}

impl XdpSocket {
    /// Opens `interface` of this network namespace, promiscuous, on all queues that it has. The
    /// driver's own place for the program is tried before the kernel's, and zero copy before copying.
    ///
    /// VLAN tags stay in the frames: the interface's `rxvlan` offload is switched off. Where the
    /// program runs behind the driver, so is its `gro`.
    ///
    /// # Errors
    /// No such interface; no privilege; another program is there; an MTU above [`MOST_MTU`] or what
    /// the driver allows; a kernel without AF_XDP (before 5.10); a limit on locked memory.
    pub fn open(interface: &str, options: Options<'_>) -> io::Result<XdpSocket> {
        let index = interface_index(interface)?;
        let mtu = interface::interface(interface)?.mtu;
        let fits = CHUNK_SIZES.into_iter().find(|chunk| mtu + LAYER_2 <= chunk - HEADROOM);
        let chunk_bytes = fits.ok_or_else(|| {
            let what = format!(
                "AF_XDP has room for an MTU of {MOST_MTU} bytes, and its is {mtu}: `ip link set {interface} mtu 1500`, or take `xdp` away from its line"
            );
            io::Error::new(io::ErrorKind::Unsupported, what)
        })?;
        keep_vlan_tags(interface).map_err(said("VLAN tags would be lost: `rxvlan` stays on".into()))?;
        let count = interface::receive_queues(interface);
        let sockets = Sockets::new(count)?;
        let asking = join_promiscuously(index)?;
        let (link, native) = attach(&program(&sockets, options.heartbeat)?, interface, index, mtu)?;
        let chunks = chunks_of(count);
        let area = Area::new(chunks as usize * chunk_bytes as usize)?;
        let mut opened = Vec::new();
        let mut out = None;
        for number in 0..count {
            let first = opened.first().map(|queue: &Queue| queue.socket.as_fd());
            let bound = Bound { index, number, chunk_bytes, native, busy_poll: options.busy_poll };
            let (mut queue, sending) = bound.open(&area, first)?;
            let chunk = |n: u32| u64::from(n) * u64::from(chunk_bytes);
            for n in number * RECEIVE_CHUNKS..(number + 1) * RECEIVE_CHUNKS {
                queue.fill.put(chunk(n));
            }
            queue.fill.show();
            sockets.put(number, queue.socket.as_fd())?;
            if let Some((send, completed)) = sending {
                let first = count * RECEIVE_CHUNKS;
                let free = (first..chunks).map(chunk).rev().collect();
                let (lengths, first) = (vec![0; SEND_CHUNKS as usize], u64::from(first));
                out = Some(Out { send, completed, free, first, lengths, queued_bytes: 0 });
            }
            opened.push(queue);
        }
        let out = out.ok_or_else(|| io::Error::other("a device without queues"))?;
        let zero_copy = native && is_zero_copy(opened[0].socket.as_fd())?;
        let all = if opened.len() > 1 { Some(together(&opened)?) } else { None };
        Ok(XdpSocket {
            link,
            queues: opened,
            out,
            turn: 0,
            area,
            chunk_bytes,
            mode: Mode { native, zero_copy, busy_poll: options.busy_poll },
            index,
            asking,
            all,
            overruns: 0,
        })
    }

    /// What the driver offered.
    pub fn mode(&self) -> Mode {
        self.mode
    }
    /// The number that the interface had when the socket was opened.
    pub fn index(&self) -> u32 {
        self.index
    }
    /// Queues of the device.
    pub fn queues(&self) -> usize {
        self.queues.len()
    }
    /// Bytes of the longest frame that can be sent.
    pub fn longest_bytes(&self) -> u32 {
        self.chunk_bytes - HEADROOM
    }

    /// What the system says of the interface now, whatever its name has become.
    ///
    /// # Errors
    /// The interface is gone.
    pub fn interface(&self) -> io::Result<Interface> {
        let named = || interface_name(self.asking.as_fd(), self.index);
        // The system is asked by name. For some milliseconds of a renaming it finds none.
        ask(self.asking.as_fd(), named()?).or_else(|_| named().and(Err(io::ErrorKind::WouldBlock.into())))
    }

    /// Shows `take` up to `most` frames that have come, each queue in turn; how many there were.
    pub fn receive(&mut self, most: usize, mut take: impl FnMut(&[u8])) -> usize {
        let (mut count, queues) = (0, self.queues.len());
        let whole = !u64::from(self.chunk_bytes - 1);
        for queue in 0..queues {
            let queue = &mut self.queues[(self.turn + queue) % queues];
            if self.mode.busy_poll || queue.fill.wants_a_call() {
                // SAFETY: the call gets no buffer, and touches no memory of ours.
                let _ = unsafe {
                    libc::recvfrom(
                        queue.socket.as_raw_fd(),
                        std::ptr::null_mut(),
                        0,
                        libc::MSG_DONTWAIT,
                        std::ptr::null_mut(),
                        std::ptr::null_mut(),
                    )
                };
            }
            let before = count;
            while count < most
                && let Some(frame) = queue.received.take()
            {
                // SAFETY: the kernel has given the chunk away by the receive ring, and gets it back
                // below.
                if let Some(bytes) = unsafe { self.area.read(frame.addr, frame.len as usize) } {
                    take(bytes);
                }
                // It has as many places as there are chunks.
                queue.fill.put(frame.addr & whole);
                count += 1;
            }
            if count > before {
                queue.received.give_back();
                queue.fill.show();
            }
        }
        self.turn = (self.turn + 1) % queues;
        count
    }

    /// Takes note of what has left.
    fn reclaim(&mut self) {
        let Out { completed, free, first, lengths, queued_bytes, .. } = &mut self.out;
        let mut any = false;
        while let Some(chunk) = completed.take() {
            any = true;
            let number = (chunk / u64::from(self.chunk_bytes)).checked_sub(*first);
            if let Some(len) = number.and_then(|number| lengths.get_mut(number as usize)) {
                *queued_bytes -= u64::from(std::mem::take(len));
                free.push(chunk);
            }
        }
        if any {
            completed.give_back();
        }
    }

    /// Bytes of frames that were put in and that the device has not sent.
    pub fn queued_bytes(&mut self) -> u64 {
        self.reclaim();
        self.out.queued_bytes
    }

    /// Copies a frame, which stands in two pieces, to where [`XdpSocket::send`] sends it from; false if
    /// there is no room for it now, or if it is longer than [`XdpSocket::longest_bytes`].
    pub fn put(&mut self, pieces: [&[u8]; 2]) -> bool {
        let len = pieces[0].len() + pieces[1].len();
        if self.out.free.is_empty() {
            self.reclaim();
        }
        if len > self.longest_bytes() as usize {
            return false;
        }
        if self.out.send.untaken() >= SEND_CHUNKS {
            // Withdrawn frames have places there still.
            let _ = self.send();
            if self.out.send.untaken() >= SEND_CHUNKS {
                return false;
            }
        }
        let Some(chunk) = self.out.free.pop() else { return false };
        // SAFETY: the kernel has no part in a chunk that is free.
        let Some(room) = (unsafe { self.area.write(chunk, len) }) else { return false };
        let (head, tail) = room.split_at_mut(pieces[0].len());
        head.copy_from_slice(pieces[0]);
        tail.copy_from_slice(pieces[1]);
        self.out.send.put(libc::xdp_desc { addr: chunk, len: len as u32, options: 0 });
        self.out.lengths[(chunk / u64::from(self.chunk_bytes) - self.out.first) as usize] = len as u32;
        self.out.queued_bytes += len as u64;
        true
    }

    /// Frames that were put in and that the system has not taken. A device that takes them by itself
    /// (zero copy) has them.
    pub fn untaken(&self) -> usize {
        if self.mode.zero_copy { 0 } else { self.out.send.untaken() as usize }
    }

    /// Forgets what was put in and the system has not taken: it never leaves.
    pub fn withdraw(&mut self) {
        if self.untaken() > 0 {
            let Out { send, free, first, lengths, queued_bytes, .. } = &mut self.out;
            // The system takes frames within a call of this thread's alone. It skips places outside of the area.
            send.change_untaken(|place| {
                let chunk = std::mem::replace(&mut place.addr, NOWHERE);
                if chunk == NOWHERE {
                    return;
                }
                let number = chunk / u64::from(self.chunk_bytes) - *first;
                *queued_bytes -= u64::from(std::mem::take(&mut lengths[number as usize]));
                free.push(chunk);
            });
        }
    }

    /// Has the system take what was put in, in order, as far as the device has room.
    ///
    /// # Errors
    /// `NoRoom` if the last one that was taken is lost; `LinkDown` and `Other` lose none.
    pub fn send(&mut self) -> Result<(), SendError> {
        self.out.send.show();
        loop {
            let before = self.out.send.untaken();
            if before == 0 || !self.out.send.wants_a_call() {
                return Ok(());
            }
            // SAFETY: the call gets no buffer, and touches no memory of ours.
            let sent = unsafe {
                libc::sendto(
                    self.queues[0].socket.as_raw_fd(),
                    std::ptr::null(),
                    0,
                    libc::MSG_DONTWAIT,
                    std::ptr::null(),
                    0,
                )
            };
            let error = if sent < 0 { io::Error::last_os_error().raw_os_error() } else { None };
            match error {
                // The system takes some 32 at a time.
                None | Some(libc::EAGAIN | libc::EINTR | libc::ENOBUFS | libc::ENOMEM) => {}
                Some(libc::EBUSY) => return Err(SendError::NoRoom),
                Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => return Err(SendError::LinkDown),
                Some(_) => return Err(SendError::Other),
            }
            if self.mode.zero_copy || self.out.send.untaken() == before {
                return Ok(());
            }
        }
    }

    /// Frames that the system dropped because there was no chunk for them, or because they are longer
    /// than one, since the last call.
    pub fn take_overruns(&mut self) -> u64 {
        let all: u64 = self.queues.iter().map(|queue| overruns(queue.socket.as_fd())).sum();
        let new = all.saturating_sub(self.overruns);
        self.overruns = all;
        new
    }
}

impl AsFd for XdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.all.as_ref().map_or(self.queues[0].socket.as_fd(), AsFd::as_fd)
    }
}

/// A socket on one queue, as it is to be.
struct Bound {
    index: u32,
    number: u32,
    chunk_bytes: u32,
    native: bool,
    busy_poll: bool,
}

type Sending = (Ring<libc::xdp_desc>, Ring<u64>);

impl Bound {
    /// Opens it over `area`: the first of an interface, which sends too, or another one beside `first`.
    fn open(&self, area: &Area, first: Option<BorrowedFd<'_>>) -> io::Result<(Queue, Option<Sending>)> {
        let socket = new_socket()?;
        let fd = socket.as_fd();
        if first.is_none() {
            let area = libc::xdp_umem_reg {
                addr: area.address(),
                len: area.bytes() as u64,
                chunk_size: self.chunk_bytes,
                headroom: 0,
                flags: 0,
                tx_metadata_len: 0,
            };
            set_option(fd, libc::SOL_XDP, libc::XDP_UMEM_REG, &area).map_err(|e| match e.raw_os_error() {
                Some(libc::ENOBUFS) => {
                    let what = format!(
                        "AF_XDP locks {} MB of memory, more than this process may: `ulimit -l unlimited`, or `LimitMEMLOCK=infinity` in a systemd unit",
                        area.len.div_ceil(1 << 20)
                    );
                    io::Error::new(io::ErrorKind::PermissionDenied, what)
                }
                _ => said("the frames' memory".into())(e),
            })?;
        }
        // What it does not send, it need not be told of: but each has both rings.
        let sends = if first.is_none() { SEND_CHUNKS } else { 1 };
        let size = |name, size: u32| set_option(fd, libc::SOL_XDP, name, &size);
        size(libc::XDP_UMEM_FILL_RING, RECEIVE_CHUNKS)?;
        size(libc::XDP_UMEM_COMPLETION_RING, sends)?;
        size(libc::XDP_RX_RING, RECEIVE_CHUNKS)?;
        if first.is_none() {
            size(libc::XDP_TX_RING, sends)?;
        }
        let (received, fill, sending) = rings(fd, first.is_none())?;
        if self.busy_poll {
            busy_poll(fd)?;
        }
        self.bind(fd, first).map_err(said(format!("AF_XDP on queue {}", self.number)))?;
        Ok((Queue { received, fill, socket }, sending))
    }

    fn bind(&self, socket: BorrowedFd<'_>, first: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let copying = if self.native { 0 } else { libc::XDP_COPY };
        let (flags, shared) = match first {
            // The same kind of copying as the first.
            Some(first) => (libc::XDP_SHARED_UMEM, first.as_raw_fd() as u32),
            // Without a word on copying the kernel tries to do without.
            None => (libc::XDP_USE_NEED_WAKEUP | copying, 0),
        };
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: flags,
            sxdp_ifindex: self.index,
            sxdp_queue_id: self.number,
            sxdp_shared_umem_fd: shared,
        };
        let size = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
        // SAFETY: `address` is a valid sockaddr_xdp of the size given, alive until after the call.
        check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size) }).map(|_| ())
    }
}

/// The rings of a socket, as far as they were used: for receiving, to be filled, and of one that sends both for that.
fn rings(
    socket: BorrowedFd<'_>,
    sends: bool,
) -> io::Result<(Ring<libc::xdp_desc>, Ring<u64>, Option<Sending>)> {
    let places = offsets(socket)?;
    let (fill_at, completed_at) = (libc::XDP_UMEM_PGOFF_FILL_RING, libc::XDP_UMEM_PGOFF_COMPLETION_RING);
    let fill = Ring::open(End::Producer, socket, fill_at as i64, &places.fr, RECEIVE_CHUNKS)?;
    let received = Ring::open(End::Consumer, socket, libc::XDP_PGOFF_RX_RING, &places.rx, RECEIVE_CHUNKS)?;
    let sending = || -> io::Result<Sending> {
        let send = Ring::open(End::Producer, socket, libc::XDP_PGOFF_TX_RING, &places.tx, SEND_CHUNKS)?;
        Ok((send, Ring::open(End::Consumer, socket, completed_at as i64, &places.cr, SEND_CHUNKS)?))
    };
    Ok((received, fill, sends.then(sending).transpose()?))
}

/// Asks a socket for an option that is plain numbers.
fn option<T: Plain>(socket: BorrowedFd<'_>, name: libc::c_int) -> io::Result<T> {
    // SAFETY: a `T` is plain numbers, for which all zeroes is valid.
    let mut value: T = unsafe { std::mem::zeroed() };
    let mut size = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` has the size given, any bytes are valid in it, and both live until after the call.
    let answer = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_XDP, name, (&raw mut value).cast(), &raw mut size)
    };
    check(answer).map(|_| value)
}

fn offsets(socket: BorrowedFd<'_>) -> io::Result<libc::xdp_mmap_offsets> {
    option(socket, libc::XDP_MMAP_OFFSETS)
}

fn is_zero_copy(socket: BorrowedFd<'_>) -> io::Result<bool> {
    let options: libc::xdp_options = option(socket, libc::XDP_OPTIONS)?;
    Ok(options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
}

fn overruns(socket: BorrowedFd<'_>) -> u64 {
    let counts = option::<libc::xdp_statistics>(socket, libc::XDP_STATISTICS);
    counts.map_or(0, |counts| counts.rx_dropped + counts.rx_ring_full)
}

/// One descriptor for all queues, readable when one of them is.
fn together(queues: &[Queue]) -> io::Result<OwnedFd> {
    // SAFETY: epoll_create1 takes a number and touches no memory.
    let raw = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
    // SAFETY: `raw` was just opened and belongs to nobody else.
    let all = unsafe { OwnedFd::from_raw_fd(raw) };
    for queue in queues {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        let (all, socket) = (all.as_raw_fd(), queue.socket.as_raw_fd());
        // SAFETY: `event` is a valid epoll_event that outlives the call, which only reads it.
        check(unsafe { libc::epoll_ctl(all, libc::EPOLL_CTL_ADD, socket, &raw mut event) })?;
    }
    Ok(all)
}

#[cfg(test)]
mod tests;
