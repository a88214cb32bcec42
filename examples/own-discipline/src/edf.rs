//! EDF: earliest deadline first, so that each class keeps a bound on its delay.
//!
//! Principle: a packet must have left by its arrival plus the `deadline` of its class. The class
//! whose first packet has the least such time sends. If any order meets all deadlines, this does.
//! Paper: Liu and Layland, "Scheduling Algorithms for Multiprogramming in a Hard-Real-Time
//! Environment", Journal of the ACM 20(1), 1973, section 7; for packets: Georgiadis, Guerin and
//! Parekh, "Optimal Multiplexing on a Single Link: Delay and Buffer Requirements", IEEE
//! Transactions on Information Theory 43(5), 1997.
//! Cost: a look at the first packet of each class per packet.
//! Guarantees: `a_deadline_is_kept_that_fifo_misses`; the laws, by the conformance suite.
//! Parameters: `routing` (ms): adds a class `routing` of that deadline, which takes OSPF; class
//! `deadline` (ms, 100), `default`, `qlimit` (packets, 50), and an AQM. At run time: all but
//! `default` and `routing`.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use weir_core::aqm::QLIMIT_50;
use weir_core::packet::{Family, PacketId};
use weir_core::queue::{
    Backlog, Broken, Child, Cx, Discipline, DropReason, Head, Kind, Link, Next, ParamError, ParamSpec,
    Params, Routes, Scope, TimeUnit, Value, Verdict, Visit, Wait, params,
};
use weir_core::sched::{BroughtFilter, Builder, ClassConfig, Classes, Entry, Finding, Node, Setting};
use weir_core::units::{Duration, Instant};

const MILLIS: Kind = Kind::Time { bare: TimeUnit::Millis };
/// The deadline of a class that names none.
const USUAL: Duration = Duration::from_millis(100);

/// The line in the list of disciplines.
pub const ENTRY: Entry = Entry {
    name: "edf",
    source: include_str!("edf.rs"),
    params: &[
        &[
            ParamSpec::discipline("routing", MILLIS, "", "Adds a class for OSPF with this deadline, ms."),
            ParamSpec::class("deadline", MILLIS, "100", "Delay within which a packet should leave, ms."),
            ParamSpec::class("default", Kind::Flag, "", "Takes what no filter matches."),
        ],
        QLIMIT_50,
    ],
    classes: Classes::Flat,
    class_queues: true,
    build: Some(build),
    check: Some(check),
    lower: Some(lower),
    ..Entry::PLAIN
};

const OSPF: u8 = 89;

/// Classes of one deadline are one class to EDF: what the file says apart is not served apart.
fn check(node: &Node, _: &Setting) -> Vec<Finding> {
    let of = |class: &ClassConfig| class.params.time("deadline").unwrap_or(USUAL);
    let mut found = Vec::new();
    for (index, class) in node.classes.iter().enumerate() {
        let Some(other) = node.classes[..index].iter().find(|other| of(other) == of(class)) else { continue };
        let message =
            format!("classes `{}` and `{}` have one deadline, {}", other.name, class.name, of(class));
        let mend = "they share one order: give them two deadlines, or make them one class";
        found.push(Finding::warning(Some(index), "deadline", message, mend));
    }
    found
}

/// A deadline that is given must leave time for the packet that is on the wire already, which may be
/// the longest that the link takes.
fn possible(class: &str, params: &Params, link: &Link) -> Result<(), ParamError> {
    let least = link.time_for(link.mtu).ceil().since(Instant::ZERO);
    let Some(deadline) = params.time("deadline").filter(|deadline| *deadline < least) else { return Ok(()) };
    let ms = least.as_nanos().div_ceil(1_000_000);
    let expected = format!("{ms} ms or more: the longest packet takes {least}; write `deadline {ms}`");
    Err(ParamError::new(class, "deadline", deadline, expected))
}

/// `routing 20`: a class for OSPF, whose filters stand in the line of the first class.
fn lower(node: &mut Node, _: &Setting) -> Vec<BroughtFilter> {
    const NAME: &str = "routing";
    let named = node.classes.iter().any(|class| class.name == NAME);
    let Some(deadline) = node.params.time("routing").filter(|_| !named) else { return Vec::new() };
    let params = Params::new().with("deadline", Value::Time(deadline));
    node.classes.push(ClassConfig { name: NAME.to_string(), params, ..ClassConfig::default() });
    let filter = |family| BroughtFilter { class: NAME.to_string(), beside: 0, family, protocol: OSPF };
    [Family::V4, Family::V6].map(filter).into()
}

