//! What a configuration may say about the AQM of a queue: on an interface, and on a class.

use crate::queue::ParamSpec as P;
use crate::queue::{Kind, ParamSpec, Scope, TimeUnit};

const fn count(min: u64, max: u64) -> Kind {
    Kind::Count { min, max }
}
const PACKETS: Kind = count(0, 1_000_000);
const INVERSE: Kind = count(1, 1_000_000);
const WEIGHT: Kind = count(0, 65_536);
const THMIN: &str = "Least average queue at which this precedence is dropped, packets.";
const THMAX: &str = "Average queue from which all of this precedence is dropped, packets.";
const INVPMAX: &str = "Inverse of the drop probability just below thmax.";
const PMAX: &str = "The same probability itself, in place of its inverse: 0 to 1.";
const OWN_WEIGHT: &str = "Inverse of the weight of a new sample for this precedence, a power of two.";

/// `qlimit` for classes whose queue holds 50 packets by default.
pub const QLIMIT_50: &[ParamSpec] =
    &[P::class("qlimit", count(1, 1_000_000), "50", "Queue length, packets.")];

/// `qlimit` of a discipline that is one queue of 60 packets.
const QLIMIT_60: ParamSpec = P::discipline("qlimit", count(1, 1_000_000), "60", "Queue length, packets.");
const PACKET_SIZE: ParamSpec = P::discipline(
    "packetsize",
    Kind::Bytes { min: 1, max: 65_535 },
    "1000",
    "Average packet size, bytes: idle time is counted in its transmission times.",
);
const ECN: ParamSpec =
    P::discipline("ecn", Kind::Flag, "", "Mark ECN-capable packets instead of dropping them early.");

const WAIT: ParamSpec =
    P::discipline("wait", Kind::Flag, "", "At least 1/p arrivals between two early drops, as in ns-2.");

const RED_TUNING: [ParamSpec; 7] = [
    P::discipline(
        "weight",
        WEIGHT,
        "0",
        "Inverse of the weight of a new sample, a power of two; 0 chooses 512, 128 or 64 by the rate.",
    ),
    P::discipline("thmin", PACKETS, "5", "RED's lower threshold, packets; in a class 10 % of qlimit."),
    P::discipline("thmax", PACKETS, "15", "RED's upper threshold, packets; in a class 30 % of qlimit."),
    P::discipline("invpmax", INVERSE, "10", INVPMAX),
    P::discipline("pmax", Kind::Fraction, "0.1", PMAX),
    P::discipline("gentle", Kind::Flag, "", "Between thmax and twice thmax drop with rising probability."),
    WAIT,
];

const RIO_TUNING: [ParamSpec; 16] = [
    P::discipline("lo_thmin", PACKETS, "35", THMIN),
    P::discipline("lo_thmax", PACKETS, "45", THMAX),
    P::discipline("lo_invpmax", INVERSE, "10", INVPMAX),
    P::discipline("lo_pmax", Kind::Fraction, "0.1", PMAX),
    P::discipline("lo_weight", WEIGHT, "0", OWN_WEIGHT),
    P::discipline("med_thmin", PACKETS, "20", THMIN),
    P::discipline("med_thmax", PACKETS, "30", THMAX),
    P::discipline("med_invpmax", INVERSE, "10", INVPMAX),
    P::discipline("med_pmax", Kind::Fraction, "0.1", PMAX),
    P::discipline("med_weight", WEIGHT, "0", OWN_WEIGHT),
    P::discipline("hi_thmin", PACKETS, "5", THMIN),
    P::discipline("hi_thmax", PACKETS, "15", THMAX),
    P::discipline("hi_invpmax", INVERSE, "10", INVPMAX),
    P::discipline("hi_pmax", Kind::Fraction, "0.1", PMAX),
    P::discipline("hi_weight", WEIGHT, "0", OWN_WEIGHT),
    P::discipline(
        "unmarked",
        Kind::Word(super::rio::PRECEDENCES),
        "lo",
        "Drop precedence of packets without an AF code point.",
    ),
];

/// RED's parameters as an interface's discipline.
pub const RED_PARAMS: &[ParamSpec] = &join::<11>(&[
    &[QLIMIT_60, PACKET_SIZE],
    &RED_TUNING,
    &[ECN, P::discipline("flowvalve", Kind::Flag, "", "A penalty box for unresponsive flows.")],
]);

/// RIO's parameters as an interface's discipline.
pub const RIO_PARAMS: &[ParamSpec] =
    &join::<21>(&[&[QLIMIT_60, PACKET_SIZE, RED_TUNING[0]], &RIO_TUNING, &[WAIT, ECN]]);

