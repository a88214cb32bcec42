//! The box as something that an operator runs: one owner of the bridges, who answers requests,
//! changes what runs without loss, and goes back if nobody confirms.
//!
//! - [`ports`]: from a plan to ports, and from two plans to what changes.
//! - [`state`]: the last good configuration on disk.
//! - [`rules`]: those of the packet filter.
//! - [`takeover`]: another process goes on with all of it.
//! - [`request`]: what can be asked through the socket.
//!
//! Everything here runs in the main thread. The workers only ever get what is built already.

pub mod ports;
pub mod request;
pub mod rules;
pub mod state;
pub mod takeover;

use crate::commands::Failure;
use ports::{Ready, Side, bridges, port};
use request::{Applied, Report, Request};
use rules::Rules;
use state::LastGood;
use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};
use weir_conf::plan::Xdp;
use weir_conf::{Difference, Plan, diff};
use weir_core::sched::Registry;
use weir_engine::status::Status;
use weir_engine::up::{NFQUEUE, Pair, Side as EngineSide, Up, Way, is_up, up};
use weir_engine::worker::Pace;
use weir_engine::{Change, Changed, Control, Delay, Snapshot};
use weir_sys::Priority;

/// A configuration with its text.
#[derive(Clone)]
pub struct Configuration {
    /// The text as it was given.
    pub text: String,
    /// What it says.
    pub plan: Plan,
}

impl Configuration {
    /// Reads a text that the person knows as `name`; warnings go to standard error.
    pub fn read(name: &str, text: &str, registry: &Registry) -> Result<Self, Failure> {
        let outcome = weir_conf::read(name, text, registry);
        let (errors, warnings): (Vec<_>, Vec<_>) = outcome.diagnostics.iter().partition(|d| d.is_error());
        warnings.iter().for_each(|warning| weir_sys::say(&warning.to_string()));
        match outcome.plan {
            Some(plan) => Ok(Configuration { text: text.to_string(), plan }),
            None => {
                let all: Vec<String> = errors.iter().map(ToString::to_string).collect();
                Err(Failure::usage(format!("{name}: this configuration cannot be used\n{}", all.join("\n"))))
            }
        }
    }
}

/// How workers are started.
#[derive(Clone)]
pub struct Workers {
    /// Processors that they stay on, each on the next; none: anywhere.
    pub cpus: Vec<usize>,
    /// Their precedence.
    pub priority: Priority,
    /// Whether interfaces are bridged although somebody else takes their frames, too.
    pub force: bool,
}

/// How often counters are held against intent.
const LOOK: Duration = Duration::from_secs(1);

/// The owner of a running box.
pub struct Operator<'r> {
    registry: &'r Registry,
    up: Up,
    workers: Workers,
    started: usize,
    running: Configuration,
    /// What ran before the last change.
    previous: Option<Configuration>,
    /// When the box goes back to it, if nobody confirms.
    confirm_by: Option<Instant>,
    state: LastGood,
    /// The MTUs that ports were built for.
    mtus: BTreeMap<String, u32>,
    rules: Rules,
    status: Status,
    /// When the counters were last held against intent.
    looked: Option<Instant>,
}

/// Why a bridge cannot be brought up.
fn refused(e: std::io::Error) -> Failure {
    match e.kind() {
        std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::Unsupported => Failure::impossible(e),
        std::io::ErrorKind::ResourceBusy => {
            Failure::impossible(format!("{e}\n`weir up --force` goes on all the same"))
        }
        std::io::ErrorKind::NotFound => Failure::usage(e),
        _ => Failure::failed(e),
    }
}

/// The sides of a bridge: the direction whose egress it is, and its place in the plan.
fn sides<'p>(plan: &'p Plan, [left, right]: [&'p str; 2]) -> [(usize, Side<'p>); 2] {
    [(0, Side { plan, name: right, peer: left }), (1, Side { plan, name: left, peer: right })]
}

impl<'r> Operator<'r> {
    /// Brings up what a configuration says, and keeps it as the last good one.
    pub fn start(
        registry: &'r Registry,
        configuration: Configuration,
        workers: Workers,
        state: LastGood,
        rules: Rules,
    ) -> Result<Self, Failure> {
        let mut operator = Operator::of_nothing(registry, configuration, workers, state, rules);
        let plan = operator.running.plan.clone();
        if let Err(failure) = operator.bring_up(&plan) {
            operator.rules.undo();
            return Err(failure);
        }
        operator.rules.keep();
        operator.look();
        operator.keep();
        Ok(operator)
    }

