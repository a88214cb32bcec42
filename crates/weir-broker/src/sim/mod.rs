//! Edges, brokers and a bad network in virtual time.
//!
//! A *history* is drawn from a seed: two domains, the first of which leases capacity from the second; edges
//! whose wishes change; messages that are lost, doubled and overtaken; links cut, that between the domains too; brokers
//! that stop before or after they write; a second broker that takes over while the first still believes that it serves;
//! an operator who takes capacity away; clocks that drift. Most are short, some last as long as leases in service. The
//! [book](crate::book) and the [holder](crate::holder) in it are those that ship. After each step the invariants are
//! looked at from outside: what edges use is added up and held against what the log says.
//!
//! [`crashes`] runs a history again for each of its writes, with a broker that stops just there.

use crate::agreement::Rules;
use crate::book::{Book, Command, Name, Request, Verdict};
use crate::holder::{GAP, Holder, RETRY, Terms};
use crate::{MILLISECOND, Nanos, Rate, SECOND};
use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};
use weir_core::Random;

mod brokers;
#[cfg(test)]
mod tests;
mod users;

/// What to leave out, so that an invariant must break.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Without {
    /// The store writes for whoever asks, not only for the broker that serves.
    pub fencing: bool,
    /// Edges shape down when the answer comes, not before they ask for less.
    pub shaping_down_first: bool,
    /// Brokers answer before they write.
    pub commit_before_answer: bool,
    /// A broker asks its neighbour for less before its own book has heard of that.
    pub fall_heard_first: bool,
}

/// What happened in a history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Histories.
    pub histories: u64,
    /// Groups that were written while things go wrong.
    pub writes: u64,
    /// Requests that reached a broker.
    pub requests: u64,
    /// Grants that an edge or a broker heeded.
    pub grants: u64,
    /// Refusals that were heeded.
    pub refusals: u64,
    /// Brokers that stopped.
    pub crashes: u64,
    /// Brokers that took over from one that was still there.
    pub takeovers: u64,
    /// Messages that were lost.
    pub lost: u64,
}

impl Counts {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Counts) -> Counts {
        Counts {
            histories: self.histories + other.histories,
            writes: self.writes + other.writes,
            requests: self.requests + other.requests,
            grants: self.grants + other.grants,
            refusals: self.refusals + other.refusals,
            crashes: self.crashes + other.crashes,
            takeovers: self.takeovers + other.takeovers,
            lost: self.lost + other.lost,
        }
    }
}

const EDGES: usize = 8;

/// How long things last in a history.
struct Pace {
    /// How long edges want things; then all is mended.
    busy: Nanos,
    /// After that everybody stops.
    calm: Nanos,
    /// How long after the edges have gone everything must be free.
    gone: Nanos,
    /// The longest way of a message.
    slow: Nanos,
    ttls_ms: [u32; 3],
    /// The time of the lease between the domains.
    agreed_ms: u32,
    /// How long an edge that was refused asks for nothing more.
    retry: Nanos,
}

const LONG: Pace = Pace {
    busy: 40 * SECOND,
    calm: 60 * SECOND,
    gone: 40 * SECOND,
    slow: 2 * SECOND,
    ttls_ms: [3_000, 6_000, 12_000],
    agreed_ms: 10_000,
    retry: RETRY,
};
const SHORT: Pace = Pace {
    busy: 5 * SECOND,
    calm: 10 * SECOND,
    gone: 6 * SECOND,
    slow: SECOND,
    ttls_ms: [1_000, 1_500, 2_500],
    agreed_ms: 2_000,
    retry: 2 * SECOND,
};
/// One history of so many is long.
const LONG_ONE_IN: u64 = 20;
/// A group of requests is written at most so long after its first.
const GROUP: Nanos = 5 * MILLISECOND;
/// What each domain has.
const FULL: Rate = 1_000_000;
/// The resource of the first domain.
const HOME: &str = "wan:rt";
/// The resource of the second domain.
const CORE: &str = "core:rt";
/// What the first domain has of the second.
const ABROAD: &str = "peer:rt";
/// The lease of the first domain at the second.
const AGREEMENT: &str = "a/peer";

