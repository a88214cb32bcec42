//! The laws against plain models, and the properties that make them usable. Each property is a function
//! of the law, so that mutants of the law run through the same function and must fail.
#![allow(missing_docs, clippy::unwrap_used)]

use weir_core::Random;
use weir_core::units::{Duration, Fixed, Fraction, Instant};
use weir_edge::allocate::{
    Amount, Constraints, Law, Log, Measured, Threshold, Tune, Window, Windows, ln_ratio,
};
use weir_edge::check;
use weir_edge::recognise::statistical::Rule;

const ONE: u128 = 1 << 32;

fn share(percent: u64) -> Fraction {
    Fraction::ratio(percent, 100)
}

fn factor(thousandths: i64) -> Fixed {
    Fixed::ratio(thousandths, 1000).unwrap()
}

// ---------------------------------------------------------------------------------------- window

/// T43 as the paper tells it: keep all bits with their times; the estimate at t is the highest mean of
/// the windows of this hold and of the one before, or of this one alone if it is higher.
struct PlainWindow {
    span: u64,
    hold: u64,
    packets: Vec<(u64, u64)>,
}

impl PlainWindow {
    fn mean(&self, window: u64) -> u64 {
        let within = |t: u64| t / self.span == window;
        let bits: u128 = self.packets.iter().filter(|p| within(p.0)).map(|p| u128::from(p.1) * 8).sum();
        ((bits * 2_000_000_000 + u128::from(self.span)) / (2 * u128::from(self.span))) as u64
    }
    /// The estimate when `over` windows are over.
    fn estimate(&self, over: u64) -> u64 {
        let whole = over / self.hold;
        let held = whole.checked_sub(1).map_or(0..0, |hold| hold * self.hold..whole * self.hold);
        held.chain(whole * self.hold..over).map(|w| self.mean(w)).max().unwrap_or(0)
    }
}

fn window_equals_the_plain_model(seed: u64, mutant: impl Fn(u64) -> u64) -> Result<(), String> {
    let mut random = Random::new(seed);
    let span = 1 + random.below(1_000_000_000);
    let hold = 1 + random.below(12);
    let windows = Windows { span: Duration::from_nanos(span), hold: hold as u32 };
    let mut window = Window::new(windows, Instant::ZERO);
    let mut plain = PlainWindow { span, hold, packets: Vec::new() };
    let (mut now, mut over) = (0, 0);
    for _ in 0..80 {
        now += match random.below(4) {
            0 => 0,
            1 => span - now % span,
            2 => random.below(span),
            _ => random.below(span * hold * 3),
        };
        // A host that is late ends every window at its nominal time.
        while let Some(end) = window.close(Instant::from_nanos(now)) {
            over = end.as_nanos() / span;
            let (ours, theirs) = (mutant(window.estimate_bps()), plain.estimate(over));
            if ours != theirs {
                return Err(format!("seed {seed}: {ours} and not {theirs} after {over} windows"));
            }
        }
        if over != now / span {
            return Err(format!("seed {seed}: {over} windows are over at {now}"));
        }
        let bytes = random.below(1_600);
        window.count(bytes);
        plain.packets.push((now, bytes));
    }
    Ok(())
}

/// T43 and T47: bit for bit the plain model, over random loads, spans, holds and late hosts.
#[test]
fn equals_the_plain_model() {
    for seed in weir_seed::seeds(300) {
        window_equals_the_plain_model(seed, |estimate| estimate).unwrap();
        assert!(window_equals_the_plain_model(seed, |estimate| estimate + 1).is_err());
    }
}

