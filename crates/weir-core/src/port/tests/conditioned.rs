//! Conditioners: marks, policing, and what the ledger says of them.

use super::swaps::two_classes;
use super::*;
use crate::classify::{Field, Filter};
use crate::meter::{Action, Conditioners, Meter};
use crate::packet::{Dscp, Family, Key};

fn key(dst_port: u16, tos: u8) -> Key {
    Key { family: Family::V4, src: 1, dst: 2, protocol: 17, dst_port, tos, ..Key::default() }
}
fn to_port(port: u128, class: u32) -> Filter {
    Filter::new(Family::V4, class, 1).exactly(Field::DstPort, port)
}
/// Port 1 is marked EF as long as it keeps 8 kbit/s and 500 bytes, and policed beyond.
fn edge() -> Conditioners {
    let meter = Meter::TokenBucket { rate: Rate::from_bps(8_000), depth: 500 };
    let action = Action::Meter { meter, actions: std::vec![Action::Mark(Dscp::EF), Action::Drop] };
    let conditioners = Conditioners::new(Classifier::compile([to_port(1, 0)]), &[("edge".into(), action)]);
    conditioners.expect("a right action")
}
fn port_of_two(conditioners: Option<Conditioners>) -> Port {
    let config = PortConfig::new(link(), WireConfig::Open);
    let by_mark = Filter::new(Family::V4, 1, 1).dscp(Dscp::EF);
    let plan = PortPlan::new(two_classes(["a", "b"]), Classifier::compile([by_mark]));
    Port::new(config, PortPlan { conditioners, ..plan })
}

/// The class filters see the mark; the ECN bits stay.
#[test]
fn a_mark_decides_the_class() {
    for (conditioners, leaf, dscp) in [(Some(edge()), 1, 46), (None, 0, 10)] {
        let mut port = port_of_two(conditioners);
        let meta = port.condition(Instant::ZERO, 100, FrameRef(0), &key(1, 10 << 2 | 2));
        assert_eq!((meta.leaf(), meta.meta().dscp, meta.meta().ecn), (leaf, dscp, 2));
        let other = port.condition(Instant::ZERO, 100, FrameRef(0), &key(2, 0));
        assert_eq!((other.leaf(), other.meta().dscp), (0, 0), "what no filter matches is left alone");
    }
}

/// What a filter asks of the TOS byte is what the packet leaves with: the DSCP of the mark, and ECN bits
/// as they came.
#[test]
fn a_filter_sees_the_ecn_bits_beside_the_mark() {
    for ecn in 0..4u8 {
        let config = PortConfig::new(link(), WireConfig::Open);
        let tos = u128::from(46u8 << 2 | ecn);
        let by_tos = Filter::new(Family::V4, 1, 1).exactly(Field::Tos, tos);
        let plan = PortPlan::new(two_classes(["a", "b"]), Classifier::compile([by_tos]));
        let mut port = Port::new(config, PortPlan { conditioners: Some(edge()), ..plan });
        for came in 0..4u8 {
            let meta = port.condition(Instant::ZERO, 10, FrameRef(0), &key(1, came));
            assert_eq!(meta.leaf(), u32::from(came == ecn), "a filter for {ecn}, a packet with {came}");
        }
    }
}

#[test]
fn policed_packets_are_in_the_ledger() {
    let mut port = port_of_two(Some(edge()));
    let (mut sent, mut policed, mut refused) = (0, 0, 0);
    for n in 0..20 {
        let mut hear = |Event { meta, kind, .. }: Event<'_>| match kind {
            EventKind::Sent => {
                assert_eq!((meta.dscp, meta.leaf), (46, 1));
                sent += 1;
            }
            EventKind::Dropped(reason) => {
                assert_eq!((reason, meta.frame.0), (DropReason::Policed, n));
                policed += 1;
            }
            EventKind::Taken => {}
        };
        let at = Instant::from_millis(u64::from(n) * 10);
        let verdict = port.receive(at, 100, FrameRef(n), &key(1, 0), &mut hear);
        refused += u32::from(verdict == Verdict::Dropped);
        port.check().expect("the port is whole");
    }
    // 500 bytes at once, then a byte a millisecond: of 2000 bytes in 190 ms, 600 pass.
    assert_eq!((sent, policed, refused), (6, 14, 14));
    let total = port.total();
    assert_eq!((total.offered_packets, total.sent_packets, total.inside()), (20, 6, 0));
    assert_eq!(total.dropped_packets[DropReason::Policed as usize], 14);
    let unmarked = port.account(0).expect("leaf a");
    assert_eq!(unmarked.dropped_packets[DropReason::Policed as usize], 14, "they were not marked");
}
