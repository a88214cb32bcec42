//! The operations that need not follow every packet: lines 13 to 18 of the paper's figure 4, but
//! for those that touch packets. They look at a few numbers a class (`Facts`) and move the rates.
//!
//! So they can be done elsewhere [QOSBOX section 2.2]: `Sample` is those numbers at one moment,
//! without any tie to the discipline, `Sample::adjust` what is made of them, and a `Delegate` who
//! does it: a thread, a coprocessor. Arrivals and departures go on meanwhile with the rates that
//! are there. One sample is on its way at a time, and what comes back for a set of backlogged
//! classes that is no longer the present one is forgotten. The first step after such a change
//! is made at once, in place, for the rates before it are equal and nobody's wish.

use super::class::{JobsClass, JobsState};
use super::rates::{self, Chain, ONE, Seen, Step, bits};
use super::weights::{CLASSES, Weight};
use super::{Jobs, config};
use crate::queue::{Cx, Discipline, ParamError};
use crate::sched::node::Node;
use crate::sched::registry::Builder;
use alloc::boxed::Box;

/// What the rates follow from.
pub(super) trait Facts {
    /// Bit i: class i has packets.
    fn backlogged(&self) -> u16;
    /// The backlogged classes for which the rates were last reset.
    fn rated(&self) -> u16;
    /// Classes with a delay bound or a least rate.
    fn bounded(&self) -> u16;
    /// Chains of proportional delay.
    fn chains(&self) -> &[u16];
    /// The least rate of a class.
    fn floor(&self, class: usize) -> u64;
    /// Time until the oldest packet of a class is late, if it has a bound; 0: it is overdue.
    fn left_ns(&self, class: usize) -> Option<u64>;
    /// How long the backlog of a class takes the whole link, in 2^-32 ns.
    fn drain(&self, class: usize) -> u128;
    /// The delay that packets of a class have now.
    fn delay_ns(&self, class: usize) -> u64;
    /// The weight of a class in its chain of delays.
    fn weight(&self, class: usize) -> Weight;
}

/// A discipline as it is, but for its rates, which are moved meanwhile.
pub(super) struct Live<'a> {
    pub backlogged: u16,
    pub rated: u16,
    pub bounded: u16,
    pub chains: &'a [u16],
    pub classes: &'a [JobsClass],
    pub states: &'a [JobsState; CLASSES],
    pub by_shifts: bool,
    pub now_ns: u64,
    pub per_byte: u64,
}

/// `Live` of a discipline, with its `rates` left to be borrowed.
macro_rules! live {
    ($jobs:expr, $cx:expr) => {
        Live {
            backlogged: $jobs.backlogged,
            rated: $jobs.rated,
            bounded: $jobs.bounded,
            chains: &$jobs.chains,
            classes: &$jobs.classes,
            states: &$jobs.states,
            by_shifts: $jobs.settings.shifts,
            now_ns: $cx.now.as_nanos(),
            per_byte: $cx.link.per_byte().raw(),
        }
    };
}
pub(super) use live;

impl Facts for Live<'_> {
    fn backlogged(&self) -> u16 {
        self.backlogged
    }
    fn rated(&self) -> u16 {
        self.rated
    }
    fn bounded(&self) -> u16 {
        self.bounded
    }
    fn chains(&self) -> &[u16] {
        self.chains
    }
    fn floor(&self, class: usize) -> u64 {
        self.classes[class].terms.floor
    }
    fn left_ns(&self, class: usize) -> Option<u64> {
        let bound = self.classes[class].terms.delay_ns?;
        Some(bound.saturating_sub(self.now_ns.saturating_sub(self.states[class].oldest_ns)))
    }
    fn drain(&self, class: usize) -> u128 {
        u128::from(self.states[class].wire_bytes) * u128::from(self.per_byte)
    }
    fn delay_ns(&self, class: usize) -> u64 {
        let state = &self.states[class];
        state.delay_ns.max(self.now_ns.saturating_sub(state.oldest_ns))
    }
    fn weight(&self, class: usize) -> Weight {
        self.classes[class].in_delay_chain.weight(self.by_shifts)
    }
}

/// True if a bound asks for a higher rate than its class has: products only.
pub(super) fn is_somebody_short(facts: &impl Facts, rates: &[u64; CLASSES]) -> bool {
    bits(facts.bounded() & facts.backlogged())
        .any(|class| rates[class] < facts.floor(class) || is_late(facts, rates, class))
}

/// True if a class has a delay bound and a rate too low for it, or is overdue.
fn is_late(facts: &impl Facts, rates: &[u64; CLASSES], class: usize) -> bool {
    facts
        .left_ns(class)
        .is_some_and(|left_ns| left_ns == 0 || !rates::suffices(rates[class], facts.drain(class), left_ns))
}

