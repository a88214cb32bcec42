//! Brokers in other processes: each has a client, which keeps the leases of the classes that ask there.
//!
//! The lease of a class is `EDGE/INTERFACE/CLASS`, and is for the resource `INTERFACE:CLASS`. EDGE is the name that the
//! broker's line or the certificate gives this box. What a broker decides goes to the [`Desk`], and from there to the
//! worker.

use super::Failure;
use super::ports;
use super::sessions::booked;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use weir_broker::book::{Name, Refusal};
use weir_broker::client::{Broker, Client, Edge, Shaper};
use weir_broker::cops::pep;
use weir_broker::holder::{Carried, State, Terms};
use weir_broker::http::{HttpError, Target};
use weir_broker::wire::SessionNow;
use weir_broker::{Rate, tls};
use weir_conf::Plan;
use weir_conf::plan::{Door, Elsewhere};
use weir_engine::Desk;
use weir_engine::broker::{self, ComingDown, Kind, Standing, Who};
use weir_engine::state::Reached;

/// The shortest time between two requests for one lease: the allocator makes one a window, and more in congestion alone.
const GAP: Duration = Duration::from_millis(10);
/// After a refusal nothing is asked for so long. The allocator waits for its own `retry`, which is longer.
const RETRY: Duration = Duration::from_millis(500);
/// How long all brokers together may take to hear that their leases are given back.
const PARTING: Duration = Duration::from_secs(1);

/// A lease, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseState {
    /// The name of the broker.
    pub broker: String,
    /// `EDGE/INTERFACE/CLASS`.
    pub lease: String,
    /// `INTERFACE:CLASS`, as the broker knows it.
    pub path: Vec<String>,
    /// What is wanted, bit/s.
    pub wanted_bps: u64,
    /// What may be used, bit/s: the class has its `from` besides.
    pub held_bps: u64,
    /// How long that lasts if the broker says nothing more.
    pub left_ns: u64,
    /// `STATIC`, `LEASED`, `REFUSED`, `ORPHANED` or `REPLACED`.
    pub state: String,
    /// Why the last request was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// A broker elsewhere, and the leases that this box has there.
struct Remote {
    /// The name of this box.
    edge: String,
    ttl_ms: u32,
    leases: Mutex<Leases>,
    reached: Arc<Mutex<Reached>>,
}

/// What is kept there.
#[derive(Default)]
struct Leases {
    /// None: it is yet to begin, or has ended.
    client: Option<Arc<Client>>,
    /// Those that are to be kept.
    classes: Vec<Who>,
    /// What is wanted of each.
    wishes: BTreeMap<Who, Rate>,
    /// What another client held of those that are not kept yet.
    carried: Vec<Carried>,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Remote {
    fn name_of(&self, (interface, class): &Who) -> String {
        format!("{}/{interface}/{class}", self.edge)
    }

    /// Tells the client what is to be kept, and what is wanted of it.
    fn tell(&self, leases: &mut Leases) {
        let Leases { client: Some(client), classes, wishes, carried: all } = leases else { return };
        let mut of = |class: &Who| {
            let lease = self.name_of(class);
            // It is of no use later: what a class holds changes.
            let place = all.iter().position(|carried| carried.lease == lease);
            let carried = place.map(|place| all.swap_remove(place));
            let terms = Terms {
                lease: lease.into(),
                path: vec![format!("{}:{}", class.0, class.1).into()],
                ttl_ms: self.ttl_ms,
                epoch: 0,
                gap: GAP.as_nanos() as u64,
                retry: RETRY.as_nanos() as u64,
            };
            (terms, carried)
        };
        client.keep(classes.iter().map(&mut of).collect());
        wishes.retain(|class, _| classes.contains(class));
        wishes.iter().for_each(|(class, rate)| client.want(&self.name_of(class), *rate, 0));
    }

    /// From now on `client` keeps the leases, and goes on with what was `carried` from another one.
    fn begin(&self, client: Client, carried: Vec<Carried>) {
        let mut leases = lock(&self.leases);
        (leases.client, leases.carried) = (Some(Arc::new(client)), carried);
        self.tell(&mut leases);
    }

    /// Ends the client: what it holds.
    fn end(&self) -> Vec<Carried> {
        let client = lock(&self.leases).client.take();
        // Nobody else has it: the thread that asks how it stands is this one.
        client.and_then(Arc::into_inner).map(Client::stop).unwrap_or_default()
    }
}

impl broker::Elsewhere for Remote {
    fn keep(&self, classes: &[Who]) {
        let mut leases = lock(&self.leases);
        leases.classes = classes.to_vec();
        self.tell(&mut leases);
    }