/// T43's vectors: a rise is seen at the end of the window (S), a fall in (T, 2T]. T47: silence decays.
#[test]
fn t43_golden_vectors() {
    let windows = Windows { span: Duration::from_millis(800), hold: 4 };
    let mut window = Window::new(windows, Instant::ZERO);
    // kbit/s in each window, and the estimate at its end.
    let loads = [300, 500, 200, 100, 100, 100, 200, 100, 100, 0, 0, 0, 0, 0, 0, 0];
    let seen = [300, 500, 500, 500, 500, 500, 500, 200, 200, 200, 200, 100, 100, 100, 100, 0];
    for (n, (load, expected)) in loads.into_iter().zip(seen).enumerate() {
        window.count(load * 100);
        let end = window.close(Instant::from_millis(800 * (n as u64 + 1))).unwrap();
        assert_eq!(end, Instant::from_millis(800 * (n as u64 + 1)));
        assert_eq!(window.estimate_bps(), expected * 1_000, "window {n}");
    }
    // T47: silence of a day costs no calls, and decays to nothing.
    let mut closed = 0;
    window.count(1);
    while window.close(Instant::from_nanos(86_400_000_000_000)).is_some() {
        closed += 1;
    }
    assert!(window.estimate_bps() == 0 && closed < 40, "{closed}");
}

// ------------------------------------------------------------------------------------- threshold

type ThresholdLaw = fn(&Threshold, u64, u64) -> Option<u64>;

/// T39 in rationals.
fn plain_threshold(law: &Threshold, allocated: u64, used: u64) -> Option<u64> {
    let (b, u) = (u128::from(allocated), u128::from(used));
    let (high, low) = (u128::from(law.high.raw()), u128::from(law.low.raw()));
    let up = u128::from(law.up.raw().unsigned_abs());
    let nearest = |numerator: u128, denominator: u128| (2 * numerator + denominator) / (2 * denominator);
    let wish = match b {
        0 if u == 0 => return None,
        0 => (u * ONE).div_ceil(high),
        _ if u * ONE > b * high => nearest(b * up, ONE).max(b + 1),
        _ if u * ONE < b * low => match law.down {
            None => nearest(b * ONE, up),
            Some(down) => nearest(b * u128::from(down.raw().unsigned_abs()), ONE),
        },
        _ => return None,
    };
    Some(wish as u64)
}

fn threshold_equals(law_under_test: ThresholdLaw, seed: u64) -> Result<(), String> {
    let mut random = Random::new(seed);
    let mut law = Threshold {
        up: factor(1_001 + random.below(1_000) as i64),
        down: (random.below(2) == 0).then(|| factor(1 + random.below(998) as i64)),
        high: share(50 + random.below(51)),
        low: share(1 + random.below(49)),
    };
    for _ in 0..200 {
        let allocated = random.below(3) * random.below(10_000_000);
        // Often exactly at a threshold, where nothing is to be done.
        let used = match random.below(4) {
            0 => law.high.of(allocated),
            1 => law.low.of(allocated),
            2 => 0,
            _ => random.below(2 * allocated + 100),
        };
        let (ours, theirs) = (law_under_test(&law, allocated, used), plain_threshold(&law, allocated, used));
        if ours != theirs {
            return Err(format!("seed {seed}: {allocated} {used} {law:?}: {ours:?}, not {theirs:?}"));
        }
        // Exact shares too.
        law.high = Fraction::ratio(3, 4);
        law.low = Fraction::ratio(1, 2);
    }
    Ok(())
}

/// T39 and T67: nothing inside and at the thresholds, the factors outside, estimate/l_max from nothing.
#[test]
fn t39_nothing_inside() {
    let right: ThresholdLaw = |law, allocated, used| law.wish(allocated, used);
    let mutants: [ThresholdLaw; 5] = [
        // At the threshold already.
        |law, b, u| if b > 0 && u >= law.high.of(b) { law.wish(b, b) } else { law.wish(b, u) },
        // The thresholds swapped, as the paper's 0.35 and 0.75.
        |law, b, u| Threshold { high: law.low, low: law.high, ..*law }.wish(b, u),
        // d instead of i.
        |law, b, u| law.wish(b, u).map(|w| if w > b && b > 0 { b + (b - b / 2) } else { w }),
        // From nothing to the estimate itself.
        |law, b, u| if b == 0 && u > 0 { Some(u) } else { law.wish(b, u) },
        // Never down.
        |law, b, u| law.wish(b, u).filter(|&w| w > b),
    ];
    let all = |law: ThresholdLaw| weir_seed::seeds(50).try_for_each(|seed| threshold_equals(law, seed));
    all(right).unwrap();
    for (number, mutant) in mutants.into_iter().enumerate() {
        assert!(all(mutant).is_err(), "mutant {number} lives");
    }
}

