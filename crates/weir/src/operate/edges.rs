//! From the edge of a plan to the one that stands before a port, and the brokers that its classes ask.

use super::flows::{FlowState, flows};
use super::remote::Remotes;
use super::request::{FlowOrder, Handlers, Recognising};
use super::{Failure, Operator};
use std::collections::BTreeMap;
use weir_conf::{EdgeClass, EdgePlan, Plan, handlers};
use weir_core::packet::Key;
use weir_core::queue::Link;
use weir_core::units::Instant;
use weir_edge::edge::{Edge, NotEvicted};
use weir_edge::flow::State;
use weir_edge::handlers::{HANDLERS, Handler};
use weir_engine::broker::Kind;
use weir_engine::edge_state::{AllocatorState, EdgeClassState, LeftOutState, RequestState};
use weir_engine::state::Egress;
use weir_engine::up::NFQUEUE;
use weir_engine::{Control, Desk, LiveEdge};
use weir_text::{Unit, show};

/// The brokers of these plans, and those elsewhere; those of the last plan count.
pub fn brokers<'p>(plans: impl IntoIterator<Item = &'p Plan>, remotes: &Remotes) -> Vec<(String, Kind)> {
    let mut all = BTreeMap::new();
    for broker in plans.into_iter().flat_map(|plan| &plan.brokers) {
        let kind = match &broker.elsewhere {
            None => Some(Kind::Local { capacity_bps: broker.capacity.as_bps() }),
            Some(_) => remotes.kind(&broker.name),
        };
        if let Some(kind) = kind {
            all.insert(broker.name.clone(), kind);
        }
    }
    all.into_iter().collect()
}

/// The edge before the port of an interface, by its plan. Its classes begin with what they have at `before`, the
/// same egress as it was, as far as their limits let them.
pub fn edge(
    plan: EdgePlan,
    interface: &str,
    link: &Link,
    seed: u64,
    desk: &Desk,
    before: Option<&Egress>,
) -> Box<LiveEdge> {
    let EdgePlan { mut config, classes } = plan;
    (config.seed, config.overhead) = (seed, link.overhead);
    let known = before.and_then(|egress| egress.edge.as_ref());
    for (class, EdgeClass { name, .. }) in config.classes.iter_mut().zip(&classes) {
        let has = known.and_then(|edge| edge.classes.iter().find(|known| known.name == *name));
        let has = has.and_then(|class| class.allocator.as_ref());
        if let (Some(allocation), Some(has)) = (&mut class.allocation, has) {
            allocation.initial = has.allocated_bps;
        }
    }
    let class = |class: EdgeClass| weir_engine::EdgeClass {
        name: class.name.clone(),
        broker: class.broker.as_ref().map(|(name, _)| name.clone()),
        shape: Box::new(move |rate_bps| class.shape(rate_bps)),
    };
    let classes = classes.into_iter().map(class).collect();
    let plan = weir_engine::EdgePlan { interface: interface.to_owned(), config, classes };
    Box::new(LiveEdge::new(plan, desk.clone(), weir_sys::now()))
}

/// The seed of an egress's port.
pub fn seed_of(egress: &Egress) -> Option<u64> {
    u64::from_str_radix(egress.port.as_ref()?.seed.strip_prefix("0x")?, 16).ok()
}

/// A place where an edge may stand: the interface by which its packets come, the one by which they leave, and the
/// way to the worker.
struct Way {
    entrance: String,
    egress: String,
    control: Control,
    direction: usize,
}

impl Way {
    fn ask<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut Edge, Instant) -> T + Send + 'static,
    ) -> Result<Option<T>, Failure> {
        self.control.with_edge(self.direction, act).map_err(Failure::failed)
    }
}

/// What an order for a flow came to, at one edge.
enum Ordered {
    Done,
    /// The edge does not know the flow.
    Unheard,
    Refused(String),
}

fn order(edge: &mut Edge, now: Instant, order: FlowOrder, key: &Key) -> Ordered {
    let known = |known: bool| if known { Ordered::Done } else { Ordered::Unheard };
    match order {
        FlowOrder::Explain => known(edge.contract(key).is_some() || edge.config().contracts.is_empty()),
        FlowOrder::Pin => known(edge.pin(now, key)),
        FlowOrder::Unpin => known(edge.unpin(key)),
        FlowOrder::Evict => match edge.evict_flow(now, key) {
            Ok(()) => Ordered::Done,
            Err(NotEvicted::Unheard) => Ordered::Unheard,
            Err(NotEvicted::Pinned) => Ordered::Refused("it is pinned: `weir flow unpin` it first".into()),
            Err(NotEvicted::NotAdmitted(state)) => {
                let state = match state {
                    State::Refused => "refused already",
                    State::Silent => "silent: it is in no class",
                    State::Candidate | State::Admitted => "ordinary: it is in no class",
                };
                Ordered::Refused(format!("it is {state}"))
            }
        },
    }
}