    fn want(&self, class: &Who, rate_bps: u64) {
        let mut leases = lock(&self.leases);
        leases.wishes.insert(class.clone(), rate_bps);
        if let Some(client) = &leases.client {
            client.want(&self.name_of(class), rate_bps, 0);
        }
    }
}

/// Tells the desk what a broker decides.
struct Teller {
    desk: Desk,
    name: Arc<str>,
    reached: Arc<Mutex<Reached>>,
    /// What is said of it was said.
    said: Option<bool>,
    /// Leases that another box speaks for: it was said.
    replaced: BTreeSet<String>,
    /// Sessions that are not in effect: it was said why.
    left_out: BTreeSet<Name>,
    /// Classes that may have to come down.
    falling: Vec<ComingDown>,
}

impl Shaper for Teller {
    fn shape(&mut self, lease: &str, rate: Rate, state: State, _: Option<&Refusal>) {
        let parts = lease.split_once('/').and_then(|(_, rest)| rest.split_once('/'));
        let Some((interface, class)) = parts else { return };
        let name = &self.name;
        match state {
            State::Orphaned => {
                weir_sys::say(&format!(
                    "broker {name}: the lease of {interface} {class} has ended: the class has its `from`"
                ));
            }
            State::Replaced if self.replaced.insert(lease.to_owned()) => {
                weir_sys::say(&format!(
                    "broker {name}: another box speaks for {lease}, and this one asks no more: give each its own name, by `edge NAME` or its certificate"
                ));
            }
            State::Idle | State::Leased | State::Refused | State::Replaced => {}
        }
        let standing = match state {
            State::Refused | State::Replaced => Standing::Decided,
            State::Idle | State::Leased | State::Orphaned => Standing::Open,
        };
        let coming = self.desk.usable((interface.into(), class.into()), name.clone(), rate, standing);
        self.falling.push(coming);
    }

    fn settle(&mut self) {
        ComingDown::settle(self.falling.drain(..));
    }

    fn sessions(&mut self, all: &[SessionNow]) -> Vec<Name> {
        let booked: Vec<_> = all.iter().filter_map(|session| Some((session, booked(session)?))).collect();
        let wanted = booked.iter().map(|(_, booked)| booked.clone()).collect();
        let (in_effect, not_taken) = self.desk.sessions(self.name.clone(), wanted).settle();
        let is_in = |booked: &broker::Booked| in_effect.contains(&booked.session.id);
        self.left_out.retain(|id| booked.iter().any(|(session, one)| session.session == *id && !is_in(one)));
        for (session, one) in booked.iter().filter(|(_, one)| !is_in(one)) {
            if self.left_out.insert(session.session.clone()) {
                let (name, id) = (&self.name, weir_text::visible(&session.session));
                let why = not_taken.iter().find(|(id, _)| *id == one.session.id).map(|(_, why)| why.clone());
                let why = why.map(|why| format!("is not in effect: {why}; it is tried again each second"));
                let why = why.unwrap_or_else(|| {
                    let path = session.path.join(", ");
                    let path = weir_text::visible(&path);
                    format!("is for {path}, and no class here asks {name} for that: write `allocate INTERFACE CLASS broker {name}`, or mend `path` of the profile")
                });
                weir_sys::say(&format!("broker {name}: session {id} {why}"));
            }
        }
        let here = booked.into_iter().filter(|(_, booked)| in_effect.contains(&booked.session.id));
        here.map(|(session, _)| session.session.clone()).collect()
    }

