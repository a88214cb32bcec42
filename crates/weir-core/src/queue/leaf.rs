//! A leaf: one list of packets with the AQM that decides which of them to drop.

use super::head::Held;
use super::{
    Backlog, Cx, DropReason, Head, Link, Next, ParamError, ParamSpec, Params, Scope, Value, Verdict, Visit,
    params,
};
use crate::aqm::params::{queue_limit, queue_param};
use crate::aqm::{Aqm, Decision, Departures, TailDrop};
use crate::packet::{List, Meta, PacketId, PacketTable};
use alloc::boxed::Box;
use alloc::format;
use core::any::Any;

/// The ECN codepoint "congestion experienced" (RFC 3168, section 5).
const CE: u8 = 3;

/// A queue of packets, in order of arrival: 40 bytes, of which a class and its queue share a cache line.
#[repr(C)]
pub struct Leaf {
    /// `None` for a queue that does nothing but to drop what it has no room for.
    managed: Option<Box<Managed>>,
    bare: Bare,
}

const _: () = assert!(size_of::<Leaf>() <= 40, "many thousands of queues stand side by side");

/// The queue itself, whoever manages it. The order of its fields leaves a byte at the end to tell a leaf from another child.
#[repr(C)]
pub struct Bare {
    list: List,
    limit: u32,
    longest: u32,
    /// What becomes of a packet that finds the queue full, where nothing manages it.
    tail: TailDrop,
    /// From so many packets on, at least 1, a departure is nothing but a departure; as `u32`, so that -1 is never.
    plain_from: i8,
    /// The AQM may drop at departure.
    decides: bool,
    /// The oldest packet was shown to a parent: pushing out spares it (A06).
    shown: bool,
}

/// What a queue needs besides that has an AQM, or changes packets that leave.
struct Managed {
    aqm: Box<dyn Aqm>,
    after: After,
    /// What a parent was shown, where the AQM decides at departure.
    held: Held,
}

/// What happens to packets after the AQM has decided.
#[derive(Default)]
pub struct After {
    marked: u64,
    /// Departing packets get DSCP 0 (`cleardscp`).
    clear_dscp: bool,
}

/// An AQM as a queue calls it: once per packet by a pointer, and what the AQM does is inlined there. Whatever is
/// an [`Aqm`] is this too.
pub trait Driven {
    /// Takes a packet, unless the AQM refuses it.
    fn enqueue(&mut self, bare: &mut Bare, after: &mut After, cx: &mut Cx, id: PacketId) -> Verdict;
    /// Takes the next packet that survives its departure.
    fn dequeue(&mut self, bare: &mut Bare, after: &mut After, cx: &mut Cx) -> Option<PacketId>;
}

impl<A: Aqm> Driven for A {
    fn enqueue(&mut self, bare: &mut Bare, after: &mut After, cx: &mut Cx, id: PacketId) -> Verdict {
        if self.is_rare(cx, &bare.list) {
            return enqueue_rare(self, bare, after, cx, id);
        }
        let decision = self.arrive(cx, &bare.list, bare.limit, &id);
        if decision == Decision::Accept {
            bare.accept(cx, id);
            return Verdict::Queued;
        }
        bare.enqueue_otherwise(Some(after), cx, id, decision)
    }
    fn dequeue(&mut self, bare: &mut Bare, after: &mut After, cx: &mut Cx) -> Option<PacketId> {
        loop {
            let id = bare.list.pop_front(&mut cx.packets)?;
            match self.depart(cx, &bare.list, &id) {
                Decision::Drop(_) | Decision::Mark(_) if !bare.decides => {}
                Decision::Drop(reason) => {
                    cx.drop(id, reason);
                    continue;
                }
                Decision::Mark(reason) if !after.mark(&mut cx.packets, &id) => {
                    cx.drop(id, reason);
                    continue;
                }
                Decision::Mark(_) | Decision::Accept | Decision::PushOut(..) | Decision::DropBoth(..) => {}
            }
            if after.clear_dscp {
                cx.packets.get_mut(&id).dscp = 0;
            }
            return Some(id);
        }
    }
}

/// The same for an arrival that the AQM calls rare.
#[cold]
fn enqueue_rare(
    aqm: &mut impl Aqm,
    bare: &mut Bare,
    after: &mut After,
    cx: &mut Cx,
    id: PacketId,
) -> Verdict {
    let decision = aqm.arrive(cx, &bare.list, bare.limit, &id);
    bare.enqueue_otherwise(Some(after), cx, id, decision)
}

