//! An interface's frames by a raw socket, in batches, into and out of the pool.
//!
//! Works on every interface that Linux has. The socket sees a *copy* of what arrives: nothing
//! keeps the kernel from handling the frame too, so a bridge's interfaces carry no addresses and
//! forwarding is off.
//!
//! - Offload header (`PACKET_VNET_HDR`): frames keep their partial checksums and the segmentation
//!   that they were handed over with, and leave with both, if the segments fit the MTU. The kernel
//!   segments on sending and repeats the IP header, so changing DSCP or ECN in it beforehand is sound: the IP header's own
//!   checksum is never partial, and the pseudo header of TCP and UDP holds neither field.
//! - VLAN tags, which the kernel strips on receipt, are put back into the frame.
//! - What arrives stands in a ring that is shared with the system, and is copied out of it: 7 % of a
//!   worker's time; by `recvmmsg` it was 39 %. What is longer than 1972 bytes, an aggregate or a jumbo frame, stands
//!   in the socket's queue besides, and is fetched from there.
//! - Batches of [`BATCH`] leave with `sendmmsg`, through the interface's own queueing
//!   discipline. Past it (`PACKET_QDISC_BYPASS`) the kernel drops what it would have to segment.

use crate::device::Device;
use crate::pool::OFFLOAD_BYTES;
use crate::segment::Aggregate;
use crate::{BATCH, FrameRef, Io, IoStats, Place, Pool, Refusal, Socket};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use weir_core::queue::DropReason;
use weir_sys::packet::{Arrival, BUFFER_BYTES, PacketSocket, SendError};

/// An interface, opened for raw frames.
pub struct AfPacket {
    socket: PacketSocket,
    /// Frames waiting to be filled, so that a receive that finds nothing costs no allocation.
    slots: Vec<FrameRef>,
    /// Frames being filled from the socket's queue, for as long as a call lasts.
    empty: Vec<FrameRef>,
    /// Times that the ring was found empty.
    silences: u32,
    device: Device,
    /// Bytes up to which the device's queue may grow, as the system counts them.
    short_bytes: Option<u64>,
    stats: IoStats,
}

impl AfPacket {
    /// Opens `interface` of this network namespace, promiscuous, with `buffer_bytes` of room for
    /// frames that arrive between two calls (0: 4 MB).
    ///
    /// # Errors
    /// No such interface, or no privilege for raw sockets.
    pub fn open(interface: &str, buffer_bytes: usize) -> io::Result<Self> {
        PacketSocket::open_ring(interface, buffer_bytes, None).map(AfPacket::over)
    }

    /// The interface of `socket`.
    pub fn over(socket: PacketSocket) -> Self {
        AfPacket {
            socket,
            slots: Vec::with_capacity(BATCH),
            empty: Vec::with_capacity(BATCH),
            silences: 0,
            device: Device::default(),
            short_bytes: None,
            stats: IoStats::default(),
        }
    }

    /// The same, counting on from `stats`.
    pub fn resumed(socket: PacketSocket, stats: IoStats) -> Self {
        AfPacket { stats, ..AfPacket::over(socket) }
    }
}

/// What may stand in a device that nothing manages.
const LONG_QUEUE_BYTES: u64 = 8 << 20;

/// An empty ring is asked every so many times for what went wrong.
const SILENCES: u32 = 16;

impl AfPacket {
    /// Tells the socket how much may stand in the device. Without the privilege, as much as it allows.
    fn limit_queue(&self) {
        let _ = self.socket.keep_queue_short(self.short_bytes.unwrap_or(LONG_QUEUE_BYTES));
    }
    /// True for an aggregate whose segments are longer than the MTU. The kernel looks at the length
    /// of single packets only.
    fn segments_too_long(&self, pool: &Pool, frame: FrameRef) -> bool {
        Aggregate::of(pool, frame).is_some_and(|aggregate| aggregate.longest_packet_bytes() > self.device.mtu)
    }
}

/// Batches that a call of `receive` looks at, at most, where frames are lost for want of a buffer.
const MOST_BATCHES: usize = 8;

