//! Commands about one interface of an altq.conf: `replay` and `explain`.

use super::kind::{Kind, wants};
use super::tables::{print_below, say, table};
use super::{Done, Failure, print_json};
use crate::progress::reading;
use serde_json::json;
use std::io::{self, Write};
use std::path::Path;
use weir_conf::{Built, BuiltFilter, Plan, Source};
use weir_core::classify::FilterId;
use weir_core::classify::explain::{self, Cause};
use weir_core::packet::{ControlKind, Family, Key};
use weir_core::port::{Port, PortConfig, Protect, Refill, WireConfig};
use weir_core::queue::Link;
use weir_core::sched::Registry;
use weir_core::units::Rate;
use weir_io::trace::{self, Trace, TraceError};
use weir_report::disk::{self, Output};
use weir_sim::replay::{Content, Recognised, Record, Recording, ReplayError, Watch};
use weir_text::{Diagnostics, Unit, show};

/// Below this a byte lasts more than a second, and soon longer than a `PerByte` can say.
const LEAST_WIRE: Rate = Rate::from_bps(8);
/// Filters that come close, shown at most.
const NEAR: usize = 8;
/// Largest frame that a link is built for where nothing says so.
const MTU: u32 = 1514;

/// Reads a configuration; warnings go to standard error.
pub fn read(path: &Path, registry: &Registry) -> Result<Plan, Failure> {
    let text = super::configuration_of(path)?;
    let outcome = weir_conf::read(&path.display().to_string(), &text, registry);
    if !outcome.diagnostics.is_empty() {
        eprintln!("{}", Diagnostics(outcome.diagnostics));
    }
    let refused = || Failure::usage(format!("{}: this configuration cannot be used", path.display()));
    outcome.plan.ok_or_else(refused)
}

/// Builds an interface of a plan over `link`.
pub fn build(
    plan: &Plan,
    interface: &str,
    registry: &Registry,
    link: Option<Link>,
) -> Result<(Built, Link), Failure> {
    let view = plan.interface(interface).map_err(Failure::usage)?;
    let link = link.unwrap_or_else(|| view.link(MTU));
    let built = view.build(registry, link).map_err(Failure::usage)?;
    for warning in &built.warnings {
        eprintln!("{warning}");
    }
    Ok((built, link))
}

/// What a replay is to assume of the wire and of the port.
#[derive(clap::Args)]
pub struct Conditions {
    /// Bytes that each packet costs on the wire beyond its length
    #[arg(long, default_value_t = 0)]
    overhead: u32,
    /// The wire's rate for captures, which state none (default: the interface's bandwidth)
    #[arg(long, value_name = "RATE")]
    rate: Option<String>,
    /// The port's seed, as `weir stats` shows it: decimal, or hexadecimal after 0x
    #[arg(long, default_value = "1", value_parser = seed)]
    seed: u64,
}

/// Reads a seed.
fn seed(text: &str) -> Result<u64, String> {
    let read = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    read.map_err(|_| format!("expected 0 to {}, or 0x and up to 16 hexadecimal digits", u64::MAX))
}

/// A file as the replay reads it.
struct Recorded(Trace);

impl Recording for Recorded {
    type Error = TraceError;
    fn next(&mut self) -> Result<Option<Record<'_>>, TraceError> {
        let record = self.0.next()?.map(|trace::Record { at, len_bytes, content }| {
            let content = match content {
                trace::Content::Frame(bytes) => Content::Frame(bytes),
                trace::Content::Class { class, dscp } => Content::Class { class, dscp },
            };
            Record { at, len_bytes, content }
        });
        Ok(record)
    }
}

