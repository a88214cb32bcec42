//! Interfaces as the kernel lists them, and news of them as they change (rtnetlink).
//!
//! Messages are read by hand: four kinds of them, each a fixed head and a row of attributes.
#![allow(unsafe_code, reason = "system calls without a safe wrapper in the standard library")]

use crate::check;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// An interface of this network namespace.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Link {
    /// Its number. A device that is deleted and made again gets another one.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Other names that lead to it.
    pub altnames: Vec<String>,
    /// Largest packet without layer-2 header, bytes.
    pub mtu: u32,
    /// Whether it was brought up.
    pub up: bool,
    /// Whether there is a signal on its wire.
    pub carrier: bool,
    /// Whether the kernel sends through it: its state is `up` (RFC 2863), which comes up to a second
    /// after the carrier, and as a port of a bridge it forwards.
    pub forwards: bool,
    /// The bridge or bond that takes what it receives.
    pub master: Option<u32>,
    /// The interface that it stands on, or a veth's other end, if that is in this namespace.
    pub lower: Option<u32>,
    /// The kind of a virtual device: `veth`, `vlan`, `bridge`. Empty for others.
    pub kind: String,
}

impl Link {
    /// Whether `name` leads to it.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.altnames.iter().any(|other| other == name)
    }
}

/// News of an interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// It is there, and is so.
    Is(Link),
    /// The interface of that number was deleted, or has left this namespace.
    Gone(u32),
}

/// An address of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Address {
    /// The interface's number.
    pub index: u32,
    /// The address.
    pub address: IpAddr,
    /// Bits of it that its network shares.
    pub prefix: u8,
    /// False where it holds on its link alone, or on this machine alone.
    pub routed: bool,
}

/// Room for what one call receives: the kernel sends dumps in parts of at most 32 KB.
const ROOM_BYTES: usize = 64 << 10;
/// Bytes of a message's header (`struct nlmsghdr`).
const HEADER: usize = 16;
/// Bytes of `struct ifinfomsg`.
const IFINFO: usize = 16;
/// Bytes of `struct ifaddrmsg`.
const IFADDR: usize = 8;
/// `IF_OPER_UP` of <linux/if.h>.
const IF_OPER_UP: u8 = 6;
/// What a master knows of its port, within `IFLA_LINKINFO` (<linux/if_link.h>).
const IFLA_INFO_SLAVE_DATA: u16 = 5;
/// The state of a bridge's port, and that in which it forwards (<linux/if_bridge.h>).
const IFLA_BRPORT_STATE: u16 = 1;
const BR_STATE_FORWARDING: u8 = 3;
/// What a [`LinkWatch`] hears of.
const GROUPS: [u32; 5] = [
    libc::RTNLGRP_LINK,
    libc::RTNLGRP_IPV4_IFADDR,
    libc::RTNLGRP_IPV6_IFADDR,
    libc::RTNLGRP_IPV4_NETCONF,
    libc::RTNLGRP_IPV6_NETCONF,
];
/// How often a dump is begun anew, because the list changed meanwhile.
const DUMPS: u32 = 100;

/// Hears of every change of an interface in the network namespace that it was opened in. It becomes
/// readable, too, when an address comes or goes, or when the kernel begins or ceases to forward.
pub struct LinkWatch {
    socket: OwnedFd,
    room: Box<[u8]>,
}

impl LinkWatch {
    /// Listens from now on.
    ///
    /// # Errors
    /// No netlink sockets here.
    pub fn open() -> io::Result<LinkWatch> {
        let groups = GROUPS.iter().fold(0, |all, group| all | 1 << (group - 1));
        Ok(LinkWatch { socket: open(groups)?, room: room() })
    }

    /// How interfaces have changed since the last call, in order; empty if none has. Never blocks.
    ///
    /// # Errors
    /// Too much happened at once and news was lost: ask [`links`] how things are.
    pub fn changes(&mut self) -> io::Result<Vec<Change>> {
        let mut changes = Vec::new();
        loop {
            let got = match receive(self.socket.as_fd(), &mut self.room, libc::MSG_DONTWAIT) {
                Ok(got) => got,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(changes),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            };
            changes.extend(messages(&self.room[..got]).filter_map(|message| change(&message)));
        }
    }
}

impl AsFd for LinkWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// All interfaces of this network namespace.
///
/// # Errors
/// What the system refuses.
pub fn links() -> io::Result<Vec<Link>> {
    dump(libc::RTM_GETLINK, IFINFO, |message| match change(message) {
        Some(Change::Is(link)) => Some(link),
        _ => None,
    })
}