impl Operator<'_> {
    fn ways(&self) -> Vec<Way> {
        let both = |(names, control): (&[String; 2], Control)| {
            let way = |direction: usize| {
                let (entrance, egress) = (names[direction].clone(), names[1 - direction].clone());
                Way { entrance, egress, control: control.clone(), direction }
            };
            [way(0), way(1)]
        };
        self.up().bridges().flat_map(both).filter(|way| way.egress != NFQUEUE).collect()
    }

    /// The flows that are known, of one contract or of all.
    pub(super) fn flows(&self, sla: Option<u32>) -> Result<Vec<FlowState>, Failure> {
        let (mut all, mut edges) = (Vec::new(), 0);
        for Way { egress, control, direction, .. } in self.ways() {
            if let Some(some) = flows(&control, direction, &egress, sla).map_err(Failure::failed)? {
                edges += 1;
                all.extend(some);
            }
        }
        if edges == 0 {
            return Err(nobody_looks());
        }
        Ok(all)
    }

    /// Does something with a flow, and says what it is then. Each edge that looks at both directions knows it: the
    /// one before whose port it is admitted or refused counts, if there is one.
    pub(super) fn flow(&self, what: FlowOrder, text: &str) -> Result<FlowState, Failure> {
        let key = weir_conf::packet_spec::parse(text).map_err(Failure::usage)?;
        let (mut edges, mut done, mut refused) = (0, None::<FlowState>, None);
        for way in self.ways() {
            let egress = way.egress.clone();
            let asked = way.ask(move |edge, now| {
                (order(edge, now, what, &key), FlowState::explain(&egress, edge, &key, now))
            })?;
            edges += usize::from(asked.is_some());
            match asked {
                None | Some((Ordered::Unheard, _)) => {}
                Some((Ordered::Done, flow)) => {
                    if flow.for_ns.is_some() || done.is_none() {
                        done = Some(flow);
                    }
                }
                Some((Ordered::Refused(why), _)) => refused = refused.or(Some(why)),
            }
        }
        match (edges, done, refused) {
            (0, ..) => Err(nobody_looks()),
            (_, Some(flow), _) => Ok(flow),
            (_, None, Some(why)) => Err(Failure::failed(format!("{key}: {why}"))),
            (_, None, None) => {
                Err(Failure::failed(format!("{key} is not known: `weir flows` lists those that are")))
            }
        }
    }

    /// The edge that a class belongs to, and its place there.
    fn way_of(&self, interface: &str, class: &str) -> Result<(Way, u32), Failure> {
        let view = self.plan().interface(interface).map_err(Failure::usage)?;
        let allocated = || view.allocations.iter().map(|line| line.class.as_str());
        let way = self.ways().into_iter().find(|way| way.egress == view.name);
        match (way, allocated().position(|name| name == class)) {
            (Some(way), Some(place)) => Ok((way, place as u32)),
            (None, _) => Err(Failure::usage(format!("interface `{}` is not bridged", view.name))),
            (_, None) => {
                let help = weir_text::suggest(class, allocated())
                    .unwrap_or_else(|| format!("add `allocate {} {class}` to the file", view.name));
                Err(Failure::usage(format!("no class `{class}` of `{}` is allocated: {help}", view.name)))
            }
        }
    }

    /// What handlers of a class have: one of them, or all that have something.
    pub(super) fn handlers(
        &self,
        interface: &str,
        class: &str,
        name: Option<&str>,
    ) -> Result<Handlers, Failure> {
        let (way, place) = self.way_of(interface, class)?;
        let one =
            name.map(|name| handlers::find("weir edge get", name)).transpose().map_err(Failure::usage)?;
        let wanted: Vec<&'static Handler> = one.map_or_else(|| HANDLERS.iter().collect(), |one| vec![one]);
        let read = move |edge: &mut Edge, _: Instant| {
            let value = |handler: &&'static Handler| (*handler, edge.handler(place, handler));
            wanted.iter().map(value).collect::<Vec<_>>()
        };
        let mut values = BTreeMap::new();
        for (handler, value) in way.ask(read)?.ok_or_else(nobody_looks)? {
            match value {
                Ok(value) => _ = values.insert(handler.name.into(), handlers::shown(handler, value.as_ref())),
                Err(why) if one.is_some() => {
                    return Err(Failure::usage(handlers::refused(class, handler, &why)));
                }
                Err(_) => {}
            }
        }
        Ok(Handlers { interface: way.egress, class: class.to_owned(), values })
    }

    /// Gives a handler of a class another value.
    pub(super) fn set_handler(&self, interface: &str, class: &str, text: &str) -> Result<Handlers, Failure> {
        let (way, place) = self.way_of(interface, class)?;
        let (handler, value) = handlers::assignment("weir edge set", text).map_err(Failure::usage)?;
        let set = move |edge: &mut Edge, now: Instant| edge.set_handler(now, place, handler, value);
        match way.ask(set)?.ok_or_else(nobody_looks)? {
            Ok(()) => self.handlers(interface, class, Some(handler.name)),
            Err(why) => Err(Failure::usage(handlers::refused(class, handler, &why))),
        }
    }

    /// Switches recognition of what enters by an interface on or off.
    pub(super) fn recognise(&self, interface: &str, on: bool) -> Result<Recognising, Failure> {
        let ways = self.ways();
        let here =
            |way: &&Way| way.entrance == interface || (way.entrance == NFQUEUE && way.egress == interface);
        let mut able = Vec::new();
        for way in &ways {
            let wanted = here(&way);
            let done = way.ask(move |edge, now| {
                let able = edge.config().recognition.is_some();
                if able && wanted {
                    edge.recognise(now, on);
                }
                able
            })?;
            match done {
                Some(true) if wanted => return Ok(Recognising { interface: interface.to_owned(), on }),
                Some(true) => able.push(if way.entrance == NFQUEUE { &*way.egress } else { &*way.entrance }),
                _ => {}
            }
        }
        let help = match weir_text::suggest(interface, able.iter().copied()) {
            Some(help) => help,
            None if able.is_empty() => "no line of the file says `recognise`".into(),
            None => format!("it is for what enters by {}", able.join(", ")),
        };
        Err(Failure::usage(format!("nothing is recognised that enters by `{interface}`: {help}")))
    }
}

