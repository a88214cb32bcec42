//! HFSC against its theory, on a link driven by hand.

use super::*;
use crate::Random;
use crate::packet::{FrameRef, Meta};
use crate::queue::{Cause, Link, Value};
use crate::sched::{ClassConfig, Registry};
use crate::units::{Duration, Rate};
use alloc::string::{String, ToString};
use std::vec;

mod changes;
mod virtual_time;

const LINK_BPS: u64 = 10_000_000;

fn curve(m1: u64, d_ms: u64, m2: u64) -> Value {
    Value::Curve(Curve { m1: Rate::from_bps(m1), d: Duration::from_millis(d_ms), m2: Rate::from_bps(m2) })
}
fn linear(bps: u64) -> Value {
    curve(0, 0, bps)
}

/// A link with classes (name, parent, parameters); leaves in order.
struct Rig {
    cx: Cx,
    hfsc: Box<dyn Discipline>,
    names: Vec<String>,
    /// When the wire is free.
    free_ns: u64,
}

impl Rig {
    fn new(classes: &[(&str, Option<usize>, Params)]) -> Self {
        let classes = classes
            .iter()
            .map(|(name, parent, params)| ClassConfig {
                name: name.to_string(),
                parent: *parent,
                params: params.clone().with("qlimit", Value::Count(10_000)),
                queue: None,
            })
            .collect();
        let node = Node { discipline: "hfsc".to_string(), params: Params::new(), classes };
        let link = Link::new(Rate::from_bps(LINK_BPS), 0, 1_500);
        let tree = Registry::builtin().build(&node, link).unwrap();
        Rig {
            cx: Cx::new(60_000, link, 1),
            hfsc: tree.discipline,
            names: tree.leaves.into_iter().map(|leaf| leaf.name).collect(),
            free_ns: 0,
        }
    }
    fn put(&mut self, at_ns: u64, name: &str, len: u32) {
        self.cx.now = Instant::from_nanos(at_ns);
        let mut meta = Meta::new(len, self.cx.now, FrameRef(0));
        meta.leaf = self.names.iter().position(|n| n == name).unwrap() as u32;
        let id = self.cx.packets.insert(meta).unwrap();
        assert_eq!(self.hfsc.enqueue(&mut self.cx, id), Verdict::Queued);
    }
    /// The next packet that starts before `until_ns`: (start, end, leaf, len).
    fn send(&mut self, until_ns: u64) -> Option<(u64, u64, usize, u32)> {
        loop {
            if self.free_ns >= until_ns {
                return None;
            }
            self.cx.now = Instant::from_nanos(self.free_ns.max(self.cx.now.as_nanos()));
            let start = self.cx.now.as_nanos();
            match self.hfsc.dequeue(&mut self.cx) {
                Next::Packet(id) => {
                    let (len, leaf) = (self.cx.packets.get(&id).len, self.cx.packets.get(&id).leaf);
                    self.cx.packets.remove(id);
                    self.free_ns = start + u64::from(len) * 8 * 1_000_000_000 / LINK_BPS;
                    self.hfsc.check(&self.cx).unwrap();
                    return Some((start, self.free_ns, leaf as usize, len));
                }
                Next::At(at) if at.as_nanos() < until_ns => self.free_ns = at.as_nanos(),
                _ => return None,
            }
        }
    }
}

/// Keeps every class backlogged for `seconds` and gives the bytes that each had.
fn saturate(classes: &[(&str, Option<usize>, Params)], seconds: u64) -> Vec<(String, u64)> {
    let mut rig = Rig::new(classes);
    let names = rig.names.clone();
    let mut bytes = vec![0; names.len()];
    for (i, name) in names.iter().enumerate() {
        for n in 0..20 {
            rig.put(0, name, [64, 576, 1500][(n + i) % 3]);
        }
    }
    let mut n = 0;
    while let Some((_, end, leaf, len)) = rig.send(seconds * 1_000_000_000) {
        bytes[leaf] += u64::from(len);
        n += 1;
        let at = end.min(rig.free_ns);
        rig.put(at, &names[leaf], [64, 576, 1500][n % 3]);
    }
    names.into_iter().zip(bytes).collect()
}