/// All addresses of the interfaces of this network namespace.
///
/// # Errors
/// What the system refuses.
pub fn addresses() -> io::Result<Vec<Address>> {
    dump(libc::RTM_GETADDR, IFADDR, address)
}

/// Asks for a list of the kernel's, and reads each entry by `entry`.
fn dump<T>(kind: u16, head: usize, entry: impl Fn(&Message<'_>) -> Option<T>) -> io::Result<Vec<T>> {
    let socket = open(0)?;
    let mut room = room();
    for _ in 0..DUMPS {
        // The head that follows is all zeroes: whatever family, whatever interface.
        let mut request = vec![0; HEADER + head];
        let flags = (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16;
        request[..4].copy_from_slice(&((HEADER + head) as u32).to_ne_bytes());
        request[4..6].copy_from_slice(&kind.to_ne_bytes());
        request[6..8].copy_from_slice(&flags.to_ne_bytes());
        // SAFETY: `request` is readable over its length and lives until after the call.
        let sent = unsafe { libc::send(socket.as_raw_fd(), request.as_ptr().cast(), request.len(), 0) };
        check(sent as libc::c_int)?;
        if let Some(list) = read_dump(socket.as_fd(), &mut room, &entry)? {
            return Ok(list);
        }
    }
    Err(io::Error::other("the list of interfaces changes faster than it can be read"))
}

/// The entries up to the end of a dump; `None` if the list changed while it was read.
fn read_dump<T>(
    socket: BorrowedFd<'_>,
    room: &mut [u8],
    entry: &impl Fn(&Message<'_>) -> Option<T>,
) -> io::Result<Option<Vec<T>>> {
    let (mut list, mut whole) = (Vec::new(), true);
    loop {
        let got = match receive(socket, room, 0) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            got => got?,
        };
        for message in messages(&room[..got]) {
            whole &= message.flags & libc::NLM_F_DUMP_INTR as u16 == 0;
            match libc::c_int::from(message.kind) {
                libc::NLMSG_DONE => return Ok(whole.then_some(list)),
                libc::NLMSG_ERROR => {
                    let errno = message.number(0).unwrap_or(0) as i32;
                    return Err(io::Error::from_raw_os_error(-errno));
                }
                _ => list.extend(entry(&message)),
            }
        }
    }
}

fn room() -> Box<[u8]> {
    vec![0; ROOM_BYTES].into()
}

fn open(groups: u32) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: socket takes numbers and touches no memory.
    let raw = check(unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) })?;
    // SAFETY: `raw` was just opened and belongs to nobody else.
    let socket = unsafe { OwnedFd::from_raw_fd(raw) };
    // SAFETY: a sockaddr_nl is plain numbers, for which all zeroes is valid.
    let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
    address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
    address.nl_groups = groups;
    let size = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
    // SAFETY: `address` is a valid sockaddr_nl of the size given, alive until after the call.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size) })?;
    Ok(socket)
}

/// Receives one datagram of the kernel's: how many bytes of `room` it took.
fn receive(socket: BorrowedFd<'_>, room: &mut [u8], flags: libc::c_int) -> io::Result<usize> {
    // SAFETY: `room` is writable over its length and lives until after the call.
    let got = unsafe { libc::recv(socket.as_raw_fd(), room.as_mut_ptr().cast(), room.len(), flags) };
    check(got as libc::c_int).map(|got| got as usize)
}

/// One message: its kind, its flags, and what follows its header.
struct Message<'a> {
    kind: u16,
    flags: u16,
    body: &'a [u8],
}

impl<'a> Message<'a> {
    fn number(&self, at: usize) -> Option<u32> {
        number(self.body, at)
    }
    /// The attributes behind a head of so many bytes.
    fn attributes(&self, head: usize) -> impl Iterator<Item = (u16, &'a [u8])> {
        attributes(self.body.get(head..).unwrap_or_default())
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// The messages of a datagram. A length that cannot be true ends them.
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let len = number(bytes, 0)? as usize;
        let body = bytes.get(HEADER..len)?;
        let message = Message { kind: short(bytes, 4)?, flags: short(bytes, 6)?, body };
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    })
}

