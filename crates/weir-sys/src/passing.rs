//! Descriptors that pass to another process over a Unix stream (`SCM_RIGHTS`, unix(7)), and who is at
//! its other end.
#![allow(unsafe_code, reason = "control messages without a safe wrapper in the standard library")]

use crate::check;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

/// Descriptors that one message carries at most: the system's own limit (`SCM_MAX_FD`).
pub const MOST_DESCRIPTORS: usize = 253;

/// A process, and whose it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Its number.
    pub pid: u32,
    /// The user that it runs as.
    pub uid: u32,
}

/// The user that this process runs as.
pub fn own_uid() -> u32 {
    // SAFETY: geteuid always succeeds and touches no memory.
    unsafe { libc::geteuid() }
}

/// Who connected, or listens, at the other end (`SO_PEERCRED`).
///
/// # Errors
/// What the system refuses.
pub fn peer_of(stream: &UnixStream) -> io::Result<Peer> {
    let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut size = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `found` is writable over the size given; both live until after the call.
    check(unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut found).cast(),
            &raw mut size,
        )
    })?;
    Ok(Peer { pid: u32::try_from(found.pid).unwrap_or(0), uid: found.uid })
}

/// A number that no two network namespaces of a machine share: that of the namespace of a socket.
///
/// # Errors
/// A kernel that does not tell (before Linux 5.14).
pub fn network_of(socket: BorrowedFd<'_>) -> io::Result<u64> {
    const SO_NETNS_COOKIE: libc::c_int = 71;
    let mut cookie = 0u64;
    let mut size = size_of::<u64>() as libc::socklen_t;
    // SAFETY: `cookie` is writable over the size given; both live until after the call.
    check(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut size,
        )
    })?;
    Ok(cookie)
}

/// Room for the control message that carries descriptors.
#[repr(C, align(8))]
struct Control([u8; (24 + 4 * MOST_DESCRIPTORS).next_multiple_of(8)]);

/// A message of `part` with room for control.
fn header(part: &mut libc::iovec, control: &mut Control, control_bytes: usize) -> libc::msghdr {
    // SAFETY: msghdr is plain numbers and pointers; all zeroes is valid, null.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    (header.msg_iov, header.msg_iovlen) = (part, 1);
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = control_bytes as _;
    header
}

/// Sends bytes, and with the first of them descriptors: what the other end gets are its own, of the same
/// open files. The caller keeps its own.
///
/// # Errors
/// What the system refuses; `InvalidInput` if there are more than [`MOST_DESCRIPTORS`], or no bytes.
pub fn send_with(stream: &UnixStream, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    if descriptors.len() > MOST_DESCRIPTORS || bytes.is_empty() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut control = Control([0; size_of::<Control>()]);
    let payload = size_of::<RawFd>() * descriptors.len();
    // SAFETY: these compute lengths from a number.
    let (space, length) =
        unsafe { (libc::CMSG_SPACE(payload as u32) as usize, libc::CMSG_LEN(payload as u32) as usize) };
    // The system only reads what it sends.
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let used = if descriptors.is_empty() { 0 } else { space };
    let header = header(&mut part, &mut control, used);
    if !descriptors.is_empty() {
        // SAFETY: `header` points at `control`, which has room for one message of `space` bytes, and is
        // aligned for it. The payload lies behind the message's head, where each number is written whole.
        unsafe {
            let message = libc::CMSG_FIRSTHDR(&raw const header);
            (*message).cmsg_level = libc::SOL_SOCKET;
            (*message).cmsg_type = libc::SCM_RIGHTS;
            (*message).cmsg_len = length as _;
            let data = libc::CMSG_DATA(message).cast::<RawFd>();
            for (index, descriptor) in descriptors.iter().enumerate() {
                data.add(index).write_unaligned(descriptor.as_raw_fd());
            }
        }
    }
    // SAFETY: `header` points at `bytes` and `control`, which live until after the call.
    let sent = check(unsafe {
        libc::sendmsg(stream.as_raw_fd(), &raw const header, libc::MSG_NOSIGNAL) as libc::c_int
    })?;
    // What did not fit goes without descriptors.
    io::Write::write_all(&mut &*stream, &bytes[sent as usize..])
}

