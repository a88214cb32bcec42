//! The text that messages speak of.

use crate::diagnostic::{Diagnostic, MARGIN, Severity, Trouble};
use crate::place::Place;
use crate::visible::on_one_line;

/// The longest line that a message keeps whole, in characters. Many messages about one long line must
/// not take its length each.
const MAX_KEPT: usize = 1100;

/// A file's text by lines, for showing the line that a message is about.
#[derive(Clone, Default, Debug)]
pub struct Source {
    name: String,
    lines: Vec<String>,
}

/// Two plans are equal when they say the same, whatever text they were read from.
impl PartialEq for Source {
    fn eq(&self, _: &Source) -> bool {
        true
    }
}

impl Source {
    /// The text of the file `name`.
    pub fn new(name: &str, text: &str) -> Self {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let lines = text.lines().map(|l| l.strip_suffix('\r').unwrap_or(l).to_string()).collect();
        Source { name: name.to_string(), lines }
    }
    /// The name it was given.
    pub fn name(&self) -> &str {
        &self.name
    }
    /// All lines.
    pub fn lines(&self) -> &[String] {
        &self.lines
    }
    /// The line of that number, from 1.
    pub fn line(&self, number: u32) -> &str {
        let index = (number as usize).wrapping_sub(1);
        self.lines.get(index).map_or("", |l| l.as_str())
    }
    /// A trouble with its file, the text of its line, and the line to write instead, all without
    /// hidden characters.
    pub fn diagnostic(&self, severity: Severity, trouble: Trouble) -> Diagnostic {
        let Trouble { place, message, help, replacement } = trouble;
        let text = self.line(place.line);
        let column = (place.column as usize).saturating_sub(1);
        let instead = replacement.map(|new| {
            let before: String = text.chars().take(column).collect();
            let after: String = text.chars().skip(column + place.length as usize).collect();
            let after = if new.is_empty() { after.trim_start() } else { &after };
            format!("{before}{new}{after}")
        });
        let part = text.chars().nth(MAX_KEPT).is_some();
        let start = column.saturating_sub(MARGIN);
        let text: String =
            if part { text.chars().skip(start).take(2 * MARGIN).collect() } else { text.into() };
        let Place { line, column, length } = place;
        Diagnostic {
            severity,
            file: on_one_line(&self.name),
            line,
            column,
            length,
            message: on_one_line(&message),
            help: on_one_line(&help),
            text: on_one_line(&text).into(),
            part,
            instead: instead.map(|line: String| on_one_line(&line).into()),
        }
    }
}
