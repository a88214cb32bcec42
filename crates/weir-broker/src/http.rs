//! The other side of the REST door: one connection, one request at a time.

use crate::wire::Problem;
use axum::body::{Body, Bytes, HttpBody};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

/// The longest answer that is read, in bytes.
const ANSWER_BYTES: usize = 16 << 20;

/// Where a broker is.
#[derive(Clone, Debug)]
pub enum Target {
    /// A Unix socket.
    Unix(PathBuf),
    /// `HOST:PORT`, without TLS.
    Plain(String),
    /// `HOST:PORT`, with TLS.
    Tls(String, Arc<ClientConfig>),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Unix(path) => write!(f, "{}", path.display()),
            Target::Plain(host) => write!(f, "http://{host}"),
            Target::Tls(host, _) => write!(f, "https://{host}"),
        }
    }
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HttpError {
    /// The broker cannot be reached, or has gone.
    Unreachable(String),
    /// It does not carry the request out.
    Refused {
        /// The status.
        status: u16,
        /// What it says.
        problem: Problem,
    },
    /// Its answer is not what was expected.
    Unreadable(String),
}

impl fmt::Display for HttpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HttpError::Unreachable(why) => f.write_str(why),
            HttpError::Refused { problem, .. } => write!(f, "{}; {}", problem.error, problem.help),
            HttpError::Unreadable(why) => {
                write!(f, "the answer is not that of a broker of this version: {why}")
            }
        }
    }
}

impl std::error::Error for HttpError {}

/// An open connection.
pub struct Connection {
    send: SendRequest<Body>,
    host: String,
    token: Option<String>,
    patience: Duration,
}

pub(crate) fn host_of(at: &str) -> &str {
    at.rsplit_once(':').map_or(at, |(host, _)| host).trim_matches(['[', ']'])
}

impl Connection {
    /// Connects. Whatever takes longer than `patience`, now or at a request, is given up.
    ///
    /// # Errors
    /// The broker cannot be reached, or the certificates do not fit.
    pub async fn open(target: &Target, token: Option<&str>, patience: Duration) -> Result<Self, HttpError> {
        let told = |why: &dyn fmt::Display| HttpError::Unreachable(format!("{target}: {why}"));
        let opened = timeout(patience, async {
            match target {
                Target::Unix(path) => Self::on(UnixStream::connect(path).await?).await,
                Target::Plain(at) => Self::on(tcp(at).await?).await,
                Target::Tls(at, config) => {
                    let name = ServerName::try_from(host_of(at).to_owned()).map_err(std::io::Error::other)?;
                    let connector = TlsConnector::from(config.clone());
                    Self::on(connector.connect(name, tcp(at).await?).await?).await
                }
            }
        });
        let send = match opened.await {
            Err(_) => return Err(told(&"no answer")),
            Ok(Err(e)) => return Err(told(&e)),
            Ok(Ok(send)) => send,
        };
        let host = match target {
            Target::Unix(_) => "localhost".to_owned(),
            Target::Plain(at) | Target::Tls(at, _) => at.clone(),
        };
        Ok(Connection { send, host, token: token.map(str::to_owned), patience })
    }

    /// Sends another token from now on.
    pub(crate) fn speak_as(&mut self, token: &str) {
        self.token = Some(token.to_owned());
    }

