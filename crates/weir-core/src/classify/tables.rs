//! Tuple-space search over merged tuples, for packets packed into N words.
//!
//! *Principle.* All filters that ask for the same bits (the same mask, a *tuple*) lie in one hash
//! table, found with one look-up on the packet's bits under that mask. A filter may also lie in the
//! table of a wider mask, one that asks for fewer bits; there it shares a *chain* with the filters
//! that agree on those. So many tuples merge into few tables, at the price of short chains. Before
//! a table is looked into, [`super::prune`] must have left it in, and its best filter must beat the
//! best match so far.
//!
//! *Papers.* V. Srinivasan, S. Suri, G. Varghese, "Packet Classification using Tuple Space Search",
//! SIGCOMM 1999; J. Daly et al., "TupleMerge: Fast Software Packet Processing for Online Packet
//! Classification", IEEE/ACM Transactions on Networking 27(4), 2019 (§IV: relaxed masks, chains of
//! bounded length).
//!
//! *Where we differ.* TupleMerge searches all tables in the order of their best filter. Here a
//! bitmap prunes them first, and order matters only for what is left: filters of equal `ruleno` lie
//! in all tables evenly, so that order alone stops the search late. A chain that is full does not
//! split its table: the newcomer goes to a table with the next finer mask.
//!
//! *Cost.* Look-up: a row of bits per dimension, then a hash look-up per table left; no allocation.
//! Insert, remove: a pass over the tables' masks, and some ordered-map steps. Memory: at most
//! `MAX_TABLES` tables, whose slots are at most four times their filters.

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

use super::prune::{PLANE, Prune};
use crate::packet::key::fold;

/// Beyond this many, filters go to any table that can hold them, however long the chain.
pub const MAX_TABLES: usize = 256;
/// Filters that share a chain, as long as a finer table can be had.
const CHAIN: u32 = 6;
/// No entry.
const NONE: u32 = u32::MAX;

/// How a filter's mask is made wider: coarsest first; the last must be the mask itself.
pub type Relax<const N: usize> = fn(&[u64; N], level: usize) -> [u64; N];
/// Levels of [`Relax`], the exact one included.
pub const LEVELS: usize = 3;

/// A filter in its table.
#[derive(Clone)]
pub struct Entry<const N: usize> {
    value: [u64; N],
    mask: [u64; N],
    rank: u128,
    next: u32,
    /// The class that it leads to.
    pub class: u32,
    /// The filter that it is.
    pub filter: u32,
}

impl<const N: usize> Entry<N> {
    #[inline(always)]
    fn matches(&self, packet: &[u64; N]) -> bool {
        let asked = self.value.iter().zip(&self.mask);
        let differ = packet.iter().zip(asked).fold(0, |all, (p, (v, m))| all | ((p ^ v) & m));
        differ == 0
    }
}

/// The chain of the filters that agree under the table's mask.
#[derive(Clone, Copy)]
struct Slot {
    head: u32,
    /// The hash; its low bits are the place where the search for the slot begins.
    tag: u32,
}

const EMPTY: Slot = Slot { head: NONE, tag: 0 };
const FIRST_SLOTS: usize = 8;

#[derive(Clone)]
struct Table<const N: usize> {
    mask: [u64; N],
    /// A power of two of them, at most half in use; collisions go to the next free one.
    slots: Vec<Slot>,
    /// How long the chain of each slot is.
    lens: Vec<u32>,
    used: usize,
    /// Bits asked for.
    bits: u32,
}

/// Counted work of one search, for the tests that prove it sublinear.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Work {
    /// Tables looked into.
    pub probes: u64,
    /// Filters compared.
    pub compares: u64,
}

/// Somebody who counts; the unit counter costs nothing.
pub trait Count {
    /// A table was looked into.
    fn probe(&mut self) {}
    /// A filter was compared.
    fn compare(&mut self) {}
}
impl Count for () {}
impl Count for Work {
    fn probe(&mut self) {
        self.probes += 1;
    }
    fn compare(&mut self) {
        self.compares += 1;
    }
}

/// The filters of one family.
#[derive(Clone)]
pub struct Tables<const N: usize> {
    /// The rank of the best filter of each table; 0 for none.
    best: Vec<u128>,
    tables: Vec<Table<N>>,
    entries: Vec<Entry<N>>,
    prune: Prune,
    /// The ranks in each table, to know the best that is left when one goes.
    ranks: Vec<BTreeSet<u128>>,
    free_entries: Vec<u32>,
    free_tables: Vec<usize>,
    relax: Relax<N>,
}

#[inline(always)]
fn masked<const N: usize>(words: &[u64; N], mask: &[u64; N]) -> [u64; N] {
    core::array::from_fn(|i| words[i] & mask[i])
}

/// Pairs of words through one product each. Only filters enter the tables, so packets made to
/// collide find at most the chains that the operator's own filters form.
#[inline(always)]
fn hash<const N: usize>(words: &[u64; N]) -> u32 {
    let mut h = 0;
    let mut i = 0;
    while i < N {
        let second = if i + 1 < N { words[i + 1] } else { 0 };
        h ^= fold(words[i] ^ HASH_KEYS[i], second ^ HASH_KEYS[i + 1]);
        i += 2;
    }
    (h ^ (h >> 32)) as u32
}

