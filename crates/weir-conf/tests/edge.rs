//! The commands of the edge: what is read is printed so that it reads the same, and comes to an edge.

#![allow(clippy::unwrap_used)]

use weir_conf::{diff, judge, print, read};
use weir_core::queue::{Link, Value};
use weir_core::sched::Registry;
use weir_core::units::{Duration, Fraction, Rate};
use weir_edge::admit::Evict;
use weir_edge::allocate::{Amount, Law};
use weir_edge::recognise::statistical::Rule;
use weir_edge::recognise::{Rtp, Rules};

const TEXT: &str = "\
broker core local 8M
interface lan0
interface wan0 bandwidth 10M attach bridge lan0 hfsc
class hfsc wan0 rt root [ls 0 0 8M] [ul 0 0 1M]
class hfsc wan0 be root [ls 0 0 2M] default
filter wan0 rt 0 0 0 0 0 dscp EF
recognise lan0 rtp 5/1500ms offsets off stun dtls statistical rate 10 size 200 over 12 skip 6 per aggregate trust dscp \\
  untrusted keep idle 20s flows 1024
sla lan0 17 198.51.100.17,2001:db8:17::/56 bw 512K shared 20 policy be-flow timeout 3s flows 7
sla lan0 18 10.0.8.0/24 bw 4M shared 100% policy drop class rt accept 85 evict newest guessed 25 dscp VA guessed-dscp CS4
allocate wan0 rt law log gain 100% step 10% window 400ms 5 congestion 200ms from 64K to 8M broker core
";

#[test]
fn what_is_read_is_printed_and_read_again() {
    let registry = Registry::builtin();
    let plan = read("altq.conf", TEXT, &registry).into_result().unwrap();
    let again = read("again", &print(&plan), &registry).into_result().unwrap();
    assert_eq!(plan, again, "{}", print(&plan));
    let other = read("altq.conf", &TEXT.replace("bw 512K", "bw 600K"), &registry).into_result().unwrap();
    assert_ne!(plan, other);
    let found = diff(&plan, &other);
    assert!(found.len() == 2 && found[1].to_string().contains("bw 600K"), "{found:?}");
    let broker = read("altq.conf", &TEXT.replace("local 8M", "local 9M"), &registry).into_result().unwrap();
    assert_eq!(diff(&plan, &broker)[0].what, "broker core");
}

#[test]
fn a_broker_elsewhere_is_printed_as_it_is_read() {
    let registry = Registry::builtin();
    for line in [
        "broker core https://bb.example.net:7443 ca /etc/weir/ca.pem cert e.pem key e.key edge e1 ttl 60000ms",
        "broker core https://[2001:db8::1]:7443 ca ca.pem token secret",
        "broker core unix:/run/weir-broker.sock edge e1",
        "broker core cops 127.0.0.1:3288 token secret",
        "broker core cops bb.example.net:3183 ca ca.pem cert e.pem key e.key",
    ] {
        let plan = read("altq.conf", &TEXT.replace("broker core local 8M", line), &registry).into_result();
        let plan = plan.unwrap_or_else(|said| panic!("{line}: {said:?}"));
        assert!(print(&plan).contains(&format!("{line}\n")), "{line}: {}", print(&plan));
        let again = read("again", &print(&plan), &registry).into_result().unwrap();
        assert_eq!(plan, again, "{line}");
        // What it has, nobody knows here: in a simulation it grants all, if the scenario does not describe it.
        let view = plan.interface("wan0").unwrap();
        let built = view.build(&registry, Link::new(Rate::from_mbps(10), 0, 1_514)).unwrap();
        let edge = view.edge(&registry, &built.tree.leaves, 1).unwrap().unwrap();
        assert_eq!(edge.classes[0].broker, Some(("core".into(), Rate::from_bps(1_000_000_000_000_000))));
    }
    // The order is free, and the usual port and time need not be said.
    let short = "broker core cops localhost edge e1\nbroker far cops bb.example.net ca ca.pem ttl 30s\n";
    let plan = read("altq.conf", short, &registry).into_result().unwrap();
    let expected = "broker core cops localhost:3288 edge e1\nbroker far cops bb.example.net:3183 ca ca.pem\n";
    assert_eq!(print(&plan), expected);
}

