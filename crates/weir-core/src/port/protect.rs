//! The built-in class of control packets: in front of the tree, up to a rate.
//!
//! Principle: a link whose address resolution, routing or keep-alives wait behind its users' packets
//! goes down under load. Their packets go first, strictly, as long as they conform to a token bucket.
//! What exceeds it goes where the filters send it, as without this class. So a flood of them takes
//! its rate from the other classes, and no more.

use super::{Account, Port};
use crate::meter::TokenBucket;
use crate::packet::{ControlSet, List, Meta, PacketId, PacketTable};
use crate::queue::Link;
use crate::units::{Instant, Rate};

/// The part of the link that control packets may take unless it is said: one twentieth.
const DEFAULT_PART: u64 = 20;
/// Full-size packets that may go at once.
const BURST_PACKETS: u64 = 4;

/// Which control packets go before the tree, and how much they may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Protect {
    /// Their rate on the link, overhead included.
    pub rate: Rate,
    /// What may come at once, overhead included.
    pub depth_bytes: u64,
    /// Their kinds. Others go where filters send them.
    pub kinds: ControlSet,
}

impl Protect {
    /// Every kind: `rate` of `link`, and four full-size packets at once.
    pub fn at(rate: Rate, link: &Link) -> Self {
        let depth_bytes = BURST_PACKETS * u64::from(link.mtu.saturating_add(link.overhead));
        Protect { rate, depth_bytes, kinds: ControlSet::ALL }
    }
    /// Every kind, and one twentieth of `link`.
    pub fn of(link: &Link) -> Self {
        Protect::at(Rate::from_bps(link.rate.as_bps() / DEFAULT_PART), link)
    }
}

/// Control packets that wait for the wire.
pub(super) struct Lane {
    bucket: Option<TokenBucket>,
    kinds: ControlSet,
    pub(super) queue: List,
}

impl Lane {
    pub(super) fn new(protect: Option<Protect>) -> Self {
        let bucket = protect.map(|p| TokenBucket::new(p.rate, p.depth_bytes));
        Lane { bucket, kinds: protect.map_or(ControlSet::NONE, |p| p.kinds), queue: List::new() }
    }
    /// Another rate, or none, from `now` on; what waits still leaves first.
    pub(super) fn reshape(&mut self, now: Instant, protect: Option<Protect>) {
        let asked = Lane::new(protect);
        self.kinds = asked.kinds;
        match (&mut self.bucket, protect) {
            (Some(bucket), Some(p)) => bucket.reshape(now, p.rate, p.depth_bytes),
            (bucket, _) => *bucket = asked.bucket,
        }
    }
    /// True if the packet conforms: then it has paid, and is to be queued here.
    pub(super) fn admits(&mut self, now: Instant, meta: &Meta, link: &Link) -> bool {
        let cost_bytes = meta.len.saturating_add(link.overhead);
        meta.control && self.bucket.as_mut().is_some_and(|bucket| bucket.take(now, cost_bytes))
    }
    /// Bytes of the packet that goes next, if there is one.
    pub(super) fn head(&self, table: &PacketTable) -> Option<u32> {
        if self.queue.is_empty() { None } else { self.queue.front(table).map(|meta| meta.len) }
    }
    pub(super) fn take(&mut self, table: &mut PacketTable) -> Option<PacketId> {
        if self.queue.is_empty() { None } else { self.queue.pop_front(table) }
    }
}

impl Port {
    /// Which control packets go first, so that the host is to look for them ([`ControlSet::holds`]).
    pub fn protects(&self) -> ControlSet {
        self.lane.kinds
    }
    /// The account of the control packets that went first.
    pub fn protected(&self) -> &Account {
        &self.ledger.control
    }
}

#[cfg(test)]
mod tests {
    use crate::packet::{ControlKind, ControlSet, FrameRef, Meta};
    use crate::port::{
        Conditioned, Event, EventKind, Port, PortConfig, PortPlan, Protect, Refill, WireConfig,
    };
    use crate::queue::{DropReason, Link};
    use crate::units::{Instant, Rate};
    use std::vec::Vec;

