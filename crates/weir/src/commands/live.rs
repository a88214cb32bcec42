//! `weir up` and `weir stats`: a live box, in its simplest form.

use super::fail_open::fails;
use super::ports::Ports;
use super::tables::{print_wrapped, table};
use super::{Done, Failure, cage};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use weir_core::sched::Registry;
use weir_engine::control::{BridgeState, ClassState, Egress, Snapshot};
use weir_engine::fail_open::FailState;
use weir_engine::server::{self, Server};
use weir_engine::up::{Pair, up as bring_up};
use weir_engine::worker::Pace;
use weir_report::report::ConditionerReport;
use weir_sys::Priority;

/// Where `weir up` serves statistics unless told otherwise.
pub const SOCKET: &str = "/run/weir.sock";

/// How `weir up` runs its bridges.
#[derive(clap::Args)]
pub struct Asked {
    /// Processors that the workers stay on, one for each bridge in turn, as in `2,3`
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    cpus: Vec<usize>,
    /// What each worker asks the system for: `fifo` (SCHED_FIFO), `nice` (-20) or `none`
    #[arg(long, value_name = "fifo|nice|none", default_value = "fifo")]
    priority: Priority,
    /// Bridge interfaces although another weir or the kernel takes their frames, too
    #[arg(long)]
    force: bool,
    /// Keep every right, file and system call; a worker still gives up its rights
    #[arg(long)]
    unconfined: bool,
}

/// `weir up`: brings up the bridges of a file, each egress managed as the file says.
pub fn up(registry: &Registry, conf: &Path, socket: &Path, asked: &Asked) -> Done {
    let plan = super::conf::read(conf, registry)?;
    let pairs = bridges(&plan)?;
    cage::permitted()?;
    usable(&asked.cpus)?;
    let mut cpus = asked.cpus.iter().copied().cycle();
    let mut bridges = pairs.iter().map(|&pair| Ports::new(pair)).collect::<Result<Vec<_>, _>>()?;
    let pair = |ports: &Ports<'_>| -> Result<Pair, Failure> {
        let [left, right] = ports.sides(&plan, registry)?;
        let pair = Pair::new(left, right);
        let pace = Pace { cpu: cpus.next(), priority: asked.priority, ..Pace::default() };
        Ok(Pair { pace, fails_closed: plan.fails_closed(&ports.names), force: asked.force, ..pair })
    };
    let setup = bridges.iter().map(pair).collect::<Result<_, _>>()?;
    let server = Server::bind(socket).map_err(Failure::failed)?;
    // Before the box is up, so that a signal never finds it without an end in order.
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, stop.clone()).map_err(Failure::failed)?;
    }
    if !asked.unconfined {
        cage::enter(&[conf], &[socket])?;
    }
    let box_ = bring_up(setup).map_err(|e| match e.kind() {
        std::io::ErrorKind::PermissionDenied => Failure::impossible(e),
        std::io::ErrorKind::ResourceBusy => {
            Failure::impossible(format!("{e}\n`weir up --force` goes on all the same"))
        }
        std::io::ErrorKind::NotFound => Failure::usage(e),
        _ => Failure::failed(e),
    })?;
    for BridgeState { interfaces: [left, right], priority, without, .. } in box_.snapshot().bridges {
        eprintln!("weir: bridging {left} and {right}, {priority}; {}", fails(&without));
    }
    eprintln!("weir: `weir stats --socket {}` shows counters; end with ^C", socket.display());
    while !stop.load(Ordering::Relaxed) {
        server.serve(Duration::from_millis(100), &mut |request| {
            super::fail_open::obey(request, &box_);
            serde_json::to_string(&box_.snapshot()).unwrap_or_else(|e| e.to_string())
        });
        for (index, bridge) in bridges.iter_mut().enumerate() {
            if let Some(control) = box_.control(index) {
                bridge.follow(&plan, registry, &control);
            }
        }
        if let Some([left, right]) = box_.has_ended() {
            return Err(Failure::failed(format!(
                "the worker between {left} and {right} has ended by itself"
            )));
        }
    }
    print_snapshot(&box_.stop());
    Ok(())
}

/// The pairs of interfaces that a plan bridges: at least one.
pub fn bridges(plan: &weir_conf::Plan) -> Result<Vec<[&str; 2]>, Failure> {
    let pairs = plan.bridges().map_err(|refused| {
        let all: Vec<String> = refused.iter().map(ToString::to_string).collect();
        Failure::usage(all.join("\n"))
    })?;
    if pairs.is_empty() {
        return Err(Failure::usage(
            "no interface says `attach bridge PEER`: write it behind the interface's discipline, PEER being the other port of the bridge",
        ));
    }
    Ok(pairs)
}

