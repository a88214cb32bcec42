use super::*;
use crate::packet::dscp::{read_tos, set_tos};
use core::net::{Ipv4Addr, Ipv6Addr};
use std::vec::Vec;

/// Builds packets and frames; the classifier's tests use it too.
pub(crate) mod build {
    use super::*;

    /// The link headers that the dissector knows; [`Framing::Ip`] is a raw-IP capture.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub enum Framing {
        Ip,
        Ethernet,
        Dot1q,
        QinQ,
        OldQinQ,
        FourTags,
        Pppoe,
        TaggedPppoe,
        Mpls,
        TaggedMpls,
    }
    pub const FRAMINGS: [Framing; 10] = [
        Framing::Ip,
        Framing::Ethernet,
        Framing::Dot1q,
        Framing::QinQ,
        Framing::OldQinQ,
        Framing::FourTags,
        Framing::Pppoe,
        Framing::TaggedPppoe,
        Framing::Mpls,
        Framing::TaggedMpls,
    ];

    impl Framing {
        pub fn tags(self) -> &'static [u16] {
            match self {
                Framing::Ip | Framing::Ethernet | Framing::Pppoe | Framing::Mpls => &[],
                Framing::Dot1q | Framing::TaggedPppoe | Framing::TaggedMpls => &[0x8100],
                Framing::QinQ => &[0x88a8, 0x8100],
                Framing::OldQinQ => &[0x9100, 0x8100],
                Framing::FourTags => &[0x88a8, 0x8100, 0x8100, 0x8100],
            }
        }
        pub fn wrap(self, packet: &[u8]) -> Vec<u8> {
            let mut frame = Vec::new();
            if self != Framing::Ip {
                frame.extend([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
                for (i, tag_type) in self.tags().iter().enumerate() {
                    frame.extend(tag_type.to_be_bytes());
                    frame.extend((0xa000 + 100 + i as u16).to_be_bytes());
                }
                let is_v4 = packet[0] >> 4 == 4;
                match self {
                    Framing::Pppoe | Framing::TaggedPppoe => {
                        frame.extend([0x88, 0x64, 0x11, 0, 0, 7]);
                        frame.extend((packet.len() as u16 + 2).to_be_bytes());
                        frame.extend(if is_v4 { [0, 0x21] } else { [0, 0x57] });
                    }
                    // The bottom bit is the lowest of a label's third byte.
                    Framing::Mpls => frame.extend([0x88, 0x47, 0, 0x12, 0x31, 64]),
                    Framing::TaggedMpls => {
                        frame.extend([0x88, 0x48, 0, 0x12, 0x30, 64, 0, 0, 0x10, 64, 0, 0x34, 0x51, 1]);
                    }
                    _ => frame.extend(if is_v4 { TYPE_IPV4 } else { TYPE_IPV6 }.to_be_bytes()),
                }
            }
            frame.extend(packet);
            frame
        }
        pub fn dissect(self, frame: &[u8]) -> Dissected {
            if self == Framing::Ip { dissect_ip(frame) } else { dissect(frame) }
        }
    }

    /// An IPv4 packet: `options` must be a multiple of 4, `fragment` is the field with its flags.
    pub fn v4(key: &Key, id: u16, fragment: u16, options: &[u8], payload: &[u8]) -> Vec<u8> {
        let total = 20 + options.len() + payload.len();
        let mut p = std::vec![0x45 + (options.len() / 4) as u8, key.tos];
        p.extend((total as u16).to_be_bytes());
        p.extend(id.to_be_bytes());
        p.extend(fragment.to_be_bytes());
        p.extend([64, key.protocol, 0, 0]);
        p.extend((key.src as u32).to_be_bytes());
        p.extend((key.dst as u32).to_be_bytes());
        p.extend(options);
        p.extend(payload);
        p
    }

    /// An IPv6 packet whose first next header is `next`.
    pub fn v6(key: &Key, next: u8, payload: &[u8]) -> Vec<u8> {
        let word = (6 << 28) | (u32::from(key.tos) << 20) | key.flow_label;
        let mut p = word.to_be_bytes().to_vec();
        p.extend((payload.len() as u16).to_be_bytes());
        p.extend([next, 64]);
        p.extend(key.src.to_be_bytes());
        p.extend(key.dst.to_be_bytes());
        p.extend(payload);
        p
    }

    /// Ports and some more of the upper-layer header.
    pub fn upper(key: &Key) -> Vec<u8> {
        let mut p = key.src_port.to_be_bytes().to_vec();
        p.extend(key.dst_port.to_be_bytes());
        if key.protocol == protocol::ESP {
            p = key.spi.to_be_bytes().to_vec();
        }
        p.extend([0; 16]);
        p
    }

    /// A whole packet of the key's family.
    pub fn packet(key: &Key) -> Vec<u8> {
        match key.family {
            Family::V4 => v4(key, 1, 0x4000, &[], &upper(key)),
            _ => v6(key, key.protocol, &upper(key)),
        }
    }
}

