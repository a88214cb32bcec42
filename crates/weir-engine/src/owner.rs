//! One owner for each interface: what would make frames pass twice, or not at all, is refused.
//!
//! A bridge's socket sees a copy of each frame. Whoever else takes the frames of an interface, the
//! kernel or another Weir, sends them too. Traffic of a VLAN passes the interface below as well.

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weir_sys::netlink::{Address, Link, addresses, links};

/// Where the claims lie: a folder in which strangers can take no name.
pub const CLAIMS: &str = "/run/weir";
/// What their names begin with.
const PREFIX: &str = "claim-";
/// How long another process may take to make its claim.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it is asked whether that is done.
const LOOK: Duration = Duration::from_millis(10);

/// The claim of a running Weir on a device: a locked file, in which stands whose it is. The lock ends with
/// the process, however that ends, and passes to the one that takes over.
pub(crate) struct Claim(File);

/// Why an interface should not be bridged, and what mends it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Objection(String);

impl fmt::Display for Objection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of the claim on a device, whose number is of this network namespace alone.
fn name_of(device: u32) -> io::Result<String> {
    Ok(format!("{PREFIX}{}-{device}", fs::metadata("/proc/thread-self/ns/net")?.ino()))
}

fn claims() -> PathBuf {
    // Tests need no root, and leave those of the machine alone.
    match cfg!(test) {
        true => std::env::temp_dir().join(format!("weir-claims-of-{}", weir_sys::passing::own_uid())),
        false => PathBuf::from(CLAIMS),
    }
}

/// Makes the folder of the claims, if it is not there.
///
/// # Errors
/// It cannot be made, or strangers may write to it.
pub fn prepare_claims() -> io::Result<()> {
    folder(&claims()).map(drop)
}

fn folder(path: &Path) -> io::Result<File> {
    let shown = path.display();
    let made = match DirBuilder::new().mode(0o700).create(path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    };
    let opened = made.and_then(|()| File::open(path)).map_err(|e| {
        let what = format!(
            "{shown}, where the claims on interfaces lie: {e}: as root, `install -d -m 700 -o USER {shown}` with whom weir runs as"
        );
        io::Error::new(e.kind(), what)
    })?;
    let found = opened.metadata()?;
    if !found.is_dir() || found.mode() & 0o077 != 0 {
        let what =
            format!("{shown}, where the claims on interfaces lie, is open to strangers: `chmod 700 {shown}`");
        return Err(io::Error::other(what));
    }
    Ok(opened)
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Locks the folder of the claims, in which one process claims at a time.
///
/// # Errors
/// Another process has it for longer than `patience`.
fn lock(folder: &File, path: &Path, patience: Duration) -> io::Result<()> {
    let until = Instant::now() + patience;
    loop {
        match folder.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::Error(e)) => return Err(e),
            Err(TryLockError::WouldBlock) if Instant::now() < until => std::thread::sleep(LOOK),
            Err(TryLockError::WouldBlock) => {
                let what = format!(
                    "another process has locked the claims on interfaces, {}, for {} s: `lslocks -o PID,PATH` names \
                     that process, end it or let it go on",
                    path.display(),
                    patience.as_secs()
                );
                return Err(io::Error::new(io::ErrorKind::TimedOut, what));
            }
        }
    }
}

/// Removes the claims that nobody has any more: what was killed left them.
fn sweep(path: &Path, but: &str) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let name = entry.file_name();
        let is_other = name.to_str().is_some_and(|name| name.starts_with(PREFIX) && name != but);
        if is_other && open(&entry.path()).is_ok_and(|file| file.try_lock().is_ok()) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

