//! An edge with many flows: admission, eviction, contracts.
#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use weir_core::Random;
use weir_core::packet::{Dscp, Key};
use weir_core::queue::Value;
use weir_core::units::{Duration, Fraction, Instant};
use weir_edge::admit::{Admission, Evict};
use weir_edge::allocate::Allocation;
use weir_edge::edge::{Class, Config, Edge, Reason, Recognition, Verdict, Why};
use weir_edge::flow::{Cause, State};
use weir_edge::handlers;
use weir_edge::recognise::Payload;
use weir_edge::sla::{Contract, Policy, Prefix};

const S: u64 = 1_000_000_000;

fn share(percent: u64) -> Fraction {
    Fraction::ratio(percent, 100)
}

fn contract(id: u32, bandwidth_bps: u64, shared: u64, policy: Policy) -> Contract {
    Contract {
        id,
        bandwidth_bps,
        shared: share(shared),
        lend: true,
        dscp: Dscp::EF,
        policy,
        timeout: Some(Duration::from_secs(5)),
        flows: 1_000,
        class: 0,
        accept: None,
        drop: None,
        evict: None,
        guessed: None,
        guessed_dscp: None,
    }
}

fn config(rate_bps: u64, admission: Admission) -> Config {
    Config {
        classes: vec![Class { leaf: 0, allocation: None, admission, rate_bps }],
        contracts: Vec::new(),
        prefixes: Vec::new(),
        recognition: Some(Recognition { trust_dscp: true, ..Recognition::default() }),
        keep_untrusted: false,
        overhead: 0,
        seed: 1,
    }
}

fn key(flow: u32) -> Key {
    let source = Ipv4Addr::from_bits(0x0a00_0000 + (flow >> 16));
    Key::ipv4(source, Ipv4Addr::new(192, 0, 2, 1), 17).with_ports(flow as u16, 5004).with_tos(46 << 2)
}

/// The prefix of the sources whose number has these upper bits.
fn source(upper: u32, contract: u32) -> (Prefix, u32) {
    (Prefix::new(false, u128::from(0x0a00_0000 + upper), 32), contract)
}

/// A flow of constant rate: its number, when it starts, and how its packets are spaced, ns.
#[derive(Clone, Copy)]
struct Call {
    flow: u32,
    start: u64,
    every: u64,
    len: u32,
}

/// All packets of the calls up to `until`, through the edge, in order.
fn run(edge: &mut Edge, calls: &[Call], until: u64, seen: impl FnMut(u64, u32, u32, Verdict)) {
    run_spaced(edge, calls, until, |mean| mean, seen);
}

/// The same, with each spacing drawn around its mean.
fn run_spaced(
    edge: &mut Edge,
    calls: &[Call],
    until: u64,
    mut spacing: impl FnMut(u64) -> u64,
    mut seen: impl FnMut(u64, u32, u32, Verdict),
) {
    let mut due: BTreeMap<(u64, u32), Call> = calls.iter().map(|c| ((c.start, c.flow), *c)).collect();
    while let Some(((now, flow), call)) = due.pop_first() {
        if now >= until {
            return;
        }
        let verdict = edge.packet(Instant::from_nanos(now), &key(flow), Payload::UNKNOWN, call.len);
        seen(now, flow, call.len, verdict);
        due.insert((now + spacing(call.every), flow), call);
    }
}

/// Calls of 64 kbit/s.
fn voice(flow: u32, start: u64) -> Call {
    Call { flow, start, every: S / 50, len: 160 }
}

