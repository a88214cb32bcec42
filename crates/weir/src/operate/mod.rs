//! The box as something that an operator runs: one owner of the bridges, who answers requests,
//! changes what runs without loss, and goes back if nobody confirms.
//!
//! - `change`: from what runs to another plan.
//! - [`edges`]: what stands before ports, and the brokers.
//! - [`flows`]: those that an edge knows.
//! - [`ports`]: from a plan to ports, and from two plans to what changes.
//! - [`state`]: the last good configuration on disk.
//! - [`remote`]: brokers in other processes, and the leases there.
//! - [`rules`]: those of the packet filter.
//! - [`takeover`]: another process goes on with all of it.
//! - [`request`]: what can be asked through the socket.
//!
//! Everything here runs in the main thread. The workers only ever get what is built already.

mod change;
pub mod edges;
pub mod flows;
pub mod ports;
pub mod remote;
pub mod request;
pub mod rules;
mod sessions;
pub mod state;
pub mod takeover;

use crate::commands::Failure;
use ports::{Ready, Side, bridges, port};
use remote::{AllCarried, Remotes};
use request::{Applied, Contract, ContractOrder, Report, Request};
use rules::Rules;
use state::LastGood;
use std::collections::{BTreeMap, HashSet};
use std::num::NonZero;
use std::time::{Duration, Instant};
use weir_conf::plan::Xdp;
use weir_conf::{ContractChange, Diagnostic, Difference, Plan, diff};
use weir_core::port::Port;
use weir_core::sched::Registry;
use weir_engine::Processor;
use weir_engine::state::Egress;
use weir_engine::status::Status;
use weir_engine::up::{NFQUEUE, Pair, Side as EngineSide, Up, Way, up};
use weir_engine::worker::Pace;
use weir_engine::{Control, Delay, Desk, LiveEdge, Snapshot};
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

/// How workers are started, and what this process may do.
#[derive(Clone)]
pub struct Workers {
    /// Processors that they stay on, each on the next; none: anywhere.
    pub cpus: Vec<usize>,
    /// Their precedence.
    pub priority: Priority,
    /// Whether interfaces are bridged although somebody else takes their frames, too.
    pub force: bool,
    /// The ports that this process may connect to, if it is confined.
    pub ports: Option<Vec<u16>>,
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
    /// The brokers.
    desk: Desk,
    remotes: Remotes,
    status: Status,
    /// When the counters were last held against intent.
    looked: Option<Instant>,
}

/// A port, and what stands before it.
type Built = (Option<Box<Port>>, Option<Box<LiveEdge>>);

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

