//! Statistics over a Unix socket: whoever connects gets one JSON document and the end of file.

use crate::control::Snapshot;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// A thread that serves statistics until it is dropped; then the socket's file goes too.
pub struct Server {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves at `path`. A file there that nobody serves any more is replaced; one that is
    /// served is an error.
    pub fn start(path: &Path, statistics: impl Fn() -> Snapshot + Send + 'static) -> io::Result<Server> {
        if UnixStream::connect(path).is_ok() {
            let what = format!("{}: another weir serves there", path.display());
            return Err(io::Error::new(io::ErrorKind::AddrInUse, what));
        }
        match fs::remove_file(path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
        let listener = UnixListener::bind(path).map_err(named)?;
        // Counters tell who talks how much: for root alone.
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        let stop = Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        let thread = std::thread::Builder::new().name("weir-stats".into()).spawn(move || {
            while !told.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((stream, _)) => {
                        // A client that went away or does not read is its own concern.
                        let _ = serve(stream, &statistics());
                    }
                    Err(_) => std::thread::sleep(Duration::from_millis(20)),
                }
            }
        })?;
        Ok(Server { path: path.into(), stop, thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = fs::remove_file(&self.path);
    }
}

fn serve(mut stream: UnixStream, snapshot: &Snapshot) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(Duration::from_secs(1)))?;
    stream.write_all(serde_json::to_string(snapshot)?.as_bytes())?;
    stream.write_all(b"\n")
}

/// Asks the server at `path`: the JSON that it answered.
pub fn fetch(path: &Path) -> io::Result<String> {
    let hint = |e: io::Error| {
        io::Error::new(e.kind(), format!("{}: {e}; is `weir up` running, and are you root?", path.display()))
    };
    let stream = UnixStream::connect(path).map_err(hint)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    io::read_to_string(stream)
}
