//! What a whole plan must satisfy: the checks that ALTQ made when it enabled an interface.

use crate::hooks;
use crate::limits;
use crate::plan::{Class, Given, Interface, Options, Plan};
use crate::precedence::{self, conditioner_names};
use crate::report::Report;
use crate::tree::{Instance, Shape};
use std::collections::HashSet;
use weir_core::queue::{Bound, Value};
use weir_core::sched::{Classes, Registry};
use weir_text::{Diagnostic, Severity};

/// The errors of a plan as a whole; interfaces for which `skip` holds are not looked at.
pub(crate) fn errors(plan: &Plan, registry: &Registry, skip: &dyn Fn(&Interface) -> bool) -> Vec<Diagnostic> {
    let mut report = Report::new(&plan.source);
    for interface in plan.interfaces.iter().filter(|i| !skip(i)) {
        let shape = Shape::of(interface, registry);
        nesting(&mut report, &shape);
        for instance in &shape.instances {
            one(&mut report, registry, &shape, instance);
        }
        filters(&mut report, &shape);
        precedence::errors(&mut report, &shape);
        crate::edge::judge(&mut report, plan, interface, true);
    }
    report.said
}

/// How deep disciplines may stand in one another: building and dropping them walks down.
const MAX_NESTING: u32 = 16;

fn nesting(report: &mut Report<'_>, shape: &Shape<'_>) {
    let mut depths: Vec<u32> = Vec::with_capacity(shape.instances.len());
    for instance in &shape.instances {
        // The discipline of the class whose queue this is stands before it.
        let around = instance.owner.and_then(|o| shape.member_of[o]).and_then(|i| depths.get(i));
        let depth = around.map_or(1, |d| d + 1);
        if depth == MAX_NESTING + 1 {
            let message = format!("more than {MAX_NESTING} disciplines in one another");
            report.error(instance.place, message, "let classes that belong together stand in one discipline");
        }
        depths.push(depth);
    }
}

fn one(report: &mut Report<'_>, registry: &Registry, shape: &Shape<'_>, instance: &Instance<'_>) {
    let interface = shape.interface;
    let name = instance.entry.name;
    if instance.entry.classes != Classes::None {
        if instance.members.is_empty() {
            let of = match instance.owner {
                Some(owner) => format!("the queue of class `{}`", interface.classes[owner].name),
                None => format!("interface `{}`", interface.name),
            };
            let help = format!("declare its classes, as in `class {name} {} ...`", interface.name);
            report.error(instance.place, format!("{of} is {name} and has no classes"), help);
            return;
        }
        roots(report, interface, instance);
        defaults(report, interface, instance);
    }
    hooks::errors(report, shape, instance);
    if let Some(options) = instance.options {
        bounds(report, options);
    }
    for &index in &instance.members {
        let class = &interface.classes[index];
        bounds(report, &class.options);
        if instance.entry.class_queues {
            aqm(report, registry, class);
        }
    }
}

/// The words of a class ask for one AQM, and for what it takes.
fn aqm(report: &mut Report<'_>, registry: &Registry, class: &Class) {
    let Err(error) = registry.aqm_of_class(&class.name, &class.options.params()) else { return };
    let place = class.options.get(&error.field).map_or(class.place, |given| given.place);
    let (message, help) = hooks::refusal(&error);
    report.error(place, message, help);
}

fn roots(report: &mut Report<'_>, interface: &Interface, instance: &Instance<'_>) {
    if instance.entry.classes != Classes::RootedTree {
        return;
    }
    if let [first, second, ..] = instance.tops[..] {
        let (first, second) = (&interface.classes[first], &interface.classes[second]);
        let message = format!("`{}` is a second root class", second.name);
        let help = format!("the root is `{}`: write it as the parent", first.name);
        report.error(second.place, message, help);
    }
}

fn defaults(report: &mut Report<'_>, interface: &Interface, instance: &Instance<'_>) {
    if !instance.knows_default() {
        return;
    }
    let marked: Vec<_> = instance
        .members
        .iter()
        .filter_map(|&c| interface.classes[c].options.get("default").map(|g| (c, g.place)))
        .collect();
    match marked[..] {
        [] if instance.owner.is_none() => {
            let message = format!("interface `{}` has no default class", interface.name);
            let help = "packets that no filter matches need a class: write `default` on one";
            report.error(interface.place, message, help);
        }
        [(first, _), (second, place), ..] => {
            let message = format!("`{}` is a second default class", interface.classes[second].name);
            let help = format!("the default is `{}`: take one `default` away", interface.classes[first].name);
            report.error(place, message, help);
        }
        _ => {}
    }
}

/// The count that is given, unless it is 0.
fn count_of(given: &Given) -> Option<u64> {
    match given.value {
        Value::Count(count) if count > 0 => Some(count),
        _ => None,
    }
}

/// What counts keep besides their ranges, as their declarations say.
fn bounds(report: &mut Report<'_>, options: &Options) {
    for (given, count) in options.iter().filter_map(|given| Some((given, count_of(given)?))) {
        let word = given.spec.name;
        for bound in given.spec.bounds {
            match *bound {
                Bound::PowerOfTwo if !count.is_power_of_two() => {
                    let (below, above) = (1u64 << count.ilog2(), 2u64 << count.ilog2());
                    let message = format!("`{word} {count}` is not a power of two");
                    report.error(given.place, message, format!("write {below} or {above}"));
                }
                Bound::Above { word: lower, why } => {
                    if let Some(least) = options.get(lower).and_then(count_of)
                        && count <= least
                    {
                        let message = format!("`{word} {count}` is not above `{lower} {least}`");
                        report.error(given.place, message, why);
                    }
                }
                Bound::PowerOfTwo | Bound::InQueue => {}
            }
        }
    }
}

/// A filter may name only a class that leads to a queue.
fn filters(report: &mut Report<'_>, shape: &Shape<'_>) {
    let interface = shape.interface;
    let conditioners = conditioner_names(interface);
    let mut masks = HashSet::new();
    for filter in &interface.filters {
        masks.insert(filter.mask());
        if masks.len() > limits::MASKS {
            let what = "different masks of filters";
            let trouble = limits::more_than_of(limits::MASKS, what, &interface.name, filter.place);
            report.said.push(report.source.diagnostic(Severity::Error, trouble));
            return;
        }
        let Some(index) = shape.class(&filter.class) else {
            if !conditioners.contains(filter.class.as_str()) {
                let message = format!("no class `{}` on interface `{}`", filter.class, interface.name);
                report.error(filter.place, message, "a class stands above its filters");
            }
            continue;
        };
        let Some(of) = shape.member_of[index].map(|i| &shape.instances[i]) else { continue };
        if of.only_leaves_queue() && !shape.below[index].is_empty() {
            let message = format!("the filter goes to class `{}`, which has classes below it", filter.class);
            let help = "only a class without children has a queue: name one of those";
            report.error(filter.place, message, help);
        }
    }
}
