use super::*;
use crate::classify::Filter;
use crate::packet::Family;
use std::string::ToString;
use std::vec;

fn key(tos: u8) -> Key {
    Key { family: Family::V4, src: 1, dst: 2, protocol: 17, tos, ..Key::default() }
}

/// All packets to the conditioner of that number.
fn all_to(class: u32) -> Classifier {
    Classifier::compile([Filter::new(Family::V4, class, 1)])
}

fn only(action: Action) -> Conditioners {
    Conditioners::new(all_to(0), &[("c".into(), action)]).unwrap()
}

fn mark(name: &str) -> Action {
    Action::Mark(Dscp::from_name(name).unwrap())
}

/// A link without overhead: meters count frames.
fn link() -> Link {
    Link::new(Rate::from_mbps(10), 0, 1_514)
}
fn meter(meter: Meter, actions: impl Into<Vec<Action>>) -> Action {
    Action::Meter { meter, actions: actions.into() }
}

fn bucket(depth: u64) -> Meter {
    Meter::TokenBucket { rate: Rate::from_bps(8_000), depth }
}

#[derive(Default)]
struct Seen(Vec<(String, Vec<(&'static str, i64)>)>);
impl Visit for Seen {
    fn class(&mut self, class: &str, _depth: u32) {
        self.0.push((class.into(), Vec::new()));
    }
    fn value(&mut self, name: &'static str, _unit: &'static str, value: i64) {
        self.0.last_mut().unwrap().1.push((name, value));
    }
}

#[test]
fn passes_marks_drops() {
    let mut random = Random::new(1);
    let tos = 0xb9;
    for (action, expected) in
        [(Action::Pass, (true, 46)), (Action::Drop, (false, 46)), (mark("AF11"), (true, 10))]
    {
        let found = only(action).judge(Instant::ZERO, 100, &link(), &key(tos), &mut random);
        assert_eq!((found.passes, found.dscp, found.colour), (expected.0, expected.1, Colour::Green));
    }
    let none = Conditioners::new(Classifier::empty(), &[("c".into(), Action::Drop)]);
    let mut none = none.unwrap();
    assert!(
        none.judge(Instant::ZERO, 100, &link(), &key(tos), &mut random).passes,
        "what no filter matches passes"
    );
    assert_eq!((none.unmatched(), none.which(&key(tos))), (1, None));
    assert_eq!(only(Action::Pass).which(&key(tos)), Some("c"));
}

/// A two-rate meter that sees colours reads them from the code points that its own marks write,
/// and from AF11 to AF13 where an action is no mark; everything else is green.
#[test]
fn colours_are_those_of_the_marks() {
    let two = |actions: [Action; 3]| {
        let big = 1_000_000;
        let rate = Rate::from_mbps(1);
        let profile =
            Meter::TwoRate { rate, burst: big, peak: rate, peak_burst: big, aware: true, rfc4115: false };
        only(meter(profile, actions))
    };
    let mut random = Random::new(1);
    let mut colour = |c: &mut Conditioners, name: &str| {
        let tos = Dscp::from_name(name).unwrap().on_tos(3);
        c.judge(Instant::ZERO, 100, &link(), &key(tos), &mut random)
    };
    let mut marks = two([mark("AF21"), mark("AF22"), Action::Drop]);
    for (came, expected, now) in [
        ("AF21", Colour::Green, "AF21"),
        ("AF22", Colour::Yellow, "AF22"),
        ("AF13", Colour::Red, "AF13"), // The red action is no mark.
        ("AF12", Colour::Green, "AF21"),
        ("EF", Colour::Green, "AF21"),
    ] {
        let found = colour(&mut marks, came);
        let dscp = Dscp::from_name(now).unwrap().value();
        assert_eq!(
            (found.colour, found.dscp, found.passes),
            (expected, dscp, expected != Colour::Red),
            "{came}"
        );
    }
    // Reversed: blind to colours, all are green.
    let blind = Meter::TwoRate {
        rate: Rate::from_mbps(1),
        burst: 1_000_000,
        peak: Rate::from_mbps(1),
        peak_burst: 1_000_000,
        aware: false,
        rfc4115: false,
    };
    let mut blind = only(meter(blind, [mark("AF21"), mark("AF22"), Action::Drop]));
    assert_eq!(colour(&mut blind, "AF22").colour, Colour::Green);
    // A meter below another sees the colour that the one above found.
    let inner = Meter::SingleRate { rate: Rate::ZERO, burst: 1_000, excess: 1_000, aware: true };
    let inner = meter(inner, [mark("AF11"), mark("AF12"), mark("AF13")]);
    let outer = Meter::SingleRate { rate: Rate::ZERO, burst: 150, excess: 0, aware: false };
    let mut nested = only(meter(outer, [inner.clone(), inner.clone(), inner.clone()]));
    assert_eq!(colour(&mut nested, "BE").colour, Colour::Green);
    let out = colour(&mut nested, "BE");
    assert_eq!((out.colour, out.dscp), (Colour::Red, 14), "red above is AF13, which is red below");
    // A token bucket finds no colour: below it the packet has the one that it came with.
    let mut below_bucket = only(meter(bucket(150), [inner.clone(), inner]));
    for came in ["BE", "AF12"] {
        let found = colour(&mut below_bucket, came);
        assert_eq!(found.colour == Colour::Yellow, came == "AF12", "{found:?}");
    }
}

#[test]
fn a_shared_meter_is_one() {
    let mut random = Random::new(1);
    let shared = ("shared".to_string(), meter(bucket(250), [Action::Pass, Action::Drop]));
    let refer = |name: &str| (name.to_string(), Action::Conditioner("shared".into()));
    let filters = [
        Filter::new(Family::V4, 1, 1).with(crate::classify::Field::Tos, 4, 0xff),
        Filter::new(Family::V4, 2, 2).with(crate::classify::Field::Tos, 8, 0xff),
    ];
    let classifier = Classifier::compile(filters.clone());
    let mut c = Conditioners::new(classifier, &[shared.clone(), refer("a"), refer("b")]).unwrap();
    let passes = |c: &mut Conditioners, random: &mut Random| {
        [4, 8, 4].map(|tos| c.judge(Instant::ZERO, 100, &link(), &key(tos), random).passes)
    };
    assert_eq!(passes(&mut c, &mut random), [true, true, false]);
    // Reversed: with a meter each, all pass.
    let own = |name: &str| (name.to_string(), shared.1.clone());
    let mut c =
        Conditioners::new(Classifier::compile(filters), &[own("shared"), own("a"), own("b")]).unwrap();
    assert_eq!(passes(&mut c, &mut random), [true; 3]);
}

#[test]
fn every_packet_is_counted_once() {
    let inner = Meter::SingleRate { rate: Rate::from_bps(80_000), burst: 2_000, excess: 4_000, aware: false };
    let inner = meter(inner, [mark("AF11"), mark("AF12"), Action::Drop]);
    let mut c = only(meter(bucket(3_000), [Action::Pass, inner]));
    let seed = weir_seed::seed();
    let mut random = Random::new(seed);
    let mut now = 0;
    // What passed, what was marked, what was dropped: packets, then bytes.
    let mut ended = [[0i64; 2]; 3];
    for _ in 0..5_000 {
        now += random.below(20_000_000);
        let len = 64 + random.below(1_000) as u32;
        let end = match c.judge(Instant::from_nanos(now), len, &link(), &key(0), &mut random) {
            Judgement { passes: false, .. } => 2,
            Judgement { dscp: 0, .. } => 0,
            _ => 1,
        };
        ended[end][0] += 1;
        ended[end][1] += i64::from(len);
    }
    let mut seen = Seen::default();
    c.visit_stats(&mut seen);
    let names: Vec<&str> = seen.0.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["c", "c tbmeter", "c srtcm 2"]);
    let values =
        |n: usize| -> Vec<[i64; 2]> { seen.0[n].1.chunks(2).map(|pair| [pair[0].1, pair[1].1]).collect() };
    let sum = |of: &[[i64; 2]]| of.iter().fold([0; 2], |sum, v| [sum[0] + v[0], sum[1] + v[1]]);
    let [passed, marked, dropped] = ended;
    let all = sum(&ended);
    assert_eq!(all[0], 5_000);
    assert_eq!(values(0), [all, passed, marked, dropped], "seed {seed}");
    assert!(ended.iter().all(|end| end[0] > 50), "{ended:?}");
    assert_eq!(values(1), [passed, sum(&[marked, dropped])]);
    assert_eq!(sum(&values(2)), sum(&[marked, dropped]));
    assert_eq!(values(2)[2], dropped);
}

#[test]
fn refuses_what_cannot_be() {
    let make = |named: &[(String, Action)]| Conditioners::new(Classifier::empty(), named);
    let refer = Action::Conditioner("b".into());
    let error = make(&[("a".into(), refer)]).err().unwrap().to_string();
    assert_eq!(error, "class a: conditioner: found b, expected the name of a conditioner that stands before");
    let itself = Action::Conditioner("a".into());
    assert!(make(&[("a".into(), itself)]).is_err(), "no circles");
    let error = make(&[("a".into(), meter(bucket(1), vec![Action::Pass]))]).err().unwrap().to_string();
    assert_eq!(error, "class a: tbmeter: found 1, expected 2, one for each result");
    let mut deep = Action::Pass;
    for _ in 0..100 {
        deep = meter(bucket(1), [Action::Pass, deep]);
    }
    assert!(make(&[("a".into(), deep)]).is_err());
}

/// A classifier that names a conditioner which is not there passes the packet.
#[test]
fn a_filter_to_nowhere_passes() {
    let mut c = Conditioners::new(all_to(7), &[("c".into(), Action::Drop)]).unwrap();
    assert!(c.judge(Instant::ZERO, 1, &link(), &key(0), &mut Random::new(1)).passes);
}

/// New conditioners go on with the tokens and the counts of those of their names: whoever loads a
/// file again and again gets no more through than its rate.
#[test]
fn a_new_file_lends_no_tokens() {
    let police = |depth| meter(bucket(depth), [Action::Pass, Action::Drop]);
    let (mut random, step) = (Random::new(1), Duration::from_millis(100));
    // 1,000 bytes a second; 20 s of a packet of 100 bytes every 100 ms, ten times the rate in bursts.
    let mut run = |inherits: bool, depths: [u64; 2]| {
        let (mut now, mut passed, mut old) = (Instant::ZERO, 0, only(police(depths[0])));
        for round in 0..200 {
            let mut new = only(police(depths[round % 2]));
            if inherits {
                new.inherit(now, &old);
            }
            let mut pass = |new: &mut Conditioners| new.judge(now, 100, &link(), &key(0), &mut random).passes;
            passed += (0..10).filter(|_| pass(&mut new)).count() as u64;
            now += step;
            old = new;
        }
        let mut seen = Seen::default();
        old.visit_stats(&mut seen);
        (passed, seen.0[0].1[0], seen.0[1].1[0])
    };
    for depths in [[2_000, 2_000], [2_000, 1_000]] {
        let (passed, packets, within) = run(true, depths);
        assert!((200..=220).contains(&passed), "20 s at 1,000 bytes, and the bucket: {passed}");
        assert_eq!((packets, within), (("packets", 2_000), ("in", passed as i64)));
    }
    // Reversed: without it each file brings a full bucket, and counts from 0.
    assert_eq!(run(false, [2_000, 2_000]), (2_000, ("packets", 10), ("in", 10)));
}

/// Time does not run backwards for conditioners, also not from the exchange to the next packet: what was in
/// a bucket is there.
#[test]
fn an_earlier_time_after_an_exchange_counts_as_that_of_the_exchange() {
    let police = |depth| only(meter(bucket(depth), [Action::Pass, Action::Drop]));
    let (mut old, mut new, mut random) = (police(2_000), police(1_000), Random::new(1));
    let mut pass = |c: &mut Conditioners, ms, bytes| {
        c.judge(Instant::from_millis(ms), bytes, &link(), &key(0), &mut random).passes
    };
    assert!(pass(&mut old, 0, 2_000) && !pass(&mut old, 0, 100), "the bucket is empty");
    new.inherit(Instant::from_millis(10_000), &old);
    assert!(pass(&mut new, 5_000, 1_000) && !pass(&mut new, 5_000, 100), "it was full at 10 s");
}

/// A meter of another kind, or one that stands elsewhere, begins anew; nothing else suffers.
#[test]
fn what_is_another_meter_begins_anew() {
    let nested = |first: Meter, second: Action| meter(first, [Action::Pass, second]);
    let three = Meter::SingleRate { rate: Rate::from_bps(8_000), burst: 100, excess: 100, aware: false };
    let colours = meter(three, [Action::Pass, mark("AF12"), Action::Drop]);
    let mut random = Random::new(1);
    let mut old = only(nested(bucket(100), colours.clone()));
    for _ in 0..3 {
        let _ = old.judge(Instant::ZERO, 100, &link(), &key(0), &mut random);
    }
    // One packet was in the bucket, and two in that of the colours: all three are empty.
    let judged = |all: &mut Conditioners, random: &mut Random| {
        let found = all.judge(Instant::ZERO, 100, &link(), &key(0), random);
        (found.passes, found.colour)
    };
    let mut same = only(nested(bucket(100), colours.clone()));
    same.inherit(Instant::ZERO, &old);
    assert_eq!(judged(&mut same, &mut random), (false, Colour::Red));
    let mut other = only(meter(three, [Action::Pass, Action::Pass, Action::Drop]));
    other.inherit(Instant::ZERO, &old);
    assert_eq!(judged(&mut other, &mut random), (true, Colour::Green));
    let mut renamed = Conditioners::new(all_to(0), &[("d".into(), nested(bucket(100), colours))]).unwrap();
    renamed.inherit(Instant::ZERO, &old);
    assert_eq!(judged(&mut renamed, &mut random), (true, Colour::Green));
}

/// What ended at a place goes on counting there if the place does the same as before.
#[test]
fn counts_go_on_where_the_action_is_the_same() {
    let counted = |before: Action, now: Action| {
        let (mut old, mut new) = (only(before), only(now));
        for _ in 0..3 {
            let _ = old.judge(Instant::ZERO, 100, &link(), &key(0), &mut Random::new(1));
        }
        new.inherit(Instant::ZERO, &old);
        new.ended[0].packets
    };
    assert_eq!((counted(Action::Pass, Action::Pass), counted(Action::Drop, Action::Drop)), (3, 3));
    assert_eq!((counted(Action::Pass, Action::Drop), counted(Action::Drop, Action::Pass)), (0, 0));
}
