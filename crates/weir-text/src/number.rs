//! Numbers with units as people type them, read exactly or refused: decimals, strtol's base-0
//! integers, rates, bytes, times and shares.
//!
//! ALTQ read numbers with strtol and strtod and forgot what followed. Here nothing is forgotten:
//! a word is a number from its first to its last character, or it is refused with the word to
//! write instead. Arithmetic is exact; there are no floats.
//!
//! All languages share these readers. Where they differ, the reader is told: what a bare number
//! means as a time is the unit that the caller names, or nothing.

use crate::visible::on_one_line;
use weir_core::queue::TimeUnit;
use weir_core::units::{Duration, Fixed, Fraction, Rate};

/// Why a word is not the number that was wanted. It shows no hidden character of the word.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bad {
    /// What is wrong.
    pub message: String,
    /// What was expected, or how to mend it.
    pub help: String,
    /// The word to write instead, where one follows.
    pub write: Option<String>,
}

impl Bad {
    /// Without a word to write instead.
    pub fn new(message: impl Into<String>, help: impl Into<String>) -> Self {
        Bad { message: on_one_line(&message.into()), help: on_one_line(&help.into()), write: None }
    }
    fn write(mut self, word: impl Into<String>) -> Self {
        self.write = Some(on_one_line(&word.into()));
        self
    }
    /// The same, unless digits stand in `rest`, which is not read: what was meant is not known then.
    fn write_what_is_read(self, rest: &str, word: String) -> Self {
        if rest.contains(|c: char| c.is_ascii_digit()) { self } else { self.write(word) }
    }
}

/// A number that was read, and a warning about how it is written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Read<T> {
    /// The number.
    pub value: T,
    /// What its writer may not have meant.
    pub warning: Option<Bad>,
}

fn plain<T>(value: T) -> Read<T> {
    Read { value, warning: None }
}

fn not_a_number(word: &str, expected: &str) -> Bad {
    Bad::new(format!("`{word}` is not a number"), expected.to_string())
}

/// An integer in base 0, as strtol reads it: `010` is eight, `0x10` sixteen.
pub fn integer(word: &str, expected: &str) -> Result<Read<i128>, Bad> {
    let (negative, digits) = match word.as_bytes().first() {
        Some(b'-') => (true, &word[1..]),
        Some(b'+') => (false, &word[1..]),
        _ => (false, word),
    };
    let (base, body) = match digits.get(..2) {
        Some("0x" | "0X") => (16, &digits[2..]),
        _ if digits.len() > 1 && digits.starts_with('0') => (8, &digits[1..]),
        _ => (10, digits),
    };
    let end = body.find(|c: char| !c.is_digit(base)).unwrap_or(body.len());
    let (number, rest) = body.split_at(end);
    if number.is_empty() && base != 8 {
        return Err(not_a_number(word, expected));
    }
    if number.len() > 30 {
        return Err(Bad::new(format!("`{word}` is too large"), expected.to_string()));
    }
    let magnitude =
        if number.is_empty() { 0 } else { i128::from_str_radix(number, base).unwrap_or(i128::MAX) };
    let value = if negative { -magnitude } else { magnitude };
    if !rest.is_empty() {
        let decimal = digits.trim_start_matches('0');
        if base == 8 && !decimal.is_empty() && decimal.bytes().all(|b| b.is_ascii_digit()) {
            let help = format!("a leading 0 means octal, and ALTQ reads `{word}` as {value}");
            return Err(Bad::new(format!("`{word}` is not an octal number"), help).write(decimal));
        }
        let message = format!("`{rest}` after the number in `{word}`");
        return Err(Bad::new(message, expected.to_string()).write(value.to_string()));
    }
    if base == 8 {
        let decimal = number.trim_start_matches('0');
        let help =
            format!("write `{value}`, or `{}` if ten is ten", if decimal.is_empty() { "0" } else { decimal });
        let warning = Bad::new(format!("`{word}` is octal: it means {value}"), help);
        return Ok(Read { value, warning: (value > 7).then_some(warning) });
    }
    Ok(plain(value))
}

/// A decimal number in front of a suffix: `mantissa / 10^scale`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Decimal<'a> {
    pub(crate) negative: bool,
    mantissa: u128,
    scale: u32,
    /// What follows the number, spaces between the two left out.
    pub(crate) suffix: &'a str,
}

