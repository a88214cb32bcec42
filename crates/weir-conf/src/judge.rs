//! What is lawful in a plan and yet may not be as its writer thinks: for `weir check`.

use crate::build::Regulator;
use crate::hooks;
use crate::plan::{Attach, Fail, Given, Interface, Options, Plan};
use crate::precedence;
use crate::report::Report;
use crate::rules;
use crate::tree::{Instance, Shape};
use std::collections::{HashMap, HashSet};
use weir_core::aqm::AqmEntry;
use weir_core::queue::{Bound, Value};
use weir_core::sched::{Classes, Registry};
use weir_text::{Diagnostic, Place};

/// A full Ethernet frame, layer-2 header included.
const ETHERNET_FRAME: u32 = 1_514;

/// Everything that can be said against a plan, errors first: those that [`crate::read`] refuses
/// a file for (a plan may also come from a program), and warnings beyond what reading gave.
pub fn judge(plan: &Plan, registry: &Registry) -> Vec<Diagnostic> {
    let mut said = rules::errors(plan, registry, &|_| false);
    said.extend(doubts(plan, registry));
    said.sort_by_key(|d| (d.severity, d.line, d.column));
    said
}

/// What [`judge`] says of a plan that [`crate::read`] has accepted.
pub fn doubts(plan: &Plan, registry: &Registry) -> Vec<Diagnostic> {
    let mut report = Report::new(&plan.source);
    if plan.interfaces.is_empty() {
        let help = "write one, as in `interface em0 bandwidth 10M fifoq`";
        report.error(Place::default(), "the file declares no interface", help);
    }
    let by_name: HashMap<&str, &Interface> =
        plan.interfaces.iter().rev().map(|i| (i.name.as_str(), i)).collect();
    for interface in &plan.interfaces {
        let shape = Shape::of(interface, registry);
        let targets: HashSet<&str> = interface.filters.iter().map(|f| f.class.as_str()).collect();
        for instance in &shape.instances {
            judge_discipline(&mut report, &shape, &targets, instance);
        }
        idle_options(&mut report, &shape, registry);
        idle_tuning(&mut report, &shape, registry);
        ecn(&mut report, interface);
        precedence::warnings(&mut report, &shape);
        empty(&mut report, interface);
        bucket(&mut report, interface);
        bridge(&mut report, &by_name, interface);
        crate::edge::judge(&mut report, plan, interface, false);
    }
    failing(&mut report, plan, &by_name);
    crate::edge::judge_brokers(&mut report, plan);
    report.said.extend(plan.bridges().err().unwrap_or_default());
    report.said.sort_by_key(|d| (d.severity, d.line, d.column));
    report.said
}

/// `targets` are the names that filters of the interface lead to.
fn judge_discipline(
    report: &mut Report<'_>,
    shape: &Shape<'_>,
    targets: &HashSet<&str>,
    instance: &Instance<'_>,
) {
    if let Some(options) = instance.options {
        let limit = count(options, "qlimit").or(default_of(instance, "qlimit"));
        limit.into_iter().for_each(|limit| in_queue(report, options, limit));
    }
    hooks::warnings(report, shape, instance);
    let Some(owner) = instance.owner.filter(|_| instance.entry.classes != Classes::None) else { return };
    let class = &shape.interface.classes[owner];
    let used = class.options.has("default") || targets.contains(class.name.as_str());
    if used && instance.knows_default() && instance.default.is_none() && instance.members.len() > 1 {
        let first = &shape.interface.classes[shape.landing(owner)].name;
        let message = format!("no class below `{}` is the default", class.name);
        let help =
            format!("what is sent to `{}` itself goes to `{first}`: write `default` on one", class.name);
        report.warn(class.place, message, help);
    }
}

fn count(options: &Options, name: &str) -> Option<u64> {
    options.params().count(name)
}

fn default_of(instance: &Instance<'_>, name: &str) -> Option<u64> {
    let spec = instance.entry.params().find(|p| p.name == name)?;
    spec.default.parse().ok()
}

/// Thresholds that a queue never reaches.
fn in_queue(report: &mut Report<'_>, options: &Options, limit: u64) {
    for given in options.iter().filter(|given| given.spec.bounds.contains(&Bound::InQueue)) {
        if let Value::Count(threshold) = given.value
            && threshold > limit
        {
            let message = format!("`{} {threshold}` is above the queue's {limit} packets", given.spec.name);
            report.warn(given.place, message, "a threshold that is never reached; the queue is made longer");
        }
    }
}

/// False where the classes below, or a discipline of its own, take the place of a class's queue.
fn has_own_queue(shape: &Shape<'_>, class: usize) -> bool {
    let of = shape.member_of[class].map(|i| &shape.instances[i]);
    let branch = of.is_some_and(|o| o.only_leaves_queue()) && !shape.below[class].is_empty();
    shape.queue[class].is_none() && !branch
}

/// Options about a class's own queue, where the classes below take its place.
fn idle_options(report: &mut Report<'_>, shape: &Shape<'_>, registry: &Registry) {
    for (index, class) in shape.interface.classes.iter().enumerate() {
        if has_own_queue(shape, index) {
            continue;
        }
        for given in class.options.iter().filter(|g| registry.is_about_queue(g.spec.name)) {
            let message =
                format!("`{}` does nothing: class `{}` has no queue of its own", given.spec.name, class.name);
            report.warn(given.place, message, "write it on the classes below");
        }
    }
}

