//! JoBS: delay, loss and rate of each class in absolute terms and relative to others, at once.
//!
//! Principle: a class may have a delay bound, a loss bound and a least rate. Its delay or loss may
//! also have a ratio to that of the next class. Each backlogged class has a service
//! rate, and the class that is most behind its rate sends. At every arrival the rates are moved:
//! first so that every bound can hold, then so that the delays come to the ratios asked for. When
//! the buffer is full, or no rates could keep the delay bounds, packets are dropped. They are of
//! the class whose loss is most behind its share, and that no loss bound protects. What cannot all
//! hold gives way in an order that the operator chooses. No reservations, no policing, no flows.
//! Paper: N. Christin and J. Liebeherr, "The QoSbox: quantitative service differentiation in BSD
//! routers", Computer Networks 50, 2006 (QOSBOX): figure 4 is `enqueue` and `sampled`, equation 1
//! is `service`, section 2.4 is `rates` and `loss`.
//!
//! Where we differ, and why: time is counted by the link's work, so a rate is a share of what the
//! link really carries, and a slow driver distorts nothing. Rates are exact shares of 2^-40, from
//! 9.6 kbit/s to 400 Gbit/s. The gain K is derived (see `rates`; the paper omits it). A reset
//! is followed by a whole step at once, sampled or not, because no class asks for equal rates. What
//! must be redistributed comes from all that have surplus, in proportion, not from the last class
//! first. Factors are real numbers. A class whose oldest packet is overdue asks for the link (all
//! such for equal parts), and least rates give way to it. No drop can mend that. So its newest
//! packet is looked at instead, and dropped if it would be late with all that the class may have.
//! The last packet of a class that has sent nothing in the busy period is not dropped for its delay.
//! If loss bounds give way (`relax loss-first`), packets that are overdue when they could leave
//! are dropped. The bound then holds for all that is sent. `exact-drops` chooses among the classes
//! whose backlog asks for too much, because drops of others would not help. A class that is a
//! discipline of its own cannot lose packets from its queue: its arriving packet is dropped instead.
//! Cost: linear in the classes (at most 16). A departure divides nothing. An arrival that adjusts
//! the rates divides once for each chain, and once more for each class whose bound asks for
//! another rate. 350 bytes per class.
//! Guarantees (tests of this folder): `j05_loss_bounds_hold_while_others_can_lose`;
//! `j06_least_rates_hold_in_every_half_second`; `j07_delays_come_to_their_ratios`;
//! `j08_losses_come_to_their_ratios`; `j11_exactly_the_chosen_bound_gives_way`;
//! `j12_no_class_is_refused_everything_beside_a_link_that_idles`;
//! `j18_service_follows_the_rates`; `j23_rates_keep_sum_and_minimum`;
//! `j24_rates_and_losses_are_exact_from_9600_to_400g`.

mod class;
mod config;
mod drops;
#[cfg(test)]
mod elsewhere_tests;
mod hooks;
mod loss;
mod rates;
mod sampled;
mod service;
#[cfg(test)]
mod tests;
mod weights;

use super::registry::{Classes, Entry};
use crate::packet::PacketId;
use crate::queue::{
    Backlog, Broken, Child, Cx, Deeper, Discipline, DropReason, Next, ParamError, Params, Routes, Scope,
    Verdict, Visit, Wait, params,
};
use crate::spread::Cut;
use crate::units::{Bounded, Instant};
use alloc::format;
use alloc::vec::Vec;
use class::{JobsClass, JobsState};
use config::Settings;
use loss::Account;
use rates::{Chain, ONE, Step};
pub use sampled::{Adjusted, Delegate, Sample, delegated};
use sampled::{Elsewhere, Live, live};
use service::Service;
use weights::CLASSES;

pub(super) const ENTRY: Entry = Entry {
    name: "jobs",
    source: include_str!("mod.rs"),
    params: &[config::PARAMS],
    classes: Classes::Flat,
    build: Some(config::build),
    check: Some(hooks::check),
    cut: Cut::Whole("its bounds and ratios hold between all of its classes"),
    ..Entry::PLAIN
};

