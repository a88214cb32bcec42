//! `weir down` and `weir bypass`: what the kernel carries without Weir.

use super::tables::say;
use super::{Done, Failure};
use crate::operate::ports::bridges;
use crate::operate::request::{Request, ask};
use std::io::ErrorKind;
use std::path::Path;
use weir_core::sched::Registry;
use weir_engine::fail_open;
use weir_engine::state::FailState;
use weir_engine::state::{BridgeState, Snapshot};
use weir_engine::up::{NFQUEUE, take_queue_away};

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
            let nothing = format!("interface {name} has no path of Weir's, and there is no such file");
            return match take_queue_away(name) {
                Ok(0) => Err(Failure::usage(nothing)),
                Ok(_) => {
                    say(&format!("{name}: the rule that hands its packets over is gone"));
                    Ok(())
                }
                // Rules outlive the command that lays them.
                Err(e) if e.kind() == ErrorKind::NotFound => {
                    Err(Failure::usage(format!("{nothing}; whether it has a rule cannot be seen: {e}")))
                }
                Err(e) => Err(Failure::failed(e)),
            };
        }
        _ => {
            let plan = super::conf::read(what, registry)?;
            bridges(&plan)?.iter().map(|pair| pair.map(str::to_owned)).collect()
        }
    };
    let (queues, pairs): (Vec<_>, Vec<_>) = pairs.into_iter().partition(|pair| pair[0] == NFQUEUE);
    let rule = |name: &String| match take_queue_away(name) {
        Ok(0) => Ok(format!("{name}: it had no rule")),
        Ok(_) => Ok(format!("{name}: the rule that hands its packets over is gone")),
        Err(e) => Err(e.to_string()),
    };
    // A renamed interface keeps its path, which leads to the other one all the same.
    let strays = pairs.iter().map(fail_open::leading_to).collect::<Result<Vec<_>, _>>();
    let strays = strays.map_err(Failure::failed)?;
    let path = |name: &String| match fail_open::take_down(name) {
        Ok(true) => Ok(format!("{name}: its path is gone")),
        Ok(false) => Ok(format!("{name}: it had no path")),
        Err(e) => Err(e.to_string()),
    };
    // One that cannot be taken away, of an interface that is gone for instance, keeps none of the others.
    let mut refused = Vec::new();
    for said in queues
        .iter()
        .map(|[_, name]| rule(name))
        .chain(pairs.iter().flatten().chain(strays.iter().flatten()).map(path))
    {
        match said {
            Ok(done) => say(&done),
            Err(why) => refused.push(why),
        }
    }
    if refused.is_empty() { Ok(()) } else { Err(Failure::failed(refused.join("\n"))) }
}

/// Whether the kernel is to carry the traffic.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Bypass {
    /// The kernel carries it.
    On,
    /// Weir does.
    Off,
}

/// `weir bypass`.
pub fn bypass(socket: &Path, bypass: Bypass) -> Done {
    let on = bypass == Bypass::On;
    let snapshot: Snapshot = ask(socket, &Request::Bypass { on })?;
    let mut refused = Vec::new();
    for BridgeState { interfaces: [left, right], silent, without, .. } in snapshot.bridges {
        match silent {
            Some(why) => refused.push(format!("bridge {left} {right}: no answer: {why}")),
            None if on && !without.bypassed => {
                refused.push(format!("bridge {left} {right} {}: not bypassed", fails(&without)));
            }
            None => {
                let who = if without.bypassed { "the kernel, without any discipline" } else { "weir" };
                say(&format!("bridge {left} {right}: the traffic is carried by {who}"));
            }
        }
    }
    if refused.is_empty() { Ok(()) } else { Err(Failure::failed(refused.join("\n"))) }
}
