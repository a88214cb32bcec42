//! Rules about Rust code, and how code is told from comments, texts and tests.

use super::allowed::{self, is_allowed};
use super::{File, Violation};

/// Lines of a file without its tests.
const LONGEST: usize = 600;

/// Rust files; whole-file tests and examples left out if `tests` is false.
pub fn rust(files: &[File], tests: bool) -> impl Iterator<Item = &File> {
    let test_modules: Vec<String> =
        if tests { Vec::new() } else { files.iter().flat_map(test_modules).collect() };
    files.iter().filter(move |f| {
        let is_test = || is_test_file(&f.path) || test_modules.contains(&f.path);
        f.path.ends_with(".rs") && (tests || !is_test())
    })
}

fn is_test_file(path: &str) -> bool {
    path.split('/').any(|part| matches!(part, "tests" | "benches" | "examples"))
}

/// The files of modules that `file` declares for tests only.
fn test_modules(file: &File) -> Vec<String> {
    let Some((folder, name)) = file.path.rsplit_once('/') else { return Vec::new() };
    let folder = match name.strip_suffix(".rs") {
        None => return Vec::new(),
        Some("lib" | "main" | "mod") => folder.to_owned(),
        Some(stem) => format!("{folder}/{stem}"),
    };
    let mut found = Vec::new();
    let mut lines = file.text.lines().map(str::trim).peekable();
    while let Some(line) = lines.next() {
        if line != "#[cfg(test)]" {
            continue;
        }
        let mut other_path = None;
        while let Some(attribute) = lines.next_if(|l| l.starts_with("#[")) {
            other_path =
                attribute.strip_prefix("#[path = \"").and_then(|p| p.strip_suffix("\"]")).or(other_path);
        }
        let Some(module) = lines.peek().and_then(|l| l.strip_suffix(';')) else { continue };
        let Some((_, module)) = module.rsplit_once("mod ") else { continue };
        match other_path {
            // Relative to the file that declares it.
            Some(path) => found.push(format!("{}/{path}", file.path.rsplit_once('/').map_or("", |(f, _)| f))),
            None => found.extend([format!("{folder}/{module}.rs"), format!("{folder}/{module}/mod.rs")]),
        }
    }
    found
}

/// The file up to its unit tests, which stand at its end.
pub fn without_tests(text: &str) -> &str {
    let mut start = 0;
    let mut from = 0;
    while let Some(found) = text[from..].find("#[cfg(test)]") {
        let at = from + found;
        let after = text[at..].lines().skip(1).map(str::trim).find(|l| !l.starts_with("#["));
        if after.is_some_and(|l| l.starts_with("mod ") && l.ends_with('{')) {
            return &text[..at];
        }
        start = start.max(at);
        from = at + 1;
    }
    text
}

