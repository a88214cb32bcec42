//! The allocator of one class: when it asks for how much, and what it makes of the answer.
//!
//! Principle: a window ends, the law says what the class should have, and a request goes out. One
//! request is under way at a time, and one decision is made a window. A rise takes effect with its
//! answer; a fall takes effect before it is asked, so that the class never sends more than it holds.
//! During congestion the law is silent and [`Congestion`] asks instead. Where that cannot help, because
//! the broker refused, does not answer, or `to` is reached, a flow must go, unless those who stay leave enough for the queue.
//!
//! ```text
//! entered() ─> window ─> law ──┐                       ┌─> Action::Shape
//! queued()  ─> congestion ─────┴─> one request ─> poll ├─> Action::Ask ... answer()
//!                                                      └─> take_eviction()
//! ```
//!
//! Paper: multiservice IV.3.1 (requests, T_bb), IV.3.4 (congestion, guard time), IV.4.1, V.3.
//! Where we differ, and why: one flow per round while there is congestion lets twice as many go as are too many, because what has
//! queued up meanwhile costs as many again. The last of them would leave by itself.
//! Guarantees: `t44_the_delay_is_bounded`, `one_request_is_under_way`, `a_refusal_in_congestion_evicts`.

use super::{Backlog, Congestion, Log, Threshold, Window, Windows};
use weir_core::units::{Duration, Instant};

/// The first repetition of a request that is not answered.
const FIRST_REPEAT: Duration = Duration::from_millis(500);
/// The longest pause between two repetitions.
const LONGEST_REPEAT: Duration = Duration::from_secs(30);

/// The shortest round: the least T_s of multiservice. With one of a nanosecond the clock would stop for whoever heeds
/// [`Allocator::poll_at`], and all flows of a class go at once.
const LEAST_ROUND: Duration = Duration::from_micros(100);
/// No flow goes if the queue comes down in so many rounds without that, or before a rise may be asked for again.
const SOON: u64 = 16;

/// Which law decides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Law {
    /// [`Threshold`].
    Threshold(Threshold),
    /// [`Log`].
    Log(Log),
    /// None: the allocation stays what it is, except in congestion.
    Fixed,
}

/// The parameters of an allocator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allocation {
    /// The law.
    pub law: Law,
    /// How bandwidth is measured.
    pub windows: Windows,
    /// Measured behind the shaper, as in the thesis, instead of where packets arrive.
    pub at_shaper: bool,
    /// Congestion control, if it is on.
    pub congestion: Option<Congestion>,
    /// How long the law stays silent after congestion, T_g.
    pub guard: Duration,
    /// Least allocation, bit/s: guaranteed, and never asked for.
    pub from: u64,
    /// Most that is asked for, bit/s.
    pub to: u64,
    /// The allocation at the start, bit/s; `from` and `to` bound it.
    pub initial: u64,
    /// Requests are multiples of this, rounded up, bit/s.
    pub unit: u64,
    /// How long no rise is asked for after a refusal.
    pub retry: Duration,
}

impl Default for Allocation {
    /// The threshold law with its defaults, from 0 to 1 Tbit/s, without congestion control.
    fn default() -> Self {
        Allocation {
            law: Law::Threshold(Threshold::default()),
            windows: Windows::DEFAULT,
            at_shaper: false,
            congestion: None,
            guard: Duration::from_millis(1600),
            from: 0,
            to: 1_000_000_000_000,
            initial: 0,
            unit: 1,
            retry: Duration::from_secs(10),
        }
    }
}

/// What is asked of a broker: an absolute rate, so that repeating it is safe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Counts up; only the newest counts.
    pub version: u64,
    /// Bit/s.
    pub rate_bps: u64,
}

/// What a broker answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// So many bit/s, at most what was asked.
    Granted(u64),
    /// Nothing changes.
    Refused,
}

/// What the host is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Give the class this rate, bit/s.
    Shape(u64),
    /// Send this to the broker.
    Ask(Request),
}

