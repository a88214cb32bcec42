//! What the engine and the lab need of the system, made safe: clocks, waiting, namespaces.
#![allow(unsafe_code, reason = "system calls without a safe wrapper in the standard library")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use weir_core::units::{Duration, Instant};

/// Turns a system call's answer into a result.
pub(crate) fn check(answer: libc::c_int) -> io::Result<libc::c_int> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

fn clock(id: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec to write to, and lives longer than the call.
    let answer = unsafe { libc::clock_gettime(id, &mut time) };
    debug_assert_eq!(answer, 0, "clocks used here exist on every Linux");
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The monotonic clock, which all processes of a machine share.
pub fn now() -> Instant {
    Instant::from_nanos(clock(libc::CLOCK_MONOTONIC))
}

/// Processor time that the calling thread has used.
pub fn thread_cpu() -> Duration {
    Duration::from_nanos(clock(libc::CLOCK_THREAD_CPUTIME_ID))
}

fn timespec(ns: u64) -> libc::timespec {
    libc::timespec {
        tv_sec: (ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (ns % 1_000_000_000) as libc::c_long,
    }
}

/// Sleeps until `until` on the clock of [`now`].
pub fn sleep_until(until: Instant) {
    let time = timespec(until.as_nanos());
    loop {
        // SAFETY: `time` is valid for the call; with TIMER_ABSTIME no remainder is written.
        let answer = unsafe {
            libc::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &time, std::ptr::null_mut())
        };
        if answer != libc::EINTR {
            return;
        }
    }
}

/// Waits until one of `descriptors` is readable, or for `timeout` (`None`: for ever).
/// True if one is. A signal ends the wait early, with false.
pub fn wait(descriptors: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<bool> {
    const MOST: usize = 8;
    assert!(descriptors.len() <= MOST, "an engine waits on its two interfaces and its control descriptor");
    let mut polls = [libc::pollfd { fd: -1, events: libc::POLLIN, revents: 0 }; MOST];
    for (poll, descriptor) in polls.iter_mut().zip(descriptors) {
        poll.fd = descriptor.as_raw_fd();
    }
    let time = timeout.map(|d| timespec(d.as_nanos()));
    let time = time.as_ref().map_or(std::ptr::null(), |t| t as *const libc::timespec);
    // SAFETY: `polls` holds at least `descriptors.len()` entries, `time` is null or points to a
    // timespec that lives until after the call, and the mask may be null.
    let answer =
        unsafe { libc::ppoll(polls.as_mut_ptr(), descriptors.len() as libc::nfds_t, time, std::ptr::null()) };
    match check(answer) {
        Ok(n) => Ok(n > 0),
        Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(false),
        Err(e) => Err(e),
    }
}

/// Lets the calling thread's sleeps end within a microsecond of their time instead of 50.
pub fn sleep_precisely() -> io::Result<()> {
    // SAFETY: PR_SET_TIMERSLACK takes a number and touches no memory.
    check(unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong, 0, 0, 0) }).map(|_| ())
}

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

/// Gives this process a session of its own and, where the machine schedules by session
/// (autogroup), precedence over those of others: a measured process should not wait for a
/// compiler. Does what it may; without the privilege nothing changes.
pub fn come_first() {
    // SAFETY: setsid takes nothing and touches no memory. It fails for a group leader: fine.
    let _ = unsafe { libc::setsid() };
    let _ = std::fs::write("/proc/self/autogroup", "-20");
    // SAFETY: setpriority takes numbers and touches no memory; 0 is this process.
    let _ = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) };
}

/// Moves the calling thread, and those that it starts from now on, into a new network namespace.
pub fn enter_new_network() -> io::Result<()> {
    // SAFETY: unshare takes flags and touches no memory.
    check(unsafe { libc::unshare(libc::CLONE_NEWNET) }).map(|_| ())
}

/// Keeps the calling thread, and those that it starts from now on, on processor `cpu`.
pub fn pin_to(cpu: usize) -> io::Result<()> {
    // SAFETY: a cpu_set_t is plain bits, for which all zeroes is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    if cpu >= libc::CPU_SETSIZE as usize {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("no processor {cpu}")));
    }
    // SAFETY: `cpu` is below CPU_SETSIZE, so the bit lies in `set`.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: `set` is valid for reading over the size given; 0 is the calling thread.
    check(unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) }).map(|_| ())
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

/// Segmentation and aggregation offloads of an interface, off or on: with them a "packet" is up to
/// 64 KB, 5 ms at 100 Mbit/s, and fairness and delay mean little.
pub fn set_offloads(interface: &str, on: bool) -> io::Result<()> {
    const SET_TSO: u32 = 0x1f;
    const SET_GSO: u32 = 0x24;
    const SET_GRO: u32 = 0x2c;
    for command in [SET_TSO, SET_GSO, SET_GRO] {
        ethtool(interface, command, u32::from(on))?;
    }
    Ok(())
}

