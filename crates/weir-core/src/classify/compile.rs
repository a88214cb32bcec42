//! Many filters, compiled: a search that does not grow with their number as a list would.
//!
//! Each family has its own `Tables`; a packet of it is packed into three words (IPv4) or six
//! (IPv6), and so are the values and masks of its filters:
//!
//! ```text
//! IPv4  0: dst 32 | src 32        1: dst port 16 | src port 16 | protocol 8 | tos 8 | 0    2: spi
//! IPv6  0,1: dst   2,3: src       4: as 1 above                                5: flow label | spi
//! ```
//!
//! *Why this search.* Filters have no ranges, only masked values, so hashing fits; decision trees
//! and bit vectors are as fast to ask but slow to change. Measured with `examples/classify_cost.rs`
//! on an access-list-like mix of 10,000 five-tuple filters, on one core: merged tuples in order of
//! their best filter 190 ns a packet; with one byte of hash per chain looked at first, and a filter
//! in one cache line, 120 ns; chains of up to 4 filters beat 2, 3, 6 and 10. Without pruning every
//! search would look into all 20 tables instead of 9. Of 100 filters 21 ns, of 1,000 53 ns; exact
//! five-tuples 19 to 24 ns at any size. A filter comes or goes in about 1 microsecond; now and then
//! a table doubles its slots, which takes as long as it has chains. Where thousands of netmasks have
//! holes and no two are alike, nothing merges: the tables stay bounded, and the search is a list again.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;

use super::field::{Field, Fields};
use super::filter::{Filter, Rank};
use super::prune::{DIMENSIONS, Dimension, Prune};
use super::tables::{Count, Tables, Work};
use crate::packet::key::{Family, Key};

/// A filter inside a classifier, until it is removed; then the number may be given again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct FilterId(u32);

impl FilterId {
    /// As an index: below the largest number of filters that there ever were at once.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The filter that takes a packet, and where to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Match {
    /// The filter's class.
    pub class: u32,
    /// The filter.
    pub filter: FilterId,
}

/// A set of filters, ready to be asked.
#[derive(Clone)]
pub struct Classifier {
    v4: Tables<3>,
    v6: Tables<6>,
    filters: Vec<Option<(Rank, Filter)>>,
    /// The class of each filter once more, close together.
    classes: Vec<u32>,
    free: Vec<u32>,
    by_rank: BTreeMap<Rank, FilterId>,
    sequence: u64,
}

impl Default for Classifier {
    fn default() -> Self {
        Self::empty()
    }
}

impl fmt::Debug for Classifier {
    /// The filters in the order of precedence; the tables say nothing to people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.filters()).finish()
    }
}

impl Classifier {
    /// Without filters: nothing matches.
    pub fn empty() -> Self {
        Classifier {
            v4: Tables::new(Prune::new(DIMENSIONS_V4), relax_v4),
            v6: Tables::new(Prune::new(DIMENSIONS_V6), relax_v6),
            filters: Vec::new(),
            classes: Vec::new(),
            free: Vec::new(),
            by_rank: BTreeMap::new(),
            sequence: 0,
        }
    }

    /// With these filters; their ids count up from 0 in the order given.
    pub fn compile(filters: impl IntoIterator<Item = Filter>) -> Self {
        let mut classifier = Self::empty();
        for filter in filters {
            classifier.insert(filter);
        }
        classifier
    }

    /// Adds a filter. Among filters of equal `ruleno`, kind and `order` the later added is asked first.
    pub fn insert(&mut self, filter: Filter) -> FilterId {
        self.sequence += 1;
        let rank = filter.rank(self.sequence);
        let id = match self.free.pop() {
            Some(id) => id,
            None => {
                self.filters.push(None);
                self.classes.push(0);
                (self.filters.len() - 1) as u32
            }
        };
        match filter.family() {
            Family::V4 => {
                let (value, mask) = (pack_v4(filter.value()), pack_v4(filter.mask()));
                self.v4.insert(value, mask, rank, id);
            }
            Family::V6 => {
                let (value, mask) = (pack_v6(filter.value()), pack_v6(filter.mask()));
                self.v6.insert(value, mask, rank, id);
            }
            Family::Other => {}
        }
        self.by_rank.insert(rank, FilterId(id));
        self.classes[id as usize] = filter.class;
        self.filters[id as usize] = Some((rank, filter));
        FilterId(id)
    }

