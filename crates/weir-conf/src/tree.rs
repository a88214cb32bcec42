//! How the flat list of classes in a file makes disciplines inside classes of disciplines.

use crate::plan::{Interface, Options, Queue};
use std::collections::HashMap;
use weir_core::queue::Scope;
use weir_core::sched::{Classes, Entry, Registry};
use weir_text::Place;

/// One discipline at work: the interface's own, or the queue of a class.
pub(crate) struct Instance<'a> {
    pub entry: Entry,
    /// The class whose queue it is.
    pub owner: Option<usize>,
    /// Its classes, by index, in the order of the file.
    pub members: Vec<usize>,
    /// Those of them that have none of its classes above them.
    pub tops: Vec<usize>,
    /// The first of them that is marked as the default.
    pub default: Option<usize>,
    /// The first of them that has a queue.
    first_queue: Option<usize>,
    pub place: Place,
    pub options: Option<&'a Options>,
}

/// The classes of an interface as a tree.
pub(crate) struct Shape<'a> {
    pub interface: &'a Interface,
    /// The outermost discipline first, then in the order of the classes whose queues they are.
    pub instances: Vec<Instance<'a>>,
    names: HashMap<&'a str, usize>,
    /// For each class, its parent.
    pub parents: Vec<Option<usize>>,
    /// For each class, the classes right below it in its own discipline.
    pub below: Vec<Vec<usize>>,
    /// For each class, the instance that it is a class of.
    pub member_of: Vec<Option<usize>>,
    /// For each class, the instance that is its queue.
    pub queue: Vec<Option<usize>>,
}

impl<'a> Shape<'a> {
    /// Names of disciplines that the registry does not know make no instance.
    pub fn of(interface: &'a Interface, registry: &Registry) -> Self {
        let classes = &interface.classes;
        let names: HashMap<&str, usize> =
            classes.iter().enumerate().map(|(i, c)| (c.name.as_str(), i)).collect();
        let parents: Vec<Option<usize>> =
            classes.iter().map(|c| c.parent.as_ref().and_then(|p| names.get(p.as_str()).copied())).collect();
        // The class whose queue a class's discipline is. Parents come before children.
        let mut owners: Vec<Option<usize>> = Vec::with_capacity(classes.len());
        let mut first_inside: Vec<Option<usize>> = vec![None; classes.len()];
        let mut below = vec![Vec::new(); classes.len()];
        for (index, class) in classes.iter().enumerate() {
            let parent = parents[index].filter(|p| *p < index);
            let inside =
                parent.filter(|&p| classes[p].queue.is_some() || classes[p].discipline != class.discipline);
            let owner = match (inside, parent) {
                (Some(p), _) => Some(p),
                (None, Some(p)) => {
                    below[p].push(index);
                    owners[p]
                }
                (None, None) => None,
            };
            if let Some(owner) = owner {
                first_inside[owner].get_or_insert(index);
            }
            owners.push(owner);
        }
        let mut shape = Shape {
            interface,
            instances: Vec::new(),
            names,
            member_of: vec![None; classes.len()],
            queue: vec![None; classes.len()],
            parents,
            below,
        };
        let top = interface.discipline.as_ref();
        let outer = top.and_then(|q| shape.add(registry, &q.name, Some(q), None, q.place));
        for (index, class) in classes.iter().enumerate() {
            shape.queue[index] = match (&class.queue, first_inside[index]) {
                (Some(queue), _) => shape.add(registry, &queue.name, Some(queue), Some(index), queue.place),
                (None, Some(first)) => {
                    let first = &classes[first];
                    shape.add(registry, &first.discipline, None, Some(index), first.place)
                }
                (None, None) => None,
            };
        }
        for (index, owner) in owners.iter().enumerate() {
            let instance = owner.map_or(outer, |o| shape.queue[o]);
            shape.member_of[index] = instance;
            let Some(instance) = instance else { continue };
            shape.instances[instance].members.push(index);
            if shape.parents[index] == *owner {
                shape.instances[instance].tops.push(index);
            }
            let of = &mut shape.instances[instance];
            if classes[index].options.has("default") {
                of.default.get_or_insert(index);
            }
            if !of.only_leaves_queue() || shape.below[index].is_empty() {
                of.first_queue.get_or_insert(index);
            }
        }
        shape
    }

    fn add(
        &mut self,
        registry: &Registry,
        name: &str,
        queue: Option<&'a Queue>,
        owner: Option<usize>,
        place: Place,
    ) -> Option<usize> {
        let entry = *registry.find(name)?;
        let options = queue.map(|q| &q.options);
        self.instances.push(Instance {
            entry,
            owner,
            members: Vec::new(),
            tops: Vec::new(),
            default: None,
            first_queue: None,
            place,
            options,
        });
        Some(self.instances.len() - 1)
    }

    /// The class of that name.
    pub fn class(&self, name: &str) -> Option<usize> {
        self.names.get(name).copied()
    }
    /// The class whose queue takes a packet that is sent to class `index`: itself, or where its
    /// own discipline has classes, the default of those, or the first with a queue.
    pub fn landing(&self, index: usize) -> usize {
        let mut at = index;
        // Each step goes one discipline deeper.
        while let Some(inner) = self.queue[at].map(|i| &self.instances[i]) {
            match inner.default.or(inner.first_queue) {
                Some(next) => at = next,
                None => break,
            }
        }
        at
    }
}

impl Instance<'_> {
    /// True if its classes may be marked as the default.
    pub fn knows_default(&self) -> bool {
        self.entry.param(Scope::Class, "default").is_some()
    }
    /// True if a class of it with children has no queue of its own.
    pub fn only_leaves_queue(&self) -> bool {
        self.entry.classes == Classes::Tree
    }
}
