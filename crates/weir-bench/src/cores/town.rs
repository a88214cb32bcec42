//! Who shares the link of the simulation: subscribers below access nodes below sites, and what each of them sends.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use weir_core::Random;
use weir_core::queue::{Curve, Params, Value};
use weir_core::sched::{ClassConfig, Node};
use weir_core::units::{Duration, Rate};

/// Bytes per packet on the wire beside the frame.
pub(super) const OVERHEAD: u32 = 24;
/// Subscribers of an access node.
const BELOW_ACCESS: u32 = 100;
/// Shares of a plan, in units.
const PLANS: [u64; 3] = [1, 2, 4];
/// Of a hundred subscribers: those who always have packets, and those who are hostile.
const GREEDY: u64 = 25;
const HOSTILE: u64 = 2;

/// What a subscriber does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// It always has packets of mixed sizes.
    Greedy,
    /// 0.2 to 0.9 of its share, in bursts of mixed sizes.
    Modest,
    /// One and a half times its share in small packets and short bursts, so that it joins and leaves all the time.
    Hostile,
}

/// A subscriber.
#[derive(Clone, Copy, Debug)]
pub struct Subscriber {
    pub(super) kind: Kind,
    /// Units of share.
    pub(super) units: u64,
    pub(super) site: u32,
    pub(super) access: u32,
    /// Bytes on the wire per nanosecond that it offers; 0 for one that always has packets.
    load: f64,
}

/// All of them, and the tree by which they share.
pub struct Town {
    pub(super) node: Node,
    pub(super) subscribers: Vec<Subscriber>,
    pub(super) sites: u32,
    pub(super) accesses: u32,
    /// Units of all.
    pub(super) units: u64,
}

fn mixed(random: &mut Random) -> u32 {
    [64, 594, 1_518][[0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2][random.below(12) as usize]]
}

impl Town {
    /// So many subscribers at so many sites of random size. One site in ten has nobody who always has packets, so that
    /// the site itself joins and leaves.
    ///
    /// With `load_percent`, nobody always has packets: all are modest, and offer that much of the link together.
    pub fn new(seed: u64, link: Rate, subscribers: u32, sites: u32, load_percent: Option<u64>) -> Town {
        let mut random = Random::new(seed);
        // Weights of sites, from one to three.
        let weights: Vec<u64> = (0..sites).map(|_| 100 + random.below(201)).collect();
        let whole: u64 = weights.iter().sum();
        let of_site = |weight: u64| ((u64::from(subscribers) * weight / whole) as u32).max(1);
        let mut town = Town { node: Node::default(), subscribers: Vec::new(), sites, accesses: 0, units: 0 };
        for (site, &weight) in weights.iter().enumerate() {
            let quiet = site % 10 == 9;
            for number in 0..of_site(weight) {
                town.accesses += u32::from(number % BELOW_ACCESS == 0);
                let kind = match random.below(100) {
                    _ if load_percent.is_some() => Kind::Modest,
                    // Each access node has one for sure.
                    percent if !quiet && (percent < GREEDY || number % BELOW_ACCESS == 0) => Kind::Greedy,
                    percent if percent < GREEDY + HOSTILE => Kind::Hostile,
                    _ => Kind::Modest,
                };
                let units = PLANS[random.below(3) as usize];
                town.units += units;
                let (site, access) = (site as u32, town.accesses - 1);
                town.subscribers.push(Subscriber { kind, units, site, access, load: 0.0 });
            }
        }
        for subscriber in &mut town.subscribers {
            let share = link.as_bps() as f64 / 8e9 * subscriber.units as f64 / town.units as f64;
            subscriber.load = share
                * match (subscriber.kind, load_percent) {
                    (_, Some(percent)) => percent as f64 / 100.0,
                    (Kind::Greedy, None) => 0.0,
                    (Kind::Modest, None) => (20 + random.below(71)) as f64 / 100.0,
                    (Kind::Hostile, None) => 1.5,
                };
        }
        town.node = town.tree(link);
        town
    }
    /// HFSC by link-share curves in three levels. Each class has the sum of those below it.
    fn tree(&self, link: Rate) -> Node {
        let unit_bps = link.as_bps() / 100 * 95 / self.units;
        let class =
            |name: String, parent: Option<usize>| ClassConfig { name, parent, ..ClassConfig::default() };
        let (mut classes, mut units) = (Vec::<ClassConfig>::new(), Vec::<u64>::new());
        let (mut site, mut access) = (None, None);
        for (number, subscriber) in self.subscribers.iter().enumerate() {
            if site.is_none_or(|(known, _)| known != subscriber.site) {
                site = Some((subscriber.site, classes.len()));
                classes.push(class(format!("site{}", subscriber.site), None));
                units.push(0);
            }
            if access.is_none_or(|(known, _)| known != subscriber.access) {
                access = Some((subscriber.access, classes.len()));
                classes.push(class(format!("access{}", subscriber.access), site.map(|(_, at)| at)));
                units.push(0);
            }
            classes.push(class(format!("{number}"), access.map(|(_, at)| at)));
            units.push(subscriber.units);
            for (_, above) in [site, access].into_iter().flatten() {
                units[above] += subscriber.units;
            }
        }
        for (class, units) in classes.iter_mut().zip(units) {
            let rate = Rate::from_bps(unit_bps * units);
            class.params =
                Params::new().with("ls", Value::Curve(Curve { m1: rate, d: Duration::ZERO, m2: rate }));
        }
        Node { discipline: "hfsc".into(), params: Params::new(), classes }
    }
    /// Whether somebody at that site always has packets.
    pub(super) fn is_greedy(&self, site: u32) -> bool {
        self.subscribers.iter().any(|s| s.site == site && s.kind == Kind::Greedy)
    }
}

