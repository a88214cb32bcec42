//! The sender's picture of what the network holds: SACKed, lost, retransmitted (RFC 6675).
//!
//! Everything that the RFC defines octet by octet is kept as two edges and counts, so that an
//! acknowledgement costs a few comparisons however large the window is: what is not SACKed
//! below `lost_edge` counts as lost, what is not SACKed below `high_rxt` has been retransmitted.

use super::ranges::RangeSet;

/// RFC 6675's DupThresh.
pub const DUP_THRESHOLD: u32 = 3;

/// Scoreboard over the octets from the cumulative acknowledgement on.
#[derive(Clone, Debug)]
pub struct Scoreboard {
    mss: u64,
    sacked: RangeSet,
    sacked_octets: u64,
    /// HighRxt: what is not SACKed below it has been retransmitted in this recovery.
    high_rxt: u64,
    sacked_below_rxt: u64,
    /// IsLost() as an edge: an octet below it that is not SACKed is lost.
    lost_edge: u64,
    sacked_above_lost: u64,
    /// After a time-out everything below this counts as lost.
    timed_out_to: u64,
}

impl Scoreboard {
    /// An empty board for segments of `mss` octets.
    pub fn new(mss: u64) -> Self {
        Scoreboard {
            mss,
            sacked: RangeSet::default(),
            sacked_octets: 0,
            high_rxt: 0,
            sacked_below_rxt: 0,
            lost_edge: 0,
            sacked_above_lost: 0,
            timed_out_to: 0,
        }
    }

    /// Notes `[start, end)` as received; returns how many octets are news.
    pub fn sack(&mut self, start: u64, end: u64) -> u64 {
        let below = self.sacked.count_in(start, end.min(self.high_rxt));
        let news = self.sacked.insert(start, end);
        if news > 0 {
            self.sacked_octets += news;
            self.sacked_below_rxt += end.min(self.high_rxt).saturating_sub(start) - below;
            self.find_lost_edge();
        }
        news
    }

    /// The cumulative acknowledgement moved to `una`.
    pub fn acknowledge(&mut self, una: u64) {
        if !self.sacked.is_empty() {
            self.sacked_below_rxt -= self.sacked.count_in(0, una.min(self.high_rxt));
            self.sacked_octets -= self.sacked.trim_below(una);
            self.find_lost_edge();
        }
        if una > self.high_rxt {
            // The set now starts above una, so nothing of it is below the new edge.
            (self.high_rxt, self.sacked_below_rxt) = (una, 0);
        }
    }

    /// Recovery starts: nothing has been retransmitted yet.
    pub fn start_recovery(&mut self, una: u64) {
        (self.high_rxt, self.sacked_below_rxt) = (una, 0);
    }

    /// A time-out: all that is not SACKed below `nxt` is lost and may be sent again.
    pub fn time_out(&mut self, una: u64, nxt: u64) {
        self.start_recovery(una);
        self.timed_out_to = nxt;
        self.find_lost_edge();
    }

    /// `[start, end)` was retransmitted, in order after what was before.
    pub fn retransmitted(&mut self, end: u64) {
        if end > self.high_rxt {
            self.sacked_below_rxt += self.sacked.count_in(self.high_rxt, end);
            self.high_rxt = end;
        }
    }

    /// RFC 6675's pipe: octets thought to be in the network between `una` and `nxt`.
    pub fn pipe(&self, una: u64, nxt: u64) -> u64 {
        let edge = self.lost_edge.max(una).min(nxt);
        let not_lost = nxt - edge - self.sacked_above_lost.min(nxt - edge);
        let again = self.high_rxt.saturating_sub(una).saturating_sub(self.sacked_below_rxt);
        not_lost + again
    }

    /// The first octets that are lost and not yet retransmitted, `[start, end)`.
    pub fn lost_hole(&self, una: u64) -> Option<(u64, u64)> {
        self.hole(una, self.lost_edge)
    }

    /// The first octets neither SACKed nor retransmitted below the highest SACKed octet.
    pub fn suspect_hole(&self, una: u64) -> Option<(u64, u64)> {
        self.hole(una, self.sacked.highest()?)
    }

