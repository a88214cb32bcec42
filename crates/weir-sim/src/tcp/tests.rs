//! Evidence that this TCP may be believed: transfers over paths that lose, delay, swap and repeat
//! segments; and the laws that the literature gives (`laws`).

use super::*;
use crate::rng::Stream;
use std::collections::BTreeMap;

mod laws;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

/// A path between two end points: a bottleneck with a drop-tail queue in one direction, then a
/// delay, and faults; the other direction only delays (and loses if `lossy_acks`).
struct Path {
    one_way_ns: u64,
    /// Nanoseconds a segment takes at the bottleneck; 0 for none.
    service_ns: u64,
    queue: u64,
    mark_above: Option<u64>,
    /// Marks the segment of data with this ordinal number.
    mark: u64,
    loss: f64,
    swap: f64,
    repeat: f64,
    lossy_acks: bool,
    /// Drops the segments of data with these ordinal numbers.
    kill: Vec<u64>,
}

impl Default for Path {
    fn default() -> Self {
        Path {
            one_way_ns: 25 * MS,
            service_ns: 0,
            queue: u64::MAX,
            mark_above: None,
            mark: 0,
            loss: 0.0,
            swap: 0.0,
            repeat: 0.0,
            lossy_acks: false,
            kill: Vec::new(),
        }
    }
}

struct Pair {
    ends: [Endpoint; 2],
    path: Path,
    random: Stream,
    wire: BTreeMap<(u64, u64), (usize, Segment, bool)>,
    count: u64,
    data_sent: u64,
    now: u64,
    free_at: u64,
    marks: u64,
    dropped: u64,
    /// Octets delivered in order, by the end that got them.
    got: [u64; 2],
    reductions: Vec<u64>,
}

impl Pair {
    fn new(config: &Config, path: Path, seed: u64) -> Self {
        let mut pair = Pair {
            ends: [Endpoint::new(config), Endpoint::new(config)],
            path,
            random: Stream::new(seed, 0),
            wire: BTreeMap::new(),
            count: 0,
            data_sent: 0,
            now: 0,
            free_at: 0,
            marks: 0,
            dropped: 0,
            got: [0, 0],
            reductions: Vec::new(),
        };
        pair.ends[0].open();
        pair.send(0);
        pair
    }

    fn write(&mut self, octets: u64) {
        self.ends[0].sender.write(octets);
        self.send(0);
    }

    fn send(&mut self, from: usize) {
        while let Some(segment) = self.ends[from].poll_send(Instant::from_nanos(self.now)) {
            self.put(from, segment);
        }
    }

    fn put(&mut self, from: usize, segment: Segment) {
        let data = segment.len > 0;
        if data {
            self.data_sent += 1;
            if self.path.kill.contains(&self.data_sent) {
                self.dropped += 1;
                return;
            }
        }
        let hit = data || self.path.lossy_acks;
        if hit && self.path.loss > 0.0 && self.random.chance(self.path.loss) {
            self.dropped += 1;
            return;
        }
        let (mut leaves, mut ce) = (self.now, false);
        if from == 0 && self.path.service_ns > 0 && data {
            let waiting = self.free_at.saturating_sub(self.now).div_ceil(self.path.service_ns);
            if waiting > self.path.queue {
                self.dropped += 1;
                return;
            }
            if segment.ect && self.path.mark_above.is_some_and(|m| waiting > m) {
                ce = true;
                self.marks += 1;
            }
            self.free_at = self.free_at.max(self.now) + self.path.service_ns;
            leaves = self.free_at;
        }
        if data && self.data_sent == self.path.mark {
            ce = true;
        }
        let copies = 1 + u64::from(self.path.repeat > 0.0 && self.random.chance(self.path.repeat));
        for _ in 0..copies {
            let swap = self.path.swap > 0.0 && self.random.chance(self.path.swap);
            let late = if swap { self.random.below(self.path.one_way_ns) } else { 0 };
            self.count += 1;
            let at = leaves + self.path.one_way_ns + late;
            self.wire.insert((at, self.count), (1 - from, segment, ce));
        }
    }

