//! A connection as messages: what has come is read one by one, what is to go is gathered.

use super::codec::{self, Message, decode};
use super::object::Fault;
use std::io;
use std::pin::Pin;
use std::task::ready;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::timeout;

/// How long the other side may take to read what is sent.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes that are read at once.
const CHUNK: usize = 4_096;

/// One connection.
pub(crate) struct Line<S> {
    stream: S,
    come: Vec<u8>,
    go: Vec<u8>,
    client_type: u16,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Line<S> {
    pub fn new(stream: S, client_type: u16) -> Self {
        Line { stream, come: Vec::new(), go: Vec::new(), client_type }
    }

    /// What is said from now on is of this client-type.
    pub fn speak(&mut self, client_type: u16) {
        self.client_type = client_type;
    }

    /// Waits until something comes. May be dropped and called again at any time.
    ///
    /// # Errors
    /// The other side has gone.
    pub async fn hear(&mut self) -> io::Result<()> {
        std::future::poll_fn(|cx| {
            let mut chunk = [0; CHUNK];
            let mut read = ReadBuf::new(&mut chunk);
            ready!(Pin::new(&mut self.stream).poll_read(cx, &mut read))?;
            if read.filled().is_empty() {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof)).into();
            }
            self.come.extend_from_slice(read.filled());
            Ok(()).into()
        })
        .await
    }

    /// The next message that has come whole, with its client-type. A message that is none is passed over.
    pub fn next(&mut self) -> Option<Result<(u16, Message), Fault>> {
        let length = match codec::length(&self.come) {
            Ok(Some(length)) if length <= self.come.len() => length,
            Ok(_) => return None,
            Err(fault) => {
                // Nobody knows where the next one begins.
                self.come.clear();
                return Some(Err(fault));
            }
        };
        let message = decode(&self.come[..length]);
        self.come.drain(..length);
        Some(message)
    }

    /// Waits for the next message.
    ///
    /// # Errors
    /// The other side has gone, or has sent no message.
    pub async fn message(&mut self) -> Result<(u16, Message), io::Error> {
        loop {
            if let Some(message) = self.next() {
                return message.map_err(io::Error::other);
            }
            self.hear().await?;
        }
    }

    /// Sends it with the next [`send`](Self::send).
    pub fn say(&mut self, message: &Message) {
        message.encode(self.client_type, &mut self.go);
    }

    /// Sends these bytes with the next [`send`](Self::send), whatever they are.
    #[cfg(test)]
    pub fn raw(&mut self, bytes: &[u8]) {
        self.go.extend_from_slice(bytes);
    }

    /// Sends what was said. Not to be dropped before it ends.
    ///
    /// # Errors
    /// The other side has gone, or does not read.
    pub async fn send(&mut self) -> io::Result<()> {
        let mut sent = 0;
        let whole = timeout(PATIENCE, async {
            while sent < self.go.len() {
                let write =
                    std::future::poll_fn(|cx| Pin::new(&mut self.stream).poll_write(cx, &self.go[sent..]));
                match write.await? {
                    0 => return Err(io::Error::from(io::ErrorKind::WriteZero)),
                    n => sent += n,
                }
            }
            std::future::poll_fn(|cx| Pin::new(&mut self.stream).poll_flush(cx)).await
        });
        whole.await.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut)))?;
        self.go.clear();
        Ok(())
    }
}
