//! The part of a tree that one core runs: subtrees below a root of their own, and the credit that they use.
//!
//! Principle: the discipline at the root decides which packet is next, and the credit whether it may go. Each
//! class at the root has a virtual time: what it was charged, divided by its weight. The part speaks for
//! the class of its next packet, and what it is lent is for classes that have come about as far: to what a quantum and a half comes to
//! if all that have packets share it. So no class goes on the credit of one that is further behind.
//! Where a class of a higher level has packets, the part asks for what they need and no more, for the same reason.
//! Cost: an addition and a multiplication per packet, a division per quantum; 48 bytes for each class at the root.

use super::credit::{Ask, Lend};
use super::plan::PartPlan;
use super::{Credit, LEVELS, Share};
use crate::packet::PacketId;
use crate::queue::{
    Backlog, Broken, Cause, Child, Cx, Discipline, DropReason, Head, Link, Next, ParamError, Params, Verdict,
    Visit,
};
use crate::sched::{Registry, Tree};
use crate::units::{Fine, Instant, PerByte, Rate};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// The sum of 32,768 weights is a number still.
const MOST_WEIGHT: Rate = Rate::from_bps(1 << 48);

/// A class at the root.
struct Class {
    weight: Rate,
    per_byte: PerByte,
    /// Which of `Part::levels` it belongs to.
    level: u8,
    packets: u32,
    /// It came while nothing of its level was there, and the link's virtual time has not been heard since.
    unheard: bool,
    virtual_time: Fine,
    /// A class that always has packets may be so far behind the link.
    slack: Fine,
}

impl Class {
    /// How far it has come, where the link is at `floor`. A core that cannot keep up claims no more than the
    /// slack of what it missed, and a class that rested claims nothing.
    #[inline]
    fn come_to(&self, floor: Fine) -> Fine {
        let slack = if self.unheard { Fine::ZERO } else { self.slack };
        self.virtual_time.max(floor.saturating_sub(slack))
    }
}

/// The slack of a class: so many times the credit that a part holds. The order of the discipline and that of virtual times
/// differ by a packet of the class with the least weight, so classes whose weights are less than fifty to one
/// apart never come near it.
const SLACK: u64 = 16;

/// The classes of one level.
struct Level {
    /// By what it was called in the configuration.
    level: u8,
    /// What waits.
    backlog: Backlog,
    /// Weights of the classes that have packets, bit/s.
    busy_bps: u64,
    /// The link's virtual time when it was heard of last: a class that joins starts there.
    floor: Fine,
    /// It was heard of since packets of the level are there.
    heard: bool,
    /// The credit is for classes that have come no further.
    limit: Fine,
}

/// Subtrees of one core, at the top of its port's tree; the wire below them is `Open`.
pub struct Part {
    tree: Child,
    link: Box<dyn Lend>,
    quantum_bytes: u64,
    /// Bytes that may go.
    credit: u64,
    /// Until then asking again is of no use.
    ask_at: Instant,
    /// What it stands in line for, and whose place in `levels` that is.
    in_line: Option<(usize, Ask)>,
    first_leaf: u32,
    class_of_leaf: Box<[u32]>,
    classes: Box<[Class]>,
    /// The highest first.
    levels: Box<[Level]>,
    fixed: Box<[&'static str]>,
}

impl PartPlan {
    /// The part as a tree for a port whose wire is open. `link` is the whole link.
    ///
    /// # Errors
    /// What a discipline refuses.
    pub fn build(
        &self,
        registry: &Registry,
        link: Link,
        quantum_bytes: u64,
        lend: Box<dyn Lend>,
    ) -> Result<Tree, ParamError> {
        let Tree { discipline, leaves, default_leaf } = registry.build(&self.node, link)?;
        let part = Part::new(Child::inner(discipline), 0, self, &link, quantum_bytes, lend);
        Ok(Tree { discipline: Box::new(part), leaves, default_leaf })
    }
}

impl Part {
    /// `tree` was built from `plan`, and its leaves are numbered from `first_leaf` on.
    pub fn new(
        tree: Child,
        first_leaf: u32,
        plan: &PartPlan,
        link: &Link,
        quantum_bytes: u64,
        lend: Box<dyn Lend>,
    ) -> Self {
        let mut names: Vec<u8> = plan.shares.iter().map(|share| share.level).collect();
        names.sort_unstable_by_key(|&level| Reverse(level));
        names.dedup();
        debug_assert!(names.iter().all(|&level| usize::from(level) < LEVELS), "a level that no link has");
        let quantum_bytes = Credit::quantum_bytes(link, quantum_bytes);
        let held = quantum_bytes + quantum_bytes / 2;
        let level = |&level: &u8| Level {
            level,
            backlog: Backlog::default(),
            floor: Fine::ZERO,
            heard: false,
            busy_bps: 0,
            limit: Fine::ZERO,
        };
        let class = |share: &Share| Class {
            weight: share.weight.min(MOST_WEIGHT),
            per_byte: PerByte::of(share.weight),
            level: names.iter().position(|&level| level == share.level).unwrap_or(0) as u8,
            packets: 0,
            unheard: false,
            virtual_time: Fine::ZERO,
            slack: PerByte::of(share.weight).time_for(SLACK * held),
        };
        Part {
            tree,
            link: lend,
            quantum_bytes,
            credit: 0,
            ask_at: Instant::ZERO,
            in_line: None,
            first_leaf,
            class_of_leaf: plan.class_of_leaf.clone().into(),
            classes: plan.shares.iter().map(class).collect(),
            levels: names.iter().map(level).collect(),
            fixed: plan.fixed.clone().into(),
        }
    }

