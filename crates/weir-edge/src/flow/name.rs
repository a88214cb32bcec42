//! What a flow is found by in the table.

use super::WAYS;
use weir_core::packet::key::protocol;
use weir_core::packet::{Family, Key};

/// What is in front of an IPv4 address in its mapped form.
pub(super) const MAPPED: u128 = 0xffff << 32;

/// What a flow is found by.
pub(super) struct Name {
    pub src: u128,
    pub dst: u128,
    pub src_port: u16,
    pub dst_port: u16,
}

impl Name {
    /// None for what is neither UDP over IP nor an aggregate, or has addresses that no packet may have.
    pub fn of(key: &Key) -> Option<Name> {
        let map = |address: u128| match key.family {
            Family::V4 => Some(address | MAPPED),
            Family::V6 => Some(address).filter(|address| address >> 32 != MAPPED >> 32),
            Family::Other => Some(address),
        };
        let (src, dst) = (map(key.src)?, map(key.dst)?);
        // Nothing is sent to `::`, under which aggregates stand. [RFC 4291 section 2.5.2]
        if dst == 0 && key.family != Family::Other {
            return None;
        }
        let Key { src_port, dst_port, .. } = *key;
        (key.protocol == protocol::UDP).then_some(Name { src, dst, src_port, dst_port })
    }
}

/// The same flow, the other way.
pub(crate) fn reverse(key: &Key) -> Key {
    Key { src: key.dst, dst: key.src, src_port: key.dst_port, dst_port: key.src_port, ..*key }
}

/// The name of all flows that are judged as one, of the contract of this number, or of everybody. No packet has it.
pub(crate) fn aggregate(contract: Option<u32>) -> Key {
    let src = contract.map_or(1 << 32, u128::from);
    Key { family: Family::Other, src, protocol: protocol::UDP, ..Key::default() }
}

/// The set of a key among `sets`, and its tag.
// Each packet of a flow looks for its set: a call would cost 25 instructions.
#[inline(always)]
pub(super) fn set_of(key: &Key, salt: u64, sets: usize) -> (usize, u16) {
    let hash = key.flow_hash(salt);
    // A product's upper half: uniform without a division. The tag is the hash's lower half.
    let set = (u64::from(hash) * sets as u64) >> 32;
    (set as usize, (hash as u16).max(1))
}

/// Which of the places of a set a flow takes, if it is free. The set comes from the upper half of the hash, and this from the
/// lower one.
pub(super) fn usual_way(tag: u16) -> usize {
    usize::from(tag) % WAYS
}