/// A clock that runs by its own speed from its own zero.
#[derive(Clone, Copy)]
struct Clock {
    zero: Nanos,
    ppm: i64,
}

impl Clock {
    fn draw(random: &mut Random) -> Clock {
        Clock { zero: random.below(1_000) * SECOND, ppm: random.below(1_001) as i64 - 500 }
    }

    fn read(self, at: Nanos) -> Nanos {
        let drift = at as i64 / 1_000_000 * self.ppm;
        self.zero + at.saturating_add_signed(drift)
    }

    /// The first instant at which it reads at least `time`.
    fn when(self, time: Nanos) -> Nanos {
        let span = time.saturating_sub(self.zero) as i64;
        (span - span / 1_000_000 * self.ppm + 2_000_000) as Nanos
    }
}

/// Who asks: an edge, or a broker of the first domain for its agreement with the second.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Party {
    Edge(usize),
    Broker(u64),
}

enum Step {
    /// A party looks whether it has something to say, unless it was told to look at another time since.
    Poll(Party, u64),
    Wish(usize),
    Request(usize, u64, Box<Request>),
    Answer(Party, u64, Verdict),
    CallBack(Party, u64, Rate),
    /// A broker writes what it has gathered.
    Commit(usize, u64),
    /// A broker's book has something to do.
    Due(usize, u64),
    Start(usize),
    TakeOver(usize),
    Cut(usize),
    /// The link between the domains is cut.
    Sever,
    Capacity(usize),
    Calm,
    Serve,
    Stop,
    End,
}

/// A step and its time. The first one is the greatest.
struct Planned {
    at: Nanos,
    serial: u64,
    step: Step,
}

impl Ord for Planned {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.serial).cmp(&(self.at, self.serial))
    }
}

