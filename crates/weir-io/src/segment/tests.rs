//! Random aggregates against a naive reference, and against the kernel's own segmentation.
use super::*;
use crate::PoolSize;
use crate::pool::OFFLOAD_BYTES;
use weir_core::Random;

const SIZE: PoolSize = PoolSize { frames: 1024, tails: 80 };

/// An aggregate as bytes, with the offload header that a kernel gives it.
struct Made {
    bytes: Vec<u8>,
    offload: [u8; OFFLOAD_BYTES],
    l3: usize,
    l4: usize,
    header: usize,
    each: usize,
    v4: bool,
    tcp: bool,
}

/// The one's complement sum of 16-bit words, an odd byte padded with zero. [RFC 1071]
fn naive_sum(parts: &[&[u8]]) -> u16 {
    let all = parts.concat();
    let mut sum: u64 = 0;
    for pair in all.chunks(2) {
        sum += u64::from(pair[0]) * 256 + u64::from(pair.get(1).copied().unwrap_or(0));
    }
    while sum > 0xffff {
        sum = sum % 0x10000 + sum / 0x10000;
    }
    sum as u16
}

/// The sum over the pseudo header of the packet in `frame`, whose upper part has `len` bytes.
fn pseudo_sum(frame: &[u8], l3: usize, v4: bool, tcp: bool, len: usize) -> u16 {
    let addresses = if v4 { &frame[l3 + 12..l3 + 20] } else { &frame[l3 + 8..l3 + 40] };
    naive_sum(&[addresses, &(len as u32).to_be_bytes(), &[0, if tcp { 6 } else { 17 }]])
}

fn upto(random: &mut Random, most: usize) -> usize {
    random.below(most as u64 + 1) as usize
}

/// An aggregate with `tags` VLAN tags, options of `ip_options` and `tcp_options` bytes, and
/// `payload` bytes, `each` a segment. `flags` are TCP's.
#[derive(Clone, Copy, Debug)]
struct Wish {
    v4: bool,
    tcp: bool,
    tags: usize,
    ip_options: usize,
    tcp_options: usize,
    each: usize,
    payload: usize,
    flags: u8,
}

impl Wish {
    fn any(random: &mut Random) -> Wish {
        let (v4, tcp) = (random.below(2) == 0, random.below(2) == 0);
        let each = [1 + upto(random, 3), 1 + upto(random, 1500), 536, 1448, 1 + upto(random, 9000)];
        let each = each[upto(random, 4)];
        let ip_options = if v4 { upto(random, 10) * 4 } else { upto(random, 3) * 8 };
        let tcp_options = upto(random, 10) * 4;
        // A pool of a thousand frames holds as many segments, and an IP packet 65,535 bytes.
        let most = (each * 900).min(65_535 - 60 - ip_options - tcp_options);
        Wish {
            v4,
            tcp,
            tags: upto(random, 4),
            ip_options,
            tcp_options,
            each: each.min(most - 1),
            payload: each.min(most - 1) + 1 + upto(random, most - each.min(most - 1) - 1),
            flags: random.below(256) as u8,
        }
    }

