//! JoBS against the exact model of its absolute promises, arrival by arrival.

use std::collections::VecDeque;
use weir_core::Random;
use weir_core::packet::{FrameRef, Meta};
use weir_core::queue::{Cx, Discipline, Link, Next, Params, Value};
use weir_core::sched::{ClassConfig, Node, Registry};
use weir_core::units::{Duration, Fraction, Instant, Rate};
use weir_testkit::model::{PromisedClass, Ratio, least_shares, may_lose};
use weir_testkit::values_of;

const BPS: u64 = 10_000_000;
const BYTES: u32 = 500;

/// Four classes: a delay bound with a loss bound; a least rate; a delay bound; nothing.
fn promises() -> [PromisedClass; 4] {
    let none = PromisedClass::default();
    [
        PromisedClass { delay_ns: Some(12_000_000), loss: Some((1 << 32) / 100), ..none },
        PromisedClass { rate_bps: 3_000_000, ..none },
        PromisedClass { delay_ns: Some(40_000_000), rate_bps: 500_000, ..none },
        none,
    ]
}

fn jobs() -> Node {
    let class = |(index, promised): (usize, &PromisedClass)| {
        let mut params = Params::new().with("priority", Value::Count(index as u64));
        if let Some(ns) = promised.delay_ns {
            params.set("adc", Value::Time(Duration::from_nanos(ns)));
        }
        if promised.loss.is_some() {
            params.set("alc", Value::Fraction(Fraction::ratio(1, 100)));
        }
        if promised.rate_bps > 0 {
            params.set("arc", Value::Rate(Rate::from_bps(promised.rate_bps)));
        }
        if index == 3 {
            params.set("default", Value::Flag);
        }
        ClassConfig { name: format!("c{index}"), parent: None, params, queue: None }
    };
    Node {
        discipline: "jobs".into(),
        params: Params::new().with("qlimit", Value::Count(150)),
        classes: promises().iter().enumerate().map(class).collect(),
    }
}

/// What the test keeps beside the discipline.
struct Watch {
    cx: Cx,
    tree: Box<dyn Discipline>,
    /// Packets of each class by age: frame, when it came.
    queues: [VecDeque<(u32, u64)>; 4],
    classes: [PromisedClass; 4],
}

impl Watch {
    fn new(seed: u64) -> Self {
        let link = Link::new(Rate::from_bps(BPS), 0, 1_514);
        let tree = Registry::builtin().build(&jobs(), link).expect("a valid configuration").discipline;
        Watch { cx: Cx::new(400, link, seed), tree, queues: Default::default(), classes: promises() }
    }
    /// Offers a packet; answers the classes that lost one that their bound forbade.
    fn offer(&mut self, class: usize, frame: u32) -> Vec<usize> {
        if self.tree.is_empty() {
            for class in &mut self.classes {
                (class.arrived_bits, class.lost_bits) = (0, 0);
            }
        }
        let mut meta = Meta::new(BYTES, self.cx.now, FrameRef(frame));
        meta.leaf = class as u32;
        let Ok(id) = self.cx.packets.insert(meta) else { return Vec::new() };
        self.queues[class].push_back((frame, self.cx.now.as_nanos()));
        self.classes[class].arrived_bits += u64::from(BYTES) * 8;
        let _ = self.tree.enqueue(&mut self.cx, id);
        let mut forbidden = Vec::new();
        while let Some((id, _)) = self.cx.next_dropped() {
            let (leaf, frame) = (self.cx.packets.get(&id).leaf as usize, self.cx.packets.get(&id).frame.0);
            self.cx.packets.remove(id);
            self.queues[leaf].retain(|&(f, _)| f != frame);
            if !may_lose(&self.classes[leaf], u64::from(BYTES) * 8) {
                forbidden.push(leaf);
            }
            self.classes[leaf].lost_bits += u64::from(BYTES) * 8;
        }
        forbidden
    }
    fn serve(&mut self) {
        if let Next::Packet(id) = self.tree.dequeue(&mut self.cx) {
            let leaf = self.cx.packets.get(&id).leaf as usize;
            self.cx.packets.remove(id);
            self.queues[leaf].pop_front();
        }
    }
    fn now_stand(&mut self) -> [PromisedClass; 4] {
        let now_ns = self.cx.now.as_nanos();
        for (class, queue) in self.classes.iter_mut().zip(&self.queues) {
            class.backlog_bits = queue.len() as u64 * u64::from(BYTES) * 8;
            class.oldest_ns = queue.front().map_or(0, |&(_, came_ns)| now_ns - came_ns);
        }
        self.classes
    }
    /// In millionths.
    fn shares(&self) -> Vec<i64> {
        values_of(self.tree.as_ref(), "share")
    }
}

