//! Parts of a direction that hand frames to each other.

use super::*;
use crate::crew::Member;
use weir_conf::read;
use weir_core::port::{PortConfig, WireConfig};
use weir_core::sched::Registry;
use weir_core::spread::{Ask, Lend, Loan};
use weir_io::memory::Memory;

/// Says when its part has gone.
struct Lends(std::sync::mpsc::Sender<()>);
impl Lend for Lends {
    fn ask(&mut self, now: Instant, ask: Ask) -> Loan {
        Loan { bytes: ask.bytes, at: now, virtual_time: ask.virtual_time }
    }
    fn give_back(&mut self, _: Instant, _: u64) {}
    fn part_from(&mut self, _: Instant) {
        let _ = self.0.send(());
    }
}

/// Three parts with a class each, in the order of these shares. `b` has the datagrams to port 6002.
fn plans(shares: [u32; 3], gone: &std::sync::mpsc::Sender<()>) -> Vec<PortPlan> {
    let [a, b, c] = shares;
    let text = format!(
        "interface em0 bandwidth 100M hfsc attach bridge em1 workers 3\nclass hfsc em0 a root pshare {a}\n\
         class hfsc em0 b root pshare {b}\nclass hfsc em0 c root pshare {c} default\nfilter em0 b 0 6002 0 0 udp\n"
    );
    let registry = Registry::builtin();
    let plan = read("a.altq", &text, &registry).into_result().unwrap();
    let view = plan.interface("em0").unwrap();
    let link = view.link(1_514);
    let lend = || Box::new(Lends(gone.clone())) as Box<dyn Lend>;
    let all = view.build_parts(&registry, link, |loans| (0..loans.parts).map(|_| [lend(), lend()]).collect());
    all.unwrap().into_iter().map(|built| built.port_plan(link)).collect()
}

fn parts(plans: Vec<PortPlan>) -> Vec<Direction> {
    let hands = Hand::all(&Member::all(plans.len()).unwrap());
    let part = |(plan, hand): (PortPlan, Hand)| {
        let link = plan.regulated.as_ref().map(|(link, _)| *link).unwrap();
        let port = Port::new(PortConfig::new(link, WireConfig::Open), plan);
        let mut part = Direction::new(0, Some(port), PoolSize { frames: 512, tails: 1 }, Delay::default());
        part.is_part(hand);
        part
    };
    plans.into_iter().zip(hands).map(part).collect()
}

/// A datagram to port 6002.
fn datagram() -> Vec<u8> {
    let mut frame = vec![0; 14 + 20 + 8 + 60];
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14] = 0x45;
    frame[16..18].copy_from_slice(&88u16.to_be_bytes());
    (frame[22], frame[23]) = (64, 17);
    frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    frame[34..38].copy_from_slice(&[0x13, 0x88, 0x17, 0x72]);
    frame[38..40].copy_from_slice(&68u16.to_be_bytes());
    frame
}

/// Which part has class `b`, and how many packets it was offered in each part.
fn offered(parts: &[Direction]) -> Vec<(bool, u64)> {
    let of = |part: &Direction| {
        let port = part.port().unwrap();
        (port.leaves().iter().any(|leaf| &*leaf.name == "b"), port.total().offered_packets)
    };
    parts.iter().map(of).collect()
}

/// Frames stand in a ring while an apply gives their class to another worker: they come to that one.
#[test]
fn what_stands_in_a_ring_during_an_apply_goes_to_its_class() {
    let now = Instant::from_millis(1);
    let (gone, _heard) = std::sync::mpsc::channel();
    let mut parts = parts(plans([40, 30, 20], &gone));
    let had = offered(&parts).iter().position(|&(has, _)| has).unwrap();
    let receiver = (had + 1) % 3;
    let mut from = Memory::new();
    from.arriving.extend((0..9).map(|_| datagram()));
    parts[receiver].receive(now, &mut from, None);
    assert_eq!(parts[receiver].handed(), (9, 0));
    let new = plans([40, 20, 30], &gone);
    for (part, plan) in parts.iter_mut().zip(new) {
        let link = plan.regulated.as_ref().map(|(link, _)| *link).unwrap();
        let port = Port::new(PortConfig::new(link, WireConfig::Open), plan);
        part.change(now, Change::Port(Some(Box::new(port))));
    }
    let has = offered(&parts).iter().position(|&(has, _)| has).unwrap();
    assert_ne!(has, had);
    assert!(!parts[had].take_handed(now));
    assert_eq!(parts[had].handed(), (9, 0), "handed on");
    parts[has].take_handed(now);
    assert!(offered(&parts).iter().all(|&(has, packets)| packets == if has { 9 } else { 0 }));
}

/// More than a batch stands in the rings of a worker that hung: none of it is sent.
#[test]
fn all_that_was_handed_over_is_thrown_away() {
    let now = Instant::from_millis(1);
    let (gone, _heard) = std::sync::mpsc::channel();
    let mut parts = parts(plans([40, 30, 20], &gone));
    let had = offered(&parts).iter().position(|&(has, _)| has).unwrap();
    for receiver in (0..3).filter(|&receiver| receiver != had) {
        let mut from = Memory::new();
        from.arriving.extend((0..3 * BATCH).map(|_| datagram()));
        while parts[receiver].receive(now, &mut from, None) {}
        assert_eq!(parts[receiver].handed(), (3 * BATCH as u64, 0));
    }
    let mut from = Memory::new();
    from.arriving.extend((0..5).map(|_| datagram()));
    assert_eq!(parts[had].discard(&mut from), 6 * BATCH as u64 + 5);
    assert!(!parts[had].is_handed_some());
}

/// A part that forwards plainly says so to the link, once; one whose port is taken away in order does not.
#[test]
fn who_forwards_plainly_parts_from_the_link() {
    let now = Instant::from_millis(1);
    let (gone, heard) = std::sync::mpsc::channel();
    let mut parts = parts(plans([40, 30, 20], &gone));
    parts[0].change(now, Change::Port(None));
    assert_eq!(heard.try_iter().count(), 0);
    parts[1].forward_plainly(now);
    parts[1].forward_plainly(now);
    assert_eq!(heard.try_iter().count(), 1);
}
