//! From bytes to a [`Key`]: Ethernet, VLAN tags, PPPoE, MPLS, IPv4, IPv6 and the ports behind them.
//!
//! ```text
//! Ethernet  dst 6 | src 6 | type 2                          type 0x0800 IPv4, 0x86dd IPv6
//! tags      0x8100 (802.1Q), 0x88a8 (802.1ad), 0x9100: tag 2 | type 2, up to MAX_TAGS deep
//! PPPoE     0x8864: version and type 1 | code 1 | session 2 | length 2 | protocol 2   [RFC 2516 §4]
//! MPLS      0x8847, 0x8848: labels of 4 up to the bottom of the stack, up to MAX_LABELS  [RFC 3032]
//! IPv4      20 bytes and options; the length field bounds what is read, so padding is not ports
//! IPv6      40 bytes; hop-by-hop, routing, destination options, fragment, AH, up to MAX_EXTENSIONS
//! AH        skipped in both families, its SPI kept: `protocol` is what it protects
//! ```
//!
//! Whatever is truncated or damaged yields what could be read soundly: the family once the whole
//! fixed header is there, ports once all four bytes of them are. Nothing here can panic, and no
//! byte beyond the transport header's first four is looked at.
//!
//! **Fragments.** The first fragment of a packet has ports (and SPI), the others have none: their
//! key says `later_fragment`, and a filter on ports does not match them. [`FragmentCache`]
//! gives them those of their first fragment, if it came before them.

use super::key::{Family, Key, protocol};

/// VLAN tags that are looked behind; a frame with more is [`Family::Other`].
pub const MAX_TAGS: usize = 4;
/// MPLS labels that are looked behind; a frame with more is [`Family::Other`].
pub const MAX_LABELS: usize = 8;
/// Extension headers that are looked behind; a packet with more has the next one's number as protocol.
pub const MAX_EXTENSIONS: usize = 8;

const TYPE_IPV4: u16 = 0x0800;
const TYPE_IPV6: u16 = 0x86dd;

/// Where a fragment belongs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Fragment {
    /// Identification: 16 bits in IPv4, 32 in IPv6.
    pub id: u32,
    /// The protocol as the IPv4 header states it; 0 in IPv6, where it does not name the packet.
    pub protocol: u8,
    /// Offset 0.
    pub first: bool,
    /// No more fragments follow.
    pub last: bool,
}

/// What [`dissect`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Dissected {
    /// The header fields.
    pub key: Key,
    /// Where the IP header begins, for [`super::dscp::set_tos`]; where the payload of the last
    /// type field begins if the family is [`Family::Other`]; at most the frame's length.
    pub l3_offset: usize,
    /// Where the upper-layer header begins, if it does so inside the frame and in this fragment.
    pub l4_offset: Option<usize>,
    /// The type field in force: after the last VLAN tag. 0 where there was none.
    pub ether_type: u16,
    /// The outermost VLAN tag whole: priority 3 bits, drop eligible 1, identifier 12.
    pub vlan_tag: Option<u16>,
    /// Present if the packet is one of several fragments.
    pub fragment: Option<Fragment>,
}

/// Reads an Ethernet frame.
#[inline]
pub fn dissect(frame: &[u8]) -> Dissected {
    plain(frame).unwrap_or_else(|| dissect_any(frame))
}

