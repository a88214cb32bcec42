//! Parameters of disciplines: how each is declared once.
//!
//! A discipline declares its parameters as `ParamSpec`s in its registry entry. The reader of
//! altq.conf turns words into [`Value`]s by these, `weir disciplines NAME` prints them, and the
//! discipline reads the values by name when it is built.

use super::values::{ParamError, Params, Value};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

/// What a bare number of a time means; a suffix (`us`, `ms`, `s`) always says what it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeUnit {
    /// Microseconds, as `adc` and `holdtime`.
    Micros,
    /// Milliseconds, as `maxdelay`.
    Millis,
}

/// What a parameter's value looks like in a configuration.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Kind {
    /// A word alone: present or not.
    Flag,
    /// A whole number within bounds, inclusive.
    Count {
        /// Least allowed.
        min: u64,
        /// Most allowed.
        max: u64,
    },
    /// Bytes, with suffixes of 1024.
    Bytes {
        /// Least allowed.
        min: u64,
        /// Most allowed.
        max: u64,
    },
    /// Bits per second, with suffixes of 1000.
    Rate,
    /// A span of time.
    Time {
        /// Unit of a bare number.
        bare: TimeUnit,
    },
    /// Percent, 0 to 100, decimals allowed; becomes a `Fraction`.
    Percent,
    /// A number from 0 to 1; becomes a `Fraction`.
    Fraction,
    /// A positive real number.
    Real,
    /// One of a set of words.
    Word(&'static [&'static str]),
    /// A service curve: `[m1 d m2]`.
    Curve,
}

/// Numbers of bytes from `min` to `max` as they are typed, for help: "`1500` or `64K`".
pub fn bytes_as_typed(min: u64, max: u64) -> String {
    let known = [("`1500`", 1500), ("`64K`", 65_536), ("`8K`", 8192)];
    let mut fit = known.into_iter().filter(|(_, bytes)| (min..=max).contains(bytes)).map(|(text, _)| text);
    match (fit.next(), fit.next()) {
        (Some(one), Some(other)) => format!("{one} or {other}"),
        (Some(one), None) => one.to_string(),
        (None, _) => format!("`{max}`"),
    }
}

impl fmt::Display for Kind {
    /// As `weir disciplines` and the book show it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Flag => f.write_str("flag"),
            Kind::Count { min, max } => write!(f, "{min}..{max}"),
            Kind::Bytes { min, max } => write!(f, "bytes {min}..{max}"),
            Kind::Rate => f.write_str("bit/s"),
            Kind::Time { bare: TimeUnit::Micros } => f.write_str("time, bare us"),
            Kind::Time { bare: TimeUnit::Millis } => f.write_str("time, bare ms"),
            Kind::Percent => f.write_str("percent"),
            Kind::Fraction => f.write_str("0..1"),
            Kind::Real => f.write_str("real"),
            Kind::Word(words) => {
                for (i, word) in words.iter().enumerate() {
                    write!(f, "{}{word}", if i == 0 { "" } else { "|" })?;
                }
                Ok(())
            }
            Kind::Curve => f.write_str("[m1 d m2]"),
        }
    }
}

/// Where a parameter may stand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// On the discipline itself: an `interface` line, or a class that names it as its queue.
    Discipline,
    /// On each of its classes.
    Class,
}

/// What a count keeps besides its range. The reader of a file says so at its place, where the count is not 0; the discipline
/// refuses it too, where it could not run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bound {
    /// It is a power of two.
    PowerOfTwo,
    /// It is above another count, where both are given.
    Above {
        /// The other keyword.
        word: &'static str,
        /// What lies between the two.
        why: &'static str,
    },
    /// It is at most the limit of the queue, or never reached: a warning.
    InQueue,
}

/// The declaration of one parameter.
#[derive(Clone, Copy, Debug)]
pub struct ParamSpec {
    /// The keyword.
    pub name: &'static str,
    /// Form and range.
    pub kind: Kind,
    /// Where it stands.
    pub scope: Scope,
    /// True if `-1` may be written for "none".
    pub none: bool,
    /// The default, as a reader would write it; empty where there is none.
    pub default: &'static str,
    /// What it does, in one sentence, with the unit.
    pub help: &'static str,
    /// What it keeps besides.
    pub bounds: &'static [Bound],
}

