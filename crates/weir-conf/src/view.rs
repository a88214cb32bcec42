//! The interfaces of a plan one by one, each with what the rest of the file means for it.

use crate::limits::{MAX_EDGE, MAX_LEASE};
use crate::plan::{Attach, Fail, Interface, Plan, Xdp};
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;
use weir_text::{Diagnostic, Place, Severity, Trouble};

/// An interface of a plan, with what the plan says for all of them.
#[derive(Clone, Debug)]
pub struct View<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) interface: &'a Interface,
    /// The interface by which the packets come that leave by this one, as far as the file says:
    /// - the other port of its bridge (`attach bridge`);
    /// - itself, where the file has no other: then what its port receives is what enters it;
    /// - else the only other interface that has conditioners.
    pub(crate) entrance: Option<&'a Interface>,
    /// The other port of its bridge, if a line describes it.
    pub(crate) bridged: Option<&'a Interface>,
    /// The interfaces that have conditioners.
    conditioned: Arc<[&'a Interface]>,
}

impl Deref for View<'_> {
    type Target = Interface;
    fn deref(&self) -> &Interface {
        self.interface
    }
}

impl<'a> View<'a> {
    /// The interface by which the packets come that leave by this one; itself, where the file has no other.
    pub fn entrance(&self) -> &'a Interface {
        self.entrance.unwrap_or(self.interface)
    }

    /// The other interfaces that have conditioners.
    pub(crate) fn other_entrances(&self) -> impl Iterator<Item = &'a Interface> {
        let name = &self.interface.name;
        self.conditioned.iter().copied().filter(move |i| i.name != *name)
    }
}

/// What interfaces mean for one another.
struct Neighbours<'a> {
    plan: &'a Plan,
    by_name: HashMap<&'a str, &'a Interface>,
    /// The first interface whose line says `attach bridge` and this name.
    bridged_to: HashMap<&'a str, &'a Interface>,
    conditioned: Arc<[&'a Interface]>,
}

impl<'a> Neighbours<'a> {
    fn of(plan: &'a Plan) -> Self {
        let all = &plan.interfaces;
        let peer = |i: &'a Interface| match &i.attach {
            Attach::Bridge(peer) => Some((peer.as_str(), i)),
            _ => None,
        };
        // From the last to the first, so that the first of a name stays.
        Neighbours {
            plan,
            by_name: all.iter().rev().map(|i| (i.name.as_str(), i)).collect(),
            bridged_to: all.iter().rev().filter_map(peer).collect(),
            conditioned: all.iter().filter(|i| !i.conditioners.is_empty()).collect(),
        }
    }

    fn view(&self, interface: &'a Interface) -> View<'a> {
        let mut view = View {
            plan: self.plan,
            interface,
            entrance: None,
            bridged: None,
            conditioned: self.conditioned.clone(),
        };
        view.bridged = match &interface.attach {
            Attach::Bridge(peer) => self.by_name.get(peer.as_str()).copied(),
            _ => self.bridged_to.get(interface.name.as_str()).copied(),
        };
        view.entrance = match (&interface.attach, &self.plan.interfaces[..]) {
            (Attach::Bridge(peer), _) => self.by_name.get(peer.as_str()).copied(),
            (_, all) => self.bridged_to.get(interface.name.as_str()).copied().or_else(|| match all {
                [only] => Some(only),
                _ => {
                    let mut others = view.other_entrances();
                    others.next().filter(|_| others.next().is_none())
                }
            }),
        };
        view
    }
}