/// The least rate of a class; the whole link if it is overdue.
fn least_rate(facts: &impl Facts, class: usize) -> u64 {
    let floor = facts.floor(class);
    match facts.left_ns(class) {
        None => floor,
        Some(0) => ONE,
        Some(left_ns) => floor.max(rates::least(facts.drain(class), left_ns)),
    }
}

/// The least rate of every class; the overdue ones ask for equal parts of the link.
/// [QOSBOX section 2.4, compute_min_rates]
pub(super) fn least_rates(facts: &impl Facts) -> [u64; CLASSES] {
    let mut least = [0; CLASSES];
    let mut overdue = 0u16;
    for class in bits(facts.bounded() & facts.backlogged()) {
        least[class] = least_rate(facts, class);
        overdue |= u16::from(facts.left_ns(class) == Some(0)) << class;
    }
    for class in bits(overdue) {
        least[class] = ONE / u64::from(overdue.count_ones());
    }
    least
}

/// Where a delay bound cannot hold beside the least rates of others, and no more may die for
/// it, the least rates give way: an overdue class has the link. [QOSBOX section 2.4]
pub(super) fn waive_floors(facts: &impl Facts, rates: &mut [u64; CLASSES]) {
    let bounded = facts.bounded() & facts.backlogged();
    if !bits(bounded).any(|class| is_late(facts, rates, class)) {
        return;
    }
    let mut least = least_rates(facts);
    for class in bits(bounded) {
        if facts.left_ns(class).is_none() {
            least[class] = 0;
        }
    }
    rates::redistribute(rates, &least, facts.backlogged());
}

/// A step of the feedback in every chain. [QOSBOX section 2.4, adjust_rates]
#[inline(always)]
pub(super) fn steer(facts: &impl Facts, rates: &mut [u64; CLASSES], step: Step, scratch: &mut Chain) {
    for &chain in facts.chains() {
        let members = chain & facts.backlogged() & facts.rated();
        if members & (members.wrapping_sub(1)) == 0 {
            continue;
        }
        scratch.begin();
        for class in bits(members) {
            let (drain, delay_ns, rate) = (facts.drain(class), facts.delay_ns(class), rates[class]);
            let seen = Seen { drain, delay_ns, weight: facts.weight(class) };
            let load = seen.load((step != Step::Whole).then_some(rate));
            let bounded = facts.bounded() >> class & 1 == 1;
            scratch.add(class, rate, load, if bounded { least_rate(facts, class).min(rate) } else { 0 });
        }
        scratch.steer(rates, step);
    }
}

/// A class in a sample.
#[derive(Clone, Copy, Debug)]
struct Numbers {
    floor: u64,
    left_ns: Option<u64>,
    drain: u128,
    delay_ns: u64,
    weight: Weight,
}

/// What the rates follow from, at one moment.
#[derive(Clone, Debug)]
pub struct Sample {
    backlogged: u16,
    rated: u16,
    bounded: u16,
    chains: [u16; CLASSES],
    chain_count: usize,
    classes: [Numbers; CLASSES],
    rates: [u64; CLASSES],
    since_ns: u64,
    epoch: u64,
}

impl Facts for Sample {
    fn backlogged(&self) -> u16 {
        self.backlogged
    }
    fn rated(&self) -> u16 {
        self.rated
    }
    fn bounded(&self) -> u16 {
        self.bounded
    }
    fn chains(&self) -> &[u16] {
        &self.chains[..self.chain_count]
    }
    fn floor(&self, class: usize) -> u64 {
        self.classes[class].floor
    }
    fn left_ns(&self, class: usize) -> Option<u64> {
        self.classes[class].left_ns
    }
    fn drain(&self, class: usize) -> u128 {
        self.classes[class].drain
    }
    fn delay_ns(&self, class: usize) -> u64 {
        self.classes[class].delay_ns
    }
    fn weight(&self, class: usize) -> Weight {
        self.classes[class].weight
    }
}

impl Sample {
    /// Of a discipline with these rates, `since_ns` after the last.
    pub(super) fn of(live: &Live<'_>, rates: [u64; CLASSES], since_ns: u64, epoch: u64) -> Sample {
        let none = Numbers { floor: 0, left_ns: None, drain: 0, delay_ns: 0, weight: Weight::Shift(0) };
        let mut sample = Sample {
            backlogged: live.backlogged(),
            rated: live.rated(),
            bounded: live.bounded(),
            chains: [0; CLASSES],
            chain_count: live.chains().len(),
            classes: [none; CLASSES],
            rates,
            since_ns,
            epoch,
        };
        sample.chains[..sample.chain_count].copy_from_slice(live.chains());
        for class in bits(sample.backlogged) {
            sample.classes[class] = Numbers {
                floor: live.floor(class),
                left_ns: live.left_ns(class),
                drain: live.drain(class),
                delay_ns: live.delay_ns(class),
                weight: live.weight(class),
            };
        }
        sample
    }
    /// The rates that follow. Pure: the same wherever and whenever it is done.
    pub fn adjust(&self) -> Adjusted {
        let (mut rates, mut short, mut scratch) = (self.rates, false, Chain::NEW);
        if is_somebody_short(self, &rates) {
            rates::redistribute(&mut rates, &least_rates(self), self.backlogged);
            short = is_somebody_short(self, &rates);
            waive_floors(self, &mut rates);
        }
        steer(self, &mut rates, Step::After(self.since_ns), &mut scratch);
        Adjusted { rates, rated: self.rated, epoch: self.epoch, short }
    }
}

