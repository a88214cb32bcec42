//! Which flows are real-time, told by the first bytes of their packets. Nobody signals, and no port is listed.
//!
//! Principle: each direction of a flow has a [`Trial`]. Each packet of it is a [`Sample`]. The first byte
//! says which protocol may be there, and that protocol's file judges the sample:
//!
//! | first byte | protocol | what follows |
//! |---|---|---|
//! | 0 to 3, and the cookie | [`stun`] | evidence: media may follow |
//! | 20 to 63, and a version | [`dtls`] | evidence: keys are there |
//! | 64 to 79, and a length that fits | [`turn`] | the same tests, four bytes further in |
//! | 128 to 191 | [`rtp`] | real-time at the Nth packet of a chain |
//! | 192 to 255, and a version | [`quic`] | the flow is ordinary |
//!
//! What none of them knows is tried [further in](offsets). [`statistical`] looks at no byte at all.
//!
//! Paper: multiservice III.3.2 and III.4.1 (T26 to T32). The order of tests is that of RFC 7983 and RFC 9443.
//! Where we differ, and why: the paper asks for N equal values where the SSRC would be. Over 3,080
//! recorded directions that found 13 which are none. Here sequence and timestamp must go on as well.
//! Cost: 68 bytes of state for a flow that is on trial. No call allocates or divides.
//! Content is neither kept nor read beyond the first [`SEEN`] bytes.

pub mod dtls;
pub mod offsets;
pub mod quic;
pub mod rtp;
pub mod statistical;
pub mod stun;
pub mod turn;

use core::fmt;
use rtp::Chain;
use weir_core::packet::dissect::Dissected;
use weir_core::packet::key::protocol;
use weir_core::units::{Duration, Instant};

/// Bytes of a payload that are looked at.
pub const SEEN: usize = 64;
/// A chain counts to 31, and further in it takes twice as many packets.
pub const MOST_PACKETS: u8 = 15;

/// What is known of the bytes behind a UDP header.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Payload<'a> {
    /// The first of them; more than [`SEEN`] are not looked at.
    pub head: &'a [u8],
    /// Octets of the whole payload.
    pub len: u32,
}

impl<'a> Payload<'a> {
    /// Nothing is known.
    pub const UNKNOWN: Payload<'static> = Payload { head: &[], len: 0 };

    /// The payload of a dissected frame, if it is UDP with its header in this frame.
    pub fn of(frame: &'a [u8], read: &Dissected) -> Payload<'a> {
        let header =
            read.l4_offset.filter(|_| read.key.protocol == protocol::UDP && !read.key.later_fragment);
        let Some(datagram) = header.and_then(|at| frame.get(at..)) else { return Payload::UNKNOWN };
        let Some((&[.., high, low, _, _], rest)) = datagram.split_first_chunk::<8>() else {
            return Payload::UNKNOWN;
        };
        let len = match u16::from_be_bytes([high, low]) {
            // A segment that is not yet cut up.
            0 => rest.len() as u32,
            len => u32::from(len).saturating_sub(8),
        };
        let seen = rest.len().min(len as usize).min(SEEN);
        Payload { head: &rest[..seen], len }
    }
}

/// The rules that are in force.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// N and T; none: no payload is looked at.
    pub rtp: Option<Rtp>,
    /// Headers further in are looked for.
    pub offsets: bool,
    /// Two packets suffice where ICE has succeeded.
    pub stun: bool,
    /// Two packets suffice where DTLS has finished.
    pub dtls: bool,
    /// The statistical rule; none: off.
    pub statistical: Option<statistical::Rule>,
}

impl Default for Rules {
    fn default() -> Self {
        Rules { rtp: Some(Rtp::default()), offsets: true, stun: false, dtls: false, statistical: None }
    }
}

/// A flow is real-time at so many packets of a chain whose first is at most so old.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rtp {
    /// N, 2 to [`MOST_PACKETS`].
    pub packets: u8,
    /// T, up to an hour.
    pub within: Duration,
}

impl Default for Rtp {
    fn default() -> Self {
        Rtp { packets: 4, within: Duration::from_secs(2) }
    }
}

/// A packet, as the rules see it.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// When it came.
    pub now: Instant,
    /// Since the packet before it in its flow; zero for the first.
    pub pause: Duration,
    /// The first bytes of what is judged.
    pub head: &'a [u8],
    /// Octets of what is judged.
    pub len: u32,
    /// Where in the payload that stands.
    pub place: Place,
    /// Media is to be expected here, so that two packets suffice.
    pub expected: bool,
    /// Octets that went the other way; what went this way is in the state.
    pub reverse_bytes: u64,
    /// The IP packet's length, octets.
    pub ip_len: u32,
    /// The rules.
    pub rules: &'a Rules,
}

/// Where in a payload something stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place(u8);

impl Place {
    /// At its start.
    pub const START: Place = Place(0);
    /// In a TURN channel.
    pub const TURN: Place = Place(1);
    /// Further in, at [`offsets::AT`] of that index.
    pub(crate) const fn further(index: usize) -> Place {
        Place(2 + index as u8)
    }
    /// From its number, of which a chain keeps four bits.
    const fn number(self) -> u16 {
        self.0 as u16
    }
    fn kind(self) -> Kind {
        match self.0.checked_sub(2).and_then(|index| offsets::AT.get(usize::from(index))) {
            Some(&at) => Kind::Further(at),
            None if self == Place::TURN => Kind::Turn,
            None => Kind::Rtp,
        }
    }
}

