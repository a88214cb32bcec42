//! House keeping: `cargo xtask tidy` verifies the rules of ARCHITECTURE.md that no compiler does;
//! `cargo xtask book` writes the book's pages of disciplines from their sources;
//! `cargo xtask links FOLDER` follows the links of the rendered book;
//! `cargo xtask mutants` holds the tests against small mistakes in weir-core.

mod book;
mod files;
mod links;
mod mutants;
mod tidy;

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
    let command = args.next();
    let rest: Vec<String> = args.collect();
    match (command.as_deref(), rest.as_slice()) {
        (Some("tidy"), []) => tidy::main(root),
        (Some("book"), []) => book::main(root),
        (Some("links"), [folder]) => links::main(&root.join(folder)),
        (Some("mutants"), _) => mutants::main(root, rest.into_iter()),
        _ => {
            eprintln!("usage: cargo xtask tidy | book | links FOLDER | mutants");
            ExitCode::from(2)
        }
    }
}