/// A contract's bandwidth is that of the link: a packet counts as its frame and what the link adds. Bytes are those of frames.
#[test]
fn a_contract_counts_what_the_link_counts() {
    let own = contract(1, 80_000, 0, Policy::Drop);
    let prefixes = vec![(Prefix::new(false, 0x0a00_0000, 8), 0)];
    let plain = config(1_000_000, Admission::default());
    let mut edge = Edge::new(Config { contracts: vec![own], prefixes, overhead: 24, ..plain }, Instant::ZERO);
    // 80 kbit/s of frames, 89.6 on the link.
    run(&mut edge, &[Call { flow: 1, start: 0, every: S / 50, len: 200 }], 100 * S, |_, _, _, _| {});
    let stats = edge.contract_stats().next().unwrap();
    assert_eq!(stats.offered_bytes, 1_000_000);
    let depths = 2 * 3_076;
    let most = (1_000_000 + depths) * 200 / 224;
    assert!((most - depths..=most).contains(&stats.in_profile_bytes), "{stats:?}");
}

/// A flow that is pinned long after its last packet begins with an empty bucket: where the shared one is used up, its next
/// packet is out of profile, and those are in profile for which there was time since.
#[test]
fn who_is_pinned_late_has_nothing_of_the_time_before() {
    let own = Contract { lend: false, ..contract(1, 512_000, 0, Policy::BestEffort) };
    let prefixes = vec![(Prefix::new(false, 0x0a00_0000, 8), 0)];
    // A second flow of 64 kbit/s does not fit.
    let config = Config { contracts: vec![own], prefixes, ..config(70_000, Admission::default()) };
    let mut edge = Edge::new(config, Instant::ZERO);
    let send = |edge: &mut Edge, at: u64, flow: u32| {
        edge.packet(Instant::from_nanos(at), &key(flow), Payload::UNKNOWN, 1_400).reason
    };
    assert_eq!((send(&mut edge, 0, 1), send(&mut edge, 0, 2)), (Reason::InProfile, Reason::Refused));
    let fit = (0..20).take_while(|_| send(&mut edge, 2 * S, 1) == Reason::InProfile).count();
    assert!((5..10).contains(&fit), "both buckets hold 9,476 bytes: {fit}");
    assert!(edge.pin(Instant::from_nanos(2 * S), &key(2)));
    assert_eq!(send(&mut edge, 2 * S, 2), Reason::OutOfProfile);
    // At 256 kbit/s.
    assert_eq!(send(&mut edge, 2 * S + 40_000_000, 2), Reason::OutOfProfile);
    assert_eq!(send(&mut edge, 2 * S + 50_000_000, 2), Reason::InProfile);
}

/// T52 and T53: a hundred calls of 64 kbit/s start within a second on 1 Mbit/s. At most 16 get in, at
/// most two go again, and at most one window is above the limit. As the thesis has it, which expects
/// nothing of a new flow, most get in and most of these are thrown out.
#[test]
fn t52_a_flash_crowd() {
    let crowd = |admission| {
        let mut edge = Edge::new(config(1_000_000, admission), Instant::ZERO);
        let mut random = Random::new(weir_seed::seed());
        let calls: Vec<Call> = (0..100).map(|n| voice(n, random.below(S))).collect();
        run(&mut edge, &calls, 120 * S, |_, _, _, _| {});
        edge.class_stats().next().unwrap().1
    };
    let ours = crowd(Admission::default());
    assert!(ours.flows.admitted <= 16 && ours.flows.evicted <= 2 && ours.windows_above <= 1, "{ours:?}");
    assert!(ours.flows.admitted >= 13, "{ours:?}");
    assert_eq!(ours.flows.admitted + ours.flows.refused, 100);
    let thesis = crowd(Admission { new_flow_bps: Some(0), ..Admission::default() });
    assert!(
        thesis.flows.admitted > 60 && thesis.flows.evicted > 50 && thesis.windows_above > 50,
        "{thesis:?}"
    );
}

