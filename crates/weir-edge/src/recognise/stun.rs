//! STUN: where ICE has succeeded, media is to be expected.
//!
//! Principle: a message has two zero bits, a length, a cookie and an identifier of 12 bytes. A success
//! response to a binding request says that the path works in its direction. Once both directions have
//! had one, two packets of RTP suffice.
//!
//! Source: RFC 8489 section 5; RFC 8445 section 7.

use super::{Sample, Sign, Trial, Verdict};

const COOKIE: [u8; 4] = [0x21, 0x12, 0xa4, 0x42];
const BINDING_SUCCESS: [u8; 2] = [0x01, 0x01];

/// A packet whose first byte is 0 to 3.
pub fn look(trial: &mut Trial, sample: &Sample<'_>) -> Verdict {
    let Some(&[t0, t1, l0, l1, c0, c1, c2, c3]) = sample.head.first_chunk() else { return Verdict::Nothing };
    let len = u32::from(u16::from_be_bytes([l0, l1]));
    if [c0, c1, c2, c3] != COOKIE || len % 4 != 0 || sample.len.checked_sub(20).is_none_or(|rest| len > rest)
    {
        return Verdict::Nothing;
    }
    if sample.rules.stun && [t0, t1] == BINDING_SUCCESS {
        trial.set(Sign::Answered, true);
    }
    Verdict::Known
}
