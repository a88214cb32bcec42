//! `weir up` and `weir stats`: a live box, in its simplest form.

use super::tables::{print_wrapped, table};
use super::{Done, Failure};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use weir_core::classify::Classifier;
use weir_core::port::{Port, PortConfig, PortPlan, WireConfig};
use weir_core::sched::{Node, Registry};
use weir_engine::control::{BridgeState, ClassState, Egress, Snapshot};
use weir_engine::direction::Delay;
use weir_engine::server::{self, Server};
use weir_engine::up::{Pair, Side, up as bring_up};
use weir_engine::worker::Pace;
use weir_report::report::ConditionerReport;
use weir_sys::Priority;

/// Where `weir up` serves statistics unless told otherwise.
pub const SOCKET: &str = "/run/weir.sock";
/// Bytes of an Ethernet header: a frame's length counts it, an interface's MTU does not.
const LAYER_2: u32 = 14;

/// `weir up`: brings up the bridges of a file, each egress managed as the file says. Their workers
/// stay on `cpus` in turn, if any are named.
pub fn up(registry: &Registry, conf: &Path, socket: &Path, cpus: &[usize], priority: Priority) -> Done {
    let plan = super::conf::read(conf, registry)?;
    let pairs = bridges(&plan)?;
    if !weir_sys::is_root() {
        return Err(Failure::impossible("raw sockets need root"));
    }
    usable(cpus)?;
    let mut cpus = cpus.iter().copied().cycle();
    let pair = |[left, right]: &[&str; 2]| -> Result<Pair, Failure> {
        let pair = Pair::new(side(&plan, left, right, registry)?, side(&plan, right, left, registry)?);
        Ok(Pair { pace: Pace { cpu: cpus.next(), priority, ..Pace::default() }, ..pair })
    };
    let setup = pairs.iter().map(pair).collect::<Result<_, _>>()?;
    let server = Server::bind(socket).map_err(Failure::failed)?;
    // Before the box is up, so that a signal never finds it without an end in order.
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, stop.clone()).map_err(Failure::failed)?;
    }
    let box_ = bring_up(setup).map_err(|e| match e.kind() {
        std::io::ErrorKind::PermissionDenied => Failure::impossible(e),
        std::io::ErrorKind::NotFound => Failure::usage(e),
        _ => Failure::failed(e),
    })?;
    for BridgeState { interfaces: [left, right], priority, .. } in box_.snapshot().bridges {
        eprintln!("weir: bridging {left} and {right}, {priority}");
    }
    eprintln!("weir: `weir stats --socket {}` shows counters; end with ^C", socket.display());
    while !stop.load(Ordering::Relaxed) {
        server.serve(Duration::from_millis(100), &mut |_| {
            serde_json::to_string(&box_.snapshot()).unwrap_or_else(|e| e.to_string())
        });
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
fn bridges(plan: &weir_conf::Plan) -> Result<Vec<[&str; 2]>, Failure> {
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

/// A side of a bridge, with the port that the plan says for its egress.
fn side(plan: &weir_conf::Plan, name: &str, peer: &str, registry: &Registry) -> Result<Side, Failure> {
    let declared = |name: &str| plan.interfaces.iter().find(|i| i.name == name);
    let port = match (declared(name), declared(peer)) {
        (Some(_), _) => Some(managed(plan, name, registry)?),
        // What enters by the peer is conditioned, though nothing is said about where it leaves.
        (None, Some(entrance)) if !entrance.conditioners.is_empty() => {
            Some(conditioned(plan, peer, registry)?)
        }
        _ => None,
    };
    Ok(Side { interface: name.to_owned(), port, delay: Delay::default() })
}

/// Bytes of the longest frame that an interface takes.
fn longest_frame(name: &str) -> Result<u32, Failure> {
    let interface = weir_sys::interface(name);
    let mtu = interface.map_err(|e| Failure::usage(format!("interface {name}: {e}")))?.mtu;
    Ok(mtu + LAYER_2)
}

/// A seed of its own for each port: with one that is known, anybody could compute source ports
/// whose flows share a queue with a victim's.
fn seed() -> Result<u64, Failure> {
    weir_sys::random_seed().map_err(|e| Failure::failed(format!("a random seed: {e}")))
}

fn managed(plan: &weir_conf::Plan, name: &str, registry: &Registry) -> Result<Port, Failure> {
    let view = plan.interface(name).map_err(Failure::usage)?;
    let link = view.link(longest_frame(name)?);
    let (built, link) = super::conf::build(plan, name, registry, Some(link))?;
    let config = PortConfig { seed: seed()?, ..PortConfig::new(link, WireConfig::Open) };
    Ok(Port::new(config, built.port_plan(link)))
}

/// An egress without a discipline, for what comes in by `entrance`.
fn conditioned(plan: &weir_conf::Plan, entrance: &str, registry: &Registry) -> Result<Port, Failure> {
    let view = plan.interface(entrance).map_err(Failure::usage)?;
    let link = view.link(longest_frame(entrance)?);
    let plain = Node { discipline: "fifoq".into(), ..Node::default() };
    let tree = registry.build(&plain, link).map_err(Failure::usage)?;
    let conditioners = view.conditioners().map_err(Failure::usage)?;
    let plan = PortPlan { conditioners, ..PortPlan::new(tree, Classifier::empty()) };
    let config = PortConfig { seed: seed()?, ..PortConfig::new(link, WireConfig::Open) };
    Ok(Port::new(config, plan))
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
