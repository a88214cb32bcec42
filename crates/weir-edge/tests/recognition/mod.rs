//! An edge that recognises, and packets to show it.
#![allow(dead_code, reason = "each test uses some")]

use weir_core::packet::Key;
use weir_core::units::Instant;
use weir_edge::admit::Admission;
use weir_edge::edge::{Class, Config, Edge, Recognition};
use weir_edge::recognise::{Found, Payload};

/// An edge of one class, without contracts.
pub fn edge_with(recognition: Recognition) -> Edge {
    let class = Class { leaf: 0, allocation: None, admission: Admission::default(), rate_bps: 1_000_000_000 };
    let config = Config {
        classes: vec![class],
        contracts: Vec::new(),
        prefixes: Vec::new(),
        recognition: Some(recognition),
        keep_untrusted: false,
        overhead: 0,
        seed: 1,
    };
    Edge::new(config, Instant::ZERO)
}

/// Sends a packet at so many nanoseconds: what its flow was found to be by it.
pub fn send(edge: &mut Edge, at: u64, key: &Key, bytes: &[u8]) -> Option<Found> {
    let payload = Payload { head: &bytes[..bytes.len().min(64)], len: bytes.len() as u32 };
    edge.packet(Instant::from_nanos(at), key, payload, bytes.len() as u32 + 42).found
}

/// A packet of RTP with 20 octets of media.
pub fn rtp(ssrc: u32, sequence: u16, timestamp: u32) -> Vec<u8> {
    let mut bytes = vec![0x80, 0];
    bytes.extend(sequence.to_be_bytes());
    bytes.extend(timestamp.to_be_bytes());
    bytes.extend(ssrc.to_be_bytes());
    bytes.extend([0x55; 20]);
    bytes
}

/// RFC 5389: a message of `kind` with `attributes` octets.
pub fn stun(kind: u16, attributes: u16) -> Vec<u8> {
    let mut bytes = kind.to_be_bytes().to_vec();
    bytes.extend(attributes.to_be_bytes());
    bytes.extend([0x21, 0x12, 0xa4, 0x42]);
    bytes.extend(vec![9; 12 + usize::from(attributes)]);
    bytes
}

pub fn dtls(kind: u8, epoch: u8, len: u8) -> Vec<u8> {
    let mut bytes = vec![kind, 0xfe, 0xfd, 0, epoch, 0, 0, 0, 0, 0, 1, 0, len];
    bytes.extend(vec![3; usize::from(len)]);
    bytes
}
