//! What a socket of AF_XDP shares with the kernel: the memory for frames, and rings of their places.
#![allow(unsafe_code, reason = "memory that the kernel reads and writes too")]

use crate::check;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// The memory of frames keeps its size, and what may be done with it.
const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// A mapping, which goes with its owner.
struct Mapping {
    at: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping belongs to no thread; who may read and write in it, its owner sees to.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Of the file `of` from `offset` on, which does not get shorter.
    fn new(bytes: usize, of: BorrowedFd<'_>, offset: i64) -> io::Result<Mapping> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_SHARED | libc::MAP_POPULATE;
        // SAFETY: a new mapping at an address that the system chooses touches no memory of ours.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, kind, of.as_raw_fd(), offset) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let at = NonNull::new(at.cast()).ok_or_else(|| io::Error::other("mmap answered null"))?;
        Ok(Mapping { at, bytes })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is the mapping that `new` made, and nothing refers into it any more.
        let _ = unsafe { libc::munmap(self.at.as_ptr().cast(), self.bytes) };
    }
}

/// The memory for frames (UMEM). Which part belongs to the kernel at a time, its user knows. It lies in a file without
/// a name, so that another process can map it too.
pub(super) struct Area {
    map: Mapping,
    file: OwnedFd,
}

impl Area {
    /// New memory, zeroed.
    pub(super) fn new(bytes: usize) -> io::Result<Area> {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: the name is a string that ends in NUL, and only read.
        let raw = check(unsafe { libc::memfd_create(c"weir frames".as_ptr(), flags) })?;
        // SAFETY: `raw` was just opened and belongs to nobody else.
        let file = std::fs::File::from(unsafe { OwnedFd::from_raw_fd(raw) });
        file.set_len(bytes as u64)?;
        // SAFETY: fcntl takes numbers here and touches no memory.
        check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, SEALS) })?;
        Area::over(file.into(), bytes)
    }

    /// The same memory once more, in a file that [`Area::new`] made, here or in another process.
    pub(super) fn over(file: OwnedFd, bytes: usize) -> io::Result<Area> {
        // SAFETY: fcntl takes numbers here and touches no memory.
        let seals = check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) })?;
        let file = std::fs::File::from(file);
        // Else it could get shorter under the mapping.
        if seals & SEALS != SEALS || file.metadata()?.len() != bytes as u64 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no memory for frames of that size"));
        }
        let file = OwnedFd::from(file);
        Ok(Area { map: Mapping::new(bytes, file.as_fd(), 0)?, file })
    }

    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
    pub(super) fn address(&self) -> u64 {
        self.map.at.as_ptr().expose_provenance() as u64
    }
    pub(super) fn bytes(&self) -> usize {
        self.map.bytes
    }
    fn holds(&self, at: u64, len: usize) -> bool {
        at.checked_add(len as u64).is_some_and(|end| end <= self.map.bytes as u64)
    }

    /// What stands there; `None` outside of the area.
    ///
    /// # Safety
    /// Neither the kernel nor another process that has the memory writes there while the answer is in use.
    pub(super) unsafe fn read(&self, at: u64, len: usize) -> Option<&[u8]> {
        if !self.holds(at, len) {
            return None;
        }
        // SAFETY: the bytes lie in the mapping, which lives as long as `self` and was zeroed. Writers
        // in this process borrow `self` mutably, and neither the kernel nor another process writes, as the
        // caller says.
        Some(unsafe { std::slice::from_raw_parts(self.map.at.as_ptr().add(at as usize), len) })
    }

    /// The same, to be written.
    ///
    /// # Safety
    /// Neither the kernel nor another process that has the memory reads or writes there while the answer is in use.
    pub(super) unsafe fn write(&mut self, at: u64, len: usize) -> Option<&mut [u8]> {
        if !self.holds(at, len) {
            return None;
        }
        // SAFETY: the bytes lie in the mapping, which `self` borrows for the answer alone; the others
        // leave them alone, as the caller says.
        Some(unsafe { std::slice::from_raw_parts_mut(self.map.at.as_ptr().add(at as usize), len) })
    }
}

/// What the kernel writes and reads.
///
/// # Safety
/// Plain numbers, of which any are valid.
// SAFETY: who implements it says why that holds.
pub(super) unsafe trait Plain: Copy {}
// SAFETY: a number.
unsafe impl Plain for u64 {}
// SAFETY: a structure of numbers, as are those below.
unsafe impl Plain for libc::xdp_desc {}
// SAFETY: as above.
unsafe impl Plain for libc::xdp_mmap_offsets {}
// SAFETY: as above.
unsafe impl Plain for libc::xdp_options {}
// SAFETY: as above.
unsafe impl Plain for libc::xdp_statistics {}

