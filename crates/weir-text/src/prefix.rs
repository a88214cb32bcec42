//! Addresses that begin alike, as they are typed: `198.51.100.0/24`, `2001:db8::/56`, or one address alone.

use crate::number::Bad;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Addresses that begin alike. Bits beyond its length are 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

/// The bits of an address at the right, and how many there are.
fn bits(address: IpAddr) -> (u128, u8) {
    match address {
        IpAddr::V4(four) => (four.to_bits().into(), 32),
        IpAddr::V6(six) => (six.to_bits(), 128),
    }
}

/// The beginning of a text, which may be as long as a message.
fn shown(text: &str) -> String {
    const MOST: usize = 60;
    match text.char_indices().nth(MOST) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text.into(),
    }
}

/// An address.
///
/// # Errors
/// It is none.
pub fn address(text: &str) -> Result<IpAddr, Bad> {
    let help = "write one, as 198.51.100.17 or 2001:db8::1";
    text.parse().map_err(|_| Bad::new(format!("`{}` is no address", shown(text)), help))
}

fn length(text: &str, address: IpAddr) -> Option<u8> {
    let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|length| is_number && *length <= bits(address).1)
}

/// The length of a prefix that `address` is in: a number, with or without `/`, or a mask of four bytes as `255.255.255.0`.
///
/// # Errors
/// It is none of these, or the mask has ones behind zeros.
pub fn mask(text: &str, address: IpAddr) -> Result<u8, Bad> {
    let bad = |what: &str| {
        let help = match address {
            IpAddr::V4(_) => "write a length from 0 to 32, or four bytes as 255.255.255.0",
            IpAddr::V6(_) => "write a length from 0 to 128",
        };
        Bad::new(format!("`{}` {what}", shown(text)), help)
    };
    let number = text.strip_prefix('/').unwrap_or(text);
    let bytes = number.parse::<Ipv4Addr>().ok().filter(|_| address.is_ipv4()).map(Ipv4Addr::to_bits);
    match (length(number, address), bytes) {
        (Some(length), _) => Ok(length),
        (_, Some(mask)) if mask.leading_ones() + mask.trailing_zeros() >= 32 => Ok(mask.leading_ones() as u8),
        (_, Some(_)) => Err(bad("has ones behind zeros")),
        _ => Err(bad("is no mask")),
    }
}

impl Prefix {
    /// The prefix of this length that `address` is in.
    pub fn around(address: IpAddr, length: u8) -> Prefix {
        let (all, width) = bits(address);
        let length = length.min(width);
        let kept = all & u128::MAX.checked_shl(u32::from(width - length)).unwrap_or(0);
        let address = match address {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::from_bits(kept as u32)),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from_bits(kept)),
        };
        Prefix { address, length }
    }
    /// The prefix that begins with `address`.
    ///
    /// # Errors
    /// The address has bits beyond the length.
    pub fn new(address: IpAddr, length: u8) -> Result<Prefix, Bad> {
        let prefix = Prefix::around(address, length);
        if prefix.address == address {
            return Ok(prefix);
        }
        let bad = Bad::new(
            format!("`{address}/{length}` has bits beyond its length"),
            format!("the prefix is `{prefix}`"),
        );
        Err(Bad { write: Some(prefix.to_string()), ..bad })
    }
    /// `198.51.100.0/24`, or an address alone.
    ///
    /// # Errors
    /// It is no address, its length is none, or the address has bits beyond it.
    pub fn read(text: &str) -> Result<Prefix, Bad> {
        let (address, length) = parts(text)?;
        Prefix::new(address, length)
    }
    /// The same, where the address may be any in the prefix: `198.51.100.7/24`.
    ///
    /// # Errors
    /// It is no address, or its length is none.
    pub fn read_around(text: &str) -> Result<Prefix, Bad> {
        let (address, length) = parts(text)?;
        Ok(Prefix::around(address, length))
    }
    /// Its first address.
    pub fn address(&self) -> IpAddr {
        self.address
    }
    /// How many bits all of its addresses have in common.
    pub fn length(&self) -> u8 {
        self.length
    }
    /// Whether there is an address in both.
    pub fn meets(&self, other: &Prefix) -> bool {
        let length = self.length.min(other.length);
        self.address.is_ipv4() == other.address.is_ipv4()
            && Prefix::around(self.address, length) == Prefix::around(other.address, length)
    }
    /// Whether an address is in it.
    pub fn holds(&self, address: IpAddr) -> bool {
        self.meets(&Prefix::around(address, u8::MAX))
    }
}

