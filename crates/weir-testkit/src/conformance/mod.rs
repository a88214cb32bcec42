//! The conformance suite: a discipline against the laws of its contract, by random calls.
//!
//! `run` drives one configuration four times with the same calls: by single dequeues, again
//! (determinism), as a parent's `Child` with `head` and `take` (A06), and with reconfigurations in between that must be refused and change nothing. After every call a ledger of all packets is held against what the discipline says.
//! `discipline`, `pair` and `tree` make the configurations from the registry, so a third party
//! tests its own discipline by
//!
//! ```
//! use weir_core::sched::Registry;
//! let mut registry = Registry::builtin();
//! // registry.register(my_discipline::ENTRY);
//! weir_testkit::conformance::discipline(&registry, "fifoq", 1, 1_000).unwrap();
//! ```

mod ops;
mod port;
mod rig;
mod spy;
mod waiting;

use crate::generate::{self, Below, Generator};
use ops::{Nuisance, Operator};
use port::Bay;
use rig::{END, Form, Rig};
use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use waiting::Waiting;
use weir_core::Random;
use weir_core::queue::{Link, ParamError};
use weir_core::sched::{Classes, Node, Registry};
use weir_core::units::Instant;

pub use rig::Summary;

/// A law that does not hold, with all that is needed to see it again.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The configuration.
    pub node: Node,
    /// The link of the port.
    pub link: Link,
    /// The seed of the calls.
    pub seed: u64,
    /// How the discipline was asked.
    pub form: String,
    /// The number of the call.
    pub call: u32,
    /// What does not hold.
    pub what: String,
    /// The last calls, the failing one at the end.
    pub last: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { node, link, seed, form, call, what, last } = self;
        writeln!(f, "{}: {what}", node.discipline)?;
        writeln!(f, "  at call {call} of seed {seed}, asked in form {form}, on {link:?}")?;
        writeln!(f, "  configuration: {node:?}")?;
        writeln!(f, "  the last calls:")?;
        last.iter().try_for_each(|op| writeln!(f, "    {op}"))
    }
}
impl std::error::Error for Failure {}

/// Calls that one random configuration gets before the next is drawn.
const CALLS_PER_CONFIGURATION: u32 = 2_000;
const SHOWN_CALLS: usize = 24;
/// Packets alive at once: above most queue limits, so that drops for a full queue are seen.
const PACKETS: u32 = 400;
/// Ten years: A35 asks for no overflow within them.
const LATE_NS: u64 = 10 * 365 * 86_400 * 1_000_000_000;
/// A clock may also count from anywhere: in the last quarter of the range the sum of a time and a
/// long delay is no time any more.
const LAST_NS: u64 = u64::MAX - (1 << 62);

/// Drives the configuration `node` with `operations` random calls in every form.
///
/// # Errors
/// The first law that does not hold.
pub fn run(
    registry: &Registry,
    node: &Node,
    link: Link,
    seed: u64,
    operations: u32,
) -> Result<Summary, Box<Failure>> {
    let (summary, log) = drive(registry, node, link, seed, operations, Form::Single, None)?;
    for form in [Form::Single, Form::Child, Form::Harassed] {
        drive(registry, node, link, seed, operations, form, Some(&log))?;
    }
    Ok(summary)
}

/// The discipline `name` over leaves, in as many random configurations as `operations` last; then,
/// if it has classes, a quarter as long over children that report what it does with them.
///
/// # Errors
/// The first law that does not hold.
pub fn discipline(
    registry: &Registry,
    name: &str,
    seed: u64,
    operations: u32,
) -> Result<Summary, Box<Failure>> {
    let leaves = |generator: &mut Generator<'_>| generator.node(name, Below::Leaves);
    let mut summary = configurations(registry, name, &leaves, seed, operations)?;
    if registry.find(name).is_some_and(|entry| entry.classes != Classes::None) {
        let mut registry = registry.clone();
        spy::register(&mut registry);
        let spies = |generator: &mut Generator<'_>| generator.node(name, Below::Each(spy::NAME));
        summary += configurations(&registry, name, &spies, seed, operations / 4)?;
    }
    Ok(summary)
}

/// The AQM `name` as the queue of every class of a PRIQ, tuned at random, in as many configurations
/// as `operations` last.
///
/// # Errors
/// The first law that does not hold; an AQM that cannot be built.
pub fn aqm(registry: &Registry, name: &str, seed: u64, operations: u32) -> Result<Summary, Box<Failure>> {
    configurations(registry, name, &|generator| generator.with_aqm(name), seed, operations)
}

/// The discipline `parent` with `child` as the queue of every class that has no children.
///
/// # Errors
/// The first law that does not hold.
pub fn pair(
    registry: &Registry,
    parent: &str,
    child: &str,
    seed: u64,
    operations: u32,
) -> Result<Summary, Box<Failure>> {
    configurations(
        registry,
        parent,
        &|generator| generator.node(parent, Below::Each(child)),
        seed,
        operations,
    )
}

/// The discipline `root` over random trees of whatever is registered, three levels deep.
///
/// # Errors
/// The first law that does not hold.
pub fn tree(registry: &Registry, root: &str, seed: u64, operations: u32) -> Result<Summary, Box<Failure>> {
    configurations(registry, root, &|generator| generator.node(root, Below::Anything(2)), seed, operations)
}