/// Odd numbers without pattern, one for each word and one to spare.
const HASH_KEYS: [u64; 8] = [
    0x6a09_e667_f3bc_c909,
    0xbb67_ae85_84ca_a73b,
    0x3c6e_f372_fe94_f82b,
    0xa54f_f53a_5f1d_36f1,
    0x510e_527f_ade6_82d1,
    0x9b05_688c_2b3e_6c1f,
    0x1f83_d9ab_fb41_bd6b,
    0x5be0_cd19_137e_2179,
];

impl<const N: usize> Table<N> {
    fn new(mask: [u64; N]) -> Self {
        let bits = mask.iter().map(|word| word.count_ones()).sum();
        Table { mask, slots: vec![EMPTY; FIRST_SLOTS], lens: vec![0; FIRST_SLOTS], used: 0, bits }
    }

    /// The slot of this hash, or the empty one where it would go. Slots are at most half full, so
    /// there is an empty one.
    #[inline(always)]
    fn find(&self, hash: u32) -> (usize, u32) {
        let last = self.slots.len() - 1;
        let mut at = hash as usize & last;
        loop {
            let slot = self.slots[at];
            if slot.head == NONE || slot.tag == hash {
                return (at, slot.head);
            }
            at = (at + 1) & last;
        }
    }

    /// The first filter that agrees with the words under the table's mask.
    #[inline(always)]
    fn chain(&self, words: &[u64; N]) -> u32 {
        self.find(hash(&masked(words, &self.mask))).1
    }

    fn grow(&mut self) {
        let size = self.slots.len() * 2;
        let slots = core::mem::replace(&mut self.slots, vec![EMPTY; size]);
        let lens = core::mem::replace(&mut self.lens, vec![0; size]);
        for (slot, len) in slots.into_iter().zip(lens).filter(|(slot, _)| slot.head != NONE) {
            let (at, _) = self.find(slot.tag);
            self.slots[at] = slot;
            self.lens[at] = len;
        }
    }

    /// Empties a slot and moves back those that had to step over it.
    fn close_gap(&mut self, mut hole: usize) {
        let last = self.slots.len() - 1;
        let distance = |from: usize, to: usize| to.wrapping_sub(from) & last;
        let mut at = (hole + 1) & last;
        while self.slots[at].head != NONE {
            let home = self.slots[at].tag as usize & last;
            if distance(home, at) >= distance(hole, at) {
                self.slots[hole] = self.slots[at];
                self.lens[hole] = self.lens[at];
                hole = at;
            }
            at = (at + 1) & last;
        }
        self.slots[hole] = EMPTY;
        self.lens[hole] = 0;
        self.used -= 1;
    }
}

impl<const N: usize> Tables<N> {
    /// No filters yet.
    pub fn new(prune: Prune, relax: Relax<N>) -> Self {
        Tables {
            best: Vec::new(),
            tables: Vec::new(),
            entries: Vec::new(),
            prune,
            ranks: Vec::new(),
            free_entries: Vec::new(),
            free_tables: Vec::new(),
            relax,
        }
    }

    /// Tables in use.
    pub fn tables(&self) -> usize {
        self.tables.len() - self.free_tables.len()
    }

    /// The best filter that matches.
    #[inline(always)]
    pub fn search<C: Count>(&self, packet: &[u64; N], count: &mut C) -> Option<&Entry<N>> {
        let mut found = None;
        let mut found_rank = 0;
        for plane in 0..self.prune.planes() {
            let mut candidates = self.prune.candidates(plane, packet);
            while candidates != 0 {
                let table = plane * PLANE + candidates.trailing_zeros() as usize;
                candidates &= candidates - 1;
                if self.best[table] <= found_rank {
                    continue;
                }
                count.probe();
                let table = &self.tables[table];
                let mut at = table.chain(packet);
                while at != NONE {
                    let entry = &self.entries[at as usize];
                    if entry.rank <= found_rank {
                        break;
                    }
                    count.compare();
                    if entry.matches(packet) {
                        found = Some(entry);
                        found_rank = entry.rank;
                        break;
                    }
                    at = entry.next;
                }
            }
        }
        found
    }

    /// Every filter that matches, in no order.
    pub fn for_each_match(&self, packet: &[u64; N], each: &mut dyn FnMut(u32)) {
        for plane in 0..self.prune.planes() {
            let mut candidates = self.prune.candidates(plane, packet);
            while candidates != 0 {
                let table = &self.tables[plane * PLANE + candidates.trailing_zeros() as usize];
                candidates &= candidates - 1;
                let mut at = table.chain(packet);
                while at != NONE {
                    let entry = &self.entries[at as usize];
                    if entry.matches(packet) {
                        each(entry.filter);
                    }
                    at = entry.next;
                }
            }
        }
    }

