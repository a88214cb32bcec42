//! The commands of the edge: `sla` and `allocate`, and what they and `recognise` come to for the
//! port of an interface.

use crate::options::typed;
use crate::plan::{Allocate, Interface, Options, Plan, Recognise, Sla};
use crate::reader::{Done, Reader};
use crate::report::Report;
use crate::view::View;
use crate::words::{Word, Words};
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use weir_core::packet::Dscp;
use weir_core::queue::{Curve, Kind, ParamSpec, Params, Scope, Value};
use weir_core::sched::{LeafInfo, Registry};
use weir_core::units::Rate;
use weir_edge::edge::{Class, Config};
use weir_edge::params;
use weir_edge::sla::{Contract, Prefix};
use weir_edge::{check, edge};
use weir_text::{Diagnostic, Place, Severity, Trouble};

/// The leaf of a class whose packets need not be counted.
const NO_LEAF: u32 = u32::MAX;
/// Contracts of an interface.
const SLAS: usize = 1_000_000;

impl Reader<'_> {
    /// `sla IF ID PREFIX[,PREFIX] [options] [dscp NAME] [guessed-dscp NAME] [class NAME]`
    pub fn sla(&mut self, words: &mut Words<'_>) -> Done {
        const FORM: &str = "a contract is `sla INTERFACE ID PREFIX[,PREFIX...] bw RATE [options]`";
        let is_number = |word: Word<'_>| word.text.starts_with(|c: char| c.is_ascii_digit() || c == '-');
        let interface = self.interface_before(words, |_, _, words| words.peek().is_none_or(is_number))?;
        let on = &self.plan.interfaces[interface];
        let (name, count) = (on.name.clone(), on.slas.len());
        let (id, place) = self.number(words, "the number of the contract", 0..=i128::from(u32::MAX))?;
        if count >= SLAS {
            return Err(crate::limits::more_than_of(SLAS, "contracts", &name, place).into());
        }
        let id = id as u32;
        if self.contract_ids.contains(&(interface, id)) {
            let message = format!("contract {id} is there already");
            return Err(
                Trouble::new(place, message, "give each contract of an interface its own number").into()
            );
        }
        let word = words.need("the prefixes of the contract", FORM)?;
        let mut prefixes = Vec::new();
        for text in word.text.split(',') {
            let prefix = prefix(word, text)?;
            if let Some(other) = self.contract_prefixes.insert((interface, prefix), id) {
                let message = format!("`{text}` is a prefix of contract {other} already");
                return Err(Trouble::new(word.place, message, "a prefix belongs to one contract").into());
            }
            prefixes.push(prefix);
        }
        let (dscp, options) = (Dscp::EF, Options::new());
        let mut sla = Sla { id, prefixes, dscp, guessed_dscp: None, class: None, options, place };
        let mut options = Options::new();
        let (dscp, class) = (&mut sla.dscp, &mut sla.class);
        let mut guessed = None;
        self.words_of(words, "sla", params::SLA, &mut options, |_, word, words| match word.text {
            "dscp" => {
                words.take();
                *dscp = code_point(words)?.0;
                Ok(true)
            }
            "guessed-dscp" => {
                words.take();
                guessed = Some(code_point(words)?);
                Ok(true)
            }
            "class" => {
                words.take();
                *class = Some(
                    words.need("the class", "a class of the interface by which they leave")?.text.into(),
                );
                Ok(true)
            }
            _ => Ok(false),
        })?;
        if !options.has("bw") {
            let message = format!("contract {id} has no bandwidth");
            return Err(Trouble::new(words.end(), message, "add it, as in `bw 512K`").into());
        }
        sla.options = options;
        sla.guessed_dscp = guessed.map(|guessed| mark_of_guesses(guessed, sla.dscp)).transpose()?;
        self.contract_ids.insert((interface, id));
        self.plan.interfaces[interface].slas.push(sla);
        Ok(())
    }

    /// `allocate IF CLASS [options] [broker NAME]`
    pub fn allocate(&mut self, words: &mut Words<'_>) -> Done {
        const FORM: &str = "an allocation is `allocate INTERFACE CLASS [options] [broker NAME]`";
        let interface = self.interface_before(words, |reader, interface, words| match words.rest() {
            [first, second, ..] => {
                reader.index.class(interface, first.text).is_some()
                    || reader.is_refused(interface, first.text)
                    || !reader.index.is_class_anywhere(second.text)
            }
            _ => true,
        })?;
        let name = words.need("the class", FORM)?;
        if self.is_refused(interface, name.text) {
            return Err(crate::reader::Stop::Silent);
        }
        let on = &self.plan.interfaces[interface];
        if self.index.class(interface, name.text).is_none() {
            let mut trouble = Trouble::new(
                name.place,
                format!("no class `{}` on interface `{}`", name.text, on.name),
                FORM,
            );
            if let Some(near) = weir_text::nearest(name.text, on.classes.iter().map(|c| c.name.as_str())) {
                trouble.help = format!("did you mean `{near}`?");
                trouble.replacement = Some(near.to_string());
            }
            return Err(trouble.into());
        }
        if on.allocations.iter().any(|a| a.class == name.text) {
            let message = format!("a second `allocate` for class `{}`", name.text);
            return Err(Trouble::new(name.place, message, "make one line of the two").into());
        }
        let mut line =
            Allocate { class: name.text.into(), broker: None, options: Options::new(), place: name.place };
        let (mut options, broker) = (Options::new(), &mut line.broker);
        self.words_of(words, "allocate", params::ALLOCATE, &mut options, |reader, word, words| {
            match word.text {
                "broker" => {
                    words.take();
                    let name =
                        words.need("the broker", "a broker declared above, as in `broker core local 8M`")?;
                    if !reader.plan.brokers.iter().any(|b| b.name == name.text) {
                        let message = format!("no broker `{}` is declared", name.text);
                        let help = format!("declare it above, as in `broker {} local 8M`", name.text);
                        return Err(Trouble::new(name.place, message, help).into());
                    }
                    *broker = Some(name.text.into());
                    Ok(true)
                }
                _ => Ok(false),
            }
        })?;
        line.options = options;
        self.plan.interfaces[interface].allocations.push(line);
        Ok(())
    }

    /// Reads options by their declarations to the end of the line; `other` reads what is not declared.
    pub(crate) fn words_of(
        &mut self,
        words: &mut Words<'_>,
        of: &str,
        specs: &'static [ParamSpec],
        options: &mut Options,
        mut other: impl FnMut(&mut Self, Word<'_>, &mut Words<'_>) -> Done<bool>,
    ) -> Done {
        while let Some(word) = words.peek() {
            if other(self, word, words)? {
                continue;
            }
            let Some(spec) = specs.iter().find(|spec| spec.name == word.text) else {
                let mut trouble =
                    Trouble::new(word.place, format!("`{}` is no option of {of}", word.text), "");
                let names = || specs.iter().map(|spec| spec.name);
                match weir_text::nearest(word.text, names()) {
                    Some(name) => {
                        trouble.help = format!("did you mean `{name}`?");
                        trouble.replacement = Some(name.to_string());
                    }
                    None => trouble.help = format!("options are {}", names().collect::<Vec<_>>().join(", ")),
                }
                return Err(trouble.into());
            };
            words.take();
            if spec.name == "rtp" && self.packets_within(words, options)? {
                continue;
            }
            // `gain 100%`: the same option as a share.
            let is_share = words.peek().is_some_and(|w| w.text.ends_with('%'));
            let share = params::SHARES.iter().find(|s| is_share && s.name == spec.name);
            self.declared(words, share.unwrap_or(spec), word.place, options)?;
            // `window 800ms 10`: the hold may follow without its word.
            if spec.name == "window"
                && let Some(next) = words.peek()
                && next.text.bytes().all(|b| b.is_ascii_digit())
                && let Some(hold) = specs.iter().find(|spec| spec.name == "hold")
            {
                self.declared(words, hold, next.place, options)?;
            }
        }
        Ok(())
    }
}

