//! Options by their declarations: every keyword of every discipline is read here, whoever
//! registered it.

use crate::plan::{Given, Options};
use crate::reader::{Done, Reader, Stop, at};
use crate::words::{Word, Words, span};
use weir_core::queue::{Curve, Kind, ParamSpec, Scope, TimeUnit, Value, bytes_as_typed};
use weir_core::sched::Entry;
use weir_core::units::Duration;
use weir_edge::params;
use weir_text::number;
use weir_text::{Place, Trouble};

/// Most options that a message lists.
const MOST_LISTED: usize = 8;

/// How a service curve is written.
const FORM: &str =
    "a service curve is `[sc 4M 5ms 1M]`: kind, first rate, time, second rate; or `[sc 1M]`: kind, rate";

impl Reader<'_> {
    /// Reads the option that begins at the next word, if `entry` has one of that name, and puts
    /// it into `options`. False if it has none.
    pub fn option(
        &mut self,
        words: &mut Words<'_>,
        entry: &Entry,
        scope: Scope,
        options: &mut Options,
    ) -> Done<bool> {
        let Some(word) = words.peek() else { return Ok(false) };
        if word.text.starts_with('[') {
            return self.curve(words, entry, scope, options);
        }
        let Some(spec) = self.registry.param(entry, scope, word.text).filter(|s| s.kind != Kind::Curve)
        else {
            return Ok(false);
        };
        words.take();
        let value = if spec.kind == Kind::Flag { Some(Value::Flag) } else { self.value(words, spec)? };
        self.put(options, spec, value, word.place);
        Ok(true)
    }

    /// The value of an option whose word was taken at `place`, and which stands there with its value.
    pub fn declared(
        &mut self,
        words: &mut Words<'_>,
        spec: &'static ParamSpec,
        place: Place,
        options: &mut Options,
    ) -> Done {
        let last = words.peek().map_or(place, |word| word.place);
        let (value, place) = match spec.kind {
            Kind::Flag => (Some(Value::Flag), place),
            Kind::Percent if words.peek().is_some_and(|w| w.text.ends_with('%')) => {
                let word = words.need(spec.name, "")?;
                let read = number::percent(word.text.trim_end_matches('%')).map_err(|bad| at(word, bad))?;
                (Some(Value::Fraction(read.value)), span(place, last))
            }
            _ => (self.value(words, spec)?, span(place, last)),
        };
        self.put(options, spec, value, place);
        Ok(())
    }

    /// Sets an option; the last one counts, as in the original.
    fn put(&mut self, options: &mut Options, spec: &'static ParamSpec, value: Option<Value>, place: Place) {
        let earlier = match value {
            Some(value) => options.set(Given { spec, value, place }),
            None => options.remove(spec.name),
        };
        if earlier.is_some() {
            let message = format!("`{}` is given twice; the last one counts", spec.name);
            self.warn(Trouble::new(place, message, "take one away"));
        }
    }

    /// The value of an option; `None` if it says "none" or "the default".
    fn value(&mut self, words: &mut Words<'_>, spec: &ParamSpec) -> Done<Option<Value>> {
        value_of(words, spec, &mut |trouble| self.warn(trouble))
    }

    /// A service curve, `[sc M1 D M2]` or `[sc M]`; brackets may touch the words.
    fn curve(
        &mut self,
        words: &mut Words<'_>,
        entry: &Entry,
        scope: Scope,
        options: &mut Options,
    ) -> Done<bool> {
        let curves = || entry.params().filter(|p| p.scope == scope && p.kind == Kind::Curve);
        let Some(open) = words.peek().filter(|_| curves().next().is_some()) else { return Ok(false) };
        words.take();
        let name = match &open.text[1..] {
            "" => words.need("the kind of the service curve", FORM)?,
            text => {
                let place =
                    Place { column: open.place.column + 1, length: open.place.length - 1, ..open.place };
                Word { text, place }
            }
        };
        let spec = match curves().find(|p| p.name == name.text) {
            Some(spec) => spec,
            // The original looked at the first letter alone. A letter or a whole word is what was meant; any
            // other is a slip.
            None => match curves().find(|p| by_letter(p.name, name.text)) {
                Some(spec) if is_long_for(spec.name, name.text) => {
                    let message = format!("`{}` is read as `{}`, by its first letter", name.text, spec.name);
                    self.warn(Trouble::new(name.place, message, FORM).write(spec.name));
                    spec
                }
                near => {
                    let known: Vec<&str> = curves().map(|p| p.name).collect();
                    let message = format!("no service curve `{}`", name.text);
                    let help = format!("{} has {}", entry.name, known.join(", "));
                    let mut trouble = Trouble::new(name.place, message, help);
                    trouble.replacement = near.map(|spec| spec.name.to_string());
                    return Err(trouble.into());
                }
            },
        };
        let mut word = words.need("the first rate of the service curve", FORM)?;
        if word.text == "]" {
            return Err(
                Trouble::new(word.place, "the first rate of the service curve is missing", FORM).into()
            );
        }
        if word.text.contains(',') {
            return Err(Trouble::new(word.place, "a service curve has spaces, not commas", FORM).into());
        }
        let straight = closes(&mut word) || words.accept("]").is_some();
        let m1 = number::rate(word.text).map_err(|bad| at(word, bad))?;
        if straight {
            // One rate: a straight line.
            let line = Curve { m1, d: Duration::ZERO, m2: m1 };
            self.put(options, spec, Some(Value::Curve(line)), name.place);
            return Ok(true);
        }
        let mut word = words.need("the time of the service curve", FORM)?;
        if closes(&mut word) {
            return Err(
                Trouble::new(word.place, "the second rate of the service curve is missing", FORM).into()
            );
        }
        let d = number::time(word.text, Some(TimeUnit::Millis)).map_err(|bad| at(word, bad))?;
        if let Some(warning) = d.warning {
            self.warn(at(word, warning));
        }
        let mut word = words.need("the second rate of the service curve", FORM)?;
        if !closes(&mut word) && words.accept("]").is_none() {
            let place = words.peek().map_or(words.end(), |w| w.place);
            return Err(Trouble::new(place, "`]` is missing", FORM).into());
        }
        let m2 = number::rate(word.text).map_err(|bad| at(word, bad))?;
        self.put(options, spec, Some(Value::Curve(Curve { m1, d: d.value, m2 })), name.place);
        Ok(true)
    }

    /// The error for a word that is no option.
    pub fn unknown_option(&self, word: Word<'_>, entry: &Entry, scope: Scope, also: &[&str]) -> Stop {
        let names: Vec<&str> = self
            .registry
            .params(entry)
            .filter(|p| p.scope == scope)
            .map(|p| p.name)
            .chain(also.iter().copied())
            .collect();
        let of =
            if scope == Scope::Class { format!("a class of {}", entry.name) } else { entry.name.to_string() };
        if entry.params().any(|p| p.kind == Kind::Curve && p.name == word.text) {
            let message = format!("the service curve `{}` has no brackets", word.text);
            return Trouble::new(word.place, message, FORM).into();
        }
        let mut trouble = Trouble::new(word.place, format!("`{}` is no option of {of}", word.text), "");
        match weir_text::nearest(word.text, names.iter().copied()) {
            Some(name) => {
                trouble.help = format!("did you mean `{name}`?");
                trouble.replacement = Some(name.to_string());
            }
            None if names.is_empty() => trouble.help = "it has none: take it away".into(),
            None if names.len() > MOST_LISTED => {
                trouble.help = format!("`weir disciplines {}` lists what there is", entry.name);
            }
            None => trouble.help = format!("options are {}", names.join(", ")),
        }
        trouble.into()
    }
}

