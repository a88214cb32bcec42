//! The state that the lines of a file share while they are read, and what every command asks of it.

use crate::index::Index;
use crate::plan::Plan;
use crate::words::{Word, Words};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use weir_core::sched::Registry;
use weir_text::number::{self, Bad};
use weir_text::{Place, Severity, Source, Trouble};

/// What the lines of a file have come to so far.
pub(crate) struct Reader<'r> {
    pub registry: &'r Registry,
    pub plan: Plan,
    /// What its names stand for.
    pub index: Index,
    pub said: Vec<(Severity, Trouble)>,
    /// How many errors lines had so far.
    pub errors: usize,
    /// The interface that a line means which names none.
    pub last_interface: Option<usize>,
    /// Interfaces whose line was refused: what is said about them is not judged.
    pub refused_interfaces: HashSet<String>,
    /// Classes and conditioners whose line was refused, with their interface.
    pub refused: HashSet<(String, String)>,
    /// Numbers of contracts, with their interface.
    pub contract_ids: HashSet<(usize, u32)>,
    /// Whose each prefix is, with its interface.
    pub contract_prefixes: HashMap<(usize, weir_edge::sla::Prefix), u32>,
}

/// What reading a command comes to: done, refused with a reason, or left out because it hangs
/// on a line that was refused.
pub(crate) enum Stop {
    Trouble(Trouble),
    Silent,
}
impl From<Trouble> for Stop {
    fn from(trouble: Trouble) -> Self {
        Stop::Trouble(trouble)
    }
}
pub(crate) type Done<T = ()> = Result<T, Stop>;

impl<'r> Reader<'r> {
    /// A reader to which no line was given yet.
    pub fn new(registry: &'r Registry, source: Arc<Source>) -> Self {
        Reader {
            registry,
            plan: Plan { source, ..Plan::default() },
            index: Index::default(),
            said: Vec::new(),
            errors: 0,
            last_interface: None,
            refused_interfaces: HashSet::new(),
            refused: HashSet::new(),
            contract_ids: HashSet::new(),
            contract_prefixes: HashMap::new(),
        }
    }
    pub fn warn(&mut self, trouble: Trouble) {
        self.said.push((Severity::Warning, trouble));
    }
    pub fn error(&mut self, trouble: Trouble) {
        self.errors += 1;
        self.said.push((Severity::Error, trouble));
    }

    /// The interface that a line is about: the one it names, or else the last one named.
    pub fn named_interface(&mut self, words: &mut Words<'_>) -> Done<usize> {
        let word = words.need("the interface", "write the name of an interface declared above")?;
        if let Some(index) = self.index.interface(word.text) {
            self.last_interface = Some(index);
            return Ok(index);
        }
        if self.refused_interfaces.contains(word.text) {
            return Err(Stop::Silent);
        }
        words.untake();
        match self.last_interface {
            Some(index) => Ok(index),
            None if !self.refused_interfaces.is_empty() => Err(Stop::Silent),
            None => {
                let help = format!("declare it above, as in `interface {} bandwidth 10M cbq`", word.text);
                Err(Trouble::new(word.place, format!("no interface `{}`", word.text), help).into())
            }
        }
    }

    /// The interface of a line behind whose interface only a word may stand that `fits`, or its misspelling. Any
    /// other word, where the interface is left out, was meant as one.
    pub fn interface_before(
        &mut self,
        words: &mut Words<'_>,
        fits: impl Fn(&Self, usize, &Words<'_>) -> bool,
    ) -> Done<usize> {
        let first = words.peek();
        let interface = self.named_interface(words)?;
        match words.peek().filter(|next| first.is_some_and(|first| first.place == next.place)) {
            Some(next) if !fits(self, interface, words) => Err(self.no_interface(next)),
            _ => Ok(interface),
        }
    }

    /// The error for a word that must have been meant as an interface.
    pub fn no_interface(&self, word: Word<'_>) -> Stop {
        if self.refused_interfaces.contains(word.text) {
            return Stop::Silent;
        }
        let names: Vec<&str> = self.plan.interfaces.iter().map(|i| i.name.as_str()).collect();
        let mut trouble =
            Trouble::new(word.place, format!("no interface `{}` is declared", word.text), String::new());
        match weir_text::nearest(word.text, names.iter().copied()) {
            Some(name) => {
                trouble.help = format!("did you mean `{name}`?");
                trouble.replacement = Some(name.to_string());
            }
            None => trouble.help = format!("declared are {}", names.join(", ")),
        }
        trouble.into()
    }

    /// A whole number; a warning about its form is said at once.
    pub fn number(
        &mut self,
        words: &mut Words<'_>,
        what: &str,
        range: std::ops::RangeInclusive<i128>,
    ) -> Done<(i128, Place)> {
        let expected = format!("a whole number from {} to {}", range.start(), range.end());
        let word = words.need(what, &expected)?;
        let read = number::integer(word.text, &expected).map_err(|bad| at(word, bad))?;
        if let Some(warning) = read.warning {
            self.warn(at(word, warning));
        }
        if !range.contains(&read.value) {
            let message = format!("{what} {} is out of range", word.text);
            return Err(Trouble::new(word.place, message, expected).into());
        }
        Ok((read.value, word.place))
    }
}

/// A number's problem, at its word.
pub(crate) fn at(word: Word<'_>, bad: Bad) -> Trouble {
    Trouble { place: word.place, message: bad.message, help: bad.help, replacement: bad.write }
}