impl Decimal<'_> {
    /// The number times `factor`, rounded to the nearest; `None` past 2^126.
    fn times(&self, factor: u128) -> Option<u128> {
        let divisor = 10u128.checked_pow(self.scale)?;
        let product = self.mantissa.checked_mul(factor)?;
        Some(product.checked_add(divisor / 2)? / divisor)
    }
    /// The same, if it comes out even.
    fn exactly(&self, factor: u128) -> Option<u128> {
        let divisor = 10u128.checked_pow(self.scale)?;
        let product = self.mantissa.checked_mul(factor)?;
        (product % divisor == 0).then_some(product / divisor)
    }
}

/// Splits a word into a decimal number and a suffix. At most 20 digits before and after the
/// point: with factors below 2^40 every product stays below 2^127.
pub(crate) fn decimal(word: &str) -> Option<Decimal<'_>> {
    let (negative, body) = match word.as_bytes().first()? {
        b'-' => (true, &word[1..]),
        b'+' => (false, &word[1..]),
        _ => (false, word),
    };
    let (mut mantissa, mut scale, mut digits, mut point) = (0u128, 0, 0, false);
    let mut end = body.len();
    for (at, c) in body.char_indices() {
        match c {
            '0'..='9' => {
                digits += 1;
                if digits > 24 {
                    return None;
                }
                mantissa = mantissa * 10 + u128::from(c as u8 - b'0');
                scale += u32::from(point);
            }
            '.' if !point => point = true,
            _ => {
                end = at;
                break;
            }
        }
    }
    let mut suffix = &body[end..];
    if digits == 0 {
        return None;
    }
    // An exponent, as strtod takes it: 1e6.
    if let Some(tail) = suffix.strip_prefix(['e', 'E']) {
        let signed = tail.strip_prefix('+').unwrap_or(tail);
        let stop = signed.char_indices().find(|(i, c)| !(c.is_ascii_digit() || *i == 0 && *c == '-'));
        let stop = stop.map_or(signed.len(), |(i, _)| i);
        if let Ok(exponent) = signed[..stop].parse::<i32>() {
            if !(-12..=12).contains(&exponent) {
                return None;
            }
            if exponent < 0 {
                scale += exponent.unsigned_abs();
            } else {
                let up = exponent as u32;
                let cut = up.min(scale);
                scale -= cut;
                mantissa = mantissa.checked_mul(10u128.pow(up - cut))?;
            }
            suffix = &signed[stop..];
        }
    }
    Some(Decimal { negative, mantissa, scale, suffix: suffix.trim_start() })
}

/// The number in front of a suffix, as it is written.
pub(crate) fn figure<'a>(word: &'a str, number: &Decimal<'_>) -> &'a str {
    word[..word.len() - number.suffix.len()].trim_end()
}

/// The highest rate that a file may name, 1 Tbit/s: no link is faster.
pub const MOST_RATE: Rate = Rate::from_bps(1_000_000_000_000);

