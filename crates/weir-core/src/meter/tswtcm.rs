//! Time sliding window three colour marker: colours by chance, in proportion to the excess.
//!
//! Principle: an average rate over a window that slides with the packets. Below the committed
//! rate everything is green; above it the share of packets that is not green is the share of the
//! traffic that is too much, drawn packet by packet: a TCP flow loses its colour evenly, not in
//! bursts.
//! Paper: Fang, Seddigh and Nandy, "A Time Sliding Window Three Colour Marker", RFC 2859, 2000,
//! sections 2 and 3.
//! Where we differ, and why: the state is the bytes in the window (average rate times window), so
//! that rates become thresholds once and for all and no rate is ever computed.
//! Cost: a 64-bit division per packet, by the time since the last packet and hence different each
//! time; a random draw above the committed rate only; 48 bytes.
//! Guarantees: `rfc2859_shares`, `the_average_is_exact_at_every_rate`.
//! Parameters: committed rate, peak rate (bit/s), window.

use crate::Random;
use crate::packet::Colour;
use crate::units::{Duration, Instant, Rate};

/// Fractional bits of the bytes in the window: 2^48 bytes have room, 400 Gbit/s for 90 minutes.
const FRACTION: u32 = 16;

/// The meter of RFC 2859.
#[derive(Clone, Debug)]
pub struct TimeWindow {
    window_ns: u64,
    /// Bytes in the window, with `FRACTION` fractional bits; so are the thresholds.
    in_window: u64,
    committed: u64,
    peak: u64,
    last: Instant,
}

impl TimeWindow {
    /// A meter whose average is the committed rate at the origin. A window of 0 counts as 1 ns.
    pub fn new(committed: Rate, peak: Rate, window: Duration) -> Self {
        let window_ns = window.as_nanos().max(1);
        let bytes = |rate: Rate| {
            let bits = u128::from(rate.as_bps()) * u128::from(window_ns);
            // 2^128 is far: rates below 2^54 and windows below 2^58 ns leave 16 bits.
            (bits.saturating_mul(1 << FRACTION) / 8_000_000_000).min(u128::from(u64::MAX)) as u64
        };
        let (committed, peak) = (bytes(committed), bytes(peak));
        TimeWindow { window_ns, in_window: committed, committed, peak, last: Instant::ZERO }
    }
    /// The bytes in the window after a packet of `len` bytes at `now`.
    fn slide(&mut self, now: Instant, len: u32) {
        let gap = now.since(self.last).as_nanos();
        self.last = self.last.max(now);
        let bytes = self.in_window.saturating_add(u64::from(len) << FRACTION);
        // [RFC 2859 §2] bytes * window / (window + gap), written as bytes minus what slides out,
        // bytes * gap / (window + gap). The gap is shifted to the top, so that the quotient is
        // exact to 2^-30 of itself even where the gap is a billionth of the window.
        let shift = gap.leading_zeros().min(63);
        let share = (gap << shift) / self.window_ns.saturating_add(gap);
        let out = (u128::from(bytes) * u128::from(share)) >> shift;
        self.in_window = bytes - out as u64;
    }
    /// The colour of a packet of `len` bytes at `now`.
    pub fn meter(&mut self, now: Instant, len: u32, random: &mut Random) -> Colour {
        self.slide(now, len);
        if self.in_window <= self.committed {
            return Colour::Green;
        }
        // [RFC 2859 §3] One draw decides: red with (average - peak) / average, not green with
        // (average - committed) / average.
        let draw = random.below(self.in_window);
        if draw < self.in_window.saturating_sub(self.peak) {
            Colour::Red
        } else if draw < self.in_window - self.committed {
            Colour::Yellow
        } else {
            Colour::Green
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against f64, at every rate, with packets much closer than the window is long.
    #[test]
    fn the_average_is_exact_at_every_rate() {
        for (bps, window_ms) in
            [(9_600u64, 10_000u64), (1_500_000, 1_000), (1_000_000_000, 500), (400_000_000_000, 1_000)]
        {
            let seed = weir_seed::seed() ^ bps;
            let mut random = Random::new(seed);
            let window = Duration::from_millis(window_ms);
            let mut meter = TimeWindow::new(Rate::from_bps(bps), Rate::from_bps(2 * bps), window);
            let window_ns = window.as_nanos() as f64;
            let (mut now, mut exact) = (0u64, bps as f64 * window_ns / 8e9);
            for n in 0..2_000_000u32 {
                let len = 64 + random.below(1_451) as u32;
                let packet_ns = f64::from(len) * 8e9 / bps as f64;
                // One and a half times the rate, then half of it.
                let gap_ns = packet_ns * if n < 1_000_000 { 0.667 } else { 2.0 };
                let next =
                    now + (gap_ns as u64) + u64::from(random.below(1000) < (gap_ns.fract() * 1e3) as u64);
                exact = (exact + f64::from(len)) * window_ns / (window_ns + (next - now) as f64);
                now = next;
                meter.slide(Instant::from_nanos(now), len);
                if n % 100_000 == 99_999 {
                    let found = meter.in_window as f64 / f64::from(1u32 << FRACTION);
                    let most = exact * 1e-4 + 1.0;
                    assert!((found - exact).abs() <= most, "{bps} bit/s, packet {n}: {found} {exact}");
                }
            }
        }
    }

    /// Constant traffic at 0.5, 2 and 4 times the committed rate; the peak rate is 3 times.
    #[test]
    fn rfc2859_shares() {
        for (times, shares) in [(0.5, [1.0, 0.0, 0.0]), (2.0, [0.5, 0.5, 0.0]), (4.0, [0.25, 0.5, 0.25])] {
            let rate = Rate::from_mbps(10);
            let mut meter = TimeWindow::new(rate, Rate::from_mbps(30), Duration::from_millis(100));
            let (mut random, mut colours) = (Random::new(weir_seed::seed()), [0u32; 3]);
            let gap_ns = (800_000.0 / times) as u64;
            for n in 1..=60_000u64 {
                let colour = meter.meter(Instant::from_nanos(n * gap_ns), 1_000, &mut random);
                // The average starts at the committed rate and settles within a few windows.
                if n > 10_000 {
                    colours[colour as usize] += 1;
                }
            }
            for (found, share) in colours.iter().zip(shares) {
                let found = f64::from(*found) / 50_000.0;
                // Six deviations of a share among 50,000 packets, which is 0.5 / sqrt(50,000) at most.
                assert!((found - share).abs() < 0.0135, "{times} times: {colours:?}");
            }
        }
    }

    #[test]
    fn limits() {
        let mut random = Random::new(1);
        let mut meter = TimeWindow::new(Rate::ZERO, Rate::ZERO, Duration::ZERO);
        assert_eq!(meter.meter(Instant::ZERO, u32::MAX, &mut random), Colour::Red);
        let most = Rate::from_bps(u64::MAX);
        let mut meter = TimeWindow::new(most, most, Duration::MAX);
        let end = Instant::from_nanos(u64::MAX - 1);
        assert_eq!(meter.meter(end, u32::MAX, &mut random), Colour::Green);
        // Time that stands still or runs back adds packets and takes nothing out.
        assert_eq!(meter.meter(Instant::ZERO, u32::MAX, &mut random), Colour::Green);
    }
}