    /// What it has heard may be old, because another part asked since: it asks again at the next `dequeue`.
    pub fn forget_turn(&mut self) {
        self.ask_at = Instant::ZERO;
    }

    #[inline]
    fn class_of(&self, leaf: u32) -> Option<usize> {
        self.class_of_leaf.get(leaf.wrapping_sub(self.first_leaf) as usize).map(|&class| class as usize)
    }

    /// A packet comes to a class.
    #[inline]
    fn came(&mut self, leaf: u32, len: u32) {
        let Some(number) = self.class_of(leaf) else { return };
        let class = &mut self.classes[number];
        let level = &mut self.levels[usize::from(class.level)];
        level.heard &= level.backlog.packets > 0;
        if class.packets == 0 {
            level.busy_bps += class.weight.as_bps();
            class.virtual_time = class.virtual_time.max(level.floor);
            class.unheard = !level.heard;
        }
        class.packets += 1;
        level.backlog = level.backlog + Backlog { packets: 1, bytes: u64::from(len) };
    }

    /// A packet leaves a class, which is charged with `cost_bytes`.
    #[inline]
    fn went(&mut self, leaf: u32, len: u32, cost_bytes: u64) {
        let Some(number) = self.class_of(leaf) else { return };
        let class = &mut self.classes[number];
        let level = &mut self.levels[usize::from(class.level)];
        class.packets -= 1;
        if class.packets == 0 {
            level.busy_bps -= class.weight.as_bps();
        }
        level.backlog.packets -= 1;
        level.backlog.bytes -= u64::from(len);
        if cost_bytes > 0 {
            class.virtual_time = class.come_to(level.floor) + class.per_byte.time_for(cost_bytes);
            class.unheard &= !level.heard;
        }
    }

    /// Takes note of what the tree has dropped since `before` packets were on the list.
    #[inline]
    fn note_dropped(&mut self, cx: &Cx, before: u32) {
        if cx.dropped.packets() > before {
            for row in cx.dropped.iter(&cx.packets).skip(before as usize) {
                self.went(row.leaf, row.len, 0);
            }
        }
    }

    /// The highest level that has packets.
    fn highest(&self) -> usize {
        self.levels.iter().position(|level| level.backlog.packets > 0).unwrap_or(0)
    }

    /// How far the class of that leaf has come, as one of that level: one of a lower level goes for the sake of the
    /// higher ones that wait behind it.
    #[inline]
    fn come_to(&self, leaf: u32, level: usize) -> Fine {
        let floor = self.levels[level].floor;
        let own = self.class_of(leaf).map(|class| &self.classes[class]);
        own.filter(|class| usize::from(class.level) == level).map_or(floor, |class| class.come_to(floor))
    }

