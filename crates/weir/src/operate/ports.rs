//! From a plan to what stands at the egresses of a bridge, and from two plans to what changes there.

use crate::commands::{Failure, conf};
use std::collections::HashMap;
use weir_conf::plan::{Class, Interface, Options};
use weir_conf::{EdgePlan, Loans, Plan};
use weir_core::classify::Classifier;
use weir_core::port::{Port, PortConfig, PortPlan, WireConfig};
use weir_core::queue::{Link, Params, Scope, Value};
use weir_core::sched::{Node, Registry};
use weir_engine::Change;
use weir_engine::door::doors;
use weir_engine::up::NFQUEUE;

/// Bytes of an Ethernet header: a frame's length counts it, an interface's MTU does not.
const LAYER_2: u32 = 14;

/// The pairs of interfaces that a plan bridges, and those whose egress the packet filter hands over,
/// each behind [`NFQUEUE`]: at least one.
pub fn bridges(plan: &Plan) -> Result<Vec<[&str; 2]>, Failure> {
    let mut pairs = plan.bridges().map_err(|refused| {
        let all: Vec<String> = refused.iter().map(ToString::to_string).collect();
        Failure::usage(all.join("\n"))
    })?;
    if let Some(both) = plan.queues().find(|queue| pairs.iter().flatten().any(|name| name == queue)) {
        return Err(Failure::usage(format!(
            "interface {both} says `attach nfqueue`, and is a port of a bridge: write one of the two"
        )));
    }
    pairs.extend(plan.queues().map(|interface| [NFQUEUE, interface]));
    if pairs.is_empty() {
        return Err(Failure::usage(
            "no interface says `attach bridge PEER` or `attach nfqueue`: write it behind the interface's discipline, PEER being the other port of the bridge",
        ));
    }
    Ok(pairs)
}

/// One side of a bridge in a plan: an interface whose egress may be managed, and its peer.
#[derive(Clone, Copy)]
pub struct Side<'p> {
    pub plan: &'p Plan,
    pub name: &'p str,
    pub peer: &'p str,
}

/// What a port runs, its link, and what stands before it.
pub struct Ready {
    pub link: Link,
    pub plan: PortPlan,
    /// Where several workers run the port, each a part: the plans of all but the first.
    pub others: Vec<PortPlan>,
    pub edge: Option<EdgePlan>,
}

impl Ready {
    /// The plans of its parts as changes; of a port that is whole, the one.
    pub fn changes(self) -> Vec<Change> {
        std::iter::once(self.plan).chain(self.others).map(|plan| Change::Plan(Box::new(plan))).collect()
    }
    /// The same as ports of their own.
    pub fn ports(self, seed: u64) -> Vec<Change> {
        let Ready { link, plan, others, .. } = self;
        let all = std::iter::once(plan).chain(others);
        all.map(|plan| Change::Port(Some(Box::new(port(link, plan, seed))))).collect()
    }
}

