//! Generated plans of every discipline: print, read, and the plan is the same.

#![allow(clippy::unwrap_used)]

use weir_conf::plan::{
    Action, Attach, Class, Conditioner, Fail, Filter, Given, Interface, Meter, Options, Plan, Protection,
    Queue, RedDefaults, Tunnels, Xdp,
};
use weir_conf::{Place, print, read};
use weir_core::Random;
use weir_core::packet::{ControlKind, ControlSet, Family};
use weir_core::port::Segment;
use weir_core::queue::{Curve, Kind, ParamSpec, Scope, Value};
use weir_core::sched::{Classes, Entry, Registry};
use weir_core::units::{Duration, Fixed, Fraction, Rate};

const CASES: u64 = 10_000;
/// Far above what any generated class asks for, so that admission never decides.
const LINK: Rate = Rate::from_bps(400_000_000_000);
/// The highest rate that can be written, bit/s.
const MOST: u64 = weir_text::number::MOST_RATE.as_bps();

struct Generator {
    random: Random,
    registry: Registry,
}

impl Generator {
    fn below(&mut self, n: u64) -> u64 {
        self.random.below(n)
    }
    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
    fn between(&mut self, min: u64, max: u64) -> u64 {
        // Small and large ones alike.
        let span = (max - min).saturating_add(1);
        let bits = self.below(u64::from(64 - span.leading_zeros()) + 1);
        min + self.below(span.min(1u64.checked_shl(bits as u32).unwrap_or(u64::MAX)).max(1))
    }

    fn value(&mut self, spec: &'static ParamSpec) -> Value {
        match spec.kind {
            Kind::Flag => Value::Flag,
            Kind::Count { min, max } if spec.name.ends_with("weight") => {
                Value::Count((1u64 << self.below(17)).clamp(min.max(1), max))
            }
            Kind::Count { min, max } => Value::Count(self.between(min, max)),
            Kind::Bytes { min, max } => Value::Bytes(self.between(min, max)),
            Kind::Rate => Value::Rate(Rate::from_bps(self.between(1, 1_000_000))),
            Kind::Time { .. } => Value::Time(Duration::from_nanos(self.between(0, MOST))),
            Kind::Percent | Kind::Fraction => {
                Value::Fraction(Fraction::ratio(self.between(0, 1 << 32), 1 << 32))
            }
            Kind::Real => Value::Real(Fixed::from_raw(self.between(1, MOST) as i64)),
            Kind::Word(words) => Value::Word(words[self.below(words.len() as u64) as usize]),
            Kind::Curve => Value::Curve(self.curve()),
        }
    }

    /// A lawful curve far below the link.
    fn curve(&mut self) -> Curve {
        let (low, high) =
            (Rate::from_bps(self.between(1, 1_000)), Rate::from_bps(self.between(1_001, 100_000)));
        let d = Duration::from_nanos(self.between(0, 1_000_000_000));
        if self.chance(50) { Curve { m1: Rate::ZERO, d, m2: high } } else { Curve { m1: high, d, m2: low } }
    }

    /// Random options of a scope, without those named.
    fn options(&mut self, entry: &Entry, scope: Scope, without: &[&str]) -> Options {
        let mut options = Options::new();
        for spec in self.registry.params(entry).filter(|p| p.scope == scope && !without.contains(&p.name)) {
            if self.chance(35) {
                let value = self.value(spec);
                set(&mut options, spec, value);
            }
        }
        // A queue has one AQM: words that contradict one another are taken away.
        while scope == Scope::Class
            && let Err(error) = self.registry.aqm_of_class("", &options.params())
        {
            options.remove(&error.field);
        }
        for prefix in ["", "lo_", "med_", "hi_"] {
            let value = |name: &str| options.params().count(&format!("{prefix}{name}"));
            if value("thmax").is_some_and(|max| max <= value("thmin").unwrap_or(0)) {
                options.remove(&format!("{prefix}thmax"));
            }
        }
        options
    }

    fn queue(&mut self, entry: &Entry) -> Queue {
        let options = self.options(entry, Scope::Discipline, &[]);
        Queue { name: entry.name.to_string(), options, place: Place::default() }
    }

