//! What a broker does in a second on this machine, beside what its disk does: `weir broker bench`.
//!
//! Each row asks again as soon as it is answered, but for the one that asks 20,000 times a second. Its times count
//! from when each request was due. The rows of the disk write what a group of 64 decisions writes.

use crate::book::{Book, Command, Name, Request};
use crate::http::{Connection, HttpError, Target};
use crate::journal::{Given, Journal};
use crate::serve::config::{Config, Resource, Token};
use crate::serve::{Broker, Role, new_token};
#[cfg(feature = "etcd")]
use crate::store::Nodes;
use crate::store::{Batch, Memory, Place, Redb, Store};
use crate::wire::{Answer, Entry, Wish};
use crate::{MAX_RATE, SECOND};
use hyper::Method;
use serde::Serialize;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_sys::Priority;
use weir_text::BitRate;

/// Edges that ask at once.
pub const EDGES: usize = 1_000;
/// How often each of them asks in the row with a pace: 20,000 a second in all.
const PACE: Duration = Duration::from_millis(50);
/// Connections over which they ask by REST.
pub const CONNECTIONS: usize = 16;
/// Leases of the rows about size.
pub const LEASES: usize = 100_000;
/// Decisions in a group of the rows about the disk, and bytes of each.
const GROUP: usize = 64;
const RECORD_BYTES: usize = 80;

/// How often something was done, and how long each took.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What was done.
    pub what: &'static str,
    /// Decisions a second.
    pub decisions_per_second: f64,
    /// Half of the answers took at most so long.
    pub p50_ns: u64,
    /// All but a hundredth took at most so long.
    pub p99_ns: u64,
}

/// Rows about which something is promised.
const PACED: &str = "1,000 edges, 20,000 requests/s";
const FASTEST: &str = "1,000 edges, as fast as they can";
/// There if this program was built with etcd, and etcd is installed.
pub const ON_ETCD: &str = "the same on three nodes of etcd";

/// Something that was promised.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// What was promised.
    pub what: String,
    /// What was measured, in the unit of the promise.
    pub measured: f64,
    /// The limit.
    pub limit: f64,
    /// Whether it is kept.
    pub pass: bool,
}

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// One for each kind.
    pub rows: Vec<Row>,
    /// Bytes of memory that 100,000 leases take.
    pub leases_bytes: u64,
    /// How long a broker with them takes to start, in nanoseconds.
    pub restart_ns: u64,
    /// What was promised.
    pub checks: Vec<Check>,
}

/// What takes how long.
#[derive(Default)]
struct Times(Vec<u64>);

impl Times {
    fn add(&mut self, since: Instant) {
        self.0.push(since.elapsed().as_nanos() as u64);
    }

    fn row(mut self, what: &'static str, decisions_each: usize, took: Duration) -> Row {
        self.0.sort_unstable();
        let at = |share: usize| self.0.get((self.0.len() * share / 100).min(self.0.len().saturating_sub(1)));
        Row {
            what,
            decisions_per_second: (self.0.len() * decisions_each) as f64 / took.as_secs_f64(),
            p50_ns: at(50).copied().unwrap_or(0),
            p99_ns: at(99).copied().unwrap_or(0),
        }
    }
}

fn text(e: impl std::fmt::Display) -> String {
    e.to_string()
}

fn lease(edge: usize) -> Name {
    format!("e{edge}/rt").into()
}

fn request(edge: usize, version: u64) -> Request {
    // It rises and falls, so each request changes the book.
    let rate = 64_000 * (1 + version % 8);
    let (path, domains) = (vec!["wan0:rt".into()], Vec::new());
    Request { lease: lease(edge), version, path, rate, min: 0, ttl_ms: 60_000, domains }
}

fn provide() -> Command {
    Command::Provide { resource: "wan0:rt".into(), capacity: MAX_RATE }
}

/// Repeats `step` for `span`.
fn repeat(
    what: &'static str,
    decisions: usize,
    span: Duration,
    mut step: impl FnMut(u64) -> Result<(), String>,
) -> Result<Row, String> {
    let (mut times, start) = (Times::default(), Instant::now());
    for n in 1.. {
        let began = Instant::now();
        if began.duration_since(start) >= span {
            break;
        }
        step(n)?;
        times.add(began);
    }
    Ok(times.row(what, decisions, start.elapsed()))
}