    /// Runs until `until` or until nothing is left to do.
    fn run(&mut self, until: u64) {
        loop {
            let arrival = self.wire.first_key_value().map_or(u64::MAX, |(k, _)| k.0);
            let timer = self.ends.iter().map(|e| e.poll_at().as_nanos()).min().unwrap_or(u64::MAX);
            let next = arrival.min(timer);
            if next > until || next == u64::MAX {
                break;
            }
            assert!(next >= self.now, "time goes forward");
            self.now = next;
            let now = Instant::from_nanos(next);
            if arrival <= timer {
                let Some((_, (to, segment, ce))) = self.wire.pop_first() else { break };
                let before = self.ends[0].sender.congestion_window();
                self.got[to] += self.ends[to].on_segment(now, &segment, ce);
                if self.ends[0].sender.congestion_window() < before {
                    self.reductions.push(self.now);
                }
                self.send(to);
            } else {
                for end in 0..2 {
                    if self.ends[end].poll_at() <= now {
                        self.ends[end].on_timer(now);
                        self.send(end);
                        assert!(self.ends[end].poll_at() > now, "a timer must not fire for ever");
                    }
                }
            }
        }
        if until != u64::MAX {
            self.now = until;
        }
    }

    fn stats(&self) -> SenderStats {
        *self.ends[0].sender.stats()
    }
}

/// SACK repairs n losses of one window in about one round trip; NewReno takes one for each.
#[test]
fn sack_repairs_many_losses_at_once() {
    let repair_ns = |sack: bool, losses: u64| {
        let config = Config { sack, initial_window: 60, ..Config::default() };
        let kill = (0..losses).map(|i| 3 + 4 * i).collect();
        let mut pair = Pair::new(&config, Path { kill, ..Path::default() }, 0);
        pair.write(60 * 1448);
        pair.run(u64::MAX);
        assert_eq!(pair.got[1], 60 * 1448);
        // One more is RFC 6675's rescue, when there is no new data to send.
        let spare = pair.stats().retransmits - losses;
        assert!(spare <= u64::from(sack), "nothing else is sent again in vain: {spare}");
        assert_eq!((pair.stats().timeouts, pair.stats().recoveries), (0, 1));
        pair.now
    };
    let (rtt, start) = (50 * MS, 150 * MS); // handshake, window, and its acknowledgements
    for losses in [1, 2, 5, 10] {
        let sack = repair_ns(true, losses) - start;
        assert!(sack <= rtt / 2, "{losses} losses: {sack}");
    }
    // Beyond these the timer, which only the first partial acknowledgement restarts, cuts
    // NewReno's one repair a round trip short.
    for losses in [1, 2, 5] {
        let newreno = repair_ns(false, losses) - start;
        assert!(newreno >= (losses - 1) * rtt, "{losses} losses: {newreno}");
    }
}

/// RFC 3042: with a window of four segments one loss leaves two duplicates, and the segments
/// that those release bring the third.
#[test]
fn limited_transmit_saves_a_timeout() {
    for sack in [true, false] {
        let config = Config { sack, initial_window: 3, window: 3 * 1448, ..Config::default() };
        let mut wide = Config { window: 1 << 20, ..config.clone() };
        wide.slow_start = false;
        let kill = vec![1];
        let mut pair = Pair::new(&wide, Path { kill, ..Path::default() }, 0);
        pair.write(100 * 1448);
        pair.run(u64::MAX);
        assert_eq!((pair.stats().timeouts, pair.stats().recoveries), (0, 1), "sack {sack}");
        // Reversed: where the peer's window forbids more, only the timer helps.
        let mut pair = Pair::new(&config, Path { kill: vec![1], ..Path::default() }, 0);
        pair.write(100 * 1448);
        pair.run(u64::MAX);
        assert_eq!(pair.stats().timeouts, 1, "sack {sack}");
    }
}

/// RFC 5681, 3.2: half of what was under way when the segment was lost, and not of that and the
/// two segments that its duplicates released.
#[test]
fn limited_transmit_does_not_count_as_flight() {
    for (sack, loss) in (1..=7).flat_map(|loss| [(true, loss), (false, loss)]) {
        let config = Config { sack, slow_start: false, delayed_ack: false, ..Config::default() };
        let window = |kill| {
            let mut pair = Pair::new(&config, Path { kill, ..Path::default() }, 0);
            pair.write(u64::MAX);
            pair.run(140 * MS); // the handshake, the first window, the duplicates and no repair
            (pair.ends[0].sender.congestion_window() / 1448, pair.stats().recoveries)
        };
        assert_eq!(window(vec![loss]), (5, 1), "sack {sack}, segment {loss}");
        assert_eq!(window(vec![]), (11, 0), "reversed: without a loss it grows");
    }
}

