//! Parameters of disciplines: their values, as a configuration hands them over, and what is wrong with one.

use crate::units::{Duration, Fixed, Fraction, Rate};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

/// A two-piece linear service curve (Stoica, Zhang and Ng, SIGCOMM 1997, section 4).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Curve {
    /// Rate until `d`.
    pub m1: Rate,
    /// Where the slope changes.
    pub d: Duration,
    /// Rate from `d` on.
    pub m2: Rate,
}

impl Curve {
    /// True if it never serves a byte.
    pub fn serves_nothing(&self) -> bool {
        self.m2.is_zero() && (self.d.is_zero() || self.m1.is_zero())
    }
}

/// A parameter's value.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// The word stands there.
    Flag,
    /// A whole number.
    Count(u64),
    /// Bytes.
    Bytes(u64),
    /// A rate.
    Rate(Rate),
    /// A time.
    Time(Duration),
    /// A share.
    Fraction(Fraction),
    /// A real number.
    Real(Fixed),
    /// One of the declared words.
    Word(&'static str),
    /// A service curve.
    Curve(Curve),
}

impl fmt::Display for Value {
    /// As a configuration reads it, without the keyword. Fractions print as numbers from 0 to 1.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Flag => Ok(()),
            Value::Count(n) | Value::Bytes(n) => write!(f, "{n}"),
            Value::Rate(r) => write!(f, "{r}"),
            Value::Time(t) => write!(f, "{t}"),
            Value::Fraction(p) => write!(f, "{}", Fixed::from_raw(p.raw() as i64)),
            Value::Real(x) => write!(f, "{x}"),
            Value::Word(w) => f.write_str(w),
            Value::Curve(c) => write!(f, "[{} {} {}]", c.m1, c.d, c.m2),
        }
    }
}

/// The parameters that a configuration gives, by keyword. What was not given is absent.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Params(Vec<(&'static str, Value)>);

macro_rules! getter {
    ($(#[$doc:meta])* $name:ident, $variant:ident, $type:ty) => {
        $(#[$doc])*
        pub fn $name(&self, name: &str) -> Option<$type> {
            match self.get(name) {
                Some(Value::$variant(v)) => Some(*v),
                _ => None,
            }
        }
    };
}

impl Params {
    /// None given.
    pub const fn new() -> Self {
        Params(Vec::new())
    }
    /// Sets a value, replacing an earlier one of the same name.
    pub fn set(&mut self, name: &'static str, value: Value) {
        match self.0.iter_mut().find(|(n, _)| *n == name) {
            Some(slot) => slot.1 = value,
            None => {
                // A hundred thousand classes have one each.
                self.0.reserve_exact(usize::from(self.0.is_empty()));
                self.0.push((name, value));
            }
        }
    }
    /// Takes a value away.
    pub fn remove(&mut self, name: &str) {
        self.0.retain(|(n, _)| *n != name);
    }
    /// `set`, chained: for tests and programs.
    pub fn with(mut self, name: &'static str, value: Value) -> Self {
        self.set(name, value);
        self
    }
    /// The value given, if any.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(n, _)| *n == name).map(|(_, v)| v)
    }
    /// All that were given, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Value)> {
        self.0.iter().map(|(n, v)| (*n, v))
    }
    /// True if the keyword was given, whatever its kind.
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }
    getter!(
        /// A whole number.
        count, Count, u64
    );
    getter!(
        /// Bytes.
        bytes, Bytes, u64
    );
    getter!(
        /// A rate.
        rate, Rate, Rate
    );
    getter!(
        /// A time.
        time, Time, Duration
    );
    getter!(
        /// A share, from a percentage or a fraction.
        fraction, Fraction, Fraction
    );
    getter!(
        /// A real number.
        real, Real, Fixed
    );
    getter!(
        /// One of the declared words.
        word, Word, &'static str
    );
    getter!(
        /// A service curve.
        curve, Curve, Curve
    );
}

/// A person's mistake in a parameter: what was found where, what was expected, how to mend it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParamError {
    /// The class that the parameter belongs to; empty for the discipline itself.
    pub class: String,
    /// The keyword.
    pub field: String,
    /// What was found, as the person would recognise it.
    pub found: String,
    /// What is allowed, and what to write instead.
    pub expected: String,
}

impl ParamError {
    /// An error about `field` of `class`.
    pub fn new(class: &str, field: &str, found: impl ToString, expected: impl ToString) -> Self {
        ParamError {
            class: class.to_string(),
            field: field.to_string(),
            found: found.to_string(),
            expected: expected.to_string(),
        }
    }
}

impl fmt::Display for ParamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let class = if self.class.is_empty() { String::new() } else { format!("class {}: ", self.class) };
        write!(f, "{class}{}: found {}, expected {}", self.field, self.found, self.expected)
    }
}
impl core::error::Error for ParamError {}
