//! Flows that are no media, random and built like common protocols: hardly one may be taken for real-time. And
//! floods of strangers, which may not keep calls from being found.
#![allow(missing_docs, clippy::unwrap_used)]

#[path = "recognition/mod.rs"]
mod recognition;

use recognition::{edge_with, rtp, send};
use std::net::Ipv4Addr;
use weir_core::Random;
use weir_core::packet::{Dscp, Key};
use weir_core::units::{Duration, Fraction, Instant};
use weir_edge::edge::{Edge, Reason, Recognition};
use weir_edge::flow::State;
use weir_edge::recognise::{Payload, Place, Rules, Sample, Trial, Verdict, look};
use weir_edge::sla::{Contract, Policy, Prefix};

const S: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;

/// Packets of each flow.
const PACKETS: u64 = 60;

fn bytes(random: &mut Random, len: usize) -> Vec<u8> {
    let mut all: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| random.next_u64().to_le_bytes()).collect();
    all.truncate(len);
    all
}

/// A protocol: what of its packets stays, what counts and what is random.
struct Protocol {
    name: &'static str,
    packet: fn(&mut Random, &mut Vec<u8>, u64),
}

/// What a flow keeps: 64 random octets, drawn once.
type Kept<'a> = &'a mut Vec<u8>;

fn put(head: Kept<'_>, at: usize, value: &[u8]) {
    head[at..at + value.len()].copy_from_slice(value);
}

