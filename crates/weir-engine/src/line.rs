//! The way to a worker, and its end of it.

use crate::broker::Back;
use crate::control::Request;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// The way to one worker.
pub(crate) struct Line {
    channel: Arc<Channel>,
    /// What it runs.
    pub(crate) directions: Vec<usize>,
}

struct Channel {
    requests: Sender<Request>,
    bell: UnixStream,
}

/// The worker's end.
pub(crate) struct Inbox {
    pub(crate) requests: Receiver<Request>,
    pub(crate) bell: UnixStream,
}

impl Line {
    /// To a worker that runs these directions.
    pub(crate) fn new(directions: Vec<usize>) -> io::Result<(Line, Inbox)> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        theirs.set_nonblocking(true)?;
        let (sender, receiver) = channel();
        let channel = Arc::new(Channel { requests: sender, bell: ours });
        Ok((Line { channel, directions }, Inbox { requests: receiver, bell: theirs }))
    }

    /// The way that others answer by.
    pub(crate) fn back(&self) -> Back {
        let channel = Arc::downgrade(&self.channel);
        Back::new(move |told| {
            if let Some(channel) = channel.upgrade() {
                let _ = channel.ask(Request::Told(told));
            }
        })
    }

    pub(crate) fn ask(&self, request: Request) -> io::Result<()> {
        self.channel.ask(request)
    }
}

impl Channel {
    fn ask(&self, request: Request) -> io::Result<()> {
        let gone = |_| io::Error::new(io::ErrorKind::BrokenPipe, "the worker has ended");
        self.requests.send(request).map_err(gone)?;
        // A bell that is full of rings rings already.
        let _ = (&self.bell).write(&[1]);
        Ok(())
    }
}
