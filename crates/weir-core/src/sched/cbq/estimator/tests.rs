//! The formulas in floats, the short way beside the plain one, and rates over the whole range.

use super::*;

fn packet(start: Fine, on_link: Fine, bytes: u64, busy_since: Fine) -> Transmission {
    Transmission { bytes, start, on_link, busy: Busy::since(busy_since) }
}

const TEN_YEARS_NS: u64 = 10 * 365 * 86_400 * 1_000_000_000;

/// Rate of a class that always sends as soon as it may, over its share, with a host that
/// counts whole nanoseconds.
fn paced(link: &Link, permille: u64, len: u32, minburst: u32, gain_log2: u32) -> f64 {
    let shape = Shape {
        rate: Rate::from_bps((link.rate.as_bps() * permille).div_ceil(1_000)),
        gain_log2,
        maxburst: 16.max(minburst),
        minburst,
        packet_bytes: 1_500,
        largest_bytes: 65_535,
        minidle: true,
        waits: true,
        own_time: true,
    };
    let mut estimator = Estimator::new(&shape, link);
    let (on_link, cost) = (link.time_for(len), shape.rate.time_for(len.into()).raw());
    let mut free = Fine::from_nanos(TEN_YEARS_NS);
    // When waiting began first, after what the first burst left in the average, and last;
    // the packets between.
    let (mut first, mut last, mut sent, mut since) = (0, 0, 0u32, 0u32);
    let mut busy_since = free;
    for n in 0..30_000 {
        let wake = estimator.charge(&packet(free, on_link, len.into(), busy_since), Instant::ZERO);
        let paused = Fine::from(wake) > free + on_link;
        free = (free + on_link).max(wake.into());
        busy_since = if paused { free } else { busy_since };
        since += 1;
        if n >= 10_000 && wake > Instant::ZERO {
            last = estimator.next;
            if first == 0 {
                first = last;
            } else {
                sent += since;
            }
            since = 0;
        }
    }
    f64::from(sent) * cost as f64 / (last - first) as f64
}

