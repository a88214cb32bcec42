//! A port with conditioners in front of every discipline: nothing is lost uncounted.

use weir_core::Random;
use weir_core::classify::{Classifier, Field, Filter};
use weir_core::meter::{Action, Conditioners, Meter};
use weir_core::packet::{Dscp, Family, FrameRef, Key};
use weir_core::port::{Event, EventKind, Port, PortConfig, PortPlan, Refill, WireConfig};
use weir_core::queue::{DropReason, Visit};
use weir_core::sched::Registry;
use weir_core::units::{Duration, Instant, Rate};
use weir_testkit::generate::{self, Below, Generator};

const CALLS: u32 = 3_000;

/// A random action, nested at most `depth` deep, for about `bps`.
fn action(random: &mut Random, bps: u64, depth: u32, earlier: &[(String, Action)]) -> Action {
    let rate = |random: &mut Random| Rate::from_bps(bps / 8 + random.below(bps.max(1)));
    let burst = |random: &mut Random| 1_500 + random.below(20_000);
    let aware = random.below(2) == 0;
    let meter = match random.below(if depth == 0 { 4 } else { 9 }) {
        0 => return Action::Pass,
        1 => return Action::Drop,
        2 => return Action::Mark(Dscp::new(random.below(64) as u8).expect("below 64")),
        3 if !earlier.is_empty() => {
            return Action::Conditioner(earlier[random.below(earlier.len() as u64) as usize].0.clone());
        }
        3 => return Action::Pass,
        4 => Meter::TokenBucket { rate: rate(random), depth: burst(random) },
        5 => Meter::SingleRate { rate: rate(random), burst: burst(random), excess: burst(random), aware },
        6 => Meter::TimeWindow {
            rate: rate(random),
            peak: Rate::from_bps(2 * bps),
            window: Duration::from_nanos(1 + random.below(1_000_000_000)),
        },
        n => Meter::TwoRate {
            rate: rate(random),
            burst: burst(random),
            peak: rate(random),
            peak_burst: burst(random),
            aware,
            rfc4115: n == 8,
        },
    };
    let actions = (0..meter.results()).map(|_| action(random, bps, depth - 1, earlier)).collect();
    Action::Meter { meter, actions }
}

/// Filters on the destination port lead to the conditioners; port 0 is left alone.
fn conditioners(random: &mut Random, bps: u64) -> Conditioners {
    let mut named: Vec<(String, Action)> = Vec::new();
    for n in 0..4 {
        let made = action(random, bps, 3, &named);
        named.push((format!("n{n}"), made));
    }
    let to = |n: u32| Filter::new(Family::V4, n, n + 1).exactly(Field::DstPort, u128::from(n + 1));
    Conditioners::new(Classifier::compile((0..4).map(to)), &named).expect("actions that can be")
}

#[derive(Default)]
struct Sums {
    meters: bool,
    packets: i64,
    ended: i64,
    bytes: i64,
    ended_bytes: i64,
}
impl Sums {
    fn take_off(&mut self, other: &Sums) {
        self.packets -= other.packets;
        self.ended -= other.ended;
        self.bytes -= other.bytes;
        self.ended_bytes -= other.ended_bytes;
    }
}
impl Visit for Sums {
    fn class(&mut self, _class: &str, depth: u32) {
        self.meters = depth > 0;
    }
    fn value(&mut self, name: &'static str, _unit: &'static str, value: i64) {
        match name {
            _ if self.meters => {}
            "packets" => self.packets += value,
            "bytes" => self.bytes += value,
            _ if name.ends_with("_bytes") => self.ended_bytes += value,
            _ => self.ended += value,
        }
    }
}

#[test]
fn every_discipline_conserves_packets_behind_conditioners() {
    let registry = Registry::builtin();
    let mut policed_in_all = 0;
    for entry in registry.iter().filter(|e| e.build.is_some()) {
        for seed in weir_seed::seeds(4) {
            policed_in_all += run(&registry, entry.name, seed);
        }
    }
    assert!(policed_in_all > 10_000, "{policed_in_all} packets were policed");
}

