//! A discipline as a configuration asks for it.

use crate::queue::Params;
use alloc::string::String;
use alloc::vec::Vec;

/// A discipline in a configuration, with its classes.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Node {
    /// Its name in the registry.
    pub discipline: String,
    /// Its parameters (`Scope::Discipline`).
    pub params: Params,
    /// Its classes, in the order of the file; parents before children.
    pub classes: Vec<ClassConfig>,
}

/// A class in a configuration.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ClassConfig {
    /// Its name, unique in the interface.
    pub name: String,
    /// Index of its parent in the same node's `classes`; `None` at the top.
    pub parent: Option<usize>,
    /// Its parameters (`Scope::Class`).
    pub params: Params,
    /// What its queue is, where that is a discipline of its own.
    pub queue: Option<Node>,
}
