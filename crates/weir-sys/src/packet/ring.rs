//! A ring of slots that the system fills with what arrives, in memory shared with it (`PACKET_RX_RING`,
//! `TPACKET_V2`; see the kernel's packet_mmap.rst).
//!
//! Without it each frame costs the system a buffer of its own, a queue and its share of a system call
//! to fetch it. A frame that is longer than a slot goes into the socket's queue as well
//! (`PACKET_COPY_THRESH`), and its slot says so: slots keep the order of all.

use super::{Arrival, OFFLOAD_BYTES, SOL_PACKET, set_option};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes of a slot: a frame of 1972 bytes, 2 tags included, with what stands before it.
const SLOT_BYTES: usize = 2048;
/// Slots that the system allocates in one piece.
const TOGETHER: usize = 32;
/// The fewest slots.
const FEWEST: usize = 2 * TOGETHER;

const TP_STATUS_USER: u32 = 1;
const TP_STATUS_COPY: u32 = 1 << 1;
const TP_STATUS_VLAN_VALID: u32 = 1 << 4;
const TP_STATUS_VLAN_TPID_VALID: u32 = 1 << 6;
const TPACKET_V2: libc::c_int = 1;

/// The slots, and the one that is read next.
pub(super) struct Ring {
    memory: NonNull<u8>,
    slots: usize,
    next: usize,
}

// SAFETY: the mapping belongs to no thread, and only its owner reads it.
unsafe impl Send for Ring {}

impl Ring {
    /// A ring for `socket`, which has its options and is not bound yet, of `bytes` at most but for the
    /// fewest slots, or less if the system has no more.
    pub(super) fn of(socket: BorrowedFd<'_>, bytes: usize) -> io::Result<Ring> {
        set_option(socket, SOL_PACKET, libc::PACKET_VERSION, &TPACKET_V2)?;
        set_option(socket, SOL_PACKET, libc::PACKET_COPY_THRESH, &1)?;
        let mut blocks = (bytes / SLOT_BYTES).max(FEWEST) / TOGETHER;
        let slots = loop {
            let slots = blocks * TOGETHER;
            let request = libc::tpacket_req {
                tp_block_size: (TOGETHER * SLOT_BYTES) as u32,
                tp_block_nr: blocks as u32,
                tp_frame_size: SLOT_BYTES as u32,
                tp_frame_nr: slots as u32,
            };
            match set_option(socket, SOL_PACKET, libc::PACKET_RX_RING, &request) {
                Ok(()) => break slots,
                Err(e) if e.raw_os_error() == Some(libc::ENOMEM) && slots > FEWEST => blocks /= 2,
                Err(e) => return Err(e),
            }
        };
        Ring::map(socket, slots, 0)
    }

    /// The ring that `socket` has already: another process made it with so many slots, and would read
    /// `next` next.
    pub(super) fn passed(socket: BorrowedFd<'_>, slots: u32, next: u32) -> io::Result<Ring> {
        if next >= slots {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a place outside the ring"));
        }
        Ring::map(socket, slots as usize, next as usize)
    }

    /// How many slots it has, and which is read next.
    pub(super) fn place(&self) -> (u32, u32) {
        (self.slots as u32, self.next as u32)
    }

    fn map(socket: BorrowedFd<'_>, slots: usize, next: usize) -> io::Result<Ring> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let (shared, length) = (libc::MAP_SHARED, slots * SLOT_BYTES);
        // SAFETY: a new mapping at an address that the system chooses touches no memory of ours. The system
        // refuses a length other than that of the ring.
        let mapped =
            unsafe { libc::mmap(std::ptr::null_mut(), length, access, shared, socket.as_raw_fd(), 0) };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = NonNull::new(mapped.cast()).ok_or_else(|| io::Error::other("mmap answered null"))?;
        Ok(Ring { memory, slots, next })
    }

    /// Where the next slot begins.
    fn slot(&self) -> *mut u8 {
        debug_assert!(self.next < self.slots);
        // SAFETY: `next` is below `slots`, and the mapping has so many slots.
        unsafe { self.memory.as_ptr().add(self.next * SLOT_BYTES) }
    }

