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
use crate::units::Bounded;
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

/// All of a key, in words that are quick to compare. No word of ports is 0 where the family is IP.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Words {
    src: u128,
    dst: u128,
    labels: u64,
    ports: u64,
}

impl Words {
    #[inline(always)]
    fn of(key: &Key) -> Words {
        let Key { src, dst, flow_label, spi, src_port, dst_port, family, protocol, tos, later_fragment } =
            *key;
        let ports = u64::from(src_port) | u64::from(dst_port) << 16;
        let rest = u64::from(protocol) | u64::from(tos) << 8;
        let kind = (family as u64) | u64::from(later_fragment) << 8;
        Words {
            src,
            dst,
            labels: u64::from(flow_label) | u64::from(spi) << 32,
            ports: ports | rest << 32 | kind << 48,
        }
    }
    /// The set that they fall to.
    #[inline(always)]
    fn set(&self) -> usize {
        // Who finds keys of one set gains nothing but that the filters are searched.
        let (src, dst) = (self.src ^ (self.src >> 64), self.dst ^ (self.dst >> 64));
        // The upper bits depend on all of both.
        let hash = fold(src as u64 ^ self.ports, dst as u64 ^ 0x6a09_e667_f3bc_c909);
        (hash >> (u64::BITS - SETS.ilog2())) as usize
    }
}

/// One flow: a cache line. No flow is of [`Family::Other`].
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Entry {
    key: Words,
    known: Known,
}

const _: () = assert!(size_of::<Entry>() == 64, "an entry is one cache line");

/// The flows that passed lately.
pub(super) struct Flows {
    /// `None` where there are few filters.
    sets: Option<Box<[[Entry; WAYS]; SETS]>>,
    /// The way that goes next, in whatever set.
    next: usize,
    /// Packets that are left of this trial, or of the rest after one that failed.
    left: u32,
    /// Packets of this trial that were not found.
    missed: u32,
    rests: bool,
}

impl Flows {
    /// Nothing known yet of the flows of a port with those filters.
    pub(super) fn new(classifier: &Classifier) -> Flows {
        let sets = || alloc::vec![[Entry::default(); WAYS]; SETS].into_boxed_slice().try_into().ok();
        let sets = if classifier.len() < FEWEST_FILTERS { None } else { sets() };
        Flows { sets, next: 0, left: TRIAL, missed: 0, rests: false }
    }

    #[inline(always)]
    fn find(&mut self, key: &Key) -> Option<Known> {
        let words = Words::of(key);
        let sets = self.sets.as_ref()?;
        if key.family == Family::Other {
            return None;
        }
        if self.rests {
            self.rest();
            return None;
        }
        let found = sets[words.set()].iter().find(|entry| entry.key == words);
        // Each trial and rest begins with more than none left, and ends when none is.
        self.left = self.left.less(1);
        match found {
            Some(entry) if self.left > 0 => {
                // Field by field, because a whole one goes over the stack.
                let Known { leaf, flow, src_hash, dst_hash } = entry.known;
                Some(Known { leaf, flow, src_hash, dst_hash })
            }
            found => {
                let known = found.map(|entry| entry.known);
                self.note(known.is_none());
                known
            }
        }
    }

    /// A packet that was not found, or the last one of a trial.
    #[cold]
    fn note(&mut self, missed: bool) {
        self.missed += u32::from(missed);
        if self.left == 0 {
            self.judge();
        }
    }

    /// A packet that is not looked up.
    #[cold]
    fn rest(&mut self) {
        self.left -= 1;
        if self.left == 0 {
            (self.rests, self.left, self.missed) = (false, TRIAL, 0);
        }
    }

    /// The end of a trial.
    fn judge(&mut self) {
        self.rests = TRIAL - self.missed < TRIAL / 4;
        (self.left, self.missed) = (if self.rests { REST } else { TRIAL }, 0);
    }

    /// Remembers what was not found: in a place of its set that is free, or in that of the oldest or of one near it.
    fn remember(&mut self, key: &Key, known: Known) {
        let Some(sets) = self.sets.as_mut().filter(|_| !self.rests && key.family != Family::Other) else {
            return;
        };
        let words = Words::of(key);
        let set = &mut sets[words.set()];
        let way = set.iter().position(|entry| entry.key == Words::default()).unwrap_or(self.next);
        set[way] = Entry { key: words, known };
        self.next = (way + 1) % WAYS;
    }
}

impl Port {
    /// The leaf for packets with that key that no conditioner marks.
    pub fn classify(&self, key: &Key) -> u32 {
        self.classifier.classify(key).map_or(self.otherwise, |found| found.class)
    }

    /// The same as [`classify`](Port::classify), of a flow that may be remembered.
    pub fn leaf_of(&mut self, key: &Key) -> u32 {
        self.known(key).leaf
    }

    /// Where packets go that no filter matches.
    pub fn otherwise(&self) -> u32 {
        self.otherwise
    }

    /// What depends on the headers: the leaf of a packet with `key`, and its hashes.
    #[inline(always)]
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

    /// Keys are the same if, and only if, their words are.
    #[test]
    fn words_tell_keys_apart() {
        let mut random = Random::new(weir_seed::seed());
        let mut bit = || random.below(2) as u8;
        for _ in 0..20_000 {
            let [a, b] = [(); 2].map(|()| Key {
                src: u128::from(bit()) << 127 | u128::from(bit()),
                dst: u128::from(bit()) << 127,
                flow_label: u32::from(bit()) << 19,
                spi: u32::from(bit()) << 31,
                src_port: u16::from(bit()) << 15,
                dst_port: u16::from(bit()) << 15,
                family: [Family::V4, Family::V6][usize::from(bit())],
                protocol: bit() << 7,
                tos: bit() << 7,
                later_fragment: bit() == 1,
            });
            assert_eq!(a == b, Words::of(&a) == Words::of(&b), "{a} and {b}");
            assert_ne!(Words::of(&a), Words::default());
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
                hits += u32::from(port.flows.find(&key).is_some());
                let cached = port.known(&key);
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
        assert_eq!((flows.rests, flows.left), (true, REST));
        for _ in 0..REST {
            assert!(!pass(&mut flows, &one(7)));
        }
        assert!(!pass(&mut flows, &one(TRIAL)), "a new one");
        let few: Vec<bool> = (0..2 * TRIAL).map(|_| pass(&mut flows, &one(TRIAL))).collect();
        assert!(few.iter().all(|&found| found) && !flows.rests);
        assert!(!pass(&mut flows, &Key::default()) && !pass(&mut flows, &Key::default()), "not IP");
    }
}
