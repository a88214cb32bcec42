//! A broker as its own process, with edges that hold leases at it: killed, cut off, started again.

use crate::json::documented;
use crate::support::{Folder, weir};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use weir_broker::Rate;
use weir_broker::book::Refusal;
use weir_broker::client::{Broker, Client, Edge, Shaper};
use weir_broker::cops::pep;
use weir_broker::holder::{State, Terms};
use weir_broker::http::{HttpError, Target};

const CAPACITY: Rate = 1_000_000;
const TTL: Duration = Duration::from_secs(2);
const EDGES: usize = 3;

/// A broker in a process of its own, which goes with the test.
pub struct Process(Child);

impl Process {
    pub fn start(folder: &Folder) -> Process {
        Self::start_with(folder, &[])
    }

    /// The same with this in its environment.
    pub(crate) fn start_with(folder: &Folder, environment: &[(&str, String)]) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        Self::by(command, folder)
    }

    /// The same by a command that stands before `broker run`.
    pub fn by(mut command: Command, folder: &Folder) -> Process {
        let file = folder.path("broker.toml");
        let mut child = command.args(["broker", "run", &file]).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = Vec::new();
        let mut stderr = child.stderr.take().unwrap();
        while !said.ends_with(b"\n") {
            let mut byte = [0];
            assert_eq!(stderr.read(&mut byte).unwrap(), 1, "{}", String::from_utf8_lossy(&said));
            said.push(byte[0]);
        }
        // What it says later goes on being read, so that it never waits for the test.
        std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
        assert!(said.starts_with(b"weir broker: serves at "), "{}", String::from_utf8_lossy(&said));
        Process(child)
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// kill -9.
    pub fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have gone.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The way of one edge to its broker, which can be cut: then nothing passes, and nobody hears why.
struct Way {
    at: SocketAddr,
    cut: Arc<AtomicBool>,
}

impl Way {
    fn to(broker: SocketAddr) -> Way {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (at, cut) = (listener.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
        let is_cut = cut.clone();
        std::thread::spawn(move || {
            for edge in listener.incoming().flatten() {
                let is_cut = is_cut.clone();
                std::thread::spawn(move || {
                    while is_cut.load(Ordering::SeqCst) {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    // Without a broker the edge sees its connection end.
                    let Ok(broker) = TcpStream::connect(broker) else { return };
                    let (from, to) = (edge.try_clone().unwrap(), broker.try_clone().unwrap());
                    let back = is_cut.clone();
                    std::thread::spawn(move || carry(from, to, &is_cut));
                    carry(broker, edge, &back);
                });
            }
        });
        Way { at, cut }
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, is_cut: &AtomicBool) {
    let mut bytes = [0; 4_096];
    while let Ok(n @ 1..) = from.read(&mut bytes) {
        while is_cut.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        if to.write_all(&bytes[..n]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
    let _ = from.shutdown(std::net::Shutdown::Both);
}

/// What all edges use. It is looked at at each change, so no moment is missed.
#[derive(Default)]
pub(crate) struct Link {
    pub used: [(Rate, Option<State>); EDGES],
    pub most: Rate,
    changes: u64,
}

pub(crate) struct OnLink(pub usize, pub Arc<Mutex<Link>>);

impl Shaper for OnLink {
    fn shape(&mut self, _: &str, rate: Rate, state: State, _: Option<&Refusal>) {
        let mut link = self.1.lock().unwrap();
        link.used[self.0] = (rate, Some(state));
        link.changes += 1;
        link.most = link.most.max(link.used.iter().map(|(rate, _)| rate).sum());
    }

    fn broker(&mut self, _: Result<(), &HttpError>) {}
}

/// Waits until `is_so`. Says how long that took.
pub(crate) fn until(
    what: &str,
    most: Duration,
    link: &Mutex<Link>,
    is_so: impl Fn(&Link) -> bool,
) -> Duration {
    let start = Instant::now();
    loop {
        let now = link.lock().unwrap();
        if is_so(&now) {
            return start.elapsed();
        }
        assert!(start.elapsed() < most, "{what}: not within {most:?}: {:?}", now.used);
        drop(now);
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub(crate) fn token(name: &str, more: &[&str]) -> (String, String) {
    let run = weir(&[&["broker", "token", name, "--role", "operate"], more].concat()).ok();
    let lines = run.err.split_once("\n\n").unwrap().1.to_owned();
    (run.out.trim().to_owned(), lines)
}

/// A broker's file with a token for each edge. Says them, and where the door listens.
fn file(folder: &Folder, door: &str) -> (Vec<String>, SocketAddr) {
    // A port that was free just now, so that a broker that starts again is found.
    let at = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut text =
        format!("domain = \"core\"\nstore = \"core.redb\"\nunix = \"broker.sock\"\n{door} = \"{at}\"\n");
    text += "[[resource]]\nname = \"wan:rt\"\ncapacity = \"1M\"\n";
    let mut tokens = Vec::new();
    for edge in 0..EDGES {
        let (token, lines) = token(&format!("t{edge}"), &["--owner", &format!("e{edge}")]);
        text += &lines;
        tokens.push(token);
    }
    folder.write("broker.toml", text);
    (tokens, at)
}

/// T66
#[test]
fn edges_stay_within_capacity_when_their_broker_is_killed_or_cut_off_and_are_back_within_5_s() {
    edges_stay_within_capacity("http", |_, at| Broker::Rest(Target::Plain(at)));
}

/// T20, T66
#[test]
fn edges_that_speak_cops_stay_within_capacity_too() {
    edges_stay_within_capacity("cops", |edge, at| {
        Broker::Cops(pep::Target { at, edge: format!("e{edge}").into(), tls: None })
    });
}

fn edges_stay_within_capacity(door: &str, target: impl Fn(usize, String) -> Broker) {
    let folder = Folder::new();
    let (tokens, at) = file(&folder, door);
    let broker = Process::start(&folder);
    let (link, ways) = (Arc::new(Mutex::new(Link::default())), [(); EDGES].map(|()| Way::to(at)));
    let clients: Vec<Client> = (0..EDGES)
        .map(|n| {
            let terms = Terms {
                lease: format!("e{n}/rt").into(),
                path: vec!["wan:rt".into()],
                ttl_ms: TTL.as_millis() as u32,
                epoch: 0,
                gap: 100_000_000,
                retry: 500_000_000,
            };
            let broker = target(n, ways[n].at.to_string());
            let edge = Edge {
                broker,
                token: Some(tokens[n].clone()),
                leases: vec![terms],
                sessions: None,
                seed: n as u64,
            };
            Client::start(edge, OnLink(n, link.clone())).unwrap()
        })
        .collect();
    let (short, all) = (Duration::from_secs(5), |link: &Link| link.used.iter().all(|(rate, _)| *rate > 0));
    let want = |rates: [Rate; EDGES]| {
        clients.iter().enumerate().for_each(|(n, c)| c.want(&format!("e{n}/rt"), rates[n], 0))
    };
    want([300_000, 300_000, 300_000]);
    until("all have what they want", short, &link, all);
    // More than there is: they get what is left, and ask again.
    want([300_000, 500_000, 500_000]);
    until("nothing is left", short, &link, |l| l.used.iter().map(|(rate, _)| rate).sum::<Rate>() == CAPACITY);

    // Killed and started again at once: nobody loses anything.
    let before = link.lock().unwrap().used.map(|(rate, _)| rate);
    broker.kill();
    let broker = Process::start(&folder);
    std::thread::sleep(TTL + Duration::from_secs(1));
    assert_eq!(link.lock().unwrap().used.map(|(rate, _)| rate), before, "leases outlive their broker");

    // Gone for longer: leases end, by the edges' own clocks.
    broker.kill();
    let orphaned = |(rate, state): &(Rate, Option<State>)| *rate == 0 && *state == Some(State::Orphaned);
    let took = until("all are orphaned", TTL + short, &link, |l| l.used.iter().all(orphaned));
    assert!(took <= TTL + Duration::from_millis(500), "{took:?}");
    std::thread::sleep(Duration::from_secs(3));
    let broker = Process::start(&folder);
    let took = until("all are back", short, &link, |l| {
        l.used.iter().map(|(rate, _)| rate).sum::<Rate>() == CAPACITY && !l.used.iter().any(orphaned)
    });
    println!("back {took:?} after the broker");

    // One is cut off: its lease ends, later the others have it, then it comes back.
    want([300_000, CAPACITY, CAPACITY]);
    ways[0].cut.store(true, Ordering::SeqCst);
    let took = until("the one cut off is orphaned", TTL + short, &link, |l| orphaned(&l.used[0]));
    assert!(took <= TTL + Duration::from_millis(500), "{took:?}");
    until("the others have its share", TTL + short, &link, |l| l.used[1].0 + l.used[2].0 == CAPACITY);
    ways[0].cut.store(false, Ordering::SeqCst);
    let took = until("it is heard again", short, &link, |l| l.used[0].1 == Some(State::Refused));
    println!("back {took:?} after the cut");
    want([300_000, 300_000, 300_000]);
    until("there is room for all", Duration::from_secs(10), &link, |l| {
        l.used.iter().all(|(rate, _)| *rate == 300_000)
    });

    let standing = clients[1].leases();
    let [lease] = standing.as_slice() else { panic!("{standing:?}") };
    assert_eq!((&*lease.lease, lease.wanted, lease.held), ("e1/rt", 300_000, 300_000));
    assert!(["LEASED", "REFUSED"].contains(&lease.state.word()), "{lease:?}");
    assert!((1..=TTL.as_nanos() as u64).contains(&lease.left), "{lease:?}");

    // The operator takes capacity away: it is called back at once.
    weir(&["broker", "set", "wan:rt", "600k", "--socket", &folder.path("broker.sock")]).ok();
    until("called back", short, &link, |l| l.used.iter().map(|(rate, _)| rate).sum::<Rate>() <= 600_000);
    let seen = link.lock().unwrap();
    assert!(seen.most <= CAPACITY, "{} bit/s were used of {CAPACITY}", seen.most);
    assert!(seen.changes > 10, "{}", seen.changes);
    drop(seen);

    let socket = folder.path("broker.sock");
    let leases = documented("weir broker leases -j", &["broker", "leases", "-j", "--socket", &socket]);
    assert_eq!(leases["leases"].as_array().map(Vec::len), Some(EDGES));
    documented("weir broker resources -j", &["broker", "resources", "-j", "--socket", &socket]);
    let shown = weir(&["broker", "leases", "e1", "--socket", &socket]).ok().out;
    assert!(shown.contains("e1/rt") && !shown.contains("e2/rt"), "{shown}");
    let verified = weir(&["broker", "audit", "--verify", "--socket", &socket]).ok().out;
    assert!(verified.starts_with("lines 1 to ") && verified.contains("nothing was changed"), "{verified}");
    let lines = weir(&["broker", "audit", "--socket", &socket]).ok().out;
    let began =
        lines.lines().filter(|l| serde_json::from_str::<Value>(l).unwrap()["began"].is_object()).count();
    assert_eq!(began, 3, "three brokers served from this store");
    drop(clients);
    broker.kill();
    let store = folder.path("core.redb");
    weir(&["broker", "audit", "--verify", "--store", &store]).ok();
    weir(&["broker", "leases", "--socket", &socket]).fails(1, &["broker.sock", "weir broker run FILE"]);
}

/// Leases come and go while a client runs; another client goes on with what is held, and gives it back in the end.
#[test]
fn a_lease_goes_from_client_to_client_and_back_to_the_broker() {
    let folder = Folder::new();
    let (tokens, at) = file(&folder, "http");
    let _broker = Process::start(&folder);
    let link = Arc::new(Mutex::new(Link::default()));
    let start = |leases| {
        let broker = Broker::Rest(Target::Plain(at.to_string()));
        let edge = Edge { broker, token: Some(tokens[0].clone()), leases, sessions: None, seed: 1 };
        Client::start(edge, OnLink(0, link.clone())).unwrap()
    };
    let terms = |lease: &str| Terms {
        lease: lease.into(),
        path: vec!["wan:rt".into()],
        ttl_ms: TTL.as_millis() as u32,
        epoch: 0,
        gap: 10_000_000,
        retry: 500_000_000,
    };
    let second = Duration::from_secs(5);
    let used = |rate| move |link: &Link| link.used[0].0 == rate;
    let socket = folder.path("broker.sock");
    let granted = |lease: &str| {
        let all = weir(&["broker", "leases", "-j", "--socket", &socket]).ok().json();
        let all = all["leases"].as_array().unwrap().clone();
        all.iter().find(|l| l["lease"] == lease).map_or(0, |l| l["granted_bps"].as_u64().unwrap())
    };

    let first = start(Vec::new());
    assert!(first.give_back(second), "nothing is held");
    first.keep(vec![(terms("e0/rt"), None), (terms("e0/no"), None)]);
    first.want("e0/rt", 300_000, 0);
    until("granted", second, &link, used(300_000));
    // One that is kept no longer is given back, whatever it wanted.
    first.want("e0/no", 100_000, 0);
    until("granted as well", second, &link, used(100_000));
    assert_eq!(granted("e0/no"), 100_000);
    first.keep(vec![(terms("e0/rt"), None)]);
    let start_of_wait = Instant::now();
    while granted("e0/no") > 0 {
        assert!(start_of_wait.elapsed() < second);
    }
    assert_eq!(first.leases().len(), 1);

    let carried = first.stop();
    let [of_rt] = carried.as_slice() else { panic!("{carried:?}") };
    assert_eq!((&*of_rt.lease, of_rt.held_bps), ("e0/rt", 300_000));
    *link.lock().unwrap() = Link::default();
    let next = start(Vec::new());
    next.keep(vec![(terms("e0/rt"), Some(of_rt.clone()))]);
    until("it goes on", second, &link, used(300_000));
    // Nobody wants anything else: it is renewed.
    std::thread::sleep(TTL + Duration::from_millis(500));
    assert_eq!(link.lock().unwrap().used[0], (300_000, Some(State::Leased)));
    assert!(next.give_back(second));
    assert_eq!(granted("e0/rt"), 0);
    assert_eq!(link.lock().unwrap().used[0].0, 0);
}

/// Set in the process that is an edge: where its broker is, and its token.
const EDGE: &str = "WEIR_TEST_EDGE";

/// Says each change of its lease on standard output.
struct Aloud;

impl Shaper for Aloud {
    fn shape(&mut self, lease: &str, rate: Rate, state: State, _: Option<&Refusal>) {
        println!("{lease} {rate} {}", state.word());
    }

    fn broker(&mut self, _: Result<(), &HttpError>) {}
}

/// An edge as a process: it wants 300 kbit/s, and says where its wall clock stands as often as it is asked.
fn edge(at: &str) {
    let (at, token) = at.split_once(' ').unwrap();
    let broker = Broker::Rest(Target::Plain(at.to_owned()));
    let (lease, path, ttl_ms) = ("e0/rt".into(), vec!["wan:rt".into()], TTL.as_millis() as u32);
    let terms = Terms { lease, path, ttl_ms, epoch: 0, gap: 100_000_000, retry: 500_000_000 };
    let edge = Edge { broker, token: Some(token.to_owned()), leases: vec![terms], sessions: None, seed: 1 };
    let client = Client::start(edge, Aloud).unwrap();
    client.want("e0/rt", 300_000, 0);
    for line in std::io::stdin().lines() {
        line.unwrap();
        let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        println!("clock {}", wall.as_secs());
    }
}

/// The next line that an edge says about its lease or its clock, without the name in front.
fn said(lines: &mut impl Iterator<Item = std::io::Result<String>>, about: &str) -> String {
    loop {
        let line = lines.next().unwrap().unwrap();
        if let Some(rest) = line.strip_prefix(about) {
            return rest.trim().to_owned();
        }
    }
}

/// The environment of a process whose wall clock stands as far from the machine's as the file `clock` says. None, which is
/// said, where faketime is missing.
pub(crate) fn stepped(clock: String) -> Option<[(&'static str, String); 5]> {
    let libraries = std::fs::read_dir("/usr/lib").unwrap().flatten();
    let mut libraries = libraries.map(|folder| folder.path().join("faketime/libfaketimeMT.so.1"));
    let Some(library) = libraries.find(|library| library.exists()) else {
        println!(
            "SKIPPED: there is no faketime, which steps the clock of a process: write: apt-get install faketime"
        );
        return None;
    };
    Some([
        ("LD_PRELOAD", library.display().to_string()),
        ("FAKETIME_TIMESTAMP_FILE", clock),
        ("FAKETIME_NO_CACHE", "1".to_owned()),
        // Nobody sets the other clocks.
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
        ("DONT_FAKE_MONOTONIC", "1".to_owned()),
    ])
}

/// The wall clocks of a broker and of an edge, both processes of their own, go on by an hour and back by two. Their leases
/// do not notice, and end when they should.
#[test]
fn leases_survive_a_step_of_the_wall_clock() {
    if let Ok(at) = std::env::var(EDGE) {
        return edge(&at);
    }
    let folder = Folder::new();
    let clock = folder.write("clock", "+0s\n");
    let Some(stepped) = stepped(clock) else { return };
    let (tokens, at) = file(&folder, "http");
    let broker = Process::start_with(&folder, &stepped);
    let mut edge = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "broker::leases_survive_a_step_of_the_wall_clock", "--nocapture"])
        .envs(stepped.iter().map(|(name, value)| (name, value)))
        .env(EDGE, format!("{at} {}", tokens[0]))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(edge.stdout.take().unwrap()));
    let mut orders = edge.stdin.take().unwrap();
    let mut edge = Process(edge);
    let mut wall = |lines: &mut _| {
        orders.write_all(b"\n").unwrap();
        said(lines, "clock ").parse::<i64>().unwrap()
    };
    // Before the first answer it may say that it has nothing.
    while said(&mut lines, "e0/rt ") != "300000 LEASED" {}
    let socket = folder.path("broker.sock");
    let held = || {
        let leases = weir(&["broker", "leases", "-j", "--socket", &socket]).ok().json();
        leases["leases"].as_array().unwrap().iter().map(|l| l["granted_bps"].as_u64().unwrap()).sum::<u64>()
    };
    for step in [3_600, -3_600] {
        let (before, start) = (wall(&mut lines), Instant::now());
        folder.write("clock", format!("{step:+}s\n"));
        std::thread::sleep(2 * TTL);
        let went = wall(&mut lines) - before - start.elapsed().as_secs() as i64;
        let expected = if step > 0 { step } else { 2 * step };
        assert!((went - expected).abs() <= 2, "the clock of the edge went {went} s");
        assert_eq!(held(), 300_000);
    }
    let lines_of_audit = weir(&["broker", "audit", "--socket", &socket]).ok().out;
    let times = lines_of_audit
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["time_ms"].as_i64().unwrap());
    let times: Vec<i64> = times.collect();
    assert!(times.windows(2).any(|t| t[1] - t[0] > 3_000_000), "the broker's clock went on");
    assert!(times.windows(2).any(|t| t[0] - t[1] > 6_000_000), "the broker's clock went back");
    // Its time is the same as ever when its edge goes, and an edge's when its broker goes.
    broker.kill();
    assert_eq!(said(&mut lines, "e0/rt "), "0 ORPHANED", "in all this nothing else has changed");
    let broker = Process::start_with(&folder, &stepped);
    while said(&mut lines, "e0/rt ") != "300000 LEASED" {}
    edge.0.kill().unwrap();
    let start = Instant::now();
    while held() > 0 {
        assert!(start.elapsed() < Duration::from_secs(30), "the lease does not end");
        std::thread::sleep(Duration::from_millis(50));
    }
    broker.kill();
}

#[test]
fn a_brokers_file_is_judged() {
    let folder = Folder::new();
    let good = folder.write("good.toml", "domain = \"core\"\nstore = \"core.redb\"\n");
    let said = weir(&["broker", "check", &good]).ok().out;
    assert!(said.contains("domain core, 0 resources, 0 tokens: usable"), "{said}");
    let tls = "[tls]\nlisten = \"127.0.0.1:0\"\ncert = \"a.pem\"\nkey = \"a.key\"\nca = \"ca.pem\"\n";
    let none = folder.write("none.toml", format!("domain = \"core\"\nstore = \"core.redb\"\n{tls}"));
    weir(&["broker", "check", &none]).fails(2, &["none.toml", "ca.pem", "expected certificates in PEM"]);
    let bad = folder.write("bad.toml", "domain = \"core\"\nstroe = \"core.redb\"\n");
    weir(&["broker", "check", &bad]).fails(2, &["bad.toml", "line 2", "unknown field `stroe`"]);
    weir(&["broker", "token", "a b", "--role", "read"]).fails(2, &["a b", "without / or blanks"]);
}

#[test]
fn the_bench_of_the_broker_is_documented() {
    let folder = Folder::new();
    let run = weir(&["broker", "bench", "-j", "--seconds", "1", "--dir", &folder.path("")]);
    // A debug build on a busy machine need not keep the promises.
    assert!(matches!(run.code, 0 | 1), "{}", run.err);
    crate::json::fits_the_page("weir broker bench -j", &run.json());
}
