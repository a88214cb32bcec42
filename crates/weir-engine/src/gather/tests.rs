//! What comes in slices is what comes at once, and no slice is long.

use super::*;
use crate::{Delay, Direction};
use std::fmt::Write;
use weir_core::packet::{FrameRef, Key};
use weir_core::port::{PortConfig, WireConfig};
use weir_core::sched::Registry;
use weir_core::units::Instant;
use weir_io::PoolSize;
use weir_io::memory::Memory;

/// A bridge whose way forth a file manages, after so many packets of as many flows.
fn bridge(text: &str, flows: u32) -> Bridge<Memory, Memory> {
    let registry = Registry::builtin();
    let plan = weir_conf::read("altq.conf", text, &registry).into_result().unwrap();
    let view = plan.interface("em0").unwrap();
    let link = view.link(1514);
    let config = PortConfig { capacity: flows.max(1), ..PortConfig::new(link, WireConfig::Open) };
    let mut port = Port::new(config, view.build(&registry, link).unwrap().port_plan(link));
    for flow in 0..flows {
        let key = Key { src: u128::from(flow), dst: 7, src_port: flow as u16, ..Key::default() };
        port.receive(Instant::ZERO, 100, FrameRef(flow), &key, &mut |_| {});
    }
    let size = PoolSize { frames: 1, tails: 0 };
    let forth = Direction::new(0, Some(port), size, Delay::default());
    Bridge::new(Memory::new(), Memory::new(), [forth, Direction::new(1, None, size, Delay::default())])
}

fn classes(text: &mut String, discipline: &str, count: usize, rest: &str) {
    for n in 0..count {
        writeln!(text, "class {discipline} em0 c{n} {rest}").unwrap();
    }
}

// Claim L16.
#[test]
fn slices_are_short_and_miss_nothing() {
    let mut cbq = String::from("interface em0 bandwidth 100M cbq\nclass cbq em0 root NULL pbandwidth 100\n");
    cbq += "class cbq em0 d root pbandwidth 5 default\n";
    classes(&mut cbq, "cbq", 998, "root borrow exactbandwidth 10K");
    let mut hfsc =
        String::from("interface em0 bandwidth 100M hfsc\nclass hfsc em0 d root pshare 5 default\n");
    classes(&mut hfsc, "hfsc", 700, "root [ls 10K 0 10K] wfq nqueues 3");
    let mut conditioned = String::from("interface em0 bandwidth 100M fifoq\n");
    for n in 0..400 {
        writeln!(conditioned, "conditioner em0 k{n} <tbmeter 1M 3000 <pass><drop>>").unwrap();
        writeln!(conditioned, "filter em0 k{n} 0 {} 0 0 17", n + 1).unwrap();
    }
    let wfq = "interface em0 bandwidth 100M wfq hash full nqueues 5000\n".to_string();
    // How many classes each shows, of how many places, and how many elements of conditioners.
    for (text, flows, shown, elements) in
        [(cbq, 20, 1_000, 0), (hfsc, 20, 701, 0), (conditioned, 1, 1, 800), (wfq, 3_000, 2_000, 0)]
    {
        let mut bridge = bridge(&text, flows);
        let mut gather = Gather::new();
        let (mut longest, mut slices, mut more) = (0, 0, true);
        while more {
            let mut said = 0;
            more = gather.slice(&bridge, &mut |part| {
                said += match part {
                    Part::Classes(_, shown) | Part::Conditioners(_, shown) => shown.classes.ends.len(),
                    Part::Leaves(_, accounts) => accounts.ends.len(),
                    _ => 0,
                };
            });
            (longest, slices) = (longest.max(said), slices + 1);
        }
        assert!(longest <= SLICE, "{longest} at once");
        let port = egresses(&mut bridge, &["l".into(), "r".into()])[0].port.clone().unwrap();
        let mut names: Vec<&str> = port.classes.iter().map(|class| &*class.name).collect();
        assert!(port.classes.len() >= shown && slices * SLICE >= shown, "{} {slices}", port.classes.len());
        assert!(port.classes.len() < 3 || slices > 2);
        assert_eq!(port.conditioners.len(), elements);
        assert_eq!(port.total.offered_packets, u64::from(flows), "all accounts");
        // In one piece it is the same.
        let mut window = Window::new(0..usize::MAX);
        bridge.directions()[0].port().unwrap().visit_stats(&mut window);
        let whole: Vec<ClassState> = window.shown.states().collect();
        for (class, whole) in port.classes.iter().zip(&whole) {
            assert_eq!((&class.name, &class.values), (&whole.name, &whole.values));
        }
        names.sort_unstable();
        names.dedup();
        assert!(text.contains("nqueues 3") || names.len() == port.classes.len(), "a class twice");
    }
}

/// What several workers say of their parts of a direction is one egress: sums, and their classes side by side.
#[test]
fn parts_of_a_direction_are_summed() {
    let text = "interface em0 bandwidth 100M priq\nclass priq em0 NAME NULL priority 1 default\n";
    let said = |name: &str, flows| {
        let mut bridge = bridge(&text.replace("NAME", name), flows);
        BridgeState {
            cpu_ns: 7,
            egresses: egresses(&mut bridge, &["l".into(), "em0".into()]),
            ..BridgeState::default()
        }
    };
    let whole = of_workers(vec![said("a", 3), said("b", 4), said("c", 5)]);
    assert_eq!((whole.workers.len(), whole.cpu_ns, whole.egresses.len()), (3, 21, 2));
    let port = whole.egresses[0].port.as_ref().unwrap();
    assert_eq!(port.total.offered_packets, 12);
    let classes: Vec<(&str, u64)> =
        port.classes.iter().map(|c| (&*c.name, c.counts.as_ref().unwrap().offered_packets)).collect();
    assert_eq!(classes, [("a", 3), ("b", 4), ("c", 5)]);
    // The first has no port any more.
    let mut plain = said("a", 3);
    plain.egresses[0].port = None;
    let whole = of_workers(vec![plain.clone(), said("b", 4), plain, said("c", 5)]);
    let port = whole.egresses[0].port.as_ref().unwrap();
    assert_eq!((port.total.offered_packets, port.classes.len()), (9, 2));
    // Two workers run a direction each.
    let mut other = said("b", 4);
    other.egresses.remove(0);
    let mut one = said("a", 3);
    one.egresses.pop();
    assert_eq!(of_workers(vec![one, other]).egresses.len(), 2);
}
