//! From a file to a scenario, and back to text. Manifests of experiments are TOML as well: `located` and
//! `placed` say their mistakes in the same form.

use crate::scenario::Scenario;
use crate::validate;
pub use crate::validate::Problem;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::Path;
use toml::de::{DeTable, DeValue};
use weir_report::disk::read_text;
use weir_text::{Diagnostic, Diagnostics, Place, Severity, Source, Trouble, suggest};

/// A scenario file is at most this long: nobody writes more by hand.
const MAX_BYTES: usize = 8 << 20;

impl Scenario {
    /// Reads and validates a scenario file.
    pub fn read(path: &Path) -> Result<Scenario, Diagnostics> {
        let file = path.display().to_string();
        let source = read_text(path, MAX_BYTES).map_err(|error| match error.kind() {
            ErrorKind::InvalidData => {
                whole(&file, "is not text in UTF-8".into(), "a scenario is TOML: save it as UTF-8")
            }
            ErrorKind::FileTooLarge => too_long(&file),
            _ => whole(&file, format!("cannot be read: {error}"), "name an existing scenario file"),
        })?;
        let mut scenario = Scenario::from_toml(&file, &source)?;
        scenario.file = path.to_path_buf();
        scenario.folder = path.parent().map(Path::to_path_buf).unwrap_or_default();
        if scenario.name.is_empty() {
            scenario.name =
                path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        }
        Ok(scenario)
    }

    /// Reads and validates a scenario from text; `file` is what errors call it.
    pub fn from_toml(file: &str, source: &str) -> Result<Scenario, Diagnostics> {
        if source.len() > MAX_BYTES {
            return Err(too_long(file));
        }
        let scenario: Scenario =
            toml::from_str(source).map_err(|error| Diagnostics(vec![located(file, source, &error)]))?;
        let problems = validate::problems(&scenario);
        if problems.is_empty() {
            return Ok(scenario);
        }
        Err(placed(file, source, problems))
    }

    /// The scenario as TOML: reads back as the same scenario.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("every field of a scenario has a form in TOML")
    }
}

/// Problems with the places of what they are about: only now that something is wrong is the text read
/// again. `file` is what errors call the text `source`.
pub fn placed(file: &str, source: &str, problems: Vec<Problem>) -> Diagnostics {
    let document = match DeTable::parse(source) {
        Ok(document) => document,
        Err(error) => return Diagnostics(vec![located(file, source, &error)]),
    };
    let lines = Source::new(file, source);
    let place = |problem: &Problem| Place::of_span(source, span(document.get_ref(), source, problem));
    let diagnostics = problems
        .into_iter()
        .map(|problem| Trouble::new(place(&problem), problem.message, problem.help))
        .map(|trouble| lines.diagnostic(Severity::Error, trouble));
    Diagnostics(diagnostics.collect())
}

/// Problems of a scenario that was read before: placed if its file still says what it said.
pub(crate) fn of_problems(scenario: &Scenario, problems: Vec<Problem>) -> Diagnostics {
    let file = scenario.file.display().to_string();
    let source = read_text(&scenario.file, MAX_BYTES).ok();
    match source.filter(|source| toml::from_str::<Scenario>(source).is_ok()) {
        Some(source) => placed(&file, &source, problems),
        None => {
            let name = if file.is_empty() { &scenario.name } else { &file };
            let all = problems.into_iter().flat_map(|p| whole(name, p.message, &p.help).0);
            Diagnostics(all.collect())
        }
    }
}

/// The remedy for a name that is none of `known`: the nearest of them, or some.
pub(crate) fn nearest(name: &str, known: &[&str]) -> String {
    match suggest(name, known.iter().copied()) {
        Some(suggestion) => suggestion,
        None if known.is_empty() => "add a [[port]], or leave the class out".to_string(),
        None => format!("write one of: {}", known[..known.len().min(20)].join(", ")),
    }
}

fn too_long(file: &str) -> Diagnostics {
    whole(file, format!("is longer than {MAX_BYTES} bytes"), "is this a scenario?")
}

fn whole(file: &str, message: String, help: &str) -> Diagnostics {
    let trouble = Trouble::new(Place::default(), message, help);
    Diagnostics(vec![Source::new(file, "").diagnostic(Severity::Error, trouble)])
}