#[test]
fn time_outs_double_until_something_comes_back() {
    let kill = (2..=5).collect(); // the second segment and its first three repetitions
    let config = Config { initial_window: 1, ..Config::default() };
    let mut pair = Pair::new(&config, Path { kill, ..Path::default() }, 0);
    pair.write(1448);
    pair.run(SECOND);
    let begun = pair.now;
    pair.write(1448);
    pair.run(u64::MAX);
    assert_eq!(pair.stats().timeouts, 4);
    // Smoothed 50 ms plus the floor of 200 ms, four times: 1 + 2 + 4 + 8 of them, and a trip.
    let waited = (pair.now - begun) as f64 / MS as f64;
    assert!((15.0 * 250.0..15.0 * 275.0 + 100.0).contains(&waited), "{waited} ms");
    assert_eq!(pair.got[1], 2 * 1448);
}

#[test]
fn a_lost_syn_comes_again_after_one_second() {
    let mut pair = Pair::new(&Config::default(), Path { loss: 1.0, lossy_acks: true, ..Path::default() }, 0);
    pair.write(1448);
    pair.run(2900 * MS);
    pair.path.loss = 0.0;
    pair.run(u64::MAX);
    assert_eq!(pair.got[1], 1448);
    assert_eq!(pair.now, 3 * SECOND + 4 * 25 * MS, "SYNs at 0, 1 and 3 s");
}

/// Proves A51.
#[test]
fn every_second_segment_is_acknowledged_after_the_quick_start() {
    let run = |delayed_ack| {
        let config = Config { delayed_ack, ..Config::default() };
        let mut pair = Pair::new(&config, Path::default(), 0);
        pair.write(1000 * 1448);
        pair.run(u64::MAX);
        pair.ends[1].receiver.acks_sent()
    };
    // 16 quick ones, then one for two, and one or two held back to the delay.
    let acks = run(true);
    assert!((16 + 492..=16 + 492 + 12).contains(&acks), "{acks}");
    assert_eq!(run(false), 1000);
}

#[test]
fn a_lone_segment_waits_40_ms_and_never_for_a_time_out() {
    // The trap: a delayed acknowledgement as long as the time-out keeps a window of one
    // segment at one segment for ever.
    let config = Config { window: 1448, ..Config::default() };
    let mut pair = Pair::new(&config, Path::default(), 0);
    pair.write(200 * 1448);
    pair.run(u64::MAX);
    assert_eq!((pair.stats().timeouts, pair.stats().retransmits), (0, 0));
    let quick = 50 * MS + 16 * 50 * MS;
    assert_eq!(pair.now, quick + 184 * 90 * MS, "each waits for the path and for the delay");
}

#[test]
fn ecn_turns_drops_into_marks() {
    let run = |ecn| {
        let config = Config { ecn, ..Config::default() };
        let mark_above = ecn.then_some(45);
        let path = Path { service_ns: 1_200_000, queue: 60, mark_above, ..Path::default() };
        let mut pair = Pair::new(&config, path, 0);
        pair.write(u64::MAX);
        // Past the overshoot of slow start, which no mark can foresee.
        pair.run(20 * SECOND);
        let (lost, at_start) = (pair.dropped, pair.got[1]);
        pair.run(120 * SECOND);
        let gap = pair.reductions.windows(2).map(|w| w[1] - w[0]).min().unwrap_or(0);
        assert!(gap > 50 * MS, "at most one reduction a round trip: {gap} ns");
        (pair.dropped - lost, pair.marks, pair.stats().ecn_reductions, pair.got[1] - at_start)
    };
    let (lost, marks, reductions, marked_octets) = run(true);
    assert_eq!(lost, 0);
    assert!(reductions > 10 && marks >= reductions, "{marks} marks, {reductions} reductions");
    let (lost, marks, reductions, octets) = run(false);
    assert!(lost > 10 && marks == 0 && reductions == 0);
    let ratio = marked_octets as f64 / octets as f64;
    assert!((0.9..1.05).contains(&ratio), "{ratio}");
}