impl AfPacket {
    /// A frame to be filled.
    fn slot(&mut self, pool: &mut Pool) -> Option<FrameRef> {
        self.slots.pop().or_else(|| pool.alloc())
    }

    /// Receives up to `most` frames, at most a batch: true if more may be waiting.
    fn receive_batch(&mut self, pool: &mut Pool, most: usize, out: &mut Vec<FrameRef>) -> bool {
        let before = out.len();
        if self.socket.has_ring() {
            let (seen, queued) = self.take_from_ring(pool, most, out);
            if queued {
                self.take_from_queue(pool, out, before);
            }
            return seen >= most;
        }
        while out.len() < before + most
            && let Some(slot) = self.slot(pool)
        {
            out.push(slot);
        }
        out.len() > before && self.take_from_queue(pool, out, before)
    }

    /// Appends what stands in the ring to `out`, at most `most` frames: how many there were, lost ones
    /// among them, and whether some are yet to be filled, those that were too long for the ring.
    fn take_from_ring(&mut self, pool: &mut Pool, most: usize, out: &mut Vec<FrameRef>) -> (usize, bool) {
        let (mut seen, mut queued) = (0, false);
        while seen < most
            && let Some(slot) = self.slot(pool)
        {
            let Some(arrival) = self.socket.arrival() else {
                self.slots.push(slot);
                break;
            };
            match arrival {
                Arrival::Whole { bytes, vlan_tag } if bytes.len() > OFFLOAD_BYTES => {
                    pool.receive_copy(slot, bytes, vlan_tag);
                    self.stats.rx_frames += 1;
                    self.stats.rx_bytes += u64::from(pool.len_bytes(slot));
                    out.push(slot);
                }
                Arrival::Queued => {
                    queued = true;
                    out.push(slot);
                }
                Arrival::Whole { .. } | Arrival::Cut => {
                    self.stats.rx_nobuf += 1;
                    self.slots.push(slot);
                }
            }
            self.socket.release();
            seen += 1;
        }
        if seen == 0 {
            self.silences = self.silences.wrapping_add(1);
            if self.silences.is_multiple_of(SILENCES) {
                self.ask_for_error();
            }
        }
        (seen, queued)
    }

    /// A link that went down costs nothing but is counted, and must be asked for: until then the socket
    /// counts as readable.
    fn ask_for_error(&mut self) {
        self.stats.rx_errors += u64::from(self.socket.has_ring() && self.socket.take_error().is_some());
    }

    /// Fills the empty ones of the frames of `out` from `before` on from the socket's queue. Those that
    /// cannot be filled are given back. True if more may be waiting.
    fn take_from_queue(&mut self, pool: &mut Pool, out: &mut Vec<FrameRef>, before: usize) -> bool {
        self.empty.clear();
        self.empty.extend(out[before..].iter().filter(|&&frame| pool.len_bytes(frame) == 0));
        for &frame in &self.empty {
            // Without a tail a long frame is truncated, seen below, and counted.
            pool.attach_tail(frame);
        }
        let (mut done, mut more) = (0, false);
        while done < self.empty.len() {
            let rest = &self.empty[done..];
            let mut rooms = pool.receive_rooms(rest);
            match self.socket.receive(&mut rooms[..rest.len()]) {
                Ok(count) => {
                    for (i, &frame) in rest[..count].iter().enumerate() {
                        let received = self.socket.received(i);
                        let len = received.len_bytes.saturating_sub(OFFLOAD_BYTES);
                        if received.truncated || len == 0 {
                            self.stats.rx_nobuf += 1;
                            continue;
                        }
                        pool.received(frame, len, received.vlan_tag);
                        self.stats.rx_frames += 1;
                        self.stats.rx_bytes += u64::from(pool.len_bytes(frame));
                    }
                    done += count;
                    more = done == self.empty.len();
                }
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => break,
                Err(e) => {
                    // That the link went down, or a frame whose offload has no form in this header: the
                    // system has taken that one from the queue, and it is lost.
                    self.stats.rx_errors += 1;
                    done += usize::from(e.kind() != io::ErrorKind::NetworkDown);
                    more = true;
                }
            }
            // What the ring says is in the queue is fetched to the last, so that slots and queue keep step: it may
            // stand behind the news that the link went down. Without a ring it waits for the next call.
            if !self.socket.has_ring() {
                break;
            }
        }
        let slots = &mut self.slots;
        out.retain(|&frame| {
            let filled = pool.len_bytes(frame) > 0;
            if !filled {
                slots.push(frame);
            }
            filled
        });
        more
    }
}

