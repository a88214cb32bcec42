//! The flows that an edge knows: a table of fixed size, found by a keyed hash of the 5-tuple.
//!
//! Principle: eight places for each hash. A newcomer takes a free one, or replaces a flow on trial, the
//! one that was silent longest. It never takes the place of an admitted flow, nor that of a real-time
//! flow of another contract. If no place is left it is not remembered, and its packets go on as ordinary
//! ones. A contract that has as many flows here as it may have gives up its own oldest flow on trial. So
//! strangers cannot push calls out, and memory does not grow.
//!
//! The flows of a contract that are judged [as one](crate::recognise::statistical::Aggregate) have a place together, by
//! the contract's number.
//!
//! IPv4 addresses stand in their mapped form, `::ffff:a.b.c.d`. That form is not for the wire: a packet
//! of IPv6 that has it is not remembered. [RFC 4291 section 2.5.5.2, RFC 6890]
//!
//! Paper: multiservice III.3.2 (T65): a hash table of socket tuples.
//! Cost: 128 bytes for each direction of a flow, and two for its tag. A flow stands where its hash says, if that place
//! was free: then a look-up reads that flow alone. Else it reads the tags of a set, which are parts of the hash and lie together.

mod name;
pub(crate) mod passed;

use self::name::{MAPPED, Name, set_of, usual_way};
pub(crate) use self::name::{aggregate, reverse};
use crate::admit::Evict;
use crate::recognise::{Found, Kind, Sign, Trial};
use crate::sla::Own;
use alloc::vec::Vec;
use core::ops::Range;
use weir_core::packet::key::protocol;
use weir_core::packet::{Family, Key};
use weir_core::units::{Duration, Fraction, Instant};

/// Places for each hash.
const WAYS: usize = 8;
/// The table is swept in so many parts.
const PARTS: usize = 16;
/// No flow.
const NONE: u32 = u32::MAX;

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
// Its order is that of the lines: what a packet of an admitted flow touches comes first.
#[derive(Clone, Debug)]
#[repr(u8)]
pub(crate) enum Body {
    /// There is no flow.
    Free,
    /// On trial.
    Candidate(Trial, Links),
    /// In its class.
    Admitted {
        /// Packets in the present window, up to 65,535.
        packets: u16,
        /// Bytes in the present window, up to 4 GiB.
        bytes: u32,
        /// What else it has.
        part: Part,
    },
    /// Real-time, but in no class.
    Outside(Outside),
}

/// The neighbours of a flow on trial in its contract's list of these.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Links {
    older: u32,
    newer: u32,
}

impl Links {
    const NONE: Links = Links { older: NONE, newer: NONE };
}

/// What a real-time flow keeps, whether it is in its class or not: how it was found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    /// The chain's SSRC; 0 where there is none.
    ssrc: u32,
    /// From the chain's first packet to its last, ms; 65,535 stands for more.
    span_ms: u16,
    /// The rule.
    kind: Kind,
    /// Packets of the chain.
    packets: u8,
    /// Emergency: neither refused nor evicted.
    pub pinned: bool,
}

impl Standing {
    pub fn new(found: &Found, pinned: bool) -> Self {
        let Found { kind, ssrc, packets, span } = *found;
        let span_ms = (span.as_nanos() / 1_000_000).min(u64::from(u16::MAX)) as u16;
        Standing { ssrc, span_ms, kind, packets, pinned }
    }
    /// How it was found, to the millisecond.
    pub fn found(&self) -> Found {
        let span = Duration::from_millis(u64::from(self.span_ms));
        Found { kind: self.kind, ssrc: self.ssrc, packets: self.packets, span }
    }
}

/// What an admitted flow has.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct Part {
    /// Its part of the contract's meter.
    pub own: Own,
    /// When it was admitted.
    pub since: Instant,
    /// Until when it goes on as best effort (`be-flow`).
    pub best_effort_until: Instant,
    /// Bytes in the last window, up to 4 GiB.
    pub last_bytes: u32,
    /// Packets in the last window, up to 65,535.
    pub last_packets: u16,
    /// Its place in its class's list of admitted flows.
    pub place: u32,
    /// How it was found.
    pub standing: Standing,
}

