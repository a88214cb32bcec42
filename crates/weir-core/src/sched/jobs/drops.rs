//! Which packets are dropped: for want of room, and for want of time.

use super::Jobs;
use super::loss::{Candidate, Harm, least_harm};
use super::rates::{self, ONE, bits};
use super::sampled::{self, Facts, Live, live};
use crate::queue::{Backlog, Cx, DropReason};

impl Jobs {
    /// The bytes of the packet that class `index` would lose: its newest, or its oldest; or
    /// `arriving`, the newcomer of this class that is not in the queue yet. `None` if it has none
    /// that may be dropped.
    fn victim_bytes(&self, cx: &Cx, index: usize, arriving: Option<u64>) -> Option<u64> {
        let Some(leaf) = self.classes[index].queue.as_leaf() else { return arriving };
        let queued = match self.settings.drop_head {
            true => leaf.list().front(&cx.packets),
            false if arriving.is_some() => None,
            false => leaf.list().back(&cx.packets),
        };
        queued.map(|row| u64::from(row.len)).or(arriving)
    }
    fn candidate(&self, cx: &Cx, index: usize, arriving: Option<u64>) -> Option<Candidate> {
        let class = &self.classes[index];
        Some(Candidate {
            account: self.states[index].account,
            victim: self.settings.counted(1, self.victim_bytes(cx, index, arriving)?),
            bound: class.terms.loss,
            weight: class.in_loss_chain.weight(self.settings.shifts),
            chained: class.in_loss_chain.members != 0,
        })
    }
    /// Which packet is dropped for want of room when a packet of class `index` comes.
    /// [QOSBOX section 2.4, select_dropped_class]
    ///
    /// Room is made in the group that holds most packets: a chain, or a class that is promised
    /// nothing about loss. So no class can keep others out of the buffer. A class with nothing
    /// but a bound is spared while any other can lose. Where every choice in the group breaks a
    /// bound, all classes are looked at.
    fn victim_of_overflow(&self, cx: &Cx, index: usize, len: u64) -> usize {
        if self.settings.separate {
            return index;
        }
        let all = self.backlogged | 1 << index;
        let first = self.largest_group(all, index);
        let choose =
            |mask| least_harm(mask, |c| self.candidate(cx, c, if c == index { Some(len) } else { None }));
        match choose(first) {
            Some((Harm::Breaks(_), _)) | None if first != all => choose(all),
            found => found,
        }
        .map_or(index, |(_, victim)| victim)
    }
    /// The group among `all` with most packets, that of the newcomer's class `index` if equal;
    /// everybody if there is no group.
    fn largest_group(&self, all: u16, index: usize) -> u16 {
        let (mut left, mut largest, mut most) = (all, all, 0);
        while left != 0 {
            let class = left.trailing_zeros() as usize;
            let Some(members) = self.classes[class].loss_group(class) else {
                left &= left - 1;
                continue;
            };
            let members = members & all;
            left &= !members;
            let own = members >> index & 1 == 1;
            let packets: u64 = bits(members).map(|c| self.states[c].packets).sum();
            // Twice, so that the newcomer, which counts, can decide between equals.
            let packets = 2 * packets + if own { 3 } else { 0 };
            if packets > most {
                (largest, most) = (members, packets);
            }
        }
        largest
    }
    /// Makes room for a packet of `len` bytes of class `index`, unless it is the one to drop.
    /// [QOSBOX figure 4, lines 10 to 12]
    pub(super) fn make_room(&mut self, cx: &mut Cx, index: usize, len: u64) -> Result<(), DropReason> {
        loop {
            let used = if self.settings.separate { self.states[index].packets } else { self.packets };
            if used < self.settings.limit {
                break;
            }
            let victim = self.victim_of_overflow(cx, index, len);
            // The newcomer is the newest packet of its class.
            if victim == index && !self.settings.drop_head
                || self.drop_one(cx, victim, DropReason::Pushout).is_none()
            {
                return Err(DropReason::Tail);
            }
        }
        // A discipline of its own keeps what it has: what must be dropped for the delay is dropped now.
        let class = &self.classes[index];
        if let (None, Some(bound_ns)) = (class.queue.as_leaf(), class.terms.delay_ns) {
            let wire_bytes = self.states[index].wire_bytes + len + u64::from(cx.link.overhead);
            let drain = u128::from(wire_bytes) * u128::from(cx.link.per_byte().raw());
            if !rates::suffices(ONE, drain, bound_ns)
                && self.may_drop(index, len)
                && self.can_spare(index, self.states[index].packets + 1)
            {
                return Err(DropReason::Deadline);
            }
        }
        Ok(())
    }
    /// True if class `index` may lose `bytes` for the sake of its delay.
    fn may_drop(&self, index: usize, bytes: u64) -> bool {
        let bound = self.classes[index].terms.loss;
        let counted = self.settings.counted(1, bytes);
        self.settings.loss_first || !self.states[index].account.would_break(bound, counted)
    }
    /// True if class `index`, which has so many packets, can lose one for the sake of its delay. The last packet of a
    /// class that has sent nothing in this busy period stays: a bound that cannot hold must not keep a class from a
    /// link that idles. The paper sends what comes to an idle link without a look at its bound [QOSBOX figure 4,
    /// lines 2 to 4].
    fn can_spare(&self, index: usize, packets: u64) -> bool {
        packets > 1 || self.served >> index & 1 == 1
    }
    /// Drops the newest packet of class `index`, or its oldest; answers its row.
    fn drop_one(&mut self, cx: &mut Cx, index: usize, reason: DropReason) -> Option<usize> {
        let leaf = self.classes[index].queue.as_leaf_mut()?;
        let (id, reason) = match (self.settings.drop_head, reason) {
            (true, DropReason::Pushout) => (leaf.pop_front(cx)?, DropReason::Head),
            (true, reason) => (leaf.pop_front(cx)?, reason),
            (false, reason) => (leaf.pop_back(cx)?, reason),
        };
        let (row, len) = (id.index(), u64::from(cx.packets.get(&id).len));
        cx.drop(id, reason);
        self.count_loss(index, Backlog { packets: 1, bytes: len });
        self.refresh(cx, index, 0);
        Some(row)
    }
    /// True if at `rate` class `index` cannot keep its delay bound and a drop would help: its
    /// backlog is too much for the time that its oldest packet has left. If that packet is overdue
    /// already, no drop from the tail can help it; then its newest packet counts, which is dropped if it
    /// would be late as well. (Dropping from the head, the overdue packet itself is dropped.)
    fn is_too_much(&self, cx: &Cx, index: usize, rate: u64) -> bool {
        let (Some(bound_ns), Some(left_ns)) =
            (self.classes[index].terms.delay_ns, live!(self, cx).left_ns(index))
        else {
            return false;
        };
        let drain = live!(self, cx).drain(index);
        if left_ns > 0 || self.settings.drop_head {
            return left_ns == 0 || !rates::suffices(rate, drain, left_ns);
        }
        let Some(leaf) = self.classes[index].queue.as_leaf() else { return false };
        let newest = leaf.list().back(&cx.packets).map_or(cx.now, |row| row.arrival);
        !rates::suffices(rate, drain, bound_ns.saturating_sub(cx.now.since(newest).as_nanos()))
    }
    /// Drops from each class what its rate cannot carry in time. [QOSBOX section 3.2, greedy_alloc]
    /// Answers whether the packet of row `newcomer` was dropped.
    pub(super) fn drop_what_is_short(&mut self, cx: &mut Cx, newcomer: usize) -> bool {
        let mut died = false;
        for index in bits(self.bounded & self.backlogged) {
            while self.can_spare(index, self.states[index].packets)
                && self.is_too_much(cx, index, self.rates[index])
                && let Some(bytes) = self.victim_bytes(cx, index, None)
                && self.may_drop(index, bytes)
                && let Some(row) = self.drop_one(cx, index, DropReason::Deadline)
            {
                died |= row == newcomer;
            }
        }
        died
    }
    /// Drops by proportional loss until the least rates fit into the link, or no loss bound lets
    /// more drops. [QOSBOX figure 4, lines 14 to 17]
    ///
    /// Only classes whose backlog asks for more than their least rate can help. A packet that stays
    /// whatever its bound (`can_spare`) asks for nothing: if it cannot be in time beside packets of
    /// others, they are not dropped for it. Answers whether the packet of row `newcomer` was dropped.
    pub(super) fn drop_until_bounds_fit(&mut self, cx: &mut Cx, newcomer: usize) -> bool {
        let mut died = false;
        loop {
            let live = live!(self, cx);
            let mut least = sampled::least_rates(&live);
            let mut spared = 0u16;
            for class in bits(self.bounded & self.backlogged) {
                if !self.can_spare(class, self.states[class].packets) {
                    least[class] = least[class].min(live.floor(class));
                    spared |= 1 << class;
                }
            }
            let sum: u64 = least.iter().sum();
            let mut mask = 0u16;
            for class in bits(self.bounded & self.backlogged & !spared) {
                let helps = match live.left_ns(class) {
                    None => false,
                    Some(0) => self.is_too_much(cx, class, ONE),
                    Some(_) => sum > ONE && least[class] > self.classes[class].terms.floor,
                };
                mask |= u16::from(helps) << class;
            }
            let found = least_harm(mask, |class| self.candidate(cx, class, None));
            let Some((harm, class)) = found else { return died };
            if matches!(harm, Harm::Breaks(_)) && !self.settings.loss_first {
                return died;
            }
            match self.drop_one(cx, class, DropReason::Deadline) {
                Some(row) => died |= row == newcomer,
                None => return died,
            }
        }
    }
}
