//! The rules of the house, each a function from the files to what is wrong with them.
//!
//! Exceptions stand in `allowed.rs`, each with its reason, and nowhere else.

mod allowed;
mod circles;
mod claims;
mod code;
mod core_rules;
mod manifest;
mod names;
mod pages;
mod prose;
mod text;

use crate::files::{File, collect};
use std::fmt;
use std::path::Path;
use std::process::ExitCode;

/// A rule that does not hold.
#[derive(PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Violation {
    path: String,
    line: usize,
    what: String,
}

impl Violation {
    fn new(file: &File, line: usize, what: impl Into<String>) -> Self {
        Violation { path: file.path.clone(), line, what: what.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

type Rule = fn(&[File]) -> Vec<Violation>;

/// Every rule. One line each.
const RULES: &[Rule] = &[
    manifest::dependencies_point_up,
    manifest::core_depends_on_nothing,
    manifest::the_broker_alone_serves,
    manifest::packages_come_from_the_public_registry,
    core_rules::core_is_no_std_and_safe,
    core_rules::core_has_no_floats,
    core_rules::no_clock_where_time_is_told,
    core_rules::no_clock_that_is_set,
    code::unsafe_stands_in_weir_sys_with_its_reason,
    code::nothing_is_left_to_do,
    code::no_unwrap_outside_tests,
    code::files_are_short,
    circles::files_form_no_circle,
    pages::disciplines_open_with_their_manual,
    pages::parameters_say_what_they_do,
    pages::numbers_of_parameters_are_declared,
    pages::disciplines_have_a_page,
    pages::pages_are_up_to_date,
    pages::guarantees_name_tests_that_exist,
    claims::claims_stand_in_the_table,
    claims::claims_are_proven,
    prose::sentences_are_short,
    prose::packets_are_dropped,
    names::configuration_names_no_discipline,
    text::no_paths_of_a_machine,
    text::no_marks_of_a_conflict,
];

/// Applies every rule to the files below `root` and prints what does not hold.
pub fn main(root: &Path) -> ExitCode {
    let mut files = Vec::new();
    if let Err(error) = collect(root, root, &mut files) {
        eprintln!("tidy: cannot read {}: {error}", root.display());
        return ExitCode::from(2);
    }
    let mut found: Vec<Violation> = RULES.iter().flat_map(|rule| rule(&files)).collect();
    found.sort();
    for violation in &found {
        eprintln!("{violation}");
    }
    let formatted = declared_by_macros_are_formatted(root, &files);
    if found.is_empty() && formatted {
        println!("tidy: {} rules hold in {} files", RULES.len(), files.len());
        return ExitCode::SUCCESS;
    }
    eprintln!("tidy: {} violations", found.len());
    ExitCode::FAILURE
}

/// `cargo fmt` does not look into the macros that list disciplines and AQMs with their files.
fn declared_by_macros_are_formatted(root: &Path, files: &[File]) -> bool {
    let listed = |file: &&File| {
        let rest = ["aqm/", "sched/"]
            .iter()
            .find_map(|folder| file.path.strip_prefix("crates/weir-core/src/")?.strip_prefix(folder));
        rest.is_some_and(|name| name.ends_with("/mod.rs") || name.ends_with(".rs") && !name.contains('/'))
    };
    let paths = files.iter().filter(listed).map(|file| root.join(&file.path));
    let checked =
        std::process::Command::new("rustfmt").args(["--check", "--edition", "2024"]).args(paths).status();
    if !checked.is_ok_and(|status| status.success()) {
        eprintln!("tidy: format them by `rustfmt --edition 2024 FILE`");
        return false;
    }
    true
}

#[cfg(test)]
fn file(path: &str, text: &str) -> File {
    File { path: path.into(), text: text.into() }
}

/// For the tests of rules: each of `bad` is caught, each of `good` is not.
#[cfg(test)]
fn holds_for(rule: Rule, good: &[(&str, &str)], bad: &[(&str, &str)]) {
    for (path, text) in good {
        assert_eq!(rule(&[file(path, text)]), [], "{path}: {text}");
    }
    for (path, text) in bad {
        assert_ne!(rule(&[file(path, text)]), [], "{path}: {text}");
    }
}
