//! Configurations made at random from what a discipline declares: its `ParamSpec`s.
//!
//! Nothing here knows a discipline by name. A class takes one share among the parameters that
//! are rates, percentages or curves, siblings share out what their parent has, at most one class
//! is `default`, and a `priority` is distinct among siblings where equal ones are refused. What a
//! discipline refuses all the same is drawn again, with fewer and fewer parameters.

use weir_core::Random;
use weir_core::queue::{Curve, Kind, Link, ParamError, ParamSpec, Params, Scope, TimeUnit, Value};
use weir_core::sched::{ClassConfig, Classes, Entry, Node, Registry, Tree};
use weir_core::units::{Duration, Fixed, Fraction, Rate};

/// What the queues of the classes are.
#[derive(Clone, Copy, Debug)]
pub enum Below<'a> {
    /// Leaves.
    Leaves,
    /// Each the discipline of that name, with leaves below it where it has classes.
    Each(&'a str),
    /// Anything that is registered and built, at most so many levels of it.
    Anything(u32),
}

/// A source of random configurations for one registry and link.
pub struct Generator<'a> {
    registry: &'a Registry,
    link: Link,
    random: Random,
    names: u32,
}

/// Rates that links are drawn from (A35: 9.6 kbit/s to 400 Gbit/s).
const LINK_RATES: [u64; 8] =
    [9_600, 64_000, 1_500_000, 10_000_000, 100_000_000, 1_000_000_000, 10_000_000_000, 400_000_000_000];

/// A random link.
pub fn link(random: &mut Random) -> Link {
    let rate = Rate::from_bps(LINK_RATES[random.below(LINK_RATES.len() as u64) as usize]);
    Link::new(rate, [0, 24, 38][random.below(3) as usize], [576, 1_514, 9_014][random.below(3) as usize])
}