/// What an allocator has done.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Stats {
    /// Requests for more.
    pub up: u64,
    /// Requests for less.
    pub down: u64,
    /// Repetitions of requests that were not answered.
    pub repeated: u64,
    /// Answers that granted all.
    pub granted: u64,
    /// Answers that granted a part.
    pub partial: u64,
    /// Answers that refused.
    pub refused: u64,
    /// Evictions asked for by congestion.
    pub evictions: u64,
    /// Times that congestion began.
    pub congestions: u64,
    /// Time in congestion, ns.
    pub congested_ns: u64,
    /// Bytes measured.
    pub measured_bytes: u64,
    /// The integral of the allocation over time, bit/s·ns.
    pub allocated: u128,
}

#[derive(Clone, Copy, Debug)]
struct Outstanding {
    request: Request,
    since: Instant,
    repeat_at: Instant,
    pause: Duration,
}

/// The state machine.
#[derive(Clone, Debug)]
pub struct Allocator {
    plan: Allocation,
    window: Window,
    allocated: u64,
    /// What the class has besides, bit/s: the law neither asks for it nor gives it back.
    apart: u64,
    version: u64,
    outstanding: Option<Outstanding>,
    queued: Backlog,
    longest: u64,
    congested_since: Option<Instant>,
    guard_until: Instant,
    refused_until: Instant,
    /// The last rise was not granted in full: little hope for the next.
    denied: bool,
    evict_after: Instant,
    /// When the last flow went, or else congestion began, and what waited then, bytes.
    evicted: (Instant, u64),
    /// The last answer took so long, T_bb.
    answered_in: Duration,
    accounted_to: Instant,
    /// The rate is to be said.
    shape: bool,
    ask: Option<Request>,
    evict: bool,
    /// What the class uses, where that is known: windows then decide nothing.
    told: Option<u64>,
    stats: Stats,
}

impl Allocator {
    /// An allocator that starts at `now`, with the first windows beginning there.
    pub fn new(plan: Allocation, now: Instant) -> Self {
        let allocated = plan.initial.clamp(plan.from.min(plan.to), plan.to);
        Allocator {
            plan,
            window: Window::new(plan.windows, now),
            allocated,
            apart: 0,
            version: 0,
            outstanding: None,
            queued: Backlog::default(),
            longest: 0,
            congested_since: None,
            guard_until: Instant::ZERO,
            refused_until: Instant::ZERO,
            denied: false,
            evict_after: Instant::ZERO,
            evicted: (Instant::ZERO, 0),
            answered_in: Duration::ZERO,
            accounted_to: now,
            shape: true,
            ask: None,
            evict: false,
            told: None,
            stats: Stats::default(),
        }
    }

