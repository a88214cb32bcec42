//! CBQ as ns-2.35 runs it, on Floyd's trees: packet for packet, and what it would do without a
//! quirk. The only model here of another program, and so in its floats.
//!
//! **Free packets.** When ns-2 refused every class, the first that it looked at sends all the same, and
//! that packet is charged to nobody. It looks at the higher priority first, so that is who has packets
//! for nothing. Below a root of less than the link this is so in every spell in which the root is
//! overlimit. CBQ's ancestor-only does the same.
//!
//! **Forgiving.** When ns-2 refuses a class for the first time since that class last sent underlimit, it forgives
//! the class its debt: `undertime` no longer counts `avgidle`. It does so while it still looks for
//! who sends next, so the class may become underlimit just after it was refused. It is then
//! unsatisfied, and under formal link sharing nobody may borrow past it: all others are refused
//! too, and the first that was looked at sends for nothing. With video of B silent this is always
//! video of A, because its priority comes first: its agency gets packets for nothing and agency B
//! stays below its share.

/// When a refused class is forgiven its debt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Forgives {
    /// In the midst of the search, as ns-2 does.
    AtOnce,
    /// When it is settled who sends: ns-2 without the quirk.
    AfterTheChoice,
    /// Not at all.
    Never,
}

/// A test of Floyd's: a tree, a link-sharing rule, and sources that pause.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ns2Test {
    /// Two agencies below a root of the whole link, formal.
    Formal,
    /// Two agencies below a root of 90 %, ancestor-only.
    AncestorOnly,
    /// Three classes below a root of 90 %, ancestor-only.
    AncestorOnlyFlat,
}

/// A packet that the model sent.
#[derive(Clone, Copy, Debug)]
pub struct Ns2Sent {
    /// When its last bit left, seconds.
    pub at_s: f64,
    /// From 1. Two agencies: video of A, data of A, video of B, data of B. Flat: audio, video, data.
    pub class: usize,
    /// Its length, bytes.
    pub len_bytes: u32,
    /// All were refused, and it went all the same.
    pub refused: bool,
}

const LINK_BPS: f64 = 1.5e6;
/// 1/gain of the estimator.
const GAIN: f64 = 16.0;
/// The packet that bursts and rounds are counted in, bytes.
const PACKET_BYTES: f64 = 1024.0;
/// One packet less than its limit says is what a queue of ns-2 holds.
const QUEUE_PACKETS: u32 = 19;

/// What one class is, and what is sent to it: nothing unless it is a leaf.
struct Place {
    parent: Option<usize>,
    share: f64,
    level: u8,
    /// The class sends `8 * priority` packets back to back after a pause.
    priority: f64,
    len_bytes: u32,
    interval_s: f64,
    /// When its source is on, seconds.
    on_s: &'static [(f64, f64)],
}

const fn leaf(parent: usize, share: f64, source: (f64, u32, f64, &'static [(f64, f64)])) -> Place {
    let (priority, len_bytes, interval_s, on_s) = source;
    Place { parent: Some(parent), share, level: 1, priority, len_bytes, interval_s, on_s }
}

const fn inner(parent: Option<usize>, share: f64, level: u8) -> Place {
    Place { parent, share, level, priority: 8.0, len_bytes: 0, interval_s: 0.0, on_s: &[] }
}

/// Leaves first, then whoever stands above them.
struct Tree {
    places: &'static [Place],
    /// Who takes turns with whom, the priority that is served first first.
    rings: &'static [&'static [usize]],
    formal: bool,
    end_s: f64,
}

/// Priority, bytes, seconds between packets, and when it is on.
const VIDEO_A: (f64, u32, f64, &[(f64, f64)]) = (1.0, 190, 0.001, &[(0.0, 12.0), (16.0, 36.0)]);
const DATA_A: (f64, u32, f64, &[(f64, f64)]) = (2.0, 1000, 0.005, &[(0.0, 20.0), (24.0, 41.0)]);
const VIDEO_B: (f64, u32, f64, &[(f64, f64)]) = (1.0, 500, 0.002, &[(0.0, 4.0), (8.0, 36.0)]);
const DATA_B: (f64, u32, f64, &[(f64, f64)]) = (2.0, 1000, 0.005, &[(0.0, 28.0), (32.0, 41.0)]);
const AUDIO: (f64, u32, f64, &[(f64, f64)]) =
    (1.0, 190, 0.001, &[(0.0, 4.0), (8.0, 12.0), (16.0, 20.0), (24.0, 28.0)]);
