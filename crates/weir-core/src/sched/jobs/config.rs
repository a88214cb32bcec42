//! From a configuration to the discipline.

use super::Jobs;
use super::class::{JobsClass, JobsState, Terms, Totals};
use super::rates::Chain;
use super::service::Service;
use super::weights::{self, CLASSES};
use crate::aqm::params::{QLIMIT, count};
use crate::queue::ParamSpec as P;
use crate::queue::params::{default_of, default_word};
use crate::queue::{Discipline, Kind, ParamError, ParamSpec, Params, Routes, TimeUnit};
use crate::sched::node::Node;
use crate::sched::registry::Builder;
use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;

pub(super) const PARAMS: &[ParamSpec] = &[
    P::discipline("qlimit", QLIMIT, "200", "Packets in the shared buffer, or in each separate one."),
    P::discipline("separate", Kind::Flag, "", "A buffer for each class instead of one for all."),
    P::discipline(
        "relax",
        Kind::Word(&["delay-first", "loss-first"]),
        "delay-first",
        "Which bounds give way when not all can hold.",
    ),
    P::discipline("sample", count(1, 1_000_000), "1", "Arrivals between two adjustments of the rates."),
    P::discipline(
        "interval",
        Kind::Time { bare: TimeUnit::Micros },
        "0",
        "Length of the intervals over which loss is counted, us; 0 for busy periods.",
    ),
    P::discipline(
        "exact-drops",
        Kind::Flag,
        "",
        "Drop by proportional loss until the bounds fit, before rates are moved, instead of after.",
    ),
    P::discipline(
        "counters",
        Kind::Word(&["bytes", "packets"]),
        "bytes",
        "What loss is counted in; the same where all packets are of one length.",
    ),
    P::discipline(
        "shifts",
        Kind::Flag,
        "",
        "Factors rdc and rlc are powers of two: shifts stand for the multiplications by them.",
    ),
    P::discipline("drop-head", Kind::Flag, "", "Drop the oldest packet of the chosen class, not the newest."),
    P::class("priority", count(0, CLASSES as u64 - 1), "0", "Index of the class; no order of service."),
    P::class("default", Kind::Flag, "", "Takes what no filter matches."),
    P::class("adc", Kind::Time { bare: TimeUnit::Micros }, "-1", "Delay bound, us.").or_none(),
    P::class("alc", Kind::Fraction, "-1", "Loss bound, 0 to 1.").or_none(),
    P::class("arc", Kind::Rate, "-1", "Least rate, bit/s on the wire.").or_none(),
    P::class("rdc", Kind::Real, "-1", "Delay of the next class divided by this one's.").or_none(),
    P::class("rlc", Kind::Real, "-1", "Loss of the next class divided by this one's.").or_none(),
    P::class("cleardscp", Kind::Flag, "", "Set the DSCP of departing packets to 0."),
];

/// What the discipline itself is told.
#[derive(Clone, Copy)]
pub(super) struct Settings {
    pub limit: u64,
    pub separate: bool,
    pub loss_first: bool,
    pub sample: u64,
    /// 0: loss is counted over busy periods.
    pub interval_ns: u64,
    pub exact: bool,
    pub drop_head: bool,
    pub count_packets: bool,
    pub shifts: bool,
}

