//! A report such as a run of examples/two-agencies.toml makes, for tests: packets at the rates that
//! formal link sharing gives, with seeded jitter, delays and drops.

use crate::report::{FlowReport, LinkReport, Meta, PortReport, VERSION};
use crate::{Expect, Keep, Recorder, Report, RunKind};
use serde::Deserialize;
use weir_text::Time;

/// What a test needs of a scenario's text.
#[derive(Deserialize)]
struct Asked {
    #[serde(default)]
    expect: Vec<Expect>,
    #[serde(default)]
    flow: Vec<AskedFlow>,
}

#[derive(Deserialize)]
struct AskedFlow {
    name: String,
    #[serde(default)]
    idle: Vec<(Time, Time)>,
}

fn demo() -> Asked {
    toml::from_str(include_str!("../../../examples/two-agencies.toml")).unwrap()
}

/// The expectations of the demo.
pub(crate) fn expects() -> Vec<Expect> {
    demo().expect
}

/// The expectations of a text.
pub(crate) fn read_expects(text: &str) -> Vec<Expect> {
    toml::from_str::<Asked>(text).unwrap().expect
}

/// A report in which only what was asked stands: flows as (name, asserted class, time to send), links
/// as (name, rate, overhead).
pub(crate) fn asked(
    (kind, duration_ns, cell_ns, probe_ns): (RunKind, u64, u64, u64),
    flows: &[(&str, Option<&str>, u64)],
    links: &[(&str, u64, u64)],
) -> Report {
    let flow = |(name, class, active_ns): &(&str, Option<&str>, u64)| FlowReport {
        name: name.to_string(),
        class: class.map(str::to_string),
        active_ns: *active_ns,
        ..FlowReport::default()
    };
    let link = |(name, rate_bps, overhead_bytes): &(&str, u64, u64)| LinkReport {
        name: name.to_string(),
        rate_bps: *rate_bps,
        overhead_bytes: *overhead_bytes,
        ..LinkReport::default()
    };
    let meta = Meta {
        version: VERSION,
        kind,
        scenario: "Two agencies share 20 Mbit/s".into(),
        seed: 1,
        inputs: "0000000000000001".into(),
        events: None,
        duration_ns,
        cell_ns,
        probe_ns,
        window_ns: None,
        notes: Vec::new(),
    };
    let (flows, links) = (flows.iter().map(flow).collect(), links.iter().map(link).collect());
    Report { meta, ports: Vec::new(), links, flows, checks: Vec::new() }
}

/// Names of classes as a port takes them.
pub(crate) fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| name.to_string()).collect()
}

/// Classes and their shares in parts of 1000: agency X 580, agency Y 380, the rest 40.
const CLASSES: [(&str, u64, Option<usize>); 5] = [
    ("def", 40, None),
    ("c0", 190, Some(2)),
    ("c1", 390, Some(1)),
    ("c3", 290, Some(4)),
    ("c4", 90, Some(3)),
];

/// The report of a run. With `swapped`, each class of an agency gets the share of its sibling.
pub(crate) fn report(kind: RunKind, seed: u64, swapped: bool) -> Report {
    const END: u64 = 45_000_000_000;
    let demo = demo();
    let idle = |flow: &AskedFlow| flow.idle.iter().map(|(a, b)| b.as_nanos() - a.as_nanos()).sum::<u64>();
    let flows: Vec<(&str, Option<&str>, u64)> = demo
        .flow
        .iter()
        .map(|flow| (flow.name.as_str(), Some(flow.name.as_str()), END - idle(flow)))
        .collect();
    let access = ["x>box", "box>x", "y>box", "box>y", "z>box", "box>z"].map(|name| (name, 1_000_000_000, 24));
    let shared = ["box>sink", "sink>box"].map(|name| (name, 20_000_000, 24));
    let links = [access.as_slice(), shared.as_slice()].concat();
    let asked = asked((kind, END, 200_000_000, 400_000_000), &flows, &links);
    let mut recorder = Recorder::new(asked, Keep::default());
    let classes: Vec<String> = CLASSES.iter().map(|(name, ..)| name.to_string()).collect();
    let port = recorder.port(PortReport::new("box>sink".into(), "cbq", 20_000_000, 24, &classes));
    let direction = Recorder::direction(3, true);
    let mut state = seed;
    let mut random = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let active = |class: usize, at: u64| {
        let flow = demo.flow.iter().find(|flow| flow.name == CLASSES[class].0).unwrap();
        !flow.idle.iter().any(|(from, to)| (from.as_nanos()..to.as_nanos()).contains(&at))
    };
    let packet_ns = 1538 * 8 * 1000 / 20; // at 20 Mbit/s
    let mut due = [0_u64; 5];
    for n in 0..END / packet_ns {
        let at = n * packet_ns;
        let (mut best, mut most) = (0, 0);
        for class in 0..CLASSES.len() {
            if !active(class, at) {
                continue;
            }
            let own = |class: usize| {
                CLASSES[match (swapped, CLASSES[class].2) {
                    (true, Some(sibling)) => sibling,
                    _ => class,
                }]
                .1
            };
            let idle_sibling = CLASSES[class].2.filter(|sibling| !active(*sibling, at));
            due[class] += own(class) + idle_sibling.map_or(0, own);
            let eager = due[class] + random(4000);
            if eager > most {
                (best, most) = (class, eager);
            }
        }
        due[best] = due[best].saturating_sub(1000);
        let scale = random(4);
        let delay = (5_000_000 + random(1 << (21 + scale))) * (1 + best as u64 % 3);
        recorder.offered(port, best, 1514, at);
        if random(100) == 0 {
            recorder.offered(port, best, 1514, at);
            recorder.dropped(port, best, 1514, "tail", at);
        }
        recorder.sent(port, best, 1514, delay, at);
        recorder.carried(direction, 1514, at);
        recorder.delivered(demo.flow.iter().position(|flow| flow.name == CLASSES[best].0).unwrap(), 1448, at);
    }
    recorder.finish()
}