impl<'p> Side<'p> {
    fn declared(&self, name: &str) -> Option<&'p Interface> {
        self.plan.interfaces.iter().find(|i| i.name == name)
    }

    /// The interface whose line in the file says what manages this egress; `None` if nothing does.
    pub fn described_by(&self) -> Option<&'p str> {
        if self.name == NFQUEUE {
            return None;
        }
        match (self.declared(self.name), self.declared(self.peer)) {
            (Some(_), _) => Some(self.name),
            // What enters by the peer is conditioned, though nothing is said about where it leaves.
            (None, Some(entrance)) if !entrance.conditioners.is_empty() => Some(self.peer),
            _ => None,
        }
    }

    /// What stands at its egress; `None` where traffic is forwarded plainly. `mtu` is that of the
    /// interface that describes it.
    pub fn ready(&self, registry: &Registry, mtu: u32) -> Result<Option<Ready>, Failure> {
        let Some(name) = self.described_by() else { return Ok(None) };
        let view = self.plan.interface(name).map_err(Failure::usage)?;
        let link = view.link(mtu + LAYER_2);
        let parts = view.parts();
        if name == self.name && parts > 1 {
            let borrow =
                |loans: &Loans| doors(&loans.link, loans.parts, loans.quantum_bytes, loans.depth_bytes);
            let built = view.build_parts(registry, link, borrow).map_err(Failure::usage)?;
            let mut plans = Vec::new();
            for built in built {
                built.warnings.iter().for_each(|warning| eprintln!("{warning}"));
                plans.push(built.port_plan(link));
            }
            let others = plans.split_off(1);
            return Ok(plans.pop().map(|plan| Ready { link, plan, others, edge: None }));
        }
        if name == self.name {
            let (built, link) = conf::build(self.plan, name, registry, Some(link))?;
            // Its port knows the seed.
            let edge = view.edge(registry, &built.tree.leaves, 0).map_err(Failure::usage)?;
            return Ok(Some(Ready { link, plan: built.port_plan(link), others: Vec::new(), edge }));
        }
        let plain = Node { discipline: "fifoq".into(), ..Node::default() };
        let tree = registry.build(&plain, link).map_err(Failure::usage)?;
        let conditioners = view.conditioners().map_err(Failure::usage)?;
        let regulated = Some((link, WireConfig::Open));
        let plan = PortPlan { conditioners, regulated, ..PortPlan::new(tree, Classifier::empty()) };
        Ok(Some(Ready { link, plan, others: Vec::new(), edge: None }))
    }

    /// All that a plan says about this side. What becomes of the traffic without Weir, and who runs it, is no matter
    /// of a port.
    fn said(&self) -> impl PartialEq + use<'p> {
        let own = self.declared(self.name).map(bare);
        let entrance = self.declared(self.peer).map(|i| (&i.conditioners, &i.filters));
        let plan = self.plan;
        (own, entrance, &plan.red, &plan.rio)
    }

    /// All that a plan says about the edge before its port.
    fn said_of_edge(&self) -> impl PartialEq + use<'p> {
        let own = self.declared(self.name).map(|i| {
            // How the rate of each class is set.
            let set = i.allocations.iter().map(|line| {
                let class = i.class(&line.class);
                class.map(|c| (&c.discipline, ["ul", "rt"].map(|option| c.options.has(option))))
            });
            // Without an allocation the link is the limit.
            let bandwidth = i.allocations.is_empty().then_some(i.bandwidth);
            (bandwidth, i.overhead, &i.allocations, set.collect::<Vec<_>>())
        });
        let entrance = self.plan.interface(self.name).ok().map(|view| {
            let entrance = view.entrance();
            (entrance.recognise.clone(), entrance.slas.clone())
        });
        (own, entrance)
    }

    /// True if the other plan says the same about the edge before its port.
    pub fn has_edge_as(&self, other: &Side<'_>) -> bool {
        let theirs = Side { plan: other.plan, name: other.name, peer: other.peer };
        self.said_of_edge() == theirs.said_of_edge()
    }

    /// True if a leaf of the old plan is to be in another part of the port, or in none, so that its packets cannot stay:
    /// only one part has the default class.
    pub fn moves_leaves(&self, old: &Side<'_>, registry: &Registry, link: Link) -> bool {
        let parts = |side: &Side<'_>| {
            let (_, parts) = side.plan.interface(side.name).ok()?.cut(registry, link).ok()?;
            let numbered =
                (0..).zip(parts).flat_map(|(part, leaves)| leaves.into_iter().map(move |leaf| (leaf, part)));
            Some(numbered.collect::<HashMap<String, usize>>())
        };
        let (Some(before), Some(after)) = (parts(old), parts(self)) else { return true };
        before.iter().any(|(leaf, part)| after.get(leaf) != Some(part))
    }

    /// True if the other plan says the same about it, but for the edge.
    pub fn is_as(&self, other: &Side<'_>) -> bool {
        // Both borrow from plans that live as long as this call.
        let theirs = Side { plan: other.plan, name: other.name, peer: other.peer };
        self.said() == theirs.said()
    }

    /// The parameters of classes by which this side differs from what it was, if it differs in
    /// nothing else and none was taken away: a running port can change them in place.
    pub fn params_since(&self, old: &Side<'_>, registry: &Registry) -> Option<Vec<(String, Params)>> {
        let bare = |side: &Side<'_>| side.declared(side.name).map(skeleton);
        let globals = |side: &Side<'_>| (side.plan.red, side.plan.rio);
        let entrance =
            |side: &Side<'_>| side.declared(side.peer).map(|i| (i.conditioners.clone(), i.filters.clone()));
        if bare(self)? != bare(old)? || globals(self) != globals(old) || entrance(self) != entrance(old) {
            return None;
        }
        let node = |side: &Side<'_>| side.plan.interface(side.name).ok().map(|view| view.node(registry));
        let mut changed = Vec::new();
        params(&mut changed, registry, "", &node(old)?, &node(self)?)?;
        Some(changed)
    }
}

/// An interface without what is no matter of its port.
fn bare(interface: &Interface) -> Interface {
    let (recognise, slas, allocations) = Default::default();
    Interface { fail: None, workers: None, recognise, slas, allocations, ..interface.clone() }
}

/// An interface without the options of its disciplines and classes.
fn skeleton(interface: &Interface) -> Interface {
    let mut bare = bare(interface);
    let clear = |options: &mut Options| *options = Options::new();
    bare.discipline.iter_mut().for_each(|queue| clear(&mut queue.options));
    for Class { options, queue, .. } in &mut bare.classes {
        clear(options);
        queue.iter_mut().for_each(|queue| clear(&mut queue.options));
    }
    bare
}

