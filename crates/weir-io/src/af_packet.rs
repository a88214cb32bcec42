//! A raw socket on an interface: AF_PACKET with offload headers, in batches.
//!
//! Works on every interface that Linux has. The socket sees a *copy* of what arrives: nothing
//! keeps the kernel from handling the frame too, so a bridge's interfaces carry no addresses and
//! forwarding is off.
//!
//! - Offload header (`PACKET_VNET_HDR`): frames keep their partial checksums and the segmentation
//!   that they were handed over with, and leave with both. The kernel segments on sending and
//!   repeats the IP header, so changing DSCP or ECN in it beforehand is sound: the IP header's own
//!   checksum is never partial, and the pseudo header of TCP and UDP holds neither field.
//! - VLAN tags, which the kernel strips on receipt, are put back into the frame.
//! - Batches of [`BATCH`] with `recvmmsg` and `sendmmsg`, past the interface's own queueing
//!   discipline (`PACKET_QDISC_BYPASS`): queueing is this project's job.
#![allow(unsafe_code, reason = "raw sockets and batched system calls")]

use crate::pool::OFFLOAD_BYTES;
use crate::sys::{check, interface_index};
use crate::{BATCH, FrameRef, Io, IoStats, Pool};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

const SOL_PACKET: libc::c_int = 263;
const PACKET_STATISTICS: libc::c_int = 6;
const PACKET_AUXDATA: libc::c_int = 8;
const PACKET_VNET_HDR: libc::c_int = 15;
const PACKET_QDISC_BYPASS: libc::c_int = 20;
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;
const TP_STATUS_VLAN_VALID: u32 = 1 << 4;
const TP_STATUS_VLAN_TPID_VALID: u32 = 1 << 6;
/// Room for one control message: its header and 20 bytes of `tpacket_auxdata`.
const CONTROL_BYTES: usize = 64;

#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; CONTROL_BYTES]);

/// An interface, opened for raw frames.
pub struct AfPacket {
    socket: OwnedFd,
    /// Frames waiting to be filled, so that a receive that finds nothing costs no allocation.
    slots: Vec<FrameRef>,
    headers: Box<[libc::mmsghdr; BATCH]>,
    parts: Box<[[libc::iovec; 2]; BATCH]>,
    controls: Box<[Control; BATCH]>,
    stats: IoStats,
}

// SAFETY: the raw pointers in `headers` and `parts` are written before each system call from
// buffers that outlive it and are never read otherwise, so they carry no tie to a thread.
unsafe impl Send for AfPacket {}

impl AfPacket {
    /// Opens `interface` of this network namespace, promiscuous, with `buffer_bytes` of room for
    /// frames that arrive between two calls (0: 4 MB).
    pub fn open(interface: &str, buffer_bytes: usize) -> io::Result<Self> {
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
        option(SOL_PACKET, PACKET_QDISC_BYPASS, 1)?;
        option(SOL_PACKET, PACKET_AUXDATA, 1)?;
        let room = libc::c_int::try_from(buffer_bytes).unwrap_or(libc::c_int::MAX);
        let room = if room == 0 { 4 << 20 } else { room };
        // Without the privilege to exceed the limit, take what the limit allows.
        for (force, plain) in
            [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)]
        {
            option(libc::SOL_SOCKET, force, room).or_else(|_| option(libc::SOL_SOCKET, plain, room))?;
        }
        let member = libc::packet_mreq {
            mr_ifindex: index as libc::c_int,
            mr_type: libc::PACKET_MR_PROMISC as libc::c_ushort,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        set_option(socket.as_fd(), SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &member)?;
        // SAFETY: a sockaddr_ll is plain numbers, for which all zeroes is valid.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as libc::c_ushort;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = index as libc::c_int;
        let size = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: `address` is a valid sockaddr_ll of the size given, alive until after the call.
        check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size) })?;
        // SAFETY: mmsghdr and iovec are plain numbers and pointers; all zeroes is valid, null.
        let (headers, parts) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        Ok(AfPacket {
            socket,
            slots: Vec::with_capacity(BATCH),
            headers: Box::new(headers),
            parts: Box::new(parts),
            controls: Box::new([Control([0; CONTROL_BYTES]); BATCH]),
            stats: IoStats::default(),
        })
    }

    /// Points the message headers at the buffers of the waiting slots.
    fn aim(&mut self, pool: &mut Pool) {
        for (i, &slot) in self.slots.iter().enumerate() {
            let (head, tail) = pool.receive_room(slot);
            let part = &mut self.parts[i];
            part[0] = libc::iovec { iov_base: head.as_mut_ptr().cast(), iov_len: head.len() };
            part[1] = libc::iovec { iov_base: tail.as_mut_ptr().cast(), iov_len: tail.len() };
            let header = &mut self.headers[i].msg_hdr;
            header.msg_iov = part.as_mut_ptr();
            header.msg_iovlen = if tail.is_empty() { 1 } else { 2 };
            header.msg_control = self.controls[i].0.as_mut_ptr().cast();
            header.msg_controllen = CONTROL_BYTES as _;
            header.msg_flags = 0;
        }
    }
}