/// One end of a ring. The kernel has the other one.
pub(super) struct Ring<T> {
    _map: Mapping,
    /// Where the producer's and the consumer's counter, the flags and the slots stand in the mapping.
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    slots: NonNull<T>,
    /// A power of two.
    size: u32,
    /// This end's counter. The kernel sees it after [`Ring::show`] or [`Ring::give_back`].
    next: u32,
    of: PhantomData<T>,
}

// SAFETY: the pointers lead into a mapping that belongs to no thread, and counters are atomic.
unsafe impl<T: Send> Send for Ring<T> {}

/// Which end of a ring this process has.
#[derive(Clone, Copy)]
pub(super) enum End {
    /// It takes what the kernel has put in.
    Consumer,
    /// It puts in what the kernel takes.
    Producer,
}

impl<T: Plain> Ring<T> {
    /// One end of the ring of `size` places that the kernel shows in `socket` from `offset` on. It goes on behind what
    /// was [given back](Ring::give_back) or [shown](Ring::show) there, by whichever process.
    pub(super) fn open(
        end: End,
        socket: BorrowedFd<'_>,
        offset: i64,
        places: &libc::xdp_ring_offset,
        size: u32,
    ) -> io::Result<Self> {
        let bytes = places.desc as usize + size as usize * size_of::<T>();
        let map = Mapping::new(bytes, socket, offset)?;
        let at = |place: u64, bytes: usize, align: usize| -> io::Result<NonNull<u8>> {
            let place = place as usize;
            if place + bytes > map.bytes || !place.is_multiple_of(align) {
                return Err(io::Error::other("the kernel describes a ring that does not fit its memory"));
            }
            // SAFETY: `place` lies in the mapping, as was just seen.
            Ok(unsafe { map.at.add(place) })
        };
        let counter = |place| at(place, 4, align_of::<AtomicU32>()).map(NonNull::cast);
        let (producer, consumer) = (counter(places.producer)?, counter(places.consumer)?);
        let flags = counter(places.flags)?;
        let slots = at(places.desc, size as usize * size_of::<T>(), align_of::<T>())?.cast();
        let mut ring = Ring { _map: map, producer, consumer, flags, slots, size, next: 0, of: PhantomData };
        let own = match end {
            End::Consumer => ring.consumer,
            End::Producer => ring.producer,
        };
        ring.next = ring.word(own).load(Ordering::Acquire);
        Ok(ring)
    }

    fn word(&self, word: NonNull<AtomicU32>) -> &AtomicU32 {
        // SAFETY: `word` leads to an aligned word of the mapping, which lives as long as `self`. The
        // kernel changes it as a whole.
        unsafe { word.as_ref() }
    }

    fn slot(&self, number: u32) -> NonNull<T> {
        // SAFETY: the size is a power of two, so the place is one of the ring's.
        unsafe { self.slots.add((number & (self.size - 1)) as usize) }
    }

