//! The body of `GET /v1/events`: what the keeper tells, and a comment where it tells nothing, so that either end
//! notices when the other has gone.

use crate::wire::Told;
use axum::body::{Bytes, HttpBody};
use http_body::Frame;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc::Receiver;
use tokio::time::{Interval, interval};

/// The longest silence of the stream.
pub const SILENCE: Duration = Duration::from_secs(2);

pub(super) struct Stream {
    from: Receiver<Told>,
    beat: Interval,
}

impl Stream {
    pub fn new(from: Receiver<Told>) -> Self {
        Stream { from, beat: interval(SILENCE) }
    }
}

impl HttpBody for Stream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Poll::Ready(told) = self.from.poll_recv(cx) {
            return Poll::Ready(told.map(|told| Ok(Frame::data(told.text()))));
        }
        self.beat.poll_tick(cx).map(|_| Some(Ok(Frame::data(Bytes::from_static(b":\n\n")))))
    }
}