/// A code point by its name, and where it stands.
fn code_point(words: &mut Words<'_>) -> Done<(Dscp, Place)> {
    let name = words.need("the code point", "a name, as in `dscp EF`")?;
    let dscp = Dscp::from_name(name.text).ok_or_else(|| {
        let message = format!("`{}` is no code point", name.text);
        Trouble::new(name.place, message, "write a name as EF, VA, AF41 or CS5")
    })?;
    Ok((dscp, name.place))
}

/// A code point of its own for what is guessed, in a contract that has `dscp` for the rest.
fn mark_of_guesses((guessed, place): (Dscp, Place), dscp: Dscp) -> Done<Dscp> {
    let help = "write another name, as VA, AF41 or CS5, or leave `guessed-dscp` out";
    if guessed == Dscp::CS0 {
        let message = "code point CS0 is that of best effort, so that it marks nothing";
        return Err(Trouble::new(place, message, help).into());
    }
    if guessed == dscp {
        let message = format!("code point {dscp} is that of all flows of this contract");
        return Err(Trouble::new(place, message, help).into());
    }
    Ok(guessed)
}

fn prefix(word: Word<'_>, text: &str) -> Done<Prefix> {
    let read = weir_text::Prefix::read(text).map_err(|bad| {
        let mut trouble = Trouble::new(word.place, bad.message, &bad.help);
        trouble.replacement = bad.write.map(|whole| word.text.replacen(text, &whole, 1));
        trouble
    })?;
    Ok(prefix_of(read))
}

