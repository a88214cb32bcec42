//! The fixed store of frame buffers.
//!
//! A frame is a head of 2 KB and, for the packets of up to 64 KB that segmentation offload makes,
//! a tail from a second, smaller store. Receiving scatters into both, so that nothing is copied
//! and memory stays bounded: a queue of a thousand small packets holds 2 MB, not 64.
//!
//! ```text
//! head: | spare 10 | offload header 10 | frame: Ethernet, IP, ... up to 2028 | tail: 64 KB |
//!       0          start - 10          start (20; 16 with a VLAN tag put back)
//! ```
//!
//! Buffers are zeroed by the system on first touch, so a large pool costs address space only.

use crate::BATCH;
use std::io::{self, IoSlice, IoSliceMut, Read};

pub use weir_core::packet::FrameRef;
pub use weir_sys::packet::OFFLOAD_BYTES;

/// Bytes of a head buffer.
pub const HEAD_BYTES: usize = 2048;
/// Bytes of a tail buffer.
pub const TAIL_BYTES: usize = 64 * 1024;
/// Where a frame starts in its head buffer when no VLAN tag was put back.
pub const START: usize = 20;
/// Bytes of a frame that lie in its head buffer.
pub const HEAD_ROOM: usize = HEAD_BYTES - START;
/// No buffer: the `tail` of a frame that has none.
const NOWHERE: u32 = u32::MAX;

/// How many buffers a pool has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolSize {
    /// Frames, 2 KB each.
    pub frames: u32,
    /// Of those, how many may be longer than 2 KB at the same time: 64 KB more each.
    pub tails: u32,
}

impl Default for PoolSize {
    /// 16 MB of heads and 32 MB of tails, touched only when used.
    fn default() -> Self {
        PoolSize { frames: 8192, tails: 512 }
    }
}

#[derive(Clone, Copy)]
struct Frame {
    start: u16,
    in_use: bool,
    tail: u32,
    len: u32,
}

/// The store. Every frame is either free or held by exactly one owner, by its [`FrameRef`].
pub struct Pool {
    heads: Box<[u8]>,
    tails: Box<[u8]>,
    frames: Vec<Frame>,
    free: Vec<u32>,
    free_tails: Vec<u32>,
}

impl Pool {
    /// A pool of `size`.
    pub fn new(size: PoolSize) -> Self {
        Pool {
            heads: vec![0; size.frames as usize * HEAD_BYTES].into_boxed_slice(),
            tails: vec![0; size.tails as usize * TAIL_BYTES].into_boxed_slice(),
            frames: vec![
                Frame { start: START as u16, in_use: false, tail: NOWHERE, len: 0 };
                size.frames as usize
            ],
            free: (0..size.frames).rev().collect(),
            free_tails: (0..size.tails).rev().collect(),
        }
    }

    /// Takes a free frame, empty and without tail.
    pub fn alloc(&mut self) -> Option<FrameRef> {
        let index = self.free.pop()?;
        self.frames[index as usize] = Frame { start: START as u16, in_use: true, tail: NOWHERE, len: 0 };
        Some(FrameRef(index))
    }

    /// Gives a frame back, with its tail. A frame that is free already stays free.
    pub fn free(&mut self, frame: FrameRef) {
        let Some(f) = self.frames.get_mut(frame.0 as usize) else { return };
        debug_assert!(f.in_use, "frame {} freed twice", frame.0);
        if !f.in_use {
            return;
        }
        f.in_use = false;
        if f.tail != NOWHERE {
            self.free_tails.push(f.tail);
            f.tail = NOWHERE;
        }
        self.free.push(frame.0);
    }

    /// Frames that nobody holds.
    pub fn available(&self) -> usize {
        self.free.len()
    }
    /// Tails that nobody holds.
    pub fn tails_available(&self) -> usize {
        self.free_tails.len()
    }
    /// Tails in all.
    pub fn tails(&self) -> usize {
        self.tails.len() / TAIL_BYTES
    }
    /// Frames in all.
    pub fn capacity(&self) -> usize {
        self.frames.len()
    }

    /// Length of the frame in bytes, layer-2 header included.
    pub fn len_bytes(&self, frame: FrameRef) -> u32 {
        self.frames[frame.0 as usize].len
    }

