//! Which filters some packets match both: for people who read a whole configuration.
//!
//! Filters that ask for the same bits differ in one of them or are equal. So filters are put into
//! groups by their masks, and two groups are joined on the bits that both ask for: what agrees there
//! overlaps. The work is the number of filters times that of the groups, and it has a limit.

use alloc::collections::{BTreeMap, BinaryHeap};
use alloc::vec::Vec;

use super::compile::{Classifier, FilterId};
use super::field::{Field, Fields};
use super::filter::{Filter, Relation, relation};
use crate::packet::key::Family;

/// Filters and pairs that are looked at, at most: about a second's work.
pub const MOST_STEPS: u64 = 20_000_000;

/// Pairs of filters that some packets match both.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Overlaps {
    /// The first of them in the order of precedence, the filter that is asked first at the left.
    pub pairs: Vec<(FilterId, FilterId)>,
    /// How many more there are.
    pub left_out: u64,
    /// False if the search ended at [`MOST_STEPS`]: there may be more.
    pub complete: bool,
}

/// A filter, and how many are asked before it.
#[derive(Clone, Copy)]
struct Row<'a> {
    at: u32,
    id: FilterId,
    filter: &'a Filter,
}

/// Two filters.
type Pair = (FilterId, FilterId);

/// Filters of one family that ask for the same bits.
struct Group<'a> {
    family: Family,
    mask: Fields,
    rows: Vec<Row<'a>>,
}

fn groups<'a>(rows: impl Iterator<Item = Row<'a>>) -> Vec<Group<'a>> {
    let mut by_mask: BTreeMap<(bool, [u128; Field::ALL.len()]), Group<'a>> = BTreeMap::new();
    for row in rows {
        let (family, mask) = (row.filter.family(), *row.filter.mask());
        let key = (family == Family::V6, Field::ALL.map(|field| mask.get(field)));
        by_mask.entry(key).or_insert_with(|| Group { family, mask, rows: Vec::new() }).rows.push(row);
    }
    by_mask.into_values().collect()
}

/// The values of the bits that both masks ask for, in one word: equal where those are equal.
fn digest(filter: &Filter, [a, b]: [&Fields; 2]) -> u64 {
    Field::ALL.into_iter().fold(0, |sum: u64, field| {
        let bits = filter.value().get(field) & a.get(field) & b.get(field);
        let mixed = (sum ^ bits as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ (mixed >> 29) ^ (bits >> 64) as u64).wrapping_mul(0xbf58_476d_1ce4_e5b9).rotate_left(31)
    })
}

/// Calls `found` with every two filters of the groups that may overlap. False once the work is too much.
fn join<'a>([a, b]: [&Group<'a>; 2], steps: &mut u64, found: &mut dyn FnMut(Row<'a>, Row<'a>)) -> bool {
    if a.family != b.family {
        return true;
    }
    *steps += (a.rows.len() + b.rows.len()) as u64;
    if *steps > MOST_STEPS {
        return false;
    }
    let masks = [&a.mask, &b.mask];
    let sorted = |group: &Group<'a>| {
        let mut all: Vec<(u64, Row<'a>)> =
            group.rows.iter().map(|row| (digest(row.filter, masks), *row)).collect();
        all.sort_by_key(|(digest, row)| (*digest, row.at));
        all
    };
    let (left, right) = (sorted(a), sorted(b));
    let mut start = 0;
    for (digest, row) in left {
        while right.get(start).is_some_and(|(other, _)| *other < digest) {
            start += 1;
        }
        for (_, other) in right[start..].iter().take_while(|(other, _)| *other == digest) {
            *steps += 1;
            if *steps > MOST_STEPS {
                return false;
            }
            found(row, *other);
        }
    }
    true
}

/// Pairs of filters of different classes that intersect ([`Relation::Intersect`]): the first `most`
/// in the order of precedence. Filters for which `known` holds are left out.
pub fn intersections(classifier: &Classifier, most: usize, known: &dyn Fn(FilterId) -> bool) -> Overlaps {
    let rows = (0..).zip(classifier.filters()).map(|(at, (id, filter))| Row { at, id, filter });
    let groups = groups(rows.filter(|row| row.filter.family() != Family::Other && !known(row.id)));
    let mut first: BinaryHeap<(u32, u32, FilterId, FilterId)> = BinaryHeap::new();
    let (mut steps, mut count, mut complete) = (0, 0u64, true);
    // Two filters of one group are equal or disjoint.
    'pairs: for (n, a) in groups.iter().enumerate() {
        for b in &groups[n + 1..] {
            let mut each = |x: Row<'_>, y: Row<'_>| {
                let (x, y) = if x.at < y.at { (x, y) } else { (y, x) };
                if x.filter.class != y.filter.class && relation(x.filter, y.filter) == Relation::Intersect {
                    count += 1;
                    first.push((x.at, y.at, x.id, y.id));
                    if first.len() > most {
                        first.pop();
                    }
                }
            };
            if !join([a, b], &mut steps, &mut each) {
                complete = false;
                break 'pairs;
            }
        }
    }
    let pairs: Vec<_> = first.into_sorted_vec().into_iter().map(|(_, _, x, y)| (x, y)).collect();
    Overlaps { left_out: count - pairs.len() as u64, pairs, complete }
}

