//! Rows of the report, and the page of the book that has them.

use crate::Size;
use std::fmt::Write;
use std::time::Duration;

/// What was done, what is asked, and what was found.
pub struct Row {
    /// Mode and fault.
    pub what: String,
    /// The bound in words.
    pub asked: String,
    /// The figure.
    pub found: String,
    /// What is wrong; empty if nothing is.
    pub wrong: Vec<String>,
}

impl Row {
    pub fn new(what: impl Into<String>, asked: impl Into<String>) -> Row {
        Row { what: what.into(), asked: asked.into(), found: String::new(), wrong: Vec::new() }
    }
    /// Notes that something is wrong, if it is.
    pub fn expect(&mut self, holds: bool, wrong: impl FnOnce() -> String) {
        if !holds {
            self.wrong.push(wrong());
        }
    }
    /// Notes what a worker that got no processor in time cost: this is the machine's, and shown.
    pub fn note_lapses(&mut self, (lapses, stale): (u64, u64)) {
        if lapses > 0 {
            self.found += &format!("; {lapses} lapses of the worker, {stale} packets thrown away for them");
        }
    }
    pub fn held(&self) -> bool {
        self.wrong.is_empty()
    }
}

/// The rows as a table of the book.
pub fn table<'r>(rows: impl IntoIterator<Item = &'r Row>) -> String {
    let mut text = "| what | asked | found | |\n|---|---|---|---|\n".to_string();
    for row in rows {
        let verdict = match row.held() {
            true => "held".into(),
            false => format!("**missed**: {}", row.wrong.join("; ")),
        };
        writeln!(text, "| {} | {} | {} | {verdict} |", row.what, row.asked, row.found).unwrap();
    }
    text
}

const BEGIN: &str = "<!-- figures: `make soak` writes them -->\n";
const END: &str = "<!-- end of the figures -->\n";

/// Puts the figures into the page between its two marks.
pub fn write(path: &str, size: &Size, seed: u64, took: Duration, rows: &[Row]) {
    let page = std::fs::read_to_string(path).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("the page marks where figures begin");
    let (_, after) = rest.split_once(END).expect("the page marks where figures end");
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let cores = std::thread::available_parallelism().unwrap();
    let minutes = size.minutes.unwrap_or(1);
    let conditions = format!(
        "`make soak MINUTES={minutes} SEED={seed}`, {} minutes, Linux {}, {cores} cores, load at the end {}.\n",
        took.as_secs() / 60,
        kernel.trim(),
        std::fs::read_to_string("/proc/loadavg").unwrap().split(' ').nth(1).unwrap_or("unknown"),
    );
    let all = format!("{before}{BEGIN}\n{conditions}\n{}\n{END}{after}", table(rows));
    std::fs::write(path, all).unwrap();
}
