//! House keeping: `cargo xtask tidy` verifies the rules of ARCHITECTURE.md that no compiler does;
//! `cargo xtask book` writes the book's pages of disciplines from their sources.

mod book;
mod tidy;

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
    match (args.next().as_deref(), args.next()) {
        (Some("tidy"), None) => tidy::main(root),
        (Some("book"), None) => book::main(root),
        _ => {
            eprintln!("usage: cargo xtask tidy | book");
            ExitCode::from(2)
        }
    }
}
