//! Sockets that share what arrives by an interface (`PACKET_FANOUT`), for threads that receive side by side.
//!
//! The system gives each frame to one of them, all frames of a flow to the same one: by addresses, protocol and ports, and
//! all fragments of two hosts alike. Frames that are not IP go to the same one, too, as far as they are of a kind.

use super::{PacketSocket, SOL_PACKET, set_option};
use crate::check;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// Divided by flow, with a number that the system finds for the group.
const BY_FLOW: libc::c_int = libc::PACKET_FANOUT_HASH as libc::c_int;
const NEW_NUMBER: libc::c_int = 0x2000;
/// What is sent by the interface does not come in. It holds for the group; what its sockets say of it counts no more.
const IGNORE_OUTGOING: libc::c_int = 0x4000;
/// The first kernel that knows that.
const KERNEL: (u32, u32) = (6, 2);

impl PacketSocket {
    /// So many sockets on `interface`, each with a ring as [`PacketSocket::open_ring`] makes it, which share what arrives.
    ///
    /// # Errors
    /// As there; `Unsupported` before Linux 6.2, where such a group would receive what it sends.
    pub fn open_group(
        interface: &str,
        buffer_bytes: usize,
        filter: Option<BorrowedFd<'_>>,
        count: usize,
    ) -> io::Result<Vec<PacketSocket>> {
        let release = release()?;
        if version(&release).is_none_or(|version| version < KERNEL) {
            let what = format!(
                "sockets that share what arrives need Linux {}.{}, and this is {release}",
                KERNEL.0, KERNEL.1
            );
            return Err(io::Error::new(io::ErrorKind::Unsupported, what));
        }
        let mut number = None;
        let mut sockets = Vec::new();
        for _ in 0..count {
            // Bound and not yet in the group, a socket would have a copy of all that the others have.
            let socket = Self::open_as(interface, buffer_bytes, refuse_all, true)?;
            number = Some(join(socket.as_fd(), number)?);
            sockets.push(socket);
        }
        for socket in &sockets {
            match filter {
                Some(_) => socket.set_filter(filter)?,
                None => set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0)?,
            }
        }
        Ok(sockets)
    }
}

/// Keeps every frame out of a socket.
fn refuse_all(socket: BorrowedFd<'_>) -> io::Result<()> {
    let mut code = libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 };
    let program = libc::sock_fprog { len: 1, filter: &raw mut code };
    set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

/// Joins the group of that number, or makes one: its number.
fn join(socket: BorrowedFd<'_>, number: Option<u16>) -> io::Result<u16> {
    let new = if number.is_none() { NEW_NUMBER } else { 0 };
    let group = libc::c_int::from(number.unwrap_or(0)) | (BY_FLOW | IGNORE_OUTGOING | new) << 16;
    set_option(socket, SOL_PACKET, libc::PACKET_FANOUT, &group)?;
    let mut said: libc::c_int = 0;
    let mut size = size_of_val(&said) as libc::socklen_t;
    // SAFETY: `said` has the size given, and both live until after the call.
    check(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            SOL_PACKET,
            libc::PACKET_FANOUT,
            (&raw mut said).cast(),
            &raw mut size,
        )
    })?;
    Ok(said as u16)
}

/// The release of the running kernel.
fn release() -> io::Result<String> {
    // SAFETY: a utsname is arrays of characters, for which all zeroes is valid.
    let mut name: libc::utsname = unsafe { std::mem::zeroed() };
    // SAFETY: uname writes one utsname, to `name`, which lives until after the call.
    check(unsafe { libc::uname(&raw mut name) })?;
    let bytes = name.release.iter().take_while(|&&c| c != 0).map(|&c| c as u8);
    Ok(String::from_utf8_lossy(&bytes.collect::<Vec<u8>>()).into_owned())
}

/// The first two numbers of a release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::super::tests::on_a_pair;
    use super::*;
    use crate::packet::{Arrival, OFFLOAD_BYTES};
    use std::io::IoSlice;
    use weir_core::units::Duration;

    #[test]
    fn releases_are_read() {
        assert_eq!(version("6.18.44-x"), Some((6, 18)));
        assert_eq!(version("6.2"), Some((6, 2)));
        assert_eq!(version("other"), None);
        assert!(version(&release().unwrap()).is_some());
    }

    /// UDP over IPv4 of flow `flow`, the `mark`th frame.
    fn frame(flow: u8, mark: u8) -> Vec<u8> {
        let mut frame = vec![0; OFFLOAD_BYTES + 60];
        let bytes = &mut frame[OFFLOAD_BYTES..];
        bytes[..6].fill(0xff);
        bytes[12..15].copy_from_slice(&[8, 0, 0x45]);
        bytes[16..18].copy_from_slice(&46u16.to_be_bytes());
        bytes[22..24].copy_from_slice(&[64, 17]);
        bytes[26..34].copy_from_slice(&[10, 0, 0, flow, 10, 0, 0, 200]);
        bytes[34..42].copy_from_slice(&[0x10, flow, 0, 53, 0, 26, 0, 0]);
        bytes[50] = mark;
        frame
    }

    /// Every frame comes to one of them, those of a flow to the same one in their order; nothing that is sent comes back.
    /// Reversed: sockets that share nothing have each a copy.
    #[test]
    fn sockets_of_a_group_share_what_arrives() {
        on_a_pair(|mut a, _| {
            let mut came = |mut sockets: Vec<PacketSocket>| {
                let sent = frame(200, 0);
                assert_eq!(sockets[0].send(&[[IoSlice::new(&sent), IoSlice::new(&[])]]).unwrap(), 1);
                for mark in 0..10 {
                    for flow in 0..32 {
                        let frame = frame(flow, mark);
                        assert_eq!(a.send(&[[IoSlice::new(&frame), IoSlice::new(&[])]]).unwrap(), 1);
                    }
                }
                let mut of_flow = vec![Vec::new(); 256];
                std::thread::sleep(std::time::Duration::from_millis(100));
                for (number, socket) in sockets.iter_mut().enumerate() {
                    let _ = crate::wait(&[socket.as_fd()], Some(Duration::from_millis(1)));
                    while let Some(Arrival::Whole { bytes, .. }) = socket.arrival() {
                        let bytes = &bytes[OFFLOAD_BYTES..];
                        of_flow[usize::from(bytes[29])].push((number, bytes[50]));
                        socket.release();
                    }
                }
                of_flow
            };
            let group = match PacketSocket::open_group("sb", 0, None, 3) {
                Ok(group) => group,
                Err(e) if e.kind() == io::ErrorKind::Unsupported => return eprintln!("SKIPPED: {e}"),
                Err(e) => panic!("{e}"),
            };
            let shared = came(group);
            let mut seen = [0; 3];
            for (flow, frames) in shared.iter().enumerate().take(32) {
                let (number, _) = frames[0];
                let wanted: Vec<(usize, u8)> = (0..10).map(|mark| (number, mark)).collect();
                assert_eq!(*frames, wanted, "flow {flow}");
                seen[number] += 1;
            }
            assert!(seen.iter().all(|&flows| flows > 0), "{seen:?}");
            assert!(shared[32..].iter().all(Vec::is_empty), "what was sent came in");
            let each = (0..3).map(|_| PacketSocket::open_ring("sb", 0, None).unwrap()).collect();
            assert_eq!(came(each)[0].len(), 30);
        });
    }
}
