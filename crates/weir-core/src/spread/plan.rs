//! Which subtree goes to which part, and which trees stay whole.
//!
//! Principle: subtrees are given out one by one, the greatest share first, each to the part that has least so
//! far. A tree is cut only where the laws hold: each class at the root has one share, a class that has packets
//! may send at any time, and what is owed in real time is within what the share guarantees.

use super::{Cut, Share, Shares};
use crate::queue::{Link, ParamError, Scope};
use crate::sched::{ClassConfig, Classes, Entry, Node, Registry};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;

/// One part of a tree that was cut.
#[derive(Clone, Debug)]
pub struct PartPlan {
    /// Its discipline, with the classes that it has.
    pub node: Node,
    /// The shares of its classes at the root, in the order of the file.
    pub shares: Vec<Share>,
    /// Of each of its leaves: the class at the root that it lies below.
    pub class_of_leaf: Vec<u32>,
    /// Words of classes that say how they share, and stay as they are while the part runs.
    pub fixed: Vec<&'static str>,
}

/// Cuts a tree into so many parts between the classes at its root.
///
/// # Errors
/// Why it cannot be cut, about which class and which word.
pub fn cut(registry: &Registry, root: &Node, link: Link, parts: usize) -> Result<Vec<PartPlan>, ParamError> {
    let shares = shares_of(registry, root)?;
    registry.check(root, link)?;
    let at_root: Vec<usize> = at_root(root).collect();
    if parts == 0 || parts > at_root.len() {
        let expected = format!("1 to {}: each has a class at the root at least", at_root.len());
        return Err(ParamError::new("", "parts", parts, expected));
    }
    let shares = shares(root, &link)?;
    is_guaranteed(root, &at_root, &shares, &link)?;
    let mut fixed = Vec::new();
    never_waits(registry, root, &link, &mut fixed)?;
    let part_of_root = assign(root, &at_root, &shares, parts);
    // Where each class at the root stands among those.
    let mut among = alloc::vec![0; root.classes.len()];
    at_root.iter().enumerate().for_each(|(at, &index)| among[index] = at);
    let mut part_of = alloc::vec![0; root.classes.len()];
    let mut plans: Vec<PartPlan> = (0..parts)
        .map(|_| PartPlan {
            node: Node { classes: Vec::new(), ..root.clone() },
            shares: Vec::new(),
            class_of_leaf: Vec::new(),
            fixed: fixed.clone(),
        })
        .collect();
    // The new number of each class in its part, and of the class at the root above it.
    let (mut number, mut top) = (part_of.clone(), part_of.clone());
    let mut above = alloc::vec![BTreeMap::new(); parts];
    for (index, class) in root.classes.iter().enumerate() {
        let part = match class.parent {
            Some(parent) => part_of[parent],
            None => part_of_root[among[index]],
        };
        let plan = &mut plans[part];
        (part_of[index], number[index]) = (part, plan.node.classes.len());
        top[index] = match class.parent {
            Some(parent) => top[parent],
            None => plan.shares.len(),
        };
        if class.parent.is_none() {
            plan.shares.push(shares[among[index]]);
        }
        name_below(class, top[index] as u32, &mut above[part]);
        let parent = class.parent.map(|parent| number[parent]);
        plan.node.classes.push(ClassConfig { parent, ..class.clone() });
    }
    for (plan, above) in plans.iter_mut().zip(&above) {
        let leaves = registry.check(&plan.node, link)?.leaves;
        plan.class_of_leaf =
            leaves.iter().map(|leaf| above.get(leaf.name.as_str()).copied().unwrap_or(0)).collect();
    }
    Ok(plans)
}

/// The classes at the root of `node`.
fn at_root(node: &Node) -> impl Iterator<Item = usize> {
    node.classes.iter().enumerate().filter(|(_, class)| class.parent.is_none()).map(|(index, _)| index)
}

/// Which class at the root the leaves of a class lie below, by their names.
fn name_below<'n>(class: &'n ClassConfig, top: u32, above: &mut BTreeMap<&'n str, u32>) {
    above.insert(&class.name, top);
    for inner in class.queue.iter().flat_map(|queue| &queue.classes) {
        name_below(inner, top, above);
    }
}

fn known<'r>(registry: &'r Registry, node: &Node) -> Result<&'r Entry, ParamError> {
    let unknown =
        || ParamError::new("", "discipline", &node.discipline, "a name that `weir disciplines` lists");
    registry.find(&node.discipline).ok_or_else(unknown)
}

