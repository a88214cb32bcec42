//! Datagrams at a rate, on and off, at several rates in turn, or in bursts.

use super::Schedule;
use crate::rng::Stream;
use std::collections::VecDeque;
use weir_core::units::{Fine, Instant, Rate};
use weir_report::FlowKind;
use weir_scenario::media::{Media, SILENCE_NS, TALK_NS};
use weir_scenario::scenario::{Distribution, Flow};

/// The packets of one UDP flow over time.
#[derive(Debug)]
pub struct UdpSource {
    schedule: Schedule,
    pattern: Pattern,
    random: Stream,
    /// When the next packet or burst is due, exactly: a rate is kept over the whole run.
    due: Fine,
    /// When the present period on ends, if periods are drawn, or the present rate.
    until: Fine,
    /// Where an edge is to know what it sends: the rates to come, bit/s, each with when it begins.
    told: Option<VecDeque<(Fine, u64)>>,
    /// What it sends, bit/s, as far as it was told.
    sends_bps: u64,
}

/// What is sent while the flow is active.
#[derive(Debug)]
enum Pattern {
    /// A packet every so often, in periods drawn if there are any.
    Paced { interval: Fine, rate_bps: u64, periods: Option<Periods> },
    /// A packet every so often, at one rate after the other: intervals (none: silence) with their rates.
    Levels { levels: Vec<(Option<Fine>, u64)>, now: usize, hold_ns: u64, times: Times },
    /// Packets back to back, every so often.
    Bursts { packets: u32, period: Fine },
}

/// How times are drawn.
#[derive(Clone, Copy, Debug)]
struct Times {
    distribution: Distribution,
    shape: f64,
}

impl Pattern {
    fn media(media: Media, suppression: bool) -> Self {
        let period = Fine::from_nanos(media.interval_ns);
        if !suppression {
            return Pattern::Bursts { packets: media.burst, period };
        }
        let periods = Periods {
            on_ns: TALK_NS,
            off_ns: SILENCE_NS,
            times: Times { distribution: Distribution::Exponential, shape: 0.0 },
            stationary: false,
        };
        let bits = u64::from(media.bytes) * 8;
        let rate_bps = bits * 1_000_000_000 / media.interval_ns;
        Pattern::Paced { interval: period, rate_bps, periods: Some(periods) }
    }
}

/// The shortest time that is drawn from a Pareto distribution.
const LEAST_PARETO_NS: u64 = 1_000;

#[derive(Debug)]
struct Periods {
    on_ns: u64,
    off_ns: u64,
    times: Times,
    stationary: bool,
}

impl Times {
    fn draw(&self, mean_ns: u64, random: &mut Stream) -> Fine {
        Fine::from_nanos(match self.distribution {
            Distribution::Constant => mean_ns,
            // A draw is at least 1 ns, so that each period lets time pass. A shape near 1 draws next to nothing, however
            // long the mean: there it is the shortest mean that a file may ask for, so that a run ends.
            Distribution::Uniform => random.uniform_ns(mean_ns).max(1),
            Distribution::Exponential => random.exponential_ns(mean_ns).max(1),
            Distribution::Pareto => random.pareto_ns(mean_ns, self.shape).max(LEAST_PARETO_NS),
        })
    }

    /// What is left of a time that is under way in a run that has lasted for ever (T62).
    fn rest(&self, mean_ns: u64, random: &mut Stream) -> Fine {
        Fine::from_nanos(match self.distribution {
            Distribution::Constant => random.below(mean_ns),
            Distribution::Uniform => random.uniform_rest_ns(mean_ns),
            // An exponential time has no memory.
            Distribution::Exponential => random.exponential_ns(mean_ns),
            Distribution::Pareto => random.pareto_rest_ns(mean_ns, self.shape),
        })
    }
}

/// From one packet of `size` bytes to the next at that rate: at least a step of time.
fn interval(rate: Rate, size: u64) -> Fine {
    rate.time_for(size).max(Fine::from_raw(1))
}

impl UdpSource {
    /// The source of a flow as its scenario describes it; the scenario has been validated. `told` where
    /// somebody asks what it [sends](UdpSource::sends).
    pub fn new(flow: &Flow, schedule: Schedule, random: Stream, told: bool) -> Self {
        let size = flow.size.map_or(60, |s| s.as_bytes());
        let times = Times { distribution: flow.distribution, shape: flow.shape.unwrap_or(1.5) };
        let media = (flow.kind == FlowKind::Rtp).then(|| flow.codec.media(flow.frames));
        let pattern = match (flow.burst, flow.period) {
            (Some(packets), Some(period)) => {
                // A period of 0 would never let time pass.
                Pattern::Bursts { packets, period: Fine::from_nanos(period.as_nanos().max(1)) }
            }
            _ if !flow.rates.is_empty() => {
                let level = |rate: &weir_text::BitRate| {
                    ((rate.as_bps() > 0).then(|| interval(rate.rate(), size)), rate.as_bps())
                };
                let levels: Vec<_> = flow.rates.iter().map(level).collect();
                let hold_ns = flow.hold.map_or(1, |hold| hold.as_nanos().max(1));
                // The first to begin is the first.
                Pattern::Levels { now: levels.len() - 1, levels, hold_ns, times }
            }
            _ => Pattern::Paced {
                interval: interval(flow.rate.unwrap_or_default().rate(), size),
                rate_bps: flow.rate.map_or(0, |rate| rate.as_bps()),
                periods: flow.on.zip(flow.off).map(|(on, off)| Periods {
                    on_ns: on.as_nanos().max(1),
                    off_ns: off.as_nanos(),
                    times,
                    stationary: flow.stationary,
                }),
            },
        };
        let pattern = media.map_or(pattern, |media| Pattern::media(media, flow.suppression));
        let told = told.then(VecDeque::new);
        UdpSource { schedule, pattern, random, due: Fine::ZERO, until: Fine::ZERO, told, sends_bps: 0 }
    }

