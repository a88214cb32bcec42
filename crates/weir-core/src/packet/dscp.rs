//! The differentiated services codepoint, its names, and writing the tos byte into a header.
//!
//! The byte is the same in both families: six bits of DSCP above two of ECN. `tos` in this crate
//! always means the whole byte, `dscp` the six bits moved down.
//!
//! ```text
//!   7   6   5   4   3   2   1   0        IPv4: byte 1 of the header, under the header checksum
//! +---+---+---+---+---+---+---+---+      IPv6: low half of byte 0, high half of byte 1, no checksum
//! |         DSCP          |  ECN  |
//! +---+---+---+---+---+---+---+---+
//! ```

use core::fmt;

use super::ecn::Ecn;

/// A differentiated services codepoint, 0 to 63. [RFC 2474]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Dscp(u8);

/// Names and values; where a value has two names, the first is the one that is printed.
const NAMES: [(&str, u8); 26] = [
    ("CS0", 0),
    ("BE", 0),
    ("DF", 0),
    ("LE", 1),
    ("CS1", 8),
    ("AF11", 10),
    ("AF12", 12),
    ("AF13", 14),
    ("CS2", 16),
    ("AF21", 18),
    ("AF22", 20),
    ("AF23", 22),
    ("CS3", 24),
    ("AF31", 26),
    ("AF32", 28),
    ("AF33", 30),
    ("CS4", 32),
    ("AF41", 34),
    ("AF42", 36),
    ("AF43", 38),
    ("CS5", 40),
    ("VA", 44),
    ("NQB", 45),
    ("EF", 46),
    ("CS6", 48),
    ("CS7", 56),
];

impl Dscp {
    /// Default forwarding: best effort.
    pub const CS0: Dscp = Dscp(0);
    /// Lower effort. [RFC 8622]
    pub const LE: Dscp = Dscp(1);
    /// Assured forwarding class 1, lowest drop precedence. [RFC 2597]
    pub const AF11: Dscp = Dscp(10);
    /// Assured forwarding class 1, middle drop precedence.
    pub const AF12: Dscp = Dscp(12);
    /// Assured forwarding class 1, highest drop precedence.
    pub const AF13: Dscp = Dscp(14);
    /// Admitted voice. [RFC 5865]
    pub const VA: Dscp = Dscp(44);
    /// Non-queue-building.
    pub const NQB: Dscp = Dscp(45);
    /// Expedited forwarding. [RFC 3246]
    pub const EF: Dscp = Dscp(46);
    /// Network control.
    pub const CS6: Dscp = Dscp(48);

    /// From its value; `None` above 63.
    pub const fn new(value: u8) -> Option<Self> {
        if value < 64 { Some(Dscp(value)) } else { None }
    }
    /// The codepoint in the high bits of a tos byte.
    pub const fn of_tos(tos: u8) -> Self {
        Dscp(tos >> 2)
    }
    /// Assured forwarding `class` 1 to 4 with drop `precedence` 1 to 3.
    pub const fn assured(class: u8, precedence: u8) -> Option<Self> {
        match (class, precedence) {
            (1..=4, 1..=3) => Some(Dscp(class * 8 + precedence * 2)),
            _ => None,
        }
    }
    /// 0 to 63.
    pub const fn value(self) -> u8 {
        self.0
    }
    /// `tos` with this codepoint and its ECN bits unchanged.
    pub const fn on_tos(self, tos: u8) -> u8 {
        (self.0 << 2) | (tos & 0x03)
    }
    /// From a name, in either case: `EF`, `AF41`, `CS1`, `VA`, `NQB`, `LE`, `BE`, `DF`.
    pub fn from_name(name: &str) -> Option<Self> {
        NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|&(_, value)| Dscp(value))
    }
    /// Its registered name, if it has one.
    pub fn name(self) -> Option<&'static str> {
        NAMES.iter().find(|&&(_, value)| value == self.0).map(|&(name, _)| name)
    }
    /// Every name with its value, for messages that list them.
    pub fn names() -> impl Iterator<Item = (&'static str, Dscp)> {
        NAMES.iter().map(|&(name, value)| (name, Dscp(value)))
    }
}

