//! A06 where a parent looks at a leaf: what `head` showed is what `take` gives, whatever the
//! leaf's AQM pushes out in between. (`Child` over disciplines is in the conformance suite.)

use weir_core::Random;
use weir_core::aqm::{Aqm, Decision, Departures, TailDrop};
use weir_core::packet::{FrameRef, List, Meta, PacketId};
use weir_core::queue::{Child, Cx, DropReason, Head, Leaf, Link, Next, Verdict};
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
