//! Checksums of TCP and UDP that a sender has left to its device.
//!
//! Such a checksum is *partial*: in its field stands the sum over the pseudo header alone. Where
//! frames come with an offload header it says so. Where they come without (AF_XDP), the field
//! itself tells: [`mark_partial`].

use crate::FrameRef;
use crate::pool::{OFFLOAD_BYTES, Pool};
use crate::segment::{NEEDS_CHECKSUM, TCP, UDP, fold, get_u16, l3_of, put_u16, upper_of_v4, upper_of_v6};

/// The one's complement sum of `bytes`, not complemented.
fn sum(bytes: &[u8]) -> u16 {
    // Sums of halves may be taken in any order of bytes, as long as it is the same [RFC 1071].
    let (words, rest) = bytes.as_chunks::<4>();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    let whole: u64 = words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum();
    let whole = whole + u64::from(u32::from_ne_bytes(last));
    let whole = (whole & 0xffff_ffff) + (whole >> 32);
    let whole = (whole & 0xffff_ffff) + (whole >> 32);
    u16::from_be(fold(whole as u32))
}

/// Where the checksum of a frame stands if it is partial: the offset of the TCP or UDP header, and of
/// the field in it. A field that holds the sum of the pseudo header by chance stays what it is
/// when it is completed, because the sum of the rest is then zero.
fn partial(head: &[u8]) -> Option<(usize, usize)> {
    let (l3, ether_type) = l3_of(head)?;
    let ((protocol, l4), addresses, end) = match ether_type {
        0x0800 => (upper_of_v4(head, l3)?, l3 + 12..l3 + 20, l3 + usize::from(get_u16(head, l3 + 2))),
        0x86dd => (upper_of_v6(head, l3)?, l3 + 8..l3 + 40, l3 + 40 + usize::from(get_u16(head, l3 + 4))),
        _ => return None,
    };
    let field = match protocol {
        TCP => 16,
        UDP => 6,
        _ => return None,
    };
    let found = head.get(l4 + field..l4 + field + 2)?;
    let len = end.checked_sub(l4)? as u32;
    let pseudo = fold(u32::from(sum(&head[addresses])) + u32::from(protocol) + fold(len) as u32);
    (found == pseudo.to_be_bytes()).then_some((l4, field))
}

/// Writes into the offload header of a frame that came without one whether its checksum is partial.
pub(crate) fn mark_partial(pool: &mut Pool, frame: FrameRef) {
    let Some((start, offset)) = partial(pool.head(frame)) else { return };
    let mut header = [0; OFFLOAD_BYTES];
    header[0] = NEEDS_CHECKSUM;
    header[6..8].copy_from_slice(&(start as u16).to_ne_bytes());
    header[8..10].copy_from_slice(&(offset as u16).to_ne_bytes());
    pool.set_offload(frame, header);
}