/// T52: with no other flow expected to add, a flow is admitted exactly while B_o < T_a.
#[test]
fn t52_admitted_below_the_threshold_only() {
    let admission = Admission { new_flow_bps: Some(0), ..Admission::default() };
    // One call of 64 kbit/s. 90 % of the limit is its rate: not below. A bit more is.
    for (limit, expected) in [(71_111, State::Refused), (71_112, State::Admitted)] {
        let mut edge = Edge::new(config(limit, admission), Instant::ZERO);
        let mut verdicts = Vec::new();
        run(&mut edge, &[voice(1, 0), voice(2, S)], 3 * S / 2, |_, flow, _, v| {
            verdicts.push((flow, v.reason))
        });
        let second = edge.flows(Instant::from_nanos(S)).find(|flow| flow.key().src_port == 2).unwrap();
        assert_eq!(second.state(), expected, "{limit}");
        let reason = if expected == State::Admitted { Reason::InProfile } else { Reason::Refused };
        assert!(verdicts.iter().all(|&(flow, r)| r == if flow == 1 { Reason::InProfile } else { reason }));
    }
}

/// T53: of five flows with different rates that are too many, each policy takes the one it names, one a
/// window; a pinned flow stays; what is refused stays refused until it is silent for `timeout`.
#[test]
fn t53_each_policy_takes_the_one_it_names() {
    let expected = [(Evict::Largest, 5), (Evict::Smallest, 1), (Evict::Oldest, 3), (Evict::Newest, 2)];
    for (evict, first) in expected {
        let mut edge =
            Edge::new(config(10_000_000, Admission { evict, ..Admission::default() }), Instant::ZERO);
        // Rates by number; begun in the order 3, 5, 1, 4, 2.
        let order = [3, 5, 1, 4, 2];
        let calls: Vec<Call> = (0..)
            .zip(order)
            .map(|(n, flow)| Call { flow, start: n * S / 100, every: S / (10 * u64::from(flow)), len: 250 })
            .collect();
        run(&mut edge, &calls, 8 * S / 10, |_, _, _, _| {});
        assert_eq!(edge.class_stats().next().unwrap().1.flows.admitted, 5);
        // 300 kbit/s in all. With 200 kbit/s one must go at the end of the window.
        edge.set_rate(0, 200_000);
        edge.timer(Instant::from_nanos(8 * S / 10));
        let out: Vec<u16> = edge
            .flows(Instant::ZERO)
            .filter(|f| f.state() == State::Refused)
            .map(|f| f.key().src_port)
            .collect();
        assert_eq!(out, [first], "{evict:?}");
        let stats = edge.class_stats().next().unwrap().1;
        assert_eq!((stats.flows.evicted, stats.windows_above), (1, 1), "one a window");
    }
    // A contract's own policy chooses among its flows; which contract it is says the class's. Each flow has a source of its own.
    for (evict, own, gone) in [
        (Evict::Largest, None, 5),
        (Evict::Largest, Some(Evict::Newest), 2),
        (Evict::Largest, Some(Evict::Smallest), 1),
        (Evict::Largest, Some(Evict::Oldest), 5),
        // The smallest of all is the other contract's, which has no policy of its own.
        (Evict::Smallest, Some(Evict::Newest), 3),
    ] {
        let mut config = config(10_000_000, Admission { evict, ..Admission::default() });
        let one = contract(17, 1_000_000, 100, Policy::Ok);
        config.contracts = vec![Contract { evict: own, ..one.clone() }, Contract { id: 18, ..one }];
        config.prefixes = vec![source(0, 0), source(1, 1)];
        let mut edge = Edge::new(config, Instant::ZERO);
        // Contract 17 has 5, 1 and 2, begun in that order, and contract 18 has 3 and 4, which are small.
        let rate = |flow: u32| if flow == 3 { 20 } else { 10 * u64::from(flow) + 30 };
        let calls: Vec<Call> = (0..)
            .zip([5, 1, 2, 3, 4])
            .map(|(n, flow)| Call {
                flow: if flow > 2 && flow != 5 { flow | 1 << 16 } else { flow },
                start: n * S / 100,
                every: S / rate(flow),
                len: 250,
            })
            .collect();
        run(&mut edge, &calls, 8 * S / 10, |_, _, _, _| {});
        assert_eq!(edge.class_stats().next().unwrap().1.flows.admitted, 5);
        edge.set_rate(0, 200_000);
        edge.timer(Instant::from_nanos(8 * S / 10));
        let out: Vec<(u16, Why)> = edge
            .flows(Instant::ZERO)
            .filter(|f| f.state() == State::Refused)
            .map(|f| (f.key().src_port, edge.explain_flow(f).why))
            .collect();
        let [(flow, Why::Refused { cause: Cause::Above { evict: by, .. }, .. })] = out[..] else {
            panic!("{out:?}")
        };
        let policy = if gone == 3 { evict } else { own.unwrap_or(evict) };
        assert_eq!((flow, by), (gone, policy), "{evict:?} {own:?}");
    }
    // Random takes each of them, over many seeds, and never the pinned one.
    let mut taken = BTreeMap::new();
    for seed in weir_seed::seeds(200) {
        let mut edge = Edge::new(Config { seed, ..config(10_000_000, Admission::default()) }, Instant::ZERO);
        let calls: Vec<Call> = (1..6).map(|flow| voice(flow, 0)).collect();
        run(&mut edge, &calls, 8 * S / 10, |_, _, _, _| {});
        assert!(edge.pin(Instant::from_nanos(8 * S / 10 - 1), &key(3)));
        edge.set_rate(0, 200_000);
        edge.timer(Instant::from_nanos(8 * S / 10));
        let out = edge.flows(Instant::ZERO).find(|f| f.state() == State::Refused).unwrap();
        *taken.entry(out.key().src_port).or_insert(0) += 1;
    }
    // 200 draws of four: 50 each, a deviation of 6.1; six of them.
    assert!(taken.len() == 4 && !taken.contains_key(&3), "{taken:?}");
    assert!(taken.values().all(|n| weir_seed::effort(1) > 1 || (13..87).contains(n)), "{taken:?}");
}

