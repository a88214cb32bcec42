//! The text that messages speak of.

use crate::diagnostic::{Diagnostic, MARGIN, Severity, Trouble};
use crate::place::Place;
use crate::visible::on_one_line;

/// The longest line that a message keeps whole, in characters. Many messages about one long line must
/// not take its length each.
const MAX_KEPT: usize = 1100;

/// A line that begins so begins another file in a text of several; its name follows.
pub const BEGIN: &str = "#<< ";
/// This line ends it.
pub const END: &str = "#>>";

/// A file's text by lines, for showing the line that a message is about.
#[derive(Clone, Default, Debug)]
pub struct Source {
    name: String,
    lines: Vec<String>,
    /// Where another file begins or goes on; none in a text of one file.
    parts: Vec<Part>,
    /// The other files, in the order in which they begin.
    others: Vec<String>,
}

/// From a line on, a text of several files is that of one of them.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// The first line, in the text.
    from: u32,
    /// The file: 0 is the outermost, then those of `others`.
    file: usize,
    /// The number of the first line, in the file.
    line: u32,
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
        Source { name: name.to_string(), lines, parts: Vec::new(), others: Vec::new() }
    }
    /// The text of the file `name` with others in it, each between [`BEGIN`] with its name and [`END`].
    pub fn whole(name: &str, text: &str) -> Self {
        let mut source = Source::new(name, text);
        // The files that are open, each with the number of its present line.
        let mut open = vec![(0, 0)];
        for (from, text) in (2..).zip(&source.lines) {
            if let Some(last) = open.last_mut() {
                last.1 += 1;
            }
            if let Some(name) = text.strip_prefix(BEGIN) {
                source.others.push(name.to_string());
                open.push((source.others.len(), 0));
            } else if text == END && open.len() > 1 {
                // The line that began it counts in the file around it, the one that ends it in neither.
                open.pop();
            } else {
                continue;
            }
            if let Some(&(file, line)) = open.last() {
                source.parts.push(Part { from, file, line: line + 1 });
            }
        }
        source
    }
    /// The file of a line, by its place, and the line's number there.
    fn origin(&self, line: u32) -> (usize, u32) {
        let after = self.parts.partition_point(|part| part.from <= line);
        match after.checked_sub(1).and_then(|index| self.parts.get(index)) {
            Some(part) => (part.file, part.line + (line - part.from)),
            None => (0, line),
        }
    }
    fn file(&self, number: usize) -> &str {
        number.checked_sub(1).and_then(|other| self.others.get(other)).map_or(&self.name, String::as_str)
    }
    /// A line as messages name it: `line 12`, or `line 12 of slas.conf` if there are several files.
    pub fn at(&self, line: u32) -> String {
        let (file, own) = self.origin(line);
        if self.parts.is_empty() {
            format!("line {own}")
        } else {
            format!("line {own} of {}", self.file(file))
        }
    }
    /// The place of a file among those of the text, for putting messages in order.
    pub fn rank(&self, file: &str) -> usize {
        self.others.iter().position(|other| on_one_line(other) == file).map_or(0, |other| other + 1)
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
        let (file, line) = self.origin(line);
        Diagnostic {
            severity,
            file: on_one_line(self.file(file)),
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