/// A bit rate: `10M`, `64kbit`, `1.5Mbit`, `10 Mbit/s`, `9600`; at most [`MOST_RATE`].
pub fn rate(word: &str) -> Result<Rate, Bad> {
    const EXPECTED: &str = "a rate is bits per second, as in `10M`, `64K`, `1.5Mbit` or `9600`";
    let number = decimal(word).ok_or_else(|| not_a_number(word, EXPECTED))?;
    let figure = figure(word, &number);
    let lower = number.suffix.to_ascii_lowercase();
    let (unit, rest) = match lower.chars().next() {
        Some(c @ ('k' | 'm' | 'g' | 't')) => (c, &lower[1..]),
        _ => (' ', lower.as_str()),
    };
    let factor: u128 = match unit {
        'k' => 1_000,
        'm' => 1_000_000,
        'g' => 1_000_000_000,
        't' => 1_000_000_000_000,
        _ => 1,
    };
    match rest {
        "" | "bit" | "bit/s" => {}
        "bps" | "b" | "b/s" | "bits" | "bytes" | "byte" => {
            let letter = if unit == ' ' { String::new() } else { unit.to_uppercase().to_string() };
            let bits = format!("{figure}{letter}");
            if rest.starts_with("bit") {
                let message = format!("`{rest}` after the rate in `{word}`");
                return Err(Bad::new(message, EXPECTED).write(bits));
            }
            let bytes = scaled_by_eight(&number, &letter);
            let help = format!(
                "write `{bits}` if it is {bits} bits per second, `{bytes}` if it is {bits} bytes per second"
            );
            return Err(Bad::new(format!("`{word}` can be read in two ways"), help));
        }
        _ => {
            let shown = &number.suffix[number.suffix.len() - rest.len()..];
            let letter = if unit == ' ' { "" } else { &number.suffix[..1] };
            let message = format!("`{shown}` after the rate in `{word}`");
            return Err(Bad::new(message, EXPECTED).write_what_is_read(shown, format!("{figure}{letter}")));
        }
    }
    if number.negative && number.mantissa > 0 {
        return Err(Bad::new(format!("the rate `{word}` is negative"), EXPECTED));
    }
    let Some(bps) = number.exactly(factor) else {
        return Err(Bad::new(format!("`{word}` is not a whole number of bits per second"), EXPECTED));
    };
    match u64::try_from(bps).map(Rate::from_bps) {
        Ok(rate) if rate <= MOST_RATE => Ok(rate),
        _ => Err(Bad::new(format!("the rate `{word}` is too large"), format!("rates go up to {MOST_RATE}"))),
    }
}

fn scaled_by_eight(number: &Decimal<'_>, letter: &str) -> String {
    let eight = Decimal { mantissa: number.mantissa.saturating_mul(8), ..*number };
    format!("{}{letter}", decimal_text(&eight))
}

/// Bytes: `64K` is 65,536.
pub fn bytes(word: &str) -> Result<u64, Bad> {
    const EXPECTED: &str = "bytes are written as `1500`, `64K` or `1M`, with K = 1024";
    if let Some(hex) = word.strip_prefix("0x")
        && let Ok(value) = u64::from_str_radix(hex, 16)
    {
        return Ok(value);
    }
    let number = decimal(word).ok_or_else(|| not_a_number(word, EXPECTED))?;
    let figure = figure(word, &number);
    let (factor, rest): (u128, &str) = match number.suffix.as_bytes().first() {
        Some(b'k' | b'K') => (1 << 10, &number.suffix[1..]),
        Some(b'm' | b'M') => (1 << 20, &number.suffix[1..]),
        Some(b'g' | b'G') => (1 << 30, &number.suffix[1..]),
        _ => (1, number.suffix),
    };
    let thousand: Option<u128> = match (number.suffix, rest) {
        ("KB" | "kB", _) => Some(1_000),
        ("MB", _) => Some(1_000_000),
        ("GB", _) => Some(1_000_000_000),
        _ => None,
    };
    if let Some((small, large)) = thousand.and_then(|of| number.exactly(of).zip(number.exactly(factor))) {
        let message = format!("`{word}` can be read in two ways");
        let help = format!("write `{small}` or `{large}`");
        return Err(Bad::new(message, help).write(format!("{figure}{}", &number.suffix[..1])));
    }
    if !matches!((rest, factor > 1), ("", _) | ("B", false) | ("iB", true)) {
        let letter = if factor == 1 { "" } else { &number.suffix[..1] };
        let message = format!("`{rest}` after the size in `{word}`");
        return Err(Bad::new(message, EXPECTED).write(format!("{figure}{letter}")));
    }
    if number.negative && number.mantissa > 0 {
        return Err(Bad::new(format!("the size `{word}` is negative"), EXPECTED));
    }
    match number.exactly(factor).map(u64::try_from) {
        Some(Ok(bytes)) => Ok(bytes),
        Some(Err(_)) => Err(Bad::new(format!("the size `{word}` is too large"), EXPECTED)),
        None => Err(Bad::new(format!("`{word}` is not a whole number of bytes"), EXPECTED)),
    }
}

