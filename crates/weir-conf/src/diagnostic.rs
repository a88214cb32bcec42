//! What is wrong with a configuration, where, and how to mend it.

use std::fmt;

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Severity {
    /// The file is refused.
    Error,
    /// The file loads, but may not mean what its writer thinks.
    Warning,
}

/// One message about a place in a configuration. Displays as text with the line and a caret.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Diagnostic {
    /// Error or warning.
    pub severity: Severity,
    /// The file, as the person named it; empty if the plan was not read from a file.
    pub file: String,
    /// Line, from 1; 0 if it is about the whole.
    pub line: u32,
    /// Column in characters, from 1; 0 if it is about the whole.
    pub column: u32,
    /// How many characters it is about.
    pub length: u32,
    /// What is wrong.
    pub message: String,
    /// How to mend it; may be empty.
    pub help: String,
    /// The line as it stands in the file.
    pub text: Box<str>,
    /// The line to write instead, where one follows.
    pub instead: Option<Box<str>>,
}

impl Diagnostic {
    /// True if the file is refused because of it.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

/// A line for a terminal: no control characters but tabs.
fn tame(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\t' { '\u{fffd}' } else { c }).collect()
}

/// The longest line that is shown whole, characters.
const MAX_WIDTH: usize = 200;
/// What is shown of a longer one on either side of the place in question.
const MARGIN: usize = 60;

/// The part of a line around `at`, and where `at` is in it.
fn window(text: &str, at: usize) -> (String, usize) {
    if text.chars().count() <= MAX_WIDTH {
        return (text.to_string(), at);
    }
    let start = at.saturating_sub(MARGIN);
    let left = if start > 0 { "..." } else { "" };
    let part: String = text.chars().skip(start).take(2 * MARGIN).collect();
    let right = if start + 2 * MARGIN < text.chars().count() { "..." } else { "" };
    (format!("{left}{part}{right}"), at - start + left.len())
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = if self.is_error() { "error" } else { "warning" };
        write!(f, "{severity}: {}", tame(&self.message))?;
        if self.line == 0 {
            if !self.file.is_empty() {
                write!(f, "\n --> {}", tame(&self.file))?;
            }
            if !self.help.is_empty() {
                write!(f, "\n  = help: {}", tame(&self.help))?;
            }
            return Ok(());
        }
        let number = self.line.to_string();
        let gap = " ".repeat(number.len());
        write!(f, "\n{gap}--> {}:{}:{}", tame(&self.file), self.line, self.column)?;
        let (shown, before) = window(&self.text, (self.column as usize).saturating_sub(1));
        write!(f, "\n{gap} |\n{number} | {}", tame(&shown))?;
        // Tabs before the caret stay tabs, so that it stands under its word on any terminal.
        let pad: String = shown.chars().take(before).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
        let blank = " ".repeat(before.saturating_sub(shown.chars().count()));
        let carets = (self.length.max(1) as usize).min(MAX_WIDTH);
        write!(f, "\n{gap} | {pad}{blank}{}", "^".repeat(carets))?;
        if !self.help.is_empty() {
            write!(f, "\n{gap} = help: {}", tame(&self.help))?;
        }
        if let Some(instead) = self.instead.as_ref().filter(|l| l.chars().count() <= MAX_WIDTH) {
            write!(f, "\n{gap} = write: {}", tame(instead.trim()))?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostic {}

/// A problem that is not yet tied to a file: what the readers of words return.
#[derive(Clone, Debug)]
pub(crate) struct Trouble {
    pub place: crate::source::Place,
    pub message: String,
    pub help: String,
    /// What to write in place of what stands at `place`.
    pub replacement: Option<String>,
}

impl Trouble {
    pub fn new(place: crate::source::Place, message: impl Into<String>, help: impl Into<String>) -> Self {
        Trouble { place, message: message.into(), help: help.into(), replacement: None }
    }
    pub fn write(mut self, replacement: impl Into<String>) -> Self {
        self.replacement = Some(replacement.into());
        self
    }
}
