//! A Unix socket that answers requests: one line in, one line out, and the end of file.
//!
//! It has no thread of its own: its owner calls [`Server::serve`] between other things, so that
//! nothing is asked of it while it changes. Clients are served side by side: one that says nothing, or
//! does not read, keeps nobody waiting.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a client may take to say what it wants, and then to take each part of its answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// Clients that are served side by side. One more ends the one that has been there for longest.
const CLIENTS: usize = 64;
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
    /// Who has connected and is not done, the first one first.
    clients: VecDeque<Client>,
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
            Ok(Server::of(path, &file, listener))
        };
        let bound = bind().map_err(named);
        let _ = fs::remove_dir_all(&folder);
        bound
    }

    fn of(path: &Path, file: &fs::Metadata, listener: UnixListener) -> Server {
        Server { path: path.into(), file: (file.dev(), file.ino()), listener, clients: VecDeque::new() }
    }

    /// The socket at `path` that another process has bound and passed on.
    ///
    /// # Errors
    /// Nothing stands there any more.
    pub fn over(path: &Path, listener: UnixListener) -> io::Result<Server> {
        let file = fs::symlink_metadata(path)?;
        Ok(Server::of(path, &file, listener))
    }

    /// Ends, and leaves the socket to the process that it was passed to.
    pub fn leave(mut self) {
        self.file = (0, 0);
    }

    /// Waits for at most `wait` until there is something to do for a client, and does it: `answer` gets a request
    /// without its line end, or nothing from a client that says nothing, and what another process needs to
    /// serve here. A signal ends the wait. Once it is `ended`, nobody is answered any more.
    pub fn serve(
        &mut self,
        wait: Duration,
        ended: &dyn Fn() -> bool,
        answer: &mut dyn FnMut(&str, &UnixStream, BorrowedFd<'_>) -> Answer,
    ) {
        self.wait(wait);
        while let Ok((stream, _)) = self.listener.accept() {
            if self.clients.len() == CLIENTS {
                self.clients.pop_front();
            }
            self.clients.extend(Client::new(stream));
        }
        let listener = self.listener.as_fd();
        let (mut stay, mut last) = (VecDeque::new(), false);
        for mut client in self.clients.drain(..) {
            if last || ended() {
                break;
            }
            let mut asked = |request: &str, stream: &UnixStream| answer(request, stream, listener);
            match client.serve(&mut asked) {
                Ok(After::Stays) => stay.push_back(client),
                Ok(After::Last) => last = true,
                // One that went away, or is too slow, is its own concern.
                Ok(After::Leaves) | Err(_) => {}
            }
        }
        self.clients = stay;
    }

    fn wait(&self, wait: Duration) {
        let wait = weir_core::units::Duration::from_nanos(wait.as_nanos().min(u64::MAX.into()) as u64);
        let (hears, speaks): (Vec<&Client>, Vec<&Client>) =
            self.clients.iter().partition(|client| client.answer.is_empty());
        let mut readable: Vec<BorrowedFd<'_>> = hears.iter().map(|client| client.stream.as_fd()).collect();
        readable.push(self.listener.as_fd());
        let writable: Vec<BorrowedFd<'_>> = speaks.iter().map(|client| client.stream.as_fd()).collect();
        let _ = weir_sys::wait_for_either(&readable, &writable, Some(wait));
    }
}

/// Somebody who has connected.
struct Client {
    stream: UnixStream,
    /// What it has said so far.
    said: Vec<u8>,
    /// What it is told; nothing until it has said all.
    answer: Vec<u8>,
    /// Bytes of that which it has taken.
    taken: usize,
    /// When nobody waits for it any more.
    until: Instant,
}

/// What becomes of a client.
#[derive(PartialEq, Eq)]
enum After {
    Stays,
    Leaves,
    Last,
}

/// Bytes that are read from a client before the others get their turn.
const TURN: usize = 1 << 20;

impl Client {
    fn new(stream: UnixStream) -> io::Result<Client> {
        stream.set_nonblocking(true)?;
        let until = Instant::now() + PATIENCE;
        Ok(Client { stream, said: Vec::new(), answer: Vec::new(), taken: 0, until })
    }

    /// Does what can be done at once.
    fn serve(&mut self, answer: &mut dyn FnMut(&str, &UnixStream) -> Answer) -> io::Result<After> {
        if self.answer.is_empty() {
            if !self.hear()? {
                return self.stays();
            }
            let said = String::from_utf8(std::mem::take(&mut self.said)).map_err(io::Error::other)?;
            // Who answers may speak by itself.
            self.stream.set_nonblocking(false)?;
            match answer(said.trim_end(), &self.stream) {
                Answer::Line(line) => self.answer = (line + "\n").into_bytes(),
                Answer::Told => return Ok(After::Leaves),
                Answer::Last => return Ok(After::Last),
            }
            self.stream.set_nonblocking(true)?;
            self.until = Instant::now() + PATIENCE;
        }
        if self.tell()? { Ok(After::Leaves) } else { self.stays() }
    }

    fn stays(&self) -> io::Result<After> {
        if Instant::now() < self.until { Ok(After::Stays) } else { Err(io::ErrorKind::TimedOut.into()) }
    }

