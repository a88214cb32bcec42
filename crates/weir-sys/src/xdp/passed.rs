//! A socket on its way to another process, which maps the same memory and the same rings.
//!
//! How far each ring was used stands in the ring. A chunk that a frame leaves from is with the kernel until its
//! completion ring says otherwise, whoever reads that by then.

use super::{Area, Mode, Out, Queue, SEND_CHUNKS, XdpSocket, chunks_of, is_zero_copy, rings, together};
use super::{CHUNK_SIZES, RECEIVE_CHUNKS, said};
use crate::bpf::above_sockets;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// What a socket is besides its descriptors.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The number that the interface had when the socket was opened.
    pub index: u32,
    /// Queues of the device.
    pub queues: u32,
    /// Bytes of a chunk of its memory.
    pub chunk_bytes: u32,
    /// The program runs in the driver, not behind it.
    pub native: bool,
    /// Busy polling was asked for.
    pub busy_poll: bool,
    /// What the system had dropped when it was last asked.
    pub overruns: u64,
    /// Chunks that the system has on their way out, by number, and bytes of the frame in each.
    pub leaving: Vec<(u32, u32)>,
}

impl XdpSocket {
    /// All that another process needs to go on, between two calls, with nothing [untaken](XdpSocket::untaken). It
    /// stays here, too. Of the two, one may use it at a time.
    ///
    /// # Errors
    /// This process may have no more descriptors.
    pub fn pass(&self) -> io::Result<(Vec<OwnedFd>, Place)> {
        let sockets = self.queues.iter().map(|queue| queue.socket.as_fd());
        let all = [self.asking.as_fd(), self.link.as_fd(), self.area.file()].into_iter().chain(sockets);
        let leaving = (0u32..).zip(&self.out.lengths).filter(|(_, len)| **len > 0);
        let place = Place {
            index: self.index,
            queues: self.queues.len() as u32,
            chunk_bytes: self.chunk_bytes,
            native: self.mode.native,
            busy_poll: self.mode.busy_poll,
            overruns: self.overruns,
            leaving: leaving.map(|(number, len)| (number, *len)).collect(),
        };
        Ok((all.map(|one| one.try_clone_to_owned()).collect::<io::Result<_>>()?, place))
    }

    /// A socket that another process has [passed](XdpSocket::pass), with all that waits in it. `next` answers its
    /// descriptors, in that order.
    ///
    /// # Errors
    /// It is no such socket; a kernel that maps rings for one process only (before 6.4).
    pub fn passed(place: &Place, mut next: impl FnMut() -> io::Result<OwnedFd>) -> io::Result<XdpSocket> {
        let &Place { index, queues: count, chunk_bytes, native, busy_poll, overruns, .. } = place;
        let wrong = || io::Error::new(io::ErrorKind::InvalidInput, "no socket of AF_XDP that was passed");
        let most = u32::MAX / (2 * RECEIVE_CHUNKS);
        if !(1..most).contains(&count) || !CHUNK_SIZES.contains(&chunk_bytes) {
            return Err(wrong());
        }
        let (asking, link) = (next()?, above_sockets(next()?));
        let (chunks, first) = (chunks_of(count), count * RECEIVE_CHUNKS);
        let area = Area::over(next()?, chunks as usize * chunk_bytes as usize)?;
        let (mut queues, mut sending) = (Vec::new(), None);
        for number in 0..count {
            let socket = next()?;
            let (received, fill, out) =
                rings(socket.as_fd(), number == 0).map_err(|e| match e.raw_os_error() {
                    Some(libc::EBUSY) => said("AF_XDP passes to another process from Linux 6.4 on".into())(e),
                    _ => e,
                })?;
            sending = sending.or(out);
            queues.push(Queue { received, fill, socket });
        }
        let (send, completed) = sending.ok_or_else(wrong)?;
        let mut lengths = vec![0; SEND_CHUNKS as usize];
        for &(number, len) in &place.leaving {
            *lengths.get_mut(number as usize).ok_or_else(wrong)? = len;
        }
        let free = (0..SEND_CHUNKS).rev().filter(|number| lengths[*number as usize] == 0);
        let free = free.map(|number| u64::from(first + number) * u64::from(chunk_bytes)).collect();
        let queued_bytes = lengths.iter().map(|len| u64::from(*len)).sum();
        let zero_copy = native && is_zero_copy(queues[0].socket.as_fd())?;
        let all = if queues.len() > 1 { Some(together(&queues)?) } else { None };
        Ok(XdpSocket {
            link,
            queues,
            out: Out { send, completed, free, first: u64::from(first), lengths, queued_bytes },
            turn: 0,
            area,
            chunk_bytes,
            mode: Mode { native, zero_copy, busy_poll },
            index,
            asking,
            all,
            overruns,
        })
    }

    /// A socket of the interface's network.
    pub fn network(&self) -> BorrowedFd<'_> {
        self.asking.as_fd()
    }
}