/// How many changes a constant load causes until there are none; none if there is no end.
fn settles(law: impl Fn(u64, u64) -> Option<u64>, start: u64, load: u64, most: u32) -> Option<u32> {
    let mut allocated = start;
    for changes in 0..most {
        match law(allocated, load).filter(|&wish| wish != allocated) {
            None => return Some(changes),
            Some(wish) => allocated = wish,
        }
    }
    None
}

/// T40: with l_max > k·l_min every constant load comes to rest within ln(range)/ln(min(i, 1/d)) + 2
/// windows, for 2,000 loads and random sets. With the condition violated and i·d = 1, the share
/// 1 - ln(l_max/l_min)/ln i of all loads oscillates for ever, ± 1 point.
#[test]
fn t40_constant_loads_come_to_rest() {
    let mut random = Random::new(weir_seed::seed());
    let mut sets = 0;
    while sets < weir_seed::effort(20) {
        let law = Threshold {
            up: factor(1_020 + random.below(600) as i64),
            down: (random.below(2) == 0).then(|| factor(500 + random.below(480) as i64)),
            high: share(60 + random.below(40)),
            low: share(20 + random.below(70)),
        };
        if !check::is_stable(&law) {
            continue;
        }
        sets += 1;
        let up = law.up.raw() as f64 / ONE as f64;
        let smallest = up.min(ONE as f64 / law.down_raw() as f64);
        for _ in 0..2_000 {
            let load = 10_000 + random.below(100_000_000);
            let start = 10_000 + random.below(100_000_000);
            let range = (load as f64 / start as f64).ln().abs() + 1.0;
            let most = (range / smallest.ln()) as u32 + 2;
            let changes = settles(|b, u| law.wish(b, u), start, load, 10_000);
            assert!(changes.is_some_and(|c| c <= most), "{law:?}: {load} from {start}: {changes:?} > {most}");
        }
    }
    // Reversed: 1.25 and .73/.9 violate the condition; formula 6.2 %.
    let law = Threshold { up: factor(1_250), down: None, high: share(90), low: share(73) };
    assert!(!check::is_stable(&law));
    let loads = 20_000;
    let endless = (0..loads)
        .filter(|_| {
            // Over whole rungs of the ladder, each as likely: the last rung is half of what an even draw hits.
            let rungs = 20.0 * (random.below(1 << 53) as f64 / (1u64 << 53) as f64);
            let load = (1_000_000.0 * 1.25f64.powf(rungs)) as u64;
            settles(|b, u| law.wish(b, u), 3_000_000, load, 1_000).is_none()
        })
        .count();
    let formula = 1.0 - (0.9f64 / 0.73).ln() / 1.25f64.ln();
    let found = endless as f64 / f64::from(loads);
    assert!((found - formula).abs() < 0.01, "{found} of the loads oscillate, and not {formula}");
}