fn ethtool(interface: &str, command: u32, data: u32) -> io::Result<()> {
    const SIOCETHTOOL: libc::c_ulong = 0x8946;
    #[repr(C)]
    struct Value {
        command: u32,
        data: u32,
    }
    let mut value = Value { command, data };
    let socket =
        std::net::UdpSocket::bind(("127.0.0.1", 0)).or_else(|_| std::net::UdpSocket::bind("0.0.0.0:0"))?;
    // SAFETY: an ifreq is plain bytes and a union, for which all zeroes is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    copy_name(interface, &mut request.ifr_name)?;
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: SIOCETHTOOL reads and writes an ifreq whose data points to an ethtool_value, here
    // `value`; both live until after the call.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) }).map(|_| ())
}

/// What the system says of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interface {
    /// Largest packet without layer-2 header.
    pub mtu: u32,
    /// Whether it was brought up.
    pub up: bool,
}

/// Asks about an interface of this network namespace.
pub fn interface(name: &str) -> io::Result<Interface> {
    interface_index(name)?;
    let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
    // SAFETY: an ifreq is plain bytes and a union, for which all zeroes is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    copy_name(name, &mut request.ifr_name)?;
    // SAFETY: SIOCGIFMTU reads the name of a valid ifreq and writes its number.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU as _, &raw mut request) })?;
    // SAFETY: the call above filled this member of the union.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    // SAFETY: as above, for the flags.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS as _, &raw mut request) })?;
    // SAFETY: the call above filled this member of the union.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    Ok(Interface { mtu: mtu.max(0) as u32, up: libc::c_int::from(flags) & libc::IFF_UP != 0 })
}

fn copy_name(name: &str, to: &mut [libc::c_char; libc::IFNAMSIZ]) -> io::Result<()> {
    if name.is_empty() || name.len() >= to.len() || name.contains('\0') {
        let say = format!("interface name {name:?}: must have 1 to {} bytes", to.len() - 1);
        return Err(io::Error::new(io::ErrorKind::InvalidInput, say));
    }
    for (to, from) in to.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(())
}

/// The number of an interface of this network namespace.
pub fn interface_index(name: &str) -> io::Result<u32> {
    let c_name = std::ffi::CString::new(name).map_err(io::Error::other)?;
    // SAFETY: `c_name` is a string that ends in NUL and lives until after the call.
    match unsafe { libc::if_nametoindex(c_name.as_ptr()) } {
        0 => Err(io::Error::new(io::ErrorKind::NotFound, format!("no interface {name:?} here"))),
        index => Ok(index),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn seeds_differ() {
        let seeds: std::collections::BTreeSet<u64> = (0..100).map(|_| random_seed().unwrap()).collect();
        assert_eq!(seeds.len(), 100);
        // Of 100 random words each half has every bit set somewhere, but for once in 2^94.
        assert_eq!(seeds.iter().fold(0, |all, seed| all | seed), u64::MAX);
    }

    #[test]
    fn the_clock_goes_forward_and_sleeping_reaches_its_time() {
        sleep_precisely().unwrap();
        let start = now();
        let until = start + Duration::from_millis(3);
        sleep_until(until);
        let woke = now();
        assert!(woke >= until && woke.since(start) < Duration::from_secs(5));
        let before = thread_cpu();
        let mut sum = 0u64;
        for i in 0..200_000u64 {
            sum = std::hint::black_box(sum.wrapping_add(i));
        }
        assert!(thread_cpu() > before);
    }

    #[test]
    fn waits_for_a_descriptor_or_for_time() {
        let (a, b) = std::os::unix::net::UnixDatagram::pair().unwrap();
        let start = now();
        assert!(!wait(&[a.as_fd()], Some(Duration::from_millis(2))).unwrap());
        assert!(now().since(start) >= Duration::from_millis(2));
        b.send(b"x").unwrap();
        assert!(wait(&[a.as_fd()], None).unwrap());
        assert!(wait(&[b.as_fd(), a.as_fd()], Some(Duration::ZERO)).unwrap());
    }

    #[test]
    fn the_loopback_tells_its_mtu() {
        let lo = interface("lo").unwrap();
        assert!(lo.mtu >= 1500, "{lo:?}");
        assert!(interface("no-such-if0").is_err());
    }

    #[test]
    fn mistakes_are_errors() {
        assert!(interface_index("no-such-if0").is_err());
        assert!(interface_index("lo").unwrap() > 0);
        assert!(set_offloads("a-name-longer-than-16-bytes", false).is_err());
        assert!(set_offloads("no-such-if0", false).is_err());
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
        let inside = std::thread::spawn(|| {
            pin_to(0).unwrap();
            enter_new_network().unwrap();
            std::fs::read_link("/proc/thread-self/ns/net").unwrap()
        });
        assert_ne!(inside.join().unwrap(), std::fs::read_link("/proc/self/ns/net").unwrap());
    }
}
