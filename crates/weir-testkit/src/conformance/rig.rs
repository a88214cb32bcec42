//! One discipline under test, with a ledger of every packet that it was given.

mod liveness;
mod progress;

use super::ops::{Arrival, FLOWS, Op};
use super::spy;
use super::waiting::Waiting;
use std::collections::VecDeque;
use weir_core::packet::{Colour, FrameRef, Meta, PacketId, PacketState};
use weir_core::queue::{
    Backlog, Broken, Cause, Child, Cx, Discipline, DropReason, Head, Link, Next, Params, Verdict, Visit,
};
use weir_core::units::{Duration, Instant};

const IN_FLIGHT: usize = 4;
/// Calls end here: time itself does later, and nothing is promised for then.
pub(super) const END: Instant = Instant::from_nanos(u64::MAX - (1 << 60));
/// A year: what comes later is not waited for.
pub(super) const PATIENCE_NS: u64 = 365 * 86_400 * 1_000_000_000;

/// How the discipline is asked. All forms must lead to the same log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// By single dequeues; `head` is a dequeue whose packet waits here.
    Single,
    /// As a `Child`, by its `head` and `take`.
    Child,
    /// By single dequeues, with reconfigurations that are refused between the calls.
    Harassed,
}

enum Asked {
    Plain { discipline: Box<dyn Discipline>, parked: Option<PacketId> },
    Child(Child),
}

/// What was seen, so that a test can show that it saw something.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Calls made.
    pub operations: u64,
    /// Packets offered.
    pub offered: u64,
    /// Packets that left.
    pub sent: u64,
    /// Packets that were dropped, whatever the reason.
    pub dropped: u64,
    /// Times that a discipline answered `At`.
    pub waits: u64,
    /// Packets that `head` showed and something else happened before they were taken.
    pub interleaved: u64,
    /// Changes of parameters that were accepted.
    pub reconfigured: u64,
    /// Trees swapped under load.
    pub swaps: u64,
    /// Falls back to FIFO because a discipline said that it is broken.
    pub breaks: u64,
    /// Leaves that got packets through beside a link that idles.
    pub progressed: u64,
}

impl core::ops::AddAssign for Summary {
    fn add_assign(&mut self, o: Summary) {
        self.operations += o.operations;
        self.offered += o.offered;
        self.sent += o.sent;
        self.dropped += o.dropped;
        self.waits += o.waits;
        self.interleaved += o.interleaved;
        self.reconfigured += o.reconfigured;
        self.swaps += o.swaps;
        self.breaks += o.breaks;
        self.progressed += o.progressed;
    }
}

struct Entry {
    leaf: u32,
    flow: u32,
    len: u32,
    queued: bool,
}

pub(super) struct Rig {
    cx: Cx,
    asked: Asked,
    packets: Vec<Entry>,
    /// The serial number after the last packet that left, by leaf and flow.
    left: Vec<u32>,
    queued: Backlog,
    in_flight: VecDeque<PacketId>,
    shown: Option<u32>,
    touched_since_shown: bool,
    due: Instant,
    hash: u64,
    seed: u64,
    /// The link has asked for a packet, and none has come since.
    asking: bool,
    /// By leaf: a packet was dropped as late when the link asked.
    late: Vec<bool>,
    waiting: Waiting,
    pub(super) summary: Summary,
}

type Law = Result<(), String>;