/// What most frames are, in a third of the instructions: no tag, no options or extension headers, no
/// fragment, TCP or UDP with both ports. `None` for any other.
#[inline]
fn plain(frame: &[u8]) -> Option<Dissected> {
    let head: &[u8; 38] = frame.first_chunk()?;
    let is_plain = |protocol| matches!(protocol, protocol::TCP | protocol::UDP);
    let u16_at = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let u32_at = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    match (u16_at(12), head[14]) {
        (TYPE_IPV4, 0x45)
            if is_plain(head[23]) && u16_at(20) & 0x3fff == 0 && !(1..24).contains(&u16_at(16)) =>
        {
            let key = Key {
                src: u128::from(u32_at(26)),
                dst: u128::from(u32_at(30)),
                src_port: u16_at(34),
                dst_port: u16_at(36),
                family: Family::V4,
                protocol: head[23],
                tos: head[15],
                ..Key::default()
            };
            let (l4_offset, ether_type) = (Some(34), TYPE_IPV4);
            Some(Dissected { key, l3_offset: 14, l4_offset, ether_type, ..Dissected::default() })
        }
        (TYPE_IPV6, 0x60..=0x6f) if is_plain(head[20]) && !(1..4).contains(&u16_at(18)) => {
            let head: &[u8; 58] = frame.first_chunk()?;
            let address = |at: usize| head[at..].first_chunk().map(|&bytes| u128::from_be_bytes(bytes));
            let key = Key {
                src: address(22)?,
                dst: address(38)?,
                flow_label: u32_at(14) & 0x000f_ffff,
                src_port: u16::from_be_bytes([head[54], head[55]]),
                dst_port: u16::from_be_bytes([head[56], head[57]]),
                family: Family::V6,
                protocol: head[20],
                tos: (u16_at(14) >> 4) as u8,
                ..Key::default()
            };
            let (l4_offset, ether_type) = (Some(54), TYPE_IPV6);
            Some(Dissected { key, l3_offset: 14, l4_offset, ether_type, ..Dissected::default() })
        }
        _ => None,
    }
}

/// The plain form.
fn dissect_any(frame: &[u8]) -> Dissected {
    let mut out = Dissected::default();
    let mut at = 12;
    for _ in 0..=MAX_TAGS {
        let Some(ether_type) = read_u16(frame, at) else {
            out.l3_offset = frame.len();
            return out;
        };
        at += 2;
        out.ether_type = ether_type;
        match ether_type {
            0x8100 | 0x88a8 | 0x9100 => {
                out.vlan_tag = out.vlan_tag.or_else(|| read_u16(frame, at));
                at += 2;
            }
            TYPE_IPV4 => return read_v4(frame, at, out),
            TYPE_IPV6 => return read_v6(frame, at, out),
            0x8864 => return read_pppoe(frame, at, out),
            0x8847 | 0x8848 => return read_mpls(frame, at, out),
            _ => break,
        }
    }
    out.l3_offset = at.min(frame.len());
    out
}

/// A PPPoE session's packet: only data (code 0) in the one version that there is.
fn read_pppoe(frame: &[u8], at: usize, mut out: Dissected) -> Dissected {
    if let Some(&[0x11, 0, _, _, _, _, p0, p1]) = frame.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        match u16::from_be_bytes([p0, p1]) {
            0x0021 => return read_v4(frame, at + 8, out),
            0x0057 => return read_v6(frame, at + 8, out),
            _ => {}
        }
    }
    out.l3_offset = at.min(frame.len());
    out
}

/// What lies below a stack of labels is not said: an IP packet shows by its version, and what
/// begins with another number (a pseudowire's control word has 0 there) is not IP. [RFC 4928 §3]
fn read_mpls(frame: &[u8], at: usize, mut out: Dissected) -> Dissected {
    for label in 1..=MAX_LABELS {
        let below = at + 4 * label;
        match frame.get(below - 2) {
            Some(third) if third & 1 == 0 => {}
            Some(_) => match frame.get(below).map(|first| first >> 4) {
                Some(4) => return read_v4(frame, below, out),
                Some(6) => return read_v6(frame, below, out),
                _ => break,
            },
            None => break,
        }
    }
    out.l3_offset = at.min(frame.len());
    out
}

/// Reads a packet that begins with its IP header, as in a raw-IP capture or from a tun device.
pub fn dissect_ip(packet: &[u8]) -> Dissected {
    let out = Dissected::default();
    match packet.first().map(|first| first >> 4) {
        Some(4) => read_v4(packet, 0, Dissected { ether_type: TYPE_IPV4, ..out }),
        Some(6) => read_v6(packet, 0, Dissected { ether_type: TYPE_IPV6, ..out }),
        _ => out,
    }
}

