//! Handlers of the edge in words: `law.gain=500K`, as `weir edge set` and a scenario's timeline have it.

use crate::options::value_of;
use crate::reader::Stop;
use crate::words::{Word, Words};
use weir_core::queue::{Kind, Value};
use weir_edge::handlers::{self, HANDLERS, Handler, NoHandler};
use weir_edge::params::SHARES;
use weir_text::{Diagnostic, Place, Severity, Source, Trouble};

/// The handler of that name, with the name that was meant if there is none.
///
/// # Errors
/// A diagnostic at the name; `origin` is what it calls the text.
pub fn find(origin: &str, name: &str) -> Result<&'static Handler, Diagnostic> {
    let place = Place { line: 1, column: 1, length: name.chars().count().max(1) as u32 };
    named(name, place).map_err(|trouble| Source::new(origin, name).diagnostic(Severity::Error, trouble))
}

fn named(name: &str, place: Place) -> Result<&'static Handler, Trouble> {
    handlers::find(name).ok_or_else(|| {
        let mut trouble = Trouble::new(place, format!("no handler `{name}`"), "");
        let names = || HANDLERS.iter().flat_map(|h| [Some(h.name), h.alias]).flatten();
        // Its last part alone may be meant: `gain` is `law.gain`.
        let part = HANDLERS.iter().map(|h| h.name).find(|full| full.rsplit('.').next() == Some(name));
        match part.or_else(|| weir_text::nearest(name, names())) {
            Some(near) => {
                trouble.help = format!("did you mean `{near}`?");
                trouble.replacement = Some(near.to_string());
            }
            None => {
                let all: Vec<&str> = HANDLERS.iter().map(|h| h.name).collect();
                trouble.help = format!("handlers are {}", all.join(", "));
            }
        }
        trouble
    })
}

/// What `NAME=VALUE` sets, and to what; `-1` is none where there may be none.
///
/// # Errors
/// A diagnostic at the name or the value; `origin` is what it calls the text.
pub fn assignment(origin: &str, text: &str) -> Result<(&'static Handler, Option<Value>), Diagnostic> {
    let refuse = |trouble| Source::new(origin, text).diagnostic(Severity::Error, trouble);
    let whole = Place { line: 1, column: 1, length: text.chars().count().max(1) as u32 };
    let Some((name, value)) = text.split_once('=') else {
        let message = format!("`{text}` sets nothing");
        return Err(refuse(Trouble::new(whole, message, "write a name and a value, as in `law.gain=500K`")));
    };
    let length = name.chars().count() as u32;
    let handler = named(name, Place { length: length.max(1), ..whole }).map_err(refuse)?;
    let place = Place { line: 1, column: length + 2, length: value.chars().count().max(1) as u32 };
    typed(handler, Word { text: value, place }).map(|value| (handler, value)).map_err(refuse)
}

/// The value of a handler as it is typed.
fn typed(handler: &Handler, word: Word<'_>) -> Result<Option<Value>, Trouble> {
    let mut spec = handler.spec;
    spec.name = handler.name;
    let mut word = word;
    let is_share = SHARES.iter().any(|share| share.name == handler.spec.name);
    if let Some(percent) = word.text.strip_suffix('%')
        && (is_share || spec.kind == Kind::Percent)
    {
        word = Word { text: percent, ..word };
        spec.kind = Kind::Percent;
    }
    if word.text.is_empty() {
        return Err(Trouble::new(word.place, format!("`{}` has no value", handler.name), spec.form()));
    }
    let mut odd = None;
    let value = value_of(&mut Words::new(vec![word]), &spec, &mut |trouble| odd = Some(trouble));
    match (value, odd) {
        (Err(Stop::Trouble(trouble)), _) | (Ok(_), Some(trouble)) => Err(trouble),
        (Err(Stop::Silent), _) => Err(Trouble::new(word.place, "not read", spec.form())),
        (Ok(value), None) => Ok(value),
    }
}

