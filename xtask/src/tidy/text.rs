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
}
