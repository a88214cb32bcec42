//! A broker as a process: the [journal](crate::journal) behind its doors.
//!
//! One thread, the keeper, has the journal. Requests come to it over HTTP, by a Unix socket, the loopback or TLS, and
//! are answered once they are written down. [`wire`](crate::wire) has the JSON, [`config`] the file.

mod agreement;
mod clock;
pub mod config;
mod day;
mod desk;
mod doors;
mod keeper;
mod log;
mod metrics;
mod openapi;
mod pdp;
mod qod;
mod rest;
mod stream;
#[cfg(test)]
pub(crate) mod tests;
mod who;

pub use desk::MESSAGE_BYTES;
pub use doors::CONNECTIONS;
pub use keeper::GROUP;
pub use stream::SILENCE;
pub use who::{REQUESTS_PER_SECOND, Role, new_token};

use crate::book::{Book, Command};
use crate::journal::{Journal, JournalError};
use crate::store::Store;
use config::Config;
use desk::Desk;
use doors::Doors;
use keeper::Keeper;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::unbounded_channel;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use weir_sys::Priority;

/// The usual Unix socket of a broker.
pub const SOCKET: &str = "/run/weir-broker.sock";

/// A broker that serves.
pub struct Broker {
    desk: Arc<Desk>,
    keeper: JoinHandle<Result<(), JournalError>>,
    doors: Vec<tokio::task::JoinHandle<()>>,
    unix: PathBuf,
    http: Option<SocketAddr>,
    tls: Option<SocketAddr>,
    cops: Option<SocketAddr>,
    apart: Vec<String>,
}

/// What the file gives, and nothing for what it no longer names.
fn capacities(config: &Config, book: &Book) -> Vec<Command> {
    let agree = |resource: &str, ceiling, bulk| Command::Agree { resource: resource.into(), ceiling, bulk };
    let agreed = |name: &str| config.agreements.iter().any(|a| *a.resource == *name);
    let ended = book.agreements().filter(|r| !agreed(r.resource)).map(|r| agree(r.resource, 0, 1));
    let agreements =
        config.agreements.iter().map(|a| agree(&a.resource, a.ceiling.as_bps(), a.bulk.as_bps()));
    let provide = |resource: &str, capacity| Command::Declare { resource: resource.into(), capacity };
    let named = |name: &str| config.resources.iter().any(|r| *r.name == *name);
    let gone = book.resources().filter(|r| !named(r.resource)).map(|r| provide(r.resource, 0));
    let given = config.resources.iter().map(|r| provide(&r.name, r.capacity.as_bps()));
    gone.chain(given).chain(ended).chain(agreements).collect()
}

/// What the operator has set since the file was read last, and the file does not say: it goes on.
fn set_apart(config: &Config, book: &Book) -> Vec<String> {
    let apart = config.resources.iter().filter_map(|r| {
        let (now, file) = (book.on(&r.name)?.capacity, r.capacity.as_bps());
        (book.declared(&r.name) == Some(file) && file > 0 && now != file).then(|| {
            let socket = config.unix.display();
            format!(
                "{name} goes on with {now} bit/s, as was set while the broker ran; the file says {file}: write: \
                 weir broker set {name} {file} --socket {socket}",
                name = r.name
            )
        })
    });
    apart.collect()
}

impl Broker {
    /// Opens the store of `config` and its doors, and serves from now on. Needs a runtime of tokio.
    ///
    /// # Errors
    /// The store, a certificate or a door cannot be opened.
    pub async fn start(config: Config) -> Result<Self, String> {
        let store = config.store.open(&config.domain, |_| {}).await.map_err(|e| e.to_string())?;
        Self::start_on(store, config).await
    }