/// T53: a flow ends by silence. Seen again after `timeout` it is new; before, it is what it was.
#[test]
fn t53_a_silent_flow_has_ended() {
    for (silence, expected) in [(5 * S, 1), (5 * S + 1, 2)] {
        let mut edge = Edge::new(config(10_000_000, Admission::default()), Instant::ZERO);
        edge.packet(Instant::ZERO, &key(1), Payload::UNKNOWN, 200);
        edge.packet(Instant::from_nanos(silence), &key(1), Payload::UNKNOWN, 200);
        assert_eq!(edge.class_stats().next().unwrap().1.flows.admitted, expected, "{silence}");
    }
    // Its part of the contract is free at the first window's end after that. It is forgotten when idle.
    let mut edge = Edge::new(config(10_000_000, Admission::default()), Instant::ZERO);
    edge.packet(Instant::ZERO, &key(1), Payload::UNKNOWN, 200);
    edge.timer(Instant::from_nanos(56 * S / 10));
    let states = |at| edge.flows(Instant::from_nanos(at)).map(|f| f.state()).collect::<Vec<_>>();
    assert_eq!((states(30 * S), states(30 * S + 1)), (vec![State::Silent], vec![]));
    assert_eq!(edge.class_stats().next().unwrap().1.flows.timed_out, 1);
}

/// T53: the class says how long a silence ends a flow, and a contract may say otherwise. The class's is a
/// handler, which counts from the next packet on.
#[test]
fn t53_a_class_or_a_contract_says_what_silence_is() {
    let again_after = |class: u64, own: Option<u64>, set: Option<u64>| {
        let time = |seconds: u64| Duration::from_nanos(seconds * S);
        let mut config = config(10_000_000, Admission { timeout: time(class), ..Admission::default() });
        config.classes[0].allocation = Some(Allocation { initial: 1_000_000, ..Allocation::default() });
        config.contracts = vec![Contract { timeout: own.map(time), ..contract(7, 1_000_000, 0, Policy::Ok) }];
        config.prefixes = vec![(Prefix::new(false, 0, 0), 0)];
        (1..30).find(|pause| {
            let mut edge = Edge::new(config.clone(), Instant::ZERO);
            edge.packet(Instant::ZERO, &key(1), Payload::UNKNOWN, 200);
            if let Some(set) = set {
                let handler = handlers::find("admit.timeout").unwrap();
                edge.set_handler(Instant::ZERO, 0, handler, Some(Value::Time(time(set)))).unwrap();
            }
            edge.packet(Instant::from_nanos(pause * S + 1), &key(1), Payload::UNKNOWN, 200);
            edge.class_stats().next().unwrap().1.flows.admitted == 2
        })
    };
    assert_eq!(again_after(5, None, None), Some(5));
    assert_eq!(again_after(10, None, None), Some(10));
    assert_eq!(again_after(10, Some(3), None), Some(3));
    assert_eq!(again_after(10, None, Some(2)), Some(2));
    assert_eq!(again_after(10, Some(3), Some(2)), Some(3), "a contract's own stays");
}

