//! Tests that measure time on a machine that does other things too.
//!
//! A machine that stands still for 50 ms breaks the best promise about 50 ms once. What is wrong is wrong each
//! time. So a miss of a time limit is told from every other failure: after a miss the test runs again.

use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};

/// How often a test may run until it is in time.
pub const TIMES: u32 = 3;

/// What a miss panics with.
struct Late(String);

/// Says that a figure which depends on the time was missed, in a test that runs within [`timed`].
///
/// # Panics
/// Always.
pub fn late(what: String) -> ! {
    panic_any(Late(what))
}

/// Like `assert!`, for a condition that a machine which stands still may break. Only within [`timed`].
#[macro_export]
macro_rules! in_time {
    ($condition:expr) => {
        $crate::in_time!($condition, "expected {}", stringify!($condition))
    };
    ($condition:expr, $($words:tt)+) => {
        if !$condition {
            $crate::late(format!("{}:{}: {}", file!(), line!(), format_args!($($words)+)))
        }
    };
}

/// Runs `test` until no [`in_time!`](crate::in_time) in it fails, [`TIMES`] times at most. Every other failure is
/// one at once.
///
/// # Panics
/// If the test fails, or is late [`TIMES`] times.
pub fn timed(mut test: impl FnMut()) {
    for run in 1.. {
        let Err(failure) = catch_unwind(AssertUnwindSafe(&mut test)) else { return };
        match failure.downcast::<Late>() {
            Err(other) => resume_unwind(other),
            Ok(late) if run == TIMES => panic!("late {TIMES} times, at last at {}", late.0),
            Ok(late) => println!("late, run {run} of {TIMES}: {}", late.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often a test ran, and what it failed with.
    fn run(test: impl Fn(u32)) -> (u32, Option<String>) {
        let mut runs = 0;
        let failed = catch_unwind(AssertUnwindSafe(|| {
            timed(|| {
                runs += 1;
                test(runs);
            });
        }));
        let words = |panic: Box<dyn std::any::Any + Send>| match panic.downcast::<String>() {
            Ok(words) => *words,
            Err(other) => other.downcast::<&str>().expect("words").to_string(),
        };
        (runs, failed.err().map(words))
    }

    #[test]
    fn who_is_late_runs_again_and_who_is_wrong_does_not() {
        assert_eq!(run(|_| {}), (1, None));
        assert_eq!(run(|n| in_time!(n == 3, "{n}")), (3, None));
        let (runs, failed) = run(|n| in_time!(n > 3, "run {n}"));
        let words = failed.expect("it is late each time");
        assert!(runs == 3 && words.contains("late 3 times") && words.contains("run 3"), "{words}");
        assert_eq!(run(|n| panic!("wrong in run {n}")), (1, Some("wrong in run 1".into())));
    }
}