/// The value of a handler as it is typed; `-1` for none.
pub fn shown(handler: &Handler, value: Option<&Value>) -> String {
    match value {
        None => "-1".into(),
        Some(Value::Fraction(share)) => {
            let percent = weir_text::number::shortest(share.raw(), 100);
            if handler.spec.kind == Kind::Percent { percent } else { format!("{percent}%") }
        }
        Some(Value::Real(real)) => weir_text::number::shortest(real.raw().unsigned_abs(), 1),
        Some(value) => value.to_string(),
    }
}

/// Why a handler of a class was not read or set, in words.
pub fn refused(class: &str, handler: &Handler, why: &NoHandler) -> String {
    let name = handler.name;
    match why {
        NoHandler::NoAllocator => {
            format!("class `{class}` has no allocator: add `allocate INTERFACE {class}` to the configuration")
        }
        NoHandler::OtherLaw(law) => {
            let of =
                if matches!(handler.spec.name, "up" | "down" | "high" | "low") { "threshold" } else { "log" };
            format!("class `{class}` follows `law {law}`, which has no `{name}`: set `law={of}` first")
        }
        NoHandler::Value(error) => error.to_string(),
        NoHandler::Cannot(found) => format!("{}: write `{}` there", found.what, found.write),
        NoHandler::Nothing => match name {
            "request.answered" => format!("class `{class}` awaits no answer"),
            "request.rise" => format!("class `{class}` has that much already: ask for more"),
            "request.fall" => format!("class `{class}` has no more than that: ask for less"),
            _ => format!("class `{class}` has that already"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::units::Fraction;

    fn said(text: &str) -> String {
        let said = assignment("weir edge set", text).unwrap_err();
        format!("{}:{} {} / {}", said.line, said.column, said.message, said.help)
    }

    #[test]
    fn an_assignment_is_read_by_its_declaration() {
        let value = |text: &str| {
            let (handler, value) = assignment("t", text).unwrap();
            (handler.name, shown(handler, value.as_ref()))
        };
        for (text, name, back) in [
            ("law.gain=500K", "law.gain", "500K"),
            ("law.gain=50%", "law.gain", "50%"),
            ("i=1.25", "law.up", "1.25"),
            ("l_max=85", "law.high", "85"),
            ("law.down=-1", "law.down", "-1"),
            ("meter.window=400ms", "meter.window", "400ms"),
            ("meter.hold=5", "meter.hold", "5"),
            ("law.published=on", "law.published", "on"),
            ("admit.evict=largest", "admit.evict", "largest"),
            ("congestion.drain=15ms", "congestion.drain", "15ms"),
            ("BB_response=1", "request.answered", "1"),
        ] {
            assert_eq!(value(text), (name, back.to_string()), "{text}");
        }
        let (_, half) = assignment("t", "l_min=50%").unwrap();
        assert_eq!(half, Some(Value::Fraction(Fraction::ratio(1, 2))));
    }

    #[test]
    fn what_is_wrong_is_said_at_its_place() {
        for (text, expected) in [
            ("law.gain", "1:1 `law.gain` sets nothing / write a name and a value, as in `law.gain=500K`"),
            ("law.gane=1", "1:1 no handler `law.gane` / did you mean `law.gain`?"),
            ("gain=1", "1:1 no handler `gain` / did you mean `law.gain`?"),
            ("law.gain=", "1:10 `law.gain` has no value / bit/s, `64K` or `10M` (K is 1000)"),
            (
                "admit.evict=biggest",
                "1:13 `admit.evict` cannot be `biggest` / one of random, largest, smallest, oldest, newest",
            ),
            ("meter.hold=0", "1:12 `meter.hold 0` means its default, 10 / leave it out"),
            ("meter.hold=2000", "1:12 `meter.hold 2000` is out of range / a whole number from 1 to 1000"),
        ] {
            assert_eq!(said(text), expected);
        }
        assert!(said("law.gain=fast").starts_with("1:10 "), "{}", said("law.gain=fast"));
        assert!(said("zzz.qqq=1").contains("handlers are law, law.up"), "{}", said("zzz.qqq=1"));
    }
}