impl Io for AfPacket {
    fn receive(&mut self, pool: &mut Pool, out: &mut Vec<FrameRef>) {
        let before = out.len();
        for _ in 0..MOST_BATCHES {
            // What was too long for its buffer is no sign that nothing more is there.
            let most = BATCH - (out.len() - before);
            if most == 0 || !self.receive_batch(pool, most, out) {
                return;
            }
        }
    }

    fn send(&mut self, pool: &mut Pool, frames: &[FrameRef], refused: &mut Vec<Refusal>) -> usize {
        let frames = &frames[..frames.len().min(BATCH)];
        if let Some(reason) = self.device.trouble(|| self.socket.interface()) {
            self.stats.tx_errors += frames.len() as u64;
            refused.extend(frames.iter().map(|&frame| (frame, reason)));
            return frames.len();
        }
        let parts = pool.send_parts(frames);
        let mut done = 0;
        while done < frames.len() {
            let mut these = frames[done..].iter();
            let fit = these.position(|&f| self.segments_too_long(pool, f)).unwrap_or(frames.len() - done);
            let answer = match fit {
                0 => Err(SendError::TooLong),
                _ => self.socket.send(&parts[done..done + fit]),
            };
            let reason = match answer {
                Ok(count) => {
                    for &frame in &frames[done..done + count] {
                        self.stats.tx_frames += 1;
                        self.stats.tx_bytes += u64::from(pool.len_bytes(frame));
                    }
                    done += count;
                    continue;
                }
                Err(SendError::Full) => break,
                Err(SendError::TooLong) => DropReason::Toolong,
                Err(SendError::NoRoom) => DropReason::Devicefull,
                Err(SendError::LinkDown) => DropReason::Portdown,
                Err(SendError::Other) => DropReason::Refused,
            };
            // The first frame is lost, as on any link, and the next one gets its chance.
            self.stats.tx_errors += 1;
            refused.push((frames[done], reason));
            done += 1;
        }
        if self.short_bytes.is_some() {
            let queued_bytes = self.socket.queued_bytes();
            self.stats.tx_queue_most_bytes = self.stats.tx_queue_most_bytes.max(queued_bytes);
        }
        done
    }

    fn keep_queue_short(&mut self, bytes: Option<u64>, frame_bytes: u32) {
        // The system takes a frame that begins below the limit, and counts its whole buffer.
        let frame_bytes = u64::from(frame_bytes.max(60));
        let buffers = |bytes: u64| bytes + bytes.div_ceil(frame_bytes) * BUFFER_BYTES;
        self.short_bytes = bytes.map(|bytes| buffers(bytes.saturating_sub(frame_bytes)));
        self.limit_queue();
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn stats(&mut self) -> IoStats {
        self.ask_for_error();
        self.stats.rx_overrun += u64::from(self.socket.take_overruns());
        if self.short_bytes.is_some() {
            self.stats.tx_queue_bytes = self.socket.queued_bytes();
        }
        self.stats
    }

    fn filter(&mut self, filter: Option<BorrowedFd<'_>>) -> io::Result<()> {
        self.socket.set_filter(filter)
    }

    fn pass(&mut self) -> io::Result<(Vec<OwnedFd>, Place)> {
        let ring = self.socket.ring_place().map(|(slots, next)| Place::Ring { slots, next });
        Ok((vec![self.socket.as_fd().try_clone_to_owned()?], ring.unwrap_or_default()))
    }

    fn way(&self) -> String {
        "AF_PACKET".into()
    }

    fn exchange(&mut self, socket: Socket) {
        let Socket::Packet(socket) = socket else { return };
        self.stats();
        (self.socket, self.device) = (socket, Device::default());
        // A socket comes with as much room as its opener had the right to; a worker has none.
        if self.short_bytes.is_some() {
            self.limit_queue();
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
