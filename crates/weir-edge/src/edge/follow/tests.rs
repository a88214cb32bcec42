use super::*;
use crate::admit::{Admission, Evict};
use crate::allocate::{Action, Allocation, Answer, Law, Log};
use crate::edge::{Reason, Recognition};
use crate::handlers;
use crate::recognise::{Payload, Rules, statistical};
use crate::sla::{Policy, Prefix};
use std::net::Ipv4Addr;
use std::vec;
use std::vec::Vec;
use weir_core::Random;
use weir_core::packet::Dscp;
use weir_core::queue::Value;
use weir_core::units::{Duration, Fraction, Rate};

const S: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;

fn at(ns: u64) -> Instant {
    Instant::from_nanos(ns)
}

fn contract(id: u32, class: usize, bandwidth_bps: u64) -> Contract {
    Contract {
        id,
        bandwidth_bps,
        shared: Fraction::ratio(30, 100),
        lend: true,
        dscp: Dscp::EF,
        policy: Policy::BestEffort,
        timeout: Some(Duration::from_secs(1)),
        flows: 60,
        class,
        accept: None,
        drop: None,
        evict: None,
        guessed: None,
        guessed_dscp: None,
    }
}

fn class(leaf: u32, rate_bps: u64, law: bool) -> Class {
    let allocation = Allocation { law: Law::Log(Log::default()), from: 64_000, ..Allocation::default() };
    let admission = Admission { evict: Evict::Oldest, ..Admission::default() };
    Class { leaf, allocation: law.then_some(allocation), admission, rate_bps }
}

fn config(classes: Vec<Class>, contracts: Vec<Contract>, prefixes: Vec<(Prefix, u32)>) -> Config {
    Config {
        classes,
        contracts,
        prefixes,
        recognition: Some(Recognition { trust_dscp: true, flows: 2_048, ..Recognition::default() }),
        keep_untrusted: false,
        overhead: 0,
        seed: 1,
    }
}

/// A flow of host 10.`net`.0.`n`: flows of even numbers say that they are real-time.
fn key(net: u64, n: u64) -> Key {
    let source = Ipv4Addr::new(10, net as u8, 0, n as u8);
    let tos = if n.is_multiple_of(2) { 46 << 2 } else { 0 };
    Key::ipv4(source, Ipv4Addr::new(192, 0, 2, 1), 17).with_ports(4_000 + n as u16, 5_004).with_tos(tos)
}

fn net(net: u64, length: u8) -> Prefix {
    Prefix::new(false, 0x0a00_0000 + u128::from(net) * 65_536, length)
}

/// The next packet of RTP of a flow.
fn rtp(sequence: u64) -> [u8; 32] {
    let mut bytes = [0x55; 32];
    bytes[0] = 0x80;
    bytes[1] = 0;
    bytes[2..4].copy_from_slice(&(sequence as u16).to_be_bytes());
    bytes[4..8].copy_from_slice(&(sequence as u32 * 160).to_be_bytes());
    bytes[8..12].copy_from_slice(&7u32.to_be_bytes());
    bytes
}

/// What must hold of an edge between two calls.
fn check(edge: &Edge) {
    let (mut admitted, contracts) = (0, edge.config.contracts.len());
    for (n, lane) in edge.lanes.iter().enumerate() {
        for (place, &index) in (0..).zip(&lane.admitted) {
            let flow = edge.flows.get(index);
            assert_eq!(flow.part().map(|part| part.place), Some(place));
            assert_eq!(edge.class_of(flow.contract), n);
        }
        admitted += lane.admitted.len();
        assert_eq!(lane.stats.flows.now(), lane.admitted.len() as u64, "{:?}", lane.stats);
        let flows = edge.config.recognition.map_or(0, |r| r.flows) as usize;
        assert!(lane.admitted.capacity() >= flows, "an admission would allocate");
    }
    let all: Vec<u32> = edge.flows.indices().collect();
    assert_eq!(all.iter().filter(|&&i| edge.flows.get(i).part().is_some()).count(), admitted);
    for (n, meter) in (0..).zip(&edge.meters) {
        let (mut chained, mut next) = (0, meter.first);
        while let Some(index) = next {
            let flow = edge.flows.get(index);
            assert!(flow.contract == n && flow.part().is_some());
            chained += 1;
            next = edge.next[index as usize];
        }
        let its = |&&i: &&u32| edge.flows.get(i).contract == n && edge.flows.get(i).part().is_some();
        assert_eq!((chained, meter.shared.flows()), (all.iter().filter(its).count(), chained as u32));
        // Since its contract began; a contract that goes on keeps its counters.
        assert_eq!(meter.others.flows.now(), chained as u64, "{:?}", meter.stats());
    }
    for &index in &all {
        let flow = edge.flows.get(index);
        assert_eq!(edge.flows.find(&flow.key()), Some(index));
        if flow.is_aggregate() {
            let id = edge.config.contracts.get(flow.contract as usize).map(|c| c.id);
            assert_eq!(flow.key(), crate::flow::aggregate(id));
        } else {
            assert_eq!(edge.contract_of(&flow.key()), Some(flow.contract));
        }
    }
    assert_eq!(edge.next.len(), edge.flows.capacity());
    assert_eq!(edge.meters.len(), contracts);
    edge.flows.check();
}

