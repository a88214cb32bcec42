//! Packets that the kernel's packet filter hands over for a verdict: a queue of NFQUEUE.
//!
//! A rule of iptables (`-j NFQUEUE --queue-num N`) gives each packet a number and waits for what is
//! to become of it. Verdicts come in any order, many in one message. Packets are whole: without the
//! flag for segmentation offload the kernel cuts aggregates up before it queues them, and completes
//! their checksums.
//!
//! Format: netlink messages (`struct nlmsghdr`) of the subsystem 3, each with a `struct nfgenmsg`
//! and attributes. Numbers of netlink are the machine's, those of the packet filter big-endian.
#![allow(unsafe_code, reason = "netlink sockets and batched system calls")]

use crate::check;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Packets that one system call receives at most.
pub const BATCH: usize = 32;
/// Room for one message: a packet of 64 KB with its attributes.
const MESSAGE_BYTES: usize = 68 * 1024;
/// Verdicts are handed to the system when this many bytes of them are waiting, or asked to.
const VERDICT_BYTES: usize = 128 * 1024;

const NETLINK_NETFILTER: libc::c_int = 12;
const SOL_NETLINK: libc::c_int = 270;
const NETLINK_NO_ENOBUFS: libc::c_int = 5;
const NLMSG_ERROR: u16 = 2;
const SUBSYSTEM: u16 = 3 << 8;
const MSG_PACKET: u16 = SUBSYSTEM;
const MSG_VERDICT: u16 = SUBSYSTEM | 1;
const MSG_CONFIG: u16 = SUBSYSTEM | 2;
const FLAG_REQUEST: u16 = 1;
const FLAG_ACK: u16 = 4;

const CFG_CMD: u16 = 1;
const CFG_PARAMS: u16 = 2;
const CFG_QUEUE_MAXLEN: u16 = 3;
const CFG_MASK: u16 = 4;
const CFG_FLAGS: u16 = 5;
/// Packets pass where the queue is full.
const FAIL_OPEN: u32 = 1;
const COMMAND_BIND: u8 = 1;
const COPY_PACKET: u8 = 2;

const PACKET_HEADER: u16 = 1;
const VERDICT_HEADER: u16 = 2;
const PAYLOAD: u16 = 10;

const DROP: u32 = 0;
const ACCEPT: u32 = 1;

/// Bytes of `struct nlmsghdr` and of `struct nfgenmsg`.
const HEADERS: usize = 16 + 4;

/// A packet that waits for its verdict.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Queued<'a> {
    /// The kernel's number for it.
    pub id: u32,
    /// The type field that its frame has, or will have: 0x0800 IPv4, 0x86dd IPv6.
    pub ether_type: u16,
    /// The packet from its IP header on.
    pub packet: &'a [u8],
}

/// A queue of this network namespace. Its calls never block.
pub struct QueueSocket {
    socket: OwnedFd,
    number: u16,
    rooms: Box<[u8]>,
    verdicts: Vec<u8>,
    headers: Box<[libc::mmsghdr; BATCH]>,
    parts: Box<[libc::iovec; BATCH]>,
}

// SAFETY: the raw pointers in `headers` and `parts` are written before each system call, from
// buffers of this object, and are never read otherwise, so they carry no tie to a thread.
unsafe impl Send for QueueSocket {}

