//! What leaves by an interface, handed over by the kernel's packet filter: NFQUEUE.
//!
//! The kernel goes on routing, translating addresses and answering ARP; a rule gives each packet on
//! its way out to a queue, and a verdict lets it go or drops it. So [`Intake`] receives packets and
//! [`Outlet`] sends by verdict: both are halves of one queue.
//!
//! Packets have no layer-2 header yet. Each gets an Ethernet header of zeroes with its type, so that
//! lengths and all that reads headers are the same as on other ways in.

use crate::{FrameRef, Held, Io, IoStats, Place, Pool, Refusal};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use weir_core::queue::DropReason;
use weir_sys::nfqueue::{QueueSocket, lost_packets};
use weir_sys::rights::Capability;

/// Bytes of the header that is put before each packet.
const LAYER_2: usize = 14;
/// Where the TOS byte or the traffic class ends, from the IP header's start.
const TOS_BYTES: usize = 2;

/// Both halves, and what they know of each frame that they have.
struct Shared {
    socket: QueueSocket,
    /// By frame: the kernel's number, and the bytes around TOS with which the packet came.
    waiting: Vec<(u32, [u8; TOS_BYTES])>,
    /// A packet with its header, on its way into the pool or out of it.
    whole: Vec<u8>,
    stats: IoStats,
}

/// The half that receives. It sends nothing.
pub struct Intake {
    shared: Arc<Mutex<Shared>>,
    descriptor: OwnedFd,
    number: u16,
    /// Packets that the queue had lost when it was opened first.
    lost_before: u64,
}

/// The half that sends. It receives nothing.
pub struct Outlet {
    shared: Arc<Mutex<Shared>>,
    /// The same queue: whoever waits for both halves waits for packets.
    descriptor: OwnedFd,
}

/// Takes over queue `number` of this network namespace, for a pool of `frames` frames. What the
/// pool has no room for is dropped, and what the queue has none for passes by itself.
///
/// # Errors
/// No privilege, or another process has that queue.
pub fn open(number: u16, frames: u32) -> io::Result<(Intake, Outlet)> {
    resumed(QueueSocket::open(number, frames)?, number, frames, IoStats::default())
}

/// The halves of queue `number` behind `socket`, for a pool of `frames` frames, counting on from `stats`. What the
/// system holds already is told by [`Io::hold`].
///
/// # Errors
/// What the system refuses.
pub fn resumed(
    socket: QueueSocket,
    number: u16,
    frames: u32,
    stats: IoStats,
) -> io::Result<(Intake, Outlet)> {
    let [descriptor, same] = [socket.as_fd().try_clone_to_owned()?, socket.as_fd().try_clone_to_owned()?];
    let shared = Arc::new(Mutex::new(Shared {
        socket,
        waiting: vec![(0, [0; TOS_BYTES]); frames as usize],
        whole: Vec::with_capacity(1 << 16),
        stats,
    }));
    let lost_before = lost_packets(number).unwrap_or(0).saturating_sub(stats.rx_overrun);
    Ok((
        Intake { shared: shared.clone(), descriptor, number, lost_before },
        Outlet { shared, descriptor: same },
    ))
}

