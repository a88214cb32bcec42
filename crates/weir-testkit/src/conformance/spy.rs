//! A lawful child that reports what its parent does with it.
//!
//! `spied` puts one below every class. The parent must route each packet to the child that its
//! leaf lies below, hand `on_sent` to the child that gave the packet, and, if it is work
//! conserving, answer no later than the first child that is ready.

use std::cell::RefCell;
use std::collections::BTreeMap;
use weir_core::packet::{List, PacketId};
use weir_core::queue::{
    Backlog, Broken, Cx, Discipline, DropReason, Next, ParamError, Params, Scope, Verdict, Visit, params,
};
use weir_core::sched::{Builder, Entry, Node, Registry};
use weir_core::units::{Duration, Instant};

/// The name that `register` adds.
pub(super) const NAME: &str = "test-spy";
const LIMIT: u32 = 30;

/// What the spies of the tree under test have seen. A tree lives on the thread that tests it.
#[derive(Default)]
struct Report {
    complaint: Option<String>,
    /// The serial number of the packet that `on_sent` told of last.
    told: Option<u32>,
    /// By leaf that a spy is: from when on it gives a packet; `None` if it has none.
    ready: BTreeMap<u32, Option<Instant>>,
}

thread_local! {
    static REPORT: RefCell<Report> = RefCell::default();
}

/// Adds the spy to `registry`.
pub(super) fn register(registry: &mut Registry) {
    registry.register(Entry {
        name: NAME,
        source: "//! For tests: reports what its parent does with it.",
        work_conserving: false,
        build: Some(build),
        ..Entry::PLAIN
    });
}

/// Forgets what the spies of an earlier tree have seen.
pub(super) fn forget() {
    REPORT.take();
}
/// What a spy has to complain of.
pub(super) fn complaint() -> Option<String> {
    REPORT.with_borrow_mut(|report| report.complaint.take())
}
/// False if there is a spy at `leaf` and it has not heard of `serial` by the last `on_sent`.
pub(super) fn was_told(leaf: u32, serial: u32) -> bool {
    REPORT.with_borrow_mut(|report| report.told.take() == Some(serial) || !report.ready.contains_key(&leaf))
}
/// The leaf whose spy gives a packet first, and when.
pub(super) fn first_ready() -> Option<(Instant, u32)> {
    REPORT.with_borrow(|report| report.ready.iter().filter_map(|(&leaf, at)| at.map(|at| (at, leaf))).min())
}

fn build(_: &Node, builder: &mut Builder<'_>) -> Result<Box<dyn Discipline>, ParamError> {
    let spy = Spy { leaf: builder.next_leaf() - 1, list: List::new(), ready: Instant::ZERO };
    spy.report();
    Ok(Box::new(spy))
}

/// A FIFO that waits a little after every other packet.
struct Spy {
    leaf: u32,
    list: List,
    ready: Instant,
}

impl Spy {
    fn report(&self) {
        let ready = (!self.list.is_empty()).then_some(self.ready);
        REPORT.with_borrow_mut(|report| report.ready.insert(self.leaf, ready));
    }
    fn expect_own(&self, cx: &Cx, id: &PacketId, call: &str) {
        let (row, own) = (cx.packets.get(id), self.leaf);
        if row.leaf != own {
            let told =
                format!("routing: packet {} of leaf {} came by {call} to leaf {own}", row.frame.0, row.leaf);
            REPORT.with_borrow_mut(|report| report.complaint.get_or_insert(told).len());
        }
    }
}

impl Discipline for Spy {
    fn enqueue(&mut self, cx: &mut Cx, id: PacketId) -> Verdict {
        self.expect_own(cx, &id, "enqueue");
        if self.list.packets() >= LIMIT && !cx.adopting() {
            cx.drop(id, DropReason::Tail);
            return Verdict::Dropped;
        }
        self.list.push_back(&mut cx.packets, id);
        self.report();
        Verdict::Queued
    }
    fn dequeue(&mut self, cx: &mut Cx) -> Next {
        if self.list.is_empty() {
            return Next::Idle;
        }
        if cx.now < self.ready {
            return Next::At(self.ready);
        }
        let Some(id) = self.list.pop_front(&mut cx.packets) else { return Next::Idle };
        if cx.packets.get(&id).len.is_multiple_of(2) {
            self.ready = cx.now + Duration::from_nanos(1 + 100 * u64::from(cx.packets.get(&id).len));
        }
        self.report();
        Next::Packet(id)
    }
    fn backlog(&self) -> Backlog {
        Backlog { packets: u64::from(self.list.packets()), bytes: self.list.bytes() }
    }
    fn flush(&mut self, cx: &mut Cx, reason: DropReason) {
        while let Some(id) = self.list.pop_front(&mut cx.packets) {
            cx.drop(id, reason);
        }
        self.report();
    }
    fn reconfigure(&mut self, _: &mut Cx, class: &str, params: &Params) -> Result<(), ParamError> {
        if !class.is_empty() {
            return Err(ParamError::new(class, "class", class, "a class of this interface"));
        }
        params::accept(&[], Scope::Discipline, "", params)
    }
    fn visit_stats(&self, visit: &mut dyn Visit) {
        visit.value("backlog", "packets", i64::from(self.list.packets()));
    }
    fn check(&self, cx: &Cx) -> Result<(), Broken> {
        if self.list.is_sound(&cx.packets) {
            return Ok(());
        }
        Err(Broken { discipline: NAME, what: "list and counters disagree" })
    }
    fn on_sent(&mut self, cx: &mut Cx, id: &PacketId, _at: Instant) {
        self.expect_own(cx, id, "on_sent");
        let serial = cx.packets.get(id).frame.0;
        REPORT.with_borrow_mut(|report| report.told = Some(serial));
    }
}
