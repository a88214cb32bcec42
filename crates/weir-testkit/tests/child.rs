//! A06 where a parent looks at a leaf: what `head` showed is what `take` gives, whatever the
//! leaf's AQM pushes out in between. (`Child` over disciplines is in the conformance suite.)

use std::collections::VecDeque;
use std::sync::mpsc::{Sender, channel};
use weir_core::Random;
use weir_core::aqm::{Aqm, Decision, Departures, TailDrop};
use weir_core::packet::{FrameRef, List, Meta, PacketId};
use weir_core::queue::{
    Backlog, Broken, Child, Cx, Discipline, DropReason, Head, Kind, Leaf, Link, Next, ParamError, ParamSpec,
    Params, Routes, Value, Verdict, Visit,
};
use weir_core::sched::Fifo;
use weir_core::units::{Duration, Instant, Rate};

/// Drops a random packet of a full queue (A04).
struct RandomVictim;
impl Aqm for RandomVictim {
    fn arrive(&mut self, cx: &mut Cx, queue: &List, limit: u32, _: &PacketId) -> Decision {
        if queue.packets() < limit || cx.adopting() {
            return Decision::Accept;
        }
        Decision::PushOut(cx.random.below(u64::from(limit) + 1) as u32, DropReason::Pushout)
    }
}

/// Drops a random packet of a full queue, and the newcomer with it.
struct Both;
impl Aqm for Both {
    fn arrive(&mut self, cx: &mut Cx, queue: &List, limit: u32, _: &PacketId) -> Decision {
        if queue.packets() < limit || cx.adopting() {
            return Decision::Accept;
        }
        Decision::DropBoth(cx.random.below(u64::from(limit)) as u32, DropReason::Early)
    }
}

/// Drops every third packet at its departure.
struct Departing(u32);
impl Aqm for Departing {
    fn arrive(&mut self, _: &mut Cx, queue: &List, limit: u32, _: &PacketId) -> Decision {
        if queue.packets() < limit { Decision::Accept } else { Decision::PushOut(0, DropReason::Head) }
    }
    fn depart(&mut self, _: &mut Cx, _: &List, _: &PacketId) -> Decision {
        self.0 += 1;
        if self.0.is_multiple_of(3) { Decision::Drop(DropReason::Early) } else { Decision::Accept }
    }
    fn departures(&self) -> Departures {
        Departures::Decides
    }
}

/// Random calls; every packet has a length of its own, so a length is an identity.
fn a06_holds(name: &str, child: impl Fn() -> Child) {
    const CALLS: u32 = 100_000;
    for seed in weir_seed::seeds(3) {
        let mut random = Random::new(seed);
        let mut cx = Cx::new(64, Link::new(Rate::from_mbps(10), 24, 1_514), seed);
        let mut child = child();
        let (mut shown, mut interleaved) = (None, 0);
        for call in 0..CALLS {
            let told = format!("{name}, seed {seed}, call {call}");
            match random.below(10) {
                0..=4 => {
                    if let Ok(id) = cx.packets.insert(Meta::new(call + 1, cx.now, FrameRef(call))) {
                        let _ = child.enqueue(&mut cx, id);
                        interleaved += u32::from(shown.is_some());
                    }
                }
                5..=6 => match child.head(&mut cx) {
                    Head::Packet { len } => {
                        assert_eq!(*shown.get_or_insert(len), len, "{told}: head changed its mind");
                        let meta = child.head_meta(&cx).map(|row| (row.len, row.frame.0 + 1));
                        assert_eq!(meta, Some((len, len)), "{told}: head_meta speaks of another packet");
                    }
                    other => assert_eq!((other, shown), (Head::Idle, None), "{told}"),
                },
                7..=8 => match child.take(&mut cx) {
                    Next::Packet(id) => {
                        let len = cx.packets.get(&id).len;
                        assert_eq!(shown.take().unwrap_or(len), len, "{told}: take gave another");
                        cx.packets.remove(id);
                    }
                    other => assert_eq!((other, shown), (Next::Idle, None), "{told}"),
                },
                // A parent chooses its own victim, as JoBS does: the newest packet. The one that was
                // shown is it only where there is no other.
                9 if call % 2 == 0 && child.as_leaf().is_some() => {
                    let newest = child.as_leaf_mut().and_then(|leaf| leaf.pop_back(&mut cx));
                    if let Some(id) = newest {
                        let (len, left) = (cx.packets.get(&id).len, child.backlog().packets);
                        if shown == Some(len) {
                            assert_eq!(left, 0, "{told}: the oldest packet was taken as the newest");
                            shown = None;
                        }
                        cx.drop(id, DropReason::Pushout);
                    }
                }
                _ => cx.now += Duration::from_nanos(random.below(10_000_000)),
            }
            let meta = child.head_meta(&cx).map(|row| row.len);
            assert_eq!(meta, shown, "{told}: head_meta forgets, or knows what was not shown");
            while let Some((id, _)) = cx.next_dropped() {
                assert_ne!(Some(cx.packets.get(&id).len), shown, "{told}: the shown packet died");
                cx.packets.remove(id);
            }
            assert_eq!(u64::from(cx.packets.live()), child.backlog().packets, "{told}");
        }
        assert!(interleaved > 10_000, "{name}: only {interleaved} arrivals after a head");
    }
}

