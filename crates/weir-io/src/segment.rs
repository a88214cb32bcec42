//! Aggregates: packets of up to 64 KB that a host, or the kernel on receipt, has made of several,
//! with an offload header that says how they are to be taken apart.
//!
//! ```text
//! | Ethernet, tags | IP | TCP or UDP |   payload 0   |   payload 1   | ... | last, shorter |
//! 0                l3   l4           header_bytes    + payload_bytes
//! ```
//!
//! Each segment repeats the headers. These fields differ, as in the kernel's own segmentation:
//! - IPv4: total length, identification (one more each [RFC 6864 section 4]), header checksum;
//!   IPv6: payload length.
//! - TCP: sequence number; FIN and PSH stay on the last segment only, CWR on the first only
//!   [RFC 3168 section 6.1.2].
//! - UDP: length.
//! - The checksum of TCP or UDP stays partial: the sum over the pseudo header, in which the length
//!   changes [RFC 1624]. Whoever sends the segment completes it.
//!
//! What an aggregate must be to be taken apart: Ethernet, up to four VLAN tags, IPv4 or IPv6 with
//! hop-by-hop, routing or destination headers, then TCP or UDP with a partial checksum. Anything
//! else (a tunnel, a jumbogram) passes whole, and counts as one packet.

use crate::FrameRef;
use crate::pool::Pool;
use weir_core::packet::dissect::MAX_TAGS;

pub(crate) const NEEDS_CHECKSUM: u8 = 1;
const GSO_TCP_V4: u8 = 1;
const GSO_TCP_V6: u8 = 4;
const GSO_UDP: u8 = 5;
/// Set besides the type where the first segment carries CWR.
const GSO_ECN: u8 = 0x80;
/// Flags of TCP.
const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;

/// What a frame is made of that is to leave as several.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Aggregate {
    l3: usize,
    l4: usize,
    v4: bool,
    tcp: bool,
    header_bytes: u32,
    payload_bytes: u32,
    each_bytes: u32,
}

impl Aggregate {
    /// Reads the headers of `frame`; `None` if it is one packet, or cannot be taken apart here.
    pub fn of(pool: &Pool, frame: FrameRef) -> Option<Aggregate> {
        let offload = pool.offload(frame);
        let (flags, kind) = (offload[0], offload[1] & !GSO_ECN);
        let number = |at: usize| usize::from(u16::from_ne_bytes([offload[at], offload[at + 1]]));
        let (each_bytes, l4) = (number(4), number(6));
        let (v4, tcp) = match (kind, flags & NEEDS_CHECKSUM) {
            (GSO_TCP_V4, NEEDS_CHECKSUM) => (true, true),
            (GSO_TCP_V6, NEEDS_CHECKSUM) => (false, true),
            (GSO_UDP, NEEDS_CHECKSUM) => {
                (*pool.head(frame).get(l3_of(pool.head(frame))?.0)? >> 4 == 4, false)
            }
            _ => return None,
        };
        let head = pool.head(frame);
        let (l3, ether_type) = l3_of(head)?;
        let upper = if v4 { upper_of_v4(head, l3) } else { upper_of_v6(head, l3) };
        let expected = (if v4 { 0x0800 } else { 0x86dd }, (if tcp { TCP } else { UDP }, l4));
        if (ether_type, upper?) != expected {
            return None;
        }
        let l4_bytes = if tcp { usize::from(*head.get(l4 + 12)? >> 4) * 4 } else { 8 };
        let header_bytes = l4 + l4_bytes;
        if header_bytes > head.len() || (tcp && l4_bytes < 20) {
            return None;
        }
        let payload_bytes = pool.len_bytes(frame).checked_sub(header_bytes as u32)?;
        (each_bytes > 0 && payload_bytes > each_bytes as u32).then_some(Aggregate {
            l3,
            l4,
            v4,
            tcp,
            header_bytes: header_bytes as u32,
            payload_bytes,
            each_bytes: each_bytes as u32,
        })
    }

