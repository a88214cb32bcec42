//! What a capture says of a rate, of bursts and of delay: pure functions over times and lengths.

use std::collections::BTreeMap;

/// A frame on the wire: when, in nanoseconds, and how many bytes its packets are.
pub type Passed = (u64, u32);

const SECOND_NS: u64 = 1_000_000_000;

fn bytes_in(rate_bps: u64, time_ns: u64) -> f64 {
    rate_bps as f64 / 8.0 * time_ns as f64 / 1e9
}

/// Bytes beyond `rate_bps` × `window_ns` in the window where most pass, whatever its beginning.
/// Frames are in order of time. Negative if every window has less.
pub fn excess_bytes(frames: &[Passed], rate_bps: u64, window_ns: u64) -> f64 {
    let (mut most, mut inside, mut first) = (0u64, 0u64, 0);
    // The fullest window begins with a frame and has its last one at its end, or before.
    for &(at, bytes) in frames {
        inside += u64::from(bytes);
        while at.saturating_sub(frames[first].0) > window_ns {
            inside -= u64::from(frames[first].1);
            first += 1;
        }
        most = most.max(inside);
    }
    most as f64 - bytes_in(rate_bps, window_ns)
}

/// How far the worst second is from `rate_bps`, as a part of the rate, beyond one packet of
/// `packet_bytes`: a rate in whole packets is never nearer. Every second counts that lies between
/// `from_ns` and `to_ns` and begins a whole number of `step_ns` after `from_ns`; 1 where there is none.
pub fn worst_second(
    frames: &[Passed],
    rate_bps: u64,
    packet_bytes: u32,
    [from_ns, to_ns]: [u64; 2],
    step_ns: u64,
) -> f64 {
    let due = bytes_in(rate_bps, SECOND_NS);
    let mut worst: Option<f64> = None;
    let (mut begin, mut from) = (0, from_ns);
    while from + SECOND_NS <= to_ns {
        begin += frames[begin..].iter().take_while(|f| f.0 < from).count();
        let second = frames[begin..].iter().take_while(|f| f.0 < from + SECOND_NS);
        let bytes: u64 = second.map(|f| u64::from(f.1)).sum();
        let off = (bytes as f64 - due).abs() - f64::from(packet_bytes);
        worst = Some(worst.unwrap_or(0.0).max(off / due));
        from += step_ns.max(1);
    }
    worst.unwrap_or(1.0)
}

/// How long numbered packets took from the first place to the second, in nanoseconds, sorted; and
/// how many did not come. A number counts once.
pub fn delays(first: &[(u64, u64)], second: &[(u64, u64)]) -> (Vec<u64>, u64) {
    let mut left: BTreeMap<u64, u64> = first.iter().map(|&(number, at)| (number, at)).collect();
    let mut all = Vec::with_capacity(second.len());
    for &(number, at) in second {
        if let Some(entered) = left.remove(&number) {
            all.push(at.saturating_sub(entered));
        }
    }
    all.sort_unstable();
    (all, left.len() as u64)
}

