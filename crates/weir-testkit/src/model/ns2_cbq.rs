//! CBQ as ns-2.35 runs it, on Floyd's two agencies: packet for packet, and what it would do
//! without one quirk. The only model here of another program, and so in its floats.
//!
//! When ns-2 refuses a class for the first time since that class last sent underlimit, it forgives
//! the class its debt: `undertime` no longer counts `avgidle`. It does so while it still looks for
//! who sends next, so the class may become underlimit just after it was refused. It is then
//! unsatisfied, and under formal link sharing nobody may borrow past it: all others are refused
//! too. When all were refused, the first that was looked at sends, and that packet is charged
//! to nobody. With video of B silent this is always video of A, because its priority comes
//! first: its agency gets packets for nothing and agency B stays below its share.

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

/// A packet that the model sent.
#[derive(Clone, Copy, Debug)]
pub struct Ns2Sent {
    /// When its last bit left, seconds.
    pub at_s: f64,
    /// 1 video of A, 2 data of A, 3 video of B, 4 data of B.
    pub class: usize,
    /// Its length, bytes.
    pub len_bytes: u32,
    /// All were refused: it went all the same, and was charged to nobody.
    pub free: bool,
}

const LINK_BPS: f64 = 1.5e6;
const END_S: f64 = 40.1;
/// 1/gain of the estimator.
const GAIN: f64 = 16.0;
/// The packet that bursts and rounds are counted in, bytes.
const PACKET_BYTES: f64 = 1024.0;
/// One packet less than its limit says is what a queue of ns-2 holds.
const QUEUE_PACKETS: u32 = 19;

/// The leaves are 0 to 3, then the agencies and the root.
const LEAVES: usize = 4;
const PARENT: [Option<usize>; 7] = [Some(4), Some(4), Some(5), Some(5), Some(6), Some(6), None];
const LEVEL: [u8; 7] = [1, 1, 1, 1, 2, 2, 3];
const SHARE: [f64; 7] = [0.3, 0.4, 0.1, 0.2, 0.7, 0.3, 1.0];
const PRIORITY: [f64; 7] = [1.0, 2.0, 1.0, 2.0, 8.0, 8.0, 8.0];
/// Who takes turns with whom, the priority that is served first first.
const RINGS: [[usize; 2]; 2] = [[0, 2], [1, 3]];
const LEN_BYTES: [u32; LEAVES] = [190, 1000, 500, 1000];
const INTERVAL_S: [f64; LEAVES] = [0.001, 0.005, 0.002, 0.005];
/// When the sources are on.
const ON_S: [&[(f64, f64)]; LEAVES] = [
    &[(0.0, 12.0), (16.0, 36.0)],
    &[(0.0, 20.0), (24.0, END_S)],
    &[(0.0, 4.0), (8.0, 36.0)],
    &[(0.0, 28.0), (32.0, END_S)],
];

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
    classes: [Class; 7],
    /// Whose turn it is in each ring.
    turn: [usize; 2],
    forgives: Forgives,
}

/// Floyd's test of formal link sharing with weighted round robin: every packet in order.
pub fn ns2_two_agencies(forgives: Forgives) -> Vec<Ns2Sent> {
    let mut ns2 = Ns2 { classes: [Class::default(); 7], turn: [0; 2], forgives };
    let arrivals = arrivals();
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
        if now > END_S {
            return sent;
        }
        if let Some((leaf, free)) = ns2.choose(now) {
            let len_bytes = LEN_BYTES[leaf];
            ns2.send(leaf, free, now);
            now += f64::from(len_bytes) * 8.0 / LINK_BPS;
            sent.push(Ns2Sent { at_s: now, class: leaf + 1, len_bytes, free });
        }
    }
}

/// What reaches the router over links of 10 Mbit/s and 5 ms.
fn arrivals() -> Vec<(f64, usize)> {
    let mut all = Vec::new();
    for leaf in 0..LEAVES {
        for &(from, to) in ON_S[leaf] {
            let mut at = from;
            while at < to {
                all.push((at + f64::from(LEN_BYTES[leaf]) * 8.0 / 1e7 + 0.005, leaf));
                at += INTERVAL_S[leaf];
            }
        }
    }
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    all
}

/// The bound of `avgidle`: what lets a class send 8 packets per step of priority back to back.
fn most_idle(class: usize) -> f64 {
    let gain = 1.0 - 1.0 / GAIN;
    let power = f64::powf(gain, 8.0 * PRIORITY[class]);
    let burst = (1.0 / SHARE[class] - 1.0) * (1.0 - power) / power;
    PACKET_BYTES * 8.0 / LINK_BPS * burst.max(1.0 - gain)
}

/// What a turn brings, bytes; ns-2 cuts off the fraction.
fn quantum(leaf: usize) -> i64 {
    let ring = RINGS[usize::from(PRIORITY[leaf] > 1.0)];
    let sum: f64 = ring.iter().map(|&c| SHARE[c]).sum();
    (SHARE[leaf] * (2.0 * PACKET_BYTES / sum)) as i64
}

impl Ns2 {
    /// Who sends, and whether for nothing.
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
        for (ring, turn) in RINGS.into_iter().zip(self.turn) {
            let mut poor = false;
            for again in [false, true] {
                if again && !poor {
                    break;
                }
                for leaf in [ring[turn], ring[1 - turn]] {
                    if !again && self.classes[leaf].credit <= 0 {
                        self.classes[leaf].credit += quantum(leaf);
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
        let mut at = PARENT[leaf];
        while let Some(lender) = at {
            let over = self.classes[lender].undertime > now;
            if !over && !(0..7).any(|c| LEVEL[c] < LEVEL[lender] && self.is_unsatisfied(c, now)) {
                return true;
            }
            at = PARENT[lender];
        }
        false
    }

    fn is_unsatisfied(&self, class: usize, now: f64) -> bool {
        let below = |leaf: usize| leaf == class || PARENT[leaf] == Some(class);
        let demand = (0..LEAVES).any(|leaf| below(leaf) && self.classes[leaf].queued > 0);
        demand && self.classes[class].undertime < now
    }

    fn send(&mut self, leaf: usize, free: bool, now: f64) {
        let len = LEN_BYTES[leaf];
        let class = &mut self.classes[leaf];
        class.queued -= 1;
        if !free && class.credit > 0 {
            class.credit -= i64::from(len);
        }
        let on = !free && class.credit > 0;
        for (ring, turn) in RINGS.into_iter().zip(&mut self.turn) {
            if let Some(place) = ring.iter().position(|&l| l == leaf) {
                *turn = if on { place } else { 1 - place };
            }
        }
        let mut at = Some(leaf).filter(|_| !free);
        while let Some(class) = at {
            self.charge(class, f64::from(len), now);
            at = PARENT[class];
        }
    }

    fn charge(&mut self, class: usize, len: f64, now: f64) {
        let (share, most) = (SHARE[class], most_idle(class));
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
