//! Echo requests, as `ping` sends them: the round trip that the kernel at the far end answers
//! by itself.
#![allow(unsafe_code, reason = "a raw ICMP socket has no safe constructor")]

use crate::{check, now, wait};
use std::io::{self, Read, Write};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use weir_core::units::Duration;

/// A source of echo requests to one host.
pub struct Pinger {
    socket: std::fs::File,
    identity: u16,
    sequence: u16,
}

impl Pinger {
    /// Prepares to ping `to`. Needs root.
    pub fn new(to: Ipv4Addr) -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: socket takes numbers and touches no memory.
        let raw = check(unsafe { libc::socket(libc::AF_INET, kind, libc::IPPROTO_ICMP) })?;
        // SAFETY: `raw` was just opened and belongs to nobody else.
        let socket = unsafe { OwnedFd::from_raw_fd(raw) };
        let to = libc::sockaddr_in {
            sin_family: libc::AF_INET as libc::sa_family_t,
            sin_port: 0,
            sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(to.octets()) },
            sin_zero: [0; 8],
        };
        let size = size_of::<libc::sockaddr_in>() as libc::socklen_t;
        // SAFETY: `to` is a valid sockaddr_in of the size given, alive until after the call.
        check(unsafe { libc::connect(socket.as_raw_fd(), (&raw const to).cast(), size) })?;
        Ok(Pinger { socket: socket.into(), identity: std::process::id() as u16, sequence: 0 })
    }

    /// Sends one request and waits for its answer: the round trip, or `None` after `patience`.
    pub fn ping(&mut self, patience: Duration) -> io::Result<Option<Duration>> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut request = [0u8; 64];
        request[0] = 8;
        request[4..6].copy_from_slice(&self.identity.to_be_bytes());
        request[6..8].copy_from_slice(&self.sequence.to_be_bytes());
        let sum = checksum(&request);
        request[2..4].copy_from_slice(&sum.to_be_bytes());
        let (start, mut answer) = (now(), [0u8; 256]);
        self.socket.write_all(&request)?;
        loop {
            let left = patience.saturating_sub(now().since(start));
            if left.is_zero() {
                return Ok(None);
            }
            wait(&[self.socket.as_fd()], Some(left))?;
            match self.socket.read(&mut answer) {
                Ok(n) if self.answered_by(&answer[..n]) => return Ok(Some(now().since(start))),
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Err(e),
            }
        }
    }

    fn answered_by(&self, packet: &[u8]) -> bool {
        // A raw socket reads the IP header too.
        let header = usize::from(packet.first().copied().unwrap_or(0) & 15) * 4;
        let Some(icmp) = packet.get(header..header + 8) else { return false };
        icmp[0] == 0 && icmp[4..6] == self.identity.to_be_bytes() && icmp[6..8] == self.sequence.to_be_bytes()
    }
}

/// The Internet checksum (RFC 1071) over an even number of bytes.
fn checksum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = bytes.chunks_exact(2).map(|b| u32::from(u16::from_be_bytes([b[0], b[1]]))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_answers_and_silence_is_noticed() {
        if !crate::is_root() {
            eprintln!("SKIPPED: needs root for a raw socket");
            return;
        }
        let mut pinger = Pinger::new(Ipv4Addr::LOCALHOST).unwrap();
        for _ in 0..3 {
            let took = pinger.ping(Duration::from_secs(2)).unwrap().unwrap();
            assert!(took < Duration::from_secs(2) && !took.is_zero());
        }
        // An answer to somebody else is none.
        assert!(!pinger.answered_by(&[]));
        assert!(!pinger.answered_by(&[0x45; 40]));
        assert_eq!(pinger.ping(Duration::ZERO).unwrap(), None);
    }
}
