//! What passes an interface, and when: the first bytes of each frame with the kernel's timestamp.
//!
//! The kernel takes the time (`SO_TIMESTAMPNS`, nanoseconds) where it first
//! has the frame: of what comes in, as the device hands it over, before any bridge, queue or socket;
//! of what goes out, as the device is given it, behind its queueing discipline. On a virtual pair
//! (veth) both are the call that sends, so that the far end of a pair tells when its near end sent.
//! The kernel begins to take times some milliseconds after the first capture is open. What comes
//! before has the time at which it was read. The kernel's times are those of the clock of the day. They
//! are told on the clock of [`crate::now`]; a step of the day's clock after `open` would shift them.
#![allow(unsafe_code, reason = "raw sockets and batched system calls")]

use crate::check;
use crate::clock::clock;
use crate::interface::interface_index;
use crate::packet::{OFFLOAD_BYTES, PACKET_IGNORE_OUTGOING, PACKET_VNET_HDR, SOL_PACKET, take_drops};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use weir_core::units::Instant;

/// Frames that one system call reads at most.
const BATCH: usize = 64;
/// What is kept of each frame's bytes.
pub const KEPT_BYTES: usize = 96;
/// Room for the control message: its header and a `timespec`.
const CONTROL_BYTES: usize = 64;

/// Which way frames go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// They come in by the interface.
    In,
    /// They go out by it.
    Out,
}

/// One frame.
#[derive(Clone, Copy, Debug)]
pub struct Stamped<'a> {
    /// When.
    pub at: Instant,
    /// Length of the frame, layer-2 header included, however much of it was kept.
    pub len_bytes: u32,
    /// Payload of each segment, if the frame is an aggregate of segmentation offload; else 0.
    pub segment_bytes: u16,
    /// Its first bytes, at most [`KEPT_BYTES`].
    pub head: &'a [u8],
}

#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; CONTROL_BYTES]);

/// Listens to an interface.
pub struct Capture {
    socket: OwnedFd,
    way: Way,
    day_ahead_ns: u64,
    heads: Box<[[u8; OFFLOAD_BYTES + KEPT_BYTES]; BATCH]>,
    controls: Box<[Control; BATCH]>,
}

impl Capture {
    /// Listens to what goes `way` by `interface` of this network namespace, with 64 MB of room for
    /// frames that nobody has read yet.
    ///
    /// # Errors
    /// No such interface, or no privilege for raw sockets.
    pub fn open(interface: &str, way: Way) -> io::Result<Capture> {
        const ROOM: libc::c_int = 64 << 20;
        let index = interface_index(interface)?;
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: socket takes numbers and touches no memory.
        let raw = check(unsafe { libc::socket(libc::AF_PACKET, kind, 0) })?;
        // SAFETY: `raw` was just opened and belongs to nobody else.
        let socket = unsafe { OwnedFd::from_raw_fd(raw) };
        let option = |level, name, value: libc::c_int| -> io::Result<()> {
            // SAFETY: `value` is a number of the size given and lives until after the call.
            check(unsafe {
                let size = size_of::<libc::c_int>() as libc::socklen_t;
                libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), size)
            })
            .map(|_| ())
        };
        option(SOL_PACKET, PACKET_VNET_HDR, 1)?;
        option(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
        option(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, ROOM)
            .or_else(|_| option(libc::SOL_SOCKET, libc::SO_RCVBUF, ROOM))?;
        if way == Way::In {
            option(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)?;
        }
        // SAFETY: a sockaddr_ll is plain numbers, for which all zeroes is valid.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as libc::c_ushort;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = index as libc::c_int;
        let size = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: `address` is a valid sockaddr_ll of the size given, alive until after the call.
        check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size) })?;
        Ok(Capture {
            socket,
            way,
            day_ahead_ns: day_ahead_ns(),
            heads: Box::new([[0; OFFLOAD_BYTES + KEPT_BYTES]; BATCH]),
            controls: Box::new([Control([0; CONTROL_BYTES]); BATCH]),
        })
    }

    /// Reads what has come, without waiting; `hear` is told of each frame that goes the way asked
    /// for. True if more may be there.
    ///
    /// # Errors
    /// What the system answers; an interface that went down for instance.
    pub fn read(&mut self, hear: &mut dyn FnMut(Stamped<'_>)) -> io::Result<bool> {
        // SAFETY: these are plain numbers and pointers; all zeroes is valid, null.
        let (mut headers, mut parts, mut from): (
            [libc::mmsghdr; BATCH],
            [libc::iovec; BATCH],
            [libc::sockaddr_ll; BATCH],
        ) = unsafe { std::mem::zeroed() };
        for i in 0..BATCH {
            parts[i].iov_base = self.heads[i].as_mut_ptr().cast();
            parts[i].iov_len = self.heads[i].len();
            let header = &mut headers[i].msg_hdr;
            header.msg_iov = &raw mut parts[i];
            header.msg_iovlen = 1;
            header.msg_name = (&raw mut from[i]).cast();
            header.msg_namelen = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
            header.msg_control = self.controls[i].0.as_mut_ptr().cast();
            header.msg_controllen = CONTROL_BYTES as _;
        }
        // SAFETY: each header points at a part, an address and a control of its own, and each part at
        // a head of this object, writable over the lengths given. All live until after the call.
        // With MSG_TRUNC the system writes no more, and answers the frame's whole length.
        let answer = unsafe {
            libc::recvmmsg(
                self.socket.as_raw_fd(),
                headers.as_mut_ptr(),
                BATCH as libc::c_uint,
                (libc::MSG_DONTWAIT | libc::MSG_TRUNC) as _,
                std::ptr::null_mut(),
            )
        };
        let count = match check(answer) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            answer => answer? as usize,
        };
        for i in 0..count {
            let outgoing = from[i].sll_pkttype == libc::PACKET_OUTGOING as libc::c_uchar;
            let len = headers[i].msg_len as usize;
            let used = headers[i].msg_hdr.msg_controllen.min(CONTROL_BYTES);
            let Some(at_ns) = stamp(&self.controls[i].0[..used]) else { continue };
            if outgoing != (self.way == Way::Out) || len < OFFLOAD_BYTES {
                continue;
            }
            let (offload, head) =
                self.heads[i][..len.min(OFFLOAD_BYTES + KEPT_BYTES)].split_at(OFFLOAD_BYTES);
            // `struct virtio_net_hdr` {flags, gso_type: u8, hdr_len, gso_size, ...: u16}
            let segment_bytes =
                if offload[1] == 0 { 0 } else { u16::from_ne_bytes([offload[4], offload[5]]) };
            let len_bytes = (len - OFFLOAD_BYTES) as u32;
            let at = Instant::from_nanos(at_ns.saturating_sub(self.day_ahead_ns));
            hear(Stamped { at, len_bytes, segment_bytes, head });
        }
        Ok(count == BATCH)
    }

    /// Frames that the system dropped because nobody read them in time, since the last call.
    pub fn take_lost(&mut self) -> u32 {
        take_drops(self.socket.as_fd())
    }
}