    /// The first bytes of the frame: all of it, or the first 2028 bytes of a longer one.
    pub fn head(&self, frame: FrameRef) -> &[u8] {
        let (at, f) = (frame.0 as usize * HEAD_BYTES, self.frames[frame.0 as usize]);
        let end = HEAD_BYTES.min(usize::from(f.start) + f.len as usize);
        &self.heads[at + usize::from(f.start)..at + end]
    }

    /// The same bytes, to be changed in place.
    pub fn head_mut(&mut self, frame: FrameRef) -> &mut [u8] {
        let (at, f) = (frame.0 as usize * HEAD_BYTES, self.frames[frame.0 as usize]);
        let end = HEAD_BYTES.min(usize::from(f.start) + f.len as usize);
        &mut self.heads[at + usize::from(f.start)..at + end]
    }

    /// What of the frame lies in its tail.
    pub fn tail(&self, frame: FrameRef) -> &[u8] {
        let f = self.frames[frame.0 as usize];
        let in_tail = (usize::from(f.start) + f.len as usize).saturating_sub(HEAD_BYTES);
        if f.tail == NOWHERE {
            return &[];
        }
        let at = f.tail as usize * TAIL_BYTES;
        &self.tails[at..at + in_tail]
    }

    /// Makes `bytes` the contents of the frame; false if it is longer than there is room for.
    pub fn fill(&mut self, frame: FrameRef, bytes: &[u8]) -> bool {
        let (head, tail) = bytes.split_at(bytes.len().min(HEAD_ROOM));
        if tail.len() > TAIL_BYTES || (!tail.is_empty() && !self.attach_tail(frame)) {
            return false;
        }
        let at = frame.0 as usize * HEAD_BYTES;
        self.heads[at + START - OFFLOAD_BYTES..at + START].fill(0);
        self.heads[at + START..at + START + head.len()].copy_from_slice(head);
        let f = &mut self.frames[frame.0 as usize];
        (f.start, f.len) = (START as u16, bytes.len() as u32);
        if !tail.is_empty() {
            let at = f.tail as usize * TAIL_BYTES;
            self.tails[at..at + tail.len()].copy_from_slice(tail);
        }
        true
    }

    /// Makes the next `len` bytes of `from` the contents of a frame that came with that offload header; false if no
    /// tail is left for it, and then nothing was read.
    ///
    /// # Errors
    /// `from` ends before.
    pub fn read(
        &mut self,
        frame: FrameRef,
        offload: [u8; OFFLOAD_BYTES],
        len: usize,
        from: &mut impl Read,
    ) -> io::Result<bool> {
        let in_head = len.min(HEAD_ROOM);
        let in_tail = len - in_head;
        if in_tail > TAIL_BYTES || (in_tail > 0 && !self.attach_tail(frame)) {
            return Ok(false);
        }
        let f = &mut self.frames[frame.0 as usize];
        (f.start, f.len) = (START as u16, len as u32);
        let (at, tail) = (frame.0 as usize * HEAD_BYTES + START, f.tail as usize * TAIL_BYTES);
        self.set_offload(frame, offload);
        from.read_exact(&mut self.heads[at..at + in_head])?;
        if in_tail > 0 {
            from.read_exact(&mut self.tails[tail..tail + in_tail])?;
        }
        Ok(true)
    }

    /// The offload header with which the frame came or is to leave.
    pub fn offload(&self, frame: FrameRef) -> [u8; OFFLOAD_BYTES] {
        let at = self.offload_at(frame);
        std::array::from_fn(|i| self.heads[at + i])
    }
    /// Another offload header for the frame.
    pub fn set_offload(&mut self, frame: FrameRef, header: [u8; OFFLOAD_BYTES]) {
        let at = self.offload_at(frame);
        self.heads[at..at + OFFLOAD_BYTES].copy_from_slice(&header);
    }
    fn offload_at(&self, frame: FrameRef) -> usize {
        frame.0 as usize * HEAD_BYTES + usize::from(self.frames[frame.0 as usize].start) - OFFLOAD_BYTES
    }

    /// Makes `to`, which is empty, a frame of the first `header` bytes of `from`, its offload header
    /// among them, and of `len` bytes at `at`; false if no tail is left for it.
    pub(crate) fn excerpt(&mut self, from: FrameRef, to: FrameRef, header: u32, at: u32, len: u32) -> bool {
        let whole = (header + len) as usize;
        if whole > HEAD_ROOM && !self.attach_tail(to) {
            return false;
        }
        self.frames[to.0 as usize].len = whole as u32;
        self.set_offload(to, self.offload(from));
        self.copy_bytes((from, 0), (to, 0), header as usize);
        self.copy_bytes((from, at as usize), (to, header as usize), len as usize);
        true
    }

