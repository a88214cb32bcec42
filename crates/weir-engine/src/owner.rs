//! One owner for each interface: what would make frames pass twice, or not at all, is refused.
//!
//! A bridge's socket sees a copy of each frame. Whoever else takes the frames of an interface, the
//! kernel or another Weir, sends them too. Traffic of a VLAN passes the interface below as well.

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use weir_sys::netlink::{Address, Link, addresses, links};

/// The claim of a running Weir on a device. It ends with the process, however that ends.
pub(crate) struct Claim {
    /// Two sockets without a file, whose names are of this network namespace alone: the name of the
    /// first can be had once, that of the second tells who has it.
    sockets: [UnixDatagram; 2],
}

/// Why an interface should not be bridged, and what mends it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Objection(String);

impl fmt::Display for Objection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn name_of(device: u32) -> String {
    format!("weir/interface/{device}")
}

impl Claim {
    /// Claims the device of that number, which `interface` leads to.
    ///
    /// # Errors
    /// `ResourceBusy` if another process has done so; what else the system refuses.
    pub(crate) fn on(interface: &str, device: u32) -> io::Result<Claim> {
        let name = name_of(device);
        let claimed = bind(&name).map_err(|e| match e.kind() {
            io::ErrorKind::AddrInUse => {
                let what = taken(interface, device, owner(device));
                io::Error::new(io::ErrorKind::ResourceBusy, what)
            }
            _ => e,
        })?;
        Claim::of(device, claimed)
    }

    fn of(device: u32, claimed: UnixDatagram) -> io::Result<Claim> {
        Ok(Claim { sockets: [claimed, bind(&format!("{}/{}", name_of(device), std::process::id()))?] })
    }

    /// What makes it this process's, for another one that takes over.
    pub(crate) fn pass(&self) -> io::Result<OwnedFd> {
        self.sockets[0].as_fd().try_clone_to_owned()
    }

    /// The claim that another process has passed.
    ///
    /// # Errors
    /// The system refuses the name that tells whose it is.
    pub(crate) fn taken(device: u32, claimed: OwnedFd) -> io::Result<Claim> {
        Claim::of(device, claimed.into())
    }
}

fn bind(name: &str) -> io::Result<UnixDatagram> {
    UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name)?)
}

fn taken(interface: &str, device: u32, owner: Option<u32>) -> String {
    match owner {
        Some(pid) => format!(
            "interface {interface}: another weir manages it (process {pid}), and every frame would leave twice: `kill {pid}`"
        ),
        // Any user may take the name of a socket.
        None => format!(
            "interface {interface}: a process that is no running weir has its claim, @{}: `ss -xap` names that process, end it",
            name_of(device)
        ),
    }
}

/// The process that has claimed a device, if it runs the same program.
fn owner(device: u32) -> Option<u32> {
    let prefix = format!("@{}/", name_of(device));
    let sockets = fs::read_to_string("/proc/thread-self/net/unix").ok()?;
    let mut names = sockets.lines().filter_map(|line| line.split_whitespace().last()?.strip_prefix(&prefix));
    let program = |of: &str| fs::read_to_string(format!("/proc/{of}/comm")).ok();
    let ours = program("self")?;
    names.find_map(|pid| {
        pid.parse().ok().filter(|pid: &u32| program(&pid.to_string()).is_some_and(|p| p == ours))
    })
}

/// What speaks against a bridge between two interfaces, beside others.
///
/// # Errors
/// What the system refuses to tell.
pub(crate) fn objections(bridge: &[String; 2], others: &[[String; 2]]) -> io::Result<Vec<Objection>> {
    Ok(Seen::now()?.objections(bridge, others))
}

/// Who else takes the frames of interfaces that are called so.
///
/// # Errors
/// What the system refuses to tell.
pub(crate) fn takers(interfaces: [&str; 2]) -> io::Result<[Vec<Objection>; 2]> {
    let seen = Seen::now()?;
    let of = |name| seen.called(name).map(|link| seen.takers(name, link)).unwrap_or_default();
    Ok(interfaces.map(of))
}

