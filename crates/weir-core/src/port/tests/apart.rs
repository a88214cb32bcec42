//! A port that runs one part of a tree: what it owes the link besides what its part borrows.

use super::*;
use crate::spread::{Apart, Ask, Lend, Loan, elsewhere, part_of};
use alloc::sync::Arc;
use std::sync::Mutex;

/// What the link was told: bytes that left before all others, and whether the part has gone.
#[derive(Default)]
struct Told {
    charged: u64,
    parted: bool,
}
struct Door(Arc<Mutex<Told>>);
impl Lend for Door {
    fn ask(&mut self, now: Instant, ask: Ask) -> Loan {
        Loan { bytes: ask.bytes, at: now, virtual_time: ask.virtual_time }
    }
    fn give_back(&mut self, _: Instant, _: u64) {}
    fn charge(&mut self, _: Instant, bytes: u64) {
        self.0.lock().unwrap().charged += bytes;
    }
    fn part_from(&mut self, _: Instant) {
        self.0.lock().unwrap().parted = true;
    }
}

/// One of two parts, whose packets go to the other one unless a filter says otherwise.
fn apart(tree: Tree, protect: Option<Protect>) -> (Port, Arc<Mutex<Told>>) {
    let told = Arc::new(Mutex::new(Told::default()));
    let lend = Box::new(Door(told.clone()));
    let apart = Some(Apart { otherwise: Some(elsewhere(1)), parts: 2, lend });
    let plan = PortPlan { apart, protect, ..PortPlan::new(tree, Classifier::empty()) };
    (Port::new(PortConfig::new(link(), WireConfig::Open), plan), told)
}

#[test]
fn what_no_filter_matches_belongs_to_the_part_of_the_default_class() {
    let (mut port, _) = apart(fifo(50), None);
    let key = Key { family: Family::V4, ..Key::default() };
    assert_eq!((port.leaf_of(&key), port.otherwise()), (elsewhere(1), elsewhere(1)));
    assert_eq!((part_of(elsewhere(1)), part_of(elsewhere(0)), part_of(7)), (Some(1), Some(0), None));
    assert!([Port::CONTROL, u32::MAX].iter().all(|&leaf| part_of(leaf).is_none()));
    // One that is offered all the same waits in its default class.
    let mut seen = Seen::default();
    port.receive(at(1), 100, FrameRef(3), &key, &mut seen.host());
    assert_eq!((seen.sent, port.account(0).unwrap().sent_packets), (vec![(3, 1_000)], 1));
    // Whole again it keeps them.
    port.swap(at(2), PortPlan::new(fifo(50), Classifier::empty()), &mut |_| {});
    assert_eq!(port.leaf_of(&key), 0);
}

/// The link hears of control packets, and of no others.
#[test]
fn control_packets_are_paid_for() {
    let (mut port, told) = apart(fifo(50), Some(Protect::of(&link())));
    let mut seen = Seen::default();
    port.offer(at(1), packet(0, 400), &mut seen.host());
    assert_eq!(told.lock().unwrap().charged, 0);
    port.offer(at(2), Conditioned::from(packet(1, 100)).protected(), &mut seen.host());
    assert_eq!((told.lock().unwrap().charged, seen.sent.len()), (100, 2));
}

/// A tree that breaks goes on as a FIFO with half of the link: 1500 bytes in 2.4 ms, after two packets at once.
#[test]
fn a_part_that_breaks_keeps_to_its_part_of_the_rate() {
    let says = |child: &mut Child, cx: &mut Cx| if child.is_empty() { Next::Idle } else { Next::At(cx.now) };
    let leaves = vec![LeafInfo { name: "all".to_string(), terminal: true, limit: 50 }];
    let says = Box::new(Serves(Child::leaf(Leaf::tail_drop(50)), says));
    let (mut port, told) = apart(Tree { discipline: says, leaves, default_leaf: Some(0) }, None);
    let mut seen = Seen::default();
    for frame in 0..5 {
        port.offer(at(1), packet(frame, 1_500), &mut seen.host());
    }
    assert!(port.is_broken().is_some() && told.lock().unwrap().parted);
    drain(&mut port, &mut seen);
    let sent: Vec<u64> = seen.sent.iter().map(|&(_, ns)| ns / 1_000).collect();
    assert_eq!(sent, [1, 1, 2_401, 4_801, 7_201]);
}

/// Its clock leaves out nothing: what the link could send meanwhile is in the bucket of all parts.
#[test]
fn a_late_part_loses_no_time() {
    for is_apart in [true, false] {
        let mut told = None;
        let says = move |child: &mut Child, cx: &mut Cx| {
            let due = *told.get_or_insert(cx.now + Duration::from_millis(1));
            if child.is_empty() {
                Next::Idle
            } else if cx.now < due {
                Next::At(due)
            } else {
                child.take(cx)
            }
        };
        let leaves = vec![LeafInfo { name: "all".to_string(), terminal: true, limit: 50 }];
        let says = Box::new(Serves(Child::leaf(Leaf::tail_drop(50)), says));
        let tree = Tree { discipline: says, leaves, default_leaf: Some(0) };
        let config = PortConfig::new(link(), WireConfig::Open);
        let mut port = if is_apart { apart(tree, None).0 } else { open(config, tree) };
        port.offer(at(1), packet(0, 100), &mut |_| {});
        port.advance(at(50_000), &mut |_| {});
        assert_eq!(port.lost_time().is_zero(), is_apart);
    }
}
