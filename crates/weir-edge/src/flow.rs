//! The flows that an edge knows: a table of fixed size, found by a keyed hash of the 5-tuple.
//!
//! Principle: eight places for each hash. A newcomer takes a free one, or replaces a flow on trial, the
//! one that was silent longest. It never takes the place of an admitted flow, nor that of a real-time
//! flow of another contract. If no place is left it is not remembered, and its packets go on as ordinary
//! ones. A contract that has as many flows here as it may have gives up its own oldest flow on trial. So
//! strangers cannot push calls out, and memory does not grow.
//!
//! IPv4 addresses stand in their mapped form, `::ffff:a.b.c.d`. That form is not for the wire: a packet
//! of IPv6 that has it is not remembered. [RFC 4291 section 2.5.5.2, RFC 6890]
//!
//! Paper: multiservice III.3.2 (T65): a hash table of socket tuples.
//! Cost: 128 bytes for each direction of a flow, and two for its tag. A look-up reads the tags of a set,
//! which are parts of the hash and lie together, and then as a rule one flow.

use crate::recognise::{Kind, Trial};
use crate::sla::Own;
use alloc::vec::Vec;
use weir_core::packet::key::protocol;
use weir_core::packet::{Family, Key};
use weir_core::units::{Duration, Instant};

/// Places for each hash.
const WAYS: usize = 8;
/// The table is swept in so many parts.
const PARTS: usize = 16;
/// No flow.
const NONE: u32 = u32::MAX;
/// What is in front of an IPv4 address in its mapped form.
const MAPPED: u128 = 0xffff << 32;

/// What a flow is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum State {
    /// Not known to be real-time.
    #[default]
    Candidate,
    /// Real-time, and in its class.
    Admitted,
    /// Real-time, and ordinary until it is silent: it was refused or evicted.
    Refused,
    /// Real-time, and silent for longer than its contract's `timeout`: its next packet asks anew.
    Silent,
}

/// What is kept of a flow, by its state.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    /// There is no flow.
    Free,
    /// On trial.
    Candidate(Trial),
    /// In its class.
    Admitted(Part),
    /// Real-time, but in no class.
    Outside(Outside),
}

/// What an admitted flow has.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// When it was admitted.
    pub since: Instant,
    /// Its part of the contract's meter.
    pub own: Own,
    /// Until when it goes on as best effort (`be-flow`).
    pub best_effort_until: Instant,
    /// Bytes in the present window.
    pub bytes: u64,
    /// Bytes in the last window.
    pub last_bytes: u64,
    /// Its place in its class's list of admitted flows.
    pub place: u32,
    /// How it was found.
    pub kind: Kind,
    /// Emergency: neither refused nor evicted.
    pub pinned: bool,
}

/// What a real-time flow in no class has.
#[derive(Clone, Debug)]
pub(crate) struct Outside {
    /// Refused or evicted, rather than silent.
    pub refused: bool,
    /// How it was found.
    pub kind: Kind,
    /// Emergency.
    pub pinned: bool,
}

/// One flow, in one direction.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub struct Flow {
    src: u128,
    dst: u128,
    /// The last packet.
    pub last: Instant,
    pub(crate) body: Body,
    src_port: u16,
    dst_port: u16,
    /// The contract that it is under, by its place in the edge's list.
    pub contract: u32,
    /// Its neighbours in its contract's list of flows on trial.
    older: u32,
    newer: u32,
}

const _: () = assert!(size_of::<Flow>() <= 128);

