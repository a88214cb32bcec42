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
//! *Cost.* Look-up: a row of bits per dimension, a byte compare per table left, a cache line per
//! filter on the chains found; no allocation. Insert, remove: a pass over the tables' masks, and
//! some ordered-map steps. Memory: at most [`MAX_TABLES`] tables, whose slots are at most four
//! times their chains.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::filter::Rank;
use super::prune::{PLANE, Prune};
use super::slots::{NONE, Slots};
use crate::packet::key::fold;

/// Beyond this many, filters go to any table that can hold them, however long the chain.
pub const MAX_TABLES: usize = 256;
/// Filters that share a chain, as long as a finer table can be had.
const CHAIN: u32 = 4;
/// Tables whose tags are compared before the first filter is.
const GROUP: usize = 8;

/// How a filter's mask is made wider: coarsest first; the last must be the mask itself.
pub type Relax<const N: usize> = fn(&[u64; N], level: usize) -> [u64; N];
/// Levels of [`Relax`], the exact one included.
pub const LEVELS: usize = 3;

/// A filter in its table: one cache line in IPv4, two in IPv6.
#[derive(Clone)]
#[repr(align(64))]
struct Entry<const N: usize> {
    value: [u64; N],
    mask: [u64; N],
    rank: u64,
    next: u32,
    filter: u32,
}

impl<const N: usize> Entry<N> {
    #[inline(always)]
    fn matches(&self, packet: &[u64; N]) -> bool {
        let asked = self.value.iter().zip(&self.mask);
        let differ = packet.iter().zip(asked).fold(0, |all, (p, (v, m))| all | ((p ^ v) & m));
        differ == 0
    }
}

#[derive(Clone)]
struct Table<const N: usize> {
    mask: [u64; N],
    slots: Slots,
    /// Bits asked for.
    bits: u32,
    /// The rank of the best filter.
    best: u64,
}

impl<const N: usize> Table<N> {
    fn new(mask: [u64; N]) -> Self {
        let bits = mask.iter().map(|word| word.count_ones()).sum();
        Table { mask, slots: Slots::new(), bits, best: 0 }
    }

    /// Pairs of words through one product each; an odd one joins the first pair. Only filters enter the tables, so packets made to
    /// collide find at most the chains that the operator's own filters form.
    #[inline(always)]
    fn hash(&self, words: &[u64; N]) -> u32 {
        let word = |i: usize| words[i] & self.mask[i];
        let odd = if N % 2 == 1 { word(N - 1).wrapping_mul(HASH_KEYS[N]) } else { 0 };
        let mut h = fold(word(0) ^ HASH_KEYS[0], word(1) ^ HASH_KEYS[1] ^ odd);
        for i in (3..N).step_by(2) {
            h ^= fold(word(i - 1) ^ HASH_KEYS[i - 1], word(i) ^ HASH_KEYS[i]);
        }
        (h ^ (h >> 32)) as u32
    }
}

/// Numbers without pattern, one for each word and one to spare.
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
    tables: Vec<Table<N>>,
    entries: Vec<Entry<N>>,
    prune: Prune,
    /// When each entry came: decides between equal ranks, which only filters of one line have.
    sequences: Vec<u64>,
    /// The ranks in each table, to know the best that is left when one goes; empty if unused.
    ranks: Vec<BTreeSet<Rank>>,
    free_entries: Vec<u32>,
    free_tables: Vec<usize>,
    relax: Relax<N>,
}