impl ParamSpec {
    /// A parameter of the discipline itself.
    pub const fn discipline(
        name: &'static str,
        kind: Kind,
        default: &'static str,
        help: &'static str,
    ) -> Self {
        ParamSpec { name, kind, scope: Scope::Discipline, none: false, default, help, bounds: &[] }
    }
    /// A parameter of its classes.
    pub const fn class(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Self {
        ParamSpec { name, kind, scope: Scope::Class, none: false, default, help, bounds: &[] }
    }
    /// How its value is typed, with range and unit; what can be typed as it stands is in backticks.
    pub fn form(&self) -> String {
        let none = if self.none { "; `-1` for none" } else { "" };
        let form = match self.kind {
            Kind::Flag => "the word alone".to_string(),
            Kind::Count { min, max } => format!("`{min}` to `{max}`"),
            Kind::Bytes { min, max } => {
                format!("bytes, {} (K is 1024): `{min}` to `{max}`", bytes_as_typed(min, max))
            }
            Kind::Rate => "bit/s, `64K` or `10M` (K is 1000)".to_string(),
            Kind::Time { bare: TimeUnit::Micros } => "`300us` or `8ms`; a bare number is in us".to_string(),
            Kind::Time { bare: TimeUnit::Millis } => "`300us` or `8ms`; a bare number is in ms".to_string(),
            Kind::Percent => "percent, `14` or `2.5`".to_string(),
            Kind::Fraction => "`0` to `1`, such as `0.1`".to_string(),
            Kind::Real => "above 0, such as `1.5`".to_string(),
            Kind::Word(words) => words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", "),
            Kind::Curve => {
                format!("[{0} m1 d m2], such as `[{0} 4M 5ms 1M]` or `[{0} 1M]`", self.name)
            }
        };
        form + none
    }
    /// Refuses a value of another kind, or out of range. Rates, times and curves have no range
    /// here: which of them make sense is the discipline's to say.
    ///
    /// # Errors
    /// `ParamError` with the form that is expected.
    pub fn accept(&self, class: &str, value: &Value) -> Result<(), ParamError> {
        let fits = match (self.kind, value) {
            (Kind::Flag, Value::Flag) | (Kind::Rate, Value::Rate(_)) => true,
            (Kind::Count { min, max }, Value::Count(n)) | (Kind::Bytes { min, max }, Value::Bytes(n)) => {
                (min..=max).contains(n)
            }
            (Kind::Time { .. }, Value::Time(_)) | (Kind::Curve, Value::Curve(_)) => true,
            // A fraction is at most one by itself.
            (Kind::Percent | Kind::Fraction, Value::Fraction(_)) => true,
            (Kind::Real, Value::Real(n)) => n.raw() > 0,
            (Kind::Word(words), Value::Word(word)) => words.contains(word),
            _ => false,
        };
        if fits {
            return Ok(());
        }
        let expected = match self.kind {
            Kind::Flag => "no value: the word alone".to_string(),
            kind => kind.to_string(),
        };
        let found = match value {
            Value::Flag => "the word alone".to_string(),
            value => value.to_string(),
        };
        Err(ParamError::new(class, self.name, found, expected))
    }
    /// The same, which keeps `bounds` besides.
    pub const fn within(mut self, bounds: &'static [Bound]) -> Self {
        self.bounds = bounds;
        self
    }
    /// The same, where `-1` means none.
    pub const fn or_none(mut self) -> Self {
        self.none = true;
        self
    }
    /// The default as a number of its smallest unit: a count, bytes, nanoseconds, 2^-32 of a whole
    /// (rounded down).
    ///
    /// # Panics
    /// If the default is no number of the parameter's kind, as `MTU` is none. In a constant the
    /// compiler says so.
    pub const fn default_number(&self) -> u64 {
        let text = self.default.as_bytes();
        let (mut mantissa, mut scale, mut point, mut at) = (0u128, 1u128, false, 0);
        while at < text.len() && (text[at].is_ascii_digit() || text[at] == b'.') {
            if text[at] == b'.' {
                assert!(!point, "a default with two points");
                point = true;
            } else {
                mantissa = mantissa * 10 + (text[at] - b'0') as u128;
                scale *= if point { 10 } else { 1 };
            }
            at += 1;
        }
        assert!(at > 0, "a default that is no number");
        let (_, suffix) = text.split_at(at);
        let unit: u128 = match (self.kind, suffix) {
            (Kind::Count { .. } | Kind::Bytes { .. }, b"") => 1,
            (Kind::Bytes { .. }, b"K") => 1 << 10,
            (Kind::Bytes { .. }, b"M") => 1 << 20,
            (Kind::Time { bare: TimeUnit::Micros }, b"") | (Kind::Time { .. }, b"us") => 1_000,
            (Kind::Time { bare: TimeUnit::Millis }, b"") | (Kind::Time { .. }, b"ms") => 1_000_000,
            (Kind::Time { .. }, b"s") => 1_000_000_000,
            (Kind::Fraction, b"") => 1 << 32,
            (Kind::Percent, b"") => {
                scale *= 100;
                1 << 32
            }
            _ => panic!("a default in no unit of its kind"),
        };
        (mantissa * unit / scale) as u64
    }
}