/// What a real-time flow in no class has.
#[derive(Clone, Debug)]
pub(crate) struct Outside {
    /// When it was refused or evicted, and why; none: it is silent, and its next packet asks.
    pub refused: Option<(Instant, Cause)>,
    /// How it was found.
    pub standing: Standing,
}

/// Why a real-time flow is in no class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// It came when the class had no room: the load, with what new flows are expected to add, was not
    /// below this share of the limit, T_a.
    Load {
        /// B_o + Σ new, bit/s.
        load_bps: u64,
        /// The most that the class may get, bit/s.
        limit_bps: u64,
        /// T_a.
        accept: Fraction,
    },
    /// It came when its contract had as many real-time flows as it may have.
    Full {
        /// So many.
        flows: u32,
    },
    /// It was evicted, because the admitted flows sent more than this share of the limit, T_d.
    Above {
        /// B_o, bit/s.
        offered_bps: u64,
        /// The most that the class may get, bit/s.
        limit_bps: u64,
        /// T_d.
        drop: Fraction,
        /// The policy that chose it: of its contract, or else of its class.
        evict: Evict,
    },
    /// It was evicted, because the queue of its class was too long, and no more bandwidth came.
    Congested,
    /// It was evicted by a person. ([`crate::edge::Edge::evict_flow`])
    Order,
}

/// One flow, in one direction.
// Two lines of cache. Packets of an admitted flow touch the first alone.
#[derive(Clone, Debug)]
#[repr(C, align(128))]
pub struct Flow {
    src: u128,
    dst: u128,
    src_port: u16,
    dst_port: u16,
    /// The contract that it is under, by its place in the edge's list.
    pub contract: u32,
    /// The last packet.
    pub last: Instant,
    pub(crate) body: Body,
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
    };
    /// It is all flows of a contract that are judged as one.
    pub fn is_aggregate(&self) -> bool {
        self.dst == 0
    }
    /// Addresses, ports, protocol and family. An aggregate has none of them.
    pub fn key(&self) -> Key {
        if self.is_aggregate() {
            return Key { family: Family::Other, src: self.src, protocol: protocol::UDP, ..Key::default() };
        }
        let is_v4 = self.src >> 32 == MAPPED >> 32;
        let (family, bits) = if is_v4 { (Family::V4, u128::from(u32::MAX)) } else { (Family::V6, u128::MAX) };
        let (src, dst) = (self.src & bits, self.dst & bits);
        Key { family, src, dst, protocol: protocol::UDP, ..Key::default() }
            .with_ports(self.src_port, self.dst_port)
    }
    /// What it is.
    pub fn state(&self) -> State {
        match &self.body {
            Body::Free | Body::Candidate(..) => State::Candidate,
            Body::Admitted { .. } => State::Admitted,
            Body::Outside(outside) if outside.refused.is_some() => State::Refused,
            Body::Outside(_) => State::Silent,
        }
    }
    /// How it was found; none while it is on trial.
    pub fn kind(&self) -> Option<Kind> {
        self.standing().map(|standing| standing.kind)
    }
    /// It was taken for ordinary for good, and is no longer looked at.
    pub fn is_ordinary(&self) -> bool {
        matches!(&self.body, Body::Candidate(trial, _) if trial.has(Sign::Ordinary))
    }
    /// Emergency: neither refused nor evicted.
    pub fn is_pinned(&self) -> bool {
        match &self.body {
            Body::Candidate(trial, _) => trial.has(Sign::Pinned),
            _ => self.standing().is_some_and(|standing| standing.pinned),
        }
    }
    pub(crate) fn pin(&mut self, pinned: bool) {
        match &mut self.body {
            Body::Free => {}
            Body::Candidate(trial, _) => trial.set(Sign::Pinned, pinned),
            Body::Admitted { part, .. } => part.standing.pinned = pinned,
            Body::Outside(outside) => outside.standing.pinned = pinned,
        }
    }
    pub(crate) fn standing(&self) -> Option<&Standing> {
        match &self.body {
            Body::Free | Body::Candidate(..) => None,
            Body::Admitted { part, .. } => Some(&part.standing),
            Body::Outside(outside) => Some(&outside.standing),
        }
    }
    pub(crate) fn part(&self) -> Option<&Part> {
        match &self.body {
            Body::Admitted { part, .. } => Some(part),
            _ => None,
        }
    }
    pub(crate) fn part_mut(&mut self) -> Option<&mut Part> {
        match &mut self.body {
            Body::Admitted { part, .. } => Some(part),
            _ => None,
        }
    }
    /// Its neighbours; none if it is not on trial.
    fn links(&self) -> Links {
        match self.body {
            Body::Candidate(_, links) => links,
            _ => Links::NONE,
        }
    }
    /// Gives a flow on trial other neighbours.
    fn relink(&mut self, change: impl FnOnce(&mut Links)) {
        if let Body::Candidate(_, links) = &mut self.body {
            change(links);
        }
    }
    pub(crate) fn is_free(&self) -> bool {
        matches!(self.body, Body::Free)
    }
    fn is(&self, name: &Name) -> bool {
        (self.src, self.dst, self.src_port, self.dst_port)
            == (name.src, name.dst, name.src_port, name.dst_port)
            && !self.is_free()
    }
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