impl<const N: usize> Tables<N> {
    /// No filters yet.
    pub fn new(prune: Prune, relax: Relax<N>) -> Self {
        Tables {
            tables: Vec::new(),
            entries: Vec::new(),
            prune,
            sequences: Vec::new(),
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
    pub fn search<C: Count>(&self, packet: &[u64; N], count: &mut C) -> Option<u32> {
        let mut found = NONE;
        let mut found_rank = 0;
        for plane in 0..self.prune.planes() {
            let mut candidates = self.prune.candidates(plane, packet);
            while candidates != 0 {
                // First the tags of a group of tables, without a branch on what is found, so that
                // these steps overlap; then the chains.
                let mut hits = [(0u32, 0u32); GROUP];
                let mut hit_count = 0;
                let mut room = GROUP;
                while candidates != 0 && room > 0 {
                    let table = plane * PLANE + candidates.trailing_zeros() as usize;
                    candidates &= candidates - 1;
                    let (id, table) = (table as u32, &self.tables[table]);
                    if table.best < found_rank {
                        continue;
                    }
                    room -= 1;
                    count.probe();
                    let hash = table.hash(packet);
                    hits[hit_count % GROUP] = (id, hash);
                    hit_count += usize::from(table.slots.may_hold(hash));
                }
                for &(table, hash) in &hits[..hit_count] {
                    let head = self.tables[table as usize].slots.find(hash).head;
                    (found, found_rank) = self.search_chain(head, packet, (found, found_rank), count);
                }
            }
        }
        (found != NONE).then(|| self.entries[found as usize].filter)
    }

    /// The first on the chain that matches, if it beats the best so far. Chains are in order.
    #[inline(always)]
    fn search_chain<C: Count>(
        &self,
        head: u32,
        packet: &[u64; N],
        found: (u32, u64),
        count: &mut C,
    ) -> (u32, u64) {
        let mut at = head;
        while at != NONE {
            let entry = &self.entries[at as usize];
            if entry.rank < found.1 {
                break;
            }
            count.compare();
            if entry.matches(packet) {
                let ties = entry.rank == found.1 && found.0 != NONE;
                let beaten = ties && self.sequences[at as usize] < self.sequences[found.0 as usize];
                return if beaten { found } else { (at, entry.rank) };
            }
            at = entry.next;
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
                let mut at = table.slots.find(table.hash(packet)).head;
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

    /// Adds a filter; no other has its rank.
    pub fn insert(&mut self, value: [u64; N], mask: [u64; N], rank: Rank, filter: u32) {
        let table = self.choose(&value, &mask);
        let entry = Entry { value, mask, rank: rank.key, next: NONE, filter };
        let id = match self.free_entries.pop() {
            Some(id) => {
                self.entries[id as usize] = entry;
                self.sequences[id as usize] = rank.sequence;
                id
            }
            None => {
                self.entries.push(entry);
                self.sequences.push(rank.sequence);
                (self.entries.len() - 1) as u32
            }
        };
        self.link(table, id, rank);
        self.prune.add(table, &value, &mask);
        self.ranks[table].insert(rank);
        self.tables[table].best = self.tables[table].best.max(rank.key);
    }

    /// Takes out the filter of this rank and these words, if it is there.
    pub fn remove(&mut self, value: &[u64; N], mask: &[u64; N], rank: Rank) {
        let holds =
            |&table: &usize| covers(mask, &self.tables[table].mask) && self.ranks[table].contains(&rank);
        let Some(table) = (0..self.tables.len()).find(holds) else { return };
        self.unlink(table, value, rank);
        self.prune.remove(table, value, mask);
        self.ranks[table].remove(&rank);
        match self.ranks[table].last() {
            Some(best) => self.tables[table].best = best.key,
            None => {
                self.tables[table] = Table::new([0; N]);
                self.free_tables.push(table);
            }
        }
    }

    /// The table for a filter: the finest that has room on the filter's chain; else a new one, as
    /// coarse as there is none yet; else, with equal filters or too many tables, a long chain.
    fn choose(&mut self, value: &[u64; N], mask: &[u64; N]) -> usize {
        let live = |table: &usize| !self.ranks[*table].is_empty();
        let (mut roomy, mut any) = (None, None);
        for i in (0..self.tables.len()).filter(live) {
            let table = &self.tables[i];
            if !covers(mask, &table.mask) {
                continue;
            }
            let place = Some((table.bits, i));
            any = any.max(place);
            if place > roomy && table.slots.len(table.hash(value)) < CHAIN {
                roomy = place;
            }
        }
        if let Some((_, table)) = roomy {
            return table;
        }
        let is_new = |wider: &[u64; N]| {
            !(0..self.tables.len()).filter(live).any(|table| self.tables[table].mask == *wider)
        };
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
        if let Some(table) = self.free_tables.pop() {
            self.tables[table] = Table::new(mask);
            return table;
        }
        self.tables.push(Table::new(mask));
        self.ranks.push(BTreeSet::new());
        self.tables.len() - 1
    }

    /// Puts an entry on its chain, before the first of lower rank.
    fn link(&mut self, table: usize, id: u32, rank: Rank) {
        let table = &mut self.tables[table];
        table.slots.reserve();
        let hash = table.hash(&self.entries[id as usize].value);
        let place = table.slots.find(hash);
        let (mut before, mut after) = (NONE, place.head);
        while after != NONE && rank_of(&self.entries, &self.sequences, after) > rank {
            (before, after) = (after, self.entries[after as usize].next);
        }
        self.entries[id as usize].next = after;
        if before != NONE {
            self.entries[before as usize].next = id;
        }
        table.slots.joined(place, hash, if before == NONE { id } else { place.head });
    }

    /// Takes the entry of this rank off its chain.
    fn unlink(&mut self, table: usize, value: &[u64; N], rank: Rank) {
        let table = &mut self.tables[table];
        let place = table.slots.find(table.hash(value));
        let (mut before, mut id) = (NONE, place.head);
        while id != NONE && rank_of(&self.entries, &self.sequences, id) != rank {
            (before, id) = (id, self.entries[id as usize].next);
        }
        if id == NONE {
            return;
        }
        let next = self.entries[id as usize].next;
        if before != NONE {
            self.entries[before as usize].next = next;
        }
        table.slots.left(place, if before == NONE { next } else { place.head });
        self.free_entries.push(id);
    }
}

fn rank_of<const N: usize>(entries: &[Entry<N>], sequences: &[u64], id: u32) -> Rank {
    Rank { key: entries[id as usize].rank, sequence: sequences[id as usize] }
}

/// Whether a filter with `mask` may lie in a table with `wider`: the table asks for nothing more.
fn covers<const N: usize>(mask: &[u64; N], wider: &[u64; N]) -> bool {
    mask.iter().zip(wider).all(|(mask, wider)| wider & !mask == 0)
}
