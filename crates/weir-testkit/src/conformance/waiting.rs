//! What a configuration lets wait, by its entries and parameters: the other half of law 2.
//!
//! A class may be held for ever if it, or one above it, has no rate: its rate is 0, or none of its
//! parameters that are rates is set. Everything else leaves once arrivals stop.

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
    /// It is a list of packets under a class of its own, whose statistics show how many.
    counted: bool,
    /// Disciplines above its own: each may hold a packet that it has pulled and not given.
    levels: i64,
}

/// What may wait in a tree, and why.
pub(super) struct Waiting {
    places: Vec<Place>,
    /// Classes whose rate is 0, or was once, or that have none.
    without_rate: Vec<String>,
    /// Every discipline of the tree is work conserving.
    conserving: bool,
    has_inner: bool,
    /// Every class has a spy below; true if their parent is work conserving.
    spied: Option<bool>,
}

impl Waiting {
    pub(super) fn new(registry: &Registry, node: &Node, leaves: &[LeafInfo]) -> Self {
        let mut new = Waiting {
            places: leaves.iter().map(|leaf| Place::new(&leaf.name)).collect(),
            without_rate: Vec::new(),
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
        if rates(entry, Scope::Discipline).any(|spec| node.params.get(spec.name).is_some_and(is_zero)) {
            self.without_rate.extend(above.last().cloned());
        }
        if node.discipline == hostile::NEVER {
            self.set_above(above, |place| place.held_for_ever = true);
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
            let mut set =
                rates(entry, Scope::Class).filter_map(|spec| class.params.get(spec.name)).peekable();
            let declared = rates(entry, Scope::Class).next().is_some();
            if (declared && set.peek().is_none()) || set.any(is_zero) {
                self.without_rate.push(class.name.clone());
            }
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
        if params.iter().any(|(_, value)| is_zero(value)) {
            self.without_rate.push(class.to_owned());
        }
    }
    /// The class of a leaf.
    pub(super) fn class(&self, leaf: u32) -> &str {
        self.places.get(leaf as usize).map_or("of a leaf that is not there", |place| &place.name)
    }
    /// What is wrong if packets wait in `leaf` and time does not help, for `cause` if it is told.
    pub(super) fn objection(&self, cause: Option<Cause>, leaf: u32) -> Option<&'static str> {
        let place = &self.places[leaf as usize];
        let excused = place.held_for_ever || place.above.iter().any(|name| self.without_rate.contains(name));
        match cause {
            Some(Cause::Child) if !self.has_inner => Some("it has no children that are disciplines"),
            _ if excused => None,
            _ => Some("neither the rate of that class nor that of a class above it is 0"),
        }
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
        Place { name: name.to_owned(), above: Vec::new(), held_for_ever: false, counted: false, levels: 0 }
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