    fn no_sessions(&mut self, why: &HttpError) {
        let (name, why) = (&self.name, why.to_string());
        weir_sys::say(&format!(
            "broker {name} does not say which sessions there are: {}; it is asked again each second, and those that are there go on to their ends",
            weir_text::visible(&why)
        ));
    }

    fn broker(&mut self, reached: Result<(), &HttpError>) {
        let (now, why) = (reached.is_ok(), reached.err().map(ToString::to_string));
        if self.said.replace(now) != Some(now) {
            let name = &self.name;
            match &why {
                None => weir_sys::say(&format!("broker {name} answers")),
                Some(why) => weir_sys::say(&format!(
                    "broker {name} does not answer: {}; leases go on to their ends",
                    weir_text::visible(why)
                )),
            }
        }
        let mut known = lock(&self.reached);
        (known.now, known.why) = (now, why);
    }
}

/// A line of a broker with what stands in the files that it names.
#[derive(PartialEq)]
struct Said(Elsewhere, Vec<Option<Vec<u8>>>);

impl Said {
    fn of(line: &Elsewhere) -> Said {
        Said(line.clone(), files(line).map(|file| fs::read(file).ok()).collect())
    }
}

/// The files that the line of a broker names.
fn files(line: &Elsewhere) -> impl Iterator<Item = &Path> {
    let own = line.own.iter().flatten();
    line.ca.iter().chain(own).chain(&line.token).map(|file| Path::new(file.as_str()))
}

/// The port that a broker listens at, if it is by TCP.
fn port(line: &Elsewhere) -> Option<u16> {
    match &line.door {
        Door::Unix(_) => None,
        Door::Https(at) | Door::Cops(at) => at.rsplit_once(':')?.1.parse().ok(),
    }
}

/// The files that the brokers of a plan need, and the ports that they listen at: what a confined process is to keep.
pub fn needs(plan: &Plan) -> (Vec<PathBuf>, Vec<u16>) {
    let elsewhere = || plan.brokers.iter().filter_map(|broker| broker.elsewhere.as_ref());
    (elsewhere().flat_map(files).map(Path::to_path_buf).collect(), elsewhere().filter_map(port).collect())
}

/// A broker that could be spoken to: all its files were read.
struct Ready {
    said: Said,
    broker: Broker,
    edge: String,
    token: Option<String>,
    seed: u64,
}

impl Ready {
    fn read(name: &str, line: &Elsewhere) -> Result<Ready, Failure> {
        let wrong = |why: String| {
            Failure::usage(format!(
                "broker {name}: {why}; a running weir reads the folders of the files that it was started with: `weir up --takeover` starts one that reads these"
            ))
        };
        let said = Said::of(line);
        let own = line.own.as_ref().map(|[cert, key]| (Path::new(cert.as_str()), Path::new(key.as_str())));
        let config = line.ca.as_ref().map(|ca| tls::client(Path::new(ca.as_str()), own)).transpose();
        let config = config.map_err(wrong)?;
        let token = line.token.as_ref().map(|file| {
            fs::read_to_string(file)
                .map(|token| token.trim().to_owned())
                .map_err(|e| wrong(format!("{file}: {e}")))
        });
        let edge = match (&line.edge, own) {
            (Some(edge), _) => edge.clone(),
            (None, Some((cert, _))) => tls::edge_of(cert).map_err(wrong)?.to_string(),
            // `weir check` says so first.
            (None, None) => return Err(wrong("nobody says who this edge is: add `edge NAME`".into())),
        };
        let broker = match (&line.door, config) {
            (Door::Unix(path), _) => Broker::Rest(Target::Unix(path.into())),
            (Door::Https(at), Some(config)) => Broker::Rest(Target::Tls(at.clone(), config)),
            (Door::Https(_), None) => return Err(wrong("https needs `ca FILE`".into())),
            (Door::Cops(at), tls) => {
                Broker::Cops(pep::Target { at: at.clone(), edge: edge.as_str().into(), tls })
            }
        };
        Ok(Ready { said, broker, edge, token: token.transpose()?, seed: ports::seed()? })
    }

