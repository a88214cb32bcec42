//! Frames for tests, with a number in each.

#![allow(clippy::unwrap_used, dead_code, reason = "a test's helpers fail the test; each test uses some")]

/// A UDP packet over IPv4 in a frame of `len` bytes, with a number in its last four.
pub fn frame(number: u32, len: usize, tos: u8) -> Vec<u8> {
    let mut bytes = vec![0u8; len];
    bytes[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
    let total = (len - 14) as u16;
    bytes[14..34].copy_from_slice(&[
        0x45,
        tos,
        (total >> 8) as u8,
        total as u8,
        0,
        0,
        0,
        0,
        64,
        17,
        0,
        0,
        10,
        0,
        0,
        1,
        10,
        0,
        0,
        2,
    ]);
    let sum = checksum(&bytes[14..34]);
    bytes[24..26].copy_from_slice(&sum.to_be_bytes());
    bytes[34..38].copy_from_slice(&[0x4e, 0x20, 0x13, 0x89]);
    bytes[len - 4..].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// The Internet checksum of a header; 0 for one that is right.
pub fn checksum(header: &[u8]) -> u16 {
    let mut sum: u32 = header.chunks(2).map(|b| u32::from(u16::from_be_bytes([b[0], b[1]]))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// The number that a frame carries.
pub fn number(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes[bytes.len() - 4..].try_into().unwrap())
}
