//! Sessions: traffic with bandwidth of its own is in its class whatever it carries, up to its rate and no further, and
//! nobody else pays for it.
#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::VecDeque;
use std::net::{Ipv4Addr, Ipv6Addr};
use weir_core::Random;
use weir_core::packet::{Dscp, Key};
use weir_core::units::{Duration, Fraction, Instant};
use weir_edge::admit::Admission;
use weir_edge::allocate::{Action, Allocation, Answer, Congestion, Law, Log, Windows};
use weir_edge::edge::{Class, Config, Edge, Place, Reason, Recognition, Session, Verdict, Why};
use weir_edge::recognise::Payload;
use weir_edge::sla::{Contract, Policy, Prefix};

const MS: u64 = 1_000_000;
const FROM: u64 = 64_000;
const RATE: u64 = 400_000;
const LEAF: u32 = 3;

fn at(ns: u64) -> Instant {
    Instant::from_nanos(ns)
}

/// A class with an allocator of the logarithmic law, one contract that marks AF41, and recognition.
fn config(leaf: u32) -> Config {
    let windows = Windows { span: Duration::from_millis(100), hold: 2 };
    let allocation = Allocation {
        law: Law::Log(Log::default()),
        windows,
        from: FROM,
        to: 1_000_000,
        ..Allocation::default()
    };
    let class = Class { leaf, allocation: Some(allocation), admission: Admission::default(), rate_bps: 0 };
    let contract = Contract {
        id: 17,
        bandwidth_bps: 512_000,
        shared: Fraction::ZERO,
        lend: true,
        dscp: Dscp::from_name("AF41").unwrap(),
        policy: Policy::BestEffort,
        timeout: None,
        flows: 64,
        class: 0,
        accept: None,
        drop: None,
        evict: None,
        guessed: None,
        guessed_dscp: None,
    };
    Config {
        classes: vec![class],
        contracts: vec![contract],
        prefixes: vec![(v4([10, 0, 0, 0], 24), 0)],
        recognition: Some(Recognition { flows: 64, ..Recognition::default() }),
        keep_untrusted: false,
        overhead: 24,
        seed: 1,
    }
}

fn v4(address: [u8; 4], length: u8) -> Prefix {
    Prefix::new(false, Ipv4Addr::from(address).to_bits().into(), length)
}

fn session(id: u128, leaf: u32) -> Session {
    let place = |prefix, ports| vec![Place { prefix, ports }];
    Session {
        id,
        leaf,
        rate_bps: RATE,
        device: place(v4([10, 0, 0, 7], 32), vec![(5_000, 5_009)]),
        server: place(v4([192, 0, 2, 0], 24), vec![]),
    }
}

fn key(protocol: u8, device_port: u16) -> Key {
    Key::ipv4(Ipv4Addr::new(10, 0, 0, 7), Ipv4Addr::new(192, 0, 2, 9), protocol)
        .with_ports(device_port, 443)
        .with_tos(1)
}

fn back(key: Key) -> Key {
    Key { src: key.dst, dst: key.src, src_port: key.dst_port, dst_port: key.src_port, ..key }
}

fn sent(edge: &mut Edge, now: u64, key: &Key) -> Verdict {
    let verdict = edge.packet(at(now), key, Payload::UNKNOWN, 1_000);
    if verdict.reason == Reason::InProfile {
        edge.entered(at(now), LEAF, 1_000);
        edge.left(at(now), LEAF, 1_000, true);
    }
    verdict
}

/// The last rate that the class is to have, if it is to have another; and what was asked for.
fn polled(edge: &mut Edge) -> (Option<u64>, Vec<u64>) {
    let (mut shaped, mut asked) = (None, Vec::new());
    while let Some((_, action)) = edge.poll() {
        match action {
            Action::Shape(rate) => shaped = Some(rate),
            Action::Ask(request) => asked.push(request.rate_bps),
        }
    }
    (shaped, asked)
}