/// Whether the kernel forwards packets to other hosts that come in by an interface.
fn forwards(interface: &str, v6: bool) -> bool {
    let path = match v6 {
        false => format!("/proc/sys/net/ipv4/conf/{interface}/forwarding"),
        // The kernel heeds no interface's own setting.
        true => "/proc/sys/net/ipv6/conf/all/forwarding".into(),
    };
    fs::read_to_string(path).is_ok_and(|text| text.trim() != "0")
}

/// The interfaces of this namespace, as far as they matter here.
struct Seen<F> {
    links: Vec<Link>,
    addresses: Vec<Address>,
    /// Whether packets that come in by an interface of that name are forwarded (IPv6 or not).
    forwards: F,
}

/// How many devices stand one on another at most.
const DEEPEST: usize = 8;

impl Seen<fn(&str, bool) -> bool> {
    fn now() -> io::Result<Self> {
        Ok(Seen { links: links()?, addresses: addresses()?, forwards })
    }
}

impl<F: Fn(&str, bool) -> bool> Seen<F> {
    fn called(&self, name: &str) -> Option<&Link> {
        self.links.iter().find(|link| link.is_called(name))
    }

    fn number(&self, index: u32) -> Option<&Link> {
        self.links.iter().find(|link| link.index == index)
    }

    fn objections(&self, bridge: &[String; 2], others: &[[String; 2]]) -> Vec<Objection> {
        let mut found = Vec::new();
        for name in bridge {
            // One that does not exist is told of when it is opened.
            let Some(link) = self.called(name) else { continue };
            found.extend(self.takers(name, link));
            for other in others.iter().flatten() {
                found.extend(self.twice(name, other, false));
            }
        }
        let [left, right] = bridge;
        found.extend(self.twice(left, right, true));
        found
    }

    fn takers(&self, name: &str, link: &Link) -> Vec<Objection> {
        self.master(name, link).into_iter().chain(self.forwarding(name, link)).collect()
    }

    fn master(&self, name: &str, link: &Link) -> Option<Objection> {
        let master = self.number(link.master?)?;
        let kind = if master.kind.is_empty() { "device" } else { &master.kind };
        Some(Objection(format!(
            "interface {name}: it is a port of the {kind} {}, which carries the same frames: `ip link set {name} nomaster`",
            master.name
        )))
    }

    fn forwarding(&self, name: &str, link: &Link) -> Option<Objection> {
        let of_this = self.addresses.iter().filter(|at| at.index == link.index && at.routed);
        let Address { address, prefix, .. } =
            of_this.into_iter().find(|at| (self.forwards)(&link.name, at.address.is_ipv6()))?;
        Some(Objection(format!(
            "interface {name}: it carries an address, and the kernel forwards, so frames would pass twice: `ip address del {address}/{prefix} dev {name}`"
        )))
    }

    /// Whether traffic of the one interface passes the other, too. `one_bridge`: as its two sides.
    fn twice(&self, one: &str, other: &str, one_bridge: bool) -> Option<Objection> {
        let (a, b) = (self.called(one)?, self.called(other)?);
        if a.index == b.index {
            return Some(Objection(format!(
                "interfaces {one} and {other}: these are two names of one device: bridge another one"
            )));
        }
        // The ends of a veth pair may well join two bridges to a longer one.
        if a.kind == "veth" && a.lower == Some(b.index) {
            return one_bridge.then(|| {
                Objection(format!(
                    "interfaces {one} and {other}: these are the ends of one veth pair, so frames would go round for ever: bridge one of them with another interface"
                ))
            });
        }
        let (upper, lower) = match (self.stands_on(a, b), self.stands_on(b, a)) {
            (true, _) => (one, other),
            (_, true) => (other, one),
            _ => return None,
        };
        Some(Objection(format!(
            "interface {upper}: it stands on {lower}, so its frames would pass twice: `ip link del {upper}`, or bridge one of them alone"
        )))
    }

