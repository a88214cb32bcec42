//! Who may depend on whom.

use super::{File, Violation};

/// The walk of a packet: a crate may depend only on crates above it.
const WALK: [&str; 14] = [
    "weir-core",
    "weir-edge",
    "weir-bench",
    "weir-text",
    "weir-conf",
    "weir-report",
    "weir-scenario",
    "weir-sim",
    "weir-sys",
    "weir-io",
    "weir-engine",
    "weir-lab",
    "weir-broker",
    "weir",
];
/// Beside the walk: nobody depends on them but as dev-dependencies.
const DEV_ONLY: [&str; 2] = ["weir-testkit", "weir-seed"];
/// Tests alone, of everything: it stands above all, and nobody depends on it.
const FUZZ: &str = "weir-fuzz";

/// The names in the sections of a Cargo.toml that make edges, with their lines.
fn dependencies(text: &str) -> Vec<(usize, String)> {
    let makes_edges = |s: &str| {
        let last = s.rsplit('.').next().unwrap_or(s);
        matches!(last, "dependencies" | "build-dependencies")
    };
    let mut found = Vec::new();
    let mut inside = false;
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or("").trim();
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_matches(['[', ']']);
            inside = makes_edges(section);
            // `[dependencies.name]`
            if let Some((above, name)) = section.rsplit_once('.')
                && makes_edges(above)
            {
                found.push((number + 1, name.trim_matches('"').into()));
            }
        } else if inside && let Some((key, _)) = line.split_once('=') {
            let name = key.split('.').next().unwrap_or(key).trim().trim_matches('"');
            found.push((number + 1, name.into()));
        }
    }
    found
}

fn crate_of(path: &str) -> Option<&str> {
    path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml")
}

pub fn dependencies_point_up(files: &[File]) -> Vec<Violation> {
    let mut found = Vec::new();
    for file in files {
        let Some(name) = crate_of(&file.path) else { continue };
        let place = WALK.iter().position(|w| *w == name);
        for (line, on) in dependencies(&file.text).into_iter().filter(|(_, on)| on.starts_with("weir")) {
            let above = WALK.iter().position(|w| *w == on);
            let fine = match (place, above) {
                (Some(place), Some(above)) => above < place,
                (None, _) if name == FUZZ => true,
                // A crate beside the walk, such as the testkit, builds on the core.
                (None, Some(above)) => above == 0,
                (_, None) => false,
            };
            if !fine {
                let what = if DEV_ONLY.contains(&on.as_str()) {
                    format!("{on} is for dev-dependencies only")
                } else {
                    format!("{name} must not depend on {on}: it stands above only {}", WALK.join(", "))
                };
                found.push(Violation::new(file, line, what));
            }
        }
    }
    found
}

pub fn core_depends_on_nothing(files: &[File]) -> Vec<Violation> {
    let core = files.iter().filter(|f| crate_of(&f.path) == Some(WALK[0]));
    core.flat_map(|file| {
        dependencies(&file.text).into_iter().map(|(line, on)| {
            Violation::new(file, line, format!("weir-core depends on nothing, not on {on}"))
        })
    })
    .collect()
}

/// A store, a runtime and TLS are the broker's: what shapes packets or reads a file must not need them.
pub fn the_broker_alone_serves(files: &[File]) -> Vec<Violation> {
    const SERVES: [&str; 8] =
        ["tokio", "axum", "hyper", "rustls", "tokio-rustls", "redb", "ring", "etcd-client"];
    let others = files.iter().filter(|f| crate_of(&f.path).is_some_and(|name| name != "weir-broker"));
    others
        .flat_map(|file| {
            let serving =
                dependencies(&file.text).into_iter().filter(|(_, on)| SERVES.contains(&on.as_str()));
            serving.map(|(line, on)| Violation::new(file, line, format!("{on} is for weir-broker alone")))
        })
        .collect()
}

pub fn packages_come_from_the_public_registry(files: &[File]) -> Vec<Violation> {
    const PUBLIC: &str = "source = \"registry+https://github.com/rust-lang/crates.io-index\"";
    let mut found = Vec::new();
    for file in files {
        for (number, line) in file.text.lines().enumerate() {
            let elsewhere = match file.path.as_str() {
                "Cargo.lock" => line.starts_with("source = ") && line != PUBLIC,
                ".cargo/config.toml" => {
                    line.contains("[source") || line.contains("[registr") || line.contains("replace-with")
                }
                _ => false,
            };
            if elsewhere {
                let what = "packages come from crates.io; a mirror belongs in the user's own configuration";
                found.push(Violation::new(file, number + 1, what));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::holds_for;

    #[test]
    fn edges_point_up() {
        holds_for(
            dependencies_point_up,
            &[
                ("crates/weir-sim/Cargo.toml", "[dependencies]\nweir-core.workspace = true\nserde = \"1\""),
                ("crates/weir-core/Cargo.toml", "[dev-dependencies]\nweir-seed.workspace = true"),
                ("crates/weir-sim/Cargo.toml", "[dev-dependencies]\nweir-testkit.workspace = true"),
                ("crates/weir-testkit/Cargo.toml", "[dependencies]\nweir-core.workspace = true"),
            ],
            &[
                ("crates/weir-core/Cargo.toml", "[dependencies]\nweir-sim.workspace = true"),
                ("crates/weir-sim/Cargo.toml", "[dependencies]\nweir-sim.workspace = true"),
                ("crates/weir-conf/Cargo.toml", "[dependencies.weir-io]\nworkspace = true"),
                (
                    "crates/weir-conf/Cargo.toml",
                    "[target.'cfg(unix)'.dependencies]\nweir-io = { path = \"x\" }",
                ),
                ("crates/weir-lab/Cargo.toml", "[build-dependencies]\nweir.workspace = true"),
                ("crates/weir/Cargo.toml", "[dependencies]\nweir-testkit.workspace = true"),
                ("crates/weir-core/Cargo.toml", "[dependencies]\nweir-seed.workspace = true"),
                ("crates/weir-testkit/Cargo.toml", "[dependencies]\nweir-sim.workspace = true"),
            ],
        );
    }

    #[test]
    fn the_core_stands_alone() {
        holds_for(
            core_depends_on_nothing,
            &[("crates/weir-core/Cargo.toml", "[dependencies]\n# none\n[dev-dependencies]\nx = \"1\"")],
            &[("crates/weir-core/Cargo.toml", "[dependencies]\nx = \"1\"")],
        );
    }

    #[test]
    fn what_serves_stays_in_the_broker() {
        holds_for(
            the_broker_alone_serves,
            &[
                ("crates/weir-broker/Cargo.toml", "[dependencies]\ntokio = \"1\"\nredb = \"4\""),
                ("crates/weir/Cargo.toml", "[dependencies]\nweir-broker.workspace = true"),
            ],
            &[
                ("crates/weir/Cargo.toml", "[dependencies]\ntokio = \"1\""),
                ("crates/weir-engine/Cargo.toml", "[dependencies]\ntokio-rustls = { version = \"0.26\" }"),
            ],
        );
    }

    #[test]
    fn packages_are_public() {
        holds_for(
            packages_come_from_the_public_registry,
            &[("Cargo.lock", "source = \"registry+https://github.com/rust-lang/crates.io-index\"")],
            &[
                ("Cargo.lock", "source = \"registry+https://mirror.example/index\""),
                (".cargo/config.toml", "[source.crates-io]"),
            ],
        );
    }
}
