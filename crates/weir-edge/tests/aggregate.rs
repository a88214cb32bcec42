//! The statistical rule in the paper's form: all flows of a contract that nothing else tells are one.
#![allow(missing_docs, clippy::unwrap_used)]

#[path = "recognition/mod.rs"]
mod recognition;

use recognition::{edge_with, rtp};
use std::net::{Ipv4Addr, Ipv6Addr};
use weir_core::Random;
use weir_core::packet::{Dscp, Family, Key};
use weir_core::units::{Duration, Fraction, Instant};
use weir_edge::edge::{Edge, Reason, Recognition, Verdict};
use weir_edge::flow::State;
use weir_edge::recognise::statistical::Rule;
use weir_edge::recognise::{Kind, Payload, Rules};
use weir_edge::sla::{Contract, Policy, Prefix};

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;
/// Gaps are kept in units of this, ns.
const UNIT: u64 = 1 << 14;
const BANDWIDTH_BPS: u64 = 200_000;

/// Two contracts, 10.0.0.0/24 and 10.0.1.0/24, under this rule.
fn edge_of(rule: Rule) -> Edge {
    let rules = Rules { statistical: Some(rule), ..Rules::default() };
    let mut config =
        edge_with(Recognition { rules, flows: 1_024, ..Recognition::default() }).config().clone();
    let contract = |id| Contract {
        id,
        bandwidth_bps: BANDWIDTH_BPS,
        shared: Fraction::ratio(0, 1),
        lend: true,
        dscp: Dscp::EF,
        policy: Policy::BestEffort,
        timeout: Some(Duration::from_secs(5)),
        flows: 64,
        class: 0,
        accept: None,
        drop: None,
        evict: None,
        guessed: None,
        guessed_dscp: None,
    };
    config.contracts = vec![contract(17), contract(18)];
    config.prefixes =
        vec![(Prefix::new(false, 0x0a00_0000, 24), 0), (Prefix::new(false, 0x0a00_0100, 24), 1)];
    Edge::new(config, Instant::ZERO)
}

fn per_aggregate() -> Rule {
    Rule { per_aggregate: true, ..Rule::default() }
}

/// A flow of a contract, 17 or 18.
fn flow(contract: u32, port: u16) -> Key {
    let source = Ipv4Addr::new(10, 0, (contract - 17) as u8, 1);
    Key::ipv4(source, Ipv4Addr::new(192, 0, 2, 1), 17).with_ports(port, 9_000)
}

/// A packet of `ip` octets of IP that begins no protocol.
fn send(edge: &mut Edge, at: u64, key: &Key, ip: u32) -> Verdict {
    edge.packet(Instant::from_nanos(at), key, Payload { head: &[0x60; 64], len: ip - 28 }, ip + 14)
}

fn is_real_time(verdict: &Verdict) -> bool {
    matches!(verdict.reason, Reason::InProfile | Reason::OutOfProfile)
}

/// T28 to T31: packet by packet a contract's flows together are what a plain model says, whatever the thresholds.
#[test]
fn t32_an_aggregate_against_a_plain_model() {
    for seed in weir_seed::seeds(100) {
        let mut random = Random::new(seed);
        let rule = Rule {
            rate: 1 + random.below(31) as u8,
            size: 100 + random.below(600) as u32,
            over: 1 + random.below(16) as u8,
            skip: random.below(60) as u16,
            per_aggregate: true,
        };
        let mut edge = edge_of(rule);
        let (mut now, mut seen) = (0, Vec::new());
        let mut counts = [0, 0];
        for _ in 0..600 {
            // About as often as the threshold says, with a pause now and then.
            now += UNIT * (1 + random.below(2 * S / UNIT / u64::from(rule.rate)));
            now += if random.below(100) == 0 { UNIT * random.below(2 * S / UNIT) } else { 0 };
            let ip = 60 + random.below(u64::from(rule.size) * 2 - 100) as u32;
            seen.push((now, ip));
            let verdict = send(&mut edge, now, &flow(17, random.below(20) as u16), ip);
            let enough = seen.len() > usize::from(rule.rate).max(usize::from(rule.over))
                && seen.len() > usize::from(rule.skip);
            let expected = enough && {
                let lengths: u32 = seen.iter().rev().take(rule.over.into()).map(|(_, ip)| ip).sum();
                let since = seen[seen.len() - 1 - usize::from(rule.rate)].0;
                lengths <= u32::from(rule.over) * rule.size && (now - since) / UNIT < S / UNIT
            };
            assert_eq!(is_real_time(&verdict), expected, "seed {seed}, packet {} of {rule:?}", seen.len());
            counts[usize::from(expected)] += 1;
        }
        assert!(counts[0] > 0, "{rule:?}");
    }
}