    fn make(self, random: &mut Random) -> Made {
        let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        for tag in 0..self.tags {
            bytes.extend(if tag + 1 < self.tags { [0x88, 0xa8] } else { [0x81, 0x00] });
            bytes.extend([0x20, tag as u8 + 1]);
        }
        bytes.extend(if self.v4 { [0x08, 0x00] } else { [0x86, 0xdd] });
        let l3 = bytes.len();
        let upper = if self.tcp { 20 + self.tcp_options } else { 8 } + self.payload;
        let protocol = if self.tcp { 6 } else { 17 };
        if self.v4 {
            let total = ((20 + self.ip_options + upper) as u16).to_be_bytes();
            let id = random.below(65_536) as u16;
            bytes.extend([0x45 + (self.ip_options / 4) as u8, 0xb9, total[0], total[1]]);
            bytes.extend(id.to_be_bytes());
            bytes.extend([0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
            // No operation, and end of list.
            bytes.extend((0..self.ip_options).map(|i| u8::from(i + 1 < self.ip_options)));
            let sum = !naive_sum(&[&bytes[l3..]]);
            bytes[l3 + 10..l3 + 12].copy_from_slice(&sum.to_be_bytes());
        } else {
            let extensions = self.ip_options / 8;
            let len = ((self.ip_options + upper) as u16).to_be_bytes();
            bytes.extend([0x6b, 0x90, 0, 7, len[0], len[1], if extensions > 0 { 60 } else { protocol }, 64]);
            bytes.extend((0..32).map(|i| if i % 16 == 0 { 0xfd } else { i as u8 }));
            for n in 0..extensions {
                // Destination options of padding.
                bytes.extend([if n + 1 < extensions { 60 } else { protocol }, 0, 1, 4, 0, 0, 0, 0]);
            }
        }
        let l4 = bytes.len();
        if self.tcp {
            bytes.extend([0x4e, 0x20, 0x13, 0x89]);
            // The sequence number wraps now and then.
            bytes.extend((u32::MAX - random.below(100_000) as u32).to_be_bytes());
            bytes.extend([1, 2, 3, 4, ((20 + self.tcp_options) * 4) as u8, self.flags, 0x20, 0, 0, 0, 0, 0]);
            bytes.extend((0..self.tcp_options).map(|_| 1));
        } else {
            let len = ((8 + self.payload) as u16).to_be_bytes();
            bytes.extend([0x4e, 0x20, 0x13, 0x89, len[0], len[1], 0, 0]);
        }
        let header = bytes.len();
        let check = l4 + if self.tcp { 16 } else { 6 };
        let sum = pseudo_sum(&bytes, l3, self.v4, self.tcp, upper);
        bytes[check..check + 2].copy_from_slice(&sum.to_be_bytes());
        bytes.extend((0..self.payload).map(|_| random.below(256) as u8));
        let kind = match (self.tcp, self.v4) {
            (true, true) => GSO_TCP_V4,
            (true, false) => GSO_TCP_V6,
            (false, _) => GSO_UDP,
        };
        let ecn = if self.tcp && self.flags & 0x80 != 0 { GSO_ECN } else { 0 };
        let mut offload = [NEEDS_CHECKSUM, kind | ecn, 0, 0, 0, 0, 0, 0, 0, 0];
        let numbers = [header, self.each, l4, check - l4];
        for (place, number) in offload[2..].chunks_mut(2).zip(numbers) {
            place.copy_from_slice(&(number as u16).to_ne_bytes());
        }
        Made { bytes, offload, l3, l4, header, each: self.each, v4: self.v4, tcp: self.tcp }
    }
}

fn put(pool: &mut Pool, made: &Made) -> FrameRef {
    let frame = pool.alloc().unwrap();
    assert!(pool.fill(frame, &made.bytes));
    pool.set_offload(frame, made.offload);
    frame
}

fn bytes_of(pool: &Pool, frame: FrameRef) -> Vec<u8> {
    let mut bytes = Vec::new();
    pool.copy_to(frame, &mut bytes);
    bytes
}

/// What a device does with a frame that needs its checksum.
fn complete(frame: &mut [u8], offload: [u8; OFFLOAD_BYTES]) {
    assert_eq!(offload[..6], [NEEDS_CHECKSUM, 0, 0, 0, 0, 0]);
    let start = usize::from(u16::from_ne_bytes([offload[6], offload[7]]));
    let at = start + usize::from(u16::from_ne_bytes([offload[8], offload[9]]));
    let sum = !naive_sum(&[&frame[start..]]);
    let sum = if sum == 0 && at - start == 6 { 0xffff } else { sum };
    frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}

fn be16(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]))
}