impl AsFd for Capture {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// By how many nanoseconds the clock of the day, which the kernel's timestamps have, is ahead of [`crate::now`].
/// Of several looks the quickest counts, because another thread may run in between.
fn day_ahead_ns() -> u64 {
    let look = |_| {
        let before = clock(libc::CLOCK_MONOTONIC);
        let day = clock(libc::CLOCK_REALTIME);
        let after = clock(libc::CLOCK_MONOTONIC);
        (after - before, day.saturating_sub(before + (after - before) / 2))
    };
    (0..10).map(look).min().map_or(0, |(_, ahead)| ahead)
}

/// The time in a control message: `struct cmsghdr` {len: usize, level: i32, type: i32}, then
/// `struct timespec` {seconds, nanoseconds: long}.
fn stamp(control: &[u8]) -> Option<u64> {
    let number =
        |at: usize| -> Option<i32> { Some(i32::from_ne_bytes(control.get(at..at + 4)?.try_into().ok()?)) };
    const LONG: usize = size_of::<libc::c_long>();
    let long = |at: usize| -> Option<u64> {
        let bytes = control.get(at..at + LONG)?;
        Some(libc::c_long::from_ne_bytes(bytes.try_into().ok()?) as u64)
    };
    let (level_at, data) = (size_of::<usize>(), size_of::<usize>() + 8);
    let ours = number(level_at)? == libc::SOL_SOCKET && number(level_at + 4)? == libc::SCM_TIMESTAMPNS;
    if !ours {
        return None;
    }
    Some(long(data)? * 1_000_000_000 + long(data + LONG)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::now;
    use weir_core::units::Duration;

    /// On the loopback of a namespace of its own, where a datagram goes out and comes in.
    #[test]
    fn frames_are_heard_with_their_times_and_whole_lengths() {
        if !crate::is_root() {
            eprintln!("SKIPPED: needs root for a network namespace");
            return;
        }
        let run = || {
            crate::enter_new_network().unwrap();
            let up = std::process::Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap();
            assert!(up.success());
            let mut captures = [Way::In, Way::Out].map(|way| Capture::open("lo", way).unwrap());
            let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            let receiver = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            // Two clocks are read one after the other, and the processor may do something else between.
            let slack = Duration::from_millis(1);
            // Until the kernel takes times, which it begins to in the background.
            for attempt in 0.. {
                let before = now();
                for payload in [20usize, 1000, 40_000] {
                    sender.send_to(&vec![7; payload], receiver.local_addr().unwrap()).unwrap();
                }
                let after = now();
                let mut all = Vec::new();
                for capture in &mut captures {
                    let mut heard = Vec::new();
                    while heard.len() < 3 && now() < after + Duration::from_secs(5) {
                        let mut hear = |f: Stamped<'_>| {
                            assert!(f.head.len() <= KEPT_BYTES && f.segment_bytes == 0, "{f:?}");
                            if f.head[23] == 17 {
                                heard.push((f.at, f.len_bytes));
                            }
                        };
                        let _ = capture.read(&mut hear).unwrap();
                    }
                    assert_eq!(heard.iter().map(|h| h.1).collect::<Vec<_>>(), [62, 1042, 40_042]);
                    assert_eq!(capture.take_lost(), 0);
                    all.extend(heard);
                }
                if all.iter().all(|h| h.0 + slack >= before && h.0 <= after + slack) {
                    return;
                }
                assert!(attempt < 100, "{before:?} {all:?} {after:?}");
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        };
        std::thread::spawn(run).join().unwrap();
        assert!(Capture::open("no-such-one", Way::In).is_err());
    }
}