/// T41: with i·d = 1 a rise and a fall lead back exactly; the published 1.2 and 0.8 do not, and `check`
/// says so with the line to write.
#[test]
fn t41_a_ladder_leads_back() {
    let mut random = Random::new(weir_seed::seed());
    let (ladder, published) =
        (Threshold::default(), Threshold { down: Some(factor(800)), ..Threshold::default() });
    for _ in 0..10_000 {
        let b = 1_000 + random.below(1 << 40);
        let above = ladder.wish(b, b).unwrap();
        assert!(ladder.wish(above, 0).unwrap().abs_diff(b) <= 1, "{b}");
        assert!(published.wish(above, 0).unwrap() < b, "{b}");
    }
    let plan = |law| weir_edge::allocate::Allocation { law: Law::Threshold(law), ..Default::default() };
    assert_eq!(check::allocation(&plan(ladder), 1500), []);
    let found = check::allocation(&plan(published), 1500);
    assert_eq!((found.len(), found[0].write.as_str()), (1, "down 0.8333"), "{found:?}");
}

/// T42: tuning by figure 24, with a made response surface, ends with a feasible set that is better than
/// its start; without a feasible set it says so.
#[test]
fn t42_tuning_ends_with_a_feasible_set() {
    // Requests grow steeply with l_min, overlimit with l_max: the shape of figures 26 to 32.
    let measure = |law: &Threshold| Measured {
        overlimit: share(law.high.raw() * 100 / (1 << 32) / 30),
        requests_per_minute_x100: 4u64.pow((law.low.raw() * 10 / (1 << 32)) as u32) / 10,
    };
    let search = |constraints| {
        let start = Threshold { low: share(40), ..Threshold::default() };
        let mut tune = Tune::new(start, constraints);
        let mut trials = 0;
        while let Some(trial) = tune.next() {
            tune.measured(measure(&trial));
            trials += 1;
            assert!(trials < 1_000, "it ends");
        }
        tune.best()
    };
    let constraints = Constraints { overlimit: share(4), requests_per_minute_x100: 450 };
    let best = search(constraints).unwrap();
    let result = measure(&best);
    assert!(result.overlimit <= constraints.overlimit);
    assert!(result.requests_per_minute_x100 <= constraints.requests_per_minute_x100);
    assert!(best.low > share(58) && check::is_stable(&best), "{best:?}");
    assert_eq!(search(Constraints { overlimit: share(0), requests_per_minute_x100: 0 }), None);
}

// ------------------------------------------------------------------------------------------- log

type LogLaw = fn(&Log, u64, u64, u64) -> Option<u64>;

/// No step crosses its target, a step is only taken where |ΔB| > ΔB_min, and under a constant load no
/// two steps have different signs and the end is in the dead zone.
fn log_is_monotone(law_under_test: LogLaw, seed: u64) -> Result<(), String> {
    let mut random = Random::new(seed);
    let law = match random.below(3) {
        0 => Log {
            gain: Amount::Share(share(20 + random.below(81))),
            step: Amount::Share(share(1 + random.below(15))),
            ..Log::default()
        },
        _ => Log {
            gain: Amount::Rate(100_000 + random.below(2_000_000)),
            step: Amount::Rate(1_000 + random.below(60_000)),
            target: share(60 + random.below(40)),
            published: false,
        },
    };
    // 10 kbit/s to 100 Mbit/s, evenly in the logarithm.
    let load = 10_000 << random.below(14);
    let load = load + random.below(load);
    let goal = law.goal(load);
    let mut allocated = match random.below(5) {
        0 => 0,
        1 => goal / 1_000,
        _ => random.below(4 * goal),
    };
    let (mut last_sign, mut steps) = (0, 0);
    while let Some(wish) = law_under_test(&law, 0, allocated, load).filter(|&w| w != allocated) {
        let sign = if wish > allocated { 1 } else { -1 };
        let before = allocated;
        let says = |what: &str| Err(format!("seed {seed}: {what}: {before} -> {wish}, goal {goal} {law:?}"));
        if (sign > 0 && wish > goal) || (sign < 0 && wish < goal) {
            return says("crosses its target");
        }
        if last_sign * sign < 0 {
            return says("alternates");
        }
        let delta = law.delta(allocated, load);
        if delta.is_some_and(|d| d.unsigned_abs() <= law.step.bps(allocated)) {
            return says("a step below the least");
        }
        // Not more than the law says, and all of it where the target is beyond.
        let reaches = delta.map_or(goal, |d| allocated.saturating_add_signed(d));
        if delta.is_some() && wish != goal && wish != reaches {
            return says("neither the law's step nor the target");
        }
        (last_sign, allocated) = (sign, wish);
        steps += 1;
        if steps > 100_000 {
            return says("no end");
        }
    }
    let Some(delta) = law.delta(allocated, load) else {
        return Err(format!("seed {seed}: stays at nothing"));
    };
    if delta.unsigned_abs() > law.step.bps(allocated) && allocated != goal {
        return Err(format!("seed {seed}: rests at {allocated}, goal {goal}, {law:?}"));
    }
    Ok(())
}