    /// The same on another store than the file's.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn start_on(store: Box<dyn Store>, config: Config) -> Result<Self, String> {
        config.check()?;
        let (files, acceptor) = match &config.tls {
            Some(tls) => {
                let stamp = tls.stamp();
                let (to, acceptor) = watch::channel(TlsAcceptor::from(tls.server()?));
                (Some((tls.clone(), stamp, to)), Some(acceptor))
            }
            None => (None, None),
        };
        let unix = doors::unix(&config.unix)?;
        let (http, tls) =
            (listen(config.http).await?, listen(config.tls.as_ref().map(|tls| tls.listen)).await?);
        let cops = listen(config.cops).await?;
        let address = |listener: &Option<TcpListener>| listener.as_ref().and_then(|l| l.local_addr().ok());
        let (http_at, tls_at, cops_at) = (address(&http), address(&tls), address(&cops));
        let opened = Journal::open(store, &config.domain);
        let journal = opened.map_err(|e| format!("{}: {e}", config.store))?.keeping(config.audit_lines);
        let first = capacities(&config, journal.book());
        let apart = set_apart(&config, journal.book());
        if let Some(r) =
            journal.book().agreements().find(|r| config.resources.iter().any(|o| *o.name == *r.resource))
        {
            return Err(format!(
                "resource \"{}\" was an agreement with a neighbour until now: give the resource another name",
                r.resource
            ));
        }
        let life = journal.book().lives() + 1;
        let (mut agreed, mut heard) = (HashMap::new(), Vec::new());
        for agreement in &config.agreements {
            let (news, to) = unbounded_channel();
            agreed.insert(agreement.resource.clone(), keeper::Agreed::new(news));
            heard.push(to);
        }
        let (keeper, thread) = Keeper::start(journal, first, agreed, config.priority)?;
        let desk = Arc::new(Desk {
            keeper,
            tokens: config.tokens,
            neighbours: config.neighbours,
            profiles: config.profiles,
            edges: config.edges,
            notifier: qod::Notifier::new(config.sinks)?,
            sessions: qod::Sessions::default(),
            limits: who::Limits::default(),
            log: log::Log::new(),
        });
        let all = Doors::new(desk.clone());
        let cops_tls = cops_at.is_some_and(|at| !at.ip().is_loopback()).then(|| acceptor.clone()).flatten();
        let mut doors = vec![tokio::spawn(all.clone().unix(unix)), tokio::spawn(qod::watch(desk.clone()))];
        doors.extend(files.map(|(tls, stamp, to)| tokio::spawn(follow(desk.clone(), tls, stamp, to))));
        doors.extend(http.map(|http| tokio::spawn(all.clone().plain(http))));
        doors.extend(tls.zip(acceptor).map(|(tls, acceptor)| tokio::spawn(all.clone().tls(tls, acceptor))));
        doors.extend(cops.map(|cops| match cops_tls {
            Some(acceptor) => tokio::spawn(all.cops().tls(cops, acceptor)),
            None => tokio::spawn(all.cops().plain(cops)),
        }));
        for (agreement, heard) in config.agreements.iter().zip(heard) {
            let task =
                agreement::Task::new(agreement, &config.domain, life, desk.keeper.clone(), desk.clone())?;
            doors.push(tokio::spawn(task.run(heard)));
        }
        let unix = config.unix;
        Ok(Broker { desk, keeper: thread, doors, unix, http: http_at, tls: tls_at, cops: cops_at, apart })
    }

    /// The Unix socket.
    pub fn unix(&self) -> &Path {
        &self.unix
    }

    /// Where it listens without TLS.
    pub fn http(&self) -> Option<SocketAddr> {
        self.http
    }

    /// Where it listens with TLS.
    pub fn tls(&self) -> Option<SocketAddr> {
        self.tls
    }

    /// Where it listens for COPS.
    pub fn cops(&self) -> Option<SocketAddr> {
        self.cops
    }

    /// A sentence for each capacity that was set while a broker ran, and that the file has otherwise.
    pub fn set_apart(&self) -> &[String] {
        &self.apart
    }

    /// The way to the keeper, for who needs no door.
    pub(crate) fn keeper(&self) -> Keeper {
        self.desk.keeper.clone()
    }

    /// Whether the keeper has ended, which it does by itself only if its store fails.
    fn has_ended(&self) -> bool {
        self.keeper.is_finished()
    }

    /// Finishes what it is at, and stops. Leases go on: whoever starts from the same store has them.
    ///
    /// # Errors
    /// The store has failed.
    pub async fn stop(self) -> Result<(), String> {
        self.doors.iter().for_each(tokio::task::JoinHandle::abort);
        self.desk.keeper.stop();
        let ended = tokio::task::spawn_blocking(move || self.keeper.join()).await;
        // A socket that stays is replaced by who comes next.
        let _ = std::fs::remove_file(&self.unix);
        match ended {
            Ok(Ok(done)) => done.map_err(|e| e.to_string()),
            _ => Err("the keeper of the book has panicked: this is a defect".into()),
        }
    }
}

/// Reads the files of TLS again whenever one has changed. As long as they do not fit each other the old ones count.
async fn follow(
    desk: Arc<Desk>,
    tls: config::Tls,
    mut stamp: Vec<config::Stamp>,
    to: watch::Sender<TlsAcceptor>,
) {
    loop {
        tokio::time::sleep(SILENCE).await;
        let now = tls.stamp();
        if now == stamp {
            continue;
        }
        match tls.server() {
            Ok(config) => {
                stamp = now;
                to.send_replace(TlsAcceptor::from(config));
            }
            // They are tried again at each look, until they fit.
            Err(why) => desk.log.refused(&format!("other files of [tls]: {why}; those before stay")),
        }
    }
}

async fn listen(at: Option<SocketAddr>) -> Result<Option<TcpListener>, String> {
    match at {
        None => Ok(None),
        Some(at) => TcpListener::bind(at).await.map(Some).map_err(|e| format!("{at}: {e}")),
    }
}

/// Where a broker runs. Its threads have the priority that the system allows.
fn runtime(priority: Priority) -> Result<Runtime, String> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.enable_all().on_thread_start(move || _ = weir_sys::take_priority(priority));
    builder.build().map_err(|e| e.to_string())
}

/// Serves until SIGINT or SIGTERM comes, or the store fails. `ready` is called once it serves. `waits` is told why it does
/// not yet: another broker of the domain does, or etcd does not answer.
///
/// # Errors
/// What could not be opened, or how the store failed.
pub fn run(config: Config, waits: impl FnMut(&str), ready: impl FnOnce(&Broker)) -> Result<(), String> {
    runtime(config.priority)?.block_on(async {
        let asked = |kind| signal(kind).map_err(|e| e.to_string());
        let (mut interrupt, mut terminate) =
            (asked(SignalKind::interrupt())?, asked(SignalKind::terminate())?);
        // While it stands by it has no doors, so whoever knows several brokers finds the one that serves.
        let store = tokio::select! {
            store = config.store.open(&config.domain, waits) => store.map_err(|e| e.to_string())?,
            _ = interrupt.recv() => return Ok(()),
            _ = terminate.recv() => return Ok(()),
        };
        let broker = Broker::start_on(store, config).await?;
        ready(&broker);
        let mut look = tokio::time::interval(SILENCE);
        while !broker.has_ended() {
            tokio::select! {
                _ = interrupt.recv() => break,
                _ = terminate.recv() => break,
                _ = look.tick() => {}
            }
        }
        broker.stop().await
    })
}