impl Rig {
    pub(super) fn new(
        discipline: Box<dyn Discipline>,
        waiting: Waiting,
        form: Form,
        link: Link,
        capacity: u32,
        seed: u64,
        start: Instant,
    ) -> Self {
        let mut cx = Cx::new(capacity, link, seed);
        cx.now = start;
        let asked = match form {
            Form::Child => Asked::Child(Child::inner(discipline)),
            Form::Single | Form::Harassed => Asked::Plain { discipline, parked: None },
        };
        Rig {
            cx,
            asked,
            packets: Vec::new(),
            left: vec![0; waiting.leaves() * FLOWS as usize],
            queued: Backlog::default(),
            in_flight: VecDeque::new(),
            shown: None,
            touched_since_shown: false,
            due: start,
            hash: 0xcbf2_9ce4_8422_2325,
            seed,
            asking: false,
            late: vec![false; waiting.leaves()],
            waiting,
            summary: Summary::default(),
        }
    }
    /// Hash of everything that happened so far.
    pub(super) fn hash(&self) -> u64 {
        self.hash
    }
    pub(super) fn now(&self) -> Instant {
        self.cx.now
    }
    /// Does `op` and verifies the laws that it touches.
    pub(super) fn apply(&mut self, op: &Op) -> Law {
        self.summary.operations += 1;
        if self.shown.is_some() && !matches!(op, Op::Head | Op::Take) {
            self.touched_since_shown = true;
        }
        match op {
            Op::Enqueue(arrival) => self.enqueue(arrival)?,
            Op::Head => self.head()?,
            Op::Take => {
                self.take()?;
            }
            Op::Several(n) => self.take_many(*n)?,
            Op::Probe { within, past_ns } => self.probe(*within, *past_ns)?,
            Op::Wait(ns) => self.cx.now += Duration::from_nanos(*ns),
            Op::WaitUntilDue => {
                if self.due.since(self.cx.now).as_nanos() < PATIENCE_NS {
                    self.cx.now = self.cx.now.max(self.due);
                }
            }
            Op::Sent => self.complete()?,
            Op::Flush(reason) => self.flush(*reason)?,
            Op::Reconfigure { class, params } => self.reconfigure(class, params)?,
            Op::Stranger(params) => {
                if self.try_reconfigure("nobody", params)? {
                    return Err("reconfigure accepted a class that does not exist".into());
                }
            }
            Op::Check => {
                let stats = self.stats();
                self.mix(stats);
            }
        }
        while self.in_flight.len() > IN_FLIGHT {
            self.complete()?;
        }
        self.settle(None)?;
        self.audit(matches!(op, Op::Check))
    }
    /// Empties everything and verifies that nothing is left anywhere.
    pub(super) fn finish(&mut self) -> Law {
        self.apply(&Op::Check)?;
        self.drain()?;
        self.apply(&Op::Check)?;
        self.apply(&Op::Flush(DropReason::Portdown))?;
        while !self.in_flight.is_empty() {
            self.complete()?;
        }
        match self.cx.packets.live() {
            0 => self.progress(),
            n => Err(format!("{n} packets are still alive after a flush")),
        }
    }