impl fmt::Display for Dscp {
    /// The name, or the number where there is none.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "{}", self.0),
        }
    }
}

/// Writes the whole tos byte (IPv4) or traffic class (IPv6) of the header at `l3_offset`, and
/// brings the IPv4 header checksum along. Answers whether there was such a header to write to;
/// if not, nothing was touched.
///
/// A checksum that was wrong stays wrong by the same amount: a damaged packet is not repaired.
pub fn set_tos(frame: &mut [u8], l3_offset: usize, tos: u8) -> bool {
    let Some(header) = frame.get_mut(l3_offset..) else { return false };
    match header.first().map(|first| first >> 4) {
        Some(4) if header.len() >= 20 => set_tos_v4(header, tos),
        Some(6) if header.len() >= 40 => {
            header[0] = (header[0] & 0xf0) | (tos >> 4);
            header[1] = (tos << 4) | (header[1] & 0x0f);
        }
        _ => return false,
    }
    true
}

/// Writes the six bits of `dscp`; the ECN bits stay. As [`set_tos`].
pub fn set_dscp(frame: &mut [u8], l3_offset: usize, dscp: Dscp) -> bool {
    read_tos(frame, l3_offset).is_some_and(|tos| set_tos(frame, l3_offset, dscp.on_tos(tos)))
}

/// Writes the two bits of `ecn`; the DSCP stays. As [`set_tos`].
pub fn set_ecn(frame: &mut [u8], l3_offset: usize, ecn: Ecn) -> bool {
    read_tos(frame, l3_offset).is_some_and(|tos| set_tos(frame, l3_offset, ecn.on_tos(tos)))
}

/// The tos byte of the header at `l3_offset`; `None` where there is no IP header.
pub fn read_tos(frame: &[u8], l3_offset: usize) -> Option<u8> {
    let header = frame.get(l3_offset..)?;
    match header.first()? >> 4 {
        4 if header.len() >= 20 => Some(header[1]),
        6 if header.len() >= 40 => Some((header[0] << 4) | (header[1] >> 4)),
        _ => None,
    }
}

fn set_tos_v4(header: &mut [u8], tos: u8) {
    if header[1] == tos {
        return;
    }
    let old = u16::from_be_bytes([header[0], header[1]]);
    let new = u16::from_be_bytes([header[0], tos]);
    let checksum = u16::from_be_bytes([header[10], header[11]]);
    header[1] = tos;
    header[10..12].copy_from_slice(&checksum_after(checksum, old, new).to_be_bytes());
}

