//! Sockets of the test traffic: TCP with a named congestion control and a bounded window, what the
//! kernel knows of a connection, and batches of datagrams.
#![allow(unsafe_code, reason = "socket options and batched sends without a safe wrapper")]

use crate::check;
use std::io;
use std::net::{
    Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, TcpListener, TcpStream, UdpSocket,
};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// How a TCP connection is to behave; set before it is opened, so that the handshake knows.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct TcpOptions {
    /// Congestion control by the kernel's name; `None` leaves the machine's default.
    pub congestion: Option<String>,
    /// Bytes in flight at most; `None` leaves the kernel's own sizing.
    pub window_bytes: Option<u32>,
    /// The whole `tos` byte of outgoing packets.
    pub tos: u8,
    /// Largest segment; `None` leaves it to the path.
    pub mss_bytes: Option<u32>,
    /// Bytes that may wait in the kernel unsent; `None` leaves the kernel's own sizing.
    pub unsent_bytes: Option<u32>,
    /// How long opening the connection, or a send, may block.
    pub patience: Option<std::time::Duration>,
}

fn set(socket: BorrowedFd<'_>, level: libc::c_int, name: libc::c_int, value: &[u8]) -> io::Result<()> {
    // SAFETY: `value` is readable over its length and lives until after the call.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            value.as_ptr().cast(),
            value.len() as libc::socklen_t,
        )
    })
    .map(|_| ())
}

fn set_number(socket: BorrowedFd<'_>, level: libc::c_int, name: libc::c_int, value: i32) -> io::Result<()> {
    set(socket, level, name, &value.to_ne_bytes())
}

fn number(value: u32) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX / 4)
}

impl TcpOptions {
    fn apply(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        if let Some(name) = &self.congestion {
            set(socket, libc::IPPROTO_TCP, libc::TCP_CONGESTION, name.as_bytes()).map_err(|e| {
                let say = format!(
                    "congestion control {name:?}: {e}; this kernel offers those of \
                     /proc/sys/net/ipv4/tcp_available_congestion_control"
                );
                io::Error::new(e.kind(), say)
            })?;
        }
        if let Some(window) = self.window_bytes {
            set_window(socket, window)?;
        }
        if let Some(mss) = self.mss_bytes {
            set_number(socket, libc::IPPROTO_TCP, libc::TCP_MAXSEG, number(mss))?;
        }
        if let Some(unsent) = self.unsent_bytes {
            set_number(socket, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, number(unsent))?;
        }
        if let Some(patience) = self.patience {
            let time = libc::timeval {
                tv_sec: patience.as_secs() as libc::time_t,
                // Zero would mean for ever.
                tv_usec: patience.subsec_micros().max(1) as libc::suseconds_t,
            };
            let bytes = [time.tv_sec.to_ne_bytes(), time.tv_usec.to_ne_bytes()].concat();
            set(socket, libc::SOL_SOCKET, libc::SO_SNDTIMEO, &bytes)?;
        }
        if self.tos != 0 {
            set_tos(socket, self.tos)?;
        }
        Ok(())
    }
}

fn tcp_socket(family: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: socket takes numbers and touches no memory.
    let raw = check(unsafe { libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: `raw` was just opened and belongs to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// A socket address as the system wants it.
#[repr(C)]
union Address {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

const V4_BYTES: libc::socklen_t = size_of::<libc::sockaddr_in>() as libc::socklen_t;
const V6_BYTES: libc::socklen_t = size_of::<libc::sockaddr_in6>() as libc::socklen_t;

impl Address {
    fn of(address: SocketAddr) -> (Address, libc::socklen_t, libc::c_int) {
        match address {
            SocketAddr::V4(of) => {
                let v4 = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: of.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(of.ip().octets()) },
                    sin_zero: [0; 8],
                };
                (Address { v4 }, V4_BYTES, libc::AF_INET)
            }
            SocketAddr::V6(of) => {
                let v6 = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: of.port().to_be(),
                    sin6_flowinfo: of.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: of.ip().octets() },
                    sin6_scope_id: of.scope_id(),
                };
                (Address { v6 }, V6_BYTES, libc::AF_INET6)
            }
        }
    }

    /// What the system wrote into an address that was all zeroes before.
    fn read(&self) -> SocketAddr {
        // SAFETY: both members are plain numbers and begin with the family, so reading it is
        // sound whichever was written.
        let family = libc::c_int::from(unsafe { self.v4.sin_family });
        if family == libc::AF_INET6 {
            // SAFETY: the family says that this member was written.
            let v6 = unsafe { self.v6 };
            let (ip, port) = (Ipv6Addr::from(v6.sin6_addr.s6_addr), u16::from_be(v6.sin6_port));
            SocketAddr::V6(SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id))
        } else {
            // SAFETY: every bit pattern is a valid IPv4 address.
            let v4 = unsafe { self.v4 };
            let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
            SocketAddr::V4(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)))
        }
    }
}

