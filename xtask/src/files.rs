//! The files of the project, as its tools read them.

use std::path::Path;

/// A file of the project.
pub struct File {
    /// Its path from the root, with `/`.
    pub path: String,
    /// What is in it.
    pub text: String,
}

/// Reads every text file below `folder`, but for what is generated.
pub fn collect(root: &Path, folder: &Path, files: &mut Vec<File>) -> std::io::Result<()> {
    const HIDDEN_BUT_OURS: [&str; 3] = [".cargo", ".ci", ".gitignore"];
    const GENERATED: [&str; 3] = ["target", "node_modules", "out"];
    let mut entries: Vec<_> = std::fs::read_dir(folder)?.collect::<Result<_, _>>()?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let (name, kind) = (entry.file_name(), entry.file_type()?);
        let name = name.to_string_lossy();
        if (name.starts_with('.') && !HIDDEN_BUT_OURS.contains(&&*name)) || GENERATED.contains(&&*name) {
            continue;
        }
        if kind.is_dir() {
            collect(root, &entry.path(), files)?;
        } else if kind.is_file()
            && let Ok(text) = std::fs::read_to_string(entry.path())
        {
            let path =
                entry.path().strip_prefix(root).unwrap_or(&entry.path()).to_string_lossy().into_owned();
            files.push(File { path, text });
        }
    }
    Ok(())
}