fn share_is(bytes: &[(String, u64)], name: &str, percent: u64) -> bool {
    let total: u64 = bytes.iter().map(|b| b.1).sum();
    let own = bytes.iter().find(|b| b.0 == name).unwrap().1;
    own * 1_000 >= total * percent * 10 - total * 5 && own * 1_000 <= total * percent * 10 + total * 5
}

#[test]
fn shares_follow_the_curves() {
    let ls = |bps| Params::new().with("ls", linear(bps));
    let tree = [
        ("x", None, ls(6_000_000)),
        ("x1", Some(0), ls(2_000_000)),
        ("x2", Some(0), ls(4_000_000)),
        ("y", None, ls(2_000_000)),
        ("y1", Some(3), ls(1_500_000)),
        ("y2", Some(3), ls(500_000)),
    ];
    // 6 : 2 of which 1 : 2 and 3 : 1.
    let bytes = saturate(&tree, 10);
    for (name, percent) in [("x1", 25), ("x2", 50), ("y1", 19), ("y2", 6)] {
        assert!(share_is(&bytes, name, percent), "{name}: {bytes:?}");
    }
    assert!(!share_is(&bytes, "x1", 50), "reversed: {bytes:?}");
    // Work conserving: nothing is lost though the curves sum up to less than the link.
    let total: u64 = bytes.iter().map(|b| b.1).sum();
    assert!(total.abs_diff(LINK_BPS / 8 * 10) < 3_000, "{total}");
}

/// A class that is owed and has no share empties its queue beside one that has: that one goes on,
/// and so does their parent.
#[test]
fn a_class_without_a_share_takes_none() {
    let ls = Params::new().with("ls", linear(1_000_000));
    let owed = Params::new().with("rt", linear(1_000_000));
    let mut rig = Rig::new(&[("x", None, ls.clone()), ("owed", Some(0), owed), ("sharing", Some(0), ls)]);
    for n in 0..10 {
        rig.put(0, ["owed", "sharing", "sharing"][n % 3], 1_500);
    }
    // `send` checks the tree after each.
    let sent = core::iter::from_fn(|| rig.send(u64::MAX)).count();
    assert_eq!(sent, 10);
}

/// The fault of the original: `bandwidth` on two classes must share all of the link.
#[test]
fn bandwidth_is_work_conserving() {
    let bandwidth = |bps| Params::new().with("bandwidth", Value::Rate(Rate::from_bps(bps)));
    let mut rig = Rig::new(&[("a", None, bandwidth(2_000_000)), ("b", None, bandwidth(2_000_000))]);
    for n in 0..80 {
        rig.put(0, ["a", "b"][n % 2], 1_500);
    }
    let mut end = 0;
    while let Some(sent) = rig.send(u64::MAX) {
        end = sent.1;
    }
    // 80 * 1500 bytes at 10 Mbit/s.
    assert_eq!(end, 96_000_000);
}

/// Random arrivals that keep within each class's curve: every packet is out by its deadline and
/// one packet's time, whatever link sharing does. Reversed: a class that is owed less misses it.
#[test]
fn deadlines_hold() {
    // A voice class of 1 Mbit/s whose 200-byte packets are due in 2 ms, and two bulk classes.
    let voice = |rate: u64, delay_ms: u64| {
        Params::new()
            .with("rate", Value::Rate(Rate::from_bps(rate)))
            .with("delay", Value::Time(Duration::from_millis(delay_ms)))
            .with("burst", Value::Bytes(200))
    };
    let bulk = |bps| Params::new().with("bandwidth", Value::Rate(Rate::from_bps(bps)));
    for (params, holds) in [(voice(1_000_000, 2), true), (voice(1_000_000, 40), false)] {
        let mut rig = Rig::new(&[
            ("voice", None, params),
            ("b1", None, bulk(5_000_000)),
            ("b2", None, bulk(3_000_000)),
        ]);
        let mut random = Random::new(weir_seed::seed());
        let (mut next_voice, mut voice_arrivals, mut worst) = (0u64, std::collections::VecDeque::new(), 0u64);
        for n in 0..400 {
            rig.put(0, ["b1", "b2"][n % 2], 1_500);
        }
        while let Some((start, end, leaf, _)) = rig.send(4_000_000_000) {
            if leaf == 0 {
                let arrival: u64 = voice_arrivals.pop_front().unwrap();
                worst = worst.max(end - arrival);
            } else {
                rig.put(start, ["", "b1", "b2"][leaf], 1_500);
            }
            while next_voice <= rig.free_ns {
                rig.put(next_voice.max(rig.cx.now.as_nanos()), "voice", 200);
                voice_arrivals.push_back(next_voice);
                // 200 bytes every 1.6 ms are 1 Mbit/s; never faster, so that the curve holds.
                next_voice += 1_600_000 + random.below(400_000);
            }
        }
        // The deadline, and Lmax / C = 1.2 ms.
        assert_eq!(worst <= 2_000_000 + 1_200_000, holds, "worst delay {worst} ns");
    }
}

