//! Disciplines that keep the laws and no more: what a parent must survive as its child.

use weir_core::Random;
use weir_core::packet::{List, PacketId};
use weir_core::queue::{
    Backlog, Broken, Cause, Child, Cx, Discipline, DropReason, Kind, Next, ParamError, ParamSpec, Params,
    Routes, Scope, Verdict, Visit, Wait, params,
};
use weir_core::sched::{Builder, Classes, Entry, Node, Registry};
use weir_core::units::{Duration, Instant};

/// The one of them that holds every packet for ever.
pub const NEVER: &str = "test-never";

/// The one of them that drops every packet.
pub const DROPS_ALL: &str = "test-drops-all";

/// The names that `register` adds.
pub const NAMES: [&str; 5] = [DROPS_ALL, NEVER, "test-regulated", "test-fickle", "test-overturns"];

/// A change at run time that moves whatever was answered before.
const NUDGE: &[ParamSpec] = &[ParamSpec::discipline("nudge", Kind::Flag, "", "Draws the pause anew.")];

/// Adds the hostile disciplines to `registry`.
pub fn register(registry: &mut Registry) {
    let builds: [weir_core::sched::Build; NAMES.len()] = [drops_all, never, regulated, fickle, overturns];
    for (name, build) in NAMES.into_iter().zip(builds) {
        registry.register(Entry {
            name,
            aliases: &[],
            source: "//! For tests: lawful and nasty.",
            params: &[NUDGE],
            classes: Classes::None,
            work_conserving: matches!(name, DROPS_ALL | "test-overturns"),
            build: Some(build),
            ..Entry::PLAIN
        });
    }
}

/// The name that `register_breaking` adds.
pub const BREAKS: &str = "test-breaks";

/// Adds a discipline that reports itself broken once in a while, in the middle of any call, and
/// may lose the packet in hand: what a port must survive without losing one.
pub fn register_breaking(registry: &mut Registry) {
    registry.register(Entry {
        name: BREAKS,
        aliases: &[],
        source: "//! For tests: breaks on purpose.",
        params: &[],
        classes: Classes::Flat,
        work_conserving: true,
        build: Some(breaks),
        ..Entry::PLAIN
    });
}

fn breaks(node: &Node, builder: &mut Builder<'_>) -> Result<Box<dyn Discipline>, ParamError> {
    let (mut children, mut ranges) = (Vec::new(), Vec::new());
    for index in 0..node.classes.len() {
        let first = builder.next_leaf();
        children.push(builder.child(node, index, builder.link.rate, 50)?);
        ranges.push(first..builder.next_leaf());
    }
    Ok(Box::new(Breaks { children, routes: Routes::new(&ranges) }))
}

/// The first child that has a packet sends. One call in so many breaks.
struct Breaks {
    children: Vec<Child>,
    routes: Routes,
}

impl Breaks {
    fn strikes(cx: &mut Cx) -> bool {
        let strikes = cx.random.below(40) == 0;
        if strikes {
            cx.broken(BREAKS, "on purpose");
        }
        strikes
    }
}

impl Discipline for Breaks {
    fn enqueue(&mut self, cx: &mut Cx, id: PacketId) -> Verdict {
        // The handle is lost; the port's table knows better.
        if Self::strikes(cx) {
            return Verdict::Queued;
        }
        let index = self.routes.child(cx.packets.get(&id).leaf).unwrap_or(0);
        self.children[index].enqueue(cx, id)
    }
    fn dequeue(&mut self, cx: &mut Cx) -> Next {
        let mut wait = Wait::Idle;
        for child in &mut self.children {
            match child.take(cx) {
                Next::Packet(id) => {
                    // The same for a packet that was on its way out.
                    return if Self::strikes(cx) { Next::Idle } else { Next::Packet(id) };
                }
                other => wait = wait.min(other.wait()),
            }
        }
        wait.into()
    }
    fn backlog(&self) -> Backlog {
        self.children.iter().fold(Backlog::default(), |sum, child| sum + child.backlog())
    }
    fn flush(&mut self, cx: &mut Cx, reason: DropReason) {
        for child in &mut self.children {
            Self::strikes(cx);
            child.flush(cx, reason);
        }
    }
    fn reconfigure(&mut self, cx: &mut Cx, class: &str, params: &Params) -> Result<(), ParamError> {
        Self::strikes(cx);
        let refused = Err(ParamError::new(class, "class", class, "a class of this interface"));
        self.children.iter_mut().fold(refused, |r, c| r.or_else(|_| c.reconfigure_below(cx, class, params)))
    }
    fn visit_stats(&self, visit: &mut dyn Visit) {
        self.children.iter().for_each(|child| child.visit_stats(visit));
    }
    fn check(&self, cx: &Cx) -> Result<(), Broken> {
        self.children.iter().try_for_each(|child| child.check(cx))
    }
    fn on_sent(&mut self, cx: &mut Cx, id: &PacketId, at: Instant) {
        Self::strikes(cx);
        let index = self.routes.child(cx.packets.get(id).leaf).unwrap_or(0);
        self.children[index].on_sent(cx, id, at);
    }
}