/// Segment `index` of `made`, completed: its headers are right, field by field. Answers its payload.
fn verify<'a>(made: &Made, segment: &'a [u8], index: usize, last: bool) -> &'a [u8] {
    let &Made { l3, l4, header, v4, tcp, .. } = made;
    let upper = segment.len() - l4;
    assert_eq!(segment[..l3], made.bytes[..l3], "layer 2");
    if v4 {
        assert_eq!(naive_sum(&[&segment[l3..l4]]), 0xffff, "the IP header's checksum");
        assert_eq!(be16(segment, l3 + 2), segment.len() - l3);
        assert_eq!(be16(segment, l3 + 4), (be16(&made.bytes, l3 + 4) + index) % 65_536);
        assert_eq!(segment[l3..l3 + 2], made.bytes[l3..l3 + 2]);
        assert_eq!(segment[l3 + 6..l3 + 10], made.bytes[l3 + 6..l3 + 10]);
        assert_eq!(segment[l3 + 12..l4], made.bytes[l3 + 12..l4]);
    } else {
        assert_eq!(be16(segment, l3 + 4), segment.len() - l3 - 40);
        assert_eq!(segment[l3..l3 + 4], made.bytes[l3..l3 + 4]);
        assert_eq!(segment[l3 + 6..l4], made.bytes[l3 + 6..l4]);
    }
    let pseudo = pseudo_sum(segment, l3, v4, tcp, upper).to_be_bytes();
    assert_eq!(naive_sum(&[&pseudo, &segment[l4..]]), 0xffff, "the checksum of segment {index}");
    assert_eq!(segment[l4..l4 + 4], made.bytes[l4..l4 + 4], "ports");
    if tcp {
        let sequence = |bytes: &[u8]| u32::from_be_bytes(bytes[l4 + 4..l4 + 8].try_into().unwrap());
        assert_eq!(sequence(segment).wrapping_sub(sequence(&made.bytes)), (index * made.each) as u32);
        let flags = made.bytes[l4 + 13];
        let mut expected = flags & 0x76;
        expected |= if last { flags & 0x09 } else { 0 };
        expected |= if index == 0 { flags & 0x80 } else { 0 };
        assert_eq!(segment[l4 + 13], expected, "flags {flags:#x} of segment {index}");
        assert_eq!(segment[l4 + 8..l4 + 13], made.bytes[l4 + 8..l4 + 13]);
        assert_eq!(segment[l4 + 14..l4 + 16], made.bytes[l4 + 14..l4 + 16]);
        assert_eq!(segment[l4 + 18..header], made.bytes[l4 + 18..header]);
    } else {
        assert_eq!(be16(segment, l4 + 4), upper);
    }
    &segment[header..]
}

#[test]
fn every_aggregate_s_segments_are_right_and_make_it_up_again() {
    for seed in weir_seed::seeds(weir_seed::effort(3)) {
        let mut random = Random::new(seed);
        let mut pool = Pool::new(SIZE);
        for _ in 0..60 {
            let wish = Wish::any(&mut random);
            let made = wish.make(&mut random);
            let frame = put(&mut pool, &made);
            let aggregate = Aggregate::of(&pool, frame).unwrap_or_else(|| panic!("{wish:?}"));
            assert_eq!(aggregate.segments() as usize, wish.payload.div_ceil(wish.each), "{wish:?}");
            assert_eq!(aggregate.longest_bytes() as usize, made.header + wish.each);
            let mut out = Vec::new();
            // Jumbo segments need tails, of which there are fewer.
            let lost = split(&mut pool, frame, &aggregate, &mut out);
            assert_eq!(out.len() + lost as usize, aggregate.segments() as usize);
            assert!(lost == 0 || pool.tails_available() == 0, "{wish:?} lost {lost}");
            assert_eq!(out[0], frame);
            let (mut payload, mut wire) = (Vec::<u8>::new(), 0);
            for (index, &segment) in out.iter().enumerate() {
                let mut bytes = bytes_of(&pool, segment);
                complete(&mut bytes, pool.offload(segment));
                let last = index + 1 == aggregate.segments() as usize;
                payload.extend(verify(&made, &bytes, index, last));
                wire += bytes.len() + 24;
                pool.free(segment);
            }
            assert_eq!(payload, made.bytes[made.header..][..payload.len()]);
            if lost == 0 {
                assert_eq!(payload.len(), wish.payload);
                assert_eq!(aggregate.cost_bytes(24) as usize + 24, wire, "{wish:?}");
            }
            assert_eq!((pool.available(), pool.tails_available()), (1024, 80));
        }
    }
}