/// The value that `percent` of a hundred do not exceed; `None` of nothing.
pub fn percentile(sorted: &[u64], percent: usize) -> Option<u64> {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: u64 = 10_000_000;
    const FRAME: u32 = 1250;
    /// A frame of 1250 bytes each millisecond is 10 Mbit/s.
    fn even(count: u64) -> Vec<Passed> {
        (0..count).map(|n| (n * 1_000_000, FRAME)).collect()
    }

    #[test]
    fn an_even_stream_exceeds_no_window_by_more_than_a_packet() {
        for window_ms in [1, 10, 100] {
            assert_eq!(excess_bytes(&even(500), RATE, window_ms * 1_000_000), f64::from(FRAME));
            // Half the rate is below, and twice the rate is as much beyond as a window holds.
            let window = window_ms * 1_000_000;
            let whole = f64::from(FRAME) * window_ms as f64;
            assert_eq!(excess_bytes(&even(500), 2 * RATE, window), f64::from(FRAME) - whole);
            assert_eq!(excess_bytes(&even(500), RATE / 2, window), f64::from(FRAME) + whole / 2.0);
        }
        assert_eq!(excess_bytes(&[], RATE, 1_000_000), -1250.0);
    }

    /// A worker that sleeps and then sends what it missed: nothing is wrong over a second, and the
    /// window finds it. One that lets go what it missed is found by the second.
    #[test]
    fn a_late_workers_burst_is_found_and_so_is_what_it_lets_go() {
        let late = |catches_up: bool| -> Vec<Passed> {
            let moved = even(3_000).into_iter().filter_map(|(at, bytes)| {
                let asleep = (1_200_000_000..1_400_000_000).contains(&at);
                match (asleep, catches_up) {
                    (false, _) => Some((at, bytes)),
                    (true, true) => Some((1_400_000_000, bytes)),
                    (true, false) => None,
                }
            });
            moved.collect()
        };
        let second = |frames: &[Passed]| worst_second(frames, RATE, FRAME, [0, 3 * SECOND_NS], SECOND_NS);
        assert_eq!(second(&even(3_000)), 0.0);
        let burst = late(true);
        assert!(second(&burst) <= 0.0, "{}", second(&burst));
        let excess = excess_bytes(&burst, RATE, 1_000_000);
        assert!((200.0 * 1250.0..202.0 * 1250.0).contains(&excess), "{excess}");
        assert!(excess_bytes(&burst, RATE, 10_000_000) > 190.0 * 1250.0);
        let lost = late(false);
        assert_eq!(excess_bytes(&lost, RATE, 1_000_000), 1250.0);
        // 200 of 1000 frames, less the one that a rate in whole packets may be off.
        assert!((second(&lost) - 0.199).abs() < 1e-9, "{}", second(&lost));
    }

    #[test]
    fn a_second_may_be_off_by_a_packet_and_no_more() {
        let second = |rate| worst_second(&even(2_000), rate, FRAME, [0, 2 * SECOND_NS], 100_000_000);
        assert_eq!(second(RATE), 0.0);
        assert_eq!(second(RATE + 10_000), 0.0, "one packet a second is 0.1 %");
        assert!((second(RATE * 102 / 100) - (0.02 * 1.25e6 - 1250.0) / 1.275e6).abs() < 1e-9);
        assert!((second(RATE * 98 / 100) - (0.02 * 1.25e6 - 1250.0) / 1.225e6).abs() < 1e-9);
        // Seconds begin every 100 ms: silence at the end is found though most of two seconds are well.
        let cut = &even(2_000)[..1_700];
        assert!((worst_second(cut, RATE, FRAME, [0, 2 * SECOND_NS], 100_000_000) - 0.299).abs() < 1e-9);
        assert!(worst_second(cut, RATE, FRAME, [0, SECOND_NS], 100_000_000) <= 0.0);
        // Too short for a second: nothing is known, and nothing is well.
        assert_eq!(worst_second(cut, RATE, FRAME, [0, SECOND_NS - 1], 100_000_000), 1.0);
        assert_eq!(worst_second(&[], RATE, FRAME, [0, SECOND_NS], 100_000_000), 1.0 - 0.001);
    }

    #[test]
    fn delays_are_of_packets_that_came_and_percentiles_of_them() {
        let first: Vec<_> = (0..200).map(|n| (n, n * 1_000)).collect();
        let second: Vec<_> = (0..200).filter(|n| n % 50 != 0).map(|n| (n, n * 1_000 + 10 + n)).collect();
        let (all, lost) = delays(&first, &second);
        assert_eq!((all.len(), lost), (196, 4));
        assert_eq!((percentile(&all, 50), percentile(&all, 99)), (Some(109), Some(208)));
        assert_eq!(
            (percentile(&all, 100), percentile(&[], 99), percentile(&[7], 1)),
            (Some(209), None, Some(7))
        );
        // Twice the same number is one packet; a stranger is none.
        assert_eq!(delays(&[(1, 5)], &[(1, 9), (1, 99), (8, 10)]), (vec![4], 0));
        // Reversed: nothing came.
        assert_eq!(delays(&first, &[]), (vec![], 200));
    }
}