    /// Classes of `entry`, below `owner` or at the top of the interface.
    fn classes(&mut self, entry: &Entry, owner: Option<&str>, into: &mut Vec<Class>, depth: u32) {
        let count = 1 + self.below(6) as usize;
        let first = into.len();
        let top = owner.map(str::to_string).or((entry.classes == Classes::Tree).then(|| "root".to_string()));
        let mut parents = Vec::new();
        let mut parts: Vec<u64> = Vec::new();
        for n in 0..count {
            let root = n == 0 && entry.classes == Classes::RootedTree;
            let below = match entry.classes {
                _ if n == 0 => None,
                Classes::Tree if self.chance(50) => None,
                Classes::Tree | Classes::RootedTree => Some(first + self.below(n as u64) as usize),
                Classes::None | Classes::Flat => None,
            };
            parents.push(below);
            let parent = below.map(|p| into[p].name.clone()).or(top.clone());
            // At most six classes below one: an eighth each fits.
            parts.push(below.map_or(1 << 28, |p: usize| parts[p - first] / 8));
            let options = self.class_options(entry, n, root, parts[n]);
            let name = format!("c{}", into.len());
            let class =
                Class { discipline: entry.name.to_string(), name, parent, options, ..Class::default() };
            into.push(class);
        }
        // The last class has none below it.
        set_flag(&mut into[first + count - 1].options, entry, "default");
        for n in first..first + count {
            let leaf = !parents.contains(&Some(n));
            if !leaf && entry.name == "hfsc" {
                // What a class with children guarantees bounds what they may.
                into[n].options.remove("rt");
                into[n].options.remove("grate");
            }
            if leaf && depth < 2 && self.chance(30) {
                self.inside(n, into, depth);
            }
        }
    }

    fn class_options(&mut self, entry: &Entry, n: usize, root: bool, part: u64) -> Options {
        let fixed = ["default", "control", "priority", "pbandwidth", "exactbandwidth", "pshare"];
        let curves = ["sc", "ls", "ul", "ulimit", "bandwidth", "rate", "delay", "burst"];
        let hfsc = entry.name == "hfsc";
        let without: Vec<&str> = if hfsc { [&fixed[..], &curves[..]].concat() } else { fixed.to_vec() };
        let mut options = self.options(entry, Scope::Class, &without);
        let give = |options: &mut Options, name: &str, value: Value| {
            if let Some(spec) = entry.param(Scope::Class, name) {
                set(options, spec, value);
            }
        };
        give(&mut options, "priority", Value::Count(n as u64));
        match entry.name {
            "cbq" if !root && self.chance(50) => {
                let rate = Fraction::ratio(part, 1 << 32).of(LINK.as_bps());
                give(&mut options, "exactbandwidth", Value::Rate(Rate::from_bps(rate)));
                give(&mut options, "borrow", Value::Flag);
            }
            "cbq" => {
                let part = if root { 1 << 32 } else { part };
                give(&mut options, "pbandwidth", Value::Fraction(Fraction::ratio(part, 1 << 32)));
            }
            "hfsc" => give(&mut options, "pshare", Value::Fraction(Fraction::ratio(part, 1 << 32))),
            _ => {}
        }
        options
    }

    /// Gives class `n` a discipline inside, with classes or without.
    fn inside(&mut self, n: usize, into: &mut Vec<Class>, depth: u32) {
        let about_queue = |name: &str| self.registry.is_about_queue(name);
        let class = &mut into[n];
        let own: Vec<&str> = class.options.iter().map(|g| g.spec.name).filter(|n| about_queue(n)).collect();
        for name in own {
            class.options.remove(name);
        }
        let outer = class.discipline.clone();
        let name = class.name.clone();
        // `red` and `rio` behind a class are its flags.
        let fits = |e: &Entry| e.name != "cdnr" && !about_queue(e.name);
        let entries: Vec<Entry> = self.registry.iter().filter(|e| fits(e)).copied().collect();
        let inner = entries[self.below(entries.len() as u64) as usize];
        // Without a word where the name of the discipline already says it.
        if inner.classes == Classes::None || inner.name == outer || self.chance(50) {
            let queue = self.queue(&inner);
            into[n].queue = Some(queue);
        }
        if inner.classes != Classes::None {
            self.classes(&inner, Some(&name), into, depth + 1);
        }
    }

