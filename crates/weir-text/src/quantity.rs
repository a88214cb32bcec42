//! Quantities as people write them: `"5ms"`, `"10M"`, `"64K"`, `"5%"`, read exactly or refused.
//!
//! Every type reads from a TOML string (and from a bare number where the unit is beyond doubt) and
//! prints a form that reads back as the same value. An error is two lines: what is wrong, then how
//! to mend it; whoever reads the file adds the place.

use crate::number;
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use weir_core::packet;
use weir_core::units::{Duration, Instant, Rate};

/// A time since the start of the run, or a span of time: `"45s"`, `"5ms"`, `"300us"`, `"20ns"`,
/// `"2min"`, decimals allowed (`"1.5s"`), `"0"`. At most 584 years, resolution 1 ns.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct Time(u64);

impl Time {
    /// The start of the run, or no time.
    pub const ZERO: Time = Time(0);
    /// `ns` nanoseconds.
    pub const fn from_nanos(ns: u64) -> Self {
        Time(ns)
    }
    /// `ms` milliseconds.
    pub const fn from_micros(us: u64) -> Self {
        Time(us * 1_000)
    }
    /// `ms` milliseconds.
    pub const fn from_millis(ms: u64) -> Self {
        Time(ms * 1_000_000)
    }
    /// `s` seconds.
    pub const fn from_secs(s: u64) -> Self {
        Time(s * 1_000_000_000)
    }
    /// Nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }
    /// Seconds, for reports.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
    /// As a point in time, counted from the start of the run.
    pub const fn instant(self) -> Instant {
        Instant::from_nanos(self.0)
    }
    /// As a span.
    pub const fn duration(self) -> Duration {
        Duration::from_nanos(self.0)
    }
    /// From text, with the reason if it is not a time.
    pub fn parse(text: &str) -> Result<Self, String> {
        number::time(text.trim(), None).map(|read| Time(read.value.as_nanos())).map_err(in_quotes)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("0s"),
            ns if ns % 1_000_000_000 == 0 => write!(f, "{}s", ns / 1_000_000_000),
            ns if ns % 1_000_000 == 0 => write!(f, "{}ms", ns / 1_000_000),
            ns if ns % 1_000 == 0 => write!(f, "{}us", ns / 1_000),
            ns => write!(f, "{ns}ns"),
        }
    }
}

/// A rate in bits per second: `"10M"`, `"10mbit"`, `"64kbit"`, `"1.5M"`, `"9600"` or `9600`.
/// Suffixes k, M, G are powers of 1000, in either case. `"10Mbps"` is refused: it can be read two ways.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct BitRate(u64);

impl BitRate {
    /// `bps` bits per second.
    pub const fn from_bps(bps: u64) -> Self {
        BitRate(bps)
    }
    /// Bits per second.
    pub const fn as_bps(self) -> u64 {
        self.0
    }
    /// In the units of the disciplines.
    pub const fn rate(self) -> Rate {
        Rate::from_bps(self.0)
    }
    /// From text, with the reason if it is not a rate.
    pub fn parse(text: &str) -> Result<Self, String> {
        number::rate(text.trim()).map(|rate| BitRate(rate.as_bps())).map_err(in_quotes)
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("0"),
            bps if bps % 1_000_000_000_000 == 0 => write!(f, "{}T", bps / 1_000_000_000_000),
            bps if bps % 1_000_000_000 == 0 => write!(f, "{}G", bps / 1_000_000_000),
            bps if bps % 1_000_000 == 0 => write!(f, "{}M", bps / 1_000_000),
            bps if bps % 1_000 == 0 => write!(f, "{}k", bps / 1_000),
            bps => write!(f, "{bps}"),
        }
    }
}

/// A number of bytes: `1500`, `"1500"`, `"64K"` (K and M are powers of 1024, as in altq.conf; `"64KiB"` too).
/// `"64KB"` is refused: it can be read two ways.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct Size(u64);

impl Size {
    /// `bytes` bytes.
    pub const fn from_bytes(bytes: u64) -> Self {
        Size(bytes)
    }
    /// Bytes.
    pub const fn as_bytes(self) -> u64 {
        self.0
    }
    /// From text, with the reason if it is not a size.
    pub fn parse(text: &str) -> Result<Self, String> {
        number::bytes(text.trim()).map(Size).map_err(in_quotes)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A value of an expectation; which kinds fit depends on what is expected.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Amount {
    /// A bare number: a count, a ratio, bytes, or bits per second.
    Number(f64),
    /// `"58%"`: a share; as a tolerance, of the expected value. In parts of one.
    Percent(f64),
    /// `"5pt"`: percentage points, for tolerances of shares. In parts of one.
    Points(f64),
    /// `"8ms"`.
    Time(Time),
    /// `"10M"`.
    Rate(BitRate),
}

/// Numbers of an amount are below this: rounded to a binary fraction, one of more digits could print as one
/// that is too long to read.
const LARGEST: f64 = 1e18;

impl Amount {
    /// From text, with the reason if it is no quantity.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bad = || {
            let help =
                "write a number such as `43`, a rate `10M`, a time `8ms`, a share `58%` or points `5pt`";
            in_quotes(number::Bad::new(format!("`{text}` is not a quantity"), help))
        };
        let text = text.trim();
        let number = number::decimal(text).filter(|number| !number.negative).ok_or_else(bad)?;
        let unit = number.suffix;
        let number = || match number::figure(text, &number).parse::<f64>() {
            Ok(value) if value < LARGEST => Ok(value),
            Ok(_) => {
                let message = format!("the number in `{text}` is too large");
                Err(in_quotes(number::Bad::new(message, "write a number below 10^18")))
            }
            Err(_) => Err(bad()),
        };
        match unit {
            "" => Ok(Amount::Number(number()?)),
            "%" => Ok(Amount::Percent(number()? / 100.0)),
            "pt" => Ok(Amount::Points(number()? / 100.0)),
            "ns" | "us" | "µs" | "ms" | "s" | "min" => Time::parse(text).map(Amount::Time),
            _ => match BitRate::parse(text) {
                Ok(rate) => Ok(Amount::Rate(rate)),
                Err(why) if why.contains("two ways") => Err(why),
                Err(_) => Err(bad()),
            },
        }
    }

