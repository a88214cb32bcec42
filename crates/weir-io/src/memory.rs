//! An interface over queues in memory: what is fed comes out of `receive`, what is sent is kept.
//!
//! For tests of the engine without a network, and for programs that carry frames themselves.

use crate::pool::OFFLOAD_BYTES;
use crate::{BATCH, FrameRef, Io, IoStats, Pool, Refusal};
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use weir_core::queue::DropReason;

/// Frames waiting to be received, and frames that were sent.
#[derive(Default)]
pub struct Memory {
    /// Frames that `receive` will hand out, in order.
    pub arriving: VecDeque<Vec<u8>>,
    /// The offload header of all of them (`struct virtio_net_hdr`); zeroes ask for nothing.
    pub offload: [u8; OFFLOAD_BYTES],
    /// Frames that were sent, in order.
    pub sent: Vec<Vec<u8>>,
    /// Frames that `send` takes before it says that the device is full; refilled by the owner.
    /// `None` takes all.
    pub room: Option<usize>,
    /// Bytes of the longest frame that `send` takes; longer ones are refused. `None` takes any.
    pub longest: Option<u32>,
    stats: IoStats,
}

impl Memory {
    /// An interface with nothing on it.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Io for Memory {
    fn receive(&mut self, pool: &mut Pool, out: &mut Vec<FrameRef>) {
        let before = out.len();
        while out.len() - before < BATCH {
            let Some(bytes) = self.arriving.pop_front() else { return };
            let Some(frame) = pool.alloc() else {
                self.stats.rx_nobuf += 1;
                continue;
            };
            if !pool.fill(frame, &bytes) {
                self.stats.rx_nobuf += 1;
                pool.free(frame);
                continue;
            }
            pool.set_offload(frame, self.offload);
            self.stats.rx_frames += 1;
            self.stats.rx_bytes += bytes.len() as u64;
            out.push(frame);
        }
    }

    fn send(&mut self, pool: &mut Pool, frames: &[FrameRef], refused: &mut Vec<Refusal>) -> usize {
        let most = self.room.unwrap_or(usize::MAX).min(BATCH).min(frames.len());
        for &frame in &frames[..most] {
            if self.longest.is_some_and(|longest| pool.len_bytes(frame) > longest) {
                self.stats.tx_errors += 1;
                refused.push((frame, DropReason::Toolong));
                continue;
            }
            let mut bytes = Vec::with_capacity(pool.len_bytes(frame) as usize);
            pool.copy_to(frame, &mut bytes);
            self.stats.tx_frames += 1;
            self.stats.tx_bytes += bytes.len() as u64;
            self.sent.push(bytes);
        }
        if let Some(room) = &mut self.room {
            *room -= most;
        }
        most
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn stats(&mut self) -> IoStats {
        self.stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PoolSize;

    #[test]
    fn what_goes_in_comes_out_in_order_and_in_batches() {
        let mut pool = Pool::new(PoolSize { frames: 64, tails: 1 });
        let mut io = Memory::new();
        io.arriving = (0..40u8).map(|i| vec![i; 60]).collect();
        let mut frames = Vec::new();
        io.receive(&mut pool, &mut frames);
        assert_eq!(frames.len(), BATCH);
        io.receive(&mut pool, &mut frames);
        assert_eq!(frames.len(), 40);
        io.room = Some(30);
        assert_eq!(io.send(&mut pool, &frames, &mut Vec::new()), 30);
        assert_eq!(io.send(&mut pool, &frames[30..], &mut Vec::new()), 0);
        io.room = None;
        assert_eq!(io.send(&mut pool, &frames[30..], &mut Vec::new()), 10);
        assert_eq!(io.sent, (0..40u8).map(|i| vec![i; 60]).collect::<Vec<_>>());
        let stats = io.stats();
        assert_eq!((stats.rx_frames, stats.tx_frames, stats.tx_bytes), (40, 40, 2400));
    }

    #[test]
    fn a_frame_that_is_too_long_is_done_with_and_named() {
        let mut pool = Pool::new(PoolSize { frames: 64, tails: 1 });
        let mut io = Memory { longest: Some(60), ..Memory::new() };
        io.arriving = [vec![1; 60], vec![2; 61], vec![3; 60]].into();
        let (mut frames, mut refused) = (Vec::new(), Vec::new());
        io.receive(&mut pool, &mut frames);
        assert_eq!(io.send(&mut pool, &frames, &mut refused), 3);
        assert_eq!(refused, [(frames[1], DropReason::Toolong)]);
        assert_eq!((io.stats().tx_frames, io.stats().tx_errors), (2, 1));
    }

    #[test]
    fn a_pool_that_is_empty_costs_frames_and_says_so() {
        let mut pool = Pool::new(PoolSize { frames: 1, tails: 0 });
        let mut io = Memory::new();
        io.arriving = [vec![1; 60], vec![2; 60]].into();
        let mut frames = Vec::new();
        io.receive(&mut pool, &mut frames);
        assert_eq!((frames.len(), io.stats().rx_nobuf), (1, 1));
    }
}
