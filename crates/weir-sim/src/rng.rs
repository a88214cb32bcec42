//! Seeded random streams whose every draw is the same on every machine.
//!
//! Each source draws from a stream of its own, made from the scenario's seed and the source's
//! index: adding a flow moves nobody else's draws. Nothing here calls the platform's math
//! library, whose last bit differs from one system to the next; the logarithm that exponential
//! draws need is a series of IEEE additions, multiplications and divisions.

use weir_core::Random;

/// One stream of random numbers.
#[derive(Clone, Debug)]
pub struct Stream {
    bits: Random,
}

impl Stream {
    /// The stream number `index` of the scenario with this `seed`.
    pub fn new(seed: u64, index: u64) -> Self {
        // The generator of the seed's own stream, stepped once through a hash of the index, so
        // that neighbouring seeds and neighbouring indices are unrelated.
        let family = Random::new(seed).next_u64();
        let member = Random::new(!index).next_u64();
        Stream { bits: Random::new(family ^ member.rotate_left(32)) }
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.bits.next_u64()
    }

    /// A number below `bound`, uniform to within 2^-64 of the bound; 0 if the bound is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.bits.below(bound)
    }

    /// True with probability `p`.
    pub fn chance(&mut self, p: f64) -> bool {
        self.unit() <= p
    }

    /// A number in (0, 1], a multiple of 2^-53.
    fn unit(&mut self) -> f64 {
        ((self.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// A span in nanoseconds, exponentially distributed around `mean_ns`.
    pub fn exponential_ns(&mut self, mean_ns: u64) -> u64 {
        let span = -ln(self.unit()) * mean_ns as f64;
        // A cast of f64 to u64 saturates; -ln(2^-53) is 36.7, so this is far from it.
        span as u64
    }

    /// A span in nanoseconds, Pareto-distributed around `mean_ns` with a `shape` above 1:
    /// k·U^(-1/shape) with k = mean·(shape - 1)/shape.
    pub fn pareto_ns(&mut self, mean_ns: u64, shape: f64) -> u64 {
        let least = mean_ns as f64 * (shape - 1.0) / shape;
        (least * exp(-ln(self.unit()) / shape)) as u64
    }

    /// A span in nanoseconds, uniform up to twice `mean_ns`.
    pub fn uniform_ns(&mut self, mean_ns: u64) -> u64 {
        (2.0 * self.unit() * mean_ns as f64) as u64
    }

    /// What is left of a span that is uniform up to twice `mean_ns`, and under way at a random time: its
    /// density falls in a straight line, so the part that is left falls with the square.
    pub fn uniform_rest_ns(&mut self, mean_ns: u64) -> u64 {
        // The square root is exact in IEEE arithmetic, and so the same everywhere.
        (2.0 * (1.0 - self.unit().sqrt()) * mean_ns as f64) as u64
    }

    /// What is left of a Pareto-distributed span that is under way at a random time, in nanoseconds: its
    /// density is the part of spans that are longer, over the mean. Below k that is a straight line,
    /// above it a Pareto tail with the shape less 1.
    pub fn pareto_rest_ns(&mut self, mean_ns: u64, shape: f64) -> u64 {
        let (least, unit) = (mean_ns as f64 * (shape - 1.0) / shape, self.unit());
        // `unit` is the probability that more is left.
        let rest = match unit >= 1.0 / shape {
            true => (1.0 - unit) * mean_ns as f64,
            false => least * exp((-ln(unit * shape) / (shape - 1.0)).min(200.0)),
        };
        rest.min(1e17) as u64
    }
}

/// The natural logarithm of a normal positive number, by + - * / alone.
///
/// x = m·2^e with m in [1/√2, √2), and ln m = 2 artanh s with s = (m-1)/(m+1), |s| <= 0.1716:
/// the series s + s³/3 + s⁵/5 … is below 2^-53 of its first term after eleven terms.
fn ln(x: f64) -> f64 {
    const LN_2: f64 = core::f64::consts::LN_2;
    let bits = x.to_bits();
    let mut exponent = ((bits >> 52) & 0x7ff) as i64 - 1023;
    let mut m = f64::from_bits((bits & 0x000f_ffff_ffff_ffff) | 0x3ff0_0000_0000_0000);
    if m > core::f64::consts::SQRT_2 {
        m /= 2.0;
        exponent += 1;
    }
    let s = (m - 1.0) / (m + 1.0);
    let square = s * s;
    let mut series = 0.0;
    let mut odd = 23.0;
    while odd >= 1.0 {
        series = series * square + 1.0 / odd;
        odd -= 2.0;
    }
    exponent as f64 * LN_2 + 2.0 * s * series
}

/// e^x for x from 0 to 700, by + - * / alone: x = n·ln 2 + r with |r| <= ln 2 / 2, and e^r by
/// its series, which is below 2^-53 after sixteen terms.
fn exp(x: f64) -> f64 {
    const LN_2: f64 = core::f64::consts::LN_2;
    let n = (x / LN_2 + 0.5) as u64;
    let r = x - n as f64 * LN_2;
    let mut series = 1.0;
    let mut term = 16.0;
    while term >= 1.0 {
        series = 1.0 + series * r / term;
        term -= 1.0;
    }
    // 2^n exactly, by its exponent.
    series * f64::from_bits((n + 1023) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithm_is_the_platforms_within_an_ulp_or_two() {
        let mut stream = Stream::new(weir_seed::seed(), 0);
        for _ in 0..100_000 {
            let x = stream.unit();
            assert!((ln(x) - x.ln()).abs() <= 4e-16 * x.ln().abs().max(1.0), "{x}");
        }
        assert_eq!(ln(1.0), 0.0);
        for i in 0..3_000 {
            let x = f64::from(i) / 80.0;
            assert!((exp(x) / x.exp() - 1.0).abs() < 1e-14, "{x}");
        }
    }

    /// Golden bits: a change of these is a change of every random scenario.
    #[test]
    fn draws_are_the_same_everywhere() {
        let mut stream = Stream::new(1, 0);
        let draws: Vec<u64> = (0..4).map(|_| stream.exponential_ns(1_000_000_000)).collect();
        assert_eq!(draws, GOLDEN);
        assert_ne!(Stream::new(1, 0).next_u64(), Stream::new(1, 1).next_u64());
        assert_ne!(Stream::new(1, 0).next_u64(), Stream::new(2, 0).next_u64());
    }
    const GOLDEN: [u64; 4] = [7_709_477, 315_459_149, 1_003_135_281, 1_560_444_764];

    #[test]
    fn exponential_draws_have_their_mean_and_their_tail() {
        let mut stream = Stream::new(weir_seed::seed(), 9);
        let draws: Vec<u64> = (0..200_000).map(|_| stream.exponential_ns(1_000_000)).collect();
        let mean = draws.iter().sum::<u64>() as f64 / draws.len() as f64;
        // The deviation of the mean is 1 / sqrt(200,000) of it; that of the tail 0.00049. Six of each.
        assert!((mean / 1e6 - 1.0).abs() < 0.0135, "{mean}");
        let tail = draws.iter().filter(|&&d| d > 3_000_000).count() as f64 / draws.len() as f64;
        assert!((tail - 0.0498).abs() < 0.003, "{tail}");
    }

    /// T62: the mean of what is left, cut off at 100 k, is the integral of its law; about a third of the
    /// rests are below k.
    #[test]
    fn t62_what_is_left_of_a_pareto_time() {
        let mut stream = Stream::new(weir_seed::seed(), 2);
        let draws: Vec<u64> = (0..200_000).map(|_| stream.pareto_rest_ns(3_000_000, 1.5)).collect();
        // k = 1 ms, mean 3 ms. P(rest < x) = x/3 ms up to k, and 1 - (2/3)·(k/x)^0.5 above.
        for (at_ns, part) in [(500_000, 1.0 / 6.0), (1_000_000, 1.0 / 3.0), (4_000_000, 2.0 / 3.0)] {
            let below = draws.iter().filter(|&&d| d < at_ns).count() as f64 / draws.len() as f64;
            // Six deviations of sqrt(0.25 / 200,000) = 0.0011.
            assert!((below - part).abs() < 0.0067, "{at_ns}: {below} and not {part}");
        }
    }

    #[test]
    fn uniform_draws_have_their_mean_and_what_is_left_two_thirds_of_it() {
        let mut stream = Stream::new(weir_seed::seed(), 3);
        let draws: Vec<u64> = (0..200_000).map(|_| stream.uniform_ns(1_000_000)).collect();
        let mean = |draws: &[u64]| draws.iter().sum::<u64>() as f64 / draws.len() as f64;
        // The deviations of the means are 577,000 and 471,000 over sqrt(200,000). Six of each.
        assert!((mean(&draws) - 1e6).abs() < 7_750.0 && draws.iter().all(|&d| d <= 2_000_000));
        let rests: Vec<u64> = (0..200_000).map(|_| stream.uniform_rest_ns(1_000_000)).collect();
        assert!((mean(&rests) - 2e6 / 3.0).abs() < 6_330.0, "{}", mean(&rests));
    }

    #[test]
    fn pareto_draws_have_their_least_and_their_tail() {
        let mut stream = Stream::new(weir_seed::seed(), 1);
        let draws: Vec<u64> = (0..200_000).map(|_| stream.pareto_ns(3_000_000, 1.5)).collect();
        // k = 1 ms; above x a part (k/x)^1.5 remains.
        assert!(draws.iter().all(|&d| d >= 999_999));
        let tail = draws.iter().filter(|&&d| d > 4_000_000).count() as f64 / draws.len() as f64;
        // Six deviations of sqrt(0.125 * 0.875 / 200,000) = 0.00074.
        assert!((tail - 0.125).abs() < 0.0045, "{tail}");
    }
}
