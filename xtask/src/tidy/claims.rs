//! The table of claims: every id that the project names has a row, and every row a proof that names it.

use super::code::rust;
use super::{File, Violation};

const PAGE: &str = "book/src/claims.md";
/// Letters of ids by paper: ALTQ and CBQ, two-bit, QoSbox, multiservice; and of live operation.
const LETTERS: &str = "ADJTL";

/// A row of the table: `| id | source | claim | proof |`.
struct Row<'a> {
    line: usize,
    id: &'a str,
    proofs: Vec<&'a str>,
}

fn rows(page: &str) -> Vec<Row<'_>> {
    let numbered = page.lines().enumerate().filter(|(_, line)| line.starts_with("| "));
    let cells = numbered.map(|(n, line)| (n + 1, line.split('|').map(str::trim).collect::<Vec<_>>()));
    cells
        .filter(|(_, cells)| cells.len() == 6 && cells[1] != "id")
        .map(|(line, cells)| Row {
            line,
            id: cells[1],
            proofs: cells[4].split('`').skip(1).step_by(2).collect(),
        })
        .collect()
}

pub fn claims_stand_in_the_table(files: &[File]) -> Vec<Violation> {
    let Some(page) = files.iter().find(|f| f.path == PAGE) else { return Vec::new() };
    let rows = rows(&page.text);
    let known = |id: &str| rows.iter().any(|row| row.id == id);
    let mut found = Vec::new();
    for file in files.iter().filter(|f| f.path != PAGE && may_name_ids(&f.path)) {
        for (number, line) in file.text.lines().enumerate() {
            for id in ids(line, &families(files)).into_iter().filter(|id| !known(id)) {
                let what = format!("`{id}` has no row in {PAGE}: add one, with its source and its proof");
                found.push(Violation::new(file, number + 1, what));
            }
        }
    }
    for id in experiments(files).filter(|id| !known(id)) {
        found.push(Violation::new(page, 1, format!("experiment `{id}` has no row: add one")));
    }
    found
}

pub fn claims_are_proven(files: &[File]) -> Vec<Violation> {
    let Some(page) = files.iter().find(|f| f.path == PAGE) else { return Vec::new() };
    let mut found = Vec::new();
    let rows = rows(&page.text);
    for (at, row) in rows.iter().enumerate() {
        let mut wrong = |what: String| found.push(Violation::new(page, row.line, what));
        if row.proofs.is_empty() {
            wrong(format!("{} has no proof: name a test or an experiment in backquotes", row.id));
        }
        if rows[..at].iter().any(|other| other.id == row.id) {
            wrong(format!("{} has two rows", row.id));
        }
        for proof in &row.proofs {
            match proves(files, row.id, proof) {
                None => wrong(format!("there is no test and no experiment `{proof}`")),
                Some(false) => {
                    wrong(format!("`{proof}` does not name {}: name it in the comment above it", row.id));
                }
                Some(true) => {}
            }
        }
    }
    found
}

/// Whether the test or experiment `proof` names `id`; none if there is no such proof.
fn proves(files: &[File], id: &str, proof: &str) -> Option<bool> {
    let path = format!("experiments/{proof}.toml");
    if let Some(experiment) = files.iter().find(|f| f.path == path) {
        return Some(proof == id || experiment.text.lines().any(|line| ids(line, &[]).contains(&id.into())));
    }
    let definition = format!("fn {proof}(");
    let file = rust(files, true).find(|f| f.text.contains(&definition))?;
    let above = &file.text[..file.text.find(&definition)?];
    let comment = above.lines().rev().skip(usize::from(!above.ends_with('\n')));
    let comment = comment.map(str::trim).take_while(|l| l.starts_with("//") || l.starts_with("#["));
    let word = id.to_ascii_lowercase().replace('-', "_");
    Some(proof == word || segments(proof).any(|s| s == word) || comment.into_iter().any(|l| l.contains(id)))
}

fn segments(name: &str) -> impl Iterator<Item = &str> {
    name.split('_')
}

/// The identifiers of experiments, which are the names of their files.
fn experiments(files: &[File]) -> impl Iterator<Item = &str> {
    let stems = files.iter().filter_map(|f| f.path.strip_prefix("experiments/")?.strip_suffix(".toml"));
    stems.filter(|stem| !stem.contains('/'))
}

