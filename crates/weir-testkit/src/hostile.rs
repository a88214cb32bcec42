//! Disciplines that keep the laws and no more: what a parent must survive as its child.

use weir_core::Random;
use weir_core::packet::{List, PacketId};
use weir_core::queue::{
    Backlog, Broken, Cx, Discipline, DropReason, Next, ParamError, Params, Verdict, Visit,
};
use weir_core::sched::{Builder, Classes, Entry, Node, Registry};
use weir_core::units::{Duration, Instant};

/// The names that `register` adds.
pub const NAMES: [&str; 4] = ["test-drops-all", "test-never", "test-regulated", "test-fickle"];

/// Adds the hostile disciplines to `registry`.
pub fn register(registry: &mut Registry) {
    let builds: [weir_core::sched::Build; 4] = [drops_all, never, regulated, fickle];
    for (name, build) in NAMES.into_iter().zip(builds) {
        registry.register(Entry {
            name,
            aliases: &[],
            source: "//! For tests: lawful and nasty.",
            params: &[],
            classes: Classes::None,
            build: Some(build),
        });
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

#[derive(Clone, Copy, PartialEq, Eq)]
enum Habit {
    /// A dequeue drops whatever is queued and answers `Idle`.
    DropsAll,
    /// Never gives a packet: `At(NEVER)`.
    Never,
    /// A packet, then a pause of random length; an arrival draws the pause anew.
    Regulated,
    /// As regulated, but when the time comes it may drop one packet and ask for another pause.
    Fickle,
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
            Habit::Never => Next::At(Instant::NEVER),
            Habit::Regulated | Habit::Fickle => self.when_due(cx),
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
    fn reconfigure(&mut self, cx: &mut Cx, class: &str, _: &Params) -> Result<(), ParamError> {
        if !class.is_empty() {
            return Err(ParamError::new(class, "class", class, "a class of this interface"));
        }
        self.pause(cx.now);
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