/// `weir replay`.
pub fn replay(
    registry: &Registry,
    conf: &Path,
    interface: &str,
    trace: &Path,
    out: Option<&Path>,
    conditions: &Conditions,
    json: bool,
) -> Done {
    let overhead = conditions.overhead;
    let plan = read(conf, registry)?;
    wants(Kind::Recording, trace)?;
    let view = plan.interface(interface).map_err(Failure::usage)?;
    let in_trace = |e: &dyn std::fmt::Display| Failure::usage(format!("{}: {e}", trace.display()));
    let file = std::fs::File::open(trace).map_err(|e| in_trace(&e))?;
    let (file, progress) = reading(file, json || out.is_none());
    let mut packets = Recorded(Trace::read(file).map_err(|e| in_trace(&e))?);
    let given = match &conditions.rate {
        Some(text) => Some(weir_text::BitRate::parse(text).map_err(Failure::usage)?.as_bps()),
        None => packets.0.rate().map(Rate::as_bps),
    };
    let wire = given.map_or_else(|| view.rate(), Rate::from_bps);
    if wire < LEAST_WIRE {
        return Err(Failure::usage(format!("a wire of {wire} bit/s: expected {LEAST_WIRE} bit/s or more")));
    }
    if wire != view.rate() {
        say(&format!(
            "the wire of the replay has {wire} bit/s, the interface's bandwidth is {}: shares in percent are of the latter",
            view.rate()
        ));
    }
    let (built, _) = build(&plan, interface, registry, Some(Link::new(view.rate(), overhead, MTU)))?;
    let edge = view.edge(registry, &built.tree.leaves, conditions.seed).map_err(Failure::usage)?;
    let watch = edge.map(|mut plan| {
        plan.config.overhead = overhead;
        Watch::new(plan)
    });
    let ideal = WireConfig::Link { ring: 1, refill: Refill::Packet };
    let config =
        PortConfig { seed: conditions.seed, ..PortConfig::new(Link::new(wire, overhead, MTU), ideal) };
    let mut port = Port::new(config, built.port_plan(config.link));
    let mut file = match out {
        Some(path) => {
            disk::keeps_inputs(path, [conf, trace]).map_err(Failure::usage)?;
            Some(Output::create(path).map_err(|e| Failure::failed(format!("{}: {e}", path.display())))?)
        }
        None => None,
    };
    let output: Box<dyn Write + '_> = match &mut file {
        Some(file) => Box::new(file),
        // Who was found is what a file that looks for flows is replayed for: lines go to `--out` alone.
        None if json || watch.is_some() => Box::new(io::sink()),
        None => Box::new(io::BufWriter::with_capacity(1 << 16, io::stdout().lock())),
    };
    let replayed = weir_sim::replay::replay(&mut packets, &mut port, watch, output);
    progress.clear();
    let summary = replayed.map_err(|e| match e {
        ReplayError::Output(e) if e.kind() == io::ErrorKind::BrokenPipe => {
            Failure { code: 0, message: String::new() }
        }
        ReplayError::Output(_) => Failure::failed(e),
        _ => in_trace(&e),
    })?;
    if packets.0.set_right() > 0 {
        say(&format!(
            "{} packets were recorded before the one above them; each was given its time",
            packets.0.set_right()
        ));
    }
    if let Some(file) = file {
        file.finish().map_err(|e| Failure::failed(format!("output: {e}")))?;
    }
    if let Some(broken) = port.is_broken() {
        return Err(Failure::failed(format!("{} broke: {}", broken.discipline, broken.what)));
    }
    if json {
        return print_json(&summary);
    }
    if out.is_some() || summary.recognised.is_some() {
        let mut rows = table(&["CLASS", ">OFFERED", ">SENT", ">BYTES", ">DROPPED", ">DELAY|MEAN", ">|MAX"]);
        for class in &summary.classes {
            let mean = class.delay_sum_ns as f64 / class.sent_packets.max(1) as f64;
            rows.add(vec![
                class.class.clone(),
                class.offered_packets.to_string(),
                class.sent_packets.to_string(),
                class.sent_bytes.to_string(),
                class.dropped_packets.to_string(),
                show(mean, Unit::Time),
                show(class.delay_max_ns as f64, Unit::Time),
            ]);
        }
        rows.print();
    }
    if let Some(recognised) = &summary.recognised {
        print_recognised(recognised);
    }
    Ok(())
}

/// The flows that were found, each with the packet by which, and why.
fn print_recognised(recognised: &Recognised) {
    let Recognised { directions, quic, flows } = recognised;
    out!("");
    if !flows.is_empty() {
        let mut rows = table(&["FLOW", "KIND", ">AT|PACKET", ">TIME", ">PACKETS", "STATE", "WHY"]);
        for flow in flows {
            rows.add(vec![
                flow.flow.clone(),
                flow.kind.clone(),
                flow.packet.to_string(),
                show(flow.at_ns as f64, Unit::Time),
                flow.packets.to_string(),
                if flow.admitted { "admitted" } else { "refused" }.to_string(),
                flow.why(),
            ]);
        }
        rows.print();
    }
    out!("{} of {directions} directions of UDP flows are real-time, {quic} are QUIC", flows.len());
}

/// Why a filter that matches lost to `winner`: filters are asked by `ruleno`, the highest first, of
/// equals those on a single IPv4 destination first, and of these the later line first.
fn why_lost(source: &Source, filters: &[BuiltFilter], loser: FilterId, winner: FilterId) -> String {
    let [loser, winner] = [loser, winner].map(|id| &filters[id.index()].filter);
    if loser.ruleno != winner.ruleno {
        return format!(
            "its ruleno {} is below {}, and the highest is asked first",
            loser.ruleno, winner.ruleno
        );
    }
    let is_host = |f: &weir_conf::plan::Filter| f.family == Family::V4 && f.dst.1 == u128::from(u32::MAX);
    if is_host(winner) && !is_host(loser) {
        return "the other is on a single destination, and of equal ruleno those are asked first".into();
    }
    match (loser.place.line, winner.place.line) {
        (0, _) | (_, 0) => "it stands before the other, and of equal ruleno the later is asked first".into(),
        (earlier, later) => {
            let (earlier, later) = (source.at(earlier), source.at(later));
            format!("{earlier} stands before {later}, and of equal ruleno the later is asked first")
        }
    }
}