const VIDEO: (f64, u32, f64, &[(f64, f64)]) = (1.0, 500, 0.002, &[(0.0, 8.0), (12.0, 16.0), (20.0, 28.0)]);
const DATA: (f64, u32, f64, &[(f64, f64)]) = (2.0, 1000, 0.005, &[(0.0, 12.0), (16.0, 28.0)]);

const FORMAL: Tree = Tree {
    places: &[
        leaf(4, 0.3, VIDEO_A),
        leaf(4, 0.4, DATA_A),
        leaf(5, 0.1, VIDEO_B),
        leaf(5, 0.2, DATA_B),
        inner(Some(6), 0.7, 2),
        inner(Some(6), 0.3, 2),
        inner(None, 1.0, 3),
    ],
    rings: &[&[0, 2], &[1, 3]],
    formal: true,
    end_s: 40.1,
};

const ANCESTOR_ONLY: Tree = Tree {
    places: &[
        leaf(4, 0.25, VIDEO_A),
        leaf(4, 0.4, DATA_A),
        leaf(5, 0.1, VIDEO_B),
        leaf(5, 0.15, DATA_B),
        inner(Some(6), 0.65, 2),
        inner(Some(6), 0.25, 2),
        inner(None, 0.9, 3),
    ],
    rings: &[&[0, 2], &[1, 3]],
    formal: false,
    end_s: 40.1,
};

const ANCESTOR_ONLY_FLAT: Tree = Tree {
    places: &[leaf(3, 0.03, AUDIO), leaf(3, 0.32, VIDEO), leaf(3, 0.55, DATA), inner(None, 0.9, 2)],
    rings: &[&[0, 1], &[2]],
    formal: false,
    end_s: 28.1,
};

#[derive(Clone, Copy, Default)]
struct Class {
    last: f64,
    undertime: f64,
    average: f64,
    credit: i64,
    queued: u32,
    forgiven: bool,
    refused: bool,
}

struct Ns2 {
    tree: &'static Tree,
    classes: Vec<Class>,
    /// Whose turn it is in each ring.
    turn: Vec<usize>,
    forgives: Forgives,
}

/// That test with weighted round robin: every packet in order.
pub fn ns2_cbq(test: Ns2Test, forgives: Forgives) -> Vec<Ns2Sent> {
    let tree = match test {
        Ns2Test::Formal => &FORMAL,
        Ns2Test::AncestorOnly => &ANCESTOR_ONLY,
        Ns2Test::AncestorOnlyFlat => &ANCESTOR_ONLY_FLAT,
    };
    let classes = vec![Class::default(); tree.places.len()];
    let mut ns2 = Ns2 { tree, classes, turn: vec![0; tree.rings.len()], forgives };
    let arrivals = arrivals(tree);
    let (mut next, mut now, mut sent) = (0, 0.0, Vec::new());
    loop {
        if ns2.classes.iter().all(|c| c.queued == 0) {
            let Some(&(at, _)) = arrivals.get(next) else { return sent };
            now = at.max(now);
        }
        while let Some(&(at, leaf)) = arrivals.get(next)
            && at <= now
        {
            ns2.classes[leaf].queued = (ns2.classes[leaf].queued + 1).min(QUEUE_PACKETS);
            next += 1;
        }
        if now > tree.end_s {
            return sent;
        }
        if let Some((leaf, refused)) = ns2.choose(now) {
            let len_bytes = tree.places[leaf].len_bytes;
            ns2.send(leaf, refused, now);
            now += f64::from(len_bytes) * 8.0 / LINK_BPS;
            sent.push(Ns2Sent { at_s: now, class: leaf + 1, len_bytes, refused });
        }
    }
}

/// What reaches the router over links of 10 Mbit/s and 5 ms.
fn arrivals(tree: &Tree) -> Vec<(f64, usize)> {
    let mut all = Vec::new();
    for (leaf, place) in tree.places.iter().enumerate() {
        for &(from, to) in place.on_s {
            let mut at = from;
            while at < to.min(tree.end_s) {
                all.push((at + f64::from(place.len_bytes) * 8.0 / 1e7 + 0.005, leaf));
                at += place.interval_s;
            }
        }
    }
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    all
}

impl Place {
    /// The bound of `avgidle`: what lets a class send 8 packets per step of priority back to back.
    fn most_idle(&self) -> f64 {
        let gain = 1.0 - 1.0 / GAIN;
        let power = f64::powf(gain, 8.0 * self.priority);
        let burst = (1.0 / self.share - 1.0) * (1.0 - power) / power;
        PACKET_BYTES * 8.0 / LINK_BPS * burst.max(1.0 - gain)
    }
}

impl Ns2 {
    fn parent(&self, class: usize) -> Option<usize> {
        self.tree.places[class].parent
    }

