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
mod tests {
    use super::*;
    use crate::Random;
    use crate::queue::{Value, Verdict};
    use crate::sched::testing::{Bench, node, stat};
    use std::collections::VecDeque;
    use std::vec::Vec;

    /// RFC 8289, section 5, with its own loop, in ns; its root in floating point: the reference.
    struct Reference {
        queue: VecDeque<(u64, u32, u32)>,
        bytes: u32,
        /// 0 for none.
        first_above: u64,
        drop_next: u64,
        count: u32,
        last_count: u32,
        dropping: bool,
        dropped: Vec<u32>,
    }
    impl Reference {
        fn pull(&mut self, now: u64) -> (Option<u32>, bool) {
            let Some((came, len, name)) = self.queue.pop_front() else {
                self.first_above = 0;
                return (None, false);
            };
            self.bytes -= len;
            let mut ok = false;
            if now - came < 5_000_000 || self.bytes <= 1514 {
                self.first_above = 0;
            } else if self.first_above == 0 {
                self.first_above = now + 100_000_000;
            } else {
                ok = now >= self.first_above;
            }
            (Some(name), ok)
        }
        fn law(t: u64, count: u32) -> u64 {
            t + (1e8 / f64::from(count).sqrt()) as u64
        }
        fn dequeue(&mut self, now: u64) -> Option<u32> {
            let (mut packet, mut ok) = self.pull(now);
            if packet.is_none() {
                self.dropping = false;
                return None;
            }
            if self.dropping {
                if !ok {
                    self.dropping = false;
                }
                while now >= self.drop_next && self.dropping {
                    self.dropped.extend(packet);
                    self.count += 1;
                    (packet, ok) = self.pull(now);
                    if ok {
                        self.drop_next = Self::law(self.drop_next, self.count);
                    } else {
                        self.dropping = false;
                    }
                }
            } else if ok {
                self.dropped.extend(packet);
                (packet, _) = self.pull(now);
                self.dropping = true;
                let delta = self.count - self.last_count;
                self.count =
                    if delta > 1 && now.saturating_sub(self.drop_next) < 1_600_000_000 { delta } else { 1 };
                self.drop_next = Self::law(now, self.count);
                self.last_count = self.count;
            }
            packet
        }
    }

    /// Drops of ours and of the reference under the same load: bursts that come and go.
    fn both(seed: u64, high: u64) -> (Vec<u32>, Vec<u32>) {
        let mut bench = Bench::new(&node("codel", &[("qlimit", Value::Count(100_000))]), 1);
        let mut reference = Reference {
            queue: VecDeque::new(),
            bytes: 0,
            first_above: 0,
            drop_next: 0,
            count: 0,
            last_count: 0,
            dropping: false,
            dropped: Vec::new(),
        };
        let (mut random, mut name) = (Random::new(seed), 0);
        // A packet of 1250 bytes is served each millisecond, at a random time within it.
        for ms in 1..30_000u64 {
            bench.cx.now = Instant::from_nanos(ms * 1_000_000 + random.below(999_983));
            let now = bench.cx.now.as_nanos();
            let load = if ms / 3_000 % 2 == 0 { high } else { 60 };
            for _ in 0..2 {
                if random.below(200) < load {
                    bench.offer(1250, |_| {});
                    reference.queue.push_back((now, 1250, name));
                    reference.bytes += 1250;
                    name += 1;
                }
            }
            let ours = bench.serve().map(|m| m.frame.0);
            assert_eq!(ours, reference.dequeue(now), "seed {seed} at {ms} ms");
        }
        bench.check();
        (bench.dropped.iter().map(|(m, _)| m.frame.0).collect(), reference.dropped)
    }

    #[test]
    fn drops_at_the_times_of_the_reference() {
        for (seed, high) in weir_seed::seeds(7).zip((115..=145).step_by(5).cycle()) {
            let (ours, exact) = both(seed, high);
            assert!(exact.len() > 50, "seed {seed}: only {} drops", exact.len());
            assert_eq!(ours, exact, "seed {seed}");
        }
        // Reversed: a load that the link carries loses nothing.
        assert_eq!(both(weir_seed::seed(), 50).0.len(), 0);
    }

    /// The loop of RFC 8289, section 5, as it stands there, in whole nanoseconds; marks beside drops.
    #[derive(Default)]
    struct Plain {
        first_above: Option<Instant>,
        drop_next: Instant,
        count: u32,
        last_count: u32,
        dropping: bool,
    }
    /// A waiting packet: when it came, its length, whether it is ECN-capable.
    type Waiting = VecDeque<(Instant, u64, bool)>;

    impl Plain {
        fn dodequeue(&mut self, of: &Constants, now: Instant, queue: &mut Waiting) -> Option<(bool, bool)> {
            let Some((came, _, capable)) = queue.pop_front() else {
                self.first_above = None;
                return None;
            };
            let left: u64 = queue.iter().map(|(_, len, _)| len).sum();
            let mut ok_to_drop = false;
            if now.since(came) < of.target || left <= of.mtu {
                self.first_above = None;
            } else if let Some(at) = self.first_above {
                ok_to_drop = now >= at;
            } else {
                self.first_above = Some(now + of.interval);
            }
            Some((ok_to_drop, capable && of.ecn))
        }
        /// What becomes of each packet that is taken, the last of which goes.
        fn dequeue(&mut self, of: &Constants, now: Instant, queue: &mut Waiting) -> Vec<Fate> {
            let mut fates = Vec::new();
            let Some((mut ok_to_drop, mut markable)) = self.dodequeue(of, now, queue) else {
                self.dropping = false;
                return fates;
            };
            if self.dropping {
                self.dropping = ok_to_drop;
                while now >= self.drop_next && self.dropping {
                    self.count += 1;
                    if markable {
                        self.drop_next += of.interval_over_root(self.count);
                        fates.push(Fate::Mark);
                        return fates;
                    }
                    fates.push(Fate::Drop);
                    (ok_to_drop, markable) = self.dodequeue(of, now, queue).expect("one more waits");
                    if ok_to_drop {
                        self.drop_next += of.interval_over_root(self.count);
                    } else {
                        self.dropping = false;
                    }
                }
            } else if ok_to_drop {
                fates.push(if markable { Fate::Mark } else { Fate::Drop });
                if !markable {
                    let _ = self.dodequeue(of, now, queue);
                }
                self.dropping = true;
                let delta = self.count.wrapping_sub(self.last_count);
                let recent = now.since(self.drop_next) < of.interval.saturating_mul(16);
                self.count = if delta > 1 && delta <= self.count && recent { delta } else { 1 };
                self.drop_next = now + of.interval_over_root(self.count);
                self.last_count = self.count;
                if markable {
                    return fates;
                }
            }
            fates.push(Fate::Pass);
            fates
        }
    }

