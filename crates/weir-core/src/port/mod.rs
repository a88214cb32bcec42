//! The egress of an interface as one object: packet table, classifier, tree, wire, ledger.
//!
//! Simulator, engine, replay and bench all drive this object; they differ only in who tells the
//! time and who owns the bytes. A host does three things:
//! - [`receive`](Port::receive) what arrives, in order of time (or [`condition`](Port::condition) and
//!   [`offer`](Port::offer) it in two steps);
//! - [`advance`](Port::advance) to the present when [`next_wake_up`](Port::next_wake_up) has come or passed;
//! - act on the [`Event`]s: packets that were taken from the tree, that left, and that were dropped.
//!
//! Control packets may go before the tree ([`Protect`]). What enters walks conditioners -> class
//! filters -> tree -> wire: a [`PortPlan`] holds the conditioners of the interface by which packets
//! come and the tree of the one by which they leave. A marked packet is classified by its mark; a
//! policed one is counted in the class that it would have gone to.
//!
//! At one instant arrivals come before completions: `receive` at t does what was due before t,
//! `advance` to t what is due at t too.
//!
//! A late host: an emulated link does what was due in virtual order, as if the host had been in
//! time. A real wire cannot send in the past, so what was due happens now. Lateness up to the time
//! in which the bucket fills changes no rate. What is missed beyond that is lost.

mod clock;
mod due;
mod estate;
mod event;
mod fill;
mod flows;
mod hold;
mod layout;
mod ledger;
mod plan;
mod protect;
mod room;
mod succession;
mod swap;
mod wire;

pub use estate::Estate;
pub use event::{Conditioned, Event, EventKind};
pub use layout::Layout;
pub use ledger::{Account, BYTES_PER_LEAF};
pub use plan::{PortConfig, PortPlan, Segment};
pub use protect::Protect;
pub use room::rows_for;
pub use succession::Succession;
pub use swap::Retired;
pub use wire::{Refill, WireConfig};

use crate::classify::Classifier;
use crate::meter::{Conditioners, Judgement};
use crate::packet::{FrameRef, Key, Meta, PacketId, PacketState};
use crate::queue::{Backlog, Broken, Cx, DropReason, Inner, Link, ParamError, Params, Verdict, Visit};
use crate::sched::{LeafInfo, Tree};
use crate::spread::Apart;
use crate::units::{Duration, Instant};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use clock::Clock;
use flows::Flows;
use ledger::Ledger;
use protect::Lane;
use room::Room;
use wire::Wire;

#[derive(Clone, Copy)]
struct Timer {
    /// When the tree wants to be asked; `NEVER` where no timer runs.
    at: Instant,
    /// When it will be.
    due: Instant,
}

impl Timer {
    const NONE: Timer = Timer { at: Instant::NEVER, due: Instant::NEVER };

    #[inline(always)]
    fn is_set(&self) -> bool {
        self.at != Instant::NEVER
    }
}

/// The egress of one interface: packet table, classifier, tree of disciplines, wire and ledger.
///
/// | to | call |
/// |---|---|
/// | open it | [`new`](Port::new) |
/// | hand a packet in | [`receive`](Port::receive), or [`condition`](Port::condition) and [`offer`](Port::offer) |
/// | know when to come back | [`next_wake_up`](Port::next_wake_up) |
/// | have done what is due | [`advance`](Port::advance) |
/// | change what it runs | [`swap`](Port::swap), [`reconfigure`](Port::reconfigure) |
/// | know what became of packets | [`account`](Port::account), [`total`](Port::total), [`visit_stats`](Port::visit_stats) |
/// | go on with it elsewhere | [`estate`](Port::estate), [`inherit`](Port::inherit) |
///
/// Times are those of the host's clock, and lengths are bytes of frames.
///
/// Every call that may move packets takes a function that hears of it at once: an [`Event`] by
/// value, in the order of time. A host that keeps its own state in one struct beside the port passes
/// `&mut |event| state.hear(event)` and borrows nothing twice.
pub struct Port {
    /// Its `now` is the tree's time.
    cx: Cx,
    clock: Clock,
    tree: Inner,
    lane: Lane,
    wire: Wire,
    timer: Timer,
    /// The timer runs until the bucket has tokens for the packet that the tree has shown.
    short_of_tokens: bool,
    /// What stands below takes nothing (`hold.rs`).
    held: bool,
    classifier: Classifier,
    flows: Flows,
    conditioners: Option<Conditioners>,
    leaves: Arc<Vec<LeafInfo>>,
    /// Limits that queues have got since they were built, by leaf.
    limits: BTreeMap<u32, u32>,
    default_leaf: u32,
    /// The leaf of packets that no filter matches: the default one, unless that is in another part.
    otherwise: u32,
    apart: Option<Apart>,
    ledger: Ledger,
    /// Which rows are kept for whom; `None` where there is room for all limits.
    room: Option<Box<Room>>,
    tick: Duration,
    packet_events: bool,
    ecn: bool,
    tunnels: bool,
    segment: Segment,
    seed: u64,
    order: u32,
    wake_ups: u64,
    refills: u64,
    reassigned: u64,
    broken: Option<Broken>,
}