    fn enqueue(&mut self, arrival: &Arrival) -> Law {
        self.asking = false;
        let serial = self.packets.len() as u32;
        let Ok(id) = self.cx.packets.insert(meta(arrival, self.cx.now, serial)) else { return Ok(()) };
        self.packets.push(Entry { leaf: arrival.leaf, flow: arrival.flow, len: arrival.len, queued: true });
        self.queued = self.queued + Backlog { packets: 1, bytes: u64::from(arrival.len) };
        self.summary.offered += 1;
        let verdict = match &mut self.asked {
            Asked::Plain { discipline, .. } => discipline.enqueue(&mut self.cx, id),
            Asked::Child(child) => child.enqueue(&mut self.cx, id),
        };
        self.mix(verdict as u64 + 1);
        self.settle(None)?;
        let alive = self.packets[serial as usize].queued;
        if alive != (verdict == Verdict::Queued) {
            let truth = if alive { "was not given to `Cx::drop`" } else { "was dropped" };
            return Err(format!("law 1: the verdict is {verdict:?}, and {} {truth}", self.name(serial)));
        }
        Ok(())
    }
    fn head(&mut self) -> Law {
        let before = self.shown;
        let head = match &mut self.asked {
            Asked::Child(child) => child.head(&mut self.cx),
            Asked::Plain { parked: Some(id), .. } => Head::Packet { len: self.cx.packets.get(id).len },
            Asked::Plain { discipline, parked } => match discipline.dequeue(&mut self.cx) {
                Next::Packet(id) => {
                    let len = self.cx.packets.get(&id).len;
                    *parked = Some(id);
                    Head::Packet { len }
                }
                Next::At(at) => Head::At(at),
                Next::Held(cause) => Head::Held(cause),
                Next::Idle => Head::Idle,
            },
        };
        match head {
            Head::Packet { len } => {
                self.mix(u64::from(len));
                if before.is_some_and(|shown| shown != len) {
                    return Err(format!("head showed {before:?} bytes and now {len}, with no take"));
                }
                if before.is_none() {
                    (self.shown, self.touched_since_shown) = (Some(len), false);
                }
                Ok(())
            }
            Head::At(_) | Head::Held(_) | Head::Idle if before.is_some() => {
                Err(format!("head showed a packet and now {head:?}, with no take"))
            }
            Head::At(at) => self.heard_at(at),
            Head::Held(cause) => self.heard_held(cause),
            Head::Idle => self.heard_idle(),
        }
    }
    /// One dequeue; answers what it gave or said.
    fn take(&mut self) -> Result<Head, String> {
        self.asking = true;
        let next = match &mut self.asked {
            Asked::Child(child) => child.take(&mut self.cx),
            Asked::Plain { discipline, parked } => match parked.take() {
                Some(id) => Next::Packet(id),
                None => discipline.dequeue(&mut self.cx),
            },
        };
        let shown = self.shown.take();
        match next {
            Next::Packet(id) => {
                let len = self.cx.packets.get(&id).len;
                if shown.is_some_and(|shown| shown != len) {
                    return Err(format!("head showed {shown:?} bytes, and take gave {len}"));
                }
                self.summary.interleaved += u64::from(shown.is_some() && self.touched_since_shown);
                self.departed(id)?;
                Ok(Head::Packet { len })
            }
            next if shown.is_some() => Err(format!("head showed a packet, and take answered {next:?}")),
            Next::At(at) => {
                self.settle(None)?;
                self.heard_at(at)?;
                Ok(Head::At(at))
            }
            Next::Held(cause) => {
                self.settle(None)?;
                self.heard_held(cause)?;
                Ok(Head::Held(cause))
            }
            Next::Idle => {
                self.settle(None)?;
                self.heard_idle()?;
                Ok(Head::Idle)
            }
        }
    }
    fn take_many(&mut self, n: u32) -> Law {
        for _ in 0..n {
            let before = self.summary.sent;
            self.take()?;
            if self.summary.sent == before {
                return Ok(());
            }
        }
        self.settle(None)?;
        self.mix(0);
        Ok(())
    }
    /// The laws of `Next`, with no other call in between.
    fn probe(&mut self, within: u64, past_ns: u64) -> Law {
        let told = self.take()?;
        let wait = match told {
            Head::Packet { .. } | Head::Idle => return Ok(()),
            Head::At(at) => at.since(self.cx.now).as_nanos(),
            Head::Held(_) => u64::MAX,
        };
        let patience = wait.min(PATIENCE_NS);
        for step in [0, within % patience, patience - 1 - (within % patience)] {
            self.cx.now += Duration::from_nanos(step);
            let again = self.take()?;
            if again != told {
                return Err(format!(
                    "law 2: asked again at {}, with no other call in between, it answered {again:?}, not {told:?}; {} waits",
                    self.cx.now,
                    self.oldest_waiting()
                ));
            }
        }
        let Head::At(at) = told else { return Ok(()) };
        if wait > PATIENCE_NS {
            return Ok(());
        }
        self.cx.now = at + Duration::from_nanos(past_ns);
        let before = (self.summary.sent, self.summary.dropped);
        self.take()?;
        if before == (self.summary.sent, self.summary.dropped) {
            return Err(format!(
                "law 2: asked at {}, not before {at}, it neither gave nor dropped; {} waits",
                self.cx.now,
                self.oldest_waiting()
            ));
        }
        Ok(())
    }
    fn flush(&mut self, reason: DropReason) -> Law {
        match &mut self.asked {
            Asked::Child(child) => child.flush(&mut self.cx, reason),
            Asked::Plain { discipline, parked } => {
                if let Some(id) = parked.take() {
                    self.cx.drop(id, reason);
                }
                discipline.flush(&mut self.cx, reason);
            }
        }
        self.shown = None;
        self.settle(Some(reason))?;
        match self.queued.packets {
            0 => self.take().map(|_| ()),
            n => Err(format!("law 1: {n} packets outlived a flush, the oldest {}", self.oldest_waiting())),
        }
    }
    fn reconfigure(&mut self, class: &str, params: &Params) -> Law {
        if self.try_reconfigure(class, params)? {
            self.waiting.changed(class, params);
            self.summary.reconfigured += 1;
        }
        Ok(())
    }
    /// A packet came out: is it one of ours, and in order?
    fn departed(&mut self, id: PacketId) -> Law {
        let row = self.cx.packets.get(&id);
        let (serial, len, leaf) = (row.frame.0, row.len, row.leaf);
        self.mix(u64::from(serial) << 8);
        self.leave_ledger(serial, len)?;
        let entry = &self.packets[serial as usize];
        if entry.leaf != leaf {
            return Err(format!("routing: {} left as a packet of leaf {leaf}", self.name(serial)));
        }
        let place = (entry.leaf * FLOWS + entry.flow) as usize;
        if serial < self.left[place] {
            return Err(format!(
                "law 3: {} left after packet {} of its flow and leaf",
                self.name(serial),
                self.left[place] - 1
            ));
        }
        self.left[place] = serial + 1;
        self.summary.sent += 1;
        self.in_flight.push_back(id);
        Ok(())
    }
    fn complete(&mut self) -> Law {
        let Some(id) = self.in_flight.pop_front() else { return Ok(()) };
        let (at, cx) = (self.cx.now, &mut self.cx);
        match &mut self.asked {
            Asked::Plain { discipline, .. } => discipline.on_sent(cx, &id, at),
            Asked::Child(child) => child.on_sent(cx, &id, at),
        }
        let (serial, leaf) = (self.cx.packets.get(&id).frame.0, self.cx.packets.get(&id).leaf);
        self.cx.packets.remove(id);
        if !spy::was_told(leaf, serial) {
            return Err(format!(
                "on_sent: {} left, and the child that gave it was not told",
                self.name(serial)
            ));
        }
        Ok(())
    }
    /// Takes what was dropped out of the ledger; all of it for `reason`, if one is given.
    fn settle(&mut self, expected: Option<DropReason>) -> Law {
        while let Some((id, reason)) = self.cx.next_dropped() {
            let row = self.cx.packets.get(&id);
            let (serial, len) = (row.frame.0, row.len);
            self.late[row.leaf as usize] |= self.asking && reason == DropReason::Deadline;
            self.mix((u64::from(serial) << 8) + 1 + reason as u64);
            self.leave_ledger(serial, len)?;
            self.summary.dropped += 1;
            self.cx.packets.remove(id);
            if expected.is_some_and(|e| e != reason) {
                return Err(format!(
                    "flushed for {expected:?}, {} was dropped for {reason:?}",
                    self.name(serial)
                ));
            }
        }
        Ok(())
    }
    fn leave_ledger(&mut self, serial: u32, len: u32) -> Law {
        let known = self.packets.get(serial as usize).is_some_and(|e| e.queued && e.len == len);
        let Some(entry) = self.packets.get_mut(serial as usize).filter(|_| known) else {
            return Err(format!(
                "law 1: {} came out with {len} bytes, and no such packet waits",
                self.name(serial)
            ));
        };
        entry.queued = false;
        self.queued.packets -= 1;
        self.queued.bytes -= u64::from(len);
        Ok(())
    }
    fn heard_at(&mut self, at: Instant) -> Law {
        self.settle(None)?;
        self.summary.waits += 1;
        self.mix(at.as_nanos() ^ 0xa7);
        self.due = at;
        if at <= self.cx.now {
            return Err(format!(
                "law 2: {} is told to wait until {at}, and it is {} already",
                self.oldest_waiting(),
                self.cx.now
            ));
        }
        match self.queued.packets {
            _ if at == Instant::NEVER => Err(format!(
                "law 2: {} is told to wait until `Instant::NEVER`, which is not a cause",
                self.oldest_waiting()
            )),
            0 => Err(format!("law 2: told to come back at {at} for an empty queue")),
            _ => self.conserves(Head::At(at)),
        }
    }
    fn heard_held(&mut self, cause: Cause) -> Law {
        self.settle(None)?;
        self.summary.waits += 1;
        self.mix(cause as u64 ^ 0x4e1d);
        self.due = self.cx.now;
        match self.queued.packets {
            0 => Err(format!("law 2: answered Held({cause:?}) with no packet waiting")),
            _ => self.conserves(Head::Held(cause)),
        }
    }
    fn heard_idle(&mut self) -> Law {
        self.settle(None)?;
        self.mix(0x1d1e);
        match self.queued.packets {
            0 => Ok(()),
            n => Err(format!(
                "law 2: answered Idle with {n} packets waiting, the oldest {}",
                self.oldest_waiting()
            )),
        }
    }
    /// What holds after every call.
    fn audit(&mut self, deep: bool) -> Law {
        let (backlog, empty) = match &self.asked {
            Asked::Child(child) => (child.backlog(), child.is_empty()),
            Asked::Plain { discipline, parked: None } => (discipline.backlog(), discipline.is_empty()),
            Asked::Plain { discipline, parked: Some(id) } => {
                let len = u64::from(self.cx.packets.get(id).len);
                (discipline.backlog() + Backlog { packets: 1, bytes: len }, false)
            }
        };
        if backlog != self.queued {
            return Err(format!(
                "law 1: it says {backlog:?}, and the ledger {:?}; the oldest that waits is {}",
                self.queued,
                self.oldest_waiting()
            ));
        }
        if empty != (backlog.packets == 0) {
            return Err(format!("is_empty says {empty}, and the backlog is {backlog:?}"));
        }
        let live = u64::from(self.cx.packets.live());
        if live != self.queued.packets + self.in_flight.len() as u64 {
            return Err(format!(
                "law 1: the table holds {live} packets, and the ledger {} that wait and {} on the wire; the oldest that waits is {}",
                self.queued.packets,
                self.in_flight.len(),
                self.oldest_waiting()
            ));
        }
        if let Some(complaint) = spy::complaint() {
            return Err(complaint);
        }
        if let Some(broken) = self.cx.is_broken() {
            return Err(format!("{} is broken: {}", broken.discipline, broken.what));
        }
        if deep {
            let sound = match &self.asked {
                Asked::Child(child) => child.check(&self.cx),
                Asked::Plain { discipline, .. } => discipline.check(&self.cx),
            };
            sound.map_err(|Broken { discipline, what }| format!("check: {discipline}: {what}"))?;
            if !self.is_holding() {
                self.audit_classes()?;
            }
        }
        Ok(())
    }
    fn stats(&self) -> u64 {
        let mut seen = Seen(0);
        match &self.asked {
            Asked::Child(child) => child.visit_stats(&mut seen),
            Asked::Plain { discipline, .. } => discipline.visit_stats(&mut seen),
        }
        seen.0
    }
    fn mix(&mut self, value: u64) {
        self.hash = mixed(self.hash, value);
    }
}

