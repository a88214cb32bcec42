//! The sending half: what may be sent now, and what was lost.

use super::cc::{Acked, CongestionControl, Reno};
use super::reduction::Reduction;
use super::rtt::RttEstimator;
use super::scoreboard::{DUP_THRESHOLD, Scoreboard};
use super::{Config, Segment, flags};
use weir_core::units::{Duration, Instant};

/// Sends the octets `0..end` of a stream.
#[derive(Debug)]
pub struct Sender {
    mss: u64,
    window: u64,
    sack: bool,
    ecn: bool,
    /// The first octet that is not acknowledged, and the first that was never sent.
    una: u64,
    nxt: u64,
    /// Octets that the application has written.
    end: u64,
    board: Scoreboard,
    rtt: RttEstimator,
    control: Box<dyn CongestionControl>,
    phase: Phase,
    duplicates: u32,
    /// Octets sent for the duplicates since the last octet was acknowledged (RFC 3042).
    limited: u64,
    /// NewReno: the window is larger by this much while duplicates arrive (RFC 6582).
    inflation: i64,
    /// NewReno: no fast retransmit unless more than this is acknowledged (RFC 6582, 3.2).
    recover: Option<u64>,
    /// The first lost segment goes out whatever the window says (RFC 6675, step 4.3).
    retransmit_now: bool,
    /// How fast a recovery with SACK may send.
    reduction: Reduction,
    /// RFC 6675's RescueRxt: one segment per recovery from the end of what is outstanding.
    rescue: Option<u64>,
    /// Already reduced for what was sent below this (RFC 3168: once per window).
    reduced_to: u64,
    tell_reduced: bool,
    timer: Instant,
    timed_out_una: Option<u64>,
    stats: SenderStats,
}

/// Where the sender stands after losses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Open,
    /// Fast recovery until everything sent before it is acknowledged.
    Recovery {
        point: u64,
        partial: bool,
    },
    /// After a time-out, until everything sent before it is acknowledged.
    Loss {
        point: u64,
    },
}

/// What a sender counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SenderStats {
    /// Segments sent again.
    pub retransmits: u64,
    /// Times the retransmission timer ran out.
    pub timeouts: u64,
    /// Fast recoveries.
    pub recoveries: u64,
    /// Reductions for an ECN echo.
    pub ecn_reductions: u64,
    /// Measurements of the round-trip time, their sum, least and greatest, in nanoseconds.
    pub rtt_samples: u64,
    /// Sum of the measurements.
    pub rtt_sum_ns: u64,
    /// The least; 0 before the first.
    pub rtt_min_ns: u64,
    /// The greatest.
    pub rtt_max_ns: u64,
    /// The last.
    pub rtt_last_ns: u64,
}

/// A piece of the stream to put into a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    pub seq: u64,
    pub len: u32,
    pub retransmission: bool,
    pub reduced: bool,
}

impl Sender {
    /// A sender with nothing to send yet.
    pub fn new(config: &Config) -> Self {
        let mss = u64::from(config.mss.max(1)).min(config.window.max(1));
        let initial = mss * u64::from(config.initial_window.max(1));
        Sender {
            mss,
            window: config.window.max(1),
            sack: config.sack,
            ecn: config.ecn,
            una: 0,
            nxt: 0,
            end: 0,
            board: Scoreboard::new(mss),
            rtt: RttEstimator::new(),
            control: Box::new(Reno::new(mss, initial, config.slow_start)),
            phase: Phase::Open,
            duplicates: 0,
            limited: 0,
            inflation: 0,
            recover: None,
            retransmit_now: false,
            reduction: Reduction::default(),
            rescue: None,
            reduced_to: 0,
            tell_reduced: false,
            timer: Instant::NEVER,
            timed_out_una: None,
            stats: SenderStats::default(),
        }
    }