/// A35: 9.6 kbit/s to 400 Gbit/s, 20 to 65,535 bytes, ten years after the start: the rate of a
/// class that waits is its share within 0.1 %.
#[test]
fn a35_rates_are_exact_over_the_whole_range() {
    for bps in [9_600, 64_000, 1_500_000, 100_000_000, 4_294_967_297, 40_000_000_000, 400_000_000_000] {
        let link = Link::new(Rate::from_bps(bps), 0, 1_500);
        for (permille, len) in
            [10, 300, 900].into_iter().flat_map(|p| [20, 64, 1_500, 65_535].map(|l| (p, l)))
        {
            for (minburst, gain_log2) in [(1, 5), (2, 5), (2, 1), (1, 10)] {
                let ratio = paced(&link, permille, len, minburst, gain_log2);
                let case = (bps, permille, len, minburst, gain_log2);
                assert!((ratio - 1.0).abs() < 0.001, "{case:?}: {ratio}");
            }
        }
    }
}
/// A class that had its next packet before the last one had left the link, to the nanosecond, was
/// never without packets: its next one begins in its own time. Otherwise it begins when it came.
#[test]
fn a_class_is_not_without_packets_while_its_last_one_is_on_the_link() {
    let link = Link::new(Rate::from_mbps(10), 0, 1_500);
    let shape = Shape {
        rate: Rate::from_mbps(1),
        gain_log2: 5,
        maxburst: 16,
        minburst: 2,
        packet_bytes: 1_500,
        largest_bytes: 1_500,
        minidle: true,
        waits: true,
        own_time: true,
    };
    let mut estimator = Estimator::new(&shape, &link);
    let us = |n: i128| n * 1_000 * NANOSECOND;
    (estimator.next, estimator.until) = (us(50), us(100));
    for (since, begins) in [
        (us(40), us(50)),
        (us(100), us(50)),
        (us(100) + NANOSECOND, us(50)),
        (us(100) + NANOSECOND + 1, us(100) + NANOSECOND + 1),
        (us(120), us(120)),
    ] {
        assert_eq!(estimator.begin(us(200), since), begins, "since {since}");
    }
    // It came when its waiting had ended: within the same nanosecond counts as in time.
    estimator.until = us(10);
    for (since, begins) in [(us(50) + NANOSECOND - 1, us(50)), (us(50) + NANOSECOND, us(50) + NANOSECOND)] {
        assert_eq!(estimator.begin(us(200), since), begins, "since {since}");
    }
}
/// A packet that is a burst by itself enters the average by the short way as by the plain one, whatever
/// came before. Reversed: a class that sends bursts does not.
#[test]
fn the_short_way_is_the_plain_one() {
    let mut all_in_words = 0;
    for seed in weir_seed::seeds(20) {
        let mut random = crate::Random::new(seed);
        let link = Link::new(Rate::from_mbps(10), 24, 1_500);
        let (mut others, mut in_time, mut in_words) = ([0, 0], 0, 0);
        for minburst in [1, 2] {
            // Times of the slower one do not fit into words.
            let rate = Rate::from_bps([1_000_000, 64_000][random.below(2) as usize]);
            let own_time = random.below(2) == 0;
            let waits = Shape { rate, minburst, waits: true, own_time, ..shape(5) };
            let mut estimator = Estimator::new(&waits, &link);
            let mut now = Fine::from_nanos(random.below(1 << 40));
            for _ in 0..2_000 {
                let (len, pause) =
                    (40 + random.below(1_400) as u32, random.below(3) * random.below(20_000_000));
                now += Fine::from_raw(u128::from(pause) << random.below(36));
                let busy_since = [Fine::ZERO, now][random.below(2) as usize];
                let demand = Instant::from_nanos(random.below(1 << 41)).min(now.floor());
                let since = raw(busy_since.max(demand.into()));
                let (on_link, bytes) = (link.time_for(len), link.cost_bytes(len));
                let cost = raw(estimator.per_byte.time_for(bytes));
                let packet = packet(now, on_link, bytes, busy_since);
                let mut plain = estimator;
                let wake = plain.charge_burst(raw(now), raw(on_link), cost, since);
                let waited = estimator.over && minburst == 1;
                let fits = bytes <= estimator.fits && estimator.had_packets(since);
                in_words += u32::from(waited && fits);
                in_time += u32::from(waited && plain.last - raw(on_link) <= estimator.next);
                let mut alone = estimator;
                (alone.minburst, alone.burst) = (1, NO_BURST);
                others[minburst as usize - 1] += u32::from(alone.charge(&packet, demand) != wake);
                assert_eq!(estimator.charge(&packet, demand), wake, "seed {seed}");
                assert_eq!(estimator, plain, "seed {seed}");
                // It waits, or it borrows.
                let ready = if random.below(2) == 0 { now.max(wake.into()) } else { now };
                now = ready.min(now + Fine::from_nanos(1 << 30)) + on_link;
            }
        }
        assert!(others[0] == 0 && others[1] > 10, "seed {seed}: {others:?}");
        assert!(in_time > 100, "seed {seed}: {in_time}");
        all_in_words += in_words;
    }
    assert!(all_in_words > 100, "{all_in_words} in words");
}

/// A class of 1 Mbit/s with this gain on a link of 10, to be changed.
fn shape(gain_log2: u32) -> Shape {
    Shape {
        rate: Rate::from_mbps(1),
        gain_log2,
        maxburst: 4,
        minburst: 3,
        packet_bytes: 1_000,
        largest_bytes: 1_500,
        minidle: true,
        waits: false,
        own_time: false,
    }
}

/// [CBQ95 section IV] in floats and nanoseconds, for packets that enter the average one by one:
/// average, end of the last one, when the next may start, and whether that is waited for.
struct Plain {
    gain: f64,
    average: f64,
    last: f64,
    next: f64,
    over: bool,
}

impl Plain {
    fn charge(&mut self, start: f64, on_link: f64, cost: f64, least: f64, most: f64) {
        let late = start - self.next;
        let begin = if self.over && (0.0..1.0).contains(&late) { self.next } else { start };
        let end = begin + on_link;
        let idle = end - self.last - cost;
        let average = match self.over {
            true => (begin - self.next) / self.gain,
            false => self.average + (idle - self.average) / self.gain,
        };
        self.average = average.clamp(least, most);
        (self.last, self.next) = (end, end);
        self.over = self.average <= 1.0 / self.gain;
        if self.over {
            self.average = self.average.min(0.0);
            self.next = end + (cost - on_link).max(0.0) - (self.gain - 1.0) * self.average;
        }
    }
}

