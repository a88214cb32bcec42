//! Datagrams at a rate, on and off, or in bursts.

use super::Schedule;
use crate::rng::Stream;
use weir_core::units::{Fine, Instant};
use weir_scenario::scenario::{Distribution, Flow};

/// The packets of one UDP flow over time.
#[derive(Debug)]
pub struct UdpSource {
    schedule: Schedule,
    pattern: Pattern,
    random: Stream,
    /// When the next packet or burst is due, exactly: a rate is kept over the whole run.
    due: Fine,
    /// When the present period on ends, if periods are drawn.
    on_until: Fine,
}

/// What is sent while the flow is active.
#[derive(Debug)]
enum Pattern {
    /// A packet every so often, in periods drawn if there are any.
    Paced { interval: Fine, periods: Option<Periods> },
    /// Packets back to back, every so often.
    Bursts { packets: u32, period: Fine },
}

#[derive(Debug)]
struct Periods {
    on_ns: u64,
    off_ns: u64,
    distribution: Distribution,
    shape: f64,
    stationary: bool,
}

impl Periods {
    fn draw(&self, mean_ns: u64, random: &mut Stream) -> Fine {
        Fine::from_nanos(match self.distribution {
            Distribution::Constant => mean_ns,
            // A draw is at least 1 ns, so that each period lets time pass.
            Distribution::Exponential => random.exponential_ns(mean_ns).max(1),
            Distribution::Pareto => random.pareto_ns(mean_ns, self.shape).max(1),
        })
    }

    /// What is left of a time that is under way in a run that has lasted for ever (T62).
    fn rest(&self, mean_ns: u64, random: &mut Stream) -> Fine {
        Fine::from_nanos(match self.distribution {
            Distribution::Constant => random.below(mean_ns),
            // An exponential time has no memory.
            Distribution::Exponential => random.exponential_ns(mean_ns),
            Distribution::Pareto => random.pareto_rest_ns(mean_ns, self.shape),
        })
    }
}

impl UdpSource {
    /// The source of a flow as its scenario describes it; the scenario has been validated.
    pub fn new(flow: &Flow, schedule: Schedule, random: Stream) -> Self {
        let size = flow.size.map_or(60, |s| s.as_bytes());
        let pattern = match (flow.burst, flow.period) {
            (Some(packets), Some(period)) => {
                // A period of 0 would never let time pass.
                Pattern::Bursts { packets, period: Fine::from_nanos(period.as_nanos().max(1)) }
            }
            _ => Pattern::Paced {
                interval: flow.rate.unwrap_or_default().rate().time_for(size).max(Fine::from_raw(1)),
                periods: flow.on.zip(flow.off).map(|(on, off)| Periods {
                    on_ns: on.as_nanos().max(1),
                    off_ns: off.as_nanos(),
                    distribution: flow.distribution,
                    shape: flow.shape.unwrap_or(1.5),
                    stationary: flow.stationary,
                }),
            },
        };
        UdpSource { schedule, pattern, random, due: Fine::ZERO, on_until: Fine::ZERO }
    }

    /// When to call `fire` next.
    pub fn next(&self) -> Instant {
        match self.schedule.is_active() {
            true => self.due.ceil().min(self.schedule.next()),
            false => self.schedule.next(),
        }
    }

    /// The clock reached `now`: how many packets go out.
    pub fn fire(&mut self, now: Instant) -> u32 {
        if self.schedule.advance(now) && self.schedule.is_active() {
            // A new interval begins with a period on.
            self.due = Fine::from(now);
            self.on_until = match &self.pattern {
                Pattern::Paced { periods: Some(p), interval } if p.stationary => {
                    let phase =
                        Fine::from_raw(u128::from(self.random.below(1 << 32)) * (interval.raw() >> 32));
                    let on = self.random.below(p.on_ns + p.off_ns) < p.on_ns;
                    let mean = if on { p.on_ns } else { p.off_ns };
                    let rest = p.rest(mean, &mut self.random);
                    let next = match on {
                        true => Fine::ZERO,
                        false => p.draw(p.on_ns, &mut self.random),
                    };
                    let begins = if on { self.due } else { self.due + rest };
                    let until = if on { self.due + rest } else { begins + next };
                    self.due = begins + phase;
                    until
                }
                Pattern::Paced { periods: Some(p), .. } => self.due + p.draw(p.on_ns, &mut self.random),
                _ => Fine::from(Instant::NEVER),
            };
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
                Pattern::Paced { interval, periods } => {
                    packets += 1;
                    self.due += *interval;
                    if let Some(periods) = periods {
                        // Time on is what counts: what is left of an interval when a period
                        // ends is left of the next period's first.
                        while self.due >= self.on_until {
                            let left = self.due.saturating_sub(self.on_until);
                            let on = self.on_until + periods.draw(periods.off_ns, &mut self.random);
                            self.due = on + left;
                            self.on_until = on + periods.draw(periods.on_ns, &mut self.random);
                        }
                    }
                }
            }
        }
        packets
    }
}