#[test]
fn a06_head_shows_what_take_gives_from_a_leaf() {
    let leaf = |limit, aqm: fn() -> Box<dyn Aqm>| move || Child::leaf(Leaf::custom(limit, aqm()));
    a06_holds("tail drop", || Child::leaf(Leaf::tail_drop(5)));
    a06_holds("drop head", leaf(5, || Box::new(TailDrop { head: true })));
    a06_holds("drop head of one", leaf(1, || Box::new(TailDrop { head: true })));
    a06_holds("random victim", leaf(5, || Box::new(RandomVictim)));
    a06_holds("both", leaf(5, || Box::new(Both)));
    a06_holds("both of one", leaf(1, || Box::new(Both)));
    a06_holds("at departure", leaf(5, || Box::new(Departing(0))));
    a06_holds("a discipline", || Child::inner(Box::new(Fifo::new(Leaf::custom(5, Box::new(Both))))));
}

#[test]
fn drop_both_takes_the_newcomer_and_the_packet_at_the_position() {
    let mut cx = Cx::new(64, Link::new(Rate::from_mbps(10), 24, 1_514), 4);
    let mut leaf = Leaf::custom(5, Box::new(Both));
    for round in 0..200 {
        while leaf.backlog().packets < 5 {
            let id = cx.packets.insert(Meta::new(100, cx.now, FrameRef(0))).expect("few are alive");
            assert_eq!(leaf.enqueue(&mut cx, id), Verdict::Queued);
        }
        let id = cx.packets.insert(Meta::new(100, cx.now, FrameRef(7))).expect("few are alive");
        assert_eq!(leaf.enqueue(&mut cx, id), Verdict::Dropped, "round {round}");
        let mut frames = Vec::new();
        while let Some((id, reason)) = cx.next_dropped() {
            frames.push((cx.packets.get(&id).frame.0, reason));
            cx.packets.remove(id);
        }
        assert_eq!(frames, [(0, DropReason::Early), (7, DropReason::Early)], "round {round}");
        assert_eq!(leaf.backlog().packets, 4, "round {round}");
    }
}

/// A04: among n queued packets and the newcomer, each is the victim as often as the others.
#[test]
fn a04_a_random_victim_may_be_the_newcomer() {
    const LIMIT: u32 = 9;
    const ARRIVALS: u32 = 20_000;
    let mut cx = Cx::new(64, Link::new(Rate::from_mbps(10), 24, 1_514), 4);
    let mut leaf = Leaf::custom(LIMIT, Box::new(RandomVictim));
    let mut refused = 0u32;
    for serial in 0..LIMIT + ARRIVALS {
        let meta = Meta::new(100, Instant::ZERO, FrameRef(serial));
        let id = cx.packets.insert(meta).expect("at most ten packets are alive");
        let _ = leaf.enqueue(&mut cx, id);
        if let Some((dead, reason)) = cx.next_dropped() {
            assert_eq!(reason, DropReason::Pushout);
            refused += u32::from(cx.packets.get(&dead).frame.0 == serial);
            cx.packets.remove(dead);
        }
    }
    // p = 1/10: 2000 expected, a standard deviation of 42.
    assert!((1_874..=2_126).contains(&refused), "{refused} of {ARRIVALS}");
}