/// T32: two flows that are too slow each are real-time together, and have one place, one part of the contract, one line.
/// Judged by themselves they are not: the reverse.
#[test]
fn t32_flows_of_a_contract_are_one() {
    let run = |rule| {
        let mut edge = edge_of(rule);
        let mut found = Vec::new();
        for n in 0..400u64 {
            // Ten packets a second each, 200 octets: 32 kbit/s together.
            let verdict = send(&mut edge, n * 50 * MS, &flow(17, (n % 2) as u16), 200);
            found.extend(verdict.found.map(|found| (n + 1, found.kind)));
            assert!(verdict.flow_found().is_none());
        }
        (found, edge)
    };
    let (found, mut edge) = run(per_aggregate());
    assert_eq!(found, [(16, Kind::Aggregate)]);
    let now = 400 * 50 * MS;
    let as_one = |edge: &Edge, now: u64| {
        let flows = edge.flows(Instant::from_nanos(now)).filter(|flow| flow.is_aggregate());
        flows.map(|flow| (edge.explain_flow(flow).contract, flow.state(), flow.kind())).collect::<Vec<_>>()
    };
    assert_eq!(as_one(&edge, now), [(Some(17), State::Admitted, Some(Kind::Aggregate))]);
    let stats = edge.contract_stats().next().unwrap();
    assert_eq!((stats.flows.admitted, stats.in_profile_bytes), (1, 385 * 214));
    // A call is told apart, and has a part of its own.
    for n in 0..4u16 {
        let bytes = rtp(7, n, 0);
        let payload = Payload { head: &bytes, len: bytes.len() as u32 };
        edge.packet(Instant::from_nanos(now + u64::from(n) * 20 * MS), &flow(17, 99), payload, 80);
    }
    assert_eq!(edge.contract_stats().next().unwrap().flows.now(), 2);
    // Nothing of it goes for another contract.
    assert!(!is_real_time(&send(&mut edge, now, &flow(18, 1), 200)));
    // After the contract's `timeout` it has ended, and after `idle` it begins anew.
    edge.timer(Instant::from_nanos(now + 7 * S));
    assert_eq!(as_one(&edge, now + 7 * S)[0].1, State::Silent);
    assert_eq!(edge.contract_stats().next().unwrap().flows.timed_out, 2);
    let again =
        (0..20).position(|n| is_real_time(&send(&mut edge, now + 60 * S + n * 50 * MS, &flow(17, 1), 200)));
    assert_eq!(again, Some(15));
    assert_eq!(run(Rule::default()).0, [], "judged by themselves");
}

/// What the paper's form cannot tell: one long flow makes all that are not told otherwise ordinary, until it ends. RTP goes on.
#[test]
fn t32_a_long_flow_makes_all_ordinary() {
    let mut edge = edge_of(per_aggregate());
    let mut real_time = [0, 0, 0];
    for n in 0..900u64 {
        let now = n * 10 * MS;
        let part = (n / 300) as usize;
        if part == 1 {
            send(&mut edge, now, &flow(17, 80), 1_400);
        }
        real_time[part] += u32::from(is_real_time(&send(&mut edge, now, &flow(17, 1), 120)));
        let bytes = rtp(7, n as u16, n as u32 * 80);
        let call =
            edge.packet(Instant::from_nanos(now), &flow(17, 99), Payload { head: &bytes, len: 172 }, 214);
        assert_eq!(is_real_time(&call), n >= 3, "packet {n}");
    }
    // Of the first 15 three are the call's, which is on trial until then.
    assert!(real_time[0] == 288 && real_time[1] <= 3 && real_time[2] >= 285, "{real_time:?}");
}