/// A configuration of up to five contracts and three classes, with anything changed.
fn anything(random: &mut Random) -> Config {
    let classes: Vec<Class> =
        (0..1 + random.below(3)).map(|n| class(10 + n as u32, 400_000, random.below(2) == 1)).collect();
    let mut contracts = Vec::new();
    let mut prefixes = Vec::new();
    for id in 1..6u32 {
        if random.below(3) == 0 {
            continue;
        }
        let class = random.below(classes.len() as u64) as usize;
        let shared = Fraction::ratio(random.below(101), 100);
        let lend = random.below(2) == 1;
        let bandwidth = [100_000, 500_000, 2_000_000][random.below(3) as usize];
        let flows = [3, 60][random.below(2) as usize];
        prefixes.push((net(random.below(5), [8, 16, 28][random.below(3) as usize]), contracts.len() as u32));
        contracts.push(Contract { shared, lend, flows, ..contract(id, class, bandwidth) });
    }
    let mut config = config(classes, contracts, prefixes);
    let recognition = config.recognition.as_mut().unwrap();
    recognition.flows = [16, 64, 2_048][random.below(3) as usize];
    recognition.rules.statistical = match random.below(3) {
        0 => None,
        n => Some(statistical::Rule { per_aggregate: n == 1, size: 600, skip: 0, ..Default::default() }),
    };
    if let Some(rtp) = &mut recognition.rules.rtp {
        rtp.within = Duration::from_secs(1 + random.below(9));
    }
    if random.below(8) == 0 {
        config.recognition = None;
    }
    config
}

/// T63: whatever changes into whatever, lists, chains, counters and the table agree with each other, and so
/// they do after the packets that follow.
#[test]
fn everything_agrees_after_any_change() {
    for seed in weir_seed::seeds(40) {
        let mut random = Random::new(seed);
        let mut edge = Edge::new(anything(&mut random), at(0));
        let (mut now, mut sequence) = (0, 0);
        for _ in 0..30 {
            for _ in 0..200 {
                now += random.below(8 * MS);
                sequence += 1;
                let key = key(random.below(5), random.below(12));
                let mut bytes = rtp(sequence);
                // Some begin no protocol.
                bytes[0] = if key.src_port.is_multiple_of(3) { 0x60 } else { bytes[0] };
                edge.packet(at(now), &key, Payload { head: &bytes, len: 60 + random.below(900) as u32 }, 500);
            }
            check(&edge);
            match random.below(8) {
                0 => edge.recognise(at(now), random.below(3) > 0),
                1 => {
                    let mut other = Edge::new(anything(&mut random), at(now));
                    let mut free: Vec<Option<usize>> = (0..edge.lanes.len()).map(Some).collect();
                    let kept: Vec<Option<usize>> = (0..other.lanes.len())
                        .map(|_| free.get_mut(random.below(4) as usize).and_then(Option::take))
                        .collect();
                    let mut numbers = Vec::new();
                    edge.estate(at(now), &mut numbers);
                    let whole = numbers.len() as u64;
                    assert!(!other.inherit(at(now), &numbers[..random.below(whole) as usize], &kept));
                    assert!(other.inherit(at(now), &numbers, &kept));
                    edge = other;
                }
                _ => {
                    let config = anything(&mut random);
                    let lanes = edge.lanes.len() as u64;
                    let kept: Vec<Option<usize>> = config
                        .classes
                        .iter()
                        .map(|_| Some(random.below(lanes + 1) as usize).filter(|_| random.below(4) > 0))
                        .collect();
                    edge.follow(at(now), config, &kept);
                }
            }
            check(&edge);
        }
    }
}

