//! The allocator as a whole: one request at a time, never more than granted, and the delay's bound.
#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::VecDeque;
use weir_core::Random;
use weir_core::units::{Duration, Fraction, Instant};
use weir_edge::allocate::{Action, Allocation, Allocator, Answer, Backlog, Congestion, Law, Log, Request};

fn congestion(drain_ms: u64) -> Congestion {
    Congestion { drain: Duration::from_millis(drain_ms), margin: Fraction::ratio(20, 100), packets: false }
}

/// A class that is served at exactly its rate, a broker that answers after `t_bb`, and random on and
/// off loads. The longest delay of a packet beyond T_s + 2·T_bb and one packet at the least rate, ns.
struct Rig {
    allocator: Allocator,
    rate: u64,
    queue: VecDeque<(u64, u64)>,
    /// When the packet in service is done.
    done: u64,
    bytes: u64,
    answers: VecDeque<(u64, Request)>,
    t_bb: u64,
    worst: u64,
    evictions: Vec<u64>,
    grants: bool,
    /// What those in the class send, if that is known.
    offered: Option<u64>,
}

impl Rig {
    fn new(plan: Allocation, t_bb: u64) -> Self {
        let allocator = Allocator::new(plan, Instant::ZERO);
        let mut rig = Rig {
            allocator,
            rate: 0,
            queue: VecDeque::new(),
            done: 0,
            bytes: 0,
            answers: VecDeque::new(),
            t_bb,
            worst: 0,
            evictions: Vec::new(),
            grants: true,
            offered: None,
        };
        rig.carry_out(0);
        rig
    }
    fn carry_out(&mut self, now: u64) {
        while let Some(action) = self.allocator.poll() {
            match action {
                Action::Shape(rate) => {
                    // What is left of the packet in service goes on at the new rate.
                    if self.done > now && self.rate > 0 {
                        let left = u128::from(self.done - now) * u128::from(self.rate);
                        self.done = now + left.div_ceil(u128::from(rate)) as u64;
                    }
                    self.rate = rate;
                }
                Action::Ask(request) => self.answers.push_back((now + self.t_bb, request)),
            }
        }
        if self.allocator.take_eviction(Instant::from_nanos(now), || self.offered) {
            self.evictions.push(now);
        }
    }
    fn queued(&mut self, now: u64) {
        let queued = Backlog { bytes: self.bytes, packets: self.queue.len() as u64 };
        self.allocator.queued(Instant::from_nanos(now), queued);
        self.carry_out(now);
    }
    fn start(&mut self, now: u64) {
        if let Some(&(_, len)) = self.queue.front() {
            self.done = now + (u128::from(len) * 8_000_000_000).div_ceil(u128::from(self.rate)) as u64;
        }
    }
    /// What happens up to `until`.
    fn run(&mut self, until: u64) {
        loop {
            let served = if self.queue.is_empty() { u64::MAX } else { self.done };
            let answered = self.answers.front().map_or(u64::MAX, |a| a.0);
            let now = served.min(answered).min(self.allocator.poll_at().as_nanos());
            if now > until {
                return;
            }
            if now == answered {
                let (_, request) = self.answers.pop_front().unwrap();
                let answer = if self.grants { Answer::Granted(request.rate_bps) } else { Answer::Refused };
                self.allocator.answer(Instant::from_nanos(now), request.version, answer);
                self.carry_out(now);
            } else if now == served {
                let (came, len) = self.queue.pop_front().unwrap();
                self.bytes -= len;
                self.worst = self.worst.max(now - came);
                self.start(now);
                self.queued(now);
            } else {
                self.allocator.timer(Instant::from_nanos(now));
                self.carry_out(now);
            }
        }
    }
    fn arrive(&mut self, now: u64, len: u64) {
        self.run(now);
        self.queue.push_back((now, len));
        self.bytes += len;
        if self.queue.len() == 1 {
            self.start(now);
        }
        self.allocator.entered(Instant::from_nanos(now), len);
        self.carry_out(now);
        self.queued(now);
    }
}