    /// A client of it.
    fn client(&self, name: &str, reached: &Arc<Mutex<Reached>>, desk: &Desk) -> Result<Client, Failure> {
        let Ready { broker, token, seed, .. } = self;
        let (name, desk, reached) = (Arc::from(name), desk.clone(), reached.clone());
        let edge = Edge {
            broker: broker.clone(),
            token: token.clone(),
            leases: Vec::new(),
            sessions: Some(self.edge.as_str().into()),
            seed: *seed,
        };
        Client::start(
            edge,
            Teller {
                desk,
                name,
                reached,
                said: None,
                replaced: BTreeSet::new(),
                left_out: BTreeSet::new(),
                falling: Vec::new(),
            },
        )
        .map_err(Failure::failed)
    }

    fn remote(&self) -> Arc<Remote> {
        let at = match &self.broker {
            Broker::Rest(target) => target.to_string(),
            Broker::Cops(target) => target.to_string(),
        };
        let why = Some("it was not reached yet".to_owned());
        Arc::new(Remote {
            edge: self.edge.clone(),
            ttl_ms: (self.said.0.ttl.as_nanos() / 1_000_000) as u32,
            leases: Mutex::new(Leases::default()),
            reached: Arc::new(Mutex::new(Reached { at, now: false, why })),
        })
    }
}

/// All brokers elsewhere that this box asks.
pub struct Remotes {
    desk: Desk,
    /// The ports that this process may connect to, if it is confined.
    ports: Option<Vec<u16>>,
    all: BTreeMap<String, (Ready, Arc<Remote>)>,
}

/// Brokers that are to be others than they are.
pub struct Others(BTreeMap<String, Ready>);

/// What is held at each broker, for a process that takes over.
pub type AllCarried = BTreeMap<String, Vec<Carried>>;

impl Remotes {
    /// None yet. What they decide goes to `desk`. A confined process connects to `ports` alone.
    pub fn of(desk: &Desk, ports: Option<Vec<u16>>) -> Remotes {
        Remotes { desk: desk.clone(), ports, all: BTreeMap::new() }
    }

    /// Reads what the brokers of a plan need that are not there as it says. Nothing changes yet.
    pub fn read(&self, plan: &Plan) -> Result<Others, Failure> {
        let elsewhere = plan.brokers.iter().filter_map(|broker| Some((broker, broker.elsewhere.as_ref()?)));
        let others = elsewhere.filter(|(broker, line)| {
            self.all.get(&broker.name).is_none_or(|(ready, _)| ready.said != Said::of(line))
        });
        let read = others.map(|(broker, line)| {
            let port = port(line);
            if let (Some(port), Some(ports)) = (port, &self.ports)
                && !ports.contains(&port)
            {
                return Err(Failure::usage(format!(
                    "broker {}: a running weir connects to the ports of the brokers that it was started with, and {port} is none of them: `weir up --takeover` starts one that does",
                    broker.name
                )));
            }
            Ok((broker.name.clone(), Ready::read(&broker.name, line)?))
        });
        Ok(Others(read.collect::<Result<_, Failure>>()?))
    }

    /// Takes in those whose names are new. They keep no lease before [`Remotes::begin`].
    pub fn add(&mut self, mut others: Others) -> Others {
        let new: Vec<String> =
            others.0.keys().filter(|name| !self.all.contains_key(*name)).cloned().collect();
        for name in new {
            if let Some(ready) = others.0.remove(&name) {
                let remote = ready.remote();
                self.all.insert(name, (ready, remote));
            }
        }
        others
    }

