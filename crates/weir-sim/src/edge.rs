//! An edge before a port, and the brokers that it asks.
//!
//! The very code that runs live decides here: [`weir_edge::edge::Edge`]. A class's rate is set by
//! `Port::reconfigure`, so that a change of rate loses no packet. A request travels to its broker and
//! the answer back in the broker's `delay` together (T_bb of the paper); either may be lost.

use crate::rng::Stream;
use std::collections::VecDeque;
use weir_conf::{EdgeClass, EdgePlan, handlers};
use weir_core::port::EventKind;
use weir_core::queue::{DropReason, Value};
use weir_core::units::Instant;
use weir_edge::allocate::{Answer, Request};
use weir_edge::edge::{Config, Edge};
use weir_edge::handlers::Handler;
use weir_scenario::scenario::{BrokerSpec, PortSpec};

/// An edge and what it waits for.
pub struct EdgeHost {
    /// The edge.
    pub edge: Edge,
    /// Its classes, with their leaves.
    pub classes: Vec<(u32, EdgeClass)>,
    /// When it begins to look at packets.
    pub from: Instant,
    /// Answers on their way: when they are there, for which leaf, to which version.
    pub answers: VecDeque<(Instant, u32, u64, Answer)>,
    /// What its allocators are set to, and when; the next stands first.
    pub settings: VecDeque<Setting>,
    /// What the flows of each class send, in the order of the classes.
    pub sources: Vec<Sources>,
    /// The edge is told what they send.
    ideal: bool,
}

/// A handler that is set at a time.
#[derive(Clone)]
pub struct Setting {
    at: Instant,
    leaf: u32,
    handler: &'static Handler,
    value: Option<Value>,
}

/// What a scenario sets at a port, in the order of its times.
///
/// # Errors
/// What is wrong with the first that cannot be set.
pub fn settings(port: &PortSpec, edge: Option<&EdgePlan>) -> Result<VecDeque<Setting>, String> {
    let mut specs: Vec<_> = port.set.iter().collect();
    specs.sort_by_key(|spec| spec.at.instant());
    let mut settings = VecDeque::new();
    // Options are tried one after the other: what one of them sets may stand in the way of the next.
    let tried = edge.map(|plan| Config { recognition: None, ..plan.config.clone() });
    let mut tried = tried.map(|config| Edge::new(config, Instant::ZERO));
    for spec in specs {
        let place = format!("port {}: `set` at {}", port.name(), spec.at);
        let classes: Vec<&str> =
            edge.iter().flat_map(|plan| &plan.classes).map(|class| class.name.as_str()).collect();
        let Some(class) = classes.iter().position(|name| *name == spec.class) else {
            let help = weir_text::suggest(&spec.class, classes.iter().copied());
            let help = help.unwrap_or_else(|| match classes.is_empty() {
                true => format!("add `allocate INTERFACE {}` to its configuration", spec.class),
                false => format!("those that are allocated are {}", classes.join(", ")),
            });
            return Err(format!("{place}: class `{}` has no allocator: {help}", spec.class));
        };
        let (handler, value) =
            handlers::assignment(&place, &spec.handler).map_err(|said| said.to_string())?;
        let at = spec.at.instant();
        if let (Some(edge), Some(plan)) = (&mut tried, edge) {
            let leaf = plan.config.classes[class].leaf;
            if let Err(why) = edge.set_handler(Instant::ZERO, leaf, handler, value.clone())
                && handler.is_option()
            {
                return Err(format!("{place}: {}", handlers::refused(&spec.class, handler, &why)));
            }
            settings.push_back(Setting { at, leaf, handler, value });
        }
    }
    Ok(settings)
}

/// What the udp flows of a class send together, beside the estimate of it. Integrals are of the time in
/// which there is an estimate: the first window has none.
#[derive(Debug, Default)]
pub struct Sources {
    sends_bps: u64,
    estimate_bps: u64,
    to: Instant,
    /// Bits of either, in units of 10^-9.
    sent: u128,
    estimated: u128,
    /// Time in all, and of that with an estimate not below what is sent, ns.
    counted_ns: u64,
    above_ns: u64,
}

impl Sources {
    /// The clock reached `now`, and the estimate is another from there on.
    pub fn estimate(&mut self, now: Instant, estimate_bps: u64) {
        let ns = now.since(self.to).as_nanos();
        self.to = now;
        if self.estimate_bps > 0 {
            self.sent += u128::from(self.sends_bps) * u128::from(ns);
            self.estimated += u128::from(self.estimate_bps) * u128::from(ns);
            self.counted_ns += ns;
            self.above_ns += if self.estimate_bps >= self.sends_bps { ns } else { 0 };
        }
        self.estimate_bps = estimate_bps;
    }
    /// By how much the mean estimate exceeds what was sent, and how much of the time it was not below;
    /// none without both.
    pub fn compare(&self) -> Option<(f64, f64)> {
        let known = self.sent > 0 && self.counted_ns > 0;
        known.then(|| {
            let excess = self.estimated as f64 / self.sent as f64 - 1.0;
            (excess, self.above_ns as f64 / self.counted_ns as f64)
        })
    }
}

