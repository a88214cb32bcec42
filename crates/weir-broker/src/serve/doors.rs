//! The doors: a Unix socket, the loopback, and TLS. Each connection is one task, and says who is at its other end.

use super::desk::{Desk, MESSAGE_BYTES, Peer};
use super::rest::router;
use crate::tls::edge;
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_rustls::TlsAcceptor;

/// Connections at once.
pub const CONNECTIONS: usize = 10_000;
/// Beside these, by the Unix socket: strangers at the other doors keep nobody out of it.
const LOCAL: usize = 100;
/// How long a handshake or the head of a request may take.
const HEAD: Duration = Duration::from_secs(10);
/// After an error to accept, such as no free descriptor.
const PAUSE: Duration = Duration::from_millis(100);

/// What each door has.
#[derive(Clone)]
pub(super) struct Doors {
    router: Router,
    desk: Arc<Desk>,
    room: Arc<Semaphore>,
    cops: bool,
}

impl Doors {
    pub fn new(desk: Arc<Desk>) -> Self {
        Doors { router: router(desk.clone()), desk, room: Arc::new(Semaphore::new(CONNECTIONS)), cops: false }
    }

    /// The same for COPS. All doors share their room.
    pub fn cops(&self) -> Self {
        Doors { cops: true, ..self.clone() }
    }

    /// Waits until there is room for one more.
    async fn enter(&self) -> OwnedSemaphorePermit {
        self.room.clone().acquire_owned().await.expect("it is never closed")
    }

    async fn failed(&self, why: std::io::Error) {
        self.desk.log.refused(&format!("a connection: {why}"));
        tokio::time::sleep(PAUSE).await;
    }

    pub async fn unix(self, listener: UnixListener) {
        let local = Doors { room: Arc::new(Semaphore::new(LOCAL)), ..self };
        loop {
            let room = local.enter().await;
            match listener.accept().await {
                Ok((stream, _)) => local.serve(room, stream, Peer::Local),
                Err(e) => local.failed(e).await,
            }
        }
    }

    pub async fn plain(self, listener: TcpListener) {
        loop {
            let room = self.enter().await;
            match listener.accept().await {
                Ok((stream, from)) => {
                    at_once(&stream);
                    self.serve(room, stream, Peer::Nobody(from.to_string().into()));
                }
                Err(e) => self.failed(e).await,
            }
        }
    }

    /// When the files of TLS change, all who came by the old ones go, and come again.
    pub async fn tls(self, listener: TcpListener, acceptor: watch::Receiver<TlsAcceptor>) {
        loop {
            let room = self.enter().await;
            match listener.accept().await {
                Ok((stream, from)) => {
                    at_once(&stream);
                    let (doors, mut files) = (self.clone(), acceptor.clone());
                    tokio::spawn(async move {
                        let acceptor = files.borrow_and_update().clone();
                        match doors.shake_hands(stream, &acceptor).await {
                            Ok((stream, peer)) => {
                                let peer = peer.unwrap_or_else(|| Peer::Nobody(from.to_string().into()));
                                tokio::select! {
                                    () = doors.speak(room, stream, peer) => {}
                                    // They are gone with the broker, too.
                                    _ = files.changed() => {}
                                }
                            }
                            Err(why) => doors.desk.log.refused(&format!("{from}: {why}")),
                        }
                    });
                }
                Err(e) => self.failed(e).await,
            }
        }
    }

    async fn shake_hands(
        &self,
        stream: TcpStream,
        acceptor: &TlsAcceptor,
    ) -> Result<(tokio_rustls::server::TlsStream<TcpStream>, Option<Peer>), String> {
        let shaken = tokio::time::timeout(HEAD, acceptor.accept(stream)).await;
        let stream = shaken.map_err(|_| "no handshake in 10 s".to_owned())?.map_err(|e| e.to_string())?;
        let certificate = stream.get_ref().1.peer_certificates().and_then(|all| all.first());
        let peer = certificate.map(edge).transpose()?.map(Peer::Edge);
        Ok((stream, peer))
    }

    fn serve(
        &self,
        room: OwnedSemaphorePermit,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        peer: Peer,
    ) {
        let doors = self.clone();
        tokio::spawn(async move { doors.speak(room, stream, peer).await });
    }

    async fn speak(
        &self,
        _room: OwnedSemaphorePermit,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        peer: Peer,
    ) {
        if self.cops {
            return super::pdp::serve(self.desk.clone(), stream, peer, HEAD, super::pdp::SILENCE).await;
        }
        let service = TowerToHyperService::new(self.router.clone().layer(Extension(peer)));
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(MESSAGE_BYTES);
        // Whatever ends a connection, nothing was changed by it that was not answered or will not be repeated.
        let _ = http.serve_connection(TokioIo::new(stream), service).await;
    }
}

/// An answer is sent at once, not when more has gathered.
fn at_once(stream: &TcpStream) {
    // Without it the connection is slower, and works.
    let _ = stream.set_nodelay(true);
}

/// A Unix socket that its owner alone may open. One that nobody listens on any more is replaced, and nothing else.
///
/// # Errors
/// Another process listens there, something else stands there, or the socket cannot be made.
pub(super) fn unix(path: &Path) -> Result<UnixListener, String> {
    let told = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    if let Ok(file) = std::fs::symlink_metadata(path) {
        if !file.file_type().is_socket() {
            return Err(told(&"what stands there is no socket, and is kept: name another by `unix`"));
        }
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(told(&"another broker listens there: stop it, or name another socket by `unix`"));
        }
        std::fs::remove_file(path).map_err(|e| told(&e))?;
    }
    // Made in a folder that nobody else can enter, and only then where others could connect.
    let folder = path.with_file_name(format!(".weir-broker-{}", std::process::id()));
    let made = || {
        std::fs::DirBuilder::new().mode(0o700).create(&folder)?;
        let private = folder.join("s");
        let listener = UnixListener::bind(&private)?;
        std::fs::set_permissions(&private, std::fs::Permissions::from_mode(0o600))?;
        std::fs::rename(&private, path)?;
        Ok(listener)
    };
    let listener = made().map_err(|e: std::io::Error| told(&e));
    let _ = std::fs::remove_dir_all(&folder);
    listener
}
