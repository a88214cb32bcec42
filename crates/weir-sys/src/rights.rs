//! What a thread may do beyond others: the capabilities of Linux.
#![allow(unsafe_code, reason = "system calls without a safe wrapper in the standard library")]

use crate::check;
use std::fmt;
use std::io;

/// A right of capabilities(7), by its number there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Capability {
    /// Interfaces, filters and large socket buffers.
    NetAdmin = 12,
    /// Raw sockets.
    NetRaw = 13,
    /// Locked memory beyond the limit.
    LockMemory = 14,
    /// Priority over other threads.
    SysNice = 23,
    /// Programs for the kernel.
    Bpf = 39,
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Capability::NetAdmin => "CAP_NET_ADMIN",
            Capability::NetRaw => "CAP_NET_RAW",
            Capability::LockMemory => "CAP_IPC_LOCK",
            Capability::SysNice => "CAP_SYS_NICE",
            Capability::Bpf => "CAP_BPF",
        })
    }
}

/// `struct __user_cap_header_struct`: version 3, the calling thread.
#[repr(C)]
struct Header {
    version: u32,
    pid: libc::c_int,
}

/// `struct __user_cap_data_struct`: 32 capabilities each, twice.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Sets {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

const VERSION_3: u32 = 0x2008_0522;

fn get() -> io::Result<[Sets; 2]> {
    let mut header = Header { version: VERSION_3, pid: 0 };
    let mut sets = [Sets::default(); 2];
    // SAFETY: capget reads a header and writes, for version 3, two sets; both outlive the call.
    let done = unsafe { libc::syscall(libc::SYS_capget, &raw mut header, sets.as_mut_ptr()) };
    check(done as libc::c_int).map(|_| sets)
}

/// Whether the calling thread has a right.
pub fn has(right: Capability) -> bool {
    let bit = right as u32;
    get().is_ok_and(|sets| sets[bit as usize / 32].effective & 1 << (bit % 32) != 0)
}

/// Gives up all rights of the calling thread but these, for ever. Threads that it starts later
/// have no more than it has. Those that it never had stay away.
///
/// # Errors
/// What the system refuses; giving up is always allowed.
pub fn keep(rights: &[Capability]) -> io::Result<()> {
    let mut sets = get()?;
    for (index, set) in sets.iter_mut().enumerate() {
        let here = rights.iter().map(|&right| right as u32).filter(|bit| *bit as usize / 32 == index);
        let kept = here.fold(0, |bits, bit| bits | 1 << (bit % 32));
        set.permitted &= kept;
        set.effective &= kept;
        // No program that this one starts gets any; the ambient set follows.
        set.inheritable = 0;
    }
    let header = Header { version: VERSION_3, pid: 0 };
    // SAFETY: capset reads a header and, for version 3, two sets; both outlive the call.
    let done = unsafe { libc::syscall(libc::SYS_capset, &raw const header, sets.as_ptr()) };
    check(done as libc::c_int).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_thread_gives_up_is_gone_for_it_and_for_those_that_it_starts() {
        if !crate::is_root() {
            eprintln!("SKIPPED: needs root, who has rights to give up");
            return;
        }
        let all = [Capability::NetAdmin, Capability::NetRaw, Capability::SysNice, Capability::Bpf];
        assert_eq!(all.map(has), [true; 4]);
        let thread = std::thread::spawn(move || {
            keep(&[Capability::NetRaw, Capability::Bpf]).unwrap();
            let kept = all.map(has);
            assert_eq!(std::thread::spawn(move || all.map(has)).join().unwrap(), kept);
            assert!(crate::enter_new_network().is_err(), "needs CAP_SYS_ADMIN");
            // What is gone does not come back.
            keep(&all).unwrap();
            assert_eq!(all.map(has), kept);
            kept
        });
        assert_eq!(thread.join().unwrap(), [false, true, false, true]);
        assert_eq!(all.map(has), [true; 4], "another thread keeps what it has");
        assert_eq!(Capability::NetRaw.to_string(), "CAP_NET_RAW");
    }
}