#[test]
fn a_pool_without_buffers_loses_the_rest_and_says_how_much() {
    let mut random = Random::new(1);
    let wish = Wish {
        v4: true,
        tcp: true,
        tags: 0,
        ip_options: 0,
        tcp_options: 12,
        each: 1448,
        payload: 14_480,
        flags: 0x18,
    };
    let made = wish.make(&mut random);
    let mut pool = Pool::new(PoolSize { frames: 4, tails: 1 });
    let frame = put(&mut pool, &made);
    let aggregate = Aggregate::of(&pool, frame).unwrap();
    let mut out = Vec::new();
    assert_eq!(split(&mut pool, frame, &aggregate, &mut out), 6);
    assert_eq!((out.len(), pool.available(), pool.tails_available()), (4, 0, 1));
    for (index, &segment) in out.iter().enumerate() {
        let mut bytes = bytes_of(&pool, segment);
        complete(&mut bytes, pool.offload(segment));
        assert_eq!(verify(&made, &bytes, index, false), &made.bytes[made.header + index * 1448..][..1448]);
    }
}

/// What is one packet, or no TCP or UDP that this can read, stays whole; and nothing panics.
#[test]
fn what_cannot_be_taken_apart_passes_whole() {
    let mut pool = Pool::new(SIZE);
    let mut random = Random::new(weir_seed::seed());
    let wish = Wish {
        v4: true,
        tcp: true,
        tags: 1,
        ip_options: 0,
        tcp_options: 12,
        each: 1448,
        payload: 14_480,
        flags: 0x18,
    };
    let refused = |pool: &mut Pool, wish: Wish, change: &dyn Fn(&mut Made)| {
        let mut made = wish.make(&mut Random::new(1));
        change(&mut made);
        let frame = put(pool, &made);
        let refused = Aggregate::of(pool, frame).is_none();
        pool.free(frame);
        refused
    };
    assert!(!refused(&mut pool, wish, &|_| {}));
    let six = Wish { v4: false, ip_options: 8, ..wish };
    assert!(!refused(&mut pool, six, &|_| {}));
    type Change<'a> = (&'a str, Wish, &'a dyn Fn(&mut Made));
    let changes: [Change<'_>; 11] = [
        ("no segmentation asked for", wish, &|m| m.offload[1] = 0),
        ("one segment", Wish { payload: 1448, ..wish }, &|_| {}),
        ("segments of nothing", wish, &|m| m.offload[4..6].fill(0)),
        ("a whole checksum", wish, &|m| m.offload[0] = 0),
        ("a fragment", wish, &|m| m.bytes[m.l3 + 6] = 0x20),
        ("a tunnel", wish, &|m| m.bytes[m.l3 + 9] = 47),
        ("another family", wish, &|m| m.bytes[m.l3] = 0x65),
        ("TCP where UDP is said", wish, &|m| m.offload[1] = GSO_UDP),
        ("a checksum elsewhere", wish, &|m| m.offload[6] += 2),
        ("a TCP header that is too short", wish, &|m| m.bytes[m.l4 + 12] = 0x40),
        ("a jumbogram", six, &|m| m.bytes[m.l3 + 4..m.l3 + 6].fill(0)),
    ];
    for (what, wish, change) in changes {
        assert!(refused(&mut pool, wish, change), "{what}");
    }
    // Damaged anywhere, and cut anywhere.
    for _ in 0..weir_seed::effort(3_000) {
        let mut made = Wish { payload: 1449 + upto(&mut random, 3000), ..wish }.make(&mut random);
        for _ in 0..upto(&mut random, 4) {
            let at = upto(&mut random, made.header + 20).min(made.bytes.len() - 1);
            made.bytes[at] = random.below(256) as u8;
        }
        for _ in 0..upto(&mut random, 3) {
            made.offload[upto(&mut random, 9)] = random.below(256) as u8;
        }
        made.bytes.truncate(upto(&mut random, 5000));
        let frame = put(&mut pool, &made);
        let mut out = vec![frame];
        if let Some(aggregate) = Aggregate::of(&pool, frame) {
            out.clear();
            split(&mut pool, frame, &aggregate, &mut out);
        }
        out.into_iter().for_each(|segment| pool.free(segment));
        assert_eq!((pool.available(), pool.tails_available()), (1024, 80));
    }
}

