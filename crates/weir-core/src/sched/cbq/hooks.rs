//! What a configuration of CBQ must satisfy, and the control class that ALTQ makes by itself.

use crate::packet::Family;
use crate::queue::{Params, Value};
use crate::sched::hooks::{BroughtFilter, Finding, Setting, below, given, part_of};
use crate::sched::node::{ClassConfig, Node};
use crate::units::{Rate, mul_div};
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::vec::Vec;

/// The control class that is made by itself.
const CONTROL: &str = "ctl_class";
const CONTROL_PERCENT: u64 = 2;
const CONTROL_PRIORITY: u64 = 6;
/// ICMP, IGMP and RSVP in either family.
const CONTROL_PROTOCOLS: [(Family, u8); 6] =
    [(Family::V4, 1), (Family::V4, 2), (Family::V4, 46), (Family::V6, 58), (Family::V6, 2), (Family::V6, 46)];
/// The words that say a class's share.
const SHARE: [&str; 2] = ["exactbandwidth", "pbandwidth"];
/// What the control class has from the default class.
const INHERITED: [&str; 7] =
    ["borrow", "maxdelay", "maxburst", "minburst", "packetsize", "maxpacketsize", "admission"];

/// True for a class that takes control traffic.
fn is_control(class: &ClassConfig) -> bool {
    class.name == CONTROL || class.params.has("control")
}

/// What a class is allotted: `exactbandwidth`, else its part of the interface.
fn share(params: &Params, link: Rate) -> Rate {
    match (params.rate("exactbandwidth"), params.fraction("pbandwidth")) {
        (Some(rate), _) if !rate.is_zero() => rate,
        (_, Some(part)) => part_of(part, link),
        _ => Rate::ZERO,
    }
}

/// The bandwidth that the control class takes out of the default class.
fn control_share(link: Rate) -> Rate {
    Rate::from_bps(mul_div(link.as_bps(), CONTROL_PERCENT, 100))
}

/// The default class of the outermost CBQ, if a control class is to be made beside it.
fn needs_control(node: &Node, setting: &Setting) -> Option<usize> {
    if !setting.outermost || node.classes.iter().any(is_control) {
        return None;
    }
    node.classes.iter().position(|class| class.params.has("default"))
}

/// Makes the control class beside the default class, as ALTQ does: its borrowing and its measures
/// are those of the default class. Where there is no room for one, `check` refuses the node.
pub(super) fn lower(node: &mut Node, setting: &Setting) -> Vec<BroughtFilter> {
    if !setting.outermost {
        return Vec::new();
    }
    let made = needs_control(node, setting).filter(|&default| node.classes[default].parent.is_some());
    if let Some(default) = made {
        let control = control_class(&mut node.classes[default], setting.rate);
        node.classes.push(control);
    }
    let controls = node.classes.iter().enumerate().filter(|(_, class)| is_control(class));
    let filters = controls.flat_map(|(index, class)| {
        let beside = made.unwrap_or(index);
        CONTROL_PROTOCOLS.map(|(family, protocol)| BroughtFilter {
            class: class.name.clone(),
            beside,
            family,
            protocol,
        })
    });
    filters.collect()
}

/// The control class, whose share comes out of that of `default`.
fn control_class(default: &mut ClassConfig, link: Rate) -> ClassConfig {
    let mut params = Params::new();
    for name in INHERITED {
        if let Some(value) = default.params.get(name) {
            params.set(name, value.clone());
        }
    }
    params.set("priority", Value::Count(CONTROL_PRIORITY));
    params.set("exactbandwidth", Value::Rate(control_share(link)));
    params.set("control", Value::Flag);
    let rest = share(&default.params, link).as_bps().saturating_sub(control_share(link).as_bps());
    default.params.remove("pbandwidth");
    default.params.set("exactbandwidth", Value::Rate(Rate::from_bps(rest)));
    ClassConfig { name: CONTROL.to_owned(), parent: default.parent, params, queue: None }
}

/// Admission: children within their parent; the control class within the default class.
pub(super) fn check(node: &Node, setting: &Setting) -> Vec<Finding> {
    let mut found = Vec::new();
    children_fit(node, setting.rate, &mut found);
    let mut controls = node.classes.iter().enumerate().filter(|(_, class)| is_control(class));
    if let (Some((_, first)), Some((index, second))) = (controls.next(), controls.next()) {
        let message = format!("`{}` is a second control class", second.name);
        let help = format!("the first is `{}`: one takes all control traffic", first.name);
        found.push(Finding::error(Some(index), "", message, help));
    }
    if let Some(default) = needs_control(node, setting) {
        control_fits(&node.classes[default], default, setting.rate, &mut found);
    }
    doubtful(node, setting, &mut found);
    found
}

