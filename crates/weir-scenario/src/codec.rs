//! Codecs, and what their packets are like.

use serde::{Deserialize, Serialize};

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
