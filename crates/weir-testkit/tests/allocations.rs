//! Nothing is allocated per packet: every discipline, over leaves, pairs and random trees.
//!
//! Alone in its binary, whose allocator counts.

use weir_core::Random;
use weir_core::packet::{FrameRef, List, Meta, PacketId, PacketState};
use weir_core::queue::Value;
use weir_core::queue::{Cx, Discipline, Link, Next};
use weir_core::sched::Registry;
use weir_core::sched::{ClassConfig, Node};
use weir_core::units::{Duration, Instant, Rate};
use weir_sys::allocations::{Counting, live_bytes_on_this_thread, on_this_thread};
use weir_testkit::generate::{Below, Generator};
use weir_testkit::hostile;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const PACKETS: u32 = 300;
const CALLS: u32 = 5_000;

/// A discipline, and the packets that it has not got: all memory is taken here.
struct Bed {
    cx: Cx,
    discipline: Box<dyn Discipline>,
    leaves: u64,
    spare: List,
    random: Random,
    sent: u64,
}

impl Bed {
    fn new(discipline: Box<dyn Discipline>, leaves: usize, link: Link, seed: u64) -> Self {
        let mut cx = Cx::new(PACKETS, link, seed);
        let mut spare = List::new();
        for n in 0..PACKETS {
            let id = cx.packets.insert(Meta::new(64, Instant::ZERO, FrameRef(n))).expect("there is room");
            spare.push_back(&mut cx.packets, id);
        }
        Bed { cx, discipline, leaves: leaves as u64, spare, random: Random::new(seed), sent: 0 }
    }
    fn offer(&mut self) {
        let Some(id) = self.spare.pop_front(&mut self.cx.packets) else { return };
        let flow = self.random.below(24) as u32;
        let row = self.cx.packets.get_mut(&id);
        (row.arrival, row.state) = (self.cx.now, PacketState::Queued);
        row.len = 20 + self.random.below(1_495) as u32;
        row.leaf = self.random.below(self.leaves) as u32;
        row.flow = flow.wrapping_mul(0x9e37_79b9);
        (row.src_hash, row.dst_hash) = (row.flow, row.flow.rotate_left(16));
        (row.src_port, row.dst_port, row.protocol) = (flow as u16, 80, 6);
        (row.ecn, row.dscp) = ((flow % 4) as u8, self.random.below(64) as u8);
        let _ = self.discipline.enqueue(&mut self.cx, id);
    }
    fn take(&mut self) {
        match self.discipline.dequeue(&mut self.cx) {
            Next::Packet(id) => self.sent(id),
            Next::At(at) if at.since(self.cx.now) < Duration::from_secs(3_600) => self.cx.now = at,
            Next::At(_) | Next::Held(_) | Next::Idle => self.cx.now += Duration::from_nanos(1_000),
        }
    }
    fn sent(&mut self, id: PacketId) {
        let now = self.cx.now;
        self.discipline.on_sent(&mut self.cx, &id, now);
        self.sent += 1;
        self.spare.push_back(&mut self.cx.packets, id);
    }
    fn step(&mut self) {
        match self.random.below(16) {
            0..=7 => self.offer(),
            8..=13 => self.take(),
            _ => {
                let packet = self.cx.link.time_for(1_000).ceil().as_nanos();
                self.cx.now += Duration::from_nanos(self.random.below(packet));
            }
        }
        while let Some((id, _)) = self.cx.next_dropped() {
            self.spare.push_back(&mut self.cx.packets, id);
        }
    }
}

/// Allocations of some thousand calls, after as many to warm up; and packets sent.
fn allocations(registry: &Registry, name: &str, below: Below<'_>, seed: u64) -> (u64, u64) {
    let link = Link::new(Rate::from_mbps(10), 24, 1_514);
    let (node, tree) =
        Generator::new(registry, link, seed).tree(name, below).unwrap_or_else(|e| panic!("{name}: {e}"));
    let mut bed = Bed::new(tree.discipline, tree.leaves.len(), link, seed);
    (0..CALLS).for_each(|_| bed.step());
    let before = on_this_thread();
    (0..CALLS).for_each(|_| bed.step());
    let count = on_this_thread() - before;
    assert_eq!(count, 0, "{name}, seed {seed}: {count} allocations in {CALLS} calls; {node:?}");
    (count, bed.sent)
}

#[test]
fn no_discipline_allocates_per_packet() {
    let before = on_this_thread();
    std::hint::black_box(Box::new(1));
    assert_eq!(on_this_thread() - before, 1, "the allocator must count");

    let mut registry = Registry::builtin();
    hostile::register(&mut registry);
    let names: Vec<&str> = registry.iter().filter(|e| e.build.is_some()).map(|e| e.name).collect();
    for name in &names {
        let mut sent = 0;
        for seed in weir_seed::seeds(20) {
            sent += allocations(&registry, name, Below::Leaves, seed).1;
            allocations(&registry, name, Below::Anything(2), seed);
        }
        assert!(sent > 100 || name.starts_with("test-"), "{name} sent {sent} packets");
    }
}

/// What is said of a tree that was not built is what it takes when it is: of every discipline, of random trees, and of
/// flow queues by the thousand, few and many in each discipline. Reversed: without the flow queues it would be less.
#[test]
fn a_footprint_is_what_the_tree_takes() {
    let registry = Registry::builtin();
    let link = Link::new(Rate::from_mbps(10), 24, 1_514);
    let mut of_queues = 0;
    let mut compare = |node: &Node| {
        let said = registry.measure(node, link, &live_bytes_on_this_thread).expect("it builds").footprint;
        let before = live_bytes_on_this_thread();
        let tree = registry.build(node, link).expect("it builds");
        let takes = live_bytes_on_this_thread() - before;
        drop(tree);
        assert_eq!((said.classes + said.flow_queues) as i64, takes, "{said:?} of {node:?}");
        of_queues += said.flow_queues;
    };
    let names: Vec<&str> = registry.iter().filter(|e| e.build.is_some()).map(|e| e.name).collect();
    for name in names {
        for seed in weir_seed::seeds(4) {
            for below in [Below::Leaves, Below::Anything(2)] {
                let made = Generator::new(&registry, link, seed).tree(name, below);
                compare(&made.unwrap_or_else(|e| panic!("{name}: {e}")).0);
            }
        }
    }
    for (flows, subscribers) in [(1u64, 50), (64, 50), (65, 20), (1_024, 5)] {
        let mut node = Node { discipline: "hfsc".into(), ..Node::default() };
        for n in 0..subscribers {
            let flows = Value::Count(if n % 3 == 0 { flows * 2 } else { flows });
            let queue = Node {
                discipline: "fqcodel".into(),
                params: weir_core::queue::Params::new().with("flows", flows),
                classes: Vec::new(),
            };
            let share = Value::Rate(Rate::from_bps(10_000));
            node.classes.push(ClassConfig {
                name: format!("c{n}"),
                params: weir_core::queue::Params::new().with("bandwidth", share),
                queue: Some(queue),
                ..ClassConfig::default()
            });
        }
        compare(&node);
    }
    assert!(of_queues > 100_000, "reversed: {of_queues}");
}