/// The kernel's segments of an aggregate and ours are the same, bit for bit: through a device that
/// cannot segment or complete checksums, the aggregate leaves as those.
#[test]
fn segments_are_those_of_the_kernel() {
    use crate::Io;
    use crate::af_packet::AfPacket;
    use crate::af_packet::tests::{collect, in_namespace, ip};
    use weir_sys::{Offload, set_offload};
    in_namespace(|| {
        for offload in [Offload::Tso, Offload::Checksum] {
            set_offload("wa", offload, false).unwrap();
        }
        ip("link set wa mtu 9000 gso_max_size 1000");
        ip("link set wb mtu 9000");
        let mut random = Random::new(weir_seed::seed());
        let mut pool = Pool::new(PoolSize { frames: 1024, tails: 256 });
        let (mut a, mut b) = (AfPacket::open("wa", 0).unwrap(), AfPacket::open("wb", 16 << 20).unwrap());
        for n in 0..120 {
            let mut wish = Wish::any(&mut random);
            // What every device carries: as many segments as a batch, none beyond the MTU.
            wish.each = wish.each.clamp(500, 8_000);
            wish.payload = wish.each + 1 + upto(&mut random, wish.each * 20).min(55_000 - wish.each);
            wish.tags = n % 3;
            let made = wish.make(&mut random);
            let frame = put(&mut pool, &made);
            let mut refused = Vec::new();
            assert_eq!(a.send(&mut pool, &[frame], &mut refused), 1);
            assert!(refused.is_empty(), "{wish:?} {refused:?}");
            let aggregate = Aggregate::of(&pool, frame).unwrap();
            let theirs = collect(&mut b, &mut pool, aggregate.segments() as usize);
            let mut out = Vec::new();
            assert_eq!(split(&mut pool, frame, &aggregate, &mut out), 0);
            assert_eq!(theirs.len(), out.len(), "{wish:?}");
            for (their, &segment) in theirs.iter().zip(&out) {
                let mut ours = bytes_of(&pool, segment);
                complete(&mut ours, pool.offload(segment));
                assert!(*their == ours, "{wish:?}:\n{:x?}\n{:x?}", &their[..100], &ours[..100]);
                pool.free(segment);
            }
        }
    });
}

/// As the kernel cuts them up at an MTU of 1500, with an Ethernet header each.
#[test]
fn a_packet_costs_what_its_fragments_cost() {
    let cost = |version: u8, packet_bytes: u32| {
        let mut head = [0; 60];
        head[14] = if version == 4 { 0x45 } else { 0x60 };
        fragmented_bytes(&head, 14, 14 + packet_bytes, 1514, 24)
    };
    for (packet_bytes, wire_bytes) in [
        (1500, vec![1500]),
        // 1480 bytes of payload in the first, the rest behind a header of its own.
        (1508, vec![1500, 28]),
        (2980, vec![1500, 1500]),
        (2981, vec![1500, 1500, 21]),
    ] {
        let frames: u32 = wire_bytes.iter().map(|bytes| bytes + 14 + 24).sum();
        assert_eq!(cost(4, packet_bytes) + 24, frames, "{packet_bytes}");
    }
    // Each fragment of IPv6 has 8 bytes more, so that 1448 of payload fit.
    assert_eq!(cost(6, 1500), 1514);
    assert_eq!(cost(6, 1508) + 24, (1496 + 38) + (40 + 8 + 20 + 38));
    assert_eq!(fragmented_bytes(&[0; 60], 14, 2000, 1514, 24), 2000, "no IP");
    assert_eq!(fragmented_bytes(&[0x45], 14, 2000, 1514, 24), 2000);
}