/// What the names of experiments begin with.
fn families(files: &[File]) -> Vec<String> {
    let mut all: Vec<String> =
        experiments(files).filter_map(|id| Some(id.split_once('-')?.0.into())).collect();
    all.dedup();
    all
}

fn may_name_ids(path: &str) -> bool {
    let ours =
        ["crates/", "examples/", "experiments/", "book/", "xtask/"].iter().any(|f| path.starts_with(f));
    let page = !path.contains('/') && path.ends_with(".md");
    (page || ours && [".rs", ".md", ".toml", ".altq"].iter().any(|end| path.ends_with(end)))
        && !path.ends_with("xtask/src/tidy/claims.rs")
}

/// The ids that a line names: `A06`, `fn a06_...`, `ds2-fig1`.
fn ids(line: &str, families: &[String]) -> Vec<String> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let mut found = Vec::new();
    let mut name_follows = false;
    for word in line.split(|c: char| !is_word(c)).filter(|word| !word.is_empty()) {
        if is_row(word) {
            found.push(word.to_owned());
        } else if name_follows {
            let marks = segments(word).map(str::to_ascii_uppercase).take_while(|s| is_row(s));
            found.extend(marks);
        } else if let Some((family, rest)) = word.split_once('-') {
            let is_experiment = rest.starts_with(|c: char| c.is_ascii_lowercase()) && !rest.contains('-');
            let is_file = [".altq", ".toml", ".txt"].iter().any(|end| line.contains(&format!("{word}{end}")));
            if is_experiment && !is_file && families.iter().any(|f| f == family) {
                found.push(word.to_owned());
            }
        }
        name_follows = word == "fn";
    }
    found
}

fn is_row(word: &str) -> bool {
    word.len() == 3
        && word.starts_with(|c| LETTERS.contains(c))
        && word[1..].bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::file;

    const TABLE: &str = "| id | source | claim | proof |\n|---|---|---|---|\n\
        | A06 | X, 1 | It holds. | `a06_it_holds`, `named_above`, `ds2-fig1` |\n\
        | ds2-fig1 | X, 2 | So does this. | `ds2-fig1` |\n";
    const TESTS: &str = "#[test]\nfn a06_it_holds() {}\n/// Proves A06.\n#[test]\nfn named_above() {}\n";
    const EXPERIMENT: &str = "source = \"x (A06)\"\n";

    fn project(table: &str, tests: &str) -> Vec<File> {
        vec![
            file(PAGE, table),
            file("crates/x/tests/a.rs", tests),
            file("experiments/ds2-fig1.toml", EXPERIMENT),
        ]
    }

    #[test]
    fn what_is_named_has_a_row() {
        assert_eq!(claims_stand_in_the_table(&project(TABLE, TESTS)), []);
        let known = "// A06; 0xA07, `AF11`, a07_x, tests/ds2-fig2.altq, xds2-fig9, ds2-";
        assert_eq!(claims_stand_in_the_table(&project(TABLE, known)), []);
        for unknown in ["// (A07)", "fn a06_d02_both() {}", "// as ds2-fig2", "\"J99: no\""] {
            assert_eq!(claims_stand_in_the_table(&project(TABLE, unknown)).len(), 1, "{unknown}");
        }
        let without = TABLE.lines().take(3).collect::<Vec<_>>().join("\n");
        assert_eq!(claims_stand_in_the_table(&project(&without, TESTS)).len(), 1);
    }

    #[test]
    fn a_row_has_a_proof_that_names_it() {
        assert_eq!(claims_are_proven(&project(TABLE, TESTS)), []);
        assert_eq!(claims_are_proven(&project(TABLE, &TESTS.replace("named", "other"))).len(), 1);
        assert_eq!(claims_are_proven(&project(TABLE, &TESTS.replace("Proves A06", "Nothing"))).len(), 1);
        assert_eq!(claims_are_proven(&project(&TABLE.replace("A06 |", "A07 |"), TESTS)).len(), 3);
        assert_eq!(claims_are_proven(&project(&format!("{TABLE}| A08 | X | No. | |\n"), TESTS)).len(), 1);
        assert_eq!(
            claims_are_proven(&project(&format!("{TABLE}| A06 | X | Yes. | `a06_it_holds` |\n"), TESTS))
                .len(),
            1
        );
    }
}
