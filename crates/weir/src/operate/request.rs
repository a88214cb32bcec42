//! What can be asked through the socket, and how: one line of JSON each way.

use super::remote::AllCarried;
use crate::commands::Failure;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use weir_conf::Difference;
use weir_engine::state::BrokerState;
use weir_engine::status::Finding;

/// How long an answer may take: a file of 100,000 classes is read and built in seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// A request.
#[derive(Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "lowercase", deny_unknown_fields)]
pub enum Request {
    /// The counters.
    Stats,
    /// Another configuration in the place of the present one.
    Apply {
        /// What the person calls it.
        name: String,
        /// Its text.
        text: String,
        /// Go back unless a confirmation comes in this time.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        confirm_within_ns: Option<u64>,
    },
    /// What a configuration would change.
    Diff {
        /// What the person calls it.
        name: String,
        /// Its text.
        text: String,
    },
    /// One value of what runs.
    Set {
        /// The interface.
        interface: String,
        /// A class of it, or none for the interface itself; an option and its value, as altq.conf
        /// writes them.
        words: Vec<String>,
    },
    /// A contract of what enters by an interface; answered with what was changed.
    Contract {
        /// The interface.
        interface: String,
        /// Its number.
        id: u32,
        /// What becomes of it.
        change: ContractOrder,
        /// Its prefixes and options, as an `sla` line has them behind its number.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        words: Vec<String>,
    },
    /// All contracts.
    Contracts,
    /// How interfaces and classes are.
    Status,
    /// Whether the kernel is to carry the traffic; answered with the counters.
    Bypass {
        /// The kernel carries it.
        on: bool,
    },
    /// The flows that edges know.
    Flows {
        /// Those of this contract alone.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sla: Option<u32>,
    },
    /// Something is to be done with a flow; answered with what it is then.
    Flow {
        /// What.
        order: FlowOrder,
        /// Its header fields.
        key: String,
    },
    /// What a class of an edge is set to by its handlers.
    Handlers {
        /// The interface by which its packets leave.
        interface: String,
        /// The class.
        class: String,
        /// One of them; all without.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
    },
    /// A handler is to have another value; answered with what it has then.
    Handler {
        /// The interface by which its packets leave.
        interface: String,
        /// The class.
        class: String,
        /// `NAME=VALUE`.
        assignment: String,
    },
    /// Whether what enters by an interface is looked at.
    Recognise {
        /// The interface.
        interface: String,
        /// It is.
        on: bool,
    },
    /// The leases at brokers elsewhere.
    Leases,
    /// The last change is to stay.
    Confirm,
    /// Back to what ran before the last change.
    Rollback,
    /// Everything is to pass to the process that asks (`weir_engine::takeover`).
    Takeover {
        /// The number of its protocol.
        protocol: u32,
        /// What it bridges: left, right, and whether that fails closed.
        bridges: Vec<(String, String, bool)>,
    },
}

/// What can be done with a contract.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ContractOrder {
    /// A new one
    Add,
    /// Other words of one that is there
    Set,
    /// Its end
    Del,
}

/// A contract.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Contract {
    /// The interface by which its packets enter.
    pub interface: String,
    /// Its number.
    pub id: u32,
    /// Its prefixes.
    pub prefixes: Vec<String>,
    /// Its bandwidth, bit/s.
    pub bandwidth_bps: u64,
    /// The share that its flows compete for, per cent.
    pub shared_percent: f64,
    /// The code point of its packets in profile.
    pub dscp: u8,
    /// What becomes of the others.
    pub policy: String,
    /// Its class; none: the first that is allocated.
    pub class: Option<String>,
    /// The silence that ends a flow; none: its class says it.
    pub timeout_ns: Option<u64>,
    /// Most flows at a time.
    pub flows: u32,
}

impl From<weir_conf::contracts::Row> for Contract {
    fn from(row: weir_conf::contracts::Row) -> Self {
        Contract {
            interface: row.interface,
            id: row.id,
            prefixes: row.prefixes,
            bandwidth_bps: row.bandwidth.as_bps(),
            shared_percent: row.shared.parse().unwrap_or_default(),
            dscp: row.dscp.value(),
            policy: row.policy.to_owned(),
            class: row.class,
            timeout_ns: row.timeout.map(|timeout| timeout.as_nanos()),
            flows: row.flows,
        }
    }
}