fn children_fit(node: &Node, link: Rate, found: &mut Vec<Finding>) {
    for (class, children) in node.classes.iter().zip(below(node)) {
        let own = share(&class.params, link);
        let mut left = own.as_bps();
        for index in children {
            let child = &node.classes[index];
            let wanted = share(&child.params, link).as_bps();
            // Percentages round to 2^-32 of the link: a few of these more are not more.
            if wanted > left.saturating_add(link.as_bps() >> 28).saturating_add(8) {
                let message = format!(
                    "class `{}` asks for {} bit/s, and its parent `{}` has {} left of {}",
                    child.name,
                    Rate::from_bps(wanted),
                    class.name,
                    Rate::from_bps(left),
                    own
                );
                let help = "the bandwidths of the children together must fit into the parent's";
                found.push(Finding::error(Some(index), given(&child.params, &SHARE), message, help));
                break;
            }
            left = left.saturating_sub(wanted);
        }
    }
}

fn control_fits(class: &ClassConfig, index: usize, link: Rate, found: &mut Vec<Finding>) {
    if class.parent.is_none() {
        let message =
            format!("the root class `{}` is the default, and there is no control class", class.name);
        let help = format!("declare a default class below it, or a class `{CONTROL}`");
        found.push(Finding::error(Some(index), "", message, help));
    } else if share(&class.params, link) < control_share(link) {
        let message = format!(
            "default class `{}` has {} bit/s, and the control class takes {CONTROL_PERCENT} % of the link out of it",
            class.name,
            share(&class.params, link)
        );
        let help =
            format!("give it `pbandwidth {CONTROL_PERCENT}` at least, or declare a class with `control`");
        found.push(Finding::error(Some(index), "", message, help));
    }
}

/// What is lawful and of no use.
fn doubtful(node: &Node, setting: &Setting, found: &mut Vec<Finding>) {
    let link = setting.rate;
    let root_is_limited = node.params.get("link-sharing") == Some(&Value::Word("ancestor-only"));
    for (index, class) in node.classes.iter().enumerate() {
        let share = share(&class.params, link);
        let borrows = class.params.has("borrow");
        let word = given(&class.params, &SHARE);
        if root_is_limited && class.parent.is_none() && !word.is_empty() && share < link {
            let root = format!(
                "the root class `{}` has {share} of {link} bit/s, and under ancestor-only",
                class.name
            );
            let (message, help) = match node.params.has("efficient") {
                false => (
                    "nobody borrows the rest",
                    "the link idles meanwhile: give the root `pbandwidth 100`; `efficient` would give the rest away",
                ),
                true => (
                    "the rest is given away as in ns-2",
                    "classes that may borrow can get less than their shares: for shares that hold, give the root `pbandwidth 100`",
                ),
            };
            found.push(Finding::warning(Some(index), word, format!("{root} {message}"), help));
        }
        if share > link {
            let message =
                format!("class `{}` is promised {share} bit/s, and the link has {link}", class.name);
            let help = "what is above the link is never there";
            found.push(Finding::warning(Some(index), given(&class.params, &SHARE), message, help));
        } else if share.is_zero() && !borrows {
            let message = format!("class `{}` has no bandwidth and may not borrow", class.name);
            let help = "it never sends: give it `pbandwidth` or `borrow`";
            found.push(Finding::warning(Some(index), "", message, help));
        }
        // The root of a CBQ inside a class stands below that class.
        if borrows && class.parent.is_none() && setting.outermost {
            let message = "the root class has no parent to borrow from".to_owned();
            found.push(Finding::warning(Some(index), "borrow", message, "take `borrow` away"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::testing::{class, node};
    use crate::units::Fraction;

    /// ALTQ makes a control class beside the default class of an interface. The queue of a class has none.
    #[test]
    fn only_an_interface_gets_a_control_class() {
        for outermost in [true, false] {
            let mut link = node("cbq", &[]);
            let half = Value::Fraction(Fraction::ratio(1, 2));
            link.classes.push(class("root", &[("pbandwidth", Value::Fraction(Fraction::ratio(1, 1)))]));
            link.classes.push(class("rest", &[("pbandwidth", half), ("default", Value::Flag)]));
            link.classes[1].parent = Some(0);
            let brought = lower(&mut link, &Setting { rate: Rate::from_mbps(10), outermost });
            let made = link.classes.iter().filter(|class| is_control(class)).count();
            assert_eq!((made, brought.len()), if outermost { (1, 6) } else { (0, 0) });
        }
    }
    #[test]
    fn a_class_without_bandwidth_is_warned_of_if_it_may_not_borrow() {
        for borrows in [false, true] {
            let mut link = node("cbq", &[]);
            link.classes.push(class("root", &[("pbandwidth", Value::Fraction(Fraction::ratio(1, 1)))]));
            let words: &[(&'static str, Value)] = if borrows { &[("borrow", Value::Flag)] } else { &[] };
            link.classes.push(class("rest", words));
            link.classes[1].parent = Some(0);
            let mut found = Vec::new();
            doubtful(&link, &Setting { rate: Rate::from_mbps(10), outermost: true }, &mut found);
            let warned = found.iter().any(|f| f.class == Some(1) && f.found.contains("no bandwidth"));
            assert_eq!(warned, !borrows, "{found:?}");
        }
    }
}
