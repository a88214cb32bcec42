//! Names and parameters of disciplines that are known to altq.conf and not built yet.
//!
//! A configuration that uses them is read, checked and printed; building its tree is refused by
//! name. Each entry moves to its discipline's own file when that is written.

use super::registry::{Classes, Entry};

use crate::queue::ParamSpec as P;
use crate::queue::{Kind, ParamSpec, TimeUnit};

const SOURCE: &str = "//! Known by name; not built yet.";
const fn count(min: u64, max: u64) -> Kind {
    Kind::Count { min, max }
}

const JOBS_PARAMS: &[ParamSpec] = &[
    P::discipline(
        "qlimit",
        count(1, 1_000_000),
        "200",
        "Packets in the shared buffer, or in each separate one.",
    ),
    P::discipline("separate", Kind::Flag, "", "A buffer for each class instead of one for all."),
    P::discipline(
        "relax",
        Kind::Word(&["delay-first", "loss-first"]),
        "delay-first",
        "Which bounds give way when not all can hold.",
    ),
    P::discipline("sample", count(1, 1_000_000), "1", "Arrivals between two adjustments of the rates."),
    P::class("priority", count(0, 15), "0", "Index of the class; no order of service."),
    P::class("default", Kind::Flag, "", "Takes what no filter matches."),
    P::class("adc", Kind::Time { bare: TimeUnit::Micros }, "-1", "Delay bound, us.").or_none(),
    P::class("alc", Kind::Fraction, "-1", "Loss bound, 0 to 1.").or_none(),
    P::class("arc", Kind::Rate, "-1", "Least rate, bit/s.").or_none(),
    P::class("rdc", Kind::Real, "-1", "Delay of the next class divided by this one's.").or_none(),
    P::class("rlc", Kind::Real, "-1", "Loss of the next class divided by this one's.").or_none(),
];

pub(super) const JOBS: Entry = Entry {
    name: "jobs",
    aliases: &[],
    source: SOURCE,
    params: &[JOBS_PARAMS],
    classes: Classes::Flat,
    build: None,
};

pub(super) const CDNR: Entry =
    Entry { name: "cdnr", aliases: &[], source: SOURCE, params: &[], classes: Classes::None, build: None };