/// T57: at equal load, contracts with a lower T_a are refused more often.
#[test]
fn t57_regular_flows_are_refused_before_premium() {
    let mut refused = [0u32; 2];
    for seed in weir_seed::seeds(20) {
        let mut config = Config { seed, ..config(1_000_000, Admission::default()) };
        config.contracts = vec![
            Contract { accept: Some(share(60)), ..contract(1, 10_000_000, 100, Policy::Ok) },
            contract(2, 10_000_000, 100, Policy::Ok),
        ];
        // Flows above 2^16 come from the second address.
        let host = |n: u128| Prefix::new(false, 0x0a00_0000 + n, 32);
        config.prefixes = vec![(host(0), 0), (host(1), 1)];
        let mut edge = Edge::new(config, Instant::ZERO);
        let mut random = Random::new(seed);
        let calls: Vec<Call> =
            (0..40).map(|n| voice(n / 2 + 1 + (n % 2) * 65_536, random.below(20 * S))).collect();
        run(&mut edge, &calls, 25 * S, |_, _, _, _| {});
        for flow in edge.flows(Instant::ZERO).filter(|flow| flow.state() == State::Refused) {
            refused[flow.contract as usize] += 1;
        }
    }
    assert!(2 * refused[0] > 3 * refused[1] && refused[1] > 0, "{refused:?}");
}

/// Bytes of one flow.
#[derive(Default)]
struct Bytes {
    offered: u64,
    in_profile: u64,
}

/// What each flow offers, and has in profile, over the last half of a run.
fn in_profile(contract: &Contract, calls: &[Call], until: u64) -> (BTreeMap<u32, Bytes>, Edge) {
    let mut config = config(100_000_000, Admission { accept: share(100), ..Admission::default() });
    config.contracts = vec![contract.clone()];
    config.prefixes = vec![(Prefix::new(false, 0, 0), 0)];
    let mut edge = Edge::new(config, Instant::ZERO);
    let mut bytes = BTreeMap::<u32, Bytes>::new();
    // Packets come at random (Poisson): flows that keep step would share by their phases.
    let mut random = Random::new(weir_seed::seed());
    let spacing = |mean: u64| {
        let unit = (random.below(1 << 53) + 1) as f64 / (1u64 << 53) as f64;
        (-unit.ln() * mean as f64) as u64
    };
    run_spaced(&mut edge, calls, until, spacing, |now, flow, len, verdict| {
        if now >= until / 2 {
            let bytes = bytes.entry(flow).or_default();
            bytes.offered += u64::from(len);
            bytes.in_profile += u64::from(len) * u64::from(verdict.reason == Reason::InProfile);
        }
    });
    (bytes, edge)
}

/// A call that offers `thousandths` of a megabit, in packets of 250 bytes, jittered by its number.
fn offers(flow: u32, thousandths: u64) -> Call {
    let every = 250 * 8 * S / (thousandths * 1_000);
    Call { flow, start: u64::from(flow) * 1_237_411 % every, every, len: 250 }
}