struct Jobs {
    settings: Settings,
    /// In the order of their priorities.
    classes: Vec<JobsClass>,
    states: [JobsState; CLASSES],
    /// Shares of the link; they add up to `ONE` over the classes of `rated`.
    rates: [u64; CLASSES],
    scratch: Chain,
    /// What they have had of it.
    service: Service,
    /// Bit i: class i has packets.
    backlogged: u16,
    /// The backlogged classes for which the rates were last reset.
    rated: u16,
    /// The classes that have sent something in this busy period.
    served: u16,
    /// Classes with a delay bound or a least rate.
    bounded: u16,
    /// Chains of proportional delay.
    chains: Vec<u16>,
    /// At most the rows of a table.
    packets: u64,
    /// Arrivals until the next adjustment.
    until_sample: u64,
    adjusted_ns: u64,
    accounting_since_ns: u64,
    /// Index of the class for each child of `routes`, which are in the order of the file.
    class_of: [u8; CLASSES],
    routes: Routes,
    /// Who adjusts the rates, if it is not done here.
    elsewhere: Option<Elsewhere>,
    /// Grows when rates that were asked for before are of no use any more.
    epoch: u64,
}

impl Jobs {
    /// Sets what follows from the terms of the classes.
    fn index(&mut self) {
        let delay: Vec<_> = self.classes.iter().map(|c| c.terms.delay_factor).collect();
        let loss: Vec<_> = self.classes.iter().map(|c| c.terms.loss_factor).collect();
        let (delay, loss) = (weights::chains(&delay), weights::chains(&loss));
        self.chains.clear();
        self.bounded = 0;
        for (index, class) in self.classes.iter_mut().enumerate() {
            (class.in_delay_chain, class.in_loss_chain) = (delay[index], loss[index]);
            let members = delay[index].members;
            if members.trailing_zeros() as usize == index {
                self.chains.push(members);
            }
            let bounded = class.terms.delay_ns.is_some() || class.terms.floor > 0;
            self.bounded |= u16::from(bounded) << index;
        }
    }
    /// The class of a child of `routes`.
    #[inline(always)]
    fn class(&self, child: usize) -> usize {
        usize::from(self.class_of[child % CLASSES])
    }
    /// Reads again what class `index` has, after a call into its queue. `came_ns` is when a
    /// packet came that was put in or taken out: an inner discipline does not say how old its
    /// oldest is.
    #[inline(always)]
    fn refresh(&mut self, cx: &Cx, index: usize, came_ns: u64) {
        let queue = &self.classes[index].queue;
        let state = &mut self.states[index];
        let before = state.packets;
        let (backlog, oldest_ns) = match queue.as_leaf() {
            Some(leaf) => (leaf.backlog(), leaf.list().front(&cx.packets).map(|m| m.arrival.as_nanos())),
            None => (queue.backlog(), None),
        };
        (state.packets, state.bytes) = (backlog.packets, backlog.bytes);
        state.wire_bytes = cx.link.cost_of(backlog);
        state.oldest_ns = oldest_ns.unwrap_or(came_ns);
        self.packets = self.packets.less(before).plus(backlog.packets);
        if (backlog.packets == 0) != (before == 0) {
            self.backlogged ^= 1u16 << index;
            match backlog.packets {
                0 => self.service.leave(index),
                _ => self.service.join(index, self.rates[index]),
            }
        }
    }
    /// The same for every class, and what a smaller queue has dropped is lost.
    fn refresh_all(&mut self, cx: &Cx) {
        for index in 0..self.classes.len() {
            let before = self.known(index);
            self.refresh(cx, index, self.states[index].oldest_ns);
            self.lose(index, before);
        }
    }
    /// What class `index` had when it was last looked at.
    #[inline(always)]
    fn known(&self, index: usize) -> Backlog {
        let state = &self.states[index];
        Backlog { packets: state.packets, bytes: state.bytes }
    }
    /// Counts as lost what class `index` should have and has not. It has been looked at.
    #[inline(always)]
    fn lose(&mut self, index: usize, should: Backlog) {
        if self.states[index].packets != should.packets {
            self.count_loss(index, less(should, self.classes[index].queue.backlog()));
        }
    }
    /// Counts packets of class `index` as lost.
    fn count_loss(&mut self, index: usize, lost: Backlog) {
        self.states[index].account.dropped += self.settings.counted(lost.packets, lost.bytes);
        self.classes[index].totals.dropped_bytes += lost.bytes;
    }
    /// The queue was empty: a busy period begins. [QOSBOX figure 4, lines 2 to 4]
    fn begin_busy_period(&mut self) {
        (self.rated, self.served) = (0, 0);
        self.rates = [0; CLASSES];
        self.service.clear();
        for state in &mut self.states {
            state.delay_ns = 0;
            if self.settings.interval_ns == 0 {
                state.account = Account::default();
            }
        }
    }
    /// Begins the next interval of a fixed length, if loss is counted by such.
    fn begin_interval(&mut self, now_ns: u64) {
        if self.settings.interval_ns == 0 {
            return;
        }
        let since = now_ns.saturating_sub(self.accounting_since_ns);
        if since >= self.settings.interval_ns {
            self.accounting_since_ns = now_ns - since % self.settings.interval_ns;
            for state in &mut self.states {
                state.account = Account::default();
            }
        }
    }
    /// The operations that need not follow every arrival. [QOSBOX figure 4, lines 13 to 18]
    /// Answers whether the packet of row `newcomer` was dropped.
    fn sampled(&mut self, cx: &mut Cx, newcomer: usize, step: Step) -> bool {
        let mut died = false;
        if self.bounded & self.backlogged != 0 && (self.settings.exact || self.is_somebody_short(cx)) {
            died = self.hold_bounds(cx, newcomer);
        }
        sampled::steer(&live!(self, cx), &mut self.rates, step, &mut self.scratch);
        self.adjusted_ns = cx.now.as_nanos();
        died
    }
    #[inline(always)]
    fn is_somebody_short(&self, cx: &Cx) -> bool {
        sampled::is_somebody_short(&live!(self, cx), &self.rates)
    }
    /// Somebody is short, or may be where drops come first. Answers whether the packet of row `newcomer` was dropped.
    #[inline(never)]
    fn hold_bounds(&mut self, cx: &mut Cx, newcomer: usize) -> bool {
        let mut died = false;
        if self.settings.exact {
            if !cx.adopting() {
                died = self.drop_until_bounds_fit(cx, newcomer);
            }
            if !self.is_somebody_short(cx) {
                return died;
            }
        }
        self.redistribute(cx);
        if !self.settings.exact && !cx.adopting() {
            died |= self.drop_what_is_short(cx, newcomer);
            // Whoever lost a packet may need less than it was given, and others still more.
            if self.is_somebody_short(cx) {
                self.redistribute(cx);
            }
        }
        sampled::waive_floors(&live!(self, cx), &mut self.rates);
        died
    }
    /// Gives classes that are short what others can spare.
    fn redistribute(&mut self, cx: &Cx) {
        let least = sampled::least_rates(&live!(self, cx));
        rates::redistribute(&mut self.rates, &least, self.backlogged);
    }
}

