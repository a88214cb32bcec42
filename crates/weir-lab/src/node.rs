//! One network namespace of the lab, as its parent holds it: a child process that works inside it.
//!
//! The parent starts the program again with a hidden subcommand; the child moves itself into a new
//! network namespace and then does what it is told (`child`), a JSON line at a time on standard
//! input, each answered by one line on standard output. Nothing survives the parent: the kernel
//! kills the child when the parent ends, and with the last process of a namespace go its interfaces,
//! addresses and queues. So even `kill -9` leaves nothing behind.

use crate::flow::{ReceiverSpec, SenderSpec};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

/// The hidden subcommand of a program whose lab starts that program again as its nodes.
pub const NODE_COMMAND: &str = "lab-node";

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
    /// Wait until the kernel sends through all of these interfaces.
    Ready {
        /// Which.
        interfaces: Vec<String>,
        /// How long to wait at most, ms.
        patience_ms: u64,
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
        Ok(Program { path: std::env::current_exe()?, arguments: vec![NODE_COMMAND.into()] })
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