/// The workers of a bridge.
fn threads(plan: &Plan, pair: &[&str; 2]) -> usize {
    if pair[0] == NFQUEUE { 1 } else { plan.workers(pair) }
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
        let mut operator = Operator::of_nothing(registry, configuration, workers, state, rules)?;
        let plan = operator.running.plan.clone();
        if let Err(failure) = operator.bring_up(&plan) {
            operator.rules.undo();
            return Err(failure);
        }
        operator.remotes.begin(AllCarried::new());
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
    ) -> Result<Self, Failure> {
        let desk = Desk::open().map_err(Failure::failed)?;
        let mut remotes = Remotes::of(&desk, workers.ports.clone());
        let others = remotes.read(&configuration.plan)?;
        remotes.add(others);
        desk.declare(edges::brokers([&configuration.plan], &remotes));
        Ok(Operator {
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
            desk,
            remotes,
            status: Status::default(),
            looked: None,
        })
    }

    fn bring_up(&mut self, plan: &Plan) -> Result<(), Failure> {
        let pairs = bridges(plan)?;
        let bridges = pairs.iter().map(|pair| self.pair(plan, *pair, &[]));
        self.up = up(bridges.collect::<Result<_, _>>()?).map_err(refused)?;
        Ok(())
    }

    /// What runs.
    fn plan(&self) -> &Plan {
        &self.running.plan
    }

    /// The bridges.
    pub fn up(&self) -> &Up {
        &self.up
    }

    /// What happened so far.
    fn snapshot(&self) -> Snapshot {
        let mut brokers = if self.running.plan.brokers.is_empty() { Vec::new() } else { self.desk.state() };
        for broker in &mut brokers {
            broker.reached = self.remotes.reached(&broker.name);
        }
        Snapshot { brokers, ..self.up.snapshot() }
    }

    /// Ends the box: its last statistics.
    pub fn stop(self) -> Snapshot {
        let last = self.up.stop();
        // Nothing is shaped any more.
        self.remotes.part();
        last
    }

    /// Starts a bridge.
    fn add(&mut self, plan: &Plan, pair: [&str; 2]) -> Result<(), Failure> {
        let pair = self.pair(plan, pair, &[])?;
        self.up.add(pair).map_err(refused)
    }

    /// A bridge with its ports and edges, which go on from `before`: the egress on the right, then on the left.
    fn pair(&mut self, plan: &Plan, pair: [&str; 2], before: &[Egress]) -> Result<Pair, Failure> {
        let mut edges = [None, None];
        let mut others = [Vec::new(), Vec::new()];
        let [right, left] = sides(plan, pair).map(|(direction, side)| {
            let (port, edge) = match self.ready(side)? {
                Some(mut ready) => {
                    let (link, plans) = (ready.link, std::mem::take(&mut ready.others));
                    let built = self.built(side, ready, before.get(direction))?;
                    let seed = built.0.as_ref().map_or(0, |port| port.seed());
                    others[direction] = plans.into_iter().map(|plan| port(link, plan, seed)).collect();
                    built
                }
                None => (None, None),
            };
            edges[direction] = edge;
            let (interface, port) = (side.name.to_owned(), port.map(|port| *port));
            Ok::<_, Failure>(EngineSide { interface, port, delay: Delay::default() })
        });
        let Workers { cpus, priority, force, .. } = &self.workers;
        let (priority, force) = (*priority, *force);
        let count = threads(plan, &pair);
        // So many that there are as many as processors are enough to know.
        let most = std::thread::available_parallelism().map_or(1, NonZero::get);
        let all_threads: usize = bridges(plan)?.iter().take(most).map(|pair| threads(plan, pair)).sum();
        let unknown = pair[0] == NFQUEUE || plan.fails_closed(&pair);
        let bound = count > 1 || unknown || plan.xdp(&pair) == Some(Xdp::BusyPoll);
        let on = |started: usize| match cpus.get(started % cpus.len().max(1)) {
            Some(&cpu) => Processor::Only(cpu),
            None => Processor::of_worker(started, all_threads, bound),
        };
        let all = self.started..self.started + count;
        let workers = all.map(|n| Pace { processor: on(n), priority, ..Pace::default() }).collect();
        self.started += count;
        let mut others = others.map(Vec::into_iter);
        let shared = if count > 2 { 1..count } else { 0..0 };
        let parts = shared.map(|_| others.each_mut().map(Iterator::next)).collect();
        let way = match plan.xdp(&pair) {
            None => Way::Packet,
            Some(how) => Way::Xdp { busy_poll: how == Xdp::BusyPoll },
        };
        let fails_closed = plan.fails_closed(&pair);
        Ok(Pair { way, workers, parts, force, fails_closed, edges, ..Pair::new(left?, right?) })
    }

    /// The port of a side and the edge before it. They go on from what stood there `before`.
    fn built(&self, side: Side<'_>, ready: Ready, before: Option<&Egress>) -> Result<Built, Failure> {
        let seed = before.and_then(edges::seed_of).map_or_else(ports::seed, Ok)?;
        let Ready { link, plan, edge, .. } = ready;
        let edge = edge.map(|edge| edges::edge(edge, side.name, &link, seed, &self.desk, before));
        Ok((Some(Box::new(port(link, plan, seed))), edge))
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
                        control.change_all(direction, ready.changes()).map(drop).map_err(Failure::failed)
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
        let mut findings = self.status.findings(weir_sys::now());
        let Snapshot { bridges, brokers } = self.snapshot();
        for egress in bridges.iter().flat_map(|bridge| &bridge.egresses) {
            for class in egress.edge.iter().flat_map(|edge| &edge.classes) {
                let of_class = findings.iter_mut().filter(|finding| {
                    finding.interface == egress.interface && finding.class.as_ref() == Some(&class.name)
                });
                of_class.for_each(|finding| {
                    let before = if finding.why.is_empty() { "" } else { "; " };
                    finding.why += &format!("{before}{}", edges::said(class));
                });
            }
        }
        let left = |by: Instant| by.saturating_duration_since(Instant::now()).as_nanos() as u64;
        Report {
            as_configured: findings.iter().all(|finding| finding.state.is_well()),
            findings,
            brokers,
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
        self.apply_changed(plan)
    }

    /// Another contract in what runs, or one less.
    fn contract(&mut self, interface: &str, id: u32, change: &ContractChange) -> Result<Applied, Failure> {
        let plan = self.running.plan.with_contract(self.registry, interface, id, change);
        self.apply_changed(plan)
    }

    /// Runs what runs with a change by hand.
    fn apply_changed(&mut self, plan: Result<Plan, Vec<Diagnostic>>) -> Result<Applied, Failure> {
        let plan = plan.map_err(|all| {
            let all: Vec<String> = all.iter().filter(|d| d.is_error()).map(ToString::to_string).collect();
            Failure::usage(all.join("\n"))
        })?;
        let text = plan.source.lines().join("\n") + "\n";
        self.apply(Configuration { text, plan }, None)
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
            Request::Stats => serde_json::to_value(self.snapshot()),
            Request::Status => serde_json::to_value(self.report()),
            Request::Bypass { on } => {
                self.up.bypass(on);
                serde_json::to_value(self.snapshot())
            }
            Request::Apply { name, text, confirm_within_ns } => {
                let new = of(&name, &text)?;
                serde_json::to_value(self.apply(new, confirm_within_ns.map(Duration::from_nanos))?)
            }
            Request::Diff { name, text } => {
                let found = self.differences(&of(&name, &text)?.plan);
                serde_json::to_value(Applied::would(&found))
            }
            Request::Flows { sla } => serde_json::to_value(self.flows(sla)?),
            Request::Flow { order, key } => serde_json::to_value(self.flow(order, &key)?),
            Request::Handlers { interface, class, name } => {
                serde_json::to_value(self.handlers(&interface, &class, name.as_deref())?)
            }
            Request::Handler { interface, class, assignment } => {
                serde_json::to_value(self.set_handler(&interface, &class, &assignment)?)
            }
            Request::Leases => serde_json::to_value(self.remotes.leases()),
            Request::Recognise { interface, on } => serde_json::to_value(self.recognise(&interface, on)?),
            Request::Contract { interface, id, change, words } => {
                let change = match change {
                    ContractOrder::Add => ContractChange::Add(words),
                    ContractOrder::Set => ContractChange::Set(words),
                    ContractOrder::Del => ContractChange::Remove,
                };
                serde_json::to_value(self.contract(&interface, id, &change)?)
            }
            Request::Contracts => {
                let rows = weir_conf::contracts::rows(&self.running.plan).into_iter();
                serde_json::to_value(rows.map(Contract::from).collect::<Vec<_>>())
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