/// All of it together has no more than its contract's bandwidth; refused, it is ordinary.
#[test]
fn an_aggregate_has_one_part_of_its_contract() {
    let mut edge = edge_of(per_aggregate());
    let (mut in_profile, len) = (0, 214);
    // Twice the bandwidth, by 20 flows.
    let gap = S * len * 8 / (2 * BANDWIDTH_BPS);
    for n in 0..2_000u64 {
        let verdict = send(&mut edge, n * gap, &flow(17, (n % 20) as u16), 200);
        in_profile += if verdict.reason == Reason::InProfile { len } else { 0 };
    }
    let share = in_profile as f64 * 8e9 / (2_000 * gap) as f64 / BANDWIDTH_BPS as f64;
    assert!((0.97..1.05).contains(&share), "{share}");
    assert_eq!(edge.contract_stats().next().unwrap().flows.admitted, 1);
}

/// DNS, QUIC and what goes to `::` under the numbers of an aggregate are no part of it.
#[test]
fn what_is_known_otherwise_is_no_part_of_an_aggregate() {
    let mut edge = edge_of(per_aggregate());
    let long = [0xc3, 0, 0, 0, 1, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0];
    for n in 0..100u64 {
        let now = Instant::from_nanos(n * 20 * MS);
        let dns = Key { dst_port: 53, ..flow(17, 3) };
        assert!(!is_real_time(&edge.packet(now, &dns, Payload { head: &[0x60; 64], len: 40 }, 82)));
        assert!(!is_real_time(&edge.packet(now, &flow(17, 4), Payload { head: &long, len: 40 }, 82)));
    }
    for n in 0..100u64 {
        send(&mut edge, 2 * S + n * 20 * MS, &flow(17, 1), 200);
    }
    assert_eq!(edge.flow_stats().found[Kind::Aggregate.index()], 1);
    let mut forged = Key { family: Family::V6, src: 17, dst: Ipv6Addr::UNSPECIFIED.to_bits(), ..flow(17, 0) };
    forged = forged.with_ports(0, 0);
    assert!(!is_real_time(&send(&mut edge, 4 * S, &forged, 200)));
}

/// A contract that goes on keeps its aggregate, wherever it stands in the file, and so does another process; a rule for
/// each flow ends it when it is silent.
#[test]
fn an_aggregate_goes_on_with_its_contract() {
    let mut edge = edge_of(per_aggregate());
    for n in 0..100u64 {
        send(&mut edge, n * 20 * MS, &flow(17, 1), 200);
    }
    let admitted = |edge: &mut Edge, at| send(edge, at, &flow(17, 2), 200).reason == Reason::InProfile;
    let mut other = edge.config().clone();
    other.contracts.swap(0, 1);
    other.prefixes.iter_mut().for_each(|(_, place)| *place = 1 - *place);
    edge.follow(Instant::from_nanos(2 * S), other.clone(), &[Some(0)]);
    assert!(admitted(&mut edge, 2 * S + 20 * MS));
    // Another process knows the flow and its part, and judges anew.
    let mut numbers = Vec::new();
    edge.estate(Instant::from_nanos(2 * S + 30 * MS), &mut numbers);
    let mut next = Edge::new(other.clone(), Instant::from_nanos(2 * S + 30 * MS));
    assert!(next.inherit(Instant::from_nanos(2 * S + 30 * MS), &numbers, &[Some(0)]));
    let stats = next.contract_stats().nth(1).unwrap().flows;
    assert_eq!((stats.now(), stats.ended), (1, 0));
    let first = (0..40).position(|n| admitted(&mut next, 2 * S + 40 * MS + n * 20 * MS));
    assert_eq!(first, Some(15));
    // The contract goes: so does its aggregate.
    other.contracts.truncate(1);
    other.prefixes.retain(|(_, place)| *place == 0);
    edge.follow(Instant::from_nanos(3 * S), other, &[Some(0)]);
    assert_eq!(edge.flows(Instant::from_nanos(3 * S)).filter(|flow| flow.is_aggregate()).count(), 0);
    assert_eq!(edge.class_stats().next().unwrap().1.flows.now(), 0);
}
