//! What becomes of the traffic without the workers, changed from outside.

use super::{Control, Request, await_all};
use crate::fail_open::{Failing, for_workers};
use crate::line::Line;
use std::io;
use std::sync::mpsc::channel;
use std::time::Duration;

/// How long a worker may take to stand still.
const STILL: Duration = Duration::from_millis(100);
/// What a device needs to send what it has: a port leaves it about a millisecond of its link.
const SENT: Duration = Duration::from_millis(3);

impl Control {
    /// Says from now on what becomes of the traffic without the workers. Where one of them cannot, it fails closed.
    /// One that hangs (`TimedOut`) does so as soon as it goes on.
    pub(crate) fn fail(&self, failing: Failing) -> io::Result<()> {
        let done = self.fail_each(failing);
        if let Err(e) = &done
            && e.kind() != io::ErrorKind::TimedOut
        {
            let _ = self.fail_each(Err(e.to_string()));
        }
        self.forget();
        done
    }

    fn fail_each(&self, failing: Failing) -> io::Result<()> {
        let (all, asked) =
            (self.workers.iter().zip(for_workers(failing, self.workers.len())), weir_sys::now());
        let ask = |(worker, failing): (&Line, Failing)| {
            let (done, answer) = channel();
            worker.ask(Request::Fail { failing, asked, done }).map(|()| answer)
        };
        let asked = all.map(ask).collect::<io::Result<Vec<_>>>()?;
        let answers: Vec<_> = await_all(&asked).into_iter().map(|answer| answer?).collect();
        // What one refuses counts more than that another one is silent.
        let silent = |e: &io::Error| e.kind() == io::ErrorKind::TimedOut;
        let (silent, refused): (Vec<_>, Vec<_>) =
            answers.into_iter().filter_map(Result::err).partition(silent);
        refused.into_iter().chain(silent).next().map_or(Ok(()), Err)
    }

    /// Has the workers stand still until they are released. Frames wait in the sockets.
    pub(super) fn stand_still(&self) {
        // One that has ended or hangs sends nothing either.
        let still = self.ask_each(|done| Request::Pause { done }).unwrap_or_default();
        // All of them in that time.
        let until = std::time::Instant::now() + STILL;
        still
            .iter()
            .for_each(|one| _ = one.recv_timeout(until.saturating_duration_since(std::time::Instant::now())));
    }

    /// Does something while the workers stand still and the devices have sent what they had. Frames wait in the sockets:
    /// a device whose filters change drops what is sent by it meanwhile.
    pub(crate) fn while_still<T>(&self, act: impl FnOnce() -> T) -> T {
        self.stand_still();
        std::thread::sleep(SENT);
        let done = act();
        self.release(false);
        done
    }
}