/// Sets of a table for about so many flows.
fn sets_for(capacity: u32) -> usize {
    (capacity as usize).div_ceil(WAYS).max(1)
}

impl Flows {
    /// A table for about `capacity` flows, rounded up to a multiple of eight, at least eight, under so
    /// many contracts. `salt` is to be secret where strangers choose their ports.
    pub fn new(capacity: u32, contracts: usize, salt: u64) -> Self {
        let sets = sets_for(capacity);
        let rows = alloc::vec![Flow::FREE; sets * WAYS];
        let tags = alloc::vec![[0; WAYS]; sets];
        let lists = alloc::vec![List { flows: 0, oldest: NONE, newest: NONE }; contracts + 1];
        Flows { rows, tags, salt, lists, used: 0, part: 0, turned_away: 0, replaced: 0 }
    }
    /// The set of a key, and its tag.
    fn set(&self, key: &Key) -> (usize, u16) {
        set_of(key, self.salt, self.tags.len())
    }
    /// The flow of that key.
    pub fn find(&self, key: &Key) -> Option<u32> {
        let name = Name::of(key)?;
        let (set, tag) = self.set(key);
        let usual = set * WAYS + usual_way(tag);
        if self.rows[usual].is(&name) {
            return Some(usual as u32);
        }
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
            Body::Candidate(..) => Some((1, flow.last)),
            Body::Outside(_) if flow.contract == contract => Some((2, flow.last)),
            Body::Outside(_) | Body::Admitted { .. } => None,
        };
        let ways = self.rows[first..first + WAYS].iter().enumerate();
        let best = ways.filter_map(|(way, flow)| rank(flow).map(|rank| (rank, way))).min();
        let usual = usual_way(tag);
        let best = if self.rows[first + usual].is_free() { Some(usual) } else { best.map(|(_, way)| way) };
        let Some(way) = best else {
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
        let body = Body::Candidate(Trial::new(now), Links::NONE);
        self.rows[index as usize] = Flow { src, dst, src_port, dst_port, last: now, body, contract };
        self.tags[set][way] = tag;
        self.lists[list].flows += 1;
        self.link(index);
        self.used += 1;
        Some(index)
    }
    /// The flows that a contract has in the table, on trial and real-time.
    pub(crate) fn of_contract(&self, contract: u32) -> u32 {
        self.lists[self.list(contract)].flows
    }
    fn list(&self, contract: u32) -> usize {
        (contract as usize).min(self.lists.len() - 1)
    }
    /// Puts a flow at the end of its contract's list of those on trial.
    fn link(&mut self, index: u32) {
        let list = self.list(self.get(index).contract);
        let older = core::mem::replace(&mut self.lists[list].newest, index);
        self.get_mut(index).relink(|links| *links = Links { older, newer: NONE });
        match older {
            NONE => self.lists[list].oldest = index,
            older => self.get_mut(older).relink(|links| links.newer = index),
        }
    }
    /// Takes a flow out of its contract's list of those on trial.
    fn unlink(&mut self, index: u32) {
        let flow = self.get(index);
        let (Links { older, newer }, list) = (flow.links(), self.list(flow.contract));
        match older {
            NONE => self.lists[list].oldest = newer,
            older => self.get_mut(older).relink(|links| links.newer = newer),
        }
        match newer {
            NONE => self.lists[list].newest = older,
            newer => self.get_mut(newer).relink(|links| links.older = older),
        }
    }
    /// The trial of a flow is over.
    pub(crate) fn settle(&mut self, index: u32, body: Body) {
        if matches!(self.get(index).body, Body::Candidate(..)) {
            self.unlink(index);
        }
        self.get_mut(index).body = body;
    }
    /// Forgets a flow that is in no class's list.
    pub fn remove(&mut self, index: u32) {
        if self.get(index).is_free() {
            return;
        }
        if matches!(self.get(index).body, Body::Candidate(..)) {
            self.unlink(index);
        }
        let list = self.list(self.get(index).contract);
        self.lists[list].flows -= 1;
        self.used -= 1;
        self.rows[index as usize] = Flow::FREE;
        self.tags[index as usize / WAYS][index as usize % WAYS] = 0;
    }
    /// Forgets the flows of the next sixteenth of the table that were silent for longer than `idle`,
    /// but for those in a class. Places without a flow are passed over by their tags, which lie together.
    pub fn sweep(&mut self, now: Instant, idle: Duration) {
        let start = |part: usize| self.tags.len() * part / PARTS;
        for set in start(self.part)..start(self.part + 1) {
            for way in 0..WAYS {
                if self.tags[set][way] == 0 {
                    continue;
                }
                let index = set * WAYS + way;
                let flow = &self.rows[index];
                if now.since(flow.last) > idle && !matches!(flow.body, Body::Admitted { .. }) {
                    self.remove(index as u32);
                }
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
    /// Those that are in use in these places.
    pub fn within(&self, places: Range<usize>) -> impl Iterator<Item = &Flow> {
        self.rows.iter().take(places.end).skip(places.start).filter(|flow| !flow.is_free())
    }
    /// The places of all that are in use.
    pub(crate) fn indices(&self) -> impl Iterator<Item = u32> {
        (0..).zip(&self.rows).filter(|(_, flow)| !flow.is_free()).map(|(index, _)| index)
    }
    /// Other contracts: each flow is under the one that `owner` says from now on. The order of those on
    /// trial stays.
    pub(crate) fn relist(&mut self, contracts: usize, owner: impl Fn(&Flow) -> u32) {
        let mut trials = Vec::new();
        for list in &self.lists {
            let mut at = list.oldest;
            while at != NONE {
                trials.push(at);
                at = self.get(at).links().newer;
            }
        }
        self.lists = alloc::vec![List { flows: 0, oldest: NONE, newest: NONE }; contracts + 1];
        for index in 0..self.rows.len() as u32 {
            if !self.get(index).is_free() {
                let contract = owner(self.get(index));
                self.get_mut(index).contract = contract;
                let list = self.list(contract);
                self.lists[list].flows += 1;
            }
        }
        trials.into_iter().for_each(|index| self.link(index));
    }
    /// Where each flow would stand in a table for about `capacity` flows, by its place here. Admitted
    /// flows come first. None: there is no place for it.
    pub(crate) fn places_in(&self, capacity: u32) -> Vec<Option<u32>> {
        let sets = sets_for(capacity);
        let mut used = alloc::vec![0u8; sets];
        let mut places = alloc::vec![None; self.rows.len()];
        let rank = |flow: &Flow| match flow.body {
            Body::Free => None,
            Body::Admitted { .. } => Some(0),
            Body::Outside(_) => Some(1),
            Body::Candidate(..) => Some(2),
        };
        for rank_now in 0..3 {
            for (place, flow) in places.iter_mut().zip(&self.rows).filter(|(_, f)| rank(f) == Some(rank_now))
            {
                let (set, _) = set_of(&flow.key(), self.salt, sets);
                if usize::from(used[set]) < WAYS {
                    *place = Some((set * WAYS) as u32 + u32::from(used[set]));
                    used[set] += 1;
                }
            }
        }
        places
    }
    /// A table of that size, with the flows where [`Flows::places_in`] says. Those without a place are
    /// to be gone.
    pub(crate) fn resize(&mut self, capacity: u32, places: &[Option<u32>]) {
        let sets = sets_for(capacity);
        let old = core::mem::replace(&mut self.rows, alloc::vec![Flow::FREE; sets * WAYS]);
        self.tags = alloc::vec![[0; WAYS]; sets];
        self.part = 0;
        let moved = |index: u32| places.get(index as usize).copied().flatten().unwrap_or(NONE);
        for list in &mut self.lists {
            (list.oldest, list.newest) = (moved(list.oldest), moved(list.newest));
        }
        for (flow, place) in old.into_iter().zip(places) {
            let Some(place) = place.map(|place| place as usize).filter(|_| !flow.is_free()) else { continue };
            let (set, tag) = self.set(&flow.key());
            debug_assert_eq!(set, place / WAYS);
            self.tags[set][place % WAYS] = tag;
            let mut flow = flow;
            flow.relink(|links| *links = Links { older: moved(links.older), newer: moved(links.newer) });
            self.rows[place] = flow;
        }
    }
}

#[cfg(test)]
impl Flows {
    /// Panics unless the lists have each flow on trial once, and count all flows.
    pub(crate) fn check(&self) {
        let mut counts = alloc::vec![0; self.lists.len()];
        self.indices().for_each(|index| counts[self.list(self.get(index).contract)] += 1);
        let mut linked = 0;
        for (list, count) in self.lists.iter().zip(counts) {
            assert_eq!(list.flows, count);
            let (mut before, mut at) = (NONE, list.oldest);
            while at != NONE {
                let flow = self.get(at);
                assert!(matches!(flow.body, Body::Candidate(..)) && flow.links().older == before);
                (before, at) = (at, flow.links().newer);
                linked += 1;
            }
            assert_eq!(list.newest, before);
        }
        let trials = self.rows.iter().filter(|flow| matches!(flow.body, Body::Candidate(..)));
        assert_eq!(linked, trials.count());
        assert_eq!(self.used as usize, self.indices().count());
        let tagged = self.tags.iter().flatten().filter(|tag| **tag != 0);
        assert_eq!(tagged.count(), self.used as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a packet of an admitted flow touches lies in one line of cache.
    #[test]
    fn a_packet_of_an_admitted_flow_touches_one_line() {
        let found = Found { kind: Kind::Rtp, ssrc: 1, packets: 4, span: Duration::ZERO };
        let part = Part {
            own: Own::default(),
            since: Instant::ZERO,
            best_effort_until: Instant::ZERO,
            last_bytes: 0,
            last_packets: 0,
            place: 0,
            standing: Standing::new(&found, false),
        };
        let flow = Flow { body: Body::Admitted { packets: 0, bytes: 0, part }, ..Flow::FREE };
        let Body::Admitted { packets, bytes, part } = &flow.body else { unreachable!("it was made so") };
        let start = (&raw const flow).addr();
        let end = [
            (&raw const part.own).addr() + 8,
            (&raw const *bytes).addr() + 4,
            (&raw const *packets).addr() + 2,
        ];
        assert_eq!((start % 128, align_of::<Flow>()), (0, 128));
        assert!(end.iter().all(|end| *end <= start + 64), "{start} {end:?}");
        assert!((&raw const part.since).addr() == start + 64, "the first line is full");
    }
}
