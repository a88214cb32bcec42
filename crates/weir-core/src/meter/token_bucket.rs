//! Token bucket: over any interval at most rate * time + depth bytes conform.
//!
//! Principle: tokens flow in at the rate, at most the depth of them stay; a packet conforms if
//! there are as many as it has bytes, and takes them. Kept as one number, the time at which the
//! bucket was, or would be, empty: the virtual scheduling form of the generic cell rate algorithm
//! (ITU-T I.371, annex A). That time is counted in the bucket's own units, see below.
//!
//! ```text
//!            0            empty_at          now * rate + depth
//!            |---------------|==================|------> units of 10^-9 bit
//!                            |<--- tokens ----->|  at most `depth` of them
//! ```
//!
//! Where we differ, and why: units of 10^-9 bit, of which a nanosecond brings exactly `rate`, and
//! a byte takes 8 * 10^9: exact at every rate, without a division (ALTQ kept bytes * 2^32 and a
//! rate per clock tick, rounded down).
//! Cost: a multiplication and a comparison of 128 bits each, or of 64 where a regulator pays again soon; 48 bytes.
//! Guarantees: `never_more_than_rate_and_depth` (and its reverse), `decides_as_exact_arithmetic`,
//! `the_regulator_never_gives_more`.

use crate::units::{Duration, Instant, Rate};

/// Units of 10^-9 bit in a byte.
pub(super) const PER_BYTE: u64 = 8_000_000_000;
/// Above 10^16 bit/s a product with an instant could pass 128 bits together with a depth.
const MOST_BPS: u64 = 1 << 54;

/// A token bucket, full at the origin of time.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    rate_bps: u64,
    depth: u128,
    empty_at: u128,
    /// Before that the bucket holds 0 or more and less than 2^64, if time does not run backwards: a regulator has
    /// paid in words, and what came in since is less than 2^63. Whoever takes tokens takes what is there.
    sure_until: Instant,
}

/// What bytes take, in units of 10^-9 bit.
pub(super) fn cost_of(bytes: u64) -> u128 {
    u128::from(bytes) * u128::from(PER_BYTE)
}

impl TokenBucket {
    /// A bucket of `depth_bytes` that fills at `rate`.
    pub fn new(rate: Rate, depth_bytes: u64) -> Self {
        let rate_bps = rate.as_bps().min(MOST_BPS);
        let sure_until = Instant::ZERO;
        TokenBucket { rate_bps, depth: cost_of(depth_bytes), empty_at: 0, sure_until }
    }
    /// The most that it holds, bytes.
    pub fn depth_bytes(&self) -> u64 {
        (self.depth / u128::from(PER_BYTE)) as u64
    }
    /// What has flowed in since the origin. Below 2^64 * 2^54.
    fn inflow(&self, now: Instant) -> u128 {
        u128::from(now.as_nanos()) * u128::from(self.rate_bps)
    }
    /// Whole bytes in the bucket at `now`.
    pub fn bytes(&self, now: Instant) -> u64 {
        let inflow = self.inflow(now);
        let tokens = (inflow + self.depth).saturating_sub(self.empty_at.max(inflow));
        (tokens / u128::from(PER_BYTE)).min(u128::from(u64::MAX)) as u64
    }
    /// The same, below zero by what a regulator has lent to packets longer than the bucket.
    pub fn level_bytes(&self, now: Instant) -> i64 {
        let full = self.inflow(now) + self.depth;
        let debt = self.empty_at.saturating_sub(full).div_ceil(u128::from(PER_BYTE));
        match debt {
            0 => i64::try_from(self.bytes(now)).unwrap_or(i64::MAX),
            debt => i64::try_from(debt).map_or(i64::MIN, |debt| -debt),
        }
    }
    /// Has the bucket hold so many bytes at `now`, at most its depth; below zero they are lent.
    pub fn set_level(&mut self, now: Instant, bytes: i64) {
        let level = cost_of(bytes.unsigned_abs());
        let full = self.inflow(now) + self.depth;
        self.empty_at = if bytes < 0 { full + level } else { full - level.min(self.depth) };
        self.sure_until = Instant::ZERO;
    }
    /// True if the bucket holds `bytes` at `now`.
    pub fn holds(&self, now: Instant, bytes: u32) -> bool {
        let inflow = self.inflow(now);
        self.empty_at.max(inflow) + cost_of(bytes.into()) <= inflow + self.depth
    }
    /// Takes `bytes` at `now` if the bucket holds them.
    pub fn take(&mut self, now: Instant, bytes: u32) -> bool {
        let inflow = self.inflow(now);
        let after = self.empty_at.max(inflow) + cost_of(bytes.into());
        let conforms = after <= inflow + self.depth;
        if conforms {
            self.empty_at = after;
        }
        conforms
    }
    /// Another rate and depth from `now` on, with the tokens that are there, at most the new depth.
    pub fn reshape(&mut self, now: Instant, rate: Rate, depth_bytes: u64) {
        let old = self.inflow(now);
        let full = old + self.depth;
        let empty_at = self.empty_at.max(old);
        let (tokens, debt) = (full.saturating_sub(empty_at), empty_at.saturating_sub(full));
        (self.rate_bps, self.depth) = (rate.as_bps().min(MOST_BPS), cost_of(depth_bytes));
        self.sure_until = Instant::ZERO;
        self.empty_at = self.inflow(now) + self.depth.saturating_sub(tokens) + debt;
    }
    /// Takes what flows over at `now`: what came in since the bucket was full.
    pub(super) fn overflow(&mut self, now: Instant) -> u128 {
        let inflow = self.inflow(now);
        let over = inflow.saturating_sub(self.empty_at);
        self.empty_at += over;
        over
    }