/// For each filter for which `late` holds, the first of the others that precedes it, overlaps it and is
/// of another class. Within [`MOST_STEPS`], in the order of precedence of the late ones.
pub(super) fn first_before(classifier: &Classifier, late: &dyn Fn(&Filter) -> bool) -> Vec<Pair> {
    let rows: Vec<Row<'_>> = (0..)
        .zip(classifier.filters())
        .map(|(at, (id, filter))| Row { at, id, filter })
        .filter(|row| row.filter.family() != Family::Other)
        .collect();
    // A late filter counts only behind one of the others, and these only before a late one.
    let Some(start) = rows.iter().find(|row| !late(row.filter)).map(|row| row.at) else { return Vec::new() };
    let behind = groups(rows.iter().copied().filter(|row| row.at > start && late(row.filter)));
    let end = behind.iter().filter_map(|group| group.rows.last()).map(|row| row.at).max().unwrap_or(0);
    let others = groups(rows.iter().copied().filter(|row| row.at < end && !late(row.filter)));
    // By position of the late filter: it, and the position of the other.
    let mut best: BTreeMap<u32, (FilterId, u32, FilterId)> = BTreeMap::new();
    let mut steps = 0;
    'pairs: for a in &behind {
        for b in &others {
            let mut each = |filter: Row<'_>, other: Row<'_>| {
                if other.at < filter.at
                    && other.filter.class != filter.filter.class
                    && best.get(&filter.at).is_none_or(|(_, found, _)| other.at < *found)
                    && relation(other.filter, filter.filter) != Relation::Disjoint
                {
                    best.insert(filter.at, (filter.id, other.at, other.id));
                }
            };
            if !join([a, b], &mut steps, &mut each) {
                break 'pairs;
            }
        }
    }
    best.into_values().map(|(filter, _, other)| (filter, other)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    /// What the two functions find, by looking at every pair.
    fn by_pairs(c: &Classifier) -> (Vec<Pair>, Vec<Pair>) {
        let all: Vec<(FilterId, &Filter)> = c.filters().collect();
        let (mut crossing, mut before) = (Vec::new(), Vec::new());
        for (at, (id, filter)) in all.iter().enumerate() {
            for (other, f) in &all[at + 1..] {
                if f.class != filter.class && relation(filter, f) == Relation::Intersect {
                    crossing.push((*id, *other));
                }
            }
            let overlaps = |f: &Filter| f.class != filter.class && relation(f, filter) != Relation::Disjoint;
            let first = all[..at].iter().find(|(_, f)| !f.is_host() && overlaps(f));
            before.extend(first.filter(|_| filter.is_host()).map(|(other, _)| (*id, *other)));
        }
        (crossing, before)
    }

    #[test]
    fn finds_what_a_look_at_every_pair_finds() {
        for seed in weir_seed::seeds(200) {
            let mut random = Random::new(seed);
            let mut below = |n: u64| random.next_u64() % n;
            let mut c = Classifier::empty();
            for order in 0..60 {
                let family = if below(4) == 0 { Family::V6 } else { Family::V4 };
                let width = if family == Family::V4 { 32 } else { 128 };
                let mut filter = Filter::new(family, below(3) as u32, order).ruleno(below(3) as i32 - 1);
                for field in [Field::Dst, Field::Src] {
                    let length = [0, width - 1, width][below(3) as usize];
                    filter = filter.prefix(field, 0x0a00_0000 + u128::from(below(4)), length);
                }
                for field in [Field::DstPort, Field::SrcPort] {
                    filter = filter.exactly(field, u128::from(below(3)));
                }
                c.insert(filter.with(Field::Tos, u128::from(below(4)), u128::from(below(4))));
            }
            let (crossing, before) = by_pairs(&c);
            let found = intersections(&c, usize::MAX, &|_| false);
            assert_eq!(
                (found.pairs, found.left_out, found.complete),
                (crossing.clone(), 0, true),
                "seed {seed}"
            );
            let found = intersections(&c, 5, &|_| false);
            assert_eq!(found.pairs, crossing[..crossing.len().min(5)], "seed {seed}");
            assert_eq!(found.left_out, crossing.len().saturating_sub(5) as u64, "seed {seed}");
            assert_eq!(first_before(&c, &Filter::is_host), before, "seed {seed}");
        }
    }

    #[test]
    fn too_much_work_ends() {
        // Every pair of a source and a destination filter intersects: 25 million.
        let mut c = Classifier::empty();
        for n in 0..5_000 {
            c.insert(Filter::new(Family::V4, 1, 2 * n).exactly(Field::Dst, u128::from(n + 1)));
            c.insert(Filter::new(Family::V4, 2, 2 * n + 1).exactly(Field::Src, u128::from(n + 1)));
        }
        let found = intersections(&c, 3, &|_| false);
        assert_eq!((found.pairs.len(), found.complete), (3, false));
        assert!(found.left_out < MOST_STEPS);
    }
}
