//! `weir up --takeover`: another process, often of a newer program, goes on with a running box.
//!
//! What passes, and how, stands in `weir_engine::takeover`. Here is what the two must agree on before: who
//! bridges what, and which seeds the ports have.

use super::ports::bridges;
use super::request::{Legacy, Request, ask, refusal, refused};
use super::{Configuration, Operator, Workers};
use crate::commands::Failure;
use crate::operate::rules::Rules;
use crate::operate::state::LastGood;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use weir_conf::Plan;
use weir_core::sched::Registry;
use weir_engine::Snapshot;
use weir_engine::server::{Answer, Server};
use weir_engine::state::BridgeState;
use weir_engine::takeover::{NotTaken, PROTOCOL, Taken, take};
use weir_engine::up::{Way, has_queue};
use weir_sys::passing::{own_uid, peer_of};

/// Whether somebody serves at `socket`, whose box could be taken over.
pub fn runs(socket: &Path) -> Result<bool, Failure> {
    match UnixStream::connect(socket) {
        Ok(_) => Ok(true),
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => Ok(false),
        Err(e) => Err(Failure::failed(format!("{}: {e}", socket.display()))),
    }
}

/// What a plan bridges, whichever side it names first.
fn wanted(plan: &Plan) -> Result<BTreeSet<[String; 2]>, Failure> {
    let mut pairs: Vec<[String; 2]> = bridges(plan)?.iter().map(|pair| pair.map(str::to_owned)).collect();
    pairs.iter_mut().for_each(|pair| pair.sort_unstable());
    Ok(pairs.into_iter().collect())
}

fn listed(pairs: &BTreeSet<[String; 2]>) -> String {
    pairs.iter().map(|[a, b]| format!("{a} and {b}")).collect::<Vec<_>>().join(", ")
}

/// Succeeds if somebody has the queue of each interface that a plan has queued: before rules are laid for them.
pub fn possible(plan: &Plan) -> Result<(), Failure> {
    match plan.queues().find(|interface| !has_queue(interface)) {
        None => Ok(()),
        Some(interface) => Err(Failure::usage(format!(
            "the running weir queues nothing of {interface}: `weir apply` this file first; if it should, the device was made anew: end the running weir and start this one"
        ))),
    }
}

impl<'r> Operator<'r> {
    /// Takes over the box that serves at `socket`, and runs `configuration` on it.
    pub fn take_over(
        registry: &'r Registry,
        configuration: Configuration,
        workers: Workers,
        state: LastGood,
        rules: Rules,
        socket: &Path,
    ) -> Result<(Self, Server), Failure> {
        let mut operator = Operator::of_nothing(registry, configuration, workers, state, rules)?;
        match operator.take(socket) {
            Ok(server) => {
                operator.rules.keep();
                Ok((operator, server))
            }
            Err(failure) => {
                operator.rules.undo();
                Err(failure)
            }
        }
    }

    fn take(&mut self, socket: &Path) -> Result<Server, Failure> {
        let Snapshot { bridges: running, .. } = ask(socket, &Request::Stats)?;
        let plan = self.running.plan.clone();
        let there: BTreeSet<[String; 2]> =
            running.iter().map(|bridge| bridge.interfaces.clone()).map(sorted).collect();
        let here = wanted(&plan)?;
        if here != there {
            return Err(Failure::usage(format!(
                "the running weir bridges {}, and this file {}: `weir apply` this file first, or take over with the other one",
                listed(&there),
                listed(&here)
            )));
        }
        let (mut pairs, mut asked) = (Vec::new(), Vec::new());
        for BridgeState { interfaces: [left, right], egresses, silent, .. } in &running {
            if let Some(why) = silent {
                return Err(Failure::failed(format!("the running weir between {left} and {right}: {why}")));
            }
            is_passed(left, right, plan.workers(&[left, right]))?;
            let pair = self.pair(&plan, [left, right], egresses)?;
            asked.push((left.clone(), right.clone(), pair.fails_closed));
            pairs.push(pair);
        }
        let request = Request::Takeover { protocol: PROTOCOL, bridges: asked };
        let request = serde_json::to_string(&request).map_err(Failure::failed)?;
        let Taken { up, listener, extra } = take(socket, &request, pairs).map_err(|why| match why {
            NotTaken::Refused(line) => refused(&line).unwrap_or_else(|| {
                Failure::failed(format!("the running weir does not know takeovers: {line}"))
            }),
            NotTaken::OtherWay { interfaces: [left, right], runs } => Failure::usage(format!(
                "the running weir has {} between {left} and {right}: `weir apply` this file first, or take over with the other one",
                match runs {
                    Way::Packet => "no `xdp`",
                    Way::Xdp { busy_poll: false } => "`xdp`",
                    Way::Xdp { busy_poll: true } => "`xdp busy-poll`",
                }
            )),
            NotTaken::Failed(e) => Failure::failed(format!("not taken over: {e}")),
        })?;
        self.up = up;
        let legacy: Option<Legacy> = serde_json::from_value(extra).ok();
        // Its classes have what was granted to them there.
        let carried = legacy.as_ref().map(|legacy| legacy.leases.clone());
        self.remotes.begin(carried.unwrap_or_default());
        if let Some(Legacy { running, previous, findings, .. }) = legacy {
            let read =
                |text: String| Configuration::read("the configuration before", &text, self.registry).ok();
            // The file of this start is a change like another one.
            let same = running == self.running.text;
            self.previous = if same { previous.and_then(read) } else { read(running) };
            if same {
                self.status.go_on(weir_sys::now(), findings);
            }
        }
        self.keep();
        Server::over(socket, listener).map_err(Failure::failed)
    }

