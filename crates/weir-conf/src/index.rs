//! What the names of a file stand for while it is read: every look-up takes the same time, however
//! long the file is.

use crate::plan::{Class, Conditioner, Interface, Plan};
use std::collections::{HashMap, HashSet};

/// What a name of an interface stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Named {
    /// A class, by its index.
    Class(usize),
    /// A conditioner.
    Conditioner,
}

/// The names of one interface.
#[derive(Default)]
struct Names {
    named: HashMap<String, Named>,
    /// For each class, the first class of every discipline that names it as its parent.
    first_below: Vec<Vec<usize>>,
}

/// The names of the plan that is being read. Everything that is added to the plan goes through here.
#[derive(Default)]
pub(crate) struct Index {
    interfaces: HashMap<String, usize>,
    of: Vec<Names>,
    classes: HashSet<String>,
    conditioners: HashSet<String>,
}

impl Index {
    /// The interface of that name.
    pub fn interface(&self, name: &str) -> Option<usize> {
        self.interfaces.get(name).copied()
    }
    /// What that name stands for on the interface.
    pub fn named(&self, interface: usize, name: &str) -> Option<Named> {
        self.of[interface].named.get(name).copied()
    }
    /// The class of that name on the interface.
    pub fn class(&self, interface: usize, name: &str) -> Option<usize> {
        match self.named(interface, name)? {
            Named::Class(index) => Some(index),
            Named::Conditioner => None,
        }
    }
    /// True if an interface has a class of that name.
    pub fn is_class_anywhere(&self, name: &str) -> bool {
        self.classes.contains(name)
    }
    /// True if an interface has a class or a conditioner of that name.
    pub fn is_anywhere(&self, name: &str) -> bool {
        self.classes.contains(name) || self.conditioners.contains(name)
    }
    /// The first class of each discipline right below a class.
    pub fn first_below(&self, interface: usize, class: usize) -> &[usize] {
        &self.of[interface].first_below[class]
    }

    pub fn add_interface(&mut self, plan: &mut Plan, interface: Interface) -> usize {
        let index = plan.interfaces.len();
        self.interfaces.insert(interface.name.clone(), index);
        self.of.push(Names::default());
        plan.interfaces.push(interface);
        index
    }
    pub fn add_class(&mut self, plan: &mut Plan, interface: usize, class: Class) {
        let names = &mut self.of[interface];
        let classes = &mut plan.interfaces[interface].classes;
        let index = classes.len();
        if let Some(Named::Class(parent)) = class.parent.as_ref().and_then(|p| names.named.get(p)) {
            let first = &mut names.first_below[*parent];
            if first.iter().all(|&c| classes[c].discipline != class.discipline) {
                first.push(index);
            }
        }
        names.named.insert(class.name.clone(), Named::Class(index));
        names.first_below.push(Vec::new());
        self.classes.insert(class.name.clone());
        classes.push(class);
    }
    pub fn add_conditioner(&mut self, plan: &mut Plan, interface: usize, conditioner: Conditioner) {
        self.of[interface].named.insert(conditioner.name.clone(), Named::Conditioner);
        self.conditioners.insert(conditioner.name.clone());
        plan.interfaces[interface].conditioners.push(conditioner);
    }
}
