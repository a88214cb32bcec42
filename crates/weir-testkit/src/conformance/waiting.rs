//! What a configuration lets wait, by its entries and parameters: the other half of law 2.
//!
//! A class may be held for ever while it, or one above it, has no rate: one of its parameters that
//! are rates is 0, or none is set. Everything else leaves once arrivals stop. A change of such a
//! parameter counts from then on, so a positive rate ends what a rate of 0 excused.

use crate::hostile;
use std::collections::BTreeMap;
use weir_core::queue::{Cause, Kind, ParamSpec, Params, Scope, Value, Visit};
use weir_core::sched::{Entry, LeafInfo, Node, Registry};

/// What is known of one leaf.
struct Place {
    name: String,
    /// The classes on the way from the root down to it; the root is the one without a name.
    above: Vec<String>,
    /// The suite's own discipline that holds everything has this leaf.
    held_for_ever: bool,
    /// The suite's own discipline that drops everything has this leaf.
    drops_all: bool,
    /// It is a list of packets under a class of its own, whose statistics show how many.
    counted: bool,
    /// Disciplines above its own: each may hold a packet that it has pulled and not given.
    levels: i64,
}

/// What may wait in a tree, and why.
pub(super) struct Waiting {
    places: Vec<Place>,
    /// By class, what is known of its rates.
    rates: BTreeMap<String, Rates>,
    /// Every discipline of the tree is work conserving.
    conserving: bool,
    has_inner: bool,
    /// Every class has a spy below; true if their parent is work conserving.
    spied: Option<bool>,
}

/// The rates of one class, and those of the discipline that is its queue.
#[derive(Default)]
struct Rates {
    /// Its parameters that are rates.
    declared: Vec<&'static str>,
    /// Those of its queue.
    of_queue: Vec<&'static str>,
    /// Those that are set, and whether to 0.
    set: BTreeMap<&'static str, bool>,
    /// Its queue drops what is late when the link asks (JoBS, `relax loss-first`).
    drops_late: bool,
}

impl Rates {
    fn set(&mut self, params: &Params) {
        for name in self.declared.iter().chain(&self.of_queue).copied() {
            self.set.extend(params.get(name).map(|value| (name, is_zero(value))));
        }
        if let Some(relax) = params.get("relax") {
            self.drops_late = *relax == Value::Word("loss-first");
        }
    }
    fn has_none(&self) -> bool {
        let unset =
            !self.declared.is_empty() && !self.declared.iter().any(|name| self.set.contains_key(name));
        unset || self.set.values().any(|zero| *zero)
    }
}

impl Waiting {
    pub(super) fn new(registry: &Registry, node: &Node, leaves: &[LeafInfo]) -> Self {
        let mut new = Waiting {
            places: leaves.iter().map(|leaf| Place::new(&leaf.name)).collect(),
            rates: BTreeMap::new(),
            conserving: true,
            spied: spied(registry, node),
            has_inner: node.classes.iter().any(|class| class.queue.is_some()),
        };
        new.read(registry, node, &[String::new()], 0);
        new
    }
    fn read(&mut self, registry: &Registry, node: &Node, above: &[String], levels: i64) {
        let Some(entry) = registry.find(&node.discipline) else { return };
        self.conserving &= entry.work_conserving;
        if let Some(class) = above.last() {
            let known = self.rates.entry(class.clone()).or_default();
            known.of_queue.extend(rates(entry, Scope::Discipline).map(|spec| spec.name));
            known.set(&node.params);
        }
        if node.discipline == hostile::NEVER {
            self.set_above(above, |place| place.held_for_ever = true);
        }
        if node.discipline == hostile::DROPS_ALL {
            self.set_above(above, |place| place.drops_all = true);
        }
        for class in &node.classes {
            let mut path = vec![class.name.clone()];
            let mut parent = class.parent;
            while let Some(at) = parent {
                path.push(node.classes[at].name.clone());
                parent = node.classes[at].parent;
            }
            path.extend(above.iter().rev().cloned());
            path.reverse();
            let known = self.rates.entry(class.name.clone()).or_default();
            known.declared.extend(rates(entry, Scope::Class).map(|spec| spec.name));
            known.set(&class.params);
            let counted = class.queue.is_none();
            self.set_above(&path, |place| (place.counted, place.levels) = (counted, levels));
            if let Some(inner) = &class.queue {
                self.read(registry, inner, &path, levels + 1);
            }
        }
    }
    fn set_above(&mut self, path: &[String], change: impl Fn(&mut Place)) {
        if let Some(place) = self.places.iter_mut().find(|place| Some(&place.name) == path.last()) {
            place.above = path.to_vec();
            change(place);
        } else if let [only] = &mut self.places[..] {
            change(only);
        }
    }
    /// A change of parameters was accepted.
    pub(super) fn changed(&mut self, class: &str, params: &Params) {
        if let Some(known) = self.rates.get_mut(class) {
            known.set(params);
        }
    }
    /// The class of a leaf.
    pub(super) fn class(&self, leaf: u32) -> &str {
        self.places.get(leaf as usize).map_or("of a leaf that is not there", |place| &place.name)
    }
    /// What is wrong if packets wait in `leaf` and time does not help, for `cause` if it is told.
    pub(super) fn objection(&self, cause: Option<Cause>, leaf: u32) -> Option<&'static str> {
        let place = &self.places[leaf as usize];
        let without_rate = |name| self.rates.get(name).is_some_and(Rates::has_none);
        let excused = place.held_for_ever || place.above.iter().any(without_rate);
        match cause {
            Some(Cause::Child) if !self.has_inner => Some("it has no children that are disciplines"),
            _ if excused => None,
            _ => Some("neither the rate of that class nor that of a class above it is 0"),
        }
    }
    /// True if packets of `leaf` must get through: they may not be held for ever, and the suite's own discipline
    /// that drops all does not have them. Where no discipline lets packets wait, a class needs no rate.
    pub(super) fn must_send(&self, leaf: u32) -> bool {
        let held = !self.conserving && self.objection(None, leaf).is_none();
        !held && !self.places[leaf as usize].drops_all
    }
    /// True if a discipline above `leaf` drops what is late when the link asks.
    pub(super) fn drops_late(&self, leaf: u32) -> bool {
        let above = &self.places[leaf as usize].above;
        above.iter().any(|name| self.rates.get(name).is_some_and(|known| known.drops_late))
    }
    /// True if no discipline of the tree ever lets a packet wait.
    pub(super) fn conserving(&self) -> bool {
        self.conserving
    }
    /// Whether spies watch every class, and then whether their parent is work conserving.
    pub(super) fn spied(&self) -> Option<bool> {
        self.spied
    }
    /// How many leaves the tree has.
    pub(super) fn leaves(&self) -> usize {
        self.places.len()
    }
    /// Holds what the statistics show for each class against what `queued` counts by leaf.
    pub(super) fn audit(&self, shown: &ShownBacklogs, queued: impl Fn(u32) -> i64) -> Result<(), String> {
        for (leaf, place) in self.places.iter().enumerate().filter(|(_, place)| place.counted) {
            let queued = queued(leaf as u32);
            match shown.by_class.get(&place.name) {
                None => return Err(format!("statistics: class {} shows no `backlog`", place.name)),
                Some(&shown) if !(queued - place.levels..=queued).contains(&shown) => {
                    return Err(format!(
                        "routing: class {} shows {shown} packets, and {queued} that wait came for it (leaf {leaf})",
                        place.name
                    ));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}

impl Place {
    fn new(name: &str) -> Self {
        Place {
            name: name.to_owned(),
            above: Vec::new(),
            held_for_ever: false,
            drops_all: false,
            counted: false,
            levels: 0,
        }
    }
}

fn rates(entry: &Entry, scope: Scope) -> impl Iterator<Item = &'static ParamSpec> + use<> {
    let rate_like = |spec: &&ParamSpec| matches!(spec.kind, Kind::Rate | Kind::Percent | Kind::Curve);
    entry.params().filter(move |spec| spec.scope == scope).filter(rate_like)
}

/// True for a rate of 0, and for a curve that ends in one.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Rate(rate) => rate.is_zero(),
        Value::Fraction(fraction) => *fraction == weir_core::units::Fraction::ratio(0, 1),
        Value::Curve(curve) => curve.m2.is_zero(),
        _ => false,
    }
}

