//! Files in the habit of ALTQ's users: each loads, and reads, prints and reads again as the same.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use weir_conf::{Plan, judge, print, read};
use weir_core::sched::Registry;

fn load(path: &Path) -> (Plan, Vec<String>) {
    let text = std::fs::read_to_string(path).unwrap();
    let name = path.file_name().unwrap().to_str().unwrap();
    let outcome = read(name, &text, &Registry::builtin());
    let said: Vec<String> = outcome.diagnostics.iter().map(ToString::to_string).collect();
    (outcome.plan.unwrap_or_else(|| panic!("{}", said.join("\n\n"))), said)
}

fn files() -> Vec<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut open =
        vec![here.join("tests/valid"), here.join("../../examples"), here.join("../../experiments")];
    let mut files = Vec::new();
    while let Some(folder) = open.pop() {
        for path in std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()) {
            match path.extension() {
                Some(e) if e == "altq" => files.push(path),
                None if path.is_dir() => open.push(path),
                _ => {}
            }
        }
    }
    files.sort();
    assert!(files.len() >= 10, "the corpus is where it was");
    files
}

/// J36: files of every discipline, in ALTQ's words.
#[test]
fn every_sample_reads_prints_and_reads_again_as_the_same() {
    for file in files() {
        let (plan, _) = load(&file);
        let text = print(&plan);
        let again = read("printed", &text, &Registry::builtin());
        let said: Vec<String> = again.diagnostics.iter().map(ToString::to_string).collect();
        assert_eq!(again.plan.as_ref(), Some(&plan), "{}:\n{text}\n{}", file.display(), said.join("\n"));
    }
}

#[test]
fn j03_qosbox_figure_1_loads_as_printed() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/valid/qosbox-fig1.altq");
    let (plan, said) = load(&file);
    let interface = plan.interface("").unwrap();
    assert_eq!(interface.rate().as_bps(), 100_000_000);
    let queue = interface.discipline.as_ref().unwrap();
    assert_eq!((queue.name.as_str(), queue.options.params().count("qlimit")), ("jobs", Some(200)));
    let high = interface.class("high_class").unwrap().options.params();
    assert_eq!(high.time("adc").unwrap().as_nanos(), 2_000_000);
    assert_eq!(high.rate("arc").unwrap().as_bps(), 10_000_000);
    assert_eq!((high.real("rdc"), high.real("rlc")), (None, None), "-1 is none");
    assert!(interface.ecn_is_off(), "tos 1 to 4 sit on the ECN bits");
    let ecn = said.iter().filter(|s| s.contains("asks for the ECN bits")).count();
    assert_eq!((ecn, said.len()), (4, 4), "{said:#?}");
}

#[test]
fn every_sample_is_built_or_waits_for_a_discipline() {
    let registry = Registry::builtin();
    let mut built = 0;
    for file in files() {
        let (plan, _) = load(&file);
        let errors: Vec<_> = judge(&plan, &registry).into_iter().filter(|d| d.is_error()).collect();
        assert!(errors.is_empty(), "{}", errors[0]);
        for interface in &plan.interfaces {
            let view = plan.interface(&interface.name).unwrap();
            match view.build(&registry, view.link(1514)) {
                Ok(ready) => {
                    built += 1;
                    assert!(ready.warnings.is_empty() && !ready.tree.leaves.is_empty());
                }
                Err(error) => assert!(error.message.ends_with("cannot run yet"), "{error}"),
            }
        }
    }
    assert!(built >= 10, "{built} interfaces are built");
}
