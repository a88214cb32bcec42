//! `weir bench`: disciplines, the simulator, the live bridge, how exact it is.

use super::tables::{say, table};
use super::{Done, Failure, print_json};
use crate::bench::{self, Effort};
use crate::experiment::PARTS;
use serde_json::json;
use std::process::Command;
use weir_core::sched::Registry;
use weir_lab::bench::{Figure, Rows};

/// Runs benchmarks by name; `sim`, its scenarios, `live` and `accuracy` are the other kinds.
pub fn run(registry: &Registry, names: &[String], rounds: Option<u16>, json: bool) -> Done {
    match names.first().map(String::as_str) {
        Some("accuracy") => super::accuracy::run(&names[1..], rounds.map(usize::from), json),
        Some("live") => live(&names[1..], rounds.map_or(ROUNDS, usize::from), json),
        _ if rounds.is_some() => {
            Err(Failure::usage("only `weir bench accuracy` and `weir bench live` have `--rounds`"))
        }
        Some("sim") => simulator(&names[1..], json),
        Some(name) if name.starts_with("sim-") => simulator(names, json),
        _ => bench::run(registry, names, json).map_err(|code| Failure { code, message: String::new() }),
    }
}

/// One benchmark for an experiment: (what, ns).
pub fn nanoseconds(registry: &Registry, name: &str) -> Result<Vec<(String, f64)>, String> {
    let bench = bench::measure(registry, name, Effort::FULL).map_err(|why| why.reason)?;
    let parts = PARTS.into_iter().zip([Some(bench.total_ns), bench.enqueue_ns, bench.dequeue_ns]);
    Ok(parts.filter_map(|(part, ns)| Some((format!("{name}{part}"), ns?))).collect())
}

/// The variable by which a child is told to time one scenario and print its row.
const CHILD: &str = "WEIR_BENCH_SIM";

/// Each scenario in a process of its own, so that its peak memory is its own.
fn simulator(names: &[String], json: bool) -> Done {
    if let Ok(name) = std::env::var(CHILD) {
        return time_simulation(&name);
    }
    let all: Vec<String> = weir_sim::bench::NAMES.iter().map(ToString::to_string).collect();
    let wanted = if names.is_empty() { &all } else { names };
    let program = std::env::current_exe().map_err(Failure::failed)?;
    let mut benches = Vec::new();
    for name in wanted {
        if !all.contains(name) {
            let mend = weir_text::suggest_or_list(name, weir_sim::bench::NAMES.as_slice());
            return Err(Failure::usage(format!("no benchmark `{name}`; {mend}")));
        }
        eprintln!("{name} ...");
        let output = Command::new(&program)
            .args(["bench", "sim"])
            .env(CHILD, name)
            .output()
            .map_err(Failure::failed)?;
        if !output.status.success() {
            return Err(Failure::failed(String::from_utf8_lossy(&output.stderr)));
        }
        benches.push(serde_json::from_slice::<serde_json::Value>(&output.stdout).map_err(Failure::failed)?);
    }
    if json {
        return print_json(&json!({ "benches": benches }));
    }
    let mut rows = table(&["NAME", ">DELIVERIES", ">CPU", ">DELIVERIES/CPU s", ">PEAK"]);
    for b in &benches {
        let number = |key: &str| b[key].as_f64().unwrap_or(0.0);
        rows.add(vec![
            b["name"].as_str().unwrap_or_default().to_string(),
            format!("{:.0}", number("deliveries")),
            format!("{:.2} s", number("cpu_seconds")),
            format!("{:.0}", number("deliveries_per_cpu_second")),
            format!("{:.1} MB", number("peak_rss_bytes") / 1e6),
        ]);
    }
    rows.print();
    Ok(())
}

/// In the child: the median of the runs' CPU times.
fn time_simulation(name: &str) -> Done {
    let scenario = weir_sim::bench::scenario(name).ok_or_else(|| Failure::usage(name))?;
    let (mut seconds, mut deliveries) = (Vec::new(), 0);
    for _ in 0..5 {
        let start = weir_sys::thread_cpu();
        let report = weir_sim::run(&scenario, weir_sim::Options::default()).map_err(Failure::failed)?;
        let spent = weir_sys::thread_cpu().saturating_sub(start);
        seconds.push(spent.as_nanos() as f64 / 1e9);
        deliveries = weir_sim::bench::deliveries(&report);
    }
    seconds.sort_by(f64::total_cmp);
    let median = seconds[seconds.len() / 2];
    print_json(&json!({"name": name, "deliveries": deliveries, "cpu_seconds": median,
        "deliveries_per_cpu_second": deliveries as f64 / median, "peak_rss_bytes": peak_rss_bytes()}))
}

/// The most memory that this process has had, as the kernel counts it.
fn peak_rss_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    let kb = line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok());
    kb.unwrap_or(0) * 1024
}

/// Rounds of the live bench, unless said otherwise.
const ROUNDS: usize = 10;

/// The live bridge beside the kernel's own forwarding: these rows, or all.
fn live(names: &[String], rounds: usize, json: bool) -> Done {
    let rows = Rows::of(names).map_err(Failure::usage)?;
    let program = weir_lab::Program::this().map_err(Failure::failed)?;
    let report = weir_lab::bench::bench(&rows, rounds, &program, &mut |what| say(what))
        .map_err(super::run::lab_failure)?;
    if json {
        return print_json(&report);
    }
    let show = |figure: Figure, unit: f64, digits: usize| {
        let spread = 50.0 * (figure.high - figure.low) / figure.median.abs().max(1e-9);
        format!("{:.digits$} ±{spread:.0}%", figure.median / unit)
    };
    let first = ["IN THE BOX", ">60 B|kpps", ">1514 B|kpps", ">TCP|Gbit/s"];
    let others = [">PING|µs", ">LEAST|µs", ">CPU|µs/packet", ">AT HALF|µs/packet"];
    let mut rows = table(&[first, others].concat());
    for row in &report.rows {
        rows.add(vec![
            row.mode.name().to_string(),
            show(row.pps_60, 1e3, 0),
            show(row.pps_1514, 1e3, 0),
            show(row.tcp_bps, 1e9, 1),
            show(row.ping_mean_us, 1.0, 0),
            show(row.ping_least_us, 1.0, 0),
            show(row.cpu_us, 1.0, 1),
            show(row.cpu_half_us, 1.0, 1),
        ]);
    }
    rows.print();
    out!("");
    let mut rows = table(&["BOTH WAYS, CBQ", ">60 B|kpps", ">1514 B|kpps"]);
    for row in &report.both_ways {
        rows.add(vec![
            format!("workers {}", row.workers),
            show(row.pps_60, 1e3, 0),
            show(row.pps_1514, 1e3, 0),
        ]);
    }
    if !report.both_ways.is_empty() {
        rows.print();
        out!("");
    }
    let mut rows = table(&["", "FIGURE", "ASKED", ">MEASURED"]);
    for target in &report.targets {
        let Figure { median, low, high } = target.measured;
        rows.add(vec![
            target.verdict.name().to_string(),
            target.what.clone(),
            target.asked.clone(),
            format!("{median:.2} ({low:.2} to {high:.2})"),
        ]);
    }
    rows.print();
    Ok(())
}