    /// Takes a filter out; `None` if there is none of that id.
    pub fn remove(&mut self, id: FilterId) -> Option<Filter> {
        let (rank, filter) = self.filters.get_mut(id.index())?.take()?;
        match filter.family() {
            Family::V4 => {
                self.v4.remove(&pack_v4(filter.value()), &pack_v4(filter.mask()), rank);
            }
            Family::V6 => {
                self.v6.remove(&pack_v6(filter.value()), &pack_v6(filter.mask()), rank);
            }
            Family::Other => {}
        }
        self.by_rank.remove(&rank);
        self.free.push(id.0);
        Some(filter)
    }

    /// The first filter, in the order of precedence, that matches. Allocates nothing.
    #[inline]
    pub fn classify(&self, key: &Key) -> Option<Match> {
        self.search(key, &mut ())
    }

    /// As [`Classifier::classify`], and the work that it was.
    pub fn classify_counted(&self, key: &Key) -> (Option<Match>, Work) {
        let mut work = Work::default();
        (self.search(key, &mut work), work)
    }

    #[inline(always)]
    fn search<C: Count>(&self, key: &Key, count: &mut C) -> Option<Match> {
        let fields = Fields::of_key(key);
        let filter = match key.family {
            Family::V4 => self.v4.search(&pack_v4(&fields), count),
            Family::V6 => self.v6.search(&pack_v6(&fields), count),
            Family::Other => None,
        }?;
        Some(Match { class: self.classes[filter as usize], filter: FilterId(filter) })
    }

    /// Every filter that matches, in the order of precedence.
    pub fn all_matches(&self, key: &Key) -> Vec<FilterId> {
        let mut found = Vec::new();
        let fields = Fields::of_key(key);
        let mut each = |filter| found.push(FilterId(filter));
        match key.family {
            Family::V4 => self.v4.for_each_match(&pack_v4(&fields), &mut each),
            Family::V6 => self.v6.for_each_match(&pack_v6(&fields), &mut each),
            Family::Other => {}
        }
        found.sort_by_key(|&id| core::cmp::Reverse(self.rank(id)));
        found
    }

    /// A filter by its id.
    pub fn filter(&self, id: FilterId) -> Option<&Filter> {
        self.filters.get(id.index())?.as_ref().map(|(_, filter)| filter)
    }

    /// All filters in the order of precedence.
    pub fn filters(&self) -> impl Iterator<Item = (FilterId, &Filter)> {
        self.by_rank.values().rev().filter_map(|&id| Some((id, self.filter(id)?)))
    }

    /// How many filters there are.
    pub fn len(&self) -> usize {
        self.by_rank.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_rank.is_empty()
    }

    /// Hash tables in use, both families: what bounds the cost of a search.
    pub fn tables(&self) -> usize {
        self.v4.tables() + self.v6.tables()
    }

    pub(super) fn rank(&self, id: FilterId) -> Rank {
        self.filters.get(id.index()).and_then(|f| f.as_ref()).map_or(Rank::default(), |&(rank, _)| rank)
    }
}

#[inline(always)]
fn pack_ports(fields: &Fields) -> u64 {
    let narrow = |field| fields.get(field) as u64;
    (narrow(Field::DstPort) << 48)
        | (narrow(Field::SrcPort) << 32)
        | (narrow(Field::Protocol) << 24)
        | (narrow(Field::Tos) << 16)
}

#[inline(always)]
fn pack_v4(fields: &Fields) -> [u64; 3] {
    let addresses = ((fields.get(Field::Dst) as u64) << 32) | (fields.get(Field::Src) as u64 & 0xffff_ffff);
    [addresses, pack_ports(fields), fields.get(Field::Spi) as u64]
}

#[inline(always)]
fn pack_v6(fields: &Fields) -> [u64; 6] {
    let (dst, src) = (fields.get(Field::Dst), fields.get(Field::Src));
    let last = ((fields.get(Field::FlowLabel) as u64) << 32) | fields.get(Field::Spi) as u64;
    [(dst >> 64) as u64, dst as u64, (src >> 64) as u64, src as u64, pack_ports(fields), last]
}

const DST_PORT: u64 = 0xffff << 48;
const SRC_PORT: u64 = 0xffff << 32;
const PORTS: u64 = DST_PORT | SRC_PORT;
const PROTOCOL: u64 = 0xff << 24;

const fn dimension(word: usize, mask: u64) -> Dimension {
    Dimension { word, mask }
}

