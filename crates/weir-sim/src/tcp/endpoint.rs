//! One side of a connection: handshake, then a sender and a receiver that share segments.

use super::{Config, Receiver, Segment, Sender, flags};
use weir_core::units::{Duration, Instant};

/// How the connection stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ConnectionState {
    /// Passive, or active and not yet opened.
    Closed,
    SynSent,
    SynReceived,
    Established,
}

/// One end of a connection.
#[derive(Debug)]
pub struct Endpoint {
    state: ConnectionState,
    ecn: bool,
    /// Sends this side's stream.
    pub sender: Sender,
    /// Receives the peer's.
    pub receiver: Receiver,
    /// SYN or SYN-ACK: whether one is to be sent, when to repeat it, how long after.
    announce: bool,
    syn_timer: Instant,
    syn_timeout: Duration,
    syn_retransmits: u64,
    /// The peer's SYN carried this timestamp.
    peer_syn_at: Instant,
    answer: bool,
}

const SYN_TIMEOUT: Duration = Duration::from_secs(1);
const SYN_TIMEOUT_MAX: Duration = Duration::from_secs(60);

impl Endpoint {
    /// A closed end; it answers a SYN, or opens on `open`.
    pub fn new(config: &Config) -> Self {
        Endpoint {
            state: ConnectionState::Closed,
            ecn: config.ecn,
            sender: Sender::new(config),
            receiver: Receiver::new(config),
            announce: false,
            syn_timer: Instant::NEVER,
            syn_timeout: SYN_TIMEOUT,
            syn_retransmits: 0,
            peer_syn_at: Instant::NEVER,
            answer: false,
        }
    }

    /// Starts the handshake. Nothing happens if it has been started.
    pub fn open(&mut self) {
        if self.state == ConnectionState::Closed {
            self.state = ConnectionState::SynSent;
            self.announce = true;
        }
    }

    /// True once data may flow.
    pub fn is_established(&self) -> bool {
        self.state == ConnectionState::Established
    }

    /// Segments sent again, SYNs included.
    pub fn retransmits(&self) -> u64 {
        self.sender.stats().retransmits + self.syn_retransmits
    }

    /// A segment arrived, with the congestion-experienced mark or not. Returns the octets that
    /// are now in order and were not before.
    pub fn on_segment(&mut self, now: Instant, segment: &Segment, ce: bool) -> u64 {
        if segment.flags & flags::SYN != 0 {
            self.on_syn(now, segment);
            return 0;
        }
        if self.state == ConnectionState::Closed || self.state == ConnectionState::SynSent {
            return 0; // A stray: no connection to give it to.
        }
        if self.state == ConnectionState::SynReceived {
            self.established(now, segment);
        }
        self.sender.on_ack(now, segment);
        match segment.len {
            0 => 0,
            _ => self.receiver.on_data(now, segment, ce),
        }
    }

    fn on_syn(&mut self, now: Instant, segment: &Segment) {
        self.peer_syn_at = segment.sent_at;
        match (self.state, segment.flags & flags::ACK != 0) {
            (ConnectionState::Closed | ConnectionState::SynReceived, false) => {
                self.state = ConnectionState::SynReceived;
                self.announce = true;
            }
            (ConnectionState::SynSent, true) => {
                self.established(now, segment);
                self.answer = true;
            }
            // Our acknowledgement of the SYN-ACK was lost.
            (ConnectionState::Established, true) => self.answer = true,
            // A duplicate of the SYN; simultaneous opening does not occur here.
            _ => {}
        }
    }

    fn established(&mut self, now: Instant, segment: &Segment) {
        self.state = ConnectionState::Established;
        self.syn_timer = Instant::NEVER;
        self.announce = false;
        if segment.echo != Instant::NEVER && self.syn_retransmits == 0 {
            self.sender.sample_rtt(now.since(segment.echo));
        }
    }

    /// When to come back though nothing arrives.
    pub fn poll_at(&self) -> Instant {
        self.syn_timer.min(self.sender.poll_at()).min(self.receiver.poll_at())
    }

    /// The clock reached `now`.
    pub fn on_timer(&mut self, now: Instant) {
        if now >= self.syn_timer {
            self.syn_timer = Instant::NEVER;
            self.syn_timeout = self.syn_timeout.saturating_mul(2).min(SYN_TIMEOUT_MAX);
            self.syn_retransmits += 1;
            self.announce = true;
        }
        self.sender.on_timer(now);
    }

    /// The next segment to send now. Ask until there is none.
    pub fn poll_send(&mut self, now: Instant) -> Option<Segment> {
        let mut segment = Segment { sent_at: now, echo: Instant::NEVER, ..Segment::default() };
        if core::mem::take(&mut self.announce) {
            segment.flags = flags::SYN;
            if self.state == ConnectionState::SynReceived {
                segment.flags |= flags::ACK;
                segment.echo = self.peer_syn_at;
            }
            segment.retransmission = self.syn_retransmits > 0;
            self.syn_timer = now + self.syn_timeout;
            return Some(segment);
        }
        if self.state != ConnectionState::Established {
            return None;
        }
        if let Some(piece) = self.sender.poll_send(now) {
            (segment.seq, segment.len) = (piece.seq, piece.len);
            segment.retransmission = piece.retransmission;
            // RFC 3168, 6.1.5: no ECT on what is sent again.
            segment.ect = self.ecn && !piece.retransmission;
            segment.flags |= if piece.reduced { flags::CWR } else { 0 };
            self.acknowledge(&mut segment);
            return Some(segment);
        }
        if self.answer || self.receiver.poll_at() <= now {
            self.acknowledge(&mut segment);
            return Some(segment);
        }
        None
    }

    fn acknowledge(&mut self, segment: &mut Segment) {
        self.answer = false;
        self.receiver.acknowledge(segment);
        if segment.echo == Instant::NEVER {
            segment.echo = self.peer_syn_at;
        }
    }
}
