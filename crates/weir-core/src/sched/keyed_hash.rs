//! The hash that spreads flows over queues by a secret: the port's seed.

use crate::queue::Cx;

/// Multiply-shift hashing, universal for random keys (Dietzfelbinger et al., "A Reliable Randomized
/// Algorithm for the Closest-Pair Problem", 1997): a stranger who does not know the seed cannot
/// choose flows that share a queue.
pub(super) struct KeyedHash {
    /// Multiplier, which is odd, and summand, from the port's random stream at the first packet.
    key: Option<(u64, u64)>,
}

impl KeyedHash {
    pub const UNDRAWN: KeyedHash = KeyedHash { key: None };

    /// Which of `queues` (at most 2^32) the flow belongs to.
    pub fn queue_of(&mut self, cx: &mut Cx, flow: u32, queues: usize) -> usize {
        let (a, b) = *self.key.get_or_insert_with(|| (cx.random.next_u64() | 1, cx.random.next_u64()));
        let mixed = a.wrapping_mul(u64::from(flow)).wrapping_add(b) >> 32;
        ((mixed * queues as u64) >> 32) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::Link;
    use crate::units::Rate;
    use std::vec;

    /// Flows fall into all queues, into each as often as chance has it: within 7 standard deviations.
    #[test]
    fn flows_fall_into_every_queue_alike() {
        for seed in weir_seed::seeds(20) {
            let mut cx = Cx::new(1, Link::new(Rate::from_mbps(1), 0, 1_500), seed);
            let (mut hash, mut fallen) = (KeyedHash::UNDRAWN, vec![0u32; 64]);
            for _ in 0..64 * 1_000 {
                let flow = cx.random.next_u32();
                fallen[hash.queue_of(&mut cx, flow, 64)] += 1;
            }
            let off = |&n: &u32| (f64::from(n) - 1_000.0).abs() > 7.0 * 1_000f64.sqrt();
            assert!(!fallen.iter().any(off), "seed {seed}: {fallen:?}");
        }
    }
}
