//! The book: who may use how much of each resource, until when. **Read this first.**
//!
//! It is a pure state machine. [`Book::apply`] takes a time and a [`Command`] and says in [`Event`]s what
//! the world must hear. It reads no clock and does no I/O. A broker writes each command down before it
//! tells anybody of its events; whoever applies the same commands at the same times has the same book.
//!
//! Six invariants hold ([`check`](Book::check), [`sim`](crate::sim)):
//! 1. for each resource and instant, what is granted and held is at most its capacity;
//! 2. an edge never shapes above what it holds;
//! 3. an answered grant survives a crash;
//! 4. after any failure all is free, or held by an edge that lives, within the time to live and the skew;
//! 5. one request has one effect, however often it arrives;
//! 6. two brokers never grant from the same capacity at once.
//!
//! What makes them hold:
//! - **An edge shapes down before it asks for less.** So a request for `rate` proves that the edge uses at
//!   most `rate`, and at most what it was granted before. The smaller of the two stays counted whatever is
//!   decided (`Lease::base`).
//! - **Versions.** A newer wish replaces the older one. The edge heeds the answer to its newest alone, so a
//!   grant that comes late is never used.
//! - **Two clocks that only need the same speed.** The edge counts a lease from when it *sent* its request,
//!   the book from when it was applied, and a thousandth and a second longer ([`freed_after`]).
//! - **What is called back is counted until the edge says that it came down**, or until its lease ends.

mod check;
mod decide;
mod request;
#[cfg(test)]
mod tests;

pub use request::{
    Command, Event, Fault, MAX_DOMAINS, MAX_NAME, MAX_PATH, MAX_TTL_MS, MAX_VERSION, MIN_TTL_MS, Name,
    Refusal, Request, Verdict, is_name,
};

use decide::Why;

use crate::{MAX_RATE, MILLISECOND, Nanos, Rate, SECOND};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::ops::Bound;

/// Leases that one owner may have, unless the broker sets another limit.
pub const LEASES_PER_OWNER: u32 = 1_000;
/// How long local capacity is held at most for a request that waits for a neighbour. A shorter lease waits a quarter of its
/// time: its edge takes a request for outdated after a third, and is to hear the answer before.
pub const HOLD: Nanos = 5 * SECOND;

/// When the book frees a lease of `ttl_ms`: a thousandth and a second after the edge has stopped using it.
/// The thousandth covers clocks that drift by 500 ppm each.
pub fn freed_after(ttl_ms: u32) -> Nanos {
    let ttl = u64::from(ttl_ms) * MILLISECOND;
    ttl + ttl / 1_000 + SECOND
}

/// Where a resource stands in [`Book::resources`].
type ResourceAt = u32;
/// Where a lease stands in [`Book::leases`].
type LeaseAt = u32;

/// A resource with what is counted on it.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Resource {
    name: Name,
    /// What this domain has now. What is counted may be above it after a call back.
    capacity: Rate,
    /// What the file of the broker said last.
    #[serde(default)]
    declared: Option<Rate>,
    /// The sum over all leases of what each has counted here.
    taken: Rate,
    /// Set if a neighbour leases it to this domain.
    agreement: Option<Agreement>,
}

/// A resource that a neighbour leases to this domain.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Agreement {
    ceiling: Rate,
    bulk: Rate,
    /// When what it granted ends, on this broker's clock.
    until: Nanos,
    /// What the neighbour was asked for last, in all.
    want: Rate,
    /// Counts the wants.
    serial: u64,
    /// What the requests that wait for the neighbour need beyond `taken`.
    asked: Rate,
}

/// A lease, or what must be remembered of one that has ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Lease {
    name: Name,
    path: Path,
    version: u64,
    rate: Rate,
    min: Rate,
    ttl_ms: u32,
    /// The answer to `version`. None while a neighbour is asked.
    verdict: Option<Verdict>,
    /// What the edge may be using, in bit/s: counted on every resource of the path.
    base: Rate,
    /// What is counted on resources of this domain beyond `base` while a neighbour is asked.
    hold: Rate,
    /// The rate to come down to, after a call back.
    limit: Rate,
    /// The longest grant that may be in use, in milliseconds.
    longest_ms: u32,
    until: Nanos,
    wait: Option<Wait>,
}

