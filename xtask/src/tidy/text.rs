//! Rules about every text.

use super::{File, Violation};

/// The project is the same everywhere: no folder of a machine that it was written on.
pub fn no_paths_of_a_machine(files: &[File]) -> Vec<Violation> {
    // Put together here, so that the rule holds for its own file.
    let folders = ["root", "home", "Users"].map(|name| format!("/{name}/"));
    let mut found = Vec::new();
    for file in files {
        for (number, line) in file.text.lines().enumerate() {
            let names_one = |folder: &&String| {
                // A longer path or an address that merely contains the word is something else.
                line.match_indices(folder.as_str()).any(|(i, _)| {
                    let before = line[..i].bytes().last();
                    !before.is_some_and(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
                })
            };
            if let Some(folder) = folders.iter().find(|folder| names_one(folder)) {
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
            &[("a.md", &format!("cd /{}/x", "root")), ("a.rs", &format!("// \"/{}/someone/x\"", "home"))],
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
