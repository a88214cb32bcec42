//! Results of scenarios as tables that a person can read: a change of behaviour shows up as a
//! diff under `snapshots/`, to be reviewed with its reason. `WEIR_BLESS=1` writes them anew.

use std::path::{Path, PathBuf};
use std::process::Command;

const SCENARIOS: [&str; 8] = [
    "examples/two-agencies.toml",
    "examples/two-bit.toml",
    "experiments/altq98/fig11.toml",
    "experiments/altq98/fig14-top-level.toml",
    "experiments/ds2/ring128.toml",
    "experiments/oracle/aqm-fqcodel.toml",
    "experiments/oracle/aqm-pie.toml",
    "experiments/oracle/cbq-formal.toml",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn scenarios_give_what_was_reviewed() {
    let mut changed = Vec::new();
    for scenario in SCENARIOS {
        let output = Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(["sim", scenario])
            .current_dir(root())
            .output()
            .expect("the command runs");
        assert!(output.status.code() != Some(2), "{scenario}: {}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).expect("tables are text");
        let found: String = text.lines().map(|line| format!("{}\n", line.trim_end())).collect();
        let name = scenario.trim_end_matches(".toml").replace('/', "-");
        let path = root().join("snapshots").join(format!("{name}.txt"));
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        if kept == found {
            continue;
        }
        if std::env::var_os("WEIR_BLESS").is_some() {
            std::fs::create_dir_all(root().join("snapshots")).expect("the source tree can be written");
            std::fs::write(&path, &found).expect("the source tree can be written");
            continue;
        }
        let first = kept.lines().zip(found.lines()).find(|(a, b)| a != b);
        changed.push(format!("{name}: kept and found differ, first at\n  {first:?}"));
    }
    assert!(
        changed.is_empty(),
        "{}\nif that is meant: WEIR_BLESS=1 cargo test -p weir --test snapshots, and say why in the commit",
        changed.join("\n")
    );
}
