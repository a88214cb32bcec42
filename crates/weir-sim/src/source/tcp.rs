//! A TCP connection and the application on top of it: greedy, in chunks, or timed.

use super::Schedule;
use crate::tcp::{Config, Endpoint};
use weir_core::units::{Duration, Instant};

/// Both ends of a connection; side 0 sends, side 1 receives.
#[derive(Debug)]
pub struct TcpFlow {
    /// The two ends.
    pub ends: [Endpoint; 2],
    /// Bytes of the IP header.
    pub ip_header: u32,
    schedule: Schedule,
    offer: Offer,
    /// Measurements of the round-trip time that the report already has.
    pub rtt_reported: u64,
}

/// What the application offers while it is active.
#[derive(Clone, Copy, Debug)]
enum Offer {
    /// There is always more.
    Greedy,
    /// So many bytes, and again some time after they were acknowledged.
    Chunks { octets: u64, pause: Option<Duration>, state: Chunk },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Chunk {
    /// The next chunk may be offered then.
    Due(Instant),
    /// A chunk was offered and is not yet acknowledged.
    Busy,
    /// There will be no other.
    Over,
}

impl Chunk {
    fn is_due(self, now: Instant) -> bool {
        matches!(self, Chunk::Due(at) if at <= now)
    }
}

impl TcpFlow {
    /// A connection whose application is greedy, or offers `chunk` = (octets, pause).
    pub fn new(
        config: &Config,
        ip_header: u32,
        schedule: Schedule,
        chunk: Option<(u64, Option<Duration>)>,
    ) -> Self {
        let offer = match chunk {
            None => Offer::Greedy,
            Some((octets, pause)) => Offer::Chunks { octets, pause, state: Chunk::Due(Instant::ZERO) },
        };
        let ends = [Endpoint::new(config), Endpoint::new(config)];
        TcpFlow { ends, ip_header, schedule, offer, rtt_reported: 0 }
    }

    /// When the side has something to do though nothing arrives.
    pub fn next(&self, side: usize) -> Instant {
        let end = self.ends[side].poll_at();
        if side == 1 {
            return end;
        }
        let chunk = match self.offer {
            Offer::Chunks { state: Chunk::Due(at), .. } if self.schedule.is_active() => at,
            _ => Instant::NEVER,
        };
        end.min(chunk).min(self.schedule.next())
    }

    /// The clock reached `now`.
    pub fn on_timer(&mut self, side: usize, now: Instant) {
        if side == 0 {
            self.run_application(now);
        }
        if self.ends[side].poll_at() <= now {
            self.ends[side].on_timer(now);
        }
    }

    fn run_application(&mut self, now: Instant) {
        let changed = self.schedule.advance(now);
        let active = self.schedule.is_active();
        let sender = &mut self.ends[0].sender;
        match &mut self.offer {
            Offer::Greedy if changed && active => sender.write(u64::MAX),
            Offer::Greedy if changed => sender.stop_writing(),
            Offer::Chunks { octets, state, .. } if active && state.is_due(now) => {
                sender.write(*octets);
                *state = Chunk::Busy;
            }
            _ => {}
        }
        if active {
            self.ends[0].open();
        }
    }

    /// Side 0 heard an acknowledgement: perhaps a chunk is through.
    pub fn on_acknowledged(&mut self, now: Instant) {
        if let Offer::Chunks { pause, state, .. } = &mut self.offer
            && *state == Chunk::Busy
            && self.ends[0].sender.is_done()
        {
            *state = pause.map_or(Chunk::Over, |pause| Chunk::Due(now + pause));
            if *state == Chunk::Due(now) {
                self.run_application(now);
            }
        }
    }
}