impl Leaf {
    /// A queue of at most `limit` packets that refuses what comes when it is full.
    pub fn tail_drop(limit: u32) -> Self {
        let bare = Bare {
            list: List::new(),
            limit,
            longest: 0,
            tail: TailDrop { head: false },
            plain_from: 1,
            decides: false,
            shown: false,
        };
        Leaf { managed: None, bare }
    }
    /// A queue with that AQM.
    pub fn custom(limit: u32, aqm: Box<dyn Aqm>) -> Self {
        let mut leaf = Leaf::tail_drop(limit);
        let any: &dyn Any = &*aqm;
        match any.downcast_ref() {
            Some(tail) => leaf.bare.tail = *tail,
            None => leaf.manage(aqm),
        }
        leaf
    }
    /// Puts an AQM in charge.
    fn manage(&mut self, aqm: Box<dyn Aqm>) {
        let departures = aqm.departures();
        self.bare.plain_from = match departures {
            Departures::None => 1,
            Departures::Last => 2,
            Departures::Every | Departures::Decides => -1,
        };
        self.bare.decides = departures == Departures::Decides;
        self.managed = Some(Box::new(Managed { aqm, after: After::default(), held: Held::default() }));
    }
    pub(crate) fn clearing_dscp(mut self, clear: bool) -> Self {
        if clear {
            self.clear_dscp();
        }
        self
    }
    fn clear_dscp(&mut self) {
        if self.managed.is_none() {
            self.manage(Box::new(self.bare.tail));
        }
        if let Some(managed) = &mut self.managed {
            (managed.after.clear_dscp, self.bare.plain_from) = (true, -1);
        }
    }
    fn aqm(&self) -> &dyn Aqm {
        self.managed.as_ref().map_or(&self.bare.tail, |managed| &*managed.aqm)
    }
    /// Takes a packet, unless the AQM refuses it.
    #[inline(always)]
    pub fn enqueue(&mut self, cx: &mut Cx, id: PacketId) -> Verdict {
        match &mut self.managed {
            Some(managed) => managed.aqm.enqueue(&mut self.bare, &mut managed.after, cx, id),
            // Whatever a full queue does, one that is not full takes the packet.
            None if self.bare.list.packets() < self.bare.limit => {
                self.bare.accept(cx, id);
                Verdict::Queued
            }
            None => self.bare.enqueue_full(cx, id),
        }
    }
    /// Takes the next packet that survives its departure.
    #[inline]
    pub fn dequeue(&mut self, cx: &mut Cx) -> Option<PacketId> {
        match self.dequeue_plain(&cx.packets) {
            None => self.dequeue_managed(cx),
            Some((id, _)) => Some(id),
        }
    }
    /// Takes the next packet, and says its length, where that departure is nothing but a departure. `None`: see
    /// `dequeue_managed`.
    #[inline(always)]
    pub(super) fn dequeue_plain(&mut self, packets: &PacketTable) -> Option<(PacketId, u32)> {
        self.bare.shown = false;
        let plain = self.bare.list.packets() >= self.bare.plain_from as u32;
        plain.then(|| self.bare.list.take_first(packets))
    }
    /// The same for one that the AQM hears of.
    #[inline(never)]
    pub(super) fn dequeue_managed(&mut self, cx: &mut Cx) -> Option<PacketId> {
        match &mut self.managed {
            Some(managed) => managed.aqm.dequeue(&mut self.bare, &mut managed.after, cx),
            None => self.bare.list.pop_front(&mut cx.packets),
        }
    }
    /// `dequeue` as an answer. What is not plain is a call at its end, and no row is looked up that may be missing: so
    /// nothing need be saved.
    #[inline(always)]
    pub(super) fn pull(&mut self, cx: &mut Cx) -> Next {
        self.bare.shown = false;
        let plain = self.bare.list.packets() >= self.bare.plain_from as u32;
        let first = if plain { self.bare.list.take_front(&cx.packets) } else { None };
        match first {
            Some((id, _)) => Next::Packet(id),
            None => self.pull_managed(cx),
        }
    }
    #[inline(never)]
    fn pull_managed(&mut self, cx: &mut Cx) -> Next {
        self.dequeue_managed(cx).map_or(Next::Idle, Next::Packet)
    }
    /// What goes next, which pushing out spares from now on: the oldest packet, or where the AQM decides
    /// at departure the one that it lets go, which is held.
    #[inline(always)]
    pub(super) fn head(&mut self, cx: &mut Cx) -> Head {
        match self.bare.decides {
            false => self.show_head(&cx.packets),
            true => self.hold(cx),
        }
    }
    fn hold(&mut self, cx: &mut Cx) -> Head {
        let Leaf { managed: Some(managed), bare } = self else { return Head::Idle };
        if let Some(head) = managed.held.head() {
            return head;
        }
        let Some(id) = managed.aqm.dequeue(bare, &mut managed.after, cx) else { return Head::Idle };
        managed.held.hold(id, cx)
    }
    /// Takes what `head` showed, or the next packet.
    #[inline(always)]
    pub(super) fn take(&mut self, cx: &mut Cx) -> Option<PacketId> {
        match self.take_held() {
            None => self.dequeue(cx),
            id => id,
        }
    }
    /// Takes the packet that is held.
    #[inline(always)]
    pub(super) fn take_held(&mut self) -> Option<PacketId> {
        if !self.bare.decides {
            return None;
        }
        self.managed.as_mut().and_then(|managed| managed.held.take())
    }
    /// The packet that is held.
    #[inline(always)]
    pub(super) fn held(&self) -> Option<&Held> {
        if !self.bare.decides {
            return None;
        }
        self.managed.as_ref().map(|managed| &managed.held)
    }
    /// Takes the newest packet: for a parent that chooses its own victims.
    pub fn pop_back(&mut self, cx: &mut Cx) -> Option<PacketId> {
        self.bare.shown &= self.bare.list.packets() > 1;
        self.bare.list.pop_back(&mut cx.packets)
    }
    /// Takes the oldest packet without asking the AQM: for a parent that chooses its own victims.
    pub fn pop_front(&mut self, cx: &mut Cx) -> Option<PacketId> {
        self.bare.shown = false;
        self.bare.list.pop_front(&mut cx.packets)
    }
    /// The oldest packet, which pushing out spares from now on until it is taken.
    #[inline(always)]
    pub(super) fn show_head(&mut self, packets: &PacketTable) -> Head {
        let Some(row) = self.bare.list.front(packets) else { return Head::Idle };
        self.bare.shown = true;
        Head::Packet { len: row.len }
    }
    /// The row of the packet that `show_head` showed.
    #[inline]
    pub(super) fn shown<'t>(&self, packets: &'t PacketTable) -> Option<&'t Meta> {
        if self.bare.shown { self.bare.list.front(packets) } else { None }
    }
    /// The packets, to look at.
    pub fn list(&self) -> &List {
        &self.bare.list
    }
    /// Most packets it takes.
    pub fn limit(&self) -> u32 {
        self.bare.limit
    }
    /// Changes the most packets it takes; what is queued beyond it stays.
    pub fn set_limit(&mut self, limit: u32) {
        self.bare.limit = limit;
    }
    /// True if the AQM may drop at departure, so that the list's head is not yet what goes next.
    #[inline]
    pub fn decides_at_departure(&self) -> bool {
        self.bare.decides
    }
    /// Packets that its AQM has marked.
    pub fn marked(&self) -> u64 {
        self.managed.as_ref().map_or(0, |managed| managed.after.marked)
    }
    /// What is waiting.
    pub fn backlog(&self) -> Backlog {
        Backlog { packets: u64::from(self.bare.list.packets()), bytes: self.bare.list.bytes() }
    }
    /// True if nothing is.
    pub fn is_empty(&self) -> bool {
        self.bare.list.is_empty()
    }
    /// Drops everything.
    pub fn flush(&mut self, cx: &mut Cx, reason: DropReason) {
        self.bare.shown = false;
        while let Some(id) = self.bare.list.pop_front(&mut cx.packets) {
            cx.drop(id, reason);
        }
    }
    /// True for a parameter of this very queue: `qlimit`, `cleardscp`, or one of its AQM's.
    pub fn knows(&self, name: &str) -> bool {
        matches!(name, "qlimit" | "cleardscp") || self.param(name).is_some()
    }
    /// The declaration of a parameter of its AQM that can be changed at run time.
    fn param(&self, name: &str) -> Option<&'static ParamSpec> {
        params::find(self.aqm().params(), Scope::Discipline, name)
    }
    /// Changes `qlimit`, `cleardscp` and the AQM's parameters, whole or not at all. The AQM stays.
    ///
    /// # Errors
    /// A parameter of another AQM or of none, one of another kind or out of range; what the AQM
    /// refuses.
    pub fn reconfigure(&mut self, class: &str, params: &Params, link: &Link) -> Result<(), ParamError> {
        for (name, value) in params.iter() {
            let has = self.aqm().name();
            match (self.param(name).or(queue_param(name)), value) {
                (Some(spec), value) => spec.accept(class, value)?,
                // `red` of a queue that has RED says nothing new.
                (None, Value::Flag) if name == has => {}
                (None, _) => {
                    let expected = format!(
                        "a parameter of this queue, which has {has}: another AQM begins with the file, loaded anew"
                    );
                    return Err(ParamError::new(class, name, "a word that is not known here", expected));
                }
            }
        }
        let limit = queue_limit(class, params)?;
        let aqm: &mut dyn Aqm = match &mut self.managed {
            Some(managed) => &mut *managed.aqm,
            None => &mut self.bare.tail,
        };
        aqm.reconfigure(class, params, link)?;
        self.bare.limit = limit.unwrap_or(self.bare.limit);
        if params.has("cleardscp") {
            self.clear_dscp();
        }
        Ok(())
    }
    /// Shows the queue and its AQM. `held` was taken out of it and waits still.
    pub fn visit_stats(&self, held: Backlog, visit: &mut dyn Visit) {
        let waiting = self.backlog() + held;
        visit.value("backlog", "packets", waiting.packets as i64);
        visit.value("backlog_bytes", "bytes", waiting.bytes as i64);
        visit.value("longest", "packets", i64::from(self.bare.longest));
        visit.value("limit", "packets", i64::from(self.bare.limit));
        visit.value("marked", "packets", self.marked() as i64);
        self.aqm().visit_stats(visit);
    }
    /// True if the list is sound: for tests.
    pub fn is_sound(&self, table: &PacketTable) -> bool {
        self.bare.list.is_sound(table)
    }
}

