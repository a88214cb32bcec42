//! The packet inside a tunnel's packet: GRE and VXLAN.
//!
//! ```text
//! GRE    IP protocol 47: flags 2 | type 2 | checksum 4 if C | key 4 if K | sequence 4 if S
//!        type 0x0800 IPv4, 0x86dd IPv6, 0x6558 an Ethernet frame          [RFC 2784, RFC 2890]
//! VXLAN  UDP to port 4789: flags 1 (0x08) | 0 3 | network 3 | 0 1 | an Ethernet frame  [RFC 7348 §5]
//! ```
//!
//! A tunnel that encrypts (WireGuard, ESP) stays what it is outside: its addresses, ports or SPI.
//! So does a tunnel whose header is damaged, or of a version that is not known.
//!
//! **The byte with DSCP and ECN stays the outer one.** It is the byte that the next router reads,
//! and the one that Weir writes. [RFC 6040: the tunnel's end hands it on to the inside]

use super::dissect::{Dissected, dissect, dissect_ip};
use super::key::{Family, Key, protocol};

/// Tunnels within tunnels that are looked into.
pub const MAX_TUNNELS: usize = 2;

/// The UDP port of VXLAN. [RFC 7348 §8.1]
pub const VXLAN_PORT: u16 = 4789;

const GRE_CHECKSUM: u16 = 0x8000;
const GRE_KEY: u16 = 0x2000;
const GRE_SEQUENCE: u16 = 0x1000;
/// Version, routing and recursion: 0 in what is read here.
const GRE_OTHER: u16 = 0x4fff;
/// An Ethernet frame inside GRE.
const TYPE_ETHERNET: u16 = 0x6558;

/// Gives `read`, what [`dissect`] found in `frame`, the key of the innermost packet that can be
/// read; answers whether there was one inside. Only the tos byte and the offsets stay the outer
/// packet's. A later fragment of the outer packet has no inside to look at.
pub fn look_inside(frame: &[u8], read: &mut Dissected) -> bool {
    let mut layer = *read;
    let mut start = 0;
    let mut found = false;
    for _ in 0..MAX_TUNNELS {
        let Some((at, inside)) = inside(frame, start, &layer) else { break };
        if inside.key.family == Family::Other {
            break;
        }
        (start, layer, found) = (at, inside, true);
    }
    if found {
        read.key = Key { tos: read.key.tos, ..layer.key };
    }
    found
}

/// What the packet `outer`, whose frame begins at `start`, carries, and where that begins.
fn inside(frame: &[u8], start: usize, outer: &Dissected) -> Option<(usize, Dissected)> {
    // A first fragment is cut off somewhere: the headers that are there are read all the same.
    let at = start + outer.l4_offset?;
    let rest = frame.get(at..)?;
    let (ethernet, skip) = match outer.key.protocol {
        protocol::GRE => {
            let &[f0, f1, t0, t1] = rest.first_chunk::<4>()?;
            let flags = u16::from_be_bytes([f0, f1]);
            if flags & GRE_OTHER != 0 {
                return None;
            }
            let words = [GRE_CHECKSUM, GRE_KEY, GRE_SEQUENCE];
            let optional = words.iter().filter(|&&flag| flags & flag != 0).count();
            match u16::from_be_bytes([t0, t1]) {
                0x0800 | 0x86dd => (false, 4 + 4 * optional),
                TYPE_ETHERNET => (true, 4 + 4 * optional),
                _ => return None,
            }
        }
        protocol::UDP if outer.key.dst_port == VXLAN_PORT => {
            // The flag says that the network number is valid, as it must be.
            let header = rest.get(8..)?.first_chunk::<8>()?;
            if header[0] & 0x08 == 0 {
                return None;
            }
            (true, 16)
        }
        _ => return None,
    };
    let inner = frame.get(at + skip..)?;
    Some((at + skip, if ethernet { dissect(inner) } else { dissect_ip(inner) }))
}

#[cfg(test)]
mod tests {
    use super::super::dissect::tests::build::{self, FRAMINGS, Framing};
    use super::*;
    use core::net::{Ipv4Addr, Ipv6Addr};
    use std::vec::Vec;

