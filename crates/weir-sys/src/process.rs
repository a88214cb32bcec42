//! This process and others: processors, network namespaces, ends.
#![allow(unsafe_code, reason = "system calls without a safe wrapper in the standard library")]

use crate::check;
use std::io;
use std::os::fd::AsRawFd;

/// Has the system kill this process when the thread that started it ends, and fails if
/// `parent` is gone already.
pub fn die_with_parent(parent: u32) -> io::Result<()> {
    // SAFETY: PR_SET_PDEATHSIG takes a number and touches no memory.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong, 0, 0, 0) })?;
    if std::os::unix::process::parent_id() != parent {
        return Err(io::Error::other("the parent process ended before its child had started"));
    }
    Ok(())
}

/// Lifts the limit on memory that this process may lock. Needs CAP_SYS_RESOURCE, unless the hard limit is high.
///
/// # Errors
/// No privilege.
pub fn lock_any_amount() -> io::Result<()> {
    let limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the call reads `limit`, which outlives it.
    check(unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) }).map(|_| ())
}

/// Moves the calling thread, and those that it starts from now on, into a new network namespace.
pub fn enter_new_network() -> io::Result<()> {
    // SAFETY: unshare takes flags and touches no memory.
    check(unsafe { libc::unshare(libc::CLONE_NEWNET) }).map(|_| ())
}

/// Moves the calling thread, and those that it starts from now on, into the network namespace of
/// the process `pid`.
pub fn enter_network_of(pid: u32) -> io::Result<()> {
    let namespace = std::fs::File::open(format!("/proc/{pid}/ns/net"))?;
    // SAFETY: setns takes numbers and touches no memory; the descriptor is open.
    check(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) }).map(|_| ())
}

/// Moves the calling thread to processor `cpu`. It may run on all of `allowed` from then on, and the system moves it
/// again if it sees a reason.
pub fn move_to(cpu: usize, allowed: &[usize]) -> io::Result<()> {
    pin_to(cpu)?;
    stay_on(allowed)
}

/// Keeps the calling thread, and those that it starts from now on, on processor `cpu`.
pub fn pin_to(cpu: usize) -> io::Result<()> {
    stay_on(&[cpu])
}

fn stay_on(cpus: &[usize]) -> io::Result<()> {
    // SAFETY: a cpu_set_t is plain bits, for which all zeroes is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for &cpu in cpus {
        if cpu >= libc::CPU_SETSIZE as usize {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("no processor {cpu}")));
        }
        // SAFETY: `cpu` is below CPU_SETSIZE, so the bit lies in `set`.
        unsafe { libc::CPU_SET(cpu, &mut set) };
    }
    // SAFETY: `set` is valid for reading over the size given; 0 is the calling thread.
    check(unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) }).map(|_| ())
}

/// The processors that the calling thread may run on.
pub fn processors() -> io::Result<Vec<usize>> {
    // SAFETY: a cpu_set_t is plain bits, for which all zeroes is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is valid for writing over the size given; 0 is the calling thread.
    check(unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) })?;
    // SAFETY: each number is below CPU_SETSIZE, so the bit lies in `set`.
    Ok((0..libc::CPU_SETSIZE as usize).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).collect())
}

/// The processor that the calling thread runs on.
pub fn processor() -> Option<usize> {
    // SAFETY: the call takes nothing and touches no memory.
    usize::try_from(unsafe { libc::sched_getcpu() }).ok()
}

/// 64 random bits of the system's, which nobody can foresee: for seeds that are to stay secret.
///
/// # Errors
/// What `getrandom` answers; early in the boot it waits instead.
pub fn random_seed() -> io::Result<u64> {
    let mut bytes = [0u8; 8];
    // SAFETY: the system writes at most as many bytes as `bytes` has, which outlives the call.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    match got {
        // Requests of up to 256 bytes are answered whole.
        8 => Ok(u64::from_ne_bytes(bytes)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// True if this process runs as root, as namespaces and raw sockets need.
pub fn is_root() -> bool {
    // SAFETY: geteuid always succeeds and touches no memory.
    unsafe { libc::geteuid() == 0 }
}

/// Tells another process to end (SIGTERM), or ends it at once (SIGKILL).
pub fn kill(pid: u32, at_once: bool) -> io::Result<()> {
    let pid = libc::pid_t::try_from(pid).ok().filter(|&p| p > 1);
    let pid = pid.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no such process"))?;
    // SAFETY: kill takes numbers; a positive pid above 1 names one process.
    check(unsafe { libc::kill(pid, if at_once { libc::SIGKILL } else { libc::SIGTERM }) }).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locked_memory_has_no_limit_where_that_may_be() {
        match lock_any_amount() {
            Err(e) => assert_eq!(e.kind(), io::ErrorKind::PermissionDenied),
            Ok(()) => {
                let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
                let line = limits.lines().find(|line| line.starts_with("Max locked memory")).unwrap();
                assert_eq!(line.matches("unlimited").count(), 2, "{line}");
            }
        }
    }

    #[test]
    fn seeds_differ() {
        let seeds: std::collections::BTreeSet<u64> = (0..100).map(|_| random_seed().unwrap()).collect();
        assert_eq!(seeds.len(), 100);
        // Of 100 random words each half has every bit set somewhere, but for once in 2^94.
        assert_eq!(seeds.iter().fold(0, |all, seed| all | seed), u64::MAX);
    }

    #[test]
    fn mistakes_are_errors() {
        assert!(pin_to(1 << 20).is_err());
        assert!(kill(0, true).is_err() && kill(1, true).is_err());
        assert!(die_with_parent(u32::MAX).is_err());
    }

    #[test]
    fn a_thread_gets_a_network_and_a_processor_of_its_own() {
        if !is_root() {
            eprintln!("SKIPPED: needs root for a network namespace");
            return;
        }
        let network = || std::fs::read_link("/proc/thread-self/ns/net").unwrap();
        let inside = std::thread::spawn(move || {
            pin_to(0).unwrap();
            enter_new_network().unwrap();
            let new = network();
            // The process's first thread has stayed where it was.
            enter_network_of(std::process::id()).unwrap();
            (new, network())
        });
        let (new, back) = inside.join().unwrap();
        assert!(new != network() && back == network());
        assert!(enter_network_of(u32::MAX).is_err());
    }
}
