//! Service curves (Cruz 1995; Stoica, Zhang and Ng, SIGCOMM 1997, section 2): what a class is
//! owed over any time that begins when it becomes backlogged.

use super::Ratio;

/// `m1_bps` for the first `d_ns` nanoseconds, then `m2_bps`.
#[derive(Clone, Copy, Debug)]
pub struct PiecewiseCurve {
    /// Rate at first.
    pub m1_bps: u64,
    /// How long.
    pub d_ns: u64,
    /// Rate from then on.
    pub m2_bps: u64,
}

impl PiecewiseCurve {
    /// Bits owed after `time_ns`.
    pub fn bits(&self, time_ns: Ratio) -> Ratio {
        let (d, m1) = (Ratio::whole(self.d_ns), Ratio::new(i128::from(self.m1_bps), 1_000_000_000));
        let m2 = Ratio::new(i128::from(self.m2_bps), 1_000_000_000);
        if time_ns <= d { m1 * time_ns } else { m1 * d + m2 * (time_ns - d) }
    }
    /// The time after which `bits` are owed; `None` if they never are.
    pub fn time_ns(&self, bits: Ratio) -> Option<Ratio> {
        if bits <= Ratio::ZERO {
            return Some(Ratio::ZERO);
        }
        let d = Ratio::whole(self.d_ns);
        let knee = self.bits(d);
        let (from, bits, rate) =
            if bits <= knee { (Ratio::ZERO, bits, self.m1_bps) } else { (d, bits - knee, self.m2_bps) };
        (rate > 0).then(|| from + bits * Ratio::new(1_000_000_000, i128::from(rate)))
    }
}

/// A packet of one class, as it came and left.
#[derive(Clone, Copy, Debug)]
pub struct Served {
    /// When it came.
    pub arrival_ns: u64,
    /// When its last bit left.
    pub departure_ns: u64,
    /// Its length.
    pub bits: u64,
}

/// The time by which each packet, in order, must have left for `curve` to be kept: the first t
/// at which S(t - s) covers it for every beginning s of a backlogged period; `None` for never.
pub fn deadlines(curve: &PiecewiseCurve, packets: &[Served]) -> Vec<Option<Ratio>> {
    // (when it became backlogged, what had been served until then)
    let mut periods: Vec<(Ratio, Ratio)> = Vec::new();
    let mut served = Ratio::ZERO;
    let mut empty_at_ns = 0;
    let mut out = Vec::with_capacity(packets.len());
    for (index, packet) in packets.iter().enumerate() {
        if index == 0 || packet.arrival_ns > empty_at_ns {
            periods.push((Ratio::whole(packet.arrival_ns), served));
        }
        served = served + Ratio::whole(packet.bits);
        empty_at_ns = packet.departure_ns;
        // Behind every beginning the curve must cover what was served since; the last to do so
        // decides.
        let latest = periods
            .iter()
            .map(|&(start, before)| curve.time_ns(served - before).map(|t| start + t))
            .try_fold(Ratio::ZERO, |latest, at| at.map(|at| latest.max(at)));
        out.push(latest);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const CURVE: PiecewiseCurve = PiecewiseCurve { m1_bps: 2_000_000_000, d_ns: 50, m2_bps: 1_000_000_000 };

    #[test]
    fn curve_and_inverse_agree() {
        for (time_ns, bits) in [(0, 0), (10, 20), (50, 100), (80, 130)] {
            assert_eq!(CURVE.bits(Ratio::whole(time_ns)), Ratio::whole(bits));
            assert_eq!(CURVE.time_ns(Ratio::whole(bits)), Some(Ratio::whole(time_ns)));
        }
        let convex = PiecewiseCurve { m1_bps: 0, d_ns: 50, m2_bps: 1_000_000_000 };
        assert_eq!(convex.time_ns(Ratio::whole(10)), Some(Ratio::whole(60)));
        let none = PiecewiseCurve { m1_bps: 0, d_ns: 0, m2_bps: 0 };
        assert_eq!(none.time_ns(Ratio::whole(10)), None);
    }

    #[test]
    fn a_new_backlog_begins_a_new_curve() {
        let served = |arrival_ns, departure_ns, bits| Served { arrival_ns, departure_ns, bits };
        // 60 bits by 30; 60 more by 70, past the knee; after a pause 20 bits: 10 ns after they
        // came by the new curve, but the old one reaches 140 only 90 ns after its start.
        let packets = [served(0, 20, 60), served(0, 60, 60), served(75, 79, 20), served(500, 510, 20)];
        let expected = [30, 70, 90, 510].map(|t| Some(Ratio::whole(t)));
        assert_eq!(deadlines(&CURVE, &packets), expected);
    }
}
