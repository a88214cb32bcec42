//! An interface over queues in memory: what is fed comes out of `receive`, what is sent is kept.
//!
//! For tests of the engine without a network, and for programs that carry frames themselves.

use crate::{BATCH, FrameRef, Io, IoStats, Pool};
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

/// Frames waiting to be received, and frames that were sent.
#[derive(Default)]
pub struct Memory {
    /// Frames that `receive` will hand out, in order.
    pub arriving: VecDeque<Vec<u8>>,
    /// Frames that were sent, in order.
    pub sent: Vec<Vec<u8>>,
    /// Frames that `send` takes before it says that the device is full; refilled by the owner.
    /// `None` takes all.
    pub room: Option<usize>,
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
        for _ in 0..BATCH {
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
            self.stats.rx_frames += 1;
            self.stats.rx_bytes += bytes.len() as u64;
            out.push(frame);
        }
    }

    fn send(&mut self, pool: &mut Pool, frames: &[FrameRef]) -> usize {
        let most = self.room.unwrap_or(usize::MAX).min(BATCH).min(frames.len());
        for &frame in &frames[..most] {
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
        assert_eq!(io.send(&mut pool, &frames), 30);
        assert_eq!(io.send(&mut pool, &frames[30..]), 0);
        io.room = None;
        assert_eq!(io.send(&mut pool, &frames[30..]), 10);
        assert_eq!(io.sent, (0..40u8).map(|i| vec![i; 60]).collect::<Vec<_>>());
        let stats = io.stats();
        assert_eq!((stats.rx_frames, stats.tx_frames, stats.tx_bytes), (40, 40, 2400));
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