impl QueueSocket {
    /// Takes over queue `number`, in which at most `most_packets` wait for a verdict. What comes
    /// beyond passes, unseen.
    ///
    /// # Errors
    /// No privilege, or another process has that queue.
    pub fn open(number: u16, most_packets: u32) -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: socket takes numbers and touches no memory.
        let raw = check(unsafe { libc::socket(libc::AF_NETLINK, kind, NETLINK_NETFILTER) })?;
        // SAFETY: `raw` was just opened and belongs to nobody else.
        let mut queue = Self::over(unsafe { OwnedFd::from_raw_fd(raw) }, number);
        let set = |level, name, value: libc::c_int| {
            // SAFETY: `value` is readable over its size and lives until after the call.
            check(unsafe {
                libc::setsockopt(
                    raw,
                    level,
                    name,
                    (&raw const value).cast(),
                    size_of::<libc::c_int>() as libc::socklen_t,
                )
            })
        };
        // A receive buffer that is full must not end the socket: packets stay in the queue.
        set(SOL_NETLINK, NETLINK_NO_ENOBUFS, 1)?;
        for (force, plain) in
            [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)]
        {
            set(libc::SOL_SOCKET, force, 16 << 20).or_else(|_| set(libc::SOL_SOCKET, plain, 16 << 20))?;
        }
        queue.configure(CFG_CMD, &[COMMAND_BIND, 0, 0, 0])?;
        let mut params = [0, 0, 0xff, 0xff, COPY_PACKET];
        params[..4].copy_from_slice(&0xffff_u32.to_be_bytes());
        queue.configure(CFG_PARAMS, &params)?;
        queue.configure(CFG_QUEUE_MAXLEN, &most_packets.to_be_bytes())?;
        let mut flags = Vec::new();
        attribute(&mut flags, CFG_FLAGS, &FAIL_OPEN.to_be_bytes());
        attribute(&mut flags, CFG_MASK, &FAIL_OPEN.to_be_bytes());
        queue.ask(MSG_CONFIG, &flags)?;
        Ok(queue)
    }

    fn over(socket: OwnedFd, number: u16) -> Self {
        // SAFETY: both are plain numbers and pointers; all zeroes is valid, null.
        let (headers, parts) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        QueueSocket {
            socket,
            number,
            rooms: vec![0; BATCH * MESSAGE_BYTES].into_boxed_slice(),
            verdicts: Vec::with_capacity(VERDICT_BYTES + MESSAGE_BYTES),
            headers: Box::new(headers),
            parts: Box::new(parts),
        }
    }

    /// Goes on with queue `number`, which another process has opened as `socket`.
    ///
    /// # Errors
    /// It is no socket of netlink.
    pub fn passed(socket: OwnedFd, number: u16) -> io::Result<Self> {
        // SAFETY: a sockaddr_nl is plain numbers, for which all zeroes is valid.
        let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
        let mut size = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
        // SAFETY: `address` is writable over the size given; both live until after the call.
        check(unsafe { libc::getsockname(socket.as_raw_fd(), (&raw mut address).cast(), &raw mut size) })?;
        if libc::c_int::from(address.nl_family) != libc::AF_NETLINK {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no socket of the packet filter"));
        }
        Ok(Self::over(socket, number))
    }

    fn configure(&mut self, what: u16, value: &[u8]) -> io::Result<()> {
        let mut attributes = Vec::new();
        attribute(&mut attributes, what, value);
        self.ask(MSG_CONFIG, &attributes)
    }

    /// Sends a request and waits for the answer. Packets that come in between pass as they are.
    fn ask(&mut self, kind: u16, attributes: &[u8]) -> io::Result<()> {
        let mut request = Vec::new();
        message(&mut request, kind, FLAG_REQUEST | FLAG_ACK, self.number, attributes);
        self.write(&request)?;
        loop {
            crate::wait(&[self.socket.as_fd()], Some(weir_core::units::Duration::from_secs(2)))?;
            let count = self.fetch(1)?;
            for index in 0..count {
                let mut came = Vec::new();
                packets(self.received(index), &mut |queued| came.push(queued.id));
                came.into_iter().for_each(|id| self.accept(id, None));
                self.flush()?;
                if let Some(code) = answer(self.received(index)) {
                    return match code {
                        0 => Ok(()),
                        code => Err(io::Error::from_raw_os_error(-code)),
                    };
                }
            }
        }
    }

    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        send(self.socket.as_fd(), bytes)
    }

    /// Receives up to `most` messages into their rooms.
    fn fetch(&mut self, most: usize) -> io::Result<usize> {
        let count = most.min(BATCH);
        let rooms = self.rooms.chunks_exact_mut(MESSAGE_BYTES);
        for ((room, part), header) in rooms.zip(&mut *self.parts).zip(&mut *self.headers) {
            *part = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
            header.msg_hdr.msg_iov = part;
            header.msg_hdr.msg_iovlen = 1;
        }
        // SAFETY: each header points at a part and each part at a room of its own, all of this
        // object, which is borrowed for the whole call. The timeout may be null.
        let answer = unsafe {
            libc::recvmmsg(
                self.socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                count as libc::c_uint,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        check(answer).map(|count| count as usize)
    }

    /// The bytes of message `index` of the last `fetch`.
    fn received(&self, index: usize) -> &[u8] {
        let len = (self.headers[index].msg_len as usize).min(MESSAGE_BYTES);
        &self.rooms[index * MESSAGE_BYTES..][..len]
    }

    /// Receives up to [`BATCH`] packets and tells `hear` of each, in the order in which they came.
    /// Answers how many messages there were.
    ///
    /// # Errors
    /// `WouldBlock` if nothing waits.
    pub fn receive(&mut self, mut hear: impl FnMut(Queued<'_>)) -> io::Result<usize> {
        let count = self.fetch(BATCH)?;
        for index in 0..count {
            packets(self.received(index), &mut hear);
        }
        Ok(count)
    }

    /// Lets a packet go on, as it came or with these bytes from its IP header on. Nothing happens
    /// before [`QueueSocket::flush`], or before many verdicts wait.
    pub fn accept(&mut self, id: u32, rewritten: Option<&[u8]>) {
        self.judge(id, ACCEPT, rewritten);
    }
    /// Drops a packet, likewise.
    pub fn drop_packet(&mut self, id: u32) {
        self.judge(id, DROP, None);
    }

    fn judge(&mut self, id: u32, verdict: u32, rewritten: Option<&[u8]>) {
        let start = self.verdicts.len();
        message(&mut self.verdicts, MSG_VERDICT, FLAG_REQUEST, self.number, &[]);
        let mut header = [0; 8];
        header[..4].copy_from_slice(&verdict.to_be_bytes());
        header[4..].copy_from_slice(&id.to_be_bytes());
        attribute(&mut self.verdicts, VERDICT_HEADER, &header);
        if let Some(packet) = rewritten {
            attribute(&mut self.verdicts, PAYLOAD, packet);
        }
        close(&mut self.verdicts, start);
        if self.verdicts.len() >= VERDICT_BYTES {
            // What fails is tried once more with the next flush.
            let _ = self.flush();
        }
    }

    /// Hands all verdicts to the system, in the order in which they were given.
    ///
    /// # Errors
    /// The system took none of them; they are kept for the next time, or for [`QueueSocket::forget`].
    pub fn flush(&mut self) -> io::Result<()> {
        if !self.verdicts.is_empty() {
            self.write(&self.verdicts)?;
            self.verdicts.clear();
        }
        Ok(())
    }
}

impl QueueSocket {
    /// Gives no more of the verdicts that wait.
    pub fn forget(&mut self) {
        self.verdicts.clear();
    }
}

impl AsFd for QueueSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn send(socket: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<()> {
    // SAFETY: `bytes` is readable over its length for the whole call.
    let sent = unsafe { libc::send(socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), 0) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// From now on at most `most_packets` wait in queue `number`, which is behind `socket`. What waits already stays. The system
/// gives no answer: packets may stand before it, and are another's to fetch.
///
/// # Errors
/// The request cannot be sent.
pub fn set_most_packets(socket: BorrowedFd<'_>, number: u16, most_packets: u32) -> io::Result<()> {
    let (mut request, mut most) = (Vec::new(), Vec::new());
    attribute(&mut most, CFG_QUEUE_MAXLEN, &most_packets.to_be_bytes());
    message(&mut request, MSG_CONFIG, FLAG_REQUEST, number, &most);
    send(socket, &request)
}

/// Packets that a queue of this network namespace has lost, because it was full or because its
/// process did not fetch them. [/proc/net/netfilter/nfnetlink_queue]
pub fn lost_packets(number: u16) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/net/netfilter/nfnetlink_queue").ok()?;
    text.lines().find_map(|line| {
        let mut fields = line.split_whitespace();
        if fields.next()?.parse::<u16>().ok()? != number {
            return None;
        }
        // Process, waiting, copy mode, copy range, dropped by the queue, dropped by the process.
        let mut dropped = fields.skip(4).map_while(|field| field.parse::<u64>().ok());
        Some(dropped.next()? + dropped.next()?)
    })
}

/// What is known from outside of how a queue of this network namespace is served.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Service {
    /// Bytes that wait for its process to fetch them, as the system counts them.
    pub unfetched_bytes: u64,
    /// Verdicts that were given, modulo 2^32.
    pub verdicts: u32,
}

/// How a queue is served; `None` where no process has it. [/proc/net/netlink, nfnetlink_queue]
pub fn service(number: u16) -> Option<Service> {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/thread-self/net/{name}")).ok();
    let (port, verdicts) = read("netfilter/nfnetlink_queue")?.lines().find_map(|line| {
        let fields: Vec<u32> = line.split_whitespace().map_while(|field| field.parse().ok()).collect();
        // Process, waiting, copy mode, copy range, dropped by the queue, dropped by the process, numbers given.
        match fields[..] {
            [queue, port, waiting, _, _, _, _, given, ..] if queue == u32::from(number) => {
                Some((port, given.wrapping_sub(waiting)))
            }
            _ => None,
        }
    })?;
    let unfetched_bytes = read("netlink")?.lines().find_map(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let ours = fields.next()?.parse() == Ok(NETLINK_NETFILTER) && fields.next()?.parse() == Ok(port);
        // Groups, bytes received.
        fields.nth(1).filter(|_| ours)?.parse().ok()
    })?;
    Some(Service { unfetched_bytes, verdicts })
}

/// Appends a message with these attributes.
fn message(out: &mut Vec<u8>, kind: u16, flags: u16, queue: u16, attributes: &[u8]) {
    let start = out.len();
    out.extend([0; 4]);
    out.extend(kind.to_ne_bytes());
    out.extend(flags.to_ne_bytes());
    out.extend([0; 8]);
    // Any family, version 0, the queue.
    out.extend([0, 0]);
    out.extend(queue.to_be_bytes());
    out.extend(attributes);
    close(out, start);
}

/// Writes the length of the message that begins at `start`, and fills up to its end.
fn close(out: &mut Vec<u8>, start: usize) {
    let len = (out.len() - start) as u32;
    out[start..start + 4].copy_from_slice(&len.to_ne_bytes());
    out.resize(start + (len as usize).next_multiple_of(4), 0);
}

/// Appends an attribute. Its value is at most 65,531 bytes.
fn attribute(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    out.extend((value.len() as u16 + 4).to_ne_bytes());
    out.extend(kind.to_ne_bytes());
    out.extend(value);
    out.resize(out.len().next_multiple_of(4), 0);
}

fn short(bytes: &[u8], at: usize) -> Option<[u8; 2]> {
    bytes.get(at..)?.first_chunk().copied()
}
fn word(bytes: &[u8], at: usize) -> Option<[u8; 4]> {
    bytes.get(at..)?.first_chunk().copied()
}

/// The first message of `bytes` (kind and body), and what follows it.
fn first_message(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let len = u32::from_ne_bytes(word(bytes, 0)?) as usize;
    let body = bytes.get(16..len)?;
    let rest = bytes.get(len.next_multiple_of(4)..).unwrap_or(&[]);
    Some((u16::from_ne_bytes(short(bytes, 4)?), body, rest))
}

/// The error number (0, or negative) of an answer to a request, if that is what `bytes` are.
fn answer(bytes: &[u8]) -> Option<i32> {
    let (kind, body, _) = first_message(bytes)?;
    (kind == NLMSG_ERROR).then(|| word(body, 0).map(i32::from_ne_bytes))?
}

/// Tells of each packet in what one receive gave. Damaged messages are passed over.
fn packets(mut bytes: &[u8], hear: &mut impl FnMut(Queued<'_>)) {
    while let Some((kind, body, rest)) = first_message(bytes) {
        if kind == MSG_PACKET
            && let Some(queued) = body.get(HEADERS - 16..).and_then(packet)
        {
            hear(queued);
        }
        bytes = rest;
    }
}

fn packet(mut attributes: &[u8]) -> Option<Queued<'_>> {
    let (mut header, mut payload) = (None, &[][..]);
    while let Some(len) = short(attributes, 0).map(|len| usize::from(u16::from_ne_bytes(len))) {
        let kind = u16::from_ne_bytes(short(attributes, 2)?) & 0x3fff;
        let value = attributes.get(4..len)?;
        match kind {
            PACKET_HEADER => {
                let ether_type = u16::from_be_bytes(short(value, 4)?);
                header = Some((u32::from_be_bytes(word(value, 0)?), ether_type));
            }
            PAYLOAD => payload = value,
            _ => {}
        }
        attributes = attributes.get(len.next_multiple_of(4)..).unwrap_or(&[]);
    }
    header.map(|(id, ether_type)| Queued { id, ether_type, packet: payload })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::process::Command;
    use weir_core::units::Duration;

    /// As the kernel writes it.
    fn arriving(id: u32, ether_type: u16, payload: &[u8]) -> Vec<u8> {
        let (mut attributes, mut out, mut header) = (Vec::new(), Vec::new(), id.to_be_bytes().to_vec());
        header.extend(ether_type.to_be_bytes());
        header.push(4);
        attribute(&mut attributes, PACKET_HEADER, &header);
        attribute(&mut attributes, 6, &[0, 0, 0, 2]);
        attribute(&mut attributes, PAYLOAD, payload);
        message(&mut out, MSG_PACKET, 0, 7, &attributes);
        out
    }

    #[test]
    fn messages_are_read_and_damage_is_passed_over() {
        let mut bytes = arriving(7, 0x0800, &[0x45, 1, 2]);
        bytes.extend(arriving(8, 0x86dd, &[]));
        let mut found = Vec::new();
        packets(&bytes, &mut |q| found.push((q.id, q.ether_type, q.packet.to_vec())));
        assert_eq!(found, [(7, 0x0800, vec![0x45, 1, 2]), (8, 0x86dd, vec![])]);
        // Cut off anywhere, or with any byte changed: an answer, and never more packets than there were.
        for len in 0..bytes.len() {
            let mut count = 0;
            packets(&bytes[..len], &mut |_| count += 1);
            assert!(count <= 1, "{len}");
        }
        for at in 0..bytes.len() {
            for byte in [0, 1, 3, 4, 255] {
                let mut damaged = bytes.clone();
                damaged[at] = byte;
                let mut count = 0;
                packets(&damaged, &mut |_| count += 1);
                assert!(count <= bytes.len() / 16, "{at}: {count}");
            }
        }
    }

    /// Packets of the loopback interface: one is dropped, one rewritten, and two change places.
    #[test]
    fn verdicts_are_done_in_the_order_given() {
        if !crate::is_root() {
            eprintln!("SKIPPED: needs root for a network namespace");
            return;
        }
        let run = || {
            crate::enter_new_network().unwrap();
            let sh = |line: &str| Command::new("sh").args(["-c", line]).status().is_ok_and(|s| s.success());
            assert!(sh("ip link set lo up"));
            let rule =
                "iptables -w -t mangle -A POSTROUTING -o lo -p udp -j NFQUEUE --queue-num 9 --queue-bypass";
            if !sh(rule) {
                eprintln!("SKIPPED: needs iptables with NFQUEUE");
                return;
            }
            let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
            receiver.set_read_timeout(Some(std::time::Duration::from_secs(2))).unwrap();
            let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
            let to = receiver.local_addr().unwrap();
            let receive = || {
                let mut room = [0; 2000];
                receiver.recv(&mut room).map(|len| room[..len].to_vec())
            };
            // Without a process behind the queue, the rule lets packets pass.
            sender.send_to(b"before", to).unwrap();
            assert_eq!(receive().unwrap(), b"before");
            let mut queue = QueueSocket::open(9, 1_000).unwrap();
            let second = QueueSocket::open(9, 1_000).err().map(|e| e.kind());
            assert!(second.is_some(), "two processes had one queue");
            for text in [b"1", b"2", b"3", b"4"] {
                sender.send_to(text, to).unwrap();
            }
            let mut waiting = Vec::new();
            while waiting.len() < 4 {
                assert!(crate::wait(&[queue.as_fd()], Some(Duration::from_secs(2))).unwrap());
                queue.receive(|q| waiting.push((q.id, q.ether_type, q.packet.to_vec()))).unwrap();
            }
            assert!(waiting.iter().all(|w| w.1 == 0x0800 && w.2.len() == 29));
            queue.drop_packet(waiting[0].0);
            queue.accept(waiting[3].0, None);
            queue.accept(waiting[2].0, None);
            // The UDP checksum 0 says that there is none.
            let mut rewritten = waiting[1].2.clone();
            rewritten[26..].copy_from_slice(&[0, 0, b'x']);
            queue.accept(waiting[1].0, Some(&rewritten));
            queue.flush().unwrap();
            let got: Vec<_> = (0..3).map(|_| receive().unwrap()).collect();
            assert_eq!(got, [b"4", b"3", b"x"]);
            assert_eq!(lost_packets(9), Some(0));
            assert_eq!(lost_packets(10), None);
            // At the queue's end the rule lets packets pass again.
            drop(queue);
            sender.send_to(b"after", to).unwrap();
            assert_eq!(receive().unwrap(), b"after");
        };
        std::thread::spawn(run).join().unwrap();
    }
}