fn read_v4(frame: &[u8], at: usize, mut out: Dissected) -> Dissected {
    out.l3_offset = at.min(frame.len());
    let Some(header) = frame.get(at..).and_then(|rest| rest.first_chunk::<20>()) else { return out };
    let header_len = usize::from(header[0] & 0x0f) * 4;
    if header[0] >> 4 != 4 || header_len < 20 {
        return out;
    }
    let key = &mut out.key;
    key.family = Family::V4;
    key.tos = header[1];
    key.protocol = header[9];
    key.src = u128::from(u32::from_be_bytes([header[12], header[13], header[14], header[15]]));
    key.dst = u128::from(u32::from_be_bytes([header[16], header[17], header[18], header[19]]));

    let fragment_field = u16::from_be_bytes([header[6], header[7]]);
    let (more, first) = (fragment_field & 0x2000 != 0, fragment_field & 0x1fff == 0);
    if more || !first {
        let id = u32::from(u16::from_be_bytes([header[4], header[5]]));
        out.fragment = Some(Fragment { id, protocol: key.protocol, first, last: !more });
    }
    if !first {
        key.later_fragment = true;
        return out;
    }
    // Length 0 is how a segment too large for the field shows in a capture before it is cut up.
    let total_len = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let end = if total_len == 0 { frame.len() } else { frame.len().min(at + total_len) };
    let packet = &frame[..end];
    let mut next = Upper { protocol: key.protocol, at: at + header_len };
    for _ in 0..MAX_EXTENSIONS {
        if next.protocol != protocol::AH || !next.skip_authentication(packet, key) {
            break;
        }
    }
    next.finish(packet, &mut out);
    out
}

fn read_v6(frame: &[u8], at: usize, mut out: Dissected) -> Dissected {
    out.l3_offset = at.min(frame.len());
    let Some(header) = frame.get(at..).and_then(|rest| rest.first_chunk::<40>()) else { return out };
    if header[0] >> 4 != 6 {
        return out;
    }
    let key = &mut out.key;
    key.family = Family::V6;
    key.tos = (header[0] << 4) | (header[1] >> 4);
    key.flow_label = u32::from_be_bytes([0, header[1] & 0x0f, header[2], header[3]]);
    key.src = read_address(header, 8);
    key.dst = read_address(header, 24);

    // Length 0 is a jumbogram, or a segment not yet cut up.
    let payload_len = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let end = if payload_len == 0 { frame.len() } else { frame.len().min(at + 40 + payload_len) };
    let packet = &frame[..end];
    let mut next = Upper { protocol: header[6], at: at + 40 };
    for _ in 0..MAX_EXTENSIONS {
        let went_on = match next.protocol {
            0 | 43 | 60 => next.skip_options(packet),
            44 => next.skip_fragment(packet, &mut out),
            protocol::AH => next.skip_authentication(packet, &mut out.key),
            _ => false,
        };
        if !went_on || out.key.later_fragment {
            break;
        }
    }
    next.finish(packet, &mut out);
    out
}

/// The walk over the headers between the IP header and the upper-layer header.
struct Upper {
    protocol: u8,
    at: usize,
}

impl Upper {
    /// Hop-by-hop, routing, destination options: next header, length in 8 bytes beyond the first 8.
    fn skip_options(&mut self, packet: &[u8]) -> bool {
        let Some(&[next, units]) = packet.get(self.at..).and_then(|rest| rest.first_chunk()) else {
            return false;
        };
        self.protocol = next;
        self.at += 8 + usize::from(units) * 8;
        true
    }

    /// Next header, reserved, offset 13 bits and flags 3, identification 32. [RFC 8200 §4.5]
    fn skip_fragment(&mut self, packet: &[u8], out: &mut Dissected) -> bool {
        let Some(header) = packet.get(self.at..).and_then(|rest| rest.first_chunk::<8>()) else {
            return false;
        };
        let field = u16::from_be_bytes([header[2], header[3]]);
        let (first, more) = (field & 0xfff8 == 0, field & 1 != 0);
        // Offset 0 and no more to come is a whole packet in a fragment's coat. [RFC 6946]
        if more || !first {
            let id = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
            out.fragment = Some(Fragment { id, protocol: 0, first, last: !more });
            out.key.later_fragment = !first;
        }
        self.protocol = header[0];
        self.at += 8;
        true
    }

