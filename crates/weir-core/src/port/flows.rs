//! What is known of the flows that passed lately: their leaf, and the hashes of their headers.
//!
//! Principle: the search of the filters and three hashes depend on the headers alone, and most packets
//! have those of a packet before. An exact match (all that a filter can ask for, the mark included)
//! gives both at once. A change of filters forgets everything.
//!
//! It is small, because a cache that does not fit the processor's own costs more than it saves. Where
//! flows are too many for it, it rests: less than a quarter of the packets of a trial found, and the
//! next ones are not looked up.
//!
//! Cost: with 1,000 filters a packet's whole way through a FIFO behind a regulator falls from 2,093
//! instructions to 1,201, the short way of `dissect` included; with 65,536 flows at random it stays as it was,
//! 1,754 and 1,702 (`examples/port_cost.rs`). Memory: 128 KB a port of at least [`FEWEST_FILTERS`] filters,
//! and none below.
//!
//! Guarantee: `a_port_with_a_cache_decides_as_one_without`.

use super::Port;
use crate::classify::Classifier;
use crate::packet::key::fold;
use crate::packet::{Family, Key};
use alloc::boxed::Box;

/// Flows whose headers fall to the same set.
const WAYS: usize = 4;
/// Sets, a power of two.
const SETS: usize = 512;
/// With fewer filters there is no cache.
const FEWEST_FILTERS: usize = 16;
/// Packets of a trial.
const TRIAL: u32 = 4_096;
/// Packets after a trial that failed which are not looked up.
const REST: u32 = 16 * TRIAL;

/// What depends on the headers of a packet alone.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Known {
    pub(super) leaf: u32,
    pub(super) flow: u32,
    pub(super) src_hash: u32,
    pub(super) dst_hash: u32,
}

/// One flow: a cache line. No flow is of [`Family::Other`].
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Entry {
    key: Key,
    known: Known,
}

const _: () = assert!(size_of::<Entry>() == 64, "an entry is one cache line");

/// The flows that passed lately.
pub(super) struct Flows {
    /// Empty where there are few filters.
    sets: Box<[[Entry; WAYS]]>,
    /// The way that goes next, in whatever set.
    next: usize,
    /// Packets of this trial, and those of them that were found.
    asked: u32,
    found: u32,
    /// Packets that are yet to pass before the next trial.
    resting: u32,
}

impl Flows {
    /// Nothing known yet of the flows of a port with those filters.
    pub(super) fn new(classifier: &Classifier) -> Flows {
        let sets = if classifier.len() < FEWEST_FILTERS { 0 } else { SETS };
        let sets = alloc::vec![[Entry::default(); WAYS]; sets].into_boxed_slice();
        Flows { sets, next: 0, asked: 0, found: 0, resting: 0 }
    }

    /// The set of a key; `None` if nothing is to be looked up.
    #[inline]
    fn set_of(&mut self, key: &Key) -> Option<&mut [Entry; WAYS]> {
        if self.sets.is_empty() || key.family == Family::Other {
            return None;
        }
        if self.resting > 0 {
            self.resting -= 1;
            return None;
        }
        // Who finds keys of one set gains nothing but that the filters are searched.
        let (src, dst) = (key.src ^ (key.src >> 64), key.dst ^ (key.dst >> 64));
        let ports = u64::from(key.src_port) << 48 | u64::from(key.dst_port) << 16 | u64::from(key.tos);
        let hash = fold(src as u64 ^ ports, dst as u64 ^ 0x6a09_e667_f3bc_c909) as usize;
        self.sets.get_mut((hash ^ (hash >> 32)) % SETS)
    }

    #[inline]
    fn find(&mut self, key: &Key) -> Option<Known> {
        let set = self.set_of(key)?;
        let found = set.iter().find(|entry| entry.key == *key).map(|entry| entry.known);
        self.found += u32::from(found.is_some());
        self.asked += 1;
        if self.asked == TRIAL {
            self.resting = if self.found < TRIAL / 4 { REST } else { 0 };
            (self.asked, self.found) = (0, 0);
        }
        found
    }

    /// Remembers what was not found, in the place of the oldest of its set or of one near it.
    fn remember(&mut self, key: &Key, known: Known) {
        let way = self.next;
        if self.resting == 0
            && let Some(set) = self.set_of(key)
        {
            set[way] = Entry { key: *key, known };
            self.next = (way + 1) % WAYS;
        }
    }
}

impl Port {
    /// The leaf for packets with that key that no conditioner marks.
    pub fn classify(&self, key: &Key) -> u32 {
        self.classifier.classify(key).map_or(self.default_leaf, |found| found.class)
    }

    /// What depends on the headers: the leaf of a packet with `key`, and its hashes.
    #[inline]
    pub(super) fn known(&mut self, key: &Key) -> Known {
        match self.flows.find(key) {
            Some(known) => known,
            None => self.learn(key),
        }
    }

    /// The same for a packet that a conditioner has marked.
    #[inline(never)]
    pub(super) fn known_marked(&mut self, key: &Key, dscp: u8) -> Known {
        self.known(&key.with_tos(dscp << 2 | (key.tos & 3)))
    }

