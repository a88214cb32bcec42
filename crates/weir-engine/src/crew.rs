//! The workers of a bridge whose ports are spread over them ([`weir_core::spread`]), as they know of each other.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

/// What the others know of a worker.
struct Seat {
    /// It sleeps, or is about to.
    asleep: AtomicBool,
    bell: UnixStream,
    /// It ends, and hands over nothing more.
    done: AtomicBool,
}

/// All workers of a bridge.
pub(crate) struct Crew(Box<[Seat]>);

/// One worker of them.
pub(crate) struct Member {
    crew: Arc<Crew>,
    own: usize,
    rung: UnixStream,
}

impl Crew {
    /// Ends the sleep of a worker that was handed something just now.
    pub(crate) fn wake(&self, worker: usize) {
        // Either it sees what was handed over before it sleeps, or this sees that it is about to.
        fence(Ordering::SeqCst);
        let Some(seat) = self.0.get(worker) else { return };
        if seat.asleep.swap(false, Ordering::Relaxed) {
            // A bell that is full of rings rings already.
            let _ = (&seat.bell).write(&[1]);
        }
    }
}

impl Member {
    /// So many workers.
    ///
    /// # Errors
    /// The system has no more descriptors.
    pub(crate) fn all(count: usize) -> io::Result<Vec<Member>> {
        let (mut seats, mut rungs) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let (bell, rung) = UnixStream::pair()?;
            bell.set_nonblocking(true)?;
            rung.set_nonblocking(true)?;
            seats.push(Seat { asleep: AtomicBool::new(false), bell, done: AtomicBool::new(false) });
            rungs.push(rung);
        }
        let crew = Arc::new(Crew(seats.into()));
        Ok((0..).zip(rungs).map(|(own, rung)| Member { crew: crew.clone(), own, rung }).collect())
    }
    /// All of them.
    pub(crate) fn crew(&self) -> &Arc<Crew> {
        &self.crew
    }
    /// It is about to sleep: from here on it is woken. What was handed over before is to be looked for now.
    pub(crate) fn lies_down(&self) {
        self.crew.0[self.own].asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }
    /// It is awake.
    pub(crate) fn gets_up(&self) {
        self.crew.0[self.own].asleep.store(false, Ordering::Relaxed);
        let mut rings = [0; 64];
        while (&self.rung).read(&mut rings).is_ok_and(|n| n == rings.len()) {}
    }
    /// What becomes readable when it is woken.
    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.rung.as_fd()
    }
    /// It ends, and hands over nothing more: true once all do.
    pub(crate) fn is_done_with_all(&self) -> bool {
        self.crew.0[self.own].done.store(true, Ordering::Release);
        self.crew.0.iter().all(|seat| seat.done.load(Ordering::Acquire))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;
    use weir_core::units::Duration;

    /// A worker that sleeps as soon as it has nothing misses nothing: each piece is there within a moment.
    #[test]
    fn nobody_sleeps_over_what_was_handed_over() {
        let mut all = Member::all(2).unwrap();
        let (sleeper, other) = (all.pop().unwrap(), all.pop().unwrap());
        let (given, taken) = (AtomicU32::new(0), AtomicU32::new(0));
        const MANY: u32 = 20_000;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while taken.load(Ordering::Acquire) < MANY {
                    sleeper.lies_down();
                    if given.load(Ordering::Acquire) == taken.load(Ordering::Relaxed) {
                        let woken = weir_sys::wait(&[sleeper.bell()], Some(Duration::from_secs(60))).unwrap();
                        assert!(woken, "it slept for a minute");
                    }
                    sleeper.gets_up();
                    taken.store(given.load(Ordering::Acquire), Ordering::Release);
                }
            });
            for n in 1..=MANY {
                given.store(n, Ordering::Release);
                other.crew().wake(1);
                while n % 3 == 0 && taken.load(Ordering::Acquire) < n {
                    std::hint::spin_loop();
                }
            }
        });
        assert!(!other.is_done_with_all() && sleeper.is_done_with_all());
    }
}
