//! `include FILE`: the files of a configuration as one text.
//!
//! Principle: each `include` line is replaced by a line that begins the included file, its lines, and a
//! line that ends it. Both are comments, so that the text is an altq.conf by itself: it is what is sent
//! to a running box and what the box keeps. Messages name the file and the line that a person edits,
//! because a [`Source`] that is made by [`Source::whole`] reads these comments.
//!
//! ```text
//! #<< /etc/weir/slas.conf
//! sla lan0 17 198.51.100.17 bw 512K
//! #>>
//! ```
//!
//! The name is relative to the file that the line stands in. A line that goes on from the one before is
//! no `include`.

use crate::source::{BEGIN, END};
use crate::{Diagnostic, Place, Severity, Source, Trouble};
use std::path::Path;

/// How deep files may include each other.
const DEPTH: usize = 16;
/// Files of a configuration.
const FILES: usize = 4_096;

/// What reads a file by its name: its text, or why it cannot be read.
pub type Load<'a> = &'a mut dyn FnMut(&str) -> Result<String, String>;

/// The text of the file `name` with the files that it includes, of `most_bytes` in all.
///
/// # Errors
/// All that is wrong with `include` lines.
pub fn whole(name: &str, text: &str, most_bytes: usize, load: Load<'_>) -> Result<String, Vec<Diagnostic>> {
    if !text.lines().any(is_include) {
        return Ok(text.to_string());
    }
    let mut reader =
        Reader { load, most_bytes, open: Vec::new(), text: String::new(), files: 0, said: Vec::new() };
    reader.file(name, text);
    if reader.said.is_empty() { Ok(reader.text) } else { Err(reader.said) }
}

/// The files that a text of several was put together from, but for the outermost.
pub fn files(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| line.strip_prefix(BEGIN))
}

fn is_include(line: &str) -> bool {
    line.split_whitespace().next() == Some("include")
}

struct Reader<'a> {
    load: Load<'a>,
    most_bytes: usize,
    /// The files that are being read, the outermost first.
    open: Vec<String>,
    text: String,
    files: usize,
    said: Vec<Diagnostic>,
}

impl Reader<'_> {
    fn file(&mut self, name: &str, text: &str) {
        self.open.push(name.to_string());
        let source = Source::new(name, text);
        let mut goes_on = false;
        for (number, line) in (1..).zip(source.lines()) {
            if !goes_on && is_include(line) {
                if let Err(trouble) = self.include(name, number, line) {
                    self.said.push(source.diagnostic(Severity::Error, trouble));
                }
            } else {
                // A comment that looks like one of ours is none.
                let space =
                    if line.starts_with(BEGIN.trim_end()) || line.starts_with(END) { "# " } else { "" };
                self.put(&[space, line]);
            }
            goes_on = line.ends_with('\\');
        }
        self.open.pop();
    }

    fn put(&mut self, parts: &[&str]) {
        parts.iter().for_each(|part| self.text.push_str(part));
        self.text.push('\n');
    }

    fn include(&mut self, from: &str, number: u32, line: &str) -> Result<(), Trouble> {
        let code = line.split('#').next().unwrap_or_default();
        let mut words = code.split_whitespace();
        words.next();
        // From the word on that the message is about.
        let place = |word: &str| {
            let at = word.as_ptr() as usize - line.as_ptr() as usize;
            let column = line[..at].chars().count() as u32 + 1;
            Place { line: number, column, length: word.chars().count().max(1) as u32 }
        };
        let Some(word) = words.next() else {
            let end = code.trim_end();
            let place = Place { length: 1, ..place(&line[end.len()..]) };
            let help = "write its name, as in `include slas.conf`";
            return Err(Trouble::new(place, "the file to include is missing", help));
        };
        if let Some(extra) = words.next() {
            let message = format!("`{extra}` after the name of the file");
            let help = "take it away: a name has no spaces, and each file has a line of its own";
            return Err(Trouble::new(place(extra), message, help));
        }
        let name = beside(from, word);
        let refuse = |message: String, help: &str| Err(Trouble::new(place(word), message, help));
        if let Some(first) = self.open.iter().position(|open| *open == name) {
            let circle: Vec<&str> = self.open[first..].iter().map(String::as_str).chain([&*name]).collect();
            return refuse(
                format!("files include each other: {}", circle.join(" > ")),
                "take one of these lines away",
            );
        }
        if self.open.len() > DEPTH {
            let message = format!("files include each other more than {DEPTH} deep");
            return refuse(message, "include this file from a file further out");
        }
        self.files += 1;
        if self.files > FILES {
            return refuse(format!("more than {FILES} files"), "put some of them together");
        }
        let text = match (self.load)(&name) {
            Ok(text) => text,
            Err(why) => {
                let help = "write the name of a file that can be read, relative to this one";
                return refuse(format!("`{name}` cannot be included: {why}"), help);
            }
        };
        if self.text.len() + text.len() > self.most_bytes {
            let message = format!("with `{name}` the configuration has more than {} bytes", self.most_bytes);
            return refuse(message, "include less");
        }
        self.put(&[BEGIN, &name]);
        self.file(&name, &text);
        self.put(&[END]);
        Ok(())
    }
}

