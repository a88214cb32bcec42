//! Who may speak of a discipline by name.

use super::code::{rust, without_tests};
use super::{File, Violation, allowed};
use weir_core::sched::Registry;

/// The configuration knows no discipline by name: what one has to say is in the hooks of its
/// `Entry`.
pub fn configuration_names_no_discipline(files: &[File]) -> Vec<Violation> {
    let registry = Registry::builtin();
    let entries = || registry.iter().map(|e| (e.name, e.aliases));
    let aqms = || registry.aqms().map(|a| (a.name, a.aliases));
    let names = entries()
        .chain(aqms())
        .flat_map(|(name, aliases)| aliases.iter().map(|alias| alias.name).chain([name]).collect::<Vec<_>>());
    let names: Vec<String> = names.map(|name| format!("\"{name}\"")).collect();
    let mut found = Vec::new();
    for file in rust(files, false).filter(|f| f.path.starts_with("crates/weir-conf/src/")) {
        let may = |name: &str| {
            allowed::NAMED_DISCIPLINES
                .iter()
                .any(|(path, word, _)| *path == file.path && name.trim_matches('"') == *word)
        };
        for (number, line) in without_tests(&file.text).lines().enumerate() {
            if line.trim_start().starts_with("//") {
                continue;
            }
            for name in names.iter().filter(|name| line.contains(name.as_str()) && !may(name)) {
                let what = format!("{name} by name: let a hook of its `Entry` say it");
                found.push(Violation::new(file, number + 1, what));
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
    fn names_stand_in_the_registry() {
        holds_for(
            configuration_names_no_discipline,
            &[
                ("crates/weir-conf/src/a.rs", "// \"cbq\"\nlet help = \"write `class cbq ...`\";"),
                ("crates/weir-conf/src/read.rs", "\"red\" => self.red(),"),
                ("crates/weir-conf/tests/a.rs", "let name = \"cbq\";"),
                ("crates/weir/src/a.rs", "let name = \"cbq\";"),
            ],
            &[
                ("crates/weir-conf/src/a.rs", "if entry.name == \"cbq\" {"),
                ("crates/weir-conf/src/a.rs", "match name { \"fifo\" => 1, _ => 2 }"),
                ("crates/weir-conf/src/a.rs", "\"red\" => self.red(),"),
                ("crates/weir-conf/src/read.rs", "\"hfsc\" => self.hfsc(),"),
            ],
        );
    }
}
