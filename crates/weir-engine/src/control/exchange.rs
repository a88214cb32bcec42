//! Another socket for an interface, on its way to the workers.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

/// Sockets that workers have been given, and whether they have taken them.
pub(crate) struct Exchange(pub(super) Vec<Receiver<()>>);

impl Exchange {
    /// Waits for the workers, for so long at most: true if all have taken theirs.
    ///
    /// # Errors
    /// A worker has ended.
    pub(crate) fn is_done(&mut self, patience: Duration) -> io::Result<bool> {
        while let Some(answer) = self.0.last() {
            match answer.recv_timeout(patience) {
                Ok(()) => drop(self.0.pop()),
                Err(RecvTimeoutError::Timeout) => return Ok(false),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(io::Error::new(io::ErrorKind::BrokenPipe, "the worker has ended"));
                }
            }
        }
        Ok(true)
    }
}
