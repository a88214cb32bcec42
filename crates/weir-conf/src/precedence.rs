//! Which filter comes before which: filters that are never reached, and filters that overlap.

use crate::hooks::Lowered;
use crate::plan::{Filter, Interface};
use crate::report::Report;
use crate::tree::Shape;
use std::collections::{HashMap, HashSet};
use weir_core::classify::explain::{Cause, differences_from_altq, unreachable};
use weir_core::classify::overlap::intersections;
use weir_core::classify::{self, Classifier, Field, FilterId};
use weir_core::packet::Dscp;
use weir_core::packet::key::protocol;
use weir_core::packet::tunnel::VXLAN_PORT;
use weir_text::{Place, Source};

/// A filter in a classifier.
#[derive(Clone, Debug)]
pub struct BuiltFilter {
    /// As in the plan.
    pub filter: Filter,
    /// True for one that a class brings by itself.
    pub automatic: bool,
}

/// Filters as the classifier takes them, and which of the plan's each is.
pub(crate) struct Compiled {
    pub filters: Vec<BuiltFilter>,
    pub classifier: Classifier,
}

/// The names of an interface's conditioners: a filter that goes to one of them is of the input side.
pub(crate) fn conditioner_names(interface: &Interface) -> HashSet<&str> {
    interface.conditioners.iter().map(|c| c.name.as_str()).collect()
}

/// The filters of the classes (or of the conditioners) in the order of the file, those that
/// classes bring (`brought`) in line; `class` gives the number that the classifier hands back.
pub(crate) fn compile(
    interface: &Interface,
    brought: &[Filter],
    conditioners: bool,
    class: &mut dyn FnMut(&str) -> u32,
) -> Compiled {
    let names = conditioner_names(interface);
    let mut filters: Vec<BuiltFilter> = interface
        .filters
        .iter()
        .filter(|f| names.contains(f.class.as_str()) == conditioners)
        .map(|f| BuiltFilter { filter: f.clone(), automatic: false })
        .collect();
    if !conditioners {
        filters.extend(brought.iter().map(|f| BuiltFilter { filter: f.clone(), automatic: true }));
        // What a class brings stands before the filters that follow its line.
        filters.sort_by_key(|m| (m.filter.after_classes, !m.automatic));
    }
    let from_file = filters.iter().all(|m| m.filter.place.line > 0);
    let orders =
        filters.iter().enumerate().map(|(n, m)| if from_file { m.filter.place.line } else { n as u32 + 1 });
    let compiled =
        filters.iter().zip(orders).map(|(m, order)| core(&m.filter, class(&m.filter.class), order));
    let classifier = Classifier::compile(compiled);
    Compiled { filters, classifier }
}

fn core(filter: &Filter, class: u32, order: u32) -> classify::Filter {
    let mut made = classify::Filter::new(filter.family, class, order)
        .ruleno(filter.ruleno)
        .name(filter.name.as_deref().unwrap_or(""))
        .with(Field::Dst, filter.dst.0, filter.dst.1)
        .exactly(Field::DstPort, filter.dst_port.into())
        .with(Field::Src, filter.src.0, filter.src.1)
        .exactly(Field::SrcPort, filter.src_port.into())
        .exactly(Field::Protocol, filter.protocol.into())
        .exactly(Field::FlowLabel, filter.flow_label.into())
        .exactly(Field::Spi, filter.spi.into());
    if let Some((value, mask)) = filter.tos {
        made = match (value, mask) {
            (0, 0xfc) => made.dscp(Dscp::CS0),
            _ => made.with(Field::Tos, value.into(), mask.into()),
        };
    }
    made
}

/// What is said about `id`: a filter's place and its name for people.
fn named(source: &Source, compiled: &Compiled, id: FilterId) -> (Place, String) {
    let merged = &compiled.filters[id.index()];
    let line = merged.filter.place.line;
    let name = match (&merged.filter.name, merged.automatic) {
        (_, true) => format!("a filter that control class `{}` brings", merged.filter.class),
        (Some(name), _) => format!("filter `{name}`"),
        (None, _) if line > 0 => format!("the filter on {}", source.at(line)),
        (None, _) => format!("a filter for `{}`", merged.filter.class),
    };
    (merged.filter.place, name)
}

/// A number for each name that filters lead to.
fn number() -> impl FnMut(&str) -> u32 {
    let mut names: HashMap<String, u32> = HashMap::new();
    move |name| {
        let next = names.len() as u32;
        names.get(name).copied().unwrap_or_else(|| *names.entry(name.to_owned()).or_insert(next))
    }
}