/// BLUE's parameters as an interface's discipline.
pub const BLUE_PARAMS: &[ParamSpec] = &[
    QLIMIT_60,
    PACKET_SIZE,
    P::discipline("maxpmark", INVERSE, "4000", "What a marking probability of 1 is counted as."),
    P::discipline(
        "holdtime",
        Kind::Time { bare: TimeUnit::Micros },
        "1000",
        "Least time between two changes of the probability, us.",
    ),
    ECN,
];

const QLIMIT_1000: ParamSpec = P::discipline("qlimit", count(1, 1_000_000), "1000", "Queue length, packets.");
const MILLIS: Kind = Kind::Time { bare: TimeUnit::Millis };
const TARGET: &str = "Delay that the queue may keep, ms: 5 for codel, 15 for pie.";
const CODEL_TUNING: [ParamSpec; 2] = [
    P::discipline("target", MILLIS, "5ms", TARGET),
    P::discipline("interval", MILLIS, "100ms", "How long CoDel waits for a good queue, ms: a long RTT."),
];

/// CoDel's parameters as an interface's discipline.
pub const CODEL_PARAMS: &[ParamSpec] = &join::<4>(&[&[QLIMIT_1000], &CODEL_TUNING, &[ECN]]);

/// PIE's parameters as an interface's discipline.
pub const PIE_PARAMS: &[ParamSpec] = &[
    QLIMIT_1000,
    P::discipline("target", MILLIS, "15ms", TARGET),
    P::discipline("tupdate", MILLIS, "15ms", "Time between two adjustments of the probability, ms."),
    P::discipline("max-burst", MILLIS, "150ms", "A burst so long passes untouched after a quiet time, ms."),
    ECN,
];

const FLAGS: [ParamSpec; 8] = [
    P::class("drop-head", Kind::Flag, "", "When the queue is full the oldest packet dies."),
    P::class("red", Kind::Flag, "", "RED: thresholds at 10 % and 30 % of the queue's length."),
    P::class("rio", Kind::Flag, "", "RIO: RED by three drop precedences."),
    P::class("codel", Kind::Flag, "", "CoDel: drops by how long packets have waited."),
    P::class("pie", Kind::Flag, "", "PIE: drops so that the delay stays near a target."),
    P::class("ecn", Kind::Flag, "", "Mark ECN-capable packets instead of dropping them; alone it means RED."),
    P::class("flowvalve", Kind::Flag, "", "RED with a penalty box for unresponsive flows."),
    P::class("cleardscp", Kind::Flag, "", "Set the DSCP of departing packets to 0."),
];

/// Parameters of a queue without an AQM, as an interface's discipline.
pub const TAIL_PARAMS: &[ParamSpec] = &[
    P::discipline("qlimit", count(1, 1_000_000), "50", "Queue length, packets."),
    P::discipline("drop-head", Kind::Flag, "", "When the queue is full the oldest packet dies."),
];

/// `qlimit` and `cleardscp`: what every queue of a class has, whatever its AQM.
pub(crate) fn queue_param(name: &str) -> Option<&'static ParamSpec> {
    QLIMIT_50.iter().chain(CLASS_PARAMS).find(|p| p.name == name && matches!(name, "qlimit" | "cleardscp"))
}

/// True for a parameter of a class that speaks of its queue, not of its share.
pub(crate) fn is_about_queue(spec: &ParamSpec) -> bool {
    spec.name == "qlimit" || CLASS_PARAMS.iter().any(|p| p.name == spec.name && p.help == spec.help)
}

/// Those of `CLASS_PARAMS` that say nothing by themselves: they tune the AQM that a class has.
pub fn is_tuning(spec: &ParamSpec) -> bool {
    let same = |p: &&ParamSpec| p.name == spec.name && p.help == spec.help;
    CLASS_PARAMS.iter().skip(FLAGS.len()).any(|p| same(&p))
}

/// What a class of any scheduler may say about its queue. The tuning of an AQM counts only where
/// the class has that AQM.
pub const CLASS_PARAMS: &[ParamSpec] =
    &join::<33>(&[&FLAGS, &in_class(RED_TUNING), &in_class(RIO_TUNING), &in_class(CODEL_TUNING)]);

/// The same parameters on a class.
const fn in_class<const N: usize>(mut specs: [ParamSpec; N]) -> [ParamSpec; N] {
    let mut at = 0;
    while at < N {
        specs[at].scope = Scope::Class;
        at += 1;
    }
    specs
}

/// All of them in one; `N` is their number, or the crate does not compile.
const fn join<const N: usize>(parts: &[&[ParamSpec]]) -> [ParamSpec; N] {
    let mut all = [ECN; N];
    let (mut part, mut at) = (0, 0);
    while part < parts.len() {
        let mut index = 0;
        while index < parts[part].len() {
            all[at] = parts[part][index];
            (at, index) = (at + 1, index + 1);
        }
        part += 1;
    }
    assert!(at == N, "N is the number of all parts together");
    all
}