impl Claim {
    /// Claims the device of that number, which `interface` leads to.
    ///
    /// # Errors
    /// `ResourceBusy` if another process has done so, `TimedOut` if another one does not come to an end with its
    /// own claim; what else the system refuses.
    pub(crate) fn on(interface: &str, device: u32) -> io::Result<Claim> {
        let (path, name) = (claims(), name_of(device)?);
        // One claims at a time, so that nobody removes what another one is about to lock.
        let folder = folder(&path)?;
        lock(&folder, &path, PATIENCE)?;
        sweep(&path, &name)?;
        let path = path.join(name);
        let claim = Claim(open(&path)?);
        match claim.0.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let what = taken(interface, &path, owner(&claim.0));
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, what));
            }
            Err(TryLockError::Error(e)) => return Err(e),
        }
        claim.sign()?;
        Ok(claim)
    }

    /// Says that it is this process's.
    pub(crate) fn sign(&self) -> io::Result<()> {
        self.0.set_len(0)?;
        self.0.write_all_at(format!("{}\n", std::process::id()).as_bytes(), 0)
    }

    /// What makes it another process's, which takes over.
    pub(crate) fn pass(&self) -> io::Result<OwnedFd> {
        self.0.as_fd().try_clone_to_owned()
    }

    /// The claim that another process has passed, and has until this one signs it.
    pub(crate) fn taken(claimed: OwnedFd) -> Claim {
        Claim(claimed.into())
    }
}

fn taken(interface: &str, path: &Path, owner: Option<u32>) -> String {
    match owner {
        Some(pid) => format!(
            "interface {interface}: another weir manages it (process {pid}), and every frame would leave twice: `kill {pid}`"
        ),
        // It may be one of another namespace of processes.
        None => format!(
            "interface {interface}: another process has its claim, {}: `lslocks -o PID,PATH` names that process, end it",
            path.display()
        ),
    }
}

/// The process that has signed a claim, if it runs the same program.
fn owner(claim: &File) -> Option<u32> {
    let mut signed = [0; 16];
    let length = claim.read_at(&mut signed, 0).ok()?;
    let pid: u32 = std::str::from_utf8(&signed[..length]).ok()?.trim().parse().ok()?;
    let program = |of: &str| fs::read_to_string(format!("/proc/{of}/comm")).ok();
    let ours = program("self")?;
    program(&pid.to_string()).filter(|theirs| *theirs == ours).map(|_| pid)
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
        // Who has taken over has it alone, once the other one is gone.
        let passed = Claim::taken(claim.pass().unwrap());
        drop(claim);
        assert!(Claim::on("e0", NONE).is_err());
        // Somebody who says that he is init: nobody is told to end that.
        passed.0.write_all_at(b"1         ", 0).unwrap();
        let refused = Claim::on("e0", NONE).err().unwrap().to_string();
        assert!(refused.contains("`lslocks") && !refused.contains("kill"), "{refused}");
        drop(passed);
        // What a killed process leaves is no claim, and the next claim on any device takes it away.
        let left = claims().join(name_of(NONE).unwrap());
        drop(Claim::on("e1", NONE + 1).unwrap());
        assert!(!left.exists());
        drop(Claim::on("e0", NONE).unwrap());
    }

    /// A process that was stopped while it claimed keeps another one waiting, but not for ever.
    #[test]
    fn a_lock_that_is_kept_is_told_of() {
        let path = std::env::temp_dir().join(format!("weir-claims-locked-{}", std::process::id()));
        let (kept, mine) = (folder(&path).unwrap(), folder(&path).unwrap());
        kept.try_lock().unwrap();
        let refused = lock(&mine, &path, 2 * LOOK).err().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
        let said = refused.to_string();
        assert!(said.contains(path.to_str().unwrap()) && said.contains("`lslocks -o PID,PATH`"), "{said}");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(3 * LOOK);
                drop(kept);
            });
            lock(&mine, &path, 60 * PATIENCE).unwrap();
        });
        fs::remove_dir(&path).unwrap();
    }

    #[test]
    fn strangers_write_no_claims() {
        use std::os::unix::fs::PermissionsExt;
        let path = std::env::temp_dir().join(format!("weir-claims-{}", std::process::id()));
        folder(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        let refused = folder(&path).err().unwrap().to_string();
        assert!(refused.contains("chmod 700"), "{refused}");
        fs::remove_dir(&path).unwrap();
        fs::write(&path, "").unwrap();
        assert!(folder(&path).is_err(), "a file is no folder");
        fs::remove_file(&path).unwrap();
        let nowhere = folder(&path.join("x")).err().unwrap().to_string();
        assert!(nowhere.contains("`install -d -m 700"), "{nowhere}");
    }
}
