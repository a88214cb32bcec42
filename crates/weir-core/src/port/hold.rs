//! What stands below the port takes nothing more: a device that is slower than the link it was said to be.
//!
//! Principle: packets wait where classes count. While the host holds the port, the tree is not asked, so what
//! comes waits in its class. The tree's clock goes on, unlike where a host is late (`clock.rs`): packets do
//! wait, and an AQM has to see for how long. What a held wire misses is bounded by its bucket as always.

use super::{Event, Port};
use crate::units::Instant;

impl Port {
    /// Nothing leaves the tree from now on, or what may leave does so now. Arrivals are taken in any case.
    /// True if that is a change.
    pub fn hold(&mut self, now: Instant, held: bool, host: &mut impl FnMut(Event<'_>)) -> bool {
        if self.held == held {
            return false;
        }
        self.run(now, false, host);
        self.held = held;
        if !held {
            self.fill(host);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::{PortConfig, PortPlan, Refill, WireConfig};
    use super::*;
    use crate::packet::{FrameRef, Meta};
    use crate::port::EventKind;
    use crate::queue::Link;
    use crate::units::Rate;

    /// On every wire: while it is held nothing leaves, a timer that was set goes off for nothing, and
    /// afterwards all leaves in order, with no more credit than the bucket holds.
    #[test]
    fn a_held_port_keeps_its_packets() {
        let link = Link::new(Rate::from_mbps(10), 0, 1500);
        for wire in [
            WireConfig::Link { ring: 1, refill: Refill::Packet },
            WireConfig::Regulator { depth_bytes: 2_500 },
            WireConfig::Open,
        ] {
            let mut port = Port::new(PortConfig::new(link, wire), PortPlan::fifo(50));
            let mut sent = std::vec::Vec::new();
            let mut host = |event: Event<'_>| {
                if event.kind == EventKind::Sent {
                    sent.push((event.meta.frame.0, event.at.as_nanos() / 1_000));
                }
            };
            let packet = |frame| Meta::new(1_250, Instant::ZERO, FrameRef(frame));
            for frame in 0..4 {
                port.offer(Instant::ZERO, packet(frame), &mut host);
            }
            let now = Instant::from_micros(1_500);
            assert!(port.hold(now, true, &mut host) && !port.hold(now, true, &mut host));
            for frame in 4..10 {
                port.offer(now, packet(frame), &mut host);
            }
            port.advance(Instant::from_millis(90), &mut host);
            assert_eq!(port.next_wake_up(), Instant::NEVER, "{wire:?}");
            assert_eq!(port.check(), Ok(()));
            let kept = port.backlog().packets;
            assert!(port.hold(Instant::from_millis(100), false, &mut host));
            while port.next_wake_up() != Instant::NEVER {
                port.advance(port.next_wake_up(), &mut host);
            }
            assert!(sent.iter().map(|s| s.0).eq(0..10), "{wire:?}: {sent:?}");
            let before = sent.iter().filter(|s| s.1 < 100_000).count() as u64;
            assert_eq!(before + kept, 10, "{wire:?}: {sent:?}");
            let at_once = sent.iter().filter(|s| s.1 == 100_000).count();
            let last = sent.last().unwrap().1;
            match wire {
                WireConfig::Link { .. } => assert_eq!((before, at_once, last), (2, 0, 108_000)),
                WireConfig::Regulator { .. } => assert_eq!((before, at_once, last), (3, 2, 105_000)),
                WireConfig::Open => assert_eq!((before, at_once), (4, 6)),
            }
        }
    }
}
