//! Running the command, and folders that go away.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// What a run of the command left.
#[derive(Debug)]
pub struct Run {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Run {
    /// Exit 0.
    pub fn ok(self) -> Run {
        assert_eq!(self.code, 0, "{self:?}");
        self
    }
    /// This exit code, nothing on standard output, and all of these words on standard error.
    pub fn fails(self, code: i32, words: &[&str]) {
        assert_eq!(self.code, code, "{self:?}");
        assert_eq!(self.out, "", "results only on standard output");
        let said = unfolded(&self.err);
        for word in words {
            assert!(said.contains(&unfolded(word)), "expected {word:?} in {}", self.err);
        }
    }
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }
}

impl From<Output> for Run {
    fn from(output: Output) -> Run {
        Run {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// A text without its folds: any white space is one blank.
pub fn unfolded(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

pub const WEIR: &str = env!("CARGO_BIN_EXE_weir");

/// Runs `weir` with `arguments`.
pub fn weir(arguments: &[&str]) -> Run {
    Command::new(WEIR).args(arguments).stdin(Stdio::null()).output().unwrap().into()
}

/// A file of the source tree.
pub fn source(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    root.join(path).to_str().unwrap().to_owned()
}

/// A folder of a test's own, removed at the end even if the test fails.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("weir-test-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
    /// The path of a file in it.
    pub fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
    /// Writes a file; its path.
    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::write(&path, contents).unwrap();
        path
    }
    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Two classes with a filter each; `rest` is the default.
pub const TWO_CLASSES: &str = "\
interface em0 bandwidth 10M priq
class priq em0 voice NULL priority 3
class priq em0 rest NULL default
filter em0 voice 0 0 0 0 17 dscp EF
filter em0 voice 0 0 10.0.0.1 5000 6
";

/// A short run of two flows over a managed link, with an expectation.
pub fn scenario(expected_share: &str) -> String {
    format!(
        r#"
duration = "2s"
[[host]]
name = "a"
[[host]]
name = "b"
[[link]]
a = "a"
b = "box"
rate = "1G"
[[link]]
a = "box"
b = "b"
rate = "10M"
delay = "1ms"
[[port]]
at = "box"
to = "b"
text = """
{TWO_CLASSES}"""
[[flow]]
from = "a"
to = "b"
[[flow]]
name = "call"
from = "a"
to = "b"
kind = "udp"
rate = "1M"
size = 200
dscp = "EF"
class = "voice"
distribution = "exponential"
on = "100ms"
off = "100ms"
[[expect]]
what = "utilisation"
min = "{expected_share}"
"#
    )
}
