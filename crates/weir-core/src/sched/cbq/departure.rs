//! A packet has left: what the link, its class, the ancestors and link sharing make of it.

use super::Cbq;
use super::estimator::{Busy, Transmission};
use super::link_sharing::LinkSharing;
use super::member::{NONE, Pick};
use crate::queue::{Cx, Link};
use crate::units::{Bounded, Fine, Instant};
use core::cmp::Ordering;

/// How far ahead of the clock the link may be believed busy, in packets of MTU: a device ring is
/// filled ahead of the wire, but a link that is faster than its rate says must not push the
/// estimates further and further away.
const AHEAD_PACKETS: u64 = 64;

/// How long they take.
pub(super) fn ahead(link: &Link) -> Fine {
    Fine::from_raw(link.time_for(link.mtu).raw() * u128::from(AHEAD_PACKETS))
}

impl Cbq {
    /// The link has been free, and sends a packet from `start` on.
    #[inline(always)]
    pub(super) fn idle_until(&mut self, start: Fine) -> Fine {
        // Hosts count whole nanoseconds: less than one is no pause.
        if start > self.link_free + Fine::from_nanos(1) {
            self.busy = Busy::since(start);
        }
        start
    }

    /// Counts a packet against its class and every ancestor.
    pub(super) fn charge(&mut self, class: usize, packet: &Transmission, starts: Instant) {
        let mut at = class as u32;
        while at != NONE {
            let LinkSharing { members, books, .. } = &mut self.sharing;
            let member = &mut members[at as usize];
            if !member.counts {
                break;
            }
            let wake = member.of.charge(packet, member.since(), starts);
            books.set_wake(at as usize, member, wake, starts);
            at = member.above;
        }
    }

    /// The link sends a packet that takes `on_link`, now or when it is free. Answers from when on.
    #[inline(always)]
    fn occupy(&mut self, now: Instant, on_link: Fine) -> Fine {
        // A link that is still busy goes on without a pause.
        let start = match self.starts_next.cmp(&now) {
            Ordering::Greater => self.link_free,
            // It may have been free for less than a nanosecond.
            Ordering::Equal => now.into(),
            Ordering::Less => self.idle_until(now.into()),
        };
        self.link_free = start + on_link;
        self.starts_next = self.link_free.ceil();
        if self.starts_next > now + self.ahead {
            self.catch_up(now);
        }
        start
    }

    /// The link is believed busy for no longer than `AHEAD_PACKETS` take.
    #[cold]
    fn catch_up(&mut self, now: Instant) {
        self.link_free = self.link_free.min(Fine::from(now) + ahead(&self.link));
        self.starts_next = self.link_free.ceil();
    }

    /// What a packet of `pick.class` that just left means for everybody.
    #[inline(always)]
    pub(super) fn sent(&mut self, cx: &Cx, pick: Pick, len: u32) {
        let (class, bytes) = (pick.class as usize, cx.link.cost_bytes(len));
        let member = &mut self.sharing.members[class];
        let plain = self.options.callback || !member.is_charged_alone() || self.held_count > 0;
        #[cfg(test)]
        let plain = plain || self.plain;
        if plain {
            return self.sent_by_any(cx, pick, len);
        }
        let on_link = cx.link.time_for(len);
        let start = self.occupy(cx.now, on_link);
        let starts = self.starts(cx.now);
        let LinkSharing { members, books, .. } = &mut self.sharing;
        let member = &mut members[class];
        member.of.count.sent(pick, len);
        books.sent(member, bytes);
        let packet = Transmission { bytes, start, on_link, busy: self.busy };
        // It had a packet, and so there is demand.
        let wake = member.of.charge(&packet, member.since, starts);
        books.move_wake(class, member, wake, starts);
        if member.of.queue.is_empty() {
            self.emptied(pick, starts);
        } else if !books.goes_on() {
            self.departed(pick, starts);
        }
    }

    /// The plain form.
    #[inline(never)]
    fn sent_by_any(&mut self, cx: &Cx, pick: Pick, len: u32) {
        let (class, bytes) = (pick.class as usize, cx.link.cost_bytes(len));
        let member = &mut self.sharing.members[class];
        member.of.count.sent(pick, len);
        self.sharing.books.sent(member, bytes);
        if !self.options.callback {
            let on_link = cx.link.time_for(len);
            let start = self.occupy(cx.now, on_link);
            let packet = Transmission { bytes, start, on_link, busy: self.busy };
            self.charge(class, &packet, self.starts(cx.now));
        }
        if self.queue(class).is_empty() || self.held_count > 0 {
            self.refresh(class, false, cx.now);
        }
        self.departed(pick, self.starts(cx.now));
    }

    /// The class has given its last packet, and no class is held.
    #[inline(never)]
    fn emptied(&mut self, pick: Pick, starts: Instant) {
        self.backlogged = self.backlogged.less(1);
        self.sharing.leave(pick.class as usize);
        self.departed(pick, starts);
    }

    #[inline(always)]
    fn departed(&mut self, pick: Pick, starts: Instant) {
        let member = &mut self.sharing.members[pick.class as usize];
        if member.lender == NONE && member.is_queued() && member.wake() > starts {
            member.of.count.delays = member.of.count.delays.plus(1);
        }
        self.sharing.departed(pick, starts);
    }

    /// The same for a packet of `class` that went although all were refused, where that is charged to nobody.
    #[cold]
    pub(super) fn gave(&mut self, cx: &Cx, class: usize, len: u32) {
        let count = &mut self.sharing.members[class].of.count;
        count.packets += 1;
        count.bytes += u64::from(len);
        if self.options.callback {
            count.uncharged += 1;
        } else {
            self.occupy(cx.now, cx.link.time_for(len));
        }
        self.refresh(class, false, cx.now);
    }
}