    /// Adds a filter; `rank` is above 0 and unlike that of any other.
    pub fn insert(&mut self, value: [u64; N], mask: [u64; N], rank: u128, class: u32, filter: u32) {
        let table = self.choose(&value, &mask);
        let entry = Entry { value, mask, rank, next: NONE, class, filter };
        let id = match self.free_entries.pop() {
            Some(id) => {
                self.entries[id as usize] = entry;
                id
            }
            None => {
                self.entries.push(entry);
                (self.entries.len() - 1) as u32
            }
        };
        self.link(table, id);
        self.prune.add(table, &value, &mask);
        self.ranks[table].insert(rank);
        self.best[table] = self.best[table].max(rank);
    }

    /// Takes out the filter of this rank and these words; answers whether it was there.
    pub fn remove(&mut self, value: &[u64; N], mask: &[u64; N], rank: u128) -> bool {
        for table in 0..self.tables.len() {
            if covers(mask, &self.tables[table].mask) && self.ranks[table].remove(&rank) {
                self.unlink(table, value, rank);
                self.prune.remove(table, value, mask);
                self.best[table] = self.ranks[table].last().copied().unwrap_or(0);
                if self.best[table] == 0 {
                    self.tables[table] = Table::new([0; N]);
                    self.free_tables.push(table);
                }
                return true;
            }
        }
        false
    }

    /// The table for a filter: the finest that has room on the filter's chain; else a new one, as
    /// coarse as there is none yet; else, with equal filters or too many tables, a long chain.
    fn choose(&mut self, value: &[u64; N], mask: &[u64; N]) -> usize {
        let mut roomy = None;
        let mut any = None;
        for (i, table) in self.tables.iter().enumerate() {
            if self.best[i] == 0 || !covers(mask, &table.mask) {
                continue;
            }
            let place = Some((table.bits, i));
            any = any.max(place);
            if place > roomy {
                let (at, _) = table.find(hash(&masked(value, &table.mask)));
                if table.lens[at] < CHAIN {
                    roomy = place;
                }
            }
        }
        if let Some((_, table)) = roomy {
            return table;
        }
        let live = |table: usize| self.best[table] != 0;
        let is_new =
            |wider: &[u64; N]| !self.tables.iter().enumerate().any(|(i, t)| live(i) && t.mask == *wider);
        let has_room = self.tables() < MAX_TABLES - 1;
        let new_mask = (0..LEVELS).map(|level| (self.relax)(mask, level)).find(|m| has_room && is_new(m));
        match (new_mask, any) {
            (Some(new_mask), _) => self.open(new_mask),
            (None, Some((_, table))) => table,
            // Only the last of the tables is left to take what fits nowhere: it asks for nothing.
            (None, None) => self.open([0; N]),
        }
    }

    fn open(&mut self, mask: [u64; N]) -> usize {
        match self.free_tables.pop() {
            Some(table) => {
                self.tables[table] = Table::new(mask);
                table
            }
            None => {
                self.tables.push(Table::new(mask));
                self.best.push(0);
                self.ranks.push(BTreeSet::new());
                self.tables.len() - 1
            }
        }
    }

    /// Puts an entry on its chain, before the first of lower rank.
    fn link(&mut self, table: usize, id: u32) {
        let table = &mut self.tables[table];
        if (table.used + 1) * 2 > table.slots.len() {
            table.grow();
        }
        let (value, rank) = (self.entries[id as usize].value, self.entries[id as usize].rank);
        let tag = hash(&masked(&value, &table.mask));
        let (at, head) = table.find(tag);
        table.used += usize::from(head == NONE);
        let (mut before, mut after) = (NONE, head);
        while after != NONE && self.entries[after as usize].rank > rank {
            (before, after) = (after, self.entries[after as usize].next);
        }
        self.entries[id as usize].next = after;
        if before == NONE {
            table.slots[at] = Slot { head: id, tag };
        } else {
            self.entries[before as usize].next = id;
        }
        table.lens[at] += 1;
    }

    /// Takes the entry of this rank off its chain.
    fn unlink(&mut self, table: usize, value: &[u64; N], rank: u128) {
        let table = &mut self.tables[table];
        let (at, head) = table.find(hash(&masked(value, &table.mask)));
        let (mut before, mut id) = (NONE, head);
        while id != NONE && self.entries[id as usize].rank != rank {
            (before, id) = (id, self.entries[id as usize].next);
        }
        if id == NONE {
            return;
        }
        let next = self.entries[id as usize].next;
        if before != NONE {
            self.entries[before as usize].next = next;
        } else {
            table.slots[at].head = next;
        }
        table.lens[at] -= 1;
        if table.lens[at] == 0 {
            table.close_gap(at);
        }
        self.free_entries.push(id);
    }
}

/// Whether a filter with `mask` may lie in a table with `wider`: the table asks for nothing more.
fn covers<const N: usize>(mask: &[u64; N], wider: &[u64; N]) -> bool {
    (0..N).all(|i| wider[i] & !mask[i] == 0)
}