    /// Asks for what waits, a quantum at most, and for a packet of `least_bytes` in any case. True if it got something.
    fn ask(&mut self, cx: &Cx, level: usize, virtual_time: Fine, least_bytes: u64) -> bool {
        if virtual_time > self.levels[level].limit && self.credit > 0 {
            // What is left is for others.
            self.give_back(cx.now);
        }
        let Level { level: word, backlog, busy_bps, .. } = self.levels[level];
        let waiting = cx.link.cost_of(backlog).min(self.credit + self.quantum_bytes);
        let bytes = waiting.max(least_bytes).saturating_sub(self.credit);
        if bytes == 0 {
            return false;
        }
        // What is held for later would be of the wrong level then.
        let room = if self.levels.len() == 1 { self.quantum_bytes } else { 0 };
        let ask = Ask { level: word, virtual_time, bytes, spare_bytes: room.saturating_sub(bytes) };
        let loan = self.link.ask(cx.now, ask);
        self.levels[level].floor = loan.virtual_time.max(self.levels[level].floor);
        self.levels[level].heard = true;
        if loan.bytes == 0 {
            (self.ask_at, self.in_line) = (loan.at, Some((level, ask)));
            return false;
        }
        (self.ask_at, self.in_line) = (cx.now, None);
        self.credit += loan.bytes;
        let reach = PerByte::of(Rate::from_bps(busy_bps)).time_for(self.most_held());
        self.levels[level].limit = loan.virtual_time + reach;
        true
    }

    /// The most credit that it holds, unless a packet is longer: a quantum, and half of one that is left.
    fn most_held(&self) -> u64 {
        self.quantum_bytes + self.quantum_bytes / 2
    }

    /// Whether the link has been asked for what is next: its place in line is the right one, and its turn has not come. While
    /// it sends what is left of its credit it keeps its place; the limit of the next loan counts from there.
    fn has_asked(&self, now: Instant, level: usize, virtual_time: Fine, cost_bytes: u64) -> bool {
        let allowed = virtual_time <= self.levels[level].limit;
        let as_now = |&(at, ask): &(usize, Ask)| {
            let place = allowed || ask.virtual_time >= virtual_time;
            at <= level && self.credit + ask.bytes >= cost_bytes && place
        };
        now < self.ask_at && self.in_line.as_ref().is_some_and(as_now)
    }

    /// The tree gives nothing now. Where there is one level what is left serves its next packets, so that not each of
    /// them is a call of the link; else others may have it.
    fn rest(&mut self, now: Instant) {
        if self.levels.len() > 1 || self.in_line.is_some() {
            self.give_back(now);
        }
    }

    /// Others may have the credit.
    fn give_back(&mut self, now: Instant) {
        if self.credit > 0 || self.in_line.is_some() {
            self.link.give_back(now, core::mem::take(&mut self.credit));
            (self.ask_at, self.in_line) = (now, None);
        }
    }
}

impl Discipline for Part {
    fn enqueue(&mut self, cx: &mut Cx, id: PacketId) -> Verdict {
        let (row, before) = (cx.packets.get(&id), cx.dropped.packets());
        let (leaf, len) = (row.leaf, row.len);
        self.came(leaf, len);
        let verdict = self.tree.enqueue(cx, id);
        self.note_dropped(cx, before);
        verdict
    }

    fn dequeue(&mut self, cx: &mut Cx) -> Next {
        let before = cx.dropped.packets();
        let head = self.tree.head(cx);
        self.note_dropped(cx, before);
        let len = match head {
            Head::Packet { len } => len,
            waits => {
                self.rest(cx.now);
                return match waits {
                    Head::At(at) => Next::At(at),
                    Head::Held(cause) => Next::Held(cause),
                    Head::Packet { .. } | Head::Idle => Next::Idle,
                };
            }
        };
        let Some(leaf) = self.tree.head_meta(cx).map(|row| row.leaf) else {
            cx.broken("part", "the packet that was shown is gone");
            return Next::Idle;
        };
        let (cost_bytes, level) = (cx.link.cost_bytes(len), self.highest());
        let virtual_time = self.come_to(leaf, level);
        loop {
            let allowed = virtual_time <= self.levels[level].limit;
            let enough = allowed && self.credit >= cost_bytes.max(self.quantum_bytes / 2);
            let asked = || self.has_asked(cx.now, level, virtual_time, cost_bytes);
            if enough || asked() || !self.ask(cx, level, virtual_time, cost_bytes) {
                break;
            }
        }
        if self.credit < cost_bytes || virtual_time > self.levels[level].limit {
            return if self.ask_at == Instant::NEVER {
                Next::Held(Cause::Rate)
            } else {
                Next::At(self.ask_at)
            };
        }
        let next = self.tree.take(cx);
        if let Next::Packet(_) = &next {
            self.credit -= cost_bytes;
            self.went(leaf, len, cost_bytes);
        }
        next
    }

    fn backlog(&self) -> Backlog {
        self.tree.backlog()
    }

    fn is_empty(&self) -> bool {
        self.tree.is_empty()
    }