    /// What a turn brings a class of that ring, bytes; ns-2 cuts off the fraction.
    fn quantum(&self, ring: &[usize], leaf: usize) -> i64 {
        let share = |class: usize| self.tree.places[class].share;
        let sum: f64 = ring.iter().map(|&c| share(c)).sum();
        (share(leaf) * (ring.len() as f64 * PACKET_BYTES / sum)) as i64
    }

    /// Who sends, and whether all were refused.
    fn choose(&mut self, now: f64) -> Option<(usize, bool)> {
        let chosen = self.search(now);
        for class in &mut self.classes {
            if class.refused && !class.forgiven {
                class.undertime -= (1.0 - GAIN) * class.average;
                class.forgiven = true;
            }
            class.refused = false;
        }
        chosen
    }

    fn search(&mut self, now: f64) -> Option<(usize, bool)> {
        let mut first = None;
        for (n, ring) in self.tree.rings.iter().enumerate() {
            let mut poor = false;
            for again in [false, true] {
                if again && !poor {
                    break;
                }
                for step in 0..ring.len() {
                    let leaf = ring[(self.turn[n] + step) % ring.len()];
                    if !again && self.classes[leaf].credit <= 0 {
                        self.classes[leaf].credit += self.quantum(ring, leaf);
                    }
                    if self.classes[leaf].queued > 0 {
                        first = first.or(Some((leaf, true)));
                        if !self.may_send(leaf, now) {
                            self.refuse(leaf, now);
                        } else if again || self.classes[leaf].credit > 0 {
                            return Some((leaf, false));
                        } else {
                            poor = true;
                        }
                    }
                    // Who is passed over loses credit and debt alike.
                    self.classes[leaf].credit = 0;
                }
            }
        }
        first
    }

    fn refuse(&mut self, leaf: usize, now: f64) {
        let class = &mut self.classes[leaf];
        if class.undertime <= now || class.forgiven {
            return;
        }
        match self.forgives {
            Forgives::Never => {}
            Forgives::AfterTheChoice => class.refused = true,
            Forgives::AtOnce => {
                class.undertime -= (1.0 - GAIN) * class.average;
                class.forgiven = true;
            }
        }
    }

    fn may_send(&mut self, leaf: usize, now: f64) -> bool {
        if self.classes[leaf].undertime < now {
            self.classes[leaf].forgiven = false;
            return true;
        }
        let mut at = self.parent(leaf);
        while let Some(lender) = at {
            let over = self.classes[lender].undertime > now;
            let barred = self.tree.formal && self.is_barred(lender, now);
            if !over && !barred {
                return true;
            }
            at = self.parent(lender);
        }
        false
    }

    /// A class below the level of `lender` is unsatisfied.
    fn is_barred(&self, lender: usize, now: f64) -> bool {
        let level = |class: usize| self.tree.places[class].level;
        (0..self.classes.len()).any(|c| level(c) < level(lender) && self.is_unsatisfied(c, now))
    }

    fn is_unsatisfied(&self, class: usize, now: f64) -> bool {
        let below = |leaf: usize| leaf == class || self.parent(leaf) == Some(class);
        let demand = (0..self.classes.len()).any(|leaf| below(leaf) && self.classes[leaf].queued > 0);
        demand && self.classes[class].undertime < now
    }

    fn send(&mut self, leaf: usize, refused: bool, now: f64) {
        let len = self.tree.places[leaf].len_bytes;
        let class = &mut self.classes[leaf];
        class.queued -= 1;
        if !refused && class.credit > 0 {
            class.credit -= i64::from(len);
        }
        let on = !refused && class.credit > 0;
        for (ring, turn) in self.tree.rings.iter().zip(&mut self.turn) {
            if let Some(place) = ring.iter().position(|&l| l == leaf) {
                *turn = if on { place } else { (place + 1) % ring.len() };
            }
        }
        let mut at = Some(leaf).filter(|_| !refused);
        while let Some(class) = at {
            self.charge(class, f64::from(len), now);
            at = self.parent(class);
        }
    }

    fn charge(&mut self, class: usize, len: f64, now: f64) {
        let place = &self.tree.places[class];
        let (share, most) = (place.share, place.most_idle());
        let class = &mut self.classes[class];
        let on_link = len * 8.0 / LINK_BPS;
        let end = now + on_link;
        let idle = (end - class.last) - len / (share * (LINK_BPS / 8.0));
        class.average = (class.average + (idle - class.average) / GAIN).min(most);
        if class.average <= 0.0 {
            class.undertime = end + on_link * (1.0 / share - 1.0) + (1.0 - GAIN) * class.average;
        }
        class.last = end;
    }
}
