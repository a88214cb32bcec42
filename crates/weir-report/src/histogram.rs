//! Log-linear histogram of nanoseconds: exact count, sum and maximum; values to within 1/128.

use serde::{Deserialize, Serialize};

/// Values below this have a bucket each; above, every octave has this many buckets divided by two.
const LINEAR: u64 = 128;
const HALF: u64 = LINEAR / 2;
/// Bits of a value that the linear part covers.
const LINEAR_BITS: u32 = LINEAR.trailing_zeros();

/// How often which value came, in buckets whose width is at most 1/64 of their value.
///
/// As JSON: `{"sum":…,"max":…,"buckets":[[least value of a bucket, count], …]}` without empty buckets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Sparse", into = "Sparse")]
pub struct Histogram {
    count: u64,
    sum: u128,
    max: u64,
    /// The lowest bucket used.
    first: usize,
    /// From there to the highest bucket used: at most 3,776 of them.
    buckets: Vec<u64>,
}

#[derive(Clone, Default, Serialize, Deserialize)]
struct Sparse {
    /// u64 lasts for 584 years of summed delay; JSON has no wider numbers.
    sum: u64,
    max: u64,
    buckets: Vec<(u64, u64)>,
}

impl Histogram {
    /// Counts `value`.
    #[inline]
    pub fn record(&mut self, value: u64) {
        self.count += 1;
        self.sum += u128::from(value);
        self.max = self.max.max(value);
        self.bucket(index(value), 1);
    }

    /// Counts `value`, `times` times.
    pub fn record_many(&mut self, value: u64, times: u64) {
        self.count += times;
        self.sum += u128::from(value) * u128::from(times);
        self.max = self.max.max(value);
        self.bucket(index(value), times);
    }

    #[inline]
    fn bucket(&mut self, index: usize, times: u64) {
        if !(self.first..self.first + self.buckets.len()).contains(&index) {
            self.widen(index);
        }
        let bucket = &mut self.buckets[index - self.first];
        *bucket = bucket.saturating_add(times);
    }

    /// Has a bucket that is not there yet. Buckets below and above what was measured take no memory, because
    /// ten thousand flows have a histogram each.
    #[cold]
    fn widen(&mut self, index: usize) {
        if self.buckets.is_empty() {
            self.first = index;
        }
        let below = self.first.saturating_sub(index);
        self.buckets.splice(..0, std::iter::repeat_n(0, below));
        self.first -= below;
        self.buckets.resize(self.buckets.len().max(index - self.first + 1), 0);
    }

    /// The buckets that are not empty, in ascending order, with how often each came.
    fn used(&self) -> impl Iterator<Item = (usize, u64)> {
        (self.first..)
            .zip(&self.buckets)
            .filter(|(_, times)| **times > 0)
            .map(|(index, times)| (index, *times))
    }

    /// Counts all that `other` counted.
    pub fn merge(&mut self, other: &Histogram) {
        self.count = self.count.saturating_add(other.count);
        self.sum = self.sum.saturating_add(other.sum);
        self.max = self.max.max(other.max);
        for (index, times) in other.used() {
            self.bucket(index, times);
        }
    }

    /// How many values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The greatest, exactly; 0 if there is none.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The mean, exactly; 0 if there is none.
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }

    /// The value at rank ⌈count·p/100⌉ in ascending order, to within 1/128: the middle of its bucket, at
    /// most the maximum. 0 if there is none.
    pub fn percentile(&self, p: f64) -> u64 {
        let rank = ((self.count as f64 * p / 100.0).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0_u64;
        for (index, times) in self.used() {
            seen = seen.saturating_add(times);
            if seen >= rank {
                let (least, width) = range(index);
                return (least + (width - 1) / 2).min(self.max);
            }
        }
        0
    }

    /// (value, part of all that are not greater) in ascending order, for plots: one point a bucket.
    pub fn distribution(&self) -> Vec<(u64, f64)> {
        let mut seen = 0_u64;
        self.used()
            .map(|(index, times)| {
                seen = seen.saturating_add(times);
                let (least, width) = range(index);
                ((least + (width - 1)).min(self.max), seen as f64 / self.count as f64)
            })
            .collect()
    }
}