/// What a host does after each call; the answers grant all. What was asked, and how often.
fn carry_out(edge: &mut Edge, now: u64, leaf: u32) -> u64 {
    let mut asked = 0;
    while let Some((its, action)) = edge.poll() {
        if let Action::Ask(request) = action {
            edge.answer(at(now), its, request.version, Answer::Granted(request.rate_bps));
            asked += u64::from(its == leaf);
        }
    }
    asked
}

/// T63: contracts and classes that a change does not name go on exactly: verdicts, counters, flows and
/// allocation are those of an edge on which nothing was ever changed. Its neighbours come and go, with
/// all that they have, the table gets other sizes, and the places of all in the lists move.
#[test]
fn what_a_change_does_not_name_goes_on_exactly() {
    for seed in weir_seed::seeds(20) {
        let mut random = Random::new(seed);
        let policy = [Policy::BestEffort, Policy::Drop, Policy::FlowBestEffort][random.below(3) as usize];
        let own = Contract { policy, ..contract(1, 0, 300_000) };
        let own_class = |leaf| {
            let mut class = class(leaf, 0, true);
            class.allocation.iter_mut().for_each(|allocation| allocation.to = 350_000);
            class
        };
        let still = config(vec![own_class(0)], vec![own.clone()], vec![(net(0, 16), 0)]);
        let mut alone = Edge::new(still, at(0));
        // The class's place and leaf, and the contract's place, change each time.
        let draw = |random: &mut Random| {
            let mut config = anything(random);
            config.contracts.retain(|c| c.id != 1);
            config.prefixes =
                (0..config.contracts.len() as u32).map(|n| (net(u64::from(n) + 1, 16), n)).collect();
            let place = random.below(1 + config.classes.len() as u64) as usize;
            config.contracts.iter_mut().for_each(|c| c.class += usize::from(c.class >= place));
            let leaf = 100 + random.below(50) as u32;
            config.classes.insert(place, own_class(leaf));
            config.prefixes.push((net(0, 16), config.contracts.len() as u32));
            config.contracts.push(Contract { class: place, ..own.clone() });
            let recognition =
                Recognition { trust_dscp: true, rules: Rules::default(), ..Recognition::default() };
            let flows = [1_024, 2_048, 4_096][random.below(3) as usize];
            config.recognition = Some(Recognition { flows, ..recognition });
            (config, place, leaf)
        };
        let (first, mut place, mut leaf) = draw(&mut random);
        let mut among = Edge::new(first, at(0));
        let (mut now, mut asked, mut refused) = (0, [0, 0], 0);
        for sequence in 0..20_000u64 {
            now += random.below(2 * MS);
            let network = random.below(4);
            let key = key(network, random.below(16));
            let bytes = rtp(sequence);
            let (payload, len) = (Payload { head: &bytes, len: 172 }, 60 + random.below(400) as u32);
            // Both hosts come at the same times.
            alone.timer(at(now));
            among.timer(at(now));
            let verdict = among.packet(at(now), &key, payload, len);
            if network == 0 {
                let expected = alone.packet(at(now), &key, payload, len);
                assert_eq!(verdict, expected, "seed {seed}, packet {sequence}");
                refused += u64::from(verdict.reason == Reason::Refused);
                if verdict.reason == Reason::InProfile {
                    alone.entered(at(now), 0, len);
                    alone.left(at(now), 0, len, true);
                    among.entered(at(now), leaf, len);
                    among.left(at(now), leaf, len, true);
                }
            }
            asked[0] += carry_out(&mut alone, now, 0);
            asked[1] += carry_out(&mut among, now, leaf);
            if random.below(100) == 0 {
                let (config, next, its) = draw(&mut random);
                let kept: Vec<Option<usize>> = (0..config.classes.len())
                    .map(|n| {
                        if n == next {
                            Some(place)
                        } else {
                            Some(random.below(4) as usize).filter(|&k| k != place)
                        }
                    })
                    .collect();
                among.follow(at(now), config, &kept);
                check(&among);
                (place, leaf) = (next, its);
                asked[1] += carry_out(&mut among, now, leaf);
            }
        }
        let of = |edge: &mut Edge, leaf: u32| {
            let stats = edge.class_stats().find(|(its, _)| *its == leaf).unwrap().1;
            let contracts: Vec<_> =
                edge.config.contracts.iter().map(|c| c.id).zip(edge.contract_stats()).collect();
            let own = contracts.iter().find(|(id, _)| *id == 1).unwrap().1;
            let flows: Vec<_> = (0..16).map(|n| edge.explain(&key(0, n))).collect();
            let allocator = edge.allocator_mut(leaf).unwrap();
            (stats, own, flows, allocator.allocated_bps(), allocator.stats(at(now)))
        };
        let (with, without) = (of(&mut among, leaf), of(&mut alone, 0));
        assert_eq!(with, without, "seed {seed}");
        assert_eq!(asked[0], asked[1]);
        assert!(
            asked[0] > 0 && refused + with.0.flows.timed_out > 0 && with.1.in_profile_bytes > 0,
            "{with:?}"
        );
    }
}

