//! Filters on what enters and leaves an interface, by netlink (`tc filter`, `clsact`).
//!
//! What is attached here stays when the process ends. All is about this network namespace.
#![allow(unsafe_code, reason = "a netlink socket has no safe wrapper")]

use crate::check;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const RTM_NEWQDISC: u16 = 36;
const RTM_DELQDISC: u16 = 37;
const RTM_NEWTFILTER: u16 = 44;
const RTM_DELTFILTER: u16 = 45;
const RTM_GETTFILTER: u16 = 46;
const REQUEST: u16 = 0x001;
const ACKNOWLEDGE: u16 = 0x004;
const DUMP: u16 = 0x300;
const EXCLUSIVE: u16 = 0x200;
const CREATE: u16 = 0x400;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_BPF_FD: u16 = 6;
const TCA_BPF_NAME: u16 = 7;
const TCA_BPF_FLAGS: u16 = 8;
/// The program's answer is what becomes of the frame, not a class.
const DIRECT_ACTION: u32 = 1;
const CLSACT: u32 = 0xffff_fff1;
const CLSACT_HANDLE: u32 = 0xffff_0000;
/// Bytes of `struct nlmsghdr` and of `struct tcmsg`.
const HEADER: usize = 16;
const TCMSG: usize = 20;

/// Which frames of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// Those that enter by it.
    Ingress,
    /// Those that leave by it.
    Egress,
}

impl Side {
    fn parent(self) -> u32 {
        match self {
            Side::Ingress => 0xffff_fff2,
            Side::Egress => 0xffff_fff3,
        }
    }
}

/// Where a filter stands among those of its side: lower priorities first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Its priority (`pref`).
    pub priority: u16,
    /// Its number within the priority.
    pub handle: u32,
}

/// A filter that is attached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Filter {
    /// Where.
    pub place: Place,
    /// Its kind: `bpf`, `u32`, ...
    pub kind: String,
    /// The name that who attached it gave, where the kind is `bpf`.
    pub name: String,
}

/// Attributes as netlink wants them.
#[derive(Default)]
pub(crate) struct Attributes(Vec<u8>);

