//! Prose that is read as pages: short sentences, and one word for the end of a packet.
//!
//! Only what a machine can tell without false alarms. The pages of disciplines come from the heads
//! of their files, so these are held too.

use super::{File, Violation};

/// Words of one clause. Code in backquotes does not count, because lists of names are no prose.
const LONGEST: usize = 25;
/// A packet is dropped; these words are for living beings.
const BANNED: [&str; 5] = ["die", "dies", "died", "dying", "death"];

/// The pages, but for the list of papers, whose titles are as they are.
fn pages(files: &[File]) -> impl Iterator<Item = &File> {
    files.iter().filter(|f| {
        let top = !f.path.contains('/') || f.path.starts_with("book/src/");
        top && f.path.ends_with(".md") && !f.path.ends_with("bibliography.md")
    })
}

pub fn sentences_are_short(files: &[File]) -> Vec<Violation> {
    let mut found = Vec::new();
    for file in pages(files) {
        for (line, text) in paragraphs(&file.text) {
            if text.starts_with("**Paper.") {
                continue;
            }
            for clause in clauses(&text) {
                let words = words(&clause).count();
                if words > LONGEST {
                    let start: Vec<&str> = clause.split_whitespace().take(8).collect();
                    let what = format!("{words} words from \"{}\": write two sentences", start.join(" "));
                    found.push(Violation::new(file, line, what));
                }
            }
        }
    }
    found
}

pub fn packets_are_dropped(files: &[File]) -> Vec<Violation> {
    let mut found = Vec::new();
    for file in pages(files) {
        for (line, text) in paragraphs(&file.text) {
            let text = without_code(&text).to_ascii_lowercase();
            let banned = BANNED.iter().find(|banned| {
                text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|word| word == **banned)
            });
            if let Some(word) = banned {
                found.push(Violation::new(file, line, format!("`{word}`: a packet is dropped")));
            }
        }
    }
    found
}

/// The paragraphs and items of a page with their first lines, without code, tables and headings.
fn paragraphs(page: &str) -> Vec<(usize, String)> {
    let mut all: Vec<(usize, String)> = Vec::new();
    let (mut fenced, mut open) = (false, false);
    for (number, line) in page.lines().enumerate() {
        let text = line.trim();
        let fence = text.starts_with("```");
        fenced ^= fence;
        let is_code = fence || fenced || line.starts_with("    ");
        if is_code || text.is_empty() || ["|", "#", "<!--"].iter().any(|mark| text.starts_with(mark)) {
            open = false;
            continue;
        }
        let item = text.strip_prefix("- ").or_else(|| {
            let (number, rest) = text.split_once(". ")?;
            number.bytes().all(|b| b.is_ascii_digit()).then_some(rest)
        });
        match all.last_mut() {
            Some((_, paragraph)) if open && item.is_none() => {
                paragraph.push(' ');
                paragraph.push_str(text);
            }
            _ => all.push((number + 1, item.unwrap_or(text).to_owned())),
        }
        open = true;
    }
    all
}

/// Text without what stands in backquotes or in the brackets of a link.
fn without_code(text: &str) -> String {
    let prose: String = text.split('`').step_by(2).collect::<Vec<_>>().join("§");
    let mut parts = prose.split("](");
    let first = parts.next().unwrap_or("").to_owned();
    parts.fold(first, |all, part| all + part.split_once(')').map_or("", |(_, rest)| rest))
}

/// What stands between full stops, colons and semicolons.
fn clauses(text: &str) -> Vec<String> {
    let text = without_code(text);
    let mut all = vec![String::new()];
    for word in text.split_whitespace() {
        if let Some(clause) = all.last_mut() {
            clause.push_str(word);
            clause.push(' ');
        }
        let bare = word.trim_end_matches(['"', ')', '*']);
        if bare.ends_with(['.', '!', '?', ':', ';', '·']) && !bare.ends_with("...") {
            all.push(String::new());
        }
    }
    all
}

fn words(clause: &str) -> impl Iterator<Item = &str> {
    clause.split_whitespace().filter(|word| word.contains(char::is_alphanumeric))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::holds_for;

    #[test]
    fn long_sentences_are_told_from_lists_and_code() {
        let words = |n: usize| "word ".repeat(n);
        let long = words(26);
        let good = [
            format!("{}. {}: {}; {}", words(25), words(25), words(25), words(25)),
            format!("```\n{long}\n```\n\n| {long} |\n\n# {long}\n\n    {long}\n"),
            format!("- {}\n- {}\n1. {}\n", words(20), words(20), words(20)),
            format!("{} [word](a b c d e) `{long}`", words(24)),
            format!("**Paper.** {long}"),
        ];
        for text in &good {
            holds_for(sentences_are_short, &[("README.md", text.as_str()), ("a/b.rs", &long)], &[]);
        }
        let two_lines = format!("{}\n{}", words(13), words(13));
        let item = format!("- {two_lines}");
        let bad = [("README.md", long.as_str()), ("book/src/a.md", &two_lines), ("book/src/b/c.md", &item)];
        holds_for(sentences_are_short, &[], &bad);
    }

    #[test]
    fn packets_do_not_die() {
        let good = [("README.md", "A packet is dropped: `it_dies`, a diet, a die_hard.")];
        let bad = [("book/src/x.md", "The oldest\npacket dies."), ("README.md", "reasons of death:")];
        holds_for(packets_are_dropped, &good, &bad);
    }
}
