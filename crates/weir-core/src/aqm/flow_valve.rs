//! The flow valve: RED's penalty box for flows that do not slow down.
//!
//! Principle: among the flows that lost packets lately, one that both loses more than `pmax` and
//! still takes more of the link than a TCP would at that loss does not respond to congestion. All
//! its packets are dropped until it has been silent, or lossless, for a second.
//! Paper: Floyd and Fall, "Promoting the Use of End-to-End Congestion Control in the Internet",
//! IEEE/ACM Transactions on Networking 7(4), 1999, section 3.1; the fair rate by Padhye, Firoiu,
//! Towsley and Kurose, "Modeling TCP Throughput", SIGCOMM 1998, with a timeout of 4 RTT.
//! Where we differ, and why: the box holds 64 flows as in ALTQ; flows are told apart by the hashes
//! of their addresses.
//! Cost: a walk over the flows that lost packets in the last three seconds, 64 at most; 4 KB.
//! Guarantees: `an_unresponsive_flow_is_boxed_and_let_out`, `a_tcp_like_flow_is_not`.

use super::average::LENGTH_BITS;
use crate::packet::Meta;
use crate::units::{Duration, Fraction, Instant};
use alloc::vec::Vec;

const FLOWS: usize = 64;
/// A flow that has lost nothing for so long is forgotten.
const MEMORY: Duration = Duration::from_secs(3);
/// A flow in the box must be quiet for so long.
const PENALTY: Duration = Duration::from_secs(1);
/// Packets of a flow between two samples of its share.
const SAMPLE: u32 = 10;
/// One, for shares and loss rates.
const ONE: u64 = 1 << 32;

/// Packets per RTT of a TCP at loss rate i / 256 (i = 0: 1 / 512), in units of 2^-16:
/// 1 / (sqrt(2p/3) + 4 min(1, 3 sqrt(3p/8)) p (1 + 32 p^2)).
const TCP_WINDOW: [u32; 128] = [
    1_784_809, 1_240_602, 848_329, 670_435, 562_412, 487_576, 431_639, 387_702, 351_964, 322_126, 296_707,
    274_703, 255_403, 238_290, 222_977, 209_167, 196_630, 185_181, 174_674, 164_990, 156_029, 147_710,
    139_964, 132_733, 125_967, 119_624, 113_667, 108_063, 102_786, 97_809, 93_111, 88_672, 84_474, 80_502,
    76_740, 73_177, 69_799, 66_595, 63_557, 60_673, 57_935, 55_336, 52_866, 50_520, 48_291, 46_172, 44_158,
    42_242, 40_420, 38_687, 37_038, 35_469, 33_975, 32_553, 31_199, 29_910, 28_682, 27_511, 26_396, 25_333,
    24_320, 23_353, 22_432, 21_553, 20_714, 19_913, 19_148, 18_418, 17_721, 17_055, 16_419, 15_810, 15_229,
    14_672, 14_140, 13_631, 13_156, 12_765, 12_389, 12_026, 11_676, 11_339, 11_015, 10_701, 10_399, 10_107,
    9826, 9554, 9292, 9039, 8794, 8558, 8330, 8109, 7896, 7689, 7490, 7297, 7110, 6930, 6755, 6586, 6422,
    6263, 6109, 5960, 5816, 5676, 5540, 5409, 5281, 5158, 5038, 4921, 4808, 4699, 4592, 4489, 4389, 4291,
    4196, 4104, 4015, 3928, 3843, 3761, 3681, 3603,
];

#[derive(Clone, Copy, Debug)]
struct Flow {
    key: u64,
    /// Share of the arrivals, mean over 32 samples, units of 2^-32.
    share: u64,
    /// Loss rate, mean over 128 packets, units of 2^-32.
    loss: u64,
    /// Packets since the last sample, and the arrivals of the queue at that time.
    count: u32,
    sampled_at: u64,
    last_drop: Instant,
    boxed: bool,
}

