//! What classification can look at: the header fields of one packet, and nothing else.

use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};

use super::dscp::Dscp;
use super::ecn::Ecn;

/// Protocol numbers that this crate knows by name.
pub mod protocol {
    /// ICMP for IPv4.
    pub const ICMP: u8 = 1;
    /// Transmission control protocol.
    pub const TCP: u8 = 6;
    /// User datagram protocol.
    pub const UDP: u8 = 17;
    /// Generic routing encapsulation.
    pub const GRE: u8 = 47;
    /// Encapsulating security payload.
    pub const ESP: u8 = 50;
    /// Authentication header.
    pub const AH: u8 = 51;
    /// ICMP for IPv6.
    pub const ICMPV6: u8 = 58;
}

/// The address family.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub enum Family {
    /// Neither: ARP, spanning tree, damaged headers. No other field of the key is meant.
    #[default]
    Other,
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// The header fields of a packet. Fields that the packet does not have are 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Key {
    /// Source address; IPv4 in the low 32 bits.
    pub src: u128,
    /// Destination address; IPv4 in the low 32 bits.
    pub dst: u128,
    /// IPv6 flow label, 20 bits.
    pub flow_label: u32,
    /// Security parameters index of the first ESP or AH header.
    pub spi: u32,
    /// TCP or UDP source port.
    pub src_port: u16,
    /// TCP or UDP destination port.
    pub dst_port: u16,
    /// The family.
    pub family: Family,
    /// The upper-layer protocol: what follows the extension headers, AH included.
    pub protocol: u8,
    /// The whole tos byte or traffic class, ECN bits included.
    pub tos: u8,
    /// A fragment other than the first: ports and SPI are elsewhere, hence 0 here
    /// (unless a [`super::dissect::FragmentCache`] filled them in).
    pub later_fragment: bool,
}

impl Key {
    /// An IPv4 packet without ports.
    pub fn ipv4(src: Ipv4Addr, dst: Ipv4Addr, protocol: u8) -> Self {
        let (src, dst) = (u128::from(src.to_bits()), u128::from(dst.to_bits()));
        Key { family: Family::V4, src, dst, protocol, ..Key::default() }
    }
    /// An IPv6 packet without ports.
    pub fn ipv6(src: Ipv6Addr, dst: Ipv6Addr, protocol: u8) -> Self {
        Key { family: Family::V6, src: src.to_bits(), dst: dst.to_bits(), protocol, ..Key::default() }
    }
    /// With these ports.
    pub fn with_ports(self, src_port: u16, dst_port: u16) -> Self {
        Key { src_port, dst_port, ..self }
    }
    /// With this tos byte or traffic class.
    pub fn with_tos(self, tos: u8) -> Self {
        Key { tos, ..self }
    }
    /// With the low 20 bits of this flow label.
    pub fn with_flow_label(self, flow_label: u32) -> Self {
        Key { flow_label: flow_label & 0x000f_ffff, ..self }
    }
    /// With this security parameters index.
    pub fn with_spi(self, spi: u32) -> Self {
        Key { spi, ..self }
    }

    /// The codepoint for differentiated services.
    pub fn dscp(&self) -> Dscp {
        Dscp::of_tos(self.tos)
    }
    /// The codepoint for congestion notification.
    pub fn ecn(&self) -> Ecn {
        Ecn::of_tos(self.tos)
    }

