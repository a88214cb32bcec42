//! What is written about each discipline: the head of its file, its page in the book.

use super::code::rust;
use super::{File, Violation};
use crate::book::{self, built};
use weir_core::queue::ParamSpec;
use weir_core::sched::{Entry, Registry};

/// What the head of a discipline's file must have, in this order. Its parameters are declared
/// once, as `ParamSpec`s, and printed from these.
const HEADINGS: [&str; 4] = ["Principle:", "Paper:", "Cost:", "Guarantees"];
const PAGES: &str = "book/src/disciplines/";

pub fn disciplines_open_with_their_manual(files: &[File]) -> Vec<Violation> {
    built(files).iter().flat_map(|(_, manual)| headings_of(manual)).collect()
}

pub fn parameters_say_what_they_do(files: &[File]) -> Vec<Violation> {
    let registry = Registry::builtin();
    built(files).iter().flat_map(|(entry, manual)| silent(registry.params(entry), manual)).collect()
}

fn silent(specs: impl Iterator<Item = &'static ParamSpec>, manual: &File) -> Vec<Violation> {
    let says_little = specs.filter(|spec| !spec.help.ends_with('.') || spec.help.len() < 10);
    says_little
        .map(|spec| {
            let what = format!("parameter `{}`: its help must be a sentence, with the unit", spec.name);
            Violation::new(manual, 1, what)
        })
        .collect()
}

/// What the head of a file says of ranges and defaults is what the declarations say.
pub fn numbers_of_parameters_are_declared(files: &[File]) -> Vec<Violation> {
    let registry = Registry::builtin();
    let of = |(entry, manual): &(Entry, File)| {
        let specs: Vec<&ParamSpec> = registry.params(entry).collect();
        undeclared(&specs, manual)
    };
    built(files).iter().flat_map(of).collect()
}

/// The numbers in brackets under `Parameters` that no parameter named before them declares: not in its
/// range, default or help. A word stands for those that end in it too, as `thmin` for `lo_thmin`.
fn undeclared(specs: &[&ParamSpec], manual: &File) -> Vec<Violation> {
    let Some(line) = manual.text.lines().position(|line| line.starts_with("Parameters")) else {
        return Vec::new();
    };
    let text = manual.text.lines().skip(line).collect::<Vec<_>>().join(" ");
    let mut found = Vec::new();
    for part in text.split(')') {
        let Some((before, inside)) = part.split_once('(') else { continue };
        let names: Vec<&str> = before.split('`').skip(1).step_by(2).collect();
        let meant = |spec: &&&ParamSpec| {
            names.iter().any(|n| spec.name == *n || spec.name.ends_with(&format!("_{n}")))
        };
        let declared: Vec<String> = specs
            .iter()
            .filter(meant)
            .flat_map(|spec| numbers(&format!("{} {} {}", spec.kind, spec.default, spec.help)))
            .collect();
        for number in numbers(inside).into_iter().filter(|n| !declared.contains(n)) {
            let what = format!("`{}`: its declaration does not say {number}", names.join("`, `"));
            found.push(Violation::new(manual, line + 1, what));
        }
    }
    found
}

/// The numbers in a text, `64K` as 65536; digits that belong to a word, as in `AFx1`, are none.
fn numbers(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '.')));
    for word in words.flat_map(|word| word.split("..")).map(|word| word.trim_matches('.')) {
        let digits = word.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(word.len());
        let (number, suffix) = word.split_at(digits);
        let unit = match suffix {
            "K" => 1 << 10,
            "M" => 1 << 20,
            _ => 1,
        };
        if !number.is_empty() {
            found.push(number.parse::<u64>().map_or(number.to_string(), |n| (n * unit).to_string()));
        }
    }
    found
}

fn headings_of(manual: &File) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut from = 0;
    let first = manual.text.lines().next().unwrap_or("");
    if !first.contains(": ")
        || !first.trim_end().ends_with(['.', ';', ',']) && manual.text.lines().count() < 2
    {
        found.push(Violation::new(manual, 1, "the first line says `NAME: what it does, in a sentence.`"));
    }
    for heading in HEADINGS {
        match manual.text.lines().skip(from).position(|line| line.starts_with(heading)) {
            Some(at) => from += at,
            None => {
                let what = format!("no `{heading}` in its place; the order is {}", HEADINGS.join(" "));
                found.push(Violation::new(manual, from + 1, what));
            }
        }
    }
    found
}

/// The names in backquotes under `Guarantees` that look like tests, with their lines.
fn tests_named(manual: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut inside = false;
    for (number, line) in manual.lines().enumerate() {
        if line.starts_with("Parameters") {
            inside = false;
        } else if let Some(heading) = HEADINGS.iter().find(|h| line.starts_with(**h)) {
            inside = *heading == "Guarantees";
        }
        if inside {
            let names = line.split('`').skip(1).step_by(2);
            let is_test = |n: &&str| {
                n.matches('_').count() >= 2 && n.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            };
            found.extend(names.filter(is_test).map(|n| (number + 1, n)));
        }
    }
    found
}