#[test]
fn the_upper_limit_holds_over_every_interval() {
    let params = |limit: Option<u64>| {
        let p = Params::new().with("ls", linear(8_000_000));
        match limit {
            Some(bps) => p.with("ulimit", Value::Rate(Rate::from_bps(bps))),
            None => p,
        }
    };
    for (limit, holds) in [(Some(1_000_000), true), (None, false)] {
        let mut rig = Rig::new(&[("a", None, params(limit)), ("b", None, params(None))]);
        let mut sent: Vec<(u64, u64)> = Vec::new();
        for _ in 0..3_000 {
            rig.put(0, "a", 1_000);
        }
        // b comes and goes, so that a is now late and now alone.
        let mut random = Random::new(weir_seed::seed());
        for burst in 0..40u64 {
            let at = burst * 100_000_000 + random.below(50_000_000);
            while let Some((start, _, leaf, len)) = rig.send(at) {
                if leaf == 0 {
                    sent.push((start, u64::from(len)));
                }
            }
            for _ in 0..30 {
                rig.put(at.max(rig.cx.now.as_nanos()), "b", 1_500);
            }
        }
        let mut all_hold = true;
        for first in 0..sent.len() {
            let mut bytes = 0;
            for &(at, len) in &sent[first..] {
                bytes += len;
                // Two packets of the MTU, and the one that begins the interval.
                let allowed = (at - sent[first].0) / 8_000 + 2 * 1_500 + 1_000;
                all_hold &= bytes <= allowed;
            }
        }
        assert_eq!(all_hold, holds, "{} packets", sent.len());
        // And it is used: a has its megabit, within the two packets a time that it may catch up on.
        if holds {
            let total: u64 = sent.iter().map(|s| s.1).sum();
            assert!(total * 8 > 3_500_000, "{total} bytes in 4 s");
        }
    }
}

/// A class that empties its queue with every packet, and comes back at once, keeps its limit as one with
/// packets all the time does. Reversed: without the limit it has the link.
#[test]
fn coming_and_going_does_not_evade_the_limit() {
    for limited in [true, false] {
        let ls = Params::new().with("ls", linear(8_000_000));
        let params = if limited { ls.with("ul", linear(1_000_000)) } else { ls };
        let mut rig = Rig::new(&[("a", None, params)]);
        let mut bytes = 0;
        rig.put(0, "a", 1_000);
        while let Some((_, end, _, len)) = rig.send(1_000_000_000) {
            bytes += u64::from(len);
            rig.put(end, "a", 1_000);
        }
        // 125,000 bytes in a second, and the two packets of 1,500 that it may catch up on.
        assert_eq!((122_000..=129_000).contains(&bytes), limited, "{bytes}");
    }
}

#[test]
fn the_guarantee_becomes_a_curve() {
    // 3000 bytes in 10 ms need 2.4 Mbit/s: steeper than the rate.
    let concave = guarantee(Rate::from_mbps(2), Duration::from_millis(10), 3_000);
    assert_eq!(concave.m1.as_bps(), 2_400_000);
    assert_eq!((concave.d, concave.m2), (Duration::from_millis(10), Rate::from_mbps(2)));
    // 1500 bytes in 10 ms need less than the rate: nothing is owed for the first 4 ms.
    let convex = guarantee(Rate::from_mbps(2), Duration::from_millis(10), 1_500);
    assert_eq!((convex.m1, convex.d), (Rate::ZERO, Duration::from_millis(4)));
}

#[test]
fn wrong_curves_are_refused() {
    for (params, field) in [
        (Params::new(), "bandwidth"),
        (Params::new().with("rt", curve(1, 10, 5)), "rt"),
        (Params::new().with("sc", curve(5, 10, 0)), "rt"),
        (Params::new().with("delay", Value::Time(Duration::from_millis(1))), "delay"),
    ] {
        let error = Curves::of("c", &params, Curves::default(), Rate::from_mbps(1)).unwrap_err();
        assert_eq!(error.field, field);
    }
}

