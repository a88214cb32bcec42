//! What disciplines say of their own configurations, brought to its place in the file: their
//! errors and warnings, the classes and filters that they add.

use crate::plan::{Filter, Options};
use crate::report::Report;
use crate::tree::{Instance, Shape};
use weir_core::queue::ParamError;
use weir_core::sched::{ClassConfig, Finding, Node, Setting};

/// The configuration of one discipline as the file gives it. A class whose queue is a discipline
/// names that one without its classes: disciplines may stand in one another as deep as the file
/// is long.
pub(crate) fn node(shape: &Shape<'_>, instance: &Instance<'_>) -> Node {
    let named = |of: &Instance<'_>| Node {
        discipline: of.entry.name.to_string(),
        params: of.options.map(Options::params).unwrap_or_default(),
        classes: Vec::new(),
    };
    debug_assert!(instance.members.is_sorted(), "members stand in the order of the file");
    let index_of = |class: usize| instance.members.binary_search(&class).ok();
    let class = |&member: &usize| {
        let class = &shape.interface.classes[member];
        ClassConfig {
            name: class.name.clone(),
            parent: shape.parents[member].and_then(index_of),
            params: class.options.params(),
            queue: shape.queue[member].map(|inner| named(&shape.instances[inner])),
        }
    };
    Node { classes: instance.members.iter().map(class).collect(), ..named(instance) }
}

fn setting(shape: &Shape<'_>, instance: &Instance<'_>) -> Setting {
    Setting { rate: shape.interface.rate(), outermost: instance.owner.is_none() }
}

/// The errors that a discipline finds in its configuration.
pub(crate) fn errors(report: &mut Report<'_>, shape: &Shape<'_>, instance: &Instance<'_>) {
    for found in findings(shape, instance).filter(|f| f.is_error) {
        report.error(place(shape, instance, &found), found.found, found.mend);
    }
}

/// The warnings.
pub(crate) fn warnings(report: &mut Report<'_>, shape: &Shape<'_>, instance: &Instance<'_>) {
    for found in findings(shape, instance).filter(|f| !f.is_error) {
        report.warn(place(shape, instance, &found), found.found, found.mend);
    }
}

fn findings(shape: &Shape<'_>, instance: &Instance<'_>) -> impl Iterator<Item = Finding> {
    let check = instance.entry.check;
    let found = check.map(|check| check(&node(shape, instance), &setting(shape, instance)));
    found.into_iter().flatten()
}

/// What a discipline or an AQM refused, in words: what is wrong, and what was expected.
pub(crate) fn refusal(error: &ParamError) -> (String, String) {
    let of = if error.class.is_empty() { String::new() } else { format!("class `{}`: ", error.class) };
    let found = match error.found == error.field {
        true => format!("`{}` cannot stand here", error.field),
        false => format!("`{}` cannot be {}", error.field, error.found),
    };
    (format!("{of}{found}"), format!("expected {}", error.expected))
}

/// Where the option stands that a finding is about, or else the class or the discipline.
fn place(shape: &Shape<'_>, instance: &Instance<'_>, found: &Finding) -> weir_text::Place {
    let class = found.class.and_then(|index| instance.members.get(index));
    let (options, otherwise) = match class.map(|&member| &shape.interface.classes[member]) {
        Some(class) => (Some(&class.options), class.place),
        None => (instance.options, instance.place),
    };
    options.and_then(|options| options.get(found.field)).map_or(otherwise, |given| given.place)
}

/// The disciplines of an interface with the classes and filters that they add.
pub(crate) struct Lowered {
    /// For each instance of the shape, what `node` gives, and the classes that were added behind.
    pub nodes: Vec<Node>,
    /// The filters that classes bring, each at the class beside which it stands.
    pub filters: Vec<Filter>,
}

impl Lowered {
    pub fn of(shape: &Shape<'_>) -> Self {
        let mut filters = Vec::new();
        let mut lower = |instance: &Instance<'_>| {
            let mut node = node(shape, instance);
            let Some(lower) = instance.entry.lower else { return node };
            for brought in lower(&mut node, &setting(shape, instance)) {
                let Some(&beside) = instance.members.get(brought.beside) else { continue };
                filters.push(Filter {
                    protocol: brought.protocol,
                    dontwarn: true,
                    after_classes: beside + 1,
                    place: shape.interface.classes[beside].place,
                    ..Filter::any(&brought.class, brought.family)
                });
            }
            node
        };
        let nodes = shape.instances.iter().map(&mut lower).collect();
        Lowered { nodes, filters }
    }

    /// The names of the classes that were added.
    pub fn added<'a>(&'a self, shape: &'a Shape<'_>) -> impl Iterator<Item = &'a str> {
        let added = self.nodes.iter().zip(&shape.instances);
        let added = added.flat_map(|(node, instance)| node.classes.iter().skip(instance.members.len()));
        added.map(|class| class.name.as_str())
    }
}