/// The checksum after one 16-bit word of what it covers changed from `old` to `new`.
///
/// `HC' = ~(~HC + ~m + m')` [RFC 1624 §3, eq. 3]; equation 2 of RFC 1141 gives 0xffff where the
/// full sum gives 0. Range: three words of 16 bits sum to less than 3 * 2^16, so two folds suffice.
fn checksum_after(checksum: u16, old: u16, new: u16) -> u16 {
    let sum = u32::from(!checksum) + u32::from(!old) + u32::from(new);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// The plain sum over the whole header. [RFC 1071]
    fn full_checksum(header: &[u8]) -> u16 {
        let mut sum = 0u32;
        for (i, pair) in header.chunks(2).enumerate() {
            if i != 5 {
                sum += u32::from(u16::from_be_bytes([pair[0], pair[1]]));
            }
        }
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    fn header_v4(id: u16) -> Vec<u8> {
        let mut h: Vec<u8> =
            std::vec![0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 192, 168, 7, 9];
        h[4..6].copy_from_slice(&id.to_be_bytes());
        let sum = full_checksum(&h);
        h[10..12].copy_from_slice(&sum.to_be_bytes());
        h
    }

    #[test]
    fn names_are_the_registered_values() {
        for (name, value) in [
            ("EF", 46),
            ("af11", 10),
            ("AF43", 38),
            ("CS7", 56),
            ("va", 44),
            ("NQB", 45),
            ("LE", 1),
            ("be", 0),
        ] {
            assert_eq!(Dscp::from_name(name).map(Dscp::value), Some(value), "{name}");
        }
        assert_eq!(Dscp::from_name("AF44"), None);
        assert_eq!(Dscp::new(64), None);
        for class in 1..=4u8 {
            for precedence in 1..=3u8 {
                let name = std::format!("AF{class}{precedence}");
                assert_eq!(Dscp::assured(class, precedence), Dscp::from_name(&name));
            }
        }
        assert_eq!(std::format!("{} {} {}", Dscp::EF, Dscp::CS0, Dscp(3)), "EF CS0 3");
    }

    /// Every identification under several tos bytes: the fields reach every value that a checksum
    /// can have, the corner where the sum is 0xffff and the field 0 included.
    #[test]
    fn incremental_checksum_is_the_full_sum_for_every_checksum() {
        let mut zero = 0u32;
        for id in 0..=0xffffu16 {
            let mut h = header_v4(id);
            for tos in [0x01, 0x02, 0xb8, 0xff, (id >> 8) as u8, id as u8] {
                assert!(set_tos(&mut h, 0, tos));
                let now = u16::from_be_bytes([h[10], h[11]]);
                assert_eq!(now, full_checksum(&h), "id {id} tos {tos}");
                zero += u32::from(now == 0);
            }
            assert!(set_tos(&mut h, 0, 0));
            assert_eq!(h, header_v4(id), "and back again");
        }
        assert!(zero >= 4, "the corner came up");
    }

    /// RFC 1624 §4's own example: HC = 0xdd2f, m = 0x5555, m' = 0x3285 gives 0, not 0xffff.
    #[test]
    fn rfc_1624_example() {
        assert_eq!(checksum_after(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    #[test]
    fn a_wrong_checksum_stays_wrong() {
        let mut h = header_v4(77);
        h[11] ^= 0x10;
        set_tos(&mut h, 0, 0xb8);
        assert_ne!(u16::from_be_bytes([h[10], h[11]]), full_checksum(&h));
        set_tos(&mut h, 0, 0);
        h[11] ^= 0x10;
        assert_eq!(h, header_v4(77));
    }

    #[test]
    fn golden_v4() {
        // 45 00 0073 0000 4000 40 11 b861 c0a80001 c0a800c7: the checksum example found in many texts.
        let mut h = [
            0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0x00, 0x01,
            0xc0, 0xa8, 0x00, 0xc7,
        ];
        assert!(set_dscp(&mut h, 0, Dscp::EF));
        assert_eq!((h[1], h[10], h[11]), (0xb8, 0xb7, 0xa9));
        assert!(set_ecn(&mut h, 0, Ecn::Ce));
        assert_eq!((h[1], h[10], h[11]), (0xbb, 0xb7, 0xa6));
        assert_eq!(read_tos(&h, 0), Some(0xbb));
    }

    #[test]
    fn golden_v6() {
        let mut h = [0u8; 44];
        h[4..8].copy_from_slice(&[0x60, 0x0a, 0xbc, 0xde]);
        assert!(set_dscp(&mut h, 4, Dscp::EF));
        assert_eq!(h[4..8], [0x6b, 0x8a, 0xbc, 0xde]);
        assert!(set_ecn(&mut h, 4, Ecn::Ect0));
        assert_eq!(h[4..8], [0x6b, 0xaa, 0xbc, 0xde]);
        assert_eq!(read_tos(&h, 4), Some(0xba));
        assert!(h[8..].iter().all(|&b| b == 0), "nothing else moved");
    }

    #[test]
    fn nothing_is_written_where_there_is_no_header() {
        for len in 0..40 {
            for first in [0x00u8, 0x45, 0x60, 0xff] {
                let mut frame = std::vec![first; len];
                let before = frame.clone();
                let there = first == 0x45 && len >= 20;
                assert_eq!(set_tos(&mut frame, 0, 0xb8), there);
                assert_eq!(frame == before, !there);
                assert!(!set_tos(&mut frame, len + 1, 0xb8));
            }
        }
    }
}