    /// A hash of the 5-tuple, with the SPI where there are no ports. The flow label is left out:
    /// hosts change it in mid-connection to try another path.
    ///
    /// `salt` goes in first and every later multiplication mixes it, so that which flows collide
    /// depends on all of its 64 bits. It is to be secret where strangers choose their ports: a
    /// shorter salt can be found by trying, from a few flows that are seen to share a queue.
    pub fn flow_hash(&self, salt: u64) -> u32 {
        let ports = (u64::from(self.src_port) << 16) | u64::from(self.dst_port);
        let last = ports | (u64::from(self.spi) << 32);
        let seed = salt ^ (u64::from(self.protocol) << 32) ^ ((self.family as u64) << 40);
        let h = absorb(absorb(seed ^ K0, self.src), self.dst);
        finish(fold(h ^ last, K3))
    }
    /// A hash of the source address alone.
    pub fn src_hash(&self, salt: u64) -> u32 {
        finish(absorb(salt ^ K1, self.src))
    }
    /// A hash of the destination address alone; equal addresses hash alike in both directions.
    pub fn dst_hash(&self, salt: u64) -> u32 {
        finish(absorb(salt ^ K1, self.dst))
    }
}

// Odd constants with balanced bits: the fractional parts of the square roots of 2, 3, 5 and 7.
const K0: u64 = 0x6a09_e667_f3bc_c909;
const K1: u64 = 0xbb67_ae85_84ca_a73b;
const K2: u64 = 0x3c6e_f372_fe94_f82b;
const K3: u64 = 0xa54f_f53a_5f1d_36f1;

/// Both halves of the 128-bit product, one over the other: every bit of both reaches every bit.
pub(crate) fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}

fn absorb(h: u64, address: u128) -> u64 {
    let h = fold(h ^ (address as u64), K2);
    fold(h ^ ((address >> 64) as u64), K3)
}

fn finish(h: u64) -> u32 {
    let h = fold(h ^ K2, K1);
    (h ^ (h >> 32)) as u32
}