    /// All that do not keep their leases yet do so, with what was carried over from another process.
    pub fn begin(&mut self, mut carried: AllCarried) {
        for (name, (ready, remote)) in &self.all {
            if lock(&remote.leases).client.is_some() {
                continue;
            }
            match ready.client(name, &remote.reached, &self.desk) {
                Ok(client) => remote.begin(client, carried.remove(name).unwrap_or_default()),
                Err(why) => weir_sys::say(&format!("broker {name} is not asked: {}", why.message)),
            }
        }
    }

    /// Exchanges those that are to be others. Their leases go on.
    pub fn exchange(&mut self, others: Others) {
        let mut carried = AllCarried::new();
        for (name, ready) in others.0 {
            let remote = ready.remote();
            let (edge, door) = (ready.edge.clone(), ready.said.0.door.clone());
            if let Some((before, old)) = self.all.insert(name.clone(), (ready, remote.clone())) {
                let (classes, wishes) = {
                    let before = lock(&old.leases);
                    (before.classes.clone(), before.wishes.clone())
                };
                let mut leases = lock(&remote.leases);
                (leases.classes, leases.wishes) = (classes, wishes);
                drop(leases);
                if (&before.edge, &before.said.0.door) == (&edge, &door) {
                    carried.insert(name, old.end());
                } else {
                    // Another broker has granted nothing yet, and to another name neither.
                    give_back(std::iter::once(&*old));
                }
            }
        }
        self.begin(carried);
    }

    /// Only the brokers of this plan stay. What is held at the others is given back.
    pub fn retain(&mut self, plan: &Plan) {
        let stays = |name: &str| plan.brokers.iter().any(|b| b.name == name && b.elsewhere.is_some());
        let gone: Vec<String> = self.all.keys().filter(|name| !stays(name)).cloned().collect();
        let gone: Vec<_> = gone.iter().filter_map(|name| self.all.remove(name)).collect();
        give_back(gone.iter().map(|(_, remote)| &**remote));
    }

    /// Gives back all that is held, and ends.
    pub fn part(self) {
        give_back(self.all.values().map(|(_, remote)| &**remote));
    }

    /// Stops: what is held at each. [`Remotes::begin`] goes on.
    pub fn stop(&mut self) -> AllCarried {
        self.all.iter().map(|(name, (_, remote))| (name.clone(), remote.end())).collect()
    }

    /// As the desk is to know them.
    pub fn kind(&self, name: &str) -> Option<Kind> {
        Some(Kind::Elsewhere(self.all.get(name)?.1.clone()))
    }

    /// Whether the broker of that name can be reached; none if it is not elsewhere.
    pub fn reached(&self, name: &str) -> Option<Reached> {
        Some(lock(&self.all.get(name)?.1.reached).clone())
    }

    /// All leases.
    pub fn leases(&self) -> Vec<LeaseState> {
        let of = |(name, (_, remote)): (&String, &(Ready, Arc<Remote>))| {
            // It may wait for the desk, which may wait for the lock.
            let client = lock(&remote.leases).client.clone();
            let all = client.map(|client| client.leases()).unwrap_or_default();
            let state = |lease: weir_broker::holder::Standing| LeaseState {
                broker: name.clone(),
                lease: lease.lease.to_string(),
                path: lease.path.iter().map(ToString::to_string).collect(),
                wanted_bps: lease.wanted,
                held_bps: lease.held,
                left_ns: lease.left,
                state: lease.state.word().to_owned(),
                why: lease.refusal.map(|refusal| refusal.to_string()),
            };
            all.into_iter().map(state).collect::<Vec<_>>()
        };
        self.all.iter().flat_map(of).collect()
    }
}

/// Gives back what is held at these, and ends their clients.
fn give_back<'r>(remotes: impl Iterator<Item = &'r Remote>) {
    let by = Instant::now() + PARTING;
    let clients: Vec<Arc<Client>> = remotes.filter_map(|remote| lock(&remote.leases).client.take()).collect();
    std::thread::scope(|scope| {
        for client in &clients {
            scope.spawn(move || client.give_back(by.saturating_duration_since(Instant::now())));
        }
    });
}
