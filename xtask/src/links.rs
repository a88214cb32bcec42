//! `cargo xtask links FOLDER`: every link of the rendered book leads to a file, and to an anchor in it.

use std::collections::{HashMap, HashSet};
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;

/// Checks the HTML files below `folder`.
pub fn main(folder: &Path) -> ExitCode {
    let mut pages = HashMap::new();
    if let Err(error) = collect(folder, &mut pages) {
        eprintln!("links: cannot read {}: {error}", folder.display());
        return ExitCode::from(2);
    }
    let (checked, found) = check(&pages, &|path| path.exists());
    for line in &found {
        eprintln!("{line}");
    }
    println!("links: {checked} checked in {} pages, {} lead nowhere", pages.len(), found.len());
    if found.is_empty() && checked > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn collect(folder: &Path, pages: &mut HashMap<PathBuf, String>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        // One page that repeats all others, and one whose links begin at the root of a server.
        let is_copy = path.ends_with("print.html") || path.ends_with("404.html");
        if path.is_dir() {
            collect(&path, pages)?;
        } else if path.extension().is_some_and(|e| e == "html") && !is_copy {
            pages.insert(normal(&path), std::fs::read_to_string(&path)?);
        }
    }
    Ok(())
}

/// The number of links, and what is wrong with those that lead nowhere.
fn check(pages: &HashMap<PathBuf, String>, exists: &dyn Fn(&Path) -> bool) -> (usize, Vec<String>) {
    let anchors: HashMap<&PathBuf, HashSet<&str>> =
        pages.iter().map(|(path, html)| (path, values(html, "id").collect())).collect();
    let (mut checked, mut found) = (0, Vec::new());
    for (page, html) in pages {
        let links = values(html, "href").chain(values(html, "src"));
        for link in links.filter(|l| !l.is_empty() && !l.contains(':')) {
            checked += 1;
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let to = match file {
                "" => page.clone(),
                file => normal(&page.parent().unwrap_or(Path::new("")).join(file)),
            };
            let leads = match anchors.get(&to) {
                Some(there) => anchor.is_empty() || there.contains(anchor),
                None => exists(&to),
            };
            if !leads {
                found.push(format!("{}: `{link}` leads nowhere", page.display()));
            }
        }
    }
    found.sort();
    (checked, found)
}

/// The values of an attribute, in double quotes as mdBook writes them.
fn values<'a>(html: &'a str, attribute: &str) -> impl Iterator<Item = &'a str> {
    let opening = format!(" {attribute}=\"");
    let mut rest = html;
    std::iter::from_fn(move || {
        rest = &rest[rest.find(&opening)? + opening.len()..];
        rest.split('"').next()
    })
}

/// The path without `.` and `..`, as far as it names its folders.
fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if out.file_name().is_some() => {
                out.pop();
            }
            part => out.push(part),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_followed_to_their_anchors() {
        let page = |links: &str| {
            let other = "<h2 class=\"x\" id=\"there\">There</h2>".to_owned();
            HashMap::from([("b/c/p.html".into(), links.to_owned()), ("b/o.html".into(), other)])
        };
        let exists = |path: &Path| path == Path::new("x/file.rs");
        let good = "<a href=\"../o.html#there\">a</a> <a href=\"../../x/file.rs\">b</a> \
                    <a href=\"https://example.org/#x\">c</a> <p id=\"me\"><a href=\"#me\">d</a>";
        assert_eq!(check(&page(good), &exists), (3, Vec::new()));
        for bad in ["../o.html#here", "o.html", "#you", "../../x/other.rs"] {
            assert_eq!(check(&page(&format!("<a href=\"{bad}\">")), &exists).1.len(), 1, "{bad}");
        }
        assert_eq!(check(&page("<img alt=\"\" src=\"no.svg\">"), &exists).1.len(), 1);
    }
}