/// T48: the clipped law over loads from 10 kbit/s to 100 Mbit/s; and five wrong laws that this finds.
#[test]
fn t48_no_step_crosses_its_target() {
    let right: LogLaw = |law, from, b, m| law.wish(from, b, m);
    let mutants: [LogLaw; 5] = [
        // As published.
        |law, from, b, m| Log { published: true, ..*law }.wish(from, b, m),
        // Equation 11 as printed: it never gives back.
        |law, from, b, m| law.wish(from, b, m).filter(|&w| w > b),
        // The margin literally.
        |law, from, b, m| Log { target: share(10), ..*law }.wish(from, b, m),
        // Without a least step.
        |law, from, b, m| Log { step: Amount::Rate(0), ..*law }.wish(from, b, m),
        // Half steps: what the law says is not done.
        |law, from, b, m| law.wish(from, b, m).map(|w| if w > b { b + (w - b).div_ceil(2) } else { w }),
    ];
    let all = |law: LogLaw| weir_seed::seeds(300).try_for_each(|seed| log_is_monotone(law, seed));
    all(right).unwrap();
    for (number, mutant) in mutants.into_iter().enumerate() {
        assert!(all(mutant).is_err(), "mutant {number} lives");
    }
}

/// ΔB against floating point, within a bit/s and the logarithm's 10^-6.
#[test]
fn the_step_is_the_formula() {
    let mut random = Random::new(weir_seed::seed());
    let law = Log::default();
    for _ in 0..100_000 {
        let (b, m) = (1 + random.below(1 << 30), 1 + random.below(1 << 30));
        let exact = 600_000.0 * (m as f64 / (b as f64 * (law.target.raw() as f64 / ONE as f64))).ln();
        let ours = law.delta(b, m).unwrap();
        assert!((ours as f64 - exact).abs() <= 0.51 + exact.abs() * 1e-6, "{b} {m}: {ours} {exact}");
    }
    assert!(ln_ratio(1, 1) == Some(0));
}

/// As published with K 600 kbit/s, a constant 240 kbit/s swings between 114 and 624 kbit/s (± 3 %) for
/// ever; clipped it rests. `check` finds it.
#[test]
fn published_swings_as_computed() {
    let published = Log { published: true, ..Log::default() };
    let mut allocated = 400_000;
    let mut last = [0; 2];
    for window in 0..10_000 {
        allocated = published.wish(1_000, allocated, 240_000).expect("it never rests").max(1_000);
        last[window % 2] = allocated;
    }
    last.sort_unstable();
    let near = |found: u64, kbps: f64| (found as f64 / (kbps * 1e3) - 1.0).abs() < 0.03;
    assert!(near(last[0], 114.0) && near(last[1], 624.0), "{last:?}");
    let settled = settles(|b, m| Log::default().wish(0, b, m), 400_000, 240_000, 10);
    assert!(settled.is_some());
    let plan = weir_edge::allocate::Allocation { law: Law::Log(published), ..Default::default() };
    assert_eq!(check::allocation(&plan, 1500)[0].write, "from 300K");
}

