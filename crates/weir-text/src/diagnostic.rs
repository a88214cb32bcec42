//! What is wrong with a text, where, and how to mend it.

use crate::fold::{common, fold};
use crate::place::Place;
use crate::wrap::{COLUMNS, wrap};
use annotate_snippets::{Annotation, AnnotationKind, Level, Message, Origin, Renderer, Snippet};
use std::fmt;

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Severity {
    /// The file is refused.
    Error,
    /// The file loads, but may not mean what its writer thinks.
    Warning,
}

/// One message about a place in a text. Displays as text with the line and a caret, 80 columns wide but
/// for the line and what to write instead. No text in it has hidden characters but tabs:
/// `Source::diagnostic` sees to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Diagnostic {
    /// Error or warning.
    pub severity: Severity,
    /// The file, as the person named it; empty if the text was not read from a file.
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
    /// The line as it stands in the file; of a very long one the part around the place.
    pub text: Box<str>,
    /// Whether `text` is a part of its line.
    pub(crate) part: bool,
    /// The line to write instead, where one follows.
    pub instead: Option<Box<str>>,
}

impl Diagnostic {
    /// True if the file is refused because of it.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
    /// What it has in common with those that say the same of other things: of many only the first are shown.
    pub fn kind(&self) -> (Severity, String) {
        (self.severity, common(&self.message))
    }
    /// The line it is about, with its caret.
    fn snippet(&self) -> Snippet<'_, Annotation<'_>> {
        let column = (self.column as usize).saturating_sub(1);
        let at = if self.part { column.min(MARGIN) } else { column };
        let length = (self.length.max(1) as usize).min(WIDTH);
        // A caret may stand behind the end of the line, where something is missing.
        let text = format!("{:<at$}", self.text);
        let byte = |character: usize| text.char_indices().nth(character).map_or(text.len(), |(byte, _)| byte);
        let span = byte(at)..byte(at + length);
        Snippet::source(text).line_start(self.line as usize).annotation(AnnotationKind::Primary.span(span))
    }
}