    /// Copies `len` bytes of one frame, from a place in it, to a place in another one.
    fn copy_bytes(&mut self, from: (FrameRef, usize), to: (FrameRef, usize), len: usize) {
        let mut done = 0;
        while done < len {
            let (source, source_tail, here) = self.place(from.0, from.1 + done);
            let (target, target_tail, there) = self.place(to.0, to.1 + done);
            let count = here.min(there).min(len - done);
            let (heads, tails) = (&mut self.heads, &mut self.tails);
            match (source_tail, target_tail) {
                (false, false) => heads.copy_within(source..source + count, target),
                (true, true) => tails.copy_within(source..source + count, target),
                (true, false) => {
                    heads[target..target + count].copy_from_slice(&tails[source..source + count])
                }
                (false, true) => {
                    tails[target..target + count].copy_from_slice(&heads[source..source + count])
                }
            }
            done += count;
        }
    }

    /// Where byte `at` of a frame stands: in its store, whether that is the tails', and how many
    /// bytes follow there.
    fn place(&self, frame: FrameRef, at: usize) -> (usize, bool, usize) {
        let f = self.frames[frame.0 as usize];
        let in_head = HEAD_BYTES - usize::from(f.start);
        match at.checked_sub(in_head) {
            None => (frame.0 as usize * HEAD_BYTES + usize::from(f.start) + at, false, in_head - at),
            Some(at) => (f.tail as usize * TAIL_BYTES + at, true, TAIL_BYTES - at),
        }
    }

    /// Shortens the frame to its first `len` bytes. A tail that holds nothing is given back.
    pub(crate) fn truncate(&mut self, frame: FrameRef, len: u32) {
        let f = &mut self.frames[frame.0 as usize];
        f.len = f.len.min(len);
        if usize::from(f.start) + f.len as usize <= HEAD_BYTES && f.tail != NOWHERE {
            self.free_tails.push(f.tail);
            f.tail = NOWHERE;
        }
    }

    /// Appends the whole frame to `out`.
    pub fn copy_to(&self, frame: FrameRef, out: &mut Vec<u8>) {
        out.extend_from_slice(self.head(frame));
        out.extend_from_slice(self.tail(frame));
    }

    /// Gives the frame a tail if it has none; false if no tail is left.
    pub(crate) fn attach_tail(&mut self, frame: FrameRef) -> bool {
        let f = &mut self.frames[frame.0 as usize];
        if f.tail == NOWHERE {
            match self.free_tails.pop() {
                Some(tail) => f.tail = tail,
                None => return false,
            }
        }
        true
    }

