//! Text for people: tables and notes of at most 80 columns.

use comfy_table::{Cell, CellAlignment, ColumnConstraint, ContentArrangement, Table, presets};
use weir_report::report::Check;
use weir_text::{COLUMNS, visible, wrap};

/// The least room that a column of words gets before the gaps become narrower.
const WORDS: usize = 12;

/// How the cells of a column stand.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// To the left; wrapped where the table is too wide.
    Words,
    /// To the right, never wrapped.
    Number,
}

/// A table with plain columns, as `ls` prints: no frames, words left, numbers right.
pub struct Rows {
    kinds: Vec<Kind>,
    rows: Vec<Vec<String>>,
}

/// A table with this header: a title that begins with `>` stands over numbers, `|` begins its next line.
pub fn table(header: &[&str]) -> Rows {
    let kind = |title: &&str| if title.starts_with('>') { Kind::Number } else { Kind::Words };
    let title = |title: &&str| title.trim_start_matches('>').replace('|', "\n");
    Rows { kinds: header.iter().map(kind).collect(), rows: vec![header.iter().map(title).collect()] }
}

impl Rows {
    /// Adds a row: one cell for each column.
    pub fn add(&mut self, row: Vec<String>) {
        self.rows.push(row);
    }

    /// Leaves a column out in which nothing stands, or nothing but zeros.
    pub fn drop_if_zero(&mut self, column: usize) {
        if self.rows[1..].iter().all(|row| matches!(row[column].as_str(), "" | "0")) {
            self.kinds.remove(column);
            self.rows.iter_mut().for_each(|row| _ = row.remove(column));
        }
    }

    /// The widest cell of a column.
    fn natural(&self, column: usize) -> usize {
        let lines = self.rows.iter().flat_map(|row| row[column].lines());
        lines.map(|line| line.chars().count()).max().unwrap_or(0)
    }

    /// Prints it, without blanks at the ends of lines.
    pub fn print(self) {
        out!("{self}");
    }
}

impl std::fmt::Display for Rows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let columns = self.kinds.len();
        let least = |column: usize| match self.kinds[column] {
            Kind::Number => self.natural(column),
            Kind::Words => self.natural(column).min(WORDS),
        };
        let tight = (0..columns).map(least).sum::<usize>() + 2 * (columns - 1) > COLUMNS;
        let gap = if tight { 1 } else { 2 };
        let mut table = Table::new();
        table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
        // The last column's gap lies beyond the edge and is trimmed.
        table.set_width((COLUMNS + usize::from(gap)) as u16);
        for row in &self.rows {
            let cell = |(text, kind): (&String, &Kind)| match kind {
                Kind::Number => Cell::new(text).set_alignment(CellAlignment::Right),
                Kind::Words => Cell::new(text),
            };
            table.add_row(row.iter().zip(&self.kinds).map(cell));
        }
        for (column, kind) in table.column_iter_mut().zip(&self.kinds) {
            column.set_padding((0, gap));
            if *kind == Kind::Number {
                column.set_constraint(ColumnConstraint::ContentWidth);
            }
        }
        let text = table.to_string();
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        f.write_str(&lines.join("\n"))
    }
}

/// Prints checks of a run or an experiment: what was expected, and what came. Why a check could not be
/// made, or which window failed, stands beside it; a diagnostic stands below the table.
pub fn print_checks<'a>(checks: impl IntoIterator<Item = &'a Check>) {
    let (rows, below) = checks_table(checks);
    rows.print();
    print_notes(below);
}

fn checks_table<'a>(checks: impl IntoIterator<Item = &'a Check>) -> (Rows, Vec<&'a String>) {
    let mut rows = table(&["", "EXPECTATION", ">EXPECTED", ">MEASURED"]);
    let mut below = Vec::new();
    for check in checks {
        let mark = if check.pass { "ok" } else { "MISS" };
        let what = match &check.note {
            Some(note) if note.contains('\n') => {
                below.push(note);
                format!("{} (below)", check.label())
            }
            Some(note) => format!("{} ({note})", check.label()),
            None => check.label().to_string(),
        };
        rows.add(vec![mark.to_string(), what, check.expected.clone(), check.shown()]);
    }
    (rows, below)
}

/// Prints what a reader should know besides the values.
pub fn print_notes<'a>(notes: impl IntoIterator<Item = &'a String>) {
    for note in notes {
        // A diagnostic says what it is.
        match note.contains('\n') {
            true => out!("{}", folded(note)),
            false => print_wrapped(&format!("note: {note}")),
        }
    }
}

/// Prints a word of at most seven letters, and text beside it: further lines stand below the first.
pub fn print_below(word: &str, text: &str) {
    for line in wrap(&format!("{word:<8}{text}"), COLUMNS, 8) {
        out!("{line}");
    }
}

/// Says on standard error what is no result. A diagnostic says what it is.
pub fn say(text: &str) {
    let text = visible(text);
    match text.contains('\n') && text.starts_with("error: ") {
        true => eprintln!("{}", folded(&text)),
        false => eprintln!("{}", folded(&format!("weir: {text}"))),
    }
}