/// The leaf of packets that no filter matches.
fn otherwise(tree: &Tree, apart: Option<&Apart>) -> u32 {
    apart.and_then(|apart| apart.otherwise).or(tree.default_leaf).unwrap_or(0)
}

impl Port {
    /// A port that runs `plan`. Where the plan brings a link and a regulator of its own, these
    /// count instead of `config`'s, unless the link is emulated.
    pub fn new(config: PortConfig, plan: PortPlan) -> Self {
        let PortPlan {
            tree,
            classifier,
            conditioners,
            ecn,
            tunnels,
            protect,
            segment,
            capacity,
            regulated,
            apart,
            succession: _,
        } = plan;
        let (link, wire) = match (config.wire, regulated) {
            (WireConfig::Link { .. }, _) | (_, None) => (config.link, config.wire),
            (_, Some(of_the_plan)) => of_the_plan,
        };
        let wire = Wire::new(wire, &link);
        let (capacity, ledger) = (capacity.unwrap_or(config.capacity), Ledger::new(tree.leaves.len()));
        Port {
            cx: Cx::new(capacity, link, config.seed),
            room: Room::new(tree.leaves.iter().map(|leaf| leaf.limit), wire.ring_size(), capacity, &ledger),
            ledger,
            clock: Clock::new(wire.tolerance(&link, apart.is_some())),
            wire,
            timer: Timer::NONE,
            short_of_tokens: false,
            held: false,
            flows: Flows::new(&classifier),
            classifier,
            conditioners,
            default_leaf: tree.default_leaf.unwrap_or(0),
            otherwise: otherwise(&tree, apart.as_ref()),
            apart,
            leaves: Arc::new(tree.leaves),
            limits: BTreeMap::new(),
            tree: Inner::new(tree.discipline),
            lane: Lane::new(protect),
            tick: config.tick,
            packet_events: config.packet_events,
            ecn,
            tunnels,
            segment,
            seed: config.seed,
            order: 0,
            wake_ups: 0,
            refills: 0,
            reassigned: 0,
            broken: None,
        }
    }

