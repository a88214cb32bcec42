//! What a broker says on standard error, so that who sends much bad input does not fill a disk with it.

use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Lines about refused requests in a second.
const LINES: u32 = 10;

#[derive(Debug)]
pub(super) struct Log(Mutex<Second>);

#[derive(Debug)]
struct Second {
    began: Instant,
    lines: u32,
    left_out: u64,
}

impl Log {
    pub fn new() -> Self {
        Log(Mutex::new(Second { began: Instant::now(), lines: 0, left_out: 0 }))
    }

    /// A request, connection or certificate was refused.
    pub fn refused(&self, what: &str) {
        if let Some(line) = self.line(what, Instant::now()) {
            eprintln!("{line}");
        }
    }

    fn line(&self, what: &str, now: Instant) -> Option<String> {
        let mut second = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut before = 0;
        if now.saturating_duration_since(second.began) >= Duration::from_secs(1) {
            before = second.left_out;
            *second = Second { began: now, lines: 0, left_out: 0 };
        }
        if second.lines == LINES {
            second.left_out += 1;
            return None;
        }
        second.lines += 1;
        let more = if before > 0 { format!(" ({before} more were refused before)") } else { String::new() };
        Some(format!("weir broker: refused: {}{more}", weir_text::on_one_line(what)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_lines_a_second_are_said_and_the_rest_is_counted() {
        let (log, now) = (Log::new(), Instant::now());
        let said = (0..100).filter(|_| log.line("x\ny", now).is_some()).count();
        assert_eq!(said, 10);
        let later = log.line("x\ny", now + Duration::from_secs(2)).expect("a new second");
        assert!(later.ends_with("(90 more were refused before)") && !later.contains('\n'), "{later}");
    }
}