/// The value of an option; `None` if it says "none" or "the default". What is odd about it goes to `warn`.
pub(crate) fn value_of(
    words: &mut Words<'_>,
    spec: &ParamSpec,
    warn: &mut dyn FnMut(Trouble),
) -> Done<Option<Value>> {
    let expected = expected(spec);
    let word = words.need(&format!("the value of `{}`", spec.name), &expected)?;
    if spec.none && word.text == "-1" {
        return Ok(None);
    }
    let bad = |bad| Stop::from(at(word, bad));
    let value = match spec.kind {
        Kind::Flag => Value::Flag,
        Kind::Curve => return Ok(None),
        Kind::Count { min, max } => {
            let read = number::integer(word.text, &expected).map_err(bad)?;
            if let Some(warning) = read.warning {
                warn(at(word, warning));
            }
            if read.value == 0 && min == 1 && !spec.default.is_empty() {
                warn(stands_for_default(word, spec));
                return Ok(None);
            }
            let value = u64::try_from(read.value).ok().filter(|v| (min..=max).contains(v));
            Value::Count(value.ok_or_else(|| out_of_range(word, spec))?)
        }
        Kind::Bytes { min, max } => {
            let value = number::bytes(word.text).map_err(bad)?;
            if value == 0 && min == 1 && !spec.default.is_empty() {
                warn(stands_for_default(word, spec));
                return Ok(None);
            }
            if !(min..=max).contains(&value) {
                return Err(out_of_range(word, spec));
            }
            Value::Bytes(value)
        }
        Kind::Rate => Value::Rate(number::rate(word.text).map_err(bad)?),
        Kind::Time { bare } => {
            let read = number::time(word.text, Some(bare)).map_err(bad)?;
            if let Some(warning) = read.warning {
                warn(at(word, warning));
            }
            Value::Time(read.value)
        }
        Kind::Percent => {
            let read = number::percent(word.text).map_err(bad)?;
            if let Some(warning) = read.warning {
                warn(at(word, warning));
            }
            Value::Fraction(read.value)
        }
        Kind::Fraction => Value::Fraction(number::fraction(word.text).map_err(bad)?),
        Kind::Real => {
            let read = number::real(word.text).map_err(bad)?;
            if let Some(warning) = read.warning {
                warn(at(word, warning));
            }
            Value::Real(read.value)
        }
        Kind::Word(allowed) => match allowed.iter().find(|w| **w == word.text) {
            Some(found) => Value::Word(found),
            None => {
                let message = format!("`{}` cannot be `{}`", spec.name, word.text);
                let mut trouble = Trouble::new(word.place, message, expected);
                trouble.replacement =
                    weir_text::nearest(word.text, allowed.iter().copied()).map(str::to_string);
                return Err(trouble.into());
            }
        },
    };
    Ok(Some(value))
}