    /// The seed that the port was made with: a port with the same seed, configuration and calls
    /// decides the same.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Takes a frame of `len` bytes whose headers say `key`: conditions, classifies and offers it.
    pub fn receive(
        &mut self,
        now: Instant,
        len: u32,
        frame: FrameRef,
        key: &Key,
        host: &mut impl FnMut(Event<'_>),
    ) -> Verdict {
        if self.conditioners.is_some() {
            let packet = self.condition(now, len, frame, key);
            return self.take_in(now, packet, host);
        }
        // In this order, so that nothing of the packet is carried through what is due before.
        self.run(now, false, host);
        let packet = self.classified(now, len, frame, key, Judgement::none(key));
        self.enter(packet, host)
    }

    /// The first half of `receive`, for hosts that want to know the class first: the packet as the
    /// conditioners leave it, with its leaf. Their buckets have paid for it: `offer` it.
    #[inline]
    pub fn condition(&mut self, now: Instant, len: u32, frame: FrameRef, key: &Key) -> Conditioned {
        let judgement = match &mut self.conditioners {
            None => Judgement::none(key),
            Some(conditioners) => {
                let now = now.max(self.clock.host(self.cx.now));
                conditioners.judge(now, len, &self.cx.link, key, &mut self.cx.random)
            }
        };
        self.classified(now, len, frame, key, judgement)
    }

    /// The packet with its leaf, as it was judged.
    #[inline(always)]
    fn classified(
        &mut self,
        now: Instant,
        len: u32,
        frame: FrameRef,
        key: &Key,
        Judgement { passes, dscp, colour }: Judgement,
    ) -> Conditioned {
        let known = if dscp == key.tos >> 2 { self.known(key) } else { self.known_marked(key, dscp) };
        Conditioned(Meta {
            leaf: known.leaf,
            flow: known.flow,
            src_hash: known.src_hash,
            dst_hash: known.dst_hash,
            src_port: key.src_port,
            dst_port: key.dst_port,
            protocol: key.protocol,
            dscp,
            ecn: key.tos & (3 * u8::from(self.ecn)),
            tos_in: key.tos,
            colour,
            state: if passes { PacketState::Held } else { PacketState::Dropped },
            ..Meta::new(len, now, frame)
        })
    }

    /// Whether the host is to give the key of the packet inside a tunnel.
    pub fn looks_inside(&self) -> bool {
        self.tunnels
    }

    /// The number that stands for the leaf of control packets that went first.
    pub const CONTROL: u32 = u32::MAX - 1;

    /// Offers a packet whose class is decided: what `condition` gave, or a `Meta` whose `leaf` the
    /// host has chosen itself. A leaf that the tree does not have counts as the default one.
    pub fn offer(
        &mut self,
        now: Instant,
        packet: impl Into<Conditioned>,
        host: &mut impl FnMut(Event<'_>),
    ) -> Verdict {
        self.take_in(now, packet.into(), host)
    }

    #[inline(always)]
    fn take_in(&mut self, now: Instant, packet: Conditioned, host: &mut impl FnMut(Event<'_>)) -> Verdict {
        self.run(now, false, host);
        self.enter(packet, host)
    }

    /// A packet comes, after all that was due before.
    #[inline(always)]
    fn enter(&mut self, mut packet: Conditioned, host: &mut impl FnMut(Event<'_>)) -> Verdict {
        let meta = &mut packet.0;
        let policed = meta.state == PacketState::Dropped;
        // An account for each leaf.
        if meta.leaf as usize >= self.ledger.leaves.len() {
            meta.leaf = self.default_leaf;
        }
        meta.control = !policed && self.lane.admits(self.cx.now, meta, &self.cx.link);
        match meta.control {
            true => self.ledger.control.offer(meta.len),
            false => self.ledger.offered(meta.leaf, meta.len),
        }
        let finds_room = !policed && self.finds_room(meta);
        // After what goes through memory, so that none of it waits in a register meanwhile.
        (meta.arrival, meta.state) = (self.cx.now, PacketState::Queued);
        meta.order = self.order;
        self.order = self.order.wrapping_add(1);
        if policed {
            return self.refuse(packet.0, DropReason::Policed, host);
        }
        if !finds_room {
            return self.refuse(packet.0, DropReason::Nobuf, host);
        }
        let control = packet.0.control;
        let verdict = match self.cx.packets.insert(packet.0) {
            Ok(id) if control => {
                self.cx.packets.get_mut(&id).state = PacketState::Held;
                self.lane.queue.push_back(&mut self.cx.packets, id);
                Verdict::Queued
            }
            Ok(id) => self.tree.enqueue(&mut self.cx, id),
            Err(meta) => {
                self.gone(meta.control, meta.leaf);
                return self.refuse(meta, DropReason::Nobuf, host);
            }
        };
        self.settle(host);
        self.ask_again(host);
        verdict
    }

    /// Drops a packet that the table does not hold.
    fn refuse(&mut self, mut meta: Meta, reason: DropReason, host: &mut impl FnMut(Event<'_>)) -> Verdict {
        match meta.control {
            true => self.ledger.control.drop(meta.len, reason),
            false => self.ledger.dropped(meta.leaf, meta.len, reason),
        }
        let at = self.clock.host(self.cx.now);
        meta.arrival = at;
        host(Event { at, meta: &meta, kind: EventKind::Dropped(reason) });
        Verdict::Dropped
    }

    /// Does all that is due up to `now`, in order of time.
    pub fn advance(&mut self, now: Instant, host: &mut impl FnMut(Event<'_>)) {
        match &self.wire {
            Wire::Device(_) => self.advance_link(now, host),
            Wire::Bucket(_) | Wire::Open => self.run_at(now, true, host),
        }
    }

    // Apart, so that a call on a real wire which finds nothing due is short.
    #[inline(never)]
    fn advance_link(&mut self, now: Instant, host: &mut impl FnMut(Event<'_>)) {
        self.run_in_order(now, true, host);
    }

    /// When `advance` has something to do next; `NEVER` if only an arrival can change that.
    pub fn next_wake_up(&self) -> Instant {
        let timer = self.clock.host(self.timer.due);
        match &self.wire {
            Wire::Device(device) => device.next_completion().map_or(timer, |done| done.ceil().min(timer)),
            _ => timer,
        }
    }

    /// Changes parameters of a class at run time.
    ///
    /// # Errors
    /// What the discipline refuses; then nothing has changed.
    pub fn reconfigure(
        &mut self,
        now: Instant,
        class: &str,
        params: &Params,
        host: &mut impl FnMut(Event<'_>),
    ) -> Result<(), ParamError> {
        self.run(now, false, host);
        let result = self.tree.reconfigure(&mut self.cx, class, params);
        if let (Ok(()), Some(limit)) = (&result, params.count("qlimit")) {
            self.limit(class, u32::try_from(limit).unwrap_or(u32::MAX));
        }
        self.settle(host);
        self.fill(host);
        result
    }

    /// The conditioners in front of the tree.
    pub fn conditioners(&self) -> Option<&Conditioners> {
        self.conditioners.as_ref()
    }

    /// The leaves, in the order of `Meta::leaf`.
    pub fn leaves(&self) -> &[LeafInfo] {
        &self.leaves
    }
    /// The account of a leaf, by its number in [`leaves`](Port::leaves); `None` if there is no such leaf.
    pub fn account(&self, leaf: u32) -> Option<&Account> {
        self.ledger.leaves.get(leaf as usize)
    }
    /// The account of the whole port.
    pub fn total(&self) -> Account {
        self.ledger.total()
    }
    /// The account of the whole port less those of its leaves: control packets, and leaves that a
    /// swap took away.
    pub fn beside_leaves(&self) -> Account {
        self.ledger.beside_leaves()
    }
    /// Most packets in the port at once.
    pub fn capacity(&self) -> u32 {
        self.cx.packets.capacity()
    }
    /// What waits in the tree.
    pub fn backlog(&self) -> Backlog {
        self.tree.backlog()
    }
    /// Packets in the device ring.
    pub fn in_ring(&self) -> u32 {
        match &self.wire {
            Wire::Device(device) => device.ring().packets(),
            _ => 0,
        }
    }
    /// The link.
    pub fn link(&self) -> &Link {
        &self.cx.link
    }
    /// Time for which timers went off later than the bucket could make good, since the port was
    /// made. What could have been sent in it is lost. Always zero on an emulated link.
    pub fn lost_time(&self) -> Duration {
        self.clock.lost()
    }
    /// Times that the timer woke the tree.
    pub fn wake_ups(&self) -> u64 {
        self.wake_ups
    }
    /// Times that the device ring handed descriptors back ("interrupts").
    pub fn refills(&self) -> u64 {
        self.refills
    }
    /// Packets that a swap gave to the default class because theirs was gone.
    pub fn reassigned(&self) -> u64 {
        self.reassigned
    }
    /// Why the port runs as a FIFO, if a discipline broke; `None` if it runs as configured.
    pub fn is_broken(&self) -> Option<Broken> {
        self.broken
    }
    /// Shows the tree's own statistics.
    pub fn visit_stats(&self, visit: &mut dyn Visit) {
        self.tree.visit_stats(visit);
    }
    /// Verifies the tree, and that the ledger agrees with the packet table: for tests.
    ///
    /// # Errors
    /// The first that does not hold.
    pub fn check(&self) -> Result<(), Broken> {
        self.tree.check(&self.cx)?;
        let inside: u64 = self.ledger.total().inside();
        let known =
            self.tree.backlog().packets + u64::from(self.lane.queue.packets()) + u64::from(self.in_ring());
        if u64::from(self.cx.packets.live()) != known || inside != known {
            return Err(Broken { discipline: "port", what: "a packet is neither queued, sent nor dropped" });
        }
        if self.room.as_ref().is_some_and(|room| !room.is_sound(&self.ledger)) {
            return Err(Broken { discipline: "port", what: "a class has other rows than packets" });
        }
        Ok(())
    }

    #[inline(always)]
    fn sent(&mut self, id: PacketId, at: Instant, host: &mut impl FnMut(Event<'_>)) {
        if self.tree.hears_sent() && !self.cx.packets.get(&id).control {
            self.tree.on_sent(&mut self.cx, &id, at);
        }
        let meta = self.cx.packets.get(&id);
        self.ledger.sent(meta);
        host(Event { at: self.clock.host(at), meta, kind: EventKind::Sent });
        let (control, leaf) = (meta.control, meta.leaf);
        self.gone(control, leaf);
        self.cx.packets.remove(id);
    }

    /// After each call to the tree: hands dropped packets to the host, and acts on `Broken`.
    #[inline]
    fn settle(&mut self, host: &mut impl FnMut(Event<'_>)) {
        if self.cx.alert {
            self.hand_back(host);
        }
        debug_assert!(self.cx.dropped.is_empty(), "a drop without an alert");
    }

    fn hand_back(&mut self, host: &mut impl FnMut(Event<'_>)) {
        self.cx.alert = false;
        while let Some((id, reason)) = self.cx.next_dropped() {
            let meta = self.cx.packets.get_mut(&id);
            meta.arrival = self.clock.came(meta.arrival);
            self.ledger.dropped(meta.leaf, meta.len, reason);
            host(Event { at: self.clock.host(self.cx.now), meta, kind: EventKind::Dropped(reason) });
            let leaf = meta.leaf;
            self.gone(false, leaf);
            self.cx.packets.remove(id);
        }
        if let Some(broken) = self.cx.is_broken() {
            self.broken = Some(broken);
            self.become_fifo(host);
        }
    }
}

#[cfg(test)]
mod tests;