#[test]
fn the_lines_come_to_an_edge() {
    let registry = Registry::builtin();
    let plan = read("altq.conf", TEXT, &registry).into_result().unwrap();
    let view = plan.interface("wan0").unwrap();
    let built = view.build(&registry, Link::new(Rate::from_mbps(10), 0, 1_514)).unwrap();
    let edge = view.edge(&registry, &built.tree.leaves, 1).unwrap().unwrap();
    assert_eq!((edge.classes.len(), edge.config.contracts.len(), edge.config.prefixes.len()), (1, 2, 3));
    assert_eq!(edge.classes[0].broker, Some(("core".into(), Rate::from_mbps(8))));
    let allocation = edge.config.classes[0].allocation.unwrap();
    let Law::Log(law) = allocation.law else { panic!("{allocation:?}") };
    assert_eq!((law.gain, law.step), (Amount::Share(Fraction::ONE), law.step));
    assert!(matches!(law.step, Amount::Share(step) if step.of(1_000_000) == 100_000));
    assert_eq!((allocation.from, allocation.to, allocation.windows.hold), (64_000, 8_000_000, 5));
    assert_eq!(allocation.guard, Duration::from_millis(800), "two windows");
    let recognition = edge.config.recognition.unwrap();
    assert!(recognition.trust_dscp && edge.config.keep_untrusted && recognition.flows == 1024);
    let rtp = Some(Rtp { packets: 5, within: Duration::from_millis(1_500) });
    let statistical = Some(Rule { rate: 10, size: 200, over: 12, skip: 6, per_aggregate: true });
    assert_eq!(recognition.rules, Rules { rtp, offsets: false, stun: true, dtls: true, statistical });
    assert!(print(&plan).contains("recognise lan0 rtp 5/1.5s offsets off stun dtls"), "{}", print(&plan));
    assert_eq!((edge.config.contracts[0].flows, edge.config.contracts[1].dscp.value()), (7, 44));
    let evict = |n: usize| edge.config.contracts[n].evict;
    assert_eq!((evict(0), evict(1)), (None, Some(Evict::Newest)));
    let guessed = |n: usize| edge.config.contracts[n].guessed;
    assert_eq!((guessed(0), guessed(1)), (None, Some(Fraction::ratio(25, 100))));
    let mark = |n: usize| edge.config.contracts[n].guessed_dscp.map(|dscp| dscp.value());
    assert_eq!((mark(0), mark(1)), (None, Some(32)));
    // The rate of the class is its upper limit, and never nothing.
    let Some(Value::Curve(curve)) = edge.classes[0].shape(300_000).get("ul").cloned() else { panic!() };
    assert_eq!(curve.m2, Rate::from_bps(300_000));
    assert!(edge.classes[0].shape(0).get("ul").is_some_and(|ul| *ul != Value::Curve(Default::default())));
    // Without `allocate` there is no edge.
    assert!(plan.interface("lan0").unwrap().edge(&registry, &[], 1).unwrap().is_none());
}

/// What only shows when the edge is built: its words.
#[test]
fn what_cannot_be_built_is_said() {
    let registry = Registry::builtin();
    let said = |text: &str| {
        let plan = read("altq.conf", text, &registry).into_result().unwrap();
        let view = plan.interface("wan0").unwrap();
        let built = view.build(&registry, Link::new(Rate::from_mbps(10), 0, 1_514)).unwrap();
        view.edge(&registry, &built.tree.leaves, 1).unwrap_err().message
    };
    assert_eq!(said(&TEXT.replace(" [ul 0 0 1M]", "")), "class `rt` has no rate that can be set");
    assert_eq!(
        said(&TEXT.replace("class rt accept", "class be accept")),
        "class `be` of contract 18 has no allocation"
    );
}

/// Classes go on by their names, wherever they stand; so does the class that an edge makes for itself.
#[test]
fn classes_go_on_by_name() {
    let registry = Registry::builtin();
    let edge = |text: &str| {
        let plan = read("altq.conf", text, &registry).into_result().unwrap();
        let view = plan.interface("wan0").unwrap();
        let built = view.build(&registry, Link::new(Rate::from_mbps(10), 0, 1_514)).unwrap();
        view.edge(&registry, &built.tree.leaves, 1).unwrap().unwrap()
    };
    let one = edge(TEXT);
    let more = "class hfsc wan0 new root [ls 0 0 1M] [ul 0 0 1M]\nallocate wan0 new from 64K to 1M\nallocate wan0 rt";
    let two = edge(&TEXT.replace("allocate wan0 rt", more).replace("[ls 0 0 2M]", "[ls 0 0 1M]"));
    assert_eq!(
        (one.kept(&one), two.kept(&one), one.kept(&two)),
        (vec![Some(0)], vec![None, Some(0)], vec![Some(1)])
    );
    let plain = TEXT.split("allocate").next().unwrap().replace("class rt accept", "accept");
    let own = edge(&plain.replace("broker core local 8M\n", ""));
    assert_eq!((own.kept(&own), own.kept(&one), one.kept(&own)), (vec![Some(0)], vec![None], vec![None]));
}

/// A share and a mark for what the statistical rule finds say nothing while that is off.
#[test]
fn a_share_for_guesses_needs_the_rule() {
    let registry = Registry::builtin();
    for (rule, warns) in [("statistical", false), ("stun", true), ("", true)] {
        let recognise = if rule.is_empty() { String::new() } else { format!("recognise lan0 {rule}\n") };
        let text =
            format!("interface lan0\n{recognise}sla lan0 17 10.0.0.0/8 bw 1M guessed 20 guessed-dscp VA\n");
        let plan = read("altq.conf", &text, &registry).into_result().unwrap();
        let said: Vec<String> = judge(&plan, &registry).iter().map(ToString::to_string).collect();
        for what in ["`guessed` is a share", "`guessed-dscp` is a mark"] {
            let what = format!("{what} for flows that the statistical rule found");
            assert_eq!(said.iter().any(|one| one.contains(&what)), warns, "{rule}");
        }
    }
}
