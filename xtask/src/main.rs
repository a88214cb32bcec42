//! House keeping: `cargo xtask tidy` verifies the rules of ARCHITECTURE.md that no compiler does;
//! `cargo xtask book` writes the book's pages of disciplines from their sources;
//! `cargo xtask links FOLDER` follows the links of the rendered book.

mod book;
mod files;
mod links;
mod tidy;

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
    match (args.next().as_deref(), args.next(), args.next()) {
        (Some("tidy"), None, None) => tidy::main(root),
        (Some("book"), None, None) => book::main(root),
        (Some("links"), Some(folder), None) => links::main(&root.join(folder)),
        _ => {
            eprintln!("usage: cargo xtask tidy | book | links FOLDER");
            ExitCode::from(2)
        }
    }
}
