//! Raw frames of one interface, in batches: an AF_PACKET socket with offload headers.
//!
//! Each frame begins with the offload header of [`OFFLOAD_BYTES`] (`struct virtio_net_hdr`), on
//! receipt and on sending. Buffers are the caller's: a frame is scattered into two of them, or
//! gathered from two.
#![allow(unsafe_code, reason = "raw sockets and batched system calls")]

use crate::check;
use crate::interface::{Interface, ask, interface_index, interface_name};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;

mod group;
mod ring;
use ring::Ring;

/// Frames that one system call moves at most.
pub const BATCH: usize = 32;
/// Bytes of the offload header that stands before each frame (`struct virtio_net_hdr`).
pub const OFFLOAD_BYTES: usize = 10;

/// What the system counts for the buffer of a frame besides its bytes, at most, up to a page.
pub const BUFFER_BYTES: u64 = 1024;

pub(crate) const SOL_PACKET: libc::c_int = 263;
const PACKET_STATISTICS: libc::c_int = 6;
const PACKET_AUXDATA: libc::c_int = 8;
pub(crate) const PACKET_VNET_HDR: libc::c_int = 15;
pub(crate) const PACKET_IGNORE_OUTGOING: libc::c_int = 23;
const TP_STATUS_VLAN_VALID: u32 = 1 << 4;
const TP_STATUS_VLAN_TPID_VALID: u32 = 1 << 6;
/// Room for one control message: its header and 20 bytes of `tpacket_auxdata`.
const CONTROL_BYTES: usize = 64;

#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; CONTROL_BYTES]);

/// What the system says of one received frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Received {
    /// Bytes written into the frame's room, offload header included.
    pub len_bytes: usize,
    /// True if the frame was longer than its room.
    pub truncated: bool,
    /// The VLAN tag (TPID, TCI) that the system took out of the frame.
    pub vlan_tag: Option<[u8; 4]>,
}

/// What arrived next, on a socket with a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival<'a> {
    /// A frame.
    Whole {
        /// Its bytes, offload header included.
        bytes: &'a [u8],
        /// The VLAN tag (TPID, TCI) that the system took out of it.
        vlan_tag: Option<[u8; 4]>,
    },
    /// A frame that is too long for the ring: it is the next one that [`PacketSocket::receive`] has.
    Queued,
    /// A frame that is too long for the ring, and for which the socket's queue had no room: it is lost.
    Cut,
}

/// Why the system did not take a frame to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendError {
    /// The socket's send buffer is full of frames that the device has not sent: try again later.
    Full,
    /// The frame is longer than the device sends.
    TooLong,
    /// The device's queue, or the system's memory, had no room. The frame is lost.
    NoRoom,
    /// The device is down or gone.
    LinkDown,
    /// Anything else, an offload header that makes no sense for instance.
    Other,
}

impl From<io::Error> for SendError {
    fn from(error: io::Error) -> SendError {
        match error.raw_os_error() {
            Some(libc::EAGAIN) => SendError::Full,
            Some(libc::EMSGSIZE) => SendError::TooLong,
            Some(libc::ENOBUFS | libc::ENOMEM) => SendError::NoRoom,
            Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => SendError::LinkDown,
            _ => SendError::Other,
        }
    }
}

/// A raw socket on an interface. Its calls never block.
pub struct PacketSocket {
    /// Where frames arrive; without one, all do in the socket's queue. It goes before its socket.
    ring: Option<Ring>,
    socket: Arc<OwnedFd>,
    /// Another one receives by the same socket.
    only_sends: bool,
    index: u32,
    headers: Box<[libc::mmsghdr; BATCH]>,
    controls: Box<[Control; BATCH]>,
}

// SAFETY: the raw pointers in `headers` are written before each system call from buffers that
// outlive it and are never read otherwise, so they carry no tie to a thread.
unsafe impl Send for PacketSocket {}