/// T23: two flows that offer 5 and 0.5 times BW get g + s·BW·e_i/Σe, for four shares (± 3 % of BW); the
/// same law with the shares swapped does not describe it. Equal flows get equal parts.
#[test]
fn t23_shares_follow_the_law() {
    let bw = 1_000_000;
    let measured = |s, calls: &[Call]| {
        let (bytes, _) = in_profile(&contract(1, bw, s, Policy::BestEffort), calls, 120 * S);
        calls.iter().map(|c| bytes[&c.flow].in_profile as f64 * 8.0 / 60.0 / bw as f64).collect::<Vec<f64>>()
    };
    let law = |s: f64, offered: [f64; 2]| {
        let own = (1.0 - s) / 2.0;
        let excess = offered.map(|o| o - own);
        excess.map(|e| own + s * e / (excess[0] + excess[1]))
    };
    for s in [0, 25, 50, 100] {
        let found = measured(s, &[offers(1, 5_000), offers(2, 501)]);
        let expected = law(s as f64 / 100.0, [5.0, 0.501]);
        let fits = |expected: [f64; 2]| found.iter().zip(expected).all(|(f, e)| (f - e).abs() < 0.03);
        assert!(fits(expected), "s {s}: {found:?}, not {expected:?}");
        assert!(!fits(law(1.0 - s as f64 / 100.0, [5.0, 0.501])) || s == 50, "s {s}: the reverse fits too");
        let equal = measured(s, &[offers(1, 2_003), offers(2, 2_003)]);
        assert!(equal.iter().all(|f| (f - 0.5).abs() < 0.03), "s {s}: {equal:?}");
    }
}

/// T24: a light flow's part is lent: together they get all of BW (≥ 0.99), and never more than BW and
/// the depths. Without lending the contract is worth 0.6.
#[test]
fn t24_lending_loses_nothing() {
    let calls = [offers(1, 5_000), offers(2, 100)];
    let sum = |bytes: &BTreeMap<u32, Bytes>| {
        bytes.values().map(|flow| flow.in_profile).sum::<u64>() as f64 * 8.0 / 30e6
    };
    for s in [0, 25, 50, 100] {
        let lending = contract(1, 1_000_000, s, Policy::BestEffort);
        let (bytes, edge) = in_profile(&lending, &calls, 60 * S);
        let together = sum(&bytes);
        assert!((0.99..1.01).contains(&together), "s {s}: {together}");
        // Of what it offers, because how much that is in half a minute is random.
        let light = bytes[&2].in_profile as f64 / bytes[&2].offered as f64;
        assert!((s == 100) != (light > 0.95), "s {s}: the light flow's own part is its own: {light}");
        // Two buckets of 100 ms at most, and one of each flow.
        let most = 60_000_000 / 8 + 3 * 1_000_000 / 80 + 2 * 3_076;
        let stats = edge.contract_stats().next().unwrap();
        assert!(stats.in_profile_bytes <= most, "s {s}: {} of {most}", stats.in_profile_bytes);
        let wasting = Contract { lend: false, ..lending };
        let (bytes, _) = in_profile(&wasting, &calls, 60 * S);
        let together = sum(&bytes);
        assert!((s == 100) == (together > 0.95), "s {s}: {together}");
    }
}

