//! TURN: what a channel carries is judged as if it came alone.
//!
//! Principle: a channel's message has a number from 0x4000 to 0x4fff and a length. Over UDP it may be
//! padded to a multiple of four.
//!
//! Source: RFC 8656 section 12.4.

use super::{Place, Sample, Trial, Verdict, at_start};

/// A packet whose first byte is 64 to 79.
pub fn look(trial: &mut Trial, sample: &Sample<'_>) -> Verdict {
    let Some((&[_, _, l0, l1], inner)) = sample.head.split_first_chunk() else { return Verdict::Nothing };
    let len = u32::from(u16::from_be_bytes([l0, l1]));
    if sample.len.checked_sub(4 + len).is_none_or(|padding| padding > 3) {
        return Verdict::Nothing;
    }
    let head = &inner[..inner.len().min(len as usize)];
    match at_start(trial, &Sample { head, len, place: Place::TURN, ..*sample }) {
        // A connection to one peer says nothing of the others.
        Verdict::Ordinary => Verdict::Known,
        said => said,
    }
}