/// A prefix that was read.
pub fn prefix_of(read: weir_text::Prefix) -> Prefix {
    match read.address() {
        IpAddr::V4(four) => Prefix::new(false, four.to_bits().into(), read.length()),
        IpAddr::V6(six) => Prefix::new(true, six.to_bits(), read.length()),
    }
}

/// A prefix as it is typed.
pub fn shown(prefix: &Prefix) -> String {
    match prefix.v6 {
        false => format!("{}/{}", Ipv4Addr::from_bits(prefix.address as u32), prefix.length),
        true => format!("{}/{}", Ipv6Addr::from_bits(prefix.address), prefix.length),
    }
}

/// The lines of the edge of an interface.
pub(crate) fn print(interface: &Interface) -> Vec<String> {
    let mut lines = Vec::new();
    let name = &interface.name;
    lines.extend(crate::recognise::print(interface));
    for sla in &interface.slas {
        let prefixes: Vec<String> = sla.prefixes.iter().map(shown).collect();
        let mut line = format!("sla {name} {} {}", sla.id, prefixes.join(","));
        sla.options.iter().for_each(|option| typed(&mut line, option));
        if sla.dscp != Dscp::EF {
            // Writes to a `String` cannot fail.
            let _ = write!(line, " dscp {}", sla.dscp);
        }
        if let Some(guessed) = sla.guessed_dscp {
            let _ = write!(line, " guessed-dscp {guessed}");
        }
        if let Some(class) = &sla.class {
            let _ = write!(line, " class {class}");
        }
        lines.push(line);
    }
    for allocate in &interface.allocations {
        let mut line = format!("allocate {name} {}", allocate.class);
        allocate.options.iter().for_each(|option| typed(&mut line, option));
        if let Some(broker) = &allocate.broker {
            let _ = write!(line, " broker {broker}");
        }
        lines.push(line);
    }
    lines
}

/// What the port of an interface needs to have an edge before it.
#[derive(Clone, Debug)]
pub struct EdgePlan {
    /// What the edge is made from.
    pub config: Config,
    /// Its classes, in the order of the configuration's.
    pub classes: Vec<EdgeClass>,
}

impl EdgePlan {
    /// Of each class the place of the class that it goes on from, by name: what
    /// [`weir_edge::edge::Edge::follow`] wants.
    pub fn kept(&self, before: &EdgePlan) -> Vec<Option<usize>> {
        if self.classes.is_empty() {
            // The class that the edge makes for itself.
            return vec![before.classes.is_empty().then_some(0)];
        }
        let place = |class: &EdgeClass| before.classes.iter().position(|old| old.name == class.name);
        self.classes.iter().map(place).collect()
    }
}

