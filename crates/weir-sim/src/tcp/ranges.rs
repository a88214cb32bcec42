//! A set of octets as sorted, disjoint, non-adjacent ranges: what a receiver holds out of
//! order, and what a sender knows to have been received (SACK).

use std::collections::VecDeque;

/// Sorted ranges `[start, end)` with gaps between them.
#[derive(Clone, Debug, Default)]
pub struct RangeSet {
    ranges: VecDeque<(u64, u64)>,
}

impl RangeSet {
    /// True if no octet is in the set.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
    /// The ranges in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, u64)> + '_ {
        self.ranges.iter().copied()
    }
    /// The end of the last range.
    pub fn highest(&self) -> Option<u64> {
        self.ranges.back().map(|&(_, end)| end)
    }
    /// Number of the first range that ends after `octet`.
    fn first_ending_after(&self, octet: u64) -> usize {
        // Nearly always at one end: new data goes past the back, repairs sit at the front.
        match (self.ranges.front(), self.ranges.back()) {
            (Some(&(_, end)), _) if end > octet => 0,
            (_, Some(&(_, end))) if end <= octet => self.ranges.len(),
            _ => self.ranges.partition_point(|&(_, end)| end <= octet),
        }
    }
    /// The range that holds `octet`.
    pub fn containing(&self, octet: u64) -> Option<(u64, u64)> {
        self.ranges.get(self.first_ending_after(octet)).copied().filter(|r| r.0 <= octet)
    }
    /// The first octet at or after `from` that is not in the set, and where the set goes on
    /// after it (`u64::MAX` if nowhere).
    pub fn gap_from(&self, from: u64) -> (u64, u64) {
        let i = self.first_ending_after(from);
        match self.ranges.get(i) {
            None => (from, u64::MAX),
            Some(&(start, _)) if start > from => (from, start),
            Some(&(_, end)) => (end, self.ranges.get(i + 1).map_or(u64::MAX, |r| r.0)),
        }
    }
    /// Octets of the set in `[from, to)`.
    pub fn count_in(&self, from: u64, to: u64) -> u64 {
        if from >= to {
            return 0;
        }
        let covered = self.ranges.iter().skip(self.first_ending_after(from));
        covered.take_while(|r| r.0 < to).map(|&(start, end)| end.min(to) - start.max(from)).sum()
    }
    /// Adds `[start, end)`; returns the octets that were not there before.
    pub fn insert(&mut self, start: u64, end: u64) -> u64 {
        if start >= end {
            return 0;
        }
        // Ranges that touch or overlap the new one: those from `first` while start' <= end.
        let first = match self.ranges.back() {
            Some(&(_, last)) if last < start => self.ranges.len(),
            _ => self.ranges.partition_point(|&(_, e)| e < start),
        };
        let (mut low, mut high, mut covered, mut after) = (start, end, 0, first);
        while let Some(&(s, e)) = self.ranges.get(after)
            && s <= end
        {
            covered += e.min(end).saturating_sub(s.max(start));
            (low, high) = (low.min(s), high.max(e));
            after += 1;
        }
        if after == first {
            self.ranges.insert(first, (low, high));
        } else {
            self.ranges[first] = (low, high);
            self.ranges.drain(first + 1..after);
        }
        end - start - covered
    }
    /// Takes out everything below `octet`; returns how many octets that were.
    pub fn trim_below(&mut self, octet: u64) -> u64 {
        let mut removed = 0;
        while let Some(range) = self.ranges.front_mut()
            && range.0 < octet
        {
            if range.1 > octet {
                removed += octet - range.0;
                range.0 = octet;
                break;
            }
            removed += range.1 - range.0;
            self.ranges.pop_front();
        }
        removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Stream;

    /// Every operation against a plain array of flags.
    #[test]
    fn agrees_with_flags() {
        for seed in weir_seed::seeds(50) {
            let mut random = Stream::new(seed, 0);
            let (mut set, mut flags) = (RangeSet::default(), [false; 100]);
            for _ in 0..300 {
                let (a, b) = (random.below(100), random.below(101));
                let (start, end) = (a.min(b), a.max(b));
                let (from, to) = (start as usize, end as usize);
                if random.below(8) == 0 {
                    let gone: u64 = flags[..from].iter_mut().map(|f| core::mem::take(f) as u64).sum();
                    assert_eq!(set.trim_below(start), gone, "seed {seed}");
                } else if random.below(3) == 0 {
                    let new = flags[from..to].iter().filter(|f| !**f).count() as u64;
                    flags[from..to].fill(true);
                    assert_eq!(set.insert(start, end), new, "seed {seed}");
                }
                let count = flags[from..to].iter().filter(|f| **f).count() as u64;
                assert_eq!(set.count_in(start, end), count, "seed {seed}");
                let gap = (from..100).find(|&i| !flags[i]).unwrap_or(100) as u64;
                assert_eq!(set.gap_from(start).0.min(100), gap, "seed {seed}");
                assert_eq!(set.containing(start).is_some(), from < 100 && flags[from]);
                let ranges: Vec<_> = set.iter().collect();
                assert!(ranges.windows(2).all(|w| w[0].1 < w[1].0), "seed {seed}: {ranges:?}");
                assert!(ranges.iter().all(|r| r.0 < r.1));
            }
        }
    }
}