/// TCP and UDP in both directions have the code point of the class while the session lasts, and neither before nor after. What
/// does not fit its ends never has.
#[test]
fn traffic_of_a_session_is_in_its_class_while_it_lasts() {
    let mut edge = Edge::new(config(LEAF), Instant::ZERO);
    let mine = [key(6, 5_004), key(17, 5_004), back(key(6, 5_000)), back(key(17, 5_009))];
    let other = [
        key(17, 5_010),
        Key { dst: u128::from(Ipv4Addr::new(192, 0, 3, 9).to_bits()), ..key(17, 5_004) },
        Key { src: u128::from(Ipv4Addr::new(10, 0, 0, 8).to_bits()), ..key(17, 5_004) },
        key(47, 0),
    ];
    for (step, lasts) in [(0, false), (1, true), (2, false)] {
        edge.set_sessions(at(step * MS), if lasts { vec![session(9, LEAF)] } else { vec![] });
        for (n, key) in mine.iter().enumerate() {
            let verdict = sent(&mut edge, step * MS + n as u64, key);
            let (dscp, reason) = if lasts { (34, Reason::InProfile) } else { (0, Reason::Ordinary) };
            assert_eq!((verdict.tos >> 2, verdict.tos & 3, verdict.reason), (dscp, 1, reason), "{key}");
            let why = edge.explain(key).why;
            assert_eq!(why == Why::Session(9, at(MS)), lasts, "{key}: {why:?}");
        }
        for key in &other {
            let verdict = sent(&mut edge, step * MS + 9, key);
            assert_eq!(verdict.tos >> 2, 0, "{key}");
            assert!(!matches!(edge.explain(key).why, Why::Session(..)), "{key}");
        }
    }
}

/// A session has its rate and the depth of a bucket, and no more: the rest is best effort. It needs no contract, and it is
/// there while recognition is off.
#[test]
fn a_session_has_its_rate_and_no_more() {
    let mut plain = config(LEAF);
    (plain.contracts, plain.prefixes) = (vec![], vec![]);
    for (config, dscp, recognises) in [(config(LEAF), 34, true), (config(LEAF), 34, false), (plain, 46, true)]
    {
        let mut edge = Edge::new(config, Instant::ZERO);
        edge.recognise(at(0), recognises);
        edge.set_sessions(at(0), vec![session(9, LEAF)]);
        // Ten times the rate, for 10 s. What each packet costs besides counts.
        let (mut marked, mut all) = (0, 0);
        for n in 0..5_000 {
            let verdict = sent(&mut edge, n * 2 * MS, &key(17, 5_004));
            assert!(!verdict.drop);
            assert_eq!(verdict.tos >> 2, if verdict.reason == Reason::InProfile { dscp } else { 0 });
            marked += u64::from(verdict.reason == Reason::InProfile);
            all += 1;
        }
        let (cost, most) = (8 * 1_024, RATE * 10 + 2 * (RATE / 10).max(2 * 8 * 1_538));
        assert!((RATE * 10 - cost..=most).contains(&(marked * cost)), "{marked} of {all}");
        let now = edge.sessions().next().unwrap().1;
        assert_eq!(now.in_profile, [marked * 1_000, marked]);
        assert_eq!(now.in_profile[1] + now.best_effort[1], all);
    }
}

/// The class has the rate of its sessions besides what its law asks for. The law neither sees nor asks for what they send,
/// wherever it measures. Reversed: the same packets without a session make it ask.
#[test]
fn the_rate_of_a_session_comes_on_top() {
    for at_shaper in [false, true] {
        for with_session in [true, false] {
            let mut config = config(LEAF);
            if let Some(allocation) = &mut config.classes[0].allocation {
                allocation.at_shaper = at_shaper;
            }
            // Without a session the same packets are those of an admitted flow.
            config.recognition = Some(Recognition { trust_dscp: true, ..config.recognition.unwrap() });
            let mut edge = Edge::new(config, Instant::ZERO);
            assert_eq!(polled(&mut edge), (Some(FROM), vec![]));
            if with_session {
                edge.set_sessions(at(0), vec![session(9, LEAF)]);
                assert_eq!(polled(&mut edge), (Some(FROM + RATE), vec![]));
            }
            let mut asked = 0;
            // 380 kbit/s for 3 s.
            for n in 0..140 {
                let verdict = sent(&mut edge, n * 21 * MS, &key(17, 5_004).with_tos(46 << 2));
                assert!(!with_session || verdict.reason == Reason::InProfile, "{n}: {verdict:?}");
                asked += polled(&mut edge).1.len();
            }
            assert_eq!(asked == 0, with_session, "{asked} requests");
            edge.set_sessions(at(3_000 * MS), vec![]);
            let (shaped, _) = polled(&mut edge);
            assert_eq!(shaped, with_session.then_some(FROM), "{asked}");
        }
    }
}