    async fn on(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> std::io::Result<SendRequest<Body>> {
        let (send, connection) = handshake(TokioIo::new(stream)).await.map_err(std::io::Error::other)?;
        tokio::spawn(async move {
            // Its error comes up at the next request.
            let _ = connection.await;
        });
        Ok(send)
    }

    async fn send(
        &mut self,
        method: Method,
        path: &str,
        kind: Option<&str>,
        body: Bytes,
    ) -> Result<hyper::Response<hyper::body::Incoming>, HttpError> {
        let gone = |e: hyper::Error| HttpError::Unreachable(format!("the connection has ended: {e}"));
        let mut request = Request::builder().method(method).uri(path).header(header::HOST, &self.host);
        if let Some(kind) = kind {
            request = request.header(header::CONTENT_TYPE, kind);
        }
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request.body(Body::from(body)).map_err(|e| HttpError::Unreadable(e.to_string()))?;
        self.send.ready().await.map_err(gone)?;
        self.send.send_request(request).await.map_err(gone)
    }

    /// Sends a request and reads its whole answer.
    ///
    /// # Errors
    /// No answer came in time.
    pub async fn call(
        &mut self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), HttpError> {
        let patience = self.patience;
        let whole = timeout(patience, async {
            let response = self.send(method, path, None, body).await?;
            let status = response.status();
            let body = axum::body::to_bytes(Body::new(response.into_body()), ANSWER_BYTES).await;
            Ok((status, body.map_err(|e| HttpError::Unreachable(format!("the connection has ended: {e}")))?))
        });
        whole.await.unwrap_or_else(|_| Err(HttpError::Unreachable("no answer".into())))
    }

    /// Posts a body of that media type, and reads no more of the answer than its status.
    ///
    /// # Errors
    /// No answer came in time.
    pub async fn post(&mut self, path: &str, kind: &str, body: Bytes) -> Result<StatusCode, HttpError> {
        let patience = self.patience;
        let answer = timeout(patience, self.send(Method::POST, path, Some(kind), body)).await;
        let answer = answer.unwrap_or_else(|_| Err(HttpError::Unreachable("no answer".into())))?;
        Ok(answer.status())
    }

    /// As [`call`](Self::call), with JSON both ways. A status that says no is an error, but for a refused lease.
    ///
    /// # Errors
    /// No answer came, or one that says no.
    pub async fn json<T: DeserializeOwned>(
        &mut self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T, HttpError> {
        let unreadable = |e: serde_json::Error| HttpError::Unreadable(e.to_string());
        let body = body.map(serde_json::to_vec).transpose().map_err(unreadable)?.unwrap_or_default();
        let (status, bytes) = self.call(method, path, body.into()).await?;
        if status.is_success() || status == StatusCode::CONFLICT {
            return serde_json::from_slice(&bytes).map_err(unreadable);
        }
        match serde_json::from_slice(&bytes) {
            Ok(problem) => Err(HttpError::Refused { status: status.as_u16(), problem }),
            // What the book calls bad is an answer like others.
            Err(e) if status == StatusCode::BAD_REQUEST => {
                serde_json::from_slice(&bytes).map_err(|_| unreadable(e))
            }
            Err(e) => Err(unreadable(e)),
        }
    }

    /// A stream of server-sent events. It ends this connection for anything else.
    ///
    /// # Errors
    /// No answer came, or one that says no.
    pub async fn listen(mut self, path: &str) -> Result<Events, HttpError> {
        let patience = self.patience;
        let response = timeout(patience, self.send(Method::GET, path, None, Bytes::new())).await;
        let response = response.unwrap_or_else(|_| Err(HttpError::Unreachable("no answer".into())))?;
        if !response.status().is_success() {
            let why = HttpError::Unreachable(format!("{path}: status {}", response.status()));
            return Err(why);
        }
        let (body, heard) = (Body::new(response.into_body()), Instant::now());
        Ok(Events { body, text: String::new(), heard, _connection: self })
    }
}

/// How long one of several addresses of a host is tried: whoever stands by refuses, but one that has gone says nothing.
const EACH: Duration = Duration::from_millis(700);

pub(crate) async fn tcp(at: &str) -> std::io::Result<TcpStream> {
    let stream = first_of(tokio::net::lookup_host(at).await?.collect()).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// The first that takes a connection.
async fn first_of(addresses: Vec<SocketAddr>) -> std::io::Result<TcpStream> {
    // One alone has all the time there is.
    let each = if addresses.len() > 1 { EACH } else { Duration::from_secs(3_600) };
    let mut why = std::io::Error::from(std::io::ErrorKind::NotFound);
    for address in addresses {
        match timeout(each, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(e)) => why = e,
            Err(e) => why = e.into(),
        }
    }
    Err(why)
}

/// An open stream of events.
pub struct Events {
    body: Body,
    text: String,
    /// When something came last.
    heard: Instant,
    _connection: Connection,
}

impl Events {
    /// The data of the next event. None if the stream has ended, or was silent for longer than `silence`. May be
    /// dropped and called again at any time.
    pub async fn next(&mut self, silence: Duration) -> Option<String> {
        loop {
            while let Some(end) = self.text.find("\n\n") {
                let event: String = self.text.drain(..end + 2).collect();
                if let Some(data) = event.trim_end().strip_prefix("data: ") {
                    return Some(data.to_owned());
                }
            }
            let frame = std::future::poll_fn(|cx| Pin::new(&mut self.body).poll_frame(cx));
            let frame = timeout_at(self.heard + silence, frame).await.ok()??.ok()?;
            self.heard = Instant::now();
            let data = frame.into_data().unwrap_or_default();
            self.text.push_str(&String::from_utf8_lossy(&data));
            if self.text.len() > ANSWER_BYTES {
                return None;
            }
        }
    }
}

/// Asks on a connection of its own, for who has no runtime.
///
/// # Errors
/// As [`Connection::json`].
pub fn get<T: DeserializeOwned>(target: &Target, token: Option<&str>, path: &str) -> Result<T, HttpError> {
    once(target, token, Method::GET, path, None::<&()>)
}

/// Sends JSON on a connection of its own, for who has no runtime.
///
/// # Errors
/// As [`Connection::json`].
pub fn put<T: DeserializeOwned>(
    target: &Target,
    token: Option<&str>,
    path: &str,
    body: &impl Serialize,
) -> Result<T, HttpError> {
    once(target, token, Method::PUT, path, Some(body))
}

fn once<T: DeserializeOwned>(
    target: &Target,
    token: Option<&str>,
    method: Method,
    path: &str,
    body: Option<&impl Serialize>,
) -> Result<T, HttpError> {
    const PATIENCE: Duration = Duration::from_secs(10);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| HttpError::Unreachable(e.to_string()))?;
    runtime.block_on(async {
        let mut connection = Connection::open(target, token, PATIENCE).await?;
        connection.json(method, path, body).await
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::{TcpListener, TcpSocket};

    #[test]
    fn of_several_addresses_one_that_is_silent_is_not_waited_for() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime can be made").block_on(async {
            let any = SocketAddr::from(([127, 0, 0, 1], 0));
            // A door before which others wait already: who comes then hears nothing.
            let socket = TcpSocket::new_v4().expect("a socket can be made");
            socket.bind(any).expect("a port is free");
            let full = socket.listen(1).expect("it listens");
            let silent = full.local_addr().expect("it has one");
            let mut before = Vec::new();
            while let Ok(stream) = timeout(EACH, TcpStream::connect(silent)).await {
                before.push(stream.expect("it waits before the door"));
                assert!(before.len() < 100, "this system has room for all");
            }
            let open = TcpListener::bind(any).await.expect("a port is free");
            let there = open.local_addr().expect("it has one");
            let gone =
                TcpListener::bind(any).await.expect("a port is free").local_addr().expect("it has one");
            let found = timeout(Duration::from_secs(2), first_of(vec![silent, gone, there])).await;
            let found = found.expect("in time").expect("one is there");
            assert_eq!(found.peer_addr().expect("it is connected"), there);
            assert!(first_of(vec![gone, gone]).await.is_err());
        });
    }
}