/// The receiver repeats the echo until it hears of the reduction, on the first segment sent
/// after it: the last repetition must not halve the window again.
#[test]
fn one_mark_is_one_reduction() {
    for delayed_ack in [true, false] {
        for mark in 40..60 {
            let config = Config { ecn: true, delayed_ack, ..Config::default() };
            let mut pair = Pair::new(&config, Path { mark, ..Path::default() }, 0);
            pair.write(1000 * 1448);
            pair.run(u64::MAX);
            assert_eq!(pair.stats().ecn_reductions, 1, "delayed {delayed_ack}, segment {mark}");
        }
    }
}

/// Without slow start the window grows by one segment each round trip from the first.
#[test]
fn slow_start_off_ramps_linearly() {
    let segments_after = |slow_start| {
        let config = Config { slow_start, initial_window: 2, ..Config::default() };
        let mut pair = Pair::new(&config, Path::default(), 0);
        pair.write(u64::MAX);
        pair.run(50 * MS + 20 * 50 * MS);
        pair.ends[0].sender.congestion_window() / 1448
    };
    let linear = segments_after(false);
    assert!((20..=22).contains(&linear), "{linear}");
    assert!(segments_after(true) > 1000);
}

/// Whatever the path does, every octet arrives once, in order, and the transfer ends.
#[test]
fn every_octet_arrives_once_whatever_the_path_does() {
    for seed in weir_seed::seeds(600) {
        let mut random = Stream::new(seed, 1);
        let pick = |random: &mut Stream, of: &[f64]| of[random.below(of.len() as u64) as usize];
        let config = Config {
            sack: random.below(2) == 0,
            ecn: random.below(2) == 0,
            delayed_ack: random.below(4) != 0,
            slow_start: random.below(4) != 0,
            window: 1 + random.below(200_000),
            initial_window: 1 + random.below(20) as u32,
            mss: 1 + random.below(1460) as u32,
        };
        let path = Path {
            one_way_ns: 1 + random.below(60 * MS),
            service_ns: random.below(2) * random.below(2 * MS),
            queue: 1 + random.below(40),
            mark_above: Some(random.below(30)),
            mark: 0,
            loss: pick(&mut random, &[0.0, 0.01, 0.1, 0.3]),
            swap: pick(&mut random, &[0.0, 0.05, 0.5]),
            repeat: pick(&mut random, &[0.0, 0.05, 0.5]),
            lossy_acks: random.below(2) == 0,
            kill: Vec::new(),
        };
        let mut pair = Pair::new(&config, path, seed);
        let total = 1 + random.below(u64::from(config.mss).min(config.window) * 150);
        pair.write(total / 2);
        // The peer answers on the same connection.
        pair.ends[1].sender.write(total / 3);
        pair.run(random.below(5 * SECOND));
        pair.write(total - total / 2);
        pair.run(1_000_000 * SECOND);
        assert!(pair.ends[0].sender.is_done(), "seed {seed}: stuck at {} of {total}", pair.got[1]);
        assert_eq!(pair.got, [total / 3, total], "seed {seed}");
        assert_eq!(pair.ends[0].sender.outstanding(), 0, "seed {seed}");
    }
}

/// Segments that no sane peer sends must not harm.
#[test]
fn hostile_acknowledgements_are_ignored() {
    for seed in weir_seed::seeds(2_000) {
        let mut random = Stream::new(seed, 2);
        let mut end = Endpoint::new(&Config { ecn: true, ..Config::default() });
        end.open();
        let mut now = 0;
        let ack = Segment { flags: flags::SYN | flags::ACK, ..Segment::default() };
        end.on_segment(Instant::from_nanos(now), &ack, false);
        end.sender.write(1_000_000);
        for _ in 0..100 {
            now += random.below(100 * MS);
            let mut word = || match random.below(3) {
                0 => random.next_u64(),
                _ => random.below(100_000),
            };
            let segment = Segment {
                seq: word() >> 1,
                ack: word(),
                sent_at: Instant::from_nanos(word()),
                echo: Instant::from_nanos(word()),
                len: word() as u32,
                flags: word() as u8,
                sacks: word() as u8,
                sack: [0; 3].map(|_| (word() as u32, word() as u32)),
                ..Segment::default()
            };
            end.on_segment(Instant::from_nanos(now), &segment, now % 2 == 0);
            end.on_timer(Instant::from_nanos(now));
            for _ in 0..5 {
                let _ = end.poll_send(Instant::from_nanos(now));
            }
        }
    }
}