impl<'a> Generator<'a> {
    /// A source that depends on nothing but its arguments.
    pub fn new(registry: &'a Registry, link: Link, seed: u64) -> Self {
        Generator { registry, link, random: Random::new(seed), names: 0 }
    }
    /// A configuration of the discipline `name` that builds.
    ///
    /// # Errors
    /// The last refusal, if every attempt is refused.
    pub fn node(&mut self, name: &str, below: Below<'_>) -> Result<Node, ParamError> {
        self.tree(name, below).map(|(node, _)| node)
    }
    /// The same, with the tree that it builds.
    ///
    /// # Errors
    /// The last refusal, if every attempt is refused.
    pub fn tree(&mut self, name: &str, below: Below<'_>) -> Result<(Node, Tree), ParamError> {
        const ATTEMPTS: u32 = 400;
        let mut attempt = 0;
        loop {
            let names = self.names;
            let node = self.draw(name, below, attempt);
            match self.registry.build(&node, self.link) {
                Ok(tree) => return Ok((node, tree)),
                Err(error) if attempt == ATTEMPTS => return Err(error),
                Err(_) => self.names = names,
            }
            attempt += 1;
        }
    }
    /// PRIQ over three classes that have the AQM `name`, each tuned at random.
    ///
    /// # Errors
    /// A name that no class can ask for; the last refusal, if every attempt is refused.
    pub fn with_aqm(&mut self, name: &str) -> Result<Node, ParamError> {
        const ATTEMPTS: u32 = 400;
        let aqm = self.registry.find_aqm(name).filter(|aqm| aqm.is_for_classes()).copied();
        let aqm = aqm.ok_or_else(|| ParamError::new("", "aqm", name, "an AQM that a class can ask for"))?;
        let words: Vec<&ParamSpec> = aqm.class_params().filter(|p| !aqm.asks(p.name)).collect();
        let hints: Vec<&ParamSpec> =
            aqm.class_params().filter(|p| p.name != name && aqm.asks(p.name)).collect();
        let mut last = None;
        for _ in 0..ATTEMPTS {
            let mut node = Node { discipline: "priq".into(), ..Node::default() };
            for index in 0..3 {
                let mut params = Params::new().with("priority", Value::Count(index));
                params.set(aqm.name, Value::Flag);
                params.set("qlimit", Value::Count(1 + self.random.below(64)));
                for spec in words.iter().chain(&hints) {
                    if self.random.below(4) == 0 {
                        params.set(spec.name, self.value(spec, self.link.rate));
                    }
                }
                node.classes.push(ClassConfig {
                    name: format!("c{index}"),
                    params,
                    ..ClassConfig::default()
                });
            }
            match self.registry.build(&node, self.link) {
                Ok(_) => return Ok(node),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| ParamError::new("", "aqm", name, "a configuration")))
    }
    /// What it draws from.
    pub fn registry(&self) -> &'a Registry {
        self.registry
    }
    /// Starts the names of classes again at `c1`, so that two trees have classes in common.
    pub fn restart_names(&mut self) {
        self.names = 0;
    }
    /// Parameters of `entry` in `scope`, each given with a chance of one in `one_in`, within
    /// their ranges.
    pub fn params(&mut self, entry: &Entry, scope: Scope, one_in: u64) -> Params {
        let mut params = Params::new();
        for spec in self.registry.params(entry).filter(|p| p.scope == scope && p.name != "default") {
            if self.random.below(one_in) == 0 {
                let value = self.value(spec, self.link.rate);
                params.set(spec.name, value);
            }
        }
        params
    }
    /// One parameter of `entry` in `scope` with a value that is out of range or of the wrong kind.
    pub fn wrong_params(&mut self, entry: &Entry, scope: Scope) -> Params {
        let specs: Vec<&ParamSpec> = self.registry.params(entry).filter(|p| p.scope == scope).collect();
        let mut params = Params::new();
        if specs.is_empty() {
            return params;
        }
        let spec = specs[self.below(specs.len())];
        let extreme = self.random.below(2) == 0;
        let value = match spec.kind {
            _ if self.random.below(6) == 0 => Value::Flag,
            Kind::Flag | Kind::Word(_) => Value::Count(self.random.next_u64()),
            Kind::Count { min, max } => {
                Value::Count(if extreme { min.wrapping_sub(1) } else { max.saturating_add(1) })
            }
            Kind::Bytes { min, max } => {
                Value::Bytes(if extreme { min.wrapping_sub(1) } else { max.saturating_add(1) })
            }
            Kind::Rate => Value::Rate(Rate::from_bps(if extreme { 0 } else { u64::MAX })),
            Kind::Time { .. } => Value::Time(if extreme { Duration::ZERO } else { Duration::MAX }),
            Kind::Percent | Kind::Fraction => {
                Value::Fraction(if extreme { Fraction::ZERO } else { Fraction::ONE })
            }
            Kind::Real => Value::Real(Fixed::from_raw(if extreme { i64::MIN } else { i64::MAX })),
            Kind::Curve => {
                let rate = Rate::from_bps(u64::MAX);
                let zero = Curve::default();
                Value::Curve(if extreme { zero } else { Curve { m1: rate, d: Duration::MAX, m2: rate } })
            }
        };
        params.set(spec.name, value);
        params
    }
    /// Parameters that `entry` must refuse in `scope`, whatever its state: a word that it does not
    /// know, a value of another kind, or a number out of the declared range; up to two others that
    /// are right stand before or behind.
    pub fn refused_params(&mut self, entry: &Entry, scope: Scope) -> Params {
        let specs: Vec<&ParamSpec> = self.registry.params(entry).filter(|p| p.scope == scope).collect();
        let mut all = Vec::new();
        for _ in 0..self.below(3).min(specs.len()) {
            let spec = specs[self.below(specs.len())];
            let value = self.value(spec, self.link.rate);
            all.push((spec.name, value));
        }
        let wrong = match specs.is_empty() {
            true => None,
            false => {
                let spec = specs[self.below(specs.len())];
                let far = self.random.below(2) == 0;
                out_of_range(spec.kind, far)
                    .filter(|_| self.random.below(2) == 0)
                    .or_else(|| Some(self.mistyped(spec.kind)))
                    .filter(|_| self.random.below(4) > 0)
                    .map(|value| (spec.name, value))
            }
        };
        let wrong = wrong.unwrap_or(("no-such-parameter", Value::Count(1)));
        all.retain(|(name, _)| *name != wrong.0);
        all.insert(self.below(all.len() + 1), wrong);
        let mut params = Params::new();
        all.into_iter().for_each(|(name, value)| params.set(name, value));
        params
    }
    /// A value of another kind.
    fn mistyped(&mut self, kind: Kind) -> Value {
        let kinds = [
            Kind::Flag,
            Kind::Count { min: 0, max: 20 },
            Kind::Bytes { min: 1, max: 9_000 },
            Kind::Rate,
            Kind::Time { bare: TimeUnit::Millis },
            Kind::Fraction,
            Kind::Real,
            Kind::Word(&["formal", "delay-first", "nonsense"]),
            Kind::Curve,
        ];
        let spec = |kind| ParamSpec::class("", kind, "", "");
        let form = |value: &Value| std::mem::discriminant(value);
        let right = self.value(&spec(kind), self.link.rate);
        loop {
            let other = spec(kinds[self.below(kinds.len())]);
            let value = self.value(&other, self.link.rate);
            if form(&value) != form(&right) {
                return value;
            }
        }
    }
    fn below(&mut self, n: usize) -> usize {
        self.random.below(n as u64) as usize
    }
    /// One draw, with fewer parameters the more attempts were refused.
    fn draw(&mut self, name: &str, below: Below<'_>, attempt: u32) -> Node {
        let Some(entry) = self.registry.find(name).copied() else {
            return Node { discipline: name.into(), ..Node::default() };
        };
        let one_in = [2, 4, 10, u64::MAX][(attempt as usize / 100).min(3)];
        let mut node = Node {
            discipline: name.into(),
            params: self.params(&entry, Scope::Discipline, one_in),
            ..Node::default()
        };
        if entry.classes == Classes::None {
            return node;
        }
        let count = 1 + self.below(6);
        let parents = self.parents(entry.classes, count);
        let shares = self.shares(&parents);
        let distinct = attempt % 2 == 1 || self.random.below(2) == 0;
        for (index, &parent) in parents.iter().enumerate() {
            // Before those below take theirs.
            self.names += 1;
            let name = format!("c{}", self.names);
            let mut params = self.params(&entry, Scope::Class, one_in.saturating_mul(2));
            self.give_share(&entry, &mut params, shares[index]);
            if distinct {
                set_distinct_priority(&entry, &mut params, index, count);
            }
            let inner = !parents.contains(&Some(index));
            let queue = if inner { self.queue(below, attempt) } else { None };
            node.classes.push(ClassConfig { name, parent, params, queue });
        }
        self.make_one_default(&entry, &mut node, &parents);
        node
    }
    fn queue(&mut self, below: Below<'_>, attempt: u32) -> Option<Node> {
        match below {
            Below::Leaves | Below::Anything(0) => None,
            Below::Each(name) => Some(self.draw(name, Below::Leaves, attempt)),
            Below::Anything(levels) => {
                let names: Vec<&str> =
                    self.registry.iter().filter(|e| e.build.is_some()).map(|e| e.name).collect();
                let pick = self.below(names.len() * 2);
                let name = names.get(pick)?;
                Some(self.draw(name, Below::Anything(levels - 1), attempt))
            }
        }
    }
    fn parents(&mut self, classes: Classes, count: usize) -> Vec<Option<usize>> {
        let count = if classes == Classes::RootedTree { count + 1 } else { count };
        (0..count)
            .map(|index| match classes {
                Classes::None | Classes::Flat => None,
                Classes::RootedTree => (index > 0).then(|| self.below(index)),
                Classes::Tree => (index > 0 && self.random.below(2) == 0).then(|| self.below(index)),
            })
            .collect()
    }
    /// The share of the link of each class, in millionths: siblings share at most 95 % of what
    /// their parent has; a lone top class has everything.
    fn shares(&mut self, parents: &[Option<usize>]) -> Vec<u64> {
        let weights: Vec<u64> = parents.iter().map(|_| 1 + self.random.below(9)).collect();
        let mut shares: Vec<u64> = Vec::with_capacity(parents.len());
        for (index, parent) in parents.iter().enumerate() {
            let siblings: u64 =
                parents.iter().zip(&weights).filter(|(p, _)| *p == parent).map(|(_, w)| w).sum();
            let lone_top = parent.is_none() && siblings == weights[index];
            let whole = parent.map_or(1_000_000, |p| shares[p]);
            shares.push(if lone_top { whole } else { whole * 95 / 100 * weights[index] / siblings });
        }
        shares
    }
    /// Replaces every share-like value that was drawn by one that fits, and gives one if none was.
    fn give_share(&mut self, entry: &Entry, params: &mut Params, millionths: u64) {
        let share_like = |p: &&ParamSpec| matches!(p.kind, Kind::Rate | Kind::Percent | Kind::Curve);
        let specs: Vec<&ParamSpec> =
            entry.params().filter(|p| p.scope == Scope::Class).filter(share_like).collect();
        if specs.is_empty() {
            return;
        }
        let chosen = specs[self.below(specs.len())].name;
        let rate = Rate::from_bps((self.link.rate.as_bps() * millionths / 1_000_000).max(8));
        for spec in specs {
            if spec.name == chosen || params.has(spec.name) {
                let value = match spec.kind {
                    Kind::Percent => Value::Fraction(Fraction::ratio(millionths, 1_000_000)),
                    _ => self.value(spec, rate),
                };
                params.set(spec.name, value);
            }
        }
    }
    fn make_one_default(&mut self, entry: &Entry, node: &mut Node, parents: &[Option<usize>]) {
        let Some(spec) = entry.param(Scope::Class, "default") else { return };
        let ends: Vec<usize> = (0..parents.len()).filter(|&i| !parents.contains(&Some(i))).collect();
        let chosen = ends[self.below(ends.len())];
        node.classes[chosen].params.set(spec.name, Value::Flag);
    }
    /// A value within the range of `spec`; rates and curves are for a class of `rate`.
    fn value(&mut self, spec: &ParamSpec, rate: Rate) -> Value {
        match spec.kind {
            Kind::Flag => Value::Flag,
            Kind::Count { min, max } => Value::Count(self.number(min, max)),
            Kind::Bytes { min, max } => Value::Bytes(self.number(min, max)),
            Kind::Rate => Value::Rate(rate),
            Kind::Time { .. } => Value::Time(Duration::from_nanos(self.log_uniform(10_000_000_000))),
            Kind::Percent | Kind::Fraction => {
                Value::Fraction(Fraction::ratio(self.random.below(1_001), 1_000))
            }
            // From 1/16 to 16.
            Kind::Real => Value::Real(Fixed::from_raw((1 << 28) + self.log_uniform(1 << 36) as i64)),
            Kind::Word(words) => Value::Word(words[self.below(words.len())]),
            Kind::Curve => {
                let d = Duration::from_nanos(1_000 + self.log_uniform(1_000_000_000));
                Value::Curve(match self.random.below(3) {
                    0 => Curve { m1: rate, d: Duration::ZERO, m2: rate },
                    1 => Curve { m1: rate, d, m2: Rate::from_bps(1 + rate.as_bps() / 2) },
                    _ => Curve { m1: Rate::ZERO, d, m2: rate },
                })
            }
        }
    }
    /// From `min` to `max`, mostly small, often a power of two.
    fn number(&mut self, min: u64, max: u64) -> u64 {
        let span = max - min;
        let most = if self.random.below(32) == 0 { span } else { span.min(1_000) };
        match self.random.below(4) {
            0 => min + self.random.below(span.min(8) + 1),
            1 => (1u64 << self.random.below(64 - most.max(1).leading_zeros() as u64)).clamp(min, max),
            _ => min + self.log_uniform(most),
        }
    }
    /// From 0 to `most`, every magnitude equally likely.
    fn log_uniform(&mut self, most: u64) -> u64 {
        let bits = 64 - most.leading_zeros() as u64;
        let top = self.random.below(bits + 1);
        let draw = if top == 0 { 0 } else { self.random.next_u64() >> (64 - top) };
        draw.min(most)
    }
}

/// A value of the kind, out of its range; `None` where every one is in it.
fn out_of_range(kind: Kind, far: bool) -> Option<Value> {
    let outside = |min: u64, max: u64| match (far, min, max) {
        (true, _, u64::MAX) | (false, 1.., _) => min.checked_sub(1),
        (true, ..) => Some(u64::MAX),
        (false, ..) => max.checked_add(1),
    };
    match kind {
        Kind::Count { min, max } => outside(min, max).map(Value::Count),
        Kind::Bytes { min, max } => outside(min, max).map(Value::Bytes),
        Kind::Real => Some(Value::Real(Fixed::from_raw(if far { i64::MIN } else { 0 }))),
        Kind::Word(_) => Some(Value::Word("no-such-word")),
        _ => None,
    }
}

/// A `priority` of its own for each of `count` siblings, if there are that many.
fn set_distinct_priority(entry: &Entry, params: &mut Params, index: usize, count: usize) {
    let Some(spec) = entry.param(Scope::Class, "priority") else { return };
    let Kind::Count { min, max } = spec.kind else { return };
    if max - min >= count as u64 {
        params.set(spec.name, Value::Count(min + index as u64));
    }
}
