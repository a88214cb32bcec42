//! QUIC: a long header with a version. Its flow is ordinary from then on.
//!
//! Principle: media in QUIC cannot be told from anything else without its keys, and its packets look
//! like any bytes. So the flow is not looked at any more.
//!
//! Source: RFC 9000 section 17.2; RFC 9369 (version 2); RFC 9443 section 3.

use super::{Sample, Verdict};

/// Most octets of a connection's identifier in these versions.
const LONGEST_ID: u8 = 20;

/// A packet whose first byte is 192 to 255.
pub fn look(sample: &Sample<'_>) -> Verdict {
    let Some(&[_, v0, v1, v2, v3, id_len]) = sample.head.first_chunk() else { return Verdict::Nothing };
    if !is_version(u32::from_be_bytes([v0, v1, v2, v3])) || id_len > LONGEST_ID {
        return Verdict::Nothing;
    }
    Verdict::Ordinary
}

/// Versions 1 and 2, drafts, and those that are kept for greasing. [RFC 9000 §15]
fn is_version(version: u32) -> bool {
    matches!(version, 1 | 0x6b33_43cf | 0xff00_0000..=0xff00_00ff) || version & 0x0f0f_0f0f == 0x0a0a_0a0a
}
