//! Edges, brokers and a bad network in virtual time.
//!
//! A *history* is drawn from a seed: two domains, the first of which leases capacity from the second; edges
//! whose wishes change; messages that are lost, doubled and overtaken; links cut; brokers that stop before or
//! after they write; a second broker that takes over while the first still believes that it serves; an
//! operator who takes capacity away; clocks that drift. The [book](crate::book) and the
//! [holder](crate::holder) in it are those that ship. After each step the invariants are looked at from
//! outside: what edges use is added up and held against what the log says.

use crate::book::{Book, Command, Name, Request, Verdict};
use crate::holder::{GAP, Holder, RETRY, Terms};
use crate::{MILLISECOND, Nanos, Rate, SECOND};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use weir_core::Random;

mod brokers;
#[cfg(test)]
mod tests;

/// What to leave out, so that an invariant must break.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Without {
    /// The store writes for whoever asks, not only for the broker that serves.
    pub fencing: bool,
    /// Edges shape down when the answer comes, not before they ask for less.
    pub shaping_down_first: bool,
    /// Brokers answer before they write.
    pub commit_before_answer: bool,
}

/// What happened in a history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
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
/// How long edges want things; then all is mended, and later everybody stops.
const BUSY: Nanos = 40 * SECOND;
const CALM: Nanos = 60 * SECOND;
/// The longest way of a message.
const SLOW: Nanos = 2 * SECOND;
const TTLS_MS: [u32; 3] = [3_000, 6_000, 12_000];
/// A group of requests is written at most so long after its first.
const GROUP: Nanos = 5 * MILLISECOND;
/// How long after the edges have gone everything must be free.
const GONE: Nanos = 40 * SECOND;
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
    Capacity(usize),
    Calm,
    Serve,
    Stop,
    End,
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
    /// In the first domain, its lease of the second.
    agreement: Option<User>,
    /// The newest want that the agreement was told.
    wanted: u64,
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
    order: BinaryHeap<Reverse<(Nanos, u64)>>,
    steps: HashMap<u64, Step>,
    serial: u64,
    edges: Vec<Edge>,
    domains: [Domain; 2],
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
    let mut world = World::new(seed, without);
    while let Some(Reverse((at, serial))) = world.order.pop() {
        let step = world.steps.remove(&serial).expect("each step is planned once");
        world.now = at;
        let end = matches!(step, Step::End);
        world.step(step).map_err(|what| format!("seed {seed}, {} ms: {what}", at / MILLISECOND))?;
        if end {
            break;
        }
    }
    Ok(world.counts)
}

