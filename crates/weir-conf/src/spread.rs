//! A port that is spread over several workers by the classes at the root of its tree: what each part is built of.

use crate::build::{Built, Regulator};
use crate::hooks::Lowered;
use crate::precedence;
use crate::tree::Shape;
use crate::view::View;
use std::collections::HashMap;
use weir_core::queue::{Link, ParamError};
use weir_core::sched::{Node, Registry};
use weir_core::spread::{self, Apart, Credit, Lend, PartPlan, elsewhere};
use weir_text::Diagnostic;

/// What the parts of a port borrow from, and how.
#[derive(Clone, Copy, Debug)]
pub struct Loans {
    /// The link.
    pub link: Link,
    /// How many parts there are.
    pub parts: usize,
    /// What a part asks for each time, bytes.
    pub quantum_bytes: u64,
    /// What the link may send at once after a rest, bytes.
    pub depth_bytes: u64,
}

impl Loans {
    /// The bucket is that of the whole port. All parts together hold three quarters of it, unless quanta of two packets
    /// are more.
    fn of(link: Link, parts: usize, Regulator { depth_bytes, .. }: Regulator) -> Self {
        let quantum_bytes = Credit::quantum_bytes(&link, depth_bytes / (2 * parts.max(1)) as u64);
        Loans { link, parts, quantum_bytes, depth_bytes: depth_bytes.max(quantum_bytes) }
    }

    /// By how much what leaves in a window may exceed the link's rate times its length, bytes: the bucket, and of each part a
    /// quantum and a half that it has given to a worker which has not sent it, and a quantum that is put down for it.
    pub fn bound_bytes(&self) -> u64 {
        self.depth_bytes + self.parts as u64 * (2 * self.quantum_bytes + self.quantum_bytes / 2)
    }
}

