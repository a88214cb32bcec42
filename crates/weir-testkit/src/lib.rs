//! Dev only: conformance suite, exact reference models, generators.
//!
//! `conformance` holds a discipline against the laws of `weir_core::queue`'s contract by random
//! operations. `generate` makes configurations out of nothing but a registry entry, so a new
//! discipline is tested by being registered. `hostile` has lawful but nasty disciplines to
//! stand below or above the one that is tested. `model` computes exactly what theory says.

pub mod conformance;
pub mod generate;
pub mod hostile;
pub mod model;
