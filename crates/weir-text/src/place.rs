//! Where something stands in a text.

use std::ops::Range;

/// Where something stands in a file. Equal to every other place, so that two plans are equal
/// when they say the same.
#[derive(Clone, Copy, Default, Debug)]
pub struct Place {
    /// Line, from 1; 0 where there is no file, or where the file as a whole is meant.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// Length in characters.
    pub length: u32,
}

impl PartialEq for Place {
    fn eq(&self, _: &Place) -> bool {
        true
    }
}
impl Eq for Place {}

impl Place {
    /// The place of the bytes `span` of `text`, as far as they stand on one line.
    pub fn of_span(text: &str, span: Range<usize>) -> Self {
        let start = text.floor_char_boundary(span.start);
        let line_start = text[..start].rfind('\n').map_or(0, |newline| newline + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |newline| start + newline);
        let end = text.floor_char_boundary(span.end).clamp(start, line_end);
        Place {
            line: text[..start].matches('\n').count() as u32 + 1,
            column: text[line_start..start].chars().count() as u32 + 1,
            length: text[start..end].trim_end().chars().count() as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_become_lines_and_columns_of_characters() {
        let place = |span| {
            let Place { line, column, length } = Place::of_span("aé = 1\r\nü = 22\nz", span);
            (line, column, length)
        };
        assert_eq!(place(0..3), (1, 1, 2));
        assert_eq!(place(14..16), (2, 5, 2));
        // A span over several lines is shown on its first; one beyond the end, at the end.
        assert_eq!(place(6..17), (1, 6, 1));
        assert_eq!(place(100..200), (3, 2, 0));
        // In the midst of a character.
        assert_eq!(place(2..3), (1, 2, 1));
    }
}