/// Of the arrivals after which all promises could be kept: how many, and after how many of them a
/// class had less than the model says, with delay bounds divided by `stricter`.
fn shortfalls(seed: u64, stricter: u64) -> (u32, u32) {
    let mut watch = Watch::new(seed);
    let mut random = Random::new(seed);
    let (mut feasible, mut short) = (0, 0);
    let mut load = 10;
    for frame in 0..20_000 {
        if random.below(500) == 0 {
            load = 5 + random.below(8);
        }
        // A packet takes 400 us; at load 10 one comes for each that leaves.
        watch.cx.now += Duration::from_nanos(40_000);
        if frame % 10 == 0 {
            watch.serve();
        }
        if random.below(100) >= load {
            continue;
        }
        watch.offer(random.below(4) as usize, frame);
        let mut classes = watch.now_stand();
        for class in &mut classes {
            class.delay_ns = class.delay_ns.map(|ns| ns / stricter);
        }
        let least = least_shares(&classes, BPS);
        if least.iter().fold(Ratio::ZERO, |sum, l| sum + *l) > Ratio::whole(1) {
            continue;
        }
        feasible += 1;
        // The statistics round down to a millionth.
        let has_less =
            |(share, least): (&i64, &Ratio)| Ratio::whole(*share + 1) < *least * Ratio::whole(1_000_000);
        short += u32::from(watch.shares().iter().zip(&least).any(has_less));
    }
    (feasible, short)
}

/// Seeds with which an arrival that finds no room decides.
const FULL: [u64; 2] = [4_077_613_161_831_995_988, 4_589_745_336_593_861_606];

/// J22: after every arrival each class has at least max(B / (d - D), f), whenever all can.
#[test]
fn j22_every_class_has_its_least_rate() {
    for seed in weir_seed::seeds(4).chain(FULL) {
        let (feasible, short) = shortfalls(seed, 1);
        assert!(feasible > 500, "seed {seed}: only {feasible} arrivals could be judged");
        assert_eq!(short, 0, "seed {seed}: of {feasible} arrivals");
        let (_, reversed) = shortfalls(seed, 3);
        assert!(reversed > 20, "seed {seed}: bounds a third as long are kept, too");
    }
}

/// J05: under overload from a full buffer, no loss bound is broken while others can lose; the
/// classes without a bound do lose.
#[test]
fn j05_no_loss_bound_is_broken_while_others_can_lose() {
    for seed in weir_seed::seeds(4) {
        let mut watch = Watch::new(seed);
        let mut random = Random::new(seed);
        for frame in 0..20_000 {
            watch.cx.now += Duration::from_nanos(40_000);
            if frame % 10 == 0 {
                watch.serve();
            }
            // Three times what the link carries, little of it in the first class.
            if random.below(100) < 30 {
                let class = if random.below(20) == 0 { 0 } else { 1 + random.below(3) as usize };
                let forbidden = watch.offer(class, frame);
                assert!(!forbidden.contains(&0), "seed {seed}, packet {frame}: {:?}", watch.classes);
            }
        }
        let lost: Vec<u64> = watch.classes.iter().map(|c| c.lost_bits).collect();
        assert!(lost[1..].iter().sum::<u64>() > 1_000_000, "seed {seed}: {lost:?}");
        assert!(watch.cx.now > Instant::from_millis(500));
    }
}
