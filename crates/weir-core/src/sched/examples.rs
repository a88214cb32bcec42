//! The book's EDF and CHOKe, compiled inside Weir, byte for byte the files of the example crate.

#[path = "../../../../examples/own-discipline/src/choke.rs"]
mod choke;
#[path = "../../../../examples/own-discipline/src/edf.rs"]
mod edf;

use super::Registry;
use super::testing::{Bench, class, node};
use crate::queue::Value;

#[test]
fn the_books_files_run_inside_weir_as_they_are() {
    let mut registry = Registry::builtin();
    registry.register(edf::ENTRY);
    registry.register_aqm(choke::ENTRY);
    let mut tree = node("edf", &[]);
    tree.classes.push(class("a", &[("default", Value::Flag), ("choke", Value::Flag)]));
    let mut bench = Bench::of(&registry, &tree, crate::units::Rate::from_mbps(10), 1);
    bench.offer(100, |_| {});
    assert_eq!(bench.serve().map(|packet| packet.len), Some(100));
    bench.check();
}