/// Rates for a discipline, made from a sample of it.
#[derive(Clone, Debug)]
pub struct Adjusted {
    pub(super) rates: [u64; CLASSES],
    pub(super) rated: u16,
    pub(super) epoch: u64,
    /// The link is not enough for all bounds: packets must be dropped.
    pub(super) short: bool,
}

/// Who adjusts rates elsewhere. Calls come from the path of packets: neither may wait.
pub trait Delegate: Send {
    /// Begins with a sample; `finished` has answered for the one before.
    fn start(&mut self, sample: Sample);
    /// What came of the sample, once.
    fn finished(&mut self) -> Option<Adjusted>;
}

/// The delegate of a discipline, and what it was given.
pub(super) struct Elsewhere {
    delegate: Box<dyn Delegate>,
    waiting: bool,
}

impl Elsewhere {
    /// What has come back of a sample of this epoch and these classes.
    fn finished(&mut self, epoch: u64, rated: u16) -> Option<Adjusted> {
        let done = self.delegate.finished()?;
        self.waiting = false;
        Some(done).filter(|d| d.epoch == epoch && d.rated == rated)
    }
}

impl Jobs {
    /// `sampled`, by the delegate: apart from the path that almost everybody takes. Answers whether the packet of row `newcomer` died.
    #[cold]
    pub(super) fn sampled_elsewhere(
        &mut self,
        cx: &mut Cx,
        mut elsewhere: Elsewhere,
        newcomer: usize,
    ) -> bool {
        let mut died = false;
        if self.settings.exact && !cx.adopting() && self.bounded & self.backlogged != 0 {
            died = self.drop_until_bounds_fit(cx, newcomer);
        }
        let mut done = elsewhere.finished(self.epoch, self.backlogged);
        if !elsewhere.waiting {
            let now_ns = cx.now.as_nanos();
            if let Some(done) = done.take() {
                died |= self.adopt_rates(cx, &done, newcomer);
            }
            let since_ns = now_ns.saturating_sub(self.adjusted_ns);
            elsewhere.delegate.start(Sample::of(&live!(self, cx), self.rates, since_ns, self.epoch));
            (elsewhere.waiting, self.adjusted_ns) = (true, now_ns);
            // A delegate that is as quick as that has no lag at all.
            done = elsewhere.finished(self.epoch, self.backlogged);
        }
        if let Some(done) = done {
            died |= self.adopt_rates(cx, &done, newcomer);
        }
        self.elsewhere = Some(elsewhere);
        died
    }
    fn adopt_rates(&mut self, cx: &mut Cx, done: &Adjusted, newcomer: usize) -> bool {
        self.rates = done.rates;
        done.short && !self.settings.exact && !cx.adopting() && self.drop_what_is_short(cx, newcomer)
    }
}

/// JoBS whose rates `delegate` adjusts, to be built from an entry of one's own:
///
/// ```
/// use weir_core::sched::jobs::{Adjusted, Delegate, Sample, delegated};
/// use weir_core::sched::{Entry, Registry};
///
/// /// In place: with a thread, `start` sends and `finished` looks whether something came back.
/// struct InPlace(Option<Adjusted>);
/// impl Delegate for InPlace {
///     fn start(&mut self, sample: Sample) {
///         self.0 = Some(sample.adjust());
///     }
///     fn finished(&mut self) -> Option<Adjusted> {
///         self.0.take()
///     }
/// }
///
/// let mut registry = Registry::builtin();
/// let jobs = *registry.find("jobs").unwrap();
/// let build: weir_core::sched::Build = |node, builder| delegated(node, builder, Box::new(InPlace(None)));
/// registry.register(Entry { build: Some(build), ..jobs });
/// ```
///
/// # Errors
/// As for `jobs`.
pub fn delegated(
    node: &Node,
    builder: &mut Builder<'_>,
    delegate: Box<dyn Delegate>,
) -> Result<Box<dyn Discipline>, ParamError> {
    let mut jobs = config::make(node, builder)?;
    jobs.elsewhere = Some(Elsewhere { delegate, waiting: false });
    Ok(Box::new(jobs))
}