/// The code alone: comments and the contents of texts become blanks, lines stay where they are.
pub fn code_only(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let end = skip_token(bytes, at);
        if end == at {
            out.push(bytes[at]);
            at += 1;
        } else {
            out.extend(bytes[at..end].iter().map(|&b| if b == b'\n' { b'\n' } else { b' ' }));
            at = end;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Where the comment, text or character that starts at `at` ends; `at` if none starts there.
fn skip_token(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    let find = |needle: &[u8], from: usize| {
        rest[from..]
            .windows(needle.len())
            .position(|w| w == needle)
            .map_or(bytes.len(), |i| at + from + i + needle.len())
    };
    match rest {
        [b'/', b'/', ..] => rest.iter().position(|&b| b == b'\n').map_or(bytes.len(), |i| at + i),
        [b'/', b'*', ..] => {
            let (mut depth, mut i) = (0, 0);
            while i < rest.len() {
                match &rest[i..] {
                    [b'/', b'*', ..] => (depth, i) = (depth + 1, i + 2),
                    [b'*', b'/', ..] => (depth, i) = (depth - 1, i + 2),
                    _ => i += 1,
                }
                if depth == 0 {
                    break;
                }
            }
            at + i
        }
        [b'r', b'"' | b'#', ..] if at == 0 || !is_word(bytes[at - 1]) => {
            let hashes = rest[1..].iter().take_while(|&&b| b == b'#').count();
            if rest.get(1 + hashes) != Some(&b'"') {
                return at;
            }
            let close: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
            find(&close, 2 + hashes)
        }
        [b'"', ..] => {
            let mut i = 1;
            while i < rest.len() && rest[i] != b'"' {
                i += if rest[i] == b'\\' { 2 } else { 1 };
            }
            (at + i + 1).min(bytes.len())
        }
        [b'\'', b'\\', ..] => find(b"'", 3),
        // A character, and not a lifetime.
        [b'\'', ..] => match rest.iter().skip(2).take(4).position(|&b| b == b'\'') {
            Some(i) if i == 0 || rest[1] >= 0x80 => at + i + 3,
            _ => at,
        },
        _ => at,
    }
}

fn is_word(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b == b'_'
}

/// Lines (from 1) of `code` in which `word` stands alone.
pub fn lines_with(code: &str, word: &str) -> Vec<usize> {
    let has = |line: &str| {
        line.match_indices(word).any(|(i, _)| {
            let (before, after) = (line[..i].bytes().last(), line[i + word.len()..].bytes().next());
            let left = word.starts_with(|c: char| !c.is_alphanumeric()) || !before.is_some_and(is_word);
            let right = word.ends_with(|c: char| !c.is_alphanumeric()) || !after.is_some_and(is_word);
            left && right
        })
    };
    code.lines().enumerate().filter(|(_, line)| has(line)).map(|(n, _)| n + 1).collect()
}

/// An `unsafe fn` only asks something of its callers; what it does itself it does in blocks.
pub fn unsafe_stands_in_weir_sys_with_its_reason(files: &[File]) -> Vec<Violation> {
    let mut found = Vec::new();
    for file in rust(files, true) {
        let lines: Vec<&str> = file.text.lines().collect();
        for line in lines_with(&code_only(&file.text), "unsafe") {
            if !file.path.starts_with("crates/weir-sys/") {
                found.push(Violation::new(file, line, "unsafe code belongs in weir-sys, and nowhere else"));
            } else if !lines[line - 1].contains("unsafe fn") && !has_safety_comment(&lines, line - 1) {
                found.push(Violation::new(file, line, "say above it why this is sound: `// SAFETY: ...`"));
            }
        }
    }
    found
}

/// True if the statement that holds `lines[at]` has a SAFETY comment above it.
fn has_safety_comment(lines: &[&str], at: usize) -> bool {
    let reason = "SAFETY:";
    if lines[at].contains(reason) {
        return true;
    }
    for line in lines[..at].iter().rev().map(|l| l.trim()) {
        if line.contains(reason) {
            return true;
        }
        let boundary = line.is_empty() || line.ends_with(';') || line.ends_with('}');
        if boundary && !line.starts_with("//") {
            return false;
        }
    }
    false
}

pub fn nothing_is_left_to_do(files: &[File]) -> Vec<Violation> {
    // Put together here, so that this file does not hold them itself.
    let macros = [concat!("to", "do!"), concat!("unimple", "mented!"), concat!("db", "g!")];
    let marks = [concat!("FIX", "ME"), concat!("X", "XX"), concat!("TO", "DO")];
    let mut found = Vec::new();
    for file in files.iter().filter(|f| f.path != "Cargo.lock") {
        for mark in marks {
            for line in lines_with(&file.text, mark) {
                found.push(Violation::new(file, line, format!("{mark}: finish it, or open an issue")));
            }
        }
    }
    for file in rust(files, true) {
        let code = code_only(&file.text);
        for call in macros {
            for line in lines_with(&code, call) {
                found.push(Violation::new(file, line, format!("`{call}`: finish it")));
            }
        }
    }
    found
}

pub fn no_unwrap_outside_tests(files: &[File]) -> Vec<Violation> {
    let mut found = Vec::new();
    for file in rust(files, false) {
        for line in lines_with(&code_only(without_tests(&file.text)), ".unwrap()") {
            let what = "`unwrap` outside tests: handle it, or `expect` with the invariant as its text";
            found.push(Violation::new(file, line, what));
        }
    }
    found
}

pub fn files_are_short(files: &[File]) -> Vec<Violation> {
    let mut found = Vec::new();
    for file in rust(files, false).filter(|f| !is_allowed(allowed::LONG_FILES, &f.path)) {
        let lines = without_tests(&file.text).lines().count();
        if lines > LONGEST {
            let what =
                format!("{lines} lines without tests, at most {LONGEST}: what is the second idea in it?");
            found.push(Violation::new(file, LONGEST, what));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{file, holds_for};

    #[test]
    fn code_is_told_from_comments_and_texts() {
        let text = "let a = \"un\\\"safe\"; // unsafe\n/* unsafe /* nested */ unsafe */ let b = r#\"unsafe\"#;\nlet c: &'static str; let d = '\"'; unsafe {}";
        let code = code_only(text);
        assert_eq!(lines_with(&code, "unsafe"), [3], "{code}");
        assert!(code.contains("let b =") && code.contains("&'static str"), "{code}");
        assert_eq!(code.lines().count(), text.lines().count());
    }

    #[test]
    fn words_stand_alone() {
        assert_eq!(lines_with("#![forbid(unsafe_code)]\nunsafe fn f() {}\nx.unwrap_or(1)", "unsafe"), [2]);
        assert_eq!(lines_with("x.unwrap_or(1)\ny.unwrap()", ".unwrap()"), [2]);
    }

    #[test]
    fn unsafe_needs_its_place_and_its_reason() {
        holds_for(
            unsafe_stands_in_weir_sys_with_its_reason,
            &[
                ("crates/weir-sys/src/a.rs", "// SAFETY: it is.\nlet x = check(unsafe { f() });"),
                (
                    "crates/weir-sys/src/a.rs",
                    "// SAFETY: it is.\nlet x =\n    check(\n        unsafe { f() });",
                ),
                ("crates/weir-sys/src/a.rs", "unsafe fn f() {\n    // SAFETY: it is.\n    unsafe { g() }\n}"),
                ("crates/weir-core/src/a.rs", "#![forbid(unsafe_code)] // unsafe"),
            ],
            &[
                ("crates/weir-sys/src/a.rs", "// SAFETY: it is.\nlet x = 1;\nlet y = unsafe { f() };"),
                ("crates/weir-core/src/a.rs", "// SAFETY: it is.\nlet x = unsafe { f() };"),
                ("crates/weir-sim/tests/a.rs", "unsafe { f() };"),
                ("crates/weir-io/src/a.rs", "// SAFETY: it is.\nlet x = unsafe { f() };"),
            ],
        );
    }

    #[test]
    fn work_is_finished() {
        let (mark, call) = (concat!("// FIX", "ME later"), concat!("fn f() { to", "do!() }"));
        holds_for(
            nothing_is_left_to_do,
            &[("a.rs", "let all = method!();"), ("b.md", "maxXXXx")],
            &[("a.rs", mark), ("b.md", mark), ("a.rs", call)],
        );
    }

    #[test]
    fn unwrap_is_for_tests() {
        holds_for(
            no_unwrap_outside_tests,
            &[
                ("crates/a/src/a.rs", "fn f() {}\n#[cfg(test)]\nmod tests {\n f().unwrap();\n}"),
                ("crates/a/tests/a.rs", "f().unwrap();"),
                ("crates/a/src/a.rs", "/// f().unwrap();\nfn f() {}"),
            ],
            &[
                ("crates/a/src/a.rs", "fn f() { g().unwrap(); }"),
                ("crates/a/src/a.rs", "#[cfg(test)]\nextern crate std;\nfn f() { g().unwrap(); }"),
                ("crates/a/src/a.rs", "#[cfg(test)]\nmod tests;\nfn f() { g().unwrap(); }"),
            ],
        );
    }

    #[test]
    fn a_module_for_tests_is_a_test() {
        let files = |module: &str| {
            let declares = file("crates/a/src/a.rs", &format!("#[cfg(test)]\n{module}\nfn f() {{}}"));
            [
                declares,
                file("crates/a/src/a/b.rs", "f().unwrap();"),
                file("crates/a/src/c.rs", "f().unwrap();"),
            ]
        };
        let found = |module: &str| {
            no_unwrap_outside_tests(&files(module)).iter().map(|v| v.path.clone()).collect::<Vec<_>>()
        };
        assert_eq!(found("mod b;"), ["crates/a/src/c.rs"]);
        assert_eq!(found("#[path = \"c.rs\"]\nmod b;"), ["crates/a/src/a/b.rs"]);
        assert_eq!(found("extern crate std;").len(), 2);
    }

    #[test]
    fn files_end() {
        let long = "fn f() {}\n".repeat(LONGEST + 1);
        let tested = format!("fn f() {{}}\n#[cfg(test)]\nmod tests {{\n{long}}}");
        holds_for(
            files_are_short,
            &[("crates/a/src/a.rs", &tested), ("crates/a/tests/a.rs", &long)],
            &[("crates/a/src/a.rs", &long)],
        );
    }
}