    /// The owner of no bridges yet.
    fn of_nothing(
        registry: &'r Registry,
        configuration: Configuration,
        workers: Workers,
        state: LastGood,
        rules: Rules,
    ) -> Self {
        Operator {
            registry,
            up: Up::default(),
            workers,
            started: 0,
            running: configuration,
            previous: None,
            confirm_by: None,
            state,
            mtus: BTreeMap::new(),
            rules,
            status: Status::default(),
            looked: None,
        }
    }

    fn bring_up(&mut self, plan: &Plan) -> Result<(), Failure> {
        let pairs = bridges(plan)?;
        let bridges = pairs.iter().map(|pair| self.pair(plan, *pair, [None, None]));
        self.up = up(bridges.collect::<Result<_, _>>()?).map_err(refused)?;
        Ok(())
    }

    /// The bridges.
    pub fn up(&self) -> &Up {
        &self.up
    }

    /// Ends the box: its last statistics.
    pub fn stop(self) -> Snapshot {
        self.up.stop()
    }

    /// Starts a bridge.
    fn add(&mut self, plan: &Plan, pair: [&str; 2]) -> Result<(), Failure> {
        let pair = self.pair(plan, pair, [None, None])?;
        self.up.add(pair).map_err(refused)
    }

    /// A bridge with its ports, and the seeds of those that they go on with: of the egress on the right, then
    /// on the left.
    fn pair(&mut self, plan: &Plan, pair: [&str; 2], seeds: [Option<u64>; 2]) -> Result<Pair, Failure> {
        let [right, left] = sides(plan, pair).map(|(direction, side)| {
            let port = self.ready(side)?.map(|ready| port(ready, seeds[direction])).transpose()?;
            Ok::<_, Failure>(EngineSide { interface: side.name.to_owned(), port, delay: Delay::default() })
        });
        let Workers { cpus, priority, force } = &self.workers;
        let (priority, force) = (*priority, *force);
        let count = if pair[0] == NFQUEUE { 1 } else { plan.workers(&pair) };
        let cpu = |started: usize| cpus.get(started % cpus.len().max(1)).copied();
        let all = self.started..self.started + count;
        let workers = all.map(|n| Pace { cpu: cpu(n), priority, ..Pace::default() }).collect();
        self.started += count;
        let way = match plan.xdp(&pair) {
            None => Way::Packet,
            Some(how) => Way::Xdp { busy_poll: how == Xdp::BusyPoll },
        };
        Ok(Pair { way, workers, force, fails_closed: plan.fails_closed(&pair), ..Pair::new(left?, right?) })
    }

    /// What is to stand at an egress, for the interfaces' MTUs of now.
    fn ready(&mut self, side: Side<'_>) -> Result<Option<Ready>, Failure> {
        let Some(name) = side.described_by() else { return Ok(None) };
        // A bridged interface may have another name by now.
        let watched = self.links().find(|(interface, _)| interface == name).map(|(_, mtu)| mtu);
        let mtu = match watched {
            Some(mtu) => mtu,
            None => {
                weir_sys::interface(name).map_err(|e| Failure::usage(format!("interface {name}: {e}")))?.mtu
            }
        };
        self.mtus.insert(name.to_string(), mtu);
        side.ready(self.registry, mtu)
    }

    /// The interfaces that are served, and their MTUs: those that are watched, and those whose packets the
    /// packet filter hands over, which are looked at.
    fn links(&self) -> impl Iterator<Item = (String, u32)> {
        let links = |(names, control): (&[String; 2], Control)| {
            let looked = |name: &str| Some((name.to_owned(), weir_sys::interface(name).ok()?.mtu));
            let queue = (names[0] == NFQUEUE).then(|| looked(&names[1])).flatten();
            let watched = names.clone().into_iter().zip(control.links());
            let watched = watched.filter(|(_, link)| !link.state.is_empty());
            watched.map(|(name, link)| (name, link.mtu)).chain(queue)
        };
        self.up.bridges().flat_map(links)
    }