use build::{FRAMINGS, upper};

/// Splitmix64: the seed is printed by every test that uses it.
struct Stream(u64);
impl Stream {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

fn tcp4() -> Key {
    let (src, dst) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(192, 168, 7, 9));
    Key::ipv4(src, dst, protocol::TCP).with_ports(5000, 80).with_tos(0xb8)
}
fn udp6() -> Key {
    let src = Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, 0x10);
    let dst = Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 2, 3, 4, 5, 6);
    Key::ipv6(src, dst, protocol::UDP).with_ports(0x1234, 53).with_tos(0x2e).with_flow_label(0xabcde)
}

#[test]
fn golden_bytes_v4_tcp() {
    // A SYN as a capture shows it, padding to 60 bytes included.
    let frame = [
        0x02, 0x00, 0x00, 0x00, 0x00, 0x02, 0x02, 0x00, 0x00, 0x00, 0x00, 0x01, 0x08, 0x00, // Ethernet
        0x45, 0x10, 0x00, 0x28, 0x12, 0x34, 0x40, 0x00, 0x40, 0x06, 0x00, 0x00, // IPv4
        0x0a, 0x00, 0x00, 0x01, 0x0a, 0x00, 0x00, 0x02, //
        0x13, 0x88, 0x00, 0x50, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x02, 0xff, 0xff, 0, 0, 0, 0, // TCP
        0, 0, 0, 0, 0, 0,
    ];
    let d = dissect(&frame);
    let expected = Key::ipv4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2), protocol::TCP);
    assert_eq!(d.key, expected.with_ports(5000, 80).with_tos(0x10));
    assert_eq!((d.l3_offset, d.l4_offset, d.vlan_tag, d.fragment), (14, Some(34), None, None));
}

/// The frames that most are go the short way, up to the least that holds their ports.
#[test]
fn plain_frames_go_the_short_way() {
    for (key, least) in [(tcp4(), 38), (udp6(), 58)] {
        let frame = build::Framing::Ethernet.wrap(&build::packet(&key));
        for len in 0..=frame.len() {
            assert_eq!(plain(&frame[..len]).is_some(), len >= least, "{key}: {len} bytes");
        }
        assert_eq!(plain(&frame), Some(dissect_any(&frame)));
        // A packet that says that it ends before its ports goes the long way.
        let (length_at, without_ports) = if least == 38 { (16, [1, 20, 23]) } else { (18, [1, 2, 3]) };
        for len in without_ports {
            let mut short = frame.clone();
            short[length_at..length_at + 2].copy_from_slice(&u16::to_be_bytes(len));
            assert_eq!(plain(&short), None, "{key}: a length of {len}");
            short[length_at + 1] = if least == 38 { 24 } else { 4 };
            assert!(plain(&short).is_some(), "{key}: the ports are there");
        }
        let tagged = build::Framing::Dot1q.wrap(&build::packet(&key));
        assert_eq!(plain(&tagged), None);
    }
}

