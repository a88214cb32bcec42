//! The classifier against a list that is searched from the top (A40, A39, A14).

use std::vec::Vec;

use super::*;
use crate::packet::dissect::tests::build::{self, FRAMINGS};
use crate::packet::dscp::Dscp;
use crate::packet::key::{Family, Key};

struct Stream(u64);

impl Stream {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
    fn wide(&mut self) -> u128 {
        (u128::from(self.next()) << 64) | u128::from(self.next())
    }
    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

/// The meaning, in the plainest words: the list in order of precedence, the first that matches.
/// It shares nothing with the compiled form but [`Filter`]'s masks.
struct Reference(Vec<(FilterId, Filter, u64)>);

impl Reference {
    fn classify(&self, key: &Key) -> Option<Match> {
        let mut best: Option<&(FilterId, Filter, u64)> = None;
        for candidate in &self.0 {
            if candidate.1.matches(key) && best.is_none_or(|best| before(candidate, best)) {
                best = Some(candidate);
            }
        }
        best.map(|(id, f, _)| Match { class: f.class, filter: *id })
    }
}

fn before(a: &(FilterId, Filter, u64), b: &(FilterId, Filter, u64)) -> bool {
    let host = |f: &Filter| f.family() == Family::V4 && f.mask().get(Field::Dst) == 0xffff_ffff;
    if a.1.ruleno != b.1.ruleno {
        return a.1.ruleno > b.1.ruleno;
    }
    if host(&a.1) != host(&b.1) {
        return host(&a.1);
    }
    if a.1.order != b.1.order { a.1.order > b.1.order } else { a.2 > b.2 }
}

/// From few addresses and ports, so that prefixes nest and packets meet filters.
fn address(family: Family, random: &mut Stream) -> u128 {
    let narrow = [0x0a00_0001u32, 0x0a00_0002, 0x0a00_0100, 0x0a01_0001, 0x0aff_0001, 0xc0a8_0001, 0];
    let low = u128::from(narrow[random.below(narrow.len())]) ^ (random.below(4) as u128);
    match family {
        Family::V6 if random.one_in(2) => (0x2001_0db8 << 96) | (low << 56),
        Family::V6 => (0x2001_0db8 << 96) | low,
        _ => low,
    }
}

const PORTS: [u128; 6] = [0, 22, 53, 80, 443, 5000];
const PROTOCOLS: [u128; 6] = [0, 1, 6, 6, 17, 50];
const TOSES: [u128; 6] = [0, 0x10, 0xb8, 0xb9, 0x28, 3];

fn family(random: &mut Stream) -> Family {
    if random.one_in(2) { Family::V4 } else { Family::V6 }
}

fn filter(random: &mut Stream, order: u32) -> Filter {
    let family = family(random);
    let mut f = Filter::new(family, random.below(8) as u32, order);
    if random.one_in(3) {
        f = f.ruleno(random.below(5) as i32 - 2);
    }
    for field in [Field::Dst, Field::Src] {
        let value = address(family, random);
        let width = field.full_mask(family).count_ones();
        f = match random.below(6) {
            0 | 1 => f,
            2 => f.exactly(field, value),
            // A netmask may have holes.
            3 if random.one_in(4) => f.with(field, value, random.wide() | random.wide()),
            _ => f.prefix(field, value, random.below(width as usize + 1) as u32),
        };
    }
    for (field, values) in
        [(Field::DstPort, PORTS), (Field::SrcPort, PORTS), (Field::Protocol, PROTOCOLS), (Field::Tos, TOSES)]
    {
        if random.one_in(3) {
            let value = values[random.below(6)];
            let mask = if field == Field::Tos && random.one_in(2) { 0xfc } else { u128::MAX };
            f = f.with(field, value, mask);
        }
    }
    match random.below(20) {
        0 => f.exactly(Field::FlowLabel, 1 + random.below(3) as u128),
        1 => f.exactly(Field::Spi, 1 + random.below(3) as u128),
        2 => f.dscp(Dscp::CS0),
        _ => f,
    }
}

fn packet(random: &mut Stream) -> Key {
    let family = if random.one_in(50) { Family::Other } else { family(random) };
    Key {
        family,
        src: address(family, random),
        dst: address(family, random),
        src_port: PORTS[random.below(6)] as u16,
        dst_port: PORTS[random.below(6)] as u16,
        protocol: PROTOCOLS[random.below(6)] as u8,
        tos: TOSES[random.below(6)] as u8,
        flow_label: if family == Family::V6 { random.below(4) as u32 } else { 0 },
        spi: random.below(4) as u32,
        later_fragment: random.one_in(20),
    }
}

/// A40: 10^5 packets over sets of 0 to 300 filters, each set also changed in between.
#[test]
fn identical_to_the_list_also_under_change() {
    let seed = weir_seed::seed();
    let mut random = Stream(seed);
    let (mut packets, mut matched, mut sequence) = (0u32, 0u32, 0u64);
    let mut by_rank_only = 0u32;
    for set in 0..160 {
        let size = random.below([4, 40, 300][set % 3]);
        let mut classifier = Classifier::empty();
        let mut reference = Reference(Vec::new());
        for round in 0..8 {
            // Grow in the first round; then as many go as come.
            for _ in 0..if round == 0 { size } else { 1 + size / 8 } {
                if round > 0 && !reference.0.is_empty() {
                    let (id, f, _) = reference.0.swap_remove(random.below(reference.0.len()));
                    assert_eq!(classifier.remove(id), Some(f));
                    assert_eq!(classifier.remove(id), None);
                }
                // Lines repeat, so that the sequence decides now and then.
                let f = filter(&mut random, (sequence % 97) as u32);
                sequence += 1;
                reference.0.push((classifier.insert(f.clone()), f, sequence));
            }
            assert_eq!(classifier.len(), reference.0.len());
            for _ in 0..80 {
                let key = packet(&mut random);
                let expected = reference.classify(&key);
                assert_eq!(classifier.classify(&key), expected, "seed {seed} packet {packets}: {key}");
                let all = classifier.all_matches(&key);
                assert_eq!(all.len(), reference.0.iter().filter(|c| c.1.matches(&key)).count());
                assert_eq!(all.first().copied(), expected.map(|m| m.filter));
                by_rank_only += u32::from(all.len() > 1);
                matched += u32::from(expected.is_some());
                packets += 1;
            }
        }
    }
    assert!(packets >= 100_000);
    assert!(matched > packets / 3 && matched < packets, "biased to match, not always: {matched}");
    assert!(by_rank_only > packets / 5, "precedence decided: {by_rank_only}");
}

/// As many masks as there are tables, and then filters that none of these tables can take: the last
/// table takes them, and they match what they say.
#[test]
fn what_fits_into_no_table_is_found_all_the_same() {
    let (mut classifier, mut reference) = (Classifier::empty(), Reference(Vec::new()));
    let mut add = |f: Filter| {
        let sequence = reference.0.len() as u64;
        reference.0.push((classifier.insert(f.clone()), f, sequence));
    };
    // Widest first: none of them fits into the table of another.
    let mut masks: Vec<u32> = (1..=255).collect();
    masks.sort_by_key(|mask| core::cmp::Reverse(mask.count_ones()));
    for order in 0..600u32 {
        let pair = Filter::new(Family::V4, order, order).exactly(Field::Dst, 0x0a00_0001);
        let pair = pair.exactly(Field::Src, 0x0a00_0002);
        let pair = if order < 300 { pair.exactly(Field::DstPort, 80) } else { pair };
        add(pair.with(Field::Tos, 0xff, u128::from(masks[order as usize % masks.len()])));
    }
    for order in 600..620u32 {
        add(Filter::new(Family::V4, order, order).exactly(Field::Protocol, u128::from(order - 599)));
    }
    assert_eq!(classifier.tables(), tables::MAX_TABLES);
    for n in 0..2_000u32 {
        let key = Key { src: u128::from(n), dst: 0x0a00_0001, protocol: (n % 25) as u8, ..Key::default() };
        let key = Key { family: Family::V4, src_port: n as u16, ..key };
        assert_eq!(classifier.classify(&key), reference.classify(&key), "{key}");
    }
}

/// The comparison above sees an error: with the order of lines turned round it must fail.
#[test]
fn the_reference_tells_orders_apart() {
    let mut random = Stream(weir_seed::seed());
    let mut differ = 0;
    for _ in 0..200 {
        let filters: Vec<Filter> = (0..20).map(|i| filter(&mut random, i)).collect();
        let turned = filters.iter().cloned().map(|mut f| {
            f.order = 20 - f.order;
            f
        });
        let (a, b) = (Classifier::compile(filters.clone()), Classifier::compile(turned));
        let key = packet(&mut random);
        differ += u32::from(a.classify(&key) != b.classify(&key));
    }
    assert!(differ > 10, "{differ}");
}

/// A hundred times the filters may cost at most a few times the work, for filters on destination
/// hosts and for filters without any destination (the original's linear list) alike. A39.
#[test]
fn work_is_sublinear_for_host_and_for_wildcard_filters() {
    let host = |i: u32| {
        Filter::new(Family::V4, i, i)
            .exactly(Field::Dst, 0x0a00_0001 + u128::from(i))
            .exactly(Field::DstPort, 80)
    };
    let wildcard = |i: u32| {
        let f = Filter::new(Family::V4, i, i).exactly(Field::SrcPort, u128::from(1 + i % 60_000));
        if i.is_multiple_of(2) { f } else { f.exactly(Field::Protocol, 17) }
    };
    let networks = |i: u32| {
        let bits = 9 + i % 16;
        Filter::new(Family::V4, i, i).prefix(Field::Src, u128::from(i.wrapping_mul(0x9e37_79b9)), bits)
    };
    let host6 =
        |i: u32| Filter::new(Family::V6, i, i).exactly(Field::Dst, (0x2001 << 112) + u128::from(i + 1));
    let wildcard6 =
        |i: u32| Filter::new(Family::V6, i, i).exactly(Field::SrcPort, u128::from(1 + i % 60_000));
    let kinds: [(&str, &dyn Fn(u32) -> Filter); 5] = [
        ("host", &host),
        ("wildcard", &wildcard),
        ("networks", &networks),
        ("host6", &host6),
        ("wildcard6", &wildcard6),
    ];
    for (name, make) in kinds {
        let worst = |n: u32| {
            let filters: Vec<Filter> = (0..n).map(make).collect();
            let classifier = Classifier::compile(filters.iter().cloned());
            let mut worst = 0;
            for f in filters.iter().step_by((n as usize / 100).max(1)) {
                let key = f.value().to_key(f.family());
                for key in [key, Key { src_port: 65_000, dst: key.dst ^ (1 << 31), ..key }] {
                    let (found, work) = classifier.classify_counted(&key);
                    assert!(found.is_none() || work.probes > 0 && work.compares > 0, "{name}: {work:?}");
                    worst = worst.max(work.probes + work.compares);
                }
            }
            worst
        };
        let (hundred, ten_thousand) = (worst(100), worst(10_000));
        std::println!("{name}: worst {hundred} steps at 100 filters, {ten_thousand} at 10000");
        assert!(ten_thousand <= 80, "{name}: {ten_thousand} steps");
        assert!(ten_thousand <= 10 * hundred.max(4), "{name}: {hundred} -> {ten_thousand}");
    }
}

/// Filters made to break the tables apart: netmasks with holes, all different. The tables stay
/// few (so memory stays bounded) and the answers right.
#[test]
fn hostile_masks_do_not_multiply_tables() {
    let mut random = Stream(weir_seed::seed());
    let filters: Vec<Filter> = (0..3000)
        .map(|i| {
            let f = Filter::new(Family::V4, i, i).with(Field::Src, 0x0a00_ffff, u128::from(random.next()));
            f.with(Field::Dst, 0x0a0a_0a0b, u128::from(random.next()))
        })
        .collect();
    let mut classifier = Classifier::compile(filters.clone());
    assert!(classifier.tables() <= 256, "{}", classifier.tables());
    let reference = Reference(classifier.filters().map(|(id, f)| (id, f.clone(), 0)).collect());
    for _ in 0..300 {
        let f = &filters[random.below(filters.len())];
        let mut key = f.value().to_key(Family::V4);
        key.src |= u128::from(random.next() as u32 & random.next() as u32) & !f.mask().get(Field::Src);
        assert_eq!(classifier.classify(&key), reference.classify(&key));
    }
    for (id, _, _) in reference.0 {
        assert!(classifier.remove(id).is_some());
    }
    assert_eq!((classifier.len(), classifier.tables()), (0, 0));
}

/// A14: header fields, not the link header, decide: one set of filters, every framing, both families.
#[test]
fn every_framing_classifies_alike() {
    let mut random = Stream(weir_seed::seed());
    let mut classes = std::collections::BTreeSet::new();
    let mut classifier = Classifier::empty();
    for packets in 0..500 {
        // One filter may stand before most of a set: several sets, so that many classes are met.
        if packets % 25 == 0 {
            classifier = Classifier::compile((0..200).map(|i| filter(&mut random, i)).collect::<Vec<_>>());
        }
        let key = Key { later_fragment: false, spi: 0, ..packet(&mut random) };
        let has_ports = matches!(key.protocol, 6 | 17);
        let key = if has_ports { key } else { key.with_ports(0, 0) };
        let key = Key { protocol: key.protocol.max(1), ..key };
        if key.family == Family::Other {
            continue;
        }
        let bytes = build::packet(&key);
        let expected = classifier.classify(&key);
        for framing in FRAMINGS {
            let found = framing.dissect(&framing.wrap(&bytes)).key;
            assert_eq!(classifier.classify(&found), expected, "{framing:?} {key}");
        }
        classes.insert(expected.map(|m| m.class));
    }
    assert!(classes.len() > 4, "many classes were met: {classes:?}");
}
