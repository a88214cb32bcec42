//! Declarations that AQMs share: words of a queue, and what they are told by.

use crate::queue::ParamSpec as P;
use crate::queue::{Kind, ParamError, ParamSpec, Params, Scope, TimeUnit, Value};
use crate::units::Fraction;

/// A whole number from `min` to `max`.
pub const fn count(min: u64, max: u64) -> Kind {
    Kind::Count { min, max }
}
/// A time in milliseconds where no unit is written.
pub const MILLIS: Kind = Kind::Time { bare: TimeUnit::Millis };

/// What a `qlimit` may be, packets.
pub const QLIMIT: Kind = count(1, 1_000_000);

/// `qlimit` of a discipline that is one queue, with its default.
pub const fn qlimit(default: &'static str) -> ParamSpec {
    P::discipline("qlimit", QLIMIT, default, "Queue length, packets.")
}
/// `packetsize` of a discipline that is one queue.
pub const PACKET_SIZE: ParamSpec = P::discipline(
    "packetsize",
    Kind::Bytes { min: 1, max: 65_535 },
    "1000",
    "Average packet size, bytes: idle time is counted in its transmission times.",
);
/// `ecn` of a discipline that is one queue.
pub const ECN: ParamSpec =
    P::discipline("ecn", Kind::Flag, "", "Mark ECN-capable packets instead of dropping them early.");
/// `ecn` of a class.
pub const CLASS_ECN: ParamSpec =
    P::class("ecn", Kind::Flag, "", "Mark ECN-capable packets instead of dropping them; alone it means RED.");

/// `qlimit` for classes whose queue holds 50 packets by default.
pub const QLIMIT_50: &[ParamSpec] = &[P::class("qlimit", QLIMIT, "50", "Queue length, packets.")];

/// Packets that a queue without an AQM holds where nothing says otherwise.
pub const USUAL_QLIMIT: u32 = TAIL_PARAMS[0].default_number() as u32;

/// What the queue of every class takes besides `qlimit`, whatever AQM it has.
pub const QUEUE_PARAMS: &[ParamSpec] = &[
    P::class("drop-head", Kind::Flag, "", "When the queue is full, the oldest packet is dropped."),
    P::class("cleardscp", Kind::Flag, "", "Set the DSCP of departing packets to 0."),
];

/// Parameters of a queue without an AQM, as an interface's discipline.
pub const TAIL_PARAMS: &[ParamSpec] = &[
    qlimit("50"),
    P::discipline("drop-head", Kind::Flag, "", "When the queue is full, the oldest packet is dropped."),
];

/// `qlimit` and `cleardscp`: what every queue of a class has, whatever its AQM.
pub(crate) fn queue_param(name: &str) -> Option<&'static ParamSpec> {
    QLIMIT_50.iter().chain(QUEUE_PARAMS).find(|p| p.name == name && matches!(name, "qlimit" | "cleardscp"))
}

/// True for a parameter of a class that speaks of its queue, not of its share.
pub(crate) fn is_about_queue(spec: &ParamSpec) -> bool {
    spec.name == "qlimit" || QUEUE_PARAMS.iter().any(|p| p.name == spec.name && p.help == spec.help)
}

/// What lies between the two thresholds of RED.
pub(super) const BY_CHANCE: &str = "between the two, packets are dropped by chance";

/// The same parameters on a class: for an AQM's `class_params`.
pub const fn in_class<const N: usize>(mut specs: [ParamSpec; N]) -> [ParamSpec; N] {
    let mut at = 0;
    while at < N {
        specs[at].scope = Scope::Class;
        at += 1;
    }
    specs
}

/// `qlimit`, where it is given.
///
/// # Errors
/// `ParamError` for a length out of range.
pub fn queue_limit(class: &str, params: &Params) -> Result<Option<u32>, ParamError> {
    let Some(limit) = params.count("qlimit") else { return Ok(None) };
    QLIMIT_50[0].accept(class, &Value::Count(limit))?;
    Ok(Some(limit as u32))
}

