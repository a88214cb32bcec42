//! The book's pages of disciplines: the head of each source file and the registry's parameters,
//! then what people write below the mark: validation and figure.
//!
//! `cargo xtask book` writes them, `cargo xtask tidy` says when they are out of date.

use crate::tidy::{File, collect, pages};
use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;
use weir_core::queue::Scope;
use weir_core::sched::{Classes, Entry};

/// Between what is written from the sources and what people write.
const MARK: &str =
    "<!-- What stands above is written by `cargo xtask book` from the sources; below it, by people. -->";
const SUMMARY: &str = "book/src/SUMMARY.md";

/// Writes every page that is not what it should be.
pub fn main(root: &Path) -> ExitCode {
    let mut files = Vec::new();
    if let Err(error) = collect(root, root, &mut files) {
        eprintln!("book: cannot read {}: {error}", root.display());
        return ExitCode::from(2);
    }
    for page in pages(&files, &pages::built(&files)) {
        if files.iter().any(|f| f.path == page.path && f.text == page.text) {
            continue;
        }
        let path = root.join(&page.path);
        let folder = path.parent().unwrap_or(root);
        if let Err(error) = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&path, &page.text)) {
            eprintln!("book: cannot write {}: {error}", path.display());
            return ExitCode::FAILURE;
        }
        println!("{}", page.path);
    }
    ExitCode::SUCCESS
}

/// What every page of a discipline and the table of contents should be.
pub fn pages(files: &[File], built: &[(Entry, File)]) -> Vec<File> {
    let text = |path: &str| files.iter().find(|f| f.path == path).map_or("", |f| &f.text);
    let mut pages: Vec<File> = built
        .iter()
        .map(|(entry, manual)| {
            let path = format!("book/src/disciplines/{}.md", entry.name);
            let text = page(entry, manual, text(&path));
            File { path, text }
        })
        .collect();
    let entries: Vec<&Entry> = built.iter().map(|(entry, _)| entry).collect();
    pages.push(File { path: SUMMARY.into(), text: contents(text(SUMMARY), &entries) });
    pages
}

/// A discipline's page; `old` keeps what people wrote.
fn page(entry: &Entry, manual: &File, old: &str) -> String {
    let (title, sentence) = title(entry);
    let mut page = format!("# {title}\n\n{}\n", sentence_case(sentence));
    let rest = manual.text.split_once('\n').map_or("", |(_, rest)| rest);
    page.push_str(&markdown(rest));
    let _ = write!(page, "\n## Parameters\n\n{}", words(entry));
    for (scope, heading) in [
        (Scope::Discipline, "On the interface, or on a class whose queue it is:"),
        (Scope::Class, "On each of its classes:"),
    ] {
        let rows: Vec<_> = entry.params().filter(|p| p.scope == scope).collect();
        if rows.is_empty() {
            continue;
        }
        let _ = write!(page, "\n{heading}\n\n| word | value | default | |\n|---|---|---|---|\n");
        for p in rows {
            let none = if p.none { " or -1" } else { "" };
            let value = format!("{}{none}", p.kind).replace('|', ", ");
            let default = if p.default.is_empty() { String::new() } else { format!("`{}`", p.default) };
            let _ =
                writeln!(page, "| `{}` | {value} | {default} | {} |", p.name, escaped(p.help, &mut false));
        }
    }
    let path = &manual.path;
    let _ = write!(page, "\nSource: [`{path}`](../../../{path}).\n\n{MARK}\n");
    page.push_str(old.split_once(MARK).map_or("\n## Validation\n", |(_, below)| {
        below.trim_end_matches('\n').strip_prefix('\n').unwrap_or(below)
    }));
    if !page.ends_with('\n') {
        page.push('\n');
    }
    page
}

/// `CBQ: a tree of ...` is a title and a sentence.
fn title(entry: &Entry) -> (&'static str, &'static str) {
    entry.summary().split_once(": ").unwrap_or((entry.name, entry.summary()))
}

fn sentence_case(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().collect::<String>() + letters.as_str())
}

/// How altq.conf calls it.
fn words(entry: &Entry) -> String {
    let mut text = format!("In altq.conf: `{}`", entry.name);
    for alias in entry.aliases {
        let _ = match alias.implies {
            Some(flag) => write!(text, ", or `{}` for `{} {flag}`", alias.name, entry.name),
            None => write!(text, ", or `{}`", alias.name),
        };
    }
    text.push_str(match entry.classes {
        Classes::None if entry.params.is_empty() => ". It has neither classes nor parameters.\n",
        Classes::None => ". It has no classes: it takes every packet of its interface, or of the class whose queue it is.\n",
        Classes::Flat => ". Its classes stand side by side; their parent is `NULL`.\n",
        Classes::RootedTree => {
            ". Its classes form a tree under one root class whose parent is `NULL`; every class has a queue of its own.\n"
        }
        Classes::Tree => {
            ". Its classes form a tree under `root`, which is there by itself; only classes without children have queues.\n"
        }
    });
    text
}

