//! Standard output whose reader may leave early: `weir stats | head` is no error.

use std::fmt::Arguments;
use std::io::{self, Write};

/// Prints a line of a result, as `println!` would.
macro_rules! out {
    ($($arg:tt)*) => { $crate::out::line(format_args!($($arg)*)) };
}

/// Prints a line. If nobody reads any more, the work is done; if the disk is full, it failed.
pub fn line(text: Arguments<'_>) {
    let mut stdout = io::stdout().lock();
    let written = stdout.write_fmt(text).and_then(|()| stdout.write_all(b"\n"));
    match written {
        Ok(()) => {}
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        Err(e) => {
            eprintln!("weir: standard output: {e}");
            std::process::exit(1);
        }
    }
}
