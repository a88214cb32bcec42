//! A token bucket: over any interval at most rate * time + depth bytes pass.

/// Tokens in units of 10^-9 bit, so that a nanosecond adds a whole number of them: exact without
/// fractions.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    rate_bps: u128,
    depth: u128,
    tokens: u128,
    at_ns: u64,
}

const PER_BYTE: u128 = 8_000_000_000;

impl TokenBucket {
    /// A bucket that is full at time 0.
    pub fn new(rate_bps: u64, depth_bytes: u64) -> Self {
        let depth = u128::from(depth_bytes) * PER_BYTE;
        TokenBucket { rate_bps: u128::from(rate_bps), depth, tokens: depth, at_ns: 0 }
    }
    /// The bytes in the bucket at `now_ns`, rounded down.
    pub fn bytes(&self, now_ns: u64) -> u64 {
        (self.level(now_ns) / PER_BYTE) as u64
    }
    /// The first nanosecond, not before `now_ns`, at which `bytes` may pass; `None` if never,
    /// since the bucket is not deep enough.
    pub fn ready_ns(&self, now_ns: u64, bytes: u64) -> Option<u64> {
        let cost = u128::from(bytes) * PER_BYTE;
        let level = self.level(now_ns);
        if cost <= level {
            return Some(now_ns);
        }
        if cost > self.depth || self.rate_bps == 0 {
            return None;
        }
        let since = self.at_ns.max(now_ns);
        Some(since + (cost - level).div_ceil(self.rate_bps) as u64)
    }
    /// Lets `bytes` pass at `now_ns`. False if the bucket does not hold that many: then nothing
    /// has changed but the time.
    pub fn take(&mut self, now_ns: u64, bytes: u64) -> bool {
        (self.tokens, self.at_ns) = (self.level(now_ns), self.at_ns.max(now_ns));
        let cost = u128::from(bytes) * PER_BYTE;
        let passes = cost <= self.tokens;
        if passes {
            self.tokens -= cost;
        }
        passes
    }
    /// The first of `passed` (time in ns, bytes, in order of time) that did not conform.
    pub fn first_violation(mut self, passed: &[(u64, u64)]) -> Option<usize> {
        passed.iter().position(|&(at_ns, bytes)| !self.take(at_ns, bytes))
    }
    fn level(&self, now_ns: u64) -> u128 {
        let time = u128::from(now_ns.saturating_sub(self.at_ns));
        (self.tokens + time * self.rate_bps).min(self.depth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::Random;

    /// The recursion is the definition: no interval of whatever passed holds more than
    /// rate * time + depth, and what is refused would break that.
    #[test]
    fn conforms_on_every_interval() {
        let mut random = Random::new(weir_seed::seed());
        let (rate, depth) = (1_234_567u64, 4_000u64);
        let over = |passed: &[(u64, u64)]| {
            (0..passed.len()).any(|first| {
                let bytes: u64 = passed[first..].iter().map(|p| p.1).sum();
                let time_ns = passed[passed.len() - 1].0 - passed[first].0;
                u128::from(bytes) * PER_BYTE
                    > u128::from(depth) * PER_BYTE + u128::from(time_ns) * u128::from(rate)
            })
        };
        let (mut bucket, mut passed, mut now_ns, mut refused) =
            (TokenBucket::new(rate, depth), Vec::new(), 0, 0);
        for _ in 0..2_000 {
            now_ns += random.below(8_000_000);
            let bytes = 64 + random.below(1_451);
            let before = bucket.clone();
            passed.push((now_ns, bytes));
            if bucket.take(now_ns, bytes) {
                assert!(!over(&passed));
                continue;
            }
            refused += 1;
            assert!(over(&passed), "refused without need");
            passed.pop();
            let ready_ns = before.ready_ns(now_ns, bytes).expect("it is deep enough");
            assert!(before.clone().take(ready_ns, bytes) && !before.clone().take(ready_ns - 1, bytes));
        }
        assert!(refused > 100 && passed.len() > 100, "{refused} refused, {} passed", passed.len());
    }
}