/// The worst delay as a share of the bound T_s + 2 T_bb + one packet, in percent.
fn worst_of_bound(seed: u64, control: Option<Congestion>) -> u64 {
    let mut random = Random::new(seed);
    let t_bb = 1_000_000 + random.below(99_000_000);
    let (from, len) = (256_000, 64 + random.below(500));
    let t_s = control.map_or(15_000_000, |c| c.drain.as_nanos());
    let plan = Allocation {
        law: Law::Log(Log::default()),
        congestion: control,
        from,
        initial: from,
        ..Allocation::default()
    };
    let mut rig = Rig::new(plan, t_bb);
    let mut now = 0;
    for _ in 0..30 {
        // On: so many bit/s for so long; then silence.
        let rate = 64_000 + random.below(3_000_000);
        let until = now + random.below(2_000_000_000);
        while now < until {
            rig.arrive(now, len);
            now += len * 8_000_000_000 / rate;
        }
        now = until + random.below(3_000_000_000);
        rig.run(now);
    }
    let packet = len * 8_000_000_000 / from + 1;
    let bound = t_s + 2 * t_bb + packet;
    rig.worst * 100 / bound
}

/// T44 and T45: over random on and off loads and answers after 1 to 100 ms, no packet waits longer than
/// T_s + 2 T_bb and one packet time. Reversed: without congestion control many do.
#[test]
fn t44_the_delay_is_bounded() {
    let mut broken = 0;
    for seed in weir_seed::seeds(60) {
        let percent = worst_of_bound(seed, Some(congestion(15)));
        assert!(percent <= 100, "seed {seed}: {percent} % of the bound");
        broken += u32::from(worst_of_bound(seed, None) > 100);
    }
    assert!(broken > 20, "without control {broken} exceed it");
}

/// T44 and T54: the rates asked for are the formulas, in bytes with margin and in packets without.
#[test]
fn t54_both_variants_ask_what_they_say() {
    let queued = Backlog { bytes: 3_000, packets: 6 };
    // 8·1.2·3000/0.015 = 1.92 Mbit/s.
    assert_eq!(congestion(15).wish(queued, 512), 1_920_000);
    let variant = Congestion { drain: Duration::from_micros(100), packets: true, ..congestion(15) };
    // 6 packets of 512 bytes in 100 µs.
    assert_eq!(variant.wish(queued, 512), 245_760_000);
    // One packet of 512 bytes is congestion up to 40.96 Mbit/s, and not above.
    let one = Backlog { bytes: 512, packets: 1 };
    assert!(variant.is_congested(40_959_999, one, 512) && !variant.is_congested(40_960_000, one, 512));
    // In bytes, one packet never is, and the threshold is T_s·B_d/8.
    assert!(!congestion(15).is_congested(1, one, 512));
    let at = |bytes| congestion(15).is_congested(1_000_000, Backlog { bytes, packets: 4 }, 512);
    assert!(!at(1_875) && at(1_876));
}

/// Where the broker refuses, a flow must go within T_s + 2 T_bb of the congestion's beginning, and one
/// after the other as long as it lasts; no rise is asked for during `retry`.
#[test]
fn a_refusal_in_congestion_evicts() {
    let plan = Allocation {
        law: Law::Fixed,
        congestion: Some(congestion(15)),
        from: 256_000,
        initial: 256_000,
        ..Allocation::default()
    };
    let t_bb = 20_000_000;
    let mut rig = Rig::new(plan, t_bb);
    rig.grants = false;
    let mut now = 0;
    while now < 5_000_000_000 {
        rig.arrive(now, 200);
        now += 200 * 8_000_000_000 / 512_000;
    }
    let stats = rig.allocator.stats(Instant::from_nanos(now));
    assert_eq!((stats.up, stats.refused), (1, 1));
    // The queue passes 480 bytes within 15 ms; the answer comes T_bb later.
    let round = 15_000_000 + 2 * t_bb;
    assert!(rig.evictions[0] <= 15_000_000 + round, "{:?}", &rig.evictions[..3]);
    let gaps = rig.evictions.windows(2).map(|pair| pair[1] - pair[0]);
    assert!(gaps.clone().all(|gap| gap >= round), "{:?}", gaps.min());
    assert!(rig.evictions.len() as u64 > 5_000_000_000 / round - 10, "{}", rig.evictions.len());
}

