//! Recognition by golden traces, against a plain model, and over random and structured flows.
#![allow(missing_docs, clippy::unwrap_used)]

#[path = "recognition/mod.rs"]
mod recognition;

use recognition::{dtls, edge_with, rtp, send, stun};
use std::net::Ipv4Addr;
use weir_core::Random;
use weir_core::packet::Key;
use weir_core::units::{Duration, Instant};
use weir_edge::edge::{Edge, Reason, Recognition};
use weir_edge::recognise::{Found, Kind, Payload, Rtp, Rules, statistical::Rule};

const S: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;

fn edge_of(rules: Rules) -> Edge {
    edge_with(Recognition { rules, flows: 1_024, ..Recognition::default() })
}

fn key(flow: u32) -> Key {
    let source = Ipv4Addr::from_bits(0x0a00_0000 + (flow >> 15));
    Key::ipv4(source, Ipv4Addr::new(192, 0, 2, 1), 17).with_ports(20_000 + (flow & 0x7fff) as u16, 5_004)
}

fn back(key: Key) -> Key {
    Key { src: key.dst, dst: key.src, src_port: key.dst_port, dst_port: key.src_port, ..key }
}

/// At which of these packets, from 1, the flow is found, if at all.
fn found_at<'a>(rules: Rules, packets: impl IntoIterator<Item = (u64, &'a [u8])>) -> Option<(usize, Found)> {
    let mut edge = edge_of(rules);
    let mut found = None;
    for (n, (at, bytes)) in packets.into_iter().enumerate() {
        let now = send(&mut edge, at, &key(1), bytes);
        assert!(found.is_none() || now.is_none(), "found twice");
        found = found.or(now.map(|now| (n + 1, now)));
    }
    found
}

/// The same of packets 20 ms apart.
fn found_of(rules: Rules, packets: &[Vec<u8>]) -> Option<usize> {
    let packets = packets.iter().enumerate().map(|(n, bytes)| (n as u64 * 20 * MS, bytes.as_slice()));
    found_at(rules, packets).map(|(n, _)| n)
}

/// T26 and T27: a flow is real-time at packet N if packet N comes within T of the first, and not a
/// nanosecond later; whatever N and T.
#[test]
fn t27_at_packet_n_within_t_and_not_a_nanosecond_later() {
    for seed in weir_seed::seeds(500) {
        let mut random = Random::new(seed);
        let (packets, within) = match random.below(4) {
            0 => (4, 2 * S),
            _ => (2 + random.below(14) as u8, 1 + random.below(2 * S)),
        };
        let rules =
            Rules { rtp: Some(Rtp { packets, within: Duration::from_nanos(within) }), ..Rules::default() };
        let start = random.below(1 << 40);
        for (last, expected) in [(within, true), (within + 1, false)] {
            let mut times: Vec<u64> = (0..packets - 2).map(|_| random.below(within)).collect();
            times.extend([0, last]);
            times.sort_unstable();
            let trace: Vec<(u64, Vec<u8>)> = times
                .iter()
                .zip(0..)
                .map(|(at, n)| (start + at, rtp(7, 65_530u16.wrapping_add(n), u32::from(n))))
                .collect();
            let found = found_at(rules, trace.iter().map(|(at, bytes)| (*at, bytes.as_slice())));
            assert_eq!(
                found.map(|(n, _)| n),
                expected.then_some(usize::from(packets)),
                "seed {seed} {times:?}"
            );
            if let Some((_, found)) = found {
                let Found { kind, ssrc, packets: count, span } = found;
                assert_eq!((kind, ssrc, count, span.as_nanos()), (Kind::Rtp, 7, packets, within));
            }
        }
    }
}

