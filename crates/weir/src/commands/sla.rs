//! `weir sla`: contracts as a table, to an altq.conf and back.

use super::tables::table;
use super::{Done, Failure, conf, print_json, text_of};
use serde_json::json;
use std::path::{Path, PathBuf};
use weir_conf::contracts;
use weir_core::sched::Registry;
use weir_text::Diagnostics;

/// What is done with contracts.
#[derive(clap::Subcommand)]
pub enum Action {
    /// The contracts of a configuration
    List {
        /// The altq.conf
        conf: PathBuf,
        /// JSON
        #[arg(short, long)]
        json: bool,
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

/// `weir sla`.
pub fn run(registry: &Registry, action: Action) -> Done {
    match action {
        Action::List { conf, json } => list(registry, &conf, json),
        Action::Import { csv, interface } => {
            let lines = contracts::import(&csv.display().to_string(), &text_of(&csv)?, &interface);
            let lines = lines.map_err(|said| Failure::usage(Diagnostics(said)))?;
            lines.iter().for_each(|line| out!("{line}"));
            Ok(())
        }
        Action::Export { conf } => {
            let (table, lost) = contracts::export(&conf::read(&conf, registry)?);
            out!("{}", table.trim_end());
            for lost in lost {
                eprintln!("weir: the table has no column for this of {lost}");
            }
            Ok(())
        }
    }
}

fn list(registry: &Registry, path: &Path, json: bool) -> Done {
    let plan = conf::read(path, registry)?;
    let all = contracts::rows(&plan);
    if json {
        let rows: Vec<_> = all
            .iter()
            .map(|row| {
                json!({
                    "interface": row.interface,
                    "id": row.id,
                    "prefixes": row.prefixes,
                    "bandwidth_bps": row.bandwidth.as_bps(),
                    "shared_percent": row.shared.parse::<f64>().unwrap_or_default(),
                    "dscp": row.dscp.value(),
                    "policy": row.policy,
                    "class": row.class,
                    "timeout_ns": row.timeout.as_nanos(),
                    "flows": row.flows,
                })
            })
            .collect();
        return print_json(&json!({ "contracts": rows }));
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
            row.bandwidth.to_string(),
            row.shared + " %",
            row.dscp.to_string(),
            row.policy.to_string(),
            row.class.unwrap_or_else(|| "-".into()),
            row.timeout.to_string(),
            row.flows.to_string(),
        ]);
    }
    rows.print();
    Ok(())
}
