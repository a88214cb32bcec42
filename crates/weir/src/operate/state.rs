//! The last configuration that ran well, in a file that survives a power cut.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Where states are kept unless told otherwise.
const FOLDER: &str = "/var/lib/weir";

/// The file of one box.
pub struct LastGood(PathBuf);

impl LastGood {
    /// The file at `path`, or the one of the box that serves at `socket`.
    pub fn new(path: Option<&Path>, socket: &Path) -> Self {
        let of_socket = || {
            let stem = socket.file_stem().unwrap_or_default().to_string_lossy();
            Path::new(FOLDER).join(format!("{stem}.altq"))
        };
        LastGood(path.map_or_else(of_socket, Path::to_path_buf))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Makes its folder, as far as it may: what cannot be kept is said when it is to be kept.
    pub fn prepare(&self) {
        let _ = self.0.parent().map(fs::create_dir_all);
    }

    /// Keeps `text`: whole, or what was there before stays. After it returns the text is on disk.
    pub fn keep(&self, text: &str) -> io::Result<()> {
        let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", self.0.display()));
        let folder = match self.0.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        let write = || {
            fs::create_dir_all(folder)?;
            let mut beside = self.0.clone().into_os_string();
            beside.push(".new");
            let mut file = File::create(&beside)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&beside, &self.0)?;
            // The name is in the folder, and the folder is on disk when this returns.
            File::open(folder)?.sync_all()
        };
        write().map_err(named)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    /// A process that keeps one text after the other; killed by the test below.
    #[test]
    #[ignore = "part of the test below"]
    fn keeps_for_ever() {
        let Ok(path) = std::env::var("WEIR_TEST_STATE") else { return };
        let state = LastGood::new(Some(Path::new(&path)), Path::new(""));
        let end = Instant::now() + Duration::from_secs(20);
        for round in 0.. {
            if Instant::now() > end {
                return;
            }
            state.keep(&format!("{round}\n").repeat(20_000)).unwrap();
        }
    }

    #[test]
    fn whoever_is_killed_while_it_writes_leaves_a_whole_text() {
        let folder = std::env::temp_dir().join(format!("weir-state-{}", std::process::id()));
        let path = folder.join("deep").join("weir.altq");
        let state = LastGood::new(Some(&path), Path::new(""));
        state.keep("first").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "first");
        let (mut last, mut half) = (String::new(), 0);
        for round in 0..30 {
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args(["--ignored", "--exact", "operate::state::tests::keeps_for_ever"])
                .env("WEIR_TEST_STATE", &path)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            std::thread::sleep(Duration::from_millis(30 + 7 * round));
            child.kill().unwrap();
            child.wait().unwrap();
            let text = fs::read_to_string(&path).unwrap();
            let first = text.lines().next().unwrap().to_string();
            let whole = text == "first" || text == format!("{first}\n").repeat(20_000);
            assert!(whole, "{} bytes that begin with {first}", text.len());
            half += u32::from(folder.join("deep/weir.altq.new").exists());
            last = text;
        }
        assert!(half > 0, "no process was killed between writing and renaming");
        assert_ne!(last, "first", "no process kept anything");
        // What a killed one left beside is in nobody's way.
        state.keep("after").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "after");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn each_socket_has_a_file_of_its_own() {
        let of = |socket: &str| LastGood::new(None, Path::new(socket)).path().to_path_buf();
        assert_eq!(of("/run/weir.sock"), Path::new("/var/lib/weir/weir.altq"));
        assert_eq!(of("/run/second.sock"), Path::new("/var/lib/weir/second.altq"));
    }
}
