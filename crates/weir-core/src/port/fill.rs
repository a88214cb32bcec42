//! From the tree to the wire: who is asked when, and what happens to the packet that it gives.
//!
//! Principle: the wire says when a packet may leave, the tree which one. The tree is asked when the wire has
//! room, after arrivals, and when the time has come that tree or bucket named. It is not asked for what it
//! has shown already.

use super::room::Room;
use super::wire::Wire;
use super::{Event, EventKind, Port, Timer};
use crate::packet::{PacketId, PacketState};
use crate::queue::{Cause, Head, Next};
use crate::units::{Duration, Instant};

/// ALTQ's rule for a coarse timer: the next tick may be arbitrarily close, so wait for two.
const MIN_TICKS: u64 = 2;

impl Port {
    /// A packet event: ask the tree, unless a timer runs and packet events do not count, or it would
    /// show what it has shown already.
    #[inline]
    pub(super) fn ask_again(&mut self, host: &mut impl FnMut(Event<'_>)) {
        if !self.timer.is_set() || (self.packet_events && !self.waits_for_tokens()) {
            self.fill(host);
        }
    }

    /// Whether the packet that goes next is known, and its tokens come later: asked again, the tree shows
    /// the same packet (A06) and the bucket names the same time. A control packet would go before it.
    #[inline]
    pub(super) fn waits_for_tokens(&self) -> bool {
        self.short_of_tokens
            && !self.held
            && self.lane.queue.is_empty()
            && self.timer.is_set()
            && self.timer.at > self.cx.now
    }

    /// Moves packets from the tree to the wire while the wire has room.
    pub(super) fn fill(&mut self, host: &mut impl FnMut(Event<'_>)) {
        self.short_of_tokens = false;
        if self.held {
            self.timer = Timer::NONE;
            return self.settle(host);
        }
        match &self.wire {
            Wire::Bucket(_) => self.fill_bucket(host),
            Wire::Open => self.fill_open(host),
            Wire::Device(_) => self.fill_device(host),
        }
    }

    /// An open wire takes whatever comes.
    #[inline(always)]
    fn fill_open(&mut self, host: &mut impl FnMut(Event<'_>)) {
        while !self.is_known_empty() {
            match self.take_next() {
                Next::Packet(id) if !self.cx.breaks() => self.pass(id, host),
                next => return self.rest(&next, host),
            }
        }
        self.timer = Timer::NONE;
    }

    /// A bucket lets go what it has tokens for. They never go below zero, because the length of what goes next is
    /// known before it leaves.
    #[inline(always)]
    fn fill_bucket(&mut self, host: &mut impl FnMut(Event<'_>)) {
        while !self.is_known_empty() {
            let control = self.lane.head(&self.cx.packets);
            let head = match control {
                Some(len) => Head::Packet { len },
                None => self.tree.head(&mut self.cx),
            };
            let len = match head {
                _ if self.cx.breaks() => return self.rest(&Next::Idle, host),
                Head::Packet { len } => len,
                Head::At(at) => return self.rest(&Next::At(at), host),
                Head::Held(cause) => return self.rest(&Next::Held(cause), host),
                Head::Idle => return self.rest(&Next::Idle, host),
            };
            let Wire::Bucket(bucket) = &mut self.wire else { return };
            match bucket.pay_or_wait(self.cx.now, self.cx.link.cost_bytes(len)) {
                None => {}
                Some(Instant::NEVER) => return self.rest(&Next::Held(Cause::Rate), host),
                Some(at) => {
                    self.short_of_tokens = control.is_none();
                    self.arm(at);
                    return self.settle(host);
                }
            }
            let next = match control {
                Some(_) => self.take_next(),
                None => self.tree.take(&mut self.cx),
            };
            match next {
                Next::Packet(id) if !self.cx.breaks() => self.pass(id, host),
                next => return self.rest(&next, host),
            }
        }
        self.timer = Timer::NONE;
    }

    /// A device takes as many packets as its ring has room for.
    #[inline(always)]
    fn fill_device(&mut self, host: &mut impl FnMut(Event<'_>)) {
        while !self.is_known_empty() {
            let Wire::Device(device) = &self.wire else { return };
            if !device.has_room() {
                return;
            }
            match self.take_next() {
                Next::Packet(id) if !self.cx.breaks() => {
                    let now = self.cx.now;
                    self.taken(&id, host);
                    if let Wire::Device(device) = &mut self.wire {
                        device.load(&mut self.cx.packets, &self.cx.link, now, id);
                    }
                    self.settle(host);
                }
                next => return self.rest(&next, host),
            }
        }
        self.timer = Timer::NONE;
    }

    /// Whether there is no packet, and asking the tree changes nothing.
    #[inline(always)]
    fn is_known_empty(&self) -> bool {
        self.cx.packets.live() == 0 && !self.tree.turns_when_empty()
    }

    /// Says that a packet has left the tree.
    #[inline(always)]
    fn taken(&mut self, id: &PacketId, host: &mut impl FnMut(Event<'_>)) {
        let row = self.cx.packets.get_mut(id);
        (row.state, row.arrival) = (PacketState::Ring, self.clock.came(row.arrival));
        let at = self.clock.host(self.cx.now);
        host(Event { at, meta: row, kind: EventKind::Taken });
    }

    /// A packet goes from the tree to a real wire, and has left.
    #[inline(always)]
    fn pass(&mut self, id: PacketId, host: &mut impl FnMut(Event<'_>)) {
        if self.tree.hears_sent() {
            self.taken(&id, host);
            self.sent(id, self.cx.now, host);
        } else {
            // What `sent` does where the tree does not listen, in one look-up.
            let at = self.clock.host(self.cx.now);
            let row = self.cx.packets.give_back(id);
            (row.state, row.arrival) = (PacketState::Ring, self.clock.came(row.arrival));
            host(Event { at, meta: row, kind: EventKind::Taken });
            self.ledger.sent(row);
            host(Event { at, meta: row, kind: EventKind::Sent });
            row.state = PacketState::Free;
            Room::gone(&mut self.room, row.control, row.leaf);
        }
        self.settle(host);
    }

    /// Nothing goes now: sets the timer. What a broken call gives may have overtaken its flow: it stays in the table.
    #[inline]
    fn rest(&mut self, next: &Next, host: &mut impl FnMut(Event<'_>)) {
        match next {
            _ if self.cx.breaks() => {}
            Next::At(at) => self.arm(*at),
            Next::Packet(_) | Next::Held(_) | Next::Idle => self.timer = Timer::NONE,
        }
        self.settle(host);
    }

    /// Control packets before all others.
    #[inline(always)]
    fn take_next(&mut self) -> Next {
        match self.lane.take(&mut self.cx.packets) {
            Some(id) => {
                if let Some(apart) = &mut self.apart {
                    let len = self.cx.packets.get(&id).len;
                    apart.lend.charge(self.cx.now, self.cx.link.cost_bytes(len));
                }
                Next::Packet(id)
            }
            None => self.tree.take(&mut self.cx),
        }
    }

    fn arm(&mut self, at: Instant) {
        if at <= self.cx.now || at == Instant::NEVER {
            self.cx.broken("port", "At(t) must be later than now, and not for ever");
            return;
        }
        if self.timer.at == at {
            return;
        }
        let armed = self.cx.now;
        let tick_ns = self.tick.as_nanos();
        let due = if tick_ns == 0 {
            at
        } else {
            let earliest = at.max(armed + self.tick.saturating_mul(MIN_TICKS - 1) + Duration::from_nanos(1));
            Instant::from_nanos(earliest.as_nanos().div_ceil(tick_ns).saturating_mul(tick_ns))
        };
        self.timer = Timer { at, due };
    }
}