    /// Next header, length in 4 bytes beyond the first 8, reserved 16 bits, SPI 32. [RFC 4302 §2]
    fn skip_authentication(&mut self, packet: &[u8], key: &mut Key) -> bool {
        let Some(header) = packet.get(self.at..).and_then(|rest| rest.first_chunk::<8>()) else {
            return false;
        };
        if key.spi == 0 {
            key.spi = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
        }
        self.protocol = header[0];
        self.at += 8 + usize::from(header[1]) * 4;
        true
    }

    fn finish(self, packet: &[u8], out: &mut Dissected) {
        let key = &mut out.key;
        key.protocol = self.protocol;
        if key.later_fragment || self.at > packet.len() {
            return;
        }
        out.l4_offset = Some(self.at);
        let Some(&first_four) = packet[self.at..].first_chunk::<4>() else { return };
        match self.protocol {
            protocol::TCP | protocol::UDP => {
                key.src_port = u16::from_be_bytes([first_four[0], first_four[1]]);
                key.dst_port = u16::from_be_bytes([first_four[2], first_four[3]]);
            }
            protocol::ESP if key.spi == 0 => key.spi = u32::from_be_bytes(first_four),
            _ => {}
        }
    }
}

fn read_u16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|&pair| u16::from_be_bytes(pair))
}

fn read_address(header: &[u8; 40], at: usize) -> u128 {
    header[at..at + 16].iter().fold(0, |address, &byte| (address << 8) | u128::from(byte))
}

/// The ports of the packets whose first fragments passed lately, for their later fragments.
///
/// Sixteen packets, the one that was used longest ago replaced first. The last fragment frees its
/// entry, so later fragments that come before their first one, or after their last, stay without
/// ports; and a sender who interleaves more than sixteen packets in fragments loses some.
/// In IPv6 the identification, source and destination name a packet (its fragments may differ in
/// the protocol they state [RFC 8200 §4.5]); in IPv4 the protocol belongs to it.
#[derive(Clone, Debug, Default)]
pub struct FragmentCache {
    entries: [Option<Entry>; FragmentCache::CAPACITY],
    uses: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    name: (Family, u32, u128, u128, u8),
    last_use: u64,
    first: Key,
}

impl FragmentCache {
    /// Packets in fragments that are remembered at once.
    pub const CAPACITY: usize = 16;

    /// Nothing remembered.
    pub fn new() -> Self {
        Self::default()
    }

    /// Learns from a first fragment; gives a later one the upper-layer protocol, ports and SPI of
    /// its first, and answers whether it did. Packets that are not fragments pass untouched.
    /// `later_fragment` stays set.
    pub fn fill(&mut self, packet: &mut Dissected) -> bool {
        let Some(fragment) = packet.fragment else { return false };
        self.uses = self.uses.wrapping_add(1);
        let key = packet.key;
        let name = (key.family, fragment.id, key.src, key.dst, fragment.protocol);
        let found = self.entries.iter().position(|e| e.is_some_and(|e| e.name == name));
        if fragment.first {
            let place = found.unwrap_or_else(|| self.oldest());
            self.entries[place] = Some(Entry { name, last_use: self.uses, first: key });
            return false;
        }
        let Some((place, entry)) = found.and_then(|place| Some((place, self.entries[place]?))) else {
            return false;
        };
        let first = entry.first;
        packet.key = Key {
            protocol: first.protocol,
            src_port: first.src_port,
            dst_port: first.dst_port,
            spi: first.spi,
            ..key
        };
        self.entries[place] = (!fragment.last).then_some(Entry { last_use: self.uses, ..entry });
        true
    }

    /// An empty place, or the one used longest ago.
    fn oldest(&self) -> usize {
        let age = |e: &Option<Entry>| e.map_or(0, |e| e.last_use);
        (0..Self::CAPACITY).min_by_key(|&i| age(&self.entries[i])).unwrap_or_default()
    }
}

#[cfg(test)]
pub(crate) mod tests;