    /// The application writes `octets` more; a greedy one writes `u64::MAX`.
    pub fn write(&mut self, octets: u64) {
        self.end = self.end.saturating_add(octets);
    }
    /// The application writes no more: what was never sent is forgotten.
    pub fn stop_writing(&mut self) {
        self.end = self.nxt;
    }
    /// Octets acknowledged in order.
    pub fn acknowledged(&self) -> u64 {
        self.una
    }
    /// True if all that was written is acknowledged.
    pub fn is_done(&self) -> bool {
        self.una == self.end
    }
    /// Octets sent and not acknowledged.
    pub fn outstanding(&self) -> u64 {
        self.nxt - self.una
    }
    /// The congestion window in octets.
    pub fn congestion_window(&self) -> u64 {
        self.control.window()
    }
    /// Another congestion control, before anything was sent.
    #[cfg(test)]
    pub fn set_control(&mut self, control: Box<dyn CongestionControl>) {
        self.control = control;
    }
    /// The smoothed round-trip time.
    pub fn smoothed_rtt(&self) -> Option<Duration> {
        self.rtt.smoothed()
    }
    /// Counts so far.
    pub fn stats(&self) -> &SenderStats {
        &self.stats
    }
    /// When the retransmission timer runs out.
    pub fn poll_at(&self) -> Instant {
        self.timer
    }

    /// A round-trip time that the handshake measured.
    pub fn sample_rtt(&mut self, rtt: Duration) {
        self.rtt.sample(rtt);
        let (s, ns) = (&mut self.stats, rtt.as_nanos());
        s.rtt_min_ns = if s.rtt_samples == 0 { ns } else { s.rtt_min_ns.min(ns) };
        s.rtt_max_ns = s.rtt_max_ns.max(ns);
        s.rtt_sum_ns += ns;
        s.rtt_last_ns = ns;
        s.rtt_samples += 1;
    }

    /// An acknowledgement arrived.
    pub fn on_ack(&mut self, now: Instant, segment: &Segment) {
        if segment.flags & flags::ACK == 0 || segment.ack > self.nxt || segment.ack < self.una {
            return; // Acknowledges what was never sent, or is older than what is known.
        }
        let before = self.una + self.board.sacked_octets();
        let news = self.note_sacks(segment);
        let flight = self.outstanding();
        let acked = segment.ack - self.una;
        let duplicate = if self.sack { news > 0 } else { flight > 0 && segment.len == 0 };
        if acked > 0 {
            self.una = segment.ack;
            self.board.acknowledge(self.una);
            (self.duplicates, self.limited) = (0, 0);
            if segment.echo != Instant::NEVER {
                self.sample_rtt(now.since(segment.echo));
            }
            self.rtt.progress();
        } else if duplicate {
            self.duplicates += 1;
        }
        self.on_echo(now, segment, flight);
        match self.phase {
            Phase::Open => self.on_ack_open(now, acked, flight),
            Phase::Recovery { point, partial } => {
                self.on_ack_recovery(now, acked, point, partial, duplicate);
                let delivered = (self.una + self.board.sacked_octets()).saturating_sub(before);
                self.pace_recovery(delivered, acked > 0);
            }
            Phase::Loss { point } => {
                if self.una >= point {
                    self.phase = Phase::Open;
                }
                self.grow(now, acked, flight);
            }
        }
        if acked > 0 && !matches!(self.phase, Phase::Recovery { partial: true, .. } if !self.sack) {
            self.arm(now);
        }
    }

    fn note_sacks(&mut self, segment: &Segment) -> u64 {
        if !self.sack {
            return 0;
        }
        let blocks = &segment.sack[..usize::from(segment.sacks).min(segment.sack.len())];
        let mut news = 0;
        for &(offset, len) in blocks {
            let start = segment.ack + u64::from(offset);
            let end = start + u64::from(len);
            if end <= self.nxt && start >= self.una {
                news += self.board.sack(start, end);
            }
        }
        news
    }

    /// RFC 3168, 6.1.2: an echo halves the window, at most once per window of data.
    fn on_echo(&mut self, now: Instant, segment: &Segment, flight: u64) {
        let echo = self.ecn && segment.flags & flags::ECE != 0;
        // Beyond what was sent before the reduction, not up to it: the segment that tells the
        // receiver of it is the first one after, and until then the receiver repeats the echo.
        if echo && self.phase == Phase::Open && self.una > self.reduced_to && flight > 0 {
            self.control.on_congestion(now, flight);
            self.stats.ecn_reductions += 1;
            self.note_reduction();
        }
    }