pub fn guarantees_name_tests_that_exist(files: &[File]) -> Vec<Violation> {
    built(files).iter().flat_map(|(_, manual)| missing_tests(manual, files)).collect()
}

fn missing_tests(manual: &File, files: &[File]) -> Vec<Violation> {
    let exists = |name: &str| {
        let definition = format!("fn {name}(");
        rust(files, true).any(|f| f.text.contains(&definition))
    };
    let named = tests_named(&manual.text).into_iter().filter(|(_, name)| !exists(name));
    named.map(|(line, name)| Violation::new(manual, line, format!("there is no test `{name}`"))).collect()
}

/// What is written from the sources is written from the present ones.
pub fn pages_are_up_to_date(files: &[File]) -> Vec<Violation> {
    if !files.iter().any(|f| f.path.starts_with(PAGES)) {
        return Vec::new();
    }
    let text = |path: &str| files.iter().find(|f| f.path == path).map_or("", |f| &f.text);
    let stale = book::pages(files, &built(files)).into_iter().filter(|page| page.text != text(&page.path));
    stale
        .map(|page| Violation::new(&page, 1, "is not what the sources say: run `cargo xtask book`"))
        .collect()
}

/// From the day that the book has such pages.
pub fn disciplines_have_a_page(files: &[File]) -> Vec<Violation> {
    if !files.iter().any(|f| f.path.starts_with(PAGES)) {
        return Vec::new();
    }
    let names = built(files).into_iter().map(|(entry, _)| entry.name);
    names.filter_map(|name| missing_page(name, files)).collect()
}

fn missing_page(name: &str, files: &[File]) -> Option<Violation> {
    let path = format!("{PAGES}{name}.md");
    if files.iter().any(|f| f.path == path) {
        return None;
    }
    Some(Violation { path, line: 1, what: format!("{name} is registered and has no page in the book") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::file;
    use weir_core::queue::Kind;

    const GOOD: &str = "X: does x.\n\nPrinciple: p.\nPaper: p.\nWhere we differ, and why: no.\nCost: c.\n\
                        Guarantees: g (`a_b_c`).\nParameters: `qlimit_of_it_all`.\n";

    #[test]
    fn the_head_is_complete_and_in_order() {
        assert_eq!(headings_of(&file("x", GOOD)), []);
        for heading in HEADINGS {
            assert_ne!(headings_of(&file("x", &GOOD.replace(heading, "Other:"))), [], "{heading}");
        }
        assert_ne!(
            headings_of(&file(
                "x",
                "X: x.\nPaper: p.\nPrinciple: p.\nCost: c.\nGuarantees: g.\nParameters: -"
            )),
            []
        );
        assert_ne!(headings_of(&file("x", "")), []);
    }

    #[test]
    fn parameters_are_explained() {
        const SPECS: [ParamSpec; 2] = [
            ParamSpec::discipline("a", Kind::Flag, "", "Says what it does."),
            ParamSpec::discipline("b", Kind::Flag, "", ""),
        ];
        assert_eq!(silent(SPECS[..1].iter(), &file("x", GOOD)), []);
        assert_eq!(silent(SPECS.iter(), &file("x", GOOD)).len(), 1);
    }

    #[test]
    fn numbers_of_parameters_are_those_of_the_declarations() {
        const BYTES: Kind = Kind::Bytes { min: 64, max: 1 << 20 };
        const SPECS: [ParamSpec; 2] = [
            ParamSpec::discipline("lo_size", BYTES, "64K", "Bytes; in a class 10 % of it."),
            ParamSpec::discipline("target", Kind::Fraction, "0.5", "Says what it does."),
        ];
        let specs: Vec<&ParamSpec> = SPECS.iter().collect();
        let of = |text: &str| undeclared(&specs, &file("x", &format!("X: x.\nParameters: {text}\n"))).len();
        for good in [
            "`lo_size` (bytes, 64 to 1M, 65536; in a\nclass 10 %), `target` (0 to 1, 0.5).",
            "of AFx1 `size` (64K). At run time 3.",
        ] {
            assert_eq!(of(good), 0, "{good}");
        }
        for bad in
            ["`lo_size` (65)", "`size` (64M)", "`lo_size` and `target` (64, 0.6)", "(1)", "`other` (64)"]
        {
            assert_eq!(of(bad), 1, "{bad}");
        }
    }

    #[test]
    fn guarantees_are_tested() {
        let manual = file("x", GOOD);
        assert_eq!(missing_tests(&manual, &[file("a.rs", "fn a_b_c() {}")]), []);
        assert_eq!(missing_tests(&manual, &[file("a.rs", "fn a_b_d() {}")]).len(), 1);
    }

    #[test]
    fn a_discipline_has_a_page() {
        assert!(missing_page("x", &[file("book/src/disciplines/x.md", "# X")]).is_none());
        assert!(missing_page("x", &[file("book/src/disciplines/y.md", "# Y")]).is_some());
        assert_eq!(disciplines_have_a_page(&[]), []);
        assert_ne!(disciplines_have_a_page(&[file("book/src/disciplines/y.md", "# Y")]), []);
    }
}
