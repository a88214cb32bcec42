//! What classification costs: nanoseconds per packet and per change, over sets of filters of
//! several kinds. `cargo run --release -p weir-core --example classify_cost`

use std::hint::black_box;
use std::time::Instant;

use weir_core::classify::{Classifier, Field, Fields, Filter, FilterId};
use weir_core::packet::key::{Family, Key};

/// Splitmix64.
struct Stream(u64);
impl Stream {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
    /// One of the values, by weight.
    fn pick(&mut self, weighted: &[(u32, u64)]) -> u32 {
        let mut at = self.below(weighted.iter().map(|w| w.1).sum());
        for &(value, weight) in weighted {
            if at < weight {
                return value;
            }
            at -= weight;
        }
        0
    }
    fn wide(&mut self) -> u128 {
        (u128::from(self.next()) << 64) | u128::from(self.next())
    }
}

/// The kinds of filter set.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// As an access list: hosts and networks on both sides, popular ports, some wildcards.
    Mixed,
    /// All five fields in full.
    Exact,
    /// Prefixes of every length on both sides: the most tuples.
    Prefixes,
    /// Networks and ports without a destination host: the original's linear list.
    Wildcard,
    /// Netmasks with holes, all different: nothing merges well. The worst that a file can ask for.
    Hostile,
}

fn filter(kind: Kind, family: Family, random: &mut Stream, order: u32) -> Filter {
    let scale = if family == Family::V4 { 1 } else { 2 };
    let address = |random: &mut Stream| {
        let site = random.below(200);
        let host = random.below(1 << 16);
        if family == Family::V4 {
            u128::from(((10 + site % 40) << 24) | ((site * 7 % 256) << 16) | host)
        } else {
            (0x2001_0db8_u128 << 96)
                | (u128::from(site) << 80)
                | (u128::from(host) << 64)
                | random.wide() >> 64
        }
    };
    let (dst_bits, src_bits) = match kind {
        Kind::Exact | Kind::Hostile => (32, 32),
        Kind::Prefixes => (8 + random.below(25) as u32, 8 + random.below(25) as u32),
        Kind::Mixed => (
            random.pick(&[(32, 40), (24, 25), (16, 10), (8, 5), (0, 10), (28, 5), (20, 5)]),
            random.pick(&[(32, 25), (24, 20), (16, 10), (8, 5), (0, 35), (27, 5)]),
        ),
        Kind::Wildcard => {
            (random.pick(&[(24, 50), (16, 30), (0, 20)]), random.pick(&[(24, 40), (16, 30), (0, 30)]))
        }
    };
    if kind == Kind::Hostile {
        let holes = |random: &mut Stream| random.wide() | random.wide();
        let f = Filter::new(family, order % 16, order).with(Field::Dst, address(random), holes(random));
        return f.with(Field::Src, address(random), holes(random));
    }
    let bits = |bits: u32| if scale == 2 && bits > 0 { 32 + bits * 3 } else { bits };
    let mut f = Filter::new(family, order % 16, order);
    f = f.prefix(Field::Dst, address(random), bits(dst_bits));
    f = f.prefix(Field::Src, address(random), bits(src_bits));
    let popular = [80, 443, 53, 22, 25, 123, 5060, 8080, 3306, 1194];
    let port = |random: &mut Stream| match random.below(3) {
        0 => popular[random.below(10) as usize],
        _ => 1 + random.below(65_535),
    };
    if kind == Kind::Exact || random.below(100) < 70 {
        f = f.exactly(Field::DstPort, u128::from(port(random)));
    }
    if kind == Kind::Exact || random.below(100) < 15 {
        f = f.exactly(Field::SrcPort, u128::from(port(random)));
    }
    f.exactly(
        Field::Protocol,
        u128::from(random.pick(&[(6, 65), (17, 25), (u32::from(kind == Kind::Exact), 10)])),
    )
}

/// A packet that the filter matches, its other bits at random.
fn packet_for(filter: &Filter, random: &mut Stream) -> Key {
    let mut fields = Fields::default();
    for field in Field::ALL {
        let free = field.full_mask(filter.family()) & !filter.mask().get(field);
        let noise = match field {
            Field::Protocol => u128::from(random.pick(&[(6, 80), (17, 20)])),
            _ => random.wide(),
        };
        fields.set(field, filter.value().get(field) | (noise & free));
    }
    fields.to_key(filter.family())
}

/// Best and median of eleven runs, in nanoseconds an item.
fn time_ns(items: usize, mut run: impl FnMut()) -> (f64, f64) {
    let mut times: Vec<f64> = (0..11)
        .map(|_| {
            let begin = Instant::now();
            run();
            begin.elapsed().as_nanos() as f64 / items as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    (times[0], times[times.len() / 2])
}

fn measure(name: &str, kind: Kind, family: Family, n: usize) {
    let mut random = Stream(0x5eed ^ n as u64);
    let filters: Vec<Filter> = (0..n).map(|i| filter(kind, family, &mut random, i as u32)).collect();
    let keys: Vec<Key> = (0..8192)
        .map(|_| {
            let of = random.below(n as u64) as usize;
            packet_for(&filters[of], &mut random)
        })
        .collect();
    let begin = Instant::now();
    let mut classifier = Classifier::compile(filters.iter().cloned());
    let compile_ms = begin.elapsed().as_secs_f64() * 1e3;
    let (best_ns, total_ns) = time_ns(keys.len() * 8, || {
        for _ in 0..8 {
            for batch in keys.chunks(32) {
                for key in batch {
                    black_box(classifier.classify(black_box(key)));
                }
            }
        }
    });
    let (mut probes, mut compares) = (0, 0);
    for key in &keys {
        let (_, work) = classifier.classify_counted(key);
        probes += work.probes;
        compares += work.compares;
    }
    let mut worst_ns = 0.0f64;
    let mut ids: Vec<FilterId> = (0..n).map(|_| FilterId::default()).collect();
    for (id, f) in classifier.filters() {
        ids[f.order as usize] = id;
    }
    let changes = 2000;
    let begin = Instant::now();
    for i in 0..changes {
        let at = random.below(n as u64) as usize;
        let each = Instant::now();
        let Some(f) = classifier.remove(ids[at]) else { continue };
        ids[at] = classifier.insert(f.ruleno(i % 3));
        worst_ns = worst_ns.max(each.elapsed().as_nanos() as f64 / 2.0);
    }
    let change_ns = begin.elapsed().as_nanos() as f64 / f64::from(changes) / 2.0;
    println!(
        "{name:<12} {family:?} {n:>6}  {total_ns:>6.1} ns/packet (best {best_ns:.1})  {:>3} tables  {:>5.2} probes  {:>5.2} compares  \
         compile {compile_ms:>6.2} ms  change {change_ns:>6.0} ns (worst {worst_ns:.0})",
        classifier.tables(),
        probes as f64 / keys.len() as f64,
        compares as f64 / keys.len() as f64,
    );
}

fn main() {
    // With an argument, only the lines that begin with it: for profiles.
    let only = std::env::args().nth(1).unwrap_or_default();
    for family in [Family::V4, Family::V6] {
        for (name, kind) in [
            ("mixed", Kind::Mixed),
            ("exact", Kind::Exact),
            ("prefixes", Kind::Prefixes),
            ("wildcard", Kind::Wildcard),
            ("hostile", Kind::Hostile),
        ] {
            for n in [100, 1000, 10_000] {
                if format!("{name} {family:?} {n}").starts_with(&only) {
                    measure(name, kind, family, n);
                }
            }
        }
    }
}