/// The head of a file as Markdown: `Cost: ...` at the start of a line begins a paragraph.
fn markdown(manual: &str) -> String {
    let mut text = String::new();
    let (mut fenced, mut code) = (false, false);
    for line in manual.lines() {
        // Code in backquotes may reach over the end of a line, not of a paragraph.
        let heading = heading(line);
        code &= heading.is_none() && !line.is_empty();
        if line.starts_with("```") {
            fenced = !fenced;
            let _ = writeln!(text, "{line}");
        } else if fenced {
            let _ = writeln!(text, "{line}");
        } else if let Some((heading, rest)) = heading {
            let _ = writeln!(text, "\n**{heading}.** {}", sentence_case(&escaped(rest, &mut code)));
        } else {
            let _ = writeln!(text, "{}", escaped(line, &mut code));
        }
    }
    // No two empty lines in a row.
    let mut once = String::from("\n");
    for line in text.lines() {
        if !(line.is_empty() && (once.ends_with("\n\n") || once == "\n")) {
            once.push_str(line);
            once.push('\n');
        }
    }
    once
}

const HEADINGS: [&str; 6] =
    ["Principle", "Paper", "Where we differ, and why", "Cost", "Guarantees", "Parameters"];

fn heading(line: &str) -> Option<(&str, &str)> {
    let known = HEADINGS.iter().find(|h| line.starts_with(**h))?;
    let after = &line[known.len()..];
    let colon = after.find(':').filter(|at| *at == 0 || after.starts_with(" ("))?;
    let (heading, rest) = line.split_at(known.len() + colon);
    Some((heading, rest[1..].trim_start()))
}

/// Text that Markdown shows as it stands; code in backquotes is left alone. `code` says whether
/// the text begins inside of it, and then whether it ends there.
fn escaped(text: &str, code: &mut bool) -> String {
    let mut out = String::new();
    for (i, part) in text.split('`').enumerate() {
        if i > 0 {
            out.push('`');
            *code = !*code;
        }
        if *code {
            out.push_str(part);
        } else {
            out.push_str(&part.replace('<', "&lt;").replace('*', "\\*").replace('|', "\\|"));
        }
    }
    out
}

/// The table of contents with a line for each discipline below `Disciplines`.
fn contents(old: &str, entries: &[&Entry]) -> String {
    let mut text = String::new();
    for line in old.lines().filter(|l| !l.contains("](disciplines/")) {
        let _ = writeln!(text, "{line}");
        if line.starts_with("- [Disciplines]") {
            for entry in entries {
                let _ = writeln!(text, "  - [{}](disciplines/{}.md)", title(entry).0, entry.name);
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::pages::built;
    use weir_core::sched::Registry;

    #[test]
    fn a_page_keeps_what_people_wrote_and_is_stable() {
        let registry = Registry::builtin();
        let entry = registry.find("cbq").expect("there is a CBQ");
        let manual = File { path: "a/cbq.rs".into(), text: entry.manual() };
        let new = page(entry, &manual, "");
        assert!(new.starts_with("# CBQ\n\nA tree of classes"), "{new}");
        for p in entry.params() {
            assert!(new.contains(&format!("| `{}` |", p.name)), "{}", p.name);
        }
        assert!(new.contains("\n**Principle.** Every class"), "{new}");
        let edited = new.replace("## Validation\n", "## Validation\n\nBy hand.\n");
        assert_eq!(page(entry, &manual, &edited), edited);
        // Above the mark people change nothing.
        assert_eq!(page(entry, &manual, &edited.replace("A tree of classes", "Rubbish")), edited);
    }

    #[test]
    fn headings_begin_paragraphs_and_formulas_stay() {
        let text =
            markdown("Cost: a * b <= c.\nGuarantees (tests here): `a*b`.\nCosts nothing: no heading.\n");
        let expected = "\n**Cost.** A \\* b &lt;= c.\n\n**Guarantees (tests here).** `a*b`.\nCosts nothing: no heading.\n";
        assert_eq!(text, expected);
        let spans = markdown("Cost: `<a\nb>` < c, `d\n\n*e.\n");
        assert_eq!(spans, "\n**Cost.** `<a\nb>` &lt; c, `d\n\n\\*e.\n");
    }

    #[test]
    fn the_contents_list_each_discipline_once() {
        let files: Vec<(Entry, File)> = built(&[]);
        let entries: Vec<&Entry> = files.iter().map(|(e, _)| e).collect();
        let once = contents(
            "# Weir\n- [Disciplines](disciplines.md)\n  - [Old](disciplines/old.md)\n- [Last](last.md)\n",
            &entries,
        );
        assert_eq!(once, contents(&once, &entries));
        assert!(once.contains("](disciplines/priq.md)") && !once.contains("old"), "{once}");
        assert!(once.ends_with("- [Last](last.md)\n"), "{once}");
    }
}
