//! `weir sla`: contracts as a table, to an altq.conf and back.

use super::kind::{Kind, wants};
use super::live::by_hand;
use super::tables::{say, table};
use super::{Done, Failure, conf, print_json, text_of};
use crate::Asked;
use crate::operate::request::{Applied, Contract, ContractOrder, Request, ask};
use serde_json::json;
use std::path::{Path, PathBuf};
use weir_conf::contracts;
use weir_core::packet::Dscp;
use weir_core::sched::Registry;
use weir_text::{Diagnostics, Unit, show};

/// What is done with contracts.
#[derive(clap::Subcommand)]
pub enum Action {
    /// The contracts of a configuration, or of a running `weir up`
    List {
        /// The altq.conf; the running box is asked without
        conf: Option<PathBuf>,
        #[command(flatten)]
        asked: Asked,
    },
    /// A new contract in a running `weir up`: `sla add lan0 17 198.51.100.17/32 bw 512K policy be`
    Add(One),
    /// Other words of a contract of a running `weir up`: `sla set lan0 17 bw 1M`
    Set(One),
    /// The end of a contract in a running `weir up`
    Del {
        /// The interface by which its packets enter
        interface: String,
        /// Its number
        id: u32,
        #[command(flatten)]
        asked: Asked,
    },
    /// The `sla` lines of a table: ID, IP, Mask, BW, Shared, DSCP, Policy, separated by commas
    Import {
        /// The table
        csv: PathBuf,
        /// The interface by which their packets enter
        #[arg(long, value_name = "IF")]
        interface: String,
    },
    /// The contracts of a configuration as a table
    Export {
        /// The altq.conf
        conf: PathBuf,
    },
}

/// A contract by its words.
#[derive(clap::Args)]
pub struct One {
    /// The interface by which its packets enter
    interface: String,
    /// Its number
    id: u32,
    /// Its prefixes and options, as altq.conf writes them behind the number
    #[arg(required = true)]
    words: Vec<String>,
    #[command(flatten)]
    asked: Asked,
}

/// `weir sla`.
pub fn run(registry: &Registry, action: Action) -> Done {
    match action {
        Action::List { conf, asked } => list(registry, conf.as_deref(), &asked),
        Action::Add(One { interface, id, words, asked }) => {
            change(Request::Contract { interface, id, change: ContractOrder::Add, words }, &asked)
        }
        Action::Set(One { interface, id, words, asked }) => {
            change(Request::Contract { interface, id, change: ContractOrder::Set, words }, &asked)
        }
        Action::Del { interface, id, asked } => {
            let change_it =
                Request::Contract { interface, id, change: ContractOrder::Del, words: Vec::new() };
            change(change_it, &asked)
        }
        Action::Import { csv, interface } => {
            wants(Kind::Contracts, &csv)?;
            let lines = contracts::import(&csv.display().to_string(), &text_of(&csv)?, &interface);
            let lines = lines.map_err(|said| Failure::usage(Diagnostics(said)))?;
            lines.iter().for_each(|line| out!("{line}"));
            Ok(())
        }
        Action::Export { conf } => {
            let (table, lost) = contracts::export(&conf::read(&conf, registry)?);
            out!("{}", table.trim_end());
            for lost in lost {
                say(&format!("the table has no column for this of {lost}"));
            }
            Ok(())
        }
    }
}

/// Has a contract changed in a running box.
fn change(request: Request, asked: &Asked) -> Done {
    let applied: Applied = ask(&asked.socket, &request)?;
    by_hand(&applied, asked.json)
}

fn list(registry: &Registry, path: Option<&Path>, asked: &Asked) -> Done {
    let all: Vec<Contract> = match path {
        Some(path) => contracts::rows(&conf::read(path, registry)?).into_iter().map(Contract::from).collect(),
        None => ask(&asked.socket, &Request::Contracts)?,
    };
    if asked.json {
        return print_json(&json!({ "contracts": all }));
    }
    let mut rows = table(&[
        ">ID",
        "INTERFACE",
        "PREFIXES",
        ">BW",
        ">SHARED",
        "DSCP",
        "POLICY",
        "CLASS",
        ">TIMEOUT",
        ">FLOWS",
    ]);
    for row in all {
        rows.add(vec![
            row.id.to_string(),
            row.interface,
            row.prefixes.join(" "),
            show(row.bandwidth_bps as f64, Unit::Rate),
            format!("{} %", row.shared_percent),
            Dscp::new(row.dscp).map_or_else(|| row.dscp.to_string(), |dscp| dscp.to_string()),
            row.policy,
            row.class.unwrap_or_else(|| "-".into()),
            row.timeout_ns.map_or_else(|| "-".into(), |ns| show(ns as f64, Unit::Time)),
            row.flows.to_string(),
        ]);
    }
    rows.print();
    Ok(())
}