/// The class that filters send a packet to.
fn class_of(built: &Built, found: &explain::Explanation) -> String {
    let leaf = found.matched.map_or(built.default_leaf, |m| m.class);
    built.tree.leaves[leaf as usize].name.clone()
}

/// What is to be said of a packet that keeps a link or its routes alive, if it is one.
fn control(key: &Key, class: &str, protect: &Protect) -> Option<String> {
    let kind = ControlKind::of_headers(key)?;
    let which = match kind {
        ControlKind::Nd => "router or neighbour discovery (nd, ICMPv6 types 133 to 137)".to_string(),
        kind => format!("control packet ({}):", kind.name()),
    };
    if !protect.kinds.contains(kind) {
        return Some(format!("{which} goes where filters say, because of `except {}`", kind.name()));
    }
    let rate = show(protect.rate.as_bps() as f64, Unit::Rate);
    Some(format!("{which} goes before all classes up to {rate}; beyond that: class {class}"))
}

/// `weir explain`.
pub fn explain(registry: &Registry, conf: &Path, interface: &str, packet: &str, json: bool) -> Done {
    let plan = read(conf, registry)?;
    let key = weir_conf::packet_spec::parse(packet).map_err(Failure::usage)?;
    let (built, _) = build(&plan, interface, registry, None)?;
    // Filters that nobody wrote cannot be what somebody meant.
    let written = |id: FilterId| !built.filters[id.index()].automatic;
    let found = explain::explain(&built.classifier, &key, NEAR, written);
    let class = class_of(&built, &found);
    let control = built.protect.and_then(|protect| control(&key, &class, &protect));
    let conditioner = built.conditioners.as_ref().and_then(|c| c.which(&key));
    let show = |id: FilterId| {
        let BuiltFilter { filter, automatic } = &built.filters[id.index()];
        if *automatic {
            return format!("made by itself for the control class {}", filter.class);
        }
        let line = filter.place.line;
        format!("{}: {}", plan.source.at(line), plan.source.line(line).trim())
    };
    let lost: Vec<(String, String)> = found
        .also
        .iter()
        .filter_map(|&id| Some((show(id), why_lost(&plan.source, &built.filters, id, found.matched?.filter))))
        .collect();
    let matched = found.matched.map(|m| show(m.filter));
    let close: Vec<(String, &str, String, String)> = found
        .near
        .iter()
        .map(|near| {
            let value = |v| near.field.display(key.family, v).to_string();
            (show(near.filter), near.field.name(), value(near.wanted), value(near.found & near.mask))
        })
        .collect();
    let unreachable: Vec<(String, String)> = explain::unreachable(&built.classifier)
        .into_iter()
        .map(|u| match u.cause {
            Cause::Shadowed(by) => (show(u.filter), show(by)),
            Cause::Impossible(why) => (show(u.filter), why.to_string()),
        })
        .collect();
    let altq = found.altq.map(show);
    if json {
        let close: Vec<_> = close
            .iter()
            .map(|(f, field, wanted, found)| json!({"filter": f, "field": field, "wanted": wanted, "found": found}))
            .collect();
        let also: Vec<_> = lost.iter().map(|(f, why)| json!({"filter": f, "why": why})).collect();
        let unreachable: Vec<_> =
            unreachable.iter().map(|(f, by)| json!({"filter": f, "shadowed_by": by})).collect();
        return print_json(
            &json!({"packet": key.to_string(), "conditioner": conditioner, "control": control, "class": class, "filter": matched,
            "default": matched.is_none(), "also": also, "close": close, "unreachable": unreachable, "altq": altq}),
        );
    }
    out!("packet  {key}");
    if let Some(name) = conditioner {
        print_below(
            "first",
            &format!("conditioner {name}; what follows is for a packet that it passes without a mark"),
        );
    }
    if let Some(control) = &control {
        print_below("before", control);
    }
    match &matched {
        Some(filter) => out!("class   {class}\nfilter  {filter}"),
        None => out!("class   {class} (the default: no filter matches)"),
    }
    if let Some(filter) = &altq {
        out!("altq    would have taken {filter}");
    }
    for (filter, why) in &lost {
        out!("also    {filter}");
        print_below("", &format!("matches, but {why}"));
    }
    for (filter, field, wanted, found) in &close {
        out!("close   {filter}");
        print_below("", &format!("but for {field}: it wants {wanted}, the packet has {found}"));
    }
    for (filter, by) in &unreachable {
        out!("never   {filter}\n        because of {by}");
    }
    Ok(())
}
