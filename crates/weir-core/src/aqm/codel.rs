//! CoDel: drops by how long packets have waited, not by how many there are.
//!
//! Principle: a good queue drains within a round-trip time; a bad one stands. When no packet of a
//! whole `interval` has waited less than `target`, the queue stands: one packet is dropped, and
//! further ones after interval / sqrt(1), interval / sqrt(2), ... until the wait is below `target`.
//! This makes the rate of a TCP fall linearly. Packets are judged as they leave, so the signal is
//! as young as it can be.
//! Paper: Nichols and Jacobson, "Controlling Queue Delay", ACM Queue 10(5), 2012; Nichols,
//! Jacobson, McGregor and Iyengar, RFC 8289, 2018: of its section 5 the dequeue routine is
//! `Law::judge`, whose ok_to_drop is "not below", and the helper is `interval_over_root`.
//! Where we differ, and why: the inverse root is exact to the nanosecond by an integer root, at
//! each drop only, where kernels keep an approximation of 16 bits.
//! Cost: a subtraction and two comparisons per packet, a root and a division per drop; 88 bytes
//! per queue.
//! Guarantees: `the_loop_of_the_rfc_agrees`, `drops_at_the_times_of_the_reference`, `a_burst_that_drains_is_spared`,
//! `ecn_marks_and_drops_nothing`.
//! Parameters: `target` (ms, 5), `interval` (ms, 100: a round-trip time of the longer kind),
//! `qlimit` (packets, 1000), `ecn`. All at run time.

use super::contract::{Aqm, Decision, Departures};
use super::entry::{AqmEntry, Built, QueueConfig};
use super::params::{CLASS_ECN, ECN, MILLIS, in_class, qlimit};
use crate::packet::{List, PacketId};
use crate::queue::ParamSpec as P;
use crate::queue::params::default_of;
use crate::queue::{Alias, Cx, DropReason, Kind, Link, ParamError, ParamSpec, Params, Visit};
use crate::units::{Duration, Instant};
use alloc::boxed::Box;

const LIMIT: ParamSpec = qlimit("1000");
/// Words of CoDel on an interface and on a class.
const TUNING: [ParamSpec; 2] = [
    P::discipline("target", MILLIS, "5ms", "Delay that the queue may keep, ms: 5 for codel, 15 for pie."),
    P::discipline("interval", MILLIS, "100ms", "How long CoDel waits for a good queue, ms: a long RTT."),
];

/// The line in the list of AQMs.
pub(super) const ENTRY: AqmEntry = AqmEntry {
    name: "codel",
    aliases: &[Alias { name: "codelq", implies: None }],
    source: include_str!("codel.rs"),
    params: &[&[LIMIT], &TUNING, &[ECN]],
    class_params: &[
        &[P::class("codel", Kind::Flag, "", "CoDel: drops by how long packets have waited."), CLASS_ECN],
        &in_class(TUNING),
    ],
    // Room is wanted: it is not the length that CoDel looks at.
    usual_limit: LIMIT.default_number() as u32,
    build,
    ..AqmEntry::PLAIN
};

fn build(queue: &QueueConfig<'_>) -> Built {
    Ok(Box::new(Codel::new(queue.class, queue.params, queue.link)?))
}

/// What CoDel does with a packet that leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    Pass,
    Mark,
    Drop,
}

/// The constants of CoDel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Constants {
    pub target: Duration,
    pub interval: Duration,
    pub ecn: bool,
    /// A backlog of one packet does not stand, however long it has waited.
    pub mtu: u64,
}

impl Constants {
    /// `target` and `interval` as `specs` have them by default.
    pub(crate) const fn new(specs: &[ParamSpec], mtu: u32) -> Self {
        Constants {
            target: Duration::from_nanos(default_of(specs, "target")),
            interval: Duration::from_nanos(default_of(specs, "interval")),
            ecn: false,
            mtu: mtu as u64,
        }
    }
    /// These, but for what `params` say.
    ///
    /// # Errors
    /// `ParamError` for times that make no sense together.
    pub(crate) fn with(mut self, class: &str, params: &Params) -> Result<Self, ParamError> {
        self.target = params.time("target").unwrap_or(self.target);
        self.interval = params.time("interval").unwrap_or(self.interval);
        self.ecn |= params.has("ecn");
        // Squares of the interval in nanoseconds fit into 64 bits.
        if self.interval.is_zero() || self.interval.as_nanos() > u64::from(u32::MAX) {
            return Err(ParamError::new(class, "interval", self.interval, "more than 0, up to 4s"));
        }
        if self.target >= self.interval {
            let expected = alloc::format!("less than the interval, which is {}", self.interval);
            return Err(ParamError::new(class, "target", self.target, expected));
        }
        Ok(self)
    }
    /// What is done with a packet that has to go.
    fn act(&self, capable: bool) -> Fate {
        if self.ecn && capable { Fate::Mark } else { Fate::Drop }
    }
    /// interval / sqrt(count): sqrt(interval^2 / count), rounded down.
    fn interval_over_root(&self, count: u32) -> Duration {
        let interval = self.interval.as_nanos();
        Duration::from_nanos((interval * interval / u64::from(count.max(1))).isqrt())
    }
}