impl PartialOrd for Planned {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Planned {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Planned {}

/// Where in a write a broker stops.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stop {
    /// Nothing is written.
    Before,
    /// It is written, and nobody hears of it.
    After,
}

/// What an edge or a broker holds, by its own clock.
struct User {
    holder: Holder,
    clock: Clock,
    polls: u64,
}

struct Edge {
    user: User,
    domain: usize,
    lease: Name,
    abroad: bool,
    cut_until: Nanos,
    /// What it goes on using until the answer comes, where it does not shape down first.
    late: Rate,
}

/// One process.
struct Broker {
    number: u64,
    term: u64,
    clock: Clock,
    book: Book,
    gathered: Vec<Command>,
    /// In the first domain, its lease of the second, and by which rules the book hears of it.
    agreement: Option<User>,
    rules: Rules,
    /// The newest want that the neighbour is asked for, and how much that is.
    wanted: (u64, Rate),
}

impl Broker {
    /// Whether its book is about to hear what the neighbour gave.
    fn hears(&self) -> bool {
        self.gathered.iter().any(|command| matches!(command, Command::Leased { .. }))
    }
}

struct Domain {
    /// Everything that was written, applied.
    truth: Book,
    term: u64,
    brokers: Vec<Broker>,
}

/// One history.
struct World {
    now: Nanos,
    random: Random,
    without: Without,
    pace: &'static Pace,
    /// The write at which a broker stops, besides those that are drawn.
    stop: Option<(u64, Stop)>,
    steps: BinaryHeap<Planned>,
    serial: u64,
    edges: Vec<Edge>,
    domains: [Domain; 2],
    severed_until: Nanos,
    bulk: Rate,
    calm: bool,
    stopped: bool,
    granted: HashMap<(Name, u64), Rate>,
    counts: Counts,
}

/// Runs the history of `seed`.
///
/// # Errors
/// The first invariant that broke, and when.
pub fn history(seed: u64, without: Without) -> Result<Counts, String> {
    run(seed, without, None)
}

/// Runs the history of `seed`, and again for each of its writes with a broker that stops there: once before it, once
/// after it.
///
/// # Errors
/// The first invariant that broke, and when.
pub fn crashes(seed: u64) -> Result<Counts, String> {
    let mut counts = history(seed, Without::default())?;
    for write in 1..=counts.writes {
        for stop in [Stop::Before, Stop::After] {
            counts = counts.plus(run(seed, Without::default(), Some((write, stop)))?);
        }
    }
    Ok(counts)
}

fn run(seed: u64, without: Without, stop: Option<(u64, Stop)>) -> Result<Counts, String> {
    let mut world = World::new(seed, without, stop);
    while let Some(Planned { at, step, .. }) = world.steps.pop() {
        world.now = at;
        let end = matches!(step, Step::End);
        world.step(step).map_err(|what| {
            let crash = stop.map_or(String::new(), |(write, _)| format!(", a crash at write {write}"));
            format!("seed {seed}{crash}, {} ms: {what}", at / MILLISECOND)
        })?;
        if end {
            break;
        }
    }
    Ok(world.counts)
}

impl World {
    fn new(seed: u64, without: Without, stop: Option<(u64, Stop)>) -> World {
        let mut random = Random::new(seed);
        let pace = if random.below(LONG_ONE_IN) == 0 { &LONG } else { &SHORT };
        let edges = (0..EDGES)
            .map(|n| {
                let domain = usize::from(n >= 5);
                let abroad = (2..5).contains(&n);
                let path: Vec<Name> = match (domain, abroad) {
                    (0, true) => vec![HOME.into(), ABROAD.into()],
                    (0, false) => vec![HOME.into()],
                    _ => vec![CORE.into()],
                };
                let lease: Name = format!("e{n}/rt").into();
                let ttl_ms = pace.ttls_ms[random.below(3) as usize];
                let (gap, retry) = (GAP, pace.retry);
                let terms = Terms { lease: lease.clone(), path, ttl_ms, epoch: 0, gap, retry };
                let user = User { holder: Holder::new(terms), clock: Clock::draw(&mut random), polls: 0 };
                Edge { user, domain, lease, abroad, cut_until: 0, late: 0 }
            })
            .collect();
        let domain = |name| Domain { truth: Book::new(name), term: 0, brokers: Vec::new() };
        let bulk = if random.below(2) == 0 { 1 } else { FULL / 10 };
        let mut world = World {
            now: 0,
            random,
            without,
            pace,
            stop,
            steps: BinaryHeap::new(),
            serial: 0,
            edges,
            domains: [domain("a"), domain("b")],
            severed_until: 0,
            bulk,
            calm: false,
            stopped: false,
            granted: HashMap::new(),
            counts: Counts { histories: 1, ..Counts::default() },
        };
        for d in 0..2 {
            world.plan(0, Step::Start(d));
        }
        for edge in 0..EDGES {
            let at = world.random.below(pace.busy / 8);
            world.plan(at, Step::Wish(edge));
        }
        world.trouble();
        let stop = pace.busy + pace.calm;
        world.plan(pace.busy, Step::Calm);
        world.plan(stop, Step::Serve);
        world.plan(stop, Step::Stop);
        world.plan(stop + pace.gone, Step::End);
        world
    }

    /// What goes wrong, and when.
    fn trouble(&mut self) {
        for _ in 0..self.random.below(4) {
            let (at, domain) = (self.random.below(self.pace.busy), self.random.below(2) as usize);
            self.plan(at, Step::TakeOver(domain));
        }
        for _ in 0..self.random.below(4) {
            let (at, edge) = (self.random.below(self.pace.busy), self.random.below(EDGES as u64) as usize);
            self.plan(at, Step::Cut(edge));
        }
        for _ in 0..self.random.below(3) {
            let (at, domain) = (self.random.below(self.pace.busy), self.random.below(2) as usize);
            self.plan(at, Step::Capacity(domain));
        }
        for _ in 0..self.random.below(3) {
            let at = self.random.below(self.pace.busy);
            self.plan(at, Step::Sever);
        }
    }