/// T63: tokens are never multiplied: with a change every 10 ms there is no more in profile than the largest
/// bandwidth and the depths allow. Reversed: a contract that goes and comes again begins anew, and has more.
#[test]
fn changes_lend_nothing() {
    let run = |anew: bool| {
        let terms = |n: u64| {
            let bandwidth = if n.is_multiple_of(2) { 1_000_000 } else { 900_000 };
            let shared = Fraction::ratio(n * 37 % 101, 100);
            Contract {
                shared,
                lend: !n.is_multiple_of(3),
                ..contract(if anew { n as u32 } else { 7 }, 0, bandwidth)
            }
        };
        let whole = |n| config(vec![class(0, 100_000_000, false)], vec![terms(n)], vec![(net(0, 8), 0)]);
        let mut edge = Edge::new(whole(0), at(0));
        let mut passed = 0;
        for n in 0..1_000u64 {
            for packet in 0..20 {
                let verdict = edge.packet(
                    at((n * 20 + packet) * MS / 2),
                    &key(0, packet % 3 * 2),
                    Payload::UNKNOWN,
                    500,
                );
                passed += u64::from(verdict.reason == Reason::InProfile) * 500;
            }
            edge.follow(at((n + 1) * 10 * MS), whole(n + 1), &[Some(0)]);
        }
        check(&edge);
        passed
    };
    // 10 s of 1 Mbit/s, the shared bucket, and those of three flows of at most a whole bandwidth each.
    let most = 10 * 125_000 + 12_500 + 3 * 12_500;
    let (kept, anew) = (run(false), run(true));
    assert!(kept <= most && kept > 10 * 125_000 * 7 / 10, "{kept} of {most}");
    assert!(anew > 2 * most, "{anew} of {most}");
}

/// What goes ends: a flow whose prefix goes to another contract asks there, a flow of nobody is forgotten,
/// and a contract that is taken away and comes again begins with nothing.
#[test]
fn what_goes_ends() {
    let two = |prefixes: [(Prefix, u32); 2]| {
        let contracts = vec![contract(1, 0, 1_000_000), contract(2, 1, 1_000_000)];
        config(vec![class(0, 10_000_000, false), class(1, 10_000_000, false)], contracts, prefixes.to_vec())
    };
    let mut edge = Edge::new(two([(net(0, 16), 0), (net(1, 16), 1)]), at(0));
    let send =
        |edge: &mut Edge, now, network| edge.packet(at(now), &key(network, 2), Payload::UNKNOWN, 200).reason;
    assert_eq!((send(&mut edge, 0, 0), send(&mut edge, 0, 1)), (Reason::InProfile, Reason::InProfile));
    // Network 0 goes to contract 2, network 1 to nobody.
    let kept = [Some(0), Some(1)];
    edge.follow(at(MS), two([(net(5, 16), 0), (net(0, 16), 1)]), &kept);
    check(&edge);
    let why = edge.explain(&key(0, 2));
    assert_eq!((why.contract, why.state), (Some(2), State::Silent));
    assert_eq!(
        (send(&mut edge, 2 * MS, 0), send(&mut edge, 2 * MS, 1)),
        (Reason::InProfile, Reason::NoContract)
    );
    let stats: Vec<_> =
        edge.contract_stats().map(|c| (c.flows.admitted, c.flows.ended, c.offered_bytes)).collect();
    assert_eq!(stats, [(1, 1, 200), (2, 1, 400)]);
    assert_eq!(edge.flows(at(2 * MS)).count(), 1);
    // Contract 2 goes, and comes again: its counters are new, and its flow asks.
    let only = config(vec![class(9, 10_000_000, false)], vec![contract(1, 0, 1)], vec![(net(5, 16), 0)]);
    edge.follow(at(3 * MS), only, &[Some(0)]);
    check(&edge);
    assert_eq!((edge.flows(at(3 * MS)).count(), send(&mut edge, 4 * MS, 0)), (0, Reason::NoContract));
    edge.follow(at(5 * MS), two([(net(5, 16), 0), (net(0, 16), 1)]), &[Some(0), None]);
    check(&edge);
    assert_eq!(edge.contract_stats().last().unwrap(), Default::default());
    assert_eq!(send(&mut edge, 6 * MS, 0), Reason::InProfile);
}

