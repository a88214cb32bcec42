//! A report such as a run of examples/two-agencies.toml makes, for tests: packets at the rates that
//! formal link sharing gives, with seeded jitter, delays and drops.

use crate::recorder::Recorder;
use crate::report::Report;
use crate::scenario::{RunKind, Scenario};

/// The scenario of the demo.
pub(crate) fn scenario() -> Scenario {
    Scenario::from_toml("two-agencies.toml", include_str!("../../../examples/two-agencies.toml")).unwrap()
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
    let scenario = scenario();
    let mut recorder = Recorder::new(&scenario, kind, 1);
    let names: Vec<String> = CLASSES.iter().map(|(name, ..)| name.to_string()).collect();
    let port = recorder.port(&scenario, 0, "cbq", &names);
    let direction = Recorder::direction(3, true);
    let mut state = seed;
    let mut random = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let active = |class: usize, at: u64| {
        let flow = scenario.flows.iter().find(|flow| flow.name == CLASSES[class].0).unwrap();
        flow.active(scenario.duration).iter().any(|(from, to)| (from.as_nanos()..to.as_nanos()).contains(&at))
    };
    let packet_ns = 1538 * 8 * 1000 / 20; // at 20 Mbit/s
    let mut due = [0_u64; 5];
    for n in 0..45_000_000_000 / packet_ns {
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
        recorder.delivered(
            scenario.flows.iter().position(|flow| flow.name == CLASSES[best].0).unwrap(),
            1448,
            at,
        );
    }
    recorder.finish()
}