    fn plan(&mut self, at: Nanos, step: Step) {
        self.serial += 1;
        self.steps.push(Planned { at: at.max(self.now), serial: self.serial, step });
    }

    fn chance(&mut self, one_in: u64) -> bool {
        !self.calm && self.random.below(one_in) == 0
    }

    fn step(&mut self, step: Step) -> Result<(), String> {
        match step {
            Step::Poll(party, polls) => return self.poll(party, polls),
            Step::Wish(edge) => {
                if self.calm {
                    return Ok(());
                }
                let wish = if self.random.below(5) == 0 { 0 } else { self.random.below(FULL / 2) };
                let min = if self.random.below(2) == 0 { 0 } else { self.random.below(wish + 1) };
                let again = self.now + self.random.below(self.pace.busy / 8);
                self.plan(again, Step::Wish(edge));
                return self.wish(edge, wish, min);
            }
            Step::Request(domain, number, request) => {
                if let Some(broker) = self.domains[domain].brokers.iter_mut().find(|b| b.number == number) {
                    broker.gathered.push(Command::Ask(*request));
                    self.counts.requests += 1;
                    self.gather(domain, number);
                }
            }
            Step::Answer(party, version, verdict) => return self.answer(party, version, &verdict),
            Step::CallBack(party, version, rate) => self.called_back(party, version, rate),
            Step::Commit(domain, number) => return self.commit(domain, number),
            Step::Due(domain, number) => {
                let now = self.now;
                if let Some(broker) = self.domains[domain].brokers.iter_mut().find(|b| b.number == number)
                    && broker.book.due().is_some_and(|due| due <= broker.clock.read(now))
                {
                    broker.gathered.push(Command::Tick);
                    self.gather(domain, number);
                }
            }
            Step::Start(domain) => {
                if !self.served(domain) {
                    self.start(domain);
                }
            }
            Step::TakeOver(domain) => {
                self.counts.takeovers += 1;
                self.start(domain);
            }
            Step::Cut(edge) => {
                self.edges[edge].cut_until = self.now + self.random.below(self.pace.busy / 5);
            }
            Step::Sever => self.severed_until = self.now + self.random.below(self.pace.busy / 5),
            Step::Capacity(domain) => {
                let capacity = FULL / 2 + self.random.below(FULL / 2);
                self.provide(domain, capacity);
            }
            Step::Calm => return self.all_is_well(),
            Step::Serve => return self.everybody_has_what_he_wants(),
            Step::Stop => self.stopped = true,
            Step::End => return self.all_is_free(),
        }
        Ok(())
    }

    /// Nothing goes wrong any more, and there is enough for everybody.
    fn all_is_well(&mut self) -> Result<(), String> {
        self.calm = true;
        for domain in 0..2 {
            if !self.served(domain) {
                self.start(domain);
            }
            self.provide(domain, FULL);
        }
        for edge in 0..EDGES {
            self.wish(edge, FULL / 20, FULL / 20)?;
        }
        Ok(())
    }

    /// Liveness: all wishes fit, so all are granted.
    fn everybody_has_what_he_wants(&self) -> Result<(), String> {
        for edge in 0..EDGES {
            let used = self.used(edge);
            if used != FULL / 20 {
                let state = self.edges[edge].user.holder.state();
                return Err(format!(
                    "edge {edge} has {used} bit/s of the {} that are free: {state:?}",
                    FULL / 20
                ));
            }
        }
        Ok(())
    }

    /// Invariant 4: the edges have gone without a word, and all is free.
    fn all_is_free(&self) -> Result<(), String> {
        for domain in &self.domains {
            if let Some(held) = domain.truth.leases().next() {
                return Err(format!("{held:?} is held by nobody"));
            }
        }
        Ok(())
    }
}
