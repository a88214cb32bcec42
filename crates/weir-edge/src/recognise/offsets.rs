//! Headers of RTP further in: media behind a relay's or an application's own header.
//!
//! Principle: a packet that begins with no protocol known here is tried at each of [`AT`], with N
//! doubled. Zoom's media header is 8 bytes (relay) and 19 or 24 bytes; Teams's relay puts 12 in front;
//! a TURN channel puts 4. No signature is needed, because only a chain of headers that go on is a hit.
//!
//! Chains that go on come first. Only where none does may headers begin new ones. Otherwise what looks
//! like a header at other places would take the four places of the flow.
//! Cost: the first [`PACKETS`] packets of a flow, or its first 10 s.

use super::rtp::Header;
use super::{Place, Sample, Trial, Verdict, coarse};

/// Where headers are looked for, bytes from the start of the payload.
pub const AT: [u8; 9] = [4, 8, 12, 16, 19, 24, 27, 32, 36];
/// Packets of a flow that are tried.
pub const PACKETS: u8 = 200;
/// 10 s, and how long a pause ends the trial, in units of 2^20 ns.
const AGE: u16 = 9_537;

/// A packet whose start says nothing.
pub fn look(trial: &mut Trial, sample: &Sample<'_>) -> Verdict {
    let Some(rtp) = sample.rules.rtp.filter(|_| sample.rules.offsets && trial.tried < PACKETS) else {
        return Verdict::Nothing;
    };
    trial.tried += 1;
    // `born` wraps after 68 s: no pause may hide a turn of it.
    let is_long = sample.pause.as_nanos() >> 20 > u64::from(AGE);
    if is_long || coarse(sample.now).wrapping_sub(trial.born) > AGE {
        trial.tried = PACKETS;
        return Verdict::Nothing;
    }
    // Most strangers have the version of RTP at few of the places, and many at none.
    let may_be = |at: usize| sample.head.get(at).is_some_and(|first| first >> 6 == 2);
    if !AT.iter().any(|&at| may_be(usize::from(at))) {
        return Verdict::Nothing;
    }
    let header = |at: u8| {
        let at = usize::from(at);
        Header::read(sample.head.get(at..)?, sample.len.saturating_sub(at as u32))
    };
    let headers = AT.map(header);
    let places =
        || (0..).map(Place::further).zip(&headers).filter_map(|(place, h)| Some((place, h.as_ref()?)));
    for (place, header) in places() {
        if let Some(said) = trial.go_on(&rtp, sample, place, header) {
            return said;
        }
    }
    for (place, header) in places() {
        trial.begin(&rtp, sample.now, place, header);
    }
    Verdict::Nothing
}
