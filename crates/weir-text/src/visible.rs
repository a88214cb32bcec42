//! Characters that a terminal does not show, or that change how it shows others.

use std::borrow::Cow;

/// True for control characters and for those that are invisible or turn the direction of text: no
/// name may have one, because two names that look alike would differ.
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}' | '\u{e0000}'..='\u{e0fff}')
}

/// The text for a terminal: a hidden character is shown as U+FFFD. Newlines and tabs stay.
pub fn visible(text: &str) -> Cow<'_, str> {
    let hidden = |c: char| is_hidden(c) && c != '\n' && c != '\t';
    match text.contains(hidden) {
        false => Cow::Borrowed(text),
        true => text.chars().map(|c| if hidden(c) { '\u{fffd}' } else { c }).collect(),
    }
}

/// The text as a part of one line of a terminal: a newline is shown as U+FFFD, too.
pub fn on_one_line(text: &str) -> String {
    text.chars().map(|c| if c == '\n' || is_hidden(c) && c != '\t' { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_what_a_terminal_would_hide() {
        assert_eq!(visible("a\tb\nc \u{e9}\u{4e2d}"), "a\tb\nc \u{e9}\u{4e2d}");
        assert_eq!(
            visible("\u{1b}[31m\0\r\u{202e}x\u{200b}\u{9b}"),
            "\u{fffd}[31m\u{fffd}\u{fffd}\u{fffd}x\u{fffd}\u{fffd}"
        );
    }
}