/// A class whose rate an edge sets.
#[derive(Clone, Debug)]
pub struct EdgeClass {
    /// Its name.
    pub name: String,
    /// The broker that it asks, and that one's capacity; none: the edge's own, with the link as capacity.
    pub broker: Option<(String, Rate)>,
    /// The parameters of the class that are its rate, and whether each is a service curve.
    rates: Vec<(&'static str, bool)>,
}

impl EdgeClass {
    /// What `Port::reconfigure` is told so that the class gets so many bit/s. A class never has none at
    /// all: it would not be heard again.
    pub fn shape(&self, rate_bps: u64) -> Params {
        let rate = Rate::from_bps(rate_bps.max(1));
        self.rates.iter().fold(Params::new(), |params, &(name, is_curve)| {
            let curve = || Curve { m1: Rate::ZERO, d: Default::default(), m2: rate };
            params.with(name, if is_curve { Value::Curve(curve()) } else { Value::Rate(rate) })
        })
    }
}

impl View<'_> {
    /// The edge before this interface's port, whose classes are `leaves`; none if the file gives it no
    /// `allocate` line, and the interface by which packets enter no `recognise` line. Without `allocate`
    /// there is one class, whose rate stays: that of the link.
    ///
    /// # Errors
    /// A diagnostic for a class that has no rate to set, or is none where packets wait.
    pub fn edge(
        &self,
        registry: &Registry,
        leaves: &[LeafInfo],
        seed: u64,
    ) -> Result<Option<EdgePlan>, Diagnostic> {
        let entrance = self.entrance();
        if self.interface.allocations.is_empty() && entrance.recognise.is_none() {
            return Ok(None);
        }
        let (mut classes, mut names) = (Vec::new(), Vec::new());
        for line in &self.interface.allocations {
            let leaf = leaves.iter().position(|leaf| leaf.name == line.class);
            let class = self.interface.class(&line.class);
            let (Some(leaf), Some(class)) = (leaf, class) else {
                let message = format!("no packets wait in class `{}` itself", line.class);
                return Err(self.refuse(line.place, message, "allocate to a class without classes below"));
            };
            let rates = rates(registry, class);
            if rates.is_empty() {
                let message = format!("class `{}` has no rate that can be set", line.class);
                let help = "give it one: an upper limit `[ul 0 0 64K]`, or a bandwidth".to_string();
                return Err(self.refuse(line.place, message, help));
            }
            let params = line.options.params();
            let broker = self.plan.brokers.iter().find(|b| Some(&b.name) == line.broker.as_ref());
            names.push(EdgeClass {
                name: line.class.clone(),
                broker: broker.map(|b| (b.name.clone(), b.capacity)),
                rates,
            });
            classes.push(Class {
                leaf: leaf as u32,
                allocation: Some(params::allocation(&params)),
                admission: params::admission(&params),
                rate_bps: 0,
            });
        }
        if classes.is_empty() {
            // Flows are found, held to contracts and marked; their class keeps its rate.
            let (allocation, admission, leaf) = (None, Default::default(), NO_LEAF);
            classes.push(Class { leaf, allocation, admission, rate_bps: self.rate().as_bps() });
        }
        let (mut contracts, mut prefixes) = (Vec::new(), Vec::new());
        for sla in &entrance.slas {
            let class = match &sla.class {
                None => 0,
                Some(name) => names.iter().position(|c| c.name == *name).ok_or_else(|| {
                    let message = format!("class `{name}` of contract {} has no allocation", sla.id);
                    let help = format!("add `allocate {} {name} law fixed from 1M to 1M`", self.name);
                    self.refuse(sla.place, message, help)
                })?,
            };
            prefixes.extend(sla.prefixes.iter().map(|&prefix| (prefix, contracts.len() as u32)));
            let contract = params::contract(sla.id, sla.dscp, class, &sla.options.params());
            contracts.push(Contract { guessed_dscp: sla.guessed_dscp, ..contract });
        }
        let recognise = entrance.recognise.as_ref().map(|r| params::recognition(&r.options.params()));
        let keep_untrusted = recognise.as_ref().is_some_and(|r| r.1);
        let config = edge::Config {
            classes,
            contracts,
            prefixes,
            recognition: recognise.map(|r| r.0),
            keep_untrusted,
            overhead: 0,
            seed,
        };
        Ok(Some(EdgePlan { config, classes: names }))
    }
}

