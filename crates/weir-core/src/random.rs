//! A seeded random stream: the same seed gives the same numbers on every machine.

/// xorshift128+ seeded by splitmix64 (Vigna, "Further scramblings of Marsaglia's xorshift
/// generators", 2017): two words of state, a few instructions a draw. Not for secrets.
#[derive(Clone, Debug)]
pub struct Random {
    a: u64,
    b: u64,
}

impl Random {
    /// The stream of `seed`.
    pub fn new(seed: u64) -> Self {
        let mut x = seed;
        let mut splitmix = || {
            x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = x;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        };
        let (a, b) = (splitmix(), splitmix());
        Random { a, b: b | 1 }
    }
    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let (mut x, y) = (self.a, self.b);
        let sum = x.wrapping_add(y);
        self.a = y;
        x ^= x << 23;
        self.b = x ^ y ^ (x >> 18) ^ (y >> 5);
        sum
    }
    /// 32 random bits.
    pub fn next_u32(&mut self) -> u32 {
        (self.next_u64() >> 32) as u32
    }
    /// Uniform in `0..n` by a multiplication (bias below n / 2^64); 0 for `n` of 0.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_the_same_everywhere() {
        let mut random = Random::new(1);
        let draws = [random.next_u64(), random.next_u64(), random.next_u64()];
        assert_eq!(
            draws,
            [5_761_717_516_557_699_368, 11_186_363_674_881_124_876, 10_465_252_381_260_793_169]
        );
        assert_eq!(Random::new(1).next_u32(), (draws[0] >> 32) as u32);
        assert_ne!(Random::new(1).next_u64(), Random::new(2).next_u64());
    }

    #[test]
    fn below_is_uniform() {
        let (mut random, mut counts) = (Random::new(weir_seed::seed()), [0u32; 10]);
        for _ in 0..100_000 {
            counts[random.below(10) as usize] += 1;
        }
        // Each count has a deviation of sqrt(100,000 * 0.1 * 0.9) = 95: six are 570.
        assert!(counts.iter().all(|&c| (9_430..10_570).contains(&c)), "{counts:?}");
    }
}