impl PacketSocket {
    /// Opens `interface` of this network namespace, promiscuous, with `buffer_bytes` of room for
    /// frames that arrive between two calls (0: 4 MB).
    ///
    /// # Errors
    /// No such interface, or no privilege for raw sockets.
    pub fn open(interface: &str, buffer_bytes: usize) -> io::Result<Self> {
        Self::open_filtered(interface, buffer_bytes, None)
    }

    /// The same. From the first frame on, the program `filter` decides how many bytes of each frame
    /// come in, none to keep it out: a [`crate::bpf::Kind::SocketFilter`].
    ///
    /// # Errors
    /// As for [`PacketSocket::open`].
    pub fn open_filtered(
        interface: &str,
        buffer_bytes: usize,
        filter: Option<BorrowedFd<'_>>,
    ) -> io::Result<Self> {
        Self::open_as(interface, buffer_bytes, |socket| attach(socket, filter), false)
    }

    /// The same, with a ring of twice `buffer_bytes` (0: 4 MB) in memory shared with the system. There
    /// [`PacketSocket::arrival`] finds what comes, without a system call.
    ///
    /// # Errors
    /// As for [`PacketSocket::open`].
    pub fn open_ring(
        interface: &str,
        buffer_bytes: usize,
        filter: Option<BorrowedFd<'_>>,
    ) -> io::Result<Self> {
        Self::open_as(interface, buffer_bytes, |socket| attach(socket, filter), true)
    }

