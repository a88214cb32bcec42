//! The scenarios that `weir bench sim` times.
//!
//! A dumbbell: n senders, a router, a bottleneck, a router, n receivers; the bottleneck is a plain FIFO or a
//! managed port. A *delivery* is one packet, data or acknowledgement, over one link: each crosses three.

use crate::{Error, Options};
use weir_report::Report;
use weir_scenario::Scenario;

/// Names of the benchmarks: a dumbbell without managed ports of so many flows, then a hundred flows through
/// a bottleneck that a discipline manages.
pub const NAMES: [&str; 7] = [
    "sim-dumbbell-10",
    "sim-dumbbell-100",
    "sim-dumbbell-10000",
    "sim-fifo-100",
    "sim-fq_codel-100",
    "sim-cbq-20-100",
    "sim-hfsc-20-100",
];

/// Classes of the managed ports; the flows of pair n go to port `PORT` + n mod `CLASSES`.
const CLASSES: u32 = 20;
const PORT: u32 = 5001;

/// The scenario of a benchmark; `None` for a name that is not in `NAMES`.
pub fn scenario(name: &str) -> Option<Scenario> {
    let hundred = dumbbell(100, 1, "1G", "1G", 5000, 5);
    let text = match name {
        "sim-dumbbell-10" => dumbbell(10, 1, "10M", "100M", 100, 300),
        "sim-dumbbell-100" => hundred,
        "sim-dumbbell-10000" => dumbbell(1000, 10, "1G", "1G", 5000, 5),
        "sim-fifo-100" => hundred + &managed("fifoq qlimit 5000", None),
        "sim-fq_codel-100" => hundred + &managed("fqcodel", None),
        "sim-cbq-20-100" => {
            let root = "cbq\nclass cbq em0 root NULL pbandwidth 100";
            hundred + &managed(root, Some("class cbq em0 cN root borrow pbandwidth 5 qlimit 250"))
        }
        "sim-hfsc-20-100" => {
            hundred + &managed("hfsc", Some("class hfsc em0 cN root [sc 40M 0 40M] qlimit 250"))
        }
        _ => return None,
    };
    Scenario::from_toml(name, &text).ok().map(|scenario| Scenario { name: name.into(), ..scenario })
}

/// A `[[port]]` at the bottleneck: what stands behind its bandwidth, and the line of class number N, if it has
/// classes.
fn managed(discipline: &str, class: Option<&str>) -> String {
    let mut conf = format!("interface em0 bandwidth 1G {discipline}\n");
    for n in (0..CLASSES).filter(|_| class.is_some()) {
        let line = class.unwrap_or_default().replace("cN", &format!("c{n}"));
        let default = if n == 0 { " default" } else { "" };
        conf += &format!("{line}{default}\nfilter em0 c{n} 0 {} 0 0 6\n", PORT + n);
    }
    format!("[[port]]\nat = \"left\"\nto = \"right\"\ntext = '''\n{conf}'''\n")
}

/// `pairs` pairs of hosts with `count` TCP flows each, a round-trip time of 60 ms, and a bottleneck with a
/// drop-tail queue, as a scenario in TOML.
pub fn dumbbell(pairs: u32, count: u32, rate: &str, access: &str, queue: u32, seconds: u32) -> String {
    let mut text = format!("duration = \"{seconds}s\"\n");
    for n in 1..=pairs {
        for host in ["s", "d"] {
            text += &format!("[[host]]\nname = \"{host}{n}\"\n");
        }
    }
    text += &format!(
        "[[link]]\na = \"left\"\nb = \"right\"\nrate = \"{rate}\"\ndelay = \"20ms\"\nqueue = {queue}\n"
    );
    for n in 1..=pairs {
        for (host, router) in [("s", "left"), ("d", "right")] {
            text += &format!(
                "[[link]]\na = \"{host}{n}\"\nb = \"{router}\"\nrate = \"{access}\"\ndelay = \"5ms\"\n"
            );
        }
        let port = PORT + n % CLASSES;
        text += &format!("[[flow]]\nfrom = \"s{n}\"\nto = \"d{n}\"\ncount = {count}\nport = {port}\n");
    }
    text
}

/// Deliveries of a run.
pub fn deliveries(report: &Report) -> u64 {
    report.links.iter().map(|link| link.carried.packets).sum()
}

/// What a benchmark took.
#[derive(Clone, PartialEq, Debug)]
pub struct Measured {
    /// Packets over links.
    pub deliveries: u64,
    /// Processor time of this thread; time on the wall where the system does not tell.
    pub cpu_seconds: f64,
    /// Most memory that the process held while it ran; 0 where the system does not tell.
    pub peak_rss_bytes: u64,
    /// The run's report.
    pub report: Report,
}

/// Runs a benchmark of `NAMES`.
///
/// # Errors
/// An unknown name, or what the run refuses.
pub fn measure(name: &str) -> Result<Measured, Error> {
    let Some(scenario) = scenario(name) else {
        return Err(Error::Input(format!(
            "no simulation is called `{name}`; there are {}",
            NAMES.join(", ")
        )));
    };
    // Forgets the peak of what ran before; where that is not allowed, the peak is the process's.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    let (wall, cpu) = (std::time::Instant::now(), thread_cpu_ns());
    let report = crate::run(&scenario, Options::default())?;
    let cpu_seconds = match (cpu, thread_cpu_ns()) {
        (Some(before), Some(after)) => (after - before) as f64 / 1e9,
        _ => wall.elapsed().as_secs_f64(),
    };
    Ok(Measured { deliveries: deliveries(&report), cpu_seconds, peak_rss_bytes: peak_rss_bytes(), report })
}

/// Time that this thread has run, in nanoseconds (Linux's scheduler statistics).
fn thread_cpu_ns() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

fn peak_rss_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|l| l.split_whitespace().next()).and_then(|n| n.parse::<u64>().ok());
    kib.map_or(0, |kib| kib * 1024)
}