    fn outer(protocol: u8) -> Key {
        Key::ipv4(Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2), protocol).with_tos(0xb8)
    }
    fn inner_keys() -> [Key; 2] {
        let call = Key::ipv4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2), protocol::UDP);
        let web = Key::ipv6(Ipv6Addr::LOCALHOST, Ipv6Addr::UNSPECIFIED, protocol::TCP);
        [call.with_ports(16_384, 16_386).with_tos(0x20), web.with_ports(5_000, 443)]
    }
    fn gre(flags: u16, ethernet: bool, packet: &[u8]) -> Vec<u8> {
        let ip = if packet[0] >> 4 == 4 { 0x0800 } else { 0x86dd };
        let mut p = flags.to_be_bytes().to_vec();
        p.extend(if ethernet { TYPE_ETHERNET } else { ip }.to_be_bytes());
        for flag in [GRE_CHECKSUM, GRE_KEY, GRE_SEQUENCE] {
            if flags & flag != 0 {
                p.extend([0xde, 0xad, 0xbe, 0xef]);
            }
        }
        p.extend(if ethernet { Framing::Dot1q.wrap(packet) } else { packet.to_vec() });
        p
    }
    fn vxlan(port: u16, flags: u8, packet: &[u8]) -> Vec<u8> {
        let mut p = 50_000u16.to_be_bytes().to_vec();
        p.extend(port.to_be_bytes());
        p.extend([0, 0, 0, 0, flags, 0, 0, 0, 0, 0, 7, 0]);
        p.extend(Framing::Ethernet.wrap(packet));
        p
    }
    fn carried(protocol: u8, payload: &[u8]) -> Vec<u8> {
        build::v4(&outer(protocol), 1, 0x4000, &[], payload)
    }
    fn read(framing: Framing, frame: &[u8]) -> (bool, Dissected) {
        let mut read = framing.dissect(frame);
        let found = look_inside(frame, &mut read);
        (found, read)
    }

    #[test]
    fn the_inner_packet_is_classified_and_the_outer_tos_kept() {
        for key in inner_keys() {
            let packet = build::packet(&key);
            let mut tunnels = Vec::from([carried(protocol::UDP, &vxlan(VXLAN_PORT, 8, &packet))]);
            for flags in [0, GRE_CHECKSUM, GRE_KEY | GRE_SEQUENCE, GRE_CHECKSUM | GRE_KEY | GRE_SEQUENCE] {
                for ethernet in [false, true] {
                    tunnels.push(carried(protocol::GRE, &gre(flags, ethernet, &packet)));
                }
            }
            for (i, tunnel) in tunnels.iter().enumerate() {
                for framing in FRAMINGS {
                    let frame = framing.wrap(tunnel);
                    let (found, d) = read(framing, &frame);
                    assert!(found, "{i} {framing:?}");
                    assert_eq!(d.key, key.with_tos(0xb8), "{i} {framing:?}");
                    assert_eq!(d.l3_offset, framing.dissect(&frame).l3_offset, "the outer header is written");
                }
            }
        }
    }

    #[test]
    fn tunnels_in_tunnels_are_read_to_their_limit() {
        let key = inner_keys()[0];
        let mut packet = build::packet(&key);
        for depth in 1..=MAX_TUNNELS + 1 {
            packet = carried(protocol::GRE, &gre(0, false, &packet));
            let (found, d) = read(Framing::Ip, &packet);
            assert!(found);
            let expected = if depth <= MAX_TUNNELS { key } else { outer(protocol::GRE) };
            assert_eq!((d.key.src, d.key.dst_port), (expected.src, expected.dst_port), "{depth}");
        }
    }

    #[test]
    fn what_cannot_be_read_stays_the_tunnel() {
        let packet = build::packet(&inner_keys()[0]);
        let not_ip = Framing::Ethernet.wrap(&[0; 40]);
        for (payload, number) in [
            (gre(1, false, &packet), protocol::GRE),
            (gre(0x4000, false, &packet), protocol::GRE),
            (gre(0, false, &packet[..19]), protocol::GRE),
            (gre(0, true, &not_ip), protocol::GRE),
            (vxlan(VXLAN_PORT, 0, &packet), protocol::UDP),
            (vxlan(4790, 8, &packet), protocol::UDP),
            (packet.clone(), 4),
        ] {
            let frame = carried(number, &payload);
            let plain = dissect_ip(&frame);
            assert_eq!(read(Framing::Ip, &frame), (false, plain), "{number}");
        }
        // A later fragment of the tunnel has no header of it.
        let later = build::v4(&outer(protocol::GRE), 1, 3, &[], &gre(0, false, &packet));
        assert!(!read(Framing::Ip, &later).0);
    }

    #[test]
    fn no_length_panics() {
        let packet = build::packet(&inner_keys()[1]);
        for tunnel in [
            carried(protocol::GRE, &gre(GRE_KEY, true, &packet)),
            carried(protocol::UDP, &vxlan(VXLAN_PORT, 8, &packet)),
        ] {
            for framing in FRAMINGS {
                let frame = framing.wrap(&tunnel);
                for len in 0..frame.len() {
                    let (_, d) = read(framing, &frame[..len]);
                    assert!(d.l3_offset <= len);
                }
            }
        }
    }
}