/// Both halves belong to one worker, so nobody ever waits here.
fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Io for Intake {
    fn receive(&mut self, pool: &mut Pool, out: &mut Vec<FrameRef>) {
        let mut shared = lock(&self.shared);
        let Shared { socket, waiting, whole, stats } = &mut *shared;
        let mut no_room = Vec::new();
        let received = socket.receive(|queued| {
            whole.clear();
            whole.resize(LAYER_2 - 2, 0);
            whole.extend(queued.ether_type.to_be_bytes());
            whole.extend(queued.packet);
            let frame = pool.alloc().filter(|frame| {
                let fits = (frame.0 as usize) < waiting.len() && pool.fill(*frame, whole);
                if !fits {
                    pool.free(*frame);
                }
                fits
            });
            let Some(frame) = frame else {
                no_room.push(queued.id);
                return;
            };
            let mut tos = [0; TOS_BYTES];
            tos.copy_from_slice(queued.packet.get(..TOS_BYTES).unwrap_or(&[0; TOS_BYTES]));
            waiting[frame.0 as usize] = (queued.id, tos);
            stats.rx_frames += 1;
            stats.rx_bytes += whole.len() as u64;
            out.push(frame);
        });
        if let Err(e) = received
            && !matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
        {
            stats.rx_errors += 1;
        }
        if !no_room.is_empty() {
            stats.rx_nobuf += no_room.len() as u64;
            for id in no_room {
                socket.drop_packet(id);
            }
            let _ = socket.flush();
        }
    }

    fn send(&mut self, _: &mut Pool, frames: &[FrameRef], refused: &mut Vec<Refusal>) -> usize {
        refused.extend(frames.iter().map(|&frame| (frame, DropReason::Refused)));
        frames.len()
    }

    fn pass(&mut self) -> io::Result<(Vec<OwnedFd>, Place)> {
        // A verdict that waits here would be given by nobody.
        lock(&self.shared).socket.flush()?;
        Ok((vec![self.descriptor.try_clone()?], Place::Plain))
    }

    fn way(&self) -> String {
        "NFQUEUE".into()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.descriptor.as_fd())
    }

    fn stats(&mut self) -> IoStats {
        let mut stats = lock(&self.shared).stats;
        stats.rx_overrun = lost_packets(self.number).unwrap_or(0).saturating_sub(self.lost_before);
        (stats.tx_frames, stats.tx_bytes, stats.tx_errors) = (0, 0, 0);
        stats
    }
}

impl Io for Outlet {
    fn receive(&mut self, _: &mut Pool, _: &mut Vec<FrameRef>) {}

    fn send(&mut self, pool: &mut Pool, frames: &[FrameRef], _: &mut Vec<Refusal>) -> usize {
        let mut shared = lock(&self.shared);
        let Shared { socket, waiting, whole, stats } = &mut *shared;
        // Verdicts that the system did not take the last time come first.
        if socket.flush().is_err() {
            return 0;
        }
        for &frame in frames {
            let (id, tos) = waiting[frame.0 as usize];
            let changed = pool.head(frame).get(LAYER_2..LAYER_2 + TOS_BYTES).is_some_and(|now| now != tos);
            if changed {
                whole.clear();
                pool.copy_to(frame, whole);
            }
            socket.accept(id, changed.then(|| &whole[LAYER_2..]));
        }
        match socket.flush() {
            Ok(()) => {
                stats.tx_frames += frames.len() as u64;
                stats.tx_bytes += frames.iter().map(|&frame| u64::from(pool.len_bytes(frame))).sum::<u64>();
            }
            // The system heard none of the verdicts, and the packets stay in its queue. They are offered
            // again, because one without a verdict would take its place there for ever.
            Err(_) => {
                socket.forget();
                return 0;
            }
        }
        frames.len()
    }

    fn discard(&mut self, frames: &[FrameRef]) {
        let mut shared = lock(&self.shared);
        for &frame in frames {
            let (id, _) = shared.waiting[frame.0 as usize];
            shared.socket.drop_packet(id);
        }
        let _ = shared.socket.flush();
    }

    /// The system asks for it with each verdict.
    fn rights(&self) -> &'static [Capability] {
        &[Capability::NetAdmin]
    }

    fn held_as(&self, frame: FrameRef) -> Held {
        let (id, [first, second]) = lock(&self.shared).waiting[frame.0 as usize];
        let [a, b, c, d] = id.to_le_bytes();
        [a, b, c, d, first, second]
    }

    fn hold(&mut self, frame: FrameRef, [a, b, c, d, first, second]: Held) {
        lock(&self.shared).waiting[frame.0 as usize] = (u32::from_le_bytes([a, b, c, d]), [first, second]);
    }

    fn way(&self) -> String {
        "NFQUEUE".into()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.descriptor.as_fd())
    }

    fn stats(&mut self) -> IoStats {
        let stats = lock(&self.shared).stats;
        IoStats {
            tx_frames: stats.tx_frames,
            tx_bytes: stats.tx_bytes,
            tx_errors: stats.tx_errors,
            ..IoStats::default()
        }
    }
}