/// T24: contracts of one class do not share what is lent. What one has in profile is the same to the byte
/// beside another whose flows come, fall silent for `timeout`, and come again in between.
#[test]
fn t24_contracts_lend_to_their_own_flows() {
    let alone = |beside: bool| {
        let mut config = config(10_000_000_000, Admission { accept: share(100), ..Admission::default() });
        let timeout = Duration::from_millis(200);
        let terms =
            |id| Contract { timeout: Some(timeout), ..contract(id, 1_000_000, 30, Policy::BestEffort) };
        config.contracts = vec![terms(1), terms(2)];
        let prefix = |last: u128| Prefix::new(false, 0x0a00_0000 + last, 32);
        config.prefixes = vec![(prefix(0), 0), (prefix(1), 1)];
        let mut edge = Edge::new(config, Instant::ZERO);
        let every = |n: u32| 300_000 + u64::from(n) * 100_123;
        let own = (1..8).map(|n| Call { flow: n, start: u64::from(n), every: every(n), len: 250 });
        let other =
            (1..8).map(|n| Call { flow: 1 << 16 | n, start: u64::from(n) * 7, every: every(n), len: 900 });
        let calls: Vec<Call> = own.chain(other.filter(|_| beside)).collect();
        let mut due: BTreeMap<(u64, u32), Call> = calls.iter().map(|c| ((c.start, c.flow), *c)).collect();
        while let Some(((now, flow), call)) = due.pop_first().filter(|((now, _), _)| *now < 20 * S) {
            edge.packet(Instant::from_nanos(now), &key(flow), Payload::UNKNOWN, call.len);
            // Each is silent for half a second in every second, at its own time.
            let phase = (now + u64::from(flow & 7) * S / 8) % S;
            let next = if phase > S / 2 { now + S / 2 } else { now + call.every };
            due.insert((next, flow), call);
        }
        let stats: Vec<_> = edge.contract_stats().collect();
        let (_, class) = edge.class_stats().next().unwrap();
        assert!(class.flows.timed_out > 100, "{class:?}");
        (stats[0], stats[1].in_profile_bytes)
    };
    let ((without, none), (with, some)) = (alone(false), alone(true));
    assert_eq!(without, with);
    assert!(
        none == 0 && some > 1_000_000 && without.in_profile_bytes < without.offered_bytes,
        "{without:?} {some}"
    );
}

/// T34 and T55: at 150 % of BW, what is in profile is BW ± 2 %, and the rest is passed, dropped or made
/// best effort, counted to the byte.
#[test]
fn t34_policies_at_half_more() {
    let calls = [offers(1, 700), offers(2, 800)];
    for policy in [Policy::Ok, Policy::Drop, Policy::BestEffort, Policy::FlowBestEffort] {
        let contract = contract(1, 1_000_000, 50, policy);
        let mut config = config(100_000_000, Admission::default());
        config.contracts = vec![contract];
        config.prefixes = vec![(Prefix::new(false, 0, 0), 0)];
        let mut edge = Edge::new(config, Instant::ZERO);
        let (mut ef, mut best_effort, mut dropped, mut all) = (0, 0, 0, 0);
        run(&mut edge, &calls, 60 * S, |_, _, len, verdict| {
            let counter = match (verdict.drop, verdict.tos >> 2) {
                (true, _) => &mut dropped,
                (_, 46) => &mut ef,
                _ => &mut best_effort,
            };
            *counter += u64::from(len);
            all += u64::from(len);
        });
        let stats = edge.contract_stats().next().unwrap();
        let sum = stats.in_profile_bytes + stats.passed_bytes + stats.dropped_bytes + stats.best_effort_bytes;
        assert_eq!((stats.offered_bytes, sum), (all, all), "{policy:?}");
        assert_eq!(ef + best_effort + dropped, all);
        let share = stats.in_profile_bytes as f64 * 8.0 / 60e6;
        let whole = (0.98..1.02).contains(&share);
        let fits = match policy {
            Policy::Ok => whole && ef == all && stats.passed_bytes > all / 4,
            Policy::Drop => whole && dropped == stats.dropped_bytes && best_effort == 0,
            Policy::BestEffort => whole && best_effort == stats.best_effort_bytes && dropped == 0,
            // Whole flows wait there until they fit.
            Policy::FlowBestEffort => share < 1.02 && best_effort == stats.best_effort_bytes,
        };
        assert!(fits, "{policy:?}: {share} {ef} {best_effort} {dropped} {stats:?}");
    }
}