fn nobody_looks() -> Failure {
    Failure::usage(
        "no flows are looked for: write `recognise IF` into the file, IF being the one by which they enter",
    )
}

fn rate(bps: u64) -> String {
    show(bps as f64, Unit::Rate)
}

fn minutes(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    format!("{:02}:{:02}", seconds / 60, seconds % 60)
}

/// The last request of a class, in words.
fn last_request(last: &RequestState, broker: Option<&str>) -> String {
    let (sign, by) = match last.asked_bps.checked_sub(last.had_bps) {
        Some(more) => ('+', more),
        None => ('-', last.had_bps - last.asked_bps),
    };
    let by_whom = broker.map(|name| format!(" by {name}")).unwrap_or_default();
    let answer = match (last.answer.as_deref(), last.answered_in_ns) {
        (Some("refused"), _) => format!("REFUSED{by_whom}"),
        (Some(answer), _) => format!("{answer}{by_whom}"),
        (None, _) => "not answered yet".to_owned(),
    };
    let time = last.answered_in_ns.map(|ns| format!(" in {}", show(ns as f64, Unit::Time)));
    format!(
        "last request {} ago {sign}{} {answer}{}",
        minutes(last.ago_ns),
        rate(by),
        time.unwrap_or_default()
    )
}

/// How a class of an edge is, in words.
pub fn said(class: &EdgeClassState) -> String {
    let calls = format!("{} flow{}", class.flows.now, if class.flows.now == 1 { "" } else { "s" });
    let Some(AllocatorState { estimate_bps, allocated_bps, target_percent, last, congested, .. }) =
        &class.allocator
    else {
        return calls;
    };
    let mut parts = vec![format!("used {} of {} granted", rate(*estimate_bps), rate(*allocated_bps)), calls];
    parts.extend(target_percent.map(|target| format!("target {target} %")));
    if class.sessions > 0 {
        let many = if class.sessions == 1 { "session" } else { "sessions" };
        parts.push(format!("{} {many} with {} besides", class.sessions, rate(class.sessions_bps)));
    }
    if let Some(LeftOutState { sessions, why }) = &class.sessions_left_out {
        let many = if *sessions == 1 { "session is" } else { "sessions are" };
        parts.push(format!("{sessions} {many} not in effect, because {why}"));
    }
    parts.extend(congested.then(|| "congested".to_owned()));
    parts.extend(last.as_ref().map(|last| last_request(last, class.broker.as_deref())));
    parts.join(", ")
}