    /// Gives ports another plan whose interface has another MTU by now. What waits stays.
    fn follow(&mut self) {
        let moved = |(name, mtu): &(String, u32)| self.mtus.get(name).is_some_and(|known| known != mtu);
        let moved: Vec<(String, u32)> = self.links().filter(moved).collect();
        if moved.is_empty() {
            return;
        }
        let plan = self.running.plan.clone();
        let running: Vec<([String; 2], Control)> =
            self.up.bridges().map(|(names, control)| (names.clone(), control)).collect();
        for (name, mtu) in moved {
            self.mtus.insert(name.clone(), mtu);
            for (names, control) in &running {
                for (direction, side) in sides(&plan, [&*names[0], &*names[1]]) {
                    if side.described_by() != Some(&*name) {
                        continue;
                    }
                    let changed = self.ready(side).and_then(|ready| {
                        let Some(ready) = ready else { return Ok(()) };
                        let change = Change::Plan(Box::new(ready.plan));
                        control.change(direction, change).map(drop).map_err(Failure::failed)
                    });
                    if let Err(failure) = changed {
                        let why = failure.message;
                        weir_sys::say(&format!(
                            "the port of {name} stays as it was before its MTU of {mtu}: {why}"
                        ));
                    }
                }
            }
        }
    }

    /// Runs another configuration in the place of the present one: all of it, or nothing changes.
    /// With `confirm` the box goes back by itself unless [`Request::Confirm`] comes in that time.
    pub fn apply(&mut self, new: Configuration, confirm: Option<Duration>) -> Result<Applied, Failure> {
        let differences = diff(&self.running.plan, &new.plan);
        let changed = self.change_to(&new.plan);
        match &changed {
            Ok(_) => self.rules.keep(),
            Err(_) => self.rules.undo(),
        }
        let (in_place, exchanged) = changed?;
        let old = std::mem::replace(&mut self.running, new);
        self.status.begin_anew();
        self.look();
        // What nobody has confirmed is nothing to go back to.
        if self.confirm_by.is_none() {
            self.previous = Some(old);
        }
        self.confirm_by = confirm.map(|time| Instant::now() + time);
        if confirm.is_none() {
            self.keep();
        }
        Ok(Applied {
            differences: differences.iter().map(Into::into).collect(),
            ports_changed_in_place: in_place,
            ports_exchanged: exchanged,
            confirm_within_ns: confirm.map(|time| time.as_nanos() as u64),
        })
    }

    /// The last change is to stay.
    pub fn confirm(&mut self) -> Result<(), Failure> {
        if self.confirm_by.take().is_none() {
            return Err(Failure::usage("nothing waits to be confirmed: `weir apply --confirm TIME` would"));
        }
        self.keep();
        Ok(())
    }

    /// Back to what ran before the last change.
    pub fn roll_back(&mut self) -> Result<Applied, Failure> {
        let Some(previous) = self.previous.take() else {
            return Err(Failure::usage(
                "nothing ran before: the configuration is the one of the start, or was rolled back to",
            ));
        };
        let applied = self.apply(previous.clone(), None);
        match &applied {
            // There is one step back, not a circle.
            Ok(_) => self.previous = None,
            Err(_) => self.previous = Some(previous),
        }
        applied
    }

    /// Does what is due: goes back if a confirmation did not come, and follows the interfaces.
    pub fn tick(&mut self) {
        if self.confirm_by.take_if(|by| *by <= Instant::now()).is_some() {
            match self.roll_back() {
                Ok(_) => weir_sys::say("nobody confirmed: the configuration before runs again"),
                Err(failure) => {
                    weir_sys::say(&format!("nobody confirmed, and the way back failed: {}", failure.message))
                }
            }
        }
        self.follow();
        if self.looked.is_none_or(|looked| looked.elapsed() >= LOOK) {
            self.look();
        }
    }

    /// Holds the counters against intent.
    fn look(&mut self) {
        self.looked = Some(Instant::now());
        let snapshot = self.up.snapshot();
        let plan = &self.running.plan;
        // What is sent to a class with classes below waits in one of those.
        let expected = plan.interfaces.iter().flat_map(|interface| {
            let branches: HashSet<&str> =
                interface.classes.iter().filter_map(|class| class.parent.as_deref()).collect();
            let targets = interface.filters.iter().map(|filter| filter.class.as_str());
            targets
                .filter(move |class| !branches.contains(class))
                .map(|class| (interface.name.as_str(), class))
        });
        let expected: HashSet<(&str, &str)> = expected.collect();
        let filtered = |interface: &str, class: &str| expected.contains(&(interface, class));
        self.status.observe(weir_sys::now(), &snapshot, &filtered);
    }

    /// How the interfaces and classes are.
    fn report(&self) -> Report {
        let findings = self.status.findings(weir_sys::now());
        let left = |by: Instant| by.saturating_duration_since(Instant::now()).as_nanos() as u64;
        Report {
            as_configured: findings.iter().all(|finding| finding.state.is_well()),
            findings,
            confirm_within_ns: self.confirm_by.map(left),
        }
    }

