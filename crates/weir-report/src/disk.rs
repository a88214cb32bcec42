//! Files of a person: read up to a limit, and written whole or not at all.

use std::fs::{self, File, Metadata};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

/// The text of a file of at most `most_bytes`. A longer one is refused before it is read.
///
/// # Errors
/// `InvalidData` for what is no text in UTF-8, `FileTooLarge` for a longer file, and what the system says.
pub fn read_text(path: &Path, most_bytes: usize) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most_bytes as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > most_bytes {
        let what = format!("the file has more than {most_bytes} bytes: is it the right one?");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
    }
    String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "not text in UTF-8"))
}

/// Writes a file whole: a failure leaves what was there before.
///
/// # Errors
/// What the system says.
pub fn write(path: &Path, contents: impl AsRef<[u8]>) -> io::Result<()> {
    let mut output = Output::create(path)?;
    output.write_all(contents.as_ref())?;
    output.finish()
}

/// Refuses to write `output` where it is one of `inputs` by whatever name: through a link, too.
///
/// # Errors
/// `InvalidInput`, with the name of the input.
pub fn keeps_inputs<'a>(output: &Path, inputs: impl IntoIterator<Item = &'a Path>) -> io::Result<()> {
    // What does not exist is no input.
    let Ok(metadata) = fs::metadata(output) else { return Ok(()) };
    for input in inputs {
        if fs::metadata(input).is_ok_and(|of_input| same_file(&metadata, &of_input)) {
            let what = format!(
                "{} is {}, which is read: name another file for the output",
                output.display(),
                input.display()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
    }
    Ok(())
}

fn same_file(a: &Metadata, b: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    a.is_file() && (a.dev(), a.ino()) == (b.dev(), b.ino())
}

/// A file that is there once it is finished. Until then it has another name in the same folder, and
/// goes away if it is dropped.
pub struct Output {
    file: BufWriter<File>,
    /// The name that it has, and the one that it gets; `None` where it is written in place.
    names: Option<(PathBuf, PathBuf)>,
}

impl Output {
    /// Begins a file. What is no plain file (`/dev/null`, a pipe) is written in place.
    ///
    /// # Errors
    /// What the system says.
    pub fn create(path: &Path) -> io::Result<Self> {
        let buffered = |file| BufWriter::with_capacity(1 << 16, file);
        // Through a symbolic link its target is written, as it would be in place.
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        let before = fs::metadata(&target).ok();
        if before.as_ref().is_some_and(|m| !m.is_file()) || target.file_name().is_none() {
            return Ok(Output { file: buffered(File::create(&target)?), names: None });
        }
        let mut name = target.file_name().unwrap_or_default().to_os_string();
        name.push(format!(".{}.part", std::process::id()));
        let temporary = target.with_file_name(name);
        let file = File::create(&temporary)?;
        let output = Output { file: buffered(file), names: Some((temporary, target)) };
        if let (Some(before), Some((temporary, _))) = (before, &output.names) {
            fs::set_permissions(temporary, before.permissions())?;
        }
        Ok(output)
    }

    /// Gives the file its name.
    ///
    /// # Errors
    /// What the system says; the file that was there before stays then.
    pub fn finish(mut self) -> io::Result<()> {
        self.file.flush()?;
        if let Some((temporary, target)) = self.names.as_ref() {
            fs::rename(temporary, target)?;
        }
        self.names = None;
        Ok(())
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Some((temporary, _)) = &self.names {
            // It was not finished: nobody is to take it for a result.
            let _ = fs::remove_file(temporary);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("weir-disk-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        path
    }

    #[test]
    fn a_file_is_there_whole_or_not_at_all() {
        let folder = folder("whole");
        let path = folder.join("a");
        write(&path, "first").unwrap();
        let mut output = Output::create(&path).unwrap();
        output.write_all(b"second").unwrap();
        output.flush().unwrap();
        drop(output);
        assert_eq!(fs::read_to_string(&path).unwrap(), "first");
        write(&path, "third").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "third");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing else is left");
        std::os::unix::fs::symlink(&path, folder.join("link")).unwrap();
        write(&folder.join("link"), "fourth").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "fourth");
        write(Path::new("/dev/null"), "x").unwrap();
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn an_input_is_known_by_any_name() {
        let folder = folder("same");
        let [input, hard, soft] = ["input", "hard", "soft"].map(|name| folder.join(name));
        fs::write(&input, "x").unwrap();
        fs::hard_link(&input, &hard).unwrap();
        std::os::unix::fs::symlink(&input, &soft).unwrap();
        for output in [&input, &hard, &soft] {
            assert!(keeps_inputs(output, [input.as_path()]).is_err(), "{}", output.display());
        }
        keeps_inputs(&folder.join("other"), [input.as_path()]).unwrap();
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_long_file_is_not_read() {
        let folder = folder("long");
        let path = folder.join("a");
        fs::write(&path, "12345").unwrap();
        assert_eq!(read_text(&path, 5).unwrap(), "12345");
        assert_eq!(read_text(&path, 4).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        // What never ends is not read to its end.
        assert_eq!(read_text(Path::new("/dev/zero"), 100).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        fs::write(&path, [0xff]).unwrap();
        assert_eq!(read_text(&path, 4).unwrap_err().kind(), io::ErrorKind::InvalidData);
        fs::remove_dir_all(folder).unwrap();
    }
}