impl Io for AfPacket {
    fn receive(&mut self, pool: &mut Pool, out: &mut Vec<FrameRef>) {
        while self.slots.len() < BATCH {
            let Some(slot) = pool.alloc() else { break };
            self.slots.push(slot);
        }
        for &slot in &self.slots {
            // Without a tail a long frame is truncated, seen below, and counted.
            pool.attach_tail(slot);
        }
        if self.slots.is_empty() {
            return;
        }
        self.aim(pool);
        // SAFETY: the first `slots.len()` headers point at parts and controls of this object and
        // at distinct buffers of `pool`, all borrowed mutably for the whole call; the kernel
        // writes at most the lengths given. The timeout may be null.
        let answer = unsafe {
            libc::recvmmsg(
                self.socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                self.slots.len() as libc::c_uint,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        let count = match check(answer) {
            Ok(count) => count as usize,
            Err(e) => {
                // A link that went down, or a frame whose offload has no form in this header:
                // the system has taken it from the queue, and it is lost.
                let nothing = matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted);
                self.stats.rx_errors += u64::from(!nothing);
                return;
            }
        };
        for (i, slot) in self.slots.drain(..count).enumerate() {
            let header = &self.headers[i];
            let len = (header.msg_len as usize).saturating_sub(OFFLOAD_BYTES);
            if header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0 || len == 0 {
                self.stats.rx_nobuf += 1;
                pool.free(slot);
                continue;
            }
            let used = header.msg_hdr.msg_controllen.min(CONTROL_BYTES);
            pool.received(slot, len, vlan_tag(&self.controls[i].0[..used]));
            self.stats.rx_frames += 1;
            self.stats.rx_bytes += u64::from(pool.len_bytes(slot));
            out.push(slot);
        }
    }

    fn send(&mut self, pool: &mut Pool, frames: &[FrameRef]) -> usize {
        let frames = &frames[..frames.len().min(BATCH)];
        for (i, &frame) in frames.iter().enumerate() {
            let (head, tail) = pool.send_parts(frame);
            let part = &mut self.parts[i];
            part[0] = libc::iovec { iov_base: head.as_ptr().cast_mut().cast(), iov_len: head.len() };
            part[1] = libc::iovec { iov_base: tail.as_ptr().cast_mut().cast(), iov_len: tail.len() };
            let header = &mut self.headers[i].msg_hdr;
            header.msg_iov = part.as_mut_ptr();
            header.msg_iovlen = if tail.is_empty() { 1 } else { 2 };
            header.msg_control = std::ptr::null_mut();
            header.msg_controllen = 0;
            header.msg_flags = 0;
        }
        let mut done = 0;
        while done < frames.len() {
            // SAFETY: headers `done..frames.len()` point at parts of this object and at buffers
            // of `pool`, borrowed for the whole call; sending only reads them.
            let answer = unsafe {
                libc::sendmmsg(
                    self.socket.as_raw_fd(),
                    self.headers.as_mut_ptr().add(done),
                    (frames.len() - done) as libc::c_uint,
                    libc::MSG_DONTWAIT as _,
                )
            };
            match check(answer) {
                Ok(count) => {
                    for &frame in &frames[done..done + count as usize] {
                        self.stats.tx_frames += 1;
                        self.stats.tx_bytes += u64::from(pool.len_bytes(frame));
                    }
                    done += count as usize;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    // The first frame was refused (too long, device full or down): it is lost,
                    // as on any link, and the next one gets its chance.
                    self.stats.tx_errors += 1;
                    done += 1;
                }
            }
        }
        done
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn stats(&mut self) -> IoStats {
        let mut counts = [0u32; 2];
        let mut size = size_of_val(&counts) as libc::socklen_t;
        // SAFETY: `counts` has the size given (tpacket_stats: packets, drops), and both live
        // until after the call.
        let answer = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                SOL_PACKET,
                PACKET_STATISTICS,
                counts.as_mut_ptr().cast(),
                &raw mut size,
            )
        };
        if answer == 0 {
            // Reading resets the kernel's counter.
            self.stats.rx_overrun += u64::from(counts[1]);
        }
        self.stats
    }
}

/// Sets a socket option to the bytes of `value`, a plain number or structure of the system.
fn set_option<T>(socket: BorrowedFd<'_>, level: libc::c_int, name: libc::c_int, value: &T) -> io::Result<()> {
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
