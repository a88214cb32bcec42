//! What altq.conf knows about CBQ classes: shares, admission, and the control class.

use crate::plan::{Class, Filter, Given, Interface, Options};
use crate::rules::Report;
use crate::tree::{Instance, Shape};
use weir_core::packet::Family;
use weir_core::queue::{Scope, Value};
use weir_core::units::{Rate, mul_div};

/// The control class that is made by itself.
pub(crate) const CONTROL: &str = "ctl_class";
const CONTROL_PERCENT: u64 = 2;
const CONTROL_PRIORITY: u64 = 6;
/// ICMP, IGMP and RSVP in either family.
const CONTROL_PROTOCOLS: [(Family, u8); 6] =
    [(Family::V4, 1), (Family::V4, 2), (Family::V4, 46), (Family::V6, 58), (Family::V6, 2), (Family::V6, 46)];

/// True for a class that takes control traffic.
pub(crate) fn is_control(class: &Class) -> bool {
    class.name == CONTROL || class.options.has("control")
}

/// What a class is allotted: `exactbandwidth`, else its part of the interface.
pub(crate) fn share(class: &Class, link: Rate) -> Rate {
    let given = |name| class.options.get(name).map(|g| &g.value);
    match (given("exactbandwidth"), given("pbandwidth")) {
        (Some(Value::Rate(rate)), _) if !rate.is_zero() => *rate,
        (_, Some(Value::Fraction(part))) => crate::share::part_of(*part, link),
        _ => Rate::ZERO,
    }
}

/// The bandwidth that the control class takes out of the default class.
fn control_share(link: Rate) -> Rate {
    Rate::from_bps(mul_div(link.as_bps(), CONTROL_PERCENT, 100))
}

/// The default class of the outermost CBQ, if a control class is to be made beside it.
pub(crate) fn needs_control(shape: &Shape<'_>, instance: &Instance<'_>) -> Option<usize> {
    let interface = shape.interface;
    if instance.entry.name != "cbq"
        || instance.owner.is_some()
        || instance.members.iter().any(|&c| is_control(&interface.classes[c]))
    {
        return None;
    }
    instance.default
}

/// Makes the control class beside the default class `default`, as ALTQ does: its borrowing and
/// its measures are those of the default class.
pub(crate) fn with_control(interface: &Interface, instance: &Instance<'_>, default: usize) -> Interface {
    let mut made = interface.clone();
    let link = interface.rate();
    let spec = |name| instance.entry.param(Scope::Class, name);
    let old = &interface.classes[default];
    let mut options = Options::new();
    for name in ["borrow", "maxdelay", "maxburst", "minburst", "packetsize", "maxpacketsize", "admission"] {
        if let Some(given) = old.options.get(name) {
            options.set(given.clone());
        }
    }
    let set = |options: &mut Options, name, value| {
        if let Some(spec) = spec(name) {
            options.set(Given { spec, value, place: old.place });
        }
    };
    set(&mut options, "priority", Value::Count(CONTROL_PRIORITY));
    set(&mut options, "exactbandwidth", Value::Rate(control_share(link)));
    set(&mut options, "control", Value::Flag);
    let rest = Rate::from_bps(share(old, link).as_bps().saturating_sub(control_share(link).as_bps()));
    let class = &mut made.classes[default];
    class.options.remove("pbandwidth");
    set(&mut class.options, "exactbandwidth", Value::Rate(rest));
    made.classes.push(Class {
        discipline: old.discipline.clone(),
        name: CONTROL.to_string(),
        parent: old.parent.clone(),
        options,
        queue: None,
        place: old.place,
    });
    made
}

/// The filters that a control class brings, in line after its own declaration.
pub(crate) fn control_filters(class: &Class, after_classes: usize) -> impl Iterator<Item = Filter> {
    CONTROL_PROTOCOLS.into_iter().map(move |(family, protocol)| Filter {
        protocol,
        dontwarn: true,
        after_classes,
        place: class.place,
        ..Filter::any(&class.name, family)
    })
}

/// Admission: children within their parent; the control class within the default class.
pub(crate) fn errors(report: &mut Report<'_>, shape: &Shape<'_>, instance: &Instance<'_>) {
    let interface = shape.interface;
    let link = interface.rate();
    for &index in &instance.members {
        let class = &interface.classes[index];
        let own = share(class, link);
        let mut left = own.as_bps();
        for &child in &shape.below[index] {
            let child = &interface.classes[child];
            let wanted = share(child, link).as_bps();
            // Percentages round to 2^-32 of the link: a few of these more are not more.
            if wanted > left.saturating_add(link.as_bps() >> 28).saturating_add(8) {
                let place = ["exactbandwidth", "pbandwidth"]
                    .iter()
                    .find_map(|n| child.options.get(n))
                    .map_or(child.place, |g| g.place);
                let message = format!(
                    "class `{}` asks for {} bit/s, and its parent `{}` has {} left of {}",
                    child.name,
                    Rate::from_bps(wanted),
                    class.name,
                    Rate::from_bps(left),
                    own
                );
                let help = "the bandwidths of the children together must fit into the parent's";
                report.error(place, message, help);
                break;
            }
            left = left.saturating_sub(wanted);
        }
    }
    let controls: Vec<usize> =
        instance.members.iter().copied().filter(|&c| is_control(&interface.classes[c])).collect();
    if let [first, second, ..] = controls[..] {
        let (first, second) = (&interface.classes[first], &interface.classes[second]);
        let message = format!("`{}` is a second control class", second.name);
        report.error(
            second.place,
            message,
            format!("the first is `{}`: one takes all control traffic", first.name),
        );
    }
    let Some(default) = needs_control(shape, instance) else { return };
    let class = &interface.classes[default];
    if class.parent.is_none() {
        let message =
            format!("the root class `{}` is the default, and there is no control class", class.name);
        let help = format!("declare a default class below it, or a class `{CONTROL}`");
        report.error(class.place, message, help);
    } else if share(class, link) < control_share(link) {
        let message = format!(
            "default class `{}` has {} bit/s, and the control class takes {CONTROL_PERCENT} % of the link out of it",
            class.name,
            share(class, link)
        );
        let help =
            format!("give it `pbandwidth {CONTROL_PERCENT}` at least, or declare a class with `control`");
        report.error(class.place, message, help);
    }
}
