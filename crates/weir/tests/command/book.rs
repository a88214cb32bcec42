//! The book: its figures show what they say, its links lead somewhere, its tables are whole.

use crate::support::{Folder, source, weir};
use std::path::{Path, PathBuf};

fn files(folder: &str, ending: &str) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> =
        std::fs::read_dir(source(folder)).unwrap().map(|entry| entry.unwrap().path()).collect();
    all.retain(|path| path.extension().is_some_and(|e| e == ending));
    all.sort();
    assert!(!all.is_empty(), "{folder}");
    all
}

fn stem(path: &Path) -> &str {
    path.file_stem().unwrap().to_str().unwrap()
}

#[test]
fn figures_show_what_their_scenarios_expect() {
    let folder = Folder::new();
    for scenario in files("book/figures", "toml") {
        let name = stem(&scenario);
        let text = std::fs::read_to_string(&scenario).unwrap();
        let plot = text.lines().next().unwrap().strip_prefix("# plot: ").unwrap();
        assert!(text.contains("[[expect]]"), "{name}: a figure without a claim");
        weir(&["sim", scenario.to_str().unwrap(), "--out", &folder.path(name)]).ok();
        assert!(folder.read(&format!("{name}/{plot}.svg")).starts_with("<svg"), "{name}");
        let page = std::fs::read_to_string(source(&format!("book/src/disciplines/{name}.md"))).unwrap();
        assert!(page.contains(&format!("](../figures/{name}.svg)")), "{name}: the page does not show it");
    }
}

#[test]
fn every_discipline_has_a_page_with_validation() {
    let all = weir(&["disciplines", "-j"]).ok().json();
    for discipline in all["disciplines"].as_array().unwrap() {
        let name = discipline["name"].as_str().unwrap();
        if discipline["built"] == false {
            continue;
        }
        let page = std::fs::read_to_string(source(&format!("book/src/disciplines/{name}.md"))).unwrap();
        for part in ["\n## Parameters\n", "\n## Validation\n"] {
            assert!(page.contains(part), "{name}: no {part:?}");
        }
        let validation = page.split("\n## Validation\n").nth(1).unwrap();
        let tests = validation.split('`').filter(|word| word.matches('_').count() >= 2).count();
        assert!(tests >= 1, "{name}: its validation names no test");
    }
}

/// The tests that the book names are there.
#[test]
fn tests_named_in_the_book_exist() {
    let mut sources = String::new();
    let mut folders = vec![PathBuf::from(source("crates"))];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                sources.push_str(&std::fs::read_to_string(path).unwrap());
            }
        }
    }
    let mut pages = files("book/src/disciplines", "md");
    pages.push(source("book/src/disciplines.md").into());
    let is_name = |w: &&str| {
        w.matches('_').count() >= 2
            && w.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
    };
    for page in pages {
        let text = std::fs::read_to_string(&page).unwrap();
        let text = text.split("\n## Validation\n").last().unwrap();
        for name in text.split('`').skip(1).step_by(2).filter(is_name) {
            assert!(sources.contains(&format!("fn {name}(")), "{}: no test `{name}`", page.display());
        }
    }
}

/// So are the experiments.
#[test]
fn experiments_named_in_the_book_exist() {
    let list = weir(&["experiment", "list", "-j"]).ok().json();
    let ids: Vec<&str> =
        list["experiments"].as_array().unwrap().iter().map(|e| e["id"].as_str().unwrap()).collect();
    let families: std::collections::BTreeSet<&str> =
        ids.iter().map(|id| id.split('-').next().unwrap()).collect();
    let mut named = 0;
    for page in files("book/src/disciplines", "md") {
        let text = std::fs::read_to_string(&page).unwrap();
        let text = text.split("\n## Validation\n").last().unwrap();
        for word in text.split('`').skip(1).step_by(2).filter(|word| word.contains('-')) {
            if families.contains(word.split('-').next().unwrap()) || word.ends_with("-ns2") {
                named += 1;
                assert!(ids.contains(&word), "{}: no experiment `{word}`", page.display());
            }
        }
    }
    assert!(named > 10, "{named}");
}

/// Every key of an experiment's file is on its page, and no other is read.
#[test]
fn an_experiments_keys_are_on_their_page() {
    let page = std::fs::read_to_string(source("book/src/experiments.md")).unwrap();
    let manifest = std::fs::read_to_string(source("crates/weir/src/experiment/manifest.rs")).unwrap();
    let mut keys = 0;
    for line in manifest.lines().filter(|line| line.starts_with("    pub ") && line.ends_with(',')) {
        let key = line.trim_start_matches("    pub ").split(':').next().unwrap();
        keys += 1;
        let shown = ["`", "[["].iter().any(|open| page.contains(&format!("{open}{key}")));
        assert!(shown, "experiments.md does not mention `{key}`");
    }
    assert!(keys > 15, "{keys}");
}

/// A key in brackets, such as `[HFSC97 section 4]`, stands in the bibliography.
#[test]
fn keys_in_the_code_are_in_the_bibliography() {
    let bibliography = std::fs::read_to_string(source("book/src/bibliography.md")).unwrap();
    let mut keys = std::collections::BTreeSet::new();
    let mut folders = vec![PathBuf::from(source("crates/weir-core/src"))];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let comments = text.lines().filter_map(|line| line.split_once("//").map(|(_, after)| after));
            for bracket in comments.flat_map(|comment| comment.split('[').skip(1)) {
                let key = bracket.split([' ', ']', ',']).next().unwrap();
                let letters = key.trim_end_matches(|c: char| c.is_ascii_digit());
                let is_key = letters.len() >= 3 && letters.bytes().all(|b| b.is_ascii_uppercase());
                if is_key && (key.len() == letters.len() + 2 || key == "QOSBOX") {
                    assert!(bibliography.contains(&format!("**{key}**")), "{}: no [{key}]", path.display());
                    keys.insert(key.to_owned());
                }
            }
        }
    }
    assert!(keys.len() >= 5, "{keys:?}");
}