/// T25 and T51: sources without a contract are ordinary, whatever their mark; ECN bits stay; only UDP is
/// examined; an edge without recognition leaves packets alone.
#[test]
fn t25_sources_without_a_contract_are_ordinary() {
    let mut config = config(1_000_000, Admission::default());
    config.contracts = vec![contract(1, 1_000_000, 0, Policy::BestEffort)];
    config.prefixes = vec![(Prefix::new(false, 0x0a00_0000, 32), 0)];
    let mut edge = Edge::new(config.clone(), Instant::ZERO);
    let stranger = key(1 << 16).with_tos(46 << 2 | 2);
    let verdict = edge.packet(Instant::ZERO, &stranger, Payload::UNKNOWN, 200);
    assert_eq!((verdict.tos, verdict.drop, verdict.reason), (2, false, Reason::NoContract));
    let known = edge.packet(Instant::ZERO, &key(1).with_tos(46 << 2 | 1), Payload::UNKNOWN, 200);
    assert_eq!((known.tos, known.reason), (46 << 2 | 1, Reason::InProfile));
    let unmarked = edge.packet(Instant::ZERO, &key(2).with_tos(8), Payload::UNKNOWN, 200);
    assert_eq!((unmarked.tos, unmarked.reason), (0, Reason::Ordinary));
    let tcp = edge.packet(Instant::ZERO, &Key { protocol: 6, ..key(3) }, Payload::UNKNOWN, 200);
    assert_eq!((tcp.tos, tcp.reason), (0, Reason::Ordinary));
    let mut keeps = Edge::new(Config { keep_untrusted: true, ..config.clone() }, Instant::ZERO);
    assert_eq!(keeps.packet(Instant::ZERO, &stranger, Payload::UNKNOWN, 200).tos, stranger.tos);
    let mut alone = Edge::new(Config { recognition: None, ..config }, Instant::ZERO);
    assert_eq!(alone.packet(Instant::ZERO, &stranger, Payload::UNKNOWN, 200).tos, stranger.tos);
}

/// T65: a million strangers neither push a call out nor make the table grow.
#[test]
fn t65_strangers_push_no_call_out() {
    let mut config = config(10_000_000, Admission::default());
    config.recognition = Some(Recognition { trust_dscp: true, flows: 1_024, ..Recognition::default() });
    let mut edge = Edge::new(config, Instant::ZERO);
    for call in 1..51 {
        edge.packet(Instant::ZERO, &key(call), Payload::UNKNOWN, 200);
    }
    for n in 0..weir_seed::effort(100_000) as u32 {
        let now = Instant::from_nanos(u64::from(n) * 10_000);
        edge.packet(now, &key(65_536 + n).with_tos(0), Payload::UNKNOWN, 200);
        if n % 1_000 == 0 {
            for call in 1..51 {
                assert_eq!(
                    edge.packet(now, &key(call), Payload::UNKNOWN, 200).reason,
                    Reason::InProfile,
                    "{call}"
                );
            }
        }
    }
    assert!(edge.flows(Instant::ZERO).count() <= 1_024);
    assert_eq!(edge.class_stats().next().unwrap().1.flows.admitted, 50);
}

/// T65: who sends bulk traffic as a call uses his own contract up, and nobody else's. Had his contract the policy
/// `ok`, which passes what is out of profile, he would fill the class.
#[test]
fn t65_a_liar_harms_himself_alone() {
    let liar = Call { flow: 1 << 16, start: 0, every: S / 250, len: 1_000 };
    let calls: Vec<Call> = (1..6).map(|n| voice(n, u64::from(n) * S)).chain([liar]).collect();
    for policy in [Policy::Drop, Policy::BestEffort, Policy::FlowBestEffort, Policy::Ok] {
        let mut config = config(600_000, Admission::default());
        config.contracts =
            vec![contract(1, 500_000, 100, Policy::BestEffort), contract(2, 100_000, 100, policy)];
        config.prefixes =
            vec![(Prefix::new(false, 0x0a00_0000, 32), 0), (Prefix::new(false, 0x0a00_0001, 32), 1)];
        let mut edge = Edge::new(config, Instant::ZERO);
        let mut outside = 0;
        run(&mut edge, &calls, 30 * S, |_, flow, _, verdict| {
            outside += u64::from(flow < 6 && verdict.reason != Reason::InProfile);
        });
        let stats = edge.class_stats().next().unwrap().1;
        let unharmed = outside == 0 && (stats.flows.refused, stats.flows.evicted) == (0, 0);
        assert_eq!(unharmed, policy != Policy::Ok, "{policy:?}: {outside} {stats:?}");
    }
}
