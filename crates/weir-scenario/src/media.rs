//! What media flows send: codecs, and the headers of RTP (RFC 3550) that the simulator and the lab put in
//! front of it.

use crate::scenario::Flow;
use serde::{Deserialize, Serialize};

/// Mean times of talk and of silence, ns. [ITU-T P.59]
pub const TALK_NS: u64 = 1_004_000_000;
/// See [`TALK_NS`].
pub const SILENCE_NS: u64 = 1_587_000_000;

/// What an rtp flow sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Codec {
    /// 160 bytes every 20 ms.
    #[default]
    G711,
    /// 24 bytes every 30 ms (6.3 kbit/s).
    #[serde(rename = "g723.1")]
    G7231,
    /// 10 bytes every 10 ms.
    G729,
    /// 80 bytes every 20 ms (32 kbit/s).
    Opus,
    /// Four packets of 1100 bytes 30 times a second.
    Video,
}

/// What a codec's packets are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Media {
    /// Payload type. [RFC 3551]
    pub payload_type: u8,
    /// Clock of the timestamp, Hz.
    pub clock_hz: u64,
    /// From one packet to the next, or from one picture to the next, ns.
    pub interval_ns: u64,
    /// Packets at a time.
    pub burst: u32,
    /// Bytes of media in a packet.
    pub bytes: u32,
}

impl Codec {
    pub(crate) fn is_default(&self) -> bool {
        *self == Codec::default()
    }
    /// Its packets, with so many frames in each, or as many as usual.
    pub fn media(self, frames: Option<u32>) -> Media {
        let (payload_type, clock_hz, frame_ms, bytes, usual) = match self {
            Codec::G711 => (0, 8_000, 20, 160, 1),
            Codec::G7231 => (4, 8_000, 30, 24, 1),
            Codec::G729 => (18, 8_000, 10, 10, 2),
            Codec::Opus => (111, 48_000, 20, 80, 1),
            Codec::Video => {
                let interval_ns = 1_000_000_000 / 30;
                return Media { payload_type: 96, clock_hz: 90_000, interval_ns, burst: 4, bytes: 1_100 };
            }
        };
        let frames = frames.unwrap_or(usual);
        let interval_ns = u64::from(frames) * frame_ms * 1_000_000;
        Media { payload_type, clock_hz, interval_ns, burst: 1, bytes: frames * bytes }
    }
}

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