impl Attributes {
    pub(crate) fn put(mut self, name: u16, value: &[u8]) -> Self {
        self.0.extend((value.len() as u16 + 4).to_ne_bytes());
        self.0.extend(name.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }
    pub(crate) fn text(self, name: u16, value: &str) -> Self {
        self.put(name, &[value.as_bytes(), &[0]].concat())
    }
    pub(crate) fn number(self, name: u16, value: u32) -> Self {
        self.put(name, &value.to_ne_bytes())
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}
fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// The value of an attribute among `bytes`.
pub(crate) fn attribute(mut bytes: &[u8], name: u16) -> Option<&[u8]> {
    loop {
        let (len, this) = (usize::from(half(bytes, 0)?), half(bytes, 2)?);
        let value = bytes.get(4..len)?;
        // The two highest bits say what the value is made of.
        if this & 0x3fff == name {
            return Some(value);
        }
        bytes = bytes.get(len.next_multiple_of(4)..)?;
    }
}

fn text(bytes: Option<&[u8]>) -> String {
    String::from_utf8_lossy(bytes.unwrap_or_default()).trim_end_matches('\0').to_owned()
}

/// What part of the kernel is asked.
#[derive(Clone, Copy)]
pub(crate) enum Family {
    /// Interfaces, routes and filters.
    Route = libc::NETLINK_ROUTE as isize,
    /// Families that are known by name.
    Generic = libc::NETLINK_GENERIC as isize,
}

/// Asks the kernel, and answers the messages that it sent before its acknowledgement. `header` is what
/// stands between the message's own header and the attributes.
pub(crate) fn ask(
    family: Family,
    kind: u16,
    flags: u16,
    header: &[u8],
    attributes: &Attributes,
) -> io::Result<Vec<Vec<u8>>> {
    let kind_of_socket = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: socket takes numbers and touches no memory.
    let raw = check(unsafe { libc::socket(libc::AF_NETLINK, kind_of_socket, family as libc::c_int) })?;
    // SAFETY: `raw` was just opened and belongs to nobody else.
    let mut socket = File::from(unsafe { OwnedFd::from_raw_fd(raw) });
    let mut message = Vec::new();
    message.extend(((HEADER + header.len() + attributes.0.len()) as u32).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend((REQUEST | ACKNOWLEDGE | flags).to_ne_bytes());
    // Its number, and the sender: the kernel fills that in.
    message.extend([0; 8]);
    message.extend(header);
    message.extend(&attributes.0);
    socket.write_all(&message)?;
    let (mut answers, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
    loop {
        let count = socket.read(&mut buffer)?;
        let mut rest = &buffer[..count];
        while let (Some(len), Some(kind)) = (word(rest, 0), half(rest, 4)) {
            let body = rest.get(HEADER..len as usize).unwrap_or_default();
            match kind {
                NLMSG_DONE => return Ok(answers),
                NLMSG_ERROR => match word(body, 0).unwrap_or_default() as i32 {
                    0 => return Ok(answers),
                    error => return Err(io::Error::from_raw_os_error(-error)),
                },
                _ => answers.push(body.to_vec()),
            }
            rest = rest.get((len as usize).next_multiple_of(4)..).unwrap_or_default();
        }
    }
}

/// `struct tcmsg`: family, padding, interface, handle, parent, information.
fn tcmsg(index: u32, handle: u32, parent: u32, information: u32) -> [u8; TCMSG] {
    let mut bytes = [0; TCMSG];
    for (at, value) in [(4, index), (8, handle), (12, parent), (16, information)] {
        bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    }
    bytes
}

fn at(index: u32, place: Place) -> [u8; TCMSG] {
    let protocol = u32::from((libc::ETH_P_ALL as u16).to_be());
    tcmsg(index, place.handle, Side::Ingress.parent(), u32::from(place.priority) << 16 | protocol)
}

/// Makes the hook that filters of an interface hang on (`tc qdisc add dev IF clsact`); false if it
/// has one.
pub fn make_clsact(index: u32) -> io::Result<bool> {
    let kind = Attributes::default().text(TCA_KIND, "clsact");
    let message = tcmsg(index, CLSACT_HANDLE, CLSACT, 0);
    match ask(Family::Route, RTM_NEWQDISC, CREATE | EXCLUSIVE, &message, &kind) {
        Ok(_) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(e) => Err(e),
    }
}

/// Takes the hook away, with all filters that hang on it.
pub fn remove_clsact(index: u32) -> io::Result<()> {
    let message = tcmsg(index, CLSACT_HANDLE, CLSACT, 0);
    ask(Family::Route, RTM_DELQDISC, 0, &message, &Attributes::default()).map(|_| ())
}

/// Attaches `program` to what enters by the interface `index`, or puts it at once into the place of
/// the one that is there. `name` is what `tc filter show` says of it.
///
/// # Errors
/// No such interface, no [`make_clsact`], no privilege, or a kernel without `cls_bpf`.
pub fn put_filter(index: u32, place: Place, name: &str, program: BorrowedFd<'_>) -> io::Result<()> {
    let options = Attributes::default()
        .number(TCA_BPF_FD, program.as_raw_fd() as u32)
        .text(TCA_BPF_NAME, name)
        .number(TCA_BPF_FLAGS, DIRECT_ACTION);
    let attributes = Attributes::default().text(TCA_KIND, "bpf").put(TCA_OPTIONS, &options.0);
    ask(Family::Route, RTM_NEWTFILTER, CREATE, &at(index, place), &attributes).map(|_| ())
}

/// Takes the filter at `place` away, and no other.
pub fn remove_filter(index: u32, place: Place) -> io::Result<()> {
    let kind = Attributes::default().text(TCA_KIND, "bpf");
    ask(Family::Route, RTM_DELTFILTER, 0, &at(index, place), &kind).map(|_| ())
}

/// All filters of one side of the interface `index`.
pub fn filters(index: u32, side: Side) -> io::Result<Vec<Filter>> {
    let message = tcmsg(index, 0, side.parent(), 0);
    let answers = ask(Family::Route, RTM_GETTFILTER, DUMP, &message, &Attributes::default())?;
    let read = |body: Vec<u8>| {
        let attributes = body.get(TCMSG..)?;
        let options = attribute(attributes, TCA_OPTIONS).unwrap_or_default();
        let place = Place { priority: (word(&body, 16)? >> 16) as u16, handle: word(&body, 8)? };
        let kind = text(attribute(attributes, TCA_KIND));
        // The kernel tells of each priority first, with handle 0.
        (place.handle != 0).then(|| Filter { place, kind, name: text(attribute(options, TCA_BPF_NAME)) })
    };
    Ok(answers.into_iter().filter_map(read).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::{Assembler, Kind};
    use std::os::fd::AsFd;

    #[test]
    fn attributes_of_any_length_are_read_safely() {
        let one = Attributes::default().text(TCA_KIND, "bpf").number(TCA_BPF_FLAGS, 5);
        assert_eq!(text(attribute(&one.0, TCA_KIND)), "bpf");
        assert_eq!(attribute(&one.0, TCA_BPF_FLAGS), Some(&5u32.to_ne_bytes()[..]));
        for len in 0..one.0.len() {
            assert_eq!(attribute(&one.0[..len], TCA_BPF_FLAGS), None);
        }
        for byte in [0, 1, 0xff] {
            assert_eq!(attribute(&[byte; 40], 7), None);
        }
    }

    #[test]
    fn a_filter_is_put_replaced_listed_and_taken_away_beside_a_strangers() {
        if !crate::is_root() {
            eprintln!("SKIPPED: needs root for a network namespace");
            return;
        }
        let inside = || {
            crate::enter_new_network().unwrap();
            let lo = crate::interface_index("lo").unwrap();
            let load = |answer| {
                Assembler::default()
                    .set(0, answer)
                    .exit()
                    .into_program(Kind::Classifier, "weir_test")
                    .unwrap()
            };
            let (ours, strangers) =
                (Place { priority: 40_000, handle: 0x7765 }, Place { priority: 7, handle: 1 });
            assert_eq!(filters(lo, Side::Ingress).unwrap(), []);
            assert!(put_filter(lo, ours, "early", load(-1).as_fd()).is_err(), "nothing to hang on");
            assert!(make_clsact(lo).unwrap() && !make_clsact(lo).unwrap());
            put_filter(lo, strangers, "strange", load(-1).as_fd()).unwrap();
            for name in ["first", "second"] {
                put_filter(lo, ours, name, load(-1).as_fd()).unwrap();
            }
            let listed = |place, name: &str| Filter { place, kind: "bpf".into(), name: name.into() };
            assert_eq!(
                filters(lo, Side::Ingress).unwrap(),
                [listed(strangers, "strange"), listed(ours, "second")]
            );
            assert_eq!(filters(lo, Side::Egress).unwrap(), []);
            remove_filter(lo, ours).unwrap();
            assert!(remove_filter(lo, ours).is_err());
            assert_eq!(filters(lo, Side::Ingress).unwrap(), [listed(strangers, "strange")]);
            remove_clsact(lo).unwrap();
            assert!(remove_clsact(lo).is_err());
        };
        std::thread::spawn(inside).join().unwrap();
    }
}