fn bind(socket: BorrowedFd<'_>, to: SocketAddr) -> io::Result<()> {
    set_number(socket, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
    let (at, size, _) = Address::of(to);
    // SAFETY: `at` is a valid address of the size given, alive until after the call.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const at).cast(), size) }).map(|_| ())
}

/// The address of nobody in particular, of the same family as `like`.
fn unspecified(like: SocketAddr, port: u16) -> SocketAddr {
    match like {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, port).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, port).into(),
    }
}

/// Connects to `to`, from source port `from_port` (0: any), with `options` in force from the
/// first segment.
pub fn connect(to: SocketAddr, from_port: u16, options: &TcpOptions) -> io::Result<TcpStream> {
    let (address, size, family) = Address::of(to);
    let socket = tcp_socket(family)?;
    options.apply(socket.as_fd())?;
    if from_port != 0 {
        bind(socket.as_fd(), unspecified(to, from_port))?;
    }
    // SAFETY: `address` is a valid address of the size given, alive until after the call.
    check(unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), size) })?;
    Ok(TcpStream::from(socket))
}

/// Listens at `at`; connections accepted inherit `options`.
pub fn listen(at: SocketAddr, options: &TcpOptions) -> io::Result<TcpListener> {
    let (_, _, family) = Address::of(at);
    let socket = tcp_socket(family)?;
    options.apply(socket.as_fd())?;
    bind(socket.as_fd(), at)?;
    // SAFETY: listen takes numbers and touches no memory.
    check(unsafe { libc::listen(socket.as_raw_fd(), 64) })?;
    Ok(TcpListener::from(socket))
}

/// Whether a socket is of the IPv6 family.
fn is_v6(socket: BorrowedFd<'_>) -> bool {
    let mut family: libc::c_int = 0;
    let mut size = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: `family` is writable over the size given; both live until after the call.
    let answer = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_DOMAIN,
            (&raw mut family).cast(),
            &raw mut size,
        )
    };
    answer == 0 && family == libc::AF_INET6
}

/// Limits the window that a receiver offers to `bytes`.
pub fn set_window(socket: BorrowedFd<'_>, bytes: u32) -> io::Result<()> {
    // Room for packets' bookkeeping besides their bytes; the clamp is what counts.
    set_number(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, number(bytes.saturating_mul(2)))?;
    clamp_window(socket, bytes)
}

/// Repeats the limit of [`set_window`]: the kernel forgets it when it learns how much memory the
/// connection's packets take, so a receiver says it again after reading.
pub fn clamp_window(socket: BorrowedFd<'_>, bytes: u32) -> io::Result<()> {
    set_number(socket, libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, number(bytes))
}

/// Acknowledges what is pending now, and the next segments at once.
pub fn acknowledge_quickly(socket: BorrowedFd<'_>) -> io::Result<()> {
    set_number(socket, libc::IPPROTO_TCP, libc::TCP_QUICKACK, 1)
}

/// Limits what the sender keeps ready in the kernel to `bytes` (`SO_SNDBUF`).
pub fn set_send_buffer(socket: BorrowedFd<'_>, bytes: u32) -> io::Result<()> {
    set_number(socket, libc::SOL_SOCKET, libc::SO_SNDBUF, i32::try_from(bytes).unwrap_or(i32::MAX / 2))
}

/// Asks for `bytes` of receive buffer, past the system's limit where allowed.
pub fn set_receive_buffer(socket: BorrowedFd<'_>, bytes: u32) -> io::Result<()> {
    let bytes = i32::try_from(bytes).unwrap_or(i32::MAX / 2);
    set_number(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, bytes)
        .or_else(|_| set_number(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, bytes))
}

/// Sets the whole `tos` byte (traffic class) of outgoing packets.
pub fn set_tos(socket: BorrowedFd<'_>, tos: u8) -> io::Result<()> {
    if is_v6(socket) {
        return set_number(socket, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, i32::from(tos));
    }
    set_number(socket, libc::IPPROTO_IP, libc::IP_TOS, i32::from(tos))
}

/// What the kernel's sender knows of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TcpInfo {
    /// Segments sent again since the connection was opened.
    pub retransmits: u32,
    /// Retransmission timeouts (kernels from 6.7 on; else 0).
    pub timeouts: u16,
    /// Smoothed round-trip time in microseconds.
    pub rtt_us: u32,
    /// Congestion window in segments.
    pub cwnd_segments: u32,
    /// Largest segment that may be sent, in bytes.
    pub mss_bytes: u32,
    /// Segments sent and not yet acknowledged.
    pub unacknowledged_segments: u32,
    /// Bytes written and not yet sent.
    pub unsent_bytes: u32,
    /// Segments sent, retransmissions and bare acknowledgements included.
    pub segments_sent: u32,
    /// Bytes sent, retransmissions included.
    pub bytes_sent: u64,
}