const DIMENSIONS_V4: [Dimension; DIMENSIONS] = [
    dimension(0, 0xff00_0000 << 32),
    dimension(0, 0xffff_0000 << 32),
    dimension(0, 0xffff_ff00 << 32),
    dimension(0, 0xffff_0000),
    dimension(0, 0xffff_ff00),
    dimension(1, DST_PORT),
    dimension(1, SRC_PORT),
    dimension(1, PROTOCOL),
];

const DIMENSIONS_V6: [Dimension; DIMENSIONS] = [
    dimension(0, 0xffff_ffff << 32),
    dimension(0, 0xffff_ffff_ffff << 16),
    dimension(0, u64::MAX),
    dimension(2, 0xffff_ffff << 32),
    dimension(2, 0xffff_ffff_ffff << 16),
    dimension(4, DST_PORT),
    dimension(4, SRC_PORT),
    dimension(4, PROTOCOL),
];

/// The longest of `steps` that the leading ones of an address mask reach, as a mask.
fn shorten(mask: u128, width: u32, steps: &[u32]) -> u128 {
    let leading = (mask << (128 - width)).leading_ones();
    let bits = steps.iter().copied().find(|&step| step <= leading).unwrap_or(0);
    if bits == 0 { 0 } else { (u128::MAX << (128 - bits)) >> (128 - width) }
}

fn relax_v4(mask: &[u64; 3], level: usize) -> [u64; 3] {
    let steps: &[u32] = match level {
        0 => &[16, 8],
        1 => &[24, 16, 8],
        _ => return *mask,
    };
    let dst = shorten(u128::from(mask[0] >> 32), 32, steps) as u64;
    let src = shorten(u128::from(mask[0] & 0xffff_ffff), 32, steps) as u64;
    [(dst << 32) | src, mask[1] & PORTS, 0]
}

fn relax_v6(mask: &[u64; 6], level: usize) -> [u64; 6] {
    let steps: &[u32] = match level {
        0 => &[48, 32],
        1 => &[64, 48, 32],
        _ => return *mask,
    };
    // Steps reach at most into the first half.
    let dst = shorten(u128::from(mask[0]) << 64, 128, steps);
    let src = shorten(u128::from(mask[2]) << 64, 128, steps);
    [(dst >> 64) as u64, 0, (src >> 64) as u64, 0, mask[4] & PORTS, 0]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table's mask is made wider to be shared: each address keeps the longest step that its prefix
    /// reaches, ports stay, and nothing that the mask does not ask for comes in.
    #[test]
    fn a_wider_mask_keeps_the_longest_step_of_each_prefix() {
        let prefix = |bits: u32, width: u32| -> u128 {
            let ones = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
            ones >> (128 - width)
        };
        let kept = |steps: &[u32], bits| steps.iter().copied().find(|&step| step <= bits).unwrap_or(0);
        let ports = PORTS | PROTOCOL;
        for (level, steps) in [(0, &[16, 8][..]), (1, &[24, 16, 8])] {
            for (dst, src) in (0..=32).flat_map(|dst| (0..=32).map(move |src| (dst, src))) {
                let word = |dst, src| ((prefix(dst, 32) as u64) << 32) | prefix(src, 32) as u64;
                let wider = relax_v4(&[word(dst, src), ports, u64::MAX], level);
                assert_eq!(wider, [word(kept(steps, dst), kept(steps, src)), PORTS, 0], "/{dst} /{src}");
            }
        }
        for (level, steps) in [(0, &[48, 32][..]), (1, &[64, 48, 32])] {
            for (dst, src) in (0..=128).step_by(4).flat_map(|dst| (0..=128).map(move |src| (dst, src))) {
                let words = |bits| [(prefix(bits, 128) >> 64) as u64, prefix(bits, 128) as u64];
                let ([d, d2], [s, s2]) = (words(dst), words(src));
                let wider = relax_v6(&[d, d2, s, s2, ports, u64::MAX], level);
                let (d, s) = (words(kept(steps, dst))[0], words(kept(steps, src))[0]);
                assert_eq!(wider, [d, 0, s, 0, PORTS, 0], "/{dst} /{src}");
            }
        }
        assert_eq!(relax_v4(&[u64::MAX; 3], 2), [u64::MAX; 3]);
        assert_eq!(relax_v6(&[u64::MAX; 6], 2), [u64::MAX; 6]);
    }
}