    fn filter(&mut self, number: u64, classes: &[Class], leaves: &[usize]) -> Filter {
        let class = leaves[self.below(leaves.len() as u64) as usize];
        let family = if self.chance(50) { Family::V4 } else { Family::V6 };
        let bits = if family == Family::V4 { 32 } else { 128 };
        let full = if bits == 32 { u128::from(u32::MAX) } else { u128::MAX };
        // Every filter has a destination of its own: none is in another's way.
        let own = (u128::from(10 + number) << (bits - 16)) | 1;
        let mask = full << self.below(bits / 2) & full;
        let mut filter = Filter::any(&classes[class].name, family);
        filter.dst = (own & mask | u128::from(10 + number) << (bits - 16), mask);
        filter.src = if self.chance(30) { (self.random.next_u64() as u128 & full | 1, full) } else { (0, 0) };
        filter.protocol = [0, 6, 17, 47, 50, 200][self.below(6) as usize];
        if matches!(filter.protocol, 0 | 6 | 17) {
            (filter.src_port, filter.dst_port) = (self.below(3) as u16, self.between(0, 65_535) as u16);
        }
        filter.name = self.chance(30).then(|| format!("f{number}"));
        filter.ruleno = if self.chance(30) { self.random.next_u32() as i32 } else { 0 };
        filter.spi = if self.chance(20) { self.random.next_u32() } else { 0 };
        filter.dontwarn = self.chance(20);
        if family == Family::V6 && self.chance(30) {
            filter.flow_label = self.below(1 << 20) as u32;
        }
        if self.chance(50) {
            let mask = [0xff, 0xfc, 0xe4, 0x03][self.below(4) as usize];
            let value = self.below(256) as u8 & mask;
            filter.tos = (value != 0 || mask == 0xfc).then_some((value, mask));
        }
        filter.after_classes = class + 1 + self.below((classes.len() - class) as u64) as usize;
        filter
    }

    fn protection(&mut self) -> Protection {
        if self.chance(20) {
            return Protection::Off;
        }
        let rate = self.chance(50).then(|| Rate::from_bps(self.between(1, MOST)));
        let kinds = ControlKind::ALL.into_iter().filter(|_| self.chance(20));
        Protection::On { rate, except: kinds.fold(ControlSet::NONE, ControlSet::with) }
    }

    fn interface(&mut self, name: String, entry: &Entry) -> Interface {
        let mut interface = Interface {
            name,
            bandwidth: Some(LINK),
            discipline: Some(self.queue(entry)),
            ..Interface::default()
        };
        interface.tbrsize = self.chance(30).then(|| self.between(1, 1 << 30));
        // A capacity that is too small is refused when the tree is built.
        interface.capacity = self.chance(30).then(|| self.between(1 << 19, 1 << 20) as u32);
        interface.overhead = self.chance(30).then(|| self.below(100) as u32);
        interface.tunnels = self.chance(30).then(|| [Tunnels::Inner, Tunnels::Outer][self.below(2) as usize]);
        interface.protect = self.chance(30).then(|| self.protection());
        interface.segment = self.chance(30).then(|| match self.below(3) {
            0 => Segment::Never,
            1 => Segment::Always,
            _ => Segment::Beyond(Duration::from_nanos(self.between(0, 1_000_000_000))),
        });
        interface.fail = self.chance(30).then(|| [Fail::Open, Fail::Closed][self.below(2) as usize]);
        interface.attach = match self.below(3) {
            0 => Attach::Unsaid,
            1 => Attach::Nfqueue,
            _ => Attach::Bridge("peer0".to_string()),
        };
        if matches!(interface.attach, Attach::Bridge(_)) {
            interface.xdp = self.chance(50).then(|| [Xdp::Wait, Xdp::BusyPoll][self.below(2) as usize]);
        }
        if interface.xdp.is_none() && interface.attach != Attach::Nfqueue {
            interface.workers = self.chance(30).then(|| 1 + self.below(2) as usize);
        }
        if entry.classes == Classes::None {
            return interface;
        }
        let mut classes = Vec::new();
        self.classes(entry, None, &mut classes, 0);
        if entry.name == "cbq" {
            // So that none is made by itself.
            set_flag(&mut classes[0].options, entry, "control");
        }
        let leaves: Vec<usize> = (0..classes.len())
            .filter(|&n| !classes.iter().any(|c| c.parent.as_ref() == Some(&classes[n].name)))
            .collect();
        let mut filters: Vec<Filter> =
            (0..self.below(8)).map(|n| self.filter(n, &classes, &leaves)).collect();
        filters.sort_by_key(|f| f.after_classes);
        (interface.classes, interface.filters) = (classes, filters);
        for n in 0..self.below(3) {
            let action = self.action(0, n);
            interface.conditioners.push(Conditioner {
                name: format!("m{n}"),
                action,
                place: Place::default(),
            });
        }
        interface
    }

