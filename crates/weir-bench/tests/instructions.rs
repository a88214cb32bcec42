//! Instructions per packet of every row, held within 3 % of a committed table. A change of the table is a
//! decision: `WEIR_BLESS=1` writes it anew, and the commit says why.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use weir_bench::callgrind::{Uncounted, count, count_changes};
use weir_bench::{HELD, Row};

/// A row may move by so much of what it was.
const TOLERANCE: f64 = 0.03;

fn table() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("snapshots/instructions.txt")
}

/// Builds the small program as `weir` is built for its users, and says where it is.
fn program() -> PathBuf {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let args = ["build", "--release", "--quiet", "--package", "weir-bench", "--bin", "weir-pairs"];
    let built = Command::new(cargo).args(args).current_dir(env!("CARGO_MANIFEST_DIR")).status();
    assert!(built.expect("cargo runs: it runs this test").success(), "weir-pairs is not built");
    // .../debug/deps/instructions-HASH
    let test = std::env::current_exe().expect("a test has a path");
    let target = test.ancestors().nth(3).expect("tests stand in target/PROFILE/deps");
    target.join("release/weir-pairs")
}

/// The rows of a table that left it by more than the tolerance, and what stands in only one of them.
fn differences(table: &str, counted: &[(String, f64)]) -> Vec<String> {
    let held: Vec<(&str, f64)> = table
        .lines()
        .filter_map(|line| line.split_once(char::is_whitespace))
        .filter_map(|(row, number)| Some((row, number.trim().parse().ok()?)))
        .collect();
    let mut found = Vec::new();
    for (row, now) in counted {
        match held.iter().find(|(name, _)| name == row) {
            Some((_, was)) if (now / was - 1.0).abs() <= TOLERANCE => {}
            Some((_, was)) => found.push(format!("{row}: {was:.1} in the table, {now:.1} now")),
            None => found.push(format!("{row}: not in the table, {now:.1} now")),
        }
    }
    let gone = held.iter().filter(|(name, _)| counted.iter().all(|(row, _)| row != name));
    found.extend(gone.map(|(name, was)| format!("{name}: {was:.1} in the table, not counted any more")));
    found
}

#[test]
fn instructions_are_those_of_the_table() {
    let rows: Vec<Row> = HELD.iter().map(|row| row.parse().expect("a row")).collect();
    let counted = match count(&program(), &[], &rows) {
        Ok(counted) => counted,
        Err(Uncounted::Missing(why)) => {
            eprintln!("SKIPPED instructions_are_those_of_the_table: {why}");
            return;
        }
        Err(Uncounted::Failed(why)) => panic!("{why}"),
    };
    let counted: Vec<(String, f64)> = HELD.iter().map(ToString::to_string).zip(counted).collect();
    if std::env::var_os("WEIR_BLESS").is_some() {
        let mut text = String::new();
        for (row, number) in &counted {
            writeln!(text, "{row:<32} {number:>8.1}").expect("a string takes all");
        }
        std::fs::write(table(), text).expect("the table can be written");
        return;
    }
    let table = std::fs::read_to_string(table()).unwrap_or_default();
    let found = differences(&table, &counted);
    assert!(
        found.is_empty(),
        "instructions per packet left the table by more than 3 %:\n  {}\nIf it is meant: \
         `WEIR_BLESS=1 cargo test -p weir-bench --test instructions`, and say why in the commit.",
        found.join("\n  ")
    );
}

/// A swap that was prepared, and a change of parameters, look at no class but the one that changes: among twenty times
/// as many they take as many instructions, but for the steps of searches and trees. Reversed: a swap that was not
/// prepared takes several times as many.
#[test]
fn a_prepared_swap_looks_at_no_class() {
    let program = program();
    let mean = |counted: &[f64]| counted.iter().sum::<f64>() / counted.len() as f64;
    let counted = |classes, prepared| match count_changes(&program, classes, prepared) {
        Err(Uncounted::Failed(why)) => panic!("{why}"),
        counted => counted.ok().map(|[swaps, in_place]| (mean(&swaps), mean(&in_place))),
    };
    let (Some(few), Some(many), Some((swap, _))) =
        (counted(1_000, true), counted(20_000, true), counted(20_000, false))
    else {
        eprintln!("SKIPPED a_prepared_swap_looks_at_no_class: instructions are not counted here");
        return;
    };
    println!("swap {} and {}, in place {} and {}; not prepared {swap}", few.0, many.0, few.1, many.1);
    assert!(many.0 < few.0 * 1.5, "a swap: {} among 1,000 and {} among 20,000", few.0, many.0);
    assert!(many.1 < few.1 * 2.0, "in place: {} among 1,000 and {} among 20,000", few.1, many.1);
    assert!(swap > many.0 * 3.0, "reversed: {swap} unprepared, {} prepared", many.0);
}

#[test]
fn a_difference_is_found() {
    let counted = |fifo: f64| vec![("fifo".to_owned(), fifo), ("red/random".to_owned(), 300.0)];
    let table = "fifo 100.0\nred/random   300.0\n";
    for (fifo, found) in [(100.0, 0), (102.9, 0), (97.1, 0), (103.1, 1), (96.9, 1)] {
        assert_eq!(differences(table, &counted(fifo)).len(), found, "{fifo}");
    }
    assert_eq!(differences("fifo 100.0\n", &counted(100.0)).len(), 1, "a row without a line");
    assert_eq!(differences(&format!("{table}rio 5.0\n"), &counted(100.0)).len(), 1, "a line without a row");
}
