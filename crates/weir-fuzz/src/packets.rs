//! Frames and messages.

use weir_broker::cops::codec::{MESSAGE_BYTES, decode, length};
use weir_core::packet::dscp::read_tos;
use weir_core::packet::{
    Dissected, Family, FragmentCache, dissect as read_frame, dissect_ip, look_inside, set_tos,
};

/// What is read lies inside the frame, and reading again gives the same.
pub fn dissect(bytes: &[u8]) {
    for (raw_ip, read) in [(false, read_frame(bytes)), (true, dissect_ip(bytes))] {
        inside(bytes, &read);
        let again = if raw_ip { dissect_ip(bytes) } else { read_frame(bytes) };
        assert_eq!(read, again);
        // A tunnel's inside changes neither where the header to write is, nor what stands in it.
        let mut deep = read;
        let found = look_inside(bytes, &mut deep);
        inside(bytes, &deep);
        assert_eq!((deep.l3_offset, deep.key.tos), (read.l3_offset, read.key.tos));
        assert!(found || deep == read, "nothing inside, and yet the key changed");
        // Padding behind a whole packet is not read.
        if is_whole(bytes, &read) {
            let mut padded = bytes.to_vec();
            padded.extend([0xff; 8]);
            let padded = if raw_ip { dissect_ip(&padded) } else { read_frame(&padded) };
            assert_eq!(padded.key, read.key, "padding changed what was read");
        }
    }
}

/// True if all bytes that the IP header speaks of are there.
fn is_whole(bytes: &[u8], read: &Dissected) -> bool {
    let packet = &bytes[read.l3_offset..];
    let number = |at: usize| usize::from(u16::from_be_bytes([packet[at], packet[at + 1]]));
    match read.key.family {
        Family::Other => false,
        // A length of 0 says nothing: segmentation offload leaves it out, and a jumbogram has it. [RFC 2675]
        Family::V4 => number(2) > 0 && number(2) <= packet.len(),
        Family::V6 => number(4) > 0 && 40 + number(4) <= packet.len(),
    }
}

fn inside(bytes: &[u8], read: &Dissected) {
    assert!(read.l3_offset <= bytes.len(), "{read:?} of {} bytes", bytes.len());
    assert!(read.l4_offset.is_none_or(|at| at <= bytes.len()), "{read:?} of {} bytes", bytes.len());
    match read.key.family {
        Family::Other => assert_eq!((read.key.src, read.key.dst, read.key.protocol), (0, 0, 0)),
        _ => assert_eq!(read_tos(bytes, read.l3_offset), Some(read.key.tos)),
    }
}

/// The first byte is written as the TOS byte of the frame that the others are.
pub fn rewrite(bytes: &[u8]) {
    let Some((&tos, frame)) = bytes.split_first() else { return };
    let read = read_frame(frame);
    let mut written = frame.to_vec();
    let done = set_tos(&mut written, read.l3_offset, tos);
    assert_eq!(done, read_tos(frame, read.l3_offset).is_some());
    if !done {
        assert_eq!(written, frame, "refused, and yet something was written");
        return;
    }
    assert_eq!(read_tos(&written, read.l3_offset), Some(tos));
    if read.key.family == Family::Other {
        return;
    }
    let after = read_frame(&written);
    assert_eq!(after.key.with_tos(read.key.tos), read.key, "another field changed");
    if read.key.family == Family::V4 {
        let at = read.l3_offset;
        assert_eq!(
            sum(&frame[at..at + 20]),
            sum(&written[at..at + 20]),
            "the checksum was not brought along"
        );
    }
    // There and back again.
    set_tos(&mut written, read.l3_offset, read.key.tos);
    if read.key.family == Family::V6 {
        assert_eq!(written, frame);
    }
}

/// The ones' complement sum of a header (RFC 1071), where both zeros are one.
fn sum(header: &[u8]) -> u16 {
    let words = header.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    if sum == 0xffff { 0 } else { sum as u16 }
}

/// Frames of 64 bytes each, as they come.
pub fn fragments(bytes: &[u8]) {
    let mut cache = FragmentCache::new();
    let mut firsts = Vec::new();
    for frame in bytes.chunks(64) {
        let mut packet = read_frame(frame);
        let before = packet.key;
        let filled = cache.fill(&mut packet);
        let Some(fragment) = packet.fragment else {
            assert!(!filled || packet.key == before, "not a fragment, and yet changed");
            continue;
        };
        let whose = (before.src, before.dst, fragment.id, fragment.protocol, before.family);
        if fragment.first {
            firsts.push((whose, (packet.key.src_port, packet.key.dst_port)));
        } else if filled {
            let ports = (packet.key.src_port, packet.key.dst_port);
            let known = firsts.iter().any(|&(other, its)| other == whose && its == ports);
            assert!(known, "ports {ports:?} that no first fragment of this packet had");
        }
    }
}

/// Any bytes are a message that is written as it was read, or a fault that can be said to the other side.
pub fn cops(bytes: &[u8]) {
    match decode(bytes) {
        Ok((client_type, message)) => {
            assert_eq!(length(bytes), Ok(Some(bytes.len())));
            let mut again = Vec::new();
            message.encode(client_type, &mut again);
            assert_eq!(decode(&again), Ok((client_type, message)));
            assert!(again.len() <= bytes.len(), "what says nothing is left out, and nothing is added");
        }
        Err(fault) => {
            assert!((1..=15).contains(&fault.code.code), "{fault}");
            assert!(fault.at <= bytes.len() && fault.at <= MESSAGE_BYTES, "{fault}");
            assert!(fault.to_string().len() < 200, "{fault}");
        }
    }
}