/// T45: where the broker refuses every rise, at random loads and answers after 1 to 100 ms, each
/// congestion that lasts T_s + 2 T_bb has had an eviction by then. Reversed: where it grants, no flow goes.
#[test]
fn t45_a_refusal_evicts_in_time() {
    let mut evicted = 0;
    for seed in weir_seed::seeds(60) {
        for grants in [false, true] {
            let mut random = Random::new(seed);
            let t_bb = 1_000_000 + random.below(99_000_000);
            let (from, len) = (256_000, 64 + random.below(500));
            let control = congestion(15);
            let bound = control.drain.as_nanos() + 2 * t_bb;
            let plan = Allocation {
                law: Law::Log(Log::default()),
                congestion: Some(control),
                from,
                initial: from,
                ..Allocation::default()
            };
            let mut rig = Rig::new(plan, t_bb);
            rig.grants = grants;
            let (mut now, mut since) = (0, None);
            for _ in 0..30 {
                let rate = 64_000 + random.below(3_000_000);
                let until = now + random.below(2_000_000_000);
                while now < until {
                    // Looked at every millisecond, and at each packet.
                    let next = now + len * 8_000_000_000 / rate;
                    rig.arrive(now, len);
                    while now < next {
                        now = next.min(now + 1_000_000);
                        rig.run(now);
                        let start = rig.allocator.is_congested().then(|| since.unwrap_or(now));
                        if let Some(start) = start.filter(|start| now >= start + bound) {
                            let came = rig
                                .evictions
                                .iter()
                                .any(|at| *at + 1_000_000 >= start && *at <= start + bound);
                            assert!(
                                came || grants,
                                "seed {seed}: congested from {start} on, nobody went by {now}"
                            );
                        }
                        since = start;
                    }
                }
                now += random.below(3_000_000_000);
                rig.run(now);
                since = rig.allocator.is_congested().then_some(now);
            }
            evicted += rig.evictions.len();
            assert!(!grants || rig.evictions.is_empty(), "seed {seed}: {:?}", rig.evictions);
        }
    }
    assert!(evicted > 60, "{evicted}");
}

/// How many flows go where the broker refuses, and how many the load exceeds the allocation by. Flows of one
/// rate send at even distances; a flow that is evicted sends no more. None of them makes congestion alone.
fn flows_that_go(seed: u64, is_known: bool) -> (u64, f64) {
    let mut random = Random::new(seed);
    let t_bb = 1_000_000 + random.below(99_000_000);
    let (from, len, rate) = (1_000_000, 64, 64_000 + random.below(40_000));
    let flows = from / rate + 1 + random.below(from / 2 / rate);
    let plan = Allocation {
        law: Law::Fixed,
        congestion: Some(congestion(15)),
        from,
        initial: from,
        ..Allocation::default()
    };
    let mut rig = Rig::new(plan, t_bb);
    rig.grants = false;
    let gap = len * 8_000_000_000 / rate;
    let mut due: Vec<u64> = (0..flows).map(|_| random.below(gap)).collect();
    let mut gone = 0;
    // What is over by 60 s stays over.
    let mut at_60 = 0;
    while let Some((n, now)) =
        due.iter().copied().enumerate().min_by_key(|flow| flow.1).filter(|flow| flow.1 < 90_000_000_000)
    {
        rig.offered = is_known.then_some(due.len() as u64 * rate);
        rig.arrive(now, len);
        due[n] = now + gap;
        while gone < rig.evictions.len() {
            due.swap_remove(random.below(due.len() as u64) as usize);
            gone += 1;
        }
        if now < 60_000_000_000 {
            at_60 = gone;
        }
    }
    assert!(
        !rig.allocator.is_congested() && gone == at_60,
        "seed {seed}: {gone} of {flows} flows, {at_60} by 60 s"
    );
    (gone as u64, (flows * rate - from) as f64 / rate as f64)
}

