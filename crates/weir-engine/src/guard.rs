//! A process beside `weir up` that sees to the rules of the packet filter.
//!
//! - It lays and takes away rules for a box that may start no iptables any more.
//! - While a worker hangs, or its process is stopped, the kernel goes on handing packets over to it, because
//!   the queue has an owner. So the guard looks whether each queue is served, and takes the rule away where it is
//!   not. Then packets pass, and what was handed over before waits. When the worker goes on, so does the rule.
//!
//! A queue is served if its process fetches what comes, or gives verdicts. Both stand in `/proc`, so the
//! worker does nothing for it. Requests are lines, `lay IF` and `take IF`; the answer is a line, empty where all
//! went well. The end of the requests ends the guard, and leaves rules behind.

use crate::rule;
use crate::up::queue_of;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use weir_core::units::{Duration, Instant};
use weir_sys::nfqueue::{Service, service};

/// How often a queue is looked at.
const GLANCE: Duration = Duration::from_millis(10);
/// How long a queue may be unserved. To take the rules away takes some 10 to 30 ms more.
const LIMIT: Duration = Duration::from_millis(50);

/// How long iptables may take: it waits while another process changes rules.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);

/// The guard, seen from its box. It ends with it.
pub struct Guard {
    stream: BufReader<UnixStream>,
    child: Child,
}

impl Guard {
    /// Starts `command`, which is to call [`run`] with its standard input.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn start(mut command: Command) -> io::Result<Guard> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_read_timeout(Some(PATIENCE))?;
        // A signal of the terminal is for the box, which then ends the guard.
        let child = command.stdin(OwnedFd::from(theirs)).process_group(0).spawn()?;
        Ok(Guard { stream: BufReader::new(ours), child })
    }

    /// Has what leaves by `interface` handed over, as [`crate::up::lay_queue`] does: true if it was not before.
    ///
    /// # Errors
    /// What iptables refuses, or the guard is gone.
    pub fn lay(&mut self, interface: &str) -> io::Result<bool> {
        self.ask(&format!("lay {interface}\n")).map(|answer| answer == "new")
    }

    /// Takes Weir's rules for `interface` away.
    ///
    /// # Errors
    /// As [`Guard::lay`]'s.
    pub fn take(&mut self, interface: &str) -> io::Result<()> {
        self.ask(&format!("take {interface}\n")).map(drop)
    }

    fn ask(&mut self, line: &str) -> io::Result<String> {
        let mut answer = String::new();
        let mut tell = || {
            self.stream.get_mut().write_all(line.as_bytes())?;
            self.stream.read_line(&mut answer)
        };
        if let Err(e) = tell() {
            // What comes later would answer another request.
            let _ = self.stream.get_mut().shutdown(std::net::Shutdown::Both);
            return Err(e);
        }
        match answer.trim_end().split_once(' ').unwrap_or((answer.trim_end(), "")) {
            ("ok", what) => Ok(what.to_owned()),
            ("no", why) => Err(io::Error::other(why.to_owned())),
            _ => Err(io::Error::new(io::ErrorKind::BrokenPipe, "the process that sees to the rules is gone")),
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.stream.get_mut().shutdown(std::net::Shutdown::Both);
        let _ = self.child.wait();
    }
}

/// A queue that is looked at.
struct Watched {
    interface: String,
    queue: u16,
    last: Service,
    /// Since when it may have been unserved.
    since: Instant,
    /// Its rule is away.
    passes: bool,
    /// The last try to change that failed.
    failed: bool,
}

impl Watched {
    /// Looks whether the queue is served: true if its rule is to go, or to come back.
    fn look(&mut self, now: Instant, seen: Option<Service>) -> bool {
        let seen = seen.unwrap_or_default();
        let served = seen.unfetched_bytes == 0
            || seen.verdicts != self.last.verdicts
            || seen.unfetched_bytes < self.last.unfetched_bytes;
        self.last = seen;
        if served {
            self.since = now;
        }
        (now.since(self.since) >= LIMIT) != self.passes
    }
}

