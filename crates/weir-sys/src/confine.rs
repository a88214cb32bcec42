//! A cage for a data plane: it may do what it needs, and nothing else, whatever a packet makes of it.
//!
//! Three walls of the kernel's, for the calling thread and those that it starts later. None can be
//! taken down again.
//! - *No new privileges*: no program that it starts gets more than it has.
//! - *Landlock*: it opens files below some folders, and connects to some ports by TCP.
//! - *seccomp*: it makes the system calls of `CALLS`. Any other answers `EPERM`: it starts no
//!   program, mounts nothing, looks into no other process.
#![allow(unsafe_code, reason = "system calls without a safe wrapper in the standard library")]

use crate::check;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The folders that stay open.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Folders {
    /// Files below are read.
    pub read: Vec<PathBuf>,
    /// Files below are read, written, made, renamed and removed.
    pub write: Vec<PathBuf>,
    /// Ports that it may connect to by TCP.
    pub ports: Vec<u16>,
}

/// Puts up all walls that the kernel has: the names of those that stand.
///
/// # Errors
/// The system refuses one that it has.
pub fn confine(folders: &Folders) -> io::Result<Vec<&'static str>> {
    // SAFETY: PR_SET_NO_NEW_PRIVS takes numbers and touches no memory.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })?;
    let mut walls = vec!["no new privileges"];
    if landlock(folders)? {
        walls.push("Landlock");
    }
    if seccomp()? {
        walls.push("seccomp");
    }
    Ok(walls)
}

/// The kernel was built without it, or started without it.
fn is_missing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EOPNOTSUPP | libc::EINVAL))
}

// Landlock: see landlock(7). What a version of it does not know may not be named.

/// `struct landlock_ruleset_attr`.
#[repr(C)]
struct Ruleset {
    files: u64,
    net: u64,
}

/// `struct landlock_path_beneath_attr`.
#[repr(C, packed)]
struct Beneath {
    allowed: u64,
    folder: libc::c_int,
}

const EXECUTE: u64 = 1;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
const TRUNCATE: u64 = 1 << 14;
/// The rights over files of the first version: all up to making a symbolic link.
const FILES_1: u64 = (1 << 13) - 1;
/// The versions that brought a right over files more: moving between folders, `TRUNCATE`, commands
/// to devices.
const MORE: [(libc::c_long, u64); 3] = [(2, 1 << 13), (3, TRUNCATE), (5, 1 << 15)];
/// `struct landlock_net_port_attr`.
#[repr(C)]
struct ToPort {
    allowed: u64,
    port: u64,
}

/// Connecting by TCP.
const CONNECT: u64 = 0b10;
/// Listening and connecting by TCP.
const TCP: u64 = 0b01 | CONNECT;

/// Closes all files but those below `folders`, and TCP; false if this kernel has no Landlock.
fn landlock(folders: &Folders) -> io::Result<bool> {
    const VERSION: libc::c_uint = 1;
    let nothing = std::ptr::null::<Ruleset>();
    // SAFETY: asked for its version so, the call takes null and 0 and touches no memory.
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, nothing, 0usize, VERSION) };
    if version < 1 {
        let error = io::Error::last_os_error();
        return if is_missing(&error) { Ok(false) } else { Err(error) };
    }
    let known = MORE.iter().filter(|(since, _)| version >= *since).fold(FILES_1, |all, (_, more)| all | more);
    let rules = Ruleset { files: known, net: if version >= 4 { TCP } else { 0 } };
    // A kernel that knows no more refuses a longer structure.
    let size = if version >= 4 { size_of::<Ruleset>() } else { size_of::<u64>() };
    // SAFETY: `rules` is readable over `size`, and outlives the call.
    let raw = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, &raw const rules, size, 0u32) };
    let raw = check(raw as libc::c_int)?;
    // SAFETY: `raw` was just opened and belongs to nobody else.
    let ruleset = unsafe { OwnedFd::from_raw_fd(raw) };
    for folder in &folders.read {
        allow(&ruleset, folder, READ_FILE | READ_DIR)?;
    }
    for folder in &folders.write {
        allow(&ruleset, folder, known & !EXECUTE)?;
    }
    for &port in folders.ports.iter().filter(|_| version >= 4) {
        const PORT: libc::c_uint = 2;
        let rule = ToPort { allowed: CONNECT, port: u64::from(port) };
        // SAFETY: the call reads a net_port_attr, which outlives it.
        let done = unsafe {
            libc::syscall(libc::SYS_landlock_add_rule, ruleset.as_raw_fd(), PORT, &raw const rule, 0u32)
        };
        check(done as libc::c_int)?;
    }
    // SAFETY: the call takes a descriptor and a number, and touches no memory.
    let done = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0u32) };
    check(done as libc::c_int).map(|_| true)
}