impl Flow {
    const FREE: Flow = Flow {
        src: 0,
        dst: 0,
        last: Instant::ZERO,
        body: Body::Free,
        src_port: 0,
        dst_port: 0,
        contract: NONE,
        older: NONE,
        newer: NONE,
    };
    /// Addresses, ports, protocol and family.
    pub fn key(&self) -> Key {
        let is_v4 = self.src >> 32 == MAPPED >> 32;
        let (family, bits) = if is_v4 { (Family::V4, u128::from(u32::MAX)) } else { (Family::V6, u128::MAX) };
        let (src, dst) = (self.src & bits, self.dst & bits);
        Key { family, src, dst, protocol: protocol::UDP, ..Key::default() }
            .with_ports(self.src_port, self.dst_port)
    }
    /// What it is.
    pub fn state(&self) -> State {
        match &self.body {
            Body::Free | Body::Candidate(_) => State::Candidate,
            Body::Admitted(_) => State::Admitted,
            Body::Outside(outside) if outside.refused => State::Refused,
            Body::Outside(_) => State::Silent,
        }
    }
    /// How it was found; none while it is on trial.
    pub fn kind(&self) -> Option<Kind> {
        match &self.body {
            Body::Free | Body::Candidate(_) => None,
            Body::Admitted(part) => Some(part.kind),
            Body::Outside(outside) => Some(outside.kind),
        }
    }
    /// It was taken for ordinary for good, and is no longer looked at.
    pub fn is_ordinary(&self) -> bool {
        matches!(&self.body, Body::Candidate(trial) if trial.ordinary)
    }
    /// Emergency: neither refused nor evicted.
    pub fn is_pinned(&self) -> bool {
        match &self.body {
            Body::Free => false,
            Body::Candidate(trial) => trial.pinned,
            Body::Admitted(part) => part.pinned,
            Body::Outside(outside) => outside.pinned,
        }
    }
    pub(crate) fn pin(&mut self) {
        match &mut self.body {
            Body::Free => {}
            Body::Candidate(trial) => trial.pinned = true,
            Body::Admitted(part) => part.pinned = true,
            Body::Outside(outside) => outside.pinned = true,
        }
    }
    pub(crate) fn part(&self) -> Option<&Part> {
        match &self.body {
            Body::Admitted(part) => Some(part),
            _ => None,
        }
    }
    pub(crate) fn part_mut(&mut self) -> Option<&mut Part> {
        match &mut self.body {
            Body::Admitted(part) => Some(part),
            _ => None,
        }
    }
    fn is_free(&self) -> bool {
        matches!(self.body, Body::Free)
    }
    fn is(&self, name: &Name) -> bool {
        (self.src, self.dst, self.src_port, self.dst_port)
            == (name.src, name.dst, name.src_port, name.dst_port)
            && !self.is_free()
    }
}

/// What a flow is found by.
struct Name {
    src: u128,
    dst: u128,
    src_port: u16,
    dst_port: u16,
}

impl Name {
    /// None for what is no UDP over IP, or has addresses that no packet may have.
    fn of(key: &Key) -> Option<Name> {
        let map = |address: u128| match key.family {
            Family::V4 => Some(address | MAPPED),
            Family::V6 => Some(address).filter(|address| address >> 32 != MAPPED >> 32),
            Family::Other => None,
        };
        let (src, dst) = (map(key.src)?, map(key.dst)?);
        let Key { src_port, dst_port, .. } = *key;
        (key.protocol == protocol::UDP).then_some(Name { src, dst, src_port, dst_port })
    }
}

/// The same flow, the other way.
pub(crate) fn reverse(key: &Key) -> Key {
    Key { src: key.dst, dst: key.src, src_port: key.dst_port, dst_port: key.src_port, ..*key }
}

/// Flows of a contract.
#[derive(Clone, Copy, Debug)]
struct List {
    flows: u32,
    /// Ends of the list of those on trial, by when they came.
    oldest: u32,
    newest: u32,
}

/// The table.
#[derive(Clone, Debug)]
pub struct Flows {
    rows: Vec<Flow>,
    /// Of each set a part of the hash of each flow; 0 where there is none.
    tags: Vec<[u16; WAYS]>,
    salt: u64,
    /// One for each contract, and one for flows without.
    lists: Vec<List>,
    used: u32,
    /// The part that is swept next.
    part: usize,
    /// Flows that found no place.
    pub turned_away: u64,
    /// Flows on trial that gave their place to others.
    pub replaced: u64,
}

