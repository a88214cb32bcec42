//! The edge of a running `weir up`: `flows`, `flow`, `recognise`, and its part of `stats` and `status`.

use super::tables::{print_wrapped, say, table};
use super::{Done, print_json};
use crate::operate::flows::FlowState;
use crate::operate::remote::LeaseState;
use crate::operate::request::{FlowOrder, Handlers, Recognising, Request, ask};
use std::path::Path;
use weir_engine::edge_state::{AllocatorState, EdgeClassState, EdgeState, RecognitionState};
use weir_engine::state::{BrokerState, Reached};
use weir_text::{Unit, show};

/// On or off.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Switch {
    /// Packets are looked at
    On,
    /// They are not
    Off,
}

fn rate(bps: u64) -> String {
    show(bps as f64, Unit::Rate)
}

/// `weir flows`.
pub fn flows(sla: Option<u32>, socket: &Path, json: bool) -> Done {
    let flows: Vec<FlowState> = ask(socket, &Request::Flows { sla })?;
    if json {
        return print_json(&serde_json::json!({ "flows": flows }));
    }
    print(&flows);
    Ok(())
}

fn print(flows: &[FlowState]) {
    let mut rows = table(&["FLOW", ">SLA", "KIND", ">SINCE", ">PKT/S", ">RATE", "STATE", "WHY"]);
    for flow in flows {
        let since =
            flow.for_ns.map(|ns| format!("{:02}:{:02}", ns / 60_000_000_000, ns / 1_000_000_000 % 60));
        rows.add(vec![
            flow.flow.clone(),
            flow.sla.map(|id| id.to_string()).unwrap_or_default(),
            flow.kind.clone().unwrap_or_default(),
            since.unwrap_or_default(),
            flow.packets_per_second.map(|packets| packets.to_string()).unwrap_or_default(),
            flow.rate_bps.map(rate).unwrap_or_default(),
            if flow.pinned { format!("{}, pinned", flow.state) } else { flow.state.clone() },
            flow.why.clone(),
        ]);
    }
    rows.print();
}

/// `weir flow`.
pub fn flow(order: FlowOrder, key: &str, socket: &Path, json: bool) -> Done {
    let flow: FlowState = ask(socket, &Request::Flow { order, key: key.to_owned() })?;
    if json {
        return print_json(&flow);
    }
    print(&[flow]);
    Ok(())
}

/// How `weir edge` is asked.
#[derive(clap::Subcommand)]
pub enum Action {
    /// What a class is set to, and what it has come to
    Get {
        /// The interface by which its packets leave
        interface: String,
        /// The class
        class: String,
        /// One value, as `law.gain`
        name: Option<String>,
        #[command(flatten)]
        asked: crate::Asked,
    },
    /// Set a value, until the next `weir apply` that changes the edge: `law.gain=500K`
    Set {
        /// The interface by which its packets leave
        interface: String,
        /// The class
        class: String,
        /// NAME=VALUE
        assignment: String,
        #[command(flatten)]
        asked: crate::Asked,
    },
}

/// `weir edge`.
pub fn edge(action: Action) -> Done {
    let (request, asked) = match action {
        Action::Get { interface, class, name, asked } => {
            (Request::Handlers { interface, class, name }, asked)
        }
        Action::Set { interface, class, assignment, asked } => {
            (Request::Handler { interface, class, assignment }, asked)
        }
    };
    let handlers: Handlers = ask(&asked.socket, &request)?;
    if asked.json {
        return print_json(&handlers);
    }
    handlers.values.iter().for_each(|(name, value)| out!("{name}={value}"));
    Ok(())
}

/// `weir recognise`.
pub fn recognise(switch: Switch, interface: &str, socket: &Path, json: bool) -> Done {
    let on = switch == Switch::On;
    let done: Recognising = ask(socket, &Request::Recognise { interface: interface.to_owned(), on })?;
    if json {
        return print_json(&done);
    }
    let what = if done.on { "is looked at" } else { "is not looked at any more" };
    say(&format!("what enters by {} {what}", done.interface));
    Ok(())
}

