//! One direction of a link: what is on its way, and the egress of an unmanaged link.
//!
//! A managed egress is a [`weir_core::port::Port`]; the packets that leave it enter the
//! [`Pipe`] here. An unmanaged one is a FIFO of `queue` packets above a device ring of `ring`
//! that is refilled per packet, and needs no port: since nothing can overtake, the time at
//! which a packet leaves is known when it comes, so a hop costs one event instead of two. That
//! [`Fifo`] gives every packet the fate and the nanosecond that a port with ALTQ's FIFO would
//! is proved below, over random arrivals.

use crate::packet::PacketIndex;
use std::collections::VecDeque;
use weir_core::queue::Link;
use weir_core::units::{Duration, Fine, Instant};

/// A packet on its way along a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flight {
    /// When its last bit leaves the sender, rounded down.
    pub left: Instant,
    /// When its last bit is at the other end.
    pub arrives: Instant,
    /// The packet.
    pub parcel: Parcel,
}

/// What links read of a packet. It travels in their rings, which are read in order, so that a hop does not wait for
/// the packet's own row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parcel {
    /// Its row.
    pub packet: PacketIndex,
    /// Where the next entry of its route stands.
    pub route: u32,
    /// Its number in the run.
    pub number: u64,
    /// Bytes of its frame.
    pub len: u32,
}

/// The packets between an egress and the other end, in order.
#[derive(Debug, Default)]
pub struct Pipe {
    flights: VecDeque<Flight>,
}

impl Pipe {
    /// When the first of them arrives; `NEVER` if there is none.
    pub fn next_arrival(&self) -> Instant {
        self.flights.front().map_or(Instant::NEVER, |f| f.arrives)
    }
    /// Takes the first.
    pub fn pop(&mut self) -> Option<Flight> {
        self.flights.pop_front()
    }
    /// Adds one; true if it is the only one.
    pub fn push(&mut self, flight: Flight) -> bool {
        self.flights.push_back(flight);
        self.flights.len() == 1
    }
    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Flight> {
        self.flights.iter()
    }
}

/// When the last bit of a frame that leaves at `left` is at the other end. Never before the
/// first whole nanosecond at which it has left, where a host's event is.
pub fn arrival(left: Fine, delay: Duration) -> Instant {
    if delay.is_zero() { left.ceil() } else { left.floor() + delay }
}

/// The egress of an unmanaged link: tail drop, first come first served.
#[derive(Debug)]
pub struct Fifo {
    link: Link,
    delay: Duration,
    /// Packets that the queue and the ring hold together.
    room: usize,
    ring: usize,
    free_at: Fine,
    /// How many at the front of the pipe have left the egress.
    departed: usize,
    /// Most packets that the ring held.
    pub ring_max: usize,
}

impl Fifo {
    /// An egress with these parameters.
    pub fn new(link: Link, delay: Duration, queue: u32, ring: u32) -> Self {
        let (queue, ring) = (queue as usize, ring.max(1) as usize);
        Fifo { link, delay, room: queue + ring, ring, free_at: Fine::ZERO, departed: 0, ring_max: 0 }
    }

    /// A packet comes: when it leaves and arrives, or `None` if it is dropped.
    pub fn offer(&mut self, now: Instant, parcel: Parcel, pipe: &Pipe) -> Option<Flight> {
        // What leaves at this very instant still has its place: arrivals come before completions.
        while pipe.flights.get(self.departed).is_some_and(|f| f.left < now) {
            self.departed += 1;
        }
        let waiting = pipe.flights.len() - self.departed;
        if waiting >= self.room {
            return None;
        }
        self.ring_max = self.ring_max.max((waiting + 1).min(self.ring));
        self.free_at = self.free_at.max(Fine::from(now)) + self.link.time_for(parcel.len);
        let (left, arrives) = (self.free_at.floor(), arrival(self.free_at, self.delay));
        Some(Flight { left, arrives, parcel })
    }

