//! What a message tells to write, the reader takes.

use super::{FAULTS, GOOD, said};
use weir_text::Diagnostic;

/// One thing that a help tells to write.
#[derive(Debug)]
enum Told {
    /// These keys, with their values.
    Keys(Vec<(String, String)>),
    /// Instead of what is underlined.
    Value(String),
    /// Without what is underlined.
    Nothing,
}

/// What a help tells to write: its alternatives stand behind `write`, `add`, `leave`, `as in` and `did you mean`.
fn told(help: &str) -> Vec<Told> {
    let mut all = Vec::new();
    for part in help.split(", or ") {
        // What only the person knows.
        let part = part.replace("BYTES", "1000").replace("PACKETS", "3").replace("NODE", "box");
        if part.starts_with("leave it out") || part.starts_with("leave `") {
            all.push(Told::Nothing);
        }
        // Words between values: a value is between quotes or brackets, or a number.
        let mut keys: Vec<(String, String)> = Vec::new();
        let (mut key, mut rest) = (None::<String>, part.as_str());
        while let Some(at) = rest.find(|c: char| c == '"' || c == '[' || c.is_ascii_digit()) {
            let before = &rest[..at];
            let name = before.strip_suffix(" = ").and_then(|b| b.rsplit(' ').next());
            // K = 1024 is no key.
            if let Some(name) = name.filter(|name| name.starts_with(|c: char| c.is_ascii_lowercase())) {
                key = Some(name.to_string());
            }
            let length = match rest.as_bytes()[at] {
                b'"' => rest[at + 1..].find('"').map_or(rest.len() - at, |n| n + 2),
                b'[' if rest[at..].starts_with("[[\"") => rest[at..].find("]]").unwrap() + 2,
                b'[' => rest[at..].find(']').unwrap() + 1,
                _ => rest[at..].find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len() - at),
            };
            let value = rest[at..at + length].trim_end_matches('.').to_string();
            let bound = before.ends_with("before ") || before.ends_with("above ");
            // `[[probe]]` and [begin, end] are no values, and 15 of "1 to 15 letters" is none.
            let literal = value.starts_with('"')
                || value.starts_with("[[\"")
                || before.ends_with("from ")
                || before.ends_with(" to ")
                || key.is_some();
            match key.take() {
                Some(key) => keys.push((key, value)),
                None if part.contains("letters") || part.contains("[begin") || bound || !literal => {}
                None => all.push(Told::Value(value)),
            }
            rest = &rest[at + length..];
        }
        if !keys.is_empty() {
            all.push(Told::Keys(keys));
        }
        if let Some(names) = part.split_once("one of: ") {
            let names = names.1.split(", ").filter(|name| !name.contains(['(', '[', '=']));
            all.extend(names.map(|name| Told::Value(format!("\"{name}\""))));
        }
        if let Some((_, word)) = part.split_once("did you mean `") {
            all.push(Told::Value(word.trim_end_matches("`?").to_string()));
        }
    }
    all
}

/// The text with what is told, and the lines that are new in it, from 1.
fn mended(text: &str, d: &Diagnostic, told: &Told) -> (String, Vec<u32>) {
    let mut lines: Vec<String> = text.lines().map(String::from).collect();
    let at = d.line as usize - 1;
    match told {
        Told::Nothing => {
            lines.remove(at);
            (lines.join("\n") + "\n", Vec::new())
        }
        Told::Value(value) => {
            let line: Vec<char> = lines[at].chars().collect();
            let (from, to) = (d.column as usize - 1, (d.column + d.length) as usize - 1);
            let text = |part: &[char]| part.iter().collect::<String>();
            lines[at] = format!("{}{value}{}", text(&line[..from]), text(&line[to..]));
            (lines.join("\n") + "\n", vec![d.line])
        }
        Told::Keys(keys) => {
            let table = d.help.split_once("[[").filter(|_| d.help.contains("add a [["));
            let of_flow = d.help.contains(" to a flow");
            let mut header =
                lines[..=at].iter().rposition(|line| line.starts_with("[[")).map_or(0, |n| n + 1);
            if let Some(name) = table.and_then(|(_, rest)| rest.split_once("]]")) {
                lines.push(format!("[[{}]]", name.0));
                header = lines.len();
            } else if of_flow {
                header = lines.iter().rposition(|line| line == "[[flow]]").unwrap() + 1;
            }
            if d.help.contains("instead of `") && keys[0].0 == "idle" {
                lines.remove(at);
            }
            let mut written = Vec::new();
            for (key, value) in keys {
                let end = lines[header..]
                    .iter()
                    .position(|l| l.starts_with("[["))
                    .map_or(lines.len(), |n| header + n);
                let old = lines[header..end].iter().position(|l| l.starts_with(&format!("{key} = ")));
                let place = old.map_or(header, |n| header + n);
                if old.is_some() {
                    lines.remove(place);
                }
                lines.insert(place, format!("{key} = {value}"));
                written.push(format!("{key} = {value}"));
            }
            let number = |(n, line): (usize, &String)| written.contains(line).then_some(n as u32 + 1);
            let new = lines.iter().enumerate().filter_map(number).collect();
            (lines.join("\n") + "\n", new)
        }
    }
}

/// True if the fault is gone, and what was written is no new fault.
fn taken(text: &str, d: &Diagnostic, told: &Told) -> bool {
    let before = said(text);
    let (text, written) = mended(text, d, told);
    let new = |other: &Diagnostic| before.iter().all(|b| b.message != other.message);
    said(&text)
        .iter()
        .all(|other| other.message != d.message && !(written.contains(&other.line) && new(other)))
}

/// What a message tells to write is read: all of it, or one of the examples of a form.
#[test]
fn every_mend_is_accepted() {
    let (mut tried, mut wrong) = (0, Vec::new());
    for (more, _) in FAULTS {
        let text = format!("{GOOD}{}\n", more.replace("\\n", "\n"));
        for d in said(&text) {
            let all = told(&d.help);
            tried += all.len();
            let refused: Vec<_> = all.iter().filter(|told| !taken(&text, &d, told)).collect();
            let examples = ["such as", "as in", "whole number", "(any percentile)"];
            let examples = examples.iter().any(|words| d.help.contains(words));
            // Of examples one must fit.
            let fits = refused.is_empty() || (examples && refused.len() < all.len());
            if !fits {
                wrong.push(format!("{more}\n  {} | {}\n  {refused:?}", d.message, d.help));
            }
        }
    }
    assert!(wrong.is_empty(), "of {tried}:\n{}", wrong.join("\n"));
    assert!(tried > 200, "only {tried} were tried");
}

/// Reversed: a mend that leaves the fault, or is one, is not accepted.
#[test]
fn a_wrong_mend_is_not_accepted() {
    let text = format!("{GOOD}start = \"5\"\n");
    let d = &said(&text)[0];
    let try_with = |value: &str| taken(&text, d, &Told::Value(value.into()));
    assert!(try_with("\"5s\"") && try_with("\"300us\""));
    assert!(!try_with("5s") && !try_with("\"5\"") && !try_with("\"46s\""));
}