/// Configurations that the pages show can be copied.
#[test]
fn configurations_in_the_book_are_usable() {
    let folder = Folder::new();
    let mut shown = 0;
    let mut pages = files("book/src", "md");
    // The tests of the crate that they are about try what these two show.
    pages.retain(|page| !["tutorial", "edf-and-choke"].contains(&stem(page)));
    pages.extend(files("book/src/disciplines", "md"));
    pages.push(PathBuf::from(source("README.md")));
    for page in pages {
        let text = std::fs::read_to_string(&page).unwrap();
        for block in text.split("```").skip(1).step_by(2) {
            let conf = block.split_once('\n').map_or("", |(_language, conf)| conf);
            let first = conf.lines().find(|line| !line.starts_with('#')).unwrap_or("");
            let grammar = first.starts_with("interface IF") || first.starts_with("broker NAME");
            if ["interface ", "broker "].iter().any(|word| first.starts_with(word)) && !grammar {
                shown += 1;
                let run = weir(&["check", &folder.write("shown.altq", conf)]);
                assert_eq!(run.code, 0, "{}: {conf}\n{}", page.display(), run.out);
                assert!(!run.out.contains("warning"), "{}: {conf}\n{}", page.display(), run.out);
            }
        }
    }
    assert!(shown >= 27, "{shown}");
}

/// What the page of replay shows, typed as it stands.
#[test]
fn the_replay_of_the_book_prints_what_its_page_says() {
    let page = std::fs::read_to_string(source("book/src/replay.md")).unwrap();
    let blocks: Vec<&str> =
        page.split("```").skip(1).step_by(2).filter_map(|b| b.split_once('\n')).map(|(_, b)| b).collect();
    let [conf, trace, session] = blocks[..] else { panic!("{blocks:?}") };
    let folder = Folder::new();
    let (conf, trace) = (folder.write("two.altq", conf), folder.write("three.csv", trace));
    let (command, expected) = session.split_once('\n').unwrap();
    assert_eq!(command, "$ weir replay two.altq em0 three.csv");
    assert_eq!(weir(&["replay", &conf, "em0", &trace]).ok().out, expected);
}

/// What the headings of a page are called in links, as mdBook makes it.
fn anchors(page: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(page).unwrap();
    let outside_code = text.split("\n```").step_by(2).flat_map(str::lines);
    let headings = outside_code.filter_map(|line| line.strip_prefix('#'));
    let name = |heading: &str| -> String {
        let kept = |c: char| match c {
            c if c.is_alphanumeric() || c == '_' || c == '-' => Some(c.to_ascii_lowercase()),
            c if c.is_whitespace() => Some('-'),
            _ => None,
        };
        heading.trim_start_matches('#').trim().chars().filter_map(kept).collect()
    };
    headings.map(name).collect()
}

#[test]
fn links_lead_to_files() {
    let mut pages = files("book/src", "md");
    pages.extend(files("book/src/disciplines", "md"));
    let top = ["README", "ARCHITECTURE", "CONTRIBUTING", "SECURITY", "CHANGELOG"];
    pages.extend(top.map(|name| PathBuf::from(source(&format!("{name}.md")))));
    let (mut links, mut anchored) = (0, 0);
    for page in pages {
        let text = std::fs::read_to_string(&page).unwrap();
        let links_of_page = text.split("](").skip(1).map(|rest| rest.split(')').next().unwrap());
        let included = text.split("{{#include ").skip(1).map(|rest| rest.split('}').next().unwrap());
        for target in links_of_page.chain(included) {
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            if target.contains("://") || target.contains(char::is_whitespace) {
                continue;
            }
            links += 1;
            let to = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            assert!(to.exists(), "{}: {target}", page.display());
            if !heading.is_empty() {
                anchored += 1;
                assert!(anchors(&to).contains(&heading.to_string()), "{}: {target}", page.display());
            }
        }
    }
    assert!(links > 100 && anchored > 20, "{links} {anchored}");
}

/// Every command of the language is on its page, and every way to write an interface's own options.
#[test]
fn the_language_is_on_its_page() {
    let page = std::fs::read_to_string(source("book/src/altq-conf.md")).unwrap();
    for word in [
        "interface IF",
        "class DISCIPLINE",
        "filter  IF",
        "filter6 IF",
        "conditioner IF",
        "red TH_MIN",
        "rio LO_MIN",
        "bandwidth",
        "tbrsize",
        "capacity",
        "overhead",
        "attach bridge",
        "attach nfqueue",
        "netmask",
        "ruleno",
        "tosmask",
        "tclassmask",
        "flowlabel",
        "dscp",
        "gpi",
        "dontwarn",
        "tbmeter",
        "srtcm",
        "trtcm4115",
        "tswtcm",
        "coloraware",
    ] {
        assert!(page.contains(word), "altq-conf.md does not mention {word}");
    }
    let all = weir(&["disciplines", "-j"]).ok().json();
    for discipline in all["disciplines"].as_array().unwrap().iter().filter(|d| d["built"] == true) {
        let link = format!("](disciplines/{}.md#parameters)", discipline["name"].as_str().unwrap());
        assert!(page.contains(&link), "altq-conf.md has no {link}");
    }
}