    const WIRES: [WireConfig; 2] =
        [WireConfig::Link { ring: 1, refill: Refill::Packet }, WireConfig::Regulator { depth_bytes: 1_500 }];

    /// 10 Mbit/s: 1250 bytes a millisecond.
    fn link() -> Link {
        Link::new(Rate::from_mbps(10), 0, 1250)
    }
    fn port(wire: WireConfig, protect: Option<Protect>) -> Port {
        let config = PortConfig { capacity: 400, ..PortConfig::new(link(), wire) };
        Port::new(config, PortPlan { protect, ..PortPlan::fifo(300) })
    }
    fn packet(frame: u32, len: u32) -> Conditioned {
        Meta::new(len, Instant::ZERO, FrameRef(frame)).into()
    }
    /// What left by `until`, and the drops.
    fn run(port: &mut Port, until: Instant, sent: &mut Vec<(u32, u64)>) {
        while port.next_wake_up() <= until {
            port.advance(port.next_wake_up(), &mut |Event { at, meta, kind }| {
                if kind == EventKind::Sent {
                    sent.push((meta.frame.0, at.as_nanos() / 1_000));
                }
            });
        }
    }

    /// Behind a full queue a control packet waits for the packet on the wire, and no other.
    /// Reversed: without protection it waits for all of them.
    #[test]
    fn control_packets_overtake_the_queue() {
        for wire in WIRES {
            for protect in [Some(Protect::of(&link())), None] {
                let (mut port, mut sent) = (port(wire, protect), Vec::new());
                for frame in 0..100 {
                    port.offer(Instant::ZERO, packet(frame, 1250), &mut |_| {});
                }
                port.offer(Instant::ZERO, packet(1_000, 50).protected(), &mut |event| {
                    if event.kind == EventKind::Sent && event.meta.frame.0 == 1_000 {
                        sent.push((1_000, 0));
                    }
                });
                port.check().unwrap();
                run(&mut port, Instant::from_millis(200), &mut sent);
                let at = sent.iter().find(|s| s.0 == 1_000).unwrap().1;
                match protect {
                    Some(_) => assert!(at <= 1_050, "{wire:?}: {at} us"),
                    None => assert!(at > 98_000, "{wire:?}: {at} us"),
                }
                let account = *port.protected();
                assert_eq!(account.sent_packets, u64::from(protect.is_some()));
                assert_eq!((port.total().offered_packets, port.total().sent_packets), (101, 101));
                assert_eq!((account.inside(), port.check()), (0, Ok(())));
            }
        }
    }

    /// A flood of control packets takes its rate and its depth; what exceeds them waits with the rest.
    #[test]
    fn a_flood_takes_no_more_than_its_rate() {
        for wire in WIRES {
            let (mut port, mut sent) = (port(wire, Some(Protect::of(&link()))), Vec::new());
            for ms in 0..1_000 {
                for n in 0..10 {
                    port.offer(Instant::from_millis(ms), packet(n, 125), &mut |_| {});
                    port.offer(Instant::from_millis(ms), packet(100 + n, 125).protected(), &mut |_| {});
                }
                run(&mut port, Instant::from_millis(ms), &mut sent);
            }
            let account = *port.protected();
            // In 999 ms a twentieth of 1,250,000 bytes a second, and four packets of 1,250.
            assert_eq!(account.offered_bytes / 125, (62_437 + 5_000) / 125, "{wire:?}");
            assert_eq!(account.dropped(), 0);
            let total = port.total();
            assert!(total.sent_bytes >= 1_240_000, "{wire:?}: the link idles: {}", total.sent_bytes);
            assert!(total.dropped_packets[DropReason::Tail as usize] > 0);
            port.check().unwrap();
        }
    }

