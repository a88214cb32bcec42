//! `weir`: alternate queueing for today's networks, as one command.
//!
//! The command is a library, so that a crate with disciplines or AQMs of its own is the whole
//! command in a few lines: every subcommand knows them, live ones too.
//!
//! ```no_run
//! use weir_core::sched::Registry;
//!
//! fn main() -> std::process::ExitCode {
//!     let mut registry = Registry::builtin();
//!     // registry.register(my_discipline::ENTRY);
//!     // registry.register_aqm(my_aqm::ENTRY);
//!     weir::main_with(registry)
//! }
//! ```
//!
//! Results go to standard output, as a table for people or as JSON with `-j`; progress and
//! diagnostics to standard error. Exit: 0 done, 1 failed, 2 usage or configuration error,
//! 3 not possible here.

#![forbid(unsafe_code)]

#[macro_use]
mod out;
mod bench;
mod commands;
mod experiment;
mod operate;
mod progress;

use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;
use weir_core::sched::Registry;
use weir_text::COLUMNS;

pub use experiment::manifest::Manifest;
pub use weir_sys::allocations::Counting;

/// Alternate queueing for today's networks: one configuration, simulated and live.
#[derive(Parser)]
#[command(name = "weir", version, arg_required_else_help = true, max_term_width = COLUMNS)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Judge configurations (altq.conf) and scenarios (.toml): errors, and warnings
    Check {
        /// altq.conf files, or scenarios if they end in .toml
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// JSON
        #[arg(short, long)]
        json: bool,
    },
    /// Simulate a scenario
    Sim {
        /// The scenario
        scenario: PathBuf,
        /// Another seed than the scenario's
        #[arg(long)]
        seed: Option<u64>,
        /// Write report.json, samples.csv and plots into this folder
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
        /// With --out: besides, packets.csv with every packet of the managed ports
        #[arg(long, requires = "out")]
        packets: bool,
        /// Show every class and every copy of a flow
        #[arg(long)]
        all: bool,
        /// Print the report as JSON
        #[arg(short, long)]
        json: bool,
    },
    /// Run a scenario live in network namespaces, with the kernel's TCP (root)
    Lab {
        /// The scenario
        scenario: PathBuf,
        /// Another seed than the scenario's
        #[arg(long)]
        seed: Option<u64>,
        /// Write report.json, samples.csv and plots into this folder
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
        /// Show every class and every copy of a flow
        #[arg(long)]
        all: bool,
        /// Print the report as JSON
        #[arg(short, long)]
        json: bool,
    },
    /// Put reports side by side, class by class
    Compare {
        /// Two to four report.json: a simulated run and a live one, or runs of several seeds or scenarios
        #[arg(required = true, num_args = 2..=weir_report::compare::MOST)]
        reports: Vec<PathBuf>,
        /// Write plots with all runs into this folder
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
        /// JSON
        #[arg(short, long)]
        json: bool,
    },
    /// What a configuration does to recorded packets
    Replay {
        /// The altq.conf
        conf: PathBuf,
        /// The interface of it
        interface: String,
        /// pcap, pcapng, or CSV (`rate BPS`, then `arrival_ns,class,size[,dscp]`); may be gzipped
        trace: PathBuf,
        /// Where the lines go; default standard output, unless -j
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        #[command(flatten)]
        conditions: commands::conf::Conditions,
        /// Print a summary as JSON instead of the lines
        #[arg(short, long)]
        json: bool,
    },
    /// Which filter matches a packet, which class, what comes close, what is unreachable
    Explain {
        /// The altq.conf
        conf: PathBuf,
        /// The interface of it
        interface: String,
        /// The packet: 'tcp 10.0.0.1:5000 > 10.0.0.2:80 tos 0x10'
        packet: String,
        /// JSON
        #[arg(short, long)]
        json: bool,
    },
    /// The papers' figures and tables
    Experiment {
        #[command(subcommand)]
        action: ExperimentAction,
    },
    /// Nanoseconds per packet; `bench sim` the simulator; `bench live` the bridge beside the kernel, `bench accuracy [RATE ...]` its rates, bursts and delay (root)
    Bench {
        /// Names; all disciplines without
        names: Vec<String>,
        /// Rounds of `bench accuracy` [default: 4], of `bench live` [default: 10]
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
        rounds: Option<u16>,
        /// JSON
        #[arg(short, long)]
        json: bool,
    },
    /// The bandwidth broker: who may use how much of what, until when
    Broker {
        #[command(subcommand)]
        action: commands::broker::Action,
    },
    /// Contracts of real-time flows: those of a file or of a running `weir up`, tables (CSV), and changes while it runs
    Sla {
        #[command(subcommand)]
        action: commands::sla::Action,
    },
    /// What disciplines there are, with parameters, units and defaults
    Disciplines {
        /// One of them, whole
        name: Option<String>,
        /// JSON
        #[arg(short, long)]
        json: bool,
    },
    /// What interfaces offer to `attach`, which way they would get, and what this machine carries (root)
    Probe {
        /// Interfaces; all but the loopback without
        interfaces: Vec<String>,
        /// Measure nothing
        #[arg(long)]
        no_rates: bool,
        /// JSON
        #[arg(short, long)]
        json: bool,
    },
    /// Manage live interfaces by a configuration, in the foreground (root)
    Up(commands::live::UpArguments),
    /// Run another configuration in a running `weir up`, without loss
    Apply {
        /// The altq.conf
        conf: PathBuf,
        /// Go back to what ran before, unless `weir confirm` comes in this time: `5m`, `30s`
        #[arg(long, value_name = "TIME", value_parser = commands::live::time)]
        confirm: Option<std::time::Duration>,
        #[command(flatten)]
        asked: Asked,
    },
    /// What a configuration would change in a running `weir up`; exit 1 if anything
    Diff {
        /// The altq.conf
        conf: PathBuf,
        #[command(flatten)]
        asked: Asked,
    },
    /// Change one value in a running `weir up`: `set eth1 voice pbandwidth 30`, `set eth1 bandwidth 20M`
    Set {
        /// The interface
        interface: String,
        /// A class if one is meant, an option, and its value, as altq.conf writes them
        #[arg(required = true)]
        words: Vec<String>,
        #[command(flatten)]
        asked: Asked,
    },
    /// Keep what `weir apply --confirm` has changed
    Confirm {
        /// The Unix socket of `weir up`
        #[arg(long, value_name = "PATH", default_value = commands::live::SOCKET)]
        socket: PathBuf,
    },
    /// Back to what ran before the last change
    Rollback {
        #[command(flatten)]
        asked: Asked,
    },
    /// Take away the path that the kernel carries traffic by after `weir up` has ended (root)
    Down {
        /// The altq.conf, or an interface
        what: PathBuf,
    },
    /// Have the kernel carry the traffic of a running `weir up`, without any discipline, or Weir again
    Bypass {
        /// Whether the kernel carries it
        bypass: commands::fail_open::Bypass,
        /// The Unix socket of the `weir up`
        #[arg(long, value_name = "PATH", default_value = commands::live::SOCKET)]
        socket: PathBuf,
    },
    /// How the interfaces and classes of a running `weir up` are; exit 1 if not as configured
    Status {
        #[command(flatten)]
        asked: Asked,
    },
    /// What a running `weir up` holds at brokers elsewhere
    Leases {
        #[command(flatten)]
        asked: Asked,
    },
    /// The flows that the edge of a running `weir up` knows
    Flows {
        /// Those of one contract
        #[arg(long, value_name = "ID")]
        sla: Option<u32>,
        #[command(flatten)]
        asked: Asked,
    },
    /// Read and set how a class of a running `weir up` asks for bandwidth
    Edge {
        #[command(subcommand)]
        action: commands::edge::Action,
    },
    /// Explain, evict, pin or unpin a flow of a running `weir up`
    Flow {
        /// What is to be done
        order: operate::request::FlowOrder,
        /// The flow: 'udp 10.0.8.9:42014 > 203.0.113.7:42038'
        flow: String,
        #[command(flatten)]
        asked: Asked,
    },
    /// Look at what enters a running `weir up` by an interface, or no longer
    Recognise {
        /// Whether it is looked at
        recognise: commands::edge::Switch,
        /// The interface by which packets enter
        interface: String,
        #[command(flatten)]
        asked: Asked,
    },
    /// Counters of a running `weir up`
    Stats {
        #[command(flatten)]
        asked: Asked,
        /// In the text form of Prometheus
        #[arg(long, conflicts_with = "json")]
        prometheus: bool,
        /// Answer GET /metrics there, as `127.0.0.1:9469`, until ^C
        #[arg(long, value_name = "ADDRESS:PORT", requires = "prometheus")]
        listen: Option<String>,
        /// With values for each contract
        #[arg(long, requires = "prometheus")]
        slas: bool,
    },
    /// Rates, drops and allocations of a running `weir up`, as they change
    Top {
        /// Time between two looks
        #[arg(long, value_name = "TIME", default_value = "1s", value_parser = commands::live::time)]
        every: std::time::Duration,
        /// The Unix socket of the `weir up`
        #[arg(long, value_name = "PATH", default_value = commands::live::SOCKET)]
        socket: PathBuf,
    },
    /// Part of `weir up`: sees to rules of the packet filter
    #[command(name = operate::rules::GUARD, hide = true)]
    Guard,
    /// Part of the lab: holds a namespace, sends or receives
    #[command(name = weir_lab::NODE_COMMAND, hide = true)]
    LabNode {
        /// Handed on
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

/// How a running `weir up` is asked, and answers.
#[derive(clap::Args)]
pub(crate) struct Asked {
    /// The Unix socket of `weir up`
    #[arg(long, value_name = "PATH", default_value = commands::live::SOCKET)]
    pub(crate) socket: PathBuf,
    /// JSON
    #[arg(short, long)]
    pub(crate) json: bool,
}

#[derive(Subcommand)]
enum ExperimentAction {
    /// What there is
    List {
        /// JSON
        #[arg(short, long)]
        json: bool,
    },
    /// Run some, or all
    Run {
        /// Ids, as `list` prints them
        ids: Vec<String>,
        /// All of them
        #[arg(long)]
        all: bool,
        /// Live in the lab instead of simulated (root)
        #[arg(long)]
        live: bool,
        /// Leave out those that measure this machine's speed
        #[arg(long)]
        no_bench: bool,
        /// JSON
        #[arg(short, long)]
        json: bool,
    },
}

/// The command, with what `registry` knows: reads the program's arguments, does what they say, and
/// answers the exit code. The lab starts the same program again for its hosts, so it must be the
/// first that `main` does.
pub fn main_with(registry: Registry) -> ExitCode {
    let registry = &registry;
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            let _ = e.print();
            return ExitCode::from(if e.use_stderr() { 2 } else { 0 });
        }
    };
    let result = match cli.command {
        Command::Check { files, json } => commands::check::run(registry, &files, json),
        Command::Sim { scenario, seed, out, packets, all, json } => {
            commands::run::simulate(registry, &scenario, seed, out.as_deref(), packets, all, json)
        }
        Command::Lab { scenario, seed, out, all, json } => {
            commands::run::lab(&scenario, seed, out.as_deref(), all, json)
        }
        Command::Compare { reports, out, json } => commands::run::compare(&reports, out.as_deref(), json),
        Command::Replay { conf, interface, trace, out, conditions, json } => {
            commands::conf::replay(registry, &conf, &interface, &trace, out.as_deref(), &conditions, json)
        }
        Command::Explain { conf, interface, packet, json } => {
            commands::conf::explain(registry, &conf, &interface, &packet, json)
        }
        Command::Experiment { action: ExperimentAction::List { json } } => commands::experiment::list(json),
        Command::Experiment { action: ExperimentAction::Run { ids, all, live, no_bench, json } } => {
            commands::experiment::run(registry, &ids, all, live, no_bench, json)
        }
        Command::Bench { names, rounds, json } => commands::bench::run(registry, &names, rounds, json),
        Command::Broker { action } => commands::broker::run(action),
        Command::Sla { action } => commands::sla::run(registry, action),
        Command::Disciplines { name, json } => commands::disciplines::run(registry, name.as_deref(), json),
        Command::Probe { interfaces, no_rates, json } => commands::probe::run(&interfaces, no_rates, json),
        Command::Down { what } => commands::fail_open::down(registry, &what),
        Command::Bypass { bypass, socket } => commands::fail_open::bypass(&socket, bypass),
        Command::Up(arguments) => commands::live::up(registry, arguments),
        Command::Guard => commands::live::guard(),
        Command::Apply { conf, confirm, asked } => {
            commands::live::apply(&conf, confirm, &asked.socket, asked.json)
        }
        Command::Diff { conf, asked } => commands::live::diff(&conf, &asked.socket, asked.json),
        Command::Set { interface, words, asked } => {
            commands::live::set(&interface, &words, &asked.socket, asked.json)
        }
        Command::Confirm { socket } => commands::live::confirm(&socket),
        Command::Rollback { asked } => commands::live::rollback(&asked.socket, asked.json),
        Command::Status { asked } => commands::live::status(&asked.socket, asked.json),
        Command::Edge { action } => commands::edge::edge(action),
        Command::Flows { sla, asked } => commands::edge::flows(sla, &asked.socket, asked.json),
        Command::Leases { asked } => commands::edge::leases(&asked.socket, asked.json),
        Command::Flow { order, flow, asked } => commands::edge::flow(order, &flow, &asked.socket, asked.json),
        Command::Recognise { recognise, interface, asked } => {
            commands::edge::recognise(recognise, &interface, &asked.socket, asked.json)
        }
        Command::Stats { asked, prometheus: true, listen, slas } => {
            commands::metrics::run(&asked.socket, listen.as_deref(), slas)
        }
        Command::Top { every, socket } => commands::top::run(&socket, every),
        Command::Stats { asked, .. } => commands::live::stats(&asked.socket, asked.json),
        Command::LabNode { arguments } => {
            weir_lab::node(registry, &arguments).map_err(commands::Failure::failed)
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.message.is_empty() {
                commands::tables::say(&failure.message);
            }
            ExitCode::from(failure.code)
        }
    }
}
