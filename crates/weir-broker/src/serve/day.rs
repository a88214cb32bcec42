//! Days as a configuration and a request write them.

use serde::de::Error;
use serde::{Deserialize, Deserializer};

/// The start of a day, in milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Day(pub u64);

impl Day {
    /// `YYYY-MM-DD`, from 1970 on.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-').map(|part| part.parse::<u64>().ok());
        let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
        let leap = year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
        let months = [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let fits = (1970..=9999).contains(&year) && (1..=12).contains(&month) && parts.next().is_none();
        if !fits || !(1..=months[month as usize - 1]).contains(&day) {
            return None;
        }
        let before = year - 1;
        let years = (year - 1970) * 365 + before / 4 - before / 100 + before / 400 - 477;
        let days = years + months[..month as usize - 1].iter().sum::<u64>() + day - 1;
        Some(Day(days * 86_400_000))
    }
}

impl<'de> Deserialize<'de> for Day {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Day::parse(&text).ok_or_else(|| {
            D::Error::custom(format!("{text}: expected a day from 1970 on, as \"2027-11-22\""))
        })
    }
}