    /// The parameters.
    pub fn plan(&self) -> &Allocation {
        &self.plan
    }
    /// B_d: what the class has, bit/s.
    pub fn allocated_bps(&self) -> u64 {
        self.allocated
    }
    /// What is set apart in the class for traffic that the law does not see, bit/s.
    pub fn apart_bps(&self) -> u64 {
        self.apart
    }
    /// The rate of the class, bit/s: B_d and what is set apart.
    pub fn rate_bps(&self) -> u64 {
        self.allocated.saturating_add(self.apart)
    }
    /// From now on so many bit/s are set apart in the class.
    pub fn set_apart(&mut self, now: Instant, bps: u64) {
        self.timer(now);
        if core::mem::replace(&mut self.apart, bps) != bps {
            self.restate();
        }
        self.test(now);
    }
    /// B_m: what the class is measured to use, bit/s.
    pub fn estimate_bps(&self) -> u64 {
        self.window.estimate_bps()
    }
    /// The mean of the last window, bit/s.
    pub fn mean_bps(&self) -> u64 {
        self.window.mean_bps()
    }
    /// Whether the class is congested.
    pub fn is_congested(&self) -> bool {
        self.congested_since.is_some()
    }
    /// The request under way.
    pub fn outstanding(&self) -> Option<Request> {
        self.outstanding.map(|o| o.request)
    }
    /// The most that the class may get as far as is known: what it has after a refusal, or while the broker does not
    /// answer; else `to`.
    pub fn limit_bps(&self, now: Instant) -> u64 {
        let is_late =
            |o: &Outstanding| o.request.rate_bps > self.allocated && now.since(o.since) >= self.patience();
        let is_silent = self.outstanding.as_ref().is_some_and(is_late);
        if is_silent || now < self.refused_until { self.allocated } else { self.plan.to }
    }
    /// Bytes measured so far.
    pub fn measured_bytes(&self) -> u64 {
        self.stats.measured_bytes
    }
    /// Requests for more so far, repetitions not counted.
    pub fn rises(&self) -> u64 {
        self.stats.up
    }
    /// Requests for less so far, repetitions not counted.
    pub fn falls(&self) -> u64 {
        self.stats.down
    }
    /// Other counts of requests, where given. True.
    pub(crate) fn set_requests(&mut self, up: Option<u64>, down: Option<u64>) -> bool {
        self.stats.up = up.unwrap_or(self.stats.up);
        self.stats.down = down.unwrap_or(self.stats.down);
        true
    }
    /// Another estimate of what the class uses, until the meter has a higher one or its hold ends. True.
    pub(crate) fn set_estimate(&mut self, bps: u64) -> bool {
        self.window.set_estimate(bps);
        true
    }
    /// Asks for so many bit/s, in whole units from `from` to `to`, whatever the law says. False if the
    /// class has that.
    pub(crate) fn ask(&mut self, now: Instant, rate: u64) -> bool {
        self.timer(now);
        let wish = self.within(rate);
        let is_other = wish != self.allocated;
        self.request(now, wish);
        self.test(now);
        is_other
    }
    /// Requests so far, repetitions not counted.
    pub fn requests(&self) -> u64 {
        self.stats.up.saturating_add(self.stats.down)
    }
    /// What it has done up to `now`.
    pub fn stats(&mut self, now: Instant) -> Stats {
        self.account(now);
        self.stats
    }

    /// Says the rate of the class again: the host gave the class another port.
    pub fn restate(&mut self) {
        self.shape = true;
    }

    /// Changes parameters at run time. The windows begin anew if theirs changed. An allocation outside
    /// `from` and `to` goes to the nearer of them; a rise to `from` is guaranteed, and takes effect at once.
    pub fn set(&mut self, now: Instant, plan: Allocation) {
        self.timer(now);
        if plan.windows != self.plan.windows {
            self.window = Window::new(plan.windows, now);
        }
        self.plan = plan;
        let within = self.allocated.clamp(plan.from.min(plan.to), plan.to);
        if within != self.allocated {
            self.request(now, within);
            self.shape_to(now, within);
        }
        self.test(now);
    }

    /// A packet of the class that is charged as `bytes` is measured.
    pub fn entered(&mut self, now: Instant, bytes: u64) {
        self.timer(now);
        self.window.count(bytes);
        self.stats.measured_bytes += bytes;
        self.longest = self.longest.max(bytes);
    }

    /// The queue of the class after an arrival or a departure.
    pub fn queued(&mut self, now: Instant, queued: Backlog) {
        self.queued = queued;
        self.test(now);
    }

    /// The exact bandwidth in use, where it is known: the ideal system of multiservice IV.3.5. From the
    /// first call on it alone decides, when it changes and when an answer has come.
    pub fn told(&mut self, now: Instant, used_bps: u64) {
        self.told = Some(used_bps);
        self.timer(now);
        self.decide(now, used_bps);
    }

    /// When to call `timer` next.
    pub fn poll_at(&self) -> Instant {
        let mut at = self.window.end();
        if let Some(outstanding) = self.outstanding {
            at = at.min(outstanding.repeat_at);
        }
        if self.is_congested() {
            at = at.min(match self.outstanding {
                Some(_) if self.denied => self.evict_after,
                Some(outstanding) => self.evict_after.max(outstanding.since + self.patience()),
                None if self.refused_until > self.accounted_to => self.evict_after.min(self.refused_until),
                None => self.evict_after,
            });
        }
        at
    }

    /// How long congestion may last before something else must help: T_s + 2 T_bb, and never less than [`LEAST_ROUND`].
    fn round(&self) -> Duration {
        let drain = self.plan.congestion.map_or(Duration::ZERO, |c| c.drain);
        let answers = self.answered_in.saturating_mul(2);
        Duration::from_nanos((drain + answers).as_nanos().max(LEAST_ROUND.as_nanos()))
    }

