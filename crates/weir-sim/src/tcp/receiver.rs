//! The receiving half: what has arrived in order, and when to say so.

use super::ranges::RangeSet;
use super::{Config, Segment, flags};
use weir_core::units::{Duration, Instant};

/// Longest time that an acknowledgement is held back.
const DELAY: Duration = Duration::from_millis(40);
/// Acknowledgements sent without delay at the start and after a loss, as in Linux.
const QUICK: u32 = 16;

/// Receives a stream from octet 0 on.
#[derive(Debug)]
pub struct Receiver {
    mss: u32,
    delayed: bool,
    sack: bool,
    next: u64,
    held: RangeSet,
    /// An octet of each of the ranges changed last, the latest first (RFC 2018, section 4).
    recent: [u64; 3],
    /// What to echo: the timestamp of the first segment not yet acknowledged (RFC 7323, 4.3).
    echo: Instant,
    last_ack_sent: u64,
    pending_octets: u64,
    due: Instant,
    quick: u32,
    echo_congestion: bool,
    acks_sent: u64,
}

impl Receiver {
    /// A receiver that has seen nothing.
    pub fn new(config: &Config) -> Self {
        Receiver {
            mss: config.mss,
            delayed: config.delayed_ack,
            sack: config.sack,
            next: 0,
            held: RangeSet::default(),
            recent: [0; 3],
            echo: Instant::NEVER,
            last_ack_sent: 0,
            pending_octets: 0,
            due: Instant::NEVER,
            quick: QUICK,
            echo_congestion: false,
            acks_sent: 0,
        }
    }

    /// Octets that arrived in order.
    pub fn received(&self) -> u64 {
        self.next
    }
    /// When an acknowledgement is due.
    pub fn poll_at(&self) -> Instant {
        self.due
    }
    /// Acknowledgements so far, those on data included.
    pub fn acks_sent(&self) -> u64 {
        self.acks_sent
    }

    /// A segment with data arrived, marked (`ce`) or not; returns the octets now in order.
    pub fn on_data(&mut self, now: Instant, segment: &Segment, ce: bool) -> u64 {
        if segment.flags & flags::CWR != 0 {
            self.echo_congestion = false;
        }
        if segment.seq <= self.last_ack_sent {
            self.echo = segment.sent_at;
        }
        let (start, end) = (segment.seq, segment.seq + u64::from(segment.len));
        let in_order = start <= self.next && end > self.next && self.held.is_empty();
        let before = self.next;
        if end > self.next {
            self.take(start.max(self.next), end);
        }
        let news = self.next - before;
        self.pending_octets += news;
        if ce {
            self.echo_congestion = true;
        }
        if !in_order {
            // A hole, its repair, or a duplicate: the sender needs to hear at once.
            self.quick = QUICK;
            self.due = now;
        } else if ce || self.quick > 0 || !self.delayed || self.pending_octets >= 2 * u64::from(self.mss) {
            self.quick = self.quick.saturating_sub(1);
            self.due = now;
        } else if self.due == Instant::NEVER {
            self.due = now + DELAY;
        }
        news
    }

    fn take(&mut self, start: u64, end: u64) {
        if start == self.next && self.held.is_empty() {
            self.next = end;
            return;
        }
        self.held.insert(start, end);
        if let Some((_, end)) = self.held.containing(self.next) {
            self.next = end;
            self.held.trim_below(end);
        } else if self.recent[0] != start {
            // The range that was first becomes second, and so on; one that merges with the
            // new one is left out when the blocks are written.
            self.recent = [start, self.recent[0], self.recent[1]];
        }
    }

    /// Fills the acknowledging half of `segment`, which is about to be sent.
    pub fn acknowledge(&mut self, segment: &mut Segment) {
        segment.ack = self.next;
        segment.flags |= flags::ACK;
        segment.echo = self.echo;
        if self.echo_congestion {
            segment.flags |= flags::ECE;
        }
        if self.sack && !self.held.is_empty() {
            self.write_blocks(segment);
        }
        self.last_ack_sent = self.next;
        self.pending_octets = 0;
        self.due = Instant::NEVER;
        self.acks_sent += 1;
    }

    fn write_blocks(&self, segment: &mut Segment) {
        let mut blocks = [(0, 0); 3];
        let mut count = 0;
        let ranges = self.recent.iter().filter_map(|&octet| self.held.containing(octet));
        // Past the recent ones, the lowest holes are what the sender can use.
        for (start, end) in ranges.chain(self.held.iter().take(3)) {
            let offset = u32::try_from(start - self.next).unwrap_or(u32::MAX);
            let block = (offset, u32::try_from(end - start).unwrap_or(u32::MAX));
            if count < blocks.len() && !blocks[..count].contains(&block) {
                blocks[count] = block;
                count += 1;
            }
        }
        (segment.sack, segment.sacks) = (blocks, count as u8);
    }
}