    fn note_reduction(&mut self) {
        self.reduced_to = self.nxt;
        self.tell_reduced = self.ecn;
    }

    fn on_ack_open(&mut self, now: Instant, acked: u64, flight: u64) {
        let lost = match self.sack {
            true => self.board.is_lost(self.una) || self.duplicates >= DUP_THRESHOLD,
            false => self.duplicates >= DUP_THRESHOLD && self.recover.is_none_or(|r| self.una > r),
        };
        if lost && self.outstanding() > 0 {
            self.start_recovery(now);
        } else {
            self.grow(now, acked, flight);
        }
    }

    /// RFC 6675, section 5, step 4; RFC 6582, section 3.2, step 2.
    fn start_recovery(&mut self, now: Instant) {
        // A window that ECN has already reduced is not reduced again for the same round trip.
        if self.una >= self.reduced_to {
            // RFC 5681, 3.2, step 2: what limited transmit sent does not count.
            self.control.on_congestion(now, self.outstanding() - self.limited);
            self.note_reduction();
        }
        self.reduction = Reduction::new(self.outstanding());
        self.phase = Phase::Recovery { point: self.nxt, partial: false };
        self.recover = Some(self.nxt);
        self.board.start_recovery(self.una);
        self.retransmit_now = true;
        self.rescue = None;
        self.inflation = if self.sack { 0 } else { (u64::from(DUP_THRESHOLD) * self.mss) as i64 };
        self.stats.recoveries += 1;
        self.arm(now);
    }

    fn on_ack_recovery(&mut self, now: Instant, acked: u64, point: u64, partial: bool, duplicate: bool) {
        if self.una >= point {
            self.phase = Phase::Open;
            self.inflation = 0;
            if !self.sack {
                // RFC 6582, 3.2, step 3, full acknowledgement, the first choice of window.
                self.control.clamp(self.outstanding().max(self.mss) + self.mss);
            } else if self.board.is_lost(self.una) {
                self.start_recovery(now); // Data sent during the recovery was lost as well.
            }
        } else if self.sack {
            // The pipe says what may be sent; nothing to do but ask it.
        } else if acked > 0 {
            // RFC 6582, step 3, partial acknowledgement: the next hole is lost too. Only the
            // first one restarts the timer (the "impatient" variant).
            self.retransmit_now = true;
            self.board.start_recovery(self.una);
            self.inflation -= acked as i64;
            if acked >= self.mss {
                self.inflation += self.mss as i64;
            }
            if !partial {
                self.arm(now);
            }
            self.phase = Phase::Recovery { point, partial: true };
        } else if duplicate {
            self.inflation += self.mss as i64;
        }
    }

    fn pace_recovery(&mut self, delivered: u64, advanced: bool) {
        let (pipe, target) = (self.board.pipe(self.una, self.nxt), self.control.window());
        self.reduction.on_ack(delivered, advanced, pipe, target, self.mss);
    }

    /// Grows the window if the sender used it (an application's pause proves nothing), and not
    /// in the round trip after a reduction.
    fn grow(&mut self, now: Instant, octets: u64, flight: u64) {
        if octets == 0 || self.una < self.reduced_to && self.phase == Phase::Open {
            return;
        }
        let window = self.control.window();
        let used = match self.control.in_slow_start() {
            true => 2 * flight >= window,
            false => flight + self.mss > window,
        };
        if used || matches!(self.phase, Phase::Loss { .. }) {
            self.control.on_ack(Acked { now, octets, rtt: self.rtt.smoothed() });
        }
    }

    fn arm(&mut self, now: Instant) {
        self.timer = match self.outstanding() {
            0 => Instant::NEVER,
            _ => now + self.rtt.timeout(),
        };
    }