const fn position(specs: &[ParamSpec], name: &str) -> usize {
    let name = name.as_bytes();
    let mut index = 0;
    while index < specs.len() {
        let other = specs[index].name.as_bytes();
        let (mut same, mut at) = (other.len() == name.len(), 0);
        while same && at < name.len() {
            same = other[at] == name[at];
            at += 1;
        }
        if same {
            return index;
        }
        index += 1;
    }
    panic!("no parameter of that name")
}

/// The declaration of the parameter `name`, for constants.
///
/// # Panics
/// If no parameter has that name. In a constant the compiler says so.
pub const fn spec_of(specs: &[ParamSpec], name: &str) -> ParamSpec {
    specs[position(specs, name)]
}

/// `ParamSpec::default_number` of the parameter `name`: for the constants of a discipline, so that
/// its defaults stand in the declarations alone.
///
/// # Panics
/// If no parameter has that name, or its default is no number.
pub const fn default_of(specs: &[ParamSpec], name: &str) -> u64 {
    specs[position(specs, name)].default_number()
}

/// The default of the parameter `name`, which is one of a set of words.
///
/// # Panics
/// If no parameter has that name.
pub const fn default_word(specs: &[ParamSpec], name: &str) -> &'static str {
    specs[position(specs, name)].default
}

/// Another name in altq.conf, and the flag that it implies, if any.
#[derive(Clone, Copy, Debug)]
pub struct Alias {
    /// The other name.
    pub name: &'static str,
    /// A `Kind::Flag` parameter of the discipline that it sets.
    pub implies: Option<&'static str>,
}

