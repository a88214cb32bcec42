//! Which contract an address belongs to: the one with the longest prefix that holds it.
//!
//! Principle: prefixes either contain one another or are disjoint, so they cut the addresses into
//! intervals with one answer each. The intervals stand in order, and a binary search finds the one. It
//! takes as many steps however long the prefixes are.
//! Cost: log2 of twice the number of prefixes comparisons; 24 bytes for each interval.

use alloc::vec::Vec;
use weir_core::packet::Family;

/// A prefix of addresses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Prefix {
    /// True for IPv6.
    pub v6: bool,
    /// The address, IPv4 in the low 32 bits; bits beyond `length` are 0.
    pub address: u128,
    /// 0 to 32, or to 128.
    pub length: u8,
}

impl Prefix {
    /// The prefix of this length that `address` is in.
    pub fn new(v6: bool, address: u128, length: u8) -> Self {
        let width = if v6 { 128 } else { 32 };
        let length = length.min(width);
        let host = u32::from(width - length);
        let below = if host == 128 { u128::MAX } else { (1u128 << host) - 1 };
        Prefix { v6, address: address & !below, length }
    }
    /// Its last address.
    pub fn last(&self) -> u128 {
        let host = u32::from(if self.v6 { 128 } else { 32 } - self.length);
        self.address | if host == 128 { u128::MAX } else { (1u128 << host) - 1 }
    }
    /// Whether `other` lies within it.
    pub fn contains(&self, other: &Prefix) -> bool {
        self.v6 == other.v6 && self.address <= other.address && other.last() <= self.last()
    }
}

/// Where an interval begins, and whose it is.
type Start = (u128, Option<u32>);

/// The table of both families.
#[derive(Clone, Debug, Default)]
pub struct Table {
    starts: [Vec<Start>; 2],
}

impl Table {
    /// A table of prefixes, each with the number that a look-up answers. Of two equal prefixes the
    /// first counts.
    pub fn new(prefixes: &[(Prefix, u32)]) -> Self {
        let mut starts = [Vec::new(), Vec::new()];
        for (v6, starts) in starts.iter_mut().enumerate() {
            let mut all: Vec<&(Prefix, u32)> = prefixes.iter().filter(|(p, _)| p.v6 == (v6 == 1)).collect();
            // Outer prefixes before those within them; the order of equals stays.
            all.sort_by_key(|(p, _)| (p.address, p.length));
            all.dedup_by_key(|(p, _)| *p);
            let mut open: Vec<&(Prefix, u32)> = Vec::new();
            for next in all {
                close(&mut open, starts, |outer| outer.last() < next.0.address);
                put(starts, next.0.address, Some(next.1));
                open.push(next);
            }
            close(&mut open, starts, |_| true);
        }
        Table { starts }
    }

    /// The number of the longest prefix that `address` of this family is in.
    pub fn find(&self, family: Family, address: u128) -> Option<u32> {
        let starts = match family {
            Family::V4 => &self.starts[0],
            Family::V6 => &self.starts[1],
            Family::Other => return None,
        };
        let next = starts.partition_point(|(start, _)| *start <= address);
        starts.get(next.checked_sub(1)?)?.1
    }
}

/// Ends the innermost prefixes as long as `is_over` says so: what holds them goes on behind them.
fn close(open: &mut Vec<&(Prefix, u32)>, starts: &mut Vec<Start>, is_over: impl Fn(&Prefix) -> bool) {
    while let Some(inner) = open.pop_if(|inner| is_over(&inner.0)) {
        if let Some(behind) = inner.0.last().checked_add(1) {
            put(starts, behind, open.last().map(|outer| outer.1));
        }
    }
}

fn put(starts: &mut Vec<Start>, at: u128, who: Option<u32>) {
    match starts.last_mut() {
        Some(last) if last.0 == at => last.1 = who,
        _ => starts.push((at, who)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::Random;

    /// T22: the longest prefix wins, for random tables against a search through all of them.
    #[test]
    fn t22_the_longest_prefix_wins() {
        for seed in weir_seed::seeds(200) {
            let mut random = Random::new(seed);
            let v6 = random.below(2) == 1;
            let width: u8 = if v6 { 128 } else { 32 };
            // Few bits vary, so that prefixes nest and touch, and the ends of the range are met.
            let draw = |random: &mut Random| {
                let bits = u128::from(random.below(64)) << (width - 6) | u128::from(random.below(4));
                if random.below(8) == 0 { u128::MAX >> (128 - width) } else { bits }
            };
            let prefixes: Vec<(Prefix, u32)> = (0..random.below(30))
                .map(|n| {
                    let length = if random.below(3) == 0 { width } else { random.below(9) as u8 };
                    (Prefix::new(v6, draw(&mut random), length), n as u32)
                })
                .collect();
            let table = Table::new(&prefixes);
            let (family, other) = if v6 { (Family::V6, Family::V4) } else { (Family::V4, Family::V6) };
            for _ in 0..500 {
                let address = draw(&mut random);
                let holds = |(p, _): &&(Prefix, u32)| p.contains(&Prefix::new(v6, address, width));
                let longest = prefixes.iter().filter(holds).map(|(p, _)| p.length).max();
                let expected = prefixes.iter().find(|e| holds(e) && Some(e.0.length) == longest);
                let found = table.find(family, address);
                assert_eq!(found, expected.map(|e| e.1), "seed {seed} {address:x} {prefixes:?}");
                assert_eq!(table.find(other, address), None);
            }
            assert_eq!(table.find(Family::Other, 0), None);
        }
    }
}