/// The state of CoDel for one queue.
///
/// RFC 8289, section 5, writes the law as a loop that takes packets by itself:
///
/// ```text
/// dequeue(now):
///     (packet, ok_to_drop) = dodequeue(now)       // ok_to_drop: above target for an interval
///     if packet == NULL: dropping = false
///     if dropping:
///         if not ok_to_drop: dropping = false
///         while now >= drop_next and dropping:
///             drop(packet)
///             count = count + 1
///             (packet, ok_to_drop) = dodequeue(now)
///             if not ok_to_drop: dropping = false
///             else: drop_next = control_law(drop_next, count)
///     else if ok_to_drop:
///         drop(packet)
///         (packet, ok_to_drop) = dodequeue(now)
///         dropping = true
///         delta = count - lastcount
///         count = 1
///         if delta > 1 and now - drop_next < 16 * interval: count = delta
///         drop_next = control_law(now, count)     // now + interval / sqrt(count)
///         lastcount = count
///     return packet
/// ```
///
/// Here the queue takes the packets, so that one law serves every queue, and asks `judge` about
/// each. Where in the loop it stands is kept in its [`Phase`]. The test `the_loop_of_the_rfc_agrees`
/// runs both on random calls. A packet that can be marked leaves the loop where it would be dropped,
/// after the same steps.
///
/// Few of the RFC's variables matter in one phase, so they share 16 bytes. While the wait is below target and
/// nothing is dropped, what matters are `drop_next` and delta. While it has been above target for less than an interval,
/// its end matters too. While packets are dropped, that time is past.
// Packed to words of 32 bits, so that nothing fills up a queue of FQ-CoDel.
#[derive(Clone, Copy, Debug)]
#[repr(C, packed(4))]
pub(crate) struct Law {
    /// `drop_next`; in the phase `Above` when the wait will have been above target for an interval.
    time: Instant,
    /// While dropping: drops since the dropping state was entered above what that was then (count, lastcount).
    /// `Passing`: count - lastcount, the delta of the next entry. `Above`: the same above `BACK_BITS` bits, which say
    /// how long before `time` + `AHEAD` `drop_next` lies.
    memory: u64,
}

/// An interval is below 2^32 ns: `drop_next` lies less than that behind the present, and is forgotten 16 times
/// that after it.
const AHEAD: Duration = Duration::from_nanos(1 << 32);
const BACK_BITS: u32 = 37;
/// A delta above this counts as this. Without a pause 10^8 drops take half an hour.
const MOST_DELTA: u64 = (1 << (64 - BACK_BITS)) - 1;

/// Where in the loop of its law a queue stands. It is kept beside the law, so that many queues stand close.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// `dropping` is false, and the wait was below target.
    Passing,
    /// `dropping` is false, and the wait is above target, perhaps not yet for an interval.
    Above,
    /// It is true, and the packet before was not dropped in this dequeue.
    Dropping,
    /// It is true, but the wait fell below target at the second packet of that dequeue: as `Passing`.
    Leaving,
    /// The packet before was dropped on entering: the line behind the second `drop`.
    Entered,
    /// The packet before was dropped in the `while`: its end.
    Again,
}

