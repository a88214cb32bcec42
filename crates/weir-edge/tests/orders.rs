//! What a person may order while an edge runs: recognition off and on, a flow out, a flow pinned; and what
//! the edge says of a flow.
#![allow(missing_docs, clippy::unwrap_used)]

#[path = "recognition/mod.rs"]
mod recognition;

use recognition::{dtls, edge_with, rtp};
use std::net::Ipv4Addr;
use weir_core::packet::Key;
use weir_core::units::{Duration, Fraction, Instant};
use weir_edge::admit::Evict;
use weir_edge::edge::{Config, Edge, NotEvicted, Reason, Recognition, Verdict, Why};
use weir_edge::flow::{Cause, State};
use weir_edge::recognise::{Found, Kind, Payload, Progress};
use weir_edge::sla::{Contract, Policy, Prefix};

const S: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;

fn at(ns: u64) -> Instant {
    Instant::from_nanos(ns)
}

fn key(flow: u16) -> Key {
    Key::ipv4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(192, 0, 2, 1), 17)
        .with_ports(20_000 + flow, 5_004)
        .with_tos(46 << 2 | 1)
}

fn edge() -> Edge {
    edge_with(Recognition { flows: 1_024, ..Recognition::default() })
}

/// Packet `n` of a call, which sends one in 20 ms from 0 on.
fn call(edge: &mut Edge, flow: u16, n: u64) -> Verdict {
    call_at(edge, flow, n, n * 20 * MS)
}

fn call_at(edge: &mut Edge, flow: u16, n: u64, now: u64) -> Verdict {
    let bytes = rtp(100 + u32::from(flow), n as u16, n as u32 * 160);
    let payload = Payload { head: &bytes, len: bytes.len() as u32 };
    edge.packet(at(now), &key(flow), payload, 214)
}

/// What a flow sent in the last window is known in bytes and packets, while it is admitted.
#[test]
fn the_last_window_of_a_flow_is_known() {
    let mut edge = edge();
    // Windows of 0.8 s have 40 packets; it is admitted at the fourth.
    for (packets, expected) in [(3, None), (40, Some((0, 0))), (81, Some((40 * 214, 40)))] {
        (0..packets).for_each(|n| {
            call(&mut edge, 1, n);
        });
        let sent = edge.explain(&key(1)).sent.map(|sent| (sent.bytes, sent.packets));
        assert_eq!(sent, expected, "after {packets}");
        edge = self::edge();
    }
}

/// T61: calls that fill their class are in it again after each of many switches, however fast these come. One more call is as
/// little admitted as before.
#[test]
fn t61_calls_do_not_stand_in_their_own_way() {
    for seed in weir_seed::seeds(50) {
        let mut random = weir_core::Random::new(seed);
        let mut edge = edge();
        // Five calls of 85.6 kbit/s are 428: beside them none gets in below 90 % of 470.
        edge.set_rate(0, 470_000);
        let mut switch_at = 2 * S;
        for n in 0..600 {
            for flow in 1..=5u16 {
                let now = n * 20 * MS + u64::from(flow) * MS;
                while switch_at <= now && now < 10 * S {
                    edge.recognise(at(switch_at), false);
                    edge.recognise(at(switch_at + random.below(2 * MS)), true);
                    switch_at += 1 + random.below(300 * MS);
                }
                let verdict = call_at(&mut edge, flow, n, now);
                assert!(
                    n < 3 || verdict.reason == Reason::InProfile,
                    "seed {seed}: {n} of {flow}: {verdict:?}"
                );
            }
        }
        let before = edge.class_stats().next().unwrap().1.flows;
        assert!(before.refused == 0 && before.now() == 5 && before.ended > 100, "seed {seed}: {before:?}");
        for n in 0..10 {
            call_at(&mut edge, 6, n, 12 * S + n * 20 * MS);
        }
        assert_eq!(edge.class_stats().next().unwrap().1.flows.refused, 1, "seed {seed}");
    }
}