    /// How many segments it leaves as: at least 2.
    pub fn segments(&self) -> u32 {
        self.payload_bytes.div_ceil(self.each_bytes)
    }
    /// Bytes of its longest segment, layer-2 header included.
    pub fn longest_bytes(&self) -> u32 {
        self.header_bytes + self.each_bytes
    }
    /// Bytes of its longest segment without layer-2 header and tags: what an MTU is about.
    pub fn longest_packet_bytes(&self) -> u32 {
        self.longest_bytes() - self.l3 as u32
    }
    /// Bytes of all its segments, where each has `overhead` bytes besides its frame and the
    /// first one's do not count: what a frame of that length with one overhead costs.
    pub fn cost_bytes(&self, overhead: u32) -> u32 {
        let more = (self.segments() - 1).saturating_mul(self.header_bytes.saturating_add(overhead));
        (self.header_bytes + self.payload_bytes).saturating_add(more)
    }

    /// Bytes of payload of segment `index`.
    fn payload_of(&self, index: u32) -> u32 {
        (self.payload_bytes - index * self.each_bytes).min(self.each_bytes)
    }
}

/// Bytes that a packet of `len` bytes, which begins at `l3` of its frame, costs where the system still cuts
/// it up into fragments for an interface whose longest frame has `frame_bytes`: each repeats the layer-2
/// header and the IP header and has `overhead` bytes besides, the first one's not counted. [RFC 791 §3.2,
/// RFC 8200 §4.5; options and extension headers are taken to stand in each]
pub fn fragmented_bytes(head: &[u8], l3: usize, len: u32, frame_bytes: u32, overhead: u32) -> u32 {
    if len <= frame_bytes {
        return len;
    }
    let (header_bytes, fragment_header) = match head.get(l3).map(|byte| byte >> 4) {
        Some(4) => (u32::from(head[l3] & 15) * 4, 0),
        Some(6) => (40, 8),
        _ => return len,
    };
    let l2 = l3 as u32;
    let repeated = l2 + header_bytes + fragment_header;
    // The payload of each but the last is a multiple of 8.
    let each_bytes = frame_bytes.saturating_sub(repeated) & !7;
    if each_bytes == 0 {
        return len;
    }
    let count = len.saturating_sub(l2 + header_bytes).div_ceil(each_bytes);
    len + fragment_header + count.saturating_sub(1).saturating_mul(repeated + overhead)
}

/// Takes an aggregate apart: appends its segments to `out`, in order, of which the first one is
/// `frame` itself. Answers how many of the last segments were lost because the pool had no
/// buffers for them. The payload is copied once, that of the first segment not at all.
pub fn split(pool: &mut Pool, frame: FrameRef, aggregate: &Aggregate, out: &mut Vec<FrameRef>) -> u32 {
    let (count, header) = (aggregate.segments(), aggregate.header_bytes);
    out.push(frame);
    let mut made = 1;
    while made < count {
        let Some(segment) = pool.alloc() else { break };
        let payload = header + made * aggregate.each_bytes;
        if !pool.excerpt(frame, segment, header, payload, aggregate.payload_of(made)) {
            pool.free(segment);
            break;
        }
        finish(pool, segment, aggregate, made);
        out.push(segment);
        made += 1;
    }
    pool.truncate(frame, header + aggregate.each_bytes);
    finish(pool, frame, aggregate, 0);
    count - made
}