/// Completes the checksum of a frame whose offload header says that it is partial; false if the
/// header makes no sense, or asks for segmentation too.
pub(crate) fn complete(pool: &mut Pool, frame: FrameRef) -> bool {
    let header = pool.offload(frame);
    if header[1] != 0 {
        return false;
    }
    if header[0] & NEEDS_CHECKSUM == 0 {
        return true;
    }
    let number = |at: usize| usize::from(u16::from_ne_bytes([header[at], header[at + 1]]));
    let (start, field) = (number(6), number(6) + number(8));
    let (head, tail) = (pool.head(frame), pool.tail(frame));
    let Some(bytes) = head.get(start..).filter(|_| field + 2 <= head.len()) else { return false };
    // What the link padded a short frame with is zero in frames whose checksum is left to a device.
    let (first, second) = (sum(bytes), sum(tail));
    let second = if bytes.len() % 2 == 1 { second.swap_bytes() } else { second };
    let all = !fold(u32::from(first) + u32::from(second));
    // In UDP 0 says that there is no checksum; both forms of zero are the same to TCP [RFC 768].
    put_u16(pool.head_mut(frame), field, if all == 0 { 0xffff } else { all });
    pool.set_offload(frame, [0; OFFLOAD_BYTES]);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PoolSize;

    /// A packet of so many bytes of payload, its checksum partial or complete.
    fn packet(v4: bool, tcp: bool, tags: usize, payload: usize, whole: bool) -> Vec<u8> {
        let l4_bytes = if tcp { 20 } else { 8 };
        let mut frame = vec![2; 12];
        frame.extend([0x81, 0, 0, 7].repeat(tags));
        let len = (l4_bytes + payload) as u16;
        if v4 {
            frame.extend([8, 0, 0x45, 0]);
            frame.extend((20 + len).to_be_bytes());
            frame.extend([0, 1, 0, 0, 64, if tcp { TCP } else { UDP }, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        } else {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend(len.to_be_bytes());
            frame.extend([if tcp { TCP } else { UDP }, 64]);
            frame.extend([[0xfd; 16], [0xfe; 16]].concat());
        }
        let l4 = frame.len();
        let addresses = frame[if v4 { l4 - 8 } else { l4 - 32 }..].to_vec();
        frame.extend((0..l4_bytes + payload).map(|n| (n * 5 + 1) as u8));
        let field = l4 + if tcp { 16 } else { 6 };
        let mut all = addresses;
        all.extend([0, if tcp { TCP } else { UDP }]);
        all.extend(len.to_be_bytes());
        // By the definition, a pair of bytes at a time.
        let plain = |bytes: &[u8]| {
            let pairs =
                bytes.chunks(2).map(|p| u32::from(u16::from_be_bytes([p[0], *p.get(1).unwrap_or(&0)])));
            pairs.fold(0, |a, b| (a + b) % 0xffff)
        };
        let pseudo = match plain(&all) {
            0 => 0xffff,
            sum => sum as u16,
        };
        frame[field..field + 2].copy_from_slice(&pseudo.to_be_bytes());
        if whole {
            let sum = !(plain(&frame[l4..]) as u16);
            frame[field..field + 2].copy_from_slice(&(if sum == 0 { 0xffff } else { sum }).to_be_bytes());
        }
        frame
    }

    #[test]
    fn a_partial_checksum_is_seen_and_completed_and_any_other_stays() {
        let mut pool = Pool::new(PoolSize { frames: 1, tails: 1 });
        let frame = pool.alloc().unwrap();
        let mut seen = 0;
        for payload in (0..200).chain([1447, 1448, 1999, 2000, 2001, 3001]) {
            for form in 0..12 {
                let (v4, tcp, tags) = (form & 1 == 0, form & 2 == 0, form >> 2);
                let whole = packet(v4, tcp, tags, payload, true);
                for given in [packet(v4, tcp, tags, payload, false), whole.clone()] {
                    assert!(pool.fill(frame, &given));
                    mark_partial(&mut pool, frame);
                    let marked = pool.offload(frame)[0] == NEEDS_CHECKSUM;
                    assert!(marked || given == whole);
                    seen += usize::from(marked);
                    assert!(complete(&mut pool, frame));
                    let mut back = Vec::new();
                    pool.copy_to(frame, &mut back);
                    assert!(back == whole, "{v4} {tcp} {tags} {payload}");
                    assert_eq!(pool.offload(frame), [0; OFFLOAD_BYTES]);
                }
            }
        }
        assert!((206 * 12..206 * 12 + 40).contains(&seen), "{seen}");
    }

    #[test]
    fn what_is_no_whole_tcp_or_udp_is_left_alone() {
        let good = packet(true, true, 0, 100, false);
        assert_eq!(partial(&good), Some((34, 16)));
        let mut fragment = good.clone();
        fragment[20] = 0x20;
        let mut icmp = good.clone();
        icmp[23] = 1;
        for other in [fragment, icmp, vec![0; 60], Vec::new()] {
            assert_eq!(partial(&other), None);
        }
        for len in 0..good.len() {
            let _ = partial(&good[..len]);
        }
        let mut pool = Pool::new(PoolSize { frames: 1, tails: 0 });
        let frame = pool.alloc().unwrap();
        for (header, done) in [
            ([1, 0, 0, 0, 0, 0, 200, 0, 16, 0], false),
            ([1, 0, 0, 0, 0, 0, 34, 0, 0xff, 0xff], false),
            ([1, 1, 54, 0, 0xb4, 5, 34, 0, 16, 0], false),
            ([0; 10], true),
        ] {
            assert!(pool.fill(frame, &good));
            pool.set_offload(frame, header);
            assert_eq!((complete(&mut pool, frame), pool.head(frame)), (done, &good[..]));
        }
    }
}