    /// `before` comes before the first frame.
    fn open_as(
        interface: &str,
        buffer_bytes: usize,
        before: impl FnOnce(BorrowedFd<'_>) -> io::Result<()>,
        with_ring: bool,
    ) -> io::Result<Self> {
        let index = interface_index(interface)?;
        // Protocol 0 receives nothing until the socket is bound to its interface below.
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: socket takes numbers and touches no memory.
        let raw = check(unsafe { libc::socket(libc::AF_PACKET, kind, 0) })?;
        // SAFETY: `raw` was just opened and belongs to nobody else.
        let socket = unsafe { OwnedFd::from_raw_fd(raw) };
        let option = |level, name, value: libc::c_int| set_option(socket.as_fd(), level, name, &value);
        option(SOL_PACKET, PACKET_VNET_HDR, 1)?;
        option(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)?;
        option(SOL_PACKET, PACKET_AUXDATA, 1)?;
        let room = libc::c_int::try_from(buffer_bytes).unwrap_or(libc::c_int::MAX);
        let room = if room == 0 { 4 << 20 } else { room };
        // Without the privilege to exceed the limit, take what the limit allows.
        for (force, plain) in
            [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)]
        {
            option(libc::SOL_SOCKET, force, room).or_else(|_| option(libc::SOL_SOCKET, plain, room))?;
        }
        let ring = with_ring.then(|| Ring::of(socket.as_fd(), 2 * room as usize)).transpose()?;
        be_promiscuous(socket.as_fd(), index)?;
        before(socket.as_fd())?;
        // SAFETY: a sockaddr_ll is plain numbers, for which all zeroes is valid.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as libc::c_ushort;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = index as libc::c_int;
        let size = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: `address` is a valid sockaddr_ll of the size given, alive until after the call.
        check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size) })?;
        Ok(Self::over(Arc::new(socket), index, ring))
    }

    /// A socket that another process has opened so, with all that waits in it, and where that one stands in
    /// its [ring](PacketSocket::ring_place).
    ///
    /// # Errors
    /// It is no such socket, or has no such ring.
    pub fn passed(socket: OwnedFd, ring: Option<(u32, u32)>) -> io::Result<Self> {
        // SAFETY: a sockaddr_ll is plain numbers, for which all zeroes is valid.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        let mut size = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: `address` is writable over the size given; both live until after the call.
        check(unsafe { libc::getsockname(socket.as_raw_fd(), (&raw mut address).cast(), &raw mut size) })?;
        if libc::c_int::from(address.sll_family) != libc::AF_PACKET {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no socket for raw frames"));
        }
        let index = u32::try_from(address.sll_ifindex).unwrap_or(0);
        let ring = ring.map(|(slots, next)| Ring::passed(socket.as_fd(), slots, next)).transpose()?;
        Ok(Self::over(Arc::new(socket), index, ring))
    }

    fn over(socket: Arc<OwnedFd>, index: u32, ring: Option<Ring>) -> Self {
        // SAFETY: mmsghdr is plain numbers and pointers; all zeroes is valid, null.
        let headers = unsafe { std::mem::zeroed() };
        PacketSocket {
            ring,
            socket,
            only_sends: false,
            index,
            headers: Box::new(headers),
            controls: Box::new([Control([0; CONTROL_BYTES]); BATCH]),
        }
    }

    /// The same socket once more, for a thread that sends while another one receives. It has no ring,
    /// and tells no overruns.
    pub fn sender(&self) -> PacketSocket {
        PacketSocket { only_sends: true, ..Self::over(self.socket.clone(), self.index, None) }
    }

    /// How many slots its ring has, and which is read next, for who takes the socket over.
    pub fn ring_place(&self) -> Option<(u32, u32)> {
        self.ring.as_ref().map(Ring::place)
    }
    /// True if frames arrive in a ring.
    pub fn has_ring(&self) -> bool {
        self.ring.is_some()
    }
    /// The frame that stands next in the ring; `None` if there is none, or no ring.
    pub fn arrival(&self) -> Option<Arrival<'_>> {
        self.ring.as_ref()?.front()
    }
    /// Is done with [`PacketSocket::arrival`]: its place belongs to the system again.
    pub fn release(&mut self) {
        if let Some(ring) = &mut self.ring {
            ring.release();
        }
    }

    /// What went wrong since the last call, once: the link went down. Until then a socket counts as
    /// readable. On one without a ring, [`PacketSocket::receive`] tells it.
    pub fn take_error(&self) -> Option<io::Error> {
        let mut error: libc::c_int = 0;
        let mut size = size_of_val(&error) as libc::socklen_t;
        // SAFETY: `error` has the size given, and both live until after the call.
        let answer = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_ERROR,
                (&raw mut error).cast(),
                &raw mut size,
            )
        };
        (answer == 0 && error != 0).then(|| io::Error::from_raw_os_error(error))
    }

    /// Receives into the first [`BATCH`] of `rooms` at most, one frame each, and answers how many
    /// frames there were. [`PacketSocket::received`] tells of each. On a socket with a ring, these are
    /// the frames that are too long for it.
    ///
    /// # Errors
    /// `WouldBlock` if nothing waits. Any other error costs one frame: the link went down, or the
    /// system could not describe a frame's offload.
    pub fn receive(&mut self, rooms: &mut [[IoSliceMut<'_>; 2]]) -> io::Result<usize> {
        let count = rooms.len().min(BATCH);
        for ((room, header), control) in rooms.iter_mut().zip(&mut *self.headers).zip(&mut *self.controls) {
            let header = &mut header.msg_hdr;
            header.msg_iovlen = parts_of(room[1].len());
            // An `IoSliceMut` is laid out as an iovec.
            header.msg_iov = room.as_mut_ptr().cast();
            header.msg_control = control.0.as_mut_ptr().cast();
            header.msg_controllen = CONTROL_BYTES as _;
            header.msg_flags = 0;
        }
        // SAFETY: the first `count` headers point at `rooms`, whose buffers are distinct because they
        // are borrowed mutably, and at controls of this object. All live until after the call, and
        // the kernel writes at most the lengths given. The timeout may be null.
        let answer = unsafe {
            libc::recvmmsg(
                self.socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                count as libc::c_uint,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        check(answer).map(|count| count as usize)
    }

    /// What the system said of frame `index` of the last [`PacketSocket::receive`].
    ///
    /// # Panics
    /// If `index` is not below [`BATCH`].
    pub fn received(&self, index: usize) -> Received {
        let header = &self.headers[index];
        let used = header.msg_hdr.msg_controllen.min(CONTROL_BYTES);
        Received {
            len_bytes: header.msg_len as usize,
            truncated: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
            vlan_tag: vlan_tag(&self.controls[index].0[..used]),
        }
    }

    /// Sends the first [`BATCH`] of `frames` at most, in their order, and answers how many the system took.
    ///
    /// The interface's own queueing discipline stands below. Without it (`PACKET_QDISC_BYPASS`)
    /// the kernel drops each frame that it would have to segment.
    ///
    /// # Errors
    /// About the first frame alone. `Full` leaves it to the caller; any other error loses it.
    pub fn send(&mut self, frames: &[[IoSlice<'_>; 2]]) -> Result<usize, SendError> {
        let count = frames.len().min(BATCH);
        for (frame, header) in frames.iter().zip(&mut *self.headers) {
            let header = &mut header.msg_hdr;
            // An `IoSlice` is laid out as an iovec.
            header.msg_iov = frame.as_ptr().cast_mut().cast();
            header.msg_iovlen = parts_of(frame[1].len());
            header.msg_control = std::ptr::null_mut();
            header.msg_controllen = 0;
            header.msg_flags = 0;
        }
        loop {
            // SAFETY: the first `count` headers point at `frames` and so at buffers that are borrowed
            // for the whole call; sending only reads them.
            let answer = unsafe {
                libc::sendmmsg(
                    self.socket.as_raw_fd(),
                    self.headers.as_mut_ptr(),
                    count as libc::c_uint,
                    libc::MSG_DONTWAIT as _,
                )
            };
            match check(answer) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                answer => return Ok(answer? as usize),
            }
        }
    }

    /// Has `send` answer `Full` as soon as `bytes` of frames that were sent stand in the device and in
    /// its queueing discipline. The system counts whole buffers: [`BUFFER_BYTES`] more a frame. It
    /// takes what begins below the limit, and has one of its own of two full frames.
    ///
    /// # Errors
    /// The system refuses it.
    pub fn keep_queue_short(&self, bytes: u64) -> io::Result<()> {
        // The system doubles the number.
        let half = libc::c_int::try_from(bytes / 2).unwrap_or(libc::c_int::MAX / 2);
        let option = |name| set_option(self.as_fd(), libc::SOL_SOCKET, name, &half);
        option(libc::SO_SNDBUFFORCE).or_else(|_| option(libc::SO_SNDBUF))
    }

    /// Bytes of frames that stand in the device and in its queueing discipline, counted as in
    /// [`PacketSocket::keep_queue_short`]. Not all devices tell: the buffers of a virtual one belong
    /// to its peer at once.
    pub fn queued_bytes(&self) -> u64 {
        let mut bytes: libc::c_int = 0;
        // SAFETY: TIOCOUTQ writes one int, to `bytes`, which lives until after the call.
        let answer = unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
        if answer < 0 { 0 } else { bytes.max(0) as u64 }
    }

    /// From now on the program `filter` decides how many bytes of each frame come in, none to keep it
    /// out: a [`crate::bpf::Kind::SocketFilter`]. `None`: all come in.
    ///
    /// # Errors
    /// The system refuses it.
    pub fn set_filter(&self, filter: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let option = |name, value: libc::c_int| set_option(self.as_fd(), libc::SOL_SOCKET, name, &value);
        match filter {
            Some(filter) => option(libc::SO_ATTACH_BPF, filter.as_raw_fd()),
            None => match option(libc::SO_DETACH_BPF, 0) {
                // There was none.
                Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(()),
                done => done,
            },
        }
    }

    /// What the system says of the interface now, whatever its name has become.
    ///
    /// # Errors
    /// `WouldBlock` while it gets another name, when nothing can be said of it. Any other: it is gone.
    pub fn interface(&self) -> io::Result<Interface> {
        let named = || interface_name(self.as_fd(), self.index);
        // The system is asked by name. For some milliseconds of a renaming it finds none.
        ask(self.as_fd(), named()?).or_else(|_| named().and(Err(io::ErrorKind::WouldBlock.into())))
    }

    /// The number that the interface had when the socket was opened.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Frames that the system dropped because nobody fetched them in time, since the last call.
    pub fn take_overruns(&mut self) -> u32 {
        if self.only_sends { 0 } else { take_drops(self.as_fd()) }
    }
}

/// Has a program decide which frames come in.
fn attach(socket: BorrowedFd<'_>, filter: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let set = |filter: BorrowedFd<'_>| filter.as_raw_fd();
    filter.map(set).map_or(Ok(()), |raw| set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_BPF, &raw))
}

/// A socket that receives nothing, and keeps the interface of that number promiscuous.
pub(crate) fn join_promiscuously(index: u32) -> io::Result<OwnedFd> {
    // SAFETY: socket takes numbers and touches no memory.
    let raw = check(unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: `raw` was just opened and belongs to nobody else.
    let socket = unsafe { OwnedFd::from_raw_fd(raw) };
    be_promiscuous(socket.as_fd(), index)?;
    Ok(socket)
}

fn be_promiscuous(socket: BorrowedFd<'_>, index: u32) -> io::Result<()> {
    let member = libc::packet_mreq {
        mr_ifindex: index as libc::c_int,
        mr_type: libc::PACKET_MR_PROMISC as libc::c_ushort,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set_option(socket, SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &member)
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Frames for which a packet socket had no room since the last call: reading resets the system's count.
pub(crate) fn take_drops(socket: BorrowedFd<'_>) -> u32 {
    let mut counts = [0u32; 2];
    let mut size = size_of_val(&counts) as libc::socklen_t;
    // SAFETY: `counts` has the size given (tpacket_stats: packets, drops), and both live
    // until after the call.
    let answer = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            SOL_PACKET,
            PACKET_STATISTICS,
            counts.as_mut_ptr().cast(),
            &raw mut size,
        )
    };
    if answer == 0 { counts[1] } else { 0 }
}

/// Parts of a frame whose second part has `second_bytes`.
fn parts_of(second_bytes: usize) -> usize {
    1 + usize::from(second_bytes > 0)
}

/// Sets a socket option to the bytes of `value`, a plain number or structure of the system.
pub(crate) fn set_option<T>(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: &T,
) -> io::Result<()> {
    // SAFETY: `value` is readable over its size and lives until after the call.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    })
    .map(|_| ())
}

/// The VLAN tag that a control message says the kernel has taken out of the frame.
///
/// `struct cmsghdr` {len: usize, level: i32, type: i32}, then `struct tpacket_auxdata`
/// {status, len, snaplen: u32, mac, net, vlan_tci, vlan_tpid: u16}.
fn vlan_tag(control: &[u8]) -> Option<[u8; 4]> {
    let number =
        |at: usize| -> Option<u32> { Some(u32::from_ne_bytes(control.get(at..at + 4)?.try_into().ok()?)) };
    let level_at = size_of::<usize>();
    let data = level_at + 8;
    if number(level_at)? != SOL_PACKET as u32 || number(level_at + 4)? != PACKET_AUXDATA as u32 {
        return None;
    }
    let status = number(data)?;
    if status & TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let short =
        |at: usize| -> Option<u16> { Some(u16::from_ne_bytes(control.get(at..at + 2)?.try_into().ok()?)) };
    let tci = short(data + 16)?;
    let tpid = if status & TP_STATUS_VLAN_TPID_VALID != 0 { short(data + 18)? } else { 0x8100 };
    let ([a, b], [c, d]) = (tpid.to_be_bytes(), tci.to_be_bytes());
    Some([a, b, c, d])
}

#[cfg(test)]
mod tests;
