//! Which packets keep a link alive: address resolution, routing, and the link's own protocols.
//!
//! ```text
//! link     ARP, LLDP, LACP, EAPOL, PPPoE discovery, and PPP's own packets (LCP) by their type field;
//!          802.3 length instead of a type: STP and IS-IS by their LLC address, and others (CDP)
//! IP       OSPF (89); ICMPv6 133 to 137: router and neighbour discovery       [RFC 4861 §4]
//! ports    DHCP 67, 68, 546, 547 (UDP); BFD 3784, 3785, 4784 (UDP); BGP 179 (TCP)
//! ```

use super::dissect::Dissected;
use super::key::{Family, Key, protocol};

const OSPF: u8 = 89;
/// What an 802.3 frame's length field is below. [IEEE 802.3 §3.2.6]
const TYPES_FROM: u16 = 0x0600;

/// A protocol that keeps a link or its routes alive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ControlKind {
    /// Address resolution.
    Arp,
    /// IPv6 router and neighbour discovery, redirects included.
    Nd,
    /// DHCP and DHCPv6.
    Dhcp,
    /// Spanning tree, in all its versions.
    Stp,
    /// IS-IS.
    Isis,
    /// Every other frame with an 802.3 length, as of CDP.
    Llc,
    /// Discovery of the link's other end.
    Lldp,
    /// The slow protocols: link aggregation and Ethernet OAM.
    Lacp,
    /// Port-based access control (802.1X).
    Eapol,
    /// PPPoE discovery.
    Pppoe,
    /// What a PPPoE session carries besides IP: LCP and the network control protocols.
    Ppp,
    /// OSPF.
    Ospf,
    /// Bidirectional forwarding detection.
    Bfd,
    /// BGP.
    Bgp,
}

impl ControlKind {
    /// Every kind.
    pub const ALL: [ControlKind; 14] = {
        use ControlKind::*;
        [Arp, Nd, Dhcp, Stp, Isis, Llc, Lldp, Lacp, Eapol, Pppoe, Ppp, Ospf, Bfd, Bgp]
    };

    /// Its name in configurations.
    pub const fn name(self) -> &'static str {
        match self {
            ControlKind::Arp => "arp",
            ControlKind::Nd => "nd",
            ControlKind::Dhcp => "dhcp",
            ControlKind::Stp => "stp",
            ControlKind::Isis => "isis",
            ControlKind::Llc => "llc",
            ControlKind::Lldp => "lldp",
            ControlKind::Lacp => "lacp",
            ControlKind::Eapol => "eapol",
            ControlKind::Pppoe => "pppoe",
            ControlKind::Ppp => "ppp",
            ControlKind::Ospf => "ospf",
            ControlKind::Bfd => "bfd",
            ControlKind::Bgp => "bgp",
        }
    }

    /// The kind with this name.
    pub fn from_name(name: &str) -> Option<ControlKind> {
        ControlKind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The kind of a frame, of which `read` is the outer packet.
    pub fn of(frame: &[u8], read: &Dissected) -> Option<ControlKind> {
        if read.key.family == Family::Other {
            return ControlKind::of_link(read.ether_type, *frame.get(read.l3_offset)?);
        }
        match ControlKind::of_headers(&read.key) {
            Some(ControlKind::Nd) => {
                let kind = frame.get(read.l4_offset?)?;
                (133..=137).contains(kind).then_some(ControlKind::Nd)
            }
            kind => kind,
        }
    }

    /// The kind of an IP packet by its headers alone. All of ICMPv6 is `Nd` here: its type decides,
    /// which no key has.
    pub fn of_headers(key: &Key) -> Option<ControlKind> {
        if key.family == Family::Other || key.later_fragment {
            return None;
        }
        match key.protocol {
            protocol::TCP => (key.src_port == 179 || key.dst_port == 179).then_some(ControlKind::Bgp),
            protocol::UDP => match key.dst_port {
                67 | 68 | 546 | 547 => Some(ControlKind::Dhcp),
                3784 | 3785 | 4784 => Some(ControlKind::Bfd),
                _ => None,
            },
            protocol::ICMPV6 if key.family == Family::V6 => Some(ControlKind::Nd),
            other => (other == OSPF).then_some(ControlKind::Ospf),
        }
    }

    /// The kind of what is no IP, by its type or length field and its first byte behind that.
    fn of_link(ether_type: u16, first: u8) -> Option<ControlKind> {
        match ether_type {
            // The destination address of LLC. [IEEE 802.1D §7.12.3, ISO 10589 §9.1]
            1..TYPES_FROM => Some(match first {
                0x42 => ControlKind::Stp,
                0xfe => ControlKind::Isis,
                _ => ControlKind::Llc,
            }),
            0x0806 => Some(ControlKind::Arp),
            0x88cc => Some(ControlKind::Lldp),
            0x8809 => Some(ControlKind::Lacp),
            0x888e => Some(ControlKind::Eapol),
            0x8863 => Some(ControlKind::Pppoe),
            // A session's packet that is not IP is PPP's own.
            0x8864 => Some(ControlKind::Ppp),
            _ => None,
        }
    }

    const fn bit(self) -> u16 {
        1 << self as u16
    }
}

/// Kinds of control packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ControlSet(u16);

impl ControlSet {
    /// No kind.
    pub const NONE: ControlSet = ControlSet(0);
    /// Every kind.
    pub const ALL: ControlSet = ControlSet((1 << ControlKind::ALL.len()) - 1);