    /// The clock reached `now`: perhaps the retransmission timer has run out.
    pub fn on_timer(&mut self, now: Instant) {
        if now < self.timer || self.outstanding() == 0 {
            return;
        }
        let again = self.timed_out_una == Some(self.una);
        // Where a retransmission was lost, what is outstanding has grown far beyond the window
        // by the time the timer says so; half of that would be no reduction at all.
        let flight = self.outstanding().min(self.control.window());
        self.control.on_timeout(now, flight, again);
        self.timed_out_una = Some(self.una);
        self.note_reduction();
        self.phase = Phase::Loss { point: self.nxt };
        self.recover = Some(self.nxt);
        self.board.time_out(self.una, self.nxt);
        (self.duplicates, self.inflation, self.retransmit_now) = (0, 0, true);
        self.stats.timeouts += 1;
        self.rtt.expired();
        self.arm(now);
    }

    /// The next piece that may be sent now.
    pub fn poll_send(&mut self, now: Instant) -> Option<Piece> {
        if self.una == self.end {
            return None;
        }
        let (seq, len, retransmission) = self.next_piece()?;
        if self.timer == Instant::NEVER {
            self.timer = now + self.rtt.timeout();
        }
        let reduced = !retransmission && core::mem::take(&mut self.tell_reduced);
        self.stats.retransmits += u64::from(retransmission);
        self.reduction.sent(len);
        Some(Piece { seq, len: len as u32, retransmission, reduced })
    }

    fn next_piece(&mut self) -> Option<(u64, u64, bool)> {
        if core::mem::take(&mut self.retransmit_now) && self.nxt > self.una {
            let hole = self.board.lost_hole(self.una).unwrap_or((self.una, self.nxt));
            return Some(self.repair(hole));
        }
        match self.phase {
            Phase::Recovery { point, .. } if self.sack => self.next_seg(point),
            Phase::Loss { .. } => {
                let hole = self.board.lost_hole(self.una);
                match hole.filter(|h| self.fits(self.mss.min(h.1 - h.0))) {
                    Some(hole) => Some(self.repair(hole)),
                    None if hole.is_some() => None,
                    None => self.new_data(),
                }
            }
            _ => self.new_data(),
        }
    }

    /// RFC 6675's NextSeg().
    fn next_seg(&mut self, point: u64) -> Option<(u64, u64, bool)> {
        if !self.fits(self.mss) {
            return None;
        }
        if let Some(hole) = self.board.lost_hole(self.una) {
            return Some(self.repair(hole)); // Rule 1.
        }
        if let Some(piece) = self.new_data() {
            return Some(piece); // Rule 2.
        }
        if let Some(hole) = self.board.suspect_hole(self.una) {
            return Some(self.repair(hole)); // Rule 3.
        }
        if self.rescue.is_none_or(|r| self.una > r)
            && let Some((start, end)) = self.board.last_hole(self.una, self.nxt)
        {
            self.rescue = Some(point); // Rule 4; HighRxt stays.
            return Some((start, end - start, true));
        }
        None
    }

    fn repair(&mut self, hole: (u64, u64)) -> (u64, u64, bool) {
        let len = (hole.1 - hole.0).min(self.mss);
        self.board.retransmitted(hole.0 + len);
        (hole.0, len, true)
    }

    /// Octets in the network, as the sender believes.
    fn in_flight(&self) -> u64 {
        match (self.sack, self.phase) {
            (false, Phase::Open | Phase::Recovery { .. }) => self.outstanding(),
            _ => self.board.pipe(self.una, self.nxt),
        }
    }

    fn fits(&self, len: u64) -> bool {
        if self.sack && matches!(self.phase, Phase::Recovery { .. }) {
            return self.in_flight() + len <= self.reduction.window();
        }
        let mut window = self.control.window().saturating_add_signed(self.inflation);
        if !self.sack && self.phase == Phase::Open {
            // RFC 3042; with SACK the pipe shrinks by itself as duplicates arrive.
            window += u64::from(self.duplicates.min(DUP_THRESHOLD - 1)) * self.mss;
        }
        self.in_flight() + len <= window
    }

    fn new_data(&mut self) -> Option<(u64, u64, bool)> {
        let len = (self.end - self.nxt).min(self.mss);
        if len == 0 || self.outstanding() + len > self.window || !self.fits(len) {
            return None;
        }
        let seq = self.nxt;
        self.nxt += len;
        if self.phase == Phase::Open && self.duplicates > 0 {
            self.limited += len;
        }
        Some((seq, len, false))
    }
}
