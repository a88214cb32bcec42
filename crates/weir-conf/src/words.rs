//! Lines and words of altq.conf, each with its place.

use weir_text::{Place, Severity, Source, Trouble, is_hidden};

/// The longest joined line, bytes, newlines included: ALTQ's buffer without its final zero.
pub(crate) const MAX_LINE_BYTES: usize = 1023;
/// The longest word: ALTQ splits a longer one into two.
const MAX_WORD_BYTES: usize = 63;

/// The commands: each a joined line without its comment, in words. What is wrong with a
/// line as a line goes to `report`, and that line is left out.
pub(crate) fn commands<'a>(
    source: &'a Source,
    report: &mut dyn FnMut(Severity, Trouble),
) -> Vec<Vec<Word<'a>>> {
    let lines = source.lines();
    let mut commands = Vec::new();
    let mut next = 0;
    while next < lines.len() {
        let first = next;
        while lines[next].ends_with('\\') && next + 1 < lines.len() {
            next += 1;
        }
        next += 1;
        if let Some(words) = words(source, first, next, report)
            && !words.is_empty()
        {
            commands.push(words);
        }
    }
    commands
}
/// The words of the lines `first..end`, which are joined.
fn words<'a>(
    source: &'a Source,
    first: usize,
    end: usize,
    report: &mut dyn FnMut(Severity, Trouble),
) -> Option<Vec<Word<'a>>> {
    let lines = source.lines();
    let bytes: usize = lines[first..end].iter().map(|l| l.len() + 1).sum();
    if bytes > MAX_LINE_BYTES {
        let place = Place { line: first as u32 + 1, column: 1, length: 1 };
        let help = format!(
            "with the lines joined to it, it may have {MAX_LINE_BYTES}: move its comment to a line of \
             its own, or shorten it"
        );
        report(Severity::Error, Trouble::new(place, format!("this line has {bytes} bytes"), help));
        return None;
    }
    let mut words = Vec::new();
    let mut comment = None;
    let mut fine = true;
    for (index, text) in lines[first..end].iter().enumerate() {
        let line = (first + index) as u32 + 1;
        let text = if index + 1 < end - first || text.ends_with('\\') {
            text.strip_suffix('\\').unwrap_or(text)
        } else {
            text
        };
        if let Some(began) = comment {
            if !text.trim_start().starts_with('#') && !text.trim().is_empty() {
                let length = text.trim().chars().count() as u32;
                let column = (text.chars().count() - text.trim_start().chars().count()) as u32 + 1;
                let message = format!("this belongs to the comment that begins on {}", source.at(began));
                let help = "a comment goes on over joined lines: take away the backslash before it";
                report(Severity::Warning, Trouble::new(Place { line, column, length }, message, help));
            }
            continue;
        }
        let code = match text.find('#') {
            Some(at) => {
                comment = Some(line);
                &text[..at]
            }
            None => text,
        };
        split(code, line, &mut words);
    }
    // The prefixes of a contract are one word; ALTQ never read them.
    let prefixes = words.first().is_some_and(|w| w.text == "sla");
    // ALTQ finds the brackets of a conditioner before it splits words.
    let brackets = words.first().is_some_and(|w| w.text.starts_with("con"));
    for word in &words {
        if word.text.len() > MAX_WORD_BYTES && !prefixes && !(brackets && word.text.contains(['<', '>'])) {
            fine = false;
            let message = format!("this word has {} bytes", word.text.len());
            let help = format!("a word may have {MAX_WORD_BYTES}; ALTQ would have split it into two");
            report(Severity::Error, Trouble::new(word.place, message, help));
        } else if let Some(hidden) = word.text.chars().find(|&c| is_hidden(c)) {
            fine = false;
            let message = format!("this word has the character U+{:04X}, which is not shown", hidden as u32);
            let help = "write it with letters, digits and signs: what looks alike must be alike";
            report(Severity::Error, Trouble::new(word.place, message, help));
        } else if word.text.ends_with('\\') {
            fine = false;
            let help = "a backslash joins lines only as the last character of its line: take away what \
                        stands after it";
            report(Severity::Error, Trouble::new(word.place, "a backslash inside the line", help));
        }
    }
    fine.then_some(words)
}
fn split<'a>(text: &'a str, line: u32, words: &mut Vec<Word<'a>>) {
    let mut column = 1;
    for (number, piece) in text.split([' ', '\t']).enumerate() {
        column += u32::from(number > 0);
        let length = piece.chars().count() as u32;
        if length > 0 {
            words.push(Word { text: piece, place: Place { line, column, length } });
        }
        column += length;
    }
}

