//! The seed and the effort of every randomised test, and the patience of every timed one. Dev only.
//!
//! `WEIR_SEED=7` draws other cases than usual, `WEIR_EFFORT=20` twenty times as many. A test that
//! asks for the seed prints it, so that the output of a failure says how to repeat it.
//!
//! ```
//! for seed in weir_seed::seeds(4) {
//!     let length = 1 + seed % 1_500;
//!     assert!(length <= 1_500, "seed {seed}");
//! }
//! ```

mod timed;

pub use timed::{TIMES, late, timed};

use std::cell::Cell;

/// The seed without `WEIR_SEED`.
const USUAL: u64 = 20;

fn number(variable: &str, usual: u64) -> u64 {
    let Ok(text) = std::env::var(variable) else { return usual };
    text.parse()
        .unwrap_or_else(|_| panic!("{variable}={text}: expected a whole number below 2^64, as {usual}"))
}

/// `WEIR_SEED`, or a fixed number. Prints it, once in a test.
///
/// # Panics
/// If `WEIR_SEED` is not a whole number below 2^64.
pub fn seed() -> u64 {
    thread_local!(static TOLD: Cell<bool> = const { Cell::new(false) });
    let seed = number("WEIR_SEED", USUAL);
    // With `--test-threads=1` all tests share the main thread.
    if !TOLD.replace(true) || std::thread::current().name() == Some("main") {
        println!("WEIR_SEED={seed}");
    }
    seed
}

/// So many cases, or `WEIR_EFFORT` times as many.
///
/// # Panics
/// If `WEIR_EFFORT` is not a whole number below 2^64.
pub fn effort(usual: u64) -> u64 {
    usual.saturating_mul(number("WEIR_EFFORT", 1))
}

/// `effort(usual)` seeds that follow from `seed()`. Those of other seeds are others.
pub fn seeds(usual: u64) -> impl Iterator<Item = u64> + Clone {
    // SplitMix64's step is odd: seeds that lie near one another have ranges far apart.
    let first = seed().wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..effort(usual)).map(move |n| first.wrapping_add(n))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Output};

    /// This very test binary, with these variables set.
    fn again(test: &str, set: &[(&str, &str)]) -> Output {
        let mut command = Command::new(std::env::current_exe().expect("this binary"));
        command.args(["--exact", test, "--ignored", "--nocapture"]).env_remove("WEIR_SEED");
        command.env_remove("WEIR_EFFORT").envs(set.iter().copied()).output().expect("it runs")
    }

    #[test]
    #[ignore = "run by the tests below"]
    fn tells() {
        println!("[{} {}]", seed(), effort(3));
        println!("{}", seeds(2).count());
    }

    #[test]
    fn the_variables_decide_and_the_seed_is_printed_once() {
        let told = |set: &[(&str, &str)]| String::from_utf8(again("tests::tells", set).stdout).expect("text");
        let usual = told(&[]);
        assert!(usual.contains("WEIR_SEED=20\n[20 3]\n2\n"), "{usual}");
        let other = told(&[("WEIR_SEED", "7"), ("WEIR_EFFORT", "5")]);
        assert!(other.contains("WEIR_SEED=7\n[7 15]\n10\n"), "{other}");
        assert_eq!(other.matches("WEIR_SEED").count(), 1, "{other}");
    }

    #[test]
    fn what_is_no_number_is_refused() {
        let out = again("tests::tells", &[("WEIR_SEED", "0x5")]);
        assert!(!out.status.success());
        let error = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(error.contains("WEIR_SEED=0x5: expected a whole number below 2^64, as 20"), "{error}");
    }
}