    /// The set with `kind`.
    pub const fn with(self, kind: ControlKind) -> ControlSet {
        ControlSet(self.0 | kind.bit())
    }
    /// The kinds that are not in the set.
    pub const fn others(self) -> ControlSet {
        ControlSet(ControlSet::ALL.0 & !self.0)
    }
    /// True if no kind is in it.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
    /// True if `kind` is in it.
    pub const fn contains(self, kind: ControlKind) -> bool {
        self.0 & kind.bit() != 0
    }
    /// True if a frame, of which `read` is the outer packet, is of a kind in it.
    #[inline]
    pub fn holds(self, frame: &[u8], read: &Dissected) -> bool {
        !self.is_empty() && ControlKind::of(frame, read).is_some_and(|kind| self.contains(kind))
    }
    /// Its kinds, in the order of [`ControlKind::ALL`].
    pub fn kinds(self) -> impl Iterator<Item = ControlKind> {
        ControlKind::ALL.into_iter().filter(move |&kind| self.contains(kind))
    }
}

#[cfg(test)]
mod tests {
    use super::super::dissect::dissect;
    use super::super::dissect::tests::build::{self, Framing};
    use super::super::key::Key;
    use super::*;
    use core::net::{Ipv4Addr, Ipv6Addr};

    fn kind(frame: &[u8]) -> Option<&'static str> {
        let read = dissect(frame);
        let kind = ControlKind::of(frame, &read);
        // A set holds what is in it, and nothing else.
        for other in ControlKind::ALL {
            let one = ControlSet::NONE.with(other);
            assert_eq!(one.holds(frame, &read), kind == Some(other));
            assert_eq!(one.others().holds(frame, &read), kind.is_some_and(|kind| kind != other));
        }
        assert_eq!(ControlSet::ALL.holds(frame, &read), kind.is_some());
        kind.map(ControlKind::name)
    }
    fn v4(protocol: u8, src_port: u16, dst_port: u16) -> Option<&'static str> {
        let key = Key::ipv4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2), protocol);
        kind(&Framing::Dot1q.wrap(&build::packet(&key.with_ports(src_port, dst_port))))
    }

    #[test]
    fn protocols_of_links_and_routes() {
        for (ether_type, first, expected) in [
            (0x0806u16, 0, Some("arp")),
            (0x88cc, 0, Some("lldp")),
            (0x8809, 1, Some("lacp")),
            (0x888e, 0, Some("eapol")),
            (0x8863, 0x11, Some("pppoe")),
            (38, 0x42, Some("stp")),
            (1, 0xfe, Some("isis")),
            (0x05dc, 0xfe, Some("isis")),
            (0x05ff, 0xaa, Some("llc")),
            (0, 0x42, None),
            (0x0600, 0x42, None),
            (0x8847, 0, None),
            (0xffff, 0, None),
        ] {
            let mut frame = [0u8; 60];
            frame[12..14].copy_from_slice(&ether_type.to_be_bytes());
            frame[14] = first;
            assert_eq!(kind(&frame), expected, "{ether_type:#x}");
            assert_eq!(kind(&frame[..14]), None, "{ether_type:#x}: nothing behind the type");
        }
        // LCP in a PPPoE session, but no IP in it.
        let lcp = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0x64, 0x11, 0, 0, 7, 0, 6, 0xc0, 0x21, 9, 0];
        assert_eq!(kind(&lcp), Some("ppp"));
        for length in 0..14 {
            assert_eq!(kind(&lcp[..length]), None, "{length}");
        }
        for (protocol, ports, expected) in [
            (6, (179, 40_000), Some("bgp")),
            (6, (40_000, 179), Some("bgp")),
            (17, (40_000, 179), None),
            (17, (68, 67), Some("dhcp")),
            (17, (50_000, 547), Some("dhcp")),
            (17, (50_000, 3784), Some("bfd")),
            (17, (50_000, 4784), Some("bfd")),
            (17, (67, 50_000), None),
            (6, (50_000, 3784), None),
            (89, (0, 0), Some("ospf")),
            (1, (0, 0), None),
            (58, (0, 0), None),
            (17, (5_000, 5_001), None),
        ] {
            assert_eq!(v4(protocol, ports.0, ports.1), expected, "{protocol} {ports:?}");
        }
        let six = Key::ipv6(Ipv6Addr::LOCALHOST, Ipv6Addr::UNSPECIFIED, 58);
        for number in [0, 128, 132, 133, 135, 137, 138] {
            let frame = Framing::Ethernet.wrap(&build::v6(&six, 58, &[number, 0, 0, 0]));
            assert_eq!(kind(&frame), (133..=137).contains(&number).then_some("nd"), "{number}");
        }
        let later =
            build::v4(&Key { protocol: OSPF, ..Key::ipv4(1.into(), 2.into(), OSPF) }, 1, 3, &[], &[0; 9]);
        assert_eq!(kind(&Framing::Ethernet.wrap(&later)), None, "a later fragment is anything");
    }

    #[test]
    fn sets_and_names() {
        for (at, kind) in ControlKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, at, "{kind:?} stands in its place");
            assert_eq!(ControlKind::from_name(kind.name()), Some(kind));
            assert!(ControlSet::NONE.with(kind).kinds().eq([kind]));
        }
        assert_eq!((ControlKind::from_name("ARP"), ControlKind::from_name("")), (None, None));
        assert!(ControlSet::ALL.kinds().eq(ControlKind::ALL) && ControlSet::ALL.others().is_empty());
        assert_eq!(ControlSet::NONE.others(), ControlSet::ALL);
    }
}
