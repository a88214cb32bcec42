//! Clocks, sleeping and waiting.
#![allow(unsafe_code, reason = "system calls without a safe wrapper in the standard library")]

use crate::check;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use weir_core::units::{Duration, Instant};

/// Nanoseconds that a clock of the system shows.
pub(crate) fn clock(id: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec to write to, and lives longer than the call.
    let answer = unsafe { libc::clock_gettime(id, &mut time) };
    debug_assert_eq!(answer, 0, "clocks used here exist on every Linux");
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The monotonic clock, which all processes of a machine share. Setting the time of day does not
/// move it.
pub fn now() -> Instant {
    Instant::from_nanos(clock(libc::CLOCK_MONOTONIC))
}

/// The time since the machine was started, the time that it slept included: for what ends while it sleeps.
pub fn since_boot() -> Instant {
    Instant::from_nanos(clock(libc::CLOCK_BOOTTIME))
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
    wait_for(descriptors, timeout).map(|which| which != 0)
}

/// The same. Answers which are readable: bit n stands for descriptor n.
pub fn wait_for(descriptors: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<u8> {
    const MOST: usize = 8;
    assert!(descriptors.len() <= MOST, "an engine waits on its two interfaces and its control descriptor");
    let mut polls = [libc::pollfd { fd: -1, events: libc::POLLIN, revents: 0 }; MOST];
    for (poll, descriptor) in polls.iter_mut().zip(descriptors) {
        poll.fd = descriptor.as_raw_fd();
    }
    let polls = &mut polls[..descriptors.len()];
    poll(polls, timeout)?;
    Ok(polls.iter().enumerate().fold(0, |which, (n, poll)| which | u8::from(poll.revents != 0) << n))
}

/// Waits until one of `readable` can be read from or one of `writable` written to, or for `timeout` (`None`: for
/// ever). True if one can. A signal ends the wait early, with false.
pub fn wait_for_either(
    readable: &[BorrowedFd<'_>],
    writable: &[BorrowedFd<'_>],
    timeout: Option<Duration>,
) -> io::Result<bool> {
    let of = |descriptors: &[BorrowedFd<'_>], events| {
        let poll = |fd: &BorrowedFd<'_>| libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 };
        descriptors.iter().map(poll).collect::<Vec<_>>()
    };
    poll(&mut [of(readable, libc::POLLIN), of(writable, libc::POLLOUT)].concat(), timeout)
}

/// True if one of `polls` has something to tell before `timeout` is over, or a signal comes.
fn poll(polls: &mut [libc::pollfd], timeout: Option<Duration>) -> io::Result<bool> {
    let time = timeout.map(|d| timespec(d.as_nanos()));
    let time = time.as_ref().map_or(std::ptr::null(), |t| t as *const libc::timespec);
    // SAFETY: `polls` is as long as is said, `time` is null or points to a timespec that lives until after
    // the call, and the mask may be null.
    let answer =
        unsafe { libc::ppoll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, time, std::ptr::null()) };
    match check(answer) {
        Ok(ready) => Ok(ready > 0),
        Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(false),
        Err(e) => Err(e),
    }
}

/// Lets the calling thread's sleeps end within a microsecond of their time instead of 50.
pub fn sleep_precisely() -> io::Result<()> {
    // SAFETY: PR_SET_TIMERSLACK takes a number and touches no memory.
    check(unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong, 0, 0, 0) }).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

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
        assert_eq!(wait_for(&[b.as_fd(), a.as_fd()], Some(Duration::ZERO)).unwrap(), 0b10);
    }
}
