//! The book's pages of disciplines: the head of each source file and the registry's parameters,
//! then what people write below the mark: validation and figure.
//!
//! `cargo xtask book` writes them, `cargo xtask tidy` says when they are out of date.

use crate::files::{File, collect};
use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;
use weir_core::queue::{Kind, ParamSpec, Scope};
use weir_core::sched::{Classes, Entry, Registry};

/// Between what is written from the sources and what people write.
const MARK: &str =
    "<!-- What stands above is written by `cargo xtask book` from the sources; below it, by people. -->";
const SUMMARY: &str = "book/src/SUMMARY.md";
const QUEUES: &str = "book/src/queues.md";
const QUEUES_MARK: &str =
    "<!-- What stands below is written by `cargo xtask book` from the sources; above it, by people. -->";

/// Writes every page that is not what it should be.
pub fn main(root: &Path) -> ExitCode {
    let mut files = Vec::new();
    if let Err(error) = collect(root, root, &mut files) {
        eprintln!("book: cannot read {}: {error}", root.display());
        return ExitCode::from(2);
    }
    for page in pages(&files, &built(&files)) {
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

/// Each registered discipline that runs, with the head of its file.
pub fn built(files: &[File]) -> Vec<(Entry, File)> {
    let registry = Registry::builtin();
    let runs = registry.iter().filter(|e| e.build.is_some());
    runs.map(|entry| {
        let path = files.iter().find(|f| f.text == entry.source).map_or(entry.name, |f| &f.path);
        (*entry, File { path: path.into(), text: entry.manual() })
    })
    .collect()
}

/// What every page of a discipline and the table of contents should be.
pub fn pages(files: &[File], built: &[(Entry, File)]) -> Vec<File> {
    let text = |path: &str| files.iter().find(|f| f.path == path).map_or("", |f| &f.text);
    let entries: Vec<&Entry> = built.iter().map(|(entry, _)| entry).collect();
    let shared = of_queues(&entries);
    let mut pages: Vec<File> = built
        .iter()
        .map(|(entry, manual)| {
            let path = format!("book/src/disciplines/{}.md", entry.name);
            let scenario = format!("book/figures/{}.toml", entry.name);
            let text = page(entry, manual, text(&scenario), &shared, text(&path));
            File { path, text }
        })
        .collect();
    pages.push(File { path: QUEUES.into(), text: queues(&entries, text(QUEUES)) });
    pages.push(File { path: SUMMARY.into(), text: contents(text(SUMMARY), &entries) });
    pages
}

/// A discipline's page; `old` keeps what people wrote, `opening` is the scenario of its figure.
fn page(entry: &Entry, manual: &File, opening: &str, shared: &[&ParamSpec], old: &str) -> String {
    let registry = Registry::builtin();
    let (title, sentence) = title(entry);
    let mut page = format!("# {title}\n\n{}\n{}", sentence_case(sentence), figure(entry.name, opening));
    let rest = manual.text.split_once('\n').map_or("", |(_, rest)| rest);
    page.push_str(&markdown(rest));
    let _ = write!(page, "\n## Parameters\n\n{}", words(entry));
    for (scope, heading) in [
        (Scope::Discipline, "On the interface, or on a class whose queue it is:"),
        (Scope::Class, "On each of its classes:"),
    ] {
        let (of_queues, own): (Vec<_>, Vec<_>) = registry
            .params(entry)
            .filter(|p| p.scope == scope)
            .partition(|p| scope == Scope::Class && shared.iter().any(|other| same(p, other)));
        if !own.is_empty() {
            let _ = write!(page, "\n{heading}\n\n{}", table(&own));
        }
        if !of_queues.is_empty() {
            page.push_str("\nEach class takes the [words of queues and AQMs](../queues.md) too.\n");
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

/// The configuration that the scenario of a figure uses, the figure, and the scenario's opening
/// comment as its caption.
fn figure(name: &str, scenario: &str) -> String {
    let Some((_, text)) = scenario.split_once("text = \"\"\"\n") else { return String::new() };
    let conf = text.split("\"\"\"").next().unwrap_or("");
    let comment = scenario.lines().skip(1).map_while(|line| line.strip_prefix('#'));
    let caption: Vec<&str> = comment.map(str::trim).collect();
    format!(
        "\n```text\n{conf}```\n\n![](../figures/{name}.svg)\n\n{}\nScenario: [`{name}.toml`](../../../book/figures/{name}.toml).\n",
        caption.join("\n")
    )
}

fn table(rows: &[&ParamSpec]) -> String {
    let mut text = String::from("| word | value | default | meaning |\n|---|---|---|---|\n");
    for p in rows {
        let default = if p.default.is_empty() { String::new() } else { format!("`{}`", p.default) };
        let help = escaped(p.help, &mut false);
        let _ = writeln!(text, "| `{}` | {} | {default} | {help} |", p.name, p.form());
    }
    text
}

fn same(a: &ParamSpec, b: &ParamSpec) -> bool {
    (a.name, a.help) == (b.name, b.help)
}

/// The words of classes that every scheduler with queues takes: they speak of the queue.
fn of_queues(entries: &[&Entry]) -> Vec<&'static ParamSpec> {
    let registry = Registry::builtin();
    let with_queues: Vec<_> = entries.iter().filter(|e| e.class_queues).collect();
    let Some(first) = with_queues.first() else { return Vec::new() };
    let mut shared: Vec<_> = registry.params(first).filter(|p| p.scope == Scope::Class).collect();
    shared.retain(|p| with_queues.iter().all(|e| registry.params(e).any(|other| same(p, other))));
    shared.retain(|p| p.name != "default");
    shared
}

/// The page of queues: what every class may say of its queue, by AQM.
fn queues(entries: &[&Entry], old: &str) -> String {
    let shared = of_queues(entries);
    let aqms: Vec<&&Entry> =
        entries.iter().filter(|e| shared.iter().any(|p| p.kind == Kind::Flag && p.name == e.name)).collect();
    let of = |aqm: &Entry, p: &ParamSpec| aqm.params().any(|own| own.name == p.name);
    let common = |p: &&&ParamSpec| {
        let by = aqms.iter().filter(|aqm| of(aqm, p)).count();
        by == 0 || by == aqms.len() || p.kind == Kind::Flag && p.name == "ecn"
    };
    let above = old.split_once(QUEUES_MARK).map_or(old, |(above, _)| above).trim_end();
    let mut text = format!("{above}\n\n");
    let _ = write!(text, "{QUEUES_MARK}\n\n## Every queue\n\n");
    let (all, mut tuning): (Vec<_>, Vec<_>) = shared.iter().partition(common);
    text.push_str(&table(&all));
    for aqm in aqms {
        let (own, others) = tuning.into_iter().partition::<Vec<_>, _>(|p| of(aqm, p));
        tuning = others;
        if !own.is_empty() {
            let _ = write!(
                text,
                "\n## {}\n\nHow it works: [{}](disciplines/{}.md).\n\n",
                title(aqm).0,
                title(aqm).0,
                aqm.name
            );
            text.push_str(&table(&own));
        }
    }
    text
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

    const SCENARIO: &str = "# plot: rate\n# A caption.\n[[port]]\ntext = \"\"\"\ninterface em0 cbq\n\"\"\"\n";

    #[test]
    fn words_of_queues_stand_once_and_by_aqm() {
        let files = built(&[]);
        let entries: Vec<&Entry> = files.iter().map(|(e, _)| e).collect();
        let text = queues(&entries, "");
        for word in ["drop-head", "red", "ecn", "thmin", "lo_thmin", "target", "unmarked"] {
            assert_eq!(text.matches(&format!("\n| `{word}` |")).count(), 1, "{word}: {text}");
        }
        assert!(text.contains("\n## RED\n") && text.contains("\n## RIO\n") && text.contains("\n## CoDel\n"));
        let (red, rio) = (text.find("\n## RED\n").unwrap(), text.find("\n## RIO\n").unwrap());
        assert!((red..rio).contains(&text.find("| `gentle` |").unwrap()), "{text}");
        let shared = of_queues(&entries);
        let (hfsc, manual) = files.iter().find(|(e, _)| e.name == "hfsc").expect("there is an HFSC");
        let page = page(hfsc, manual, SCENARIO, &shared, "");
        assert!(page.contains("| `rt` |") && !page.contains("| `thmin` |"), "{page}");
        assert!(page.contains("](../queues.md)"), "{page}");
    }

    #[test]
    fn a_discipline_without_classes_has_all_its_words_on_its_page() {
        let files = built(&[]);
        let entries: Vec<&Entry> = files.iter().map(|(e, _)| e).collect();
        let shared = of_queues(&entries);
        for (entry, manual) in files.iter().filter(|(e, _)| e.classes == Classes::None) {
            let page = page(entry, manual, SCENARIO, &shared, "");
            for p in Registry::builtin().params(entry) {
                assert!(page.contains(&format!("| `{}` |", p.name)), "{}: {}", entry.name, p.name);
            }
            assert!(!page.contains("](../queues.md)"), "{page}");
        }
    }

    #[test]
    fn a_page_begins_with_a_file_and_its_figure() {
        let text = figure("cbq", SCENARIO);
        let expected = "\n```text\ninterface em0 cbq\n```\n\n![](../figures/cbq.svg)\n\nA caption.\n";
        assert!(text.starts_with(expected), "{text}");
    }

    #[test]
    fn a_page_keeps_what_people_wrote_and_is_stable() {
        let registry = Registry::builtin();
        let entry = registry.find("cbq").expect("there is a CBQ");
        let manual = File { path: "a/cbq.rs".into(), text: entry.manual() };
        let new = page(entry, &manual, SCENARIO, &[], "");
        assert!(new.starts_with("# CBQ\n\nA tree of classes"), "{new}");
        for p in entry.params() {
            assert!(new.contains(&format!("| `{}` |", p.name)), "{}", p.name);
        }
        assert!(new.contains("\n**Principle.** Every class"), "{new}");
        let edited = new.replace("## Validation\n", "## Validation\n\nBy hand.\n");
        assert_eq!(page(entry, &manual, SCENARIO, &[], &edited), edited);
        // Above the mark people change nothing.
        assert_eq!(
            page(entry, &manual, SCENARIO, &[], &edited.replace("A tree of classes", "Rubbish")),
            edited
        );
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