/// A time: `8ms`, `1.5s`, `2min`. A bare number is in `bare`; without it only 0 needs no unit.
pub fn time(word: &str, bare: Option<TimeUnit>) -> Result<Read<Duration>, Bad> {
    let (unit, nanos, expected) = match bare {
        Some(TimeUnit::Micros) => {
            ("us", 1_000u128, "a time is written as `8000` or `8ms`; a bare number is in us")
        }
        Some(TimeUnit::Millis) => {
            ("ms", 1_000_000u128, "a time is written as `8` or `8ms`; a bare number is in ms")
        }
        None => ("s", 1, "a time has a unit, as in `45s`, `5ms`, `300us`, `20ns` or `2min`"),
    };
    let number = decimal(word).ok_or_else(|| not_a_number(word, expected))?;
    let hexadecimal = word.starts_with("0x") && bare.is_some();
    let factor = match number.suffix {
        "" if bare.is_none() && number.mantissa > 0 => {
            return Err(Bad::new(format!("the time `{word}` has no unit"), expected));
        }
        "" => nanos,
        "ns" => 1,
        "us" | "µs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "min" => 60_000_000_000,
        _ if hexadecimal => nanos,
        rest => {
            let figure = figure(word, &number);
            let help = format!("{expected}; units are ns, us, ms, s and min");
            return Err(Bad::new(format!("`{rest}` after the time in `{word}`"), help)
                .write_what_is_read(rest, format!("{figure}{unit}")));
        }
    };
    let too_long = || Bad::new(format!("the time `{word}` is too long"), expected);
    if bare.is_some() && (number.suffix.is_empty() || hexadecimal) {
        if number.scale > 0 && number.suffix.is_empty() {
            let help = format!("ALTQ cuts it off to a whole number: {expected}");
            let message = format!("`{word}` has a fraction and no unit");
            return Err(Bad::new(message, help).write(format!("{word}{unit}")));
        }
        let read = integer(word, expected)?;
        if read.value < 0 {
            return Err(Bad::new(format!("the time `{word}` is negative"), expected));
        }
        let ns = (read.value as u128).checked_mul(nanos).and_then(|ns| u64::try_from(ns).ok());
        let value = Duration::from_nanos(ns.ok_or_else(too_long)?);
        return Ok(Read { value, warning: read.warning });
    }
    if number.negative && number.mantissa > 0 {
        return Err(Bad::new(format!("the time `{word}` is negative"), expected));
    }
    let ns = number.exactly(factor);
    let Some(ns) = ns else {
        return Err(Bad::new(format!("`{word}` is finer than a nanosecond"), expected));
    };
    Ok(plain(Duration::from_nanos(u64::try_from(ns).map_err(|_| too_long())?)))
}

/// A number from 0 to 1.
pub fn fraction(word: &str) -> Result<Fraction, Bad> {
    const EXPECTED: &str = "a number from 0 to 1, as in `0.01` for one percent";
    let number = decimal(word).ok_or_else(|| not_a_number(word, EXPECTED))?;
    if number.suffix == "%" {
        let percent = Decimal { scale: number.scale + 2, ..number };
        let message = format!("`%` after the number in `{word}`");
        return Err(Bad::new(message, EXPECTED).write(decimal_text(&percent)));
    }
    share(word, &number, 1, EXPECTED)
}

/// Percent, 0 to 100.
pub fn percent(word: &str) -> Result<Read<Fraction>, Bad> {
    const EXPECTED: &str = "percent, from 0 to 100, as in `25` or `2.5`";
    let number = decimal(word).ok_or_else(|| not_a_number(word, EXPECTED))?;
    let whole = word.len() > 1 && word.starts_with('0') && !word.contains('.');
    if whole && !number.suffix.starts_with('%') {
        let read = integer(word, EXPECTED)?;
        let number = Decimal { negative: false, mantissa: read.value as u128, scale: 0, suffix: "" };
        return Ok(Read { value: share(word, &number, 100, EXPECTED)?, warning: read.warning });
    }
    share(word, &number, 100, EXPECTED).map(plain)
}

fn share(word: &str, number: &Decimal<'_>, whole: u128, expected: &str) -> Result<Fraction, Bad> {
    let figure = figure(word, number);
    if !number.suffix.is_empty() {
        let message = format!("`{}` after the number in `{word}`", number.suffix);
        return Err(Bad::new(message, expected).write(figure));
    }
    if number.negative && number.mantissa > 0 {
        return Err(Bad::new(format!("`{word}` is negative"), expected));
    }
    let scaled = Decimal { scale: number.scale + if whole == 100 { 2 } else { 0 }, ..*number };
    match scaled.times(1 << 32) {
        Some(raw) if raw <= 1 << 32 => Ok(Fraction::ratio(raw as u64, 1 << 32)),
        _ => Err(Bad::new(format!("`{word}` is too large"), expected)),
    }
}

