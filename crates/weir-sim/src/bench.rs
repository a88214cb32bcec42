//! The scenarios that `weir bench sim` times.
//!
//! A dumbbell: n senders, a router, a bottleneck, a router, n receivers. A *delivery* is one
//! packet, data or acknowledgement, over one link: each crosses three.

use weir_scenario::{Report, Scenario};

/// Names of the benchmarks.
pub const NAMES: [&str; 2] = ["sim-dumbbell-10", "sim-dumbbell-100"];

/// The scenario of a benchmark; `None` for a name that is not in `NAMES`.
pub fn scenario(name: &str) -> Option<Scenario> {
    let text = match name {
        "sim-dumbbell-10" => dumbbell(10, "10M", "100M", 100, 300),
        "sim-dumbbell-100" => dumbbell(100, "1G", "1G", 5000, 5),
        _ => return None,
    };
    Scenario::from_toml(name, &text).ok().map(|scenario| Scenario { name: name.into(), ..scenario })
}

/// `flows` TCP flows with a round-trip time of 60 ms over a bottleneck with a drop-tail queue,
/// as a scenario in TOML.
pub fn dumbbell(flows: u32, rate: &str, access: &str, queue: u32, seconds: u32) -> String {
    let mut text = format!("duration = \"{seconds}s\"\n");
    for n in 1..=flows {
        for host in ["s", "d"] {
            text += &format!("[[host]]\nname = \"{host}{n}\"\n");
        }
    }
    text += &format!(
        "[[link]]\na = \"left\"\nb = \"right\"\nrate = \"{rate}\"\ndelay = \"20ms\"\nqueue = {queue}\n"
    );
    for n in 1..=flows {
        for (host, router) in [("s", "left"), ("d", "right")] {
            text += &format!(
                "[[link]]\na = \"{host}{n}\"\nb = \"{router}\"\nrate = \"{access}\"\ndelay = \"5ms\"\n"
            );
        }
        text += &format!("[[flow]]\nfrom = \"s{n}\"\nto = \"d{n}\"\n");
    }
    text
}

/// Deliveries of a run.
pub fn deliveries(report: &Report) -> u64 {
    report.links.iter().map(|link| link.carried.packets).sum()
}