/// True if average and waiting are those of the formulas at every packet of a random run, with a
/// gain in the formulas that is `factor` times that of the estimator.
fn follows_the_formulas(seed: u64, factor: f64) -> bool {
    let mut random = crate::Random::new(seed);
    let link = Link::new(Rate::from_mbps(10), 20, 1_500);
    let gain_log2 = 1 + random.below(6) as u32;
    let shape = Shape { minidle: random.below(2) == 0, ..shape(gain_log2) };
    let mut estimator = Estimator::new(&shape, &link);
    let gain = f64::from(1 << gain_log2) * factor;
    let on_link = |len: u64| (len + 20) as f64 * 800.0;
    // A burst of four from an idle class uses up all the credit; one packet comes for nothing.
    let base = 9.0 * on_link(1_000);
    let most = (base * ((gain / (gain - 1.0)).powi(3) - 1.0)).max(on_link(1_000) / gain);
    let least = if shape.minidle { -10.0 * on_link(1_500) } else { f64::MIN };
    let mut plain = Plain { gain, average: most, last: 0.0, next: 0.0, over: false };
    if (estimator.most_ns() as f64 - most).abs() > 1.0 {
        return false;
    }
    let mut free = 0;
    for _ in 0..300 {
        // Back to back, at the time when it may, or after a pause.
        let wake = estimator.wake().as_nanos();
        let start = match random.below(4) {
            0 => free,
            1 | 2 => free.max(wake),
            _ => free + random.below(40_000_000),
        };
        let len = 40 + random.below(1_461);
        let (time, bytes) = (link.time_for(len as u32), len + 20);
        let packet = packet(Fine::from_nanos(start), time, bytes, Fine::ZERO);
        let wake = estimator.charge(&packet, Instant::ZERO);
        plain.charge(start as f64, on_link(len), 10.0 * on_link(len), least, most);
        let underlimit = if plain.over { plain.next } else { 0.0 };
        let waits = (wake.as_nanos() as f64 - underlimit).abs() < 100.0;
        if (estimator.average_ns() as f64 - plain.average).abs() > 2.0 || !waits {
            return false;
        }
        free = start + time.ceil().as_nanos();
    }
    true
}

/// A class that may borrow, and so need not wait: its packets enter the average one by one. Reversed:
/// another gain is seen to be another.
#[test]
fn a35_averages_and_waits_are_those_of_the_formulas() {
    for seed in weir_seed::seeds(200) {
        assert!(follows_the_formulas(seed, 1.0), "seed {seed}");
    }
    assert!(weir_seed::seeds(20).all(|seed| !follows_the_formulas(seed, 2.0)));
}

/// Another share, another gain: credit and debt stay as far as the new bounds allow, a burst that
/// was begun is no longer than the new `minburst`, and a class without a share waits until it has one.
#[test]
fn a_change_of_shape_keeps_what_it_can() {
    let link = Link::new(Rate::from_mbps(10), 0, 1_500);
    let waiting = Shape { waits: true, ..shape(5) };
    let mut estimator = Estimator::new(&waiting, &link);
    let most = estimator.most_ns();
    assert_eq!(estimator.average_ns(), most);
    estimator.shape(&Shape { maxburst: 8, ..waiting }, &link);
    assert_eq!(estimator.average_ns(), most, "room for more credit gives none");
    estimator.shape(&Shape { maxburst: 2, ..waiting }, &link);
    assert!(estimator.most_ns() < most && estimator.average_ns() == estimator.most_ns());
    let on_link = link.time_for(1_000);
    let mut start = Fine::ZERO;
    while estimator.wake() == Instant::ZERO {
        estimator.charge(&packet(start, on_link, 1_000, Fine::ZERO), Instant::ZERO);
        start += on_link;
    }
    assert_eq!((estimator.minburst, estimator.burst.left), (3, 3));
    estimator.shape(&Shape { minburst: 2, ..waiting }, &link);
    assert_eq!((estimator.minburst, estimator.burst.left), (2, 2));
    estimator.shape(&Shape { waits: false, ..waiting }, &link);
    assert_eq!((estimator.minburst, estimator.burst.left), (1, 1), "who may borrow does not wait for bursts");
    let wake = estimator.wake();
    estimator.shape(&waiting, &link);
    assert_eq!(estimator.wake(), wake, "it waits on");
    estimator.shape(&Shape { rate: Rate::ZERO, ..waiting }, &link);
    assert_eq!(estimator.wake(), Instant::NEVER);
    assert_eq!(estimator.charge(&packet(start, on_link, 1_000, Fine::ZERO), Instant::ZERO), Instant::NEVER);
    estimator.shape(&waiting, &link);
    assert_eq!(estimator.wake(), Instant::ZERO);
}
