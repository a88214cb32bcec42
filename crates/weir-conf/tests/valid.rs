//! Files in the habit of ALTQ's users: each loads, and reads, prints and reads again as the same.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use weir_conf::{Plan, print, read};
use weir_core::sched::Registry;

fn load(path: &Path) -> (Plan, Vec<String>) {
    let text = std::fs::read_to_string(path).unwrap();
    let name = path.file_name().unwrap().to_str().unwrap();
    let outcome = read(name, &text, &Registry::builtin());
    let said: Vec<String> = outcome.diagnostics.iter().map(ToString::to_string).collect();
    (outcome.plan.unwrap_or_else(|| panic!("{}", said.join("\n\n"))), said)
}

fn files() -> Vec<std::path::PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = [here.join("tests/valid"), here.join("../../examples")];
    let mut files: Vec<_> = folders
        .iter()
        .flat_map(|f| std::fs::read_dir(f).unwrap().map(|e| e.unwrap().path()))
        .filter(|p| p.extension().is_some_and(|e| e == "altq"))
        .collect();
    files.sort();
    assert!(files.len() >= 9, "the corpus is where it was");
    files
}

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