fn bare_fsync(folder: &Path, span: Duration) -> Result<Row, String> {
    let path = folder.join("fsync");
    let mut file = File::create(&path).map_err(text)?;
    let group = [b'x'; GROUP * RECORD_BYTES];
    let row = repeat("append and fdatasync", GROUP, span, |_| {
        file.write_all(&group).and_then(|()| file.sync_data()).map_err(text)
    });
    std::fs::remove_file(&path).map_err(text)?;
    row
}

/// What a store does alone.
fn bare(what: &'static str, mut store: impl Store, span: Duration) -> Result<Row, String> {
    let record = "x".repeat(GROUP * RECORD_BYTES);
    repeat(what, GROUP, span, |number| {
        let batch = Batch { number, record: &record, first_line: 1, audit: "", keep_from: 0, snapshot: None };
        store.commit(&batch).map_err(text)
    })
}

fn bare_redb(folder: &Path, span: Duration) -> Result<Row, String> {
    let path = folder.join("bare.redb");
    let row = bare("redb alone", Redb::open(&path).map_err(text)?, span);
    std::fs::remove_file(&path).map_err(text)?;
    row
}

fn book_alone(span: Duration) -> Result<Row, String> {
    let (mut book, mut events) = (Book::new("bench"), Vec::new());
    book.apply(0, &provide(), &mut events);
    // Made once, because an edge makes its own.
    let mut asked: Vec<Command> = (0..EDGES).map(|edge| Command::Ask(request(edge, 0))).collect();
    repeat("the book alone", EDGES, span, |n| {
        for command in &mut asked {
            if let Command::Ask(request) = command {
                (request.version, request.rate) = (n, 64_000 * (1 + n % 8));
            }
            events.clear();
            book.apply(n * 1_000_000, command, &mut events);
        }
        Ok(())
    })
}

fn config(folder: &Path) -> Result<(Config, Vec<String>), String> {
    let mut config = Config {
        domain: "bench".into(),
        store: Place::File(folder.join("bench.redb")),
        unix: folder.join("bench.sock"),
        http: None,
        tls: None,
        cops: None,
        audit_lines: 1_000_000,
        priority: Priority::None,
        resources: vec![Resource { name: "wan0:rt".into(), capacity: BitRate::from_bps(MAX_RATE) }],
        agreements: Vec::new(),
        neighbours: Vec::new(),
        profiles: Vec::new(),
        edges: Vec::new(),
        sinks: Default::default(),
        tokens: Vec::new(),
    };
    let mut tokens = Vec::new();
    for edge in 0..EDGES {
        let (token, sha256) = new_token()?;
        let (name, owner) = (format!("e{edge}").into(), Some(format!("e{edge}").into()));
        config.tokens.push(Token { name, role: Role::Operate, owner, sha256, expires: None });
        tokens.push(token);
    }
    Ok((config, tokens))
}

/// Edges that ask the keeper without a connection, each at its `pace` or as soon as it is answered. Versions go on
/// from `after`.
async fn embedded(
    what: &'static str,
    broker: &Broker,
    pace: Option<Duration>,
    after: u64,
    span: Duration,
) -> Result<Row, String> {
    let start = Instant::now();
    let edges = (0..EDGES).map(|edge| {
        let keeper = broker.keeper();
        tokio::spawn(async move {
            let mut times = Times::default();
            for n in 0_u32.. {
                let mut began = Instant::now();
                if let Some(pace) = pace {
                    // They do not ask all at once. Who is late asks at once, and the delay is in its time.
                    began = start + pace * n + pace * edge as u32 / EDGES as u32;
                    tokio::time::sleep_until(began.into()).await;
                }
                if began.duration_since(start) >= span {
                    break;
                }
                let command = Command::Ask(request(edge, after + u64::from(n)));
                let given = vec![Given { who: "bench".into(), command }];
                keeper.commit(given).await.map_err(|busy| format!("{busy:?}"))?;
                times.add(began);
            }
            Ok::<_, String>(times)
        })
    });
    gather(what, edges.collect(), start).await
}

async fn gather(
    what: &'static str,
    tasks: Vec<tokio::task::JoinHandle<Result<Times, String>>>,
    start: Instant,
) -> Result<Row, String> {
    let mut all = Times::default();
    for task in tasks {
        all.0.append(&mut task.await.map_err(text)??.0);
    }
    Ok(all.row(what, 1, start.elapsed()))
}

