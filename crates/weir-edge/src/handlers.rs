//! Names by which an allocator is read and set while it runs.
//!
//! Principle: each option of `allocate` has a name with a part in front that says what it is of, as
//! `law.gain`. What an allocator has come to has names too, as `state.allocated`. The names that
//! multiservice gives them are aliases. A value has the kind of the option, so that whoever reads
//! altq.conf reads it.
//!
//! Paper: multiservice IV.3.6 (T46): the handlers of MeterShaper.
//! Where we differ, and why:
//! - All can be read and set; there `allocated_bit_rate` and the counters were for reading alone.
//! - `l_min` and `l_max` are percentages, as the options are.
//! - `inc_parameter` and `dec_parameter` are the rate that is asked for: set, they ask for it.
//! - `BB_response` is 1 while no answer is awaited. Set to 1 or 0 it is the answer to the request under
//!   way: granted, or refused. That is for trials; a broker that is there knows nothing of it.

mod settings;

pub use settings::Setting;
pub(crate) use settings::{carried, settings};

use crate::admit::Admission;
use crate::allocate::{Allocation, Allocator, Amount, Answer, Law};
use crate::check::{self, Finding, Weight};
use crate::edge::{Edge, Terms};
use crate::params::{self, ALLOCATE, SHARES};
use weir_core::queue::params::spec_of;
use weir_core::queue::{Kind, ParamError, ParamSpec, Params, Value};
use weir_core::units::{Fixed, Instant, Rate};

/// The longest usual packet: what conditions are checked for.
const MTU: u32 = 1_500;
const SWITCH: Kind = Kind::Word(&["off", "on"]);

/// One name.
#[derive(Clone, Copy, Debug)]
pub struct Handler {
    /// The name.
    pub name: &'static str,
    /// The name that multiservice gives it.
    pub alias: Option<&'static str>,
    /// How its value is typed, and what it is.
    pub spec: ParamSpec,
    what: What,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    Option,
    Allocated,
    Measured,
    Rises,
    Falls,
    Rise,
    Fall,
    Answered,
}

const fn option(name: &'static str, option: &'static str) -> Handler {
    let spec = spec_of(ALLOCATE, option);
    // A word alone cannot be taken back: here it is switched.
    let kind = if matches!(spec.kind, Kind::Flag) { SWITCH } else { spec.kind };
    Handler { name, alias: None, spec: ParamSpec { kind, ..spec }, what: What::Option }
}

const fn or_none(handler: Handler) -> Handler {
    Handler { spec: handler.spec.or_none(), ..handler }
}

const fn also(alias: &'static str, handler: Handler) -> Handler {
    Handler { alias: Some(alias), ..handler }
}

const fn state(what: What, name: &'static str, kind: Kind, help: &'static str) -> Handler {
    Handler { name, alias: None, spec: ParamSpec::discipline(name, kind, "", help), what }
}

const COUNT: Kind = Kind::Count { min: 0, max: u64::MAX };
const ANSWER: Kind = Kind::Count { min: 0, max: 1 };

/// All of them.
pub const HANDLERS: &[Handler] = &[
    option("law", "law"),
    also("i", option("law.up", "up")),
    also("d", or_none(option("law.down", "down"))),
    also("l_max", option("law.high", "high")),
    also("l_min", option("law.low", "low")),
    option("law.gain", "gain"),
    option("law.target", "target"),
    option("law.step", "step"),
    option("law.published", "published"),
    option("meter.window", "window"),
    option("meter.hold", "hold"),
    option("meter.measure", "measure"),
    or_none(option("congestion.drain", "congestion")),
    option("congestion.margin", "margin"),
    option("congestion.packets", "packets"),
    option("congestion.guard", "guard"),
    option("request.from", "from"),
    option("request.to", "to"),
    option("request.unit", "unit"),
    option("request.retry", "retry"),
    option("admit.accept", "accept"),
    option("admit.drop", "drop"),
    or_none(option("admit.new-flow", "new-flow")),
    option("admit.evict", "evict"),
    option("admit.timeout", "timeout"),
    option("admit.refused", "refused"),
    also(
        "allocated_bit_rate",
        state(What::Allocated, "state.allocated", Kind::Rate, "B_d, bit/s; set, it is asked for."),
    ),
    also(
        "current_bit_rate",
        state(
            What::Measured,
            "state.measured",
            Kind::Rate,
            "B_m, bit/s; set, it counts until the hold ends.",
        ),
    ),
    also("BB_connections_inc", state(What::Rises, "state.rises", COUNT, "Requests for more.")),
    also("BB_connections_dec", state(What::Falls, "state.falls", COUNT, "Requests for less.")),
    also(
        "inc_parameter",
        state(What::Rise, "request.rise", Kind::Rate, "More that is asked for, bit/s; none if nothing is."),
    ),
    also(
        "dec_parameter",
        state(What::Fall, "request.fall", Kind::Rate, "Less that is asked for, bit/s; none if nothing is."),
    ),
    also(
        "BB_response",
        state(
            What::Answered,
            "request.answered",
            ANSWER,
            "1 while no answer is awaited; set, it is the answer.",
        ),
    ),
];

