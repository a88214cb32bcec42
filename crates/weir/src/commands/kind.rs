//! What a file is, told by how it begins: whoever gives one to the wrong command hears which one takes it.

use super::{Done, Failure};
use std::fs::{File, Metadata};
use std::io::Read;
use std::path::Path;

/// So much of a file is looked at, bytes.
const BEGINNING: u64 = 1 << 16;

/// A kind of file that some command takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Configuration,
    Scenario,
    Experiment,
    Broker,
    Report,
    Recording,
    Contracts,
}

/// Keys and tables of a TOML file that only one kind has, at the top of it.
const OF_TOML: [(Kind, &[&str]); 3] = [
    (Kind::Scenario, &["duration", "[[host]]", "[[link]]", "[[port]]", "[[flow]]"]),
    (Kind::Experiment, &["about", "source", "[[run]]", "[[compare]]"]),
    (Kind::Broker, &["domain", "store", "[[resource]]", "[[token]]"]),
];

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Configuration => "a configuration (altq.conf)",
            Kind::Scenario => "a scenario",
            Kind::Experiment => "an experiment",
            Kind::Broker => "the file of a broker",
            Kind::Report => "a report",
            Kind::Recording => "a recording of packets",
            Kind::Contracts => "a table of contracts",
        }
    }

    /// Which command takes such a file.
    fn taken_by(self, path: &Path) -> String {
        let name = path.display();
        match self {
            Kind::Configuration => format!("`weir check {name}` judges it, and `weir up {name}` runs it"),
            Kind::Scenario => format!("`weir sim {name}` runs it"),
            Kind::Experiment => {
                let id = path.file_stem().unwrap_or_default().display();
                format!("`weir experiment run {id}` runs it, if it stands in the folder `experiments`")
            }
            Kind::Broker => {
                format!("`weir broker check {name}` judges it, and `weir broker run {name}` runs it")
            }
            Kind::Report => format!("`weir compare {name} OTHER` puts it beside another"),
            Kind::Recording => format!("`weir replay CONF INTERFACE {name}` reads it"),
            Kind::Contracts => format!("`weir sla import {name} --interface IF` reads it"),
        }
    }
}

/// What stands at a path.
#[derive(PartialEq, Eq, Debug)]
enum Found {
    Is(Kind),
    Folder,
    Empty,
    /// No text in UTF-8.
    Binary,
}

/// What stands at a path; `None` where its reader has to say what is wrong. A pipe is left to it, because what is read
/// here would be missing there.
fn found(path: &Path) -> Option<Found> {
    let metadata = path.metadata().ok()?;
    if metadata.is_dir() {
        return Some(Found::Folder);
    }
    let mut bytes = Vec::new();
    let file = Some(path).filter(|_| Metadata::is_file(&metadata)).and_then(|path| File::open(path).ok())?;
    file.take(BEGINNING).read_to_end(&mut bytes).ok()?;
    of_bytes(&bytes)
}

fn of_bytes(bytes: &[u8]) -> Option<Found> {
    if bytes.is_empty() {
        return Some(Found::Empty);
    }
    if weir_io::trace::is_capture(bytes) {
        return Some(Found::Is(Kind::Recording));
    }
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        // The last character may be cut.
        Err(e) if e.error_len().is_none() => {
            std::str::from_utf8(&bytes[..e.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return Some(Found::Binary),
    };
    match text.contains('\0') {
        true => Some(Found::Binary),
        false => of_text(text.strip_prefix('\u{feff}').unwrap_or(text)).map(Found::Is),
    }
}

fn of_text(text: &str) -> Option<Kind> {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let first = lines.next()?;
    if first.starts_with('{') {
        return text.contains("\"meta\"").then_some(Kind::Report);
    }
    if first.starts_with('[') || key(first).is_some() {
        let of_line = |line: &str| {
            let word = key(line).unwrap_or(line);
            OF_TOML.iter().find(|(_, words)| words.contains(&word)).map(|&(kind, _)| kind)
        };
        return std::iter::once(first).chain(lines).find_map(of_line);
    }
    let fields: Vec<&str> = first.split(',').map(str::trim).collect();
    if fields.len() == weir_conf::contracts::COLUMNS.len() {
        let number = fields[0].parse::<u32>().is_ok();
        return (number || fields[0].eq_ignore_ascii_case("id")).then_some(Kind::Contracts);
    }
    let mut words = first.split_whitespace();
    match (words.next()?, words.next()) {
        ("rate", Some(_)) => Some(Kind::Recording),
        (word, Some(_)) if weir_conf::is_command(word) => Some(Kind::Configuration),
        _ => None,
    }
}

/// The key of a line `key = value`.
fn key(line: &str) -> Option<&str> {
    let key = line.split_once('=')?.0.trim();
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    (!key.is_empty() && key.chars().all(bare)).then_some(key)
}

/// Which of the two that `weir check` takes a file is: what cannot be told is a scenario if its name ends in .toml.
pub fn is_scenario(path: &Path) -> bool {
    match found(path) {
        Some(Found::Is(Kind::Scenario)) => true,
        Some(Found::Is(Kind::Configuration)) => false,
        _ => path.extension().is_some_and(|e| e == "toml"),
    }
}

/// Why a file is none of the kinds that are wanted, and what to do; `None` if it may be one.
pub fn refusal(path: &Path, wanted: &[Kind]) -> Option<(String, String)> {
    let found = found(path).filter(|found| !wanted.iter().any(|kind| *found == Found::Is(*kind)))?;
    let name = path.display();
    let names: Vec<&str> = wanted.iter().map(|kind| kind.name()).collect();
    let names = names.join(" or ");
    Some(match found {
        Found::Is(kind) => {
            (format!("{name} is {}, and no {}", kind.name(), without_article(&names)), kind.taken_by(path))
        }
        Found::Folder => (format!("{name} is a folder"), format!("name {names}")),
        Found::Empty => (format!("{name} is empty"), format!("name {names}")),
        Found::Binary => {
            (format!("{name} is not text in UTF-8"), format!("name {names}, which is plain text"))
        }
    })
}

fn without_article(names: &str) -> String {
    names
        .replace(" or a ", " or ")
        .trim_start_matches("a ")
        .trim_start_matches("an ")
        .trim_start_matches("the ")
        .into()
}

/// Refuses a file that is not of this kind.
pub fn wants(kind: Kind, path: &Path) -> Done {
    match refusal(path, &[kind]) {
        None => Ok(()),
        Some((what, mend)) => Err(Failure::usage(format!("{what}: {mend}"))),
    }
}