/// A weight is a power of two, so that averaging is a shift.
///
/// # Errors
/// `ParamError` for another number.
pub fn checked_weight(class: &str, field: &str, weight: u64) -> Result<u64, ParamError> {
    if weight == 0 || (weight.is_power_of_two() && weight <= 65_536) {
        return Ok(weight);
    }
    let near = 1u64 << weight.min(65_536).ilog2();
    Err(ParamError::new(
        class,
        field,
        weight,
        alloc::format!("a power of two up to 65536, or 0 to choose: {near}"),
    ))
}

/// p_max as `pmax` or as its inverse, whichever is there.
///
/// # Errors
/// `ParamError` if both are.
pub fn probability(class: &str, params: &Params, names: [&str; 2]) -> Result<Option<Fraction>, ParamError> {
    let inverse = params.count(names[0]).map(|n| Fraction::ratio(1, n));
    match (inverse, params.fraction(names[1])) {
        (Some(_), Some(found)) => Err(ParamError::new(
            class,
            names[1],
            Value::Fraction(found),
            alloc::format!("either {} or {}, not both", names[0], names[1]),
        )),
        (inverse, real) => Ok(inverse.or(real)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn a_weight_is_a_power_of_two_up_to_65536() {
        for good in [0, 1, 2, 512, 65_536] {
            assert_eq!(checked_weight("c", "weight", good), Ok(good));
        }
        for (wrong, near) in [(3, 2), (1_000, 512), (65_537, 65_536), (131_072, 65_536), (u64::MAX, 65_536)] {
            let error = checked_weight("c", "weight", wrong).unwrap_err();
            let expected = alloc::format!("a power of two up to 65536, or 0 to choose: {near}");
            assert_eq!((&*error.field, error.expected), ("weight", expected));
        }
    }

    #[test]
    fn a_limit_is_given_and_in_range_or_is_not_given() {
        let limit = |n| queue_limit("c", &Params::new().with("qlimit", Value::Count(n)));
        assert_eq!(queue_limit("c", &Params::new()), Ok(None));
        assert_eq!((limit(1), limit(1_000_000)), (Ok(Some(1)), Ok(Some(1_000_000))));
        assert!(limit(0).is_err() && limit(1_000_001).is_err());
    }

    #[test]
    fn a_probability_is_given_in_one_form() {
        let names = ["inv_pmax", "pmax"];
        let (inverse, real) = (Value::Count(8), Value::Fraction(Fraction::ratio(1, 4)));
        let of = |params: Params| probability("c", &params, names);
        assert_eq!(of(Params::new()), Ok(None));
        assert_eq!(of(Params::new().with("inv_pmax", inverse.clone())), Ok(Some(Fraction::ratio(1, 8))));
        assert_eq!(of(Params::new().with("pmax", real.clone())), Ok(Some(Fraction::ratio(1, 4))));
        let error = of(Params::new().with("inv_pmax", inverse).with("pmax", real)).unwrap_err();
        assert!(error.to_string().ends_with("expected either inv_pmax or pmax, not both"), "{error}");
    }

    #[test]
    fn words_of_queues_are_told_from_words_of_shares() {
        let every_queue = |name| queue_param(name).map(|spec| spec.name);
        assert_eq!(every_queue("qlimit"), Some("qlimit"));
        assert_eq!(every_queue("cleardscp"), Some("cleardscp"));
        assert_eq!(every_queue("drop-head"), None, "only a queue without an AQM has it");
        assert_eq!(every_queue("priority"), None);
        assert!(QUEUE_PARAMS.iter().chain(QLIMIT_50).all(is_about_queue));
        // The same word may mean another thing to a discipline.
        assert!(!is_about_queue(&P::class("drop-head", Kind::Flag, "", "Which of its classes pays.")));
        assert!(!is_about_queue(&P::class("priority", Kind::Flag, "", QUEUE_PARAMS[0].help)));
    }
}