/// The discipline `name` inside a port, over random trees: swaps under load to whatever is
/// registered and back, falls back, flushes; half of the configurations over leaves.
///
/// # Errors
/// The first law that does not hold.
pub fn port(registry: &Registry, name: &str, seed: u64, operations: u32) -> Result<Summary, Box<Failure>> {
    let mut random = Random::new(seed);
    let mut summary = Summary::default();
    for round in 0..operations.div_ceil(CALLS_PER_CONFIGURATION) {
        let (link, seed) = (generate::link(&mut random), random.next_u64());
        let below = if round % 2 == 0 { Below::Leaves } else { Below::Anything(2) };
        let mut last = VecDeque::new();
        let fail = |node: Node, call: u32, what: String, last: VecDeque<String>| {
            Box::new(Failure { node, link, seed, form: "port".into(), call, what, last: last.into() })
        };
        let mut bay = Bay::new(registry, name, below, link, seed).map_err(|error| {
            fail(Node { discipline: name.into(), ..Node::default() }, 0, error.to_string(), VecDeque::new())
        })?;
        for call in 0..CALLS_PER_CONFIGURATION {
            let mut told = String::new();
            let law = guarded(&mut bay, |bay| {
                let (call, law) = bay.step();
                told = call;
                law
            });
            remember(&mut last, told);
            law.map_err(|what| fail(bay.node.clone(), call, what, last.clone()))?;
        }
        guarded(&mut bay, Bay::finish)
            .map_err(|what| fail(bay.node.clone(), CALLS_PER_CONFIGURATION, what, last))?;
        summary += bay.summary;
    }
    Ok(summary)
}

fn remember(last: &mut VecDeque<String>, call: String) {
    if last.len() == SHOWN_CALLS {
        last.pop_front();
    }
    last.push_back(call);
}

fn configurations(
    registry: &Registry,
    name: &str,
    draw: &dyn Fn(&mut Generator<'_>) -> Result<Node, ParamError>,
    seed: u64,
    operations: u32,
) -> Result<Summary, Box<Failure>> {
    let mut random = Random::new(seed);
    let mut summary = Summary::default();
    let mut left = operations;
    while left > 0 {
        let calls = left.min(CALLS_PER_CONFIGURATION);
        left -= calls;
        let (link, seed) = (generate::link(&mut random), random.next_u64());
        let node = draw(&mut Generator::new(registry, link, seed)).map_err(|error| {
            Box::new(Failure {
                node: Node { discipline: name.into(), ..Node::default() },
                link,
                seed,
                form: "none".into(),
                call: 0,
                what: format!("no random configuration of {name} was accepted; the last refusal: {error}"),
                last: Vec::new(),
            })
        })?;
        summary += run(registry, &node, link, seed, calls)?;
    }
    Ok(summary)
}

/// One run. With `expected`, the log must be that one, call by call.
fn drive(
    registry: &Registry,
    node: &Node,
    link: Link,
    seed: u64,
    operations: u32,
    form: Form,
    expected: Option<&[u64]>,
) -> Result<(Summary, Vec<u64>), Box<Failure>> {
    let mut last: VecDeque<String> = VecDeque::new();
    let fail = |call: u32, what: String, last: &VecDeque<String>| {
        Box::new(Failure {
            node: node.clone(),
            link,
            seed,
            form: format!("{form:?}"),
            call,
            what,
            last: last.iter().cloned().collect(),
        })
    };
    spy::forget();
    let tree = registry.build(node, link).map_err(|error| fail(0, error.to_string(), &last))?;
    let leaves = tree.leaves.len();
    let start = Instant::from_nanos([LATE_NS, 0, LAST_NS][(seed % 3) as usize]);
    let waiting = Waiting::new(registry, node, &tree.leaves);
    let mut rig = Rig::new(tree.discipline, waiting, form, link, PACKETS, seed, start);
    let mut operator = Operator::new(registry, node, leaves, link, seed);
    let mut nuisance = Nuisance::new(registry, node, link, seed);
    let mut log = Vec::with_capacity(operations as usize);
    for call in 0..operations {
        if rig.now() > END {
            break;
        }
        let op = operator.next_op();
        remember(&mut last, format!("{} {op:?}", rig.now()));
        if form == Form::Harassed && call % 4 == 0 {
            let (class, params) = nuisance.next_one();
            remember(&mut last, format!("{} to refuse: class `{class}` {params:?}", rig.now()));
            guarded(&mut rig, |rig| rig.refuse(&class, &params)).map_err(|what| fail(call, what, &last))?;
        }
        guarded(&mut rig, |rig| rig.apply(&op)).map_err(|what| fail(call, what, &last))?;
        log.push(rig.hash());
        if expected.is_some_and(|e| e[call as usize] != rig.hash()) {
            let law = match form {
                Form::Single => "the same calls with the same seed led elsewhere",
                Form::Child => "head and take differ from a dequeue",
                Form::Harassed => "reconfigurations that were refused changed what came after",
            };
            return Err(fail(call, law.into(), &last));
        }
    }
    guarded(&mut rig, Rig::finish).map_err(|what| fail(operations, what, &last))?;
    Ok((rig.summary, log))
}

/// A panic is a failure like others, with its seed and calls.
fn guarded<T>(tested: &mut T, act: impl FnOnce(&mut T) -> Result<(), String>) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(|| act(tested))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        Err(format!("panicked: {}", text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no message")))
    })
}