/// A configuration that is followed keeps the sessions of classes that go on, with their tokens, and ends those of others.
#[test]
fn sessions_outlast_another_configuration() {
    let mut edge = Edge::new(config(LEAF), Instant::ZERO);
    edge.set_sessions(at(0), vec![session(9, LEAF)]);
    while sent(&mut edge, 0, &key(17, 5_004)).reason == Reason::InProfile {}
    polled(&mut edge);
    edge.follow(at(1), config(LEAF + 2), &[Some(0)]);
    assert_eq!(sent(&mut edge, 1, &key(17, 5_004)).reason, Reason::OutOfProfile, "no tokens are made");
    assert_eq!(polled(&mut edge), (Some(FROM + RATE), vec![]));
    let now = edge.sessions().next().unwrap().1;
    assert_eq!((now.id, now.leaf, now.since), (9, LEAF + 2, at(0)));
    // The same said again changes nothing; with another rate it begins anew.
    edge.set_sessions(at(2), vec![session(9, LEAF + 2)]);
    assert_eq!(edge.sessions().next().map(|s| s.1), Some(now));
    assert_eq!(polled(&mut edge), (None, vec![]));
    edge.set_sessions(at(2), vec![Session { rate_bps: 2 * RATE, ..session(9, LEAF + 2) }, session(10, 99)]);
    assert_eq!(polled(&mut edge), (Some(FROM + 2 * RATE), vec![]));
    assert_eq!(edge.sessions().map(|s| s.1.id).collect::<Vec<_>>(), [9], "leaf 99 is no class");
    edge.follow(at(3), config(LEAF), &[None]);
    assert_eq!(edge.sessions().count(), 0);
    assert_eq!(edge.session_of(&key(17, 5_004)), None);
    assert_eq!(polled(&mut edge), (Some(FROM), vec![]));
}

/// Whose session a packet is, for random sessions against a search through all of them.
#[test]
fn a_packet_is_of_the_session_whose_ends_it_has() {
    for seed in weir_seed::seeds(100) {
        let mut random = Random::new(seed);
        let v6 = random.below(2) == 1;
        let address = |random: &mut Random| {
            let host = random.below(8) as u128;
            if v6 {
                Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0).to_bits() | host << 62
            } else {
                0x0a00_0000 | host
            }
        };
        let ports = |random: &mut Random| -> Vec<(u16, u16)> {
            let first = random.below(20) as u16;
            (0..random.below(3))
                .map(|n| (first + n as u16, first + random.below(9) as u16 + n as u16))
                .collect()
        };
        let place = |random: &mut Random, length: u8| Place {
            prefix: Prefix::new(v6, address(random), length),
            ports: ports(random),
        };
        let length = |random: &mut Random| {
            let bits = random.below(4) as u8;
            if v6 { 64 + bits - 2 } else { 32 - bits }
        };
        let all: Vec<Session> = (0..random.below(12) as u128)
            .map(|id| Session {
                id,
                leaf: LEAF,
                rate_bps: RATE,
                device: (0..=random.below(2)).map(|_| place(&mut random, if v6 { 64 } else { 32 })).collect(),
                server: (0..=random.below(2))
                    .map(|_| {
                        let length = length(&mut random);
                        place(&mut random, length)
                    })
                    .collect(),
            })
            .collect();
        let mut edge = Edge::new(config(LEAF), Instant::ZERO);
        edge.set_sessions(Instant::ZERO, all.clone());
        let is_at = |place: &Place, address: u128, port: u16| {
            place.prefix.address <= address
                && address <= place.prefix.last()
                && (place.ports.is_empty() || place.ports.iter().any(|&(a, b)| a <= port && port <= b))
        };
        let mut found = 0;
        for _ in 0..300 {
            let (src, dst) = (address(&mut random), address(&mut random));
            let (src_port, dst_port) = (random.below(25) as u16, random.below(25) as u16);
            let key = if v6 {
                Key::ipv6(Ipv6Addr::from_bits(src), Ipv6Addr::from_bits(dst), 17)
            } else {
                Key::ipv4(Ipv4Addr::from_bits(src as u32), Ipv4Addr::from_bits(dst as u32), 17)
            };
            let fits = |s: &Session, device: (u128, u16), server: (u128, u16)| {
                s.device.iter().any(|p| is_at(p, device.0, device.1))
                    && s.server.iter().any(|p| is_at(p, server.0, server.1))
            };
            let (one, other) = ((src, src_port), (dst, dst_port));
            let right: Vec<u128> =
                all.iter().filter(|s| fits(s, one, other) || fits(s, other, one)).map(|s| s.id).collect();
            let answer = edge.session_of(&key.with_ports(src_port, dst_port)).map(|s| s.id);
            assert_eq!(answer.is_some(), !right.is_empty(), "seed {seed} {key} {all:?}");
            assert!(answer.is_none_or(|id| right.contains(&id)), "seed {seed} {key}");
            found += usize::from(answer.is_some());
        }
        assert!(all.len() < 9 || found > 0, "seed {seed}: nothing was ever found");
    }
}