/// The declaration of `name` in `groups`.
pub fn find(groups: &[&'static [ParamSpec]], scope: Scope, name: &str) -> Option<&'static ParamSpec> {
    groups.iter().flat_map(|group| group.iter()).find(|p| p.scope == scope && p.name == name)
}

/// Refuses what `groups` does not declare in `scope`, values of another kind, and values out of
/// range: the first thing that a discipline does with parameters.
///
/// # Errors
/// `ParamError` for the first of them.
pub fn accept(
    groups: &[&'static [ParamSpec]],
    scope: Scope,
    class: &str,
    params: &Params,
) -> Result<(), ParamError> {
    judge(groups, scope, class, params, |name| Err(unknown(class, name, groups, scope)))
}

/// The same for a class whose queue takes words of its own: what `groups` do not declare is left to
/// the queue.
///
/// # Errors
/// `ParamError` for the first that is of another kind or out of range.
pub fn accept_declared(
    groups: &[&'static [ParamSpec]],
    scope: Scope,
    class: &str,
    params: &Params,
) -> Result<(), ParamError> {
    judge(groups, scope, class, params, |_| Ok(()))
}

/// The first refusal, in the order of `params`; `stranger` says what is thought of an undeclared name.
fn judge(
    groups: &[&'static [ParamSpec]],
    scope: Scope,
    class: &str,
    params: &Params,
    stranger: impl Fn(&str) -> Result<(), ParamError>,
) -> Result<(), ParamError> {
    params.iter().try_for_each(|(name, value)| match find(groups, scope, name) {
        Some(spec) => spec.accept(class, value),
        None => stranger(name),
    })
}

/// The refusal of a word that nobody declares.
pub(crate) fn unknown(class: &str, name: &str, groups: &[&'static [ParamSpec]], scope: Scope) -> ParamError {
    let all = groups.iter().flat_map(|group| group.iter()).filter(|p| p.scope == scope);
    let names: Vec<&str> = all.map(|p| p.name).collect();
    let expected = match names.is_empty() {
        true => "nothing: there are no parameters here".to_string(),
        false => format!("one of {}", names.join(", ")),
    };
    ParamError::new(class, name, "a word that is not known here", expected)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Fraction;

    const NUMBER: Kind = Kind::Count { min: 1, max: 9 };
    const SIZE: Kind = Kind::Bytes { min: 1, max: 1 << 32 };
    const MILLIS: Kind = Kind::Time { bare: TimeUnit::Millis };
    const MICROS: Kind = Kind::Time { bare: TimeUnit::Micros };

    #[test]
    fn examples_of_bytes_are_in_range() {
        let typed = [(1, 1 << 32), (1, 65_535), (1_500, 1_500), (1_501, 60_000), (9_000, 60_000)];
        let shown = typed.map(|(min, max)| bytes_as_typed(min, max));
        assert_eq!(shown, ["`1500` or `64K`", "`1500` or `8K`", "`1500`", "`8K`", "`60000`"]);
    }

    const fn spec(kind: Kind, default: &'static str) -> ParamSpec {
        ParamSpec::discipline("x", kind, default, "")
    }

    #[test]
    fn a_default_counts_in_the_smallest_unit() {
        for (kind, default, number) in [
            (NUMBER, "7", 7),
            (SIZE, "1500", 1500),
            (SIZE, "64K", 65_536),
            (SIZE, "2M", 2 << 20),
            (MILLIS, "5", 5_000_000),
            (MICROS, "1000", 1_000_000),
            (MILLIS, "800us", 800_000),
            (MICROS, "15ms", 15_000_000),
            (MILLIS, "1.5s", 1_500_000_000),
            (Kind::Fraction, "0.1", Fraction::ratio(1, 10).raw()),
            (Kind::Percent, "10", Fraction::ratio(1, 10).raw()),
            (Kind::Percent, "100", Fraction::ONE.raw()),
        ] {
            assert_eq!(spec(kind, default).default_number(), number, "{kind} {default}");
        }
        const OF: u64 = default_of(&[spec(NUMBER, "3"), ParamSpec::class("xy", NUMBER, "4", "")], "xy");
        assert_eq!(OF, 4);
    }

    #[test]
    #[should_panic(expected = "a default that is no number")]
    fn a_word_is_no_number() {
        spec(SIZE, "MTU").default_number();
    }

    #[test]
    fn what_is_declared_is_held_to_its_range_and_the_rest_left() {
        const GROUPS: &[&[ParamSpec]] = &[&[ParamSpec::class("x", NUMBER, "3", "")]];
        let check = |name, n| {
            let params = Params::new().with(name, Value::Count(n));
            accept_declared(GROUPS, Scope::Class, "c", &params).is_ok()
        };
        assert_eq!((check("x", 9), check("x", 10), check("y", 10)), (true, false, true));
    }
    #[test]
    fn bytes_are_shown_as_they_are_typed() {
        for (min, max, shown) in [
            (64, 65_536, "`1500` or `64K`"),
            (64, 65_535, "`1500` or `8K`"),
            (2_000, 8_192, "`8K`"),
            (2_000, 8_191, "`8191`"),
        ] {
            assert_eq!(bytes_as_typed(min, max), shown, "{min} to {max}");
        }
    }
}
