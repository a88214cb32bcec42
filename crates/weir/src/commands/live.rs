//! `weir up` and `weir stats`: a live box, in its simplest form.

use super::tables::{print_wrapped, table};
use super::{Done, Failure};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use weir_conf::plan::Attach;
use weir_core::classify::Classifier;
use weir_core::port::{Port, PortConfig, PortPlan, WireConfig};
use weir_core::sched::{Node, Registry};
use weir_engine::control::{ClassState, Snapshot};
use weir_engine::direction::Delay;
use weir_engine::up::{Setup, Side, up as bring_up};
use weir_engine::worker::Pace;
use weir_io::PoolSize;
use weir_report::report::ConditionerReport;

/// Where `weir up` serves statistics unless told otherwise.
pub const SOCKET: &str = "/run/weir.sock";
/// Bytes of an Ethernet header: a frame's length counts it, an interface's MTU does not.
const LAYER_2: u32 = 14;

/// `weir up`: bridges two interfaces, each egress managed as the configuration says.
pub fn up(registry: &Registry, conf: &Path, socket: &Path) -> Done {
    let plan = super::conf::read(conf, registry)?;
    let (left, right) = pair(&plan)?;
    if !weir_sys::is_root() {
        return Err(Failure::impossible("raw sockets need root"));
    }
    let declared = |name: &str| plan.interfaces.iter().find(|i| i.name == name);
    let side = |name: &str, peer: &str| -> Result<Side, Failure> {
        let managed = match (declared(name), declared(peer)) {
            (Some(_), _) => Some(managed(&plan, name, registry)?),
            // What enters by the peer is conditioned, though nothing is said about where it leaves.
            (None, Some(entrance)) if !entrance.conditioners.is_empty() => {
                Some(conditioned(&plan, peer, registry)?)
            }
            _ => None,
        };
        Ok(Side { interface: name.to_owned(), port: managed, delay: Delay::default() })
    };
    let setup = Setup {
        left: side(&left, &right)?,
        right: side(&right, &left)?,
        pool: PoolSize::default(),
        pace: Pace::default(),
        socket: Some(socket.to_owned()),
        observers: [None, None],
    };
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
    eprintln!(
        "weir: bridging {left} and {right}; `weir stats --socket {}` shows counters; end with ^C",
        socket.display()
    );
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(100));
        if box_.has_ended() {
            return Err(Failure::failed("the worker has ended by itself"));
        }
    }
    let last = box_.stop().map_err(Failure::failed)?;
    print_snapshot(&last);
    Ok(())
}

/// The two interfaces of the bridge.
fn pair(plan: &weir_conf::Plan) -> Result<(String, String), Failure> {
    let mut pairs = plan.interfaces.iter().filter_map(|i| match &i.attach {
        Attach::Bridge(peer) => Some((i.name.clone(), peer.clone())),
        _ => None,
    });
    let Some((left, right)) = pairs.next() else {
        return Err(Failure::usage(
            "no interface says `attach bridge PEER`: write it behind the interface's discipline, PEER being the other port of the bridge",
        ));
    };
    for (a, b) in pairs {
        if (a != right || b != left) && (a != left || b != right) {
            return Err(Failure::usage(format!(
                "one bridge at a time: `{left}` with `{right}` and `{a}` with `{b}` are two; start `weir up` for each with a file of its own"
            )));
        }
    }
    Ok((left, right))
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
    let text = weir_engine::server::fetch(socket)
        .map_err(|e| Failure::failed(format!("{e}; is it this --socket?")))?;
    let answer: serde_json::Value = serde_json::from_str(&text).map_err(Failure::failed)?;
    if let Some(why) = answer["error"].as_str() {
        return Err(Failure::failed(why));
    }
    if json {
        out!("{}", text.trim_end());
        return Ok(());
    }
    let snapshot: Snapshot = serde_json::from_value(answer).map_err(Failure::failed)?;
    print_snapshot(&snapshot);
    Ok(())
}

fn print_snapshot(snapshot: &Snapshot) {
    let seconds = snapshot.uptime_ns as f64 / 1e9;
    let cpu = 100.0 * snapshot.cpu_ns as f64 / snapshot.uptime_ns.max(1) as f64;
    out!("up {seconds:.1} s, worker at {cpu:.0} % of a processor");
    if let Some(why) = &snapshot.failed {
        out!("BYPASSED: the bridge forwards plainly: {why}");
    }
    for egress in &snapshot.egresses {
        out!("");
        print_wrapped(&format!(
            "egress {}: {} packets out, {} lost before the queue (overrun {}, no buffer {}), {} refused by the device",
            egress.interface,
            egress.sent_packets,
            egress.overrun_packets + egress.nobuf_packets,
            egress.overrun_packets,
            egress.nobuf_packets,
            egress.refused_packets
        ));
        let Some(port) = &egress.port else {
            out!("not managed: forwarded plainly");
            continue;
        };
        out!("seed {}", port.seed);
        if let Some(why) = &port.broken {
            out!("BYPASSED: runs as one FIFO: {why}");
        }
        let mut rows =
            table(&["CLASS", ">OFFERED", ">SENT", ">BYTES", ">DROPPED", ">WAITING", "WHY DROPPED"]);
        for class in &port.classes {
            let Some(counts) = &class.counts else { continue };
            let why: BTreeMap<&String, &u64> =
                counts.dropped_packets.iter().filter(|(_, n)| **n > 0).collect();
            let why: Vec<String> = why.iter().map(|(reason, n)| format!("{reason} {n}")).collect();
            let dropped: u64 = counts.dropped_packets.values().sum();
            rows.add(vec![
                class.name.clone(),
                counts.offered_packets.to_string(),
                counts.sent_packets.to_string(),
                counts.sent_bytes.to_string(),
                dropped.to_string(),
                counts.inside_packets.to_string(),
                why.join(", "),
            ]);
        }
        rows.print();
        let element = |state: &ClassState| {
            ConditionerReport::of(
                &state.name,
                state.values.iter().map(|(name, value)| (name.as_str(), *value)),
            )
        };
        let conditioners: Vec<ConditionerReport> = port.conditioners.iter().map(element).collect();
        super::report::print_conditioners(&conditioners);
    }
}