/// The packets of a part's subscribers that do not always have some, in the order of time.
pub(super) struct Arrivals {
    random: Random,
    /// When the next burst of which leaf comes, ns.
    next: BinaryHeap<Reverse<(u64, u32)>>,
    /// By leaf.
    subscribers: Vec<Subscriber>,
}

impl Arrivals {
    pub(super) fn new(seed: u64, subscribers: Vec<Subscriber>) -> Arrivals {
        let next = BinaryHeap::with_capacity(subscribers.len());
        let mut arrivals = Arrivals { random: Random::new(seed), next, subscribers };
        for leaf in 0..arrivals.subscribers.len() {
            // What began some bursts ago is as likely at any time as later on.
            let load = arrivals.subscribers[leaf].load;
            let usual_ns = 6.0 * 386.0 / load;
            let mut at =
                -4.0 * usual_ns + arrivals.random.below(1 << 20) as f64 / f64::from(1 << 20) * usual_ns;
            while load > 0.0 && at < 0.0 {
                at += arrivals.draw(leaf as u32, &mut |_, _| {});
            }
            if load > 0.0 {
                arrivals.next.push(Reverse((at as u64, leaf as u32)));
            }
        }
        arrivals
    }
    /// When the next burst comes, ns.
    pub(super) fn next_ns(&self) -> u64 {
        self.next.peek().map_or(u64::MAX, |&Reverse((at, _))| at)
    }
    /// The next burst: its leaf and lengths.
    pub(super) fn burst(&mut self, mut take: impl FnMut(u32, u32)) {
        let Some(Reverse((at, leaf))) = self.next.pop() else { return };
        let apart = self.draw(leaf, &mut take);
        self.next.push(Reverse((at + apart as u64 + 1, leaf)));
    }
    /// A burst of that leaf, and how long it is until the next one, ns.
    fn draw(&mut self, leaf: u32, take: &mut impl FnMut(u32, u32)) -> f64 {
        let Subscriber { kind, load, .. } = self.subscribers[leaf as usize];
        let mut bytes = 0;
        for _ in 0..1 + self.random.below(11) {
            let len = match kind {
                Kind::Hostile => 40 + self.random.below(60) as u32,
                Kind::Greedy | Kind::Modest => mixed(&mut self.random),
            };
            bytes += len + OVERHEAD;
            take(leaf, len);
        }
        f64::from(bytes) / load * (50 + self.random.below(101)) as f64 / 100.0
    }
    /// The length of a packet of one that always has some.
    pub(super) fn len(&mut self) -> u32 {
        mixed(&mut self.random)
    }
}
