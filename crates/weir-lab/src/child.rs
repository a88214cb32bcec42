//! A node of the lab from inside: the process that holds a namespace and does what its parent says.

use crate::flow::{FlowReport, Running};
use crate::node::Order;
use crate::{accuracy, bench, inside, namespace};
use serde_json::Value;
use std::collections::VecDeque;
use std::io::{self, BufRead, Write};
use weir_core::sched::Registry;

/// What a node has running.
struct NodeState {
    /// What ports are built from.
    registry: Registry,
    flows: VecDeque<Running>,
    /// The data plane, where this node is the box.
    inside: Option<inside::Running>,
    /// The same, for a bench.
    bench: Option<weir_engine::up::Up>,
    /// What stands in the box, for the suite of accuracy.
    standing: Option<accuracy::node::Standing>,
}

/// The hidden subcommand: `lab-node --name NAME --parent PID`.
pub(crate) fn main(registry: &Registry, arguments: &[String]) -> Result<(), String> {
    let value = |flag: &str| {
        let at = arguments.iter().position(|a| a == flag)?;
        arguments.get(at + 1)
    };
    let parent = value("--parent").and_then(|p| p.parse().ok());
    let Some(parent) = parent else {
        return Err("lab-node is started by `weir lab`; there is nothing to be done with it by hand".into());
    };
    let mut failed = namespace::enter(parent).err().map(|e| format!("cannot make a network namespace: {e}"));
    let mut state = NodeState {
        registry: registry.clone(),
        flows: VecDeque::new(),
        inside: None,
        bench: None,
        standing: None,
    };
    for line in io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let answer = match (failed.take(), serde_json::from_str::<Order>(&line)) {
            (Some(error), _) => Err(error),
            (None, Err(e)) => Err(format!("unreadable order: {e}")),
            (None, Ok(order)) => obey(order, &mut state),
        };
        let Ok(mut text) = serde_json::to_string(&answer) else { break };
        text.push('\n');
        let mut out = io::stdout().lock();
        if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
            break;
        }
    }
    Ok(())
}

fn obey(order: Order, state: &mut NodeState) -> Result<Value, String> {
    let plain = |e: io::Error| e.to_string();
    match order {
        Order::Hello => Ok(Value::from(std::process::id())),
        Order::Set(settings) => {
            for (path, value) in settings {
                std::fs::write(format!("/proc/sys/net/{path}"), &value)
                    .map_err(|e| format!("net/{path} = {value}: {e}"))?;
            }
            Ok(Value::Null)
        }
        Order::Ip(lines) => namespace::ip(&lines).map(|()| Value::Null),
        Order::Offloads { interface, on } => {
            weir_sys::set_offloads(&interface, on).map_err(plain).map(|()| Value::Null)
        }
        Order::Ready { interfaces, patience_ms } => {
            let patience = std::time::Duration::from_millis(patience_ms);
            namespace::ready(&interfaces, patience).map(|()| Value::Null)
        }
        Order::Pin(cpu) => weir_sys::pin_to(cpu).map_err(plain).map(|()| Value::Null),
        Order::Receive(spec) => {
            state.flows.push_back(spec.start().map_err(plain)?);
            Ok(Value::Null)
        }
        Order::Send(spec) => {
            state.flows.push_back(spec.start());
            Ok(Value::Null)
        }
        Order::Collect => {
            let reports: Vec<FlowReport> = state.flows.drain(..).flat_map(Running::join).collect();
            serde_json::to_value(reports).map_err(|e| e.to_string())
        }
        Order::Call { name, with } => call(&name, with, state),
    }
}

/// What a node does beyond plain traffic, by name.
fn call(name: &str, with: Value, state: &mut NodeState) -> Result<Value, String> {
    match name {
        "start" => {
            state.inside = Some(inside::start(with, &state.registry)?);
            Ok(Value::Null)
        }
        "stop" => state.inside.take().ok_or("the box is not running")?.stop(),
        _ if name.starts_with("accuracy-") => accuracy::node::call(name, with, &mut state.standing)
            .unwrap_or_else(|| Err(format!("a node cannot {name:?}"))),
        _ => bench::node::call(name, with, &mut state.bench)
            .unwrap_or_else(|| Err(format!("a node cannot {name:?}"))),
    }
}
