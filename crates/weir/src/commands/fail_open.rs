//! `weir down` and `weir bypass`: what the kernel carries without Weir.

use super::{Done, Failure};
use std::path::Path;
use std::time::Duration;
use weir_core::sched::Registry;
use weir_engine::control::{BridgeState, Snapshot};
use weir_engine::fail_open::{self, FailState};
use weir_engine::server;
use weir_engine::up::Up;

/// What becomes of the traffic of a bridge without its worker, in words.
pub fn fails(without: &FailState) -> String {
    format!("fails {}: {}", if without.open { "open" } else { "closed" }, without.how)
}

/// `weir down`: takes the path away that the kernel carries traffic by after `weir up` has ended.
/// `what` is a configuration, or the name of an interface.
pub fn down(registry: &Registry, what: &Path) -> Done {
    let pairs: Vec<[String; 2]> = match what.to_str().map(|name| (name, fail_open::peer(name))) {
        Some((name, Ok(Some(peer)))) => vec![[name.to_owned(), peer]],
        Some((name, Ok(None))) if !what.exists() => {
            return Err(Failure::usage(format!(
                "interface {name} has no path of Weir's, and there is no such file"
            )));
        }
        _ => {
            let plan = super::conf::read(what, registry)?;
            super::live::bridges(&plan)?.iter().map(|pair| pair.map(str::to_owned)).collect()
        }
    };
    for name in pairs.iter().flatten() {
        let removed = fail_open::take_down(name).map_err(Failure::failed)?;
        eprintln!("weir: {name}: {}", if removed { "its path is gone" } else { "it had no path" });
    }
    Ok(())
}

/// Whether the kernel is to carry the traffic.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Bypass {
    /// The kernel carries it.
    On,
    /// Weir does.
    Off,
}

impl Bypass {
    /// What the socket of `weir up` is asked.
    fn request(self) -> &'static str {
        match self {
            Bypass::On => "bypass on",
            Bypass::Off => "bypass off",
        }
    }
}

/// Does what a request to the socket says, if it is about this.
pub fn obey(request: &str, up: &Up) {
    if let Some(bypass) = [Bypass::On, Bypass::Off].into_iter().find(|bypass| bypass.request() == request) {
        up.bypass(bypass == Bypass::On);
    }
}

/// `weir bypass`.
pub fn bypass(socket: &Path, bypass: Bypass) -> Done {
    let text = server::ask(socket, bypass.request(), Duration::from_secs(5))
        .map_err(|e| Failure::failed(format!("{e}; is it this --socket?")))?;
    let snapshot: Snapshot = serde_json::from_str(&text).map_err(Failure::failed)?;
    let on = bypass == Bypass::On;
    let mut refused = Vec::new();
    for BridgeState { interfaces: [left, right], silent, without, .. } in snapshot.bridges {
        match silent {
            Some(why) => refused.push(format!("bridge {left} {right}: no answer: {why}")),
            None if on && !without.open => {
                refused.push(format!("bridge {left} {right} {}: not bypassed", fails(&without)));
            }
            None => {
                let who = if without.bypassed { "the kernel, without any discipline" } else { "weir" };
                eprintln!("weir: bridge {left} {right}: the traffic is carried by {who}");
            }
        }
    }
    if refused.is_empty() { Ok(()) } else { Err(Failure::failed(refused.join("\n"))) }
}