    /// Keeps what runs as the last good configuration; a disk that refuses stops nothing.
    fn keep(&self) {
        if let Err(e) = self.state.keep(&self.running.text) {
            weir_sys::say(&format!("the last good configuration is not kept: {e}"));
        }
    }

    /// What a configuration would change.
    pub fn differences(&self, new: &Plan) -> Vec<Difference> {
        diff(&self.running.plan, new)
    }

    /// One value of what runs, changed. The first word is a class if the interface has one of that
    /// name, or if there are words enough for one.
    pub fn set(&mut self, interface: &str, words: &[String]) -> Result<Applied, Failure> {
        let view = self.running.plan.interface(interface).map_err(Failure::usage)?;
        let class = words.first().filter(|first| words.len() > 2 || view.class(first).is_some());
        let option = words[usize::from(class.is_some())..].join(" ");
        let plan = self.running.plan.with(self.registry, interface, class.map(String::as_str), &option);
        let plan = plan.map_err(|all| {
            let all: Vec<String> = all.iter().filter(|d| d.is_error()).map(ToString::to_string).collect();
            Failure::usage(all.join("\n"))
        })?;
        let text = plan.source.lines().join("\n") + "\n";
        self.apply(Configuration { text, plan }, None)
    }

    /// Changes what runs from the present plan to `new`: how many ports in place, and how many
    /// anew. Everything is built, and every interface looked at, before anything changes.
    fn change_to(&mut self, new: &Plan) -> Result<(usize, usize), Failure> {
        let old = self.running.plan.clone();
        let wanted = bridges(new)?;
        let closed = |pair: &[&str; 2]| [old.fails_closed(pair), new.fails_closed(pair)];
        let is = |a: &[String; 2], b: &[&str; 2]| {
            let names = (a[0] == b[0] && a[1] == b[1]) || (a[0] == b[1] && a[1] == b[0]);
            // A bridge whose packets are to come in another way is another bridge. So is one by AF_XDP
            // that is to fail in another way: its program is another one.
            let same_way = old.xdp(b) == new.xdp(b) && (new.xdp(b).is_none() || closed(b)[0] == closed(b)[1]);
            // Nor can a direction move to another thread.
            names && same_way && old.workers(b) == new.workers(b)
        };
        let running: Vec<([String; 2], Control)> =
            self.up.bridges().map(|(interfaces, control)| (interfaces.clone(), control)).collect();
        let (kept, gone): (Vec<_>, Vec<_>) =
            running.iter().partition(|(names, _)| wanted.iter().any(|pair| is(names, pair)));
        let added: Vec<[&str; 2]> =
            wanted.iter().filter(|pair| !running.iter().any(|(names, _)| is(names, pair))).copied().collect();
        let sick = self.sick();
        let mut changes = Vec::new();
        for (names, control) in &kept {
            let pair = [&*names[0], &*names[1]];
            for ((direction, now), (_, before)) in sides(new, pair).into_iter().zip(sides(&old, pair)) {
                let is_sick = sick.contains(&names[1 - direction]);
                if is_sick || !now.is_as(&before) {
                    let params = now.params_since(&before, self.registry).filter(|_| !is_sick);
                    changes.push((control.clone(), direction, now, params, self.ready(now)?));
                }
            }
        }
        for pair in &added {
            if pair[0] == NFQUEUE {
                self.rules.lay(pair[1])?;
            }
            for (_, side) in sides(new, *pair) {
                if side.name == NFQUEUE {
                    continue;
                }
                is_up(side.name).map_err(Failure::usage)?;
                self.ready(side)?;
            }
            if !self.workers.force && pair[0] != NFQUEUE {
                let going: Vec<&[String; 2]> = gone.iter().map(|(names, _)| names).collect();
                self.up.possible(&pair.map(str::to_string), &going).map_err(refused)?;
            }
        }
        // From here on things change. Interfaces may move from a bridge that goes to one that comes.
        gone.iter().for_each(|(names, _)| _ = self.up.remove(names));
        for (index, pair) in added.iter().enumerate() {
            if let Err(failure) = self.add(new, *pair) {
                for [left, right] in &added[..index] {
                    self.up.remove(&[(*left).to_string(), (*right).to_string()]);
                }
                for (names, _) in &gone {
                    if let Err(worse) = self.add(&old, [&*names[0], &*names[1]]) {
                        weir_sys::say(&format!(
                            "{} and {} are bridged no more: {}",
                            names[0], names[1], worse.message
                        ));
                    }
                }
                return Err(failure);
            }
        }
        for (names, _) in gone.iter().filter(|(names, _)| names[0] == NFQUEUE) {
            self.rules.take(&names[1]);
        }
        for (names, _) in kept {
            let pair = [&*names[0], &*names[1]];
            let closed = new.fails_closed(&pair);
            if closed != old.fails_closed(&pair)
                && let Err(e) = self.up.fail(names, closed)
            {
                weir_sys::say(&format!("bridge {} {}: `fail` stays as it was: {e}", names[0], names[1]));
            }
        }
        let (mut in_place, mut exchanged) = (0, 0);
        for (control, direction, side, params, ready) in changes {
            match self.change(&control, direction, side, params, ready) {
                Ok(Changed::InPlace(_)) => in_place += 1,
                Ok(_) => exchanged += 1,
                // What was asked of it stands in its channel: it does so when it goes on.
                Err(failure) => weir_sys::say(&format!("{}: {}", side.name, failure.message)),
            }
        }
        Ok((in_place, exchanged))
    }