/// The handler of that name or alias.
pub fn find(name: &str) -> Option<&'static Handler> {
    HANDLERS.iter().find(|h| h.name == name || h.alias == Some(name))
}

/// Why a value was not read, or not set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NoHandler {
    /// No class with an allocator has that leaf.
    NoAllocator,
    /// The law in force, which this is not of.
    OtherLaw(&'static str),
    /// The value is of another kind, or out of range.
    Value(ParamError),
    /// With it the parameters could not work.
    Cannot(Finding),
    /// The rate asked for is not above, or not below, what the class has; or no answer is awaited.
    Nothing,
}

impl Handler {
    /// Whether it is a parameter, rather than what an allocator has come to.
    pub fn is_option(&self) -> bool {
        self.what == What::Option
    }
    /// Whether a value is of its kind; none where it may have none.
    fn accept(&self, value: Option<&Value>) -> Result<(), ParamError> {
        let share = SHARES.iter().find(|spec| spec.name == self.spec.name && self.what == What::Option);
        match value {
            None if self.spec.none => Ok(()),
            None => Err(ParamError::new("", self.name, "no value", self.spec.form())),
            Some(value @ Value::Fraction(_)) => share.unwrap_or(&self.spec).accept("", value),
            Some(value) => self.spec.accept("", value),
        }
    }
    /// Whether it speaks of a law, and that is not the one in force.
    fn is_of_other_law(&self, law: &Law) -> Option<&'static str> {
        let of = match self.spec.name {
            "up" | "down" | "high" | "low" => "threshold",
            "gain" | "target" | "step" | "published" => "log",
            _ => return None,
        };
        Some(name_of(law)).filter(|name| self.what == What::Option && *name != of)
    }
}

fn name_of(law: &Law) -> &'static str {
    match law {
        Law::Threshold(_) => "threshold",
        Law::Log(_) => "log",
        Law::Fixed => "fixed",
    }
}

/// The words of an `allocate` line that come to these parameters.
pub fn words(plan: &Allocation, admission: &Admission) -> Params {
    let mut words = Params::new();
    let rate = |bps| Value::Rate(Rate::from_bps(bps));
    let amount = |amount| match amount {
        Amount::Rate(bps) => rate(bps),
        Amount::Share(share) => Value::Fraction(share),
    };
    words.set("law", Value::Word(name_of(&plan.law)));
    match plan.law {
        Law::Threshold(law) => {
            words.set("up", Value::Real(law.up));
            law.down.into_iter().for_each(|down: Fixed| words.set("down", Value::Real(down)));
            words.set("high", Value::Fraction(law.high));
            words.set("low", Value::Fraction(law.low));
        }
        Law::Log(law) => {
            words.set("gain", amount(law.gain));
            words.set("target", Value::Fraction(law.target));
            words.set("step", amount(law.step));
            if law.published {
                words.set("published", Value::Flag);
            }
        }
        Law::Fixed => {}
    }
    words.set("window", Value::Time(plan.windows.span));
    words.set("hold", Value::Count(u64::from(plan.windows.hold)));
    words.set("measure", Value::Word(if plan.at_shaper { "shaper" } else { "arrivals" }));
    if let Some(congestion) = plan.congestion {
        words.set("congestion", Value::Time(congestion.drain));
        words.set("margin", Value::Fraction(congestion.margin));
        if congestion.packets {
            words.set("packets", Value::Flag);
        }
    }
    words.set("guard", Value::Time(plan.guard));
    for (name, bps) in [("from", plan.from), ("to", plan.to), ("initial", plan.initial), ("unit", plan.unit)]
    {
        words.set(name, rate(bps));
    }
    words.set("retry", Value::Time(plan.retry));
    admission_words(&mut words, admission);
    words
}

fn admission_words(words: &mut Params, admission: &Admission) {
    words.set("accept", Value::Fraction(admission.accept));
    words.set("drop", Value::Fraction(admission.drop));
    admission
        .new_flow_bps
        .into_iter()
        .for_each(|bps| words.set("new-flow", Value::Rate(Rate::from_bps(bps))));
    words.set("evict", Value::Word(admission.evict.word()));
    words.set("timeout", Value::Time(admission.timeout));
    words.set("refused", Value::Word(if admission.drop_refused { "drop" } else { "be" }));
}