    fn flush(&mut self, cx: &mut Cx, reason: DropReason) {
        let before = cx.dropped.packets();
        self.tree.flush(cx, reason);
        self.note_dropped(cx, before);
        self.give_back(cx.now);
    }

    fn reconfigure(&mut self, cx: &mut Cx, class: &str, params: &Params) -> Result<(), ParamError> {
        if let Some((word, _)) = params.iter().find(|(word, _)| self.fixed.contains(word)) {
            let expected =
                "words of its queue: the shares of a port that is spread over cores stay as they are";
            return Err(ParamError::new(class, word, word, expected));
        }
        let before = cx.dropped.packets();
        let result = self.tree.reconfigure_below(cx, class, params);
        self.note_dropped(cx, before);
        result
    }

    fn visit_stats(&self, visit: &mut dyn Visit) {
        self.tree.visit_stats(visit);
    }

    fn check(&self, cx: &Cx) -> Result<(), Broken> {
        self.tree.check(cx)?;
        let broken = |what| Err(Broken { discipline: "part", what });
        let levels = self.levels.iter().fold(Backlog::default(), |sum, level| sum + level.backlog);
        let of_classes: u64 = self.classes.iter().map(|class| u64::from(class.packets)).sum();
        if levels != self.tree.backlog() || of_classes != levels.packets {
            return broken("its levels and the tree disagree about what waits");
        }
        let busy = self.classes.iter().filter(|class| class.packets > 0);
        let busy_bps: u64 = busy.map(|class| class.weight.as_bps()).sum();
        if busy_bps != self.levels.iter().map(|level| level.busy_bps).sum() {
            return broken("a class that has packets does not count");
        }
        Ok(())
    }

