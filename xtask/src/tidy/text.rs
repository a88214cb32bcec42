//! Rules about every text.

use super::allowed::{self, is_allowed};
use super::{File, Violation};

/// The project is the same everywhere: no folder of a machine that it was written on.
pub fn no_paths_of_a_machine(files: &[File]) -> Vec<Violation> {
    const FOLDERS: [&str; 3] = ["/root/", "/home/", "/Users/"];
    let mut found = Vec::new();
    for file in files.iter().filter(|f| !is_allowed(allowed::MACHINE_PATHS, &f.path)) {
        for (number, line) in file.text.lines().enumerate() {
            let names_one = |folder: &&str| {
                // A longer path or an address that merely contains the word is something else.
                line.match_indices(*folder).any(|(i, _)| {
                    let before = line[..i].bytes().last();
                    !before.is_some_and(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
                })
            };
            if let Some(folder) = FOLDERS.iter().find(|folder| names_one(folder)) {
                found.push(Violation::new(file, number + 1, format!("`{folder}` is a path of one machine")));
            }
        }
    }
    found
}

/// A merge that was not finished leaves both sides, and marks around them.
pub fn no_marks_of_a_conflict(files: &[File]) -> Vec<Violation> {
    const SIGNS: [char; 4] = ['<', '|', '=', '>'];
    const LENGTH: usize = 7;
    let is_mark = |line: &str| {
        SIGNS.iter().any(|&sign| {
            let rest = line.trim_start_matches(sign);
            line.len() - rest.len() == LENGTH && (rest.is_empty() || rest.starts_with(' '))
        })
    };
    let mut found = Vec::new();
    for file in files {
        for (number, line) in file.text.lines().enumerate().filter(|(_, line)| is_mark(line)) {
            let what = format!("`{line}` is the mark of a conflict: keep what is right of both sides");
            found.push(Violation::new(file, number + 1, what));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::holds_for;

    #[test]
    fn paths_are_relative() {
        holds_for(
            no_paths_of_a_machine,
            &[("a.md", "see crates/weir/src and https://example.org/home/x and athome/1")],
            &[("a.md", "cd /root/x"), ("a.rs", "// \"/home/someone/x\"")],
        );
    }

    #[test]
    fn conflicts_are_settled() {
        let conflict = "a\n<<<<<<< HEAD\nb\n||||||| base\nc\n=======\nd\n>>>>>>> 51a3896 (why)\r\n";
        let found = no_marks_of_a_conflict(&[crate::tidy::file("book/src/a.md", conflict)]);
        assert_eq!(found.iter().map(|v| v.line).collect::<Vec<_>>(), [2, 4, 6, 8]);
        holds_for(
            no_marks_of_a_conflict,
            &[
                ("a.md", "<<<<<<<< eight\n====== \n| a | b |\n |||||||\n>>> quoted"),
                ("a.rs", "x <<= 7; // ======="),
                ("a.txt", "==== a name\n=======x"),
            ],
            &[
                ("a.toml", "<<<<<<< HEAD"),
                ("Makefile", "=======\nall:"),
                ("a.rs", "|||||||"),
                ("a.c", ">>>>>>> b"),
            ],
        );
    }
}
