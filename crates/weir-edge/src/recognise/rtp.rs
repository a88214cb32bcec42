//! RTP: a header whose SSRC stays, while its sequence and timestamp go on.
//!
//! Principle: version 2, a payload type other than 64 to 95, lengths that fit, and an SSRC other than 0
//! make a candidate. A chain is kept for each SSRC. It goes on with the same type, a sequence ahead by 1
//! to 16, and a timestamp that is not behind. At its Nth packet the flow is real-time, if its first is
//! at most T old. A chain that is older begins again with the packet at hand.
//!
//! Paper: multiservice III.3.2, III.4.1 (T26, T27). RFC 3550 section 5.1 and appendix A.1; RFC 5761 section 4.
//! Where we differ, and why:
//! - Duplicates and packets that come late, up to 16 behind, are passed over. They neither count nor break.
//! - Of four chains, a new one takes the place of the one with fewest packets, the oldest of equals.
//!   So a chain that goes on is not lost to single packets that look like headers.
//! - A padding's length is not read: SRTP encrypts it. That there is room for one byte is asked for.
//!
//! ```text
//!  0                   1                   2                   3
//!  |V=2|P|X|  CC   |M|     PT      |       sequence number         |
//!  |                           timestamp                           |
//!  |                             SSRC                              |
//! ```

use super::{Found, Place, Progress, Rtp, Sample, Trial, Verdict};
use weir_core::units::{Duration, Instant};

/// A sequence number goes ahead by at most so much, or comes late by at most so much.
const AHEAD: u16 = 16;
/// A chain counts to this.
const MOST: u16 = 31;

/// The fields of a header that a chain compares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Synchronisation source, never 0.
    pub ssrc: u32,
    /// Time of the first sample, in units of the payload type's clock.
    pub timestamp: u32,
    /// Sequence number.
    pub sequence: u16,
    /// Payload type, 0 to 127.
    pub payload_type: u8,
}

impl Header {
    /// The header that `head` begins with, in `len` octets.
    pub fn read(head: &[u8], len: u32) -> Option<Header> {
        let fixed: &[u8; 12] = head.first_chunk()?;
        let payload_type = fixed[1] & 0x7f;
        // With the marker these are packet types 192 to 223 of RTCP. [RFC 5761 §4]
        if fixed[0] >> 6 != 2 || (64..=95).contains(&payload_type) {
            return None;
        }
        let mut end = 12 + 4 * usize::from(fixed[0] & 0x0f);
        if fixed[0] & 0x10 != 0 {
            // What is not seen is taken for an extension without words.
            let words = head.get(end + 2..end + 4).map_or(0, |w| u16::from_be_bytes([w[0], w[1]]));
            end += 4 + 4 * usize::from(words);
        }
        if fixed[0] & 0x20 != 0 {
            end += 1;
        }
        let word = |at: usize| u32::from_be_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]);
        let ssrc = word(8);
        (end as u64 <= u64::from(len) && ssrc != 0).then(|| Header {
            ssrc,
            timestamp: word(4),
            sequence: u16::from_be_bytes([fixed[2], fixed[3]]),
            payload_type,
        })
    }
}

/// True for RTCP. [RFC 5761 §4]
fn is_rtcp(head: &[u8], len: u32) -> bool {
    matches!(head, [128..=191, 192..=223, ..]) && len >= 8
}

/// A packet that may be of RTP or RTCP.
pub fn look(trial: &mut Trial, sample: &Sample<'_>) -> Verdict {
    if is_rtcp(sample.head, sample.len) {
        return Verdict::Known;
    }
    let (Some(rtp), Some(header)) = (sample.rules.rtp, Header::read(sample.head, sample.len)) else {
        return Verdict::Nothing;
    };
    trial.go_on(&rtp, sample, sample.place, &header).unwrap_or_else(|| {
        trial.begin(&rtp, sample.now, sample.place, &header);
        Verdict::Known
    })
}

/// Packets of one SSRC that go on from each other.
///
/// `shape` has the packets counted in its upper 5 bits, where the header stands in the next 4, and the
/// payload type in the lower 7.
#[derive(Clone, Copy, Default, Debug)]
pub struct Chain {
    ssrc: u32,
    timestamp: u32,
    /// When it began, in units of [`unit`]: the lower 32 bits of it.
    first: u32,
    sequence: u16,
    shape: u16,
}

impl Chain {
    /// Packets counted; 0: there is no chain here.
    pub fn packets(&self) -> u16 {
        self.shape >> 11
    }
    fn shape(packets: u16, place: Place, header: &Header) -> u16 {
        packets << 11 | place.number() << 7 | u16::from(header.payload_type)
    }
    fn place(&self) -> u16 {
        self.shape >> 7 & 15
    }
}

