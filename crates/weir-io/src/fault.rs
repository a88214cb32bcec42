//! A wrapper that does to frames what bad networks do: drops, repeats, damages and withholds
//! them, and returns short batches. Seeded: the same seed and calls, the same faults.

use crate::{BATCH, FrameRef, Io, IoStats, Pool, Refusal, Socket};
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

/// How often each fault strikes, in frames out of a thousand.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Faults {
    /// The frame vanishes.
    pub drop: u16,
    /// The frame arrives twice.
    pub duplicate: u16,
    /// One byte of its first 2 KB is changed.
    pub corrupt: u16,
    /// The frame is cut short.
    pub truncate: u16,
    /// The frame is held back for some calls, so that later ones overtake it.
    pub delay: u16,
    /// `send` takes fewer frames than offered (per call, not per frame).
    pub short_send: u16,
}

/// What the wrapper did.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FaultCounts {
    /// Frames that vanished.
    pub dropped: u64,
    /// Frames that arrived twice.
    pub duplicated: u64,
    /// Frames with a changed byte.
    pub corrupted: u64,
    /// Frames cut short.
    pub truncated: u64,
    /// Frames held back.
    pub delayed: u64,
}

/// An interface with faults on its receiving side, and short sends.
pub struct Faulty<I> {
    inner: I,
    faults: Faults,
    counts: FaultCounts,
    random: u64,
    held: VecDeque<(u8, FrameRef)>,
    fresh: Vec<FrameRef>,
}

impl<I: Io> Faulty<I> {
    /// Wraps `inner`.
    pub fn new(inner: I, faults: Faults, seed: u64) -> Self {
        Faulty {
            inner,
            faults,
            counts: FaultCounts::default(),
            random: seed,
            held: VecDeque::new(),
            fresh: Vec::new(),
        }
    }

    /// The interface inside.
    pub fn inner(&mut self) -> &mut I {
        &mut self.inner
    }
    /// What was done so far.
    pub fn counts(&self) -> FaultCounts {
        self.counts
    }
    /// Frames held back now.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014).
    fn next(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    fn strikes(&mut self, per_thousand: u16) -> bool {
        per_thousand > 0 && self.next() % 1000 < u64::from(per_thousand)
    }

    fn damage(&mut self, pool: &mut Pool, frame: FrameRef) {
        if self.strikes(self.faults.corrupt) {
            let (at, by) = (self.next(), self.next());
            let bytes = pool.head_mut(frame);
            if let Some(byte) = bytes.get_mut((at % bytes.len().max(1) as u64) as usize) {
                *byte ^= (by % 255) as u8 + 1;
                self.counts.corrupted += 1;
            }
        }
        if self.strikes(self.faults.truncate) {
            let mut bytes = Vec::new();
            pool.copy_to(frame, &mut bytes);
            bytes.truncate((self.next() % (bytes.len() as u64 + 1)) as usize);
            if pool.fill(frame, &bytes) {
                self.counts.truncated += 1;
            }
        }
    }
}

impl<I: Io> Io for Faulty<I> {
    fn receive(&mut self, pool: &mut Pool, out: &mut Vec<FrameRef>) {
        let mut fresh = std::mem::take(&mut self.fresh);
        self.inner.receive(pool, &mut fresh);
        for frame in fresh.drain(..) {
            if self.strikes(self.faults.drop) {
                self.counts.dropped += 1;
                pool.free(frame);
                continue;
            }
            if self.strikes(self.faults.duplicate)
                && let Some(twin) = pool.alloc()
            {
                if pool.copy(frame, twin) {
                    self.counts.duplicated += 1;
                    out.push(twin);
                } else {
                    pool.free(twin);
                }
            }
            self.damage(pool, frame);
            if self.strikes(self.faults.delay) {
                self.counts.delayed += 1;
                let calls = (self.next() % 8) as u8 + 1;
                self.held.push_back((calls, frame));
                continue;
            }
            out.push(frame);
        }
        self.fresh = fresh;
        for (calls, _) in &mut self.held {
            *calls = calls.saturating_sub(1);
        }
        while let Some(&(0, frame)) = self.held.front() {
            self.held.pop_front();
            out.push(frame);
        }
    }

    fn send(&mut self, pool: &mut Pool, frames: &[FrameRef], refused: &mut Vec<Refusal>) -> usize {
        let mut most = frames.len().min(BATCH);
        if self.strikes(self.faults.short_send) {
            most = (self.next() % (most as u64 + 1)) as usize;
        }
        self.inner.send(pool, &frames[..most], refused)
    }

    fn discard(&mut self, frames: &[FrameRef]) {
        self.inner.discard(frames);
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inner.descriptor()
    }

    fn stats(&mut self) -> IoStats {
        self.inner.stats()
    }

    fn keep_queue_short(&mut self, bytes: Option<u64>, frame_bytes: u32) {
        self.inner.keep_queue_short(bytes, frame_bytes);
    }

    fn is_polled(&self) -> bool {
        self.inner.is_polled()
    }

    fn way(&self) -> String {
        self.inner.way()
    }

    fn exchange(&mut self, socket: Socket) {
        self.inner.exchange(socket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PoolSize;
    use crate::memory::Memory;

    const ALL: Faults =
        Faults { drop: 100, duplicate: 80, corrupt: 60, truncate: 40, delay: 120, short_send: 300 };

    fn run(faults: Faults, seed: u64) -> (Vec<Vec<u8>>, FaultCounts) {
        let size = PoolSize { frames: 256, tails: 8 };
        let mut pool = Pool::new(size);
        let mut io = Faulty::new(Memory::new(), faults, seed);
        io.inner().arriving = (0..4000u32).map(|i| i.to_be_bytes().repeat(20)).collect();
        let mut frames = Vec::new();
        while !io.inner().arriving.is_empty() || io.held() > 0 {
            io.receive(&mut pool, &mut frames);
            while !frames.is_empty() {
                let done = io.send(&mut pool, &frames, &mut Vec::new());
                frames.drain(..done).for_each(|f| pool.free(f));
            }
        }
        assert_eq!(pool.available(), size.frames as usize, "every frame came back");
        (std::mem::take(&mut io.inner().sent), io.counts())
    }

    #[test]
    fn every_fault_strikes_at_its_rate_and_frames_are_conserved() {
        let (sent, counts) = run(ALL, weir_seed::seed());
        assert_eq!(sent.len() as u64, 4000 - counts.dropped + counts.duplicated);
        for (count, rate) in [
            (counts.dropped, ALL.drop),
            (counts.duplicated, ALL.duplicate),
            (counts.corrupted, ALL.corrupt),
            (counts.truncated, ALL.truncate),
            (counts.delayed, ALL.delay),
        ] {
            let expected = u64::from(rate) * 4;
            // The rarest is expected 160 times, with a deviation of 12.4: six are 75.
            assert!(count > expected / 2 && count < expected * 3 / 2, "{counts:?}");
        }
        assert!(sent.windows(2).any(|w| w[0] > w[1]), "some frame was overtaken");
    }

    #[test]
    fn the_same_seed_does_the_same_and_no_faults_do_nothing() {
        assert_eq!(run(ALL, 3), run(ALL, 3));
        assert_ne!(run(ALL, 3).0, run(ALL, 4).0);
        let (sent, counts) = run(Faults::default(), 3);
        assert_eq!((sent.len(), counts), (4000, FaultCounts::default()));
        assert!(sent.windows(2).all(|w| w[0] < w[1]));
    }
}