/// The name of a file that `from` calls `name`.
fn beside(from: &str, name: &str) -> String {
    let folder = Path::new(from).parent().unwrap_or(Path::new(""));
    // Parts that say nothing are left out, so that one file has one name.
    folder.join(name).components().collect::<std::path::PathBuf>().display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Resolves the first of these files.
    fn resolve(files: &[(&str, &str)]) -> Result<String, Vec<String>> {
        let all: BTreeMap<&str, &str> = files.iter().copied().collect();
        let load =
            &mut |name: &str| all.get(name).map(|t| t.to_string()).ok_or_else(|| "no such file".to_string());
        let said = |d: &Diagnostic| format!("{}:{}:{} {}", d.file, d.line, d.column, d.message);
        whole(files[0].0, files[0].1, 1_000, load).map_err(|all| all.iter().map(said).collect())
    }

    #[test]
    fn files_come_to_one_text() {
        let text = resolve(&[
            ("/etc/a.conf", "one\n  include sub/b.conf # why\ntwo \\\ninclude none\n#<< three\n"),
            ("/etc/sub/b.conf", "four\ninclude ../c.conf\ninclude ./d.conf"),
            ("/etc/sub/../c.conf", "five\n"),
            ("/etc/sub/d.conf", "six \\"),
        ]);
        let expected = "one\n#<< /etc/sub/b.conf\nfour\n#<< /etc/sub/../c.conf\nfive\n#>>\n#<< /etc/sub/d.conf\nsix \\\n#>>\n\
                        #>>\ntwo \\\ninclude none\n# #<< three\n";
        assert_eq!(text.as_deref(), Ok(expected));
        let names = ["/etc/sub/b.conf", "/etc/sub/../c.conf", "/etc/sub/d.conf"];
        assert!(files(expected).eq(names));
    }

    #[test]
    fn what_is_wrong_is_said_where_it_stands() {
        let said = |files: &[(&str, &str)]| resolve(files).unwrap_err();
        assert_eq!(said(&[("a", "x\ninclude  b")]), ["a:2:10 `b` cannot be included: no such file"]);
        assert_eq!(said(&[("a", "\tinclude # b")]), ["a:1:9 the file to include is missing"]);
        assert_eq!(said(&[("a", "include")]), ["a:1:8 the file to include is missing"]);
        assert_eq!(said(&[("a", "include b c")]), ["a:1:11 `c` after the name of the file"]);
        assert_eq!(said(&[("a", "include a")]), ["a:1:9 files include each other: a > a"]);
        let circle = [("d/a", "include b"), ("d/b", "x\ninclude ./c"), ("d/c", "include b\ninclude z")];
        assert_eq!(
            said(&circle),
            [
                "d/c:1:9 files include each other: d/b > d/c > d/b",
                "d/c:2:9 `d/z` cannot be included: no such file"
            ]
        );
        let long = "x".repeat(991);
        assert_eq!(
            said(&[("a", "123456789\ninclude b"), ("b", &long)]),
            ["a:2:9 with `b` the configuration has more than 1000 bytes"]
        );
        let names: Vec<String> = (0..=20).map(|n| format!("f{n}")).collect();
        let texts: Vec<String> = (0..=20).map(|n| format!("include f{}", n + 1)).collect();
        for (deepest, fine) in [(16, true), (17, false)] {
            let chain: Vec<(&str, &str)> =
                (0..=deepest).map(|n| (&*names[n], if n == deepest { "end" } else { &*texts[n] })).collect();
            let found = resolve(&chain);
            assert_eq!(found.is_ok(), fine, "{found:?}");
        }
    }
}