    /// Changes one side of a bridge that stays.
    fn change(
        &mut self,
        control: &Control,
        direction: usize,
        side: Side<'_>,
        params: Option<Vec<(String, weir_core::queue::Params)>>,
        ready: Option<Ready>,
    ) -> Result<Changed, Failure> {
        let change = match (ready, params) {
            (None, _) => Change::Port(None),
            (Some(ready), Some(params)) => Change::Params { params, otherwise: Box::new(ready.plan) },
            (Some(ready), None) => Change::Plan(Box::new(ready.plan)),
        };
        let changed = control.change(direction, change).map_err(Failure::failed)?;
        // A direction that was forwarded plainly has no port yet, or none any more.
        if !matches!(changed, Changed::NoPort) {
            return Ok(changed);
        }
        let Some(ready) = self.ready(side)? else { return Ok(changed) };
        let port = Some(Box::new(port(ready, None)?));
        control.change(direction, Change::Port(port)).map_err(Failure::failed)
    }

    /// The interfaces whose egress does not run what its plan says: a discipline broke, or the
    /// worker gave up its ports.
    fn sick(&self) -> Vec<String> {
        let bridges = self.up.snapshot().bridges;
        let egresses = bridges.into_iter().flat_map(|bridge| {
            let failed = bridge.failed.is_some();
            bridge.egresses.into_iter().map(move |egress| (failed, egress))
        });
        let sick = egresses
            .filter(|(failed, egress)| *failed || egress.port.as_ref().is_some_and(|p| p.broken.is_some()));
        sick.map(|(_, egress)| egress.interface).collect()
    }

    /// Answers a request of the socket: one line of JSON.
    pub fn answer(&mut self, line: &str) -> String {
        let answered = match line {
            // A client that says nothing wants to look.
            "" => self.answer_to(Request::Stats),
            line => match serde_json::from_str(line) {
                Ok(request) => self.answer_to(request),
                Err(e) => Err(Failure::usage(format!("this is no request: {e}"))),
            },
        };
        answered.map_or_else(|failure| request::refusal(&failure), |value| value.to_string())
    }

    fn answer_to(&mut self, request: Request) -> Result<serde_json::Value, Failure> {
        let of = |name: &str, text: &str| Configuration::read(name, text, self.registry);
        match request {
            Request::Stats => serde_json::to_value(self.up.snapshot()),
            Request::Status => serde_json::to_value(self.report()),
            Request::Bypass { on } => {
                self.up.bypass(on);
                serde_json::to_value(self.up.snapshot())
            }
            Request::Apply { name, text, confirm_within_ns } => {
                let new = of(&name, &text)?;
                serde_json::to_value(self.apply(new, confirm_within_ns.map(Duration::from_nanos))?)
            }
            Request::Diff { name, text } => {
                let found = self.differences(&of(&name, &text)?.plan);
                serde_json::to_value(Applied::would(&found))
            }
            Request::Set { interface, words } => serde_json::to_value(self.set(&interface, &words)?),
            Request::Confirm => serde_json::to_value(self.confirm().map(|()| Applied::default())?),
            Request::Rollback => serde_json::to_value(self.roll_back()?),
            // It is answered where the socket is, not by a line.
            Request::Takeover { .. } => return Err(Failure::usage("this is asked by `weir up --takeover`")),
        }
        .map_err(Failure::failed)
    }
}
