//! Frames on their way from the worker that received them to the one whose part of the port has their class.
//!
//! Principle: from each worker to each other one goes a ring of bytes, with one writer and one reader. A frame is copied
//! into it behind its length and its offload header, and out of it into the other's pool. So each keeps its buffers, and
//! none comes back. A flow has one receiver and one class, so it goes through one ring and stays in order.
//! A frame for which the ring has no room is dropped and counted.

use crate::crew::{Crew, Member};
use rtrb::{Consumer, Producer, RingBuffer};
use std::io::{Read, Write};
use std::sync::Arc;
use weir_core::packet::FrameRef;
use weir_io::pool::{HEAD_ROOM, OFFLOAD_BYTES, TAIL_BYTES};
use weir_io::{BATCH, Pool};

/// Bytes of all rings to a worker, at most, and of one of them, at least: three of the longest frames.
const ALL_BYTES: usize = 4 << 20;
const LEAST_BYTES: usize = 256 << 10;
/// What stands before each frame.
const HEAD_BYTES: usize = 4 + OFFLOAD_BYTES;
const LONGEST: usize = HEAD_ROOM + TAIL_BYTES;

/// The end of a ring at which frames come out.
struct Source {
    ring: Consumer<u8>,
    /// The length and the offload header of the frame that is next.
    next: Option<(usize, [u8; OFFLOAD_BYTES])>,
}

/// The rings of a direction from a worker to all others, and from them.
pub(crate) struct Hand {
    crew: Arc<Crew>,
    /// By worker; none to itself.
    to: Vec<Option<Producer<u8>>>,
    from: Vec<Source>,
    /// Which workers have been handed something since they were woken, by bit.
    given: u64,
    /// Frames that were handed over, and those for which there was no room.
    pub(super) handed: u64,
    pub(super) lost: u64,
}

impl Hand {
    /// The rings between these workers.
    pub(crate) fn all(members: &[Member]) -> Vec<Hand> {
        let count = members.len();
        let bytes = (ALL_BYTES / count.max(1)).max(LEAST_BYTES);
        let hand = |member: &Member| {
            let to = (0..count).map(|_| None).collect();
            Hand { crew: member.crew().clone(), to, from: Vec::new(), given: 0, handed: 0, lost: 0 }
        };
        let mut all: Vec<Hand> = members.iter().map(hand).collect();
        for giver in 0..count {
            for taker in (0..count).filter(|&taker| taker != giver) {
                let (producer, ring) = RingBuffer::new(bytes);
                all[giver].to[taker] = Some(producer);
                all[taker].from.push(Source { ring, next: None });
            }
        }
        all
    }

    /// How many workers there are.
    pub(super) fn workers(&self) -> usize {
        self.to.len()
    }

    /// Hands a copy of a frame over, unless there is no room.
    pub(super) fn give(&mut self, pool: &Pool, frame: FrameRef, worker: usize) {
        let len = pool.len_bytes(frame) as usize;
        let ring = self.to.get_mut(worker).and_then(Option::as_mut);
        let Some(ring) = ring.filter(|ring| len <= LONGEST && ring.slots() >= HEAD_BYTES + len) else {
            self.lost += 1;
            return;
        };
        let parts: [&[u8]; 4] =
            [&(len as u32).to_ne_bytes(), &pool.offload(frame), pool.head(frame), pool.tail(frame)];
        // There is room for all of it.
        parts.into_iter().for_each(|part| _ = ring.write_all(part));
        self.given |= 1 << worker;
        self.handed += 1;
    }

    /// Wakes those who have been handed something.
    pub(super) fn wake(&mut self) {
        while self.given != 0 {
            self.crew.wake(self.given.trailing_zeros() as usize);
            self.given &= self.given - 1;
        }
    }

    /// Whether something was handed to this worker.
    pub(super) fn has_some(&self) -> bool {
        self.from.iter().any(|source| !source.ring.is_empty() || source.next.is_some())
    }

    /// Throws away what stands in the rings, and nothing that comes meanwhile: how many frames that were.
    pub(super) fn discard(&mut self) -> u64 {
        let mut thrown = 0;
        for source in &mut self.from {
            let mut stood = source.ring.slots();
            while stood > 0
                && let Some((len, _)) = source.head()
                && let Ok(bytes) = source.ring.read_chunk(len)
            {
                bytes.commit_all();
                source.next = None;
                stood = stood.saturating_sub(HEAD_BYTES + len);
                thrown += 1;
            }
        }
        thrown
    }