/// T45: where the broker refuses, the queue is under S_q again after at most x + 2 evictions, where x flows are too many.
/// Reversed: where nobody knows what those in the class send, what has queued up meanwhile costs as many again.
#[test]
fn t45_the_queue_is_short_again() {
    let mut more = 0;
    for seed in weir_seed::seeds(30) {
        let (gone, excess) = flows_that_go(seed, true);
        assert!(gone >= excess.ceil() as u64, "seed {seed}: {gone} of {excess}");
        assert!(gone <= excess.ceil() as u64 + 2, "seed {seed}: {gone} of {excess}");
        let (gone, _) = flows_that_go(seed, false);
        assert!(gone <= (2.0 * excess).ceil() as u64 + 2, "seed {seed}: {gone} of {excess}");
        more += u32::from(gone > excess.ceil() as u64 + 2);
    }
    assert!(more > 0);
}

/// A T_s of a nanosecond, and nothing more to be had: the clock goes on, and flows go one after the other.
#[test]
fn a_round_takes_its_time_however_short_the_drain() {
    let control = Congestion { drain: Duration::from_nanos(1), ..congestion(15) };
    let plan = Allocation {
        law: Law::Fixed,
        congestion: Some(control),
        to: 1_000_000,
        initial: 1_000_000,
        ..Allocation::default()
    };
    let mut allocator = Allocator::new(plan, Instant::ZERO);
    let (mut now, mut rounds, mut gone) = (Instant::ZERO, 0, 0);
    allocator.queued(now, Backlog { bytes: 30_000, packets: 20 });
    while now < Instant::from_millis(10) && rounds < 1_000 {
        now = allocator.poll_at();
        allocator.timer(now);
        gone += u64::from(allocator.take_eviction(now, || None));
        rounds += 1;
    }
    assert_eq!((rounds, gone), (100, 100));
}

/// One request is under way, old answers are ignored, and the class is never shaped above what was
/// granted, with answers that grant a part, refuse, are lost or come twice.
#[test]
fn one_request_is_under_way() {
    for seed in weir_seed::seeds(100) {
        let mut random = Random::new(seed);
        let plan =
            Allocation { from: 64_000, to: 4_000_000, initial: 64_000, unit: 1_000, ..Allocation::default() };
        let mut allocator = Allocator::new(plan, Instant::ZERO);
        let (mut now, mut granted, mut newest, mut under_way) = (0, 64_000, 0, None);
        let mut seen = Vec::new();
        for _ in 0..2_000 {
            now += random.below(200_000_000);
            let at = Instant::from_nanos(now);
            match random.below(4) {
                0 if under_way.is_some() => {
                    let request: Request = under_way.take().unwrap();
                    let part = 1 + random.below(request.rate_bps);
                    let answer = match random.below(4) {
                        0 => Answer::Refused,
                        1 => Answer::Granted(part),
                        _ => Answer::Granted(request.rate_bps),
                    };
                    if let Answer::Granted(rate) = answer {
                        granted = rate;
                    }
                    allocator.answer(at, request.version, answer);
                }
                // A repeated or delayed answer to an older request.
                1 if newest > 1 => {
                    let old = random.below(newest);
                    if under_way.is_none_or(|u: Request| u.version != old) {
                        allocator.answer(at, old, Answer::Granted(4_000_000));
                    }
                }
                _ => allocator.entered(at, random.below(60_000)),
            }
            while let Some(action) = allocator.poll() {
                match action {
                    Action::Shape(rate) => assert!(rate <= granted, "seed {seed}: {rate} above {granted}"),
                    Action::Ask(request) => {
                        assert!(request.rate_bps % 1_000 == 0 || request.rate_bps == 4_000_000);
                        assert!((64_000..=4_000_000).contains(&request.rate_bps));
                        if request.version == newest {
                            assert_eq!(Some(request), under_way, "seed {seed}: a repetition is the same");
                        } else {
                            assert!(request.version > newest && under_way.is_none(), "seed {seed}");
                            // Lower ones hold at once.
                            granted = granted.min(request.rate_bps.max(allocator.allocated_bps()));
                            seen.push(request);
                        }
                        (newest, under_way) = (request.version, Some(request));
                    }
                }
            }
        }
        assert!(seen.len() > 5, "seed {seed}: {}", seen.len());
    }
}