/// Characters that a message keeps of a very long line on either side of the place.
pub(crate) const MARGIN: usize = 60;
/// Longer lines are shown in part, characters.
const WIDTH: usize = 200;

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (level, label) =
            if self.is_error() { (Level::ERROR, "error: ") } else { (Level::WARNING, "warning: ") };
        // The printer breaks no text. It sets further lines below the first.
        let message = wrap(&self.message, COLUMNS - label.len(), 0).join("\n");
        let help = wrap(&self.help, COLUMNS - self.line.to_string().len() - "   help: ".len(), 0).join("\n");
        let mut group = level.primary_title(message).elements(None::<Message<'_>>);
        let file = self.file.as_str();
        group = match (self.line, self.part) {
            (0, _) if file.is_empty() => group,
            (0, _) => group.element(Origin::path(file)),
            (_, false) => group.element(self.snippet().path(file)),
            (line, _) => {
                let origin = Origin::path(file).line(line as usize);
                group.element(origin.char_column(self.column as usize)).element(self.snippet())
            }
        };
        if !self.help.is_empty() {
            group = group.element(Level::HELP.message(help));
        }
        if let Some(instead) = self.instead.as_ref().filter(|line| line.chars().count() <= WIDTH) {
            group = group.element(Level::NOTE.with_name("write").message(instead.trim()));
        }
        let text = Renderer::plain().term_width(WIDTH).render(&[group]);
        // Where something is missing behind a line, the line ends in the space for its caret.
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for Diagnostic {}

/// All errors found in a file, at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostics(pub Vec<Diagnostic>);

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        for (one, more) in fold(&self.0, |one| one.kind()) {
            write!(f, "{between}{one}")?;
            if more > 0 {
                write!(f, "\n{more} more like this")?;
            }
            between = "\n";
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostics {}

/// A problem that is not yet tied to a file: what the readers of words return.
#[derive(Clone, Debug)]
pub struct Trouble {
    /// Where it is.
    pub place: Place,
    /// What is wrong.
    pub message: String,
    /// How to mend it; may be empty.
    pub help: String,
    /// What to write in place of what stands at `place`.
    pub replacement: Option<String>,
}

impl Trouble {
    /// A trouble without a replacement.
    pub fn new(place: Place, message: impl Into<String>, help: impl Into<String>) -> Self {
        Trouble { place, message: message.into(), help: help.into(), replacement: None }
    }
    /// Adds what to write in place of what stands there.
    pub fn write(mut self, replacement: impl Into<String>) -> Self {
        self.replacement = Some(replacement.into());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Source;

    fn shown(text: &str, (line, column, length): (u32, u32, u32), replacement: Option<&str>) -> String {
        let mut trouble = Trouble::new(Place { line, column, length }, "wrong", "mend it");
        trouble.replacement = replacement.map(str::to_string);
        Source::new("a.conf", text).diagnostic(Severity::Error, trouble).to_string()
    }

    #[test]
    fn what_where_expected_and_mend() {
        assert_eq!(
            shown("é bad\nx", (1, 3, 3), Some("good")),
            "error: wrong\n --> a.conf:1:3\n  |\n1 | é bad\n  |   ^^^\n  |\n  = help: mend it\n  = write: é good"
        );
        assert_eq!(shown("", (0, 0, 0), None), "error: wrong\n--> a.conf\n = help: mend it");
        // Behind the end of the line, where something is missing.
        assert!(shown("abc", (1, 5, 1), None).contains("\n1 | abc\n  |     ^\n"));
    }

    /// What is said is 80 columns wide, below its first word. A line of the file and one to write stay as they are.
    #[test]
    fn prose_is_folded_and_lines_of_files_are_not() {
        let line = "class cbq em0 a_class_with_a_very_long_name a_parent_with_a_very_long_name bandwidth 10Mbps default";
        let words = "several words of prose and `one thing to type` ".repeat(4);
        let trouble = Trouble::new(Place { line: 1, column: 86, length: 6 }, &words, &words).write("10M");
        let text = Source::new("a.conf", line).diagnostic(Severity::Warning, trouble).to_string();
        let (long, short): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.len() > COLUMNS);
        let instead = line.replace("10Mbps", "10M");
        let caret = format!("  | {:85}^^^^^^", "");
        assert_eq!(long, [format!("1 | {line}"), caret, format!("  = write: {instead}")]);
        assert!(short[1].starts_with("         ") && text.contains("\n  = help: several"), "{text}");
        assert_eq!(text.matches("`one thing to type`").count(), 8, "{text}");
        assert_eq!(text.lines().count(), 12, "{text}");
    }

    /// No control character of a file reaches a terminal, whatever part of a message it stands in.
    #[test]
    fn control_characters_are_tamed() {
        let bell = "\u{7}\u{1b}[31m";
        let trouble = Trouble::new(Place { line: 1, column: 1, length: 1 }, bell, bell).write(bell);
        let text = Source::new(bell, &format!("x{bell}")).diagnostic(Severity::Warning, trouble).to_string();
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
        assert!(text.starts_with("warning: "));
    }

    /// Of many messages of one kind the first three are shown, whatever they name. Another kind stands by itself.
    #[test]
    fn many_of_one_kind_are_folded() {
        let say = |message: String| {
            Source::new("a.conf", "").diagnostic(Severity::Error, Trouble::new(Place::default(), message, ""))
        };
        let mut all: Vec<Diagnostic> =
            (0..10).map(|n| say(format!("class `c{n}` has {n} packets"))).collect();
        all.insert(4, say("class `d` has no packets".to_string()));
        let text = Diagnostics(all).to_string();
        assert_eq!(text.matches("error: ").count(), 4, "{text}");
        assert!(text.contains("class `c2` has 2 packets\n--> a.conf\n7 more like this\n"), "{text}");
        assert!(text.contains("class `d` has no packets"), "{text}");
    }

    /// A message about a place in a very long line keeps that part of it only, and still names the column.
    #[test]
    fn a_long_line_is_kept_in_part() {
        let text = format!("{}bad{}", "x ".repeat(50_000), " y".repeat(50_000));
        let trouble = Trouble::new(Place { line: 1, column: 100_001, length: 3 }, "wrong", "mend it");
        let diagnostic = Source::new("a.conf", &text).diagnostic(Severity::Error, trouble);
        assert!(diagnostic.text.len() < 200);
        let text = diagnostic.to_string();
        assert!(text.contains("--> a.conf:1:100001\n"), "{text}");
        let lines: Vec<&str> = text.lines().collect();
        let caret = lines.iter().position(|line| line.contains("^^^")).unwrap();
        let column = lines[caret].find("^^^").unwrap();
        assert_eq!(&lines[caret - 1][column..column + 3], "bad");
    }
}
