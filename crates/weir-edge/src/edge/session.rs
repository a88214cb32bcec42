//! Sessions: traffic for which a broker has set bandwidth apart by name. It is not judged, asked for or refused.
//!
//! Principle: a session names both ends of its traffic. Its packets have the code point of its class, whatever they
//! carry, up to the session's rate. What is above that goes on as best effort. Its class has that rate besides what
//! its law asks for: the law does not see packets of sessions, and a flow never gets in at their cost. Nor does congestion
//! control, though they wait in the same queue: what the sessions' rates are yet to carry of their packets is no queue of the
//! class. So a burst of a session, 100 ms of its rate at most, evicts no flow.
//!
//! The rate is a contract with one flow ([`crate::sla::Shared`]). Sessions are found by the device's address, before all
//! else is looked at. While there are none this costs one comparison per packet.
//! Cost: two searches in the table of devices per packet, and 300 bytes for each session.

use super::{Class, Edge, Reason, Verdict};
use crate::sla::{Contract, Own, Policy, Prefix, Profile, Shared, Table};
use alloc::vec::Vec;
use core::ops::Range;
use weir_core::packet::{Dscp, Family, Key};
use weir_core::units::{Fraction, Instant};

/// Sessions that an edge has at most.
pub const SESSIONS: usize = 256;

/// Where one end of a session's traffic may be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// Its addresses.
    pub prefix: Prefix,
    /// Its ports, each from the first to the last; none: all.
    pub ports: Vec<(u16, u16)>,
}

impl Place {
    fn has(&self, family: Family, address: u128, port: u16) -> bool {
        let v6 = family == Family::V6;
        let is_port = |&(first, last): &(u16, u16)| (first..=last).contains(&port);
        self.prefix.contains(&Prefix::new(v6, address, 128))
            && (self.ports.is_empty() || self.ports.iter().any(is_port))
    }
}

/// Traffic that has its own bandwidth.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Session {
    /// What its broker calls it.
    pub id: u128,
    /// The leaf of its class.
    pub leaf: u32,
    /// What it has, bit/s.
    pub rate_bps: u64,
    /// Whose it is: the device may be at any of these.
    pub device: Vec<Place>,
    /// Whom the device speaks with.
    pub server: Vec<Place>,
}

/// A session, and what it has sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionNow {
    /// What its broker calls it.
    pub id: u128,
    /// The leaf of its class.
    pub leaf: u32,
    /// What it has, bit/s.
    pub rate_bps: u64,
    /// Since when it is in effect here.
    pub since: Instant,
    /// Its last packet, if one came.
    pub last: Option<Instant>,
    /// Bytes of frames, and packets, up to its rate.
    pub in_profile: [u64; 2],
    /// The same above its rate: they went on as best effort.
    pub best_effort: [u64; 2],
}

#[derive(Clone, Debug)]
struct Open {
    session: Session,
    dscp: Dscp,
    shared: Shared,
    own: Own,
    now: SessionNow,
}

impl Open {
    fn new(session: Session, dscp: Dscp, now: Instant) -> Self {
        let Session { id, leaf, rate_bps, .. } = session;
        // What one flow has of a contract: the same depth, and nothing to share.
        let contract = Contract {
            id: 0,
            bandwidth_bps: rate_bps,
            shared: Fraction::ZERO,
            lend: true,
            dscp,
            policy: Policy::BestEffort,
            timeout: None,
            flows: 1,
            class: 0,
            accept: None,
            drop: None,
            evict: None,
            guessed: None,
            guessed_dscp: None,
        };
        let mut shared = Shared::new(&contract, now);
        shared.set_flows(now, 1);
        let none = [0; 2];
        let seen =
            SessionNow { id, leaf, rate_bps, since: now, last: None, in_profile: none, best_effort: none };
        Open { session, dscp, shared, own: Own::default(), now: seen }
    }
}

/// All sessions of an edge, and whose they are.
#[derive(Clone, Debug, Default)]
pub(super) struct Sessions {
    open: Vec<Open>,
    /// Addresses of devices, each with its place in `of_device`.
    devices: Table,
    /// Where in `members` those of a device stand.
    of_device: Vec<Range<usize>>,
    /// A session, and which of its places for the device it is.
    members: Vec<(usize, usize)>,
}

impl Sessions {
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Orders them by their devices.
    fn index(&mut self) {
        let places = |(at, open): (usize, &Open)| {
            let of = move |(place, device): (usize, &Place)| (device.prefix, (at, place));
            open.session.device.iter().enumerate().map(of).collect::<Vec<_>>()
        };
        let mut all: Vec<_> = self.open.iter().enumerate().flat_map(places).collect();
        all.sort_by_key(|&(prefix, place)| (prefix, place));
        let (mut prefixes, mut of_device): (Vec<(Prefix, u32)>, Vec<Range<usize>>) = Default::default();
        for (at, (prefix, _)) in all.iter().enumerate() {
            match (prefixes.last(), of_device.last_mut()) {
                (Some((last, _)), Some(range)) if last == prefix => range.end = at + 1,
                _ => {
                    prefixes.push((*prefix, of_device.len() as u32));
                    of_device.push(at..at + 1);
                }
            }
        }
        self.members = all.into_iter().map(|(_, member)| member).collect();
        (self.devices, self.of_device) = (Table::new(&prefixes), of_device);
    }