/// Decides at random, and tells what.
struct Scripted {
    tells: Sender<Decision>,
    random: Random,
    hears: Departures,
}
impl Scripted {
    fn draw(&mut self, queued: u32) -> Decision {
        let position = self.random.below(u64::from(queued) + 2) as u32;
        let decision = match self.random.below(10) {
            0 => Decision::Drop(DropReason::Early),
            1 | 2 => Decision::Mark(DropReason::Tail),
            3 | 4 => Decision::PushOut(position, DropReason::Pushout),
            5 => Decision::DropBoth(position, DropReason::Head),
            _ => Decision::Accept,
        };
        self.tells.send(decision).expect("the test listens");
        decision
    }
}
impl Aqm for Scripted {
    fn arrive(&mut self, _: &mut Cx, queue: &List, _: u32, _: &PacketId) -> Decision {
        self.draw(queue.packets())
    }
    fn depart(&mut self, _: &mut Cx, queue: &List, _: &PacketId) -> Decision {
        self.draw(queue.packets())
    }
    fn departures(&self) -> Departures {
        self.hears
    }
}

/// A queue as the contract of AQMs has it. Packets are (number, ECN bits).
#[derive(Default)]
struct Plain {
    list: VecDeque<(u32, u8)>,
    shown: bool,
    marked: i64,
    longest: i64,
    dropped: Vec<(u32, DropReason)>,
}

impl Plain {
    fn drop_at(&mut self, position: u32, reason: DropReason) {
        self.dropped.extend(self.list.remove(position as usize).map(|packet| (packet.0, reason)));
    }
    fn push(&mut self, packet: (u32, u8)) {
        self.list.push_back(packet);
        self.longest = self.longest.max(self.list.len() as i64);
    }
    /// What becomes of a packet at its arrival; whether it stays.
    fn arrive(&mut self, packet: (u32, u8), decision: Decision) -> bool {
        match decision {
            Decision::Accept => self.push(packet),
            Decision::Mark(_) if packet.1 != 0 => {
                self.marked += 1;
                self.push((packet.0, 3));
            }
            Decision::Mark(reason) | Decision::Drop(reason) => {
                self.dropped.push((packet.0, reason));
                return false;
            }
            Decision::PushOut(position, reason) => {
                self.list.push_back(packet);
                let position = position.max(u32::from(self.shown)).min(self.list.len() as u32 - 1);
                self.drop_at(position, reason);
                return position < self.list.len() as u32;
            }
            Decision::DropBoth(position, reason) => {
                if position > 0 || !self.shown {
                    self.drop_at(position, reason);
                }
                self.dropped.push((packet.0, reason));
                return false;
            }
        }
        true
    }
    /// The next packet that survives its departure.
    fn depart(&mut self, hears: Departures, mut decision: impl FnMut() -> Decision) -> Option<(u32, u8)> {
        self.shown = false;
        loop {
            let (frame, ecn) = self.list.pop_front()?;
            let decided = if hears == Departures::None { Decision::Accept } else { decision() };
            match decided {
                Decision::Mark(_) if hears == Departures::Decides && ecn != 0 => {
                    self.marked += 1;
                    return Some((frame, 3));
                }
                Decision::Mark(reason) | Decision::Drop(reason) if hears == Departures::Decides => {
                    self.dropped.push((frame, reason));
                }
                _ => return Some((frame, ecn)),
            }
        }
    }
}