/// A rate of 0 is a curve, however it is written.
#[test]
fn curves_of_rate_0_are_taken() {
    for none in [curve(0, 0, 0), curve(5, 0, 0), curve(0, 10, 0)] {
        for name in ["rt", "ls", "sc"] {
            let params = Params::new().with(name, none.clone());
            assert!(Curves::of("c", &params, Curves::default(), Rate::from_mbps(1)).is_ok(), "{params:?}");
        }
    }
}

/// A rate of 0 waits for ever and says so; its packets can still be flushed (A08).
#[test]
fn a08_a_class_that_may_not_send_can_be_flushed() {
    // For ever is for ever, also in the last nanosecond there is.
    for now_ns in [0, u64::MAX - 1] {
        let mut rig = Rig::new(&[("a", None, Params::new().with("rt", curve(0, 0, 0)))]);
        rig.put(now_ns, "a", 100);
        assert_eq!(rig.hfsc.dequeue(&mut rig.cx), Next::Held(Cause::Rate));
        rig.hfsc.flush(&mut rig.cx, DropReason::Flush);
        assert_eq!(rig.hfsc.dequeue(&mut rig.cx), Next::Idle);
        rig.hfsc.check(&rig.cx).unwrap();
    }
}

/// What a class gets by sharing is not held against its guarantee [HFSC97 section 3.2]. A class had
/// the link alone for a second, five times what it is owed. When another takes the link, the first
/// has its guarantee from that moment on. Reversed: without one it has only its little share.
#[test]
fn what_sharing_gave_is_not_taken_off_the_guarantee() {
    let ls = |bps| Params::new().with("ls", linear(bps));
    for (owed, holds) in [(ls(100_000).with("rt", linear(2_000_000)), true), (ls(100_000), false)] {
        let mut rig = Rig::new(&[("owed", None, owed), ("other", None, ls(9_900_000))]);
        for _ in 0..10 {
            rig.put(0, "owed", 1_000);
        }
        let (joins_ns, until_ns, mut joined, mut bytes) = (1_000_000_000, 2_000_000_000, false, [0u64; 2]);
        while let Some((start, end, leaf, len)) = rig.send(until_ns) {
            bytes[leaf] += u64::from(len);
            rig.put(end, ["owed", "other"][leaf], 1_000);
            if start >= joins_ns && !joined {
                assert!(bytes[0] > 1_200_000, "alone it has the link: {bytes:?}");
                (joined, bytes) = (true, [0; 2]);
                for _ in 0..10 {
                    rig.put(end, "other", 1_000);
                }
            }
        }
        // 250,000 bytes in a second, less a packet that is not yet eligible and one on the wire.
        assert_eq!(bytes[0] >= 248_000, holds, "{bytes:?}");
    }
}

#[test]
fn a_packet_for_a_class_without_a_queue_is_dropped_and_reported() {
    let mut hfsc = Hfsc {
        classes: vec![HfscClass::default()],
        owed: Vec::new(),
        overhead: 0,
        by_name: Vec::new(),
        specs: vec![Spec { name: "inner".to_string(), curves: Curves::default(), depth: 1 }],
        share: ShareTree::new(&[share::ROOT]),
        waiting: Tournament::new(1),
        ready: Tournament::new(1),
        stirred: Vec::new(),
        has_inner: false,
        busy: 0,
        routes: Routes::new(core::slice::from_ref(&(0..1))),
    };
    let mut cx = Cx::new(10, Link::new(Rate::from_bps(LINK_BPS), 0, 1_500), 1);
    let id = cx.packets.insert(Meta::new(100, Instant::ZERO, FrameRef(7))).unwrap();
    assert_eq!(hfsc.enqueue(&mut cx, id), Verdict::Dropped);
    assert_eq!(cx.is_broken().map(|broken| broken.discipline), Some("hfsc"));
    let (id, reason) = cx.next_dropped().expect("the packet is handed back, not lost");
    assert_eq!((cx.packets.get(&id).frame, reason), (FrameRef(7), DropReason::Reconfigure));
    cx.packets.remove(id);
    assert_eq!((cx.packets.live(), hfsc.backlog().packets, hfsc.is_empty()), (0, 0, true));
}