/// The text with lines of at most 80 columns, but for those of a diagnostic that show a file's line, point at one, name a
/// file, or are to be typed.
fn folded(text: &str) -> String {
    let stays = |line: &str| {
        let digits = |c: char| c.is_ascii_digit();
        let mark = line.trim_start().trim_start_matches(digits).trim_start();
        ["| ", "--> ", "= write: "].iter().any(|begin| mark.starts_with(begin))
    };
    let lines =
        text.lines().flat_map(|line| if stays(line) { vec![line.to_string()] } else { wrapped(line) });
    lines.collect::<Vec<_>>().join("\n")
}

/// Prints text, further lines indented.
pub fn print_wrapped(text: &str) {
    for line in wrapped(text) {
        out!("{line}");
    }
}

/// Prints text of several paragraphs. One that has a line too long is filled anew; a paragraph begins
/// behind an empty line, or with its subject and a colon, as in `Cost: `.
pub fn print_text(text: &str) {
    let begins = |line: &str| {
        let head = line.split_once(": ").map_or("", |(head, _)| head);
        let words = head.chars().all(|c| c.is_alphabetic() || " ,()".contains(c));
        line.trim().is_empty() || words && head.chars().next().is_some_and(char::is_uppercase)
    };
    let mut paragraphs: Vec<Vec<&str>> = Vec::new();
    for line in text.lines() {
        match paragraphs.last_mut() {
            Some(last) if !begins(line) && !last[0].trim().is_empty() => last.push(line),
            _ => paragraphs.push(vec![line]),
        }
    }
    for lines in paragraphs {
        if lines.iter().all(|line| line.chars().count() <= COLUMNS) {
            lines.iter().for_each(|line| out!("{}", line.trim_end()));
        } else {
            print_wrapped(&lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" "));
        }
    }
}

/// The lines of a text, further lines indented.
fn wrapped(text: &str) -> Vec<String> {
    wrap(text, COLUMNS, 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn width(text: &str) -> usize {
        text.lines().map(|line| line.chars().count()).max().unwrap_or(0)
    }

    #[test]
    fn tables_fit_and_have_no_trailing_blanks() {
        let long =
            "rate of classes c0+c1 per classes c0+c1+c3+c4 from 13s to 17s, in every 1s, sliding by 100ms";
        let mut rows = table(&["", "EXPECTATION", ">EXPECTED", ">MEASURED"]);
        rows.add(["ok", long, "60.4 % ± 5 points", "60.44 %"].map(String::from).to_vec());
        rows.add(["MISS", "short", "at most 3 ms", "1.23 s"].map(String::from).to_vec());
        let text = rows.to_string();
        assert!(width(&text) <= COLUMNS, "{text}");
        assert!(text.lines().all(|line| line == line.trim_end()), "{text:?}");
        assert!(text.contains("60.4 % ± 5 points"), "numbers stay whole: {text}");
        assert!(text.contains(" 60.44 %\n"), "numbers stay whole: {text}");
        // Many numbers: the gaps become narrower before a word is broken.
        let number = "123.4 Mbit/s";
        let mut rows = table(&["CLASS", ">A", ">B", ">C", ">D", ">E"]);
        rows.add(["agencyA_video", number, number, number, number, number].map(String::from).to_vec());
        let text = rows.to_string();
        assert!(width(&text) <= COLUMNS && text.contains("agencyA_video"), "{text}");
    }

    /// Every line of prose is folded, also where there are several; lines of a file are not.
    #[test]
    fn several_lines_are_folded_each() {
        let prose = "several words of prose ".repeat(10);
        let line = "class priq em0 ".repeat(10);
        let marked = [
            format!("12 | {line}"),
            format!("   | {:90}^^^", ""),
            format!("--> {line}"),
            format!(" = write: {line}"),
        ];
        let text = folded(&format!("{prose}\n{}\n{prose}", marked.join("\n")));
        let (long, short): (Vec<&str>, Vec<&str>) =
            text.lines().partition(|line| line.chars().count() > COLUMNS);
        assert_eq!(long, marked);
        assert_eq!(short.len(), 6, "{text}");
        assert_eq!(short.iter().filter(|line| !line.starts_with("  ")).count(), 2, "{text}");
    }

    /// A diagnostic keeps its form: it stands below the table, and not in a cell.
    #[test]
    fn a_diagnostic_stands_below_the_checks() {
        let note = "error: wrong\n --> a.toml:1:1\n  |\n1 | name = \"x\"\n  |        ^^^";
        let check = |note: &str| Check {
            what: "run".into(),
            expected: "a run".into(),
            measured: None,
            unit: weir_text::Unit::Number,
            pass: false,
            note: Some(note.into()),
        };
        let checks = [check(note), check("why")];
        let (rows, below) = checks_table(&checks);
        let text = rows.to_string();
        assert!(text.contains("MISS  run (below)") && text.contains("MISS  run (why)"), "{text}");
        assert_eq!(below, [note]);
    }

    #[test]
    fn columns_of_zeros_can_be_left_out() {
        let mut rows = table(&["CLASS", ">MARKED", ">SENT"]);
        rows.add(["a", "0", "7"].map(String::from).to_vec());
        rows.drop_if_zero(2);
        rows.drop_if_zero(1);
        assert_eq!(rows.to_string(), "CLASS  SENT\na         7");
    }
}
