//! The statistical rule: short packets, often, at even distances. It looks at no byte of a payload.
//!
//! Principle: the first J packets are ordinary. Then a flow is real-time if all of these hold:
//!
//! - the mean IP length of the last `over` packets is at most K;
//! - more than L packets came in the last second;
//! - over the last 30 gaps the mean absolute deviation is at most half the mean;
//! - what went the other way is at most 20 times what went this way.
//!
//! Paper: multiservice III.3.2, III.4.1 (T28 to T32).
//! Where we differ, and why:
//! - It judges a flow, and not all flows together. `per aggregate` is the paper's form: see below.
//! - K is 320, not 200: G.711 with 20 ms is 200 bytes of IP exactly, and "less than 200" loses it.
//! - L is 15. The paper says 10 in one place and 15 in another.
//! - Even gaps and the way back keep out acknowledgements of QUIC and of TCP within UDP.
//!
//! The paper's form ([`Aggregate`]) takes all flows of a contract that nothing else tells as one. Each packet goes
//! by the lengths and the rate as they are then: one long flow among them makes all of them ordinary. Gaps of flows that
//! are mixed are not even, and the way back of many says nothing, so that neither is asked for.
//!
//! It is off unless asked for, as is all that guesses. Cost: 112 bytes for each flow, if it is on, or 120 for each
//! contract. Gaps are kept in units of 16.4 us.

use super::{Found, Kind, Sample, Verdict};
use weir_core::units::{Duration, Instant};

/// Gaps whose evenness is judged.
const GAPS: usize = 30;
const RING: usize = 32;
/// Gaps are kept in units of 2^14 ns.
const UNIT: u32 = 14;
/// A second, in those units.
const SECOND: u32 = (1_000_000_000u64 >> UNIT) as u32;
/// Most that may go the other way, for each octet that goes this way.
const REVERSE: u64 = 20;

/// The parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule {
    /// L: more packets than this in the last second, 1 to 31.
    pub rate: u8,
    /// K: most octets of IP, on average.
    pub size: u32,
    /// Packets of that average, 1 to 16.
    pub over: u8,
    /// J: packets that are ordinary.
    pub skip: u16,
    /// All flows of a contract that nothing else tells are judged as one, packet by packet.
    pub per_aggregate: bool,
}

impl Default for Rule {
    fn default() -> Self {
        Rule { rate: 15, size: 320, over: 15, skip: 4, per_aggregate: false }
    }
}

/// The last packets of a direction of a flow.
#[derive(Clone, Copy, Default, Debug)]
pub struct History {
    gaps: [u16; RING],
    lengths: [u16; 16],
    /// Octets of IP that went this way.
    pub bytes: u64,
    /// Packets, as far as 16 bits count.
    packets: u16,
    at: u8,
}

impl History {
    /// The last `count` values of a ring whose newest stands at `at`.
    fn last<const N: usize>(ring: &[u16; N], at: u8, count: usize) -> impl Iterator<Item = u32> {
        (0..count.min(N)).map(move |back| u32::from(ring[(usize::from(at) + N - back) % N]))
    }
}

impl History {
    /// A packet of so many octets of IP, that long after the one before.
    fn put(&mut self, pause: Duration, ip_len: u32) {
        self.at = (self.at + 1) % RING as u8;
        let at = usize::from(self.at);
        self.gaps[at] = (pause.as_nanos() >> UNIT).min(u64::from(u16::MAX)) as u16;
        self.lengths[at % 16] = ip_len.min(u32::from(u16::MAX)) as u16;
        self.bytes = self.bytes.saturating_add(u64::from(ip_len));
        self.packets = self.packets.saturating_add(1);
    }
    /// Whether as many packets came as `rule` needs, and `least`, and those are short and often.
    fn is_short_and_often(&self, rule: &Rule, least: usize) -> bool {
        let (over, rate) = (usize::from(rule.over), usize::from(rule.rate));
        // A gap is known from the second packet on.
        if usize::from(self.packets) <= least.max(rate).max(over) || self.packets <= rule.skip {
            return false;
        }
        let lengths: u32 = History::last(&self.lengths, self.at % 16, over).sum();
        let second: u32 = History::last(&self.gaps, self.at, rate).sum();
        u64::from(lengths) <= u64::from(rule.over) * u64::from(rule.size) && second < SECOND
    }
    /// It is real-time, shown by this many of its last gaps.
    fn found(&self, kind: Kind, gaps: usize) -> Found {
        let span = History::last(&self.gaps, self.at, gaps).sum::<u32>();
        Found {
            kind,
            ssrc: 0,
            packets: self.packets.min(u16::from(u8::MAX)) as u8,
            span: Duration::from_nanos(u64::from(span) << UNIT),
        }
    }
}

/// All flows of a contract that nothing else tells, as one.
#[derive(Clone, Copy, Default, Debug)]
pub struct Aggregate {
    history: History,
    /// The last packet.
    last: Instant,
}

impl Aggregate {
    /// A packet of `ip_len` octets of IP of any flow but DNS and QUIC. What it is taken for goes for this packet alone. After
    /// `idle` without one the aggregate begins anew.
    pub fn look(&mut self, now: Instant, rule: &Rule, idle: Duration, ip_len: u32) -> Option<Found> {
        let pause = now.since(self.last);
        if pause > idle {
            self.history = History::default();
        }
        self.last = now;
        self.history.put(pause, ip_len);
        let passes = self.history.is_short_and_often(rule, 0);
        passes.then(|| self.history.found(Kind::Aggregate, usize::from(rule.rate)))
    }
}

/// A packet of any flow but DNS and QUIC.
pub fn look(history: &mut History, sample: &Sample<'_>) -> Verdict {
    let Some(rule) = sample.rules.statistical else { return Verdict::Nothing };
    history.put(sample.pause, sample.ip_len);
    let is_even = || {
        let gaps = || History::last(&history.gaps, history.at, GAPS);
        let sum: u32 = gaps().sum();
        // 30 times the sum of |gap - mean| against half of 30 times the sum.
        let apart = gaps().map(|gap| (GAPS as u32 * gap).abs_diff(sum)).sum::<u32>();
        // Packets without any gap are a flood.
        sum > 0 && apart <= GAPS as u32 / 2 * sum
    };
    let one_way = sample.reverse_bytes <= history.bytes.saturating_mul(REVERSE);
    if !(history.is_short_and_often(&rule, GAPS) && one_way && is_even()) {
        return Verdict::Known;
    }
    Verdict::RealTime(history.found(Kind::Statistical, GAPS))
}