    fn action(&mut self, depth: u64, known: u64) -> Action {
        match self.below(if depth < 4 { 8 } else { 3 }) {
            0 => Action::Pass,
            1 => Action::Drop,
            2 => Action::Mark(self.below(64) as u8 * 4),
            3 if known > 0 => Action::Conditioner(format!("m{}", self.below(known))),
            _ => {
                let rate = Rate::from_bps(self.between(0, MOST));
                let peak = Rate::from_bps(self.between(rate.as_bps(), MOST));
                let (burst, aware) = (self.between(0, MOST), self.chance(50));
                let other = self.between(0, MOST);
                let meter = match self.below(5) {
                    0 => Meter::TokenBucket { rate, depth: burst },
                    1 => Meter::SingleRate { rate, burst, excess: other, aware },
                    2 => Meter::TwoRate { rate, burst, peak, peak_burst: other, aware, rfc4115: false },
                    3 => Meter::TwoRate {
                        rate: peak,
                        burst,
                        peak: rate,
                        peak_burst: other,
                        aware,
                        rfc4115: true,
                    },
                    _ => Meter::TimeWindow { rate, peak, window: Duration::from_nanos(1 + other) },
                };
                // A line holds 1023 bytes: deep trees must be thin.
                let actions = (0..meter.results())
                    .map(|n| if n == 0 { self.action(depth + 1, known) } else { Action::Drop })
                    .collect();
                Action::Meter { meter, actions }
            }
        }
    }
}

fn set(options: &mut Options, spec: &'static ParamSpec, value: Value) {
    options.set(Given { spec, value, place: Place::default() });
}

fn set_flag(options: &mut Options, entry: &Entry, name: &str) {
    if let Some(spec) = entry.param(Scope::Class, name) {
        set(options, spec, Value::Flag);
    }
}

#[test]
fn generated_plans_print_and_read_as_the_same() {
    let mut generator = Generator { random: Random::new(weir_seed::seed()), registry: Registry::builtin() };
    let entries: Vec<Entry> = generator.registry.iter().filter(|e| e.name != "cdnr").copied().collect();
    let mut classes_seen = 0;
    for case in 0..CASES {
        let mut plan = Plan::default();
        if generator.chance(20) {
            plan.red = Some(RedDefaults { thmin: 5, thmax: generator.between(6, 100), invpmax: 10 });
        }
        if generator.chance(20) {
            let d = |thmin, thmax| RedDefaults { thmin, thmax, invpmax: 0 };
            plan.rio = Some([d(35, 45), d(20, 30), d(5, 15)]);
        }
        for n in 0..1 + generator.below(2) {
            let entry = entries[((case + n) % entries.len() as u64) as usize];
            let interface = generator.interface(format!("em{n}"), &entry);
            classes_seen += interface.classes.len();
            plan.interfaces.push(interface);
        }
        let text = print(&plan);
        let outcome = read("generated", &text, &generator.registry);
        let said: Vec<String> = outcome.diagnostics.iter().map(ToString::to_string).collect();
        let again = outcome.plan.unwrap_or_else(|| panic!("case {case}:\n{text}\n{}", said.join("\n")));
        assert_eq!(again, plan, "case {case}:\n{text}");
        assert_eq!(print(&again), text, "case {case}");
    }
    assert!(classes_seen as u64 > CASES, "the plans have classes");
}

#[test]
fn plans_that_differ_print_differently() {
    // The property above cannot hold by printing nothing.
    let mut generator = Generator { random: Random::new(weir_seed::seed()), registry: Registry::builtin() };
    let entry = *generator.registry.find("priq").unwrap();
    let interface = generator.interface("em0".to_string(), &entry);
    let plan = Plan { interfaces: vec![interface], ..Plan::default() };
    let mut other = plan.clone();
    other.interfaces[0].classes[0].options.remove("priority");
    assert_ne!(plan, other);
    assert_ne!(print(&plan), print(&other));
}