/// Asks the kernel about a connection.
pub fn tcp_info(socket: BorrowedFd<'_>) -> io::Result<TcpInfo> {
    // `struct tcp_info` of linux/tcp.h only ever grows at its end; an older kernel fills less
    // and leaves the rest zero.
    let mut info = [0u8; 256];
    let mut size = info.len() as libc::socklen_t;
    // SAFETY: `info` is writable over the size given; both live until after the call.
    check(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut size,
        )
    })?;
    let word = |at: usize| u32::from_ne_bytes([info[at], info[at + 1], info[at + 2], info[at + 3]]);
    let (low, high) = if cfg!(target_endian = "little") { (200, 204) } else { (204, 200) };
    Ok(TcpInfo {
        mss_bytes: word(16),
        unacknowledged_segments: word(24),
        rtt_us: word(68),
        cwnd_segments: word(80),
        retransmits: word(100),
        segments_sent: word(136),
        unsent_bytes: word(144),
        bytes_sent: u64::from(word(high)) << 32 | u64::from(word(low)),
        timeouts: u16::from_ne_bytes([info[240], info[241]]),
    })
}

/// Has the `tos` byte of each packet told by [`receive_with_tos`].
pub fn tell_tos(socket: BorrowedFd<'_>) -> io::Result<()> {
    if is_v6(socket) {
        return set_number(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1);
    }
    set_number(socket, libc::IPPROTO_IP, libc::IP_RECVTOS, 1)
}

/// Receives a datagram: its length, where it came from, and its `tos` byte (0 where
/// [`tell_tos`] was not asked).
pub fn receive_with_tos(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr, u8)> {
    #[repr(align(8))]
    struct Control([u8; 64]);
    let mut control = Control([0; 64]);
    // SAFETY: the addresses and msghdr are plain numbers and pointers; all zeroes is valid.
    let (mut from, mut header): (Address, libc::msghdr) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    header.msg_name = (&raw mut from).cast();
    header.msg_namelen = V6_BYTES;
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = control.0.len() as _;
    // SAFETY: every pointer of `header` is to a local or to `buffer`, writable over the length
    // given with it, and all live until after the call.
    let len = check(unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, 0) as libc::c_int })?;
    // `struct cmsghdr` {len: usize, level: i32, type: i32}, then a byte, or a number in IPv6.
    let number = |at: usize| -> i32 {
        let bytes = [control.0[at], control.0[at + 1], control.0[at + 2], control.0[at + 3]];
        i32::from_ne_bytes(bytes)
    };
    let level_at = size_of::<usize>();
    let tos = match (number(level_at), number(level_at + 4)) {
        _ if header.msg_controllen <= 16 => 0,
        (libc::IPPROTO_IP, libc::IP_TOS) => control.0[level_at + 8],
        (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => number(level_at + 8) as u8,
        _ => 0,
    };
    Ok((len as usize, from.read(), tos))
}

