//! From the tree to the wire: who is asked when, and what happens to the packet that it gives.
//!
//! Principle: the wire says when a packet may leave, the tree which one. The tree is asked when the wire has
//! room, after arrivals, and when the time has come that tree or bucket named. It is not asked for what it
//! has shown already.

use super::wire::Wire;
use super::{Event, EventKind, Port, Timer};
use crate::packet::PacketState;
use crate::queue::{Cause, Head, Next};
use crate::units::{Duration, Instant};

/// ALTQ's rule for a coarse timer: the next tick may be arbitrarily close, so wait for two.
const MIN_TICKS: u64 = 2;

impl Port {
    /// A packet event: ask the tree, unless a timer runs and packet events do not count, or it would
    /// show what it has shown already.
    #[inline]
    pub(super) fn ask_again(&mut self, host: &mut impl FnMut(Event<'_>)) {
        if self.timer.is_none() || (self.packet_events && !self.waits_for_tokens()) {
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
            && self.timer.is_some_and(|t| t.at > self.cx.now)
    }

    /// Moves packets from the tree to the wire while the wire has room.
    pub(super) fn fill(&mut self, host: &mut impl FnMut(Event<'_>)) {
        self.short_of_tokens = false;
        if self.held {
            self.timer = None;
            return self.settle(host);
        }
        loop {
            let now = self.cx.now;
            let next = match &mut self.wire {
                _ if self.cx.packets.live() == 0 && !self.tree.turns_when_empty() => Next::Idle,
                Wire::Device(device) if !device.has_room() => return,
                Wire::Device(_) | Wire::Open => self.take_next(),
                Wire::Bucket(bucket) => {
                    let control = self.lane.head(&self.cx.packets);
                    let head = match control {
                        Some(len) => Head::Packet { len },
                        None => self.tree.head(&mut self.cx),
                    };
                    match head {
                        _ if self.cx.is_broken().is_some() => Next::Idle,
                        Head::Packet { len } => {
                            // Tokens never go below zero: the head's length is known before it leaves.
                            let cost_bytes = self.cx.link.cost_bytes(len);
                            match bucket.pay_or_wait(now, cost_bytes) {
                                None => self.take_next(),
                                Some(Instant::NEVER) => Next::Held(Cause::Rate),
                                Some(at) => {
                                    self.short_of_tokens = control.is_none();
                                    Next::At(at)
                                }
                            }
                        }
                        Head::At(at) => Next::At(at),
                        Head::Held(cause) => Next::Held(cause),
                        Head::Idle => Next::Idle,
                    }
                }
            };
            match next {
                // What a broken call gives may have overtaken its flow: it stays in the table.
                _ if self.cx.is_broken().is_some() => return self.settle(host),
                Next::Packet(id) => {
                    let row = self.cx.packets.get_mut(&id);
                    (row.state, row.arrival) = (PacketState::Ring, self.clock.came(row.arrival));
                    host(Event { at: self.clock.host(now), meta: row, kind: EventKind::Taken });
                    match &mut self.wire {
                        Wire::Device(device) => device.load(&mut self.cx.packets, &self.cx.link, now, id),
                        _ => self.sent(id, now, host),
                    }
                    self.settle(host);
                }
                Next::At(at) => {
                    self.arm(at);
                    self.settle(host);
                    return;
                }
                Next::Held(_) | Next::Idle => {
                    self.timer = None;
                    self.settle(host);
                    return;
                }
            }
        }
    }

    /// Control packets before all others.
    #[inline(always)]
    fn take_next(&mut self) -> Next {
        match self.lane.take(&mut self.cx.packets) {
            Some(id) => Next::Packet(id),
            None => self.tree.take(&mut self.cx),
        }
    }

    fn arm(&mut self, at: Instant) {
        if at <= self.cx.now || at == Instant::NEVER {
            self.cx.broken("port", "At(t) must be later than now, and not for ever");
            return;
        }
        if self.timer.is_some_and(|t| t.at == at) {
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
        self.timer = Some(Timer { at, due });
    }
}
