//! One network namespace of the lab: a child process that holds it and works inside it.
//!
//! The parent starts the program again with a hidden subcommand; the child moves itself into a new
//! network namespace and then does what it is told, a JSON line at a time on standard input, each
//! answered by one line on standard output. Nothing survives the parent: the kernel kills the child
//! when the parent dies, and with the last process of a namespace go its interfaces, addresses and
//! queues. So even `kill -9` leaves nothing behind.

use crate::flow::{FlowReport, ReceiverSpec, Running, SenderSpec};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use weir_core::sched::Registry;

/// What a node can be told to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Answer, to show that the namespace stands.
    Hello,
    /// Write kernel settings: paths below `/proc/sys/net`, and values.
    Set(Vec<(String, String)>),
    /// Run lines of `ip` commands.
    Ip(String),
    /// Segmentation and aggregation offloads of an interface.
    Offloads {
        /// Which.
        interface: String,
        /// On or off.
        on: bool,
    },
    /// Keep this process on one processor.
    Pin(usize),
    /// Open a receiver; it counts from `t0_ns` on.
    Receive(ReceiverSpec),
    /// Start a sender in the background.
    Send(SenderSpec),
    /// Wait for senders and receivers to end, and tell what they saw.
    Collect,
    /// Anything else: what the crate's other parts add, by name.
    Call {
        /// What.
        name: String,
        /// With what.
        with: Value,
    },
}

/// How to start a node: the program and the arguments that lead it to `main`.
#[derive(Clone, Debug)]
pub struct Program {
    /// The executable.
    pub path: PathBuf,
    /// Arguments before those that the lab adds.
    pub arguments: Vec<String>,
}

impl Program {
    /// This very executable, with the subcommand `lab-node`.
    pub fn this() -> io::Result<Self> {
        Ok(Program { path: std::env::current_exe()?, arguments: vec![crate::NODE_COMMAND.into()] })
    }
}

/// Why a node did not do what it was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeError {
    /// The node's name.
    pub node: String,
    /// What it said, or what became of it.
    pub what: String,
}

impl std::fmt::Display for NodeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "lab node {}: {}", self.node, self.what)
    }
}
impl std::error::Error for NodeError {}

/// A node, as its parent holds it. Dropping it ends the process and with it the namespace.
pub struct Node {
    pub(crate) name: String,
    child: Child,
    input: Option<ChildStdin>,
    answers: Receiver<String>,
}

impl Node {
    /// Starts a node; it lives no longer than the calling thread.
    pub(crate) fn start(program: &Program, name: &str) -> Result<Node, NodeError> {
        let fail = |what: String| NodeError { node: name.into(), what };
        let mut child = Command::new(&program.path)
            .args(&program.arguments)
            .args(["--name", name, "--parent", &std::process::id().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| fail(format!("{}: {e}", program.path.display())))?;
        let input = child.stdin.take();
        let output = child.stdout.take().ok_or_else(|| fail("no standard output".into()))?;
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let mut node = Node { name: name.into(), child, input, answers };
        node.tell(&Order::Hello)?;
        Ok(node)
    }

    /// The process that holds the namespace, as `ip link ... netns PID` wants it.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn error(&self, what: impl Into<String>) -> NodeError {
        NodeError { node: self.name.clone(), what: what.into() }
    }

    /// Sends an order without waiting for its answer.
    pub fn ask(&mut self, order: &Order) -> Result<(), NodeError> {
        let mut line = serde_json::to_string(order).map_err(|e| self.error(e.to_string()))?;
        line.push('\n');
        let input = self.input.as_mut().ok_or(());
        match input.map(|i| i.write_all(line.as_bytes()).and_then(|()| i.flush())) {
            Ok(Ok(())) => Ok(()),
            _ => Err(self.error("it has ended unexpectedly")),
        }
    }

    /// Waits for the answer to the oldest order that was asked.
    pub fn answer(&mut self, patience: std::time::Duration) -> Result<Value, NodeError> {
        let line = self.answers.recv_timeout(patience).map_err(|e| match e {
            RecvTimeoutError::Timeout => self.error(format!("no answer within {patience:?}")),
            RecvTimeoutError::Disconnected => self.error("it has ended unexpectedly"),
        })?;
        let answer: Result<Value, String> =
            serde_json::from_str(&line).map_err(|e| self.error(format!("unreadable answer: {e}")))?;
        answer.map_err(|what| self.error(what))
    }

    /// Sends an order and waits up to 10 seconds for its answer.
    pub fn tell(&mut self, order: &Order) -> Result<Value, NodeError> {
        self.ask(order)?;
        self.answer(std::time::Duration::from_secs(10))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Without input the child ends by itself; the kill is for one that hangs.
        drop(self.input.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a node has running.
pub(crate) struct State {
    /// What ports are built from.
    pub(crate) registry: Registry,
    flows: VecDeque<Running>,
    /// The data plane, where this node is the box.
    pub(crate) inside: Option<crate::inside::Running>,
    /// The same, for a bench.
    pub(crate) bench: Option<weir_engine::up::Up>,
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
    let entered = weir_sys::die_with_parent(parent)
        .and_then(|()| weir_sys::enter_new_network())
        .and_then(|()| weir_sys::sleep_precisely())
        .map(|()| weir_sys::come_first())
        .and_then(|()| quiet());
    let mut failed = entered.err().map(|e| format!("cannot make a network namespace: {e}"));
    let mut state = State { registry: registry.clone(), flows: VecDeque::new(), inside: None, bench: None };
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

/// Settings of every namespace: no IPv6 chatter, no forwarding, nothing remembered of earlier
/// connections, and buffers that do not become the bottleneck.
fn quiet() -> io::Result<()> {
    for (path, value) in [
        ("ipv6/conf/all/disable_ipv6", "1"),
        ("ipv6/conf/default/disable_ipv6", "1"),
        ("ipv4/ip_forward", "0"),
        ("ipv4/conf/all/rp_filter", "0"),
        ("ipv4/conf/default/rp_filter", "0"),
        ("ipv4/tcp_no_metrics_save", "1"),
        ("ipv4/tcp_rmem", "4096 262144 16777216"),
        ("ipv4/tcp_wmem", "4096 262144 16777216"),
    ] {
        let path = format!("/proc/sys/net/{path}");
        // A kernel built without IPv6 has no such path, and no chatter either.
        if std::path::Path::new(&path).exists() {
            std::fs::write(&path, value).map_err(|e| io::Error::new(e.kind(), format!("{path}: {e}")))?;
        }
    }
    ip("link set dev lo up\n").map_err(io::Error::other)
}

/// Runs lines of `ip` commands in this process's namespace.
pub(crate) fn ip(lines: &str) -> Result<(), String> {
    let missing = |e: io::Error| format!("ip (Debian package iproute2): {e}");
    let mut child = Command::new("ip")
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(missing)?;
    let written = child.stdin.take().map(|mut i| i.write_all(lines.as_bytes()));
    let done = child.wait_with_output().map_err(missing)?;
    match written {
        Some(Ok(())) if done.status.success() => Ok(()),
        _ => Err(format!("ip: {}; of the lines\n{lines}", String::from_utf8_lossy(&done.stderr).trim())),
    }
}

fn obey(order: Order, state: &mut State) -> Result<Value, String> {
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
        Order::Ip(lines) => ip(&lines).map(|()| Value::Null),
        Order::Offloads { interface, on } => {
            weir_sys::set_offloads(&interface, on).map_err(plain).map(|()| Value::Null)
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
        Order::Call { name, with } => crate::call(&name, with, state),
    }
}
