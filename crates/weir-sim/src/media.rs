//! The first bytes of a datagram's payload. A simulated packet carries none: its flow makes them from its
//! kind, its seed and the packet's number where an edge asks, so that the recogniser that runs live runs.

use weir_core::Random;
use weir_core::units::Instant;
use weir_edge::recognise::SEEN;
use weir_report::FlowKind;
use weir_scenario::media::Headers;
use weir_scenario::scenario::Flow;

/// What a flow's payloads are made from.
#[derive(Clone, Copy, Debug)]
pub struct Content {
    seed: u64,
    media: Option<Headers>,
}

impl Content {
    /// Of copy `copy` of a flow, from 0.
    pub fn new(flow: &Flow, copy: u32, seed: u64) -> Self {
        let media = || Headers::new(flow, copy, Random::new(seed).next_u64());
        Content { seed, media: (flow.kind == FlowKind::Rtp).then(media) }
    }

    /// The first bytes of packet `number`, which was sent then.
    pub fn head(&self, number: u64, sent_at: Instant) -> [u8; SEEN] {
        let mut head = [0; SEEN];
        let mut random = Random::new(self.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        for eight in head.chunks_exact_mut(8) {
            eight.copy_from_slice(&random.next_u64().to_be_bytes());
        }
        if let Some(media) = &self.media {
            media.write(number, sent_at.as_nanos(), &mut head);
        }
        head
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_edge::recognise::rtp::Header;
    use weir_scenario::Scenario;
    use weir_scenario::media::Codec;

    fn flow(keys: &str) -> Flow {
        let text = format!(
            "duration = \"1s\"\n[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n[[link]]\na = \"a\"\nb = \"b\"\n\
             rate = \"10M\"\n[[flow]]\nfrom = \"a\"\nto = \"b\"\nkind = \"rtp\"\n{keys}"
        );
        Scenario::from_toml("x.toml", &text).unwrap().flows.remove(0)
    }

    #[test]
    fn headers_go_on() {
        for (keys, hidden) in
            [("codec = \"opus\"\nssrc = 7", 0), ("codec = \"video\"\nhidden = 32\nssrc = 7", 32)]
        {
            let content = Content::new(&flow(keys), 0, 0xffff_fffe);
            let read = |n: u64| {
                let at = Instant::from_nanos(n * 20_000_000);
                Header::read(&content.head(n, at)[hidden..], 1_000).unwrap()
            };
            for n in 0..5 {
                let (one, next) = (read(n), read(n + 1));
                assert_eq!((one.ssrc, next.sequence), (7, one.sequence.wrapping_add(1)));
                let clock = if hidden == 0 { 960 } else { 1_800 };
                assert_eq!(next.timestamp.wrapping_sub(one.timestamp), clock);
            }
            assert_ne!(content.head(0, Instant::ZERO), content.head(1, Instant::ZERO));
        }
    }

    /// rtc-III-tab4/6: G.723.1 with three frames a packet and with one, without the header of RTP, which
    /// the paper leaves out: 100 and 52 bytes of IP, 11 and 33 packets/s, 8800 and 13,728 bit/s, and an
    /// overhead of 28 % and 53.8 % (the paper prints 52 %).
    #[test]
    fn packetisation() {
        for (frames, size, packets, bps, overhead) in [(3, 100, 11, 8_800, 280), (1, 52, 33, 13_728, 538)] {
            let media = Codec::G7231.media(Some(frames));
            let ip = media.bytes + 28;
            assert_eq!((ip, 1_000_000_000 / media.interval_ns), (size, packets));
            assert_eq!(u64::from(ip) * 8 * packets, bps);
            assert_eq!(28 * 1_000 / ip, overhead);
        }
    }
}