/// Opens what is below a folder, or a file; one that does not exist is left out.
fn allow(ruleset: &OwnedFd, folder: &Path, allowed: u64) -> io::Result<()> {
    const BENEATH: libc::c_uint = 1;
    let opened = std::fs::OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(folder);
    let opened = match opened {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    // A file has no rights of folders.
    let of_files = WRITE_FILE | READ_FILE | TRUNCATE;
    let allowed = if opened.metadata()?.is_dir() { allowed } else { allowed & of_files };
    let rule = Beneath { allowed, folder: opened.as_raw_fd() };
    // SAFETY: the call reads a path_beneath_attr, which outlives it, as does the folder's descriptor.
    let done = unsafe {
        libc::syscall(libc::SYS_landlock_add_rule, ruleset.as_raw_fd(), BENEATH, &raw const rule, 0u32)
    };
    check(done as libc::c_int).map(|_| ())
}

/// The system calls that a data plane makes, those of its start and of a change while it runs
/// included.
const CALLS: &[libc::c_long] = &[
    // Memory.
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_mlock,
    libc::SYS_mlockall,
    // Threads and their precedence.
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_setsid,
    libc::SYS_prctl,
    libc::SYS_capget,
    libc::SYS_capset,
    libc::SYS_prlimit64,
    libc::SYS_getrusage,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getattr,
    libc::SYS_sched_setattr,
    libc::SYS_getpriority,
    libc::SYS_setpriority,
    // Signals.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sigaltstack,
    libc::SYS_tgkill,
    libc::SYS_restart_syscall,
    // Time and chance.
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    libc::SYS_timerfd_gettime,
    libc::SYS_getrandom,
    // Files.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_lseek,
    libc::SYS_getdents64,
    libc::SYS_fcntl,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    // Memory for frames of a device that is back.
    libc::SYS_memfd_create,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_unlinkat,
    libc::SYS_mkdirat,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_readlinkat,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_flock,
    libc::SYS_umask,
    libc::SYS_getcwd,
    libc::SYS_pipe2,
    libc::SYS_eventfd2,
    libc::SYS_ioctl,
    // Sockets, and waiting.
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_connect,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_shutdown,
    libc::SYS_ppoll,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    // Programs for the kernel.
    libc::SYS_bpf,
];

/// The older forms of some, which only this architecture still has.
#[cfg(target_arch = "x86_64")]
const OLD_CALLS: &[libc::c_long] = &[
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_rename,
    libc::SYS_unlink,
    libc::SYS_mkdir,
    libc::SYS_rmdir,
    libc::SYS_chmod,
    libc::SYS_poll,
    libc::SYS_epoll_wait,
    libc::SYS_dup2,
    libc::SYS_time,
    libc::SYS_arch_prctl,
];
#[cfg(not(target_arch = "x86_64"))]
const OLD_CALLS: &[libc::c_long] = &[];

/// `AUDIT_ARCH_*` of linux/audit.h. Elsewhere there is no such wall.
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: Option<u32> = Some(0xc000_003e);
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: Option<u32> = Some(0xc000_00b7);
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const ARCHITECTURE: Option<u32> = None;

/// The filter: a row of comparisons, at whose end stand the two answers.
fn filter(architecture: u32) -> Vec<libc::sock_filter> {
    const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    const IF_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const ANSWER: u32 = libc::BPF_RET | libc::BPF_K;
    let line = |code: u32, jt: usize, jf: usize, k: u32| libc::sock_filter {
        code: code as u16,
        jt: jt as u8,
        jf: jf as u8,
        k,
    };
    let calls: Vec<_> = CALLS.iter().chain(OLD_CALLS).collect();
    // `struct seccomp_data`: the call's number, then the architecture.
    let mut program =
        vec![line(LOAD, 0, 0, 4), line(IF_EQUAL, 0, calls.len() + 1, architecture), line(LOAD, 0, 0, 0)];
    for (index, call) in calls.iter().enumerate() {
        // Past the rest of the row and the refusal.
        program.push(line(IF_EQUAL, calls.len() - index, 0, **call as u32));
    }
    program.push(line(ANSWER, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32));
    program.push(line(ANSWER, 0, 0, libc::SECCOMP_RET_ALLOW));
    program
}

/// Closes all system calls but those listed; false if there is no such thing here.
fn seccomp() -> io::Result<bool> {
    let Some(architecture) = ARCHITECTURE else { return Ok(false) };
    let mut program = filter(architecture);
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: `program` and the filter that it points to are valid and outlive the call, which
    // copies them.
    let done =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0u32, &raw const program) };
    match check(done as libc::c_int) {
        Ok(_) => Ok(true),
        Err(e) if is_missing(&e) => Ok(false),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_row_of_comparisons_ends_within_a_jump() {
        let program = filter(7);
        assert!(program.len() < 256);
        for (index, line) in program.iter().enumerate().skip(3).take(program.len() - 5) {
            assert_eq!(index + 1 + usize::from(line.jt), program.len() - 1, "leads to the permission");
        }
        assert_eq!(2 + usize::from(program[1].jf), program.len() - 2, "leads to the refusal");
        let mut calls: Vec<_> = CALLS.iter().chain(OLD_CALLS).collect();
        calls.sort_unstable();
        assert!(calls.windows(2).all(|two| two[0] != two[1]), "one stands there twice");
    }

    /// On a thread of its own, which takes its walls along when it ends.
    #[test]
    fn a_confined_thread_works_and_does_nothing_else() {
        let base = std::env::temp_dir().join(format!("weir-confine-{}", std::process::id()));
        let [mine, read, other] = ["mine", "read", "other"].map(|name| base.join(name));
        for folder in [&mine, &read, &other] {
            fs::create_dir_all(folder).unwrap();
            fs::write(folder.join("file"), "text").unwrap();
        }
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let open = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let folders = Folders {
            read: vec![read.clone(), read.join("absent")],
            write: vec![mine.clone(), other.join("file")],
            ports: vec![open.port()],
        };
        let inside = {
            let (mine, read, other) = (mine.clone(), read.clone(), other.clone());
            move || {
                let walls = confine(&folders).unwrap();
                assert!(
                    fs::write(mine.join("new"), "x").is_ok()
                        && fs::rename(mine.join("new"), mine.join("b")).is_ok()
                );
                assert!(fs::read(read.join("file")).is_ok() && fs::write(other.join("file"), "x").is_ok());
                assert!(std::net::UdpSocket::bind("127.0.0.1:0").is_ok());
                assert!(std::thread::spawn(crate::now).join().is_ok());
                if walls.contains(&"Landlock") {
                    assert!(fs::write(read.join("file"), "x").is_err(), "reading is not writing");
                    assert!(fs::read_dir(&other).is_err() && fs::read("/etc/passwd").is_err());
                    assert!(std::net::TcpStream::connect(address).is_err());
                    // Nobody listens there any more, and that is heard.
                    let heard = std::net::TcpStream::connect(open).unwrap_err().kind();
                    assert_eq!(heard, std::io::ErrorKind::ConnectionRefused);
                } else {
                    eprintln!("SKIPPED: this kernel has no Landlock");
                }
                if walls.contains(&"seccomp") {
                    let started = std::process::Command::new("/bin/true").status();
                    assert_eq!(started.unwrap_err().raw_os_error(), Some(libc::EPERM));
                } else {
                    eprintln!("SKIPPED: this kernel has no seccomp");
                }
                walls
            }
        };
        let walls = std::thread::spawn(inside).join().unwrap();
        assert_eq!(walls[0], "no new privileges");
        // Outside all of it is possible.
        assert!(std::process::Command::new("/bin/true").status().is_ok() && fs::read_dir(&other).is_ok());
        assert!(std::net::TcpStream::connect(address).is_ok());
        fs::remove_dir_all(base).unwrap();
    }
}