/// Does what `requests` ask for until they end.
///
/// # Errors
/// What the system refuses of the requests' socket.
pub fn run(requests: UnixStream) -> io::Result<()> {
    let mut watched: Vec<Watched> = Vec::new();
    let mut lines = BufReader::new(requests);
    loop {
        let wait = (!watched.is_empty()).then_some(GLANCE);
        if weir_sys::wait(&[lines.get_ref().as_fd()], wait)? {
            let mut line = String::new();
            if lines.read_line(&mut line)? == 0 {
                // Another process may go on with the queue, and believes that the rule is there. While nobody has the
                // queue it lets packets pass.
                watched.iter().filter(|queue| queue.passes).for_each(see_to_last);
                return Ok(());
            }
            let answer = match answer(&mut watched, line.trim_end()) {
                Ok(what) => format!("ok {what}\n"),
                Err(e) => format!("no {}\n", e.to_string().replace('\n', " ")),
            };
            lines.get_mut().write_all(answer.as_bytes())?;
        }
        for queue in &mut watched {
            if queue.look(weir_sys::now(), service(queue.queue)) {
                see_to(queue);
            }
        }
    }
}

/// Takes the rule of a queue away that nobody serves, or lays it again. What fails is tried again at the next
/// glance, and said once.
fn see_to(watched: &mut Watched) {
    let Watched { interface, queue, .. } = &*watched;
    let done = match watched.passes {
        false => rule::remove_from(interface, *queue).map(|()| "nobody serves its queue: packets pass"),
        true => rule::add(interface, *queue).map(|_| "its queue is served again"),
    };
    let what = match &done {
        Ok(what) => (*what).to_owned(),
        Err(e) => e.to_string(),
    };
    if done.is_ok() || !watched.failed {
        weir_sys::say(&format!("interface {interface}: {what}"));
    }
    watched.failed = done.is_err();
    watched.passes ^= done.is_ok();
}

fn see_to_last(watched: &Watched) {
    if let Err(e) = rule::add(&watched.interface, watched.queue) {
        weir_sys::say(&format!("interface {}: {e}", watched.interface));
    }
}

fn answer(watched: &mut Vec<Watched>, line: &str) -> io::Result<&'static str> {
    match line.split_once(' ') {
        Some(("lay", interface)) => {
            let queue = queue_of(interface)?;
            let new = rule::add(interface, queue)?;
            watched.retain(|other| other.interface != interface);
            let (interface, last, since) = (interface.to_owned(), Service::default(), weir_sys::now());
            watched.push(Watched { interface, queue, last, since, passes: false, failed: false });
            Ok(if new { "new" } else { "" })
        }
        Some(("take", interface)) => {
            watched.retain(|other| other.interface != interface);
            rule::remove(interface)?;
            Ok("")
        }
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "this is no request")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Unfetched bytes and verdicts, one look after the other 10 ms apart: when the rule goes and comes.
    #[test]
    fn a_queue_that_nobody_serves_is_found() {
        let looks = |signs: &[(u64, u32)]| -> Vec<(usize, bool)> {
            let (last, since) = (Service::default(), Instant::ZERO);
            let mut one =
                Watched { interface: "e0".into(), queue: 1, last, since, passes: false, failed: false };
            let mut found = Vec::new();
            for (n, &(unfetched_bytes, verdicts)) in signs.iter().enumerate() {
                let now = Instant::from_millis(10 * n as u64);
                if one.look(now, Some(Service { unfetched_bytes, verdicts })) {
                    one.passes = !one.passes;
                    found.push((n, one.passes));
                }
            }
            found
        };
        assert!(looks(&[(0, 0); 50]).is_empty(), "nothing comes");
        // A port that holds all that it fetches back gives no verdicts.
        assert!(looks(&(0..50).map(|n| (n % 2 * 900, 7)).collect::<Vec<_>>()).is_empty());
        // One that is too slow always has something to fetch, and gives verdicts.
        assert!(looks(&(0..50).map(|n| (9_000, n)).collect::<Vec<_>>()).is_empty());
        let mut hangs = vec![(0, 7); 3];
        hangs.extend([(900, 7); 20]);
        assert_eq!(looks(&hangs), [(7, true)], "it came between the looks 2 and 3, 50 ms before");
        hangs.extend([(0, 7); 3]);
        assert_eq!(looks(&hangs), [(7, true), (23, false)]);
    }
}
