//! The edge before the port of a direction: [`weir_edge::edge::Edge`] with a live host.
//!
//! It decides what the simulator's edge decides of the same packets at the same times. Its classes are known by
//! their names, so that a port may be exchanged under it.

mod estate;
mod said;
mod sessions;

pub(crate) use estate::EdgeEstate;
use sessions::LeftOut;

use crate::broker::{Back, Desk, Hold, Reply, To};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_core::packet::dissect::Dissected;
use weir_core::port::{Event, EventKind, Port};
use weir_core::queue::{DropReason, Params};
use weir_core::sched::LeafInfo;
use weir_core::units::{Duration, Instant};
use weir_edge::allocate::{Action, Allocator, Answer, Backlog, Request};
use weir_edge::edge::{Config, Edge, Verdict};
use weir_edge::recognise::Payload;

/// The leaf of packets that no class of the edge has.
const NONE: u32 = u32::MAX;

/// A class whose rate an edge sets.
pub struct EdgeClass {
    /// Its name in the tree.
    pub name: String,
    /// The broker that it asks; none: what it asks for within its own `to` is granted.
    pub broker: Option<String>,
    /// The parameters that give it so many bit/s.
    pub shape: Box<dyn Fn(u64) -> Params + Send>,
}

/// What an edge is made from.
pub struct EdgePlan {
    /// The interface by which its packets leave.
    pub interface: String,
    /// Its laws. A class's `leaf` is its place in `classes`, if that has as many.
    pub config: Config,
    /// Its classes, in the order of the configuration's; none if the only one keeps its rate.
    pub classes: Vec<EdgeClass>,
}

/// The last request of a class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LastRequest {
    /// When it was made.
    pub at: Instant,
    /// What the class had, bit/s.
    pub had_bps: u64,
    /// What it asked for, bit/s.
    pub rate_bps: u64,
    /// The answer, and when it came.
    pub answer: Option<(Instant, Answer)>,
}

/// A class, and what is to be done for it.
struct Kept {
    name: Arc<str>,
    broker: Option<Arc<str>>,
    shape: Box<dyn Fn(u64) -> Params + Send>,
    /// What its broker is yet to be asked.
    ask: Option<Request>,
    last: Option<LastRequest>,
    /// What it had before its last change of rate, and what it has, bit/s.
    had_bps: [u64; 2],
    /// That a rate of it was refused was said.
    is_refused: bool,
    /// Its last rate was refused.
    lacks_room: bool,
}

/// An edge before a port.
pub struct LiveEdge {
    interface: Arc<str>,
    pub(super) edge: Edge,
    classes: Vec<Kept>,
    /// For each leaf of the port, the class.
    of_leaf: Vec<u32>,
    /// No other edge of this process has it.
    pub(super) number: u64,
    pub(super) desk: Desk,
    /// The desk knows what its classes have.
    pub(super) is_known: bool,
    pub(super) now: Instant,
    /// Rates that the discipline refused to set.
    unshaped: u64,
    left_out: Vec<LeftOut>,
}

/// A number that no other edge of this process has or had.
fn number() -> u64 {
    static NUMBERS: AtomicU64 = AtomicU64::new(1);
    NUMBERS.fetch_add(1, Ordering::Relaxed)
}

impl LiveEdge {
    /// An edge that begins at `now`, and whose classes ask at `desk`.
    pub fn new(plan: EdgePlan, desk: Desk, now: Instant) -> Self {
        let EdgePlan { interface, mut config, classes } = plan;
        for (place, class) in config.classes.iter_mut().enumerate().take(classes.len()) {
            class.leaf = place as u32;
        }
        let kept = |EdgeClass { name, broker, shape }| Kept {
            name: Arc::from(name),
            broker: broker.map(Arc::from),
            shape,
            ask: None,
            last: None,
            had_bps: [0; 2],
            is_refused: false,
            lacks_room: false,
        };
        LiveEdge {
            interface: Arc::from(interface),
            edge: Edge::new(config, now),
            classes: classes.into_iter().map(kept).collect(),
            of_leaf: Vec::new(),
            number: number(),
            desk,
            is_known: false,
            now,
            unshaped: 0,
            left_out: Vec::new(),
        }
    }

    /// The laws.
    pub fn edge(&self) -> &Edge {
        &self.edge
    }
    pub(crate) fn allocator_mut(&mut self, place: u32) -> Option<&mut Allocator> {
        self.edge.allocator_mut(place)
    }
    /// Rates that the discipline refused to set. Each is set again with the next change.
    pub fn unshaped(&self) -> u64 {
        self.unshaped
    }
    /// The name of a class and of its broker, and its last request; none for a class without a leaf.
    pub fn class(&self, place: usize) -> Option<(&str, Option<&str>, Option<LastRequest>)> {
        let class = self.classes.get(place)?;
        Some((&class.name, class.broker.as_deref(), class.last))
    }