/// T27: with a T of minutes, times are kept in units of some ns; what is found lies within one of them.
#[test]
fn t27_a_long_time_is_exact_to_its_unit() {
    for within in [3 * S, 60 * S, 3_600 * S] {
        let found = |last| {
            let rtp_rule = Rtp { packets: 3, within: Duration::from_nanos(within) };
            let rules = Rules { rtp: Some(rtp_rule), ..Rules::default() };
            let idle = Duration::from_secs(10_000);
            let mut edge = edge_with(Recognition { rules, idle, flows: 8, ..Recognition::default() });
            let trace = [(0, rtp(7, 1, 1)), (S, rtp(7, 2, 2)), (last, rtp(7, 3, 3))];
            trace.iter().any(|(at, bytes)| send(&mut edge, *at, &key(1), bytes).is_some())
        };
        // An hour fits 32 bits in units of 2 us.
        assert!(found(within) && !found(within + 2_048), "{within}");
    }
}

/// T27: a flow is real-time for `idle` after its last packet, and gone a nanosecond later; its place in
/// the table is free a second later at most.
#[test]
fn t27_gone_when_idle() {
    let mut edge = edge_of(Rules::default());
    for n in 0..4 {
        send(&mut edge, n * 20 * MS, &key(1), &rtp(7, n as u16, n as u32));
    }
    let last = 60 * MS;
    let seen = |edge: &Edge, at| edge.flows(Instant::from_nanos(at)).count();
    assert_eq!((seen(&edge, last + 30 * S), seen(&edge, last + 30 * S + 1)), (1, 0));
    for n in 0..2 {
        let mut edge = edge.clone();
        // Until then the next packet is admitted at once, later it is the first of a new flow.
        let verdict = edge.packet(Instant::from_nanos(last + 30 * S + n), &key(1), Payload::UNKNOWN, 200);
        assert_eq!(verdict.reason, if n == 0 { Reason::InProfile } else { Reason::Ordinary });
    }
    let mut now = last;
    while edge.flow_stats().used > 0 {
        now = edge.poll_at().as_nanos();
        edge.timer(Instant::from_nanos(now));
        // The last packet of a class's flow ends with its window, and is swept from then on.
        assert!(now <= last + 32 * S, "{now}");
    }
    assert!(now > last + 30 * S, "{now}");
}