/// How the discipline at the root tells its shares.
fn shares_of(registry: &Registry, root: &Node) -> Result<Shares, ParamError> {
    let entry = known(registry, root)?;
    let why = match entry.cut {
        _ if entry.classes == Classes::None => "it has no classes",
        Cut::ByShares(shares) => return Ok(shares),
        Cut::Whole(why) => why,
    };
    let expected = format!("a discipline whose classes can go to several cores: {why}");
    Err(ParamError::new("", "discipline", entry.name, expected))
}

/// What a subtree is owed must be within what its share comes to when all classes have packets.
fn is_guaranteed(root: &Node, at_root: &[usize], shares: &[Share], link: &Link) -> Result<(), ParamError> {
    let whole: u128 = shares.iter().map(|share| u128::from(share.weight.as_bps())).sum();
    for (&class, share) in at_root.iter().zip(shares) {
        let guaranteed = u128::from(link.rate.as_bps()) * u128::from(share.weight.as_bps());
        if u128::from(share.owed.as_bps()) * whole > guaranteed {
            let name = &root.classes[class].name;
            let expected = format!(
                "real-time rates below it of {} at most: that is its share of the link, and a part has no more for sure",
                crate::units::Rate::from_bps((guaranteed / whole.max(1)) as u64)
            );
            return Err(ParamError::new(name, "rt", share.owed, expected));
        }
    }
    Ok(())
}

/// No discipline of the tree may let packets wait that have their turn. Collects the words by which classes share.
fn never_waits(
    registry: &Registry,
    node: &Node,
    link: &Link,
    fixed: &mut Vec<&'static str>,
) -> Result<(), ParamError> {
    let entry = known(registry, node)?;
    if let Cut::ByShares(shares) = entry.cut {
        shares(node, link)?;
        let words = entry.params().filter(|spec| spec.scope == Scope::Class).map(|spec| spec.name);
        fixed.extend(words.filter(|word| !registry.is_about_queue(word)));
        fixed.sort_unstable();
        fixed.dedup();
    }
    for class in &node.classes {
        let Some(queue) = &class.queue else { continue };
        let inner = known(registry, queue)?;
        if !inner.work_conserving && matches!(inner.cut, Cut::Whole(_)) {
            let expected = "a queue whose packets may go at any time: those of this one may have to wait";
            return Err(ParamError::new(&class.name, "queue", inner.name, expected));
        }
        never_waits(registry, queue, link, fixed)?;
    }
    Ok(())
}