    /// True if the kernel wants to be told, by a system call, of what was shown.
    pub(super) fn wants_a_call(&self) -> bool {
        self.word(self.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    // The consuming end.

    /// The next thing that the kernel has put in, if there is one.
    pub(super) fn take(&mut self) -> Option<T> {
        // What was written before the counter is seen after it.
        if self.word(self.producer).load(Ordering::Acquire) == self.next {
            return None;
        }
        // SAFETY: the kernel wrote this place before it moved its counter, and does not write it again
        // before ours has passed it. Any numbers are valid.
        let taken = unsafe { self.slot(self.next).read() };
        self.next = self.next.wrapping_add(1);
        Some(taken)
    }
    /// Leaves the places of what was taken to the kernel.
    pub(super) fn give_back(&self) {
        self.word(self.consumer).store(self.next, Ordering::Release);
    }

    // The producing end.

    /// Things that were put in and that the kernel has not taken.
    pub(super) fn untaken(&self) -> u32 {
        self.next.wrapping_sub(self.word(self.consumer).load(Ordering::Acquire))
    }
    /// Puts a thing in; false if there is no room.
    pub(super) fn put(&mut self, thing: T) -> bool {
        if self.untaken() >= self.size {
            return false;
        }
        // SAFETY: the kernel has read this place, as its counter says, and does not read it again
        // before ours has passed it.
        unsafe { self.slot(self.next).write(thing) };
        self.next = self.next.wrapping_add(1);
        true
    }
    /// Changes what was put in and the kernel has not taken, while the kernel does not look.
    pub(super) fn change_untaken(&mut self, mut change: impl FnMut(&mut T)) {
        for number in 0..self.untaken() {
            // SAFETY: the kernel has not read this place, as its counter says, and does not read it now, as the
            // caller says. This end wrote it, and nobody else in this process has it.
            change(unsafe { self.slot(self.next.wrapping_sub(1 + number)).as_mut() });
        }
    }
    /// Has the kernel see what was put in.
    pub(super) fn show(&self) {
        self.word(self.producer).store(self.next, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file in memory stands for what the kernel would show: two ends of one ring.
    #[test]
    fn what_one_end_puts_in_the_other_takes_in_order_around_the_ring() {
        // SAFETY: the name is a string that ends in NUL, and only read.
        let raw = unsafe { libc::memfd_create(c"ring".as_ptr(), libc::MFD_CLOEXEC) };
        assert!(raw >= 0);
        // SAFETY: `raw` was just opened and belongs to nobody else.
        let file = std::fs::File::from(unsafe { OwnedFd::from_raw_fd(raw) });
        file.set_len(4096).unwrap();
        let places = libc::xdp_ring_offset { producer: 0, consumer: 64, flags: 128, desc: 192 };
        let puts = || Ring::<u64>::open(End::Producer, file.as_fd(), 0, &places, 4).unwrap();
        let takes = || Ring::<u64>::open(End::Consumer, file.as_fd(), 0, &places, 4).unwrap();
        let (mut producer, mut consumer) = (puts(), takes());
        assert_eq!(consumer.take(), None);
        for round in 0..5u64 {
            let put = |producer: &mut Ring<u64>, n| producer.put(round * 10 + n);
            assert!((0..4).all(|n| put(&mut producer, n)) && !put(&mut producer, 4));
            assert_eq!((consumer.take(), producer.untaken()), (None, 4), "not shown yet");
            producer.show();
            let taken: Vec<_> = std::iter::from_fn(|| consumer.take()).collect();
            assert_eq!(taken, [0, 1, 2, 3].map(|n| round * 10 + n));
            assert_eq!(producer.untaken(), 4, "not given back yet");
            consumer.give_back();
            assert_eq!(producer.untaken(), 0);
        }
        // What was taken is not changed any more, what was not is.
        (1..=3).for_each(|n| _ = producer.put(n));
        producer.show();
        assert_eq!(consumer.take(), Some(1));
        consumer.give_back();
        producer.change_untaken(|n| *n += 10);
        // Others go on at either end.
        (producer, consumer) = (puts(), takes());
        assert_eq!(producer.untaken(), 2);
        assert_eq!([consumer.take(), consumer.take(), consumer.take()], [Some(12), Some(13), None]);
        assert!(!producer.wants_a_call());
        let beyond = libc::xdp_ring_offset { producer: 4096, ..places };
        assert!(Ring::<u64>::open(End::Consumer, file.as_fd(), 0, &beyond, 4).is_err());
    }

    #[test]
    fn an_area_is_zero_and_keeps_to_its_bounds() {
        let mut area = Area::new(4096).unwrap();
        // SAFETY: no kernel knows of this area.
        unsafe {
            area.write(4000, 96).unwrap().fill(7);
            assert_eq!(area.read(3999, 97).unwrap()[..3], [0, 7, 7]);
            assert!(area.read(4000, 97).is_none() && area.write(u64::MAX, 2).is_none());
            assert_eq!(area.read(4096, 0), Some(&[][..]));
        }
        assert_eq!((area.bytes(), area.address() % 4096), (4096, 0));
        let file = || area.file().try_clone_to_owned().unwrap();
        let same = Area::over(file(), 4096).unwrap();
        // SAFETY: no kernel knows of this area, and nobody writes.
        assert_eq!(unsafe { same.read(3999, 3) }.unwrap(), [0, 7, 7]);
        assert!(Area::over(file(), 2048).is_err(), "of another size");
        assert!(std::fs::File::from(file()).set_len(0).is_err(), "it keeps its size");
        let other = std::fs::File::open("/dev/null").unwrap();
        assert!(Area::over(other.into(), 4096).is_err());
    }
}
