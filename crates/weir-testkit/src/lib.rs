//! Dev only: conformance suite, exact reference models, generators.
//!
//! `conformance` holds a discipline against the laws of `weir_core::queue`'s contract by random
//! operations. `generate` makes configurations out of nothing but a registry entry, so a new
//! discipline is tested by being registered. `hostile` has lawful but nasty disciplines to
//! stand below or above the one that is tested. `model` computes exactly what theory says.
//! `spread` runs the parts of a tree that is cut for several cores. `values_of` reads statistics.

pub mod conformance;
pub mod generate;
pub mod hostile;
pub mod model;
pub mod spread;

use weir_core::queue::{Discipline, Visit};

/// The statistic of that name of every class of `discipline`, in its order.
pub fn values_of(discipline: &dyn Discipline, name: &str) -> Vec<i64> {
    struct Read<'a>(&'a str, Vec<i64>);
    impl Visit for Read<'_> {
        fn class(&mut self, _: &str, _: u32) {}
        fn value(&mut self, name: &'static str, _: &'static str, value: i64) {
            if name == self.0 {
                self.1.push(value);
            }
        }
    }
    let mut read = Read(name, Vec::new());
    discipline.visit_stats(&mut read);
    read.1
}