/// The resources of a lease, in their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Path {
    at: [ResourceAt; MAX_PATH],
    len: u8,
}

impl Path {
    fn push(&mut self, at: ResourceAt) {
        self.at[usize::from(self.len)] = at;
        self.len += 1;
    }

    fn iter(&self) -> impl Iterator<Item = ResourceAt> + '_ {
        self.at[..usize::from(self.len)].iter().copied()
    }
}

/// A request that waits for neighbours.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Wait {
    until: Nanos,
    /// For each resource of the path, the want that is to bring the rest. 0: nothing lacks there.
    serials: [u64; MAX_PATH],
    /// A bit for each resource whose neighbour has not answered.
    open: u8,
}

/// The account of one domain.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Book {
    domain: Name,
    per_owner: u32,
    /// How often a broker has begun to serve.
    #[serde(default)]
    lives: u32,
    resources: Vec<Resource>,
    leases: Vec<Option<Lease>>,
    empty: Vec<LeaseAt>,
    /// Those that wait for neighbours, in the order in which their holds end.
    waiting: VecDeque<LeaseAt>,
    /// One entry for each lease, at or before its end.
    ends: BinaryHeap<Reverse<(Nanos, LeaseAt)>>,
    resource_by_name: HashMap<Name, ResourceAt>,
    lease_by_name: HashMap<Name, LeaseAt>,
    owners: BTreeMap<Name, u32>,
    /// What is to be remembered with leases.
    #[serde(default)]
    notes: BTreeMap<Name, Box<str>>,
}

/// A resource as [`Book::resources`] shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown<'a> {
    /// `LINK:CLASS`.
    pub resource: &'a str,
    /// What this domain has, in bit/s.
    pub capacity: Rate,
    /// What is granted and held, in bit/s.
    pub taken: Rate,
}

/// A lease as [`Book::leases`] shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held<'a> {
    /// `OWNER/REST`.
    pub lease: &'a str,
    /// The newest version.
    pub version: u64,
    /// What its edge may be using, in bit/s.
    pub granted: Rate,
    /// What is held beyond it while a neighbour is asked, in bit/s.
    pub hold: Rate,
    /// When the book frees it.
    pub until: Nanos,
}

impl Resource {
    fn shown(&self) -> Shown<'_> {
        Shown { resource: &self.name, capacity: self.capacity, taken: self.taken }
    }

    /// What this domain has at `now`: nothing once the neighbour's grant has ended.
    fn capacity_at(&self, now: Nanos) -> Rate {
        if self.agreement.as_ref().is_some_and(|a| a.until <= now) { 0 } else { self.capacity }
    }
}

impl Lease {
    fn shown(&self) -> Held<'_> {
        Held {
            lease: &self.name,
            version: self.version,
            granted: self.base,
            hold: self.hold,
            until: self.until,
        }
    }

    fn owner(&self) -> &str {
        self.name.split('/').next().unwrap_or("")
    }
}

impl Book {
    /// An empty book of `domain`.
    pub fn new(domain: &str) -> Self {
        Book {
            domain: domain.into(),
            per_owner: LEASES_PER_OWNER,
            lives: 0,
            resources: Vec::new(),
            leases: Vec::new(),
            empty: Vec::new(),
            waiting: VecDeque::new(),
            ends: BinaryHeap::new(),
            resource_by_name: HashMap::new(),
            lease_by_name: HashMap::new(),
            owners: BTreeMap::new(),
            notes: BTreeMap::new(),
        }
    }

    /// The same with another number of leases for each owner.
    #[must_use]
    pub fn with_leases_per_owner(mut self, limit: u32) -> Self {
        self.per_owner = limit;
        self
    }

