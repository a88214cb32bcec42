//! DTLS: where a handshake has finished, media with its keys is to be expected.
//!
//! Principle: a record of the long form has a type, a version, an epoch and a length. A side that sends
//! in epoch 1 or later, or says that it changes its keys, has what it needs. In DTLS 1.3 the short form
//! has no version; it counts after a record of the long form, and with epoch 3.
//!
//! Source: RFC 6347 section 4.1; RFC 9147 section 4; RFC 5764 section 5.1.2.

use super::{Sample, Sign, Trial, Verdict};

const CHANGE_CIPHER_SPEC: u8 = 20;
/// Records of a datagram that are looked at.
const RECORDS: usize = 4;

/// A packet whose first byte is 20 to 63.
pub fn look(trial: &mut Trial, sample: &Sample<'_>) -> Verdict {
    let mut at = 0;
    for _ in 0..RECORDS {
        let Some((kind, epoch, len)) = record(sample.head.get(at..).unwrap_or(&[])) else { break };
        let end = at + 13 + usize::from(len);
        if end > sample.len as usize {
            break;
        }
        trial.set(Sign::MetDtls, true);
        if sample.rules.dtls && (kind == CHANGE_CIPHER_SPEC || epoch > 0) {
            trial.set(Sign::Keyed, true);
        }
        at = end;
    }
    // Application data under the keys of the handshake: 001CSLEE.
    let is_short = trial.has(Sign::MetDtls) && matches!(sample.head.first(), Some(32..=63));
    if at == 0 && is_short && sample.rules.dtls && sample.head[0] & 3 == 3 {
        trial.set(Sign::Keyed, true);
    }
    if at > 0 || is_short { Verdict::Known } else { Verdict::Nothing }
}

/// Type, epoch and length of the record that begins here.
fn record(bytes: &[u8]) -> Option<(u8, u16, u16)> {
    let &[kind, 0xfe, 0xff | 0xfd | 0xfc, e0, e1, _, _, _, _, _, _, l0, l1] = bytes.first_chunk()? else {
        return None;
    };
    (20..=63).contains(&kind).then(|| (kind, u16::from_be_bytes([e0, e1]), u16::from_be_bytes([l0, l1])))
}