/// A positive real number, for `rdc` and `rlc`.
pub fn real(word: &str) -> Result<Read<Fixed>, Bad> {
    const EXPECTED: &str = "a number above 0, as in `2` or `1.5`";
    let number = decimal(word).ok_or_else(|| not_a_number(word, EXPECTED))?;
    let mut warning = None;
    let number = if word.len() > 1 && word.starts_with('0') && !word.contains('.') {
        let read = integer(word, EXPECTED)?;
        warning = read.warning;
        Decimal { negative: false, mantissa: read.value.unsigned_abs(), scale: 0, suffix: "" }
    } else {
        number
    };
    if !number.suffix.is_empty() {
        let figure = figure(word, &number);
        let message = format!("`{}` after the number in `{word}`", number.suffix);
        return Err(Bad::new(message, EXPECTED).write(figure));
    }
    match number.times(1 << 32).map(i64::try_from) {
        Some(Ok(raw)) if raw > 0 && !number.negative => Ok(Read { value: Fixed::from_raw(raw), warning }),
        Some(Err(_)) | None => Err(Bad::new(format!("`{word}` is too large"), EXPECTED)),
        _ => Err(Bad::new(format!("`{word}` is not above 0"), EXPECTED)),
    }
}

fn decimal_text(number: &Decimal<'_>) -> String {
    let divisor = 10u128.checked_pow(number.scale).unwrap_or(1);
    let (whole, part) = (number.mantissa / divisor, number.mantissa % divisor);
    let digits = format!("{part:0width$}", width = number.scale as usize);
    match digits.trim_end_matches('0') {
        "" => whole.to_string(),
        digits => format!("{whole}.{digits}"),
    }
}