fn run(registry: &Registry, name: &str, seed: u64) -> u64 {
    let mut random = Random::new(seed);
    let link = generate::link(&mut random);
    let mut generator = Generator::new(registry, link, seed);
    let mut tree = || match generator.tree(name, Below::Anything(1)) {
        Ok((_, tree)) => tree,
        Err(error) => panic!("seed {seed}: {error}"),
    };
    let mut config = PortConfig::new(link, WireConfig::Link { ring: 2, refill: Refill::Packet });
    (config.seed, config.capacity) = (seed, 200);
    let mut plan = |random: &mut Random| {
        let conditioners = Some(conditioners(random, link.rate.as_bps()));
        PortPlan { conditioners, ..PortPlan::new(tree(), Classifier::empty()) }
    };
    let mut port = Port::new(config, plan(&mut random));
    let packet_ns = link.time_for(800).ceil().as_nanos();
    let (mut now, mut fates) = (Instant::ZERO, vec![0u8; CALLS as usize]);
    let mut closed: Option<Sums> = None;
    let (mut policed, mut offered, mut conditioned, mut conditioned_bytes) = (0u64, 0u64, 0i64, 0i64);
    for call in 0..CALLS {
        now += Duration::from_nanos(random.below(2 * packet_ns));
        let mut hear = |Event { meta, kind, .. }: Event<'_>| match kind {
            EventKind::Taken => {}
            EventKind::Sent => fates[meta.frame.0 as usize] += 1,
            EventKind::Dropped(reason) => {
                fates[meta.frame.0 as usize] += 1;
                policed += u64::from(reason == DropReason::Policed);
            }
        };
        match random.below(100) {
            0 => {
                // What those that go have counted is closed here, less what their heirs go on with.
                let sums = closed.get_or_insert_default();
                port.conditioners().expect("they were set").visit_stats(sums);
                let before = port.conditioners().expect("they were set").unmatched();
                port.swap(now, plan(&mut random), &mut hear);
                let heirs = port.conditioners().expect("they were set");
                let mut inherited = Sums::default();
                heirs.visit_stats(&mut inherited);
                sums.take_off(&inherited);
                assert_eq!(heirs.unmatched(), before, "{name}, seed {seed}, call {call}");
            }
            1..=20 => port.advance(now, &mut hear),
            _ => {
                let dst_port = random.below(5) as u16;
                let tos = random.next_u32() as u8;
                let key =
                    Key { family: Family::V4, src: 1, dst: 2, protocol: 17, dst_port, tos, ..Key::default() };
                let len = 20 + random.below(1_400) as u32;
                // Both ways in: at once, and with the class known between.
                if call % 2 == 0 {
                    port.receive(now, len, FrameRef(call), &key, &mut hear);
                } else {
                    let packet = port.condition(now, len, FrameRef(call), &key);
                    assert!((packet.leaf() as usize) < port.leaves().len());
                    port.offer(now, packet, &mut hear);
                }
                offered += 1;
                conditioned += i64::from(dst_port > 0);
                conditioned_bytes += if dst_port > 0 { i64::from(len) } else { 0 };
            }
        }
        if let Err(broken) = port.check() {
            panic!("{name}, seed {seed}, call {call}: {}: {}", broken.discipline, broken.what);
        }
    }
    let told = format!("{name}, seed {seed}");
    let total = port.total();
    assert_eq!(total.offered_packets, offered, "{told}");
    assert_eq!(total.dropped_packets[DropReason::Policed as usize], policed, "{told}");
    let ended: u64 = fates.iter().map(|&n| u64::from(n)).sum();
    assert!(fates.iter().all(|&n| n <= 1), "{told}: a packet ended twice");
    assert_eq!(total.inside(), offered - ended, "{told}");
    // What filters brought to conditioners ended in one of their actions, and nothing else did.
    let mut sums = closed.expect("a run has swaps");
    let all = port.conditioners().expect("they were set");
    all.visit_stats(&mut sums);
    assert_eq!((sums.packets, sums.ended), (conditioned, conditioned), "{told}");
    assert_eq!((sums.bytes, sums.ended_bytes), (conditioned_bytes, conditioned_bytes), "{told}");
    assert_eq!(all.unmatched(), offered - conditioned as u64, "{told}");
    policed
}
