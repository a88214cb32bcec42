//! What is not a discipline: meters and the classifier, by the packet, in batches of 32.

use super::measure::{allocations_of, summary};
use super::{Bench, Effort};
use std::hint::black_box;
use std::time::Instant as Clock;
use weir_bench::scene::LINK;
use weir_core::Random;
use weir_core::classify::{Classifier, Field, Filter};
use weir_core::meter::TwoRate;
use weir_core::packet::{Colour, Family, Key};
use weir_core::units::{Duration, Instant, Rate};

const BATCH: usize = 32;

/// The benchmark of that name; `None` if it is that of a discipline.
pub fn measure(name: &str, effort: Effort) -> Option<Result<Bench, String>> {
    if name == "meter-trtcm" {
        return Some(trtcm(name, effort));
    }
    let filters = name.strip_prefix("classify-")?.parse().ok()?;
    Some(classify(name, filters, effort))
}

/// True for a benchmark of this file.
pub fn is(name: &str) -> bool {
    name == "meter-trtcm" || name.starts_with("classify-")
}

/// Five-tuple rules of some twenty shapes; half of the packets are aimed at one of them.
fn classify(name: &str, filters: u32, effort: Effort) -> Result<Bench, String> {
    let mut random = Random::new(7);
    let rules: Vec<Filter> = (0..filters).map(|n| rule(&mut random, n)).collect();
    let keys: Vec<Key> = (0..1_024).map(|n| key(&mut random, &rules, n % 2 == 0)).collect();
    let classifier = Classifier::compile(rules);
    let mut at = 0;
    let batches = |packets: u32| {
        for _ in 0..packets as usize / BATCH {
            let mut found = 0;
            for key in &keys[at..at + BATCH] {
                found += classifier.classify(black_box(key)).map_or(0, |found| found.class);
            }
            black_box(found);
            at = (at + BATCH) % keys.len();
        }
    };
    by_the_packet(name, effort, batches)
}

/// Packets at the rate of the link through RFC 2698's meter, of which a quarter is red and a
/// quarter yellow; now is read once a batch.
fn trtcm(name: &str, effort: Effort) -> Result<Bench, String> {
    const BYTES: u32 = 64;
    let part = |quarters| Rate::from_bps(LINK.as_bps() * quarters / 4);
    let mut meter = TwoRate::rfc2698((part(2), 8_000), (part(3), 8_000), false);
    let step = Duration::from_nanos(LINK.time_for(u64::from(BYTES)).ceil().as_nanos() * BATCH as u64);
    let mut now = Instant::ZERO;
    by_the_packet(name, effort, |packets| {
        for _ in 0..packets as usize / BATCH {
            now += step;
            for _ in 0..BATCH {
                black_box(meter.meter(now, black_box(BYTES), Colour::Green));
            }
        }
    })
}

/// Times `batches`, which takes so many packets.
fn by_the_packet(name: &str, effort: Effort, mut batches: impl FnMut(u32)) -> Result<Bench, String> {
    let mut time_ns = |packets: u32| {
        let start = Clock::now();
        batches(packets);
        start.elapsed().as_nanos() as f64 / (packets as usize / BATCH * BATCH) as f64
    };
    time_ns(effort.packets);
    let packets = effort.packets_a_run(|packets| Ok::<_, String>(time_ns(packets)))?;
    let runs: Vec<f64> = (0..effort.runs).map(|_| time_ns(packets)).collect();
    let allocations_per_packet = allocations_of(effort.packets, || {
        batches(effort.packets);
        Ok(())
    })?;
    let (total_ns, range_ns) = summary(runs);
    Ok(Bench {
        name: name.into(),
        enqueue_ns: None,
        dequeue_ns: None,
        total_ns,
        range_ns,
        allocations_per_packet,
        case: "hot",
        instructions: None,
    })
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