/// The steps of a staircase of 256 kbit/s, settled and metered at arrivals: one, one, five and one
/// requests.
#[test]
fn steps_take_as_many_requests_as_computed() {
    for (from, to, requests) in [(256, 512, 1), (512, 1024, 2), (1024, 2048, 5), (1024, 256, 1)] {
        let law = Log::default();
        let start = law.goal(from * 1000);
        let found = settles(|b, m| law.wish(0, b, m), start, to * 1000, 100);
        assert_eq!(found, Some(requests), "{from} -> {to}");
    }
}

// ----------------------------------------------------------------------------------------- check

/// T45 and the others: each condition is found, with the line to write; and what it says to write is accepted.
#[test]
fn check_finds_each_condition_and_the_mend_mends() {
    use weir_edge::allocate::{Allocation, Congestion};
    let at_shaper = Allocation {
        law: Law::Log(Log { gain: Amount::Rate(470_000), ..Log::default() }),
        at_shaper: true,
        from: 64_000,
        ..Allocation::default()
    };
    let found = check::allocation(&at_shaper, 1500);
    assert_eq!((found.len(), found[0].write.as_str()), (1, "gain 475K"), "{found:?}");
    let mended =
        Allocation { law: Law::Log(Log { gain: Amount::Rate(475_000), ..Log::default() }), ..at_shaper };
    assert_eq!(check::allocation(&mended, 1500), []);
    // At arrivals there is no dead lock, and congestion control breaks it.
    assert_eq!(check::allocation(&Allocation { at_shaper: false, ..at_shaper }, 1500), []);

    let unstable = Allocation {
        law: Law::Threshold(Threshold { low: share(80), high: share(90), ..Threshold::default() }),
        ..Allocation::default()
    };
    let found = check::allocation(&unstable, 1500);
    assert_eq!((found.len(), found[0].write.as_str()), (1, "low 74"), "{found:?}");
    let mended = Threshold { low: share(74), ..Threshold::default() };
    assert!(check::is_stable(&mended));

    let control = Congestion { drain: Duration::from_millis(5), margin: share(20), packets: false };
    let slow = Allocation {
        congestion: Some(control),
        guard: Duration::from_millis(800),
        from: 1_000_000,
        initial: 1_000_000,
        ..Allocation::default()
    };
    let found = check::allocation(&slow, 1500);
    let writes: Vec<&str> = found.iter().map(|f| f.write.as_str()).collect();
    assert_eq!(writes, ["guard 1.6s", "congestion 12ms"], "{found:?}");
    let mended = Allocation {
        congestion: Some(Congestion { drain: Duration::from_millis(12), ..control }),
        guard: Duration::from_millis(1600),
        ..slow
    };
    assert_eq!(check::allocation(&mended, 1500), []);
    // Chapter V's variant with 100 µs and 512 bytes: below a packet for all rates up to 41 Mbit/s.
    let variant = Congestion { drain: Duration::from_micros(100), packets: true, ..control };
    let with = |to| Allocation { congestion: Some(variant), to, ..Allocation::default() };
    assert_eq!(check::allocation(&with(10_000_000), 512).len(), 1);
    assert_eq!(check::allocation(&with(41_000_000), 512), []);

    assert_eq!(check::thresholds(share(95), share(95))[0].write, "accept 90");
    assert_eq!(check::thresholds(share(90), share(95)), []);
    assert_eq!(check::sum(9_000_000, 8_000_000).unwrap().write, "to 9M");
    assert_eq!(check::sum(8_000_000, 8_000_000), None);
    // G.711 in packets of 20 ms has 200 bytes of IP, and the rule is "at most".
    let rule = |size| Rule { size, ..Rule::default() };
    assert_eq!(check::size(&rule(199)).unwrap().write, "size 320");
    assert_eq!((check::size(&rule(200)), check::size(&Rule::default())), (None, None));
    let upside_down = Allocation { from: 9_000_000, to: 8_000_000, ..Allocation::default() };
    assert_eq!(check::allocation(&upside_down, 1500)[0].write, "from 8M");
}