    /// A swap and a fall back leave the control packets where they are; a plan without protection
    /// lets those that wait go first, and no more.
    #[test]
    fn waiting_control_packets_survive_a_swap() {
        let wire = WIRES[0];
        let (mut port, mut sent) = (port(wire, Some(Protect::of(&link()))), Vec::new());
        for frame in 0..10 {
            port.offer(Instant::ZERO, packet(frame, 1250), &mut |_| {});
        }
        port.offer(Instant::ZERO, packet(100, 50).protected(), &mut |_| {});
        port.fall_back(Instant::ZERO, &mut |_| {});
        port.check().unwrap();
        port.swap(Instant::ZERO, PortPlan::fifo(300), &mut |_| {});
        port.offer(Instant::ZERO, packet(101, 50).protected(), &mut |_| {});
        port.check().unwrap();
        run(&mut port, Instant::from_millis(20), &mut sent);
        let order: Vec<u32> = sent.iter().map(|s| s.0).collect();
        assert_eq!(order, [0, 100, 1, 2, 3, 4, 5, 6, 7, 8, 9, 101]);
        assert_eq!((port.protected().sent_packets, port.total().sent_packets), (1, 12));
        port.check().unwrap();
    }

    /// The kinds that go first are those of the plan, also of the next one.
    #[test]
    fn the_kinds_are_those_of_the_plan() {
        let some = ControlSet::NONE.with(ControlKind::Arp).others();
        let less = Protect { kinds: some, ..Protect::of(&link()) };
        let mut port = port(WIRES[0], Some(less));
        for (protect, kinds) in [
            (Some(Protect::of(&link())), ControlSet::ALL),
            (Some(less), some),
            (None, ControlSet::NONE),
            (Some(less), some),
        ] {
            port.swap(Instant::ZERO, PortPlan { protect, ..PortPlan::fifo(300) }, &mut |_| {});
            assert_eq!(port.protects(), kinds);
        }
    }

    /// What the device refuses is a control packet that was dropped, and no class's.
    #[test]
    fn a_refused_control_packet_is_counted_as_dropped() {
        let (mut port, mut sent) = (port(WIRES[0], Some(Protect::of(&link()))), Vec::new());
        port.offer(Instant::ZERO, packet(1, 50).protected(), &mut |_| {});
        run(&mut port, Instant::from_millis(1), &mut sent);
        port.refused(Port::CONTROL, 50, DropReason::Toolong);
        assert_eq!((port.protected().sent_packets, port.protected().dropped()), (0, 1));
        assert_eq!((port.total().sent_bytes, port.total().dropped_bytes), (0, 50));
        assert_eq!(port.account(0).unwrap().dropped(), 0);
    }

    /// A control packet on the wire is in no account of a class that a swap takes away. One that waits
    /// survives a flush of the tree, and still leaves.
    #[test]
    fn a_swap_and_a_flush_leave_the_books_of_control_packets_alone() {
        for wire in WIRES {
            let (mut port, mut sent) = (port(wire, Some(Protect::of(&link()))), Vec::new());
            for frame in 0..3 {
                port.offer(Instant::ZERO, packet(frame, 1250).protected(), &mut |_| {});
            }
            let mut plan = PortPlan { protect: Some(Protect::of(&link())), ..PortPlan::fifo(300) };
            plan.tree.leaves[0].name = "another".into();
            port.swap(Instant::ZERO, plan, &mut |_| {});
            port.check().unwrap();
            port.flush(Instant::ZERO, DropReason::Flush, &mut |_| {});
            run(&mut port, Instant::from_millis(20), &mut sent);
            assert_eq!((port.protected().sent_packets, port.total().inside()), (3, 0), "{wire:?}");
            assert_eq!(port.reassigned(), 0);
            port.check().unwrap();
        }
    }

    /// No room: the control packet is counted as dropped, and nowhere else.
    #[test]
    fn a_full_table_refuses_control_packets_too() {
        let (mut port, mut dropped) = (port(WIRES[0], Some(Protect::of(&link()))), 0);
        for frame in 0..300 {
            port.offer(Instant::ZERO, packet(frame, 1250), &mut |_| {});
        }
        for frame in 0..200 {
            port.offer(Instant::ZERO, packet(frame, 20).protected(), &mut |event| {
                dropped += u64::from(event.kind == EventKind::Dropped(DropReason::Nobuf));
            });
        }
        assert!(dropped > 0);
        assert_eq!(port.protected().dropped(), dropped);
        port.check().unwrap();
    }
}