/// A request that is not answered is repeated after 0.5 s, 1 s, 2 s ... with the same version.
#[test]
fn an_unanswered_request_is_repeated() {
    let mut allocator =
        Allocator::new(Allocation { initial: 64_000, ..Allocation::default() }, Instant::ZERO);
    allocator.entered(Instant::ZERO, 100_000);
    let (mut asked, mut now) = (Vec::new(), Instant::ZERO);
    while now < Instant::from_millis(20_000) {
        now = allocator.poll_at();
        allocator.timer(now);
        while let Some(action) = allocator.poll() {
            if let Action::Ask(request) = action {
                asked.push((now.as_nanos() / 1_000_000, request.version));
            }
        }
    }
    assert_eq!(asked, [(800, 1), (1300, 1), (2300, 1), (4300, 1), (8300, 1), (16300, 1)]);
}

/// A broker takes back what it granted: the class comes down at once, to `from` at the least, an open request for more
/// is forgotten with its answer, and admission counts on nothing more while it may not ask, or hears no answer.
#[test]
fn what_a_broker_takes_back_is_not_used_any_more() {
    let (from, to, at) = (64_000, 10_000_000, |ms: u64| Instant::from_nanos(ms * 1_000_000));
    let law = Law::Log(Log::default());
    let plan = Allocation { law, from, to, initial: from, ..Allocation::default() };
    let mut allocator = Allocator::new(plan, at(0));
    let done = |allocator: &mut Allocator| {
        let (mut shaped, mut asked) = (None, None);
        while let Some(action) = allocator.poll() {
            match action {
                Action::Shape(rate) => shaped = Some(rate),
                Action::Ask(request) => asked = Some(request),
            }
        }
        (shaped, asked)
    };
    assert_eq!(done(&mut allocator), (Some(from), None));
    allocator.told(at(1), 500_000);
    let (None, Some(first)) = done(&mut allocator) else { panic!("a request alone") };
    allocator.answer(at(2), first.version, Answer::Granted(first.rate_bps));
    let has = first.rate_bps;
    assert!(has >= 500_000 && allocator.allocated_bps() == has && allocator.limit_bps(at(3)) == to);
    // More is asked for, and less than it has is left: both end here.
    allocator.told(at(4), 2_000_000);
    let (_, Some(more)) = done(&mut allocator) else { panic!("a request for more") };
    assert!(more.rate_bps > has);
    allocator.withdraw(at(5), 200_000, Duration::from_secs(10));
    assert_eq!((done(&mut allocator), allocator.outstanding()), ((Some(200_000), None), None));
    allocator.answer(at(6), more.version, Answer::Granted(more.rate_bps));
    assert_eq!((allocator.allocated_bps(), allocator.limit_bps(at(6))), (200_000, 200_000));
    allocator.told(at(7), 2_000_000);
    assert_eq!(done(&mut allocator), (None, None), "no rise for 10 s");
    allocator.withdraw(at(8), 0, Duration::ZERO);
    assert_eq!(done(&mut allocator), (Some(from), None));
    // What is no fall changes nothing.
    allocator.withdraw(at(20_000), 300_000, Duration::from_secs(10));
    assert_eq!((done(&mut allocator), allocator.limit_bps(at(20_000))), ((None, None), to));
    // The broker does not answer: a while later admission counts on nothing more, until it does.
    allocator.told(at(20_001), 500_000);
    let (None, Some(again)) = done(&mut allocator) else { panic!("a request") };
    assert!(again.rate_bps > from);
    assert_eq!(allocator.limit_bps(at(20_400)), to);
    assert_eq!((allocator.limit_bps(at(20_600)), allocator.limit_bps(at(90_000))), (from, from));
    allocator.answer(at(90_001), again.version, Answer::Granted(again.rate_bps));
    assert_eq!((allocator.allocated_bps(), allocator.limit_bps(at(90_001))), (again.rate_bps, to));
}