/// T26: what a chain bears and what it does not, each as a trace with the packet that is found.
#[test]
fn t26_golden_traces() {
    let plain = |n: u32| rtp(7, n as u16, 160 * n);
    let of = |numbers: &[u32]| numbers.iter().map(|&n| plain(n)).collect::<Vec<_>>();
    let first = |b0: u8, b1: u8, tail: &[u8], n: u32| {
        let mut bytes = plain(n)[..12].to_vec();
        (bytes[0], bytes[1]) = (b0, b1);
        bytes.extend(tail);
        bytes
    };
    let headers = |b0: u8, b1: u8, tail: &[u8]| (0..6).map(|n| first(b0, b1, tail, n)).collect::<Vec<_>>();
    let extension = [0xbe, 0xde, 0, 2, 1, 2, 3, 4, 5, 6, 7, 8];
    type Case = (&'static str, Vec<Vec<u8>>, Option<usize>);
    let cases: [Case; 24] = [
        ("in order", of(&[0, 1, 2, 3, 4]), Some(4)),
        ("three are not enough", of(&[0, 1, 2]), None),
        ("sequence wraps", (0..4).map(|n| rtp(7, 65_534u16.wrapping_add(n), 5)).collect(), Some(4)),
        (
            "timestamp wraps",
            (0..4).map(|n| rtp(7, n as u16, 0xffff_ff00u32.wrapping_add(160 * n))).collect(),
            Some(4),
        ),
        ("timestamp stays", (0..4).map(|n| rtp(7, n, 9)).collect(), Some(4)),
        ("timestamp goes back", (0..8).map(|n| rtp(7, n, 9_000 - u32::from(n))).collect(), None),
        ("reordered: the late one does not count", of(&[0, 2, 1, 3, 4]), Some(5)),
        ("duplicates do not count", of(&[0, 0, 1, 1, 2, 2, 3]), Some(7)),
        ("the same packet for ever", of(&[5; 50]), None),
        ("gaps of 16", of(&[0, 16, 32, 48]), Some(4)),
        ("gaps of 17", of(&[0, 17, 34, 51, 68, 85]), None),
        ("a gap of 17 begins again", of(&[0, 1, 2, 19, 20, 21, 22]), Some(7)),
        (
            "another SSRC begins again",
            {
                let mut all = of(&[0, 1, 2]);
                all.extend((0..4).map(|n| rtp(8, n, u32::from(n))));
                all
            },
            Some(7),
        ),
        ("two SSRCs in turn", { (0..8).map(|n| rtp(7 + n % 2, (n / 2) as u16, n)).collect() }, Some(7)),
        (
            "another type begins again",
            {
                let mut all = of(&[0, 1, 2]);
                all.extend((3..7).map(|n| first(0x80, 13, &[0; 4], n)));
                all
            },
            Some(7),
        ),
        (
            "the marker is no type",
            (0..4).map(|n| first(0x80, if n == 0 { 0x80 } else { 0 }, &[0; 4], n)).collect(),
            Some(4),
        ),
        ("two CSRCs", headers(0x82, 0, &[0; 12]), Some(4)),
        ("CSRCs beyond the end", headers(0x8f, 0, &[0; 59]), None),
        ("CSRCs up to the end", headers(0x8f, 0, &[0; 60]), Some(4)),
        ("an extension", headers(0x90, 0, &extension), Some(4)),
        ("an extension beyond the end", headers(0x90, 0, &extension[..11]), None),
        ("padding has one byte at least", headers(0xa0, 0, &[]), None),
        ("padding", headers(0xa0, 0, &[1]), Some(4)),
        (
            "no version 1 and no version 3",
            {
                let mut all = headers(0x40, 0, &[0; 20]);
                all.extend(headers(0xc0, 0, &[0; 20]));
                all
            },
            None,
        ),
    ];
    for (what, packets, expected) in cases {
        // Some of the broken ones would be headers further in, if one looked there.
        assert_eq!(found_of(Rules { offsets: false, ..Rules::default() }, &packets), expected, "{what}");
    }
    for payload_type in 0..128 {
        let expected = if (64..=95).contains(&payload_type) { None } else { Some(4) };
        let packets = headers(0x80, payload_type, &[0; 20]);
        assert_eq!(found_of(Rules::default(), &packets), expected, "payload type {payload_type}");
    }
    let zero: Vec<_> = (0..8).map(|n| rtp(0, n, u32::from(n))).collect();
    assert_eq!(found_of(Rules::default(), &zero), None, "SSRC 0");
    assert_eq!(found_of(Rules { rtp: None, ..Rules::default() }, &of(&[0, 1, 2, 3, 4, 5])), None);
}

/// T26: a chain is not lost to single packets of other SSRCs, of which a flow may have any number.
#[test]
fn t26_single_packets_do_not_push_a_chain_out() {
    for seed in weir_seed::seeds(200) {
        let mut random = Random::new(seed);
        let mut packets = vec![rtp(7, 0, 0), rtp(7, 1, 1)];
        for n in 2..4 {
            packets.extend((0..random.below(20)).map(|_| rtp(random.next_u64() as u32 | 8, 0, 0)));
            packets.push(rtp(7, n, u32::from(n)));
        }
        assert_eq!(found_of(Rules::default(), &packets), Some(packets.len()), "seed {seed}");
    }
}

/// T26: two packets suffice where ICE has succeeded both ways, where DTLS has finished, and where the
/// other direction is real-time; else it takes four, as where one of it is missing.
#[test]
fn t26_evidence_makes_two_packets_suffice() {
    let with = Rules { stun: true, dtls: true, ..Rules::default() };
    type Before = Vec<(bool, Vec<u8>)>;
    let (request, success, failure) = (stun(0x0001, 8), stun(0x0101, 12), stun(0x0111, 12));
    let hello = dtls(22, 0, 40);
    let both = |a: &Vec<u8>, b: &Vec<u8>| vec![(true, a.clone()), (false, b.clone())];
    let two_records: Vec<u8> = [dtls(22, 0, 20), dtls(20, 0, 1)].concat();
    let cases: Vec<(&str, Rules, Before, usize)> = vec![
        ("nothing", with, vec![], 4),
        ("success both ways", with, both(&success, &success), 2),
        ("success both ways, rule off", Rules { stun: false, ..with }, both(&success, &success), 4),
        ("success one way", with, both(&success, &request), 4),
        ("failures", with, both(&failure, &failure), 4),
        ("no cookie", with, both(&[0; 20].to_vec(), &[0; 20].to_vec()), 4),
        ("a length that is no multiple of 4", with, both(&stun(0x0101, 10), &stun(0x0101, 10)), 4),
        ("DTLS begun", with, both(&hello, &hello), 4),
        ("DTLS: keys are changed here", with, both(&dtls(20, 0, 1), &hello), 2),
        ("DTLS: keys are changed there", with, both(&hello, &dtls(20, 0, 1)), 2),
        ("DTLS: in the second record", with, vec![(true, two_records)], 2),
        ("DTLS: epoch 1", with, vec![(false, dtls(23, 1, 30))], 2),
        ("DTLS: rule off", Rules { dtls: false, ..with }, vec![(false, dtls(23, 1, 30))], 4),
        ("DTLS: longer than the datagram", with, vec![(true, dtls(20, 0, 1)[..13].to_vec())], 4),
        ("DTLS 1.3: short form without long", with, vec![(true, vec![0x2f; 40])], 4),
        ("DTLS 1.3: application keys", with, vec![(true, hello.clone()), (true, vec![0x2f; 40])], 2),
        ("DTLS 1.3: handshake keys", with, vec![(true, hello.clone()), (true, vec![0x2e; 40])], 4),
        ("reverse is real-time", Rules::default(), (0..4).map(|n| (false, rtp(9, n, 0))).collect(), 2),
        ("reverse is not yet", Rules::default(), (0..3).map(|n| (false, rtp(9, n, 0))).collect(), 4),
    ];
    for (what, rules, before, expected) in cases {
        for observed in [false, true] {
            let mut edge = edge_of(rules);
            let mut now = 0;
            for (forward, bytes) in &before {
                now += 5 * MS;
                match (forward, observed) {
                    (true, _) => assert_eq!(send(&mut edge, now, &key(1), bytes), None, "{what}"),
                    // What another port sees counts as well.
                    (false, true) => {
                        let payload =
                            Payload { head: &bytes[..bytes.len().min(64)], len: bytes.len() as u32 };
                        edge.observe(Instant::from_nanos(now), &back(key(1)), payload);
                    }
                    (false, false) => drop(send(&mut edge, now, &back(key(1)), bytes)),
                }
            }
            let media = (0..6).map(|n| (u64::from(n) * 20 * MS + now + 1, rtp(7, n, 160 * u32::from(n))));
            let at: Vec<usize> = media
                .zip(1..)
                .filter_map(|((at, bytes), n)| send(&mut edge, at, &key(1), &bytes).map(|_| n))
                .collect();
            assert_eq!(at, [expected], "{what}, observed {observed}");
        }
    }
}

/// T26: RTCP, STUN and DTLS between packets of a chain do not break it; after a long header of QUIC a
/// flow is not looked at any more.
#[test]
fn t26_other_protocols_in_a_flow() {
    let between = [
        stun(0x0001, 0),
        dtls(22, 0, 10),
        vec![0x80, 200, 0, 1, 0, 0, 0, 7],
        vec![0x81, 203, 0, 1, 0, 0, 0, 7],
    ];
    let mut packets = Vec::new();
    for n in 0..4 {
        packets.push(rtp(7, n, 0));
        packets.extend(between.iter().cloned());
    }
    assert_eq!(found_of(Rules::default(), &packets), Some(3 * 5 + 1));
    for version in [[0, 0, 0, 1], [0x6b, 0x33, 0x43, 0xcf], [0xff, 0, 0, 29], [0x1a, 0x2a, 0x3a, 0x4a]] {
        let mut initial = vec![0xc3];
        initial.extend(version);
        initial.push(8);
        initial.resize(1_200, 1);
        let mut edge = edge_of(Rules::default());
        assert_eq!(send(&mut edge, 0, &key(1), &initial), None);
        let last =
            (1..40).map(|n| send(&mut edge, n * MS, &key(1), &rtp(7, n as u16, 0))).collect::<Vec<_>>();
        assert!(last.iter().all(Option::is_none), "{version:?}");
        assert_eq!(edge.packet(Instant::ZERO, &key(1), Payload::UNKNOWN, 60).reason, Reason::Quic);
        assert_eq!(edge.flow_stats().quic, 1);
    }
    let mut unknown = vec![0xc3, 9, 9, 9, 9, 8];
    unknown.resize(1_200, 1);
    let mut packets = vec![unknown];
    packets.extend((0..4).map(|n| rtp(7, n, 0)));
    assert_eq!(found_of(Rules { offsets: false, ..Rules::default() }, &packets), Some(5));
}

/// T26: media in a TURN channel is found at the Nth packet; behind a length that does not fit it is
/// found as any header further in.
#[test]
fn t26_media_in_a_channel() {
    let channel = |n: u16, error: i16, pad: usize| {
        let inner = rtp(7, n, u32::from(n));
        let mut bytes = vec![0x40, 1];
        bytes.extend((inner.len() as u16).wrapping_add_signed(error).to_be_bytes());
        bytes.extend(inner);
        bytes.resize(bytes.len() + pad, 0);
        bytes
    };
    for (error, pad, expected) in
        [(0, 0, Some(4)), (0, 3, Some(4)), (0, 4, Some(8)), (1, 0, Some(8)), (-1, 0, Some(4))]
    {
        let packets: Vec<_> = (0..9).map(|n| channel(n, error, pad)).collect();
        assert_eq!(found_of(Rules::default(), &packets), expected, "{error} {pad}");
    }
    let packets: Vec<_> = (0..9).map(|n| channel(n, 0, 4)).collect();
    assert_eq!(found_of(Rules { offsets: false, ..Rules::default() }, &packets), None);
}

/// T26: a header further in is found at packet 2N, behind bytes of any value; not where offsets are
/// off; and only in the first 200 packets and 10 s of a flow.
#[test]
fn t26_headers_further_in() {
    for seed in weir_seed::seeds(300) {
        let mut random = Random::new(seed);
        let at = [4u8, 8, 12, 16, 19, 24, 27, 32, 36][random.below(9) as usize];
        let hidden = |random: &mut Random, n: u16| {
            // A first byte that is no protocol's: that of Zoom's relay, say.
            let mut bytes = vec![5];
            bytes.extend((1..at).map(|_| random.next_u64() as u8));
            bytes.extend(rtp(7, n, u32::from(n)));
            bytes
        };
        let packets: Vec<_> = (0..12).map(|n| hidden(&mut random, n)).collect();
        let trace = || packets.iter().zip(0..).map(|(bytes, n)| (n * 20 * MS, bytes.as_slice()));
        let found = found_at(Rules::default(), trace());
        // Random bytes may look like headers, and cost a chain its place before it has two packets.
        let found = found.map(|(n, found)| (n, found.kind, found.packets));
        assert!(
            matches!(found, Some((8..=11, kind, 8)) if kind == Kind::Further(at)),
            "seed {seed}: {found:?} at {at}"
        );
        assert_eq!(found_at(Rules { offsets: false, ..Rules::default() }, trace()), None);
        let noise = |random: &mut Random, packets: u64| {
            let bytes =
                |random: &mut Random| (0..40).map(|_| 96 + random.below(30) as u8).collect::<Vec<u8>>();
            (0..packets).map(|_| bytes(random)).collect::<Vec<_>>()
        };
        for (before, expected) in [(192, Some(200)), (193, None)] {
            let mut all = noise(&mut random, before);
            all.extend((0..20).map(|n| {
                let mut bytes = vec![96; usize::from(at)];
                bytes.extend(rtp(7, n, u32::from(n)));
                bytes
            }));
            assert_eq!(found_of(Rules::default(), &all), expected, "seed {seed} at {at}");
        }
    }
    // Seven of eight within 10 s of the first packet, and the eighth just then, or a coarse unit later.
    for (last, expected) in [(9_999 * MS, Some(9)), (10_003 * MS, None)] {
        let mut trace = vec![(0, vec![96; 40])];
        trace.extend((0..8).map(|n| {
            let mut bytes = vec![96; 27];
            bytes.extend(rtp(7, n, u32::from(n)));
            (last - (7 - u64::from(n)) * 20 * MS, bytes)
        }));
        let found = found_at(Rules::default(), trace.iter().map(|(at, bytes)| (*at, bytes.as_slice())));
        assert_eq!(found.map(|(n, _)| n), expected, "{last}");
    }
}

/// A plain model of chains for up to four SSRCs: for each the packets that go on from each other.
#[derive(Default)]
struct Model {
    chains: std::collections::BTreeMap<u32, Vec<(u64, u16, u32, u8)>>,
}

impl Model {
    /// True if this packet is the Nth of its chain, within T.
    fn packet(&mut self, at: u64, ssrc: u32, sequence: u16, timestamp: u32, kind: u8, rtp: &Rtp) -> bool {
        let chain = self.chains.entry(ssrc).or_default();
        if chain.first().is_some_and(|first| at - first.0 > rtp.within.as_nanos()) {
            chain.clear();
        }
        if let Some(&(_, last, before, its)) = chain.last() {
            let ahead = (i32::from(sequence) - i32::from(last)).rem_euclid(65_536);
            if its == kind && (ahead == 0 || ahead >= 65_536 - 16) {
                return false;
            }
            let behind = (i64::from(timestamp) - i64::from(before)).rem_euclid(1 << 32) >= 1 << 31;
            if its != kind || ahead > 16 || behind {
                chain.clear();
            }
        }
        chain.push((at, sequence, timestamp, kind));
        chain.len() == usize::from(rtp.packets)
    }
}

/// T26, T27: random traces of up to four SSRCs are found at the very packet where a plain model finds
/// them. The model with a T that is one nanosecond shorter, or with steps of 17, is not met.
#[test]
fn t26_random_traces_against_a_plain_model() {
    let mut found_in_all = 0;
    let mut differs = 0;
    for seed in weir_seed::seeds(3_000) {
        let mut random = Random::new(seed);
        let packets = 2 + random.below(6) as u8;
        let within = 40 * MS * (1 + random.below(u64::from(packets)));
        let rule = Rtp { packets, within: Duration::from_nanos(within) };
        let rules = Rules { rtp: Some(rule), ..Rules::default() };
        let mut edge = edge_of(rules);
        let (mut model, mut other) = (Model::default(), Model::default());
        let shorter = Rtp { within: Duration::from_nanos(within - 1), ..rule };
        let mut state = [(0u16, 0u32); 4].map(|_| (random.next_u64() as u16, random.next_u64() as u32));
        let sources = 1 + random.below(4) as usize;
        let mut at = random.below(1 << 50);
        let mut other_says = false;
        for n in 0..60 {
            at += 10 * MS * random.below(5);
            let source = random.below(sources as u64) as usize;
            let (sequence, timestamp) = &mut state[source];
            *sequence =
                sequence.wrapping_add([1, 1, 1, 1, 0, 2, 16, 17, 65_535, 65_520][random.below(10) as usize]);
            let step = [160, 160, 160, 0, 1 << 31, (1 << 31) - 1, u32::MAX][random.below(7) as usize];
            *timestamp = timestamp.wrapping_add(step);
            let kind = u8::from(random.below(12) == 0);
            let mut bytes = rtp(source as u32 + 7, *sequence, *timestamp);
            bytes[1] = kind | if random.below(2) == 0 { 0x80 } else { 0 };
            let expected = model.packet(at, source as u32 + 7, *sequence, *timestamp, kind, &rule);
            other_says |= other.packet(at, source as u32 + 7, *sequence, *timestamp, kind, &shorter);
            let found = send(&mut edge, at, &key(1), &bytes);
            assert_eq!(found.is_some(), expected, "seed {seed} packet {n}");
            if expected {
                found_in_all += 1;
                differs += u32::from(!other_says);
                break;
            }
        }
    }
    assert!(found_in_all > 500 && differs > 0, "{found_in_all} {differs}");
}

/// T28, T31, T32: the statistical rule holds at its thresholds, for each flow, and looks at no byte.
#[test]
fn t28_the_statistical_rule() {
    let rule = Rule::default();
    let guess = |rule| Rules { rtp: None, statistical: Some(rule), ..Rules::default() };
    // Packets of `len` bytes of UDP payload, at these times.
    let run = |rules: Rules, len: u32, times: &[u64]| {
        let mut edge = edge_of(rules);
        let payload = Payload { head: &[], len };
        times
            .iter()
            .position(|&at| edge.packet(Instant::from_nanos(at), &key(1), payload, len + 42).found.is_some())
    };
    let every = |gap: u64| (0..400).map(|n| n * gap).collect::<Vec<_>>();
    // G.711 with 20 ms: 200 bytes of IP. Known after 30 gaps.
    assert_eq!(run(guess(rule), 172, &every(20 * MS)), Some(30));
    assert_eq!(run(Rules { statistical: None, ..guess(rule) }, 172, &every(20 * MS)), None);
    // K: 320 bytes of IP are short, 321 are not.
    assert_eq!(run(guess(rule), 292, &every(20 * MS)), Some(30));
    assert_eq!(run(guess(rule), 293, &every(20 * MS)), None);
    // L: 16 packets in a second, not 15; within the 5 % that are asked for.
    assert!(run(guess(rule), 172, &every(S / 16)).is_some());
    assert!(run(guess(rule), 172, &every(S / 15 + MS)).is_none());
    // J.
    assert_eq!(run(guess(Rule { skip: 100, ..rule }), 172, &every(20 * MS)), Some(100));
    // Even: gaps of 10 and 30 ms deviate by half their mean, those of 9 and 31 by more.
    let uneven = |short: u64| {
        let gap = |n: u64| if n.is_multiple_of(2) { short } else { 40 * MS - short };
        (0..400)
            .scan(0, |at, n| {
                *at += gap(n);
                Some(*at)
            })
            .collect::<Vec<_>>()
    };
    assert!(run(guess(rule), 172, &uneven(11 * MS)).is_some());
    assert!(run(guess(rule), 172, &uneven(9 * MS)).is_none());
    // The way back has at most 20 times as much, and DNS is none.
    for (times_as_much, expected) in [(19, true), (22, false)] {
        let mut edge = edge_of(guess(rule));
        let found = (0..60).any(|n| {
            let now = Instant::from_nanos(n * 20 * MS);
            for _ in 0..times_as_much {
                edge.packet(now, &back(key(1)), Payload { head: &[], len: 72 }, 114);
            }
            edge.packet(now, &key(1), Payload { head: &[], len: 72 }, 114).found.is_some()
        });
        assert_eq!(found, expected, "{times_as_much}");
    }
    let mut edge = edge_of(guess(rule));
    let dns = key(1).with_ports(40_000, 53);
    assert!((0..100).all(|n| {
        edge.packet(Instant::from_nanos(n * 20 * MS), &dns, Payload { head: &[], len: 40 }, 82)
            .found
            .is_none()
    }));
}