impl Law {
    /// Of a queue that has not stood yet.
    pub(crate) const NEW: Law = Law { time: Instant::ZERO, memory: 0 };
    /// A packet that came at `enqueued` leaves, and `left` bytes stay. [RFC 8289 section 5]
    ///
    /// There the loop over packets is inside; here it is the caller's, which asks again for the
    /// next packet after a `Drop`.
    #[inline]
    pub(crate) fn judge(
        &mut self,
        phase: &mut Phase,
        constants: &Constants,
        now: Instant,
        enqueued: Instant,
        left: u64,
        capable: bool,
    ) -> Fate {
        let below = now.since(enqueued) < constants.target || left <= constants.mtu;
        if below && matches!(phase, Phase::Passing | Phase::Leaving) {
            *phase = Phase::Passing;
            return Fate::Pass;
        }
        self.step(phase, constants, now, below, capable)
    }
    /// The same where the wait is above target, or was at the packet before.
    fn step(
        &mut self,
        phase: &mut Phase,
        constants: &Constants,
        now: Instant,
        below: bool,
        capable: bool,
    ) -> Fate {
        match *phase {
            Phase::Passing | Phase::Leaving => {
                self.rise(now + constants.interval);
                *phase = Phase::Above;
                Fate::Pass
            }
            Phase::Above if below => {
                self.time = self.drop_next();
                self.memory = { self.memory } >> BACK_BITS;
                *phase = Phase::Passing;
                Fate::Pass
            }
            Phase::Above if now < { self.time } => Fate::Pass,
            Phase::Above => {
                // Not long out of the dropping state: the rate that worked then is a good start.
                let (delta, drop_next) = (self.memory >> BACK_BITS, self.drop_next());
                let recent = now.since(drop_next) < constants.interval.saturating_mul(16);
                let count = if delta > 1 && recent { delta as u32 } else { 1 };
                self.memory = u64::from(count) << 32 | u64::from(count);
                self.time = now + constants.interval_over_root(count);
                let fate = constants.act(capable);
                *phase = if fate == Fate::Mark { Phase::Dropping } else { Phase::Entered };
                fate
            }
            // The packet after the first that was dropped always goes.
            Phase::Entered => {
                *phase = Phase::Dropping;
                if below {
                    self.leave();
                    *phase = Phase::Leaving;
                }
                Fate::Pass
            }
            Phase::Dropping | Phase::Again if below => {
                self.leave();
                *phase = Phase::Passing;
                Fate::Pass
            }
            Phase::Dropping | Phase::Again => self.go_on(phase, constants, now, capable),
        }
    }
    /// The `while` of the loop.
    fn go_on(&mut self, phase: &mut Phase, constants: &Constants, now: Instant, capable: bool) -> Fate {
        let count = (self.memory >> 32) as u32;
        if *phase == Phase::Again {
            self.wait(constants.interval_over_root(count));
            *phase = Phase::Dropping;
        }
        if now < { self.time } {
            return Fate::Pass;
        }
        let count = count.saturating_add(1);
        self.memory = u64::from(count) << 32 | u64::from(self.memory as u32);
        let fate = constants.act(capable);
        match fate {
            Fate::Mark => self.wait(constants.interval_over_root(count)),
            _ => *phase = Phase::Again,
        }
        fate
    }
    fn wait(&mut self, longer: Duration) {
        let drop_next = self.time;
        self.time = drop_next + longer;
    }
    /// The dropping state ends: what stays is by how much the count has grown in it.
    fn leave(&mut self) {
        let (count, last_count) = (self.memory >> 32, self.memory & u64::from(u32::MAX));
        self.memory = count.saturating_sub(last_count).min(MOST_DELTA);
    }
    /// The wait is above target; at `until` it will have been for an interval. What cannot be recent then is forgotten.
    fn rise(&mut self, until: Instant) {
        let back = (until + AHEAD).since(self.time).as_nanos();
        self.memory = if back >> BACK_BITS == 0 { self.memory << BACK_BITS | back } else { 0 };
        self.time = until;
    }
    /// `drop_next` of a law that is `Above`; anything where the delta is 0.
    fn drop_next(&self) -> Instant {
        let back = self.memory & ((1 << BACK_BITS) - 1);
        Instant::from_nanos((self.time + AHEAD).as_nanos().saturating_sub(back))
    }
}

/// CoDel for one queue.
#[derive(Debug)]
pub struct Codel {
    law: Law,
    phase: Phase,
    constants: Constants,
    dropped: u64,
    longest_wait: Duration,
}

impl Codel {
    /// CoDel as `params` say.
    ///
    /// # Errors
    /// `ParamError` for times that make no sense together.
    fn new(class: &str, params: &Params, link: &Link) -> Result<Self, ParamError> {
        let constants = Constants::new(&TUNING, link.mtu).with(class, params)?;
        Ok(Codel {
            law: Law::NEW,
            phase: Phase::Passing,
            constants,
            dropped: 0,
            longest_wait: Duration::ZERO,
        })
    }
}

impl Aqm for Codel {
    fn arrive(&mut self, cx: &mut Cx, queue: &List, limit: u32, _id: &PacketId) -> Decision {
        if queue.packets() < limit || cx.adopting() {
            Decision::Accept
        } else {
            Decision::Drop(DropReason::Tail)
        }
    }
    fn depart(&mut self, cx: &mut Cx, queue: &List, id: &PacketId) -> Decision {
        let row = cx.packets.get(id);
        self.longest_wait = self.longest_wait.max(cx.now.since(row.arrival));
        let Codel { law, phase, constants, .. } = self;
        match law.judge(phase, constants, cx.now, row.arrival, queue.bytes(), row.ecn_capable()) {
            Fate::Pass => Decision::Accept,
            Fate::Mark => Decision::Mark(DropReason::Head),
            Fate::Drop => {
                self.dropped += 1;
                Decision::Drop(DropReason::Head)
            }
        }
    }
    fn name(&self) -> &'static str {
        ENTRY.name
    }
    fn params(&self) -> &'static [&'static [ParamSpec]] {
        ENTRY.params
    }
    fn departures(&self) -> Departures {
        Departures::Decides
    }
    fn reconfigure(&mut self, class: &str, params: &Params, _: &Link) -> Result<(), ParamError> {
        self.constants = self.constants.with(class, params)?;
        Ok(())
    }
    fn visit_stats(&self, visit: &mut dyn Visit) {
        visit.value("dropped_by_codel", "packets", self.dropped as i64);
        visit.value("dropping", "", i64::from(!matches!(self.phase, Phase::Passing | Phase::Above)));
        visit.value("longest_wait", "ns", self.longest_wait.as_nanos() as i64);
        visit.value("target", "ns", self.constants.target.as_nanos() as i64);
        visit.value("interval", "ns", self.constants.interval.as_nanos() as i64);
    }
}

#[cfg(test)]
#[path = "codel_tests.rs"]
mod tests;