fn parts(text: &str) -> Result<(IpAddr, u8), Bad> {
    let bad = |what: String| {
        Bad::new(format!("`{}` is no {what}", shown(text)), "write a prefix, as in `198.51.100.0/24`")
    };
    let (first, rest) = text.split_once('/').map_or((text, None), |(first, rest)| (first, Some(rest)));
    let address: IpAddr = first.parse().map_err(|_| bad("address and no prefix".into()))?;
    let width = bits(address).1;
    let all = rest.map_or(Some(width), |rest| length(rest, address));
    Ok((address, all.ok_or_else(|| bad(format!("prefix: its length is at most {width}")))?))
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

impl<'de> Deserialize<'de> for Prefix {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Prefix::read(&text)
            .map_err(|Bad { message, help, .. }| D::Error::custom(format!("{message}: {help}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> String {
        match Prefix::read(text) {
            Ok(prefix) => prefix.to_string(),
            Err(Bad { message, help, write }) => {
                format!("{message}: {help}{}", write.map_or(String::new(), |write| format!(" ({write})")))
            }
        }
    }

    #[test]
    fn prefixes_are_read_or_what_is_wrong_is_said() {
        let all = [
            ("198.51.100.0/24", "198.51.100.0/24"),
            ("198.51.100.7", "198.51.100.7/32"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("2001:db8::/56", "2001:db8::/56"),
            ("::1", "::1/128"),
            ("::/0", "::/0"),
            (
                "10.0.0.0/33",
                "`10.0.0.0/33` is no prefix: its length is at most 32: write a prefix, as in `198.51.100.0/24`",
            ),
            (
                "10.0.0.0/+8",
                "`10.0.0.0/+8` is no prefix: its length is at most 32: write a prefix, as in `198.51.100.0/24`",
            ),
            (
                "2001:db8::/",
                "`2001:db8::/` is no prefix: its length is at most 128: write a prefix, as in `198.51.100.0/24`",
            ),
            ("10.0.0/8", "`10.0.0/8` is no address and no prefix: write a prefix, as in `198.51.100.0/24`"),
            ("", "`` is no address and no prefix: write a prefix, as in `198.51.100.0/24`"),
            (
                "10.0.0.1/8",
                "`10.0.0.1/8` has bits beyond its length: the prefix is `10.0.0.0/8` (10.0.0.0/8)",
            ),
            ("1::1/0", "`1::1/0` has bits beyond its length: the prefix is `::/0` (::/0)"),
        ];
        for (text, expected) in all {
            assert_eq!(said(text), expected, "{text}");
        }
        let long = said(&"1".repeat(70));
        assert!(long.starts_with(&format!("`{}...` is no address", "1".repeat(60))), "{long}");
        assert_eq!(Prefix::read_around("10.0.0.1/8").map(|p| p.to_string()), Ok("10.0.0.0/8".into()));
    }

    #[test]
    fn masks_are_lengths() {
        let four = IpAddr::from([10, 0, 0, 0]);
        let all = [
            ("/24", 24),
            ("24", 24),
            ("0", 0),
            ("255.255.255.0", 24),
            ("0.0.0.0", 0),
            ("255.255.255.255", 32),
        ];
        for (text, length) in all {
            assert_eq!(mask(text, four), Ok(length), "{text}");
        }
        for (text, what) in
            [("255.0.255.0", "ones behind zeros"), ("33", "no mask"), ("a", "no mask"), ("", "no mask")]
        {
            let bad = mask(text, four).unwrap_err();
            assert!(bad.message.contains(what) && bad.help.contains("255.255.255.0"), "{bad:?}");
        }
        let bad = mask("255.0.0.0", IpAddr::from([0; 16])).unwrap_err();
        assert!(bad.help.contains("0 to 128") && !bad.help.contains("255"), "{bad:?}");
    }

    #[test]
    fn prefixes_meet_where_one_holds_the_other() {
        let read = |text| Prefix::read(text).unwrap();
        let all = ["0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", "10.2.0.0/16", "::/0", "::a00:0/104"].map(read);
        let met: Vec<String> =
            all.iter().map(|a| all.iter().map(|b| if a.meets(b) { '+' } else { '.' }).collect()).collect();
        assert_eq!(met, ["++++..", "++++..", "+++...", "++.+..", "....++", "....++"]);
        assert!(all[1].holds([10, 9, 9, 9].into()) && !all[1].holds([11, 0, 0, 0].into()));
    }
}