    /// In base units: bit/s, nanoseconds, parts of one, or the number itself.
    pub fn base(self) -> f64 {
        match self {
            Amount::Number(n) | Amount::Percent(n) | Amount::Points(n) => n,
            Amount::Time(time) => time.as_nanos() as f64,
            Amount::Rate(rate) => rate.as_bps() as f64,
        }
    }
}
impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Amount::Number(n) => write!(f, "{n}"),
            Amount::Percent(p) => write!(f, "{}%", hundred_times(*p)),
            Amount::Points(p) => write!(f, "{}pt", hundred_times(*p)),
            Amount::Time(t) => t.fmt(f),
            // A bare number would read as a number.
            Amount::Rate(r) => match r.to_string() {
                bare if bare.bytes().all(|b| b.is_ascii_digit()) => write!(f, "{bare}bit/s"),
                with_unit => f.write_str(&with_unit),
            },
        }
    }
}

/// The number of which `p` is the hundredth, as it was read: without the last digits that binary
/// fractions add, so that 0.07 prints as 7.
fn hundred_times(p: f64) -> f64 {
    let product = p * 100.0;
    let (up, down) = (product.next_up(), product.next_down());
    let near = [(p * 1e11).round() / 1e9, product, up, down, up.next_up(), down.next_down()];
    near.into_iter().find(|number| number / 100.0 == p).unwrap_or(product)
}

/// A DiffServ code point: a number from 0 to 63 or a name: `"EF"`, `"AF11"` to `"AF43"`, `"CS0"` to `"CS7"`, `"BE"`, `"LE"`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Hash)]
pub struct Dscp(u8);

impl Dscp {
    /// The code point, 0 to 63.
    pub const fn code(self) -> u8 {
        self.0
    }
    /// From text, with the reason if it is no code point.
    pub fn parse(text: &str) -> Result<Self, String> {
        let number = || text.parse::<u8>().ok().filter(|code| *code < 64);
        match packet::Dscp::from_name(text).map(packet::Dscp::value).or_else(number) {
            Some(code) => Ok(Dscp(code)),
            None => {
                let help = "write 0 to 63, or EF, AF11 to AF43, CS0 to CS7, BE, LE";
                Err(in_quotes(number::Bad::new(format!("`{text}` is not a DiffServ code point"), help)))
            }
        }
    }
}

impl fmt::Display for Dscp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// What is wrong with a number, and behind it, on a line of its own, how to mend it. A TOML file has
/// quantities in quotes.
fn in_quotes(bad: number::Bad) -> String {
    format!("{}\n{}", bad.message, bad.help.replace('`', "\""))
}

/// Serde for a quantity: text through `parse`, whole numbers where `bare` allows them.
macro_rules! quantity_serde {
    ($type:ty, $expecting:literal, $number:expr, $write:expr) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Reader;
                impl Visitor<'_> for Reader {
                    type Value = $type;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expecting)
                    }
                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$type, E> {
                        <$type>::parse(text).map_err(E::custom)
                    }
                    fn visit_i64<E: de::Error>(self, n: i64) -> Result<$type, E> {
                        let read: fn(f64, String) -> Result<$type, String> = $number;
                        read(n as f64, n.to_string()).map_err(E::custom)
                    }
                    fn visit_u64<E: de::Error>(self, n: u64) -> Result<$type, E> {
                        let read: fn(f64, String) -> Result<$type, String> = $number;
                        read(n as f64, n.to_string()).map_err(E::custom)
                    }
                    fn visit_f64<E: de::Error>(self, n: f64) -> Result<$type, E> {
                        let read: fn(f64, String) -> Result<$type, String> = $number;
                        read(n, n.to_string()).map_err(E::custom)
                    }
                }
                deserializer.deserialize_any(Reader)
            }
        }
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let write: fn(&Self, S) -> Result<S::Ok, S::Error> = $write;
                write(self, serializer)
            }
        }
    };
}

quantity_serde!(Time, "a time such as \"5ms\"", |_, text| Time::parse(&text), |time, s| s
    .serialize_str(&time.to_string()));
quantity_serde!(BitRate, "a rate such as \"10M\"", |_, text| BitRate::parse(&text), |rate, s| s
    .serialize_str(&rate.to_string()));
quantity_serde!(Size, "a size such as 1500 or \"64K\"", |_, text| Size::parse(&text), |size, s| s
    .serialize_str(&size.to_string()));
quantity_serde!(
    Dscp,
    "a DiffServ code point such as \"EF\" or 46",
    |_, text| Dscp::parse(&text),
    |dscp, s| s.serialize_u8(dscp.0)
);
quantity_serde!(
    Amount,
    "a number or a quantity such as \"10M\", \"8ms\", \"58%\"",
    |n, text| if n.is_finite() && n >= 0.0 {
        Ok(Amount::Number(n))
    } else {
        Err(format!("`{text}` is not a quantity\nwrite a number from 0 up"))
    },
    |amount, s| match amount {
        Amount::Number(n) => s.serialize_f64(*n),
        other => s.serialize_str(&other.to_string()),
    }
);

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
impl fmt::Debug for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
impl fmt::Debug for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