    // A regulator lets every packet pass sooner or later, also one longer than the depth: that one
    // goes when a bucket as deep as the packet would be full.

    fn regulated(&self, inflow: u128, cost: u128) -> u128 {
        self.empty_at.max((inflow + self.depth).saturating_sub(self.depth.max(cost))) + cost
    }
    /// When `bytes` may go: `now` or later, `NEVER` where nothing flows in.
    #[cfg(test)]
    fn ready_at(&self, now: Instant, bytes: u64) -> Instant {
        self.clone().pay_or_wait(now, bytes).unwrap_or(now)
    }
    /// Pays for `bytes` that go at `now`, or says when they may go: later, `NEVER` where nothing flows in.
    #[inline(always)]
    pub fn pay_or_wait(&mut self, now: Instant, bytes: u64) -> Option<Instant> {
        if now < self.sure_until
            && let Some(cost) = bytes.checked_mul(PER_BYTE)
            && cost <= self.depth as u64
        {
            let inflow = now.as_nanos().wrapping_mul(self.rate_bps);
            let level = inflow.wrapping_add(self.depth as u64).wrapping_sub(self.empty_at as u64);
            if cost > level {
                return Some(self.after(now, cost - level));
            }
            // Nothing has flowed over.
            if level <= self.depth as u64 {
                self.empty_at += u128::from(cost);
                return None;
            }
        }
        self.pay_or_wait_anew(now, bytes)
    }
    /// The same where nothing is known of the bucket.
    #[inline(never)]
    fn pay_or_wait_anew(&mut self, now: Instant, bytes: u64) -> Option<Instant> {
        let full = self.inflow(now) + self.depth;
        // The usual case in words of 64 bits: a bucket that is not in debt, and a packet not longer than it is deep.
        if let (Some(level), Some(cost)) = (full.checked_sub(self.empty_at), bytes.checked_mul(PER_BYTE))
            && let (Ok(level), Ok(depth)) = (u64::try_from(level), u64::try_from(self.depth))
            && cost <= depth
        {
            if cost <= level {
                self.empty_at = full - u128::from(level.min(depth) - cost);
                if depth < 1 << 63 {
                    self.sure_until = now + Duration::from_nanos((1 << 63) / self.rate_bps.max(1));
                }
                return None;
            }
            return Some(self.after(now, cost - level));
        }
        self.pay_or_wait_wide(now, bytes)
    }
    /// The plain form.
    #[inline(never)]
    fn pay_or_wait_wide(&mut self, now: Instant, bytes: u64) -> Option<Instant> {
        let inflow = self.inflow(now);
        let after = self.regulated(inflow, cost_of(bytes));
        let full = inflow + self.depth;
        if after <= full {
            self.empty_at = after;
            return None;
        }
        let missing = after - full;
        match u64::try_from(missing) {
            Ok(missing) => Some(self.after(now, missing)),
            Err(_) if self.rate_bps == 0 => Some(Instant::NEVER),
            Err(_) => {
                let wait_ns = missing.div_ceil(self.rate_bps.into()).min(u128::from(u64::MAX)) as u64;
                Some(now + Duration::from_nanos(wait_ns))
            }
        }
    }
    /// When so much more will have flowed in.
    #[inline(always)]
    fn after(&self, now: Instant, missing: u64) -> Instant {
        match self.rate_bps {
            0 => Instant::NEVER,
            rate_bps => now + Duration::from_nanos(missing.div_ceil(rate_bps)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;
    use std::vec::Vec;

    pub(crate) const RATES: [u64; 8] =
        [9_600, 64_000, 1_500_000, 10_000_000, 155_520_000, 1_000_000_007, 40_000_000_000, 400_000_000_000];

    /// The longest excess over rate * time + depth of any interval, in units of 10^-9 bit; at most
    /// 0 if everything conforms.
    fn excess(passed: &[(u64, u64)], bps: u64, depth: u64) -> i128 {
        let mut most = i128::MIN;
        for first in 0..passed.len() {
            let mut bits = 0i128;
            for &(at, len) in &passed[first..] {
                bits += i128::from(len) * i128::from(PER_BYTE);
                let may = i128::from(depth) * i128::from(PER_BYTE)
                    + i128::from(at - passed[first].0) * i128::from(bps);
                most = most.max(bits - may);
            }
        }
        most
    }

    /// A greedy, uneven source: more than the rate, with pauses.
    fn arrivals(bps: u64, random: &mut Random) -> Vec<(u64, u32)> {
        let packet_ns = (800u128 * 8_000_000_000 / u128::from(bps)).min(u128::from(u64::MAX)) as u64;
        let mut now = 0;
        (0..600)
            .map(|_| {
                now += match random.below(50) {
                    0..=7 => 0,
                    8 => random.below(20 * packet_ns.max(1)),
                    _ => random.below(packet_ns.max(1)),
                };
                (now, 64 + random.below(1_451) as u32)
            })
            .collect()
    }

    #[test]
    fn never_more_than_rate_and_depth() {
        for seed in weir_seed::seeds(4) {
            for bps in RATES {
                let mut random = Random::new(seed ^ bps);
                let depth = 1_514 + random.below(20_000);
                let mut bucket = TokenBucket::new(Rate::from_bps(bps), depth);
                let mut passed = Vec::new();
                for (at, len) in arrivals(bps, &mut random) {
                    if bucket.take(Instant::from_nanos(at), len) {
                        passed.push((at, u64::from(len)));
                    }
                }
                assert!(excess(&passed, bps, depth) <= 0, "seed {seed}, {bps} bit/s");
                // Reversed: the same packets break the bound of a shallower or slower bucket.
                assert!(excess(&passed, bps, depth - 1_514) > 0, "seed {seed}, {bps}: depth");
                assert!(excess(&passed, bps / 2, depth) > 0, "seed {seed}, {bps}: rate");
            }
        }
    }

    /// A bucket that is exchanged all the time keeps the bound of the one that allows most; one
    /// that is made anew each time breaks it.
    #[test]
    fn reshaping_lends_nothing() {
        for seed in weir_seed::seeds(4) {
            let mut random = Random::new(seed);
            let bps = RATES[random.below(RATES.len() as u64) as usize];
            let (mut kept, mut anew) = (TokenBucket::new(Rate::from_bps(bps), 20_000), Vec::new());
            let (mut passed, mut fresh) = (Vec::new(), kept.clone());
            for (at, len) in arrivals(bps, &mut random) {
                let now = Instant::from_nanos(at);
                if random.below(4) == 0 {
                    let (rate, depth) =
                        (Rate::from_bps(bps / (1 + random.below(3))), 1_514 + random.below(18_486));
                    kept.reshape(now, rate, depth);
                    fresh = TokenBucket::new(rate, depth);
                    assert!(kept.bytes(now) <= depth);
                    let tokens = kept.bytes(now);
                    kept.reshape(now, rate, depth);
                    assert_eq!(kept.bytes(now), tokens, "seed {seed}: the same again changes nothing");
                }
                if kept.ready_at(now, len.into()) == now {
                    assert_eq!(kept.pay_or_wait(now, len.into()), None);
                    passed.push((at, u64::from(len)));
                }
                if fresh.take(now, len) {
                    anew.push((at, u64::from(len)));
                }
            }
            assert!(passed.len() > 50, "seed {seed}");
            assert!(excess(&passed, bps, 20_000) <= 0, "seed {seed}, {bps} bit/s");
            assert!(excess(&anew, bps, 20_000) > 0, "seed {seed}, {bps} bit/s: reversed");
        }
    }

    /// Tokens as a fraction over 8 * 10^9, filled by their definition, packet by packet.
    #[test]
    fn decides_as_exact_arithmetic() {
        for seed in weir_seed::seeds(4) {
            for bps in RATES {
                let mut random = Random::new(seed ^ bps ^ 0x77);
                let depth = 1_514 + random.below(20_000);
                let mut bucket = TokenBucket::new(Rate::from_bps(bps), depth);
                let full = i128::from(depth) * 8_000_000_000;
                let (mut tokens, mut last, mut refused) = (full, 0, 0);
                for (at, len) in arrivals(bps, &mut random) {
                    tokens = full.min(tokens + i128::from(at - last) * i128::from(bps));
                    last = at;
                    let now = Instant::from_nanos(at);
                    assert_eq!(i128::from(bucket.bytes(now)), tokens / 8_000_000_000, "seed {seed} {bps}");
                    let cost = i128::from(len) * 8_000_000_000;
                    let conforms = cost <= tokens;
                    assert_eq!(bucket.holds(now, len), conforms, "seed {seed}, {bps} bit/s at {at}");
                    assert_eq!(bucket.take(now, len), conforms, "seed {seed}, {bps} bit/s at {at}");
                    if conforms {
                        tokens -= cost;
                    } else {
                        refused += 1;
                    }
                }
                assert!(refused > 20, "seed {seed}, {bps}: the bucket was never empty");
            }
        }
    }

    /// A greedy source that asks exactly when told, or late: never more, and nothing wasted.
    #[test]
    fn the_regulator_never_gives_more() {
        for bps in RATES {
            let mut random = Random::new(weir_seed::seed() ^ bps);
            let depth = 6_000u64;
            let mut bucket = TokenBucket::new(Rate::from_bps(bps), depth);
            let (mut now, mut lateness_ns, mut sent) = (Instant::ZERO, 0u64, Vec::new());
            for _ in 0..400 {
                let len = 64 + random.below(1_451);
                let ready = bucket.ready_at(now, len);
                assert!(ready == now || bucket.ready_at(ready, len) == ready, "ready means ready");
                if ready > now {
                    let before = ready - Duration::from_nanos(1);
                    assert_eq!(bucket.ready_at(before, len), ready, "not a nanosecond sooner");
                }
                let late_ns = if random.below(10) == 0 { random.below(50_000) } else { 0 };
                lateness_ns += late_ns + 1;
                now = ready + Duration::from_nanos(late_ns);
                assert_eq!(bucket.pay_or_wait(now, len), None);
                sent.push((now.as_nanos(), len));
            }
            assert!(excess(&sent, bps, depth) <= 0, "{bps}");
            assert!(excess(&sent, bps, depth - 1_514) > 0, "{bps}, reversed");
            // Not less: what is not lost to late asking (and to whole nanoseconds) is used.
            let bits: u128 = sent.iter().map(|&(_, len)| u128::from(len) * 8).sum();
            let used_ns = u128::from(now.as_nanos().saturating_sub(lateness_ns));
            assert!(bits * 1_000_000_000 >= u128::from(bps) * used_ns, "{bps}");
        }
    }

    /// The short way of a regulator decides as the plain one, also in debt, and where numbers are wide.
    #[test]
    fn the_short_way_pays_as_the_plain_one() {
        let (mut paid, mut waited) = (0, 0);
        for seed in weir_seed::seeds(40) {
            let mut random = Random::new(seed);
            let mut word = |bits: u64| random.below(u64::MAX) >> (64 - bits) >> random.below(bits);
            let mut short = TokenBucket::new(Rate::from_bps(word(56)), word(40));
            let mut now = Instant::from_nanos(word(60));
            if word(2) == 0 {
                short.set_level(now, -(word(20) as i64));
            }
            let mut plain = short.clone();
            for _ in 0..200 {
                let bytes = if word(4) == 0 { word(45) } else { word(12) };
                let answer = short.pay_or_wait(now, bytes);
                assert_eq!(answer, plain.pay_or_wait_wide(now, bytes), "seed {seed}: {bytes} bytes at {now}");
                assert_eq!(short.empty_at, plain.empty_at, "seed {seed}: {bytes} bytes at {now}");
                if answer.is_none() {
                    paid += 1;
                } else {
                    waited += 1;
                }
                now = match answer {
                    Some(at) if at < Instant::from_nanos(1 << 62) && word(1) == 0 => at,
                    _ => now + Duration::from_nanos(word(30)),
                };
            }
        }
        assert!(paid > 100 && waited > 100, "{paid} paid, {waited} waited");
    }

    #[test]
    fn limits() {
        let never = Instant::from_nanos(u64::MAX - 1);
        let mut bucket = TokenBucket::new(Rate::from_bps(u64::MAX), u64::MAX);
        assert!(bucket.take(Instant::ZERO, u32::MAX) && bucket.take(never, u32::MAX));
        let mut dry = TokenBucket::new(Rate::ZERO, 100);
        assert!(dry.take(Instant::ZERO, 60) && !dry.take(never, 60) && dry.take(never, 40));
        assert_eq!(dry.ready_at(Instant::ZERO, 60), Instant::NEVER);
        assert_eq!(TokenBucket::new(Rate::ZERO, 100).ready_at(Instant::ZERO, 100), Instant::ZERO);
        // Longer than the depth: conforms to no meter, and passes a regulator after a pause.
        let mut small = TokenBucket::new(Rate::from_bps(8_000), 100);
        assert!(!small.take(never, 101));
        let mut small = TokenBucket::new(Rate::from_bps(8_000), 100);
        assert_eq!(small.ready_at(Instant::ZERO, 200), Instant::from_millis(100));
        assert_eq!(small.pay_or_wait(Instant::from_millis(100), 200), None);
        assert_eq!(small.ready_at(Instant::from_millis(100), 200), Instant::from_millis(300));
    }

    /// A level that is told and set again is the same, to a byte, also one below zero.
    #[test]
    fn a_level_moves_to_another_bucket() {
        for seed in weir_seed::seeds(200) {
            let mut random = Random::new(seed);
            let rate = Rate::from_bps(RATES[random.below(RATES.len() as u64) as usize]);
            let depth = 1 + random.below(100_000);
            let (mut one, mut now) =
                (TokenBucket::new(rate, depth), Instant::from_millis(random.below(5_000)));
            for _ in 0..20 {
                now += Duration::from_nanos(random.below(10_000_000));
                let bytes = 1 + random.below(2 * depth);
                if one.ready_at(now, bytes) <= now {
                    assert_eq!(one.pay_or_wait(now, bytes), None);
                }
                let mut other = TokenBucket::new(rate, depth);
                other.set_level(now, one.level_bytes(now));
                assert_eq!(other.level_bytes(now), one.level_bytes(now), "seed {seed}");
                assert_eq!(other.bytes(now), one.bytes(now), "seed {seed}");
                // What a longer packet has waited for already is not told.
                let [here, there] = [&one, &other].map(|bucket| bucket.ready_at(now, bytes.min(depth)));
                let byte = rate.time_for(1).ceil().since(Instant::ZERO);
                assert!(there >= here && there.since(here) <= byte, "seed {seed}: {here:?} {there:?}");
            }
            one.set_level(now, i64::MAX);
            assert_eq!(one.level_bytes(now), depth as i64);
        }
    }
}