/// Filters that are never reached, as ALTQ refused them.
pub(crate) fn errors(report: &mut Report<'_>, shape: &Shape<'_>) {
    let interface = shape.interface;
    let brought = Lowered::of(shape).filters;
    for conditioners in [false, true] {
        let compiled = compile(interface, &brought, conditioners, &mut number());
        for found in unreachable(&compiled.classifier) {
            let Cause::Shadowed(by) = found.cause else { continue };
            if compiled.filters[found.filter.index()].automatic {
                continue;
            }
            let (place, _) = named(report.source, &compiled, found.filter);
            let (_, by) = named(report.source, &compiled, by);
            let message = format!("this filter is never reached: {by} takes all that it would");
            let help = "the later line comes first: write the wider filter first, or give the narrower a higher `ruleno`";
            report.error(place, message, help);
        }
    }
}

/// Filters that no packet can match, filters that overlap, and filters that ALTQ would have
/// asked in another order.
pub(crate) fn warnings(report: &mut Report<'_>, shape: &Shape<'_>) {
    let interface = shape.interface;
    let brought = Lowered::of(shape).filters;
    tunnels(report, interface);
    for conditioners in [false, true] {
        let compiled = compile(interface, &brought, conditioners, &mut number());
        for found in unreachable(&compiled.classifier) {
            let (place, name) = named(report.source, &compiled, found.filter);
            match found.cause {
                Cause::Impossible(why) => {
                    let message = format!("no packet can match this filter: {why}");
                    report.warn(place, message, "write tcp or udp as the protocol, or 0 for the ports");
                }
                Cause::Shadowed(by) if compiled.filters[found.filter.index()].automatic => {
                    let (place, by) = named(report.source, &compiled, by);
                    let message = format!("{by} takes all of {name}");
                    report.warn(place, message, "control traffic goes where this filter says");
                }
                Cause::Shadowed(_) => {}
            }
        }
        overlaps(report, &compiled);
        for difference in differences_from_altq(&compiled.classifier) {
            let (place, _) = named(report.source, &compiled, difference.ours);
            let (_, other) = named(report.source, &compiled, difference.altq);
            let message = format!("this filter comes before {other}, and in ALTQ it came after");
            let help = "ALTQ looked at filters on one destination host first, whatever their `ruleno`";
            report.warn(place, message, help);
        }
    }
}

/// Filters that ask for a tunnel, where it is its inside that is asked about.
fn tunnels(report: &mut Report<'_>, interface: &Interface) {
    if interface.tunnels.is_some() {
        return;
    }
    for filter in &interface.filters {
        let tunnel = match filter.protocol {
            protocol::GRE => "GRE",
            protocol::UDP | 0 if filter.dst_port == VXLAN_PORT => "VXLAN",
            _ => continue,
        };
        let line = report.source.at(filter.place.line);
        let message =
            format!("filters see the packet inside a tunnel, and the one on {line} asks for {tunnel} itself");
        report.warn(interface.place, message, "write `tunnels outer`, or `tunnels inner` if that is meant");
    }
}

/// Most pairs of overlapping filters that are named one by one.
const MOST_OVERLAPS: usize = 50;

/// Filters of different classes that some packets match both. Pairs of which either says
/// `dontwarn` are known to their writer.
fn overlaps(report: &mut Report<'_>, compiled: &Compiled) {
    let known = |id: FilterId| {
        let filter = &compiled.filters[id.index()];
        filter.automatic || filter.filter.dontwarn
    };
    let found = intersections(&compiled.classifier, MOST_OVERLAPS, &known);
    for (id, other) in found.pairs {
        let line = |id: FilterId| compiled.filters[id.index()].filter.place.line;
        // Said at the later line, as ALTQ did when it came to it.
        let (later, first) = if line(id) > line(other) { (id, other) } else { (other, id) };
        let (place, _) = named(report.source, compiled, later);
        let (_, other_name) = named(report.source, compiled, first);
        let wins = &compiled.filters[id.index()].filter.class;
        let message = format!("this filter and {other_name} match some packets both");
        let help = format!("those go to `{wins}`; write `dontwarn` if that is meant");
        report.warn(place, message, help);
    }
    let rest = match (found.left_out, found.complete) {
        (0, true) => return,
        (0, false) => "not all filters were looked at: more pairs may match some packets both".to_string(),
        (n, true) => format!("{n} more pairs of filters match some packets both"),
        (n, false) => format!("{n} or more other pairs of filters match some packets both"),
    };
    report.warn(Place::default(), rest, "`weir explain` says where a packet goes");
}