/// Where a problem's value stands; failing that, its table.
fn span(document: &DeTable<'_>, source: &str, problem: &Problem) -> Range<usize> {
    let value = |table: &DeTable<'_>| table.get(problem.key).map(|value| value.span());
    if problem.table.is_empty() {
        return value(document).unwrap_or(0..0);
    }
    let Some(DeValue::Array(tables)) = document.get(problem.table).map(|tables| tables.get_ref()) else {
        return 0..0;
    };
    let Some(entry) = tables.get(problem.index) else { return 0..0 };
    match entry.get_ref() {
        DeValue::Table(table) => value(table).unwrap_or_else(|| header(source, entry.span())),
        _ => entry.span(),
    }
}

/// The first line of a table's span: its `[[header]]`.
fn header(source: &str, span: Range<usize>) -> Range<usize> {
    let length = source[span.clone()].find('\n').unwrap_or(span.len());
    span.start..span.start + length
}

/// An error of the TOML reader or of one of our quantities in the text `source`, in our form, with how
/// to mend it.
pub fn located(file: &str, source: &str, error: &toml::de::Error) -> Diagnostic {
    let span = error.span().unwrap_or(0..0);
    // An error about a whole table is shown at its header.
    let span = if source.get(span.clone()).is_some_and(|text| text.contains('\n')) {
        header(source, span)
    } else {
        span
    };
    let (message, help) = reword(error.message());
    let trouble = Trouble::new(Place::of_span(source, span), message, help);
    Source::new(file, source).diagnostic(Severity::Error, trouble)
}

/// What serde and toml say, in our words, with a remedy.
fn reword(message: &str) -> (String, String) {
    if let Some((what, help)) = message.split_once('\n') {
        return (what.to_string(), help.to_string());
    }
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    match quoted.as_slice() {
        [unknown, known @ ..] if message.starts_with("unknown field") => {
            (format!("unknown key `{unknown}`"), suggestion(unknown, known))
        }
        [unknown, known @ ..] if message.starts_with("unknown variant") => {
            let known: Vec<String> = known.iter().map(|word| format!("\"{word}\"")).collect();
            (format!("`{unknown}` is not known here"), format!("write {}", known.join(" or ")))
        }
        [key] if message.starts_with("missing field") => {
            (format!("the key `{key}` is missing"), format!("add {}", example(key)))
        }
        _ if message.starts_with("invalid type") || message.starts_with("invalid value") => {
            let (found, expected) = message.split_once(", expected ").unwrap_or((message, "something else"));
            let found = found.split_once(": ").map_or(found, |(_, found)| found);
            let expected = match expected {
                "u16" => "a whole number from 0 to 65535",
                "u32" => "a whole number from 0 to 4294967295",
                "u64" => "a whole number from 0 up",
                "a sequence" => "[[TABLE]] headers, or a list between [ and ]",
                "a string" => "it between quotes",
                "a boolean" => "true or false",
                other => other,
            };
            (format!("{found} does not fit here"), format!("write {expected}"))
        }
        _ if message.starts_with("invalid IPv4") => {
            (message.into(), "write an address such as \"192.0.2.1\"".into())
        }
        _ if message.starts_with("invalid IPv6") => {
            (message.into(), "write an address such as \"2001:db8::1\"".into())
        }
        _ => (message.to_string(), "see toml.io for the syntax of TOML".to_string()),
    }
}

/// What to write instead of an unknown key.
fn suggestion(unknown: &str, known: &[&str]) -> String {
    // What a run must come to is for an experiment to say: its expectations are those of the scenario.
    if matches!(unknown, "must_fail" | "fails" | "reported" | "doubtful") && !known.contains(&unknown) {
        return format!("`{unknown}` belongs into a [[run]] of an experiment, beside its expectations");
    }
    suggest(unknown, known.iter().copied()).unwrap_or_else(|| format!("known keys: {}", known.join(", ")))
}

/// How to write a required key.
fn example(key: &str) -> &'static str {
    match key {
        "duration" => "duration = \"45s\" at the top",
        "host" => "[[host]] tables with a name each",
        "link" => "[[link]] tables with a, b and rate each",
        "name" => "name = \"a\"",
        "a" => "a = \"NODE\": one end of the link",
        "b" => "b = \"NODE\": the other end of the link",
        "rate" => "rate = \"10M\"",
        "title" => "title = \"what it shows\" at the top",
        "source" => "source = \"paper and figure\" at the top",
        "about" => "about = \"what the paper reports\" at the top",
        "from" => "from = \"HOST\": who sends",
        "to" => "to = \"NODE\"",
        "at" => "at = \"NODE\": whose egress it is",
        "what" => "what = \"rate\", or another word for what is measured",
        _ => "it",
    }
}

#[cfg(test)]
mod tests;