/// Collects what changed in a discipline that is the queue of class `of`; `None` if that is more
/// than values of parameters.
fn params(
    changed: &mut Vec<(String, Params)>,
    registry: &Registry,
    of: &str,
    old: &Node,
    new: &Node,
) -> Option<()> {
    let same_classes = old.classes.len() == new.classes.len()
        && old.classes.iter().zip(&new.classes).all(|(a, b)| (&a.name, a.parent) == (&b.name, b.parent));
    if old.discipline != new.discipline || !same_classes {
        return None;
    }
    let own = values(&old.params, &new.params)?;
    // A port divides its room among classes by their limits, which follow this one where it is that of several
    // classes, or one in bytes: only a new tree says how.
    if own.has("qsize") || (own.has("qlimit") && !new.classes.is_empty()) {
        return None;
    }
    note(changed, of, own);
    let entry = registry.find(&new.discipline)?;
    for (before, after) in old.classes.iter().zip(&new.classes) {
        note(changed, &after.name, values(&before.params, &after.params)?);
        match (&before.queue, &after.queue) {
            (None, None) => {}
            (Some(old), Some(new)) => {
                // A word that the class knows too would be taken for the class's.
                let own = values(&old.params, &new.params)?;
                if own.iter().any(|(name, _)| entry.param(Scope::Class, name).is_some()) {
                    return None;
                }
                params(changed, registry, &after.name, old, new)?;
            }
            _ => return None,
        }
    }
    Some(())
}

fn note(changed: &mut Vec<(String, Params)>, class: &str, params: Params) {
    if params.iter().next().is_some() {
        changed.push((class.to_string(), params));
    }
}

/// The parameters whose values differ; `None` if one came or went, or if it says how to build.
fn values(old: &Params, new: &Params) -> Option<Params> {
    if old.iter().count() != new.iter().count() {
        return None;
    }
    let mut changed = Params::new();
    for (name, value) in new.iter() {
        let before = old.iter().find(|(other, _)| *other == name)?.1;
        if before != value {
            if matches!(value, Value::Word(_) | Value::Flag) {
                return None;
            }
            changed.set(name, value.clone());
        }
    }
    Some(changed)
}

/// A seed of its own for each port: with one that is known, anybody could compute source ports whose flows
/// share a queue with a victim's.
pub fn seed() -> Result<u64, Failure> {
    weir_sys::random_seed().map_err(|e| Failure::failed(format!("a random seed: {e}")))
}

/// A port that runs what is ready.
pub fn port(link: Link, plan: PortPlan, seed: u64) -> Port {
    Port::new(PortConfig { seed, ..PortConfig::new(link, WireConfig::Open) }, plan)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A class that goes, or goes to another part, has packets that cannot stay; one that comes has none.
    #[test]
    fn leaves_that_go_or_change_their_part_move() {
        let registry = Registry::builtin();
        let plan = |classes: &[(&str, u32)]| {
            let mut text = String::from("interface e0 bandwidth 10M hfsc attach bridge e1 workers 3\n");
            for (name, share) in classes {
                let default = if *name == "rest" { " default" } else { "" };
                text += &format!("class hfsc e0 {name} root pshare {share}{default}\n");
            }
            weir_conf::read("a.altq", &text, &registry).into_result().unwrap()
        };
        let moves = |old: &[(&str, u32)], new: &[(&str, u32)]| {
            let (old, new) = (plan(old), plan(new));
            let side = |plan| Side { plan, name: "e0", peer: "e1" };
            let link = new.interface("e0").unwrap().link(1_514);
            side(&new).moves_leaves(&side(&old), &registry, link)
        };
        let all = [("voice", 40), ("bulk", 30), ("rest", 20), ("more", 10)];
        assert!(!moves(&all, &all));
        let cut = plan(&all)
            .interface("e0")
            .unwrap()
            .cut(&registry, plan(&all).interface("e0").unwrap().link(1_514));
        let parts = cut.unwrap().1;
        assert!(parts.iter().any(|part| *part == ["rest", "more"]), "{parts:?}");
        assert!(!moves(&all[..3], &all), "one comes");
        assert!(moves(&all, &all[..3]), "one goes");
        let exchanged = [("voice", 10), ("bulk", 30), ("rest", 20), ("more", 40)];
        assert!(moves(&all, &exchanged), "two change their parts");
    }

    /// A limit of several classes, and one in bytes, change how a port's room is divided, which a change in place
    /// does not; one of a single class does.
    #[test]
    fn a_limit_that_divides_the_room_anew_is_not_changed_in_place() {
        let registry = Registry::builtin();
        let plan = |text: &str| weir_conf::read("a.altq", text, &registry).into_result().unwrap();
        let in_place = |old: &str, new: &str| {
            let (old, new) = (plan(old), plan(new));
            let side = |plan| Side { plan, name: "e0", peer: "e1" };
            side(&new).params_since(&side(&old), &registry).is_some()
        };
        let jobs = |qlimit: u32| {
            format!(
                "interface e0 bandwidth 10M jobs qlimit {qlimit}\nclass jobs e0 a NULL priority 0 adc 5ms\n\
                 class jobs e0 b NULL priority 1 default\n"
            )
        };
        assert!(!in_place(&jobs(800), &jobs(900)));
        let priq = |queue: &str| {
            format!(
                "interface e0 bandwidth 10M priq\nclass priq e0 a NULL priority 1 {queue}\n\
                 class priq e0 b NULL priority 0 default\n"
            )
        };
        assert!(in_place(&priq("qlimit 80"), &priq("qlimit 90")));
        assert!(!in_place(&priq("wfq qsize 80000"), &priq("wfq qsize 90000")));
    }
}