/// The parameters that are the rate of a class, by their declarations: the curves of its upper limit
/// and, where it has one, of its guarantee; where the discipline knows no curves, its rate.
fn rates(registry: &Registry, class: &crate::plan::Class) -> Vec<(&'static str, bool)> {
    let Some(entry) = registry.find(&class.discipline) else { return Vec::new() };
    let of_class = |kind| entry.params().find(move |p| p.scope == Scope::Class && p.kind == kind);
    if of_class(Kind::Curve).is_none() {
        return of_class(Kind::Rate).map(|spec| (spec.name, false)).into_iter().collect();
    }
    if !class.options.has("ul") {
        return Vec::new();
    }
    let curves = ["ul", "rt"].into_iter().filter(|name| class.options.has(name));
    curves.filter_map(|name| entry.param(Scope::Class, name)).map(|spec| (spec.name, true)).collect()
}

/// What parameters of the edge cannot work, or hardly as meant: the errors, or the rest.
pub(crate) fn judge(report: &mut Report<'_>, plan: &Plan, interface: &Interface, errors: bool) {
    const MTU: u32 = 1_500;
    let first = interface.allocations.first().map(|line| &line.class);
    for line in &interface.allocations {
        let params = line.options.params();
        let allocation = params::allocation(&params);
        let mut found = check::allocation(&allocation, MTU);
        found.extend(check::admission(&params::admission(&params)));
        // A contract without a class belongs to the first.
        let class = |sla: &&Sla| sla.class.as_ref().or(first) == Some(&line.class);
        let contracts = plan.interfaces.iter().flat_map(|i| &i.slas).filter(class);
        let sum = contracts.filter_map(|sla| sla.options.params().rate("bw")).map(Rate::as_bps).sum();
        found.extend(check::sum(sum, allocation.to));
        for found in found.into_iter().filter(|f| (f.weight == check::Weight::Error) == errors) {
            let given = line.options.get(found.option);
            let (place, write) = match given {
                Some(given) => (given.place, found.write),
                // Behind the class's name, where options begin.
                None => (line.place, format!("{} {}", line.class, found.write)),
            };
            let severity = if errors { Severity::Error } else { Severity::Warning };
            let help =
                format!("write `{}`", write.strip_prefix(&format!("{} ", line.class)).unwrap_or(&write));
            report.say(severity, Trouble::new(place, found.what, help).write(write.clone()));
        }
    }
    let line = interface.recognise.as_ref().filter(|_| !errors);
    let size = line.and_then(|line| Some((line, line.options.get("size")?)));
    if let Some((line, given)) = size
        && let Some(rule) = params::recognition(&line.options.params()).0.rules.statistical
        && let Some(found) = check::size(&rule)
    {
        let help = format!("write `{}`", found.write);
        report.say(Severity::Warning, Trouble::new(given.place, found.what, help).write(found.write));
    }
    let guesses =
        |line: &Recognise| params::recognition(&line.options.params()).0.rules.statistical.is_some();
    if !errors && !interface.recognise.as_ref().is_some_and(guesses) {
        let help = "add `statistical` to the line `recognise`, or take this option away";
        for given in interface.slas.iter().filter_map(|sla| sla.options.get("guessed")) {
            let message = "`guessed` is a share for flows that the statistical rule found, and that is off";
            report.say(Severity::Warning, Trouble::new(given.place, message, help));
        }
        for sla in interface.slas.iter().filter(|sla| sla.guessed_dscp.is_some()) {
            let message =
                "`guessed-dscp` is a mark for flows that the statistical rule found, and that is off";
            report.say(Severity::Warning, Trouble::new(sla.place, message, help));
        }
    }
}

/// Brokers that could not hold what the classes begin with, or what they may fall to.
pub(crate) fn judge_brokers(report: &mut Report<'_>, plan: &Plan) {
    for broker in &plan.brokers {
        let lines = plan.interfaces.iter().flat_map(|interface| &interface.allocations);
        let of_broker = lines.filter(|line| line.broker.as_ref() == Some(&broker.name));
        let least = of_broker.map(|line| {
            let allocation = params::allocation(&line.options.params());
            allocation.initial.clamp(allocation.from.min(allocation.to), allocation.to)
        });
        let sum = Rate::from_bps(least.fold(0, u64::saturating_add));
        if sum > broker.capacity {
            let message = format!(
                "classes begin with {sum} at broker `{}`, which has {}",
                broker.name, broker.capacity
            );
            let write = format!("broker {} local {sum}", broker.name);
            let help = format!("write `{write}`, or give them a lower `from`");
            report.say(Severity::Warning, Trouble::new(broker.place, message, help));
        }
    }
}