/// Words that tune an AQM which the class does not have: lawful, so that an AQM can be taken away
/// and put back by its one word, but nothing that anybody should believe to work.
fn idle_tuning(report: &mut Report<'_>, shape: &Shape<'_>, registry: &Registry) {
    for (index, class) in shape.interface.classes.iter().enumerate() {
        if !has_own_queue(shape, index) {
            continue;
        }
        // Flags that contradict each other are an error elsewhere.
        let Ok(aqm) = registry.aqm_of_class(&class.name, &class.options.params()) else { continue };
        let takes = |aqm: &AqmEntry, word: &str| aqm.is_for_classes() && aqm.class_param(word).is_some();
        for given in &tuning(registry, &class.options) {
            let word = given.spec.name;
            if aqm.is_some_and(|aqm| takes(aqm, word)) {
                continue;
            }
            let queue = match aqm {
                Some(aqm) => format!("has {}", aqm.name),
                None => "drops from the tail".to_string(),
            };
            let message = format!("`{word}` does nothing: the queue of class `{}` {queue}", class.name);
            let names: Vec<&str> =
                registry.aqms().filter(|aqm| takes(aqm, word)).map(|aqm| aqm.name).collect();
            let help = format!("give the class {}, which it belongs to, or take it away", names.join(" or "));
            report.warn(given.place, message, help);
        }
    }
}

/// Options that say nothing by themselves: they tune the AQM that a class has.
fn tuning<'a>(registry: &Registry, options: &'a Options) -> Vec<&'a Given> {
    let tunes = |given: &&Given| {
        let declared =
            |aqm: &AqmEntry| aqm.class_param(given.spec.name).is_some_and(|p| p.help == given.spec.help);
        let asks = |aqm: &AqmEntry| aqm.asks(given.spec.name);
        registry.aqms().any(declared) && !registry.aqms().any(asks)
    };
    options.iter().filter(tunes).collect()
}

/// ECN where filters use its bits as code points.
fn ecn(report: &mut Report<'_>, interface: &Interface) {
    if !interface.ecn_is_off() {
        return;
    }
    let own = interface.discipline.iter().map(|q| &q.options);
    let classes = interface.classes.iter().map(|c| &c.options);
    let queues = interface.classes.iter().filter_map(|c| c.queue.as_ref()).map(|q| &q.options);
    for given in own.chain(classes).chain(queues).filter_map(|o| o.get("ecn")) {
        let message = "`ecn` does nothing: filters of this interface ask for the ECN bits";
        report.warn(given.place, message, "ask for the code point with `dscp` instead of `tos`");
    }
}

fn empty(report: &mut Report<'_>, interface: &Interface) {
    if interface.discipline.is_none()
        && interface.conditioners.is_empty()
        && interface.bandwidth.is_none()
        && !interface.has_edge()
    {
        let message = format!("interface `{}` has neither discipline nor conditioner", interface.name);
        report.warn(interface.place, message, "its packets pass as they come");
    }
}

/// A token bucket in which a late wake-up finds no room.
fn bucket(report: &mut Report<'_>, interface: &Interface) {
    let link = interface.link(ETHERNET_FRAME);
    let least = 2 * link.cost_bytes(link.mtu);
    if let Some(bytes) = interface.tbrsize.filter(|&bytes| bytes < least) {
        let automatic = Regulator::new(link.rate, &link, None).depth_bytes;
        let message = format!("`tbrsize {bytes}` is less than two full frames, which take {least} bytes");
        let help = format!(
            "what does not fit when Weir wakes up late is lost: take `tbrsize` away, for {automatic}"
        );
        report.warn(interface.place, message, help);
    }
}

/// `fail` and `workers` are about a bridge, and its two ports say the same.
fn failing(report: &mut Report<'_>, plan: &Plan, by_name: &HashMap<&str, &Interface>) {
    let (pairs, _) = plan.pairs();
    let peers: HashMap<&str, &str> = pairs.iter().flat_map(|&[a, b]| [(a, b), (b, a)]).collect();
    for interface in &plan.interfaces {
        let peer = peers.get(interface.name.as_str());
        if interface.workers.is_some_and(|workers| workers > 1)
            && peer.is_none()
            && interface.attach == Attach::Unsaid
        {
            let message = format!("`workers` of interface `{}` is about no bridge", interface.name);
            report.warn(interface.place, message, "write `attach bridge PEER` beside it, or take it away");
        }
        let Some(fail) = interface.fail else { continue };
        let other = peer.and_then(|peer| by_name.get(peer));
        if peer.is_none() {
            let message = format!("`fail` of interface `{}` is about no bridge", interface.name);
            report.warn(interface.place, message, "write `attach bridge PEER` beside it, or take it away");
        } else if fail == Fail::Open && other.is_some_and(|other| other.fail == Some(Fail::Closed)) {
            let message = format!("`{}` says `fail open`, and the other port `fail closed`", interface.name);
            report.error(interface.place, message, "say the same of both, or say it of one");
        }
    }
}

/// The ports of a bridge are attached in the same way.
fn bridge(report: &mut Report<'_>, by_name: &HashMap<&str, &Interface>, interface: &Interface) {
    if let Attach::Bridge(peer) = &interface.attach
        && let Some(other) = by_name.get(peer.as_str())
        && other.attach == Attach::Nfqueue
    {
        let message = format!("`{}` is bridged to `{peer}`, which is attached to nfqueue", interface.name);
        report.error(interface.place, message, "attach both in the same way");
    }
    if let Attach::Bridge(peer) = &interface.attach
        && let Some(other) = by_name.get(peer.as_str())
        && interface.place.line < other.place.line
        && other.xdp.zip(interface.xdp).is_some_and(|(theirs, own)| theirs != own)
    {
        let message = format!("`{}` and `{peer}` say different things of `xdp`", interface.name);
        report.error(interface.place, message, "say the same of both ports of a bridge, or say it of one");
    }
}