/// What three nodes of etcd on this machine do, alone and with a broker. Nothing where there is none.
#[cfg(feature = "etcd")]
async fn on_etcd(config: &Config, folder: &Path, span: Duration) -> Result<Vec<Row>, String> {
    let Some(nodes) = Nodes::start(&folder.join("etcd"), 3).map_err(text)? else { return Ok(Vec::new()) };
    nodes.settled().await;
    let place = Place::Cluster(nodes.cluster(weir_text::Time::from_secs(10)));
    let alone = place.open("alone", |_| {}).await.map_err(text)?;
    let alone = bare("three nodes of etcd alone", alone, span)?;
    let broker = Broker::start(Config { store: place, ..config.clone() }).await?;
    let served = embedded(ON_ETCD, &broker, None, 1, span).await?;
    broker.stop().await?;
    Ok(vec![alone, served])
}

#[cfg(not(feature = "etcd"))]
#[expect(clippy::unused_async, reason = "built with etcd, it waits")]
async fn on_etcd(_: &Config, _: &Path, _: Duration) -> Result<Vec<Row>, String> {
    Ok(Vec::new())
}

/// The same over REST, each with its token. Versions go on from `after`.
async fn by_rest(
    what: &'static str,
    folder: &Path,
    tokens: &Arc<Vec<String>>,
    connections: usize,
    after: u64,
    span: Duration,
) -> Result<Row, String> {
    let (target, start) = (Target::Unix(folder.join("bench.sock")), Instant::now());
    let tasks = (0..connections).map(|n| {
        let (target, tokens) = (target.clone(), tokens.clone());
        tokio::spawn(async move {
            let open = Connection::open(&target, None, Duration::from_secs(10));
            let (mut times, mut connection) = (Times::default(), open.await.map_err(text)?);
            for round in 1.. {
                for edge in (n..EDGES).step_by(connections) {
                    let began = Instant::now();
                    if began.duration_since(start) >= span {
                        return Ok(times);
                    }
                    connection.speak_as(&tokens[edge]);
                    put(&mut connection, &request(edge, after + round)).await.map_err(text)?;
                    times.add(began);
                }
            }
            Ok::<_, String>(times)
        })
    });
    gather(what, tasks.collect(), start).await
}

async fn put(connection: &mut Connection, request: &Request) -> Result<Answer, HttpError> {
    let Entry { lease, version, path, rate_bps, min_bps, ttl_ms, domains } = Entry::from(request);
    let wish = Wish { version, path, rate_bps, min_bps, ttl_ms, domains };
    connection.json(Method::PUT, &format!("/v1/leases/{lease}"), Some(&wish)).await
}

/// Bytes of memory that this process has now.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * 4_096
}

/// Memory of many leases, and the time to start with them.
fn many_leases(folder: &Path) -> Result<(u64, u64), String> {
    let path = folder.join("many.redb");
    let before = resident();
    {
        let mut journal = Journal::open(Redb::open(&path).map_err(text)?, "bench").map_err(text)?;
        let given = |command| Given { who: "bench".into(), command };
        journal.commit(0, 0, &[given(Command::Begin), given(provide())]).map_err(text)?;
        for from in (0..LEASES).step_by(500) {
            let group = (from..from + 500).map(|edge| given(Command::Ask(request(edge, 1))));
            journal.commit(SECOND, 0, &group.collect::<Vec<_>>()).map_err(text)?;
        }
    }
    let began = Instant::now();
    let mut journal = Journal::open(Redb::open(&path).map_err(text)?, "bench").map_err(text)?;
    journal.commit(0, 0, &[Given { who: "bench".into(), command: Command::Begin }]).map_err(text)?;
    let restart = began.elapsed().as_nanos() as u64;
    let bytes = resident().saturating_sub(before);
    if journal.book().leases().count() != LEASES {
        return Err("leases are missing after the restart: this is a defect".into());
    }
    drop(journal);
    std::fs::remove_file(&path).map_err(text)?;
    Ok((bytes, restart))
}