    /// Whose account it is.
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// How often a broker has [begun](Command::Begin) to serve.
    pub fn lives(&self) -> u32 {
        self.lives
    }

    /// The resources that neighbours lease to this domain.
    pub fn agreements(&self) -> impl Iterator<Item = Shown<'_>> {
        self.resources.iter().filter(|r| r.agreement.is_some()).map(Resource::shown)
    }

    /// The resources in the order in which they were told.
    pub fn resources(&self) -> impl Iterator<Item = Shown<'_>> {
        self.resources.iter().map(Resource::shown)
    }

    /// The resource of this name.
    pub fn on(&self, resource: &str) -> Option<Shown<'_>> {
        let at = *self.resource_by_name.get(resource)?;
        Some(self.resources[at as usize].shown())
    }

    /// What the file of the broker said last of a resource.
    pub fn declared(&self, resource: &str) -> Option<Rate> {
        self.resources[*self.resource_by_name.get(resource)? as usize].declared
    }

    /// The leases that hold something or wait for it, in no order that means anything.
    pub fn leases(&self) -> impl Iterator<Item = Held<'_>> {
        self.leases.iter().flatten().filter(|l| l.base + l.hold > 0 || l.wait.is_some()).map(Lease::shown)
    }

    /// The lease of this name, if it holds something or is remembered.
    pub fn lease(&self, name: &str) -> Option<Held<'_>> {
        let at = *self.lease_by_name.get(name)?;
        self.leases[at as usize].as_ref().map(Lease::shown)
    }

    /// Whether a lease is called back, and its edge has not come down yet.
    pub fn is_called_back(&self, name: &str) -> bool {
        let lease = self.lease_by_name.get(name).and_then(|&at| self.leases[at as usize].as_ref());
        lease.is_some_and(|lease| lease.limit < lease.base)
    }

    /// The leases from a place on, each with its place: for those who look at one part after another.
    pub fn leases_from(&self, place: usize) -> impl Iterator<Item = (usize, Held<'_>)> {
        let all = self.leases.iter().enumerate().skip(place);
        all.filter_map(|(at, lease)| Some((at, lease.as_ref()?.shown())))
    }

    /// What is remembered with a lease.
    pub fn note(&self, lease: &str) -> Option<&str> {
        self.notes.get(lease).map(|text| &**text)
    }

    /// The leases whose names begin so and that have a note, each with it.
    pub fn notes<'b>(&'b self, prefix: &'b str) -> impl Iterator<Item = (&'b str, &'b str)> {
        let from = self.notes.range::<str, _>((Bound::Included(prefix), Bound::Unbounded));
        from.map(|(lease, text)| (&**lease, &**text)).take_while(move |(lease, _)| lease.starts_with(prefix))
    }

    /// The newest wish for a lease that is remembered.
    pub fn wish(&self, name: &str) -> Option<Request> {
        let at = *self.lease_by_name.get(name)?;
        let lease = self.leases[at as usize].as_ref()?;
        let path = lease.path.iter().map(|r| self.resources[r as usize].name.clone()).collect();
        let (version, rate, min, ttl_ms) = (lease.version, lease.rate, lease.min, lease.ttl_ms);
        Some(Request { lease: lease.name.clone(), version, path, rate, min, ttl_ms, domains: Vec::new() })
    }

    /// What was decided about this version of a lease: nothing yet while a neighbour is asked. None if a newer one
    /// has replaced it, or nothing is remembered.
    pub fn verdict(&self, name: &str, version: u64) -> Option<Option<&Verdict>> {
        let at = *self.lease_by_name.get(name)?;
        let lease = self.leases[at as usize].as_ref().filter(|lease| lease.version == version)?;
        Some(lease.verdict.as_ref())
    }

    /// When [`Command::Tick`] has something to do, if ever.
    pub fn due(&self) -> Option<Nanos> {
        let wait = self.waiting.front().and_then(|&at| self.leases[at as usize].as_ref()?.wait.as_ref());
        let ends = self.ends.peek().map(|Reverse((at, _))| *at);
        ends.into_iter().chain(wait.map(|w| w.until)).min()
    }

    /// Carries `command` out at `now`. What the world must hear is added to `events`.
    ///
    /// `now` must not go back, except at [`Command::Begin`].
    pub fn apply(&mut self, now: Nanos, command: &Command, events: &mut Vec<Event>) {
        if let Command::Begin = command {
            self.begin(now, events);
            return;
        }
        self.pass(now, events);
        match command {
            Command::Begin | Command::Tick | Command::Notified { .. } => {}
            Command::Provide { resource, capacity } => {
                let at = self.resource(resource);
                // What a neighbour leases is not the operator's to provide.
                if self.resources[at as usize].agreement.is_none() {
                    self.set_capacity(now, at, (*capacity).min(MAX_RATE), events);
                }
            }
            Command::Declare { resource, capacity } => {
                let at = self.resource(resource);
                let known = &mut self.resources[at as usize];
                let capacity = (*capacity).min(MAX_RATE);
                let news = known.declared.replace(capacity) != Some(capacity) || capacity == 0;
                if known.agreement.is_none() && news {
                    self.set_capacity(now, at, capacity, events);
                }
            }
            Command::Agree { resource, ceiling, bulk } => {
                let at = self.resource(resource);
                let (ceiling, bulk) = ((*ceiling).min(MAX_RATE), (*bulk).clamp(1, MAX_RATE));
                let known = self.resources[at as usize].agreement.as_mut();
                if let Some(agreement) = known {
                    (agreement.ceiling, agreement.bulk) = (ceiling, bulk);
                    self.give_back(at, events);
                } else {
                    self.resources[at as usize].agreement =
                        Some(Agreement { ceiling, bulk, until: now, want: 0, serial: 0, asked: 0 });
                    self.set_capacity(now, at, 0, events);
                }
            }
            Command::Leased { resource, serial, rate, until } => {
                self.leased(now, resource, *serial, *rate, *until, events);
            }
            Command::Ask(request) => self.ask(now, request, events),
            Command::Note { lease, text: Some(text) } if self.lease_by_name.contains_key(lease) => {
                self.notes.insert(lease.clone(), text.clone());
            }
            Command::Note { lease, .. } => _ = self.notes.remove(lease),
        }
    }

    /// A new broker serves. Its clock starts somewhere; nobody knows how long the last one has been gone.
    fn begin(&mut self, now: Nanos, events: &mut Vec<Event>) {
        self.lives = self.lives.saturating_add(1);
        while let Some(&at) = self.waiting.front() {
            self.stop_waiting(at);
        }
        for at in 0..self.resources.len() {
            let resource = &mut self.resources[at];
            if let Some(agreement) = &mut resource.agreement {
                (resource.capacity, agreement.until, agreement.want) = (0, now, 0);
                self.want(at as ResourceAt, &[], events);
            }
        }
        self.ends.clear();
        for (at, lease) in self.leases.iter_mut().enumerate() {
            if let Some(lease) = lease {
                lease.until = now + freed_after(lease.longest_ms.max(lease.ttl_ms));
                self.ends.push(Reverse((lease.until, at as LeaseAt)));
            }
        }
    }

    /// What time alone does: leases end, and waiting does.
    fn pass(&mut self, now: Nanos, events: &mut Vec<Event>) {
        while let Some(&at) = self.waiting.front() {
            if self.lease_at(at).wait.as_ref().is_some_and(|w| w.until > now) {
                break;
            }
            self.decide(now, at, Why::TimedOut, events);
        }
        while let Some(&Reverse((end, at))) = self.ends.peek() {
            if end > now {
                break;
            }
            self.ends.pop();
            let until = self.lease_at(at).until;
            if until > now {
                self.ends.push(Reverse((until, at)));
            } else {
                self.remove(at, events);
            }
        }
    }
}