struct Class {
    name: String,
    deadline: Duration,
    queue: Child,
}

struct Edf {
    classes: Vec<Class>,
    routes: Routes,
}

fn build(node: &Node, builder: &mut Builder<'_>) -> Result<Box<dyn Discipline>, ParamError> {
    let (mut classes, mut ranges) = (Vec::new(), Vec::new());
    for (index, class) in node.classes.iter().enumerate() {
        if class.parent.is_some() {
            return Err(ParamError::new(&class.name, "parent", "a class", "NULL: edf has no tree"));
        }
        possible(&class.name, &class.params, &builder.link)?;
        let deadline = class.params.time("deadline").unwrap_or(USUAL);
        let first = builder.next_leaf();
        let queue = builder.child(node, index, builder.link.rate, 50)?;
        ranges.push(first..builder.next_leaf());
        classes.push(Class { name: class.name.clone(), deadline, queue });
    }
    Ok(Box::new(Edf { classes, routes: Routes::new(&ranges) }))
}

impl Discipline for Edf {
    fn enqueue(&mut self, cx: &mut Cx, id: PacketId) -> Verdict {
        let Some(class) = self.routes.child(cx.packets.get(&id).leaf) else {
            cx.broken("edf", "a packet came for a leaf that is not below");
            cx.drop(id, DropReason::Reconfigure);
            return Verdict::Dropped;
        };
        self.classes[class].queue.enqueue(cx, id)
    }
    fn dequeue(&mut self, cx: &mut Cx) -> Next {
        let (mut first, mut wait): (Option<(Instant, usize)>, _) = (None, Wait::Idle);
        for (index, class) in self.classes.iter_mut().enumerate() {
            let head = class.queue.head(cx);
            let Head::Packet { .. } = head else {
                wait = wait.min(head.wait());
                continue;
            };
            // `head` has just shown a packet, so there is a row.
            let Some(row) = class.queue.head_meta(cx) else { continue };
            let due = row.arrival + class.deadline;
            if first.is_none_or(|(least, _)| due < least) {
                first = Some((due, index));
            }
        }
        match first {
            Some((_, index)) => self.classes[index].queue.take(cx),
            None => wait.into(),
        }
    }
    fn backlog(&self) -> Backlog {
        self.classes.iter().fold(Backlog::default(), |sum, class| sum + class.queue.backlog())
    }
    fn flush(&mut self, cx: &mut Cx, reason: DropReason) {
        self.classes.iter_mut().for_each(|class| class.queue.flush(cx, reason));
    }
    fn reconfigure(&mut self, cx: &mut Cx, class: &str, params: &Params) -> Result<(), ParamError> {
        if class.is_empty() {
            return params::accept(ENTRY.params, Scope::Discipline, "", params);
        }
        if let Some(own) = self.classes.iter_mut().find(|own| own.name == class) {
            possible(class, params, &cx.link)?;
            own.queue.reconfigure_queue(cx, class, params, ENTRY.params)?;
            own.deadline = params.time("deadline").unwrap_or(own.deadline);
            return Ok(());
        }
        Child::reconfigure_one_of(self.classes.iter_mut().map(|c| &mut c.queue), cx, class, params)
    }
    fn visit_stats(&self, visit: &mut dyn Visit) {
        for class in &self.classes {
            visit.class(&class.name, 0);
            visit.value("deadline", "ns", class.deadline.as_nanos() as i64);
            class.queue.visit_stats(visit);
        }
    }
    fn check(&self, cx: &Cx) -> Result<(), Broken> {
        self.classes.iter().try_for_each(|class| class.queue.check(cx))
    }
    fn on_sent(&mut self, cx: &mut Cx, id: &PacketId, at: Instant) {
        if let Some(class) = self.routes.child(cx.packets.get(id).leaf) {
            self.classes[class].queue.on_sent(cx, id, at);
        }
    }
}