impl fmt::Display for Key {
    /// As `weir explain` takes it: `tcp 10.0.0.1:5000 > 10.0.0.2:80 tos 0x10`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.family == Family::Other {
            return f.write_str("not IP");
        }
        match self.protocol {
            protocol::ICMP => f.write_str("icmp")?,
            protocol::TCP => f.write_str("tcp")?,
            protocol::UDP => f.write_str("udp")?,
            protocol::ESP => f.write_str("esp")?,
            protocol::AH => f.write_str("ah")?,
            protocol::ICMPV6 => f.write_str("icmp6")?,
            other => write!(f, "{other}")?,
        }
        for (lead, address, port) in [(" ", self.src, self.src_port), (" > ", self.dst, self.dst_port)] {
            f.write_str(lead)?;
            let v4 = Ipv4Addr::from_bits(address as u32);
            let v6 = Ipv6Addr::from_bits(address);
            match (self.family, port) {
                (Family::V4, 0) => write!(f, "{v4}")?,
                (Family::V4, _) => write!(f, "{v4}:{port}")?,
                (_, 0) => write!(f, "{v6}")?,
                (_, _) => write!(f, "[{v6}]:{port}")?,
            }
        }
        if self.tos != 0 {
            write!(f, " tos {:#04x}", self.tos)?;
        }
        if self.flow_label != 0 {
            write!(f, " flowlabel {:#x}", self.flow_label)?;
        }
        if self.spi != 0 {
            write!(f, " gpi {:#x}", self.spi)?;
        }
        if self.later_fragment {
            f.write_str(" fragment")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    fn sample() -> Key {
        Key::ipv4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2), protocol::TCP).with_ports(5000, 80)
    }

    #[test]
    fn prints_as_explain_takes_it() {
        assert_eq!(std::format!("{}", sample().with_tos(0x10)), "tcp 10.0.0.1:5000 > 10.0.0.2:80 tos 0x10");
        let six = Key::ipv6(Ipv6Addr::LOCALHOST, Ipv6Addr::UNSPECIFIED, protocol::ICMPV6)
            .with_flow_label(0xfff_ffff);
        assert_eq!(std::format!("{six}"), "icmp6 ::1 > :: flowlabel 0xfffff");
    }

    #[test]
    fn hashes_are_fixed_for_ever() {
        // A change here changes which queue every flow of a recording lands in.
        let key = sample();
        assert_eq!(
            [key.flow_hash(0), key.src_hash(0), key.dst_hash(0)],
            [3_170_284_127, 712_997_828, 3_320_262_115]
        );
        let back = Key { src: key.dst, dst: key.src, ..key };
        assert_eq!(key.src_hash(7), back.dst_hash(7));
        assert_ne!(key.flow_hash(0), back.flow_hash(0));
        assert_ne!(key.flow_hash(0), key.flow_hash(1));
    }

    /// Chi-square of neighbouring flows over 256 buckets: mean 255, deviation 22.6; five away is
    /// a hash with a pattern. Low and high bits both, as users mask either.
    #[test]
    fn neighbouring_flows_spread_evenly() {
        let chi_square = |hash: &dyn Fn(u32) -> u32| {
            let mut buckets = vec![0i64; 256];
            for i in 0..65_536u32 {
                buckets[hash(i) as usize] += 1;
            }
            buckets.iter().map(|n| (n - 256) * (n - 256)).sum::<i64>() / 256
        };
        for salt in [0, 1, 0xdead_beef, 0xdead_beef_0000_0000] {
            let by_port = |i: u32| sample().with_ports(i as u16, 80).flow_hash(salt);
            let by_address = |i: u32| Key { src: u128::from(0x0a00_0000 + i), ..sample() }.flow_hash(salt);
            let by_source = |i: u32| Key { src: u128::from(i) << 64, ..sample() }.src_hash(salt);
            for hash in [&by_port as &dyn Fn(u32) -> u32, &by_address, &by_source] {
                for shift in [0, 24] {
                    let x = chi_square(&|i| (hash(i) >> shift) & 255);
                    assert!((142..=368).contains(&x), "salt {salt} shift {shift}: {x}");
                }
            }
            let constant = chi_square(&|_| 0);
            assert!(constant > 368, "the measure sees a bad hash");
        }
    }

    /// Pairs that a stranger can choose share a queue under one salt of 256, whatever the pair:
    /// neither ports that differ by a bit or a step, nor addresses, nor a pair that was searched
    /// for under another salt. Salts that differ in their upper half alone do as well as any.
    #[test]
    fn collisions_depend_on_the_salt() {
        const SALTS: u64 = 16_384;
        let queue = |key: &Key, salt: u64, shift: u32| (key.flow_hash(salt) >> shift) & 255;
        let six = Key { family: Family::V6, src: 0x2001_0db8 << 96, dst: 0x2001_0db9 << 96, ..sample() };
        let ports = |p: u16| sample().with_ports(p, 443);
        let mut pairs = vec![];
        for bit in 0..16 {
            pairs.push((ports(1_024), ports(1_024 ^ (1 << bit))));
            pairs.push((ports(40_000), ports(40_000 + 3 * (bit + 1))));
        }
        for bit in 0..64 {
            pairs.push((six, Key { src: six.src ^ (1 << bit), ..six }));
            pairs.push((six, Key { src: six.src ^ (!0 << bit), ..six }));
        }
        // Whole hashes collide under salt 1.
        let mut seen = std::collections::BTreeMap::new();
        let mut found = 0;
        for source in 0..4u32 {
            for port in 0..=u16::MAX {
                let key = Key { src: u128::from(0x0a00_0000 + source), ..sample() }.with_ports(port, 443);
                if let Some(other) = seen.insert(key.flow_hash(1), key) {
                    pairs.push((key, other));
                    found += 1;
                }
            }
        }
        assert!(found > 0, "no collision to carry over to other salts");
        let mut random = crate::Random::new(weir_seed::seed());
        // 64 expected of 16,384; six standard deviations are 48.
        for (a, b) in pairs {
            for (shift, upper_only) in [(0, false), (24, false), (0, true)] {
                let shared = (0..SALTS).filter(|_| {
                    let salt = if upper_only { random.next_u64() << 32 } else { random.next_u64() };
                    queue(&a, salt, shift) == queue(&b, salt, shift)
                });
                let shared = shared.count();
                assert!((16..=112).contains(&shared), "{a} and {b}: {shared} of {SALTS}");
            }
        }
    }
}
