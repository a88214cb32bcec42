//! What `weir up` may do: the rights that it asks for, and the cage that it goes into.

use super::{Done, Failure};
use std::path::{Path, PathBuf};
use weir_engine::up::{CLAIMS, prepare_claims};
use weir_sys::confine::{Folders, confine};
use weir_sys::rights::{Capability, has, keep};

/// Without these there is no bridge.
const NEEDED: [Capability; 2] = [Capability::NetRaw, Capability::NetAdmin];
/// What stays for the whole run. An interface that is back, or that a change of the file brings, is
/// opened, filtered and served with the same rights as at the start.
const KEPT: [Capability; 4] =
    [Capability::NetRaw, Capability::NetAdmin, Capability::Bpf, Capability::SysNice];

/// What the system reads to find a host by its name.
const NAMES: &[&str] = &[
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/resolv.conf",
    "/etc/nsswitch.conf",
    "/etc/gai.conf",
    "/etc/ld.so.cache",
    "/run/systemd/resolve",
    "/usr/lib",
    "/lib",
];

fn listed(rights: &[Capability], between: &str) -> String {
    rights.iter().map(ToString::to_string).collect::<Vec<_>>().join(between)
}

/// Succeeds if this process has the rights that a bridge needs.
pub fn permitted() -> Done {
    let lacking: Vec<Capability> = NEEDED.into_iter().filter(|&right| !has(right)).collect();
    if lacking.is_empty() {
        return Ok(());
    }
    let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("weir"));
    Err(Failure::impossible(format!(
        "`weir up` lacks {}: run it as root, or as whom you like after `setcap {}+ep {}`, or by a systemd unit that says `AmbientCapabilities={}`",
        listed(&lacking, " and "),
        listed(&KEPT, ",").to_lowercase(),
        program.display(),
        listed(&KEPT, " ")
    )))
}

/// Gives up what `weir up` does not need, for ever: all other rights, files outside of the folders
/// of `reads` and `writes`, system calls. It is to come before the first thread. With `locks` it needs
/// locked memory, as AF_XDP does: the right to it stays where its limit cannot be lifted. It connects to `ports` by TCP,
/// and to no other.
pub fn enter(reads: &[&Path], writes: &[&Path], ports: Vec<u16>, locks: bool) -> Done {
    // A file is replaced by another one of its name, so that its folder counts; and a link to it
    // leads elsewhere.
    let folders = |files: &[&Path]| -> Vec<PathBuf> {
        let real = files.iter().filter_map(|file| file.canonicalize().ok());
        let all = files.iter().map(|file| file.to_path_buf()).chain(real);
        let folder = |file: PathBuf| match file.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder.to_path_buf(),
            _ => PathBuf::from("."),
        };
        all.map(folder).collect()
    };
    let fixed = |paths: &[&str]| paths.iter().map(PathBuf::from).collect::<Vec<_>>();
    let names = if ports.is_empty() { &[][..] } else { NAMES };
    // A claim that cannot be made is told of where it is.
    let _ = prepare_claims();
    let open = Folders {
        read: [folders(reads), fixed(&["/proc", "/sys", "/dev/tty"]), fixed(names)].concat(),
        // The claims, the precedence of its session, and what its programs leave in the kernel.
        write: [folders(writes), fixed(&[CLAIMS, "/proc/self", "/sys/fs/bpf"])].concat(),
        ports,
    };
    let said = |e: std::io::Error| {
        Failure::failed(format!("this process could not be confined: {e}; `--unconfined` leaves that out"))
    };
    let lifted = weir_sys::lock_any_amount().is_ok();
    let lock = [Capability::LockMemory];
    let kept = [&KEPT[..], if locks && !lifted { &lock } else { &[] }].concat();
    keep(&kept).map_err(said)?;
    let walls = confine(&open).map_err(said)?;
    let kept: Vec<Capability> = kept.into_iter().filter(|&right| has(right)).collect();
    eprintln!("weir: keeps {}; confined by {}", listed(&kept, ", "), walls.join(", "));
    Ok(())
}