fn stands_for_default(word: Word<'_>, spec: &ParamSpec) -> Trouble {
    let message = format!("`{} 0` means its default, {}", spec.name, spec.default);
    Trouble::new(word.place, message, "leave it out")
}

/// Takes the bracket off that ends a word; false if there is none.
fn closes(word: &mut Word<'_>) -> bool {
    let Some(text) = word.text.strip_suffix(']') else { return false };
    *word = Word { text, place: Place { length: word.place.length - 1, ..word.place } };
    true
}

/// True if both begin with the same letter, in either case.
fn by_letter(name: &str, text: &str) -> bool {
    match (name.bytes().next(), text.bytes().next()) {
        (Some(a), Some(b)) => a.eq_ignore_ascii_case(&b),
        _ => false,
    }
}

/// True if a word is the first letter of `name`, or has its letters in their order, as `realtime` those of `rt`.
fn is_long_for(name: &str, word: &str) -> bool {
    let word = word.to_ascii_lowercase();
    let mut letters = word.chars();
    word.len() == 1 || name.chars().all(|wanted| letters.any(|letter| letter == wanted))
}

fn out_of_range(word: Word<'_>, spec: &ParamSpec) -> Stop {
    let message = format!("`{} {}` is out of range", spec.name, word.text);
    Trouble::new(word.place, message, expected(spec)).into()
}

/// Writes an option as it is typed, behind a space.
pub(crate) fn typed(text: &mut String, given: &Given) {
    text.push(' ');
    text.push_str(&given.text());
    if given.spec.kind == Kind::Percent && params::SHARES.iter().any(|s| s.name == given.spec.name) {
        text.push('%');
    }
}

/// What a value of this option looks like.
fn expected(spec: &ParamSpec) -> String {
    let mut text = match spec.kind {
        Kind::Flag => String::new(),
        Kind::Count { min, max } => format!("a whole number from {min} to {max}"),
        Kind::Bytes { min, max } => {
            format!("bytes from {min} to {max}, as in {}", bytes_as_typed(min, max))
        }
        Kind::Rate => "a rate in bits per second, as in `10M`".to_string(),
        Kind::Time { bare: TimeUnit::Micros } => "a time, as in `8ms`; a bare number is in us".to_string(),
        Kind::Time { bare: TimeUnit::Millis } => "a time, as in `8ms`; a bare number is in ms".to_string(),
        Kind::Percent => "percent, from 0 to 100".to_string(),
        Kind::Fraction => "a number from 0 to 1".to_string(),
        Kind::Real => "a number above 0".to_string(),
        Kind::Word(allowed) => format!("one of {}", allowed.join(", ")),
        Kind::Curve => "a service curve, as in `[sc 4M 5ms 1M]`".to_string(),
    };
    if spec.none {
        text.push_str(", or -1 for none");
    }
    text
}