fn drops_all(_: &Node, _: &mut Builder<'_>) -> Result<Box<dyn Discipline>, ParamError> {
    Ok(Box::new(Hostile::new(Habit::DropsAll)))
}
fn never(_: &Node, _: &mut Builder<'_>) -> Result<Box<dyn Discipline>, ParamError> {
    Ok(Box::new(Hostile::new(Habit::Never)))
}
fn regulated(_: &Node, _: &mut Builder<'_>) -> Result<Box<dyn Discipline>, ParamError> {
    Ok(Box::new(Hostile::new(Habit::Regulated)))
}
fn fickle(_: &Node, _: &mut Builder<'_>) -> Result<Box<dyn Discipline>, ParamError> {
    Ok(Box::new(Hostile::new(Habit::Fickle)))
}

fn overturns(_: &Node, _: &mut Builder<'_>) -> Result<Box<dyn Discipline>, ParamError> {
    Ok(Box::new(Hostile::new(Habit::Overturns)))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Habit {
    /// A dequeue drops whatever is queued and answers `Idle`.
    DropsAll,
    /// Never gives a packet, as a shaper of rate 0.
    Never,
    /// A packet, then a pause of random length; an arrival draws the pause anew.
    Regulated,
    /// As regulated, but when the time comes it may drop one packet and ask for another pause.
    Fickle,
    /// An arrival may drop whatever is queued, and then itself too.
    Overturns,
}

const LIMIT: u32 = 40;
const LONGEST_PAUSE_NS: u64 = 3_000_000;

struct Hostile {
    habit: Habit,
    list: List,
    due: Instant,
    random: Random,
}

impl Hostile {
    fn new(habit: Habit) -> Self {
        Hostile { habit, list: List::new(), due: Instant::ZERO, random: Random::new(0x5eed) }
    }
    fn pause(&mut self, now: Instant) {
        self.due = now + Duration::from_nanos(1 + self.random.below(LONGEST_PAUSE_NS));
    }
    fn when_due(&mut self, cx: &mut Cx) -> Next {
        if cx.now < self.due {
            return Next::At(self.due);
        }
        self.pause(cx.now);
        let Some(id) = self.list.pop_front(&mut cx.packets) else { return Next::Idle };
        if self.habit == Habit::Regulated || self.random.below(2) == 0 {
            return Next::Packet(id);
        }
        cx.drop(id, DropReason::Deadline);
        if self.list.is_empty() { Next::Idle } else { Next::At(self.due) }
    }
}

impl Discipline for Hostile {
    fn enqueue(&mut self, cx: &mut Cx, id: PacketId) -> Verdict {
        if self.list.packets() >= LIMIT && !cx.adopting() {
            cx.drop(id, DropReason::Tail);
            return Verdict::Dropped;
        }
        if self.habit == Habit::Overturns && !cx.adopting() && self.random.below(4) == 0 {
            self.flush(cx, DropReason::Head);
            if self.random.below(2) == 0 {
                cx.drop(id, DropReason::Early);
                return Verdict::Dropped;
            }
        }
        self.list.push_back(&mut cx.packets, id);
        self.pause(cx.now);
        Verdict::Queued
    }
    fn dequeue(&mut self, cx: &mut Cx) -> Next {
        if self.list.is_empty() {
            return Next::Idle;
        }
        match self.habit {
            Habit::DropsAll => {
                self.flush(cx, DropReason::Head);
                Next::Idle
            }
            Habit::Never => Next::Held(Cause::Rate),
            Habit::Regulated | Habit::Fickle => self.when_due(cx),
            Habit::Overturns => self.list.pop_front(&mut cx.packets).map_or(Next::Idle, Next::Packet),
        }
    }
    fn backlog(&self) -> Backlog {
        Backlog { packets: u64::from(self.list.packets()), bytes: self.list.bytes() }
    }
    fn flush(&mut self, cx: &mut Cx, reason: DropReason) {
        while let Some(id) = self.list.pop_front(&mut cx.packets) {
            cx.drop(id, reason);
        }
    }
    fn reconfigure(&mut self, cx: &mut Cx, class: &str, params: &Params) -> Result<(), ParamError> {
        if !class.is_empty() {
            return Err(ParamError::new(class, "class", class, "a class of this interface"));
        }
        params::accept(&[NUDGE], Scope::Discipline, "", params)?;
        if params.has("nudge") {
            self.pause(cx.now);
        }
        Ok(())
    }
    fn visit_stats(&self, visit: &mut dyn Visit) {
        visit.value("backlog", "packets", i64::from(self.list.packets()));
    }
    fn check(&self, cx: &Cx) -> Result<(), Broken> {
        if self.list.is_sound(&cx.packets) {
            return Ok(());
        }
        Err(Broken { discipline: "test-hostile", what: "list and counters disagree" })
    }
}