/// An allocator that goes on keeps what it has within the new bounds, says its rate again, and tells the
/// broker what it changed.
#[test]
fn an_allocation_goes_on() {
    let with = |from: u64, to: u64, leaf| {
        let mut class = class(leaf, 0, true);
        if let Some(allocation) = &mut class.allocation {
            (allocation.from, allocation.to, allocation.initial) = (from, to, 512_000);
        }
        config(vec![class], Vec::new(), Vec::new())
    };
    for (from, to, expected) in
        [(64_000, 1_000_000, 512_000), (64_000, 300_000, 300_000), (600_000, 900_000, 600_000)]
    {
        let mut edge = Edge::new(with(64_000, 1_000_000, 3), at(0));
        assert_eq!(edge.poll(), Some((3, Action::Shape(512_000))));
        edge.follow(at(MS), with(from, to, 4), &[Some(0)]);
        assert_eq!(edge.poll(), Some((4, Action::Shape(expected))), "{from} to {to}");
        let asks = matches!(edge.poll(), Some((4, Action::Ask(request))) if request.rate_bps == expected);
        assert_eq!(asks, expected != 512_000, "{from} to {to}");
        // One that does not go on begins anew.
        edge.follow(at(S), with(64_000, 1_000_000, 5), &[None]);
        assert_eq!(edge.poll(), Some((5, Action::Shape(512_000))));
    }
}

/// T63: another process goes on exactly: verdicts, counters and flows are those of an edge that nobody took over, what
/// is out of profile included. It is taken over where windows end, because the means of a begun one are not passed.
#[test]
fn another_process_goes_on_exactly() {
    const WINDOW: u64 = 800 * MS;
    for seed in weir_seed::seeds(20) {
        let mut random = Random::new(seed);
        let policy = [Policy::BestEffort, Policy::Drop, Policy::FlowBestEffort][random.below(3) as usize];
        let contracts = (1..4).map(|id| Contract { policy, ..contract(id, 0, 300_000) });
        let prefixes = (0..3).map(|n| (net(n.into(), 16), n)).collect();
        let mut config = config(vec![class(7, 700_000, false)], contracts.collect(), prefixes);
        config.recognition = Some(Recognition { trust_dscp: true, ..Recognition::default() });
        let mut alone = Edge::new(config.clone(), at(0));
        let mut taken = Edge::new(config.clone(), at(0));
        let (mut now, mut outcomes) = (0, [0; 4]);
        for sequence in 0..20_000u64 {
            let before = now / WINDOW;
            now += random.below(2 * MS);
            if now / WINDOW > before {
                let end = at(now / WINDOW * WINDOW);
                alone.timer(end);
                let mut numbers = Vec::new();
                taken.estate(end, &mut numbers);
                taken = Edge::new(config.clone(), end);
                assert!(taken.inherit(end, &numbers, &[Some(0)]));
                check(&taken);
            }
            let key = key(random.below(3), 2 * random.below(6));
            if random.below(500) == 0 {
                let pinned = random.below(2) == 0;
                for edge in [&mut alone, &mut taken] {
                    if pinned {
                        edge.pin(at(now), &key)
                    } else {
                        edge.unpin(&key)
                    };
                }
            }
            let bytes = rtp(sequence);
            let payload = Payload { head: &bytes, len: 172 };
            let len = 60 + random.below(900) as u32;
            let verdict = taken.packet(at(now), &key, payload, len);
            assert_eq!(verdict, alone.packet(at(now), &key, payload, len), "seed {seed}, packet {sequence}");
            outcomes[match verdict.reason {
                Reason::InProfile => 0,
                Reason::OutOfProfile => 1,
                Reason::Refused => 2,
                _ => 3,
            }] += 1;
        }
        let of = |edge: &Edge| {
            let flows: Vec<_> = (0..18).map(|n| edge.explain(&key(n / 6, 2 * (n % 6)))).collect();
            let contracts: Vec<_> = edge.contract_stats().collect();
            (edge.class_stats().next().unwrap(), contracts, edge.flow_stats(), flows)
        };
        assert_eq!(of(&taken), of(&alone), "seed {seed}");
        assert!(outcomes[0] > 0 && outcomes[1] + outcomes[2] > 0, "{outcomes:?}");
    }
}