/// Measures each row for `span`, with files in `folder`.
///
/// # Errors
/// The folder cannot be written, or something failed.
pub fn measure(folder: &Path, span: Duration) -> Result<Figures, String> {
    let folder = folder.join(format!("weir-broker-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let figures = measure_in(&folder, span);
    // What is left of a failed run is of no use.
    let _ = std::fs::remove_dir_all(&folder);
    figures
}

fn measure_in(folder: &Path, span: Duration) -> Result<Figures, String> {
    let (leases_bytes, restart_ns) = many_leases(folder)?;
    let mut rows = vec![bare_fsync(folder, span)?, bare_redb(folder, span)?, book_alone(span)?];
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(text)?;
    runtime.block_on(async {
        let (config, tokens) = config(folder)?;
        let tokens = Arc::new(tokens);
        let memory = Broker::start_on(Box::new(Memory::default()), config.clone()).await?;
        let in_memory = embedded("the same without a disk", &memory, None, 1, span).await?;
        memory.stop().await?;
        let on_etcd = on_etcd(&config, folder, span).await?;
        let broker = Broker::start(config).await?;
        rows.push(embedded(PACED, &broker, Some(PACE), 1, span).await?);
        rows.push(embedded(FASTEST, &broker, None, 1 << 32, span).await?);
        rows.push(in_memory);
        rows.extend(on_etcd);
        let (all, idle) = ("REST, 16 connections", "REST, one request at a time");
        rows.push(by_rest(all, folder, &tokens, CONNECTIONS, 2 << 32, span).await?);
        rows.push(by_rest(idle, folder, &tokens, 1, 3 << 32, span).await?);
        broker.stop().await
    })?;
    let checks = checks(&rows, leases_bytes, restart_ns);
    Ok(Figures { rows, leases_bytes, restart_ns, checks })
}

fn checks(rows: &[Row], leases_bytes: u64, restart_ns: u64) -> Vec<Check> {
    let ms = |ns: u64| ns as f64 / 1e6;
    let row = |what: &str| rows.iter().find(|row| row.what == what);
    let at_least = |what: &str, limit: f64| {
        let measured = row(what).map_or(0.0, |row| row.decisions_per_second);
        Check { what: format!("{what}: decisions/s at least"), measured, limit, pass: measured >= limit }
    };
    let at_most =
        |what: String, measured: f64, limit: f64| Check { what, measured, limit, pass: measured <= limit };
    let fsync = row("append and fdatasync").map_or((0.0, 0.0), |row| (ms(row.p50_ns), ms(row.p99_ns)));
    let idle = "REST, one request at a time";
    // What is not there is not kept.
    let p99 = row(PACED).map_or(f64::INFINITY, |row| ms(row.p99_ns));
    let p50 = row(idle).map_or(f64::INFINITY, |row| ms(row.p50_ns));
    let on_etcd = row(ON_ETCD).map(|_| at_least(ON_ETCD, 10_000.0));
    let checks = vec![
        at_least("the book alone", 1e6),
        at_least(FASTEST, 20_000.0),
        at_most(format!("{PACED}: p99 in ms, at most 10 and an fsync's p99"), p99, 10.0 + fsync.1),
        at_most(format!("{idle}: p50 in ms, at most 2 and an fsync's p50"), p50, 2.0 + fsync.0),
        at_most("100,000 leases: MB at most".into(), leases_bytes as f64 / 1e6, 100.0),
        at_most("restart with them: ms at most".into(), ms(restart_ns), 1_000.0),
    ];
    checks.into_iter().chain(on_etcd).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_promise_is_judged_by_what_was_measured() {
        let row =
            |what, decisions_per_second, p50_ns, p99_ns| Row { what, decisions_per_second, p50_ns, p99_ns };
        let rows = |slow: u64| {
            vec![
                row("append and fdatasync", 1.0, 1_000_000, 5_000_000),
                row("the book alone", 2e6 / slow as f64, 1, 1),
                row(FASTEST, 3e4 / slow as f64, 1, 1),
                row(PACED, 2e4, 1, slow * 14_000_000),
                row(ON_ETCD, 1.5e4 / slow as f64, 1, 1),
                row("REST, one request at a time", 1.0, slow * 2_900_000, 1),
            ]
        };
        let kept = |slow: u64| {
            checks(&rows(slow), slow * 90_000_000, slow * 900_000_000).iter().filter(|c| c.pass).count()
        };
        assert_eq!((kept(1), kept(3)), (7, 0));
        assert_eq!(
            checks(&[], 0, 0).iter().filter(|c| c.pass).count(),
            2,
            "what was not measured is not kept"
        );
    }
}