/// The shortest decimal that reads back as `raw` units of 2^-32, times `whole`.
pub fn shortest(raw: u64, whole: u128) -> String {
    let exact = u128::from(raw) * whole;
    for scale in 0..=14 {
        let power = 10u128.pow(scale);
        // Round to `scale` digits: exact * power < 2^(64 + 7 + 47) stays in 128 bits.
        let mantissa = (exact * power + (1 << 31)) >> 32;
        let number = Decimal { negative: false, mantissa, scale, suffix: "" };
        let back = Decimal { scale: scale + if whole == 100 { 2 } else { 0 }, ..number };
        if back.times(1 << 32) == Some(u128::from(raw)) {
            return decimal_text(&number);
        }
    }
    decimal_text(&Decimal {
        negative: false,
        mantissa: (exact * 10u128.pow(14)) >> 32,
        scale: 14,
        suffix: "",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_zero_integers() {
        assert_eq!(integer("42", "").map(|r| r.value), Ok(42));
        assert_eq!(integer("0x10", "").map(|r| (r.value, r.warning)), Ok((16, None)));
        assert_eq!(integer("-1", "").map(|r| r.value), Ok(-1));
        assert_eq!(integer("0", "").map(|r| (r.value, r.warning)), Ok((0, None)));
        let octal = integer("010", "").unwrap();
        assert_eq!(
            (octal.value, octal.warning.unwrap().help.as_str()),
            (8, "write `8`, or `10` if ten is ten")
        );
        assert_eq!(integer("08", "").unwrap_err().write.as_deref(), Some("8"));
        assert_eq!(integer("12abc", "").unwrap_err().write.as_deref(), Some("12"));
        for bad in ["", "abc", "-", "0x", "99999999999999999999999999999999"] {
            assert!(integer(bad, "").is_err(), "{bad}");
        }
    }

    #[test]
    fn rates_in_bits() {
        for (word, bps) in [
            ("10M", 10_000_000),
            ("10mbit", 10_000_000),
            ("64kbit", 64_000),
            ("64K", 64_000),
            ("1.5M", 1_500_000),
            ("9600", 9_600),
            ("400G", 400_000_000_000),
            ("0.4T", 400_000_000_000),
            ("1 Tbit/s", 1_000_000_000_000),
            ("1e6", 1_000_000),
            ("1.25e3k", 1_250_000),
            ("2bit", 2),
            ("10 Mbit/s", 10_000_000),
            ("0", 0),
        ] {
            assert_eq!(rate(word).map(Rate::as_bps), Ok(bps), "{word}");
        }
        let both = rate("10Mbps").unwrap_err();
        assert_eq!(both.message, "`10Mbps` can be read in two ways");
        assert_eq!(
            both.help,
            "write `10M` if it is 10M bits per second, `80M` if it is 10M bytes per second"
        );
        assert!(rate("2.2MB").unwrap_err().help.contains("`17.6M`"));
        assert_eq!(rate("10Mx").unwrap_err().write.as_deref(), Some("10M"));
        for bad in ["", "M", "-1M", "0.5", "1e99", "99999999999G", "1001G", "1.1T", "1..2M", "é"] {
            assert!(rate(bad).is_err(), "{bad}");
        }
        assert_eq!(rate("2T").unwrap_err().help, "rates go up to 1T");
    }

    #[test]
    fn bytes_in_1024() {
        assert_eq!(bytes("64K"), Ok(65_536));
        assert_eq!(bytes("1.5k"), Ok(1_536));
        assert_eq!(bytes("0x1000"), Ok(4_096));
        assert_eq!((bytes("64KiB"), bytes("1500 B")), (Ok(65_536), Ok(1_500)));
        let both = bytes("64KB").unwrap_err();
        assert_eq!((both.help.as_str(), both.write.as_deref()), ("write `64000` or `65536`", Some("64K")));
        assert!(bytes("-1").is_err());
    }

    #[test]
    fn times_with_and_without_suffix() {
        let read = |w, unit| time(w, Some(unit)).map(|r| r.value.as_nanos());
        assert_eq!(read("8000", TimeUnit::Micros), Ok(8_000_000));
        assert_eq!(read("8ms", TimeUnit::Micros), Ok(8_000_000));
        assert_eq!(read("8", TimeUnit::Millis), Ok(8_000_000));
        assert_eq!(read("1.5us", TimeUnit::Millis), Ok(1_500));
        assert_eq!(read("0x10", TimeUnit::Micros), Ok(16_000));
        assert_eq!(time("1.5", Some(TimeUnit::Micros)).unwrap_err().write.as_deref(), Some("1.5us"));
        assert!(time("010", Some(TimeUnit::Micros)).unwrap().warning.is_some());
        for bad in ["1.5x", "-3", "0.1ns", "99999999999s", "s"] {
            assert!(time(bad, Some(TimeUnit::Millis)).is_err(), "{bad}");
            assert!(time(bad, None).is_err(), "{bad}");
        }
        let with_unit = |w| time(w, None).map(|r| r.value.as_nanos());
        assert_eq!((with_unit("0"), with_unit("2 min")), (Ok(0), Ok(120_000_000_000)));
        assert_eq!(with_unit("5").unwrap_err().message, "the time `5` has no unit");
        assert_eq!((with_unit("010s"), with_unit("1.5us")), (Ok(10_000_000_000), Ok(1_500)));
    }

    #[test]
    fn shares_read_back_as_the_same_number() {
        assert_eq!(fraction("0.01").map(|f| shortest(f.raw(), 1)).as_deref(), Ok("0.01"));
        assert_eq!(percent("33.3").map(|f| shortest(f.value.raw(), 100)).as_deref(), Ok("33.3"));
        assert_eq!(percent("100").map(|r| r.value), Ok(Fraction::ONE));
        assert_eq!(fraction("1%").unwrap_err().write.as_deref(), Some("0.01"));
        assert!(percent("101").is_err() && fraction("1.01").is_err() && fraction("-0.5").is_err());
        for raw in [0u64, 1, 2, 3, 12_345_678, (1 << 32) - 1, 1 << 32] {
            let text = shortest(raw, 100);
            assert_eq!(percent(&text).map(|r| r.value.raw()), Ok(raw), "{text}");
            let text = shortest(raw, 1);
            assert_eq!(fraction(&text).map(Fraction::raw), Ok(raw), "{text}");
        }
        assert_eq!(real("1.5").map(|r| r.value), Ok(Fixed::ratio(3, 2).unwrap()));
        assert!(real("0").is_err() && real("-2").is_err() && real("2x").is_err());
    }
}