    /// Who has the next slot, and what is in it (`tp_status`).
    fn status(&self) -> &AtomicU32 {
        // SAFETY: a slot is aligned to its size and begins with its status. The mapping lives as long as
        // `self`, and the system reads and writes the word whole.
        unsafe { AtomicU32::from_ptr(self.slot().cast()) }
    }

    /// The frame that stands in the next slot; `None` if there is none yet.
    pub(super) fn front(&self) -> Option<Arrival<'_>> {
        // What the system has written before the status is seen after it.
        let status = self.status().load(Ordering::Acquire);
        if status & TP_STATUS_USER == 0 {
            return None;
        }
        if status & TP_STATUS_COPY != 0 {
            return Some(Arrival::Queued);
        }
        // SAFETY: the slot begins with this header, is aligned for it, and belongs to us until its status
        // is given back, which needs `self` mutably.
        let head: libc::tpacket2_hdr = unsafe { std::ptr::read(self.slot().cast()) };
        let (at, held) = (usize::from(head.tp_mac), head.tp_snaplen as usize);
        if head.tp_snaplen < head.tp_len || at < OFFLOAD_BYTES || at + held > SLOT_BYTES {
            return Some(Arrival::Cut);
        }
        // SAFETY: these bytes lie in the slot, by the comparison above, and the slot belongs to us as
        // said above. The offload header stands just before the frame.
        let bytes =
            unsafe { std::slice::from_raw_parts(self.slot().add(at - OFFLOAD_BYTES), held + OFFLOAD_BYTES) };
        let vlan_tag = (status & TP_STATUS_VLAN_VALID != 0).then(|| {
            let known = status & TP_STATUS_VLAN_TPID_VALID != 0;
            let tpid = if known { head.tp_vlan_tpid } else { 0x8100 };
            let ([a, b], [c, d]) = (tpid.to_be_bytes(), head.tp_vlan_tci.to_be_bytes());
            [a, b, c, d]
        });
        Some(Arrival::Whole { bytes, vlan_tag })
    }

    /// Gives the next slot back to the system.
    pub(super) fn release(&mut self) {
        self.status().store(0, Ordering::Release);
        self.next = (self.next + 1) % self.slots;
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: this is the mapping that `map` made, and nothing refers into it any more.
        let _ = unsafe { libc::munmap(self.memory.as_ptr().cast(), self.slots * SLOT_BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::on_a_pair;
    use super::super::{Arrival, OFFLOAD_BYTES, PacketSocket};
    use super::{FEWEST, SLOT_BYTES};
    use std::io::{IoSlice, IoSliceMut};
    use std::os::fd::AsFd;
    use weir_core::units::Duration;

    fn frame(len: usize, mark: u8) -> Vec<u8> {
        let mut bytes = vec![mark; OFFLOAD_BYTES + len];
        bytes[..OFFLOAD_BYTES].fill(0);
        bytes[OFFLOAD_BYTES + 12..OFFLOAD_BYTES + 14].copy_from_slice(&[0x88, 0xb5]);
        bytes
    }

    /// More frames than the ring has slots, the longest that a slot holds and some that it does not.
    #[test]
    fn frames_come_in_order_over_the_end_of_the_ring_and_long_ones_from_the_queue() {
        on_a_pair(|_, _| {
            for name in ["sa", "sb"] {
                let mtu = ["link", "set", name, "mtu", "9000"];
                assert!(std::process::Command::new("ip").args(mtu).status().unwrap().success());
            }
            let mut a = PacketSocket::open("sa", 0).unwrap();
            let mut b = PacketSocket::open_ring("sb", 1, None).unwrap();
            assert!(b.has_ring() && !a.has_ring() && a.arrival().is_none() && b.arrival().is_none());
            let longest = SLOT_BYTES - 76;
            for n in 0..3 * FEWEST + 5 {
                let len = [60, longest, longest + 1, 1514, 4000][n % 5];
                let sent = frame(len, n as u8);
                assert_eq!(a.send(&[[IoSlice::new(&sent), IoSlice::new(&[])]]).unwrap(), 1);
                assert!(crate::wait(&[b.as_fd()], Some(Duration::from_secs(5))).unwrap(), "frame {n}");
                match b.arrival() {
                    Some(Arrival::Whole { bytes, vlan_tag: None }) if len <= longest => {
                        assert!(bytes == sent, "frame {n}");
                    }
                    Some(Arrival::Queued) if len > longest => {
                        let mut room = vec![0; sent.len() + 1];
                        let mut rooms = [[IoSliceMut::new(&mut room), IoSliceMut::new(&mut [])]];
                        assert_eq!(b.receive(&mut rooms).unwrap(), 1);
                        assert_eq!(b.received(0).len_bytes, sent.len());
                        assert!(room[..sent.len()] == sent, "frame {n}");
                    }
                    other => panic!("frame {n} of {len} bytes: {other:?}"),
                }
                b.release();
                assert!(b.arrival().is_none());
            }
            assert_eq!(b.take_overruns(), 0);
        });
    }

    /// Another process goes on at the slot where this one stopped, and only with a ring of that size.
    #[test]
    fn a_ring_is_passed_with_its_place() {
        on_a_pair(|mut a, _| {
            let mut b = PacketSocket::open_ring("sb", 1, None).unwrap();
            for n in 0..3 {
                assert_eq!(a.send(&[[IoSlice::new(&frame(60, n)), IoSlice::new(&[])]]).unwrap(), 1);
                assert!(crate::wait(&[b.as_fd()], Some(Duration::from_secs(5))).unwrap(), "frame {n}");
            }
            let first = |socket: &PacketSocket| match socket.arrival() {
                Some(Arrival::Whole { bytes, .. }) => bytes[OFFLOAD_BYTES],
                other => panic!("{other:?}"),
            };
            assert_eq!(first(&b), 0);
            b.release();
            let (slots, next) = b.ring_place().unwrap();
            assert_eq!((slots as usize, next), (FEWEST, 1));
            let same = || b.as_fd().try_clone_to_owned().unwrap();
            assert!(PacketSocket::passed(same(), Some((slots, slots))).is_err());
            assert!(PacketSocket::passed(same(), Some((slots / 2, next))).is_err());
            let mut passed = PacketSocket::passed(same(), Some((slots, next))).unwrap();
            drop(b);
            for n in 1..3 {
                assert_eq!(first(&passed), n);
                passed.release();
            }
            assert!(passed.arrival().is_none());
        });
    }

    /// What finds no slot is counted by the system, what finds no room in the queue says so in its slot,
    /// and that the link went down is told once.
    #[test]
    fn what_has_no_room_is_told() {
        on_a_pair(|_, _| {
            let mtu = |name: &str, mtu: &str| {
                let arguments = ["link", "set", name, "mtu", mtu];
                assert!(std::process::Command::new("ip").args(arguments).status().unwrap().success());
            };
            mtu("sa", "9000");
            mtu("sb", "9000");
            let mut a = PacketSocket::open("sa", 0).unwrap();
            let mut b = PacketSocket::open_ring("sb", 1, None).unwrap();
            let long = frame(9000, 7);
            let (mut queued, mut cut) = (0, 0);
            for _ in 0..2 * FEWEST {
                assert_eq!(a.send(&[[IoSlice::new(&long), IoSlice::new(&[])]]).unwrap(), 1);
            }
            // What is sent on one processor has arrived when the call is over, or is taken up by another.
            std::thread::sleep(std::time::Duration::from_millis(100));
            while let Some(arrival) = b.arrival() {
                match arrival {
                    Arrival::Queued => queued += 1,
                    Arrival::Cut => cut += 1,
                    Arrival::Whole { .. } => panic!("9000 bytes in a slot"),
                }
                b.release();
            }
            assert!(queued > 0 && cut > 0 && queued + cut == FEWEST, "{queued} and {cut}");
            assert_eq!(b.take_overruns() as usize, FEWEST);
            assert!(b.take_error().is_none());
            let down = ["link", "set", "sb", "down"];
            assert!(std::process::Command::new("ip").args(down).status().unwrap().success());
            assert!(crate::wait(&[b.as_fd()], Some(Duration::from_secs(5))).unwrap());
            assert_eq!(b.take_error().and_then(|e| e.raw_os_error()), Some(libc::ENETDOWN));
            assert!(b.take_error().is_none());
        });
    }
}
