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
    /// Whatever a reader says of a word, the word's hidden characters are not in it, and it has as many
    /// lines as it says of any word.
    #[test]
    fn messages_about_words_show_no_hidden_character() {
        use crate::{Amount, BitRate, Dscp, Size, Time, number, suggest};
        use weir_core::queue::TimeUnit;
        let of = |bad: number::Bad| [bad.message, bad.help, bad.write.unwrap_or_default()].join("\n");
        for hidden in ['\0', '\u{1b}', '\u{7f}', '\n', '\r', '\u{9b}', '\u{202e}', '\u{200b}'] {
            for around in ["", "400 ", "0", "010", "-1", "1e9", "10Mbps", "64KB", "1.5"] {
                let word = format!("{around}x{hidden}{around}");
                let behind = format!("{around}{hidden}x");
                for word in [word.as_str(), behind.as_str()] {
                    let in_lines = [
                        number::integer(word, "").err().map(of),
                        number::rate(word).err().map(of),
                        number::bytes(word).err().map(of),
                        number::time(word, None).err().map(of),
                        number::time(word, Some(TimeUnit::Micros)).err().map(of),
                        number::fraction(word).err().map(of),
                        number::percent(word).err().map(of),
                        number::real(word).err().map(of),
                    ];
                    let quantities = [
                        Time::parse(word).err(),
                        BitRate::parse(word).err(),
                        Size::parse(word).err(),
                        Amount::parse(word).err(),
                        Dscp::parse(word).err(),
                        suggest("x", [word]),
                    ];
                    assert!(quantities[..5].iter().all(Option::is_some), "{word:?}: {quantities:?}");
                    for said in in_lines.iter().chain(&quantities).flatten() {
                        assert!(!said.contains(|c| is_hidden(c) && c != '\n'), "{word:?}: {said:?}");
                    }
                    for said in quantities.iter().flatten() {
                        assert!(said.lines().count() <= 2, "{word:?}: {said:?}");
                    }
                }
            }
        }
    }
}