/// Random decisions at arrivals and departures: packets leave, are dropped and are marked as a plain
/// queue has it, in the same order and for the same reasons.
#[test]
fn a_leaf_does_what_its_aqm_decides() {
    for hears in [Departures::None, Departures::Every, Departures::Decides] {
        for seed in weir_seed::seeds(20) {
            let (tells, told) = channel();
            let mut decided = || told.try_recv().expect("the AQM was asked");
            let scripted = Scripted { tells, random: Random::new(!seed), hears };
            let mut child = Child::leaf(Leaf::custom(5, Box::new(scripted)));
            let mut cx = Cx::new(4_096, Link::new(Rate::from_mbps(10), 24, 1_514), seed);
            let (mut random, mut plain, mut held) = (Random::new(seed), Plain::default(), None);
            for call in 0..3_000u32 {
                let case = format!("{hears:?}, seed {seed}, call {call}");
                let expected = match random.below(10) {
                    0..=4 => {
                        let mut meta = Meta::new(100, cx.now, FrameRef(call));
                        meta.ecn = random.below(4) as u8;
                        let packet = (call, meta.ecn);
                        let id = cx.packets.insert(meta).expect("room in the table");
                        let stays = child.enqueue(&mut cx, id) == Verdict::Queued;
                        assert_eq!(stays, plain.arrive(packet, decided()), "{case}");
                        None
                    }
                    5 | 6 if hears == Departures::Decides => {
                        let head = child.head(&mut cx);
                        held = held.or_else(|| plain.depart(hears, &mut decided));
                        assert_eq!(head == Head::Idle, held.is_none(), "{case}");
                        None
                    }
                    5 | 6 => {
                        let head = child.head(&mut cx);
                        plain.shown |= !plain.list.is_empty();
                        assert_eq!(head == Head::Idle, plain.list.is_empty(), "{case}");
                        None
                    }
                    9 if random.below(20) == 0 => {
                        child.flush(&mut cx, DropReason::Flush);
                        let packets = plain.list.drain(..).map(|packet| packet.0);
                        let all = held.take().map(|packet: (u32, u8)| packet.0).into_iter().chain(packets);
                        plain.dropped.extend(all.map(|frame| (frame, DropReason::Flush)));
                        plain.shown = false;
                        None
                    }
                    _ => {
                        let taken = match child.take(&mut cx) {
                            Next::Packet(id) => Some(id),
                            _ => None,
                        };
                        let expected = held.take().or_else(|| plain.depart(hears, &mut decided));
                        let row = taken.as_ref().map(|id| cx.packets.get(id));
                        assert_eq!(row.map(|row| (row.frame.0, row.ecn)), expected, "{case}");
                        taken
                    }
                };
                expected.into_iter().for_each(|id| cx.packets.remove(id));
                let mut dropped = Vec::new();
                while let Some((id, reason)) = cx.next_dropped() {
                    dropped.push((cx.packets.get(&id).frame.0, reason));
                    cx.packets.remove(id);
                }
                assert_eq!(dropped, std::mem::take(&mut plain.dropped), "{case}");
                let waits = plain.list.len() as u64 + u64::from(held.is_some());
                assert_eq!(child.backlog(), Backlog { packets: waits, bytes: 100 * waits }, "{case}");
                assert_eq!(child.is_empty(), waits == 0, "{case}");
            }
            let mut shows = Shows::default();
            child.visit_stats(&mut shows);
            let waits = plain.list.len() as i64 + i64::from(held.is_some());
            assert_eq!(
                shows.0,
                [waits, 100 * waits, plain.longest, 5, plain.marked],
                "{hears:?}, seed {seed}"
            );
        }
    }
}

/// All values, in their order.
#[derive(Default)]
struct Shows(Vec<i64>);
impl Visit for Shows {
    fn class(&mut self, _: &str, _: u32) {}
    fn value(&mut self, _: &'static str, _: &'static str, value: i64) {
        self.0.push(value);
    }
}