    /// How long an answer is waited for before flows go.
    fn patience(&self) -> Duration {
        Duration::from_nanos(self.round().as_nanos().max(FIRST_REPEAT.as_nanos()))
    }

    /// The clock reached `now`.
    pub fn timer(&mut self, now: Instant) {
        while let Some(at) = self.window.close(now) {
            if self.told.is_none() {
                self.decide(at, self.window.estimate_bps());
            }
        }
        if let Some(outstanding) = &mut self.outstanding
            && now >= outstanding.repeat_at
        {
            outstanding.pause = outstanding.pause.saturating_mul(2).min(LONGEST_REPEAT);
            outstanding.repeat_at = now + outstanding.pause;
            self.ask = Some(outstanding.request);
            self.stats.repeated += 1;
        }
        if self.is_congested() {
            self.test(now);
        }
    }

    /// The broker answered the request of that version.
    pub fn answer(&mut self, now: Instant, version: u64, answer: Answer) {
        let Some(outstanding) = self.outstanding.filter(|o| o.request.version == version) else { return };
        self.outstanding = None;
        self.ask = None;
        self.answered_in = now.since(outstanding.since);
        let asked = outstanding.request.rate_bps;
        let is_rise = asked > self.allocated;
        match answer {
            Answer::Granted(rate) if rate >= asked => {
                self.stats.granted += 1;
                self.denied &= !is_rise;
                self.shape_to(now, asked);
            }
            Answer::Granted(rate) => {
                self.stats.partial += 1;
                self.refused_until = now + self.plan.retry;
                self.denied = true;
                self.shape_to(now, rate);
            }
            Answer::Refused => {
                self.stats.refused += 1;
                if is_rise {
                    self.refused_until = now + self.plan.retry;
                    self.denied = true;
                }
            }
        }
        self.test(now);
        if let Some(used) = self.told {
            self.decide(now, used);
        }
    }

    /// The broker takes back: the class has at most `rate` bit/s from now on, but never less than `from`, which no
    /// broker gave. A request for more is forgotten; no other one follows for `retry`, which is 0 where nothing was refused.
    pub fn withdraw(&mut self, now: Instant, rate: u64, retry: Duration) {
        self.timer(now);
        let rate = rate.max(self.plan.from.min(self.plan.to));
        if self.outstanding.is_some_and(|o| o.request.rate_bps > rate) {
            (self.outstanding, self.ask) = (None, None);
        }
        if rate < self.allocated {
            self.denied |= retry > Duration::ZERO;
            self.refused_until = self.refused_until.max(now + retry);
            self.shape_to(now, rate);
        }
        self.test(now);
    }

    /// What is to be done, one thing after the other; first a rate, then what is asked.
    pub fn poll(&mut self) -> Option<Action> {
        if core::mem::take(&mut self.shape) {
            return Some(Action::Shape(self.rate_bps()));
        }
        self.ask.take().map(Action::Ask)
    }

    /// Whether a flow of the class must go; asking answers for one flow. `offered` says what those in the class send, bit/s, if
    /// that is known: none goes where the queue drains without.
    pub fn take_eviction(&mut self, now: Instant, offered: impl FnOnce() -> Option<u64>) -> bool {
        if !core::mem::take(&mut self.evict) || offered().is_some_and(|offered| self.drains(now, offered)) {
            return false;
        }
        self.stats.evictions += 1;
        self.evicted = (now, self.queued.bytes);
        true
    }

    /// Whether the queue comes down to S_q soon enough, where so many bit/s come. If it has grown by S_q since the last eviction,
    /// or is there for as long as it should have taken, then more comes than is known.
    fn drains(&self, now: Instant, offered: u64) -> bool {
        let Some(control) = self.plan.congestion else { return false };
        let (since, had) = self.evicted;
        let soon = self.round().saturating_mul(SOON).min(self.plan.retry);
        let (rate, spare) = (self.rate_bps(), self.rate_bps().saturating_sub(offered));
        // What goes out beyond what comes in, and S_q.
        let leaves = |bps: u64, time: Duration| u128::from(bps) * u128::from(time.as_nanos());
        let room = leaves(spare, soon) + leaves(rate, control.drain);
        let grown = Backlog { bytes: self.queued.bytes.saturating_sub(had), ..self.queued };
        u128::from(self.queued.bytes) * 8_000_000_000 <= room
            && now.since(since) < soon
            && !Congestion { packets: false, ..control }.is_congested(rate, grown, self.longest)
    }