    /// The memory that each of `slots` can be received into: head from the offload header on, and
    /// tail. The slots are distinct, and at most [`BATCH`].
    pub(crate) fn receive_rooms(&mut self, slots: &[FrameRef]) -> [[IoSliceMut<'_>; 2]; BATCH] {
        let (mut head_places, mut tail_places) = ([NOWHERE; BATCH], [NOWHERE; BATCH]);
        for (i, slot) in slots.iter().enumerate() {
            (head_places[i], tail_places[i]) = (slot.0, self.frames[slot.0 as usize].tail);
        }
        let mut heads = buffers::<HEAD_BYTES>(&mut self.heads, head_places).into_iter();
        let mut tails = buffers::<TAIL_BYTES>(&mut self.tails, tail_places).into_iter();
        std::array::from_fn(|_| {
            let head = heads.next().flatten().map_or(&mut [][..], |head| &mut head[START - OFFLOAD_BYTES..]);
            let tail = tails.next().flatten().map_or(&mut [][..], |tail| &mut tail[..]);
            [IoSliceMut::new(head), IoSliceMut::new(tail)]
        })
    }

    /// Makes `bytes`, an offload header and a frame that fits a head, what was received into a frame
    /// without tail, as [`Pool::received`] says it.
    pub(crate) fn receive_copy(&mut self, frame: FrameRef, bytes: &[u8], tag: Option<[u8; 4]>) {
        let at = frame.0 as usize * HEAD_BYTES + START - OFFLOAD_BYTES;
        self.heads[at..at + bytes.len()].copy_from_slice(bytes);
        self.received(frame, bytes.len() - OFFLOAD_BYTES, tag);
    }

    /// Says that `len` bytes were received into [`Pool::receive_rooms`], without the offload
    /// header, and that the VLAN tag `tag`, which the system had taken out, belongs back in.
    /// A tail that holds nothing is given back.
    pub(crate) fn received(&mut self, frame: FrameRef, len: usize, tag: Option<[u8; 4]>) {
        let at = frame.0 as usize * HEAD_BYTES;
        let f = &mut self.frames[frame.0 as usize];
        (f.start, f.len) = (START as u16, len as u32);
        if len <= HEAD_ROOM && f.tail != NOWHERE {
            self.free_tails.push(f.tail);
            f.tail = NOWHERE;
        }
        if let Some(tag) = tag.filter(|_| len >= 14) {
            // Offload header and addresses move four bytes forward; the tag fills the gap.
            let from = at + START - OFFLOAD_BYTES;
            self.heads.copy_within(from..at + START + 12, from - 4);
            self.heads[at + START + 8..at + START + 12].copy_from_slice(&tag);
            (f.start, f.len) = (START as u16 - 4, len as u32 + 4);
            shift_offload(&mut self.heads[from - 4..from - 4 + OFFLOAD_BYTES], 4);
        }
    }

    /// Frames as they are sent, at most [`BATCH`]: offload header and head, and tail.
    pub(crate) fn send_parts(&self, frames: &[FrameRef]) -> [[IoSlice<'_>; 2]; BATCH] {
        std::array::from_fn(|i| {
            let Some(&frame) = frames.get(i) else { return [IoSlice::new(&[]), IoSlice::new(&[])] };
            let (at, f) = (frame.0 as usize * HEAD_BYTES, self.frames[frame.0 as usize]);
            let end = HEAD_BYTES.min(usize::from(f.start) + f.len as usize);
            let head = &self.heads[at + usize::from(f.start) - OFFLOAD_BYTES..at + end];
            [IoSlice::new(head), IoSlice::new(self.tail(frame))]
        })
    }

    /// Copies `from`, offload header included, into `to`; false if no tail is left for it.
    pub fn copy(&mut self, from: FrameRef, to: FrameRef) -> bool {
        let source = self.frames[from.0 as usize];
        if source.tail != NOWHERE && !self.attach_tail(to) {
            return false;
        }
        let at = from.0 as usize * HEAD_BYTES;
        self.heads.copy_within(at..at + HEAD_BYTES, to.0 as usize * HEAD_BYTES);
        let target = &mut self.frames[to.0 as usize];
        (target.start, target.len) = (source.start, source.len);
        if source.tail != NOWHERE {
            let at = source.tail as usize * TAIL_BYTES;
            self.tails.copy_within(at..at + TAIL_BYTES, target.tail as usize * TAIL_BYTES);
        }
        true
    }
}

/// The buffers of `N` bytes of `store` that stand at `places`, all distinct; [`NOWHERE`] has none.
fn buffers<const N: usize>(store: &mut [u8], places: [u32; BATCH]) -> [Option<&mut [u8; N]>; BATCH] {
    let mut order: [(u32, usize); BATCH] = std::array::from_fn(|i| (places[i], i));
    order.sort_unstable();
    let (mut rest, _) = store.as_chunks_mut::<N>();
    let mut passed = 0;
    let mut found = [const { None }; BATCH];
    for (place, of) in order {
        if place == NOWHERE {
            break;
        }
        assert!(place >= passed, "two frames share the buffer at place {place}");
        let Some((buffer, after)) = rest[(place - passed) as usize..].split_first_mut() else { break };
        found[of] = Some(buffer);
        (rest, passed) = (after, place + 1);
    }
    found
}

/// Tells an offload header that `by` bytes now stand before the network header: `hdr_len` (bytes
/// 2 and 3) where segmentation is asked for, `csum_start` (6 and 7) where a checksum is.
fn shift_offload(header: &mut [u8], by: u16) {
    const NEEDS_CHECKSUM: u8 = 1;
    let (flags, segmentation) = (header[0], header[1]);
    let mut add = |at: usize| {
        let value = u16::from_ne_bytes([header[at], header[at + 1]]).wrapping_add(by);
        header[at..at + 2].copy_from_slice(&value.to_ne_bytes());
    };
    if flags & NEEDS_CHECKSUM != 0 {
        add(6);
    }
    if segmentation != 0 {
        add(2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
    }

    #[test]
    fn holds_frames_of_every_size_up_to_the_largest_offloaded_packet() {
        let mut pool = Pool::new(PoolSize { frames: 4, tails: 1 });
        for len in [0, 1, 60, 1514, HEAD_ROOM - 1, HEAD_ROOM, HEAD_ROOM + 1, 65_549] {
            let frame = pool.alloc().unwrap();
            assert!(pool.fill(frame, &pattern(len)), "{len}");
            let mut back = Vec::new();
            pool.copy_to(frame, &mut back);
            assert_eq!(back, pattern(len));
            assert_eq!(pool.len_bytes(frame) as usize, len);
            pool.free(frame);
        }
        let frame = pool.alloc().unwrap();
        assert!(!pool.fill(frame, &pattern(HEAD_ROOM + TAIL_BYTES + 1)));
        pool.free(frame);
        assert_eq!((pool.available(), pool.tails_available()), (4, 1));
    }

    #[test]
    fn an_exhausted_pool_refuses_and_recovers() {
        let mut pool = Pool::new(PoolSize { frames: 2, tails: 1 });
        let (a, b) = (pool.alloc().unwrap(), pool.alloc().unwrap());
        assert_eq!(pool.alloc(), None);
        assert!(pool.fill(a, &pattern(9000)));
        assert!(!pool.fill(b, &pattern(9000)), "one tail only");
        pool.free(a);
        assert!(pool.fill(b, &pattern(9000)));
        let c = pool.alloc().unwrap();
        assert!(!pool.copy(b, c));
        pool.free(c);
        pool.free(b);
        assert_eq!((pool.available(), pool.tails_available()), (2, 1));
    }

    #[test]
    fn a_batch_has_rooms_of_its_own_in_any_order() {
        let mut pool = Pool::new(PoolSize { frames: 40, tails: 3 });
        let mut slots: Vec<_> = (0..BATCH).map(|_| pool.alloc().unwrap()).collect();
        slots.swap(3, 17);
        slots.reverse();
        for at in [30, 2, 9] {
            assert!(pool.attach_tail(slots[at]));
        }
        for (i, [head, tail]) in pool.receive_rooms(&slots).iter_mut().enumerate() {
            assert_eq!(
                (head.len(), tail.len()),
                (HEAD_ROOM + OFFLOAD_BYTES, { if [30, 2, 9].contains(&i) { TAIL_BYTES } else { 0 } })
            );
            head.fill(i as u8);
            tail.fill(100 + i as u8);
        }
        for (i, &slot) in slots.iter().enumerate() {
            let len = HEAD_ROOM + if [30, 2, 9].contains(&i) { 50 } else { 0 };
            pool.received(slot, len, None);
            assert!(pool.head(slot).iter().all(|&b| b == i as u8));
            assert!(pool.tail(slot).iter().all(|&b| b == 100 + i as u8));
        }
        assert_eq!(pool.tail(slots[9]).len(), 50);
    }

    #[test]
    #[should_panic(expected = "two frames share the buffer at place 0")]
    fn a_slot_cannot_be_received_into_twice() {
        let mut pool = Pool::new(PoolSize { frames: 4, tails: 0 });
        let slot = pool.alloc().unwrap();
        pool.receive_rooms(&[slot, slot]);
    }

    #[test]
    fn a_vlan_tag_is_put_back_and_offload_offsets_move_with_it() {
        let mut pool = Pool::new(PoolSize { frames: 1, tails: 0 });
        let frame = pool.alloc().unwrap();
        let plain = pattern(100);
        let [head, _] = &mut pool.receive_rooms(&[frame])[0];
        head[..OFFLOAD_BYTES].copy_from_slice(&[1, 1, 54, 0, 0xb4, 5, 34, 0, 16, 0]);
        head[OFFLOAD_BYTES..OFFLOAD_BYTES + 100].copy_from_slice(&plain);
        pool.received(frame, 100, Some([0x81, 0x00, 0x20, 0x07]));
        let mut expected = plain.clone();
        expected.splice(12..12, [0x81, 0x00, 0x20, 0x07]);
        assert_eq!(pool.head(frame), &expected[..]);
        let [sent, tail] = pool.send_parts(&[frame])[0];
        assert_eq!(&sent[..OFFLOAD_BYTES], &[1, 1, 58, 0, 0xb4, 5, 38, 0, 16, 0]);
        assert_eq!(&sent[OFFLOAD_BYTES..], &expected[..]);
        assert!(tail.is_empty());
    }
}
