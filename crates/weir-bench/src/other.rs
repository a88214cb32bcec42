//! What is not a discipline: meters and the classifier, by the packet, in batches of 32.

use crate::scene::LINK;
use crate::{BURST, Bed};
use std::hint::black_box;
use weir_core::Random;
use weir_core::classify::{Classifier, Field, Filter};
use weir_core::meter::TwoRate;
use weir_core::packet::{Colour, Family, Key};
use weir_core::units::{Duration, Instant, Rate};

/// The bed of `meter-trtcm` or `classify-N`; `None` for another name.
pub fn bed(name: &str) -> Option<Box<dyn Bed>> {
    if name == "meter-trtcm" {
        return Some(Box::new(Metered::new()));
    }
    let filters = name.strip_prefix("classify-")?.parse().ok()?;
    Some(Box::new(Classified::new(filters)))
}

/// Five-tuple rules of some twenty shapes; half of the packets are aimed at one of them.
struct Classified {
    classifier: Classifier,
    keys: Vec<Key>,
    at: usize,
}

impl Classified {
    fn new(filters: u32) -> Self {
        let mut random = Random::new(7);
        let rules: Vec<Filter> = (0..filters).map(|n| rule(&mut random, n)).collect();
        let keys = (0..1_024).map(|n| key(&mut random, &rules, n % 2 == 0)).collect();
        Classified { classifier: Classifier::compile(rules), keys, at: 0 }
    }
}

impl Bed for Classified {
    fn pairs(&mut self, count: u32) -> Result<(), String> {
        for _ in 0..count as usize / BURST {
            let mut found = 0;
            for key in &self.keys[self.at..self.at + BURST] {
                found += self.classifier.classify(black_box(key)).map_or(0, |found| found.class);
            }
            black_box(found);
            self.at = (self.at + BURST) % self.keys.len();
        }
        Ok(())
    }
}

/// Packets at the rate of the link through RFC 2698's meter, of which a quarter is red and a
/// quarter yellow; now is read once a batch.
struct Metered {
    meter: TwoRate,
    now: Instant,
    step: Duration,
}

const METERED_BYTES: u32 = 64;

impl Metered {
    fn new() -> Self {
        let part = |quarters| Rate::from_bps(LINK.as_bps() * quarters / 4);
        let meter = TwoRate::rfc2698((part(2), 8_000), (part(3), 8_000), false);
        let ns = LINK.time_for(u64::from(METERED_BYTES)).ceil().as_nanos() * BURST as u64;
        Metered { meter, now: Instant::ZERO, step: Duration::from_nanos(ns) }
    }
}

impl Bed for Metered {
    fn pairs(&mut self, count: u32) -> Result<(), String> {
        for _ in 0..count as usize / BURST {
            self.now += self.step;
            for _ in 0..BURST {
                black_box(self.meter.meter(self.now, black_box(METERED_BYTES), Colour::Green));
            }
        }
        Ok(())
    }
}

/// A rule on source and destination prefixes, ports and protocol, some left open.
fn rule(random: &mut Random, order: u32) -> Filter {
    let shape = random.below(20);
    let prefix = |random: &mut Random, bits: u32| u128::from(random.next_u32() >> (32 - bits) << (32 - bits));
    let (from_bits, to_bits) =
        ([8, 16, 24, 32][(shape % 4) as usize], [16, 24, 32, 32][(shape / 5) as usize]);
    let mut rule = Filter::new(Family::V4, order, order)
        .prefix(Field::Src, prefix(random, from_bits), from_bits)
        .prefix(Field::Dst, prefix(random, to_bits), to_bits);
    if !shape.is_multiple_of(3) {
        rule = rule.exactly(Field::DstPort, u128::from(random.below(1_024)));
    }
    if shape.is_multiple_of(5) {
        rule = rule.exactly(Field::SrcPort, u128::from(random.below(65_536)));
    }
    if shape.is_multiple_of(2) {
        rule.exactly(Field::Protocol, if shape.is_multiple_of(4) { 6 } else { 17 })
    } else {
        rule
    }
}

/// A random packet; if `aimed`, one that a random rule matches.
fn key(random: &mut Random, rules: &[Filter], aimed: bool) -> Key {
    let mut key = Key {
        src: u128::from(random.next_u32()),
        dst: u128::from(random.next_u32()),
        src_port: random.next_u32() as u16,
        dst_port: random.below(1_024) as u16,
        family: Family::V4,
        protocol: if random.below(2) == 0 { 6 } else { 17 },
        ..Key::default()
    };
    let rule = rules.get(random.below(rules.len() as u64) as usize).filter(|_| aimed);
    if let Some(rule) = rule {
        let wanted = |field, found: u128| rule.value().get(field) | (found & !rule.mask().get(field));
        key.src = wanted(Field::Src, key.src);
        key.dst = wanted(Field::Dst, key.dst);
        key.src_port = wanted(Field::SrcPort, u128::from(key.src_port)) as u16;
        key.dst_port = wanted(Field::DstPort, u128::from(key.dst_port)) as u16;
        key.protocol = wanted(Field::Protocol, u128::from(key.protocol)) as u8;
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_packets_match() {
        let mut random = Random::new(7);
        let rules: Vec<Filter> = (0..100).map(|n| rule(&mut random, n)).collect();
        let classifier = Classifier::compile(rules.clone());
        let aimed: Vec<Key> = (0..100).map(|_| key(&mut random, &rules, true)).collect();
        assert!(aimed.iter().all(|key| classifier.classify(key).is_some()));
    }
}