impl Bare {
    #[inline(always)]
    fn accept(&mut self, cx: &mut Cx, id: PacketId) {
        self.list.push_back(&mut cx.packets, id);
        if self.list.packets() > self.longest {
            self.longest = self.list.packets();
        }
    }
    /// What nothing manages drops as the queue says.
    #[inline(never)]
    fn enqueue_full(&mut self, cx: &mut Cx, id: PacketId) -> Verdict {
        let decision = self.tail.arrive(cx, &self.list, self.limit, &id);
        self.enqueue_otherwise(None, cx, id, decision)
    }
    /// The AQM wants more done with a packet that came than to take it.
    fn enqueue_otherwise(
        &mut self,
        after: Option<&mut After>,
        cx: &mut Cx,
        id: PacketId,
        decision: Decision,
    ) -> Verdict {
        match decision {
            Decision::Drop(reason) => {
                cx.drop(id, reason);
                return Verdict::Dropped;
            }
            Decision::Mark(reason) => {
                if !after.is_some_and(|after| after.mark(&mut cx.packets, &id)) {
                    cx.drop(id, reason);
                    return Verdict::Dropped;
                }
            }
            Decision::DropBoth(position, reason) => {
                if position > 0 || !self.shown {
                    self.drop_at(cx, position, reason);
                }
                cx.drop(id, reason);
                return Verdict::Dropped;
            }
            Decision::Accept | Decision::PushOut(..) => {}
        }
        let Decision::PushOut(position, reason) = decision else {
            self.accept(cx, id);
            return Verdict::Queued;
        };
        let position = position.max(u32::from(self.shown));
        // The newcomer itself may be the victim (A04): with n queued, that is position n.
        if position >= self.list.packets() {
            cx.drop(id, reason);
            return Verdict::Dropped;
        }
        self.list.push_back(&mut cx.packets, id);
        self.drop_at(cx, position, reason);
        Verdict::Queued
    }
    fn drop_at(&mut self, cx: &mut Cx, position: u32, reason: DropReason) {
        if let Some(victim) = self.list.remove_at(&mut cx.packets, position) {
            cx.drop(victim, reason);
        }
    }
}

impl After {
    /// Marks a packet whose sender understands it; false for another.
    fn mark(&mut self, packets: &mut PacketTable, id: &PacketId) -> bool {
        let row = packets.get_mut(id);
        let capable = row.ecn_capable();
        if capable {
            row.ecn = CE;
            self.marked += 1;
        }
        capable
    }
}