/// Receives up to 64 datagrams in one system call, without waiting, into buffers that nobody
/// looks at. Answers how many there were, and their bytes.
pub fn receive_and_count(socket: &UdpSocket) -> io::Result<(usize, u64)> {
    const MOST: usize = 64;
    let mut buffer = [0u8; 2048];
    // SAFETY: mmsghdr is plain numbers and pointers; all zeroes is valid, null.
    let mut headers: [libc::mmsghdr; MOST] = unsafe { std::mem::zeroed() };
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    for header in &mut headers {
        header.msg_hdr.msg_iov = &raw mut part;
        header.msg_hdr.msg_iovlen = 1;
    }
    // SAFETY: every header points at `part` and so at `buffer`, writable over its length; the
    // datagrams overwrite one another, which is intended; all live until after the call.
    let answer = unsafe {
        libc::recvmmsg(
            socket.as_raw_fd(),
            headers.as_mut_ptr(),
            MOST as libc::c_uint,
            libc::MSG_DONTWAIT as _,
            std::ptr::null_mut(),
        )
    };
    match check(answer) {
        Ok(n) => Ok((n as usize, headers[..n as usize].iter().map(|h| u64::from(h.msg_len)).sum())),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok((0, 0)),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    const LOCAL: Ipv4Addr = Ipv4Addr::LOCALHOST;

    #[test]
    fn a_connection_keeps_its_options_and_tells_of_itself() {
        let options = TcpOptions {
            congestion: Some("reno".into()),
            window_bytes: Some(20_000),
            tos: 0x28,
            mss_bytes: Some(1000),
            unsent_bytes: Some(10_000),
            patience: Some(std::time::Duration::from_secs(3)),
        };
        let listener = listen((LOCAL, 0).into(), &options).unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut sender = connect((LOCAL, port).into(), 0, &options).unwrap();
        set_send_buffer(sender.as_fd(), 100_000).unwrap();
        let (mut receiver, _) = listener.accept().unwrap();
        sender.write_all(&[7; 5000]).unwrap();
        let mut got = [0; 5000];
        receiver.read_exact(&mut got).unwrap();
        assert!(got.iter().all(|&b| b == 7));
        let info = tcp_info(sender.as_fd()).unwrap();
        assert!(info.mss_bytes > 500 && info.mss_bytes <= 1000 && info.cwnd_segments >= 1, "{info:?}");
        assert!(info.segments_sent >= 5 && info.bytes_sent >= 5000 && info.unsent_bytes == 0, "{info:?}");
        acknowledge_quickly(receiver.as_fd()).unwrap();
    }

    #[test]
    fn ipv6_is_as_good() {
        let Ok(to) = UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)) else {
            eprintln!("SKIPPED: this machine has no IPv6");
            return;
        };
        let at = to.local_addr().unwrap();
        let from = UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).unwrap();
        tell_tos(to.as_fd()).unwrap();
        set_tos(from.as_fd(), 0xb8).unwrap();
        from.send_to(b"six", at).unwrap();
        let mut buffer = [0; 100];
        let (len, who, tos) = receive_with_tos(&to, &mut buffer).unwrap();
        assert_eq!((len, who, tos), (3, from.local_addr().unwrap(), 0xb8));
        let options = TcpOptions { tos: 0x28, ..TcpOptions::default() };
        let listener = listen((Ipv6Addr::LOCALHOST, 0).into(), &options).unwrap();
        let mut sender = connect(listener.local_addr().unwrap(), 0, &options).unwrap();
        sender.write_all(b"stream").unwrap();
        let mut got = [0; 6];
        listener.accept().unwrap().0.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"stream");
    }

    #[test]
    fn an_unknown_congestion_control_is_named_in_the_error() {
        let options = TcpOptions { congestion: Some("tahoe-1988".into()), ..TcpOptions::default() };
        let error = listen((LOCAL, 0).into(), &options).unwrap_err().to_string();
        assert!(error.contains("tahoe-1988") && error.contains("tcp_available"), "{error}");
    }

    #[test]
    fn a_chosen_source_port_is_used() {
        let listener = listen((LOCAL, 0).into(), &TcpOptions::default()).unwrap();
        let at = listener.local_addr().unwrap();
        // A port that was free a moment ago.
        let free = TcpListener::bind((LOCAL, 0)).unwrap().local_addr().unwrap().port();
        let stream = connect(at, free, &TcpOptions::default()).unwrap();
        assert_eq!(stream.local_addr().unwrap().port(), free);
    }

    #[test]
    fn the_tos_of_a_datagram_is_told() {
        let to = UdpSocket::bind((LOCAL, 0)).unwrap();
        let from = UdpSocket::bind((LOCAL, 0)).unwrap();
        from.connect(to.local_addr().unwrap()).unwrap();
        let mut buffer = [0; 100];
        from.send(b"silent").unwrap();
        assert_eq!(receive_with_tos(&to, &mut buffer).unwrap(), (6, from.local_addr().unwrap(), 0));
        tell_tos(to.as_fd()).unwrap();
        set_tos(from.as_fd(), 0xbb).unwrap();
        from.send(b"told").unwrap();
        let (len, _, tos) = receive_with_tos(&to, &mut buffer).unwrap();
        // The kernel takes CE for its own affair: the lower two bits are as it likes for UDP.
        assert_eq!((&buffer[..len], tos & 0xfc), (&b"told"[..], 0xb8));
    }

    #[test]
    fn datagrams_go_in_batches_and_are_counted() {
        let to = UdpSocket::bind((LOCAL, 0)).unwrap();
        set_receive_buffer(to.as_fd(), 1 << 20).unwrap();
        let from = UdpSocket::bind((LOCAL, 0)).unwrap();
        set_tos(from.as_fd(), 0xb8).unwrap();
        from.connect(to.local_addr().unwrap()).unwrap();
        for payload in
            std::iter::repeat_n(vec![1; 18], 64).chain([vec![1; 1472], vec![1; 1472], vec![1; 1472]])
        {
            assert_eq!(from.send(&payload).unwrap(), payload.len());
        }
        let mut got = (0, 0);
        loop {
            let (n, bytes) = receive_and_count(&to).unwrap();
            if n == 0 {
                break;
            }
            got = (got.0 + n, got.1 + bytes);
        }
        assert_eq!(got, (67, 64 * 18 + 3 * 1472));
    }
}