/// An option as handlers show it: a word that stands alone is on or off.
fn shown(handler: &Handler, words: &Params) -> Option<Value> {
    match handler.spec.kind {
        SWITCH => Some(Value::Word(if words.has(handler.spec.name) { "on" } else { "off" })),
        _ => words.get(handler.spec.name).cloned(),
    }
}

fn read(handler: &Handler, allocator: &Allocator, admission: &Admission) -> Option<Value> {
    let rate = |bps| Some(Value::Rate(Rate::from_bps(bps)));
    let asked = |is_rise: bool| {
        let asked = allocator.outstanding()?.rate_bps;
        // A fall is in force before it is asked.
        rate(asked).filter(|_| (asked > allocator.allocated_bps()) == is_rise)
    };
    match handler.what {
        What::Option => shown(handler, &words(allocator.plan(), admission)),
        What::Allocated => rate(allocator.allocated_bps()),
        What::Measured => rate(allocator.estimate_bps()),
        What::Rises => Some(Value::Count(allocator.rises())),
        What::Falls => Some(Value::Count(allocator.falls())),
        What::Rise => asked(true),
        What::Fall => asked(false),
        What::Answered => Some(Value::Count(u64::from(allocator.outstanding().is_none()))),
    }
}

impl Edge {
    /// What a handler of the class with that leaf has; none if it has no value now.
    ///
    /// # Errors
    /// There is no allocator, or it follows another law.
    pub fn handler(&self, leaf: u32, handler: &Handler) -> Result<Option<Value>, NoHandler> {
        let (admission, allocator) = self.allocator_of(leaf).ok_or(NoHandler::NoAllocator)?;
        match handler.is_of_other_law(&allocator.plan().law) {
            Some(law) => Err(NoHandler::OtherLaw(law)),
            None => Ok(read(handler, allocator, admission)),
        }
    }

    /// Sets a handler of the class with that leaf. Nothing is changed unless all is well. As after any
    /// call, [`Edge::poll`] has what is to be done.
    ///
    /// # Errors
    /// Why it was not set.
    pub fn set_handler(
        &mut self,
        now: Instant,
        leaf: u32,
        handler: &Handler,
        value: Option<Value>,
    ) -> Result<(), NoHandler> {
        let (admission, allocator) = self.allocator_of(leaf).ok_or(NoHandler::NoAllocator)?;
        handler.accept(value.as_ref()).map_err(NoHandler::Value)?;
        if handler.what == What::Option {
            if let Some(law) = handler.is_of_other_law(&allocator.plan().law) {
                return Err(NoHandler::OtherLaw(law));
            }
            let words = changed(handler, words(allocator.plan(), admission), value);
            let (plan, admission) = (params::allocation(&words), params::admission(&words));
            if let Some(found) = cannot(&(plan, admission)) {
                return Err(NoHandler::Cannot(found));
            }
            self.set_terms(now, leaf, plan, admission);
            return Ok(());
        }
        let rate = match value {
            Some(Value::Rate(rate)) => rate.as_bps(),
            Some(Value::Count(count)) => count,
            _ => return Err(NoHandler::Nothing),
        };
        let allocator = self.allocator_mut(leaf).ok_or(NoHandler::NoAllocator)?;
        let has = allocator.allocated_bps();
        let done = match handler.what {
            What::Option => false,
            What::Allocated => allocator.ask(now, rate),
            What::Rise => rate > has && allocator.ask(now, rate),
            What::Fall => rate < has && allocator.ask(now, rate),
            What::Measured => allocator.set_estimate(rate),
            What::Rises => allocator.set_requests(Some(rate), None),
            What::Falls => allocator.set_requests(None, Some(rate)),
            What::Answered => match allocator.outstanding() {
                Some(request) => {
                    let answer = if rate == 1 { Answer::Granted(request.rate_bps) } else { Answer::Refused };
                    self.answer(now, leaf, request.version, answer);
                    true
                }
                None => false,
            },
        };
        if done { Ok(()) } else { Err(NoHandler::Nothing) }
    }
}

/// Why parameters cannot work.
fn cannot((plan, admission): &Terms) -> Option<Finding> {
    let found = check::allocation(plan, MTU).into_iter().chain(check::admission(admission));
    found.into_iter().find(|found| found.weight == Weight::Error)
}