    /// Appends up to a batch of the frames that were handed to this worker to `out`: from each other one its part, and
    /// what the pool has no buffer for later.
    pub(super) fn take(&mut self, pool: &mut Pool, out: &mut Vec<FrameRef>) {
        let each = BATCH.div_ceil(self.from.len().max(1));
        for source in &mut self.from {
            for _ in 0..each {
                match source.take(pool) {
                    Some(frame) => out.push(frame),
                    None => break,
                }
            }
        }
    }
}

impl Source {
    /// Reads what stands before the frame that is next, and says it once all of the frame is there.
    fn head(&mut self) -> Option<(usize, [u8; OFFLOAD_BYTES])> {
        if self.next.is_none() && self.ring.slots() >= HEAD_BYTES {
            let (mut len, mut offload) = ([0; 4], [0; OFFLOAD_BYTES]);
            self.ring.read_exact(&mut len).and_then(|()| self.ring.read_exact(&mut offload)).ok()?;
            self.next = Some((u32::from_ne_bytes(len) as usize, offload));
        }
        self.next.filter(|&(len, _)| self.ring.slots() >= len)
    }

    fn take(&mut self, pool: &mut Pool) -> Option<FrameRef> {
        let (len, offload) = self.head()?;
        let frame = pool.alloc()?;
        if pool.read(frame, offload, len, &mut self.ring).is_ok_and(|read| read) {
            self.next = None;
            return Some(frame);
        }
        pool.free(frame);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_io::PoolSize;

    fn bytes(of: &Pool, frame: FrameRef) -> Vec<u8> {
        let mut bytes = of.offload(frame).to_vec();
        of.copy_to(frame, &mut bytes);
        bytes
    }

    /// Frames of all lengths go round the end of the ring, whole and in order; what has no room is counted.
    #[test]
    fn frames_come_over_whole_and_in_order() {
        let members = Member::all(3).unwrap();
        let mut all = Hand::all(&members);
        let mut one = all.remove(0);
        let (mut mine, mut theirs) =
            (Pool::new(PoolSize { frames: 8, tails: 2 }), Pool::new(PoolSize { frames: 64, tails: 8 }));
        let (mut mark, mut out, mut most) = (0u8, Vec::new(), 0);
        let mut waiting = std::collections::VecDeque::new();
        for round in 0..400usize {
            for len in [60, 1514, HEAD_ROOM, HEAD_ROOM + 1, 9_000, LONGEST] {
                if (round + len) % 3 == 0 {
                    continue;
                }
                mark = mark.wrapping_add(1);
                let frame = mine.alloc().unwrap();
                assert!(mine.fill(frame, &vec![mark; len]));
                mine.set_offload(frame, [mark; OFFLOAD_BYTES]);
                let lost = one.lost;
                one.give(&mine, frame, 1);
                if one.lost == lost {
                    waiting.push_back(bytes(&mine, frame));
                }
                mine.free(frame);
            }
            most = most.max(waiting.len());
            if round % 50 < 20 {
                all[0].take(&mut theirs, &mut out);
            }
            for frame in out.drain(..) {
                assert!(Some(bytes(&theirs, frame)) == waiting.pop_front(), "round {round}");
                theirs.free(frame);
            }
        }
        assert!(one.lost > 0 && most > 8 && one.handed > 500, "{} lost, {most}, {}", one.lost, one.handed);
        assert!(all[0].has_some() && !all[1].has_some());
        assert_eq!(one.given, 1 << 1);
        one.wake();
        assert_eq!(one.given, 0);
    }

    /// What finds no buffer waits for one.
    #[test]
    fn a_pool_that_is_full_loses_nothing() {
        let mut all = Hand::all(&Member::all(2).unwrap());
        let (mut mine, mut theirs) =
            (Pool::new(PoolSize { frames: 1, tails: 1 }), Pool::new(PoolSize { frames: 2, tails: 1 }));
        let frame = mine.alloc().unwrap();
        assert!(mine.fill(frame, &[7; 5_000]));
        (0..3).for_each(|_| all[0].give(&mine, frame, 1));
        let mut out = Vec::new();
        all[1].take(&mut theirs, &mut out);
        assert_eq!(out.len(), 1, "one tail");
        for left in [1, 1, 0] {
            out.drain(..).for_each(|frame| theirs.free(frame));
            all[1].take(&mut theirs, &mut out);
            assert_eq!(out.len(), left);
        }
        assert_eq!((all[0].handed, all[0].lost), (3, 0));
    }
}
