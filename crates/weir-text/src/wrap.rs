//! Text for people, at most 80 columns wide.

/// No line of what is printed for people is longer, but for lines of a file, and lines to type.
pub const COLUMNS: usize = 80;

/// The lines of a text, broken at blanks: none is longer than `width` characters, if its words are not.
/// Further lines begin with `indent` blanks. What stands in backticks is to be typed, and stays whole.
///
/// ```
/// assert_eq!(weir_text::wrap("write `thmin 5`", 10, 2), ["write", "  `thmin 5`"]);
/// ```
pub fn wrap(text: &str, width: usize, indent: usize) -> Vec<String> {
    let pairs = text.matches('`').count().is_multiple_of(2);
    let mut typed = false;
    let words = text.split(|c| {
        typed ^= pairs && c == '`';
        c == ' ' && !typed
    });
    let mut lines: Vec<String> = Vec::new();
    for word in words {
        match lines.last_mut() {
            None => lines.push(word.to_string()),
            // Blanks at the beginning stay with the first word.
            Some(line)
                if line.trim_start().is_empty()
                    || line.chars().count() + 1 + word.chars().count() <= width =>
            {
                line.push(' ');
                line.push_str(word);
            }
            Some(_) => lines.push(format!("{:indent$}{word}", "")),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stay_whole_and_lines_are_short() {
        let text = "word ".repeat(40);
        let lines = wrap(text.trim(), COLUMNS, 2);
        assert!(lines.len() == 3 && lines.iter().all(|line| line.chars().count() <= COLUMNS), "{lines:?}");
        assert!(lines[1..].iter().all(|line| line.starts_with("  word")), "{lines:?}");
        assert_eq!(lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" "), text.trim());
        assert_eq!(wrap("", 10, 2), [""]);
        assert_eq!(wrap("    one two", 10, 4), ["    one", "    two"]);
        // One word that is too long stands alone.
        assert_eq!(wrap("a 0123456789abc b", 10, 0), ["a", "0123456789abc", "b"]);
    }

    #[test]
    fn what_is_to_be_typed_is_in_one_line() {
        assert_eq!(wrap("write `a b c`, or `d`", 10, 0), ["write", "`a b c`,", "or `d`"]);
        // A backtick that is a word's own opens nothing.
        assert_eq!(wrap("no word ` a b c d e", 10, 0), ["no word `", "a b c d e"]);
    }
}