/// Writes what is a segment's own into its headers, which are still those of the aggregate.
fn finish(pool: &mut Pool, segment: FrameRef, aggregate: &Aggregate, index: u32) {
    let &Aggregate { l3, l4, v4, tcp, each_bytes, .. } = aggregate;
    let mut offload = pool.offload(segment);
    // No segmentation any more; the checksum's place stays.
    offload[0] = NEEDS_CHECKSUM;
    offload[1..6].fill(0);
    pool.set_offload(segment, offload);
    let payload_bytes = aggregate.payload_of(index);
    let last = index + 1 == aggregate.segments();
    let l4_bytes = aggregate.header_bytes - l4 as u32;
    let head = pool.head_mut(segment);
    let headers = (l4 - l3) as u32 + l4_bytes;
    if v4 {
        put_u16(head, l3 + 2, (headers + payload_bytes) as u16);
        put_u16(head, l3 + 4, get_u16(head, l3 + 4).wrapping_add(index as u16));
        put_u16(head, l3 + 10, 0);
        let sum = fold(head[l3..l4].chunks_exact(2).map(|pair| u32::from(get_u16(pair, 0))).sum());
        put_u16(head, l3 + 10, !sum);
    } else {
        put_u16(head, l3 + 4, (headers - 40 + payload_bytes) as u16);
    }
    let check = l4 + if tcp { 16 } else { 6 };
    // Replaced in a one's complement sum: what was is taken out by adding its complement.
    let (was, is) = (l4_bytes + aggregate.payload_bytes, l4_bytes + payload_bytes);
    let was = u32::from(fold(was));
    put_u16(head, check, fold(u32::from(get_u16(head, check)) + (0xffff - was) + is));
    if tcp {
        let sequence = u32::from_be_bytes([head[l4 + 4], head[l4 + 5], head[l4 + 6], head[l4 + 7]]);
        let sequence = sequence.wrapping_add(index.wrapping_mul(each_bytes));
        head[l4 + 4..l4 + 8].copy_from_slice(&sequence.to_be_bytes());
        let not_here = if last { 0 } else { FIN | PSH } | if index > 0 { CWR } else { 0 };
        head[l4 + 13] &= !not_here;
    } else {
        put_u16(head, l4 + 4, is as u16);
    }
}

/// Where the IP header begins behind the Ethernet header and its tags, and the type field in force.
pub(crate) fn l3_of(head: &[u8]) -> Option<(usize, u16)> {
    let mut at = 12;
    for _ in 0..=MAX_TAGS {
        let ether_type = head.get(at..at + 2).map(|pair| get_u16(pair, 0))?;
        if !matches!(ether_type, 0x8100 | 0x88a8 | 0x9100) {
            return Some((at + 2, ether_type));
        }
        at += 4;
    }
    None
}

/// The upper protocol of a whole IPv4 packet, and where its header begins.
pub(crate) fn upper_of_v4(head: &[u8], l3: usize) -> Option<(u8, usize)> {
    let header = head.get(l3..l3 + 20)?;
    let header_bytes = usize::from(header[0] & 15) * 4;
    let fragment = get_u16(header, 6) & 0x3fff != 0;
    (header[0] >> 4 == 4 && header_bytes >= 20 && !fragment).then_some((header[9], l3 + header_bytes))
}

/// The upper protocol of a whole IPv6 packet, and where its header begins.
pub(crate) fn upper_of_v6(head: &[u8], l3: usize) -> Option<(u8, usize)> {
    let header = head.get(l3..l3 + 40)?;
    // A payload length of 0 is a jumbogram.
    if header[0] >> 4 != 6 || get_u16(header, 4) == 0 {
        return None;
    }
    let (mut next, mut at) = (header[6], l3 + 40);
    while matches!(next, 0 | 43 | 60) {
        let &[then, units] = head.get(at..)?.first_chunk()?;
        (next, at) = (then, at + 8 + usize::from(units) * 8);
    }
    Some((next, at))
}

pub(crate) fn get_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}
pub(crate) fn put_u16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}
/// The one's complement sum of the halves of `sum`.
pub(crate) fn fold(sum: u32) -> u16 {
    let once = (sum & 0xffff) + (sum >> 16);
    ((once & 0xffff) + (once >> 16)) as u16
}

#[cfg(test)]
mod tests;