/// Times of chains are kept in units of 2^`unit` ns. Up to T = 2.1 s it is 0: they are exact.
///
/// A chain is looked at with each packet of its flow, and forgotten when it is older than T or the pause
/// before the packet is longer. So its age is at most 2 T, and 32 bits that hold 2 T tell all ages apart.
fn unit(rtp: &Rtp) -> u32 {
    let twice = rtp.within.as_nanos().saturating_mul(2);
    (u64::BITS - twice.leading_zeros()).saturating_sub(32)
}

fn age(rtp: &Rtp, now: Instant, first: u32) -> u32 {
    ((now.as_nanos() >> unit(rtp)) as u32).wrapping_sub(first)
}

/// Packets of a chain at that place which make its flow real-time.
fn needed(rtp: &Rtp, place: Place, expected: bool) -> u8 {
    let asked = if expected { rtp.packets.min(2) } else { rtp.packets };
    let is_further = place != Place::START && place != Place::TURN;
    asked << u8::from(is_further)
}

impl Trial {
    /// Forgets the chains whose first packet is more than T old.
    pub(super) fn forget_old(&mut self, rtp: &Rtp, sample: &Sample<'_>) {
        let oldest = rtp.within.as_nanos() >> unit(rtp);
        let all = sample.pause > rtp.within;
        for chain in &mut self.chains {
            if all || u64::from(age(rtp, sample.now, chain.first)) > oldest {
                *chain = Chain::default();
            }
        }
    }

    /// What the header says as the next of its chain. None if it has none, or breaks it.
    pub(super) fn go_on(
        &mut self,
        rtp: &Rtp,
        sample: &Sample<'_>,
        place: Place,
        header: &Header,
    ) -> Option<Verdict> {
        let is_its = |c: &Chain| c.packets() > 0 && c.ssrc == header.ssrc && c.place() == place.number();
        let index = self.chains.iter().position(is_its)?;
        let chain = &mut self.chains[index];
        let ahead = header.sequence.wrapping_sub(chain.sequence);
        let same_type = chain.shape & 0x7f == u16::from(header.payload_type);
        if same_type && (ahead == 0 || ahead.wrapping_neg() <= AHEAD) {
            return Some(Verdict::Known);
        }
        let not_behind = header.timestamp.wrapping_sub(chain.timestamp) < 1 << 31;
        if !same_type || ahead > AHEAD || !not_behind {
            *chain = Chain::default();
            return None;
        }
        let packets = (chain.packets() + 1).min(MOST);
        *chain = Chain {
            shape: Chain::shape(packets, place, header),
            sequence: header.sequence,
            timestamp: header.timestamp,
            ..*chain
        };
        let span = u64::from(age(rtp, sample.now, chain.first)) << unit(rtp);
        self.chains[..=index].rotate_right(1);
        if packets < u16::from(needed(rtp, place, sample.expected)) {
            return Some(Verdict::Known);
        }
        Some(Verdict::RealTime(Found {
            kind: place.kind(),
            ssrc: header.ssrc,
            packets: packets as u8,
            span: Duration::from_nanos(span),
        }))
    }

    /// The chain that is nearest to its end, as it was at the flow's last packet; `expected` as in
    /// [`Sample`]. Those that are too old are passed over.
    pub(crate) fn progress(&self, rtp: &Rtp, last: Instant, expected: bool) -> Option<Progress> {
        let chains = self.chains.iter().filter(|chain| chain.packets() > 0).map(|chain| {
            let place = Place(chain.place() as u8);
            let age = u64::from(age(rtp, last, chain.first)) << unit(rtp);
            Progress {
                kind: place.kind(),
                ssrc: chain.ssrc,
                packets: chain.packets() as u8,
                needed: needed(rtp, place, expected),
                since: Instant::from_nanos(last.as_nanos().saturating_sub(age)),
            }
        });
        let good = chains.filter(|progress| last.since(progress.since) <= rtp.within);
        good.min_by_key(|progress| progress.needed.saturating_sub(progress.packets))
    }

    /// A chain begins with this packet.
    pub(super) fn begin(&mut self, rtp: &Rtp, now: Instant, place: Place, header: &Header) {
        // Of equals the last: it went on longest ago.
        let fewest = self.chains.iter().rev().map(Chain::packets).min().unwrap_or(0);
        let index = self.chains.iter().rposition(|chain| chain.packets() == fewest).unwrap_or(0);
        self.chains[index] = Chain {
            ssrc: header.ssrc,
            timestamp: header.timestamp,
            first: (now.as_nanos() >> unit(rtp)) as u32,
            sequence: header.sequence,
            shape: Chain::shape(1, place, header),
        };
        self.chains[..=index].rotate_right(1);
    }
}