#[test]
fn golden_bytes_v6_udp() {
    let mut frame = std::vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x81, 0x00, 0xa0, 0x64, 0x86, 0xdd];
    frame.extend([0x6b, 0x8a, 0xbc, 0xde, 0x00, 0x08, 0x11, 0x40]);
    frame.extend([0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    frame.extend([0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    frame.extend([0xc0, 0x01, 0x00, 0x35, 0x00, 0x08, 0x00, 0x00]);
    let d = dissect(&frame);
    let (src, dst) =
        (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2));
    let expected = Key::ipv6(src, dst, protocol::UDP);
    assert_eq!(d.key, expected.with_ports(0xc001, 53).with_tos(0xb8).with_flow_label(0xabcde));
    assert_eq!((d.l3_offset, d.l4_offset, d.vlan_tag), (18, Some(58), Some(0xa064)));
}

#[test]
fn every_framing_gives_the_same_key_and_a_place_to_write_tos() {
    for key in [tcp4(), udp6()] {
        for framing in FRAMINGS {
            let mut frame = framing.wrap(&build::packet(&key));
            let d = framing.dissect(&frame);
            assert_eq!(d.key, key, "{framing:?}");
            assert_eq!(d.vlan_tag, framing.tags().first().map(|_| 0xa064), "{framing:?}");
            assert!(set_tos(&mut frame, d.l3_offset, 0x13));
            assert_eq!(read_tos(&frame, d.l3_offset), Some(0x13));
            assert_eq!(framing.dissect(&frame).key, key.with_tos(0x13), "{framing:?}");
        }
    }
}

#[test]
fn ipv4_options_and_the_length_field_bound_the_ports() {
    let key = tcp4();
    let p = build::v4(&key, 1, 0, &[1; 40], &upper(&key));
    assert_eq!(dissect_ip(&p).key, key);
    assert_eq!(dissect_ip(&p).l4_offset, Some(60));
    // Padding behind the stated length is not a TCP header.
    let mut padded = build::v4(&key, 1, 0, &[], &[]);
    padded.extend([0x13, 0x88, 0, 80, 0, 0]);
    assert_eq!(dissect_ip(&padded).key, key.with_ports(0, 0));
    // A length of 0 is a segment not yet cut up: ports are read.
    let mut large = build::packet(&key);
    large[2..4].fill(0);
    assert_eq!(dissect_ip(&large).key, key);
    // A length inside the header is damage: addresses hold, ports do not.
    let mut damaged = build::packet(&key);
    damaged[3] = 12;
    assert_eq!(dissect_ip(&damaged).key, key.with_ports(0, 0));
    // A header length below 5 words, or another version under the IPv4 type, is not IPv4.
    for first in [0x44, 0x40, 0x65, 0x05] {
        let mut frame = build::Framing::Ethernet.wrap(&build::packet(&key));
        frame[14] = first;
        assert_eq!(dissect(&frame).key, Key::default(), "{first:#x}");
    }
}

#[test]
fn ipv6_extension_headers_are_walked() {
    let key = udp6();
    // hop-by-hop 8 -> routing 24 -> destination options 16 -> AH 24 -> UDP
    let mut chain = std::vec![43, 0, 1, 4, 0, 0, 0, 0];
    chain.extend([60, 2]);
    chain.extend([0; 22]);
    chain.extend([51, 1]);
    chain.extend([0; 14]);
    chain.extend([17, 4, 0, 0, 0, 0, 0x12, 0x34]);
    chain.extend([0; 16]);
    let l4 = 40 + chain.len();
    chain.extend(upper(&key));
    let d = dissect_ip(&build::v6(&key, 0, &chain));
    assert_eq!(d.key, key.with_spi(0x1234));
    assert_eq!(d.l4_offset, Some(l4));

    // More of them than MAX_EXTENSIONS: the number of the next one, and no ports.
    let mut long = Vec::new();
    for _ in 0..MAX_EXTENSIONS + 1 {
        long.extend([60, 0, 0, 0, 0, 0, 0, 0]);
    }
    assert_eq!(dissect_ip(&build::v6(&key, 60, &long)).key.protocol, 60);
    // Just as many: what is behind them is read.
    long.truncate(8 * MAX_EXTENSIONS);
    long[8 * (MAX_EXTENSIONS - 1)] = protocol::UDP;
    long.extend(upper(&key));
    assert_eq!(dissect_ip(&build::v6(&key, 60, &long)).key, key);

    // No next header, ICMPv6, ESP.
    assert_eq!(dissect_ip(&build::v6(&key, 59, &[])).key.protocol, 59);
    let icmp = dissect_ip(&build::v6(&key, 58, &upper(&key))).key;
    assert_eq!((icmp.protocol, icmp.src_port), (58, 0));
    let esp = Key { protocol: protocol::ESP, ..key.with_ports(0, 0) }.with_spi(0xdead_beef);
    assert_eq!(dissect_ip(&build::packet(&esp)).key, esp);
}

/// A payload length bounds what is read; 0 is a jumbogram, or a segment not yet cut up.
#[test]
fn the_ipv6_length_field_bounds_the_ports() {
    let key = udp6();
    let packet = build::packet(&key);
    for (len, read) in [(0, true), (1, false), (3, false), (4, true), (u16::MAX, true)] {
        let mut packet = packet.clone();
        packet[4..6].copy_from_slice(&u16::to_be_bytes(len));
        let expected = if read { key } else { key.with_ports(0, 0) };
        assert_eq!(dissect_ip(&packet).key, expected, "length {len}");
    }
}

#[test]
fn authentication_header_is_skipped_in_ipv4_too() {
    let key = tcp4();
    let mut payload = std::vec![6, 4, 0, 0, 0, 0, 0, 9];
    payload.extend([0; 16]);
    payload.extend(upper(&key));
    let p = build::v4(&Key { protocol: protocol::AH, ..key }, 1, 0, &[], &payload);
    assert_eq!(dissect_ip(&p).key, key.with_spi(9));
    // As many of them as are read, and one more.
    for (headers, read) in [(MAX_EXTENSIONS, true), (MAX_EXTENSIONS + 1, false)] {
        let mut payload = Vec::new();
        for left in (0..headers).rev() {
            let next = if left == 0 { protocol::TCP } else { protocol::AH };
            payload.extend([next, 4, 0, 0, 0, 0, 0, 9]);
            payload.extend([0; 16]);
        }
        payload.extend(upper(&key));
        let p = build::v4(&Key { protocol: protocol::AH, ..key }, 1, 0, &[], &payload);
        assert_eq!(dissect_ip(&p).key == key.with_spi(9), read, "{headers} headers");
    }
}

#[test]
fn fragments_v4() {
    let key = tcp4();
    let first = dissect_ip(&build::v4(&key, 7, 0x2000, &[], &upper(&key)));
    assert_eq!(first.key, key);
    assert_eq!(first.fragment, Some(Fragment { id: 7, protocol: 6, first: true, last: false }));
    let later = dissect_ip(&build::v4(&key, 7, 0x2003, &[], &upper(&key)));
    assert_eq!(later.key, Key { later_fragment: true, ..key.with_ports(0, 0) });
    let last = dissect_ip(&build::v4(&key, 7, 0x0006, &[], &upper(&key)));
    assert_eq!(last.fragment, Some(Fragment { id: 7, protocol: 6, first: false, last: true }));

    let mut cache = FragmentCache::new();
    let mut early = later;
    assert!(!cache.fill(&mut early), "before its first fragment: nothing known");
    assert_eq!(early, later);
    assert!(!cache.fill(&mut { first }));
    let mut middle = later;
    assert!(cache.fill(&mut middle));
    assert_eq!(middle.key, Key { later_fragment: true, ..key });
    let mut other = later;
    other.fragment = Some(Fragment { id: 8, protocol: 6, first: false, last: false });
    assert!(!cache.fill(&mut other), "another packet's");
    let mut end = last;
    assert!(cache.fill(&mut end));
    assert!(!cache.fill(&mut { later }), "freed by the last");
}

#[test]
fn fragments_v6_and_atomic_fragments() {
    let key = udp6();
    let fragment = |next: u8, field: u16, payload: &[u8]| {
        let mut chain = std::vec![next, 0];
        chain.extend(field.to_be_bytes());
        chain.extend([0xca, 0xfe, 0, 1]);
        chain.extend(payload);
        dissect_ip(&build::v6(&key, 44, &chain))
    };
    assert_eq!(fragment(17, 0, &upper(&key)).key, key);
    assert_eq!(fragment(17, 0, &upper(&key)).fragment, None, "atomic");
    let mut first = fragment(17, 1, &upper(&key));
    assert_eq!(first.key, key);
    // The later fragment states another next header: only the first one's counts.
    let mut later = fragment(60, 8 << 3, &[0xff; 16]);
    assert!(later.key.later_fragment);
    assert_eq!((later.key.src_port, later.l4_offset), (0, None));
    let mut cache = FragmentCache::new();
    cache.fill(&mut first);
    assert!(cache.fill(&mut later));
    assert_eq!(later.key, Key { later_fragment: true, ..key });
}

/// Sixteen packets in fragments at once have their ports, and what teaches or is no fragment gets none.
#[test]
fn as_many_packets_in_fragments_as_are_promised_are_remembered() {
    let key = tcp4();
    let fragment = |id, at: u16| dissect_ip(&build::v4(&key, id, 0x2000 | at, &[], &upper(&key)));
    let mut cache = FragmentCache::new();
    assert!(!cache.fill(&mut dissect_ip(&build::packet(&key))), "no fragment");
    assert!(!cache.fill(&mut fragment(0, 3)), "nothing was learnt");
    for id in 0..FragmentCache::CAPACITY as u16 {
        assert!(!cache.fill(&mut fragment(id, 0)));
    }
    for id in 0..FragmentCache::CAPACITY as u16 {
        assert!(cache.fill(&mut fragment(id, 3)), "{id}");
    }
}

#[test]
fn fragment_cache_forgets_the_longest_unused() {
    let key = tcp4();
    let first = |id| dissect_ip(&build::v4(&key, id, 0x2000, &[], &upper(&key)));
    let later = |id| dissect_ip(&build::v4(&key, id, 0x2003, &[], &[]));
    let mut cache = FragmentCache::new();
    for id in 0..16 {
        cache.fill(&mut first(id));
    }
    assert!(cache.fill(&mut later(0)), "used, so not the next to go");
    cache.fill(&mut first(100));
    assert!(!cache.fill(&mut later(1)));
    for id in [0, 2, 15, 100] {
        assert!(cache.fill(&mut later(id)), "{id}");
    }
}

/// Every length from 0 to 2000, whole valid packets cut there and random bytes; then packets with
/// a few bytes changed. Offsets must lie inside the frame, and cutting must not invent fields.
#[test]
fn no_input_panics() {
    let seed = weir_seed::seed();
    let mut random = Stream(seed);
    let plain_ones = core::cell::Cell::new(0);
    let check = |frame: &[u8]| {
        if let Some(found) = plain(frame) {
            assert_eq!(found, dissect_any(frame), "the short way and the long one");
            plain_ones.set(plain_ones.get() + 1);
        }
        for d in [dissect(frame), dissect_ip(frame)] {
            assert!(d.l3_offset <= frame.len());
            assert!(d.l4_offset.is_none_or(|at| at <= frame.len() && at > d.l3_offset));
            assert!(d.key.family != Family::Other || d.key == Key::default());
            assert!(d.key.flow_label < 1 << 20);
            let mut copy = frame.to_vec();
            let written = set_tos(&mut copy, d.l3_offset, 0x55);
            assert!(written || d.key.family == Family::Other, "an IP header can always be written");
            FragmentCache::new().fill(&mut { d });
        }
    };
    let samples: Vec<Vec<u8>> = [tcp4(), udp6()]
        .iter()
        .flat_map(|key| FRAMINGS.map(|framing| framing.wrap(&build::packet(key))))
        .collect();
    let mut cases = 0u32;
    for len in 0..=2000 {
        let mut frame: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
        check(&frame);
        for sample in &samples {
            let n = sample.len().min(len);
            frame[..n].copy_from_slice(&sample[..n]);
            check(&frame);
        }
        cases += 1 + samples.len() as u32;
    }
    for _ in 0..40_000 {
        let mut frame = samples[random.below(samples.len())].clone();
        for _ in 0..1 + random.below(6) {
            // Next-header values and small lengths are what leads deep into the walk.
            let at = random.below(frame.len());
            frame[at] = match random.below(3) {
                0 => random.next() as u8,
                1 => [0, 43, 44, 50, 51, 60, 6, 17][random.below(8)],
                _ => frame[at] ^ (1 << random.below(8)),
            };
        }
        frame.truncate(1 + random.below(frame.len()));
        check(&frame);
        cases += 1;
    }
    assert!(cases >= 10_000);
    assert!(plain_ones.get() >= 2_000, "{} went the short way", plain_ones.get());
}

#[test]
fn what_is_not_ip_is_other() {
    for (bytes, l3) in [(&[][..], 0), (&[0; 13], 13), (&[0; 14], 14), (&[0xff; 60], 14)] {
        let d = dissect(bytes);
        assert_eq!((d.key, d.l3_offset), (Key::default(), l3));
    }
    let mut arp = [0u8; 60];
    arp[12..14].copy_from_slice(&[0x08, 0x06]);
    assert_eq!((dissect(&arp).key, dissect(&arp).ether_type), (Key::default(), 0x0806));
    // Five tags are one too many.
    let mut deep = std::vec![0u8; 12];
    for _ in 0..5 {
        deep.extend([0x81, 0, 0, 1]);
    }
    deep.extend([0x08, 0]);
    deep.extend(build::packet(&tcp4()));
    assert_eq!(dissect(&deep).key.family, Family::Other);
}

#[test]
fn what_pppoe_and_mpls_carry_besides_ip_is_other() {
    let packet = build::packet(&tcp4());
    let pppoe = build::Framing::Pppoe.wrap(&packet);
    // Another version, a discovery's code, and LCP (0xc021).
    for (at, byte) in [(14, 0x12), (15, 0x09), (20, 0xc0)] {
        let mut frame = pppoe.clone();
        frame[at] = byte;
        assert_eq!((dissect(&frame).key, dissect(&frame).l3_offset), (Key::default(), 14), "{at}");
    }
    // A pseudowire, and a stack without a bottom.
    let mut frame = build::Framing::Mpls.wrap(&packet);
    frame[18] = 0;
    assert_eq!(dissect(&frame).key, Key::default());
    let mut deep = build::Framing::Ethernet.wrap(&packet)[..12].to_vec();
    deep.extend([0x88, 0x47]);
    for depth in 0..=MAX_LABELS {
        deep.extend([0, 1, u8::from(depth == MAX_LABELS), 64]);
    }
    deep.extend(&packet);
    assert_eq!(dissect(&deep).key, Key::default(), "one label too many");
    deep.drain(14..18);
    assert_eq!(dissect(&deep).key, tcp4());
}