    fn stands_on(&self, upper: &Link, lower: &Link) -> bool {
        let below = |link: &&Link| self.number(link.lower.filter(|_| link.kind != "veth")?);
        std::iter::successors(Some(upper), below).take(DEEPEST).any(|link| link.index == lower.index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(index: u32, name: &str, kind: &str, lower: Option<u32>) -> Link {
        Link { index, name: name.into(), kind: kind.into(), lower, ..Link::default() }
    }

    fn pair(left: &str, right: &str) -> [String; 2] {
        [left.into(), right.into()]
    }

    #[test]
    fn what_passes_twice_is_found_between_all_interfaces() {
        let mut alias = link(9, "e9", "", None);
        alias.altnames = vec!["uplink".into()];
        let seen = Seen {
            links: vec![
                link(1, "e1", "", None),
                link(2, "e2", "", None),
                link(3, "e1.5", "vlan", Some(1)),
                link(4, "e1.5.6", "vlan", Some(3)),
                link(5, "v1", "veth", Some(6)),
                link(6, "v2", "veth", Some(5)),
                link(7, "e2.5", "vlan", Some(2)),
                link(8, "v1.5", "vlan", Some(5)),
                alias,
            ],
            addresses: Vec::new(),
            forwards: |_: &str, _| false,
        };
        let asked = |bridge: [String; 2], others: &[[String; 2]]| {
            seen.objections(&bridge, others).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let one = |bridge, others: &[[String; 2]], words: &str| {
            let all = asked(bridge, others);
            assert!(all.len() == 1 && all[0].contains(words), "{words}: {all:?}");
        };
        one(pair("e1", "e1.5"), &[], "interface e1.5: it stands on e1");
        one(pair("e1.5.6", "e1"), &[], "interface e1.5.6: it stands on e1");
        one(pair("e1.5", "e2"), &[pair("v1", "e1")], "interface e1.5: it stands on e1");
        one(pair("v1", "v2"), &[], "ends of one veth pair");
        one(pair("v1.5", "v1"), &[], "interface v1.5: it stands on v1");
        one(pair("e9", "uplink"), &[], "two names of one device");
        one(pair("uplink", "e2"), &[pair("e1", "e9")], "two names of one device");
        // Two VLANs of two interfaces, and two bridges that a veth pair joins to a longer one.
        assert!(asked(pair("e1.5", "e2.5"), &[pair("v1", "e9")]).is_empty());
        assert!(asked(pair("v2", "e1"), &[pair("v1", "e9"), pair("e2", "gone")]).is_empty());
    }

    #[test]
    fn a_kernel_that_forwards_objects_only_to_addresses() {
        let address =
            |index, text: &str, routed| Address { index, address: text.parse().unwrap(), prefix: 24, routed };
        let of = |addresses: Vec<Address>, v4: bool, v6: bool| {
            let links = vec![link(1, "e1", "", None), link(2, "e2", "", None)];
            let seen = Seen { links, addresses, forwards: |_: &str, six| if six { v6 } else { v4 } };
            seen.objections(&pair("e1", "e2"), &[]).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let (four, six) = (address(1, "10.0.0.1", true), address(2, "fd00::1", true));
        assert!(of(vec![four, six], true, false)[0].ends_with("`ip address del 10.0.0.1/24 dev e1`"));
        assert!(of(vec![four, six], false, true)[0].ends_with("`ip address del fd00::1/24 dev e2`"));
        assert_eq!(of(vec![four, six], true, true).len(), 2);
        assert!(of(vec![four, six], false, false).is_empty());
        assert!(of(vec![address(1, "fe80::1", false), address(3, "10.0.0.1", true)], true, true).is_empty());
    }

    #[test]
    fn a_device_is_claimed_once() {
        const NONE: u32 = 0x7fff_0001;
        let claim = Claim::on("e0", NONE).unwrap();
        let refused = Claim::on("e0", NONE).err().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::ResourceBusy);
        let kill = format!("interface e0: another weir manages it (process {0})", std::process::id());
        assert!(refused.to_string().starts_with(&kill), "{refused}");
        drop(claim);
        drop(Claim::on("e0", NONE).unwrap());
        // Somebody who takes the name, and says it is init: nobody is told to end that.
        let bind = |name: &str| UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name).unwrap());
        let _strange = [bind(&name_of(NONE)).unwrap(), bind(&format!("{}/1", name_of(NONE))).unwrap()];
        let refused = Claim::on("e0", NONE).err().unwrap().to_string();
        assert!(refused.contains("is no running weir") && !refused.contains("kill"), "{refused}");
    }
}