/// A word and where it stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Word<'a> {
    pub text: &'a str,
    pub place: Place,
}

/// The words of one command, taken one by one.
pub(crate) struct Words<'a> {
    words: Vec<Word<'a>>,
    next: usize,
}

impl<'a> Words<'a> {
    pub fn new(words: Vec<Word<'a>>) -> Self {
        Words { words, next: 0 }
    }
    pub fn peek(&self) -> Option<Word<'a>> {
        self.words.get(self.next).copied()
    }
    pub fn take(&mut self) -> Option<Word<'a>> {
        let word = self.peek()?;
        self.next += 1;
        Some(word)
    }
    /// Steps back over the word just taken.
    pub fn untake(&mut self) {
        self.next = self.next.saturating_sub(1);
    }
    /// Takes the next word if it is this one.
    pub fn accept(&mut self, text: &str) -> Option<Word<'a>> {
        self.peek().filter(|w| w.text == text)?;
        self.take()
    }
    pub fn rest(&self) -> &[Word<'a>] {
        &self.words[self.next..]
    }
    /// Just behind the last word.
    pub fn end(&self) -> Place {
        let last = self.words.last().map(|w| w.place).unwrap_or_default();
        Place { line: last.line, column: last.column + last.length + 1, length: 1 }
    }
    /// The next word, or what is missing.
    pub fn need(&mut self, what: &str, help: &str) -> Result<Word<'a>, Trouble> {
        self.take().ok_or_else(|| Trouble::new(self.end(), format!("{what} is missing"), help))
    }
}

/// Where an option stands with its value: from its word to the last word taken.
pub(crate) fn span(word: Place, last: Place) -> Place {
    match last.line == word.line && last.column >= word.column {
        true => Place { length: last.column + last.length - word.column, ..word },
        false => word,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> (Vec<Vec<String>>, Vec<String>) {
        let source = Source::new("f", text);
        let mut said = Vec::new();
        let words = commands(&source, &mut |_, t| said.push(t.message));
        let words = words.iter().map(|l| l.iter().map(|w| w.text.to_string()).collect()).collect();
        (words, said)
    }

    #[test]
    fn joins_lines_and_cuts_comments_after_joining() {
        let (words, said) = lines("a b\\\n  c # d \\\n e\nf\r\n\n# g\n");
        assert_eq!(words, [vec!["a", "b", "c"], vec!["f"]]);
        assert_eq!(said, ["this belongs to the comment that begins on line 2"]);
    }

    #[test]
    fn places_count_characters_from_one() {
        let source = Source::new("f", "\té\tword \\\n x");
        let words = commands(&source, &mut |_, t| panic!("{t:?}"));
        let places: Vec<_> =
            words[0].iter().map(|w| (w.place.line, w.place.column, w.place.length)).collect();
        assert_eq!(places, [(1, 2, 1), (1, 4, 4), (2, 2, 1)]);
    }

    #[test]
    fn refuses_what_the_original_split_or_could_not_hold() {
        let (words, said) = lines(&format!("a {}\n", "x".repeat(64)));
        assert!(words.is_empty());
        assert_eq!(said, ["this word has 64 bytes"]);
        let (words, said) = lines(&format!("a {}\nb\n", "x ".repeat(600)));
        assert_eq!(words, [["b"]]);
        assert_eq!(said, ["this line has 1203 bytes"]);
    }
}