impl View<'_> {
    /// Of how many parts its port is, each run by a worker of its own; 1 for one that is whole.
    pub fn parts(&self) -> usize {
        let says = self.interface.workers.or(self.bridged.and_then(|peer| peer.workers));
        says.filter(|&workers| workers > 2 && self.is_bridged()).unwrap_or(1)
    }

    fn is_bridged(&self) -> bool {
        self.bridged.is_some() || matches!(self.interface.attach, crate::plan::Attach::Bridge(_))
    }

    /// What its parts borrow, and the leaves of the tree that each has.
    ///
    /// # Errors
    /// Why the port has to stay whole.
    pub fn cut(&self, registry: &Registry, link: Link) -> Result<(Loans, Vec<Vec<String>>), Diagnostic> {
        let shape = Shape::of(self.interface, registry);
        let lowered = Lowered::of(&shape);
        let (loans, plans) = self.cut_tree(registry, &self.tree_of(&shape, &lowered), link)?;
        let names = |plan: &PartPlan| {
            let outline = registry.check(&plan.node, link).map_err(|e| self.locate(&shape, &lowered, &e))?;
            Ok(outline.leaves.into_iter().map(|leaf| leaf.name.to_string()).collect())
        };
        Ok((loans, plans.iter().map(names).collect::<Result<_, _>>()?))
    }

    pub(crate) fn cut_tree(
        &self,
        registry: &Registry,
        root: &Node,
        link: Link,
    ) -> Result<(Loans, Vec<PartPlan>), Diagnostic> {
        let (parts, name) = (self.parts(), &self.interface.name);
        let whole = |why: String| {
            self.refuse(
                self.interface.place,
                why,
                "write `workers 2`, which gives each direction of the bridge one",
            )
        };
        let Some(regulator) = self.regulator(&link) else {
            return Err(whole(format!("`{name}` has no `bandwidth` that {parts} workers could share")));
        };
        let at_root = root.classes.iter().filter(|class| class.parent.is_none()).count();
        if (1..parts).contains(&at_root) {
            let why = format!(
                "`{name}` has {at_root} classes at the root of its tree, and {parts} workers to share them"
            );
            return Err(match at_root {
                1 | 2 => whole(why),
                _ => self.refuse(self.interface.place, why, format!("write `workers {at_root}`")),
            });
        }
        let plans = spread::cut(registry, root, link, parts).map_err(|error| {
            let ParamError { class, field, found, expected, .. } = &error;
            let of = if class.is_empty() { String::new() } else { format!("class `{class}`: ") };
            whole(format!(
                "the classes of `{name}` cannot go to {parts} workers: {of}`{field}` is {found}, and is to be {expected}"
            ))
        })?;
        Ok((Loans::of(link, parts, regulator), plans))
    }

    /// What a port is built of that several workers run, each a part of it; `lend` gives each part its way to the link.
    ///
    /// # Errors
    /// Those of [`View::build`], and why it has to stay whole.
    pub fn build_parts(
        &self,
        registry: &Registry,
        link: Link,
        lend: impl FnOnce(&Loans) -> Vec<[Box<dyn Lend>; 2]>,
    ) -> Result<Vec<Built>, Diagnostic> {
        let shape = Shape::of(self.interface, registry);
        let lowered = Lowered::of(&shape);
        self.can_run(&shape, registry)?;
        let (loans, plans) = self.cut_tree(registry, &self.tree_of(&shape, &lowered), link)?;
        let lends = lend(&loans);
        let locate = |error: ParamError| self.locate(&shape, &lowered, &error);
        let mut trees = Vec::new();
        for (plan, [tree, lane]) in plans.iter().zip(lends) {
            let tree = plan.build(registry, link, loans.quantum_bytes, tree).map_err(locate)?;
            trees.push((tree, lane));
        }
        // A leaf of each class that filters lead to, by its name, and the part that has it.
        let all: Vec<_> = trees.iter().flat_map(|(tree, _)| tree.leaves.iter().cloned()).collect();
        let leaf_of_class = self.leaves_by_class(&shape, &lowered, &all)?;
        let mut at: Vec<(usize, u32)> = Vec::new();
        for (part, (tree, _)) in trees.iter().enumerate() {
            at.extend((0..tree.leaves.len() as u32).map(|leaf| (part, leaf)));
        }
        // A tree without a default class has its first leaf for it.
        let default = trees.iter().position(|(tree, _)| tree.default_leaf.is_some()).unwrap_or(0);
        let leaf_in: HashMap<&str, (usize, u32)> = leaf_of_class
            .into_iter()
            .filter_map(|(class, leaf)| Some((class, *at.get(leaf as usize)?)))
            .collect();
        let build = |(part, (tree, lend)): (usize, (_, Box<dyn Lend>))| {
            let tree: weir_core::sched::Tree = tree;
            let mut number = |class: &str| match leaf_in.get(class) {
                Some(&(in_part, leaf)) if in_part == part => leaf,
                Some(&(in_part, _)) => elsewhere(in_part as u32),
                None => 0,
            };
            let compiled = precedence::compile(self.interface, &lowered.filters, false, &mut number);
            let otherwise = (part != default).then(|| elsewhere(default as u32));
            let room = self.room(&tree.leaves)?;
            Ok(Built {
                default_leaf: tree.default_leaf.unwrap_or(0),
                conditioners: None,
                regulator: None,
                ecn: !self.interface.ecn_is_off(),
                tunnels: self.interface.looks_inside(),
                protect: self.protect(&link),
                segment: self.interface.segment.unwrap_or(weir_core::port::Segment::USUAL),
                warnings: if part == 0 { self.warnings(link, room) } else { Vec::new() },
                room,
                classifier: compiled.classifier,
                filters: compiled.filters,
                apart: Some(Apart { otherwise, parts: loans.parts as u32, lend }),
                tree,
            })
        };
        trees.into_iter().enumerate().map(build).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Plan, read};
    use weir_core::packet::{Family, Key};
    use weir_core::port::{Port, PortConfig, WireConfig};
    use weir_core::spread::{Ask, Loan, part_of};
    use weir_core::units::Instant;

    const TREE: &str = "interface em0 bandwidth 100M hfsc attach bridge em1 workers 3\n\
        class hfsc em0 a root pshare 40\nclass hfsc em0 a1 a pshare 20\nclass hfsc em0 a2 a pshare 20\n\
        class hfsc em0 b root pshare 30\nclass hfsc em0 c root pshare 10 default\nclass hfsc em0 d root pshare 20\n\
        filter em0 a1 0 6001 0 0 udp\nfilter em0 a2 0 6002 0 0 udp\nfilter em0 b 0 6003 0 0 udp\n\
        filter em0 d 0 6004 0 0 udp\n";

    struct Lends;
    impl Lend for Lends {
        fn ask(&mut self, now: Instant, ask: Ask) -> Loan {
            Loan { bytes: ask.bytes, at: now, virtual_time: ask.virtual_time }
        }
        fn give_back(&mut self, _: Instant, _: u64) {}
    }

    fn plan(text: &str) -> Plan {
        read("a.altq", text, &Registry::builtin()).into_result().unwrap()
    }

    /// Each packet belongs to one part, whichever worker asks; what no filter matches to that of the default class.
    #[test]
    fn all_parts_say_the_same_of_where_a_packet_belongs() {
        let (plan, registry) = (plan(TREE), Registry::builtin());
        let view = plan.interface("em0").unwrap();
        let link = view.link(1_514);
        let (loans, leaves) = view.cut(&registry, link).unwrap();
        assert_eq!(leaves, [vec!["a1", "a2"], vec!["b"], vec!["c", "d"]]);
        assert_eq!((loans.parts, loans.depth_bytes), (3, 12_500));
        assert_eq!(loans.quantum_bytes, 2 * 1_538, "a sixth of the bucket is less");
        assert_eq!(loans.bound_bytes(), 12_500 + 3 * 7_690);
        let lend = |loans: &Loans| -> Vec<[Box<dyn Lend>; 2]> {
            (0..loans.parts).map(|_| [Box::new(Lends) as Box<dyn Lend>, Box::new(Lends)]).collect()
        };
        let built = view.build_parts(&registry, link, lend).unwrap();
        let ports: Vec<Port> = built
            .into_iter()
            .map(|built| Port::new(PortConfig::new(link, WireConfig::Open), built.port_plan(link)))
            .collect();
        for (dst_port, part, name) in
            [(6001, 0, "a1"), (6002, 0, "a2"), (6003, 1, "b"), (6004, 2, "d"), (6005, 2, "c")]
        {
            let key = Key { family: Family::V4, protocol: 17, dst_port, ..Key::default() };
            for (own, port) in ports.iter().enumerate() {
                let leaf = port.classify(&key);
                assert_eq!(part_of(leaf), (own != part).then_some(part), "port {dst_port} in part {own}");
                if own == part {
                    assert_eq!(&*port.leaves()[leaf as usize].name, name);
                }
            }
        }
        let default = ports.iter().map(|port| part_of(port.otherwise()));
        assert_eq!(default.collect::<Vec<_>>(), [Some(2), Some(2), None]);
    }

    #[test]
    fn what_stays_whole_says_why_and_what_to_write() {
        let registry = Registry::builtin();
        let refusal = |text: &str| {
            let plan = plan(text);
            let view = plan.interface("em0").unwrap();
            match view.check(&registry, view.link(1_514)) {
                Ok(_) => "none".to_string(),
                // As one line.
                Err(refused) => refused.to_string().split_whitespace().collect::<Vec<_>>().join(" "),
            }
        };
        assert_eq!(refusal(TREE), "none");
        let two = "write `workers 2`, which gives each direction of the bridge one";
        for (text, why, mend) in [
            (TREE.replace("workers 3", "workers 5"), "4 classes at the root of its tree, and 5", "`workers 4`"),
            (TREE.replace("d root pshare 20", "d root pshare 20 [ul 0 0 5M]"), "class `d`: `ul`", two),
            ("interface em0 bandwidth 9M fifoq attach bridge em1 workers 3\n".into(), "it has no classes", two),
            (
                "interface em0 bandwidth 9M priq attach bridge em1 workers 3\nclass priq em0 a NULL priority 0 default\n".into(),
                "1 classes at the root",
                two,
            ),
        ] {
            let said = refusal(&text);
            assert!(said.contains(why) && said.contains(mend), "{said}");
            let mended = if mend == two { "workers 2" } else { "workers 4" };
            let again = text.replace("workers 3", mended).replace("workers 5", mended);
            assert_eq!(refusal(&again), "none");
        }
        // Another port says it, and a line that is about no bridge means nothing.
        let peer =
            TREE.replace(" attach bridge em1 workers 3", "") + "interface em1 attach bridge em0 workers 3\n";
        assert_eq!(plan(&peer).interface("em0").unwrap().parts(), 3);
        assert_eq!(plan(&TREE.replace(" attach bridge em1", "")).interface("em0").unwrap().parts(), 1);
    }
}