    /// When to call `fire` next.
    pub fn next(&self) -> Instant {
        let told = self.told.as_ref().and_then(|told| told.front());
        let told = told.map_or(Instant::NEVER, |(at, _)| at.ceil());
        match self.schedule.is_active() {
            true => self.due.ceil().min(self.schedule.next()).min(told),
            false => self.schedule.next(),
        }
    }

    /// What it sent up to `now` and sends from there on, bit/s, if that changed since the last call: call
    /// it after `fire`. Bursts count as nothing.
    pub fn sends(&mut self, now: Instant) -> Option<(u64, u64)> {
        let told = self.told.as_mut()?;
        let mut sends = self.sends_bps;
        if !self.schedule.is_active() {
            told.clear();
            sends = 0;
        }
        while told.front().is_some_and(|(at, _)| *at <= Fine::from(now)) {
            sends = told.pop_front().map_or(0, |(_, rate)| rate);
        }
        let before = std::mem::replace(&mut self.sends_bps, sends);
        (before != sends).then_some((before, sends))
    }

    fn tell(&mut self, at: Fine, rate_bps: u64) {
        if let Some(told) = &mut self.told {
            told.push_back((at, rate_bps));
        }
    }

    /// An interval in which it is active begins.
    fn begin(&mut self, now: Instant) {
        self.due = Fine::from(now);
        self.until = Fine::from(Instant::NEVER);
        match &self.pattern {
            Pattern::Paced { periods: Some(p), interval, rate_bps } => {
                let rate = *rate_bps;
                if p.stationary {
                    let phase =
                        Fine::from_raw(u128::from(self.random.below(1 << 32)) * (interval.raw() >> 32));
                    let off = self.random.below(p.on_ns + p.off_ns) >= p.on_ns;
                    let mean = if off { p.off_ns } else { p.on_ns };
                    let rest = p.times.rest(mean, &mut self.random);
                    let next = match off {
                        false => Fine::ZERO,
                        true => p.times.draw(p.on_ns, &mut self.random),
                    };
                    let begins = if off { self.due + rest } else { self.due };
                    self.until = if off { begins + next } else { self.due + rest };
                    self.due = begins + phase;
                    self.tell(begins, rate);
                } else {
                    // It begins with a period on.
                    self.until = self.due + p.times.draw(p.on_ns, &mut self.random);
                    self.tell(self.due, rate);
                }
                let until = self.until;
                self.tell(until, 0);
                self.skip();
            }
            Pattern::Paced { rate_bps, .. } => {
                let (due, rate) = (self.due, *rate_bps);
                self.tell(due, rate);
            }
            Pattern::Levels { .. } => {
                self.until = self.due;
                self.turn();
            }
            Pattern::Bursts { .. } => {}
        }
    }

    /// While the next packet would come after the present period, the next period begins. Time on is what
    /// counts: what is left of an interval when a period ends is left of the next period's first.
    fn skip(&mut self) {
        while let Pattern::Paced { periods: Some(p), rate_bps, .. } = &self.pattern
            && self.due >= self.until
        {
            let rate = *rate_bps;
            let left = self.due.saturating_sub(self.until);
            let on = self.until + p.times.draw(p.off_ns, &mut self.random);
            self.due = on + left;
            self.until = on + p.times.draw(p.on_ns, &mut self.random);
            let until = self.until;
            self.tell(on, rate);
            self.tell(until, 0);
        }
    }

    /// While the next packet would come after the present rate, the next rate begins: its first packet is
    /// due half an interval later.
    fn turn(&mut self) {
        while let Pattern::Levels { levels, now, hold_ns, times } = &mut self.pattern
            && self.due >= self.until
        {
            *now = (*now + 1) % levels.len();
            let (interval, rate) = levels[*now];
            let begins = self.until;
            self.until = begins + times.draw(*hold_ns, &mut self.random);
            self.due = interval.map_or(self.until, |i| begins + Fine::from_raw(i.raw() / 2));
            self.tell(begins, rate);
        }
    }

    /// The clock reached `now`: how many packets go out.
    pub fn fire(&mut self, now: Instant) -> u32 {
        if self.schedule.advance(now) && self.schedule.is_active() {
            self.begin(now);
        }
        if !self.schedule.is_active() {
            return 0;
        }
        let mut packets = 0;
        while self.due <= Fine::from(now) {
            match &self.pattern {
                Pattern::Bursts { packets: burst, period } => {
                    packets += burst;
                    self.due += *period;
                }
                Pattern::Paced { interval, .. } => {
                    packets += 1;
                    self.due += *interval;
                    self.skip();
                }
                Pattern::Levels { levels, now, .. } => {
                    packets += 1;
                    // A rate of 0 is never due: `turn` went on behind it.
                    self.due += levels[*now].0.unwrap_or(Fine::ZERO);
                    self.turn();
                }
            }
        }
        packets
    }
}
