//! RFC 2697, 2698 and 4115 against vectors worked by hand, exact models and their bounds.

use super::{SingleRate, TwoRate};
use crate::Random;
use crate::packet::Colour::{self, Green, Red, Yellow};
use crate::units::{Instant, Rate};
use std::boxed::Box;
use std::vec::Vec;

const RATES: [u64; 6] = [9_600, 1_500_000, 155_520_000, 1_000_000_007, 40_000_000_000, 400_000_000_000];
/// Units of 10^-9 bit in a byte.
const BYTE: i128 = 8_000_000_000;

fn ms(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

/// 8 kbit/s is a byte a millisecond. Committed burst 1000, excess burst 2000.
///
/// ```text
///    ms   bytes   Tc before   Te before   colour
///     0    600      1000        2000      green
///     0    600       400        2000      yellow: 400 < 600
///   100    500       500        1400      green: exactly 500
///   100    500         0        1400      yellow
///   100   1000         0         900      red: takes nothing
///  2000    950      1000        1800      green: of 1900 bytes, 1000 fill Tc and 900 go to Te
///  2000   1800        50        1800      yellow: exactly 1800
///  2000     51        50           0      red
///  2000     50        50           0      green
/// ```
#[test]
fn rfc2697_by_hand() {
    let mut meter = SingleRate::new(Rate::from_bps(8_000), 1_000, 2_000, false);
    for (at, len, colour) in [
        (0, 600, Green),
        (0, 600, Yellow),
        (100, 500, Green),
        (100, 500, Yellow),
        (100, 1_000, Red),
        (2_000, 950, Green),
        (2_000, 1_800, Yellow),
        (2_000, 51, Red),
        (2_000, 50, Green),
    ] {
        assert_eq!(meter.meter(ms(at), len, Red), colour, "{at} ms, {len} bytes");
    }
    // Aware: yellow never gets green, red stays red and takes nothing.
    let mut meter = SingleRate::new(Rate::from_bps(8_000), 1_000, 2_000, true);
    for (before, len, colour) in [
        (Yellow, 1_500, Yellow),
        (Red, 10, Red),
        (Yellow, 501, Red),
        (Yellow, 500, Yellow),
        (Green, 1_001, Red),
        (Green, 1_000, Green),
    ] {
        assert_eq!(meter.meter(ms(0), len, before), colour, "{before:?} {len} bytes");
    }
}

/// Committed 8 kbit/s with a burst of 1000, peak 16 kbit/s with a burst of 1500.
///
/// ```text
///    ms   bytes   Tp before   Tc before   colour
///     0    700      1500        1000      green
///     0    700       800         300      yellow: takes from Tp only
///     0    200       100         300      red: takes nothing
///     0    100       100         300      green
///   500    900      1000         700      yellow
///   500    100       100         700      green
///   500      1         0         600      red: the committed bucket does not help
///  9000   1501      1500        1000      red: longer than the peak burst
/// ```
#[test]
fn rfc2698_by_hand() {
    let profile = ((Rate::from_bps(8_000), 1_000), (Rate::from_bps(16_000), 1_500));
    let mut meter = TwoRate::rfc2698(profile.0, profile.1, false);
    for (at, len, colour) in [
        (0, 700, Green),
        (0, 700, Yellow),
        (0, 200, Red),
        (0, 100, Green),
        (500, 900, Yellow),
        (500, 100, Green),
        (500, 1, Red),
        (9_000, 1_501, Red),
    ] {
        assert_eq!(meter.meter(ms(at), len, Red), colour, "{at} ms, {len} bytes");
    }
    let mut meter = TwoRate::rfc2698(profile.0, profile.1, true);
    for (before, len, colour) in
        [(Red, 10, Red), (Yellow, 500, Yellow), (Green, 1_000, Green), (Green, 1, Red), (Yellow, 1, Red)]
    {
        assert_eq!(meter.meter(ms(0), len, before), colour, "{before:?} {len} bytes");
    }
}

/// Committed 8 kbit/s with a burst of 1000, excess 16 kbit/s with a burst of 1500.
///
/// ```text
///    ms   bytes   Tc before   Te before   colour
///     0    700      1000        1500      green: Te stays whole, unlike RFC 2698's peak bucket
///     0    700       300        1500      yellow
///     0    900       300         800      red
///     0    300       300         800      green
///     0    800         0         800      yellow
///   250    250       250         500      green
///   250    500         0         500      yellow
///   250      1         0           0      red
/// ```
#[test]
fn rfc4115_by_hand() {
    let profile = ((Rate::from_bps(8_000), 1_000), (Rate::from_bps(16_000), 1_500));
    let mut meter = TwoRate::rfc4115(profile.0, profile.1, false);
    for (at, len, colour) in [
        (0, 700, Green),
        (0, 700, Yellow),
        (0, 900, Red),
        (0, 300, Green),
        (0, 800, Yellow),
        (250, 250, Green),
        (250, 500, Yellow),
        (250, 1, Red),
    ] {
        assert_eq!(meter.meter(ms(at), len, Red), colour, "{at} ms, {len} bytes");
    }
    let mut meter = TwoRate::rfc4115(profile.0, profile.1, true);
    for (before, len, colour) in
        [(Red, 10, Red), (Yellow, 1_500, Yellow), (Green, 1_000, Green), (Green, 1, Red)]
    {
        assert_eq!(meter.meter(ms(0), len, before), colour, "{before:?} {len} bytes");
    }
}

/// A bucket as the RFCs state it: tokens that grow with time, in exact fractions of a byte.
struct Exact {
    bps: i128,
    depth: i128,
    tokens: i128,
}

impl Exact {
    fn new(bps: u64, depth: u64) -> Self {
        let depth = i128::from(depth) * BYTE;
        Exact { bps: i128::from(bps), depth, tokens: depth }
    }
    /// Lets time pass; answers what flows over.
    fn pass(&mut self, gap_ns: u64) -> i128 {
        self.tokens += i128::from(gap_ns) * self.bps;
        let over = (self.tokens - self.depth).max(0);
        self.tokens -= over;
        over
    }
    fn take(&mut self, len: u32) -> bool {
        let enough = self.tokens - i128::from(len) * BYTE >= 0;
        if enough {
            self.tokens -= i128::from(len) * BYTE;
        }
        enough
    }
}

/// Profiles that a random source of about three times the committed rate runs through.
struct Case {
    seed: u64,
    cir: u64,
    cbs: u64,
    second: u64,
    ebs: u64,
    aware: bool,
    random: Random,
    now: u64,
}

impl Case {
    fn all() -> impl Iterator<Item = Case> {
        RATES.into_iter().flat_map(|cir| weir_seed::seeds(6).map(move |seed| Case::new(seed, cir)))
    }
    fn new(seed: u64, cir: u64) -> Self {
        let mut random = Random::new(seed ^ cir);
        let cbs = 1_514 + random.below(15_000);
        let second = cir + cir / 4 + random.below(cir / 2);
        let ebs = cbs + random.below(15_000);
        Case { seed, cir, cbs, second, ebs, aware: seed % 2 == 1, random, now: 0 }
    }
    /// Gap, length and colour of the next packet.
    fn packet(&mut self) -> (u64, u32, Colour) {
        let packet_ns = 800 * 8_000_000_000 / self.cir;
        let gap = match self.random.below(80) {
            0 => self.random.below(25 * packet_ns.max(1)),
            1..=20 => 0,
            _ => self.random.below(packet_ns.max(2)) / 2,
        };
        self.now += gap;
        let colour = [Green, Green, Yellow, Red][self.random.below(4) as usize];
        (gap, 64 + self.random.below(1_451) as u32, colour)
    }
    fn told(&self) -> std::string::String {
        std::format!("seed {}, {} bit/s at {}", self.seed, self.cir, self.now)
    }
}

#[test]
fn srtcm_decides_as_the_exact_model() {
    for mut case in Case::all() {
        let mut meter = SingleRate::new(Rate::from_bps(case.cir), case.cbs, case.ebs, case.aware);
        let (mut c, mut e) = (Exact::new(case.cir, case.cbs), Exact::new(0, case.ebs));
        let mut colours = [0; 3];
        for _ in 0..1_500 {
            let (gap, len, before) = case.packet();
            let over = c.pass(gap);
            e.tokens = e.depth.min(e.tokens + over);
            let as_before = if case.aware { before } else { Green };
            let expected = if as_before == Green && c.take(len) {
                Green
            } else if as_before != Red && e.take(len) {
                Yellow
            } else {
                Red
            };
            let found = meter.meter(Instant::from_nanos(case.now), len, before);
            assert_eq!(found, expected, "{}", case.told());
            colours[found as usize] += 1;
        }
        assert!(colours.iter().all(|&n| n > 10), "{}: {colours:?}", case.told());
    }
}

#[test]
fn trtcm_decides_as_the_exact_model() {
    for rfc4115 in [false, true] {
        for mut case in Case::all() {
            let mut meter = two_rate(&case, rfc4115);
            let (mut c, mut p) = (Exact::new(case.cir, case.cbs), Exact::new(case.second, case.ebs));
            let mut colours = [0; 3];
            for _ in 0..1_500 {
                let (gap, len, before) = case.packet();
                c.pass(gap);
                p.pass(gap);
                let as_before = if case.aware { before } else { Green };
                let expected = match (rfc4115, as_before) {
                    (_, Red) => Red,
                    (true, Green) if c.take(len) => Green,
                    (false, _) if !p.take(len) => Red,
                    (false, Green) if c.take(len) => Green,
                    (false, _) => Yellow,
                    (true, _) if p.take(len) => Yellow,
                    (true, _) => Red,
                };
                let found = meter.meter(Instant::from_nanos(case.now), len, before);
                assert_eq!(found, expected, "RFC 4115: {rfc4115}, {}", case.told());
                colours[found as usize] += 1;
            }
            assert!(colours.iter().all(|&n| n > 10), "{}: {colours:?}", case.told());
        }
    }
}

fn two_rate(case: &Case, rfc4115: bool) -> TwoRate {
    let make = if rfc4115 { TwoRate::rfc4115 } else { TwoRate::rfc2698 };
    let (cir, second) = (Rate::from_bps(case.cir), Rate::from_bps(case.second));
    make((cir, case.cbs), (second, case.ebs), case.aware)
}

/// The longest excess of any interval over rate * time + depth; at most 0 if all conforms.
fn excess(passed: &[(u64, u32)], bps: u64, depth: u64) -> i128 {
    let mut most = i128::MIN;
    // The excess of the interval that ends here is that of the one that ended before, less what
    // time brought, or that of this packet alone: the recursion of a bucket, without its depth.
    let (mut excess, mut last) = (0i128, 0);
    for &(at, len) in passed {
        excess = (excess - i128::from(at - last) * i128::from(bps)).max(0) + i128::from(len) * BYTE;
        last = at;
        most = most.max(excess - i128::from(depth) * BYTE);
    }
    most
}

/// Packets by colour.
fn run(case: &mut Case, mut meter: Box<dyn FnMut(Instant, u32, Colour) -> Colour>) -> [Vec<(u64, u32)>; 3] {
    let mut by_colour: [Vec<(u64, u32)>; 3] = Default::default();
    for _ in 0..3_000 {
        let (_, len, before) = case.packet();
        let colour = meter(Instant::from_nanos(case.now), len, before);
        by_colour[colour as usize].push((case.now, len));
    }
    by_colour
}

fn merged(a: &[(u64, u32)], b: &[(u64, u32)]) -> Vec<(u64, u32)> {
    let mut all = [a, b].concat();
    all.sort_by_key(|p| p.0);
    all
}

/// Green conforms to (CIR, CBS); green and yellow together to (CIR, CBS + EBS).
#[test]
fn srtcm_bounds() {
    for mut case in Case::all() {
        let mut meter = SingleRate::new(Rate::from_bps(case.cir), case.cbs, case.ebs, case.aware);
        let [green, yellow, _] =
            run(&mut case, Box::new(move |now, len, before| meter.meter(now, len, before)));
        let both = merged(&green, &yellow);
        let (cir, cbs, ebs) = (case.cir, case.cbs, case.ebs);
        assert!(excess(&green, cir, cbs) <= 0, "{}", case.told());
        assert!(excess(&both, cir, cbs + ebs) <= 0, "{}", case.told());
        // Reversed: shallower or slower buckets are broken.
        assert!(excess(&both, cir, cbs + ebs - 1_514) > 0, "{}", case.told());
        assert!(excess(&both, cir / 2, cbs + ebs) > 0, "{}", case.told());
    }
}

/// Green conforms to (CIR, CBS). RFC 2698: green and yellow together conform to (PIR, PBS). RFC
/// 4115: yellow conforms to (EIR, EBS).
#[test]
fn trtcm_bounds() {
    for rfc4115 in [false, true] {
        for mut case in Case::all() {
            let mut meter = two_rate(&case, rfc4115);
            let [green, yellow, _] =
                run(&mut case, Box::new(move |now, len, before| meter.meter(now, len, before)));
            let second = if rfc4115 { yellow.clone() } else { merged(&green, &yellow) };
            assert!(excess(&green, case.cir, case.cbs) <= 0, "{}", case.told());
            assert!(excess(&second, case.second, case.ebs) <= 0, "{}", case.told());
            // Reversed: what leaves beyond green does not conform to green's bucket.
            let both = merged(&green, &yellow);
            assert!(excess(&both, case.cir, case.cbs) > 0, "RFC 4115: {rfc4115}, {}", case.told());
        }
    }
}