impl World {
    fn new(seed: u64, without: Without) -> World {
        let mut random = Random::new(seed);
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
                let ttl_ms = TTLS_MS[random.below(3) as usize];
                let terms = Terms { lease: lease.clone(), path, ttl_ms, epoch: 0, gap: GAP, retry: RETRY };
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
            order: BinaryHeap::new(),
            steps: HashMap::new(),
            serial: 0,
            edges,
            domains: [domain("a"), domain("b")],
            bulk,
            calm: false,
            stopped: false,
            granted: HashMap::new(),
            counts: Counts::default(),
        };
        for d in 0..2 {
            world.plan(0, Step::Start(d));
        }
        for edge in 0..EDGES {
            let at = world.random.below(2 * SECOND);
            world.plan(at, Step::Wish(edge));
        }
        world.trouble();
        world.plan(BUSY, Step::Calm);
        world.plan(BUSY + CALM, Step::Serve);
        world.plan(BUSY + CALM, Step::Stop);
        world.plan(BUSY + CALM + GONE, Step::End);
        world
    }

    /// What goes wrong, and when.
    fn trouble(&mut self) {
        for _ in 0..self.random.below(4) {
            let (at, domain) = (self.random.below(BUSY), self.random.below(2) as usize);
            self.plan(at, Step::TakeOver(domain));
        }
        for _ in 0..self.random.below(4) {
            let (at, edge) = (self.random.below(BUSY), self.random.below(EDGES as u64) as usize);
            self.plan(at, Step::Cut(edge));
        }
        for _ in 0..self.random.below(3) {
            let (at, domain) = (self.random.below(BUSY), self.random.below(2) as usize);
            self.plan(at, Step::Capacity(domain));
        }
    }

    fn plan(&mut self, at: Nanos, step: Step) {
        self.serial += 1;
        self.order.push(Reverse((at.max(self.now), self.serial)));
        self.steps.insert(self.serial, step);
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
                let again = self.now + self.random.below(5 * SECOND);
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
            Step::Cut(edge) => self.edges[edge].cut_until = self.now + self.random.below(8 * SECOND),
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

    // Users.

    fn user(&mut self, party: Party) -> Option<&mut User> {
        match party {
            Party::Edge(edge) => Some(&mut self.edges[edge].user),
            Party::Broker(number) => {
                let broker = self.domains[0].brokers.iter_mut().find(|b| b.number == number)?;
                broker.agreement.as_mut()
            }
        }
    }

    fn poll(&mut self, party: Party, polls: u64) -> Result<(), String> {
        if self.stopped && matches!(party, Party::Edge(_)) {
            return Ok(());
        }
        let (now, mut random) = (self.now, self.random.clone());
        let Some(user) = self.user(party).filter(|u| u.polls == polls) else { return Ok(()) };
        let request = user.holder.poll(user.clock.read(now), &mut random);
        self.random = random;
        if let Some(request) = request {
            self.send(party, request);
        }
        self.look_again(party);
        self.usage(party)
    }

    fn look_again(&mut self, party: Party) {
        let now = self.now;
        let Some(user) = self.user(party) else { return };
        user.polls += 1;
        let (polls, clock) = (user.polls, user.clock);
        let Some(at) = user.holder.poll_at() else { return };
        // A poll that finds nothing to do must not find it again at the same instant.
        let at = clock.when(at).max(now + MILLISECOND);
        self.plan(at, Step::Poll(party, polls));
    }

    fn wish(&mut self, edge: usize, wish: Rate, min: Rate) -> Result<(), String> {
        let now = self.now;
        let it = &mut self.edges[edge];
        let before = it.user.holder.rate(it.user.clock.read(now));
        it.user.holder.want(wish, min, &[]);
        if self.without.shaping_down_first {
            it.late = it.late.max(before);
        }
        self.look_again(Party::Edge(edge));
        self.usage(Party::Edge(edge))
    }

    fn answer(&mut self, party: Party, version: u64, verdict: &Verdict) -> Result<(), String> {
        let (now, mut random) = (self.now, self.random.clone());
        let Some(user) = self.user(party) else { return Ok(()) };
        let at = user.clock.read(now);
        let heeded = user.holder.answer(at, version, verdict, &mut random);
        let (held, until) = (user.holder.rate(at), user.holder.until());
        self.random = random;
        if heeded {
            match verdict {
                Verdict::Granted { .. } => self.counts.grants += 1,
                Verdict::Refused(_) => self.counts.refusals += 1,
            }
            match party {
                Party::Edge(edge) => self.edges[edge].late = 0,
                // What the neighbour granted becomes part of the book.
                Party::Broker(number) => self.leased(number, held, until),
            }
        }
        if let (Party::Edge(edge), Verdict::Granted { rate, .. }) = (party, verdict) {
            let lease = self.edges[edge].lease.clone();
            let first = *self.granted.entry((lease, version)).or_insert(*rate);
            if first != *rate {
                return Err(format!("edge {edge}: version {version} was granted {first} and {rate}"));
            }
        }
        self.look_again(party);
        self.usage(party)
    }

    fn leased(&mut self, number: u64, rate: Rate, until: Nanos) {
        let broker = self.domains[0].brokers.iter_mut().find(|b| b.number == number);
        let broker = broker.expect("its agreement was just answered");
        let serial = broker.wanted;
        broker.gathered.push(Command::Leased { resource: ABROAD.into(), serial, rate, until });
        self.gather(0, number);
    }

    fn called_back(&mut self, party: Party, version: u64, rate: Rate) {
        let now = self.now;
        let Some(user) = self.user(party) else { return };
        let at = user.clock.read(now);
        user.holder.called_back(at, version, rate);
        let (held, until) = (user.holder.rate(at), user.holder.until());
        if let Party::Broker(number) = party {
            self.leased(number, held, until);
        }
        self.look_again(party);
    }

    /// What an edge really sends.
    fn used(&self, edge: usize) -> Rate {
        let it = &self.edges[edge];
        it.user.holder.rate(it.user.clock.read(self.now)).max(it.late)
    }

    /// Invariants 2 and 3: nobody uses more than what was written for it.
    fn usage(&self, party: Party) -> Result<(), String> {
        if let Party::Edge(edge) = party {
            let it = &self.edges[edge];
            let used = self.used(edge);
            let granted = self.domains[it.domain].truth.lease(&it.lease).map_or(0, |l| l.granted);
            if used > granted {
                return Err(format!("edge {edge} uses {used} bit/s of {granted}"));
            }
            if it.abroad {
                return self.usage_abroad();
            }
        }
        Ok(())
    }

    fn usage_abroad(&self) -> Result<(), String> {
        let used: Rate = (0..EDGES).filter(|&e| self.edges[e].abroad).map(|e| self.used(e)).sum();
        let granted = self.domains[1].truth.lease(AGREEMENT).map_or(0, |l| l.granted);
        if used > granted {
            return Err(format!("the first domain uses {used} bit/s of the {granted} of the second"));
        }
        Ok(())
    }

    // The network.

    fn send(&mut self, party: Party, request: Request) {
        let domain = match party {
            Party::Edge(edge) => self.edges[edge].domain,
            Party::Broker(_) => 1,
        };
        let brokers = self.domains[domain].brokers.len() as u64;
        if brokers == 0 {
            return;
        }
        // Mostly to who serves, at times to one who no longer does.
        let at = if self.random.below(4) == 0 { self.random.below(brokers) } else { brokers - 1 };
        let number = self.domains[domain].brokers[at as usize].number;
        for arrives in self.ways(party) {
            self.plan(arrives, Step::Request(domain, number, Box::new(request.clone())));
        }
    }

    /// When the copies of a message arrive.
    fn ways(&mut self, party: Party) -> Vec<Nanos> {
        let cut = matches!(party, Party::Edge(edge) if self.edges[edge].cut_until > self.now);
        if !self.calm && (cut || self.random.below(10) == 0) {
            self.counts.lost += 1;
            return Vec::new();
        }
        let copies = if self.chance(10) { 2 } else { 1 };
        (0..copies)
            .map(|_| {
                let slow = if self.chance(20) { SLOW } else { 20 * MILLISECOND };
                self.now + self.random.below(slow)
            })
            .collect()
    }

    // The end.

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
