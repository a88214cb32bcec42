//! What an AQM is called, what it takes, and how it is built: what its file hands to the registry.

use super::contract::Aqm;
use crate::queue::{Alias, Link, ParamError, ParamSpec, Params};
use crate::sched::Check;
use crate::units::Rate;
use alloc::boxed::Box;

/// A built AQM, or why its parameters make none.
pub type Built = Result<Box<dyn Aqm>, ParamError>;

/// The queue that an AQM is built for.
#[derive(Clone, Copy, Debug)]
pub struct QueueConfig<'a> {
    /// Its class; empty where the queue is a discipline by itself.
    pub class: &'a str,
    /// What the configuration says.
    pub params: &'a Params,
    /// Rate that the queue may expect, for AQMs that think in packet times.
    pub rate: Rate,
    /// Most packets that it takes.
    pub limit: u32,
    /// The link below the port.
    pub link: &'a Link,
    /// True for the queue of a class, false for a discipline by itself.
    pub in_class: bool,
}

/// One AQM in the registry.
///
/// A class asks for it by its name, where `class_params` declares that as a flag, or by a word of
/// `asked_by`. `altq.conf` names it as a discipline where `is_discipline`.
#[derive(Clone, Copy)]
pub struct AqmEntry {
    /// The word in altq.conf.
    pub name: &'static str,
    /// Other words for the discipline.
    pub aliases: &'static [Alias],
    /// The text of its source file, whose head is its manual page.
    pub source: &'static str,
    /// Its parameters as a discipline, in groups (`Scope::Discipline`).
    pub params: &'static [&'static [ParamSpec]],
    /// What a class may say about it, in groups (`Scope::Class`): the flag that asks for it, and
    /// words that tune it.
    pub class_params: &'static [&'static [ParamSpec]],
    /// Words of `class_params` that ask for it where no AQM is named.
    pub asked_by: &'static [&'static str],
    /// Length of the queue in packets where `qlimit` says nothing.
    pub usual_limit: u32,
    /// True if it can be the discipline of an interface, or of a class that names it so.
    pub is_discipline: bool,
    /// How to build it.
    pub build: fn(&QueueConfig<'_>) -> Built,
    /// What it says against its configuration as a discipline; see `Entry::check`.
    pub check: Option<Check>,
}

impl AqmEntry {
    /// What most entries say: no other names, nothing on classes, 60 packets, a discipline too.
    pub const PLAIN: AqmEntry = AqmEntry {
        name: "",
        aliases: &[],
        source: "",
        params: &[],
        class_params: &[],
        asked_by: &[],
        usual_limit: 60,
        is_discipline: true,
        build: |queue| Err(ParamError::new(queue.class, "aqm", "an entry without `build`", "one with it")),
        check: None,
    };
    /// The word of a class of that name.
    pub fn class_param(&self, name: &str) -> Option<&'static ParamSpec> {
        self.class_params().find(|p| p.name == name)
    }
    /// All words of a class.
    pub fn class_params(&self) -> impl Iterator<Item = &'static ParamSpec> + use<> {
        self.class_params.iter().flat_map(|group| group.iter())
    }
    /// True if a class can ask for it by its name.
    pub fn is_for_classes(&self) -> bool {
        self.class_param(self.name).is_some()
    }
    /// True for a word of `class_params` that asks for it by itself; the others only tune it.
    pub fn asks(&self, word: &str) -> bool {
        word == self.name || self.asked_by.contains(&word)
    }
}