    fn hole(&self, una: u64, limit: u64) -> Option<(u64, u64)> {
        let (start, end) = self.sacked.gap_from(self.high_rxt.max(una));
        (start < limit).then(|| (start, end.min(limit)))
    }

    /// The last octets before `nxt` that are not SACKed, at most a segment.
    pub fn last_hole(&self, una: u64, nxt: u64) -> Option<(u64, u64)> {
        let mut end = nxt;
        for (low, high) in self.sacked.iter().rev() {
            if high < end {
                return Some((high.max(end.saturating_sub(self.mss)), end));
            }
            end = low;
        }
        (end > una).then(|| (una.max(end.saturating_sub(self.mss)), end))
    }

    /// IsLost(una).
    pub fn is_lost(&self, una: u64) -> bool {
        una < self.lost_edge
    }

    /// Octets known to be received above the cumulative acknowledgement.
    pub fn sacked_octets(&self) -> u64 {
        self.sacked_octets
    }

    /// RFC 6675, IsLost: DupThresh ranges above, or more than (DupThresh - 1)·SMSS octets.
    fn find_lost_edge(&mut self) {
        let (mut octets, mut ranges, mut edge) = (0, 0, 0);
        for (start, end) in self.sacked.iter().rev() {
            octets += end - start;
            ranges += 1;
            if ranges >= DUP_THRESHOLD || octets > u64::from(DUP_THRESHOLD - 1) * self.mss {
                edge = start;
                break;
            }
        }
        self.sacked_above_lost = octets;
        self.lost_edge = edge;
        if self.timed_out_to > edge {
            self.lost_edge = self.timed_out_to;
            self.sacked_above_lost = self.sacked.count_in(self.timed_out_to, u64::MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Stream;

    /// Pipe and holes against RFC 6675's definitions, octet by octet.
    #[test]
    fn agrees_with_the_definitions() {
        for seed in weir_seed::seeds(200) {
            let mut random = Stream::new(seed, 0);
            let mut board = Scoreboard::new(4);
            let (mut sacked, mut rxt, mut timed_out) = ([false; 80], 0usize, 0usize);
            let mut una = 0usize;
            for _ in 0..60 {
                match random.below(8) {
                    0 => {
                        una = (una + random.below(6) as usize).min(79);
                        while una < 79 && sacked[una] {
                            una += 1;
                        }
                        board.acknowledge(una as u64);
                        rxt = rxt.max(una);
                    }
                    1 | 2 => {
                        if let Some((start, end)) = board.lost_hole(una as u64) {
                            let first = (rxt.max(una)..80).find(|&i| !sacked[i]).unwrap();
                            assert_eq!(start as usize, first, "seed {seed}");
                            let to = end.min(start + 4);
                            board.retransmitted(to);
                            rxt = to as usize;
                        }
                    }
                    3 if random.below(6) == 0 => {
                        board.time_out(una as u64, 80);
                        (rxt, timed_out) = (una, 80);
                    }
                    _ => {
                        let start = una + 1 + random.below(80 - una as u64) as usize;
                        let end = (start + random.below(9) as usize).min(80);
                        board.sack(start as u64, end.max(start) as u64);
                        sacked[start.min(end)..end].fill(true);
                    }
                }
                let lost = |i: usize| {
                    let above = &sacked[i..80];
                    let octets = above.iter().filter(|s| **s).count();
                    let runs = (i.max(1)..80).filter(|&j| sacked[j] && !sacked[j - 1]).count();
                    i < timed_out || octets > 8 || runs >= 3
                };
                let mut pipe = 0;
                for i in (una..80).filter(|&i| !sacked[i]) {
                    pipe += u64::from(!lost(i)) + u64::from(i < rxt);
                }
                assert_eq!(board.pipe(una as u64, 80), pipe, "seed {seed}");
                let hole = (rxt.max(una)..80).find(|&i| !sacked[i] && lost(i)).map(|i| i as u64);
                assert_eq!(board.lost_hole(una as u64).map(|h| h.0), hole, "seed {seed}");
                let last = (una..80).rev().find(|&i| !sacked[i]).map(|i| i as u64 + 1);
                assert_eq!(board.last_hole(una as u64, 80).map(|h| h.1), last, "seed {seed}");
            }
        }
    }
}