    fn on_sent(&mut self, cx: &mut Cx, id: &PacketId, at: Instant) {
        self.tree.on_sent(cx, id, at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{FrameRef, Meta};
    use crate::queue::{Curve, Value};
    use crate::sched::testing::{class, node};
    use crate::sched::{Node, Registry, Tree};
    use crate::spread::{Loan, cut};
    use crate::units::{Duration, Rate};
    use alloc::sync::Arc;
    use std::sync::Mutex;
    use std::vec::Vec;

    /// What a part has asked for and given back; what it gets.
    #[derive(Default)]
    struct Told {
        asked: Vec<(u8, u64)>,
        given_back: u64,
        lend: bool,
        /// Of each that asked: how far it said that it had come.
        claims: Vec<Fine>,
        virtual_time: Fine,
    }
    struct Lender(Arc<Mutex<Told>>);
    impl Lend for Lender {
        fn ask(&mut self, now: Instant, ask: Ask) -> Loan {
            let mut told = self.0.lock().unwrap();
            told.asked.push((ask.level, ask.bytes));
            told.claims.push(ask.virtual_time);
            let bytes = if told.lend { ask.bytes } else { 0 };
            let virtual_time = told.virtual_time.max(ask.virtual_time);
            told.virtual_time = virtual_time;
            Loan { bytes, at: now + Duration::from_millis(1), virtual_time }
        }
        fn give_back(&mut self, _: Instant, bytes: u64) {
            self.0.lock().unwrap().given_back += bytes;
        }
    }

    /// Classes `low` and `high` of a PRIQ, packets of 1,000 bytes, a quantum of 10,000.
    fn priq() -> (Tree, Cx, Arc<Mutex<Told>>) {
        let mut priq = node("priq", &[]);
        priq.classes.push(class("low", &[]));
        priq.classes.push(class("high", &[("priority", Value::Count(7))]));
        part_of(&priq)
    }
    /// A class `b` of an HFSC.
    fn shares() -> (Tree, Cx, Arc<Mutex<Told>>) {
        let mut hfsc = node("hfsc", &[]);
        let rate = Rate::from_mbps(4);
        let ls = Curve { m1: rate, d: Duration::ZERO, m2: rate };
        hfsc.classes.push(class("b", &[("ls", Value::Curve(ls)), ("qlimit", Value::Count(100))]));
        part_of(&hfsc)
    }
    fn part_of(node: &Node) -> (Tree, Cx, Arc<Mutex<Told>>) {
        let link = Link::new(Rate::from_mbps(8), 0, 1_500);
        let told = Arc::new(Mutex::new(Told::default()));
        let plan = cut(&Registry::builtin(), node, link, 1).unwrap().remove(0);
        let tree = plan.build(&Registry::builtin(), link, 10_000, Box::new(Lender(told.clone()))).unwrap();
        (tree, Cx::new(128, link, 1), told)
    }
    fn offer(tree: &mut Tree, cx: &mut Cx, leaf: u32, packets: u32) {
        for _ in 0..packets {
            let mut meta = Meta::new(1_000, cx.now, FrameRef(0));
            meta.leaf = leaf;
            let id = cx.packets.insert(meta).unwrap();
            assert_eq!(tree.discipline.enqueue(cx, id), Verdict::Queued);
        }
    }
    fn serve(tree: &mut Tree, cx: &mut Cx) -> Option<u32> {
        let Next::Packet(id) = tree.discipline.dequeue(cx) else { return None };
        tree.discipline.check(cx).unwrap();
        let leaf = cx.packets.get(&id).leaf;
        cx.packets.remove(id);
        Some(leaf)
    }

    #[test]
    fn it_asks_for_what_waits_and_a_quantum_at_most() {
        let (mut tree, mut cx, told) = priq();
        offer(&mut tree, &mut cx, 0, 3);
        assert_eq!(tree.discipline.dequeue(&mut cx), Next::At(Instant::from_millis(1)));
        assert_eq!(serve(&mut tree, &mut cx), None, "it is not asked again before its turn");
        offer(&mut tree, &mut cx, 0, 20);
        cx.now = Instant::from_millis(1);
        told.lock().unwrap().lend = true;
        assert_eq!(serve(&mut tree, &mut cx), Some(0));
        assert_eq!(told.lock().unwrap().asked, [(0, 3_000), (0, 10_000)]);
        // At less than half a quantum it asks for the next one.
        for _ in 0..5 {
            assert_eq!(serve(&mut tree, &mut cx), Some(0));
        }
        assert_eq!(told.lock().unwrap().asked.len(), 2);
        assert_eq!(serve(&mut tree, &mut cx), Some(0));
        assert_eq!(told.lock().unwrap().asked.last(), Some(&(0, 10_000)));
        // What is not needed goes back.
        tree.discipline.flush(&mut cx, DropReason::Flush);
        assert_eq!(told.lock().unwrap().given_back, 13_000);
    }

    /// While `b` of another part rests, time goes on; when it comes back it has its share from then on, and nothing of
    /// what it missed.
    #[test]
    fn a_class_that_rested_claims_nothing() {
        let (mut tree, mut cx, told) = shares();
        told.lock().unwrap().lend = true;
        offer(&mut tree, &mut cx, 0, 1);
        assert_eq!(serve(&mut tree, &mut cx), Some(0));
        told.lock().unwrap().virtual_time = Fine::from_nanos(1_000_000_000);
        offer(&mut tree, &mut cx, 0, 90);
        while serve(&mut tree, &mut cx).is_some() {}
        let claims = told.lock().unwrap().claims.clone();
        assert!(claims.len() > 5, "{claims:?}");
        // What it held when it came back is for it; what it asks for next starts at the link's time.
        let behind = claims[2..].iter().filter(|&&claim| claim < Fine::from_nanos(1_000_000_000));
        assert_eq!(behind.count(), 0, "{claims:?}");
    }

    /// A packet of the higher level asks for itself alone: none of the lower goes on its credit.
    #[test]
    fn no_class_goes_on_the_credit_of_a_higher_one() {
        let (mut tree, mut cx, told) = priq();
        offer(&mut tree, &mut cx, 0, 9);
        assert_eq!(serve(&mut tree, &mut cx), None);
        offer(&mut tree, &mut cx, 1, 2);
        told.lock().unwrap().lend = true;
        // The low packet that was shown goes first; PRIQ over any wire has that much inversion.
        let order: Vec<_> = (0..3).map(|_| serve(&mut tree, &mut cx)).collect();
        assert_eq!(order, [Some(0), Some(1), Some(1)]);
        let asked = told.lock().unwrap().asked.clone();
        assert_eq!(asked[0], (0, 9_000), "first for the low ones");
        assert!(asked[1..].iter().all(|&(level, bytes)| level == 7 && bytes <= 2_000), "{asked:?}");
    }

    #[test]
    fn shares_stay_and_queues_may_change() {
        let (mut tree, mut cx, _) = priq();
        let change = |word, value| Params::new().with(word, value);
        let mut try_to = |params: Params| tree.discipline.reconfigure(&mut cx, "high", &params);
        assert_eq!(try_to(change("qlimit", Value::Count(7))), Ok(()));
        let refused =
            try_to(change("priority", Value::Count(3)).with("qlimit", Value::Count(9))).unwrap_err();
        assert_eq!(refused.field, "priority");
    }
}
