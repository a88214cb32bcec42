//! The tutorial's last section as it is printed there: its configuration, its packets, its lines.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

use std::fmt::Write;
use weir_core::packet::{FrameRef, Meta};
use weir_core::port::{Event, EventKind, Port, PortConfig, Refill, WireConfig};
use weir_core::queue::Link;
use weir_core::sched::Registry;
use weir_core::units::{Instant, Rate};

const PAGE: &str = include_str!("../../../book/src/tutorial.md");

/// The text of the page between two others.
fn between<'a>(from: &str, to: &str) -> &'a str {
    let (_, rest) = PAGE.split_once(from).unwrap();
    rest.split_once(to).unwrap().0
}

/// What `weir replay` prints: one packet at a time on a wire, arrivals before completions.
fn replay(conf: &str, trace: &str) -> String {
    let mut registry = Registry::builtin();
    registry.register(own_discipline::ENTRY);
    let plan = weir_conf::read("lqf.altq", conf, &registry).into_result().unwrap();
    let mut lines = trace.lines();
    let rate = lines.next().unwrap().strip_prefix("rate ").unwrap().parse().unwrap();
    let link = Link::new(Rate::from_bps(rate), 0, 1514);
    let built = plan.interface("em0").unwrap().build(&registry, link).unwrap();
    let leaves: Vec<String> = built.tree.leaves.iter().map(|leaf| leaf.name.clone()).collect();
    let wire = WireConfig::Link { ring: 1, refill: Refill::Packet };
    let mut port = Port::new(PortConfig::new(link, wire), built.port_plan(link));
    let mut out = String::new();
    let mut print = |event: Event<'_>| {
        if let Event { at, meta, kind: EventKind::Sent } = event {
            let class = &leaves[meta.leaf as usize];
            writeln!(out, "D,{},{class},{},{}", at.as_nanos(), meta.len, meta.frame.0).unwrap();
        }
    };
    for (index, line) in lines.enumerate() {
        let fields: Vec<&str> = line.split(',').collect();
        let at = Instant::from_nanos(fields[0].parse().unwrap());
        let mut meta = Meta::new(fields[2].parse().unwrap(), at, FrameRef(index as u32));
        meta.leaf = leaves.iter().position(|name| name == fields[1]).unwrap() as u32;
        port.offer(at, meta, &mut print);
    }
    while port.next_wake_up() != Instant::NEVER {
        port.advance(port.next_wake_up(), &mut print);
    }
    out
}

/// The lines of a section of a Cargo.toml, without comments, in order.
fn section(manifest: &str, head: &str) -> Vec<String> {
    let lines = manifest.lines().skip_while(|line| *line != head).skip(1);
    let own = lines.take_while(|line| !line.starts_with('[')).filter(|line| !line.is_empty());
    let mut own: Vec<String> = own.filter(|line| !line.starts_with('#')).map(String::from).collect();
    own.sort();
    own
}

/// Who copies the Cargo.toml of the page has what this crate has, which compiles: the same packages,
/// by their paths, and the workspace's profile.
#[test]
fn the_tutorials_manifest_is_this_crates() {
    let workspace = include_str!("../../../Cargo.toml");
    let own = include_str!("../Cargo.toml");
    let page = between("```toml\n", "```");
    let outside = |line: &String| match line.split_once(".workspace") {
        Some((name, _)) if name.starts_with("weir") => {
            format!("{name} = {{ path = \"../weir/crates/{name}\" }}")
        }
        Some((name, _)) => {
            let shared = section(workspace, "[workspace.dependencies]");
            shared.into_iter().find(|line| line.starts_with(&format!("{name} = "))).unwrap()
        }
        None => line.clone(),
    };
    for head in ["[dependencies]", "[dev-dependencies]"] {
        let mut expected: Vec<String> = section(own, head).iter().map(outside).collect();
        expected.sort();
        assert!(!expected.is_empty());
        assert_eq!(section(page, head), expected, "{head}");
    }
    for profile in ["[profile.dev]", "[profile.dev.package.\"*\"]"] {
        assert!(!section(page, profile).is_empty());
        assert_eq!(section(page, profile), section(workspace, profile));
    }
}

#[test]
fn the_tutorials_replay_is_what_it_prints() {
    let conf = between("## 7. See it", "\n```\n\n```\n$ printf").rsplit("```\n").next().unwrap();
    let trace = between("$ printf '", "' >").replace("\\n", "\n");
    let expected = between("em0 four.csv\n", "```");
    assert_eq!(conf.lines().count(), 3, "{conf}");
    assert_eq!(replay(conf, &trace), expected);
    // Reversed: with more waiting in a, a goes first.
    let other = trace.replace("0,b,600", "0,b,60").replace("0,a,200", "0,a,900");
    assert_ne!(replay(conf, &other), expected);
}
