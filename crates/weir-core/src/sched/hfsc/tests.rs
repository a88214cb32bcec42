//! HFSC against its theory, on a link driven by hand.

use super::*;
use crate::Random;
use crate::packet::{FrameRef, Meta};
use crate::queue::{Link, Value};
use crate::sched::{Node, Registry};
use crate::units::Duration;
use alloc::string::ToString;
use std::vec;

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
            .map(|(name, parent, params)| registry::ClassConfig {
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

/// Classes of 4 and 2 bit/s have the whole link: their virtual times run ten million times as fast
/// as the clock, and still divide it 2 : 1 when the keys have been counted anew.
#[test]
fn virtual_time_may_run_far_ahead() {
    let ls = |bps| Params::new().with("ls", linear(bps));
    let bytes = saturate(&[("a", None, ls(4)), ("b", None, ls(2))], 30);
    let ratio = bytes[0].1 * 100 / bytes[1].1;
    assert!((198..=202).contains(&ratio), "{bytes:?}");
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

/// Virtual time runs out of its word after two years: in 10 s here, several times, since 2 bit/s
/// are slow. Nothing shows.
#[test]
fn shares_hold_when_virtual_time_runs_over() {
    let ls = |bps| Params::new().with("ls", linear(bps));
    let tree = [("x", None, ls(6)), ("x1", Some(0), ls(2)), ("x2", Some(0), ls(4)), ("y", None, ls(2))];
    let bytes = saturate(&tree, 30);
    for (name, percent) in [("x1", 25), ("x2", 50), ("y", 25)] {
        assert!(share_is(&bytes, name, percent), "{bytes:?}");
    }
    assert!(!share_is(&bytes, "x1", 50));
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

/// A new upper limit counts from the change on: what the class had before is not held against it.
/// Reversed: without the limit it has more.
#[test]
fn a_new_limit_counts_from_the_change_on() {
    let ls = Params::new().with("ls", linear(1_000_000));
    for (limit, holds) in [(Some(1_000_000), true), (None, false)] {
        let mut rig = Rig::new(&[("a", None, ls.clone())]);
        let (mut changed, mut bytes) = (false, 0);
        for _ in 0..10 {
            rig.put(0, "a", 1_000);
        }
        while let Some((start, end, _, len)) = rig.send(2_000_000_000) {
            rig.put(end, "a", 1_000);
            bytes += u64::from(len);
            if start >= 1_000_000_000 && !changed {
                assert!(bytes > 1_200_000, "it had the link: {bytes}");
                (changed, bytes) = (true, 0);
                if let Some(bps) = limit {
                    let params = Params::new().with("ul", linear(bps));
                    rig.hfsc.reconfigure(&mut rig.cx, "a", &params).unwrap();
                }
            }
        }
        // 125,000 bytes, and two packets of 1,500 that a class may catch up on.
        assert_eq!((121_000..=129_000).contains(&bytes), holds, "{bytes}");
    }
}

/// New shares count from the change on, for classes that have packets all the while: what they had
/// before is not made up for. Reversed: without the change they go on as before.
#[test]
fn new_shares_count_from_the_change_on() {
    for (change, expected) in [(true, 750_000..=1_000_000), (false, 240_000..=260_000)] {
        let ls = |bps| Params::new().with("ls", linear(bps));
        let mut rig = Rig::new(&[("a", None, ls(2_000_000)), ("b", None, ls(6_000_000))]);
        for _ in 0..4_000 {
            rig.put(0, "a", 1_000);
            rig.put(0, "b", 1_000);
        }
        let mut bytes = [0u64; 2];
        while let Some((_, _, leaf, len)) = rig.send(1_000_000_000) {
            bytes[leaf] += u64::from(len);
        }
        assert!(bytes[0].abs_diff(312_500) <= 2_000, "a quarter of the link: {bytes:?}");
        if change {
            rig.hfsc.reconfigure(&mut rig.cx, "a", &ls(8_000_000)).unwrap();
            rig.hfsc.reconfigure(&mut rig.cx, "b", &ls(2_000_000)).unwrap();
        }
        let mut after = [0u64; 2];
        // From the first packet on: four of five, or one of four.
        while let Some((_, _, leaf, len)) = rig.send(1_800_000_000) {
            after[leaf] += u64::from(len);
        }
        let (a, all) = (after[0], after[0] + after[1]);
        assert!(all.abs_diff(1_000_000) <= 2_000, "{after:?}");
        let share = if change { all * 4 / 5 } else { all / 4 };
        assert!(a.abs_diff(share) <= 3_000 && expected.contains(&a), "change {change}: {after:?}");
    }
}

/// A class that waits for its upper limit, or for that of its parent, goes on at once when it is raised.
#[test]
fn a_raised_limit_ends_the_wait() {
    for (limited, raised) in [("top", true), ("top", false), ("a", true), ("a", false)] {
        let with = |bps| Params::new().with("ls", linear(1_000_000)).with("ul", linear(bps));
        let of = |name| with(if name == limited { 1_000 } else { LINK_BPS });
        let mut rig = Rig::new(&[("top", None, of("top")), ("a", Some(0), of("a"))]);
        for _ in 0..20 {
            rig.put(0, "a", 1_000);
        }
        while rig.send(1_000_000).is_some() {}
        let waiting = rig.hfsc.backlog().packets;
        assert!(waiting > 10, "1,000 bytes take 8 s at the limit");
        if raised {
            rig.hfsc.reconfigure(&mut rig.cx, limited, &with(LINK_BPS)).unwrap();
            rig.hfsc.check(&rig.cx).unwrap();
        }
        while rig.send(100_000_000).is_some() {}
        assert_eq!(rig.hfsc.backlog().packets, if raised { 0 } else { waiting }, "{limited}");
    }
}

/// A guarantee alone is enough for a leaf, and a share alone for any class.
#[test]
fn a_change_is_taken_where_the_class_can_do_with_it() {
    let rt = Params::new().with("rt", linear(1_000_000));
    let ls = Params::new().with("ls", linear(2_000_000));
    let mut rig = Rig::new(&[("x", None, ls.clone()), ("leaf", Some(0), rt.clone())]);
    rig.put(0, "leaf", 1_000);
    for (class, params) in [("leaf", &rt), ("leaf", &ls), ("x", &ls)] {
        assert_eq!(rig.hfsc.reconfigure(&mut rig.cx, class, params), Ok(()), "{class}: {params:?}");
        rig.hfsc.check(&rig.cx).unwrap();
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
/// A class that real time serves while its upper limit keeps it from sharing, at the least weight
/// there is: its virtual time runs over its word though it never has a turn by it. A class that
/// joins its siblings then shares with those who share.
#[test]
fn virtual_time_runs_over_outside_the_turns_too() {
    let ls = |bps| Params::new().with("ls", linear(bps));
    let mut rig = Rig::new(&[
        ("fast", None, ls(0).with("rt", linear(9_000_000)).with("ul", linear(2))),
        ("a", None, ls(1_000_000)),
        ("b", None, ls(1_000_000)),
    ]);
    for n in 0..60 {
        rig.put(0, ["fast", "a"][n % 2], 1_500);
    }
    let (joins_ns, mut joined, mut bytes) = (30_000_000_000, false, [0u64; 3]);
    while let Some((start, end, leaf, len)) = rig.send(joins_ns + 2_000_000_000) {
        bytes[leaf] += u64::from(len);
        rig.put(end, ["fast", "a", "b"][leaf], 1_500);
        if start >= joins_ns && !joined {
            (joined, bytes) = (true, [0; 3]);
            for _ in 0..10 {
                rig.put(end, "b", 1_500);
            }
        }
    }
    assert!(bytes[0].abs_diff(9_000_000 / 8 * 2) < 10_000, "{bytes:?}");
    assert!(bytes[1] > 0 && bytes[1].abs_diff(bytes[2]) < 10_000, "{bytes:?}");
}

/// A voice class whose guarantee is many times its weight is served by real time, and its virtual
/// time runs ahead. Another class that comes later shares from the first packet with those who
/// share; that voice is ahead is no affair of its.
#[test]
fn who_joins_does_not_wait_for_a_class_that_real_time_serves() {
    let ls = |bps| Params::new().with("ls", linear(bps));
    for greedy in [false, true] {
        let mut rig = Rig::new(&[
            ("voice", None, ls(64_000).with("rt", linear(2_000_000))),
            ("bulk", None, ls(1_000_000)),
            ("web", None, ls(1_000_000)),
        ]);
        for _ in 0..20 {
            rig.put(0, "bulk", 1_500);
        }
        // 2 Mbit/s, a packet at a time, or one waiting always.
        let (mut voice_ns, joins_ns, mut joined, mut bytes) = (0, 20_000_000_000, false, [0u64; 3]);
        while let Some((start, end, leaf, len)) = rig.send(joins_ns + 2_000_000_000) {
            bytes[leaf] += u64::from(len);
            if leaf > 0 {
                rig.put(end, ["", "bulk", "web"][leaf], 1_500);
            }
            if voice_ns <= end {
                voice_ns = voice_ns.max(start) + if greedy { 700_000 } else { 800_000 };
                rig.put(end, "voice", 200);
            }
            if start >= joins_ns && !joined {
                (joined, bytes) = (true, [0; 3]);
                for _ in 0..20 {
                    rig.put(end, "web", 1_500);
                }
            }
        }
        assert!(bytes[1] > 0 && bytes[1].abs_diff(bytes[2]) < 10_000, "greedy {greedy}: {bytes:?}");
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

/// A busy period begins for all classes alike: what one of them had in the period before is not held
/// against it, whichever joins first. Reversed: where its weight is a quarter, it has less.
#[test]
fn what_a_class_had_in_an_earlier_period_is_forgotten() {
    let ls = |bps| Params::new().with("ls", linear(bps));
    for (weight, first, equal) in
        [(1_000_000, "new", true), (1_000_000, "old", true), (250_000, "new", false)]
    {
        let mut rig = Rig::new(&[("old", None, ls(weight)), ("new", None, ls(1_000_000))]);
        // A second of the link for one class, and then a second without a packet.
        for _ in 0..1_250 {
            rig.put(0, "old", 1_000);
        }
        while rig.send(2_000_000_000).is_some() {}
        rig.free_ns = 2_000_000_000;
        for _ in 0..10 {
            rig.put(rig.free_ns, first, 1_000);
            rig.put(rig.free_ns, if first == "old" { "new" } else { "old" }, 1_000);
        }
        let mut bytes = [0u64; 2];
        while let Some((_, end, leaf, len)) = rig.send(2_100_000_000) {
            bytes[leaf] += u64::from(len);
            rig.put(end, ["old", "new"][leaf], 1_000);
        }
        assert!(bytes[0] + bytes[1] > 120_000, "the link was busy: {bytes:?}");
        assert_eq!(bytes[0].abs_diff(bytes[1]) <= 2_000, equal, "{first} first: {bytes:?}");
    }
}

/// Classes come one after the other with a packet each, the next when that packet has left. However
/// many there are, a class that has packets all the time goes on: any two virtual times stay within a constant of each other
/// [HFSC97 section 4.2]. Reversed: with a twentieth of their weight it waits longer.
#[test]
fn newcomers_do_not_pass_those_who_wait() {
    const NEWCOMERS: usize = 60;
    let ls = |bps| Params::new().with("ls", linear(bps));
    let names: Vec<String> = (0..NEWCOMERS).map(|n| std::format!("n{n}")).collect();
    for (weight, holds) in [(1_000_000, true), (50_000, false)] {
        let mut classes = vec![("a", None, ls(weight)), ("b", None, ls(weight))];
        classes.extend(names.iter().map(|name| (name.as_str(), None, ls(1_000_000))));
        let mut rig = Rig::new(&classes);
        for n in 0..400 {
            rig.put(0, ["a", "b"][n % 2], 1_500);
        }
        let (mut come, mut waits, mut since, mut longest) = (0, false, [0; 2], 0);
        while come < NEWCOMERS {
            let (_, end, leaf, _) = rig.send(u64::MAX).unwrap();
            waits &= leaf < 2;
            // The first ten bring virtual time under way.
            if end > 10 * 1_200_000 && !waits {
                rig.put(end, &names[come], 1_500);
                (come, waits) = (come + 1, true);
            }
            for (class, since) in since.iter_mut().enumerate() {
                *since = if class == leaf { 0 } else { *since + 1 };
                longest = longest.max(*since);
            }
        }
        assert_eq!(longest <= 4, holds, "{longest} packets of others between two of a class");
    }
}

#[test]
fn a_packet_for_a_class_without_a_queue_is_dropped_and_reported() {
    let class = HfscClass {
        queue: None,
        active: false,
        stirred: false,
        place: Eligibility::Out,
        shown: None,
        ready_at: Instant::ZERO,
        owed: None,
        sent_packets: 0,
        sent_bytes: 0,
    };
    let mut hfsc = Hfsc {
        classes: vec![class],
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