    /// The session whose device is at this end of a packet, and its server at the other.
    fn find(&self, family: Family, device: (u128, u16), server: (u128, u16)) -> Option<usize> {
        let found = self.devices.find(family, device.0)?;
        let members = self.members.get(self.of_device.get(found as usize)?.clone())?;
        let is_it = |&&(at, place): &&(usize, usize)| {
            let session = &self.open[at].session;
            session.device[place].has(family, device.0, device.1)
                && session.server.iter().any(|end| end.has(family, server.0, server.1))
        };
        members.iter().find(is_it).map(|&(at, _)| at)
    }

    fn of(&self, key: &Key) -> Option<usize> {
        let (src, dst) = ((key.src, key.src_port), (key.dst, key.dst_port));
        self.find(key.family, src, dst).or_else(|| self.find(key.family, dst, src))
    }
}

impl Edge {
    /// These are the sessions from now on. One that goes on as it was keeps its tokens and counters. Those of a leaf that is
    /// no class here are left out. So are those beyond the first [`SESSIONS`] of the others: these are answered. It allocates.
    pub fn set_sessions(&mut self, now: Instant, sessions: Vec<Session>) -> Vec<Session> {
        self.timer(now);
        self.is_apart = false;
        let mut old = core::mem::take(&mut self.sessions.open);
        let is_class = |session: &Session| self.lanes.iter().any(|lane| lane.class.leaf == session.leaf);
        let mut here: Vec<Session> = sessions.into_iter().filter(is_class).collect();
        let beyond = here.split_off(here.len().min(SESSIONS));
        for session in here {
            let dscp = self.dscp_of(&session);
            let known = old.iter().position(|open| open.session == session && open.dscp == dscp);
            let open = match known {
                Some(at) => old.swap_remove(at),
                None => Open::new(session, dscp, now),
            };
            self.sessions.open.push(open);
        }
        self.sessions.index();
        for class in 0..self.lanes.len() {
            let leaf = self.lanes[class].class.leaf;
            let own = self.sessions.open.iter().filter(|open| open.session.leaf == leaf);
            let apart = own.fold(0u64, |sum, open| sum.saturating_add(open.session.rate_bps));
            if let Some(allocator) = &mut self.lanes[class].allocator {
                allocator.set_apart(now, apart);
            }
            self.shed(now, class);
        }
        beyond
    }

    /// The code point by which packets come to the class of a session: that of a contract of this class, the device's own one
    /// first.
    fn dscp_of(&self, session: &Session) -> Dscp {
        let contracts = &self.config.contracts;
        let is_there = |contract: &Contract| {
            self.lanes.get(contract.class).is_some_and(|lane| lane.class.leaf == session.leaf)
        };
        let family = |prefix: &Prefix| if prefix.v6 { Family::V6 } else { Family::V4 };
        let own = session.device.iter().find_map(|place| {
            let contract = self.table.find(family(&place.prefix), place.prefix.address)?;
            contracts.get(contract as usize).filter(|contract| is_there(contract))
        });
        own.or_else(|| contracts.iter().find(|contract| is_there(contract))).map_or(Dscp::EF, |c| c.dscp)
    }

    /// What becomes of a packet of a session; none if it is of none.
    pub(super) fn of_session(&mut self, now: Instant, key: &Key, len: u32) -> Option<Verdict> {
        // It may be that the packet before never came to a class.
        self.is_apart = false;
        let at = self.sessions.of(key)?;
        self.timer(now);
        let open = &mut self.sessions.open[at];
        let before = open.now.last.unwrap_or(open.now.since);
        open.now.last = Some(before.max(now));
        open.shared.collect(now, before, &mut open.own);
        let profile = open.shared.take(now, &mut open.own, len + self.config.overhead);
        let (count, dscp, reason) = match profile {
            Profile::In => (&mut open.now.in_profile, open.dscp, Reason::InProfile),
            Profile::Out => (&mut open.now.best_effort, Dscp::CS0, Reason::OutOfProfile),
        };
        *count = [count[0] + u64::from(len), count[1] + 1];
        self.is_apart = profile == Profile::In;
        Some(Verdict { tos: dscp.on_tos(key.tos), drop: false, reason, found: None })
    }

    /// Sessions go on in the classes that their own go on as: `kept` says of each class of a new configuration which of
    /// the present ones that is. They are to be set again once that is in effect.
    pub(super) fn move_sessions(&mut self, classes: &[Class], kept: &[Option<usize>]) -> Vec<Session> {
        let lanes = &self.lanes;
        self.sessions.open.retain_mut(|open| {
            let before = lanes.iter().position(|lane| lane.class.leaf == open.session.leaf);
            let now = kept.iter().position(|kept| kept.is_some() && *kept == before);
            let Some(class) = now.and_then(|now| classes.get(now)) else { return false };
            (open.session.leaf, open.now.leaf) = (class.leaf, class.leaf);
            true
        });
        self.sessions.index();
        self.sessions.open.iter().map(|open| open.session.clone()).collect()
    }

    /// The sessions that are in effect, and what they have sent.
    pub fn sessions(&self) -> impl Iterator<Item = (&Session, SessionNow)> {
        self.sessions.open.iter().map(|open| (&open.session, open.now))
    }

    /// The session that a packet is of.
    pub fn session_of(&self, key: &Key) -> Option<SessionNow> {
        self.sessions.of(key).map(|at| self.sessions.open[at].now)
    }

    /// Whether packets are to be shown to it.
    pub fn looks(&self) -> bool {
        self.config.recognition.is_some() || !self.sessions.is_empty()
    }
}