impl EdgeHost {
    /// The edge of a plan, from the start of the run on; if `ideal`, it is told what its flows send.
    pub fn new(plan: EdgePlan, ideal: bool) -> Self {
        let leaves: Vec<u32> = plan.config.classes.iter().map(|class| class.leaf).collect();
        EdgeHost {
            answers: VecDeque::new(),
            settings: VecDeque::new(),
            sources: leaves.iter().map(|_| Sources::default()).collect(),
            ideal,
            edge: Edge::new(plan.config, Instant::ZERO),
            classes: leaves.into_iter().zip(plan.classes).collect(),
            from: Instant::ZERO,
        }
    }
    /// A flow that goes to that leaf sends another rate from `now` on.
    pub fn sends(&mut self, now: Instant, leaf: u32, before_bps: u64, after_bps: u64) {
        let Some(class) = self.classes.iter().position(|(own, _)| *own == leaf) else { return };
        let sources = &mut self.sources[class];
        sources.estimate(now, sources.estimate_bps);
        sources.sends_bps = sources.sends_bps - before_bps + after_bps;
        if self.ideal {
            self.edge.told(now, leaf, sources.sends_bps);
        }
    }
    /// When it has something to do though no packet comes.
    pub fn next(&self) -> Instant {
        let answer = self.answers.iter().map(|answer| answer.0).min().unwrap_or(Instant::NEVER);
        let setting = self.settings.front().map_or(Instant::NEVER, |setting| setting.at);
        answer.min(setting).min(self.edge.poll_at())
    }
    /// The clock reached `now`.
    pub fn timer(&mut self, now: Instant) {
        while let Some(index) = self.answers.iter().position(|answer| answer.0 <= now)
            && let Some((_, leaf, version, answer)) = self.answers.remove(index)
        {
            self.edge.answer(now, leaf, version, answer);
        }
        self.edge.timer(now);
        while let Some(Setting { leaf, handler, value, .. }) =
            self.settings.pop_front_if(|next| next.at <= now)
        {
            // Options were tried before the run. An answer that nobody awaits, or a rate that the class has,
            // changes nothing.
            let _ = self.edge.set_handler(now, leaf, handler, value);
        }
    }
    /// The run begins: what classes have at the start is held at their brokers.
    pub fn begin(&self, number: u32, brokers: &mut [Broker]) {
        for (leaf, allocator) in self.edge.allocators() {
            if let Some(broker) = self.broker(leaf, brokers) {
                broker.hold((number, leaf), allocator.allocated_bps());
            }
        }
    }
    /// Has the broker of a class's leaf answer a request; `number` is that of the port.
    pub fn ask(&mut self, now: Instant, number: u32, leaf: u32, request: Request, brokers: &mut [Broker]) {
        let answer = match self.broker(leaf, brokers) {
            Some(broker) => broker.ask(now, (number, leaf), request),
            // Without a broker the edge's own `to` is the only limit.
            None => Some((now, Answer::Granted(request.rate_bps))),
        };
        self.answers.extend(answer.map(|(at, answer)| (at, leaf, request.version, answer)));
    }
    /// The broker that the class with that leaf asks.
    fn broker<'a>(&self, leaf: u32, brokers: &'a mut [Broker]) -> Option<&'a mut Broker> {
        let (_, class) = self.classes.iter().find(|(own, _)| *own == leaf)?;
        let (name, _) = class.broker.as_ref()?;
        brokers.iter_mut().find(|broker| broker.name() == name)
    }
    /// What a port did with a packet that had entered.
    pub fn hear(&mut self, now: Instant, kind: EventKind, leaf: u32, len: u32) {
        match kind {
            EventKind::Taken => self.edge.left(now, leaf, len, true),
            EventKind::Dropped(reason) if reason != DropReason::Policed => {
                self.edge.left(now, leaf, len, false);
            }
            _ => {}
        }
    }
}

/// A broker: it grants what is asked if the sum stays within its capacity.
pub struct Broker {
    spec: BrokerSpec,
    capacity: u64,
    random: Stream,
    /// What each class of each port holds, bit/s.
    held: Vec<((u32, u32), u64)>,
}

impl Broker {
    /// A broker with nothing granted. `capacity` is used where the scenario gives none.
    pub fn new(spec: BrokerSpec, capacity: u64, random: Stream) -> Self {
        let capacity = spec.capacity.map_or(capacity, |rate| rate.as_bps());
        Broker { spec, capacity, random, held: Vec::new() }
    }
    /// Its name.
    pub fn name(&self) -> &str {
        &self.spec.name
    }
    /// What a class holds without having asked: its allocation at the start.
    pub fn hold(&mut self, who: (u32, u32), rate_bps: u64) {
        self.held.push((who, rate_bps));
    }
    /// A request: the answer and when it is there; none if it is lost or the broker is down.
    pub fn ask(&mut self, now: Instant, who: (u32, u32), request: Request) -> Option<(Instant, Answer)> {
        let down =
            |(begin, end): &(weir_text::Time, weir_text::Time)| now >= begin.instant() && now < end.instant();
        if self.spec.down.iter().any(down) || (self.spec.loss > 0.0 && self.random.chance(self.spec.loss)) {
            return None;
        }
        let denied = self.spec.deny > 0.0 && self.random.chance(self.spec.deny);
        let index = match self.held.iter().position(|(holder, _)| *holder == who) {
            Some(index) => index,
            None => {
                self.held.push((who, 0));
                self.held.len() - 1
            }
        };
        let others = self.held.iter().map(|(_, rate)| *rate).sum::<u64>() - self.held[index].1;
        let is_rise = request.rate_bps > self.held[index].1;
        let fits = others.saturating_add(request.rate_bps) <= self.capacity;
        let at = now + self.spec.delay.duration();
        if is_rise && (denied || !fits) {
            return Some((at, Answer::Refused));
        }
        self.held[index].1 = request.rate_bps;
        Some((at, Answer::Granted(request.rate_bps)))
    }
}