/// The packets that each class shows as waiting.
#[derive(Default)]
pub(super) struct ShownBacklogs {
    class: String,
    by_class: BTreeMap<String, i64>,
}

impl Visit for ShownBacklogs {
    fn class(&mut self, class: &str, _depth: u32) {
        class.clone_into(&mut self.class);
    }
    fn value(&mut self, name: &'static str, _unit: &'static str, value: i64) {
        if name == "backlog" {
            self.by_class.insert(self.class.clone(), value);
        }
    }
}

/// Whether every class has a spy below, and then whether the parent is work conserving.
fn spied(registry: &Registry, node: &Node) -> Option<bool> {
    let mut queues = node.classes.iter().enumerate().filter(|&(index, class)| {
        class.queue.is_some() || !node.classes.iter().any(|c| c.parent == Some(index))
    });
    let all = queues.all(|(_, class)| class.queue.as_ref().is_some_and(|q| q.discipline == super::spy::NAME));
    let parent = registry.find(&node.discipline).filter(|_| all && !node.classes.is_empty())?;
    Some(parent.work_conserving)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::queue::Link;
    use weir_core::sched::ClassConfig;
    use weir_core::units::{Fraction, Rate};

    /// A rate of 0 excuses a wait for ever, below it too, and as long as it is 0.
    #[test]
    fn the_excuse_ends_with_a_rate() {
        let share =
            |percent| Params::new().with("pbandwidth", Value::Fraction(Fraction::ratio(percent, 100)));
        let class =
            |name: &str, parent, params| ClassConfig { name: name.into(), parent, params, queue: None };
        let registry = Registry::builtin();
        let node = Node {
            discipline: "cbq".into(),
            params: Params::new(),
            classes: vec![
                class("root", None, share(100)),
                class("agency", Some(0), share(50)),
                class("given", Some(1), share(0)),
                class("unset", Some(1), Params::new()),
            ],
        };
        let link = Link::new(Rate::from_mbps(10), 0, 1_514);
        let tree = registry.build(&node, link).expect("a valid configuration");
        let mut waiting = Waiting::new(&registry, &node, &tree.leaves);
        let leaf = |name| tree.leaves.iter().position(|leaf| leaf.name == name).expect("a leaf") as u32;
        let excused = |waiting: &Waiting| {
            ["given", "unset"].map(|name| waiting.objection(Some(Cause::Rate), leaf(name)).is_none())
        };
        for (class, percent, expected) in [
            ("root", 100, [true, true]),
            ("given", 10, [false, true]),
            ("unset", 10, [false, false]),
            ("agency", 0, [true, true]),
            ("agency", 20, [false, false]),
            ("given", 0, [true, false]),
        ] {
            waiting.changed(class, &share(percent));
            assert_eq!(excused(&waiting), expected, "{class} has {percent} %");
        }
    }
}