impl Flows {
    /// A table for about `capacity` flows, rounded up to a multiple of eight, at least eight, under so
    /// many contracts. `salt` is to be secret where strangers choose their ports.
    pub fn new(capacity: u32, contracts: usize, salt: u64) -> Self {
        let sets = (capacity as usize).div_ceil(WAYS).max(1);
        let rows = alloc::vec![Flow::FREE; sets * WAYS];
        let tags = alloc::vec![[0; WAYS]; sets];
        let lists = alloc::vec![List { flows: 0, oldest: NONE, newest: NONE }; contracts + 1];
        Flows { rows, tags, salt, lists, used: 0, part: 0, turned_away: 0, replaced: 0 }
    }
    /// The set of a key, and its tag.
    fn set(&self, key: &Key) -> (usize, u16) {
        let hash = key.flow_hash(self.salt);
        // A product's upper half: uniform without a division. The tag is the hash's lower half.
        let set = (u64::from(hash) * self.tags.len() as u64) >> 32;
        (set as usize, (hash as u16).max(1))
    }
    /// The flow of that key.
    pub fn find(&self, key: &Key) -> Option<u32> {
        let name = Name::of(key)?;
        let (set, tag) = self.set(key);
        let is = |&(way, its): &(usize, &u16)| *its == tag && self.rows[set * WAYS + way].is(&name);
        let (way, _) = self.tags[set].iter().enumerate().find(is)?;
        Some((set * WAYS + way) as u32)
    }
    /// A place for a new flow on trial. None if it may have none: all eight belong to others, or its
    /// contract has `most` flows already, none of them on trial.
    pub fn insert(&mut self, key: &Key, contract: u32, most: u32, now: Instant) -> Option<u32> {
        let name = Name::of(key)?;
        let (set, tag) = self.set(key);
        let first = set * WAYS;
        let rank = |flow: &Flow| match flow.body {
            Body::Free => Some((0, flow.last)),
            Body::Candidate(_) => Some((1, flow.last)),
            Body::Outside(_) if flow.contract == contract => Some((2, flow.last)),
            Body::Outside(_) | Body::Admitted(_) => None,
        };
        let ways = self.rows[first..first + WAYS].iter().enumerate();
        let best = ways.filter_map(|(way, flow)| rank(flow).map(|rank| (rank, way))).min();
        let Some((_, way)) = best else {
            self.turned_away += 1;
            return None;
        };
        let index = (first + way) as u32;
        let list = self.list(contract);
        let is_own = !self.get(index).is_free() && self.get(index).contract == contract;
        if self.lists[list].flows >= most && !is_own {
            let oldest = self.lists[list].oldest;
            if oldest == NONE {
                self.turned_away += 1;
                return None;
            }
            self.replaced += 1;
            self.remove(oldest);
        }
        if !self.get(index).is_free() {
            self.replaced += 1;
            self.remove(index);
        }
        let Name { src, dst, src_port, dst_port } = name;
        let body = Body::Candidate(Trial::new(now));
        let older = self.lists[list].newest;
        self.rows[index as usize] =
            Flow { src, dst, src_port, dst_port, last: now, body, contract, older, newer: NONE };
        self.tags[set][way] = tag;
        match older {
            NONE => self.lists[list].oldest = index,
            older => self.get_mut(older).newer = index,
        }
        self.lists[list].newest = index;
        self.lists[list].flows += 1;
        self.used += 1;
        Some(index)
    }
    fn list(&self, contract: u32) -> usize {
        (contract as usize).min(self.lists.len() - 1)
    }
    /// Takes a flow out of its contract's list of those on trial.
    fn unlink(&mut self, index: u32) {
        let Flow { older, newer, contract, .. } = *self.get(index);
        let list = self.list(contract);
        match older {
            NONE => self.lists[list].oldest = newer,
            older => self.get_mut(older).newer = newer,
        }
        match newer {
            NONE => self.lists[list].newest = older,
            newer => self.get_mut(newer).older = older,
        }
    }
    /// The trial of a flow is over.
    pub(crate) fn settle(&mut self, index: u32, body: Body) {
        if matches!(self.get(index).body, Body::Candidate(_)) {
            self.unlink(index);
        }
        self.get_mut(index).body = body;
    }
    /// Forgets a flow that is in no class's list.
    pub fn remove(&mut self, index: u32) {
        if self.get(index).is_free() {
            return;
        }
        if matches!(self.get(index).body, Body::Candidate(_)) {
            self.unlink(index);
        }
        let list = self.list(self.get(index).contract);
        self.lists[list].flows -= 1;
        self.used -= 1;
        self.rows[index as usize] = Flow::FREE;
        self.tags[index as usize / WAYS][index as usize % WAYS] = 0;
    }
    /// Forgets the flows of the next sixteenth of the table that were silent for longer than `idle`,
    /// but for those in a class.
    pub fn sweep(&mut self, now: Instant, idle: Duration) {
        let sets = self.rows.len() / WAYS;
        let start = |part: usize| WAYS * (sets * part / PARTS);
        for index in start(self.part)..start(self.part + 1) {
            let flow = &self.rows[index];
            let ended = now.since(flow.last) > idle && !matches!(flow.body, Body::Admitted(_));
            if ended {
                self.remove(index as u32);
            }
        }
        self.part = (self.part + 1) % PARTS;
    }
    /// Places in the table.
    pub fn capacity(&self) -> usize {
        self.rows.len()
    }
    /// Flows in the table.
    pub fn used(&self) -> u32 {
        self.used
    }
    /// A flow.
    pub fn get(&self, index: u32) -> &Flow {
        &self.rows[index as usize]
    }
    /// A flow, to change.
    pub fn get_mut(&mut self, index: u32) -> &mut Flow {
        &mut self.rows[index as usize]
    }
    /// All that are in use.
    pub fn iter(&self) -> impl Iterator<Item = &Flow> {
        self.rows.iter().filter(|flow| !flow.is_free())
    }
}