/// The attributes of a message, each with its number.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    const KIND: u16 = 0x3fff;
    std::iter::from_fn(move || {
        let len = usize::from(short(bytes, 0)?);
        let value = bytes.get(4..len)?;
        let kind = short(bytes, 2)? & KIND;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

fn change(message: &Message<'_>) -> Option<Change> {
    // A port that joins or leaves a bridge is told by messages of the bridge's own family, and its
    // leaving as a deletion. The interface itself is not meant.
    if message.body.first().copied() != Some(libc::AF_UNSPEC as u8) {
        return None;
    }
    let index = message.number(4)?;
    match message.kind {
        libc::RTM_NEWLINK => link(message, index).map(Change::Is),
        libc::RTM_DELLINK => Some(Change::Gone(index)),
        _ => None,
    }
}

fn link(message: &Message<'_>, index: u32) -> Option<Link> {
    let flags = message.number(8)? as libc::c_int;
    let mut link = Link {
        index,
        up: flags & libc::IFF_UP != 0,
        carrier: flags & libc::IFF_LOWER_UP != 0,
        ..Link::default()
    };
    let (mut elsewhere, mut operates, mut forwarding) = (false, false, true);
    for (kind, value) in message.attributes(IFINFO) {
        match kind {
            libc::IFLA_IFNAME => link.name = text(value),
            libc::IFLA_MTU => link.mtu = number(value, 0)?,
            libc::IFLA_MASTER => link.master = number(value, 0),
            libc::IFLA_LINK => link.lower = number(value, 0).filter(|&lower| lower != index && lower != 0),
            libc::IFLA_LINK_NETNSID => elsewhere = true,
            libc::IFLA_OPERSTATE => operates = value.first() == Some(&IF_OPER_UP),
            libc::IFLA_PROP_LIST => {
                let names = attributes(value).filter(|(kind, _)| *kind == libc::IFLA_ALT_IFNAME);
                link.altnames = names.map(|(_, value)| text(value)).collect();
            }
            libc::IFLA_LINKINFO => {
                let info = attributes(value).find(|(kind, _)| *kind == libc::IFLA_INFO_KIND);
                link.kind = info.map(|(_, value)| text(value)).unwrap_or_default();
                let port = attributes(value).filter(|(kind, _)| *kind == IFLA_INFO_SLAVE_DATA);
                let state = port.flat_map(|(_, value)| attributes(value));
                // Of the masters of ports only a bridge gives them this state, in one byte.
                forwarding = state
                    .filter(|(kind, value)| *kind == IFLA_BRPORT_STATE && value.len() == 1)
                    .all(|(_, value)| value == [BR_STATE_FORWARDING]);
            }
            _ => {}
        }
    }
    if elsewhere {
        link.lower = None;
    }
    link.forwards = operates && forwarding;
    Some(link)
}

fn address(message: &Message<'_>) -> Option<Address> {
    let [family, prefix, _, scope] = *message.body.first_chunk()?;
    let value = message.attributes(IFADDR).find(|(kind, _)| *kind == libc::IFA_ADDRESS)?.1;
    let address = match libc::c_int::from(family) {
        libc::AF_INET => IpAddr::from(Ipv4Addr::from(<[u8; 4]>::try_from(value).ok()?)),
        libc::AF_INET6 => IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(value).ok()?)),
        _ => return None,
    };
    Some(Address { index: message.number(4)?, address, prefix, routed: scope < libc::RT_SCOPE_LINK })
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::units::Duration;

    fn ip(arguments: &str) {
        let done = std::process::Command::new("ip").args(arguments.split(' ')).output().unwrap();
        assert!(done.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&done.stderr));
    }

    /// Runs `test` in a namespace of its own, which ends with its thread.
    fn in_a_namespace(test: fn()) {
        if !crate::is_root() {
            eprintln!("SKIPPED: needs root for a network namespace");
            return;
        }
        let run = move || {
            crate::enter_new_network().unwrap();
            test();
        };
        std::thread::spawn(run).join().unwrap();
    }

    fn named(name: &str) -> Link {
        links().unwrap().into_iter().find(|link| link.name == name).unwrap()
    }

    #[test]
    fn interfaces_are_listed_as_they_are() {
        in_a_namespace(|| {
            ip("link add name na mtu 1400 type veth peer name nb");
            ip("link add name nbr type bridge");
            ip("link set nb master nbr");
            ip("link set na up");
            ip("link property add dev na altname another");
            ip("addr add 10.7.0.1/24 dev na");
            let (a, b, bridge) = (named("na"), named("nb"), named("nbr"));
            assert_eq!((a.mtu, a.up, a.carrier, a.kind.as_str()), (1400, true, false, "veth"));
            assert_eq!((a.lower, b.lower), (Some(b.index), Some(a.index)));
            assert_eq!((a.master, b.master), (None, Some(bridge.index)));
            assert!(["na", "another"].iter().all(|name| a.is_called(name)) && !a.is_called("nb"));
            assert_eq!((bridge.kind.as_str(), bridge.up, bridge.lower), ("bridge", false, None));
            assert_eq!(a.index, crate::interface_index("na").unwrap());
            assert!(!a.forwards && !b.forwards && !bridge.forwards, "{a:?} {b:?} {bridge:?}");
            ip("link set nb up");
            ip("link set nbr up");
            let within = |condition: &dyn Fn() -> bool| {
                (0..500).any(|_| {
                    condition() || {
                        std::thread::sleep(std::time::Duration::from_millis(10));
                        false
                    }
                })
            };
            let all = || ["na", "nb", "nbr"].iter().all(|name| named(name).forwards);
            assert!(within(&all), "{:?}", links());
            // What has a carrier and does not forward: a port of a bridge that looks for loops.
            ip("link add name nloop type bridge stp_state 1");
            ip("link set nloop up");
            ip("link set nb master nloop");
            assert!(named("nb").carrier && !named("nb").forwards && named("na").forwards);
            let expected =
                Address { index: a.index, address: "10.7.0.1".parse().unwrap(), prefix: 24, routed: true };
            let of_a: Vec<_> = addresses().unwrap().into_iter().filter(|at| at.index == a.index).collect();
            assert_eq!(of_a.iter().filter(|at| at.routed).collect::<Vec<_>>(), [&expected]);
        });
    }

    #[test]
    fn what_happens_to_an_interface_is_told_in_order() {
        in_a_namespace(|| {
            let mut watch = LinkWatch::open().unwrap();
            assert_eq!(watch.changes().unwrap(), []);
            ip("link add name na type veth peer name nb");
            ip("link add name nbr type bridge");
            let index = named("na").index;
            for step in
                ["na up", "nb up", "na mtu 1400", "na down", "na name nc", "nc master nbr", "nc nomaster"]
            {
                ip(&format!("link set {step}"));
            }
            ip("link del nc");
            assert!(crate::wait(&[watch.as_fd()], Some(Duration::from_secs(5))).unwrap());
            let mut seen: Vec<(String, u32, bool)> = Vec::new();
            let mut gone = 0;
            for change in watch.changes().unwrap() {
                match change {
                    Change::Is(link) if link.index == index => seen.push((link.name, link.mtu, link.up)),
                    Change::Gone(number) if number == index => gone += 1,
                    _ => {}
                }
            }
            seen.dedup();
            let state = |name: &str, mtu, up| (name.to_string(), mtu, up);
            let expected = [
                state("na", 1500, false),
                state("na", 1500, true),
                state("na", 1400, true),
                state("na", 1400, false),
                state("nc", 1400, false),
            ];
            // A port that leaves a bridge is not gone.
            assert_eq!((&seen[..], gone), (&expected[..], 1));
            for other in ["10.7.0.1/24", "fd07::1/64"] {
                ip(&format!("addr add {other} dev lo"));
                let news = crate::wait(&[watch.as_fd()], Some(Duration::from_secs(5))).unwrap();
                assert!(news && watch.changes().unwrap().is_empty(), "{other}");
            }
            std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
            assert!(crate::wait(&[watch.as_fd()], Some(Duration::from_secs(5))).unwrap());
        });
    }

    /// Whatever stands in a datagram, reading it ends, and reads no byte outside.
    #[test]
    fn damaged_messages_are_read_safely() {
        let mut attribute = vec![8, 0, 3, 0, b'a', b'b', 0, 0];
        let mut whole = vec![0; HEADER + IFINFO];
        whole[4..6].copy_from_slice(&libc::RTM_NEWLINK.to_ne_bytes());
        whole.append(&mut attribute);
        let len = whole.len() as u32;
        whole[..4].copy_from_slice(&len.to_ne_bytes());
        let read = |bytes: &[u8]| messages(bytes).filter_map(|message| change(&message)).collect::<Vec<_>>();
        assert!(matches!(&read(&whole)[..], [Change::Is(link)] if link.name == "ab"));
        for cut in 0..whole.len() {
            assert!(read(&whole[..cut]).is_empty());
            for byte in [0, 1, 3, 0xff] {
                let mut damaged = whole.repeat(2);
                damaged[cut] = byte;
                let _ = read(&damaged);
                let _ = messages(&damaged).filter_map(|message| address(&message)).count();
            }
        }
    }
}
