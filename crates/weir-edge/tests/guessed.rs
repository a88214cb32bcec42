//! Flows that the statistical rule found have their own share of a contract, if it says so.
#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use weir_core::packet::{Dscp, Key};
use weir_core::units::{Fraction, Instant};
use weir_edge::admit::Admission;
use weir_edge::edge::{Class, Config, Edge, Reason, Recognition};
use weir_edge::recognise::statistical::Rule;
use weir_edge::recognise::{Payload, Rules};
use weir_edge::sla::{Contract, Policy, Prefix};

const MS: u64 = 1_000_000;
const BW: u64 = 512_000;

fn config(guessed: Option<u64>, per_aggregate: bool) -> Config {
    let contract = Contract {
        id: 17,
        bandwidth_bps: BW,
        shared: Fraction::ONE,
        lend: true,
        dscp: Dscp::EF,
        policy: Policy::Drop,
        timeout: None,
        flows: 64,
        class: 0,
        accept: None,
        drop: None,
        evict: None,
        guessed: guessed.map(|percent| Fraction::ratio(percent, 100)),
        guessed_dscp: None,
    };
    let rules = Rules { statistical: Some(Rule { per_aggregate, ..Rule::default() }), ..Rules::default() };
    let recognition = Recognition { trust_dscp: true, rules, flows: 64, ..Recognition::default() };
    Config {
        classes: vec![Class {
            leaf: 0,
            allocation: None,
            admission: Admission::default(),
            rate_bps: 10_000_000,
        }],
        contracts: vec![contract],
        prefixes: vec![(Prefix::new(false, 0x0a00_0000, 8), 0)],
        recognition: Some(recognition),
        keep_untrusted: false,
        overhead: 0,
        seed: 1,
    }
}

fn key(flow: u32) -> Key {
    // The first is marked by its host, and no guess.
    let tos = if flow == 0 { 46 << 2 } else { 0 };
    let key = Key::ipv4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(192, 0, 2, 1), 17);
    key.with_ports(4_000 + flow as u16, 5_004).with_tos(tos)
}

/// Ten seconds of a marked call of 80 kbit/s and of two flows of 200 kbit/s each that are guessed, from the second second on: bit/s
/// of both in profile.
fn in_profile(edge: &mut Edge, start: u64) -> (u64, u64) {
    let every = |flow: u32| if flow == 0 { 20 * MS } else { 8 * MS };
    let mut due: BTreeSet<(u64, u32)> = (0..3).map(|flow| (start + u64::from(flow) * MS, flow)).collect();
    let mut bits = [0, 0];
    while let Some((now, flow)) = due.pop_first().filter(|(now, _)| *now < start + 11_000 * MS) {
        let at = Instant::from_nanos(now);
        let payload = Payload { head: &[0x7f; 16], len: 172 };
        let is_in = edge.packet(at, &key(flow), payload, 200).reason == Reason::InProfile;
        if now >= start + 1_000 * MS && is_in {
            bits[flow.min(1) as usize] += 1_600;
        }
        due.insert((now + every(flow), flow));
    }
    (bits[0] / 10, bits[1] / 10)
}

/// What was guessed has its share, and nothing of the rest. What is no guess has all of it. Reversed: without the words the guessed
/// flows have what they send.
#[test]
fn what_was_guessed_has_a_share_of_its_own() {
    for per_aggregate in [false, true] {
        for (guessed, expected) in [(None, 400_000), (Some(25), 128_000), (Some(50), 256_000), (Some(0), 0)] {
            let mut edge = Edge::new(config(guessed, per_aggregate), Instant::ZERO);
            let (marked, found) = in_profile(&mut edge, 0);
            assert_eq!(marked, 80_000, "{per_aggregate} {guessed:?}");
            assert!(found.abs_diff(expected) <= expected * 3 / 100, "{per_aggregate} {guessed:?}: {found}");
        }
    }
}

/// What was guessed has its own code point in profile, with and without a share of its own. What is no guess has that of the contract,
/// and out of profile it is as the policy says. Another configuration changes it.
#[test]
fn what_was_guessed_has_a_mark_of_its_own() {
    let marks = |edge: &mut Edge, start: u64| {
        let mut seen = [BTreeSet::new(), BTreeSet::new()];
        for n in 0..200 {
            let at = Instant::from_nanos(start + n * 20 * MS);
            for flow in 0..2 {
                let verdict = edge.packet(at, &key(flow), Payload { head: &[0x7f; 16], len: 172 }, 200);
                seen[flow as usize].insert((verdict.reason == Reason::InProfile, verdict.tos >> 2));
            }
        }
        seen
    };
    let with = |share: Option<u64>, per_aggregate: bool, guessed_dscp: Option<Dscp>, policy: Policy| {
        let mut config = config(share, per_aggregate);
        let contract = config.contracts.remove(0);
        config.contracts.push(Contract { guessed_dscp, policy, ..contract });
        config
    };
    for per_aggregate in [false, true] {
        for (share, out) in [(None, None), (Some(0), Some(Policy::Ok)), (Some(0), Some(Policy::BestEffort))] {
            let new = |dscp| with(share, per_aggregate, dscp, out.unwrap_or(Policy::Drop));
            let mut edge = Edge::new(new(Some(Dscp::VA)), Instant::ZERO);
            let own = match out {
                None => (true, Dscp::VA.value()),
                Some(Policy::Ok) => (false, Dscp::VA.value()),
                Some(_) => (false, 0),
            };
            let case = format!("{per_aggregate} {share:?} {out:?}");
            let found = marks(&mut edge, 0);
            assert_eq!(found, [[(true, 46)].into(), [(false, 0), own].into()], "{case}");
            let after = 4_000 * MS;
            edge.follow(Instant::from_nanos(after), new(None), &[Some(0)]);
            let own = if own.1 == 0 { own } else { (own.0, 46) };
            assert_eq!(marks(&mut edge, after), [[(true, 46)].into(), [own].into()], "{case}");
        }
    }
}

/// The share changes with the contract, and what has it goes on.
#[test]
fn the_share_changes_with_the_contract() {
    let mut edge = Edge::new(config(Some(25), false), Instant::ZERO);
    in_profile(&mut edge, 0);
    edge.follow(Instant::from_nanos(11_000 * MS), config(Some(50), false), &[Some(0)]);
    let (marked, found) = in_profile(&mut edge, 11_000 * MS);
    assert!(marked == 80_000 && found.abs_diff(256_000) < 7_680, "{marked} {found}");
    // Another process goes on with it.
    let now = Instant::from_nanos(22_000 * MS);
    let (mut numbers, mut other) = (Vec::new(), Edge::new(config(Some(50), false), now));
    edge.estate(now, &mut numbers);
    assert!(other.inherit(now, &numbers, &[Some(0)]));
    let (_, found) = in_profile(&mut other, 22_000 * MS);
    assert!(found.abs_diff(256_000) < 7_680, "{found}");
}