    /// It stands before a port with these leaves from now on.
    pub(super) fn fit(&mut self, leaves: &[LeafInfo]) {
        let class = |leaf: &LeafInfo| {
            let place = self.classes.iter().position(|class| *class.name == *leaf.name);
            place.map_or(NONE, |place| place as u32)
        };
        self.of_leaf = leaves.iter().map(class).collect();
    }

    /// What waits in its classes: the port may have put packets into others.
    pub(super) fn recount(&mut self, now: Instant, port: &Port) {
        let overhead = u64::from(self.edge.config().overhead);
        for (leaf, &class) in (0..).zip(&self.of_leaf).filter(|(_, class)| **class != NONE) {
            let Some(account) = port.account(leaf) else { continue };
            let packets = account.inside();
            let left = account.sent_bytes + account.dropped_bytes;
            let bytes = account.offered_bytes.saturating_sub(left) + packets * overhead;
            self.edge.set_backlog(now, class, Backlog { bytes, packets });
        }
    }

    /// Goes on by the configuration of `new`. Flows, meters and allocations go on as far as that has their contracts
    /// and classes.
    pub(super) fn follow(&mut self, now: Instant, new: &mut LiveEdge) {
        let of_name = |class: &Kept| self.classes.iter().position(|old| old.name == class.name);
        let kept = (0..new.edge.config().classes.len()).map(|place| match new.classes.get(place) {
            Some(class) => of_name(class),
            // The only class of an edge without an allocation.
            None => self.classes.is_empty().then_some(0),
        });
        let kept: Vec<Option<usize>> = kept.collect();
        self.edge.follow(now, new.edge.config().clone(), &kept);
        let mut classes = std::mem::take(&mut new.classes);
        for (class, old) in classes.iter_mut().zip(kept) {
            if let Some(old) = old.and_then(|place| self.classes.get_mut(place)) {
                (class.last, class.had_bps, class.ask) = (old.last, old.had_bps, old.ask.take());
            }
        }
        let is_same =
            self.classes.iter().map(|class| &class.name).eq(classes.iter().map(|class| &class.name));
        self.classes = classes;
        // They are told again within a second.
        self.left_out.clear();
        if !is_same {
            // An answer that is under way may be for another class by now. The law repeats its request.
            self.number = new.number;
        }
    }

    /// The discipline refused a rate of a class: what people are to hear of it, the first time.
    pub(super) fn refused(&mut self, class: &str, why: &impl fmt::Display) -> Option<String> {
        self.unshaped += 1;
        let kept = self.classes.iter_mut().find(|kept| *kept.name == *class)?;
        kept.lacks_room = true;
        let is_new = !std::mem::replace(&mut kept.is_refused, true);
        is_new.then(|| {
            format!(
                "interface {}: class {class} keeps the rate that it has, because another one was refused: {why}",
                self.interface
            )
        })
    }

    /// A class has the rate that it is to have.
    pub(super) fn accepted(&mut self, class: &str) {
        let kept = self.classes.iter_mut().filter(|kept| *kept.name == *class);
        kept.for_each(|kept| kept.lacks_room = false);
    }

    /// Says at the desk what its classes have.
    pub(super) fn begin(&self, to: To) {
        let has = |(leaf, allocator): (u32, &Allocator)| {
            let class = self.classes.get(leaf as usize)?;
            let (rate_bps, from_bps) = (allocator.allocated_bps(), allocator.plan().from);
            let broker = class.broker.clone()?;
            Some(Hold { class: class.name.clone(), place: leaf, broker, rate_bps, from_bps })
        };
        let holds = self.edge.allocators().filter_map(has).collect();
        self.desk.hold(self.interface.clone(), Some(to), holds);
    }

    /// Its classes give back what they have.
    pub(super) fn end(&self) {
        self.desk.hold(self.interface.clone(), None, Vec::new());
    }

    /// Whether packets are to be shown to it.
    pub(super) fn looks(&self) -> bool {
        self.edge.looks()
    }

    /// What becomes of a packet that counts as `len` bytes.
    pub(super) fn packet(&mut self, now: Instant, frame: &[u8], read: &Dissected, len: u32) -> Verdict {
        self.now = self.now.max(now);
        self.edge.packet(now, &read.key, Payload::of(frame, read), len)
    }

    /// A packet came the other way.
    pub(super) fn observe(&mut self, now: Instant, frame: &[u8], read: &Dissected) {
        self.now = self.now.max(now);
        self.edge.observe(now, &read.key, Payload::of(frame, read));
    }

