//! House keeping: `cargo xtask tidy` verifies the rules of ARCHITECTURE.md that no compiler does.

mod tidy;

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    match (args.next().as_deref(), args.next()) {
        (Some("tidy"), None) => {
            tidy::main(Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new(".")))
        }
        _ => {
            eprintln!("usage: cargo xtask tidy");
            ExitCode::from(2)
        }
    }
}