/// Headers as their documents have them; what follows is random.
const PROTOCOLS: [Protocol; 13] = [
    Protocol { name: "random", packet: |random, head, _| *head = bytes(random, 64) },
    Protocol { name: "constant", packet: |_, _, _| {} },
    Protocol {
        // RFC 1035: an identifier, flags, counts, a name.
        name: "dns",
        packet: |random, head, _| {
            put(head, 0, &bytes(random, 2));
            put(head, 2, &[0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
            put(head, 12, b"\x03www\x07example\x03com\0\0\x01\0\x01");
        },
    },
    Protocol {
        // RFC 5905: flags, stratum, poll, precision, delay, dispersion, reference, four times.
        name: "ntp",
        packet: |random, head, n| {
            put(head, 0, &[0x24, 2, 6, 0xe9]);
            for at in [16, 24, 32, 40] {
                put(head, at, &3_900_000_000u32.wrapping_add(n as u32).to_be_bytes());
                put(head, at + 4, &bytes(random, 4));
            }
        },
    },
    Protocol {
        // RFC 9000: a short header, an identifier of 8 octets, the rest encrypted.
        name: "quic",
        packet: |random, head, _| {
            let rest = bytes(random, 55);
            put(head, 9, &rest);
            head[0] = 0x40 | (random.next_u64() as u8 & 0x3f);
        },
    },
    Protocol {
        // WireGuard: type 4, receiver, counter (little endian), the rest encrypted.
        name: "wireguard",
        packet: |random, head, n| {
            put(head, 0, &[4, 0, 0, 0]);
            put(head, 8, &n.to_le_bytes());
            put(head, 16, &bytes(random, 48));
        },
    },
    Protocol {
        // BEP 29: type and version, extension, connection, time in us, difference, window, sequence, ack.
        name: "utp",
        packet: |random, head, n| {
            put(head, 0, &[1, 0]);
            put(head, 4, &(n as u32).wrapping_mul(20_000).to_be_bytes());
            put(head, 8, &bytes(random, 4));
            put(head, 12, &[0, 16, 0, 0]);
            put(head, 16, &(n as u16).to_be_bytes());
            put(head, 18, &(n as u16).to_be_bytes());
            put(head, 20, &bytes(random, 44));
        },
    },
    Protocol {
        // KCP: conversation, command, fragment, window, time, sequence, una, length (little endian).
        name: "kcp",
        packet: |random, head, n| {
            put(head, 4, &[81, 0, 128, 0]);
            put(head, 8, &(n as u32).wrapping_mul(10).to_le_bytes());
            put(head, 12, &(n as u32).to_le_bytes());
            put(head, 16, &(n as u32).to_le_bytes());
            put(head, 24, &bytes(random, 40));
        },
    },
    Protocol {
        // A game: sequence, acknowledgement, time, then deltas of state.
        name: "game",
        packet: |random, head, n| {
            put(head, 0, &(n as u32).to_le_bytes());
            put(head, 4, &(n as u32).to_le_bytes());
            put(head, 8, &bytes(random, 56));
        },
    },
    Protocol {
        // The same, big endian, with the version's bits of RTP and a constant in front.
        name: "game with bit 7",
        packet: |random, head, n| {
            put(head, 0, &[0x80, 0x11]);
            put(head, 2, &(n as u16).to_be_bytes());
            put(head, 4, &bytes(random, 60));
        },
    },
    Protocol {
        // RFC 4303 in UDP: SPI, sequence, the rest encrypted.
        name: "esp",
        packet: |random, head, n| {
            put(head, 4, &(n as u32).wrapping_add(1).to_be_bytes());
            put(head, 8, &bytes(random, 56));
        },
    },
    Protocol {
        // OpenVPN: opcode and key, peer, packet number, the rest encrypted.
        name: "openvpn",
        packet: |random, head, n| {
            put(head, 0, &[0x48]);
            put(head, 4, &(n as u32).to_be_bytes());
            put(head, 8, &bytes(random, 56));
        },
    },
    Protocol {
        // RFC 1002: a datagram of NetBIOS: type, flags, identifier, source.
        name: "netbios",
        packet: |_, head, n| {
            put(head, 0, &[0x11, 0x0a]);
            put(head, 2, &0x8000u16.wrapping_add(n as u16).to_be_bytes());
            put(head, 4, &[10, 0, 0, 1, 0, 138, 0, 187, 0, 0]);
        },
    },
];

/// How many of so many flows of a protocol are taken for real-time, judged alone or with evidence.
fn taken(protocol: &Protocol, flows: u64, random: &mut Random, rules: &Rules, expected: bool) -> u64 {
    (0..flows)
        .filter(|_| {
            let mut head = bytes(random, 64);
            let mut trial = Trial::new(Instant::ZERO);
            (0..PACKETS).any(|n| {
                (protocol.packet)(random, &mut head, n);
                let len = 64 + random.below(1_000) as u32;
                let now = Instant::from_nanos(n * 20_000_000);
                let pause = if n == 0 {
                    Default::default()
                } else {
                    now.since(Instant::from_nanos((n - 1) * 20_000_000))
                };
                let sample = Sample {
                    now,
                    pause,
                    head: &head,
                    len,
                    place: Place::START,
                    expected,
                    reverse_bytes: 0,
                    ip_len: len + 28,
                    rules,
                };
                matches!(look(&mut trial, &sample), Verdict::RealTime(_))
            })
        })
        .count() as u64
}

/// T26: of random and of structured flows hardly one is taken for real-time, with all that looks further
/// in switched on: at most 1 in 10^4 is asked for. A rule without sequence and timestamp takes many.
#[test]
fn t26_strangers_are_ordinary() {
    let mut random = Random::new(weir_seed::seed());
    let rules = Rules { stun: true, dtls: true, ..Rules::default() };
    // A million of each kind: WEIR_EFFORT=100.
    let flows = weir_seed::effort(10_000);
    let mut all = 0;
    for protocol in &PROTOCOLS {
        let each = if protocol.name == "random" { flows } else { flows / 12 };
        let found = taken(protocol, each, &mut random, &rules, false);
        assert!(found * 10_000 <= each, "{}: {found} of {each}", protocol.name);
        all += found;
    }
    assert!(all * 10_000 <= 2 * flows, "{all}");
    // Two packets suffice where media is expected: even then.
    let found = taken(&PROTOCOLS[0], flows, &mut random, &rules, true);
    assert!(found * 10_000 <= flows, "with evidence: {found} of {flows}");
    // The measure sees what would be taken: the same flows with a constant SSRC and a sequence.
    let media = Protocol {
        name: "media",
        packet: |random, head, n| {
            let rest = bytes(random, 52);
            put(head, 12, &rest);
            put(head, 0, &[0x80, 111]);
            put(head, 2, &(n as u16).to_be_bytes());
            put(head, 4, &(n as u32 * 960).to_be_bytes());
        },
    };
    assert_eq!(taken(&media, 100, &mut random, &rules, false), 100);
}

/// No bytes at all make the edge panic, nor a flow real-time by their lengths alone.
#[test]
fn t26_damaged_packets() {
    let rules = Rules { stun: true, dtls: true, statistical: Some(Default::default()), ..Rules::default() };
    let recognition = Recognition { rules, flows: 4_096, ..Recognition::default() };
    let mut edge = edge_with(recognition);
    let mut random = Random::new(weir_seed::seed());
    let mut now = 0;
    for n in 0..weir_seed::effort(200_000) {
        // A header of each protocol, cut anywhere, with lengths that lie.
        let mut head = bytes(&mut random, 64);
        let protocol = &PROTOCOLS[random.below(PROTOCOLS.len() as u64) as usize];
        (protocol.packet)(&mut random, &mut head, n);
        if random.below(2) == 0 {
            head[0] = [0, 1, 20, 22, 47, 64, 79, 128, 0x90, 0xbf, 0xc0, 0xff][random.below(12) as usize];
            put(&mut head, 1, &bytes(&mut random, 3));
        }
        head.truncate(random.below(80) as usize);
        let len =
            [head.len() as u32, random.below(2_000) as u32, u32::from(u16::MAX), 0][random.below(4) as usize];
        now += random.below(1 << 24);
        let ports = (random.below(500) as u16, 5_004);
        let key = Key::ipv4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(192, 0, 2, 1), 17)
            .with_ports(ports.0, ports.1);
        let payload = Payload { head: &head, len };
        let verdict = edge.packet(Instant::from_nanos(now), &key, payload, len.saturating_add(42));
        assert!(verdict.found.is_none_or(|found| found.packets >= 4 || found.ssrc == 0), "{verdict:?}");
    }
    assert!(edge.flow_stats().inspected > 100_000);
}

fn contract(id: u32, flows: u32) -> Contract {
    Contract {
        id,
        bandwidth_bps: 1_000_000_000,
        shared: Fraction::ratio(50, 100),
        lend: true,
        dscp: Dscp::EF,
        policy: Policy::BestEffort,
        timeout: Some(Duration::from_secs(5)),
        flows,
        class: 0,
        accept: None,
        drop: None,
        evict: None,
        guessed: None,
        guessed_dscp: None,
    }
}

/// An edge with two contracts, of the sources 10.0.0.0/24 and 10.0.1.0/24.
fn two_contracts(table: u32, each: u32) -> Edge {
    let rules = Rules::default();
    let mut config =
        edge_with(Recognition { rules, flows: table, ..Recognition::default() }).config().clone();
    config.contracts = vec![contract(1, each), contract(2, each)];
    config.prefixes =
        vec![(Prefix::new(false, 0x0a00_0000, 24), 0), (Prefix::new(false, 0x0a00_0100, 24), 1)];
    Edge::new(config, Instant::ZERO)
}

fn from(contract: u32, flow: u16) -> Key {
    let source = Ipv4Addr::from_bits(0x0a00_0000 + (contract << 8));
    Key::ipv4(source, Ipv4Addr::new(192, 0, 2, 1), 17).with_ports(flow, 5_004)
}

/// T65: a flood under one contract pushes no real-time flow of another out, and fills no more places
/// than its contract has flows; a call of its own that begins in the flood is found.
#[test]
fn t65_a_flood_under_one_contract() {
    let mut edge = two_contracts(256, 64);
    for n in 0..4 {
        for call in 0..20 {
            send(&mut edge, u64::from(n) * 20 * MS, &from(1, call), &rtp(7, n, 0));
        }
    }
    let states = |edge: &Edge, contract: u32, now: u64| {
        let mine = |flow: &&weir_edge::flow::Flow| flow.contract == contract;
        edge.flows(Instant::from_nanos(now)).filter(mine).map(|flow| flow.state()).collect::<Vec<_>>()
    };
    assert_eq!(states(&edge, 1, 0), [State::Admitted; 20]);
    let mut found = Vec::new();
    for n in 0..weir_seed::effort(100_000) {
        let now = 100 * MS + n * MS;
        send(&mut edge, now, &from(0, 2_000 + (n % 60_000) as u16), &[1; 40]);
        if n % 20 == 0 {
            let packet = n / 20;
            found.extend(send(&mut edge, now, &from(0, 1), &rtp(7, packet as u16, 0)).map(|_| packet));
            for call in 0..20 {
                let verdict = edge.packet(Instant::from_nanos(now), &from(1, call), Payload::UNKNOWN, 200);
                assert_eq!(verdict.reason, Reason::InProfile);
            }
            assert!(states(&edge, 0, now).len() <= 64);
        }
    }
    assert_eq!(found, [3], "the call of the same contract");
    assert_eq!(states(&edge, 1, S), [State::Admitted; 20]);
    assert!(edge.flow_stats().replaced > 90_000, "{:?}", edge.flow_stats());
}

/// T65: whoever floods an address from outside, with headers of RTP or without, leaves its calls their places.
#[test]
fn t65_strangers_outside_leave_own_calls_their_places() {
    let contract = Contract { bandwidth_bps: 1_000_000, shared: Fraction::ratio(1, 1), ..contract(17, 8) };
    for has_headers in [true, false] {
        let mut config = edge_with(Recognition::default()).config().clone();
        config.contracts = vec![contract.clone()];
        config.prefixes = vec![(Prefix::new(false, 0x0a00_0000, 32), 0)];
        let mut edge = Edge::new(config, Instant::ZERO);
        let own = Ipv4Addr::new(10, 0, 0, 0);
        let stranger = |n: u16| Key::ipv4(Ipv4Addr::new(203, 0, 113, 9), own, 17).with_ports(n, 9_000);
        let (mut now, mut port, mut found) = (Instant::ZERO, 1, None);
        for packet in 0..20u16 {
            // A hundred new flows between two packets of the call.
            for _ in 0..100 {
                port += 1;
                for n in 0..4u16 {
                    let mut bytes = rtp(u32::from(port), n, u32::from(n) * 160);
                    bytes[0] = if has_headers { 0x80 } else { 0x41 };
                    edge.observe(now, &stranger(port), Payload { head: &bytes, len: bytes.len() as u32 });
                    now += Duration::from_micros(50);
                }
            }
            let bytes = rtp(7, packet, u32::from(packet) * 160);
            let key = Key::ipv4(own, Ipv4Addr::new(192, 0, 2, 1), 17).with_ports(4_000, 5_004);
            let verdict = edge.packet(now, &key, Payload { head: &bytes, len: bytes.len() as u32 }, 214);
            found = found.or(verdict.found.map(|_| packet + 1));
        }
        assert_eq!(found, Some(4), "{has_headers}");
    }
}
