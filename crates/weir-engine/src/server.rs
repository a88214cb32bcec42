//! A Unix socket that answers requests: one line in, one line out, and the end of file.
//!
//! It has no thread of its own: its owner calls [`Server::serve`] between other things, so that
//! nothing is asked of it while it changes.

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a client may take to say what it wants, and to take an answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// Bytes of a request, at most: a configuration of the greatest length, written as JSON.
const MOST: usize = 256 << 20;

/// What becomes of a client.
pub enum Answer {
    /// It gets this line.
    Line(String),
    /// It was told already.
    Told,
    /// It was told already, and it is the last one: another process serves from here on.
    Last,
}

/// A socket in the file system. Dropping it removes the file.
pub struct Server {
    path: PathBuf,
    /// Device and inode of the file that is ours.
    file: (u64, u64),
    listener: UnixListener,
}

impl Server {
    /// Listens at `path`, for this user alone from the first instant: who talks how much is
    /// nobody else's business, and a request may change what passes.
    ///
    /// # Errors
    /// Something stands at `path` that is no socket, or a socket that somebody serves. A socket
    /// that nobody serves any more is replaced.
    pub fn bind(path: &Path) -> io::Result<Server> {
        let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
        free(path)?;
        // In a folder that nobody else can enter, and only then where others could connect.
        let folder = path.with_file_name(format!(".weir-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::DirBuilder::new().mode(0o700).create(&folder).map_err(named)?;
        let private = folder.join("s");
        let bind = || {
            let listener = UnixListener::bind(&private)?;
            listener.set_nonblocking(true)?;
            fs::set_permissions(&private, fs::Permissions::from_mode(0o600))?;
            let file = fs::symlink_metadata(&private)?;
            fs::rename(&private, path)?;
            Ok(Server { path: path.into(), file: (file.dev(), file.ino()), listener })
        };
        let bound = bind().map_err(named);
        let _ = fs::remove_dir_all(&folder);
        bound
    }

    /// The socket at `path` that another process has bound and passed on.
    ///
    /// # Errors
    /// Nothing stands there any more.
    pub fn over(path: &Path, listener: UnixListener) -> io::Result<Server> {
        let file = fs::symlink_metadata(path)?;
        Ok(Server { path: path.into(), file: (file.dev(), file.ino()), listener })
    }

    /// What another process needs to serve here.
    pub fn pass(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Ends, and leaves the socket to the process that it was passed to.
    pub fn leave(mut self) {
        self.file = (0, 0);
    }

    /// Waits for at most `wait` until somebody asks, and answers who does: `answer` gets a request
    /// without its line end, or nothing from a client that says nothing. A signal ends the wait. Once
    /// it is `ended`, no client is waited for.
    pub fn serve(
        &self,
        wait: Duration,
        ended: &dyn Fn() -> bool,
        answer: &mut dyn FnMut(&str, &UnixStream) -> Answer,
    ) {
        let wait = weir_core::units::Duration::from_nanos(wait.as_nanos().min(u64::MAX.into()) as u64);
        let _ = weir_sys::wait(&[self.listener.as_fd()], Some(wait));
        while !ended()
            && let Ok((mut client, _)) = self.listener.accept()
        {
            // A client that went away or does not read is its own concern.
            let Ok(request) = request(&mut client, ended) else { continue };
            match answer(&request, &client) {
                Answer::Line(mut line) => {
                    line.push('\n');
                    let _ = client
                        .set_write_timeout(Some(PATIENCE))
                        .and_then(|()| client.write_all(line.as_bytes()));
                }
                Answer::Told => {}
                Answer::Last => return,
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Somebody may have put another there.
        if fs::symlink_metadata(&self.path).is_ok_and(|file| (file.dev(), file.ino()) == self.file) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Succeeds if nothing stands at `path`, or a socket that nobody serves.
fn free(path: &Path) -> io::Result<()> {
    let refuse = |kind, what: &str| Err(io::Error::new(kind, format!("{}: {what}", path.display())));
    match fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return refuse(e.kind(), &e.to_string()),
        Ok(file) if !file.file_type().is_socket() => {
            return refuse(
                io::ErrorKind::AlreadyExists,
                "a file that is no socket stands there, and is kept: name another --socket, or move it away",
            );
        }
        Ok(_) => {}
    }
    match UnixStream::connect(path) {
        Ok(_) => refuse(io::ErrorKind::AddrInUse, "another weir serves there"),
        Err(e) if matches!(e.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) => Ok(()),
        Err(e) => refuse(e.kind(), &e.to_string()),
    }
}

/// How often a client that says nothing yet is left for a look whether all has ended.
const GLANCE: Duration = Duration::from_millis(50);

/// Reads a line, or what comes before the end.
fn request(client: &mut UnixStream, ended: &dyn Fn() -> bool) -> io::Result<String> {
    client.set_nonblocking(false)?;
    let (end, mut text, mut room) = (Instant::now() + PATIENCE, Vec::new(), [0; 1 << 14]);
    while !text.ends_with(b"\n") && text.len() <= MOST {
        let left = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero());
        let left = left.filter(|_| !ended()).ok_or(io::ErrorKind::TimedOut)?;
        client.set_read_timeout(Some(left.min(GLANCE)))?;
        match client.read(&mut room) {
            Ok(0) => break,
            Ok(n) => text.extend_from_slice(&room[..n]),
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(e) => return Err(e),
        }
    }
    let text = String::from_utf8(text).map_err(io::Error::other)?;
    Ok(text.trim_end().to_owned())
}

/// Asks the server at `path`: what it answered within `patience`.
///
/// # Errors
/// Nobody serves there, or it gave no answer.
pub fn ask(path: &Path, request: &str, patience: Duration) -> io::Result<String> {
    let hint = |e: io::Error| {
        io::Error::new(e.kind(), format!("{}: {e}; is `weir up` running, and are you root?", path.display()))
    };
    let mut stream = UnixStream::connect(path).map_err(hint)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    stream.write_all(request.as_bytes())?;
    stream.write_all(b"\n")?;
    let mut answer = String::new();
    match stream.read_to_string(&mut answer) {
        Ok(n) if n > 0 => Ok(answer),
        Ok(_) => Err(hint(io::Error::new(io::ErrorKind::UnexpectedEof, "no answer came"))),
        Err(e) => Err(hint(e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("weir-server-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    /// Serves while `act` runs.
    fn serving(server: &Server, act: impl FnOnce() + Send) {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                act();
                done.store(true, Ordering::Relaxed);
            });
            while !done.load(Ordering::Relaxed) {
                server.serve(Duration::from_millis(5), &|| false, &mut |request, _| {
                    Answer::Line(format!("<{request}>"))
                });
            }
        });
    }

    /// Clients that say nothing keep nobody who has been told to end.
    #[test]
    fn idle_clients_delay_no_end() {
        let folder = folder("end");
        let server = Server::bind(&folder.join("socket")).unwrap();
        let _idle: Vec<_> = (0..5).map(|_| UnixStream::connect(folder.join("socket")).unwrap()).collect();
        let begun = Instant::now();
        let asked = std::cell::Cell::new(0);
        // The end comes while the first is waited for.
        let ended = || asked.replace(asked.get() + 1) > 2;
        server.serve(Duration::from_millis(5), &ended, &mut |_, _| Answer::Line("answered".into()));
        assert!(asked.get() > 2 && begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
        drop(server);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn requests_are_answered_whatever_clients_do() {
        let folder = folder("answers");
        let path = folder.join("socket");
        let server = Server::bind(&path).unwrap();
        serving(&server, || {
            let patience = Duration::from_secs(5);
            assert_eq!(ask(&path, "stats", patience).unwrap(), "<stats>\n");
            let long = "x".repeat(3 << 20);
            assert_eq!(ask(&path, &long, patience).unwrap().len(), long.len() + 3);
            // One that says nothing and closes its half gets an answer too.
            let mut silent = UnixStream::connect(&path).unwrap();
            silent.shutdown(std::net::Shutdown::Write).unwrap();
            let mut answer = String::new();
            silent.read_to_string(&mut answer).unwrap();
            assert_eq!(answer, "<>\n");
            // One that goes, one that neither speaks nor goes, and one whose bytes are no text.
            drop(UnixStream::connect(&path).unwrap());
            let _idle = UnixStream::connect(&path).unwrap();
            UnixStream::connect(&path).unwrap().write_all(b"\xff\n").unwrap();
            let begun = Instant::now();
            assert_eq!(ask(&path, "again", patience).unwrap(), "<again>\n");
            assert!(begun.elapsed() < PATIENCE * 3, "{:?}", begun.elapsed());
        });
        drop(server);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "nothing stays");
        let gone = ask(&path, "stats", PATIENCE).unwrap_err().to_string();
        assert!(gone.contains("is `weir up` running"), "{gone}");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn only_a_socket_that_nobody_serves_is_replaced() {
        let folder = folder("stale");
        let path = folder.join("socket");
        fs::write(&path, "a file").unwrap();
        let refused = Server::bind(&path).err().unwrap().to_string();
        assert!(refused.contains("no socket") && refused.contains("is kept"), "{refused}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "a file");
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(folder.join("elsewhere"), &path).unwrap();
        assert!(Server::bind(&path).is_err(), "a link is no socket");
        fs::remove_file(&path).unwrap();
        // What a process leaves that is killed.
        drop(UnixListener::bind(&path).unwrap());
        let server = Server::bind(&path).unwrap();
        let second = Server::bind(&path).err().unwrap().to_string();
        assert!(second.contains("another weir serves there"), "{second}");
        // And what others put in its place is theirs.
        fs::remove_file(&path).unwrap();
        fs::write(&path, "a file").unwrap();
        drop(server);
        assert_eq!(fs::read_to_string(&path).unwrap(), "a file");
        fs::remove_dir_all(folder).unwrap();
    }

    /// Somebody watches the folder: whenever the socket is there, it is for its owner alone.
    #[test]
    fn nobody_else_may_connect_at_any_instant() {
        let folder = folder("mode");
        let path = folder.join("socket");
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let watched = scope.spawn(|| {
                let mut seen = 0;
                while !done.load(Ordering::Relaxed) {
                    if let Ok(file) = fs::symlink_metadata(&path) {
                        assert_eq!(file.mode() & 0o777, 0o600);
                        seen += 1;
                    }
                }
                seen
            });
            for _ in 0..300 {
                drop(Server::bind(&path).unwrap());
            }
            let server = Server::bind(&path).unwrap();
            std::thread::sleep(Duration::from_millis(5));
            done.store(true, Ordering::Relaxed);
            assert!(watched.join().unwrap() > 0);
            drop(server);
        });
        fs::remove_dir_all(folder).unwrap();
    }
}
