//! What media flows send: the headers of RTP (RFC 3550) that the simulator and the lab put in front of it.

pub use crate::codec::{Codec, Media};
use crate::scenario::Flow;
use serde::{Deserialize, Serialize};

/// Mean times of talk and of silence, ns. [ITU-T P.59]
pub const TALK_NS: u64 = 1_004_000_000;
/// See [`TALK_NS`].
pub const SILENCE_NS: u64 = 1_587_000_000;

/// Bytes of a header of RTP without sources.
const RTP_HEADER: u32 = 12;

impl Flow {
    /// Octets of payload of a UDP datagram of an rtp flow.
    pub fn media_octets(&self) -> u32 {
        self.hidden + RTP_HEADER + self.codec.media(self.frames).bytes
    }
}

/// The headers of the packets of one rtp flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Headers {
    payload_type: u8,
    clock_hz: u64,
    burst: u32,
    ssrc: u32,
    /// Where sequence and timestamp begin.
    first: u64,
    /// Bytes in front of the header.
    pub hidden: u32,
}

impl Headers {
    /// Of copy `copy` of a flow, from 0. `drawn` says what the flow leaves open: its SSRC, and where
    /// sequence and timestamp begin.
    pub fn new(flow: &Flow, copy: u32, drawn: u64) -> Self {
        let Media { payload_type, clock_hz, burst, .. } = flow.codec.media(flow.frames);
        let ssrc = flow.ssrc.map_or(drawn as u32 | 1, |ssrc| ssrc.wrapping_add(copy));
        Headers { payload_type, clock_hz, burst, ssrc, first: drawn, hidden: flow.hidden }
    }

    /// Writes what stands at the beginning of packet `number`, sent `at_ns` after some fixed moment, as far
    /// as it fits.
    pub fn write(&self, number: u64, at_ns: u64, payload: &mut [u8]) {
        if self.hidden > 0
            && let Some(byte) = payload.first_mut()
        {
            // No protocol's first byte: that of Zoom's relay.
            *byte = 5;
        }
        let sequence = (number as u16).wrapping_add(self.first as u16);
        let ticks = u128::from(at_ns) * u128::from(self.clock_hz) / 1_000_000_000;
        let timestamp = (ticks as u32).wrapping_add((self.first >> 16) as u32);
        let is_last = self.burst > 1 && (number + 1).is_multiple_of(u64::from(self.burst));
        let mut header = [0; RTP_HEADER as usize];
        header[0] = 0x80;
        header[1] = self.payload_type | if is_last { 0x80 } else { 0 };
        header[2..4].copy_from_slice(&sequence.to_be_bytes());
        header[4..8].copy_from_slice(&timestamp.to_be_bytes());
        header[8..].copy_from_slice(&self.ssrc.to_be_bytes());
        for (byte, value) in payload.iter_mut().skip(self.hidden as usize).zip(header) {
            *byte = value;
        }
    }
}