/// The part of each class at the root: the greatest first, each to the part that has least, by share and then by
/// classes.
fn assign(root: &Node, at_root: &[usize], shares: &[Share], parts: usize) -> Vec<usize> {
    let mut below = alloc::vec![1u64; root.classes.len()];
    for (index, class) in root.classes.iter().enumerate().rev() {
        if let Some(parent) = class.parent {
            below[parent] += below[index];
        }
    }
    let size = |at: usize| (u128::from(shares[at].weight.as_bps()), below[at_root[at]]);
    let mut order: Vec<usize> = (0..at_root.len()).collect();
    order.sort_by_key(|&at| core::cmp::Reverse(size(at)));
    let (mut load, mut part_of) = (alloc::vec![(0u128, 0u64); parts], alloc::vec![0; at_root.len()]);
    for at in order {
        let (part, least) = load.iter_mut().enumerate().min_by_key(|(_, load)| **load).expect("a part");
        *least = (least.0 + size(at).0, least.1 + size(at).1);
        part_of[at] = part;
    }
    part_of
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::{Curve, Params, Value};
    use crate::sched::testing::{class, node};
    use crate::units::{Duration, Fraction, Rate};
    use std::string::{String, ToString};

    const LINK: Rate = Rate::from_mbps(100);

    fn link() -> Link {
        Link::new(LINK, 24, 1_514)
    }
    fn ls(mbps: u64) -> (&'static str, Value) {
        let rate = Rate::from_mbps(mbps);
        ("ls", Value::Curve(Curve { m1: rate, d: Duration::ZERO, m2: rate }))
    }
    fn below(parent: usize, class: ClassConfig) -> ClassConfig {
        ClassConfig { parent: Some(parent), ..class }
    }
    /// `a` of 60 with `a0` and `a1` below it, `b` of 30 with four PRIQ levels, `c` of 25, `d` of 10.
    fn tree() -> Node {
        let mut root = node("hfsc", &[]);
        root.classes.push(class("a", &[ls(60)]));
        root.classes.push(class("b", &[ls(30)]));
        root.classes.push(below(0, class("a0", &[ls(1)])));
        root.classes.push(class("c", &[ls(25)]));
        root.classes.push(below(0, class("a1", &[ls(2)])));
        root.classes.push(class("d", &[ls(10), ("default", Value::Flag)]));
        let mut priq = node("priq", &[]);
        for level in 0..4 {
            priq.classes
                .push(class(["b0", "b1", "b2", "b3"][level], &[("priority", Value::Count(level as u64))]));
        }
        root.classes[1].queue = Some(priq);
        root
    }
    fn refusal(root: &Node, parts: usize) -> String {
        let cut = cut(&Registry::builtin(), root, link(), parts);
        cut.map_or_else(|error| error.to_string(), |plans| std::format!("{} parts", plans.len()))
    }

    #[test]
    fn each_part_has_about_as_much_and_keeps_its_subtrees() {
        let plans = cut(&Registry::builtin(), &tree(), link(), 2).expect("it can be cut");
        let names = |plan: &PartPlan| -> std::vec::Vec<String> {
            plan.node.classes.iter().map(|class| class.name.clone()).collect()
        };
        assert_eq!(names(&plans[0]), ["a", "a0", "a1"]);
        assert_eq!(names(&plans[1]), ["b", "c", "d"], "30, 25 and 10 against 60");
        assert_eq!(
            plans[0].node.classes.iter().map(|c| c.parent).collect::<Vec<_>>(),
            [None, Some(0), Some(0)]
        );
        assert_eq!(plans[0].class_of_leaf, [0, 0]);
        assert_eq!(plans[1].class_of_leaf, [0, 0, 0, 0, 1, 2]);
        assert_eq!(
            plans[1].shares.iter().map(|s| s.weight).collect::<Vec<_>>(),
            [30, 25, 10].map(Rate::from_mbps)
        );
        for word in ["ls", "ul", "priority"] {
            assert!(plans[1].fixed.contains(&word), "{word}");
        }
        assert!(!plans[1].fixed.contains(&"qlimit"));
        // One part is the whole tree.
        let whole = cut(&Registry::builtin(), &tree(), link(), 1).expect("it can be cut");
        assert_eq!(whole[0].node, tree());
    }

    #[test]
    fn what_cannot_be_cut_is_refused_with_its_reason() {
        assert_eq!(refusal(&tree(), 4), "4 parts");
        assert_eq!(
            refusal(&tree(), 5),
            "parts: found 5, expected 1 to 4: each has a class at the root at least"
        );
        let whole = |word: &str, classes: &[ClassConfig]| {
            let mut root = node(word, &[]);
            root.classes.extend_from_slice(classes);
            refusal(&root, 1)
        };
        assert!(whole("fifoq", &[]).ends_with(": it has no classes"));
        assert!(whole("jobs", &[class("a", &[])]).contains("bounds and ratios"));
        let whole_link = ("pbandwidth", Value::Fraction(Fraction::ONE));
        let cbq = [class("root", core::slice::from_ref(&whole_link)), below(0, class("a", &[whole_link]))];
        assert!(whole("cbq", &cbq).contains("asks the whole tree"));

        let with = |index: usize, word: &'static str, value: Value| {
            let mut root = tree();
            root.classes[index].params.set(word, value);
            refusal(&root, 2)
        };
        let limited = with(4, "ulimit", Value::Rate(Rate::from_mbps(5)));
        assert!(limited.starts_with("class a1: ulimit: found 5M, expected no upper limit"), "{limited}");
        let mut no_share = tree();
        no_share.classes[4].params = Params::new().with("grate", Value::Rate(Rate::from_mbps(1)));
        let no_share = refusal(&no_share, 2);
        assert!(no_share.starts_with("class a1: ls: found none, expected a link-share curve"), "{no_share}");
        let bent = Curve { m1: Rate::from_mbps(50), d: Duration::from_millis(5), m2: Rate::from_mbps(10) };
        let bent = with(3, "ls", Value::Curve(bent));
        assert!(
            bent.starts_with("class c: ls: found 50M, expected a link-share curve of one slope"),
            "{bent}"
        );
        // 125 Mbit/s of shares on a link of 100: 30 of them are 24 for sure.
        assert_eq!(with(1, "grate", Value::Rate(Rate::from_mbps(24))), "2 parts");
        let owed = with(1, "grate", Value::Rate(Rate::from_mbps(25)));
        assert!(
            owed.starts_with("class b: rt: found 25M, expected real-time rates below it of 24M"),
            "{owed}"
        );
        let mut waits = tree();
        waits.classes[3].queue = Some(Node { classes: cbq.to_vec(), ..node("cbq", &[]) });
        let waits = refusal(&waits, 2);
        assert!(
            waits.starts_with("class c: queue: found cbq, expected a queue whose packets may go"),
            "{waits}"
        );
    }
}