/// The flows under suspicion.
#[derive(Debug)]
pub(super) struct FlowValve {
    flows: Vec<Flow>,
    arrivals: u64,
    /// Above this loss a flow is looked at closely.
    loss_limit: u64,
    /// 2^16 / packets of the pipe: a TCP's window times this is its share.
    per_pipe: u64,
    dropped: u64,
}

fn key(row: &Meta) -> u64 {
    u64::from(row.src_hash) << 32 | u64::from(row.dst_hash)
}

impl FlowValve {
    pub(super) fn new(pmax: Fraction, thmax: u64) -> Self {
        let mut valve = FlowValve {
            flows: Vec::with_capacity(FLOWS),
            arrivals: 0,
            loss_limit: 0,
            per_pipe: 0,
            dropped: 0,
        };
        valve.set(pmax, thmax);
        valve
    }
    /// The thresholds of the RED queue: a pipe holds what the queue does at `thmax`, and 5 more.
    pub(super) fn set(&mut self, pmax: Fraction, thmax: u64) {
        self.loss_limit = pmax.raw();
        self.per_pipe = (1 << LENGTH_BITS) / (thmax + 5);
    }
    /// The share that a TCP takes at that loss rate.
    fn fair_share(&self, loss: u64) -> u64 {
        let window = TCP_WINDOW[((loss >> 24) as usize).min(TCP_WINDOW.len() - 1)];
        // 2^-16 packets times 2^-24 pipes: units of 2^-40.
        (u64::from(window) * self.per_pipe) >> (LENGTH_BITS - 16)
    }
    /// A packet came: true if its flow is in the box, and the packet must be dropped.
    pub(super) fn arrive(&mut self, now: Instant, row: &Meta) -> bool {
        self.arrivals += 1;
        let key = key(row);
        let Some(at) = self.flows.iter().position(|flow| flow.key == key) else { return false };
        let quiet = now.since(self.flows[at].last_drop);
        if quiet > MEMORY {
            self.flows.swap_remove(at);
            return false;
        }
        let (arrivals, fair) = (self.arrivals, self.fair_share(self.flows[at].loss));
        let flow = &mut self.flows[at];
        flow.loss -= flow.loss >> 7;
        flow.count += 1;
        if flow.count == SAMPLE {
            let sample = u64::from(SAMPLE) * ONE / (arrivals - flow.sampled_at).max(1);
            flow.share = flow.share - (flow.share >> 5) + (sample.min(ONE) >> 5);
            (flow.count, flow.sampled_at) = (0, arrivals);
        }
        if flow.boxed && quiet > PENALTY {
            (flow.boxed, flow.loss) = (false, 0);
        } else if flow.loss > self.loss_limit && flow.share > fair {
            flow.boxed = true;
        }
        if flow.boxed {
            flow.last_drop = now;
            self.dropped += 1;
        }
        flow.boxed
    }
    /// RED dropped or marked a packet of this flow.
    pub(super) fn lost(&mut self, now: Instant, row: &Meta) {
        let key = key(row);
        let at = match self.flows.iter().position(|flow| flow.key == key) {
            Some(at) => at,
            None => {
                let sampled_at = self.arrivals;
                let flow =
                    Flow { key, share: 0, loss: 0, count: 0, sampled_at, last_drop: now, boxed: false };
                self.insert(flow)
            }
        };
        let flow = &mut self.flows[at];
        flow.loss += (ONE - flow.loss) >> 7;
        flow.last_drop = now;
    }
    /// In place of the flow that lost nothing for the longest time, if there is no room.
    fn insert(&mut self, flow: Flow) -> usize {
        if self.flows.len() < FLOWS {
            self.flows.push(flow);
            return self.flows.len() - 1;
        }
        let oldest = (0..FLOWS).min_by_key(|&at| self.flows[at].last_drop).unwrap_or_default();
        self.flows[oldest] = flow;
        oldest
    }
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }
    pub(super) fn boxed(&self) -> usize {
        self.flows.iter().filter(|flow| flow.boxed).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::FrameRef;

    #[test]
    fn the_table_is_padhyes_formula() {
        for (i, &window) in TCP_WINDOW.iter().enumerate() {
            let p = (i as f64).max(0.5) / 256.0;
            let timeout = 4.0 * (3.0 * (3.0 * p / 8.0).sqrt()).min(1.0) * p * (1.0 + 32.0 * p * p);
            let exact = 1.0 / ((2.0 * p / 3.0).sqrt() + timeout);
            assert!((f64::from(window) / 65536.0 - exact).abs() < 1e-4, "{i}");
        }
    }

    fn row(flow: u32) -> Meta {
        let mut row = Meta::new(1000, Instant::ZERO, FrameRef(0));
        (row.src_hash, row.dst_hash) = (flow, 7);
        row
    }

    /// A flow that sends `ours` of every twenty packets, one in `every` of which RED drops; packets
    /// of it that the valve dropped, of the last half of 20 s.
    fn boxed(ours: u32, every: u32) -> u32 {
        let mut valve = FlowValve::new(Fraction::ratio(1, 10), 15);
        let (mut sent, mut died) = (0, 0);
        for n in 0..20_000u32 {
            let now = Instant::from_millis(u64::from(n));
            if n % 20 >= ours {
                assert!(!valve.arrive(now, &row(1000 + n)), "a flow that lost nothing is free");
                continue;
            }
            let dead = valve.arrive(now, &row(1));
            sent += 1;
            died += u32::from(dead && n >= 10_000);
            if dead || sent % every == 0 {
                valve.lost(now, &row(1));
            }
        }
        died
    }

    #[test]
    fn an_unresponsive_flow_is_boxed_and_let_out() {
        assert_eq!(boxed(10, 8), 5_000, "12.5 % loss is more than pmax");
        assert_eq!(boxed(10, 4), 5_000, "half of the link at 25 % loss: stays in the box while it sends");
        let mut valve = FlowValve::new(Fraction::ratio(1, 10), 15);
        let mut now = Instant::ZERO;
        while !valve.arrive(now, &row(1)) {
            now += Duration::from_millis(1);
            valve.lost(now, &row(1));
        }
        assert!(valve.arrive(now + Duration::from_millis(900), &row(1)), "not a second yet");
        assert!(!valve.arrive(now + Duration::from_millis(2_000), &row(1)), "a second of silence");
        assert_eq!((valve.boxed(), valve.dropped()), (0, 2));
    }

    #[test]
    fn a_tcp_like_flow_is_not() {
        assert_eq!(boxed(10, 50), 0, "2 % loss is below pmax");
        assert_eq!(boxed(1, 8), 0, "a twentieth of the link at 12.5 % loss is less than a TCP takes");
    }

    #[test]
    fn the_box_is_bounded() {
        let mut valve = FlowValve::new(Fraction::ratio(1, 10), 15);
        for n in 0..10_000 {
            valve.lost(Instant::from_nanos(n), &row(n as u32));
        }
        assert_eq!((valve.flows.len(), valve.flows.capacity()), (FLOWS, FLOWS));
        assert!(valve.flows.iter().all(|f| f.last_drop.as_nanos() >= 10_000 - FLOWS as u64));
    }
    #[test]
    fn a_share_is_sampled_over_ten_packets() {
        let mut valve = FlowValve::new(Fraction::ratio(1, 10), 15);
        let row = Meta::new(1_000, Instant::ZERO, FrameRef(0));
        valve.lost(Instant::ZERO, &row);
        for n in 1..=SAMPLE {
            assert_eq!(valve.flows[0].share, 0, "before packet {n}");
            valve.arrive(Instant::ZERO, &row);
        }
        // All that came was of this flow: one of the 32 parts of its mean is 1.
        assert_eq!(valve.flows[0].share, ONE >> 5);
    }
}