    /// The first packet of the pipe was taken.
    pub fn arrived(&mut self) {
        self.departed = self.departed.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Stream;
    use weir_core::packet::{FrameRef, Meta};
    use weir_core::port::{Event, EventKind, Port, PortConfig, PortPlan, Refill, WireConfig};
    use weir_core::units::Rate;

    /// The same arrivals, at whole multiples of the service time too, into a `Fifo` and into a
    /// port with ALTQ's FIFO: the same packets are dropped, the others arrive at the same nanosecond.
    #[test]
    fn a_fifo_is_a_port_with_a_fifo() {
        let (mut lost, mut full) = (0, 0);
        for seed in weir_seed::seeds(400) {
            let mut random = Stream::new(seed, 0);
            let rates = [9_600, 1_000_000, 10_000_000, 999_999_937, 100_000_000_000];
            let rate = rates[random.below(5) as usize];
            let link = Link::new(Rate::from_bps(rate), random.below(40) as u32, 1514);
            let (queue, ring) = (1 + random.below(10) as u32, 1 + random.below(5) as u32);
            let delay = Duration::from_nanos(random.below(3) * random.below(5_000_000));
            let mut fifo = Fifo::new(link, delay, queue, ring);
            let wire = WireConfig::Link { ring, refill: Refill::Packet };
            let mut port = Port::new(PortConfig::new(link, wire), PortPlan::fifo(queue));
            let (mut pipe, mut by_fifo, mut by_port) = (Pipe::default(), Vec::new(), Vec::new());
            let mut dead = (Vec::new(), Vec::new());
            let full_ns = link.time_for(1514).ceil().as_nanos();
            let mut now = 0;
            for packet in 0..200 {
                // Often a whole packet time, so that arrivals and completions meet.
                now += match random.below(4) {
                    0 => 0,
                    1 => full_ns,
                    2 => full_ns * random.below(4),
                    _ => random.below(2 * full_ns),
                };
                let len = if random.below(3) == 0 { 60 + random.below(1455) as u32 } else { 1514 };
                let at = Instant::from_nanos(now);
                while pipe.next_arrival() < at {
                    by_fifo.extend(pipe.pop().map(|f| (f.parcel.packet, f.left, f.arrives)));
                    fifo.arrived();
                }
                let parcel = Parcel { packet, route: 0, number: 0, len };
                match fifo.offer(at, parcel, &pipe) {
                    Some(flight) => {
                        pipe.push(flight);
                    }
                    None => dead.0.push(packet),
                }
                let mut hear = |Event { at: left, meta, kind }: Event<'_>, at: Instant| match kind {
                    EventKind::Sent => {
                        by_port.push((meta.frame.0, left, arrival(left.into(), delay).max(at)));
                    }
                    EventKind::Dropped(_) => dead.1.push(meta.frame.0),
                    EventKind::Taken => {}
                };
                while port.next_wake_up() < at {
                    let due = port.next_wake_up();
                    port.advance(due, &mut |event| hear(event, due));
                }
                port.offer(at, Meta::new(len, at, FrameRef(packet)), &mut |event| hear(event, at));
            }
            while port.next_wake_up() != Instant::NEVER {
                let due = port.next_wake_up();
                port.advance(due, &mut |event| {
                    if let Event { at: left, meta, kind: EventKind::Sent } = event {
                        by_port.push((meta.frame.0, left, arrival(left.into(), delay).max(due)));
                    }
                });
            }
            while let Some(flight) = pipe.pop() {
                by_fifo.push((flight.parcel.packet, flight.left, flight.arrives));
            }
            assert_eq!(by_fifo, by_port, "seed {seed}");
            assert_eq!(dead.0, dead.1, "seed {seed}");
            lost += dead.0.len();
            full += usize::from(!dead.0.is_empty());
        }
        assert!(lost > 1000 && full > 100, "the test reaches the limit: {lost} drops in {full} runs");
    }
}