    /// What becomes of a request for everything, the socket at which this box is asked included; `None` if it is another
    /// request.
    pub fn give(&mut self, line: &str, stream: &UnixStream, listener: BorrowedFd<'_>) -> Option<Answer> {
        let Ok(Request::Takeover { protocol, bridges }) = serde_json::from_str(line) else { return None };
        if let Err(failure) = self.may_give(protocol, &bridges, stream) {
            return Some(Answer::Line(refusal(&failure)));
        }
        let findings = self.status.findings(weir_sys::now());
        let previous = self.previous.as_ref().map(|before| before.text.clone());
        // From here on nobody asks in the name of this box but the process that takes over.
        let leases = self.remotes.stop();
        let legacy =
            Legacy { running: self.running.text.clone(), previous, findings, leases: leases.clone() };
        let extra = serde_json::to_value(legacy).unwrap_or_default();
        let refuse =
            |why: &io::Error| refusal(&Failure::failed(format!("not handed over: {why}; all goes on here")));
        match self.up.give(stream, listener, &extra, refuse) {
            Ok(stood) => {
                let pid = peer_of(stream).map_or(0, |peer| peer.pid);
                let stood_ms = stood.as_secs_f64() * 1e3;
                weir_sys::say(&format!("process {pid} has taken over; packets waited for {stood_ms:.1} ms"));
                Some(Answer::Last)
            }
            Err(why) => {
                self.remotes.begin(leases);
                weir_sys::say(&format!("not handed over: {why}; all goes on here"));
                Some(Answer::Told)
            }
        }
    }

    fn may_give(
        &self,
        protocol: u32,
        bridges: &[(String, String, bool)],
        stream: &UnixStream,
    ) -> Result<(), Failure> {
        if peer_of(stream).map_err(Failure::failed)?.uid != own_uid() {
            return Err(Failure::impossible("only the user that runs a weir takes over from it"));
        }
        if protocol != PROTOCOL {
            return Err(Failure::impossible(format!(
                "the running weir hands over by protocol {PROTOCOL}, and this one takes over by {protocol}: end the running one and start this one"
            )));
        }
        if self.confirm_by.is_some() {
            return Err(Failure::failed(
                "a change waits to be confirmed: `weir confirm` or `weir rollback` first",
            ));
        }
        let plan = &self.running.plan;
        for (left, right, _) in bridges {
            is_passed(left, right, plan.workers(&[left, right]))?;
        }
        let same = |((left, right, closed), (names, _)): (&(String, String, bool), (&[String; 2], _))| {
            [left, right] == [&names[0], &names[1]] && *closed == plan.fails_closed(&[left, right])
        };
        if bridges.len() != self.up.bridges().count() || !bridges.iter().zip(self.up.bridges()).all(same) {
            return Err(Failure::usage(
                "the running weir bridges other interfaces, or they fail otherwise: `weir apply` this file first, or take over with the other one",
            ));
        }
        Ok(())
    }

    /// Ends a box that another process has.
    pub fn leave(self) {
        self.up.leave();
    }
}

/// What is divided between several workers does not pass to another process.
fn is_passed(left: &str, right: &str, workers: usize) -> Result<(), Failure> {
    if workers <= 2 {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "the bridge between {left} and {right} has {workers} workers, which share its ports, and is not taken over: end the running weir and start this one; meanwhile the kernel carries what fails open"
    )))
}

fn sorted(mut pair: [String; 2]) -> [String; 2] {
    pair.sort_unstable();
    pair
}