/// T61: off, no packet is looked at and none keeps a mark; on again within `idle`, the next packet of a
/// known flow is in its class; after it the flow is found anew at its Nth.
#[test]
fn t61_recognition_goes_off_and_on() {
    for (pause, found_again) in [(29 * S, 0), (31 * S, 3)] {
        let mut edge = edge();
        let reasons: Vec<Reason> = (0..10).map(|n| call(&mut edge, 1, n).reason).collect();
        assert_eq!((reasons[2], reasons[3]), (Reason::Ordinary, Reason::InProfile));
        let (inspected, before) = (edge.flow_stats().inspected, edge.class_stats().next().unwrap().1);
        edge.recognise(at(200 * MS), false);
        assert!(!edge.recognises());
        for n in 10..20 {
            let verdict = call(&mut edge, 1, n);
            assert_eq!((verdict.tos, verdict.drop, verdict.reason), (1, false, Reason::Ordinary));
        }
        assert_eq!(edge.flow_stats().inspected, inspected, "a packet was looked at");
        let after = edge.class_stats().next().unwrap().1;
        assert_eq!((after.flows.admitted, after.flows.ended, after.flows.now()), (1, 1, 0));
        assert_eq!(before.flows.ended, 0);
        assert_eq!(edge.explain(&key(1)).why, Why::Off);
        edge.recognise(at(180 * MS + pause), true);
        let marked = (0..10).position(|n| {
            let now = 180 * MS + pause + n * 20 * MS;
            call_at(&mut edge, 1, 30 + n, now).tos == 46 << 2 | 1
        });
        assert_eq!(marked, Some(found_again), "{pause}");
    }
}

/// T55: an evicted flow is refused until it is silent for `timeout`. A pinned flow stays, until it is unpinned.
#[test]
fn a_person_moves_a_flow() {
    let mut edge = edge();
    assert_eq!(edge.evict_flow(at(0), &key(1)), Err(NotEvicted::Unheard));
    call(&mut edge, 1, 0);
    assert_eq!(edge.evict_flow(at(0), &key(1)), Err(NotEvicted::NotAdmitted(State::Candidate)));
    for n in 1..5 {
        call(&mut edge, 1, n);
    }
    assert!(edge.pin(at(90 * MS), &key(1)) && !edge.pin(at(90 * MS), &key(2)));
    assert_eq!(edge.evict_flow(at(90 * MS), &key(1)), Err(NotEvicted::Pinned));
    assert!(edge.unpin(&key(1)) && !edge.unpin(&key(2)));
    assert_eq!(edge.evict_flow(at(90 * MS), &key(1)), Ok(()));
    let found = Found { kind: Kind::Rtp, ssrc: 101, packets: 4, span: Duration::from_millis(60) };
    let why = Why::Refused { found, since: at(90 * MS), cause: Cause::Order };
    assert_eq!((edge.explain(&key(1)).why, edge.explain(&key(1)).state), (why, State::Refused));
    assert_eq!(edge.class_stats().next().unwrap().1.flows.evicted, 1);
    // 5 s between packets: refused still. One nanosecond more: in its class again.
    assert_eq!(call_at(&mut edge, 1, 5, 100 * MS).reason, Reason::Refused);
    assert_eq!(call_at(&mut edge, 1, 6, 100 * MS + 5 * S).reason, Reason::Refused);
    assert_eq!(call_at(&mut edge, 1, 7, 100 * MS + 10 * S + 1).reason, Reason::InProfile);
    // Evicted and pinned, it is in at once.
    assert_eq!(edge.evict_flow(at(11 * S), &key(1)), Ok(()));
    assert!(edge.pin(at(11 * S), &key(1)));
    assert_eq!(edge.explain(&key(1)).state, State::Admitted);
}

/// Of each flow the edge says what it is and why, at every step.
#[test]
fn a_flow_is_explained_at_every_step() {
    let mut edge = edge();
    assert_eq!(edge.explain(&key(1)).why, Why::Unheard);
    assert_eq!(edge.explain(&Key { protocol: 6, ..key(1) }).why, Why::NotUdp);
    let mut packet = |now, flow, bytes: &[u8]| {
        edge.packet(at(now), &key(flow), Payload { head: bytes, len: bytes.len() as u32 }, 200);
        edge.explain(&key(flow)).why
    };
    // Nothing that is known, then a chain: of it the packets, those that are needed, and its first.
    assert_eq!(packet(0, 1, &[0x60; 40]), Why::NoChain { tried: 1 });
    for n in 0..3u8 {
        let why = packet(S + u64::from(n) * 20 * MS, 1, &rtp(77, n.into(), u32::from(n) * 160));
        let progress = Progress { kind: Kind::Rtp, ssrc: 77, packets: n + 1, needed: 4, since: at(S) };
        assert_eq!(why, Why::Chain(progress));
    }
    let found = Found { kind: Kind::Rtp, ssrc: 77, packets: 4, span: Duration::from_millis(60) };
    let since = at(S + 60 * MS);
    assert_eq!(packet(S + 60 * MS, 1, &rtp(77, 3, 480)), Why::Admitted { found, since });
    // A chain that is too old begins again.
    packet(0, 2, &rtp(5, 0, 0));
    let Why::Chain(progress) = packet(2 * S + 1, 2, &rtp(5, 1, 160)) else { panic!("no chain") };
    assert_eq!((progress.packets, progress.since), (1, at(2 * S + 1)));
    // QUIC is ordinary for good. Further in, twice as many packets are needed.
    assert_eq!(
        packet(0, 3, &[0xc3, 0, 0, 0, 1, 8, 1, 2, 3, 4, 5, 6, 7, 8, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0]),
        Why::Quic
    );
    // One place alone goes on with the second packet.
    packet(0, 4, &[vec![5; 12], rtp(9, 1, 160)].concat());
    let why = packet(20 * MS, 4, &[vec![5; 12], rtp(9, 2, 320)].concat());
    assert_eq!(
        why,
        Why::Chain(Progress { kind: Kind::Further(12), ssrc: 9, packets: 2, needed: 8, since: at(0) })
    );
    // DTLS says only that media may come; it begins no chain.
    assert_eq!(packet(0, 5, &dtls(22, 0, 30)), Why::NoChain { tried: 0 });
}