    fn account(&mut self, now: Instant) {
        let ns = now.since(self.accounted_to).as_nanos();
        self.accounted_to = self.accounted_to.max(now);
        self.stats.allocated += u128::from(self.allocated) * u128::from(ns);
        if self.is_congested() {
            self.stats.congested_ns += ns;
        }
    }

    fn shape_to(&mut self, now: Instant, rate: u64) {
        self.account(now);
        if rate != self.allocated {
            self.allocated = rate;
            self.shape = true;
        }
    }

    /// One decision of the law.
    fn decide(&mut self, at: Instant, used: u64) {
        if self.is_congested() || at < self.guard_until || self.outstanding.is_some() {
            return;
        }
        let wish = match &self.plan.law {
            Law::Threshold(law) => law.wish(self.allocated, used),
            Law::Log(law) => law.wish(self.plan.from, self.allocated, used),
            Law::Fixed => None,
        };
        let Some(wish) = wish.map(|wish| self.within(wish)) else { return };
        let refused = wish > self.allocated && at < self.refused_until;
        // A fall must not make congestion of what waits. [condition (c) of the delay's bound]
        let congests =
            |c: &Congestion| c.is_congested(wish.saturating_add(self.apart), self.queued, self.longest);
        let unwise = wish < self.allocated && self.plan.congestion.as_ref().is_some_and(congests);
        if !refused && !unwise {
            self.request(at, wish);
        }
    }

    /// `rate` in whole units, from `from` to `to`.
    fn within(&self, rate: u64) -> u64 {
        let unit = self.plan.unit.max(1);
        let whole = rate.div_ceil(unit).saturating_mul(unit);
        whole.clamp(self.plan.from.min(self.plan.to), self.plan.to)
    }

    fn request(&mut self, now: Instant, rate: u64) {
        if rate == self.allocated {
            return;
        }
        if rate > self.allocated {
            // A handler may have set it to anything.
            self.stats.up = self.stats.up.saturating_add(1);
        } else {
            self.stats.down = self.stats.down.saturating_add(1);
            self.shape_to(now, rate);
        }
        self.version += 1;
        let request = Request { version: self.version, rate_bps: rate };
        let repeat_at = now + FIRST_REPEAT;
        self.outstanding = Some(Outstanding { request, since: now, repeat_at, pause: FIRST_REPEAT });
        self.ask = Some(request);
    }

    /// Whether the class is congested, and what follows.
    fn test(&mut self, now: Instant) {
        self.account(now);
        let Some(control) = self.plan.congestion else { return };
        if !control.is_congested(self.rate_bps(), self.queued, self.longest) {
            if self.congested_since.take().is_some() && !control.packets {
                self.guard_until = now + self.plan.guard;
            }
            return;
        }
        let round = self.round();
        if self.congested_since.is_none() {
            self.congested_since = Some(now);
            self.stats.congestions += 1;
            self.evict_after = now + round;
            self.evicted = (now, self.queued.bytes);
            if control.packets {
                self.guard_until = now + self.plan.guard;
            }
        }
        let mut helpless = false;
        match self.outstanding {
            // What is under way may help, until it is late; if the last was denied, nobody waits for it.
            Some(outstanding) => {
                helpless = self.denied || now.since(outstanding.since) >= self.patience();
            }
            None => {
                let needed = control.wish(self.queued, self.longest);
                let wish = self.within(needed.saturating_sub(self.apart));
                if now < self.refused_until || wish <= self.allocated {
                    helpless = true;
                } else {
                    self.request(now, wish);
                }
            }
        }
        if helpless && now >= self.evict_after {
            self.evict = true;
            self.evict_after = now + round;
        }
    }
}