/// `weir leases`.
pub fn leases(socket: &Path, json: bool) -> Done {
    let leases: Vec<LeaseState> = ask(socket, &Request::Leases)?;
    if json {
        return print_json(&serde_json::json!({ "leases": leases }));
    }
    let mut rows = table(&["LEASE", "BROKER", ">WANTED", ">HELD", ">LEFT", "STATE", "WHY"]);
    for LeaseState { broker, lease, wanted_bps, held_bps, left_ns, state, why, .. } in leases {
        let left = if held_bps > 0 { format!("{} s", left_ns / 1_000_000_000) } else { String::new() };
        rows.add(vec![lease, broker, rate(wanted_bps), rate(held_bps), left, state, why.unwrap_or_default()]);
    }
    rows.print();
    Ok(())
}

/// The brokers, a line each.
pub fn print_brokers(brokers: &[BrokerState]) {
    for BrokerState { name, capacity_bps, held_bps, requests, refused, holders, reached, .. } in brokers {
        let holders: Vec<String> =
            holders.iter().map(|h| format!("{} {} {}", h.interface, h.class, rate(h.rate_bps))).collect();
        print_wrapped(&format!(
            "broker {name}{}: {}{} held, {requests} requests, {refused} refused{}{}",
            reached.as_ref().map(said).unwrap_or_default(),
            rate(*held_bps),
            capacity_bps.map(|capacity| format!(" of {}", rate(capacity))).unwrap_or_default(),
            if holders.is_empty() { "" } else { ": " },
            holders.join(", ")
        ));
    }
}

fn said(Reached { at, now, why }: &Reached) -> String {
    let why = why.as_ref().map(|why| format!(" ({})", weir_text::visible(why)));
    match now {
        true => format!(" REACHABLE at {at}"),
        false => format!(" UNREACHABLE at {at}{}", why.unwrap_or_default()),
    }
}

/// What an edge has done.
pub fn print_edge(edge: &EdgeState) {
    if let Some(RecognitionState {
        on,
        inspected_packets,
        found,
        quic,
        flows,
        capacity,
        replaced,
        turned_away,
        ..
    }) = &edge.recognition
    {
        let found: Vec<String> = found.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
        let found = if found.is_empty() { "none".to_owned() } else { found.join(", ") };
        print_wrapped(&format!(
            "flows {flows} of {capacity}; found {found}; quic {quic}; {inspected_packets} packets inspected, \
             {replaced} flows replaced, {turned_away} turned away{}",
            if *on { "" } else { "; RECOGNITION IS OFF" }
        ));
    }
    if edge.dropped_packets + edge.unshaped > 0 {
        out!("{} packets dropped by the edge, {} rates refused", edge.dropped_packets, edge.unshaped);
    }
    let name = |name: &str| if name.is_empty() { "(link)".to_owned() } else { name.to_owned() };
    let mut rows = table(&["CLASS", ">NOW", ">ADMITTED", ">REFUSED", ">EVICTED", ">ENDED"]);
    for EdgeClassState { name: class, flows, .. } in &edge.classes {
        let counts = [flows.now, flows.admitted, flows.refused, flows.evicted, flows.timed_out + flows.ended];
        rows.add(std::iter::once(name(class)).chain(counts.iter().map(u64::to_string)).collect());
    }
    rows.print();
    let mut rows = table(&["CLASS", ">USED", ">GRANTED", ">UP", ">DOWN", ">DENIED"]);
    let asking = || edge.classes.iter().filter_map(|class| Some((class, class.allocator.as_ref()?)));
    for (class, AllocatorState { estimate_bps, allocated_bps, up, down, refused, .. }) in asking() {
        let counts = [up, down, refused].map(u64::to_string);
        let rates = [rate(*estimate_bps), rate(*allocated_bps)];
        rows.add(std::iter::once(name(&class.name)).chain(rates).chain(counts).collect());
    }
    if asking().next().is_some() {
        rows.print();
    }
    if edge.contracts.is_empty() {
        return;
    }
    let mut rows = table(&[
        ">SLA",
        ">NOW",
        ">ADMITTED",
        ">REFUSED",
        ">EVICTED",
        ">OFFERED",
        ">IN PROFILE",
        ">PASSED",
        ">DROPPED",
        ">BEST EFFORT",
    ]);
    for contract in &edge.contracts {
        let flows = contract.flows;
        let counts = [
            u64::from(contract.id),
            flows.now,
            flows.admitted,
            flows.refused,
            flows.evicted,
            contract.offered_bytes,
            contract.in_profile_bytes,
            contract.passed_bytes,
            contract.dropped_bytes,
            contract.best_effort_bytes,
        ];
        rows.add(counts.iter().map(u64::to_string).collect());
    }
    rows.print();
}