/// T63: what was set while an edge ran holds, until the configuration says another value of the same option. Where it
/// cannot work with what is said of the rest, the configuration holds.
#[test]
fn what_was_set_holds_until_the_configuration_says_otherwise() {
    let with = |change: &dyn Fn(&mut Allocation)| {
        let mut class = class(0, 0, true);
        class.allocation.iter_mut().for_each(change);
        config(vec![class], vec![contract(1, 0, 300_000)], vec![(net(0, 16), 0)])
    };
    let same = with(&|_| {});
    let mut edge = Edge::new(same.clone(), at(0));
    let set = |edge: &mut Edge, name: &str, value| {
        edge.set_handler(at(1), 0, handlers::find(name).unwrap(), Some(value)).unwrap();
    };
    set(&mut edge, "request.retry", Value::Time(Duration::from_secs(3)));
    set(&mut edge, "admit.timeout", Value::Time(Duration::from_secs(7)));
    let of = |edge: &Edge| {
        let (admission, allocator) = edge.allocator_of(0).unwrap();
        let plan = allocator.plan();
        assert_eq!(edge.config().classes[0].admission, *admission);
        [plan.retry, admission.timeout].map(|time| time.as_nanos() / 1_000_000_000)
    };
    let usual = [Allocation::default().retry.as_nanos() / 1_000_000_000, 5];
    let passed = |edge: &Edge, to: Config| {
        let mut other = Edge::new(to, at(2));
        other.carry(at(2), 0, &edge.settings(0));
        of(&other)
    };
    assert_eq!(edge.settings(0).len(), 2);
    assert_eq!((of(&edge), passed(&edge, same.clone())), ([3, 7], [3, 7]));
    // Another value of something else, twice; then of one of them; then what it was.
    let unit = with(&|plan| plan.unit = 1_000);
    let retry = with(&|plan| plan.retry = Duration::from_secs(20));
    for to in [&unit, &same] {
        assert_eq!(passed(&edge, to.clone()), [3, 7]);
        edge.follow(at(3), to.clone(), &[Some(0)]);
        assert_eq!(of(&edge), [3, 7]);
    }
    assert_eq!(passed(&edge, retry.clone()), [20, 7]);
    edge.follow(at(4), retry, &[Some(0)]);
    assert_eq!((of(&edge), edge.settings(0).len()), ([20, 7], 1));
    edge.follow(at(5), same.clone(), &[Some(0)]);
    assert_eq!(of(&edge), [usual[0], 7]);
    // A class that begins anew has what is said.
    edge.follow(at(6), same.clone(), &[None]);
    assert_eq!(of(&edge), usual);
    // A least allocation above the most that may be asked for cannot work.
    set(&mut edge, "request.from", Value::Rate(Rate::from_bps(500_000)));
    let narrow = with(&|plan| plan.to = 300_000);
    edge.follow(at(7), narrow.clone(), &[Some(0)]);
    assert_eq!(Some(*edge.allocator_of(0).unwrap().1.plan()), narrow.classes[0].allocation);
}