struct Seen(u64);
impl Visit for Seen {
    fn class(&mut self, class: &str, depth: u32) {
        self.0 = class.bytes().fold(mixed(self.0, u64::from(depth)), |h, b| mixed(h, u64::from(b)));
    }
    fn value(&mut self, name: &'static str, _unit: &'static str, value: i64) {
        self.0 = name.bytes().fold(mixed(self.0, value as u64), |h, b| mixed(h, u64::from(b)));
    }
}

fn mixed(hash: u64, value: u64) -> u64 {
    (hash ^ value).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23)
}

/// The packet, with header fields that depend on its flow alone but for DSCP and colour.
fn meta(arrival: &Arrival, now: Instant, serial: u32) -> Meta {
    let flow = arrival.flow;
    let mut meta = Meta::new(arrival.len, now, FrameRef(serial));
    meta.leaf = arrival.leaf;
    meta.flow = flow.wrapping_mul(0x9e37_79b9) ^ 0x5bd1_e995;
    meta.src_hash = (flow / 4).wrapping_mul(0x85eb_ca6b) + 1;
    meta.dst_hash = (flow % 4).wrapping_mul(0xc2b2_ae35) + 1;
    (meta.src_port, meta.dst_port) = (1_024 + flow as u16, 80 + (flow % 3) as u16);
    meta.protocol = if flow.is_multiple_of(2) { 6 } else { 17 };
    // Constant in a flow: an AQM with two queues tells them apart by ECN.
    meta.ecn = (flow % 4) as u8;
    meta.dscp = arrival.dscp;
    meta.colour = [Colour::Green, Colour::Yellow, Colour::Red][usize::from(arrival.dscp % 3)];
    meta.order = serial;
    meta.state = PacketState::Queued;
    meta
}