    #[inline(never)]
    fn learn(&mut self, key: &Key) -> Known {
        let known = self.search(key);
        self.flows.remember(key, known);
        known
    }

    /// The plain form.
    fn search(&self, key: &Key) -> Known {
        Known {
            leaf: self.classify(key),
            flow: key.flow_hash(self.seed),
            src_hash: key.src_hash(self.seed),
            dst_hash: key.dst_hash(self.seed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;
    use crate::classify::{Field, Filter};
    use crate::port::{PortConfig, PortPlan, WireConfig};
    use crate::queue::Link;
    use crate::sched::{Node, Registry};
    use crate::units::{Instant, Rate};
    use std::vec::Vec;

    fn plan(random: &mut Random, filters: u32) -> PortPlan {
        let link = Link::new(Rate::from_mbps(100), 24, 1_514);
        let tree = Registry::builtin().build(&Node { discipline: "fifoq".into(), ..Node::default() }, link);
        let filter = |n: u32| {
            let family = if random.below(2) == 0 { Family::V4 } else { Family::V6 };
            let field =
                [Field::SrcPort, Field::DstPort, Field::Protocol, Field::Src][random.below(4) as usize];
            Filter::new(family, n, n).exactly(field, u128::from(random.below(8)))
        };
        PortPlan::new(tree.unwrap(), Classifier::compile((0..filters).map(filter)))
    }

    fn key(random: &mut Random, flows: u64) -> Key {
        let n = random.below(flows);
        let mut of_flow = Random::new(n);
        let mut small = |n: u64| of_flow.below(n);
        let family = [Family::V4, Family::V6, Family::Other][small(3) as usize];
        Key {
            src: u128::from(small(8)) << if family == Family::V6 { 64 } else { 0 },
            dst: u128::from(n),
            src_port: small(8) as u16,
            dst_port: small(8) as u16,
            protocol: small(8) as u8,
            flow_label: small(2) as u32,
            spi: small(2) as u32,
            later_fragment: small(2) == 0,
            family,
            tos: random.below(4) as u8,
        }
    }

    /// Few flows and many, few filters and many, and other filters now and then. Reversed: a cache that
    /// outlives its filters is noticed.
    #[test]
    fn a_port_with_a_cache_decides_as_one_without() {
        let (mut hits, mut stale) = (0, 0);
        for seed in weir_seed::seeds(20) {
            let mut random = Random::new(seed);
            let flows = 1 << random.below(18);
            let wire = WireConfig::Regulator { depth_bytes: 10_000 };
            let link = Link::new(Rate::from_mbps(100), 24, 1_514);
            let filters = 10 + random.below(60) as u32;
            let mut port = Port::new(PortConfig::new(link, wire), plan(&mut random, filters));
            for n in 0..30_000u64 {
                if random.below(3_000) == 0 {
                    let filters = 10 + random.below(60) as u32;
                    let kept = core::mem::replace(&mut port.flows, Flows::new(&Classifier::empty()));
                    drop(port.swap(Instant::from_nanos(n), plan(&mut random, filters), &mut |_| {}));
                    let fresh = core::mem::replace(&mut port.flows, kept);
                    for _ in 0..100 {
                        let key = key(&mut random, flows);
                        let known = port.flows.find(&key);
                        stale += u32::from(known.is_some_and(|known| known != port.search(&key)));
                    }
                    port.flows = fresh;
                }
                let key = key(&mut random, flows);
                let before = port.flows.found;
                let cached = port.known(&key);
                hits += u32::from(port.flows.found > before);
                let plain = port.search(&key);
                assert_eq!(cached, plain, "seed {seed}: {key}");
            }
        }
        assert!(hits > 1_000 && stale > 0, "{hits} found, {stale} stale");
    }

    /// It rests while flows are too many, and comes back when they are few again.
    #[test]
    fn it_rests_where_nothing_comes_twice() {
        let mut random = Random::new(weir_seed::seed());
        let mut flows = Flows::new(&plan(&mut random, 20).classifier);
        let pass = |flows: &mut Flows, key: &Key| {
            let found = flows.find(key).is_some();
            if !found {
                flows.remember(key, Known::default());
            }
            found
        };
        let one = |n: u32| Key { family: Family::V4, src: u128::from(n), ..Key::default() };
        for n in 0..TRIAL {
            assert!(!pass(&mut flows, &one(n)));
        }
        assert_eq!(flows.resting, REST);
        for _ in 0..REST {
            assert!(!pass(&mut flows, &one(7)));
        }
        assert!(!pass(&mut flows, &one(TRIAL)), "a new one");
        let few: Vec<bool> = (0..2 * TRIAL).map(|_| pass(&mut flows, &one(TRIAL))).collect();
        assert!(few.iter().all(|&found| found) && flows.resting == 0);
        assert!(!pass(&mut flows, &Key::default()) && !pass(&mut flows, &Key::default()), "not IP");
    }
}