/// By which rule a flow was found.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// RTP.
    Rtp,
    /// RTP in a TURN channel.
    Turn,
    /// An RTP header, so many bytes further in.
    Further(u8),
    /// The statistical rule.
    Statistical,
    /// The code point that its host gave it.
    Marked,
    /// The statistical rule, of all flows of a contract that nothing else tells: they are one to it.
    Aggregate,
}

impl Kind {
    /// A number for each kind, all places further in being one.
    pub const COUNT: usize = 6;
    /// Its number.
    pub const fn index(self) -> usize {
        match self {
            Kind::Rtp => 0,
            Kind::Turn => 1,
            Kind::Further(_) => 2,
            Kind::Statistical => 3,
            Kind::Marked => 4,
            Kind::Aggregate => 5,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Rtp => f.write_str("rtp"),
            Kind::Turn => f.write_str("rtp turn"),
            Kind::Further(at) => write!(f, "rtp+{at}"),
            Kind::Statistical => f.write_str("statistical"),
            Kind::Marked => f.write_str("dscp"),
            Kind::Aggregate => f.write_str("aggregate"),
        }
    }
}

/// Why a flow is real-time from a packet on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    /// The rule.
    pub kind: Kind,
    /// The chain's SSRC; 0 where there is none.
    pub ssrc: u32,
    /// Packets of the chain, or that the statistical rule has seen.
    pub packets: u8,
    /// From the first of them to the last.
    pub span: Duration,
}

/// Where a chain of headers stands that is not long enough yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// The rule that it would be found by.
    pub kind: Kind,
    /// Its SSRC.
    pub ssrc: u32,
    /// Packets that went on from each other.
    pub packets: u8,
    /// Packets that make the flow real-time.
    pub needed: u8,
    /// Its first packet.
    pub since: Instant,
}

/// What a rule says of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It is not this rule's.
    Nothing,
    /// It is this rule's, and decides nothing yet.
    Known,
    /// Its flow is real-time from this packet on.
    RealTime(Found),
    /// Its flow is ordinary, and no longer looked at.
    Ordinary,
}

/// What is known of a direction of a flow that is on trial.
// 68 bytes: a flow has no more room for it.
#[derive(Clone, Copy, Default, Debug)]
#[repr(C)]
pub struct Trial {
    /// The chain that went on last stands first.
    chains: [Chain; 4],
    /// When its first packet came, in units of 2^20 ns, of which it is read for 68 s at most.
    born: u16,
    /// Packets that were tried further in; [`offsets::PACKETS`] when that is over.
    tried: u8,
    signs: Signs,
}

/// What was seen of a flow on trial, each in a bit: there is one byte for all.
#[derive(Clone, Copy, Default, Debug)]
struct Signs(u8);

/// One of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sign {
    /// A success response of STUN went this way.
    Answered = 1,
    /// A record of DTLS went this way.
    MetDtls = 2,
    /// DTLS has finished, as far as this direction shows.
    Keyed = 4,
    /// Its packets are no longer looked at.
    Ordinary = 8,
    /// Emergency: once it is real-time, it is neither refused nor evicted.
    Pinned = 16,
}

impl Trial {
    /// Of a flow whose first packet comes now.
    pub fn new(now: Instant) -> Self {
        Trial { born: coarse(now), ..Trial::default() }
    }
    /// Whether it has this sign.
    pub fn has(&self, sign: Sign) -> bool {
        self.signs.0 & sign as u8 != 0
    }
    /// It has this sign from now on, or no longer.
    pub fn set(&mut self, sign: Sign, has: bool) {
        self.signs.0 = self.signs.0 & !(sign as u8) | if has { sign as u8 } else { 0 };
    }
    /// Packets that were tried further in.
    pub(crate) fn tried(&self) -> u8 {
        self.tried
    }
    /// Forgets all chains: another T would misread their ages.
    pub(crate) fn forget(&mut self) {
        self.chains = Default::default();
    }
    /// Whether a chain has begun.
    pub fn has_chain(&self) -> bool {
        self.chains.iter().any(|chain| chain.packets() > 0)
    }
}

/// Units of 2^20 ns, about a millisecond.
fn coarse(now: Instant) -> u16 {
    (now.as_nanos() >> 20) as u16
}

/// Judges a packet by its first bytes.
pub fn look(trial: &mut Trial, sample: &Sample<'_>) -> Verdict {
    if trial.has(Sign::Ordinary) {
        return Verdict::Ordinary;
    }
    let Some(rtp) = &sample.rules.rtp else { return Verdict::Nothing };
    trial.forget_old(rtp, sample);
    let said = match at_start(trial, sample) {
        Verdict::Nothing => offsets::look(trial, sample),
        said => said,
    };
    if said == Verdict::Ordinary {
        trial.set(Sign::Ordinary, true);
    }
    said
}

/// Judges what begins with the sample's first byte.
fn at_start(trial: &mut Trial, sample: &Sample<'_>) -> Verdict {
    match sample.head.first() {
        Some(0..=3) => stun::look(trial, sample),
        Some(20..=63) => dtls::look(trial, sample),
        // A channel within a channel there is not.
        Some(64..=79) if sample.place == Place::START => turn::look(trial, sample),
        Some(128..=191) => rtp::look(trial, sample),
        Some(192..=255) => quic::look(sample),
        _ => Verdict::Nothing,
    }
}