impl Settings {
    /// What these packets and bytes are in the unit that loss is counted in.
    #[inline]
    pub fn counted(&self, packets: u64, bytes: u64) -> u64 {
        if self.count_packets { packets } else { bytes }
    }
    /// With `shifts` every factor must be a power of two.
    ///
    /// # Errors
    /// The first that is not.
    pub fn check_factors(&self, class: &str, terms: &Terms) -> Result<(), ParamError> {
        for (name, factor) in [("rdc", terms.delay_factor), ("rlc", terms.loss_factor)] {
            if let Some(factor) = factor.filter(|f| self.shifts && !weights::is_power_of_two(*f)) {
                let expected = "a power of two, as 2 or 0.5: jobs has `shifts` here";
                return Err(ParamError::new(class, name, factor, expected));
            }
        }
        Ok(())
    }
    /// What the declarations have by default.
    fn new() -> Settings {
        Settings {
            limit: default_of(PARAMS, "qlimit"),
            separate: false,
            loss_first: default_word(PARAMS, "relax") == "loss-first",
            sample: default_of(PARAMS, "sample"),
            interval_ns: default_of(PARAMS, "interval"),
            exact: false,
            drop_head: false,
            count_packets: default_word(PARAMS, "counters") == "packets",
            shifts: false,
        }
    }
    /// These settings with what `params` change.
    pub fn with(mut self, params: &Params) -> Settings {
        self.limit = params.count("qlimit").unwrap_or(self.limit);
        self.sample = params.count("sample").unwrap_or(self.sample);
        self.separate |= params.has("separate");
        self.exact |= params.has("exact-drops");
        self.drop_head |= params.has("drop-head");
        self.loss_first = params.word("relax").map_or(self.loss_first, |word| word == "loss-first");
        self.shifts |= params.has("shifts");
        self.count_packets = params.word("counters").map_or(self.count_packets, |word| word == "packets");
        self.interval_ns = params.time("interval").map_or(self.interval_ns, |time| time.as_nanos());
        self
    }
}

pub(super) fn build(node: &Node, builder: &mut Builder<'_>) -> Result<Box<dyn Discipline>, ParamError> {
    Ok(Box::new(make(node, builder)?))
}

pub(super) fn make(node: &Node, builder: &mut Builder<'_>) -> Result<Jobs, ParamError> {
    let settings = Settings::new().with(&node.params);
    let (mut classes, mut ranges) = (Vec::<JobsClass>::new(), Vec::new());
    for (index, class) in node.classes.iter().enumerate() {
        if class.parent.is_some() {
            return Err(ParamError::new(&class.name, "parent", "a class", "NULL: jobs has no tree"));
        }
        let priority = class.params.count("priority").unwrap_or(default_of(PARAMS, "priority"));
        check_priority(&classes, &class.name, priority)?;
        let terms = Terms::default().with(&class.name, &class.params, &builder.link)?;
        settings.check_factors(&class.name, &terms)?;
        let first = builder.next_leaf();
        let queue = builder.child(node, index, builder.link.rate, u32::MAX)?;
        ranges.push(first..builder.next_leaf());
        classes.push(JobsClass {
            name: class.name.clone(),
            priority,
            terms,
            in_delay_chain: weights::Membership::default(),
            in_loss_chain: weights::Membership::default(),
            totals: Totals::default(),
            queue,
        });
    }
    let mut order: Vec<u64> = classes.iter().map(|class| class.priority).collect();
    order.sort_unstable();
    let rank = |class: &JobsClass| order.iter().position(|p| *p == class.priority).unwrap_or(0);
    let mut class_of = [0; CLASSES];
    for (of, class) in class_of.iter_mut().zip(&classes) {
        *of = rank(class) as u8;
    }
    classes.sort_by_key(|class| class.priority);
    let mut jobs = Jobs {
        settings,
        classes,
        states: [JobsState::default(); CLASSES],
        rates: [0; CLASSES],
        scratch: Chain::NEW,
        service: Service::NEW,
        backlogged: 0,
        rated: 0,
        served: 0,
        bounded: 0,
        chains: Vec::new(),
        packets: 0,
        until_sample: 0,
        adjusted_ns: 0,
        accounting_since_ns: 0,
        class_of,
        routes: Routes::new(&ranges),
        elsewhere: None,
        epoch: 0,
    };
    jobs.index();
    Ok(jobs)
}

fn check_priority(classes: &[JobsClass], name: &str, priority: u64) -> Result<(), ParamError> {
    match classes.iter().find(|class| class.priority == priority) {
        Some(other) => Err(ParamError::new(
            name,
            "priority",
            priority,
            format!("one of 0 to {} that is free: class {} has this one", CLASSES - 1, other.name),
        )),
        None => Ok(()),
    }
}