impl Plan {
    /// All interfaces, in the order of the file.
    pub fn views(&self) -> impl Iterator<Item = View<'_>> {
        let neighbours = Neighbours::of(self);
        self.interfaces.iter().map(move |interface| neighbours.view(interface))
    }

    /// The bridges that the file asks for, in its order: the interface that says so first, and the
    /// other port.
    ///
    /// # Errors
    /// A diagnostic for each line by which an interface would be a port of two bridges, or a bridge would have
    /// workers that it cannot have.
    pub fn bridges(&self) -> Result<Vec<[&str; 2]>, Vec<Diagnostic>> {
        let (pairs, mut refused) = self.pairs();
        let by_name: HashMap<&str, &Interface> =
            self.interfaces.iter().rev().map(|i| (i.name.as_str(), i)).collect();
        refused.extend(pairs.iter().filter_map(|pair| {
            let lines = pair.map(|name| by_name.get(name).copied());
            self.wrong_workers(&lines.into_iter().flatten().collect::<Vec<_>>())
        }));
        let halves = pairs.iter().flat_map(|&[a, b]| [[a, b], [b, a]]);
        refused.extend(halves.filter_map(|[name, peer]| {
            let line = by_name.get(name).filter(|_| !by_name.contains_key(peer))?;
            (line.recognise.is_some() || !line.slas.is_empty()).then(|| {
                let message = format!("what enters by `{name}` leaves by `{peer}`, which no line describes");
                self.error(
                    line,
                    message,
                    &format!("add `interface {peer} bandwidth 10M fifoq`, or another discipline"),
                )
            })
        }));
        let queues = self.interfaces.iter().filter(|i| i.attach == Attach::Nfqueue);
        refused.extend(queues.filter_map(|interface| {
            let workers = interface.workers.filter(|&workers| workers > 1)?;
            let message = format!("what leaves by `{}` is one direction, and has one worker", interface.name);
            Some(self.error(interface, message, &format!("take `workers {workers}` away")))
        }));
        refused.extend(self.asked_elsewhere());
        if refused.is_empty() { Ok(pairs) } else { Err(refused) }
    }

    /// What a live box needs to know of a broker elsewhere, and its line does not say.
    fn asked_elsewhere(&self) -> impl Iterator<Item = Diagnostic> {
        let live = self.interfaces.iter().filter(|i| i.attach != Attach::Unsaid);
        let asked = |name: &str| {
            let lines = live.clone().flat_map(|i| i.allocations.iter().map(move |a| (i, a)));
            lines.filter(|(_, a)| a.broker.as_deref() == Some(name)).collect::<Vec<_>>()
        };
        let mut said = Vec::new();
        for broker in &self.brokers {
            let (Some(elsewhere), lines) = (&broker.elsewhere, asked(&broker.name)) else { continue };
            if lines.is_empty() {
                continue;
            }
            let mut wrong = |place, message: String, help: &str| {
                said.push(self.source.diagnostic(Severity::Error, Trouble::new(place, message, help)));
            };
            if elsewhere.own.is_none() && elsewhere.edge.is_none() {
                let message = format!("nobody says who this box is at broker `{}`", broker.name);
                wrong(broker.place, message, "add `edge NAME`: its leases begin with that name");
            }
            let files = elsewhere.own.iter().flatten().chain(&elsewhere.ca).chain(&elsewhere.token);
            if let Some(file) = files.into_iter().find(|file| !file.starts_with('/')) {
                let help = "a running box may be told its file from any folder: write the whole path";
                wrong(broker.place, format!("`{file}` is no whole path"), help);
            }
            for (interface, line) in lines {
                let edge = elsewhere.edge.as_deref().map_or(MAX_EDGE, str::len);
                let name = edge + interface.name.len() + line.class.len() + 2;
                if name > MAX_LEASE || !line.class.bytes().all(|b| b.is_ascii_graphic()) {
                    let message = format!("no broker elsewhere can name a lease of class `{}`", line.class);
                    let help = format!(
                        "give the class another name: a lease is EDGE/INTERFACE/CLASS, of {MAX_LEASE} printable ASCII characters at most"
                    );
                    wrong(line.place, message, &help);
                }
            }
        }
        said.into_iter()
    }

    /// The bridges, and what is said of lines by which an interface would be a port of two.
    pub(crate) fn pairs(&self) -> (Vec<[&str; 2]>, Vec<Diagnostic>) {
        let (mut pairs, mut peers, mut refused) = (Vec::new(), HashMap::new(), Vec::new());
        for interface in &self.interfaces {
            let Attach::Bridge(peer) = &interface.attach else { continue };
            let pair = [interface.name.as_str(), peer.as_str()];
            let [name, peer] = pair;
            match [(name, peers.get(name)), (peer, peers.get(peer))] {
                [(_, None), (_, None)] => {
                    peers.extend([(name, peer), (peer, name)]);
                    pairs.push(pair);
                }
                [(_, Some(&known)), _] if known == peer => {}
                [(_, Some(&known)), _] => refused.push(self.two_bridges(interface, name, known, peer)),
                [_, (_, Some(&known))] => refused.push(self.two_bridges(interface, peer, known, name)),
            }
        }
        (pairs, refused)
    }

    /// What is wrong with the workers of a bridge by what these lines of its ports say.
    fn wrong_workers(&self, lines: &[&Interface]) -> Option<Diagnostic> {
        let (most, workers) = lines
            .iter()
            .filter_map(|line| Some((*line, line.workers?)))
            .max_by_key(|&(_, workers)| workers)?;
        if let Some((other, fewer)) =
            lines.iter().filter_map(|line| Some((*line, line.workers?))).find(|&(_, count)| count != workers)
        {
            let message =
                format!("`{}` says `workers {fewer}`, and the other port `workers {workers}`", other.name);
            return Some(self.error(other, message, "say the same of both, or say it of one"));
        }
        if workers < 2 {
            return None;
        }
        let away = format!("take `workers {workers}` away");
        if lines.iter().any(|line| line.xdp.is_some()) {
            let message = format!("the frames of `{}` come by AF_XDP, which has one worker", most.name);
            return Some(self.error(most, message, &format!("{away}, or `xdp`")));
        }
        if lines.iter().any(|line| line.has_edge()) {
            let message = match workers {
                2 => "an edge looks at both directions, and each of two workers sees one".to_string(),
                _ => format!("an edge looks at all packets, and each of {workers} workers sees a part"),
            };
            return Some(self.error(most, message, &away));
        }
        let conditioned = lines.iter().find(|line| workers > 2 && !line.conditioners.is_empty())?;
        let message = format!(
            "a conditioner of `{}` has one bucket, and each of {workers} workers sees a part of the packets",
            conditioned.name
        );
        Some(self.error(most, message, "write `workers 2`, which gives each direction of the bridge one"))
    }

    fn error(&self, at: &Interface, message: String, help: &str) -> Diagnostic {
        self.source.diagnostic(Severity::Error, Trouble::new(at.place, message, help))
    }

    /// True if no traffic of the bridge between these two may pass while Weir does not carry it.
    pub fn fails_closed(&self, pair: &[&str; 2]) -> bool {
        let mut of_pair = self.interfaces.iter().filter(|i| pair.contains(&i.name.as_str()));
        of_pair.any(|i| i.fail == Some(Fail::Closed))
    }

    /// How the packets of the bridge between these two come from the driver itself, if they do.
    pub fn xdp(&self, pair: &[&str; 2]) -> Option<Xdp> {
        let mut of_pair = self.interfaces.iter().filter(|i| pair.contains(&i.name.as_str()));
        of_pair.find_map(|i| i.xdp)
    }

    /// Threads that run the bridge between these two: one, one for each direction, or more that have each a part of both.
    pub fn workers(&self, pair: &[&str; 2]) -> usize {
        let mut of_pair = self.interfaces.iter().filter(|i| pair.contains(&i.name.as_str()));
        of_pair.find_map(|i| i.workers).unwrap_or(1)
    }

    /// The interfaces whose egress the kernel's packet filter is to hand over (`attach nfqueue`).
    pub fn queues(&self) -> impl Iterator<Item = &str> {
        self.interfaces.iter().filter(|i| i.attach == Attach::Nfqueue).map(|i| i.name.as_str())
    }

    fn two_bridges(&self, at: &Interface, port: &str, first: &str, second: &str) -> Diagnostic {
        let message = format!("`{port}` is bridged to `{first}`, and to `{second}`");
        let help = "a bridge has two ports, and an interface is a port of one bridge: take one away";
        self.error(at, message, help)
    }

    /// The interface of that name; with no name, the only one.
    ///
    /// # Errors
    /// A diagnostic that names the interfaces there are.
    pub fn interface(&self, name: &str) -> Result<View<'_>, Diagnostic> {
        let interface = match (name, &self.interfaces[..]) {
            ("", [only]) => Some(only),
            _ => self.interfaces.iter().find(|i| i.name == name),
        };
        if let Some(interface) = interface {
            return Ok(Neighbours::of(self).view(interface));
        }
        let names: Vec<&str> = self.interfaces.iter().map(|i| i.name.as_str()).collect();
        let message = match name {
            "" => "which interface is not said".to_string(),
            name => format!("no interface `{name}` is declared"),
        };
        let help = match (weir_text::suggest(name, names.iter().copied()), names.is_empty()) {
            (Some(help), _) => help,
            (None, true) => "the file declares none".to_string(),
            (None, false) => format!("declared are {}", names.join(", ")),
        };
        Err(self.source.diagnostic(Severity::Error, Trouble::new(Place::default(), message, help)))
    }
}