/// A burst of a session is no congestion of its class: nothing is asked for and no flow goes, though it waits in the same queue
/// for longer than T_s. Reversed: the same packets of a flow are congestion. So are those of flows behind a burst, if they are
/// too many for what the class has without the session.
#[test]
fn a_burst_of_a_session_is_no_congestion() {
    let share = |percent| Fraction::ratio(percent, 100);
    let drain = Duration::from_millis(15);
    for (with_session, calls, is_congested) in [(true, 4, false), (false, 4, true), (true, 8, true)] {
        let mut config = config(LEAF);
        let congestion = Some(Congestion { drain, margin: share(20), packets: false });
        let plan =
            Allocation { law: Law::Fixed, congestion, from: RATE, ..config.classes[0].allocation.unwrap() };
        // All get in.
        let admission = Admission { accept: share(500), drop: share(500), ..Admission::default() };
        config.classes[0] = Class { allocation: Some(plan), admission, ..config.classes[0].clone() };
        config.contracts[0].bandwidth_bps = 10_000_000;
        config.recognition = Some(Recognition { trust_dscp: true, ..config.recognition.unwrap() });
        let mut edge = Edge::new(config, Instant::ZERO);
        if with_session {
            edge.set_sessions(at(0), vec![session(9, LEAF)]);
        }
        // A FIFO that serves what the class has, bytes per millisecond.
        let rate = if with_session { 100 } else { 50 };
        let (mut queue, mut room, mut asked) = (VecDeque::new(), 0, 0);
        for ms in 0..2_000 {
            let now = at(ms * MS);
            let mut arrivals: Vec<(Key, u32)> = (0..calls)
                .filter(|n| (ms + 5 * n) % 20 == 0)
                .map(|n| (key(17, 6_000 + n as u16).with_tos(46 << 2), 176))
                .collect();
            if ms % 500 == 250 {
                // 100 ms of the session's rate at once.
                arrivals.extend([(key(17, 5_004).with_tos(46 << 2), 976); 5]);
            }
            for (key, len) in arrivals {
                // One that was evicted is elsewhere.
                if edge.packet(now, &key, Payload::UNKNOWN, len).reason == Reason::InProfile {
                    edge.entered(now, LEAF, len);
                    queue.push_back(len);
                }
            }
            room = if queue.is_empty() { 0 } else { room + rate };
            while let Some(len) = queue.pop_front_if(|len| *len + 24 <= room) {
                room -= len + 24;
                edge.left(now, LEAF, len, true);
            }
            while let Some((leaf, action)) = edge.poll() {
                if let Action::Ask(request) = action {
                    asked += 1;
                    edge.answer(now, leaf, request.version, Answer::Refused);
                }
            }
        }
        let evicted = edge.class_stats().next().unwrap().1.flows.evicted;
        assert_eq!(
            (asked > 0, evicted > 0),
            (is_congested, is_congested),
            "{with_session} {calls}: {asked} {evicted}"
        );
    }
}