    #[test]
    fn the_loop_of_the_rfc_agrees() {
        for (run, seed) in weir_seed::seeds(20).enumerate() {
            let mut random = Random::new(seed);
            let of = Constants { ecn: run % 2 == 0, ..Constants::new(&TUNING, 1514) };
            let (mut ours, mut phase, mut plain) = (Law::NEW, Phase::Passing, Plain::default());
            let (mut queue, mut theirs) = (Waiting::new(), Waiting::new());
            let (mut now, mut dropped, mut marked) = (Instant::ZERO, 0, 0);
            for call in 0..40_000 {
                // Now and then a dropping state is long past, or none can be recent any more.
                let most = match random.below(4_000) {
                    0 => 400_000_000_000,
                    1..=6 => 3_000_000_000,
                    _ => 2_000_000,
                };
                now += Duration::from_nanos(random.below(most));
                // Times of overload and times in which the queue drains.
                if random.below(100) < if call / 4_000 % 2 == 0 { 58 } else { 46 } {
                    let packet = (now, 40 + random.below(1475), random.below(3) == 0);
                    queue.push_back(packet);
                    theirs.push_back(packet);
                    continue;
                }
                let mut fates = Vec::new();
                while let Some((came, _, capable)) = queue.pop_front() {
                    let left = queue.iter().map(|(_, len, _)| len).sum();
                    fates.push(ours.judge(&mut phase, &of, now, came, left, capable));
                    match fates.last() {
                        Some(Fate::Drop) => dropped += 1,
                        Some(Fate::Mark) => marked += 1,
                        _ => {}
                    }
                    if fates.last() != Some(&Fate::Drop) {
                        break;
                    }
                }
                assert_eq!(fates, plain.dequeue(&of, now, &mut theirs), "seed {seed}, call {call}");
                assert_eq!(queue, theirs, "seed {seed}, call {call}");
            }
            assert!(dropped > 20 && (marked > 20) == of.ecn, "seed {seed}: {dropped} and {marked}");
        }
    }

    #[test]
    fn a_burst_that_drains_is_spared() {
        let mut bench = Bench::new(&node("codel", &[]), 1);
        for round in 0..20 {
            bench.cx.now = Instant::from_millis(200 * round);
            for _ in 0..90 {
                assert_eq!(bench.offer(1250, |_| {}), Verdict::Queued);
            }
            while bench.serve().is_some() {
                bench.pass(1250);
            }
        }
        assert_eq!(bench.dropped.len(), 0);
        assert_eq!(stat(&*bench.tree.discipline, "longest_wait"), 89_000_000);
    }

    #[test]
    fn ecn_marks_and_drops_nothing() {
        for (ecn, dies) in [(2, false), (0, true)] {
            let mut bench =
                Bench::new(&node("codel", &[("ecn", Value::Flag), ("qlimit", Value::Count(100_000))]), 1);
            let mut marked = 0;
            for ms in 0..5_000 {
                bench.cx.now = Instant::from_millis(ms);
                bench.offer(1250, |m| m.ecn = ecn);
                if ms % 4 == 0 {
                    bench.offer(1250, |m| m.ecn = ecn);
                }
                marked += u32::from(bench.serve().is_some_and(|m| m.ecn == 3));
            }
            assert_eq!((!bench.dropped.is_empty(), marked > 50), (dies, !dies), "{marked} marks");
        }
    }

    #[test]
    fn times_that_contradict_are_refused() {
        let mut bench = Bench::new(&node("codel", &[]), 1);
        for (name, ms) in [("target", 100), ("interval", 5), ("interval", 0), ("interval", 5_000)] {
            let params = Params::new().with(name, Value::Time(Duration::from_millis(ms)));
            assert!(bench.tree.discipline.reconfigure(&mut bench.cx, "", &params).is_err(), "{name} {ms}");
        }
        assert_eq!(stat(&*bench.tree.discipline, "target"), 5_000_000);
    }
    /// [RFC 8289 section 5] `now >= first_above_time_`: a whole interval is enough.
    #[test]
    fn a_wait_stands_when_an_interval_is_over() {
        let constants = Constants::new(&TUNING, 1514);
        let (mut law, mut phase) = (Law::NEW, Phase::Passing);
        let mut stands = |after: Duration| {
            let came = Instant::from_millis(7) + after;
            law.judge(&mut phase, &constants, came + constants.target, came, 10 * 1514, false) == Fate::Drop
        };
        assert!(!stands(Duration::ZERO));
        assert!(!stands(constants.interval.saturating_sub(Duration::from_nanos(1))));
        assert!(stands(constants.interval));
    }
}