/// Knows the class `inner` with its word `known`, and tells which changes it is asked for.
struct Asked(Sender<(String, Vec<String>)>);
impl Discipline for Asked {
    fn enqueue(&mut self, cx: &mut Cx, id: PacketId) -> Verdict {
        cx.drop(id, DropReason::Tail);
        Verdict::Dropped
    }
    fn dequeue(&mut self, _: &mut Cx) -> Next {
        Next::Idle
    }
    fn backlog(&self) -> Backlog {
        Backlog::default()
    }
    fn flush(&mut self, _: &mut Cx, _: DropReason) {}
    fn reconfigure(&mut self, _: &mut Cx, class: &str, params: &Params) -> Result<(), ParamError> {
        let words = params.iter().map(|(name, _)| name.to_string()).collect();
        self.0.send((class.to_string(), words)).expect("the test listens");
        match class {
            "" => Ok(()),
            "inner" if params.has("known") => Ok(()),
            "inner" => Err(ParamError::new(class, "known", "nothing", "it")),
            _ => Err(ParamError::new(class, "class", class, "a class of this interface")),
        }
    }
    fn visit_stats(&self, _: &mut dyn Visit) {}
    fn check(&self, _: &Cx) -> Result<(), Broken> {
        Ok(())
    }
}

const OF_PARENT: &[ParamSpec] = &[
    ParamSpec::class("weight", Kind::Count { min: 1, max: 9 }, "1", "A share."),
    ParamSpec::class("qlimit", Kind::Count { min: 1, max: 9 }, "9", "Queue length, packets."),
];

/// A change of a class hands its queue what that may know. What the parent alone declares stays with
/// the parent, and is in range before the queue hears of anything.
#[test]
fn a_queue_hears_of_its_own_parameters() {
    let mut cx = Cx::new(4, Link::new(Rate::from_mbps(10), 24, 1_514), 1);
    let (says, heard) = channel();
    let mut child = Child::inner(Box::new(Asked(says)));
    let mut change = |words: &[(&'static str, u64)]| {
        let params = words.iter().fold(Params::new(), |p, (name, n)| p.with(name, Value::Count(*n)));
        let result = child.reconfigure_queue(&mut cx, "c", &params, &[OF_PARENT]);
        (result.map_err(|e| e.field), heard.try_iter().collect::<Vec<_>>())
    };
    let told = |words: &[&str]| (String::new(), words.iter().map(ToString::to_string).collect::<Vec<_>>());
    assert_eq!(change(&[("weight", 3)]), (Ok(()), vec![]), "the parent's own");
    assert_eq!(change(&[]), (Ok(()), vec![told(&[])]), "nothing at all, as if it stood alone");
    assert_eq!(change(&[("qlimit", 3)]), (Ok(()), vec![told(&["qlimit"])]), "what speaks of queues");
    assert_eq!(change(&[("weight", 3), ("other", 4)]), (Ok(()), vec![told(&["other"])]));
    assert_eq!(change(&[("other", 4), ("weight", 10)]), (Err("weight".into()), vec![]));
}

/// The first child that has the class decides; a child that has it and refuses is not passed over.
#[test]
fn a_change_goes_to_the_child_that_has_the_class() {
    let mut cx = Cx::new(4, Link::new(Rate::from_mbps(10), 24, 1_514), 1);
    let (says, heard) = channel();
    let mut children = [
        Child::leaf(Leaf::tail_drop(9)),
        Child::inner(Box::new(Asked(says.clone()))),
        Child::inner(Box::new(Asked(says))),
    ];
    let mut change = |class: &str, word: &'static str| {
        let params = Params::new().with(word, Value::Count(1));
        let result = Child::reconfigure_one_of(children.iter_mut(), &mut cx, class, &params);
        (result.map_err(|e| e.field), heard.try_iter().count())
    };
    assert_eq!(change("inner", "known"), (Ok(()), 1));
    assert_eq!(change("inner", "unknown"), (Err("known".into()), 1));
    assert_eq!(change("nobody", "known"), (Err("class".into()), 2));
}

#[test]
fn routes_lead_to_the_child_above_a_leaf() {
    let routes = Routes::new(&[7..9, 4..5, 5..7]);
    let found: Vec<_> = (2..11).map(|leaf| routes.child(leaf)).collect();
    assert_eq!(found, [None, None, Some(1), Some(2), Some(2), Some(0), Some(0), None, None]);
    assert_eq!(Routes::new(&[]).child(0), None);
}
