//! What a discipline says of its own configuration: its errors and warnings, the classes and
//! filters that it adds, and what it guarantees.
//!
//! The reader of a configuration knows no discipline by name. It hands each one its `Node` and
//! shows what comes back at the line and column that it is about.

use super::node::Node;
use crate::packet::Family;
use crate::queue::{Curve, Link, Params};
use crate::units::{Duration, Fraction, Rate};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// Says what is wrong in a node, and what may not be as its writer thinks. The node is as the
/// file gives it: no `Lower` has changed it. A class whose queue is a discipline names it in
/// `queue`, without the classes of that one.
pub type Check = fn(&Node, &Setting) -> Vec<Finding>;

/// Changes a node before it is built, and says which filters its classes bring. The given classes
/// keep their places and queues; new ones stand behind them. It must bear any node, because
/// `Check` is asked about one that it refuses too.
pub type Lower = fn(&mut Node, &Setting) -> Vec<BroughtFilter>;

/// Says what the classes of a node are promised on a link.
pub type Guarantees = fn(&Node, &Link) -> Vec<Guarantee>;

/// Where a discipline stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setting {
    /// The rate of the interface.
    pub rate: Rate,
    /// True for the discipline of an interface, false for the queue of a class.
    pub outermost: bool,
}

/// What is wrong where, and how to mend it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// True where the configuration is refused; false for a warning: it is lawful, and may not be
    /// as its writer thinks.
    pub is_error: bool,
    /// The index of the class in the node; `None` for the discipline itself.
    pub class: Option<usize>,
    /// The keyword that it is about; empty for the class or the discipline as a whole.
    pub field: &'static str,
    /// What was found, as a person would recognise it.
    pub found: String,
    /// What to write instead.
    pub mend: String,
}

impl Finding {
    /// An error about a class, or the discipline itself.
    pub fn error(class: Option<usize>, field: &'static str, found: String, mend: impl Into<String>) -> Self {
        Finding { is_error: true, class, field, found, mend: mend.into() }
    }
    /// The same as a warning.
    pub fn warning(
        class: Option<usize>,
        field: &'static str,
        found: String,
        mend: impl Into<String>,
    ) -> Self {
        Finding { is_error: false, class, field, found, mend: mend.into() }
    }
}

/// A filter that a class brings by itself: every packet of one protocol.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BroughtFilter {
    /// The name of the class that the packets go to.
    pub class: String,
    /// The index of the class of the file in whose line it stands: later filters come first.
    pub beside: usize,
    /// IPv4 or IPv6.
    pub family: Family,
    /// The protocol above it, as IANA numbers them.
    pub protocol: u8,
}

/// What a real-time curve comes to for people: within what time a burst is out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Guarantee {
    /// The class.
    pub class: String,
    /// Its real-time curve.
    pub curve: Curve,
    /// The burst: the one that the class names, or one largest packet.
    pub burst_bytes: u64,
    /// The longest that the last byte of the burst takes, when the burst comes to an empty queue;
    /// `None` if the curve never serves it.
    pub delay: Option<Duration>,
}

impl fmt::Display for Guarantee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Curve { m1, d, m2 } = self.curve;
        write!(f, "class {}: [rt {m1} {d} {m2}] ", self.class)?;
        match self.delay {
            Some(delay) => write!(f, "has a burst of {} bytes out within {delay}", self.burst_bytes),
            None => write!(f, "never has a burst of {} bytes out", self.burst_bytes),
        }
    }
}

/// The first of `names` that is given; empty for none.
pub(crate) fn given(params: &Params, names: &[&'static str]) -> &'static str {
    names.iter().copied().find(|name| params.has(name)).unwrap_or("")
}

/// For each class of a node, the classes right below it.
pub(super) fn below(node: &Node) -> Vec<Vec<usize>> {
    let mut below = alloc::vec![Vec::new(); node.classes.len()];
    for (index, class) in node.classes.iter().enumerate() {
        if let Some(of) = class.parent.and_then(|parent| below.get_mut(parent)) {
            of.push(index);
        }
    }
    below
}

/// A part of a rate, to the nearest bit.
pub(super) fn part_of(part: Fraction, rate: Rate) -> Rate {
    Rate::from_bps(part.of(rate.as_bps()))
}

/// Disciplines whose classes are told apart by their priority have one class of each. With
/// `said`, every class must say its own.
pub(super) fn one_class_of_each_priority(node: &Node, said: bool) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut taken: BTreeMap<u64, &str> = BTreeMap::new();
    for (index, class) in node.classes.iter().enumerate() {
        let priority = class.params.count("priority").unwrap_or(0);
        if said && !class.params.has("priority") {
            let free = (0..16).find(|p| !taken.contains_key(p)).unwrap_or(15);
            let message = format!("class `{}` has no `priority`", class.name);
            let help = format!("ALTQ takes whatever its memory holds then: write `priority {free}`");
            found.push(Finding::error(Some(index), "", message, help));
            continue;
        }
        if let Some(other) = taken.get(&priority) {
            let message = format!("class `{}` has priority {priority}, as class `{other}` has", class.name);
            let help = format!("each {} class has its own", node.discipline);
            found.push(Finding::error(Some(index), "priority", message, help));
            continue;
        }
        taken.insert(priority, &class.name);
    }
    found
}