/// What can be done with a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum FlowOrder {
    /// Say what it is, and why
    Explain,
    /// Take it out of its class: it is refused until it falls silent
    Evict,
    /// Make it an emergency: it is neither refused nor evicted
    Pin,
    /// Take that back
    Unpin,
}

/// What handlers have.
#[derive(Serialize, Deserialize)]
pub struct Handlers {
    /// The interface by which the class's packets leave.
    pub interface: String,
    /// The class.
    pub class: String,
    /// By name, as they are typed; `-1` is none.
    pub values: BTreeMap<String, String>,
}

/// What `weir recognise` came to.
#[derive(Serialize, Deserialize)]
pub struct Recognising {
    /// The interface by which flows enter.
    pub interface: String,
    /// Whether they are looked at.
    pub on: bool,
}

/// What passes to the process that takes over besides the bridges.
#[derive(Serialize, Deserialize)]
pub struct Legacy {
    /// The text of what runs.
    pub running: String,
    /// The text of what ran before the last change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<String>,
    /// How interfaces and classes are, and since when.
    #[serde(default)]
    pub findings: Vec<Finding>,
    /// What is held at brokers elsewhere.
    #[serde(default)]
    pub leases: AllCarried,
}

/// How a box is.
#[derive(Serialize, Deserialize)]
pub struct Report {
    /// True if every interface and class is as configured.
    pub as_configured: bool,
    /// Interface by interface, each before its classes.
    pub findings: Vec<Finding>,
    /// The brokers that edges ask.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub brokers: Vec<BrokerState>,
    /// The box goes back to what ran before unless a confirmation comes in this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm_within_ns: Option<u64>,
}

/// What was changed, or would be.
#[derive(Serialize, Deserialize, Default)]
pub struct Applied {
    /// Thing by thing.
    pub differences: Vec<Said>,
    /// Ports that go on as they are, with other values of parameters.
    pub ports_changed_in_place: usize,
    /// Ports that run another tree, and hold the same packets.
    pub ports_exchanged: usize,
    /// The box goes back unless a confirmation comes in this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm_within_ns: Option<u64>,
}

impl Applied {
    /// What would change.
    pub fn would(differences: &[Difference]) -> Self {
        Applied { differences: differences.iter().map(Into::into).collect(), ..Applied::default() }
    }
}

/// One difference.
#[derive(Serialize, Deserialize)]
pub struct Said {
    /// "added", "removed" or "changed".
    pub kind: String,
    /// As in "class voice of eth1".
    pub what: String,
    /// How it was said, as altq.conf.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old: Option<String>,
    /// How it is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new: Option<String>,
}

impl From<&Difference> for Said {
    fn from(found: &Difference) -> Self {
        let Difference { what, old, new } = found.clone();
        Said { kind: found.kind().to_string(), what, old, new }
    }
}

impl From<&Said> for Difference {
    fn from(said: &Said) -> Self {
        Difference { what: said.what.clone(), old: said.old.clone(), new: said.new.clone() }
    }
}

/// Why a request was not granted.
#[derive(Serialize, Deserialize)]
struct Refused {
    error: String,
    code: u8,
}

/// The line that tells why.
pub fn refusal(Failure { message, code }: &Failure) -> String {
    let said = Refused { error: message.clone(), code: *code };
    serde_json::to_string(&said).unwrap_or_default()
}

/// The reason in such a line.
pub fn refused(line: &str) -> Option<Failure> {
    let Refused { error, code } = serde_json::from_str(line).ok()?;
    Some(Failure { code, message: error })
}

/// Asks the box that serves at `socket`.
pub fn ask<T: DeserializeOwned>(socket: &Path, request: &Request) -> Result<T, Failure> {
    let line = serde_json::to_string(request).map_err(Failure::failed)?;
    let answer = weir_engine::server::ask(socket, &line, PATIENCE)
        .map_err(|e| Failure::failed(format!("{e}; is it this --socket?")))?;
    if let Some(failure) = refused(&answer) {
        return Err(failure);
    }
    serde_json::from_str(&answer).map_err(Failure::failed)
}