    /// Reads what has come: true if that is a line, or all that comes.
    fn hear(&mut self) -> io::Result<bool> {
        let (most, mut room) = (self.said.len() + TURN, [0; 1 << 14]);
        while self.said.len() < most {
            match self.stream.read(&mut room) {
                Ok(0) => return Ok(true),
                Ok(n) => self.said.extend_from_slice(&room[..n]),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
            if self.said.ends_with(b"\n") || self.said.len() > MOST {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Writes what there is room for, for which the client gets its time anew: true if that is all.
    fn tell(&mut self) -> io::Result<bool> {
        while self.taken < self.answer.len() {
            match self.stream.write(&self.answer[self.taken..]) {
                Ok(n) => {
                    self.taken += n;
                    self.until = Instant::now() + PATIENCE;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(true)
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
    fn serving(server: &mut Server, act: impl FnOnce() + Send) {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                act();
                done.store(true, Ordering::Relaxed);
            });
            while !done.load(Ordering::Relaxed) {
                server.serve(Duration::from_millis(5), &|| false, &mut |request, _, _| {
                    Answer::Line(format!("<{request}>"))
                });
            }
        });
    }

    /// Clients that say nothing keep nobody who has been told to end.
    #[test]
    fn idle_clients_delay_no_end() {
        let folder = folder("end");
        let mut server = Server::bind(&folder.join("socket")).unwrap();
        let _idle: Vec<_> = (0..5).map(|_| UnixStream::connect(folder.join("socket")).unwrap()).collect();
        // The end comes when two of them were looked at.
        let asked = std::cell::Cell::new(0);
        let ended = || asked.replace(asked.get() + 1) > 2;
        server.serve(Duration::ZERO, &ended, &mut |_, _, _| Answer::Line("answered".into()));
        assert_eq!(asked.get(), 4);
        drop(server);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn requests_are_answered_whatever_clients_do() {
        let folder = folder("answers");
        let path = folder.join("socket");
        let mut server = Server::bind(&path).unwrap();
        serving(&mut server, || {
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
            // One that goes, and one whose bytes are no text.
            drop(UnixStream::connect(&path).unwrap());
            UnixStream::connect(&path).unwrap().write_all(b"\xff\n").unwrap();
            assert_eq!(ask(&path, "again", patience).unwrap(), "<again>\n");
        });
        drop(server);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "nothing stays");
        let gone = ask(&path, "stats", PATIENCE).unwrap_err().to_string();
        assert!(gone.contains("is `weir up` running"), "{gone}");
        fs::remove_dir_all(folder).unwrap();
    }

    /// Neither clients that say nothing, nor such as say half, nor such as do not read: who comes behind
    /// them is answered while they are still there.
    #[test]
    fn nobody_waits_for_another_client() {
        let folder = folder("others");
        let path = folder.join("socket");
        let mut server = Server::bind(&path).unwrap();
        let connect = |said: &[u8]| {
            let mut client = UnixStream::connect(&path).unwrap();
            client.write_all(said).unwrap();
            client
        };
        let others: Vec<_> = [&b""[..], b"half of a li", b"long\n"].into_iter().map(connect).collect();
        let mut asks = connect(b"stats\n");
        let line = |request: &str| if request == "long" { "x".repeat(8 << 20) } else { request.to_owned() };
        server.serve(Duration::ZERO, &|| false, &mut |request, _, _| Answer::Line(line(request)));
        asks.set_nonblocking(true).unwrap();
        let mut answer = String::new();
        asks.read_to_string(&mut answer).expect("it is answered in the same turn");
        assert_eq!(answer, "stats\n");
        assert_eq!(server.clients.len(), others.len());
        // They have their time, and no more.
        for client in &mut server.clients {
            client.until = Instant::now();
        }
        server.serve(Duration::ZERO, &|| false, &mut |_, _, _| Answer::Told);
        assert!(server.clients.is_empty());
        // The first of more than there is room for goes.
        let many: Vec<_> = (0..=CLIENTS).map(|_| connect(b"")).collect();
        server.serve(Duration::ZERO, &|| false, &mut |_, _, _| Answer::Told);
        assert_eq!(server.clients.len(), CLIENTS);
        assert_eq!((&many[0]).read(&mut [0]).unwrap(), 0);
        drop(server);
        fs::remove_dir_all(folder).unwrap();
    }

    /// A client that reads a little at a time gets the whole answer, however long that takes.
    #[test]
    fn who_reads_has_its_time_anew() {
        let folder = folder("slow");
        let path = folder.join("socket");
        let mut server = Server::bind(&path).unwrap();
        let mut client = UnixStream::connect(&path).unwrap();
        client.write_all(b"long\n").unwrap();
        let long: String = (0..1_000_000).map(|n| format!("{n} ")).collect();
        let (mut told, mut part, mut turns) = (Vec::new(), vec![0; 1 << 20], 0);
        loop {
            server.serve(Duration::ZERO, &|| false, &mut |_, _, _| Answer::Line(long.clone()));
            let Some(waiting) = server.clients.front_mut() else { break };
            // Its time is over, unless it has taken something since.
            waiting.until = Instant::now();
            let n = client.read(&mut part).unwrap();
            told.extend_from_slice(&part[..n]);
            turns += 1;
        }
        client.read_to_end(&mut told).unwrap();
        assert!(turns > 10, "{turns} turns: the answer fits the socket");
        assert!(told == (long + "\n").as_bytes(), "{} bytes", told.len());
        drop(server);
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
