//! What an edge leaves to the process that takes over: flows, meters and counters as numbers, and what was set.

use super::{Kept, LiveEdge};
use serde::{Deserialize, Serialize};
use std::io;
use weir_core::queue::{Kind, Value};
use weir_core::units::{Duration, Fixed, Fraction, Instant, Rate};
use weir_edge::handlers::{self, Handler, Setting};

/// An edge, without its numbers.
#[derive(Serialize, Deserialize)]
pub(crate) struct EdgeEstate {
    /// Its classes, in the order in which the numbers have them, and what was set of each.
    classes: Vec<(String, Vec<Set>)>,
    /// How many numbers there are.
    numbers: usize,
}

/// A setting: the handler, what the file said, and what it is.
#[derive(Serialize, Deserialize)]
struct Set(String, Option<Worth>, Option<Worth>);

/// A value of a handler.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Worth {
    Word(String),
    Count(u64),
    Bps(u64),
    Nanos(u64),
    Share(u64),
    Real(i64),
}

impl Worth {
    /// None for a kind that no handler has.
    fn of(value: &Value) -> Option<Worth> {
        Some(match value {
            Value::Word(word) => Worth::Word((*word).to_owned()),
            Value::Count(count) => Worth::Count(*count),
            Value::Rate(rate) => Worth::Bps(rate.as_bps()),
            Value::Time(time) => Worth::Nanos(time.as_nanos()),
            Value::Fraction(share) => Worth::Share(share.raw()),
            Value::Real(real) => Worth::Real(real.raw()),
            Value::Flag | Value::Bytes(_) | Value::Curve(_) => return None,
        })
    }
    /// None for a word that the handler does not know.
    fn value(&self, handler: &Handler) -> Option<Value> {
        Some(match self {
            Worth::Word(word) => {
                let Kind::Word(words) = handler.spec.kind else { return None };
                Value::Word(words.iter().find(|known| *known == word)?)
            }
            Worth::Count(count) => Value::Count(*count),
            Worth::Bps(bps) => Value::Rate(Rate::from_bps(*bps)),
            Worth::Nanos(nanos) => Value::Time(Duration::from_nanos(*nanos)),
            Worth::Share(share) => Value::Fraction(Fraction::ratio(*share, 1 << 32)),
            Worth::Real(real) => Value::Real(Fixed::from_raw(*real)),
        })
    }
}

impl Set {
    fn of(setting: &Setting) -> Set {
        let worth = |value: &Option<Value>| value.as_ref().and_then(Worth::of);
        Set(setting.handler.name.to_owned(), worth(&setting.filed), worth(&setting.set))
    }
    /// None if this version has no such handler, or it has no such value.
    fn setting(&self) -> Option<Setting> {
        let Set(name, filed, set) = self;
        let handler = handlers::find(name)?;
        let value = |worth: &Option<Worth>| match worth {
            Some(worth) => worth.value(handler).map(Some),
            None => Some(None),
        };
        Some(Setting { handler, filed: value(filed)?, set: value(set)? })
    }
}

impl EdgeEstate {
    /// Its numbers, which stand first, and the bytes behind them.
    pub(crate) fn split<'b>(&self, bytes: &'b [u8]) -> Option<(Vec<u64>, &'b [u8])> {
        let (mine, rest) = bytes.split_at_checked(self.numbers.checked_mul(8)?)?;
        Some((mine.as_chunks().0.iter().map(|number| u64::from_le_bytes(*number)).collect(), rest))
    }
}

impl LiveEdge {
    /// What it has, its numbers appended to `bytes`. All of it stays here, too.
    pub(crate) fn estate(&mut self, now: Instant, bytes: &mut Vec<u8>) -> EdgeEstate {
        let mut numbers = Vec::new();
        self.edge.estate(now, &mut numbers);
        bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        let set = |place: usize| self.edge.settings(place as u32).iter().map(Set::of).collect();
        let classes = self.classes.iter().enumerate();
        let classes = classes.map(|(place, class)| (class.name.to_string(), set(place))).collect();
        EdgeEstate { classes, numbers: numbers.len() }
    }

    /// Goes on with what another one had, before any packet has come.
    ///
    /// # Errors
    /// The numbers mean nothing.
    pub(crate) fn inherit(&mut self, now: Instant, estate: &EdgeEstate, numbers: &[u64]) -> io::Result<()> {
        let of_name = |class: &Kept| estate.classes.iter().position(|(name, _)| **name == *class.name);
        let mut kept: Vec<Option<usize>> = self.classes.iter().map(of_name).collect();
        if self.classes.is_empty() && estate.classes.is_empty() {
            // The only class of an edge without an allocation.
            kept.push(Some(0));
        }
        if !self.edge.inherit(now, numbers, &kept) {
            return Err(io::Error::other("the edge that was handed over makes no sense"));
        }
        for (place, old) in (0..).zip(kept) {
            let set = old.and_then(|old| estate.classes.get(old));
            let set: Vec<Setting> = set.iter().flat_map(|(_, set)| set).filter_map(Set::setting).collect();
            self.edge.carry(now, place, &set);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every option of an allocator has a form in which it passes, and comes back from it.
    #[test]
    fn what_was_set_comes_back() {
        for handler in handlers::HANDLERS.iter().filter(|handler| handler.is_option()) {
            let values = match handler.spec.kind {
                Kind::Word(words) => words.iter().map(|word| Value::Word(word)).collect(),
                Kind::Count { .. } => vec![Value::Count(7)],
                Kind::Rate => vec![Value::Rate(Rate::from_bps(64_000)), Value::Fraction(Fraction::ONE)],
                Kind::Time { .. } => vec![Value::Time(Duration::from_millis(5))],
                Kind::Percent => vec![Value::Fraction(Fraction::ratio(9, 10))],
                Kind::Real => vec![Value::Real(Fixed::from_raw(5 << 30))],
                kind => panic!("{} is {kind}", handler.name),
            };
            for value in values {
                let setting = Setting { handler, filed: None, set: Some(value) };
                let text = serde_json::to_string(&Set::of(&setting)).unwrap();
                let back = serde_json::from_str::<Set>(&text).unwrap().setting().unwrap();
                assert_eq!((back.handler.name, &back.filed), (handler.name, &None));
                assert_eq!(back.set, setting.set, "{text}");
            }
        }
        let unknown = Set("law.grace".into(), None, None);
        assert!(unknown.setting().is_none());
    }
}