/// Tries the processors that workers are to stay on.
fn usable(cpus: &[usize]) -> Done {
    let tried = cpus.iter().map(|&cpu| std::thread::spawn(move || weir_sys::pin_to(cpu)).join());
    match cpus.iter().zip(tried).find(|(_, tried)| !matches!(tried, Ok(Ok(())))) {
        None => Ok(()),
        Some((cpu, _)) => Err(Failure::usage(format!(
            "--cpus: no worker can stay on processor {cpu}: name processors as `nproc --all` counts them, from 0"
        ))),
    }
}

/// `weir stats`.
pub fn stats(socket: &Path, json: bool) -> Done {
    let text = server::ask(socket, "", Duration::from_secs(5))
        .map_err(|e| Failure::failed(format!("{e}; is it this --socket?")))?;
    if json {
        out!("{}", text.trim_end());
        return Ok(());
    }
    let snapshot: Snapshot = serde_json::from_str(&text).map_err(Failure::failed)?;
    print_snapshot(&snapshot);
    Ok(())
}

fn print_snapshot(snapshot: &Snapshot) {
    for (index, bridge) in snapshot.bridges.iter().enumerate() {
        if index > 0 {
            out!("");
        }
        print_bridge(bridge);
    }
}

fn print_bridge(bridge: &BridgeState) {
    let [left, right] = &bridge.interfaces;
    if let Some(why) = &bridge.silent {
        out!("bridge {left} {right}: no answer: {why}");
        return;
    }
    let seconds = bridge.uptime_ns as f64 / 1e9;
    let cpu = 100.0 * bridge.cpu_ns as f64 / bridge.uptime_ns.max(1) as f64;
    out!(
        "bridge {left} {right}: up {seconds:.1} s, worker at {cpu:.0} % of a processor, {}",
        bridge.priority
    );
    print_wrapped(&fails(&bridge.without));
    if bridge.without.bypassed {
        out!("BYPASSED: the kernel carries the traffic, without any discipline");
    }
    let FailState { lapses, stale_packets, .. } = bridge.without;
    if lapses > 0 {
        out!("the worker was silent {lapses} times, {stale_packets} packets dropped as too old");
    }
    if let Some(why) = &bridge.failed {
        out!("BYPASSED: the bridge forwards plainly: {why}");
    }
    for egress in &bridge.egresses {
        print_egress(egress);
    }
}

fn print_egress(egress: &Egress) {
    out!("");
    print_wrapped(&format!(
        "egress {}: {} packets out, {} lost before the queue (overrun {}, no buffer {}), {} refused by the device{}",
        egress.interface,
        egress.sent_packets,
        egress.overrun_packets + egress.nobuf_packets,
        egress.overrun_packets,
        egress.nobuf_packets,
        egress.refused_packets,
        if egress.refused.is_empty() { String::new() } else { format!(" ({})", reasons(&egress.refused)) }
    ));
    if let Some(link) = &egress.link {
        let changes = link.changes.iter().map(|(what, count)| format!(", {what} {count}"));
        out!("link {}, MTU {}{}", link.state, link.mtu, changes.collect::<String>());
        for taker in &link.taken {
            print_wrapped(&format!("TWICE: {taker}"));
        }
    }
    if egress.device_queue_most_bytes > 0 {
        let (now, most) = (egress.device_queue_bytes, egress.device_queue_most_bytes);
        out!("in the device {now} bytes, {most} at most");
    }
    let Some(port) = &egress.port else {
        out!("not managed: forwarded plainly");
        return;
    };
    out!("seed {}", port.seed);
    if let Some(why) = &port.broken {
        out!("BYPASSED: runs as one FIFO: {why}");
    }
    let mut rows = table(&["CLASS", ">OFFERED", ">SENT", ">BYTES", ">DROPPED", ">WAITING", "WHY DROPPED"]);
    let control = port.protected.as_ref().map(|counts| ("(control)", counts));
    let classes =
        port.classes.iter().filter_map(|c| c.counts.as_ref().map(|counts| (c.name.as_str(), counts)));
    for (name, counts) in control.into_iter().chain(classes) {
        let dropped: u64 = counts.dropped_packets.values().sum();
        rows.add(vec![
            name.to_string(),
            counts.offered_packets.to_string(),
            counts.sent_packets.to_string(),
            counts.sent_bytes.to_string(),
            dropped.to_string(),
            counts.inside_packets.to_string(),
            reasons(&counts.dropped_packets),
        ]);
    }
    rows.print();
    let element = |state: &ClassState| {
        let values = state.values.iter().map(|(name, value)| (name.as_str(), *value));
        ConditionerReport::of(&state.name, values)
    };
    let conditioners: Vec<ConditionerReport> = port.conditioners.iter().map(element).collect();
    super::report::print_conditioners(&conditioners);
}

/// Counts by reason, as in "tail 42, toolong 3".
fn reasons(counts: &BTreeMap<String, u64>) -> String {
    let said: Vec<String> =
        counts.iter().filter(|(_, n)| **n > 0).map(|(reason, n)| format!("{reason} {n}")).collect();
    said.join(", ")
}