/// The words with one of another value.
fn changed(handler: &Handler, mut words: Params, value: Option<Value>) -> Params {
    let name = handler.spec.name;
    match value {
        None | Some(Value::Word("off")) if handler.spec.kind == SWITCH || handler.spec.none => {
            words.remove(name)
        }
        Some(Value::Word("on")) if handler.spec.kind == SWITCH => words.set(name, Value::Flag),
        Some(value) => words.set(name, value),
        None => {}
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admit::Evict;
    use crate::allocate::{Action, Congestion, Log, Threshold};
    use crate::edge::{Class, Config};
    use alloc::vec;
    use std::collections::BTreeSet;
    use weir_core::Random;
    use weir_core::units::{Duration, Fraction};

    fn edge(plan: Allocation) -> Edge {
        let class = Class { leaf: 3, allocation: Some(plan), admission: Admission::default(), rate_bps: 0 };
        let config = Config {
            classes: vec![class],
            contracts: vec![],
            prefixes: vec![],
            recognition: None,
            keep_untrusted: false,
            overhead: 0,
            seed: 1,
        };
        let mut edge = Edge::new(config, Instant::ZERO);
        while edge.poll().is_some() {}
        edge
    }

    fn plan(random: &mut Random) -> Allocation {
        let share = |random: &mut Random| Fraction::ratio(random.below(101), 100);
        let amount = |random: &mut Random| match random.below(2) {
            0 => Amount::Rate(random.below(1_000_000)),
            _ => Amount::Share(share(random)),
        };
        let law = match random.below(3) {
            0 => Law::Fixed,
            1 => Law::Log(Log {
                gain: amount(random),
                target: share(random),
                step: amount(random),
                published: random.below(2) == 1,
            }),
            _ => Law::Threshold(Threshold {
                up: Fixed::from_raw(1 + random.below(1 << 34) as i64),
                down: (random.below(2) == 1).then(|| Fixed::from_raw(1 + random.below(1 << 32) as i64)),
                high: share(random),
                low: share(random),
            }),
        };
        let congestion = (random.below(2) == 1).then(|| Congestion {
            drain: Duration::from_millis(random.below(100)),
            margin: share(random),
            packets: random.below(2) == 1,
        });
        Allocation {
            law,
            congestion,
            at_shaper: random.below(2) == 1,
            guard: Duration::from_millis(random.below(5_000)),
            from: random.below(1_000),
            initial: random.below(5_000),
            ..Allocation::default()
        }
    }

    /// T46: the words of any allocator come to that allocator again.
    #[test]
    fn t46_words_are_the_way_back() {
        for seed in weir_seed::seeds(2_000) {
            let mut random = Random::new(seed);
            let plan = plan(&mut random);
            let admission = Admission {
                accept: Fraction::ratio(random.below(101), 100),
                drop: Fraction::ratio(random.below(101), 100),
                new_flow_bps: (random.below(2) == 1).then(|| random.below(100_000)),
                evict: Evict::ALL[random.below(5) as usize],
                timeout: Duration::from_millis(random.below(100_000)),
                drop_refused: random.below(2) == 1,
            };
            let words = words(&plan, &admission);
            assert_eq!(
                (params::allocation(&words), params::admission(&words)),
                (plan, admission),
                "seed {seed}"
            );
        }
    }

    /// T46: each name of multiservice is there, names are unique, and what is set is what is read.
    #[test]
    fn t46_all_handlers_are_read_and_set() {
        let aliases: BTreeSet<&str> = HANDLERS.iter().filter_map(|h| h.alias).collect();
        let asked = "i d l_min l_max inc_parameter dec_parameter BB_response allocated_bit_rate current_bit_rate \
                     BB_connections_inc BB_connections_dec";
        assert_eq!(aliases, asked.split_whitespace().collect());
        let names: BTreeSet<&str> = HANDLERS.iter().flat_map(|h| [Some(h.name), h.alias]).flatten().collect();
        assert_eq!(names.len(), HANDLERS.len() + aliases.len());
        for handler in HANDLERS {
            let of_log = matches!(handler.spec.name, "gain" | "target" | "step" | "published");
            let law = if of_log { Law::Log(Log::default()) } else { Law::Threshold(Threshold::default()) };
            let mut edge = edge(Allocation { law, from: 64_000, initial: 500_000, ..Allocation::default() });
            let value = match (handler.name, handler.spec.kind) {
                ("law", _) => Value::Word("log"),
                ("admit.evict", _) => Value::Word("newest"),
                ("admit.refused", _) => Value::Word("drop"),
                ("meter.measure", _) => Value::Word("shaper"),
                ("law.up", _) => Value::Real(Fixed::from_raw(5 << 30)),
                ("law.down", _) => Value::Real(Fixed::from_raw(7 << 29)),
                ("law.low", _) => Value::Fraction(Fraction::ratio(60, 100)),
                ("law.high" | "admit.drop", _) => Value::Fraction(Fraction::ratio(99, 100)),
                ("request.to", _) => Value::Rate(Rate::from_bps(600_000)),
                // Half of what the class has.
                ("request.fall" | "request.from", _) => Value::Rate(Rate::from_bps(250_000)),
                ("request.answered", _) => continue,
                (_, Kind::Percent) => Value::Fraction(Fraction::ratio(80, 100)),
                (_, Kind::Rate) => Value::Rate(Rate::from_bps(700_000)),
                (_, Kind::Time { .. }) => Value::Time(Duration::from_millis(4_000)),
                (_, SWITCH) => Value::Word("on"),
                (_, Kind::Count { .. }) => Value::Count(7),
                (_, kind) => panic!("{} is {kind}", handler.name),
            };
            // The window may not be longer than half the guard.
            let value =
                if handler.name == "meter.window" { Value::Time(Duration::from_millis(200)) } else { value };
            let before = edge.handler(3, handler);
            let set = edge.set_handler(Instant::ZERO, 3, handler, Some(value.clone()));
            if matches!(handler.name, "congestion.margin" | "congestion.packets") {
                // Without congestion control they say nothing.
                assert_eq!((set, edge.handler(3, handler)), (Ok(()), before), "{}", handler.name);
                continue;
            }
            assert_eq!(set, Ok(()), "{}", handler.name);
            if handler.name == "state.allocated" {
                let Some((3, Action::Ask(request))) = edge.poll() else { panic!("nothing is asked") };
                edge.answer(Instant::ZERO, 3, request.version, Answer::Granted(request.rate_bps));
            }
            assert_eq!(edge.handler(3, handler), Ok(Some(value)), "{}", handler.name);
            assert_ne!(edge.handler(3, handler), before, "{}", handler.name);
        }
    }

    /// T46: an answer that is set ends the wait, and nothing else can be answered.
    #[test]
    fn t46_an_answer_is_set() {
        let answered = find("BB_response").unwrap();
        for (answer, has) in [(1, 700_000), (0, 64_000)] {
            let mut edge = edge(Allocation { from: 64_000, initial: 64_000, ..Allocation::default() });
            let set = |edge: &mut Edge, name: &str, value| {
                edge.set_handler(Instant::ZERO, 3, find(name).unwrap(), Some(value))
            };
            assert_eq!(set(&mut edge, "BB_response", Value::Count(1)), Err(NoHandler::Nothing));
            let rate = |bps| Value::Rate(Rate::from_bps(bps));
            assert_eq!(set(&mut edge, "dec_parameter", rate(700_000)), Err(NoHandler::Nothing));
            assert_eq!(set(&mut edge, "inc_parameter", rate(700_000)), Ok(()));
            assert_eq!(edge.handler(3, answered), Ok(Some(Value::Count(0))));
            assert_eq!(edge.handler(3, find("inc_parameter").unwrap()), Ok(Some(rate(700_000))));
            assert_eq!(set(&mut edge, "BB_response", Value::Count(answer)), Ok(()));
            assert_eq!(edge.handler(3, find("state.allocated").unwrap()), Ok(Some(rate(has))));
        }
    }

    /// What cannot be is refused, with the reason, and changes nothing.
    #[test]
    fn what_cannot_be_is_refused() {
        let mut edge = edge(Allocation::default());
        let before = edge.config().clone();
        let mut set =
            |leaf, name: &str, value| edge.set_handler(Instant::ZERO, leaf, find(name).unwrap(), value);
        assert_eq!(set(4, "law.up", None), Err(NoHandler::NoAllocator));
        let gain = Some(Value::Rate(Rate::from_bps(1)));
        assert_eq!(set(3, "law.gain", gain.clone()), Err(NoHandler::OtherLaw("threshold")));
        assert!(matches!(set(3, "law.up", None), Err(NoHandler::Value(_))));
        assert!(matches!(set(3, "law.up", gain), Err(NoHandler::Value(_))));
        // Thresholds between which a load goes up and down for ever.
        let low = set(3, "law.low", Some(Value::Fraction(Fraction::ratio(85, 100))));
        assert!(matches!(&low, Err(NoHandler::Cannot(found)) if !found.write.is_empty()), "{low:?}");
        assert_eq!(set(3, "law.down", None), Ok(()), "none is the default");
        assert_eq!(edge.config(), &before);
    }
}
