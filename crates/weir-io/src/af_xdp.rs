//! An interface's frames by AF_XDP, in batches: a program in the driver hands them over before the
//! kernel has made packets of them.
//!
//! - The kernel does not see what comes in this way: nothing has to keep it from handling a frame too.
//! - Frames are as long as the MTU allows, never aggregates. The driver has the senders' systems
//!   take those apart, or the sender does itself (`tso off`).
//! - They have no offload header. A checksum that a sender left to its device is seen by its value,
//!   and completed before it is sent.
//! - Each frame is copied once from the socket's memory into the pool, and once back. So nobody but
//!   the socket ever shares memory with the kernel, and a pool is the same for every way in.

use crate::checksum::{complete, mark_partial};
use crate::device::Device;
use crate::{BATCH, FrameRef, Io, IoStats, Place, Pool, Refusal, Socket};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use weir_core::queue::DropReason;
use weir_sys::packet::SendError;
use weir_sys::xdp::XdpSocket;

/// Bytes of an Ethernet header, and of one VLAN tag, which an MTU leaves room for besides.
const LAYER_2: u32 = 14;
const TAG: u32 = 4;

/// An interface, opened for frames that no kernel has touched.
pub struct AfXdp {
    socket: XdpSocket,
    device: Device,
    /// Of the frames that were offered last, how many stand in the socket and are not taken: the
    /// caller offers them again, first of all.
    waiting: usize,
    /// Bytes that may stand in the device.
    short_bytes: u64,
    stats: IoStats,
}

impl AfXdp {
    /// The interface of `socket`.
    pub fn over(socket: XdpSocket) -> Self {
        AfXdp::resumed(socket, IoStats::default())
    }

    /// The same, counting on from `stats`.
    pub fn resumed(socket: XdpSocket, stats: IoStats) -> Self {
        AfXdp { socket, device: Device::default(), waiting: 0, short_bytes: u64::MAX, stats }
    }

    /// Whether the frame can be sent: it fits the MTU, and its checksum is complete now.
    fn is_sound(&mut self, pool: &mut Pool, frame: FrameRef) -> Result<(), DropReason> {
        let tagged = matches!(pool.head(frame).get(12..14), Some([0x81, 0] | [0x88, 0xa8]));
        let most = self.device.mtu + LAYER_2 + if tagged { TAG } else { 0 };
        if pool.len_bytes(frame) > most.min(self.socket.longest_bytes()) {
            return Err(DropReason::Toolong);
        }
        if complete(pool, frame) { Ok(()) } else { Err(DropReason::Refused) }
    }

    /// Puts frames into the socket, up to one that cannot be sent: that reason.
    fn put(&mut self, pool: &mut Pool, frames: &[FrameRef]) -> Option<DropReason> {
        for &frame in frames {
            let len = u64::from(pool.len_bytes(frame));
            let queued_bytes = self.socket.queued_bytes();
            if queued_bytes > 0 && queued_bytes + len > self.short_bytes {
                return None;
            }
            if let Err(reason) = self.is_sound(pool, frame) {
                return Some(reason);
            }
            if !self.socket.put([pool.head(frame), pool.tail(frame)]) {
                return None;
            }
            self.waiting += 1;
        }
        None
    }
}

impl Io for AfXdp {
    fn receive(&mut self, pool: &mut Pool, out: &mut Vec<FrameRef>) {
        let AfXdp { socket, stats, .. } = self;
        socket.receive(BATCH, |bytes| {
            let frame = pool.alloc().filter(|frame| {
                let fits = pool.fill(*frame, bytes);
                if !fits {
                    pool.free(*frame);
                }
                fits
            });
            let Some(frame) = frame else {
                stats.rx_nobuf += 1;
                return;
            };
            mark_partial(pool, frame);
            stats.rx_frames += 1;
            stats.rx_bytes += bytes.len() as u64;
            out.push(frame);
        });
    }

    fn send(&mut self, pool: &mut Pool, frames: &[FrameRef], refused: &mut Vec<Refusal>) -> usize {
        let frames = &frames[..frames.len().min(BATCH)];
        let mut done = 0;
        let mut refuse = |stats: &mut IoStats, frames: &[FrameRef], reason| {
            stats.tx_errors += frames.len() as u64;
            refused.extend(frames.iter().map(|&frame| (frame, reason)));
        };
        if let Some(reason) = self.device.trouble(|| self.socket.interface()) {
            // What is lost does not leave when there is a carrier again.
            self.socket.withdraw();
            refuse(&mut self.stats, frames, reason);
            self.waiting = 0;
            return frames.len();
        }
        while done < frames.len() {
            let unfit = self.put(pool, &frames[done + self.waiting..]);
            if self.waiting == 0 {
                let Some(reason) = unfit else { break };
                refuse(&mut self.stats, &frames[done..=done], reason);
                done += 1;
                continue;
            }
            let answer = self.socket.send();
            let left = self.socket.untaken().min(self.waiting);
            let taken = &frames[done..done + self.waiting - left];
            (self.waiting, done) = (left, done + taken.len());
            if taken.is_empty() {
                break;
            }
            let (sent, lost) = taken.split_at(taken.len() - usize::from(answer == Err(SendError::NoRoom)));
            for &frame in sent {
                self.stats.tx_frames += 1;
                self.stats.tx_bytes += u64::from(pool.len_bytes(frame));
            }
            refuse(&mut self.stats, lost, DropReason::Devicefull);
        }
        let queued_bytes = self.socket.queued_bytes();
        self.stats.tx_queue_most_bytes = self.stats.tx_queue_most_bytes.max(queued_bytes);
        done
    }

    fn keep_queue_short(&mut self, bytes: Option<u64>, _frame_bytes: u32) {
        self.short_bytes = bytes.unwrap_or(u64::MAX);
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn pass(&mut self) -> io::Result<(Vec<OwnedFd>, Place)> {
        // The caller offers them again, here or there.
        self.socket.withdraw();
        self.waiting = 0;
        let (descriptors, place) = self.socket.pass()?;
        Ok((descriptors, Place::Xdp(place)))
    }

    fn is_polled(&self) -> bool {
        self.socket.mode().busy_poll
    }

    fn way(&self) -> String {
        let mode = self.socket.mode();
        let where_ = if mode.native { "in the driver" } else { "behind the driver" };
        let how = if mode.zero_copy { "zero copy" } else { "copying" };
        format!("AF_XDP {where_}, {how}{}", if mode.busy_poll { ", busy polling" } else { "" })
    }

    fn stats(&mut self) -> IoStats {
        self.stats.rx_overrun += self.socket.take_overruns();
        self.stats.tx_queue_bytes = self.socket.queued_bytes();
        self.stats
    }

    fn exchange(&mut self, socket: Socket) {
        let Socket::Xdp(socket) = socket else { return };
        self.stats();
        (self.socket, self.device, self.waiting) = (*socket, Device::default(), 0);
    }
}

#[cfg(test)]
mod tests;
