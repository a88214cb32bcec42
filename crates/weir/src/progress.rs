//! How far a command has come, and the time that is left: a line on standard error, for a person.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::cell::Cell;
use std::io::{IsTerminal, Read};
use std::time::Duration;
use weir_text::Time;

/// Files of fewer bytes are read before a person would look.
const LARGE_FILE: u64 = 16 << 20;
/// The line is there from its first step on, drawn anew at most so often per second.
const PER_SECOND: u8 = 10;

/// The line; nothing where nobody looks.
pub struct Progress {
    bar: ProgressBar,
    /// Steps that have been told, so that the same is not told twice.
    told: Cell<Option<u64>>,
}

impl Progress {
    /// A line for `steps` steps. It is hidden where standard error is no terminal, in continuous
    /// integration (`CI` is set), and where the results are for a program (`json`).
    pub fn new(steps: u64, json: bool) -> Self {
        let ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty());
        if json || ci || !std::io::stderr().is_terminal() {
            return Progress::on(ProgressDrawTarget::hidden(), steps);
        }
        Progress::on(ProgressDrawTarget::stderr_with_hz(PER_SECOND), steps)
    }
    fn on(target: ProgressDrawTarget, steps: u64) -> Self {
        let bar = ProgressBar::with_draw_target(Some(steps), target);
        let style = ProgressStyle::with_template("{msg}[{bar:25}] {percent} %, {eta} left");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("## "));
        Progress { bar, told: Cell::new(None) }
    }
    /// A line for a run, in thousandths of its time; `show` moves it.
    pub fn of_run(json: bool) -> Self {
        Progress::new(1000, json)
    }
    /// The run is at `now`, and ends at `end`.
    pub fn show(&self, now: Time, end: Time) {
        let done = u128::from(now.as_nanos()) * 1000 / u128::from(end.as_nanos().max(1));
        let done = u64::try_from(done).unwrap_or(u64::MAX);
        if self.told.replace(Some(done)) != Some(done) {
            self.bar.set_position(done);
        }
    }
    /// True where a person sees the line.
    pub fn is_shown(&self) -> bool {
        !self.bar.is_hidden()
    }
    /// What is being done: `name` stands before the line, which is drawn at once and goes on by
    /// itself while the step takes its time.
    pub fn begin(&self, name: &str) {
        self.bar.set_message(format!("{name} "));
        self.bar.enable_steady_tick(Duration::from_secs(1));
    }
    /// A step is done.
    pub fn step(&self) {
        self.bar.inc(1);
    }
    /// Takes the line away while `print` writes.
    pub fn beside(&self, print: impl FnOnce()) {
        self.bar.suspend(print);
    }
    /// Takes the line away.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

/// A large file that is read with a line that says how far; a small one as it is. The line goes
/// when it is cleared.
pub fn reading(file: std::fs::File, json: bool) -> (Box<dyn Read + Send>, Progress) {
    let bytes = file.metadata().map_or(0, |about| about.len());
    if bytes < LARGE_FILE {
        return (Box::new(file), Progress::on(ProgressDrawTarget::hidden(), 0));
    }
    let progress = Progress::new(bytes, json);
    (Box::new(progress.bar.wrap_read(file)), progress)
}

#[cfg(test)]
mod tests {
    use super::*;
    use indicatif::TermLike;
    use std::io;
    use std::sync::{Arc, Mutex};

    /// A terminal that keeps what is written.
    #[derive(Clone, Debug, Default)]
    struct Paper(Arc<Mutex<String>>);

    impl TermLike for Paper {
        fn width(&self) -> u16 {
            80
        }
        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn write_line(&self, text: &str) -> io::Result<()> {
            self.write_str(text)
        }
        fn write_str(&self, text: &str) -> io::Result<()> {
            self.0.lock().expect("no test panics with it").push_str(text);
            Ok(())
        }
        fn clear_line(&self) -> io::Result<()> {
            self.write_str("CLEARED")
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    fn on_paper(steps: u64) -> (Progress, Paper) {
        let paper = Paper::default();
        let target = ProgressDrawTarget::term_like_with_hz(Box::new(paper.clone()), 255);
        (Progress::on(target, steps), paper)
    }

    #[test]
    fn a_run_says_how_far_it_is_and_what_is_left() {
        let (progress, paper) = on_paper(1000);
        assert!(progress.is_shown());
        progress.show(Time::from_nanos(5_000_000_000), Time::from_nanos(20_000_000_000));
        progress.beside(|| ());
        let text = paper.0.lock().expect("no test panics with it").clone();
        assert!(text.contains("[#######                  ] 25 %, ") && text.contains(" left"), "{text}");
        progress.clear();
        let text = paper.0.lock().expect("no test panics with it").clone();
        assert!(text.rfind("CLEARED") > text.rfind(" left"), "{text}");
    }

    #[test]
    fn steps_have_names() {
        let (progress, paper) = on_paper(4);
        progress.begin("a06");
        progress.step();
        progress.beside(|| ());
        let text = paper.0.lock().expect("no test panics with it").clone();
        assert!(text.contains("a06 [#######                  ] 25 %"), "{text}");
        progress.clear();
    }

    #[test]
    fn nothing_is_shown_to_a_program() {
        // The tests' own standard error may be a terminal; `-j` is for a program wherever it goes.
        assert!(!Progress::of_run(true).is_shown());
    }
}
