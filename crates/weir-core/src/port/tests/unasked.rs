//! Calls that give a discipline nothing to do may be left out where it says so.

use super::*;
use crate::Random;
use crate::queue::{Value, Verdict};
use crate::sched::testing::{class, node};
use std::format;
use std::string::String;

/// What a discipline is taken to say of `hears_sent` and `turns_when_empty`, instead of what it says. One that
/// `minds` drops a packet for each time that it was asked in vain.
struct Saying {
    tree: Box<dyn Discipline>,
    says: bool,
    minds: bool,
    in_vain: u32,
}

impl Discipline for Saying {
    fn enqueue(&mut self, cx: &mut Cx, id: PacketId) -> Verdict {
        if self.minds && self.in_vain > 0 {
            self.in_vain -= 1;
            cx.drop(id, DropReason::Tail);
            return Verdict::Dropped;
        }
        self.tree.enqueue(cx, id)
    }
    fn dequeue(&mut self, cx: &mut Cx) -> Next {
        let next = self.tree.dequeue(cx);
        self.in_vain += u32::from(next == Next::Idle);
        next
    }
    fn backlog(&self) -> Backlog {
        self.tree.backlog()
    }
    fn flush(&mut self, cx: &mut Cx, reason: DropReason) {
        self.tree.flush(cx, reason);
    }
    fn reconfigure(&mut self, cx: &mut Cx, class: &str, params: &Params) -> Result<(), ParamError> {
        self.tree.reconfigure(cx, class, params)
    }
    fn visit_stats(&self, visit: &mut dyn Visit) {
        self.tree.visit_stats(visit);
    }
    fn check(&self, cx: &Cx) -> Result<(), Broken> {
        self.tree.check(cx)
    }
    fn on_sent(&mut self, cx: &mut Cx, id: &PacketId, at: Instant) {
        self.tree.on_sent(cx, id, at);
    }
    fn hears_sent(&self) -> bool {
        self.says
    }
    fn turns_when_empty(&self) -> bool {
        self.says
    }
}

/// One tree of each kind: with and without disciplines below, and with estimates made when packets have left.
fn trees() -> [Node; 8] {
    let share = |percent| Value::Fraction(crate::units::Fraction::ratio(percent, 100));
    let rate = Value::Rate(Rate::from_mbps(2));
    let mut priq = node("priq", &[]);
    priq.classes.push(class("low", &[("default", Value::Flag)]));
    priq.classes.push(class("high", &[("priority", Value::Count(1)), ("red", Value::Flag)]));
    let mut hfsc = node("hfsc", &[]);
    hfsc.classes.push(class("a", &[("bandwidth", rate.clone()), ("default", Value::Flag)]));
    hfsc.classes.push(class("b", &[("bandwidth", rate)]));
    let mut cbq = node("cbq", &[]);
    cbq.classes.push(class("root", &[("pbandwidth", share(100))]));
    for (name, percent) in [("a", 20), ("b", 60)] {
        let mut leaf = class(name, &[("pbandwidth", share(percent)), ("default", Value::Flag)]);
        leaf.parent = Some(0);
        cbq.classes.push(leaf);
    }
    let below = |node: &Node| {
        let mut node = node.clone();
        if let Some(class) = node.classes.last_mut() {
            class.queue = Some(fq_codel());
        }
        node
    };
    let mut callback = cbq.clone();
    callback.params = callback.params.with("completion", Value::Word("callback"));
    [below(&priq), below(&hfsc), below(&cbq), fq_codel(), priq, hfsc, cbq, callback]
}

fn fq_codel() -> Node {
    node("fq_codel", &[])
}

/// All that a host hears of random packets, each with its time.
fn history(tree: &Node, wire: WireConfig, seed: u64, says: Option<(bool, bool)>) -> Vec<String> {
    let mut tree = Registry::builtin().build(tree, link()).unwrap();
    if let Some((says, minds)) = says {
        tree.discipline = Box::new(Saying { tree: tree.discipline, says, minds, in_vain: 0 });
    }
    let leaves = tree.leaves.len() as u64;
    let (mut port, mut random) = (open(PortConfig::new(link(), wire), tree), Random::new(seed));
    let (mut heard, mut now) = (Vec::new(), Instant::ZERO);
    for frame in 0..400 {
        let mut hear =
            |event: Event<'_>| heard.push(format!("{:?} {} {:?}", event.at, event.meta.frame.0, event.kind));
        now += Duration::from_micros([0, 100, 500, 1_000, 2_000][random.below(5) as usize]);
        port.advance(now, &mut hear);
        let mut meta = packet(frame, 60 + random.below(1_400) as u32);
        (meta.leaf, meta.flow) = (random.below(leaves) as u32, random.below(5) as u32);
        port.offer(now, meta, &mut hear);
        port.check().unwrap();
    }
    heard
}

/// A port that leaves calls out because the tree says that they change nothing tells the same as one that makes
/// all of them. Reversed: CBQ with `completion callback` learns only from packets that have left, and a tree may
/// mind being asked in vain. A port that leaves these calls out tells something else.
#[test]
fn calls_that_a_tree_does_not_want_change_nothing() {
    let wires = [
        WireConfig::Open,
        WireConfig::Regulator { depth_bytes: 1_500 },
        WireConfig::Link { ring: 2, refill: Refill::Packet },
    ];
    let (mut unheard, mut in_vain) = ([0; 8], 0);
    for seed in weir_seed::seeds(10) {
        for wire in wires {
            for (tree, unheard) in trees().iter().zip(&mut unheard) {
                let told = |says| history(tree, wire, seed, says);
                let all = told(Some((true, false)));
                assert_eq!(told(None), all, "seed {seed}, {wire:?}: {tree:?}");
                *unheard += u32::from(told(Some((false, false))) != all);
                in_vain += u32::from(told(Some((false, true))) != told(Some((true, true))));
            }
        }
    }
    assert!(unheard[7] > 0 && in_vain > 0, "{unheard:?}, {in_vain}");
    assert_eq!(unheard[3..7], [0; 4], "of trees that want neither");
}