/// The bucket of a value.
fn index(value: u64) -> usize {
    if value < LINEAR {
        return value as usize;
    }
    // The top LINEAR_BITS bits of the value, from HALF to LINEAR − 1, within its octave.
    let shift = u64::BITS - value.leading_zeros() - LINEAR_BITS;
    (u64::from(shift) * HALF + (value >> shift)) as usize
}

/// Least value and width of a bucket.
fn range(index: usize) -> (u64, u64) {
    let index = index as u64;
    if index < LINEAR {
        return (index, 1);
    }
    let shift = index / HALF - 1;
    ((index - shift * HALF) << shift, 1 << shift)
}

impl From<Histogram> for Sparse {
    fn from(histogram: Histogram) -> Self {
        Sparse {
            sum: u64::try_from(histogram.sum).unwrap_or(u64::MAX),
            max: histogram.max,
            buckets: histogram.used().map(|(index, times)| (range(index).0, times)).collect(),
        }
    }
}

impl From<Sparse> for Histogram {
    fn from(sparse: Sparse) -> Self {
        let mut histogram =
            Histogram { sum: u128::from(sparse.sum), max: sparse.max, ..Histogram::default() };
        for (least, times) in sparse.buckets {
            histogram.bucket(index(least), times);
            histogram.count = histogram.count.saturating_add(times);
        }
        histogram
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every bucket begins where the one before ends, and holds its own bounds.
    #[test]
    fn buckets_tile_all_values() {
        let last = index(u64::MAX);
        let mut next = 0;
        for bucket in 0..=last {
            let (least, width) = range(bucket);
            assert_eq!(least, next);
            assert_eq!((index(least), index(least + (width - 1))), (bucket, bucket));
            assert!(width == 1 || width <= least / HALF);
            next = least.wrapping_add(width);
        }
        assert_eq!(next, 0, "the last bucket ends at 2^64");
    }

    /// Against the exact percentile of a million-fold range of seeded values.
    #[test]
    fn percentiles_are_within_a_128th() {
        for seed in weir_seed::seeds(20) {
            let mut state = seed;
            let mut values: Vec<u64> = (0..5000)
                .map(|_| {
                    state =
                        state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    (state >> 34) >> (state >> 59)
                })
                .collect();
            let mut histogram = Histogram::default();
            values.iter().for_each(|value| histogram.record(*value));
            values.sort_unstable();
            for p in [0.1, 1.0, 50.0, 90.0, 95.0, 99.0, 99.9, 100.0] {
                let exact = values[((5000.0 * p / 100.0_f64).ceil() as usize).max(1) - 1];
                let got = histogram.percentile(p);
                assert!(got.abs_diff(exact) * 128 <= exact, "seed {seed} p{p}: {got} for {exact}");
            }
            assert_eq!(histogram.max(), *values.last().unwrap());
            let mean = values.iter().map(|value| *value as f64).sum::<f64>() / 5000.0;
            assert!((histogram.mean() - mean).abs() <= 1e-6 * mean);
            let json = serde_json::to_string(&histogram).unwrap();
            assert_eq!(serde_json::from_str::<Histogram>(&json).unwrap(), histogram);
        }
    }

    #[test]
    fn merging_is_counting_both() {
        let (mut a, mut b, mut both) = (Histogram::default(), Histogram::default(), Histogram::default());
        for value in 0..1000 {
            if value % 3 == 0 {
                a.record(value * value)
            } else {
                b.record(value * value)
            }
            both.record(value * value);
        }
        a.merge(&b);
        assert_eq!(a, both);
        assert_eq!(Histogram::default().percentile(50.0), 0);
        assert_eq!(both.distribution().last(), Some(&(998_001, 1.0)));
    }
}
