//! The two low bits of the tos byte (IPv4) or traffic class (IPv6): explicit congestion notification.
//!
//! `00` not capable, `01` ECT(1), `10` ECT(0), `11` congestion experienced. [RFC 3168 §5; RFC 8311]

use core::fmt;

/// An ECN codepoint, by its bits on the wire.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
#[repr(u8)]
pub enum Ecn {
    /// The ends do not understand marks: congestion is told by dropping.
    #[default]
    NotEct = 0,
    /// Capable; since RFC 9331 the identifier of low-latency (L4S) traffic.
    Ect1 = 1,
    /// Capable, classic.
    Ect0 = 2,
    /// Congestion experienced.
    Ce = 3,
}

impl Ecn {
    /// The codepoint in the low bits of a tos byte.
    pub const fn of_tos(tos: u8) -> Self {
        match tos & 0x03 {
            0 => Ecn::NotEct,
            1 => Ecn::Ect1,
            2 => Ecn::Ect0,
            _ => Ecn::Ce,
        }
    }
    /// On the wire, 0 to 3.
    pub const fn bits(self) -> u8 {
        self as u8
    }
    /// Whether a mark may stand in for a drop.
    pub const fn is_capable(self) -> bool {
        !matches!(self, Ecn::NotEct)
    }
    /// `tos` with this codepoint and its DSCP unchanged.
    pub const fn on_tos(self, tos: u8) -> u8 {
        (tos & 0xfc) | self as u8
    }
    /// The name that RFC 3168 gives it.
    pub const fn name(self) -> &'static str {
        match self {
            Ecn::NotEct => "Not-ECT",
            Ecn::Ect1 => "ECT(1)",
            Ecn::Ect0 => "ECT(0)",
            Ecn::Ce => "CE",
        }
    }
}

impl fmt::Display for Ecn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tos_byte_splits_and_joins() {
        for tos in 0..=255u8 {
            let ecn = Ecn::of_tos(tos);
            assert_eq!(ecn.bits(), tos & 3);
            assert_eq!(ecn.on_tos(tos), tos);
            assert_eq!(Ecn::Ce.on_tos(tos), tos | 3);
            assert_eq!(ecn.is_capable(), tos & 3 != 0);
        }
    }
}