/// In the place of the row of a packet that did not come in.
const NOBODY: usize = usize::MAX;

/// What of `before` is not in `after`.
fn less(before: Backlog, after: Backlog) -> Backlog {
    Backlog {
        packets: before.packets.saturating_sub(after.packets),
        bytes: before.bytes.saturating_sub(after.bytes),
    }
}

impl Discipline for Jobs {
    fn enqueue(&mut self, cx: &mut Cx, id: PacketId) -> Verdict {
        let (leaf, len, came) = {
            let row = cx.packets.get(&id);
            (row.leaf, u64::from(row.len), row.arrival.as_nanos())
        };
        let Some(index) = self.routes.child(leaf).map(|child| self.class(child)) else {
            cx.broken("jobs", "a packet came for a leaf that is not below");
            cx.drop(id, DropReason::Reconfigure);
            return Verdict::Dropped;
        };
        let now_ns = cx.now.as_nanos();
        if self.backlogged == 0 {
            self.begin_busy_period();
        }
        self.begin_interval(now_ns);
        let one = Backlog { packets: 1, bytes: len };
        self.states[index].account.arrived += self.settings.counted(1, len);
        self.classes[index].totals.arrived_bytes += len;
        let room = if cx.adopting() { Ok(()) } else { self.make_room(cx, index, len) };
        let (newcomer, mut verdict) = match room {
            Ok(()) => {
                let newcomer = id.index();
                let before = self.known(index);
                let first = self.states[index].packets == 0;
                let verdict = self.classes[index].queue.enqueue(cx, id);
                let oldest = if first { came } else { self.states[index].oldest_ns };
                self.refresh(cx, index, oldest);
                self.lose(index, before + one);
                (newcomer, verdict)
            }
            // The rates follow every arrival, also one that is the victim of its overflow.
            Err(reason) => {
                self.count_loss(index, one);
                cx.drop(id, reason);
                (NOBODY, Verdict::Dropped)
            }
        };
        let mut step = Step::After(now_ns.saturating_sub(self.adjusted_ns));
        if self.backlogged != self.rated {
            // Lines 8 and 9.
            rates::reset(&mut self.rates, self.backlogged);
            (self.rated, step) = (self.backlogged, Step::Whole);
            self.until_sample = 0;
            self.epoch += 1;
        }
        if self.until_sample == 0 {
            self.until_sample = self.settings.sample;
            let died = match self.elsewhere.take_if(|_| step != Step::Whole) {
                Some(elsewhere) => self.sampled_elsewhere(cx, elsewhere, newcomer),
                None => self.sampled(cx, newcomer, step),
            };
            if died {
                verdict = Verdict::Dropped;
            }
            self.service.set(&self.rates, self.classes.len());
        }
        self.until_sample -= 1;
        verdict
    }
    fn dequeue(&mut self, cx: &mut Cx) -> Next {
        let (mut held_up, mut wait) = (0u16, Wait::Idle);
        loop {
            if self.backlogged & !held_up == 0 {
                return wait.into();
            }
            let index = self.service.most_behind(self.classes.len(), held_up);
            let before = self.known(index);
            let next = self.classes[index].queue.take(cx);
            let Next::Packet(id) = next else {
                if next != Next::Idle {
                    wait = wait.min(next.wait());
                    held_up |= 1 << index;
                }
                self.refresh(cx, index, self.states[index].oldest_ns);
                self.lose(index, before);
                continue;
            };
            let (len, came) = {
                let row = cx.packets.get(&id);
                (row.len, row.arrival)
            };
            let delay_ns = cx.now.since(came).as_nanos();
            let late = self.classes[index].terms.delay_ns.is_some_and(|bound| delay_ns > bound);
            let dies = late && self.settings.loss_first;
            if !dies {
                self.service.sent(index, cx.link.cost_bytes(len), held_up);
            }
            self.refresh(cx, index, came.as_nanos());
            let one = Backlog { packets: 1, bytes: len.into() };
            self.lose(index, less(before, one));
            if dies {
                self.count_loss(index, one);
                cx.drop(id, DropReason::Deadline);
                continue;
            }
            self.states[index].delay_ns = delay_ns;
            self.served |= 1 << index;
            let totals = &mut self.classes[index].totals;
            totals.sent_packets = totals.sent_packets.plus(1);
            totals.delay_ns = totals.delay_ns.saturating_add(delay_ns);
            totals.late += u64::from(late);
            return Next::Packet(id);
        }
    }
    fn backlog(&self) -> Backlog {
        self.classes.iter().fold(Backlog::default(), |sum, class| sum + class.queue.backlog())
    }
    fn is_empty(&self) -> bool {
        self.backlogged == 0
    }
    fn flush(&mut self, cx: &mut Cx, reason: DropReason) {
        for index in 0..self.classes.len() {
            self.classes[index].queue.flush(cx, reason);
            self.refresh(cx, index, 0);
        }
    }
    fn reconfigure(&mut self, cx: &mut Cx, class: &str, params: &Params) -> Result<(), ParamError> {
        if class.is_empty() {
            params::accept(ENTRY.params, Scope::Discipline, "", params)?;
            let settings = self.settings.with(params);
            self.classes.iter().try_for_each(|c| settings.check_factors(&c.name, &c.terms))?;
            if settings.count_packets != self.settings.count_packets {
                // Another unit: counting begins anew.
                self.states.iter_mut().for_each(|state| state.account = Account::default());
            }
            self.settings = settings;
            self.epoch += 1;
            self.until_sample = self.until_sample.min(self.settings.sample - 1);
            return Ok(());
        }
        let Some(index) = self.classes.iter().position(|c| c.name == class) else {
            let queues = self.classes.iter_mut().map(|c| &mut c.queue);
            Child::reconfigure_one_of(queues, cx, class, params)?;
            self.refresh_all(cx);
            return Ok(());
        };
        let terms = self.classes[index].terms.with(class, params, &cx.link)?;
        self.settings.check_factors(class, &terms)?;
        if let Some(priority) = params.count("priority")
            && priority != self.classes[index].priority
        {
            let fix = format!("{}, as it is: change the file and reload it", self.classes[index].priority);
            return Err(ParamError::new(class, "priority", priority, fix));
        }
        self.classes[index].queue.reconfigure_queue(cx, class, params, ENTRY.params)?;
        self.refresh_all(cx);
        self.classes[index].terms = terms;
        self.epoch += 1;
        self.index();
        Ok(())
    }
    fn visit_stats(&self, visit: &mut dyn Visit) {
        for (index, class) in self.classes.iter().enumerate() {
            let (state, totals) = (&self.states[index], &class.totals);
            if visit.wants(&class.name, 1) {
                visit.value("priority", "", class.priority as i64);
                visit.value("share", "ppm", ((u128::from(self.rates[index]) * 1_000_000) >> 40) as i64);
                visit.value("arrived_bytes", "bytes", totals.arrived_bytes as i64);
                visit.value("dropped_bytes", "bytes", totals.dropped_bytes as i64);
                visit.value("loss_now", "ppm", ((state.account.loss(0) * 1_000_000) >> 32) as i64);
                visit.value("delay_last", "ns", state.delay_ns as i64);
                let mean = totals.delay_ns.checked_div(totals.sent_packets).unwrap_or(0);
                visit.value("delay_mean", "ns", mean as i64);
                visit.value("late", "packets", totals.late as i64);
            }
            class.queue.visit_stats(&mut Deeper(visit));
        }
    }
    fn check(&self, cx: &Cx) -> Result<(), Broken> {
        let broken = |what| Err(Broken { discipline: "jobs", what });
        let (mut packets, mut sum, mut credit) = (0, 0, 0i64);
        for (index, class) in self.classes.iter().enumerate() {
            class.queue.check(cx)?;
            let (state, backlog) = (&self.states[index], class.queue.backlog());
            packets += backlog.packets;
            let wire_bytes = cx.link.cost_of(backlog);
            if (state.packets, state.wire_bytes) != (backlog.packets, wire_bytes) {
                return broken("a class's numbers and its queue disagree");
            }
            if (backlog.packets == 0) == (self.backlogged >> index & 1 == 1) {
                return broken("bitmap and queues disagree");
            }
            if self.rated >> index & 1 == 0 && self.rates[index] != 0 {
                return broken("a class without packets has a rate");
            }
            sum += self.rates[index];
            credit = credit.saturating_add(self.service.owed(index));
        }
        if self.packets != packets {
            return broken("the total and the queues disagree");
        }
        if self.rated != 0 && sum != ONE {
            return broken("the rates do not add up to the link");
        }
        if credit != 0 {
            return broken("what classes are owed does not add up to nothing");
        }
        Ok(())
    }
    fn on_sent(&mut self, cx: &mut Cx, id: &PacketId, at: Instant) {
        if let Some(child) = self.routes.child(cx.packets.get(id).leaf) {
            let index = self.class(child);
            self.classes[index].queue.on_sent(cx, id, at);
        }
    }
}