/// Why a flow was refused or evicted is told with the figures that decided.
#[test]
fn a_refusal_says_its_figures() {
    let contract = Contract {
        id: 17,
        bandwidth_bps: 10_000_000,
        shared: Fraction::ONE,
        lend: true,
        dscp: weir_core::packet::Dscp::EF,
        policy: Policy::Ok,
        timeout: Some(Duration::from_secs(5)),
        flows: 60,
        class: 0,
        accept: Some(Fraction::ratio(80, 100)),
        drop: None,
        evict: None,
        guessed: None,
        guessed_dscp: None,
    };
    let config = Config {
        contracts: vec![contract.clone()],
        prefixes: vec![(Prefix::new(false, 0x0a00_0000, 8), 0)],
        recognition: Some(Recognition { trust_dscp: true, ..Recognition::default() }),
        ..edge().config().clone()
    };
    let mut edge = Edge::new(config, at(0));
    let send = |edge: &mut Edge, now, flow| edge.packet(at(now), &key(flow), Payload::UNKNOWN, 1_000).reason;
    edge.set_rate(0, 80_000);
    // 64 kbit/s is expected of the first: not below 80 % of 80.
    assert_eq!((send(&mut edge, 0, 1), send(&mut edge, 1, 2)), (Reason::InProfile, Reason::Refused));
    let cause = Cause::Load { load_bps: 64_000, limit_bps: 80_000, accept: Fraction::ratio(80, 100) };
    let found = Found { kind: Kind::Marked, ssrc: 0, packets: 1, span: Duration::ZERO };
    let explained = edge.explain(&key(2));
    assert_eq!((explained.contract, explained.why), (Some(17), Why::Refused { found, since: at(1), cause }));
    edge.set_rate(0, 60_000);
    // 7 packets of 1,000 bytes in 0.8 s are 70 kbit/s: more than 95 % of 60.
    for n in 0..6 {
        send(&mut edge, 2 + n, 1);
    }
    edge.timer(at(8 * S / 10));
    let cause = Cause::Above {
        offered_bps: 70_000,
        limit_bps: 60_000,
        drop: Fraction::ratio(95, 100),
        evict: Evict::Random,
    };
    assert_eq!(edge.explain(&key(1)).why, Why::Refused { found, since: at(8 * S / 10), cause });
    // A flow on trial under a contract that has as many real-time flows as it may have from now on.
    edge.set_rate(0, 1_000_000_000);
    for flow in 4..7 {
        send(&mut edge, S, flow);
    }
    edge.packet(at(S), &key(7).with_tos(0), Payload::UNKNOWN, 1_000);
    let config = Config { contracts: vec![Contract { flows: 3, ..contract }], ..edge.config().clone() };
    edge.follow(at(S), config, &[Some(0)]);
    send(&mut edge, S, 7);
    let Why::Refused { cause, .. } = edge.explain(&key(7)).why else { panic!("not refused") };
    assert_eq!(cause, Cause::Full { flows: 3 });
    let flows = edge.contract_stats().next().unwrap().flows;
    assert_eq!((flows.admitted, flows.refused, flows.evicted, flows.now()), (4, 2, 1, 3));
    assert_eq!(edge.explain(&Key { src: 0x0b00_0001, dst: 1, ..key(1) }).why, Why::NoContract);
}
