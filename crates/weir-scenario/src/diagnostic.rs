//! Errors that say where, what, and how to mend it.

use std::fmt;
use std::ops::Range;

/// One error in a scenario file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The file as the user named it.
    pub file: String,
    /// Line, from 1; 0 if the error concerns the file as a whole.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The line's text.
    pub text: String,
    /// How many characters the caret line underlines.
    pub width: usize,
    /// What is wrong.
    pub message: String,
    /// How to mend it.
    pub help: String,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 {
            return write!(f, "{}: error: {}\n  help: {}", self.file, self.message, self.help);
        }
        let number = self.line.to_string();
        let margin = " ".repeat(number.len());
        writeln!(f, "{}:{}:{}: error: {}", self.file, self.line, self.column, self.message)?;
        writeln!(f, "{number} | {}", self.text)?;
        let indent: String =
            self.text.chars().take(self.column - 1).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
        writeln!(f, "{margin} | {indent}{}", "^".repeat(self.width.max(1)))?;
        write!(f, "{margin} help: {}", self.help)
    }
}

/// All errors found in a file, at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostics(pub Vec<Diagnostic>);

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, diagnostic) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            diagnostic.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostics {}

/// An error at bytes `span` of `source`.
pub(crate) fn at(file: &str, source: &str, span: Range<usize>, message: String, help: String) -> Diagnostic {
    let start = floor_boundary(source, span.start);
    let line_start = source[..start].rfind('\n').map_or(0, |newline| newline + 1);
    let line_end = source[start..].find('\n').map_or(source.len(), |newline| start + newline);
    let text = source[line_start..line_end].trim_end_matches('\r');
    let end = floor_boundary(source, span.end).clamp(start, line_end);
    let shown: String =
        text.chars().take(200).map(|c| if c.is_control() && c != '\t' { '\u{fffd}' } else { c }).collect();
    let column = source[line_start..start].chars().count() + 1;
    let width = source[start..end].trim_end().chars().count().min(200);
    Diagnostic {
        file: file.to_string(),
        line: source[..start].matches('\n').count() + 1,
        column,
        text: shown,
        width,
        message,
        help,
    }
}

/// The last character boundary at or before `index`.
fn floor_boundary(source: &str, index: usize) -> usize {
    let mut index = index.min(source.len());
    while !source.is_char_boundary(index) {
        index -= 1;
    }
    index
}