    /// The class that a leaf is.
    fn class_of(&self, leaf: u32) -> Option<u32> {
        self.of_leaf.get(leaf as usize).copied().filter(|&class| class != NONE)
    }

    /// A packet is offered to a leaf.
    pub(super) fn entered(&mut self, now: Instant, leaf: u32, len: u32) {
        if let Some(class) = self.class_of(leaf) {
            self.edge.entered(now, class, len);
        }
    }

    /// What the port did with a packet.
    pub(super) fn hear(&mut self, event: &Event<'_>) {
        let taken = match event.kind {
            EventKind::Taken => true,
            EventKind::Dropped(reason) if reason != DropReason::Policed => false,
            EventKind::Dropped(_) | EventKind::Sent => return,
        };
        if let Some(class) = self.class_of(event.meta.leaf) {
            self.now = self.now.max(event.at);
            self.edge.left(self.now, class, event.meta.len, taken);
        }
    }

    /// The broker of a class takes back what it has above `rate_bps`. If it is to wait, no more is asked for for its `retry`.
    pub(super) fn come_down(&mut self, now: Instant, class: u32, rate_bps: u64, wait: bool) {
        self.now = self.now.max(now);
        let retry = self.allocator_mut(class).filter(|_| wait).map(|allocator| allocator.plan().retry);
        self.edge.withdraw(now, class, rate_bps, retry.unwrap_or(Duration::ZERO));
    }

    /// A broker answered.
    pub(super) fn answer(&mut self, now: Instant, class: u32, version: u64, answer: Answer) {
        let open = |last: &&mut LastRequest| last.answer.is_none();
        if let Some(last) =
            self.classes.get_mut(class as usize).and_then(|class| class.last.as_mut()).filter(open)
        {
            last.answer = Some((now, answer));
        }
        self.edge.answer(now, class, version, answer);
    }

    /// Sends what is to be asked. The answers come to the worker at `back`.
    pub(super) fn ask(&mut self, back: &Back, direction: usize) {
        if !std::mem::replace(&mut self.is_known, true) {
            // An answer under way is to what was known before. So what is not answered is asked again behind that.
            self.number = number();
            self.begin(To { back: back.clone(), direction, edge: self.number });
            for (place, allocator) in self.edge.allocators() {
                let class = self.classes.get_mut(place as usize);
                class.into_iter().for_each(|class| class.ask = allocator.outstanding());
            }
        }
        let to = || To { back: back.clone(), direction, edge: self.number };
        let (interface, desk) = (&self.interface, &self.desk);
        for (place, class) in self.classes.iter_mut().enumerate().filter(|(_, class)| class.ask.is_some()) {
            if let (Some(request), Some(broker)) = (class.ask.take(), &class.broker) {
                let reply = Reply { to: to(), class: place as u32, version: request.version };
                desk.ask((interface.clone(), class.name.clone()), broker.clone(), request, reply);
            }
        }
    }

    /// What a class is to have done for it next: its name and the parameters of its rate.
    pub(super) fn next_rate(&mut self) -> Option<(Arc<str>, Params)> {
        while let Some((leaf, action)) = self.edge.poll() {
            let Some(class) = self.classes.get_mut(leaf as usize) else { continue };
            match action {
                Action::Shape(rate) => {
                    let apart = self.edge.allocator_mut(leaf).map_or(0, |allocator| allocator.apart_bps());
                    class.had_bps = [class.had_bps[1], rate.saturating_sub(apart)];
                    return Some((class.name.clone(), (class.shape)(rate)));
                }
                Action::Ask(request) => {
                    let Request { version, rate_bps } = request;
                    let last = class.last.filter(|last| last.answer.is_none() && last.rate_bps == rate_bps);
                    let [before, has] = class.had_bps;
                    // Less is given up before it is asked for.
                    let had_bps = if rate_bps == has { before } else { has };
                    class.last = last.or(Some(LastRequest { at: self.now, had_bps, rate_bps, answer: None }));
                    if class.broker.is_some() {
                        class.ask = Some(request);
                    } else {
                        // Its own `to` is the only limit.
                        self.answer(self.now, leaf, version, Answer::Granted(rate_bps));
                    }
                }
            }
        }
        None
    }

    /// The rates that its classes have, for a tree that does not know them.
    pub(super) fn rates(&self) -> Vec<(Arc<str>, Params)> {
        let rate = |(leaf, allocator): (u32, &Allocator)| {
            let class = self.classes.get(leaf as usize)?;
            Some((class.name.clone(), (class.shape)(allocator.rate_bps())))
        };
        self.edge.allocators().filter_map(rate).collect()
    }
}

#[cfg(test)]
mod tests;
