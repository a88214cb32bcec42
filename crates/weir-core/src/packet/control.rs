//! Which packets keep a link alive: address resolution, routing, and the link's own protocols.
//!
//! ```text
//! link     802.3 length instead of a type (STP, IS-IS), ARP, LLDP, LACP, EAPOL, PPPoE discovery, LCP
//! IP       OSPF (89); ICMPv6 133 to 137: router and neighbour discovery       [RFC 4861 §4]
//! ports    DHCP 67, 68, 546, 547 (UDP); BFD 3784, 3785, 4784 (UDP); BGP 179 (TCP)
//! ```

use super::dissect::Dissected;
use super::key::{Family, Key, protocol};

const OSPF: u8 = 89;
/// Type fields of protocols that are a link's own.
const LINK_TYPES: [u16; 6] = [0x0806, 0x88cc, 0x8809, 0x888e, 0x8863, 0x8864];
/// What an 802.3 frame's length field is below. [IEEE 802.3 §3.2.6]
const TYPES_FROM: u16 = 0x0600;

/// True if a frame, of which `read` is the outer packet, carries a protocol that keeps a link or
/// its routes alive.
pub fn is_control(frame: &[u8], read: &Dissected) -> bool {
    let key = &read.key;
    match key.family {
        // A PPPoE session's packet that is not IP is PPP's own: LCP and the network protocols'.
        Family::Other => {
            frame.len() > read.l3_offset
                && (LINK_TYPES.contains(&read.ether_type) || (1..TYPES_FROM).contains(&read.ether_type))
        }
        _ => key_is_control(key).unwrap_or_else(|| {
            let kind = read.l4_offset.and_then(|at| frame.get(at));
            kind.is_some_and(|kind| (133..=137).contains(kind))
        }),
    }
}

/// The same of an IP packet by its headers alone; `None` where the type of ICMPv6 decides, which no
/// key has.
pub fn key_is_control(key: &Key) -> Option<bool> {
    if key.family == Family::Other || key.later_fragment {
        return Some(false);
    }
    Some(match key.protocol {
        protocol::TCP => key.src_port == 179 || key.dst_port == 179,
        protocol::UDP => matches!(key.dst_port, 67 | 68 | 546 | 547 | 3784 | 3785 | 4784),
        protocol::ICMPV6 if key.family == Family::V6 => return None,
        other => other == OSPF,
    })
}

#[cfg(test)]
mod tests {
    use super::super::dissect::dissect;
    use super::super::dissect::tests::build::{self, Framing};
    use super::super::key::Key;
    use super::*;
    use core::net::{Ipv4Addr, Ipv6Addr};

    fn control(frame: &[u8]) -> bool {
        is_control(frame, &dissect(frame))
    }
    fn v4(protocol: u8, src_port: u16, dst_port: u16) -> bool {
        let key = Key::ipv4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2), protocol);
        control(&Framing::Dot1q.wrap(&build::packet(&key.with_ports(src_port, dst_port))))
    }

    #[test]
    fn protocols_of_links_and_routes() {
        for (ether_type, expected) in [
            (0x0806u16, true),
            (0x88cc, true),
            (0x8809, true),
            (0x8863, true),
            (38, true),
            (0x05dc, true),
            (0, false),
            (0x0600, false),
            (0x8847, false),
            (0xffff, false),
        ] {
            let mut frame = [0u8; 60];
            frame[12..14].copy_from_slice(&ether_type.to_be_bytes());
            assert_eq!(control(&frame), expected, "{ether_type:#x}");
        }
        // LCP in a PPPoE session, but no IP in it.
        let lcp = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0x64, 0x11, 0, 0, 7, 0, 6, 0xc0, 0x21, 9, 0];
        assert!(control(&lcp));
        for length in 0..14 {
            assert!(!control(&lcp[..length]), "{length}");
        }
        for (protocol, ports, expected) in [
            (6, (179, 40_000), true),
            (6, (40_000, 179), true),
            (17, (40_000, 179), false),
            (17, (68, 67), true),
            (17, (50_000, 3784), true),
            (17, (67, 50_000), false),
            (6, (50_000, 3784), false),
            (89, (0, 0), true),
            (1, (0, 0), false),
            (17, (5_000, 5_001), false),
        ] {
            assert_eq!(v4(protocol, ports.0, ports.1), expected, "{protocol} {ports:?}");
        }
        let six = Key::ipv6(Ipv6Addr::LOCALHOST, Ipv6Addr::UNSPECIFIED, 58);
        for kind in [0, 128, 132, 133, 135, 137, 138] {
            let frame = Framing::Ethernet.wrap(&build::v6(&six, 58, &[kind, 0, 0, 0]));
            assert_eq!(control(&frame), (133..=137).contains(&kind), "{kind}");
        }
        let later =
            build::v4(&Key { protocol: OSPF, ..Key::ipv4(1.into(), 2.into(), OSPF) }, 1, 3, &[], &[0; 9]);
        assert!(!control(&Framing::Ethernet.wrap(&later)), "a later fragment is anything");
    }
}