/// Receives up to as many bytes as `room` has, and the descriptors that came with them. What is answered
/// is 0 at the end of the stream.
///
/// # Errors
/// What the system refuses; more descriptors than [`MOST_DESCRIPTORS`], or than this process may have.
pub fn receive_with(stream: &UnixStream, room: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut control = Control([0; size_of::<Control>()]);
    let mut part = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
    let mut header = header(&mut part, &mut control, size_of::<Control>());
    // SAFETY: `header` points at `room` and `control`, both writable over the lengths given, which live
    // until after the call.
    let got = check(unsafe {
        libc::recvmsg(stream.as_raw_fd(), &raw mut header, libc::MSG_CMSG_CLOEXEC) as libc::c_int
    })?;
    let mut found = Vec::new();
    // SAFETY: the system has written whole control messages of the length in `header`, and the macros
    // stay within it. Each number of an SCM_RIGHTS message was just opened for this process, and belongs
    // to nobody else.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(&raw const header);
        while !message.is_null() {
            if (*message).cmsg_level == libc::SOL_SOCKET && (*message).cmsg_type == libc::SCM_RIGHTS {
                let data = libc::CMSG_DATA(message).cast::<RawFd>();
                let payload = (*message).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                for index in 0..payload / size_of::<RawFd>() {
                    found.push(OwnedFd::from_raw_fd(data.add(index).read_unaligned()));
                }
            }
            message = libc::CMSG_NXTHDR(&raw const header, message);
        }
    }
    if header.msg_flags & libc::MSG_CTRUNC != 0 {
        return Err(io::Error::other("descriptors were lost on their way: `ulimit -n` is too low"));
    }
    Ok((got as usize, found))
}

/// Reads exactly as many bytes as `room` has, and the descriptors that came with the first of them.
///
/// # Errors
/// As of [`receive_with`]; `UnexpectedEof` if the stream ends before.
pub fn receive_exactly(stream: &UnixStream, room: &mut [u8]) -> io::Result<Vec<OwnedFd>> {
    let (got, descriptors) = receive_with(stream, room)?;
    if got == 0 && !room.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    io::Read::read_exact(&mut &*stream, &mut room[got..])?;
    Ok(descriptors)
}

/// The same open file under a number of at least `least`, or as it is where the limit on descriptors is lower.
pub(crate) fn raised(descriptor: OwnedFd, least: RawFd) -> OwnedFd {
    // SAFETY: fcntl takes numbers and touches no memory.
    let high = unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_DUPFD_CLOEXEC, least) };
    match check(high) {
        // SAFETY: `high` was just opened and belongs to nobody else.
        Ok(high) => unsafe { OwnedFd::from_raw_fd(high) },
        Err(_) => descriptor,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;

    #[test]
    fn descriptors_arrive_with_their_bytes_and_are_of_the_same_files() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let pipes: Vec<_> = (0..3).map(|_| UnixStream::pair().unwrap()).collect();
        let ends: Vec<BorrowedFd<'_>> = pipes.iter().map(|(_, far)| far.as_fd()).collect();
        send_with(&ours, b"first", &ends).unwrap();
        send_with(&ours, b"second", &ends[..1]).unwrap();
        send_with(&ours, b"third", &[]).unwrap();
        let mut room = [0; 5];
        let got = receive_exactly(&theirs, &mut room).unwrap();
        assert_eq!((&room, got.len()), (b"first", 3));
        for (end, (near, _)) in got.into_iter().zip(&pipes) {
            UnixStream::from(end).write_all(b"x").unwrap();
            let mut byte = [0];
            (&*near).read_exact(&mut byte).unwrap();
            assert_eq!(byte, *b"x");
        }
        // A message with descriptors is not read together with the next one.
        let mut room = [0; 64];
        let (count, descriptors) = receive_with(&theirs, &mut room).unwrap();
        assert_eq!((&room[..count], descriptors.len()), (&b"second"[..], 1));
        let (count, descriptors) = receive_with(&theirs, &mut room).unwrap();
        assert_eq!((&room[..count], descriptors.len()), (&b"third"[..], 0));
        drop(ours);
        assert_eq!(receive_with(&theirs, &mut room).unwrap().0, 0);
        assert_eq!(receive_exactly(&theirs, &mut room).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn too_much_is_refused_and_long_messages_arrive_whole() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let many = vec![ours.as_fd(); MOST_DESCRIPTORS + 1];
        assert_eq!(send_with(&ours, b"x", &many).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(send_with(&ours, b"", &[]).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        let long: Vec<u8> = (0..3_000_000u32).map(|i| i as u8).collect();
        let mut room = vec![0; long.len()];
        std::thread::scope(|scope| {
            scope.spawn(|| send_with(&ours, &long, &many[..MOST_DESCRIPTORS]).unwrap());
            assert_eq!(receive_exactly(&theirs, &mut room).unwrap().len(), MOST_DESCRIPTORS);
        });
        assert_eq!(room, long);
    }

    #[test]
    fn the_other_end_is_known() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        assert_eq!(peer_of(&ours).unwrap(), Peer { pid: std::process::id(), uid: own_uid() });
        let raised = raised(ours.as_fd().try_clone_to_owned().unwrap(), 300);
        assert!(raised.as_raw_fd() >= 300);
        match (network_of(ours.as_fd()), network_of(raised.as_fd())) {
            (Ok(here), Ok(same)) => assert_eq!(here, same),
            _ => eprintln!("SKIPPED: this kernel does not number its networks"),
        }
        if crate::is_root() {
            let elsewhere = std::thread::spawn(|| {
                crate::enter_new_network().unwrap();
                network_of(UnixStream::pair().unwrap().0.as_fd()).ok()
            });
            let here = network_of(ours.as_fd()).ok();
            assert!(here.is_none() || elsewhere.join().unwrap() != here);
        }
    }
}
